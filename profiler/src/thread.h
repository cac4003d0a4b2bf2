/* Threads of the timer's own, which block all signals: the program's signals are for the program's
 * threads. Names of any thread. */
#ifndef KN_PROFILER_THREAD_H
#define KN_PROFILER_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* As pthread_create; returns its error number. */
int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* The name of a thread of this process, cut to fit; "" if it isn't known. */
void kn__thread_name(char *out, size_t out_bytes, long tid);

#endif
