/* Iterations, as kn_step marks them: how long they took, and which of them are measured. */
#ifndef KN_PROFILER_STEPS_H
#define KN_PROFILER_STEPS_H

#include "report.h"

typedef struct kn__step_plan {
    uint64_t first, last; /* measured: from the first step, 1, to the last; last 0: no end */
    uint64_t every;       /* a report after so many steps; 0: none */
} kn__step_plan;

/* Before the first step. `measure` turns measuring on and off, `report` makes a report; both are
 * called on the thread that called kn_step. */
void kn__steps_start(const kn__step_plan *plan, void (*measure)(bool on), void (*report)(void));

/* The measured steps so far. */
void kn__steps_read(kn__steps *out);
/* Of all steps. */
uint64_t kn__steps_seen(void);
/* At exit, which a signal handler inside kn_step may have called. */
void kn__steps_leave(void);

#endif
