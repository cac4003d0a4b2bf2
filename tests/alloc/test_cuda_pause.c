/* Pause and resume over the cuda device and the fake driver, whose memory holds bytes. */
#include "fake_cuda_fixture.h"

#include <knet/pause.h>

enum { MIB = 1 << 20, BYTES = 3 * MIB };

static kn_pool *pool_create(void) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, cuda_device_get(), &(kn_pool_options){.name = "test"}));
    return pool;
}

static void *filled(kn_pool *pool, const char *tag, int byte) {
    void *x = NULL;
    kn_tag_push(tag);
    assert_ok(kn_alloc(&x, pool, BYTES, NULL));
    kn_tag_pop();
    assert_ok(kn_device_fill(cuda_device_get(), x, byte, BYTES, NULL));
    return x;
}

static void assert_bytes(const void *device, int byte) {
    unsigned char *host = malloc(BYTES);
    assert_non_null(host);
    assert_ok(kn_device_copy(kn_device_host(), host, cuda_device_get(), device, BYTES, NULL));
    assert_ok(kn_stream_sync(cuda_device_get(), NULL));
    for (size_t i = 0; i < BYTES; i += 509) assert_int_equal(host[i], byte);
    free(host);
}

static void contents_come_back_at_their_addresses(void **state) {
    (void)state;
    kn_pool *pool = pool_create();
    void *x = filled(pool, "x", 7), *y = filled(pool, "y", 9);
    kn_pause_options keep = {.keep = true};
    size_t dropped = 0;
    assert_ok(kn_pool_pause(&dropped, pool, &keep));
    assert_int_equal(fake_cuda_count().used_bytes, before_.used_bytes);
    assert_true(dropped >= 2 * (size_t)BYTES);
    assert_ok(kn_pool_resume(pool, NULL));
    assert_bytes(x, 7);
    assert_bytes(y, 9);
    keep.tag = "x";
    assert_ok(kn_pool_pause(NULL, pool, &keep));
    assert_bytes(y, 9);
    assert_ok(kn_pool_resume(pool, "x"));
    assert_bytes(x, 7);
    assert_ok(kn_free(pool, x));
    assert_ok(kn_free(pool, y));
    kn_pool_destroy(pool);
}

/* Whatever fails, contents that are kept are there in the end. */
static void play(const char *function, int nth, int n_times) {
    kn_pool *pool = pool_create();
    void *x = filled(pool, "x", 7), *more = NULL;
    kn_pause_options keep = {.keep = true};
    fake_cuda_fail(function, nth, n_times, 999);
    kn_status status = kn_pool_pause(NULL, pool, &keep);
    if (status == KN_OK) status = kn_pool_resume(pool, NULL);
    if (fake_cuda_has_failed()) assert_int_equal(status, KN_ERR_CUDA);
    fake_cuda_fail(NULL, 0, 0, 0);
    if (kn_pool_paused_bytes(pool)) assert_ok(kn_pool_resume(pool, NULL));
    assert_ok(kn_alloc(&more, pool, 1000, NULL));
    assert_bytes(x, 7);
    assert_ok(kn_free(pool, x));
    assert_ok(kn_free(pool, more));
    assert_ok(kn_pool_check(pool));
    kn_pool_destroy(pool);
}

static void calls_that_fail_lose_no_contents(void **state) {
    (void)state;
    static const char *const functions[] = {
        "cuMemUnmap",        "cuMemCreate",       "cuMemMap",        "cuMemSetAccess",
        "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuCtxSynchronize"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        uint64_t before = fake_cuda_calls(functions[i]);
        for (int nth = 1; nth < 3; nth++) {
            play(functions[i], nth, 1);
            play(functions[i], nth, -1);
        }
        assert_true(fake_cuda_calls(functions[i]) > before);
    }
}

int main(void) {
    fake_cuda_machine_get()->has_virtual_memory = true;
    return cmocka_run_group_tests_name(
        __FILE__,
        ((const struct CMUnitTest[]){CUDA_TEST(contents_come_back_at_their_addresses),
                                     CUDA_TEST(calls_that_fail_lose_no_contents)}),
        NULL, NULL);
}
