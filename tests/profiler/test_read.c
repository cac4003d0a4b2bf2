/* Scopes read out by the program. KNET_TIMER=1. */
#include <knet/prof.h>
#include <knet/prof_read.h>
#include <time.h>

#include "test.h"

static void spin(double ms) {
    struct timespec t = {0, (long)(ms * 1e6)};
    nanosleep(&t, NULL);
}

static void work(void) {
    KN_SCOPE("work");
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("inner");
        spin(1);
    }
    KN_SCOPE("other");
    spin(1);
    KN_SCOPE("inner");
    spin(1);
}

static void a_path_has_its_numbers(void **state) {
    (void)state;
    kn_prof_row row, inner;
    work();
    assert_ok(kn_prof_read(&row, sizeof row, "work"));
    assert_ok(kn_prof_read(&inner, sizeof inner, "work/inner"));
    assert_string_equal(inner.path, "work/inner");
    assert_int_equal(row.n_calls, 1);
    assert_int_equal(row.depth, 1);
    assert_int_equal(inner.n_calls, 3);
    assert_int_equal(inner.depth, 2);
    assert_true(inner.time_ns >= 3000000 && inner.own_ns == inner.time_ns);
    assert_true(row.time_ns >= inner.time_ns + 2000000);
    assert_true(row.own_ns < row.time_ns - inner.time_ns);
    assert_fails(kn_prof_read(&row, sizeof row, "inner"), KN_ERR_INVALID, "no scope 'inner'");
    assert_fails(kn_prof_read(&row, sizeof row, NULL), KN_ERR_INVALID, "the path is NULL");
    assert_fails(kn_prof_read(NULL, sizeof row, "work"), KN_ERR_INVALID, "out is NULL");
}

static void a_reset_starts_from_zero(void **state) {
    (void)state;
    kn_prof_row row;
    work();
    assert_ok(kn_prof_reset());
    assert_ok(kn_prof_read(&row, sizeof row, "work/inner"));
    assert_int_equal(row.n_calls, 0);
    assert_int_equal(row.time_ns, 0);
    assert_int_equal(row.own_ns, 0);
    work();
    work();
    assert_ok(kn_prof_read(&row, sizeof row, "work/inner"));
    assert_int_equal(row.n_calls, 6);
    assert_true(row.time_ns >= 6000000);
    assert_ok(kn_prof_reset());
    work();
    assert_ok(kn_prof_read(&row, sizeof row, "work/other/inner"));
    assert_int_equal(row.n_calls, 1);
}

typedef struct seen {
    char text[512];
    int stop; /* after this many rows; 0: never */
    uint64_t own_ns, top_ns;
} seen;

static bool see(void *ctx, const kn_prof_row *row) {
    seen *s = ctx;
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s %d;", row->path, (int)row->n_calls);
    s->own_ns += row->own_ns;
    if (row->depth == 1) s->top_ns += row->time_ns;
    return --s->stop != 0;
}

static void rows_come_as_a_tree_and_by_label(void **state) {
    (void)state;
    seen tree = {.text = ""}, flat = {.text = ""}, two = {.text = "", .stop = 2};
    assert_ok(kn_prof_reset());
    work();
    assert_ok(kn_prof_visit(see, &tree));
    assert_string_equal(tree.text, "work 1;work/inner 3;work/other 1;work/other/inner 1;");
    assert_close((double)tree.own_ns, (double)tree.top_ns, 1e-3, 1000);
    assert_ok(kn_prof_visit_flat(see, &flat));
    assert_non_null(strstr(flat.text, "inner 4;"));
    assert_non_null(strstr(flat.text, "work 1;"));
    assert_null(strstr(flat.text, "/"));
    assert_ok(kn_prof_visit(see, &two));
    assert_string_equal(two.text, "work 1;work/inner 3;");
    assert_fails(kn_prof_visit(NULL, NULL), KN_ERR_INVALID, "fn is NULL");
}

/* However often the clock's rate is measured: to Prometheus a lower value is another program. */
static void times_of_scopes_that_ended_never_decrease(void **state) {
    (void)state;
    kn_prof_row row, inner;
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) work();
    for (int i = 0; i < 300; i++) {
        assert_ok(kn_prof_read(&row, sizeof row, "work"));
        assert_ok(kn_prof_read(&inner, sizeof inner, "work/inner"));
        assert_true(row.time_ns >= before && row.own_ns <= row.time_ns);
        assert_true(inner.own_ns == inner.time_ns);
        before = row.time_ns;
    }
}

enum { DEEP = 60, LABEL = 90 };

static void deeper(int n) {
    char label[LABEL];
    memset(label, 'a' + n % 26, sizeof label - 1);
    label[LABEL - 1] = '\0';
    kn_scope scope = kn_scope_begin(label);
    if (n + 1 < DEEP) deeper(n + 1);
    kn_scope_end(&scope);
}

typedef struct longest {
    char path[DEEP * LABEL + 1];
    int depth;
} longest;

static bool find_longest(void *ctx, const kn_prof_row *row) {
    longest *l = ctx;
    if (row->depth > l->depth) snprintf(l->path, sizeof l->path, "%s", row->path);
    if (row->depth > l->depth) l->depth = row->depth;
    return true;
}

static void paths_of_any_length_are_read(void **state) {
    (void)state;
    longest l = {.depth = 0};
    kn_prof_row row;
    deeper(0);
    assert_ok(kn_prof_visit(find_longest, &l));
    assert_int_equal(l.depth, DEEP);
    assert_int_equal(strlen(l.path), DEEP * LABEL - 1);
    assert_ok(kn_prof_read(&row, sizeof row, l.path));
    assert_int_equal(row.depth, DEEP);
    assert_int_equal(row.n_calls, 1);
    l.depth = 0;
    assert_ok(kn_prof_visit_flat(find_longest, &l));
    assert_int_equal(l.depth, 1);
}

static void labels_may_be_empty(void **state) {
    (void)state;
    char path[40];
    kn_prof_row row;
    kn_scope none = kn_scope_begin(""), inner = kn_scope_begin("in no name"),
             last = kn_scope_begin("");
    assert_string_equal(kn_prof_open_path(path, sizeof path, NULL), "/in no name/");
    kn_scope_end(&last);
    kn_scope_end(&inner);
    kn_scope_end(&none);
    assert_ok(kn_prof_read(&row, sizeof row, "/in no name"));
    assert_int_equal(row.depth, 2);
    assert_ok(kn_prof_read(&row, sizeof row, "/in no name/"));
    assert_int_equal(row.depth, 3);
    assert_fails(kn_prof_read(&row, sizeof row, "in no name"), KN_ERR_INVALID, "no scope");
}

/* Each of these waits for the lock of reports. */
static bool call_the_timer(void *ctx, const kn_prof_row *row) {
    kn_prof_row again;
    int *n = ctx;
    if (kn_prof_read(&again, sizeof again, row->path) == KN_OK) ++*n;
    if (kn_prof_report("/dev/null") == KN_OK) ++*n;
    if (kn_prof_reset() == KN_OK) ++*n;
    kn_step();
    return *row->path != '\0';
}

static void a_visitor_may_call_the_timer(void **state) {
    (void)state;
    int n = 0;
    work();
    assert_ok(kn_prof_reset());
    work();
    assert_ok(kn_prof_visit(call_the_timer, &n));
    assert_true(n > 0 && n % 3 == 0);
}

static void a_report_is_no_trace(void **state) {
    (void)state;
    assert_fails(kn_prof_report(""), KN_ERR_INVALID, "kn_prof_report: the path is empty");
    assert_fails(kn_prof_report(NULL), KN_ERR_INVALID, "kn_prof_report: the path is empty");
    assert_fails(kn_prof_report("run.pftrace"), KN_ERR_UNSUPPORTED, "run.pftrace is the name of");
    assert_ok(kn_prof_report("/dev/null"));
}

int main(void) {
    return RUN_TESTS(TEST(a_path_has_its_numbers), TEST(a_reset_starts_from_zero),
                     TEST(rows_come_as_a_tree_and_by_label),
                     TEST(times_of_scopes_that_ended_never_decrease),
                     TEST(paths_of_any_length_are_read), TEST(a_visitor_may_call_the_timer),
                     TEST(labels_may_be_empty), TEST(a_report_is_no_trace));
}
