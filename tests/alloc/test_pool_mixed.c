/* Everything at once, right and wrong: two pools on one device, streams that come and go with
 * blocks live, graphs, uses elsewhere, alignments, limits, trims, decay, callbacks that free, calls
 * that fail, and wrong frees, which must be told and change nothing. What the pools say is compared
 * with a model after every step; the device sees bytes used for two at a time. KNET_TEST_OPS sets
 * how many steps each test makes. */
#include <knet/pool_graph.h>
#include <knet/stacks.h>

#include "pool_fixture.h"

enum { POOLS = 2, STREAMS = 5, GRAPHS = 2, LIVE_MAX = 200, PIECES_MAX = 400 };

typedef struct piece {
    char *ptr;
    size_t size;
    int pool, home; /* -1: its stream is gone */
    int graph;      /* -1: none's */
    uint64_t user;
} piece;

/* What launches of a graph use, until it goes. */
typedef struct captured {
    kn_pool_graph *memory;
    int pool, stream; /* -1: the capture is over */
    piece pieces[PIECES_MAX];
    int n;
    uint64_t user;
} captured;

typedef struct model {
    kn_sim *sim;
    kn_device *device;
    kn_pool *pools[POOLS];
    kn_stream streams[STREAMS]; /* the first is the default one, which stays */
    captured graphs[GRAPHS];
    piece live[LIVE_MAX];
    int n_live;
    uint64_t requested[POOLS], n_allocs[POOLS], n_ooms[POOLS], n_misuses[POOLS];
    uint64_t n_users, n_called;
    bool failing, decays;
} model;

static size_t below(size_t n) { return (size_t)test_random_below(n); }

static size_t n_steps(void) {
    const char *text = getenv("KNET_TEST_OPS");
    return text ? (size_t)strtoull(text, NULL, 0) : 40000;
}

static uint64_t sim_clock(void *ctx) { return kn_sim_now_ns(ctx); }

/* --- what must hold --- */

static bool overlap(const piece *p, const char *ptr, size_t size) {
    return ptr < p->ptr + p->size && p->ptr < ptr + size;
}

static void assert_apart(const model *m, const char *ptr, size_t size, int graph) {
    for (int i = 0; i < m->n_live; i++) assert_false(overlap(&m->live[i], ptr, size));
    for (int g = 0; g < GRAPHS; g++) {
        const captured *c = &m->graphs[g];
        for (int i = 0; c->memory && g != graph && i < c->n; i++) {
            assert_false(overlap(&c->pieces[i], ptr, size));
        }
    }
}

static bool beyond_limit(kn_pool *pool, const kn_pool_stats *s) {
    kn_pool_options o;
    kn_pool_options_read(&o, sizeof o, pool);
    return o.limit_bytes && s->reserved_bytes > o.limit_bytes;
}

static void check(const model *m) {
    uint64_t reserved = 0;
    bool returns = m->decays;
    for (int p = 0; p < POOLS; p++) {
        kn_pool_stats s = stats_of(m->pools[p]);
        assert_int_equal(s.requested_bytes, m->requested[p]);
        assert_true(s.live_bytes >= s.requested_bytes && s.live_bytes_max >= s.live_bytes);
        assert_true(s.reserved_bytes >= s.live_bytes + s.waiting_bytes);
        assert_true(s.reserved_bytes_max >= s.reserved_bytes);
        assert_int_equal(s.n_allocs, m->n_allocs[p]);
        assert_int_equal(s.n_ooms, m->n_ooms[p]);
        assert_int_equal(s.n_misuses, m->n_misuses[p]);
        reserved += s.reserved_bytes;
        returns |= beyond_limit(m->pools[p], &s);
    }
    /* Idle memory, or beyond a limit, goes back behind a call, also that which reads statistics. */
    if (!returns) assert_int_equal(reserved, kn_sim_bytes(m->sim));
    assert_true(reserved >= kn_sim_bytes(m->sim));
    assert_no_violation(m->sim);
}

/* --- right use --- */

static int graph_of_stream(const model *m, int stream) {
    for (int g = 0; g < GRAPHS; g++) {
        if (m->graphs[g].memory && m->graphs[g].stream == stream) return g;
    }
    return -1;
}

static void forget(model *m, int i) {
    m->requested[m->live[i].pool] -= m->live[i].size;
    m->live[i] = m->live[--m->n_live];
}

static void use_elsewhere(model *m, const piece *p) {
    int by = (int)below(STREAMS);
    if (graph_of_stream(m, by) >= 0 || p->graph >= 0) return;
    if (p->home >= 0 && graph_of_stream(m, p->home) >= 0) return;
    kn_sim_fail(m->sim, KN_SIM_ANY, 0, false); /* what fails is to be the pool's */
    if (p->home >= 0) {                        /* its stream was waited for when it went, below */
        order_after(m->device, m->streams[by], m->streams[p->home]);
    } else {
        kn_sim_drain(m->sim);
    }
    kn_sim_work(m->sim, m->streams[by], p->ptr, p->size, p->user);
    assert_ok(kn_block_use(m->pools[p->pool], p->ptr, m->streams[by]));
}

static void must_be_refused(model *m, int pool, const void *ptr) {
    assert_int_equal(kn_free(m->pools[pool], (void *)(uintptr_t)ptr), KN_ERR_INVALID);
    m->n_misuses[pool]++;
}

static void free_one(model *m, int i) {
    piece p = m->live[i];
    forget(m, i);
    assert_ok(kn_free(m->pools[p.pool], p.ptr));
    if (below(8) == 0) must_be_refused(m, p.pool, p.ptr);
}

static void alloc_one(model *m) {
    int pool = (int)below(POOLS), stream = (int)below(STREAMS);
    int graph = graph_of_stream(m, stream);
    if (graph >= 0 && m->graphs[graph].pool != pool) return; /* no graph of that pool has begun */
    if (m->n_live == LIVE_MAX || (graph >= 0 && m->graphs[graph].n == PIECES_MAX)) return;
    size_t size = 1 + below((size_t)1 << (1 + below(25)));
    size_t align = below(4) ? 256 : (size_t)1 << below(24);
    void *ptr = &ptr;
    kn_status status =
        below(2) && align <= 256
            ? kn_alloc(&ptr, m->pools[pool], size, m->streams[stream])
            : kn_alloc_aligned(&ptr, m->pools[pool], size, align, m->streams[stream]);
    if (status < 0) {
        assert_null(ptr);
        assert_true(status == KN_ERR_OOM || m->failing);
        m->n_ooms[pool]++;
        return;
    }
    assert_int_equal((uintptr_t)ptr % 256, 0);
    assert_int_equal((uintptr_t)ptr % align, 0);
    assert_apart(m, ptr, size, graph);
    piece p = {ptr, size, pool, stream, graph, ++m->n_users};
    m->n_allocs[pool]++;
    m->requested[pool] += size;
    m->live[m->n_live++] = p;
    if (graph >= 0) {
        m->graphs[graph].pieces[m->graphs[graph].n++] = p;
    } else if (below(2)) {
        kn_sim_work(m->sim, m->streams[stream], ptr, size, p.user);
    }
}

/* --- wrong use --- */

static void misuse(model *m) {
    if (m->n_live == 0) return;
    const piece *p = &m->live[below((size_t)m->n_live)];
    switch (below(8)) {
        case 0:
            must_be_refused(m, p->pool, p->ptr + 1);
            break;
        case 1:
            if (p->size > 256) must_be_refused(m, p->pool, p->ptr + 256);
            break;
        case 2:
            must_be_refused(m, p->pool, p->ptr + p->size / 2 + 1);
            break;
        case 3:
            must_be_refused(m, !p->pool, p->ptr);
            break;
        case 4:
            must_be_refused(m, p->pool, m);
            break;
        default:
            if (graph_of_stream(m, 0) >= 0) return;
            assert_int_equal(kn_block_use(m->pools[!p->pool], p->ptr, m->streams[0]),
                             KN_ERR_INVALID);
            m->n_misuses[!p->pool]++;
    }
}

/* --- graphs --- */

static void graph_begin(model *m, captured *c) {
    int stream = 1 + (int)below(STREAMS - 1);
    if (graph_of_stream(m, stream) >= 0) return;
    *c = (captured){.pool = (int)below(POOLS), .stream = stream, .user = ++m->n_users};
    assert_ok(kn_pool_graph_create(&c->memory, m->pools[c->pool]));
    assert_ok(kn_pool_graph_begin(c->memory, m->streams[stream]));
    kn_sim_capture(m->sim, m->streams[stream], true);
}

static void graph_end(model *m, captured *c) {
    kn_sim_capture(m->sim, m->streams[c->stream], false);
    assert_ok(kn_pool_graph_end(c->memory, m->streams[c->stream]));
    c->stream = -1;
}

static void graph_launch(model *m, const captured *c) { /* all on the default stream */
    for (int i = 0; i < c->n; i++) {
        kn_sim_work(m->sim, m->streams[0], c->pieces[i].ptr, c->pieces[i].size, c->user);
    }
}

/* Its blocks that are live become the default stream's. */
static void graph_destroy(model *m, captured *c) {
    if (c->stream >= 0) graph_end(m, c);
    kn_pool_graph_destroy(c->memory, m->streams[0]);
    c->memory = NULL;
    for (int i = 0; i < m->n_live; i++) {
        if (m->live[i].graph != c - m->graphs) continue;
        m->live[i].graph = -1;
        m->live[i].home = 0;
    }
}

static void graph_step(model *m) {
    captured *c = &m->graphs[below(GRAPHS)];
    if (!c->memory) {
        graph_begin(m, c);
    } else if (c->stream >= 0) {
        graph_end(m, c);
    } else if (below(3)) {
        graph_launch(m, c);
    } else {
        graph_destroy(m, c);
    }
}

/* --- the rest --- */

static void stream_goes(model *m) {
    int s = 1 + (int)below(STREAMS - 1);
    if (graph_of_stream(m, s) >= 0) return;
    if (below(4) == 0) kn_stream_retire(m->device, m->streams[s]); /* once too often */
    kn_stream_destroy(m->device, m->streams[s]);
    assert_ok(kn_stream_create(&m->streams[s], m->device));
    for (int i = 0; i < m->n_live; i++) {
        if (m->live[i].home == s && m->live[i].graph < 0) m->live[i].home = -1;
    }
}

static void options_change(model *m, kn_pool *pool) {
    static const char *const words[] = {"pressure=0.01", "pressure=none", "decay=1ns",
                                        "decay=none",    "limit=none",    "soft_limit=none"};
    char soft[64];
    snprintf(soft, sizeof soft, "limit=none,soft_limit=%dMiB", (int)(1 + below(64)));
    kn_status status = kn_pool_configure(pool, below(4) ? words[below(6)] : soft);
    if (status < 0) { /* kn_pool_limit went below the soft limit */
        assert_int_equal(status, KN_ERR_INVALID);
        assert_ok(kn_pool_configure(pool, "soft_limit=none,limit=none"));
    }
    m->decays = true; /* perhaps */
}

static void rare(model *m) {
    int p = (int)below(POOLS);
    kn_pool *pool = m->pools[p];
    switch (below(6)) {
        case 0:
            assert_ok(kn_pool_trim(pool, below(64) * MiB));
            break;
        case 1:
            assert_ok(kn_pool_limit(pool, below(2) ? 0 : (1 + below(64)) * MiB));
            break;
        case 2:
            assert_ok(kn_pool_check(pool));
            break;
        case 3:
            kn_sim_advance_ns(m->sim, below(3000));
            break;
        case 4:
            assert_ok(kn_pool_snapshot(pool, "/dev/null"));
            break;
        case 5:
            options_change(m, pool);
            break;
        case 6:
            if (below(2)) {
                kn_stacks_end();
            } else if (kn_stacks_begin(NULL) < 0) {
                assert_non_null(strstr(kn_last_error()->message, "kept already"));
            }
            break;
        default:
            stream_goes(m);
    }
}

/* Out of memory: something of the pool's is given up. */
static size_t give_up(void *ctx, kn_pool *pool, size_t wanted_bytes) {
    model *m = ctx;
    (void)wanted_bytes;
    m->n_called++;
    for (int i = 0; i < m->n_live; i++) {
        if (m->pools[m->live[i].pool] != pool || below(3)) continue;
        size_t size = m->live[i].size;
        free_one(m, i);
        return size;
    }
    return 0;
}

static void step(model *m) {
    size_t dice = below(1000);
    int live = m->n_live ? (int)below((size_t)m->n_live) : -1;
    if (dice < 8) {
        rare(m);
    } else if (dice < 20) {
        graph_step(m);
    } else if (dice < 60) {
        misuse(m);
    } else if (dice < 260) {
        for (size_t n = below(8), s = below(STREAMS); n > 0; n--)
            kn_sim_step(m->sim, m->streams[s]);
    } else if (dice < 330 && live >= 0) {
        use_elsewhere(m, &m->live[live]);
    } else if (dice < 620 && live >= 0) {
        free_one(m, live);
    } else {
        alloc_one(m);
    }
}

static model *model_make(uint64_t capacity, bool plain, const kn_pool_options *second) {
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    fixture f = fixture_make(capacity, plain, NULL);
    kn_pool_options options = second ? *second : (kn_pool_options){0};
    options.clock_fn = sim_clock;
    options.clock_ctx = f.sim;
    m->decays = options.decay_ns > 0;
    m->sim = f.sim;
    m->device = f.device;
    m->pools[0] = f.pool;
    assert_ok(kn_pool_create(&m->pools[1], f.device, &options));
    for (int p = 0; p < POOLS; p++) assert_ok(kn_pool_oom_attach(m->pools[p], give_up, m));
    for (int s = 1; s < STREAMS; s++) assert_ok(kn_stream_create(&m->streams[s], m->device));
    return m;
}

static void model_end(model *m) {
    kn_sim_fail(m->sim, KN_SIM_ANY, 0, false);
    for (int g = 0; g < GRAPHS; g++) {
        if (m->graphs[g].memory) graph_destroy(m, &m->graphs[g]);
    }
    while (m->n_live) free_one(m, m->n_live - 1);
    check(m);
    for (int p = 0; p < POOLS; p++) {
        assert_ok(kn_pool_check(m->pools[p]));
        assert_int_equal(stats_of(m->pools[p]).live_bytes, 0);
        for (int i = 0; i < 3; i++) { /* uses done, then the slabs they were in, then all memory */
            assert_ok(kn_pool_trim(m->pools[p], 0));
            kn_sim_drain(m->sim);
        }
        assert_ok(kn_pool_trim(m->pools[p], 0));
        assert_int_equal(stats_of(m->pools[p]).reserved_bytes, 0);
        kn_pool_destroy(m->pools[p]);
    }
    assert_no_violation(m->sim);
    assert_int_equal(kn_sim_bytes(m->sim), 0);
    free(m);
}

/* Once: the next call of some kind, or the one after it. */
static void fail_soon(model *m) {
    static const kn_sim_call calls[] = {
        KN_SIM_SEGMENT_ALLOC, KN_SIM_HANDLE_CREATE, KN_SIM_HANDLE_MAP,
        KN_SIM_HANDLE_UNMAP,  KN_SIM_EVENT_CREATE,  KN_SIM_EVENT_RECORD,
        KN_SIM_EVENT_QUERY,   KN_SIM_EVENT_WAIT,    KN_SIM_EVENT_SYNC};
    kn_sim_fail(m->sim, calls[below(sizeof calls / sizeof *calls)], 1 + below(2), false);
}

static void model_run(uint64_t capacity, bool plain, const kn_pool_options *second,
                      size_t fail_every) {
    model *m = model_make(capacity, plain, second);
    m->failing = fail_every > 0;
    for (size_t n = n_steps(); n > 0; n--) {
        if (fail_every && n % fail_every == 0) fail_soon(m);
        step(m);
        check(m);
    }
    model_end(m);
}

static void with_room(void **state) {
    (void)state;
    model_run(8 * GiB, false, &(kn_pool_options){.slab_max_bytes = 1 * MiB, .decay_ns = 2000}, 0);
}

static void short_of_memory(void **state) {
    (void)state;
    model_run(160 * MiB, false, &(kn_pool_options){.soft_limit_bytes = 40 * MiB}, 0);
}

static void plain_segments(void **state) {
    (void)state;
    model_run(1 * GiB, true, &(kn_pool_options){.decay_ns = 5000}, 0);
}

static void calls_that_fail(void **state) {
    (void)state;
    model_run(160 * MiB, false, NULL, 17);
}

static void calls_that_fail_on_plain_segments(void **state) {
    (void)state;
    model_run(512 * MiB, true, &(kn_pool_options){.limit_bytes = 300 * MiB}, 17);
}

int main(void) {
    return RUN_TESTS(TEST(with_room), TEST(short_of_memory), TEST(plain_segments),
                     TEST(calls_that_fail), TEST(calls_that_fail_on_plain_segments));
}
