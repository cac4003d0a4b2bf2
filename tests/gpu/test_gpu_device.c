/* The device table on a real GPU. */
#include "gpu.h"

#include <pthread.h>

static kn_device *gpu;

static const kn_device_driver *table(void **impl) { return kn_device_driver_get(gpu, impl); }

static void info_describes_a_gpu(void **state) {
    (void)state;
    kn_device_info info = gpu_info(gpu);
    print_message("%s: %s, compute %d.%d, %.1f GiB, granularity %llu, %s\n", info.name, info.model,
                  info.compute_major, info.compute_minor, (double)info.total_bytes / 0x1p30,
                  (unsigned long long)info.granularity_bytes, info.driver);
    assert_int_equal(info.kind, KN_DEVICE_CUDA);
    assert_true(info.total_bytes >= 1024 * MIB);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
    assert_true(info.compute_major >= 5);
    assert_true(info.model[0] && info.driver[0]);
    assert_int_equal(info.granularity_bytes % 65536, 0);
}

static void fill_random(unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)test_random();
}

/* host → a → b → host, with an odd size at odd addresses. */
static void round_trip(void *a, void *b, size_t room_bytes, kn_stream stream) {
    const size_t n = room_bytes - 13;
    unsigned char *out = malloc(n), *back = calloc(1, n);
    assert_true(out && back);
    fill_random(out, n);
    kn_device *cpu = kn_device_host();
    char *from = (char *)a + 5, *to = (char *)b + 11;
    assert_ok(kn_device_copy(gpu, from, cpu, out, n, stream));
    assert_ok(kn_device_copy(gpu, to, gpu, from, n, stream));
    assert_ok(kn_device_copy(cpu, back, gpu, to, n, stream));
    assert_ok(kn_stream_sync(gpu, stream));
    assert_memory_equal(out, back, n);
    free(out);
    free(back);
}

static void plain_segments_hold_bytes(void **state) {
    (void)state;
    void *impl = NULL, *a = NULL, *b = NULL;
    const kn_device_driver *driver = table(&impl);
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, gpu));
    assert_ok(driver->segment_alloc(impl, &a, 3 * MIB));
    assert_ok(driver->segment_alloc(impl, &b, 3 * MIB));
    assert_int_equal((uintptr_t)a % 256, 0);
    round_trip(a, b, 3 * MIB, stream);
    round_trip(b, a, 3 * MIB, NULL);
    driver->segment_free(impl, a, 3 * MIB);
    driver->segment_free(impl, b, 3 * MIB);
    kn_stream_destroy(gpu, stream);
}

static void mapped_handles_make_one_range(void **state) {
    (void)state;
    void *impl = NULL, *range = NULL;
    const kn_device_driver *driver = table(&impl);
    if (!driver->range_reserve) skip();
    size_t granule = gpu_info(gpu).granularity_bytes;
    uint64_t handles[3] = {0};
    assert_ok(driver->range_reserve(impl, &range, 16 * granule));
    for (size_t i = 0; i < 3; i++) { /* 1 + 2 + 3 granules, without a gap */
        size_t at = i * (i + 1) / 2 * granule;
        assert_ok(driver->handle_create(impl, &handles[i], (i + 1) * granule));
        assert_ok(driver->handle_map(impl, (char *)range + at, (i + 1) * granule, handles[i]));
    }
    assert_ok(driver->range_access(impl, range, 6 * granule)); /* once for the run */
    round_trip(range, (char *)range + 3 * granule, 3 * granule, NULL);
    assert_ok(driver->fill(impl, range, 9, 6 * granule, NULL));
    gpu_assert_bytes(gpu, range, 6 * granule, 9, NULL);
    for (size_t i = 0; i < 3; i++) {
        size_t at = i * (i + 1) / 2 * granule;
        assert_ok(driver->handle_unmap(impl, (char *)range + at, (i + 1) * granule));
        driver->handle_destroy(impl, handles[i], (i + 1) * granule);
    }
    driver->range_release(impl, range, 16 * granule);
}

static void handle_keeps_its_bytes_when_it_is_mapped_elsewhere(void **state) {
    (void)state;
    void *impl = NULL, *range = NULL;
    const kn_device_driver *driver = table(&impl);
    if (!driver->range_reserve) skip();
    size_t granule = gpu_info(gpu).granularity_bytes;
    uint64_t handle = 0;
    assert_ok(driver->range_reserve(impl, &range, 8 * granule));
    assert_ok(driver->handle_create(impl, &handle, 2 * granule));
    for (int i = 0; i < 3; i++) {
        char *at = (char *)range + 2 * (size_t)i * granule;
        assert_ok(driver->handle_map(impl, at, 2 * granule, handle));
        assert_ok(driver->range_access(impl, at, 2 * granule));
        if (i == 0) assert_ok(driver->fill(impl, at, 77, 2 * granule, NULL));
        gpu_assert_bytes(gpu, at, 2 * granule, 77, NULL);
        assert_ok(driver->handle_unmap(impl, at, 2 * granule));
    }
    driver->handle_destroy(impl, handle, 2 * granule);
    driver->range_release(impl, range, 8 * granule);
}

static void returned_memory_can_be_allocated_again(void **state) {
    (void)state;
    void *impl = NULL, *segment = NULL;
    const kn_device_driver *driver = table(&impl);
    uint64_t total = gpu_info(gpu).total_bytes;
    for (int i = 0; i < 8; i++) { /* more in sum than there is */
        assert_ok(driver->segment_alloc(impl, &segment, total / 4));
        driver->segment_free(impl, segment, total / 4);
    }
}

static void too_much_is_out_of_memory_and_keeps_the_state(void **state) {
    (void)state;
    void *impl = NULL, *segment = NULL;
    const kn_device_driver *driver = table(&impl);
    kn_device_info info = gpu_info(gpu);
    size_t too_much = info.total_bytes / (2 * MIB) * (2 * MIB) * 2;
    uint64_t handle = 0;
    assert_fails(driver->segment_alloc(impl, &segment, too_much), KN_ERR_OOM,
                 "CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_null(segment);
    if (driver->handle_create) {
        assert_fails(driver->handle_create(impl, &handle, too_much), KN_ERR_OOM, "cuMemCreate");
    }
    assert_ok(driver->segment_alloc(impl, &segment, MIB));
    assert_ok(driver->fill(impl, segment, 1, MIB, NULL));
    gpu_assert_bytes(gpu, segment, MIB, 1, NULL);
    driver->segment_free(impl, segment, MIB);
}

static void misuse_is_a_cuda_error_that_names_the_call(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = table(&impl);
    if (!driver->range_reserve) skip();
    assert_fails(driver->handle_unmap(impl, (void *)(uintptr_t)(64 * MIB), 2 * MIB), KN_ERR_CUDA,
                 "cuMemUnmap of 2097152 bytes on cuda:0: CUDA_ERROR_");
}

/* The reader waits for the event, so it sees the last fill and none before it. */
static void stream_waits_for_the_event_of_another(void **state) {
    (void)state;
    void *impl = NULL, *source = NULL, *target = NULL;
    const kn_device_driver *driver = table(&impl);
    enum { ROUNDS = 20, SIZE = 64 << 20 };
    kn_stream writer = NULL, reader = NULL;
    kn_event *written = NULL, *read = NULL;
    int n_pending = 0;
    assert_ok(kn_stream_create(&writer, gpu));
    assert_ok(kn_stream_create(&reader, gpu));
    assert_ok(kn_event_create(&written, gpu));
    assert_ok(kn_event_create(&read, gpu));
    assert_ok(driver->segment_alloc(impl, &source, SIZE));
    assert_ok(driver->segment_alloc(impl, &target, SIZE));
    for (int round = 1; round <= ROUNDS; round++) {
        bool done = false;
        gpu_keep_busy(gpu, source, SIZE, 30, writer);
        assert_ok(kn_device_fill(gpu, source, round, SIZE, writer));
        assert_ok(kn_event_record(written, writer));
        assert_ok(kn_event_query(&done, written));
        n_pending += !done;
        assert_ok(kn_event_wait(written, reader));
        assert_ok(kn_device_copy(gpu, target, gpu, source, SIZE, reader));
        assert_ok(kn_event_record(read, reader));
        assert_ok(kn_event_wait(read, writer)); /* the next round overwrites the source */
        gpu_assert_bytes(gpu, (char *)target + SIZE - MIB, MIB, round, reader);
        assert_ok(kn_event_query(&done, written));
        assert_true(done);
    }
    print_message("%d of %d events were pending when first asked\n", n_pending, ROUNDS);
    assert_ok(kn_stream_sync(gpu, writer));
    driver->segment_free(impl, source, SIZE);
    driver->segment_free(impl, target, SIZE);
    kn_event_destroy(written);
    kn_event_destroy(read);
    kn_stream_destroy(gpu, writer);
    kn_stream_destroy(gpu, reader);
}

static void stream_ids_are_never_used_twice(void **state) {
    (void)state;
    void *impl = NULL;
    const kn_device_driver *driver = table(&impl);
    enum { N = 200 };
    uint64_t ids[N];
    for (int i = 0; i < N; i++) {
        kn_stream stream = NULL;
        assert_ok(driver->stream_create(impl, &stream));
        ids[i] = driver->stream_id(impl, stream);
        assert_false(driver->stream_capturing(impl, stream));
        driver->stream_destroy(impl, stream);
        for (int j = 0; j < i; j++) assert_true(ids[i] != ids[j]);
        assert_true(ids[i] != driver->stream_id(impl, NULL));
    }
}

/* In global mode, the default, a capture is spoiled by unsafe calls of any thread. */
static void graph_capture_outlives_our_calls(void **state) {
    (void)state;
    enum { GLOBAL = 0 };
    unsigned int (*begin)(kn_stream, int) = NULL, (*end)(kn_stream, void **) = NULL;
    unsigned int (*graph_destroy)(void *) = NULL;
    if (!gpu_find_function("cuStreamBeginCapture_v2", &begin) ||
        !gpu_find_function("cuStreamEndCapture", &end) ||
        !gpu_find_function("cuGraphDestroy", &graph_destroy)) {
        skip();
    }
    void *impl = NULL, *target = NULL, *segment = NULL, *graph = NULL;
    const kn_device_driver *driver = table(&impl);
    kn_stream captured = NULL, other = NULL;
    kn_event *event = NULL;
    bool done = false;
    assert_ok(driver->segment_alloc(impl, &target, MIB));
    assert_ok(kn_stream_create(&captured, gpu));
    assert_ok(kn_event_create(&event, gpu));
    assert_int_equal(begin(captured, GLOBAL), 0);
    assert_true(driver->stream_capturing(impl, captured));
    assert_ok(kn_device_fill(gpu, target, 1, MIB, captured)); /* becomes a node of the graph */
    assert_ok(driver->segment_alloc(impl, &segment, 4 * MIB));
    assert_ok(kn_stream_create(&other, gpu));
    assert_ok(kn_event_record(event, other));
    assert_ok(kn_event_query(&done, event));
    assert_ok(kn_stream_sync(gpu, other));
    (void)gpu_info(gpu);
    driver->segment_free(impl, segment, 4 * MIB);
    assert_int_equal(end(captured, &graph), 0);
    assert_non_null(graph);
    assert_false(driver->stream_capturing(impl, captured));
    assert_int_equal(graph_destroy(graph), 0);
    kn_event_destroy(event);
    kn_stream_destroy(gpu, other);
    kn_stream_destroy(gpu, captured);
    driver->segment_free(impl, target, MIB);
}

/* What the thread's own library would see: its context, which ours must not change. */
static void *current_context(void) {
    unsigned int (*get_current)(void **) = NULL;
    void *context = NULL;
    if (!gpu_find_function("cuCtxGetCurrent", &get_current)) return NULL;
    return get_current(&context) == 0 ? context : NULL;
}

static void *use_device_in_thread(void *unused) {
    (void)unused;
    void *impl = NULL, *segment = NULL;
    const kn_device_driver *driver = table(&impl);
    kn_stream stream = NULL;
    if (current_context()) return "a context is current before";
    for (int i = 0; i < 10; i++) {
        if (driver->stream_create(impl, &stream) < 0) return "stream_create";
        if (driver->segment_alloc(impl, &segment, MIB) < 0) return "segment_alloc";
        if (driver->fill(impl, segment, i, MIB, stream) < 0) return "fill";
        if (driver->stream_sync(impl, stream) < 0) return "stream_sync";
        driver->segment_free(impl, segment, MIB);
        driver->stream_destroy(impl, stream);
        if (current_context()) return "a context is current after";
    }
    return NULL;
}

static void threads_without_a_context_may_call_it(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_device_in_thread, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed) fail_msg("in a thread: %s", (const char *)failed);
    }
}

static void missing_index_is_an_error(void **state) {
    (void)state;
    kn_device *device = NULL;
    assert_true(kn_device_cuda_count() >= 1);
    assert_fails(kn_device_find(&device, "cuda:99"), KN_ERR_DEVICE, "no cuda:99");
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(info_describes_a_gpu), TEST(plain_segments_hold_bytes),
                     TEST(mapped_handles_make_one_range),
                     TEST(handle_keeps_its_bytes_when_it_is_mapped_elsewhere),
                     TEST(returned_memory_can_be_allocated_again),
                     TEST(too_much_is_out_of_memory_and_keeps_the_state),
                     TEST(misuse_is_a_cuda_error_that_names_the_call),
                     TEST(stream_waits_for_the_event_of_another),
                     TEST(stream_ids_are_never_used_twice), TEST(graph_capture_outlives_our_calls),
                     TEST(threads_without_a_context_may_call_it), TEST(missing_index_is_an_error));
}
