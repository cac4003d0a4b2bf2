/* Trigonometric and hyperbolic functions and their inverses, lengths and angles of points: signs,
 * ends and what lies out of reach of fast reductions, in f64. How far functions are off:
 * test_rows.c. */
#include <float.h>
#include <math.h>

#include "ops_test.h"

typedef struct angle_case {
    const char *name;
    kn_tensor *(*op)(kn_tensor *);
    long double (*exact)(long double);
} angle_case;

static const long double pi = 3.14159265358979323846264338327950288L;

/* x in half turns, by the remainder of x and the nearer of sine and cosine. */
static long double sinpi_exact(long double x) {
    long double r = remainderl(x, 2);
    if (fabsl(r) > 0.5L) r = copysignl(1 - fabsl(r), r);
    if (fabsl(r) <= 0.25L) return sinl(pi * r);
    return copysignl(cosl(pi * (0.5L - fabsl(r))), r);
}
static long double cospi_exact(long double x) {
    return sinpi_exact(0.5L - fabsl(remainderl(x, 2)));
}

static const angle_case cases[] = {
    {"sin", kn_sin, sinl},
    {"cos", kn_cos, cosl},
    {"tan", kn_tan, tanl},
    {"asin", kn_asin, asinl},
    {"acos", kn_acos, acosl},
    {"atan", kn_atan, atanl},
    {"sinh", kn_sinh, sinhl},
    {"cosh", kn_cosh, coshl},
    {"asinh", kn_asinh, asinhl},
    {"acosh", kn_acosh, acoshl},
    {"atanh", kn_atanh, atanhl},
    {"sinpi", kn_sinpi, sinpi_exact},
    {"cospi", kn_cospi, cospi_exact},
};
enum { CASES = sizeof cases / sizeof *cases };

/* As C's: zeros with their signs, ends, NaN, numbers out of reach of the fast reduction, and the
 * nearest to multiples of π/2. */
static const double special[] = {
    0.0,    -0.0,    1,      -1,       0.5,     -0.5,     2,      -2,        INFINITY, -INFINITY,
    NAN,    1e300,   -1e300, DBL_MAX,  DBL_MIN, -DBL_MIN, 5e-324, -5e-324,   1e-310,   524288,
    1e9,    -1e22,   3,      -3,       1.5,     -1.5,     711,    -711,      710.4,    1e-20,
    -1e-20, 0x1p-28, 0.25,   0.75,     -0.75,   1e16,     -1e16,  7.5,       89.5,     -89.5,
    0.4375, 2.4375,  11,     -0x1p500, 1e155,   1e-170,   3.5e5,  1.5707964, 355,      -1e38,
};
enum { SPECIAL = sizeof special / sizeof *special };

static bool is_same(double y, double want, double within) {
    if (isnan(want) || isnan(y)) return isnan(want) && isnan(y);
    if (want == 0) return y == 0 && signbit(y) == signbit(want);
    return y == want || fabs(y - want) <= within * fabs(want);
}

static void ends_and_signs_are_those_of_c(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        bool is_pi = cases[c].op == kn_sinpi || cases[c].op == kn_cospi;
        KN_FRAME();
        const double *y = kn_data(cases[c].op(kn_tensor_from(special, KN_F64, KN_SHAPE(SPECIAL))));
        for (int i = 0; i < SPECIAL; i++) { /* and alone, without a far neighbour */
            double alone = ops_at(cases[c].op(kn_tensor_from(&special[i], KN_F64, KN_SHAPE(1))), 0);
            double want = (double)cases[c].exact((long double)special[i]);
            if (is_pi && want == 0) want = fabs(want); /* zeros of either sign */
            double got = is_pi && y[i] == 0 ? fabs(y[i]) : y[i];
            if (!is_same(got, want, 5e-16) || !is_same(alone, y[i], 0))
                fail_msg("%s(%.17g) is %.17g, alone %.17g, and should be %.17g", cases[c].name,
                         special[i], y[i], alone, want);
        }
    }
}

static void angles_and_lengths_of_points_are_those_of_c(void **state) {
    (void)state;
    enum { ALL = SPECIAL * SPECIAL, MORE = 20000 };
    static double a[ALL + MORE], b[ALL + MORE];
    for (int i = 0; i < ALL + MORE; i++) {
        a[i] = i < ALL ? special[i / SPECIAL] : ldexp(test_random_uniform(-1, 1), i % 20);
        b[i] = i < ALL ? special[i % SPECIAL] : ldexp(test_random_uniform(-1, 1), 10);
    }
    KN_FRAME();
    kn_shape n = KN_SHAPE(ALL + MORE);
    kn_tensor *x = kn_tensor_from(a, KN_F64, n), *y = kn_tensor_from(b, KN_F64, n);
    const double *angle = kn_data(kn_atan2(x, y)), *length = kn_data(kn_hypot(x, y));
    kn_tensor *x32 = kn_cast(x, KN_F32), *y32 = kn_cast(y, KN_F32);
    const float *f = kn_data(x32), *g = kn_data(y32), *angle32 = kn_data(kn_atan2(x32, y32));
    for (int i = 0; i < ALL + MORE; i++) {
        double want = atan2(a[i], b[i]), far = hypot(a[i], b[i]);
        double want32 = atan2((double)f[i], (double)g[i]);
        bool tiny = fabs(want) < DBL_MIN || far < DBL_MIN; /* fewer digits */
        if (!is_same(angle[i], want, tiny ? 1 : 5e-16))
            fail_msg("atan2(%.17g, %.17g) is %.17g, not %.17g", a[i], b[i], angle[i], want);
        if (!is_same(length[i], far, tiny ? 1 : 5e-16))
            fail_msg("hypot(%.17g, %.17g) is %.17g, not %.17g", a[i], b[i], length[i], far);
        if (fabs(want32) >= (double)FLT_MIN && !is_same((double)angle32[i], want32, 7e-8))
            fail_msg("atan2(%.9g, %.9g) is %.9g, not %.9g in f32", (double)f[i], (double)g[i],
                     (double)angle32[i], want32);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(ends_and_signs_are_those_of_c),
                     OPS_TEST(angles_and_lengths_of_points_are_those_of_c));
}
