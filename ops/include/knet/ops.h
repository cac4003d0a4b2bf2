/* The ops: expression style, x always first, then weights, then attributes.
 *
 *     kn_tensor *y = kn_relu(kn_linear(x, w, b));
 *
 * Every op is a function, usable as a pointer, under a macro of its name that adds the call site to
 * errors. An op returns a tensor of the innermost frame, or NULL with the error pending: with op,
 * shapes and call site. Ops follow their inputs' device; inputs on two devices are a DEVICE error,
 * two dtypes a DTYPE error, an op that a device lacks UNSUPPORTED. While an error is pending, ops
 * do nothing and return NULL. Dtypes are f64, f32, f16 and bf16 on every device, unless an op says
 * otherwise; docs/catalogue.md lists them. Of f16 and bf16, arithmetic is in f32 and results are
 * rounded. Broadcasting is NumPy's. Axes may be negative: -1 is the last. Flags in options, whose
 * comments say "1: …", take KN_OFF as 0; values other than 0, 1 and KN_OFF are an INVALID error.
 */
#ifndef KNET_OPS_H
#define KNET_OPS_H

#include <knet/frame.h>
#include <knet/image.h>
#include <knet/linalg.h>
#include <knet/norm.h>
#include <knet/sequence.h>
#include <knet/statistics.h>
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

/* kn_zeros: all elements are 0; kn_ones: all are 1; kn_full: all are `value`. */
KN_API kn_tensor *kn_zeros(kn_shape shape);
KN_API kn_tensor *kn_ones(kn_shape shape);
KN_API kn_tensor *kn_full(kn_shape shape, double value);
/* kn_zeros_like: zeros of x's shape, dtype and device; kn_ones_like: ones of x's shape, dtype and
 * device; kn_full_like: `value` in x's shape, dtype and device. */
KN_API kn_tensor *kn_zeros_like(kn_tensor *x);
KN_API kn_tensor *kn_ones_like(kn_tensor *x);
KN_API kn_tensor *kn_full_like(kn_tensor *x, double value);
/* start, start + step, … before stop, computed in f64, cast to the dtype (0: the frame's). */
KN_API kn_tensor *kn_arange(double start, double stop, double step, kn_dtype dtype);
/* n numbers at equal distances, `first` and `last` among them, which are finite; else INVALID. */
KN_API kn_tensor *kn_linspace(double first, double last, int64_t n);
/* base to the powers kn_linspace(first, last, n); base is above 0 and finite. */
KN_API kn_tensor *kn_logspace(double first, double last, int64_t n, double base);
/* Coordinates of a grid: out[i] has the sizes of all n vectors as dimensions and x[i]'s elements
 * along dimension i ("ij" in NumPy). n is 1 … 8. On failure `out` holds NULLs. */
KN_API KN_MUST_CHECK kn_status kn_meshgrid(kn_tensor *out[], kn_tensor *const x[], int n);
/* Ones on the diagonal, zeros elsewhere. */
KN_API kn_tensor *kn_eye(int64_t rows, int64_t columns);
/* index [N…], i64, i32 or u8 → [N…,n]: 1 at the index, else 0; all zeros for one out of range. */
KN_API kn_tensor *kn_one_hot(kn_tensor *index, int64_t n);
/* kn_uniform: uniform random numbers in [lo, hi); kn_normal: normally distributed ones. */
KN_API kn_tensor *kn_uniform(kn_shape shape, double lo, double hi, kn_rng *rng);
KN_API kn_tensor *kn_normal(kn_shape shape, double mean, double stddev, kn_rng *rng);
/* 1 with probability p, else 0; p in 0 … 1, exact to 2^-32. */
KN_API kn_tensor *kn_bernoulli(kn_shape shape, double p, kn_rng *rng);
/* Exponential: -ln(u)/rate with u uniform in (0, 1), so never 0 but for a huge rate; rate > 0. */
KN_API kn_tensor *kn_exponential(kn_shape shape, double rate, kn_rng *rng);
/* weights [...,C], finite and not negative → [...,n]: indices 0 … C-1 in proportion to the weights,
 * KN_I64. replace: an index may come again; else each once at most, n <= C, the weightless ones
 * last. Of a row without any weight: any index. Source: Efraimidis and Spirakis 2006. */
KN_API kn_tensor *kn_multinomial(kn_tensor *weights, int64_t n, bool replace, kn_rng *rng);
/* Integers lo … hi - 1 as KN_I64, all equally likely; lo < hi, both at most 2^53 in size. */
KN_API kn_tensor *kn_integers(kn_shape shape, int64_t lo, int64_t hi, kn_rng *rng);
/* The numbers 0 … n - 1 in random order, KN_I64 [n]; n at most 2^31. Source: a keyed bijection with
 * cycle walking; Mitchell et al., Bandwidth-Optimal Random Shuffling for GPUs, 2022. */
KN_API kn_tensor *kn_permutation(int64_t n, kn_rng *rng);
/* x with its slices along the axis in the order of a kn_permutation. */
KN_API kn_tensor *kn_shuffle(kn_tensor *x, int axis, kn_rng *rng);
/* Normal numbers of [lo, hi] alone, by the inverse of the distribution function (Wichura, AS 241);
 * the mean and the deviation are those before the cut; lo < hi. */
KN_API kn_tensor *kn_truncated_normal(kn_shape shape, double mean, double stddev, double lo,
                                      double hi, kn_rng *rng);
/* A matrix with orthonormal rows or columns, whichever are fewer, times gain, uniformly distributed
 * (Haar): Q of a normal matrix, with the signs of R's diagonal. The shape counts as
 * [dim[0], rest]; it has two dimensions or more. Computed on the host, then copied to the frame's
 * device, so that every device gets the same bits. */
KN_API kn_tensor *kn_orthogonal(kn_shape shape, double gain, kn_rng *rng);
/* The filter of bilinear upsampling for transposed convolutions, as Knet.jl's bilinear: shape
 * [O,I,H,W]; w[o,i] is the filter where o = i and 0 elsewhere. */
KN_API kn_tensor *kn_bilinear_filter(kn_shape shape);

/* --- pointwise: the rows of ops.def, which has their formulas, derivatives and dtypes ---
 *
 * Inputs are broadcast by NumPy's rule.
 * Arithmetic:   neg abs sign square sqrt cbrt reciprocal rsqrt: 1/√x; affine(x, scale, shift);
 *               pow_scalar(x, p): x^p; clamp(x, lo, hi), integers by lo and hi
 *               rounded toward 0; replace_nan(x, p): p where x is NaN;
 *               floor ceil trunc round: halves to even
 * Exponentials: exp exp2 exp10 expm1: e^x - 1; log log2 log10 log1p: ln(1 + x)
 * Trigonometry: sin cos tan asin acos atan cot asec acsc sinh cosh tanh asinh acosh atanh sech
 *               csch coth asech acsch acoth; acot: atan(1/x); sinpi cospi: of πx; mod2pi: the
 *               angle in 0 … 2π
 * Special:      erf erfc erfinv erfcinv erfcx: e^(x²)·erfc(x); gamma; lgamma: ln |Γ(x)|;
 *               polygamma(x, n): the n-th derivative of digamma, n <= 170; besselj(x, n)
 *               bessely(x, n): of both kinds; n is an integer, else INVALID; |n| > 100,000: NaN
 * Activations:  sigm relu gelu gelu_tanh silu: x·sigm(x), called swish too; mish; selu;
 *               softplus: ln(1 + e^x); logsigmoid; softsign: x/(1 + |x|);
 *               hardsigmoid: (x + 3)/6 in 0 … 1; hardswish: x·hardsigmoid(x);
 *               leaky_relu(x, p): p·x below 0; elu(x, p): p·(e^x - 1) below 0;
 *               celu(x, p): p·(e^(x/p) - 1) below 0; hardshrink(x, p): 0 where |x| <= p;
 *               softshrink(x, p): x moved toward 0 by p, 0 where |x| <= p; INVALID unless p >= 0;
 *               hardtanh(x, lo, hi): clamp, but for its slope at lo and hi
 * Two inputs:   add sub mul div pow; maximum minimum (kn_max and kn_min reduce);
 *               fmod: with the sign of a; remainder: with the sign of b; floor_div: ⌊a/b⌋;
 *               hypot: √(a² + b²);
 *               atan2(y, x); copysign(a, b); xlogy: a·ln b, 0 where a is 0;
 *               logaddexp: ln(e^a + e^b); gate(a, b): a·sigm(b); axpby(a, b, p, q): p·a + q·b
 * Losses:       of a prediction x and its target y, element by element; kn_mse and its kin have
 *               the meaning: square_diff abs_diff bce_terms bce_logits_terms logistic_terms
 *               kl_terms kl_log_terms; with a scalar hinge_terms huber_terms smooth_l1_terms
 * Three inputs: addcmul(x, a, b, p): x + p·a·b;
 *               where(condition, a, b): condition is KN_BOOL; lerp(a, b, t): a + t·(b - a)
 * Comparisons:  eq ne lt le gt ge, logical_and logical_or logical_xor, of one input logical_not
 *               isnan isinf isfinite; they give KN_BOOL and have no gradient
 *
 * The gradient of sign and of rounding is zero; relu keeps NaN; where max and min tie the gradient
 * is shared. Slopes at the ends are PyTorch's: 1 for clamp; 0 for relu, hardtanh and hardsigmoid,
 * of which the last one alone has none at NaN. hardswish has those of its middle, -0.5 and 1.5;
 * PyTorch's is 1 or 1.5 at 3, by the number of elements. Integers wrap: neg abs sign square relu
 * clamp hardtanh softshrink add sub mul fmod remainder floor_div maximum minimum and comparisons
 * are for integers too. A remainder or quotient of an integer by 0 is 0. */
#define KN_PARAMS_0_
#define KN_PARAMS_1_ , double p
#define KN_PARAMS_2_ , double p, double q
#define KN_ROW1(name, s, ...) KN_API kn_tensor *kn_##name(kn_tensor *x KN_PARAMS_##s##_);
#define KN_ROW2(name, s, ...)                                                                      \
    KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y KN_PARAMS_##s##_);
#define KN_ROW3(name, s, ...)                                                                      \
    KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y, kn_tensor *w KN_PARAMS_##s##_);
#define KN_COMPARE(name, ...) KN_API kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y);
#define KN_COMPARE1(name, ...) KN_API kn_tensor *kn_##name(kn_tensor *x);
#include <knet/ops.def>

/* --- composed of rows: same dtypes, gradients of the rows' orders --- */
/* kn_sec: 1/cos x; kn_csc: 1/sin x. Others of their kind are rows. */
KN_API kn_tensor *kn_sec(kn_tensor *x);
KN_API kn_tensor *kn_csc(kn_tensor *x);
/* x in degrees: kn_sind: sin(π/180·x); kn_cosd: cos(π/180·x); kn_tand: tan(π/180·x); kn_secd:
 * 1/kn_cosd(x); kn_cscd: 1/kn_sind(x); kn_cotd: 1/kn_tand(x). Multiples of 90 give exact results.
 * Inverses: kn_asind: 180/π·asin x; kn_acosd: 180/π·acos x; kn_atand: 180/π·atan x; kn_asecd:
 * 180/π·asec x; kn_acscd: 180/π·acsc x; kn_acotd: 180/π·acot x. */
KN_API kn_tensor *kn_sind(kn_tensor *x);
KN_API kn_tensor *kn_cosd(kn_tensor *x);
KN_API kn_tensor *kn_tand(kn_tensor *x);
KN_API kn_tensor *kn_secd(kn_tensor *x);
KN_API kn_tensor *kn_cscd(kn_tensor *x);
KN_API kn_tensor *kn_cotd(kn_tensor *x);
KN_API kn_tensor *kn_asind(kn_tensor *x);
KN_API kn_tensor *kn_acosd(kn_tensor *x);
KN_API kn_tensor *kn_atand(kn_tensor *x);
KN_API kn_tensor *kn_asecd(kn_tensor *x);
KN_API kn_tensor *kn_acscd(kn_tensor *x);
KN_API kn_tensor *kn_acotd(kn_tensor *x);
/* kn_deg2rad: π/180·x; kn_rad2deg: 180/π·x. */
KN_API kn_tensor *kn_deg2rad(kn_tensor *x);
KN_API kn_tensor *kn_rad2deg(kn_tensor *x);
/* kn_digamma: the derivative of lgamma; kn_trigamma: the second derivative of lgamma. kn_besselj0:
 * kn_besselj(x, 0); kn_besselj1: kn_besselj(x, 1); kn_bessely0: kn_bessely(x, 0); kn_bessely1:
 * kn_bessely(x, 1). */
KN_API kn_tensor *kn_digamma(kn_tensor *x);
KN_API kn_tensor *kn_trigamma(kn_tensor *x);
KN_API kn_tensor *kn_besselj0(kn_tensor *x);
KN_API kn_tensor *kn_besselj1(kn_tensor *x);
KN_API kn_tensor *kn_bessely0(kn_tensor *x);
KN_API kn_tensor *kn_bessely1(kn_tensor *x);
/* kn_tanhshrink: x - tanh x; kn_relu6: hardtanh(x, 0, 6); kn_log_cosh: ln cosh x; kn_logit:
 * ln(x/(1 - x)). */
KN_API kn_tensor *kn_tanhshrink(kn_tensor *x);
KN_API kn_tensor *kn_relu6(kn_tensor *x);
KN_API kn_tensor *kn_log_cosh(kn_tensor *x);
KN_API kn_tensor *kn_logit(kn_tensor *x);
/* x with these numbers in place of NaN, +∞ and -∞; a finite one beyond the dtype's range counts as
 * its largest: (x, 0, DBL_MAX, -DBL_MAX) is NumPy's default. Integers have none of the three. */
KN_API kn_tensor *kn_nan_to_num(kn_tensor *x, double nan, double above, double below);
/* x·2^n, n of x's dtype. */
KN_API kn_tensor *kn_ldexp(kn_tensor *x, kn_tensor *n);
/* kn_isclose: whether |a - b| <= atol + rtol·|b|, or a == b, of each element; kn_all_close: whether
 * all elements are so close. Of any dtype; no gradient. */
KN_API kn_tensor *kn_isclose(kn_tensor *a, kn_tensor *b, double rtol, double atol);
KN_API kn_tensor *kn_all_close(kn_tensor *a, kn_tensor *b, double rtol, double atol);

/* --- reductions over axes (KN_ALL: all; KN_SCALAR: none) ---
 *
 * keep_dims keeps the reduced axes, with size 1. Any dtype, unless the op says otherwise; f16 and
 * bf16 are computed in f32. A NaN among the elements makes NaN. Results stay on the device. */
/* The sum. Integers and bools give KN_I64 and wrap. */
KN_API kn_tensor *kn_sum(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_sum_abs: the sum of |x|; kn_sum_square: the sum of x². */
KN_API kn_tensor *kn_sum_abs(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_sum_square(kn_tensor *x, kn_shape axes, bool keep_dims);
/* The product, with sum's dtypes. */
KN_API kn_tensor *kn_prod(kn_tensor *x, kn_shape axes, bool keep_dims);
/* The mean; of integers and bools in KN_F64. Of no elements: NaN. */
KN_API kn_tensor *kn_mean(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_max: the largest element; kn_min: the smallest element; kn_max_abs: the largest |x|;
 * kn_min_abs: the smallest |x|. In x's dtype. Tied elements share the gradient equally. A reduction
 * of no elements is a SHAPE error. */
KN_API kn_tensor *kn_max(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_min(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_max_abs(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_min_abs(kn_tensor *x, kn_shape axes, bool keep_dims);
/* Options of kn_var and kn_std. */
typedef struct kn_var_options {
    int population;       /* 1: divide by n, as NumPy does; 0: by n - 1, as PyTorch does */
    uint32_t unused;      /* zero */
    kn_tensor *mean;      /* of each result, shaped like it or with the axes kept; NULL: computed */
    uint64_t reserved[4]; /* zero */
} kn_var_options;
/* Of floats. kn_var: the variance; kn_std: the standard deviation, the variance's root. Where n - 1
 * or n is 0: NaN. NULL options: the defaults. */
KN_API kn_tensor *kn_var(kn_tensor *x, kn_shape axes, bool keep_dims,
                         const kn_var_options *options);
KN_API kn_tensor *kn_std(kn_tensor *x, kn_shape axes, bool keep_dims,
                         const kn_var_options *options);
/* (Σ|x|^p)^(1/p) of floats. p = 0: the number of nonzeros; INFINITY: the largest |x|; -INFINITY:
 * the smallest. At 0 the gradient is 0; where the norm of finite elements overflows, it is NaN, for
 * p = 1 their signs. */
KN_API kn_tensor *kn_norm(kn_tensor *x, double p, kn_shape axes, bool keep_dims);
/* ln Σ e^x of floats, without overflow. */
KN_API kn_tensor *kn_logsumexp(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_count_nonzero: the number of elements that aren't zero, KN_I64; kn_any: whether one element or
 * more isn't zero, KN_BOOL; kn_all: whether no element is zero, KN_BOOL. A NaN isn't zero. No
 * gradient. */
KN_API kn_tensor *kn_count_nonzero(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_any(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_all(kn_tensor *x, kn_shape axes, bool keep_dims);
/* KN_I64, along one axis, or with KN_ALL in the flattened x. kn_argmax: index of the first largest
 * element; kn_argmin: index of the first smallest element. A NaN counts as both. No gradient. */
KN_API kn_tensor *kn_argmax(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_argmin(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_max_index: the largest element and kn_argmax's index; kn_min_index: the smallest element and
 * kn_argmin's index. The gradient flows to that element alone. `values` or `indices` may be NULL if
 * it is not wanted, as in functions like this. On failure both are NULL. */
KN_API KN_MUST_CHECK kn_status kn_max_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x,
                                            kn_shape axes, bool keep_dims);
KN_API KN_MUST_CHECK kn_status kn_min_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x,
                                            kn_shape axes, bool keep_dims);

/* --- products --- */
/* Options of kn_matmul. */
typedef struct kn_matmul_options {
    int trans_a, trans_b; /* 1: of each matrix, the transpose */
    uint64_t reserved[4]; /* zero */
} kn_matmul_options;
/* a [...,M,K], b [...,K,N] → [...,M,N]: one product for each of the leading dimensions, which are
 * broadcast. trans_a: a [...,K,M]; trans_b: b [...,N,K]. NULL options: the defaults. */
KN_API kn_tensor *kn_matmul(kn_tensor *a, kn_tensor *b, const kn_matmul_options *options);
/* A matrix times a vector: a [...,M,K], x [...,K] → [...,M] */
KN_API kn_tensor *kn_mv(kn_tensor *a, kn_tensor *x);
/* The sum of the products of all elements: a and b of one shape → 0-dim. */
KN_API kn_tensor *kn_dot(kn_tensor *a, kn_tensor *b);
/* The outer product a[i]·b[j]: a [M], b [N] → [M,N] */
KN_API kn_tensor *kn_outer(kn_tensor *a, kn_tensor *b);
/* alpha·op(a) + beta·op(b): matrices, transposed as the options say. */
KN_API kn_tensor *kn_geam(kn_tensor *a, kn_tensor *b, double alpha, double beta,
                          const kn_matmul_options *options);
/* y += alpha·x, in place: a new version of y. x has y's shape and dtype. Not recorded. */
KN_API KN_MUST_CHECK kn_status kn_axpy_into(kn_tensor *y, double alpha, kn_tensor *x);
/* Einstein's sum: "bij,bjk->bik". A letter a dimension of each operand; letters that the result
 * lacks are summed over. Without "->" the result has the letters that occur once, sorted. A letter
 * twice in one operand takes its diagonal. "..." stands for any dimensions, counted from the last
 * one; a result without it sums over them. Dimensions of 1 are broadcast. Operands are joined from
 * left to right, by a matrix product where letters are summed; "ij->ij": a view. */
KN_API kn_tensor *kn_einsum(const char *spec, kn_tensor *const x[], int n_x);
#define KN_EINSUM(spec, ...)                                                                       \
    kn_einsum(spec, (kn_tensor *const[]){__VA_ARGS__},                                             \
              (int)(sizeof((kn_tensor *const[]){__VA_ARGS__}) / sizeof(kn_tensor *)))
/* Kronecker's product: a [M,N], b [P,Q] → [M·P,N·Q] */
KN_API kn_tensor *kn_kron(kn_tensor *a, kn_tensor *b);
/* Matrices along the diagonal of a larger one, zeros elsewhere. */
KN_API kn_tensor *kn_block_diag(kn_tensor *const x[], int n_x);
/* x [...,N,N] → [...]: the sums of the diagonals. */
KN_API kn_tensor *kn_trace(kn_tensor *x);

/* Activations that products and convolutions apply in the same call, by the ops of these names. */
typedef enum kn_act {
    KN_ACT_NONE = 0,
    KN_ACT_RELU,
    KN_ACT_GELU,
    KN_ACT_SILU,
    KN_ACT_GELU_TANH,
    KN_ACT_SIGM,
    KN_ACT_TANH,
    KN_ACT_HARDSWISH
} kn_act;
/* x·wᵀ + b: x [...,I], w [O,I], b [O] or KN_NONE → [...,O] */
KN_API kn_tensor *kn_linear(kn_tensor *x, kn_tensor *w, kn_tensor *b);
/* The activation of kn_linear(x, w, b), in one pass: on the host while the product's tile is in the
 * cache; on CUDA relu in cublasLt's epilogue, others by a kernel over the result. Recorded, relu,
 * sigm and tanh keep the result alone; others, whose gradients read more, run as ops apart. */
KN_API kn_tensor *kn_linear_act(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_act act);
/* act(kn_linear(x, w, b) + residual), the residual like the result or KN_NONE, in the same way: on
 * CUDA cublasLt adds it to the product. bf16 sums may be rounded before it on the host. */
KN_API kn_tensor *kn_linear_add(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_tensor *residual,
                                kn_act act);

/* --- convolution and pooling: x [B,C,spatial…], one to three spatial dimensions --- */
/* Options of kn_conv. */
typedef struct kn_conv_options {
    int64_t stride[3], padding[3], dilation[3]; /* per spatial dimension; zeros: 1, 0, 1 */
    /* beyond `padding`, at the end; -padding or more, but of kn_deconv any number */
    int64_t padding_extra[3];
    int64_t groups;       /* 0: 1 */
    int flip;             /* 1: true convolution; 0: cross-correlation */
    kn_act act;           /* of the result, in the same call */
    uint64_t reserved[4]; /* zero */
} kn_conv_options;
/* x convolved with w [O,C/groups,window…], plus b [O] or KN_NONE → [B,O,…]; each spatial size is
 * (S + 2·padding + padding_extra - dilation·(W-1) - 1)/stride + 1, rounded down. NULL options: the
 * defaults. frame.h tells of Winograd's transforms on the host. */
KN_API kn_tensor *kn_conv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options);
/* act(kn_conv(x, w, b) + residual), the residual like the result or KN_NONE: sum and activation run
 * over each piece of the result while it is in the cache; on CUDA bias, sum and relu in one kernel,
 * other activations in the next. Recorded as kn_linear_act. */
KN_API kn_tensor *kn_conv_add(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_tensor *residual,
                              const kn_conv_options *options);
/* Transposed: x [B,O,…], w [O,C/groups,window…], b [C] or KN_NONE → [B,C,…], each spatial size
 * (S - 1)·stride - 2·padding - padding_extra + dilation·(W-1) + 1. PyTorch's output_padding n is
 * padding_extra -n; elements that no window reaches are b. 16-bit sums are rounded before b. */
KN_API kn_tensor *kn_deconv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *conv);
/* Options of kn_maxpool and kn_avgpool. */
typedef struct kn_pooling_options {
    int64_t stride[3]; /* zeros: the window's */
    /* on both sides, at most half a window: never the maximum; averages count it as zeros */
    int64_t padding[3];
    int64_t dilation[3];  /* zeros: 1 */
    int ceil;             /* 1: a last window may cross the edge, if it begins before it */
    int inside;           /* 1: averages are over the elements of x alone */
    int skip_nan;         /* 1: maxima skip NaN, unless a window has nothing else; 0: NaN wins */
    uint32_t unused;      /* zero */
    uint64_t reserved[3]; /* zero */
} kn_pooling_options;
/* kn_maxpool: the largest element of each window; kn_avgpool: the mean of each window. Each spatial
 * size of the result is (S + 2·padding - dilation·(W-1) - 1)/stride + 1, rounded down, or up with
 * `ceil`. NULL options: the defaults. Errors: UNSUPPORTED for a window of kn_maxpool of more than
 * 256 elements; SHAPE for padding where the dilation is larger than x, whose windows could miss it.
 */
KN_API kn_tensor *kn_maxpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options);
KN_API kn_tensor *kn_avgpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options);

/* kn_maxpool_index: kn_maxpool and the place of each maximum in its window, row-major, KN_U8; one
 * pointer may be NULL. kn_maxunpool: x [B,C,…] at the places of kn_maxpool_index in zeros of the
 * spatial `size` (KN_SCALAR: the least that has as many windows); where windows overlap values add
 * up. Window and options are those of the pooling. */
KN_API KN_MUST_CHECK kn_status kn_maxpool_index(kn_tensor **values, kn_tensor **offsets,
                                                kn_tensor *x, kn_shape window,
                                                const kn_pooling_options *options);
KN_API kn_tensor *kn_maxunpool(kn_tensor *x, kn_tensor *offsets, kn_shape window, kn_shape size,
                               const kn_pooling_options *options);
/* Each element of x in all places of its window: Knet.jl's unpool. Overlapping windows add up. */
KN_API kn_tensor *kn_unpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options);
/* Window i of n covers elements ⌊i·S/n⌋ to ⌈(i + 1)·S/n⌉ - 1 of S, as PyTorch's.
 * kn_adaptive_avgpool: the means of as many windows as `size` says; kn_adaptive_maxpool: the
 * largest elements of as many windows as `size` says; kn_global_avgpool: the mean of each channel,
 * with spatial dimensions of 1; kn_global_maxpool: the largest element of each channel. As in
 * kn_maxpool, the first of tied elements gets the gradient. */
KN_API kn_tensor *kn_adaptive_avgpool(kn_tensor *x, kn_shape size);
KN_API kn_tensor *kn_adaptive_maxpool(kn_tensor *x, kn_shape size);
KN_API kn_tensor *kn_global_avgpool(kn_tensor *x);
KN_API kn_tensor *kn_global_maxpool(kn_tensor *x);

/* --- softmax and losses: 0-dimensional results stay on the device until kn_item --- */
/* kn_softmax: e^x / sum(e^x) along the axis; kn_logsoftmax: the logarithm of kn_softmax. */
KN_API kn_tensor *kn_softmax(kn_tensor *x, int axis);
KN_API kn_tensor *kn_logsoftmax(kn_tensor *x, int axis);
/* kn_cross_entropy: mean of -log softmax(logits)[label]; kn_nll: mean of -log_probs[label]. logits
 * and log_probs [B,C], labels [B] of KN_I64, KN_I32 or KN_U8 in 0 … C-1; a label outside that range
 * gives NaN. A mean of no rows is a SHAPE error. Logits [B,C,…] with labels [B,…], a label for each
 * place as of segmentation, count as B·… rows, here and below. */
KN_API kn_tensor *kn_cross_entropy(kn_tensor *logits, kn_tensor *labels);
KN_API kn_tensor *kn_nll(kn_tensor *log_probs, kn_tensor *labels);
/* Returns the share of rows whose largest score is at the label, in 0 … 1; NaN if a label is
 * outside the scores' columns; no gradient. */
KN_API kn_tensor *kn_accuracy(kn_tensor *scores, kn_tensor *labels);
/* 0 with probability p, else x/(1-p). There is no training mode: p = 0 returns an alias of x. */
KN_API kn_tensor *kn_dropout(kn_tensor *x, double p, kn_rng *rng);

/* --- losses with options --- */
/* How a loss joins its terms. KN_REDUCE_BATCH: their sum divided by the first dimension's size. */
typedef enum kn_reduction {
    KN_REDUCE_MEAN = 0,
    KN_REDUCE_SUM,
    KN_REDUCE_NONE,
    KN_REDUCE_BATCH
} kn_reduction;
/* Options of kn_cross_entropy_with. */
typedef struct kn_cross_entropy_options {
    kn_tensor *weight;      /* [C]: of each class, in x's dtype; NULL: ones */
    double smoothing;       /* in 0 … 1: this share of a target is spread over all classes */
    int64_t ignore_index;   /* rows with this label are left out, if `ignores` is 1 */
    int ignores;            /* see there */
    kn_reduction reduction; /* KN_REDUCE_MEAN: over the rows that count, or their weights */
    uint64_t reserved[4];   /* zero */
} kn_cross_entropy_options;
/* As PyTorch's cross_entropy, also of probabilities [B,C,…] in place of labels; gradients of any
 * order. A label out of range gives NaN, -1 as well. KN_REDUCE_NONE gives a term for each label. */
KN_API kn_tensor *kn_cross_entropy_with(kn_tensor *logits, kn_tensor *labels,
                                        const kn_cross_entropy_options *options);
/* kn_zero_one: 1 - kn_accuracy; kn_topk_accuracy: the share of rows whose label is among the k
 * largest scores. */
KN_API kn_tensor *kn_zero_one(kn_tensor *scores, kn_tensor *labels);
KN_API kn_tensor *kn_topk_accuracy(kn_tensor *scores, kn_tensor *labels, int64_t k);
/* Predictions x, targets y; SHAPE unless one broadcasts to the other's. kn_mse: (x - y)²; kn_mae:
 * |x - y|. */
KN_API kn_tensor *kn_mse(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
KN_API kn_tensor *kn_mae(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
/* kn_huber: (x - y)²/2 where |x - y| <= delta, else delta·(|x - y| - delta/2); kn_smooth_l1:
 * kn_huber with delta = beta, divided by beta, and kn_mae for beta = 0. */
KN_API kn_tensor *kn_huber(kn_tensor *x, kn_tensor *y, double delta, kn_reduction reduction);
KN_API kn_tensor *kn_smooth_l1(kn_tensor *x, kn_tensor *y, double beta, kn_reduction reduction);
/* kn_bce: -y·ln x - (1 - y)·ln(1 - x) of probabilities x, with logarithms of -100 at least;
 * kn_bce_logits: kn_bce of sigm(x) for logits x, without overflow (Knet.jl's bce). y in 0 … 1. */
KN_API kn_tensor *kn_bce(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
KN_API kn_tensor *kn_bce_logits(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
/* kn_logistic: ln(1 + e^(-x·y)); kn_hinge: max(0, margin - x·y). y is 1 or -1. */
KN_API kn_tensor *kn_logistic(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
KN_API kn_tensor *kn_hinge(kn_tensor *x, kn_tensor *y, double margin, kn_reduction reduction);
/* Kullback and Leibler's divergence y·(ln y - x) of log-probabilities x from probabilities y, or,
 * with log_target, from their logarithms. Over distributions KN_REDUCE_BATCH is the mean. */
KN_API kn_tensor *kn_kl_div(kn_tensor *x, kn_tensor *y, bool log_target, kn_reduction reduction);

/* --- movement: any dtype --- */
KN_API kn_tensor *kn_reshape(kn_tensor *x, kn_shape shape); /* a view; one dimension may be -1 */
KN_API kn_tensor *kn_flatten(kn_tensor *x);                 /* [B,…] → [B,rest]; a view */
/* Elements start … stop-1 of each dimension; a view if only the first dimension is cut. */
KN_API kn_tensor *kn_slice(kn_tensor *x, kn_shape start, kn_shape stop);
/* The result's dimension i is x's dimension axes[i]; KN_ALL reverses them. */
KN_API kn_tensor *kn_transpose(kn_tensor *x, kn_shape axes);
/* kn_swap_axes: axes a and b of x change places; kn_move_axis: axis `from` moves to place `to`. */
KN_API kn_tensor *kn_swap_axes(kn_tensor *x, int a, int b);
KN_API kn_tensor *kn_move_axis(kn_tensor *x, int from, int to);
/* A copy of x's elements, which shares nothing with x. */
KN_API kn_tensor *kn_copy(kn_tensor *x);
/* Joins tensors along an axis. */
KN_API kn_tensor *kn_concat(kn_tensor *const x[], int n_x, int axis);
/* Joins tensors of one shape along a new axis. */
KN_API kn_tensor *kn_stack(kn_tensor *const x[], int n_x, int axis);
/* kn_split_axis: pieces of the axis, of sizes[0] … sizes[n-1], which add up to it; kn_chunk: n
 * pieces of the axis, of sizes that differ by at most one, the longer ones first; kn_unbind: the n
 * elements of the axis, each without it; kn_split_rows: kn_split_axis of the first dimension.
 * Pieces of the first dimension are views of x. On failure `out` holds NULLs. */
KN_API KN_MUST_CHECK kn_status kn_split_axis(kn_tensor *out[], kn_tensor *x, const int64_t sizes[],
                                             int n, int axis);
KN_API KN_MUST_CHECK kn_status kn_chunk(kn_tensor *out[], kn_tensor *x, int n, int axis);
KN_API KN_MUST_CHECK kn_status kn_unbind(kn_tensor *out[], kn_tensor *x, int n, int axis);
KN_API KN_MUST_CHECK kn_status kn_split_rows(kn_tensor *out[], kn_tensor *x, const int64_t sizes[],
                                             int n);
/* Views. kn_squeeze: x without the axes, of one element each (KN_ALL: all such); kn_unsqueeze: x
 * with an axis of one element inserted at `axis`. */
KN_API kn_tensor *kn_squeeze(kn_tensor *x, kn_shape axes);
KN_API kn_tensor *kn_unsqueeze(kn_tensor *x, int axis);
/* The elements of the axes in reverse order. */
KN_API kn_tensor *kn_flip(kn_tensor *x, kn_shape axes);
/* Element i of the axis moves to i + shift; those that leave at one end enter at the other. */
KN_API kn_tensor *kn_roll(kn_tensor *x, int64_t shift, int axis);
/* kn_repeat: each element n times, one after the other (numpy.repeat); kn_tile: all of x, times[d]
 * times along each dimension d. */
KN_API kn_tensor *kn_repeat(kn_tensor *x, int64_t n, int axis);
KN_API kn_tensor *kn_tile(kn_tensor *x, kn_shape times);
/* What kn_pad puts around x. For x = a b c: */
typedef enum kn_pad_mode {
    KN_PAD_CONSTANT,  /* v v | a b c | v v: the value */
    KN_PAD_REFLECT,   /* c b | a b c | b a: at most size - 1 elements on a side */
    KN_PAD_SYMMETRIC, /* b a | a b c | c b: at most size */
    KN_PAD_REPLICATE, /* a a | a b c | c c */
    KN_PAD_CIRCULAR   /* b c | a b c | a b: at most size */
} kn_pad_mode;
/* before[d] and after[d] more elements at the ends of each dimension d. `value` is for
 * KN_PAD_CONSTANT alone; it has no gradient. */
KN_API kn_tensor *kn_pad(kn_tensor *x, kn_shape before, kn_shape after, kn_pad_mode mode,
                         double value);
/* x [...,rows,columns], zeros on one side of the diagonal column - row = `diagonal`. kn_triu: x
 * with zeros below the diagonal; kn_tril: x with zeros above the diagonal. */
KN_API kn_tensor *kn_triu(kn_tensor *x, int64_t diagonal);
KN_API kn_tensor *kn_tril(kn_tensor *x, int64_t diagonal);
/* kn_diagonal: the elements whose index along axis_column less that along axis_row is k, as the
 * last axis, without the two; a view as of kn_index. kn_diag: diagonal k of a matrix; or x [n] as
 * diagonal k of a matrix of zeros. */
KN_API kn_tensor *kn_diagonal(kn_tensor *x, int64_t k, int axis_row, int axis_column);
KN_API kn_tensor *kn_diag(kn_tensor *x, int64_t k);
KN_API kn_tensor *kn_broadcast(kn_tensor *x, kn_shape shape); /* an alias where shapes are equal */
KN_API kn_tensor *kn_cast(kn_tensor *x, kn_dtype dtype); /* integers saturate; alias if equal */
/* A copy on another device; an alias of x where it is there already. */
KN_API kn_tensor *kn_to(kn_tensor *x, kn_device *device);

/* --- indexing: any dtype ---
 *
 *     kn_index(x, KN_ITEMS(KN_AT(-1), KN_EVERY, KN_RANGE(0, 10, 2)))     // x[-1, :, 0:10:2]
 *     kn_index(x, KN_ITEMS(KN_TAKE(rows)))                               // x[rows]
 *     kn_set_at(x, kn_full(KN_SCALAR, 0), KN_ITEMS(KN_MASK(mask)))       // zeros at the mask
 *
 * Each item is for the next dimension of x; dimensions without one are kept whole. Rules are
 * NumPy's, so that KN_TAKE of no dimensions is a tensor, but for KN_AT, which is PyTorch's: applied
 * first, it stands between nothing. Plain items (KN_AT, KN_RANGE, KN_EVERY, KN_NEW) give a view
 * where the elements are a run of x's. Several tensors are broadcast and used element by element;
 * their dimensions replace the first one's, or come first if other plain items stand between them.
 *
 * Tensors of indices are KN_I64, KN_I32 or KN_U8; negative indices count from the end. An index out
 * of range is an INVALID error on the host. On CUDA it would take a wait for the device to know:
 * there such an element reads as NaN (0 for integers, false for bool), and writes to it are
 * skipped. Where one place is written several times the last value counts; values that are added to
 * one place are added in their order, so results have the same bits each time, without atomics.
 *
 * A mask selects as many elements as are true in it. Only the device knows how many: kn_nonzero,
 * kn_masked_select and KN_MASK wait for the tensor's stream, as kn_item does, and can't be
 * captured. kn_where(mask, x, y) selects without that. */
typedef enum kn_index_kind {
    KN_INDEX_AT,
    KN_INDEX_RANGE,
    KN_INDEX_NEW,
    KN_INDEX_TAKE,
    KN_INDEX_MASK
} kn_index_kind;
/* What one item of a list selects; see KN_AT and its kin. */
typedef struct kn_index_item {
    kn_index_kind kind;        /* which of them */
    int64_t start, stop, step; /* KN_AT: start alone; KN_RANGE */
    kn_tensor *tensor;         /* KN_TAKE, KN_MASK */
} kn_index_item;
/* As start and stop of a range: its ends, whatever the sign of the step. */
#define KN_BEGIN INT64_MIN
#define KN_END INT64_MAX
/* Not for users: an item. */
static inline kn_index_item kn_index_item_of_(kn_index_kind kind, int64_t start, int64_t stop,
                                              int64_t step, kn_tensor *tensor) {
    kn_index_item item;
    item.kind = kind;
    item.start = start;
    item.stop = stop;
    item.step = step;
    item.tensor = tensor;
    return item;
}
/* Element i alone, without its dimension. */
#define KN_AT(i) kn_index_item_of_(KN_INDEX_AT, (i), 0, 0, NULL)
/* Elements start, start + step, … before stop; as Python's, ends outside are cut off. */
#define KN_RANGE(start, stop, step) kn_index_item_of_(KN_INDEX_RANGE, (start), (stop), (step), NULL)
/* All elements; a new dimension of one. */
#define KN_EVERY KN_RANGE(KN_BEGIN, KN_END, 1)
#define KN_NEW kn_index_item_of_(KN_INDEX_NEW, 0, 0, 0, NULL)
/* The elements at a tensor's indices; where a bool tensor, of one dimension or more, is true. */
#define KN_TAKE(index) kn_index_item_of_(KN_INDEX_TAKE, 0, 0, 0, (index))
#define KN_MASK(mask) kn_index_item_of_(KN_INDEX_MASK, 0, 0, 0, (mask))
/* A list of items: how many, and the items. C alone. */
#define KN_ITEMS(...)                                                                              \
    (int)(sizeof((kn_index_item[]){__VA_ARGS__}) / sizeof(kn_index_item)),                         \
        (const kn_index_item[]) {                                                                  \
        __VA_ARGS__                                                                                \
    }

/* The selected elements. Plain items make at most 8 dimensions, before tensors replace theirs. */
KN_API kn_tensor *kn_index(kn_tensor *x, int n_items, const kn_index_item items[]);
/* kn_set_at: a copy of x in which the selected elements are y; kn_add_at: a copy of x with y added
 * to the selected elements. y is broadcast to them. */
KN_API kn_tensor *kn_set_at(kn_tensor *x, kn_tensor *y, int n_items, const kn_index_item items[]);
KN_API kn_tensor *kn_add_at(kn_tensor *x, kn_tensor *y, int n_items, const kn_index_item items[]);
/* The same as kn_set_at in x itself; a new version of x, as kn_data_mut makes; not recorded. */
KN_API KN_MUST_CHECK kn_status kn_set_into(kn_tensor *x, kn_tensor *y, int n_items,
                                           const kn_index_item items[]);
/* All of x becomes `value`, in place: a new version of x. Not recorded. */
KN_API KN_MUST_CHECK kn_status kn_fill_into(kn_tensor *x, double value);
/* Element `index` of the axis, which is removed; a view as of kn_index. */
KN_API kn_tensor *kn_select(kn_tensor *x, int64_t index, int axis);
/* x where the mask is true: [count, the rest of x's dimensions]. */
KN_API kn_tensor *kn_masked_select(kn_tensor *x, kn_tensor *mask);
/* The indices of elements that are not zero, row-major: KN_I64 [count, dimensions of x]. */
KN_API kn_tensor *kn_nonzero(kn_tensor *x);
/* Whole slices of one axis. x [B,A,I], index [N…] → y [B,N…,I]: y[b,n,i] = x[b,index[n],i].
 * kn_embedding: rows of w. */
KN_API kn_tensor *kn_index_select(kn_tensor *x, kn_tensor *index, int axis);
KN_API kn_tensor *kn_embedding(kn_tensor *w, kn_tensor *index);
/* kn_index_add: a copy of x with y [B,N…,I] added to those slices; kn_index_set: a copy of x with y
 * in place of those slices. */
KN_API kn_tensor *kn_index_add(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis);
KN_API kn_tensor *kn_index_set(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis);
/* An index for each element: x [B,A,I], index [B,N,I] → y [B,N,I]: y[b,n,i] = x[b,index[b,n,i],i].
 * kn_scatter: a copy of x with y [B,N,I] in those places; kn_scatter_add: a copy of x with y added
 * in those places. Beside the axis the index may be smaller than x: it goes with x's first
 * elements. */
KN_API kn_tensor *kn_gather(kn_tensor *x, kn_tensor *index, int axis);
KN_API kn_tensor *kn_scatter(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis);
KN_API kn_tensor *kn_scatter_add(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis);

#include <knet/sites/ops.h>

#ifdef __cplusplus
}
#endif
#endif
