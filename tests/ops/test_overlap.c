/* Writes into a tensor from one that shares its memory: as from a copy. */
#include <knet/capture.h>
#include <string.h>

#include "ops_test.h"

enum { MANY = 300000 }; /* elements: above the grains of the host's kernels */

static float *numbers(int64_t n) {
    float *a = malloc((size_t)n * sizeof *a);
    assert_non_null(a);
    for (int64_t i = 0; i < n; i++) a[i] = (float)(i % 1021);
    return a;
}

/* x has those values; frees them. */
static void assert_is(kn_tensor *x, float *want) {
    const float *got = kn_data(x);
    assert_non_null(got);
    for (int64_t i = 0; i < x->n; i++) assert_true(got[i] == want[i]);
    free(want);
}

static kn_tensor *make(int64_t n, float *want) {
    kn_tensor *x = kn_tensor_from(want, KN_F32, KN_SHAPE(n));
    assert_non_null(x);
    return x;
}

static kn_tensor *part(kn_tensor *x, int64_t from, int64_t to) {
    return kn_slice(x, KN_SHAPE(from), KN_SHAPE(to));
}

static void set_forward(int64_t n) {
    float *a = numbers(n);
    kn_tensor *x = make(n, a);
    assert_ok(kn_set_into(x, part(x, 0, n - 1), KN_ITEMS(KN_RANGE(1, KN_END, 1))));
    memmove(a + 1, a, (size_t)(n - 1) * sizeof *a);
    assert_is(x, a);
}

static void set_back(int64_t n) {
    float *a = numbers(n);
    kn_tensor *x = make(n, a);
    assert_ok(kn_set_into(x, part(x, 1, n), KN_ITEMS(KN_RANGE(0, n - 1, 1))));
    memmove(a, a + 1, (size_t)(n - 1) * sizeof *a);
    assert_is(x, a);
}

static void set_reversed(int64_t n) {
    float *a = numbers(n), *b = numbers(n);
    kn_tensor *x = make(n, a);
    assert_ok(kn_set_into(x, x, KN_ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1))));
    for (int64_t i = 0; i < n; i++) b[i] = a[n - 1 - i];
    free(a);
    assert_is(x, b);
}

static void set_taken(int64_t n) {
    float *a = numbers(n), *b = numbers(n);
    kn_tensor *x = make(n, a), *index = kn_arange((double)(n - 1), -1, -1, KN_I64);
    assert_ok(kn_set_into(x, x, KN_ITEMS(KN_TAKE(index))));
    for (int64_t i = 0; i < n; i++) b[i] = a[n - 1 - i];
    free(a);
    assert_is(x, b);
}

static void parts_of_x_are_set_as_from_a_copy(void **state) {
    (void)state;
    static void (*const cases[])(int64_t n) = {set_forward, set_back, set_reversed, set_taken};
    for (int threads = 1; threads <= 5; threads += 2) {
        for (int i = 0; i < 4; i++) {
            KN_FRAME(.threads = threads);
            cases[i](10);
            cases[i](MANY);
        }
    }
}

static void sums_into_x_read_a_copy_of_its_part(void **state) {
    (void)state;
    for (int64_t n = 10; n <= MANY; n += MANY - 10) {
        KN_FRAME(.threads = 3);
        float *a = numbers(n), *b = numbers(n);
        kn_tensor *x = make(n, a), *y = make(n, a);
        assert_ok(kn_axpy_into(part(x, 1, n), 2, part(x, 0, n - 1)));
        assert_ok(kn_add_into(part(y, 1, n), part(y, 0, n - 1)));
        for (int64_t i = 1; i < n; i++) b[i] = a[i] + 2 * a[i - 1];
        assert_is(x, b);
        b = numbers(n);
        for (int64_t i = 1; i < n; i++) b[i] = a[i] + a[i - 1];
        assert_is(y, b);
        free(a);
    }
}

static void x_is_added_to_itself_without_a_copy(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3), 1, 2, 3);
    kn_pool_stats before, after;
    kn_pool_stats_read(&before, sizeof before, kn_device_pool(kn_device_host()));
    assert_ok(kn_axpy_into(x, 2, x));
    assert_ok(kn_add_into(x, x));
    kn_pool_stats_read(&after, sizeof after, kn_device_pool(kn_device_host()));
    assert_int_equal(after.n_allocs, before.n_allocs);
    assert_values(x, 6, 12, 18);
}

static void a_row_of_x_is_added_to_all_of_them(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 2), 1, 2, 3, 4);
    assert_ok(kn_add_into(x, kn_slice(x, KN_SHAPE(0, 0), KN_SHAPE(1, 2))));
    assert_values(x, 2, 4, 4, 6);
}

static void data_of_x_are_copied_into_its_part(void **state) {
    (void)state;
    KN_FRAME();
    float *a = numbers(1000);
    kn_tensor *x = make(1000, a);
    assert_ok(kn_copy_into(part(x, 1, 1000), kn_data(x), 999 * sizeof *a));
    memmove(a + 1, a, 999 * sizeof *a);
    assert_is(x, a);
}

static void replays_set_parts_as_from_a_copy(void **state) {
    (void)state;
    KN_FRAME();
    kn_capture *step = NULL;
    assert_ok(kn_capture_create(&step, NULL));
    kn_tensor *x = F32(KN_SHAPE(4), 1, 2, 3, 4), *in = F32(KN_SHAPE(1), 10), *out;
    assert_ok(kn_capture_begin(step, &in, 1));
    assert_ok(kn_set_into(x, part(x, 0, 3), KN_ITEMS(KN_RANGE(1, KN_END, 1))));
    assert_ok(kn_axpy_into(part(x, 1, 4), 1, part(x, 0, 3)));
    out = kn_add(x, in);
    assert_ok(kn_capture_end(step, &out, 1));
    assert_values(x, 1, 2, 3, 5);
    assert_ok(kn_capture_launch(step, &in, 1));
    assert_values(x, 1, 2, 3, 5);
    assert_ok(kn_copy_into(x, (const float[]){1, 10, 100, 1000}, 4 * sizeof(float)));
    assert_ok(kn_capture_launch(step, &in, 1));
    assert_values(x, 1, 2, 11, 110);
    assert_values(kn_capture_out(step, 0), 11, 12, 21, 120);
    kn_capture_destroy(step);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(parts_of_x_are_set_as_from_a_copy), OPS_TEST(sums_into_x_read_a_copy_of_its_part),
        OPS_TEST(x_is_added_to_itself_without_a_copy), OPS_TEST(a_row_of_x_is_added_to_all_of_them),
        OPS_TEST(data_of_x_are_copied_into_its_part), OPS_TEST(replays_set_parts_as_from_a_copy));
}
