#include "thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "capture.h"
#include "cores.h"
#include "fuse.h"
#include "host/host.h"
#include "modes.h"

_Thread_local kn__ops_thread *kn__ops_self __attribute__((tls_model("initial-exec")));
_Atomic uint32_t kn__n_recordings;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Atomic bool key_made; /* cleared while other threads may still run */

/* --- records of threads that ended --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kn_edge left; /* the oldest first */
static kn_edge *left_last = &left;
static _Atomic uint32_t n_left;

void kn__records_leave(kn_tensor *first, kn_edge *last, uint32_t n) {
    if (!n) return;
    pthread_mutex_lock(&lock);
    *left_last = (kn_edge)first;
    left_last = last;
    atomic_fetch_add_explicit(&n_left, n, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static kn_tensor *take_left(void) {
    pthread_mutex_lock(&lock);
    bool may_take = n_left > KN__ENDED_MIN && !kn__any_records();
    kn_tensor *t = may_take ? (kn_tensor *)left : NULL;
    if (t) {
        left = t->grad;
        n_left--;
    }
    pthread_mutex_unlock(&lock);
    return t;
}

void kn__records_trim(void) {
    for (kn_tensor *t = take_left(); t; t = take_left()) free(t);
}

kn_tensor *kn__record_new(void) {
    kn_tensor *t = NULL;
    if (atomic_load_explicit(&n_left, memory_order_relaxed) > KN__ENDED_MIN) t = take_left();
    return t ? t : aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
}

/* --- a thread's end --- */

static void thread_end(void *value) {
    kn__ops_thread *self = value;
    kn__ops_self = self;
    kn__frames_end(self, 0);
    kn__fuse_thread_end(self);
    for (int i = 0; i < self->n_events; i++) kn_event_destroy(self->events[i]);
    kn__records_leave((kn_tensor *)self->ended, self->ended_last, self->n_ended);
    free(self->frames);
    free(self->owned);
    free(self);
    kn__ops_self = NULL;
}

static void lock_take(void) { pthread_mutex_lock(&lock); }
static void lock_open(void) { pthread_mutex_unlock(&lock); }

/* A fork takes first the locks that are registered last: those of kernels before that of records,
 * and both before those of pools, which were registered when the program began. */
static void make_key(void) {
    key_made = pthread_key_create(&key, thread_end) == 0;
    pthread_atfork(lock_take, lock_open, lock_open);
    kn__host.forks_watch();
}

/* An unloaded library must not be called at the end of a thread. The records of ended threads stay:
 * at the process's end other threads may still take them and leave more. */
__attribute__((destructor)) static void delete_key(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
}

kn__ops_thread *kn__ops_thread_make(void) {
    if (kn__modes_check() < 0) return kn_error_defer(kn_last_error()->status);
    pthread_once(&key_once, make_key);
    kn__ops_thread *self = calloc(1, sizeof *self);
    if (!self) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for a thread's frames");
    self->host = kn_device_host();
    self->ended_last = (kn_edge *)(void *)&self->ended;
    self->defaults = (kn__frame){.device = self->host,
                                 .dtype = KN_F32,
                                 .threads = kn__threads_default(),
                                 .fuse = kn__mode_fuse() >= KN__MODE_DEFAULT,
                                 .recompute = kn__mode_recompute() >= KN__MODE_DEFAULT};
    if (key_made) pthread_setspecific(key, self);
    return kn__ops_self = self;
}

kn_status kn__thread_event(kn_event **out, kn__ops_thread *self, kn_device *device) {
    for (int i = 0; i < self->n_events; i++) {
        if (self->event_devices[i] == device) {
            *out = self->events[i];
            return KN_OK;
        }
    }
    if (self->n_events == KN__THREAD_EVENTS) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "one thread waits on more than %d devices",
                       KN__THREAD_EVENTS);
    }
    KN_TRY(kn_event_create(out, device));
    self->event_devices[self->n_events] = device;
    self->events[self->n_events++] = *out;
    return KN_OK;
}
