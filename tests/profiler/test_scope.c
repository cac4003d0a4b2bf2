#include "scope.h"

#include <knet/prof_call.h>
#include <pthread.h>

#include "test.h"
#include "timer_fixture.h"

static uint64_t calls(const char *path) {
    const kn__row *row = find_row(&report, path);
    return row ? row->n_calls : 0;
}

static const kn__tree_node *innermost(void) { return kn__tree_mine->current; }

static void scopes_nest_and_count(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("nest");
        for (int j = 0; j < 2; j++) {
            KN_SCOPE("inner");
        }
        KN_SCOPE("other");
    }
    take_report(&report);
    assert_int_equal(calls("nest"), 3);
    assert_int_equal(calls("nest/inner"), 6);
    assert_int_equal(calls("nest/other"), 3);
    assert_int_equal(calls("inner"), 0);
    const kn__row *nest = find_row(&report, "nest");
    assert_true(nest->min_ns <= nest->first_ns && nest->first_ns <= nest->max_ns);
    assert_true(nest->max_ns <= nest->time_ns);
}

static void leaves_early(int how) {
    KN_SCOPE("early");
    if (how == 0) return;
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("loop");
        if (how == 1) continue;
        if (how == 2) break;
        goto out;
    }
out:
    return;
}

static void scope_closes_on_every_way_out_of_its_block(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) leaves_early(how);
    assert_int_equal(innermost()->depth, 0);
    take_report(&report);
    assert_int_equal(calls("early"), 4);
    assert_int_equal(calls("early/loop"), 5);
}

static void ending_a_scope_ends_all_opened_inside(void **state) {
    (void)state;
    kn_scope outer = kn_scope_begin_static("outer");
    kn_scope middle = kn_scope_begin_static("middle");
    kn_scope inner = kn_scope_begin_static("inner");
    kn_scope_end(&outer);
    assert_int_equal(innermost()->depth, 0);
    kn_scope_end(&inner); /* closed already: nothing */
    kn_scope_end(&middle);
    take_report(&report);
    assert_int_equal(calls("outer"), 1);
    assert_int_equal(calls("outer/middle"), 1);
    assert_int_equal(calls("outer/middle/inner"), 1);
    assert_false(find_row(&report, "outer/middle/inner")->open);
}

static void ending_twice_is_a_no_op(void **state) {
    (void)state;
    kn_scope first = kn_scope_begin_static("twice");
    kn_scope_end(&first);
    kn_scope second = kn_scope_begin_static("twice"); /* the same node, another call */
    kn_scope_end(&first);
    assert_string_equal(innermost()->label, "twice");
    kn_scope_end(&second);
    kn_scope_end(&second);
    take_report(&report);
    assert_int_equal(calls("twice"), 2);
}

static void *end_elsewhere(void *arg) {
    { KN_SCOPE("tree of the other thread"); }
    kn_scope own = kn_scope_begin_static("own");
    kn_scope_end(arg);
    bool still = kn__tree_mine->current->depth == 1;
    kn_scope_end(&own);
    return still ? arg : NULL;
}

static void ending_on_another_thread_is_a_no_op(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin_static("at home");
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &scope), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_string_equal(innermost()->label, "at home");
    kn_scope_end(&scope);
}

static void labels_of_equal_text_are_one_row(void **state) {
    (void)state;
    static const char here[] = "same text", there[] = "same text";
    char text[] = "same text";
    kn_scope scope = kn_scope_begin_static(here);
    kn_scope_end(&scope);
    scope = kn_scope_begin_static(there);
    kn_scope_end(&scope);
    for (int i = 0; i < 2; i++) {
        scope = kn_scope_begin(text);
        kn_scope_end(&scope);
    }
    take_report(&report);
    assert_int_equal(calls("same text"), 4);
}

static void text_labels_are_copied(void **state) {
    (void)state;
    char label[32];
    for (int i = 0; i < 50; i++) {
        snprintf(label, sizeof label, "copied %d", i % 10);
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    memset(label, 'x', sizeof label);
    take_report(&report);
    for (int i = 0; i < 10; i++) {
        snprintf(label, sizeof label, "copied %d", i);
        assert_int_equal(calls(label), 5);
    }
}

static void copied_labels_keep_the_place_of_their_first_scope(void **state) {
    (void)state;
    static const char *const labels[] = {"pass a\0a.c:1", "pass b\0b.c:2", "pass a\0c.c:3"};
    static const char *const wheres[] = {"a.c:1", "b.c:2", "a.c:1"};
    char label[16];
    for (int i = 0; i < 3; i++) { /* all at one address */
        memcpy(label, labels[i], sizeof "pass a\0a.c:1");
        kn_scope scope = kn_scope_begin_copied_on_(label);
        assert_string_equal(innermost()->where, wheres[i]);
        kn_scope_end(&scope);
    }
    take_report(&report);
    assert_int_equal(calls("pass a"), 2);
    assert_int_equal(calls("pass b"), 1);
}

static void open_scopes_are_in_the_report(void **state) {
    (void)state;
    kn_scope scope = kn_scope_begin_static("still open");
    uint64_t begun = kn__clock_monotonic_ns();
    while (kn__clock_monotonic_ns() - begun < 1000) {
    }
    take_report(&report);
    assert_int_equal(calls("still open"), 1);
    assert_true(find_row(&report, "still open")->open);
    assert_true(find_row(&report, "still open")->time_ns >= 900); /* a coarse clock is 10 ns off */
    kn_scope_end(&scope);
}

static void depth_is_bounded_and_the_rest_is_counted(void **state) {
    (void)state;
    kn_scope outer = kn_scope_begin_static("deep");
    kn_scope scopes[300];
    for (int i = 0; i < 300; i++) scopes[i] = kn_scope_begin_static("deeper");
    assert_int_equal(innermost()->depth, KN__DEPTH_MAX);
    assert_int_equal(scopes[299].start, 0);
    for (int i = 299; i >= 0; i--) kn_scope_end(&scopes[i]);
    kn_scope_end(&outer);
    assert_int_equal(innermost()->depth, 0);
    take_report(&report);
    assert_int_equal(report.n_unrecorded, 301 - KN__DEPTH_MAX);
}

static int doubled(int x) { return 2 * x; }

static void calls_are_wrapped_in_expressions_and_statements(void **state) {
    (void)state;
    int x = KN_PROF_FN(doubled, KN_PROF_FN(doubled, 5));
    assert_int_equal(x, 20);
    double y = KN_PROF_CALL("a call", 1.5 + x);
    assert_true(y == 21.5);
    KN_PROF_DO("a statement", x = 1, y = 2);
    assert_int_equal(x, 1);
    take_report(&report);
    assert_int_equal(calls("doubled"), 1);
    assert_int_equal(calls("doubled/doubled"), 1);
    assert_int_equal(calls("a call"), 1);
    assert_int_equal(calls("a statement"), 1);
}

static void *open_and_leave(void *arg) {
    (void)arg;
    kn_scope scope = kn_scope_begin_static("thread");
    (void)kn_scope_begin_static("left open");
    (void)scope;
    return NULL;
}

static void threads_are_merged_by_path(void **state) {
    (void)state;
    size_t n_trees = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_and_leave, NULL), 0);
        pthread_join(thread, NULL);
    }
    take_report(&report);
    assert_int_equal(calls("thread"), 20);
    assert_int_equal(calls("thread/left open"), 20);
    assert_false(find_row(&report, "thread/left open")->open);
    for (const kn__tree *tree = kn__tree_first(); tree; tree = tree->next) n_trees++;
    assert_true(n_trees <= 3); /* a thread takes over the tree of one that ended */
}

/* --- random scopes against a model --- */

enum { MODEL_LABELS = 6, MODEL_DEPTH = 12, MODEL_PATHS = 4096 };

typedef struct model {
    char path[MODEL_DEPTH + 1][64]; /* of each open scope; [0] is the test's own */
    kn_scope scopes[MODEL_DEPTH + 1];
    int depth;
    char seen[MODEL_PATHS][64];
    uint64_t count[MODEL_PATHS];
    int n_seen;
} model;

static void model_count(model *m, const char *path) {
    int i = 0;
    while (i < m->n_seen && strcmp(m->seen[i], path) != 0) i++;
    if (i == m->n_seen) memcpy(m->seen[m->n_seen++], path, strlen(path) + 1);
    m->count[i]++;
}

static void random_scopes_agree_with_a_model(void **state) {
    (void)state;
    static const char *const labels[MODEL_LABELS] = {"a", "b", "c", "d", "e", "f"};
    static model m;
    strcpy(m.path[0], "random");
    m.scopes[0] = kn_scope_begin_static("random");
    kn_scope dead = m.scopes[0];
    for (int i = 0; i < 20000; i++) {
        uint64_t what = test_random_below(10);
        if (what < 5 && m.depth < 3) {
            const char *label = labels[test_random_below(MODEL_LABELS)];
            char copy[8];
            snprintf(copy, sizeof copy, "%s", label);
            m.depth++;
            m.scopes[m.depth] =
                test_random_below(2) ? kn_scope_begin_static(label) : kn_scope_begin(copy);
            char path[64];
            snprintf(path, sizeof path, "%.50s/%s", m.path[m.depth - 1], label);
            memcpy(m.path[m.depth], path, sizeof path);
            model_count(&m, m.path[m.depth]);
        } else if (what < 9 && m.depth > 0) { /* any open one: closes those inside */
            int at = 1 + (int)test_random_below((uint64_t)m.depth);
            dead = m.scopes[at];
            kn_scope_end(&m.scopes[at]);
            m.depth = at - 1;
        } else if (dead.start != m.scopes[0].start) {
            kn_scope_end(&dead);
        }
        assert_int_equal(innermost()->depth, m.depth + 1);
    }
    kn_scope_end(&m.scopes[0]);
    take_report(&report);
    for (int i = 0; i < m.n_seen; i++) assert_int_equal(calls(m.seen[i]), m.count[i]);
}

static void times_of_children_fit_into_their_parent(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        KN_SCOPE("sum");
        { KN_SCOPE("one"); }
        { KN_SCOPE("two"); }
        { KN_SCOPE("three"); }
    }
    take_report(&report);
    const kn__row *sum = find_row(&report, "sum");
    uint64_t inside = 0;
    for (const kn__row *row = sum->first; row; row = row->next) inside += row->time_ns;
    assert_true(inside <= sum->time_ns + 3); /* each is rounded to nanoseconds */
}

static void the_deviation_fits_between_shortest_and_longest(void **state) {
    (void)state;
    for (volatile int i = 0; i < 40; i++) {
        KN_SCOPE("deviation");
        for (volatile int j = 0; j < 100 * (i % 2); j++) {
        }
    }
    take_report(&report);
    const kn__row *row = find_row(&report, "deviation");
    double sigma = kn__row_sigma(row), spread = (double)(row->max_ns - row->min_ns + 1);
    assert_int_equal(row->n_ended, 40);
    assert_true(sigma > 0 && sigma <= spread);
    kn__row two = {.n_ended = 2, .ended_ns = 40, .squares_ns2 = 10 * 10 + 30 * 30};
    assert_close(kn__row_sigma(&two), 14.142135623731, 1e-12, 0);
    two = (kn__row){.n_ended = 1, .ended_ns = 40, .squares_ns2 = 1600};
    assert_close(kn__row_sigma(&two), 0, 0, 0);
}

/* The label of a call may lie in a library that may be unloaded: then its node has none of its own.
 */
static void a_call_is_closed_by_its_name(void **state) {
    (void)state;
    kn_scope outer = kn_scope_begin("outer of a call");
    char name[] = "a call";
    (void)kn_scope_begin("a call");
    kn__scope_end_key("another call");
    assert_string_equal(kn__tree_mine->current->label, "a call");
    kn__scope_end_key(name);
    assert_string_equal(kn__tree_mine->current->label, "outer of a call");
    kn_scope_end(&outer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(scopes_nest_and_count, timer_setup, timer_teardown),
        TEST_WITH(scope_closes_on_every_way_out_of_its_block, timer_setup, timer_teardown),
        TEST_WITH(ending_a_scope_ends_all_opened_inside, timer_setup, timer_teardown),
        TEST_WITH(ending_twice_is_a_no_op, timer_setup, timer_teardown),
        TEST_WITH(ending_on_another_thread_is_a_no_op, timer_setup, timer_teardown),
        TEST_WITH(labels_of_equal_text_are_one_row, timer_setup, timer_teardown),
        TEST_WITH(text_labels_are_copied, timer_setup, timer_teardown),
        TEST_WITH(copied_labels_keep_the_place_of_their_first_scope, timer_setup, timer_teardown),
        TEST_WITH(a_call_is_closed_by_its_name, timer_setup, timer_teardown),
        TEST_WITH(open_scopes_are_in_the_report, timer_setup, timer_teardown),
        TEST_WITH(depth_is_bounded_and_the_rest_is_counted, timer_setup, timer_teardown),
        TEST_WITH(calls_are_wrapped_in_expressions_and_statements, timer_setup, timer_teardown),
        TEST_WITH(threads_are_merged_by_path, timer_setup, timer_teardown),
        TEST_WITH(random_scopes_agree_with_a_model, timer_setup, timer_teardown),
        TEST_WITH(times_of_children_fit_into_their_parent, timer_setup, timer_teardown),
        TEST_WITH(the_deviation_fits_between_shortest_and_longest, timer_setup, timer_teardown),
    };
    return cmocka_run_group_tests_name("profiler.scope", tests, NULL, NULL);
}
