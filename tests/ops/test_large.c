/* Host ops on more than 2^31 elements: copy, sum, index, pointwise. They need up to 7 GB, and run
 * where KNET_TEST_SLOW=1. */
#include "ops_test.h"

enum { TAIL = 5 };
static const int64_t N = ((int64_t)1 << 31) + TAIL;

/* Zeros, but a 3 at 2^31 - 1, a 5 at 2^31 and a 7 at the end. */
static kn_tensor *marked(void) {
    kn_tensor *x = kn_cast(kn_zeros(KN_SHAPE(1)), KN_U8);
    kn_tensor *all = kn_broadcast(x, KN_SHAPE(N));
    unsigned char *data = kn_data_mut(all);
    assert_non_null(data);
    data[N - TAIL - 1] = 3, data[N - TAIL] = 5, data[N - 1] = 7;
    return all;
}

static double at(kn_tensor *t, int64_t i) {
    KN_FRAME();
    double value = -1;
    assert_ok(kn_item(&value, kn_index(t, KN_ITEMS(KN_AT(i)))));
    return value;
}

static void assert_marks(kn_tensor *t, double scale) {
    assert_non_null(t);
    assert_int_equal(kn_tensor_numel(t), N);
    assert_int_equal(at(t, 0), 0);
    assert_int_equal(at(t, N - TAIL - 1), 3 * scale);
    assert_int_equal(at(t, N - TAIL), 5 * scale);
    assert_int_equal(at(t, -1), 7 * scale);
}

static void sums_read_every_element(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = marked();
    double sum = 0, most = 0, place = 0;
    assert_ok(kn_item(&sum, kn_sum(x, KN_ALL, false)));
    assert_int_equal(sum, 15);
    assert_ok(kn_item(&most, kn_max(x, KN_ALL, false)));
    assert_int_equal(most, 7);
    assert_ok(kn_item(&place, kn_argmax(x, KN_ALL, false)));
    assert_true((int64_t)place == N - 1);
    assert_ok(kn_item(&sum, kn_count_nonzero(x, KN_ALL, false)));
    assert_int_equal(sum, 3);
}

static void pointwise_ops_write_every_element(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = marked();
    assert_marks(kn_add(x, x), 2);
    kn_tensor *is = kn_ne(x, kn_cast(kn_zeros(KN_SCALAR), KN_U8));
    assert_int_equal(at(is, N - TAIL), 1);
    assert_int_equal(at(is, N - 2), 0);
}

static void copies_and_indices_reach_every_element(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = marked();
    assert_marks(kn_concat((kn_tensor *const[]){x}, 1, 0), 1);
    kn_tensor *back = kn_index(x, KN_ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1)));
    assert_int_equal(at(back, 0), 7);
    assert_int_equal(at(back, TAIL - 1), 5);
    assert_int_equal(at(back, TAIL), 3);
    kn_tensor *some = kn_index_select(x, I64(KN_SHAPE(3), N - TAIL, -1, 1), 0);
    assert_int_equal(at(some, 0), 5);
    assert_int_equal(at(some, 1), 7);
    assert_int_equal(at(some, 2), 0);
}

int main(void) {
    const char *slow = getenv("KNET_TEST_SLOW");
    if (!slow || strcmp(slow, "1") != 0) test_skip_all("KNET_TEST_SLOW is not 1");
    return RUN_TESTS(OPS_TEST(sums_read_every_element), OPS_TEST(pointwise_ops_write_every_element),
                     OPS_TEST(copies_and_indices_reach_every_element));
}
