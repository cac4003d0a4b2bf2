/* What scopes computed and moved, by their time; and the machine's peaks. */
#include <knet/prof_metric.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cells.h"
#include "comma_locale.h"
#include "export.h"
#include "html.h"
#include "json.h"
#include "merge.h"
#include "peaks.h"
#include "read.h"
#include "select.h"
#include "table.h"
#include "test.h"
#include "timer_fixture.h"

static void work_is_that_of_the_innermost_scope(void **state) {
    (void)state;
    kn_prof_metric(1, 1); /* no scope is open */
    {
        KN_SCOPE("rates");
        kn_prof_metric(1000, 10);
        for (int i = 0; i < 2; i++) {
            KN_SCOPE("inner");
            kn_prof_metric(7, 300);
        }
        kn_prof_metric(500, 0);
    }
    take_report(&report);
    const kn__row *row = find_row(&report, "rates"), *inner = find_row(&report, "rates/inner");
    assert_int_equal(inner->flops, 14);
    assert_int_equal(inner->moved_bytes, 600);
    assert_int_equal(row->flops, 1514);
    assert_int_equal(row->moved_bytes, 610);
    assert_int_equal(report.root.flops, 1514);
}

/* And a report of it is read back, and merged. */
static void work_beyond_64_bits_stays_at_the_largest_number(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("much");
        kn_prof_metric(UINT64_MAX / 2, UINT64_MAX);
    }
    take_report(&report);
    assert_true(find_row(&report, "much")->flops == UINT64_MAX);
    assert_true(report.root.moved_bytes == UINT64_MAX);
    kn__report read, merged;
    kn__text text = {0};
    kn__json_add(&text, &report);
    assert_ok(kn__report_parse(&read, "r", text.data, text.length));
    assert_true(find_row(&read, "much")->moved_bytes == UINT64_MAX);
    kn__report_init(&merged);
    for (int i = 0; i < 2; i++) assert_ok(kn__report_merge(&merged, &read));
    assert_true(find_row(&merged, "much")->flops == UINT64_MAX);
    kn__text_release(&text);
    kn__report_release(&read);
    kn__report_release(&merged);
}

static void a_pause_counts_nothing(void **state) {
    (void)state;
    {
        KN_SCOPE("paused");
        kn_prof_pause();
        kn_prof_metric(1000, 10);
        kn_prof_resume();
        kn_prof_metric(1, 2);
    }
    take_report(&report);
    assert_int_equal(find_row(&report, "paused")->flops, 1);
    assert_int_equal(find_row(&report, "paused")->moved_bytes, 2);
}

/* A step of a product and a sum of vectors, on the processor, and the product again on a GPU. */
static void make_step(kn__report *out) {
    kn__report_init(out);
    kn__row *step = add_row(out, NULL, "step", 10, 4000000, 0);
    kn__row *matmul = add_row(out, step, "matmul", 10, 2000000, 0);
    matmul->flops = 100000000;
    matmul->moved_bytes = 4000000;
    add_row(out, matmul, "sgemm", 10, 1900000, 0);
    kn__row *add = add_row(out, step, "add", 10, 1000000, 0);
    add->moved_bytes = 12000000;
    kn__row *gpu = add_row(out, NULL, "gpu", 10, 1000000, 0);
    gpu->flops = 100000000;
    gpu->gpu_ns = 100000;
    gpu->n_gpu = 1;
    out->peaks = (kn__rates){100e9, 20e9};
    out->wall_ns = 10000000;
    kn__report_finish(out);
}

static void a_rate_is_work_by_time(void **state) {
    (void)state;
    kn__report r;
    make_step(&r);
    const kn__row *matmul = find_row(&r, "step/matmul"), *add = find_row(&r, "step/add");
    assert_close(kn__row_rates(matmul).flops, 50e9, 1e-12, 0);
    assert_close(kn__row_rates(matmul).bytes, 2e9, 1e-12, 0);
    assert_close(kn__row_of_peak(&r, matmul), 0.5, 1e-12, 0);
    assert_close(kn__row_of_peak(&r, add), 0.6, 1e-12, 0); /* of the memory's */
    assert_close(kn__row_rates(find_row(&r, "step")).flops, 25e9, 1e-12, 0);
    assert_close(kn__row_rates(find_row(&r, "gpu")).flops, 1e12, 1e-12, 0); /* by the GPU's time */
    assert_true(kn__row_of_peak(&r, find_row(&r, "gpu")) == 0);
    assert_true(kn__row_rates(&(kn__row){.flops = 1}).flops == 0);
    r.peaks.bytes = 0;
    assert_true(kn__row_of_peak(&r, matmul) == 0);
    kn__report_release(&r);
}

static void the_table_shows_rates_where_there_are_some(void **state) {
    (void)state;
    kn__report r;
    kn__text text = {0};
    make_step(&r);
    kn__table_add(&text, &r, &(kn__table_options){.ascii = true});
    assert_non_null(strstr(text.data, "flop/s     B/s  %peak\n"));
    assert_non_null(strstr(text.data, " 50.0G   2.00G  50.0%\n"));
    assert_non_null(strstr(text.data, "      -   12.0G  60.0%\n"));
    assert_non_null(strstr(text.data, "    20.0G   1.60G       \n")); /* of 10 ms in all */
    assert_non_null(strstr(text.data, "1.00T       -      -\n"));
    assert_non_null(strstr(text.data, "flop/s, B/s: "));
    kn__text_release(&text);
    r.peaks = (kn__rates){0};
    kn__table_add(&text, &r, &(kn__table_options){.ascii = true});
    assert_null(strstr(text.data, "%peak"));
    kn__text_release(&text);
    kn__table_add(&text, &r, &(kn__table_options){.ascii = true, .width = 60});
    assert_null(strstr(text.data, "flop/s"));
    kn__text_release(&text);
    kn__table_add(&text, &r, &(kn__table_options){.ascii = true, .columns_2018 = true});
    assert_null(strstr(text.data, "flop/s"));
    kn__text_release(&text);
    kn__report_release(&r);
}

static void other_formats_have_the_work(void **state) {
    (void)state;
    kn__report r;
    kn__text text = {0};
    make_step(&r);
    kn__csv_add(&text, &r);
    assert_non_null(strstr(text.data, ",p99_ns,flops,moved_bytes,gflop_s,gbyte_s\n"));
    assert_non_null(strstr(text.data, ",0,0,100000000,4000000,50,2\n"));
    kn__text_release(&text);
    kn__json_add(&text, &r);
    assert_non_null(strstr(text.data,
                           "\"flops\":100000000,\"moved_bytes\":4000000,"
                           "\"gflop_s\":50,\"gbyte_s\":2,\"of_peak\":0.5"));
    kn__text_release(&text);
    kn__html_add(&text, &r);
    assert_non_null(strstr(text.data, ",100000000,4000000]"));
    kn__text_release(&text);
    kn__report_release(&r);
}

static void work_survives_reading_merging_and_flattening(void **state) {
    (void)state;
    kn__report r, read, merged, flat;
    kn__text text = {0};
    make_step(&r);
    kn__json_add(&text, &r);
    assert_ok(kn__report_parse(&read, "r", text.data, text.length));
    assert_int_equal(find_row(&read, "step/matmul")->flops, 100000000);
    assert_int_equal(read.root.flops, 200000000);
    assert_close(read.peaks.flops, 100e9, 1e-6, 0);
    assert_close(read.peaks.bytes, 20e9, 1e-6, 0);
    kn__report_init(&merged);
    for (int i = 0; i < 2; i++) {
        assert_ok(kn__report_merge(&merged, &read));
        read.peaks = (kn__rates){1e9, 1e9}; /* the first machine's stay */
    }
    assert_int_equal(find_row(&merged, "step/add")->moved_bytes, 24000000);
    assert_int_equal(merged.root.flops, 400000000);
    assert_close(merged.peaks.bytes, 20e9, 1e-6, 0);
    assert_ok(kn__report_flatten(&flat, &r));
    assert_int_equal(find_row(&flat, "step")->flops, 0);
    assert_int_equal(find_row(&flat, "matmul")->flops, 100000000);
    assert_int_equal(flat.root.flops, 200000000);
    kn__text_release(&text);
    kn__report_release(&flat);
    kn__report_release(&r);
    kn__report_release(&read);
    kn__report_release(&merged);
}

static void rates_have_three_digits_and_a_prefix(void **state) {
    (void)state;
    assert_string_equal(kn__rate_cell(12).text, "12.0");
    assert_string_equal(kn__rate_cell(1500).text, "1.50k");
    assert_string_equal(kn__rate_cell(45.6e9).text, "45.6G");
    assert_string_equal(kn__rate_cell(7.89e20).text, "789000P");
}

/* --- the file of peaks --- */

static char home[] = "/tmp/knet_peaks_XXXXXX";

static void overwrite(const char *text) {
    char path[KN__PEAKS_PATH_BYTES];
    assert_true(kn__peaks_path(path, sizeof path));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void peaks_are_kept_for_this_machine(void **state) {
    (void)state;
    char path[KN__PEAKS_PATH_BYTES], line[512] = "", other[600];
    assert_non_null(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CACHE_HOME");
    assert_true(kn__peaks_read().flops == 0);
    assert_ok(kn__peaks_write((kn__rates){1.5e11, 2e10}));
    assert_true(kn__peaks_path(path, sizeof path));
    assert_non_null(strstr(path, "/.cache/knet/peaks"));
    assert_close(kn__peaks_read().flops, 1.5e11, 1e-9, 0);
    assert_close(kn__peaks_read().bytes, 2e10, 1e-9, 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    line[strlen(line) - 1] = '\0'; /* cut off */
    overwrite(line);
    assert_true(kn__peaks_read().flops == 0);
    snprintf(other, sizeof other, "knet-peaks 1 another%s\n", strstr(line, " 1 ") + 3);
    overwrite(other);
    assert_true(kn__peaks_read().flops == 0);
    overwrite("\n");
    assert_true(kn__peaks_read().flops == 0);
    assert_ok(kn__peaks_write((kn__rates){-1, 2e10})); /* no rate */
    assert_true(kn__peaks_read().flops == 0 && kn__peaks_read().bytes == 0);
    unlink(path);
}

static void peaks_are_read_in_another_locale(void **state) {
    (void)state;
    char path[KN__PEAKS_PATH_BYTES];
    bool is_set = comma_locale_set();
    kn_status written = kn__peaks_write((kn__rates){1.5e11, 2.25e10});
    kn__rates same = kn__peaks_read();
    setlocale(LC_NUMERIC, "C");
    assert_ok(written);
    assert_close(same.bytes, 2.25e10, 0, 0);
    assert_close(kn__peaks_read().flops, 1.5e11, 0, 0);
    assert_close(kn__peaks_read().bytes, 2.25e10, 0, 0);
    assert_true(kn__peaks_path(path, sizeof path));
    unlink(path);
    if (!is_set) skip();
}

static void peaks_go_to_the_users_cache(void **state) {
    (void)state;
    char path[KN__PEAKS_PATH_BYTES], cache[64];
    snprintf(cache, sizeof cache, "%s/cache", home);
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_ok(kn__peaks_write((kn__rates){1e11, 1e10}));
    assert_true(kn__peaks_path(path, sizeof path));
    assert_true(strncmp(path, cache, strlen(cache)) == 0);
    struct stat made;
    assert_int_equal(stat(cache, &made), 0);
    assert_int_equal(made.st_mode & 077, 0); /* for the user alone */
    assert_close(kn__peaks_read().bytes, 1e10, 1e-9, 0);
    assert_false(kn__peaks_path(path, 8));
    setenv("XDG_CACHE_HOME", "relative", 1); /* invalid */
    assert_true(kn__peaks_path(path, sizeof path));
    assert_non_null(strstr(path, "/.cache/"));
    setenv("HOME", "", 1);
    assert_false(kn__peaks_path(path, sizeof path));
    assert_true(kn__peaks_read().flops == 0);
    assert_int_equal(kn__peaks_write((kn__rates){1e11, 1e10}), KN_ERR_INVALID);
    setenv("HOME", "/dev/null", 1);
    assert_int_equal(kn__peaks_write((kn__rates){1e11, 1e10}), KN_ERR_IO);
    assert_non_null(strstr(kn_last_error()->message, "/dev/null/.cache/knet/peaks"));
}

int main(void) {
    return RUN_TESTS(
        TEST_WITH(work_is_that_of_the_innermost_scope, timer_setup, timer_teardown),
        TEST_WITH(work_beyond_64_bits_stays_at_the_largest_number, timer_setup, timer_teardown),
        TEST_WITH(a_pause_counts_nothing, timer_setup, timer_teardown),
        TEST(a_rate_is_work_by_time), TEST(the_table_shows_rates_where_there_are_some),
        TEST(other_formats_have_the_work), TEST(work_survives_reading_merging_and_flattening),
        TEST(rates_have_three_digits_and_a_prefix), TEST(peaks_are_kept_for_this_machine),
        TEST(peaks_are_read_in_another_locale), TEST(peaks_go_to_the_users_cache));
}
