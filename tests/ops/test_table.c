/* Walks the op table, and compares the loops of all instruction sets bit for bit. */
#include <math.h>

#include "host/loops.h"
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

/* All that the loops make of d, one after the other. */
typedef struct results {
    double unary[KN_OP_COUNT][N], binary[3][KN_OP_COUNT][N], where[N], sums[KN_COLUMNS];
    double rows[3], best[2][KN_COLUMNS];
    int64_t places[KN_COLUMNS], place;
} results;

static void run_all(results *r, const kn_loops *loops, const data *d) {
    memset(r, 0, sizeof *r);
#define KN_UNARY(name, formula, saves, gradient)                                                   \
    loops->unary(KN_OP_##name, r->unary[KN_OP_##name], d->x, N, 0, 0);                             \
    loops->unary_back(KN_OP_##name##_back, r->unary[KN_OP_##name##_back], d->x, d->y, N);
#define KN_BINARY(name, formula)                                                                   \
    for (int form = 0; form < 3; form++)                                                           \
        loops->binary(KN_OP_##name, form, r->binary[form][KN_OP_##name], d->x, d->y, N);
#define KN_COMPARE(name, formula) KN_BINARY(name, formula)
#include <knet/ops.def>
    loops->unary(KN_OP_affine, r->unary[KN_OP_affine], d->x, N, 1.7, -0.3);
    loops->unary(KN_OP_pow_scalar, r->unary[KN_OP_pow_scalar], d->x, N, 3, 0);
    loops->where(r->where, d->c, d->x, d->y, N, (int[]){1, 1, 0});
    r->rows[0] = loops->sum_row(d->x, N);
    r->rows[1] = loops->extreme_row(true, d->y, N);
    r->rows[2] = loops->extreme_row(false, d->y, N);
    r->place = loops->argmax_row(d->y, N);
    enum { ROWS = 13, COLUMNS = 101 };
    loops->sum_columns(r->sums, d->x, ROWS, COLUMNS, COLUMNS);
    loops->extreme_columns(true, r->best[0], d->x, ROWS, COLUMNS, COLUMNS);
    loops->extreme_columns(false, r->best[1], d->x, ROWS, COLUMNS, COLUMNS);
    loops->argmax_columns(r->places, d->x, ROWS, COLUMNS, COLUMNS);
}

static void instruction_sets_agree_bit_for_bit(void **state) {
    (void)state;
    const kn_dtype dtypes[] = {KN_F32, KN_F64};
    static results want, got;
    for (int t = 0; t < 2; t++) {
        data d = random_data(dtypes[t]);
        run_all(&want, kn__loops_isa(dtypes[t], 2), &d);
        for (int isa = 3; isa <= 4; isa++) {
            const kn_loops *loops = kn__loops_isa(dtypes[t], isa);
            if (!loops) continue;
            run_all(&got, loops, &d);
            for (int op = 0; op < KN_OP_COUNT; op++) {
                if (memcmp(got.unary[op], want.unary[op], sizeof got.unary[op])) {
                    fail_msg("v%d's %s differs", isa, kn_op_name((kn_op)op));
                }
            }
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

int main(void) {
    return RUN_TESTS(TEST(every_op_has_a_name_of_its_own), TEST(every_op_has_a_kernel_on_the_host),
                     TEST(instruction_sets_agree_bit_for_bit));
}
