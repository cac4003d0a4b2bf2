/* Under pressure the pool grows last: it first uses cached, waiting and scattered memory. Without
 * pressure it grows, and repeated work reaches a steady state. */
#include "pool_fixture.h"

/* The slots that a thread keeps hold whole slabs back. */
static void cached_slots_make_room_for_a_block(void **state) {
    (void)state;
    enum { N = 32 };
    for (int soft = 0; soft < 2; soft++) { /* pressure counts from the soft limit too */
        kn_pool_options options = {.pressure = 0.5};
        *(soft ? &options.soft_limit_bytes : &options.limit_bytes) = 4 * MiB;
        fixture f = fixture_instant(1 * GiB, &options);
        void *slots[N];
        for (int i = 0; i < N; i++) slots[i] = must_alloc(f.pool, 64 * KiB, NULL);
        uint64_t reserved = stats_of(f.pool).reserved_bytes;
        for (int i = 0; i < N; i++) assert_ok(kn_free(f.pool, slots[i]));
        void *block = must_alloc(f.pool, reserved, NULL);
        assert_int_equal(stats_of(f.pool).reserved_bytes, reserved);
        assert_ok(kn_free(f.pool, block));
        fixture_end(&f);
    }
}

/* `to` waits for `from` and uses the block. */
static void lend(fixture *f, void *block, size_t size, uint64_t user, kn_stream from,
                 kn_stream to) {
    order_after(f->device, to, from);
    kn_sim_work(f->sim, to, block, size, user);
    assert_ok(kn_block_use(f->pool, block, to));
}

/* Blocks lie side by side, freed, and other streams' work on them is still to come. Whoever wants
 * their memory together waits for that work on the device. */
static void waiting_blocks_are_taken_together(void **state) {
    (void)state;
    enum { N = 6 };
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(1 * GiB, plain, &(kn_pool_options){.limit_bytes = 100 * MiB});
        kn_stream a = new_stream(&f), b = new_stream(&f), c = new_stream(&f);
        void *blocks[N], *all = must_alloc(f.pool, 96 * MiB, a);
        assert_ok(kn_free(f.pool, all));
        for (int i = 0; i < N; i++) blocks[i] = must_alloc(f.pool, 16 * MiB, a);
        for (size_t i = 0; i < N; i++) {
            kn_sim_work(f.sim, a, blocks[i], 16 * MiB, 1 + i);
            if (i % 3 < 2) lend(&f, blocks[i], 16 * MiB, 1 + i, a, i % 3 ? b : c);
        }
        for (int i = 1; i < N; i++) assert_ok(kn_free(f.pool, blocks[i]));
        void *big = must_alloc(f.pool, 75 * MiB, b);
        kn_sim_work(f.sim, b, big, 75 * MiB, 100);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_int_equal(stats_of(f.pool).moved_bytes, 0);
        assert_ok(kn_pool_check(f.pool));
        kn_sim_drain(f.sim); /* looks whether anybody's work met another's */
        assert_ok(kn_free(f.pool, blocks[0]));
        assert_ok(kn_free(f.pool, big));
        fixture_end(&f);
    }
}

/* What waits joins the free block on its right, whose record stays. */
static void waiting_blocks_merge_with_free_memory_after_them(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.limit_bytes = 48 * MiB});
    kn_stream a = new_stream(&f), b = new_stream(&f), c = new_stream(&f);
    void *stays = must_alloc(f.pool, 16 * MiB, a), *waits = must_alloc(f.pool, 16 * MiB, a);
    void *right = must_alloc(f.pool, 16 * MiB, b);
    kn_sim_work(f.sim, a, waits, 16 * MiB, 1);
    lend(&f, waits, 16 * MiB, 1, a, c);
    assert_ok(kn_free(f.pool, waits));
    assert_ok(kn_free(f.pool, right));
    void *big = must_alloc(f.pool, 30 * MiB, b);
    kn_sim_work(f.sim, b, big, 30 * MiB, 2);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_pool_check(f.pool));
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, big));
    assert_ok(kn_free(f.pool, stays));
    fixture_end(&f);
}

/* Of two runs of neighbours the shorter one that is enough, so that the other serves the next. */
static void shortest_run_of_neighbours_is_taken(void **state) {
    (void)state;
    static const size_t mib[] = {20, 20, 2, 12, 12, 2};
    fixture f = fixture_make(68 * MiB, false, NULL);
    kn_stream a = new_stream(&f), b = new_stream(&f), c = new_stream(&f);
    void *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        blocks[i] = must_alloc(f.pool, mib[i] * MiB, i % 3 ? b : a);
        kn_sim_work(f.sim, i % 3 ? b : a, blocks[i], mib[i] * MiB, 1 + i);
    }
    for (size_t i = 0; i < 6; i++) {
        if (mib[i] > 2) assert_ok(kn_free(f.pool, blocks[i]));
    }
    void *small = must_alloc(f.pool, 24 * MiB, c), *large = must_alloc(f.pool, 40 * MiB, c);
    kn_sim_work(f.sim, c, small, 24 * MiB, 7);
    kn_sim_work(f.sim, c, large, 40 * MiB, 8);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    void *all[] = {blocks[2], blocks[5], small, large};
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* If memory is short, growth uses adjacent memory that another stream freed, after a wait on the
 * device; otherwise no stream waits. */
static void growth_takes_adjacent_free_memory_when_memory_is_short(void **state) {
    (void)state;
    for (int tight = 0; tight < 2; tight++) {
        fixture f = fixture_make(tight ? 40 * MiB : 1 * GiB, false, NULL);
        kn_stream a = new_stream(&f), b = new_stream(&f);
        void *small = must_alloc(f.pool, 32 * MiB, a);
        kn_sim_work(f.sim, a, small, 32 * MiB, 1);
        assert_ok(kn_free(f.pool, small));
        void *big = must_alloc(f.pool, 40 * MiB, b);
        kn_sim_work(f.sim, b, big, 40 * MiB, 2);
        while (kn_sim_step(f.sim, b)) {
        }
        assert_int_equal(kn_sim_pending(f.sim, b) > 0, tight); /* behind a's work, or done */
        assert_int_equal(stats_of(f.pool).reserved_bytes, (tight ? 40 : 72) * MiB);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        kn_sim_drain(f.sim);
        assert_ok(kn_free(f.pool, big));
        fixture_end(&f);
    }
}

/* The same with a hole before what another stream freed. */
static void growth_waits_for_free_memory_after_a_hole(void **state) {
    (void)state;
    fixture f = fixture_make(40 * MiB, false, NULL);
    kn_stream a = new_stream(&f), b = new_stream(&f);
    void *hole = must_alloc(f.pool, 20 * MiB, a), *used = must_alloc(f.pool, 20 * MiB, a);
    assert_ok(kn_free(f.pool, hole));
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_pool_trim(f.pool, 0));
        kn_sim_drain(f.sim);
    }
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).reserved_bytes, 20 * MiB);
    kn_sim_work(f.sim, a, used, 20 * MiB, 1);
    assert_ok(kn_free(f.pool, used));
    void *all = must_alloc(f.pool, 40 * MiB, b);
    kn_sim_work(f.sim, b, all, 40 * MiB, 2);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), 1);
    assert_ok(kn_free(f.pool, all));
    fixture_end(&f);
}

/* The free memory is not enough: the pool moves none of it. */
static void a_request_that_cannot_be_served_moves_no_memory(void **state) {
    (void)state;
    enum { N = 64 };
    fixture f = fixture_instant((N + 2) * MiB, NULL);
    void *first = must_alloc(f.pool, 2 * MiB, NULL), *blocks[N], *none = NULL;
    for (int i = 0; i < N; i++) blocks[i] = must_alloc(f.pool, 1 * MiB, NULL);
    for (int i = 0; i < N; i += 2) assert_ok(kn_free(f.pool, blocks[i])); /* half of each handle */
    assert_ok(kn_free(f.pool, first));
    assert_int_equal(kn_alloc(&none, f.pool, 6 * MiB, NULL), KN_ERR_OOM);
    assert_int_equal(stats_of(f.pool).moved_bytes, 0);
    for (int i = 1; i < N; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
    fixture_end(&f);
}

/* A hole, followed by more free memory than its size: the rest of that memory fills the hole. */
static void free_memory_after_a_hole_fills_it(void **state) {
    (void)state;
    fixture f = fixture_instant(1 * GiB, NULL);
    void *before = must_alloc(f.pool, 20 * MiB, NULL), *gone = must_alloc(f.pool, 20 * MiB, NULL);
    void *behind = must_alloc(f.pool, 60 * MiB, NULL), *after = must_alloc(f.pool, 2 * MiB, NULL);
    assert_ok(kn_free(f.pool, gone));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).reserved_bytes, 82 * MiB);
    void *last = must_alloc(f.pool, 24 * MiB, NULL);
    assert_ok(kn_free(f.pool, behind));
    void *big = must_alloc(f.pool, 70 * MiB, NULL); /* 20 of the hole, and 50 behind it */
    assert_int_equal(stats_of(f.pool).moved_bytes, 10 * MiB);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 116 * MiB);
    assert_int_equal(stats_of(f.pool).live_bytes, 116 * MiB);
    void *all[] = {before, after, last, big};
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* Free handles of 16 MiB, apart, and a hole of 24 MiB: only one can be moved there. */
static void handles_larger_than_a_hole_are_replaced(void **state) {
    (void)state;
    enum { N = 64 };
    fixture f = fixture_instant(1050 * MiB, NULL);
    void *first = must_alloc(f.pool, 24 * MiB, NULL), *keep = must_alloc(f.pool, 2 * MiB, NULL);
    void *all = must_alloc(f.pool, N * 16 * MiB, NULL), *pieces[N];
    assert_ok(kn_free(f.pool, all));
    for (int i = 0; i < N; i++) pieces[i] = must_alloc(f.pool, 16 * MiB, NULL);
    assert_ok(kn_free(f.pool, first));
    assert_ok(kn_pool_limit(f.pool, 1026 * MiB)); /* the hole */
    assert_int_equal(stats_of(f.pool).reserved_bytes, 1026 * MiB);
    for (int i = 1; i < 5; i += 2) assert_ok(kn_free(f.pool, pieces[i]));
    first = must_alloc(f.pool, 24 * MiB, NULL);
    assert_true(stats_of(f.pool).reserved_bytes <= 1026 * MiB);
    for (int i = 0; i < N; i++) {
        if (i != 1 && i != 3) assert_ok(kn_free(f.pool, pieces[i]));
    }
    assert_ok(kn_free(f.pool, first));
    assert_ok(kn_free(f.pool, keep));
    fixture_end(&f);
}

/* A growth found no idle handle; by the next one, which is large, all are idle. */
static void large_growth_looks_for_idle_memory_again(void **state) {
    (void)state;
    enum { N = 64 };
    fixture f = fixture_instant(1 * GiB, NULL);
    void *blocks[N];
    for (int i = 0; i < N; i++) blocks[i] = must_alloc(f.pool, 1 * MiB, NULL);
    for (int i = 0; i < N; i += 2) assert_ok(kn_free(f.pool, blocks[i])); /* half of each handle */
    void *last = must_alloc(f.pool, 2 * MiB, NULL);
    assert_int_equal(stats_of(f.pool).reserved_bytes, (N + 2) * MiB);
    for (int i = 1; i < N; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
    void *big = must_alloc(f.pool, (N + 4) * MiB, NULL);
    assert_int_equal(stats_of(f.pool).moved_bytes, N * MiB);
    assert_int_equal(stats_of(f.pool).reserved_bytes, (N + 6) * MiB);
    assert_ok(kn_free(f.pool, last));
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

enum { SLOTS = 24, ROUNDS = 300 };

/* The same requests in each call, whose sizes and lifetimes are of all lengths. */
static void wild_step(fixture *f) {
    void *live[SLOTS] = {NULL};
    uint64_t seed = 7;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (seed >> 33) % SLOTS, size = 1 * MiB + (seed >> 20) % (200 * MiB);
        assert_ok(kn_free(f->pool, live[k]));
        live[k] = must_alloc(f->pool, size, NULL);
    }
    for (int k = 0; k < SLOTS; k++) assert_ok(kn_free(f->pool, live[k]));
}

static uint64_t device_calls(fixture *f) { return kn_sim_calls(f->sim, KN_SIM_ANY); }

/* Moves make up for what fragments, but not for ever: then the pool is large enough as it lies. */
static void work_that_repeats_settles(void **state) {
    (void)state;
    fixture f = fixture_instant(16 * GiB, NULL);
    uint64_t before = 0;
    for (int step = 0; step < 200; step++) {
        if (step == 190) before = device_calls(&f);
        wild_step(&f);
    }
    kn_pool_stats stats = stats_of(f.pool);
    assert_int_equal(device_calls(&f), before);
    assert_true(stats.moved_bytes > 0);
    assert_true(stats.moved_bytes <= 8 * stats.reserved_bytes_max);
    assert_true((double)stats.reserved_bytes_max <= 1.3 * (double)stats.live_bytes_max);
    fixture_end(&f);
}

/* Lifetimes and sizes for which each placement fragments again: without an end to the moves each
 * step would unmap and map. */
static void work_that_moves_memory_again_and_again_settles(void **state) {
    (void)state;
    enum { FEW = 8 };
    fixture f = fixture_instant(16 * GiB, NULL);
    uint64_t before = 0;
    for (int step = 0; step < 100; step++) {
        void *live[FEW] = {NULL};
        uint64_t seed = 7;
        if (step == 80) before = device_calls(&f);
        for (int i = 0; i < 200; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t k = (seed >> 33) % FEW, size = 1 * MiB + (seed >> 20) % (300 * MiB);
            assert_ok(kn_free(f.pool, live[k]));
            live[k] = must_alloc(f.pool, size, NULL);
        }
        for (int k = 0; k < FEW; k++) assert_ok(kn_free(f.pool, live[k]));
    }
    kn_pool_stats stats = stats_of(f.pool);
    assert_int_equal(device_calls(&f), before);
    assert_true(stats.moved_bytes > 0);
    assert_true(stats.moved_bytes <= 6 * stats.reserved_bytes_max);
    assert_true(stats.reserved_bytes_max <= 2 * stats.live_bytes_max);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(cached_slots_make_room_for_a_block), TEST(waiting_blocks_are_taken_together),
        TEST(waiting_blocks_merge_with_free_memory_after_them),
        TEST(growth_takes_adjacent_free_memory_when_memory_is_short),
        TEST(shortest_run_of_neighbours_is_taken), TEST(growth_waits_for_free_memory_after_a_hole),
        TEST(a_request_that_cannot_be_served_moves_no_memory),
        TEST(free_memory_after_a_hole_fills_it), TEST(handles_larger_than_a_hole_are_replaced),
        TEST(large_growth_looks_for_idle_memory_again), TEST(work_that_repeats_settles),
        TEST(work_that_moves_memory_again_and_again_settles));
}
