/* Several streams: reuse, stealing, waiting and retirement, on the simulated device. */
#include <knet/device_driver.h>
#include <pthread.h>

#include "pool_fixture.h"

static void order_after(fixture *f, kn_stream later, kn_stream earlier) {
    kn_event *event = NULL;
    assert_ok(kn_event_create(&event, f->device));
    assert_ok(kn_event_record(event, earlier));
    assert_ok(kn_event_wait(event, later));
    kn_event_destroy(event);
}

static void streams_do_not_share_fresh_frees(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 1000, s);
    kn_sim_work(f.sim, s, a, 1000, 1);
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 1000, t);
    assert_ptr_not_equal(a, b);
    kn_sim_work(f.sim, t, b, 1000, 2);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void memory_of_another_stream_is_taken_with_a_wait_on_the_device(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, a, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 40 * MiB, t);
    kn_sim_work(f.sim, t, b, 40 * MiB, 2); /* after the wait, so no violation */
    assert_int_equal(stats_of(f.pool).n_events, 1);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), 1);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void one_event_covers_all_frees_before_it(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *live[100];
    for (int i = 0; i < 100; i++) {
        live[i] = must_alloc(f.pool, 200 * KiB, s);
        kn_sim_work(f.sim, s, live[i], 200 * KiB, (uint64_t)i);
    }
    for (int i = 0; i < 100; i++) assert_ok(kn_free(f.pool, live[i]));
    assert_int_equal(stats_of(f.pool).n_events, 0);
    for (int i = 0; i < 100; i++) {
        live[i] = must_alloc(f.pool, 200 * KiB, t);
        kn_sim_work(f.sim, t, live[i], 200 * KiB, 1000 + (uint64_t)i);
    }
    assert_int_equal(stats_of(f.pool).n_events, 1);
    assert_true(kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY) <= 200);
    for (int i = 0; i < 100; i++) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
}

static void foreign_use_delays_reuse_until_it_is_done(void **state) {
    (void)state;
    size_t sizes[] = {1000, 4 * MiB};
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(1 * GiB, false, NULL);
        kn_stream s = new_stream(&f), t = new_stream(&f);
        void *a = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, a, sizes[i], 1);
        order_after(&f, t, s);
        kn_sim_work(f.sim, t, a, sizes[i], 1);
        assert_ok(kn_block_use(f.pool, a, t));
        assert_ok(kn_block_use(f.pool, a, t));
        assert_ok(kn_block_use(f.pool, a, s)); /* its own: nothing */
        assert_ok(kn_free(f.pool, a));
        assert_int_equal(stats_of(f.pool).live_bytes, 0);
        void *b = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, b, sizes[i], 2);
        assert_ok(kn_pool_check(f.pool));
        assert_ok(kn_free(f.pool, b));
        kn_sim_drain(f.sim);
        assert_ok(kn_pool_trim(f.pool, 0));
        fixture_end(&f);
    }
}

/* The event is recorded before the block can be found by others, not after. */
static void event_is_recorded_before_the_block_is_published(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *a = must_alloc(f.pool, 48 * MiB, s);
    order_after(&f, t, s);
    kn_sim_work(f.sim, t, a, 48 * MiB, 1);
    assert_ok(kn_block_use(f.pool, a, t));
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 48 * MiB, u);
    kn_sim_work(f.sim, u, b, 48 * MiB, 2);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* Lets the stream's work happen as far as it can without the others. */
static bool run_alone(fixture *f, kn_stream stream) {
    while (kn_sim_step(f->sim, stream)) {
    }
    return kn_sim_pending(f->sim, stream) == 0;
}

/* One stream is slow. What others are done with is reused, and nobody waits for it. */
static void slow_stream_blocks_nobody_else(void **state) {
    (void)state;
    for (int slow_first = 0; slow_first < 2; slow_first++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        kn_stream home = new_stream(&f), slow = new_stream(&f), quick = new_stream(&f);
        void *a = must_alloc(f.pool, 20 * MiB, home), *b = must_alloc(f.pool, 20 * MiB, home);
        order_after(&f, slow, home);
        order_after(&f, quick, home);
        kn_sim_work(f.sim, slow, a, 20 * MiB, 1);
        assert_ok(kn_block_use(f.pool, a, slow));
        kn_sim_work(f.sim, quick, b, 20 * MiB, 2);
        assert_ok(kn_block_use(f.pool, b, quick));
        assert_ok(kn_free(f.pool, slow_first ? a : b));
        assert_ok(kn_free(f.pool, slow_first ? b : a));
        void *c = must_alloc(f.pool, 20 * MiB, home); /* there is room for a third */
        kn_sim_work(f.sim, home, c, 20 * MiB, 3);
        assert_true(run_alone(&f, home) && run_alone(&f, quick));
        void *d = must_alloc(f.pool, 20 * MiB, home); /* only b is to be had with no wait */
        kn_sim_work(f.sim, home, d, 20 * MiB, 4);
        assert_ptr_equal(d, b);
        assert_true(run_alone(&f, home));
        assert_int_equal(kn_sim_pending(f.sim, slow) > 0, true);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_ok(kn_free(f.pool, c));
        assert_ok(kn_free(f.pool, d));
        fixture_end(&f);
    }
}

/* In how many of 40 steps the computing stream can't run alone: it makes a buffer each step, which
 * the communicating stream reads one step late. `live`: bytes of other blocks. */
static int blocked_steps(uint64_t capacity, size_t live) {
    enum { STEPS = 40, EACH = 4 }; /* things that the slow stream has to do for a step */
    const size_t n = 64 * MiB;
    fixture f = fixture_make(capacity, false, NULL);
    kn_stream compute = new_stream(&f), communicate = new_stream(&f);
    void *rest = live ? must_alloc(f.pool, live, compute) : NULL;
    int n_blocked = 0;
    for (uint64_t step = 1; step <= STEPS; step++) {
        void *x = must_alloc(f.pool, n, compute);
        kn_sim_work(f.sim, compute, x, n, step);
        n_blocked += !run_alone(&f, compute);
        order_after(&f, communicate, compute);
        kn_sim_work(f.sim, communicate, x, n, step);
        assert_ok(kn_block_use(f.pool, x, communicate));
        assert_ok(kn_free(f.pool, x));
        while (kn_sim_pending(f.sim, communicate) > EACH &&
               (kn_sim_step(f.sim, communicate) || kn_sim_step(f.sim, compute))) {
        }
    }
    assert_true(stats_of(f.pool).reserved_bytes <= live + 5 * n);
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, rest));
    fixture_end(&f);
    return n_blocked;
}

static void no_stream_waits_while_the_device_has_room(void **state) {
    (void)state;
    assert_int_equal(blocked_steps(8 * GiB, 0), 0);
    assert_int_equal(blocked_steps(8 * GiB, 8 * GiB / 100 * 85), 0);
    assert_true(blocked_steps(200 * MiB, 0) == 0); /* three buffers fit */
    assert_true(blocked_steps(68 * MiB, 0) > 0);   /* one: then it has to wait */
}

/* What a stream freed and is done with serves another one, and the pool hardly grows. */
static void finished_work_hands_its_memory_over(void **state) {
    (void)state;
    enum { N = 200 };
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_stream first = new_stream(&f), second = new_stream(&f);
    void *blocks[N], *seen = must_alloc(f.pool, 1 * MiB, second);
    uint64_t reserved = 0;
    for (int stage = 0; stage < 2; stage++) {
        for (size_t i = 0; i < N; i++) {
            blocks[i] = must_alloc(f.pool, (1 + i * 7 % 13) * MiB, stage ? second : first);
            kn_sim_drain(f.sim); /* the device keeps up */
        }
        for (size_t i = N; i-- > 0;) assert_ok(kn_free(f.pool, blocks[i]));
        kn_sim_drain(f.sim);
        if (!stage) reserved = stats_of(f.pool).reserved_bytes;
    }
    assert_true(stats_of(f.pool).reserved_bytes <= reserved + reserved / 10);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), 0);
    assert_ok(kn_free(f.pool, seen));
    fixture_end(&f);
}

/* Each stream goes on with what it freed itself: no call of the device, however many there are. */
static void many_streams_in_turn_reach_a_steady_state(void **state) {
    (void)state;
    enum { STREAMS = 300 };
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_stream streams[STREAMS];
    uint64_t steady = 0, queries = 0;
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(&f);
    for (int round = 0; round < 20; round++) {
        if (round == 2) {
            steady = kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP);
            queries = kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY);
            assert_true(queries <= 16 * STREAMS); /* a few for each growth */
        }
        for (int i = 0; i < STREAMS; i++) {
            void *x = must_alloc(f.pool, 1 * MiB, streams[i]),
                 *y = must_alloc(f.pool, 500, streams[i]);
            assert_ok(kn_free(f.pool, x));
            assert_ok(kn_free(f.pool, y));
        }
    }
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP), steady);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY), queries);
    assert_true(kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD) <= 2 * STREAMS); /* one for 64 MiB */
    fixture_end(&f);
}

/* Where only the host can tell that enough work is done, it waits for just that. */
static void host_waits_when_nothing_else_helps(void **state) {
    (void)state;
    fixture f = fixture_make(16 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = must_alloc(f.pool, 2 * MiB, s);
    for (int i = 0; i < 8; i++) kn_sim_work(f.sim, s, blocks[i], 2 * MiB, (uint64_t)i + 1);
    for (int i = 0; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i])); /* nowhere side by side */
    void *big = must_alloc(f.pool, 6 * MiB, s);
    kn_sim_work(f.sim, s, big, 6 * MiB, 9);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, big));
    for (int i = 1; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
    fixture_end(&f);
}

/* Keys of streams. */

static fixture fixture_without_ids(uint64_t capacity_bytes) {
    static int n_made;
    char name[16];
    fixture f = {0};
    snprintf(name, sizeof name, "sim:noid%d", n_made++);
    kn_sim_options options = {.capacity_bytes = capacity_bytes, .no_stream_ids = true};
    assert_ok(kn_sim_create(&f.sim, &options));
    assert_ok(kn_device_register(&f.device, name, kn_sim_driver(f.sim), f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    return f;
}

static void destroy_unannounced(fixture *f, kn_stream stream) {
    void *impl = NULL;
    kn_device_driver_get(f->device, &impl)->stream_destroy(impl, stream);
}

/* The driver gives a new stream the handle of one that was destroyed, whose work goes on. */
static void stream_with_the_handle_of_a_destroyed_one_is_another_stream(void **state) {
    (void)state;
    const size_t sizes[] = {1000, 20 * MiB};
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        kn_stream s = new_stream(&f);
        void *x = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, x, sizes[i], 1);
        assert_ok(kn_free(f.pool, x));
        destroy_unannounced(&f, s);
        kn_stream t = new_stream(&f);
        assert_ptr_equal(t, s);
        void *y = must_alloc(f.pool, sizes[i], t);
        assert_ptr_not_equal(y, x);
        kn_sim_work(f.sim, t, y, sizes[i], 2); /* the simulator minds if it is x's memory */
        assert_ok(kn_free(f.pool, y));
        fixture_end(&f);
    }
}

/* The pool knows the old stream, and never sees the new one: an event on it happens at once. */
static void no_event_is_recorded_on_the_successor_of_a_destroyed_stream(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s), *small = must_alloc(f.pool, 5 * MiB, other);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    destroy_unannounced(&f, s);
    assert_ptr_equal(new_stream(&f), s);
    assert_ok(kn_free(f.pool, x));
    void *y = must_alloc(f.pool, 50 * MiB, other);
    kn_sim_work(f.sim, other, y, 50 * MiB, 2); /* the simulator minds if s's work may still run */
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 1);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, small));
    fixture_end(&f);
}

/* Nothing tells when the work of such a stream is done but a wait for the device: the last resort.
 */
static void memory_of_a_destroyed_stream_comes_back_before_memory_runs_out(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    destroy_unannounced(&f, s);
    kn_stream t = new_stream(&f);
    void *y = must_alloc(f.pool, 20 * MiB, t); /* there is room */
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 0);
    void *z = must_alloc(f.pool, 40 * MiB, t);
    kn_sim_work(f.sim, t, z, 40 * MiB, 2);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 1);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

/* A driver that can't tell the id once must not make a stream look like another one. */
static void drivers_without_ids_know_streams_by_their_handles(void **state) {
    (void)state;
    fixture f = fixture_without_ids(64 * MiB);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 1000, s), *y = must_alloc(f.pool, 5 * MiB, s);
    kn_sim_work(f.sim, s, x, 1000, 1);
    kn_sim_work(f.sim, s, y, 5 * MiB, 2);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_ptr_equal(must_alloc(f.pool, 1000, s), x);
    assert_ptr_equal(must_alloc(f.pool, 5 * MiB, s), y);
    void *other = must_alloc(f.pool, 1000, t);
    kn_sim_work(f.sim, t, other, 1000, 3);
    kn_stream_destroy(f.device, t);
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, t);
    void *fresh = must_alloc(f.pool, 1000, again);
    kn_sim_work(f.sim, again, fresh, 1000, 4);
    void *all[] = {x, y, other, fresh};
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

static void stream_of_another_context_is_refused(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), ours = new_stream(&f);
    kn_sim_foreign(f.sim, s);
    const size_t sizes[] = {1000, 5 * MiB};
    for (int i = 0; i < 2; i++) {
        void *x = &x, *y = must_alloc(f.pool, sizes[i], ours);
        assert_fails(kn_alloc(&x, f.pool, sizes[i], s), KN_ERR_INVALID, "context");
        assert_null(x);
        assert_fails(kn_block_use(f.pool, y, s), KN_ERR_INVALID, "context");
        assert_ok(kn_free(f.pool, y));
    }
    fixture_end(&f);
}

/* Handle 2 is another stream in each thread. */

typedef struct visitor {
    fixture *f;
    void *freed[2], *found[2];
} visitor;

static const kn_stream PER_THREAD = (kn_stream)(uintptr_t)2;
static const size_t VISITED[2] = {1000, 5 * MiB};

static void *visit(void *ctx) {
    visitor *v = ctx;
    for (int i = 0; i < 2; i++) {
        if (kn_alloc(&v->found[i], v->f->pool, VISITED[i], PER_THREAD) < 0) return v;
        kn_sim_work(v->f->sim, PER_THREAD, v->found[i], VISITED[i], 10 + (uint64_t)i);
        if (kn_free(v->f->pool, v->found[i]) < 0) return v;
    }
    return NULL;
}

static void default_stream_of_a_thread_is_its_own(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    visitor v = {.f = &f};
    for (int i = 0; i < 2; i++) {
        v.freed[i] = must_alloc(f.pool, VISITED[i], PER_THREAD);
        kn_sim_work(f.sim, PER_THREAD, v.freed[i], VISITED[i], 1 + (uint64_t)i);
        assert_ok(kn_free(f.pool, v.freed[i]));
        assert_ptr_equal(must_alloc(f.pool, VISITED[i], PER_THREAD), v.freed[i]);
        assert_ok(kn_free(f.pool, v.freed[i]));
    }
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    for (int i = 0; i < 2; i++) assert_ptr_not_equal(v.found[i], v.freed[i]);
    assert_ok(kn_pool_trim(f.pool, 0)); /* records the last events */
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_trim(f.pool, 0)); /* what the ended thread's stream had comes back too */
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    fixture_end(&f);
}

typedef struct guest {
    fixture *f;
    pthread_barrier_t here;
    bool failed;
} guest;

/* Frees on its default stream, whose work is not done, and stays. */
static void *stay(void *ctx) {
    guest *g = ctx;
    void *x = NULL;
    g->failed = kn_alloc(&x, g->f->pool, 40 * MiB, PER_THREAD) < 0;
    if (x) kn_sim_work(g->f->sim, PER_THREAD, x, 40 * MiB, 1);
    if (kn_free(g->f->pool, x) < 0) g->failed = true;
    pthread_barrier_wait(&g->here);
    pthread_barrier_wait(&g->here);
    return NULL;
}

/* Only the thread itself can record an event there, and it may never come by again. */
static void memory_of_another_threads_default_stream_is_not_out_of_reach(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        guest g = {.f = &f};
        void *own = must_alloc(f.pool, 5 * MiB, NULL);
        pthread_t thread;
        assert_int_equal(pthread_barrier_init(&g.here, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, stay, &g), 0);
        pthread_barrier_wait(&g.here);
        if (i) {
            void *x = must_alloc(f.pool, 50 * MiB, NULL);
            kn_sim_work(f.sim, NULL, x, 50 * MiB, 2);
            assert_ok(kn_free(f.pool, x));
        }
        assert_ok(kn_free(f.pool, own));
        fixture_end(&f); /* with nothing left on the device */
        pthread_barrier_wait(&g.here);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&g.here);
        assert_false(g.failed);
    }
}

static void stream_that_is_retired_while_it_is_captured_is_not_waited_for(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 5 * MiB, s);
    kn_sim_capture(f.sim, s, true); /* the simulator minds a wait for it */
    kn_stream_retire(f.device, s);
    kn_sim_capture(f.sim, s, false);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, a)); /* nobody knows when its work is done */
    assert_ok(kn_pool_check(f.pool));
    kn_pool_destroy(f.pool);
    assert_no_violation(f.sim);
}

static void retired_stream_leaves_its_memory_to_others(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 50 * MiB, s), *small = must_alloc(f.pool, 500, s);
    kn_sim_work(f.sim, s, a, 50 * MiB, 1);
    kn_sim_work(f.sim, s, small, 500, 2);
    assert_ok(kn_free(f.pool, small));
    kn_stream_destroy(f.device, s);
    assert_ok(kn_free(f.pool, a)); /* after its stream went */
    kn_stream t = new_stream(&f);
    assert_ptr_equal(s, t); /* the same handle, another stream */
    void *again = must_alloc(f.pool, 500, t);
    assert_ptr_not_equal(again, small); /* the cache must not take it for its old stream's */
    kn_sim_work(f.sim, t, again, 500, 3);
    void *b = must_alloc(f.pool, 50 * MiB, t);
    kn_sim_work(f.sim, t, b, 50 * MiB, 4);
    assert_ok(kn_free(f.pool, again));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void many_streams_come_and_go_without_growth(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    for (int i = 0; i < 300; i++) {
        kn_stream s = new_stream(&f);
        void *a = must_alloc(f.pool, 1000, s), *b = must_alloc(f.pool, 2 * MiB, s);
        kn_sim_work(f.sim, s, a, 1000, 2 * (uint64_t)i + 1);
        kn_sim_work(f.sim, s, b, 2 * MiB, 2 * (uint64_t)i + 2);
        assert_ok(kn_free(f.pool, a));
        assert_ok(kn_free(f.pool, b));
        kn_stream_destroy(f.device, s);
        if (i % 10 == 9) kn_sim_drain(f.sim);
    }
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_true(stats_of(f.pool).reserved_bytes <= 64 * MiB);
    fixture_end(&f);
}

static void event_that_can_not_be_recorded_costs_memory_not_safety(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 8 * MiB, s);
    kn_sim_work(f.sim, s, a, 8 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    void *b = must_alloc(f.pool, 8 * MiB, t);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    assert_ptr_not_equal(a, b);
    kn_sim_work(f.sim, t, b, 8 * MiB, 2);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* An identical retry must not succeed where the first call failed. */
static void out_of_memory_is_never_spurious(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        fixture f = fixture_make(32 * MiB, false, NULL);
        kn_stream streams[3] = {NULL, new_stream(&f), new_stream(&f)};
        void *live[64];
        size_t n = 0, sizes[64];
        uint64_t user = 0;
        for (int i = 0; i < 60; i++) {
            kn_stream s = streams[test_random_below(3)];
            if (n && test_random_below(3) == 0) {
                assert_ok(kn_free(f.pool, live[--n]));
                continue;
            }
            sizes[n] = (size_t)1 << (10 + test_random_below(14));
            if (kn_alloc(&live[n], f.pool, sizes[n], s) == KN_OK) {
                kn_sim_work(f.sim, s, live[n], sizes[n], ++user);
                n++;
            } else {
                void *again = NULL;
                assert_int_equal(kn_alloc(&again, f.pool, sizes[n], s), KN_ERR_OOM);
            }
        }
        while (n) assert_ok(kn_free(f.pool, live[--n]));
        void *all = must_alloc(f.pool, 16 * MiB, streams[1]);
        assert_ok(kn_free(f.pool, all));
        fixture_end(&f);
    }
}

/* The same work again and again needs no more memory than the first time. */
static void same_sequence_never_runs_out_later(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream streams[2] = {new_stream(&f), new_stream(&f)};
    for (int round = 0; round < 50; round++) {
        void *live[12];
        for (int i = 0; i < 12; i++) {
            live[i] = must_alloc(f.pool, (size_t)(1 + (i * 5 + round) % 7) * MiB, streams[i % 2]);
        }
        for (int i = 0; i < 12; i++) assert_ok(kn_free(f.pool, live[(i * 5) % 12]));
    }
    fixture_end(&f);
}

static void destroy_waits_for_the_streams(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 8 * MiB, s);
    kn_sim_work(f.sim, s, a, 8 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    void *leaked = must_alloc(f.pool, 1000, s);
    kn_sim_work(f.sim, s, leaked, 1000, 2);
    fixture_end(&f); /* the device would see memory taken away under work */
}

int main(void) {
    return RUN_TESTS(
        TEST(streams_do_not_share_fresh_frees),
        TEST(memory_of_another_stream_is_taken_with_a_wait_on_the_device),
        TEST(one_event_covers_all_frees_before_it), TEST(foreign_use_delays_reuse_until_it_is_done),
        TEST(event_is_recorded_before_the_block_is_published), TEST(slow_stream_blocks_nobody_else),
        TEST(no_stream_waits_while_the_device_has_room), TEST(finished_work_hands_its_memory_over),
        TEST(many_streams_in_turn_reach_a_steady_state), TEST(host_waits_when_nothing_else_helps),
        TEST(stream_with_the_handle_of_a_destroyed_one_is_another_stream),
        TEST(no_event_is_recorded_on_the_successor_of_a_destroyed_stream),
        TEST(memory_of_a_destroyed_stream_comes_back_before_memory_runs_out),
        TEST(drivers_without_ids_know_streams_by_their_handles),
        TEST(stream_of_another_context_is_refused), TEST(default_stream_of_a_thread_is_its_own),
        TEST(memory_of_another_threads_default_stream_is_not_out_of_reach),
        TEST(stream_that_is_retired_while_it_is_captured_is_not_waited_for),
        TEST(retired_stream_leaves_its_memory_to_others),
        TEST(many_streams_come_and_go_without_growth),
        TEST(event_that_can_not_be_recorded_costs_memory_not_safety),
        TEST(out_of_memory_is_never_spurious), TEST(same_sequence_never_runs_out_later),
        TEST(destroy_waits_for_the_streams));
}
