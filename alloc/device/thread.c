#include "device/thread.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cancel.h"
#include "checked.h"

_Thread_local kn__thread *kn__self __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Atomic bool key_made; /* cleared while other threads may still run */

typedef void (*end_fn)(kn__thread *thread);
static _Atomic(end_fn) ends[KN__THREAD_ENDS];

void kn__thread_at_end(kn__thread_end end, end_fn fn) {
    KN_ASSERT(end < KN__THREAD_ENDS && (!ends[end] || ends[end] == fn));
    atomic_store(&ends[end], fn);
}

/* A thread that has returned may be cancelled here too. */
static void thread_end(void *value) {
    KN__CANCEL_LATER();
    kn__thread *thread = value;
    for (int i = 0; i < KN__THREAD_ENDS; i++) {
        end_fn fn = atomic_load(&ends[i]);
        if (fn) fn(thread);
    }
    kn__self = NULL;
    free(thread);
}

static void make_key(void) { key_made = pthread_key_create(&key, thread_end) == 0; }

/* An unloaded library must not be called at the end of a thread. */
__attribute__((destructor)) static void delete_key(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
}

kn__thread *kn__thread_get(void) {
    if (kn__self) return kn__self;
    pthread_once(&key_once, make_key);
    kn__thread *thread = calloc(1, sizeof *thread);
    if (!thread) return NULL;
    if (key_made) pthread_setspecific(key, thread); /* on failure: a leak at the thread's end */
    return kn__self = thread;
}

static bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool kn__threads_fence_init(void) { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

bool kn__threads_fence(void) { return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }
