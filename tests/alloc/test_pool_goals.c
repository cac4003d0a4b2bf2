/* The pool's goals in numbers: few events, little metadata, reserved memory close to live memory;
 * and an observer never sees two live blocks at one address. */
#include <knet/observer.h>
#include <pthread.h>
#include <stdatomic.h>

#include "pool_fixture.h"

enum { STREAMS = 8, BLOCKS = 40 };

/* The other stream waits for the block's own, uses it, and says so. */
static void lend(fixture *f, void *block, kn_stream from, kn_stream to, uint64_t user) {
    order_after(f->device, to, from);
    kn_sim_work(f->sim, to, block, 1, user);
    assert_ok(kn_block_use(f->pool, block, to));
}

static size_t step_bytes(size_t i, size_t stream) { return 1 + (i * i + 1) * (stream + 3) * 977; }

/* Each stream does the same in each step, work on all lags behind, and blocks are lent. */
static void step(fixture *f, const kn_stream streams[STREAMS], uint64_t user) {
    void *blocks[STREAMS][BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t s = 0; s < STREAMS; s++, user++) {
            void *block = must_alloc(f->pool, step_bytes(i, s), streams[s]);
            kn_sim_work(f->sim, streams[s], block, 1, user);
            if (i % 8 == 3) lend(f, block, streams[s], streams[(s + 1) % STREAMS], user);
            while (kn_sim_pending(f->sim, streams[s]) > 50 && kn_sim_step(f->sim, streams[s])) {
            }
            blocks[s][i] = block;
            if (i < 10 || i % 2 == 0) continue;
            assert_ok(kn_free(f->pool, blocks[s][i - 10]));
            blocks[s][i - 10] = NULL;
        }
    }
    for (size_t i = 0; i < BLOCKS * STREAMS; i++) {
        assert_ok(kn_free(f->pool, blocks[i % STREAMS][i / STREAMS]));
    }
}

/* An event for each 64 MiB that were freed, on each stream; and one for uses that are wanted. */
static void many_streams_record_an_event_for_each_64_mib(void **state) {
    (void)state;
    enum { STEPS = 100 };
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(&f);
    kn_pool_stats half = {0};
    uint64_t records = 0, recorded = 0, freed = 0;
    for (uint64_t i = 0; i < STEPS; i++) {
        if (i == STEPS / 2) half = stats_of(f.pool);
        records = kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD);
        step(&f, streams, 1 + i * BLOCKS * STREAMS);
        recorded += kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD) - records;
    }
    kn_pool_stats stats = stats_of(f.pool);
    for (size_t i = 0; i < BLOCKS * STREAMS; i++) freed += step_bytes(i / STREAMS, i % STREAMS);
    uint64_t most = freed * STEPS / 2 / (64 * MiB), n_allocs = stats.n_allocs - half.n_allocs;
    assert_true(stats.n_events - half.n_events <= most + most / 4); /* some are wanted sooner */
    assert_true((stats.n_events - half.n_events) * 10 <= n_allocs);
    assert_true((stats.n_queries - half.n_queries) * 10 <= n_allocs);
    assert_int_equal(stats.n_events + STEPS * STREAMS * BLOCKS / 8, recorded); /* and the lends' */
    assert_int_equal(stats.n_syncs, 0);
    fixture_end(&f);
}

/* Blocks of random lives on several streams; `lent_percent` of them are used on a second one too.
 * The device ends its work every `lag` calls, 0: at once. */
typedef struct lending {
    size_t n_streams, size_min, size_max, lent_percent, lag;
} lending;

static uint64_t reserved_after(const lending *l) {
    enum { CALLS = 200000, LIVE = 200 };
    fixture f = l->lag ? fixture_make(64 * GiB, false, NULL) : fixture_instant(64 * GiB, NULL);
    kn_stream streams[32];
    for (size_t i = 0; i < l->n_streams; i++) streams[i] = new_stream(&f);
    void *live[LIVE] = {NULL};
    uint64_t seed = 7; /* the same lives in each run: the bound is measured, not proved */
    for (size_t i = 1; i <= CALLS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void **block = &live[(seed >> 33) % LIVE];
        kn_stream stream = streams[(seed >> 48) % l->n_streams];
        size_t size = l->size_min + (seed >> 35) % (l->size_max - l->size_min);
        if (!*block) {
            *block = must_alloc(f.pool, size, stream);
        } else {
            bool lent = (seed >> 50) % 100 < l->lent_percent;
            if (lent) assert_ok(kn_block_use(f.pool, *block, stream));
            assert_ok(kn_free(f.pool, *block));
            *block = NULL;
        }
        if (l->lag && i % l->lag == 0) kn_sim_drain(f.sim);
    }
    uint64_t reserved = stats_of(f.pool).reserved_bytes;
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    for (int i = 0; i < LIVE; i++) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
    return reserved;
}

/* Memory used on a second stream costs little more than other memory: the pending work, and the
 * share that the pool has not polled. The pool never waits for the device. */
static void lent_memory_does_not_pile_up(void **state) {
    (void)state;
    const lending cases[] = {
        {.n_streams = 8, .size_min = 70 * KiB, .size_max = 2 * MiB}, /* blocks */
        {.n_streams = 32, .size_min = 1, .size_max = 60 * KiB},      /* slots */
        {.n_streams = 8, .size_min = 70 * KiB, .size_max = 2 * MiB, .lag = 256},
        {.n_streams = 8, .size_min = 1, .size_max = 60 * KiB, .lag = 256}};
    for (size_t i = 0; i < 4; i++) {
        lending l = cases[i];
        uint64_t most = 2 * reserved_after(&l) + l.lag / 2 * l.size_max;
        l.lent_percent = 100;
        assert_true(reserved_after(&l) <= most);
    }
}

/* No free since the last event: the pool records no other. */
static void an_epoch_is_recorded_once(void **state) {
    (void)state;
    fixture f = fixture_make(8 * MiB, false, NULL);
    kn_stream a = new_stream(&f), b = new_stream(&f);
    void *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = must_alloc(f.pool, 2 * MiB, a);
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, blocks[i]));
    assert_int_equal(stats_of(f.pool).n_events, 0);
    for (int i = 0; i < 4; i++) blocks[i] = must_alloc(f.pool, 2 * MiB, b);
    assert_int_equal(stats_of(f.pool).n_events, 1);
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, blocks[i]));
    fixture_end(&f);
}

static void records_are_a_thousandth_of_a_large_pool(void **state) {
    (void)state;
    enum { LIVE = 20000 };
    fixture f = fixture_make(32 * GiB, false, NULL);
    void **live = calloc(LIVE, sizeof *live);
    for (int i = 0; i < 3 * LIVE; i++) {
        size_t k = test_random_below(LIVE);
        assert_ok(kn_free(f.pool, live[k]));
        live[k] = must_alloc(f.pool, 1 + test_random_below(1 * MiB), NULL);
    }
    kn_pool_stats stats = stats_of(f.pool);
    assert_true(stats.reserved_bytes > 8 * GiB);
    assert_true(stats.metadata_bytes * 1000 <= stats.reserved_bytes);
    for (int k = 0; k < LIVE; k++) assert_ok(kn_free(f.pool, live[k]));
    free(live);
    fixture_end(&f);
}

/* Buffers with lifetimes of all lengths and sizes over a range of 16, as planners of memory get
 * them: what fragments most. On a device that keeps up with its work. */
static kn_pool_stats fragment(uint64_t capacity_bytes) {
    enum { SLOTS = 24, ROUNDS = 200 };
    static int n_made;
    char name[16];
    snprintf(name, sizeof name, "sim:full%d", n_made++);
    kn_sim_options options = {.capacity_bytes = capacity_bytes, .instant = true};
    fixture f = {0};
    assert_ok(kn_sim_create(&f.sim, &options));
    assert_ok(kn_device_register(&f.device, name, kn_sim_driver(f.sim), f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    void *live[SLOTS] = {NULL};
    uint64_t seed = 7; /* the same lifetimes in each run: the bound is measured, not proved */
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (seed >> 33) % SLOTS, size = ((size_t)1 << 20) + (seed >> 40) % (100 * MiB);
        assert_ok(kn_free(f.pool, live[k]));
        live[k] = must_alloc(f.pool, size, NULL);
    }
    kn_pool_stats stats = stats_of(f.pool);
    assert_ok(kn_pool_check(f.pool));
    for (int k = 0; k < SLOTS; k++) assert_ok(kn_free(f.pool, live[k]));
    fixture_end(&f);
    return stats;
}

static void fragmented_memory_moves_where_the_device_is_nearly_full(void **state) {
    (void)state;
    kn_pool_stats roomy = fragment(8 * GiB);
    assert_int_equal(roomy.moved_bytes, 0); /* an event and a map cost more than memory there */
    assert_true(roomy.reserved_bytes_max <= 2 * roomy.live_bytes_max);
    kn_pool_stats tight = fragment(roomy.live_bytes_max / 100 * 110);
    assert_true(tight.moved_bytes > 0);
    assert_int_equal(tight.live_bytes_max, roomy.live_bytes_max);
    assert_true(tight.moved_bytes <= 5 * tight.reserved_bytes_max);
}

typedef struct device_calls {
    uint64_t creates, maps, accesses, unmaps, events, queries, syncs;
} device_calls;

static device_calls calls_of(kn_sim *sim) {
    return (device_calls){
        kn_sim_calls(sim, KN_SIM_HANDLE_CREATE), kn_sim_calls(sim, KN_SIM_HANDLE_MAP),
        kn_sim_calls(sim, KN_SIM_RANGE_ACCESS),  kn_sim_calls(sim, KN_SIM_HANDLE_UNMAP),
        kn_sim_calls(sim, KN_SIM_EVENT_RECORD),  kn_sim_calls(sim, KN_SIM_EVENT_QUERY),
        kn_sim_calls(sim, KN_SIM_EVENT_SYNC)};
}

/* A request that no amount of free memory can serve fails after one check: the pool maps, moves and
 * returns nothing, does not wait, and keeps its cache. */
static void a_request_that_cannot_succeed_changes_no_state(void **state) {
    (void)state;
    const size_t hopeless[] = {12 * GiB, 16 * GiB, 17 * GiB, (size_t)1 << 42};
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(16 * GiB, plain, NULL);
        kn_stream s = new_stream(&f);
        void *live[10], *cached[4], *small = must_alloc(f.pool, 1000, s);
        for (int i = 0; i < 10; i++) live[i] = must_alloc(f.pool, 512 * MiB, s);
        for (int i = 0; i < 4; i++) cached[i] = must_alloc(f.pool, 100 * MiB, s);
        for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, cached[i]));
        assert_ok(kn_free(f.pool, small));
        kn_pool_stats before = stats_of(f.pool);
        device_calls calls = calls_of(f.sim);
        for (int i = 0; i < 4; i++) {
            void *x = &x;
            assert_fails(kn_alloc(&x, f.pool, hopeless[i], s), KN_ERR_OOM, "out of memory");
            assert_null(x);
        }
        device_calls after = calls_of(f.sim);
        assert_memory_equal(&after, &calls, sizeof calls);
        kn_pool_stats stats = stats_of(f.pool);
        assert_int_equal(stats.reserved_bytes, before.reserved_bytes);
        assert_int_equal(stats.cached_bytes, before.cached_bytes);
        assert_int_equal(stats.n_ooms, 4);
        for (int i = 0; i < 4; i++) cached[i] = must_alloc(f.pool, 100 * MiB, s);
        assert_int_equal(stats_of(f.pool).reserved_bytes, before.reserved_bytes);
        for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, cached[i]));
        for (int i = 0; i < 10; i++) assert_ok(kn_free(f.pool, live[i]));
        fixture_end(&f);
    }
}

/* Other processes hold memory too: the free bytes of the device count, not its size. */
static void memory_of_other_processes_causes_no_failed_map(void **state) {
    (void)state;
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_pool *others = NULL;
    assert_ok(kn_pool_create(&others, f.device, NULL));
    void *theirs = must_alloc(others, 10 * GiB, NULL), *ours = must_alloc(f.pool, 1 * GiB, NULL);
    uint64_t maps = kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP);
    void *x = NULL;
    assert_fails(kn_alloc(&x, f.pool, 8 * GiB, NULL), KN_ERR_OOM, "out of memory");
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP), maps);
    assert_ok(kn_free(others, theirs));
    kn_pool_destroy(others);
    x = must_alloc(f.pool, 8 * GiB, NULL); /* the pool looks again */
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, ours));
    fixture_end(&f);
}

static void handles_are_as_large_as_the_request_wants(void **state) {
    (void)state;
    fixture f = fixture_make(80 * GiB, false, NULL);
    void *x = must_alloc(f.pool, 35 * GiB, NULL);
    assert_true(kn_sim_calls(f.sim, KN_SIM_HANDLE_CREATE) <= 600);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_RANGE_ACCESS), 1); /* one for all of them */
    void *y = must_alloc(f.pool, 1 * GiB, NULL);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_RANGE_ACCESS), 2);
    assert_true(stats_of(f.pool).reserved_bytes <= stats_of(f.pool).live_bytes / 64 * 65);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

/* An observer that counts a free only after the block is to be had again sees its address handed
 * out twice, and its sums drift. */
enum { GRAINS = 1 << 22 }; /* of 256 bytes: a window as large as the pool's addresses */
static _Atomic(uint8_t) *held;
static _Atomic uint64_t n_twice, bytes_told;

static _Atomic(uint8_t) *grain_of(const void *ptr) { return &held[((uintptr_t)ptr >> 8) % GRAINS]; }

static uint32_t take_note(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool;
    (void)stream;
    n_twice += atomic_exchange(grain_of(ptr), 1) != 0;
    bytes_told += size;
    return 0;
}

static void strike_out(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool;
    (void)owner;
    n_twice += atomic_exchange(grain_of(ptr), 0) != 1;
    bytes_told -= size;
}

static void *churn(void *ctx) {
    kn_pool *pool = ctx;
    uint64_t seed = (uintptr_t)&seed;
    void *live[16] = {NULL};
    for (int i = 0; i < 8000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (seed >> 33) % 16, size = 1 + (seed >> 40) % (seed >> 63 ? 5000 : 500000);
        (void)kn_free(pool, live[k]);
        live[k] = NULL;
        (void)!kn_alloc(&live[k], pool, size, NULL);
        if (i % 512 == 0) (void)!kn_pool_trim(pool, 0);
    }
    for (int k = 0; k < 16; k++) (void)kn_free(pool, live[k]);
    return NULL;
}

static void observer_never_sees_an_address_twice(void **state) {
    (void)state;
    static const kn_observer observer = {.on_alloc = take_note, .on_free = strike_out};
    fixture f = fixture_make(96 * MiB, false, NULL);
    held = calloc(GRAINS, 1);
    assert_non_null(held);
    pthread_t threads[3];
    assert_ok(kn_observer_attach(&observer));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, f.pool), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_ok(kn_observer_attach(NULL));
    assert_int_equal(n_twice, 0);
    assert_int_equal(bytes_told, 0);
    assert_int_equal(stats_of(f.pool).live_bytes, 0);
    assert_int_equal(stats_of(f.pool).n_misuses, 0);
    assert_int_equal(stats_of(f.pool).reserved_bytes, kn_sim_bytes(f.sim));
    free((void *)held);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(TEST(many_streams_record_an_event_for_each_64_mib),
                     TEST(lent_memory_does_not_pile_up), TEST(an_epoch_is_recorded_once),
                     TEST(records_are_a_thousandth_of_a_large_pool),
                     TEST(fragmented_memory_moves_where_the_device_is_nearly_full),
                     TEST(a_request_that_cannot_succeed_changes_no_state),
                     TEST(memory_of_other_processes_causes_no_failed_map),
                     TEST(handles_are_as_large_as_the_request_wants),
                     TEST(observer_never_sees_an_address_twice));
}
