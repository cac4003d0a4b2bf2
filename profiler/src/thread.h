/* Threads of the timer's own, which block all signals: the program's signals are for the program's
 * threads. Names of any thread.
 *
 * A signal handler of the program may call exit(), and the report then takes our locks: a thread of
 * the program blocks signals while it holds one over calls of the system that take long. */
#ifndef KN_PROFILER_THREAD_H
#define KN_PROFILER_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* As pthread_create; returns its error number. */
int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* Blocks all signals of this thread until the other one; `before` is the caller's. */
void kn__signals_block(sigset_t *before);
void kn__signals_restore(const sigset_t *before);

/* The name of a thread of this process, cut to fit; "" if it isn't known. */
void kn__thread_name(char *out, size_t out_bytes, long tid);

#endif
