/* Parameters: named tensors that training changes, with one flat arena of gradients per set.
 *
 *     kn_params *params = NULL;
 *     KN_TRY(kn_params_create(&params, &(kn_params_options){.seed = 1}));
 *     kn_tensor *w = kn_param(params, KN_SHAPE(64, 784), kn_init_xavier(), "fc%d.w", 1);
 *     kn_tensor *b = kn_param(params, KN_SHAPE(64), (kn_init){0}, "fc%d.b", 1);
 *     KN_TRY(kn_check());
 *
 * A parameter belongs to its set and is borrowed until the set is destroyed. An optimiser shares
 * the set, and so does a tape that has recorded a parameter: they may be destroyed in any order.
 * Backward adds to gradients of all sets that it reaches; the first backward after kn_optim_step or
 * kn_params_grad_zero starts from zero; until then the last gradients of a step can be read.
 * Values, gradients and optimiser state come from the pool of the frame in which the set was
 * created. Create all parameters before the first backward, step or kn_grad. Threads: any number
 * may read; backward, step and load need exclusive access.
 */
#ifndef KNET_PARAM_H
#define KNET_PARAM_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of parameters. */
typedef struct kn_params kn_params;
/* Options of kn_params_create. */
typedef struct kn_params_options {
    kn_device *device;    /* NULL: the frame's */
    kn_dtype dtype;       /* KN_F32 (default) or KN_F64 */
    uint64_t seed;        /* of the initial values */
    uint64_t reserved[4]; /* zero */
} kn_params_options;

/* Kinds of initial values. */
typedef enum kn_init_kind {
    KN_INIT_ZEROS = 0,
    KN_INIT_CONSTANT,
    KN_INIT_UNIFORM,
    KN_INIT_NORMAL,
    KN_INIT_XAVIER,
    KN_INIT_XAVIER_NORMAL,
    KN_INIT_HE,
    KN_INIT_HE_NORMAL,
    KN_INIT_TRUNCATED_NORMAL,
    KN_INIT_ORTHOGONAL,
    KN_INIT_BILINEAR
} kn_init_kind;
/* Initial values. constant: a; uniform: [a, b); normal: mean a, stddev b; xavier, he, orthogonal:
 * gain a; truncated normal: mean a, stddev b, cut at two deviations. */
typedef struct kn_init {
    int kind;    /* a kn_init_kind */
    double a, b; /* as above */
} kn_init;
/* Uniform in ±sqrt(6/(fan_in + fan_out)); w [O,I,window…] has fan_in I·window, fan_out O·window,
 * and a vector its own length as both (Glorot 2010). The other is normal with that variance:
 * 2/(fan_in + fan_out). */
KN_API kn_init kn_init_xavier(void);
KN_API kn_init kn_init_xavier_normal(void);
/* For layers before relu: uniform in ±sqrt(6/fan_in), or normal with variance 2/fan_in (He et al.
 * 2015). */
KN_API kn_init kn_init_he(void);
KN_API kn_init kn_init_he_normal(void);
/* kn_truncated_normal, kn_orthogonal (Saxe et al. 2013) and kn_bilinear_filter of ops.h. */
KN_API kn_init kn_init_truncated_normal(double mean, double stddev);
KN_API kn_init kn_init_orthogonal(double gain);
KN_API kn_init kn_init_bilinear(void);
/* Random values: uniform in [lo, hi), or normal. */
KN_API kn_init kn_init_uniform(double lo, double hi);
KN_API kn_init kn_init_normal(double mean, double stddev);

/* Creates an empty set; options may be NULL. */
KN_API KN_MUST_CHECK kn_status kn_params_create(kn_params **out, const kn_params_options *options);
/* Destroys the set and its parameters. No-op on NULL. */
KN_API void kn_params_destroy(kn_params *params);
/* Adds a parameter. Returns NULL with the error pending: INVALID if the set has the name already.
 */
KN_API kn_tensor *kn_param(kn_params *params, kn_shape shape, kn_init init, const char *name_fmt,
                           ...) KN_PRINTF(4, 5);
/* Gives new initial values to all parameters whose names fit the pattern, in which "*" stands for
 * any characters, "?" for one and "[12]" for one of these, as in fnmatch(3): "*.bias",
 * "block?.conv.weight", "fc.weight". Of several calls the last one holds, so the general ones come
 * first:
 *
 *     KN_TRY(kn_params_init(params, "*conv?.weight", kn_init_he()));
 *     KN_TRY(kn_params_init(params, "head.weight", kn_init_normal(0, 0.01)));
 *
 * The numbers are those that kn_param gives on this device for the same kn_init. Optimisers keep
 * their state. Errors: INVALID when no name fits, in a captured step, and while averages are in
 * place of the weights (kn_ema_swap). INVALID also where a name fits whose parameter has fewer than
 * 2 dimensions, for xavier, he, orthogonal and bilinear: the weight of a norm is such a vector, and
 * so is that of kn_layer_rnn, which has all its matrices one after the other (kn_rnn_param gives
 * each). Nothing changes then. Those of kn_param, with the parameter's name: the parameters before
 * it have their new values then. */
KN_API KN_MUST_CHECK kn_status kn_params_init(kn_params *params, const char *pattern, kn_init init);
/* Removes the last n parameters again, before the set's gradients were laid out: a later call would
 * be an error of the program. Tensors that are held stay valid. */
KN_API void kn_params_drop_last(kn_params *params, int n);
/* The number of parameters, and of all their elements. */
KN_API int kn_params_count(const kn_params *params);
KN_API int64_t kn_params_numel(const kn_params *params);
/* The i-th parameter, and its name unless `name` is NULL. */
KN_API kn_tensor *kn_params_at(kn_params *params, int i, const char **name);
/* The parameter of that name; NULL without an error if there is no such name. */
KN_API kn_tensor *kn_params_find(kn_params *params, const char *name);

/* The seed of kn_params_create; where its parameters are, but for those that kn_param_to moved;
 * their dtype. */
KN_API uint64_t kn_params_seed(const kn_params *params);
KN_API kn_device *kn_params_device(const kn_params *params);
KN_API kn_dtype kn_params_dtype(const kn_params *params);
/* Moves all parameters to a device; tensors that you hold stay valid and are there too. Errors:
 * INVALID after the first backward, or with an optimiser. */
KN_API KN_MUST_CHECK kn_status kn_params_to(kn_params *params, kn_device *device);
/* Moves one parameter: the set then lies on several devices, with an arena of gradients on each.
 * Parameters are counted device by device. Optimisers update all; a norm over all gradients, turns,
 * kn_params_grad, averages and loss scales need one device: UNSUPPORTED. Errors: as of
 * kn_params_to; INVALID if w is no parameter. */
KN_API KN_MUST_CHECK kn_status kn_param_to(kn_tensor *w, kn_device *device);

/* The order of the gradients in the arena of kn_params_grad, for checkpoints: order[k] is the index
 * of the k-th parameter there; -1 for all before the order is final. kn_params_order_set makes it
 * final: without it the first backward does, by the order in which it finishes the gradients; where
 * a view of a gradient is held since before (by a recorded step also) or memory for the move is
 * short, they stay newest first. A norm over all of them (clip_norm) is summed in this order: its
 * last bit may depend on it. Errors of kn_params_order_set: INVALID once the order is final, or
 * while a view of a gradient is held; in a kn_backward; if order is not a permutation of 0 … n-1,
 * on several devices of each one's parameters. No order is set then. */
KN_API void kn_params_order(int order[], const kn_params *params);
KN_API KN_MUST_CHECK kn_status kn_params_order_set(kn_params *params, const int order[], int n);

KN_API kn_tensor *kn_grad(kn_tensor *w); /* borrowed; zeros before the first backward */

/* --- row-sparse gradients --- */
/* From now on the gradient of w [V,…] is kept for the rows alone that kn_embedding or
 * kn_index_select takes from it, and kn_optim_step updates those rows alone, with their momentum
 * and averages; weight decay too reaches no other row. So step and memory go by the rows of a
 * batch, not by V. Other uses of w reach all rows. LAMB has no such step: UNSUPPORTED. A captured
 * step can't have such a gradient: kn_backward returns UNSUPPORTED. Errors: INVALID after the first
 * backward, step or kn_grad. */
KN_API KN_MUST_CHECK kn_status kn_param_sparse(kn_tensor *w);
/* Whether w is a parameter with a row-sparse gradient. */
KN_API bool kn_param_is_sparse(const kn_tensor *w);
/* Its gradient: rows KN_I64 [n], ascending, and values [n,…], the sum of each row in the order of
 * the indices; of all other rows zero. Both are borrowed until the next backward. On the host no
 * row repeats. Elsewhere n is the number of indices, which is known without a wait, and each entry
 * of a row has its whole sum. Errors: INVALID for a dense gradient. */
KN_API KN_MUST_CHECK kn_status kn_grad_rows(kn_tensor **rows, kn_tensor **values, kn_tensor *w);

/* --- frozen parameters --- */
/* From now on the parameters whose names begin with `prefix` are constants, as for the pretrained
 * part of a model that is fine-tuned: tapes don't record them, so that backward computes no
 * gradient by them, and optimisers leave them and their state as they are, and out of norms.
 * Gradients flow through the ops that read them. Not `frozen`: they learn again. Call it between
 * steps, not between forward and backward; captured steps stay as they were recorded. With Adam
 * parameters that learn only after many steps begin with up to six times the rate, as the step
 * count is of all: make a new optimiser then. kn_freeze and kn_layer_freeze are something else, a
 * form for inference. Ranks that train together (parallel.h) freeze the same parameters. Errors:
 * INVALID when no parameter has such a name, and in a captured step. */
KN_API KN_MUST_CHECK kn_status kn_params_freeze(kn_params *params, const char *prefix, bool frozen);

/* Calls fn(ctx, w, gradient of w) in each kn_backward for each parameter that it reaches, as soon
 * as its gradient is complete. fn reads or changes the gradient in place, by ops that write into
 * it, such as kn_axpy_into; it must not call kn_backward. An error that fn leaves pending ends the
 * pass. Of a row-sparse gradient it gets the values of its rows. NULL: no more. */
typedef void (*kn_grad_ready_fn)(void *ctx, kn_tensor *w, kn_tensor *gradient);
KN_API void kn_params_on_grad(kn_params *params, kn_grad_ready_fn fn, void *ctx);
/* Calls fn(ctx), once or several times, in a kn_backward that fails: the gradients since the last
 * step become zeros after that. kn_last_error() says why it fails. NULL: no more. */
typedef void (*kn_grad_void_fn)(void *ctx);
KN_API void kn_params_on_void(kn_params *params, kn_grad_void_fn fn, void *ctx);
/* All dense gradients as one flat view, the arena, in the order of kn_params_order; borrowed. Each
 * begins at a multiple of 256 bytes, with zeros between them, so there may be more elements than
 * kn_params_numel counts. */
KN_API kn_tensor *kn_params_grad(kn_params *params);
/* Makes all gradients zeros if there was no backward since the last step, as the next backward
 * would; otherwise a no-op. */
KN_API void kn_params_grad_begin(kn_params *params);
/* A count that each kn_backward that reaches the set increases, also one whose gradients are all
 * zeros, of which hooks hear nothing; kn_params_grad_begin and kn_params_grad_zero do too. */
KN_API uint64_t kn_params_begun(const kn_params *params);
/* Makes all gradients zeros, also those that no step has used: before a backward whose loss reaches
 * several sets, of which another one's step used the last gradients, as of adversarial networks, or
 * to leave out a batch. */
KN_API void kn_params_grad_zero(kn_params *params);

#include <knet/sites/param.h>

#ifdef __cplusplus
}
#endif
#endif
