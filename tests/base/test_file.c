/* Writes that fail, and the signals that they raise. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "file.h"
#include "test.h"

static bool is_member(int (*of)(sigset_t *), int number) {
    sigset_t set;
    assert_int_equal(of(&set), 0);
    return sigismember(&set, number);
}

static int blocked(sigset_t *set) { return pthread_sigmask(SIG_BLOCK, NULL, set); }

/* As SIGPIPE is not blocked here, getting it would end the test. */
static void a_reader_that_has_gone_is_an_error_and_no_signal(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(kn__write_all(ends[1], "some", 4), 0);
    close(ends[0]);
    assert_int_equal(kn__write_all(ends[1], "more", 4), EPIPE);
    close(ends[1]);
    assert_false(is_member(blocked, SIGPIPE));
    assert_false(is_member(sigpending, SIGPIPE));
}

static void a_signal_of_the_program_stays_pending(void **state) {
    (void)state;
    int ends[2], got = 0;
    sigset_t pipe_alone;
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_alone, NULL);
    raise(SIGPIPE);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(kn__write_all(ends[1], "x", 1), EPIPE);
    close(ends[1]);
    assert_true(is_member(blocked, SIGPIPE));
    assert_true(is_member(sigpending, SIGPIPE));
    assert_int_equal(sigwait(&pipe_alone, &got), 0);
    assert_int_equal(got, SIGPIPE);
    assert_false(is_member(sigpending, SIGPIPE));
    pthread_sigmask(SIG_UNBLOCK, &pipe_alone, NULL);
}

static void a_closed_file_is_an_error(void **state) {
    (void)state;
    assert_int_equal(kn__write_all(-1, "x", 1), EBADF);
    assert_int_equal(kn__write_all(-1, NULL, 0), 0);
}

int main(void) {
    return RUN_TESTS(TEST(a_reader_that_has_gone_is_an_error_and_no_signal),
                     TEST(a_signal_of_the_program_stays_pending), TEST(a_closed_file_is_an_error));
}
