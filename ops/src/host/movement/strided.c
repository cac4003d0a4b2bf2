/* Strided copies, and the ops that are one or two of them. */
#include "host/movement/strided.h"

#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/short_rows.h"
#include "kernel.h"

enum { GRAIN_BYTES = 1 << 17 };

/* --- rows --- */

/* Each element of `n` in each of `rows`; strides in elements. */
typedef struct box {
    int64_t rows, n;
    int64_t to_row, from_row, to_stride, from_stride;
} box;
typedef void (*rows_fn)(void *to, const void *from, const box *b);

#define EACH_ROW(type)                                                                             \
    type *restrict y = to;                                                                         \
    const type *restrict x = from;                                                                 \
    const int64_t n = b->n, y_i = b->to_stride, x_i = b->from_stride;                              \
    for (int64_t r = 0; r < b->rows; r++, y += b->to_row, x += b->from_row)
#define EACH for (int64_t i = 0; i < n; i++)

/* Loops of their own for what compilers turn into wide moves. */
#define COPY_ROWS(type)                                                                            \
    static void copy_##type(void *to, const void *from, const box *b) {                            \
        if (b->to_stride == 1 && b->from_stride == 1) {                                            \
            const int64_t bytes = sizeof(type);                                                    \
            kn__rows_copy(to, b->to_row *bytes, from, b->from_row *bytes, b->rows,                 \
                          (size_t)(b->n * bytes));                                                 \
            return;                                                                                \
        }                                                                                          \
        EACH_ROW(type) {                                                                           \
            if (y_i == 1 && x_i == -1)                                                             \
                EACH y[i] = x[-i];                                                                 \
            else if (y_i == 1 && x_i == 2)                                                         \
                EACH y[i] = x[2 * i];                                                              \
            else if (y_i == 1)                                                                     \
                EACH y[i] = x[i * x_i];                                                            \
            else                                                                                   \
                EACH y[i * y_i] = x[i * x_i];                                                      \
        }                                                                                          \
    }
COPY_ROWS(uint8_t)
COPY_ROWS(uint16_t)
COPY_ROWS(uint32_t)
COPY_ROWS(uint64_t)

#define ADD_ROWS(name, type, sum)                                                                  \
    static void add_##name(void *to, const void *from, const box *b) {                             \
        EACH_ROW(type) {                                                                           \
            if (y_i == 1 && x_i == 1) {                                                            \
                EACH {                                                                             \
                    const type u = y[i], v = x[i];                                                 \
                    y[i] = (type)(sum);                                                            \
                }                                                                                  \
            } else {                                                                               \
                EACH {                                                                             \
                    const type u = y[i * y_i], v = x[i * x_i];                                     \
                    y[i * y_i] = (type)(sum);                                                      \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
ADD_ROWS(f32, float, u + v)
ADD_ROWS(f64, double, u + v)
ADD_ROWS(f16, uint16_t, kn__f32_to_f16(kn__f16_to_f32(u) + kn__f16_to_f32(v)))
ADD_ROWS(bf16, uint16_t, kn__f32_to_bf16(kn__bf16_to_f32(u) + kn__bf16_to_f32(v)))
ADD_ROWS(i64, uint64_t, u + v)
ADD_ROWS(i32, uint32_t, u + v)
ADD_ROWS(u8, uint8_t, u + v)

static rows_fn rows_of(const kn__strided_copy *c) {
    static const rows_fn adds[] = {
        [KN_F32] = add_f32,   [KN_F64] = add_f64, [KN_F16] = add_f16, [KN_I64] = add_i64,
        [KN_BF16] = add_bf16, [KN_I32] = add_i32, [KN_U8] = add_u8};
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
    rows_fn move;
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

/* Dimensions that both sides walk through in one stride become one; those of one element go. A
 * last one of a few elements gives way to the longest one; where its elements are moved whole, the
 * one before it does. */
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
    bool whole = !c->add && n > 1 && c->to_stride[n - 1] == 1 && c->from_stride[n - 1] == 1;
    int few = whole ? n - 2 : n - 1, longest = few;
    for (int i = 0; i < few; i++) {
        if (c->dim[few] < SHORT && c->dim[i] > c->dim[longest]) longest = i;
    }
    swap_dims(c, longest, few);
}

/* Where a part is: the row by its place in each dimension, and where that begins. */
typedef struct cursor {
    int64_t index[KN_DIMS_MAX], to, from;
} cursor;

static void seek(cursor *p, const kn__strided_copy *c, int64_t row) {
    p->to = p->from = 0;
    for (int i = c->n_dims - 2; i >= 0; i--) {
        p->index[i] = row % c->dim[i];
        row /= c->dim[i];
        p->to += p->index[i] * c->to_stride[i];
        p->from += p->index[i] * c->from_stride[i];
    }
}

/* `rows` further on, which the last dimension but one has. */
static void next_rows(cursor *p, const kn__strided_copy *c, int64_t rows) {
    for (int i = c->n_dims - 2; i >= 0; i--, rows = 1) {
        p->index[i] += rows;
        bool wraps = p->index[i] == c->dim[i];
        int64_t steps = wraps ? rows - c->dim[i] : rows;
        p->to += steps * c->to_stride[i];
        p->from += steps * c->from_stride[i];
        if (!wraps) return;
        p->index[i] = 0;
    }
}

/* Whole rows of the last dimension but one at once, and the parts of rows before and after them. */
static void run_part(void *ctx, int64_t part) {
    const job *j = ctx;
    const kn__strided_copy *c = &j->c;
    int last = c->n_dims - 1;
    box b = {.to_stride = c->to_stride[last], .from_stride = c->from_stride[last]};
    if (last) b.to_row = c->to_stride[last - 1], b.from_row = c->from_stride[last - 1];
    int64_t at = part * j->grain, end = at + j->grain < j->n ? at + j->grain : j->n;
    int64_t row = c->dim[last], column = at % row;
    cursor p;
    seek(&p, c, at / row);
    while (at < end) {
        int64_t left = last ? c->dim[last - 1] - p.index[last - 1] : 1, rows = (end - at) / row;
        b.n = row - column < end - at ? row - column : end - at;
        b.rows = b.n < row ? 1 : rows < left ? rows : left;
        j->move((char *)c->to + (p.to + column * b.to_stride) * j->bytes,
                (const char *)c->from + (p.from + column * b.from_stride) * j->bytes, &b);
        at += b.rows * b.n;
        column = 0;
        next_rows(&p, c, b.rows);
    }
}

void kn__strided_copy_run(int threads, const kn__strided_copy *copy) {
    job j = {.c = *copy, .n = 1, .bytes = (int64_t)kn_dtype_bytes(copy->dtype)};
    for (int i = 0; i < copy->n_dims; i++) j.n *= copy->dim[i];
    if (j.n == 0) return;
    merge(&j.c);
    j.move = rows_of(&j.c);
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
