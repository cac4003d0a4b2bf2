/* Running an op: place, streams, the device's kernels, and how ops say what was wrong. */
#ifndef KN_RUN_H
#define KN_RUN_H

#include "kernel.h"
#include "thread.h"

/* The pool and stream for new tensors of a device: the innermost frame's where the device is the
 * frame's. On failure the error is pending. */
kn_status kn__place(kn_pool **pool, kn_stream *stream, kn__ops_thread *self, kn_device *device);
/* Makes `stream` wait, on the device, for the last writer of s. */
kn_status kn__await_writer(kn__ops_thread *self, const kn_storage *s, kn_stream stream);
/* For writing into a tensor that exists: the last writer comes first, the stream is the new
 * writer's, and the version counts on. */
kn_status kn__claim(kn__ops_thread *self, kn_storage *s, kn_stream stream);
/* The device's table; NULL with the error recorded when it can't be loaded. */
const kn_kernel_fn *kn__device_kernels(const kn_device *device);

/* --- argument checks; `names` are the inputs' names, such as "x w b" --- */

/* Whether the call may go on: every input can be read, and all are on one device.
 * KN_NONE is fine where bit i of `optional` is set. Otherwise false, and an error is pending. */
bool kn__inputs_check(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      unsigned optional);
/* The same, and all dtypes are equal, f32 or f64. */
bool kn__floats_check(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      unsigned optional);
/* Fails the op, with "(x [2,3], w [4])" of its inputs at the end of the message. Returns NULL. */
void *kn__fail_inputs(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      kn_status status, const char *fmt, ...) KN_PRINTF(6, 7);
/* INVALID: "NAME [2,3] (file:line) has ended …", of a tensor that can't be read. */
kn_status kn__fail_unreadable(const char *name, const kn_tensor *t);
/* NumPy's rule; false when the shapes don't fit. */
bool kn__broadcast_shape(kn_shape *out, const kn_shape *a, const kn_shape *b);
bool kn__shape_equal(const kn_shape *a, const kn_shape *b);
static inline bool kn__same_shape(const kn_tensor *a, const kn_tensor *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}
/* Negative axes count from the end; false, with the error pending, when there is no such axis. */
bool kn__axis(int *out, kn_op op, kn_tensor *x, int64_t axis);

/* Sets all but attributes and shapes, whose 150 bytes would cost more to clear than a small op's
 * work. */
static inline void kn__call_init(kn_op_call *call, kn_op op, kn_tensor *const in[], int n_in,
                                 kn_dtype dtype) {
    call->op = op;
    call->n_in = n_in;
    call->in = in;
    call->out = call->aux = NULL;
    call->attr = NULL;
    call->attr_bytes = 0;
    call->dtype = dtype;
    call->device = NULL;
    call->accumulate = call->want_aux = false;
}

static inline void kn__shape_copy(kn_shape *shape, const kn_tensor *t) {
    shape->n_dims = t->n_dims;
    __builtin_memcpy(shape->dim, t->dim, sizeof shape->dim);
}

/* x as the result of an op that leaves it as it is: an alias, so that dropping it leaves x alone.
 */
kn_tensor *kn__op_same(kn_tensor *x);
/* A view as the result of an op: made and recorded, without scope or kernel. */
kn_tensor *kn__op_view(kn_op op, kn_tensor *x, kn_shape shape, int64_t offset, const void *attr,
                       size_t attr_bytes);

#endif
