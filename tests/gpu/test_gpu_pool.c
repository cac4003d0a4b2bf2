/* Pools on a real GPU: grown by mapped handles, and by plain segments. Every test runs on both. */
#include "gpu.h"

#include <knet/pause.h>

#include <pthread.h>

static kn_device *gpus[2]; /* cuda:0 and the same without virtual memory */

#define ON_BOTH(fn) cmocka_unit_test_prestate(fn, &gpus[0]), cmocka_unit_test_prestate(fn, &gpus[1])

static kn_pool *pool_create(kn_device *gpu, size_t limit_bytes) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, gpu, &(kn_pool_options){.limit_bytes = limit_bytes}));
    return pool;
}

static kn_pool_stats stats_of(const kn_pool *pool) {
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats;
}

static void pool_close(kn_pool *pool) {
    assert_ok(kn_pool_check(pool));
    assert_int_equal(stats_of(pool).live_bytes, 0);
    kn_pool_destroy(pool);
}

static size_t random_size(void) {
    return (size_t)1 << (test_random_below(16) + 6) | test_random_below(64);
}

static void blocks_do_not_overlap(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = pool_create(gpu, 0);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, gpu));
    enum { N = 64 };
    struct {
        void *ptr;
        size_t size_bytes;
        int byte;
    } blocks[N] = {{0}};
    for (int i = 0; i < 600; i++) {
        size_t k = test_random_below(N);
        if (blocks[k].ptr) {
            gpu_assert_bytes(gpu, blocks[k].ptr, blocks[k].size_bytes, blocks[k].byte, stream);
            assert_ok(kn_free(pool, blocks[k].ptr));
        }
        blocks[k].size_bytes = random_size();
        blocks[k].byte = i & 255;
        assert_ok(kn_alloc(&blocks[k].ptr, pool, blocks[k].size_bytes, stream));
        assert_int_equal((uintptr_t)blocks[k].ptr % 256, 0);
        assert_ok(kn_device_fill(gpu, blocks[k].ptr, blocks[k].byte, blocks[k].size_bytes, stream));
    }
    for (int i = 0; i < N; i++) assert_ok(kn_free(pool, blocks[i].ptr));
    kn_stream_destroy(gpu, stream);
    pool_close(pool);
}

static void steady_state_never_calls_the_driver(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = pool_create(gpu, 0);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, gpu));
    kn_pool_stats warm = {0};
    for (int step = 0; step < 50; step++) {
        void *p[5] = {NULL};
        const size_t sizes[5] = {300, 70000, 3 * MIB, 40 * MIB, 1000000};
        if (step == 2) warm = stats_of(pool);
        for (int i = 0; i < 5; i++) assert_ok(kn_alloc(&p[i], pool, sizes[i], stream));
        for (int i = 4; i >= 0; i--) assert_ok(kn_device_fill(gpu, p[i], i, sizes[i], stream));
        for (int i = 0; i < 5; i++) assert_ok(kn_free(pool, p[i]));
    }
    kn_pool_stats now = stats_of(pool);
    assert_int_equal(now.n_device_allocs, warm.n_device_allocs);
    assert_int_equal(now.reserved_bytes, warm.reserved_bytes);
    assert_int_equal(now.n_syncs, 0);
    assert_int_equal(now.n_events, 0);
    kn_stream_destroy(gpu, stream);
    pool_close(pool);
}

/* A stream that is busy for long reads x late. x is freed at once, and its contents must stay until
 * that read, also if other streams allocate meanwhile. */
static void block_read_late_by_another_stream_is_not_overwritten(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    enum { ROUNDS = 10, OTHERS = 6 };
    const size_t size_bytes = 8 * MIB, scratch_bytes = 256 * MIB;
    kn_pool *pool = pool_create(gpu, 0);
    kn_stream mine = NULL, other = NULL;
    kn_event *written = NULL;
    void *scratch = NULL, *target = NULL;
    assert_ok(kn_stream_create(&mine, gpu));
    assert_ok(kn_stream_create(&other, gpu));
    assert_ok(kn_event_create(&written, gpu));
    assert_ok(kn_alloc(&scratch, pool, scratch_bytes, other));
    assert_ok(kn_alloc(&target, pool, size_bytes, other));
    for (int round = 1; round <= ROUNDS; round++) {
        void *x = NULL, *y[OTHERS] = {NULL};
        assert_ok(kn_alloc(&x, pool, size_bytes, mine));
        assert_ok(kn_device_fill(gpu, x, round, size_bytes, mine));
        assert_ok(kn_event_record(written, mine));
        assert_ok(kn_event_wait(written, other));
        gpu_keep_busy(gpu, scratch, scratch_bytes, 40, other);
        assert_ok(kn_device_copy(gpu, target, gpu, x, size_bytes, other));
        assert_ok(kn_block_use(pool, x, other));
        assert_ok(kn_free(pool, x));
        for (int i = 0; i < OTHERS; i++) {
            assert_ok(kn_alloc(&y[i], pool, size_bytes, mine));
            assert_ok(kn_device_fill(gpu, y[i], 255, size_bytes, mine));
        }
        gpu_assert_bytes(gpu, target, size_bytes, round, other);
        for (int i = 0; i < OTHERS; i++) assert_ok(kn_free(pool, y[i]));
    }
    assert_ok(kn_free(pool, scratch));
    assert_ok(kn_free(pool, target));
    kn_event_destroy(written);
    kn_stream_destroy(gpu, mine);
    kn_stream_destroy(gpu, other);
    pool_close(pool);
}

static void limit_holds_and_the_pool_stays_usable(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = pool_create(gpu, 256 * MIB);
    void *x = NULL, *y = NULL;
    assert_ok(kn_alloc(&x, pool, 150 * MIB, NULL));
    assert_fails(kn_alloc(&y, pool, 150 * MIB, NULL), KN_ERR_OOM, "limit");
    assert_null(y);
    assert_true(stats_of(pool).reserved_bytes_max <= 256 * MIB);
    assert_ok(kn_free(pool, x));
    assert_ok(kn_alloc(&y, pool, 200 * MIB, NULL));
    assert_ok(kn_device_fill(gpu, y, 1, 200 * MIB, NULL));
    assert_ok(kn_free(pool, y));
    pool_close(pool);
}

static void full_gpu_is_out_of_memory_and_the_pool_stays_usable(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    enum { N_MAX = 64 };
    kn_pool *pool = pool_create(gpu, 0);
    size_t piece = gpu_info(gpu).free_bytes / 24 / MIB * MIB;
    void *p[N_MAX] = {NULL};
    int n = 0;
    kn_status status = KN_OK;
    while (n < N_MAX && (status = kn_alloc(&p[n], pool, piece, NULL)) == KN_OK) n++;
    print_message("%d pieces of %zu MiB, then: %s\n", n, piece / MIB, kn_last_error()->message);
    assert_int_equal(status, KN_ERR_OOM);
    assert_true(n >= 12 && n < N_MAX);
    assert_ok(kn_pool_check(pool));
    assert_ok(kn_device_fill(gpu, p[n - 1], 3, piece, NULL));
    gpu_assert_bytes(gpu, (char *)p[n - 1] + piece - MIB, MIB, 3, NULL);
    assert_ok(kn_free(pool, p[--n]));
    void *again = NULL;
    assert_ok(kn_alloc(&again, pool, piece, NULL));
    assert_ok(kn_free(pool, again));
    while (n > 0) assert_ok(kn_free(pool, p[--n]));
    pool_close(pool);
}

static void trim_gives_memory_back_to_the_driver(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = pool_create(gpu, 0);
    void *x = NULL, *kept = NULL;
    uint64_t free_bytes = gpu_info(gpu).free_bytes;
    size_t much = free_bytes / 4 < 2048 * MIB ? free_bytes / 4 / MIB * MIB : 2048 * MIB;
    assert_ok(kn_alloc(&kept, pool, 10 * MIB, NULL));
    assert_ok(kn_device_fill(gpu, kept, 42, 10 * MIB, NULL));
    assert_ok(kn_alloc(&x, pool, much, NULL));
    free_bytes = gpu_info(gpu).free_bytes;
    assert_ok(kn_free(pool, x));
    assert_ok(kn_pool_trim(pool, 0));
    assert_true(gpu_info(gpu).free_bytes >= free_bytes + much / 10 * 9);
    assert_true(stats_of(pool).reserved_bytes < 128 * MIB);
    gpu_assert_bytes(gpu, kept, 10 * MIB, 42, NULL);
    assert_ok(kn_free(pool, kept));
    assert_ok(kn_pool_trim(pool, 0));
    assert_int_equal(stats_of(pool).reserved_bytes, 0);
    pool_close(pool);
}

static void *churn(void *pool) {
    kn_device *gpu = kn_pool_device(pool);
    kn_stream stream = NULL;
    void *held[16] = {NULL};
    uint64_t seed = (uint64_t)(uintptr_t)&stream;
    if (kn_stream_create(&stream, gpu) < 0) return "kn_stream_create";
    for (int i = 0; i < 2000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void **slot = &held[seed >> 60];
        if (kn_free(pool, *slot) < 0) return "kn_free";
        size_t size_bytes = (size_t)1 << (8 + (seed >> 40) % 15);
        if (kn_alloc(slot, pool, size_bytes, stream) < 0) return "kn_alloc";
        if (kn_device_fill(gpu, *slot, i, size_bytes, stream) < 0) return "kn_device_fill";
    }
    for (int i = 0; i < 16; i++) {
        if (kn_free(pool, held[i]) < 0) return "kn_free";
    }
    if (kn_stream_sync(gpu, stream) < 0) return "kn_stream_sync";
    kn_stream_destroy(gpu, stream);
    return NULL;
}

static void threads_share_a_pool(void **state) {
    enum { THREADS = 8 };
    kn_pool *pool = pool_create(*(kn_device **)*state, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, pool), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed) fail_msg("%s failed in a thread", (const char *)failed);
    }
    pool_close(pool);
}

static uint64_t free_bytes(kn_device *gpu) {
    kn_device_info info;
    assert_ok(kn_device_info_read(&info, sizeof info, gpu));
    return info.free_bytes;
}

/* Of a tag, while the rest is in use; then of the whole pool. */
static void paused_memory_goes_to_others_and_comes_back(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = pool_create(gpu, 0);
    const size_t bytes = (size_t)64 << 20;
    void *x = NULL, *y = NULL;
    size_t dropped = 0;
    kn_tag_push("paused");
    assert_ok(kn_alloc(&x, pool, bytes, NULL));
    kn_tag_pop();
    assert_ok(kn_alloc(&y, pool, bytes, NULL));
    assert_ok(kn_device_fill(gpu, x, 7, bytes, NULL));
    assert_ok(kn_device_fill(gpu, y, 9, bytes, NULL));
    kn_pause_options keep = {.tag = "paused", .keep = true};
    if (gpu == gpus[1]) {
        assert_fails(kn_pool_pause(NULL, pool, &keep), KN_ERR_UNSUPPORTED, "virtual memory");
    } else {
        uint64_t before = free_bytes(gpu);
        assert_ok(kn_pool_pause(&dropped, pool, &keep));
        assert_true(dropped >= bytes / 2);
        assert_true(free_bytes(gpu) >= before + dropped / 2);
        gpu_assert_bytes(gpu, y, bytes, 9, NULL);
        keep.tag = NULL;
        assert_ok(kn_pool_pause(NULL, pool, &keep));
        assert_ok(kn_pool_resume(pool, NULL));
    }
    gpu_assert_bytes(gpu, x, bytes, 7, NULL);
    gpu_assert_bytes(gpu, y, bytes, 9, NULL);
    assert_ok(kn_free(pool, x));
    assert_ok(kn_free(pool, y));
    pool_close(pool);
}

static void default_pool_is_one(void **state) {
    kn_device *gpu = *(kn_device **)*state;
    kn_pool *pool = kn_device_pool(gpu);
    assert_non_null(pool);
    assert_ptr_equal(kn_device_pool(gpu), pool);
    assert_ptr_equal(kn_pool_device(pool), gpu);
}

int main(void) {
    gpus[0] = gpu_get();
    gpus[1] = gpu_plain_get();
    if (!gpus[1]) return 1;
    return RUN_TESTS(ON_BOTH(blocks_do_not_overlap), ON_BOTH(steady_state_never_calls_the_driver),
                     ON_BOTH(block_read_late_by_another_stream_is_not_overwritten),
                     ON_BOTH(limit_holds_and_the_pool_stays_usable),
                     ON_BOTH(full_gpu_is_out_of_memory_and_the_pool_stays_usable),
                     ON_BOTH(trim_gives_memory_back_to_the_driver), ON_BOTH(threads_share_a_pool),
                     ON_BOTH(paused_memory_goes_to_others_and_comes_back),
                     ON_BOTH(default_pool_is_one));
}
