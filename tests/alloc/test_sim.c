/* The simulated device detects each kind of violation. */
#include <pthread.h>

#include "pool_fixture.h"

typedef struct device {
    kn_sim *sim;
    const kn_device_driver *driver;
    kn_stream s, t;
    void *memory;
} device;

#define LEGACY ((kn_stream)1) /* the handles of the default streams */
#define PER_THREAD ((kn_stream)2)

static device make_with(const kn_sim_options *options) {
    device d = {0};
    assert_ok(kn_sim_create(&d.sim, options));
    d.driver = kn_sim_driver(d.sim);
    assert_ok(d.driver->stream_create(d.sim, &d.s));
    assert_ok(d.driver->stream_create(d.sim, &d.t));
    assert_ok(d.driver->segment_alloc(d.sim, &d.memory, 4 * MiB));
    return d;
}

static device make(void) { return make_with(&(kn_sim_options){.capacity_bytes = 16 * MiB}); }

static void end(device *d) { kn_sim_destroy(d->sim); }

static void assert_violation(device *d, const char *text) {
    char said[256];
    assert_true(kn_sim_violations(d->sim, said, sizeof said) > 0);
    assert_non_null(strstr(said, text));
}

static void early_reuse_is_seen(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    kn_sim_work(d.sim, d.t, (char *)d.memory + 1000, 1000, 2);
    assert_no_violation(d.sim);
    kn_sim_work(d.sim, d.t, (char *)d.memory + 999, 1000, 2);
    assert_violation(&d, "used for user 2 while work of user 1");
    end(&d);
}

static void same_stream_and_finished_work_are_no_reuse(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    kn_sim_work(d.sim, d.s, d.memory, 1000, 2);
    assert_true(kn_sim_step(d.sim, d.s));
    assert_true(kn_sim_step(d.sim, d.s));
    assert_false(kn_sim_step(d.sim, d.s));
    kn_sim_work(d.sim, d.t, d.memory, 1000, 3);
    assert_no_violation(d.sim);
    end(&d);
}

static void wait_orders_streams_transitively(void **state) {
    (void)state;
    device d = make();
    kn_stream u = NULL;
    void *event = NULL, *second = NULL;
    bool done = true;
    assert_ok(d.driver->stream_create(d.sim, &u));
    assert_ok(d.driver->event_create(d.sim, &event));
    assert_ok(d.driver->event_create(d.sim, &second));
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    assert_ok(d.driver->event_record(d.sim, event, d.s));
    assert_ok(d.driver->event_query(d.sim, event, &done));
    assert_false(done);
    assert_ok(d.driver->event_wait(d.sim, event, d.t));
    assert_ok(d.driver->event_record(d.sim, second, d.t));
    assert_ok(d.driver->event_wait(d.sim, second, u));
    kn_sim_work(d.sim, u, d.memory, 1000, 2);
    assert_no_violation(d.sim);
    assert_false(kn_sim_step(d.sim, d.t)); /* waits for s */
    assert_ok(d.driver->event_sync(d.sim, second));
    assert_int_equal(kn_sim_pending(d.sim, d.s), 0);
    kn_sim_work(d.sim, d.s, d.memory, 1000, 3); /* s never waited for u */
    assert_violation(&d, "used for user 3 while work of user 2");
    end(&d);
}

static void event_orders_by_its_last_record_only(void **state) {
    (void)state;
    device d = make();
    kn_stream u = NULL;
    void *event = NULL;
    assert_ok(d.driver->stream_create(d.sim, &u));
    assert_ok(d.driver->event_create(d.sim, &event));
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    assert_ok(d.driver->event_record(d.sim, event, d.s));
    assert_ok(d.driver->event_record(d.sim, event, d.t));
    assert_ok(d.driver->event_wait(d.sim, event, u));
    kn_sim_work(d.sim, u, d.memory, 1000, 2);
    assert_violation(&d, "used for user 2 while work of user 1");
    end(&d);
}

/* t waits for the work of s, whatever the event records later. */
static void wait_keeps_its_point_when_the_event_moves(void **state) {
    (void)state;
    device d = make();
    kn_stream idle = NULL;
    void *event = NULL;
    bool done = false;
    assert_ok(d.driver->stream_create(d.sim, &idle));
    assert_ok(d.driver->event_create(d.sim, &event));
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    assert_ok(d.driver->event_record(d.sim, event, d.s));
    assert_ok(d.driver->event_wait(d.sim, event, d.t));
    assert_ok(d.driver->event_record(d.sim, event, idle));
    assert_ok(d.driver->event_sync(d.sim, event));
    assert_ok(d.driver->event_query(d.sim, event, &done));
    assert_true(done);
    assert_int_equal(kn_sim_pending(d.sim, d.s), 2);
    assert_false(kn_sim_step(d.sim, d.t));                /* waits for s */
    assert_ok(d.driver->event_record(d.sim, event, d.t)); /* the one that waits */
    assert_ok(d.driver->event_sync(d.sim, event));
    assert_int_equal(kn_sim_pending(d.sim, d.s), 0);
    assert_int_equal(kn_sim_pending(d.sim, d.t), 0);
    assert_no_violation(d.sim);
    end(&d);
}

static void memory_taken_away_under_work_is_seen(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    d.driver->segment_free(d.sim, d.memory, 4 * MiB);
    assert_violation(&d, "freed or unmapped under work of user 1");
    end(&d);
}

static void work_without_memory_is_seen(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.s, (char *)d.memory + 4 * MiB - 10, 11, 1);
    assert_violation(&d, "not allocated");
    end(&d);
}

static void wrong_sizes_are_seen(void **state) {
    (void)state;
    device d = make();
    d.driver->segment_free(d.sim, d.memory, 2 * MiB);
    assert_violation(&d, "not one segment or mapping");
    end(&d);
}

static void handles_are_mapped_once_and_unmapped_before_they_go(void **state) {
    (void)state;
    device d = make(), e = make();
    void *range = NULL;
    uint64_t handle = 0;
    assert_ok(d.driver->range_reserve(d.sim, &range, 16 * MiB));
    assert_ok(d.driver->handle_create(d.sim, &handle, 2 * MiB));
    assert_ok(d.driver->handle_map(d.sim, range, 2 * MiB, handle));
    assert_ok(d.driver->handle_unmap(d.sim, range, 2 * MiB));
    assert_ok(d.driver->handle_map(d.sim, range, 2 * MiB, handle));
    assert_no_violation(d.sim);
    assert_ok(d.driver->handle_map(d.sim, (char *)range + 2 * MiB, 2 * MiB, handle));
    assert_violation(&d, "mapped twice");
    assert_ok(e.driver->range_reserve(e.sim, &range, 16 * MiB));
    assert_ok(e.driver->handle_create(e.sim, &handle, 2 * MiB));
    assert_ok(e.driver->handle_map(e.sim, range, 2 * MiB, handle));
    e.driver->handle_destroy(e.sim, handle, 2 * MiB);
    assert_violation(&e, "destroyed while mapped");
    end(&e);
    end(&d);
}

/* Three handles of 2 MiB side by side, which nothing may use yet. */
static char *map_run(device *d, uint64_t handles[3]) {
    void *range = NULL;
    assert_ok(d->driver->range_reserve(d->sim, &range, 16 * MiB));
    for (size_t i = 0; i < 3; i++) {
        char *at = (char *)range + i * 2 * MiB;
        assert_ok(d->driver->handle_create(d->sim, &handles[i], 2 * MiB));
        assert_ok(d->driver->handle_map(d->sim, at, 2 * MiB, handles[i]));
    }
    return range;
}

static void work_needs_access(void **state) {
    (void)state;
    device d = make();
    uint64_t handles[3];
    char *range = map_run(&d, handles);
    assert_ok(d.driver->range_access(d.sim, range, 4 * MiB));
    kn_sim_work(d.sim, d.s, range + 1 * MiB, 3 * MiB, 1);
    assert_no_violation(d.sim);
    assert_int_equal(kn_sim_calls(d.sim, KN_SIM_RANGE_ACCESS), 1);
    kn_sim_work(d.sim, d.s, range + 1 * MiB, 3 * MiB + 1, 1);
    assert_violation(&d, "mapped without access");
    end(&d);
}

static void access_ends_when_the_handle_is_unmapped(void **state) {
    (void)state;
    device d = make();
    uint64_t handles[3];
    char *range = map_run(&d, handles);
    assert_ok(d.driver->range_access(d.sim, range, 6 * MiB));
    assert_ok(d.driver->handle_unmap(d.sim, range, 2 * MiB));
    assert_ok(d.driver->handle_map(d.sim, range, 2 * MiB, handles[0]));
    assert_ok(d.driver->copy(d.sim, range + 2 * MiB, range + 4 * MiB, 100, false, false, d.s));
    assert_no_violation(d.sim);
    assert_ok(d.driver->copy(d.sim, range + 2 * MiB, range, 100, false, false, d.s));
    assert_violation(&d, "a copy reads from");
    end(&d);
}

static void access_is_for_whole_mapped_handles(void **state) {
    (void)state;
    device e = make();
    assert_ok(e.driver->range_access(e.sim, e.memory, 4 * MiB)); /* a segment */
    assert_violation(&e, "are not whole mapped handles");
    end(&e);
    const size_t wrong[][2] = {
        {0, 3 * MiB}, {1 * MiB, 1 * MiB}, {4 * MiB, 4 * MiB}, {8 * MiB, MiB}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        device d = make();
        uint64_t handles[3];
        char *range = map_run(&d, handles);
        assert_ok(d.driver->range_access(d.sim, range + wrong[i][0], wrong[i][1]));
        assert_violation(&d, "are not whole mapped handles");
        end(&d);
    }
}

static void maps_without_access_can_always_be_undone(void **state) {
    (void)state;
    device d = make();
    uint64_t handles[3];
    char *range = map_run(&d, handles);
    assert_ok(d.driver->range_access(d.sim, range, 2 * MiB));
    kn_sim_fail(d.sim, KN_SIM_ANY, 1, true);
    assert_fails(d.driver->range_access(d.sim, range + 2 * MiB, 4 * MiB), KN_ERR_CUDA,
                 "range_access");
    assert_fails(d.driver->handle_unmap(d.sim, range, 2 * MiB), KN_ERR_CUDA, "handle_unmap");
    assert_ok(d.driver->handle_unmap(d.sim, range + 2 * MiB, 2 * MiB));
    assert_ok(d.driver->handle_unmap(d.sim, range + 4 * MiB, 2 * MiB));
    assert_no_violation(d.sim);
    end(&d);
}

static void handle_numbers_are_reused(void **state) {
    (void)state;
    device d = make();
    uint64_t first = 0, again = 0, second = 0;
    assert_ok(d.driver->handle_create(d.sim, &first, 2 * MiB));
    d.driver->handle_destroy(d.sim, first, 2 * MiB);
    assert_ok(d.driver->handle_create(d.sim, &again, 2 * MiB));
    assert_ok(d.driver->handle_create(d.sim, &second, 2 * MiB));
    assert_int_equal(again, first);
    assert_int_equal(second, first + 1);
    assert_no_violation(d.sim);
    d.driver->handle_destroy(d.sim, second + 1, 2 * MiB);
    assert_violation(&d, "does not exist");
    end(&d);
}

static void capacity_holds(void **state) {
    (void)state;
    device d = make();
    void *more = NULL;
    assert_fails(d.driver->segment_alloc(d.sim, &more, 13 * MiB), KN_ERR_OOM, "12582912 of");
    assert_ok(d.driver->segment_alloc(d.sim, &more, 12 * MiB));
    assert_int_equal(kn_sim_bytes(d.sim), 16 * MiB);
    end(&d);
}

static void scripted_calls_fail_once_or_for_ever(void **state) {
    (void)state;
    device d = make();
    void *event = NULL;
    kn_sim_fail(d.sim, KN_SIM_EVENT_CREATE, 2, false);
    assert_ok(d.driver->event_create(d.sim, &event));
    assert_ok(d.driver->stream_sync(d.sim, d.s));
    assert_fails(d.driver->event_create(d.sim, &event), KN_ERR_CUDA, "event_create");
    assert_ok(d.driver->event_create(d.sim, &event));
    kn_sim_fail(d.sim, KN_SIM_ANY, 1, true);
    assert_fails(d.driver->stream_sync(d.sim, d.s), KN_ERR_CUDA, "stream_sync");
    assert_fails(d.driver->event_create(d.sim, &event), KN_ERR_CUDA, "event_create");
    kn_sim_fail(d.sim, KN_SIM_ANY, 0, false);
    assert_ok(d.driver->stream_sync(d.sim, d.s));
    end(&d);
}

static void instant_device_runs_work_at_once(void **state) {
    (void)state;
    device d = make_with(&(kn_sim_options){.instant = true});
    void *event = NULL;
    bool done = false;
    assert_ok(d.driver->event_create(d.sim, &event));
    assert_ok(d.driver->event_record(d.sim, event, d.s));
    assert_ok(d.driver->event_query(d.sim, event, &done));
    assert_true(done);
    assert_ok(d.driver->event_wait(d.sim, event, d.t));
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    assert_int_equal(kn_sim_pending(d.sim, d.s) + kn_sim_pending(d.sim, d.t), 0);
    end(&d);
}

static void slow_stream_delays_only_streams_that_wait_for_it(void **state) {
    (void)state;
    device d = make_with(&(kn_sim_options){.instant = true});
    kn_stream u = NULL;
    void *event = NULL;
    assert_ok(d.driver->stream_create(d.sim, &u));
    assert_ok(d.driver->event_create(d.sim, &event));
    kn_sim_hold(d.sim, d.s, true);
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    assert_ok(d.driver->event_record(d.sim, event, d.s));
    assert_ok(d.driver->event_wait(d.sim, event, d.t));
    kn_sim_work(d.sim, d.t, d.memory, 1000, 2);
    kn_sim_work(d.sim, u, (char *)d.memory + 1000, 1000, 3);
    assert_int_equal(kn_sim_pending(d.sim, d.s), 2);
    assert_int_equal(kn_sim_pending(d.sim, d.t), 2);
    assert_int_equal(kn_sim_pending(d.sim, u), 0);
    assert_true(kn_sim_step(d.sim, d.s));
    assert_int_equal(kn_sim_pending(d.sim, d.t), 2);
    assert_true(kn_sim_step(d.sim, d.s)); /* the event: t catches up */
    assert_int_equal(kn_sim_pending(d.sim, d.t), 0);
    kn_sim_work(d.sim, d.s, d.memory, 1000, 2);
    kn_sim_hold(d.sim, d.s, false);
    assert_int_equal(kn_sim_pending(d.sim, d.s), 0);
    assert_no_violation(d.sim);
    end(&d);
}

static void stream_id_is_never_used_again_and_costs_no_call(void **state) {
    (void)state;
    device d = make();
    uint64_t legacy = d.driver->stream_id(d.sim, NULL), first = d.driver->stream_id(d.sim, d.t);
    d.driver->stream_destroy(d.sim, d.t);
    kn_stream again = NULL;
    assert_ok(d.driver->stream_create(d.sim, &again));
    assert_ptr_equal(again, d.t);
    uint64_t calls = kn_sim_calls(d.sim, KN_SIM_ANY), second = d.driver->stream_id(d.sim, again);
    assert_int_equal(kn_sim_calls(d.sim, KN_SIM_ANY), calls);
    assert_true(first != second && first != legacy && second != legacy);
    assert_int_equal(d.driver->stream_id(d.sim, LEGACY), legacy);
    assert_no_violation(d.sim);
    d.driver->stream_destroy(d.sim, again);
    (void)d.driver->stream_id(d.sim, again);
    assert_violation(&d, "does not exist");
    end(&d);
}

static void work_of_a_destroyed_stream_continues(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.t, d.memory, 1000, 1);
    d.driver->stream_destroy(d.sim, d.t);
    assert_ok(d.driver->stream_create(d.sim, &d.t)); /* the handle again */
    assert_int_equal(kn_sim_pending(d.sim, d.t), 0);
    kn_sim_work(d.sim, d.t, d.memory, 1000, 2);
    assert_violation(&d, "used for user 2 while work of user 1");
    end(&d);
}

static void default_streams_are_not_destroyed(void **state) {
    (void)state;
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        device d = make();
        d.driver->stream_destroy(d.sim, (kn_stream)handle);
        assert_violation(&d, "a default stream is destroyed");
        end(&d);
    }
}

/* A thread that uses its own default stream as the test says. */
typedef struct own_stream {
    device *d;
    uint64_t id;
    kn_stream name;
    void *event;
} own_stream;

static void *use_own_stream(void *ctx) {
    own_stream *own = ctx;
    device *d = own->d;
    own->id = d->driver->stream_id(d->sim, PER_THREAD);
    own->name = kn_sim_stream_of_thread(d->sim);
    kn_sim_work(d->sim, PER_THREAD, d->memory, 1000, 1);
    bool failed = d->driver->event_record(d->sim, own->event, PER_THREAD) < 0;
    return failed ? own : NULL;
}

static own_stream run_thread(device *d) {
    own_stream own = {.d = d};
    pthread_t thread;
    void *failed = NULL;
    assert_ok(d->driver->event_create(d->sim, &own.event));
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, &own), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    return own;
}

static void per_thread_handle_is_another_stream_in_each_thread(void **state) {
    (void)state;
    device d = make();
    uint64_t mine = d.driver->stream_id(d.sim, PER_THREAD);
    own_stream a = run_thread(&d), b = run_thread(&d);
    assert_true(a.id != b.id && a.id != mine && b.id != mine);
    assert_true(mine != d.driver->stream_id(d.sim, NULL));
    assert_int_equal(d.driver->stream_id(d.sim, PER_THREAD), mine);
    assert_int_equal(d.driver->stream_id(d.sim, a.name), a.id);
    assert_int_equal(kn_sim_pending(d.sim, PER_THREAD), 0);
    assert_int_equal(kn_sim_pending(d.sim, a.name), 2);
    assert_true(kn_sim_step(d.sim, a.name) && kn_sim_step(d.sim, a.name));
    assert_int_equal(kn_sim_pending(d.sim, b.name), 2);
    assert_no_violation(d.sim);
    kn_sim_work(d.sim, PER_THREAD, d.memory, 1000, 2);
    assert_violation(&d, "used for user 2 while work of user 1"); /* that of b */
    end(&d);
}

/* More than can have a stream at once. */
static void threads_that_end_leave_room_for_others(void **state) {
    (void)state;
    enum { N = 4200 };
    device d = make();
    uint64_t mine = d.driver->stream_id(d.sim, PER_THREAD), last = mine;
    for (int i = 0; i < N; i++) {
        own_stream own = run_thread(&d);
        assert_true(own.id > last); /* a stream of its own */
        last = own.id;
        kn_sim_drain(d.sim);
    }
    assert_no_violation(d.sim);
    assert_int_equal(d.driver->stream_id(d.sim, PER_THREAD), mine);
    end(&d);
}

static void *make_streams(void *ctx) {
    const device *d = ctx;
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        kn_stream stream = NULL;
        if (d->driver->stream_create(d->sim, &stream) < 0) return ctx;
        uint64_t id = d->driver->stream_id(d->sim, stream);
        if (id <= last || id == d->driver->stream_id(d->sim, PER_THREAD)) return ctx;
        d->driver->stream_destroy(d->sim, stream);
        last = id;
    }
    return NULL;
}

static void threads_may_ask_for_ids_together(void **state) {
    (void)state;
    enum { N = 4 };
    device d = make();
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_streams, &d), 0);
    }
    for (int i = 0; i < N; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_no_violation(d.sim);
    end(&d);
}

static void event_orders_the_streams_of_threads(void **state) {
    (void)state;
    device d = make();
    own_stream a = run_thread(&d);
    assert_ok(d.driver->event_wait(d.sim, a.event, PER_THREAD));
    kn_sim_work(d.sim, PER_THREAD, d.memory, 1000, 2);
    assert_no_violation(d.sim);
    assert_ok(d.driver->stream_sync(d.sim, PER_THREAD));
    assert_int_equal(kn_sim_pending(d.sim, a.name), 0);
    end(&d);
}

static void stream_of_another_context_is_rejected(void **state) {
    (void)state;
    device d = make();
    kn_sim_foreign(d.sim, d.t);
    assert_ok(d.driver->stream_check(d.sim, d.s));
    assert_ok(d.driver->stream_check(d.sim, NULL));
    assert_ok(d.driver->stream_check(d.sim, PER_THREAD));
    assert_fails(d.driver->stream_check(d.sim, d.t), KN_ERR_INVALID, "another context");
    assert_int_equal(kn_sim_calls(d.sim, KN_SIM_STREAM_CHECK), 4);
    d.driver->stream_destroy(d.sim, d.t);
    assert_ok(d.driver->stream_create(d.sim, &d.t)); /* the handle again */
    assert_ok(d.driver->stream_check(d.sim, d.t));
    kn_sim_fail(d.sim, KN_SIM_STREAM_CHECK, 1, false);
    assert_fails(d.driver->stream_check(d.sim, d.s), KN_ERR_CUDA, "stream_check");
    end(&d);
}

static void device_sync_runs_the_work_of_destroyed_streams(void **state) {
    (void)state;
    device d = make();
    kn_sim_work(d.sim, d.s, d.memory, 1000, 1);
    kn_sim_work(d.sim, d.t, (char *)d.memory + 1000, 1000, 2);
    d.driver->stream_destroy(d.sim, d.t);
    kn_sim_fail(d.sim, KN_SIM_DEVICE_SYNC, 1, false);
    assert_fails(d.driver->device_sync(d.sim), KN_ERR_CUDA, "device_sync");
    assert_int_equal(kn_sim_pending(d.sim, d.s), 1);
    assert_ok(d.driver->device_sync(d.sim));
    assert_int_equal(kn_sim_calls(d.sim, KN_SIM_DEVICE_SYNC), 2);
    kn_sim_work(d.sim, NULL, d.memory, 4 * MiB, 3);
    assert_no_violation(d.sim);
    kn_sim_capture(d.sim, d.s, true);
    assert_ok(d.driver->device_sync(d.sim));
    assert_violation(&d, "being captured");
    end(&d);
}

static void options_leave_out_stream_ids_and_virtual_memory(void **state) {
    (void)state;
    device d = make_with(&(kn_sim_options){.no_stream_ids = true, .plain = true}), e = make();
    kn_device_info with = {0}, without = {0};
    assert_null(d.driver->stream_id);
    assert_null(d.driver->range_reserve);
    assert_ok(d.driver->info_read(d.sim, &without));
    assert_ok(e.driver->info_read(e.sim, &with));
    assert_int_equal(without.granularity_bytes, 0);
    assert_int_equal(with.granularity_bytes, 2 * MiB);
    end(&d);
    end(&e);
}

static void clock_moves_only_when_advanced(void **state) {
    (void)state;
    device d = make();
    assert_int_equal(kn_sim_now_ns(d.sim), 0);
    kn_sim_advance_ns(d.sim, 5);
    kn_sim_advance_ns(d.sim, 7);
    assert_int_equal(kn_sim_now_ns(d.sim), 12);
    end(&d);
}

static void reserved_options_must_be_zero(void **state) {
    (void)state;
    kn_sim *sim = NULL;
    kn_sim_options options = {.reserved = {0, 0, 0, 1}};
    assert_fails(kn_sim_create(&sim, &options), KN_ERR_INVALID, "options.reserved[3]");
    assert_null(sim);
}

static void no_address_is_returned_twice(void **state) {
    (void)state;
    enum { RANGES = 4 };
    device d = make();
    void *ranges[RANGES] = {NULL}, *segment = NULL;
    for (int i = 0; i < RANGES; i++) { /* of nearly 2^48 bytes */
        kn_status status = d.driver->range_reserve(d.sim, &ranges[i], (size_t)1 << 46);
        assert_int_equal(status, i < RANGES - 1 ? KN_OK : KN_ERR_OOM);
        for (int k = 0; k < i; k++) assert_ptr_not_equal(ranges[i], ranges[k]);
        if (status == KN_OK) d.driver->range_release(d.sim, ranges[i], (size_t)1 << 46);
    }
    assert_non_null(strstr(kn_last_error()->message, "addresses are used up"));
    assert_ok(d.driver->segment_alloc(d.sim, &segment, 1 * MiB));
    d.driver->segment_free(d.sim, segment, 1 * MiB);
    end(&d);
}

int main(void) {
    return RUN_TESTS(
        TEST(early_reuse_is_seen), TEST(same_stream_and_finished_work_are_no_reuse),
        TEST(wait_orders_streams_transitively), TEST(event_orders_by_its_last_record_only),
        TEST(wait_keeps_its_point_when_the_event_moves), TEST(memory_taken_away_under_work_is_seen),
        TEST(work_without_memory_is_seen), TEST(wrong_sizes_are_seen),
        TEST(handles_are_mapped_once_and_unmapped_before_they_go), TEST(work_needs_access),
        TEST(access_ends_when_the_handle_is_unmapped), TEST(access_is_for_whole_mapped_handles),
        TEST(maps_without_access_can_always_be_undone), TEST(handle_numbers_are_reused),
        TEST(capacity_holds), TEST(scripted_calls_fail_once_or_for_ever),
        TEST(instant_device_runs_work_at_once),
        TEST(slow_stream_delays_only_streams_that_wait_for_it),
        TEST(stream_id_is_never_used_again_and_costs_no_call),
        TEST(work_of_a_destroyed_stream_continues), TEST(default_streams_are_not_destroyed),
        TEST(per_thread_handle_is_another_stream_in_each_thread),
        TEST(threads_that_end_leave_room_for_others), TEST(threads_may_ask_for_ids_together),
        TEST(no_address_is_returned_twice), TEST(event_orders_the_streams_of_threads),
        TEST(stream_of_another_context_is_rejected),
        TEST(device_sync_runs_the_work_of_destroyed_streams),
        TEST(options_leave_out_stream_ids_and_virtual_memory), TEST(clock_moves_only_when_advanced),
        TEST(reserved_options_must_be_zero));
}
