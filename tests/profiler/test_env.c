#include "env.h"

#include "test.h"

static kn__config read_words(const char *knet, const char *autograd, kn__text *messages) {
    kn__config config;
    kn__config_read(&config, knet, autograd, messages);
    return config;
}

/* Reads words that are all right. */
static kn__config read_ok(const char *knet) {
    kn__text messages = {0};
    kn__config config = read_words(knet, NULL, &messages);
    if (messages.length) fail_msg("%s", messages.data);
    kn__text_release(&messages);
    return config;
}

static void unset_empty_and_zero_are_off(void **state) {
    (void)state;
    static const char *const off[] = {NULL, "", "0", "off", "1,off", ","};
    for (size_t i = 0; i < 5; i++) assert_int_equal(read_ok(off[i]).tier, KN__TIER_OFF);
}

static void one_is_the_table_with_memory_on_stderr(void **state) {
    (void)state;
    kn__config config = read_ok("1");
    assert_int_equal(config.tier, KN__TIER_CPU);
    assert_true(config.memory);
    assert_false(config.ascii);
    assert_string_equal(config.out, "-");
    assert_string_equal(config.json, "");
    assert_int_equal(config.width, -1);
}

static void every_word_sets_its_option(void **state) {
    (void)state;
    kn__config c = read_ok(
        "cpu,nomem,out=a%p.txt,json=b.json,sort=peak,depth=3,width=80,ascii,"
        "columns=2018,clock=monotonic,csv=c.csv,folded=d,flame=e.svg,"
        "weight=alloc");
    assert_int_equal(c.tier, KN__TIER_CPU);
    assert_false(c.memory);
    assert_string_equal(c.out, "a%p.txt");
    assert_string_equal(c.json, "b.json");
    assert_int_equal(c.sort, KN__SORT_PEAK);
    assert_string_equal(c.csv, "c.csv");
    assert_string_equal(c.folded, "d");
    assert_string_equal(c.flame, "e.svg");
    assert_int_equal(c.weight, KN__WEIGHT_ALLOC);
    assert_int_equal(c.depth, 3);
    assert_int_equal(c.width, 80);
    assert_true(c.ascii && c.columns_2018);
    assert_int_equal(c.clock, KN__CLOCK_MONOTONIC);
    c = read_ok("nomem,mem,ascii,unicode,columns=2018,columns=all,,clock=tsc,sort=first");
    assert_true(c.memory);
    assert_false(c.ascii || c.columns_2018);
    assert_int_equal(c.clock, KN__CLOCK_TSC);
    assert_int_equal(c.sort, KN__SORT_FIRST);
    assert_int_equal(c.tier, KN__TIER_CPU); /* options alone are a wish for the table */
    assert_int_equal(read_ok("nvtx").tier, KN__TIER_NVTX);
    assert_int_equal(read_ok("gpu,cpu,cupti=/x/libcupti.so").tier, KN__TIER_GPU);
    assert_true(read_ok("columns=spread").columns_spread);
    assert_true(read_ok("help").help);
}

static void a_wrong_word_is_one_line_with_the_valid_ones(void **state) {
    (void)state;
    static const char *const wrong[] = {"fast",     "cpux",      "depth",  "depth=",  "depth=x",
                                        "depth=-1", "depth=1e9", "mem=1",  "sort=up", "columns=1",
                                        "clock=",   "out=",      "flame",  "full",    "gpu-lite",
                                        "nvtx=1",   "=",         "1 ,cpu", " 1",      "every=x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kn__text messages = {0};
        kn__config config = read_words(wrong[i], NULL, &messages);
        assert_non_null(messages.data);
        assert_non_null(strstr(messages.data, "the words are 1, "));
        assert_ptr_equal(strchr(messages.data, '\n'), messages.data + messages.length - 1);
        assert_int_equal(config.tier, KN__TIER_CPU); /* the run is timed all the same */
        kn__text_release(&messages);
    }
}

static void words_beside_a_wrong_one_count(void **state) {
    (void)state;
    kn__text messages = {0};
    kn__config config = read_words("dept=3,depth=2,sort=nothing,sort=name", NULL, &messages);
    assert_int_equal(config.depth, 2);
    assert_int_equal(config.sort, KN__SORT_NAME);
    kn__text_release(&messages);
}

static void autograd_timer_alone_records_gradient_scopes(void **state) {
    (void)state;
    kn__text messages = {0};
    kn__config config = read_words(NULL, "1", &messages);
    assert_true(config.grad_only && config.tier == KN__TIER_CPU);
    config = read_words("1", "1", &messages);
    assert_true(!config.grad_only && config.tier == KN__TIER_CPU);
    config = read_words("0", "1,sort=calls", &messages);
    assert_true(config.grad_only && config.sort == KN__SORT_CALLS);
    config = read_words("1,gpu", "1", &messages);
    assert_true(!config.grad_only && config.tier == KN__TIER_GPU);
    config = read_words("nvtx", "1", &messages); /* asks for no table, and takes none away */
    assert_true(config.grad_only && config.tier == KN__TIER_CPU);
    config = read_words("1", "gpu", &messages);
    assert_true(!config.grad_only && config.tier == KN__TIER_CPU);
    config = read_words(NULL, "0", &messages);
    assert_int_equal(config.tier, KN__TIER_OFF);
    assert_int_equal(messages.length, 0);
    kn__text_release(&messages);
}

static void help_names_every_word(void **state) {
    (void)state;
    kn__text text = {0};
    kn__config_help(&text);
    static const char *const words[] = {"cpu",   "nvtx",   "mem",      "nomem", "out=FILE",
                                        "json=", "sort=",  "depth=",   "width", "columns=",
                                        "ascii", "clock=", "AUTOGRAD", "help"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(text.data, words[i])) fail_msg("help lacks %s", words[i]);
    }
    kn__text_release(&text);
}

static void any_bytes_are_read_without_harm(void **state) {
    (void)state;
    static const char *const parts[] = {"cpu",   "mem", "=",    ",",   "out",
                                        "depth", "9",   "help", "sort"};
    for (int round = 0; round < 20000; round++) {
        char value[200] = "";
        for (int i = 0; i < 12; i++) {
            char byte[2] = {(char)(1 + test_random_below(255)), '\0'};
            bool part = test_random_below(3);
            strcat(value, part ? parts[test_random_below(9)] : byte);
        }
        kn__text messages = {0};
        kn__config config = read_words(value, value, &messages);
        assert_in_range(config.depth, 0, KN__DEPTH_MAX);
        assert_true(strlen(config.out) > 0);
        kn__text_release(&messages);
    }
}

static void a_word_too_long_is_said(void **state) {
    (void)state;
    char value[2000] = "out=";
    memset(value + 4, 'x', sizeof value - 5);
    kn__text messages = {0};
    kn__config config = read_words(value, NULL, &messages);
    assert_non_null(strstr(messages.data, "too long"));
    assert_string_equal(config.out, "-");
    kn__text_release(&messages);
}

int main(void) {
    return RUN_TESTS(
        TEST(unset_empty_and_zero_are_off), TEST(one_is_the_table_with_memory_on_stderr),
        TEST(every_word_sets_its_option), TEST(a_wrong_word_is_one_line_with_the_valid_ones),
        TEST(words_beside_a_wrong_one_count), TEST(autograd_timer_alone_records_gradient_scopes),
        TEST(help_names_every_word), TEST(any_bytes_are_read_without_harm),
        TEST(a_word_too_long_is_said));
}
