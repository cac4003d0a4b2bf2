/* Scopes by a clock that stands still or goes back, as clocks of some machines do. */
#include "clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "report_maker.h"
#include "test.h"

static bool is_held;
static struct timespec held;

/* In place of the C library's, for the profiler that is linked in. */
int clock_gettime(clockid_t id, struct timespec *out) {
    if (!is_held || id != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, id, out);
    *out = held;
    return 0;
}

static void hold(void) {
    is_held = false;
    clock_gettime(CLOCK_MONOTONIC, &held);
    is_held = true;
}

static void the_clock_is_the_one_of_this_test(void **state) {
    (void)state;
    assert_int_equal(kn__clock_used, KN__CLOCK_MONOTONIC);
    hold();
    uint64_t now = kn__clock_now();
    assert_int_equal(kn__clock_now(), now);
    is_held = false;
}

static void a_stopped_clock_keeps_the_scopes_right(void **state) {
    (void)state;
    hold();
    kn_scope outer = kn_scope_begin_static("outer"), inner = kn_scope_begin_static("inner");
    assert_true(inner.start > outer.start);
    kn_scope_end(&outer); /* and the scopes inside it */
    assert_null(kn__tree_mine->current->parent);
    is_held = false;
}

static void a_clock_that_jumps_back_gives_zero_time(void **state) {
    (void)state;
    kn__report report;
    hold();
    kn_scope scope = kn_scope_begin_static("back");
    held.tv_sec--;
    kn_scope_end(&scope);
    is_held = false;
    take_report(&report);
    const kn__row *row = find_row(&report, "back");
    assert_int_equal(row->n_calls, 1);
    assert_int_equal(row->time_ns, 0);
    assert_int_equal(row->max_ns, 0);
    kn__report_release(&report);
}

int main(void) {
    if (kn_prof_owners_on() < 0) return 1;
    return RUN_TESTS(TEST(the_clock_is_the_one_of_this_test),
                     TEST(a_stopped_clock_keeps_the_scopes_right),
                     TEST(a_clock_that_jumps_back_gives_zero_time));
}
