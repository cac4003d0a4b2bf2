/* The timer's own work on a thread, whose memory is not the program's. */
#ifndef KN_PROFILER_MUTE_H
#define KN_PROFILER_MUTE_H

#include <stdatomic.h>

/* Between these two no block of a heap is counted, and none of our locks is taken for it. They
 * nest. The fences: the compiler knows malloc and would move these past it. */
extern _Thread_local int kn__muted __attribute__((tls_model("initial-exec")));
static inline void kn__mute(void) {
    kn__muted++;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void kn__unmute(void) {
    atomic_signal_fence(memory_order_seq_cst);
    kn__muted--;
}

#endif
