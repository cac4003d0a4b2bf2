/* The files that knet train writes while it trains. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_dir.h"
#include "curves.h"
#include "pipe.h"
#include "test.h"
#include "train_files.h"

static int64_t epochs_of(const char *svg) {
    kn_epoch *epochs = NULL;
    int64_t n = kn__curves_read(&epochs, svg, INT64_MAX);
    free(epochs);
    return n;
}

/* The first epochs make a picture each; later ones a few for each doubling. Those between are in
 * the file as a line each. */
static void curves_are_drawn_as_the_epochs_grow(void **state) {
    (void)state;
    enum { N = 1000 };
    kn__train_files files = {.curves = path, .title = "mlp"};
    int n_drawings = 0;
    ino_t before = 0;
    assert_ok(kn__train_files_begin(&files));
    for (int64_t i = 1; i <= N; i++) {
        struct stat file;
        kn__train_files_add(&files, &(kn_epoch){.index = i, .loss = 1.0 / (double)i});
        assert_int_equal(epochs_of(path), i);
        assert_int_equal(stat(path, &file), 0);
        n_drawings += file.st_ino != before;
        before = file.st_ino;
    }
    assert_true(n_drawings > 64 && n_drawings < 160);
    kn__train_files_release(&files);
    assert_int_equal(epochs_of(path), N);
}

static bool is_picture(const char *svg) {
    char begin[5] = "";
    int fd = open(svg, O_RDONLY);
    bool is = fd >= 0 && read(fd, begin, 4) == 4 && strcmp(begin, "<svg") == 0;
    if (fd >= 0) close(fd);
    return is;
}

static void file_put(const char *at, const char *text) {
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Neither their lines alone nor a file of others with such lines is a picture. */
static void curves_that_were_moved_away_are_drawn_anew(void **state) {
    (void)state;
    char moved[sizeof path + 4];
    kn__train_files files = {.curves = path, .title = "mlp"};
    snprintf(moved, sizeof moved, "%s.old", path);
    assert_ok(kn__train_files_begin(&files));
    for (int64_t i = 1; i <= 300; i++) {
        if (i > 200) assert_int_equal(i % 3 ? rename(path, moved) : truncate(path, 0), 0);
        if (i > 200 && i % 3 == 2) file_put(path, "of others\n");
        kn__train_files_add(&files, &(kn_epoch){.index = i, .loss = 1.0 / (double)i});
        assert_true(is_picture(path));
        assert_int_equal(epochs_of(path), i);
    }
    kn__train_files_release(&files);
    assert_int_equal(epochs_of(moved), 298);
    assert_int_equal(unlink(moved), 0);
}

static void epochs_that_are_missing_leave_a_gap(void **state) {
    (void)state;
    static const kn_epoch epochs[] = {
        {.index = 3, .loss = 3}, {.index = 4, .loss = 2}, {.index = 13, .loss = 1}};
    kn__text svg = {0};
    kn__curves_svg(&svg, "mlp", epochs, 3);
    assert_non_null(strstr(svg.data, "cx=\"109.6\"")); /* a tenth of 456, from 64 on */
    kn__text_release(&svg);
}

/* --- pipes --- */

enum { LONG = 1 << 20 }; /* more than a pipe holds */

static char byte_at(int i) { return (char)(i % 251); }

/* In a process of its own. */
static void read_slowly(void) {
    static char part[5000];
    int at = 0, fd = open(path, O_RDONLY);
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) {
        for (int i = 0; i < n; i++)
            if (part[i] != byte_at(at++)) _exit(1);
        if (at < LONG / 4) usleep(1000);
    }
    _exit(at == LONG ? 0 : 2);
}

static void a_long_result_goes_through_a_pipe(void **state) {
    (void)state;
    static char bytes[LONG];
    int status = -1;
    for (int i = 0; i < LONG; i++) bytes[i] = byte_at(i);
    assert_int_equal(unlink(path), 0); /* the curves */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(kn__is_pipe(path));
    pid_t reader = fork();
    if (reader == 0) read_slowly();
    assert_int_equal(kn__pipe_write(path, bytes, LONG), 0);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    kn__interrupted = SIGTERM;
    assert_int_equal(kn__pipe_write(path, bytes, LONG), ENXIO);
    kn__interrupted = 0;
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(curves_are_drawn_as_the_epochs_grow), TEST(curves_that_were_moved_away_are_drawn_anew),
        TEST(epochs_that_are_missing_leave_a_gap), TEST(a_long_result_goes_through_a_pipe)};
    return cmocka_run_group_tests_name("test_train_files", tests, dir_make, dir_remove);
}
