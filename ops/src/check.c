/* Argument checks that all ops share, and their messages. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

kn_tensor *kn_op_fail(kn_op op, kn_status status, const char *fmt, ...) {
    if (kn_pending()) return NULL;
    char text[1900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kn_fail_null_at(NULL, 0, status, "kn_%s: %s", kn_op_name(op), text);
    kn_error_op(kn_op_name(op));
    return NULL;
}

/* The i-th of the space-separated names; the last one serves for all that follow. */
static int name_of(char *out, size_t out_bytes, const char *names, int i) {
    const char *at = names;
    for (const char *next; i > 0 && (next = strchr(at, ' ')); i--) at = next + 1;
    int n = (int)strcspn(at, " ");
    return i > 0 ? snprintf(out, out_bytes, "%.*s[%d]", n, at, i)
                 : snprintf(out, out_bytes, "%.*s", n, at);
}

static size_t list_inputs(char *out, size_t out_bytes, const char *names, kn_tensor *const in[],
                          int n_in) {
    size_t at = 0;
    int shown = n_in > 8 ? 8 : n_in;
    for (int i = 0; i < shown; i++) {
        char name[32], shape[256] = "KN_NONE";
        name_of(name, sizeof name, names, i);
        if (in[i] != &kn__none) kn_shape_text(shape, sizeof shape, kn_tensor_shape(in[i]));
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%s %s", i ? ", " : " (", name, shape);
        if (at >= out_bytes) return out_bytes - 1;
    }
    at += (size_t)snprintf(out + at, out_bytes - at, n_in > shown ? ", …)" : ")");
    return at;
}

void *kn__fail_inputs(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      kn_status status, const char *fmt, ...) {
    if (kn_pending()) return NULL;
    char text[800], inputs[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    list_inputs(inputs, sizeof inputs, names, in, n_in);
    return kn_op_fail(op, status, "%s%s", text, inputs);
}

static bool missing(kn_op op, const char *names, kn_tensor *const in[], int i) {
    if (kn_pending()) return false;
    char name[32], text[64];
    name_of(name, sizeof name, names, i);
    snprintf(text, sizeof text, "kn_%s: %s", kn_op_name(op), name);
    kn_error_defer(kn__fail_unreadable(text, in[i]));
    kn_error_op(kn_op_name(op));
    return false;
}

bool kn__inputs_check(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      unsigned optional) {
    const kn_device *device = NULL;
    for (int i = 0; i < n_in; i++) {
        if (in[i] == &kn__none && i < 32 && (optional >> i & 1)) continue;
        if (!kn__is_whole(in[i])) return missing(op, names, in, i);
        if (!device) device = in[i]->storage->device;
        if (in[i]->storage->device == device) continue;
        char name[32], first[32];
        name_of(first, sizeof first, names, 0);
        name_of(name, sizeof name, names, i);
        kn__fail_inputs(op, names, in, n_in, KN_ERR_DEVICE, "%s is on %s, %s on %s; see kn_to",
                        first, kn_device_name(device), name,
                        kn_device_name(in[i]->storage->device));
        return false;
    }
    return true;
}

bool kn__floats_check(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                      unsigned optional) {
    if (!kn__inputs_check(op, names, in, n_in, optional)) return false;
    kn_dtype dtype = (kn_dtype)in[0]->dtype;
    if (dtype != KN_F32 && dtype != KN_F64) {
        char name[32];
        name_of(name, sizeof name, names, 0);
        kn__fail_inputs(op, names, in, n_in, KN_ERR_DTYPE, "%s is %s; it must be f32 or f64", name,
                        kn_dtype_name(dtype));
        return false;
    }
    for (int i = 1; i < n_in; i++) {
        if (in[i] == &kn__none || in[i]->dtype == dtype) continue;
        char name[32], first[32];
        name_of(first, sizeof first, names, 0);
        name_of(name, sizeof name, names, i);
        kn__fail_inputs(op, names, in, n_in, KN_ERR_DTYPE, "%s is %s, %s is %s; see kn_cast", first,
                        kn_dtype_name(dtype), name, kn_dtype_name((kn_dtype)in[i]->dtype));
        return false;
    }
    return true;
}

bool kn__shape_equal(const kn_shape *a, const kn_shape *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

bool kn__broadcast_shape(kn_shape *out, const kn_shape *a, const kn_shape *b) {
    const kn_shape *longer = a->n_dims >= b->n_dims ? a : b, *shorter = longer == a ? b : a;
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

bool kn__axis(int *out, kn_op op, kn_tensor *x, int64_t axis) {
    int64_t i = axis < 0 ? axis + x->n_dims : axis;
    if (i < 0 || i >= x->n_dims) {
        kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "there is no axis %lld in %d dimensions",
                        (long long)axis, x->n_dims);
        return false;
    }
    *out = (int)i;
    return true;
}
