/* Captured steps: a training or inference step is recorded once and replayed.
 *
 * While a step is recorded it runs as always, and each call of a kernel is noted. A replay makes
 * those calls again: no checks, no new tensors, no tape; all memory in between was placed when the
 * recording ended, in one block. On a GPU the calls are in a CUDA graph, and a replay is one
 * launch, after a copy of each input into that block. Results have the same bits as without (of a
 * norm over all gradients where they have the same order in memory, see kn_params_order). A
 * *plan* is one recording; a capture keeps one for each list of shapes that its inputs had, and for
 * each .dtype, .autocast and .math of the frame.
 *
 *     kn_tensor *in[] = {x, y};
 *     if (kn_capture_has(step, in, 2)) {
 *         KN_TRY(kn_capture_launch(step, in, 2));
 *     } else {
 *         KN_TRY(kn_capture_begin(step, in, 2));
 *         kn_tensor *loss = train_step(x, y);              // forward, backward, kn_optim_step
 *         KN_TRY(kn_capture_end(step, &loss, 1));
 *     }
 *     print_loss(kn_capture_out(step, 0));
 *
 * What changes between replays: the data of inputs, and of views of them that the step makes; and
 * all that lies in tensors made before, such as a data set that an input is a part of: a replay
 * reads it where the recorded step did, also where an input was; and parameters, the state of
 * optimisers and of random numbers, and the learning rate (kn_optim_lr). What stays: shapes,
 * attributes, the factors of kn_optim_group, the number of threads, which ops run. So run the step
 * once before it is recorded: state that is made at first use, such as an optimiser's, must exist
 * (kn_capture_run does that). A backward adds to gradients that no update has used, and overwrites
 * others, and an update takes parameters without a gradient for ones with zeros: a plan is replayed
 * only where it did for each parameter of the set as it has to now. The step reads inputs; one that
 * it writes into is an error on a GPU, and so is a result that is an input or a view of one. A
 * replay writes the results of the last one anew: a tape that saved one of those finds so in
 * backward, an INVALID error.
 *
 * Frames with .fuse keep their passes on the host, but that slices are ops of their own there; on a
 * GPU a captured step has a kernel an op.
 * .layout of frames is off, also where kn_capture_run runs a step as it is: convolutions in
 * evaluation differ from those of other plain steps by rounding.
 *
 * Inside, data can't be read or written by the host: kn_item, kn_data and their kin return an error
 * with their name; so do copies between devices, kn_nonzero and masks as indices, the state of
 * generators, and row-sparse gradients. So do lengths of kn_rnn, which are data of the host, unless
 * kn_capture_select gives each list of them a variant.
 *
 * The timer has a row for each op of a replay, in the scopes that were open around it when it was
 * recorded, so that a replay has the rows of the recorded step, but for scopes without any; under
 * "replay" if the timer was off then. GPU time lies there too, the launch itself is the row
 * cudaGraphLaunch.
 *
 * Threads: a capture serves one thread at a time; any may replay what another one recorded.
 * Streams: a replay runs on the stream of the frame, after the work that writes its inputs.
 * Lifetime: parameters, optimisers and generators that the step uses must live until the capture is
 * destroyed; it owns a share of the data of all tensors that it uses but inputs.
 */
#ifndef KNET_CAPTURE_H
#define KNET_CAPTURE_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A step and its plans. */
typedef struct kn_capture kn_capture;

/* Options of kn_capture_create; zero means the default. */
typedef struct kn_capture_options {
    int plans_max;        /* most plans that are kept; the one not used for longest goes; 0: 8 */
    uint64_t reserved[3]; /* zero */
} kn_capture_options;

/* Counters of a capture. */
typedef struct kn_capture_stats {
    uint64_t n_plans;     /* that are kept */
    uint64_t n_recorded;  /* plans, since it was created */
    uint64_t n_launches;  /* replays */
    uint64_t n_calls;     /* of kernels, in the plan used last */
    uint64_t plan_bytes;  /* of memory for intermediate tensors, in the plan used last */
    uint64_t reserved[3]; /* zero */
} kn_capture_stats;

/* Creates a capture without plans. Options may be NULL. Errors: INVALID for a negative plans_max;
 * OOM. */
KN_API KN_MUST_CHECK kn_status kn_capture_create(kn_capture **out,
                                                 const kn_capture_options *options);
/* Ends a recording without a plan, and frees the plans. Tensors of kn_capture_out that the caller
 * holds stay valid. No-op on NULL. */
KN_API void kn_capture_destroy(kn_capture *capture);

/* Begins to record what this thread runs, in a frame that kn_capture_end ends. The step may read
 * in[0 … n_in - 1], which the caller keeps, and whose data may be others at each replay. They lie
 * on one device, which is that of the step's ops; n_in 0: the frame's. Errors: INVALID if this
 * thread records already, a tape is open, n_in is negative, an input can't be read or two share
 * memory; DEVICE for inputs of two devices; UNSUPPORTED for a device that is neither the host nor a
 * GPU; OOM. */
KN_API KN_MUST_CHECK kn_status kn_capture_begin(kn_capture *capture, kn_tensor *const in[],
                                                int n_in);
/* Ends the recording, keeps it as the plan for the shapes of the inputs, in place of one that
 * kn_capture_has knew, and frees the tensors of the step. `out` lists results that are read after a
 * replay, through kn_capture_out. Errors: the pending one; INVALID, with its op and place, if a
 * tensor made inside lives on, in a slot say, be it a result or not: the step would not write that
 * one again, but one made before, which kn_set_into writes; UNSUPPORTED if it writes into an input
 * on a GPU; CUDA; OOM. After an error there is no plan, and the step has run once. */
KN_API KN_MUST_CHECK kn_status kn_capture_end(kn_capture *capture, kn_tensor *const out[],
                                              int n_out);
/* Ends the recording without a plan, for a step that failed. No-op if nothing is recorded. */
KN_API void kn_capture_cancel(kn_capture *capture);

/* Whether there is a plan for inputs of these shapes, dtypes and devices, in a frame with the
 * .dtype, .autocast and .math of this one (without inputs, also its device), for the same
 * parameters with gradients as now, and for generators that have drawn on no other device since. */
KN_API bool kn_capture_has(const kn_capture *capture, kn_tensor *const in[], int n_in);
/* Replays the step with the data of these inputs, which may be other tensors than when it was
 * recorded, also results of it. Errors: INVALID without a plan for them, with their shapes, inside
 * a recording, and if an open tape records an input's gradient; a kernel's own, after which the
 * step is done in part, as when an op of it fails. */
KN_API KN_MUST_CHECK kn_status kn_capture_launch(kn_capture *capture, kn_tensor *const in[],
                                                 int n_in);
/* Result i of the step that was recorded or replayed last; borrowed. The next replay of the plan
 * overwrites it. NULL, with the error pending, if it doesn't exist. */
KN_API kn_tensor *kn_capture_out(kn_capture *capture, int i);

/* A step: sets out[0 … n_out - 1], tensors of the frame that is open when it is called (kn_keep
 * moves them out of a tape). */
typedef kn_status (*kn_capture_fn)(kn_tensor *out[], kn_tensor *const in[], void *ctx);
/* Runs a step: as it is when its inputs have new shapes or the frame other settings, records it
 * once that succeeded and there is no plan (kn_capture_has), and replays it from then on. Sets
 * out[i] to tensors of the caller's frame, which a later run with these shapes may overwrite. While
 * another capture records, it runs the step as it is, as a part of that recording. A tape that is
 * open around the call records nothing of it. Errors: the step's, as kn_capture_end, and INVALID if
 * an open tape records an input's gradient, n_out is negative or out is NULL. */
KN_API KN_MUST_CHECK kn_status kn_capture_run(kn_tensor *out[], int n_out, kn_capture *capture,
                                              kn_tensor *const in[], int n_in, kn_capture_fn step,
                                              void *ctx);

/* For steps that differ in more than the shapes of their inputs, such as the first and the later
 * batches of an accumulated gradient: from here on the plans of this variant are found and
 * recorded; 0 at first. */
KN_API void kn_capture_select(kn_capture *capture, uint64_t variant);
/* Frees the plans: for a step that changed. Errors: INVALID inside a recording. */
KN_API KN_MUST_CHECK kn_status kn_capture_reset(kn_capture *capture);
/* Fills `out` (of out_bytes = sizeof *out). */
KN_API void kn_capture_stats_read(kn_capture_stats *out, size_t out_bytes,
                                  const kn_capture *capture);

#include <knet/sites/capture.h>

#ifdef __cplusplus
}
#endif
#endif
