/* Comparing two profiles: real changes and noise. */
#include "diff.h"

#include <cjson/cJSON.h>

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
        {"ten percent within the error", {100, 1.1e5, 1e5, 9e4, 0, 0}, 0, 0, 1},
        {"ten percent beyond the error", {10000, 1.1e5, 1e3, 9e4, 0, 0}, 1, 1, 0},
        {"more calls of the same length", {300, 1e5, 1e4, 8e4, 0, 0}, 0, 0, 0},
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
    kn__report a, b;
    make(&a, (spec){100, 1e5, 1e4, 8e4, 0, 0});
    make(&b, (spec){100, 1e5, 1e4, 8e4, 0, 0});
    kn__row *came = add(&b, NULL, "came", (spec){10, 1e6, 1e3, 1e6, 0, 0});
    add(&b, came, "inside", (spec){10, 9e5, 1e3, 9e5, 0, 0});
    add(&a, NULL, "went", (spec){10, 1e6, 1e3, 1e6, 0, 0});
    add(&b, NULL, "small", (spec){1, 10, 0, 10, 0, 0});
    kn__report_finish(&a);
    kn__report_finish(&b);
    kn__diff diff = compare(&a, &b);
    assert_int_equal(diff.n, 2);
    assert_int_equal(diff.n_worse, 1);
    assert_int_equal(diff.changes[0].what, KN__DIFF_NEW);
    assert_string_equal(diff.changes[0].row->label, "came");
    assert_int_equal(diff.changes[1].what, KN__DIFF_GONE);
    assert_string_equal(diff.changes[1].row->label, "went");
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
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
        " time             100us     200us   +100.0%    +10.0ms  row\n"
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
    assert_close(cJSON_GetObjectItem(first, "after")->valuedouble, 2e5, 1e-9, 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(first, "worse")));
    cJSON_Delete(json);
    kn__text_release(&text);
    kn__diff_release(&diff);
    kn__report_release(&a);
    kn__report_release(&b);
}

int main(void) {
    return RUN_TESTS(TEST(real_changes_differ_from_noise), TEST(a_row_called_once_needs_more),
                     TEST(a_row_called_once_is_judged_by_the_rows_in_it),
                     TEST(rows_that_appear_or_vanish_are_listed_once),
                     TEST(calls_are_compared_a_step), TEST(a_kernel_is_compared_by_its_gpu_time),
                     TEST(the_worst_is_first_in_table_and_json));
}
