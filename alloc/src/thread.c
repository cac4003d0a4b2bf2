#include "thread.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Thread_local kn__thread *kn__self __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

/* Records of threads that ended. */
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static kn__thread *ended;

static void record_put(kn__thread *thread) {
    pthread_mutex_lock(&ended_lock);
    thread->next = ended;
    ended = thread;
    pthread_mutex_unlock(&ended_lock);
}

static kn__thread *record_take(void) {
    pthread_mutex_lock(&ended_lock);
    kn__thread *thread = ended;
    if (thread) ended = thread->next;
    pthread_mutex_unlock(&ended_lock);
    return thread;
}

static kn__thread *record_get(void) {
    kn__thread *thread = record_take();
    if (!thread) return calloc(1, sizeof *thread);
    memset((char *)thread + offsetof(kn__thread, caches), 0,
           sizeof *thread - offsetof(kn__thread, caches));
    return thread;
}

void kn__threads_fork_child(void) { ended_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

static void thread_end(void *value) {
    kn__thread *thread = value;
    kn__self = thread; /* destructors that ran before ours may have used the library again */
    kn__thread_end_caches(thread);
    kn__thread_end_streams(thread);
    kn__thread_end_trace(thread);
    kn__self = NULL;
    record_put(thread);
}

static void make_key(void) { key_made = pthread_key_create(&key, thread_end) == 0; }

/* An unloaded library must not be called at the end of a thread. */
__attribute__((destructor)) static void delete_key(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
    while (ended) free(record_take());
}

kn__thread *kn__thread_get(void) {
    if (kn__self) return kn__self;
    pthread_once(&key_once, make_key);
    kn__thread *thread = record_get();
    if (!thread) return NULL;
    if (key_made) pthread_setspecific(key, thread); /* on failure: a leak at the thread's end */
    return kn__self = thread;
}
