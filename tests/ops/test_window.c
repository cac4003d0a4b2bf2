#include "kernels_test.h"

typedef struct pool_case {
    kn_shape x;
    kn_attr_pool attr;
} pool_case;

static pool_case random_case(int n_spatial) {
    pool_case c = {
        {{1 + (int64_t)test_random_below(3), 1 + (int64_t)test_random_below(4)}, n_spatial + 2},
        {.dilation = {1, 1, 1}, .n_spatial = n_spatial}};
    for (int i = 0; i < n_spatial; i++) {
        c.attr.window[i] = 1 + (int64_t)test_random_below(4);
        c.attr.stride[i] = 1 + (int64_t)test_random_below(4);
        c.x.dim[2 + i] = c.attr.window[i] + (int64_t)test_random_below(20);
    }
    return c;
}

static kn_shape window_shape(const pool_case *c, const int64_t *size) {
    kn_shape shape = {{0}, c->attr.n_spatial};
    for (int i = 0; i < shape.n_dims; i++) shape.dim[i] = size[i];
    return shape;
}

/* Index in x of element `q` of the window of result element `i`. */
static int64_t source(const pool_case *c, const kn_shape *y, int64_t i, int64_t q) {
    int64_t at[3], part[3], index;
    for (int d = c->attr.n_spatial - 1; d >= 0; d--) {
        at[d] = i % y->dim[2 + d];
        i /= y->dim[2 + d];
        part[d] = q % c->attr.window[d];
        q /= c->attr.window[d];
    }
    index = i; /* image and channel */
    for (int d = 0; d < c->attr.n_spatial; d++)
        index = index * c->x.dim[2 + d] + at[d] * c->attr.stride[d] + part[d];
    return index;
}

static int64_t window_size(const pool_case *c) {
    int64_t n = 1;
    for (int i = 0; i < c->attr.n_spatial; i++) n *= c->attr.window[i];
    return n;
}

/* Runs maxpool with its offsets, as a recorded call would. */
static kn_tensor *maxpool_with_offsets(kn_tensor **offsets, kn_tensor *x, const pool_case *c) {
    kn_attr_pool attr = c->attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_maxpool, &attr, &x, 1);
    call.want = 3;
    kn_tensor *y = kn_op_run(&call);
    *offsets = call.out[1];
    return y;
}

static kn_tensor *pooled(kn_tensor *x, const pool_case *c) {
    kn_pooling_options options = {.ceil = 0};
    for (int i = 0; i < c->attr.n_spatial; i++) options.stride[i] = c->attr.stride[i];
    return kn_maxpool(x, window_shape(c, c->attr.window), &options);
}

static void check_max(const pool_case *c, kn_dtype dtype) {
    KN_FRAME();
    kn_tensor *x = random_tensor(dtype, c->x), *offsets = NULL;
    kn_tensor *y = pooled(x, c);
    assert_non_null(y);
    kn_shape y_shape = kn_tensor_shape(y);
    assert_same_bits(y, maxpool_with_offsets(&offsets, x, c));
    const uint8_t *offset = kn_data(offsets);
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) {
        int64_t best = 0;
        for (int64_t q = 1; q < window_size(c); q++)
            if (ops_at(x, source(c, &y_shape, i, q)) > ops_at(x, source(c, &y_shape, i, best)))
                best = q;
        assert_int_equal(offset[i], best);
        assert_close(ops_at(y, i), ops_at(x, source(c, &y_shape, i, best)), 0, 0);
    }
    assert_same_bits(y, op_maxpool_take(x, offsets, &c->attr));

    kn_tensor *dy = random_tensor(dtype, y_shape);
    kn_tensor *dx = op_maxpool_back(dy, offsets, c->x, &c->attr);
    struct {
        double sum, size;
        int n;
    } *want = calloc((size_t)kn_tensor_numel(x), sizeof *want), *at;
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) {
        at = &want[source(c, &y_shape, i, offset[i])];
        at->sum += ops_at(dy, i), at->size += fabs(ops_at(dy, i)), at->n++;
    }
    for (int64_t i = 0; i < kn_tensor_numel(x); i++) /* a rounding in f32 for each term but one */
        assert_close(ops_at(dx, i), want[i].sum, 0, (want[i].n - 1) * 0x1p-24 * want[i].size);
    free(want);
    assert_close(dot(dx, x), dot(dy, op_maxpool_take(x, offsets, &c->attr)), 1e-4, 1e-4);
}

static void check_average(const pool_case *c, kn_dtype dtype) {
    KN_FRAME();
    kn_tensor *x = random_tensor(dtype, c->x), *y = op_avgpool_attr(x, &c->attr);
    assert_non_null(y);
    kn_shape y_shape = kn_tensor_shape(y);
    int64_t n = window_size(c);
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) {
        double sum = 0;
        for (int64_t q = 0; q < n; q++) sum += ops_at(x, source(c, &y_shape, i, q));
        assert_close(ops_at(y, i), sum / (double)n, 1e-5, 1e-6);
    }
    kn_tensor *dy = random_tensor(dtype, y_shape);
    assert_close(dot(x, op_avgpool_back(dy, c->x, &c->attr)), dot(y, dy), 1e-4, 1e-4);
}

static void random_windows_match_the_definition(void **state) {
    (void)state;
    for (int n_spatial = 1; n_spatial <= 3; n_spatial++)
        for (int i = 0; i < 12; i++) {
            pool_case c = random_case(n_spatial);
            FOR_BOTH_DTYPES(dtype) {
                check_max(&c, dtype);
                check_average(&c, dtype);
            }
        }
}

static void windows_of_2x2_match_at_every_width(void **state) {
    (void)state;
    for (int64_t width = 2; width < 44; width++) {
        pool_case c = {
            {{2, 3, 4 + width % 2, width}, 4},
            {.window = {2, 2, 1}, .stride = {2, 2, 1}, .dilation = {1, 1, 1}, .n_spatial = 2}};
        FOR_BOTH_DTYPES(dtype) check_max(&c, dtype);
    }
}

static void nan_wins_and_of_equals_the_first(void **state) {
    (void)state;
    for (int64_t width = 2; width <= 32; width += 30) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME();
            double values[64];
            for (int i = 0; i < 64; i++) values[i] = 3;
            values[width + 1] = (double)NAN; /* last of the first window */
            pool_case c = {
                {{1, 1, 2, width}, 4},
                {.window = {2, 2, 1}, .stride = {2, 2, 1}, .dilation = {1, 1, 1}, .n_spatial = 2}};
            kn_tensor *offsets, *x = from_doubles(values, dtype, c.x);
            kn_tensor *y = maxpool_with_offsets(&offsets, x, &c);
            assert_true(isnan(ops_at(y, 0)));
            assert_int_equal(((const uint8_t *)kn_data(offsets))[0], 3);
            for (int64_t i = 1; i < width / 2; i++)
                assert_int_equal(((const uint8_t *)kn_data(offsets))[i], 0);
        }
}

/* Loops that keep no offsets are others, with vectors of other widths. */
static void maxima_are_the_same_without_offsets(void **state) {
    (void)state;
    static const double some[] = {0, -0.0, 1, -1, 1, -1, 2, -2, INFINITY, -INFINITY, NAN};
    for (int64_t width = 3; width < 100; width = width * 5 / 4 + 1)
        for (int i = 0; i < 24; i++) FOR_BOTH_DTYPES(dtype) {
                KN_FRAME();
                pool_case c = {{{1, 3, 4, width}, 4}, {.dilation = {1, 1, 1}, .n_spatial = 2}};
                c.attr.window[0] = c.attr.window[1] = 2 + i / 12;
                c.attr.stride[0] = 1, c.attr.stride[1] = 1 + i % 3;
                c.attr.padding[1] = i / 3 % 2, c.attr.dilation[1] = 1 + i / 6 % 2;
                double values[3 * 4 * 100];
                for (int64_t at = 0; at < 3 * 4 * width; at++)
                    values[at] = some[test_random_below(test_random_below(9) ? 8 : 11)];
                kn_tensor *offsets, *x = from_doubles(values, dtype, c.x);
                const kn_pooling_options o = {.stride = {1, c.attr.stride[1]},
                                              .padding = {0, c.attr.padding[1]},
                                              .dilation = {1, c.attr.dilation[1]}};
                if (width + 2 * c.attr.padding[1] <= (c.attr.window[1] - 1) * c.attr.dilation[1])
                    continue;
                assert_same_bits(kn_maxpool(x, window_shape(&c, c.attr.window), &o),
                                 maxpool_with_offsets(&offsets, x, &c));
            }
}

static void skipped_nans_leave_the_maximum_of_the_numbers(void **state) {
    (void)state;
    for (int padding = 0; padding < 2; padding++) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME();
            const double values[] = {NAN, -2, -1, NAN, NAN, NAN, NAN, 5};
            kn_tensor *y, *offsets, *x = from_doubles(values, dtype, KN_SHAPE(1, 1, 8));
            const kn_pooling_options o = {.skip_nan = 1, .stride = {2}, .padding = {padding}};
            assert_ok(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(2), &o));
            assert_true(padding ? isnan(ops_at(y, 0)) : ops_at(y, 0) == -2);
            assert_true(ops_at(y, 1) == -1 && isnan(ops_at(y, 2)));
            assert_true(isnan(ops_at(y, 3)) == (padding == 1));
            assert_int_equal(((const uint8_t *)kn_data(offsets))[1], padding);
            assert_true(isnan(ops_at(kn_maxpool(x, KN_SHAPE(2), NULL), 0)));
        }
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(9, 11, 40, 41)), *one, *four;
    {
        KN_FRAME(.threads = 1);
        one = kn_keep(kn_avgpool(x, KN_SHAPE(3, 3), &(kn_pooling_options){.stride = {2, 2}}));
    }
    {
        KN_FRAME(.threads = 4);
        four = kn_keep(kn_avgpool(x, KN_SHAPE(3, 3), &(kn_pooling_options){.stride = {2, 2}}));
    }
    assert_same_bits(one, four);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(random_windows_match_the_definition),
                     OPS_TEST(windows_of_2x2_match_at_every_width),
                     OPS_TEST(nan_wins_and_of_equals_the_first),
                     OPS_TEST(maxima_are_the_same_without_offsets),
                     OPS_TEST(skipped_nans_leave_the_maximum_of_the_numbers),
                     OPS_TEST(the_number_of_threads_changes_no_bit));
}
