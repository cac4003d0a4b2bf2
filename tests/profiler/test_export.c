#include "export.h"

#include <cjson/cJSON.h>
#include <locale.h>

#include "comma_locale.h"
#include "json.h"
#include "metrics.h"
#include "protobuf.h"
#include "report_maker.h"
#include "stacks.h"
#include "table.h"
#include "test.h"

static kn__report report;

static int make_report(void **state) {
    (void)state;
    kn__report_init(&report);
    report.has_memory = true;
    kn__row *train = add_row(&report, NULL, "train", 1, 1000, 0);
    kn__row *conv = add_row(&report, train, "conv, \"3x3\"; <relu> & more", 5, 600, 4096);
    add_row(&report, train, "gröβe", 2, 300, 512);
    kn__row *kernel = add_row(&report, conv, "sgemm", 0, 0, 0);
    kernel->is_kernel = true;
    kernel->gpu_ns = 700;
    kernel->n_gpu = 5;
    add_row(&report, NULL, "load", 3, 50, 0);
    kn__report_finish(&report);
    return 0;
}

static int drop_report(void **state) {
    (void)state;
    kn__report_release(&report);
    return 0;
}

/* --- CSV --- */

/* Reads one field; returns what follows it and its separator. */
static const char *read_field(const char *s, char *out, size_t size) {
    size_t n = 0;
    if (*s == '"') {
        for (s++; *s && !(s[0] == '"' && s[1] != '"'); s++) {
            if (*s == '"') s++;
            if (n + 1 < size) out[n++] = *s;
        }
        assert_int_equal(*s++, '"');
    } else {
        while (*s && *s != ',' && *s != '\n') {
            if (n + 1 < size) out[n++] = *s;
            s++;
        }
    }
    out[n] = '\0';
    assert_true(*s == ',' || *s == '\n');
    return s + 1;
}

/* Own times add up to the whole, in both. */
static void stacks_have_every_row_once(void **state) {
    (void)state;
    kn__text text = {0};
    kn__speedscope_add(&text, &report);
    cJSON *json = cJSON_Parse(text.data);
    assert_non_null(json);
    const cJSON *profile = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "profiles"), 0);
    const cJSON *samples = cJSON_GetObjectItem(profile, "samples"), *weight, *stack;
    double sum = 0;
    cJSON_ArrayForEach(weight, cJSON_GetObjectItem(profile, "weights")) sum += weight->valuedouble;
    assert_close(sum, (double)report.root.time_ns, 0, 1);
    assert_close(sum, cJSON_GetObjectItem(profile, "endValue")->valuedouble, 0, 0);
    assert_int_equal(cJSON_GetArraySize(samples),
                     cJSON_GetArraySize(cJSON_GetObjectItem(profile, "weights")));
    const cJSON *frames = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "shared"), "frames");
    cJSON_ArrayForEach(stack, samples) {
        const kn__row *row = &report.root;
        const cJSON *frame;
        cJSON_ArrayForEach(frame, stack) {
            const cJSON *at = cJSON_GetArrayItem(frames, (int)frame->valuedouble);
            row = kn__report_find(&report, row, cJSON_GetObjectItem(at, "name")->valuestring);
            assert_non_null(row);
        }
    }
    cJSON_Delete(json);
    kn__text_release(&text);
    kn__hatchet_add(&text, &report);
    json = cJSON_Parse(text.data);
    assert_non_null(json);
    const kn__row *train = report.root.first;
    const cJSON *node = cJSON_GetObjectItem(json->child, "children")->child;
    const cJSON *metrics = cJSON_GetObjectItem(node, "metrics");
    assert_string_equal(
        cJSON_GetObjectItem(cJSON_GetObjectItem(node, "frame"), "name")->valuestring, train->label);
    assert_true(cJSON_GetObjectItem(metrics, "cpu_time (ns) (inc)")->valuedouble ==
                (double)train->time_ns);
    assert_true(cJSON_GetObjectItem(metrics, "count")->valuedouble == (double)train->n_calls);
    assert_true(cJSON_IsArray(cJSON_GetObjectItem(node, "children")));
    cJSON_Delete(json);
    kn__text_release(&text);
}

static void paths_in_csv_have_one_reading(void **state) {
    (void)state;
    kn__text text = {0};
    static char label[3000];
    memset(label, 'x', sizeof label - 1);
    kn__report_init(&report);
    kn__row *row = add_row(&report, NULL, "a/b", 1, 1, 0);
    add_row(&report, row, "c\\/", 1, 1, 0);
    row = add_row(&report, NULL, "a", 1, 1, 0);
    add_row(&report, add_row(&report, row, "b", 1, 1, 0), "", 1, 1, 0);
    row = add_row(&report, add_row(&report, NULL, label, 1, 1, 0), label, 1, 1, 0);
    kn__report_finish(&report);
    kn__csv_add(&text, &report);
    static const char *const want[] = {"\n\"a\\/b\",1,", "\n\"a\\/b/c\\\\\\/\",2,", "\n\"a/b\",2,",
                                       "\n\"a/b/\",3,"};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_non_null(strstr(text.data, want[i]));
    }
    assert_true(text.length > 3 * sizeof label); /* nothing is cut */
    kn__text_release(&text);
    kn__report_release(&report);
}

static void labels_that_are_not_utf8_are_repaired(void **state) {
    (void)state;
    kn__text csv = {0}, folded = {0}, message = {0};
    kn__report_init(&report);
    add_row(&report, NULL, "\xce\xbc\xff", 1, 7, 0);
    kn__report_finish(&report);
    kn__csv_add(&csv, &report);
    assert_non_null(strstr(csv.data, "\n\"\xce\xbc\\xFF\",1,"));
    kn__folded_add(&folded, &report, KN__WEIGHT_TIME);
    assert_string_equal(folded.data, "\xce\xbc\\xFF 7\n");
    kn__pb_add_text(&message, 2, "\xce\xbc\xff");
    assert_int_equal(message.length, 2 + 6);
    assert_memory_equal(message.data, "\x12\x06\xce\xbc\\xFF", 2 + 6);
    kn__text_release(&csv);
    kn__text_release(&folded);
    kn__text_release(&message);
    kn__report_release(&report);
}

static void csv_is_read_back(void **state) {
    (void)state;
    kn__text text = {0};
    kn__csv_add(&text, &report);
    char fields[6][28][128];
    const char *s = text.data;
    for (int line = 0; line < 6; line++) {
        for (int i = 0; i < 28; i++) {
            s = read_field(s, fields[line][i], 128);
            assert_int_equal(s[-1], i < 27 ? ',' : '\n');
        }
    }
    assert_int_equal(*s, '\0');
    assert_string_equal(fields[0][0], "path");
    assert_string_equal(fields[1][0], "train");
    assert_string_equal(fields[2][0], "train/conv, \"3x3\"; <relu> & more");
    assert_string_equal(fields[2][3], "5");
    assert_string_equal(fields[2][9], "4096");
    assert_string_equal(fields[2][18], "700");
    assert_string_equal(fields[3][2], "kernel");
    assert_string_equal(fields[5][0], "load");
    kn__text_release(&text);
}

/* --- folded stacks --- */

static uint64_t sum_folded(const char *data, int *n_lines) {
    uint64_t sum = 0;
    *n_lines = 0;
    for (const char *line = data; *line; line = strchr(line, '\n') + 1) {
        size_t length = strcspn(line, "\n");
        const char *space = line + length;
        while (*space != ' ') space--;
        sum += strtoull(space + 1, NULL, 10);
        ++*n_lines;
    }
    return sum;
}

static void folded_stacks_sum_up_to_the_total(void **state) {
    (void)state;
    int n = 0;
    kn__text text = {0};
    kn__folded_add(&text, &report, KN__WEIGHT_TIME);
    assert_int_equal(sum_folded(text.data, &n), 1050);
    assert_int_equal(n, 4);
    assert_non_null(strstr(text.data, "train;conv, \"3x3\": <relu> & more 600\n"));
    assert_non_null(strstr(text.data, "train 100\n"));
    kn__text_release(&text);
    kn__folded_add(&text, &report, KN__WEIGHT_GPU);
    assert_int_equal(sum_folded(text.data, &n), 700);
    kn__text_release(&text);
    kn__folded_add(&text, &report, KN__WEIGHT_ALLOC);
    assert_int_equal(sum_folded(text.data, &n), 4608);
    kn__text_release(&text);
}

/* --- flame graph --- */

/* Well-formed XML: tags nest, attributes are quoted, text has no bare < or &. Counts the boxes. */
static int check_xml(const char *s) {
    const char *stack[32];
    int depth = 0, n_boxes = 0;
    assert_int_equal(strncmp(s, "<?xml", 5), 0);
    for (s = strstr(s, "?>") + 2; *s;) {
        if (*s == '&') {
            assert_true(!strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) ||
                        !strncmp(s, "&gt;", 4));
        }
        if (*s != '<') {
            assert_true(depth > 0 || *s == '\n');
            s++;
            continue;
        }
        const char *end = strchr(s, '>');
        assert_non_null(end);
        if (s[1] == '/') {
            assert_true(depth > 0);
            size_t n = (size_t)(end - s) - 2;
            assert_int_equal(strncmp(stack[--depth] + 1, s + 2, n), 0);
        } else {
            int quotes = 0;
            for (const char *c = s; c < end; c++) quotes += *c == '"';
            assert_int_equal(quotes % 2, 0);
            n_boxes += strncmp(s, "<rect x=", 8) == 0;
            if (end[-1] != '/') stack[depth++] = s;
        }
        s = end + 1;
    }
    assert_int_equal(depth, 0);
    return n_boxes;
}

static void flame_graph_is_well_formed_and_complete(void **state) {
    (void)state;
    static const int boxes[] = {
        [KN__WEIGHT_TIME] = 4, [KN__WEIGHT_GPU] = 3, [KN__WEIGHT_ALLOC] = 3};
    for (int weight = 0; weight < 3; weight++) {
        kn__text text = {0};
        kn__flame_add(&text, &report, (kn__weight)weight);
        assert_int_equal(check_xml(text.data), boxes[weight]);
        kn__text_release(&text);
    }
}

static void any_label_makes_a_valid_flame_graph(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        char label[24];
        size_t n = (size_t)test_random_below(sizeof label);
        for (size_t i = 0; i < n; i++) label[i] = (char)(1 + test_random_below(255));
        label[n] = '\0';
        kn__report r;
        kn__report_init(&r);
        add_row(&r, NULL, label, 1, 1, 0);
        kn__report_finish(&r);
        kn__text text = {0};
        kn__flame_add(&text, &r, KN__WEIGHT_TIME);
        assert_int_equal(check_xml(text.data), 1);
        kn__text_release(&text);
        kn__report_release(&r);
    }
}

static void an_empty_report_has_empty_exports(void **state) {
    (void)state;
    kn__report empty;
    kn__report_init(&empty);
    kn__report_finish(&empty);
    kn__text text = {0};
    kn__flame_add(&text, &empty, KN__WEIGHT_TIME);
    assert_int_equal(check_xml(text.data), 0);
    kn__text_release(&text);
    kn__folded_add(&text, &empty, KN__WEIGHT_TIME);
    assert_int_equal(text.length, 0);
    kn__text_release(&text);
}

/* Two rows of one path would make node_exporter reject the file. */
static void labels_that_differ_have_metrics_of_their_own(void **state) {
    (void)state;
    static const char *const labels[] = {"caf\xe9", "caf\xe8", "a\nb", "a\tb", "a?b"};
    static const char *const paths[] = {"caf\\\\xE9", "caf\\\\xE8", "a\\\\x0Ab", "a\\\\x09b",
                                        "a?b"};
    kn__text text = {0};
    kn__report_init(&report);
    for (int i = 0; i < 5; i++) add_row(&report, NULL, labels[i], (uint64_t)i + 1, 7, 0);
    kn__report_finish(&report);
    kn__metrics_add(&text, &report);
    for (int i = 0; i < 5; i++) {
        char want[80];
        snprintf(want, sizeof want, "\nknet_scope_calls_total{path=\"%s\"} %d\n", paths[i], i + 1);
        assert_non_null(strstr(text.data, want));
    }
    kn__text_release(&text);
    kn__report_release(&report);
}

static void notes_of_the_run_are_labels_of_the_metrics(void **state) {
    (void)state;
    kn__text text = {0};
    kn__report_init(&report);
    kn__report_finish(&report);
    kn__metrics_add(&text, &report);
    assert_null(strstr(text.data, "note_"));
    kn__text_release(&text);
    report.run.notes = "math=tf32, my-key=a \"b\", a_b=1, a__b=2, 9=, data=x, y, =z, p, math=z";
    kn__metrics_add(&text, &report);
    assert_non_null(strstr(text.data,
                           ",note_math=\"tf32\",note_my__2Dkey=\"a \\\"b\\\"\",note_a_b=\"1\","
                           "note_a__5F__5Fb=\"2\",note_9=\"\",note_data=\"x, y, =z, p\"} 1\n"));
    kn__text_release(&text);
    kn__report_release(&report);
}

static void notes_of_the_run_are_the_title_of_the_flame_graph(void **state) {
    (void)state;
    kn__text text = {0};
    kn__report_init(&report);
    add_row(&report, NULL, "a", 1, 7, 0);
    kn__report_finish(&report);
    report.run.notes = "math=tf32, data=<a & b>";
    kn__flame_add(&text, &report, KN__WEIGHT_TIME);
    assert_int_equal(check_xml(text.data), 1);
    assert_non_null(
        strstr(text.data, ">\n<title>run: math=tf32, data=&lt;a &amp; b&gt;</title>\n<style>"));
    kn__text_release(&text);
    kn__speedscope_add(&text, &report);
    assert_non_null(strstr(text.data, "\"name\":\"math=tf32, data=<a & b>\",\"shared\":{"));
    kn__text_release(&text);
    kn__report_release(&report);
}

/* Texts with numbers that have a fraction. */
static void add_every_format(kn__text *text) {
    kn__csv_add(text, &report);
    kn__json_add(text, &report);
    kn__metrics_add(text, &report);
    kn__flame_add(text, &report, KN__WEIGHT_TIME);
    kn__table_add(text, &report, &(kn__table_options){.ascii = true});
}

static void reports_are_the_same_in_a_locale_with_a_comma(void **state) {
    (void)state;
    kn__text point = {0}, comma = {0};
    kn__row *conv = (kn__row *)find_row(&report, "train/conv, \"3x3\"; <relu> & more");
    conv->flops = 1234567;
    add_every_format(&point);
    bool is_set = comma_locale_set();
    add_every_format(&comma);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(comma.data, point.data);
    kn__text_release(&point);
    kn__text_release(&comma);
    if (!is_set) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(csv_is_read_back, make_report, drop_report),
        TEST_WITH(folded_stacks_sum_up_to_the_total, make_report, drop_report),
        TEST_WITH(flame_graph_is_well_formed_and_complete, make_report, drop_report),
        TEST_WITH(stacks_have_every_row_once, make_report, drop_report),
        TEST_WITH(reports_are_the_same_in_a_locale_with_a_comma, make_report, drop_report),
        TEST(paths_in_csv_have_one_reading),
        TEST(labels_that_are_not_utf8_are_repaired),
        TEST(labels_that_differ_have_metrics_of_their_own),
        TEST(notes_of_the_run_are_labels_of_the_metrics),
        TEST(notes_of_the_run_are_the_title_of_the_flame_graph),
        TEST(any_label_makes_a_valid_flame_graph),
        TEST(an_empty_report_has_empty_exports),
    };
    return cmocka_run_group_tests_name("profiler.export", tests, NULL, NULL);
}
