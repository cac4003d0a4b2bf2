/* For those who implement ops and gradient rules: the op table, the tensor's inside, recording, and
 * the ops that only gradient rules call. Used by the libraries of one release with each other; not
 * a stable interface.
 *
 * How a call runs: a public op checks its arguments, works out shape and dtype of the result, and
 * calls kn_op_run. That opens the op's scope, allocates the result, runs the device's kernel, and,
 * when the innermost frame records and an input has a gradient reference, hands the call to the
 * recorder.
 */
#ifndef KNET_OP_H
#define KNET_OP_H

#include <knet/ops.h>
#include <stdatomic.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the op table --- */
typedef enum kn_op {
#define KN_UNARY(name, formula, saves, gradient) KN_OP_##name, KN_OP_##name##_back,
#define KN_BINARY(name, formula) KN_OP_##name,
#define KN_COMPARE(name, formula) KN_OP_##name,
#define KN_KERNEL(name, host, cuda) KN_OP_##name,
#include <knet/ops.def>
    KN_OP_COUNT
} kn_op;

KN_API const char *kn_op_name(
    kn_op op); /* "conv"; static storage, so it serves as a scope's label */
/* Whether the device's table has a kernel for the op (views and copies: true everywhere). */
KN_API bool kn_op_supported(kn_op op, kn_device_kind kind);

/* --- attributes: one struct per family; ops without any pass NULL --- */
typedef struct kn_attr_scalars { /* affine: scale, shift; pow_scalar: a; fill: a; dropout: a = p;
                                    uniform: lo, hi; */
    double a, b;                 /* normal: mean, stddev */
} kn_attr_scalars;
typedef struct kn_attr_axes { /* reductions; argmax, softmax and logsoftmax use bit `1 << axis`
                                 alone */
    uint32_t mask;            /* bit i: dimension i */
    bool keep_dims;
} kn_attr_axes;
typedef struct kn_attr_matmul { /* c = op(a)·op(b) */
    bool trans_a, trans_b;
} kn_attr_matmul;
typedef struct kn_attr_conv { /* normalised: no zeros that mean something else; unused spatial
                                 entries 1, 0, 1 */
    int64_t stride[3], padding[3], dilation[3], groups;
    int n_spatial;
    bool flip;
} kn_attr_conv;
typedef struct kn_attr_pool {
    int64_t window[3], stride[3];
    int n_spatial;
} kn_attr_pool;
typedef struct kn_attr_move { /* slice, slice_back: start, stop; transpose: start = axes; concat:
                                 axis in start[0] */
    int64_t start[KN_DIMS_MAX], stop[KN_DIMS_MAX];
} kn_attr_move;
typedef struct kn_optim_part { /* one parameter of a multi-tensor optimiser step */
    kn_tensor *w;
    int64_t offset; /* of its slice in the flat gradient and state arenas, elements */
    int64_t n;
} kn_optim_part;
typedef struct kn_attr_optim {
    const kn_optim_part *part;
    int n_parts;
    double momentum, beta1, beta2, eps, weight_decay;
} kn_attr_optim;

/* --- the tensor's inside --- */
enum {
    KN_LAYOUT_PLAIN = 0
}; /* other layouts are a device's own; kn_data and most kernels want plain */

typedef struct kn_storage {
    _Atomic uint32_t refs;
    uint32_t version; /* counts writes after the first */
    kn_device *device;
    kn_pool *pool;
    void *data;
    size_t size_bytes;
    kn_stream
        stream; /* of the last writer; a reader on another stream waits for it on the device */
} kn_storage;

enum { KN_TENSOR_LIVE = 0, KN_TENSOR_CONSUMED, KN_TENSOR_ENDED };

struct kn_tensor {
    _Atomic uint32_t refs;  /* the frame's one, slots, saved values, parameters */
    _Atomic uint32_t holds; /* how many of them are slots */
    uint32_t owned; /* index among the thread's frame-owned tensors; UINT32_MAX: no frame's */
    uint8_t dtype, n_dims, layout;
    uint8_t state; /* KN_TENSOR_*: why there is no storage */
    int64_t dim[KN_DIMS_MAX];
    int64_t n; /* elements */
    kn_storage *storage;
    void
        *data; /* first element; not for direct use where layout may not be plain: see kn_op_data */
    void *grad; /* gradient reference: the tape's node or the parameter; autograd's; NULL: none
                   wanted */
    const char *file; /* call site, static storage; NULL unknown */
    int line;
    uint32_t grad_kind; /* autograd's: what `grad` points to */
};

/* What keeps t from being read, to follow its name in a message: "is NULL", "was consumed by
 * kn_backward; …"; NULL if t can be read. Detects a tensor that ended until its record is
 * reused: see tensor.h. */
KN_API const char *kn_tensor_problem(const kn_tensor *t);
KN_API kn_tensor *kn_tensor_retain(kn_tensor *t);
KN_API void kn_tensor_release(kn_tensor *t);
/* A new tensor of the innermost frame on `device`, contents undefined. NULL: pending OOM error,
 * naming the shape. */
KN_API kn_tensor *kn_tensor_new(kn_device *device, kn_dtype dtype, kn_shape shape);
/* A view of n elements of t's storage from element `offset`; of the innermost frame; no gradient
 * reference. */
KN_API kn_tensor *kn_tensor_view(kn_tensor *t, kn_shape shape, int64_t offset);
/* The same tensor value under a new header: for kn_watch, and for results that become constants. */
KN_API kn_tensor *kn_tensor_alias(kn_tensor *t);
/* Takes t from its frame: the caller owns the reference now (parameters, optimiser state, saved
 * gradients). */
KN_API kn_tensor *kn_tensor_detach_frame(kn_tensor *t);
/* Gives the storage back early; reading t afterwards is an error that says so. For kn_backward. */
KN_API void kn_tensor_consume(kn_tensor *t);
/* The plain data for reading or writing by kernels; forces layout and waits for other streams'
 * writers. NULL: pending. */
KN_API void *kn_op_data(kn_tensor *t);

/* --- running --- */
enum { KN_OP_INPUTS_MAX = 64 }; /* concat's; the others have at most 5 */

typedef struct kn_op_call {
    kn_op op;
    int n_in;
    kn_tensor *const *in; /* KN_NONE where absent */
    kn_tensor *out; /* NULL: kn_op_run makes it of `device`, `dtype`, `shape`; else written into */
    kn_tensor *aux; /* second result some ops make for their gradient: max-pool offsets (U8),
                       dlogits; given to relu_bias_back, which writes into it */
    const void *attr;
    size_t attr_bytes;
    kn_dtype dtype;
    kn_shape shape;
    kn_device *device; /* NULL: that of in[0] */
    bool accumulate;   /* with `out`: out += result, for ops that support it (matmul, linear's and
                          conv_weight's, sum, slice_back of f32 and f64) */
    bool
        want_aux; /* make aux, of aux_dtype and aux_shape; set by ops that need it when recording */
    kn_dtype aux_dtype;
    kn_shape aux_shape;
} kn_op_call;

/* Runs the kernel, in a scope named after the op; records when the frame records and an input wants
 * a gradient. Returns call->out, or NULL with the error pending. */
KN_API kn_tensor *kn_op_run(kn_op_call *call);
/* Whether a call with these inputs would be recorded: the frame records, and one of them has a
 * gradient reference. */
KN_API bool kn_op_recording(kn_tensor *const in[], int n_in);
/* Fails the op: an error with the op's name, pending; returns NULL. `fmt` should show the shapes.
 */
KN_API kn_tensor *kn_op_fail(kn_op op, kn_status status, const char *fmt, ...) KN_PRINTF(3, 4);

/* --- recording: autograd attaches itself when its library loads --- */
typedef struct kn_recorder {
    /* A differentiable call finished; `tape` is the frame's. Copies what it needs; saves by
     * kn_tensor_retain. */
    kn_status (*record)(void *tape, const kn_op_call *call);
    /* The tape's frame ends. */
    void (*tape_end)(void *tape);
    /* A tensor with a gradient reference is being freed. */
    void (*grad_release)(kn_tensor *t);
} kn_recorder;
KN_API void kn_recorder_attach(const kn_recorder *recorder);
/* Opens a frame whose results are recorded on `tape`. Errors as kn_frame_begin; INVALID when a tape
 * is open already. */
KN_API kn_frame kn_frame_begin_tape(const kn_frame_options *options, void *tape);
KN_API void *kn_frame_tape(void);     /* the open tape of this thread, or NULL */
KN_API bool kn_frame_recording(void); /* false under .record = KN_OFF and without a tape */
/* For backward's temporaries: releases what the innermost frame owns beyond `mark`. */
KN_API uint32_t kn_frame_mark(void);
KN_API void kn_frame_release_to(uint32_t mark);

/* --- ops that gradient rules call; each is differentiable where its own rule says so --- */
/* op_back of a unary op: s is x or y, as ops.def says; g is dy. */
KN_API kn_tensor *kn_unary_back(kn_op back_op, kn_tensor *s, kn_tensor *g);
/* The gradient of y = relu(x + b), b along dimension `axis` of x: returns dx, and writes db, or
 * adds to it. Not differentiable again. */
KN_API kn_tensor *kn_relu_bias_back(kn_tensor *y, kn_tensor *g, int axis, kn_tensor *db,
                                    bool accumulate);
/* c [M,N] = op(a)·op(b). `into`: NULL, or a tensor to which the product is added and which is
 * returned. */
KN_API kn_tensor *kn_matmul_trans(kn_tensor *a, kn_tensor *b, bool trans_a, bool trans_b,
                                  kn_tensor *into);
/* The gradient of conv for its input [B,C,…] (shape given) and for its weight; both are trilinear
 * like conv itself. */
KN_API kn_tensor *kn_conv_data(kn_tensor *dy, kn_tensor *w, kn_shape x_shape,
                               const kn_attr_conv *attr);
KN_API kn_tensor *kn_conv_weight(kn_tensor *x, kn_tensor *dy, kn_shape w_shape,
                                 const kn_attr_conv *attr, kn_tensor *into);
KN_API kn_tensor *kn_conv_attr(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_attr_conv *attr);
/* offsets: U8 index of the maximum in its window, as kn_maxpool's aux. take is back's adjoint. */
KN_API kn_tensor *kn_maxpool_back(kn_tensor *dy, kn_tensor *offsets, kn_shape x_shape,
                                  const kn_attr_pool *attr);
KN_API kn_tensor *kn_maxpool_take(kn_tensor *x, kn_tensor *offsets, kn_shape y_shape,
                                  const kn_attr_pool *attr);
KN_API kn_tensor *kn_avgpool_attr(kn_tensor *x, const kn_attr_pool *attr);
KN_API kn_tensor *kn_avgpool_back(kn_tensor *dy, kn_shape x_shape, const kn_attr_pool *attr);
/* y: softmax or logsoftmax's result, g: dy */
KN_API kn_tensor *kn_softmax_back(kn_tensor *y, kn_tensor *g, int axis);
KN_API kn_tensor *kn_logsoftmax_back(kn_tensor *y, kn_tensor *g, int axis);
/* d[b,c] = -g/B where c is the label of row b, else 0; g 0-dimensional */
KN_API kn_tensor *kn_nll_back(kn_tensor *labels, kn_tensor *g, kn_shape shape);
/* sum with a destination: into += result; into may be NULL. Axes as a mask. */
KN_API kn_tensor *kn_sum_mask(kn_tensor *x, uint32_t mask, bool keep_dims, kn_tensor *into);
/* Zeros of `shape` with g at [start, start + g's shape). */
KN_API kn_tensor *kn_slice_back(kn_tensor *g, kn_shape start, kn_shape shape);
/* x += y, in place: a new version of x. */
KN_API KN_MUST_CHECK kn_status kn_add_into(kn_tensor *x, kn_tensor *y);
KN_API KN_MUST_CHECK kn_status kn_fill_into(kn_tensor *x, double value);
/* The state the next random op of `n` elements uses: I64[2] (seed, offset) on the frame's device;
 * advances rng. */
KN_API kn_tensor *kn_rng_take(kn_rng *rng, kn_device *device, int64_t n);
/* dropout with a state of kn_rng_take: its own adjoint. */
KN_API kn_tensor *kn_dropout_state(kn_tensor *x, double p, kn_tensor *state);
/* One fused optimiser step over all parts, in place. grad: the flat arena; m, v: flat state
 * (KN_NONE where unused); hyper: F64[4] on the device: learning rate, step count (the kernel adds 1
 * first), gradient scale, reserved. */
KN_API KN_MUST_CHECK kn_status kn_optim_run(kn_op op, const kn_attr_optim *attr, kn_tensor *grad,
                                            kn_tensor *m, kn_tensor *v, kn_tensor *hyper);

#ifdef __cplusplus
}
#endif
#endif
