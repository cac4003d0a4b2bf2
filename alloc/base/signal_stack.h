/* A stack of its own for signal handlers.
 *
 * While oneDNN multiplies, the stack pointer of the thread points into work space: a handler that
 * runs on the thread's stack would write below that, over whatever lies there, or end the process.
 * Handlers that may meet computing threads have SA_ONSTACK, and the thread has this. */
#ifndef KN_BASE_SIGNAL_STACK_H
#define KN_BASE_SIGNAL_STACK_H

#include <signal.h>
#include <stddef.h>

enum { KN__SIGNAL_STACK_BYTES = 64 << 10 }; /* frames of AVX-512 and AMX take up to 11 KiB */

/* For the calling thread, unless it has one. `memory` outlives the thread. */
static inline void kn__signal_stack_set(char memory[KN__SIGNAL_STACK_BYTES]) {
    stack_t now, own = {.ss_sp = memory, .ss_size = KN__SIGNAL_STACK_BYTES};
    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE)) (void)sigaltstack(&own, NULL);
}

#endif
