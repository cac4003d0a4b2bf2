/* Movement: copies in another order, of any dtype, by the size of an element. */
#include <string.h>

#include "../kernel.h"
#include "chunks.h"
#include "rows.h"
#include "walk.h"

enum { GRAIN_BYTES = 1 << 17 };

static size_t element(const kn_tensor *t) { return kn_dtype_bytes((kn_dtype)t->dtype); }

/* --- broadcast --- */

typedef struct broadcast_job {
    char *out;
    const char *x;
    const kn_row *add; /* NULL: copy */
    size_t bytes;
    int64_t n, grain;
    walk walk;
} broadcast_job;

static void broadcast_row(const void *ctx, int64_t at, const int64_t from[], int64_t n) {
    const broadcast_job *j = ctx;
    char *out = j->out + (size_t)at * j->bytes;
    const char *x = j->x + (size_t)from[0] * j->bytes;
    if (j->add)
        (j->walk.step[0] ? j->add->f : j->add->vs)(out, (const void *const[]){out, x}, n, 0, 0,
                                                   false);
    else if (j->walk.step[0])
        memcpy(out, x, (size_t)n * j->bytes);
    else
        walk_repeat(out, x, j->bytes, n);
}

static void broadcast_part(void *ctx, int64_t i) {
    const broadcast_job *j = ctx;
    int64_t to = (i + 1) * j->grain;
    walk_range(&j->walk, i * j->grain, to < j->n ? to : j->n, broadcast_row, j);
}

kn_status kn__host_broadcast(kn_op_call *call) {
    broadcast_job j = {.out = call->out[0]->data,
                       .x = call->in[0]->data,
                       .bytes = element(call->out[0]),
                       .n = call->out[0]->n};
    if (call->accumulate & 1) j.add = &kn__rows((kn_dtype)call->out[0]->dtype)[KN_OP_add];
    j.grain = GRAIN_BYTES / (int64_t)j.bytes;
    walk_init(&j.walk, call->out[0], call->in, 1);
    kn__parallel_for(call->threads, kn__chunks(j.n, j.grain), broadcast_part, &j);
    return KN_OK;
}

/* --- boxes: a block of a larger array, copied out of it or into it, or added to it --- */

typedef struct box {
    char *to;
    const char *from;
    int n_outer;
    int64_t outer[KN_DIMS_MAX], to_stride[KN_DIMS_MAX], from_stride[KN_DIMS_MAX]; /* in bytes */
    size_t row_bytes;
    int64_t rows, rows_each;
    kn_row_loop add; /* NULL: copy */
    int64_t row_n;   /* elements of a row, with `add` */
} box;

/* `inner` is the block's shape, `whole` the array's; whole trailing dimensions join the row. */
static void box_init(box *b, const kn_tensor *inner, const kn_tensor *whole, bool into_whole) {
    size_t row = element(inner);
    int last = inner->n_dims - 1;
    int64_t whole_stride = (int64_t)row, inner_stride = (int64_t)row;
    for (; last >= 0; last--) {
        bool full = inner->dim[last] == whole->dim[last];
        row *= (size_t)inner->dim[last];
        whole_stride *= whole->dim[last];
        inner_stride *= inner->dim[last];
        if (!full) break;
    }
    b->row_bytes = row;
    b->add = NULL;
    b->n_outer = last > 0 ? last : 0;
    b->rows = 1;
    for (int i = b->n_outer - 1; i >= 0; i--) {
        b->outer[i] = inner->dim[i];
        b->to_stride[i] = into_whole ? whole_stride : inner_stride;
        b->from_stride[i] = into_whole ? inner_stride : whole_stride;
        whole_stride *= whole->dim[i];
        inner_stride *= inner->dim[i];
        b->rows *= inner->dim[i];
    }
    b->rows_each = GRAIN_BYTES / (int64_t)(row + 1) + 1;
}

static void box_part(void *ctx, int64_t part) {
    const box *b = ctx;
    int64_t to = (part + 1) * b->rows_each;
    if (to > b->rows) to = b->rows;
    for (int64_t row = part * b->rows_each; row < to; row++) {
        int64_t rest = row, to_at = 0, from_at = 0;
        for (int i = b->n_outer - 1; i >= 0; i--) {
            int64_t index = i ? rest % b->outer[i] : rest;
            rest = i ? rest / b->outer[i] : 0;
            to_at += index * b->to_stride[i];
            from_at += index * b->from_stride[i];
        }
        char *row_to = b->to + to_at;
        const char *row_from = b->from + from_at;
        if (b->add)
            b->add(row_to, (const void *const[]){row_to, row_from}, b->row_n, 0, 0, false);
        else
            memcpy(row_to, row_from, b->row_bytes);
    }
}

static void box_copy(int threads, box *b) {
    kn__parallel_for(threads, kn__chunks(b->rows, b->rows_each), box_part, b);
}

/* Bytes from the array's begin to the block's. */
static int64_t box_begin(const kn_tensor *whole, const int64_t start[]) {
    int64_t at = 0, stride = (int64_t)element(whole);
    for (int i = whole->n_dims - 1; i >= 0; i--) {
        at += start[i] * stride;
        stride *= whole->dim[i];
    }
    return at;
}

/* Adds where the call says so. */
static void box_run(const kn_op_call *call, box *b, const kn_tensor *block) {
    if (call->accumulate & 1) {
        b->add = kn__rows((kn_dtype)block->dtype)[KN_OP_add].f;
        b->row_n = (int64_t)(b->row_bytes / element(block));
    }
    box_copy(call->threads, b);
}

kn_status kn__host_slice(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    const kn_tensor *x = call->in[0];
    box b;
    box_init(&b, call->out[0], x, false);
    b.to = call->out[0]->data;
    b.from = (const char *)x->data + box_begin(x, attr->start);
    box_run(call, &b, call->out[0]);
    return KN_OK;
}

kn_status kn__host_slice_back(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    const kn_tensor *g = call->in[0], *out = call->out[0];
    if (!(call->accumulate & 1)) memset(out->data, 0, (size_t)out->n * element(out));
    if (g->n == 0) return KN_OK;
    box b;
    box_init(&b, g, out, true);
    b.to = (char *)out->data + box_begin(out, attr->start);
    b.from = g->data;
    box_run(call, &b, g);
    return KN_OK;
}

kn_status kn__host_concat(kn_op_call *call) {
    const kn_attr_concat *attr = call->attr;
    int64_t start[KN_DIMS_MAX] = {0}, axis = attr->axis;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *x = call->in[i];
        if (x->n == 0) continue;
        box b;
        box_init(&b, x, call->out[0], true);
        b.to = (char *)call->out[0]->data + box_begin(call->out[0], start);
        b.from = x->data;
        box_copy(call->threads, &b);
        start[axis] += x->dim[axis];
    }
    return KN_OK;
}

/* --- transpose --- */

typedef struct transpose_job {
    char *out;
    const char *x;
    size_t bytes;
    int n_dims;                                    /* merged; out's order */
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX]; /* x's, in elements */
    int column;                                    /* out's dimension along which x is contiguous */
    int64_t tiles_i, tiles_j, tiles;               /* of dimensions `column` and the last, of all */
    int64_t tiles_each;
} transpose_job;

enum { TILE = 32 };

static void merge_dims(transpose_job *j, const kn_tensor *x, const kn_tensor *out,
                       const int64_t axes[]) {
    int64_t stride[KN_DIMS_MAX], at = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        stride[i] = at;
        at *= x->dim[i];
    }
    int n = 0;
    for (int i = 0; i < out->n_dims; i++) {
        int64_t s = stride[axes[i]], d = out->dim[i];
        if (d == 1) continue;
        if (n && j->stride[n - 1] == s * d) {
            j->dim[n - 1] *= d;
            j->stride[n - 1] = s;
        } else {
            j->dim[n] = d;
            j->stride[n++] = s;
        }
    }
    j->n_dims = n;
}

#define TRANSPOSE_TILE(type)                                                                       \
    static void tile_##type(void *to, const void *from, int64_t rows, int64_t columns,             \
                            int64_t to_stride, int64_t from_stride) {                              \
        type *y = to;                                                                              \
        const type *x = from;                                                                      \
        for (int64_t r = 0; r < rows; r++)                                                         \
            for (int64_t c = 0; c < columns; c++) y[r * to_stride + c] = x[c * from_stride + r];   \
    }
TRANSPOSE_TILE(uint8_t)
TRANSPOSE_TILE(uint16_t)
TRANSPOSE_TILE(uint32_t)
TRANSPOSE_TILE(uint64_t)

static void transpose_tile(const transpose_job *j, int64_t tile) {
    int last = j->n_dims - 1;
    int64_t c0 = tile % j->tiles_j * TILE, rest = tile / j->tiles_j, r0 = rest % j->tiles_i * TILE;
    rest /= j->tiles_i;
    int64_t rows = j->dim[j->column] - r0 < TILE ? j->dim[j->column] - r0 : TILE,
            columns = j->dim[last] - c0 < TILE ? j->dim[last] - c0 : TILE;
    int64_t out_at = c0, x_at = c0 * j->stride[last] + r0, out_stride = j->dim[last],
            row_stride = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (i == j->column) {
            row_stride = out_stride;
            out_at += r0 * out_stride;
        } else {
            out_at += rest % j->dim[i] * out_stride;
            x_at += rest % j->dim[i] * j->stride[i];
            rest /= j->dim[i];
        }
        out_stride *= j->dim[i];
    }
    char *to = j->out + (size_t)out_at * j->bytes;
    const char *from = j->x + (size_t)x_at * j->bytes;
    switch (j->bytes) {
        case 1:
            tile_uint8_t(to, from, rows, columns, row_stride, j->stride[last]);
            return;
        case 2:
            tile_uint16_t(to, from, rows, columns, row_stride, j->stride[last]);
            return;
        case 4:
            tile_uint32_t(to, from, rows, columns, row_stride, j->stride[last]);
            return;
        default:
            tile_uint64_t(to, from, rows, columns, row_stride, j->stride[last]);
    }
}

static void transpose_part(void *ctx, int64_t part) {
    const transpose_job *j = ctx;
    int64_t to = (part + 1) * j->tiles_each;
    for (int64_t tile = part * j->tiles_each; tile < to && tile < j->tiles; tile++) {
        transpose_tile(j, tile);
    }
}

/* The last dimension stays last: rows are moved whole. */
static void move_rows(int threads, const transpose_job *j) {
    int last = j->n_dims - 1;
    int64_t bytes = (int64_t)j->bytes, to_stride = j->dim[last] * bytes;
    box b = {.to = j->out,
             .from = j->x,
             .n_outer = last,
             .rows = 1,
             .row_bytes = (size_t)(j->dim[last] * bytes)};
    for (int i = last - 1; i >= 0; i--) {
        b.outer[i] = j->dim[i];
        b.to_stride[i] = to_stride;
        b.from_stride[i] = j->stride[i] * bytes;
        to_stride *= j->dim[i];
        b.rows *= j->dim[i];
    }
    b.rows_each = GRAIN_BYTES / (int64_t)(b.row_bytes + 1) + 1;
    box_copy(threads, &b);
}

kn_status kn__host_transpose(kn_op_call *call) {
    const kn_attr_transpose *attr = call->attr;
    const kn_tensor *x = call->in[0], *out = call->out[0];
    transpose_job j = {.out = out->data, .x = x->data, .bytes = element(x)};
    merge_dims(&j, x, out, attr->axis);
    if (j.n_dims == 0 || (j.n_dims == 1 && j.stride[0] == 1)) {
        memcpy(out->data, x->data, (size_t)x->n * j.bytes);
        return KN_OK;
    }
    if (j.stride[j.n_dims - 1] == 1) {
        move_rows(call->threads, &j);
        return KN_OK;
    }
    while (j.stride[j.column] != 1) j.column++;
    j.tiles_i = kn__chunks(j.dim[j.column], TILE);
    j.tiles_j = kn__chunks(j.dim[j.n_dims - 1], TILE);
    j.tiles = j.tiles_i * j.tiles_j;
    for (int i = 0; i < j.n_dims - 1; i++) {
        if (i != j.column) j.tiles *= j.dim[i];
    }
    j.tiles_each = GRAIN_BYTES / (TILE * TILE * (int64_t)j.bytes);
    kn__parallel_for(call->threads, kn__chunks(j.tiles, j.tiles_each), transpose_part, &j);
    return KN_OK;
}
