/* The pool's policy with real streams: who waits for whom, and whose bytes stay. Every test of a
 * pool runs on one that grows by mapped handles and on one that grows by plain segments. A gate
 * holds one stream up while the test watches another. */
#include "gate.h"
#include "gpu.h"

#include <knet/pool.h>
#include <knet/pool_graph.h>

static kn_device *gpus[2]; /* cuda:0 and the same without virtual memory */

#define ON(fn, gpu) cmocka_unit_test_prestate_setup_teardown(fn, NULL, clean_up, gpu)
#define ON_BOTH(fn) ON(fn, &gpus[0]), ON(fn, &gpus[1])

static kn_device *gpu_of(void **state) { return *(kn_device **)*state; }

static const size_t BUFFER = 64 * MIB;
static const kn_stream PER_THREAD = (kn_stream)(uintptr_t)2; /* cudaStreamPerThread */

typedef unsigned int result;
typedef struct CUctx_st *context;

/* --- two streams and a pool ----------------------------------------------------------------- */

static kn_pool *current; /* the test's pool, until scene_end */

typedef struct scene {
    kn_device *gpu;
    kn_pool *pool;
    kn_stream mine, other;
    void *rest;
    size_t rest_bytes;
} scene;

static void *must_alloc(kn_pool *pool, size_t size_bytes, kn_stream stream) {
    void *ptr = NULL;
    assert_ok(kn_alloc(&ptr, pool, size_bytes, stream));
    return ptr;
}

static kn_pool_stats stats_of(const kn_pool *pool) {
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats;
}

/* `live_percent` of the device's free memory is live in one block that no test touches. */
static scene scene_make(kn_device *gpu, size_t limit_bytes, size_t live_percent) {
    scene s = {.gpu = gpu};
    assert_ok(kn_pool_create(&s.pool, gpu, &(kn_pool_options){.limit_bytes = limit_bytes}));
    current = s.pool;
    assert_ok(kn_stream_create(&s.mine, gpu));
    assert_ok(kn_stream_create(&s.other, gpu));
    s.rest_bytes = gpu_info(gpu).free_bytes / 100 * live_percent;
    if (s.rest_bytes) s.rest = must_alloc(s.pool, s.rest_bytes, s.mine);
    return s;
}

static void scene_end(scene *s) {
    assert_ok(kn_free(s->pool, s->rest));
    assert_ok(kn_stream_sync(s->gpu, s->mine));
    assert_ok(kn_stream_sync(s->gpu, s->other));
    kn_stream_destroy(s->gpu, s->mine);
    kn_stream_destroy(s->gpu, s->other);
    assert_ok(kn_pool_check(s->pool));
    assert_int_equal(stats_of(s->pool).live_bytes, 0);
    current = NULL;
    kn_pool_destroy(s->pool);
}

/* After a test that failed: its memory must not be missing in the next one. */
static int clean_up(void **state) {
    void *impl = NULL;
    const kn_device_driver *driver = kn_device_driver_get(gpu_of(state), &impl);
    if (!current) return 0;
    gate_open();
    kn_status status = driver->device_sync(impl);
    kn_pool_destroy(current);
    current = NULL;
    return status == KN_OK ? 0 : -1;
}

/* The driver loads a kernel at its first launch, and may wait for the whole device to do so. */
static void load_kernels(kn_device *gpu) {
    scene s = scene_make(gpu, 0, 0);
    unsigned char *bytes = calloc(1, BUFFER);
    assert_non_null(bytes);
    void *x = must_alloc(s.pool, BUFFER, s.mine), *y = must_alloc(s.pool, BUFFER, s.mine);
    for (size_t n = MIB; n <= BUFFER; n *= 2) {
        assert_ok(kn_device_copy(gpu, x, kn_device_host(), bytes, n, s.mine));
        assert_ok(kn_device_copy(gpu, y, gpu, x, n, s.mine));
        assert_ok(kn_device_fill(gpu, y, 1, n, s.mine));
        gpu_assert_bytes(gpu, y, n, 1, s.mine);
    }
    gate_close(s.mine);
    assert_true(gate_open());
    assert_ok(kn_free(s.pool, x));
    assert_ok(kn_free(s.pool, y));
    scene_end(&s);
    free(bytes);
}

/* --- a second stream reads late ------------------------------------------------------------- */

static bool is_mapped(kn_device *gpu) {
    return kn_device_driver_get(gpu, NULL)->range_reserve != NULL;
}

/* The pool waited for nothing on the host, and grew by the few buffers that are in use at once. A
 * plain segment may be larger than that. */
static void assert_calm(const scene *s) {
    kn_pool_stats stats = stats_of(s->pool);
    assert_int_equal(stats.n_syncs, 0);
    if (!is_mapped(s->gpu)) return;
    assert_true(stats.reserved_bytes_max <= (s->rest_bytes + 6 * BUFFER) / 32 * 33);
}

/* One stream computes a buffer in each step; the other sends it while the next one is computed. */
static void overlap(kn_device *gpu, size_t live_percent) {
    enum { STEPS = 40 };
    scene s = scene_make(gpu, 0, live_percent);
    kn_stream compute = s.mine, communicate = s.other;
    void *sent = must_alloc(s.pool, BUFFER, communicate);
    bool calm = true;
    for (int step = 1; calm && step <= STEPS; step++) {
        void *x = must_alloc(s.pool, BUFFER, compute);
        assert_ok(kn_device_fill(gpu, x, step, BUFFER, compute));
        assert_ok(kn_stream_sync(gpu, compute)); /* the last buffer is still to be sent */
        calm = gate_open();
        if (step > 1) gpu_assert_bytes(gpu, sent, BUFFER, step - 1, communicate);
        gpu_order_after(gpu, communicate, compute);
        gate_close(communicate);
        assert_ok(kn_device_copy(gpu, sent, gpu, x, BUFFER, communicate));
        assert_ok(kn_block_use(s.pool, x, communicate));
        assert_ok(kn_free(s.pool, x));
    }
    gate_open();
    assert_ok(kn_free(s.pool, sent));
    if (calm) assert_calm(&s);
    scene_end(&s);
    assert_true(calm);
}

/* One stream copies the next batch to the device while the other trains on the last one. */
static void prefetch(kn_device *gpu, size_t live_percent) {
    enum { STEPS = 30 };
    scene s = scene_make(gpu, 0, live_percent);
    kn_stream load = s.mine, train = s.other;
    kn_pool *pinned = kn_device_pinned_pool(gpu);
    assert_non_null(pinned);
    void *host = must_alloc(pinned, BUFFER, load), *output = must_alloc(s.pool, BUFFER, train);
    bool calm = true;
    for (int step = 1; calm && step <= STEPS; step++) {
        void *batch = must_alloc(s.pool, BUFFER, load);
        memset(host, step, BUFFER);
        assert_ok(kn_device_copy(gpu, batch, kn_device_host(), host, BUFFER, load));
        assert_ok(kn_stream_sync(gpu, load)); /* the last step is still running */
        calm = gate_open();
        if (step > 1) gpu_assert_bytes(gpu, output, BUFFER, step - 1, train);
        gpu_order_after(gpu, train, load);
        gate_close(train);
        void *activation = must_alloc(s.pool, BUFFER, train);
        assert_ok(kn_device_copy(gpu, activation, gpu, batch, BUFFER, train));
        assert_ok(kn_device_copy(gpu, output, gpu, activation, BUFFER, train));
        assert_ok(kn_free(s.pool, activation));
        assert_ok(kn_block_use(s.pool, batch, train));
        assert_ok(kn_free(s.pool, batch));
    }
    gate_open();
    assert_ok(kn_free(pinned, host));
    assert_ok(kn_free(s.pool, output));
    if (calm) assert_calm(&s);
    scene_end(&s);
    assert_true(calm);
}

static void compute_never_waits_for_communication(void **state) { overlap(gpu_of(state), 0); }
static void compute_never_waits_on_a_full_device(void **state) { overlap(gpu_of(state), 85); }
static void prefetch_never_waits_for_the_step(void **state) { prefetch(gpu_of(state), 0); }
static void prefetch_never_waits_on_a_full_device(void **state) { prefetch(gpu_of(state), 85); }

/* Where the limit leaves no room, the stream waits on the device, and the host doesn't. It also
 * shows that the gate holds a stream up. */
static void stream_waits_on_the_device_before_the_host_does(void **state) {
    scene s = scene_make(gpu_of(state), 2 * BUFFER + 8 * MIB, 0);
    void *target = must_alloc(s.pool, BUFFER, s.other), *x = must_alloc(s.pool, BUFFER, s.mine);
    kn_event *event = NULL;
    bool done = false;
    assert_ok(kn_event_create(&event, s.gpu));
    assert_ok(kn_device_fill(s.gpu, x, 1, BUFFER, s.mine));
    gpu_order_after(s.gpu, s.other, s.mine);
    gate_close(s.other);
    assert_ok(kn_device_copy(s.gpu, target, s.gpu, x, BUFFER, s.other));
    assert_ok(kn_block_use(s.pool, x, s.other));
    assert_ok(kn_free(s.pool, x));
    void *y = must_alloc(s.pool, BUFFER, s.mine);
    assert_ok(kn_device_fill(s.gpu, y, 2, BUFFER, s.mine));
    assert_ok(kn_event_record(event, s.mine));
    for (int i = 0; i < 100; i++) { /* time enough for a fill that didn't wait */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        bool now = false;
        assert_ok(kn_event_query(&now, event));
        done |= now;
    }
    assert_true(gate_open());
    assert_false(done);
    assert_int_equal(stats_of(s.pool).n_syncs, 0);
    gpu_assert_bytes(s.gpu, target, BUFFER, 1, s.other);
    gpu_assert_bytes(s.gpu, y, BUFFER, 2, s.mine);
    assert_ok(kn_free(s.pool, target));
    assert_ok(kn_free(s.pool, y));
    kn_event_destroy(event);
    scene_end(&s);
}

/* --- a stage moves to another stream -------------------------------------------------------- */

enum { STAGE = 100 };

static size_t stage_unit = MIB;
static size_t stage_bytes(size_t i) { return (1 + i * 7 % 13) * stage_unit; }

/* Memory moves for a good part of the device: a stage is a fortieth of it. */
static void stage_fit(kn_device *device) {
    size_t units = 0;
    stage_unit = MIB;
    for (size_t i = 0; i < STAGE; i++) units += stage_bytes(i) / MIB;
    stage_unit = (gpu_info(device).total_bytes / 40 / units / MIB + 1) * MIB;
}

static void stage_run(const scene *s, kn_stream stream, int first_byte) {
    void *blocks[STAGE];
    for (size_t i = 0; i < STAGE; i++) {
        blocks[i] = must_alloc(s->pool, stage_bytes(i), stream);
        assert_ok(kn_device_fill(s->gpu, blocks[i], first_byte + (int)i, stage_bytes(i), stream));
    }
    for (size_t i = 0; i < STAGE; i++) {
        gpu_assert_bytes(s->gpu, blocks[i], stage_bytes(i), first_byte + (int)i, stream);
    }
    for (size_t i = STAGE; i-- > 0;) assert_ok(kn_free(s->pool, blocks[i]));
    assert_ok(kn_stream_sync(s->gpu, stream));
}

static void finished_stage_hands_its_memory_over(void **state) {
    scene s = scene_make(gpu_of(state), 0, 0);
    stage_fit(s.gpu);
    void *seen = must_alloc(s.pool, MIB, s.other);
    stage_run(&s, s.mine, 1);
    uint64_t reserved = stats_of(s.pool).reserved_bytes;
    stage_run(&s, s.other, 101);
    uint64_t more = reserved / (is_mapped(s.gpu) ? 10 : 4); /* plain segments can't be joined */
    assert_true(stats_of(s.pool).reserved_bytes <= reserved + more);
    assert_int_equal(stats_of(s.pool).n_syncs, 0);
    assert_ok(kn_free(s.pool, seen));
    scene_end(&s);
}

/* The stage's work is still to come: the other stream gets other memory, and doesn't wait. */
static void stage_that_is_not_finished_keeps_its_memory(void **state) {
    enum { N = 8 };
    const size_t size_bytes = 8 * MIB;
    scene s = scene_make(gpu_of(state), 0, 0);
    void *target = must_alloc(s.pool, N * size_bytes, s.mine), *x[N], *y[N];
    for (int i = 0; i < N; i++) {
        x[i] = must_alloc(s.pool, size_bytes, s.mine);
        assert_ok(kn_device_fill(s.gpu, x[i], i + 1, size_bytes, s.mine));
    }
    gate_close(s.mine);
    for (size_t i = 0; i < N; i++) {
        char *part = (char *)target + i * size_bytes;
        assert_ok(kn_device_copy(s.gpu, part, s.gpu, x[i], size_bytes, s.mine));
        assert_ok(kn_free(s.pool, x[i]));
    }
    for (int i = 0; i < N; i++) {
        y[i] = must_alloc(s.pool, size_bytes, s.other);
        assert_ok(kn_device_fill(s.gpu, y[i], 255, size_bytes, s.other));
    }
    assert_ok(kn_stream_sync(s.gpu, s.other));
    assert_true(gate_open());
    for (size_t i = 0; i < N; i++) {
        char *part = (char *)target + i * size_bytes;
        gpu_assert_bytes(s.gpu, part, size_bytes, (int)i + 1, s.mine);
    }
    for (int i = 0; i < N; i++) assert_ok(kn_free(s.pool, y[i]));
    assert_ok(kn_free(s.pool, target));
    scene_end(&s);
}

/* --- which stream a handle means ------------------------------------------------------------ */

static const size_t SIZES[2] = {1000, 5 * MIB}; /* a slot and a block */

static void *visit(void *ctx) {
    const scene *s = ctx;
    for (int i = 0; i < 2; i++) {
        void *y = NULL;
        if (kn_alloc(&y, s->pool, SIZES[i], PER_THREAD) < 0) return "kn_alloc";
        if (kn_device_fill(s->gpu, y, 255, SIZES[i], PER_THREAD) < 0) return "kn_device_fill";
        if (kn_stream_sync(s->gpu, PER_THREAD) < 0) return "kn_stream_sync";
        if (kn_free(s->pool, y) < 0) return "kn_free";
    }
    return NULL;
}

/* Each thread has a stream of its own under this handle: one is held up, the other isn't, and it
 * doesn't get the memory that the first one still reads. */
static void default_stream_of_a_thread_is_its_own(void **state) {
    scene s = scene_make(gpu_of(state), 0, 0);
    void *target[2], *x[2], *failed = NULL;
    pthread_t thread;
    for (int i = 0; i < 2; i++) {
        target[i] = must_alloc(s.pool, SIZES[i], PER_THREAD);
        x[i] = must_alloc(s.pool, SIZES[i], PER_THREAD);
        assert_ok(kn_device_fill(s.gpu, x[i], i + 1, SIZES[i], PER_THREAD));
    }
    gate_close(PER_THREAD);
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_device_copy(s.gpu, target[i], s.gpu, x[i], SIZES[i], PER_THREAD));
        assert_ok(kn_free(s.pool, x[i]));
    }
    assert_int_equal(pthread_create(&thread, NULL, visit, &s), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_true(gate_open());
    if (failed) fail_msg("%s failed in a thread", (const char *)failed);
    for (int i = 0; i < 2; i++) {
        gpu_assert_bytes(s.gpu, target[i], SIZES[i], i + 1, PER_THREAD);
        assert_ok(kn_free(s.pool, target[i]));
    }
    scene_end(&s);
}

static void stream_of_another_context_is_refused(void **state) {
    result (*create)(context *, unsigned int, int) = NULL, (*pop)(context *) = NULL;
    result (*destroy)(context) = NULL, (*stream_create)(kn_stream *, unsigned int) = NULL;
    if (!gpu_find_function("cuCtxCreate_v2", &create) ||
        !gpu_find_function("cuCtxPopCurrent_v2", &pop) ||
        !gpu_find_function("cuCtxDestroy_v2", &destroy) ||
        !gpu_find_function("cuStreamCreate", &stream_create)) {
        skip();
    }
    scene s = scene_make(gpu_of(state), 0, 0);
    context foreign = NULL, popped = NULL;
    kn_stream theirs = NULL;
    assert_int_equal(create(&foreign, 0, 0), 0); /* becomes current */
    assert_int_equal(stream_create(&theirs, 1), 0);
    for (int i = 0; i < 2; i++) {
        void *x = &x, *y = must_alloc(s.pool, SIZES[i], s.mine);
        assert_fails(kn_alloc(&x, s.pool, SIZES[i], theirs), KN_ERR_INVALID, "another context");
        assert_null(x);
        assert_fails(kn_block_use(s.pool, y, theirs), KN_ERR_INVALID, "another context");
        assert_ok(kn_free(s.pool, y));
    }
    assert_int_equal(pop(&popped), 0);
    assert_ptr_equal(popped, foreign);
    assert_int_equal(destroy(foreign), 0); /* and its stream */
    scene_end(&s);
}

enum { TRIES = 64 };

/* Creates streams until one has this handle; their number is *n. */
static bool handle_comes_back(kn_stream out[TRIES], int *n, const kn_device_driver *driver,
                              void *impl, kn_stream handle) {
    bool found = false;
    for (*n = 0; !found && *n < TRIES; (*n)++) {
        assert_ok(driver->stream_create(impl, &out[*n]));
        found = out[*n] == handle;
    }
    return found;
}

/* A stream is destroyed with no word to the pool, its work still to come or done (`pending`); a new
 * one has its handle, and its memory is the first one's all the same. */
static void reuse_handle(kn_device *gpu, bool pending) {
    void *impl = NULL, *target[2], *x[2], *y[2];
    const kn_device_driver *driver = kn_device_driver_get(gpu, &impl);
    kn_stream first = NULL, streams[TRIES];
    int n = 0;
    scene s = scene_make(gpu, 0, 0);
    assert_ok(driver->stream_create(impl, &first));
    for (int i = 0; i < 2; i++) {
        target[i] = must_alloc(s.pool, SIZES[i], s.mine);
        x[i] = must_alloc(s.pool, SIZES[i], first);
        assert_ok(kn_device_fill(gpu, x[i], i + 1, SIZES[i], first));
    }
    if (pending) gate_close(first);
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_device_copy(gpu, target[i], gpu, x[i], SIZES[i], first));
        assert_ok(kn_free(s.pool, x[i]));
    }
    if (!pending) assert_ok(kn_stream_sync(gpu, first));
    driver->stream_destroy(impl, first);
    bool again = handle_comes_back(streams, &n, driver, impl, first);
    print_message("work %s: the handle came back %s %d streams\n", pending ? "pending" : "done",
                  again ? "after" : "in none of", n);
    for (int i = 0; again && i < 2; i++) {
        y[i] = must_alloc(s.pool, SIZES[i], streams[n - 1]);
        assert_ptr_not_equal(y[i], x[i]);
        assert_ok(kn_device_fill(gpu, y[i], 255, SIZES[i], streams[n - 1]));
    }
    if (again) assert_ok(kn_stream_sync(gpu, streams[n - 1]));
    assert_true(gate_open() || !pending);
    if (!again) {
        for (int i = 0; i < n; i++) driver->stream_destroy(impl, streams[i]);
        current = NULL;
        return; /* the pool must not be used: it would name a stream that is no more */
    }
    assert_ok(driver->device_sync(impl)); /* no stream can be named that the copies are on */
    for (int i = 0; i < 2; i++) {
        gpu_assert_bytes(gpu, target[i], SIZES[i], i + 1, s.mine);
        assert_ok(kn_free(s.pool, target[i]));
        assert_ok(kn_free(s.pool, y[i]));
    }
    for (int i = 0; i < n; i++) kn_stream_destroy(gpu, streams[i]);
    scene_end(&s);
}

static bool has_ids(kn_device *gpu) {
    void *impl = NULL;
    const kn_device_driver *driver = kn_device_driver_get(gpu, &impl);
    kn_stream stream = NULL;
    if (!driver->stream_id) return false;
    assert_ok(driver->stream_create(impl, &stream));
    bool has = driver->stream_id(impl, stream) != 0;
    driver->stream_destroy(impl, stream);
    return has;
}

static void new_stream_with_the_handle_of_a_finished_one_is_another(void **state) {
    if (!has_ids(gpu_of(state))) skip();
    reuse_handle(gpu_of(state), false);
}

static void new_stream_with_the_handle_of_a_busy_one_is_another(void **state) {
    if (!has_ids(gpu_of(state))) skip();
    reuse_handle(gpu_of(state), true);
}

/* --- memory of graphs, and memory that moves ------------------------------------------------- */

typedef struct graph_api {
    result (*begin)(kn_stream stream, int mode), (*end)(kn_stream stream, void **out);
    result (*instantiate)(void **out, void *graph, unsigned long long flags);
    result (*launch)(void *exec, kn_stream stream);
    result (*exec_destroy)(void *exec), (*destroy)(void *graph);
} graph_api;

static bool graph_api_find(graph_api *out) {
    return gpu_find_function("cuStreamBeginCapture_v2", &out->begin) &&
           gpu_find_function("cuStreamEndCapture", &out->end) &&
           gpu_find_function("cuGraphInstantiateWithFlags", &out->instantiate) &&
           gpu_find_function("cuGraphLaunch", &out->launch) &&
           gpu_find_function("cuGraphExecDestroy", &out->exec_destroy) &&
           gpu_find_function("cuGraphDestroy", &out->destroy);
}

/* A step with blocks of its own: source → a → b → c → out, with a freed before c. */
static void step(const scene *s, void *out, void *source, size_t size_bytes) {
    void *a = must_alloc(s->pool, size_bytes, s->mine);
    assert_ok(kn_device_copy(s->gpu, a, s->gpu, source, size_bytes, s->mine));
    void *b = must_alloc(s->pool, size_bytes, s->mine);
    assert_ok(kn_device_copy(s->gpu, b, s->gpu, a, size_bytes, s->mine));
    assert_ok(kn_free(s->pool, a));
    void *c = must_alloc(s->pool, size_bytes, s->mine);
    assert_ok(kn_device_copy(s->gpu, c, s->gpu, b, size_bytes, s->mine));
    assert_ok(kn_device_copy(s->gpu, out, s->gpu, c, size_bytes, s->mine));
    assert_ok(kn_free(s->pool, b));
    assert_ok(kn_free(s->pool, c));
}

static void *capture(const graph_api *api, const scene *s, kn_pool_graph *memory, void *out,
                     void *source, size_t size_bytes) {
    enum { GLOBAL = 0 };
    void *graph = NULL, *exec = NULL;
    assert_ok(kn_pool_graph_begin(memory, s->mine));
    assert_int_equal(api->begin(s->mine, GLOBAL), 0);
    step(s, out, source, size_bytes);
    assert_int_equal(api->end(s->mine, &graph), 0);
    assert_ok(kn_pool_graph_end(memory, s->mine));
    assert_non_null(graph);
    assert_int_equal(api->instantiate(&exec, graph, 0), 0);
    assert_int_equal(api->destroy(graph), 0);
    return exec;
}

/* Blocks that are allocated after the capture, on the captured stream and on another one, keep
 * their bytes over many launches of the graph, and each launch computes the result of the step. */
static void launches_of_a_graph_overwrite_nothing(void **state) {
    enum { LAUNCHES = 5, OTHERS = 6 };
    const size_t sizes[2] = {1000, 8 * MIB};
    graph_api api = {0};
    if (!graph_api_find(&api)) skip();
    scene s = scene_make(gpu_of(state), 0, 0);
    for (int k = 0; k < 2; k++) {
        const size_t n = sizes[k];
        void *others[2 * OTHERS], *source = must_alloc(s.pool, n, s.other);
        void *out = must_alloc(s.pool, n, s.other);
        kn_pool_graph *memory = NULL;
        assert_ok(kn_pool_graph_create(&memory, s.pool));
        void *exec = capture(&api, &s, memory, out, source, n);
        for (int i = 0; i < 2 * OTHERS; i++) {
            kn_stream stream = i % 2 ? s.mine : s.other;
            others[i] = must_alloc(s.pool, n, stream);
            assert_ok(kn_device_fill(s.gpu, others[i], 100 + i, n, stream));
        }
        assert_ok(kn_stream_sync(s.gpu, s.mine));
        for (int i = 1; i <= LAUNCHES; i++) {
            assert_ok(kn_device_fill(s.gpu, source, i, n, s.other));
            assert_int_equal(api.launch(exec, s.other), 0);
            gpu_assert_bytes(s.gpu, out, n, i, s.other);
        }
        for (int i = 0; i < 2 * OTHERS; i++) {
            gpu_assert_bytes(s.gpu, others[i], n, 100 + i, s.other);
            assert_ok(kn_free(s.pool, others[i]));
        }
        kn_pool_graph_destroy(memory, s.other);
        assert_int_equal(api.exec_destroy(exec), 0);
        assert_ok(kn_free(s.pool, source));
        assert_ok(kn_free(s.pool, out));
    }
    scene_end(&s);
}

/* Under its limit the pool joins scattered handles while another stream works on its own memory.
 * Whether the driver's unmapping waits for that stream is printed: the pool can't change it. */
static void memory_moves_while_another_stream_works(void **state) {
    enum { N = 8 };
    const size_t n = 32 * MIB;
    if (!is_mapped(gpu_of(state))) skip();
    scene s = scene_make(gpu_of(state), (N + 2) * n, 0);
    void *x[N], *source = must_alloc(s.pool, n, s.other), *target = must_alloc(s.pool, n, s.other);
    assert_ok(kn_device_fill(s.gpu, source, 77, n, s.other));
    for (int i = 0; i < N; i++) {
        x[i] = must_alloc(s.pool, n, s.mine);
        assert_ok(kn_device_fill(s.gpu, x[i], i + 1, n, s.mine));
    }
    for (int i = 0; i < N; i += 2) assert_ok(kn_free(s.pool, x[i]));
    assert_ok(kn_stream_sync(s.gpu, s.mine));
    gate_close(s.other);
    assert_ok(kn_device_copy(s.gpu, target, s.gpu, source, n, s.other));
    void *big = must_alloc(s.pool, 3 * n, s.mine);
    assert_ok(kn_device_fill(s.gpu, big, 255, 3 * n, s.mine));
    assert_ok(kn_stream_sync(s.gpu, s.mine));
    print_message("unmapping %s\n", gate_open() ? "waits for no stream" : "waits for the device");
    assert_true(stats_of(s.pool).moved_bytes > 0);
    gpu_assert_bytes(s.gpu, target, n, 77, s.other);
    gpu_assert_bytes(s.gpu, big, 3 * n, 255, s.mine);
    for (int i = 1; i < N; i += 2) {
        gpu_assert_bytes(s.gpu, x[i], n, i + 1, s.mine);
        assert_ok(kn_free(s.pool, x[i]));
    }
    assert_ok(kn_free(s.pool, big));
    assert_ok(kn_free(s.pool, source));
    assert_ok(kn_free(s.pool, target));
    scene_end(&s);
}

/* --------------------------------------------------------------------------------------------- */

static int load(void **state) {
    (void)state;
    load_kernels(gpus[0]);
    return 0;
}

int main(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* no two streams share a queue */
    gpus[0] = gpu_get();
    gpus[1] = gpu_plain_get();
    if (!gpus[1] || !gate_init()) return 1;
    /* Last what may end the process where the driver is otherwise than expected. */
    const struct CMUnitTest tests[] = {
        ON_BOTH(compute_never_waits_for_communication),
        ON_BOTH(compute_never_waits_on_a_full_device),
        ON_BOTH(prefetch_never_waits_for_the_step),
        ON_BOTH(prefetch_never_waits_on_a_full_device),
        ON_BOTH(stream_waits_on_the_device_before_the_host_does),
        ON_BOTH(finished_stage_hands_its_memory_over),
        ON_BOTH(stage_that_is_not_finished_keeps_its_memory),
        ON_BOTH(default_stream_of_a_thread_is_its_own),
        ON_BOTH(stream_of_another_context_is_refused),
        ON_BOTH(launches_of_a_graph_overwrite_nothing),
        ON(memory_moves_while_another_stream_works, &gpus[0]),
        ON_BOTH(new_stream_with_the_handle_of_a_finished_one_is_another),
        ON_BOTH(new_stream_with_the_handle_of_a_busy_one_is_another),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, load, NULL);
}
