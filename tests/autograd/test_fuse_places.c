/* Frames with .fuse: a result takes the place of an array that ends only where each of its elements
 * lies where the same one was. Arrays that are gone before their readers are computed, of any
 * width, give the bits of single ops. */
#include <math.h>

#include "autograd_test.h"

enum { ROWS = 8, COLUMNS = 1024, N = ROWS * COLUMNS };

static kn_tensor *first(kn_tensor *x, int64_t n) {
    return kn_slice(kn_reshape(x, KN_SHAPE(-1)), KN_SHAPE(0), KN_SHAPE(n));
}

/* The first part of an array that ends, as wide as the array was. */
static kn_tensor *widened(kn_dtype from, kn_dtype to) {
    KN_FRAME();
    int64_t n = N * (int64_t)(kn_dtype_bytes(to) / kn_dtype_bytes(from));
    kn_tensor *x = kn_cast(kn_affine(kn_linspace(0, 100, n), 1, 0), from);
    return kn_data(x) ? kn_keep(kn_cast(first(x, N), to)) : NULL;
}

static void a_wider_result_is_not_written_over_what_is_read_later(void **state) {
    (void)state;
    static const kn_dtype dtypes[][2] = {
        {KN_F32, KN_F64}, {KN_BF16, KN_F32}, {KN_U8, KN_F32}, {KN_F16, KN_F64}};
    static char bits[2][N * sizeof(double)];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        size_t bytes = N * kn_dtype_bytes(dtypes[i][1]);
        for (int fuse = 0; fuse < 2; fuse++) {
            KN_FRAME(.fuse = fuse ? 1 : KN_OFF);
            assert_ok(kn_copy_out(bits[fuse], bytes, widened(dtypes[i][0], dtypes[i][1])));
        }
        if (memcmp(bits[0], bits[1], bytes) != 0)
            fail_msg("%s of %s differs", kn_dtype_name(dtypes[i][1]), kn_dtype_name(dtypes[i][0]));
    }
}

/* x times the first elements of an array that ends, one for each row. */
static kn_tensor *by_rows(kn_tensor *x) {
    KN_FRAME();
    kn_tensor *w = kn_linspace(1, 2, N), *column = kn_reshape(first(w, ROWS), KN_SHAPE(ROWS, 1));
    return kn_keep(kn_mul(x, kn_mul(kn_mean(x, KN_SHAPE(-1), true), column)));
}

static void an_element_for_each_row_is_read_before_rows_are_written(void **state) {
    (void)state;
    static float bits[2][N];
    for (int fuse = 0; fuse < 2; fuse++) {
        KN_FRAME(.fuse = fuse ? 1 : KN_OFF);
        kn_tensor *x = kn_reshape(kn_linspace(-1, 2, N), KN_SHAPE(ROWS, COLUMNS));
        assert_non_null(kn_data(x));
        assert_ok(kn_copy_out(bits[fuse], sizeof bits[fuse], by_rows(x)));
    }
    assert_memory_equal(bits[0], bits[1], sizeof bits[0]);
}

/* --- at random --- */

enum { VALUES = 6, STEPS = 24, CHOICES = 5 * STEPS };

static const unsigned *choice; /* the next one of a graph */

static int pick(int n) { return (int)(*choice++ % (unsigned)n); }

static kn_tensor *column_of(kn_tensor *x, kn_dtype dtype) {
    return kn_cast(kn_reshape(first(x, ROWS), KN_SHAPE(ROWS, 1)), dtype);
}

static kn_tensor *next(kn_tensor *x, kn_tensor *y) {
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_BF16, KN_F16, KN_I32};
    kn_dtype dtype = kn_tensor_dtype(x);
    int64_t n = kn_tensor_numel(x);
    bool is_flat = kn_tensor_shape(x).n_dims == 1;
    switch (pick(6)) {
        case 0:
            return kn_cast(x, dtypes[pick(5)]);
        case 1:
            return n > COLUMNS ? first(x, n / 2) : kn_neg(x);
        case 2:
            return kn_reshape(x, is_flat ? KN_SHAPE(ROWS, -1) : KN_SHAPE(-1));
        case 3:
            if (is_flat || dtype == KN_I32) return kn_square(x);
            return kn_mul(x, kn_mul(kn_mean(x, KN_SHAPE(-1), true), column_of(y, dtype)));
        case 4:
            if (kn_tensor_numel(y) < n) return kn_abs(x);
            return kn_add(first(x, n), kn_cast(first(y, n), dtype));
        default:
            return kn_add(x, x);
    }
}

static double digest(kn_tensor *x) {
    double sum = 0;
    kn_tensor *by_place = kn_linspace(0, 1, kn_tensor_numel(x));
    x = kn_mul(kn_cast(first(x, kn_tensor_numel(x)), KN_F32), by_place);
    assert_ok(kn_item(&sum, kn_sum(x, KN_ALL, false)));
    return isnan(sum) ? 0 : sum;
}

/* Each step puts a value in place of another, whose array ends if nothing else reads it. */
static void run_graph(double out[], const unsigned choices[], int fuse) {
    KN_FRAME(.fuse = fuse);
    kn_tensor *v[VALUES];
    choice = choices;
    for (int i = 0; i < VALUES; i++) {
        v[i] = kn_linspace(-i, 3, N);
        assert_non_null(kn_data(v[i]));
    }
    for (int i = 0; i < STEPS; i++) {
        int to = pick(VALUES);
        kn_tensor *made;
        {
            KN_FRAME();
            kn_tensor *x = v[pick(VALUES)];
            made = next(x, v[pick(VALUES)]);
            assert_non_null(made);
            made = kn_keep(made);
        }
        kn_drop(v[to]);
        v[to] = made;
    }
    for (int i = 0; i < VALUES; i++) {
        out[i] = digest(v[i]);
        kn_drop(v[i]);
    }
}

static void arrays_that_end_early_give_the_same_bits(void **state) {
    (void)state;
    unsigned choices[CHOICES];
    double plain[VALUES], fused[VALUES];
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < CHOICES; k++) choices[k] = (unsigned)test_random();
        run_graph(plain, choices, KN_OFF);
        run_graph(fused, choices, 1);
        if (memcmp(plain, fused, sizeof plain) != 0) fail_msg("graph %d differs", i);
    }
}

int main(void) {
    setenv("KNET_FUSE", "all", 1);
    return RUN_TESTS(OPS_TEST(a_wider_result_is_not_written_over_what_is_read_later),
                     OPS_TEST(an_element_for_each_row_is_read_before_rows_are_written),
                     OPS_TEST(arrays_that_end_early_give_the_same_bits));
}
