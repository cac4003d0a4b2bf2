/* Profiles read back: all of their values, and every way a file can be bad. */
#include "read.h"

#include <inttypes.h>
#include <unistd.h>

#include "export.h"
#include "holders.h"
#include "json.h"
#include "report_maker.h"
#include "select.h"
#include "table.h"
#include "test.h"

static void add_values(kn__row *row, uint64_t seed) {
    row->freed_bytes = seed * 10;
    row->n_ended = row->n_calls;
    row->ended_ns = (double)row->time_ns;
    row->squares_ns2 =
        row->n_calls ? 1.25 * row->ended_ns * row->ended_ns / (double)row->n_calls : 0;
    row->min_ns = seed;
    row->max_ns = 9 * seed;
    row->first_ns = 8 * seed;
    row->first_start = 100 * seed;
    row->temporary_bytes = 3 * seed;
    row->n_temporary = seed;
    row->held = (int64_t)seed;
    row->held_at_peak = (int64_t)(2 * seed);
    row->peak = (int64_t)(500 * seed);
    row->rise = (int64_t)(400 * seed);
}

static void add_gpus(kn__report *report) {
    report->gpu = (kn__gpu_use){.n = 2,
                                .devices = {{.device = 1,
                                             .busy_ns = 70,
                                             .idle_ns = 30,
                                             .n_streams = 2,
                                             .streams = {{7, 3, 60}, {13, 2, 20}}},
                                            {.device = 5, .busy_ns = 1}}};
}

static void make_report(kn__report *report, bool with_extra) {
    kn__report_init(report);
    report->has_memory = true;
    report->wall_ns = 5000000;
    report->n_threads = 3;
    report->n_unrecorded = 7;
    kn__row *train = add_row(report, NULL, "train", 2, 4000000, 100);
    kn__row *conv = add_row(report, train, "conv \"3x3\"\n", 5, 2500000, 4096);
    kn__row *odd = add_row(report, train, "größe", 7, 1000000, 512);
    kn__row *kernel = add_row(report, conv, "_Z5sgemmPf", 0, 0, 0);
    kernel->is_kernel = true;
    kernel->gpu_ns = 700;
    kernel->n_gpu = 5;
    kernel->gpu_bytes = 12;
    conv->n_pending = 4;
    add_values(train, 1);
    add_values(conv, 2);
    add_values(odd, 3);
    assert_ok(kn__report_add_times(report, odd, (kn__time_bin[]){{3, 2}, {4.5, 4}, {20, 1}}, 3));
    odd->open = true;
    odd->peak_most = INT64_MAX;
    report->memory.live = 50;
    report->memory.live_max = 90000;
    report->memory.n_pools = 1;
    report->memory.pools[0] = (kn__pool_use){.name = "cuda:0",
                                             .live = 50,
                                             .live_max = 90000,
                                             .reserved = 1 << 20,
                                             .reserved_max = 1 << 21,
                                             .n_allocs = 17,
                                             .n_ooms = 1,
                                             .leaked = 12,
                                             .device_used = 5 << 20,
                                             .device_total = 9 << 20};
    report->live = (kn__series){
        3, 1500000, {{1000000, 60000, 50000}, {2000000, 90000, 70000}, {3000000, 70000, 50}}};
    report->outside.alloc_bytes = 33;
    report->outside.held_at_peak = 11;
    report->steps = (kn__steps){.n = 4, .n_timed = 3, .sum_ns = 900, .min_ns = 200, .max_ns = 400};
    report->balance =
        (kn__balance){"cupti", 9, 5, 1, 2, 1, 77, 3, .n_lost = 40, .notice = "as \"said\""};
    add_gpus(report);
    if (with_extra) {
        kn__row *extra = add_row(report, NULL, "~profiler~", 3, 999, 0);
        extra->is_extra = true;
    }
    kn__report_finish(report);
}

static void write_json(kn__text *out, const kn__report *report) {
    kn__json_add(out, report);
    assert_false(out->failed);
}

static void a_profile_read_back_is_written_the_same(void **state) {
    (void)state;
    kn__report report, again;
    make_report(&report, true);
    kn__text first = {0}, second = {0}, table = {0}, table_again = {0};
    write_json(&first, &report);
    assert_ok(kn__report_parse(&again, "memory", first.data, first.length));
    write_json(&second, &again);
    assert_string_equal(first.data, second.data);
    kn__table_options options = {.spread = true};
    kn__table_add(&table, &report, &options);
    kn__table_add(&table_again, &again, &options);
    assert_string_equal(table.data, table_again.data);
    assert_close(kn__row_sigma(find_row(&again, "train/größe")),
                 kn__row_sigma(find_row(&report, "train/größe")), 1e-6, 0.1);
    kn__text_release(&first);
    kn__text_release(&second);
    kn__text_release(&table);
    kn__text_release(&table_again);
    kn__report_release(&report);
    kn__report_release(&again);
}

static void assert_bad(const char *text, size_t n, const char *why) {
    kn__report report;
    assert_fails(kn__report_parse(&report, "x.json", text, n), KN_ERR_FORMAT, why);
    assert_int_equal(strncmp(kn_last_error()->message, "x.json ", 7), 0);
    kn__report_release(&report);
}

#define HEAD "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":1,"
#define NO_TIME "\"n_calls\":0,\"time_ns\":0"
#define ROW(values)                                                                                \
    HEAD "\"scopes\":[{\"label\":\"a\"," NO_TIME ",\"children\":[{\"label\":\"b\"," values "}]}]}"

static void bad_files_are_errors_with_the_reason(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "is empty"},
        {" \n\t", "is empty"},
        {"hello", "is no JSON"},
        {"{\"schema\":\"knet.prof\",\"ver", "cut off"},
        {"[]", "is a trace without spans"},
        {"3", "is no profile of the timer and no trace: \"schema\" is missing"},
        {"{\"traceEvents\":5}", "\"schema\" is missing"},
        {"{\"schema\":\"other\",\"version\":1}", "\"schema\" is \"other\", not \"knet.prof\""},
        {"{\"schema\":\"knet.prof\"}", "\"version\" is missing"},
        {"{\"schema\":\"knet.prof\",\"version\":2}",
         "is of version 2 of the profile's format; "
         "this program reads version 1"},
        {HEAD "\"x\":1}", "\"scopes\" is missing"},
        {HEAD "\"scopes\":5}", "\"scopes\" is no list"},
        {HEAD "\"scopes\":[5]}", "\"label\" is missing in a row"},
        {"{\"schema\":\"knet.prof\",\"version\":1,\"scopes\":[]}", "\"wall_ns\" is missing"},
        {ROW("\"time_ns\":1"), "\"n_calls\" of a/b is missing"},
        {ROW("\"n_calls\":1"), "\"time_ns\" of a/b is missing"},
        {HEAD "\"scopes\":[]} {}", "has more after the end"},
        {ROW("\"n_calls\":-1,\"time_ns\":0"), "\"n_calls\" of a/b is no whole number from 0"},
        {ROW("\"n_calls\":1,\"time_ns\":1e30"), "\"time_ns\" of a/b"},
        {ROW("\"n_calls\":1,\"time_ns\":\"5\""), "\"time_ns\" of a/b"},
        {ROW(NO_TIME ",\"peak_bytes\":1e19"), "\"peak_bytes\" of a/b is no whole number"},
        {ROW(NO_TIME ",\"sigma_ns\":-2"), "\"sigma_ns\" of a/b is no number from 0"},
        {ROW(NO_TIME ",\"children\":{}"), "\"children\" of a/b is no list"},
        {HEAD "\"memory\":{\"live\":[[1,2]]},\"scopes\":[]}", "\"live\" has an entry"},
        {HEAD "\"memory\":{\"live\":[[5,2,2],[4,2,2]]},\"scopes\":[]}", "in order of time"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_bad(cases[i].text, strlen(cases[i].text), cases[i].why);
    }
    assert_bad("{\"a\":\0}", 7, "is no JSON"); /* a zero byte is no end */
}

/* Packets are a line's end, a length and bytes, which may look like a number of JSON. */
static void a_perfetto_trace_is_named(void **state) {
    (void)state;
    static const char *const traces[] = {"\n\2P\1", "\n\00221\n\2P\1", "\n\2P\1\n\200",
                                         "\n\2P\1\n\5P"},
                             *const others[] = {"\n{\"a\":", "\n\5P", "\n1 2", "\n\2P\1,"};
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        assert_bad(traces[i], strlen(traces[i]), "is a trace for Perfetto");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        kn__report report;
        assert_true(kn__report_parse(&report, "x.json", others[i], strlen(others[i])) < 0);
        assert_null(strstr(kn_last_error()->message, "Perfetto"));
        kn__report_release(&report);
    }
    char large[300] = "\n\246\2"; /* 294 bytes, in two bytes of seven bits */
    memset(large + 3, 'x', 294);
    assert_bad(large, 297, "is a trace for Perfetto");
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    kn__report report;
    make_report(&report, false);
    kn__text text = {0};
    write_json(&text, &report);
    kn__report_release(&report);
    size_t whole = text.length - 1; /* without the last newline */
    for (size_t n = 0; n < whole; n++) {
        assert_true(kn__report_parse(&report, "cut", text.data, n) < 0);
        kn__report_release(&report);
    }
    kn__text_release(&text);
}

static void any_byte_changed_is_read_without_harm(void **state) {
    (void)state;
    kn__report report;
    make_report(&report, false);
    kn__text text = {0};
    write_json(&text, &report);
    kn__report_release(&report);
    for (int round = 0; round < 3000; round++) {
        size_t at = (size_t)test_random_below(text.length);
        char before = text.data[at];
        text.data[at] = (char)test_random_below(256);
        if (kn__report_parse(&report, "changed", text.data, text.length) >= 0) {
            kn__text table = {0};
            kn__report_sort(&report, KN__SORT_PEAK);
            kn__table_add(&table, &report, &(kn__table_options){.spread = true});
            kn__memory_add(&table, &report, &(kn__memory_view){0});
            assert_false(table.failed);
            kn__text_release(&table);
        }
        kn__report_release(&report);
        text.data[at] = before;
    }
    kn__text_release(&text);
}

static void nesting_has_a_bound(void **state) {
    (void)state;
    for (int depth = 100; depth <= 20000; depth = depth * 5) {
        kn__text text = {0};
        kn__text_puts(&text, HEAD "\"scopes\":[");
        for (int i = 0; i < depth; i++)
            kn__text_puts(&text, "{\"label\":\"a\"," NO_TIME ",\"children\":[");
        kn__text_repeat(&text, "]}", depth);
        kn__text_puts(&text, "]}");
        kn__report report;
        kn_status status = kn__report_parse(&report, "deep.json", text.data, text.length);
        assert_int_equal(status, depth <= KN__READ_DEPTH_MAX ? KN_OK : KN_ERR_FORMAT);
        if (status < 0) assert_non_null(strstr(kn_last_error()->message, "nested too deep"));
        kn__report_release(&report);
        kn__text_release(&text);
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TOPS = 100, INSIDE = 999 }; /* what sanitizers keep for each block is too much */
#else
enum { TOPS = 1000, INSIDE = 999 };
#endif

static void a_million_rows_are_read(void **state) {
    (void)state;
    kn__text text = {0};
    kn__text_puts(&text, HEAD "\"scopes\":[");
    for (int i = 0; i < TOPS; i++) {
        kn__text_printf(&text, "%s{\"label\":\"top %d\"," NO_TIME ",\"children\":[", i ? "," : "",
                        i);
        for (int j = 0; j < INSIDE; j++) {
            kn__text_printf(&text, "%s{\"label\":\"%d\",\"n_calls\":1,\"time_ns\":1}", j ? "," : "",
                            j);
        }
        kn__text_puts(&text, "]}");
    }
    kn__text_puts(&text, "]}");
    kn__report report;
    assert_ok(kn__report_parse(&report, "large", text.data, text.length));
    assert_int_equal(report.children.n_used, TOPS + TOPS * INSIDE);
    kn__report_sort(&report, KN__SORT_TIME);
    assert_ok(kn__report_top(&report, 3));
    int n = 0;
    for (const kn__row *row = report.root.first; row; row = row->next) n++;
    assert_int_equal(n, 4);
    kn__report_release(&report);
    kn__text_release(&text);
}

/* --- parts of a report --- */

static int count_rows(const kn__row *row) {
    int n = 0;
    for (; row; row = row->next) n += 1 + count_rows(row->first);
    return n;
}

static void a_filter_keeps_parents_and_children(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        int fit, rows;
    } cases[] = {{"conv", 1, 3},  {"train", 1, 4},   {"größe$", 1, 2},
                 {"^conv", 0, 0}, {"3x3\"", 1, 3},   {"sgemm|gr", 2, 4},
                 {"[", 0, 0},     {"nothing", 0, 0}, {"train/conv", 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__report report;
        make_report(&report, false);
        assert_int_equal(kn__report_filter(&report, cases[i].pattern), cases[i].fit);
        assert_int_equal(count_rows(report.root.first), cases[i].rows);
        assert_int_equal(report.root.time_ns, 4000000);
        kn__report_release(&report);
    }
}

/* "step" has 5 calls of 100 ns: 10 in "small", 60 in "big". */
static kn__row *make_step(kn__report *report) {
    kn__report_init(report);
    kn__row *step = add_row(report, NULL, "step", 5, 500, 0);
    add_row(report, step, "small", 5, 50, 16);
    add_row(report, step, "big", 5, 300, 64);
    step->n_ended = 5;
    step->ended_ns = 500;
    kn__report_finish(report);
    return step;
}

/* A path has the sums of the shown rows. */
static void rows_above_those_that_fit_have_their_sums(void **state) {
    (void)state;
    kn__report report, flat;
    kn__text table = {0}, folded = {0};
    kn__row *step = make_step(&report);
    assert_int_equal(kn__report_filter(&report, "small"), 1);
    assert_int_equal(step->n_calls, 0);
    assert_int_equal(step->time_ns, 50);
    assert_int_equal(step->alloc_bytes, 16);
    assert_int_equal(step->max_ns, 0);
    kn__table_add(&table, &report, &(kn__table_options){.min = 0.001});
    assert_non_null(strstr(table.data, "\n step           -   50.0ns"));
    assert_non_null(strstr(table.data, "\n   small        5   50.0ns"));
    kn__folded_add(&folded, &report, KN__WEIGHT_TIME);
    assert_string_equal(folded.data, "step;small 50\n");
    assert_ok(kn__report_flatten(&flat, &report));
    assert_int_equal(count_rows(flat.root.first), 1);
    assert_int_equal(find_row(&flat, "small")->time_ns, 50);
    kn__report_release(&flat);
    kn__report_release(&report);
    kn__text_release(&table);
    kn__text_release(&folded);
}

static void rows_that_fit_stay_as_they_are(void **state) {
    (void)state;
    kn__report report;
    kn__row *step = make_step(&report);
    assert_int_equal(kn__report_filter(&report, "step"), 1);
    assert_int_equal(step->n_calls, 5);
    assert_int_equal(step->time_ns, 500);
    kn__report_release(&report);
}

static void the_rows_that_top_leaves_out_are_summed_up(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    for (int i = 0; i < 10; i++) {
        char label[16];
        snprintf(label, sizeof label, "row %d", i);
        const char *kept = kn__report_keep(&report, label);
        add_row(&report, NULL, kept, 2, (uint64_t)(100 - i), 10);
    }
    kn__report_finish(&report);
    kn__report_sort(&report, KN__SORT_TIME);
    assert_ok(kn__report_top(&report, 4));
    const kn__row *rest = find_row(&report, "(6 more)");
    assert_non_null(rest);
    assert_int_equal(rest->n_calls, 12);
    assert_int_equal(rest->time_ns, 96 + 95 + 94 + 93 + 92 + 91);
    assert_int_equal(rest->alloc_bytes, 60);
    assert_int_equal(count_rows(report.root.first), 5);
    assert_string_equal(report.root.first->label, "row 0");
    assert_ok(kn__report_top(&report, 4)); /* one row more: a sum of it would take as much room */
    assert_int_equal(count_rows(report.root.first), 5);
    assert_non_null(find_row(&report, "(6 more)"));
    kn__report_release(&report);
}

/* 10 rows with 2 below each; at the peak the last ones held most. */
static void make_owners(kn__report *report) {
    kn__report_init(report);
    report->has_memory = true;
    report->memory.live_max = 900;
    for (int i = 0; i < 10; i++) {
        char label[16];
        snprintf(label, sizeof label, "row %d", i);
        kn__row *row =
            add_row(report, NULL, kn__report_keep(report, label), 2, 100 - (uint64_t)i, 10);
        for (int k = 0; k < 2; k++) {
            kn__row *below = add_row(report, row, k ? "b" : "a", 1, 9, 10);
            below->held_at_peak = 10 * i + k;
            below->held = k;
        }
    }
    kn__report_finish(report);
    kn__report_sort(report, KN__SORT_TIME);
}

static void leaving_out_rows_keeps_the_owners_of_the_peak(void **state) {
    (void)state;
    static const char owners[] =
        " at the high-water mark of 900 bytes:\n"
        "    91.0B  row 9/b\n    90.0B  row 9/a\n    81.0B  row 8/b\n    80.0B  row 8/a\n"
        "    71.0B  row 7/b\n";
    kn__report report, flat;
    kn__text text = {0};
    kn__table_options options = {0};
    make_owners(&report);
    assert_int_equal(kn__report_filter(&report, "row [0-4]"), 5);
    kn__table_add(&text, &report, &options);
    assert_non_null(strstr(text.data, owners));
    kn__text_release(&text);
    kn__report_release(&report);
    make_owners(&report);
    assert_ok(kn__report_flatten(&flat, &report));
    assert_ok(kn__report_top(&report, 4));
    kn__table_add(&text, &report, &options);
    kn__table_add(&text, &flat, &options);
    const char *first = strstr(text.data, owners);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, owners));
    int64_t sum = 0;
    for (int i = 4; i < 10; i++) sum += 20 * i + 1;
    assert_int_equal(find_row(&report, "(6 more)")->held_at_peak, sum);
    assert_int_equal(find_row(&report, "(6 more)")->held, 6);
    assert_int_equal(find_row(&flat, "b")->held, 10);
    kn__text_release(&text);
    kn__report_release(&flat);
    kn__report_release(&report);
}

/* Own values add up to the total, whatever the tree. */
static void flat_rows_add_up_to_the_whole(void **state) {
    (void)state;
    static const char *const labels[] = {"a", "b", "c", "d", "e"};
    for (int round = 0; round < 300; round++) {
        kn__report report, flat;
        kn__report_init(&report);
        report.has_memory = true;
        kn__row *rows[40] = {NULL};
        uint64_t left[40] = {0}, time = 0, bytes = 0;
        uint64_t gpu_ns = 0;
        int64_t held = 0;
        for (int i = 0; i < 40; i++) {
            int at = i ? (int)test_random_below((uint64_t)i + 1) - 1 : -1;
            uint64_t most = at < 0 ? 1000000 : left[at], ns = test_random_below(most + 1);
            rows[i] =
                add_row(&report, at < 0 ? NULL : rows[at], labels[test_random_below(5)], 1, ns, 7);
            for (int j = 0; j < i; j++) left[i] = rows[j] == rows[i] ? left[j] : left[i];
            left[i] += ns;
            if (at >= 0) left[at] -= ns;
            for (int j = 0; j < i; j++) {
                if (rows[j] == rows[i]) left[j] = left[i];
                if (at >= 0 && rows[j] == rows[at]) left[j] = left[at];
            }
            bytes += 7;
            rows[i]->held += i;
            rows[i]->gpu_ns += 3;
        }
        kn__report_finish(&report);
        assert_ok(kn__report_flatten(&flat, &report));
        assert_true(count_rows(flat.root.first) <= 5);
        for (const kn__row *row = flat.root.first; row; row = row->next) {
            time += row->time_ns;
            held += row->held;
            gpu_ns += row->gpu_ns;
        }
        assert_int_equal(gpu_ns, 3 * 40);
        assert_int_equal(time, report.root.time_ns);
        assert_int_equal(held, 39 * 40 / 2);
        assert_int_equal(flat.root.alloc_bytes, bytes);
        kn__report_release(&flat);
        kn__report_release(&report);
    }
}

static void the_view_of_memory_names_mark_owners_and_time(void **state) {
    (void)state;
    kn__report report;
    make_report(&report, false);
    kn__text text = {0};
    kn__memory_add(&text, &report, &(kn__memory_view){.width = 40, .height = 4, .ascii = true});
    assert_string_equal(text.data,
                        " high-water mark 87.9 KiB, 1.50ms after\n"
                        " the start (of 5.00ms)\n"
                        " cuda:0: at most 87.9 KiB live, 2.00 MiB\n"
                        " reserved; at the end 50 bytes live,\n"
                        " 1.00 MiB reserved; 17 allocations; out\n"
                        " of memory 1 times\n"
                        "\n owned then by\n"
                        "    11.0B  0.01%  (outside any scope)\n"
                        "    6.00B  0.01%  train/größe\n"
                        "    4.00B  0.00%  train/conv \"3x3\"?\n"
                        "    2.00B  0.00%  train\n"
                        "  87.9KiB   100%  by others, or from\n"
                        "                  before the timer\n"
                        "\n live bytes over time (^ the high-water\n"
                        " mark)\n\n"
                        "   87.9KiB |        #  :\n"
                        "   43.9KiB |     :  #  ::::::\n"
                        "           |     :::#::::::::\n"
                        "           |     :::#:::::::::::::::::::\n"
                        "        0B +--------^-------------------\n"
                        "            0                     5.00ms\n");
    kn__text_release(&text);
    report.has_memory = false;
    report.memory.live_max = 0;
    kn__memory_add(&text, &report, &(kn__memory_view){0});
    assert_non_null(strstr(text.data, "no memory in it"));
    kn__text_release(&text);
    kn__report_release(&report);
}

/* As of a program whose labels differ in bytes that the file can't have. */
static void rows_of_one_label_are_added_up(void **state) {
    (void)state;
    static const char text[] =
        "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":90,\"scopes\":["
        "{\"label\":\"job\",\"n_calls\":7,\"time_ns\":70,\"min_ns\":4,\"max_ns\":20,\"n_ended\":7,"
        "\"ended_ns\":70,\"times\":[[10,7]],\"children\":[{\"label\":\"in\",\"n_calls\":1,\"time_"
        "ns\":1}]},"
        "{\"label\":\"job\",\"n_calls\":3,\"time_ns\":10,\"min_ns\":2,\"max_ns\":5,\"n_ended\":3,"
        "\"ended_ns\":10,\"times\":[[3,3]],\"open\":true,\"children\":[{\"label\":\"in\","
        "\"n_calls\":2,\"time_ns\":2}]}]}";
    kn__report report;
    assert_ok(kn__report_parse(&report, "memory", text, sizeof text - 1));
    const kn__row *row = find_row(&report, "job");
    assert_null(row->next);
    assert_int_equal(row->n_calls, 10);
    assert_int_equal(row->time_ns, 80);
    assert_int_equal(row->min_ns, 2);
    assert_int_equal(row->max_ns, 20);
    assert_int_equal(row->n_ended, 10);
    assert_int_equal(row->times->n, 2);
    assert_true(row->open);
    assert_int_equal(find_row(&report, "job/in")->n_calls, 3);
    assert_int_equal(report.root.time_ns, 80);
    kn__report_release(&report);
}

int main(void) {
    return RUN_TESTS(
        TEST(a_profile_read_back_is_written_the_same), TEST(bad_files_are_errors_with_the_reason),
        TEST(a_perfetto_trace_is_named), TEST(a_file_cut_anywhere_is_refused),
        TEST(any_byte_changed_is_read_without_harm), TEST(nesting_has_a_bound),
        TEST(rows_of_one_label_are_added_up), TEST(a_million_rows_are_read),
        TEST(a_filter_keeps_parents_and_children), TEST(rows_above_those_that_fit_have_their_sums),
        TEST(rows_that_fit_stay_as_they_are), TEST(the_rows_that_top_leaves_out_are_summed_up),
        TEST(leaving_out_rows_keeps_the_owners_of_the_peak), TEST(flat_rows_add_up_to_the_whole),
        TEST(the_view_of_memory_names_mark_owners_and_time));
}
