/* For those who implement ops and gradient rules: the op table, the tensor's inside, the call, and
 * recording. Used by the libraries of one release with each other; not a stable interface.
 *
 * How a call runs. A public op fills a kn_op_call and calls kn_op_run. That checks the inputs
 * against the op's line in ops.def, lets the op's *infer* function check the rest and give the
 * results their shapes, allocates them, opens the op's scope, runs the device's kernel, and, when
 * the innermost frame records and an input has a gradient edge, hands the call to the recorder.
 *
 *    kn_attr_axes attr = {.mask = 1u << 0};
 *     kn_tensor *sums = KN_CALL(sum, &attr, x);      // what kn_sum(x, KN_SHAPE(0), false) does
 */
#ifndef KNET_OP_H
#define KNET_OP_H

#include <knet/ops.h>
#include <stdatomic.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of a call at most, and inputs that have names of their own: those after them are like the
 * last one (KN_FLAG_MANY). */
enum { KN_OUT_MAX = 4, KN_IN_NAMED = 8 };

/* --- the op table --- */
/* KN_OP_mul, KN_OP_mul_back, KN_OP_mul_back2, … in the order of ops.def: an index into all tables.
 * Numbers change between releases: files and traces hold names. */
typedef enum kn_op {
#define KN_ROW_OPS_(name) KN_OP_##name, KN_OP_##name##_back, KN_OP_##name##_back2,
#define KN_ROW1(name, ...) KN_ROW_OPS_(name)
#define KN_ROW2(name, ...) KN_ROW_OPS_(name)
#define KN_ROW3(name, ...) KN_ROW_OPS_(name)
#define KN_COMPARE(name, ...) KN_OP_##name,
#define KN_COMPARE1(name, ...) KN_OP_##name,
#define KN_OP(name, ...) KN_OP_##name,
#include <knet/ops.def>
    KN_OP_COUNT
} kn_op;

/* "conv"; static storage, so it serves as a scope's label. */
KN_API const char *kn_op_name(kn_op op);
/* Whether the device's table has a kernel for the op (views and copies: true everywhere). */
KN_API bool kn_op_supported(kn_op op, kn_device_kind kind);

/* --- attributes: one struct per family, without padding, so that bytes can be compared --- */
/* The tape copies them. Axes count from 0, masks have bit i for dimension i, sizes, strides and
 * offsets are in elements. Public functions accept negative axes and zeros for defaults; these
 * structs have neither. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
/* linear, kron, inverse and others that have none; the byte is 0. */
typedef struct kn_attr_none {
    char unused;
} kn_attr_none;
/* rows: p, q; dropout: a = p; rng_take: a = elements; cross_entropy: a = smoothing */
typedef struct kn_attr_scalars {
    double a, b;
} kn_attr_scalars;
/* fill: value a; uniform: a … b; normal: mean a, deviation b; exponential: rate a; bernoulli: p a;
 * integers: a … b - 1; arange: first a, step b; linspace: first a, last b; bin: dim[0] ranges */
typedef struct kn_attr_make {
    double a, b;
    int64_t dim[KN_DIMS_MAX]; /* of the result */
    int32_t n_dims, dtype;
} kn_attr_make;
/* Reductions over the axes of a mask. softmax, logsoftmax: `1 << axis` alone; relu_bias_back: the
 * axis of the channels. */
typedef struct kn_attr_axes {
    uint32_t mask;
    uint32_t keep_dims; /* 1: reduced dimensions stay, of size 1 */
} kn_attr_axes;
/* norm: (Σ |x|^p)^(1/p). All attributes of reductions begin like kn_attr_axes. */
typedef struct kn_attr_norm {
    uint32_t mask, keep_dims;
    double p;
} kn_attr_norm;
/* var, std: the sum of squares is divided by the number of elements less the correction: 1 for a
 * sample, 0 for a population. */
typedef struct kn_attr_var {
    uint32_t mask, keep_dims;
    double correction;
} kn_attr_var;
/* cummax, cummin: the mask alone. cumsum, cumprod, recur: y[i] = b[i] + a[i]·y[i - 1],
 * along the one axis of the mask. reverse: from the end; exclusive: y[i] is what the elements
 * before i make. */
typedef struct kn_attr_scan {
    uint32_t mask;
    uint16_t reverse, exclusive;
} kn_attr_scan;
/* sort, topk: the first k elements of each line along the one axis of the mask, and where they
 * were. k: sort: the axis's size; topk: at most that. */
typedef struct kn_attr_sort {
    uint32_t mask, descending;
    int64_t k;
} kn_attr_sort;
/* take_along, put_along: the shape of the tensor that the index points into, and the axis along
 * which it does; a mask of all axes: into the flat tensor. */
typedef struct kn_attr_along {
    int64_t dim[KN_DIMS_MAX];
    uint32_t n_dims, mask;
} kn_attr_along;
/* reshape, broadcast: the shape of the result. */
typedef struct kn_attr_shape {
    int64_t dim[KN_DIMS_MAX], n_dims;
} kn_attr_shape;
/* A block in a larger array, from `start` on. size: slice: the block's; slice_back, which puts a
 * block into zeros: the array's. */
typedef struct kn_attr_box {
    int64_t start[KN_DIMS_MAX], size[KN_DIMS_MAX];
} kn_attr_box;
/* transpose: the result's dimension i is x's dimension axis[i]. */
typedef struct kn_attr_transpose {
    int64_t axis[KN_DIMS_MAX];
} kn_attr_transpose;
/* concat, block_diag, index_join. size: of each input along the axis; block_diag: two of each, rows
 * and columns. Infer fills the sizes in, and gradients cut by them. */
typedef struct kn_attr_concat {
    int64_t axis;
    int64_t size[];
} kn_attr_concat;
/* strided, strided_add, strided_set: the part of a row-major array of dimensions whole[]: element i
 * of the part is the array's start + Σ i[d]·stride[d]. Strides may be negative, and 0. */
typedef struct kn_attr_strided {
    int64_t start, n_dims, n_whole;
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX]; /* of the part; strides in elements */
    int64_t whole[KN_DIMS_MAX];
} kn_attr_strided;
/* pad: elements of one value before and after each dimension; none is negative. */
typedef struct kn_attr_pad {
    double value;
    int64_t before[KN_DIMS_MAX], after[KN_DIMS_MAX];
} kn_attr_pad;
/* pad_edge: along one axis, with what x has there; mode: a kn_pad_mode that isn't constant. */
typedef struct kn_attr_pad_edge {
    int64_t axis, before, after, mode;
} kn_attr_pad_edge;
/* roll: element i moves to i + shift, and those beyond the end to the start; shift: 0 … the axis's
 * size - 1. */
typedef struct kn_attr_roll {
    int64_t axis, shift;
} kn_attr_roll;
/* triu, tril: the elements above or below column - row = diagonal are kept, and those on it. */
typedef struct kn_attr_triangle {
    int64_t diagonal;
} kn_attr_triangle;
/* index_select, gather, scatter and their kin: the axis that the index counts along. dim: of the
 * result, where x is KN_NONE: there it begins as zeros. */
typedef struct kn_attr_index {
    int64_t axis, n_dims, dim[KN_DIMS_MAX];
} kn_attr_index;
/* cast: to this dtype. */
typedef struct kn_attr_cast {
    int32_t dtype;
} kn_attr_cast;
/* to: a copy on another device; its gradient goes back. Both are borrowed. */
typedef struct kn_attr_to {
    kn_device *to, *from;
} kn_attr_to;
/* matmul: c = op(a)·op(b) of the last two dimensions; the others are broadcast. */
typedef struct kn_attr_matmul {
    uint32_t trans_a, trans_b;
} kn_attr_matmul;
/* accuracy: a label among the k largest scores is right. */
typedef struct kn_attr_best {
    int64_t k;
} kn_attr_best;
/* linear_act: the activation, a kn_act. */
typedef struct kn_attr_act {
    int32_t act;
} kn_attr_act;
/* tri_scale: weights by the side of the diagonal; 0 gives 0 whatever the element is. */
typedef struct kn_attr_tri_scale {
    double below, on, above;
} kn_attr_tri_scale;
/* solve, triangular_solve: op(a)·x = b, with the transpose of a or a itself. For triangular_solve
 * alone, else 0: `upper` says which half of a is read, `unit` that its diagonal counts as 1. */
typedef struct kn_attr_solve {
    uint32_t trans;
    uint32_t upper, unit;
} kn_attr_solve;
/* truncated_normal: numbers of N(mean, stddev²) between lo and hi; the shape and dtype are those of
 * the result. */
typedef struct kn_attr_truncated {
    double mean, stddev, lo, hi;
    int64_t dim[KN_DIMS_MAX];
    int32_t n_dims, dtype;
} kn_attr_truncated;
/* conv and its backs, of 1 to 3 spatial dimensions: no zeros that mean something else; entries of
 * dimensions that aren't used are 1 (stride, dilation) and 0 (padding). flip: 1: a true
 * convolution; 0: a cross-correlation. */
typedef struct kn_attr_conv {
    int64_t stride[3], padding[3], padding_end[3], dilation[3], groups;
    int64_t size[3]; /* conv_data: of x; conv_weight: of the window; else 0 */
    int32_t n_spatial, flip;
    int32_t act, unused; /* conv_act: a kn_act; else 0 */
} kn_attr_conv;
/* maxpool, avgpool and their backs: in the same form. inside: 1: an average counts elements of x
 * alone, no padding; 2: sums, no averages. ceil: the last window may begin inside and end outside.
 * skip_nan: maxpool: a NaN counts as less than all numbers. A dimension of S elements with stride 0
 * has no padding and n windows, i from ⌊i·S/n⌋ to ⌈(i + 1)·S/n⌉; `window` is the longest. */
typedef struct kn_attr_pool {
    int64_t window[3], stride[3], padding[3], dilation[3];
    int64_t size[3]; /* maxpool_back, avgpool_back: of x; else n where stride is 0 */
    int32_t n_spatial, inside;
    int32_t ceil;
    int32_t skip_nan;
} kn_attr_pool;
/* batchnorm, layernorm, groupnorm, rmsnorm: x as [outer, groups, channels, inner]. batchnorm:
 * groups is 1, a mean for each channel; the others: a mean for each outer and group. */
typedef struct kn_attr_normalize {
    double eps, momentum; /* momentum: of the running statistics */
    int64_t outer, groups, channels, inner;
    const struct kn_batch_ranks *ranks; /* batchnorm and its back: norm.h; else NULL */
    int64_t by_rstd; /* batchnorm_eval: running_var is 1/√(variance + eps), as batchnorm gives it */
} kn_attr_normalize;
/* rnn and its back: sequence.h explains them; the lengths are those of the batch, in any order. */
typedef struct kn_attr_rnn {
    int64_t mode, input, hidden, layers, directions, skip, steps, batch;
    double dropout;
    int64_t math;      /* a kn_math_mode: of the forward call, as cuDNN's reserve depends on it */
    int64_t n_lengths; /* 0: none, else batch */
    int64_t length[];
} kn_attr_rnn;
/* attention: softmax(scale·q·kᵀ + mask)·v. causal: query i sees keys 0 … i + offset. dropout: the
 * probability; attention.h says which weights the state drops. */
typedef struct kn_attr_attention {
    double scale;
    int64_t causal, offset;
    double dropout;
} kn_attr_attention;
/* rotary: row t is position t + offset; the first n elements of each are turned, in pairs of
 * neighbours (adjacent) or of one half with the other; inverse: back. */
typedef struct kn_attr_rotary {
    double base; /* of the angles: pair i turns by position·base^(-2i/n) */
    int64_t offset, n;
    int32_t adjacent, inverse;
} kn_attr_rotary;
/* resize and its back, of each spatial dimension: resize.h in src says where elements come from. */
typedef struct kn_attr_resize {
    double ratio[3]; /* of sizes, in over out; 0: by the sizes, in integers */
    int64_t in[3], out[3];
    int32_t n_spatial, mode;
} kn_attr_resize;
/* grid_sample: 0 or 1 each, as image.h explains them; align: its align_corners. */
typedef struct kn_attr_grid {
    int32_t nearest, border, align, unused;
} kn_attr_grid;
/* ctc: which class is the blank; zero_infinity: targets that don't fit cost 0, not infinity. */
typedef struct kn_attr_ctc {
    int64_t blank, zero_infinity;
} kn_attr_ctc;
/* nll_back: how many classes the gradient has. */
typedef struct kn_attr_classes {
    int64_t n;
} kn_attr_classes;
/* One parameter of a multi-tensor optimiser step: its n elements are a slice of the flat gradient
 * and state arenas. rate, decay: factors of the step's rate and weight decay. */
typedef struct kn_optim_part {
    kn_tensor *w;
    int64_t offset; /* of the slice */
    int64_t n;
    double rate, decay;
} kn_optim_part;
/* sgd_step … ema_step: all parameters in one call. What a method doesn't use is 0; rate and step
 * count are on the device, so that a captured step sees them change. */
typedef struct kn_attr_optim {
    const kn_optim_part *part;
    int64_t n_parts;
    double momentum, beta1, beta2, eps, weight_decay;
    int64_t rate_outside; /* 1: momentum_step and nesterov_step as PyTorch: m has no rate in it */
} kn_attr_optim;
#pragma GCC diagnostic pop

/* --- the tensor's inside --- */
/* Other layouts than plain are a device's own. A tensor of one is PENDING: its plain data is made
 * when it is first read. BLOCKS: of the host; [B,C,H,W] lies as [B,C/n,H,W,n], n = 16 or 8. */
enum { KN_LAYOUT_PLAIN = 0, KN_LAYOUT_BLOCKS };

/* Data, and what all tensors on it share. It lies in the header of the tensor that made it; that
 * header's memory lives as long as either is used. */
typedef struct kn_storage {
    _Atomic uint32_t refs; /* 2 for each tensor on the data, 1 while the header around it lives */
    uint32_t version;      /* counts writes after the first */
    kn_device *device;
    kn_pool *pool;
    void *data;
    size_t size_bytes;
    /* Of the last writer; a reader on another stream waits for it on the device. */
    kn_stream stream;
    /* pool NULL: the data's owner; else of what a kernel derived from the data and keeps with it,
     * or NULL */
    struct kn_owner *owner;
    struct kn__expr *expr; /* what computes the data that is not there yet; else NULL */
} kn_storage;

/* Data that no pool of ours owns: release_fn is called once, by any thread, after the last use. */
typedef struct kn_owner {
    void (*release_fn)(void *ctx);
    void *ctx;
} kn_owner;

/* What made a tensor, for gradients: a node of a tape (its address | the result's index << 1), or a
 * parameter (its address | 1); 0: no gradient is wanted. */
typedef uintptr_t kn_edge;

/* PENDING: the storage has no data until it is first read (frames with .fuse). FORGOTTEN: only a
 * tape refers to it, which makes its data again when it needs it (frames with .recompute). */
enum {
    KN_TENSOR_LIVE = 0,
    KN_TENSOR_CONSUMED,
    KN_TENSOR_ENDED,
    KN_TENSOR_PENDING,
    KN_TENSOR_FORGOTTEN
};

/* The first 64 bytes are what an op reads and writes of each tensor; all but n, data and storage
 * are set by one copy when a header is made. */
struct kn_tensor {
    _Atomic uint32_t refs;  /* the frame's one, slots, saved values, parameters */
    _Atomic uint32_t holds; /* how many of them are slots */
    /* Its index among the thread's frame-owned tensors; UINT32_MAX: no frame's. */
    uint32_t owned;
    uint8_t dtype, n_dims, layout;
    uint8_t state; /* KN_TENSOR_*: why there is no storage, or no data */
    kn_edge grad;
    const char *file; /* call site, static storage; NULL unknown */
    int32_t line;
    uint16_t again_refs; /* of refs: nodes of the tape, which can make the data again */
    bool is_kept : 1;    /* a rule of the tape will read the data */
    bool of_input : 1;   /* a view of an input of a captured step: made inside it */
    uint8_t spent;       /* the tape that `grad` led to was consumed */
    int64_t n;           /* elements */
    /* The first element; not for direct use where layout may not be plain: kn_op_data. */
    void *data;
    kn_storage *storage;
    int64_t dim[KN_DIMS_MAX];
    kn_storage own;
};

/* What keeps t from being read, to follow its name in a message: "is NULL", "was consumed by
 * kn_backward or …"; NULL if t can be read. Detects a tensor that ended until its record is
 * reused: see tensor.h. */
KN_API const char *kn_tensor_problem(const kn_tensor *t);
/* Adds a reference; returns t. Each needs one release; the last one frees the data
 * in the order of its stream. NULL and KN_NONE: nothing happens. */
KN_API kn_tensor *kn_tensor_retain(kn_tensor *t);
KN_API void kn_tensor_release(kn_tensor *t);
/* A new tensor of the innermost frame on `device`, contents undefined. NULL: pending OOM error,
 * naming the shape. */
KN_API kn_tensor *kn_tensor_new(kn_device *device, kn_dtype dtype, kn_shape shape);
/* A tensor of the innermost frame on data that `owner` frees (none: release_fn NULL). The data is
 * row-major, aligned to its elements, and ready for work on the frame's stream. NULL: the error is
 * pending, and the data still the caller's. */
KN_API kn_tensor *kn_tensor_adopt(kn_device *device, kn_dtype dtype, kn_shape shape, void *data,
                                  kn_owner owner);
/* A view of n elements of t's storage from element `offset`; of the innermost frame; no gradient
 * edge. */
KN_API kn_tensor *kn_tensor_view(kn_tensor *t, kn_shape shape, int64_t offset);
/* The same tensor value under a new header: for kn_watch, and for results that become constants. */
KN_API kn_tensor *kn_tensor_alias(kn_tensor *t);
/* Takes t from its frame: the caller owns the reference now (parameters, optimiser state, saved
 * gradients). */
KN_API kn_tensor *kn_tensor_detach_frame(kn_tensor *t);
/* Gives the storage back early; reading t afterwards is an error that says so. For kn_backward. */
KN_API void kn_tensor_consume(kn_tensor *t);
/* Gives t, whose data a tape forgot, that of `from`, which is the same. Errors are recorded. */
KN_API KN_MUST_CHECK kn_status kn_tensor_restore(kn_tensor *t, kn_tensor *from);
/* Computes t if that was put off. For those who read t->data. Errors are recorded, not pending. */
KN_API KN_MUST_CHECK kn_status kn_tensor_compute(kn_tensor *t);
/* The plain data for reading or writing by kernels; forces layout and waits for other streams'
 * writers. NULL: pending. */
KN_API void *kn_op_data(kn_tensor *t);
/* Whether only the holder of this reference can read t or its data. */
static inline bool kn_tensor_is_unshared(const kn_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 && t->storage == &t->own &&
           atomic_load_explicit(&t->own.refs, memory_order_acquire) == 3;
}

/* The same, but results that are put off may read the data: a write computes them first. The answer
 * doesn't depend on what is put off. */
KN_API bool kn_tensor_is_held_once(const kn_tensor *t);

/* --- a call: what ops fill, infer completes, kernels read and the tape records --- */
/* It lies on the caller's stack and is hot as a whole: each call writes it and reads it at once.
 * kn_op_call_init sets what a call of one wanted result needs, and leaves the other fields
 * as they are. */
typedef struct kn_op_call {
    uint16_t op;
    uint16_t n_in;
    uint8_t n_out;
    uint8_t want;       /* bit r: result r is wanted */
    uint8_t given;      /* bit r: out[r] exists already and is written into */
    uint8_t accumulate; /* bit r: adds to the tensor in out[r] (given, and ops marked ACC) */
    uint8_t dtype;      /* the one that FLOAT, REAL, NUMERIC and ANY inputs share; 0: none has */
    uint8_t loose;      /* results belong to the caller, to no frame; inputs are not checked */
    uint8_t flat;       /* rows: no operand is broadcast; infer sets it, kernel and tape read it */
    uint8_t is_view;    /* infer made the results on an input's data: no kernel runs */
    uint8_t n_work;
    uint8_t math;         /* kn_math_mode: CUDA's products and convolutions of f32 */
    int threads;          /* host kernels: how many to use; results must not depend on it */
    kn_tensor *const *in; /* KN_NONE where absent */
    void *attr;           /* infer normalises it in place */
    size_t attr_bytes;    /* 0: the table's; more for attributes that end in an array */
    const kn_edge *edge;  /* of the inputs, instead of their own; NULL: their own */
    kn_device *device;    /* of the inputs; ops without inputs: NULL is the frame's */
    kn_pool *pool;
    kn_stream stream;
    kn_tensor *out[KN_OUT_MAX];
    void *work[4]; /* of kn__work */
} kn_op_call;

/* Checks what the table can't, normalises attr, and makes the results' headers by kn__like,
 * kn__shaped or kn__view. False: the error is pending. */
typedef bool (*kn_infer_fn)(kn_op_call *call);
/* Enqueues the work on call->stream. Inputs are checked and plain. At least one result has
 * elements; inputs may be empty. Returns KN_OK or a recorded error. */
typedef kn_status (*kn_kernel_fn)(kn_op_call *call);

/* Runs a call. Returns the first wanted result, all are in call->out; or NULL with the error
 * pending. */
KN_API kn_tensor *kn_op_run(kn_op_call *call);
/* Whether a call with these inputs would be recorded: the frame records, and one of them has a
 * gradient edge. */
KN_API bool kn_op_recording(kn_tensor *const in[], int n_in);
/* Fails the op: an error with the op's name, pending; returns NULL. `fmt` should show the shapes.
 */
KN_API kn_tensor *kn_op_fail(kn_op op, kn_status status, const char *fmt, ...) KN_PRINTF(3, 4);
/* The same for a call, with the names and shapes of its inputs at the end; returns false. */
KN_API bool kn_op_call_fail(const kn_op_call *call, kn_status status, const char *fmt, ...)
    KN_PRINTF(3, 4);

/* Sets what kn_op_run reads, and nothing else: a call of one wanted result. */
static inline void kn_op_call_init(kn_op_call *call, kn_op op, void *attr, kn_tensor *const in[],
                                   int n_in) {
    call->op = (uint16_t)op;
    call->n_in = (uint16_t)n_in;
    call->want = 1;
    call->given = call->accumulate = call->loose = call->flat = call->is_view = call->n_work = 0;
    call->dtype = 0;
    call->in = in;
    call->attr = attr;
    call->attr_bytes = 0;
    call->edge = NULL;
    call->device = NULL;
}
static inline kn_tensor *kn_op_call_run(kn_op op, void *attr, kn_tensor *const in[], int n_in) {
    kn_op_call call;
    kn_op_call_init(&call, op, attr, in, n_in);
    return kn_op_run(&call);
}
#ifndef __cplusplus
#define KN_LIST_(...) ((kn_tensor *const[]){__VA_ARGS__})
#define KN_LIST_SIZE_(...) (int)(sizeof(KN_LIST_(__VA_ARGS__)) / sizeof(kn_tensor *))
/* KN_CALL(matmul, &attr, a, b): runs a call with one result. */
#define KN_CALL(name, attr, ...)                                                                   \
    kn_op_call_run(KN_OP_##name, attr, KN_LIST_(__VA_ARGS__), KN_LIST_SIZE_(__VA_ARGS__))
#endif

/* --- what a line of ops.def says --- */
#define KN_DTYPE_BIT_(dtype) (1u << (dtype))
enum { /* what an input may be: dtypes, and three bits more */
       KN_CLASS_REAL = KN_DTYPE_BIT_(KN_F32) | KN_DTYPE_BIT_(KN_F64),
       KN_CLASS_FLOAT = KN_CLASS_REAL | KN_DTYPE_BIT_(KN_F16) | KN_DTYPE_BIT_(KN_BF16),
       KN_CLASS_INDEX = KN_DTYPE_BIT_(KN_I64) | KN_DTYPE_BIT_(KN_I32) | KN_DTYPE_BIT_(KN_U8),
       KN_CLASS_NUMERIC = KN_CLASS_FLOAT | KN_CLASS_INDEX,
       KN_CLASS_BOOL = KN_DTYPE_BIT_(KN_BOOL),
       KN_CLASS_ANY = KN_CLASS_NUMERIC | KN_CLASS_BOOL,
       KN_CLASS_COMPUTED = 1 << 13, /* f32 where the call's dtype has 16 bits, else the call's */
       KN_CLASS_SAME = 1 << 14,     /* of the call's dtype */
       KN_CLASS_MAYBE = 1 << 15     /* may be KN_NONE */
};
enum {
    KN_FLAG_0 = 0,
    KN_FLAG_ACC = 1,   /* its kernels can add to result 0 (rows' backs: to every result) */
    KN_FLAG_MANY = 2,  /* any number of inputs, all like the one of its line */
    KN_FLAG_LOW = 8,   /* a product: takes 16-bit inputs in frames with .autocast */
    KN_FLAG_WIDE = 16, /* a sum: takes f32 inputs there */
    /* kernels of f32 and f64 alone: 16-bit inputs are cast to f32 and, in frames without .autocast,
     * results back; the casts are recorded */
    KN_FLAG_F32 = 32,
    KN_FLAG_LOSS = 4, /* as kn_backward's loss its rule takes KN_NONE for a gradient of one */
    /* result 0 is cheap to compute again, from its saved inputs alone. All pointwise rows are */
    KN_FLAG_AGAIN = 64,
    KN_FLAG_ONCE = 128 /* its gradient can't be differentiated again: an UNSUPPORTED error */
};
/* A result's dtype: one of kn_dtype, the call's, or f32 where that has 16 bits. */
enum { KN_OUT_T = 0, KN_OUT_COMPUTED = 255 };

typedef struct kn_op_info { /* 128 bytes: two cache lines, the first one hot */
    const char *name;
    const char *const *labels; /* rows' backs: the scope's label by the mask of wanted results */
    kn_infer_fn infer;
    kn_kernel_fn host;
    uint8_t n_in, n_out, flags;
    uint8_t row; /* inputs of a pointwise row, also in its backs; 0: no row */
    uint16_t attr_bytes;
    uint16_t uniform; /* the class, when all inputs are required and of it: the quick check */
    uint8_t out[KN_OUT_MAX];
    uint8_t out_needs; /* results that a gradient reads: made when the call is recorded */
    uint8_t order;     /* rows: 0 forward, 1 back, 2 back2 */
    uint16_t in[KN_IN_NAMED];
    const char *in_name[KN_IN_NAMED];
} kn_op_info __attribute__((aligned(128)));
extern KN_API const kn_op_info kn_op_table[KN_OP_COUNT];

/* What gradients read: bits 0 … 7: inputs, 8 … 11: results. */
enum {
    KN_NEED_OUT = 8,
    KN_NEED_ZERO = 1 << 12, /* rows: the derivative is zero everywhere */
    KN_NEED_PASS = 1 << 13  /* rows: it is the incoming gradient itself */
};
typedef struct kn_op_needs {
    uint16_t first[KN_IN_NAMED]; /* the gradient of each input; the last one serves all after it */
    uint16_t second[3][3];       /* rows */
    uint8_t n_first;
} kn_op_needs;
extern KN_API const kn_op_needs kn_op_needs_table[KN_OP_COUNT];

/* --- recording: autograd attaches itself when its library loads --- */
typedef struct kn_recorder {
    /* A differentiable call finished; `tape` is the frame's. Copies the fields it needs; saves by
     * kn_tensor_retain. */
    kn_status (*record)(void *tape, const kn_op_call *call);
    /* The tape's frame ends. */
    void (*tape_end)(void *tape);
    /* A tensor with a gradient edge is being freed. */
    void (*grad_release)(kn_tensor *t);
} kn_recorder;
KN_API void kn_recorder_attach(const kn_recorder *recorder);
/* Opens a frame whose results are recorded on `tape`. Errors as kn_frame_begin; INVALID when a tape
 * is open already. */
KN_API kn_frame kn_frame_begin_tape(const kn_frame_options *options, void *tape);
KN_API void *kn_frame_tape(void); /* the open tape of this thread, or NULL */
/* For backward's temporaries: releases what the innermost frame owns beyond `mark`. */
KN_API uint32_t kn_frame_mark(void);
/* Whether the innermost frame puts pointwise results off. */
KN_API bool kn_frame_fuses(void);
/* Whether it puts the results of this call off, with dtype and device. */
KN_API bool kn_op_waits(const kn_op_call *call);
/* Whether backward computes results of so many bytes again, where it can. */
KN_API bool kn_frame_recomputes(size_t size_bytes);
KN_API void kn_frame_release_to(uint32_t mark);

/* --- captured steps (capture.h): what else a replay does --- */
typedef struct kn_capture_effect {
    /* At its place among a replay's kernels, on a GPU after them: changes the host's state. */
    void (*apply)(void *ctx);
    void (*release)(void *ctx); /* when the plan goes */
    /* After the kernel of a replay failed, of the last applied effect of an object; NULL: it left
     * nothing half done. */
    void (*undo)(void *ctx);
    /* Whether the state that `of` has is as it was when the step was recorded; NULL: it doesn't
     * matter. Else the plan can't be replayed. Asked of an object's first effect. */
    bool (*fits)(const void *ctx);
    const void *of;
    void *ctx;
} kn_capture_effect;
/* Whether this thread records a step. */
KN_API bool kn_capture_records(void);
/* Adds an effect to the plan that is recorded, which takes ctx; NULL: there was no memory for it.
 * Without memory kn_capture_end fails. */
KN_API void kn_capture_effect_add(kn_capture_effect effect);
/* How many results of this thread were left in another layout than the plain one (.layout of
 * frames) so far. Those of captured steps never are. */
KN_API uint64_t kn_layout_calls(void);

/* --- calls that gradient rules, optimisers and tests make --- */
/* A tensor of `like`'s device, dtype and shape, filled with one value. INVALID if it is NULL. */
KN_API kn_tensor *kn_filled_like(const kn_tensor *like, double value);
/* Sum over the axes in `mask`. */
KN_API kn_tensor *kn_sum_mask(kn_tensor *x, uint32_t mask, bool keep_dims);
/* The elements below, on and above the diagonal of each matrix times a weight; a weight of 0 gives
 * 0 whatever the element is. x [...,M,N]. */
KN_API kn_tensor *kn_tri_scale(kn_tensor *x, double below, double on, double above);
/* x += y, in place: a new version of x. */
KN_API KN_MUST_CHECK kn_status kn_add_into(kn_tensor *x, kn_tensor *y);
/* The state the next random op of `n` elements uses: I64[2] (seed, offset) on the frame's device;
 * advances rng. */
KN_API kn_tensor *kn_rng_take(kn_rng *rng, kn_device *device, int64_t n);
/* Who sees each draw of its thread before rng advances; those of `outer` see it too. An error of fn
 * is the draw's. */
typedef struct kn_draw_watch {
    kn_status (*fn)(struct kn_draw_watch *watch, kn_rng *rng);
    struct kn_draw_watch *outer;
} kn_draw_watch;
/* Sets the thread's watch, NULL for none, and gives the one before. */
KN_API kn_draw_watch *kn_draw_watch_set(kn_draw_watch *watch);
/* Another owner of rng: kn_rng_destroy gives one up, and the last one frees it. */
KN_API kn_rng *kn_rng_retain(kn_rng *rng);
/* One fused optimiser step over all parts, in place. grad: the flat arena; m, v: flat state
 * (KN_NONE where unused); hyper: F64[4] on the device: learning rate, step count (the kernel adds 1
 * first), gradient scale, reserved. */
KN_API KN_MUST_CHECK kn_status kn_optim_run(kn_op op, const kn_attr_optim *attr, kn_tensor *grad,
                                            kn_tensor *m, kn_tensor *v, kn_tensor *hyper);

#ifdef __cplusplus
}
#endif
#endif
