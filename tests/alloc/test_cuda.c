#include "fake_cuda_fixture.h"

#include <pthread.h>

static void device_is_one_under_both_its_names(void **state) {
    (void)state;
    kn_device *a = NULL, *b = NULL, *other = NULL;
    assert_ok(kn_device_find(&a, "cuda"));
    assert_ok(kn_device_find(&b, "cuda:0"));
    assert_ok(kn_device_find(&other, "cuda:1"));
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, other);
    assert_string_equal(kn_device_name(other), "cuda:1");
    assert_int_equal(kn_device_kind_get(a), KN_DEVICE_CUDA);
    assert_int_equal(kn_device_cuda_count(), 2);
}

static void missing_index_is_an_error_that_says_how_many_there_are(void **state) {
    (void)state;
    kn_device *device = NULL;
    assert_fails(kn_device_find(&device, "cuda:2"), KN_ERR_DEVICE, "no cuda:2");
    assert_fails(kn_device_find(&device, "cuda:2"), KN_ERR_DEVICE,
                 "2 CUDA devices, cuda:0 to cuda:1");
    assert_null(device);
}

static void info_matches_the_driver(void **state) {
    (void)state;
    kn_device_info info;
    kn_device *device = NULL;
    assert_ok(kn_device_find(&device, "cuda:1"));
    assert_ok(kn_device_info_read(&info, sizeof info, device));
    assert_string_equal(info.model, "Fake GPU 1");
    assert_string_equal(info.name, "cuda:1");
    assert_int_equal(info.index, 1);
    assert_int_equal(info.compute_major, 9);
    assert_int_equal(info.compute_minor, 0);
    assert_int_equal(info.granularity_bytes, GRANULE);
    assert_int_equal(info.total_bytes, fake_cuda_machine_get()->capacity_bytes);
    assert_memory_equal(info.driver, "CUDA 13.0", 9);
}

static void bytes_go_to_the_device_within_it_and_back(void **state) {
    (void)state;
    kn_device *device = cuda_device_get(), *cpu = kn_device_host();
    void *impl = NULL, *segment = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    char out[64] = "", in[64] = "forty-two";
    assert_ok(driver->segment_alloc(impl, &segment, 4096));
    assert_ok(kn_device_copy(device, segment, cpu, in, sizeof in, NULL));
    assert_ok(kn_device_copy(device, (char *)segment + 1024, device, segment, sizeof in, NULL));
    assert_ok(kn_device_fill(device, segment, 7, sizeof in, NULL));
    assert_ok(kn_device_copy(cpu, out, device, (char *)segment + 1024, sizeof out, NULL));
    assert_string_equal(out, "forty-two");
    assert_ok(kn_device_copy(cpu, out, device, segment, sizeof out, NULL));
    assert_int_equal(out[63], 7);
    driver->segment_free(impl, segment, 4096);
}

static void handle_keeps_its_bytes_when_it_is_mapped_elsewhere(void **state) {
    (void)state;
    void *impl = NULL, *range = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    uint64_t handle = 0;
    assert_ok(driver->range_reserve(impl, &range, 8 * (size_t)GRANULE));
    char *first = range, *second = first + 4 * (size_t)GRANULE;
    assert_ok(driver->handle_create(impl, &handle, 2 * (size_t)GRANULE));
    assert_ok(driver->handle_map(impl, first, 2 * (size_t)GRANULE, handle));
    assert_ok(driver->range_access(impl, first, 2 * (size_t)GRANULE));
    assert_ok(driver->fill(impl, first, 5, 2 * (size_t)GRANULE, NULL));
    assert_ok(driver->handle_unmap(impl, first, 2 * (size_t)GRANULE));
    assert_ok(driver->handle_map(impl, second, 2 * (size_t)GRANULE, handle));
    assert_ok(driver->range_access(impl, second, 2 * (size_t)GRANULE));
    char last = 0;
    assert_ok(driver->copy(impl, &last, second + 2 * (size_t)GRANULE - 1, 1, false, true, NULL));
    assert_int_equal(last, 5);
    assert_ok(driver->handle_unmap(impl, second, 2 * (size_t)GRANULE));
    driver->handle_destroy(impl, handle, 2 * (size_t)GRANULE);
    driver->range_release(impl, range, 8 * (size_t)GRANULE);
}

enum { RUN = 3, RUN_BYTES = RUN * GRANULE };

/* A range in which a run of handles is mapped that nothing may use yet. */
static char *map_run(uint64_t handles[RUN]) {
    void *impl = NULL, *range = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_ok(driver->range_reserve(impl, &range, RUN_BYTES));
    for (size_t i = 0; i < RUN; i++) {
        assert_ok(driver->handle_create(impl, &handles[i], GRANULE));
        assert_ok(driver->handle_map(impl, (char *)range + i * GRANULE, GRANULE, handles[i]));
    }
    return range;
}

static void unmap_run(char *range, const uint64_t handles[RUN]) {
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    for (size_t i = 0; i < RUN; i++) {
        assert_ok(driver->handle_unmap(impl, range + i * GRANULE, GRANULE));
        driver->handle_destroy(impl, handles[i], GRANULE);
    }
    driver->range_release(impl, range, RUN_BYTES);
}

static void one_call_makes_a_run_of_handles_usable(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    uint64_t handles[RUN];
    char *range = map_run(handles), last = 0;
    assert_int_equal(fake_cuda_calls("cuMemSetAccess"), 0);
    assert_ok(driver->range_access(impl, range, RUN_BYTES));
    assert_int_equal(fake_cuda_calls("cuMemSetAccess"), 1);
    assert_ok(driver->fill(impl, range, 6, RUN_BYTES, NULL));
    assert_ok(driver->copy(impl, &last, range + RUN_BYTES - 1, 1, false, true, NULL));
    assert_int_equal(last, 6);
    unmap_run(range, handles);
}

static void run_stays_mapped_when_access_fails(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    uint64_t handles[RUN];
    char *range = map_run(handles);
    fake_cuda_fail("cuMemSetAccess", 1, 1, 1);
    assert_fails(driver->range_access(impl, range, RUN_BYTES), KN_ERR_CUDA,
                 "cuMemSetAccess of 6291456 bytes");
    assert_int_equal(fake_cuda_count().n_mapped, RUN);
    unmap_run(range, handles);
}

static void failure_names_function_size_device_code_and_text(void **state) {
    (void)state;
    void *impl = NULL, *out = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    fake_cuda_fail("cuMemAlloc", 1, 1, 700);
    assert_fails(
        driver->segment_alloc(impl, &out, 12345), KN_ERR_CUDA,
        "cuMemAlloc of 12345 bytes on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal "
        "memory access was encountered");
    fake_cuda_fail("cuStreamCreate", 1, 1, 12321); /* a code that this driver can't name */
    kn_stream stream = NULL;
    assert_fails(driver->stream_create(impl, &stream), KN_ERR_CUDA,
                 "cuStreamCreate on cuda:0: CUDA error (12321), unknown");
    assert_null(out);
    assert_null(stream);
}

static void full_device_is_out_of_memory_and_not_a_cuda_error(void **state) {
    (void)state;
    void *impl = NULL, *out = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    uint64_t handle = 0;
    size_t too_much = fake_cuda_machine_get()->capacity_bytes + GRANULE;
    assert_fails(driver->segment_alloc(impl, &out, too_much), KN_ERR_OOM, "cuMemAlloc");
    assert_fails(driver->handle_create(impl, &handle, too_much), KN_ERR_OOM, "cuMemCreate");
    assert_null(out);
    assert_int_equal(handle, 0);
}

/* Every kind of call that needs a context. */
static void call_everything(void) {
    void *impl = NULL, *segment = NULL, *event = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    kn_device_info info;
    kn_stream stream = NULL;
    bool done = false;
    assert_ok(driver->info_read(impl, &info));
    assert_ok(driver->stream_create(impl, &stream));
    assert_ok(driver->segment_alloc(impl, &segment, GRANULE));
    assert_ok(driver->fill(impl, segment, 1, GRANULE, stream));
    assert_ok(driver->event_create(impl, &event));
    assert_ok(driver->event_record(impl, event, stream));
    assert_ok(driver->event_wait(impl, event, NULL));
    assert_ok(driver->event_query(impl, event, &done));
    assert_true(done);
    assert_ok(driver->event_sync(impl, event));
    assert_true(driver->stream_id(impl, stream) > 0);
    assert_false(driver->stream_capturing(impl, stream));
    assert_ok(driver->stream_sync(impl, stream));
    assert_true(driver->alive(impl));
    driver->event_destroy(impl, event);
    driver->segment_free(impl, segment, GRANULE);
    driver->stream_destroy(impl, stream);
}

static void context_and_capture_mode_of_the_caller_are_restored(void **state) {
    (void)state;
    call_everything();
    assert_int_equal(fake_cuda_count().n_contexts, 0);
    assert_int_equal(fake_cuda_count().capture_mode, 0); /* global, as in every new thread */
    fake_cuda_context_push(fake_cuda_foreign_context());
    call_everything();
    assert_int_equal(fake_cuda_count().n_contexts, 1);
    assert_ptr_equal(fake_cuda_context_pop(), fake_cuda_foreign_context());
}

static void context_that_is_current_already_is_not_pushed_again(void **state) {
    (void)state;
    cu_context own = fake_cuda_primary_context(0);
    fake_cuda_context_push(own);
    call_everything();
    assert_int_equal(fake_cuda_calls("cuCtxPushCurrent"), 0);
    assert_ptr_equal(fake_cuda_context_pop(), own);
}

static void graph_capture_of_another_thread_is_not_spoiled(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    kn_stream captured = NULL;
    assert_ok(driver->stream_create(impl, &captured));
    fake_cuda_capture(captured, true);
    void *segment = NULL, *event = NULL;
    bool done = true;
    assert_ok(driver->segment_alloc(impl, &segment, GRANULE));
    assert_ok(driver->event_create(impl, &event));
    assert_ok(driver->event_query(impl, event, &done));
    assert_true(driver->stream_capturing(impl, captured));
    /* Work on the default stream would join the capture. */
    assert_true(driver->stream_capturing(impl, NULL));
    driver->segment_free(impl, segment, GRANULE);
    driver->event_destroy(impl, event);
    fake_cuda_capture(captured, false);
    assert_false(driver->stream_capturing(impl, captured));
    assert_false(driver->stream_capturing(impl, NULL));
    driver->stream_destroy(impl, captured);
}

static void stream_ids_differ_even_where_handles_repeat(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    uint64_t last = driver->stream_id(impl, NULL);
    for (int i = 0; i < 100; i++) {
        kn_stream stream = NULL;
        assert_ok(driver->stream_create(impl, &stream));
        uint64_t id = driver->stream_id(impl, stream);
        assert_true(id > last);
        last = id;
        driver->stream_destroy(impl, stream);
    }
}

static void stream_id_is_asked_for_once_unless_a_context_is_needed(void **state) {
    (void)state;
    void *impl = NULL;
    kn_stream stream = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_ok(driver->stream_create(impl, &stream));
    fake_cuda_reset();
    uint64_t id = driver->stream_id(impl, stream);
    assert_int_equal(fake_cuda_count().n_calls, 2); /* is it captured; the id */
    fake_cuda_fail("cuStreamGetId", 1, 1, 201);
    assert_int_equal(driver->stream_id(impl, stream), id);
    assert_int_equal(fake_cuda_calls("cuCtxPopCurrent"), 1);
    driver->stream_destroy(impl, stream);
}

static void assert_rejected(const kn_device_driver *driver, void *impl, kn_stream stream) {
    assert_fails(driver->stream_check(impl, stream), KN_ERR_INVALID,
                 "belongs to another context than the primary one of cuda:0");
    driver->stream_destroy(impl, stream);
}

static void stream_of_another_context_is_rejected(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_rejected(driver, impl, fake_cuda_stream(fake_cuda_foreign_context(), false));
    assert_rejected(driver, impl, fake_cuda_stream(fake_cuda_primary_context(1), false));
}

static void stream_of_the_primary_context_is_accepted(void **state) {
    (void)state;
    void *impl = NULL;
    kn_stream stream = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_ok(driver->stream_create(impl, &stream));
    assert_ok(driver->stream_check(impl, stream));
    driver->stream_destroy(impl, stream);
    fake_cuda_reset();
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        assert_ok(driver->stream_check(impl, (kn_stream)handle));
    }
    assert_int_equal(fake_cuda_count().n_calls, 0); /* they are those of the context in use */
}

static void stream_of_a_green_context_is_accepted(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    kn_stream green = fake_cuda_stream(fake_cuda_primary_context(0), true);
    assert_ok(driver->stream_check(impl, green));
    driver->stream_destroy(impl, green);
}

static void stream_of_unknown_context_is_accepted(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    kn_stream stream = fake_cuda_stream(fake_cuda_foreign_context(), false);
    fake_cuda_fail("cuStreamGetCtx", 1, 1, 801);
    assert_ok(driver->stream_check(impl, stream));
    fake_cuda_fail("cuStreamGetGreenCtx", 1, 1, 801); /* says nothing of green contexts */
    assert_rejected(driver, impl, stream);
}

static void device_sync_calls_the_driver_once_and_reports_its_error(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    assert_ok(driver->device_sync(impl));
    assert_int_equal(fake_cuda_calls("cuCtxSynchronize"), 1);
    fake_cuda_fail("cuCtxSynchronize", 1, 1, 700);
    assert_fails(driver->device_sync(impl), KN_ERR_CUDA, "cuCtxSynchronize on cuda:0");
}

/* What a thread sees of its own default stream. */
typedef struct own_stream {
    uint64_t id;
    bool done, failed;
} own_stream;

static void *use_own_stream(void *ctx) {
    own_stream *own = ctx;
    void *impl = NULL, *event = NULL;
    kn_stream stream = (kn_stream)2;
    const kn_device_driver *driver = driver_get(&impl);
    own->id = driver->stream_id(impl, stream);
    own->failed = driver->event_create(impl, &event) < 0 ||
                  driver->event_record(impl, event, stream) < 0 ||
                  driver->event_wait(impl, event, stream) < 0 ||
                  driver->event_query(impl, event, &own->done) < 0 ||
                  driver->stream_capturing(impl, stream) || driver->stream_sync(impl, stream) < 0;
    if (event) driver->event_destroy(impl, event);
    return NULL;
}

static void per_thread_handle_is_another_stream_in_each_thread(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    own_stream mine = {0}, other = {0};
    pthread_t thread;
    use_own_stream(&mine);
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(mine.failed || other.failed);
    assert_true(mine.done && other.done);
    assert_true(mine.id != other.id && mine.id != driver->stream_id(impl, NULL));
    assert_int_equal(driver->stream_id(impl, (kn_stream)2), mine.id);
    assert_int_equal(driver->stream_id(impl, (kn_stream)1), driver->stream_id(impl, NULL));
}

static void event_is_reached_when_its_stream_gets_there(void **state) {
    (void)state;
    kn_device *device = cuda_device_get();
    kn_stream slow = NULL, fast = NULL;
    kn_event *event = NULL, *after = NULL;
    bool done = true;
    assert_ok(kn_stream_create(&slow, device));
    assert_ok(kn_stream_create(&fast, device));
    assert_ok(kn_event_create(&event, device));
    assert_ok(kn_event_create(&after, device));
    fake_cuda_hold(slow);
    assert_ok(kn_event_record(event, slow));
    assert_ok(kn_event_wait(event, fast));
    assert_ok(kn_event_record(after, fast));
    assert_ok(kn_event_query(&done, event));
    assert_false(done);
    assert_ok(kn_event_query(&done, after));
    assert_false(done);
    fake_cuda_release(slow);
    assert_ok(kn_event_query(&done, event));
    assert_true(done);
    assert_ok(kn_event_query(&done, after));
    assert_true(done);
    assert_ok(kn_event_sync(after));
    assert_int_equal(fake_cuda_calls("cuEventSynchronize"), 1);
    assert_ok(kn_stream_sync(device, fast));
    kn_event_destroy(event);
    kn_event_destroy(after);
    kn_stream_destroy(device, slow);
    kn_stream_destroy(device, fast);
}

static void wait_keeps_its_point_when_the_event_moves(void **state) {
    (void)state;
    kn_device *device = cuda_device_get();
    kn_stream slow = NULL, fast = NULL;
    kn_event *event = NULL, *after = NULL;
    bool done = true;
    assert_ok(kn_stream_create(&slow, device));
    assert_ok(kn_stream_create(&fast, device));
    assert_ok(kn_event_create(&event, device));
    assert_ok(kn_event_create(&after, device));
    fake_cuda_hold(slow);
    assert_ok(kn_event_record(event, slow));
    assert_ok(kn_event_wait(event, fast));
    assert_ok(kn_event_record(event, NULL));
    assert_ok(kn_event_record(after, fast));
    assert_ok(kn_event_query(&done, event));
    assert_true(done);
    assert_ok(kn_event_query(&done, after));
    assert_false(done);
    kn_event_destroy(event);
    fake_cuda_release(slow);
    assert_ok(kn_event_query(&done, after));
    assert_true(done);
    kn_event_destroy(after);
    kn_stream_destroy(device, slow);
    kn_stream_destroy(device, fast);
}

static void failed_query_leaves_the_result_unchanged(void **state) {
    (void)state;
    void *impl = NULL, *event = NULL;
    const kn_device_driver *driver = driver_get(&impl);
    bool done = false;
    assert_ok(driver->event_create(impl, &event));
    assert_ok(driver->event_record(impl, event, NULL));
    fake_cuda_fail("cuEventQuery", 1, 1, 700);
    assert_fails(driver->event_query(impl, event, &done), KN_ERR_CUDA, "cuEventQuery");
    assert_false(done);
    assert_ok(driver->event_query(impl, event, &done));
    assert_true(done);
    driver->event_destroy(impl, event);
}

static void *call_everything_often(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        kn_device *device = NULL;
        void *impl = NULL, *segment = NULL;
        if (kn_device_find(&device, i % 2 ? "cuda:1" : "cuda:0") < 0) return "find";
        const kn_device_driver *driver = kn_device_driver_get(device, &impl);
        kn_stream stream = NULL;
        if (driver->stream_create(impl, &stream) < 0) return "stream_create";
        if (driver->segment_alloc(impl, &segment, GRANULE) < 0) return "segment_alloc";
        if (driver->fill(impl, segment, i, 64, stream) < 0) return "fill";
        driver->segment_free(impl, segment, GRANULE);
        driver->stream_destroy(impl, stream);
    }
    return NULL;
}

static void threads_may_call_it_together(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_everything_often, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed) fail_msg("%s failed in a thread", (const char *)failed);
    }
}

int main(void) {
    return RUN_TESTS(CUDA_TEST(device_is_one_under_both_its_names),
                     CUDA_TEST(missing_index_is_an_error_that_says_how_many_there_are),
                     CUDA_TEST(info_matches_the_driver),
                     CUDA_TEST(bytes_go_to_the_device_within_it_and_back),
                     CUDA_TEST(handle_keeps_its_bytes_when_it_is_mapped_elsewhere),
                     CUDA_TEST(one_call_makes_a_run_of_handles_usable),
                     CUDA_TEST(run_stays_mapped_when_access_fails),
                     CUDA_TEST(failure_names_function_size_device_code_and_text),
                     CUDA_TEST(full_device_is_out_of_memory_and_not_a_cuda_error),
                     CUDA_TEST(context_and_capture_mode_of_the_caller_are_restored),
                     CUDA_TEST(context_that_is_current_already_is_not_pushed_again),
                     CUDA_TEST(graph_capture_of_another_thread_is_not_spoiled),
                     CUDA_TEST(stream_ids_differ_even_where_handles_repeat),
                     CUDA_TEST(stream_id_is_asked_for_once_unless_a_context_is_needed),
                     CUDA_TEST(stream_of_another_context_is_rejected),
                     CUDA_TEST(stream_of_the_primary_context_is_accepted),
                     CUDA_TEST(stream_of_a_green_context_is_accepted),
                     CUDA_TEST(stream_of_unknown_context_is_accepted),
                     CUDA_TEST(device_sync_calls_the_driver_once_and_reports_its_error),
                     CUDA_TEST(per_thread_handle_is_another_stream_in_each_thread),
                     CUDA_TEST(event_is_reached_when_its_stream_gets_there),
                     TEST(wait_keeps_its_point_when_the_event_moves),
                     CUDA_TEST(failed_query_leaves_the_result_unchanged),
                     CUDA_TEST(threads_may_call_it_together));
}
