/* Random operations against a shadow model, on the simulated device with streams that make random
 * progress. The device checks that no bytes are used for one allocation while work of another may
 * still use them. KNET_TEST_OPS sets how many operations each test makes. */
#include "pool_fixture.h"

enum { STREAMS = 4, LIVE_MAX = 600 };
/* After so many operations the device does all that is outstanding: its checks look at that, and a
 * long run would take ever longer. */
enum { CATCH_UP = 16384 };

typedef struct piece {
    char *ptr;
    size_t size;
    int home;
    uint64_t user;
} piece;

typedef struct model {
    fixture f;
    kn_stream streams[STREAMS];
    int n_streams;
    piece live[LIVE_MAX];
    size_t n_live;
    uint64_t requested, n_users;
    uint64_t fail_every; /* device calls; 0: never */
} model;

static size_t n_operations(size_t normal) {
    const char *text = getenv("KNET_TEST_OPS");
    return text ? (size_t)strtoull(text, NULL, 0) : normal;
}

/* Log-uniform, so that every size class and the arena see as much. */
static size_t random_size(size_t max) {
    double x = test_random_uniform(0, 1);
    size_t size = 1;
    while (x > 0 && size < max) {
        size *= 2;
        x -= 0.04;
    }
    size = size / 2 + test_random_below(size) + 1;
    return size < max ? size : max;
}

static void assert_apart(const model *m, const char *ptr, size_t size) {
    for (size_t i = 0; i < m->n_live; i++) {
        const piece *p = &m->live[i];
        assert_true(ptr + size <= p->ptr || p->ptr + p->size <= ptr);
    }
}

static void model_use(model *m, const piece *p, int stream) {
    kn_sim_work(m->f.sim, m->streams[stream], p->ptr, p->size, p->user);
}

/* As users must: work elsewhere comes after what the home stream did before, the allocation too. */
static void model_use_foreign(model *m, const piece *p, int stream) {
    order_after(m->f.device, m->streams[stream], m->streams[p->home]);
    model_use(m, p, stream);
    assert_ok(kn_block_use(m->f.pool, p->ptr, m->streams[stream]));
}

static void model_alloc(model *m, size_t max) {
    int home = (int)test_random_below((uint64_t)m->n_streams);
    size_t size = random_size(max);
    void *ptr = NULL;
    kn_status status = kn_alloc(&ptr, m->f.pool, size, m->streams[home]);
    if (status < 0) {
        assert_null(ptr);
        return;
    }
    assert_int_equal((uintptr_t)ptr % 256, 0);
    assert_apart(m, ptr, size);
    piece *p = &m->live[m->n_live++];
    *p = (piece){ptr, size, home, ++m->n_users};
    m->requested += size;
    if (test_random_below(2)) model_use(m, p, home);
}

static void model_free(model *m) {
    size_t i = test_random_below(m->n_live);
    piece p = m->live[i];
    m->live[i] = m->live[--m->n_live];
    m->requested -= p.size;
    while (test_random_below(4) == 0) {
        model_use_foreign(m, &p, (int)test_random_below((uint64_t)m->n_streams));
    }
    if (test_random_below(2)) model_use(m, &p, p.home);
    assert_ok(kn_free(m->f.pool, p.ptr));
}

static void model_progress(model *m) {
    int stream = (int)test_random_below((uint64_t)m->n_streams);
    for (uint64_t n = test_random_below(8); n > 0; n--) {
        (void)kn_sim_step(m->f.sim, m->streams[stream]);
    }
}

static bool has_live(const model *m, int stream) {
    for (size_t i = 0; i < m->n_live; i++) {
        if (m->live[i].home == stream) return true;
    }
    return false;
}

/* A stream goes while its work is pending; the next one gets the same handle. */
static void model_renew_stream(model *m) {
    int i = 1 + (int)test_random_below((uint64_t)m->n_streams - 1);
    if (has_live(m, i)) return; /* their home would be gone for later work on it */
    kn_stream_destroy(m->f.device, m->streams[i]);
    m->streams[i] = new_stream(&m->f);
}

static void model_rare(model *m) {
    switch (test_random_below(3)) {
        case 0:
            assert_ok(kn_pool_trim(m->f.pool, test_random_below(64) * MiB));
            break;
        case 1:
            if (m->n_streams > 1) model_renew_stream(m);
            break;
        default:
            assert_ok(kn_pool_check(m->f.pool));
            break;
    }
}

static void model_check(model *m) {
    kn_pool_stats stats = stats_of(m->f.pool);
    assert_int_equal(stats.requested_bytes, m->requested);
    assert_true(stats.live_bytes >= m->requested);
    assert_true(stats.live_bytes_max >= stats.live_bytes);
    assert_true(stats.reserved_bytes >= stats.live_bytes);
    assert_int_equal(stats.reserved_bytes, kn_sim_bytes(m->f.sim));
    assert_no_violation(m->f.sim);
}

static void model_run(uint64_t capacity, bool plain, int n_streams, size_t max_size,
                      const kn_pool_options *options, uint64_t fail_every) {
    model *m = calloc(1, sizeof *m);
    m->f = fixture_make(capacity, plain, options);
    m->n_streams = n_streams;
    for (int i = 1; i < n_streams; i++) m->streams[i] = new_stream(&m->f);
    for (size_t n = n_operations(30000); n > 0; n--) {
        uint64_t dice = test_random_below(1000);
        if (fail_every && n % fail_every == 0)
            kn_sim_fail(m->f.sim, KN_SIM_HANDLE_CREATE, 1, false);
        if (dice == 0) {
            model_rare(m);
        } else if (dice < 250) {
            model_progress(m);
        } else if (m->n_live == LIVE_MAX || (m->n_live && dice < 600)) {
            model_free(m);
        } else {
            model_alloc(m, max_size);
        }
        if (n % CATCH_UP == 0) kn_sim_drain(m->f.sim);
        if (n % 64 == 0) model_check(m);
    }
    while (m->n_live) model_free(m);
    model_check(m);
    assert_int_equal(stats_of(m->f.pool).live_bytes, 0);
    assert_ok(kn_pool_check(m->f.pool));
    for (int i = 0; i < 3; i++) { /* uses done, then the slabs they were in, then all memory */
        assert_ok(kn_pool_trim(m->f.pool, 0));
        kn_sim_drain(m->f.sim);
    }
    assert_ok(kn_pool_trim(m->f.pool, 0));
    assert_int_equal(stats_of(m->f.pool).reserved_bytes, 0);
    fixture_end(&m->f);
    free(m);
}

static void one_stream_with_room(void **state) {
    (void)state;
    model_run(16 * GiB, false, 1, 64 * MiB, NULL, 0);
}

static void four_streams_with_room(void **state) {
    (void)state;
    model_run(16 * GiB, false, STREAMS, 16 * MiB, NULL, 0);
}

static void four_streams_short_of_memory(void **state) {
    (void)state;
    model_run(64 * MiB, false, STREAMS, 4 * MiB, NULL, 0);
}

static void four_streams_with_plain_segments(void **state) {
    (void)state;
    model_run(256 * MiB, true, STREAMS, 8 * MiB, NULL, 0);
}

static void limits_are_never_passed(void **state) {
    (void)state;
    kn_pool_options options = {.limit_bytes = 48 * MiB, .soft_limit_bytes = 24 * MiB};
    model_run(1 * GiB, false, STREAMS, 4 * MiB, &options, 0);
}

static void slabs_to_a_mebibyte(void **state) {
    (void)state;
    kn_pool_options options = {.slab_max_bytes = 1 * MiB};
    model_run(8 * GiB, false, 2, 4 * MiB, &options, 0);
}

static void device_that_fails_now_and_then(void **state) {
    (void)state;
    model_run(128 * MiB, false, STREAMS, 4 * MiB, NULL, 97);
}

int main(void) {
    return RUN_TESTS(TEST(one_stream_with_room), TEST(four_streams_with_room),
                     TEST(four_streams_short_of_memory), TEST(four_streams_with_plain_segments),
                     TEST(limits_are_never_passed), TEST(slabs_to_a_mebibyte),
                     TEST(device_that_fails_now_and_then));
}
