#include "json.h"

#include <cjson/cJSON.h>

#include "report_maker.h"
#include "test.h"

static cJSON *parse(const kn__report *report) {
    kn__text text = {0};
    kn__json_add(&text, report);
    assert_false(text.failed);
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithOpts(text.data, &end, true); /* nothing may follow */
    if (!json) fail_msg("no JSON: %.200s", text.data);
    kn__text_release(&text);
    return json;
}

static int64_t number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("%s is missing", key);
    return (int64_t)item->valuedouble;
}

static const char *string(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item)) fail_msg("%s is missing", key);
    return item->valuestring;
}

static void all_values_come_back(void **state) {
    (void)state;
    kn__report report;
    kn__report_init(&report);
    report.wall_ns = 5000;
    report.has_memory = true;
    report.memory.live_max = 4096;
    report.memory.n_pools = 1;
    report.memory.pools[0] = (kn__pool_use){.name = "cpu", .live_max = 4096};
    kn__row *train = add_row(&report, NULL, "train", 2, 4000, 100);
    kn__row *conv = add_row(&report, train, "conv", 7, 3000, 20);
    conv->where = "a \"net\".c:12";
    conv->freed_bytes = 50;
    conv->peak = 4096;
    conv->peak_most = INT64_MAX;
    conv->gpu_ns = 1234;
    conv->n_gpu = 7;
    kn__report_finish(&report);
    cJSON *json = parse(&report);
    assert_string_equal(string(json, "schema"), "knet.prof");
    assert_int_equal(number(json, "version"), KN__JSON_VERSION);
    assert_int_equal(number(json, "wall_ns"), 5000);
    assert_int_equal(number(json, "measured_ns"), 4000);
    cJSON *top = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "scopes"), 0);
    assert_string_equal(string(top, "label"), "train");
    assert_int_equal(number(top, "alloc_bytes"), 120);
    assert_int_equal(number(top, "gpu_ns"), 1234);
    cJSON *inner = cJSON_GetArrayItem(cJSON_GetObjectItem(top, "children"), 0);
    assert_int_equal(number(inner, "n_calls"), 7);
    assert_string_equal(string(inner, "file"), "a \"net\".c:12");
    assert_null(cJSON_GetObjectItem(top, "file"));
    assert_int_equal(number(inner, "net_bytes"), -30);
    assert_int_equal(number(inner, "peak_bytes"), 4096);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(inner, "peak_exact")));
    cJSON *memory = cJSON_GetObjectItem(json, "memory");
    assert_int_equal(number(memory, "live_bytes_max"), 4096);
    assert_string_equal(string(cJSON_GetArrayItem(cJSON_GetObjectItem(memory, "pools"), 0), "name"),
                        "cpu");
    cJSON_Delete(json);
    kn__report_release(&report);
}

static void any_label_is_a_valid_string(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char label[16];
        size_t n = (size_t)test_random_below(sizeof label);
        for (size_t i = 0; i < n; i++) label[i] = (char)(1 + test_random_below(255));
        label[n] = '\0';
        kn__report report;
        kn__report_init(&report);
        add_row(&report, NULL, label, 1, 1, 0);
        kn__report_finish(&report);
        cJSON_Delete(parse(&report));
        kn__report_release(&report);
    }
}

static void plain_labels_come_back_unchanged(void **state) {
    (void)state;
    static const char *const labels[] = {"conv[1]", "größe μ", "a\"b\\c", "tab\there", "😀", ""};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        kn__report report;
        kn__report_init(&report);
        add_row(&report, NULL, labels[i], 1, 1, 0);
        kn__report_finish(&report);
        cJSON *json = parse(&report);
        cJSON *top = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "scopes"), 0);
        assert_string_equal(string(top, "label"), labels[i]);
        cJSON_Delete(json);
        kn__report_release(&report);
    }
}

int main(void) {
    return RUN_TESTS(TEST(all_values_come_back), TEST(any_label_is_a_valid_string),
                     TEST(plain_labels_come_back_unchanged));
}
