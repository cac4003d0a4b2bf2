/* The observer as this library sees it: one atomic pointer, NULL while no observer is attached. */
#ifndef KNET_ALLOC_OBSERVE_H
#define KNET_ALLOC_OBSERVE_H

#include <knet/observer.h>
#include <stdatomic.h>

extern _Atomic(const kn_observer *) kn__observer_table __attribute__((visibility("hidden")));

static inline const kn_observer *kn__observer(void) {
    const kn_observer *table = atomic_load_explicit(&kn__observer_table, memory_order_acquire);
    return __builtin_expect(table != NULL, 0) ? table : NULL;
}

extern _Atomic(const kn_observer *) kn__observer_attached __attribute__((visibility("hidden")));

/* An observer of our own: `alone` where no other is attached, `in_front` of one that is, to which
 * it forwards every call; NULLs detach it. */
void kn__observer_tap(const kn_observer *alone, const kn_observer *in_front);
/* Another one of our own, in front of both: it passes all calls on to kn__observer_inner(). NULL
 * detaches it. */
void kn__observer_front(const kn_observer *observer);
extern _Atomic(const kn_observer *) kn__observer_in_front_of __attribute__((visibility("hidden")));
static inline const kn_observer *kn__observer_inner(void) {
    return atomic_load_explicit(&kn__observer_in_front_of, memory_order_acquire);
}
/* The attached observer, or NULL. False: another one is attached. */
bool kn__observer_publish(const kn_observer *observer);
/* In the child of a fork, which has one thread. */
void kn__observer_fork_child(void);
void kn__observer_untap_child(void);
static inline const kn_observer *kn__observer_behind(void) {
    return atomic_load_explicit(&kn__observer_attached, memory_order_acquire);
}

/* Wraps a call to a device's driver: KN__CALL("cuMemCreate", result = cuMemCreate(…)); */
#define KN__CALL(name, ...)                                                                        \
    do {                                                                                           \
        const kn_observer *kn_o_ = kn__observer();                                                 \
        if (kn_o_ && kn_o_->on_call_begin) kn_o_->on_call_begin(name);                             \
        __VA_ARGS__;                                                                               \
        if (kn_o_ && kn_o_->on_call_end) kn_o_->on_call_end(name);                                 \
    } while (0)

#endif
