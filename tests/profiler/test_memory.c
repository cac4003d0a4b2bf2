/* Memory attribution against a model that does everything the slow and certain way. */
#include "memory.h"

#include <pthread.h>

#include "test.h"
#include "timer_fixture.h"

static const kn_observer *observer;
static kn_pool *const no_pool =
    (kn_pool *)&report; /* an address; the observer never looks inside */

static int setup(void **state) {
    observer = kn__memory_observer(true);
    return timer_setup(state);
}

static uint32_t alloc(size_t bytes) { return observer->on_alloc(no_pool, NULL, bytes, NULL); }
static void give(size_t bytes, uint32_t owner) { observer->on_free(no_pool, NULL, bytes, owner); }

static void blocks_belong_to_the_innermost_scope(void **state) {
    (void)state;
    uint32_t outer_owner, inner_owner;
    {
        KN_SCOPE("blocks");
        outer_owner = alloc(100);
        KN_SCOPE("inner");
        inner_owner = alloc(40);
    }
    char name[64];
    assert_true(observer->owner_name(inner_owner, name, sizeof name));
    assert_string_equal(name, "blocks/inner");
    assert_true(observer->owner_name(outer_owner, name, sizeof name));
    assert_string_equal(name, "blocks");
    assert_true(observer->owner_name(inner_owner, name, 9)); /* cut at the front */
    assert_string_equal(name, "inner");
    assert_false(observer->owner_name(0, name, sizeof name));
    assert_false(observer->owner_name(9999999, name, sizeof name));
    take_report(&report);
    const kn__row *row = find_row(&report, "blocks"), *inner = find_row(&report, "blocks/inner");
    assert_int_equal(row->alloc_bytes, 140);
    assert_int_equal(row->n_allocs, 2);
    assert_int_equal(row->held, 140);
    assert_int_equal(inner->alloc_bytes, 40);
    give(40, inner_owner);
    give(100, outer_owner);
}

static void memory_outside_any_scope_has_its_own_row(void **state) {
    (void)state;
    uint32_t owner = alloc(512);
    char name[64];
    assert_true(observer->owner_name(owner, name, sizeof name));
    assert_string_equal(name, "(outside any scope)");
    take_report(&report);
    assert_int_equal(report.outside.held, 512);
    give(512, owner);
}

static void rise_is_the_peak_above_the_entry(void **state) {
    (void)state;
    uint32_t base = alloc(1000);
    int64_t before = atomic_load(&kn__memory_live);
    {
        KN_SCOPE("rise");
        uint32_t a = alloc(300);
        give(300, a);
        uint32_t b = alloc(200);
        give(200, b);
    }
    take_report(&report);
    const kn__row *row = find_row(&report, "rise");
    assert_int_equal(row->rise, 300);
    assert_int_equal(row->peak, before + 300);
    assert_true(kn__row_peak_exact(row));
    give(1000, base);
}

static void blocks_freed_before_the_next_allocation_are_temporary(void **state) {
    (void)state;
    char blocks[3];
    {
        KN_SCOPE("temporaries");
        uint32_t kept = observer->on_alloc(no_pool, &blocks[0], 100, NULL);
        uint32_t a = observer->on_alloc(no_pool, &blocks[1], 30, NULL);
        observer->on_free(no_pool, &blocks[1], 30, a); /* one */
        observer->on_free(no_pool, &blocks[0], 100, kept);
        a = observer->on_alloc(no_pool, &blocks[1], 20, NULL);
        uint32_t b = observer->on_alloc(no_pool, &blocks[2], 7, NULL);
        observer->on_free(no_pool, &blocks[1], 20, a);
        KN_SCOPE("where it is freed does not matter");
        observer->on_free(no_pool, &blocks[2], 7, b); /* two */
    }
    take_report(&report);
    const kn__row *row = find_row(&report, "temporaries");
    assert_int_equal(row->n_temporary, 2);
    assert_int_equal(row->temporary_bytes, 37);
    assert_int_equal(
        find_row(&report, "temporaries/where it is freed does not matter")->n_temporary, 0);
}

static void *alloc_elsewhere(void *block) {
    uint32_t owner = observer->on_alloc(no_pool, block, 50, NULL);
    return (void *)(uintptr_t)owner;
}

/* The address is the same, but another thread allocated the second block. */
static void a_block_of_another_thread_is_not_temporary(void **state) {
    (void)state;
    char block;
    pthread_t thread;
    void *owner = NULL;
    KN_SCOPE("own temporary");
    observer->on_free(no_pool, &block, 30, observer->on_alloc(no_pool, &block, 30, NULL));
    assert_int_equal(pthread_create(&thread, NULL, alloc_elsewhere, &block), 0);
    pthread_join(thread, &owner);
    uint64_t before = kn__memory_outside()->n_temporary;
    observer->on_free(no_pool, &block, 50, (uint32_t)(uintptr_t)owner);
    assert_int_equal(kn__memory_outside()->n_temporary, before);
}

/* An observer may be attached while a call runs: its end has no beginning. */
static void the_end_of_a_call_that_began_before_is_ignored(void **state) {
    (void)state;
    observer->on_call_end("cudaFree");
    assert_false(kn__memory_in_call());
    observer->on_call_begin("cudaMalloc");
    assert_true(kn__memory_in_call());
    observer->on_call_end("cudaMalloc");
    assert_false(kn__memory_in_call());
}

/* --- random traces --- */

enum { PATHS = 40, BLOCKS = 300, DEPTH = 3, STEPS = 600 };

typedef struct shadow {
    char path[64];
    uint64_t alloc_bytes, freed_bytes;
    int64_t held, held_at_peak, peak, rise;
} shadow;

typedef struct open_scope {
    int id;
    kn_scope scope;
    int64_t entry, hwm;
} open_scope;

typedef struct world {
    shadow nodes[PATHS];
    int n_nodes;
    open_scope open[DEPTH + 1];
    int depth;
    struct {
        size_t bytes;
        uint32_t owner;
        int node;
    } blocks[BLOCKS];
    int n_blocks;
    int64_t live, live_max;
} world;

static int shadow_of(world *w, const char *path) {
    for (int i = 0; i < w->n_nodes; i++) {
        if (strcmp(w->nodes[i].path, path) == 0) return i;
    }
    w->nodes[w->n_nodes] = (shadow){.peak = 0};
    snprintf(w->nodes[w->n_nodes].path, sizeof w->nodes[0].path, "%s", path);
    return w->n_nodes++;
}

static void shadow_begin(world *w, const char *label) {
    char path[64];
    snprintf(path, sizeof path, "%.50s/%s", w->nodes[w->open[w->depth].id].path, label);
    open_scope *s = &w->open[++w->depth];
    *s = (open_scope){shadow_of(w, path), kn_scope_begin_static(label), w->live, w->live};
}

static void shadow_end(world *w) {
    open_scope *s = &w->open[w->depth--];
    kn_scope_end(&s->scope);
    shadow *node = &w->nodes[s->id];
    node->peak = kn__max_i64(node->peak, s->hwm);
    node->rise = kn__max_i64(node->rise, s->hwm - s->entry);
}

static void shadow_change(world *w, int node, int64_t delta) {
    w->live += delta;
    w->nodes[node].held += delta;
    for (int i = 0; i <= w->depth; i++) w->open[i].hwm = kn__max_i64(w->open[i].hwm, w->live);
    if (w->live <= w->live_max) return;
    w->live_max = w->live;
    for (int i = 0; i < w->n_nodes; i++) w->nodes[i].held_at_peak = w->nodes[i].held;
}

static void shadow_alloc(world *w, size_t bytes) {
    int node = w->open[w->depth].id;
    w->blocks[w->n_blocks].bytes = bytes;
    w->blocks[w->n_blocks].node = node;
    w->blocks[w->n_blocks++].owner = alloc(bytes);
    w->nodes[node].alloc_bytes += bytes;
    shadow_change(w, node, (int64_t)bytes);
}

static void shadow_free(world *w, int i) {
    size_t bytes = w->blocks[i].bytes;
    give(bytes, w->blocks[i].owner);
    w->nodes[w->open[w->depth].id].freed_bytes += bytes;
    shadow_change(w, w->blocks[i].node, -(int64_t)bytes);
    w->blocks[i] = w->blocks[--w->n_blocks];
}

/* Sums over a node and what stands below it. */
static shadow inclusive(const world *w, const shadow *top) {
    shadow sum = *top;
    size_t length = strlen(top->path);
    for (int i = 0; i < w->n_nodes; i++) {
        const shadow *n = &w->nodes[i];
        if (strncmp(n->path, top->path, length) != 0 || n->path[length] != '/') continue;
        sum.alloc_bytes += n->alloc_bytes;
        sum.freed_bytes += n->freed_bytes;
        sum.held += n->held;
    }
    return sum;
}

static void compare(const world *w) {
    take_report(&report);
    assert_int_equal(report.memory.live, w->live);
    for (int i = 0; i < w->n_nodes; i++) {
        shadow want = inclusive(w, &w->nodes[i]);
        const kn__row *row = find_row(&report, want.path);
        assert_non_null(row);
        assert_int_equal(row->alloc_bytes, want.alloc_bytes);
        assert_int_equal(row->freed_bytes, want.freed_bytes);
        assert_int_equal(row->held, want.held);
        assert_int_equal(row->held_at_peak, want.held_at_peak);
        assert_int_equal(row->peak, want.peak);
        assert_int_equal(row->rise, want.rise);
        assert_true(kn__row_peak_exact(row));
    }
    kn__report_release(&report);
}

/* A trace under a scope of its own, which starts with more than any trace before had live. */
static void random_trace(int round) {
    static const char *const labels[] = {"conv", "pool", "relu"};
    static world w;
    memset(&w, 0, sizeof w);
    kn__memory_totals totals;
    kn__memory_totals_read(&totals);
    w.live = totals.live;
    w.live_max = totals.live_max;
    char top[32];
    snprintf(top, sizeof top, "trace %d", round);
    w.open[0] = (open_scope){shadow_of(&w, top), kn_scope_begin(top), w.live, w.live};
    shadow_alloc(&w, (size_t)(w.live_max - w.live) + 1);
    for (int i = 0; i < STEPS; i++) {
        uint64_t what = test_random_below(8);
        if (what == 0 && w.depth < DEPTH && w.n_nodes < PATHS) {
            shadow_begin(&w, labels[test_random_below(3)]);
        } else if (what == 1 && w.depth > 0) {
            shadow_end(&w);
        } else if (what < 5 && w.n_blocks < BLOCKS) {
            shadow_alloc(&w, 1 + test_random_below(1000));
        } else if (w.n_blocks > 1) {
            shadow_free(&w, (int)test_random_below((uint64_t)w.n_blocks));
        }
    }
    while (w.depth > 0) shadow_end(&w);
    while (w.n_blocks) shadow_free(&w, w.n_blocks - 1);
    shadow_end(&w); /* the top scope itself */
    w.depth = 0;
    compare(&w);
}

static void peaks_and_owners_agree_with_brute_force(void **state) {
    (void)state;
    for (int round = 0; round < 150; round++) random_trace(round);
}

/* --- threads and pools --- */

static void *disturb(void *arg) {
    (void)arg;
    give(64, alloc(64));
    return NULL;
}

static void windows_that_other_threads_disturb_are_marked(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        kn_scope scope = kn_scope_begin_static(i ? "disturbed" : "quiet");
        pthread_t thread;
        if (i) assert_int_equal(pthread_create(&thread, NULL, disturb, NULL), 0);
        if (i) pthread_join(thread, NULL);
        kn_scope_end(&scope);
    }
    take_report(&report);
    assert_true(kn__row_peak_exact(find_row(&report, "quiet")));
    assert_false(kn__row_peak_exact(find_row(&report, "disturbed")));
}

/* Another thread, which ends before the scope that waits for it. */
static void in_a_thread(void *(*run)(void *), void *arg) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
    pthread_join(thread, NULL);
}

static void *reach_the_mark(void *arg) {
    kn__memory_totals totals;
    kn__memory_totals_read(&totals);
    size_t bytes = (size_t)(totals.live_max - totals.live) + 1000;
    give(bytes, alloc(bytes));
    *(int64_t *)arg = totals.live_max + 1000;
    return NULL;
}

static void a_scope_in_which_another_thread_reaches_the_mark_shows_it(void **state) {
    (void)state;
    int64_t mark = 0, before = atomic_load(&kn__memory_live);
    {
        KN_SCOPE("waits for a thread");
        in_a_thread(reach_the_mark, &mark);
        in_a_thread(disturb, NULL);
    }
    take_report(&report);
    const kn__row *row = find_row(&report, "waits for a thread");
    assert_int_equal(row->peak, mark);
    assert_int_equal(row->rise, mark - before);
    assert_true(kn__row_peak_exact(row));
}

static void *keep_a_block(void *arg) {
    *(uint32_t *)arg = alloc(5000);
    return NULL;
}

/* The block of another thread that is live at the end was live inside. */
static void a_mark_that_is_not_exact_is_a_lower_bound(void **state) {
    (void)state;
    uint32_t owner = 0, own;
    int64_t before = atomic_load(&kn__memory_live);
    {
        KN_SCOPE("bound from below");
        own = alloc(300);
        in_a_thread(keep_a_block, &owner);
    }
    give(300, own);
    take_report(&report);
    const kn__row *row = find_row(&report, "bound from below");
    assert_int_equal(row->peak, before + 5300);
    assert_false(kn__row_peak_exact(row));
    give(5000, owner);
    for (int i = 0; i < 2; i++) { /* a call that is exact and no lower than the bound settles it */
        int64_t mark = 0;
        KN_SCOPE("bound from below");
        in_a_thread(i ? reach_the_mark : disturb, &mark);
    }
    kn__report_release(&report);
    take_report(&report);
    assert_true(kn__row_peak_exact(find_row(&report, "bound from below")));
}

/* As when the observer is attached while a scope is open. */
static void a_scope_opened_before_tracking_shows_its_memory(void **state) {
    (void)state;
    uint32_t extras = atomic_load(&kn__prof_extras);
    atomic_store(&kn__prof_extras, extras & ~(uint32_t)KN__PROF_MEM);
    kn_scope scope = kn_scope_begin_static("opened early");
    atomic_store(&kn__prof_extras, extras);
    uint32_t owner = alloc(700);
    take_report(&report);
    assert_int_equal(find_row(&report, "opened early")->peak, 700);
    assert_false(kn__row_peak_exact(find_row(&report, "opened early")));
    give(700, owner);
    kn_scope_end(&scope);
}

typedef struct meeting {
    pthread_barrier_t barrier;
    int64_t before;
} meeting;

/* 700 bytes in outer before inner is open, which has 500; then 200 are live. */
static void *hold_in_scopes(void *arg) {
    meeting *m = arg;
    m->before = atomic_load(&kn__memory_live);
    KN_SCOPE("open outer");
    uint32_t first = alloc(200);
    give(500, alloc(500));
    KN_SCOPE("open inner");
    give(300, alloc(300));
    pthread_barrier_wait(&m->barrier);
    pthread_barrier_wait(&m->barrier);
    give(200, first);
    return NULL;
}

static void scopes_open_on_other_threads_have_their_marks(void **state) {
    (void)state;
    meeting m;
    pthread_t thread;
    pthread_barrier_init(&m.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, hold_in_scopes, &m), 0);
    pthread_barrier_wait(&m.barrier);
    take_report(&report);
    pthread_barrier_wait(&m.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&m.barrier);
    const kn__row *outer = find_row(&report, "open outer");
    const kn__row *inner = find_row(&report, "open outer/open inner");
    assert_true(outer->open && inner->open);
    assert_int_equal(outer->peak, m.before + 700);
    assert_int_equal(outer->rise, 700);
    assert_int_equal(inner->peak, m.before + 500);
    assert_int_equal(inner->rise, 300);
    assert_true(kn__row_peak_exact(outer) && kn__row_peak_exact(inner));
    kn__report_release(&report);
    take_report(&report);
    assert_int_equal(find_row(&report, "open outer")->peak, m.before + 700);
}

static void a_real_pool_reports_its_blocks(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    kn_pool_options options = {.name = "test pool"};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    kn_pool_stats stats;
    void *x = NULL, *y = NULL;
    {
        KN_SCOPE("real pool");
        assert_ok(kn_alloc(&x, pool, 5000, NULL));
        assert_ok(kn_alloc(&y, pool, 100000, NULL));
        assert_ok(kn_free(pool, x));
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    take_report(&report);
    const kn__row *row = find_row(&report, "real pool");
    const kn__pool_use *use = NULL;
    for (int i = 0; i < report.memory.n_pools; i++) {
        if (strcmp(report.memory.pools[i].name, "test pool") == 0) use = &report.memory.pools[i];
    }
    assert_non_null(use);
    assert_int_equal(row->n_allocs, 2);
    assert_int_equal(row->held, stats.live_bytes);
    assert_int_equal(use->live, stats.live_bytes);
    assert_int_equal(use->live_max, stats.live_bytes_max);
    assert_int_equal(row->rise, stats.live_bytes_max);
    assert_ok(kn_free(pool, y));
    kn_pool_destroy(pool);
}

static void a_short_lived_pool_disturbs_no_other(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    kn_pool_options options = {.name = "short-lived"};
    void *x = NULL;
    {
        KN_SCOPE("pool inside");
        assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
        assert_ok(kn_alloc(&x, pool, 5000, NULL));
        kn_pool_destroy(pool); /* with a live block */
    }
    take_report(&report);
    assert_true(kn__row_peak_exact(find_row(&report, "pool inside")));
    const kn__pool_use *use = NULL;
    for (int i = 0; i < report.memory.n_pools; i++) {
        if (strcmp(report.memory.pools[i].name, "short-lived") == 0) use = &report.memory.pools[i];
    }
    assert_non_null(use);
    assert_true(use->reserved_max > 0);
    assert_int_equal(use->reserved, 0);
}

static const kn__pool_use *use_of(const char *name) {
    for (int i = 0; i < report.memory.n_pools; i++) {
        if (strcmp(report.memory.pools[i].name, name) == 0) return &report.memory.pools[i];
    }
    fail_msg("no pool %s", name);
    return NULL;
}

static void a_mark_stays_when_the_program_resets_the_pools(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    void *x = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.name = "reset"}));
    assert_ok(kn_alloc(&x, pool, 100000, NULL));
    assert_ok(kn_free(pool, x));
    kn_pool_peaks_reset(pool);
    assert_ok(kn_alloc(&x, pool, 5000, NULL));
    take_report(&report);
    assert_in_range(use_of("reset")->live_max, 100000, 110000);
    assert_in_range(use_of("reset")->live, 5000, 6000);
    assert_ok(kn_free(pool, x));
    kn_pool_destroy(pool);
}

static void leaks_are_reported_with_their_scope(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    kn_pool_options options = {.name = "leaky"};
    void *kept = NULL, *freed = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    {
        KN_SCOPE("leaks");
        assert_ok(kn_alloc(&freed, pool, 1 << 20, NULL));
        KN_SCOPE("inside");
        assert_ok(kn_alloc(&kept, pool, 3 << 20, NULL));
    }
    assert_ok(kn_free(pool, freed));
    kn_pool_destroy(pool);
    take_report(&report);
    assert_true(report.n_holders >= 1); /* and other tests' */
    assert_string_equal(report.holders[0].path, "leaks/inside");
    assert_int_equal(report.holders[0].bytes, 3 << 20);
    assert_int_equal(kn__row_held(find_row(&report, "leaks/inside")), 3 << 20);
    assert_int_equal(kn__row_held(find_row(&report, "leaks")), 0);
    assert_int_equal(use_of("leaky")->leaked, 3 << 20);
}

static void pools_of_a_name_that_follow_each_other_add_up(void **state) {
    (void)state;
    kn_pool_options options = {.name = "again"};
    for (int i = 0; i < 3; i++) {
        kn_pool *pool = NULL;
        void *x = NULL;
        assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
        assert_ok(kn_pool_limit(pool, 64 << 20));
        assert_fails(kn_alloc(&x, pool, 128 << 20, NULL), KN_ERR_OOM, "again");
        assert_ok(kn_alloc(&x, pool, 1000, NULL));
        assert_ok(kn_free(pool, x));
        if (i < 2) kn_pool_destroy(pool);
        take_report(&report);
        assert_int_equal(use_of("again")->n_allocs, i + 1);
        assert_int_equal(use_of("again")->n_ooms, i + 1);
        kn__report_release(&report);
        if (i == 2) kn_pool_destroy(pool);
    }
}

static void the_device_says_how_full_it_was(void **state) {
    (void)state;
    kn_device *sim = NULL;
    kn_pool *pool = NULL;
    kn_pool_options options = {.name = "on sim"};
    void *x = NULL;
    assert_ok(kn_device_find(&sim, "sim"));
    assert_ok(kn_pool_create(&pool, sim, &options));
    assert_ok(kn_alloc(&x, pool, 8 << 20, NULL));
    take_report(&report);
    const kn__pool_use *use = use_of("on sim");
    assert_true(use->device_total > 0);
    assert_int_equal(use->device_used, use->reserved_max); /* the test is its only user */
    assert_ok(kn_free(pool, x));
    kn_pool_destroy(pool);
}

/* Twice through all of it, as KNET_TIMER=nomem and kn_prof_owners_on do. */
static void one_table_of_ours_replaces_the_other(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_ok(kn__memory_start(false));
        assert_ok(kn__memory_start(true));
    }
    assert_ok(kn__memory_start(true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(blocks_belong_to_the_innermost_scope, setup, timer_teardown),
        TEST_WITH(memory_outside_any_scope_has_its_own_row, setup, timer_teardown),
        TEST_WITH(rise_is_the_peak_above_the_entry, setup, timer_teardown),
        TEST_WITH(blocks_freed_before_the_next_allocation_are_temporary, setup, timer_teardown),
        TEST_WITH(a_block_of_another_thread_is_not_temporary, setup, timer_teardown),
        TEST_WITH(the_end_of_a_call_that_began_before_is_ignored, setup, timer_teardown),
        TEST_WITH(peaks_and_owners_agree_with_brute_force, setup, timer_teardown),
        TEST_WITH(windows_that_other_threads_disturb_are_marked, setup, timer_teardown),
        TEST_WITH(a_scope_in_which_another_thread_reaches_the_mark_shows_it, setup, timer_teardown),
        TEST_WITH(a_mark_that_is_not_exact_is_a_lower_bound, setup, timer_teardown),
        TEST_WITH(a_scope_opened_before_tracking_shows_its_memory, setup, timer_teardown),
        TEST_WITH(scopes_open_on_other_threads_have_their_marks, setup, timer_teardown),
        TEST_WITH(a_real_pool_reports_its_blocks, setup, timer_teardown),
        TEST_WITH(a_short_lived_pool_disturbs_no_other, setup, timer_teardown),
        TEST_WITH(pools_of_a_name_that_follow_each_other_add_up, setup, timer_teardown),
        TEST_WITH(the_device_says_how_full_it_was, setup, timer_teardown),
        TEST_WITH(a_mark_stays_when_the_program_resets_the_pools, setup, timer_teardown),
        TEST_WITH(leaks_are_reported_with_their_scope, setup, timer_teardown),
        TEST_WITH(one_table_of_ours_replaces_the_other, setup, timer_teardown),
    };
    return cmocka_run_group_tests_name("profiler.memory", tests, NULL, NULL);
}
