/* Assertions: what a condition that fails prints, and that it ends the program. Built at level 1.
 */
#undef KN_CHECKED
#define KN_CHECKED 1
#include "checked.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static int evaluated(int value, int *n) {
    ++*n;
    return value;
}

static void condition_that_holds_does_nothing(void **state) {
    (void)state;
    int n = 0;
    KN_ASSERT(evaluated(1, &n));
    assert_int_equal(n, 1);
}

static void condition_above_the_level_is_not_evaluated(void **state) {
    (void)state;
    int n = 0;
    KN_ASSERT_SLOW(evaluated(0, &n));
    assert_int_equal(n, 0);
}

static _Noreturn void fail_in_child(int fd) {
    int blocks = 0;
    signal(SIGILL, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
    dup2(fd, STDERR_FILENO);
    KN_ASSERT(blocks > 0);
    _exit(0);
}

static void failed_condition_names_itself_and_its_place_and_traps(void **state) {
    (void)state;
    int fds[2], status = 0;
    char text[512] = "";
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) fail_in_child(fds[1]);
    close(fds[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    close(fds[0]);
    assert_true(WIFSIGNALED(status));
    assert_non_null(strstr(text, "test_checked.c:"));
    assert_non_null(strstr(text, ": fail_in_child: assertion failed: blocks > 0\n"));
}

int main(void) {
    return RUN_TESTS(TEST(condition_that_holds_does_nothing),
                     TEST(condition_above_the_level_is_not_evaluated),
                     TEST(failed_condition_names_itself_and_its_place_and_traps));
}
