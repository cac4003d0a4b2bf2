/* More pools than the timer has lines for, in one process. */
#include <knet/pool.h>
#include <knet/prof_heap.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "table.h"
#include "test.h"
#include "timer_fixture.h"

enum { BLOCK = 4096, ROUNDS = 100, AT_ONCE = 40 };

static const kn__pool_use *use_of(const char *name) {
    for (int i = 0; i < report.memory.n_pools; i++) {
        if (strcmp(report.memory.pools[i].name, name) == 0) return &report.memory.pools[i];
    }
    return NULL;
}

/* A pool with one block. */
static kn_pool *make_pool(const char *name) {
    kn_pool *pool = NULL;
    void *x = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.name = name}));
    assert_ok(kn_alloc(&x, pool, BLOCK, NULL));
    return pool;
}

static void a_heap_has_no_marks_of_a_pool_that_was_destroyed(void **state) {
    (void)state;
    char block;
    kn_pool_destroy(make_pool("shared"));
    kn_prof_heap *heap = kn_prof_heap_get("shared");
    uint32_t owner = kn_prof_heap_alloc(heap, &block, 10);
    take_report(&report);
    int n = 0;
    for (int i = 0; i < report.memory.n_pools; i++) {
        const kn__pool_use *use = &report.memory.pools[i];
        if (strcmp(use->name, "shared") != 0) continue;
        n++;
        assert_int_equal(use->live, use->is_heap ? 10 : 0);
        assert_int_equal(use->live_max, use->is_heap ? 10 : BLOCK);
        assert_int_equal(use->n_allocs, 1);
    }
    assert_int_equal(n, 2);
    kn_prof_heap_free(heap, &block, 10, owner);
}

static void pools_after_each_other_have_a_line_each(void **state) {
    (void)state;
    char name[24] = "";
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "pool %d", i);
        kn_pool_destroy(make_pool(name)); /* with its block */
    }
    take_report(&report);
    int64_t leaked = 0;
    uint64_t n_allocs = 0;
    for (int i = 0; i < report.memory.n_pools; i++) {
        leaked += report.memory.pools[i].leaked;
        n_allocs += report.memory.pools[i].n_allocs;
    }
    for (int i = ROUNDS - 30; i < ROUNDS; i++) { /* the youngest */
        snprintf(name, sizeof name, "pool %d", i);
        assert_non_null(use_of(name));
    }
    assert_int_equal(use_of("(older pools)")->live_max, BLOCK);
    assert_int_equal(report.memory.live, 0);
    assert_int_equal(leaked, (ROUNDS + 1) * BLOCK); /* and of the test before */
    assert_int_equal(n_allocs, ROUNDS + 2);
    assert_int_equal(report.memory.n_pools_left_out, 0);
}

/* All lines are taken by pools that live. */
static void pools_without_a_line_are_counted_and_leave_nothing_live(void **state) {
    (void)state;
    kn_pool *pools[AT_ONCE];
    kn__text table = {0};
    for (int i = 0; i < AT_ONCE; i++) pools[i] = make_pool("alike");
    take_report(&report);
    assert_int_equal(report.memory.live, AT_ONCE * BLOCK);
    int left_out = AT_ONCE - 31; /* a heap has a line too */
    assert_int_equal(report.memory.n_pools_left_out, left_out);
    kn__table_add(&table, &report, &(kn__table_options){0});
    assert_non_null(
        strstr(table.data, "\n 9 more pools have no line: at most 32 at once have one\n"));
    kn__text_release(&table);
    kn__report_release(&report);
    for (int i = 0; i < AT_ONCE; i++) kn_pool_destroy(pools[i]);
    take_report(&report);
    assert_int_equal(report.memory.live, 0);
}

static void a_size_that_is_no_size_has_no_owner(void **state) {
    (void)state;
    kn_prof_heap *heap = kn_prof_heap_get("shared");
    static const size_t sizes[] = {SIZE_MAX, (size_t)1 << 63};
    for (int i = 0; i < 2; i++) {
        uint32_t owner = kn_prof_heap_alloc(heap, &heap, sizes[i]);
        assert_true(owner == KN_PROF_NO_OWNER);
        kn_prof_heap_free(heap, &heap, sizes[i], owner);
    }
    take_report(&report);
    assert_int_equal(report.memory.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(a_heap_has_no_marks_of_a_pool_that_was_destroyed, timer_setup, timer_teardown),
        TEST_WITH(pools_after_each_other_have_a_line_each, timer_setup, timer_teardown),
        TEST_WITH(pools_without_a_line_are_counted_and_leave_nothing_live, timer_setup,
                  timer_teardown),
        TEST_WITH(a_size_that_is_no_size_has_no_owner, timer_setup, timer_teardown),
    };
    return cmocka_run_group_tests_name("profiler.pools", tests, NULL, NULL);
}
