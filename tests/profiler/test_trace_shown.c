/* The last events of a program as the timeline of its page. */
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "budget.h"
#include "test.h"
#include "timeline.h"
#include "timer_fixture.h"
#include "trace.h"
#include "trace_kept.h"

static int setup(void **state) {
    atomic_fetch_or(&kn__prof_extras, KN__PROF_TRACE);
    int failed = timer_setup(state);
    kn__report_init(&report);
    return failed;
}

static int teardown(void **state) {
    kn__trace_keep(0, 0);
    kn__trace_show(false, false);
    return timer_teardown(state);
}

static void *run_scopes(void *name) {
    if (name) prctl(PR_SET_NAME, name);
    for (int i = 0; i < 5000; i++) { /* more than a buffer */
        KN_SCOPE("outer");
        { KN_SCOPE("inner"); }
    }
    return NULL;
}

static const kn__timeline *shown(void) {
    assert_ok(kn__trace_shown(&report));
    assert_non_null(report.timeline);
    return report.timeline;
}

static size_t spans_of(const kn__timeline *line, const char *label) {
    const kn__span *spans = line->spans.at;
    size_t n = 0;
    for (size_t i = 0; i < line->spans.n; i++) n += strcmp(spans[i].name->label, label) == 0;
    return n;
}

static bool has_thread(const kn__timeline *line, const char *name) {
    for (size_t i = 0; i < line->threads.n_slots; i++) {
        const kn__timeline_thread *t = kn__hash_at(&line->threads, sizeof *t, i);
        if (t->key && strcmp(t->name, name) == 0) return true;
    }
    return false;
}

static void every_thread_has_its_scopes(void **state) {
    (void)state;
    char names[40][16];
    pthread_t threads[40]; /* more than the table of threads holds at first */
    kn__trace_show(true, true);
    assert_ok(kn__trace_start(NULL, 0));
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "worker %d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, run_scopes, names[i]), 0);
    }
    for (int i = 0; i < 40; i++) pthread_join(threads[i], NULL);
    kn_scope open = kn_scope_begin_static("still open");
    assert_ok(kn__trace_finish());
    kn_scope_end(&open);
    const kn__timeline *line = shown();
    uint64_t n = line->spans.n + line->n_before; /* 40 · 10,000 and one: more than are kept */
    assert_int_equal(n, 40 * 10000 + 1);
    assert_int_equal(line->spans.n, kn__budget_limit() / 8 / 32);
    assert_int_equal(spans_of(line, "still open"), 1); /* the newest ones */
    for (int i = 0; i < 40; i++) assert_true(has_thread(line, names[i]));
    kn__text none = {0};
    kn__trace_take(&none);
    assert_int_equal(none.length, 0);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void work_of_gpus_stands_where_it_was_launched(void **state) {
    (void)state;
    uint64_t before = now_ns();  /* the two clocks are read at two moments from here to the end */
    kn__trace_show(true, false); /* and into memory, as for json=FILE,events */
    assert_ok(kn__trace_start(NULL, 0));
    char name[] = "sgemm";
    {
        KN_SCOPE("launches");
        uint64_t start = now_ns();
        kn__record record = {.name = name, .start_ns = start, .end_ns = start + 1, .stream = 7};
        for (int i = 0; i < 20000; i++) kn__trace_record(&record, 0);
        while (now_ns() == start) {
        }
    }
    memset(name, 'x', 5); /* the name was borrowed */
    assert_ok(kn__trace_finish());
    const kn__timeline *line = shown();
    const kn__work_record *works = line->works.at;
    const kn__span *span = line->spans.at;
    assert_int_equal(line->works.n, KN__KEPT_MAX);
    assert_int_equal(line->n_before, 20000 - KN__KEPT_MAX);
    assert_string_equal(works[0].record.name, "sgemm");
    assert_int_equal(works[0].record.stream, 7);
    assert_int_equal(line->spans.n, 1);
    uint64_t slack = now_ns() - before, at = works[0].record.start_ns;
    assert_true(at + slack >= span->start_ns && at <= span->end_ns + slack);
    kn__text events = {0};
    kn__trace_take(&events);
    assert_non_null(strstr(events.data, "\"launches\""));
    kn__text_release(&events);
}

static void a_report_while_the_program_runs_has_what_ended(void **state) {
    (void)state;
    kn__trace_show(true, true);
    assert_ok(kn__trace_start(NULL, 0));
    { KN_SCOPE("first"); }
    kn__trace_memory(kn__tree_mine, 4096);
    kn__trace_launch(kn__tree_mine, 7);
    assert_int_equal(spans_of(shown(), "first"), 1);
    assert_int_equal(report.timeline->spans.n, 1); /* scopes alone */
    kn__report_release(&report);
    kn__report_init(&report);
    { KN_SCOPE("second"); }
    const kn__timeline *line = shown();
    assert_int_equal(spans_of(line, "first"), 1);
    assert_int_equal(spans_of(line, "second"), 1);
    assert_ok(kn__trace_finish());
}

static void of_the_last_steps_there_are_these_alone(void **state) {
    (void)state;
    kn__trace_keep(2, 0);
    kn__trace_show(true, true);
    assert_ok(kn__trace_start(NULL, 0));
    for (int i = 0; i < 9; i++) {
        { KN_SCOPE("step"); }
        kn__trace_step(0);
        if (i == 5) assert_int_equal(shown()->spans.n, 0); /* which are the last isn't known yet */
    }
    kn__report_release(&report);
    kn__report_init(&report);
    assert_ok(kn__trace_finish());
    assert_int_equal(spans_of(shown(), "step"), 2);
}

/* A thread of its own, which has a tree and no buffer of events. */
static void *run_without_room(void *arg) {
    run_scopes(NULL);
    uint64_t limit = kn__budget_limit();
    assert_ok(kn__trace_start(NULL, 0));
    kn__budget_set(kn__budget_used());
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    kn__budget_set(limit);
    return arg;
}

static void what_finds_no_room_counts_as_before_the_shown(void **state) {
    (void)state;
    pthread_t thread;
    kn__trace_show(true, true);
    assert_int_equal(pthread_create(&thread, NULL, run_without_room, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(shown()->n_before, 10000);
    assert_int_equal(report.timeline->spans.n, 0);
}

static void memory_of_events_is_given_back(void **state) {
    (void)state;
    uint64_t used[2];
    kn__trace_show(true, true);
    for (int i = 0; i < 2; i++) {
        assert_ok(kn__trace_start(NULL, 0)); /* which releases the events of the trace before */
        used[i] = kn__budget_used();
        { KN_SCOPE("step"); }
        kn__trace_record(&(kn__record){.name = "sgemm", .end_ns = 1}, 0);
        assert_ok(kn__trace_finish());
        assert_true(kn__budget_used() > used[i]);
    }
    assert_int_equal(used[1], used[0]);
}

static void without_a_page_nothing_is_kept(void **state) {
    (void)state;
    kn__trace_show(false, true);
    assert_ok(kn__trace_start(NULL, 0));
    { KN_SCOPE("step"); }
    assert_ok(kn__trace_finish());
    assert_ok(kn__trace_shown(&report));
    assert_null(report.timeline);
    kn__text events = {0};
    kn__trace_take(&events);
    assert_non_null(strstr(events.data, "\"step\""));
    kn__text_release(&events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* first: later there are free buffers */
        TEST_WITH(what_finds_no_room_counts_as_before_the_shown, setup, teardown),
        TEST_WITH(every_thread_has_its_scopes, setup, teardown),
        TEST_WITH(work_of_gpus_stands_where_it_was_launched, setup, teardown),
        TEST_WITH(a_report_while_the_program_runs_has_what_ended, setup, teardown),
        TEST_WITH(of_the_last_steps_there_are_these_alone, setup, teardown),
        TEST_WITH(memory_of_events_is_given_back, setup, teardown),
        TEST_WITH(without_a_page_nothing_is_kept, setup, teardown),
    };
    return cmocka_run_group_tests_name("profiler.trace_shown", tests, NULL, NULL);
}
