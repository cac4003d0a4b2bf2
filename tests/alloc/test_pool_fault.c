/* Every call to the device fails: the nth once, and from the nth on. Whatever happens, the status
 * is right, no rule is broken, nothing leaks, and the pool works when the device works again. */
#include <knet/pool_graph.h>

#include "pool_fixture.h"

/* Work that reaches every kind of call: growth, stealing, foreign uses, harvest, waiting, trim. */
typedef struct play {
    fixture f;
    kn_stream s, t;
    void *live[64];
    size_t n_live;
    uint64_t n_users;
} play;

static void play_alloc(play *p, size_t size, kn_stream stream) {
    void *ptr = NULL;
    kn_status status = kn_alloc(&ptr, p->f.pool, size, stream);
    if (status == KN_OK) {
        kn_sim_work(p->f.sim, stream, ptr, size, ++p->n_users);
        p->live[p->n_live++] = ptr;
    } else {
        assert_true(status == KN_ERR_OOM || status == KN_ERR_CUDA);
        assert_null(ptr);
        assert_true(kn_last_error()->message[0] != '\0');
    }
}

static void play_free(play *p, size_t i) {
    if (i >= p->n_live) return;
    assert_ok(kn_free(p->f.pool, p->live[i]));
    p->live[i] = p->live[--p->n_live];
}

/* A step is captured, launched once, and goes; what of it fails is left out. */
static void play_graph(play *p) {
    kn_pool_graph *graph = NULL;
    void *large = NULL, *small = NULL;
    assert_ok(kn_pool_graph_create(&graph, p->f.pool));
    if (kn_pool_graph_begin(graph, p->s) < 0) { /* the stream could not be looked at */
        kn_pool_graph_destroy(graph, p->s);
        return;
    }
    kn_sim_capture(p->f.sim, p->s, true);
    kn_status status = kn_alloc(&large, p->f.pool, 3 * MiB, p->s);
    if (status == KN_OK) status = kn_alloc(&small, p->f.pool, 1000, p->s);
    assert_ok(kn_free(p->f.pool, large));
    kn_sim_capture(p->f.sim, p->s, false);
    assert_ok(kn_pool_graph_end(graph, p->s));
    assert_ok(kn_free(p->f.pool, small));
    if (status == KN_OK) kn_sim_work(p->f.sim, p->s, large, 3 * MiB, ++p->n_users);
    kn_pool_graph_destroy(graph, p->s);
}

static void play_all(play *p) {
    for (int i = 0; i < 10; i++) play_alloc(p, (size_t)(i + 1) * 700 * KiB, p->s);
    play_alloc(p, 1000, p->s);
    play_alloc(p, 1000, p->t);
    for (int i = 0; i < 5; i++) play_free(p, (size_t)i);
    for (int i = 0; i < 5; i++) play_alloc(p, 3 * MiB, p->t);
    if (p->n_live) {
        kn_status status = kn_block_use(p->f.pool, p->live[0], p->t);
        assert_true(status == KN_OK || status == KN_ERR_CUDA);
    }
    play_free(p, 0);
    (void)kn_sim_step(p->f.sim, p->s);
    play_alloc(p, 9 * MiB, p->s);
    for (int i = 0; i < 4; i++) play_free(p, (size_t)i);
    play_alloc(p, 14 * MiB, p->t);
    play_graph(p);
    kn_stream_retire(p->f.device, p->t);
    assert_int_equal(kn_pool_trim(p->f.pool, 4 * MiB), KN_OK);
    play_alloc(p, 12 * MiB, p->s);
    while (p->n_live) play_free(p, p->n_live - 1);
}

/* A pool that can't know when a stream is done must not take its memory away. */
static int n_left;
static void count_left(void *ctx, int level, const char *text) {
    (void)ctx, (void)level;
    n_left += strstr(text, "left to the device") != NULL;
}

/* As fixture_end, but memory may be left where the pool says so. */
static void end(fixture *f) {
    n_left = 0;
    kn_log_attach(count_left, NULL);
    kn_pool_destroy(f->pool);
    kn_log_attach(NULL, NULL);
    assert_no_violation(f->sim);
    assert_int_equal(kn_sim_bytes(f->sim) > 0, n_left > 0);
}

/* Returns how many calls were made, so that the caller knows when n was beyond the last. */
static uint64_t play_with_failure(bool plain, uint64_t nth, bool forever) {
    play p = {.f = fixture_make(32 * MiB, plain, NULL)};
    p.s = new_stream(&p.f);
    p.t = new_stream(&p.f);
    uint64_t before = kn_sim_calls(p.f.sim, KN_SIM_ANY);
    kn_sim_fail(p.f.sim, KN_SIM_ANY, nth, forever);
    play_all(&p);
    uint64_t calls = kn_sim_calls(p.f.sim, KN_SIM_ANY) - before;
    kn_sim_fail(p.f.sim, KN_SIM_ANY, 0, false);
    assert_no_violation(p.f.sim);
    assert_ok(kn_pool_check(p.f.pool));
    assert_int_equal(stats_of(p.f.pool).live_bytes, 0);
    assert_int_equal(stats_of(p.f.pool).reserved_bytes, kn_sim_bytes(p.f.sim));
    void *after = must_alloc(p.f.pool, 5000, p.s);
    kn_sim_work(p.f.sim, p.s, after, 5000, ++p.n_users);
    assert_ok(kn_free(p.f.pool, after));
    end(&p.f);
    return calls;
}

static void every_call_fails_once(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        uint64_t n = 1;
        while (play_with_failure(plain, n, false) >= n) n++;
        assert_true(n > 10);
    }
}

static void every_call_fails_from_then_on(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        uint64_t n = 1;
        while (play_with_failure(plain, n, true) >= n) n++;
        assert_true(n > 10);
    }
}

static void growth_that_fails_half_way_rolls_back(void **state) {
    (void)state;
    kn_sim_call calls[] = {KN_SIM_HANDLE_CREATE, KN_SIM_HANDLE_MAP, KN_SIM_RANGE_ACCESS};
    for (int c = 0; c < 3; c++) {
        for (uint64_t nth = 1; nth <= (c < 2 ? 4 : 1); nth++) {
            fixture f = fixture_make(1 * GiB, false, NULL);
            void *keep = must_alloc(f.pool, 1000, NULL), *big = NULL;
            uint64_t reserved = stats_of(f.pool).reserved_bytes;
            kn_sim_fail(f.sim, calls[c], nth, true);
            assert_true(kn_alloc(&big, f.pool, 9 * MiB, NULL) < 0);
            kn_sim_fail(f.sim, calls[c], 0, false);
            assert_int_equal(stats_of(f.pool).reserved_bytes, reserved);
            assert_int_equal(kn_sim_bytes(f.sim), reserved);
            big = must_alloc(f.pool, 9 * MiB, NULL);
            assert_ok(kn_free(f.pool, big));
            assert_ok(kn_free(f.pool, keep));
            fixture_end(&f);
        }
    }
}

static void a_failed_pool_create_leaves_no_memory(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_pool *pool = NULL;
    uint64_t objects = kn_sim_objects(f.sim);
    kn_sim_fail(f.sim, KN_SIM_INFO_READ, 1, false);
    assert_fails(kn_pool_create(&pool, f.device, NULL), KN_ERR_CUDA, "info_read");
    kn_sim_fail(f.sim, KN_SIM_RANGE_RESERVE, 1, true);
    assert_fails(kn_pool_create(&pool, f.device, NULL), KN_ERR_CUDA, "range_reserve");
    kn_sim_fail(f.sim, KN_SIM_RANGE_RESERVE, 1, false); /* a smaller range will do */
    assert_ok(kn_pool_create(&pool, f.device, NULL));
    kn_pool_destroy(pool);
    assert_int_equal(kn_sim_objects(f.sim), objects);
    fixture_end(&f);
}

static void error_has_the_device_text(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *ptr = NULL;
    kn_sim_fail(f.sim, KN_SIM_HANDLE_MAP, 1, true);
    assert_fails(kn_alloc(&ptr, f.pool, 1 * MiB, NULL), KN_ERR_CUDA, "failure of handle_map");
    kn_sim_fail(f.sim, KN_SIM_HANDLE_MAP, 0, false);
    fixture_end(&f);
}

/* Free memory that can't be unmapped is whole again, and used. */
static void a_failed_unmap_keeps_the_state(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        void *ptr = must_alloc(f.pool, 8 * MiB, NULL);
        assert_ok(kn_free(f.pool, ptr));
        assert_ok(kn_pool_trim(f.pool, 0)); /* records the event of the free */
        kn_sim_drain(f.sim);
        kn_sim_fail(f.sim, KN_SIM_HANDLE_UNMAP, nth, true);
        assert_ok(kn_pool_trim(f.pool, 0));
        assert_ok(kn_pool_check(f.pool));
        assert_int_equal(stats_of(f.pool).reserved_bytes, (10 - 2 * nth) * MiB);
        kn_sim_fail(f.sim, KN_SIM_HANDLE_UNMAP, 0, false);
        fixture_end(&f);
    }
}

static void a_harvest_that_cannot_unmap_keeps_the_pool(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, &(kn_pool_options){.limit_bytes = 16 * MiB});
    void *live[8], *big = NULL;
    for (int i = 0; i < 8; i++) live[i] = must_alloc(f.pool, 2 * MiB, NULL);
    assert_ok(kn_free(f.pool, live[2]));
    assert_ok(kn_free(f.pool, live[5]));
    assert_ok(kn_free(f.pool, live[6]));
    kn_sim_fail(f.sim, KN_SIM_HANDLE_UNMAP, 1, true);
    assert_true(kn_alloc(&big, f.pool, 6 * MiB, NULL) < 0);
    assert_ok(kn_pool_check(f.pool));
    kn_sim_fail(f.sim, KN_SIM_HANDLE_UNMAP, 0, false);
    big = must_alloc(f.pool, 6 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 8; i++) {
        if (i != 2 && i != 5 && i != 6) assert_ok(kn_free(f.pool, live[i]));
    }
    fixture_end(&f);
}

static void no_pool_is_the_pending_error_or_its_own(void **state) {
    (void)state;
    void *ptr = &ptr;
    assert_fails(kn_alloc(&ptr, NULL, 16, NULL), KN_ERR_INVALID, "kn_alloc: pool is NULL");
    assert_null(ptr);
    assert_fails(kn_alloc_aligned(&ptr, NULL, 16, 64, NULL), KN_ERR_INVALID, "pool is NULL");
    kn_error_defer(KN_FAIL(KN_ERR_DEVICE, "no pool here"));
    assert_fails(kn_alloc(&ptr, NULL, 16, NULL), KN_ERR_DEVICE, "no pool here");
    assert_ok(kn_check());
}

int main(void) {
    return RUN_TESTS(TEST(every_call_fails_once), TEST(every_call_fails_from_then_on),
                     TEST(growth_that_fails_half_way_rolls_back),
                     TEST(a_failed_pool_create_leaves_no_memory), TEST(error_has_the_device_text),
                     TEST(a_failed_unmap_keeps_the_state),
                     TEST(a_harvest_that_cannot_unmap_keeps_the_pool),
                     TEST(no_pool_is_the_pending_error_or_its_own));
}
