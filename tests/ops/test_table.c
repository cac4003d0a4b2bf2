/* Walks the op table, and compares the loops of all instruction sets bit for bit. */
#include <math.h>

#include "convert.h"
#include "host/base/loops.h"
#include "host/pointwise/rows.h"
#include "host/reduce/folds.h"
#include "kernels_test.h"
#include "ops_test.h"

static void every_op_has_a_name_of_its_own(void **state) {
    (void)state;
    for (int a = 0; a < KN_OP_COUNT; a++) {
        assert_true(strlen(kn_op_name((kn_op)a)) > 0);
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(kn_op_name((kn_op)a), kn_op_name((kn_op)b));
        }
    }
    assert_string_equal(kn_op_name(KN_OP_conv), "conv");
    assert_string_equal(kn_op_name(KN_OP_relu_back), "relu_back");
}

static void every_op_has_a_kernel_on_the_host(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (!kn_op_supported((kn_op)op, KN_DEVICE_HOST)) {
            fail_msg("%s has no kernel on the host", kn_op_name((kn_op)op));
        }
        assert_true(kn_op_supported((kn_op)op, KN_DEVICE_SIM));
    }
}

/* --- instruction sets --- */

enum { N = 1337 };
typedef struct data {
    double x[N], y[N];
    uint8_t c[N];
} data;

static data random_data(kn_dtype dtype) {
    data d;
    for (int i = 0; i < N; i++) {
        double values[] = {test_random_uniform(-3, 3), test_random_uniform(-100, 100)};
        for (int k = 0; k < 2; k++) {
            double *array = k ? d.y : d.x;
            if (dtype == KN_F64)
                array[i] = values[k];
            else
                ((float *)(void *)array)[i] = (float)values[k];
        }
        d.c[i] = (uint8_t)test_random_below(2);
    }
    return d;
}

enum { ROW_LOOPS = 12 };

/* All that the loops make of d, one after the other. */
typedef struct results {
    double rows[KN_OP_COUNT][ROW_LOOPS][N];
    kn__cell folds[KN__FOLD_N][2][KN_COLUMNS];
    kn__cell best[2][2][KN_COLUMNS];
    int64_t places[2][2][KN_COLUMNS];
    double scans[KN_SCAN_N][2][N];
} results;

/* Every loop of a row: forward, forms, derivatives; each also added to its own result. */
static void run_row(double out[ROW_LOOPS][N], const kn__row_loops *row, int op, const data *d) {
    const kn__row_loop loops[ROW_LOOPS] = {
        row->f,        row->vs,       row->sv,       row->d[0],     row->d[1],     row->d[2],
        row->dd[0][0], row->dd[0][1], row->dd[0][2], row->dd[1][1], row->dd[1][2], row->dd[2][2]};
    const kn_op_info *info = &kn_op_table[op];
    const void *in[5] = {d->x, d->y, d->x};
    if (info->in[0] == KN_CLASS_BOOL) in[0] = d->c;
    const void *back[5] = {d->y, in[0], in[1], in[2], d->y};
    back[info->n_in + 1] = d->x;
    for (int i = 0; i < ROW_LOOPS; i++) {
        if (!loops[i]) continue;
        loops[i](out[i], i < 3 ? in : back, N, 0.7, 1.1, false);
        if (i >= 3) loops[i](out[i], back, N, 0.7, 1.1, true);
    }
}

enum { FOLD_ROWS = 13, FOLD_COLUMNS = 101 };

/* Every reduction along rows and along columns. */
static void run_folds(results *r, const kn__fold_table *folds, const data *d) {
    kn__cell shift[KN_COLUMNS];
    for (int i = 0; i < KN_COLUMNS; i++) shift[i].f = 100;
    for (int f = 0; f < KN__FOLD_N; f++) {
        if (!folds->rows[f]) continue;
        const void *x = f == KN__FOLD_PROD ? d->x : d->y;
        folds->rows[f](r->folds[f][0], x, 1, N, N, shift, 1.5);
        folds->rows[f](r->folds[f][0] + 1, x, FOLD_ROWS, FOLD_COLUMNS, FOLD_COLUMNS, shift, 1.5);
        folds->columns[f](r->folds[f][1], x, FOLD_COLUMNS, FOLD_ROWS, FOLD_COLUMNS, shift, 1.5);
    }
    for (int max = 0; max < 2; max++) {
        folds->place_rows(r->best[max][0], r->places[max][0], d->y, 1, N, N, max);
        folds->place_columns(r->best[max][1], r->places[max][1], d->y, FOLD_COLUMNS, FOLD_ROWS,
                             FOLD_COLUMNS, max);
    }
    for (int scan = 0; scan < KN_SCAN_N; scan++) {
        kn__scan_way way = {scan == 1, scan == 2};
        kn__cell carry[KN_COLUMNS] = {{0}};
        folds->scan_row[scan](r->scans[scan][0], d->x, d->y, carry, 1, N, 1, way);
        folds->scan_columns[scan](r->scans[scan][1], d->x, d->y, carry, FOLD_COLUMNS, FOLD_ROWS,
                                  FOLD_COLUMNS, way);
    }
}

static void run_all(results *r, const kn__fold_table *folds, kn_dtype dtype, int isa,
                    const data *d) {
    memset(r, 0, sizeof *r);
    for (int op = 0; op < KN_OP_COUNT; op++) {
        const kn_op_info *info = &kn_op_table[op];
        const kn__row_loops *row =
            info->row && !info->order ? kn__row_isa(dtype, (unsigned)op, isa) : NULL;
        if (row && row->f) run_row(r->rows[op], row, op, d);
    }
    run_folds(r, folds, d);
}

/* All of them, but those with a fused multiply-add alone where functions use it. */
static void instruction_sets_agree_bit_for_bit(void **state) {
    (void)state;
    const kn_dtype dtypes[] = {KN_F32, KN_F64};
    static results want, got;
    for (int t = 0; t < 2; t++) {
        data d = random_data(dtypes[t]);
        run_all(&want, kn__folds_isa(dtypes[t], 2), dtypes[t], 2, &d);
        for (int isa = 3; isa <= 4; isa++) {
            const kn__fold_table *folds = kn__folds_isa(dtypes[t], isa);
            if (!folds) continue;
            run_all(&got, folds, dtypes[t], isa, &d);
            if (isa == 3) {
                enum { SUM_EXP = KN__FOLD_SUM_EXP };
                memcpy(want.rows, got.rows, sizeof want.rows);
                memcpy(want.folds[SUM_EXP], got.folds[SUM_EXP], sizeof want.folds[SUM_EXP]);
            }
            for (int op = 0; op < KN_OP_COUNT; op++) {
                if (memcmp(got.rows[op], want.rows[op], sizeof got.rows[op])) {
                    fail_msg("v%d's %s differs", isa, kn_op_name((kn_op)op));
                }
            }
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

/* Derivatives of twice g are twice as large, to the bit. */
static void derivatives_are_linear_in_g(void **state) {
    (void)state;
    static double once[N], twice[N], g2[N];
    for (int t = 0; t < 2; t++) {
        kn_dtype dtype = t ? KN_F64 : KN_F32;
        data d = random_data(dtype);
        for (int i = 0; i < N; i++) {
            if (t)
                g2[i] = 2 * d.y[i];
            else
                ((float *)(void *)g2)[i] = 2 * ((float *)(void *)d.y)[i];
        }
        for (int op = 0; op < KN_OP_COUNT; op++) {
            const kn_op_info *info = &kn_op_table[op];
            if (!info->row || info->order) continue;
            const kn__row_loops *row = kn__row_loops_of(dtype, (unsigned)op);
            const void *x0 = info->in[0] == KN_CLASS_BOOL ? (const void *)d.c : d.x;
            const void *in[5] = {d.y, x0, d.x, d.y, d.x};
            for (int i = 0; i < 12; i++) {
                kn__row_loop loop = i < 3 ? row->d[i] : row->dd[i % 3][i / 3 - 1];
                if (!loop) continue;
                in[0] = d.y;
                loop(once, in, N, 0.7, 1.1, false);
                in[0] = g2;
                loop(twice, in, N, 0.7, 1.1, false);
                for (int k = 0; k < N; k++) {
                    double a = t ? once[k] : (double)((float *)(void *)once)[k],
                           b = t ? twice[k] : (double)((float *)(void *)twice)[k];
                    if (!(b == 2 * a || (a != a && b != b))) {
                        fail_msg("%s: derivative %d of 2g is %g, of g %g", info->name, i, b, a);
                    }
                }
            }
        }
    }
}

/* Integers have the rows of their classes, and wrap. */
static void integers_have_the_rows_of_their_classes(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_I64, KN_I32, KN_U8};
    for (int op = 0; op < KN_OP_COUNT; op++) {
        const kn_op_info *info = &kn_op_table[op];
        if (!info->row || info->order) continue;
        for (int t = 0; t < 3; t++) {
            unsigned last = info->in[info->n_in - 1];
            bool wanted = last >> dtypes[t] & 1 || (last == KN_CLASS_BOOL && dtypes[t] == KN_U8);
            assert_int_equal(kn__row_loops_of(dtypes[t], (unsigned)op)->f != NULL, wanted);
        }
    }
    KN_FRAME();
    kn_tensor *x = I64(KN_SHAPE(2), INT64_MAX, -3), *one = I64(KN_SCALAR, 1);
    const int64_t *sum = kn_data(kn_add(x, one)), *size = kn_data(kn_abs(x));
    assert_true(sum[0] == INT64_MIN && sum[1] == -2 && size[1] == 3);
    const uint8_t bytes[] = {200, 7};
    kn_tensor *u = kn_tensor_from(bytes, KN_U8, KN_SHAPE(2));
    const uint8_t *twice = kn_data(kn_add(u, u)), *low = kn_data(kn_clamp(u, -5, 100));
    assert_true(twice[0] == 144 && twice[1] == 14 && low[0] == 100 && low[1] == 7);
    kn_tensor *p = kn_gt(x, one), *q = kn_le(x, one);
    const uint8_t *both = kn_data(kn_logical_and(p, q)), *any = kn_data(kn_logical_or(p, q));
    assert_true(!both[0] && !both[1] && any[0] && any[1]);
    const int64_t *picked = kn_data(kn_where(p, one, x));
    assert_true(picked[0] == 1 && picked[1] == -3);
    assert_op_fails(kn_add(p, q), KN_ERR_DTYPE, "kn_add: a is bool; it must be a number, not bool");
    assert_op_fails(kn_tanh(x), KN_ERR_DTYPE, "kn_tanh: x is i64; it must be floating");
}

/* f16 and bf16 are computed as f32, block by block, broadcast or not. */
static void halves_agree_with_f32(void **state) {
    (void)state;
    KN_FRAME();
    enum { ROWS = 3, COLUMNS = 700 };
    static float x[ROWS * COLUMNS], y[COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)test_random_uniform(-2, 2);
    for (int i = 0; i < COLUMNS; i++) y[i] = (float)test_random_uniform(-2, 2);
    for (int h = 0; h < 2; h++) {
        kn_dtype half = h ? KN_BF16 : KN_F16;
        kn_tensor *a = kn_cast(kn_tensor_from(x, KN_F32, KN_SHAPE(ROWS, COLUMNS)), half);
        kn_tensor *b = kn_cast(kn_tensor_from(y, KN_F32, KN_SHAPE(COLUMNS)), half);
        kn_tensor *a32 = kn_cast(a, KN_F32), *b32 = kn_cast(b, KN_F32);
        assert_same_bits(kn_mul(a, b), kn_cast(kn_mul(a32, b32), half));
        assert_same_bits(kn_tanh(a), kn_cast(kn_tanh(a32), half));
        assert_same_bits(kn_lt(a, b), kn_lt(a32, b32));
        assert_same_bits(kn_where(kn_lt(a, b), a, b),
                         kn_cast(kn_where(kn_lt(a32, b32), a32, b32), half));
    }
}

/* --- results without cells --- */

/* Of one tile, by cells: of floats as reduce.c finishes them. */
static void by_cells(char *y, const char *x, kn_dtype dtype, const kn__fold_table *folds, int fold,
                     bool columns, int64_t down, double divisor) {
    const bool is_real = dtype == KN_F32 || dtype == KN_F64;
    const int64_t n = FOLD_COLUMNS, bytes = (int64_t)kn_dtype_bytes(dtype);
    bool max = fold == KN__FOLD_MAX || fold == KN__FOLD_MAX_ABS;
    kn__cell cells[FOLD_COLUMNS];
    for (int i = 0; i < n; i++) {
        if (is_real && fold >= KN__FOLD_MAX)
            cells[i].f = max ? -(double)INFINITY : (double)INFINITY;
        else if (is_real)
            cells[i].f = fold == KN__FOLD_PROD;
        else
            cells[i].i = max ? INT64_MIN : INT64_MAX;
    }
    (columns ? folds->columns : folds->rows)[fold](cells, x, n, down, columns ? n : down, NULL, 0);
    for (int i = 0; i < n; i++)
        kn__from_double(y + i * bytes, is_real ? cells[i].f / divisor : (double)cells[i].i, dtype);
}

static void assert_brief(const char *x, kn_dtype dtype, int fold, int isa, bool columns) {
    static char y[8 * FOLD_COLUMNS], want[8 * FOLD_COLUMNS];
    const int64_t n = FOLD_COLUMNS, bytes = (int64_t)kn_dtype_bytes(dtype);
    const kn__fold_table *folds = kn__folds_isa(dtype, isa);
    if (!folds) return;
    kn__brief_loop brief = (columns ? folds->brief_columns : folds->brief_rows)[fold];
    int64_t most = columns ? KN_BRIEF_ROWS : KN_BRIEF_ROW_BYTES / bytes - 1;
    for (int64_t down = 1; brief && down <= most; down++) {
        double divisor = down % 2 ? 1 : (double)down;
        brief(y, x, n, down, columns ? n : down, divisor);
        by_cells(want, x, dtype, folds, fold, columns, down, divisor);
        for (int64_t i = 0; i < n; i++) {
            double a = kn__as_double(y + i * bytes, dtype);
            double b = kn__as_double(want + i * bytes, dtype);
            if (memcmp(y + i * bytes, want + i * bytes, (size_t)bytes) && (a == a || b == b))
                fail_msg("v%d, %s: fold %d of %d %s is %g, not %g", isa, kn_dtype_name(dtype), fold,
                         (int)down, columns ? "rows" : "elements", a, b);
        }
    }
}

/* Extremes of `down` rows, one element at a time: the first of equal ones, and one NaN for all. */
static void assert_first_extremes(const float *x, int64_t n, int64_t down, int isa, bool max) {
    const kn__fold_table *folds = kn__folds_isa(KN_F32, isa);
    float y[FOLD_COLUMNS];
    if (!folds) return;
    folds->brief_columns[max ? KN__FOLD_MAX : KN__FOLD_MIN](y, x, n, down, n, 1);
    for (int64_t i = 0; i < n; i++) {
        float best = max ? -INFINITY : INFINITY;
        for (int64_t d = 0; d < down; d++) {
            float v = x[d * n + i];
            if (v != v || best != best)
                best = NAN;
            else if (max ? v > best : v < best)
                best = v;
        }
        if (memcmp(&y[i], &best, sizeof best))
            fail_msg("v%d: the %s of %d rows at column %d of %d is %a, not %a", isa,
                     max ? "largest" : "least", (int)down, (int)i, (int)n, (double)y[i],
                     (double)best);
    }
}

static void extremes_of_few_rows_are_the_first_ones(void **state) {
    (void)state;
    static const float special[] = {0, -0.0F, NAN, -NAN, INFINITY, -INFINITY, 1, -1};
    float x[FOLD_COLUMNS * 6];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < FOLD_COLUMNS * 6; i++) x[i] = special[test_random_below(8)];
        for (int k = 0; k < 36; k++)
            assert_first_extremes(x, FOLD_COLUMNS - round % 20, 1 + k / 6, 2 + k % 3, k % 2);
    }
}

static void brief_loops_have_the_bits_of_those_with_cells(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_I64, KN_I32, KN_U8};
    static const double special[] = {0, -0.0, NAN, INFINITY, -INFINITY, INT32_MIN};
    static char x[8 * FOLD_COLUMNS * KN_BRIEF_ROWS];
    for (int t = 0; t < 5; t++) {
        size_t bytes = kn_dtype_bytes(dtypes[t]);
        for (size_t i = 0; i < sizeof x / bytes; i++) {
            bool is_special = test_random_below(40) == 0;
            double v = test_random_uniform(-2, 2) * (t < 2 ? 1 : 100);
            kn__from_double(x + i * bytes, is_special ? special[test_random_below(6)] : v,
                            dtypes[t]);
        }
        for (int k = 0; k < 6 * KN__FOLD_N; k++)
            assert_brief(x, dtypes[t], k / 6, 2 + k % 3, k % 6 > 2);
    }
}

/* x [down,n], and the same columns with others beside them. */
static void assert_few_columns(const double *x, kn_dtype dtype, int fold, int isa, int64_t n,
                               int64_t down) {
    enum { WIDE = 7 };
    static char narrow[8 * 4 * 200], wide[8 * WIDE * 200];
    const kn__fold_table *folds = kn__folds_isa(dtype, isa);
    size_t bytes = kn_dtype_bytes(dtype);
    kn__cell cells[4], want[4], shift[4];
    if (!folds || !folds->columns[fold]) return;
    for (int64_t d = 0; d < down; d++) {
        for (int64_t i = 0; i < n; i++) {
            kn__from_double(narrow + (size_t)(d * n + i) * bytes, x[d * n + i], dtype);
            kn__from_double(wide + (size_t)(d * WIDE + i) * bytes, x[d * n + i], dtype);
        }
    }
    for (int i = 0; i < 4; i++) cells[i].f = want[i].f = 1 + i, shift[i].f = 0.25 * i + 2;
    folds->columns[fold](cells, narrow, n, down, n, shift, 1.5);
    folds->columns[fold](want, wide, n, down, WIDE, shift, 1.5);
    if (memcmp(cells, want, (size_t)n * sizeof *cells))
        fail_msg("v%d, %s: fold %d of %d rows of %d gives %.17g, not %.17g", isa,
                 kn_dtype_name(dtype), fold, (int)down, (int)n, cells[0].f, want[0].f);
}

static void few_columns_have_the_bits_of_many(void **state) {
    (void)state;
    static double x[4 * 200];
    for (int i = 0; i < 4 * 200; i++) x[i] = test_random_uniform(-2, 2);
    for (int64_t down = 1; down < 200; down = down < 8 ? down + 1 : 2 * down - 3)
        for (int k = 0; k < 18 * KN__FOLD_N; k++)
            assert_few_columns(x, k & 1 ? KN_F32 : KN_F64, k / 18, 2 + k / 2 % 3, 2 + k / 6 % 3,
                               down);
}

/* Line `o`'s: a NaN is the extreme. */
static int64_t first_extreme(const char *x, kn_dtype dtype, int64_t o, int64_t down, bool columns,
                             int64_t n, bool max) {
    int64_t bytes = (int64_t)kn_dtype_bytes(dtype), first = 0;
    double best = 0;
    for (int64_t d = 0; d < down; d++) {
        double v = kn__as_double(x + (columns ? d * n + o : o * down + d) * bytes, dtype);
        if (d == 0 || (max ? v > best : v < best) || (v != v && best == best)) best = v, first = d;
    }
    return first;
}

static void assert_places(const char *x, kn_dtype dtype, int isa, int64_t n, int64_t down,
                          int way) {
    bool columns = way & 1, max = way & 2;
    const kn__fold_table *folds = kn__folds_isa(dtype, isa);
    kn__cell cells[FOLD_COLUMNS];
    int64_t places[FOLD_COLUMNS];
    size_t bytes = kn_dtype_bytes(dtype);
    if (!folds) return;
    (columns ? folds->place_columns : folds->place_rows)(cells, places, x, n, down,
                                                         columns ? n : down, max);
    for (int64_t o = 0; o < n; o++) {
        int64_t want = first_extreme(x, dtype, o, down, columns, n, max);
        char y[8];
        const char *value = x + (size_t)(columns ? want * n + o : o * down + want) * bytes;
        kn__from_double(y, dtype < KN_I64 ? cells[o].f : (double)cells[o].i, dtype);
        double v = kn__as_double(y, dtype);
        if (places[o] != want || (v == v && memcmp(y, value, bytes)))
            fail_msg("v%d, %s: the extreme of %d %s is %d, not %d", isa, kn_dtype_name(dtype),
                     (int)down, columns ? "rows" : "elements", (int)places[o], (int)want);
    }
}

static void places_are_those_of_the_first_extremes(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_I64, KN_I32, KN_U8};
    static const double special[] = {0, -0.0, 0, -0.0, INFINITY, -INFINITY, NAN};
    static char x[8 * FOLD_COLUMNS * 600];
    for (int k = 0; k < 60; k++) {
        kn_dtype dtype = dtypes[k % 5];
        size_t bytes = kn_dtype_bytes(dtype), kinds = k % 2 ? 4 : 7;
        for (size_t i = 0; i < sizeof x / bytes; i++) {
            double v = (double)test_random_below(5) - 2;
            if (test_random_below(5) == 0) v = special[test_random_below(kinds)];
            kn__from_double(x + i * bytes, v, dtype);
        }
        for (int64_t n = 1; n < FOLD_COLUMNS; n = 2 * n + 1) {
            for (int64_t down = 1; down < 600; down = down < 20 ? down + 1 : 3 * down)
                assert_places(x, dtype, 2 + k % 3, n, down, k / 15);
        }
    }
}

/* --- casts --- */

/* Of the types, what lies beside them, and halfway between neighbours. */
static const double ends[] = {0,
                              -0.0,
                              NAN,
                              INFINITY,
                              -INFINITY,
                              0.9,
                              -0.9,
                              255,
                              255.9,
                              256,
                              254.999,
                              -1,
                              2147483647,
                              2147483646.9,
                              2147483648,
                              -2147483648.,
                              -2147483649.,
                              -2147483647.5,
                              2147483520,
                              2147483904.,
                              0x1p53,
                              0x1p63,
                              -0x1p63,
                              0x1p64,
                              -0x1.8p63,
                              0x1p63 - 1024,
                              0x1p63 - 0x1p39,
                              1e300,
                              65504,
                              65519.9,
                              65520,
                              16842753,
                              -16842753,
                              16842752,
                              0x1p-24,
                              0x1p-25,
                              0x1p-149,
                              2049,
                              -2051,
                              16777217};

/* These, then bits at random, of which some are small. */
static void make_elements(char *x, kn_dtype dtype) {
    const int bytes = (int)kn_dtype_bytes(dtype);
    for (int i = 0; i < N; i++, x += bytes) {
        uint64_t bits = test_random();
        if (dtype == KN_BOOL)
            *x = (char)(bits & 1);
        else if (i < (int)(sizeof ends / sizeof *ends))
            kn__from_double(x, ends[i], dtype);
        else if (dtype >= KN_I64)
            memcpy(x, &(int64_t){(int64_t)bits >> (i % 64)}, (size_t)bytes);
        else
            memcpy(x, &bits, (size_t)bytes);
    }
}

/* One element, as documented. */
static void cast_one(void *y, kn_dtype to, const void *x, kn_dtype from) {
    int64_t wide;
    memcpy(&wide, x, from == KN_I64 ? sizeof wide : 0);
    if (from != KN_I64) {
        kn__from_double(y, kn__as_double(x, from), to);
    } else if (to == KN_F16 || to == KN_BF16) {
        kn__from_double(y, kn__i64_to_odd(wide), to);
    } else if (to == KN_F32) {
        memcpy(y, &(float){(float)wide}, sizeof(float));
    } else if (to == KN_I64) {
        memcpy(y, &wide, sizeof wide);
    } else {
        kn__from_double(y, (double)wide, to);
    }
}

static bool cast_all(char *y, kn_dtype to, const char *x, kn_dtype from, int isa) {
    bool is_real = to == KN_F32 || to == KN_F64, from_half = from == KN_F16 || from == KN_BF16;
    const kn__loop_table *loops = kn__loops_isa(is_real ? to : from, isa);
    if (!loops || (!is_real && from_half)) return false;
    if (is_real)
        loops->cast_from(y, x, from, N);
    else if (from == KN_F32 || from == KN_F64)
        loops->cast_to(y, x, to, N);
    else
        loops->cast_integers(y, to, x, from, N);
    return true;
}

static void casts_are_those_of_single_elements(void **state) {
    (void)state;
    static char x[8 * N], y[8 * N], want[8 * N];
    for (int pair = 0; pair < KN_BOOL * KN_BOOL; pair++) {
        kn_dtype from = (kn_dtype)(1 + pair / KN_BOOL), to = (kn_dtype)(1 + pair % KN_BOOL);
        size_t step = kn_dtype_bytes(from), bytes = kn_dtype_bytes(to);
        if (from == to) continue;
        make_elements(x, from);
        for (size_t i = 0; i < N; i++) cast_one(want + i * bytes, to, x + i * step, from);
        for (int isa = 2; isa <= 4; isa++) {
            memset(y, 0x55, sizeof y);
            if (!cast_all(y, to, x, from, isa)) continue;
            for (size_t i = 0; i < N; i++) {
                double got = kn__as_double(y + i * bytes, to);
                double one = kn__as_double(want + i * bytes, to);
                if ((got == got || one == one) && memcmp(y + i * bytes, want + i * bytes, bytes))
                    fail_msg("v%d: element %zu of %s to %s is %g, not %g", isa, i,
                             kn_dtype_name(from), kn_dtype_name(to), got, one);
            }
        }
    }
}

int main(void) {
    return RUN_TESTS(
        TEST(every_op_has_a_name_of_its_own), TEST(every_op_has_a_kernel_on_the_host),
        TEST(instruction_sets_agree_bit_for_bit), TEST(derivatives_are_linear_in_g),
        TEST(extremes_of_few_rows_are_the_first_ones),
        TEST(brief_loops_have_the_bits_of_those_with_cells),
        TEST(places_are_those_of_the_first_extremes), TEST(few_columns_have_the_bits_of_many),
        TEST(casts_are_those_of_single_elements), OPS_TEST(integers_have_the_rows_of_their_classes),
        OPS_TEST(halves_agree_with_f32));
}
