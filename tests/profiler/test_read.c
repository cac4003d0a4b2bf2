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
}

static void a_reset_starts_from_zero(void **state) {
    (void)state;
    kn_prof_row row;
    work();
    assert_ok(kn_prof_reset());
    assert_ok(kn_prof_read(&row, sizeof row, "work/inner"));
    assert_int_equal(row.n_calls, 0);
    assert_true(row.time_ns < 100000); /* a tick's length is measured anew for each report */
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

int main(void) {
    return RUN_TESTS(TEST(a_path_has_its_numbers), TEST(a_reset_starts_from_zero),
                     TEST(rows_come_as_a_tree_and_by_label));
}
