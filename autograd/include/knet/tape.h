/* The tape: a frame that records, and backward.
 *
 *     KN_TAPE();
 *     kn_tensor *loss = kn_cross_entropy(mlp(m, x), y);
 *     KN_TRY(kn_backward(loss));
 *     KN_TRY(kn_optim_step(adam));
 *
 * Tensors made under a tape are freed at the end of its block. kn_backward adds to the gradients of
 * the parameters and consumes: as it passes a node it frees what the node saved and the value it
 * made, so that backward's peak is the live set. The loss, what sits in slots, and values that the
 * loss does not depend on (a metric beside it) keep theirs; what survives a tape becomes a
 * constant. Reading a consumed value, or a second backward, is an INVALID error that says so. Saved
 * values carry a version: a write in between is an INVALID error that names the op that saved.
 * After a failed kn_backward the gradients of its sets read as zeros. Tapes don't nest; higher
 * derivatives come from kn_gradients with .again. Threads: a tape belongs to its thread.
 */
#ifndef KNET_TAPE_H
#define KNET_TAPE_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a frame that records; kn_frame_end ends it. */
KN_API kn_frame kn_tape_begin(const kn_frame_options *options);
#define KN_TAPE(...) KN_AT_EXIT(kn_frame_end, kn_frame) = KN_FRAME_BY_(kn_tape_begin, __VA_ARGS__)

/* From a 0-dimensional (or one-element) loss into the gradients of the parameters it depends on. */
KN_API KN_MUST_CHECK kn_status kn_backward(kn_tensor *loss);

/* An alias of x that wants a gradient; x itself is untouched. */
KN_API kn_tensor *kn_watch(kn_tensor *x);

typedef struct kn_gradients_options {
    int again; /* record the gradients, to differentiate them in turn; keeps the tape */
    int keep;  /* keep the tape for another call; else it is consumed as kn_backward does */
    uint64_t reserved[4];
} kn_gradients_options;
/* dx[i] = d sum(y) / d x[i], for watched values or parameters x[i]; zeros where y doesn't depend on
 * x[i]. The gradients of parameters are not touched. Errors: UNSUPPORTED, naming the op, where
 * .again meets a rule that can't be differentiated again. */
KN_API KN_MUST_CHECK kn_status kn_gradients(kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[],
                                            int n_x, const kn_gradients_options *options);

/* --- ops of your own --- */
typedef struct kn_call kn_call;
typedef struct kn_rule { /* static: borrowed for the life of the process */
    const char *name;
    kn_status (*forward)(kn_tensor **y, kn_call *call, kn_tensor *const x[]);
    kn_status (*backward)(kn_tensor *dx[], kn_call *call, kn_tensor *dy); /* NULL entries: zero */
    int once; /* its backward is not built from differentiable ops */
    uint64_t reserved[4];
} kn_rule;
/* Takes ctx: freed by ctx_free_fn when the call is done with, failed or not. */
KN_API kn_tensor *kn_apply(const kn_rule *rule, kn_tensor *const x[], int n_x, void *ctx,
                           void (*ctx_free_fn)(void *ctx));
KN_API void kn_call_save(kn_call *call, int i, kn_tensor *t); /* i in 0 … 7; version-checked */
KN_API kn_tensor *kn_call_saved(kn_call *call, int i);
KN_API bool kn_call_needs(const kn_call *call, int i); /* whether x[i] wants a gradient */
KN_API void *kn_call_ctx(const kn_call *call);

/* Compares the gradients of f at x with central differences, in f64 on the host. f makes any tensor
 * from the n_x watched inputs; its elements are weighed by fixed pseudo-random numbers. order 1
 * or 2. Errors: INVALID, naming input, element and both values, where they differ by more than rtol
 * relative or atol. */
typedef kn_tensor *(*kn_gradcheck_fn)(void *ctx, kn_tensor *const x[]);
KN_API KN_MUST_CHECK kn_status kn_gradcheck(kn_gradcheck_fn f, void *ctx, kn_tensor *const x[],
                                            int n_x, int order, double rtol, double atol);

#ifdef __cplusplus
}
#endif
#endif
