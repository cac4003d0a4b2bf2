/* What frames with .fuse save. Figures of the bench "fuse":
 *
 * layernorm, gelu, adamw   composed of small ops, fused, beside the hand-written kernel; 1 M
 *                          elements
 * charrnn                  a training step of an LSTM as small ops, fused beside unfused
 * <model>                  a training step of a model, fused beside unfused
 * models, small            geometric means of the models' ratios; of those under 5 ms a step
 * peak, peak_time          geometric means of the ratios of most live bytes in a step, and of its
 *                          time, with fusion and .recompute of frames
 */
#ifndef KNET_BENCH_FUSE_H
#define KNET_BENCH_FUSE_H

#include <stdbool.h>

/* The figures of composed ops whose names are wanted; false: one failed, which stderr says. */
bool composed_run(bool (*is_wanted)(const char *metric));

#endif
