/* <knet/rmm.hpp> on the fake driver. */
#include "fake_cuda_fixture.h"
#include "rmm_caller.h"

#define MiB ((size_t)1 << 20)

static kn_pool_stats stats_now(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, rmm_pool());
    return stats;
}

static int begin(void **state) {
    (void)state;
    fake_cuda_reset();
    return 0;
}

static int end(void **state) {
    (void)state;
    fake_cuda_fail(NULL, 1, 0, 0);
    if (kn_pool_sync(rmm_pool()) < 0 || kn_pool_trim(rmm_pool(), 0) < 0) return -1;
    kn_pool_stats stats = stats_now();
    bool clean = !stats.live_bytes && !stats.reserved_bytes && !stats.n_misuses &&
                 !fake_cuda_count().n_violations && kn_pool_check(rmm_pool()) == KN_OK;
    return clean ? 0 : -1;
}

#define RMM_TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

static void *must(size_t size, kn_stream stream) {
    void *ptr = NULL;
    assert_int_equal(rmm_allocate(&ptr, size, stream), RMM_OK);
    assert_non_null(ptr);
    assert_int_equal((uintptr_t)ptr % 256, 0);
    return ptr;
}

static void resources_of_one_pool_are_equal(void **state) {
    (void)state;
    assert_true(rmm_compares_equal());
}

static void missing_device_throws_bad_alloc(void **state) {
    (void)state;
    assert_int_equal(rmm_open(9), RMM_BAD_ALLOC);
    assert_non_null(strstr(rmm_what(), "cuda:9"));
    assert_ok(kn_check()); /* nothing is pending */
    assert_null(KN_FAIL_NULL(KN_ERR_SHAPE, "of an op"));
    assert_int_equal(rmm_open(9), RMM_BAD_ALLOC);
    assert_non_null(strstr(rmm_what(), "cuda:9"));
    assert_int_equal(kn_check(), KN_ERR_SHAPE); /* not of the resource */
    assert_int_equal(rmm_open(0), RMM_OK);
}

static void blocks_are_allocated_and_freed(void **state) {
    (void)state;
    kn_stream s = NULL;
    assert_ok(kn_stream_create(&s, kn_pool_device(rmm_pool())));
    void *a = must(1000, s), *b = must(8 * MiB, s), *c = must(5000, NULL);
    assert_true(stats_now().live_bytes >= 6000 + 8 * MiB);
    rmm_deallocate(a, 1000, s);
    rmm_deallocate(b, 8 * MiB, s);
    rmm_deallocate(c, 5000, NULL);
    assert_int_equal(stats_now().live_bytes, 0);
    kn_stream_destroy(kn_pool_device(rmm_pool()), s);
}

static void out_of_memory_is_an_exception_with_the_reason(void **state) {
    (void)state;
    void *held = must(600 * MiB, NULL), *more = held;
    assert_int_equal(rmm_allocate(&more, 600 * MiB, NULL), RMM_OUT_OF_MEMORY);
    assert_null(more);
    assert_non_null(strstr(rmm_what(), "600"));
    rmm_deallocate(held, 600 * MiB, NULL);
    rmm_deallocate(must(600 * MiB, NULL), 600 * MiB, NULL);
}

/* RMM passes the stream of the last use: its work must end before the memory has a new owner. */
static void free_on_another_stream_waits_for_its_work(void **state) {
    (void)state;
    kn_device *device = kn_pool_device(rmm_pool());
    kn_stream s = NULL, other = NULL;
    char result = 0;
    assert_ok(kn_stream_create(&s, device));
    assert_ok(kn_stream_create(&other, device));
    void *x = must(4 * MiB, s), *copy = must(4 * MiB, s), *next[8];
    assert_ok(kn_device_fill(device, x, 1, 4 * MiB, s));
    fake_cuda_hold(other);
    assert_ok(kn_device_copy(device, copy, device, x, 4 * MiB, other));
    rmm_deallocate(x, 4 * MiB, other);
    for (int i = 0; i < 8; i++) {
        next[i] = must(4 * MiB, s);
        assert_ok(kn_device_fill(device, next[i], 2, 4 * MiB, s));
    }
    fake_cuda_release(other);
    assert_ok(kn_stream_sync(device, other));
    assert_ok(kn_device_copy(kn_device_host(), &result, device, copy, 1, s));
    assert_int_equal(result, 1);
    for (int i = 0; i < 8; i++) rmm_deallocate(next[i], 4 * MiB, s);
    rmm_deallocate(copy, 4 * MiB, s);
    kn_stream_destroy(device, s);
    kn_stream_destroy(device, other);
}

static void log_text(void *ctx, int level, const char *text) {
    assert_int_equal(level, 0);
    snprintf(ctx, 256, "%s", text);
}

/* A pool notes no streams of other devices, so the work of such a one must end before the free. */
static void free_on_a_stream_of_another_device_waits_for_it(void **state) {
    (void)state;
    kn_device *second = NULL;
    kn_stream foreign = NULL;
    char text[256] = "";
    assert_ok(kn_device_find(&second, "cuda:1"));
    assert_ok(kn_stream_create(&foreign, second));
    void *x = must(4 * MiB, NULL), *lost = must(4 * MiB, NULL);
    uint64_t n = fake_cuda_calls("cuStreamSynchronize");
    rmm_deallocate(x, 4 * MiB, foreign);
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), n + 1);
    assert_int_equal(stats_now().live_bytes, 4 * MiB);
    fake_cuda_fail("cuStreamSynchronize", 1, 1, 700);
    kn_log_attach(log_text, text);
    rmm_deallocate(lost, 4 * MiB, foreign);
    kn_log_attach(NULL, NULL);
    assert_non_null(strstr(text, "is never freed"));
    assert_non_null(strstr(text, "cuStreamSynchronize"));
    assert_int_equal(stats_now().live_bytes, 4 * MiB);
    assert_ok(kn_free(rmm_pool(), lost));
    kn_stream_destroy(second, foreign);
}

static void any_call_of_the_driver_may_fail(void **state) {
    (void)state;
    for (int n = 1; n < 60; n++) {
        void *ptr = NULL;
        fake_cuda_fail(NULL, n, 1, n % 2 ? 2 : 700);
        rmm_outcome outcome = rmm_allocate(&ptr, 6 * MiB, NULL);
        fake_cuda_fail(NULL, 1, 0, 0);
        assert_int_equal(outcome == RMM_OK, ptr != NULL);
        if (ptr) rmm_deallocate(ptr, 6 * MiB, NULL);
        assert_ok(kn_pool_sync(rmm_pool()));
        assert_ok(kn_pool_trim(rmm_pool(), 0));
        rmm_deallocate(must(6 * MiB, NULL), 6 * MiB, NULL);
        assert_ok(kn_pool_trim(rmm_pool(), 0));
    }
}

int main(void) {
    if (rmm_open(0) != RMM_OK) return 1;
    return RUN_TESTS(RMM_TEST(resources_of_one_pool_are_equal),
                     RMM_TEST(missing_device_throws_bad_alloc),
                     RMM_TEST(blocks_are_allocated_and_freed),
                     RMM_TEST(out_of_memory_is_an_exception_with_the_reason),
                     RMM_TEST(free_on_another_stream_waits_for_its_work),
                     RMM_TEST(free_on_a_stream_of_another_device_waits_for_it),
                     RMM_TEST(any_call_of_the_driver_may_fail));
}
