/* Many threads in scopes while others report; what matters here is what ThreadSanitizer says. */
#include <pthread.h>

#include "../support/cancelled.h"
#include "activity.h"
#include "memory.h"
#include "report_maker.h"
#include "steps.h"
#include "test.h"

enum { THREADS = 64, ROUNDS = 200 };

static const kn_observer *observer;
static atomic_bool done;

static void *work(void *arg) {
    uint64_t id = (uint64_t)(uintptr_t)arg;
    char own[32];
    snprintf(own, sizeof own, "thread %d", (int)(id % 8));
    for (int i = 0; i < ROUNDS; i++) {
        KN_SCOPE("shared");
        uint32_t owner = observer->on_alloc((kn_pool *)&done, NULL, 64, NULL);
        kn_scope scope = kn_scope_begin(own);
        { KN_SCOPE("leaf"); }
        observer->on_free((kn_pool *)&done, NULL, 64, owner);
        if (i % 3) kn_scope_end(&scope);
        kn_step();
    }
    return NULL;
}

static void *watch(void *arg) {
    (void)arg;
    uint64_t last = 0;
    bool grows = true;
    while (!atomic_load(&done)) {
        kn__report report;
        if (kn__report_take(&report, kn__clock_now(), 1.0) < 0) grows = false;
        const kn__row *shared = find_row(&report, "shared");
        uint64_t n = shared ? shared->n_calls : 0;
        grows = grows && n >= last;
        last = n;
        kn__report_release(&report);
    }
    return grows ? &done : NULL;
}

static void reports_may_be_taken_while_threads_run(void **state) {
    (void)state;
    pthread_t threads[THREADS], watcher;
    void *grows = NULL;
    observer = kn__memory_observer(true);
    assert_ok(kn_prof_owners_on());
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(watcher, &grows);
    assert_non_null(grows);
    kn__report report;
    take_report(&report);
    assert_int_equal(find_row(&report, "shared")->n_calls, THREADS * ROUNDS);
    assert_int_equal(find_row(&report, "shared/thread 3/leaf")->n_calls, THREADS / 8 * ROUNDS);
    assert_int_equal(find_row(&report, "shared")->n_allocs, THREADS * ROUNDS);
    assert_int_equal(find_row(&report, "shared")->held, 0);
    assert_int_equal(report.n_threads, THREADS);
    kn__report_release(&report);
    kn__steps steps;
    kn__steps_read(&steps);
    assert_int_equal(steps.n, THREADS * ROUNDS);
    assert_true(steps.max_ns <= steps.sum_ns); /* none ends before it begins */
}

/* --- merging --- */

enum { TREES = 6, MERGE_STEPS = 3000 };
static pthread_barrier_t all_begun;

/* All at once, so that each has a tree of its own. */
static void *scopes_at_random(void *arg) {
    static const char *const labels[] = {"a", "b", "c", "d"};
    uint64_t x = (uint64_t)(uintptr_t)arg;
    KN_SCOPE("merge");
    pthread_barrier_wait(&all_begun);
    kn_scope open[4];
    int depth = 0;
    for (int i = 0; i < MERGE_STEPS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (depth < 3 && x >> 63) {
            open[depth++] = kn_scope_begin_static(labels[x >> 40 & 3]);
        } else if (depth > 0) {
            kn_scope_end(&open[--depth]);
        }
    }
    pthread_barrier_wait(&all_begun);
    return NULL;
}

/* Adds a tree's rows to a report by path: what merging has to come to, in any order. */
static void add_rows(kn__report *sum, kn__row *to, const kn__row *from) {
    for (const kn__row *row = from->first; row; row = row->next) {
        kn__row *same = kn__report_row(sum, to, row->label);
        assert_non_null(same);
        same->n_calls += row->n_calls;
        same->time_ns += row->time_ns;
        same->n_ended += row->n_ended;
        same->squares_ns2 += row->squares_ns2;
        if (row->n_ended && row->min_ns < same->min_ns) same->min_ns = row->min_ns;
        if (row->max_ns > same->max_ns) same->max_ns = row->max_ns;
        add_rows(sum, same, row);
    }
}

static void assert_equal_rows(const kn__report *merged, const kn__row *a, const kn__row *parent) {
    for (const kn__row *row = a->first; row; row = row->next) {
        const kn__row *same = parent->first;
        while (same && strcmp(same->label, row->label) != 0) same = same->next;
        assert_non_null(same);
        assert_int_equal(same->n_calls, row->n_calls);
        assert_int_equal(same->time_ns, row->time_ns);
        assert_int_equal(same->n_ended, row->n_ended);
        assert_int_equal(same->min_ns, row->min_ns == UINT64_MAX ? 0 : row->min_ns);
        assert_int_equal(same->max_ns, row->max_ns);
        assert_close(same->squares_ns2, row->squares_ns2, 1e-12, 0);
        assert_equal_rows(merged, row, same);
    }
}

static void trees_merge_to_the_same_in_any_order(void **state) {
    (void)state;
    pthread_t threads[TREES];
    assert_ok(kn_prof_owners_on());
    assert_int_equal(pthread_barrier_init(&all_begun, NULL, TREES), 0);
    for (uintptr_t i = 0; i < TREES; i++) {
        void *seed = (void *)(uintptr_t)(test_random_below(UINT32_MAX) + i);
        assert_int_equal(pthread_create(&threads[i], NULL, scopes_at_random, seed), 0);
    }
    for (int i = 0; i < TREES; i++) pthread_join(threads[i], NULL);
    uint64_t now = kn__clock_now();
    static kn__report merged, trees[256];
    int n = 0;
    assert_ok(kn__report_take(&merged, now, 1.0));
    for (const kn__tree *tree = kn__tree_first(); tree && n < 256; tree = tree->next) {
        assert_ok(kn__report_take_tree(&trees[n++], tree, now, 1.0));
    }
    assert_true(n >= TREES);
    for (int round = 0; round < 5; round++) {
        kn__report sum;
        kn__report_init(&sum);
        int first = (int)test_random_below((uint64_t)n), step = round % 2 ? 1 : n - 1;
        for (int i = 0, at = first; i < n; i++, at = (at + step) % n) {
            add_rows(&sum, &sum.root, &trees[at].root);
        }
        assert_equal_rows(&merged, &sum.root, &merged.root);
        kn__report_release(&sum);
    }
    for (int i = 0; i < n; i++) kn__report_release(&trees[i]);
    kn__report_release(&merged);
}

/* --- a call that ends while it is read --- */

enum { CALL_TICKS = 1 << 29, NOW = 1 << 30 };
#ifdef __SANITIZE_THREAD__ /* which is slow, and looks at order alone */
enum { READINGS = 3000 };
#else
enum { READINGS = 300000 };
#endif
static kn__tree_node ending = {.label = "ending", .ticks_min = UINT64_MAX};
static atomic_bool stop_ending;

/* As a scope is opened and closed, but that its past is forgotten before each call. */
static void *end_calls(void *arg) {
    for (uint64_t i = 0; !atomic_load(&stop_ending); i++) {
        KN__STORE(ending.ticks, 0);
        KN__STORE(ending.start, NOW - CALL_TICKS - i % 100000); /* no two alike soon */
        for (volatile int k = 0; k < 10; k++) continue;
        KN__STORE(ending.start, 0);
        KN__STORE(ending.ticks, CALL_TICKS);
        for (volatile int k = 0; k < 10; k++) continue;
    }
    return arg;
}

static void a_call_that_ends_while_it_is_read_counts_once(void **state) {
    (void)state;
    static kn__tree tree;
    pthread_t thread;
    uint64_t most = 0;
    tree.root.label = "";
    ending.parent = &tree.root;
    KN__STORE(tree.root.first_child, &ending);
    assert_int_equal(pthread_create(&thread, NULL, end_calls, NULL), 0);
    for (int i = 0; i < READINGS; i++) {
        kn__report report;
        assert_ok(kn__report_take_tree(&report, &tree, NOW, 1.0));
        if (report.root.first->time_ns > most) most = report.root.first->time_ns;
        kn__report_release(&report);
    }
    atomic_store(&stop_ending, true);
    pthread_join(thread, NULL);
    assert_in_range(most, CALL_TICKS, CALL_TICKS + 100000);
}

static void expect_shown(kn__tree *tree, uint64_t now, uint64_t n_calls, uint64_t time_ns) {
    kn__report report;
    assert_ok(kn__report_take_tree(&report, tree, now, 1.0));
    assert_int_equal(report.root.first->n_calls, n_calls);
    assert_int_equal(report.root.first->time_ns, time_ns);
    kn__report_release(&report);
}

static void set_calls(kn__tree_node *node, uint64_t start, uint64_t ticks, uint64_t n_calls) {
    node->start = start;
    node->ticks = ticks;
    node->n_calls = n_calls;
}

/* Its thread was preempted between the clock and the counters, and ran on between the reports. */
static void a_call_that_was_over_when_it_was_shown_takes_nothing_back(void **state) {
    (void)state;
    static kn__tree tree;
    static kn__tree_node late = {.label = "late", .ticks_min = UINT64_MAX};
    tree.root.label = "";
    late.parent = &tree.root;
    tree.root.first_child = &late;
    set_calls(&late, 1000, 0, 0);
    expect_shown(&tree, 3000, 1, 2000); /* as if open */
    set_calls(&late, 0, 0, 0);          /* neither open nor counted yet */
    expect_shown(&tree, 3500, 1, 2000);
    late.ticks_min = 10;
    set_calls(&late, 0, 10, 1); /* it took 10 */
    expect_shown(&tree, 4000, 1, 2000);
    set_calls(&late, 0, 60, 4); /* three more, of 10 and longer */
    expect_shown(&tree, 5000, 4, 2030);
    expect_shown(&tree, 6000, 4, 2030);
    set_calls(&late, 8000, 60, 4);
    expect_shown(&tree, 9000, 5, 2030);
    set_calls(&late, 0, 5060, 5); /* more than was ever shown */
    expect_shown(&tree, 14000, 5, 5060);
}

static void same_label_elsewhere(void) { KN_SCOPE("counted"); }

enum { CALLERS = 6 };

static void *call_both(void *barrier) {
    {
        KN_SCOPE("counted");
        { KN_SCOPE("each"); }
    }
    same_label_elsewhere();
    if (barrier) pthread_barrier_wait(barrier);
    return NULL;
}

/* Threads that follow each other share a tree, and those that live at once don't. */
static void a_row_counts_threads_however_they_were_scheduled(void **state) {
    (void)state;
    pthread_t threads[CALLERS];
    pthread_barrier_t barrier;
    kn__report report;
    pthread_barrier_init(&barrier, NULL, CALLERS);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_both, NULL), 0);
        pthread_join(threads[i], NULL);
    }
    take_report(&report);
    assert_int_equal(find_row(&report, "counted")->n_threads, CALLERS);
    assert_int_equal(find_row(&report, "counted/each")->n_threads, CALLERS);
    kn__report_release(&report);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_both, &barrier), 0);
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    call_both(NULL);
    take_report(&report);
    assert_int_equal(find_row(&report, "counted")->n_threads, 2 * CALLERS + 1);
    assert_int_equal(find_row(&report, "counted/each")->n_threads, 2 * CALLERS + 1);
    kn__report_release(&report);
    pthread_barrier_destroy(&barrier);
}

static void open_scope(void *value) {
    KN_SCOPE("at the thread's end");
    (void)value;
}

static void *end_with_a_scope(void *key) {
    same_label_elsewhere();
    pthread_setspecific(*(pthread_key_t *)key, key);
    return NULL;
}

/* Its tree is another thread's by then. */
static void a_thread_whose_destructor_opens_a_scope_is_one(void **state) {
    (void)state;
    kn__report report;
    uint64_t before = kn__tree_threads();
    pthread_key_t key; /* younger than the timer's: destroyed after it */
    assert_int_equal(pthread_key_create(&key, open_scope), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, end_with_a_scope, &key), 0);
        pthread_join(thread, NULL);
    }
    take_report(&report);
    assert_int_equal(find_row(&report, "at the thread's end")->n_calls, CALLERS);
    assert_int_equal(kn__tree_threads() - before, CALLERS);
    kn__report_release(&report);
    pthread_key_delete(key);
}

/* --- threads that are cancelled where a source or a report waits --- */

static kn_status begin_to_end(void *ctx) {
    (void)ctx;
    return KN_OK;
}
static void end_here(void *ctx) {
    (void)ctx;
    pthread_testcancel();
}
static void drain_and_end(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx, (void)fn, (void)sink;
    pthread_testcancel();
}
static void pause_and_end(void *ctx, bool paused) {
    (void)ctx, (void)paused;
    pthread_testcancel();
}
static uint64_t drop_none(void *ctx) {
    (void)ctx;
    return 0;
}

static const kn__source ends = {.name = "ends",
                                .start = begin_to_end,
                                .stop = end_here,
                                .drain = drain_and_end,
                                .dropped = drop_none,
                                .pause = pause_and_end};

static void measure_and_end(bool on) {
    (void)on;
    pthread_testcancel();
}

static void report_to_nowhere(void *unused) {
    (void)unused;
    assert_ok(kn_prof_report("/dev/null"));
}
static void pause_and_resume(void *unused) {
    (void)unused;
    kn_prof_pause();
    kn_prof_resume();
}
static void step(void *unused) {
    (void)unused;
    kn_step();
}

static void a_cancelled_thread_keeps_no_lock(void **state) {
    (void)state;
    kn__step_plan plan = {.first = kn__steps_seen() + 2};
    assert_ok(kn_prof_owners_on());
    { KN_SCOPE("work"); }
    assert_ok(kn__activity_start(&ends));
    assert_ends_after(report_to_nowhere, NULL);
    assert_ends_after(pause_and_resume, NULL);
    kn__steps_start(&plan, measure_and_end, NULL);
    assert_ends_after(step, NULL);
    kn__steps_start(&(kn__step_plan){.first = 1}, NULL, NULL);
    assert_ok(kn_prof_report("/dev/null"));
    kn__activity_stop();
}

int main(void) {
    return RUN_TESTS(TEST(reports_may_be_taken_while_threads_run),
                     TEST(trees_merge_to_the_same_in_any_order),
                     TEST(a_row_counts_threads_however_they_were_scheduled),
                     TEST(a_thread_whose_destructor_opens_a_scope_is_one),
                     TEST(a_call_that_ends_while_it_is_read_counts_once),
                     TEST(a_call_that_was_over_when_it_was_shown_takes_nothing_back),
                     TEST(a_cancelled_thread_keeps_no_lock));
}
