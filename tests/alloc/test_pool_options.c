/* Options that change while a pool is in use. */
#include <knet/pause.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "pool_fixture.h"

enum { SECOND = 1000000000 };

static kn_pool_options options_of(kn_pool *pool) {
    kn_pool_options o;
    kn_pool_options_read(&o, sizeof o, pool);
    return o;
}

static uint64_t sim_clock(void *ctx) { return kn_sim_now_ns(ctx); }

static void options_are_read_as_they_were_set(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool *pool = NULL;
    kn_pool_options o = options_of(f.pool), given = {.limit_bytes = 512 * MiB,
                                                     .soft_limit_bytes = 256 * MiB,
                                                     .slab_max_bytes = 128 * KiB,
                                                     .device_fraction = 0.75,
                                                     .pressure = 0.5,
                                                     .decay_ns = 77,
                                                     .clock_fn = sim_clock,
                                                     .clock_ctx = f.sim,
                                                     .name = "mine"};
    assert_int_equal(o.limit_bytes, 0);
    assert_int_equal(o.slab_max_bytes, 64 * KiB);
    assert_close(o.pressure, 0.9, 0, 0);
    assert_string_equal(o.name, kn_device_name(f.device));
    assert_ok(kn_pool_create(&pool, f.device, &given));
    o = options_of(pool);
    assert_string_equal(o.name, "mine");
    o.name = given.name;
    assert_memory_equal(&o, &given, sizeof o);
    uint64_t shorter[2] = {0};
    kn_pool_options_read((kn_pool_options *)shorter, sizeof(size_t), pool);
    assert_int_equal(shorter[0], 512 * MiB);
    assert_int_equal(shorter[1], 0);
    kn_pool_destroy(pool);
    fixture_end(&f);
}

static void a_limit_holds_from_the_moment_it_is_set(void **state) {
    (void)state;
    fixture f = fixture_instant(1 * GiB, NULL);
    void *a = must_alloc(f.pool, 4 * MiB, NULL), *b = must_alloc(f.pool, 64 * MiB, NULL);
    assert_ok(kn_free(f.pool, b));
    kn_pool_options o = options_of(f.pool);
    o.limit_bytes = 16 * MiB;
    assert_ok(kn_pool_options_set(f.pool, &o));
    assert_true(stats_of(f.pool).reserved_bytes <= 16 * MiB);
    assert_fails(kn_alloc(&b, f.pool, 32 * MiB, NULL), KN_ERR_OOM, "limit of 16.0 MiB");
    o.limit_bytes = 0;
    o.device_fraction = 1.0 / 64;
    assert_ok(kn_pool_options_set(f.pool, &o));
    assert_fails(kn_alloc(&b, f.pool, 32 * MiB, NULL), KN_ERR_OOM, "limit of 16.0 MiB");
    assert_ok(kn_pool_limit(f.pool, 0));
    assert_close(options_of(f.pool).device_fraction, 0, 0, 0);
    b = must_alloc(f.pool, 32 * MiB, NULL);
    assert_ok(kn_pool_limit(f.pool, 128 * MiB));
    assert_int_equal(options_of(f.pool).limit_bytes, 128 * MiB);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static size_t count_call(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    (void)pool, (void)wanted_bytes;
    ++*(int *)ctx;
    return 0;
}

static void a_soft_limit_that_is_set_later_calls_the_callbacks(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    int n = 0;
    assert_ok(kn_pool_oom_attach(f.pool, count_call, &n));
    void *a = must_alloc(f.pool, 32 * MiB, NULL);
    assert_int_equal(n, 0);
    assert_ok(kn_pool_configure(f.pool, "soft_limit=40MiB"));
    void *b = must_alloc(f.pool, 32 * MiB, NULL);
    assert_int_equal(n, 1);
    assert_ok(kn_pool_configure(f.pool, "soft_limit=none"));
    void *c = must_alloc(f.pool, 32 * MiB, NULL);
    assert_int_equal(n, 1);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_free(f.pool, c));
    fixture_end(&f);
}

/* Under pressure a finished handle moves to where memory is wanted; else the pool grows. */
static void pressure_that_is_set_later_moves_memory_before_the_pool_grows(void **state) {
    (void)state;
    uint64_t reserved[2];
    for (int pressed = 0; pressed < 2; pressed++) {
        fixture f = fixture_instant(1 * GiB, NULL);
        void *blocks[8], *big = NULL;
        for (int i = 0; i < 8; i++) blocks[i] = must_alloc(f.pool, 2 * MiB, NULL);
        for (int i = 0; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
        if (pressed) assert_ok(kn_pool_configure(f.pool, "pressure=0.000000001"));
        big = must_alloc(f.pool, 8 * MiB, NULL);
        reserved[pressed] = stats_of(f.pool).reserved_bytes;
        for (int i = 1; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
        assert_ok(kn_free(f.pool, big));
        fixture_end(&f);
    }
    assert_true(reserved[1] < reserved[0]);
}

static void pass(fixture *f, uint64_t seconds) {
    kn_sim_advance_ns(f->sim, seconds * SECOND);
    kn_sim_drain(f->sim);
    (void)stats_of(f->pool);
}

static void decay_begins_and_ends_while_the_pool_is_in_use(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool_options o = options_of(f.pool);
    void *kept = must_alloc(f.pool, 1000, NULL), *small = NULL, *big = NULL;
    for (int on = 1; on >= 0; on--) {
        uint64_t decayed = stats_of(f.pool).decayed_bytes;
        o.decay_ns = on ? (uint64_t)10 * SECOND : 0;
        o.clock_fn = sim_clock;
        o.clock_ctx = f.sim;
        assert_ok(kn_pool_options_set(f.pool, &o));
        big = must_alloc(f.pool, 400 * MiB, NULL);
        assert_ok(kn_free(f.pool, big));
        for (int i = 0; i < 6; i++) pass(&f, 11);
        decayed = stats_of(f.pool).decayed_bytes - decayed;
        assert_true(on ? decayed >= 390 * MiB : decayed == 0);
        small = must_alloc(f.pool, 1000, NULL);
        assert_ok(kn_free(f.pool, small));
    }
    uint64_t decayed = stats_of(f.pool).decayed_bytes; /* blocks used in between are not idle */
    o.decay_ns = (uint64_t)10 * SECOND;
    assert_ok(kn_pool_options_set(f.pool, &o));
    for (int i = 0; i < 8; i++) pass(&f, 0);
    assert_int_equal(stats_of(f.pool).decayed_bytes, decayed);
    assert_ok(kn_free(f.pool, kept));
    fixture_end(&f);
}

/* A window that was open goes by the old length and the old clock. */
static void a_new_clock_starts_a_new_window(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool_options o = options_of(f.pool);
    void *big = must_alloc(f.pool, 400 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    o.decay_ns = (uint64_t)1 << 62;
    assert_ok(kn_pool_options_set(f.pool, &o)); /* by the system's clock */
    (void)stats_of(f.pool);
    o.decay_ns = (uint64_t)10 * SECOND;
    o.clock_fn = sim_clock; /* far behind the system's */
    o.clock_ctx = f.sim;
    assert_ok(kn_pool_options_set(f.pool, &o));
    for (int i = 0; i < 6; i++) pass(&f, 4);
    assert_true(stats_of(f.pool).decayed_bytes >= 390 * MiB);
    fixture_end(&f);
}

static void fixed_options_are_named_and_change_nothing(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 512 * MiB});
    const kn_pool_options before = options_of(f.pool);
    struct {
        kn_pool_options options;
        const char *text;
    } cases[] = {{{.limit_bytes = MiB, .slab_max_bytes = MiB}, "slab_max_bytes of pool sim"},
                 {{.limit_bytes = MiB, .pinned = true}, "pinned of pool sim"},
                 {{.limit_bytes = MiB, .name = "other"}, "name of pool sim"},
                 {{.limit_bytes = 2 * GiB}, "kn_pool_options_set: limit_bytes is 2147483648"},
                 {{.limit_bytes = MiB, .soft_limit_bytes = 2 * MiB}, "soft_limit_bytes is 2097152"},
                 {{.limit_bytes = MiB, .pressure = 2}, "pressure is 2"},
                 {{.limit_bytes = MiB, .reserved = {0, 0, 0, 1}}, "reserved[3]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].text;
        if (strstr(text, "of pool sim")) { /* the device's name has a number */
            char named[64];
            snprintf(named, sizeof named, "%.*sof pool %s is fixed",
                     (int)(strstr(text, "of pool") - text), text, kn_pool_name(f.pool));
            assert_fails(kn_pool_options_set(f.pool, &cases[i].options), KN_ERR_INVALID, named);
        } else {
            assert_fails(kn_pool_options_set(f.pool, &cases[i].options), KN_ERR_INVALID, text);
        }
        kn_pool_options after = options_of(f.pool);
        assert_memory_equal(&after, &before, sizeof after);
    }
    assert_ok(kn_pool_options_set(f.pool, &(kn_pool_options){.limit_bytes = 0})); /* defaults */
    assert_close(options_of(f.pool).pressure, 0.9, 0, 0);
    assert_int_equal(options_of(f.pool).slab_max_bytes, 64 * KiB);
    char name[64]; /* is not borrowed */
    snprintf(name, sizeof name, "%s", kn_pool_name(f.pool));
    assert_ok(kn_pool_options_set(f.pool, &(kn_pool_options){.name = name}));
    memset(name, 'x', sizeof name - 1);
    assert_string_equal(options_of(f.pool).name, kn_pool_name(f.pool));
    fixture_end(&f);
}

static void words_set_options_all_or_none(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    assert_ok(kn_pool_configure(f.pool, "limit=512MiB,soft_limit=256MiB,pressure=0.5,decay=10s"));
    kn_pool_options o = options_of(f.pool);
    assert_int_equal(o.limit_bytes, 512 * MiB);
    assert_int_equal(o.soft_limit_bytes, 256 * MiB);
    assert_close(o.pressure, 0.5, 0, 0);
    assert_int_equal(o.decay_ns, (uint64_t)10 * SECOND);
    assert_ok(kn_pool_configure(f.pool, "slab_max=64KiB,pressure=none,decay=none,limit=none"));
    o = options_of(f.pool);
    assert_int_equal(o.limit_bytes, 0);
    assert_int_equal(o.soft_limit_bytes, 256 * MiB); /* as it was */
    assert_close(o.pressure, 0.9, 0, 0);
    assert_int_equal(o.decay_ns, 0);
    const kn_pool_options before = options_of(f.pool);
    static const struct {
        const char *words, *text;
    } wrong[] = {
        {"limit=1MiB,limt=2MiB", "\"limt=2MiB\": there is no such word; the words are limit, soft"},
        {"limit=1MiB,decay=10", "\"decay=10\": decay=TIME takes a number above 0 and ns"},
        {"limit=1MiB,stats", "\"stats\" concerns the whole process; set it in KNET_ALLOC"},
        {"trace=none", "\"trace=none\" concerns the whole process"},
        {"limit=1MiB,slab_max=1MiB", "slab_max_bytes of pool"},
        {"limit=1MiB,pressure", "pressure=X takes"},
        {"limit=1MiB,soft_limit=2MiB", "soft_limit_bytes is 2097152"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_fails(kn_pool_configure(f.pool, wrong[i].words), KN_ERR_INVALID, wrong[i].text);
        o = options_of(f.pool);
        assert_memory_equal(&o, &before, sizeof o);
        if (i == 0) assert_null(strstr(kn_last_error()->message, "trace"));
    }
    char many[1024];
    memset(many, '0', sizeof many);
    memcpy(many, "limit=", 6);
    strcpy(many + 600, "1");
    assert_fails(kn_pool_configure(f.pool, many), KN_ERR_INVALID,
                 "0...\": it is too long: 601 characters; the most are 575");
    assert_ok(kn_pool_configure(f.pool, ""));
    assert_ok(kn_pool_configure(f.pool, NULL));
    fixture_end(&f);
}

static void a_paused_pool_stays_paused(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.decay_ns = SECOND});
    void *a = must_alloc(f.pool, 1000, NULL), *b = must_alloc(f.pool, 1000, NULL);
    assert_ok(kn_pool_pause(NULL, f.pool, NULL));
    assert_ok(kn_pool_configure(f.pool, "decay=none"));
    assert_ok(kn_free(f.pool, b)); /* into the thread's cache */
    assert_fails(kn_alloc(&b, f.pool, 1000, NULL), KN_ERR_INVALID, "is paused");
    assert_ok(kn_pool_resume(f.pool, NULL));
    for (int i = 0; i < 4; i++) {
        b = must_alloc(f.pool, 1000, NULL);
        assert_ok(kn_free(f.pool, b));
    }
    assert_ok(kn_free(f.pool, a));
    fixture_end(&f);
}

typedef struct worker {
    kn_pool *pool;
    atomic_bool stop;
    atomic_size_t n_changes;
} worker;

static void *use_pool(void *ctx) {
    worker *w = ctx;
    for (int i = 0; !atomic_load(&w->stop); i++) {
        void *p = NULL;
        if (kn_alloc(&p, w->pool, (size_t)(1 + i % 300) * 1000, NULL) == KN_OK) {
            (void)kn_free(w->pool, p);
        }
    }
    return NULL;
}

static void options_change_while_threads_allocate(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    worker w = {.pool = f.pool};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_pool, &w), 0);
    for (int i = 0; i < 300; i++) {
        assert_ok(kn_pool_configure(f.pool, i % 2 ? "decay=1ns,limit=64MiB" : "decay=none"));
        assert_ok(kn_pool_configure(f.pool, i % 3 ? "limit=none" : "soft_limit=8MiB,pressure=0.1"));
    }
    atomic_store(&w.stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fixture_end(&f);
}

static void *set_decay(void *ctx) {
    worker *w = ctx;
    for (int i = 0; !atomic_load(&w->stop); i++) {
        assert_ok(kn_pool_configure(w->pool, i % 2 ? "decay=10s" : "decay=20s"));
        atomic_fetch_add(&w->n_changes, 1);
    }
    return NULL;
}

static void words_leave_what_another_thread_sets(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    worker w = {.pool = f.pool};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_decay, &w), 0);
    size_t n_lost = 0;
    for (size_t i = 0; i < 5000; i++) {
        size_t limit = (64 + i % 2) * MiB, n_before = atomic_load(&w.n_changes);
        assert_ok(kn_pool_limit(f.pool, limit));
        while (atomic_load(&w.n_changes) == n_before)
            sched_yield(); /* what ran meanwhile is over */
        n_lost += options_of(f.pool).limit_bytes != limit;
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(n_lost, 0);
    fixture_end(&f);
}

/* ThreadSanitizer reports options that are read without the lock. */
static void two_threads_set_all_options(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    worker w = {.pool = f.pool};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_decay, &w), 0);
    for (size_t i = 0; i < 300; i++) {
        kn_pool_options options = options_of(f.pool);
        options.limit_bytes = (64 + i % 2) * MiB;
        assert_ok(kn_pool_options_set(f.pool, &options));
        assert_ok(kn_pool_configure(f.pool, "pressure=0.5"));
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    fixture_end(&f);
}

static void words_are_not_refused_for_a_soft_limit_that_they_leave(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    assert_ok(kn_pool_configure(f.pool, "soft_limit=512MiB"));
    assert_ok(kn_pool_limit(f.pool, 256 * MiB));
    assert_ok(kn_pool_configure(f.pool, "decay=10s"));
    assert_int_equal(options_of(f.pool).decay_ns, (uint64_t)10 * SECOND);
    assert_fails(kn_pool_configure(f.pool, "limit=128MiB"), KN_ERR_INVALID,
                 "kn_pool_configure: soft_limit_bytes is 536870912, above limit_bytes");
    assert_int_equal(options_of(f.pool).limit_bytes, 256 * MiB);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(options_are_read_as_they_were_set), TEST(a_limit_holds_from_the_moment_it_is_set),
        TEST(a_soft_limit_that_is_set_later_calls_the_callbacks),
        TEST(pressure_that_is_set_later_moves_memory_before_the_pool_grows),
        TEST(decay_begins_and_ends_while_the_pool_is_in_use), TEST(a_new_clock_starts_a_new_window),
        TEST(fixed_options_are_named_and_change_nothing), TEST(words_set_options_all_or_none),
        TEST(a_paused_pool_stays_paused), TEST(options_change_while_threads_allocate),
        TEST(words_leave_what_another_thread_sets), TEST(two_threads_set_all_options),
        TEST(words_are_not_refused_for_a_soft_limit_that_they_leave));
}
