/* Times that overlap: <knet/prof_range.h>. */
#include <knet/prof_range.h>
#include <knet/prof_read.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "export.h"
#include "html.h"
#include "json.h"
#include "merge.h"
#include "metrics.h"
#include "read.h"
#include "select.h"
#include "table.h"
#include "test.h"
#include "timeline.h"
#include "timer_fixture.h"
#include "trace.h"

enum { THREADS = 16, ROUNDS = 2000, RANGES_MAX = 16384, MS = 1000 * 1000 };

static const kn__row *taken(const char *path) {
    kn__report_release(&report);
    take_report(&report);
    return find_row(&report, path);
}

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static void *end_range(void *range) {
    kn_prof_range_end(*(uint64_t *)range);
    return NULL;
}

static void end_elsewhere(uint64_t range) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_range, &range), 0);
    pthread_join(thread, NULL);
}

static void ranges_that_overlap_have_their_own_times(void **state) {
    (void)state;
    uint64_t a = kn_prof_range_begin("a"), b = kn_prof_range_begin("b");
    sleep_ms(2);
    kn_prof_range_end(a);
    sleep_ms(20);
    kn_prof_range_end(b);
    const kn__row *row = taken("b");
    assert_non_null(row);
    assert_true(row->time_ns >= 22 * MS);
    assert_int_equal(row->n_calls, 1);
    assert_true(row->is_range && !row->open);
    assert_true(find_row(&report, "a")->time_ns < row->time_ns - 15 * MS);
}

static void a_range_outlives_the_scope_where_it_began(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin("short");
    uint64_t range = kn_prof_range_begin("long");
    sleep_ms(1);
    kn_scope_end(&scope);
    sleep_ms(20);
    kn_prof_range_end(range);
    const kn__row *row = taken("short/long");
    assert_non_null(row);
    assert_true(row->time_ns >= 21 * MS);
    assert_true(find_row(&report, "short")->time_ns < 15 * MS);
}

static void another_thread_ends_a_range_when_it_says_so(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin("outer");
    uint64_t range = kn_prof_range_begin("handed over");
    sleep_ms(2);
    end_elsewhere(range);
    sleep_ms(20);
    kn_scope_end(&scope);
    const kn__row *row = taken("outer/handed over");
    assert_non_null(row);
    assert_in_range(row->time_ns, 2 * MS, 20 * MS);
    assert_int_equal(row->n_calls, 1);
    assert_int_equal(row->n_threads, 1);
    assert_int_equal(find_row(&report, "outer")->n_calls, 1);
}

static void an_open_range_counts_up_to_now(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin("around");
    uint64_t range = kn_prof_range_begin("open");
    kn_scope_end(&scope);
    sleep_ms(2);
    const kn__row *row = taken("around/open");
    assert_non_null(row);
    assert_true(row->open && row->is_range && row->time_ns >= 2 * MS);
    assert_int_equal(row->n_calls, 1);
    assert_int_equal(row->n_ended, 0);
    kn_prof_range_end(range);
    row = taken("around/open");
    assert_false(row->open);
    assert_int_equal(row->n_calls, 1);
    assert_int_equal(row->n_ended, 1);
}

static void a_range_ends_once(void **state) {
    (void)state;
    uint64_t range = kn_prof_range_begin("once");
    assert_int_not_equal(range, 0);
    kn_prof_range_end(range);
    uint64_t next = kn_prof_range_begin("next");
    kn_prof_range_end(range); /* its slot is the next one's now */
    end_elsewhere(range);
    kn_prof_range_end(0);
    kn_prof_range_end(UINT64_MAX);
    assert_int_equal(taken("once")->n_calls, 1);
    assert_true(find_row(&report, "next")->open);
    kn_prof_range_end(next);
}

static void a_range_is_in_no_other_rows_time(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin("parent");
    uint64_t range = kn_prof_range_begin("beside");
    sleep_ms(5);
    kn_scope_end(&scope);
    kn_prof_range_end(range);
    uint64_t alone = kn_prof_range_begin("alone");
    sleep_ms(5);
    kn_prof_range_end(alone);
    const kn__row *row = taken("parent");
    assert_non_null(row);
    assert_true(kn__row_own(row, KN__WEIGHT_TIME) == row->time_ns);
    row = find_row(&report, "parent/beside");
    assert_int_equal(kn__row_own(row, KN__WEIGHT_TIME), 0);
    row = find_row(&report, "alone");
    assert_true(row->time_ns && kn__row_own(row, KN__WEIGHT_TIME) == row->time_ns);
    row = find_row(&report, "parent");
    uint64_t sum = 0;
    for (const kn__row *top = report.root.first; top; top = top->next)
        sum += top->is_range ? 0 : top->time_ns;
    assert_int_equal(report.root.time_ns, sum);
    kn__text text = {0};
    kn__table_add(&text, &report, &(kn__table_options){.ascii = true});
    assert_non_null(strstr(text.data, "beside (range) "));
    assert_non_null(strstr(text.data, "(range): timed by itself"));
    assert_null(strstr(text.data, "own: "));
    kn__text_release(&text);
    kn__report flat;
    assert_ok(kn__report_flatten(&flat, &report));
    assert_int_equal(find_row(&flat, "parent")->time_ns, row->time_ns);
    assert_true(find_row(&flat, "beside")->is_range);
    kn__report_release(&flat);
}

static void check_both(const kn__report *of, uint64_t n_runs) {
    const kn__row *parent = find_row(of, "both");
    assert_non_null(parent);
    const kn__row *x = kn__report_find(of, parent, "x");
    assert_non_null(x);
    assert_true(!x->is_range && x->n_calls == 2 * n_runs);
    assert_true(kn__row_own(parent, KN__WEIGHT_TIME) == parent->time_ns - x->time_ns);
    const kn__row *range = parent->first == x ? x->next : parent->first;
    assert_non_null(range);
    assert_true(range != x && range->is_range && range->n_calls == 3 * n_runs);
    assert_string_equal(range->label, "x");
    assert_ptr_equal(kn__report_same(of, parent, range), range);
}

static void a_scope_and_a_range_of_one_label_are_two_rows(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin("both");
    uint64_t first = kn_prof_range_begin("x"), second = kn_prof_range_begin("x");
    kn_prof_range_end(second);
    end_elsewhere(first);
    for (int i = 0; i < 2; i++) {
        kn_scope x = kn_scope_begin("x");
        sleep_ms(i ? 0 : 5);
        kn_scope_end(&x);
    }
    uint64_t open = kn_prof_range_begin("x");
    kn_scope_end(&scope);
    (void)taken("both");
    kn_prof_range_end(open);
    check_both(&report, 1);
    kn_prof_row row;
    assert_ok(kn_prof_read(&row, sizeof row, "both/x"));
    assert_int_equal(row.n_calls, 2);
    kn__text text = {0};
    kn__report read, merged;
    kn__json_add(&text, &report);
    assert_ok(kn__report_parse(&read, "a.json", text.data, text.length));
    check_both(&read, 1);
    kn__report_init(&merged);
    assert_ok(kn__report_merge(&merged, &read));
    assert_ok(kn__report_merge(&merged, &report));
    check_both(&merged, 2);
    text.length = 0;
    kn__metrics_add(&text, &report);
    assert_non_null(strstr(text.data, "knet_scope_calls_total{path=\"both/x\"} 2\n"));
    assert_non_null(
        strstr(text.data, "knet_scope_calls_total{path=\"both/x\",kind=\"range\"} 3\n"));
    kn__text_release(&text);
    kn__report_release(&merged);
    kn__report_release(&read);
}

static void a_profile_tells_which_rows_are_ranges(void **state) {
    (void)state;
    kn_prof_range_end(kn_prof_range_begin("stored"));
    assert_non_null(taken("stored"));
    kn__text text = {0};
    kn__report read;
    kn__json_add(&text, &report);
    assert_non_null(strstr(text.data, "\"range\":true"));
    assert_ok(kn__report_parse(&read, "a.json", text.data, text.length));
    assert_true(find_row(&read, "stored")->is_range);
    assert_int_equal(read.root.time_ns, report.root.time_ns);
    kn__report_release(&read);
    text.length = 0;
    kn__html_add(&text, &report);
    assert_non_null(strstr(text.data, ",3]"));
    kn__text_release(&text);
}

static void ranges_beyond_the_most_are_counted(void **state) {
    (void)state;
    static uint64_t ranges[RANGES_MAX + 3];
    (void)taken("many");
    uint64_t before = report.n_unrecorded;
    for (int i = 0; i < RANGES_MAX + 3; i++) ranges[i] = kn_prof_range_begin("many");
    assert_int_not_equal(ranges[RANGES_MAX - 1], 0);
    assert_int_equal(ranges[RANGES_MAX], 0);
    for (int i = 0; i < RANGES_MAX + 3; i++) kn_prof_range_end(ranges[i]);
    assert_int_equal(taken("many")->n_calls, RANGES_MAX);
    assert_int_equal(report.n_unrecorded, before + 3);
    uint64_t again = kn_prof_range_begin("many");
    assert_int_not_equal(again, 0);
    kn_prof_range_end(again);
}

static _Atomic(uint64_t) handed[THREADS];
static atomic_bool done;

/* Each ends what its neighbour began. */
static void *hand_over(void *arg) {
    int me = (int)(intptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        KN_SCOPE("worker");
        kn_prof_range_end(atomic_exchange(&handed[me], kn_prof_range_begin("passed")));
        kn_prof_range_end(atomic_exchange(&handed[(me + 1) % THREADS], 0));
    }
    return NULL;
}

static void *watch(void *arg) {
    while (!atomic_load(&done)) {
        kn__report now;
        take_report(&now);
        kn__report_release(&now);
    }
    return arg;
}

static void threads_lose_no_range(void **state) {
    (void)state;
    pthread_t threads[THREADS], watcher;
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hand_over, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) kn_prof_range_end(atomic_load(&handed[i]));
    atomic_store(&done, true);
    pthread_join(watcher, NULL);
    assert_int_equal(taken("worker/passed")->n_calls, THREADS * ROUNDS);
    assert_int_equal(find_row(&report, "worker/passed")->n_ended, THREADS * ROUNDS);
}

static size_t read_file(char *out, size_t out_bytes, const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(out, 1, out_bytes - 1, file);
    fclose(file);
    out[n] = '\0';
    return n;
}

static void a_trace_of_the_last_steps_has_ranges_that_end_in_them(void **state) {
    (void)state;
    char path[] = "/tmp/knet-range-XXXXXX", text[4096];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    kn__trace_keep(2, 0);
    assert_ok(kn__trace_start(path, 0));
    kn_prof_range_end(kn_prof_range_begin("too old"));
    uint64_t whole = kn_prof_range_begin("whole");
    for (int i = 0; i < 5; i++) kn__trace_step(1);
    kn_prof_range_end(whole);
    assert_ok(kn__trace_finish());
    kn__trace_keep(0, 0);
    (void)read_file(text, sizeof text, path);
    remove(path);
    assert_non_null(strstr(text, "{\"ph\":\"b\",\"cat\":\"range\",\"name\":\"whole\""));
    assert_non_null(strstr(text, "{\"ph\":\"e\",\"cat\":\"range\",\"name\":\"whole\""));
    assert_null(strstr(text, "too old"));
}

static void a_timeline_has_no_ranges(void **state) {
    (void)state;
    kn__trace_show(true, true);
    assert_ok(kn__trace_start(NULL, 0));
    kn_prof_range_end(kn_prof_range_begin("not shown"));
    assert_ok(kn__trace_finish());
    assert_non_null(taken("not shown"));
    assert_ok(kn__trace_shown(&report));
    assert_non_null(report.timeline);
    assert_int_equal(report.timeline->spans.n, 0);
    kn__trace_show(false, false);
}

static void a_child_of_fork_has_no_ranges(void **state) {
    (void)state;
    uint64_t range = kn_prof_range_begin("of the parent");
    pid_t pid = fork();
    if (pid == 0) {
        kn_prof_range_end(range);
        _exit(kn_prof_range_begin("of a child") != 0);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    kn_prof_range_end(range);
    assert_int_equal(taken("of the parent")->n_calls, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_overlap_have_their_own_times),
        cmocka_unit_test(a_range_outlives_the_scope_where_it_began),
        cmocka_unit_test(another_thread_ends_a_range_when_it_says_so),
        cmocka_unit_test(an_open_range_counts_up_to_now),
        cmocka_unit_test(a_range_ends_once),
        cmocka_unit_test(a_range_is_in_no_other_rows_time),
        cmocka_unit_test(a_scope_and_a_range_of_one_label_are_two_rows),
        cmocka_unit_test(a_profile_tells_which_rows_are_ranges),
        cmocka_unit_test(ranges_beyond_the_most_are_counted),
        cmocka_unit_test(threads_lose_no_range),
        cmocka_unit_test(a_trace_of_the_last_steps_has_ranges_that_end_in_them),
        cmocka_unit_test(a_timeline_has_no_ranges),
        cmocka_unit_test(a_child_of_fork_has_no_ranges),
    };
    return cmocka_run_group_tests(tests, timer_setup, timer_teardown);
}
