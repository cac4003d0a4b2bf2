/* Graphs, streams and blocks that end in any order, and captures that fail. */
#include <unistd.h>

#include "graph_fixture.h"

static void a_failed_capture_is_rolled_back(void **state) {
    (void)state;
    fixture f = fixture_make(128 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    for (int round = 0; round < 20; round++) {
        kn_pool_graph *graph = capture_begin(&f, s);
        void *a = must_alloc(f.pool, 60 * MiB, s), *b = must_alloc(f.pool, 1000, s), *none = NULL;
        assert_int_equal(kn_alloc(&none, f.pool, GiB, s), KN_ERR_OOM);
        capture_end(&f, graph, s);
        assert_ok(kn_free(f.pool, a));
        if (round % 2) assert_ok(kn_free(f.pool, b));
        kn_pool_graph_destroy(graph, s);
        if (round % 2 == 0) assert_ok(kn_free(f.pool, b));
        assert_ok(kn_pool_check(f.pool));
        assert_all_goes(&f);
    }
    fixture_end(&f);
}

static void destroy_order_is_free(void **state) {
    (void)state;
    kn_pool_graph *graph = NULL;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    graph = capture_begin(&f, s);
    void *a = must_alloc(f.pool, 3 * MiB, s);
    capture_end(&f, graph, s);
    assert_ok(kn_free(f.pool, a));
    fixture_end(&f); /* the pool first */
    assert_fails(kn_pool_graph_begin(graph, s), KN_ERR_INVALID, "the pool is destroyed");
    kn_pool_graph_destroy(graph, s);

    f = fixture_make(256 * MiB, false, NULL);
    s = new_stream(&f);
    graph = capture_begin(&f, s);
    a = must_alloc(f.pool, 3 * MiB, s);
    kn_sim_capture(f.sim, s, false);
    kn_pool_graph_destroy(graph, s); /* without an end */
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 3 * MiB, s);
    assert_ptr_equal(a, b);
    assert_ok(kn_free(f.pool, b));
    kn_pool_graph_destroy(NULL, s);
    kn_sim_drain(f.sim);
    kn_stream_destroy(f.device, s);
    assert_all_goes(&f);
    fixture_end(&f);
}

/* What the first graph had waits for the device, which no capture forbids any more. */
static void a_begun_graph_leaves_no_memory_behind(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    kn_pool_graph *released = capture_begin(&f, s), *begun = NULL;
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 4 * MiB, s)));
    capture_end(&f, released, s);
    kn_pool_graph_destroy_any(released);
    assert_ok(kn_pool_graph_create(&begun, f.pool));
    assert_ok(kn_pool_graph_begin(begun, other));
    fixture_end(&f);
    kn_pool_graph_destroy(begun, other);
}

static fixture fixture_without_ids(void) {
    fixture f = {0};
    kn_sim_options options = {.capacity_bytes = 256 * MiB, .no_stream_ids = true};
    assert_ok(kn_sim_create(&f.sim, &options));
    assert_ok(kn_device_register(&f.device, "sim:noid", kn_sim_driver(f.sim), f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    return f;
}

static void stream_may_go_before_the_graph(fixture f) {
    kn_stream s = new_stream(&f), other = new_stream(&f);
    captured used = {.n = 0};
    kn_pool_graph *graph = capture_begin(&f, s);
    void *a = captured_alloc(&f, &used, 3 * MiB, s);
    kn_sim_capture(f.sim, s, false);
    kn_stream_destroy(f.device, s); /* which ends it */
    assert_ok(kn_free(f.pool, a));
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, s); /* the handle comes back */
    captured_exhaust(&f, &used, again, other);
    captured_launch(&f, &used, other, 1);
    kn_pool_graph_destroy(graph, other);
    fixture_end(&f);
}

static void a_stream_may_go_before_the_graph(void **state) {
    (void)state;
    stream_may_go_before_the_graph(fixture_make(256 * MiB, false, NULL));
    stream_may_go_before_the_graph(fixture_without_ids());
}

/* Its record is used again, for the graph's part of another one. */
static void a_stream_that_works_on_may_go_before_the_graph_is_made(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), caught = new_stream(&f);
    void *kept = must_alloc(f.pool, 4 * MiB, caught);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 4 * MiB, s)));
    assert_ok(kn_pool_sync(f.pool));
    assert_ok(kn_pool_trim(f.pool, 0));
    kn_sim_work(f.sim, s, kept, 1, 1);
    kn_stream_destroy(f.device, s);
    kn_pool_graph *graph = capture_begin(&f, caught);
    capture_end(&f, graph, caught);
    kn_pool_graph_destroy(graph, caught);
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, kept));
    fixture_end(&f);
}

static void wrong_use_is_logged(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_pool_graph *graph = NULL, *second = NULL;
    assert_fails(kn_pool_graph_create(&graph, kn_device_pool(kn_device_host())), KN_ERR_INVALID,
                 "has no streams to capture");
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    assert_ok(kn_pool_graph_create(&second, f.pool));
    assert_fails(kn_pool_graph_end(graph, s), KN_ERR_INVALID, "has not begun");
    assert_ok(kn_pool_graph_begin(graph, s));
    assert_fails(kn_pool_graph_begin(graph, s), KN_ERR_INVALID, "has begun already");
    assert_fails(kn_pool_graph_begin(second, s), KN_ERR_INVALID, "has begun already");
    assert_fails(kn_pool_graph_end(second, s), KN_ERR_INVALID, "has not begun");
    assert_ok(kn_pool_graph_end(graph, s));
    assert_fails(kn_pool_graph_end(graph, s), KN_ERR_INVALID, "has not begun");
    kn_pool_graph_destroy(second, s);
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

static int n_warned;
static void count_warnings(void *ctx, int level, const char *text) {
    (void)ctx;
    n_warned += level == 1 && strstr(text, "without kn_pool_graph_begin");
}

static void an_allocation_without_a_graph_is_logged_once(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    kn_log_attach(count_warnings, NULL);
    kn_pool_graph *graph = capture_begin(&f, s); /* as it should be */
    void *a = must_alloc(f.pool, 3 * MiB, s), *b = must_alloc(f.pool, 3 * MiB, t);
    capture_end(&f, graph, s);
    assert_int_equal(n_warned, 0);
    kn_sim_capture(f.sim, t, true);
    void *c = must_alloc(f.pool, 30 * MiB, t), *d = must_alloc(f.pool, 60 * MiB, t);
    kn_sim_capture(f.sim, t, false);
    assert_int_equal(n_warned, 1);
    kn_log_attach(NULL, NULL);
    void *const all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, all[i]));
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

static void the_snapshot_marks_blocks_of_graphs(void **state) {
    (void)state;
    char path[] = "/tmp/knet_graph_XXXXXX", text[32768] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *before = must_alloc(f.pool, 1 * MiB, s);
    kn_pool_graph *graph = capture_begin(&f, s);
    void *a = must_alloc(f.pool, 3 * MiB, s), *b = must_alloc(f.pool, 5 * MiB, s);
    assert_ok(kn_free(f.pool, a));
    capture_end(&f, graph, s);
    assert_ok(kn_pool_snapshot(f.pool, path));
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    close(fd);
    remove(path);
    assert_int_equal(occurrences(text, "\"state\":\"live\""), 2);
    assert_int_equal(occurrences(text, "\"graph\":true"), 2); /* one live, one freed */
    assert_non_null(strstr(text, "\"graph\":true,\"requested\":5242880"));
    assert_ok(kn_free(f.pool, before));
    assert_ok(kn_free(f.pool, b));
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

/* Finished epochs of both streams, so that the numbers of new ones are above those of a graph's. */
static void age(fixture *f, kn_stream a, kn_stream b) {
    for (int i = 0; i < 6; i++) {
        kn_stream stream = i % 2 ? a : b;
        void *old = must_alloc(f->pool, 40 * MiB, stream);
        kn_sim_work(f->sim, stream, old, 40 * MiB, 100);
        assert_ok(kn_free(f->pool, old));
        for (int k = 0; k < 2; k++) {
            kn_sim_drain(f->sim);
            assert_ok(kn_pool_trim(f->pool, 0));
        }
    }
}

/* A block from outside that a captured stream used is freed in the capture: its use ends with the
 * graph, by what the stream of the last launch has done then. */
static void use_by_a_captured_stream_ends_with_the_graph(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream home = new_stream(&f), caught = new_stream(&f), launches = new_stream(&f);
    age(&f, launches, home);
    void *x = must_alloc(f.pool, 30 * MiB, home), *y = NULL;
    kn_sim_work(f.sim, home, x, 30 * MiB, 1);
    kn_sim_drain(f.sim);
    kn_pool_graph *graph = capture_begin(&f, caught);
    assert_ok(kn_block_use(f.pool, x, caught));
    assert_ok(kn_free(f.pool, x));
    capture_end(&f, graph, caught);
    for (int i = 0; i < 3; i++) {
        kn_sim_work(f.sim, launches, x, 30 * MiB, 1); /* a launch uses x still */
        assert_fails(kn_alloc(&y, f.pool, 50 * MiB, home), KN_ERR_OOM, "out of memory");
    }
    kn_pool_graph_destroy(graph, launches);
    y = must_alloc(f.pool, 50 * MiB, home);
    kn_sim_work(f.sim, home, y, 50 * MiB, 2); /* after the launches: the simulator minds */
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

/* The same when the graph goes before the block and the slot are freed. */
static void use_by_a_graph_that_went_ends_with_its_last_launch(void **state) {
    (void)state;
    enum { SLOTS = 300 };
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream home = new_stream(&f), caught = new_stream(&f), launches = new_stream(&f);
    age(&f, launches, home);
    void *x = must_alloc(f.pool, 30 * MiB, home), *small = must_alloc(f.pool, 1000, home);
    kn_pool_graph *graph = capture_begin(&f, caught);
    assert_ok(kn_block_use(f.pool, x, caught));
    assert_ok(kn_block_use(f.pool, small, caught));
    capture_end(&f, graph, caught);
    kn_sim_work(f.sim, launches, x, 30 * MiB, 1);
    kn_sim_work(f.sim, launches, small, 1000, 1);
    kn_pool_graph_destroy(graph, launches);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, small));
    void *slots[SLOTS], *z = must_alloc(f.pool, 2 * MiB, home); /* asks for events */
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = must_alloc(f.pool, 1000, home);
        kn_sim_work(f.sim, home, slots[i], 1000, 2);
    }
    void *y = must_alloc(f.pool, 50 * MiB, home);
    kn_sim_work(f.sim, home, y, 50 * MiB, 3);
    for (int i = 0; i < SLOTS; i++) assert_ok(kn_free(f.pool, slots[i]));
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

/* A block of the graph's that waits for a reader outside when the graph goes: launches use it. */
static void block_of_a_graph_that_waits_is_not_finished_with_its_reader(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream caught = new_stream(&f), reader = new_stream(&f), launches = new_stream(&f);
    kn_stream home = new_stream(&f);
    age(&f, launches, home);
    kn_pool_graph *graph = capture_begin(&f, caught);
    void *x = must_alloc(f.pool, 50 * MiB, caught);
    capture_end(&f, graph, caught);
    assert_ok(kn_block_use(f.pool, x, reader));
    assert_ok(kn_free(f.pool, x));
    kn_sim_work(f.sim, launches, x, 50 * MiB, 1);
    kn_pool_graph_destroy(graph, launches);
    void *y = must_alloc(f.pool, 50 * MiB, home);
    kn_sim_work(f.sim, home, y, 50 * MiB, 2);
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(TEST(a_failed_capture_is_rolled_back), TEST(destroy_order_is_free),
                     TEST(a_begun_graph_leaves_no_memory_behind),
                     TEST(a_stream_may_go_before_the_graph),
                     TEST(a_stream_that_works_on_may_go_before_the_graph_is_made),
                     TEST(wrong_use_is_logged), TEST(an_allocation_without_a_graph_is_logged_once),
                     TEST(the_snapshot_marks_blocks_of_graphs),
                     TEST(use_by_a_captured_stream_ends_with_the_graph),
                     TEST(use_by_a_graph_that_went_ends_with_its_last_launch),
                     TEST(block_of_a_graph_that_waits_is_not_finished_with_its_reader));
}
