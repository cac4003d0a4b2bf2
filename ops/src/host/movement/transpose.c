/* Transposes: blocks of one cache line each way, so that every line is read and written whole. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/movement/strided.h"
#include "kernel.h"

enum { TILE = 64, LINE_BYTES = 64, GRAIN_BYTES = 1 << 17 };

typedef struct transpose_job {
    char *out;
    const char *x;
    kn_dtype dtype;
    size_t bytes;
    int n_dims;                                    /* merged; out's order */
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX]; /* x's, in elements */
    int column;                                    /* out's dimension along which x is contiguous */
    int64_t tiles_i, tiles_j, tiles;               /* of dimensions `column` and the last, of all */
    int64_t tiles_each;
} transpose_job;

static void merge_dims(transpose_job *j, const kn_tensor *x, const kn_tensor *out,
                       const int64_t axes[]) {
    int64_t stride[KN_DIMS_MAX];
    kn__strides(stride, x);
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

/* --- one tile: to[r][c] = from[c][r] --- */

#define TRANSPOSE_ANY(type)                                                                        \
    static void any_##type(type *y, const type *x, int64_t rows, int64_t columns,                  \
                           int64_t to_stride, int64_t from_stride) {                               \
        for (int64_t r = 0; r < rows; r++)                                                         \
            for (int64_t c = 0; c < columns; c++) y[r * to_stride + c] = x[c * from_stride + r];   \
    }
TRANSPOSE_ANY(uint8_t)
TRANSPOSE_ANY(uint16_t)
TRANSPOSE_ANY(uint32_t)
TRANSPOSE_ANY(uint64_t)

/* A line of elements each way, through a buffer: rows whose distance is a power of two would fight
 * for the same places in the cache. */
typedef uint8_t vec16 __attribute__((vector_size(16)));
typedef uint16_t vec8 __attribute__((vector_size(16)));
typedef uint32_t vec4 __attribute__((vector_size(16)));
typedef uint64_t vec2 __attribute__((vector_size(16)));
enum { LINE_4 = LINE_BYTES / 4, LINE_8 = LINE_BYTES / 8 };

/* Of 1 and 2 bytes a square of vectors, as most sizes have some. Interleaving the first half of the
 * vectors with the second one log2(lanes) times transposes them. */
#define TRANSPOSE_SQUARE(type, vec, lanes, low, high)                                              \
    static void block_##type(type *y, const type *x, int64_t to_stride, int64_t from_stride) {     \
        enum { HALF = (lanes) / 2 };                                                               \
        vec a[lanes], b[lanes];                                                                    \
        for (int c = 0; c < lanes; c++) memcpy(&a[c], x + c * from_stride, sizeof a[c]);           \
        for (int round = 1; round < lanes; round *= 2) {                                           \
            for (int k = 0; k < HALF; k++) {                                                       \
                b[2 * k] = low(a[k], a[k + HALF]);                                                 \
                b[2 * k + 1] = high(a[k], a[k + HALF]);                                            \
            }                                                                                      \
            memcpy(a, b, sizeof a);                                                                \
        }                                                                                          \
        for (int r = 0; r < lanes; r++) memcpy(y + r * to_stride, &a[r], sizeof a[r]);             \
    }
#define LOW_8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_16(a, b)                                                                               \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_16(a, b)                                                                              \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
TRANSPOSE_SQUARE(uint8_t, vec16, 16, LOW_16, HIGH_16)
TRANSPOSE_SQUARE(uint16_t, vec8, 8, LOW_8, HIGH_8)

static void block_uint32_t(uint32_t *y, const uint32_t *x, int64_t to_stride, int64_t from_stride) {
    vec4 in[LINE_4][4];
    for (int c = 0; c < LINE_4; c++) memcpy(in[c], x + c * from_stride, LINE_BYTES);
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) {
            vec4 a = in[4 * c][r], b = in[4 * c + 1][r], d = in[4 * c + 2][r], e = in[4 * c + 3][r];
            vec4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            vec4 de = __builtin_shufflevector(d, e, 0, 4, 1, 5);
            vec4 AB = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            vec4 DE = __builtin_shufflevector(d, e, 2, 6, 3, 7);
            vec4 out[4] = {__builtin_shufflevector(ab, de, 0, 1, 4, 5),
                           __builtin_shufflevector(ab, de, 2, 3, 6, 7),
                           __builtin_shufflevector(AB, DE, 0, 1, 4, 5),
                           __builtin_shufflevector(AB, DE, 2, 3, 6, 7)};
            uint32_t *to = y + 4 * r * to_stride + 4 * c;
            for (int k = 0; k < 4; k++) memcpy(to + k * to_stride, &out[k], sizeof out[k]);
        }
    }
}

static void block_uint64_t(uint64_t *y, const uint64_t *x, int64_t to_stride, int64_t from_stride) {
    vec2 in[LINE_8][4];
    for (int c = 0; c < LINE_8; c++) memcpy(in[c], x + c * from_stride, LINE_BYTES);
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) {
            vec2 a = in[2 * c][r], b = in[2 * c + 1][r];
            vec2 low = __builtin_shufflevector(a, b, 0, 2);
            vec2 high = __builtin_shufflevector(a, b, 1, 3);
            uint64_t *to = y + 2 * r * to_stride + 2 * c;
            memcpy(to, &low, sizeof low);
            memcpy(to + to_stride, &high, sizeof high);
        }
    }
}

/* Blocks go across the result, or down where its rows are short, along lines of x then. Each asks
 * for its lines of the tile that is `next` elements after x: too many places for the processor to
 * foresee. Copies the elements beside whole blocks one by one. */
#define TRANSPOSE_TILE(type, line)                                                                 \
    static void tile_##type(type *y, const type *x, int64_t rows, int64_t columns,                 \
                            int64_t to_stride, int64_t from_stride, int64_t next) {                \
        int64_t r_end = rows / line * line, c_end = columns / line * line;                         \
        if (r_end == 0 || c_end == 0) {                                                            \
            any_##type(y, x, rows, columns, to_stride, from_stride);                               \
            return;                                                                                \
        }                                                                                          \
        bool down = to_stride <= TILE;                                                             \
        for (int64_t o = 0; o < (down ? c_end : r_end); o += line)                                 \
            for (int64_t i = 0; i < (down ? r_end : c_end); i += line) {                           \
                int64_t r = down ? i : o, c = down ? o : i;                                        \
                for (int64_t k = c; k < c + (line); k++)                                           \
                    __builtin_prefetch(x + next + k * from_stride + r);                            \
                block_##type(y + r * to_stride + c, x + c * from_stride + r, to_stride,            \
                             from_stride);                                                         \
            }                                                                                      \
        any_##type(y + c_end, x + c_end * from_stride, rows, columns - c_end, to_stride,           \
                   from_stride);                                                                   \
        any_##type(y + r_end * to_stride, x + r_end, rows - r_end, c_end, to_stride, from_stride); \
    }
TRANSPOSE_TILE(uint8_t, 16)
TRANSPOSE_TILE(uint16_t, 8)
TRANSPOSE_TILE(uint32_t, LINE_4)
TRANSPOSE_TILE(uint64_t, LINE_8)

typedef struct place {
    int64_t to, from, stride; /* elements; stride: between rows of the tile, of the result */
    int64_t rows, columns;
} place;

static place place_of(const transpose_job *j, int64_t tile) {
    int last = j->n_dims - 1;
    int64_t c0 = tile % j->tiles_j * TILE, rest = tile / j->tiles_j, r0 = rest % j->tiles_i * TILE;
    place p = {.to = c0, .from = c0 * j->stride[last] + r0};
    p.rows = j->dim[j->column] - r0 < TILE ? j->dim[j->column] - r0 : TILE;
    p.columns = j->dim[last] - c0 < TILE ? j->dim[last] - c0 : TILE;
    rest /= j->tiles_i;
    int64_t stride = j->dim[last];
    for (int i = last - 1; i >= 0; i--) {
        if (i == j->column) {
            p.stride = stride;
            p.to += r0 * stride;
        } else {
            p.to += rest % j->dim[i] * stride;
            p.from += rest % j->dim[i] * j->stride[i];
            rest /= j->dim[i];
        }
        stride *= j->dim[i];
    }
    return p;
}

static void transpose_tile(const transpose_job *j, const place *p, int64_t next) {
    void *to = j->out + (size_t)p->to * j->bytes;
    const void *from = j->x + (size_t)p->from * j->bytes;
    const int64_t stride = j->stride[j->n_dims - 1];
    switch (j->bytes) {
        case 1:
            tile_uint8_t(to, from, p->rows, p->columns, p->stride, stride, next);
            return;
        case 2:
            tile_uint16_t(to, from, p->rows, p->columns, p->stride, stride, next);
            return;
        case 4:
            tile_uint32_t(to, from, p->rows, p->columns, p->stride, stride, next);
            return;
        default:
            tile_uint64_t(to, from, p->rows, p->columns, p->stride, stride, next);
    }
}

static void transpose_part(void *ctx, int64_t part) {
    const transpose_job *j = ctx;
    int64_t end = (part + 1) * j->tiles_each;
    if (end > j->tiles) end = j->tiles;
    place here = place_of(j, part * j->tiles_each);
    for (int64_t tile = part * j->tiles_each; tile < end; tile++) {
        place next = tile + 1 < end ? place_of(j, tile + 1) : here;
        transpose_tile(j, &here, next.from - here.from);
        here = next;
    }
}

/* The last dimension stays last: rows are moved whole. */
static void move_rows(int threads, const transpose_job *j) {
    kn__strided_copy c = {.to = j->out, .from = j->x, .dtype = j->dtype, .n_dims = j->n_dims};
    int64_t step = 1;
    for (int i = j->n_dims - 1; i >= 0; i--) {
        c.dim[i] = j->dim[i];
        c.to_stride[i] = step;
        c.from_stride[i] = j->stride[i];
        step *= j->dim[i];
    }
    kn__strided_copy_run(threads, &c);
}

kn_status kn__host_transpose(kn_op_call *call) {
    const kn_attr_transpose *attr = call->attr;
    const kn_tensor *x = call->in[0], *out = call->out[0];
    transpose_job j = {.out = out->data, .x = x->data, .dtype = (kn_dtype)x->dtype};
    j.bytes = kn_dtype_bytes(j.dtype);
    merge_dims(&j, x, out, attr->axis);
    if (j.n_dims == 0 || j.stride[j.n_dims - 1] == 1) {
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
