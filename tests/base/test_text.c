/* Strings that grow, and the repair of text that is not UTF-8. */
#include <locale.h>
#include <string.h>

#include "comma_locale.h"
#include "test.h"
#include "text.h"
#include "utf8.h"

static void text_grows_in_each_kind_of_room(void **state) {
    (void)state;
    static char buffer[1 << 20];
    kn__text texts[] = {{0}, {.room = KN__TEXT_PAGES}, kn__text_in(buffer, sizeof buffer)};
    for (int i = 0; i < 3; i++) {
        kn__text *t = &texts[i];
        size_t length = 0;
        for (int n = 0; n < 3000; n++) {
            kn__text_printf(t, "%d %s,", n, "some words that fill it");
            kn__text_puts(t, "x");
            kn__text_repeat(t, "ab", 2);
        }
        for (const char *at = t->data; (at = strstr(at, "xabab")); at++) length++;
        assert_int_equal(length, 3000);
        assert_int_equal(strlen(t->data), t->length);
        assert_false(t->failed);
        if (i < 2) assert_true(t->size > 1 << 16);
        kn__text_release(t);
        assert_true(t->length == 0 && t->size == 0);
        kn__text_puts(t, ""); /* usable */
    }
    for (int i = 0; i < 2; i++) kn__text_release(&texts[i]);
}

static void a_buffer_keeps_what_fits(void **state) {
    (void)state;
    char buffer[8], one[1];
    for (int how = 0; how < 2; how++) {
        kn__text t = kn__text_in(buffer, sizeof buffer);
        kn__text_puts(&t, "abcd");
        assert_false(t.failed);
        how ? kn__text_printf(&t, "%s", "efghij") : kn__text_puts(&t, "efghij");
        assert_true(t.failed);
        assert_string_equal(buffer, "abcdefg");
        assert_int_equal(t.length, 7);
        kn__text_printf(&t, "%d", 5);
        kn__text_puts(&t, "6");
        assert_string_equal(buffer, "abcdefg");
    }
    kn__text t = kn__text_in(buffer, sizeof buffer);
    kn__text_puts(&t, "abcdefg"); /* all of it */
    assert_false(t.failed);
    t = kn__text_in(one, sizeof one);
    kn__text_puts(&t, "a");
    assert_true(t.failed && t.length == 0 && one[0] == '\0');
}

static void json_strings_are_repaired(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "\"plain\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"\n\x01\x7f", "\"\\u000a\\u0001\\u007f\""},
        {"\xce\xbcs \xf0\x9f\x98\x80", "\"\xce\xbcs \xf0\x9f\x98\x80\""},
        {"\xff\xc0\x80", "\"\\\\xFF\\\\xC0\\\\x80\""},            /* no such byte; overlong */
        {"\xed\xa0\x80", "\"\\\\xED\\\\xA0\\\\x80\""},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\\\xF4\\\\x90\\\\x80\\\\x80\""}, /* beyond U+10FFFF */
        {"cut \xe2\x82", "\"cut \\\\xE2\\\\x82\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__text t = {0};
        kn__text_json(&t, cases[i][0]);
        assert_string_equal(t.data, cases[i][1]);
        kn__text_release(&t);
    }
    kn__text t = {0};
    kn__text_json_bytes(&t, "a\0\0b\0", 5);
    assert_string_equal(t.data, "\"a\\u0000\\u0000b\\u0000\"");
    kn__text_release(&t);
}

static void text_of_files_and_of_xml_is_repaired(void **state) {
    (void)state;
    kn__text t = {0};
    kn__text_utf8(&t, "\xce\xbc\xff\n<cut \xe2\x82");
    assert_string_equal(t.data, "\xce\xbc\\xFF\n<cut \\xE2\\x82");
    kn__text_release(&t);
    kn__text_xml(&t, "a<b>&\xce\xbc\x01\x7f\xff\xef\xbf\xbe\xef\xbf\xbd");
    assert_string_equal(t.data, "a&lt;b&gt;&amp;\xce\xbc??\\xFF?\xef\xbf\xbd");
    kn__text_release(&t);
}

static void text_is_shown_with_no_control_characters(void **state) {
    (void)state;
    char buffer[64];
    kn__text t = kn__text_in(buffer, sizeof buffer);
    kn__text_shown(&t, "\x1b[31m\xce\xbc\xff|", 40);
    assert_string_equal(buffer, "?[31m\xce\xbc?|");
    t = kn__text_in(buffer, sizeof buffer); /* escape in 8 bits, U+00A0, from right to left */
    kn__text_shown(&t,
                   "\xc2\x9b"
                   "31m\xc2\xa0\xe2\x80\xae|",
                   40);
    assert_string_equal(buffer, "?31m\xc2\xa0?|");
    t = kn__text_in(buffer, sizeof buffer);
    kn__text_shown(&t, "\xce\xbc\xce\xbc\xce\xbc", 2);
    assert_string_equal(buffer, "\xce\xbc\xce\xbc...");
    t = kn__text_in(buffer, sizeof buffer);
    assert_int_equal(kn__text_shown(&t, "前向传播", 5), 7); /* two of them, and the dots */
    assert_string_equal(buffer, "前向...");
    t = kn__text_in(buffer, sizeof buffer);
    assert_int_equal(kn__text_shown(&t, "e\xcc\x81", 1), 1);
    assert_string_equal(buffer, "e\xcc\x81"); /* a mark belongs to its letter */
}

static void text_is_wrapped_at_a_width(void **state) {
    (void)state;
    char buffer[256];
    kn__text t = kn__text_in(buffer, sizeof buffer);
    kn__text_wrap(&t, "one two three\nfour", 2, 0, 9);
    assert_string_equal(buffer, "  one two\n  three\n  four\n");
    t = kn__text_in(buffer, sizeof buffer);
    kn__text_wrap(&t, "longer_than_the_width 前向 传播", 0, 0, 8);
    assert_string_equal(buffer, "longer_than_the_width\n前向\n传播\n");
    t = kn__text_in(buffer, sizeof buffer);
    kn__text_entry(&t, "-a", "the first letter", 6, 16);
    kn__text_entry(&t, "-long", "two", 6, 16);
    assert_string_equal(buffer, "  -a  the first\n      letter\n  -long\n      two\n");
}

static void characters_take_the_columns_of_a_terminal(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int columns;
    } cases[] = {{"a", 1},    {"μ", 1},        {"─", 1},
                 {"█", 1},    {"…", 1},        {"前", 2},
                 {"한", 2},   {"ア", 2},       {"Ａ", 2},
                 {"😀", 2},    {"\xcc\x81", 0}, {"\xe2\x80\x8b", 0},
                 {"\xff", 1}, {"\xe4\xb8", 1}, {"\xf0\xa0\x80\x80", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (kn__utf8_columns(cases[i].text) != cases[i].columns) fail_msg("%s", cases[i].text);
    }
}

/* Each string of up to four bytes from those that matter, against the standard's own table. */
static void characters_are_those_of_the_standard(void **state) {
    (void)state;
    static const unsigned char bytes[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                          0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    enum { N = sizeof bytes };
    for (int i = 0; i < N * N * N * N; i++) {
        unsigned char s[5] = {bytes[i % N], bytes[i / N % N], bytes[i / N / N % N],
                              bytes[i / N / N / N], 0};
        unsigned a = s[0], b = s[1], c = s[2], d = s[3];
        unsigned low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
        unsigned high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
        bool second = b >= low && b <= high, third = c >= 0x80 && c <= 0xbf,
             fourth = d >= 0x80 && d <= 0xbf;
        size_t want = a <= 0x7f                                             ? 1
                      : a >= 0xc2 && a <= 0xdf && second                    ? 2
                      : a >= 0xe0 && a <= 0xef && second && third           ? 3
                      : a >= 0xf0 && a <= 0xf4 && second && third && fourth ? 4
                                                                            : 0;
        if (kn__utf8_bytes((const char *)s) != want) fail_msg("%02x %02x %02x %02x", a, b, c, d);
    }
}

static void numbers_have_a_point_in_every_locale(void **state) {
    (void)state;
    char buffer[64], shown[64];
    kn__text t = kn__text_in(buffer, sizeof buffer), long_one = {0};
    bool is_set = comma_locale_set();
    kn__text_printf(&t, "%.2f %g %.1Lf", 0.25, 1e-7, 2.5L);
    kn__text_printf(&long_one, "%.6000f", 0.5); /* in two attempts */
    snprintf(shown, sizeof shown, "%.1f", 0.5); /* the program's own locale stays */
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(buffer, "0.25 1e-07 2.5");
    assert_int_equal(strncmp(long_one.data, "0.50", 4), 0);
    kn__text_release(&long_one);
    if (!is_set) skip();
    assert_string_equal(shown, "0,5");
}

int main(void) {
    return RUN_TESTS(TEST(text_grows_in_each_kind_of_room), TEST(a_buffer_keeps_what_fits),
                     TEST(json_strings_are_repaired), TEST(text_of_files_and_of_xml_is_repaired),
                     TEST(text_is_shown_with_no_control_characters),
                     TEST(characters_are_those_of_the_standard),
                     TEST(numbers_have_a_point_in_every_locale), TEST(text_is_wrapped_at_a_width),
                     TEST(characters_take_the_columns_of_a_terminal));
}
