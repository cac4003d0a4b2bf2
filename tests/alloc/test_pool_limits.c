/* Limits, trimming, harvest and out-of-memory callbacks of one stream, on the simulated device. */
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "core/pool_state.h"
#include "pool_fixture.h"

static void option_errors_name_the_option(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool *pool = NULL;
    struct {
        kn_pool_options options;
        const char *text;
    } cases[] = {
        {{.reserved = {0, 0, 1, 0}}, "reserved[2]"},
        {{.device_fraction = 1.5}, "device_fraction is 1.5"},
        {{.device_fraction = -1}, "device_fraction is -1"},
        {{.device_fraction = NAN}, "not in (0, 1]"},
        {{.device_fraction = 0.5, .soft_limit_bytes = 600 * MiB},
         "above device_fraction 0.5 of sim"},
        {{.slab_max_bytes = 100}, "slab_max_bytes is 100"},
        {{.slab_max_bytes = 2 * MiB}, "slab_max_bytes is 2097152"},
        {{.limit_bytes = 2 * GiB}, "limit_bytes is 2147483648"},
        {{.limit_bytes = MiB, .soft_limit_bytes = 2 * MiB}, "soft_limit_bytes is 2097152"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(kn_pool_create(&pool, f.device, &cases[i].options), KN_ERR_INVALID,
                     cases[i].text);
        assert_null(pool);
    }
    fixture_end(&f);
}

static void limit_holds_and_pool_stays_usable(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 8 * MiB});
    void *a = must_alloc(f.pool, 5 * MiB, NULL), *b = NULL;
    assert_fails(kn_alloc(&b, f.pool, 5 * MiB, NULL), KN_ERR_OOM,
                 "5.00 MiB asked for; live 5.00 MiB");
    assert_non_null(strstr(kn_last_error()->message, "waiting for other streams 0 bytes"));
    assert_null(b);
    assert_true(stats_of(f.pool).reserved_bytes <= 8 * MiB);
    assert_ok(kn_free(f.pool, a));
    b = must_alloc(f.pool, 7 * MiB, NULL);
    assert_ok(kn_free(f.pool, b));
    assert_int_equal(stats_of(f.pool).n_ooms, 1);
    assert_fails(kn_alloc(&b, f.pool, SIZE_MAX, NULL), KN_ERR_OOM, "more than any device has");
    assert_int_equal(stats_of(f.pool).n_ooms, 2);
    fixture_end(&f);
}

/* Also where the device says of itself that it has all the memory there is. */
static void requests_beyond_all_addresses_fail(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(UINT64_MAX, plain, NULL);
        void *a = must_alloc(f.pool, 1 * MiB, NULL), *b = NULL;
        assert_fails(kn_alloc(&b, f.pool, ((size_t)1 << 43) + 1, NULL), KN_ERR_OOM,
                     "more than any device has");
        assert_null(b);
        if (!plain) /* fewer, and more than its range of addresses */
            assert_fails(kn_alloc(&b, f.pool, (size_t)1 << 41, NULL), KN_ERR_OOM, "no room for");
        assert_int_equal(stats_of(f.pool).n_ooms, 2 - plain);
        assert_ok(kn_free(f.pool, a));
        fixture_end(&f);
    }
}

static void fraction_of_the_device_is_a_limit(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, &(kn_pool_options){.device_fraction = 0.25});
    void *a = must_alloc(f.pool, 16 * MiB, NULL), *b = NULL;
    assert_fails(kn_alloc(&b, f.pool, 1 * MiB, NULL), KN_ERR_OOM, "limit of 16.0 MiB");
    assert_ok(kn_free(f.pool, a));
    fixture_end(&f);
}

static void lowered_limit_gives_back(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *a = must_alloc(f.pool, 4 * MiB, NULL), *b = must_alloc(f.pool, 32 * MiB, NULL);
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_stream_sync(f.device, NULL));
    assert_ok(kn_pool_limit(f.pool, 8 * MiB));
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_limit(f.pool, 8 * MiB));
    assert_true(stats_of(f.pool).reserved_bytes <= 8 * MiB);
    assert_ok(kn_pool_limit(f.pool, 0));
    b = must_alloc(f.pool, 32 * MiB, NULL);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* In the pool's own calls, once the stream is done with it. */
static void limit_below_what_is_live_holds_once_that_is_freed(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(1 * GiB, plain, NULL);
        void *big = must_alloc(f.pool, 100 * MiB, NULL), *small = must_alloc(f.pool, 1000, NULL);
        void *none = NULL;
        kn_sim_work(f.sim, NULL, big, 100 * MiB, 1);
        assert_ok(kn_pool_limit(f.pool, 50 * MiB));
        assert_true(stats_of(f.pool).reserved_bytes >= 100 * MiB);
        assert_ok(kn_free(f.pool, big));
        assert_true(stats_of(f.pool).reserved_bytes >= 100 * MiB); /* the device is at work on it */
        for (int ms = 0; ms < 10000 && stats_of(f.pool).reserved_bytes > 50 * MiB; ms++) {
            kn_sim_drain(f.sim);
            usleep(1000);
        }
        assert_true(stats_of(f.pool).reserved_bytes <= 50 * MiB);
        assert_fails(kn_alloc(&none, f.pool, 80 * MiB, NULL), KN_ERR_OOM, "limit of 50.0 MiB");
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 10 * MiB, NULL)));
        assert_ok(kn_free(f.pool, small));
        fixture_end(&f);
    }
}

/* 100 MiB that the stream is done with, at a limit of 10. */
static fixture fixture_above_its_limit(kn_stream *stream) {
    fixture f = fixture_make(1 * GiB, false, NULL);
    *stream = new_stream(&f);
    void *big = must_alloc(f.pool, 100 * MiB, *stream);
    kn_sim_work(f.sim, *stream, big, 100 * MiB, 1);
    assert_ok(kn_free(f.pool, big));
    assert_ok(kn_pool_limit(f.pool, 10 * MiB));
    kn_sim_drain(f.sim);
    return f;
}

/* Each piece of it is cut out of the large block, and would make all of that young again. */
static void a_stream_that_never_rests_keeps_what_it_uses_alone(void **state) {
    (void)state;
    static const size_t sizes[] = {1000, 100000, 3000000};
    for (int i = 0; i < 3; i++) {
        kn_stream stream;
        fixture f = fixture_above_its_limit(&stream);
        for (int n = 0; n < 10000 && stats_of(f.pool).reserved_bytes > 10 * MiB; n++) {
            void *ptr = must_alloc(f.pool, sizes[i], stream);
            kn_sim_work(f.sim, stream, ptr, sizes[i], (uint64_t)n);
            assert_ok(kn_free(f.pool, ptr));
            while (kn_sim_pending(f.sim, stream) > 4) (void)kn_sim_step(f.sim, stream);
            usleep(100);
        }
        assert_true(stats_of(f.pool).reserved_bytes <= 10 * MiB);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        fixture_end(&f);
    }
}

/* They take no lock, and have the pool look at its limit all the same; no longer once it holds. */
static void small_allocations_alone_reach_a_lowered_limit(void **state) {
    (void)state;
    enum { N = 100, MOST_MS = 10000 };
    fixture f = fixture_instant(1 * GiB, NULL);
    kn_stream stream = new_stream(&f);
    void *small = must_alloc(f.pool, 1000, stream), *big[N];
    for (int i = 0; i < N; i++) big[i] = must_alloc(f.pool, 1 * MiB, stream);
    assert_ok(kn_pool_limit(f.pool, 8 * MiB));
    for (int i = 0; i < N; i++) assert_ok(kn_free(f.pool, big[i]));
    assert_true(kn_sim_bytes(f.sim) > 8 * MiB);
    for (int ms = 0; ms < MOST_MS && kn_sim_bytes(f.sim) > 8 * MiB; ms++) {
        for (int i = 0; i < 100; i++) {
            assert_ok(kn_free(f.pool, must_alloc(f.pool, 500, stream)));
        }
        usleep(1000);
    }
    assert_true(kn_sim_bytes(f.sim) <= 8 * MiB); /* the pool is not asked: that takes its lock */
    assert_int_equal(KN__READ(f.pool->fast_max), f.pool->slab_max);
    assert_ok(kn_free(f.pool, small));
    fixture_end(&f);
}

/* Neighbours, at work, that are freed at two times: above the limit they are kept apart. */
static void free_at_two_times(fixture *f, kn_stream stream) {
    void *a = must_alloc(f->pool, 30 * MiB, stream), *b = must_alloc(f->pool, 30 * MiB, stream);
    kn_sim_work(f->sim, stream, a, 30 * MiB, 1);
    kn_sim_work(f->sim, stream, b, 30 * MiB, 2);
    assert_ok(kn_pool_limit(f->pool, 10 * MiB));
    assert_ok(kn_free(f->pool, a));
    assert_ok(kn_pool_trim(f->pool, 10 * MiB)); /* an event says when that is done with */
    assert_ok(kn_free(f->pool, b));
    assert_ok(kn_pool_check(f->pool));
}

static void above_the_limit_neighbours_serve_a_request_with_no_wait(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    free_at_two_times(&f, stream);
    uint64_t n_allocs = stats_of(f.pool).n_device_allocs;
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 60 * MiB, stream)));
    assert_int_equal(stats_of(f.pool).n_device_allocs, n_allocs);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_true(kn_sim_pending(f.sim, stream) > 0);
    assert_ok(kn_pool_limit(f.pool, 0));
    free_at_two_times(&f, stream);
    assert_ok(kn_pool_limit(f.pool, 0));
    assert_ok(kn_pool_check(f.pool)); /* it finds all neighbours merged */
    fixture_end(&f);
}

/* One after another, while others are allocated: the last free ends it. */
static void limit_below_what_is_live_holds_on_the_host(void **state) {
    (void)state;
    enum { N = 200 };
    kn_pool *pool = NULL;
    void *live[N];
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    for (int i = 0; i < N; i++) live[i] = must_alloc(pool, 1 * MiB, NULL);
    assert_ok(kn_pool_limit(pool, 40 * MiB));
    for (int i = 0; i < N; i++) {
        assert_ok(kn_free(pool, live[i]));
        assert_ok(kn_free(pool, must_alloc(pool, 700 * KiB, NULL)));
    }
    assert_true(stats_of(pool).reserved_bytes <= 40 * MiB);
    assert_ok(kn_pool_check(pool));
    kn_pool_destroy(pool);
}

/* Blocks larger than half of a segment leave an older rest in each. */
static void above_the_limit_all_free_memory_of_the_host_goes_back(void **state) {
    (void)state;
    enum { N = 20 };
    kn_pool *pool = NULL;
    void *live[N];
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    for (int i = 0; i < N; i++) live[i] = must_alloc(pool, 20 * MiB, NULL);
    assert_ok(kn_pool_limit(pool, 64 * MiB));
    for (int i = 0; i < N; i++) assert_ok(kn_free(pool, live[i]));
    assert_true(stats_of(pool).reserved_bytes <= 64 * MiB);
    assert_ok(kn_pool_trim(pool, 0));
    assert_int_equal(stats_of(pool).reserved_bytes, 0);
    kn_pool_destroy(pool);
}

static void limit_beyond_the_device_is_refused_and_changes_nothing(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    assert_ok(kn_pool_limit(f.pool, 16 * MiB));
    const size_t sizes[] = {64 * MiB + 1, SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        assert_fails(kn_pool_limit(f.pool, sizes[i]), KN_ERR_INVALID, "has 67108864 bytes");
        assert_non_null(strstr(kn_last_error()->message, "kn_pool_limit: limit_bytes is "));
        kn_pool_options options;
        kn_pool_options_read(&options, sizeof options, f.pool);
        assert_int_equal(options.limit_bytes, 16 * MiB);
        assert_ok(kn_pool_options_set(f.pool, &options));
        assert_ok(kn_pool_configure(f.pool, "decay=10s"));
    }
    assert_ok(kn_pool_limit(f.pool, 64 * MiB));
    fixture_end(&f);
}

static void trim_keeps_the_requested_bytes(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(2 * GiB, plain, NULL);
        void *small = must_alloc(f.pool, 1000, NULL);
        void *live[6];
        for (int i = 0; i < 6; i++) live[i] = must_alloc(f.pool, 64 * MiB, NULL);
        for (int i = 0; i < 6; i++) assert_ok(kn_free(f.pool, live[i]));
        uint64_t before = stats_of(f.pool).reserved_bytes;
        assert_true(before >= 384 * MiB);
        assert_ok(kn_pool_trim(f.pool, before));
        assert_int_equal(stats_of(f.pool).reserved_bytes, before);
        for (int i = 0; i < 2; i++) {
            assert_ok(kn_pool_trim(f.pool, 200 * MiB));
            kn_sim_drain(f.sim);
        }
        assert_true(stats_of(f.pool).reserved_bytes <= 200 * MiB);
        assert_true(stats_of(f.pool).reserved_bytes >= 64 * MiB);
        assert_int_equal(kn_sim_bytes(f.sim), stats_of(f.pool).reserved_bytes);
        assert_ok(kn_free(f.pool, small));
        fixture_end(&f);
    }
}

/* Fragmented to the limit, the pool moves free memory to where it is wanted. */
static void harvest_serves_a_request_that_fragments_cannot(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 64 * MiB});
    void *live[32];
    for (int i = 0; i < 32; i++) live[i] = must_alloc(f.pool, 2 * MiB, NULL);
    for (int i = 0; i < 32; i += 2) assert_ok(kn_free(f.pool, live[i]));
    uint64_t created = kn_sim_calls(f.sim, KN_SIM_HANDLE_CREATE);
    void *big = must_alloc(f.pool, 30 * MiB, NULL);
    kn_sim_work(f.sim, NULL, big, 30 * MiB, 1);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_CREATE), created);
    assert_true(stats_of(f.pool).moved_bytes >= 28 * MiB);
    assert_true(stats_of(f.pool).reserved_bytes <= 64 * MiB);
    assert_ok(kn_pool_check(f.pool));
    assert_ok(kn_free(f.pool, big));
    for (int i = 1; i < 32; i += 2) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
}

/* The only free handle is larger than the hole: it can't be moved, and nothing may be added. */
static void harvest_stays_below_the_limit(void **state) {
    (void)state;
    fixture f = fixture_make(8 * GiB, false, NULL);
    void *left = must_alloc(f.pool, 4 * MiB, NULL), *gone = must_alloc(f.pool, 2 * MiB, NULL);
    void *rest = must_alloc(f.pool, 1 * GiB, NULL); /* from here on handles are larger */
    uint64_t created = kn_sim_calls(f.sim, KN_SIM_HANDLE_CREATE);
    void *large = must_alloc(f.pool, 4 * MiB, NULL), *big = NULL;
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_CREATE), created + 1);
    assert_ok(kn_free(f.pool, gone));
    size_t limit = stats_of(f.pool).reserved_bytes - 2 * MiB;
    assert_ok(kn_pool_trim(f.pool, limit)); /* records the event of the free */
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_trim(f.pool, limit)); /* leaves a hole of 2 MiB */
    assert_int_equal(stats_of(f.pool).reserved_bytes, limit);
    assert_ok(kn_pool_limit(f.pool, limit));
    assert_ok(kn_free(f.pool, left));
    assert_ok(kn_free(f.pool, large));
    assert_fails(kn_alloc(&big, f.pool, 10 * MiB, NULL), KN_ERR_OOM, "limit");
    assert_int_equal(stats_of(f.pool).reserved_bytes_max, limit + 2 * MiB);
    assert_true(stats_of(f.pool).reserved_bytes <= limit);
    assert_int_equal(stats_of(f.pool).moved_bytes, 0);
    assert_ok(kn_free(f.pool, rest));
    fixture_end(&f);
}

static void plain_segments_are_given_back_for_a_bigger_one(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, true, &(kn_pool_options){.limit_bytes = 96 * MiB});
    void *a = must_alloc(f.pool, 32 * MiB, NULL), *b = must_alloc(f.pool, 32 * MiB, NULL);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    void *big = must_alloc(f.pool, 80 * MiB, NULL);
    assert_true(stats_of(f.pool).reserved_bytes <= 96 * MiB);
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

/* Callbacks. */

typedef struct hoard {
    void *ptr;
    int n_calls;
} hoard;

static size_t give_up_hoard(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    hoard *h = ctx;
    h->n_calls++;
    if (!h->ptr) return 0;
    kn_free(pool, h->ptr);
    h->ptr = NULL;
    return wanted_bytes;
}

static void callback_may_free_the_wanted_memory(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 16 * MiB});
    hoard h = {must_alloc(f.pool, 12 * MiB, NULL), 0};
    assert_ok(kn_pool_oom_attach(f.pool, give_up_hoard, &h));
    void *big = must_alloc(f.pool, 10 * MiB, NULL), *more = NULL;
    assert_int_equal(h.n_calls, 1);
    assert_fails(kn_alloc(&more, f.pool, 10 * MiB, NULL), KN_ERR_OOM, "out of memory");
    assert_int_equal(h.n_calls, 2);
    kn_pool_oom_detach(f.pool, give_up_hoard, &h);
    assert_fails(kn_alloc(&more, f.pool, 10 * MiB, NULL), KN_ERR_OOM, "out of memory");
    assert_int_equal(h.n_calls, 2);
    assert_fails(kn_pool_oom_attach(f.pool, NULL, NULL), KN_ERR_INVALID, "NULL");
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

typedef struct entries {
    void *ptrs[32];
    int n, n_calls;
    bool lies; /* it says that it freed memory, and frees none */
} entries;

static size_t give_up_one(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    entries *e = ctx;
    (void)wanted_bytes;
    e->n_calls++;
    if (e->lies) return 1;
    if (!e->n) return 0;
    kn_free(pool, e->ptrs[--e->n]);
    return 4 * MiB;
}

/* On devices with virtual memory, and without. */
static void callbacks_are_called_while_they_free_memory(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(1 * GiB, plain, &(kn_pool_options){.limit_bytes = 32 * MiB});
        entries e = {.n = 8};
        for (int i = 0; i < 8; i++) e.ptrs[i] = must_alloc(f.pool, 4 * MiB, NULL);
        assert_ok(kn_pool_oom_attach(f.pool, give_up_one, &e));
        void *big = must_alloc(f.pool, 12 * MiB, NULL), *more = NULL;
        assert_int_equal(e.n_calls, 3); /* no more than are needed */
        assert_int_equal(e.n, 5);
        assert_fails(kn_alloc(&more, f.pool, 40 * MiB, NULL), KN_ERR_OOM, "out of memory");
        assert_int_equal(e.n_calls, 4); /* it never fits */
        assert_fails(kn_alloc(&more, f.pool, 24 * MiB, NULL), KN_ERR_OOM, "out of memory");
        assert_int_equal(e.n_calls, 9);
        e.lies = true;
        assert_fails(kn_alloc(&more, f.pool, 24 * MiB, NULL), KN_ERR_OOM, "out of memory");
        assert_int_equal(e.n_calls, 10);
        assert_ok(kn_free(f.pool, big));
        fixture_end(&f);
    }
}

typedef struct contested {
    entries cache;
    void *taken; /* by another thread, of what the first call frees */
    kn_pool *pool;
    bool again; /* the callback itself takes it each time */
} contested;

static void *take_4_mib(void *ctx) {
    contested *c = ctx;
    c->taken = must_alloc(c->pool, 4 * MiB, NULL);
    return NULL;
}

static size_t give_up_one_to_another(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    contested *c = ctx;
    size_t bytes = give_up_one(&c->cache, pool, wanted_bytes);
    if (c->again) {
        c->cache.ptrs[c->cache.n++] = must_alloc(pool, 4 * MiB, NULL);
    } else if (!c->taken) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_4_mib, c), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return bytes;
}

/* The pool's live bytes stay as they are: that is no reason to fail while a cache has more. */
static void what_another_thread_takes_was_freed_all_the_same(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(1 * GiB, plain, &(kn_pool_options){.limit_bytes = 32 * MiB});
        contested c = {.cache.n = 8, .pool = f.pool};
        for (int i = 0; i < 8; i++) c.cache.ptrs[i] = must_alloc(f.pool, 4 * MiB, NULL);
        assert_ok(kn_pool_oom_attach(f.pool, give_up_one_to_another, &c));
        void *wanted = must_alloc(f.pool, 4 * MiB, NULL), *more = NULL;
        assert_int_equal(c.cache.n_calls, 2);
        c.again = true; /* the callback takes again all that it frees */
        assert_fails(kn_alloc(&more, f.pool, 4 * MiB, NULL), KN_ERR_OOM, "out of memory");
        assert_int_equal(c.cache.n_calls, 3);
        assert_ok(kn_free(f.pool, wanted));
        assert_ok(kn_free(f.pool, c.taken));
        while (c.cache.n) assert_ok(kn_free(f.pool, c.cache.ptrs[--c.cache.n]));
        fixture_end(&f);
    }
}

/* Each second entry comes first: their memory is moved to where it is wanted. */
static void callbacks_free_no_more_than_is_needed(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 64 * MiB});
    entries e = {.n = 32};
    for (int i = 0; i < 32; i++) {
        e.ptrs[i / 2 + 16 * (i % 2)] = must_alloc(f.pool, 2 * MiB, NULL);
    }
    assert_ok(kn_pool_oom_attach(f.pool, give_up_one, &e));
    void *big = must_alloc(f.pool, 20 * MiB, NULL);
    assert_int_equal(e.n_calls, 10);
    assert_ok(kn_free(f.pool, big));
    while (e.n) assert_ok(kn_free(f.pool, e.ptrs[--e.n]));
    fixture_end(&f);
}

typedef struct greedy {
    int n_calls;
    kn_status status; /* of its own allocation */
} greedy;

static size_t allocate_as_well(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    greedy *g = ctx;
    void *ptr = NULL, *small = NULL;
    g->n_calls++;
    g->status = kn_alloc(&ptr, pool, wanted_bytes, NULL);
    if (kn_alloc(&small, pool, 300, NULL) == KN_OK) kn_free(pool, small);
    return 0;
}

static void callback_that_allocates_is_not_called_for_that(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 16 * MiB});
    greedy g = {.status = KN_OK};
    void *big = NULL;
    assert_ok(kn_pool_oom_attach(f.pool, allocate_as_well, &g));
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(kn_alloc(&big, f.pool, 20 * MiB, NULL), KN_ERR_OOM);
        assert_int_equal(g.n_calls, i);
        assert_int_equal(g.status, KN_ERR_OOM);
    }
    fixture_end(&f);
}

static void soft_limit_asks_the_callback_before_it_grows(void **state) {
    (void)state;
    kn_pool_options options = {.limit_bytes = 64 * MiB, .soft_limit_bytes = 16 * MiB};
    fixture f = fixture_make(1 * GiB, false, &options);
    hoard h = {must_alloc(f.pool, 12 * MiB, NULL), 0};
    assert_ok(kn_pool_oom_attach(f.pool, give_up_hoard, &h));
    void *a = must_alloc(f.pool, 12 * MiB, NULL);
    assert_int_equal(h.n_calls, 1);
    assert_true(stats_of(f.pool).reserved_bytes <= 16 * MiB);
    void *b = must_alloc(f.pool, 20 * MiB, NULL); /* nothing to give up: it grows */
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(option_errors_name_the_option), TEST(limit_holds_and_pool_stays_usable),
        TEST(requests_beyond_all_addresses_fail), TEST(fraction_of_the_device_is_a_limit),
        TEST(lowered_limit_gives_back), TEST(limit_below_what_is_live_holds_once_that_is_freed),
        TEST(a_stream_that_never_rests_keeps_what_it_uses_alone),
        TEST(small_allocations_alone_reach_a_lowered_limit),
        TEST(above_the_limit_neighbours_serve_a_request_with_no_wait),
        TEST(limit_below_what_is_live_holds_on_the_host),
        TEST(above_the_limit_all_free_memory_of_the_host_goes_back),
        TEST(limit_beyond_the_device_is_refused_and_changes_nothing),
        TEST(trim_keeps_the_requested_bytes), TEST(harvest_serves_a_request_that_fragments_cannot),
        TEST(harvest_stays_below_the_limit), TEST(plain_segments_are_given_back_for_a_bigger_one),
        TEST(callback_may_free_the_wanted_memory),
        TEST(callbacks_are_called_while_they_free_memory),
        TEST(what_another_thread_takes_was_freed_all_the_same),
        TEST(callbacks_free_no_more_than_is_needed),
        TEST(callback_that_allocates_is_not_called_for_that),
        TEST(soft_limit_asks_the_callback_before_it_grows));
}
