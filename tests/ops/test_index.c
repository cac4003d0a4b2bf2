/* Indexing: lists of items, and elements at indices. */
#include <math.h>

#include "ops_test.h"

static kn_tensor *numbered(kn_shape shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    return kn_reshape(kn_arange(0, (double)n, 1, 0), shape);
}

static void plain_items_select_as_in_numpy(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(3, 4));
    assert_values(kn_index(x, KN_ITEMS(KN_AT(-1))), 8, 9, 10, 11);
    assert_values(kn_index(x, KN_ITEMS(KN_EVERY, KN_AT(1))), 1, 5, 9);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(1), KN_AT(2))), 6);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(1, KN_END, 2))), 1, 3);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(KN_BEGIN, KN_END, -1))), 3, 2, 1, 0);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(2, KN_END, -1))), 2, 1, 0);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(-1, 0, -2))), 3, 1);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(-100, 100, 3))), 0, 3);
    assert_values(kn_index(x, KN_ITEMS(KN_AT(0), KN_RANGE(100, -100, -3))), 3, 0);
    assert_shape(kn_index(x, KN_ITEMS(KN_RANGE(2, 1, 1))), KN_SHAPE(0, 4));
    assert_shape(kn_index(x, KN_ITEMS(KN_RANGE(7, 9, 1))), KN_SHAPE(0, 4));
    assert_shape(kn_index(x, KN_ITEMS(KN_NEW, KN_EVERY, KN_NEW, KN_AT(0))), KN_SHAPE(1, 3, 1));
    assert_shape(kn_index(x, 0, NULL), KN_SHAPE(3, 4));
    assert_shape(kn_index(kn_zeros(KN_SCALAR), KN_ITEMS(KN_NEW)), KN_SHAPE(1));
    assert_ptr_equal(kn_index(x, KN_ITEMS(KN_RANGE(1, 3, 1)))->storage, x->storage);
    assert_ptr_equal(kn_index(x, KN_ITEMS(KN_AT(1), KN_RANGE(1, 3, 1)))->storage, x->storage);
}

/* Python's rule, one element at a time. */
static int64_t range_by_hand(int64_t out[], int64_t n, int64_t start, int64_t stop, int64_t step) {
    int64_t count = 0, from = step > 0 ? 0 : n - 1, to = step > 0 ? n : -1;
    if (start != KN_BEGIN) from = start < 0 ? start + n : start;
    if (stop != KN_END) to = stop < 0 ? (stop + n < 0 ? -1 : stop + n) : stop;
    if (step > 0 && from < 0) from = 0;
    if (step < 0 && from >= n) from = n - 1;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        if (i >= 0 && i < n) out[count++] = i;
    }
    return count;
}

static void ranges_equal_those_by_hand(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        KN_FRAME();
        int64_t n = (int64_t)test_random_below(8), want[16];
        int64_t start = (int64_t)test_random_below(24) - 12, step = 0;
        int64_t stop = (int64_t)test_random_below(24) - 12;
        if (test_random_below(5) == 0) start = KN_BEGIN;
        if (test_random_below(5) == 0) stop = KN_END;
        while (!step) step = (int64_t)test_random_below(9) - 4;
        int64_t count = range_by_hand(want, n, start, stop, step);
        kn_tensor *y = kn_index(numbered(KN_SHAPE(n)), KN_ITEMS(KN_RANGE(start, stop, step)));
        assert_shape(y, KN_SHAPE(count));
        for (int64_t i = 0; i < count; i++) assert_true(ops_at(y, i) == (double)want[i]);
    }
}

static void tensors_of_indices_select_as_in_numpy(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(3, 4)), *cube = numbered(KN_SHAPE(2, 3, 4));
    kn_tensor *rows = I64(KN_SHAPE(2), 2, -3), *columns = I64(KN_SHAPE(2), 1, 3);
    assert_values(kn_index(x, KN_ITEMS(KN_TAKE(rows))), 8, 9, 10, 11, 0, 1, 2, 3);
    assert_values(kn_index(x, KN_ITEMS(KN_EVERY, KN_TAKE(columns))), 1, 3, 5, 7, 9, 11);
    assert_values(kn_index(x, KN_ITEMS(KN_TAKE(rows), KN_TAKE(columns))), 9, 3);
    assert_values(kn_index(x, KN_ITEMS(KN_TAKE(kn_unsqueeze(rows, 1)), KN_TAKE(columns))), 9, 11, 1,
                  3);
    kn_tensor *first = I64(KN_SHAPE(2), 1, 0);
    /* side by side: in their place; apart: in front */
    assert_shape(kn_index(cube, KN_ITEMS(KN_EVERY, KN_TAKE(rows), KN_TAKE(columns))),
                 KN_SHAPE(2, 2));
    assert_values(kn_index(cube, KN_ITEMS(KN_TAKE(first), KN_RANGE(0, 2, 1), KN_TAKE(columns))), 13,
                  17, 3, 7);
    assert_values(kn_index(cube, KN_ITEMS(KN_AT(1), KN_TAKE(rows), KN_RANGE(3, KN_BEGIN, -3))), 23,
                  20, 15, 12);
    assert_shape(kn_index(x, KN_ITEMS(KN_TAKE(I64(KN_SCALAR, 1)))), KN_SHAPE(4));
    assert_shape(kn_index(cube, KN_ITEMS(KN_TAKE(I64(KN_SCALAR, 1)), KN_EVERY, KN_TAKE(columns))),
                 KN_SHAPE(2, 3));
    assert_shape(kn_index(cube, KN_ITEMS(KN_AT(1), KN_EVERY, KN_TAKE(columns))), KN_SHAPE(3, 2));
    assert_shape(kn_index(x, KN_ITEMS(KN_TAKE(kn_cast(kn_zeros(KN_SHAPE(0, 5)), KN_U8)))),
                 KN_SHAPE(0, 5, 4));
}

static void masks_select_what_is_true(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(3, 4)), *seven = kn_full(KN_SCALAR, 7);
    kn_tensor *mask = kn_gt(x, seven), *rows = kn_index(mask, KN_ITEMS(KN_EVERY, KN_AT(0)));
    assert_values(kn_masked_select(x, mask), 8, 9, 10, 11);
    assert_values(kn_index(x, KN_ITEMS(KN_MASK(rows))), 8, 9, 10, 11);
    assert_values(kn_index(x, KN_ITEMS(KN_MASK(rows), KN_AT(1))), 9);
    assert_values(kn_index(x, KN_ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1),
                                       KN_MASK(kn_index(mask, KN_ITEMS(KN_AT(2)))))),
                  8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    assert_shape(kn_masked_select(x, kn_lt(x, kn_zeros(KN_SCALAR))), KN_SHAPE(0));
    assert_values(kn_masked_select(seven, kn_eq(seven, seven)), 7);
    assert_shape(kn_masked_select(seven, kn_ne(seven, seven)), KN_SHAPE(0));
    assert_op_fails(kn_masked_select(x, kn_eq(seven, seven)), KN_ERR_SHAPE, "the mask [] is not");
    assert_op_fails(kn_masked_select(seven, mask), KN_ERR_SHAPE, "kn_masked_select: ");
    assert_values(kn_cast(kn_nonzero(kn_eq(x, seven)), KN_F32), 1, 3);
    assert_shape(kn_nonzero(kn_zeros(KN_SHAPE(2, 3))), KN_SHAPE(0, 2));
    assert_shape(kn_nonzero(kn_zeros(KN_SHAPE(0, 3))), KN_SHAPE(0, 2));
    assert_shape(kn_nonzero(kn_ones(KN_SCALAR)), KN_SHAPE(1, 0));
}

static void all_but_zeros_are_true(void **state) {
    (void)state;
    KN_FRAME();
    static const int32_t narrow[] = {0, INT32_MIN, 1};
    static const kn_dtype floats[] = {KN_F32, KN_F64, KN_F16, KN_BF16};
    kn_tensor *wide = I64(KN_SHAPE(4), INT64_MIN, 0, INT64_C(1) << 40, -1);
    assert_values(kn_cast(kn_nonzero(wide), KN_F32), 0, 2, 3);
    wide = kn_tensor_from(narrow, KN_I32, KN_SHAPE(3));
    assert_values(kn_cast(kn_nonzero(wide), KN_F32), 1, 2);
    kn_tensor *x = F32(KN_SHAPE(5), -0.0f, NAN, 0, -INFINITY, 1);
    for (int i = 0; i < 4; i++)
        assert_values(kn_cast(kn_nonzero(kn_cast(x, floats[i])), KN_F32), 1, 3, 4);
}

static void places_take_the_memory_of_what_is_true(void **state) {
    (void)state;
    KN_FRAME();
    enum { N = 100, TRUE_AT = 1234567 };
    unsigned char *values = calloc(1, N * N * N * 2);
    assert_non_null(values);
    values[TRUE_AT] = 1;
    kn_tensor *mask = kn_tensor_from(values, KN_BOOL, KN_SHAPE(N, N, N, 2));
    free(values);
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_pool_stats before, after;
    kn_pool_peaks_reset(pool);
    kn_pool_stats_read(&before, sizeof before, pool);
    assert_values(kn_cast(kn_nonzero(mask), KN_F32), 61, 72, 83, 1);
    assert_shape(kn_masked_select(mask, mask), KN_SHAPE(1));
    kn_pool_stats_read(&after, sizeof after, pool);
    assert_true(after.live_bytes_max - before.live_bytes < N * N * N);
}

static void parts_are_set_and_added_to(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(2, 3)), *one = kn_ones(KN_SCALAR);
    kn_tensor *twice = I64(KN_SHAPE(3), 1, -1, 1), *y = F32(KN_SHAPE(3), 10, 20, 30);
    assert_values(kn_set_at(x, one, KN_ITEMS(KN_AT(1))), 0, 1, 2, 1, 1, 1);
    assert_values(kn_add_at(x, one, KN_ITEMS(KN_EVERY, KN_RANGE(0, 3, 2))), 1, 1, 3, 4, 4, 6);
    assert_values(kn_set_at(x, y, KN_ITEMS(KN_EVERY, KN_TAKE(twice))), 0, 30, 20, 3, 30, 20);
    assert_values(kn_add_at(x, y, KN_ITEMS(KN_EVERY, KN_TAKE(twice))), 0, 41, 22, 3, 44, 25);
    assert_values(kn_add_at(x, y, KN_ITEMS(KN_AT(0), KN_TAKE(twice))), 0, 41, 22, 3, 4, 5);
    assert_values(kn_set_at(x, one, KN_ITEMS(KN_MASK(kn_gt(x, one)))), 0, 1, 1, 1, 1, 1);
    kn_tensor *cube = kn_zeros(KN_SHAPE(2, 2, 2)), *ends = I64(KN_SHAPE(2), 0, 1);
    assert_values(kn_set_at(cube, one, KN_ITEMS(KN_TAKE(ends), KN_EVERY, KN_TAKE(ends))), 1, 0, 1,
                  0, 0, 1, 0, 1);
    assert_values(kn_set_at(cube, one, KN_ITEMS(KN_TAKE(ends), KN_AT(1), KN_TAKE(ends))), 0, 0, 1,
                  0, 0, 0, 0, 1);
    assert_values(x, 0, 1, 2, 3, 4, 5);
    uint32_t version = x->storage->version;
    assert_ok(kn_set_into(x, one, KN_ITEMS(KN_EVERY, KN_AT(0))));
    assert_values(x, 1, 1, 2, 1, 4, 5);
    assert_int_equal(x->storage->version, version + 1);
    assert_ok(kn_set_into(x, y, KN_ITEMS(KN_AT(1), KN_TAKE(twice))));
    assert_values(x, 1, 1, 2, 1, 30, 20);
    assert_op_fails(kn_set_at(x, y, KN_ITEMS(KN_EVERY, KN_AT(0))), KN_ERR_SHAPE, "[2]");
    assert_fails(kn_set_into(x, y, KN_ITEMS(KN_AT(5))), KN_ERR_SHAPE, "index 5 is outside");
}

static void elements_beside_a_part_stay_as_they_are(void **state) {
    (void)state;
    KN_FRAME();
    for (int round = 0; round < 8; round++) { /* in memory that held other numbers */
        double first = round + 1;
        kn_tensor *x = kn_full(KN_SHAPE(5), first), *y = F32(KN_SHAPE(4), 6, 7, 8, 9);
        kn_tensor *set = kn_set_at(x, y, KN_ITEMS(KN_RANGE(1, 5, 1)));
        assert_values(set, first, 6, 7, 8, 9);
        kn_tensor *back = op_slice_back(y, KN_SHAPE(1), KN_SHAPE(5));
        assert_values(back, 0, 6, 7, 8, 9);
        kn_drop(set);
        kn_drop(back);
        kn_drop(kn_full(KN_SHAPE(5), -first));
    }
}

/* In a row and at every other place. */
static void numbers_of_every_dtype_are_added_to(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8};
    KN_FRAME();
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        kn_tensor *x = kn_cast(F32(KN_SHAPE(6), 1, 2, 3, 4, 5, 100), dtypes[i]);
        kn_tensor *y = kn_cast(F32(KN_SHAPE(3), 1, 20, 100), dtypes[i]);
        kn_tensor *row = kn_add_at(x, y, KN_ITEMS(KN_RANGE(3, 6, 1)));
        kn_tensor *other = kn_add_at(x, y, KN_ITEMS(KN_RANGE(1, 6, 2)));
        assert_int_equal(kn_tensor_dtype(row), dtypes[i]);
        assert_values(kn_cast(row, KN_F32), 1, 2, 3, 5, 25, 200);
        assert_values(kn_cast(other, KN_F32), 1, 3, 3, 24, 5, 200);
    }
    const int64_t far = (INT64_C(1) << 62) + 1;
    const int64_t *y = kn_data(kn_add_at(I64(KN_SHAPE(2), far, 3), I64(KN_SHAPE(1), far - 2),
                                         KN_ITEMS(KN_RANGE(0, 1, 1))));
    assert_non_null(y);
    assert_true(y[0] == INT64_MIN && y[1] == 3); /* wraps */
    kn_tensor *large = kn_cast(I64(KN_SHAPE(2), 1 << 30, 1 << 29), KN_I32);
    const int32_t *z = kn_data(kn_add_at(large, large, KN_ITEMS(KN_RANGE(0, 2, 1))));
    assert_non_null(z);
    assert_true(z[0] == INT32_MIN && z[1] == 1 << 30);
}

static void slices_of_an_axis(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(2, 3)), *i = I64(KN_SHAPE(2), 2, 2);
    kn_tensor *y = F32(KN_SHAPE(2, 2), 10, 20, 30, 40);
    assert_values(kn_index_select(x, i, 1), 2, 2, 5, 5);
    assert_values(kn_embedding(x, I64(KN_SHAPE(1, 2), 1, 0)), 3, 4, 5, 0, 1, 2);
    assert_values(kn_index_add(x, i, y, -1), 0, 1, 32, 3, 4, 75);
    assert_values(kn_index_set(x, i, y, -1), 0, 1, 20, 3, 4, 40);
    kn_tensor *g = I64(KN_SHAPE(1, 3), 1, 0, -1);
    assert_values(kn_gather(x, g, 0), 3, 1, 5);
    assert_values(kn_scatter(x, g, F32(KN_SHAPE(1, 3), 7, 8, 9), 0), 0, 8, 2, 7, 4, 9);
    assert_values(kn_scatter_add(x, g, F32(KN_SHAPE(1, 3), 7, 8, 9), 0), 0, 9, 2, 10, 4, 14);
}

/* As in PyTorch it goes with the first elements of x. */
static void an_index_may_be_smaller_than_x(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(3, 4)), *i = I64(KN_SHAPE(2, 2), 2, 0, 2, 1);
    kn_tensor *y = F32(KN_SHAPE(2, 2), 10, 20, 30, 40);
    assert_values(kn_gather(x, i, 0), 8, 1, 8, 5);
    assert_values(kn_gather(x, i, -1), 2, 0, 6, 5);
    assert_values(kn_scatter(x, i, y, 0), 0, 20, 2, 3, 4, 40, 6, 7, 30, 9, 10, 11);
    assert_values(kn_scatter_add(x, i, y, 0), 0, 21, 2, 3, 4, 45, 6, 7, 48, 9, 10, 11);
    assert_values(kn_scatter_add(x, i, y, 1), 20, 1, 12, 3, 4, 45, 36, 7, 8, 9, 10, 11);
    kn_tensor *cube = numbered(KN_SHAPE(2, 2, 2)), *one = I64(KN_SHAPE(1, 3, 1), 1, 0, -1);
    assert_values(kn_gather(cube, one, 1), 2, 0, 2);
    assert_values(kn_scatter(cube, one, kn_ones(KN_SHAPE(1, 3, 1)), 1), 1, 1, 1, 3, 4, 5, 6, 7);
    kn_tensor *none = kn_cast(kn_zeros(KN_SHAPE(2, 0)), KN_I64);
    assert_shape(kn_gather(x, none, 0), KN_SHAPE(2, 0));
    assert_values(kn_scatter(x, none, kn_zeros(KN_SHAPE(2, 0)), 0), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                  10, 11);
    assert_op_fails(kn_gather(x, I64(KN_SHAPE(2, 2), 3, 0, 0, 0), 0), KN_ERR_INVALID,
                    "kn_gather: index 3 is outside 3 elements (element 0 of [2,2])");
    assert_op_fails(kn_scatter(x, i, x, 0), KN_ERR_SHAPE, "kn_scatter: y must be like index");
    assert_op_fails(kn_gather(x, i, 2), KN_ERR_SHAPE, "no axis 2");
    assert_op_fails(kn_gather(y, kn_cast(x, KN_I64), 1), KN_ERR_SHAPE,
                    "index must have x's dimensions, at most of x's sizes beside axis 1");
}

static void errors_of_a_smaller_index_show_the_given_x(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(3, 4)), *f = kn_zeros(KN_SHAPE(2, 4));
    kn_tensor *i = kn_cast(f, KN_I64), *y = kn_zeros(KN_SHAPE(2, 3));
    assert_op_fails(kn_gather(x, f, 1), KN_ERR_DTYPE,
                    "index is f32; it must be i64, i32 or u8 (x [3,4], index [2,4])");
    assert_op_fails(kn_gather(kn_ones(KN_SHAPE(3, 0)), i, -1), KN_ERR_SHAPE,
                    "axis 1 has no elements (x [3,0], index [2,4])");
    assert_op_fails(kn_scatter(x, i, y, 1), KN_ERR_SHAPE,
                    "kn_scatter: y must be like index (x [3,4], index [2,4], y [2,3])");
    assert_op_fails(kn_scatter_add(x, i, kn_cast(f, KN_F64), -1), KN_ERR_DTYPE,
                    "kn_scatter_add: x is f32, y is f64; see kn_cast (x [3,4]");
    assert_op_fails(kn_scatter(x, i, KN_NONE, 1), KN_ERR_INVALID, "kn_scatter: y is KN_NONE");
}

static void sums_of_halves_round_once(void **state) {
    (void)state;
    KN_FRAME();
    enum { N = 5000 };
    kn_tensor *zero = kn_cast(kn_zeros(KN_SHAPE(1)), KN_F16);
    kn_tensor *ones = kn_cast(kn_ones(KN_SHAPE(N)), KN_F16);
    kn_tensor *index = kn_cast(kn_zeros(KN_SHAPE(N)), KN_I64);
    assert_values(kn_cast(kn_index_add(zero, index, ones, 0), KN_F32), 5000);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(2, 3)), *i = I64(KN_SHAPE(2), 1, 3), *f = F32(KN_SHAPE(1), 0);
    assert_op_fails(kn_index(x, KN_ITEMS(KN_AT(2))), KN_ERR_SHAPE,
                    "index 2 is outside dimension 0 of 2 elements (x [2,3])");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_RANGE(0, 1, 0))), KN_ERR_SHAPE,
                    "the step of dimension 0 is 0");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_AT(0), KN_AT(0), KN_AT(0))), KN_ERR_SHAPE,
                    "3 items are too many");
    assert_op_fails(kn_index(x, -1, NULL), KN_ERR_SHAPE, "-1 items");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_TAKE(NULL))), KN_ERR_INVALID,
                    "kn_index: item 0 is NULL");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_MASK(f))), KN_ERR_DTYPE, "a mask is f32");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_MASK(kn_gt(f, f)))), KN_ERR_SHAPE,
                    "the mask [1] is not like x from dimension 0 on");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_TAKE(i), KN_TAKE(I64(KN_SHAPE(3), 0, 0, 0)))),
                    KN_ERR_SHAPE, "don't broadcast");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_TAKE(f))), KN_ERR_DTYPE,
                    "index is f32; it must be i64, i32 or u8");
    assert_op_fails(
        kn_add_at(x, x, KN_ITEMS(KN_EVERY, KN_TAKE(I64(KN_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), 0)))),
        KN_ERR_SHAPE, "the part has 9 dimensions; the limit is 8");
    assert_op_fails(kn_index_select(x, i, 1), KN_ERR_INVALID,
                    "kn_index_select: index 3 is outside 3 elements (element 1 of [2])");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_TAKE(i), KN_TAKE(i))), KN_ERR_INVALID, "is outside");
    assert_op_fails(
        kn_index(x, KN_ITEMS(KN_TAKE(I64(KN_SHAPE(2), 0, 1)), KN_TAKE(I64(KN_SHAPE(2), 0, -4)))),
        KN_ERR_INVALID, "index -4 is outside 3 elements (element 1 of [2])");
    assert_op_fails(kn_gather(x, I64(KN_SHAPE(1, 3), 0, -3, 0), 0), KN_ERR_INVALID,
                    "index -3 is outside 2 elements (element 1 of [1,3])");
    assert_op_fails(kn_gather(x, I64(KN_SHAPE(2, 1), 0, 3), 1), KN_ERR_INVALID,
                    "index 3 is outside 3 elements (element 1 of [2,1])");
    assert_op_fails(kn_scatter(x, I64(KN_SHAPE(2, 1), 0, -4), kn_ones(KN_SHAPE(2, 1)), 1),
                    KN_ERR_INVALID, "index -4 is outside 3 elements (element 1 of [2,1])");
    assert_op_fails(kn_scatter_add(x, I64(KN_SHAPE(1, 3), 0, 0, 2), kn_ones(KN_SHAPE(1, 3)), 0),
                    KN_ERR_INVALID, "kn_scatter_add: index 2 is outside 2 elements");
    assert_op_fails(kn_gather(x, i, 0), KN_ERR_SHAPE, "kn_gather: index must have x's dimensions");
    assert_op_fails(kn_scatter(x, I64(KN_SHAPE(1, 3), 0, 0, 0), f, 0), KN_ERR_SHAPE,
                    "y must be like index");
    assert_op_fails(kn_index_add(x, i, f, 1), KN_ERR_SHAPE, "y must be [2,2]");
    assert_op_fails(kn_index_select(kn_zeros(KN_SHAPE(0, 3)), i, 0), KN_ERR_SHAPE,
                    "axis 0 has no elements");
    assert_op_fails(kn_index_select(x, i, 2), KN_ERR_SHAPE, "no axis 2");
}

/* Index i of row i is set; the other elements of a row stay. */
static void many_rows_keep_what_is_not_written(void **state) {
    (void)state;
    enum { ROWS = 20 };
    KN_FRAME();
    kn_tensor *x = numbered(KN_SHAPE(ROWS, ROWS));
    kn_tensor *own = kn_reshape(kn_arange(0, ROWS, 1, KN_I64), KN_SHAPE(ROWS, 1));
    kn_tensor *y = kn_full(KN_SHAPE(ROWS, 1), -7);
    const float *set = kn_data(kn_scatter(x, own, y, 1)),
                *sum = kn_data(kn_scatter_add(x, own, y, 1));
    assert_non_null(set);
    assert_non_null(sum);
    for (int i = 0; i < ROWS * ROWS; i++) {
        bool written = i / ROWS == i % ROWS;
        assert_true(set[i] == (written ? -7 : (float)i));
        assert_true(sum[i] == (float)(written ? i - 7 : i));
    }
}

/* So large that they are cut for threads, inside a row too; each element by hand. */
static void check_large(int axis) {
    enum { OUTER = 41, MIDDLE = 33, LAST = 67, N = OUTER * MIDDLE * LAST, COUNT = 29 };
    static int64_t index[N], from[N];
    static float sums[N];
    KN_FRAME();
    kn_shape shape = KN_SHAPE(OUTER, MIDDLE, LAST), part = shape;
    int64_t size = shape.dim[axis], inner = 1;
    part.dim[axis] = COUNT;
    for (int d = axis + 1; d < 3; d++) inner *= shape.dim[d];
    const int64_t n = N / size * COUNT;
    memset(sums, 0, sizeof sums);
    for (int64_t i = 0; i < n; i++) {
        int64_t outer = i / inner / COUNT, at = i * 7 % size;
        index[i] = i % 2 ? at : at - size;
        from[i] = (outer * size + at) * inner + i % inner;
        sums[from[i]] += (float)from[i];
    }
    kn_tensor *x = numbered(shape), *at = kn_tensor_from(index, KN_I64, part);
    kn_tensor *y = kn_gather(x, at, axis), *zeros = kn_zeros(shape);
    const float *got = kn_data(y), *set = kn_data(kn_scatter(zeros, at, y, axis)),
                *sum = kn_data(kn_scatter_add(zeros, at, y, axis));
    for (int64_t i = 0; i < n; i++) assert_true(got[i] == (float)from[i]);
    for (int64_t i = 0; i < N; i++) {
        assert_true(sum[i] == sums[i]);
        assert_true(set[i] == (sums[i] != 0 ? (float)i : 0));
    }
    index[n - 5] = index[n - 2] = size;
    at = kn_tensor_from(index, KN_I64, part);
    char want[64];
    snprintf(want, sizeof want, "(element %lld of", (long long)n - 5);
    assert_op_fails(kn_gather(x, at, axis), KN_ERR_INVALID, want);
    assert_op_fails(kn_scatter(x, at, y, axis), KN_ERR_INVALID, want);
}

static void large_ones_are_cut_anywhere(void **state) {
    (void)state;
    for (int axis = 0; axis < 3; axis++) check_large(axis);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(plain_items_select_as_in_numpy), OPS_TEST(ranges_equal_those_by_hand),
        OPS_TEST(tensors_of_indices_select_as_in_numpy), OPS_TEST(masks_select_what_is_true),
        OPS_TEST(all_but_zeros_are_true), OPS_TEST(places_take_the_memory_of_what_is_true),
        OPS_TEST(parts_are_set_and_added_to), OPS_TEST(elements_beside_a_part_stay_as_they_are),
        OPS_TEST(numbers_of_every_dtype_are_added_to), OPS_TEST(slices_of_an_axis),
        OPS_TEST(an_index_may_be_smaller_than_x),
        OPS_TEST(errors_of_a_smaller_index_show_the_given_x), OPS_TEST(sums_of_halves_round_once),
        OPS_TEST(what_is_wrong_is_named), OPS_TEST(many_rows_keep_what_is_not_written),
        OPS_TEST(large_ones_are_cut_anywhere));
}
