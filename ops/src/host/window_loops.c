/* Pooling of one plane. 2x2 windows with stride 2, the common case, go by vectors; a block at the
 * end of a row overlaps the one before, as writing twice does no harm. NaN wins; of equals, the
 * first in row order */
#include <string.h>

#include "loops.h"

enum { BLOCK = 4 };
typedef real pool_vec __attribute__((vector_size(BLOCK * sizeof(real))));
typedef real_bits pool_bits __attribute__((vector_size(BLOCK * sizeof(real))));
typedef uint8_t pool_bytes __attribute__((vector_size(BLOCK)));

static inline pool_vec load(const real *p) {
    pool_vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)

static inline void take(pool_vec *best, pool_bits *index, pool_vec x, int at) {
    pool_bits wins = ((x > *best) | (x != x)) & (*best == *best);
    *best = (pool_vec)((wins & (pool_bits)x) | (~wins & (pool_bits)*best));
    *index = (wins & at) | (~wins & *index);
}

static inline void pool_block(real *y, uint8_t *offsets, const real *row0, const real *row1) {
    pool_vec a = load(row0), b = load(row0 + BLOCK), c = load(row1), d = load(row1 + BLOCK);
    pool_vec best = EVEN(a, b);
    pool_bits index = {0};
    take(&best, &index, ODD(a, b), 1);
    take(&best, &index, EVEN(c, d), 2);
    take(&best, &index, ODD(c, d), 3);
    __builtin_memcpy(y, &best, sizeof best);
    if (offsets) {
        pool_bytes bytes = __builtin_convertvector(index, pool_bytes);
        __builtin_memcpy(offsets, &bytes, sizeof bytes);
    }
}

static void pool_one(real *y, uint8_t *offset, const real *row0, const real *row1) {
    real x[4] = {row0[0], row0[1], row1[0], row1[1]}, best = x[0];
    uint8_t index = 0;
    for (uint8_t i = 1; i < 4; i++)
        if (best == best && (x[i] > best || x[i] != x[i])) best = x[i], index = i;
    *y = best;
    if (offset) *offset = index;
}

static void pool_row(real *out, uint8_t *offsets, const real *r0, const real *r1, int64_t n) {
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++)
            pool_one(out + i, offsets ? offsets + i : NULL, r0 + 2 * i, r1 + 2 * i);
        return;
    }
    for (int64_t i = 0;; i = i + BLOCK <= n - BLOCK ? i + BLOCK : n - BLOCK) {
        pool_block(out + i, offsets ? offsets + i : NULL, r0 + 2 * i, r1 + 2 * i);
        if (i == n - BLOCK) return;
    }
}

#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)

static inline void back_block(real *row0, real *row1, const real *dy, const uint8_t *offsets) {
    pool_bytes bytes;
    __builtin_memcpy(&bytes, offsets, sizeof bytes);
    pool_bits index = __builtin_convertvector(bytes, pool_bits), g = (pool_bits)load(dy);
    pool_bits at[4];
    for (int i = 0; i < 4; i++) at[i] = g & (index == i);
    for (int i = 0; i < 2; i++) {
        pool_bits low = LOW(at[2 * i], at[2 * i + 1]), high = HIGH(at[2 * i], at[2 * i + 1]);
        real *row = i ? row1 : row0;
        __builtin_memcpy(row, &low, sizeof low);
        __builtin_memcpy(row + BLOCK, &high, sizeof high);
    }
}

static void back_row(real *r0, real *r1, const real *g, const uint8_t *offsets, int64_t n) {
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < 4; k++)
                (k < 2 ? r0 : r1)[2 * i + k % 2] = offsets[i] == k ? g[i] : 0;
        return;
    }
    for (int64_t i = 0;; i = i + BLOCK <= n - BLOCK ? i + BLOCK : n - BLOCK) {
        back_block(r0 + 2 * i, r1 + 2 * i, g + i, offsets + i);
        if (i == n - BLOCK) return;
    }
}

/* --- windows with gaps, or elements outside of x --- */

/* A window of the result's element `at`: where it begins, and its elements that lie in x, a range
 * for each dimension; `counted` is what an average divides by. */
typedef struct span {
    int64_t start[3], first[3], end[3], counted;
} span;

static span span_of(const kn_window *w, const int64_t at[3]) {
    span s = {.counted = 1};
    for (int d = 0; d < 3; d++) {
        int64_t start = at[d] * w->stride[d] - w->padding[d], step = w->dilation[d],
                left = w->in[d] - start, padded = left + w->padding[d];
        s.start[d] = start;
        s.first[d] = start < 0 ? (-start + step - 1) / step : 0;
        s.end[d] = left <= 0 ? 0 : (left + step - 1) / step;
        if (s.end[d] > w->size[d]) s.end[d] = w->size[d];
        int64_t n = w->inside ? s.end[d] - s.first[d] : (padded + step - 1) / step;
        s.counted *= n < w->size[d] ? n : w->size[d];
    }
    return s;
}

/* Of element (i, j, k) of the window. */
static inline int64_t span_at(const kn_window *w, const span *s, int64_t i, int64_t j, int64_t k) {
    return ((s->start[0] + i * w->dilation[0]) * w->in[1] + s->start[1] + j * w->dilation[1]) *
               w->in[2] +
           s->start[2] + k * w->dilation[2];
}

#define EACH_OF_SPAN(s)                                                                            \
    for (int64_t i = (s).first[0]; i < (s).end[0]; i++)                                            \
        for (int64_t j = (s).first[1]; j < (s).end[1]; j++)                                        \
            for (int64_t k = (s).first[2]; k < (s).end[2]; k++)
#define EACH_WINDOW(w)                                                                             \
    for (int64_t at[3] = {0}; at[0] < (w)->out[0]; at[0]++)                                        \
        for (at[1] = 0; at[1] < (w)->out[1]; at[1]++)                                              \
            for (at[2] = 0; at[2] < (w)->out[2]; at[2]++)

static void maxpool_crossing(const kn_window *w, real *y, const real *x, uint8_t *offsets) {
    EACH_WINDOW(w) {
        span s = span_of(w, at);
        real best = 0;
        int64_t best_at = -1;
        EACH_OF_SPAN(s) {
            real value = x[span_at(w, &s, i, j, k)];
            if (best_at >= 0 && !(best == best && (value > best || value != value))) continue;
            best = value;
            best_at = (i * w->size[1] + j) * w->size[2] + k;
        }
        *y++ = best;
        if (offsets) *offsets++ = (uint8_t)best_at;
    }
}

/* Where the element that `offset` names lies in x. */
static int64_t place_of(const kn_window *w, const int64_t at[3], uint8_t offset) {
    span s = span_of(w, at);
    int64_t row = offset / w->size[2];
    return span_at(w, &s, row / w->size[1], row % w->size[1], offset % w->size[2]);
}

static void maxpool_back_crossing(const kn_window *w, real *dx, const real *dy,
                                  const uint8_t *offsets) {
    EACH_WINDOW(w) dx[place_of(w, at, *offsets++)] += *dy++;
}

static void maxpool_take_crossing(const kn_window *w, real *y, const real *x,
                                  const uint8_t *offsets) {
    EACH_WINDOW(w) *y++ = x[place_of(w, at, *offsets++)];
}

static void avgpool_crossing(const kn_window *w, real *y, const real *x) {
    EACH_WINDOW(w) {
        span s = span_of(w, at);
        real sum = 0;
        EACH_OF_SPAN(s) sum += x[span_at(w, &s, i, j, k)];
        *y++ = sum * (real)(1.0 / (double)s.counted);
    }
}

static void avgpool_back_crossing(const kn_window *w, real *dx, const real *dy) {
    EACH_WINDOW(w) {
        span s = span_of(w, at);
        real share = *dy++ * (real)(1.0 / (double)s.counted);
        EACH_OF_SPAN(s) dx[span_at(w, &s, i, j, k)] += share;
    }
}

/* --- whole planes --- */

/* Where the first window of row (d, h) of the result begins. */
static inline int64_t row_start(const kn_window *w, int64_t d, int64_t h) {
    return (d * w->stride[0] * w->in[1] + h * w->stride[1]) * w->in[2];
}

/* Where element `index` of a window (in row order) lies, from the window's first element. */
static inline int64_t window_step(const kn_window *w, int64_t index) {
    int64_t row = index / w->size[2], column = index % w->size[2];
    return (row / w->size[1] * w->in[1] + row % w->size[1]) * w->in[2] + column;
}

static inline real window_max(const kn_window *w, const real *x, uint8_t *offset) {
    real best = x[0];
    int64_t best_index = 0, index = 0;
    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++) {
            const real *row = x + (i * w->in[1] + j) * w->in[2];
            for (int64_t k = 0; k < w->size[2]; k++, index++)
                if (best == best && (row[k] > best || row[k] != row[k]))
                    best = row[k], best_index = index;
        }
    if (offset) *offset = (uint8_t)best_index;
    return best;
}

void KN_LOOP(maxpool_plane)(const kn_window *w, void *y, const void *x, uint8_t *offsets) {
    real *out = y;
    if (w->crosses) {
        maxpool_crossing(w, y, x, offsets);
        return;
    }
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++, out += w->out[2]) {
            const real *in = (const real *)x + row_start(w, d, h);
            uint8_t *offset = offsets ? offsets + (out - (real *)y) : NULL;
            if (w->is_2x2) {
                pool_row(out, offset, in, in + w->in[2], w->out[2]);
                continue;
            }
            for (int64_t i = 0; i < w->out[2]; i++)
                out[i] = window_max(w, in + i * w->stride[2], offset ? offset + i : NULL);
        }
}

void KN_LOOP(maxpool_back_plane)(const kn_window *w, void *dx, const void *dy, uint8_t *offsets) {
    const real *g = dy;
    bool covered = w->is_2x2 && w->in[1] == 2 * w->out[1] && w->in[2] == 2 * w->out[2];
    if (!covered) memset(dx, 0, (size_t)w->in_plane * sizeof(real));
    if (w->crosses) {
        maxpool_back_crossing(w, dx, dy, offsets);
        return;
    }
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++, g += w->out[2], offsets += w->out[2]) {
            real *to = (real *)dx + row_start(w, d, h);
            if (w->is_2x2) {
                back_row(to, to + w->in[2], g, offsets, w->out[2]);
                continue;
            }
            for (int64_t i = 0; i < w->out[2]; i++)
                to[i * w->stride[2] + window_step(w, offsets[i])] += g[i];
        }
}

void KN_LOOP(maxpool_take_plane)(const kn_window *w, void *y, const void *x, uint8_t *offsets) {
    real *out = y;
    if (w->crosses) {
        maxpool_take_crossing(w, y, x, offsets);
        return;
    }
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++, out += w->out[2], offsets += w->out[2]) {
            const real *in = (const real *)x + row_start(w, d, h);
            for (int64_t i = 0; i < w->out[2]; i++)
                out[i] = in[i * w->stride[2] + window_step(w, offsets[i])];
        }
}

static real share_of(const kn_window *w) {
    return (real)(1.0 / (double)(w->size[0] * w->size[1] * w->size[2]));
}

void KN_LOOP(avgpool_plane)(const kn_window *w, void *y, const void *x, uint8_t *offsets) {
    (void)offsets;
    real *out = y, share = share_of(w);
    if (w->crosses) {
        avgpool_crossing(w, y, x);
        return;
    }
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++, out += w->out[2]) {
            const real *in = (const real *)x + row_start(w, d, h);
            for (int64_t i = 0; i < w->out[2]; i++, in += w->stride[2]) {
                real sum = 0;
                for (int64_t j = 0; j < w->size[0] * w->size[1]; j++)
                    for (int64_t k = 0; k < w->size[2]; k++)
                        sum += in[(j / w->size[1] * w->in[1] + j % w->size[1]) * w->in[2] + k];
                out[i] = sum * share;
            }
        }
}

void KN_LOOP(avgpool_back_plane)(const kn_window *w, void *dx, const void *dy, uint8_t *offsets) {
    (void)offsets;
    const real *g = dy;
    real share = share_of(w);
    memset(dx, 0, (size_t)w->in_plane * sizeof(real));
    if (w->crosses) {
        avgpool_back_crossing(w, dx, dy);
        return;
    }
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++, g += w->out[2]) {
            real *to = (real *)dx + row_start(w, d, h);
            for (int64_t i = 0; i < w->out[2]; i++, to += w->stride[2])
                for (int64_t j = 0; j < w->size[0] * w->size[1]; j++)
                    for (int64_t k = 0; k < w->size[2]; k++)
                        to[(j / w->size[1] * w->in[1] + j % w->size[1]) * w->in[2] + k] +=
                            g[i] * share;
        }
}
