/* A thread that fills the next batch of a loader. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "loader.h"

struct kn__prefetch {
    pid_t pid; /* of the process that has the thread: not a child of fork */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const kn_loader *loader;
    kn__batch_buffer *buffer; /* to fill; NULL: nothing to do */
    int64_t index;            /* of the batch that was begun; -1: none */
    bool quit;
};

static void *work(void *arg) {
    kn__prefetch *p = arg;
    kn__helper_enter();
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (!p->buffer) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        kn__batch_buffer *b = p->buffer;
        int64_t index = p->index;
        pthread_mutex_unlock(&p->lock);
        kn__batch_gather(p->loader, b, index);
        pthread_mutex_lock(&p->lock);
        p->buffer = NULL;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

kn_status kn__prefetch_start(kn_loader *l) {
    kn__prefetch *p = calloc(1, sizeof *p);
    sigset_t all, before;
    if (!p) return KN_FAIL(KN_ERR_OOM, "no memory for the thread of a loader");
    p->loader = l;
    p->pid = getpid();
    p->index = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    sigfillset(&all); /* signals are of the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&p->thread, NULL, work, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(p);
        return KN_FAIL(error == EAGAIN ? KN_ERR_OOM : KN_ERR_INTERNAL, "the thread of a loader: %s",
                       strerror(error));
    }
    l->prefetch = p;
    return KN_OK;
}

static bool has_thread(const kn__prefetch *p) { return p && p->pid == getpid(); }

void kn__prefetch_stop(kn_loader *l) {
    kn__prefetch *p = l->prefetch;
    if (has_thread(p)) {
        pthread_mutex_lock(&p->lock);
        p->quit = true;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
    }
    free(p);
    l->prefetch = NULL;
}

void kn__prefetch_begin(kn_loader *l, kn__batch_buffer *b, int64_t index) {
    kn__prefetch *p = l->prefetch;
    if (!has_thread(p)) return;
    pthread_mutex_lock(&p->lock);
    p->buffer = b;
    p->index = index;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

bool kn__prefetch_wait(kn_loader *l, int64_t index) {
    kn__prefetch *p = l->prefetch;
    if (!has_thread(p)) return false;
    pthread_mutex_lock(&p->lock);
    while (p->buffer) pthread_cond_wait(&p->changed, &p->lock);
    bool is_it = p->index == index;
    p->index = -1;
    pthread_mutex_unlock(&p->lock);
    return is_it;
}

void kn__prefetch_drop(kn_loader *l) { (void)kn__prefetch_wait(l, -2); }
