/* Elements at indices along an axis: reading them, and writing or adding to them. Columns beside
 * the axis are independent, so threads share those; along the axis all goes in order. */
#include "host/movement/gather.h"

#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "run.h"

enum { GRAIN_BYTES = 1 << 17, ENOUGH_ROWS = 8 };

/* --- indices --- */

void kn__indexed_init(kn__indexed *j, const kn_op_call *call, const kn_tensor *whole) {
    const kn_tensor *index = call->in[1];
    int axis = (int)((const kn_attr_index *)call->attr)->axis;
    j->outer = j->inner = 1;
    for (int i = 0; i < axis; i++) j->outer *= whole->dim[i];
    for (int i = axis + 1; i < whole->n_dims; i++) j->inner *= whole->dim[i];
    j->size = whole->dim[axis];
    j->rows = call->op == KN_OP_index_select || call->op == KN_OP_index_add ||
              call->op == KN_OP_index_set;
    j->count = j->rows ? index->n : index->dim[axis];
    j->index_dtype = (kn_dtype)index->dtype;
    j->index = index->data;
    atomic_init(&j->bad, INT64_MAX);
}

void kn__indexed_bad(kn__indexed *j, int64_t i) {
    int64_t before = atomic_load_explicit(&j->bad, memory_order_relaxed);
    while (i < before && !atomic_compare_exchange_weak(&j->bad, &before, i)) continue;
}

kn_status kn__indexed_check(kn__indexed *j, const kn_op_call *call) {
    int64_t bad = atomic_load(&j->bad);
    if (bad == INT64_MAX) return KN_OK;
    char text[256];
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_%s: index %lld is outside %lld elements (element %lld of %s)",
                   kn__name_in_errors((kn_op)call->op),
                   (long long)kn__index_read(j->index, j->index_dtype, bad), (long long)j->size,
                   (long long)bad,
                   kn_shape_text(text, sizeof text, kn_tensor_shape(call->in[call->n_in > 1])));
}

/* --- reading --- */

typedef struct gather_job {
    kn__indexed in;
    char *y;
    const char *x;
    size_t bytes;
    int64_t n, grain; /* of rows, or of elements */
} gather_job;

/* The place of index v among `size` elements; not below size: out of range. Indices from the end
 * are rare. */
static inline __attribute__((always_inline)) uint64_t place_of(int64_t v, uint64_t size) {
    uint64_t at = (uint64_t)v;
    if (__builtin_expect(at >= size, 0)) at += size;
    return at;
}

/* Rows of n elements, y, and those of x that they are read from, or that they are written to:
 * y[i] and x[index[i]·stride + i·step]; x_row, index_row: the way from a row to the next one.
 * place: of the first index among all. */
typedef struct indexed_rows {
    int64_t rows, n, place;
    int64_t stride, step, x_row, index_row;
} indexed_rows;

/* y[i] = x[…] */
#define GATHER_EACH(at_i)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
        uint64_t at = place_of(index[i], size);                                                    \
        if (__builtin_expect(at < size, 1))                                                        \
            y[i] = x[at_i];                                                                        \
        else                                                                                       \
            kn__indexed_bad(&j->in, g->place + r * g->index_row + i);                              \
    }
#define GATHER(type, name, index_type)                                                             \
    static void gather_##type##_##name(gather_job *j, void *to, const void *from,                  \
                                       const indexed_rows *g) {                                    \
        const index_type *index = (const index_type *)j->in.index + g->place;                      \
        type *y = to;                                                                              \
        const type *x = from;                                                                      \
        const uint64_t size = (uint64_t)j->in.size;                                                \
        const int64_t n = g->n, stride = g->stride, step = g->step;                                \
        for (int64_t r = 0; r < g->rows; r++, y += n, x += g->x_row, index += g->index_row) {      \
            if (stride == 1 && step == 0)                                                          \
                GATHER_EACH(at)                                                                    \
            else                                                                                   \
                GATHER_EACH((int64_t)at *stride + i * step)                                        \
        }                                                                                          \
    }
#define GATHERS(type)                                                                              \
    GATHER(type, i64, int64_t)                                                                     \
    GATHER(type, i32, int32_t)                                                                     \
    GATHER(type, u8, uint8_t)                                                                      \
    static void gather_##type(gather_job *j, void *to, const void *from, const indexed_rows *g) {  \
        if (j->in.index_dtype == KN_I64)                                                           \
            gather_##type##_i64(j, to, from, g);                                                   \
        else if (j->in.index_dtype == KN_I32)                                                      \
            gather_##type##_i32(j, to, from, g);                                                   \
        else                                                                                       \
            gather_##type##_u8(j, to, from, g);                                                    \
    }
GATHERS(uint8_t)
GATHERS(uint16_t)
GATHERS(uint32_t)
GATHERS(uint64_t)

static void gather_run(gather_job *j, int64_t at, int64_t from, const indexed_rows *g) {
    char *y = j->y + (size_t)at * j->bytes;
    const char *x = j->x + (size_t)from * j->bytes;
    switch (j->bytes) {
        case 1:
            gather_uint8_t(j, y, x, g);
            return;
        case 2:
            gather_uint16_t(j, y, x, g);
            return;
        case 4:
            gather_uint32_t(j, y, x, g);
            return;
        default:
            gather_uint64_t(j, y, x, g);
    }
}

/* Whole slices of the axis. */
static void select_rows(void *ctx, int64_t part) {
    gather_job *j = ctx;
    int64_t to = (part + 1) * j->grain;
    size_t bytes = (size_t)j->in.inner * j->bytes;
    for (int64_t row = part * j->grain; row < to && row < j->n; row++) {
        int64_t outer = row / j->in.count, k = row - outer * j->in.count;
        int64_t v = kn__index_at(&j->in, k);
        if (v < 0) continue;
        memcpy(j->y + (size_t)row * bytes, j->x + (size_t)(outer * j->in.size + v) * bytes, bytes);
    }
}

/* Rows of indices, whole or cut: along the axis where nothing lies inside it. */
static void gather_part(void *ctx, int64_t part) {
    gather_job *j = ctx;
    const kn__indexed *in = &j->in;
    bool last = in->inner == 1; /* no dimension inside the axis */
    int64_t row = last ? in->count : in->inner;
    int64_t at = part * j->grain, end = at + j->grain < j->n ? at + j->grain : j->n;
    indexed_rows g = {.stride = in->inner, .step = !last, .x_row = last ? in->size : 0};
    g.index_row = in->rows ? 0 : row;
    while (at < end) {
        int64_t r = at / row, i = at - r * row, from = r * in->size;
        int64_t left = end - at; /* elements for which x_row is right */
        if (!last) {
            int64_t outer = r / in->count, after = (outer + 1) * in->count * row - at;
            from = outer * in->size * row + i;
            left = after < left ? after : left;
        }
        g.n = row - i < left ? row - i : left;
        g.rows = g.n < row ? 1 : left / row;
        g.place = in->rows ? i : at;
        gather_run(j, at, from, &g);
        at += g.rows * g.n;
    }
}

kn_status kn__host_gather(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *y = call->out[0];
    gather_job j = {.y = y->data, .x = x->data, .bytes = kn_dtype_bytes((kn_dtype)x->dtype)};
    kn__indexed_init(&j.in, call, x);
    if (j.in.rows && j.in.inner > 1) {
        j.n = j.in.outer * j.in.count;
        j.grain = GRAIN_BYTES / (j.in.inner * (int64_t)j.bytes + 1) + 1;
        kn__parallel_for(call->threads, kn__chunks(j.n, j.grain), select_rows, &j);
    } else {
        j.n = y->n;
        j.grain = GRAIN_BYTES / (int64_t)j.bytes / 2;
        kn__parallel_for(call->threads, kn__chunks(j.n, j.grain), gather_part, &j);
    }
    return kn__indexed_check(&j.in, call);
}

/* --- writing and adding --- */

typedef struct scatter_job scatter_job;
/* out (+)= y for n elements in a row: of one slice; or rows of them, each at its index. */
typedef void (*put_fn)(void *to, const void *from, int64_t n);
typedef void (*each_fn)(scatter_job *j, void *to, const void *from, const indexed_rows *g);

struct scatter_job {
    kn__indexed in;
    char *out;
    const char *y; /* NULL: zeros are written */
    bool starts;   /* whoever writes into a row first copies it from x, or fills it with zeros */
    const char *x; /* NULL: zeros */
    size_t bytes, y_bytes;
    put_fn put;
    each_fn each_row;
    int64_t columns, columns_each, each; /* a piece of work: of the inner, of the outer ones */
};

#define SCATTER_EACH(expr, at_i)                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                              \
        uint64_t at = place_of(index[i], size);                                                    \
        if (__builtin_expect(at < size, 1)) {                                                      \
            const y_t y = *from;                                                                   \
            type_t *out = &to[at_i];                                                               \
            *out = (type_t)(expr);                                                                 \
        } else {                                                                                   \
            kn__indexed_bad(&j->in, g->place + r * g->index_row + i);                              \
        }                                                                                          \
        from += from_step;                                                                         \
    }
#define EACH(name, type, y_type, expr, index_type)                                                 \
    static void each_##name##_##index_type(scatter_job *j, type *to, const y_type *from,           \
                                           const indexed_rows *g) {                                \
        typedef type type_t;                                                                       \
        typedef y_type y_t;                                                                        \
        const index_type *index = (const index_type *)j->in.index + g->place;                      \
        const uint64_t size = (uint64_t)j->in.size;                                                \
        const int64_t n = g->n, stride = g->stride, step = g->step;                                \
        static const y_type zero;                                                                  \
        const int from_step = from != NULL;                                                        \
        if (!from) from = &zero;                                                                   \
        for (int64_t r = 0; r < g->rows; r++, to += g->x_row, index += g->index_row) {             \
            if (stride == 1 && step == 0)                                                          \
                SCATTER_EACH(expr, at)                                                             \
            else                                                                                   \
                SCATTER_EACH(expr, (int64_t)at *stride + i * step)                                 \
        }                                                                                          \
    }
#define PUT(name, type, y_type, expr)                                                              \
    EACH(name, type, y_type, expr, int64_t)                                                        \
    EACH(name, type, y_type, expr, int32_t)                                                        \
    EACH(name, type, y_type, expr, uint8_t)                                                        \
    static void each_##name(scatter_job *j, void *to, const void *from, const indexed_rows *g) {   \
        if (j->in.index_dtype == KN_I64)                                                           \
            each_##name##_int64_t(j, to, from, g);                                                 \
        else if (j->in.index_dtype == KN_I32)                                                      \
            each_##name##_int32_t(j, to, from, g);                                                 \
        else                                                                                       \
            each_##name##_uint8_t(j, to, from, g);                                                 \
    }                                                                                              \
    static void put_##name(void *to, const void *from, int64_t n) {                                \
        type *out = to;                                                                            \
        const y_type *row = from;                                                                  \
        for (int64_t i = 0; i < n; i++, out++) {                                                   \
            const y_type y = row ? row[i] : 0;                                                     \
            *out = (type)(expr);                                                                   \
        }                                                                                          \
    }
PUT(set_1, uint8_t, uint8_t, y)
PUT(set_2, uint16_t, uint16_t, y)
PUT(set_4, uint32_t, uint32_t, y)
PUT(set_8, uint64_t, uint64_t, y)
PUT(add_f32, float, float, *out + y)
PUT(add_f64, double, double, *out + y)
PUT(add_f16, float, uint16_t, *out + kn__f16_to_f32(y))
PUT(add_bf16, float, uint16_t, *out + kn__bf16_to_f32(y))
PUT(add_i64, uint64_t, uint64_t, *out + y)
PUT(add_i32, uint32_t, uint32_t, *out + y)
PUT(add_u8, uint8_t, uint8_t, *out + y)

static void choose_put(scatter_job *j, bool adds, kn_dtype dtype) {
#define BOTH(name)                                                                                 \
    { put_##name, each_##name }
    static const struct {
        put_fn put;
        each_fn each;
    } add[] = {[KN_F32] = BOTH(add_f32), [KN_F64] = BOTH(add_f64),   [KN_F16] = BOTH(add_f16),
               [KN_I64] = BOTH(add_i64), [KN_BF16] = BOTH(add_bf16), [KN_I32] = BOTH(add_i32),
               [KN_U8] = BOTH(add_u8)},
      set[] = {[1] = BOTH(set_1), [2] = BOTH(set_2), [4] = BOTH(set_4), [8] = BOTH(set_8)};
    j->put = adds ? add[dtype].put : set[kn_dtype_bytes(dtype)].put;
    j->each_row = adds ? add[dtype].each : set[kn_dtype_bytes(dtype)].each;
}

static const void *y_at(const scatter_job *j, int64_t i) {
    return j->y ? j->y + (size_t)i * j->y_bytes : NULL;
}

/* Rows from `at` on as x has them, just before they are written to. */
static void start_rows(const scatter_job *j, size_t at, int64_t rows) {
    size_t bytes = (size_t)(rows * j->in.size) * j->bytes;
    if (j->x)
        memcpy(j->out + at, j->x + at, bytes);
    else
        memset(j->out + at, 0, bytes);
}

/* Nothing lies inside the axis: the rows of some outer indices. */
static void scatter_rows(void *ctx, int64_t part) {
    scatter_job *j = ctx;
    const kn__indexed *in = &j->in;
    int64_t outer = part * j->each, left = in->outer - outer, from = outer * in->count;
    indexed_rows g = {.rows = left < j->each ? left : j->each, .n = in->count, .stride = 1};
    g.x_row = in->size, g.index_row = in->rows ? 0 : in->count, g.place = outer * g.index_row;
    size_t at = (size_t)(outer * in->size) * j->bytes;
    if (j->starts) start_rows(j, at, g.rows);
    j->each_row(j, j->out + at, y_at(j, from), &g);
}

/* The columns from `first` on of one outer index, all along the axis. */
static void scatter_part(void *ctx, int64_t part) {
    scatter_job *j = ctx;
    kn__indexed *in = &j->in;
    int64_t outer = part / j->columns, first = part % j->columns * j->columns_each;
    int64_t n = in->inner - first < j->columns_each ? in->inner - first : j->columns_each;
    int64_t base = outer * in->size * in->inner + first,
            row = outer * in->count * in->inner + first;
    if (!in->rows) {
        indexed_rows g = {.rows = 1, .n = n, .stride = in->inner, .step = 1};
        for (int64_t k = 0; k < in->count; k++, row += in->inner) {
            g.place = row;
            j->each_row(j, j->out + (size_t)base * j->bytes, y_at(j, row), &g);
        }
        return;
    }
    for (int64_t k = 0; k < in->count; k++, row += in->inner) {
        int64_t v = kn__index_at(in, k);
        if (v >= 0) j->put(j->out + (size_t)(base + v * in->inner) * j->bytes, y_at(j, row), n);
    }
}

static void scatter_run(scatter_job *j, int threads) {
    enum { COLUMNS = 128 };
    const kn__indexed *in = &j->in;
    if (in->inner == 1) {
        j->each = GRAIN_BYTES / ((in->size + in->count) * (int64_t)j->bytes + 1) + 1;
        kn__parallel_for(threads, kn__chunks(in->outer, j->each), scatter_rows, j);
        return;
    }
    j->columns_each = in->inner < COLUMNS ? in->inner : COLUMNS;
    j->columns = kn__chunks(in->inner, j->columns_each);
    kn__parallel_for(threads, in->outer * j->columns, scatter_part, j);
}

/* 16-bit floats add up in f32. */
static kn_status add_halves(scatter_job *j, kn_op_call *call) {
    const kn_tensor *x = call->in[0], *out = call->out[0];
    kn_dtype dtype = (kn_dtype)out->dtype;
    size_t bytes = (size_t)out->n * sizeof(float);
    void *sums;
    KN_TRY(kn__work(&sums, call, bytes));
    if (x == KN_NONE)
        kn__zero_bytes(call->threads, sums, bytes);
    else
        kn__cast(call->threads, sums, KN_F32, x->data, dtype, out->n);
    j->out = sums, j->bytes = sizeof(float);
    scatter_run(j, call->threads);
    kn__cast(call->threads, out->data, dtype, sums, KN_F32, out->n);
    return KN_OK;
}

/* out = x, zeros, or out + x. */
static void put_base(const kn_op_call *call, size_t bytes) {
    const kn_tensor *x = call->in[0], *out = call->out[0];
    if (call->accumulate & 1) {
        if (x == KN_NONE) return;
        kn__strided_copy c = {.to = out->data, .from = x->data, .dtype = out->dtype, .add = true};
        c.n_dims = 1, c.dim[0] = out->n, c.to_stride[0] = c.from_stride[0] = 1;
        kn__strided_copy_run(call->threads, &c);
    } else if (x == KN_NONE) {
        kn__zero_bytes(call->threads, out->data, (size_t)out->n * bytes);
    } else if (x->data != out->data) {
        kn__copy_bytes(call->threads, out->data, x->data, (size_t)out->n * bytes);
    }
}

kn_status kn__host_scatter(kn_op_call *call) {
    const kn_tensor *y = call->in[2], *out = call->out[0];
    bool adds = call->op == KN_OP_index_add || call->op == KN_OP_scatter_add;
    size_t bytes = kn_dtype_bytes((kn_dtype)out->dtype);
    scatter_job j = {.out = out->data, .bytes = bytes, .y_bytes = bytes};
    j.y = y == KN_NONE ? NULL : y->data;
    choose_put(&j, adds, (kn_dtype)out->dtype);
    kn__indexed_init(&j.in, call, out);
    if (adds && (out->dtype == KN_F16 || out->dtype == KN_BF16)) {
        KN_TRY(add_halves(&j, call));
    } else {
        const kn_tensor *x = call->in[0];
        j.x = x == KN_NONE ? NULL : x->data;
        j.starts =
            j.in.inner == 1 && j.in.outer >= ENOUGH_ROWS && !(call->accumulate & 1) && j.x != j.out;
        if (!j.starts) put_base(call, bytes);
        scatter_run(&j, call->threads);
    }
    return kn__indexed_check(&j.in, call);
}
