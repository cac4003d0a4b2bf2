/* Memory of graphs: a block that is allocated during a capture belongs to the graph alone. */
#include <knet/pool_graph.h>
#include <unistd.h>

#include "pool_fixture.h"

enum { BLOCKS = 64 };

typedef struct piece {
    char *ptr;
    size_t size;
} piece;

/* All that a captured graph will use when it is launched. */
typedef struct captured {
    piece pieces[BLOCKS];
    int n;
} captured;

static bool overlap(const char *a, size_t a_size, const char *b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

static void assert_apart(const captured *graph, const char *ptr, size_t size) {
    for (int i = 0; i < graph->n; i++) {
        if (!overlap(graph->pieces[i].ptr, graph->pieces[i].size, ptr, size)) continue;
        fail_msg("%zu bytes at %p are a graph's", size, (const void *)ptr);
    }
}

static void *graph_alloc(fixture *f, captured *graph, size_t size, kn_stream stream) {
    char *ptr = must_alloc(f->pool, size, stream);
    assert_true(graph->n < BLOCKS);
    graph->pieces[graph->n++] = (piece){ptr, size};
    return ptr;
}

static void launch(fixture *f, const captured *graph, kn_stream stream, uint64_t user) {
    for (int i = 0; i < graph->n; i++) {
        kn_sim_work(f->sim, stream, graph->pieces[i].ptr, graph->pieces[i].size, user);
    }
}

/* Nothing is live: all goes back, once the events that say so have happened. */
static void assert_all_goes(fixture *f) {
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_pool_trim(f->pool, 0));
        kn_sim_drain(f->sim);
    }
    assert_ok(kn_pool_trim(f->pool, 0));
    assert_int_equal(stats_of(f->pool).live_bytes, 0);
    assert_int_equal(stats_of(f->pool).waiting_bytes, 0);
    assert_int_equal(stats_of(f->pool).reserved_bytes, 0);
}

static kn_pool_graph *begin(fixture *f, kn_stream stream) {
    kn_pool_graph *graph = NULL;
    assert_ok(kn_pool_graph_create(&graph, f->pool));
    assert_ok(kn_pool_graph_begin(graph, stream));
    kn_sim_capture(f->sim, stream, true);
    return graph;
}

static void end(fixture *f, kn_pool_graph *graph, kn_stream stream) {
    kn_sim_capture(f->sim, stream, false);
    assert_ok(kn_pool_graph_end(graph, stream));
}

/* No block that the pool can allocate, on any stream, belongs to the graph. */
static void exhaust(fixture *f, const captured *graph, kn_stream s, kn_stream other) {
    static const size_t sizes[] = {300, 5000, 60000, 300000, 3 * MiB, 20 * MiB};
    void *got[2000];
    int n = 0;
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 300; k++) {
            void *ptr = NULL;
            if (kn_alloc(&ptr, f->pool, sizes[i], k % 2 ? s : other) < 0) break;
            assert_apart(graph, ptr, sizes[i]);
            got[n++] = ptr;
        }
    }
    while (n) assert_ok(kn_free(f->pool, got[--n]));
    assert_ok(kn_pool_check(f->pool));
}

static void memory_of_a_graph_is_reserved_until_its_destroy(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(256 * MiB, plain, NULL);
        kn_stream s = new_stream(&f), other = new_stream(&f);
        captured used = {.n = 0};
        void *before = must_alloc(f.pool, 3 * MiB, s), *small = must_alloc(f.pool, 300, s);
        assert_ok(kn_free(f.pool, small));
        kn_pool_graph *graph = begin(&f, s);
        void *out = graph_alloc(&f, &used, 5 * MiB, s);
        for (int i = 0; i < 10; i++) {
            void *a = graph_alloc(&f, &used, 300, s), *b = graph_alloc(&f, &used, 2 * MiB, s);
            assert_ok(kn_free(f.pool, a));
            assert_ok(kn_free(f.pool, b));
        }
        end(&f, graph, s);
        assert_ok(kn_free(f.pool, before));
        exhaust(&f, &used, s, other);
        for (int round = 0; round < 3; round++) {
            launch(&f, &used, other, 1);
            exhaust(&f, &used, s, other);
            kn_sim_drain(f.sim);
        }
        assert_ok(kn_free(f.pool, out)); /* freed late, and still the graph's */
        exhaust(&f, &used, s, other);
        launch(&f, &used, other, 1);
        kn_pool_graph_destroy(graph, other);
        assert_ok(kn_pool_check(f.pool));
        /* Now it is to be had, after the launch's work. */
        char *all = must_alloc(f.pool, 5 * MiB, other);
        kn_sim_work(f.sim, other, all, 5 * MiB, 2);
        assert_ok(kn_free(f.pool, all));
        assert_all_goes(&f);
        kn_stream_destroy(f.device, s);
        kn_stream_destroy(f.device, other);
        fixture_end(&f);
    }
}

static void inside_a_capture_memory_is_reused_at_once(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_pool_graph *graph = begin(&f, s);
    for (size_t size = 500; size < 5 * MiB; size *= 10) {
        void *first = must_alloc(f.pool, size, s);
        assert_ok(kn_free(f.pool, first));
        void *again = must_alloc(f.pool, size, s);
        assert_ptr_equal(first, again);
        assert_ok(kn_free(f.pool, again));
    }
    end(&f, graph, s);
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

/* Blocks freed on the stream before may still be in use there, and the graph may run elsewhere. */
static void a_capture_takes_no_memory_in_use(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    captured used = {.n = 0};
    char *before = must_alloc(f.pool, 3 * MiB, s), *small = must_alloc(f.pool, 300, s);
    kn_sim_work(f.sim, s, before, 3 * MiB, 7);
    kn_sim_work(f.sim, s, small, 300, 7);
    assert_ok(kn_free(f.pool, before));
    assert_ok(kn_free(f.pool, small));
    kn_pool_graph *graph = begin(&f, s);
    (void)graph_alloc(&f, &used, 3 * MiB, s);
    (void)graph_alloc(&f, &used, 300, s);
    end(&f, graph, s);
    launch(&f, &used, other, 8); /* beside the work of 7 */
    assert_no_violation(f.sim);
    for (int i = 0; i < used.n; i++) assert_ok(kn_free(f.pool, used.pieces[i].ptr));
    kn_pool_graph_destroy(graph, other);
    fixture_end(&f);
}

static void a_capture_makes_no_query_and_no_wait(void **state) {
    (void)state;
    fixture f = fixture_make(128 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    char *busy = must_alloc(f.pool, 40 * MiB, other), *idle = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, other, busy, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, busy));
    assert_ok(kn_free(f.pool, idle));
    assert_ok(kn_pool_limit(f.pool, 124 * MiB));
    kn_pool_graph *graph = begin(&f, s);
    static const kn_sim_call quiet[] = {KN_SIM_EVENT_RECORD, KN_SIM_EVENT_QUERY,
                                        KN_SIM_EVENT_SYNC,   KN_SIM_EVENT_WAIT,
                                        KN_SIM_STREAM_SYNC,  KN_SIM_HANDLE_UNMAP};
    uint64_t before[6];
    for (int i = 0; i < 6; i++) before[i] = kn_sim_calls(f.sim, quiet[i]);
    void *a = must_alloc(f.pool, 40 * MiB, s), *none = NULL;
    assert_fails(kn_alloc(&none, f.pool, 40 * MiB, s), KN_ERR_OOM,
                 "40.0 MiB asked for on a stream that is being captured");
    for (int i = 0; i < 6; i++) assert_int_equal(kn_sim_calls(f.sim, quiet[i]), before[i]);
    assert_ok(kn_free(f.pool, a));
    end(&f, graph, s);
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

static void a_failed_capture_is_rolled_back(void **state) {
    (void)state;
    fixture f = fixture_make(128 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    for (int round = 0; round < 20; round++) {
        kn_pool_graph *graph = begin(&f, s);
        void *a = must_alloc(f.pool, 60 * MiB, s), *b = must_alloc(f.pool, 1000, s), *none = NULL;
        assert_int_equal(kn_alloc(&none, f.pool, GiB, s), KN_ERR_OOM);
        end(&f, graph, s);
        assert_ok(kn_free(f.pool, a));
        if (round % 2) assert_ok(kn_free(f.pool, b));
        kn_pool_graph_destroy(graph, s);
        if (round % 2 == 0) assert_ok(kn_free(f.pool, b));
        assert_ok(kn_pool_check(f.pool));
        assert_all_goes(&f);
    }
    fixture_end(&f);
}

static void graphs_share_one_memory(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    captured used = {.n = 0};
    kn_pool_graph *graph = NULL;
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    for (int i = 0; i < 8; i++) {
        assert_ok(kn_pool_graph_begin(graph, s));
        kn_sim_capture(f.sim, s, true);
        void *a = graph_alloc(&f, &used, 20 * MiB, s), *b = graph_alloc(&f, &used, 700, s);
        assert_ptr_equal(a, used.pieces[0].ptr); /* the same for every one of them */
        assert_ok(kn_free(f.pool, b));
        assert_ok(kn_free(f.pool, a));
        end(&f, graph, s);
        exhaust(&f, &used, s, other);
    }
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

static void several_streams_are_captured_together(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), free_one = new_stream(&f);
    captured used = {.n = 0};
    kn_pool_graph *graph = begin(&f, s);
    assert_ok(kn_pool_graph_begin(graph, t));
    kn_sim_capture(f.sim, t, true);
    char *a = graph_alloc(&f, &used, 3 * MiB, s), *b = graph_alloc(&f, &used, 400, s);
    assert_ok(kn_block_use(f.pool, a, t));
    assert_ok(kn_block_use(f.pool, b, t));
    assert_ok(kn_free(f.pool, a)); /* t's part may use them when the graph runs */
    assert_ok(kn_free(f.pool, b));
    char *c = graph_alloc(&f, &used, 3 * MiB, t), *d = graph_alloc(&f, &used, 3 * MiB, s);
    assert_false(overlap(a, 3 * MiB, c, 3 * MiB) || overlap(a, 3 * MiB, d, 3 * MiB));
    assert_ok(kn_free(f.pool, c));
    assert_ok(kn_free(f.pool, d));
    end(&f, graph, t);
    end(&f, graph, s);
    exhaust(&f, &used, free_one, t);
    launch(&f, &used, s, 1);
    kn_pool_graph_destroy(graph, s);
    exhaust(&f, &(captured){.n = 0}, free_one, t);
    assert_all_goes(&f);
    fixture_end(&f);
}

/* A block of the graph's that is read outside, and one from outside that the graph reads. */
static void blocks_cross_the_border(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), reader = new_stream(&f);
    captured used = {.n = 0};
    char *in = must_alloc(f.pool, 3 * MiB, reader), *in2 = must_alloc(f.pool, 100, reader);
    kn_pool_graph *graph = begin(&f, s);
    char *out = graph_alloc(&f, &used, 3 * MiB, s);
    assert_ok(kn_block_use(f.pool, in, s));
    assert_ok(kn_block_use(f.pool, in2, s));
    end(&f, graph, s);
    assert_ok(kn_block_use(f.pool, out, reader));
    assert_ok(kn_free(f.pool, out));
    assert_ok(kn_free(f.pool, in)); /* the graph reads it with every launch */
    used.pieces[used.n++] = (piece){in, 3 * MiB};
    exhaust(&f, &used, s, reader);
    launch(&f, &used, s, 1);
    kn_pool_graph_destroy(graph, s);
    assert_ok(kn_free(f.pool, in2));
    assert_all_goes(&f);
    fixture_end(&f);
}

static void destroy_order_is_free(void **state) {
    (void)state;
    kn_pool_graph *graph = NULL;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    graph = begin(&f, s);
    void *a = must_alloc(f.pool, 3 * MiB, s);
    end(&f, graph, s);
    assert_ok(kn_free(f.pool, a));
    fixture_end(&f); /* the pool first */
    assert_fails(kn_pool_graph_begin(graph, s), KN_ERR_INVALID, "the pool is destroyed");
    kn_pool_graph_destroy(graph, s);

    f = fixture_make(256 * MiB, false, NULL);
    s = new_stream(&f);
    graph = begin(&f, s);
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
    kn_pool_graph *graph = begin(&f, s);
    void *a = graph_alloc(&f, &used, 3 * MiB, s);
    kn_sim_capture(f.sim, s, false);
    kn_stream_destroy(f.device, s); /* which ends it */
    assert_ok(kn_free(f.pool, a));
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, s); /* the handle comes back */
    exhaust(&f, &used, again, other);
    launch(&f, &used, other, 1);
    kn_pool_graph_destroy(graph, other);
    fixture_end(&f);
}

static void a_stream_may_go_before_the_graph(void **state) {
    (void)state;
    stream_may_go_before_the_graph(fixture_make(256 * MiB, false, NULL));
    stream_may_go_before_the_graph(fixture_without_ids());
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
    kn_pool_graph *graph = begin(&f, s); /* as it should be */
    void *a = must_alloc(f.pool, 3 * MiB, s), *b = must_alloc(f.pool, 3 * MiB, t);
    end(&f, graph, s);
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
    kn_pool_graph *graph = begin(&f, s);
    void *a = must_alloc(f.pool, 3 * MiB, s), *b = must_alloc(f.pool, 5 * MiB, s);
    assert_ok(kn_free(f.pool, a));
    end(&f, graph, s);
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
    kn_pool_graph *graph = begin(&f, caught);
    assert_ok(kn_block_use(f.pool, x, caught));
    assert_ok(kn_free(f.pool, x));
    end(&f, graph, caught);
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
    kn_pool_graph *graph = begin(&f, caught);
    assert_ok(kn_block_use(f.pool, x, caught));
    assert_ok(kn_block_use(f.pool, small, caught));
    end(&f, graph, caught);
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
    kn_pool_graph *graph = begin(&f, caught);
    void *x = must_alloc(f.pool, 50 * MiB, caught);
    end(&f, graph, caught);
    assert_ok(kn_block_use(f.pool, x, reader));
    assert_ok(kn_free(f.pool, x));
    kn_sim_work(f.sim, launches, x, 50 * MiB, 1);
    kn_pool_graph_destroy(graph, launches);
    void *y = must_alloc(f.pool, 50 * MiB, home);
    kn_sim_work(f.sim, home, y, 50 * MiB, 2);
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

/* What streams are done with when a capture begins is the capture's to use. */
static void a_capture_takes_finished_memory(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *a = must_alloc(f.pool, 100 * MiB, s), *b = must_alloc(f.pool, 50 * MiB, other);
    assert_ok(kn_free(f.pool, a));
    kn_sim_drain(f.sim); /* its event */
    kn_pool_graph *graph = begin(&f, s);
    a = must_alloc(f.pool, 100 * MiB, s);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 150 * MiB);
    end(&f, graph, s);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

/* Random captures, launches and other work, with a device that sees every use that overlaps. */
static void random_graphs_are_never_disturbed(void **state) {
    (void)state;
    enum { GRAPHS = 4, LIVE = 30 };
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    kn_pool_graph *graphs[GRAPHS] = {NULL};
    captured used[GRAPHS];
    piece live[LIVE] = {{NULL, 0}};
    uint64_t users[LIVE] = {0}, user = 100;
    for (int step = 0; step < 4000; step++) {
        uint64_t g = test_random_below(GRAPHS), what = test_random_below(20);
        if (what == 0 && !graphs[g]) {
            used[g].n = 0;
            graphs[g] = begin(&f, s);
            void *inside[BLOCKS / 2];
            for (int i = 0; i < BLOCKS / 2; i++) {
                size_t size = 1 + test_random_below(test_random_below(2) ? 3000 : 3 * MiB);
                inside[i] = graph_alloc(&f, &used[g], size, s);
                if (test_random_below(2)) {
                    assert_ok(kn_free(f.pool, inside[i]));
                    inside[i] = NULL;
                }
            }
            end(&f, graphs[g], s);
            for (int i = 0; i < BLOCKS / 2; i++) assert_ok(kn_free(f.pool, inside[i]));
        } else if (what == 1 && graphs[g]) {
            kn_pool_graph_destroy(graphs[g], t);
            graphs[g] = NULL;
        } else if (what < 5 && graphs[g]) {
            launch(&f, &used[g], t, g + 1);
        } else if (what == 5) {
            assert_ok(kn_pool_trim(f.pool, test_random_below(256) * MiB));
        } else {
            uint64_t i = test_random_below(LIVE);
            kn_stream stream = test_random_below(2) ? s : t;
            if (live[i].ptr) {
                assert_ok(kn_free(f.pool, live[i].ptr));
                live[i].ptr = NULL;
            } else {
                live[i].size = 1 + test_random_below(test_random_below(2) ? 3000 : 5 * MiB);
                live[i].ptr = must_alloc(f.pool, live[i].size, stream);
                users[i] = user++;
                for (int k = 0; k < GRAPHS; k++) {
                    if (graphs[k]) assert_apart(&used[k], live[i].ptr, live[i].size);
                }
                kn_sim_work(f.sim, stream, live[i].ptr, live[i].size, users[i]);
            }
        }
        for (int n = 0; n < 3; n++) kn_sim_step(f.sim, test_random_below(2) ? s : t);
        if (step % 100 == 0) assert_ok(kn_pool_check(f.pool));
        assert_no_violation(f.sim);
    }
    for (int i = 0; i < LIVE; i++) assert_ok(kn_free(f.pool, live[i].ptr));
    for (int g = 0; g < GRAPHS; g++) kn_pool_graph_destroy(graphs[g], t);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(memory_of_a_graph_is_reserved_until_its_destroy),
        TEST(inside_a_capture_memory_is_reused_at_once), TEST(a_capture_takes_no_memory_in_use),
        TEST(a_capture_makes_no_query_and_no_wait), TEST(a_failed_capture_is_rolled_back),
        TEST(graphs_share_one_memory), TEST(several_streams_are_captured_together),
        TEST(blocks_cross_the_border), TEST(destroy_order_is_free),
        TEST(a_stream_may_go_before_the_graph), TEST(wrong_use_is_logged),
        TEST(an_allocation_without_a_graph_is_logged_once),
        TEST(the_snapshot_marks_blocks_of_graphs),
        TEST(use_by_a_captured_stream_ends_with_the_graph),
        TEST(use_by_a_graph_that_went_ends_with_its_last_launch),
        TEST(block_of_a_graph_that_waits_is_not_finished_with_its_reader),
        TEST(a_capture_takes_finished_memory), TEST(random_graphs_are_never_disturbed));
}
