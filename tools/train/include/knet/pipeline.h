/* Model parallel: a model in stages, each on a device of choice, and a batch that passes through
 * them in micro-batches, so that the devices work at the same time (GPipe, Huang et al. 2019).
 *
 *     kn_layer *stage[2];                        // two roots, each with a kn_params of its own
 *     KN_TRY(kn_layer_to(stage[0], gpu0));
 *     KN_TRY(kn_layer_to(stage[1], gpu1));
 *     KN_TAPE();
 *     kn_tensor *y = kn_pipeline_forward(stage, 2, x, 4);
 *     KN_TRY(kn_backward(kn_cross_entropy(y, kn_to(labels, gpu1))));
 *
 * A *stage* is a root of layers; its device is that of its parameters. A *micro-batch* is a part of
 * the batch: while it is in one stage, the next one is in the stage before. Backward passes through
 * the stages in the opposite order, in the same way. Copies between devices are scopes "to" of the
 * timer, and of the tape: gradients flow back through them. Between two GPUs they are
 * enqueued, and the host waits for none; a copy to the host waits for its stream. Each stage's
 * kn_params has an optimiser of its own.
 */
#ifndef KNET_PIPELINE_H
#define KNET_PIPELINE_H

#include <knet/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The last stage's result for x [N,…], on that stage's device; x may be anywhere. x is cut along
 * its first dimension into n_micro parts as equal as can be, and the results [n,…] are joined in
 * their order. They and the gradients are those of the stages one after the other, but for the
 * order of sums, and for layers that look at a whole batch: batch norm takes the statistics of each
 * micro-batch. More micro-batches leave devices idle for a smaller share of the time, (n_stages -
 * 1) / (n_micro + n_stages - 1), and keep the same memory; with kn_layer_recompute_set a stage
 * keeps its input alone. NULL: the error is pending: INVALID for n_micro below 1 or above N; those
 * of kn_layer_forward. */
KN_API kn_tensor *kn_pipeline_forward(kn_layer *const stage[], int n_stages, kn_tensor *x,
                                      int n_micro);

#ifdef __cplusplus
}
#endif
#endif
