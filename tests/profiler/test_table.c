/* Tables byte for byte. The files of 2018 layout follow the rules of TimerOutputs 0.4's show.jl
 * (heads, widths, padding and digits), and were compared with tables that Julia programs of that
 * time printed. */
#include "table.h"

#include "lines.h"
#include "report_maker.h"
#include "test.h"

static const char *golden_dir;

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *data = calloc(1, 1 << 16);
    assert_non_null(data);
    size_t n = fread(data, 1, (1 << 16) - 1, file);
    data[n] = '\0';
    fclose(file);
    return data;
}

/* KNET_GOLDEN_WRITE=1 writes the files anew, for a person to look at. */
static void assert_golden(const kn__report *report, const kn__table_options *options,
                          const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.txt", golden_dir, name);
    kn__text text = {0};
    kn__table_add(&text, report, options);
    assert_false(text.failed);
    if (getenv("KNET_GOLDEN_WRITE")) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fwrite(text.data, 1, text.length, file);
        fclose(file);
    }
    char *want = read_file(path);
    if (!want) fail_msg("%s is missing", path);
    assert_string_equal(text.data, want);
    free(want);
    kn__text_release(&text);
}

static void add_marks(kn__report *report) {
    kn__row *train = report->root.first, *step = train->first;
    train->peak = step->peak = 734003200;
    kn__row *backward = step->first->next;
    backward->peak = 629145600;
    backward->peak_most = INT64_MAX;
    backward->held_at_peak = 90000000;
    step->held_at_peak = 644003200;
    report->memory.live_max = 734003200;
    report->memory.n_pools = 1;
    report->memory.pools[0] = (kn__pool_use){.name = "cuda:0",
                                             .live = 1 << 20,
                                             .live_max = 734003200,
                                             .reserved = 1 << 30,
                                             .reserved_max = 1 << 30};
    report->n_threads = 3;
    report->steps = (kn__steps){14084, 14083, 1478715000000u, 99000000, 202000000, 0};
}

static void add_gpu(kn__report *report, kn__row *conv) {
    conv->gpu_ns = 380000000000u;
    conv->n_pending = 4;
    conv->n_gpu = 28168;
    report->balance = (kn__balance){.source = "cupti",
                                    .launched = 28175,
                                    .timed = 28168,
                                    .pending = 4,
                                    .dropped = 2,
                                    .untimed = 1,
                                    .unattributed_ns = 1500000000,
                                    .n_unattributed = 3};
    report->gpu =
        (kn__gpu_use){1, {{.busy_ns = 381500000000, .idle_ns = 1100000000000, .n_streams = 2}}};
    kn__row *extra = add_row(report, NULL, "~unattributed~", 0, 0, 0);
    kn__row *unknown = add_row(report, extra, "(its launch was not seen)", 0, 0, 0);
    unknown->gpu_ns = 1500000000;
    unknown->n_gpu = 3;
    extra->is_extra = unknown->is_kernel = true;
    extra = add_row(report, NULL, "~profiler~", 812, 23000000, 0);
    extra->is_extra = true;
}

enum { PLAIN = 0, WITH_MARKS = 1, WITH_GPU = 2 };

/* Times from 15 ns to 1822 s, allocations from none to gibibytes. */
static void make_typical(kn__report *report, int with) {
    kn__report_init(report);
    report->wall_ns = 1822000000000u;
    report->n_threads = 1;
    report->has_memory = true;
    kn__row *train = add_row(report, NULL, "train", 1, 1491000000000u, 0);
    kn__row *step = add_row(report, train, "step", 14084, 1480000000000u, 4096);
    kn__row *forward = add_row(report, step, "forward", 14084, 415300000000u, 1 << 20);
    add_row(report, forward, "cudnnConvolutionForward", 28168, 391000000000u, 3000000000u);
    add_row(report, forward, "relu", 42252, 633780, 999);
    kn__row *backward = add_row(report, step, "backward", 14084, 999600000000u, 0);
    add_row(report, backward, "conv[1]", 28168, 12345678, 77000);
    add_row(report, NULL, "load batch", 15, 225, 0);
    if (with & WITH_MARKS) add_marks(report);
    if (with & WITH_GPU) add_gpu(report, forward->first);
    kn__report_finish(report);
    kn__report_sort(report, KN__SORT_TIME);
}

static void pure_layout_is_that_of_2018(void **state) {
    (void)state;
    kn__report report;
    make_typical(&report, PLAIN);
    kn__table_options options = {.columns_2018 = true, .bare = true};
    assert_golden(&report, &options, "2018");
    options.ascii = true;
    assert_golden(&report, &options, "2018-ascii");
    options = (kn__table_options){.columns_2018 = true, .bare = true, .width = 80};
    assert_golden(&report, &options, "2018-80-columns");
    report.has_memory = false;
    options.width = 0;
    assert_golden(&report, &options, "2018-no-allocations");
    kn__report_release(&report);
}

static void all_columns_stand_beside_those_of_2018(void **state) {
    (void)state;
    kn__report report;
    make_typical(&report, WITH_MARKS);
    kn__table_options options = {0};
    assert_golden(&report, &options, "memory");
    kn__report_release(&report);
    make_typical(&report, WITH_MARKS | WITH_GPU);
    assert_golden(&report, &options, "gpu");
    options.ascii = true;
    options.depth = 2;
    assert_golden(&report, &options, "gpu-ascii-depth-2");
    kn__report_release(&report);
}

static void spread_shows_shortest_longest_and_first_calls(void **state) {
    (void)state;
    kn__report report;
    make_typical(&report, WITH_MARKS);
    kn__row *step = report.root.first->first;
    step->min_ns = 99000000;
    step->max_ns = 202000000;
    step->first_ns = 187000000;
    step->n_ended = step->n_calls; /* about 105 ms, with a deviation of 7 */
    step->ended_ns = 105e6 * (double)step->n_ended;
    static const kn__time_bin bins[] = {{98e6, 7000}, {104e6, 6900}, {151e6, 100}, {200e6, 84}};
    assert_ok(kn__report_add_times(&report, step, bins, 4));
    step->squares_ns2 = (105e6 * 105e6 + 7e6 * 7e6) * (double)step->n_ended;
    assert_golden(&report, &(kn__table_options){.spread = true}, "spread");
    assert_golden(&report, &(kn__table_options){.spread = true, .width = 110}, "spread-110");
    assert_golden(&report, &(kn__table_options){.spread = true, .ascii = true}, "spread-ascii");
    kn__report_release(&report);
}

static void narrow_tables_lose_averages_before_labels(void **state) {
    (void)state;
    kn__report report;
    make_typical(&report, WITH_MARKS | WITH_GPU);
    assert_golden(&report, &(kn__table_options){.width = 100}, "width-100");
    assert_golden(&report, &(kn__table_options){.width = 80}, "width-80");
    assert_golden(&report, &(kn__table_options){.width = 40}, "width-40");
    assert_golden(&report, &(kn__table_options){.width = 140}, "width-140");
    assert_golden(&report, &(kn__table_options){.width = 1}, "width-1");
    kn__report_release(&report);
}

/* A step of a small network: most rows say little. */
static void make_network(kn__report *report) {
    kn__report_init(report);
    report->wall_ns = 2000000000;
    report->n_threads = 5;
    kn__row *step = add_row(report, NULL, "step", 100, 1990000000, 0);
    kn__row *forward = add_row(report, step, "forward", 100, 600000000, 0);
    kn__row *conv1 = add_row(report, forward, "卷积层一", 100, 400000000, 0);
    add_row(report, conv1, "conv", 100, 399000000, 0);
    kn__row *conv2 = add_row(report, forward, "conv2", 100, 190000000, 0);
    add_row(report, conv2, "conv", 200, 189000000, 0);
    add_row(report, conv1->first, "record", 100, 40000, 0);
    add_row(report, forward, "reshape", 100, 90000, 0);
    add_row(report, forward, "accuracy", 100, 80000, 0);
    kn__row *backward = add_row(report, step, "backward", 100, 1380000000, 0);
    kn__row *weight = add_row(report, backward, "conv[2]", 100, 1379000000, 0);
    add_row(report, weight, "conv_weight", 100, 1378000000, 0);
    kn__row *loader = add_row(report, NULL, "loader: 讀取資料並解壓縮", 400, 7600000000, 0);
    add_row(report, loader, "decode", 400, 7500000000, 0);
    for (kn__row *row = loader; row; row = row->first) row->n_threads = 4;
    add_row(report, NULL, "start", 1, 50000, 0);
    add_row(report, add_row(report, NULL, "end", 1, 40000, 0), "flush", 1, 30000, 0);
    add_row(report, NULL, "~profiler~", 3, 40000, 0)->is_extra = true;
    kn__report_finish(report);
    kn__report_sort(report, KN__SORT_TIME);
}

static void small_rows_are_folded_and_sole_children_joined(void **state) {
    (void)state;
    kn__report report;
    make_network(&report);
    assert_golden(&report, &(kn__table_options){.min = 0.1}, "network");
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 40}, "network-40");
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 80, .ascii = true},
                  "network-80");
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 100, .top = 1},
                  "network-top-1");
    assert_golden(&report, &(kn__table_options){.width = 140}, "network-all-140");
    kn__report_release(&report);
}

static void narrow_tables_of_several_runs_lose_the_spread_of_the_runs(void **state) {
    (void)state;
    kn__report report;
    make_network(&report);
    report.n_runs = 4;
    for (kn__row *row = report.root.first; row; row = row->next) {
        row->n_runs = 4;
        row->run_min_ns = row->time_ns / 5;
        row->run_max_ns = row->time_ns / 3;
        row->slowest_run = 2;
    }
    report.root.last->n_runs = 1; /* one run alone has this row */
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 80}, "runs-80");
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 60}, "runs-60");
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 40}, "runs-40");
    kn__report_release(&report);
}

/* Memory for one call is in the bytes of the operation; a scope of the program that has the same
 * name at the top is its own. */
static void short_notes_of_an_operation_have_no_line(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    report.has_memory = true;
    report.wall_ns = 1000000000;
    kn__row *fc1 = add_row(&report, NULL, "fc1", 100, 900000000, 800000);
    kn__row *matmul = add_row(&report, fc1, "matmul", 100, 890000000, 800000);
    add_row(&report, matmul, "sgemm", 100, 880000000, 0);
    add_row(&report, matmul, "work space", 200, 20000, 700000);
    kn__row *slow = add_row(&report, NULL, "slow", 1, 90000000, 4096);
    add_row(&report, slow, "work space", 1, 80000000, 4096);
    add_row(&report, NULL, "record", 1, 20000, 0);
    add_row(&report, NULL, "work space", 1, 10000, 100000);
    kn__report_finish(&report);
    assert_golden(&report, &(kn__table_options){.min = 0.1, .width = 80}, "notes");
    kn__report_release(&report);
}

static char *table_of(const kn__report *report) {
    kn__text text = {0};
    kn__table_add(&text, report, &(kn__table_options){0});
    assert_false(text.failed);
    return text.data;
}

static void notes_of_the_run_have_a_line_unless_its_math_is_strict_alone(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    add_row(&report, NULL, "fc1", 100, 900000000, 800000);
    kn__report_finish(&report);
    char *without = table_of(&report);
    report.run.notes = "math=strict";
    char *strict = table_of(&report);
    assert_string_equal(strict, without);
    report.run.notes = "math=tf32, commit=abc\ndef9";
    char *with = table_of(&report);
    assert_non_null(strstr(with, "\n run: math=tf32, commit=abc?def9\n"));
    report.n_runs = 2;
    char *merged = table_of(&report);
    assert_non_null(strstr(merged, "\n first run: math=tf32, commit=abc?def9\n"));
    free(without);
    free(strict);
    free(with);
    free(merged);
    kn__report_release(&report);
}

/* Every row is in one line, as itself or in a sum, and own times add up to the whole. */
static void lines_show_each_row_once(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        kn__report report;
        kn__report_init(&report);
        kn__row *rows[30] = {0};
        for (int i = 0; i < 30; i++) {
            char label[8];
            snprintf(label, sizeof label, "%d", i);
            kn__row *parent =
                test_random_below(3) && i ? rows[test_random_below((uint64_t)i)] : NULL;
            rows[i] =
                add_row(&report, parent, kn__report_keep(&report, label), 1 + test_random_below(2),
                        test_random() >> (16 + test_random_below(40)), 0);
        }
        for (int i = 29; i >= 0; i--) {
            if (rows[i]->depth > 1) rows[i]->parent->time_ns += rows[i]->time_ns;
        }
        kn__report_finish(&report);
        kn__report_sort(&report, KN__SORT_TIME);
        kn__table_lines lines;
        kn__names names = {0};
        double min = test_random_below(2) ? 0.05 : 0;
        kn__lines_options options = {.min = min, .top = (int)test_random_below(4), .names = &names};
        kn__lines_make(&lines, &report, &options);
        uint64_t own = 0;
        for (size_t i = 0; i < lines.n; i++) own += lines.all[i].own_ns;
        bool cut = false; /* a small row alone is shown without the rows inside */
        for (size_t i = 0; i < lines.n; i++) {
            const kn__row *row = lines.all[i].row;
            bool ends = i + 1 == lines.n || lines.all[i + 1].depth <= lines.all[i].depth;
            cut = cut ||
                  (row->first && ends && (double)row->time_ns < min * (double)report.root.time_ns);
        }
        if (!cut) assert_int_equal(own, report.root.time_ns);
        assert_true(own <= report.root.time_ns);
        if (!options.top && min == 0) assert_int_equal(lines.n, 30);
        kn__lines_release(&lines);
        kn__report_release(&report);
    }
}

static void odd_rows_keep_the_columns(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    report.has_memory = true;
    add_row(&report, NULL, "never called", 0, 0, 0);
    add_row(&report, NULL, "größe μ", 1, UINT64_MAX, UINT64_MAX / 4);
    add_row(&report, NULL, "tab\tand \x1b[31m and \xff", UINT64_MAX, 1, 1);
    add_row(&report, NULL,
            "std::vector<std::map<std::string, std::pair<double, long>>>::_M_realloc_insert", 3,
            1234, 5678);
    kn__report_finish(&report);
    assert_golden(&report, &(kn__table_options){0}, "odd");
    kn__report_release(&report);
}

static void an_ascii_table_is_ascii(void **state) {
    (void)state;
    kn__report report;
    kn__text text = {0};
    make_network(&report);
    kn__text_puts(&text, "before: é\n");
    size_t before = text.length;
    kn__table_add(&text, &report, &(kn__table_options){.min = 0.1, .ascii = true});
    for (size_t i = before; i < text.length; i++) assert_true((unsigned char)text.data[i] < 0x80);
    assert_int_equal(strlen(text.data), text.length);
    assert_memory_equal(text.data, "before: é\n", before);
    assert_non_null(strstr(text.data, "\n     ???????? > conv ")); /* two columns each */
    kn__text_release(&text);
    kn__report_release(&report);
}

static void an_empty_report_is_one_line(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    kn__report_finish(&report);
    assert_golden(&report, &(kn__table_options){.bare = true}, "empty");
    kn__report_release(&report);
}

static void every_line_of_rows_is_as_wide_as_the_rule(void **state) {
    (void)state;
    for (int round = 0; round < 500; round++) {
        kn__report report;
        kn__report_init(&report);
        report.has_memory = test_random_below(2);
        kn__row *rows[12] = {0};
        char labels[12][40];
        for (int i = 0; i < 12; i++) {
            size_t n = (size_t)test_random_below(39);
            for (size_t j = 0; j < n; j++) labels[i][j] = (char)(1 + test_random_below(255));
            labels[i][n] = '\0';
            kn__row *parent = i ? rows[test_random_below((uint64_t)i)] : NULL;
            rows[i] = add_row(&report, parent, labels[i], test_random() >> test_random_below(64),
                              test_random() >> test_random_below(64),
                              test_random() >> test_random_below(64));
            rows[i]->peak = (int64_t)(test_random() >> (1 + test_random_below(63)));
            rows[i]->n_gpu = test_random_below(2);
            rows[i]->gpu_ns = test_random() >> test_random_below(64);
        }
        kn__report_finish(&report);
        kn__table_options options = {.width = (int)test_random_below(200),
                                     .min = (double)test_random_below(2) * 2,
                                     .top = (int)test_random_below(5),
                                     .ascii = true,
                                     .bare = true,
                                     .depth = (int)test_random_below(4)};
        kn__text text = {0};
        kn__table_add(&text, &report, &options);
        int rule = (int)strcspn(text.data, "\n"), n_rules = 0;
        for (char *line = text.data; *line; line += strcspn(line, "\n") + 1) {
            int width = (int)strcspn(line, "\n");
            n_rules += width == rule && (int)strspn(line + 1, "-") == rule - 1;
        }
        assert_int_equal(n_rules, 3);
        kn__text_release(&text);
        kn__report_release(&report);
    }
}

int main(int argc, char **argv) {
    golden_dir = argc > 1 ? argv[1] : ".";
    return RUN_TESTS(
        TEST(pure_layout_is_that_of_2018), TEST(all_columns_stand_beside_those_of_2018),
        TEST(spread_shows_shortest_longest_and_first_calls),
        TEST(narrow_tables_lose_averages_before_labels), TEST(odd_rows_keep_the_columns),
        TEST(small_rows_are_folded_and_sole_children_joined),
        TEST(narrow_tables_of_several_runs_lose_the_spread_of_the_runs),
        TEST(short_notes_of_an_operation_have_no_line),
        TEST(notes_of_the_run_have_a_line_unless_its_math_is_strict_alone),
        TEST(lines_show_each_row_once), TEST(an_ascii_table_is_ascii),
        TEST(an_empty_report_is_one_line), TEST(every_line_of_rows_is_as_wide_as_the_rule));
}
