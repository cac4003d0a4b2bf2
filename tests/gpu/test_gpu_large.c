/* Tensors of more than 2^32 elements: no kernel may count in 32 bits. A test skips, with a message,
 * where the card has too little memory. */
#include "gpu.h"

#include <knet/ops.h>

#include <math.h>

static kn_device *gpu;

/* Not a multiple of a block, a warp or a vector. */
#define ROWS INT64_C(65537)
#define COLUMNS INT64_C(65543)
#define N (ROWS * COLUMNS)

static bool has_room(size_t bytes) {
    kn_device_info info = gpu_info(gpu);
    if (info.free_bytes / 20 * 19 > bytes) return true;
    print_message("skipped: needs %.1f GiB, the card has %.1f GiB free\n", (double)bytes / 0x1p30,
                  (double)info.free_bytes / 0x1p30);
    return false;
}

/* Element `at` of a tensor, as a double. */
static double element(kn_tensor *t, int64_t at) {
    KN_FRAME();
    double value = NAN;
    kn_tensor *flat = kn_reshape(t, KN_SHAPE(-1));
    kn_tensor *one = kn_slice(flat, KN_SHAPE(at), KN_SHAPE(at + 1));
    if (kn_tensor_dtype(t) != KN_F32) one = kn_cast(one, KN_F32);
    assert_ok(kn_item(&value, one));
    return value;
}

/* Elements on both sides of 2^31, 2^32 and the ends, and some between. */
static void assert_elements(kn_tensor *t, double (*want)(int64_t at)) {
    int64_t n = kn_tensor_numel(t);
    const int64_t edges[] = {0, INT64_C(1) << 31, INT64_C(1) << 32, n - 1};
    for (int i = 0; i < 4; i++) {
        for (int64_t at = edges[i] - 2; at <= edges[i] + 2; at++) {
            if (at < 0 || at >= n) continue;
            assert_close(element(t, at), want(at), 1e-6, 0);
        }
    }
    for (int i = 0; i < 50; i++) {
        int64_t at = (int64_t)test_random_below((uint64_t)n);
        assert_close(element(t, at), want(at), 1e-6, 0);
    }
}

static double three(int64_t at) { return (void)at, 3.0; }

static void pointwise_ops_reach_every_element(void **state) {
    (void)state;
    if (!has_room(2 * N * sizeof(float))) skip();
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_full(KN_SHAPE(ROWS, COLUMNS), -2.0);
    kn_tensor *y = kn_affine(x, -1.0, 1.0);
    assert_ok(kn_check());
    assert_elements(y, three);
}

/* Ones sum exactly up to 2^24, and nearly so beyond: a part that is lost or counted twice shows. */
static void sums_count_every_element(void **state) {
    (void)state;
    if (!has_room(N * sizeof(float) + (64 << 20))) skip();
    KN_FRAME(.device = gpu);
    double all = 0;
    kn_tensor *x = kn_ones(KN_SHAPE(ROWS, COLUMNS));
    kn_tensor *rows = kn_sum(x, KN_SHAPE(1), false), *columns = kn_sum(x, KN_SHAPE(0), false);
    assert_ok(kn_item(&all, kn_sum(x, KN_ALL, false)));
    assert_close(all, (double)N, 1e-6, 0);
    assert_close(element(rows, 0), (double)COLUMNS, 0, 0);
    assert_close(element(rows, ROWS - 1), (double)COLUMNS, 0, 0);
    assert_close(element(columns, 0), (double)ROWS, 0, 0);
    assert_close(element(columns, COLUMNS - 1), (double)ROWS, 0, 0);
}

static void softmax_reaches_the_last_row(void **state) {
    (void)state;
    if (!has_room(2 * N * sizeof(float))) skip();
    KN_FRAME(.device = gpu);
    kn_tensor *y = kn_softmax(kn_zeros(KN_SHAPE(ROWS, COLUMNS)), 1);
    assert_ok(kn_check());
    const int64_t at[] = {0, (INT64_C(1) << 32) - 1, INT64_C(1) << 32, N - 1};
    for (int i = 0; i < 4; i++) assert_close(element(y, at[i]), 1.0 / (double)COLUMNS, 1e-5, 0);
}

static void casts_and_transposes_move_every_element(void **state) {
    (void)state;
    if (!has_room(N * (sizeof(float) + 2))) skip();
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_full(KN_SHAPE(ROWS, COLUMNS), 3.0);
    kn_tensor *bytes = kn_cast(x, KN_U8);
    kn_drop(x);
    kn_tensor *turned = kn_transpose(bytes, KN_ALL);
    assert_ok(kn_check());
    assert_elements(bytes, three);
    assert_elements(turned, three);
}

/* Random numbers are counted by element: the last ones are not the first ones again. */
static void random_numbers_do_not_repeat(void **state) {
    (void)state;
    if (!has_room(N * sizeof(float))) skip();
    KN_FRAME(.device = gpu);
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    kn_tensor *x = kn_uniform(KN_SHAPE(N), 0, 1, rng);
    kn_rng_destroy(rng);
    assert_ok(kn_check());
    int n_same = 0;
    for (int64_t i = 0; i < 20; i++) n_same += element(x, i) == element(x, (INT64_C(1) << 32) + i);
    assert_true(n_same <= 1);
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(pointwise_ops_reach_every_element), TEST(sums_count_every_element),
                     TEST(softmax_reaches_the_last_row),
                     TEST(casts_and_transposes_move_every_element),
                     TEST(random_numbers_do_not_repeat));
}
