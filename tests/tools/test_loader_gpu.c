/* The loader's way to a GPU, over a fake driver whose streams a test can hold. */
#include <knet/data.h>

#include "fake_cuda.h"
#include "test.h"

enum { BATCH = 4, PIXELS = 784 };

static kn_device *gpu;
static kn_stream stream;

static kn_loader *open_loader(void) {
    kn_loader *loader = NULL;
    kn_loader_options options = {.batch = BATCH, .split = KN_TEST, .device = gpu};
    assert_ok(kn_loader_create_synthetic(&loader, 10 * BATCH, &options));
    return loader;
}

/* What the host's loader gives, which is not shuffled either. */
static void expected(float x[BATCH * PIXELS], int batch) {
    kn_loader *loader = NULL;
    kn_loader_options options = {.batch = BATCH, .split = KN_TEST};
    assert_ok(kn_loader_create_synthetic(&loader, 10 * BATCH, &options));
    kn_batch b;
    for (int i = 0; i <= batch; i++) assert_true(kn_loader_next(loader, &b));
    memcpy(x, kn_data(b.x), BATCH * PIXELS * sizeof *x);
    kn_loader_destroy(loader);
}

/* Enqueues a copy of the batch's images to the host. */
static void fetch(float *x, const kn_batch *b) {
    const void *data = kn_data(b->x);
    assert_non_null(data);
    assert_ok(kn_device_copy(kn_device_host(), x, gpu, data, BATCH * PIXELS * sizeof *x, stream));
}

static void the_host_fills_a_batch_while_the_device_fetches_the_last(void **state) {
    (void)state;
    static float want[2][BATCH * PIXELS], got[2][BATCH * PIXELS];
    for (int i = 0; i < 2; i++) expected(want[i], i);
    assert_memory_not_equal(want[0], want[1], sizeof want[0]);
    KN_FRAME(.device = gpu);
    kn_loader *loader = open_loader();
    stream = kn_frame_stream();
    kn_batch b;
    fake_cuda_hold((cu_stream)stream);
    for (int i = 0; i < 2; i++) {
        assert_true(kn_loader_next(loader, &b));
        fetch(got[i], &b);
    }
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), 0);
    fake_cuda_release((cu_stream)stream);
    assert_memory_equal(got[0], want[0], sizeof got[0]);
    assert_memory_equal(got[1], want[1], sizeof got[1]);
    kn_loader_destroy(loader);
}

/* The fake driver refuses a wait that would never end. */
static void a_third_batch_waits_for_the_first(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_loader *loader = open_loader();
    stream = kn_frame_stream();
    kn_batch b;
    fake_cuda_hold((cu_stream)stream);
    for (int i = 0; i < 2; i++) assert_true(kn_loader_next(loader, &b));
    assert_false(kn_loader_next(loader, &b));
    assert_fails(kn_check(), KN_ERR_CUDA, "cuEventSynchronize");
    fake_cuda_release((cu_stream)stream);
    assert_true(kn_loader_next(loader, &b));
    kn_loader_destroy(loader);
    fake_cuda_reset();
}

static void a_destroyed_loader_leaves_a_batch_until_it_is_fetched(void **state) {
    (void)state;
    static float want[BATCH * PIXELS], got[BATCH * PIXELS];
    enum { BYTES = BATCH * (sizeof(int64_t) + PIXELS * sizeof(float)) };
    kn_pool *pool = kn_device_pinned_pool(gpu);
    void *block[4];
    expected(want, 0);
    KN_FRAME(.device = gpu);
    kn_loader *loader = open_loader();
    stream = kn_frame_stream();
    kn_batch b;
    fake_cuda_hold((cu_stream)stream);
    assert_true(kn_loader_next(loader, &b));
    fetch(got, &b);
    kn_loader_destroy(loader);
    for (int i = 0; i < 4; i++) {
        assert_ok(kn_alloc(&block[i], pool, BYTES, NULL));
        memset(block[i], 0xFF, BYTES);
    }
    fake_cuda_release((cu_stream)stream);
    assert_memory_equal(got, want, sizeof got);
    for (int i = 0; i < 4; i++) assert_ok(kn_free(pool, block[i]));
}

static void batches_are_staged_in_page_locked_memory(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_pool_stats before, during, after;
    kn_pool *pool = kn_device_pinned_pool(gpu);
    kn_pool_stats_read(&before, sizeof before, pool);
    kn_loader *loader = open_loader();
    kn_pool_stats_read(&during, sizeof during, pool);
    assert_true(during.live_bytes >= before.live_bytes + 2 * BATCH * PIXELS * sizeof(float));
    kn_batch b;
    int n = 0;
    while (kn_loader_next(loader, &b)) n++;
    assert_ok(kn_check());
    assert_int_equal(n, 10);
    kn_loader_destroy(loader);
    kn_pool_stats_read(&after, sizeof after, pool);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

/* Fails the n-th call of the driver, n = 1, 2, … */
static void a_failed_loader_leaves_no_memory(void **state) {
    (void)state;
    kn_loader_options options = {.batch = BATCH, .split = KN_TEST, .device = gpu};
    kn_pool_stats before, after;
    kn_pool *pool = kn_device_pinned_pool(gpu);
    kn_pool_stats_read(&before, sizeof before, pool);
    for (int nth = 1, failed = 1; failed; nth++) {
        kn_loader *loader = NULL;
        fake_cuda_reset();
        fake_cuda_fail("cuEventCreate", nth, 1, 2);
        failed = kn_loader_create_synthetic(&loader, 10 * BATCH, &options) < 0;
        assert_int_equal(failed, nth <= 2);
        kn_loader_destroy(loader);
        kn_pool_stats_read(&after, sizeof after, pool);
        assert_int_equal(after.live_bytes, before.live_bytes);
    }
}

int main(void) {
    if (kn_device_find(&gpu, "cuda:0") < 0) return 1;
    return RUN_TESTS(TEST(the_host_fills_a_batch_while_the_device_fetches_the_last),
                     TEST(a_third_batch_waits_for_the_first),
                     TEST(a_destroyed_loader_leaves_a_batch_until_it_is_fetched),
                     TEST(batches_are_staged_in_page_locked_memory),
                     TEST(a_failed_loader_leaves_no_memory));
}
