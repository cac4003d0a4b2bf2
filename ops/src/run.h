/* Running an op: place, streams, the device's kernels, and the errors of ops. */
#ifndef KN_RUN_H
#define KN_RUN_H

#include <knet/op_act.h>

#include "checked.h"
#include "kernel.h"
#include "thread.h"

/* The pool and stream for new tensors of a device: the innermost frame's where the device is the
 * frame's. On failure the error is pending. */
kn_status kn__place(kn_pool **pool, kn_stream *stream, kn__ops_thread *self, kn_device *device);
/* Makes `stream` wait, on the device, for the last writer of s. */
kn_status kn__await_writer(kn__ops_thread *self, const kn_storage *s, kn_stream stream);
/* Tells the pool of s, whose block is another stream's, that `stream` uses it. */
kn_status kn__use(kn__ops_thread *self, const kn_storage *s, kn_stream stream);
/* Makes `stream`, which is going to write, wait on the device for readers on other streams. */
kn_status kn__await_readers(kn__ops_thread *self, const kn_storage *s, kn_stream stream);
/* For writing into a tensor that exists: the last writer and all readers come first, the stream is
 * the new writer's, and the version counts on. */
kn_status kn__claim(kn__ops_thread *self, kn_storage *s, kn_stream stream);
/* The device's kernel; NULL with the error recorded when it has none. Not for the host. */
kn_kernel_fn kn__device_kernel(const kn_device *device, kn_op op);

/* The label of the call's scope. */
const char *kn__label_of(const kn_op_call *call);

/* --- names in errors --- */

/* KN__AS("outer", "a", "b"); at the start of a public function that is made of ops: until its end
 * their errors have its name, and call their first inputs by these names. Without names of inputs
 * those are the ops'. Of functions in each other the outermost counts. */
enum { KN__AS_NAMES = 5 };
#define KN__AS(...)                                                                                \
    const char *const kn__as_here[KN__AS_NAMES] = {__VA_ARGS__};                                   \
    KN_AT_EXIT(kn__as_end, bool) = kn__as_begin(kn__as_here)
static inline bool kn__as_begin(const char *const as[KN__AS_NAMES]) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || self->as) return false;
    self->as = as;
    return true;
}
static inline void kn__as_end(const bool *is_outermost) {
    if (*is_outermost) kn__ops_self->as = NULL;
}
/* The op's name in errors. */
const char *kn__name_in_errors(kn_op op);
/* Of its input i. Room for KN__INPUT_NAME_BYTES is for those that are counted. */
enum { KN__INPUT_NAME_BYTES = 32 };
const char *kn__name_of_input(char out[KN__INPUT_NAME_BYTES], kn_op op, int i);

/* --- argument checks --- */

/* Every input against its class in the table: it can be read, has a dtype of the class, the call's
 * where the class says so, and is on the device of the others. Sets call->dtype and call->device.
 * Otherwise false, and an error is pending. */
bool kn__check_inputs(kn_op_call *call);
/* The same without dtypes: what public functions check before they look at shapes to fill attr. */
bool kn__check_readable(kn_op op, kn_tensor *const in[], int n_in);
/* Whether the fields of options that have no meaning yet are zero; else an error is pending. */
bool kn__reserved_fit(kn_op op, uint32_t unused, const uint64_t reserved[], int n);
/* A flag of options: KN_OFF becomes 0; true for that, 0 and 1. */
static inline bool kn__flag_read(int *flag) {
    if (*flag == KN_OFF) *flag = 0;
    return *flag == 0 || *flag == 1;
}
/* The same; on false an INVALID error with the field's name and value is pending. */
bool kn__flag_fit(kn_op op, const char *name, int *flag);
/* Whether act is a kn_act; else an INVALID error is pending. */
bool kn__act_fits(kn_op op, int act);
/* Between the two, pointwise ops and slices are pending: what reads them computes them by tiles.
 * kn__fuse_end takes what kn__fuse_begin returned. */
bool kn__fuse_begin(void);
void kn__fuse_end(bool before);
/* Σ a·b over the axes of the mask. On the host the products are not stored: the sum makes them. */
kn_tensor *kn__sum_of_products(kn_tensor *a, kn_tensor *b, uint32_t mask);
/* Whether x is [B,C,spatial…] with one to three spatial dimensions, and the argument `name` has n
 * entries, as many; else a SHAPE error is pending. */
bool kn__spatial_fits(const kn_op_call *call, const char *name, int n);
/* INVALID: "NAME [2,3] (file:line) has ended …", of a tensor that can't be read. */
kn_status kn__fail_unreadable(const char *name, const kn_tensor *t);
/* The largest finite number of a float dtype. */
double kn__largest(kn_dtype dtype);
/* NumPy's rule; false when the shapes don't fit. */
bool kn__broadcast_shape(kn_shape *out, const kn_tensor *t);
/* Whether x can be broadcast to the shape. */
bool kn__broadcasts_to(const kn_tensor *x, const kn_shape *shape);
static inline bool kn__same_shape(const kn_tensor *a, const kn_tensor *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}
/* Negative axes count from the end; false, with the error pending, when there is no such axis. */
bool kn__axis(int *out, const kn_op_call *call, const kn_tensor *x, int64_t axis);
/* The axes of the first input as bits; false, with the error pending, when the list is wrong. */
bool kn__axes(uint32_t *mask, const kn_op_call *call, const kn_shape *axes);
/* The two, for functions that `op` stands for in messages: they check x as well. */
bool kn__axis_of(int *axis, kn_op op, kn_tensor *x);
bool kn__axes_of(uint32_t *mask, kn_op op, kn_tensor *x, const kn_shape *axes);
/* SHAPE, and INVALID, with x's shape; an x that can't be read is the error instead. Return NULL. */
void *kn__fail_shapes(kn_op op, kn_tensor *x, const char *fmt, ...) KN_PRINTF(3, 4);
void *kn__fail_invalid(kn_op op, kn_tensor *x, const char *fmt, ...) KN_PRINTF(3, 4);

/* --- for infer: the header of result r, if it is wanted; false: the error is pending --- */
bool kn__like(kn_op_call *call, int r, const kn_tensor *x);
bool kn__shaped(kn_op_call *call, int r, int n_dims, const int64_t dim[]);
/* A view of x's data from element `offset`. */
bool kn__view(kn_op_call *call, int r, kn_tensor *x, int n_dims, const int64_t dim[],
              int64_t offset);

/* --- calls --- */

/* Whether a frame is open, for the result of a function that opens one of its own, and no error is
 * pending; else one is. The end of a thread's outermost frame would clear it. */
bool kn__has_frame(void);
/* Opens such a frame, after KN__AS. The function returns kn__given(y): y moves to the frame around
 * it, and the other tensors end with the inner frame. */
#define KN__FRAME_INSIDE(...)                                                                      \
    if (!kn__has_frame()) return NULL;                                                             \
    KN_FRAME(__VA_ARGS__)
static inline kn_tensor *kn__given(kn_tensor *y) { return y ? kn_keep(y) : NULL; }

/* x as the result of an op that leaves it as it is: an alias, so that dropping it leaves x alone.
 */
kn_tensor *kn__op_same(kn_tensor *x);
/* The same for ops whose results never share x's data: a copy. */
kn_tensor *kn__op_copy(kn_tensor *x);
/* A 0-dimensional constant of x's dtype and device; NULL where x is. */
kn_tensor *kn__constant_like(const kn_tensor *x, double value);
/* Of this dtype and shape, on x's device. */
kn_tensor *kn__filled(const kn_tensor *x, double value, kn_dtype dtype, kn_shape shape);
/* A tensor of these numbers, which an op reads: replays of a captured step read it too. */
kn_tensor *kn__constant_from(kn_device *device, const void *data, kn_dtype dtype, kn_shape shape);
/* The terms of a loss, joined. NULL where they are. */
kn_tensor *kn__loss_reduced(kn_tensor *terms, kn_reduction how);
/* kn_op_run in a frame with .autocast: first casts the inputs as the op wants them. */
kn_tensor *kn__autocast_run(kn__ops_thread *self, kn_op_call *call);
/* Of a checked call of 16-bit inputs, whose op has F32 among its flags. */
kn_tensor *kn__f32_run(kn_op_call *call);
/* The same two, in table.c: for run.c, which the functions themselves call. */
extern kn_tensor *(*const kn__run_autocast)(kn__ops_thread *self, kn_op_call *call);
extern kn_tensor *(*const kn__run_f32)(kn_op_call *call);
/* y, which is computed in f32, in the 16 bits of x outside of frames with .autocast. NULL where y
 * is.
 */
kn_tensor *kn__narrowed(kn_tensor *y, const kn_tensor *x);
/* Runs a call that writes into its own argument t. Inputs that overlap t in another place are
 * copied first. */
kn_status kn__run_into(kn_op_call *call, kn_tensor *t);
/* x gets the values of y, which is like it. */
kn_status kn__overwrite(kn_tensor *x, kn_tensor *y);
/* For rows: kn_op_run with infer inlined and the number of inputs known. */
kn_tensor *kn__row1(kn_op op, kn_tensor *x, kn_attr_scalars *attr);
kn_tensor *kn__row2(kn_op op, kn_tensor *x, kn_tensor *y, kn_attr_scalars *attr);
kn_tensor *kn__row3(kn_op op, kn_tensor *x, kn_tensor *y, kn_tensor *w, kn_attr_scalars *attr);
/* An activation as an op of its own; KN_ACT_NONE: x. */
static inline kn_tensor *kn__act_apart(kn_tensor *x, kn_act act) {
    return act == KN_ACT_NONE ? x : kn__row1(kn_act_op(act), x, NULL);
}
#define KN_OP(name, in, out, attr, infer, ...) bool kn__infer_##infer(kn_op_call *call);
#include <knet/ops.def>
/* Of ops.def's rows: one shape, or broadcast; kn__infer_row_back for their backs. */
bool kn__infer_row(kn_op_call *call);
bool kn__infer_row_back(kn_op_call *call);

#endif
