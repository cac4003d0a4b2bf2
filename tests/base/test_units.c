/* Sizes, durations and lists of words. */
#include "test.h"
#include "units.h"
#include "words.h"

static void one_size_may_be_written_in_many_ways(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } same[] = {{"512M", 512 << 20},
                {"512MiB", 512 << 20},
                {"0.5G", 512 << 20},
                {"536870912", 512 << 20},
                {"1K", 1024},
                {"1KiB", 1024},
                {"1KB", 1000},
                {"2T", 2ull << 40},
                {"7B", 7}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        uint64_t n = 0;
        if (!kn__read_bytes(&n, same[i].text)) fail_msg("%s is refused", same[i].text);
        assert_true(n == same[i].bytes);
    }
}

static void one_duration_may_be_written_in_many_ways(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } same[] = {{"5m", 300000000000},
                {"5min", 300000000000},
                {"300s", 300000000000},
                {"1h", 3600000000000},
                {"1.5ms", 1500000},
                {"7us", 7000},
                {"3ns", 3}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        uint64_t n = 0;
        if (!kn__read_duration(&n, same[i].text)) fail_msg("%s is refused", same[i].text);
        assert_true(n == same[i].ns);
    }
}

static void a_malformed_number_is_ignored(void **state) {
    (void)state;
    static const char *const wrong[] = {"",    "M",   "-1",  "+1",  " 1",   "1 M",
                                        "1m",  "1e9", "1.M", "0x1", "1gib", "16777216T",
                                        "nan", "1.5", "1.0", "0.5B"};
    uint64_t n = 77;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (kn__read_bytes(&n, wrong[i])) fail_msg("%s is taken", wrong[i]);
    }
    assert_false(kn__read_duration(&n, "10"));
    assert_false(kn__read_duration(&n, "10M"));
    assert_false(kn__read_duration(&n, "1.5ns"));
    assert_false(kn__read_count(&n, "1.5"));
    assert_false(kn__read_count(&n, "18446744073709551616"));
    assert_true(n == 77);
    assert_true(kn__read_count(&n, "18446744073709551615") && n == UINT64_MAX);
}

static void a_percentage_may_have_its_sign(void **state) {
    (void)state;
    double x = 7;
    assert_true(kn__read_percent(&x, "0.1") && x == 0.1);
    assert_true(kn__read_percent(&x, "12.5%") && x == 12.5);
    assert_true(kn__read_percent(&x, "100%") && x == 100);
    assert_false(kn__read_percent(&x, "100.1"));
    assert_false(kn__read_percent(&x, "1%%"));
    assert_false(kn__read_percent(&x, "%"));
    assert_true(x == 100);
}

static void sizes_have_three_digits(void **state) {
    (void)state;
    assert_string_equal(kn__bytes_text(0).text, "0 bytes");
    assert_string_equal(kn__bytes_text(999).text, "999 bytes");
    assert_string_equal(kn__bytes_text(1000).text, "0.98 KiB");
    assert_string_equal(kn__bytes_text(1536).text, "1.50 KiB");
    assert_string_equal(kn__bytes_text(24.2 * 1048576).text, "24.2 MiB");
    assert_string_equal(kn__bytes_text(128.0 * (1 << 30)).text, "128 GiB");
    assert_string_equal(kn__bytes_text(3e18).text, "2728484 TiB");
    assert_string_equal(kn__bytes_cell(24.2 * 1048576).text, "24.2MiB");
    assert_string_equal(kn__time_text(0, true).text, "0.00 ns");
    assert_string_equal(kn__time_text(999, true).text, "999 ns");
    assert_string_equal(kn__time_text(1000, true).text, "1.00 us");
    assert_string_equal(kn__time_text(1000, false).text, "1.00 μs");
    assert_string_equal(kn__time_text(81.2e6, true).text, "81.2 ms");
    assert_string_equal(kn__time_text(4e12, true).text, "4000 s");
    assert_string_equal(kn__time_cell(1230, false).text, "1.23μs");
    assert_string_equal(kn__time_cell(1230, true).text, "1.23us");
    assert_string_equal(kn__time_cell(1.2e9, true).text, "1.20s");
}

static void words_are_read_one_by_one(void **state) {
    (void)state;
    const char *list = ",a=1,,longer,b,";
    char word[5];
    size_t length;
    assert_true(kn__words_next(&list, word, sizeof word, &length) && length == 3);
    assert_string_equal(word, "a=1");
    assert_true(kn__words_next(&list, word, sizeof word, &length) && length == 6);
    assert_string_equal(word, "long");
    assert_true(kn__words_next(&list, word, sizeof word, &length) && length == 1);
    assert_string_equal(word, "b");
    assert_false(kn__words_next(&list, word, sizeof word, &length));
    assert_false(kn__words_next(&list, word, sizeof word, &length));
}

int main(void) {
    return RUN_TESTS(TEST(one_size_may_be_written_in_many_ways),
                     TEST(one_duration_may_be_written_in_many_ways),
                     TEST(a_malformed_number_is_ignored), TEST(a_percentage_may_have_its_sign),
                     TEST(sizes_have_three_digits), TEST(words_are_read_one_by_one));
}
