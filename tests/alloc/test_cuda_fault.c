/* Every driver call fails once and from then on, the first, the second, … until the work is done:
 * each time with the right status, an error that names the call, and nothing left over. */
#include "fake_cuda_fixture.h"

typedef struct work {
    const char *name;
    kn_status (*run)(const kn_device_driver *driver, void *impl); /* acquires and gives back */
} work;

static kn_status use_segment(const kn_device_driver *driver, void *impl) {
    void *segment = NULL;
    char bytes[16];
    kn_status status = driver->segment_alloc(impl, &segment, GRANULE);
    if (status < 0) return segment ? KN_ERR_INTERNAL : status;
    KN_TRY_GOTO(status, driver->fill(impl, segment, 3, GRANULE, NULL));
    KN_TRY_GOTO(status, driver->copy(impl, bytes, segment, sizeof bytes, false, true, NULL));
    KN_TRY_GOTO(status, driver->copy(impl, segment, bytes, sizeof bytes, true, false, NULL));
    KN_TRY_GOTO(status, driver->copy(impl, (char *)segment + 64, segment, 16, false, false, NULL));
cleanup:
    fake_cuda_fail(NULL, 1, 0, 0);
    driver->segment_free(impl, segment, GRANULE);
    return status;
}

static kn_status use_mapping(const kn_device_driver *driver, void *impl) {
    void *range = NULL;
    uint64_t handle = 0;
    kn_status status = driver->range_reserve(impl, &range, 4 * (size_t)GRANULE);
    if (status < 0) return range ? KN_ERR_INTERNAL : status;
    KN_TRY_GOTO(status, driver->handle_create(impl, &handle, GRANULE));
    KN_TRY_GOTO(status, driver->handle_map(impl, range, GRANULE, handle));
    KN_TRY_GOTO(status, driver->range_access(impl, range, GRANULE));
    KN_TRY_GOTO(status, driver->handle_unmap(impl, range, GRANULE));
cleanup:
    fake_cuda_fail(NULL, 1, 0, 0);
    if (status < 0 && fake_cuda_count().n_mapped) {
        if (driver->handle_unmap(impl, range, GRANULE) < 0) return KN_ERR_INTERNAL;
    }
    if (handle) driver->handle_destroy(impl, handle, GRANULE);
    driver->range_release(impl, range, 4 * (size_t)GRANULE);
    return status;
}

static kn_status use_streams(const kn_device_driver *driver, void *impl) {
    kn_stream stream = NULL;
    void *event = NULL;
    bool done = false;
    kn_status status = driver->stream_create(impl, &stream);
    if (status < 0) return stream ? KN_ERR_INTERNAL : status;
    KN_TRY_GOTO(status, driver->event_create(impl, &event));
    KN_TRY_GOTO(status, driver->event_record(impl, event, stream));
    KN_TRY_GOTO(status, driver->event_wait(impl, event, NULL));
    KN_TRY_GOTO(status, driver->event_query(impl, event, &done));
    KN_TRY_GOTO(status, driver->event_sync(impl, event));
    KN_TRY_GOTO(status, driver->stream_sync(impl, stream));
    KN_TRY_GOTO(status, driver->device_sync(impl));
cleanup:
    fake_cuda_fail(NULL, 1, 0, 0);
    if (event) driver->event_destroy(impl, event);
    driver->stream_destroy(impl, stream);
    return status;
}

static kn_status use_info(const kn_device_driver *driver, void *impl) {
    kn_device_info info = {.index = -5};
    kn_status status = driver->info_read(impl, &info);
    return status < 0 && info.index != -5 ? KN_ERR_INTERNAL : status;
}

static const work works[] = {{"segment", use_segment},
                             {"mapping", use_mapping},
                             {"streams", use_streams},
                             {"info", use_info}};

static void fail_each_call(const work *w, int n_times, cu_result result, kn_status want) {
    void *impl = NULL;
    int n_refused = 0;
    const kn_device_driver *driver = driver_get(&impl);
    for (int n = 1; n < 100; n++) {
        fake_cuda_fail(NULL, n, n_times, result);
        kn_status status = w->run(driver, impl);
        fake_cuda_fail(NULL, 1, 0, 0);
        if (fake_cuda_count().n_contexts != 0) fail_msg("%s: call %d left its context", w->name, n);
        if (!fake_cuda_has_failed()) { /* all calls have failed by now */
            assert_ok(status);
            assert_true(n_refused > 3);
            return;
        }
        if (status == KN_OK) continue; /* the call only restored the state */
        n_refused++;
        test_assert_status(status, want, w->name, __FILE__, __LINE__);
        if (strncmp(kn_last_error()->message, "cu", 2) != 0) {
            fail_msg("%s: call %d: no call is named: %s", w->name, n, kn_last_error()->message);
        }
    }
    fail_msg("%s never ends", w->name);
}

static void one_failed_call_leaves_no_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        fail_each_call(&works[i], 1, 700, KN_ERR_CUDA);
    }
}

static void device_that_keeps_failing_leaves_no_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        fail_each_call(&works[i], -1, 700, KN_ERR_CUDA);
    }
}

static void out_of_memory_anywhere_is_reported_as_such(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        fail_each_call(&works[i], 1, KN__CU_ERROR_OUT_OF_MEMORY, KN_ERR_OOM);
    }
}

static char logged[512];
static int n_logged;
static void keep_log(void *ctx, int level, const char *text) {
    (void)ctx;
    (void)level;
    n_logged++;
    snprintf(logged, sizeof logged, "%s", text);
}

static void failure_in_a_void_function_is_logged(void **state) {
    (void)state;
    void *impl = NULL, *segment = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_ok(driver->segment_alloc(impl, &segment, GRANULE));
    kn_log_attach(keep_log, NULL);
    n_logged = 0;
    fake_cuda_fail("cuMemFree", 1, 2, 1);
    driver->segment_free(impl, segment, GRANULE);
    driver->segment_free(impl, segment, GRANULE);
    kn_log_attach(NULL, NULL);
    assert_int_equal(n_logged, 2);
    assert_string_equal(logged,
                        "cuMemFree of 2097152 bytes on cuda:0: CUDA_ERROR_INVALID_VALUE (1), "
                        "invalid argument");
    driver->segment_free(impl, segment, GRANULE);
}

static const kn_device_driver *other_driver(void **impl) {
    kn_device *device = NULL;
    assert_ok(kn_device_find(&device, "cuda:1"));
    return kn_device_driver_get(device, impl);
}

/* Of cuda:1, on which no other test fails. */
static void sticky_error_is_logged_once(void **state) {
    (void)state;
    void *impl = NULL, *segment = NULL, *more = NULL;
    const kn_device_driver *driver = other_driver(&impl);
    assert_ok(driver->segment_alloc(impl, &segment, GRANULE));
    kn_log_attach(keep_log, NULL);
    n_logged = 0;
    fake_cuda_fail("cuMemAlloc", 1, 1, KN__CU_ERROR_OUT_OF_MEMORY);
    assert_fails(driver->segment_alloc(impl, &more, GRANULE), KN_ERR_OOM, "cuMemAlloc");
    assert_int_equal(n_logged, 0);
    for (int i = 0; i < 3; i++) {
        fake_cuda_fail("cuMemAlloc", 1, 1, 719);
        assert_fails(driver->segment_alloc(impl, &more, GRANULE), KN_ERR_CUDA,
                     "CUDA_ERROR_LAUNCH_FAILED (719)");
        fake_cuda_fail("cuMemFree", 1, 1, 719);
        driver->segment_free(impl, segment, GRANULE);
    }
    assert_int_equal(n_logged, 1);
    assert_string_equal(logged,
                        "cuda:1 is lost to this process, restart the program: "
                        "cuMemAlloc of 2097152 bytes on cuda:1: CUDA_ERROR_LAUNCH_FAILED (719), "
                        "unspecified launch failure");
    fake_cuda_fail("cuMemFree", 1, 1, 1);
    driver->segment_free(impl, segment, GRANULE);
    kn_log_attach(NULL, NULL);
    assert_int_equal(n_logged, 2);
    driver->segment_free(impl, segment, GRANULE);
}

int main(void) {
    return RUN_TESTS(CUDA_TEST(one_failed_call_leaves_no_memory),
                     CUDA_TEST(device_that_keeps_failing_leaves_no_memory),
                     CUDA_TEST(out_of_memory_anywhere_is_reported_as_such),
                     CUDA_TEST(failure_in_a_void_function_is_logged),
                     CUDA_TEST(sticky_error_is_logged_once));
}
