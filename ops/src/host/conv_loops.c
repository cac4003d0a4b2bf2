/* Images to columns and back. Column matrices have a row for every element (c, window) of the
 * weight, and a column for every position of the result, `rows` result rows from `first` on. */
#include <string.h>

#include "loops.h"

/* Where window element j of one dimension looks, for result position 0. */
static inline int64_t window_at(const kn_conv_sizes *s, int d, int64_t j) {
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

/* Rows are short (8, 12, 24 elements): calling memcpy for each costs more than the copy. */
static inline void copy(real *to, const real *from, int64_t n) {
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
        return;
    }
    for (int64_t i = 0; i < n - BLOCK; i += BLOCK) memcpy(to + i, from + i, BLOCK * sizeof(real));
    memcpy(to + n - BLOCK, from + n - BLOCK, BLOCK * sizeof(real));
}

static inline void zero(real *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = 0;
}

/* One window element's row of the column matrix. `x`: its channel's plane. */
static void to_column_row(const kn_conv_sizes *s, real *to, const real *x, const int64_t at[3],
                          int64_t first, int64_t rows) {
    int64_t low, high, width = s->out[2], stride = s->stride[2];
    valid_range(&low, &high, width, s->in[2], at[2], stride);
    for (int64_t r = first; r < first + rows; r++, to += width) {
        int64_t d = r / s->out[1] * s->stride[0] + at[0], h = r % s->out[1] * s->stride[1] + at[1];
        if (d < 0 || d >= s->in[0] || h < 0 || h >= s->in[1]) {
            zero(to, width);
            continue;
        }
        const real *from = x + (d * s->in[1] + h) * s->in[2] + at[2];
        zero(to, low);
        if (stride == 1)
            copy(to + low, from + low, high - low);
        else
            for (int64_t i = low; i < high; i++) to[i] = from[i * stride];
        zero(to + high, width - high);
    }
}

static void from_column_row(const kn_conv_sizes *s, real *x, const real *from, const int64_t at[3],
                            int64_t rows) {
    int64_t low, high, width = s->out[2], stride = s->stride[2];
    valid_range(&low, &high, width, s->in[2], at[2], stride);
    for (int64_t r = 0; r < rows; r++, from += width) {
        int64_t d = r / s->out[1] * s->stride[0] + at[0], h = r % s->out[1] * s->stride[1] + at[1];
        if (d < 0 || d >= s->in[0] || h < 0 || h >= s->in[1]) continue;
        real *to = x + (d * s->in[1] + h) * s->in[2] + at[2];
        if (stride == 1)
            for (int64_t i = low; i < high; i++) to[i] += from[i];
        else
            for (int64_t i = low; i < high; i++) to[i * stride] += from[i];
    }
}

void KN_LOOP(image_to_columns)(const kn_conv_sizes *s, void *columns, const void *x,
                               int64_t channels, int64_t first, int64_t rows) {
    real *to = columns;
    int64_t row_size = rows * s->out[2];
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < s->window[0]; i++)
            for (int64_t j = 0; j < s->window[1]; j++)
                for (int64_t k = 0; k < s->window[2]; k++, to += row_size) {
                    int64_t at[3] = {window_at(s, 0, i), window_at(s, 1, j), window_at(s, 2, k)};
                    to_column_row(s, to, (const real *)x + c * s->in_plane, at, first, rows);
                }
}

void KN_LOOP(columns_to_image)(const kn_conv_sizes *s, void *x, const void *columns,
                               int64_t channels) {
    const real *from = columns;
    memset(x, 0, (size_t)(channels * s->in_plane) * sizeof(real));
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < s->window[0]; i++)
            for (int64_t j = 0; j < s->window[1]; j++)
                for (int64_t k = 0; k < s->window[2]; k++, from += s->out_plane) {
                    int64_t at[3] = {window_at(s, 0, i), window_at(s, 1, j), window_at(s, 2, k)};
                    from_column_row(s, (real *)x + c * s->in_plane, from, at,
                                    s->out[0] * s->out[1]);
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
