/* Writes that fail, the signals that they raise, and the files that they leave. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/cancelled.h"
#include "file.h"
#include "kept_file.h"
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

enum { MUCH = 300 * 1000 }; /* more than a pipe holds */

static void *read_late(void *arg) {
    const int *fd = arg;
    static char part[10000];
    size_t got = 0;
    usleep(20000);
    for (ssize_t n; (n = read(*fd, part, sizeof part)) > 0;) got += (size_t)n;
    assert_int_equal(got, MUCH);
    return arg;
}

static void a_pipe_that_does_not_block_gets_all(void **state) {
    (void)state;
    static const char much[MUCH];
    int ends[2];
    pthread_t reader;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_late, &ends[0]), 0);
    assert_int_equal(kn__write_all(ends[1], much, MUCH), 0);
    close(ends[1]);
    assert_int_equal(pthread_join(reader, NULL), 0);
    close(ends[0]);
}

static void a_closed_file_is_an_error(void **state) {
    (void)state;
    assert_int_equal(kn__write_all(-1, "x", 1), EBADF);
    assert_int_equal(kn__write_all(-1, NULL, 0), 0);
}

/* --- contents that a function writes --- */

static int write_word(void *ctx, int fd) { return kn__write_all(fd, ctx, strlen(ctx)); }
static int write_and_fail(void *ctx, int fd) {
    write_word(ctx, fd);
    return ENOSPC;
}

static void assert_holds(const char *path, const char *want) {
    char text[64] = "";
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_true(fread(text, 1, sizeof text - 1, in) > 0);
    fclose(in);
    assert_string_equal(text, want);
}

static void a_writer_that_fails_leaves_the_old_file(void **state) {
    (void)state;
    char folder[] = "/tmp/knet_base_XXXXXX", path[64], word[] = "longer than before",
         less[] = "less";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(kn__file_write_by(path, write_and_fail, word), ENOSPC);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(kn__file_write_by(path, write_word, word), 0);
    assert_holds(path, word);
    assert_int_equal(kn__file_write_by(path, write_and_fail, less), ENOSPC);
    assert_holds(path, word);
    assert_int_equal(kn__file_write_by(path, write_word, less), 0);
    assert_holds(path, less);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing beside it is left */
}

static void an_append_that_fails_leaves_the_file(void **state) {
    (void)state;
    char folder[] = "/tmp/knet_base_XXXXXX", path[64];
    struct rlimit before, less;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(kn__file_append(path, "one\n", 4), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = before;
    less.rlim_cur = 6;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    int error = kn__file_append(path, "two\n", 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(error, EFBIG);
    assert_int_equal(kn__file_append(path, "three\n", 6), 0);
    assert_holds(path, "one\nthree\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* --- files that are open --- */

/* Writes while the stream `fd` is the file at path: before, `name`, added to, after. */
static void write_into_stream(int fd, const char *path, const char *name) {
    char word[] = "four";
    int before = dup(fd), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(before >= 0 && file >= 0);
    dup2(file, fd);
    int error = kn__write_all(fd, "one ", 4);
    error |= kn__file_write(name, "two ", 4) | kn__file_append(name, "three ", 6);
    error |= kn__file_write_by(name, write_word, word) | kn__write_all(fd, " five", 5);
    dup2(before, fd);
    close(before);
    close(file);
    assert_int_equal(error, 0);
    assert_holds(path, "one two three four five");
}

static void a_file_that_is_a_standard_stream_keeps_what_the_stream_wrote(void **state) {
    (void)state;
    static const char *const names[] = {"/proc/self/fd/1", "/proc/self/fd/2"};
    char folder[] = "/tmp/knet_base_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    for (int i = 0; i < 2; i++) {
        write_into_stream(STDOUT_FILENO + i, path, names[i]);
        write_into_stream(STDOUT_FILENO + i, path, path);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void a_link_to_a_file_without_a_path_stays(void **state) {
    (void)state;
    char folder[] = "/tmp/knet_base_XXXXXX", path[64], link[64], to[64], text[16] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    snprintf(to, sizeof to, "/proc/self/fd/%d", fd);
    assert_int_equal(symlink(to, link), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(kn__write_all(fd, "before", 6), 0);
    assert_int_equal(kn__file_write(link, "after", 5), 0);
    assert_int_equal(readlink(link, path, sizeof path), (ssize_t)strlen(to));
    assert_int_equal(pread(fd, text, sizeof text, 0), 5);
    assert_string_equal(text, "after");
    close(fd);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* --- writers of one file at the same time, which another removes again and again --- */

enum { WRITERS = 4, WRITES = 2000, BYTES = 4096 };

typedef struct writers {
    char path[64];
    _Atomic int n_begun, n_ended, n_torn;
} writers;

/* Whether the file is gone, or all of its bytes are those of one writer. */
static bool is_whole(const char *path, char *bytes) {
    FILE *in = fopen(path, "rb");
    if (!in) return errno == ENOENT;
    size_t n = fread(bytes, 1, BYTES + 1, in);
    fclose(in);
    return n == BYTES && memcmp(bytes, bytes + 1, BYTES - 1) == 0;
}

static void *write_often(void *ctx) {
    writers *w = ctx;
    char *mine = malloc(BYTES), *found = malloc(BYTES + 1);
    memset(mine, 'a' + w->n_begun++, BYTES);
    for (int i = 0; i < WRITES; i++)
        if (kn__file_write(w->path, mine, BYTES) != 0 || !is_whole(w->path, found)) w->n_torn++;
    free(mine);
    free(found);
    w->n_ended++;
    return NULL;
}

static void a_file_that_several_write_is_whole_at_any_time(void **state) {
    (void)state;
    writers w = {.n_begun = 0};
    pthread_t thread[WRITERS];
    snprintf(w.path, sizeof w.path, "/tmp/knet-file-%ld", (long)getpid());
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_often, &w), 0);
    while (w.n_ended < WRITERS) unlink(w.path);
    for (int i = 0; i < WRITERS; i++) pthread_join(thread[i], NULL);
    unlink(w.path);
    assert_int_equal(w.n_torn, 0);
}

/* In a process of its own: 0, or the errno. */
static int opened_elsewhere(const char *path) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(kn__open_output(path) < 0 ? errno : 0);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A lock ends when any descriptor of its file is closed, as that of a standard stream would be. */
static void an_output_opened_without_stdin_is_locked_too(void **state) {
    (void)state;
    char path[64];
    int stdin_before = dup(STDIN_FILENO);
    snprintf(path, sizeof path, "/tmp/knet-output-%ld", (long)getpid());
    assert_int_equal(close(STDIN_FILENO), 0);
    int fd = kn__open_output(path), elsewhere = opened_elsewhere(path);
    assert_int_equal(dup2(stdin_before, STDIN_FILENO), STDIN_FILENO);
    close(stdin_before);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(elsewhere, EWOULDBLOCK);
    close(fd);
    unlink(path);
}

static void two_processes_write_no_output_at_once(void **state) {
    (void)state;
    char path[64];
    struct stat s;
    snprintf(path, sizeof path, "/tmp/knet-output-%ld", (long)getpid());
    int fd = kn__open_output(path);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(kn__write_all(fd, "ours", 4), 0);
    assert_int_equal(opened_elsewhere(path), EWOULDBLOCK);
    assert_true(stat(path, &s) == 0 && s.st_size == 4);
    assert_non_null(strstr(kn__output_error(EWOULDBLOCK), "another process"));
    close(fd);
    assert_int_equal(opened_elsewhere(path), 0);
    assert_true(stat(path, &s) == 0 && s.st_size == 0);
    unlink(path);
    fd = kn__open_output("/dev/null");
    assert_int_equal(opened_elsewhere("/dev/null"), 0);
    close(fd);
}

static int to_cancelled = -1;

static void write_out(void *unused) {
    (void)unused;
    assert_int_equal(kn__write_all(to_cancelled, "some", 4), 0);
}

static void append(void *path) { assert_int_equal(kn__file_append(path, "more", 4), 0); }

static void open_and_close(void *path) {
    kn__kept_file file = kn__kept_file_of(kn__open_output(path));
    assert_true(kn__kept_file_is_open(&file));
    assert_int_equal(kn__kept_file_close(&file), 0);
}

static void a_thread_that_is_cancelled_writes_all(void **state) {
    (void)state;
    char path[] = "/tmp/knet_cancelled_XXXXXX";
    assert_true((to_cancelled = mkstemp(path)) >= 0);
    assert_ends_after(write_out, NULL);
    assert_ends_after(append, path);
    assert_holds(path, "somemore");
    assert_ends_after(open_and_close, path);
    close(to_cancelled);
    unlink(path);
}

static void a_relative_path_is_that_of_the_start(void **state) {
    (void)state;
    char here[KN__PATH_EXPANDED_BYTES], out[KN__PATH_EXPANDED_BYTES];
    char wanted[KN__PATH_EXPANDED_BYTES + 8], longest[KN__PATH_EXPANDED_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_non_null(getcwd(here, sizeof here));
    assert_string_equal(kn__path_from_start(out, "a/b"), "a/b"); /* no start is known */
    kn__start_remember();
    snprintf(wanted, sizeof wanted, "%s/a/b", here);
    assert_string_equal(kn__path_from_start(out, "a/b"), wanted); /* the program may go on */
    assert_int_equal(chdir("/"), 0);
    assert_string_equal(kn__path_from_start(out, "a/b"), wanted);
    assert_string_equal(kn__path_from_start(out, "/a/b"), "/a/b");
    assert_string_equal(kn__path_from_start(out, "-"), "-");
    assert_ptr_equal(kn__path_from_start(out, longest), longest);
    assert_int_equal(chdir(here), 0);
}

static void a_start_folder_that_cannot_be_reached_any_more_is_used_from_within(void **state) {
    (void)state;
    char closed[] = "/tmp/knet_closed_XXXXXX", in[64], out[KN__PATH_EXPANDED_BYTES];
    assert_non_null(mkdtemp(closed));
    snprintf(in, sizeof in, "%s/in", closed);
    assert_int_equal(mkdir(in, 0777), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(in) != 0) _exit(1);
        kn__start_remember();
        if (*kn__path_from_start(out, "a") != '/') _exit(2);
        if (chmod(closed, 0) != 0 || (geteuid() == 0 && seteuid(65534) != 0)) _exit(3);
        if (strcmp(kn__path_from_start(out, "a"), "a") != 0) _exit(4);
        _exit(chdir("/") == 0 && *kn__path_from_start(out, "a") == '/' ? 0 : 5);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(closed, 0700), 0);
    assert_int_equal(rmdir(in), 0);
    assert_int_equal(rmdir(closed), 0);
}

/* In the end no file either; but its own error would be another one. */
static void a_folder_that_cannot_be_made_says_why(void **state) {
    (void)state;
    int error = mkdir("/sys/knet", 0777) == 0 ? 0 : errno; /* nobody's to change */
    assert_true(error == EACCES || error == EPERM || error == EROFS);
    assert_int_equal(kn__make_parents("/sys/knet/deep/file", 0777), error);
    assert_int_equal(kn__make_parents("/dev/null/file", 0777), 0); /* it is there */
    assert_int_equal(kn__make_parents("/dev/null/deep/file", 0777), ENOTDIR);
    assert_int_equal(kn__make_parents("file", 0777), 0);
}

static void percent_signs_of_the_start_folder_are_no_pattern(void **state) {
    (void)state;
    char here[KN__PATH_EXPANDED_BYTES], in[] = "/tmp/knet_%p%%r_XXXXXX";
    char from[KN__PATH_EXPANDED_BYTES], out[KN__PATH_EXPANDED_BYTES], wanted[128];
    assert_non_null(getcwd(here, sizeof here));
    assert_non_null(mkdtemp(in));
    assert_int_equal(chdir(in), 0);
    kn__start_remember();
    assert_int_equal(chdir("/"), 0);
    assert_true(kn__path_expand(out, sizeof out, kn__path_from_start(from, "%p-%%p-%q%%")));
    snprintf(wanted, sizeof wanted, "%s/%ld-%%p-%%q%%", in, (long)getpid());
    assert_string_equal(out, wanted);
    assert_int_equal(rmdir(in), 0);
    assert_int_equal(chdir(here), 0);
}

static void a_pattern_is_what_is_expanded(void **state) {
    (void)state;
    static const char *const paths[] = {"",     "r",    "%",    "%r",    "%%r",
                                        "%%%r", "a%pr", "%q%r", "%%%%r%"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char first[64], second[64];
        setenv("RANK", "1", 1);
        assert_true(kn__path_expand(first, sizeof first, paths[i]));
        setenv("RANK", "2", 1);
        assert_true(kn__path_expand(second, sizeof second, paths[i]));
        assert_int_equal(kn__path_has(paths[i], 'r'), strcmp(first, second) != 0);
    }
    unsetenv("RANK");
    assert_true(kn__path_has("%r%p", 'p'));
    assert_false(kn__path_has("%r%%p", 'p'));
}

int main(void) {
    return RUN_TESTS(
        TEST(a_reader_that_has_gone_is_an_error_and_no_signal),
        TEST(a_signal_of_the_program_stays_pending), TEST(a_closed_file_is_an_error),
        TEST(a_pipe_that_does_not_block_gets_all), TEST(a_writer_that_fails_leaves_the_old_file),
        TEST(an_append_that_fails_leaves_the_file),
        TEST(a_file_that_is_a_standard_stream_keeps_what_the_stream_wrote),
        TEST(a_link_to_a_file_without_a_path_stays), TEST(a_pattern_is_what_is_expanded),
        TEST(a_folder_that_cannot_be_made_says_why),
        TEST(a_file_that_several_write_is_whole_at_any_time),
        TEST(two_processes_write_no_output_at_once),
        TEST(an_output_opened_without_stdin_is_locked_too),
        TEST(a_thread_that_is_cancelled_writes_all), TEST(a_relative_path_is_that_of_the_start),
        TEST(a_start_folder_that_cannot_be_reached_any_more_is_used_from_within),
        TEST(percent_signs_of_the_start_folder_are_no_pattern));
}
