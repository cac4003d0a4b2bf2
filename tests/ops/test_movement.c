#include <math.h>

#include "ops_test.h"

static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};

/* Elements of random bytes. */
static kn_tensor *random_bytes(kn_shape shape, kn_dtype dtype) {
    kn_tensor *x = kn_tensor_new(kn_device_host(), dtype, shape);
    assert_non_null(x);
    unsigned char *data = kn_data_mut(x);
    size_t n = (size_t)kn_tensor_numel(x) * kn_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        data[i] = (unsigned char)(dtype == KN_BOOL ? test_random_below(2) : test_random());
    }
    return x;
}

static kn_shape random_shape(int n_dims, uint64_t most) {
    kn_shape shape = {{0}, n_dims};
    for (int i = 0; i < n_dims; i++) shape.dim[i] = 1 + (int64_t)test_random_below(most);
    return shape;
}

static void indices(int64_t index[], kn_shape shape, int64_t at) {
    for (int i = shape.n_dims - 1; i >= 0; i--) {
        index[i] = at % shape.dim[i];
        at /= shape.dim[i];
    }
}

static const char *element(kn_tensor *x, const int64_t index[]) {
    kn_shape shape = kn_tensor_shape(x);
    int64_t at = 0;
    for (int i = 0; i < shape.n_dims; i++) at = at * shape.dim[i] + index[i];
    return (const char *)kn_data(x) + (size_t)at * kn_dtype_bytes(kn_tensor_dtype(x));
}

static void transposes_move_each_element_to_its_place(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        KN_FRAME();
        kn_dtype dtype = dtypes[test_random_below(8)];
        kn_shape shape = random_shape((int)test_random_below(6), 7), axes = shape;
        if (shape.n_dims > 1) shape.dim[test_random_below((uint64_t)shape.n_dims)] = 67;
        if (shape.n_dims == 2 || shape.n_dims == 3) /* blocks both ways */
            shape.dim[test_random_below((uint64_t)shape.n_dims)] = 37;
        for (int i = 0; i < shape.n_dims; i++) axes.dim[i] = i;
        for (int i = shape.n_dims - 1; i > 0; i--) {
            uint64_t j = test_random_below((uint64_t)i + 1);
            int64_t axis = axes.dim[i];
            axes.dim[i] = axes.dim[j];
            axes.dim[j] = axis;
        }
        kn_tensor *x = random_bytes(shape, dtype), *y = kn_transpose(x, axes);
        if (axes.n_dims == 0) y = kn_transpose(x, KN_ALL);
        assert_int_equal(kn_tensor_dtype(y), dtype);
        for (int64_t e = 0; e < kn_tensor_numel(y); e++) {
            int64_t index[KN_DIMS_MAX], source[KN_DIMS_MAX];
            indices(index, kn_tensor_shape(y), e);
            for (int i = 0; i < shape.n_dims; i++) source[axes.dim[i]] = index[i];
            assert_memory_equal(element(y, index), element(x, source), kn_dtype_bytes(dtype));
        }
    }
}

static void slices_and_their_adjoints_move_each_element(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        KN_FRAME();
        kn_dtype dtype = dtypes[test_random_below(8)];
        kn_shape shape = random_shape((int)test_random_below(5), 9), start = shape, stop = shape;
        for (int i = 0; i < shape.n_dims; i++) {
            bool whole = test_random_below(2);
            start.dim[i] = whole ? 0 : (int64_t)test_random_below((uint64_t)shape.dim[i]);
            int64_t rest = shape.dim[i] - start.dim[i];
            stop.dim[i] =
                start.dim[i] + (whole ? rest : 1 + (int64_t)test_random_below((uint64_t)rest));
        }
        kn_tensor *x = random_bytes(shape, dtype), *y = kn_slice(x, start, stop),
                  *back = op_slice_back(y, start, shape);
        assert_shape(back, shape);
        for (int64_t e = 0; e < kn_tensor_numel(x); e++) {
            int64_t index[KN_DIMS_MAX], inner[KN_DIMS_MAX];
            bool inside = true;
            indices(index, shape, e);
            for (int i = 0; i < shape.n_dims; i++) {
                inner[i] = index[i] - start.dim[i];
                inside = inside && index[i] >= start.dim[i] && index[i] < stop.dim[i];
            }
            size_t bytes = kn_dtype_bytes(dtype);
            if (inside) assert_memory_equal(element(y, inner), element(x, index), bytes);
            assert_memory_equal(element(back, index), inside ? element(x, index) : "\0\0\0\0\0\0\0",
                                bytes);
        }
    }
}

static void rows_of_every_length_repeat_elements_and_rows(void **state) {
    (void)state;
    enum { ROWS = 37, TIMES = 3 };
    for (int64_t round = 0; round < 150 * (int64_t)(sizeof dtypes / sizeof *dtypes); round++) {
        KN_FRAME();
        int64_t n = 1 + round / 8;
        kn_dtype dtype = dtypes[round % 8];
        size_t bytes = kn_dtype_bytes(dtype);
        kn_tensor *column = random_bytes(KN_SHAPE(ROWS, 1), dtype),
                  *x = random_bytes(KN_SHAPE(ROWS, 1, n), dtype),
                  *wide = kn_broadcast(column, KN_SHAPE(ROWS, n)),
                  *often = kn_broadcast(x, KN_SHAPE(ROWS, TIMES, n));
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t i = 0; i < n; i++)
                assert_memory_equal(element(wide, (int64_t[]){r, i}),
                                    element(column, (int64_t[]){r, 0}), bytes);
            for (int64_t k = 0; k < TIMES; k++)
                assert_memory_equal(element(often, (int64_t[]){r, k, 0}),
                                    element(x, (int64_t[]){r, 0, 0}), (size_t)n * bytes);
        }
    }
}

static void parts_with_rows_of_every_length_are_moved(void **state) {
    (void)state;
    enum { ROWS = 23, PLANES = 3 };
    for (int64_t round = 0; round < 150 * (int64_t)(sizeof dtypes / sizeof *dtypes); round++) {
        KN_FRAME();
        int64_t n = 1 + round / 8;
        kn_dtype dtype = dtypes[round % 8];
        kn_tensor *x = random_bytes(KN_SHAPE(ROWS + 2, PLANES + 1, n + 3), dtype),
                  *part = kn_slice(x, KN_SHAPE(1, 1, 2), KN_SHAPE(ROWS + 1, PLANES + 1, n + 2)),
                  *turned = kn_flip(part, KN_SHAPE(0, 2)), *moved = kn_roll(part, 2, 2);
        for (int64_t e = 0; e < kn_tensor_numel(part); e++) {
            int64_t i[3];
            indices(i, kn_tensor_shape(part), e);
            const char *own = element(part, i);
            size_t bytes = kn_dtype_bytes(dtype);
            assert_memory_equal(own, element(x, (int64_t[]){i[0] + 1, i[1] + 1, i[2] + 2}), bytes);
            assert_memory_equal(
                own, element(turned, (int64_t[]){ROWS - 1 - i[0], i[1], n - 1 - i[2]}), bytes);
            assert_memory_equal(own, element(moved, (int64_t[]){i[0], i[1], (i[2] + 2) % n}),
                                bytes);
        }
    }
}

static void a_cut_of_the_first_dimension_is_a_view(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    kn_tensor *y = kn_slice(x, KN_SHAPE(1, 0), KN_SHAPE(3, 2));
    assert_ptr_equal(kn_data(y), (const float *)kn_data(x) + 2);
    kn_tensor *z = kn_slice(x, KN_SHAPE(0, 1), KN_SHAPE(3, 2));
    assert_values(z, 2, 4, 6);
    assert_shape(kn_slice(x, KN_SHAPE(1, 0), KN_SHAPE(1, 2)), KN_SHAPE(0, 2));
    assert_shape(kn_slice(x, KN_SHAPE(0, 1), KN_SHAPE(3, 1)), KN_SHAPE(3, 0));
    kn_drop(x); /* the views keep its storage */
    assert_values(y, 3, 4, 5, 6);
}

static void concat_puts_one_after_the_other(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        KN_FRAME();
        kn_dtype dtype = dtypes[test_random_below(8)];
        kn_shape shape = random_shape(1 + (int)test_random_below(4), 6);
        int axis = (int)test_random_below((uint64_t)shape.n_dims),
            n = 1 + (int)test_random_below(5);
        kn_tensor *x[5];
        for (int i = 0; i < n; i++) {
            shape.dim[axis] = (int64_t)test_random_below(5);
            x[i] = random_bytes(shape, dtype);
        }
        kn_tensor *y = kn_concat(x, n, axis - (round % 2 ? shape.n_dims : 0));
        kn_shape start = {{0}, shape.n_dims}, stop = kn_tensor_shape(y);
        for (int i = 0; i < n; i++) {
            stop.dim[axis] = start.dim[axis] + kn_tensor_shape(x[i]).dim[axis];
            kn_tensor *part = kn_slice(y, start, stop);
            start.dim[axis] = stop.dim[axis];
            if (!kn_tensor_numel(part)) continue;
            assert_memory_equal(kn_data(part), kn_data(x[i]),
                                (size_t)kn_tensor_numel(part) * kn_dtype_bytes(dtype));
        }
        assert_int_equal(start.dim[axis], kn_tensor_shape(y).dim[axis]);
    }
}

static void reshape_is_a_view_with_one_unknown(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3, 4));
    assert_shape(kn_reshape(x, KN_SHAPE(4, -1)), KN_SHAPE(4, 6));
    assert_shape(kn_flatten(x), KN_SHAPE(2, 12));
    assert_shape(kn_flatten(kn_zeros(KN_SCALAR)), KN_SHAPE(1, 1));
    assert_shape(kn_reshape(kn_zeros(KN_SHAPE(1)), KN_SCALAR), KN_SCALAR);
    assert_shape(kn_reshape(kn_zeros(KN_SHAPE(0, 3)), KN_SHAPE(3, 0, 7)), KN_SHAPE(3, 0, 7));
    assert_ptr_equal(kn_data(kn_reshape(x, KN_SHAPE(24))), kn_data(x));
    assert_op_fails(kn_reshape(x, KN_SHAPE(5, -1)), KN_ERR_SHAPE,
                    "kn_reshape: 24 elements don't make [5,-1] (x [2,3,4])");
    assert_op_fails(kn_reshape(x, KN_SHAPE(-1, -1)), KN_ERR_SHAPE, "[-1,-1]");
    assert_op_fails(kn_reshape(kn_zeros(KN_SHAPE(0)), KN_SHAPE(0, -1)), KN_ERR_SHAPE, "[0,-1]");
}

static void casts_round_saturate_and_keep_exact_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F64(KN_SHAPE(8), 0, -1.9, 2.9, 300, -1e30, 1e30, NAN, 0.1);
    assert_memory_equal(kn_data(kn_cast(x, KN_I32)),
                        ((int32_t[]){0, -1, 2, 300, INT32_MIN, INT32_MAX, 0, 0}), 32);
    assert_memory_equal(kn_data(kn_cast(x, KN_I64)),
                        ((int64_t[]){0, -1, 2, 300, INT64_MIN, INT64_MAX, 0, 0}), 64);
    assert_memory_equal(kn_data(kn_cast(x, KN_U8)), ((uint8_t[]){0, 0, 2, 255, 0, 255, 0, 0}), 8);
    assert_memory_equal(kn_data(kn_cast(x, KN_BOOL)), ((uint8_t[]){0, 1, 1, 1, 1, 1, 1, 1}), 8);
    kn_tensor *big = I64(KN_SHAPE(2), (1ll << 40) + 3, -5);
    assert_values(kn_cast(big, KN_F64), 1099511627779.0, -5);
    assert_memory_equal(kn_data(kn_cast(big, KN_I32)), ((int32_t[]){INT32_MAX, -5}), 8);
    assert_op_fails(kn_cast(x, (kn_dtype)0), KN_ERR_DTYPE, "0 is no dtype");
}

static double item(kn_tensor *t) {
    double value = 0;
    assert_ok(kn_item(&value, t));
    return value;
}

static void every_pair_of_dtypes_casts_small_integers_exactly(void **state) {
    (void)state;
    KN_FRAME();
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < 8; b++) {
            for (int v = 0; v < 100; v += 33) {
                kn_tensor *x = kn_cast(kn_full(KN_SHAPE(1), v), dtypes[a]),
                          *y = kn_cast(x, dtypes[b]);
                int want = dtypes[a] == KN_BOOL || dtypes[b] == KN_BOOL ? v != 0 : v;
                assert_int_equal(kn_tensor_dtype(y), dtypes[b]);
                assert_close(item(y), want, 0, 0);
            }
        }
    }
}

/* Halves: every pattern survives the way to f32 and back, and rounding is to nearest, ties to even.
 */
static void halves_convert_both_ways(void **state) {
    (void)state;
    const kn_dtype halves[] = {KN_F16, KN_BF16};
    for (int h = 0; h < 2; h++) {
        KN_FRAME();
        static uint16_t bits[65536], back[65536];
        for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
        kn_tensor *x = kn_tensor_from(bits, halves[h], KN_SHAPE(65536)), *f = kn_cast(x, KN_F32);
        assert_ok(kn_copy_out(back, sizeof back, kn_cast(f, halves[h])));
        for (int i = 0; i < 65536; i++) {
            double v = ops_at(f, i);
            if (isnan(v))
                assert_true(
                    isnan(item(kn_cast(kn_slice(f, KN_SHAPE(i), KN_SHAPE(i + 1)), halves[h]))));
            else
                assert_int_equal(back[i], bits[i]);
        }
        for (int i = 1; i < 0x7B00; i += 7) { /* between two neighbours */
            float low = (float)ops_at(f, i), high = (float)ops_at(f, i + 1), mid = (low + high) / 2;
            if (!isfinite(high)) continue;
            kn_tensor *y = kn_cast(F32(KN_SHAPE(3), mid, nextafterf(mid, 0), nextafterf(mid, high)),
                                   halves[h]);
            const uint16_t *got = kn_data(y);
            assert_int_equal(got[0], i % 2 ? i + 1 : i);
            assert_int_equal(got[1], i);
            assert_int_equal(got[2], i + 1);
        }
    }
}

static void reading_out_checks_sizes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    float out[2];
    double value;
    assert_ok(kn_copy_out(out, sizeof out, x));
    assert_close((double)out[1], 2, 0, 0);
    assert_fails(kn_copy_out(out, 4, x), KN_ERR_SHAPE, "out has 4 bytes, t [2] f32 has 8");
    assert_fails(kn_item(&value, x), KN_ERR_SHAPE, "kn_item: t [2] has 2 elements, not one");
    assert_fails(kn_item(&value, NULL), KN_ERR_INVALID, "t is NULL");
    assert_fails(kn_item(&value, KN_NONE), KN_ERR_INVALID, "KN_NONE");
    assert_op_fails(kn_tensor_from(NULL, KN_F32, KN_SHAPE(2)), KN_ERR_INVALID, "data is NULL");
    assert_op_fails(kn_tensor_from(out, (kn_dtype)77, KN_SHAPE(2)), KN_ERR_DTYPE, "77");
    assert_shape(kn_tensor_from(NULL, KN_F32, KN_SHAPE(0)), KN_SHAPE(0));
    assert_op_fails(kn_to(x, NULL), KN_ERR_INVALID, "device is NULL");
}

static void bad_movements_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *y = kn_zeros(KN_SHAPE(2, 4)), *d = kn_cast(y, KN_F64);
    assert_op_fails(kn_slice(x, KN_SHAPE(0), KN_SHAPE(1)), KN_ERR_SHAPE,
                    "kn_slice: start has 1 entries, stop 1, x 2 (x [2,3])");
    assert_op_fails(kn_slice(x, KN_SHAPE(0, 2), KN_SHAPE(2, 4)), KN_ERR_SHAPE,
                    "2 … 4 is no range of dimension 1");
    assert_op_fails(kn_transpose(x, KN_SHAPE(0)), KN_ERR_SHAPE, "axes has 1 entries");
    assert_op_fails(kn_transpose(x, KN_SHAPE(0, 0)), KN_ERR_SHAPE, "axis 0 is named twice");
    assert_op_fails(kn_concat(((kn_tensor *[]){x, y}), 2, 0), KN_ERR_SHAPE,
                    "x[1] does not fit x[0] beside axis 0 (x[0] [2,3], x[1] [2,4])");
    assert_op_fails(kn_concat(((kn_tensor *[]){y, d}), 2, 1), KN_ERR_DTYPE,
                    "kn_concat: x[0] is f32, x[1] is f64; see kn_cast");
    assert_op_fails(kn_concat(&x, 0, 1), KN_ERR_INVALID, "n_x is 0");
    assert_op_fails(kn_concat(&x, 1, 2), KN_ERR_SHAPE, "no axis 2");
    assert_op_fails(op_slice_back(x, KN_SHAPE(1, 0), KN_SHAPE(2, 3)), KN_ERR_SHAPE,
                    "g is no slice of [2,3]");
}

int main(void) {
    return RUN_TESTS(OPS_TEST(transposes_move_each_element_to_its_place),
                     OPS_TEST(slices_and_their_adjoints_move_each_element),
                     OPS_TEST(rows_of_every_length_repeat_elements_and_rows),
                     OPS_TEST(parts_with_rows_of_every_length_are_moved),
                     OPS_TEST(a_cut_of_the_first_dimension_is_a_view),
                     OPS_TEST(concat_puts_one_after_the_other),
                     OPS_TEST(reshape_is_a_view_with_one_unknown),
                     OPS_TEST(casts_round_saturate_and_keep_exact_values),
                     OPS_TEST(every_pair_of_dtypes_casts_small_integers_exactly),
                     OPS_TEST(halves_convert_both_ways), OPS_TEST(reading_out_checks_sizes),
                     OPS_TEST(bad_movements_are_errors));
}
