/* Model parallel: the layers of a model on devices of choice, and a batch that passes through them
 * in micro-batches, so that the devices work at the same time (GPipe, Huang et al. 2019).
 *
 *     KN_TRY(kn_pipeline_place(kn_model_net(model), (kn_device *[]){gpu0, gpu1}, 2, NULL));
 *     KN_TRY(kn_pipeline_micro(kn_model_net(model), 8));
 *     KN_TRY(kn_adam_create(&adam, params, 1e-3, NULL));    // one optimiser; then train as ever
 *
 * A *stage* is a run of layers of a sequence that lie on one device. A *micro-batch* is a part of
 * the batch: while it is in one stage, the next one is in the stage before. Backward passes through
 * the stages in the opposite order, in the same way. Copies between devices are scopes "to" of the
 * timer, and of the tape: gradients flow back through them. Between two GPUs they are enqueued, and
 * the host waits for none; a copy to the host waits for its stream. Stages may also be roots of
 * their own, each with a kn_params and an optimiser: kn_pipeline_forward.
 */
#ifndef KNET_PIPELINE_H
#define KNET_PIPELINE_H

#include <knet/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Moves the layers of a sequence, such as the root of a model, to n devices, one run of them after
 * the other. first[i] names the layer with which the run of device[i + 1] begins; NULL: runs with
 * about equal numbers of parameters. Before the first backward and before optimisers are made.
 * Errors: INVALID if it has fewer layers than devices, or no layer of that name after the one
 * before; those of kn_layer_to. */
KN_API KN_MUST_CHECK kn_status kn_pipeline_place(kn_layer *net, kn_device *const device[], int n,
                                                 const char *const first[]);
/* From now on a forward of the sequence cuts x along its first dimension into n_micro parts as
 * equal as can be, of which each has a sample, and joins the results in their order. They and the
 * gradients are those of the whole, but for the order of sums, and for layers that look at a whole
 * batch: batch norm takes the statistics of each micro-batch, and dropout draws a mask for each,
 * other ones than for the whole. More micro-batches leave devices idle
 * for a smaller share of the time, (n_stages - 1) / (n_micro + n_stages - 1), and keep the same
 * memory; with kn_layer_recompute_set a layer keeps its input alone. 1: the whole batch. Errors:
 * INVALID if it is no sequence or n_micro is below 1. */
KN_API KN_MUST_CHECK kn_status kn_pipeline_micro(kn_layer *net, int n_micro);

/* The same for stages that are roots of layers; a stage's device is that of its parameters. The
 * last one's result for x [N,…] is on its device; x may be anywhere. NULL: the error is pending:
 * INVALID for n_micro below 1 or above N; those of kn_layer_forward. */
KN_API kn_tensor *kn_pipeline_forward(kn_layer *const stage[], int n_stages, kn_tensor *x,
                                      int n_micro);

#include <knet/sites/pipeline.h>

#ifdef __cplusplus
}
#endif
#endif
