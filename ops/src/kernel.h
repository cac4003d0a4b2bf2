/* The seam between ops and the kernels of a device: a table of functions, one per op.
 *
 * A kernel gets tensors whose shapes and dtypes were checked and whose data is plain (unless its
 * device set a layout), and enqueues its work on `stream`. It never allocates results. It returns
 * KN_OK or a recorded error. Scratch memory comes from kn__scratch. Empty tensors (n == 0) never
 * reach a kernel, except as inputs of reductions (sum, mean) and concat. All dtypes of a call are
 * equal, f32 or f64, where nothing else is said; attr is the named struct of op.h. Names after
 * "in" are those of in[0], in[1], …; "|NONE": may be KN_NONE.
 *
 * op              in                  out; aux; attr
 * <unary>         x                   y like x
 * <unary>_back    s, g                dx like g; s is x or y as ops.def says
 * <binary>        a, b                z: a and b broadcast to out's shape
 * <compare>       a, b                the same, KN_BOOL
 * where           c (KN_BOOL), a, b   all three broadcast to out's shape
 * affine          x                   scalars: a·x + b
 * pow_scalar      x                   scalars: x^a
 * fill            (none)              any dtype; scalars: a. Also into a given out
 * add_into        y                   out is x, given: x += y, one shape
 * relu_bias_back  y, g                dx = relu_back(y, g); aux, given: the sum of dx over the axes
 *                                     of attr, all but one, dropped; may accumulate into aux
 * sum mean max min  x                 axes (mask is 0 only for a 0-dim x). out's shape keeps or
 *                                     drops the axes: go by the mask. sum may accumulate. x may
 *                                     be empty (sum, mean)
 * argmax          x                   KN_I64; axes: 1 << axis
 * broadcast       x                   x broadcast to out's shape; any dtype
 * matmul          a, b                c [M,N]; matmul; a [M,K] or, trans_a, [K,M]; may accumulate
 * linear          x, w, b|NONE        y [...,O]; x [...,I], w [O,I], b [O]
 * conv            x, w, b|NONE        y [B,O,…]; conv; x [B,C,…], w [O,C/groups,…], b [O]
 * conv_data       dy, w               dx [B,C,…]; conv
 * conv_weight     x, dy               dw [O,C/groups,…]; conv; may accumulate
 * maxpool         x                   y [B,C,…]; pool; aux when wanted: KN_U8 like y, the row-major
 *                                     index of the (first) maximum inside its window; NaN wins
 * maxpool_back    dy, offsets (U8)    dx, 0 where nothing arrives; windows may overlap; pool
 * maxpool_take    x, offsets (U8)     y[i] = x[place of offset i]; pool
 * avgpool         x                   y; pool
 * avgpool_back    dy                  dx; pool
 * softmax logsoftmax            x     y like x; axes: 1 << axis
 * softmax_back logsoftmax_back  y, g  dx like y; axes: 1 << axis
 * cross_entropy   logits, labels      out 0-dim; aux when wanted: dlogits [B,C] for g = 1, that is
 *                                     (softmax - onehot)/B. logits [B,C], labels [B] I64, I32, U8;
 *                                     a label out of range makes out and its row of aux NaN
 * nll             logp, labels        out 0-dim: the mean of -logp[i,label]
 * nll_back        labels, g (0-dim)   d [B,C]: -g/B at the label, else 0
 * accuracy        scores, labels      out 0-dim, dtype of scores; the first maximum counts
 * rng_take        state I64[2]        out I64[2] = (seed, offset) of state; then state[1] advances
 *                                     by what scalars.a elements take (philox.h)
 * uniform         state I64[2]        out; scalars: a = lo, b = hi
 * normal          state I64[2]        out; scalars: a = mean, b = stddev
 * dropout         x, state I64[2]     y like x; scalars: a = p
 * slice           x                   any dtype; move: start, stop (normalised)
 * slice_back      g                   any dtype; zeros of out's shape with g at start; move; f32
 *                                     and f64 may accumulate
 * transpose       x                   any dtype; move: out's dimension i is x's start[i]
 * concat          x[0] … x[n-1]       any dtype; move: axis in start[0]
 * cast            x                   from any dtype to out's: toward zero to integers, saturated,
 *                                     NaN to 0; to KN_BOOL: x != 0
 * sgd_step momentum_step adam_step    grad, m|NONE, v|NONE, hyper (F64[4]); attr optim; writes
 *                                     the parts' w, m, v and hyper; out is hyper
 */
#ifndef KN_KERNEL_H
#define KN_KERNEL_H

#include <knet/op.h>

typedef struct kn_kernel_call {
    kn_op op;
    int n_in;
    kn_tensor *const *in; /* KN_NONE where absent */
    kn_tensor *out, *aux; /* aux NULL when not wanted */
    const void *attr;
    bool accumulate; /* out += result; relu_bias_back: aux += result */
    kn_device *device;
    kn_stream stream;
    int threads;       /* host kernels: how many to use; results must not depend on it */
    kn_math_mode math; /* CUDA's products and convolutions of f32: precision that is allowed */
} kn_kernel_call;

typedef kn_status (*kn_kernel_fn)(const kn_kernel_call *call);

extern const kn_kernel_fn kn__host_kernels[KN_OP_COUNT];

/* The CUDA kernels live in a module of their own, libknet_ops_cuda.so, loaded when the first tensor
 * lands on a CUDA device: programs without a GPU don't pay for loading cuBLAS and cuDNN. It exports
 * this one function. */
typedef struct kn_cuda_module {
    uint32_t abi; /* KN_CUDA_MODULE_ABI */
    const kn_kernel_fn *kernels;
    /* Text of the versions of CUDA runtime, cuBLAS and cuDNN for `knet info`. */
    void (*versions)(char *out, size_t out_bytes);
} kn_cuda_module;
enum { KN_CUDA_MODULE_ABI = 2 };
typedef const kn_cuda_module *(*kn_cuda_module_fn)(void);
#define KN_CUDA_MODULE_SYMBOL "kn_cuda_module_get"

/* The loaded module; NULL with the error recorded (not pending) when it can't be loaded. */
const kn_cuda_module *kn__cuda_module(void);

/* Scratch for the time of one call, from the pool of `device`, in the order of the stream. */
KN_API kn_status kn__scratch(void **out, const kn_kernel_call *call, size_t size_bytes);
KN_API void kn__scratch_end(const kn_kernel_call *call, void *ptr);

/* Host: runs body(ctx, i) for i in 0 … n-1 on up to `threads` threads, in any order. Inside it the
 * libraries' own threading is off. Split the work by shape alone, so that results don't depend on
 * the number of threads. */
typedef void (*kn__body_fn)(void *ctx, int64_t i);
void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx);

#endif
