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

/* --- pointwise: the rows and comparisons of ops.def, which has their formulas, derivatives and
 * dtypes ---
 *
 * Inputs are broadcast by NumPy's rule.
 * One input:    neg abs sign exp log sqrt sigm tanh relu gelu
 *               leaky_relu(x, p): p·x below 0; clamp(x, lo, hi); affine(x, scale, shift);
 *               pow_scalar(x, p): x^p
 * Two inputs:   add sub mul div pow; maximum minimum (kn_max and kn_min reduce);
 *               gate(a, b): a·sigm(b)
 * Three inputs: where(condition, a, b): condition is KN_BOOL; lerp(a, b, t): a + t·(b - a)
 * Comparisons:  eq ne lt le gt ge, logical_and logical_or logical_xor; they give KN_BOOL and have
 *               no gradient
 * sign's gradient is zero; relu keeps NaN; where max and min tie the gradient is shared. Integers
 * wrap. */
#define KN_PARAMS_0_
#define KN_PARAMS_1_ , double p
#define KN_PARAMS_2_ , double p, double q
#define KN_ROW1(name, s, ...) KN_API kn_tensor *kn_##name(kn_tensor *x KN_PARAMS_##s##_);
#define KN_ROW2(name, s, ...)                                                                      \
    KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y KN_PARAMS_##s##_);
#define KN_ROW3(name, s, ...)                                                                      \
    KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y, kn_tensor *w KN_PARAMS_##s##_);
#define KN_COMPARE(name, ...) KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y);
#include <knet/ops.def>

/* --- reductions over axes (KN_ALL: all; KN_SCALAR: none, a copy) --- */
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
/* Options of kn_matmul. */
typedef struct kn_matmul_options {
    int trans_a, trans_b; /* 1: of each matrix, the transpose */
    uint64_t reserved[4]; /* zero */
} kn_matmul_options;
/* a [...,M,K], b [...,K,N] → [...,M,N]: one product for each of the leading dimensions, which are
 * alike. trans_a: a [...,K,M]; trans_b: b [...,N,K]. NULL options: the defaults. */
KN_API kn_tensor *kn_matmul(kn_tensor *a, kn_tensor *b, const kn_matmul_options *options);
/* x [...,I], w [O,I], b [O] or KN_NONE → [...,O] */
KN_API kn_tensor *kn_linear(kn_tensor *x, kn_tensor *w, kn_tensor *b);

/* --- convolution and pooling: x [B,C,spatial…], one to three spatial dimensions --- */
/* Options of kn_conv. */
typedef struct kn_conv_options {
    int64_t stride[3], padding[3], dilation[3]; /* per spatial dimension; zeros: 1, 0, 1 */
    int64_t padding_extra[3];                   /* behind the last element, beyond `padding` */
    int64_t groups;                             /* 0: 1 */
    int flip;                                   /* 1: true convolution; 0: cross-correlation */
    uint64_t reserved[4];                       /* zero */
} kn_conv_options;
/* w [O,C/groups,window…], b [O] or KN_NONE → [B,O,…]; each spatial size is
 * (S + 2·padding + padding_extra - dilation·(W-1) - 1)/stride + 1, rounded down. NULL options: the
 * defaults. */
KN_API kn_tensor *kn_conv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options);
/* Options of kn_maxpool and kn_avgpool. */
typedef struct kn_pooling_options {
    int64_t stride[3];    /* zeros: the window's */
    int64_t padding[3];   /* on both sides, at most half a window: never the maximum; averages count
                             it as zeros */
    int64_t dilation[3];  /* zeros: 1 */
    int ceil;             /* 1: a last window may cross the edge, if it begins before it */
    int inside;           /* 1: averages are over the elements of x alone */
    uint64_t reserved[4]; /* zero */
} kn_pooling_options;
/* Each spatial size of the result is (S + 2·padding - dilation·(W-1) - 1)/stride + 1, rounded down,
 * or up with `ceil`. NULL options: the defaults. */
KN_API kn_tensor *kn_maxpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options);
KN_API kn_tensor *kn_avgpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options);

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
/* Cuts the first dimension into pieces of sizes[0] … sizes[n-1], which add up to it: out[i] is a
 * view of x. On failure `out` holds NULLs. */
KN_API KN_MUST_CHECK kn_status kn_split_rows(kn_tensor *out[], kn_tensor *x, const int64_t sizes[],
                                             int n);
KN_API kn_tensor *kn_broadcast(kn_tensor *x, kn_shape shape); /* an alias where shapes are equal */
KN_API kn_tensor *kn_cast(kn_tensor *x, kn_dtype dtype);      /* an alias where dtypes are equal */
/* A copy on another device; an alias of x where it is there already. */
KN_API kn_tensor *kn_to(kn_tensor *x, kn_device *device);

/* --- the macros that add the call site --- */
/* Not for users: adds the call site to an error. */
KN_API kn_tensor *kn_located(kn_tensor *t, const char *file, int line);
#define KN_LOCATED(call) kn_located(call, __FILE__, __LINE__)
#include <knet/ops_sites.h>

#ifdef __cplusplus
}
#endif
#endif
