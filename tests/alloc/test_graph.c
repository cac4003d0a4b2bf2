/* Memory of graphs: a block that is allocated during a capture belongs to the graph alone. */
#include "graph_fixture.h"

static void memory_of_a_graph_is_reserved_until_its_destroy(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(256 * MiB, plain, NULL);
        kn_stream s = new_stream(&f), other = new_stream(&f);
        captured used = {.n = 0};
        void *before = must_alloc(f.pool, 3 * MiB, s), *small = must_alloc(f.pool, 300, s);
        assert_ok(kn_free(f.pool, small));
        kn_pool_graph *graph = capture_begin(&f, s);
        void *out = captured_alloc(&f, &used, 5 * MiB, s);
        for (int i = 0; i < 10; i++) {
            void *a = captured_alloc(&f, &used, 300, s), *b = captured_alloc(&f, &used, 2 * MiB, s);
            assert_ok(kn_free(f.pool, a));
            assert_ok(kn_free(f.pool, b));
        }
        capture_end(&f, graph, s);
        assert_ok(kn_free(f.pool, before));
        captured_exhaust(&f, &used, s, other);
        for (int round = 0; round < 3; round++) {
            captured_launch(&f, &used, other, 1);
            captured_exhaust(&f, &used, s, other);
            kn_sim_drain(f.sim);
        }
        assert_ok(kn_free(f.pool, out)); /* freed late, and still the graph's */
        captured_exhaust(&f, &used, s, other);
        captured_launch(&f, &used, other, 1);
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
    kn_pool_graph *graph = capture_begin(&f, s);
    for (size_t size = 500; size < 5 * MiB; size *= 10) {
        void *first = must_alloc(f.pool, size, s);
        assert_ok(kn_free(f.pool, first));
        void *again = must_alloc(f.pool, size, s);
        assert_ptr_equal(first, again);
        assert_ok(kn_free(f.pool, again));
    }
    capture_end(&f, graph, s);
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

/* The driver can't tell its id before the capture ends. */
static void a_stream_first_seen_in_its_capture_stays_the_same(void **state) {
    (void)state;
    for (int between = 0; between < 2; between++) {
        fixture f = fixture_make(256 * MiB, false, NULL);
        kn_stream s = new_stream(&f), other = new_stream(&f);
        kn_pool_graph *graph = NULL;
        assert_ok(kn_pool_graph_create(&graph, f.pool));
        kn_sim_capture(f.sim, s, true);
        assert_ok(kn_pool_graph_begin(graph, s));
        void *inside = must_alloc(f.pool, 5 * MiB, s), *small = must_alloc(f.pool, 300, s);
        assert_ok(kn_free(f.pool, inside));
        kn_sim_capture(f.sim, s, false);
        if (between) { /* still the graph's */
            assert_ptr_equal(must_alloc(f.pool, 5 * MiB, s), inside);
            assert_ok(kn_free(f.pool, must_alloc(f.pool, 300, other)));
            assert_ok(kn_free(f.pool, small));
            assert_ptr_equal(must_alloc(f.pool, 300, s), small);
            assert_ok(kn_free(f.pool, inside));
        }
        assert_ok(kn_pool_graph_end(graph, s));
        void *y = must_alloc(f.pool, 5 * MiB, s);
        assert_ptr_not_equal(y, inside);
        assert_ok(kn_free(f.pool, y));
        assert_ok(kn_free(f.pool, small));
        assert_ok(kn_pool_check(f.pool));
        kn_pool_graph_destroy(graph, s);
        kn_stream_destroy(f.device, s);
        kn_stream_destroy(f.device, other);
        fixture_end(&f);
    }
}

/* A stream was destroyed without kn_stream_retire; the new one with its handle is captured before
 * the pool has seen it. */
static void a_new_stream_with_a_known_handle_ends_its_graph(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_pool_graph *graph = NULL;
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 5 * MiB, s)));
    kn_sim_driver(f.sim)->stream_destroy(f.sim, s);
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, s);
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    kn_sim_capture(f.sim, again, true);
    assert_ok(kn_pool_graph_begin(graph, again));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 3 * MiB, again)));
    kn_sim_capture(f.sim, again, false);
    assert_ok(kn_pool_graph_end(graph, again));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 3 * MiB, again)));
    kn_pool_graph_destroy(graph, again);
    assert_ok(kn_pool_check(f.pool));
    kn_stream_destroy(f.device, again);
    fixture_end(&f);
}

/* Without kn_pool_graph_begin. Its freed block is not reused before its work is done, also after
 * the stream is destroyed. */
static void a_stream_first_seen_in_its_capture_is_retired(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_sim_capture(f.sim, s, true);
    void *x = must_alloc(f.pool, 5 * MiB, s);
    kn_sim_capture(f.sim, s, false);
    kn_sim_work(f.sim, s, x, 5 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    kn_stream_destroy(f.device, s);
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, s);
    void *y = must_alloc(f.pool, 5 * MiB, again);
    kn_sim_work(f.sim, again, y, 5 * MiB, 2);
    assert_no_violation(f.sim);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_pool_check(f.pool));
    kn_stream_destroy(f.device, again);
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
    kn_pool_graph *graph = capture_begin(&f, s);
    (void)captured_alloc(&f, &used, 3 * MiB, s);
    (void)captured_alloc(&f, &used, 300, s);
    capture_end(&f, graph, s);
    captured_launch(&f, &used, other, 8); /* beside the work of 7 */
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
    kn_pool_graph *graph = capture_begin(&f, s);
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
    capture_end(&f, graph, s);
    kn_pool_graph_destroy(graph, s);
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
        void *a = captured_alloc(&f, &used, 20 * MiB, s), *b = captured_alloc(&f, &used, 700, s);
        assert_ptr_equal(a, used.pieces[0].ptr); /* the same for every one of them */
        assert_ok(kn_free(f.pool, b));
        assert_ok(kn_free(f.pool, a));
        capture_end(&f, graph, s);
        captured_exhaust(&f, &used, s, other);
    }
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

static void several_streams_are_captured_together(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), free_one = new_stream(&f);
    captured used = {.n = 0};
    kn_pool_graph *graph = capture_begin(&f, s);
    assert_ok(kn_pool_graph_begin(graph, t));
    kn_sim_capture(f.sim, t, true);
    char *a = captured_alloc(&f, &used, 3 * MiB, s), *b = captured_alloc(&f, &used, 400, s);
    assert_ok(kn_block_use(f.pool, a, t));
    assert_ok(kn_block_use(f.pool, b, t));
    assert_ok(kn_free(f.pool, a)); /* t's part may use them when the graph runs */
    assert_ok(kn_free(f.pool, b));
    char *c = captured_alloc(&f, &used, 3 * MiB, t), *d = captured_alloc(&f, &used, 3 * MiB, s);
    assert_false(bytes_overlap(a, 3 * MiB, c, 3 * MiB) || bytes_overlap(a, 3 * MiB, d, 3 * MiB));
    assert_ok(kn_free(f.pool, c));
    assert_ok(kn_free(f.pool, d));
    capture_end(&f, graph, t);
    capture_end(&f, graph, s);
    captured_exhaust(&f, &used, free_one, t);
    captured_launch(&f, &used, s, 1);
    kn_pool_graph_destroy(graph, s);
    captured_exhaust(&f, &(captured){.n = 0}, free_one, t);
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
    kn_pool_graph *graph = capture_begin(&f, s);
    char *out = captured_alloc(&f, &used, 3 * MiB, s);
    assert_ok(kn_block_use(f.pool, in, s));
    assert_ok(kn_block_use(f.pool, in2, s));
    capture_end(&f, graph, s);
    assert_ok(kn_block_use(f.pool, out, reader));
    assert_ok(kn_free(f.pool, out));
    assert_ok(kn_free(f.pool, in)); /* the graph reads it with every launch */
    used.pieces[used.n++] = (piece){in, 3 * MiB};
    captured_exhaust(&f, &used, s, reader);
    captured_launch(&f, &used, s, 1);
    kn_pool_graph_destroy(graph, s);
    assert_ok(kn_free(f.pool, in2));
    assert_all_goes(&f);
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
    kn_pool_graph *graph = capture_begin(&f, s);
    a = must_alloc(f.pool, 100 * MiB, s);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 150 * MiB);
    capture_end(&f, graph, s);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    kn_pool_graph_destroy(graph, s);
    fixture_end(&f);
}

/* --- random captures, launches and other work --- */

enum { GRAPHS = 4, LIVE = 30 };

typedef struct chaos {
    fixture f;
    kn_stream s, t;
    kn_pool_graph *graphs[GRAPHS];
    captured used[GRAPHS];
    piece live[LIVE];
    uint64_t user;
} chaos;

static void capture_random(chaos *c, uint64_t g) {
    void *inside[BLOCKS / 2];
    c->used[g].n = 0;
    c->graphs[g] = capture_begin(&c->f, c->s);
    for (int i = 0; i < BLOCKS / 2; i++) {
        size_t size = 1 + test_random_below(test_random_below(2) ? 3000 : 3 * MiB);
        inside[i] = captured_alloc(&c->f, &c->used[g], size, c->s);
        if (test_random_below(2)) {
            assert_ok(kn_free(c->f.pool, inside[i]));
            inside[i] = NULL;
        }
    }
    capture_end(&c->f, c->graphs[g], c->s);
    for (int i = 0; i < BLOCKS / 2; i++) assert_ok(kn_free(c->f.pool, inside[i]));
}

static void alloc_or_free_random(chaos *c) {
    piece *p = &c->live[test_random_below(LIVE)];
    kn_stream stream = test_random_below(2) ? c->s : c->t;
    if (p->ptr) {
        assert_ok(kn_free(c->f.pool, p->ptr));
        p->ptr = NULL;
        return;
    }
    p->size = 1 + test_random_below(test_random_below(2) ? 3000 : 5 * MiB);
    p->ptr = must_alloc(c->f.pool, p->size, stream);
    for (int k = 0; k < GRAPHS; k++) {
        if (c->graphs[k]) captured_assert_apart(&c->used[k], p->ptr, p->size);
    }
    kn_sim_work(c->f.sim, stream, p->ptr, p->size, c->user++);
}

/* The device reports every use that overlaps. */
static void random_graphs_are_never_disturbed(void **state) {
    (void)state;
    chaos c = {.f = fixture_make(16 * GiB, false, NULL), .user = 100};
    c.s = new_stream(&c.f);
    c.t = new_stream(&c.f);
    for (int step = 0; step < 4000; step++) {
        uint64_t g = test_random_below(GRAPHS), what = test_random_below(20);
        if (what == 0 && !c.graphs[g]) {
            capture_random(&c, g);
        } else if (what == 1 && c.graphs[g]) {
            kn_pool_graph_destroy(c.graphs[g], c.t);
            c.graphs[g] = NULL;
        } else if (what < 5 && c.graphs[g]) {
            captured_launch(&c.f, &c.used[g], c.t, g + 1);
        } else if (what == 5) {
            assert_ok(kn_pool_trim(c.f.pool, test_random_below(256) * MiB));
        } else {
            alloc_or_free_random(&c);
        }
        for (int n = 0; n < 3; n++) kn_sim_step(c.f.sim, test_random_below(2) ? c.s : c.t);
        if (step % 100 == 0) assert_ok(kn_pool_check(c.f.pool));
        assert_no_violation(c.f.sim);
    }
    for (int i = 0; i < LIVE; i++) assert_ok(kn_free(c.f.pool, c.live[i].ptr));
    for (int g = 0; g < GRAPHS; g++) kn_pool_graph_destroy(c.graphs[g], c.t);
    fixture_end(&c.f);
}

int main(void) {
    return RUN_TESTS(
        TEST(memory_of_a_graph_is_reserved_until_its_destroy),
        TEST(inside_a_capture_memory_is_reused_at_once), TEST(a_capture_takes_no_memory_in_use),
        TEST(a_stream_first_seen_in_its_capture_stays_the_same),
        TEST(a_stream_first_seen_in_its_capture_is_retired),
        TEST(a_new_stream_with_a_known_handle_ends_its_graph),
        TEST(a_capture_makes_no_query_and_no_wait), TEST(graphs_share_one_memory),
        TEST(several_streams_are_captured_together), TEST(blocks_cross_the_border),
        TEST(a_capture_takes_finished_memory), TEST(random_graphs_are_never_disturbed));
}
