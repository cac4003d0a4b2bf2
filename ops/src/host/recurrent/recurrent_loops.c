/* The pointwise part of a step of a recurrent layer, forward and back. */
#include <string.h>

#include "host/pointwise/math_f64.h"
#include "host/softmax/softmax_exp.h"

#ifdef KN_REAL_IS_F32
#define EXP_MOST 87
#else
#define EXP_MOST 708
#endif

/* For any x: results that are too large or too small stop at the ends of the normal numbers, which
 * what follows rounds to 0 or 1. */
static inline real exp_of(real x) { return exp_nonpositive(x > EXP_MOST ? EXP_MOST : x); }
static inline real sigm(real x) { return 1 / (1 + exp_of(-x)); }

/* Small |x| by x + x³·p(x²), as math_f32.h does, the others by 1 - 2/(e^2|x| + 1). */
static inline real TANH(real x) {
#ifdef KN_REAL_IS_F32
    real z = x * x, p = 0.002147753724474016f;
    p = EXP_FMA(p, z, -0.008182937366620341f);
    p = EXP_FMA(p, z, 0.021703088061450784f);
    p = EXP_FMA(p, z, -0.053947230067824314f);
    p = EXP_FMA(p, z, 0.13333210013318883f);
    p = EXP_FMA(p, z, -0.3333333091508564f);
    real small = EXP_FMA(p * z, x, x), size = fabsf(x), large = 1 - 2 / (exp_of(2 * size) + 1);
    return copysignf(size < 0.625f ? small : large, x);
#else
    return kn__tanh_f64(x);
#endif
}

/* --- forward, one row --- */

static void lstm(real *restrict i, real *restrict f, real *restrict g, real *restrict o,
                 real *restrict c, real *restrict h, real *restrict y, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        i[j] = sigm(i[j]);
        f[j] = sigm(f[j]);
        g[j] = TANH(g[j]);
        o[j] = sigm(o[j]);
        c[j] = f[j] * c[j] + i[j] * g[j];
        y[j] = h[j] = o[j] * TANH(c[j]);
    }
}

static void gru(real *restrict r, real *restrict z, real *restrict n,
                const real *restrict candidate, real *restrict h, real *restrict y, int64_t width) {
    for (int64_t j = 0; j < width; j++) {
        r[j] = sigm(r[j]);
        z[j] = sigm(z[j]);
        n[j] = TANH(n[j] + r[j] * candidate[j]);
        y[j] = h[j] = n[j] + z[j] * (h[j] - n[j]);
    }
}

static void plain(bool is_relu, const real *restrict a, real *restrict h, real *restrict y,
                  int64_t n) {
    if (is_relu) {
        for (int64_t j = 0; j < n; j++) y[j] = h[j] = a[j] < 0 ? 0 : a[j];
    } else {
        for (int64_t j = 0; j < n; j++) y[j] = h[j] = TANH(a[j]);
    }
}

void KN_LOOP(rnn_step)(const kn__rnn_step *s) {
    int64_t n = s->hidden;
    size_t bytes = (size_t)n * sizeof(real);
    for (int64_t row = 0; row < s->rows; row++) {
        real *h = (real *)s->h + row * n, *y = (real *)s->y + row * s->y_stride;
        if (s->mode == KN_RNN_LSTM) {
            real *a = (real *)s->gates + row * 4 * n, *c = (real *)s->c + row * n;
            lstm(a, a + n, a + 2 * n, a + 3 * n, c, h, y, n);
            if (s->cells) memcpy((real *)s->cells + row * n, c, bytes);
        } else if (s->mode == KN_RNN_GRU) {
            real *a = (real *)s->gates + row * 3 * n;
            gru(a, a + n, a + 2 * n, (const real *)s->candidate + row * n, h, y, n);
        } else {
            plain(s->mode == KN_RNN_RELU, (const real *)s->gates + row * n, h, y, n);
        }
    }
}

/* --- back, one row --- */

typedef struct four { /* of one row, a gate each */
    const real *gate[4];
    real *d[4];
} four;

static inline four row_of(const kn__rnn_step *s, int64_t row, int n_gates) {
    four f;
    int64_t n = s->hidden;
    for (int k = 0; k < n_gates; k++) {
        f.gate[k] = s->gates ? (const real *)s->gates + (row * n_gates + k) * n : NULL;
        f.d[k] = (real *)s->dgates + row * s->dgates_stride + k * n;
    }
    return f;
}

static void lstm_back(const four *row, const real *restrict c, const real *restrict before,
                      real *restrict dh, real *restrict dc, int64_t n) {
    const real *restrict i = row->gate[0], *restrict f = row->gate[1], *restrict g = row->gate[2],
                         *restrict o = row->gate[3];
    real *restrict di = row->d[0], *restrict df = row->d[1], *restrict dg = row->d[2],
                   *restrict d_o = row->d[3];
    for (int64_t j = 0; j < n; j++) {
        real t = TANH(c[j]), d = dc[j] + dh[j] * o[j] * (1 - t * t);
        d_o[j] = dh[j] * t * o[j] * (1 - o[j]);
        di[j] = d * g[j] * i[j] * (1 - i[j]);
        df[j] = d * before[j] * f[j] * (1 - f[j]);
        dg[j] = d * i[j] * (1 - g[j] * g[j]);
        dc[j] = d * f[j];
        dh[j] = 0;
    }
}

static void gru_back(const four *row, const real *restrict candidate, const real *restrict before,
                     real *restrict dh, real *restrict dcandidate, int64_t width) {
    const real *restrict r = row->gate[0], *restrict z = row->gate[1], *restrict n = row->gate[2];
    real *restrict dr = row->d[0], *restrict dz = row->d[1], *restrict dn = row->d[2];
    for (int64_t j = 0; j < width; j++) {
        real d = dh[j] * (1 - z[j]) * (1 - n[j] * n[j]);
        dz[j] = dh[j] * (before[j] - n[j]) * z[j] * (1 - z[j]);
        dr[j] = d * candidate[j] * r[j] * (1 - r[j]);
        dn[j] = d;
        dcandidate[j] = d * r[j];
        dh[j] = dh[j] * z[j];
    }
}

static void plain_back(bool is_relu, const real *restrict y, real *restrict dh, real *restrict d,
                       int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        d[j] = is_relu ? (y[j] <= 0 ? 0 : dh[j]) : dh[j] * (1 - y[j] * y[j]);
        dh[j] = 0;
    }
}

static void add(real *restrict to, const real *restrict x, int64_t n) {
    for (int64_t j = 0; j < n; j++) to[j] += x[j];
}

void KN_LOOP(rnn_step_back)(const kn__rnn_step *s) {
    int64_t n = s->hidden;
    int n_gates = s->mode == KN_RNN_LSTM ? 4 : (s->mode == KN_RNN_GRU ? 3 : 1);
    for (int64_t row = 0; row < s->rows; row++) {
        four gates = row_of(s, row, n_gates);
        real *dh = (real *)s->dh + row * n, *dcandidate = NULL;
        if (s->dy) add(dh, (const real *)s->dy + row * s->dy_stride, n);
        if (s->mode == KN_RNN_LSTM) {
            lstm_back(&gates, (const real *)s->cells + row * n, (const real *)s->c + row * n, dh,
                      (real *)s->dc + row * n, n);
        } else if (s->mode == KN_RNN_GRU) {
            dcandidate = (real *)s->dcandidate + row * n;
            gru_back(&gates, (const real *)s->candidate + row * n, (const real *)s->h + row * n, dh,
                     dcandidate, n);
        } else {
            plain_back(s->mode == KN_RNN_RELU, (const real *)s->y + row * s->y_stride, dh,
                       gates.d[0], n);
        }
        add(s->sums, gates.d[0], n_gates * n);
        if (dcandidate) add((real *)s->sums + 3 * n, dcandidate, n);
    }
}

/* --- layers that take their input as it is --- */

/* Each of n_gates vectors of a row of y: x + that of bias; and back: dx (+)= their sum. */
void KN_LOOP(rnn_skip)(void *to, const void *from, const void *bias, int64_t rows, int64_t n_gates,
                       int64_t n) {
    real *restrict y = to;
    const real *restrict x = from, *restrict b = bias;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < n_gates; k++)
            for (int64_t j = 0; j < n; j++)
                y[(row * n_gates + k) * n + j] = x[row * n + j] + b[k * n + j];
}

void KN_LOOP(rnn_skip_back)(void *to, const void *from, int64_t stride, bool adds, int64_t rows,
                            int64_t n_gates, int64_t n) {
    real *restrict dx = to;
    const real *restrict d = from;
    for (int64_t row = 0; row < rows; row++) {
        if (!adds) memset(dx + row * n, 0, (size_t)n * sizeof(real));
        for (int64_t k = 0; k < n_gates; k++) add(dx + row * n, d + row * stride + k * n, n);
    }
}
