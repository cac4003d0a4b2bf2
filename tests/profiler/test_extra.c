/* Rows that are not the program's, kernels and calls that have not ended: what sums, selections and
 * writers make of them. */
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "holders.h"
#include "merge.h"
#include "metrics.h"
#include "read.h"
#include "report_maker.h"
#include "select.h"
#include "stacks.h"
#include "table.h"
#include "test.h"

static kn__report report;

#define NONE "\"n_calls\":0,\"time_ns\":0,"
static const char profile[] =
    "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":2000000,\"n_threads\":1,"
    "\"memory\":{\"unit\":\"bytes\",\"live_bytes\":100,\"live_bytes_max\":900,\"pools\":[]},"
    "\"gpu\":{\"source\":\"mock\",\"launched\":20,\"timed\":20},\"scopes\":["
    "{\"label\":\"run\",\"n_calls\":4,\"time_ns\":1000000,\"min_ns\":200000,\"max_ns\":300000,"
    "\"alloc_bytes\":1000,\"held_bytes\":100,\"held_at_peak_bytes\":60,\"gpu_ns\":500,\"n_gpu\":9,"
    "\"children\":["
    "{\"label\":\"k1\"," NONE
    "\"kernel\":true,\"gpu_ns\":300,\"n_gpu\":4},"
    "{\"label\":\"k2\"," NONE
    "\"kernel\":true,\"gpu_ns\":150,\"n_gpu\":4},"
    "{\"label\":\"k3\"," NONE
    "\"kernel\":true,\"gpu_ns\":50,\"n_gpu\":1},"
    "{\"label\":\"~inside~\"," NONE
    "\"extra\":true,\"held_bytes\":40}]},"
    "{\"label\":\"open\",\"n_calls\":1,\"time_ns\":500000,\"open\":true},"
    "{\"label\":\"~outside pool~\"," NONE
    "\"extra\":true,\"alloc_bytes\":5000,"
    "\"held_at_peak_bytes\":700},"
    "{\"label\":\"~profiler~\",\"extra\":true,\"n_calls\":3,\"time_ns\":70000,\"children\":["
    "{\"label\":\"cost\",\"extra\":true,\"n_calls\":3,\"time_ns\":70000}]}]}";

static void parse(const char *text) {
    assert_ok(kn__report_parse(&report, "p.json", text, strlen(text)));
}

static int setup(void **state) {
    (void)state;
    parse(profile);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kn__report_release(&report);
    kn__report_init(&report);
    return 0;
}

static const kn__row *top_row(const char *label) {
    const kn__row *row = kn__report_find(&report, &report.root, label);
    if (!row) fail_msg("no row %s", label);
    return row;
}

static const kn__row *below(const kn__row *parent, const char *label) {
    for (const kn__row *row = parent->first; row; row = row->next) {
        if (strcmp(row->label, label) == 0) return row;
    }
    return NULL;
}

static void extra_rows_are_in_no_sum(void **state) {
    (void)state;
    assert_int_equal(report.root.time_ns, 1500000);
    assert_int_equal(report.root.alloc_bytes, 1000);
    assert_int_equal(kn__row_held(top_row("run")), 100);
}

static void extra_rows_own_no_memory(void **state) {
    (void)state;
    const kn__row *owners[4];
    assert_int_equal(kn__report_owners(owners, 4, &report), 1);
    assert_string_equal(owners[0]->label, "run");
}

static void extra_rows_stay_beside_the_first_ones(void **state) {
    (void)state;
    kn__report_sort(&report, KN__SORT_TIME);
    assert_ok(kn__report_top(&report, 2));
    assert_non_null(below(&report.root, "~profiler~"));
    assert_non_null(below(&report.root, "~outside pool~"));
}

static void a_sum_of_kernels_is_a_kernel(void **state) {
    (void)state;
    kn__report_sort(&report, KN__SORT_TIME);
    assert_ok(kn__report_top(&report, 1));
    const kn__row *sum = below(top_row("run"), "(3 more)");
    assert_non_null(sum);
    assert_false(sum->is_kernel); /* one of the rows is a scope */
    teardown(NULL);
    parse(
        "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":0,\"scopes\":[{\"label\":\"run\"," NONE
        "\"children\":["
        "{\"label\":\"k1\"," NONE
        "\"kernel\":true,\"gpu_ns\":3,\"n_gpu\":1},"
        "{\"label\":\"k2\"," NONE
        "\"kernel\":true,\"gpu_ns\":2,\"n_gpu\":1},"
        "{\"label\":\"k3\"," NONE "\"kernel\":true,\"gpu_ns\":1,\"n_gpu\":1}]}]}");
    assert_ok(kn__report_top(&report, 1));
    sum = below(top_row("run"), "(2 more)");
    assert_non_null(sum);
    assert_true(sum->is_kernel);
    assert_int_equal(sum->gpu_ns, 3);
}

static void flat_rows_are_extra_as_they_were(void **state) {
    (void)state;
    kn__report flat;
    assert_ok(kn__report_flatten(&flat, &report));
    assert_true(below(&flat.root, "~profiler~")->is_extra);
    assert_false(below(&flat.root, "run")->is_extra);
    assert_int_equal(flat.root.time_ns, 1500000);
    kn__report_release(&flat);
}

static void a_call_that_never_ended_has_no_minimum(void **state) {
    (void)state;
    kn__report sum;
    kn__report_init(&sum);
    assert_ok(kn__report_merge(&sum, &report));
    assert_ok(kn__report_merge(&sum, &report));
    const kn__row *open = below(&sum.root, "open");
    assert_int_equal(open->min_ns, 0);
    assert_int_equal(open->n_calls, 2);
    assert_true(open->open);
    assert_true(below(&sum.root, "~profiler~")->is_extra);
    kn__report_release(&sum);
}

static void the_order_of_merged_runs_does_not_matter(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        kn__report runs[2], sum;
        for (int i = 0; i < 2; i++) {
            kn__report_init(&runs[i]);
            kn__row *row = add_row(&runs[i], NULL, "job", 1, 100, 0);
            row->first_start = i ? 20 : 10;
            row->min_ns = row->first_ns = i ? 90 : 0; /* of the first run's call, which is open */
            row->open = !i;
            kn__report_finish(&runs[i]);
        }
        kn__report_init(&sum);
        assert_ok(kn__report_merge(&sum, &runs[order]));
        assert_ok(kn__report_merge(&sum, &runs[!order]));
        assert_int_equal(below(&sum.root, "job")->min_ns, 90);
        assert_int_equal(below(&sum.root, "job")->first_ns, 90);
        kn__report_release(&sum);
        for (int i = 0; i < 2; i++) kn__report_release(&runs[i]);
    }
}

/* The first call is that of the run in which the row came first. */
static void merged_runs_have_the_earliest_first_call(void **state) {
    (void)state;
    static const uint64_t starts[] = {300, 100, 200};
    kn__report sum, twice;
    kn__report_init(&sum);
    kn__report_init(&twice);
    for (int i = 0; i < 3; i++) {
        kn__row *row = kn__report_find(&report, &report.root, "run");
        row->first_start = starts[i];
        row->first_ns = 10 * starts[i];
        assert_ok(kn__report_merge(&sum, &report));
    }
    assert_int_equal(below(&sum.root, "run")->first_start, 100);
    assert_int_equal(below(&sum.root, "run")->first_ns, 1000);
    assert_int_equal(sum.n_runs, 3);
    assert_ok(kn__report_merge(&twice, &sum));
    assert_ok(kn__report_merge(&twice, &report));
    assert_int_equal(twice.n_runs, 4);
    kn__report_release(&sum);
    kn__report_release(&twice);
}

static kn__text text;

#define POOL(name, live, most, reserved_most, ooms)                                                \
    "{\"name\":\"" name "\",\"live_bytes\":" #live ",\"live_bytes_max\":" #most                    \
    ",\"reserved_bytes_max\":" #reserved_most ",\"n_ooms\":" #ooms "}"
#define HELD(label, held, at_peak)                                                                 \
    "\"label\":\"" label "\",\"held_bytes\":" #held ",\"held_at_peak_bytes\":" #at_peak            \
    ",\"n_calls\":1"
#define RANK(most, outside, pools, rows)                                                           \
    "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":9,\"memory\":{\"live_bytes_max\":" #most  \
    ",\"live_bytes_max_at_ns\":5,\"live\":[[5,9,9]],\"outside\":{" outside "},\"pools\":[" pools   \
    "]},\"scopes\":[" rows "]}"

static const char *const ranks[] = {
    RANK(100, HELD("", 7, 90), POOL("a", 5, 100, 128, 0) "," POOL("a", 1, 2, 3, 0),
         "{" HELD("load", 2, 10) ",\"time_ns\":40}"),
    RANK(900, HELD("", 3, 20), POOL("b", 1, 4, 4, 0) "," POOL("a", 50, 900, 1024, 2),
         "{" HELD("load", 1, 80) ",\"time_ns\":60},{" HELD("leaky", 50, 800) ",\"time_ns\":30}"),
    RANK(10, HELD("", 0, 10), "", "{" HELD("load", 0, 5) ",\"time_ns\":20}")};

static void merge_ranks(kn__report *sum, int first, int n) {
    for (int i = first; i < first + n; i++) {
        kn__report run;
        assert_ok(kn__report_parse(&run, "rank", ranks[i % 3], strlen(ranks[i % 3])));
        assert_ok(kn__report_merge(sum, &run));
        kn__report_release(&run);
    }
}

static void assert_owner(const kn__owner *owner, const char *path, int64_t bytes) {
    assert_string_equal(owner->path, path);
    assert_int_equal(owner->bytes, bytes);
}

/* The owners at the mark are those of one run; memory that is still held is that of all runs. */
static void merged_runs_have_the_owners_of_the_highest_mark(void **state) {
    (void)state;
    for (int first = 0; first < 3; first++) {
        merge_ranks(&report, first, 3);
        assert_int_equal(report.memory.live_max, 900);
        assert_int_equal(report.n_owners, 3);
        assert_owner(&report.owners[0], "leaky", 800);
        assert_owner(&report.owners[1], "load", 80);
        assert_owner(&report.owners[2], "(outside any scope)", 20);
        assert_int_equal(report.n_holders, 3);
        assert_owner(&report.holders[0], "leaky", 50);
        assert_owner(&report.holders[1], "(outside any scope)", 10);
        assert_owner(&report.holders[2], "load", 3);
        teardown(NULL);
    }
}

static void pools_of_merged_runs_are_joined_by_name(void **state) {
    (void)state;
    merge_ranks(&report, 0, 3);
    const kn__pool_use *pools = report.memory.pools;
    assert_int_equal(report.memory.n_pools, 3);
    assert_string_equal(pools[0].name, "a");
    assert_int_equal(pools[0].live, 55);
    assert_int_equal(pools[0].live_max, 900);
    assert_int_equal(pools[0].reserved_max, 1024);
    assert_int_equal(pools[0].n_ooms, 2);
    assert_string_equal(pools[1].name, "a"); /* the second one of the first run */
    assert_int_equal(pools[1].live, 1);
    assert_string_equal(pools[2].name, "b");
}

static void pools_beyond_the_room_are_counted(void **state) {
    (void)state;
    kn__report run;
    kn__report_init(&run);
    run.memory.n_pools = KN__POOLS_MAX;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < KN__POOLS_MAX; i++)
            snprintf(run.memory.pools[i].name, sizeof run.memory.pools[i].name, "%d",
                     i + 20 * half);
        assert_ok(kn__report_merge(&report, &run));
    }
    assert_int_equal(report.memory.n_pools, KN__POOLS_MAX);
    assert_int_equal(report.memory.n_pools_left_out, 20);
    kn__report_release(&run);
}

static void runs_have_no_memory_over_time_in_common(void **state) {
    (void)state;
    merge_ranks(&report, 0, 3);
    kn__memory_add(&text, &report, &(kn__memory_view){.ascii = true});
    assert_non_null(strstr(text.data, " high-water mark 900 bytes, the highest of 3 runs\n"));
    assert_non_null(strstr(text.data,
                           " a: at most 900 bytes live, 1.00 KiB reserved in one run; at "
                           "the end 55 bytes live, 0 bytes reserved in all;"));
    assert_null(strstr(text.data, "over time"));
    kn__text_release(&text);
}

/* As in the mean; also where a sum of runs is merged. */
static void runs_without_a_row_spent_no_time_in_it(void **state) {
    (void)state;
    kn__report both;
    kn__report_init(&both);
    merge_ranks(&both, 0, 2);
    assert_int_equal(below(&both.root, "load")->run_min_ns, 40);
    assert_int_equal(below(&both.root, "leaky")->run_min_ns, 0);
    merge_ranks(&report, 2, 1);
    assert_ok(kn__report_merge(&report, &both));
    kn__report_release(&both);
    const kn__row *load = below(&report.root, "load"), *leaky = below(&report.root, "leaky");
    assert_int_equal(load->n_runs, 3);
    assert_int_equal(load->run_min_ns, 20);
    assert_int_equal(load->run_max_ns, 60);
    assert_int_equal(load->slowest_run, 2);
    assert_int_equal(leaky->run_min_ns, 0);
    assert_close(kn__row_run_mean(&report, leaky), 10, 1e-9, 0);
    assert_close(kn__row_imbalance(&report, leaky), 2, 1e-9, 0);
}

/* --- text --- */

static const char *table_of(double min) {
    kn__table_options options = {.min = min, .ascii = true};
    kn__text_release(&text);
    kn__report_sort(&report, KN__SORT_TIME);
    kn__table_add(&text, &report, &options);
    return text.data;
}

#define ROW(label, calls, ns, gpu, more)                                                           \
    "{\"label\":\"" label "\",\"n_calls\":" #calls ",\"time_ns\":" #ns ",\"gpu_ns\":" #gpu more "}"

static void rows_small_in_time_are_shown_for_their_gpu_work(void **state) {
    (void)state;
    teardown(NULL);
    parse(
        "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":1000000,\"gpu\":{\"source\":\"m\"},"
        "\"scopes\":[" ROW("big", 1, 1000000, 0, "") "," ROW("launcher", 1, 10, 500, "") "," ROW(
            "waiter", 1, 10, 0, ",\"n_pending\":2") "," ROW("small a", 1, 10, 0,
                                                            "") "," ROW("small b", 1, 10, 0,
                                                                        "") "]}");
    const char *table = table_of(0.1);
    assert_non_null(strstr(table, "launcher"));
    assert_non_null(strstr(table, "waiter"));
    assert_null(strstr(table, "small a"));
    assert_non_null(strstr(table, "(2 below"));
}

static void metrics_of_a_run_without_memory_have_none(void **state) {
    (void)state;
    kn__metrics_add(&text, &report);
    assert_non_null(strstr(text.data, "knet_scope_allocated_bytes"));
    kn__text_release(&text);
    report.has_memory = false;
    kn__metrics_add(&text, &report);
    assert_null(strstr(text.data, "knet_scope_allocated_bytes"));
    assert_non_null(strstr(text.data, "knet_scope_calls_total"));
    kn__text_release(&text);
}

static void a_kernel_of_each_call_shares_the_line(void **state) {
    (void)state;
    teardown(NULL);
    parse(
        "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":1000000,\"gpu\":{\"source\":\"m\"},"
        "\"scopes\":[" ROW(
            "once", 4, 500000, 400,
            ",\"children\":[{\"label\":\"ka\"," NONE "\"kernel\":true,\"gpu_ns\":400,\"n_"
            "gpu\":4}]") "," ROW("twice", 4, 500000, 400,
                                 ",\"children\":[{\"label\":\"kb\"," NONE "\"kernel\":true,"
                                 "\"gpu_ns\":400,\"n_gpu\":8}]") "]}");
    const char *table = table_of(0.1);
    assert_non_null(strstr(table, "once > ka"));
    assert_null(strstr(table, "twice > kb"));
}

static void extra_rows_have_lines_of_their_own(void **state) {
    (void)state;
    const char *table = table_of(0.1);
    assert_non_null(strstr(table, "~profiler~"));
    assert_null(strstr(table, "~profiler~ > cost"));
}

static void stacks_have_the_programs_time_alone(void **state) {
    (void)state;
    kn__text_release(&text);
    kn__folded_add(&text, &report, KN__WEIGHT_TIME);
    assert_null(strstr(text.data, "~profiler~"));
    assert_non_null(strstr(text.data, "open 500000"));
    kn__text_release(&text);
    kn__speedscope_add(&text, &report);
    assert_non_null(strstr(text.data, "\"endValue\":1500000,"));
    kn__text_release(&text);
}

int main(void) {
    int failed =
        RUN_TESTS(TEST_WITH(extra_rows_are_in_no_sum, setup, teardown),
                  TEST_WITH(extra_rows_own_no_memory, setup, teardown),
                  TEST_WITH(extra_rows_stay_beside_the_first_ones, setup, teardown),
                  TEST_WITH(a_sum_of_kernels_is_a_kernel, setup, teardown),
                  TEST_WITH(flat_rows_are_extra_as_they_were, setup, teardown),
                  TEST_WITH(a_call_that_never_ended_has_no_minimum, setup, teardown),
                  TEST(the_order_of_merged_runs_does_not_matter),
                  TEST_WITH(merged_runs_have_the_earliest_first_call, setup, teardown),
                  TEST_WITH(merged_runs_have_the_owners_of_the_highest_mark, NULL, teardown),
                  TEST_WITH(pools_of_merged_runs_are_joined_by_name, NULL, teardown),
                  TEST_WITH(pools_beyond_the_room_are_counted, NULL, teardown),
                  TEST_WITH(runs_have_no_memory_over_time_in_common, NULL, teardown),
                  TEST_WITH(runs_without_a_row_spent_no_time_in_it, NULL, teardown),
                  TEST_WITH(metrics_of_a_run_without_memory_have_none, setup, teardown),
                  TEST_WITH(rows_small_in_time_are_shown_for_their_gpu_work, setup, teardown),
                  TEST_WITH(a_kernel_of_each_call_shares_the_line, setup, teardown),
                  TEST_WITH(extra_rows_have_lines_of_their_own, setup, teardown),
                  TEST_WITH(stacks_have_the_programs_time_alone, setup, teardown));
    kn__text_release(&text);
    return failed;
}
