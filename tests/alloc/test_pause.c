/* Pause and resume: of a pool and of a tag, on a simulated device and on the host, with every call
 * to the device failing in turn. */
#include <knet/pause.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "pool_fixture.h"

static const kn_pause_options KEEP = {.keep = true};

static void *tagged(kn_pool *pool, const char *tag, size_t size) {
    kn_tag_push(tag);
    void *ptr = must_alloc(pool, size, NULL);
    kn_tag_pop();
    return ptr;
}

static void paused_pool_holds_no_memory_and_keeps_its_addresses(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *small = must_alloc(f.pool, 1000, NULL), *large = must_alloc(f.pool, 40 * MiB, NULL);
    void *gone = must_alloc(f.pool, 9 * MiB, NULL), *none = &none;
    size_t dropped = 0;
    kn_sim_work(f.sim, NULL, large, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 100 * MiB, NULL)));
    assert_ok(kn_pool_pause(&dropped, f.pool, NULL));
    assert_int_equal(kn_sim_bytes(f.sim), 0);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    assert_true(dropped >= 49 * MiB && dropped < 100 * MiB); /* free memory is given back */
    assert_int_equal(kn_pool_paused_bytes(f.pool), dropped);
    assert_ok(kn_pool_check(f.pool));
    const size_t sizes[] = {1, 1000, 60000, 100000, 50 * MiB};
    for (int i = 0; i < 5; i++) {
        assert_fails(kn_alloc(&none, f.pool, sizes[i], NULL), KN_ERR_INVALID, "is paused");
        assert_null(none);
        assert_fails(kn_alloc_aligned(&none, f.pool, sizes[i], 4096, NULL), KN_ERR_INVALID,
                     "is paused");
    }
    assert_ok(kn_free(f.pool, gone));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(kn_sim_bytes(f.sim), 0);
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_int_equal(kn_pool_paused_bytes(f.pool), 0);
    assert_int_equal(kn_sim_bytes(f.sim), dropped);
    assert_ok(kn_pool_check(f.pool));
    kn_sim_work(f.sim, NULL, large, 40 * MiB, 1);
    kn_sim_work(f.sim, NULL, small, 1000, 2);
    void *again = must_alloc(f.pool, 9 * MiB, NULL);
    assert_ptr_equal(again, gone); /* blocks freed meanwhile have memory again */
    kn_sim_work(f.sim, NULL, again, 9 * MiB, 3);
    assert_ok(kn_free(f.pool, again));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1000, NULL)));
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_free(f.pool, large));
    kn_sim_drain(f.sim);
    fixture_end(&f);
}

static void pause_waits_for_work_that_uses_the_memory(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    void *x = must_alloc(f.pool, 4 * MiB, stream);
    kn_sim_work(f.sim, stream, x, 4 * MiB, 1);
    assert_ok(kn_pool_pause(NULL, f.pool, NULL));
    assert_int_equal(kn_sim_pending(f.sim, stream), 0);
    assert_no_violation(f.sim);
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_ok(kn_free(f.pool, x));
    fixture_end(&f);
}

static void paused_tag_leaves_the_rest_of_the_pool_in_use(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    size_t dropped = 0;
    void *other = tagged(f.pool, "cache", 30 * MiB + 512);
    void *weights[4], *small = tagged(f.pool, "weights", 1000);
    for (int i = 0; i < 4; i++) weights[i] = tagged(f.pool, "weights", 10 * MiB + 512);
    void *last = tagged(f.pool, "cache", 5 * MiB);
    uint64_t before = kn_sim_bytes(f.sim);
    assert_ok(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = "weights", .keep = true}));
    assert_true(dropped >= 34 * MiB && dropped <= 42 * MiB);
    assert_int_equal(kn_sim_bytes(f.sim), before - dropped);
    kn_sim_work(f.sim, NULL, other, 30 * MiB, 1);
    kn_sim_work(f.sim, NULL, last, 5 * MiB, 2);
    kn_sim_work(f.sim, NULL, small, 1000, 3); /* shares its handle */
    kn_sim_drain(f.sim);
    assert_no_violation(f.sim);
    uint64_t misuses = stats_of(f.pool).n_misuses;
    assert_fails(kn_free(f.pool, weights[1]), KN_ERR_INVALID, "is paused");
    assert_int_equal(stats_of(f.pool).n_misuses, misuses + 1);
    for (int i = 0; i < 50; i++) { /* no address of a paused block is handed out */
        void *x = must_alloc(f.pool, (size_t)(i + 1) * 300 * KiB, NULL);
        kn_sim_work(f.sim, NULL, x, (size_t)(i + 1) * 300 * KiB, 10 + (uint64_t)i);
        assert_ok(kn_free(f.pool, x));
    }
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_ok(kn_pool_check(f.pool));
    assert_ok(kn_pool_resume(f.pool, "weights"));
    for (int i = 0; i < 4; i++) {
        kn_sim_work(f.sim, NULL, weights[i], 10 * MiB, 100 + (uint64_t)i);
        assert_ok(kn_free(f.pool, weights[i]));
    }
    assert_ok(kn_free(f.pool, other));
    assert_ok(kn_free(f.pool, last));
    kn_sim_drain(f.sim);
    fixture_end(&f);
}

static void tags_and_the_rest_are_paused_and_resumed_one_by_one(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    size_t a = 0, b = 0, rest = 0;
    void *x = tagged(f.pool, "a", 20 * MiB), *y = tagged(f.pool, "b", 20 * MiB), *none = NULL;
    assert_ok(kn_pool_pause(&a, f.pool, &(kn_pause_options){.tag = "a"}));
    assert_ok(kn_pool_pause(&b, f.pool, &(kn_pause_options){.tag = "b", .keep = true}));
    assert_ok(kn_pool_pause(&rest, f.pool, NULL));
    assert_true(a && b);
    assert_int_equal(kn_sim_bytes(f.sim), 0);
    assert_int_equal(kn_pool_paused_bytes(f.pool), a + b + rest);
    assert_ok(kn_pool_resume(f.pool, "a"));
    assert_int_equal(kn_sim_bytes(f.sim), a);
    assert_fails(kn_alloc(&none, f.pool, 1000, NULL), KN_ERR_INVALID, "is paused");
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_int_equal(kn_sim_bytes(f.sim), a + b + rest);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

enum { NAMES = 120 }; /* a lost race takes two of the 254 that a process has */

static void name_of(char out[16], int i) { snprintf(out, 16, "both %d", i); }

/* Two threads go through the names side by side. */
static void *push_names(void *ctx) {
    atomic_int *arrived = ctx;
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        name_of(name, i);
        atomic_fetch_add(arrived, 1);
        while (atomic_load(arrived) < 2 * (i + 1)) continue;
        kn_tag_push(name);
        kn_tag_pop();
    }
    return NULL;
}

static void tag_that_two_threads_used_first_at_once_is_paused(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    atomic_int arrived = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, push_names, &arrived), 0);
    push_names(&arrived);
    pthread_join(thread, NULL);
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        size_t dropped = 0;
        name_of(name, i);
        void *x = tagged(f.pool, name, 4 * MiB);
        assert_ok(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = name}));
        assert_true(dropped >= 4 * MiB);
        assert_ok(kn_pool_resume(f.pool, name));
        assert_ok(kn_free(f.pool, x));
    }
    fixture_end(&f);
}

/* On a device, and below a limit, of half a gigabyte. */
static void freed_memory_of_a_resumed_tag_makes_room_for_the_paused_pool(void **state) {
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        kn_pool_options limit = {.limit_bytes = 512 * MiB};
        fixture f = fixture_make(limited ? 2 * GiB : 512 * MiB, false, limited ? &limit : NULL);
        void *x = tagged(f.pool, "a", 300 * MiB);
        assert_ok(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "a"}));
        void *y = must_alloc(f.pool, 400 * MiB, NULL);
        assert_ok(kn_pool_pause(NULL, f.pool, NULL));
        assert_ok(kn_pool_resume(f.pool, "a"));
        assert_fails(kn_pool_resume(f.pool, NULL), KN_ERR_OOM, "");
        assert_ok(kn_free(f.pool, x));
        if (limited) assert_ok(kn_free(f.pool, y));
        assert_ok(kn_pool_sync(f.pool));
        assert_ok(kn_pool_trim(f.pool, 0));
        assert_ok(kn_pool_check(f.pool));
        assert_int_equal(kn_sim_bytes(f.sim), 0);
        assert_ok(kn_pool_resume(f.pool, NULL));
        if (!limited) {
            kn_sim_work(f.sim, NULL, y, 400 * MiB, 1);
            assert_ok(kn_free(f.pool, y));
        }
        x = must_alloc(f.pool, 420 * MiB, NULL);
        kn_sim_work(f.sim, NULL, x, 420 * MiB, 2);
        assert_ok(kn_free(f.pool, x));
        kn_sim_drain(f.sim);
        fixture_end(&f);
    }
}

static void memory_that_a_failed_resume_got_back_is_not_trimmed(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *x = must_alloc(f.pool, 8 * MiB, NULL), *y = must_alloc(f.pool, 8 * MiB, NULL);
    assert_ok(kn_pool_pause(NULL, f.pool, &KEEP));
    kn_sim_fail(f.sim, KN_SIM_COPY, 1, false);
    assert_true(kn_pool_resume(f.pool, NULL) < 0);
    uint64_t bytes = kn_sim_bytes(f.sim);
    assert_true(bytes >= 16 * MiB);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_pool_sync(f.pool));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(kn_sim_bytes(f.sim), bytes);
    assert_ok(kn_pool_resume(f.pool, NULL));
    kn_sim_work(f.sim, NULL, y, 8 * MiB, 1);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_pool_trim(f.pool, 0));
    fixture_end(&f);
}

static void wrong_calls_are_errors_and_change_nothing(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL), plain = fixture_make(1 * GiB, true, NULL);
    void *x = tagged(f.pool, "there", 8 * MiB);
    kn_pause_options odd = {.reserved = {0, 1}}, there = {.tag = "there"};
    assert_fails(kn_pool_resume(f.pool, NULL), KN_ERR_INVALID, "nothing of pool");
    assert_fails(kn_pool_pause(NULL, f.pool, &odd), KN_ERR_INVALID, "reserved[1]");
    assert_fails(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "their"}), KN_ERR_INVALID,
                 "no memory has the tag 'their'");
    assert_fails(kn_pool_pause(NULL, plain.pool, NULL), KN_ERR_UNSUPPORTED, "no virtual memory");
    assert_ok(kn_pool_pause(NULL, f.pool, &there));
    assert_fails(kn_pool_pause(NULL, f.pool, &there), KN_ERR_INVALID, "that tag is paused already");
    assert_fails(kn_pool_resume(f.pool, "elsewhere"), KN_ERR_INVALID, "with the tag elsewhere");
    assert_ok(kn_pool_pause(NULL, f.pool, NULL));
    assert_fails(kn_pool_pause(NULL, f.pool, NULL), KN_ERR_INVALID, "is paused already");
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_ok(kn_free(f.pool, x));
    fixture_end(&f);
    fixture_end(&plain);
}

static void resume_keeps_to_the_limit_and_can_be_tried_again(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 64 * MiB});
    void *x = tagged(f.pool, "x", 40 * MiB);
    size_t dropped = 0;
    assert_ok(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = "x"}));
    void *y = must_alloc(f.pool, 40 * MiB, NULL);
    assert_fails(kn_pool_resume(f.pool, NULL), KN_ERR_OOM, "beyond the limit");
    assert_int_equal(kn_pool_paused_bytes(f.pool), dropped);
    assert_ok(kn_pool_check(f.pool));
    assert_ok(kn_free(f.pool, y)); /* free memory makes room */
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_resume(f.pool, NULL));
    kn_sim_work(f.sim, NULL, x, 40 * MiB, 1);
    assert_true(kn_sim_bytes(f.sim) <= 64 * MiB);
    assert_ok(kn_free(f.pool, x));
    kn_sim_drain(f.sim);
    fixture_end(&f);
}

/* Slots that the thread keeps of several streams fill the pool up to its limit. */
static void resume_finds_room_in_threads_caches(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 64 * MiB});
    void *x = tagged(f.pool, "x", 40 * MiB);
    assert_ok(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "x"}));
    for (int i = 0; i < 8; i++) {
        kn_stream stream = new_stream(&f);
        for (size_t size = 1000; size < 60000; size += size / 8) {
            assert_ok(kn_free(f.pool, must_alloc(f.pool, size, stream)));
        }
    }
    assert_true(stats_of(f.pool).reserved_bytes > 24 * MiB);
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_true(stats_of(f.pool).reserved_bytes <= 64 * MiB);
    assert_ok(kn_free(f.pool, x));
    fixture_end(&f);
}

static void resume_finds_room_in_the_pools_free_memory(void **state) {
    (void)state;
    fixture f = fixture_make(512 * MiB, false, NULL);
    void *x = tagged(f.pool, "x", 300 * MiB);
    assert_ok(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "x", .keep = true}));
    void *y = must_alloc(f.pool, 400 * MiB, NULL);
    assert_fails(kn_pool_resume(f.pool, "x"), KN_ERR_OOM, "");
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_pool_resume(f.pool, "x"));
    kn_sim_work(f.sim, NULL, x, 300 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    kn_sim_drain(f.sim);
    fixture_end(&f);
}

/* Large requests are mapped in large handles, in which two blocks may lie. */
static void handle_of_two_blocks_stays(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 600 * MiB, NULL)));
    void *x = tagged(f.pool, "x", 301 * MiB), *y = tagged(f.pool, "y", 299 * MiB);
    size_t dropped = 0;
    assert_ok(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = "x"}));
    assert_true(dropped > 280 * MiB && dropped < 301 * MiB);
    kn_sim_work(f.sim, NULL, y, 299 * MiB, 1);
    kn_sim_drain(f.sim);
    assert_no_violation(f.sim);
    assert_ok(kn_pool_resume(f.pool, "x"));
    kn_sim_work(f.sim, NULL, x, 301 * MiB, 2);
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    kn_sim_drain(f.sim);
    fixture_end(&f);
}

static void resume_that_fails_half_way_gives_back_what_it_got(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *x = tagged(f.pool, "x", 8 * MiB), *y = tagged(f.pool, "y", 8 * MiB);
    void *z = tagged(f.pool, "x", 8 * MiB);
    assert_ok(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "x"}));
    uint64_t bytes = kn_sim_bytes(f.sim);
    kn_sim_fail(f.sim, KN_SIM_RANGE_ACCESS, 2, false); /* of the second run of addresses */
    assert_true(kn_pool_resume(f.pool, NULL) < 0);
    assert_int_equal(kn_sim_bytes(f.sim), bytes);
    assert_ok(kn_pool_resume(f.pool, NULL));
    assert_true(kn_sim_bytes(f.sim) > bytes);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

static void paused_pool_can_be_destroyed(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *x = must_alloc(f.pool, 8 * MiB, NULL);
    assert_ok(kn_pool_pause(NULL, f.pool, &KEEP));
    assert_ok(kn_free(f.pool, x));
    fixture_end(&f);
}

/* Every call fails: the nth once, or all from the nth on. Returns how many were made. */
static uint64_t pause_with_failure(uint64_t nth, bool forever) {
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *x = tagged(f.pool, "x", 12 * MiB), *y = must_alloc(f.pool, 7 * MiB, NULL);
    kn_pause_options tag = {.tag = "x", .keep = true};
    uint64_t reserved = kn_sim_bytes(f.sim), before = kn_sim_calls(f.sim, KN_SIM_ANY);
    kn_sim_fail(f.sim, KN_SIM_ANY, nth, forever);
    bool first = kn_pool_pause(NULL, f.pool, &tag) == KN_OK;
    bool second = kn_pool_pause(NULL, f.pool, &KEEP) == KN_OK;
    bool paused = kn_pool_paused_bytes(f.pool) > 0;
    if (!first && !second && !forever) assert_false(paused);
    assert_ok(kn_pool_check(f.pool));
    if (paused && kn_pool_resume(f.pool, NULL) < 0) assert_ok(kn_pool_check(f.pool));
    uint64_t calls = kn_sim_calls(f.sim, KN_SIM_ANY) - before;
    kn_sim_fail(f.sim, KN_SIM_ANY, 0, false);
    if (kn_pool_paused_bytes(f.pool)) assert_ok(kn_pool_resume(f.pool, NULL));
    assert_int_equal(kn_sim_bytes(f.sim), reserved);
    assert_int_equal(stats_of(f.pool).reserved_bytes, reserved);
    kn_sim_work(f.sim, NULL, x, 12 * MiB, 1);
    kn_sim_work(f.sim, NULL, y, 7 * MiB, 2);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    kn_sim_drain(f.sim);
    fixture_end(&f);
    return calls;
}

static void every_call_fails_once_and_from_then_on(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++) {
        uint64_t n = 1;
        while (pause_with_failure(n, forever) >= n) n++;
        assert_true(n > 20);
    }
}

/* The host. */

static kn_pool *host_pool(void) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    return pool;
}

static void host_keeps_contents_that_it_is_asked_to_keep(void **state) {
    (void)state;
    kn_pool *pool = host_pool();
    unsigned char *large = must_alloc(pool, 5 * MiB, NULL), *small = must_alloc(pool, 777, NULL);
    size_t dropped = 0;
    for (size_t i = 0; i < 5 * MiB; i++) large[i] = (unsigned char)(i % 251);
    memset(small, 77, 777);
    assert_ok(kn_pool_pause(&dropped, pool, &KEEP));
    assert_true(dropped >= 5 * MiB);
    assert_int_equal(large[3 * MiB], 0); /* its page is gone */
    assert_ok(kn_pool_resume(pool, NULL));
    for (size_t i = 0; i < 5 * MiB; i += 97) assert_int_equal(large[i], i % 251);
    for (size_t i = 0; i < 777; i++) assert_int_equal(small[i], 77);
    assert_ok(kn_free(pool, large));
    assert_ok(kn_free(pool, small));
    assert_ok(kn_pool_check(pool));
    kn_pool_destroy(pool);
}

/* Whichever pause ends first, the tag's own contents come back. */
static void host_keeps_contents_of_a_tag_within_a_paused_pool(void **state) {
    (void)state;
    for (int all_at_once = 0; all_at_once < 2; all_at_once++) {
        kn_pool *pool = NULL;
        size_t of_tag = 0, rest = 0;
        assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
        char *x = tagged(pool, "weights", 4 * MiB + 512), *y = must_alloc(pool, 4 * MiB, NULL);
        memset(x, 7, 4 * MiB + 512);
        memset(y, 9, 4 * MiB);
        kn_pause_options weights = {.tag = "weights", .keep = true};
        assert_ok(kn_pool_pause(&of_tag, pool, &weights));
        assert_ok(kn_pool_pause(&rest, pool, &KEEP));
        assert_int_equal(kn_pool_paused_bytes(pool), of_tag + rest);
        assert_true(kn_pool_paused_bytes(pool) <= stats_of(pool).reserved_bytes);
        if (!all_at_once) {
            assert_ok(kn_pool_resume(pool, "weights"));
            for (size_t i = 0; i < 4 * MiB + 512; i++) assert_int_equal(x[i], 7);
            x[2 * MiB] = 8; /* written meanwhile */
        }
        assert_ok(kn_pool_resume(pool, NULL));
        for (size_t i = 0; i < 4 * MiB + 512; i++) {
            assert_int_equal(x[i], !all_at_once && i == 2 * MiB ? 8 : 7);
        }
        for (size_t i = 0; i < 4 * MiB; i++) assert_int_equal(y[i], 9);
        assert_ok(kn_pool_check(pool));
        assert_ok(kn_free(pool, x));
        assert_ok(kn_free(pool, y));
        kn_pool_destroy(pool);
    }
}

static void host_drops_a_tag_alone(void **state) {
    (void)state;
    kn_pool *pool = host_pool();
    unsigned char *x = tagged(pool, "x", 3 * MiB), *y = tagged(pool, "y", 3 * MiB);
    memset(x, 1, 3 * MiB);
    memset(y, 2, 3 * MiB);
    assert_ok(kn_pool_pause(NULL, pool, &(kn_pause_options){.tag = "x"}));
    assert_int_equal(x[MiB], 0);
    for (size_t i = 0; i < 3 * MiB; i += 61) assert_int_equal(y[i], 2);
    assert_fails(kn_free(pool, x), KN_ERR_INVALID, "is paused");
    assert_ok(kn_pool_resume(pool, "x"));
    assert_ok(kn_free(pool, x));
    assert_ok(kn_free(pool, y));
    kn_pool_destroy(pool);
}

/* In several segments, the later ones where a large one was, so that they are in no order of
 * address; no two pieces touch. */
static void host_refuses_to_free_each_block_of_a_paused_tag(void **state) {
    (void)state;
    enum { N = 300 };
    kn_pool *pool = host_pool();
    char *tagged_blocks[N], *others[N];
    size_t dropped = 0;
    void *place = must_alloc(pool, 256 * MiB, NULL);
    for (int i = 0; i < N; i++) {
        if (i == N / 2) {
            assert_ok(kn_free(pool, place));
            assert_ok(kn_pool_trim(pool, 0));
        }
        tagged_blocks[i] = tagged(pool, "x", 256 * KiB + 512);
        others[i] = must_alloc(pool, 128 * KiB, NULL);
        others[i][0] = tagged_blocks[i][0] = 1;
    }
    assert_ok(kn_pool_pause(&dropped, pool, &(kn_pause_options){.tag = "x", .keep = true}));
    assert_true(dropped >= N * 256 * KiB && dropped < N * 384 * KiB);
    for (int i = 0; i < N; i++) {
        assert_fails(kn_free(pool, tagged_blocks[i]), KN_ERR_INVALID, "is paused");
        if (i % 2) assert_ok(kn_free(pool, others[i]));
    }
    assert_ok(kn_pool_pause(NULL, pool, &KEEP));
    assert_true(kn_pool_paused_bytes(pool) <= stats_of(pool).reserved_bytes);
    assert_ok(kn_pool_resume(pool, NULL));
    for (int i = 0; i < N; i++) {
        assert_int_equal(tagged_blocks[i][0], 1);
        assert_ok(kn_free(pool, tagged_blocks[i]));
        if (i % 2) continue;
        assert_int_equal(others[i][0], 1);
        assert_ok(kn_free(pool, others[i]));
    }
    assert_ok(kn_pool_check(pool));
    kn_pool_destroy(pool);
}

int main(void) {
    return RUN_TESTS(
        TEST(paused_pool_holds_no_memory_and_keeps_its_addresses),
        TEST(pause_waits_for_work_that_uses_the_memory),
        TEST(paused_tag_leaves_the_rest_of_the_pool_in_use),
        TEST(tags_and_the_rest_are_paused_and_resumed_one_by_one),
        TEST(freed_memory_of_a_resumed_tag_makes_room_for_the_paused_pool),
        TEST(memory_that_a_failed_resume_got_back_is_not_trimmed),
        TEST(wrong_calls_are_errors_and_change_nothing),
        TEST(resume_keeps_to_the_limit_and_can_be_tried_again),
        TEST(resume_finds_room_in_threads_caches), TEST(resume_finds_room_in_the_pools_free_memory),
        TEST(handle_of_two_blocks_stays), TEST(resume_that_fails_half_way_gives_back_what_it_got),
        TEST(paused_pool_can_be_destroyed), TEST(tag_that_two_threads_used_first_at_once_is_paused),
        TEST(every_call_fails_once_and_from_then_on),
        TEST(host_keeps_contents_that_it_is_asked_to_keep),
        TEST(host_keeps_contents_of_a_tag_within_a_paused_pool), TEST(host_drops_a_tag_alone),
        TEST(host_refuses_to_free_each_block_of_a_paused_tag));
}
