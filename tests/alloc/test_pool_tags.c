/* Tags: the stack, and what a pool counts for each. */
#include <knet/pause.h>
#include <pthread.h>
#include <stdio.h>

#include "pool_fixture.h"

static kn_tag_stats tag_of(const kn_pool *pool, const char *name) {
    kn_tag_stats tags[256];
    size_t n = kn_pool_tags(tags, 256, pool);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(tags[i].name, name) == 0) return tags[i];
    }
    return (kn_tag_stats){0};
}

static void assert_tag(const kn_pool *pool, const char *name, uint64_t live, uint64_t high,
                       uint64_t n_allocs) {
    kn_tag_stats tag = tag_of(pool, name);
    assert_int_equal(tag.live_bytes, live);
    assert_int_equal(tag.live_bytes_max, high);
    assert_int_equal(tag.n_allocs, n_allocs);
}

static void a_block_counts_for_the_innermost_tag(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *none = must_alloc(f.pool, 4 * KiB, NULL);
    kn_tag_push("weights");
    void *small = must_alloc(f.pool, 4 * KiB, NULL), *large = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_push("scratch");
    void *inner = must_alloc(f.pool, 2 * MiB, NULL);
    kn_tag_pop();
    void *again = must_alloc(f.pool, 8 * KiB, NULL);
    kn_tag_pop();
    void *after = must_alloc(f.pool, 4 * KiB, NULL);
    assert_tag(f.pool, "weights", 1 * MiB + 12 * KiB, 1 * MiB + 12 * KiB, 3);
    assert_tag(f.pool, "scratch", 2 * MiB, 2 * MiB, 1);
    assert_int_equal(kn_pool_tags(NULL, 0, f.pool), 2);
    assert_ok(kn_free(f.pool, small)); /* whatever tag is on the stack now */
    kn_tag_push("scratch");
    assert_ok(kn_free(f.pool, large));
    kn_tag_pop();
    assert_ok(kn_free(f.pool, inner));
    assert_tag(f.pool, "weights", 8 * KiB, 1 * MiB + 12 * KiB, 3);
    assert_tag(f.pool, "scratch", 0, 2 * MiB, 1);
    assert_ok(kn_free(f.pool, again));
    assert_ok(kn_free(f.pool, none));
    assert_ok(kn_free(f.pool, after));
    assert_tag(f.pool, "weights", 0, 1 * MiB + 12 * KiB, 3);
    fixture_end(&f);
}

/* Small and large blocks are counted in different places; their peak is one. */
static void peaks_are_exact_on_one_thread(void **state) {
    (void)state;
    enum { LIVE = 64 };
    fixture f = fixture_make(4 * GiB, false, NULL);
    char *live[LIVE] = {0};
    uint64_t high[2] = {0};
    int tag_of_block[LIVE] = {0};
    for (int i = 0; i < 20000; i++) {
        size_t k = test_random_below(LIVE);
        if (live[k]) {
            assert_ok(kn_free(f.pool, live[k]));
            live[k] = NULL;
        } else {
            int tag = tag_of_block[k] = (int)test_random_below(2);
            kn_tag_push(tag ? "odd" : "even");
            size_t size = 1 + test_random_below(test_random_below(2) ? 60000 : 400000);
            live[k] = must_alloc(f.pool, size, NULL);
            kn_tag_pop();
            uint64_t now = tag_of(f.pool, tag ? "odd" : "even").live_bytes;
            if (now > high[tag]) high[tag] = now;
            if (i % 16) continue;
            assert_int_equal(tag_of(f.pool, tag ? "odd" : "even").live_bytes_max, high[tag]);
        }
    }
    kn_tag_stats odd = tag_of(f.pool, "odd"), even = tag_of(f.pool, "even");
    assert_int_equal(odd.live_bytes + even.live_bytes, stats_of(f.pool).live_bytes);
    assert_int_equal(odd.n_allocs + even.n_allocs, stats_of(f.pool).n_allocs);
    for (int k = 0; k < LIVE; k++) assert_ok(kn_free(f.pool, live[k]));
    fixture_end(&f);
}

/* Of slots, which are counted in the thread's cache, and of blocks. */
static void peaks_of_an_outer_part_survive_an_inner_one(void **state) {
    (void)state;
    const size_t sizes[] = {1 * KiB, 1 * MiB};
    for (int i = 0; i < 2; i++) {
        size_t unit = sizes[i];
        fixture f = fixture_make(1 * GiB, false, NULL);
        kn_tag_push("part");
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 8 * unit, NULL)));
        assert_ok(kn_pool_peaks_push(f.pool));
        assert_int_equal(tag_of(f.pool, "part").live_bytes_max, 0);
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 2 * unit, NULL)));
        assert_int_equal(tag_of(f.pool, "part").live_bytes_max, 2 * unit);
        assert_ok(kn_pool_peaks_pop(NULL, f.pool));
        assert_int_equal(tag_of(f.pool, "part").live_bytes_max, 8 * unit);
        assert_ok(kn_pool_peaks_push(f.pool));
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 16 * unit, NULL)));
        assert_ok(kn_pool_peaks_pop(NULL, f.pool)); /* of the inner part it is the outer's too */
        assert_int_equal(tag_of(f.pool, "part").live_bytes_max, 16 * unit);
        kn_tag_pop();
        fixture_end(&f);
    }
}

static void the_tag_with_most_live_bytes_is_first(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *ptrs[4];
    const char *names[] = {"a", "b", "c", "d"};
    const size_t sizes[] = {2 * MiB, 5 * MiB, 1 * MiB, 3 * MiB};
    for (int i = 0; i < 4; i++) {
        KN_TAG(names[i]);
        ptrs[i] = must_alloc(f.pool, sizes[i], NULL);
    }
    kn_tag_stats tags[3];
    assert_int_equal(kn_pool_tags(tags, 3, f.pool), 4);
    assert_string_equal(tags[0].name, "b");
    assert_string_equal(tags[1].name, "d");
    assert_string_equal(tags[2].name, "a");
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, ptrs[i]));
    fixture_end(&f);
}

static void a_scope_ends_its_tag_on_every_way_out(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    for (int i = 0; i < 3; i++) {
        KN_TAG("loop");
        if (i == 1) continue;
    }
    void *ptr = must_alloc(f.pool, 1 * MiB, NULL);
    assert_int_equal(kn_pool_tags(NULL, 0, f.pool), 0);
    assert_ok(kn_free(f.pool, ptr));
    fixture_end(&f);
}

static void a_null_name_is_no_tag_and_an_extra_pop_is_a_no_op(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_tag_pop();
    kn_tag_push("outer");
    kn_tag_push(NULL);
    void *a = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_push("");
    void *b = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_pop();
    kn_tag_pop();
    void *c = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_pop();
    assert_tag(f.pool, "outer", 1 * MiB, 1 * MiB, 1);
    assert_int_equal(kn_pool_tags(NULL, 0, f.pool), 1);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_free(f.pool, c));
    fixture_end(&f);
}

static void a_stack_too_deep_keeps_the_deepest_that_fits(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    for (int i = 0; i < 40; i++) kn_tag_push(i < 32 ? "fits" : "beyond");
    void *deep = must_alloc(f.pool, 1 * MiB, NULL);
    for (int i = 0; i < 39; i++) kn_tag_pop();
    void *shallow = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_pop();
    void *none = must_alloc(f.pool, 1 * MiB, NULL);
    assert_tag(f.pool, "fits", 2 * MiB, 2 * MiB, 2);
    assert_tag(f.pool, "beyond", 0, 0, 0);
    assert_ok(kn_free(f.pool, deep));
    assert_ok(kn_free(f.pool, shallow));
    assert_ok(kn_free(f.pool, none));
    fixture_end(&f);
}

static void long_names_are_compared_by_their_start(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    char a[101], b[101], cut[64];
    memset(a, 'x', 100);
    a[100] = 0;
    memcpy(b, a, sizeof b);
    b[80] = 'y';
    snprintf(cut, sizeof cut, "%.63s", a);
    kn_tag_push(a);
    void *p = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_pop();
    kn_tag_push(b);
    void *q = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_pop();
    assert_tag(f.pool, cut, 2 * MiB, 2 * MiB, 2);
    assert_ok(kn_free(f.pool, p));
    assert_ok(kn_free(f.pool, q));
    fixture_end(&f);
}

typedef struct shared {
    kn_pool *pool;
    void *ptrs[1000];
} shared;

static void *free_all(void *ctx) {
    shared *s = ctx;
    for (int i = 0; i < 1000; i++) kn_free(s->pool, s->ptrs[i]);
    return NULL;
}

static void frees_of_another_thread_are_subtracted(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    shared s = {.pool = f.pool};
    uint64_t high = 0;
    kn_tag_push("handed over");
    for (int i = 0; i < 1000; i++) s.ptrs[i] = must_alloc(f.pool, i % 7 ? 1000 : 100000, NULL);
    kn_tag_pop();
    high = tag_of(f.pool, "handed over").live_bytes;
    assert_int_equal(high, stats_of(f.pool).live_bytes);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_all, &s), 0);
    pthread_join(thread, NULL);
    kn_tag_stats tag = tag_of(f.pool, "handed over");
    assert_int_equal(tag.live_bytes, 0);
    assert_int_equal(tag.n_allocs, 1000);
    assert_in_range(tag.live_bytes_max, high - 64 * KiB, high); /* but for what caches hold */
    fixture_end(&f);
}

static void *allocate_under_many_tags(void *ctx) {
    fixture *f = ctx;
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "tag %d", i);
        KN_TAG(name);
        void *ptr = NULL;
        if (kn_alloc(&ptr, f->pool, 1000, NULL) < 0 || kn_free(f->pool, ptr) < 0) return f;
    }
    return NULL;
}

static void counts_of_all_tags_outlive_their_thread(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, allocate_under_many_tags, &f), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "tag %d", i);
        assert_tag(f.pool, name, 0, 1 * KiB, 1);
    }
    fixture_end(&f);
}

/* The last: it uses up the table of names. */
static void names_beyond_the_table_share_a_tag(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *ptrs[300];
    assert_fails(kn_pool_pause(NULL, f.pool, &(kn_pause_options){.tag = "(other tags)"}),
                 KN_ERR_INVALID, "no memory has the tag '(other tags)'");
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "tag %d", i);
        KN_TAG(name);
        ptrs[i] = must_alloc(f.pool, 1000, NULL);
    }
    size_t n = kn_pool_tags(NULL, 0, f.pool);
    assert_in_range(n, 200, 255);
    kn_tag_stats others = tag_of(f.pool, "(other tags)");
    assert_int_equal(others.n_allocs, 300 - (n - 1));
    for (int i = 0; i < 300; i++) assert_ok(kn_free(f.pool, ptrs[i]));
    assert_int_equal(tag_of(f.pool, "(other tags)").live_bytes, 0);
    kn_tag_push("tag 299");
    void *big = must_alloc(f.pool, 8 * MiB, NULL);
    kn_tag_pop();
    size_t dropped = 0;
    assert_fails(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = "tag 299"}),
                 KN_ERR_INVALID,
                 "the tag 'tag 299'; names beyond the first 254 share the tag "
                 "'(other tags)'");
    assert_ok(kn_pool_pause(&dropped, f.pool, &(kn_pause_options){.tag = "(other tags)"}));
    assert_true(dropped >= 4 * MiB); /* whole handles */
    assert_ok(kn_pool_resume(f.pool, "(other tags)"));
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(a_block_counts_for_the_innermost_tag), TEST(peaks_are_exact_on_one_thread),
        TEST(peaks_of_an_outer_part_survive_an_inner_one),
        TEST(the_tag_with_most_live_bytes_is_first), TEST(a_scope_ends_its_tag_on_every_way_out),
        TEST(a_null_name_is_no_tag_and_an_extra_pop_is_a_no_op),
        TEST(a_stack_too_deep_keeps_the_deepest_that_fits),
        TEST(long_names_are_compared_by_their_start), TEST(frees_of_another_thread_are_subtracted),
        TEST(counts_of_all_tags_outlive_their_thread), TEST(names_beyond_the_table_share_a_tag));
}
