#include "thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "cores.h"

_Thread_local kn__ops_thread *kn__ops_self __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static void free_headers(kn__ops_thread *self) {
    for (kn_tensor *t = self->ended, *next; t; t = next) {
        next = t->grad;
        free(t);
    }
    for (kn_storage *s = self->free_storages, *next; s; s = next) {
        next = s->data;
        free(s);
    }
}

static void thread_end(void *value) {
    kn__ops_thread *self = value;
    kn__ops_self = self;
    kn__frames_end(self, 0);
    for (int i = 0; i < self->n_events; i++) kn_event_destroy(self->events[i]);
    free_headers(self);
    free(self->frames);
    free(self->owned);
    free(self);
    kn__ops_self = NULL;
}

static void make_key(void) { key_made = pthread_key_create(&key, thread_end) == 0; }

/* An unloaded library must not be called at the end of a thread. */
__attribute__((destructor)) static void delete_key(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
}

kn__ops_thread *kn__ops_thread_make(void) {
    pthread_once(&key_once, make_key);
    kn__ops_thread *self = calloc(1, sizeof *self);
    if (!self) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for a thread's frames");
    self->host = kn_device_host();
    self->ended_last = (void **)&self->ended;
    self->defaults =
        (kn__frame){.device = self->host, .dtype = KN_F32, .threads = kn__threads_default()};
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
