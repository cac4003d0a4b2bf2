/* What a scope computes and moves, so that reports show the rate at which it ran.
 *
 *     {
 *         KN_SCOPE("dot");
 *         dot(x, y, n);
 *         kn_prof_metric(2 * n, 2 * n * sizeof *x);
 *     }
 *
 * Reports divide what a scope and those inside it did by their time (of the GPU, where it worked),
 * and compare that with the machine's peaks, which `knet info --peaks` measures. The ops of
 * <knet/ops.h> tell their work themselves.
 */
#ifndef KNET_PROF_METRIC_H
#define KNET_PROF_METRIC_H

#include <knet/prof.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not for users. */
KN_API void kn_prof_metric_on_(uint64_t flops, uint64_t moved_bytes);

/* Adds to the work of this thread's innermost scope: floating-point operations, and bytes read and
 * written. Sums stop at UINT64_MAX. No-op with no scope open; with the timer off one predictable
 * branch. */
static inline void kn_prof_metric(uint64_t flops, uint64_t moved_bytes) {
    if (kn_prof_is_on_(KN_PROF_ALL_ | KN_PROF_GRAD_)) kn_prof_metric_on_(flops, moved_bytes);
}

#ifdef __cplusplus
}
#endif
#endif
