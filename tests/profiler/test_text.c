#include "cells.h"
#include "test.h"

#define assert_cell(cell, want) assert_string_equal((cell).text, want)

static void times_have_three_digits_and_a_unit(void **state) {
    (void)state;
    assert_cell(kn__time_cell(0, false), "0.00ns");
    assert_cell(kn__time_cell(1, false), "1.00ns");
    assert_cell(kn__time_cell(9.94, false), "9.94ns"); /* digits go where rounding makes 100 */
    assert_cell(kn__time_cell(9.96, false), "10.0ns");
    assert_cell(kn__time_cell(99.4, false), "99.4ns");
    assert_cell(kn__time_cell(99.6, false), "100ns");
    assert_cell(kn__time_cell(999, false), "999ns");
    assert_cell(kn__time_cell(1000, false), "1.00μs");
    assert_cell(kn__time_cell(1234567, false), "1.23ms");
    assert_cell(kn__time_cell(59400, true), "59.4us");
    assert_cell(kn__time_cell(1e9, false), "1.00s");
    assert_cell(kn__time_cell(1822e9, false), "1822s"); /* never minutes or hours */
}

static void bytes_change_unit_at_powers_of_1000_and_divide_by_1024(void **state) {
    (void)state;
    assert_cell(kn__bytes_cell(368), "368B");
    assert_cell(kn__bytes_cell(999), "999B");
    assert_cell(kn__bytes_cell(1000), "0.98KiB");
    assert_cell(kn__bytes_cell(1536), "1.50KiB");
    assert_cell(kn__bytes_text(1536), "1.50 KiB");
    assert_cell(kn__bytes_text(0), "0 bytes");
    assert_cell(kn__bytes_text(999), "999 bytes");
    assert_cell(kn__bytes_cell(1e6), "0.95MiB");
    assert_cell(kn__bytes_cell(3.0 * (1 << 20)), "3.00MiB");
    assert_cell(kn__bytes_cell(80.0 * (1ull << 30)), "80.0GiB");
    assert_cell(kn__bytes_cell(1e13), "9.09TiB");
    assert_cell(kn__bytes_cell(1e18), "909495TiB");
}

static void counts_and_percentages_have_three_digits(void **state) {
    (void)state;
    assert_cell(kn__count_cell(0), "0");
    assert_cell(kn__count_cell(999), "999");
    assert_cell(kn__count_cell(1000), "1.00k");
    assert_cell(kn__count_cell(12345678), "12.3M");
    assert_cell(kn__count_cell(4e9), "4.00B");
    assert_cell(kn__percent_cell(1, 1), "100%");
    assert_cell(kn__percent_cell(32, 100), "32.0%");
    assert_cell(kn__percent_cell(2.55, 100), "2.55%");
    assert_cell(kn__percent_cell(0, 100), "0.00%");
    assert_cell(kn__percent_cell(0, 0), " - %");
    assert_cell(kn__percent_cell(1, 0), " - %");
    assert_cell(kn__percent_cell(0x1p63, 819200), " - %"); /* of a damaged profile */
}

static void no_number_breaks_a_cell(void **state) {
    (void)state;
    const double odd[] = {1e300, -1e300, 1.0 / 0.0 * 1.0, -1.0, 0.0 / 0.0, 1e-300, 1.8e19};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_true(strlen(kn__time_cell(odd[i], false).text) < sizeof(kn__quantity));
        assert_true(strlen(kn__bytes_cell(odd[i]).text) < sizeof(kn__quantity));
        assert_true(strlen(kn__count_cell(odd[i]).text) < sizeof(kn__quantity));
        assert_true(strlen(kn__percent_cell(odd[i], odd[i]).text) < sizeof(kn__quantity));
    }
}

static void assert_label(const char *label, int width, int padded, const char *want) {
    kn__text text = {0};
    kn__text_puts(&text, "");
    kn__text_label(&text, label, width, padded);
    assert_string_equal(text.data, want);
    kn__text_release(&text);
}

static void labels_are_cut_with_dots_and_padded(void **state) {
    (void)state;
    assert_label("conv", 9, 6, "conv  ");
    assert_label("affine_diagonal", 15, 0, "affine_diagonal");
    assert_label("affine_diagonal", 9, 11, "affine...  ");
    assert_label("conv", 3, 5, "     "); /* no room for a character beside the dots */
    assert_label("größe μs", 8, 9, "größe μs ");
    assert_label("größe μs", 7, 0, "größ...");
    assert_label("前向传播", 8, 9, "前向传播 ");
    assert_label("前向传播", 7, 8, "前向... "); /* half a character has no room */
    assert_label("前向传播", 6, 7, "前...  ");
    assert_label("tab\tbell\a\x7f", 20, 0, "tab?bell??");
    assert_label("bad \xff\xc3", 20, 0, "bad ??");
}

static void any_bytes_give_a_label_of_the_asked_width(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char label[24];
        size_t n = (size_t)test_random_below(sizeof label);
        for (size_t i = 0; i < n; i++) label[i] = (char)(1 + test_random_below(255));
        label[n] = '\0';
        int width = (int)test_random_below(30), padded = width + (int)test_random_below(4);
        kn__text text = {0};
        kn__text_puts(&text, "|");
        kn__text_label(&text, label, width, padded);
        assert_int_equal(kn__text_width(text.data), padded + 1);
        for (size_t i = 0; i < text.length; i++) {
            assert_true((unsigned char)text.data[i] >= 0x20 && text.data[i] != 0x7f);
        }
        kn__text_release(&text);
    }
}

static void paths_are_built_from_the_end(void **state) {
    (void)state;
    char path[12];
    size_t at = kn__path_start(path, sizeof path);
    assert_true(kn__path_prepend(path, &at, "conv", true));
    assert_true(kn__path_prepend(path, &at, "", false));
    assert_true(kn__path_prepend(path, &at, "tr", false));
    assert_false(kn__path_prepend(path, &at, "main", false));
    kn__path_finish(path, sizeof path, at);
    assert_string_equal(path, "tr//conv");
}

int main(void) {
    return RUN_TESTS(TEST(times_have_three_digits_and_a_unit),
                     TEST(bytes_change_unit_at_powers_of_1000_and_divide_by_1024),
                     TEST(counts_and_percentages_have_three_digits), TEST(no_number_breaks_a_cell),
                     TEST(labels_are_cut_with_dots_and_padded),
                     TEST(any_bytes_give_a_label_of_the_asked_width),
                     TEST(paths_are_built_from_the_end));
}
