/* Argument checks that all ops share, and their messages; inputs that a result would overwrite. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

const char *kn__name_in_errors(kn_op op) {
    return kn__ops_self && kn__ops_self->as ? kn__ops_self->as[0] : kn_op_name(op);
}

kn_tensor *kn_op_fail(kn_op op, kn_status status, const char *fmt, ...) {
    if (kn_pending()) return NULL;
    char text[1900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kn_fail_null_within_at(NULL, 0, status, "kn_%s: %s", kn__name_in_errors(op), text);
    kn_error_op(kn__name_in_errors(op));
    return NULL;
}

bool kn__reserved_fit(kn_op op, uint32_t unused, const uint64_t reserved[], int n) {
    if (unused) {
        kn_op_fail(op, KN_ERR_INVALID, "unused is not zero");
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!reserved[i]) continue;
        kn_op_fail(op, KN_ERR_INVALID, "reserved[%d] is not zero", i);
        return false;
    }
    return true;
}

bool kn__flag_fit(kn_op op, const char *name, int *flag) {
    if (kn__flag_read(flag)) return true;
    kn_op_fail(op, KN_ERR_INVALID, "%s is %d; it must be 0, 1 or KN_OFF", name, *flag);
    return false;
}

bool kn__act_fits(kn_op op, int act) {
    if (act >= 0 && act < KN_ACTS) return true;
    kn_op_fail(op, KN_ERR_INVALID,
               "act is %d; activations are 0 (KN_ACT_NONE) to %d (KN_ACT_HARDSWISH)", act,
               KN_ACTS - 1);
    return false;
}

const char *kn__name_of_input(char out[KN__INPUT_NAME_BYTES], kn_op op, int i) {
    const char *const *as = kn__ops_self ? kn__ops_self->as : NULL;
    if (as && i < KN__AS_NAMES - 1 && as[1 + i]) return as[1 + i];
    const kn_op_info *info = &kn_op_table[op];
    if (i < info->n_in && !(info->flags & KN_FLAG_MANY)) return info->in_name[i];
    snprintf(out, KN__INPUT_NAME_BYTES, "%s[%d]", info->n_in ? info->in_name[info->n_in - 1] : "in",
             i);
    return out;
}

/* " (x [2,3], w [4,5])" of those that are there; eight at most. */
static void list_inputs(char *out, size_t out_bytes, kn_op op, kn_tensor *const in[], int n_in) {
    size_t at = 0;
    out[0] = 0;
    for (int i = 0, shown = 0; i < n_in && at < out_bytes; i++) {
        if (!in[i] || in[i] == &kn__none) continue;
        if (shown++ == 8) {
            at += (size_t)snprintf(out + at, out_bytes - at, ", …");
            break;
        }
        char name[KN__INPUT_NAME_BYTES], shape[256];
        kn_shape_text(shape, sizeof shape, kn_tensor_shape(in[i]));
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%s %s", at ? ", " : " (",
                               kn__name_of_input(name, op, i), shape);
    }
    if (at && at < out_bytes) snprintf(out + at, out_bytes - at, ")");
}

bool kn_op_call_fail(const kn_op_call *call, kn_status status, const char *fmt, ...) {
    if (kn_pending()) return false;
    char text[800], inputs[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    list_inputs(inputs, sizeof inputs, (kn_op)call->op, call->in, call->n_in);
    kn_op_fail((kn_op)call->op, status, "%s%s", text, inputs);
    return false;
}

/* --- inputs --- */

static bool unreadable(kn_op op, kn_tensor *const in[], int i) {
    if (kn_pending()) return false;
    char name[KN__INPUT_NAME_BYTES], text[64];
    snprintf(text, sizeof text, "kn_%s: %s", kn__name_in_errors(op),
             kn__name_of_input(name, op, i));
    kn_error_defer(kn__fail_unreadable(text, in[i]));
    kn_error_op(kn__name_in_errors(op));
    return false;
}

bool kn__check_readable(kn_op op, kn_tensor *const in[], int n_in) {
    for (int i = 0; i < n_in; i++) {
        if (!kn__is_whole(in[i])) return unreadable(op, in, i);
    }
    return true;
}

static const char *class_text(unsigned mask) {
    switch (mask & KN_CLASS_ANY) {
        case KN_CLASS_REAL:
            return "f32 or f64";
        case KN_CLASS_FLOAT:
            return "floating: f32, f64, f16 or bf16";
        case KN_CLASS_INDEX:
            return "i64, i32 or u8";
        case KN_CLASS_NUMERIC:
            return "a number, not bool";
        case KN_CLASS_BOOL:
            return "bool";
        default:
            return "f64";
    }
}

static unsigned class_of(const kn_op_info *info, int i) {
    return info->in[i < info->n_in ? i : info->n_in - 1];
}

/* Whether input i has a wrong device or dtype; `first` is the first of the call's dtype. */
static bool unfit(const kn_op_call *call, int i, int first) {
    const kn_op_info *info = &kn_op_table[call->op];
    const kn_tensor *t = call->in[i];
    char name[KN__INPUT_NAME_BYTES], other[KN__INPUT_NAME_BYTES];
    const char *it = kn__name_of_input(name, (kn_op)call->op, i);
    if (t->storage->device != call->device) {
        return kn_op_call_fail(call, KN_ERR_DEVICE, "%s is on %s, %s on %s; see kn_to",
                               kn__name_of_input(other, (kn_op)call->op, 0),
                               kn_device_name(call->device), it,
                               kn_device_name(t->storage->device));
    }
    if (!(class_of(info, i) >> t->dtype & 1)) {
        return kn_op_call_fail(call, KN_ERR_DTYPE, "%s is %s; it must be %s", it,
                               kn_dtype_name((kn_dtype)t->dtype), class_text(class_of(info, i)));
    }
    return kn_op_call_fail(call, KN_ERR_DTYPE, "%s is %s, %s is %s; see kn_cast",
                           kn__name_of_input(other, (kn_op)call->op, first),
                           kn_dtype_name((kn_dtype)call->dtype), it,
                           kn_dtype_name((kn_dtype)t->dtype));
}

/* Public functions check inputs before autocast does its casts; after them the frame has none. */
static bool will_be_cast(const kn_op_call *call, unsigned mask, const kn_tensor *t) {
    const unsigned narrow = KN_DTYPE_BIT_(KN_F32) | KN_DTYPE_BIT_(KN_F16) | KN_DTYPE_BIT_(KN_BF16);
    const kn__frame *frame = kn__ops_self ? kn__ops_self->frame : NULL;
    bool is_float = mask & (KN_CLASS_SAME | KN_CLASS_COMPUTED);
    return frame && frame->autocast && !call->given && is_float && (mask >> KN_F32 & 1) &&
           (narrow >> t->dtype & 1) && (narrow >> call->dtype & 1);
}

bool kn__check_inputs(kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    KN_ASSERT(call->n_in == info->n_in || info->flags & KN_FLAG_MANY);
    int first = -1;
    kn_device *device = NULL;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        unsigned mask = class_of(info, i);
        if (t == &kn__none && (mask & KN_CLASS_MAYBE)) continue;
        if (!kn__is_whole(t)) return unreadable((kn_op)call->op, call->in, i);
        if (!device) call->device = device = t->storage->device;
        if (first < 0 && (mask & KN_CLASS_SAME)) {
            call->dtype = t->dtype;
            first = i;
        }
        unsigned wanted = mask & KN_CLASS_SAME       ? call->dtype
                          : mask & KN_CLASS_COMPUTED ? kn__computed(call->dtype)
                                                     : t->dtype;
        bool fits = t->storage->device == device && (mask >> t->dtype & 1) && t->dtype == wanted;
        if (!fits && t->storage->device == device) fits = will_be_cast(call, mask, t);
        if (!fits) return unfit(call, i, first < 0 ? 0 : first);
    }
    return true;
}

/* --- shapes --- */

bool kn__broadcast_shape(kn_shape *out, const kn_tensor *t) {
    kn_shape other = kn_tensor_shape(t);
    const kn_shape *longer = out->n_dims >= other.n_dims ? out : &other,
                   *shorter = longer == out ? &other : out;
    kn_shape shape = *longer;
    int lead = longer->n_dims - shorter->n_dims;
    for (int i = 0; i < shorter->n_dims; i++) {
        int64_t p = longer->dim[lead + i], q = shorter->dim[i];
        if (p != q && p != 1 && q != 1) return false;
        shape.dim[lead + i] = p == 1 ? q : p;
    }
    *out = shape;
    return true;
}

bool kn__spatial_fits(const kn_op_call *call, const char *name, int n) {
    int n_spatial = call->in[0]->n_dims - 2;
    if (n_spatial < 1 || n_spatial > 3)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "x must be [B,C,spatial…] with one to three spatial dimensions");
    if (n == n_spatial) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%s has %d entries, x has %d spatial dimensions",
                           name, n, n_spatial);
}

bool kn__axis(int *out, const kn_op_call *call, const kn_tensor *x, int64_t axis) {
    int64_t i = axis < 0 ? axis + x->n_dims : axis;
    if (i < 0 || i >= x->n_dims) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "there is no axis %lld in %d dimensions",
                               (long long)axis, x->n_dims);
    }
    *out = (int)i;
    return true;
}

bool kn__axes(uint32_t *mask, const kn_op_call *call, const kn_shape *axes) {
    const kn_tensor *x = call->in[0];
    bool all = axes->n_dims == KN_ALL.n_dims;
    *mask = all ? (1u << x->n_dims) - 1 : 0;
    if ((axes->n_dims < 0 && !all) || axes->n_dims > KN_DIMS_MAX) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "axes has %d entries", axes->n_dims);
    }
    for (int i = 0; i < axes->n_dims; i++) {
        int axis = 0;
        if (!kn__axis(&axis, call, x, axes->dim[i])) return false;
        if (*mask >> axis & 1) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d is named twice", axis);
        }
        *mask |= 1u << axis;
    }
    return true;
}

bool kn__has_frame(void) {
    kn__ops_thread *self = kn_pending() ? NULL : kn__ops_thread_get();
    if (!self) return false;
    if (self->frame) return true;
    kn__no_frame();
    kn_error_op(kn__name_in_errors(KN_OP_neg));
    return false;
}

/* --- results that exist: what a call writes may share memory with its inputs --- */

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

/* Whether input i, which lies in t's memory, would be overwritten before it is read. Kernels read
 * an element before they write the one in its place; only the values of a part may lie anywhere. */
static bool is_spoiled(const kn_op_call *call, int i, const kn_tensor *t) {
    const kn_tensor *x = call->in[i];
    if (!kn__is_whole(x) || x->storage != t->storage) return false;
    const char *p = x->data, *q = t->data;
    if (p == q && x->n == t->n) return call->op == KN_OP_strided_set && i == 1;
    return p < q + bytes_of(t) && q < p + bytes_of(x);
}

static kn_tensor *copy_of(kn_tensor *x) {
    kn_tensor *y = kn_tensor_new(x->storage->device, (kn_dtype)x->dtype, kn_tensor_shape(x));
    kn_status status = y ? kn__overwrite(y, x) : KN_OK;
    return status < 0 ? kn_error_defer(status) : y;
}

static kn_status run(kn_op_call *call) { return kn_op_run(call) ? KN_OK : kn_check(); }

static __attribute__((noinline)) kn_status run_on_copies(kn_op_call *call, const kn_tensor *t) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *in[KN_IN_NAMED];
    for (int i = 0; i < call->n_in; i++) {
        in[i] = is_spoiled(call, i, t) ? copy_of(call->in[i]) : call->in[i];
        if (!in[i]) return kn_check();
    }
    call->in = in;
    return run(call);
}

kn_status kn__run_into(kn_op_call *call, kn_tensor *t) {
    KN_ASSERT(call->n_in <= KN_IN_NAMED);
    KN_TRY(kn_check());
    if (!kn__is_whole(t)) {
        char text[64];
        snprintf(text, sizeof text, "kn_%s: the result", kn_op_name((kn_op)call->op));
        return kn__fail_unreadable(text, t);
    }
    call->out[0] = t;
    call->given = 1;
    for (int i = 0; i < call->n_in; i++) {
        if (is_spoiled(call, i, t)) return run_on_copies(call, t);
    }
    return run(call);
}

kn_status kn__overwrite(kn_tensor *x, kn_tensor *y) {
    kn_attr_strided attr = {.n_dims = 1, .dim = {x->n}, .stride = {1}};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_strided, &attr, &y, 1);
    return kn__run_into(&call, x);
}
