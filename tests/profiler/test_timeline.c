/* Traces of other tools as rows, and written again. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holders.h"
#include "read.h"
#include "table.h"
#include "test.h"
#include "timeline.h"

static kn__report report;

static kn_status parse(const char *text) {
    return kn__report_parse(&report, "t.json", text, strlen(text));
}

static void read_trace(const char *text) {
    if (parse(text) < 0) fail_msg("%s", kn_last_error()->message);
}

static int teardown(void **state) {
    (void)state;
    kn__report_release(&report);
    kn__report_init(&report);
    return 0;
}

/* The row of labels that a slash separates. */
static const kn__row *row_at(const char *path) {
    const kn__row *row = &report.root;
    char copy[256], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *label = strtok_r(copy, "/", &rest); label; label = strtok_r(NULL, "/", &rest)) {
        row = kn__report_find(&report, row, label);
        if (!row) fail_msg("no row %s of %s", label, path);
    }
    return row;
}

static bool has_row(const char *label) {
    return kn__report_find(&report, &report.root, label) != NULL;
}

#define SPAN(name, tid, ts, dur)                                                                   \
    "{\"ph\":\"X\",\"name\":\"" name "\",\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts ",\"dur\":" #dur  \
    "}"

static void spans_in_each_other_are_a_path(void **state) {
    (void)state;
    read_trace(
        "{\"traceEvents\":[" SPAN("inner", 1, 110, 20) "," SPAN("outer", 1, 100.5, 50) "," SPAN(
            "inner", 1, 135, 10) "," SPAN("inner", 1, 160, 5) "," SPAN("outer", 2, 100, 10) "]}");
    assert_int_equal(row_at("outer")->n_calls, 2);
    assert_int_equal(row_at("outer")->time_ns, 60000);
    assert_int_equal(row_at("outer")->first_start, 0);
    assert_int_equal(row_at("outer")->first_ns, 10000);
    assert_int_equal(row_at("outer/inner")->n_calls, 2);
    assert_int_equal(row_at("outer/inner")->min_ns, 10000);
    assert_int_equal(row_at("outer/inner")->max_ns, 20000);
    assert_int_equal(row_at("outer/inner")->first_start, 10000);
    assert_int_equal(row_at("inner")->n_calls, 1); /* begins after the end of the other */
    assert_int_equal(report.wall_ns, 65000);
    assert_int_equal(report.n_threads, 2);
    assert_int_equal(report.root.time_ns, 65000);
    assert_close(kn__row_percentile(row_at("outer/inner"), 0.5), 10000, 0.05, 0);
    assert_close(kn__row_percentile(row_at("outer/inner"), 0.99), 20000, 0.07, 0);
}

static void a_row_stands_in_the_line_of_its_first_span(void **state) {
    (void)state;
#define SPAN_AT(ts, args)                                                                          \
    "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"dur\":5,\"ts\":" #ts ",\"args\":{" args "}}"
    read_trace("[" SPAN_AT(1, "") "," SPAN_AT(10, "\"file\":\"net.c:12\"") "," SPAN_AT(
        20, "\"file\":\"other.c:3\"") "," SPAN("b", 1, 30, 4) "]");
    assert_int_equal(row_at("a")->n_calls, 3);
    assert_string_equal(row_at("a")->where, "net.c:12");
    assert_null(row_at("b")->where);
}

static void equal_times_nest_and_moments_stay_inside(void **state) {
    (void)state;
    read_trace("[" SPAN("all", 1, 5, 10) "," SPAN("moment", 1, 15, 0) "," SPAN(
        "moment", 1, 15, 0) "," SPAN("next", 1, 16, 4) "]");
    assert_int_equal(row_at("all/moment")->n_calls, 2);
    assert_int_equal(row_at("next")->n_calls, 1);
}

static void the_longer_of_two_that_start_together_is_outside(void **state) {
    (void)state;
    read_trace(
        "[" SPAN("inner", 1, 5, 3) "," SPAN("all", 1, 5, 10) "," SPAN("late", 1, 12, 3.5) "]");
    assert_int_equal(row_at("all/inner")->n_calls, 1);
    assert_int_equal(row_at("all/late")->n_calls, 1); /* half a microsecond too long */
}

/* Ranges that were started overlap; each lies in what has all of it. */
static void overlapping_spans_share_a_parent(void **state) {
    (void)state;
    read_trace("[" SPAN("all", 1, 0, 100) "," SPAN("a", 1, 10, 40) "," SPAN(
        "b", 1, 30, 40) "," SPAN("c", 1, 60, 5) "]");
    assert_int_equal(row_at("all/a")->time_ns, 40000);
    assert_int_equal(row_at("all/b")->time_ns, 40000);
    assert_int_equal(row_at("all/b/c")->time_ns, 5000);
}

static void ends_close_the_last_begin_of_their_thread(void **state) {
    (void)state;
#define PHASE(ph, tid, ts)                                                                         \
    "{\"ph\":\"" ph "\",\"name\":\"n" #ts "\",\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts "}"
    static const char first[] = PHASE("B", 1, 1) "," PHASE("B", 2, 2) "," PHASE("B", 1, 3);
    static const char ends[] = PHASE("E", 1, 5) "," PHASE("E", 2, 9) "," PHASE("E", 1, 11);
    static const char odd[] = PHASE("E", 1, 12) "," PHASE("B", 1, 21) "," PHASE("B", 2, 22);
    static const char last[] = PHASE("E", 1, 24) "," PHASE("E", 2, 29);
    char text[2048];
    snprintf(text, sizeof text, "[%s,%s,%s,%s]", first, ends, odd, last);
    read_trace(text);
    assert_int_equal(row_at("n1")->time_ns, 10000);
    assert_int_equal(row_at("n1/n3")->time_ns, 2000);
    assert_int_equal(row_at("n2")->time_ns, 7000);
    assert_int_equal(row_at("n21")->time_ns, 3000);
    assert_int_equal(row_at("n22")->time_ns, 7000);
}

/* As PyTorch's profiler writes it on a machine with a GPU. */
static const char kineto[] =
    "{\"schemaVersion\":1,\"baseTimeNanoseconds\":1000000000,\"traceEvents\":["
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#1\",\"pid\":9,\"tid\":9,"
    "\"ts\":100,\"dur\":100},"
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#2\",\"pid\":9,\"tid\":9,"
    "\"ts\":200,\"dur\":300},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":9,\"tid\":9,\"ts\":110,"
    "\"dur\":50},"
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":9,\"tid\":9,"
    "\"ts\":120,\"dur\":10,\"args\":{\"correlation\":77}},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"sgemm\",\"pid\":0,\"tid\":7,\"ts\":150,\"dur\":30,"
    "\"args\":{\"device\":0,\"stream\":7,\"correlation\":77,\"grid\":[2,3,4],\"block\":[5,6,7],"
    "\"registers per thread\":32,\"shared memory\":512}},"
    "{\"ph\":\"X\",\"cat\":\"gpu_memcpy\",\"name\":\"Memcpy HtoD\",\"pid\":0,\"tid\":8,\"ts\":170,"
    "\"dur\":30,\"args\":{\"device\":0,\"stream\":8,\"correlation\":99,\"bytes\":4096}},"
    "{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"mirror\",\"pid\":0,\"tid\":7,"
    "\"ts\":150,\"dur\":30},"
    "{\"ph\":\"X\",\"cat\":\"Trace\",\"name\":\"PyTorch Profiler (0)\",\"pid\":\"Spans\","
    "\"tid\":\"PyTorch Profiler\",\"ts\":0,\"dur\":900},"
    "{\"ph\":\"f\",\"id\":77,\"pid\":0,\"tid\":7,\"ts\":150,\"cat\":\"ac2g\",\"name\":\"ac2g\"},"
    "{\"ph\":\"i\",\"name\":\"Iteration Start: PyTorch Profiler\",\"pid\":9,\"tid\":9,\"ts\":1}]}";

static void gpu_work_of_pytorch_is_below_its_launch(void **state) {
    (void)state;
    read_trace(kineto);
    const kn__row *kernel = row_at("ProfilerStep/aten::mm/cudaLaunchKernel/sgemm");
    assert_true(kernel->is_kernel);
    assert_int_equal(kernel->gpu_ns, 30000);
    assert_int_equal(kernel->n_gpu, 1);
    assert_int_equal(row_at("ProfilerStep")->gpu_ns, 30000);
    assert_true(row_at("~unattributed~")->is_extra);
    assert_int_equal(row_at("~unattributed~/Memcpy HtoD")->gpu_bytes, 4096);
    assert_int_equal(report.balance.launched, 2);
    assert_int_equal(report.balance.timed, 2);
    assert_int_equal(report.balance.n_unattributed, 1);
    assert_int_equal(report.balance.unattributed_ns, 30000);
    assert_string_equal(report.balance.source, "kineto");
    assert_true(report.has_gpu);
    assert_false(has_row("mirror"));
    assert_false(has_row("PyTorch Profiler (0)"));
    assert_int_equal(report.gpu.n, 1);
    assert_int_equal(report.gpu.devices[0].n_streams, 2);
    assert_int_equal(report.gpu.devices[0].busy_ns, 50000); /* they overlap by 10 us */
    assert_int_equal(report.gpu.devices[0].idle_ns, 0);
}

#define WORK(ts, dur, id)                                                                          \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":" #ts              \
    ",\"dur\":" #dur ",\"args\":{\"correlation\":" #id "}}"
#define ARROW(ph, tid, ts, id)                                                                     \
    "{\"ph\":\"" ph "\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":" #id ",\"pid\":1,\"tid\":" #tid \
    ",\"ts\":" #ts "}"

/* In our traces arrows say it, which end right after the record. */
static void arrows_of_our_traces_join_launch_and_work(void **state) {
    (void)state;
    read_trace("{\"knetEventsSkipped\":0,\"traceEvents\":[" SPAN("op", 1, 0, 10) "," ARROW(
        "s", 1, 5,
        6) "," ARROW("s", 1, 6,
                     7) "," WORK(20, 10, 9) "," ARROW("f", 7, 20,
                                                      6) "," WORK(50, 10,
                                                                  6) "," SPAN("op", 1, 60,
                                                                              1) "," ARROW("f", 7,
                                                                                           50,
                                                                                           7) "]}");
    assert_int_equal(row_at("op/k")->n_gpu, 1);
    assert_int_equal(row_at("~unattributed~/k")->n_gpu, 1);
    assert_int_equal(report.gpu.devices[0].busy_ns, 20000);
    assert_int_equal(report.gpu.devices[0].idle_ns, 20000);
}

static void live_bytes_are_kept_with_their_mark(void **state) {
    (void)state;
#define LEVEL(ts, bytes)                                                                           \
    ",{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":1,\"ts\":" #ts ",\"args\":{\"bytes\":" #bytes  \
    "}}"
    read_trace("[" SPAN("op", 1, 0, 10) LEVEL(1, 100) LEVEL(2, 700) LEVEL(3, 50) "]");
    assert_int_equal(report.memory.live_max, 700);
    assert_int_equal(report.memory.live, 50);
    assert_int_equal(report.live.max_at, 2000);
    assert_int_equal(report.live.n, 3);
    kn__text view = {0};
    kn__memory_add(&view, &report, &(kn__memory_view){.width = 50, .height = 2, .ascii = true});
    assert_string_equal(view.data,
                        " high-water mark 700 bytes, 2.00us after the start\n (of 10.0us)\n"
                        " its owners are not in the trace; a profile of\n"
                        " KNET_TIMER=json=FILE has them\n"
                        "\n live bytes over time (^ the high-water mark)\n\n"
                        "      700B |       #:::\n"
                        "           |   ::::#::::::::::::::::::::::::::::::\n"
                        "        0B +-------^------------------------------\n"
                        "            0                               10.0us\n");
    kn__text_release(&view);
}

static void steps_of_pytorch_are_counted(void **state) {
    (void)state;
    read_trace(kineto);
    assert_int_equal(row_at("ProfilerStep")->n_calls, 2);
    assert_int_equal(report.steps.n, 2);
    assert_int_equal(report.steps.n_timed, 2);
    assert_int_equal(report.steps.sum_ns, 400000);
    assert_int_equal(report.steps.min_ns, 100000);
    assert_int_equal(report.steps.max_ns, 300000);
    teardown(state);
    read_trace("[" SPAN("ProfilerStep#1", 1, 0, 30) "," SPAN("ProfilerStep#2", 1, 40, 20) "," SPAN(
        "ProfilerStep#3", 1, 70, 25) "," SPAN("ProfilerStep4", 1, 100, 1) "]");
    assert_int_equal(report.steps.n, 3);
    assert_int_equal(report.steps.min_ns, 20000);
    assert_int_equal(report.steps.max_ns, 30000);
}

/* --- written again --- */

static kn__text written;

static const cJSON *event_of(const cJSON *json, const char *phase, const char *name) {
    const cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) {
        const cJSON *ph = cJSON_GetObjectItem(event, "ph"), *n = cJSON_GetObjectItem(event, "name");
        if (strcmp(ph->valuestring, phase) == 0 && strcmp(n->valuestring, name) == 0) return event;
    }
    fail_msg("no event %s %s", phase, name);
    return NULL;
}

static double value(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(event, key);
    if (!item) item = cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), key);
    if (!item) fail_msg("no %s", key);
    return item ? item->valuedouble : 0;
}

static void a_trace_written_again_has_the_same_events(void **state) {
    (void)state;
    read_trace(kineto);
    assert_int_equal(kn__timeline_add(&written, report.timeline, &kn__trace_json), KN_OK);
    cJSON *json = cJSON_Parse(written.data);
    assert_non_null(json);
    const cJSON *kernel = event_of(json, "X", "sgemm"), *op = event_of(json, "X", "aten::mm");
    assert_close(value(kernel, "ts") - value(op, "ts"), 40, 0, 1e-6);
    assert_close(value(kernel, "dur"), 30, 0, 1e-6);
    assert_close(value(op, "dur"), 50, 0, 1e-6);
    assert_int_equal(value(op, "pid"), 9);
    assert_int_equal(value(op, "tid"), 9);
    assert_int_equal(value(kernel, "tid"), 7);
    assert_int_equal(value(kernel, "shared memory"), 512);
    assert_int_equal(value(event_of(json, "s", "ac2g"), "id"), 77);
    assert_int_equal(value(event_of(json, "f", "ac2g"), "id"), 77);
    assert_int_equal(value(event_of(json, "X", "Memcpy HtoD"), "bytes"), 4096);
    cJSON_Delete(json);

    /* And its rows are those of the first one. */
    teardown(NULL);
    read_trace(written.data);
    kn__text_release(&written);
    assert_int_equal(row_at("ProfilerStep/aten::mm/cudaLaunchKernel/sgemm")->gpu_ns, 30000);
    assert_int_equal(row_at("~unattributed~/Memcpy HtoD")->gpu_ns, 30000);
    assert_string_equal(report.balance.source, "trace");
}

/* Of spans that end together the inner one comes first; times that are small are moved. */
static void events_are_written_in_the_order_of_their_ends(void **state) {
    (void)state;
    read_trace("[" SPAN("outer", 1, 0, 10) "," SPAN("inner", 1, 4, 6) "]");
    assert_int_equal(kn__timeline_add(&written, report.timeline, &kn__trace_json), KN_OK);
    const char *inner = strstr(written.data, "inner"), *outer = strstr(written.data, "outer");
    assert_true(inner && outer && inner < outer);
    assert_non_null(strstr(written.data, "\"baseTimeNanoseconds\":1000000000,"));
    kn__text_release(&written);
}

/* --- malformed traces --- */

static void assert_refused(const char *text, const char *why) {
    kn_status status = parse(text);
    if (status != KN_ERR_FORMAT) fail_msg("status %d for %s", status, text);
    if (!strstr(kn_last_error()->message, why))
        fail_msg("'%s' is not in: %s", why, kn_last_error()->message);
    teardown(NULL);
}

static void damage_is_named_with_its_event(void **state) {
    (void)state;
    assert_refused("[]", "t.json is a trace without spans");
    assert_refused("[" SPAN("a", 1, -1, 5) "]", "\"ts\" of event 1 is no time in microseconds");
    assert_refused("[" SPAN("a", 1, 1, 5) "," SPAN("a", 1, 1, 1e16) "]", "\"dur\" of event 2");
    assert_refused("[" SPAN("a", 1, 1, 5) ",{\"ph\":\"X\",\"name\":\"b\"}]",
                   "\"ts\" of event 2 is missing");
    assert_refused("{\"schema\":\"other\"}", "is no profile of the timer and no trace");
}

static void deep_and_odd_traces_are_read(void **state) {
    (void)state;
    kn__text text = {0};
    kn__text_puts(&text, "[1,null,{},{\"ph\":5},{\"ph\":\"E\",\"ts\":1}");
    for (int i = 0; i < 300; i++)
        kn__text_printf(&text, ",{\"ph\":\"X\",\"name\":\"d\",\"ts\":%d,\"dur\":%d}", i,
                        2 * (300 - i));
    kn__text_puts(&text, "]");
    read_trace(text.data);
    assert_int_equal(report.n_unrecorded, 100);
    kn__text_release(&text);
}

#define BLOCK(tid, ts, addr, bytes, more)                                                          \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts                   \
    ",\"args\":{\"Addr\":" #addr ",\"Bytes\":" #bytes ",\"Device Type\":0" more "}}"

/* "conv" allocates 100 and 50 and frees the 50; "relu" allocates 30 and frees the 100. */
static void blocks_of_pytorch_are_columns_of_memory(void **state) {
    (void)state;
    read_trace("[" SPAN("net", 1, 10, 90) "," SPAN("conv", 1, 20, 20) "," SPAN(
        "relu", 1, 50,
        20) "," BLOCK(1, 25, 1000, 100,
                      "") "," BLOCK(1, 38, 2000, -50,
                                    "") "," BLOCK(1, 30, 2000, 50,
                                                  "") "," BLOCK(1, 55, 3000, 30,
                                                                "") "," BLOCK(1, 60, 1000, -100,
                                                                              "") "," SPAN("late",
                                                                                           1, 120,
                                                                                           5) "]");
    assert_true(report.has_memory);
    const kn__row *conv = row_at("net/conv"), *relu = row_at("net/relu"), *net = row_at("net");
    assert_int_equal(conv->alloc_bytes, 150);
    assert_int_equal(conv->n_allocs, 2);
    assert_int_equal(conv->freed_bytes, 50);
    assert_int_equal(conv->peak, 150);
    assert_int_equal(conv->rise, 150);
    assert_int_equal(conv->held, 0);
    assert_int_equal(conv->held_at_peak, 150);
    assert_int_equal(relu->alloc_bytes, 30);
    assert_int_equal(relu->freed_bytes, 100);
    assert_int_equal(relu->peak, 130);
    assert_int_equal(relu->rise, 30);
    assert_int_equal(relu->held, 30);
    assert_int_equal(relu->held_at_peak, 0);
    assert_int_equal(net->alloc_bytes, 180);
    assert_int_equal(net->peak, 150);
    assert_int_equal(row_at("late")->peak, 30);
    assert_int_equal(row_at("late")->rise, 0);
    assert_int_equal(report.memory.live_max, 150);
    assert_int_equal(report.memory.live, 30);
    assert_int_equal(report.live.max_at, 20000);
}

/* A moment at the end of a span is in it. */
static void a_block_at_the_end_of_a_span_is_its_own(void **state) {
    (void)state;
    read_trace("[" SPAN("all", 1, 0, 100) "," SPAN("in", 1, 10, 5) "," BLOCK(
        1, 15, 1, 64, "") "," BLOCK(1, 100, 2, 32, "") "]");
    assert_int_equal(row_at("all/in")->alloc_bytes, 64);
    assert_int_equal(row_at("all")->alloc_bytes, 96);
    assert_int_equal(row_at("all/in")->peak, 64);
    assert_int_equal(row_at("all")->peak, 96);
}

#define GPU_WORK(stream, ts, dur)                                                                  \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":" #stream ",\"ts\":" #ts    \
    ",\"dur\":" #dur ",\"args\":{\"device\":0,\"stream\":" #stream "}}"

static void a_gpu_is_busy_while_any_stream_is(void **state) {
    (void)state;
    read_trace("[" SPAN("all", 1, 0, 100) "," GPU_WORK(1, 10, 40) "," GPU_WORK(
        2, 20, 10) "," GPU_WORK(2, 45, 10) "," GPU_WORK(1, 60, 5) "]");
    assert_int_equal(report.gpu.n, 1);
    assert_int_equal(report.gpu.devices[0].busy_ns, 50000);
    assert_int_equal(report.gpu.devices[0].idle_ns, 5000);
    assert_int_equal(report.gpu.devices[0].streams[0].busy_ns, 45000);
    assert_int_equal(report.gpu.devices[0].streams[1].busy_ns, 20000);
}

static void times_are_from_the_base_of_the_file(void **state) {
    (void)state;
    read_trace("{\"baseTimeNanoseconds\":7000000000,\"traceEvents\":[" SPAN("a", 1, 3, 2) "]}");
    assert_int_equal(report.timeline->from_ns, 7000003000);
    assert_int_equal(report.timeline->until_ns, 7000005000);
}

/* Totals are those of a device: the host's, and the first GPU's, which held 500 before. */
static void blocks_of_devices_are_added(void **state) {
    (void)state;
#define TOTAL(n) ",\"Total Allocated\":" #n
#define GPU(n) ",\"Device Type\":1,\"Device Id\":0" TOTAL(n)
    read_trace("[" SPAN("a", 1, 10, 20) "," SPAN("b", 2, 40, 20) "," SPAN("empty", 1, 32, 4) ","
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":12,\"args\":"
        "{\"Addr\":7,\"Bytes\":100" GPU(600) "}}," BLOCK(1, 15, 7, 8, TOTAL(8)) ","
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":2,\"ts\":45,\"args\":"
        "{\"Addr\":7,\"Bytes\":-100" GPU(500) "}},"
        "{\"ph\":\"i\",\"name\":\"other\",\"pid\":1,\"tid\":2,\"ts\":50},"
        BLOCK(2, 58, 9, 0, "") "," BLOCK(3, 70, 11, 1, "") "]");
    assert_int_equal(row_at("a")->alloc_bytes, 108);
    assert_int_equal(row_at("a")->peak, 608);
    assert_int_equal(row_at("a")->rise, 108);
    assert_int_equal(row_at("a")->held, 8);
    assert_int_equal(row_at("empty")->peak, 608);
    assert_int_equal(row_at("b")->freed_bytes, 100);
    assert_int_equal(row_at("b")->peak, 608);
    assert_int_equal(row_at("b")->rise, 0);
    assert_int_equal(report.outside.alloc_bytes, 1); /* of a thread without spans */
    assert_int_equal(report.outside.n_allocs, 1);
    assert_int_equal(report.memory.live, 509);
}

/* Launches and blocks of a thread are each in the span that was open, whichever comes first. */
static void a_launch_does_not_move_a_block(void **state) {
    (void)state;
    read_trace("[" SPAN("all", 1, 0, 100) "," SPAN("in", 1, 10, 5) "," BLOCK(
        1, 12, 1, 64,
        "") ","
            "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"launch\",\"pid\":1,\"tid\":1,\"ts\":"
            "50,"
            "\"dur\":2,\"args\":{\"correlation\":5}}," BLOCK(1, 20, 1, 32, "") "]");
    assert_int_equal(row_at("all/in")->alloc_bytes, 64);
    assert_int_equal(row_at("all/in")->held, 0); /* the block that took its place says so */
    assert_int_equal(row_at("all")->alloc_bytes, 96);
    assert_int_equal(row_at("all")->held, 32);
}

static void any_number_of_bytes_is_read(void **state) {
    (void)state;
    kn__text text = {0};
    kn__text_puts(&text, "[" SPAN("all", 1, 0, 2000));
    for (int i = 0; i < 1500; i++) {
        kn__text_printf(
            &text,
            ",{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":%d,\"args\":"
            "{\"Addr\":%d,\"Bytes\":%s,\"Device Id\":%d,\"Total Allocated\":%s}}",
            i, i % 700, i % 3 ? "4e15" : "-4e15", i % 50, i % 2 ? "-1" : "1e300");
    }
    kn__text_puts(&text, "]");
    read_trace(text.data);
    assert_int_equal(row_at("all")->n_allocs, 1000);
    assert_true(row_at("all")->peak > 0);
    kn__text_release(&text);
}

/* The counters of two processors may differ: no length is below 0. */
static void a_scope_that_ends_before_it_starts_has_no_length(void **state) {
    (void)state;
    static const kn__trace_name name = {"odd", NULL};
    const kn__trace_event event = {&name, 5000, 4000};
    kn__trace_writer *w = calloc(1, sizeof *w);
    kn__trace_thread thread;
    assert_non_null(w);
    w->format = &kn__trace_json;
    w->clock.tick_ns = 1;
    w->format->start(w);
    kn__trace_put_thread(w, &thread, 7, "main");
    w->format->events(w, &thread, &event, 1);
    kn__trace_end(w, 0);
    assert_non_null(strstr(w->out.data, "\"ts\":5.000,\"dur\":0.000}"));
    kn__text_release(&w->out);
    free(w);
}

static void events_that_a_trace_lacks_are_passed_on(void **state) {
    (void)state;
    kn__text table = {0}, trace = {0};
    read_trace(
        "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,"
        "\"dur\":2}],\"knetEventsSkipped\":41}");
    assert_int_equal(report.n_events_skipped, 41);
    kn__table_add(&table, &report, &(kn__table_options){0});
    assert_non_null(
        strstr(table.data, " the trace lacks 41 events: raise KNET_TIMER=trace_max= or buf=\n"));
    assert_ok(kn__timeline_add(&trace, report.timeline, &kn__trace_json));
    assert_non_null(strstr(trace.data, "],\"knetEventsSkipped\":41}"));
    kn__text_release(&table);
    kn__text_release(&trace);
}

/* As a program that is killed leaves it: "a" is complete, of "b" at most a part. */
static void a_trace_of_ours_that_is_cut_has_its_complete_events(void **state) {
    (void)state;
    static const char text[] = KN__TRACE_JSON_HEAD
        "5,\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1}"
        ",\n" SPAN("a", 1, 10, 5);
    static const char rest[] = ",\n{\"ph\":\"X\",\"name\":\"b\",\"args\":{\"file\":\"x\"}";
    char cut[sizeof text + sizeof rest];
    for (size_t n = 0; n < sizeof rest; n++) {
        kn__text table = {0};
        snprintf(cut, sizeof cut, "%s%.*s", text, (int)n, rest);
        read_trace(cut);
        assert_true(report.trace_cut);
        assert_int_equal(row_at("a")->n_calls, 1);
        assert_false(has_row("b"));
        kn__table_add(&table, &report, &(kn__table_options){0});
        assert_non_null(strstr(table.data, " the trace is cut off: its program was killed, or"));
        kn__text_release(&table);
        kn__report_release(&report);
    }
    snprintf(cut, sizeof cut, "%s\n]}", text);
    read_trace(cut);
    assert_false(report.trace_cut);
    kn__report_release(&report);
    assert_fails(parse(KN__TRACE_JSON_HEAD "5,\"traceEvents\":[\nx,\n" SPAN("a", 1, 10, 5)),
                 KN_ERR_FORMAT, "is no JSON");
    assert_fails(parse("{\"traceEvents\":[" SPAN("a", 1, 10, 5)), KN_ERR_FORMAT, "cut off");
    assert_fails(parse(KN__TRACE_JSON_HEAD "5,\"traceEvents\":[\n"), KN_ERR_FORMAT,
                 "without spans: its program was killed before it wrote any");
}

#define LABELS                                                                                     \
    "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":1,\"args\":{\"labels\":\"math=tf32\"}}"

static void notes_of_a_trace_of_ours_are_read_and_written_again(void **state) {
    (void)state;
    kn__text trace = {0};
    read_trace("{\"traceEvents\":[" SPAN("a", 1, 10, 5) "," LABELS "],\"knetEventsSkipped\":0}");
    assert_non_null(report.run.notes);
    assert_string_equal(report.run.notes, "math=tf32");
    assert_ok(kn__timeline_add(&trace, report.timeline, &kn__trace_json));
    assert_non_null(strstr(trace.data, "\"args\":{\"labels\":\"math=tf32\"}}\n],"));
    kn__text_release(&trace);
    kn__report_release(&report);
    read_trace("{\"traceEvents\":[" SPAN("a", 1, 10, 5) "," LABELS "]}"); /* another tool's */
    assert_null(report.run.notes);
}

static void a_profile_whose_trace_kept_nothing_is_read(void **state) {
    (void)state;
    read_trace(
        "{\"schema\":\"knet.prof\",\"version\":1,\"wall_ns\":0,\"scopes\":[{\"label\":\"a\",\"n_"
        "calls\":3,\"time_ns\":0}],"
        "\"knetEventsSkipped\":4,\"traceEvents\":[{\"ph\":\"C\",\"name\":\"live bytes\","
        "\"pid\":1,\"ts\":1,\"args\":{\"bytes\":5}}]}");
    assert_int_equal(row_at("a")->n_calls, 3);
    assert_null(report.timeline);
    assert_int_equal(report.n_events_skipped, 4);
}

int main(void) {
    return RUN_TESTS(TEST_WITH(events_are_written_in_the_order_of_their_ends, NULL, teardown),
                     TEST_WITH(a_scope_that_ends_before_it_starts_has_no_length, NULL, teardown),
                     TEST_WITH(live_bytes_are_kept_with_their_mark, NULL, teardown),
                     TEST_WITH(arrows_of_our_traces_join_launch_and_work, NULL, teardown),
                     TEST_WITH(the_longer_of_two_that_start_together_is_outside, NULL, teardown),
                     TEST_WITH(a_trace_of_ours_that_is_cut_has_its_complete_events, NULL, teardown),
                     TEST_WITH(notes_of_a_trace_of_ours_are_read_and_written_again, NULL, teardown),
                     TEST_WITH(a_profile_whose_trace_kept_nothing_is_read, NULL, teardown),
                     TEST_WITH(spans_in_each_other_are_a_path, NULL, teardown),
                     TEST_WITH(a_row_stands_in_the_line_of_its_first_span, NULL, teardown),
                     TEST_WITH(equal_times_nest_and_moments_stay_inside, NULL, teardown),
                     TEST_WITH(overlapping_spans_share_a_parent, NULL, teardown),
                     TEST_WITH(ends_close_the_last_begin_of_their_thread, NULL, teardown),
                     TEST_WITH(gpu_work_of_pytorch_is_below_its_launch, NULL, teardown),
                     TEST_WITH(steps_of_pytorch_are_counted, NULL, teardown),
                     TEST_WITH(a_trace_written_again_has_the_same_events, NULL, teardown),
                     TEST_WITH(damage_is_named_with_its_event, NULL, teardown),
                     TEST_WITH(blocks_of_pytorch_are_columns_of_memory, NULL, teardown),
                     TEST_WITH(a_block_at_the_end_of_a_span_is_its_own, NULL, teardown),
                     TEST_WITH(a_gpu_is_busy_while_any_stream_is, NULL, teardown),
                     TEST_WITH(times_are_from_the_base_of_the_file, NULL, teardown),
                     TEST_WITH(blocks_of_devices_are_added, NULL, teardown),
                     TEST_WITH(a_launch_does_not_move_a_block, NULL, teardown),
                     TEST_WITH(any_number_of_bytes_is_read, NULL, teardown),
                     TEST_WITH(events_that_a_trace_lacks_are_passed_on, NULL, teardown),
                     TEST_WITH(deep_and_odd_traces_are_read, NULL, teardown));
}
