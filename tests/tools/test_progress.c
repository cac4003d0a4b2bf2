/* The bar's line, as Knet.jl printed it. */
#include <knet/progress.h>

#include "test.h"

static void assert_line(int64_t done, int64_t total, double seconds, const char *message,
                        const char *want) {
    char line[512];
    assert_string_equal(kn_progress_text(line, sizeof line, done, total, seconds, message), want);
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
}

static void every_eighth_keeps_the_width(void **state) {
    (void)state;
    for (int i = 0; i <= 160; i++) {
        char line[512];
        kn_progress_text(line, sizeof line, i, 160, 1, "");
        int cells = 0;
        for (const char *c = line; strncmp(c, "┫", 3) != 0; c++) cells += (*c & 0xc0) != 0x80;
        assert_int_equal(cells, 21); /* the left edge and 20 cells */
    }
}

static void off_where_the_file_is_no_terminal(void **state) {
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

int main(void) {
    return RUN_TESTS(TEST(the_line_has_bar_share_count_times_and_rate),
                     TEST(the_ends_are_empty_and_full), TEST(every_eighth_keeps_the_width),
                     TEST(off_where_the_file_is_no_terminal), TEST(clearing_leaves_an_empty_line));
}
