/* Values of the program over time: <knet/prof_counter.h>, the lines below the table and JSON. */
#include <knet/prof.h>
#include <knet/prof_counter.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counters.h"
#include "json.h"
#include "merge.h"
#include "read.h"
#include "table.h"
#include "test.h"
#include "timer_fixture.h"

enum { THREADS = 64, ROUNDS = 500 };

static const kn__counter *find(const kn__report *r, const char *name) {
    for (int i = 0; i < r->counters.n; i++) {
        if (strcmp(r->counters.all[i].name, name) == 0) return &r->counters.all[i];
    }
    fail_msg("no counter %s", name);
    return NULL;
}

static const kn__counter *taken(const char *name) {
    kn__report_release(&report);
    take_report(&report);
    return find(&report, name);
}

static void a_counter_has_first_last_least_most_and_mean(void **state) {
    (void)state;
    kn_prof_counter_options options = {.unit = "jobs"};
    kn_prof_counter *counter = kn_prof_counter_get("queue", &options);
    const double values[] = {3, -2, 8, 5};
    for (int i = 0; i < 4; i++) kn_prof_counter_sample(counter, values[i]);
    const kn__counter *c = taken("queue");
    assert_string_equal(c->unit, "jobs");
    assert_int_equal(c->n, 4);
    assert_close((double)c->first, 3, 0, 0);
    assert_close((double)c->last, 5, 0, 0);
    assert_close((double)c->min, -2, 0, 0);
    assert_close((double)c->max, 8, 0, 0);
    assert_close((double)c->mean, 3.5, 1e-15, 0);
    assert_int_equal(c->n_missed, 0);
    assert_int_equal(c->n_beyond, 0);
}

static void a_name_is_one_counter_and_keeps_its_first_options(void **state) {
    (void)state;
    kn_prof_counter_options watt = {.unit = "W"}, other = {.unit = "kW", .limit_max = 1};
    kn_prof_counter *one = kn_prof_counter_get("one", &watt),
                    *two = kn_prof_counter_get("two", NULL);
    assert_non_null(one);
    assert_ptr_equal(one, kn_prof_counter_get("one", &other));
    assert_ptr_not_equal(one, two);
    kn_prof_counter_sample(two, 9);
    assert_int_equal(taken("one")->n, 0);
    assert_string_equal(find(&report, "one")->unit, "W");
    assert_close((double)find(&report, "one")->limit_max, 0, 0, 0);
    assert_int_equal(find(&report, "two")->n, 1);
    assert_null(kn_prof_counter_get(NULL, NULL));
    char name[100];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    kn_prof_counter *longer = kn_prof_counter_get(name, NULL);
    name[63] = '\0';
    assert_ptr_equal(longer, kn_prof_counter_get(name, NULL));
    assert_int_equal(taken(name)->n, 0);
}

static void a_sample_without_a_value_is_counted_apart(void **state) {
    (void)state;
    kn_prof_counter *counter = kn_prof_counter_get("gaps", NULL);
    kn_prof_counter_sample(counter, 4);
    kn_prof_counter_sample(counter, NAN);
    kn_prof_counter_sample(counter, INFINITY);
    kn_prof_counter_miss(counter);
    kn_prof_counter_sample(counter, 1e308);
    kn_prof_counter_add(counter, 1e308);
    const kn__counter *c = taken("gaps");
    assert_int_equal(c->n, 2);
    assert_int_equal(c->n_missed, 4);
    assert_close((double)c->last, 1e308, 0, 0);
    assert_close((double)c->mean, 5e307, 1e-15, 0);
}

static void changes_add_up(void **state) {
    (void)state;
    kn_prof_counter *counter = kn_prof_counter_get("changes", NULL);
    kn_prof_counter_add(counter, 5);
    kn_prof_counter_add(counter, -2);
    kn_prof_counter_add(counter, 0);
    const kn__counter *c = taken("changes");
    assert_int_equal(c->n, 3);
    assert_close((double)c->first, 5, 0, 0);
    assert_close((double)c->last, 3, 0, 0);
    assert_close((double)c->max, 5, 0, 0);
}

static void values_outside_the_limits_are_counted(void **state) {
    (void)state;
    kn_prof_counter_options options = {.limit_min = 0, .limit_max = 100};
    kn_prof_counter *counter = kn_prof_counter_get("limited", &options);
    const double values[] = {0, 100, -0.5, 100.5, 50, 1e9};
    for (int i = 0; i < 6; i++) kn_prof_counter_sample(counter, values[i]);
    assert_int_equal(taken("limited")->n_beyond, 3);
    assert_int_equal(find(&report, "limited")->n, 6);
    kn_prof_counter_options below = {.limit_min = -3, .limit_max = 0};
    counter = kn_prof_counter_get("limited below", &below);
    kn_prof_counter_sample(counter, -4);
    assert_int_equal(taken("limited below")->n_beyond, 1);
    assert_close((double)find(&report, "limited below")->max, -4, 0, 0);
}

/* --- threads --- */

static kn_prof_counter *shared;
static atomic_bool done;

static void *work(void *arg) {
    double id = (double)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        kn_prof_counter_sample(shared, id);
        kn_prof_counter_sample(kn_prof_counter_get("shared too", NULL), 1);
        kn_prof_counter_miss(shared);
    }
    return NULL;
}

static void *watch(void *arg) {
    bool right = true;
    while (!atomic_load(&done)) {
        kn__report now;
        right = right && kn__report_take(&now, kn__clock_now(), 1.0) >= 0;
        const kn__counter *c = right ? find(&now, "shared") : NULL;
        right = right && c->n >= c->n_missed && (!c->n || (c->min <= c->mean && c->mean <= c->max));
        kn__report_release(&now);
    }
    return right ? arg : NULL;
}

static void threads_lose_no_sample(void **state) {
    pthread_t threads[THREADS], watcher;
    void *right = NULL;
    shared = kn_prof_counter_get("shared", NULL);
    assert_int_equal(pthread_create(&watcher, NULL, watch, state), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(watcher, &right);
    assert_ptr_equal(right, state);
    const kn__counter *c = taken("shared");
    assert_int_equal(c->n, THREADS * ROUNDS);
    assert_int_equal(c->n_missed, THREADS * ROUNDS);
    assert_close((double)c->min, 0, 0, 0);
    assert_close((double)c->max, THREADS - 1, 0, 0);
    assert_close((double)c->mean, (THREADS - 1) / 2.0, 1e-9, 0);
    assert_int_equal(find(&report, "shared too")->n, THREADS * ROUNDS);
}

static void a_child_of_fork_counts_nothing(void **state) {
    (void)state;
    kn_prof_counter *counter = kn_prof_counter_get("forked", NULL);
    kn_prof_counter_sample(counter, 1);
    pid_t pid = fork();
    if (pid == 0) {
        kn_prof_counter_sample(counter, 2);
        kn_prof_counter_add(NULL, 1);
        bool none = !kn_prof_counter_get("forked", NULL);
        _exit(none && taken("forked")->n == 1 && report.counters.n_lost == 0 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* --- reports --- */

static void make_report(kn__report *out, double shift) {
    kn__report_init(out);
    kn__counter *c = kn__counters_get(out, "power");
    *c = (kn__counter){"power", "W", 4, 1, 2, 10 + shift, 20, 5 - shift, 40, 25 + shift, 0, 30};
    c = kn__counters_get(out, shift > 0 ? "only\tb" : "only a");
    *c = (kn__counter){.n = 0, .limit_min = -INFINITY, .limit_max = 7};
    snprintf(c->name, sizeof c->name, "%s", shift > 0 ? "only\tb" : "only a");
    out->counters.n_refused = 2;
    out->counters.n_lost = 3;
}

static void a_profile_has_the_counters_and_is_read_back(void **state) {
    (void)state;
    kn__report made, back;
    kn__text first = {0}, second = {0};
    make_report(&made, 0);
    kn__json_add(&first, &made);
    assert_non_null(strstr(
        first.data,
        "\"counters_refused\":2,\"samples_lost\":3,\"counters\":[\n{\"name\":\"power\",\"unit\":"
        "\"W\","
        "\"n\":4,\"n_missed\":1,\"n_beyond\":2,\"first\":10,\"last\":20,\"min\":5,\"max\":40,"
        "\"mean\":25,\"limit_min\":0,\"limit_max\":30},\n{\"name\":\"only "
        "a\",\"unit\":\"\",\"n\":0,"
        "\"n_missed\":0,\"n_beyond\":0,\"limit_max\":7}]"));
    assert_ok(kn__report_parse(&back, "a.json", first.data, first.length));
    assert_true(isinf(find(&back, "only a")->limit_min));
    kn__json_add(&second, &back);
    assert_string_equal(first.data, second.data);
    kn__report_release(&made);
    kn__report_release(&back);
    kn__text_release(&first);
    kn__text_release(&second);
}

static void assert_refused(const char *counters, const char *why) {
    char text[300];
    kn__report back;
    int n = snprintf(
        text, sizeof text,
        "{\"schema\":\"knet.prof\",\"version\":%d,\"wall_ns\":0,\"counters\":%s,\"scopes\":[]}",
        KN__JSON_VERSION, counters);
    assert_fails(kn__report_parse(&back, "bad.json", text, (size_t)n), KN_ERR_FORMAT, why);
    kn__report_release(&back);
}

static void a_profile_of_too_many_counters_is_read_in_part(void **state) {
    (void)state;
    kn__report back;
    kn__text text = {0};
    kn__text_printf(&text, "{\"schema\":\"knet.prof\",\"version\":%d,\"wall_ns\":0,\"counters\":[",
                    KN__JSON_VERSION);
    for (int i = 0; i < 10000; i++)
        kn__text_printf(&text, "%s{\"name\":\"c%d\",\"n\":1,\"last\":%d}", i ? "," : "", i, i);
    kn__text_puts(&text, "],\"scopes\":[]}");
    assert_ok(kn__report_parse(&back, "a.json", text.data, text.length));
    assert_int_equal(back.counters.n, KN__COUNTERS_MAX);
    assert_int_equal(back.counters.n_refused, 10000 - KN__COUNTERS_MAX);
    assert_close((double)find(&back, "c255")->last, 255, 0, 0);
    kn__report_release(&back);
    kn__text_release(&text);
}

/* Every writer has the same name: of valid UTF-8, without control characters, cut where it may. */
static void names_are_text(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"a\xff\xc3", "a??"}, {"\t\n\x7f", "???"}, {"\xce\xbb", "\xce\xbb"}, {"", ""}};
    for (size_t i = 0; i < 4; i++) {
        kn_prof_counter_options options = {.unit = names[i][0]};
        assert_non_null(kn_prof_counter_get(names[i][0], &options));
        assert_string_equal(taken(names[i][1])->unit, names[i][1]);
    }
    char longer[80];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + 62, "\xce\xbb", 3);
    kn_prof_counter *cut = kn_prof_counter_get(longer, NULL);
    longer[62] = '\0';
    assert_ptr_equal(cut, kn_prof_counter_get(longer, NULL));
}

static void whole_numbers_stay_exact(void **state) {
    (void)state;
    kn__text text = {0};
    kn_prof_counter *c = kn_prof_counter_get("exact", NULL);
    kn_prof_counter_sample_int64(c, INT64_MIN);
    kn_prof_counter_add_int64(c, INT64_MAX);
    kn_prof_counter_sample_int64(c, INT64_MAX);
    assert_true(taken("exact")->last == INT64_MAX);
    kn__json_add(&text, &report);
    assert_non_null(strstr(text.data,
                           "\"first\":-9223372036854775808,\"last\":9223372036854775807,"
                           "\"min\":-9223372036854775808,\"max\":9223372036854775807,"));
    kn__text_release(&text);
}

static void damaged_counters_are_refused(void **state) {
    (void)state;
    assert_refused("5", "\"counters\" is no list");
    assert_refused("[{\"name\":\"a\",\"n\":-1}]", "\"n\" is no whole number");
    assert_refused("[{\"name\":\"a\",\"max\":\"b\"}]", "\"max\" is no number");
    assert_refused("[{\"name\":\"a\",\"mean\":1e999}]", "\"mean\" is no number");
}

static void runs_are_merged_by_name(void **state) {
    (void)state;
    kn__report a, b, into;
    make_report(&a, 0);
    make_report(&b, 3);
    b.counters.all[0].last = 21;
    b.counters.all[0].n = 12;
    kn__report_init(&into);
    assert_ok(kn__report_merge(&into, &a));
    assert_ok(kn__report_merge(&into, &b));
    assert_int_equal(into.counters.n, 3);
    const kn__counter *c = find(&into, "power");
    assert_string_equal(c->unit, "W");
    assert_int_equal(c->n, 16);
    assert_int_equal(c->n_missed, 2);
    assert_int_equal(c->n_beyond, 4);
    assert_close((double)c->first, 10, 0, 0);
    assert_close((double)c->last, 21, 0, 0);
    assert_close((double)c->min, 2, 0, 0);
    assert_close((double)c->max, 40, 0, 0);
    assert_close((double)c->mean, 25 + 3 * 0.75, 1e-15, 0);
    assert_close((double)c->limit_max, 30, 0, 0);
    assert_close((double)find(&into, "only?b")->limit_max, 7, 0, 0);
    b.counters.all[0] = (kn__counter){.name = "power", .n = 2, .min = 6, .max = 7, .last = 6};
    assert_ok(kn__report_merge(&into, &b));
    assert_close((double)c->min, 2, 0, 0);
    assert_close((double)c->max, 40, 0, 0);
    b.counters.all[0] = (kn__counter){.name = "power", .n_missed = 5};
    assert_ok(kn__report_merge(&into, &b));
    assert_int_equal(c->n_missed, 7);
    assert_close((double)c->last, 6, 0, 0);
    assert_int_equal(into.counters.n_refused, 8);
    assert_int_equal(into.counters.n_lost, 12);
    kn__report_release(&a);
    kn__report_release(&b);
    kn__report_release(&into);
}

static void assert_lines(int width, const char *expected) {
    kn__report made;
    kn__text text = {0};
    make_report(&made, 1);
    kn__counters_add_table(&text, &made.counters, width);
    assert_false(text.failed);
    assert_string_equal(text.data, expected);
    kn__text_release(&text);
    kn__report_release(&made);
}

static void the_lines_fit_the_width(void **state) {
    (void)state;
    assert_lines(
        0,
        " counters:    samples       first        last         min         max        mean\n"
        "   power (W)        4          11          20           4          40          26\n"
        "   only?b           0           -           -           -           -           -\n"
        " power (W): 1 without a value; power (W): 2 outside 0 to 30; 2 more counters: there is "
        "room for 256; 3 samples of no counter\n");
    assert_lines(60,
                 " counters:    samples         min         max        mean\n"
                 "   power (W)        4           4          40          26\n"
                 "   only?b           0           -           -           -\n"
                 " power (W): 1 without a value; power (W): 2 outside 0 to 30;\n"
                 " 2 more counters: there is room for 256; 3 samples of no\n"
                 " counter\n");
    assert_lines(40,
                 " counters:    samples        mean\n"
                 "   power (W)        4          26\n"
                 "   only?b           0           -\n"
                 " power (W): 1 without a value; power\n"
                 " (W): 2 outside 0 to 30; 2 more\n"
                 " counters: there is room for 256; 3\n"
                 " samples of no counter\n");
}

static void long_names_are_cut(void **state) {
    (void)state;
    kn__report made;
    kn__text text = {0};
    kn__report_init(&made);
    *kn__counters_get(&made, "a name of many words, too many of them") = (kn__counter){
        .name = "a name of many words, too many of them", .unit = "MiB/s", .n = 1, .mean = -1e-200};
    kn__counters_add_table(&text, &made.counters, 40);
    kn__counter *c = &made.counters.all[0];
    assert_string_equal(text.data,
                        " counters:           samples        mean\n"
                        "   a name of man...        1     -1e-200\n");
    text.length = 0;
    kn__counters_add_table(&text, &made.counters, 0);
    assert_non_null(strstr(text.data, "   a name of many words, too many of them (MiB/s)   "));
    const double values[] = {-0.00123456, 999999, -1234567, 1e-4, 0};
    const char *const shown[] = {"-0.00123456", "     999999", " -1.235e+06", "     0.0001",
                                 "          0"};
    for (int i = 0; i < 5; i++) {
        text.length = 0;
        c->mean = values[i];
        kn__counters_add_table(&text, &made.counters, 40);
        assert_non_null(strstr(text.data, shown[i]));
    }
    kn__text_release(&text);
    kn__report_release(&made);
}

static void a_report_without_counters_has_no_line(void **state) {
    (void)state;
    kn__report made;
    kn__text text = {0};
    kn__report_init(&made);
    kn__counters_add_table(&text, &made.counters, 80);
    kn__counters_add_json(&text, &made.counters);
    assert_int_equal(text.length, 0);
    kn__report_release(&made);
}

static void counters_beyond_the_most_are_told(void **state) {
    (void)state;
    kn__report_release(&report);
    take_report(&report);
    int n = report.counters.n;
    for (int i = n; i < KN__COUNTERS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "counter %d", i);
        assert_non_null(kn_prof_counter_get(name, NULL));
    }
    assert_null(kn_prof_counter_get("one too many", NULL));
    assert_null(kn_prof_counter_get("and another", NULL));
    assert_non_null(kn_prof_counter_get("counter 200", NULL));
    kn_prof_counter_sample(NULL, 1);
    kn_prof_counter_add(NULL, 1);
    kn_prof_counter_miss(NULL);
    (void)taken("counter 255");
    assert_int_equal(report.counters.n, KN__COUNTERS_MAX);
    assert_int_equal(report.counters.n_refused, 2);
    assert_int_equal(report.counters.n_lost, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_has_first_last_least_most_and_mean),
        cmocka_unit_test(a_name_is_one_counter_and_keeps_its_first_options),
        cmocka_unit_test(a_sample_without_a_value_is_counted_apart),
        cmocka_unit_test(changes_add_up),
        cmocka_unit_test(values_outside_the_limits_are_counted),
        cmocka_unit_test(threads_lose_no_sample),
        cmocka_unit_test(a_child_of_fork_counts_nothing),
        cmocka_unit_test(a_profile_has_the_counters_and_is_read_back),
        cmocka_unit_test(a_profile_of_too_many_counters_is_read_in_part),
        cmocka_unit_test(names_are_text),
        cmocka_unit_test(whole_numbers_stay_exact),
        cmocka_unit_test(damaged_counters_are_refused),
        cmocka_unit_test(runs_are_merged_by_name),
        cmocka_unit_test(the_lines_fit_the_width),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(a_report_without_counters_has_no_line),
        cmocka_unit_test(counters_beyond_the_most_are_told),
    };
    return cmocka_run_group_tests(tests, timer_setup, timer_teardown);
}
