/* Comparing two profiles: the order of changes, rows that are not of the program, and how far a
 * doubted fastest call reaches. */
#include "diff.h"
#include "judge.h"
#include "report_maker.h"
#include "test.h"

static const kn__diff_options normal = {.threshold = 0.05, .share = 0.005, .ascii = true};

static kn__report sides[2];

static int setup(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        kn__report_init(&sides[i]);
        sides[i].has_memory = true;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) kn__report_release(&sides[i]);
    return 0;
}

static kn__row *add(int side, kn__row *parent, const char *label, uint64_t ns) {
    kn__row *row = add_row(&sides[side], parent, label, 100, 100 * ns, 0);
    row->n_ended = 100;
    row->ended_ns = 100 * (double)ns;
    row->squares_ns2 = 100 * (double)ns * (double)ns;
    row->min_ns = row->max_ns = ns;
    return row;
}

static kn__diff compare(void) {
    kn__diff diff;
    for (int i = 0; i < 2; i++) kn__report_finish(&sides[i]);
    assert_ok(kn__diff_make(&diff, &sides[0], &sides[1], &normal));
    return diff;
}

/* The neutral change is the largest. */
static void neutral_changes_are_last(void **state) {
    (void)state;
    add(0, NULL, "parent", 2000000);
    kn__row *parent = add(1, NULL, "parent", 2000000);
    add(1, parent, "came", 1900000);
    add(0, NULL, "faster", 200000);
    add(1, NULL, "faster", 100000);
    add(0, NULL, "smaller", 100000)->alloc_bytes = 100 << 20;
    add(1, NULL, "smaller", 100000)->alloc_bytes = 1 << 20;
    kn__diff diff = compare();
    assert_int_equal(diff.n, 3);
    assert_int_equal(diff.n_neutral, 1);
    assert_true(diff.changes[2].neutral);
    assert_string_equal(diff.changes[2].row->label, "came");
    assert_string_equal(diff.changes[0].row->label, "faster");
    assert_string_equal(diff.changes[1].row->label, "smaller");
    kn__diff_release(&diff);
}

/* 5.2 % of what was there before is less than 5 % of what is there now. */
static void a_change_is_a_part_of_what_was_before(void **state) {
    (void)state;
    static const struct {
        int64_t after;
        int n;
    } cases[] = {{1052 << 20, 1}, {1048 << 20, 0}};
    for (size_t i = 0; i < 2; i++) {
        sides[0].memory.live_max = 1000 << 20;
        sides[1].memory.live_max = cases[i].after;
        kn__diff diff = compare();
        assert_int_equal(diff.n, cases[i].n);
        kn__diff_release(&diff);
    }
}

/* The row above spends less: what has gone is a gain, and not a row of another name. */
static void a_row_that_has_gone_is_a_gain(void **state) {
    (void)state;
    kn__row *parent = add(0, NULL, "parent", 2000000);
    add(0, parent, "stays", 1000000);
    add(0, parent, "goes", 900000);
    parent = add(1, NULL, "parent", 1100000);
    add(1, parent, "stays", 1000000);
    kn__diff diff = compare();
    const kn__change *gone = NULL;
    for (int i = 0; i < diff.n; i++) {
        if (diff.changes[i].what == KN__DIFF_GONE) gone = &diff.changes[i];
    }
    assert_non_null(gone);
    assert_false(gone->neutral);
    assert_close(gone->weight, -90000000, 0, 0);
    assert_int_equal(diff.n_worse, 0);
    kn__diff_release(&diff);
}

/* Its calls may be far apart: they are no noise of the program. */
static void rows_of_the_timer_are_no_noise(void **state) {
    (void)state;
    double noise[2];
    for (int i = 0; i < 2; i++) {
        add(0, NULL, i ? "after" : "before", 1000000)->min_ns = 800000;
        kn__row *extra = add(1, NULL, "~profiler~", 1000000);
        extra->min_ns = 10;
        extra->is_extra = true;
        kn__report_finish(&sides[0]);
        if (i) kn__report_finish(&sides[1]);
        kn__judge judge;
        assert_ok(kn__judge_make(&judge, &sides[0], &sides[i], 0.05, 0.005));
        noise[i] = judge.noise;
    }
    assert_close(noise[0], 0.5, 1e-9, 0);
    assert_close(noise[1], 0.25, 1e-9, 0);
}

/* A row of the timer's own is none of the program's: neither new nor gone, nor the other name of
 * one, nor slower. */
static void rows_of_the_timer_are_not_compared(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) add(i, NULL, "rest", 1000000);
    add(0, NULL, "~profiler~", 300000)->is_extra = true;
    add(1, NULL, "~profiler~", 900000)->is_extra = true;
    kn__diff diff = compare();
    assert_int_equal(diff.n, 0);
    assert_int_equal(diff.n_unsteady, 0);
    kn__diff_release(&diff);
}

static void a_row_of_the_timer_is_no_other_name(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) { /* which has the timer's row */
        for (int i = 0; i < 2; i++) add(i, NULL, "rest", 1000000);
        add(side, NULL, "~profiler~", 300000)->is_extra = true;
        add(!side, NULL, "solve", 300000);
        kn__diff diff = compare();
        assert_int_equal(diff.n, 1);
        assert_int_equal(diff.changes[0].what, side ? KN__DIFF_GONE : KN__DIFF_NEW);
        assert_string_equal(diff.changes[0].row->label, "solve");
        kn__diff_release(&diff);
        teardown(NULL);
        setup(NULL);
    }
}

/* Before, the fastest call was far below the others: a gain counts beyond the doubt's part of all
 * of the row's time, not beyond the whole doubt. */
static void a_gain_beyond_the_doubt_is_seen(void **state) {
    (void)state;
    static const struct {
        uint64_t fastest;
        int n, n_unsteady;
    } cases[] = {{54000, 1, 0}, {63000, 0, 1}};
    for (size_t i = 0; i < 2; i++) {
        const kn__time_bin before[] = {{1e5, 1}, {3.4e5, 29}, {1e6, 70}};
        const kn__time_bin after[] = {{(double)cases[i].fastest, 50}, {5e5, 50}};
        for (int side = 0; side < 2; side++) add(side, NULL, "rest", 1000000);
        kn__row *a = add(0, NULL, "solve", 800000), *b = add(1, NULL, "solve", 300000);
        a->min_ns = 100000;
        b->min_ns = cases[i].fastest;
        a->max_ns = b->max_ns = 1000000;
        assert_ok(kn__report_add_times(&sides[0], a, before, 3));
        assert_ok(kn__report_add_times(&sides[1], b, after, 2));
        kn__diff diff = compare();
        assert_int_equal(diff.n, cases[i].n);
        assert_int_equal(diff.n_unsteady, cases[i].n_unsteady);
        kn__diff_release(&diff);
        teardown(NULL);
        setup(NULL);
    }
}

int main(void) {
    return RUN_TESTS(TEST_WITH(neutral_changes_are_last, setup, teardown),
                     TEST_WITH(a_change_is_a_part_of_what_was_before, setup, teardown),
                     TEST_WITH(a_row_that_has_gone_is_a_gain, setup, teardown),
                     TEST_WITH(rows_of_the_timer_are_no_noise, setup, teardown),
                     TEST_WITH(rows_of_the_timer_are_not_compared, setup, teardown),
                     TEST_WITH(a_row_of_the_timer_is_no_other_name, setup, teardown),
                     TEST_WITH(a_gain_beyond_the_doubt_is_seen, setup, teardown));
}
