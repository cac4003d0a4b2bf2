/* The end of a process whose main has ended by pthread_exit.
 *
 * The C library ends such a process, by exit(0), when its last thread ends; a helper that sleeps
 * would be that thread and never ends. So the end of the initial thread, and nothing before it,
 * starts one thread more. It looks now and then whether helpers alone are left and calls exit then:
 * helpers are stopped and joined by the same code as at any other exit. */
#include "helper.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.h"
#include "now.h"

enum { LOOK_FIRST_NS = 1000000, LOOK_EVERY_NS = 100000000, LOOK_PART = 8 };

/* Its value says at the end of a thread whether that was the initial one or a helper. */
static pthread_key_t key;
static _Atomic bool key_made; /* cleared while other threads may still run */
static char initial, helper;  /* values of the key */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects everything below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_helpers;
static bool main_ended, watches, unloads;
static pthread_t watcher;
static sigset_t mask; /* of the initial thread, at its end */

/* "PID (NAME) STATE …", with the number of threads 17 words after the state: the initial thread's
 * and of the whole process. It is a zombie while other threads run. */
static bool read_threads(int *n) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = '\0';
    char state = 0;
    const char *name_end = strrchr(text, ')'); /* a name may have brackets of its own */
    return name_end &&
           sscanf(name_end + 1,
                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d", &state,
                  n) == 2 &&
           state == 'Z';
}

/* Helpers come and go under the lock alone, so none of the program's threads is taken for one: a
 * thread that is not a helper yet, or no more, counts as the program's. */
static bool helpers_alone_locked(void) {
    int n = 0;
    return read_threads(&n) && n <= n_helpers + 2; /* the initial thread and this one */
}

/* The process ends late by an eighth of the time since main's end, and at most by LOOK_EVERY_NS. */
static void *watch(void *unused) {
    uint64_t wait_ns = LOOK_FIRST_NS;
    pthread_mutex_lock(&lock);
    while (!unloads && !helpers_alone_locked()) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until = kn__time_after(until, wait_ns);
        pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
        if (wait_ns < LOOK_EVERY_NS) wait_ns += wait_ns / LOOK_PART;
    }
    bool ends = !unloads;
    pthread_mutex_unlock(&lock);
    if (!ends) return unused;
    pthread_sigmask(SIG_SETMASK, &mask, NULL); /* handlers of atexit find the program's */
    exit(0);
}

/* With signals blocked, which are for the program's threads. Without memory the process stays. */
static void watch_locked(void) {
    sigset_t all, before;
    if (!main_ended || watches || unloads || n_helpers == 0) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watches = pthread_create(&watcher, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void thread_end(void *value) {
    pthread_mutex_lock(&lock);
    if (value == &helper) {
        n_helpers--;
        KN_ASSERT(n_helpers >= 0);
    } else {
        main_ended = true;
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        watch_locked();
    }
    pthread_mutex_unlock(&lock);
}

void kn__helper_enter(void) {
    if (!key_made || pthread_setspecific(key, &helper) != 0) return;
    pthread_mutex_lock(&lock);
    n_helpers++;
    watch_locked(); /* main may have ended before there was a helper */
    pthread_mutex_unlock(&lock);
}

/* A child has the forking thread alone, which is its initial one. */
static void fork_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    n_helpers = 0;
    main_ended = watches = false;
    if (key_made) pthread_setspecific(key, &initial);
}

/* Before the first helper. Where another thread than the initial one loads the library, the end of
 * the initial thread isn't seen. */
__attribute__((constructor(200))) static void start(void) {
    key_made = pthread_key_create(&key, thread_end) == 0;
    if (key_made && gettid() == getpid()) pthread_setspecific(key, &initial);
    pthread_atfork(NULL, NULL, fork_child);
}

/* An unloaded library must not be called at the end of a thread, nor run a thread. At the process's
 * end this may be that thread. */
__attribute__((destructor)) static void end(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
    pthread_mutex_lock(&lock);
    unloads = true;
    bool joins = watches && !pthread_equal(watcher, pthread_self());
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (joins) pthread_join(watcher, NULL);
}
