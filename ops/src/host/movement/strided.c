/* Strided copies, and the ops that are one or two of them. */
#include "host/movement/strided.h"

#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "kernel.h"

enum { GRAIN_BYTES = 1 << 17 };

/* --- one row --- */

typedef void (*row_fn)(void *to, const void *from, int64_t n, int64_t to_stride,
                       int64_t from_stride);

/* Loops of their own for what compilers turn into wide moves. */
#define COPY_ROW(type)                                                                             \
    static void copy_##type(void *to, const void *from, int64_t n, int64_t to_stride,              \
                            int64_t from_stride) {                                                 \
        type *restrict y = to;                                                                     \
        const type *restrict x = from;                                                             \
        if (to_stride == 1 && from_stride == 1) {                                                  \
            memcpy(y, x, (size_t)n * sizeof *y);                                                   \
        } else if (to_stride == 1 && from_stride == -1) {                                          \
            for (int64_t i = 0; i < n; i++) y[i] = x[-i];                                          \
        } else if (to_stride == 1 && from_stride == 2) {                                           \
            for (int64_t i = 0; i < n; i++) y[i] = x[2 * i];                                       \
        } else if (to_stride == 1) {                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = x[i * from_stride];                             \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) y[i * to_stride] = x[i * from_stride];                 \
        }                                                                                          \
    }
COPY_ROW(uint8_t)
COPY_ROW(uint16_t)
COPY_ROW(uint32_t)
COPY_ROW(uint64_t)

#define ADD_ROW(name, type, sum)                                                                   \
    static void add_##name(void *to, const void *from, int64_t n, int64_t to_stride,               \
                           int64_t from_stride) {                                                  \
        type *restrict y = to;                                                                     \
        const type *restrict x = from;                                                             \
        if (to_stride == 1 && from_stride == 1) {                                                  \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const type a = y[i], b = x[i];                                                     \
                y[i] = (type)(sum);                                                                \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const type a = y[i * to_stride], b = x[i * from_stride];                               \
            y[i * to_stride] = (type)(sum);                                                        \
        }                                                                                          \
    }
ADD_ROW(f32, float, a + b)
ADD_ROW(f64, double, a + b)
ADD_ROW(f16, uint16_t, kn__f32_to_f16(kn__f16_to_f32(a) + kn__f16_to_f32(b)))
ADD_ROW(bf16, uint16_t, kn__f32_to_bf16(kn__bf16_to_f32(a) + kn__bf16_to_f32(b)))
ADD_ROW(i64, uint64_t, a + b)
ADD_ROW(i32, uint32_t, a + b)
ADD_ROW(u8, uint8_t, a + b)

static row_fn row_of(const kn__strided_copy *c) {
    static const row_fn adds[] = {
        [KN_F32] = add_f32,   [KN_F64] = add_f64, [KN_F16] = add_f16, [KN_I64] = add_i64,
        [KN_BF16] = add_bf16, [KN_I32] = add_i32, [KN_U8] = add_u8,   [KN_BOOL] = add_u8};
    if (c->add) return adds[c->dtype];
    switch (kn_dtype_bytes(c->dtype)) {
        case 1:
            return copy_uint8_t;
        case 2:
            return copy_uint16_t;
        case 4:
            return copy_uint32_t;
        default:
            return copy_uint64_t;
    }
}

/* --- all rows --- */

typedef struct job {
    kn__strided_copy c; /* the last dimension is the row */
    row_fn row;
    int64_t n, grain, bytes;
} job;

static void swap(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

static void swap_dims(kn__strided_copy *c, int a, int b) {
    swap(&c->dim[a], &c->dim[b]);
    swap(&c->to_stride[a], &c->to_stride[b]);
    swap(&c->from_stride[a], &c->from_stride[b]);
}

/* Dimensions that both sides walk through in one stride become one; those of one element go. Rows
 * of a few elements give way to the longest dimension. */
static void merge(kn__strided_copy *c) {
    enum { SHORT = 8 };
    int n = 0;
    for (int i = 0; i < c->n_dims; i++) {
        int64_t d = c->dim[i], to = c->to_stride[i], from = c->from_stride[i];
        if (d == 1) continue;
        bool joins = n && c->to_stride[n - 1] == to * d && c->from_stride[n - 1] == from * d;
        if (!joins) n++;
        c->dim[n - 1] = joins ? c->dim[n - 1] * d : d;
        c->to_stride[n - 1] = to;
        c->from_stride[n - 1] = from;
    }
    if (n == 0) {
        c->dim[n] = c->to_stride[n] = c->from_stride[n] = 1;
        n++;
    }
    c->n_dims = n;
    int longest = n - 1;
    for (int i = 0; i < n; i++) {
        if (c->dim[n - 1] < SHORT && c->dim[i] > c->dim[longest]) longest = i;
    }
    swap_dims(c, longest, n - 1);
}

static void run_part(void *ctx, int64_t part) {
    const job *j = ctx;
    const kn__strided_copy *c = &j->c;
    int last = c->n_dims - 1;
    int64_t at = part * j->grain, end = at + j->grain < j->n ? at + j->grain : j->n;
    int64_t index[KN_DIMS_MAX], to = 0, from = 0, row = at / c->dim[last];
    int64_t column = at - row * c->dim[last];
    for (int i = last - 1; i >= 0; i--) {
        index[i] = row % c->dim[i];
        row /= c->dim[i];
        to += index[i] * c->to_stride[i];
        from += index[i] * c->from_stride[i];
    }
    while (at < end) {
        int64_t n = c->dim[last] - column < end - at ? c->dim[last] - column : end - at;
        j->row((char *)c->to + (to + column * c->to_stride[last]) * j->bytes,
               (const char *)c->from + (from + column * c->from_stride[last]) * j->bytes, n,
               c->to_stride[last], c->from_stride[last]);
        at += n;
        column = 0;
        for (int i = last - 1; i >= 0; i--) {
            bool wraps = ++index[i] == c->dim[i];
            int64_t steps = wraps ? 1 - c->dim[i] : 1;
            to += steps * c->to_stride[i];
            from += steps * c->from_stride[i];
            if (!wraps) break;
            index[i] = 0;
        }
    }
}

void kn__strided_copy_run(int threads, const kn__strided_copy *copy) {
    job j = {.c = *copy, .n = 1, .bytes = (int64_t)kn_dtype_bytes(copy->dtype)};
    for (int i = 0; i < copy->n_dims; i++) j.n *= copy->dim[i];
    if (j.n == 0) return;
    merge(&j.c);
    j.row = row_of(&j.c);
    j.grain = kn__even(j.n, GRAIN_BYTES / j.bytes);
    kn__parallel_for(threads, kn__chunks(j.n, j.grain), run_part, &j);
}

void kn__strides(int64_t stride[], const kn_tensor *t) {
    int64_t step = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= t->dim[i];
    }
}

void kn__copy_bytes(int threads, void *to, const void *from, size_t n) {
    if (to == from) return;
    kn__strided_copy c = {.to = to, .from = from, .dtype = KN_U8, .n_dims = 1};
    c.dim[0] = (int64_t)n;
    c.to_stride[0] = c.from_stride[0] = 1;
    kn__strided_copy_run(threads, &c);
}

typedef struct zero_job {
    char *to;
    size_t n;
} zero_job;

static void zero_part(void *ctx, int64_t part) {
    const zero_job *j = ctx;
    size_t at = (size_t)part * GRAIN_BYTES;
    memset(j->to + at, 0, j->n - at < GRAIN_BYTES ? j->n - at : GRAIN_BYTES);
}

void kn__zero_bytes(int threads, void *to, size_t n) {
    kn__parallel_for(threads, kn__chunks((int64_t)n, GRAIN_BYTES), zero_part, &(zero_job){to, n});
}

/* --- the ops --- */

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

static void *element_at(const kn_tensor *t, int64_t i) {
    return (char *)t->data + i * (int64_t)kn_dtype_bytes((kn_dtype)t->dtype);
}

kn_status kn__host_strided(kn_op_call *call) {
    const kn_attr_strided *attr = call->attr;
    const kn_tensor *x = call->in[0], *y = call->out[0];
    kn__strided_copy c = {.to = y->data, .from = element_at(x, attr->start), .dtype = y->dtype};
    c.add = call->accumulate & 1;
    c.n_dims = (int)attr->n_dims;
    memcpy(c.dim, attr->dim, sizeof c.dim);
    memcpy(c.from_stride, attr->stride, sizeof c.from_stride);
    int64_t step = 1;
    for (int i = c.n_dims - 1; i >= 0; i--) {
        c.to_stride[i] = step;
        step *= c.dim[i];
    }
    kn__strided_copy_run(call->threads, &c);
    return KN_OK;
}

/* out = x, zeros, or out + x. */
static void put_base(const kn_op_call *call, const kn_tensor *x) {
    const kn_tensor *out = call->out[0];
    bool adds = call->accumulate & 1;
    if (x == KN_NONE) {
        if (!adds) kn__zero_bytes(call->threads, out->data, bytes_of(out));
        return;
    }
    if (x->data == out->data) return;
    kn__strided_copy c = {.to = out->data, .from = x->data, .dtype = out->dtype, .add = adds};
    c.n_dims = 1;
    c.dim[0] = out->n;
    c.to_stride[0] = c.from_stride[0] = 1;
    kn__strided_copy_run(call->threads, &c);
}

static int64_t count_of(const kn_attr_strided *attr) {
    int64_t n = 1;
    for (int i = 0; i < attr->n_dims; i++) n *= attr->dim[i];
    return n;
}

kn_status kn__host_strided_put(kn_op_call *call) {
    const kn_attr_strided *attr = call->attr;
    const kn_tensor *y = call->in[1], *out = call->out[0];
    static const uint64_t zero = 0;
    bool adds = call->op == KN_OP_strided_add && (call->in[0] != KN_NONE || call->accumulate & 1);
    if (adds || count_of(attr) < out->n) put_base(call, call->in[0]);
    kn__strided_copy c = {.to = element_at(out, attr->start), .from = &zero, .dtype = out->dtype};
    c.add = adds;
    c.n_dims = (int)attr->n_dims;
    memcpy(c.dim, attr->dim, sizeof c.dim);
    memcpy(c.to_stride, attr->stride, sizeof c.to_stride);
    if (y != KN_NONE) {
        c.from = y->data;
        kn__strides(c.from_stride, y);
    }
    kn__strided_copy_run(call->threads, &c);
    return KN_OK;
}

/* The last `shift` of the axis come first. */
kn_status kn__host_roll(kn_op_call *call) {
    const kn_attr_roll *attr = call->attr;
    const kn_tensor *x = call->in[0], *y = call->out[0];
    int64_t n = x->dim[attr->axis];
    kn__strided_copy c = {.dtype = x->dtype, .n_dims = x->n_dims};
    for (int i = 0; i < x->n_dims; i++) c.dim[i] = x->dim[i];
    kn__strides(c.to_stride, y);
    kn__strides(c.from_stride, x);
    int64_t step = c.to_stride[attr->axis];
    c.to = element_at(y, attr->shift * step);
    c.from = x->data;
    c.dim[attr->axis] = n - attr->shift;
    kn__strided_copy_run(call->threads, &c);
    c.to = y->data;
    c.from = element_at(x, (n - attr->shift) * step);
    c.dim[attr->axis] = attr->shift;
    kn__strided_copy_run(call->threads, &c);
    return KN_OK;
}
