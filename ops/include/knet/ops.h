/* The ops: expression style, x always first, then weights, then attributes.
 *
 *     kn_tensor *y = kn_relu(kn_linear(x, w, b));
 *
 * Every op is a function, usable as a pointer, under a macro of its name that adds the call site to
 * errors. An op returns a tensor of the innermost frame, or NULL with the error pending: with op,
 * shapes and call site. Ops follow their inputs' device; inputs on two devices are a DEVICE error,
 * two dtypes a DTYPE error, an op that a device lacks UNSUPPORTED. While an error is pending, ops
 * do nothing and return NULL. Dtypes are f32 and f64 unless an op says otherwise. Broadcasting is
 * NumPy's. Axes may be negative: -1 is the last.
 */
#ifndef KNET_OPS_H
#define KNET_OPS_H

#include <knet/frame.h>
#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- new tensors: device, stream and dtype are the frame's --- */
/* A generator of random numbers: Philox4x32-10 (Salmon et al., SC'11). Its state is (seed, offset);
 * each random op takes the next offset. The numbers are the same on every device and for any number
 * of threads. Threads: one at a time. */
typedef struct kn_rng kn_rng;
KN_API KN_MUST_CHECK kn_status kn_rng_create(kn_rng **out, uint64_t seed);
KN_API void kn_rng_destroy(kn_rng *rng);
KN_API KN_MUST_CHECK kn_status kn_rng_state_get(uint64_t *seed, uint64_t *offset, kn_rng *rng);
KN_API KN_MUST_CHECK kn_status kn_rng_state_set(kn_rng *rng, uint64_t seed, uint64_t offset);

/* Constants: 0, 1, `value`. */
KN_API kn_tensor *kn_zeros(kn_shape shape);
KN_API kn_tensor *kn_ones(kn_shape shape);
KN_API kn_tensor *kn_full(kn_shape shape, double value);
/* Random numbers: uniform in [lo, hi), or normal. */
KN_API kn_tensor *kn_uniform(kn_shape shape, double lo, double hi, kn_rng *rng);
KN_API kn_tensor *kn_normal(kn_shape shape, double mean, double stddev, kn_rng *rng);

/* --- pointwise, broadcasting --- */
/* a + b, a - b, a·b, a/b, a^b; the larger and the smaller of two (kn_max and kn_min reduce). */
KN_API kn_tensor *kn_add(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_sub(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_mul(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_div(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_pow(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_maximum(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_minimum(kn_tensor *a, kn_tensor *b);
/* Comparisons: KN_BOOL; no gradient. */
KN_API kn_tensor *kn_eq(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_ne(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_lt(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_le(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_gt(kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_ge(kn_tensor *a, kn_tensor *b);
/* a where the condition (KN_BOOL) is true, else b. */
KN_API kn_tensor *kn_where(kn_tensor *condition, kn_tensor *a, kn_tensor *b);
KN_API kn_tensor *kn_affine(kn_tensor *x, double scale, double shift); /* scale·x + shift */
KN_API kn_tensor *kn_pow_scalar(kn_tensor *x, double p);               /* x^p */

/* --- pointwise, one input --- */
/* -x, |x|. */
KN_API kn_tensor *kn_neg(kn_tensor *x);
KN_API kn_tensor *kn_abs(kn_tensor *x);
KN_API kn_tensor *kn_sign(kn_tensor *x); /* -1, 0, 1; its gradient is zero */
/* e^x, the natural logarithm, the square root. */
KN_API kn_tensor *kn_exp(kn_tensor *x);
KN_API kn_tensor *kn_log(kn_tensor *x);
KN_API kn_tensor *kn_sqrt(kn_tensor *x);
KN_API kn_tensor *kn_relu(kn_tensor *x); /* 0 for negative x; NaN stays NaN */
KN_API kn_tensor *kn_sigm(kn_tensor *x); /* 1 / (1 + e^-x), error below 2 ulp */
KN_API kn_tensor *kn_tanh(kn_tensor *x); /* the hyperbolic tangent */

/* --- reductions over axes (KN_ALL: all) --- */
/* The sum or mean over the axes. keep_dims keeps them, with size 1. */
KN_API kn_tensor *kn_sum(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_mean(kn_tensor *x, kn_shape axes, bool keep_dims);
/* The largest or smallest element. Tied elements share the gradient equally. A reduction of no
 * elements is a SHAPE error. */
KN_API kn_tensor *kn_max(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_min(kn_tensor *x, kn_shape axes, bool keep_dims);
/* Index of the first maximum along one axis, KN_I64, that axis removed; no gradient. */
KN_API kn_tensor *kn_argmax(kn_tensor *x, int axis);

/* --- products --- */
/* a [M,K], b [K,N] → [M,N] */
KN_API kn_tensor *kn_matmul(kn_tensor *a, kn_tensor *b);
/* x [...,I], w [O,I], b [O] or KN_NONE → [...,O] */
KN_API kn_tensor *kn_linear(kn_tensor *x, kn_tensor *w, kn_tensor *b);

/* --- convolution and pooling: x [B,C,spatial…], one to three spatial dimensions --- */
/* Options of kn_conv. */
typedef struct kn_conv_options {
    int64_t stride[3], padding[3], dilation[3]; /* per spatial dimension; zeros: 1, 0, 1 */
    int64_t groups;                             /* 0: 1 */
    int flip;                                   /* 1: true convolution; 0: cross-correlation */
    uint64_t reserved[4];                       /* zero */
} kn_conv_options;
/* Convolves: w [O,C/groups,window…], b [O] or KN_NONE → [B,O,…]; each spatial size is
 * (S + 2·padding - dilation·(W-1) - 1)/stride + 1, rounded down. NULL options: the defaults. */
KN_API kn_tensor *kn_conv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options);
/* The maximum or mean of each window, without padding; windows that would cross the edge are left
 * out. stride KN_SCALAR: the size of the window. */
KN_API kn_tensor *kn_maxpool(kn_tensor *x, kn_shape window, kn_shape stride);
KN_API kn_tensor *kn_avgpool(kn_tensor *x, kn_shape window, kn_shape stride);

/* --- softmax and losses: 0-dimensional results stay on the device until kn_item --- */
/* e^x / sum(e^x) along the axis, and its logarithm. */
KN_API kn_tensor *kn_softmax(kn_tensor *x, int axis);
KN_API kn_tensor *kn_logsoftmax(kn_tensor *x, int axis);
/* Mean of -log softmax(logits)[label]; logits [B,C], labels [B] of KN_I64, KN_I32 or KN_U8 in 0 …
 * C-1; a label outside that range gives NaN. kn_nll takes log-probabilities in place of logits. */
KN_API kn_tensor *kn_cross_entropy(kn_tensor *logits, kn_tensor *labels);
KN_API kn_tensor *kn_nll(kn_tensor *log_probs, kn_tensor *labels);
/* Returns the share of rows whose largest score is at the label, in 0 … 1; NaN if a label is
 * outside the scores' columns; no gradient. */
KN_API kn_tensor *kn_accuracy(kn_tensor *scores, kn_tensor *labels);
/* 0 with probability p, else x/(1-p). There is no training mode: p = 0 returns an alias of x. */
KN_API kn_tensor *kn_dropout(kn_tensor *x, double p, kn_rng *rng);

/* --- movement: any dtype --- */
KN_API kn_tensor *kn_reshape(kn_tensor *x, kn_shape shape); /* a view; one dimension may be -1 */
KN_API kn_tensor *kn_flatten(kn_tensor *x);                 /* [B,…] → [B,rest]; a view */
/* Elements start … stop-1 of each dimension; a view if only the first dimension is cut. */
KN_API kn_tensor *kn_slice(kn_tensor *x, kn_shape start, kn_shape stop);
/* The result's dimension i is x's dimension axes[i]; KN_ALL reverses them. */
KN_API kn_tensor *kn_transpose(kn_tensor *x, kn_shape axes);
/* Joins tensors along an axis. */
KN_API kn_tensor *kn_concat(kn_tensor *const x[], int n_x, int axis);
KN_API kn_tensor *kn_broadcast(kn_tensor *x, kn_shape shape); /* an alias if shapes are equal */
KN_API kn_tensor *kn_cast(kn_tensor *x, kn_dtype dtype);      /* an alias if dtypes are equal */
/* A copy on another device; an alias of x if it is there already. */
KN_API kn_tensor *kn_to(kn_tensor *x, kn_device *device);

/* --- the macros that add the call site --- */
/* Not for users: adds the call site to an error. */
KN_API kn_tensor *kn_located(kn_tensor *t, const char *file, int line);
#define KN_LOCATED(call) kn_located(call, __FILE__, __LINE__)
#define kn_tensor_from(...) KN_LOCATED((kn_tensor_from)(__VA_ARGS__))
#define kn_zeros(...) KN_LOCATED((kn_zeros)(__VA_ARGS__))
#define kn_ones(...) KN_LOCATED((kn_ones)(__VA_ARGS__))
#define kn_full(...) KN_LOCATED((kn_full)(__VA_ARGS__))
#define kn_uniform(...) KN_LOCATED((kn_uniform)(__VA_ARGS__))
#define kn_normal(...) KN_LOCATED((kn_normal)(__VA_ARGS__))
#define kn_add(...) KN_LOCATED((kn_add)(__VA_ARGS__))
#define kn_sub(...) KN_LOCATED((kn_sub)(__VA_ARGS__))
#define kn_mul(...) KN_LOCATED((kn_mul)(__VA_ARGS__))
#define kn_div(...) KN_LOCATED((kn_div)(__VA_ARGS__))
#define kn_pow(...) KN_LOCATED((kn_pow)(__VA_ARGS__))
#define kn_maximum(...) KN_LOCATED((kn_maximum)(__VA_ARGS__))
#define kn_minimum(...) KN_LOCATED((kn_minimum)(__VA_ARGS__))
#define kn_eq(...) KN_LOCATED((kn_eq)(__VA_ARGS__))
#define kn_ne(...) KN_LOCATED((kn_ne)(__VA_ARGS__))
#define kn_lt(...) KN_LOCATED((kn_lt)(__VA_ARGS__))
#define kn_le(...) KN_LOCATED((kn_le)(__VA_ARGS__))
#define kn_gt(...) KN_LOCATED((kn_gt)(__VA_ARGS__))
#define kn_ge(...) KN_LOCATED((kn_ge)(__VA_ARGS__))
#define kn_where(...) KN_LOCATED((kn_where)(__VA_ARGS__))
#define kn_affine(...) KN_LOCATED((kn_affine)(__VA_ARGS__))
#define kn_pow_scalar(...) KN_LOCATED((kn_pow_scalar)(__VA_ARGS__))
#define kn_neg(...) KN_LOCATED((kn_neg)(__VA_ARGS__))
#define kn_abs(...) KN_LOCATED((kn_abs)(__VA_ARGS__))
#define kn_sign(...) KN_LOCATED((kn_sign)(__VA_ARGS__))
#define kn_exp(...) KN_LOCATED((kn_exp)(__VA_ARGS__))
#define kn_log(...) KN_LOCATED((kn_log)(__VA_ARGS__))
#define kn_sqrt(...) KN_LOCATED((kn_sqrt)(__VA_ARGS__))
#define kn_relu(...) KN_LOCATED((kn_relu)(__VA_ARGS__))
#define kn_sigm(...) KN_LOCATED((kn_sigm)(__VA_ARGS__))
#define kn_tanh(...) KN_LOCATED((kn_tanh)(__VA_ARGS__))
#define kn_sum(...) KN_LOCATED((kn_sum)(__VA_ARGS__))
#define kn_mean(...) KN_LOCATED((kn_mean)(__VA_ARGS__))
#define kn_max(...) KN_LOCATED((kn_max)(__VA_ARGS__))
#define kn_min(...) KN_LOCATED((kn_min)(__VA_ARGS__))
#define kn_argmax(...) KN_LOCATED((kn_argmax)(__VA_ARGS__))
#define kn_matmul(...) KN_LOCATED((kn_matmul)(__VA_ARGS__))
#define kn_linear(...) KN_LOCATED((kn_linear)(__VA_ARGS__))
#define kn_conv(...) KN_LOCATED((kn_conv)(__VA_ARGS__))
#define kn_maxpool(...) KN_LOCATED((kn_maxpool)(__VA_ARGS__))
#define kn_avgpool(...) KN_LOCATED((kn_avgpool)(__VA_ARGS__))
#define kn_softmax(...) KN_LOCATED((kn_softmax)(__VA_ARGS__))
#define kn_logsoftmax(...) KN_LOCATED((kn_logsoftmax)(__VA_ARGS__))
#define kn_cross_entropy(...) KN_LOCATED((kn_cross_entropy)(__VA_ARGS__))
#define kn_nll(...) KN_LOCATED((kn_nll)(__VA_ARGS__))
#define kn_accuracy(...) KN_LOCATED((kn_accuracy)(__VA_ARGS__))
#define kn_dropout(...) KN_LOCATED((kn_dropout)(__VA_ARGS__))
#define kn_reshape(...) KN_LOCATED((kn_reshape)(__VA_ARGS__))
#define kn_flatten(...) KN_LOCATED((kn_flatten)(__VA_ARGS__))
#define kn_slice(...) KN_LOCATED((kn_slice)(__VA_ARGS__))
#define kn_transpose(...) KN_LOCATED((kn_transpose)(__VA_ARGS__))
#define kn_concat(...) KN_LOCATED((kn_concat)(__VA_ARGS__))
#define kn_broadcast(...) KN_LOCATED((kn_broadcast)(__VA_ARGS__))
#define kn_cast(...) KN_LOCATED((kn_cast)(__VA_ARGS__))
#define kn_to(...) KN_LOCATED((kn_to)(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
