/* The tape: a frame that records, and backward.
 *
 *     KN_TAPE();
 *     kn_tensor *loss = kn_cross_entropy(mlp(m, x), y);
 *     KN_TRY(kn_backward(loss));
 *     KN_TRY(kn_optim_step(adam));
 *
 * Tensors made under a tape are freed at the end of its block. kn_backward adds to the gradients of
 * the parameters and consumes the tape: after each node it frees the values that the node saved and
 * the node's result, so that its peak is the live set. It keeps the loss, results of one element,
 * such as the parts of a loss, tensors in slots, and values that the loss does not depend on, such
 * as a metric. A tensor that outlives its tape becomes a constant. Reading a consumed value, or a
 * second backward, is an INVALID error. Saved values have a version: a write after the save is an
 * INVALID error that names the op that saved. After a failed kn_backward the gradients of all sets
 * that the loss depends on read as zeros. A loss of several elements leaves the tape as it is.
 * Nothing changes at all where an error was pending, and where the loss is no value of the thread's
 * open tape, or none any more. While a pass runs, as in hooks, kn_backward and kn_gradients over
 * its tape are INVALID errors. Tapes don't nest; for higher derivatives use kn_gradients with
 * .again. Threads: a tape belongs to its thread.
 */
#ifndef KNET_TAPE_H
#define KNET_TAPE_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a frame that records; kn_frame_end ends it. */
KN_API kn_frame kn_tape_begin(const kn_frame_options *options);
/* A tape until the end of the block; options as for KN_FRAME. */
#define KN_TAPE(...) KN_AT_EXIT(kn_frame_end, kn_frame) = KN_FRAME_BY_(kn_tape_begin, __VA_ARGS__)

/* --- parts of a model in the timer, forward and backward --- */
/* An open part; not for users but for kn_tape_scope_end. */
typedef struct kn_tape_scope {
    kn_scope scope;    /* of the timer */
    void *tape;        /* that remembers it; NULL: none */
    const void *outer; /* the part around it */
    uint32_t serial;   /* of the tape */
} kn_tape_scope;
/* Opens a scope of the timer, which the tape remembers: kn_backward opens a scope of this label
 * around the derivatives of the ops called here, and messages about them name it. Scopes nest; of
 * those deeper than 24 the tape remembers none. The label may be any string; it is copied. */
KN_API kn_tape_scope kn_tape_scope_begin(const char *label);
KN_API void kn_tape_scope_end(kn_tape_scope *scope);
/* The same until the end of the block. */
#define KN_TAPE_SCOPE(label)                                                                       \
    KN_AT_EXIT(kn_tape_scope_end, kn_tape_scope) = kn_tape_scope_begin(label)

/* Writes what the thread's open tape has recorded, a line for each call in the order of execution:
 *     2 linear in fc1 (mlp.c:12): f32 [100,64] of 1, fc1.weight, fc1.bias; saves 306 KiB
 * "of" lists the calls that made its inputs, by number, or parameters; "-": a constant. Cut to
 * out_bytes; returns the bytes of all, 0 without a tape. */
KN_API size_t kn_tape_text(char *out, size_t out_bytes);

/* Computes the gradients of a loss of one element by the parameters that it depends on, and adds
 * them to the parameters' gradients. The first one after a step overwrites all gradients of the
 * sets of these parameters; what it does not reach, or where the gradient is zero, reads as zeros.
 */
KN_API KN_MUST_CHECK kn_status kn_backward(kn_tensor *loss);

/* An alias of x that wants a gradient; x itself is untouched. */
KN_API kn_tensor *kn_watch(kn_tensor *x);

/* An alias of x without a gradient: a constant to all ops after it. */
KN_API kn_tensor *kn_detach(kn_tensor *x);

/* Options of kn_gradients. */
typedef struct kn_gradients_options {
    int again; /* 1: record the gradients, to differentiate them in turn; keeps the tape */
    int keep;  /* 1: keep the tape for another call; 0: consume it, as kn_backward does */
    /* of y's shape: dx[i] = d sum(dy·y) / d x[i], a vector-Jacobian product; NULL: ones */
    kn_tensor *dy;
    uint64_t reserved[3]; /* zero */
} kn_gradients_options;
/* dx[i] = d sum(y) / d x[i], for watched values or parameters x[i]; zeros where y doesn't depend on
 * x[i]. The gradients of parameters are not touched. Answers may share their data with each other
 * and with .dy: copy one before you write into it. Errors: INVALID for a frozen parameter, of which
 * tapes record nothing (kn_params_freeze): take kn_watch of it for y and x[i]; UNSUPPORTED, naming
 * the op, where .again meets a rule that can't be differentiated again. */
KN_API KN_MUST_CHECK kn_status kn_gradients(kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[],
                                            int n_x, const kn_gradients_options *options);

/* The Jacobian-vector product: the change of y when every x[i] changes by t[i], to first order.
 * Keeps the tape. By two walks, of which the second differentiates the first; errors as for .again,
 * and SHAPE or DTYPE for a t[i] that is not like x[i]. */
KN_API KN_MUST_CHECK kn_status kn_jvp(kn_tensor **dy, kn_tensor *y, kn_tensor *const x[],
                                      kn_tensor *const t[], int n_x);

/* A function of tensors. */
typedef kn_tensor *(*kn_tensor_fn)(void *ctx, kn_tensor *const x[]);
/* *y = f(ctx, x) and dx[i] = d sum(*y) / d x[i], on a tape of its own; both belong to the frame of
 * the call. f gets watched aliases of x. Errors: those of f, kn_watch and kn_gradients; INVALID
 * under an open tape, where kn_gradients does this. */
KN_API KN_MUST_CHECK kn_status kn_value_and_gradients(kn_tensor **y, kn_tensor *dx[],
                                                      kn_tensor_fn f, void *ctx,
                                                      kn_tensor *const x[], int n_x);

/* An alias of x whose gradient fn sees: fn(ctx, gradient) in each kn_backward and kn_gradients that
 * reaches x by this alias, once the gradient is complete. To read it, as for a norm or a plot; an
 * error that fn leaves pending ends the pass. ctx is borrowed until the tape ends. For parameters
 * see kn_params_on_grad. */
typedef void (*kn_on_grad_fn)(void *ctx, kn_tensor *gradient);
KN_API kn_tensor *kn_on_grad(kn_tensor *x, kn_on_grad_fn fn, void *ctx);

/* Part of the forward pass whose values are not kept for backward but made again there: less memory
 * for more time (gradient checkpointing, Chen et al. 2016). */
typedef kn_tensor *(*kn_recompute_fn)(void *ctx, kn_tensor *const x[]);
/* fn(ctx, x), which kn_backward calls again with equal values. fn may read parameters, and of the
 * values recorded before it those of x[0 … n_x-1] alone; it must give the same result again. Both
 * runs have the frame's device, dtype, math mode and autocast of the call. What fn writes it writes
 * twice: give kn_batchnorm in training KN_NONE for its running statistics in the second run, as
 * layers do (kn_layer_recompute_set). Generators that fn draws from draw the same numbers then;
 * rng: one of them, whose state is read before fn begins and not in the middle, where that breaks
 * up a fused group; or NULL. In a captured step fn may draw nothing. fn can't call kn_gradients. A
 * row-sparse parameter among x gets a gradient of all rows; one that fn reads itself stays sparse.
 * ctx, and what fn reads of it, is borrowed until the tape ends. Errors: those of fn; INVALID for
 * another recorded value; in backward, INVALID if x or a parameter was written since, or if fn
 * gives a result of another shape, dtype or device, or one that depends on other values of x or on
 * other parameters; UNSUPPORTED where kn_gradients meets it with .again, and where fn draws in a
 * captured step. */
KN_API kn_tensor *kn_recompute(kn_recompute_fn fn, void *ctx, kn_tensor *const x[], int n_x,
                               kn_rng *rng);

/* Anomaly mode, of the process: a recorded op whose result has NaN or infinity is an INVALID error
 * that names the op, its layer, its line, the element, and those inputs that had such elements
 * already; so is a gradient in kn_backward and kn_gradients. Slow: each value is read back. */
KN_API void kn_anomaly_set(bool on);
KN_API bool kn_anomaly_get(void);

/* --- ops of your own --- */
/* One call of a rule. */
typedef struct kn_call kn_call;
/* An op of your own; must stay valid for the life of the process. In frames with .autocast backward
 * runs with the casts of forward, and a dx of another dtype than x, of f32 and 16 bits, is cast to
 * it. */
typedef struct kn_rule {
    const char *name; /* in errors, and of its scope */
    /* Computes y of x. */
    kn_status (*forward)(kn_tensor **y, kn_call *call, kn_tensor *const x[]);
    /* Computes dx of dy; entries that stay NULL mean zero. */
    kn_status (*backward)(kn_tensor *dx[], kn_call *call, kn_tensor *dy);
    int once;             /* 1: its backward is not built from differentiable ops */
    uint64_t reserved[4]; /* zero */
} kn_rule;
/* Runs the rule on x. Takes ctx, and frees it with ctx_free_fn after the last use, also on failure.
 */
KN_API kn_tensor *kn_apply(const kn_rule *rule, kn_tensor *const x[], int n_x, void *ctx,
                           void (*ctx_free_fn)(void *ctx));
/* Saves tensor i (0 … 7) for backward, and reads it there; a write in between is an error. */
KN_API void kn_call_save(kn_call *call, int i, kn_tensor *t);
KN_API kn_tensor *kn_call_saved(kn_call *call, int i);
KN_API bool kn_call_needs(const kn_call *call, int i); /* whether x[i] wants a gradient */
/* The ctx of kn_apply. */
KN_API void *kn_call_ctx(const kn_call *call);

/* A function of watched inputs, for kn_gradcheck. */
typedef kn_tensor *(*kn_gradcheck_fn)(void *ctx, kn_tensor *const x[]);
/* Compares the gradients of f at x with central differences, in f64 on the host. f may return any
 * tensor; its elements are weighted by fixed pseudo-random numbers. Of an x[i] of more than 512
 * elements 512 are compared, always the same: the first, the last, and pseudo-random ones between;
 * a mistake in few elements shows in a smaller input. order is 1 or 2. Errors: INVALID,
 * with the input, the element and both values, if they differ by more than rtol relative or atol;
 * INVALID where f or x is NULL, where f gives no tensor, and under an open tape.
 */
KN_API KN_MUST_CHECK kn_status kn_gradcheck(kn_gradcheck_fn f, void *ctx, kn_tensor *const x[],
                                            int n_x, int order, double rtol, double atol);

#include <knet/sites/tape.h>

#ifdef __cplusplus
}
#endif
#endif
