#include "parity.h"

#include <math.h>

#include "convert.h"
#include "test.h"

/* The bytes of guards. Guards of operands that are only read are NaNs, so that a result shows that
 * one was read; guards of the others differ from the bytes that a copy past an operand writes. */
enum { GUARD_READ = 0xFF, GUARD_WRITTEN = 0xA5 };

/* --- filling buffers: a value depends on the case, the operand and the element alone --- */

static uint64_t mix(uint64_t z) { /* splitmix64's output function */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t seed_of(const parity_case *c, int operand) {
    uint64_t h = 0x9E3779B97F4A7C15u * (uint64_t)(operand + 1);
    for (const char *s = c->name; *s; s++) h = mix(h + (unsigned char)*s);
    return h;
}

static double special(uint64_t r) {
    static const double values[] = {0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, NAN, INFINITY, -INFINITY};
    return values[r % (sizeof values / sizeof *values)];
}

static double wide(uint64_t r) {
    static const double sizes[] = {1, 100, 300, 70000, 3e9, 1e10};
    if (r % 16 == 0) return special(r >> 8);
    double unit = (double)(int64_t)(r >> 11) * 0x1p-52 - 1;
    return unit * sizes[(r >> 4) % 6];
}

/* Of result i of a pooling: the index in its window of an element that is inside x. */
static int64_t offset_at(const parity_case *c, const parity_operand *o, int64_t i, uint64_t r) {
    kn_attr_pool attr;
    memcpy(&attr, c->attr, sizeof attr);
    bool back = c->op == KN_OP_maxpool_back;
    int64_t index = 0, step = 1;
    for (int d = attr.n_spatial - 1; d >= 0; d--) {
        int64_t size = back ? attr.size[d] : c->in[0].shape.dim[2 + d];
        int64_t n = o->shape.dim[2 + d], at_y = i % n, window = attr.window[d];
        int64_t first = at_y * attr.stride[d] - attr.padding[d], length = window;
        if (!attr.stride[d])
            first = at_y * size / n, length = ((at_y + 1) * size - 1) / n + 1 - first;
        int64_t k = (int64_t)(r >> 8 * d & 0xFF) % length;
        for (int t = 0; t < length; t++, k = (k + 1) % length) {
            int64_t at = first + k * attr.dilation[d];
            if (at >= 0 && at < size) break;
        }
        index += k * step;
        step *= window;
        i /= n;
    }
    return index;
}

static double definite_at(uint64_t seed, const parity_operand *o, int64_t i) {
    int64_t n = o->shape.dim[o->shape.n_dims - 1], row = i / n % n, column = i % n;
    int64_t low = row < column ? row : column, high = row < column ? column : row;
    uint64_t r = mix(seed + (uint64_t)(i / (n * n) * n * n + low * n + high));
    double unit = (double)(int64_t)(r >> 11) * 0x1p-53;
    return row == column ? 1 + unit : (2 * unit - 1) / (double)n;
}

static double rotated_at(const parity_operand *o, int64_t i, double unit) {
    int64_t n = o->shape.dim[o->shape.n_dims - 1], row = i / n % n, column = i % n;
    return column == (row + 1) % n ? 1 + unit : (2 * unit - 1) / (double)n;
}

static double rising_at(const parity_operand *o, int64_t i) {
    int64_t n = o->shape.dim[o->shape.n_dims - 1], k = i % n;
    if (o->dtype == KN_BOOL) return k >= n / 2;
    bool is_float = !o->dtype || (o->dtype >= KN_F32 && o->dtype <= KN_BF16);
    if (is_float && n > 4 && k >= n - 2) return k == n - 1 ? NAN : INFINITY;
    return (double)(k / 2) * 0.5 - 2;
}

static double value_at(uint64_t seed, const parity_case *c, const parity_operand *o, int64_t i) {
    static const double hyper[] = {0.01, 3, 0.5, 0};
    uint64_t r = mix(seed + (uint64_t)i);
    double unit = (double)(int64_t)(r >> 11) * 0x1p-53;
    switch (o->fill) {
        case FILL_UNIFORM:
        case FILL_LARGE:
            return (o->fill == FILL_LARGE ? 65000 : 1) * (2 * unit - 1);
        case FILL_POSITIVE:
            return 0.25 + 1.75 * unit;
        case FILL_UNIT:
            return 1.8 * unit - 0.9;
        case FILL_FRACTION:
            return 0.1 + 0.8 * unit;
        case FILL_ABOVE_ONE:
            return 1.25 + 1.75 * unit;
        case FILL_TIES:
            return (double)(int64_t)(r % 7) * 0.5 - 1.5;
        case FILL_SPECIAL:
            return special(r);
        case FILL_WIDE:
            return wide(r);
        case FILL_DEFINITE:
            return definite_at(seed, o, i);
        case FILL_ROTATED:
            return rotated_at(o, i, unit);
        case FILL_RISING:
            return rising_at(o, i);
        case FILL_OFFSET:
            return 1e6 + 2 * unit;
        case FILL_INDEX:
            return (double)(int64_t)(r % (uint64_t)o->limit);
        case FILL_NEGATIVE:
            return (double)((int64_t)(r % (uint64_t)(2 * o->limit)) - o->limit);
        case FILL_BEYOND:
            return i == 1 ? (double)o->limit : (double)(int64_t)(r % (uint64_t)o->limit);
        case FILL_OFFSETS:
            return (double)offset_at(c, o, i, r);
        case FILL_STATE:
            return i == 0 ? 1234567 : 40;
        case FILL_HYPER:
        case FILL_HYPER_INF:
            return i % 4 == 2 && o->fill == FILL_HYPER_INF ? INFINITY : hyper[i % 4];
        case FILL_ABSENT:
        case FILL_GUARD:
        case FILL_ZERO:
            break;
    }
    return 0;
}

static int64_t saturated(double v, double low, double high) {
    if (v != v) return 0;
    return v <= low ? (int64_t)low : v >= high ? (int64_t)high : (int64_t)v;
}

static void store(void *p, kn_dtype dtype, double v) {
    float f = (float)v;
    int64_t i = v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : v != v ? 0 : (int64_t)v;
    int32_t i32 = (int32_t)saturated(v, INT32_MIN, INT32_MAX);
    uint8_t u8 = (uint8_t)saturated(v, 0, 255);
    uint16_t half = dtype == KN_BF16 ? kn__f32_to_bf16(f) : kn__f32_to_f16(f);
    uint8_t flag = v != 0;
    const void *from = &f;
    switch (dtype) {
        case KN_F32:
            break;
        case KN_F64:
            from = &v;
            break;
        case KN_F16:
        case KN_BF16:
            from = &half;
            break;
        case KN_I64:
            from = &i;
            break;
        case KN_I32:
            from = &i32;
            break;
        case KN_U8:
            from = &u8;
            break;
        case KN_BOOL:
            from = &flag;
            break;
    }
    memcpy(p, from, kn_dtype_bytes(dtype));
}

/* --- one run --- */

typedef struct buffer {
    kn_tensor *base, *view; /* guards and all; the operand itself */
    unsigned char *image;   /* of base */
    size_t bytes, guard_bytes;
    unsigned char guard;
    kn_dtype dtype;
    int64_t n;
} buffer;

static int64_t count(const kn_shape *shape) {
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims; d++) n *= shape->dim[d];
    return n;
}

/* The results, and what an optimiser updates. */
static bool is_written(const parity_case *c, int operand) {
    return operand >= PARITY_OUT || (c->n_extra && operand > 0);
}

static void fill_image(buffer *b, const parity_case *c, int operand, const parity_operand *o,
                       const parity_mode *mode) {
    size_t element = kn_dtype_bytes(b->dtype);
    uint64_t seed = seed_of(c, operand);
    b->guard = is_written(c, operand) ? GUARD_WRITTEN : GUARD_READ;
    memset(b->image, b->guard, b->bytes);
    if (o->fill == FILL_GUARD) return;
    for (int64_t i = 0; i < b->n; i++) {
        double v = value_at(seed, c, o, i);
        if (!o->dtype && mode->data == KN_F32) v = (double)(float)v;
        store(b->image + b->guard_bytes + (size_t)i * element, b->dtype, v);
    }
}

static bool make_buffer(buffer *b, const parity_case *c, int operand, const parity_operand *o,
                        const parity_mode *mode) {
    b->dtype = o->dtype ? o->dtype : mode->dtype;
    b->n = count(&o->shape);
    b->guard_bytes = (size_t)mode->guard * kn_dtype_bytes(b->dtype);
    int64_t n = b->n + 2 * mode->guard;
    b->bytes = (size_t)n * kn_dtype_bytes(b->dtype);
    b->image = malloc(b->bytes);
    if (!b->image) return false;
    fill_image(b, c, operand, o, mode);
    b->base = kn_tensor_from(b->image, b->dtype, KN_SHAPE(n));
    b->view = b->base ? kn_tensor_view(b->base, o->shape, mode->guard) : NULL;
    return b->view != NULL;
}

static const parity_operand *operand_of(const parity_case *c, int i) {
    return i >= PARITY_OUT ? &c->out[i - PARITY_OUT] : &c->in[i];
}

static bool make_buffers(buffer *b, const parity_case *c, const parity_mode *mode) {
    for (int i = 0; i < PARITY_BUFFERS; i++) {
        const parity_operand *o = operand_of(c, i);
        if (o->fill != FILL_ABSENT && !make_buffer(&b[i], c, i, o, mode)) return false;
    }
    return true;
}

/* Optimiser steps: each extra operand is a weight; many small ones share the first. The third one
 * stands still. */
static void point_parts_at(kn_attr_optim *attr, kn_optim_part *part, const buffer *b,
                           const parity_case *c) {
    int64_t offset = 0;
    for (int i = 0; i < attr->n_parts; i++) {
        int k = c->n_in + (i < c->n_extra ? i : 0);
        part[i] = (kn_optim_part){
            .w = b[k].view, .offset = offset, .n = b[k].n, .rate = i != 2, .decay = 1};
        offset += b[k].n;
    }
    attr->part = part;
}

/* Whether the op's results have their shape and dtype from its attribute alone. */
static bool makes(kn_op op) {
    return op == KN_OP_fill || op == KN_OP_uniform || op == KN_OP_normal ||
           op == KN_OP_exponential || op == KN_OP_bernoulli || op == KN_OP_integers ||
           op == KN_OP_permutation || op == KN_OP_arange || op == KN_OP_linspace;
}

#define SET_MADE(attr, out)                                                                        \
    do {                                                                                           \
        kn_shape shape_ = kn_tensor_shape(out);                                                    \
        memcpy((attr)->dim, shape_.dim, sizeof(attr)->dim);                                        \
        (attr)->n_dims = shape_.n_dims, (attr)->dtype = (int32_t)kn_tensor_dtype(out);             \
    } while (0)

static void set_results(kn_op_call *call, const parity_case *c, const buffer *b) {
    call->want = 0;
    for (int r = 0; r < PARITY_RESULTS; r++) {
        call->out[r] = c->out_is && r == 0 ? b[c->out_is - 1].view : b[PARITY_OUT + r].view;
        call->want |= (uint8_t)((call->out[r] != NULL) << r);
    }
    call->given = call->want;
    call->accumulate = c->accumulate;
}

static kn_status call_op(const parity_case *c, const parity_mode *mode, buffer *b) {
    kn_tensor *in[PARITY_OPERANDS];
    kn_optim_part part[PARITY_OPERANDS];
    union {
        unsigned char bytes[PARITY_ATTR];
        kn_attr_optim optim;
        kn_attr_make make;
        kn_attr_truncated truncated;
        max_align_t align;
    } attr;
    memcpy(attr.bytes, c->attr, sizeof attr.bytes);
    for (int i = 0; i < c->n_in; i++) in[i] = b[i].view ? b[i].view : KN_NONE;
    if (c->n_extra) point_parts_at(&attr.optim, part, b, c);
    kn_op_call call;
    kn_op_call_init(&call, c->op, c->attr_bytes ? attr.bytes : NULL, in, c->n_in);
    set_results(&call, c, b);
    if (makes(c->op)) SET_MADE(&attr.make, call.out[0]);
    if (c->op == KN_OP_truncated_normal) SET_MADE(&attr.truncated, call.out[0]);
    call.device = mode->device;
    if (mode->run) return mode->run(mode->ctx, &call);
    return kn_op_run(&call) ? KN_OK : kn_check();
}

static bool guards_intact(const buffer *b) {
    for (size_t i = 0; i < b->guard_bytes; i++) {
        if (b->image[i] != b->guard || b->image[b->bytes - 1 - i] != b->guard) return false;
    }
    return true;
}

static bool read_back(parity_result *out, buffer *b, const parity_case *c) {
    for (int i = 0; i < PARITY_BUFFERS; i++) {
        if (!b[i].base) continue;
        if (kn_copy_out(b[i].image, b[i].bytes, b[i].base) < 0) return false;
        if (!guards_intact(&b[i])) {
            print_error("%s: wrote outside operand %d\n", c->name, i);
            return false;
        }
        size_t bytes = (size_t)b[i].n * kn_dtype_bytes(b[i].dtype);
        out->dtype[i] = b[i].dtype, out->n[i] = b[i].n;
        out->data[i] = malloc(bytes + 1);
        if (!out->data[i]) return false;
        memcpy(out->data[i], b[i].image + b[i].guard_bytes, bytes);
    }
    return true;
}

bool parity_run(parity_result *out, const parity_case *c, const parity_mode *mode) {
    buffer b[PARITY_BUFFERS];
    memset(b, 0, sizeof b);
    memset(out, 0, sizeof *out);
    KN_FRAME(.device = mode->device, .dtype = mode->dtype);
    bool ok = make_buffers(b, c, mode) && call_op(c, mode, b) == KN_OK && read_back(out, b, c);
    if (!ok) {
        kn_status status = kn_check();
        print_error("%s on %s, %s, guard %d: failed (%d): %s\n", c->name,
                    kn_device_name(mode->device), kn_dtype_name(mode->dtype), mode->guard,
                    (int)status, kn_last_error()->message);
        parity_result_free(out);
    }
    for (int i = 0; i < PARITY_BUFFERS; i++) free(b[i].image);
    return ok;
}

void parity_result_free(parity_result *result) {
    for (int i = 0; i < PARITY_BUFFERS; i++) free(result->data[i]);
    memset(result, 0, sizeof *result);
}

/* --- comparing --- */

static bool is_float(kn_dtype dtype) {
    return dtype == KN_F32 || dtype == KN_F64 || dtype == KN_F16 || dtype == KN_BF16;
}

/* 16-bit floats may be rounded to the other neighbour: the square of a unit in the last place. */
static double most_of(double nmse, kn_dtype dtype) {
    double least = dtype == KN_F16 ? 0x1p-20 : dtype == KN_BF16 ? 0x1p-14 : 0;
    return nmse > least ? nmse : least;
}

/* Both finite, or the same NaN or infinity. */
static bool same_kind(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return isfinite(a) && isfinite(b) ? true : a == b;
}

static bool same_floats(const parity_case *c, int k, const parity_result *got,
                        const parity_result *want, double most) {
    double error = 0, power = 0;
    size_t g_bytes = kn_dtype_bytes(got->dtype[k]), w_bytes = kn_dtype_bytes(want->dtype[k]);
    for (int64_t i = 0; i < want->n[k]; i++) {
        double g = kn__as_double((char *)got->data[k] + (size_t)i * g_bytes, got->dtype[k]);
        double w = kn__as_double((char *)want->data[k] + (size_t)i * w_bytes, want->dtype[k]);
        if (!same_kind(g, w)) {
            print_error("%s: operand %d, element %lld is %.17g, expected %.17g\n", c->name, k,
                        (long long)i, g, w);
            return false;
        }
        if (!isfinite(w)) continue;
        error += (g - w) * (g - w);
        power += w * w;
    }
    if (error <= most * power) return true;
    print_error("%s: operand %d, error %.3g of at most %.3g\n", c->name, k,
                power > 0 ? error / power : INFINITY, most);
    return false;
}

static bool same_bits(const parity_case *c, int k, const parity_result *got,
                      const parity_result *want) {
    size_t bytes = kn_dtype_bytes(want->dtype[k]);
    for (int64_t i = 0; i < want->n[k]; i++) {
        const char *g = (char *)got->data[k] + (size_t)i * bytes;
        const char *w = (char *)want->data[k] + (size_t)i * bytes;
        if (memcmp(g, w, bytes) == 0) continue;
        double gv = kn__as_double(g, got->dtype[k]), wv = kn__as_double(w, want->dtype[k]);
        if (gv == wv || (isnan(gv) && isnan(wv))) continue; /* -0, another NaN */
        print_error("%s: operand %d, element %lld is %.17g, expected %.17g\n", c->name, k,
                    (long long)i, gv, wv);
        return false;
    }
    return true;
}

bool parity_same(const parity_case *c, const parity_result *got, const parity_result *want,
                 double nmse) {
    for (int k = 0; k < PARITY_BUFFERS; k++) {
        if (!want->data[k]) continue;
        /* An optimiser's numbers: a step count, and a ticket that is back at 0. */
        bool exact = c->compare == COMPARE_EXACT || !is_float(want->dtype[k]) ||
                     operand_of(c, k)->fill >= FILL_HYPER;
        bool same = exact && got->dtype[k] == want->dtype[k]
                        ? same_bits(c, k, got, want)
                        : same_floats(c, k, got, want, most_of(nmse, want->dtype[k]));
        if (!same) return false;
    }
    return true;
}
