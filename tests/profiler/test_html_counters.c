/* Counters in the page: a table of them, and their samples in the timeline. */
#include "html_counters.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "counters.h"
#include "html.h"
#include "report_maker.h"
#include "test.h"

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

static void sample(const char *name, const char *unit, uint64_t at_ns, long double value) {
    assert_ok(kn__timeline_sample(line, name, unit, at_ns, value));
}

static const char *data_of_page(void) {
    static const char begin[] = "<script id=\"data\" type=\"application/json\">";
    kn__html_add(&page, &report);
    assert_false(page.failed);
    char *at = strstr(page.data, begin), *end = at ? strstr(at, "</script>") : NULL;
    assert_non_null(end);
    at += sizeof begin - 1;
    json = cJSON_ParseWithLength(at, (size_t)(end - at));
    assert_non_null(json);
    *end = '\0';
    return at;
}

static void the_page_has_every_counter(void **state) {
    (void)state;
    kn__counter *c = kn__counters_get(&report, "held \"</script>\"");
    for (int i = 0; i < 3; i++) kn__counter_add(c, (long double)(i ? INT64_MAX : INT64_MIN));
    snprintf(c->unit, sizeof c->unit, "<B>");
    c->n_missed = 4;
    kn__counters_get(&report, "never")->n_missed = 1;
    report.counters.n_refused = 9;
    const char *data = data_of_page();
    assert_non_null(strstr(data,
                           "\"more_counters\":9,\"counters\":[\n[\"held "
                           "\\\"\\u003c/script>\\\"\",\"\\u003cB>\",3,4,"
                           "-9223372036854775808,"));
    assert_non_null(
        strstr(data, ",9223372036854775807,9223372036854775807],\n[\"never\",\"\",0,1]]"));
}

static void the_timeline_has_every_sample(void **state) {
    (void)state;
    sample("power", "W", 1000, 7);
    sample("loss", "", 1500, -0.25L);
    sample("power", "W", 3000, -3);
    sample("power", "W", 2000, 8);
    kn__timeline_sort(line);
    assert_non_null(strstr(data_of_page(),
                           "\"lanes\":[],\"samples\":4,\"samples_grain\":0,"
                           "\"counters\":[\n[\"power\",\"W\",[0,7,1000,8,1000,-3]],"
                           "\n[\"loss\",\"\",[500,-0.25]]]}"));
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "timeline"), "wall")->valueint,
                     2000);
}

/* Every peak of every counter stays, and the last value. */
static void of_many_samples_the_extremes_are_kept(void **state) {
    (void)state;
    enum { N = 300000, COUNTERS = 3 };
    static const char *const names[COUNTERS] = {"a", "b", "c"};
    for (int i = 0; i < N; i++) {
        bool is_peak = i % 29989 == 5, is_deep = i % 29989 == 6;
        sample(names[i % COUNTERS], "", (uint64_t)i * 10,
               is_peak   ? 1000 + i
               : is_deep ? -i
                         : i % 7);
    }
    kn__timeline_sort(line);
    (void)data_of_page();
    const cJSON *t = cJSON_GetObjectItem(json, "timeline"), *c = cJSON_GetObjectItem(t, "counters");
    assert_true(cJSON_GetObjectItem(t, "samples_grain")->valuedouble > 0);
    int n = 0, n_peaks = 0, n_deep = 0, number = 0;
    for (c = c->child; c; c = c->next, number++) {
        double at = 0, value = 0;
        assert_string_equal(c->child->valuestring, names[number]);
        const cJSON *v = cJSON_GetArrayItem(c, 2)->child;
        for (; v; v = v->next->next, n++) {
            at += v->valuedouble;
            value = v->next->valuedouble;
            int i = (int)(at / 10);
            assert_int_equal(i % COUNTERS, number);
            assert_true(value == (i % 29989 == 5 ? 1000 + i : i % 29989 == 6 ? -i : i % 7));
            n_peaks += i % 29989 == 5;
            n_deep += i % 29989 == 6;
        }
        int last = N - COUNTERS + number;
        assert_true(at == last * 10.0 && value == last % 7);
    }
    assert_int_equal(number, COUNTERS);
    assert_in_range(n, 1000, KN__HTML_SAMPLES_MAX);
    assert_int_equal(n_peaks, 11);
    assert_int_equal(n_deep, 11);
}

static void many_counters_keep_the_bound(void **state) {
    (void)state;
    char name[24];
    for (int i = 0; i < 200000; i++) {
        snprintf(name, sizeof name, "counter %d", i % 300);
        sample(name, "", (uint64_t)i, sin(i));
    }
    kn__timeline_sort(line);
    size_t bytes = strlen(data_of_page());
    assert_true(bytes < 1 << 20);
    const cJSON *c = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "timeline"), "counters");
    assert_int_equal(cJSON_GetArraySize(c), KN__TRACE_COUNTERS_MAX);
    assert_true(line->n_refused > 0);
}

static void samples_of_one_moment_are_a_page(void **state) {
    (void)state;
    for (int i = 0; i < 30000; i++) sample("a", "", 5, i);
    kn__timeline_sort(line);
    assert_non_null(strstr(data_of_page(), "[\"a\",\"\",[0,0,0,29999]]]}"));
}

static void without_counters_there_is_no_table(void **state) {
    (void)state;
    assert_null(strstr(data_of_page(), "ounters"));
}

int main(void) {
    return RUN_TESTS(TEST_WITH(the_page_has_every_counter, setup, teardown),
                     TEST_WITH(the_timeline_has_every_sample, setup, teardown),
                     TEST_WITH(of_many_samples_the_extremes_are_kept, setup, teardown),
                     TEST_WITH(many_counters_keep_the_bound, setup, teardown),
                     TEST_WITH(samples_of_one_moment_are_a_page, setup, teardown),
                     TEST_WITH(without_counters_there_is_no_table, setup, teardown));
}
