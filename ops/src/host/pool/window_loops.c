/* Pooling of one plane. 2x2 windows with stride 2, the common case, go by vectors; a block at the
 * end of a row overlaps the one before, as writing twice does no harm. NaN wins; of equals, the
 * first in row order */
#include <math.h>
#include <string.h>

#include "host/base/loops.h"

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
    pool_bits wins = ~(x <= *best) & (*best == *best);
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

/* --- any windows --- */

/* Of a window along one dimension: where it begins, its elements that lie in x, and how many an
 * average counts. */
typedef struct span {
    int64_t start, first, end, counted;
} span;

static inline int64_t steps_to(int64_t n, int64_t step) {
    return step == 1 ? n : (n + step - 1) / step;
}

/* Where window `at` begins, -padding or more. Windows of no stride share the dimension out. */
static inline int64_t start_of(const kn__pool_window *w, int d, int64_t at) {
    if (!w->stride[d]) return at * w->in[d] / w->out[d];
    return at * w->stride[d] - w->padding[d];
}

static span span_of(const kn__pool_window *w, int d, int64_t at) {
    int64_t start = start_of(w, d, at), step = w->dilation[d], left = w->in[d] - start;
    span s = {.start = start};
    if (!w->stride[d]) {
        s.end = steps_to((at + 1) * w->in[d], w->out[d]) - start;
        s.counted = w->sums ? 1 : s.end;
        return s;
    }
    s.first = start < 0 ? steps_to(-start, step) : 0;
    s.end = left <= 0 ? 0 : steps_to(left, step);
    if (s.end > w->size[d]) s.end = w->size[d];
    int64_t n = w->inside ? s.end - s.first : steps_to(left + w->padding[d], step);
    s.counted = w->sums ? 1 : n < w->size[d] ? n : w->size[d];
    return s;
}

/* Windows side by side: a row of the result. Those of columns `lo` to `hi` lie in x from side to
 * side, a stride apart. */
typedef struct window_row {
    span depth, height;
    int64_t line; /* where the line of x begins that the windows begin in; may be outside of x */
    int64_t lo, hi;
} window_row;

static window_row row_of(const kn__pool_window *w, int64_t d, int64_t h) {
    window_row r = {.depth = span_of(w, 0, d), .height = span_of(w, 1, h)};
    r.line = (r.depth.start * w->in[1] + r.height.start) * w->in[2];
    if (!w->stride[2]) return r;
    int64_t last = w->in[2] - 1 + w->padding[2] - (w->size[2] - 1) * w->dilation[2];
    r.lo = steps_to(w->padding[2], w->stride[2]);
    r.hi = last < 0 ? 0 : last / w->stride[2] + 1;
    if (r.lo > w->out[2]) r.lo = w->out[2];
    if (r.hi > w->out[2]) r.hi = w->out[2];
    if (r.hi < r.lo) r.hi = r.lo;
    return r;
}

/* From a window's first place to that of its element (i, j, k). */
static inline int64_t step_to(const kn__pool_window *w, int64_t i, int64_t j, int64_t k) {
    return (i * w->dilation[0] * w->in[1] + j * w->dilation[1]) * w->in[2] + k * w->dilation[2];
}

/* The same for the elements that offsets name. */
static void steps_fill(const kn__pool_window *w, int64_t steps[256]) {
    int n = 0;
    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++)
            for (int64_t k = 0; k < w->size[2] && n < 256; k++) steps[n++] = step_to(w, i, j, k);
}

#define EACH_ROW(w)                                                                                \
    for (int64_t d = 0; d < (w)->out[0]; d++)                                                      \
        for (int64_t h = 0; h < (w)->out[1]; h++)
#define EACH_LINE(r)                                                                               \
    for (int64_t i = (r)->depth.first; i < (r)->depth.end; i++)                                    \
        for (int64_t j = (r)->height.first; j < (r)->height.end; j++)

/* x[0], x[stride], … */
static inline pool_vec load_strided(const real *x, int64_t stride) {
    if (stride == 1) return load(x);
    if (stride == 2) { /* reads no element that no window has */
        return __builtin_shufflevector(load(x), load(x + BLOCK - 1), 0, 2, 5, 7);
    }
    pool_vec v;
    for (int i = 0; i < BLOCK; i++) v[i] = x[i * stride];
    return v;
}

/* --- maxima --- */

/* Whether x, later in its window, takes the place of the best so far. */
static inline bool wins(const kn__pool_window *w, real x, real best) {
    if (w->skip_nan) return x > best || (best != best && x == x);
    return best == best && (x > best || x != x);
}

static void max_one(const kn__pool_window *w, const window_row *r, int64_t at, real *y,
                    uint8_t *offset, const real *x) {
    span s = span_of(w, 2, at);
    real best = 0;
    int64_t best_at = -1;
    EACH_LINE(r) for (int64_t k = s.first; k < s.end; k++) {
        real value = x[r->line + s.start + step_to(w, i, j, k)];
        if (best_at >= 0 && !wins(w, value, best)) continue;
        best = value;
        best_at = (i * w->size[1] + j) * w->size[2] + k;
    }
    *y = best;
    if (offset) *offset = (uint8_t)best_at;
}

static inline void take_number(pool_vec *best, pool_bits *index, pool_vec x, int at) {
    pool_bits won = (x > *best) | ((*best != *best) & (x == x));
    *best = (pool_vec)((won & (pool_bits)x) | (~won & (pool_bits)*best));
    *index = (won & at) | (~won & *index);
}

/* BLOCK windows that lie in x from side to side; `x` is at the first one's first place. The first
 * element meets itself, which changes nothing. */
static inline void max_block(const kn__pool_window *w, const window_row *r, int64_t stride, real *y,
                             uint8_t *offsets, const real *x) {
    int first = (int)((r->depth.first * w->size[1] + r->height.first) * w->size[2]);
    pool_vec best = load_strided(x + step_to(w, r->depth.first, r->height.first, 0), stride);
    pool_bits index = (pool_bits){0} + first;
    EACH_LINE(r) {
        const real *line = x + step_to(w, i, j, 0);
        int at = (int)((i * w->size[1] + j) * w->size[2]);
        for (int64_t k = 0; k < w->size[2]; k++, at++) {
            pool_vec value = load_strided(line + k * w->dilation[2], stride);
            if (w->skip_nan) {
                take_number(&best, &index, value, at);
            } else {
                take(&best, &index, value, at);
            }
        }
    }
    __builtin_memcpy(y, &best, sizeof best);
    if (offsets) {
        pool_bytes bytes = __builtin_convertvector(index, pool_bytes);
        __builtin_memcpy(offsets, &bytes, sizeof bytes);
    }
}

/* A register of windows side by side, without their offsets: the largest
 * number so far, and where a NaN was. */
enum { WIDE = KN_TILE_LANES };
typedef real wide_vec __attribute__((vector_size(KN_TILE_BYTES)));
typedef real_bits wide_bits __attribute__((vector_size(KN_TILE_BYTES)));

static inline wide_vec load_wide(const real *p) {
    wide_vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline wide_vec select_wide(wide_bits mask, wide_vec a, wide_vec b) {
    return (wide_vec)((mask & (wide_bits)a) | (~mask & (wide_bits)b));
}

static inline void max_wide(const kn__pool_window *w, const window_row *r, real *y, const real *x) {
    wide_vec best = load_wide(x + step_to(w, r->depth.first, r->height.first, 0));
    wide_bits nan = best != best;
    EACH_LINE(r) {
        const real *line = x + step_to(w, i, j, 0);
        for (int64_t k = 0; k < w->size[2]; k++) {
            wide_vec value = load_wide(line + k * w->dilation[2]);
            best = select_wide(value > best, value, best);
            nan |= value != value;
        }
    }
    best = select_wide(nan, (wide_vec){0} + (real)NAN, best);
    __builtin_memcpy(y, &best, sizeof best);
}

static void max_wides(const kn__pool_window *w, const window_row *r, real *y, const real *x) {
    x += r->line - w->padding[2];
    for (int64_t at = r->lo;; at = at + WIDE <= r->hi - WIDE ? at + WIDE : r->hi - WIDE) {
        max_wide(w, r, y + at, x + at);
        if (at == r->hi - WIDE) return;
    }
}

/* The same of windows two columns apart, element by element of them all: compilers have vectors of
 * every second element. Worth it for two vectors of windows or more; with AVX-512 (Zen 5), the time
 * of blocks over that of this, windows 3x3: 16 a row 1, 32 1.7, 64 2.9. */
static void max_pairs(const kn__pool_window *w, const window_row *r, real *restrict y,
                      const real *restrict x) {
    int64_t n = r->hi - r->lo;
    x += r->line - w->padding[2] + 2 * r->lo, y += r->lo;
    const real *restrict first = x + step_to(w, r->depth.first, r->height.first, 0);
    for (int64_t at = 0; at < n; at++) y[at] = first[2 * at];
    EACH_LINE(r) {
        for (int64_t k = 0; k < w->size[2]; k++) {
            const real *restrict from = x + step_to(w, i, j, k);
            for (int64_t at = 0; at < n; at++) {
                bool takes = !(from[2 * at] <= y[at]) & (y[at] == y[at]);
                y[at] = takes ? from[2 * at] : y[at];
            }
        }
    }
}

/* The windows of columns lo to hi, which are BLOCK or more; the last two blocks may overlap. */
static inline void max_blocks(const kn__pool_window *w, const window_row *r, int64_t stride,
                              real *y, uint8_t *offsets, const real *x) {
    x += r->line - w->padding[2];
    for (int64_t at = r->lo;; at = at + BLOCK <= r->hi - BLOCK ? at + BLOCK : r->hi - BLOCK) {
        max_block(w, r, stride, y + at, offsets ? offsets + at : NULL, x + at * stride);
        if (at == r->hi - BLOCK) return;
    }
}

static void max_row(const kn__pool_window *w, const window_row *r, real *y, uint8_t *offsets,
                    const real *x) {
    bool blocks = r->hi - r->lo >= BLOCK, wide = !offsets && !w->skip_nan && r->hi - r->lo >= WIDE;
    if (blocks && wide && w->stride[2] == 1) {
        max_wides(w, r, y, x);
    } else if (blocks && w->stride[2] == 1) {
        max_blocks(w, r, 1, y, offsets, x);
    } else if (blocks && wide && w->stride[2] == 2 && r->hi - r->lo >= 2 * WIDE) {
        max_pairs(w, r, y, x);
    } else if (blocks && w->stride[2] == 2) {
        max_blocks(w, r, 2, y, offsets, x);
    } else if (blocks) {
        max_blocks(w, r, w->stride[2], y, offsets, x);
    }
    for (int64_t at = 0; at < w->out[2]; at++) {
        if (blocks && at == r->lo) at = r->hi;
        if (at < w->out[2]) max_one(w, r, at, y + at, offsets ? offsets + at : NULL, x);
    }
}

void KN_LOOP(maxpool_plane)(const kn__pool_window *w, void *y, const void *x, uint8_t *offsets) {
    real *out = y;
    EACH_ROW(w) {
        if (w->is_2x2) {
            const real *in = (const real *)x + (d * w->in[1] + 2 * h) * w->in[2];
            pool_row(out, offsets, in, in + w->in[2], w->out[2]);
        } else {
            window_row r = row_of(w, d, h);
            max_row(w, &r, out, offsets, x);
        }
        out += w->out[2];
        if (offsets) offsets += w->out[2];
    }
}

/* In blocks of channels a window's places are vectors of LANES, as many as the instruction set of
 * these loops has in f32. */
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

/* `step` from the first place of a row's window, which begins at `start`. */
static inline const real *lanes_at(const window_row *r, const real *x, int64_t start,
                                   int64_t step) {
    return x + (r->line + start + step) * LANES;
}

typedef real lanes_vec __attribute__((vector_size(LANES * sizeof(real))));
typedef real_bits lanes_bits __attribute__((vector_size(LANES * sizeof(real))));

/* Written out in vectors: compilers make a branch a lane of it. */
static inline void take_lanes(lanes_vec *best, const real *from) {
    lanes_vec x;
    __builtin_memcpy(&x, from, sizeof x);
    lanes_bits wins = ((x > *best) | (x != x)) & (*best == *best);
    *best = (lanes_vec)((wins & (lanes_bits)x) | (~wins & (lanes_bits)*best));
}

void KN_LOOP(maxpool_blocks)(const kn__pool_window *w, void *y, const void *x) {
    real *out = y;
    EACH_ROW(w) {
        window_row r = row_of(w, d, h);
        for (int64_t at = 0; at < w->out[2]; at++, out += LANES) {
            span s = span_of(w, 2, at);
            lanes_vec best = (lanes_vec){0} - (real)INFINITY;
            EACH_LINE(&r)
            for (int64_t k = s.first; k < s.end; k++)
                take_lanes(&best, lanes_at(&r, x, s.start, step_to(w, i, j, k)));
            __builtin_memcpy(out, &best, sizeof best);
        }
    }
}

/* Where the line of x begins that the windows of row (d, h) begin in. */
static inline int64_t line_of(const kn__pool_window *w, int64_t d, int64_t h) {
    return (start_of(w, 0, d) * w->in[1] + start_of(w, 1, h)) * w->in[2];
}

void KN_LOOP(maxpool_back_plane)(const kn__pool_window *w, void *dx, const void *dy,
                                 uint8_t *offsets) {
    const real *g = dy;
    bool covered = w->is_2x2 && w->in[1] == 2 * w->out[1] && w->in[2] == 2 * w->out[2];
    if (!covered) memset(dx, 0, (size_t)w->in_plane * sizeof(real));
    int64_t steps[256];
    if (!w->is_2x2) steps_fill(w, steps);
    EACH_ROW(w) {
        real *line = (real *)dx + line_of(w, d, h);
        if (w->is_2x2) {
            back_row(line, line + w->in[2], g, offsets, w->out[2]);
        } else {
            for (int64_t i = 0; i < w->out[2]; i++)
                line[start_of(w, 2, i) + steps[offsets[i]]] += g[i];
        }
        g += w->out[2];
        offsets += w->out[2];
    }
}

void KN_LOOP(maxpool_take_plane)(const kn__pool_window *w, void *y, const void *x,
                                 uint8_t *offsets) {
    real *out = y;
    int64_t steps[256];
    steps_fill(w, steps);
    EACH_ROW(w) {
        const real *line = (const real *)x + line_of(w, d, h);
        for (int64_t i = 0; i < w->out[2]; i++)
            *out++ = line[start_of(w, 2, i) + steps[*offsets++]];
    }
}

/* --- averages --- */

/* What a sum is divided by: a mean of ones is 1, as it isn't where a share is multiplied. */
static inline real count_of(const window_row *r, int64_t counted) {
    return (real)((double)r->depth.counted * (double)r->height.counted * (double)counted);
}

/* Of a gradient, what each element gets. */
static inline real share_of(const window_row *r, int64_t counted) {
    return (real)(1 / ((double)r->depth.counted * (double)r->height.counted * (double)counted));
}

static void average_one(const kn__pool_window *w, const window_row *r, int64_t at, real *y,
                        const real *x) {
    span s = span_of(w, 2, at);
    real sum = 0;
    EACH_LINE(r)
    for (int64_t k = s.first; k < s.end; k++) sum += x[r->line + s.start + step_to(w, i, j, k)];
    *y = sum / count_of(r, s.counted);
}

static inline void average_blocks(const kn__pool_window *w, const window_row *r, int64_t stride,
                                  real *y, const real *x) {
    real count = count_of(r, w->sums ? 1 : w->size[2]);
    x += r->line - w->padding[2];
    for (int64_t at = r->lo;; at = at + BLOCK <= r->hi - BLOCK ? at + BLOCK : r->hi - BLOCK) {
        const real *from = x + at * stride;
        pool_vec sum = {0};
        EACH_LINE(r) {
            const real *line = from + step_to(w, i, j, 0);
            for (int64_t k = 0; k < w->size[2]; k++)
                sum += load_strided(line + k * w->dilation[2], stride);
        }
        sum /= count;
        __builtin_memcpy(y + at, &sum, sizeof sum);
        if (at == r->hi - BLOCK) return;
    }
}

enum { LINE = 1024 };

/* Windows of no stride, in x of LINE columns at most: the lines are added up once for them all. */
static void average_shared(const kn__pool_window *w, const window_row *r, real *y, const real *x) {
    real sums[LINE];
    memset(sums, 0, (size_t)w->in[2] * sizeof(real));
    EACH_LINE(r) {
        const real *line = x + r->line + step_to(w, i, j, 0);
        for (int64_t k = 0; k < w->in[2]; k++) sums[k] += line[k];
    }
    for (int64_t at = 0; at < w->out[2]; at++) {
        span s = span_of(w, 2, at);
        real sum = 0;
        for (int64_t k = 0; k < s.end; k++) sum += sums[s.start + k];
        y[at] = sum / count_of(r, s.counted);
    }
}

static void average_row(const kn__pool_window *w, const window_row *r, real *y, const real *x) {
    if (!w->stride[2] && w->in[2] <= LINE) {
        average_shared(w, r, y, x);
        return;
    }
    bool blocks = r->hi - r->lo >= BLOCK;
    if (blocks && w->stride[2] == 1) {
        average_blocks(w, r, 1, y, x);
    } else if (blocks && w->stride[2] == 2) {
        average_blocks(w, r, 2, y, x);
    } else if (blocks) {
        average_blocks(w, r, w->stride[2], y, x);
    }
    for (int64_t at = 0; at < w->out[2]; at++) {
        if (blocks && at == r->lo) at = r->hi;
        if (at < w->out[2]) average_one(w, r, at, y + at, x);
    }
}

void KN_LOOP(avgpool_plane)(const kn__pool_window *w, void *y, const void *x, uint8_t *offsets) {
    (void)offsets;
    real *out = y;
    EACH_ROW(w) {
        window_row r = row_of(w, d, h);
        average_row(w, &r, out, x);
        out += w->out[2];
    }
}

void KN_LOOP(avgpool_blocks)(const kn__pool_window *w, void *y, const void *x) {
    real *out = y;
    EACH_ROW(w) {
        window_row r = row_of(w, d, h);
        for (int64_t at = 0; at < w->out[2]; at++, out += LANES) {
            span s = span_of(w, 2, at);
            real sum[LANES] = {0}, count = count_of(&r, s.counted);
            EACH_LINE(&r)
            for (int64_t k = s.first; k < s.end; k++)
                for (int l = 0; l < LANES; l++)
                    sum[l] += lanes_at(&r, x, s.start, step_to(w, i, j, k))[l];
            for (int l = 0; l < LANES; l++) out[l] = sum[l] / count;
        }
    }
}

/* One line of x under a row of windows side by side, which don't overlap. */
static inline void spread_line(real *to, const real *g, real share, int64_t n, int64_t size) {
    for (int64_t i = 0; i < n; i++) {
        real value = g[i] * share;
        for (int64_t k = 0; k < size; k++) to[i * size + k] = value;
    }
}

/* Windows that don't overlap and leave nothing out write each element of x once. */
static void spread(const kn__pool_window *w, real *dx, const real *g) {
    int64_t line = w->in[2];
    real share = w->sums ? 1 : (real)(1.0 / (double)(w->size[0] * w->size[1] * w->size[2]));
    EACH_ROW(w) {
        real *first = dx + line_of(w, d, h);
        if (w->size[2] == 2) {
            spread_line(first, g, share, w->out[2], 2);
        } else {
            spread_line(first, g, share, w->out[2], w->size[2]);
        }
        for (int64_t i = 0; i < w->size[0]; i++)
            for (int64_t j = i == 0; j < w->size[1]; j++)
                memcpy(first + step_to(w, i, j, 0), first, (size_t)line * sizeof(real));
        g += w->out[2];
    }
}

void KN_LOOP(avgpool_back_plane)(const kn__pool_window *w, void *dx, const void *dy,
                                 uint8_t *offsets) {
    (void)offsets;
    const real *g = dy;
    if (w->tiles) {
        spread(w, dx, dy);
        return;
    }
    memset(dx, 0, (size_t)w->in_plane * sizeof(real));
    EACH_ROW(w) {
        window_row r = row_of(w, d, h);
        real whole = share_of(&r, w->sums ? 1 : w->size[2]);
        for (int64_t at = 0; at < w->out[2]; at++) {
            bool is_whole = at >= r.lo && at < r.hi;
            span s = is_whole ? (span){.start = start_of(w, 2, at), .end = w->size[2]}
                              : span_of(w, 2, at);
            real share = *g++ * (is_whole ? whole : share_of(&r, s.counted));
            real *to = (real *)dx + r.line + s.start;
            EACH_LINE(&r)
            for (int64_t k = s.first; k < s.end; k++) to[step_to(w, i, j, k)] += share;
        }
    }
}
