/* A pool over the cuda device and the fake driver. */
#include "fake_cuda_fixture.h"

#include <knet/pool.h>

#include <pthread.h>

enum { MIB = 1 << 20 };

static kn_pool *pool_create(size_t limit_bytes) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, cuda_device_get(),
                             &(kn_pool_options){.limit_bytes = limit_bytes, .name = "test"}));
    return pool;
}

static void pool_gives_everything_back(void **state) {
    (void)state;
    kn_pool *pool = pool_create(0);
    void *small = NULL, *large = NULL;
    assert_ok(kn_alloc(&small, pool, 100, NULL));
    assert_ok(kn_alloc(&large, pool, 30 * (size_t)MIB, NULL));
    assert_int_equal((uintptr_t)small % 256, 0);
    assert_ok(kn_device_fill(cuda_device_get(), large, 1, 30 * (size_t)MIB, NULL));
    assert_ok(kn_pool_check(pool));
    kn_free(pool, small);
    kn_free(pool, large);
    kn_pool_destroy(pool); /* the fixture looks for what is left */
}

static void same_sizes_again_do_not_reach_the_driver(void **state) {
    (void)state;
    kn_pool *pool = pool_create(0);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, cuda_device_get()));
    uint64_t before = 0;
    for (int round = 0; round < 10; round++) {
        void *p[3] = {NULL};
        if (round == 2) before = fake_cuda_calls("cuMemCreate") + fake_cuda_calls("cuMemAlloc");
        assert_ok(kn_alloc(&p[0], pool, 300, stream));
        assert_ok(kn_alloc(&p[1], pool, 5 * (size_t)MIB, stream));
        assert_ok(kn_alloc(&p[2], pool, 40000, stream));
        for (int i = 0; i < 3; i++) kn_free(pool, p[i]);
    }
    assert_int_equal(fake_cuda_calls("cuMemCreate") + fake_cuda_calls("cuMemAlloc"), before);
    assert_int_equal(fake_cuda_calls("cuMemFree") + fake_cuda_calls("cuMemUnmap"), 0);
    assert_int_equal(fake_cuda_calls("cuEventRecord"), 0);
    kn_stream_destroy(cuda_device_get(), stream);
    kn_pool_destroy(pool);
}

static void block_in_use_elsewhere_is_not_handed_out(void **state) {
    (void)state;
    kn_device *device = cuda_device_get();
    kn_pool *pool = pool_create(0);
    kn_stream mine = NULL, other = NULL;
    char result = 0;
    assert_ok(kn_stream_create(&mine, device));
    assert_ok(kn_stream_create(&other, device));
    void *x = NULL, *target = NULL;
    assert_ok(kn_alloc(&x, pool, 4 * (size_t)MIB, mine));
    assert_ok(kn_alloc(&target, pool, 4 * (size_t)MIB, mine));
    assert_ok(kn_device_fill(device, x, 1, 4 * (size_t)MIB, mine));
    fake_cuda_hold(other);
    assert_ok(kn_device_copy(device, target, device, x, 4 * (size_t)MIB, other));
    assert_ok(kn_block_use(pool, x, other));
    kn_free(pool, x);
    /* Whoever gets memory now must not overwrite what the other stream has yet to read. */
    void *y[8] = {NULL};
    for (int i = 0; i < 8; i++) {
        assert_ok(kn_alloc(&y[i], pool, 4 * (size_t)MIB, mine));
        assert_ok(kn_device_fill(device, y[i], 2, 4 * (size_t)MIB, mine));
    }
    fake_cuda_release(other);
    assert_ok(kn_stream_sync(device, other));
    assert_ok(kn_stream_sync(device, mine));
    assert_ok(kn_device_copy(kn_device_host(), &result, device, target, 1, mine));
    assert_int_equal(result, 1);
    for (int i = 0; i < 8; i++) kn_free(pool, y[i]);
    kn_free(pool, target);
    kn_stream_destroy(device, mine);
    kn_stream_destroy(device, other);
    kn_pool_destroy(pool);
}

static void full_device_is_out_of_memory_and_the_pool_goes_on(void **state) {
    (void)state;
    kn_pool *pool = pool_create(0);
    size_t capacity = fake_cuda_machine_get()->capacity_bytes;
    void *x = NULL, *y = NULL;
    assert_fails(kn_alloc(&x, pool, 2 * capacity, NULL), KN_ERR_OOM, "");
    assert_null(x);
    assert_ok(kn_alloc(&x, pool, capacity / 2, NULL));
    assert_fails(kn_alloc(&y, pool, capacity / 4 * 3, NULL), KN_ERR_OOM, "");
    assert_ok(kn_alloc(&y, pool, capacity / 4, NULL));
    assert_ok(kn_pool_check(pool));
    kn_free(pool, x);
    kn_free(pool, y);
    kn_pool_destroy(pool);
}

static void limit_holds_and_trim_gives_back(void **state) {
    (void)state;
    kn_pool *pool = pool_create(64 * (size_t)MIB);
    kn_pool_stats stats;
    void *x = NULL, *y = NULL;
    assert_ok(kn_alloc(&x, pool, 40 * (size_t)MIB, NULL));
    assert_fails(kn_alloc(&y, pool, 40 * (size_t)MIB, NULL), KN_ERR_OOM, "limit");
    assert_true(fake_cuda_count().used_bytes <= 64 * (uint64_t)MIB);
    kn_free(pool, x);
    assert_ok(kn_pool_trim(pool, 0));
    kn_pool_stats_read(&stats, sizeof stats, pool);
    assert_int_equal(stats.reserved_bytes, 0);
    assert_int_equal(fake_cuda_count().used_bytes, 0);
    kn_pool_destroy(pool);
}

/* What a training step asks of a pool, made small. */
static kn_status churn(kn_pool *pool, kn_stream stream, int rounds, uint64_t seed) {
    void *held[16] = {NULL};
    kn_status status = KN_OK;
    for (int i = 0; i < rounds && status == KN_OK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void **slot = &held[seed >> 60];
        kn_free(pool, *slot);
        *slot = NULL;
        status = kn_alloc(slot, pool, (size_t)1 << (8 + (seed >> 40) % 14), stream);
        if (status == KN_OK) status = kn_device_fill(kn_pool_device(pool), *slot, i, 256, stream);
    }
    for (int i = 0; i < 16; i++) kn_free(pool, held[i]);
    return status;
}

static void driver_call_that_fails_breaks_no_pool(void **state) {
    (void)state;
    kn_pool *pool = pool_create(0);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, cuda_device_get()));
    int n_failed = 0;
    for (int n = 1; n < 400; n += n < 30 ? 1 : 13) {
        fake_cuda_fail(NULL, n, 1, n % 2 ? 700 : KN__CU_ERROR_OUT_OF_MEMORY);
        n_failed += churn(pool, stream, 40, (uint64_t)n) < 0;
        fake_cuda_fail(NULL, 1, 0, 0);
        assert_ok(kn_pool_check(pool));
        assert_ok(churn(pool, stream, 5, (uint64_t)n));
        if (n % 5 == 0) assert_ok(kn_pool_trim(pool, 0));
    }
    assert_true(n_failed > 3);
    kn_stream_destroy(cuda_device_get(), stream);
    kn_pool_destroy(pool);
}

static void *churn_thread(void *pool) {
    kn_stream stream = NULL;
    kn_device *device = kn_pool_device(pool);
    if (kn_stream_create(&stream, device) < 0) return "stream";
    kn_status status = churn(pool, stream, 300, (uint64_t)(uintptr_t)&stream);
    kn_stream_destroy(device, stream);
    return status < 0 ? "churn" : NULL;
}

static void threads_share_a_pool(void **state) {
    (void)state;
    enum { THREADS = 4 };
    kn_pool *pool = pool_create(0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn_thread, pool), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed) fail_msg("%s failed in a thread", (const char *)failed);
    }
    assert_ok(kn_pool_check(pool));
    kn_pool_destroy(pool);
}

int main(void) {
    return RUN_TESTS(
        CUDA_TEST(pool_gives_everything_back), CUDA_TEST(same_sizes_again_do_not_reach_the_driver),
        CUDA_TEST(block_in_use_elsewhere_is_not_handed_out),
        CUDA_TEST(full_device_is_out_of_memory_and_the_pool_goes_on),
        CUDA_TEST(limit_holds_and_trim_gives_back),
        CUDA_TEST(driver_call_that_fails_breaks_no_pool), CUDA_TEST(threads_share_a_pool));
}
