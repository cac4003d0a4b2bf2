/* libknet_cupy.so, called as CuPy's CFunctionAllocator calls it: by the addresses of two functions,
 * with a parameter and the device, and no stream. */
#include <dlfcn.h>

#include "fake_cuda_fixture.h"
#include "stderr_text.h"

#include <knet/pool.h>

#define MiB ((size_t)1 << 20)

typedef void *(*malloc_fn)(void *param, size_t size, int device);
typedef void (*free_fn)(void *param, void *ptr, int device);

static malloc_fn cupy_malloc;
static free_fn cupy_free;
static kn_pool *(*cupy_pool)(int device);

static kn_pool_stats stats_now(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, cupy_pool(0));
    return stats;
}

static void blocks_belong_to_the_stream_of_the_parameter(void **state) {
    (void)state;
    kn_stream s = NULL;
    kn_block_info info;
    assert_ok(kn_stream_create(&s, kn_pool_device(cupy_pool(0))));
    for (int i = 0; i < 2; i++) {
        size_t size = i ? 6 * MiB : 2000;
        void *own = cupy_malloc(s, size, 0), *null = cupy_malloc(NULL, size, 0);
        assert_true(kn_block_find(&info, sizeof info, cupy_pool(0), own));
        assert_ptr_equal(info.stream, s);
        assert_true(kn_block_find(&info, sizeof info, cupy_pool(0), null));
        assert_null(info.stream);
        cupy_free(s, own, 0);
        cupy_free(NULL, null, 0);
    }
    assert_int_equal(stats_now().live_bytes, 0);
    kn_stream_destroy(kn_pool_device(cupy_pool(0)), s);
}

static void out_of_memory_is_null(void **state) {
    (void)state;
    void *held = cupy_malloc(NULL, 600 * MiB, 0);
    assert_non_null(held);
    assert_null(cupy_malloc(NULL, 600 * MiB, 0));
    assert_int_equal(kn_last_error()->status, KN_ERR_OOM);
    cupy_free(NULL, held, 0);
    assert_null(cupy_malloc(NULL, 100, 9));
    cupy_free(NULL, NULL, 9);
}

/* The same arrays come and go. First of all tests: a pool of several streams records events. */
static void steady_step_never_reaches_the_driver(void **state) {
    (void)state;
    uint64_t n_calls = 0;
    for (int step = 0; step < 6; step++) {
        void *arrays[64];
        if (step == 3) n_calls = fake_cuda_count().n_calls;
        for (int i = 0; i < 64; i++) arrays[i] = cupy_malloc(NULL, 700 * (size_t)(i * i + 1), 0);
        for (int i = 0; i < 64; i++) cupy_free(NULL, arrays[(i * 37) % 64], 0);
    }
    assert_int_equal(fake_cuda_count().n_calls, n_calls);
    assert_int_equal(stats_now().live_bytes, 0);
    assert_int_equal(stats_now().n_misuses, 0);
    assert_ok(kn_pool_check(cupy_pool(0)));
}

static void any_call_of_the_driver_may_fail(void **state) {
    (void)state;
    for (int n = 1; n < 60; n++) {
        fake_cuda_fail(NULL, n, 1, n % 2 ? 2 : 700);
        cupy_free(NULL, cupy_malloc(NULL, 6 * MiB, 0), 0);
        fake_cuda_fail(NULL, 1, 0, 0);
        assert_ok(kn_pool_trim(cupy_pool(0), 0));
        void *ptr = cupy_malloc(NULL, 6 * MiB, 0);
        assert_non_null(ptr);
        cupy_free(NULL, ptr, 0);
        assert_ok(kn_pool_trim(cupy_pool(0), 0));
    }
}

static void drop_log(void *ctx, int level, const char *text) {
    (void)ctx;
    (void)level;
    (void)text;
}

/* Until the program attaches a callback of its own. */
static void misuses_are_reported_on_stderr(void **state) {
    (void)state;
    char text[1024], *inside = cupy_malloc(NULL, 6 * MiB, 0);
    for (int i = 0; i < 2; i++) {
        stderr_text on_stderr = stderr_begin();
        cupy_free(NULL, inside + 512, 0);
        kn_log_write(2, "information");
        stderr_end(text, sizeof text, on_stderr);
        if (i == 0) assert_ptr_equal(strstr(text, "knet: error: kn_free: "), text);
        if (i == 0) assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        if (i == 1) assert_string_equal(text, "");
        kn_log_attach(i == 0 ? drop_log : NULL, NULL);
    }
    assert_int_equal(stats_now().n_misuses, 2);
    cupy_free(NULL, inside, 0);
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!library) return 2;
    *(void **)&cupy_malloc = dlsym(library, "knet_cupy_malloc");
    *(void **)&cupy_free = dlsym(library, "knet_cupy_free");
    *(void **)&cupy_pool = dlsym(library, "knet_cupy_pool");
    if (!cupy_malloc || !cupy_free || !cupy_pool) return 3;
    return RUN_TESTS(TEST(steady_step_never_reaches_the_driver),
                     TEST(blocks_belong_to_the_stream_of_the_parameter),
                     TEST(out_of_memory_is_null), TEST(any_call_of_the_driver_may_fail),
                     TEST(misuses_are_reported_on_stderr));
}
