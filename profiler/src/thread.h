/* Threads of the timer's own. They block all signals: the program's signals are for the program's
 * threads. */
#ifndef KN_PROFILER_THREAD_H
#define KN_PROFILER_THREAD_H

#include <pthread.h>

/* As pthread_create; returns its error number. */
int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg);

#endif
