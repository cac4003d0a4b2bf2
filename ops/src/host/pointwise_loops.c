/* The formulas of ops.def as loops, and those of the few pointwise ops that have attributes. */
#include "pointwise_math.h"

/* A result may stand where an input stood, element for element. */
#ifdef __clang__
#define SIMD /* it checks at run time, and warns of loops that it can't vectorise */
#else
#define SIMD _Pragma("GCC ivdep")
#endif

/* --- one input --- */

#define KN_UNARY(name, formula, saves, gradient)                                                   \
    static void name##_loop(real *out, const real *in, int64_t n) {                                \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            real x = in[i];                                                                        \
            out[i] = formula;                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_back_loop(real *out, const real *saved, const real *dy, int64_t n) {        \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            real s = saved[i], g = dy[i];                                                          \
            (void)s, (void)g;                                                                      \
            out[i] = gradient;                                                                     \
        }                                                                                          \
    }
#include <knet/ops.def>

static void affine_loop(real *y, const real *x, int64_t n, real a, real b) {
    SIMD for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b;
}

static void square_loop(real *y, const real *x, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] * x[i];
}

static void inverse_loop(real *y, const real *x, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) y[i] = 1 / x[i];
}

static void pow_scalar_loop(real *y, const real *x, int64_t n, real p) {
    if (p == 2)
        square_loop(y, x, n);
    else if (p == -1)
        inverse_loop(y, x, n);
    else
        for (int64_t i = 0; i < n; i++) y[i] = T_POW(x[i], p);
}

void KN_LOOP(unary)(kn_op op, void *y, const void *x, int64_t n, double a, double b) {
    switch ((int)op) {
#define KN_UNARY(name, formula, saves, gradient)                                                   \
    case KN_OP_##name:                                                                             \
        name##_loop(y, x, n);                                                                      \
        return;
#include <knet/ops.def>
        case KN_OP_affine:
            affine_loop(y, x, n, (real)a, (real)b);
            return;
        default:
            pow_scalar_loop(y, x, n, (real)a);
    }
}

void KN_LOOP(unary_back)(kn_op op, void *dx, const void *s, const void *g, int64_t n) {
    switch ((int)op) {
#define KN_UNARY(name, formula, saves, gradient)                                                   \
    case KN_OP_##name##_back:                                                                      \
        name##_back_loop(dx, s, g, n);                                                             \
        return;
#include <knet/ops.def>
        default:
            KN_ASSERT(false);
    }
}

/* --- two inputs: both vectors, or one of them a single element --- */

#define LOOP_VV(name, type, formula)                                                               \
    static void name##_vv(type *z, const real *a, const real *b, int64_t n) {                      \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            real x = a[i], y = b[i];                                                               \
            z[i] = formula;                                                                        \
        }                                                                                          \
    }
#define LOOP_VS(name, type, formula)                                                               \
    static void name##_vs(type *z, const real *a, const real *b, int64_t n) {                      \
        const real y = *b;                                                                         \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            real x = a[i];                                                                         \
            z[i] = formula;                                                                        \
        }                                                                                          \
    }
#define LOOP_SV(name, type, formula)                                                               \
    static void name##_sv(type *z, const real *a, const real *b, int64_t n) {                      \
        const real x = *a;                                                                         \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            real y = b[i];                                                                         \
            z[i] = formula;                                                                        \
        }                                                                                          \
    }
#define LOOPS(name, type, formula)                                                                 \
    LOOP_VV(name, type, formula) LOOP_VS(name, type, formula) LOOP_SV(name, type, formula)
#define KN_BINARY(name, formula) LOOPS(name, real, formula)
#define KN_COMPARE(name, formula) LOOPS(name, uint8_t, formula)
#include <knet/ops.def>

#define BY_FORM(name)                                                                              \
    case KN_OP_##name:                                                                             \
        if (form == KN_FORM_VV)                                                                    \
            name##_vv(z, a, b, n);                                                                 \
        else if (form == KN_FORM_VS)                                                               \
            name##_vs(z, a, b, n);                                                                 \
        else                                                                                       \
            name##_sv(z, a, b, n);                                                                 \
        return;

void KN_LOOP(binary)(kn_op op, int form, void *z, const void *a, const void *b, int64_t n) {
    switch ((int)op) {
#define KN_BINARY(name, formula) BY_FORM(name)
#define KN_COMPARE(name, formula) BY_FORM(name)
#include <knet/ops.def>
        default:
            KN_ASSERT(false);
    }
}

/* steps: 1 or 0 elements for c, a, b. */
void KN_LOOP(where)(void *out, const uint8_t *c, const void *in_a, const void *in_b, int64_t n,
                    const int steps[3]) {
    real *z = out;
    const real *a = in_a, *b = in_b;
    const int64_t sa = steps[1], sb = steps[2];
    if (steps[0] && sa && sb) {
        SIMD for (int64_t i = 0; i < n; i++) z[i] = c[i] ? a[i] : b[i];
    } else if (steps[0]) {
        for (int64_t i = 0; i < n; i++) z[i] = c[i] ? a[i * sa] : b[i * sb];
    } else {
        const real *from = *c ? a : b;
        const int64_t step = *c ? sa : sb;
        for (int64_t i = 0; i < n; i++) z[i] = from[i * step];
    }
}
