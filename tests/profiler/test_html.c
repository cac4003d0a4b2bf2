/* The page's data: all rows, and no text that leaves the script. */
#include "html.h"

#include <cjson/cJSON.h>

#include "report_maker.h"
#include "test.h"

static const char *const labels[] = {"train", "</script><b>", "<!--", "a\"b\\c", "größe", "train"};

static cJSON *data_of(const char *page) {
    static const char begin[] = "<script id=\"data\" type=\"application/json\">";
    const char *at = strstr(page, begin), *end = at ? strstr(at, "</script>") : NULL;
    assert_non_null(end);
    at += sizeof begin - 1;
    cJSON *json = cJSON_ParseWithLength(at, (size_t)(end - at));
    assert_non_null(json);
    return json;
}

static double value(const cJSON *row, int i) {
    const cJSON *item = cJSON_GetArrayItem(row, i);
    return item ? item->valuedouble : 0; /* zeros at the end are left out */
}

static const char *label_at(const cJSON *json, double i) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(json, "labels"), (int)i)->valuestring;
}

static const char *label_of(const cJSON *json, const cJSON *row) {
    return label_at(json, value(row, 1));
}

static void make(kn__report *report) {
    kn__report_init(report);
    report->has_memory = true;
    report->wall_ns = 12345;
    report->run.command = "./program <in >out";
    report->memory.live_max = 99;
    report->live = (kn__series){1, 40, {{50, 99, 3}}};
    kn__row *row = NULL;
    for (int i = 0; i < 6; i++) {
        row = add_row(report, row, labels[i], 7, (uint64_t)(600 - i), (uint64_t)i);
        row->min_ns = 3;
        row->max_ns = 1000;
        row->held_at_peak = i;
        row->where = i % 2 ? "net.c:12" : NULL;
    }
    assert_ok(kn__report_add_times(report, row, (kn__time_bin[]){{10, 4}, {500, 3}}, 2));
    kn__row *kernel = add_row(report, row, "sgemm", 0, 0, 0);
    kernel->is_kernel = true;
    kernel->n_gpu = 5;
    kernel->gpu_ns = 77;
    add_row(report, NULL, "~profiler~", 1, 1, 0)->is_extra = true;
    kn__report_finish(report);
}

static void the_page_has_every_row(void **state) {
    (void)state;
    kn__report report;
    kn__text text = {0};
    make(&report);
    kn__html_add(&text, &report);
    assert_false(text.failed);
    assert_null(strstr(text.data, "<b>"));
    assert_int_equal(strncmp(text.data, "<!doctype html>", 15), 0);
    cJSON *json = data_of(text.data);
    const cJSON *rows = cJSON_GetObjectItem(json, "rows"), *row = rows->child;
    for (int i = 0; i < 6; i++, row = row->next) {
        assert_int_equal(value(row, 0), i + 1);
        assert_string_equal(label_of(json, row), labels[i]);
        assert_int_equal(value(row, 2), 7);
        assert_int_equal(value(row, 3), 600 - i);
        assert_int_equal(value(row, 4), 77); /* of the kernel inside */
        assert_int_equal(value(row, 7), 3);
        assert_int_equal(value(row, 8), i == 5 ? 500 - 490 : 0);
        assert_int_equal(value(row, 9), i == 5 ? 500 : 0);
        assert_int_equal(value(row, 10), 1000);
        assert_int_equal(value(row, 14) > 0, i % 2);
        if (i % 2) assert_string_equal(label_at(json, value(row, 14) - 1), "net.c:12");
    }
    assert_string_equal(label_of(json, row), "sgemm");
    assert_int_equal(value(row, 2), 5);
    assert_int_equal(value(row, 11), 1);
    assert_string_equal(label_of(json, row->next), "~profiler~");
    assert_int_equal(value(row->next, 11), 2);
    assert_null(row->next->next);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "labels")), 8);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "owners")), 5);
    const cJSON *run = cJSON_GetObjectItem(json, "run");
    assert_string_equal(cJSON_GetObjectItem(run, "command")->valuestring, "./program <in >out");
    cJSON_Delete(json);
    kn__text_release(&text);
    kn__report_release(&report);
}

static void an_empty_report_is_a_page(void **state) {
    (void)state;
    kn__report report;
    kn__text text = {0};
    kn__report_init(&report);
    kn__report_finish(&report);
    kn__html_add(&text, &report);
    cJSON *json = data_of(text.data);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "rows")), 0);
    cJSON_Delete(json);
    kn__text_release(&text);
    kn__report_release(&report);
}

int main(void) { return RUN_TESTS(TEST(the_page_has_every_row), TEST(an_empty_report_is_a_page)); }
