/* The words of KNET_ALLOC: test_config GOLDEN_DIR. */
#include "inspect/config.h"
#include "test.h"

static const char *golden_dir;

static kn__alloc_config read_words(const char *list, char *messages, size_t bytes) {
    kn__alloc_config config;
    kn__writer w = kn__writer_of(messages, bytes);
    kn__alloc_config_read(&config, list, &w);
    return config;
}

static kn__alloc_config read_ok(const char *list) {
    char messages[2048];
    kn__alloc_config config = read_words(list, messages, sizeof messages);
    if (messages[0]) fail_msg("%s", messages);
    return config;
}

static void unset_and_empty_are_the_defaults(void **state) {
    (void)state;
    static const char *const none[] = {NULL, "", ",", ",,"};
    static const kn__alloc_config defaults;
    for (int i = 0; i < 4; i++) {
        kn__alloc_config c = read_ok(none[i]);
        assert_memory_equal(&c, &defaults, sizeof c);
    }
}

static void every_word_sets_its_option(void **state) {
    (void)state;
    kn__alloc_config c = read_ok(
        "limit=8GiB,soft_limit=6.5GiB,fraction=0.9,pressure=0.85,slab_max=1MiB,decay=10s,trace=t."
        "kntrace,stats,"
        "snapshot=s.json,oom=o.json,stacks,help");
    assert_int_equal(c.pool.limit_bytes, (uint64_t)8 << 30);
    assert_int_equal(c.pool.soft_limit_bytes, (uint64_t)13 << 29);
    assert_close(c.pool.device_fraction, 0.9, 0, 1e-15);
    assert_close(c.pool.pressure, 0.85, 0, 1e-15);
    assert_int_equal(c.pool.slab_max_bytes, 1 << 20);
    assert_int_equal(c.pool.decay_ns, 10000000000u);
    assert_string_equal(c.trace, "t.kntrace");
    assert_string_equal(c.stats, "-");
    assert_string_equal(c.snapshot, "s.json");
    assert_string_equal(c.oom, "o.json");
    assert_true(c.stacks);
    assert_true(c.help);
    c = read_ok(",stats=a.json,,limit=1KB,limit=2KB,");
    assert_string_equal(c.stats, "a.json");
    assert_int_equal(c.pool.limit_bytes, 2000); /* the later word */
}

static void sizes_and_times_are_exact(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"1", 1},
                 {"70000B", 70000},
                 {"1KiB", 1024},
                 {"1.5KiB", 1536},
                 {"0.000000001GB", 1},
                 {"1MB", 1000000},
                 {"3TB", 3000000000000},
                 {"0.999999999TiB", 1099511626676},
                 {"1048576TiB", (uint64_t)1 << 60}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char word[64];
        snprintf(word, sizeof word, "limit=%s", sizes[i].text);
        assert_int_equal(read_ok(word).pool.limit_bytes, sizes[i].bytes);
    }
    assert_int_equal(read_ok("decay=1ns").pool.decay_ns, 1);
    assert_int_equal(read_ok("decay=1.5ms").pool.decay_ns, 1500000);
    assert_true(read_ok("decay=18446744073.709551615s").pool.decay_ns == UINT64_MAX);
    assert_int_equal(read_ok("decay=2min").pool.decay_ns, 120000000000u);
    assert_int_equal(read_ok("decay=0.25h").pool.decay_ns, 900000000000u);
    assert_int_equal(read_ok("decay=1s,decay=none").pool.decay_ns, 0);
    assert_int_equal(read_ok("limit=1GiB,limit=none").pool.limit_bytes, 0);
    assert_close(read_ok("fraction=1").pool.device_fraction, 1, 0, 0);
    assert_close(read_ok("fraction=1.000").pool.device_fraction, 1, 0, 0);
}

/* A wrong word, and a part of its message. */
static const struct {
    const char *word, *message;
} wrong[] = {
    {"limt=8GiB", "\"limt=8GiB\" is ignored: there is no such word; the words are limit, soft"},
    {"Limit=8GiB", "there is no such word"},
    {"=8GiB", "there is no such word"},
    {"limi", "there is no such word"},
    {"limits=8GiB", "there is no such word"},
    {"limit", "\"limit\" is ignored: limit=SIZE takes a number above 0, whole or with K, M"},
    {"limit=", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit=1.5", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit=0", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit=-1GiB", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit= 1GiB", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit=1 GiB", "limit=SIZE takes a number above 0, whole or with K"},
    {"limit=8gib", "\"limit=8gib\" is ignored: limit=SIZE takes"},
    {"limit=1e9", "limit=SIZE takes"},
    {"limit=1.GiB", "limit=SIZE takes"},
    {"limit=.5GiB", "limit=SIZE takes"},
    {"limit=1.0000000001GiB", "limit=SIZE takes"},
    {"limit=18446744073709551616", "the number is too large"},
    {"limit=18446744073709551615", "the number is too large"},
    {"limit=16777216TiB", "the number is too large"},
    {"limit=1048577TiB", "the number is too large"},
    {"limit=16777216XiB", "limit=SIZE takes"},
    {"decay=99999999999h", "the number is too large"},
    {"fraction=1e-9", "at most 1, without an exponent"},
    {"soft_limit=much", "soft_limit=SIZE takes a number"},
    {"fraction=0", "fraction=X takes a number above 0, at most 1"},
    {"fraction=1.000000001", "fraction=X takes"},
    {"fraction=90%", "fraction=X takes"},
    {"fraction=nan", "fraction=X takes"},
    {"fraction=18446744074", "fraction=X takes"},
    {"pressure=0", "pressure=X takes a number above 0, at most 1"},
    {"pressure=1.1", "pressure=X takes"},
    {"slab_max=1KiB", "slab_max=SIZE takes a size from 64KiB to 1MiB"},
    {"slab_max=2MiB", "slab_max=SIZE takes"},
    {"decay=10", "decay=TIME takes a number above 0 and ns, us, ms, s, m (or min) or h"},
    {"decay=0s", "decay=TIME takes"},
    {"decay=9999999999999h", "the number is too large"},
    {"decay=18446744073709551616ns", "the number is too large"},
    {"decay=18446744073.709551616s", "the number is too large"},
    {"decay=18446744073.8s", "the number is too large"},
    {"trace", "\"trace\" is ignored: trace=FILE takes a path"},
    {"trace=", "trace=FILE takes a path"},
    {"stats=", "stats[=FILE] takes a path"},
    {"help=me", "\"help=me\" is ignored: help takes no value"},
    {"\x1b[31m\xff", "\"?[31m?\" is ignored"},
};

/* The line names the word, the value and what the word takes; the other words count. */
static void each_wrong_word_is_one_line_and_is_ignored(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char list[256], messages[2048];
        snprintf(list, sizeof list, "oom=kept,%s,limit=77", wrong[i].word);
        kn__alloc_config c = read_words(list, messages, sizeof messages);
        if (strncmp(messages, "KNET_ALLOC: ", 12) != 0 || !strstr(messages, wrong[i].message)) {
            fail_msg("%s: %s", wrong[i].word, messages);
        }
        assert_ptr_equal(strchr(messages, '\n'), messages + strlen(messages) - 1);
        assert_ptr_equal(strstr(messages, "(null)"), NULL);
        kn__alloc_config want = {.pool.limit_bytes = 77, .oom = "kept"};
        assert_memory_equal(&c, &want, sizeof c);
    }
}

static void a_soft_limit_above_the_limit_is_ignored(void **state) {
    (void)state;
    char messages[2048];
    kn__alloc_config c = read_words("limit=1MiB,soft_limit=2MiB", messages, sizeof messages);
    assert_non_null(
        strstr(messages, "soft_limit is ignored: its 2097152 bytes are above limit, 1048576"));
    assert_int_equal(c.pool.limit_bytes, 1 << 20);
    assert_int_equal(c.pool.soft_limit_bytes, 0);
}

static void words_that_are_too_long_are_ignored(void **state) {
    (void)state;
    char list[2000], messages[2048];
    memset(list, 'x', sizeof list);
    memcpy(list, "trace=", 6);
    list[sizeof list - 1] = '\0';
    (void)read_words(list, messages, sizeof messages);
    assert_non_null(strstr(messages, "it is too long: 1999 characters; the most are 575\n"));
    list[6 + 512] = '\0'; /* a path of 512 */
    kn__alloc_config c = read_words(list, messages, sizeof messages);
    assert_non_null(strstr(messages, "trace=FILE takes a path of 1 to 511 characters"));
    assert_string_equal(c.trace, "");
    list[6 + 511] = '\0';
    assert_int_equal(strlen(read_ok(list).trace), 511);
}

static void help_matches_the_recorded_text(void **state) {
    (void)state;
    char text[8192], want[8192] = "", path[1024];
    kn__writer w = kn__writer_of(text, sizeof text);
    kn__alloc_config_help(&w);
    snprintf(path, sizeof path, "%s/config_help.txt", golden_dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(want, 1, sizeof want - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, want);
}

static void a_writer_truncates_long_text(void **state) {
    (void)state;
    char text[8];
    kn__writer w = kn__writer_of(text, sizeof text);
    kn__write(&w, "%d", 12345);
    kn__write_text(&w, "67890");
    assert_string_equal(text, "1234567");
    assert_true(w.text.failed);
    w = kn__writer_of(text, sizeof text);
    w.json = true;
    kn__add_text(&w, NULL, 0, "\"\n\\");
    assert_string_equal(text, "\"\\\"\\u00");
    w = kn__writer_of(text, sizeof text);
    kn__write_text(&w, "1234567");
    assert_false(w.text.failed);
}

static void text_that_is_not_utf8_is_replaced(void **state) {
    (void)state;
    static const struct {
        const char *text, *json;
    } texts[] = {{"\xc2\xa9 \xe2\x82\xac", "\"\xc2\xa9 \xe2\x82\xac\""},
                 {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""},
                 {"\xed\x9f\xbf", "\"\xed\x9f\xbf\""},
                 {"\xc1\xbf", "\"\\\\xC1\\\\xBF\""}, /* longer than need be */
                 {"\xe0\x9f\xbf", "\"\\\\xE0\\\\x9F\\\\xBF\""},
                 {"\xf0\x8f\xbf\xbf", "\"\\\\xF0\\\\x8F\\\\xBF\\\\xBF\""},
                 {"\xed\xa0\x80", "\"\\\\xED\\\\xA0\\\\x80\""},            /* half a pair */
                 {"\xf4\x90\x80\x80", "\"\\\\xF4\\\\x90\\\\x80\\\\x80\""}, /* beyond U+10FFFF */
                 {"a\xe2\x82", "\"a\\\\xE2\\\\x82\""},
                 {"\x01\t\"\\", "\"\\u0001\\u0009\\\"\\\\\""}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char json[64];
        kn__writer w = kn__writer_of(json, sizeof json);
        w.json = true;
        kn__add_text(&w, NULL, 0, texts[i].text);
        assert_string_equal(json, texts[i].json);
    }
}

int main(int argc, char **argv) {
    golden_dir = argc > 1 ? argv[1] : "golden";
    return RUN_TESTS(
        TEST(unset_and_empty_are_the_defaults), TEST(every_word_sets_its_option),
        TEST(sizes_and_times_are_exact), TEST(each_wrong_word_is_one_line_and_is_ignored),
        TEST(a_soft_limit_above_the_limit_is_ignored), TEST(words_that_are_too_long_are_ignored),
        TEST(help_matches_the_recorded_text), TEST(a_writer_truncates_long_text),
        TEST(text_that_is_not_utf8_is_replaced));
}
