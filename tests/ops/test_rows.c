/* The functions of pointwise rows: how far they are off, at the ends of their ranges too, and that
 * instruction sets with a fused multiply-add give the same bits; values of the others. */
#include <float.h>
#include <math.h>

#include "golden/special.h"
#include "host/pointwise/rows.h"
#include "ops_test.h"

typedef long double wide;

/* |y - want| in units of want's last place, of numbers with `digits` bits, the smallest normal one
 * 2^lowest. */
static double ulps_of(double y, wide want, kn_dtype dtype) {
    int digits = dtype == KN_F64 ? 53 : 24, lowest = dtype == KN_F64 ? -1022 : -126, exponent;
    wide most = dtype == KN_F64 ? (wide)DBL_MAX : (wide)FLT_MAX;
    if (isnan(want)) return isnan(y) ? 0 : INFINITY;
    if (fabsl(want) > most) return isinf(y) || fabs(y) == (double)most ? 0 : INFINITY;
    frexpl(want, &exponent); /* want = m·2^exponent, m in [½, 1) */
    if (want == 0 || exponent - 1 < lowest) exponent = lowest + 1;
    return (double)(fabsl((wide)y - want) / exp2l((wide)(exponent - digits)));
}

typedef struct function {
    kn_op op;
    wide (*exact)(wide);
    double ulps_f32, ulps_f64;
    double lo, hi; /* where most samples are */
} function;

static wide sigm_exact(wide x) {
    wide e = expl(-fabsl(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* By the remainder of x in half turns. */
static wide sinpi_exact(wide x) {
    const wide pi = 3.14159265358979323846264338327950288L;
    wide r = remainderl(x, 2);
    if (fabsl(r) > 0.5L) r = copysignl(1 - fabsl(r), r);
    if (fabsl(r) <= 0.25L) return sinl(pi * r);
    return copysignl(cosl(pi * (0.5L - fabsl(r))), r);
}
static wide cospi_exact(wide x) { return sinpi_exact(0.5L - fabsl(remainderl(x, 2))); }

/* Newton's steps from the left: erf bends down, so that none goes too far. */
static wide erfinv_exact(wide x) {
    wide size = fabsl(x), y = 0, step = 1;
    if (!(size < 1)) return size == 1 ? x * (wide)INFINITY : (wide)NAN;
    for (int i = 0; i < 100 && step > y * 1e-18L; i++) {
        wide left = size < 0.5L ? size - erfl(y) : erfcl(y) - (1 - size); /* exact near 1 */
        step = left * 0.886226925452758013649L * expl(y * y);
        y += step;
    }
    return copysignl(y, x);
}

/* Ours, and libm's erfc of f64; glibc's manual allows its erfc 5. */
static const function functions[] = {
    {KN_OP_exp, expl, 1.1, 1.3, -100, 90},        {KN_OP_exp2, exp2l, 1.2, 1.3, -150, 128},
    {KN_OP_expm1, expm1l, 1.3, 1.9, -20, 80},     {KN_OP_log, logl, 0.9, 0.9, 0.2, 4},
    {KN_OP_log2, log2l, 0.8, 0.9, 0.2, 4},        {KN_OP_log10, log10l, 0.8, 0.9, 0.2, 4},
    {KN_OP_log1p, log1pl, 1, 1, -0.9, 3},         {KN_OP_tanh, tanhl, 1.5, 1.9, -3, 3},
    {KN_OP_erf, erfl, 1.6, 1.8, -3, 3},           {KN_OP_erfc, erfcl, 4.4, 5, -3, 9},
    {KN_OP_sin, sinl, 1.7, 0.95, -40, 40},        {KN_OP_cos, cosl, 1.7, 0.95, -40, 40},
    {KN_OP_sigm, sigm_exact, 2, 1.5, -30, 30},    {KN_OP_erfinv, erfinv_exact, 0.7, 4, -1, 1},
    {KN_OP_lgamma, lgammal, 2, 5, 0.2, 6},        {KN_OP_tan, tanl, 0.55, 2.5, -20, 20},
    {KN_OP_asin, asinl, 0.55, 2.2, -1, 1},        {KN_OP_acos, acosl, 0.55, 1.3, -1, 1},
    {KN_OP_atan, atanl, 0.55, 2, -40, 40},        {KN_OP_sinh, sinhl, 0.55, 2.2, -89, 89},
    {KN_OP_cosh, coshl, 0.55, 1.8, -89, 89},      {KN_OP_asinh, asinhl, 0.55, 1.9, -99, 99},
    {KN_OP_acosh, acoshl, 0.55, 2.4, 1, 99},      {KN_OP_atanh, atanhl, 0.55, 2.2, -1, 1},
    {KN_OP_sinpi, sinpi_exact, 0.55, 1.7, -9, 9}, {KN_OP_cospi, cospi_exact, 0.55, 1.7, -9, 9},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, N = 1 << 15 };

static double x64[N], y64[N], other64[N];
static float x32[N], y32[N];

/* Round 0: the special values and all sizes; 1: small numbers; else: the usual range. */
static void fill(const function *f, int round) {
    static const double special[] = {0,         -0.0,       INFINITY, -INFINITY, NAN,
                                     1,         -1,         DBL_MAX,  -DBL_MAX,  DBL_MIN,
                                     -DBL_MIN,  FLT_MAX,    -FLT_MAX, FLT_MIN,   -FLT_MIN,
                                     0x1p-1074, -0x1p-1074, 0x1p-149, 1e22};
    enum { SPECIAL = sizeof special / sizeof *special };
    for (int i = 0; i < N; i++) {
        double size = exp2(test_random_uniform(round ? -40 : -149, round ? 0 : 127));
        x64[i] =
            round < 2 ? (test_random_below(2) ? size : -size) : test_random_uniform(f->lo, f->hi);
        if (round == 0 && i < SPECIAL) x64[i] = special[i];
        x32[i] = (float)x64[i];
    }
}

static double worst_of(const function *f, kn_dtype dtype, int isa, double *at) {
    double worst = 0;
    for (int round = 0; round < 5; round++) {
        fill(f, round);
        const void *in = dtype == KN_F64 ? (const void *)x64 : x32;
        void *out = dtype == KN_F64 ? (void *)y64 : y32;
        const kn__row_loops *row = kn__row_isa(dtype, (unsigned)f->op, isa);
        if (!row) return 0;
        row->f(out, &in, N, 0, 0, false);
        for (int i = 0; i < N; i++) {
            double x = dtype == KN_F64 ? x64[i] : (double)x32[i];
            /* x87 reduces angles by a π of 66 bits */
            if (fabs(x) > 1e4 && (f->op == KN_OP_sin || f->op == KN_OP_cos || f->op == KN_OP_tan))
                continue;
            double y = dtype == KN_F64 ? y64[i] : (double)y32[i];
            double off = ulps_of(y, f->exact((wide)x), dtype);
            if (off > worst) worst = off, *at = x;
        }
    }
    return worst;
}

static void functions_are_right_to_the_last_places(void **state) {
    (void)state;
    for (int k = 0; k < FUNCTIONS; k++) {
        for (int i = 0; i < 6; i++) {
            const function *f = &functions[k];
            int t = i % 2, isa = 2 + i / 2;
            double at = 0, most = t ? f->ulps_f64 : f->ulps_f32;
            double worst = worst_of(f, t ? KN_F64 : KN_F32, isa, &at);
            if (worst > most) {
                fail_msg("v%d: %s of %s(%.17g) is %.3f ulp off; the limit is %g", isa,
                         t ? "f64" : "f32", kn_op_name(f->op), at, worst, most);
            }
        }
    }
}

/* The logistic function's for v2 too: test_pointwise.c. */
static void instruction_sets_with_fused_sums_give_the_same_bits(void **state) {
    (void)state;
    if (!kn__row_isa(KN_F32, KN_OP_exp, 4)) skip();
    for (int k = 0; k < FUNCTIONS; k++) {
        for (int round = 0; round < 10; round++) {
            kn_dtype dtype = round % 2 ? KN_F64 : KN_F32;
            fill(&functions[k], round / 2);
            const void *in = dtype == KN_F64 ? (const void *)x64 : x32;
            kn__row_isa(dtype, (unsigned)functions[k].op, 3)->f(y64, &in, N, 0, 0, false);
            kn__row_isa(dtype, (unsigned)functions[k].op, 4)->f(other64, &in, N, 0, 0, false);
            if (memcmp(y64, other64, N * kn_dtype_bytes(dtype)))
                fail_msg("v4's %s differs", kn_op_name(functions[k].op));
        }
    }
}

/* Up to 6 ulp. And x² is rounded, which e^(-x²/2) shows x²/2 times. */
static void gelu_is_right_to_the_last_places_but_for_its_tail(void **state) {
    (void)state;
    const void *in = x32;
    for (int i = 0; i < N; i++) x32[i] = (float)(-13.5 + 20 * (double)i / N);
    for (int isa = 2; isa <= 4; isa++) {
        const kn__row_loops *row = kn__row_isa(KN_F32, KN_OP_gelu, isa);
        if (!row) continue;
        row->f(y32, &in, N, 0, 0, false);
        for (int i = 0; i < N; i++) {
            wide x = (wide)x32[i], want = x * erfcl(-x * 0.70710678118654752440L) / 2;
            double square = x < 0 ? (double)(x * x) : 0,
                   off = ulps_of((double)y32[i], want, KN_F32);
            if (off > 6 + 0.5 * square) fail_msg("gelu(%g) is %.2f ulp off", (double)x, off);
        }
    }
}

/* --- functions of two numbers --- */

static wide mod_exact(wide a, wide b) {
    wide rest = fmodl(a, b);
    if (rest == 0) return copysignl(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static wide floor_exact(wide a, wide b) {
    if (b == 0) return a / b;
    wide rest = fmodl(a, b), q = nearbyintl((a - rest) / b);
    return copysignl(rest != 0 && (rest < 0) != (b < 0) ? q - 1 : q, a / b);
}

typedef struct function2 {
    kn_op op;
    wide (*exact)(wide, wide);
    double ulps_f32;
} function2;

/* Of f32, ours; 0.5: rounded once. */
static const function2 functions2[] = {{KN_OP_pow, powl, 0.51},
                                       {KN_OP_hypot, hypotl, 0.501},
                                       {KN_OP_fmod, fmodl, 0.501},
                                       {KN_OP_remainder, mod_exact, 0.501},
                                       {KN_OP_floor_div, floor_exact, 0.501}};
enum { FUNCTIONS2 = sizeof functions2 / sizeof *functions2, N2 = N / 8 };

/* Special values beside each other; any bits; numbers of one size; whole ones. */
static void fill2(float *a, float *b, int round) {
    static const float special[] = {0,        -0.0f,   1,         -1,       2,       -3,    0.5f,
                                    -0.5f,    33,      0x1p24f,   1e-45f,   -1e-45f, 1e38f, FLT_MAX,
                                    -FLT_MAX, FLT_MIN, -INFINITY, INFINITY, NAN};
    enum { SPECIAL = sizeof special / sizeof *special };
    for (int i = 0; i < N2; i++) {
        for (int k = 0; k < 2; k++) {
            float *x = k ? b : a;
            double size = exp2(test_random_uniform(-149, 127)),
                   sign = test_random_below(2) ? 1 : -1;
            x[i] = (float)(round == 0 && i < SPECIAL * SPECIAL
                               ? (double)special[k ? i % SPECIAL : i / SPECIAL]
                           : round < 2  ? sign * size
                           : round == 2 ? test_random_uniform(-20, 20)
                                        : nearbyint(test_random_uniform(-40, 40)));
        }
    }
}

static void assert_near2(const function2 *f, const float *a, const float *b, int form, int isa) {
    static const char *const forms[] = {"two vectors", "a vector and a number",
                                        "a number and a vector"};
    for (int i = 0; i < N2; i++) {
        float x = a[form == 2 ? 0 : i], y = b[form == 1 ? 0 : i];
        wide want = f->exact((wide)x, (wide)y);
        double off = ulps_of((double)y32[i], want, KN_F32);
        bool sign = want != 0 || !signbit(want) == !signbit(y32[i]);
        if (off <= f->ulps_f32 && sign) continue;
        fail_msg("v%d's %s(%.9g, %.9g) of %s is %.9g, not %.9g", isa, kn_op_name(f->op), (double)x,
                 (double)y, forms[form], (double)y32[i], (double)want);
    }
}

static void functions_of_two_are_rounded_once(void **state) {
    (void)state;
    static float a[N2], b[N2];
    for (int k = 0; k < 4 * FUNCTIONS2; k++) {
        const function2 *f = &functions2[k / 4];
        fill2(a, b, k % 4);
        for (int isa = 2; isa <= 4; isa++) {
            const kn__row_loops *row = kn__row_isa(KN_F32, (unsigned)f->op, isa);
            if (!row) continue;
            const kn__row_loop loops[] = {row->f, row->vs, row->sv};
            for (int form = 0; form < 3; form++) {
                loops[form](y32, (const void *[]){a, b}, N2, 0, 0, false);
                assert_near2(f, a, b, form, isa);
            }
        }
    }
}

/* elu and selu leave the exponential out where all numbers are above 0. */
static void one_number_below_zero_is_seen(void **state) {
    (void)state;
    static const int places[] = {0, 1023, 1024, 16383, 16384, 32000};
    for (int k = 0; k < 12; k++) {
        KN_FRAME();
        int at = places[k / 2];
        for (int i = 0; i < N; i++) x64[i] = i == at ? -2 : 2;
        kn_tensor *x = kn_cast(kn_tensor_from(x64, KN_F64, KN_SHAPE(N)), k % 2 ? KN_F64 : KN_F32);
        kn_tensor *y = kn_elu(x, 3);
        assert_close(ops_at(y, at), 3 * expm1(-2), 1e-6, 0);
        assert_true(ops_at(y, at ? at - 1 : 1) == 2 && ops_at(y, at + 1) == 2);
        x64[at] = NAN;
        assert_true(isnan(ops_at(kn_selu(kn_tensor_from(x64, KN_F64, KN_SHAPE(N))), at)));
    }
}

static void zeros_keep_their_sign(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *(*const odd[])(kn_tensor *) = {kn_expm1, kn_log1p, kn_tanh,  kn_erf,
                                              kn_sin,   kn_tan,   kn_asinh, kn_sinh,
                                              kn_atan,  kn_floor, kn_round};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_true(signbit(ops_at(odd[i](F32(KN_SHAPE(2), -0.0f, 0)), 0)));
        assert_true(signbit(ops_at(odd[i](F64(KN_SHAPE(2), -0.0, 0)), 0)));
        assert_false(signbit(ops_at(odd[i](F64(KN_SHAPE(2), -0.0, 0)), 1)));
    }
}

/* By a reduction of 1,100 bits. */
static void large_angles_are_reduced_exactly(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(8), 1e6f, -1e6f, 3e10f, 1.5f, 0x1p120f, 3.4e38f, INFINITY, NAN);
    kn_tensor *s = kn_sin(x), *c = kn_cos(x);
    for (int i = 0; i < 8; i++) {
        assert_close(ops_at(s, i), sin(ops_at(x, i)), 2.5e-7, 0);
        assert_close(ops_at(c, i), cos(ops_at(x, i)), 2.5e-7, 0);
    }
    /* an angle near a multiple of π/2, and the bits of a small one beside a large one */
    float near = 16367173.0f * 0x1p72f; /* close to one */
    assert_close(ops_at(kn_cos(F32(KN_SCALAR, near)), 0), cos((double)near), 2.5e-7, 0);
    float alone, beside;
    alone = (float)ops_at(kn_sin(F32(KN_SHAPE(1), 0.7f)), 0);
    beside = (float)ops_at(kn_sin(F32(KN_SHAPE(2), 0.7f, 1e20f)), 0);
    assert_memory_equal(&alone, &beside, sizeof alone);
}

/* --- values from mpmath (golden/special.py) --- */

static kn_tensor *polygamma2(kn_tensor *x) { return kn_polygamma(x, 2); }
static kn_tensor *polygamma3(kn_tensor *x) { return kn_polygamma(x, 3); }
static kn_tensor *besselj3(kn_tensor *x) { return kn_besselj(x, 3); }
static kn_tensor *bessely3(kn_tensor *x) { return kn_bessely(x, 3); }

static const struct named {
    const char *name;
    kn_tensor *(*op)(kn_tensor *);
} named[] = {
    {"erf", kn_erf},
    {"erfc", kn_erfc},
    {"erfinv", kn_erfinv},
    {"erfcinv", kn_erfcinv},
    {"erfcx", kn_erfcx},
    {"gamma", kn_gamma},
    {"lgamma", kn_lgamma},
    {"digamma", kn_digamma},
    {"trigamma", kn_trigamma},
    {"besselj0", kn_besselj0},
    {"besselj1", kn_besselj1},
    {"bessely0", kn_bessely0},
    {"bessely1", kn_bessely1},
    {"sinpi", kn_sinpi},
    {"cospi", kn_cospi},
    {"mod2pi", kn_mod2pi},
    {"mish", kn_mish},
    {"gelu_tanh", kn_gelu_tanh},
    {"softplus", kn_softplus},
    {"log_cosh", kn_log_cosh},
    {"polygamma2", polygamma2},
    {"polygamma3", polygamma3},
    {"besselj3", besselj3},
    {"bessely3", bessely3},
};

static void special_functions_agree_with_golden_values(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        KN_FRAME();
        const struct golden *g = &goldens[i];
        size_t k = 0;
        while (strcmp(named[k].name, g->name) != 0) k++;
        double y = ops_at(named[k].op(F64(KN_SHAPE(1), g->x)), 0);
        if (!(fabs(y - g->y) <= 3e-14 * fabs(g->y) + 2e-16)) {
            fail_msg("%s(%.17g) is %.17g; it must be %.17g", g->name, g->x, y, g->y);
        }
        float x = (float)g->x;
        if ((double)x != g->x) continue;
        double single = ops_at(named[k].op(F32(KN_SHAPE(1), x)), 0);
        assert_close(single, g->y, 1.2e-6, 1e-7);
    }
}

/* --- gradients --- */

enum { N_ADDED = 1100 }; /* more than two blocks of loops that add by blocks */

static void assert_adds(kn__row_loop loop, const void *const in[], bool f64, const char *op,
                        int isa) {
    static union {
        float f32[N_ADDED];
        double f64[N_ADDED];
    } set, added;
    for (int i = 0; i < N_ADDED; i++) {
        if (f64)
            added.f64[i] = 0.1 * i;
        else
            added.f32[i] = 0.1f * (float)i;
    }
    loop(&set, in, N_ADDED, 1.25, 0.5, false);
    loop(&added, in, N_ADDED, 1.25, 0.5, true);
    for (int i = 0; i < N_ADDED; i++) {
        double want = f64 ? 0.1 * i + set.f64[i] : 0.1f * (float)i + set.f32[i];
        double got = f64 ? added.f64[i] : (double)added.f32[i];
        if (got == want || (isnan(got) && isnan(want))) continue;
        fail_msg("v%d's %s adds to element %d: %.17g, not %.17g", isa, op, i, got, want);
    }
}

static void gradients_add_what_they_overwrite_with(void **state) {
    (void)state;
    static float f32[5][N_ADDED];
    static double f64[5][N_ADDED];
    for (int i = 0; i < 5 * N_ADDED; i++) {
        double x = i % N_ADDED == N_ADDED - 20 ? 1e5 : 0.05 + 0.9 * (i % 97) / 97; /* 1e5: far */
        f32[i / N_ADDED][i % N_ADDED] = (float)x, f64[i / N_ADDED][i % N_ADDED] = x;
    }
    for (int k = 0; k < 2 * 3 * KN_OP_COUNT; k++) {
        int op = k / 6, isa = 2 + k % 3;
        bool is_f64 = k / 3 % 2;
        const kn_op_info *info = &kn_op_table[op];
        if (!info->row || info->order) continue;
        const kn__row_loops *row = kn__row_isa(is_f64 ? KN_F64 : KN_F32, (unsigned)op, isa);
        const void *in[5];
        for (int j = 0; j < 5; j++) in[j] = is_f64 ? (void *)f64[j] : (void *)f32[j];
        for (int j = 0; row && j < 12; j++) {
            kn__row_loop loop = j < 3 ? row->d[j] : row->dd[j / 3 - 1][j % 3];
            if (loop) assert_adds(loop, in, is_f64, info->name, isa);
        }
    }
}

/* Far out, where a power of x is infinite and what it is multiplied by 0. */
static void slopes_of_huge_numbers_are_their_limits(void **state) {
    (void)state;
    static const struct {
        kn_op op;
        double below, above;
    } rows[] = {{KN_OP_gelu, 0, 1},
                {KN_OP_gelu_tanh, 0, 1},
                {KN_OP_mish, 0, 1},
                {KN_OP_erf, 0, 0},
                {KN_OP_erfc, 0, 0}};
    static const kn_dtype dtypes[] = {KN_F32, KN_BF16, KN_F64};
    for (int i = 0; i < 5 * 3 * 2; i++) {
        kn_op op = rows[i / 6].op;
        kn_dtype dtype = dtypes[i % 3];
        KN_FRAME(.fuse = i / 3 % 2 ? 1 : KN_OFF);
        double x[72], most = dtype == KN_F64 ? 0x1.8p1023 : 0x1.8p127;
        for (int k = 0; k < 72; k++)
            x[k] = (k % 2 ? 1000 : -1000) * pow(most / 1000, (k / 2) / 35.0);
        kn_tensor *at = kn_cast(kn_tensor_from(x, KN_F64, KN_SHAPE(72)), dtype);
        kn_tensor *one = kn_cast(kn_ones(KN_SHAPE(72)), dtype);
        kn_tensor *slope = op_row1_back((kn_op)(op + 1), one, at, KN_NONE);
        kn_tensor *bend = op_row1_back((kn_op)(op + 2), one, at, KN_NONE);
        slope = kn_cast(kn_affine(slope, 2, 0), KN_F64); /* fused with it */
        bend = kn_cast(kn_affine(bend, 2, 0), KN_F64);
        for (int k = 0; k < 72; k++) {
            double want = k % 2 ? rows[i / 6].above : rows[i / 6].below;
            double got = ops_at(slope, k), second = ops_at(bend, k);
            if (got == 2 * want && second == 0) continue;
            fail_msg("%s of %s at %g: slope %g, its slope %g", kn_op_name(op), kn_dtype_name(dtype),
                     x[k], got / 2, second / 2);
        }
    }
}

/* --- the other rows --- */

static void rounding_and_signs(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(6), -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, NAN);
    assert_values(kn_round(x), -2, 0, 0, 2, 2, NAN);
    assert_values(kn_floor(x), -2, -1, 0, 1, 2, NAN);
    assert_values(kn_ceil(x), -1, 0, 1, 2, 3, NAN);
    assert_values(kn_trunc(x), -1, 0, 0, 1, 2, NAN);
    assert_values(kn_square(x), 2.25, 0.25, 0.25, 2.25, 6.25, NAN);
    assert_values(kn_copysign(x, F32(KN_SHAPE(1), -0.0f)), -1.5, -0.5, -0.5, -1.5, -2.5, NAN);
    kn_tensor *a = F64(KN_SHAPE(4), 7, -7, 7, -7), *b = F64(KN_SHAPE(4), 3, 3, -3, -3);
    assert_values(kn_fmod(a, b), 1, -1, 1, -1);
    assert_values(kn_remainder(a, b), 1, 2, -2, -1);
    const int64_t *left = kn_data(
        kn_remainder(I64(KN_SHAPE(5), 7, -7, 7, INT64_MIN, 5), I64(KN_SHAPE(5), 3, 3, -3, -1, 0)));
    assert_true(left[0] == 1 && left[1] == 2 && left[2] == -2 && left[3] == 0 && left[4] == 0);
    const uint8_t most[] = {7, 255, 254}, by[] = {255, 255, 0};
    kn_tensor *small = kn_tensor_from(most, KN_U8, KN_SHAPE(3));
    kn_tensor *divisor = kn_tensor_from(by, KN_U8, KN_SHAPE(3));
    assert_memory_equal(kn_data(kn_fmod(small, divisor)), ((uint8_t[]){7, 0, 0}), 3);
    assert_memory_equal(kn_data(kn_remainder(small, divisor)), ((uint8_t[]){7, 0, 0}), 3);
    assert_memory_equal(kn_data(kn_floor_div(small, divisor)), ((uint8_t[]){0, 1, 0}), 3);
    const int64_t *rest = kn_data(kn_fmod(I64(KN_SHAPE(2), -7, 7), I64(KN_SHAPE(1), 3)));
    assert_true(rest[0] == -1 && rest[1] == 1);
}

static void kinds_of_numbers(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(5), 1, NAN, INFINITY, -INFINITY, 0);
    const uint8_t nan[] = {0, 1, 0, 0, 0}, inf[] = {0, 0, 1, 1, 0}, finite[] = {1, 0, 0, 0, 1};
    assert_int_equal(kn_tensor_dtype(kn_isnan(x)), KN_BOOL);
    assert_memory_equal(kn_data(kn_isnan(x)), nan, 5);
    assert_memory_equal(kn_data(kn_isinf(x)), inf, 5);
    assert_memory_equal(kn_data(kn_isfinite(x)), finite, 5);
    assert_memory_equal(kn_data(kn_isfinite(kn_cast(x, KN_F16))), finite, 5);
    const uint8_t not_[] = {0, 1, 1, 1, 0};
    assert_memory_equal(kn_data(kn_logical_not(kn_isfinite(x))), not_, 5);
    const uint8_t zero[] = {0, 0, 0, 0, 1};
    assert_memory_equal(kn_data(kn_logical_not(x)), zero, 5);
    const uint8_t *whole = kn_data(kn_isfinite(I64(KN_SHAPE(2), 3, INT64_MIN)));
    assert_true(whole[0] == 1 && whole[1] == 1);
}

static void lengths_and_angles(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F64(KN_SHAPE(4), 3, 3e200, 0, INFINITY), *b = F64(KN_SHAPE(4), 4, 4e200, 0, NAN);
    kn_tensor *z = kn_hypot(a, b);
    assert_close(ops_at(z, 0), 5, 0, 0);
    assert_close(ops_at(z, 1), 5e200, 1e-15, 0);
    assert_true(ops_at(z, 2) == 0 && isinf(ops_at(z, 3)));
    kn_tensor *y = F64(KN_SHAPE(4), 1, 1, -1, -1), *x = F64(KN_SHAPE(4), 1, -1, 1, -1);
    for (int i = 0; i < 4; i++) {
        assert_close(ops_at(kn_atan2(y, x), i), atan2(ops_at(y, i), ops_at(x, i)), 1e-15, 0);
    }
    assert_values(kn_sind(F64(KN_SHAPE(4), 90, 180, 30, -720)), 1, 0, 0.5, 0);
    assert_true(ops_at(kn_cosd(F64(KN_SHAPE(1), 90)), 0) == 0);
    assert_values(kn_tand(F64(KN_SHAPE(1), 45)), 1);
    assert_values(kn_deg2rad(F64(KN_SHAPE(1), 180)), 3.14159265358979);
    assert_values(kn_rad2deg(F64(KN_SHAPE(1), 3.14159265358979)), 180);
    double t = 0.7;
    kn_tensor *angle = F64(KN_SHAPE(1), t), *ratio = F64(KN_SHAPE(1), 1.7);
    assert_values(kn_sec(angle), 1 / cos(t));
    assert_values(kn_csc(angle), 1 / sin(t));
    assert_values(kn_cot(angle), 1 / tan(t));
    assert_values(kn_sech(angle), 1 / cosh(t));
    assert_values(kn_csch(angle), 1 / sinh(t));
    assert_values(kn_coth(angle), 1 / tanh(t));
    assert_values(kn_asec(ratio), acos(1 / 1.7));
    assert_values(kn_acsc(ratio), asin(1 / 1.7));
    assert_values(kn_acot(ratio), atan(1 / 1.7));
    assert_values(kn_asech(angle), acosh(1 / t));
    assert_values(kn_acsch(ratio), asinh(1 / 1.7));
    assert_values(kn_acoth(ratio), atanh(1 / 1.7));
    assert_values(kn_secd(F64(KN_SHAPE(1), 60)), 2);
    assert_values(kn_cscd(F64(KN_SHAPE(1), 30)), 2);
    assert_values(kn_cotd(F64(KN_SHAPE(1), 45)), 1);
    assert_values(kn_asind(F64(KN_SHAPE(1), 0.5)), 30);
    assert_values(kn_acosd(F64(KN_SHAPE(1), 0.5)), 60);
    assert_values(kn_atand(F64(KN_SHAPE(1), 1)), 45);
    assert_values(kn_asecd(F64(KN_SHAPE(1), 2)), 60);
    assert_values(kn_acscd(F64(KN_SHAPE(1), 2)), 30);
    assert_values(kn_acotd(F64(KN_SHAPE(1), 1)), 45);
}

static void activations(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(5), -4, -1, 0, 2, 7);
    assert_values(kn_elu(x, 2), 2 * expm1(-4), 2 * expm1(-1), 0, 2, 7);
    assert_values(kn_celu(x, 2), 2 * expm1(-2), 2 * expm1(-0.5), 0, 2, 7);
    assert_values(kn_selu(x), 1.7580993408473773 * expm1(-4), 1.7580993408473773 * expm1(-1), 0,
                  2.101401974711, 7.354906911);
    assert_values(kn_silu(x), -4 / (1 + exp(4)), -1 / (1 + exp(1)), 0, 2 / (1 + exp(-2)),
                  7 / (1 + exp(-7)));
    assert_values(kn_logsigmoid(x), -log1p(exp(4)), -log1p(exp(1)), -log(2), -log1p(exp(-2)),
                  -log1p(exp(-7)));
    assert_values(kn_hardsigmoid(x), 0, 1.0 / 3, 0.5, 5.0 / 6, 1);
    assert_values(kn_hardswish(x), 0, -1.0 / 3, 0, 5.0 / 3, 7);
    assert_values(kn_softsign(x), -0.8, -0.5, 0, 2.0 / 3, 0.875);
    assert_values(kn_hardshrink(x, 1), -4, 0, 0, 2, 7);
    assert_values(kn_softshrink(x, 1), -3, 0, 0, 1, 6);
    kn_tensor *whole = kn_softshrink(kn_cast(x, KN_I32), 1.5), *edge = F32(KN_SHAPE(1), NAN);
    assert_int_equal(kn_tensor_dtype(whole), KN_I32);
    assert_values(kn_cast(whole, KN_F32), -3, 0, 0, 1, 6);
    assert_true(isnan(ops_at(kn_softshrink(edge, 1), 0)));
    assert_values(kn_hardtanh(x, -1, 2), -1, -1, 0, 2, 2);
    assert_values(kn_relu6(x), 0, 0, 0, 2, 6);
    assert_values(kn_tanhshrink(x), tanh(4) - 4, tanh(1) - 1, 0, 2 - tanh(2), 7 - tanh(7));
    assert_values(kn_logit(F32(KN_SHAPE(2), 0.25f, 0.5f)), -log(3), 0);
    assert_values(kn_ldexp(x, F32(KN_SHAPE(1), 3)), -32, -8, 0, 16, 56);
    kn_tensor *a = F32(KN_SHAPE(3), 0, 2, -INFINITY), *b = F32(KN_SHAPE(3), 0, 3, -INFINITY);
    assert_values(kn_xlogy(a, F32(KN_SHAPE(3), 0, 3, 2)), 0, 2 * log(3), -INFINITY);
    assert_values(kn_logaddexp(a, b), log(2), 3 + log1p(exp(-1)), -INFINITY);
}

static void approximate_equality(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(5), 1, INFINITY, NAN, 3, -INFINITY);
    kn_tensor *b = F32(KN_SHAPE(5), 1.00001f, INFINITY, NAN, INFINITY, INFINITY);
    const uint8_t close[] = {1, 1, 0, 0, 0};
    assert_memory_equal(kn_data(kn_isclose(a, b, 1e-4, 0)), close, 5);
    const uint8_t *one = kn_data(kn_all_close(a, a, 0, 0));
    assert_true(one[0] == 0); /* NaN equals nothing */
    kn_tensor *c = F32(KN_SHAPE(2), 1, 2);
    one = kn_data(kn_all_close(c, kn_affine(c, 1, 1e-3), 0, 1e-2));
    assert_true(one[0] == 1);
    one = kn_data(kn_all_close(c, kn_affine(c, 1, 1e-3), 0, 1e-4));
    assert_true(one[0] == 0);
    kn_tensor *none = kn_zeros(KN_SHAPE(0, 3));
    one = kn_data(kn_all_close(none, none, 0, 0));
    assert_true(one[0] == 1);
    assert_op_fails(kn_isclose(c, a, 0, 0), KN_ERR_SHAPE, "shapes don't broadcast");
    assert_op_fails(kn_sind(NULL), KN_ERR_INVALID, "NULL");
    assert_op_fails(kn_sec(I64(KN_SHAPE(1), 1)), KN_ERR_DTYPE, "it must be floating");
}

int main(void) {
    return RUN_TESTS(
        TEST(functions_are_right_to_the_last_places),
        TEST(instruction_sets_with_fused_sums_give_the_same_bits),
        TEST(gelu_is_right_to_the_last_places_but_for_its_tail),
        TEST(functions_of_two_are_rounded_once), OPS_TEST(one_number_below_zero_is_seen),
        OPS_TEST(zeros_keep_their_sign), OPS_TEST(large_angles_are_reduced_exactly),
        OPS_TEST(special_functions_agree_with_golden_values), OPS_TEST(rounding_and_signs),
        TEST(gradients_add_what_they_overwrite_with),
        OPS_TEST(slopes_of_huge_numbers_are_their_limits), OPS_TEST(kinds_of_numbers),
        OPS_TEST(lengths_and_angles), OPS_TEST(activations), OPS_TEST(approximate_equality));
}
