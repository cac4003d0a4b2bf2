#include "device/observe.h"

#include <pthread.h>

_Atomic(const kn_observer *) kn__observer_table;
_Atomic(const kn_observer *) kn__observer_attached;
_Atomic(const kn_observer *) kn__observer_in_front_of;
static const kn_observer *tap_alone, *tap_in_front, *front;
static pthread_mutex_t tap_lock = PTHREAD_MUTEX_INITIALIZER;

static void table_set(void) {
    const kn_observer *attached = atomic_load(&kn__observer_attached);
    const kn_observer *tap = attached ? tap_in_front : tap_alone;
    const kn_observer *inner = tap ? tap : attached;
    atomic_store(&kn__observer_in_front_of, inner);
    atomic_store(&kn__observer_table, front ? front : inner);
}

void kn__observer_front(const kn_observer *observer) {
    pthread_mutex_lock(&tap_lock);
    front = observer;
    table_set();
    pthread_mutex_unlock(&tap_lock);
}

void kn__observer_tap(const kn_observer *alone, const kn_observer *in_front) {
    pthread_mutex_lock(&tap_lock);
    tap_alone = alone;
    tap_in_front = in_front;
    table_set();
    pthread_mutex_unlock(&tap_lock);
}

void kn__observer_fork_child(void) { tap_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void kn__observer_untap_child(void) {
    kn__observer_fork_child();
    kn__observer_tap(NULL, NULL);
}

bool kn__observer_publish(const kn_observer *observer) {
    pthread_mutex_lock(&tap_lock);
    const kn_observer *before = atomic_load(&kn__observer_attached);
    bool taken = observer && before && before != observer;
    if (!taken) atomic_store(&kn__observer_attached, observer);
    table_set();
    pthread_mutex_unlock(&tap_lock);
    return !taken;
}
