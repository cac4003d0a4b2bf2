/* Parts of tensors and their order, padding, tensors made from numbers, and copies from the host.
 */
#include <math.h>

#include "ops_test.h"

#define VIEW_OF(y, x) assert_ptr_equal((y)->storage, (x)->storage)

/* x[i, j] = 10·i + j */
static kn_tensor *counted(int64_t rows, int64_t columns) {
    float values[256];
    for (int64_t i = 0; i < rows * columns; i++) {
        values[i] = (float)(i / columns * 10 + i % columns);
    }
    return kn_tensor_from(values, KN_F32, KN_SHAPE(rows, columns));
}

static void flip_reverses_the_named_axes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(2, 3);
    assert_values(kn_flip(x, KN_SHAPE(1)), 2, 1, 0, 12, 11, 10);
    assert_values(kn_flip(x, KN_SHAPE(-2)), 10, 11, 12, 0, 1, 2);
    assert_values(kn_flip(x, KN_ALL), 12, 11, 10, 2, 1, 0);
    assert_values(kn_flip(x, KN_SCALAR), 0, 1, 2, 10, 11, 12);
    assert_shape(kn_flip(kn_zeros(KN_SHAPE(0, 3)), KN_ALL), KN_SHAPE(0, 3));
    assert_op_fails(kn_flip(x, KN_SHAPE(2)), KN_ERR_SHAPE, "there is no axis 2 in 2 dimensions");
    assert_op_fails(kn_flip(x, KN_SHAPE(4294967297)), KN_ERR_SHAPE, "no axis 4294967297 in 2");
    assert_op_fails(kn_flip(x, KN_SHAPE(0, 0)), KN_ERR_SHAPE, "kn_flip: axis 0 is named twice");
    assert_op_fails(kn_flip(x, ((kn_shape){.n_dims = 9})), KN_ERR_SHAPE, "axes has 9 entries");
    assert_op_fails(kn_flip(x, ((kn_shape){.n_dims = -2})), KN_ERR_SHAPE, "axes has -2 entries");
}

static void select_removes_the_axis(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(2, 3), *row = kn_select(x, -1, 0);
    assert_values(row, 10, 11, 12);
    VIEW_OF(row, x);
    assert_values(kn_select(x, 2, 1), 2, 12);
    assert_shape(kn_select(row, 0, 0), KN_SCALAR);
    assert_op_fails(kn_select(x, 3, 1), KN_ERR_SHAPE,
                    "index 3 is outside axis 1 of 3 elements (x [2,3])");
    assert_op_fails(kn_select(x, -3, 0), KN_ERR_SHAPE, "index -3 is outside axis 0");
}

static void diagonals_are_read_and_written(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(3, 4);
    assert_values(kn_diag(x, 0), 0, 11, 22);
    assert_values(kn_diag(x, 2), 2, 13);
    assert_values(kn_diag(x, -1), 10, 21);
    assert_shape(kn_diag(x, 4), KN_SHAPE(0));
    assert_shape(kn_diag(x, INT64_MIN), KN_SHAPE(0));
    assert_values(kn_diagonal(x, 1, 1, 0), 10, 21);
    assert_shape(kn_diagonal(kn_zeros(KN_SHAPE(2, 5, 3)), 0, 2, 0), KN_SHAPE(5, 2));
    assert_values(kn_diag(F32(KN_SHAPE(2), 3, 4), 1), 0, 3, 0, 0, 0, 4, 0, 0, 0);
    assert_values(kn_diag(F32(KN_SHAPE(2), 3, 4), -1), 0, 0, 0, 3, 0, 0, 0, 4, 0);
    assert_values(kn_eye(2, 3), 1, 0, 0, 0, 1, 0);
    assert_shape(kn_eye(0, 3), KN_SHAPE(0, 3));
    assert_op_fails(kn_diag(kn_zeros(KN_SHAPE(2, 2, 2)), 0), KN_ERR_SHAPE, "one or two dimensions");
    assert_op_fails(kn_diag(F32(KN_SHAPE(1), 1), INT64_MAX), KN_ERR_SHAPE, "too far out");
    assert_op_fails(kn_diagonal(x, 0, 1, -1), KN_ERR_SHAPE, "axis 1 is named twice");
}

static void squeeze_and_unsqueeze_are_views(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(1, 3, 1, 2));
    assert_shape(kn_squeeze(x, KN_ALL), KN_SHAPE(3, 2));
    assert_shape(kn_squeeze(x, KN_SHAPE(-2)), KN_SHAPE(1, 3, 2));
    VIEW_OF(kn_squeeze(x, KN_ALL), x);
    assert_shape(kn_unsqueeze(x, 4), KN_SHAPE(1, 3, 1, 2, 1));
    assert_shape(kn_unsqueeze(x, -5), KN_SHAPE(1, 1, 3, 1, 2));
    assert_op_fails(kn_squeeze(x, KN_SHAPE(1)), KN_ERR_SHAPE, "axis 1 has 3 elements, not one");
    assert_op_fails(kn_squeeze(x, KN_SHAPE(0, -4)), KN_ERR_SHAPE, "axis 0 is named twice");
    assert_op_fails(kn_unsqueeze(x, 5), KN_ERR_SHAPE, "a new axis can't be at 5");
    assert_op_fails(kn_unsqueeze(kn_zeros(KN_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0), KN_ERR_SHAPE,
                    "8 dimensions, the most");
}

static void stack_joins_along_a_new_axis(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y = F32(KN_SHAPE(2), 3, 4);
    assert_values(kn_stack((kn_tensor *const[]){x, y}, 2, 0), 1, 2, 3, 4);
    assert_values(kn_stack((kn_tensor *const[]){x, y}, 2, -1), 1, 3, 2, 4);
    assert_shape(kn_stack((kn_tensor *const[]){kn_zeros(KN_SCALAR)}, 1, 0), KN_SHAPE(1));
    kn_tensor *long_one = kn_zeros(KN_SHAPE(3)), *flat = kn_zeros(KN_SCALAR);
    assert_op_fails(kn_stack((kn_tensor *const[]){x, long_one}, 2, 0), KN_ERR_SHAPE,
                    "x[1] does not have the shape of x[0]");
    assert_op_fails(kn_stack((kn_tensor *const[]){x, flat}, 2, 1), KN_ERR_SHAPE,
                    "x[1] does not have the shape of x[0]");
    assert_op_fails(kn_stack((kn_tensor *const[]){x}, 0, 0), KN_ERR_INVALID, "n_x is 0");
    assert_op_fails(kn_stack((kn_tensor *const[]){x}, 1, 2), KN_ERR_SHAPE, "can't be at 2");
}

static void tensors_are_cut_along_any_axis(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(2, 5), *part[5];
    assert_ok(kn_split_axis(part, x, (const int64_t[]){2, 0, 3}, 3, -1));
    assert_values(part[0], 0, 1, 10, 11);
    assert_shape(part[1], KN_SHAPE(2, 0));
    assert_values(part[2], 2, 3, 4, 12, 13, 14);
    assert_ok(kn_chunk(part, x, 3, 1));
    assert_shape(part[0], KN_SHAPE(2, 2));
    assert_shape(part[1], KN_SHAPE(2, 2));
    assert_values(part[2], 4, 14);
    assert_ok(kn_unbind(part, x, 5, 1));
    assert_values(part[3], 3, 13);
    assert_ok(kn_unbind(part, x, 2, 0));
    VIEW_OF(part[1], x);
    part[0] = x;
    assert_fails(kn_split_axis(part, x, (const int64_t[]){2, 2}, 2, 1), KN_ERR_SHAPE,
                 "2 sizes don't add up to the 5 elements of axis 1");
    assert_fails(kn_split_axis(part, x, (const int64_t[]){-1, 6}, 2, 1), KN_ERR_SHAPE,
                 "don't add up");
    assert_fails(kn_unbind(part, x, 4, 1), KN_ERR_SHAPE, "axis 1 has 5 elements, n is 4");
    assert_fails(kn_chunk(part, x, 0, 1), KN_ERR_SHAPE, "n is 0");
}

static void repeat_and_tile_copy_elements(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(2, 2);
    assert_values(kn_repeat(x, 2, 1), 0, 0, 1, 1, 10, 10, 11, 11);
    assert_values(kn_repeat(x, 2, 0), 0, 1, 0, 1, 10, 11, 10, 11);
    assert_shape(kn_repeat(x, 0, 0), KN_SHAPE(0, 2));
    assert_values(kn_tile(x, KN_SHAPE(1, 2)), 0, 1, 0, 1, 10, 11, 10, 11);
    assert_values(kn_tile(x, KN_SHAPE(2, 1)), 0, 1, 10, 11, 0, 1, 10, 11);
    assert_shape(kn_tile(x, KN_SHAPE(3, 0)), KN_SHAPE(6, 0));
    assert_op_fails(kn_repeat(x, -1, 0), KN_ERR_SHAPE, "n is -1");
    assert_op_fails(kn_repeat(x, INT64_MAX, 0), KN_ERR_SHAPE,
                    "kn_repeat: n is 9223372036854775807; the result would be too large (x [");
    assert_op_fails(kn_repeat(x, INT64_MAX / 4, 0), KN_ERR_SHAPE,
                    "kn_repeat: n is 2305843009213693951; the result would be too large (x [");
    assert_shape(kn_repeat(kn_zeros(KN_SHAPE(0, 4)), INT64_MAX, 0), KN_SHAPE(0, 4));
    assert_op_fails(kn_tile(x, KN_SHAPE(2)), KN_ERR_SHAPE, "times has 1 entries");
    assert_op_fails(kn_tile(x, KN_SHAPE(1, -2)), KN_ERR_SHAPE,
                    "times[1] is -2; it must be at least 0");
    assert_op_fails(kn_tile(x, KN_SHAPE(1, INT64_MAX)), KN_ERR_SHAPE,
                    "times[1] is 9223372036854775807; the result would be too large");
    assert_op_fails(kn_broadcast(x, KN_ALL), KN_ERR_SHAPE,
                    "x can't be broadcast to a shape of -1 dimensions");
}

static void tile_takes_any_number_of_axes(void **state) {
    (void)state;
    KN_FRAME();
    kn_shape dims = {{2, 1, 3, 1, 2, 2, 1, 2}, 8}, times = {{2, 3, 1, 2, 2, 1, 2, 3}, 8};
    kn_tensor *x = kn_reshape(kn_arange(0, 48, 1, KN_F32), dims), *y = kn_tile(x, times);
    assert_non_null(y);
    static float in[48], out[48 * 144];
    assert_int_equal(kn_tensor_numel(y), 48 * 144);
    assert_ok(kn_copy_out(in, sizeof in, x));
    assert_ok(kn_copy_out(out, sizeof out, y));
    for (int64_t at = 0; at < kn_tensor_numel(y); at++) {
        int64_t rest = at, from = 0, step = 1;
        for (int i = 7; i >= 0; i--) {
            from += rest % (dims.dim[i] * times.dim[i]) % dims.dim[i] * step;
            rest /= dims.dim[i] * times.dim[i];
            step *= dims.dim[i];
        }
        assert_true(out[at] == in[from]);
    }
    assert_shape(kn_tile(kn_full(KN_SCALAR, 3), KN_SCALAR), KN_SCALAR);
    assert_shape(kn_tile(kn_zeros(KN_SHAPE(0, 2)), KN_SHAPE(2, 3)), KN_SHAPE(0, 6));
}

static void roll_and_triangles(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = counted(2, 3);
    assert_values(kn_roll(x, 1, 1), 2, 0, 1, 12, 10, 11);
    assert_values(kn_roll(x, -4, 1), 1, 2, 0, 11, 12, 10);
    assert_values(kn_roll(x, 2, 0), 0, 1, 2, 10, 11, 12);
    assert_shape(kn_roll(kn_zeros(KN_SHAPE(0, 3)), 5, 0), KN_SHAPE(0, 3));
    assert_values(kn_triu(x, 0), 0, 1, 2, 0, 11, 12);
    assert_values(kn_tril(x, 0), 0, 0, 0, 10, 11, 0);
    assert_values(kn_triu(x, 2), 0, 0, 2, 0, 0, 0);
    assert_values(kn_tril(x, -1), 0, 0, 0, 10, 0, 0);
    assert_values(kn_triu(x, INT64_MIN), 0, 1, 2, 10, 11, 12);
    assert_values(kn_tril(x, INT64_MIN), 0, 0, 0, 0, 0, 0);
    assert_values(kn_triu(x, INT64_MAX), 0, 0, 0, 0, 0, 0);
    assert_values(kn_tril(x, INT64_MAX), 0, 1, 2, 10, 11, 12);
    kn_tensor *two = kn_reshape(kn_arange(0, 12, 1, 0), KN_SHAPE(2, 2, 3));
    assert_values(kn_triu(two, 0), 0, 1, 2, 0, 4, 5, 6, 7, 8, 0, 10, 11);
    assert_values(kn_tril(two, 0), 0, 0, 0, 3, 4, 0, 6, 0, 0, 9, 10, 0);
    assert_op_fails(kn_triu(kn_zeros(KN_SHAPE(3)), 0), KN_ERR_SHAPE,
                    "x must be [...,rows,columns]");
}

static void each_mode_of_padding_has_its_elements(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3), 1, 2, 3);
    assert_values(kn_pad(x, KN_SHAPE(1), KN_SHAPE(2), KN_PAD_CONSTANT, 9), 9, 1, 2, 3, 9, 9);
    assert_values(kn_pad(x, KN_SHAPE(2), KN_SHAPE(2), KN_PAD_REFLECT, 0), 3, 2, 1, 2, 3, 2, 1);
    assert_values(kn_pad(x, KN_SHAPE(2), KN_SHAPE(3), KN_PAD_SYMMETRIC, 0), 2, 1, 1, 2, 3, 3, 2, 1);
    assert_values(kn_pad(x, KN_SHAPE(4), KN_SHAPE(1), KN_PAD_REPLICATE, 0), 1, 1, 1, 1, 1, 2, 3, 3);
    assert_values(kn_pad(x, KN_SHAPE(2), KN_SHAPE(1), KN_PAD_CIRCULAR, 0), 2, 3, 1, 2, 3, 1);
    assert_values(kn_pad(counted(2, 2), KN_SHAPE(1, 0), KN_SHAPE(0, 1), KN_PAD_CONSTANT, 7), 7, 7,
                  7, 0, 1, 7, 10, 11, 7);
    assert_values(kn_pad(counted(2, 2), KN_SHAPE(1, 0), KN_SHAPE(0, 1), KN_PAD_REFLECT, 0), 10, 11,
                  10, 0, 1, 0, 10, 11, 10);
    assert_op_fails(kn_pad(x, KN_SHAPE(3), KN_SHAPE(0), KN_PAD_REFLECT, 0), KN_ERR_SHAPE,
                    "axis 0 is too short for a padding of 3 and 0 (x [3])");
    assert_op_fails(kn_pad(counted(2, 3), KN_SHAPE(2, 1), KN_SHAPE(0, 1), KN_PAD_REFLECT, 0),
                    KN_ERR_SHAPE, "axis 0 is too short for a padding of 2 and 0 (x [2,3])");
    assert_op_fails(kn_pad(x, KN_SHAPE(0), KN_SHAPE(4), KN_PAD_CIRCULAR, 0), KN_ERR_SHAPE,
                    "too short");
    assert_op_fails(kn_pad(kn_zeros(KN_SHAPE(0)), KN_SHAPE(1), KN_SHAPE(0), KN_PAD_REPLICATE, 0),
                    KN_ERR_SHAPE, "too short");
    assert_op_fails(kn_pad(x, KN_SHAPE(-1), KN_SHAPE(0), KN_PAD_CONSTANT, 0), KN_ERR_INVALID,
                    "kn_slice removes elements");
    assert_op_fails(kn_pad(x, KN_SHAPE(1, 1), KN_SHAPE(0), KN_PAD_CONSTANT, 0), KN_ERR_SHAPE,
                    "before has 2 entries, after 1, x 1");
    assert_op_fails(kn_pad(x, KN_SHAPE(1), KN_SHAPE(0), (kn_pad_mode)9, 0), KN_ERR_INVALID,
                    "mode is 9");
}

static void paddings_that_no_shape_has_are_refused(void **state) {
    (void)state;
    const kn_shape far = KN_SHAPE(INT64_MAX), none = KN_SHAPE(0);
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3), 1, 2, 3);
    assert_op_fails(kn_pad(x, far, none, KN_PAD_CONSTANT, 0), KN_ERR_SHAPE, "axis 0 is too large");
    assert_op_fails(kn_pad(x, none, far, KN_PAD_CONSTANT, 0), KN_ERR_SHAPE, "axis 0 is too large");
    assert_op_fails(kn_pad(x, far, none, KN_PAD_REPLICATE, 0), KN_ERR_SHAPE, "axis 0 is too large");
    assert_op_fails(kn_pad(x, none, far, KN_PAD_REPLICATE, 0), KN_ERR_SHAPE, "axis 0 is too large");
    assert_op_fails(kn_pad(x, far, far, KN_PAD_REPLICATE, 0), KN_ERR_SHAPE, "axis 0 is too large");
    assert_op_fails(kn_pad(x, KN_SHAPE(0), KN_SHAPE(-1), KN_PAD_CONSTANT, 0), KN_ERR_INVALID,
                    "axis 0 is 0 and -1");
    assert_op_fails(kn_pad(x, KN_SHAPE(0), KN_SCALAR, KN_PAD_CONSTANT, 0), KN_ERR_SHAPE,
                    "before has 1 entries, after 0, x 1");
    assert_op_fails(kn_pad(x, none, none, (kn_pad_mode)-1, 0), KN_ERR_INVALID, "mode is -1");
    kn_tensor *empty = kn_zeros(KN_SHAPE(0, 3));
    assert_shape(kn_pad(empty, KN_SHAPE(0, 1), KN_SHAPE(0, 1), KN_PAD_CIRCULAR, 0), KN_SHAPE(0, 5));
    assert_op_fails(kn_pad(empty, KN_SHAPE(1, 0), KN_SHAPE(0, 0), KN_PAD_SYMMETRIC, 0),
                    KN_ERR_SHAPE, "axis 0 is too short");
}

/* More columns than are moved at once. */
static void wide_rows_are_padded_with_whole_rows(void **state) {
    (void)state;
    enum { COLUMNS = 2500, ROWS = 3, ALL = ROWS + 3 };
    static const int64_t source[ALL] = {2, 1, 0, 1, 2, 1};
    KN_FRAME();
    kn_tensor *x = kn_reshape(kn_arange(0, 2 * ROWS * COLUMNS, 1, 0), KN_SHAPE(2, ROWS, COLUMNS));
    const float *y = kn_data(kn_pad(x, KN_SHAPE(0, 2, 0), KN_SHAPE(0, 1, 0), KN_PAD_REFLECT, 0));
    assert_non_null(y);
    for (int64_t i = 0; i < 2 * ALL * COLUMNS; i++) {
        int64_t plane = i / (ALL * COLUMNS), row = i / COLUMNS % ALL;
        assert_true(y[i] == (float)((plane * ROWS + source[row]) * COLUMNS + i % COLUMNS));
    }
}

/* Powers of two: each sum says which elements it has. */
static void gradients_of_padding_add_the_copies(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16};
    KN_FRAME();
    for (int i = 0; i < 4; i++) {
        kn_tensor *g = kn_cast(F32(KN_SHAPE(6), 1, 2, 4, 8, 16, 32), dtypes[i]), *dx[4];
        for (int64_t mode = KN_PAD_REFLECT; mode <= KN_PAD_CIRCULAR; mode++) {
            kn_attr_pad_edge attr = {0, 2, 1, mode};
            dx[mode - KN_PAD_REFLECT] = kn_cast(KN_CALL(pad_edge_back, &attr, g), KN_F32);
        }
        assert_values(dx[KN_PAD_REFLECT - KN_PAD_REFLECT], 4, 42, 17);
        assert_values(dx[KN_PAD_SYMMETRIC - KN_PAD_REFLECT], 6, 9, 48);
        assert_values(dx[KN_PAD_REPLICATE - KN_PAD_REFLECT], 7, 8, 48);
        assert_values(dx[KN_PAD_CIRCULAR - KN_PAD_REFLECT], 36, 9, 18);
    }
}

static void numbers_in_a_row(void **state) {
    (void)state;
    KN_FRAME();
    assert_values(kn_arange(1, 2, 0.25, 0), 1, 1.25, 1.5, 1.75);
    assert_values(kn_arange(3, 0, -1, KN_F64), 3, 2, 1);
    const int64_t *i = kn_data(kn_arange(-2, 1, 1, KN_I64));
    assert_true(i[0] == -2 && i[1] == -1 && i[2] == 0);
    assert_shape(kn_arange(0, -1, 1, 0), KN_SHAPE(0));
    assert_values(kn_linspace(-1, 1, 5), -1, -0.5, 0, 0.5, 1);
    assert_values(kn_linspace(4, 7, 1), 4);
    assert_shape(kn_linspace(0, 1, 0), KN_SHAPE(0));
    kn_tensor *third = kn_linspace(0, 1.1, 12);
    assert_true(ops_at(third, 11) == (double)1.1f);
    assert_op_fails(kn_arange(0, 1, 0, 0), KN_ERR_INVALID, "step 0");
    assert_op_fails(kn_arange(0, (double)NAN, 1, 0), KN_ERR_INVALID, "stop nan");
    assert_op_fails(kn_arange(0, 1, 1, KN_BOOL), KN_ERR_DTYPE, "no dtype of numbers");
    assert_op_fails(kn_linspace(0, 1, -1), KN_ERR_INVALID, "n is -1");
    assert_op_fails(kn_linspace(0, (double)INFINITY, 3), KN_ERR_INVALID,
                    "kn_linspace: first is 0, last inf; they must be finite");
    assert_op_fails(kn_linspace((double)NAN, 1, 3), KN_ERR_INVALID, "first is nan, last 1");
}

/* Their distance exceeds f64. */
static void numbers_between_far_ends_are_finite(void **state) {
    (void)state;
    const double most = 1.7976931348623157e308;
    KN_FRAME(.dtype = KN_F64);
    assert_values(kn_linspace(-1e308, 1e308, 3), -1e308, 0, 1e308);
    assert_values(kn_linspace(1.5e308, -1.5e308, 5), 1.5e308, 0.75e308, 0, -0.75e308, -1.5e308);
    assert_values(kn_linspace(-most, most, 2), -most, most);
    assert_values(kn_linspace(-most, most, 1), -most);
    for (int n = 3; n < 40; n++) {
        const double *x = kn_data(kn_linspace(-most, most, n));
        assert_true(x[0] == -most && x[n - 1] == most);
        for (int i = 1; i < n; i++) assert_true(x[i - 1] < x[i] && x[i] == -x[n - 1 - i]);
    }
}

/* Longer than a piece of work, even and odd: bit for bit, one number at a time. */
static void many_numbers_in_a_row(void **state) {
    (void)state;
    for (int64_t n = 40000; n < 40002; n++) {
        KN_FRAME(.dtype = KN_F64);
        double a = -2, b = 0.7, step = (b - a) / (double)(n - 1);
        const double *spaced = kn_data(kn_linspace(a, b, n));
        const int64_t *whole = kn_data(kn_arange(7, (double)(7 - 3 * n), -3, KN_I64));
        const float *single = kn_data(kn_arange(a, a + 0.3 * ((double)n - 0.5), 0.3, KN_F32));
        for (int64_t i = 0; i < n; i++) {
            double k = (double)i, back = (double)(n - 1 - i);
            assert_true(spaced[i] == (2 * i < n ? a + step * k : b - step * back));
            assert_true(whole[i] == 7 - 3 * i && single[i] == (float)(a + 0.3 * k));
        }
    }
}

static void one_hot_marks_the_index(void **state) {
    (void)state;
    KN_FRAME();
    assert_values(kn_one_hot(I64(KN_SHAPE(3), 1, 0, 5), 2), 0, 1, 1, 0, 0, 0);
    const uint8_t last = 255;
    kn_tensor *y = kn_one_hot(kn_tensor_from(&last, KN_U8, KN_SCALAR), 300);
    assert_shape(y, KN_SHAPE(300));
    assert_true(ops_at(y, 255) == 1 && ops_at(y, 256) == 0 && ops_at(y, 299) == 0);
    assert_op_fails(kn_one_hot(I64(KN_SHAPE(1), 1), -1), KN_ERR_INVALID, "n is -1");
    assert_op_fails(kn_one_hot(kn_ones(KN_SHAPE(1)), 2), KN_ERR_DTYPE,
                    "kn_one_hot: index is f32; it must be i64, i32 or u8");
}

static void data_of_the_host_are_copied_into_a_tensor(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    uint32_t version = x->storage->version;
    const float values[3] = {5, 6, 7};
    assert_ok(kn_copy_into(x, values, 2 * sizeof *values));
    assert_values(x, 5, 6);
    assert_int_equal(x->storage->version, version + 1);
    assert_ok(kn_copy_into(kn_zeros(KN_SHAPE(0)), NULL, 0));
    assert_fails(kn_copy_into(x, values, sizeof values), KN_ERR_SHAPE,
                 "has 12 bytes, t [2] f32 has 8");
    assert_fails(kn_copy_into(x, NULL, 8), KN_ERR_INVALID, "data is NULL");
    assert_fails(kn_copy_into(KN_NONE, values, 4), KN_ERR_INVALID, "kn_copy_into: t");
}

/* Whatever the shape or the numbers: a write into the result leaves x as it is. */
static void copies_of_all_elements_share_no_data(void **state) {
    (void)state;
    KN_FRAME();
    const kn_dtype dtypes[] = {KN_F32, KN_F16, KN_I64, KN_BOOL};
    for (int i = 0; i < 12; i++) {
        kn_tensor *x = kn_cast(i % 3 ? counted(3, 1) : kn_ones(KN_SCALAR), dtypes[i % 4]);
        bool is_scalar = i % 3 == 0;
        const kn_shape none = is_scalar ? KN_SCALAR : KN_SHAPE(0, 0);
        kn_tensor *const made[] = {
            kn_flip(x, is_scalar ? KN_SCALAR : KN_SHAPE(-1)),
            kn_tile(x, is_scalar ? KN_SCALAR : KN_SHAPE(1, 1)),
            kn_pad(x, none, none, KN_PAD_REFLECT, 0),
            is_scalar ? kn_transpose(x, KN_ALL) : kn_roll(x, 3, 0),
            is_scalar ? kn_transpose(x, KN_ALL) : kn_repeat(x, 1, 1),
        };
        for (size_t k = 0; k < sizeof made / sizeof *made; k++) {
            assert_non_null(made[k]);
            assert_shape(made[k], kn_tensor_shape(x));
            assert_true(made[k]->storage != x->storage);
            assert_memory_equal(kn_data(made[k]), kn_data(x),
                                (size_t)x->n * kn_dtype_bytes(kn_tensor_dtype(x)));
        }
    }
}

/* The simulated device reports work that touches memory too early. */
static void copies_from_pinned_memory_need_no_wait(void **state) {
    (void)state;
    kn_device *sim = NULL;
    if (kn_device_find(&sim, "sim") < 0) skip();
    KN_FRAME(.device = sim);
    kn_pool *pinned = kn_device_pinned_pool(sim);
    assert_non_null(pinned);
    void *staging = NULL;
    assert_ok(kn_alloc(&staging, pinned, 4096, NULL));
    kn_tensor *x = kn_zeros(KN_SHAPE(1024));
    assert_ok(kn_copy_into(x, staging, 4096));
    assert_ok(kn_stream_sync(sim, kn_frame_stream()));
    kn_free(pinned, staging);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(flip_reverses_the_named_axes), OPS_TEST(select_removes_the_axis),
        OPS_TEST(diagonals_are_read_and_written), OPS_TEST(squeeze_and_unsqueeze_are_views),
        OPS_TEST(stack_joins_along_a_new_axis), OPS_TEST(tensors_are_cut_along_any_axis),
        OPS_TEST(repeat_and_tile_copy_elements), OPS_TEST(tile_takes_any_number_of_axes),
        OPS_TEST(roll_and_triangles), OPS_TEST(copies_of_all_elements_share_no_data),
        OPS_TEST(each_mode_of_padding_has_its_elements),
        OPS_TEST(paddings_that_no_shape_has_are_refused),
        OPS_TEST(wide_rows_are_padded_with_whole_rows),
        OPS_TEST(gradients_of_padding_add_the_copies), OPS_TEST(numbers_in_a_row),
        OPS_TEST(many_numbers_in_a_row), OPS_TEST(numbers_between_far_ends_are_finite),
        OPS_TEST(one_hot_marks_the_index), OPS_TEST(data_of_the_host_are_copied_into_a_tensor),
        OPS_TEST(copies_from_pinned_memory_need_no_wait));
}
