/* The launchers: what the .cu files offer to the C files of this module. They get plain pointers
 * and numbers, enqueue on `stream`, read nothing back and wait for nothing, so that a stream
 * capture sees the same work. Each returns the launch's error.
 *
 * Vocabulary: a *region* is an index space of up to KN_DIMS_MAX dimensions with the strides of each
 * operand, in elements, 0 where it is broadcast. Dimensions are merged as far as they go, so most
 * regions have one.
 */
#ifndef KN_CUDA_LAUNCH_H
#define KN_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <knet/tensor.h>

#include "grid.h"
#include "quantile.h"
#include "reduce.h"
#include "resize.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KN__OPERANDS_MAX = 8 }; /* the result, and up to seven inputs */

typedef struct kn__operand_region {
    int64_t n; /* elements */
    int n_dims;
    int64_t dim[KN_DIMS_MAX];
    int64_t stride[KN__OPERANDS_MAX][KN_DIMS_MAX];
} kn__operand_region;

/* --- pointwise.cu, pointwise_back.cu: ops.def's rows and comparisons --- */
typedef enum kn__row_id {
#define KN_ROW1(name, ...) KN__ROW_##name,
#define KN_ROW2(name, ...) KN__ROW_##name,
#define KN_ROW3(name, ...) KN__ROW_##name,
#define KN_COMPARE(name, ...) KN__ROW_##name,
#define KN_COMPARE1(name, ...) KN__ROW_##name,
#include <knet/ops.def>
    KN__ROW_COUNT
} kn__row_id;

typedef struct kn__row_args {
    kn__row_id row;
    int order;                            /* 0: the row, 1: its back, 2: its back2 */
    kn_dtype dtype;                       /* of the operands that aren't BOOL */
    kn__operand_region region;            /* operand 0: the results, dense; then the inputs */
    void *out[3];                         /* NULL: not wanted */
    const void *in[KN__OPERANDS_MAX - 1]; /* in the call's order; NULL: not read */
    unsigned accumulate;                  /* bit r: out[r] is added to; backs alone */
    double p, q;                          /* the scalars */
    int64_t p_integer, q_integer;         /* for integer dtypes: toward zero, saturated */
} kn__row_args;
/* cudaErrorNotSupported: the row has no kernel for the dtype. */
cudaError_t kn__launch_row(const kn__row_args *r, cudaStream_t stream);
cudaError_t kn__launch_row_back(const kn__row_args *r, cudaStream_t stream); /* order 1 or 2 */

/* --- move.cu: any dtype, by element size --- */
typedef struct kn__copy {
    kn__operand_region region; /* operand 0: out, operand 1: in */
    size_t element_bytes;
    void *out;
    const void *in;
    kn_dtype add; /* not KN_BOOL: out += in; 0: out = in */
} kn__copy;
cudaError_t kn__launch_copy(const kn__copy *p, cudaStream_t stream);
/* in [batch, rows, cols] → out [batch, cols, rows] */
cudaError_t kn__launch_transpose(void *out, const void *in, size_t element_bytes, int64_t batch,
                                 int64_t rows, int64_t cols, cudaStream_t stream);
/* `element` holds the bits of one element, at most 8 bytes. */
cudaError_t kn__launch_fill(void *out, size_t element_bytes, uint64_t element, int64_t n,
                            cudaStream_t stream);
cudaError_t kn__launch_cast(void *out, kn_dtype to, const void *in, kn_dtype from, int64_t n,
                            cudaStream_t stream);

/* --- gather.cu: x [outer, size, inner], y [outer, count, inner] --- */
typedef struct kn__indices {
    int64_t outer, size, inner, count;
    const void *index; /* rows: [count], of whole slices; else [outer, count, inner] */
    int dtype;
    bool rows;
} kn__indices;
/* y = x at the indices; `missing`: the bits of an element, repeated, for an index out of range.
 * element_bytes may be 16: several elements, with `rows` alone. */
cudaError_t kn__launch_gather(void *y, const void *x, size_t element_bytes, uint64_t missing,
                              const kn__indices *p, cudaStream_t stream);
typedef enum kn__scatter_way {
    KN__SCATTER_COLUMNS, /* a thread goes along the axis */
    KN__SCATTER_LINES,   /* adds: a block sorts the indices of a line */
    KN__SCATTER_SORTED,  /* all indices are sorted */
    KN__SCATTER_LAST     /* puts: the last value for each place is found first */
} kn__scatter_way;
kn__scatter_way kn__scatter_plan(const kn__indices *p, kn_dtype dtype, bool adds);
size_t kn__scatter_bytes(const kn__indices *p, kn__scatter_way way); /* of work space */
/* out at the indices = y, zeros where y is NULL, or += y. work: zeros for KN__SCATTER_LAST. */
cudaError_t kn__launch_scatter(void *out, const void *y, kn_dtype dtype, bool adds,
                               const kn__indices *p, kn__scatter_way way, void *work,
                               cudaStream_t stream);
/* out = out · size + index; `first`: out = index. INT64_MIN for an index out of range. */
cudaError_t kn__launch_join(int64_t *out, const void *index, kn_dtype dtype, int64_t n,
                            int64_t size, bool first, cudaStream_t stream);

/* --- pad.cu --- */
typedef struct kn__frame_args { /* x [in], and `before` and more of one element around it: out [dim]
                                 */
    int n_dims;
    int64_t dim[KN_DIMS_MAX], in[KN_DIMS_MAX], before[KN_DIMS_MAX];
} kn__frame_args;
cudaError_t kn__launch_frame(void *out, const void *x, size_t element_bytes, uint64_t element,
                             const kn__frame_args *f, cudaStream_t stream);
typedef struct kn__padding { /* x [outer, n, inner] → [outer, before + n + after, inner] */
    int64_t outer, n, inner, before, after; /* circular: after may be -before, which rolls */
    int mode;                               /* kn_pad_mode, not constant */
} kn__padding;
cudaError_t kn__launch_pad(void *out, const void *x, size_t element_bytes, const kn__padding *p,
                           cudaStream_t stream);
cudaError_t kn__launch_pad_back(void *out, const void *g, kn_dtype dtype, const kn__padding *p,
                                cudaStream_t stream);
/* x [n / rows / columns, rows, columns] where column - row is at least, or at most, `diagonal`. */
cudaError_t kn__launch_triangle(void *out, const void *x, size_t element_bytes, int64_t n,
                                int64_t rows, int64_t columns, int64_t diagonal, bool upper,
                                cudaStream_t stream);
/* spaced: n numbers from a to b; else a, a + b, … */
cudaError_t kn__launch_arange(void *out, kn_dtype dtype, int64_t n, double a, double b, bool spaced,
                              cudaStream_t stream);
/* How many elements of each tile aren't zero, and, with the sums of the tiles before, their
 * indices: places [count, n_dims]. */
typedef struct kn__dims {
    int n_dims;
    int64_t dim[KN_DIMS_MAX];
} kn__dims;
int64_t kn__nonzero_sums(int64_t n);
cudaError_t kn__launch_nonzero_count(int64_t *sums, const void *x, kn_dtype dtype, int64_t n,
                                     cudaStream_t stream);
/* x[i] becomes the sum of x[0] … x[i-1]; *total, unless NULL, that of all. */
cudaError_t kn__launch_sums_before(int64_t *x, int64_t n, int64_t *total, cudaStream_t stream);
cudaError_t kn__launch_nonzero(int64_t *places, const int64_t *sums, const void *x, kn_dtype dtype,
                               int64_t n, const kn__dims *d, cudaStream_t stream);

/* --- reduce.cu --- */
typedef struct kn__reduce {
    kn__recipe recipe;
    kn_dtype dtype, out_dtype;
    /* Of x: kept dimensions, whose index is the result's, and reduced ones; strides in x. */
    int n_kept, n_reduced;
    int64_t kept_dim[KN_DIMS_MAX], kept_stride[KN_DIMS_MAX];
    int64_t reduced_dim[KN_DIMS_MAX], reduced_stride[KN_DIMS_MAX];
    int64_t n_out, n_in; /* results; elements that make one result */
    void *out;
    const void *in;
    /* Work space of 8 bytes a value. */
    void *partial; /* n_chunks · n_out; NULL when n_chunks is 1 */
    void *shift;   /* n_out; a given one as f64, the computed ones are written here; or NULL */
    int64_t n_chunks, chunk;
    bool accumulate;
} kn__reduce;
/* How many chunks the reduction is cut into, from its shape alone: results are the same on any GPU.
 */
void kn__reduce_plan(kn__reduce *r);
cudaError_t kn__launch_reduce(const kn__reduce *r, cudaStream_t stream);

/* --- place.cu: x [outer, n, inner] → the first extremes [outer, inner], and where; NaN wins --- */
typedef struct kn__place_args {
    bool max;
    kn_dtype dtype;
    kn__lines lines;
    const void *in;
    int64_t *places; /* NULL: not wanted */
    void *values;    /* NULL: not wanted */
    int64_t n_chunks, chunk;
    void *parts; /* work space of 16 bytes a chunk of a line; NULL when n_chunks is 1 */
} kn__place_args;
/* How many chunks a line is cut into, from its shape alone. */
void kn__place_plan(kn__place_args *p);
cudaError_t kn__launch_place(const kn__place_args *p, cudaStream_t stream);

/* --- scan.cu: along the middle of [outer, n, inner] --- */
typedef struct kn__scan {
    int kind; /* 0: sums, 1: products, 2: y = b + x·y, 3, 4: maxima, minima */
    bool reverse, exclusive;
    kn_dtype dtype;
    kn__lines lines;
    void *out;       /* NULL: not wanted, of extremes */
    int64_t *places; /* likewise; NULL of others */
    const void *in, *b;
    int64_t n_chunks, chunk;
    void *totals; /* work space of 16 bytes a chunk of a line; NULL when n_chunks is 1 */
} kn__scan;
/* How many chunks a line is cut into, from its shape alone. */
void kn__scan_plan(kn__scan *p);
cudaError_t kn__launch_scan(const kn__scan *p, cudaStream_t stream);

/* --- search.cu: places of `count` values, `each` of them in one of the lines of n elements --- */
typedef struct kn__search_args {
    kn_dtype dtype;
    bool right;
    const void *sorted, *values;
    int64_t *places;
    int64_t n, each, count;
} kn__search_args;
cudaError_t kn__launch_search(const kn__search_args *p, cudaStream_t stream);
cudaError_t kn__launch_bin(double lo, double hi, int64_t ranges, bool is_f32, const void *x,
                           int64_t *places, int64_t n, cudaStream_t stream);

/* --- sort.cu: along the middle of [outer, n, inner] --- */
typedef struct kn__sort_args {
    kn_dtype dtype;
    bool descending;
    kn__lines lines;
    int64_t k; /* the first k are stored */
    const void *in;
    void *values;    /* NULL: not wanted */
    int64_t *places; /* NULL: not wanted */
    void *work;      /* kn__sort_bytes */
} kn__sort_args;
size_t kn__sort_bytes(const kn__sort_args *p); /* 0: a block sorts a line */
cudaError_t kn__launch_sort(const kn__sort_args *p, cudaStream_t stream);
/* Elements of `large` [outer, n, inner] at index [outer, k, inner], from `from` to `to`: taken, or
 * put. */
cudaError_t kn__launch_along(void *to, const void *from, const int64_t *index, size_t element_bytes,
                             kn__lines lines, int64_t k, bool put, cudaStream_t stream);

/* --- bias.cu: dx = relu_back(y, g), all [outer, channels, inner], and its sums by channel --- */
typedef struct kn__relu_bias {
    kn_dtype dtype;
    int64_t outer, channels, inner;
    const void *y, *g;
    void *dx, *sums;
    void *partial;           /* n_chunks · channels values; NULL when n_chunks is 1 */
    int64_t n_chunks, chunk; /* of the outer dimension */
    bool accumulate;         /* sums += */
} kn__relu_bias;
/* How many chunks, from the shape alone. */
void kn__relu_bias_plan(kn__relu_bias *p);
/* Writes dx, and into sums or partial. */
cudaError_t kn__launch_relu_bias_back(const kn__relu_bias *p, cudaStream_t stream);

/* --- bias.cu: y [outer, channels, inner] + bias [channels] + residual, then relu, in place --- */
typedef struct kn__bias_act {
    kn_dtype dtype;
    bool relu;
    int64_t n, channels, inner;
    void *y;
    const void *bias, *residual; /* NULL: none */
} kn__bias_act;
cudaError_t kn__launch_bias_act(const kn__bias_act *p, cudaStream_t stream);

/* --- pooling.cu --- */
typedef struct kn__pooling { /* always three spatial dimensions; unused ones are 1, in front */
    kn_dtype dtype;
    int64_t planes;                                                    /* B·C */
    int64_t x[3], y[3], window[3], stride[3], padding[3], dilation[3]; /* stride 0: as in op.h */
    bool skip_nan; /* maxima skip NaN, unless a window has nothing else */
    bool inside;   /* averages divide by the elements of x alone */
    bool sums;     /* averages divide by nothing */
    bool is_tight; /* no padding, no dilation, and every window is inside x */
} kn__pooling;
cudaError_t kn__launch_maxpool(const kn__pooling *p, void *y, uint8_t *offset, const void *x,
                               cudaStream_t stream);
cudaError_t kn__launch_maxpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    const uint8_t *offset, cudaStream_t stream);
cudaError_t kn__launch_maxpool_take(const kn__pooling *p, void *y, const void *x,
                                    const uint8_t *offset, cudaStream_t stream);
cudaError_t kn__launch_avgpool(const kn__pooling *p, void *y, const void *x, cudaStream_t stream);
cudaError_t kn__launch_avgpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    cudaStream_t stream);

/* --- softmax.cu: x [outer, n, inner] along the middle --- */
typedef struct kn__softmax {
    kn_dtype dtype;
    bool log;
    int64_t outer, n, inner;
} kn__softmax;
cudaError_t kn__launch_softmax(const kn__softmax *p, void *y, const void *x, cudaStream_t stream);
cudaError_t kn__launch_softmax_back(const kn__softmax *p, void *dx, const void *y, const void *g,
                                    cudaStream_t stream);

/* --- batchnorm.cu, rownorm.cu: x as [outer, groups, channels, inner] --- */
typedef struct kn__norm {
    kn_dtype dtype;
    int64_t outer, groups, channels, inner;
    double eps, momentum;
    bool by_rstd;  /* batch_eval: running_var is 1/sqrt(variance + eps) */
    bool by_batch; /* statistics are by channel, groups is 1; else by the first two dimensions */
    bool centred;  /* the mean is subtracted */
    const void *x, *g, *weight, *bias; /* g: back alone; weight and bias may be NULL */
    void *y, *mean, *rstd;             /* y: the result, or dx; NULL: not wanted */
    void *running_mean, *running_var, *dweight, *dbias; /* NULL: absent, or not wanted */
    double *parts;           /* work space: [n_chunks][2][groups·channels] */
    double *terms;           /* work space: [4][channels]; by_batch alone */
    int64_t n_chunks, chunk; /* of the outer dimension */
} kn__norm;
/* How many chunks, from the shape alone. */
void kn__norm_plan(kn__norm *p);
/* mean, rstd and the running ones from x, or eval: from the running ones alone, and terms for
 * scale; then y. */
cudaError_t kn__launch_batch_eval(const kn__norm *p, cudaStream_t stream);
cudaError_t kn__launch_batch_moments(const kn__norm *p, cudaStream_t stream);
cudaError_t kn__launch_batch_scale(const kn__norm *p, cudaStream_t stream);
/* dweight, dbias, and terms for back; then dx. The first is for rows too. */
cudaError_t kn__launch_norm_sums(const kn__norm *p, cudaStream_t stream);
cudaError_t kn__launch_batch_back(const kn__norm *p, cudaStream_t stream);
cudaError_t kn__launch_rownorm(const kn__norm *p, cudaStream_t stream);
cudaError_t kn__launch_rownorm_back(const kn__norm *p, cudaStream_t stream);

/* --- loss.cu: scores [rows, classes], labels I64, I32 or U8 --- */
typedef struct kn__loss {
    kn_dtype dtype, label_dtype;
    int64_t rows, classes;
    const void *scores, *labels;
    void *row_loss;   /* work space, one value a row */
    void *out;        /* one value */
    void *dlogits;    /* [rows, classes], or NULL */
    double smoothing; /* cross_entropy */
    int64_t best;     /* accuracy: how many scores count */
} kn__loss;
cudaError_t kn__launch_cross_entropy(const kn__loss *p, cudaStream_t stream);
cudaError_t kn__launch_nll(const kn__loss *p, cudaStream_t stream);
cudaError_t kn__launch_accuracy(const kn__loss *p, cudaStream_t stream);
/* d = -g/rows at the label, else 0; g one value */
cudaError_t kn__launch_nll_back(const kn__loss *p, void *d, const void *g, cudaStream_t stream);

/* --- ctc.cu: x [steps, batch, classes] --- */
typedef struct kn__ctc {
    kn_dtype dtype, index_dtype[3];
    int64_t steps, batch, classes, labels, blank;
    bool zero_infinity;
    const void *x, *index[3]; /* targets [batch, labels]; lengths and targets' lengths, or NULL */
    void *losses, *d;         /* NULL: not wanted; d is zeros */
    double *work;             /* [batch][room] */
    int64_t rows, room;       /* rows of (2·labels + 1) numbers that are kept of the recursion */
} kn__ctc;
cudaError_t kn__launch_ctc(const kn__ctc *p, cudaStream_t stream);

/* --- resize.cu, grid.cu --- */
size_t kn__resize_bytes(const kn__resize *r, bool back); /* of work space */
cudaError_t kn__launch_resize(void *y, const void *x, kn_dtype dtype, int64_t planes,
                              const kn__resize *r, bool back, void *work, cudaStream_t stream);
cudaError_t kn__launch_grid_sample(void *y, const void *x, const void *grid, kn_dtype dtype,
                                   const kn__grid *g, cudaStream_t stream);
/* Results may be NULL. work: for dx, that many bytes. */
size_t kn__grid_back_bytes(const kn__grid *g, kn_dtype dtype);
cudaError_t kn__launch_grid_sample_back(void *dx, void *dgrid, const void *x, const void *grid,
                                        const void *dy, kn_dtype dtype, const kn__grid *g,
                                        void *work, cudaStream_t stream);

/* --- rotary.cu: x [rows, width], row r at step r % steps --- */
typedef struct kn__rotary {
    kn_dtype dtype;
    int64_t rows, steps, width, pairs, offset;
    double base;
    bool adjacent, inverse;
    void *table; /* [steps][2][pairs]: cosines and sines */
} kn__rotary;
cudaError_t kn__launch_rotary_table(const kn__rotary *p, cudaStream_t stream);
cudaError_t kn__launch_rotary(const kn__rotary *p, void *y, const void *x, cudaStream_t stream);

/* --- random.cu: state is {seed, offset} in device memory --- */
cudaError_t kn__launch_rng_take(int64_t *out, int64_t *state, int64_t advance, cudaStream_t stream);
cudaError_t kn__launch_uniform(void *out, kn_dtype dtype, int64_t n, double lo, double hi,
                               const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_normal(void *out, kn_dtype dtype, int64_t n, double mean, double stddev,
                              const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_exponential(void *out, kn_dtype dtype, int64_t n, double rate,
                                   const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_bernoulli(void *out, kn_dtype dtype, int64_t n, double p,
                                 const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_integers(int64_t *out, int64_t n, int64_t lo, uint64_t range,
                                const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_permutation(int64_t *out, int64_t n, const int64_t *state,
                                   cudaStream_t stream);
cudaError_t kn__launch_truncated_normal(void *out, kn_dtype dtype, int64_t n,
                                        const kn__truncated *truncated, const int64_t *state,
                                        cudaStream_t stream);
cudaError_t kn__launch_dropout(void *out, const void *x, kn_dtype dtype, int64_t n, double p,
                               const int64_t *state, cudaStream_t stream);

/* --- linalg.cu: matrices [batch, n, n], or [batch, rows, columns] --- */
/* Below, on and above the diagonal times a weight; 0 gives 0. out may be x. */
cudaError_t kn__launch_tri_scale(void *out, const void *x, kn_dtype dtype, int64_t batch,
                                 int64_t rows, int64_t columns, double below, double on,
                                 double above, cudaStream_t stream);
/* Matrices whose info is not 0 become NaN. elements: of each. */
cudaError_t kn__launch_spoil(void *out, kn_dtype dtype, int64_t batch, int64_t elements,
                             const int *info, cudaStream_t stream);
/* factors (factors.h) with pivots counted from 1 → det, or log|det| and its sign; results may be
 * NULL. */
cudaError_t kn__launch_lu_det(void *det, void *logabs, void *sign, const void *factors,
                              kn_dtype dtype, int64_t batch, int64_t n, cudaStream_t stream);
/* Zeros with ones on the diagonal. */
cudaError_t kn__launch_identity(void *out, kn_dtype dtype, int64_t batch, int64_t n,
                                cudaStream_t stream);

/* --- small.cu: [batch, n, n], n up to KN__SMALL --- */
enum { KN__SMALL = 64 }; /* in f64, and 16 columns of 64, it fits into 48 KiB of shared memory */
/* l: NaNs where a is not positive definite. */
cudaError_t kn__launch_cholesky(void *l, const void *a, kn_dtype dtype, int64_t batch, int64_t n,
                                cudaStream_t stream);
cudaError_t kn__launch_lu(void *factors, const void *a, kn_dtype dtype, int64_t batch, int64_t n,
                          cudaStream_t stream);
/* x and b [batch, n, columns]; b NULL: the identity. */
cudaError_t kn__launch_lu_solve(void *x, const void *b, const void *factors, kn_dtype dtype,
                                int64_t batch, int64_t n, int64_t columns, bool trans,
                                cudaStream_t stream);

/* --- triangular.cu --- */
/* op(T)·x = b in place; x [batch, n, columns]. Fast with `trans`, or up to KN__TRIANGULAR_ROWS
 * rows. */
enum { KN__TRIANGULAR_ROWS = 32 };
typedef struct kn__triangular {
    kn_dtype dtype;
    int64_t batch, n, columns;
    bool trans, upper, unit;
    const void *t;
    void *x;
} kn__triangular;
cudaError_t kn__launch_triangular_solve(const kn__triangular *p, cudaStream_t stream);

/* --- attention.cu: kernel.h has the shapes --- */
typedef struct kn__attention {
    kn_dtype dtype;
    int64_t batch, heads, groups, queries, keys, d, e;
    double scale;
    bool causal;
    int64_t offset;
    const void *q, *k, *v, *mask; /* mask: or NULL */
    int64_t mask_stride[4];       /* 0: broadcast */
    const void *y, *stats, *g;    /* back */
    const void *delta;            /* back: [B,H,T], Σ y·g */
    void *dmask;                  /* back: [B,H,T,S], zeros; or NULL */
    double dropout;
    const int64_t *state; /* of dropout; NULL: none */
    int64_t dropout_row;  /* elements of the random map that a row takes */
} kn__attention;
/* stats may be NULL. */
cudaError_t kn__launch_attention(const kn__attention *p, void *y, void *stats, cudaStream_t stream);
cudaError_t kn__launch_attention_delta(const kn__attention *p, void *delta, cudaStream_t stream);
/* Results may be NULL. */
cudaError_t kn__launch_attention_back(const kn__attention *p, void *dq, void *dk, void *dv,
                                      cudaStream_t stream);

/* --- optim.cu --- */
enum { KN__PARTS_MAX = 512 }; /* of one launch: a table of 22 KB among the kernel's arguments */
typedef enum kn__optim_kind {
    KN__OPTIM_SGD,
    KN__OPTIM_MOMENTUM,
    KN__OPTIM_NESTEROV,
    KN__OPTIM_ADAGRAD,
    KN__OPTIM_RMSPROP,
    KN__OPTIM_ADADELTA,
    KN__OPTIM_ADAM,
    KN__OPTIM_EMA,
    KN__OPTIM_LAMB
} kn__optim_kind;
enum { KN__LAMB_CHUNK = 16384 }; /* elements of a part that a block of LAMB takes at a time */
typedef struct kn__optim {
    kn__optim_kind kind;
    kn_dtype dtype;
    const void *grad;
    void *m, *v;
    double
        *hyper; /* {learning rate, step count, gradient scale, reserved for the kernel's ticket} */
    double momentum, beta1, beta2, eps, weight_decay;
    bool rate_outside; /* of m, as in PyTorch's momentum */
    bool last;         /* of the launches of one step: advances the step count */
    int n_parts;
    void *w[KN__PARTS_MAX];
    int64_t offset[KN__PARTS_MAX];
    int64_t n[KN__PARTS_MAX];
    double rate[KN__PARTS_MAX], decay[KN__PARTS_MAX]; /* times the step's */
    double *sums; /* LAMB: space for 2 of each chunk of KN__LAMB_CHUNK elements */
} kn__optim;
cudaError_t kn__launch_optim(const kn__optim *p, cudaStream_t stream);
/* LAMB: moves m and v, and sums up; kn__launch_optim follows. */
cudaError_t kn__launch_lamb_state(const kn__optim *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
