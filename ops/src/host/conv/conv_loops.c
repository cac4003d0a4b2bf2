/* Images to columns and back. Column matrices have a row for every element (c, window) of the
 * weight, and a column for every position of the result, `rows` result rows from `first` on. */
#include <string.h>

#include "host/base/loops.h"
#include "host/base/transpose.h"

/* Where window element j of one dimension looks, for result position 0. */
static inline int64_t window_at(const kn__conv_sizes *s, int d, int64_t j) {
    return (s->flip ? s->window[d] - 1 - j : j) * s->dilation[d] - s->padding[d];
}

/* The positions p in [0, out) with 0 <= p·stride + at < in: [low, high). */
static inline void valid_range(int64_t *low, int64_t *high, int64_t out, int64_t in, int64_t at,
                               int64_t stride) {
    int64_t l = at >= 0 ? 0 : (-at + stride - 1) / stride;
    int64_t h = in > at ? (in - at + stride - 1) / stride : 0;
    *low = l < out ? l : out;
    *high = h > out ? out : (h < *low ? *low : h);
}

enum { BLOCK = 32 / sizeof(real) };
typedef real block_vec __attribute__((vector_size(32)));

static inline block_vec load(const real *p) {
    block_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(real *p, block_vec v) { memcpy(p, &v, sizeof v); }

static inline void zero(real *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = 0;
}

/* Rows are short (8, 12, 24 elements): calling memcpy for each costs more than the copy. */
static inline void copy_rows(real *to, int64_t to_stride, const real *from, int64_t from_stride,
                             int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += from_stride) {
        int64_t i = 0;
        for (; i + BLOCK <= n; i += BLOCK) store(to + i, load(from + i));
        for (; i < n; i++) to[i] = from[i];
    }
}

static inline void add_rows(real *to, int64_t to_stride, const real *from, int64_t from_stride,
                            int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += from_stride) {
        int64_t i = 0;
        for (; i + BLOCK <= n; i += BLOCK) store(to + i, load(to + i) + load(from + i));
        for (; i < n; i++) to[i] += from[i];
    }
}

/* What one window element reads of a plane, for result rows h … h + n - 1 of one depth slice: rows
 * low_row … high_row - 1 and columns low … high - 1 of the result lie inside; the first of them
 * reads at `from`. */
typedef struct view {
    int64_t low_row, high_row, low, high, from, row_stride;
} view;

static inline view view_of(const kn__conv_sizes *s, const int64_t at[3], int64_t d, int64_t h,
                           int64_t n) {
    view v;
    valid_range(&v.low_row, &v.high_row, s->out[1], s->in[1], at[1], s->stride[1]);
    valid_range(&v.low, &v.high, s->out[2], s->in[2], at[2], s->stride[2]);
    int64_t depth = d * s->stride[0] + at[0];
    if (v.low_row < h) v.low_row = h;
    if (v.high_row > h + n) v.high_row = h + n;
    if (depth < 0 || depth >= s->in[0] || v.high_row < v.low_row) v.low_row = v.high_row = h;
    v.from = (depth * s->in[1] + v.low_row * s->stride[1] + at[1]) * s->in[2] +
             v.low * s->stride[2] + at[2];
    v.row_stride = s->stride[1] * s->in[2];
    return v;
}

/* One window element's row of the column matrix, for one depth slice. `x`: its channel's plane. */
static void to_columns(const kn__conv_sizes *s, real *to, const real *x, const view *v, int64_t h,
                       int64_t n) {
    int64_t width = s->out[2], rows = v->high_row - v->low_row, inside = v->high - v->low;
    if (rows != n || inside != width) zero(to, n * width);
    if (rows <= 0 || inside <= 0) return;
    const real *from = x + v->from;
    to += (v->low_row - h) * width + v->low;
    if (s->stride[2] == 1 && inside == BLOCK) /* the length known to the compiler */
        copy_rows(to, width, from, v->row_stride, rows, BLOCK);
    else if (s->stride[2] == 1)
        copy_rows(to, width, from, v->row_stride, rows, inside);
    else
        for (int64_t r = 0; r < rows; r++, to += width, from += v->row_stride)
            for (int64_t i = 0; i < inside; i++) to[i] = from[i * s->stride[2]];
}

static void from_columns(const kn__conv_sizes *s, real *x, const real *from, const view *v) {
    int64_t width = s->out[2], rows = v->high_row - v->low_row, inside = v->high - v->low;
    if (rows <= 0 || inside <= 0) return;
    real *to = x + v->from;
    from += v->low_row * width + v->low;
    if (s->stride[2] == 1 && inside == BLOCK)
        add_rows(to, v->row_stride, from, width, rows, BLOCK);
    else if (s->stride[2] == 1)
        add_rows(to, v->row_stride, from, width, rows, inside);
    else
        for (int64_t r = 0; r < rows; r++, from += width, to += v->row_stride)
            for (int64_t i = 0; i < inside; i++) to[i * s->stride[2]] += from[i];
}

static void to_column_row(const kn__conv_sizes *s, real *to, const real *x, const int64_t at[3],
                          int64_t first, int64_t rows) {
    int64_t d = first / s->out[1], h = first % s->out[1];
    for (int64_t n; rows > 0; rows -= n, to += n * s->out[2], d++, h = 0) {
        n = s->out[1] - h < rows ? s->out[1] - h : rows;
        view v = view_of(s, at, d, h, n);
        to_columns(s, to, x, &v, h, n);
    }
}

static void from_column_row(const kn__conv_sizes *s, real *x, const real *from,
                            const int64_t at[3]) {
    for (int64_t d = 0; d < s->out[0]; d++, from += s->out[1] * s->out[2]) {
        view v = view_of(s, at, d, 0, s->out[1]);
        from_columns(s, x, from, &v);
    }
}

/* Windows that lie inside the image along its rows, and move by more than one element: what a row
 * of theirs reads is a matrix [out,window] in the image, which is transposed. */
static bool apart(const kn__conv_sizes *s) {
    return s->stride[2] > 1 && s->dilation[2] == 1 && !s->flip && s->padding[2] == 0 &&
           s->window[2] >= SIDE && s->out[2] >= SIDE &&
           (s->out[2] - 1) * s->stride[2] + s->window[2] <= s->in[2];
}

/* The rows of the column matrix of a row of the window, for one depth slice. */
static void to_columns_apart(const kn__conv_sizes *s, real *to, int64_t row_size, const real *x,
                             const view *v, int64_t h, int64_t n) {
    int64_t width = s->out[2];
    for (int64_t r = h; r < h + n; r++, to += width) {
        if (r >= v->low_row && r < v->high_row)
            transpose(to, row_size, x + v->from + (r - v->low_row) * v->row_stride, s->stride[2],
                      width, s->window[2]);
        else
            for (int64_t k = 0; k < s->window[2]; k++) zero(to + k * row_size, width);
    }
}

static void to_column_rows(const kn__conv_sizes *s, real *to, const real *x, int64_t at[3],
                           int64_t first, int64_t rows) {
    int64_t d = first / s->out[1], h = first % s->out[1], row_size = rows * s->out[2];
    for (int64_t n; rows > 0; rows -= n, to += n * s->out[2], d++, h = 0) {
        n = s->out[1] - h < rows ? s->out[1] - h : rows;
        view v = view_of(s, at, d, h, n);
        to_columns_apart(s, to, row_size, x, &v, h, n);
    }
}

void KN_LOOP(image_to_columns)(const kn__conv_sizes *s, void *columns, const void *x,
                               int64_t channels, int64_t first, int64_t rows) {
    real *to = columns;
    int64_t row_size = rows * s->out[2];
    bool whole_rows = apart(s);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < s->window[0]; i++)
            for (int64_t j = 0; j < s->window[1]; j++) {
                const real *plane = (const real *)x + c * s->in_plane;
                int64_t at[3] = {window_at(s, 0, i), window_at(s, 1, j), 0};
                if (whole_rows) {
                    to_column_rows(s, to, plane, at, first, rows);
                    to += s->window[2] * row_size;
                    continue;
                }
                for (int64_t k = 0; k < s->window[2]; k++, to += row_size) {
                    at[2] = window_at(s, 2, k);
                    to_column_row(s, to, plane, at, first, rows);
                }
            }
}

void KN_LOOP(columns_to_image)(const kn__conv_sizes *s, void *x, const void *columns,
                               int64_t channels) {
    const real *from = columns;
    memset(x, 0, (size_t)(channels * s->in_plane) * sizeof(real));
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < s->window[0]; i++)
            for (int64_t j = 0; j < s->window[1]; j++)
                for (int64_t k = 0; k < s->window[2]; k++, from += s->out_plane) {
                    int64_t at[3] = {window_at(s, 0, i), window_at(s, 1, j), window_at(s, 2, k)};
                    from_column_row(s, (real *)x + c * s->in_plane, from, at);
                }
}

void KN_LOOP(sum_parts)(void *y, const void *parts, int64_t n_parts, int64_t stride, int64_t n,
                        bool accumulate) {
    real *to = y;
    const real *from = parts;
    for (int64_t i = 0; i < n; i += 256) {
        real sum[256];
        int64_t m = n - i < 256 ? n - i : 256;
        for (int64_t j = 0; j < m; j++) sum[j] = from[i + j];
        for (int64_t p = 1; p < n_parts; p++)
            for (int64_t j = 0; j < m; j++) sum[j] += from[p * stride + i + j];
        if (accumulate)
            for (int64_t j = 0; j < m; j++) to[i + j] += sum[j];
        else
            for (int64_t j = 0; j < m; j++) to[i + j] = sum[j];
    }
}

void KN_LOOP(fill_rows)(void *y, const void *values, int64_t rows, int64_t n, int64_t stride) {
    for (int64_t r = 0; r < rows; r++) {
        real *to = (real *)y + r * stride, value = ((const real *)values)[r];
        for (int64_t i = 0; i < n; i++) to[i] = value;
    }
}
