/* Padding, triangles and numbers in a row. */
#include "pad.h"

#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/short_rows.h"
#include "host/base/walk.h"
#include "host/movement/strided.h"
#include "kernel.h"

enum { GRAIN_BYTES = 1 << 17 };
enum { SHORT_BYTES = 128 }; /* rows are filled whole, before x's elements come over the value */

static int64_t bytes_of(const kn_tensor *t) { return (int64_t)kn_dtype_bytes((kn_dtype)t->dtype); }

/* Rows to a piece of work. */
static int64_t rows_of(int64_t row_bytes) { return GRAIN_BYTES / (row_bytes + 1) + 1; }

/* --- with a value --- */

typedef struct pad_job {
    char *out;
    const char *x;
    uint64_t value;
    size_t bytes;
    int n_outer;
    int64_t outer[KN_DIMS_MAX], before[KN_DIMS_MAX], size[KN_DIMS_MAX]; /* size: x's */
    int64_t left, middle, right;                                        /* of a row, elements */
    int64_t rows, rows_each;
} pad_job;

/* Whole trailing dimensions, not padded, join the row. */
static pad_job pad_job_of(const kn_op_call *call, const kn_attr_pad *attr) {
    const kn_tensor *x = call->in[0], *out = call->out[0];
    pad_job j = {.out = out->data, .x = x->data, .bytes = (size_t)bytes_of(x), .rows = 1};
    kn__from_double(&j.value, attr->value, (kn_dtype)x->dtype);
    int last = x->n_dims - 1;
    int64_t inner = 1;
    while (last > 0 && !attr->before[last] && !attr->after[last]) inner *= x->dim[last--];
    j.middle = last < 0 ? 1 : x->dim[last] * inner;
    if (last >= 0) {
        j.left = attr->before[last] * inner;
        j.right = attr->after[last] * inner;
    }
    j.n_outer = last > 0 ? last : 0;
    for (int i = 0; i < j.n_outer; i++) {
        j.outer[i] = out->dim[i];
        j.before[i] = attr->before[i];
        j.size[i] = x->dim[i];
        j.rows *= out->dim[i];
    }
    j.rows_each = rows_of((j.left + j.middle + j.right) * (int64_t)j.bytes);
    return j;
}

/* Row `row` of the result in x, or -1 where it is padding; *run: so many rows from it on are the
 * next ones of x, or padding too. */
static int64_t row_in_x(const pad_job *j, int64_t row, int64_t *run) {
    int64_t at = 0, step = 1;
    *run = 1;
    for (int i = j->n_outer - 1; i >= 0; i--) {
        int64_t place = row % j->outer[i], index = place - j->before[i], size = j->size[i];
        row /= j->outer[i];
        if (i == j->n_outer - 1)
            *run = index < 0 ? -index : index < size ? size - index : j->outer[i] - place;
        if (index < 0 || index >= size) return -1;
        at += index * step;
        step *= size;
    }
    return at;
}

static void pad_rows(void *ctx, int64_t part) {
    const pad_job *j = ctx;
    const char *value = (const char *)&j->value;
    int64_t to = (part + 1) * j->rows_each, n = j->left + j->middle + j->right, run;
    int64_t bytes = (int64_t)j->bytes, row_bytes = n * bytes, middle_bytes = j->middle * bytes;
    if (to > j->rows) to = j->rows;
    for (int64_t row = part * j->rows_each; row < to; row += run) {
        char *out = j->out + row * row_bytes;
        int64_t from = row_in_x(j, row, &run);
        if (run > to - row) run = to - row;
        bool is_empty = from < 0 || j->middle == 0, is_short = row_bytes <= SHORT_BYTES;
        if (is_empty || is_short) kn__walk_repeat(out, value, j->bytes, run * n);
        if (is_empty) continue;
        if (!is_short) kn__rows_fill(out, row_bytes, value, 0, run, j->bytes, j->left);
        out += j->left * bytes;
        kn__rows_copy(out, row_bytes, j->x + from * middle_bytes, middle_bytes, run,
                      (size_t)middle_bytes);
        out += middle_bytes;
        if (!is_short) kn__rows_fill(out, row_bytes, value, 0, run, j->bytes, j->right);
    }
}

void kn__pad_run(const kn_op_call *call, const kn_attr_pad *attr) {
    pad_job j = pad_job_of(call, attr);
    kn__parallel_for(call->threads, kn__chunks(j.rows, j.rows_each), pad_rows, &j);
}

kn_status kn__host_pad(kn_op_call *call) {
    kn__pad_run(call, call->attr);
    return KN_OK;
}

/* --- with the axis's own elements --- */

typedef struct edge_job {
    char *out;
    const char *in;
    kn_dtype dtype;
    int mode;
    int64_t outer, n, before, after, inner; /* n: of the axis without padding */
    int64_t columns, columns_each, each;    /* a piece of work: of the inner, of the outer ones */
} edge_job;

static edge_job edge_job_of(const kn_op_call *call, const kn_tensor *small) {
    const kn_attr_pad_edge *attr = call->attr;
    enum { COLUMNS = 1024 };
    edge_job j = {.out = call->out[0]->data, .in = call->in[0]->data};
    j.dtype = (kn_dtype)small->dtype, j.mode = (int)attr->mode;
    j.n = small->dim[attr->axis], j.before = attr->before, j.after = attr->after;
    j.inner = j.outer = 1;
    for (int i = 0; i < attr->axis; i++) j.outer *= small->dim[i];
    for (int i = (int)attr->axis + 1; i < small->n_dims; i++) j.inner *= small->dim[i];
    j.columns_each = j.inner < COLUMNS ? j.inner : COLUMNS;
    j.columns = kn__chunks(j.inner, j.columns_each);
    j.each = rows_of((j.before + j.n + j.after) * j.columns_each * bytes_of(small));
    return j;
}

/* Columns first … first + n - 1, for `rows` outer indices. */
typedef void (*edge_fn)(const edge_job *j, int64_t outer, int64_t rows, int64_t first, int64_t n);

typedef struct edge_work {
    edge_job j;
    edge_fn run;
} edge_work;

static void edge_part(void *ctx, int64_t part) {
    const edge_work *w = ctx;
    const edge_job *j = &w->j;
    int64_t first = part % j->columns * j->columns_each, outer = part / j->columns * j->each;
    int64_t n = j->inner - first < j->columns_each ? j->inner - first : j->columns_each;
    w->run(j, outer, j->outer - outer < j->each ? j->outer - outer : j->each, first, n);
}

static void edge_run(int threads, const edge_job *j, edge_fn run) {
    edge_work w = {*j, run};
    kn__parallel_for(threads, kn__chunks(j->outer, j->each) * j->columns, edge_part, &w);
}

/* Each place of the axis for all outer indices at once, those inside it together. */
static void edge_copy(const edge_job *j, int64_t outer, int64_t rows, int64_t first, int64_t n) {
    int64_t bytes = (int64_t)kn_dtype_bytes(j->dtype), row = j->inner * bytes;
    int64_t from_stride = j->n * row, to_stride = (j->before + j->n + j->after) * row;
    const char *in = j->in + outer * from_stride + first * bytes;
    char *out = j->out + outer * to_stride + j->before * row + first * bytes;
    for (int64_t i = -j->before; i < j->n + j->after; i++) {
        bool all = i == 0 && n == j->inner;
        int64_t from = kn__pad_source(j->mode, j->n, i), size = all ? from_stride : n * bytes;
        kn__rows_copy(out + i * row, to_stride, in + from * row, from_stride, rows, (size_t)size);
        if (all) i = j->n - 1;
    }
}

kn_status kn__host_pad_edge(kn_op_call *call) {
    edge_job j = edge_job_of(call, call->in[0]);
    edge_run(call->threads, &j, edge_copy);
    return KN_OK;
}

/* An element's own gradient, then those of its copies, in order. */
#define EDGE_ADD(type)                                                                             \
    static void edge_add_one_##type(const edge_job *j, int64_t outer, int64_t first, int64_t n) {  \
        const type *g = (const type *)(const void *)j->in;                                         \
        type *out = (type *)(void *)j->out + outer * j->n * j->inner + first;                      \
        g += (outer * (j->before + j->n + j->after) + j->before) * j->inner + first;               \
        for (int64_t i = 0; i < j->n; i++)                                                         \
            for (int64_t c = 0; c < n; c++) out[i * j->inner + c] = g[i * j->inner + c];           \
        for (int64_t i = -j->before; i < j->n + j->after; i++) {                                   \
            if (i == 0) i = j->n;                                                                  \
            if (i == j->n + j->after) break;                                                       \
            type *to = out + kn__pad_source(j->mode, j->n, i) * j->inner;                          \
            for (int64_t c = 0; c < n; c++) to[c] += g[i * j->inner + c];                          \
        }                                                                                          \
    }
EDGE_ADD(float)
EDGE_ADD(double)

/* The same in f32, rounded once. */
static void edge_add_one_halves(const edge_job *j, int64_t outer, int64_t first, int64_t n) {
    const uint16_t *g = (const uint16_t *)(const void *)j->in;
    uint16_t *out = (uint16_t *)(void *)j->out + outer * j->n * j->inner + first;
    bool f16 = j->dtype == KN_F16;
    g += (outer * (j->before + j->n + j->after) + j->before) * j->inner + first;
    for (int64_t i = 0; i < j->n; i++) {
        int64_t from[2], count[2];
        kn__pad_copies(j->mode, j->n, j->before, j->after, i, from, count);
        for (int64_t c = 0; c < n; c++) {
            uint16_t own = g[i * j->inner + c];
            float sum = f16 ? kn__f16_to_f32(own) : kn__bf16_to_f32(own);
            for (int64_t k = 0; k < count[0] + count[1]; k++) {
                int64_t at = k < count[0] ? from[0] + k : from[1] + k - count[0];
                uint16_t copy = g[at * j->inner + c];
                sum += f16 ? kn__f16_to_f32(copy) : kn__bf16_to_f32(copy);
            }
            out[i * j->inner + c] = f16 ? kn__f32_to_f16(sum) : kn__f32_to_bf16(sum);
        }
    }
}

#define EDGE_ADD_ROWS(name)                                                                        \
    static void edge_add_##name(const edge_job *j, int64_t outer, int64_t rows, int64_t first,     \
                                int64_t n) {                                                       \
        for (int64_t i = outer; i < outer + rows; i++) edge_add_one_##name(j, i, first, n);        \
    }
EDGE_ADD_ROWS(float)
EDGE_ADD_ROWS(double)
EDGE_ADD_ROWS(halves)

kn_status kn__host_pad_edge_back(kn_op_call *call) {
    edge_job j = edge_job_of(call, call->out[0]);
    edge_run(call->threads, &j,
             j.dtype == KN_F32   ? edge_add_float
             : j.dtype == KN_F64 ? edge_add_double
                                 : edge_add_halves);
    return KN_OK;
}

/* --- triangles --- */

typedef struct triangle_job {
    char *out;
    const char *x;
    size_t bytes;
    bool upper;
    int64_t rows, columns, diagonal; /* rows: of one matrix */
    int64_t all, rows_each;
} triangle_job;

static void triangle_rows(void *ctx, int64_t part) {
    const triangle_job *j = ctx;
    int64_t to = (part + 1) * j->rows_each, n = j->columns;
    for (int64_t row = part * j->rows_each; row < to && row < j->all; row++) {
        int64_t cut = row % j->rows + j->diagonal + !j->upper; /* the columns before it */
        cut = cut < 0 ? 0 : cut > n ? n : cut;
        size_t left = (size_t)cut * j->bytes, all = (size_t)n * j->bytes;
        char *out = j->out + (size_t)row * all;
        const char *x = j->x + (size_t)row * all;
        if (j->upper) {
            memset(out, 0, left);
            memcpy(out + left, x + left, all - left);
        } else {
            memcpy(out, x, left);
            memset(out + left, 0, all - left);
        }
    }
}

kn_status kn__host_triangle(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    triangle_job j = {.out = call->out[0]->data, .x = x->data, .bytes = (size_t)bytes_of(x)};
    j.upper = call->op == KN_OP_triu;
    j.rows = x->dim[x->n_dims - 2], j.columns = x->dim[x->n_dims - 1];
    j.diagonal = ((const kn_attr_triangle *)call->attr)->diagonal;
    j.all = x->n / j.columns;
    j.rows_each = rows_of(j.columns * bytes_of(x));
    kn__parallel_for(call->threads, kn__chunks(j.all, j.rows_each), triangle_rows, &j);
    return KN_OK;
}

/* --- numbers in a row --- */

enum { NUMBERS = 1 << 14 }; /* to a piece of work */

/* Numbers first … first + n - 1; counters of 32 bits are converted in a vector. */
static void numbers(double *to, const kn_op_call *call, int64_t first, int n) {
    const kn_attr_make *attr = call->attr;
    double a = attr->a, b = attr->b;
    if (call->op == KN_OP_arange) {
        for (int i = 0; i < n; i++) to[i] = kn__arange_at(a, b, (double)first + i);
        return;
    }
    int64_t all = call->out[0]->n, half = (all + 1) / 2 - first;
    if (kn__linspace_is_far(a, b)) {
        for (int i = 0; i < n; i++) to[i] = kn__linspace_at(a, b, all, first + i);
        return;
    }
    int cut = half < 0 ? 0 : half < n ? (int)half : n;
    double step = kn__linspace_step(a, b, all), last = (double)(all - 1 - first);
    for (int i = 0; i < cut; i++) to[i] = kn__arange_at(a, step, (double)first + i);
    for (int i = cut; i < n; i++) to[i] = kn__linspace_from_end(b, step, last - i);
}

static void arange_part(void *ctx, int64_t part) {
    enum { BLOCK = 1024 };
    const kn_op_call *call = ctx;
    const kn_tensor *out = call->out[0];
    int64_t at = part * NUMBERS, end = at + NUMBERS < out->n ? at + NUMBERS : out->n;
    double block[BLOCK];
    for (int n; at < end; at += n) {
        n = end - at < BLOCK ? (int)(end - at) : BLOCK;
        numbers(block, call, at, n);
        kn__loops(KN_F64)->cast_to((char *)out->data + at * bytes_of(out), block,
                                   (kn_dtype)out->dtype, n);
    }
}

kn_status kn__host_arange(kn_op_call *call) {
    kn__parallel_for(call->threads, kn__chunks(call->out[0]->n, NUMBERS), arange_part, call);
    return KN_OK;
}
