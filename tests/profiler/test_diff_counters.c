/* Comparing the counters of two profiles. */
#include "diff_counters.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cells.h"
#include "counters.h"
#include "diff.h"
#include "test.h"

static kn__report sides[2];
static kn__counters_diff diff;
static kn__text text;

static int setup(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) kn__report_init(&sides[i]);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kn__counters_diff_release(&diff);
    for (int i = 0; i < 2; i++) kn__report_release(&sides[i]);
    kn__text_release(&text);
    return 0;
}

/* A counter of four samples. */
static kn__counter *add(int side, const char *name, const char *unit, long double mean,
                        long double last) {
    kn__counter *c = kn__counters_get(&sides[side], name);
    assert_non_null(c);
    snprintf(c->unit, sizeof c->unit, "%s", unit);
    c->n = 4;
    c->mean = mean;
    c->last = last;
    return c;
}

static void add_both(const char *name, long double mean, long double last, long double mean_after,
                     long double last_after) {
    add(0, name, "", mean, last);
    add(1, name, "", mean_after, last_after);
}

static void compare(void) {
    kn__counters_diff_release(&diff);
    assert_ok(kn__counters_diff_make(&diff, &sides[0].counters, &sides[1].counters, 0.05));
}

static const kn__counter_pair *pair(const char *name) {
    for (int i = 0; i < diff.n; i++) {
        const kn__counter *c = diff.all[i].b ? diff.all[i].b : diff.all[i].a;
        if (strcmp(c->name, name) == 0) return &diff.all[i];
    }
    fail_msg("no counter %s", name);
    return NULL;
}

static void a_mean_or_a_last_value_moves_a_counter(void **state) {
    (void)state;
    add_both("same", 100, 7, 104, 7.3L);
    add_both("mean up", 100, 7, 106, 7);
    add_both("mean down", 100, 7, 94, 7);
    add_both("last", 100, 7, 100, -7);
    add_both("below zero", -100, 1, -104, 1);
    add_both("further below zero", -100, 1, -106, 1);
    add_both("zero", 0, 0, 0, 0);
    add_both("from zero", 0, 0, 1e-9L, 0);
    add_both("huge", 1e308L, -1e308L, 1e308L, -1e308L);
    add_both("whole", INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN);
    compare();
    assert_int_equal(diff.n, 10);
    assert_int_equal(diff.n_moved, 5);
    static const char *const moved[] = {"mean up", "mean down", "last", "further below zero",
                                        "from zero"};
    for (int i = 0; i < 5; i++) assert_true(pair(moved[i])->has_moved);
}

static void counters_of_one_side_are_new_or_gone(void **state) {
    (void)state;
    add(0, "gone", "W", 1, 1);
    add(1, "new", "W", 1, 1);
    add(0, "unit", "W", 1, 1);
    add(1, "unit", "kW", 1, 1);
    add_both("never", 0, 0, 0, 0);
    sides[0].counters.all[2].n = sides[1].counters.all[2].n = 0;
    add_both("first samples", 0, 0, 0, 0);
    sides[0].counters.all[3].n = 0;
    compare();
    assert_int_equal(diff.n, 5);
    assert_int_equal(diff.n_moved, 4);
    assert_null(pair("new")->a);
    assert_null(pair("gone")->b);
    assert_ptr_equal(diff.all[4].a, pair("gone")->a); /* the last */
    assert_true(pair("unit")->has_moved);
    assert_false(pair("never")->has_moved);
    assert_true(pair("first samples")->has_moved);
}

static void assert_table(int top, const char *expected) {
    text.length = 0;
    kn__counters_diff_add_table(&text, &diff, top, 0);
    assert_false(text.failed);
    assert_string_equal(text.length ? text.data : "", expected);
}

static void the_table_has_what_moved(void **state) {
    (void)state;
    compare();
    assert_table(0, "");
    add(0, "loss", "", 0.5L, 0.25L);
    add(1, "loss", "", 0.4L, 0.25L);
    add(1, "a name of very many words that has to be cut somewhere", "W", 12, 1234567);
    add(0, "held", "B", 1e-9L, -2);
    add(1, "held", "B", 1e9L, 2);
    add(0, "temperature", "C", 50, 51);
    add_both("same", 1, 1, 1, 1);
    compare();
    static const char head[] =
        "\n counters:                                         mean       "
        "after    change        last       after    change\n";
    static const char lines[] =
        "   loss                                             0.5         0.4    -20.0%        0.25 "
        "       0.25     +0.0%\n"
        "   a name of very many words that has to...           -          12       new           - "
        "  1.235e+06         -\n"
        "   held (B)                                       1e-09       1e+09   +1e+20%          -2 "
        "          2   +200.0%\n";
    static const char gone[] =
        "   temperature (C)                                   50           "
        "-      gone          51           -         -\n";
    char expected[1024];
    snprintf(expected, sizeof expected, "%s%s%s counters that did not move: 1\n", head, lines,
             gone);
    assert_table(0, expected);
    assert_table(4, expected);
    snprintf(
        expected, sizeof expected,
        "%s%s and 1 more counters that moved: --top 4 shows all\n counters that did not move: 1\n",
        head, lines);
    assert_table(3, expected);
}

static void the_table_is_within_the_width(void **state) {
    (void)state;
    static const int widths[] = {40, 46, 47, 79, 80, 81, 100, 140};
    add_both("a name of very many words that has to be cut somewhere", 1, 1, 2e100L, 2);
    add_both("same", 1, 1, 1, 1);
    compare();
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        text.length = 0;
        kn__counters_diff_add_table(&text, &diff, 0, widths[i]);
        assert_non_null(strstr(text.data, "   a name"));
        assert_int_equal(strstr(text.data, "   last") != NULL, widths[i] >= 81);
        assert_int_equal(strstr(text.data, "   after") != NULL, widths[i] >= 47);
        for (char *at = NULL, *line = strtok_r(text.data, "\n", &at); line;
             line = strtok_r(NULL, "\n", &at)) {
            if (kn__text_width(line) > widths[i]) fail_msg("%d columns: '%s'", widths[i], line);
        }
    }
}

static void json_has_every_counter_exactly(void **state) {
    (void)state;
    add(0, "held \"<\"", "B", -0.5L, INT64_MIN);
    add(1, "held \"<\"", "B", -0.5L, INT64_MAX);
    add(1, "new", "", 1, 2)->n = 0;
    compare();
    kn__counters_diff_add_json(&text, &diff);
    assert_string_equal(
        text.data,
        ",\"n_counters_moved\":2,\"counters\":[\n{\"name\":\"held \\\"<\\\"\",\"unit\":\"B\","
        "\"what\":\"moved\",\"before\":{\"n\":4,\"mean\":-0.5,\"last\":-9223372036854775808},"
        "\"after\":{\"n\":4,\"mean\":-0.5,\"last\":9223372036854775807}},\n{\"name\":\"new\","
        "\"unit\":\"\",\"what\":\"new\",\"after\":{\"n\":0}}]");
}

/* The rows are worse or not, whatever the counters do. */
static void counters_are_a_section_of_the_comparison(void **state) {
    (void)state;
    static const kn__diff_options normal = {.threshold = 0.05, .share = 0.005, .ascii = true};
    add_both("power", 1, 1, 2, 2);
    kn__diff whole;
    assert_ok(kn__diff_make(&whole, &sides[0], &sides[1], &normal));
    assert_int_equal(whole.n_worse, 0);
    assert_int_equal(whole.counters.n_moved, 1);
    kn__diff_add_table(&text, &whole, &sides[0], &sides[1], &normal);
    assert_non_null(
        strstr(text.data, " no row moved by more than 5 % and the noise\n\n counters:"));
    text.length = 0;
    kn__diff_add_json(&text, &whole, &sides[0], &sides[1]);
    cJSON *json = cJSON_Parse(text.data);
    assert_non_null(json);
    assert_int_equal(cJSON_GetObjectItem(json, "n_worse")->valueint, 0);
    assert_int_equal(cJSON_GetObjectItem(json, "n_counters_moved")->valueint, 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "counters")), 1);
    cJSON_Delete(json);
    kn__diff_release(&whole);
}

int main(void) {
    return RUN_TESTS(TEST_WITH(a_mean_or_a_last_value_moves_a_counter, setup, teardown),
                     TEST_WITH(counters_of_one_side_are_new_or_gone, setup, teardown),
                     TEST_WITH(the_table_has_what_moved, setup, teardown),
                     TEST_WITH(the_table_is_within_the_width, setup, teardown),
                     TEST_WITH(json_has_every_counter_exactly, setup, teardown),
                     TEST_WITH(counters_are_a_section_of_the_comparison, setup, teardown));
}
