/* The seam between ops and the kernels of a device: a table of functions, one per op.
 *
 * A kernel gets the call (op.h): inputs whose shapes and dtypes were checked and whose data is
 * plain, results whose headers and memory are there (out[r] is NULL where result r is not wanted).
 * It enqueues its work on call->stream. It never allocates results. It returns KN_OK or a recorded
 * error. Work space comes from kn__work. At least one result has elements; inputs may be empty.
 * A pending input (fuse.h) is computed before; a reduction that reads one by tiles is
 * kn__host_reduce_fused, and no kernel of this table.
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
 * sum prod mean max min sum_abs sum_square max_abs min_abs norm logsumexp count_nonzero any all
 *                 x                   by the recipe of reduce.h, over the axes of attr (mask is 0
 *                                     only for a 0-dim x). out's shape keeps or drops the axes: go
 *                                     by the mask. sum: (acc)
 * nan_sum         x                   the same, of the elements that are not NaN
 * var std         x, mean|NONE        the same; mean: one element a result
 * argmax argmin   x                   I64: the place of the first extreme along the axis, or in all
 *                                     of x; a NaN wins
 * max_index min_index  x              the extreme itself, and its place; either may be unwanted
 * cumsum cumprod  x                   like x; attr scan
 * cummax cummin   x                   the extreme among the elements up to each, like x, and its
 *                                     place, of equals the last, I64; either may be unwanted; once
 *                                     there is a NaN, the last NaN
 * search_sorted   sorted, values      I64: how many elements of sorted are below each value, or not
 *                                     above it (scalars: a = 1); NaN above all
 * bin             x                   I64 like x: 1 … n, which of the ranges between linspace(a, b,
 *                                     n + 1) it lies in, b in the last; 0 below a; n + 1 beyond b,
 *                                     and for NaN; attr make, n = dim[0]
 * recur           a, b                y[i] = b[i] + a[i]·y[i - 1] along the axis; attr scan
 * sort topk       x                   the first k of each line in order, and their places; stable,
 *                                     NaN above all
 * take_along      x, index I64        the elements of x, of attr's shape, at index: as many indices
 *                                     for each line of the axis
 * put_along       g, index I64        zeros of attr's shape with g's elements at index
 * broadcast       x                   (acc) x broadcast to out's shape; any dtype
 * matmul          a, b                (acc) c [...,M,N]; a [...,M,K] or, trans_a, [...,K,M]; one
 *                                     product for each of the leading dimensions, broadcast
 * linear          x, w, b|NONE        y [...,O]; x [...,I], w [O,I], b [O]
 * linear_act      x, w, b|NONE, r|NONE  act.act of linear's y + r; r like y
 * linear_weight_bias  x, g            gᵀ·x [O,I] and g's sum over rows [O]; x [R,I], g [R,O], none
 *                                     empty (both may be added to)
 * kron            a, b                c [M·P,N·Q] of a [M,N], b [P,Q]: kron.h
 * tri_scale       x                   like x: its parts times the weights of attr, 0 where one is 0
 * cholesky        a                   L [...,N,N], zeros above the diagonal; NaN throughout if a is
 *                                     not positive definite
 * triangular_solve  a, b              x like b with op(a)·x = b; a [...,N,N], b [...,N,K]
 * solve           a, b, factors|NONE  x like b with op(a)·x = b; a [...,N,N], b [...,N,K]; factors
 *                                     [...,N+1,N]: factors.h
 * inverse         a, factors|NONE     like a
 * det             a                   [...]; factors
 * slogdet         a                   log|det| [...]; its sign; factors
 * qr              a                   Q [...,M,K], R [...,K,N], K = min(M, N)
 * svd             a                   U [...,M,K]|NULL, s [...,K], Vt [...,K,N]|NULL, both or none
 * eigh            a                   w [...,N] ascending, V [...,N,N]|NULL; reads the lower half
 * conv            x, w, b|NONE        y [B,O,…]; x [B,C,…], w [O,C/groups,…], b [O]
 * conv_act        x, w, b|NONE, r|NONE  attr.act of conv's y + r; r like y
 * conv_data       dy, w               dx [B,C,…]
 * conv_weight     x, dy               (acc) dw [O,C/groups,…]
 * maxpool         x                   y [B,C,…]; offsets U8 like y: the row-major index of the
 *                                     (first) maximum inside its window; NaN wins, but for skip_nan
 * maxpool_back    dy, offsets         dx, 0 where nothing arrives; windows may overlap
 * maxpool_take    x, offsets          y[i] = x[place of offset i]
 * avgpool         x                   y
 * avgpool_back    dy                  dx
 * softmax logsoftmax            x     y like x; axes: 1 << axis
 * softmax_back logsoftmax_back  y, g  dx like y; axes: 1 << axis
 * cross_entropy   logits, labels      0-dim; dlogits [B,C] for g = 1, that is (softmax - onehot)/B;
 *                                     scalars: a = smoothing, the mean's share.
 *                                     logits [B,C], labels [B]; a label out of range makes the
 *                                     loss and its row of dlogits NaN
 * nll             logp, labels        0-dim: the mean of -logp[i,label]
 * nll_back        labels, g (0-dim)   d [B,C]: -g/B at the label, else 0
 * accuracy        scores, labels      0-dim, dtype of scores: the share of rows whose label is
 *                                     among the k largest scores, of equals the first; NaN is the
 *                                     largest; a label out of range makes the result NaN
 * ctc             log_probs, targets, lengths|NONE, target_lengths|NONE
 *                                     losses [B]; the gradient of each, [T,B,C]. log_probs [T,B,C],
 *                                     targets [B,S], lengths [B]; NaN where one is out of range
 * batchnorm       x, running_mean|NONE, running_var|NONE, weight|NONE, bias|NONE   y, mean, rstd:
 *                                     by channel of x [outer,channels,inner]; all others are
 *                                     [channels]; the running ones are written
 * batchnorm_back  g, x, weight|NONE, mean, rstd   dx, dweight, dbias
 * batchnorm_eval  x, running_mean, running_var, weight|NONE, bias|NONE   y
 * layernorm groupnorm  x, weight|NONE, bias|NONE  y, mean [outer·groups], rstd: of x
 *                                     [outer,groups,channels,inner] by its first two; weight
 *                                     [groups·channels]
 * rmsnorm         x, weight|NONE      y, rstd: no mean is subtracted
 * rownorm_back    g, x, weight|NONE, mean|NONE, rstd  dx, dweight, dbias of the three
 * rnn             x, w, h0|NONE, c0|NONE, state I64[2]|NONE
 *                                     y, h_n, c_n; reserve: what rnn_back reads, as each device
 *                                     likes; state: of dropout
 * rnn_back        x|NONE, w, y, reserve, dy|NONE, dh_n|NONE, dc_n|NONE
 *                                     dx, dw, dh0, dc0; x is there where dw is wanted
 * attention       q, k, v, mask|NONE, state|NONE
 *                                     y [B,H,T,E]; stats [B,H,T,2]: the largest of the scaled and
 *                                     masked products of each query, and the sum of e^(product -
 *                                     largest), 0 where all keys are masked. q [B,H,T,D],
 *                                     k [B,G,S,D], v [B,G,S,E], H a multiple of G; mask broadcast
 *                                     to [B,H,T,S]; state I64[2] of dropout: attention.h
 * attention_back  q, k, v, mask|NONE, y, stats, g, state|NONE
 *                                     dq, dk, dv, the gradient of the scores [B,H,T,S]
 * rotary          x [...,T,D]         like x
 * resize          x [B,C,…]           y [B,C,…], by resize.h
 * resize_back     g                   the adjoint of resize
 * grid_sample     x, grid             y [B,C,N,M], by grid.h; x [B,C,H,W], grid [B,N,M,2]
 * grid_sample_back  x, grid, g        dx, dgrid
 * rng_take        state I64[2]        I64[2] = (seed, offset) of state; then state[1] advances
 *                                     by what scalars.a elements take (philox.h)
 * uniform         state I64[2]        make: a = lo, b = hi
 * normal          state I64[2]        make: a = mean, b = stddev
 * exponential     state I64[2]        make: a = rate
 * bernoulli       state I64[2]        make: a = p
 * integers        state I64[2]        I64 in a … b - 1
 * permutation     state I64[2]        I64 [n]: 0 … n - 1
 * truncated_normal  state I64[2]      attr truncated
 * dropout         x, state I64[2]     y like x; scalars: a = p
 * slice           x                   (acc) any dtype; box.start: the first element
 * slice_back      g                   (acc) any dtype; zeros of out's shape with g at box.start
 * transpose       x                   any dtype; out's dimension i is x's dimension axis[i]
 * concat          x[0] … x[n-1]       any dtype; along concat.axis
 * block_diag      x[0] … x[n-1]       any dtype; matrices, zeros beside them
 * cast            x                   from any dtype to out's: toward zero to integers, saturated,
 *                                     NaN to 0; to KN_BOOL: x != 0
 * strided         x                   (acc) any dtype; the part that the attribute describes
 * strided_add     x|NONE, y           (acc) x, or zeros, with y added to the part
 * strided_set     x, y|NONE           any dtype; x with y, or zeros, as the part; out may be x
 * pad             x                   any dtype; attr pad: its value around x
 * pad_edge        x                   any dtype; one axis, by pad.h
 * pad_edge_back   g                   its adjoint
 * roll            x                   any dtype; attr roll
 * triu tril       x                   any dtype; [...,rows,columns]; attr triangle
 * arange linspace (none)              any dtype of numbers; make: a, b
 * index_select gather     x, index    any dtype; attr index: axis. Indices of the axis, negative
 *                                     ones from its end; select: whole slices. Out of range:
 *                                     INVALID on the host, elsewhere NaN or 0
 * index_add scatter_add   x|NONE, index, y  (acc) x, or zeros, with y added at the indices, in the
 *                                     order of y
 * index_set scatter       x, index, y|NONE  any dtype; x with y, or zeros, there; the last one
 *                                     counts; out may be x
 * index_join      index[0] …          I64: Σ index[k]·(sizes after k); concat.size: of each
 * nonzero         x                   I64 [n, n_dims] or fewer rows: the indices of elements that
 *                                     aren't zero, all of them, then zeros; I64 [1]: how many
 * …_step (optimisers)                 grad, m|NONE, v|NONE, hyper (F64[4]); attr optim; writes
 *                                     the parts' w, m, v and hyper; out is hyper. ema_step writes
 *                                     m alone, grad is m
 *
 * (acc) of broadcast, slice and slice_back is for f32 and f64 alone.
 */
#ifndef KN_KERNEL_H
#define KN_KERNEL_H

#include <knet/op.h>

#include "chain.h"
#include "quantile.h"

/* The CUDA kernels live in a module of their own, libknet_ops_cuda.so, loaded when the first tensor
 * lands on a CUDA device: programs without a GPU don't pay for loading cuBLAS and cuDNN. It exports
 * this one function. */
typedef kn_status (*kn__enqueue_fn)(void *ctx, kn_stream stream);
typedef struct kn__cuda_exports {
    uint32_t abi; /* KN_CUDA_MODULE_ABI */
    const kn_kernel_fn *kernels;
    /* Text of the versions of CUDA runtime, cuBLAS and cuDNN for `knet info`. */
    void (*versions)(char *out, size_t out_bytes);
    /* Bytes of the reserve of a call of rnn. */
    kn_status (*rnn_reserve)(size_t *out, const kn_op_call *call);
    /* Whether kernels of chains can be compiled here. */
    bool (*chains)(void);
    /* Launches the chain's kernel on args, whose scalars are all real. Not launched: it is not
     * compiled yet, or can't be; the caller runs the steps one by one. */
    kn_status (*chain)(bool *launched, const kn__chain *chain, kn__chain_args *args,
                       kn_device *device, kn_stream stream);
    /* Waits until all kernels asked for are compiled. */
    void (*chains_wait)(void);
    /* Makes a graph of what `enqueue` enqueues on the stream that it gets. Errors: enqueue's, or
     * the driver's. */
    kn_status (*graph_make)(void **out, kn_device *device, kn__enqueue_fn enqueue, void *ctx);
    kn_status (*graph_launch)(void *graph, kn_device *device, kn_stream stream);
    void (*graph_destroy)(void *graph, kn_device *device); /* its launches continue */
} kn__cuda_exports;
enum { KN_CUDA_MODULE_ABI = 7 };
typedef const kn__cuda_exports *(*kn__cuda_exports_fn)(void);
#define KN_CUDA_MODULE_SYMBOL "kn_cuda_module_get"

/* The loaded module; NULL with the error recorded (not pending) when it can't be loaded. */
const kn__cuda_exports *kn__cuda_module(void);
/* The same if it was loaded before, or NULL without an error. */
const kn__cuda_exports *kn__cuda_module_loaded(void);

/* The host's kernels. NONE is never defined: NULL. */
kn_status kn__host_row1(kn_op_call *call);
kn_status kn__host_row2(kn_op_call *call);
kn_status kn__host_row3(kn_op_call *call);
kn_status kn__host_row1_back(kn_op_call *call);
kn_status kn__host_row2_back(kn_op_call *call);
kn_status kn__host_row3_back(kn_op_call *call);
kn_status kn__host_row_back2(kn_op_call *call);
#define KN_OP(name, in, out, attr, infer, kernel, ...)                                             \
    kn_status kn__host_##kernel(kn_op_call *call);
#include <knet/ops.def>

/* Of images in blocks of channels: conv_layout.h. from_blocks: x is in them; y and the residual
 * always are. frozen: relu may be the library's, whose weights are kept. *taken false: it has
 * nothing fast. */
kn_status kn__host_conv_blocks(bool *taken, kn_op_call *call, bool from_blocks, bool frozen);
kn_status kn__host_pool_blocks(kn_op_call *call, int64_t block);
kn_status kn__host_batchnorm_blocks(kn_op_call *call, int64_t block);

/* Memory for the time of one call, in the order of its stream; kn_op_run frees it. At most
 * KN__WORKS pieces a call. */
enum { KN__WORKS = sizeof(((kn_op_call *)0)->work) / sizeof(void *) };
KN_API kn_status kn__work(void **out, kn_op_call *call, size_t size_bytes);
/* Frees all pieces but the first `keep` ones earlier: for kernels that work in rounds. */
KN_API void kn__work_end(kn_op_call *call, int keep);

/* For kernels that know f32 and f64 alone: runs the kernel on f32 copies of a call's f16 or bf16
 * tensors, and rounds the results. Where it pays, kernels do without: they read 16 bits. */
KN_API kn_status kn__widened(kn_op_call *call, kn_kernel_fn kernel);
/* The sum of linear_weight_bias, by a device's kernel of sums. */
KN_API kn_status kn__linear_bias_back(const kn_op_call *call, kn_kernel_fn reduce);
static inline bool kn__is_half(unsigned dtype) { return dtype == KN_F16 || dtype == KN_BF16; }
/* What COMPUTED inputs and results of a call of this dtype have. */
static inline uint8_t kn__computed(unsigned dtype) {
    return (uint8_t)(kn__is_half(dtype) ? KN_F32 : dtype);
}

/* What truncated_normal's kernels get. */
KN_API kn__truncated kn__truncated_of(const kn_attr_truncated *attr);

/* Host: runs body(ctx, i) for i in 0 … n-1 on up to `threads` threads, in any order. Inside it the
 * libraries' own threading is off. Split the work by shape alone, so that results don't depend on
 * the number of threads. */
typedef void (*kn__body_fn)(void *ctx, int64_t i);
void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx);

#endif
