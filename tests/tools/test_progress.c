/* The bar's line, as Knet.jl printed it, and how it fits a terminal. */
#include <knet/progress.h>
#include <pty.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

static void assert_line(int64_t done, int64_t total, double seconds, const char *message,
                        const char *want) {
    char line[512];
    assert_string_equal(kn_progress_text(line, sizeof line, 0, done, total, seconds, message),
                        want);
}

static void the_line_has_bar_share_count_times_and_rate(void **state) {
    (void)state;
    assert_line(903, 1040, 95.86, "loss 0.31",
                "┣█████████████████▎  ┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] loss 0.31");
    assert_line(500, 1000, 10, "",
                "┣██████████          ┫ [50.00%, 500/1000, 00:10/00:20, 50.00i/s]");
    assert_line(1000, 1000, 4000, "",
                "┣████████████████████┫ [100.00%, 1000/1000, 1:06:40/1:06:40, 4.00s/i]");
}

static void the_ends_are_empty_and_full(void **state) {
    (void)state;
    assert_line(0, 10, 0, "", "┣                    ┫ [0.00%, 0/10, 00:00/00:00, 0.00i/s]");
    assert_line(0, 0, 0, "", "┣████████████████████┫ [100.00%, 0/0, 00:00/00:00, 0.00i/s]");
    assert_line(12, 10, 4, "", "┣████████████████████┫ [100.00%, 12/10, 00:04/00:04, 3.00i/s]");
}

static void every_eighth_keeps_the_width(void **state) {
    (void)state;
    for (int i = 0; i <= 160; i++) {
        char line[512];
        kn_progress_text(line, sizeof line, 0, i, 160, 1, "");
        int cells = 0;
        for (const char *c = line; strncmp(c, "┫", 3) != 0; c++) cells += (*c & 0xc0) != 0x80;
        assert_int_equal(cells, 21); /* the left edge and 20 cells */
    }
}

static int width(const char *text) {
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

static const char message[] = "epoch 1/3 loss 0.4321";

static void assert_fits(int columns, const char *want) {
    char line[512];
    kn_progress_text(line, sizeof line, columns, 903, 1040, 95.86, message);
    assert_string_equal(line, want);
    assert_true(width(line) <= columns);
}

static void a_narrow_line_drops_the_least_important_parts(void **state) {
    (void)state;
    assert_fits(89,
                "┣█████████████████▎  ┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] "
                "epoch 1/3 loss 0.4321");
    assert_fits(79,
                "┣████████████▏ ┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] "
                "epoch 1/3 loss 0.4321");
    assert_fits(70, "┣████▎┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] epoch 1/3 loss 0.4321");
    assert_fits(61, "┣████▎┫ [86.83%, 903/1040, 01:36/01:50] epoch 1/3 loss 0.4321");
    assert_fits(50, "┣██████ ┫ [86.83%, 903/1040] epoch 1/3 loss 0.4321");
    assert_fits(39, "┣█████▏┫ [86.83%] epoch 1/3 loss 0.4321");
    assert_fits(30, "[86.83%] epoch 1/3 loss 0.4321");
    assert_fits(20, "[86.83%] epoch 1/3 l");
    assert_fits(4, "[86.");
}

static void no_width_is_exceeded(void **state) {
    (void)state;
    for (int columns = 1; columns < 200; columns++) {
        for (int64_t done = 0; done <= 1000; done += 125) {
            char line[512];
            kn_progress_text(line, sizeof line, columns, done, 1000, 4000, "größe ▏ 0.5");
            assert_true(width(line) <= columns);
            assert_true(columns < 60 || strstr(line, "größe ▏ 0.5"));
        }
    }
}

/* What a terminal of this width gets from a bar that is shown often and taken away. */
static void assert_in_place(int columns) {
    char text[8192] = "", *piece = text;
    int terminal = -1, program = -1;
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(openpty(&terminal, &program, NULL, NULL, &size), 0);
    FILE *out = fdopen(program, "w");
    setenv("TERM", "xterm", 1);
    kn_progress bar = kn_progress_begin(out, 1404);
    for (int i = 0; i < 10; i++) kn_progress_show(&bar, 140 * i, message);
    kn_progress_end(&bar);
    fclose(out);
    size_t length = 0;
    for (ssize_t n; (n = read(terminal, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)n;
    assert_true(length > 0);
    assert_null(strchr(text, '\n'));
    int n_shown = 0;
    for (char *part; (part = strsep(&piece, "\r"));) {
        char *end = strstr(part, "\033[K");
        if (end) *end = '\0';
        assert_true(width(part) < columns); /* the last column would wrap */
        n_shown += strstr(part, "%]") || strstr(part, "%,");
    }
    assert_int_equal(n_shown, 10);
    close(terminal);
}

static void the_bar_stays_on_one_line_of_the_terminal(void **state) {
    (void)state;
    assert_in_place(200);
    assert_in_place(80);
    assert_in_place(40);
}

static void off_if_the_file_is_not_a_terminal(void **state) {
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    kn_progress bar = kn_progress_begin(file, 10);
    assert_false(kn_progress_due(&bar));
    kn_progress_show(&bar, 5, "message");
    kn_progress_end(&bar);
    assert_int_equal(ftell(file), 0);
    fclose(file);
}

static void off_if_the_terminal_cannot_erase(void **state) {
    (void)state;
    static const char *const types[] = {"dumb", "", NULL, "xterm"};
    int terminal = -1, program = -1;
    assert_int_equal(openpty(&terminal, &program, NULL, NULL, NULL), 0);
    FILE *out = fdopen(program, "w");
    for (int i = 0; i < 4; i++) {
        types[i] ? setenv("TERM", types[i], 1) : unsetenv("TERM");
        kn_progress bar = kn_progress_begin(out, 10);
        assert_int_equal(bar.out == out, i == 3);
    }
    fclose(out);
    close(terminal);
}

static void clearing_leaves_an_empty_line(void **state) {
    (void)state;
    char text[512] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    kn_progress bar = {.out = file, .total = 10}; /* as on a terminal */
    kn_progress_show(&bar, 5, "half");
    kn_progress_clear(&bar);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    assert_non_null(strstr(text, "5/10"));
    assert_true(n > 4);
    assert_string_equal(text + n - 4, "\r\033[K");
    fclose(file);
}

/* 100 steps before the bar began, 100 of 300 since then, in 50 s. */
static void steps_made_before_the_bar_do_not_count_as_speed(void **state) {
    (void)state;
    char text[512] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    uint64_t begin = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - 50000000000u;
    kn_progress bar = {.out = file, .total = 400, .begin_ns = begin};
    kn_progress_from(&bar, 100);
    kn_progress_show(&bar, 200, "");
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_non_null(strstr(text, "50.00%, 200/400, 00:50/02:30, 2.00i/s"));
    fclose(file);
}

int main(void) {
    return RUN_TESTS(
        TEST(the_line_has_bar_share_count_times_and_rate), TEST(the_ends_are_empty_and_full),
        TEST(every_eighth_keeps_the_width), TEST(a_narrow_line_drops_the_least_important_parts),
        TEST(no_width_is_exceeded), TEST(the_bar_stays_on_one_line_of_the_terminal),
        TEST(off_if_the_file_is_not_a_terminal), TEST(off_if_the_terminal_cannot_erase),
        TEST(clearing_leaves_an_empty_line), TEST(steps_made_before_the_bar_do_not_count_as_speed));
}
