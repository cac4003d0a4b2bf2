/* The page's timeline: a lane for each thread and stream, blocks in each other, and a bound on how
 * many there are. */
#include "html.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "html_timeline.h"
#include "report_maker.h"
#include "test.h"
#include "timeline.h"

static kn__report report;
static kn__timeline *line;
static kn__text page;
static cJSON *json;

static int setup(void **state) {
    (void)state;
    kn__report_init(&report);
    line = kn__timeline_make(&report);
    return line ? 0 : 1;
}

static int teardown(void **state) {
    (void)state;
    cJSON_Delete(json);
    json = NULL;
    kn__text_release(&page);
    kn__report_release(&report);
    return 0;
}

static void span(int64_t tid, const char *label, uint64_t start, uint64_t end) {
    uint32_t thread = kn__timeline_thread_of(line, 1, tid);
    assert_ok(kn__timeline_span(line, thread, label, NULL, start, end));
}

static void work(uint32_t device, uint32_t stream, const char *name, uint64_t start, uint64_t end) {
    kn__record record = {
        .name = name, .start_ns = start, .end_ns = end, .device = device, .stream = stream};
    assert_ok(kn__timeline_work(line, &record, 0));
}

/* The timeline in the page's data; NULL: none. */
static const cJSON *timeline(void) {
    static const char begin[] = "<script id=\"data\" type=\"application/json\">";
    assert_ok(kn__timeline_report(line));
    kn__html_add(&page, &report);
    assert_false(page.failed);
    const char *at = strstr(page.data, begin), *end = at ? strstr(at, "</script>") : NULL;
    assert_non_null(end);
    at += sizeof begin - 1;
    json = cJSON_ParseWithLength(at, (size_t)(end - at));
    assert_non_null(json);
    return cJSON_GetObjectItem(json, "timeline");
}

static int number(const cJSON *of, const char *key) {
    return (int)cJSON_GetObjectItem(of, key)->valuedouble;
}

/* "name kind: start+length label depth events; ..." of the first blocks of a lane. */
static const char *lane_text(const cJSON *lane) {
    static char text[1024];
    const cJSON *blocks = cJSON_GetArrayItem(lane, 2), *v = blocks->child;
    int n = snprintf(text, sizeof text, "%s %d:", lane->child->valuestring,
                     cJSON_GetArrayItem(lane, 1)->valueint);
    double at = 0;
    for (; v && n < 800; v = v->next->next->next->next->next) {
        at += v->valuedouble;
        const cJSON *label =
            cJSON_GetArrayItem(cJSON_GetObjectItem(json, "labels"), v->next->next->valueint);
        n += snprintf(text + n, sizeof text - (size_t)n, " %.0f+%.0f %s %d %d;", at,
                      v->next->valuedouble, label->valuestring, v->next->next->next->valueint,
                      v->next->next->next->next->valueint);
    }
    return text;
}

static const char *lane_at(const cJSON *t, int i) {
    return lane_text(cJSON_GetArrayItem(cJSON_GetObjectItem(t, "lanes"), i));
}

static void each_thread_and_stream_has_a_lane(void **state) {
    (void)state;
    span(7, "step", 1000, 2000);
    span(7, "conv<3>", 1100, 1300);
    span(7, "conv<3>", 1300, 1400);
    span(7, "step", 2000, 2500);
    span(8, "load", 1050, 1060);
    assert_ok(kn__timeline_name_thread(line, kn__timeline_thread_of(line, 1, 8), "loader"));
    work(1, 13, "sgemm", 1200, 1500);
    work(0, 7, "copy", 1600, 1700);
    work(0, 7, "node", 1650, 1750);
    const cJSON *t = timeline();
    assert_non_null(t);
    assert_int_equal(number(t, "wall"), 1500);
    assert_int_equal(number(t, "grain"), 0);
    assert_int_equal(number(t, "cut"), 0);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(t, "lanes")), 4);
    assert_string_equal(lane_at(t, 0),
                        "thread 7 0: 0+1000 step 0 1; 100+200 conv<3> 1 1;"
                        " 300+100 conv<3> 1 1; 1000+500 step 0 1;");
    assert_string_equal(lane_at(t, 1), "loader 8 0: 50+10 load 0 1;");
    assert_string_equal(lane_at(t, 2), "GPU 0, stream 7 1: 600+100 copy 0 1; 650+100 node 1 1;");
    assert_string_equal(lane_at(t, 3), "GPU 1, stream 13 1: 200+300 sgemm 0 1;");
}

static void kernels_have_the_names_of_their_rows(void **state) {
    (void)state;
    static const char label[] = "void scale<float>(float*, int)";
    kn__row *row = add_row(&report, NULL, label, 0, 0, 0);
    row->is_kernel = true;
    row->n_gpu = 1;
    work(0, 7, label, 1000, 1500);
    span(7, label, 1000, 1500); /* a scope keeps its label */
    const cJSON *t = timeline();
    assert_string_equal(lane_at(t, 0), "thread 7 0: 0+500 void scale<float>(float*, int) 0 1;");
    assert_string_equal(lane_at(t, 1), "GPU 0, stream 7 1: 0+500 scale 0 1;");
}

static void a_report_without_events_has_none(void **state) {
    (void)state;
    add_row(&report, NULL, "row", 1, 1, 0);
    assert_null(timeline());
}

/* 80,000 events: long ones stay as they are, short ones side by side are joined, and none is lost.
 */
static void of_many_events_short_ones_are_joined(void **state) {
    (void)state;
    enum { STEPS = 400, IN_STEP = 199 };
    for (uint64_t i = 0; i < STEPS; i++) {
        span(1, "step", i * 1000000, (i + 1) * 1000000);
        for (uint64_t j = 0; j < IN_STEP; j++) {
            uint64_t at = i * 1000000 + j * 5000;
            bool is_longer = j % 8 == 3;
            span(1, is_longer ? "longer" : "short", at, at + (is_longer ? 3000 : 1000));
        }
    }
    const cJSON *t = timeline();
    assert_int_equal(number(t, "events"), STEPS * (IN_STEP + 1));
    assert_true(number(t, "grain") > 0);
    const cJSON *v = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "lanes")->child, 2)->child;
    int n = 0, n_events = 0, n_steps = 0;
    for (; v; v = v->next->next->next->next->next, n++) {
        int events = v->next->next->next->next->valueint;
        n_events += events;
        n_steps += v->next->next->next->valueint == 0 && events == 1;
    }
    assert_in_range(n, STEPS, KN__HTML_BLOCKS_MAX);
    assert_int_equal(n_events, STEPS * (IN_STEP + 1));
    assert_int_equal(n_steps, STEPS);
    assert_true(strlen(page.data) < 1 << 20);
    /* A block that several events are is named after the longest. */
    const char *first = lane_at(t, 0);
    assert_non_null(strstr(first, " longer 1 "));
    assert_null(strstr(first, " short 1 8;"));
}

static void joined_events_end_with_the_last_of_them(void **state) {
    (void)state;
    enum { EVENTS = 400000 };
    for (uint64_t i = 0; i < EVENTS; i++) span(1, "short", 10 * i, 10 * i + 7);
    const cJSON *t = timeline();
    uint64_t grain = (uint64_t)number(t, "grain"), at = 0;
    assert_true(grain >= 100);
    const cJSON *v = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "lanes")->child, 2)->child;
    int n_events = 0;
    for (; v; v = v->next->next->next->next->next) {
        at += (uint64_t)v->valuedouble;
        int events = v->next->next->next->next->valueint;
        n_events += events;
        assert_int_equal(v->next->valueint, 10 * (events - 1) + 7);
        assert_int_equal(at, 10 * ((uint64_t)n_events - (uint64_t)events));
    }
    assert_int_equal(n_events, EVENTS);
}

static void deep_events_are_counted(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 70; i++) span(1, "deep", i, 1000 - i);
    const cJSON *t = timeline();
    assert_int_equal(number(t, "cut"), 6);
}

int main(void) {
    return RUN_TESTS(TEST_WITH(each_thread_and_stream_has_a_lane, setup, teardown),
                     TEST_WITH(kernels_have_the_names_of_their_rows, setup, teardown),
                     TEST_WITH(a_report_without_events_has_none, setup, teardown),
                     TEST_WITH(of_many_events_short_ones_are_joined, setup, teardown),
                     TEST_WITH(joined_events_end_with_the_last_of_them, setup, teardown),
                     TEST_WITH(deep_events_are_counted, setup, teardown));
}
