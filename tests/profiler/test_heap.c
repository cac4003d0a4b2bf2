/* Memory of another allocator: <knet/prof_heap.h>. */
#include <knet/pool.h>
#include <knet/prof.h>
#include <knet/prof_heap.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "test.h"
#include "timer_fixture.h"

static char blocks[64];

static const kn__pool_use *use_of(const char *name) {
    for (int i = 0; i < report.memory.n_pools; i++) {
        if (strcmp(report.memory.pools[i].name, name) == 0) return &report.memory.pools[i];
    }
    fail_msg("no heap %s", name);
    return NULL;
}

static void blocks_belong_to_the_scope_that_took_them(void **state) {
    (void)state;
    kn_prof_heap *heap = kn_prof_heap_get("first");
    assert_non_null(heap);
    uint32_t a, b;
    {
        KN_SCOPE("heap outer");
        a = kn_prof_heap_alloc(heap, &blocks[0], 1000);
        KN_SCOPE("heap inner");
        b = kn_prof_heap_alloc(heap, &blocks[1], 500);
        kn_prof_heap_free(heap, &blocks[0], 1000, a);
        a = kn_prof_heap_alloc(heap, &blocks[0], 200);
    }
    take_report(&report);
    const kn__row *outer = find_row(&report, "heap outer");
    assert_int_equal(outer->alloc_bytes, 1700);
    assert_int_equal(outer->n_allocs, 3);
    assert_int_equal(outer->rise, 1500);
    assert_int_equal(outer->held, 700);
    const kn__row *inner = find_row(&report, "heap outer/heap inner");
    assert_int_equal(inner->alloc_bytes, 700);
    assert_int_equal(inner->freed_bytes, 1000);
    assert_int_equal(inner->rise, 500);
    const kn__pool_use *use = use_of("first");
    assert_int_equal(use->live, 700);
    assert_int_equal(use->live_max, 1500);
    assert_int_equal(use->n_allocs, 3);
    kn_prof_heap_free(heap, &blocks[0], 200, a);
    kn_prof_heap_free(heap, &blocks[1], 500, b);
}

static void a_name_is_one_heap_and_two_names_are_two(void **state) {
    (void)state;
    kn_prof_heap *one = kn_prof_heap_get("one"), *two = kn_prof_heap_get("two");
    assert_ptr_equal(one, kn_prof_heap_get("one"));
    assert_ptr_not_equal(one, two);
    uint32_t owner = kn_prof_heap_alloc(two, &blocks[0], 9);
    take_report(&report);
    assert_int_equal(use_of("one")->live, 0);
    assert_int_equal(use_of("two")->live, 9);
    kn_prof_heap_free(two, &blocks[0], 9, owner);
}

static void pool_of_a_heaps_name_stays_apart(void **state) {
    (void)state;
    kn_prof_heap *heap = kn_prof_heap_get("shared");
    uint32_t owner = kn_prof_heap_alloc(heap, &blocks[0], 40);
    kn_pool_options options = {.name = "shared"};
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    take_report(&report);
    assert_int_equal(use_of("shared")->live, 40);
    kn_pool_destroy(pool);
    kn_prof_heap_free(heap, &blocks[0], 40, owner);
    assert_ptr_equal(heap, kn_prof_heap_get("shared"));
}

static void what_is_not_counted_is_not_freed(void **state) {
    (void)state;
    kn_prof_heap *heap = kn_prof_heap_get("not");
    assert_null(kn_prof_heap_get(NULL));
    assert_true(kn_prof_heap_alloc(NULL, blocks, 8) == KN_PROF_NO_OWNER);
    kn_prof_heap_free(NULL, blocks, 8, 0);
    kn__mute();
    assert_true(kn_prof_heap_alloc(heap, blocks, 8) == KN_PROF_NO_OWNER);
    assert_null(kn_prof_heap_get("never"));
    kn__unmute();
    kn_prof_heap_free(heap, blocks, 8, KN_PROF_NO_OWNER);
    take_report(&report);
    assert_int_equal(use_of("not")->live, 0);
    assert_int_equal(use_of("not")->n_allocs, 0);
}

static void *churn(void *arg) {
    kn_prof_heap *heap = arg;
    char mine[8];
    for (int i = 0; i < 2000; i++) {
        KN_SCOPE("churn");
        uint32_t owners[8];
        for (unsigned k = 0; k < 8; k++) owners[k] = kn_prof_heap_alloc(heap, &mine[k], k + 1);
        for (unsigned k = 0; k < 8; k++) kn_prof_heap_free(heap, &mine[k], k + 1, owners[k]);
    }
    return NULL;
}

static void threads_lose_no_block(void **state) {
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    kn_prof_heap *heap = kn_prof_heap_get("threads");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, heap), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    take_report(&report);
    const kn__row *row = find_row(&report, "churn");
    assert_int_equal(row->n_allocs, THREADS * 2000 * 8);
    assert_int_equal(row->alloc_bytes, THREADS * 2000 * 36);
    assert_int_equal(row->freed_bytes, row->alloc_bytes);
    assert_int_equal(row->held, 0);
    assert_int_equal(use_of("threads")->live, 0);
}

static void heaps_beyond_the_last_are_not_counted(void **state) {
    (void)state;
    char name[24];
    kn_prof_heap *heap = kn_prof_heap_get("one");
    for (int i = 0; heap && i <= KN__POOLS_MAX; i++) {
        snprintf(name, sizeof name, "heap %d", i);
        heap = kn_prof_heap_get(name);
    }
    assert_null(heap);
    assert_non_null(kn_prof_heap_get("one"));
    take_report(&report);
    assert_int_equal(report.memory.n_pools_left_out, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(blocks_belong_to_the_scope_that_took_them, timer_setup, timer_teardown),
        TEST_WITH(a_name_is_one_heap_and_two_names_are_two, timer_setup, timer_teardown),
        TEST_WITH(pool_of_a_heaps_name_stays_apart, timer_setup, timer_teardown),
        TEST_WITH(what_is_not_counted_is_not_freed, timer_setup, timer_teardown),
        TEST_WITH(threads_lose_no_block, timer_setup, timer_teardown),
        TEST_WITH(heaps_beyond_the_last_are_not_counted, timer_setup, timer_teardown),
    };
    return cmocka_run_group_tests_name("profiler.heap", tests, NULL, NULL);
}
