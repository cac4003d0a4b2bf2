/* Percentiles of calls against those of the sorted times. */
#include "times.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "budget.h"
#include "now.h"
#include "report_maker.h"
#include "test.h"
#include "timer_fixture.h"

enum { N = 5000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the ticks, in times of 1 to 2^14 times the shortest. */
static double some_ticks(double least, int shape) {
    double x = test_random_uniform(0, 1), y = test_random_uniform(0, 1);
    if (shape == 0) return least * (1 + x);
    if (shape == 1) return least * exp2(14 * x);
    return least * (x < 0.9 ? 1 + 0.1 * y : 1000 * (1 + y));
}

/* With one call of `first` ticks, after one of `least`. */
static kn__tree_node *node_of(uint64_t least, uint64_t first) {
    static int number;
    char label[32];
    snprintf(label, sizeof label, "row %d", number++);
    kn__tree *tree = kn__tree_get();
    kn__tree_node *node = kn__tree_child(tree, &tree->root, NULL, label);
    assert_non_null(node);
    node->ticks_min = least < first ? least : first;
    node->ticks_max = least < first ? first : least;
    node->n_calls = KN__TIMES_AFTER + 1;
    kn__times_first(tree, node, first);
    assert_non_null(node->times);
    return node;
}

/* As a scope that ends (scope.c). */
static void count(kn__tree_node *node, uint64_t ticks) {
    bool is_record = ticks < node->ticks_min || ticks > node->ticks_max;
    if (ticks < node->ticks_min) node->ticks_min = ticks;
    if (ticks > node->ticks_max) node->ticks_max = ticks;
    if (is_record) kn__times_cover(kn__tree_get(), node);
    kn__times_count(node->times, ticks);
}

static void percentiles_are_within_five_percent(void **state) {
    (void)state;
    static double all[N];
    for (int round = 0; round < 60; round++) {
        double least = floor(exp2(2 + 40 * test_random_uniform(0, 1))),
               tick_ns = 0.1 + test_random_uniform(0, 1);
        kn__tree_node *node = NULL;
        kn__report_init(&report);
        kn__row *row = add_row(&report, NULL, "row", N, 1, 0);
        for (int i = 0; i < N; i++) {
            all[i] = floor(some_ticks(least, round % 3));
            if (node) {
                count(node, (uint64_t)all[i]);
            } else {
                node = node_of((uint64_t)least, (uint64_t)all[i]);
            }
        }
        qsort(all, N, sizeof *all, by_value);
        row->min_ns = (uint64_t)(all[0] * tick_ns);
        row->max_ns = (uint64_t)(all[N - 1] * tick_ns) + 1;
        assert_ok(kn__times_read(&report, row, node, tick_ns));
        for (double part = 0.01; part < 1; part += 0.07) {
            double exact = all[(int)ceil(part * N) - 1] * tick_ns;
            double got = kn__row_percentile(row, part);
            if (fabs(got - exact) > 0.05 * exact + 1) {
                fail_msg("%g %%: %g, not %g", 100 * part, got, exact);
            }
        }
        kn__report_release(&report);
    }
}

/* Every tick counts where there are few. */
static void short_times_are_within_five_percent_too(void **state) {
    (void)state;
    for (uint64_t ticks = 1; ticks < 300; ticks++) {
        kn__report_init(&report);
        kn__row *row = add_row(&report, NULL, "row", 1, 1, 0);
        row->min_ns = 0;
        row->max_ns = UINT64_MAX;
        assert_ok(kn__times_read(&report, row, node_of(ticks, ticks), 1000.0));
        double exact = 1000 * (double)ticks, got = kn__row_percentile(row, 0.5);
        if (fabs(got - exact) > 0.05 * exact) fail_msg("%g, not %g", got, exact);
        kn__report_release(&report);
    }
}

static void bins_of_threads_add_up(void **state) {
    (void)state;
    kn__report_init(&report);
    kn__row *row = add_row(&report, NULL, "row", 1, 1, 0);
    row->max_ns = 1000000;
    uint64_t n = 0, sum = 0;
    for (int thread = 0; thread < 5; thread++) {
        kn__tree_node *node = node_of(100 + 1000 * (uint64_t)thread, 100);
        for (int i = 1; i < 100; i++) count(node, (uint64_t)(100 + 50 * i));
        n += 100;
        assert_ok(kn__times_read(&report, row, node, 1.0));
    }
    for (int i = 0; i < row->times->n; i++) {
        sum += row->times->bins[i].n;
        if (i) assert_true(row->times->bins[i].ns > row->times->bins[i - 1].ns);
    }
    assert_int_equal(sum, n);
    kn__report_release(&report);
}

/* The first calls don't say how long the rest are: 2^40 times shorter here, or longer. */
static void calls_far_from_the_first_ones_have_bins(void **state) {
    static const uint64_t first[] = {1, 1000, 1ull << 40, UINT64_MAX >> 1},
                          later[] = {1ull << 40, 1, 1000, 1};
    (void)state;
    for (int i = 0; i < 4; i++) {
        kn__tree_node *node = node_of(first[i], first[i]);
        for (int k = 0; k < 3; k++) count(node, first[i]);
        for (int k = 0; k < 96; k++) count(node, later[i]);
        kn__report_init(&report);
        kn__row *row = add_row(&report, NULL, "row", 100, 1, 0);
        row->min_ns = 0;
        row->max_ns = UINT64_MAX;
        assert_ok(kn__times_read(&report, row, node, 1.0));
        double got[] = {kn__row_percentile(row, first[i] < later[i] ? 0.03 : 0.97),
                        kn__row_percentile(row, 0.5)};
        for (int k = 0; k < 2; k++) {
            double exact = (double)(k ? later : first)[i];
            assert_true(fabs(got[k] - exact) <= 0.05 * exact + 1);
        }
        assert_int_equal(row->times->n, 2);
        assert_int_equal(row->times->bins[0].n + row->times->bins[1].n, 100);
        kn__report_release(&report);
    }
}

/* Those that have no bins; one between them is no record. */
static void first_calls_far_apart_have_bins_between_them(void **state) {
    (void)state;
    kn__tree_node *node = node_of(1000, 1ull << 40);
    for (int k = 0; k < 99; k++) count(node, 1ull << 39);
    kn__report_init(&report);
    kn__row *row = add_row(&report, NULL, "row", 100, 1, 0);
    row->min_ns = 0;
    row->max_ns = UINT64_MAX;
    assert_ok(kn__times_read(&report, row, node, 1.0));
    assert_true(fabs(kn__row_percentile(row, 0.5) / (double)(1ull << 39) - 1) <= 0.05);
    assert_int_equal(row->times->n, 2);
    kn__report_release(&report);
}

static void work(const char *label, uint64_t ns) {
    kn_scope scope = kn_scope_begin_static(label);
    for (uint64_t start = kn__now_ns(CLOCK_MONOTONIC);
         ns && kn__now_ns(CLOCK_MONOTONIC) - start < ns;)
        ;
    kn_scope_end(&scope);
}

static void a_scope_that_starts_fast_has_the_median_of_all(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) work("uneven", 0);
    for (int i = 0; i < 50; i++) work("uneven", 2000000);
    take_report(&report);
    assert_true(kn__row_percentile(find_row(&report, "uneven"), 0.5) > 1.9e6);
    assert_true(kn__row_percentile(find_row(&report, "uneven"), 0.03) < 1e6);
    kn__report_release(&report);
}

/* Bins that are too few tell nothing. */
static void without_memory_for_bins_there_are_none(void **state) {
    (void)state;
    kn__tree_node *node = node_of(1000, 1000);
    kn__budget_set(kn__budget_used());
    kn__tree *tree = kn__tree_get();
    while (kn__tree_bytes(tree, 64, 1)) {
    }
    kn__tree_node few = {.first_times = {1}, .n_first_times = 1};
    node->ticks_max = 1ull << 50;
    node->n_first_times = KN__TIMES_AFTER;
    kn__times_cover(tree, node);
    assert_null(node->times);
    assert_int_equal(node->n_first_times, 0);
    kn__times_cover(tree, node);
    few.n_calls = KN__TIMES_AFTER + 1;
    kn__times_first(tree, &few, 0);
    assert_true(!few.times && few.n_first_times == 0);
    kn__budget_set(KN__BUFFER_BYTES);
}

static uint64_t calls_in(const kn__row *row) {
    uint64_t n = 0;
    for (int i = 0; row->times && i < row->times->n; i++) n += row->times->bins[i].n;
    return n;
}

static void every_call_is_in_the_times(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        KN_SCOPE("often");
        if (i > KN__TIMES_AFTER) continue;
        KN_SCOPE("one more");
        if (i == KN__TIMES_AFTER) continue;
        KN_SCOPE("rarely");
        if (i) continue;
        KN_SCOPE("once");
    }
    take_report(&report);
    static const char *const paths[] = {"often", "often/one more", "often/one more/rarely",
                                        "often/one more/rarely/once"};
    for (int i = 0; i < 4; i++) {
        const kn__row *row = find_row(&report, paths[i]);
        assert_int_equal(calls_in(row), row->n_calls);
        assert_true(kn__row_percentile(row, 0.5) >= (double)row->min_ns);
        assert_true(kn__row_percentile(row, 0.99) <= (double)row->max_ns);
    }
    kn__report_release(&report);
}

/* The last four alone would say that most calls are short. */
static void the_median_is_that_of_the_first_calls_too(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) work("slow first", i < 16 ? 2000000 : 0);
    take_report(&report);
    assert_true(kn__row_percentile(find_row(&report, "slow first"), 0.5) > 1.9e6);
    kn__report_release(&report);
}

static void *call_a_few_times(void *arg) {
    for (int i = 0; i < KN__TIMES_AFTER; i++) work("in threads", 200000);
    return arg;
}

static void few_calls_of_each_thread_add_up(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_a_few_times, NULL), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    take_report(&report);
    const kn__row *row = find_row(&report, "in threads");
    assert_int_equal(calls_in(row), THREADS * KN__TIMES_AFTER);
    assert_true(kn__row_percentile(row, 0.5) >= 200000);
    kn__report_release(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(percentiles_are_within_five_percent, timer_setup, timer_teardown),
        TEST_WITH(short_times_are_within_five_percent_too, timer_setup, timer_teardown),
        TEST_WITH(bins_of_threads_add_up, timer_setup, timer_teardown),
        TEST_WITH(first_calls_far_apart_have_bins_between_them, timer_setup, timer_teardown),
        TEST_WITH(calls_far_from_the_first_ones_have_bins, timer_setup, timer_teardown),
        TEST_WITH(a_scope_that_starts_fast_has_the_median_of_all, timer_setup, timer_teardown),
        TEST_WITH(without_memory_for_bins_there_are_none, timer_setup, timer_teardown),
        TEST_WITH(every_call_is_in_the_times, timer_setup, timer_teardown),
        TEST_WITH(the_median_is_that_of_the_first_calls_too, timer_setup, timer_teardown),
        TEST_WITH(few_calls_of_each_thread_add_up, timer_setup, timer_teardown),
    };
    return cmocka_run_group_tests_name("profiler.times", tests, NULL, NULL);
}
