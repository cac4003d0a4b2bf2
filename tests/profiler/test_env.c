#include "env.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static const char *golden_dir;

static kn__config read_words(const char *knet, const char *autograd, kn__text *messages) {
    kn__config config;
    kn__config_read(&config, knet, autograd, false, messages);
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
    assert_false(config.ascii || config.unicode); /* by the locale */
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
    assert_true(c.ascii && !c.unicode && c.columns_2018);
    assert_int_equal(c.clock, KN__CLOCK_MONOTONIC);
    c = read_ok("nomem,mem,ascii,unicode,columns=2018,columns=all,,clock=tsc,sort=first");
    assert_true(c.memory);
    assert_true(c.unicode && !c.ascii && !c.columns_2018);
    assert_int_equal(c.clock, KN__CLOCK_TSC);
    assert_int_equal(c.sort, KN__SORT_FIRST);
    assert_int_equal(c.tier, KN__TIER_CPU); /* options alone are a wish for the table */
    assert_int_equal(read_ok("nvtx").tier, KN__TIER_NVTX);
    assert_int_equal(read_ok("gpu,cpu,cupti=/x/libcupti.so").tier, KN__TIER_GPU);
    assert_true(read_ok("columns=spread").columns_spread);
}

static void help_alone_leaves_the_timer_off(void **state) {
    (void)state;
    kn__text messages = {0};
    kn__config help = read_ok("help");
    assert_true(help.help);
    assert_int_equal(help.tier, KN__TIER_OFF);
    assert_int_equal(read_ok("help,1").tier, KN__TIER_CPU);
    assert_int_equal(read_ok("depth=3,help").tier, KN__TIER_CPU);
    help = read_words("help", "1", &messages);
    assert_true(help.help && help.grad_only);
    assert_int_equal(help.tier, KN__TIER_CPU);
    assert_null(messages.data);
}

static void a_window_of_steps_is_read(void **state) {
    (void)state;
    static const struct {
        const char *words;
        uint64_t first, last;
    } cases[] = {
        {"1", 1, 0},      {"steps=10-12", 10, 12}, {"steps=7", 7, 7},         {"steps=3-", 3, 0},
        {"skip=2", 3, 0}, {"skip=0", 1, 0},        {"steps=2-3,skip=5", 6, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__config c = read_ok(cases[i].words);
        assert_int_equal(c.first_step, cases[i].first);
        assert_int_equal(c.last_step, cases[i].last);
    }
}

static void reports_of_a_running_program_are_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *words;
        uint64_t ns, steps;
    } cases[] = {{"1", 0, 0},
                 {"every=30s", 30000000000u, 0},
                 {"every=500ms", 500000000, 0},
                 {"every=2m", 120000000000u, 0},
                 {"every=1h", 3600000000000u, 0},
                 {"every=100steps", 0, 100},
                 {"every=1s,every=1step", 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__config c = read_ok(cases[i].words);
        assert_int_equal(c.every_ns, cases[i].ns);
        assert_int_equal(c.every_steps, cases[i].steps);
    }
    assert_int_equal(read_ok("1").signal, 0);
    assert_int_equal(read_ok("signal=USR1").signal, SIGUSR1);
    assert_int_equal(read_ok("signal=USR2,threads").signal, SIGUSR2);
    assert_true(read_ok("threads").by_thread);
}

static void the_bound_of_memory_is_read(void **state) {
    (void)state;
    assert_int_equal(read_ok("1").buffer_bytes, 64 << 20);
    assert_int_equal(read_ok("buf=8M").buffer_bytes, 8 << 20);
    assert_int_equal(read_ok("buf=1024K").buffer_bytes, 1 << 20);
    assert_int_equal(read_ok("buf=2G").buffer_bytes, (uint64_t)2 << 30);
    assert_int_equal(read_ok("buf=5000000").buffer_bytes, 5000000);
}

static void the_bound_of_a_trace_is_read(void **state) {
    (void)state;
    assert_int_equal(read_ok("1").trace_max, 0);
    assert_int_equal(read_ok("trace=t.pftrace,trace_max=64M").trace_max, 64 << 20);
    assert_int_equal(read_ok("trace=t,trace_last=20").trace_steps, 20);
    assert_true(read_ok("html=a").timeline);
    assert_false(read_ok("html=a,notimeline").timeline);
    assert_int_equal(read_ok("trace=t,trace_slow=250ms").trace_slow_ns, 250000000);
}

static const char *const wrong_words[] = {"fast",
                                          "trace=t,trace_max=0",
                                          "trace=t,trace_last=1001",
                                          "trace=t,trace_slow=0s",
                                          "cpux",
                                          "depth",
                                          "depth=",
                                          "depth=x",
                                          "depth=-1",
                                          "depth=1e9",
                                          "mem=1",
                                          "sort=up",
                                          "columns=1",
                                          "clock=",
                                          "out=",
                                          "flame",
                                          "nvtx=1",
                                          "=",
                                          "1 ,cpu",
                                          " 1",
                                          "every=x",
                                          "every=0s",
                                          "every=5",
                                          "every=-1s",
                                          "every=9e9s",
                                          "every=99999999999999999h",
                                          "every=1days",
                                          "steps=0",
                                          "steps=3-2",
                                          "steps=-3",
                                          "steps=1-2-3",
                                          "steps=",
                                          "steps=99999999999999999999",
                                          "skip=x",
                                          "skip=1-2",
                                          "skip=18446744073709551615",
                                          "signal=KILL",
                                          "signal=",
                                          "buf=1K",
                                          "buf=M",
                                          "buf=32mb",
                                          "buf=99999999999G",
                                          "threads=2"};

static void a_wrong_word_is_one_line(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_words / sizeof *wrong_words; i++) {
        kn__text messages = {0};
        kn__config config = read_words(wrong_words[i], NULL, &messages);
        assert_non_null(messages.data);
        assert_ptr_equal(strchr(messages.data, '\n'), messages.data + messages.length - 1);
        assert_int_equal(config.tier, KN__TIER_CPU); /* the run is timed all the same */
        kn__text_release(&messages);
    }
}

static void assert_warns(const char *words, bool is_secure, const char *want) {
    kn__text messages = {0};
    kn__config config;
    kn__config_read(&config, words, NULL, is_secure, &messages);
    assert_string_equal(messages.data ? messages.data : "", want);
    kn__text_release(&messages);
}

static void a_wrong_value_is_named_with_those_that_fit(void **state) {
    (void)state;
    assert_warns("depth=201", false,
                 "KNET_TIMER: \"depth=201\" has a value that does not fit: depth=N, levels shown, "
                 "up to 200; 0 is all\n");
    assert_warns("sort=up", false,
                 "KNET_TIMER: \"sort=up\" has a value that does not fit: "
                 "sort=time|calls|alloc|peak|gpu|name|first, order of rows; time\n");
    assert_warns("depth", false,
                 "KNET_TIMER: \"depth\" wants a value: depth=N, levels shown, up to 200; 0 is "
                 "all\n");
    assert_warns("threads=2", false, "KNET_TIMER: \"threads=2\" takes no value\n");
}

static void two_words_of_one_file_are_reported(void **state) {
    (void)state;
    assert_warns(
        "out=s.txt,json=s.txt,csv=t", false,
        "KNET_TIMER: \"json=s.txt\" names the same file as out=: only one of them is there "
        "at the end\n");
    assert_warns(
        "csv=a,json=b,json=c,trace=c", false,
        "KNET_TIMER: \"trace=c\" names the same file as json=: only one of them is there at "
        "the end\n");
    assert_warns("out=/dev/null,json=/dev/null", false, "");
    assert_warns("json=a,json=a", false, "");
}

/* In what is no file each report is behind the one before, wherever it lies. */
static void what_is_no_file_has_all_reports(void **state) {
    (void)state;
    char pipe_path[] = "/tmp/knet_env_XXXXXX/pipe", words[128];
    char *end = strrchr(pipe_path, '/');
    *end = '\0';
    assert_non_null(mkdtemp(pipe_path));
    *end = '/';
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    snprintf(words, sizeof words, "out=%s,json=%s", pipe_path, pipe_path);
    setenv("RANK", "1", 1);
    assert_warns(words, false, "");
    assert_warns("out=/dev/null,json=/dev/null", false, "");
    assert_warns("out=/proc/self/fd/9,json=/dev/fd/8", false, ""); /* its files are its own */
    unsetenv("RANK");
    assert_warns("out=/dev/shm/knet_none,json=/dev/shm/knet_none", false,
                 "KNET_TIMER: \"json=/dev/shm/knet_none\" names the same file as out=: only one of "
                 "them is there at the end\n");
    assert_int_equal(unlink(pipe_path), 0);
    *end = '\0';
    assert_int_equal(rmdir(pipe_path), 0);
}

/* All ranks but the first say so. */
static void one_file_of_several_ranks_is_reported(void **state) {
    (void)state;
    static const char words[] = "json=a,gpu,csv=b.%r,html=c.%p,out=-,metrics=/dev/null,trace=d";
    setenv("RANK", "1", 1);
    assert_warns(words, false,
                 "KNET_TIMER: \"json=a\" names the same file on every rank: only one of their "
                 "reports is there at the end; put %r into the name\n");
    assert_warns("json=/dev/shm/%%r%%%%p.json,csv=%%%r", false,
                 "KNET_TIMER: \"json=/dev/shm/%%r%%%%p.json\" names the same file on every rank: "
                 "only one of their reports is there at the end; put %r into the name\n");
    setenv("RANK", "0", 1);
    assert_warns(words, false, "");
    unsetenv("RANK");
    assert_warns(words, false, "");
}

static void a_child_writes_files_of_its_own_alone(void **state) {
    (void)state;
    kn__config config = read_ok("out=-,json=a.%p,csv=b.%%p,html=c.%%%p,folded=d");
    kn__config_for_child(&config);
    assert_string_equal(config.out, "-");
    assert_string_equal(config.json, "a.%p");
    assert_string_equal(config.csv, "");
    assert_string_equal(config.html, "c.%%%p");
    assert_string_equal(config.folded, "");
    assert_string_equal(config.left_out, "b.%%p");
    config = read_ok("out=/dev/null");
    kn__config_for_child(&config);
    assert_string_equal(config.out, "");
    assert_string_equal(config.left_out, "");
}

static void a_report_is_no_perfetto_trace(void **state) {
    (void)state;
    static const char *const names[] = {"out",   "json", "csv",     "folded",
                                        "flame", "html", "metrics", "record"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[64], want[160];
        snprintf(words, sizeof words, "gpu,%s=x.pftrace", names[i]);
        snprintf(want, sizeof want,
                 "KNET_TIMER: \"%s=x.pftrace\" is ignored: this is the name of a trace for "
                 "Perfetto, which trace=FILE writes\n",
                 names[i]);
        assert_warns(words, false, want);
    }
    assert_warns("gpu,trace=x.pftrace,cupti=x.pftrace.so,json=x.pftrace.json", false, "");
    kn__text messages = {0};
    kn__config config;
    kn__config_read(&config, "out=x.pftrace,json=a,json=y.pftrace", NULL, false, &messages);
    assert_string_equal(config.out, "-");
    assert_string_equal(config.json, "a");
    kn__text_release(&messages);
}

static void the_first_wrong_word_lists_the_valid_ones(void **state) {
    (void)state;
    kn__text messages = {0};
    (void)read_words("fast,slow", NULL, &messages);
    const char *first =
        strstr(messages.data, "\"fast\" is not a word of the timer; the words are 1, ");
    assert_non_null(first);
    assert_null(strstr(strstr(first, "the words are") + 1, "the words are"));
    assert_non_null(strstr(first, "\"slow\" is not a word of the timer\n"));
    kn__text_release(&messages);
}

static void words_beside_a_wrong_one_count(void **state) {
    (void)state;
    kn__text messages = {0};
    kn__config config = read_words("dept=3,depth=2,sort=nothing,sort=name", NULL, &messages);
    assert_int_equal(config.depth, 2);
    assert_int_equal(config.sort, KN__SORT_NAME);
    kn__text_release(&messages);
}

static void a_word_without_effect_is_reported(void **state) {
    (void)state;
    assert_warns("nvtx,json=a.json", false,
                 "KNET_TIMER: \"json=a.json\" has no effect: nvtx makes no table\n");
    assert_warns("gpu,nvtx", false, "KNET_TIMER: \"gpu\" has no effect: nvtx makes no table\n");
    assert_warns("record=a,1,cupti=b", false,
                 "KNET_TIMER: \"record=a\" has no effect without gpu, gpu-lite or full\n"
                 "KNET_TIMER: \"cupti=b\" has no effect without gpu, gpu-lite or full\n");
    assert_warns("weight=gpu", false,
                 "KNET_TIMER: \"weight=gpu\" has no effect without folded= or flame=\n");
    assert_warns("trace_max=1M", false,
                 "KNET_TIMER: \"trace_max=1M\" has no effect without trace= or events\n");
    assert_warns("trace_max=1M,html=a", false,
                 "KNET_TIMER: \"trace_max=1M\" has no effect without trace= or events\n");
    assert_warns("trace_last=1", false,
                 "KNET_TIMER: \"trace_last=1\" has no effect without trace=, events or html=\n");
    assert_warns("notimeline", false, "KNET_TIMER: \"notimeline\" has no effect without html=\n");
    static const char *const good[] = {
        "trace_last=1,html=a",   "html=a,notimeline",   "off,json=a",
        "gpu-lite,record=a",     "weight=time,flame=a", "folded=a,weight=gpu",
        "nvtx,buf=1M,clock=tsc", "json=a,depth=2"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_warns(good[i], false, "");
    assert_warns("out=-,json=-", true, ""); /* no file */
}

static void a_setuid_program_writes_no_file_that_a_word_names(void **state) {
    (void)state;
    static const char *const names[] = {"out",    "json",  "trace", "csv",
                                        "folded", "flame", "cupti", "record"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[64], want[128];
        snprintf(words, sizeof words, "gpu,%s=x", names[i]);
        snprintf(want, sizeof want,
                 "KNET_TIMER: \"%s=x\" is ignored: this program is setuid or setgid\n", names[i]);
        assert_warns(words, true, want);
    }
    kn__text messages = {0};
    kn__config config;
    kn__config_read(&config, "gpu,json=x,out=y,out=-,cupti=z,depth=2", NULL, true, &messages);
    assert_string_equal(config.json, "");
    assert_string_equal(config.out, "-");
    assert_string_equal(config.cupti, "");
    assert_int_equal(config.depth, 2);
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

/* KNET_GOLDEN_WRITE=1 writes it anew, for a person to look at. */
static void help_is_the_text_that_was_agreed_on(void **state) {
    (void)state;
    kn__text text = {0};
    kn__config_help(&text);
    char path[4096], want[8192];
    snprintf(path, sizeof path, "%s/help.txt", golden_dir);
    FILE *file = fopen(path, getenv("KNET_GOLDEN_WRITE") ? "w+b" : "rb");
    if (!file) fail_msg("%s is missing", path);
    if (getenv("KNET_GOLDEN_WRITE")) fwrite(text.data, 1, text.length, file);
    rewind(file);
    want[fread(want, 1, sizeof want - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text.data, want);
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

static void a_long_word_is_reported(void **state) {
    (void)state;
    char value[2000] = "out=";
    memset(value + 4, 'x', sizeof value - 5);
    kn__text messages = {0};
    kn__config config = read_words(value, NULL, &messages);
    assert_non_null(strstr(messages.data, "too long"));
    assert_string_equal(config.out, "-");
    kn__text_release(&messages);
}

int main(int argc, char **argv) {
    golden_dir = argc > 1 ? argv[1] : ".";
    return RUN_TESTS(
        TEST(unset_empty_and_zero_are_off), TEST(one_is_the_table_with_memory_on_stderr),
        TEST(every_word_sets_its_option), TEST(a_wrong_word_is_one_line),
        TEST(a_child_writes_files_of_its_own_alone), TEST(a_report_is_no_perfetto_trace),
        TEST(the_first_wrong_word_lists_the_valid_ones), TEST(words_beside_a_wrong_one_count),
        TEST(a_wrong_value_is_named_with_those_that_fit), TEST(two_words_of_one_file_are_reported),
        TEST(what_is_no_file_has_all_reports), TEST(one_file_of_several_ranks_is_reported),
        TEST(a_word_without_effect_is_reported),
        TEST(a_setuid_program_writes_no_file_that_a_word_names),
        TEST(autograd_timer_alone_records_gradient_scopes),
        TEST(help_is_the_text_that_was_agreed_on), TEST(help_alone_leaves_the_timer_off),
        TEST(a_window_of_steps_is_read), TEST(reports_of_a_running_program_are_asked_for),
        TEST(the_bound_of_memory_is_read), TEST(the_bound_of_a_trace_is_read),
        TEST(any_bytes_are_read_without_harm), TEST(a_long_word_is_reported));
}
