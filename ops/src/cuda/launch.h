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

#ifdef __cplusplus
extern "C" {
#endif

enum { KN__OPERANDS_MAX = 8 }; /* the result, and up to seven inputs */

typedef struct kn__region {
    int64_t n; /* elements */
    int n_dims;
    int64_t dim[KN_DIMS_MAX];
    int64_t stride[KN__OPERANDS_MAX][KN_DIMS_MAX];
} kn__region;

/* --- pointwise.cu, pointwise_back.cu: ops.def's rows and comparisons --- */
typedef enum kn__row_id {
#define KN_ROW1(name, ...) KN__ROW_##name,
#define KN_ROW2(name, ...) KN__ROW_##name,
#define KN_ROW3(name, ...) KN__ROW_##name,
#define KN_COMPARE(name, ...) KN__ROW_##name,
#include <knet/ops.def>
    KN__ROW_COUNT
} kn__row_id;

typedef struct kn__row {
    kn__row_id row;
    int order;                            /* 0: the row, 1: its back, 2: its back2 */
    kn_dtype dtype;                       /* of the operands that aren't BOOL */
    kn__region region;                    /* operand 0: the results, dense; then the inputs */
    void *out[3];                         /* NULL: not wanted */
    const void *in[KN__OPERANDS_MAX - 1]; /* in the call's order; NULL: not read */
    unsigned accumulate;                  /* bit r: out[r] is added to; backs alone */
    double p, q;                          /* the scalars */
    int64_t p_integer, q_integer;         /* for integer dtypes: toward zero, saturated */
} kn__row;
/* cudaErrorNotSupported: the row has no kernel for the dtype. */
cudaError_t kn__launch_row(const kn__row *r, cudaStream_t stream);
cudaError_t kn__launch_row_back(const kn__row *r, cudaStream_t stream); /* order 1 or 2 */

/* --- move.cu: any dtype, by element size --- */
typedef struct kn__copy {
    kn__region region; /* operand 0: out, operand 1: in */
    size_t element_bytes;
    void *out;
    const void *in;
    kn_dtype add; /* KN_F32 or KN_F64: out += in; 0: out = in */
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

/* --- reduce.cu --- */
typedef enum kn__reduce_kind {
    KN__REDUCE_SUM,
    KN__REDUCE_MEAN,
    KN__REDUCE_MAX,
    KN__REDUCE_MIN
} kn__reduce_kind;

typedef struct kn__reduce {
    kn__reduce_kind kind;
    kn_dtype dtype;
    /* Of x: kept dimensions, whose index is the result's, and reduced ones; strides in x. */
    int n_kept, n_reduced;
    int64_t kept_dim[KN_DIMS_MAX], kept_stride[KN_DIMS_MAX];
    int64_t reduced_dim[KN_DIMS_MAX], reduced_stride[KN_DIMS_MAX];
    int64_t n_out, n_in; /* results; elements that make one result */
    void *out;
    const void *in;
    void *partial; /* n_chunks · n_out values; NULL when n_chunks is 1 */
    int64_t n_chunks, chunk;
    bool accumulate;
} kn__reduce;
/* How many chunks the reduction is cut into, from its shape alone: results are the same on any GPU.
 */
void kn__reduce_plan(kn__reduce *r);
cudaError_t kn__launch_reduce(const kn__reduce *r, cudaStream_t stream);
/* x [outer, n, inner] → out I64 [outer, inner]: the first maximum; NaN counts as the largest. */
cudaError_t kn__launch_argmax(int64_t *out, const void *x, kn_dtype dtype, int64_t outer, int64_t n,
                              int64_t inner, cudaStream_t stream);

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

/* --- pooling.cu --- */
typedef struct kn__pooling { /* always three spatial dimensions; unused ones are 1, in front */
    kn_dtype dtype;
    int64_t planes; /* B·C */
    int64_t x[3], y[3], window[3], stride[3], padding[3], dilation[3];
    bool inside;   /* averages divide by the elements of x alone */
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

/* --- loss.cu: scores [rows, classes], labels I64, I32 or U8 --- */
typedef struct kn__loss {
    kn_dtype dtype, label_dtype;
    int64_t rows, classes;
    const void *scores, *labels;
    void *row_loss; /* work space, one value a row */
    void *out;      /* one value */
    void *dlogits;  /* [rows, classes], or NULL */
} kn__loss;
cudaError_t kn__launch_cross_entropy(const kn__loss *p, cudaStream_t stream);
cudaError_t kn__launch_nll(const kn__loss *p, cudaStream_t stream);
cudaError_t kn__launch_accuracy(const kn__loss *p, cudaStream_t stream);
/* d = -g/rows at the label, else 0; g one value */
cudaError_t kn__launch_nll_back(const kn__loss *p, void *d, const void *g, cudaStream_t stream);

/* --- random.cu: state is {seed, offset} in device memory --- */
cudaError_t kn__launch_rng_take(int64_t *out, int64_t *state, int64_t advance, cudaStream_t stream);
cudaError_t kn__launch_uniform(void *out, kn_dtype dtype, int64_t n, double lo, double hi,
                               const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_normal(void *out, kn_dtype dtype, int64_t n, double mean, double stddev,
                              const int64_t *state, cudaStream_t stream);
cudaError_t kn__launch_dropout(void *out, const void *x, kn_dtype dtype, int64_t n, double p,
                               const int64_t *state, cudaStream_t stream);

/* --- optim.cu --- */
enum { KN__PARTS_MAX = 512 }; /* of one launch: a table of 14 KB among the kernel's arguments */
typedef enum kn__optim_kind { KN__OPTIM_SGD, KN__OPTIM_MOMENTUM, KN__OPTIM_ADAM } kn__optim_kind;
typedef struct kn__optim {
    kn__optim_kind kind;
    kn_dtype dtype;
    const void *grad;
    void *m, *v;
    double
        *hyper; /* {learning rate, step count, gradient scale, reserved for the kernel's ticket} */
    double momentum, beta1, beta2, eps, weight_decay;
    bool last; /* of the launches of one step: advances the step count */
    int n_parts;
    void *w[KN__PARTS_MAX];
    int64_t offset[KN__PARTS_MAX];
    int64_t n[KN__PARTS_MAX];
} kn__optim;
cudaError_t kn__launch_optim(const kn__optim *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
