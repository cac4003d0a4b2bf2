/* The unblocked parts of factorisations: rows are contiguous, `ld` elements apart. Divisions by
 * zero give infinities and NaNs. */
#include "host/base/loops.h"

enum { SOLVED_TOGETHER = 64 };

static inline real root(real x) {
#ifdef KN_REAL_IS_F32
    return __builtin_sqrtf(x);
#else
    return __builtin_sqrt(x);
#endif
}

static inline real size_of(real x) {
#ifdef KN_REAL_IS_F32
    return __builtin_fabsf(x);
#else
    return __builtin_fabs(x);
#endif
}

/* y -= a·x */
static inline void subtract(real *restrict y, const real *restrict x, real a, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] -= a * x[i];
}

/* The same of four x, one after the other, `ldx` apart; `step` from one a to the next. */
static inline void subtract_four(real *restrict y, const real *restrict x, int64_t ldx,
                                 const real *a, int64_t step, int64_t n) {
    const real *x1 = x + ldx, *x2 = x1 + ldx, *x3 = x2 + ldx;
    const real a0 = a[0], a1 = a[step], a2 = a[2 * step], a3 = a[3 * step];
    for (int64_t i = 0; i < n; i++)
        y[i] = (((y[i] - a0 * x[i]) - a1 * x1[i]) - a2 * x2[i]) - a3 * x3[i];
}

/* Σ x·y in an order that vectors of any width can keep. */
static inline real dot(const real *x, const real *y, int64_t n) {
    enum { LANES = 16 };
    real sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += x[i + l] * y[i + l];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

/* Right-looking; `column` keeps the column that is being eliminated contiguous. */
bool KN_LOOP(cholesky_block)(void *a_, int64_t ld, int64_t n) {
    real *a = a_, column[KN_DENSE_BLOCK];
    for (int64_t k = 0; k < n; k++) {
        real pivot = a[k * ld + k];
        if (!(pivot > 0)) return false;
        real d = root(pivot);
        a[k * ld + k] = d;
        for (int64_t i = k + 1; i < n; i++) column[i] = a[i * ld + k] /= d;
        for (int64_t i = k + 1; i < n; i++)
            subtract(&a[i * ld + k + 1], &column[k + 1], column[i], i - k);
    }
    return true;
}

/* x·T = b in place for each row; T upper triangular. Of many rows together: their columns, which
 * are contiguous, make long vectors. */
void KN_LOOP(solve_rows)(void *x_, int64_t ldx, int64_t rows, const void *t_, int64_t ldt,
                         int64_t n) {
    const real *t = t_;
    real column[KN_DENSE_BLOCK][SOLVED_TOGETHER];
    for (int64_t first = 0; first < rows; first += SOLVED_TOGETHER) {
        int64_t m = rows - first < SOLVED_TOGETHER ? rows - first : SOLVED_TOGETHER;
        real *x = (real *)x_ + first * ldx;
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < n; j++) column[j][r] = x[r * ldx + j];
        for (int64_t j = 0; j < n; j++) {
            int64_t l = 0;
            for (; l + 4 <= j; l += 4)
                subtract_four(column[j], column[l], SOLVED_TOGETHER, &t[l * ldt + j], ldt, m);
            for (; l < j; l++) subtract(column[j], column[l], t[l * ldt + j], m);
            for (int64_t r = 0; r < m; r++) column[j][r] /= t[j * ldt + j];
        }
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < n; j++) x[r * ldx + j] = column[j][r];
    }
}

/* T·x = b in place; element (i, j) of T at i·row + j·column. */
void KN_LOOP(solve_columns)(void *x_, int64_t ldx, int64_t columns, const void *t_, int64_t row,
                            int64_t column, int64_t n, bool upper, bool unit) {
    const real *t = t_;
    real *x = x_;
    for (int64_t step = 0; step < n; step++) {
        int64_t i = upper ? n - 1 - step : step;
        real *at = x + i * ldx;
        int64_t j = upper ? i + 1 : 0, end = upper ? n : i;
        for (; j + 4 <= end; j += 4)
            subtract_four(at, x + j * ldx, ldx, &t[i * row + j * column], column, columns);
        for (; j < end; j++) subtract(at, x + j * ldx, t[i * row + j * column], columns);
        real d = t[i * row + i * column];
        if (unit) continue;
        for (int64_t c = 0; c < columns; c++) at[c] /= d;
    }
}

static inline void swap_rows(real *restrict x, real *restrict y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        real t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

/* As large as the element's size, NaN above all. */
static inline real_bits size_bits(real x) {
    real_bits bits;
    x = size_of(x);
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The row, from `first` on, whose element is the first of the largest ones. */
static inline int64_t pivot_of(const real *x, int64_t first, int64_t rows) {
    real_bits most = 0;
    for (int64_t i = first; i < rows; i++) most = size_bits(x[i]) > most ? size_bits(x[i]) : most;
    while (size_bits(x[first]) != most) first++;
    return first;
}

/* Subtracts the four columns from `k` on, x [4] of `height`, from another one, y. */
static inline void eliminate_four(real *y, const real *x, int64_t height, int64_t k, int64_t rows) {
    for (int i = 1; i < 4; i++)
        for (int l = 0; l < i; l++) y[k + i] -= y[k + l] * x[l * height + k + i];
    subtract_four(y + k + 4, x + k + 4, height, y + k, 1, rows - k - 4);
}

/* Columns first … first + n - 1 of a's rows [rows,ld] with partial pivoting: pivot[j] are rows,
 * which are swapped as a whole. The columns are contiguous in `space`, [n][KN_PANEL_ROWS(rows)].
 * Each four of them are eliminated first, then subtracted from the columns right of them. */
void KN_LOOP(lu_panel)(void *a_, int64_t ld, int64_t rows, int64_t first, int64_t n, void *space,
                       int32_t *pivot) {
    real *a = a_, *columns = space;
    const int64_t height = KN_PANEL_ROWS(rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) columns[j * height + i] = a[i * ld + first + j];
    for (int64_t k = 0; k < n; k++) {
        real *x = columns + k * height;
        int64_t best = pivot_of(x, k, rows), last = k / 4 * 4 + 4;
        pivot[k] = (int32_t)best;
        if (best != k) {
            swap_rows(a + k * ld, a + best * ld, ld);
            for (int64_t j = 0; j < n; j++)
                swap_rows(columns + j * height + k, columns + j * height + best, 1);
        }
        real d = x[k];
        for (int64_t i = k + 1; i < rows && d != 0; i++) x[i] /= d;
        for (int64_t j = k + 1; j < n && j < last; j++) {
            real *y = columns + j * height;
            subtract(y + k + 1, x + k + 1, y[k], rows - k - 1);
        }
        for (int64_t j = last; k == last - 1 && j < n; j++)
            eliminate_four(columns + j * height, x - 3 * height, height, k - 3, rows);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) a[i * ld + first + j] = columns[j * height + i];
}

/* The power of two by which v is divided so that the sum of its squares neither overflows nor loses
 * digits to underflow: 1 where that sum, `squares`, does neither. */
static inline real scale_of(const real *v, int64_t n, real squares) {
    enum { EXPONENT_MOST = (1 << (8 * sizeof(real) - 2 - KN_MANTISSA)) - 2 };
    const real least = (real)__builtin_ldexp(1, 2 * KN_MANTISSA - EXPONENT_MOST);
    real most = 0;
    if (squares >= least && squares < (real)__builtin_inf()) return 1;
    for (int64_t i = 0; i < n; i++) most = size_of(v[i]) > most ? size_of(v[i]) : most;
    if (__builtin_isinf(most)) return 1;
    int exponent = __builtin_ilogb((double)most);
    exponent = exponent > EXPONENT_MOST ? EXPONENT_MOST : exponent; /* its inverse is normal too */
    exponent = exponent < -EXPONENT_MOST ? -EXPONENT_MOST : exponent;
    return (real)__builtin_ldexp(1, exponent);
}

/* The reflection that leaves of v [n] only its first element, which is returned: v gets its vector,
 * with 1 in front. LAPACK's larfg. */
static inline real reflection_of(real *v, int64_t n, real *tau) {
    real tail = dot(v + 1, v + 1, n - 1), unit = scale_of(v, n, v[0] * v[0] + tail);
    if (unit != 1) {
        for (int64_t i = 0; i < n; i++) v[i] *= 1 / unit;
        tail = dot(v + 1, v + 1, n - 1);
    }
    real alpha = v[0], norm = root(alpha * alpha + tail), beta = alpha < 0 ? norm : -norm;
    real scale = tail == 0 ? 0 : 1 / (alpha - beta);
    *tau = tail == 0 ? 0 : (beta - alpha) / beta;
    v[0] = 1;
    for (int64_t i = 1; i < n; i++) v[i] *= scale;
    return (tail == 0 ? alpha : beta) * unit;
}

/* Householder's reflections of `n` columns, each a contiguous row of p [n][ld] of which elements
 * from `first` on count: column j keeps R above element first + j, and gets the reflection's vector
 * from there on, with 1 in front; diagonal[j] is R's, tau[j] the factor. LAPACK's signs. */
void KN_LOOP(reflect_panel)(void *p_, int64_t ld, int64_t m, int64_t first, int64_t n,
                            void *diagonal, void *tau_) {
    real *p = p_, *tau = tau_;
    for (int64_t j = 0; j < n && first + j < m; j++) {
        real *v = p + j * ld + first + j;
        int64_t left = m - first - j;
        ((real *)diagonal)[j] = reflection_of(v, left, &tau[j]);
        for (int64_t l = j + 1; l < n; l++) {
            real *c = p + l * ld + first + j;
            subtract(c, v, tau[j] * dot(v, c, left), left);
        }
    }
}

/* T [n][n] with H_0·…·H_{n-1} = I - V·T·Vᵀ; V's columns are the rows of v [n][ld]. LAPACK's larft.
 * `w` lives as long as the function: in the loop's body gcc 12 at -O2 puts it where dot's sums are
 * (GCC bug 90348). */
void KN_LOOP(reflect_factor)(void *t_, const void *v_, int64_t ld, int64_t m, int64_t n,
                             const void *tau_) {
    real *t = t_, w[KN_DENSE_BLOCK];
    const real *v = v_, *tau = tau_;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) w[j] = -tau[i] * dot(v + j * ld, v + i * ld, m);
        for (int64_t j = 0; j < n; j++) t[j * n + i] = 0;
        for (int64_t j = 0; j < i; j++)
            for (int64_t l = j; l < i; l++) t[j * n + i] += t[j * n + l] * w[l];
        t[i * n + i] = tau[i];
    }
}

/* -T·w or -Tᵀ·w, in place; w [n][columns], T [n][n] upper triangular. */
void KN_LOOP(reflect_apply)(void *w_, int64_t columns, const void *t_, int64_t n, bool trans) {
    real *w = w_;
    const real *t = t_;
    for (int64_t step = 0; step < n; step++) {
        int64_t i = trans ? n - 1 - step : step;
        real *at = w + i * columns;
        for (int64_t c = 0; c < columns; c++) at[c] *= -t[i * n + i];
        for (int64_t j = trans ? 0 : i + 1; j < (trans ? i : n); j++)
            subtract(at, w + j * columns, trans ? t[j * n + i] : t[i * n + j], columns);
    }
}

void KN_LOOP(negate)(void *restrict y, const void *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) ((real *)y)[i] = -((const real *)x)[i];
}

/* Of rows of n elements: those left of column first + row, on it, and right of it. */
void KN_LOOP(tri_scale_rows)(void *y_, const void *x_, int64_t first, int64_t rows, int64_t n,
                             double below, double on, double above) {
    for (int64_t r = 0; r < rows; r++) {
        real *restrict y = (real *)y_ + r * n;
        const real *restrict x = (const real *)x_ + r * n;
        int64_t diagonal = first + r < n ? first + r : n;
        for (int64_t c = 0; c < diagonal; c++) y[c] = below == 0 ? 0 : (real)below * x[c];
        if (diagonal == n) continue;
        y[diagonal] = on == 0 ? 0 : (real)on * x[diagonal];
        for (int64_t c = diagonal + 1; c < n; c++) y[c] = above == 0 ? 0 : (real)above * x[c];
    }
}

/* The sign of the product of the diagonal, and the logarithm of its size; the product itself. */
double KN_LOOP(diagonal_product)(const void *a_, int64_t n, double *sign, double *logarithm) {
    const real *a = a_;
    double product = 1, s = 1, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i * n + i];
        product *= d;
        s = d != d ? d : (d == 0 ? 0 : (d < 0 ? -s : s));
        sum += __builtin_log(d < 0 ? -d : d);
    }
    *sign = s, *logarithm = sum;
    return product;
}
