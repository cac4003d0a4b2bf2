/* The ends of a thread, for a program that holds nothing of a pool. */
#include "thread.h"

void kn__thread_end_caches(kn__thread *thread) { (void)thread; }
void kn__thread_end_default_stream(kn__thread *thread) { (void)thread; }
void kn__thread_end_streams(kn__thread *thread) { (void)thread; }
void kn__thread_end_trace(kn__thread *thread) { (void)thread; }
