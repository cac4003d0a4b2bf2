/* Threads of the timer's own, which block all signals: the program's signals are for the program's
 * threads. Names of any thread.
 *
 * A signal handler of the program may call exit(), and the report then takes our locks: a thread of
 * the program holds those of them with signals blocked that a signal could meet. */
#ifndef KN_PROFILER_THREAD_H
#define KN_PROFILER_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* As pthread_create; returns its error number. */
int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg);

sigset_t kn__handlers_hold(void);
void kn__handlers_restore(const sigset_t *before);

/* To the end of the block this thread handles no signal. They nest. */
#define KN__SIGNALS_LATER()                                                                        \
    const sigset_t signals_ __attribute__((cleanup(kn__handlers_restore), unused)) =               \
        kn__handlers_hold()

/* The name of a thread of this process, cut to fit; "" if it isn't known. */
void kn__thread_name(char *out, size_t out_bytes, long tid);

#endif
