/* Pools over the cuda device and the fake driver: cuda:0 has virtual memory, cuda:1 has not. Every
 * test runs on both. */
#include "fake_cuda_fixture.h"

#include <knet/pool_graph.h>

#include <pthread.h>

enum { MIB = 1 << 20 };

static kn_device *devices[2];

#define ON(fn, i)                                                                                  \
    { #fn, fn, fixture_begin, fixture_end, &devices[i] }
#define ON_BOTH(fn) ON(fn, 0), ON(fn, 1)

static kn_device *device_of(void **state) { return *(kn_device **)*state; }

static kn_pool *pool_create(void **state, size_t limit_bytes) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, device_of(state),
                             &(kn_pool_options){.limit_bytes = limit_bytes, .name = "test"}));
    return pool;
}

static void pool_gives_everything_back(void **state) {
    kn_pool *pool = pool_create(state, 0);
    void *small = NULL, *large = NULL;
    assert_ok(kn_alloc(&small, pool, 100, NULL));
    assert_ok(kn_alloc(&large, pool, 30 * (size_t)MIB, NULL));
    assert_int_equal((uintptr_t)small % 256, 0);
    assert_ok(kn_device_fill(device_of(state), large, 1, 30 * (size_t)MIB, NULL));
    assert_ok(kn_pool_check(pool));
    kn_free(pool, small);
    kn_free(pool, large);
    kn_pool_destroy(pool); /* the fixture looks for leaks */
}

static void same_sizes_again_do_not_reach_the_driver(void **state) {
    kn_pool *pool = pool_create(state, 0);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, device_of(state)));
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
    kn_stream_destroy(device_of(state), stream);
    kn_pool_destroy(pool);
}

static void block_in_use_elsewhere_is_not_handed_out(void **state) {
    kn_device *device = device_of(state);
    kn_pool *pool = pool_create(state, 0);
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

/* Page-locked memory that a copy has yet to read is not written again. */
static void pinned_memory_waits_for_its_copies(void **state) {
    kn_device *device = device_of(state);
    kn_pool *pool = pool_create(state, 0), *pinned = NULL;
    kn_stream stream = NULL;
    void *target = NULL, *x = NULL, *y[8] = {NULL};
    char result = 0;
    assert_ok(
        kn_pool_create(&pinned, device, &(kn_pool_options){.pinned = true, .name = "locked"}));
    assert_ok(kn_stream_create(&stream, device));
    assert_ok(kn_alloc(&target, pool, 4 * (size_t)MIB, stream));
    for (int i = 0; i < 2; i++) { /* a stream, then the default one */
        kn_stream copies = i ? NULL : stream;
        assert_ok(kn_alloc(&x, pinned, 4 * (size_t)MIB, stream));
        assert_int_equal(fake_cuda_calls("cuMemHostAlloc"), 1);
        memset(x, 1, 4 * (size_t)MIB);
        fake_cuda_hold(copies);
        assert_ok(kn_device_copy(device, target, kn_device_host(), x, 4 * (size_t)MIB, copies));
        assert_ok(kn_block_use(pinned, x, copies));
        kn_free(pinned, x);
        for (int k = 0; k < 4; k++) { /* as many as there is room for */
            assert_ok(kn_alloc(&y[k], pinned, 4 * (size_t)MIB, stream));
            memset(y[k], 2, 4 * (size_t)MIB);
        }
        fake_cuda_release(copies);
        assert_ok(kn_stream_sync(device, copies));
        assert_ok(kn_device_copy(kn_device_host(), &result, device, target, 1, stream));
        assert_ok(kn_stream_sync(device, stream));
        assert_int_equal(result, 1);
        for (int k = 0; k < 4; k++) kn_free(pinned, y[k]);
    }
    kn_free(pool, target);
    kn_stream_destroy(device, stream);
    kn_pool_destroy(pinned);
    kn_pool_destroy(pool);
}

/* Calls that a capture forbids, or that would be part of the graph. */
static uint64_t calls_with_events(void) {
    return fake_cuda_calls("cuEventRecord") + fake_cuda_calls("cuEventQuery") +
           fake_cuda_calls("cuEventSynchronize") + fake_cuda_calls("cuStreamWaitEvent") +
           fake_cuda_calls("cuStreamSynchronize") + fake_cuda_calls("cuMemUnmap");
}

static void captured_graph_keeps_its_memory(void **state) {
    kn_device *device = device_of(state);
    kn_pool *pool = pool_create(state, 0);
    kn_pool_graph *memory = NULL;
    kn_stream s = NULL, other = NULL;
    void *inside = NULL, *again = NULL, *beside = NULL, *before = NULL;
    assert_ok(kn_stream_create(&s, device));
    assert_ok(kn_stream_create(&other, device));
    assert_ok(kn_alloc(&before, pool, 4 * (size_t)MIB, s));
    kn_free(pool, before);
    assert_ok(kn_pool_graph_create(&memory, pool));
    assert_ok(kn_pool_graph_begin(memory, s));
    fake_cuda_capture(s, true);
    uint64_t n = calls_with_events();
    assert_ok(kn_alloc(&inside, pool, 4 * (size_t)MIB, s)); /* it may grow meanwhile */
    kn_free(pool, inside);
    assert_ok(kn_alloc(&again, pool, 4 * (size_t)MIB, s));
    assert_ptr_equal(inside, again);
    kn_free(pool, again);
    assert_int_equal(calls_with_events(), n);
    fake_cuda_capture(s, false);
    assert_ok(kn_pool_graph_end(memory, s));
    for (int i = 0; i < 2; i++) { /* free on both streams */
        assert_ok(kn_alloc(&beside, pool, 4 * (size_t)MIB, i ? s : other));
        assert_ptr_not_equal(beside, inside);
        kn_free(pool, beside);
    }
    kn_pool_graph_destroy(memory, s);
    assert_ok(kn_pool_check(pool));
    kn_stream_destroy(device, s);
    kn_stream_destroy(device, other);
    kn_pool_destroy(pool);
}

static void full_device_is_out_of_memory_and_the_pool_stays_usable(void **state) {
    kn_pool *pool = pool_create(state, 0);
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
    kn_pool *pool = pool_create(state, 64 * (size_t)MIB);
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

typedef struct held_block {
    unsigned char *ptr; /* the fake's memory is the host's */
    size_t size_bytes;
    unsigned char byte;
} held_block;

/* The first bytes and the last, by the host itself: the driver's failures are for the pool. */
static void mark(held_block *block) {
    memset(block->ptr, block->byte, 256);
    memset(block->ptr + block->size_bytes - 256, block->byte, 256);
}

/* Frees a block and checks that its mark was not overwritten. */
static kn_status let_go(kn_pool *pool, held_block *block, kn_stream other) {
    kn_status status = KN_OK;
    if (!block->ptr) return KN_OK;
    if (block->ptr[0] != block->byte || block->ptr[block->size_bytes - 1] != block->byte) {
        status = KN_ERR_INTERNAL;
    }
    if (status == KN_OK && other) status = kn_block_use(pool, block->ptr, other);
    kn_status freed = kn_free(pool, block->ptr);
    block->ptr = NULL;
    return status < 0 ? status : freed;
}

/* What a training step asks of a pool, made small: blocks come and go, and half of them were read
 * by another stream. */
static kn_status churn(kn_pool *pool, kn_stream stream, kn_stream other, int rounds,
                       uint64_t seed) {
    held_block held[16] = {{NULL, 0, 0}};
    kn_status status = KN_OK;
    for (int i = 0; i < rounds && status == KN_OK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        held_block *block = &held[seed >> 60];
        status = let_go(pool, block, seed >> 59 & 1 ? other : NULL);
        if (status < 0) break;
        void *ptr = NULL;
        block->size_bytes = (size_t)1 << (8 + (seed >> 40) % 14);
        block->byte = (unsigned char)i;
        status = kn_alloc(&ptr, pool, block->size_bytes, stream);
        if (status < 0) break;
        block->ptr = ptr;
        mark(block);
    }
    for (int i = 0; i < 16; i++) {
        kn_status last = let_go(pool, &held[i], NULL);
        if (status == KN_OK) status = last;
    }
    return status;
}

/* The n-th call of a function (NULL: of any) fails, n_times; the pool must be as good as new when
 * that is over. Returns how often a call did fail. */
static int fail_driver_calls(void **state, const char *function, int n_times, int n_max) {
    kn_device *device = device_of(state);
    kn_pool *pool = pool_create(state, 0);
    kn_stream stream = NULL, other = NULL;
    assert_ok(kn_stream_create(&stream, device));
    assert_ok(kn_stream_create(&other, device));
    int n_hit = 0;
    for (int n = 1; n <= n_max; n++) {
        assert_ok(kn_pool_trim(pool, 0));
        fake_cuda_fail(function, n, n_times, n % 2 ? 700 : KN__CU_ERROR_OUT_OF_MEMORY);
        kn_status status = churn(pool, stream, other, 40, (uint64_t)n);
        fake_cuda_fail(NULL, 1, 0, 0);
        if (status == KN_ERR_INTERNAL) fail_msg("call %d: a block was overwritten", n);
        n_hit += fake_cuda_has_failed();
        assert_ok(kn_pool_check(pool));
        assert_ok(churn(pool, stream, other, 5, (uint64_t)n));
    }
    kn_stream_destroy(device, stream);
    kn_stream_destroy(device, other);
    kn_pool_destroy(pool);
    return n_hit;
}

static void driver_call_that_fails_breaks_no_pool(void **state) {
    assert_true(fail_driver_calls(state, NULL, 1, 100) >= 8);
}

/* Not cuMemUnmap: what can't be unmapped stays where it is, for good. */
static void function_that_fails_from_then_on_breaks_no_pool(void **state) {
    static const char *const functions[] = {"cuMemCreate",  "cuMemMap",         "cuMemSetAccess",
                                            "cuMemAlloc",   "cuEventCreate",    "cuEventRecord",
                                            "cuEventQuery", "cuStreamWaitEvent"};
    int n_hit = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        n_hit += fail_driver_calls(state, functions[i], -1, 6);
    }
    assert_true(n_hit > 0);
}

static void *churn_thread(void *pool) {
    kn_stream stream = NULL, other = NULL;
    kn_device *device = kn_pool_device(pool);
    if (kn_stream_create(&stream, device) < 0) return "stream";
    if (kn_stream_create(&other, device) < 0) return "stream";
    kn_status status = churn(pool, stream, other, 300, (uint64_t)(uintptr_t)&stream);
    kn_stream_destroy(device, stream);
    kn_stream_destroy(device, other);
    return status < 0 ? "churn" : NULL;
}

static void threads_share_a_pool(void **state) {
    enum { THREADS = 4 };
    kn_pool *pool = pool_create(state, 0);
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

static int find_devices(void) {
    if (kn_device_find(&devices[0], "cuda:0") < 0) return -1;
    fake_cuda_machine_get()->has_virtual_memory = false;
    return kn_device_find(&devices[1], "cuda:1");
}

int main(void) {
    if (find_devices() < 0) return 1;
    return RUN_TESTS(
        ON_BOTH(pool_gives_everything_back), ON_BOTH(same_sizes_again_do_not_reach_the_driver),
        ON_BOTH(block_in_use_elsewhere_is_not_handed_out),
        ON_BOTH(pinned_memory_waits_for_its_copies), ON_BOTH(captured_graph_keeps_its_memory),
        ON_BOTH(full_device_is_out_of_memory_and_the_pool_stays_usable),
        ON_BOTH(limit_holds_and_trim_gives_back), ON_BOTH(driver_call_that_fails_breaks_no_pool),
        ON_BOTH(function_that_fails_from_then_on_breaks_no_pool), ON_BOTH(threads_share_a_pool));
}
