/* Samples of counters in traces: rings, bounds, threads, the timeline of a page, and traces that
 * are read. What other readers see: pftrace.py. */
#include <cjson/cJSON.h>
#include <knet/prof_counter.h>
#include <pthread.h>
#include <unistd.h>

#include "budget.h"
#include "read.h"
#include "test.h"
#include "timeline.h"
#include "timer_fixture.h"
#include "trace.h"

enum { THREADS = 64, ROUNDS = 200 };

static char path[] = "/tmp/knet-counter-XXXXXX";
static cJSON *json;

static int setup(void **state) {
    atomic_fetch_or(&kn__prof_extras, KN__PROF_TRACE);
    int failed = timer_setup(state);
    kn__report_init(&report);
    return failed;
}

static int teardown(void **state) {
    kn__trace_keep(0, 0);
    kn__trace_show(false, false);
    cJSON_Delete(json);
    json = NULL;
    return timer_teardown(state);
}

static size_t parse(void) {
    static char text[8 << 20];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    json = cJSON_ParseWithOpts(text, NULL, true);
    assert_non_null(json);
    return n;
}

static double skipped(void) { return cJSON_GetObjectItem(json, "knetEventsSkipped")->valuedouble; }

static const char *text_of(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(event, key);
    return item ? item->valuestring : "";
}

typedef struct sample {
    double at, value;
} sample;

/* Samples of a counter in the file. */
static int samples_of(sample *out, int room, const char *name) {
    int n = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) {
        if (strcmp(text_of(event, "ph"), "C") != 0 || strcmp(text_of(event, "name"), name) != 0)
            continue;
        const cJSON *value = cJSON_GetObjectItem(event, "args")->child;
        if (n < room)
            out[n] = (sample){cJSON_GetObjectItem(event, "ts")->valuedouble, value->valuedouble};
        n++;
    }
    return n;
}

static int count(const char *name) { return samples_of(NULL, 0, name); }

static int by_time(const void *a_of, const void *b_of) {
    const sample *a = a_of, *b = b_of;
    return (a->at > b->at) - (a->at < b->at);
}

/* --- rings and bounds --- */

static void run_step(int number, uint64_t spent_ns) {
    kn_prof_counter *counter = kn_prof_counter_get("step", NULL);
    for (int i = 0; i < 3000; i++) kn_prof_counter_sample(counter, number);
    kn__trace_step(spent_ns);
}

static int samples_of_step(int number) {
    static sample all[100000];
    int n = samples_of(all, 100000, "step"), found = 0;
    for (int i = 0; i < n; i++) found += all[i].value == number;
    return found;
}

static void of_the_last_steps_there_are_all_samples(void **state) {
    (void)state;
    kn__trace_keep(2, 0);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 9; i++) run_step(i, 1000);
    assert_ok(kn__trace_finish());
    parse();
    for (int i = 1; i <= 9; i++) assert_int_equal(samples_of_step(i), i >= 8 ? 3000 : 0);
    assert_true(skipped() == 0);
}

static void of_slow_steps_there_are_all_samples(void **state) {
    (void)state;
    kn__trace_keep(1, 5000);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 9; i++) run_step(i, i % 4 ? 5000 : 5001);
    assert_ok(kn__trace_finish());
    parse();
    for (int i = 1; i <= 9; i++) assert_int_equal(samples_of_step(i), i % 4 ? 0 : 3000);
}

static void samples_keep_the_bounds_of_memory_and_file(void **state) {
    (void)state;
    kn__budget_set(2 * (kn__budget_used() + 300000));
    kn__trace_keep(1000, 0);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 60; i++) run_step(i, 1000);
    assert_ok(kn__trace_finish());
    assert_true(kn__budget_used() <= kn__budget_limit());
    parse();
    assert_int_equal(samples_of_step(60), 3000);
    assert_int_equal(samples_of_step(1), 0);
    assert_true(count("step") + skipped() == 60 * 3000);
    kn__trace_keep(0, 0);
    cJSON_Delete(json);
    assert_ok(kn__trace_start(path, 600000));
    for (int i = 0; i < 5; i++) run_step(i, 0);
    assert_ok(kn__trace_finish());
    assert_true(parse() <= 600000 + 256);
    assert_true(skipped() > 0 && count("step") > 0);
    assert_true(count("step") + skipped() == 5 * 3000);
}

static void while_paused_there_are_no_samples(void **state) {
    (void)state;
    kn_prof_counter *counter = kn_prof_counter_get("paused", NULL);
    assert_ok(kn__trace_start(path, 0));
    kn_prof_counter_sample(counter, 1);
    kn__trace_pause(true);
    kn_prof_counter_sample(counter, 2);
    kn__trace_pause(false);
    kn_prof_counter_sample(counter, 3);
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(count("paused"), 2);
}

/* --- threads --- */

static void *work(void *arg) {
    kn_prof_counter *counter = kn_prof_counter_get("shared", NULL);
    for (int i = 0; i < ROUNDS; i++) {
        KN_SCOPE("round");
        kn_prof_counter_add_int64(counter, 1);
        kn_prof_counter_sample(kn_prof_counter_get("shared too", NULL), (double)(uintptr_t)arg);
    }
    return NULL;
}

/* Each thread adds 1: in the order of times the values are 1, 2, 3, ... */
static void samples_of_threads_are_in_the_order_of_their_times(void **state) {
    (void)state;
    static sample all[THREADS * ROUNDS];
    pthread_t threads[THREADS];
    assert_ok(kn__trace_start(path, 0));
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_ok(kn__trace_finish());
    parse();
    assert_true(skipped() == 0);
    assert_int_equal(count("shared too"), THREADS * ROUNDS);
    assert_int_equal(samples_of(all, THREADS * ROUNDS, "shared"), THREADS * ROUNDS);
    qsort(all, THREADS * ROUNDS, sizeof *all, by_time);
    for (int i = 0; i < THREADS * ROUNDS; i++) assert_int_equal(all[i].value, i + 1);
}

/* --- groups --- */

static void take_both(kn_prof_counter *one, kn_prof_counter *two) {
    kn_prof_sample_ samples[] = {{one, false, 1}, {two, false, 2}};
    kn_prof_counters_take_(samples, 2);
}

/* Of one group, of two groups, of none, and one counter twice. */
static void only_what_was_sampled_together_is_one_event(void **state) {
    (void)state;
    kn_prof_counter *low = kn_prof_counter_get("group/low", NULL),
                    *high = kn_prof_counter_get("group/high", NULL),
                    *other = kn_prof_counter_get("groups/low", NULL),
                    *alone = kn_prof_counter_get("alone", NULL);
    assert_ok(kn__trace_start(path, 0));
    take_both(low, high);
    take_both(low, other);
    take_both(low, alone);
    take_both(low, low);
    kn_prof_counter_sample(low, 3);
    kn_prof_counter_sample(high, 4);
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(count("group"), 1);
    assert_int_equal(count("group/low"), 5);
    assert_int_equal(count("group/high"), 1);
    assert_int_equal(count("groups/low"), 1);
    assert_int_equal(count("alone"), 1);
}

/* --- the timeline of a page --- */

static void a_page_has_the_last_samples(void **state) {
    (void)state;
    kn_prof_counter_options options = {.unit = "W"};
    kn_prof_counter *counter = kn_prof_counter_get("shown", &options);
    kn__trace_show(true, true);
    assert_ok(kn__trace_start(NULL, 0));
    uint64_t n = kn__budget_limit() / 8 / 32 + 1000;
    for (uint64_t i = 0; i < n; i++) kn_prof_counter_sample_int64(counter, (int64_t)i);
    kn_prof_counter_sample(counter, 0.5);
    assert_ok(kn__trace_finish());
    assert_ok(kn__trace_shown(&report));
    const kn__timeline *line = report.timeline;
    const kn__timeline_point *samples = line->samples.at;
    size_t last = line->samples.n - 1;
    assert_int_equal(line->samples.n, n - 1000);
    assert_int_equal(line->n_before, 1001);
    const kn__trace_counter *c = kn__trace_counter_of(&samples[last].event);
    assert_string_equal(c->name.label, "shown");
    assert_string_equal(c->unit, "W");
    assert_true(kn__trace_value(&samples[last].event) == 0.5L);
    assert_true(kn__trace_value(&samples[0].event) == 1001);
    assert_int_equal(line->spans.n, 0);
}

/* --- traces that are read --- */

static const kn__counter *find(const char *name) {
    for (int i = 0; i < report.counters.n; i++) {
        if (strcmp(report.counters.all[i].name, name) == 0) return &report.counters.all[i];
    }
    fail_msg("no counter %s", name);
    return NULL;
}

#define C(more, name, ts, args)                                                                    \
    "{\"ph\":\"C\",\"pid\":1," more "\"name\":\"" name "\",\"ts\":" #ts ",\"args\":{" args "}}"

static void counters_of_any_trace_are_read(void **state) {
    (void)state;
    static const char text[] =
        "[" C("", "fps", 30, "\"value\":60") "," C("", "fps", 10, "\"value\":50") "," C(
            "", "net", 5, "\"in\":1,\"out\":-2.5") "," C("", "fps", 20,
                                                         "\"value\":1e999,"
                                                         "\"a\":\"text\"") "," C("", "live bytes",
                                                                                 6,
                                                                                 "\"bytes\":7") "]";
    kn__report_release(&report);
    assert_ok(kn__report_parse(&report, "t.json", text, sizeof text - 1));
    assert_int_equal(report.counters.n, 3);
    assert_int_equal(find("fps")->n, 2);
    assert_true(find("fps")->first == 50 && find("fps")->last == 60 && find("fps")->mean == 55);
    assert_true(find("net/in")->last == 1 && find("net/out")->min == -2.5);
    assert_int_equal(report.memory.live_max, 7);
}

/* Of names that our own traces don't have. */
static void odd_counters_of_our_traces_are_read(void **state) {
    (void)state;
    static const struct {
        const char *name, *part, *want, *unit;
    } odd[] = {{"(", ")", "(/)", ""},
               {"", "(x)", "/(x)", ""},
               {"g", "a (b", "g/a (b", ""},
               {"g", "a) (b)", "g/a)", "b"},
               {"g", "a (b) c", "g/a (b) c", ""},
               {"g", " ()", "g/", ""}};
    enum { N = sizeof odd / sizeof *odd };
    kn__text text = {0};
    kn__text_puts(&text, "{\"knetEventsSkipped\":0,\"traceEvents\":[");
    for (int i = 0; i < N; i++)
        kn__text_printf(&text, "%s" C("\"cat\":\"counters\",", "%s", 1, "\"%s\":%d"), i ? "," : "",
                        odd[i].name, odd[i].part, i);
    kn__text_puts(&text, "]}");
    kn__report_release(&report);
    assert_ok(kn__report_parse(&report, "t.json", text.data, text.length));
    kn__text_release(&text);
    for (int i = 0; i < N; i++) {
        assert_true(find(odd[i].want)->last == i);
        assert_string_equal(find(odd[i].want)->unit, odd[i].unit);
    }
}

/* Times near 0 move, all alike; a counter is in an event once. */
static void a_trace_written_again_has_the_same_samples(void **state) {
    (void)state;
    static const char text[] =
        "{\"knetEventsSkipped\":0,\"traceEvents\":[{\"ph\":\"X\",\"name\":\"span\",\"pid\":1,"
        "\"tid\":1,"
        "\"ts\":10,\"dur\":20}," C("\"cat\":\"counters\",", "g", 12, "\"x (W)\":1,\"y\":2.5") "," C(
            "\"cat\":\"counters\",", "g", 12,
            "\"x (W)\":3,\"y\":4") "," C("\"cat\":\"counter\",", "alone", 40, "\"B\":-7") "]}";
    kn__text out = {0};
    kn__report_release(&report);
    assert_ok(kn__report_parse(&report, "t.json", text, sizeof text - 1));
    assert_ok(kn__timeline_add(&out, report.timeline, &kn__trace_json));
    static const char *const want[] = {
        "\"name\":\"g\",\"pid\":1,\"ts\":2.000,\"args\":{\"x (W)\":1,\"y\":2.5}}",
        "\"name\":\"g\",\"pid\":1,\"ts\":2.000,\"args\":{\"x (W)\":3,\"y\":4}}",
        "\"name\":\"alone\",\"pid\":1,\"ts\":30.000,\"args\":{\"B\":-7}}",
        "\"name\":\"span\",\"pid\":1,\"tid\":1,\"ts\":0.000,\"dur\":20.000"};
    for (int i = 0; i < 4; i++) assert_non_null(strstr(out.data, want[i]));
    kn__text_release(&out);
}

static void of_ten_thousand_counters_the_first_are_read(void **state) {
    (void)state;
    kn__text text = {0};
    for (int i = 0; i < 20000; i++)
        kn__text_printf(&text, "%s" C("", "counter %d", 1, "\"value\":%d"), i ? "," : "[",
                        i % 10000, i);
    kn__text_puts(&text, "]");
    kn__report_release(&report);
    assert_ok(kn__report_parse(&report, "t.json", text.data, text.length));
    kn__text_release(&text);
    assert_int_equal(report.counters.n, KN__COUNTERS_MAX);
    assert_int_equal(find("counter 255")->n, 2);
    assert_int_equal(report.counters.n_lost, 20000 - 2 * KN__COUNTERS_MAX);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        TEST_WITH(of_the_last_steps_there_are_all_samples, setup, teardown),
        TEST_WITH(of_slow_steps_there_are_all_samples, setup, teardown),
        TEST_WITH(samples_keep_the_bounds_of_memory_and_file, setup, teardown),
        TEST_WITH(while_paused_there_are_no_samples, setup, teardown),
        TEST_WITH(samples_of_threads_are_in_the_order_of_their_times, setup, teardown),
        TEST_WITH(only_what_was_sampled_together_is_one_event, setup, teardown),
        TEST_WITH(a_page_has_the_last_samples, setup, teardown),
        TEST_WITH(counters_of_any_trace_are_read, setup, teardown),
        TEST_WITH(odd_counters_of_our_traces_are_read, setup, teardown),
        TEST_WITH(a_trace_written_again_has_the_same_samples, setup, teardown),
        TEST_WITH(of_ten_thousand_counters_the_first_are_read, setup, teardown),
    };
    int failed = cmocka_run_group_tests_name("profiler.counter_trace", tests, NULL, NULL);
    unlink(path);
    return failed;
}
