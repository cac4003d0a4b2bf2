#include "host/base/walk.h"

#include <string.h>

#include "host/base/loops.h"
#include "host/base/short_rows.h"

/* Strides of `in` seen in the result's dimensions: 0 where it is stretched or missing. */
static void broadcast_strides(int64_t stride[], const kn_tensor *out, const kn_tensor *in) {
    int lead = out->n_dims - in->n_dims;
    int64_t at = 1;
    for (int i = 0; i < lead; i++) stride[i] = 0;
    for (int i = in->n_dims - 1; i >= 0; i--) {
        stride[lead + i] = in->dim[i] == 1 ? 0 : at;
        at *= in->dim[i];
    }
}

/* Whether dimension `outer` of every operand continues where `inner`, of n elements, ends. */
static bool follows(int64_t stride[][KN_DIMS_MAX], int n_in, int outer, int inner, int64_t n) {
    for (int k = 0; k < n_in; k++) {
        if (stride[k][outer] != stride[k][inner] * n) return false;
    }
    return true;
}

/* Merges dimensions; stride is written. */
static void init(kn__walk *w, int n_dims, const int64_t dim_of[], int64_t stride[][KN_DIMS_MAX],
                 int n_in) {
    int64_t dim[KN_DIMS_MAX];
    if (n_dims > KN_DIMS_MAX || n_in > WALK_OPERANDS) __builtin_unreachable();
    int n = 0; /* merged dimensions, kept in place at the front */
    for (int i = 0; i < n_dims; i++) {
        if (dim_of[i] == 1) continue;
        bool merge = n > 0 && follows(stride, n_in, n - 1, i, dim_of[i]);
        if (!merge) n++;
        dim[n - 1] = merge ? dim[n - 1] * dim_of[i] : dim_of[i];
        for (int k = 0; k < n_in; k++) stride[k][n - 1] = stride[k][i];
    }
    w->n_operands = n_in;
    w->n_outer = n ? n - 1 : 0;
    w->inner = n ? dim[n - 1] : 1;
    for (int k = 0; k < n_in; k++) {
        w->step[k] = n ? (int)stride[k][n - 1] : 1;
        for (int i = 0; i < w->n_outer && i < KN_DIMS_MAX; i++) w->stride[k][i] = stride[k][i];
    }
    for (int i = 0; i < w->n_outer; i++) w->outer[i] = dim[i];
}

void kn__walk_init(kn__walk *w, const kn_tensor *out, kn_tensor *const in[], int n_in) {
    int64_t stride[WALK_OPERANDS][KN_DIMS_MAX];
    if (n_in > WALK_OPERANDS) __builtin_unreachable();
    for (int k = 0; k < n_in; k++) broadcast_strides(stride[k], out, in[k]);
    init(w, out->n_dims, out->dim, stride, n_in);
}

void kn__walk_init_strides(kn__walk *w, int n_dims, const int64_t dim[], const int64_t stride[]) {
    int64_t one[1][KN_DIMS_MAX];
    for (int i = 0; i < n_dims && i < KN_DIMS_MAX; i++) one[0][i] = stride[i];
    init(w, n_dims, dim, one, 1);
}

typedef struct cursor {
    int64_t index[KN_DIMS_MAX], base[WALK_OPERANDS];
} cursor;

static void seek(cursor *c, const kn__walk *w, int64_t row) {
    for (int k = 0; k < w->n_operands; k++) c->base[k] = 0;
    for (int i = w->n_outer - 1; i >= 0; i--) {
        c->index[i] = row % w->outer[i];
        row /= w->outer[i];
        for (int k = 0; k < w->n_operands; k++) c->base[k] += c->index[i] * w->stride[k][i];
    }
}

/* `rows` further on, which the last outer dimension has. */
static inline void next_rows(cursor *c, const kn__walk *w, int64_t rows) {
    for (int i = w->n_outer - 1; i >= 0; i--, rows = 1) {
        c->index[i] += rows;
        bool wraps = c->index[i] == w->outer[i];
        int64_t steps = wraps ? rows - w->outer[i] : rows;
        for (int k = 0; k < w->n_operands; k++) c->base[k] += steps * w->stride[k][i];
        if (!wraps) return;
        c->index[i] = 0;
    }
}

void kn__walk_range(const kn__walk *w, int64_t from, int64_t to, kn__walk_row_fn row,
                    const void *ctx) {
    cursor c;
    seek(&c, w, from / w->inner);
    int64_t column = from % w->inner;
    while (from < to) {
        int64_t n = w->inner - column < to - from ? w->inner - column : to - from;
        int64_t at[WALK_OPERANDS];
        for (int k = 0; k < w->n_operands; k++) at[k] = c.base[k] + column * w->step[k];
        row(ctx, from, at, n);
        from += n;
        column = 0;
        next_rows(&c, w, 1);
    }
}

/* Whole rows of the last outer dimension at once, and the parts of rows before and after them. */
void kn__walk_copy(const kn__walk *w, int k, char *out, const char *x, size_t bytes, int64_t from,
                   int64_t to) {
    cursor c;
    int64_t column = from % w->inner, last = w->n_outer - 1;
    seek(&c, w, from / w->inner);
    while (from < to) {
        int64_t rows = column ? 0 : (to - from) / w->inner, left, n = w->inner;
        left = last < 0 ? 1 : w->outer[last] - c.index[last];
        if (rows == 0) n = w->inner - column < to - from ? w->inner - column : to - from;
        rows = rows == 0 ? 1 : rows < left ? rows : left;
        const char *row = x + (c.base[k] + column * w->step[k]) * (int64_t)bytes;
        int64_t stride = last < 0 ? 0 : w->stride[k][last] * (int64_t)bytes;
        int64_t row_bytes = n * (int64_t)bytes;
        if (w->step[k])
            kn__rows_copy(out, row_bytes, row, stride, rows, (size_t)row_bytes);
        else
            kn__rows_fill(out, row_bytes, row, stride, rows, bytes, n);
        out += rows * row_bytes;
        from += rows * n;
        column = 0;
        next_rows(&c, w, rows);
    }
}

/* An element of 1, 2, 4 or 8 bytes, as often as eight bytes hold it. */
static uint64_t eight_bytes_of(const char *x, size_t bytes) {
    uint64_t v = 0;
    switch (bytes) {
        case 1:
            return (uint8_t)*x * UINT64_C(0x0101010101010101);
        case 2:
            memcpy(&v, x, 2);
            return v * UINT64_C(0x0001000100010001);
        case 4:
            memcpy(&v, x, 4);
            return v | v << 32;
        default:
            memcpy(&v, x, 8);
            return v;
    }
}

void kn__walk_repeat(char *out, const char *x, size_t bytes, int64_t n) {
    uint64_t line[8], v = eight_bytes_of(x, bytes);
    size_t size = (size_t)n * bytes;
    for (int i = 0; i < 8; i++) line[i] = v;
    if (size < sizeof line)
        memcpy(out, line, size);
    else
        kn__loops(KN_F32)->fill(out, (const char *)line, size);
}
