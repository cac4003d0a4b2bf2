/* Streams that end, share a handle or belong to a thread, on the simulated device. */
#include <knet/device_driver.h>
#include <knet/observer.h>
#include <pthread.h>

#include "pool_fixture.h"

/* A block whose last user is gone, and was done with it before the free. */
static void use_by_a_stream_that_went_ends_with_the_free(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 20 * MiB, s);
    assert_ok(kn_block_use(f.pool, x, t));
    kn_stream_destroy(f.device, t);
    kn_sim_drain(f.sim);
    void *y = must_alloc(f.pool, 20 * MiB, s); /* asks for the event */
    assert_ok(kn_free(f.pool, x));
    assert_ptr_equal(must_alloc(f.pool, 20 * MiB, s), x);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
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

/* The driver reuses the handle of a destroyed stream, whose work still runs, for a new one. */
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
static void memory_of_a_destroyed_stream_is_reused_before_memory_runs_out(void **state) {
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

static bool id_fails;
static uint64_t (*stream_id)(void *impl, kn_stream stream);
static uint64_t id_or_0(void *impl, kn_stream stream) {
    return id_fails ? 0 : stream_id(impl, stream);
}

static void stream_whose_id_is_not_always_known_stays_the_same(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    static kn_device_driver driver;
    driver = *kn_sim_driver(f.sim);
    stream_id = driver.stream_id;
    driver.stream_id = id_or_0;
    kn_pool_destroy(f.pool);
    assert_ok(kn_device_register(&f.device, "sim:ids", &driver, f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *first = NULL;
    for (int i = 0; i < 6; i++) {
        id_fails = i % 2 == 0;
        void *x = must_alloc(f.pool, 5 * MiB, s);
        kn_sim_work(f.sim, s, x, 5 * MiB, 1);
        if (!first) first = x;
        assert_ptr_equal(x, first);
        assert_ok(kn_free(f.pool, x));
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 5 * MiB, other)));
    }
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

static int n_ooms_told;
static void count_oom(kn_pool *pool, size_t wanted) { n_ooms_told += pool && wanted; }

static void stream_of_another_context_is_refused(void **state) {
    (void)state;
    static const kn_observer observer = {.on_oom = count_oom};
    fixture f = fixture_make(64 * MiB, false, NULL);
    assert_ok(kn_observer_attach(&observer));
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
    assert_ok(kn_observer_attach(NULL));
    assert_int_equal(n_ooms_told, 0); /* memory did not run out */
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
    assert_ok(kn_free(f.pool, a)); /* no event can tell when its work is done */
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

/* Blocks are freed in time, after their stream, and after a use by another one. */
static void many_streams_come_and_go_without_growth(void **state) {
    (void)state;
    for (int large = 0; large < 2; large++) {
        fixture f = fixture_make(large ? 16 * GiB : 64 * MiB, false, NULL);
        kn_stream reader = new_stream(&f);
        uint64_t metadata = 0, reserved = 0;
        void *late = NULL;
        for (int i = 0; i < 1200; i++) {
            if (i == 800) { /* by then it is steady */
                metadata = stats_of(f.pool).metadata_bytes;
                reserved = stats_of(f.pool).reserved_bytes;
            }
            kn_stream s = new_stream(&f);
            void *a = must_alloc(f.pool, 1000, s), *b = must_alloc(f.pool, 2 * MiB, s);
            kn_sim_work(f.sim, s, a, 1000, 2 * (uint64_t)i + 1);
            kn_sim_work(f.sim, s, b, 2 * MiB, 2 * (uint64_t)i + 2);
            if (i % 3 == 0) assert_ok(kn_block_use(f.pool, b, reader));
            assert_ok(kn_free(f.pool, a));
            assert_ok(kn_free(f.pool, late));
            late = b;
            kn_stream_destroy(f.device, s);
            if (i % 10 == 9) kn_sim_drain(f.sim);
        }
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_true(stats_of(f.pool).reserved_bytes <= reserved);
        assert_int_equal(stats_of(f.pool).metadata_bytes, metadata);
        assert_ok(kn_free(f.pool, late));
        fixture_end(&f);
    }
}

/* The memory of a stream that is destroyed when no event can be recorded is waited for. */
static void stream_whose_last_event_fails_is_waited_for(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    kn_stream_destroy(f.device, s);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_STREAM_SYNC), 1);
    x = must_alloc(f.pool, 40 * MiB, t);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, x));
    fixture_end(&f);
}

/* Where no event can be recorded, the host waits for a stream that goes. An older event that is
 * asked about later changes nothing: the stream's last block is everybody's when it is freed. */
static void an_old_event_of_a_stream_that_went_takes_nothing_back(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *seen = must_alloc(f.pool, 1 * MiB, t), *last = must_alloc(f.pool, 20 * MiB, s);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 100 * MiB, s)));
    assert_in_range(stats_of(f.pool).n_events, 1, 2);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1 * MiB, s)));
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    kn_stream_destroy(f.device, s);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    void *asks = must_alloc(f.pool, 300 * MiB, t);
    assert_ok(kn_free(f.pool, last));
    void *all = must_alloc(f.pool, 20 * MiB, t);
    assert_ptr_equal(all, last);
    void *kept[] = {seen, asks, all};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, kept[i]));
    fixture_end(&f);
}

/* A stream goes that works on, but has no memory: its record is used again. */
static void work_of_a_stream_that_went_holds_no_memory_of_the_next(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *kept = must_alloc(f.pool, 4 * MiB, other);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 20 * MiB, s)));
    assert_ok(kn_pool_sync(f.pool));
    assert_ok(kn_pool_trim(f.pool, 0));
    kn_sim_work(f.sim, s, kept, 1, 1); /* ends at the last drain */
    kn_stream_destroy(f.device, s);
    kn_stream next = new_stream(&f);
    kn_pool_stats before = stats_of(f.pool);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 20 * MiB, next)));
    assert_ok(kn_pool_trim(f.pool, 0)); /* records an event */
    assert_ok(kn_stream_sync(f.device, next));
    assert_ok(kn_pool_trim(f.pool, 0)); /* asks */
    assert_int_equal(stats_of(f.pool).reserved_bytes, before.reserved_bytes);
    assert_int_equal(stats_of(f.pool).n_syncs, before.n_syncs);
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, kept));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(TEST(use_by_a_stream_that_went_ends_with_the_free),
                     TEST(an_old_event_of_a_stream_that_went_takes_nothing_back),
                     TEST(work_of_a_stream_that_went_holds_no_memory_of_the_next),
                     TEST(stream_with_the_handle_of_a_destroyed_one_is_another_stream),
                     TEST(no_event_is_recorded_on_the_successor_of_a_destroyed_stream),
                     TEST(memory_of_a_destroyed_stream_is_reused_before_memory_runs_out),
                     TEST(drivers_without_ids_know_streams_by_their_handles),
                     TEST(stream_whose_id_is_not_always_known_stays_the_same),
                     TEST(stream_of_another_context_is_refused),
                     TEST(default_stream_of_a_thread_is_its_own),
                     TEST(memory_of_another_threads_default_stream_is_not_out_of_reach),
                     TEST(stream_that_is_retired_while_it_is_captured_is_not_waited_for),
                     TEST(retired_stream_leaves_its_memory_to_others),
                     TEST(many_streams_come_and_go_without_growth),
                     TEST(stream_whose_last_event_fails_is_waited_for));
}
