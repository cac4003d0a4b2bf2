/* Locks that no thread will release. exit() in a signal handler runs on a thread that the handler
 * has interrupted, perhaps while it holds one of ours over a write; and the last report needs it.
 * Where a lock is held for some instructions alone, KN__SIGNALS_LATER of thread.h is simpler. */
#ifndef KN_PROFILER_LEFT_H
#define KN_PROFILER_LEFT_H

#include <pthread.h>
#include <stdbool.h>

#define KN__LEFT_MUTEX PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP /* knows its thread */

/* At exit: whether this thread holds it. Then other threads of the timer no longer wait for it, nor
 * for others like it. */
bool kn__left_mine(pthread_mutex_t *lock);

/* Takes the lock. False: this thread holds it, or a thread that will not release it. Then what it
 * protects does not change any more, and may be half written. */
bool kn__left_lock(pthread_mutex_t *lock);

#endif
