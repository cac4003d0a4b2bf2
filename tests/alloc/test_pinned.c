/* Pinned memory: the pool over the host's memory, with streams of a simulated device. */
#include "pool_fixture.h"

static fixture make(const char *name) {
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool_destroy(f.pool);
    kn_pool_options options = {.pinned = true, .name = name};
    assert_ok(kn_pool_create(&f.pool, f.device, &options));
    return f;
}

/* A copy on the stream that reads or writes the block. */
static void copy(fixture *f, kn_stream stream, void *ptr, size_t size, uint64_t user) {
    kn_sim_work(f->sim, stream, ptr, size, user);
    assert_ok(kn_block_use(f->pool, ptr, stream));
}

static void the_cpu_may_write_a_new_block(void **state) {
    (void)state;
    fixture f = make("staging");
    assert_ptr_equal(kn_pool_device(f.pool), f.device);
    for (size_t size = 1; size < 40 * MiB; size = size * 7 + 3) {
        char *ptr = must_alloc(f.pool, size, NULL);
        memset(ptr, 0x5a, size);
        assert_ok(kn_free(f.pool, ptr));
    }
    assert_true(kn_sim_calls(f.sim, KN_SIM_PINNED_ALLOC) >= 1);
    assert_int_equal(kn_sim_bytes(f.sim), 0); /* none of it is the device's */
    fixture_end(&f);
}

static void a_block_without_copies_is_reused_at_once_on_any_stream(void **state) {
    (void)state;
    fixture f = make(NULL);
    kn_stream s = new_stream(&f);
    for (size_t size = 1000; size < 5 * MiB; size *= 100) {
        void *a = must_alloc(f.pool, size, s);
        assert_ok(kn_free(f.pool, a));
        void *b = must_alloc(f.pool, size, NULL);
        assert_ptr_equal(a, b);
        assert_ok(kn_free(f.pool, b));
    }
    char *read = must_alloc(f.pool, 1000, NULL); /* from now on the pool has two streams */
    copy(&f, s, read, 1000, 1);
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, must_alloc(f.pool, 50 * MiB, NULL)));
    assert_int_equal(stats_of(f.pool).n_events, 0);
    assert_ok(kn_free(f.pool, read));
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

/* Not even the stream of the copy itself may have it: the CPU would write it at once. */
static void a_free_waits_for_the_copies(void **state) {
    (void)state;
    for (size_t size = 1000; size < 5 * MiB; size *= 1000) {
        fixture f = make(NULL);
        kn_stream s = new_stream(&f);
        char *a = must_alloc(f.pool, size, s);
        copy(&f, s, a, size, 1);
        assert_ok(kn_free(f.pool, a));
        assert_true(stats_of(f.pool).waiting_bytes >= size);
        for (int i = 0; i < 20; i++) {
            char *b = must_alloc(f.pool, size, s);
            assert_true(b + size <= a || a + size <= b);
            assert_ok(kn_free(f.pool, b));
        }
        assert_ok(kn_pool_trim(f.pool, 0)); /* records the event that says so, and asks for it */
        assert_true(stats_of(f.pool).waiting_bytes >= size);
        kn_sim_drain(f.sim);
        assert_ok(kn_pool_trim(f.pool, 0));
        assert_int_equal(stats_of(f.pool).waiting_bytes, 0);
        assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        kn_stream_destroy(f.device, s);
        fixture_end(&f);
    }
}

static void copies_on_the_default_stream_count_too(void **state) {
    (void)state;
    fixture f = make(NULL);
    char *a = must_alloc(f.pool, 3 * MiB, NULL);
    copy(&f, NULL, a, 3 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    char *b = must_alloc(f.pool, 3 * MiB, NULL);
    assert_ptr_not_equal(a, b);
    assert_ok(kn_free(f.pool, b));
    assert_int_equal(stats_of(f.pool).waiting_bytes, 3 * MiB);
    fixture_end(&f); /* waits for it */
}

/* Out of memory is the only thing that waits, and then for what suffices. */
static void a_full_pool_waits_for_copies(void **state) {
    (void)state;
    fixture f = make(NULL);
    kn_stream s = new_stream(&f);
    void *none = NULL;
    assert_ok(kn_pool_limit(f.pool, 64 * MiB));
    char *a = must_alloc(f.pool, 40 * MiB, NULL);
    copy(&f, s, a, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    char *b = must_alloc(f.pool, 40 * MiB, NULL);
    assert_int_equal(kn_sim_pending(f.sim, s), 0);
    assert_fails(kn_alloc(&none, f.pool, 40 * MiB, NULL), KN_ERR_OOM, "limit of 64.0 MiB");
    assert_ok(kn_free(f.pool, b));
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

static void a_retired_stream_gives_its_blocks_back(void **state) {
    (void)state;
    fixture f = make(NULL);
    kn_stream s = new_stream(&f);
    char *a = must_alloc(f.pool, 3 * MiB, NULL), *live = must_alloc(f.pool, 100, NULL);
    copy(&f, s, a, 3 * MiB, 1);
    copy(&f, s, live, 100, 2);
    assert_ok(kn_free(f.pool, a));
    kn_stream_destroy(f.device, s);
    assert_ok(kn_free(f.pool, live));
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).waiting_bytes, 0);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    fixture_end(&f);
}

/* Random copies on random streams; the simulated device sees each reuse that comes too early. */
static void random_copies_are_never_overtaken(void **state) {
    (void)state;
    enum { STREAMS = 3, LIVE = 40 };
    fixture f = make(NULL);
    kn_stream streams[STREAMS] = {NULL};
    struct {
        char *ptr;
        size_t size;
        uint64_t user;
    } live[LIVE] = {{NULL, 0, 0}};
    for (int i = 1; i < STREAMS; i++) streams[i] = new_stream(&f);
    for (uint64_t step = 1; step < 20000; step++) {
        size_t i = test_random_below(LIVE);
        if (live[i].ptr) {
            if (test_random_below(2)) {
                kn_stream s = streams[test_random_below(STREAMS)];
                kn_sim_work(f.sim, s, live[i].ptr, live[i].size, live[i].user);
                assert_ok(kn_block_use(f.pool, live[i].ptr, s));
            } else {
                assert_ok(kn_free(f.pool, live[i].ptr));
                live[i].ptr = NULL;
            }
        } else {
            live[i].size = 1 + test_random_below(test_random_below(2) ? 1000000 : 5000);
            live[i].ptr = must_alloc(f.pool, live[i].size, streams[test_random_below(STREAMS)]);
            live[i].user = step;
            /* the CPU writes it now: no copy may still use it */
            kn_stream cpu = new_stream(&f);
            kn_sim_work(f.sim, cpu, live[i].ptr, live[i].size, step);
            assert_ok(kn_stream_sync(f.device, cpu));
            kn_stream_destroy(f.device, cpu);
        }
        for (int n = 0; n < 2; n++) kn_sim_step(f.sim, streams[test_random_below(STREAMS)]);
        if (step % 1000 == 0) assert_ok(kn_pool_check(f.pool));
    }
    for (int i = 0; i < LIVE; i++) assert_ok(kn_free(f.pool, live[i].ptr));
    assert_no_violation(f.sim);
    fixture_end(&f);
}

static void a_refusal_to_lock_pages_is_logged(void **state) {
    (void)state;
    fixture f = make("locked");
    void *ptr = NULL;
    kn_sim_fail(f.sim, KN_SIM_PINNED_ALLOC, 1, true);
    assert_fails(kn_alloc(&ptr, f.pool, 1000, NULL), KN_ERR_OOM, "failure of pinned_alloc");
    kn_sim_fail(f.sim, KN_SIM_PINNED_ALLOC, 0, false);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1000, NULL)));
    fixture_end(&f);
}

static void a_device_has_one_pinned_pool(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_pool *pool = kn_device_pinned_pool(f.device);
    assert_non_null(pool);
    assert_ptr_equal(pool, kn_device_pinned_pool(f.device));
    assert_ptr_not_equal(pool, kn_device_pool(f.device));
    char name[32];
    snprintf(name, sizeof name, "%s pinned", kn_device_name(f.device));
    assert_string_equal(kn_pool_name(pool), name);
    char *ptr = must_alloc(pool, 100 * MiB, NULL); /* more than the device has */
    ptr[0] = ptr[100 * MiB - 1] = 1;
    assert_ok(kn_free(pool, ptr));
    fixture_end(&f);
}

/* The host needs no page-locked memory. */
static void the_hosts_pinned_pool_is_a_pool(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pinned_pool(kn_device_host());
    assert_non_null(pool);
    char *ptr = must_alloc(pool, 1000, NULL);
    memset(ptr, 1, 1000);
    assert_ok(kn_block_use(pool, ptr, NULL));
    assert_ok(kn_free(pool, ptr));
    assert_int_equal(stats_of(pool).waiting_bytes, 0);
}

int main(void) {
    return RUN_TESTS(
        TEST(the_cpu_may_write_a_new_block),
        TEST(a_block_without_copies_is_reused_at_once_on_any_stream),
        TEST(a_free_waits_for_the_copies), TEST(copies_on_the_default_stream_count_too),
        TEST(a_full_pool_waits_for_copies), TEST(a_retired_stream_gives_its_blocks_back),
        TEST(random_copies_are_never_overtaken), TEST(a_refusal_to_lock_pages_is_logged),
        TEST(a_device_has_one_pinned_pool), TEST(the_hosts_pinned_pool_is_a_pool));
}
