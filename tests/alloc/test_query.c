/* Queries by address, peaks that start again, kn_pool_sync, and memory of graphs on demand. */
#include <knet/observer.h>
#include <knet/pool_graph.h>

#include "pool_fixture.h"

/* --- kn_pool_visit --- */

typedef struct seen {
    uint64_t n, segments, segment_bytes, part_bytes, live_bytes, requested, waiting, n_live,
        ends_at;
    const char *end; /* of the part before */
    const void *wanted;
    kn_pool_part found;
} seen;

static bool look(void *ctx, const kn_pool_part *part) {
    seen *s = ctx;
    s->n++;
    if (part->kind == KN_PART_SEGMENT) {
        s->segments++;
        s->segment_bytes += part->size_bytes;
        s->end = part->ptr;
    } else {
        assert_true((const char *)part->ptr >= s->end);
        s->end = (const char *)part->ptr + part->size_bytes;
        s->part_bytes += part->size_bytes;
    }
    if (part->kind == KN_PART_LIVE) {
        s->n_live++;
        s->live_bytes += part->size_bytes;
        s->requested += part->requested;
    }
    if (part->kind == KN_PART_WAITING) s->waiting += part->size_bytes;
    if (part->ptr == s->wanted && part->kind != KN_PART_SEGMENT) s->found = *part;
    return s->n == s->ends_at;
}

static kn_part_kind kind_of(kn_pool *pool, const void *ptr) {
    seen s = {.wanted = ptr};
    kn_pool_visit(pool, look, &s);
    return s.found.kind;
}

static void visit_shows_all_segments_and_their_parts(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(256 * MiB, plain, NULL);
        kn_stream s = new_stream(&f), t = new_stream(&f);
        kn_tag_push("seen");
        void *small = must_alloc(f.pool, 700, s), *large = must_alloc(f.pool, 3 * MiB - 100, s);
        kn_tag_pop();
        void *soon = must_alloc(f.pool, 500, s);
        kn_sim_work(f.sim, t, soon, 500, 2);
        assert_ok(kn_block_use(f.pool, soon, t));
        assert_ok(kn_free(f.pool, soon));
        void *late = must_alloc(f.pool, 2 * MiB, s), *gone = must_alloc(f.pool, 5 * MiB, t);
        kn_sim_work(f.sim, t, late, 2 * MiB, 1);
        assert_ok(kn_block_use(f.pool, late, t));
        assert_ok(kn_free(f.pool, late));
        assert_ok(kn_free(f.pool, gone));
        assert_int_equal(kind_of(f.pool, soon), KN_PART_WAITING);
        for (int i = 0; i < 2; i++) {
            const void *wanted = i ? large : small;
            seen x = {.wanted = wanted};
            kn_pool_visit(f.pool, look, &x);
            kn_pool_stats stats = stats_of(f.pool);
            assert_int_equal(x.segment_bytes, stats.reserved_bytes);
            assert_true(x.part_bytes <= x.segment_bytes);
            assert_true(x.part_bytes + 64 * KiB >= x.segment_bytes);
            assert_int_equal(x.live_bytes, stats.live_bytes);
            assert_int_equal(x.requested, stats.requested_bytes);
            assert_int_equal(x.waiting, stats.waiting_bytes);
            assert_int_equal(x.n_live, 2);
            assert_true(x.waiting >= 2 * MiB && x.segments > 0);
            kn_block_info info;
            assert_true(kn_block_find(&info, sizeof info, f.pool, wanted));
            assert_int_equal(x.found.kind, KN_PART_LIVE);
            assert_int_equal(x.found.size_bytes, info.size_bytes);
            assert_int_equal(x.found.requested, i ? 3 * MiB - 100 : 700);
            assert_ptr_equal(x.found.stream, s);
            assert_string_equal(x.found.tag, "seen");
            seen first = {.ends_at = 2};
            kn_pool_visit(f.pool, look, &first);
            assert_int_equal(first.n, 2);
        }
        assert_ok(kn_free(f.pool, small));
        assert_ok(kn_free(f.pool, large));
        kn_sim_drain(f.sim);
        kn_stream_destroy(f.device, s);
        kn_stream_destroy(f.device, t);
        fixture_end(&f);
    }
}

static void preallocated_memory_serves_later_requests(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    assert_ok(kn_pool_preallocate(f.pool, 100 * MiB, NULL));
    kn_pool_stats before = stats_of(f.pool);
    assert_int_equal(before.live_bytes, 0);
    assert_true(before.reserved_bytes >= 100 * MiB);
    void *x = must_alloc(f.pool, 60 * MiB, NULL), *y = must_alloc(f.pool, 40 * MiB, NULL);
    assert_int_equal(stats_of(f.pool).n_device_allocs, before.n_device_allocs);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_fails(kn_pool_preallocate(f.pool, 300 * MiB, NULL), KN_ERR_OOM, "300 MiB");
    fixture_end(&f);
}

static int n_seen;

static uint32_t see_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)size, (void)stream;
    n_seen++;
    return 0;
}

static void see_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool, (void)ptr, (void)size, (void)owner;
    n_seen++;
}

static void see_reserve(kn_pool *pool, int64_t delta_bytes, uint64_t reserved_bytes) {
    (void)pool, (void)reserved_bytes;
    n_seen += delta_bytes > 0 ? 100 : 10000;
}

/* Small ones too: they take a slab's memory. */
static void preallocation_is_no_allocation(void **state) {
    (void)state;
    static const kn_observer observer = {
        .on_alloc = see_alloc, .on_free = see_free, .on_reserve = see_reserve};
    static const size_t sizes[] = {1, 1000, 64 * KiB, 100 * KiB, 50 * MiB};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i / 2];
        fixture f = fixture_make(256 * MiB, i % 2, NULL);
        kn_stream s = new_stream(&f);
        kn_tag_stats tag;
        n_seen = 0;
        assert_ok(kn_observer_attach(&observer));
        kn_tag_push("preallocated");
        assert_ok(kn_pool_preallocate(f.pool, size, s));
        assert_ok(kn_pool_preallocate(f.pool, size, s)); /* it is there already */
        kn_tag_pop();
        assert_int_equal(n_seen, 100);
        assert_ok(kn_observer_attach(NULL));
        kn_pool_stats before = stats_of(f.pool);
        assert_int_equal(before.live_bytes_max, 0);
        assert_int_equal(before.n_allocs, 0);
        assert_int_equal(kn_pool_tags(&tag, 1, f.pool), 0);
        void *x = must_alloc(f.pool, size, s);
        assert_int_equal(stats_of(f.pool).n_device_allocs, before.n_device_allocs);
        assert_ok(kn_free(f.pool, x));
        kn_sim_drain(f.sim);
        kn_stream_destroy(f.device, s);
        fixture_end(&f);
    }
}

/* --- kn_block_find --- */

static kn_block_info find(kn_pool *pool, const void *ptr) {
    kn_block_info info;
    memset(&info, 0xff, sizeof info);
    assert_true(kn_block_find(&info, sizeof info, pool, ptr));
    return info;
}

static void assert_unknown(kn_pool *pool, const void *ptr) {
    kn_block_info info = {.size_bytes = 77};
    assert_false(kn_block_find(&info, sizeof info, pool, ptr));
    assert_int_equal(info.size_bytes, 77);
}

static void block_is_found_from_any_of_its_addresses(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 300, 5000, 65536, 65537, 3 * MiB, 50 * MiB};
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(256 * MiB, plain, NULL);
        kn_stream s = new_stream(&f);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *ptr = must_alloc(f.pool, sizes[i], s);
            const size_t at[] = {0, sizes[i] / 3, sizes[i] - 1};
            for (int k = 0; k < 3; k++) {
                kn_block_info info = find(f.pool, ptr + at[k]);
                assert_ptr_equal(info.ptr, ptr);
                assert_int_equal(info.requested_bytes, sizes[i]);
                assert_true(info.size_bytes >= sizes[i] && info.size_bytes <= sizes[i] * 2 + 512);
                assert_ptr_equal(info.stream, s);
                assert_string_equal(info.tag, "");
                assert_false(info.graph);
            }
            assert_ok(kn_free(f.pool, ptr));
            assert_unknown(f.pool, ptr);
            assert_unknown(f.pool, ptr + at[1]);
        }
        assert_int_equal(stats_of(f.pool).n_misuses, 0);
        kn_stream_destroy(f.device, s);
        fixture_end(&f);
    }
}

static void foreign_addresses_are_in_no_block(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_pool *other = NULL;
    assert_ok(kn_pool_create(&other, f.device, NULL));
    void *theirs = must_alloc(other, 2 * MiB, NULL);
    int mine = 0;
    assert_unknown(f.pool, NULL);
    assert_unknown(f.pool, &mine);
    assert_unknown(f.pool, theirs);
    assert_unknown(f.pool, (void *)UINTPTR_MAX);
    assert_ok(kn_free(other, theirs));
    kn_pool_destroy(other);
    fixture_end(&f);
}

static void tag_of_a_block_is_its_innermost(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    for (int large = 0; large < 2; large++) {
        KN_TAG("outer");
        kn_tag_push("inner");
        void *ptr = must_alloc(f.pool, large ? 3 * MiB : 300, NULL);
        kn_tag_pop();
        assert_string_equal(find(f.pool, ptr).tag, "inner");
        assert_ok(kn_free(f.pool, ptr));
    }
    fixture_end(&f);
}

/* Callers of another version have a shorter struct. */
static void shorter_struct_is_filled_in_part(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    struct {
        void *ptr;
        size_t size_bytes, canary;
    } head = {.canary = 5};
    void *ptr = must_alloc(f.pool, 3 * MiB, NULL);
    assert_true(kn_block_find((kn_block_info *)(void *)&head, 2 * sizeof(void *), f.pool, ptr));
    assert_ptr_equal(head.ptr, ptr);
    assert_int_equal(head.size_bytes, 3 * MiB);
    assert_int_equal(head.canary, 5);
    assert_ok(kn_free(f.pool, ptr));
    fixture_end(&f);
}

/* --- kn_pool_peaks_reset --- */

static void peaks_start_again_at_what_is_live(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    void *small = must_alloc(f.pool, 1024, NULL), *large = must_alloc(f.pool, 40 * MiB, NULL);
    assert_ok(kn_free(f.pool, large));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_true(stats_of(f.pool).live_bytes_max >= 40 * MiB);
    kn_pool_peaks_reset(f.pool);
    assert_int_equal(stats_of(f.pool).live_bytes_max, 1024);
    assert_int_equal(stats_of(f.pool).reserved_bytes_max, stats_of(f.pool).reserved_bytes);
    void *more = must_alloc(f.pool, 1024, NULL);
    assert_ok(kn_free(f.pool, more));
    assert_int_equal(stats_of(f.pool).live_bytes_max, 2048);
    assert_ok(kn_free(f.pool, small));
    kn_pool_peaks_reset(f.pool);
    assert_int_equal(stats_of(f.pool).live_bytes_max, 0);
    fixture_end(&f);
}

static uint64_t tag_peak(kn_pool *pool, const char *name) {
    kn_tag_stats tags[8];
    size_t n = kn_pool_tags(tags, 8, pool);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(tags[i].name, name) == 0) return tags[i].live_bytes_max;
    }
    fail_msg("no tag %s", name);
    return 0;
}

static void peaks_of_tags_start_again(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    KN_TAG("peaks");
    void *kept = must_alloc(f.pool, 512, NULL), *blocks[20];
    for (int i = 0; i < 20; i++) blocks[i] = must_alloc(f.pool, 512, NULL);
    for (int i = 0; i < 20; i++) assert_ok(kn_free(f.pool, blocks[i]));
    assert_int_equal(tag_peak(f.pool, "peaks"), 21 * 512);
    kn_pool_peaks_reset(f.pool);
    assert_int_equal(tag_peak(f.pool, "peaks"), 512);
    assert_ok(kn_free(f.pool, kept));
    fixture_end(&f);
}

static void inner_peaks_leave_the_outer_ones_alone(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_pool_peaks inner, outer;
    void *kept = must_alloc(f.pool, 4 * MiB, NULL);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 30 * MiB, NULL)));
    assert_ok(kn_pool_sync(f.pool));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_ok(kn_pool_peaks_push(f.pool));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 10 * MiB, NULL)));
    assert_ok(kn_pool_peaks_push(f.pool));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 2 * MiB, NULL)));
    assert_ok(kn_pool_peaks_pop(&inner, f.pool));
    assert_ok(kn_pool_peaks_pop(&outer, f.pool));
    assert_int_equal(inner.live_bytes_max, 6 * MiB);
    assert_int_equal(outer.live_bytes_max, 14 * MiB);
    assert_true(outer.reserved_bytes_max >= 14 * MiB && outer.reserved_bytes_max < 34 * MiB);
    assert_int_equal(stats_of(f.pool).live_bytes_max, 34 * MiB);
    assert_true(stats_of(f.pool).reserved_bytes_max >= 34 * MiB);
    assert_fails(kn_pool_peaks_pop(NULL, f.pool), KN_ERR_INVALID, "none is pushed");
    /* An inner peak above the outer one is the outer's too. */
    assert_ok(kn_pool_peaks_push(f.pool));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 60 * MiB, NULL)));
    assert_ok(kn_pool_peaks_pop(NULL, f.pool));
    assert_int_equal(stats_of(f.pool).live_bytes_max, 64 * MiB);
    for (int i = 0; i < 16; i++) assert_ok(kn_pool_peaks_push(f.pool));
    assert_fails(kn_pool_peaks_push(f.pool), KN_ERR_INVALID, "16 are pushed");
    assert_ok(kn_free(f.pool, kept));
    fixture_end(&f);
}

static void flushed_thread_keeps_no_slots(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_pool_flush_thread(f.pool); /* it has none yet */
    void *kept = must_alloc(f.pool, 512, NULL);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 512, NULL)));
    if (!stats_of(f.pool).cached_bytes) skip(); /* a system without membarrier */
    kn_pool_flush_thread(f.pool);
    assert_int_equal(stats_of(f.pool).cached_bytes, 0);
    assert_int_equal(stats_of(f.pool).live_bytes, 512);
    assert_ok(kn_pool_check(f.pool));
    assert_ok(kn_free(f.pool, kept));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 512, NULL)));
    fixture_end(&f);
}

/* --- kn_pool_sync --- */

static void sync_makes_freed_memory_returnable(void **state) {
    (void)state;
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *a = must_alloc(f.pool, 20 * MiB, s), *b = must_alloc(f.pool, 20 * MiB, other);
    kn_sim_work(f.sim, other, a, 20 * MiB, 1);
    kn_sim_work(f.sim, other, b, 20 * MiB, 1);
    assert_ok(kn_block_use(f.pool, a, other));
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_true(stats_of(f.pool).reserved_bytes > 0);
    assert_ok(kn_pool_sync(f.pool));
    assert_int_equal(stats_of(f.pool).waiting_bytes, 0);
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    kn_stream_destroy(f.device, s);
    kn_stream_destroy(f.device, other);
    fixture_end(&f);
}

/* --- kn_pool_graph_alloc, kn_pool_graph_destroy_any --- */

static void block_of_a_graph_is_reused_by_the_graph_alone(void **state) {
    (void)state;
    static const size_t sizes[] = {300, 4 * MiB};
    fixture f = fixture_make(256 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_pool_graph *graph = NULL;
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    for (int i = 0; i < 2; i++) {
        void *ptr = NULL, *again = NULL, *others[30];
        assert_ok(kn_pool_graph_alloc(&ptr, graph, sizes[i], s));
        assert_true(find(f.pool, ptr).graph);
        assert_ptr_equal(find(f.pool, ptr).stream, s);
        assert_ok(kn_block_use(f.pool, ptr, s)); /* its own stream: no other use */
        assert_ok(kn_free(f.pool, ptr));
        for (int k = 0; k < 30; k++) {
            others[k] = must_alloc(f.pool, sizes[i], s);
            assert_ptr_not_equal(others[k], ptr);
        }
        assert_ok(kn_pool_graph_alloc(&again, graph, sizes[i], s));
        assert_ptr_equal(again, ptr);
        assert_ok(kn_free(f.pool, again));
        for (int k = 0; k < 30; k++) assert_ok(kn_free(f.pool, others[k]));
        assert_ok(kn_pool_check(f.pool));
    }
    void *none = &f;
    assert_ok(kn_pool_graph_alloc(&none, graph, 0, s));
    assert_null(none);
    kn_pool_graph_destroy(graph, s);
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

/* A launch still runs on a stream that the pool doesn't know of. */
static void released_graph_keeps_its_memory_until_the_device_is_idle(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), launches = new_stream(&f);
    kn_pool_graph *graph = NULL;
    void *ptr = NULL, *more = NULL;
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    assert_ok(kn_pool_graph_alloc(&ptr, graph, 40 * MiB, s));
    assert_ok(kn_free(f.pool, ptr));
    kn_sim_work(f.sim, launches, ptr, 40 * MiB, 1);
    kn_pool_graph_destroy_any(graph);
    assert_ok(kn_pool_check(f.pool));
    assert_int_equal(kn_sim_pending(f.sim, launches), 1);
    more = must_alloc(f.pool, 50 * MiB, s); /* waits for the device before it would fail */
    assert_int_equal(kn_sim_pending(f.sim, launches), 0);
    kn_sim_work(f.sim, s, more, 50 * MiB, 2);
    assert_ok(kn_free(f.pool, more));
    kn_pool_graph_destroy_any(NULL);
    kn_stream_destroy(f.device, s);
    kn_stream_destroy(f.device, launches);
    fixture_end(&f);
}

static void graph_without_a_pool_allocates_nothing(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_pool *pool = NULL;
    kn_pool_graph *graph = NULL;
    void *ptr = &f;
    assert_ok(kn_pool_create(&pool, f.device, NULL));
    assert_ok(kn_pool_graph_create(&graph, pool));
    kn_pool_destroy(pool);
    assert_fails(kn_pool_graph_alloc(&ptr, graph, 100, NULL), KN_ERR_INVALID, "destroyed");
    assert_null(ptr);
    kn_pool_graph_destroy_any(graph);
    fixture_end(&f);
}

static void graph_that_runs_out_of_memory_stays_usable(void **state) {
    (void)state;
    fixture f = fixture_make(32 * MiB, false, NULL);
    kn_pool_graph *graph = NULL;
    void *ptr = &f;
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    assert_fails(kn_pool_graph_alloc(&ptr, graph, 60 * MiB, NULL), KN_ERR_OOM, "60.0 MiB");
    assert_null(ptr);
    assert_fails(kn_pool_graph_alloc(&ptr, graph, SIZE_MAX, NULL), KN_ERR_OOM, "more than any");
    assert_ok(kn_pool_graph_alloc(&ptr, graph, 10 * MiB, NULL));
    assert_ok(kn_free(f.pool, ptr));
    kn_pool_graph_destroy(graph, NULL);
    fixture_end(&f);
}

/* --- wrong calls --- */

static void null_arguments_and_empty_paths_are_named(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_pool_graph *graph = NULL;
    uint64_t value = 7;
    void *none = NULL;
    assert_fails(kn_pool_print(f.pool, NULL), KN_ERR_INVALID, "kn_pool_print: the path is NULL");
    assert_fails(kn_pool_print(f.pool, ""), KN_ERR_INVALID, "kn_pool_print: the path is empty");
    assert_fails(kn_pool_snapshot(f.pool, NULL), KN_ERR_INVALID, "the path is NULL");
    assert_fails(kn_pool_snapshot(f.pool, ""), KN_ERR_INVALID, "the path is empty");
    assert_int_equal(kn_alloc(&none, f.pool, 1 * GiB, NULL), KN_ERR_OOM);
    assert_fails(kn_pool_oom_json(f.pool, NULL), KN_ERR_INVALID, "the path is NULL");
    assert_fails(kn_pool_stat(&value, f.pool, NULL), KN_ERR_INVALID, "the name is NULL");
    assert_int_equal(value, 7);
    assert_fails(kn_pool_options_set(f.pool, NULL), KN_ERR_INVALID, "the options are NULL");
    assert_fails(kn_pool_graph_create(&graph, NULL), KN_ERR_INVALID, "pool is NULL");
    assert_null(graph);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(visit_shows_all_segments_and_their_parts),
        TEST(preallocated_memory_serves_later_requests), TEST(preallocation_is_no_allocation),
        TEST(block_is_found_from_any_of_its_addresses), TEST(foreign_addresses_are_in_no_block),
        TEST(tag_of_a_block_is_its_innermost), TEST(shorter_struct_is_filled_in_part),
        TEST(peaks_start_again_at_what_is_live), TEST(peaks_of_tags_start_again),
        TEST(inner_peaks_leave_the_outer_ones_alone), TEST(flushed_thread_keeps_no_slots),
        TEST(sync_makes_freed_memory_returnable),
        TEST(block_of_a_graph_is_reused_by_the_graph_alone),
        TEST(released_graph_keeps_its_memory_until_the_device_is_idle),
        TEST(graph_without_a_pool_allocates_nothing),
        TEST(graph_that_runs_out_of_memory_stays_usable),
        TEST(null_arguments_and_empty_paths_are_named));
}
