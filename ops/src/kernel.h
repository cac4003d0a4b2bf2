/* The seam between ops and the kernels of a device: a table of functions, one per op.
 *
 * A kernel gets the call (op.h): inputs whose shapes and dtypes were checked and whose data is
 * plain, results whose headers and memory are there (out[r] is NULL where result r is not wanted).
 * It enqueues its work on call->stream. It never allocates results. It returns KN_OK or a recorded
 * error. Work space comes from kn__work. At least one result has elements; inputs may be empty.
 * Dtypes are as the op's line in ops.def says; attr is the struct named there. Names are those of
 * in[0], in[1], …; "|NONE": may be KN_NONE. (acc): adds to result 0 when call->accumulate says so.
 *
 * op              in                  out
 * <row>           x, y, w             z: inputs broadcast to its shape; scalars p = a, q = b
 * <row>_back      g, x…, z            (acc) dx_i of z's shape for each wanted i; an input that no
 *                                     derivative reads may be KN_NONE
 * <row>_back2     u…, x…, z           (acc) Σ_i d_ij(u_i) for each wanted j; u_i may be KN_NONE
 * fill            (none)              any dtype; the value is make.a
 * relu_bias_back  y, g                dx = relu_back(y, g); the sum of dx over the axes of attr,
 *                                     which are all but one, dropped (result 1 may be added to)
 * sum mean max min  x                 axes (mask is 0 only for a 0-dim x). out's shape keeps or
 *                                     drops the axes: go by the mask. sum: (acc)
 * argmax          x                   I64; axes: 1 << axis
 * broadcast       x                   (acc) x broadcast to out's shape; any dtype
 * matmul          a, b                (acc) c [...,M,N]; a [...,M,K] or, trans_a, [...,K,M]; one
 *                                     product for each of the leading dimensions
 * linear          x, w, b|NONE        y [...,O]; x [...,I], w [O,I], b [O]
 * conv            x, w, b|NONE        y [B,O,…]; x [B,C,…], w [O,C/groups,…], b [O]
 * conv_data       dy, w               dx [B,C,…]
 * conv_weight     x, dy               (acc) dw [O,C/groups,…]
 * maxpool         x                   y [B,C,…]; offsets U8 like y: the row-major index of the
 *                                     (first) maximum inside its window; NaN wins
 * maxpool_back    dy, offsets         dx, 0 where nothing arrives; windows may overlap
 * maxpool_take    x, offsets          y[i] = x[place of offset i]
 * avgpool         x                   y
 * avgpool_back    dy                  dx
 * softmax logsoftmax            x     y like x; axes: 1 << axis
 * softmax_back logsoftmax_back  y, g  dx like y; axes: 1 << axis
 * cross_entropy   logits, labels      0-dim; dlogits [B,C] for g = 1, that is (softmax - onehot)/B.
 *                                     logits [B,C], labels [B]; a label out of range makes the
 *                                     loss and its row of dlogits NaN
 * nll             logp, labels        0-dim: the mean of -logp[i,label]
 * nll_back        labels, g (0-dim)   d [B,C]: -g/B at the label, else 0
 * accuracy        scores, labels      0-dim, dtype of scores; the first maximum counts
 * rng_take        state I64[2]        I64[2] = (seed, offset) of state; then state[1] advances
 *                                     by what scalars.a elements take (philox.h)
 * uniform         state I64[2]        make: a = lo, b = hi
 * normal          state I64[2]        make: a = mean, b = stddev
 * dropout         x, state I64[2]     y like x; scalars: a = p
 * slice           x                   (acc) any dtype; box.start: the first element
 * slice_back      g                   (acc) any dtype; zeros of out's shape with g at box.start
 * transpose       x                   any dtype; out's dimension i is x's dimension axis[i]
 * concat          x[0] … x[n-1]       any dtype; along concat.axis
 * cast            x                   from any dtype to out's: toward zero to integers, saturated,
 *                                     NaN to 0; to KN_BOOL: x != 0
 * sgd_step momentum_step adam_step    grad, m|NONE, v|NONE, hyper (F64[4]); attr optim; writes
 *                                     the parts' w, m, v and hyper; out is hyper
 *
 * (acc) of any-dtype ops is for f32 and f64 alone.
 */
#ifndef KN_KERNEL_H
#define KN_KERNEL_H

#include <knet/op.h>

/* The CUDA kernels live in a module of their own, libknet_ops_cuda.so, loaded when the first tensor
 * lands on a CUDA device: programs without a GPU don't pay for loading cuBLAS and cuDNN. It exports
 * this one function. */
typedef struct kn_cuda_module {
    uint32_t abi; /* KN_CUDA_MODULE_ABI */
    const kn_kernel_fn *kernels;
    /* Text of the versions of CUDA runtime, cuBLAS and cuDNN for `knet info`. */
    void (*versions)(char *out, size_t out_bytes);
} kn_cuda_module;
enum { KN_CUDA_MODULE_ABI = 3 };
typedef const kn_cuda_module *(*kn_cuda_module_fn)(void);
#define KN_CUDA_MODULE_SYMBOL "kn_cuda_module_get"

/* The loaded module; NULL with the error recorded (not pending) when it can't be loaded. */
const kn_cuda_module *kn__cuda_module(void);

/* The host's kernels. NONE is never defined: NULL. */
kn_status kn__host_row(kn_op_call *call);
kn_status kn__host_row_back(kn_op_call *call);
kn_status kn__host_row_back2(kn_op_call *call);
#define KN_OP(name, in, out, attr, infer, kernel, ...)                                             \
    kn_status kn__host_##kernel(kn_op_call *call);
#include <knet/ops.def>

/* Memory for the time of one call, in the order of its stream; kn_op_run frees it. At most
 * KN__WORKS pieces a call. */
enum { KN__WORKS = sizeof(((kn_op_call *)0)->work) / sizeof(void *) };
KN_API kn_status kn__work(void **out, kn_op_call *call, size_t size_bytes);
/* Frees all pieces but the first `keep` ones earlier: for kernels that work in rounds. */
KN_API void kn__work_end(kn_op_call *call, int keep);

/* Host: runs body(ctx, i) for i in 0 … n-1 on up to `threads` threads, in any order. Inside it the
 * libraries' own threading is off. Split the work by shape alone, so that results don't depend on
 * the number of threads. */
typedef void (*kn__body_fn)(void *ctx, int64_t i);
void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx);

#endif
