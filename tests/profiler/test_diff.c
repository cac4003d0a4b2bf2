/* Comparing two profiles: real changes and noise. */
#include "diff.h"

#include <cjson/cJSON.h>

#include "merge.h"
#include "report_maker.h"
#include "test.h"

static const kn__diff_options normal = {.threshold = 0.05, .share = 0.005, .ascii = true};

typedef struct spec {
    uint64_t n;
    double mean, sigma, fastest; /* ns */
    uint64_t bytes;              /* of all calls */
    int64_t rise;
} spec;

static kn__row *add(kn__report *report, kn__row *parent, const char *label, spec s) {
    double n = (double)s.n;
    kn__row *row = add_row(report, parent, label, s.n, (uint64_t)(n * s.mean), s.bytes);
    row->n_ended = s.n;
    row->ended_ns = n * s.mean;
    row->squares_ns2 = s.sigma * s.sigma * (n - 1) + n * s.mean * s.mean;
    row->min_ns = (uint64_t)s.fastest;
    row->peak = row->rise = s.rise;
    return row;
}

/* A report of one row beside a large one that never changes. */
static void make(kn__report *report, spec s) {
    kn__report_init(report);
    report->has_memory = true;
    report->memory.live_max = 1 << 30;
    add(report, NULL, "rest", (spec){.n = 100, .mean = 1e6, .sigma = 1e4, .fastest = 9e5});
    add(report, NULL, "row", s);
    kn__report_finish(report);
}

static kn__diff compare(kn__report *a, kn__report *b) {
    kn__diff diff;
    assert_ok(kn__diff_make(&diff, a, b, &normal));
    return diff;
}

static void real_changes_differ_from_noise(void **state) {
    (void)state;
    static const spec base = {100, 1e5, 1e4, 8e4, 0, 0};
    static const struct {
        const char *what;
        spec b;
        int n, n_worse, n_unsteady;
    } cases[] = {
        {"the same", {100, 1e5, 1e4, 8e4, 0, 0}, 0, 0, 0},
        {"four percent", {100, 1.04e5, 1e4, 8.3e4, 0, 0}, 0, 0, 0},
        {"twice as slow", {100, 2e5, 1e4, 1.6e5, 0, 0}, 1, 1, 0},
        {"twice as fast", {100, 5e4, 1e4, 4e4, 0, 0}, 1, 0, 0},
        {"twice as slow, the fastest as before", {100, 2e5, 1e4, 8e4, 0, 0}, 0, 0, 1},
        {"ten percent, calls far from one another", {100, 1.1e5, 1e5, 9e4, 0, 0}, 1, 1, 0},
        {"the average alone is lower, the fastest is slower",
         {100, 9e4, 1e5, 9.6e4, 0, 0},
         1,
         1,
         0},
        {"ten percent, and more calls", {10000, 1.1e5, 1e3, 9e4, 0, 0}, 2, 2, 0},
        {"more calls of the same length", {300, 1e5, 1e4, 8e4, 0, 0}, 1, 1, 0},
        {"a megabyte more", {100, 1e5, 1e4, 8e4, 1 << 20, 0}, 1, 1, 0},
        {"a few bytes more", {100, 1e5, 1e4, 8e4, 1 << 10, 0}, 0, 0, 0},
        {"a higher rise", {100, 1e5, 1e4, 8e4, 0, 100 << 20}, 1, 1, 0},
        {"a rise that is small in the run", {100, 1e5, 1e4, 8e4, 0, 1 << 20}, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__report a, b;
        make(&a, base);
        make(&b, cases[i].b);
        kn__diff diff = compare(&a, &b);
        if (diff.n != cases[i].n || diff.n_worse != cases[i].n_worse ||
            diff.n_unsteady != cases[i].n_unsteady) {
            fail_msg("%s: %d changes, %d worse, %d unsteady", cases[i].what, diff.n, diff.n_worse,
                     diff.n_unsteady);
        }
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

static void a_row_called_once_needs_more(void **state) {
    (void)state;
    static const struct {
        double mean;
        int n;
    } cases[] = {{1.2e6, 0}, {1.3e6, 1}};
    for (size_t i = 0; i < 2; i++) {
        kn__report a, b;
        make(&a, (spec){.n = 1, .mean = 1e6, .fastest = 1e6});
        make(&b, (spec){.n = 1, .mean = cases[i].mean, .fastest = cases[i].mean});
        kn__diff diff = compare(&a, &b);
        assert_int_equal(diff.n, cases[i].n);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* Only its child moved. */
static void a_row_called_once_is_judged_by_the_rows_in_it(void **state) {
    (void)state;
    kn__report reports[2];
    for (int i = 0; i < 2; i++) {
        double mean = i ? 2e5 : 1e5;
        kn__report_init(&reports[i]);
        kn__row *run = add(&reports[i], NULL, "run", (spec){1, 100 * mean, 0, 100 * mean, 0, 0});
        add(&reports[i], run, "step", (spec){100, mean, 1e3, mean - 2e3, 0, 0});
        kn__report_finish(&reports[i]);
    }
    kn__diff diff = compare(&reports[0], &reports[1]);
    assert_int_equal(diff.n, 1);
    assert_string_equal(diff.changes[0].row->label, "step");
    kn__diff_release(&diff);
    for (int i = 0; i < 2; i++) kn__report_release(&reports[i]);
}

static void rows_that_appear_or_vanish_are_listed_once(void **state) {
    (void)state;
    static const struct {
        double came, went; /* ns of ten calls */
        int n_worse, n_neutral;
        kn__diff_what first;
    } cases[] = {{2e6, 1e4, 1, 1, KN__DIFF_NEW},     /* and the run takes longer */
                 {2e5, 9e5, 0, 2, KN__DIFF_GONE},    /* the work of two is done elsewhere */
                 {1e6, 1e6, 0, 1, KN__DIFF_RENAMED}, /* the same work */
                 {1.2e6, 1e6, 0, 1, KN__DIFF_RENAMED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__report a, b;
        make(&a, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        make(&b, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        uint64_t n = i < 2 ? 20 : 10;
        kn__row *came = add(&b, NULL, "came", (spec){n, cases[i].came, 1e3, cases[i].came, 0, 0});
        add(&b, came, "inside", (spec){10, 1e4, 1e3, 1e4, 0, 0});
        add(&a, NULL, "went", (spec){10, cases[i].went, 1e3, cases[i].went, 0, 0});
        add(&b, NULL, "small", (spec){1, 10, 0, 10, 0, 0});
        kn__report_finish(&a);
        kn__report_finish(&b);
        kn__diff diff = compare(&a, &b);
        int others = i == 3; /* renamed, and slower */
        assert_int_equal(diff.n_worse, cases[i].n_worse + others);
        assert_int_equal(diff.n_neutral, i ? cases[i].n_neutral : diff.n_neutral);
        const kn__change *change = &diff.changes[others];
        assert_true(change->what == cases[i].first ||
                    diff.changes[diff.n - 1].what == cases[i].first);
        if (cases[i].first == KN__DIFF_RENAMED) assert_string_equal(change->from->label, "went");
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* Profiles that the rule before this one took for worse, or for the same. */
static void the_run_as_a_whole_counts(void **state) {
    (void)state;
    enum { M = 1000000 };
    kn__report a, b;
    kn__report_init(&a); /* main, called once, and all of it in one row called once */
    kn__report_init(&b);
    add(&a, add(&a, NULL, "main", (spec){1, 1000 * M, 0, 1000 * M, 0, 0}), "solve",
        (spec){1, 900 * M, 0, 900 * M, 0, 0});
    add(&b, add(&b, NULL, "main", (spec){1, 1200 * M, 0, 1200 * M, 0, 0}), "solve",
        (spec){1, 1100 * M, 0, 1100 * M, 0, 0});
    kn__report_finish(&a);
    kn__report_finish(&b);
    kn__diff diff = compare(&a, &b);
    assert_int_equal(diff.n_worse, 1);
    assert_string_equal(diff.changes[0].row->label, "solve");
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
    kn__report_init(&a); /* a scope is split, and all became faster */
    kn__report_init(&b);
    add(&a, NULL, "forward", (spec){100, 10 * M, 0, 10 * M, 0, 0});
    kn__row *forward = add(&b, NULL, "forward", (spec){100, 5 * M, 0, 5 * M, 0, 0});
    add(&b, forward, "conv", (spec){100, 4 * M, 0, 4 * M, 0, 0});
    kn__report_finish(&a);
    kn__report_finish(&b);
    diff = compare(&a, &b);
    assert_int_equal(diff.n_worse, 0);
    assert_int_equal(diff.n_neutral, 1);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
    kn__report_init(&a); /* every row is small, the run is not */
    kn__report_init(&b);
    for (int i = 0; i < 300; i++) {
        char label[16];
        snprintf(label, sizeof label, "%d", i);
        add(&a, NULL, kn__report_keep(&a, label), (spec){1, M, 0, M, 0, 0});
        add(&b, NULL, kn__report_keep(&b, label), (spec){1, 1.3 * M, 0, 1.3 * M, 0, 0});
    }
    kn__report_finish(&a);
    kn__report_finish(&b);
    diff = compare(&a, &b);
    assert_int_equal(diff.n_worse, 1);
    assert_true(diff.changes[0].row == &b.root);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

/* The median decides with the fastest call, where it is known. */
static void a_lucky_call_moves_nothing(void **state) {
    (void)state;
    static const kn__time_bin before[] = {{8.1e4, 30}, {1e5, 60}, {1.2e5, 10}};
    static const kn__time_bin slower[] = {{9.7e4, 30}, {1.2e5, 60}, {1.4e5, 10}};
    static const kn__time_bin lucky[] = {{6e4, 1}, {9.9e4, 30}, {1e5, 60}, {1.2e5, 10}};
    static const struct {
        const kn__time_bin *b;
        int n_bins;
        double fastest;
        int n_worse, n_unsteady;
    } cases[] = {{slower, 3, 9.6e4, 1, 0}, {before, 3, 9.6e4, 0, 1}, {lucky, 4, 6e4, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__report a, b;
        make(&a, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        make(&b, (spec){100, 1e5, 1e4, cases[i].fastest, 0, 0});
        a.root.last->max_ns = b.root.last->max_ns = 200000;
        assert_ok(kn__report_add_times(&a, a.root.last, before, 3));
        assert_ok(kn__report_add_times(&b, b.root.last, cases[i].b, cases[i].n_bins));
        kn__diff diff = compare(&a, &b);
        assert_int_equal(diff.n, cases[i].n_worse);
        assert_int_equal(diff.n_worse, cases[i].n_worse);
        assert_int_equal(diff.n_unsteady, cases[i].n_unsteady);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* However unsure the fastest call is: a row in a hundredth of its time is better. */
static void a_great_gain_is_seen_behind_any_noise(void **state) {
    (void)state;
    static const kn__time_bin before[] = {{8e6, 100}}, after[] = {{1e4, 1}, {8e4, 99}};
    kn__report a, b;
    make(&a, (spec){100, 8e6, 0, 8e6, 0, 0});
    make(&b, (spec){100, 8e4, 0, 1e4, 0, 0});
    a.root.last->max_ns = b.root.last->max_ns = 8000000;
    assert_ok(kn__report_add_times(&a, a.root.last, before, 1));
    assert_ok(kn__report_add_times(&b, b.root.last, after, 2));
    kn__diff diff = compare(&a, &b);
    assert_int_equal(diff.n, 1);
    assert_int_equal(diff.n_worse, 0);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

/* One of three runs was disturbed. */
static void several_runs_a_side_are_one(void **state) {
    (void)state;
    kn__report sides[2];
    for (int side = 0; side < 2; side++) {
        kn__report_init(&sides[side]);
        for (uint64_t i = 0; i < 3; i++) {
            double slow = side && i < 2 ? 100 : 1;
            kn__report run;
            make(&run, (spec){100, slow * 1e5, 1e4, slow * 8e4, 1 << 20, 0});
            ((kn__row *)find_row(&run, "row"))->where = "train.c:7";
            run.wall_ns = 1000;
            run.steps = (kn__steps){10, 9, 900, 90 - i, 200, 0};
            assert_ok(kn__report_merge(&sides[side], &run));
            kn__report_release(&run);
        }
        assert_int_equal(sides[side].n_runs, 3);
        assert_int_equal(sides[side].steps.n, 30);
        assert_int_equal(sides[side].steps.min_ns, 88);
        assert_int_equal(sides[side].root.alloc_bytes, 3 << 20);
        const kn__row *row = find_row(&sides[side], "row");
        assert_int_equal(row->n_calls, 300);
        assert_int_equal(row->min_ns, 80000);
        assert_string_equal(row->where, "train.c:7");
        assert_int_equal(row->n_runs, 3);
        assert_int_equal(row->run_min_ns, 10000000);
        assert_int_equal(row->run_max_ns, side ? 1000000000 : 10000000);
        assert_int_equal(row->slowest_run, 0);
    }
    kn__diff diff = compare(&sides[0], &sides[1]);
    assert_int_equal(diff.n_worse, 0);
    kn__text text = {0};
    sides[0].run.host = "one", sides[1].run.host = "two";
    sides[0].run.notes = "a=1", sides[1].run.notes = "a=2";
    kn__diff_add_table(&text, &diff, &sides[0], &sides[1], &normal);
    assert_non_null(strstr(text.data, "(means of 3 and 3 runs)"));
    assert_non_null(strstr(text.data, " unlike runs: the host is one, then two\n"));
    assert_non_null(strstr(text.data, " unlike runs: the program's notes are a=1, then a=2\n"));
    kn__text_release(&text);
    kn__diff_release(&diff);
    for (int side = 0; side < 2; side++) kn__report_release(&sides[side]);
}

/* Nothing else tells of the run: each row was called once a run, and takes a small part of it. */
static void of_several_runs_the_fastest_stands_for_the_run(void **state) {
    (void)state;
    enum { M = 1000000 };
    kn__report sides[2];
    for (int side = 0; side < 2; side++) {
        kn__report_init(&sides[side]);
        for (int i = 0; i < 3 * 300; i++) {
            double slow = side && i < 600 ? 2 : 1;
            char label[16];
            kn__report run;
            snprintf(label, sizeof label, "%d", i % 300);
            kn__report_init(&run);
            add(&run, NULL, label, (spec){1, slow * M, 0, slow * M, 0, 0});
            kn__report_finish(&run);
            assert_ok(kn__report_merge(&sides[side], &run));
            kn__report_release(&run);
        }
        sides[side].n_runs = sides[side].root.n_runs = 3;
        sides[side].root.run_min_ns = 300 * M;
        sides[side].root.run_max_ns = (side ? 600 : 300) * M;
    }
    kn__diff diff = compare(&sides[0], &sides[1]);
    assert_int_equal(diff.n, 0);
    sides[1].root.run_min_ns = 600 * M;
    kn__diff_release(&diff);
    diff = compare(&sides[0], &sides[1]);
    assert_int_equal(diff.n_worse, 1);
    assert_true(diff.changes[0].row == &sides[1].root);
    kn__diff_release(&diff);
    for (int side = 0; side < 2; side++) kn__report_release(&sides[side]);
}

enum { OPS = 8 };

/* Ops of a step; `factor` of each, and the part of calls that the machine left undisturbed. */
static void make_ops(kn__report *report, const double factor[OPS], uint64_t n_fast) {
    kn__report_init(report);
    for (int i = 0; i < OPS; i++) {
        char label[16];
        double fast = 1e5 * (i + 1) * factor[i];
        snprintf(label, sizeof label, "op%d", i);
        kn__row *row =
            add(report, NULL, kn__report_keep(report, label), (spec){100, 2 * fast, 0, fast, 0, 0});
        row->max_ns = (uint64_t)(3 * fast);
        const kn__time_bin bins[] = {{fast, n_fast}, {2 * fast, 100 - n_fast}};
        assert_ok(kn__report_add_times(report, row, bins, 2));
    }
    kn__report_finish(report);
}

static kn__diff compare_ops(const double before[OPS], uint64_t n_fast, const double after[OPS],
                            uint64_t n_fast_after) {
    kn__report a, b;
    make_ops(&a, before, n_fast);
    make_ops(&b, after, n_fast_after);
    kn__diff diff = compare(&a, &b);
    for (int i = 0; i < diff.n; i++) diff.changes[i].row = NULL;
    kn__report_release(&a);
    kn__report_release(&b);
    return diff;
}

static void a_slower_machine_is_no_slower_program(void **state) {
    (void)state;
    static const double same[OPS] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        const char *what;
        double factor[OPS];
        int n_worse;
        bool alike;
    } cases[] = {
        {"all by a third", {1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3}, 0, true},
        {"all, but not alike", {1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.3, 1.35}, 0, true},
        {"all by a third, and one much more", {1.3, 1.3, 1.3, 2, 1.3, 1.3, 1.3, 1.3}, 1, true},
        {"all by little", {1.04, 1.06, 1.05, 1.05, 1.07, 1.04, 1.06, 1.05}, 0, true},
        {"most of them", {1.3, 1.3, 1.3, 1, 1.3, 1.3, 1, 1}, 5, false},
        {"half of them", {1.02, 1.02, 1.02, 1.02, 1.3, 1.3, 1.3, 1.3}, 4, false},
        {"one alone", {1, 1.01, 0.99, 1.2, 1, 1.02, 1, 1}, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__diff diff = compare_ops(same, 90, cases[i].factor, 90);
        if (diff.n_worse != cases[i].n_worse || diff.alike != cases[i].alike)
            fail_msg("%s: %d worse, alike: %d", cases[i].what, diff.n_worse, diff.alike);
        kn__diff_release(&diff);
        diff = compare_ops(cases[i].factor, 90, same, 90);
        assert_int_equal(diff.n_worse, 0);
        assert_int_equal(diff.n, cases[i].n_worse);
        assert_int_equal(diff.alike, cases[i].alike);
        kn__diff_release(&diff);
    }
}

/* Other programs disturbed most calls of the run before: its median is the higher one. */
static void a_few_undisturbed_calls_are_enough_where_other_rows_agree(void **state) {
    (void)state;
    static const double same[OPS] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double slower[OPS] = {1, 1, 1, 1.2, 1, 1, 1, 1};
    static const double much_slower[OPS] = {1, 1, 1, 1.4, 1, 1, 1, 1};
    kn__diff diff = compare_ops(same, 20, slower, 80);
    assert_int_equal(diff.n_worse, 1);
    kn__diff_release(&diff);
    diff = compare_ops(same, 2, much_slower, 80); /* two calls are luck */
    assert_int_equal(diff.n_worse, 0);
    kn__diff_release(&diff);
}

/* One of its calls was delayed, and so it takes a large part of the run. */
static void a_slow_call_gives_a_small_row_no_share(void **state) {
    (void)state;
    for (uint64_t n = 3; n < 10; n += 5) {
        kn__report a, b;
        make(&a, (spec){n, 1e3, 0, 1e3, 0, 0});
        make(&b, (spec){n, 1e6, 1e6, 1.3e3, 0, 0});
        kn__diff diff = compare(&a, &b);
        assert_int_equal(diff.n, 0);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* Too few calls to know their noise: the fastest counts, not the mean. */
static void of_few_calls_the_fastest_is_judged(void **state) {
    (void)state;
    for (int slower = 0; slower < 2; slower++) {
        kn__report a, b;
        make(&a, (spec){3, 1e6, 0, 1e6, 0, 0});
        make(&b, (spec){3, 2e6, 1e6, slower ? 1.5e6 : 1.01e6, 0, 0});
        kn__diff diff = compare(&a, &b);
        assert_int_equal(diff.n_worse, slower);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* Which figure is compared for a row of two calls, or of spread calls, and with which bound. */
static void noise_is_that_of_rows_with_calls_enough(void **state) {
    (void)state;
    for (int slower = 0; slower < 2; slower++) {
        kn__report a, b;
        make(&a, (spec){1, 1e6, 0, 1e6, 0, 0});
        make(&b, (spec){1, slower ? 1.3e6 : 1e6, 0, slower ? 1.3e6 : 1e6, 0, 0});
        add(&a, NULL, "warm", (spec){2, 1e7, 0, 1e5, 0, 0}); /* says nothing of the noise */
        add(&b, NULL, "warm", (spec){2, 1e7, 0, 1e5, 0, 0});
        kn__diff diff = compare(&a, &b);
        assert_int_equal(diff.n_worse, slower);
        assert_int_equal(diff.n_unsteady, 0);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* The fastest of calls that are far from one another is unsure by a quarter of that. */
static void a_fastest_call_that_stands_alone_is_doubted(void **state) {
    (void)state;
    static const kn__time_bin before[] = {{2e5, 50}, {3e5, 50}}, after[] = {{2.4e5, 50}, {4e5, 50}};
    kn__report a, b;
    make(&a, (spec){100, 2.5e5, 0, 1e5, 0, 0});
    make(&b, (spec){100, 3.2e5, 0, 1.2e5, 0, 0});
    a.root.last->max_ns = b.root.last->max_ns = 500000;
    assert_ok(kn__report_add_times(&a, a.root.last, before, 2));
    assert_ok(kn__report_add_times(&b, b.root.last, after, 2));
    assert_true(kn__row_percentile(a.root.last, 0.5) == 2e5); /* half of the calls: not longer */
    kn__diff diff = compare(&a, &b);
    assert_int_equal(diff.n, 0);
    assert_int_equal(diff.n_unsteady, 1);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

/* Two rows went and one like both came; one came that is called more often. */
static void an_unclear_name_is_no_new_name(void **state) {
    (void)state;
    for (int often = 0; often < 2; often++) {
        kn__report a, b;
        make(&a, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        make(&b, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        uint64_t n = often ? 13 : 10;
        add(&a, NULL, "went", (spec){10, 1e6, 0, 1e6, 0, 0});
        if (!often) add(&a, NULL, "went too", (spec){10, 1e6, 0, 1e6, 0, 0});
        add(&b, NULL, "came", (spec){n, 1e6, 0, 1e6, 0, 0});
        kn__report_finish(&a);
        kn__report_finish(&b);
        kn__diff diff = compare(&a, &b);
        for (int i = 0; i < diff.n; i++) assert_true(diff.changes[i].what != KN__DIFF_RENAMED);
        assert_int_equal(diff.n, 3 - often);
        kn__diff_release(&diff);
        kn__report_release(&a);
        kn__report_release(&b);
    }
}

/* A run that was too short for a step has no least time of one. */
static void steps_of_a_short_run_change_no_extreme(void **state) {
    (void)state;
    kn__report side;
    kn__report_init(&side);
    for (int i = 0; i < 2; i++) {
        kn__report run;
        make(&run, (spec){100, 1e5, 1e4, 8e4, 0, 0});
        run.steps = i ? (kn__steps){1, 0, 0, 0, 0, 0} : (kn__steps){10, 9, 900, 90, 200, 0};
        assert_ok(kn__report_merge(&side, &run));
        kn__report_release(&run);
    }
    assert_int_equal(side.steps.n, 11);
    assert_int_equal(side.steps.min_ns, 90);
    kn__report_release(&side);
}

static void calls_are_compared_a_step(void **state) {
    (void)state;
    kn__report a, b;
    make(&a, (spec){100, 1e5, 1e4, 8e4, 0, 0});
    make(&b, (spec){600, 1e5, 1e4, 8e4, 0, 0});
    a.steps.n = 10;
    b.steps.n = 20; /* twice as long a run, three times the calls a step */
    kn__diff diff = compare(&a, &b);
    assert_int_equal(diff.n, 1);
    assert_int_equal(diff.changes[0].what, KN__DIFF_CALLS);
    assert_close(diff.changes[0].a, 10, 0, 1e-9);
    assert_close(diff.changes[0].b, 30, 0, 1e-9);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

static void a_kernel_is_compared_by_its_gpu_time(void **state) {
    (void)state;
    kn__report reports[2];
    for (int i = 0; i < 2; i++) {
        make(&reports[i], (spec){100, 1e5, 1e4, 8e4, 0, 0});
        kn__row *kernel = add_row(&reports[i], reports[i].root.last, "sgemm", 0, 0, 0);
        kernel->is_kernel = true;
        kernel->n_gpu = 100;
        kernel->gpu_ns = i ? 150000 : 100000;
        kn__report_finish(&reports[i]);
    }
    kn__diff diff = compare(&reports[0], &reports[1]);
    assert_true(diff.n >= 1 && diff.changes[0].what == KN__DIFF_GPU && diff.n_worse == diff.n);
    kn__diff_release(&diff);
    for (int i = 0; i < 2; i++) kn__report_release(&reports[i]);
}

static void the_worst_is_first_in_table_and_json(void **state) {
    (void)state;
    kn__report a, b;
    make(&a, (spec){100, 1e5, 1e3, 8e4, 1 << 20, 0});
    make(&b, (spec){100, 2e5, 1e3, 1.6e5, 4 << 20, 0});
    a.wall_ns = 150000000;
    b.wall_ns = 160000000;
    b.memory.live_max = (int64_t)3 << 29;
    kn__diff diff = compare(&a, &b);
    kn__text text = {0};
    kn__diff_add_table(&text, &diff, &a, &b, &normal);
    assert_string_equal(
        text.data,
        " run: 150ms -> 160ms; most live: 1.00 GiB -> 1.50 GiB\n"
        " moved by more than 5 % and the noise: 3 for the worse, 0 for the better\n\n"
        " what            before     after    change     in all  row\n"
        " time            80.0us     160us   +100.0%    +8.00ms  row\n"
        " most live      1.00GiB   1.50GiB    +50.0%    +512MiB  (the run)\n"
        " bytes          10.2KiB   41.0KiB   +300.0%   +3.00MiB  row\n");
    kn__text_release(&text);
    kn__diff_add_table(&text, &diff, &a, &b, &(kn__diff_options){.top = 1});
    assert_non_null(strstr(text.data, " and 2 more: --top 3 shows all\n"));
    assert_null(strstr(text.data, "bytes"));
    kn__text_release(&text);
    kn__diff_add_json(&text, &diff, &a, &b);
    cJSON *json = cJSON_Parse(text.data);
    assert_non_null(json);
    assert_int_equal(cJSON_GetObjectItem(json, "n_worse")->valuedouble, 3);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "changes"), 0);
    assert_string_equal(cJSON_GetObjectItem(first, "path")->valuestring, "row");
    assert_string_equal(cJSON_GetObjectItem(first, "unit")->valuestring, "ns");
    assert_close(cJSON_GetObjectItem(first, "after")->valuedouble, 1.6e5, 1e-9, 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(first, "worse")));
    cJSON_Delete(json);
    kn__text_release(&text);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

int main(void) {
    return RUN_TESTS(
        TEST(real_changes_differ_from_noise), TEST(a_row_called_once_needs_more),
        TEST(a_row_called_once_is_judged_by_the_rows_in_it),
        TEST(rows_that_appear_or_vanish_are_listed_once), TEST(the_run_as_a_whole_counts),
        TEST(a_lucky_call_moves_nothing), TEST(a_great_gain_is_seen_behind_any_noise),
        TEST(several_runs_a_side_are_one), TEST(of_several_runs_the_fastest_stands_for_the_run),
        TEST(a_slower_machine_is_no_slower_program),
        TEST(a_few_undisturbed_calls_are_enough_where_other_rows_agree),
        TEST(a_slow_call_gives_a_small_row_no_share), TEST(of_few_calls_the_fastest_is_judged),
        TEST(noise_is_that_of_rows_with_calls_enough),
        TEST(a_fastest_call_that_stands_alone_is_doubted), TEST(an_unclear_name_is_no_new_name),
        TEST(steps_of_a_short_run_change_no_extreme), TEST(calls_are_compared_a_step),
        TEST(a_kernel_is_compared_by_its_gpu_time), TEST(the_worst_is_first_in_table_and_json));
}
