/* Tensors: opaque, reference counted, row-major and contiguous, at most 8 dimensions.
 *
 * Every tensor that an op returns belongs to the innermost open frame of the thread (frame.h). The
 * end of that frame frees it, unless kn_keep moved it one frame out or a slot holds it. Programs
 * don't free tensors one by one. Using a tensor after its end is an INVALID error that says where
 * the tensor was made, by a function that returns a tensor: its record is reused only after 1,024
 * later tensors have ended.
 *
 *     KN_FRAME();
 *     kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(64, 784));
 *     kn_tensor *y = kn_relu(kn_linear(x, w, b));       // y [64,10]
 *
 * A failed call returns NULL and leaves its error pending (status.h). An absent tensor is KN_NONE,
 * never NULL. 0-dimensional (one element) and empty tensors are legal everywhere. No dtype is
 * promoted silently: see kn_cast. Threads: any number may read a tensor, or one may write it; views
 * of one tensor count as that tensor. Pass other threads tensors that a slot holds, not a frame's.
 */
#ifndef KNET_TENSOR_H
#define KNET_TENSOR_H

#include <knet/device.h>
#include <knet/pool.h>
#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor. */
typedef struct kn_tensor kn_tensor;

/* Types of elements. */
typedef enum kn_dtype {
    KN_F32 = 1,
    KN_F64,
    KN_F16,
    KN_BF16,
    KN_I64,
    KN_I32,
    KN_U8,
    KN_BOOL /* a byte, 0 or 1; other values give undefined results */
} kn_dtype;

enum { KN_DIMS_MAX = 8 };

/* A shape, or a list of axes; passed by value. */
typedef struct kn_shape {
    int64_t dim[KN_DIMS_MAX]; /* the first n_dims count */
    int n_dims;               /* 0 for one element */
} kn_shape;

#ifdef __cplusplus
extern "C++" {
template <typename... N>
constexpr kn_shape kn_shape_of_(N... dim) {
    return {{static_cast<int64_t>(dim)...}, static_cast<int>(sizeof...(dim))};
}
}
/* KN_SHAPE(64, 784); KN_SCALAR has no dimension and one element. */
#define KN_SHAPE(...) kn_shape_of_(__VA_ARGS__)
#define KN_SCALAR kn_shape_of_()
#define KN_ALL                                                                                     \
    kn_shape { {}, -1 }
#else
#define KN_SHAPE(...)                                                                              \
    ((kn_shape){{__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})
#define KN_SCALAR ((kn_shape){{0}, 0}) /* KN_SHAPE() isn't C11 */
#define KN_ALL ((kn_shape){{0}, -1})   /* as axes: all; KN_SHAPE(0, 2) names two, KN_SCALAR none */
#endif

/* Stands for an absent tensor, such as the bias of a layer without one. NULL means "failed". */
extern KN_API kn_tensor *const KN_NONE;

KN_API kn_shape kn_tensor_shape(const kn_tensor *t); /* of NULL or KN_NONE: KN_SCALAR */
KN_API int64_t kn_tensor_numel(const kn_tensor *t);  /* of NULL or KN_NONE: 0 */
/* Type of the elements, and where they are. */
KN_API kn_dtype kn_tensor_dtype(const kn_tensor *t);
KN_API kn_device *kn_tensor_device(const kn_tensor *t);
KN_API const char *kn_dtype_name(kn_dtype dtype); /* "f32" */
KN_API size_t kn_dtype_bytes(kn_dtype dtype);     /* of one element */
/* Writes "[64,3,32,32]", or "a shape of -1 dimensions" where n_dims is not in 0 … 8, and returns
 * out. */
KN_API char *kn_shape_text(char *out, size_t out_bytes, kn_shape shape);

/* Copies `data` (row-major) to the frame's device. */
KN_API kn_tensor *kn_tensor_from(const void *data, kn_dtype dtype, kn_shape shape);
/* Writes `data` (row-major, data_bytes in all: the tensor's size) into t, on the stream that wrote
 * t last, and makes a new version of it. From pinned memory (kn_device_pinned_pool) the call
 * returns at once, and the copy runs beside the device's work: leave `data` alone until an event
 * recorded on the stream afterwards was reached. From other memory the call may wait until `data`
 * can be reused. kn_tensor_from treats memory in the same way. */
KN_API KN_MUST_CHECK kn_status kn_copy_into(kn_tensor *t, const void *data, size_t data_bytes);

/* Copy one element, or all, to the host. They wait for the tensor's stream only. Errors: SHAPE if
 * kn_item's tensor does not have one element, or out_bytes is not the tensor's size. */
KN_API KN_MUST_CHECK kn_status kn_item(double *out, kn_tensor *t);
KN_API KN_MUST_CHECK kn_status kn_copy_out(void *out, size_t out_bytes, kn_tensor *t);

/* The data, contiguous, on the tensor's device; for work on kn_frame_stream(). NULL on failure, and
 * for an empty tensor. kn_data_mut makes a new version: if a gradient rule saved the old one,
 * backward returns an error. Later writes wait, on the device, for what that stream has enqueued by
 * then; call kn_data again for reads after them. */
KN_API const void *kn_data(kn_tensor *t);
KN_API void *kn_data_mut(kn_tensor *t);

/* In frames with .fuse: computes those of the tensors that are put off, now, as far as possible in
 * one pass over their inputs: what the last one reads of the others is not computed twice. For
 * results that are all kept, such as a state and its update. */
KN_API KN_MUST_CHECK kn_status kn_compute(kn_tensor *const t[], int n);

/* Slots hold tensors that outlive frames: members of structs, values carried through a loop,
 * tensors for other threads. A slot starts as NULL. kn_hold puts t into the slot and releases the
 * tensor that was there; if t is NULL it keeps the slot and returns the pending error. kn_unhold
 * empties the slot. */
KN_API KN_MUST_CHECK kn_status kn_hold(kn_tensor **slot, kn_tensor *t);
KN_API void kn_unhold(kn_tensor **slot);
/* A local slot, emptied at the end of the block. */
#define KN_SLOT(name) __attribute__((cleanup(kn_unhold))) kn_tensor *name = NULL

/* kn_keep moves t one frame out and returns it: return kn_keep(y); kn_drop frees it early. Both do
 * nothing if t does not belong to the innermost frame, so they are safe on inputs, on parameters,
 * and twice. */
KN_API kn_tensor *kn_keep(kn_tensor *t);
KN_API void kn_drop(kn_tensor *t);

/* Not for users: kn_located_as, which also notes where the tensor was made. */
KN_API kn_tensor *kn_located(kn_tensor *t, const char *file, int line);
#include <knet/sites/tensor.h>

#ifdef __cplusplus
}
#endif
#endif
