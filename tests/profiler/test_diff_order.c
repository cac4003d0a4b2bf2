/* Comparing two profiles: the order of changes, rows that are not of the program, and how far a
 * doubted fastest call reaches, what tells of the machine, and the table's width. */
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

/* 5.2 % of the old time is less than 5 % of the new time. */
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

/* A row of the timer itself is not compared: it is not reported as new, gone, renamed or slower. */
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

/* As when the clock jumped: the others moved within the noise, to either side. */
static void a_call_of_no_time_is_no_fastest_call(void **state) {
    (void)state;
    static const kn__time_bin before[] = {{110, 1}, {13400, 90}, {15000, 9}},
                              after[] = {{13500, 40}, {14200, 60}};
    kn__row *rows[2];
    for (int side = 0; side < 2; side++) {
        rows[side] = add(side, NULL, "row", 13900);
        rows[side]->max_ns = 20000;
        rows[side]->min_ns = side ? 13500 : 110;
    }
    assert_ok(kn__report_add_times(&sides[0], rows[0], before, 3));
    assert_ok(kn__report_add_times(&sides[1], rows[1], after, 2));
    kn__diff diff = compare();
    assert_int_equal(diff.n, 0);
    assert_close(kn__judge_call(rows[0], rows[1]), 13400, 0.05, 0);
    kn__diff_release(&diff);
}

enum { FEW_CALLS, PARENTS, NO_MINIMUM, N_KINDS };

/* Rows of four calls each, with such rows in them, or of calls whose fastest isn't known. */
static void add_slow(int side, uint64_t ns, int kind) {
    for (int i = 0; i < 20; i++) {
        char label[16];
        snprintf(label, sizeof label, "slow %d", i);
        kn__row *row = add(side, NULL, kn__report_keep(&sides[side], label), ns);
        if (kind == PARENTS) row = add(side, row, "inner", ns);
        if (kind != NO_MINIMUM) row->n_ended = 4;
        if (kind == NO_MINIMUM && side) row->min_ns = 0;
    }
}

static void not_every_row_tells_of_the_machine(void **state) {
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int side = 0; side < 2; side++) {
            add(side, NULL, "steady", 1000000);
            add_slow(side, side ? 1300000 : 1000000, kind);
        }
        kn__diff diff = compare();
        assert_false(diff.alike);
        kn__diff_release(&diff);
        teardown(state);
        setup(state);
    }
}

/* Some rows moved by little, most by much: nothing is listed, and the table explains why. */
static void rows_that_are_held_back_have_an_explanation(void **state) {
    (void)state;
    static const char *const labels[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < 10; i++)
            add(side, NULL, labels[i], side ? (i < 3 ? 1048000 : 2000000) : 1000000);
    }
    kn__diff diff = compare();
    assert_int_equal(diff.n, 1); /* the run */
    assert_int_equal(diff.n_unsteady, 7);
    assert_true(diff.alike);
    kn__diff_release(&diff);
}

static void rises_are_bytes_and_come_after_times(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) {
        add(side, NULL, "bytes", 1000000)->rise = side ? 100 << 20 : 50 << 20;
        add(side, NULL, "time", side ? 1200000 : 1000000);
        sides[side].memory.live_max = 200 << 20;
    }
    kn__diff diff = compare();
    assert_int_equal(diff.n, 2);
    assert_string_equal(diff.changes[0].row->label, "time");
    kn__text text = {0};
    kn__diff_add_table(&text, &diff, &sides[0], &sides[1], &normal);
    if (!strstr(text.data, "50.0MiB")) fail_msg("no bytes in %s", text.data);
    kn__text_release(&text);
    kn__diff_release(&diff);
}

/* The time between the rows in it is the parent's own, and says nothing of a leaf's noise. */
static void noise_is_that_of_leaves(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) {
        kn__row *parent = add(side, NULL, "parent", 1000000);
        parent->ended_ns *= 50;
        add(side, parent, "leaf", 900000);
        kn__row *row = add(side, NULL, "once", side ? 1300000 : 1000000);
        row->n_calls = row->n_ended = 1;
        row->time_ns = row->min_ns;
        row->ended_ns = (double)row->min_ns;
    }
    kn__diff diff = compare();
    assert_int_equal(diff.n_worse, 1);
    kn__diff_release(&diff);
}

/* However long the names are. */
static void the_table_fits_into_the_terminal(void **state) {
    (void)state;
    static const char label[] =
        "例えば日本語の名前 and a long name of a newcomer's scope, that continues";
    static const int widths[] = {40, 55, 56, 75, 76, 80, 100, 140};
    for (int side = 0; side < 2; side++) add(side, NULL, label, side ? 2000000 : 1000000);
    sides[0].run.command = "a command of many words that were given";
    sides[1].run.command = "another command of as many words";
    kn__diff diff = compare();
    diff.n_unsteady = 3;
    diff.alike = true;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        kn__text text = {0};
        kn__diff_options how = normal;
        how.width = widths[i];
        kn__diff_add_table(&text, &diff, &sides[0], &sides[1], &how);
        assert_non_null(strstr(text.data, "that continues\n")); /* the end says which */
        assert_non_null(strstr(text.data, "+100.0%"));
        for (char *at = NULL, *line = strtok_r(text.data, "\n", &at); line;
             line = strtok_r(NULL, "\n", &at)) {
            if (kn__text_width(line) > widths[i]) fail_msg("%d columns: '%s'", widths[i], line);
        }
        kn__text_release(&text);
    }
    kn__diff_release(&diff);
}

int main(void) {
    return RUN_TESTS(TEST_WITH(neutral_changes_are_last, setup, teardown),
                     TEST_WITH(a_change_is_a_part_of_what_was_before, setup, teardown),
                     TEST_WITH(a_row_that_has_gone_is_a_gain, setup, teardown),
                     TEST_WITH(rows_of_the_timer_are_no_noise, setup, teardown),
                     TEST_WITH(rows_of_the_timer_are_not_compared, setup, teardown),
                     TEST_WITH(a_row_of_the_timer_is_no_other_name, setup, teardown),
                     TEST_WITH(a_gain_beyond_the_doubt_is_seen, setup, teardown),
                     TEST_WITH(a_call_of_no_time_is_no_fastest_call, setup, teardown),
                     TEST_WITH(noise_is_that_of_leaves, setup, teardown),
                     TEST_WITH(rows_that_are_held_back_have_an_explanation, setup, teardown),
                     TEST_WITH(rises_are_bytes_and_come_after_times, setup, teardown),
                     TEST_WITH(not_every_row_tells_of_the_machine, setup, teardown),
                     TEST_WITH(the_table_fits_into_the_terminal, setup, teardown));
}
