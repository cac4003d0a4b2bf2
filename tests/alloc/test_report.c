/* Whole programs under KNET_ALLOC: test_report PROGRAM. */
#include <cjson/cJSON.h>
#include <knet/trace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const char *program;
static char dir[] = "/tmp/knet_report_XXXXXX";

typedef struct ran {
    char out[4096], err[16384];
} ran;

static size_t slurp(char *text, size_t bytes, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    memset(text, 0, bytes);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

/* In the test's folder. */
static ran run(const char *words, const char *arguments) {
    ran r;
    char command[4096];
    snprintf(command, sizeof command, "cd %s && KNET_ALLOC='%s' '%s' %s >out 2>err", dir, words,
             program, arguments);
    int code = system(command);
    slurp(r.out, sizeof r.out, "out");
    slurp(r.err, sizeof r.err, "err");
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) fail_msg("%s: %d: %s", command, code, r.err);
    return r;
}

static int occurrences(const char *text, const char *piece) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, piece)); at++) n++;
    return n;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", name);
    return item->valuedouble;
}

static void without_words_nothing_is_said(void **state) {
    (void)state;
    assert_string_equal(run("", "").err, "");
    assert_string_equal(run("limit=1GiB,decay=1h", "named").err, "");
}

static void wrong_words_are_told_and_the_program_goes_on(void **state) {
    (void)state;
    ran r = run("stast,limit=lots", "");
    assert_int_equal(occurrences(r.err, "\n"), 2);
    assert_non_null(strstr(r.err, "KNET_ALLOC: \"stast\" is ignored: there is no such word"));
    assert_non_null(strstr(r.err, "KNET_ALLOC: \"limit=lots\" is ignored: limit=SIZE takes"));
}

static void help_is_told_and_the_program_goes_on(void **state) {
    (void)state;
    ran r = run("help,stats", "");
    assert_non_null(strstr(r.err, "KNET_ALLOC is a list of words"));
    assert_non_null(strstr(r.err, "pool sim on sim"));
}

static void limits_hold_for_default_pools(void **state) {
    (void)state;
    ran r = run("limit=32MiB", "oom named"); /* not for the one of its own */
    assert_non_null(strstr(r.out, "of a limit of 32.0 MiB"));
    r = run("fraction=0.25", "oom");
    assert_non_null(strstr(r.out, "of a limit of 16.00 GiB"));
}

static void options_the_device_can_not_have_are_told_and_left_out(void **state) {
    (void)state;
    ran r = run("limit=65GiB", "oom");
    assert_int_equal(occurrences(r.err, "\n"), 1);
    assert_non_null(strstr(r.err,
                           "KNET_ALLOC: kn_pool_create: limit_bytes is 69793218560, but sim "
                           "has 68719476736 bytes; the pool of sim takes the defaults"));
    assert_non_null(strstr(r.out, "no limit"));
}

static void stats_are_a_table_for_each_pool(void **state) {
    (void)state;
    ran r = run("stats", "named oom exit");
    const char *own = strstr(r.err, "pool own on sim, limit 1.00 GiB\n");
    const char *other = strstr(r.err, "pool sim on sim\n");
    assert_true(own && other && own < other); /* it went first */
    assert_int_equal(occurrences(r.err, "pool "), 2);
    for (const char *const *row =
             (const char *const[]){"now         peak        total", "live", "3.0 MiB",
                                   "allocations               ", "slots of", "512", "stream",
                                   "ladder", "grow", "wait", "larger", NULL};
         *row; row++) {
        if (!strstr(other, *row)) fail_msg("no \"%s\" in %s", *row, other);
    }
    r = run("stats=stats.txt", "fork");
    assert_string_equal(r.err, "");
    slurp(r.err, sizeof r.err, "stats.txt");
    assert_int_equal(occurrences(r.err, "pool sim"), 1); /* the child says nothing */
}

static void stats_are_a_line_of_json_for_each_pool(void **state) {
    (void)state;
    char text[16384];
    (void)run("stats=stats.json", "named exit");
    slurp(text, sizeof text, "stats.json");
    char *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = '\0';
    cJSON *own = cJSON_Parse(text), *other = cJSON_Parse(second);
    assert_true(own && other);
    assert_string_equal(cJSON_GetObjectItem(own, "pool")->valuestring, "own");
    assert_true(number(own, "live_bytes") == 0 && number(own, "n_allocs") == 1);
    assert_true(number(other, "live_bytes") == 512 + 3 * 1048576.0);
    assert_true(number(other, "live_bytes_max") == 512 + 3 * 1048576.0);
    assert_true(number(other, "requested_bytes") == 300 + 3 * 1048576.0);
    assert_true(number(other, "live_blocks") == 2);
    const cJSON *class = cJSON_GetArrayItem(cJSON_GetObjectItem(other, "classes"), 0);
    assert_true(number(class, "bytes") == 512 && number(class, "live") == 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(other, "streams")), 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(other, "ladder")), 11);
    cJSON_Delete(own);
    cJSON_Delete(other);
}

static void snapshot_has_every_live_block_at_exit(void **state) {
    (void)state;
    char text[16384];
    (void)run("snapshot=snapshot.json", "exit oom");
    slurp(text, sizeof text, "snapshot.json");
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_int_equal(occurrences(text, "\"state\":\"live\""), 1);
    assert_int_equal(occurrences(text, "\"requested\":300"), 1);
    const cJSON *oom = cJSON_GetObjectItem(root, "last_oom");
    assert_true(number(oom, "requested_bytes") == 137438953472.0);
    cJSON_Delete(root);
}

static void every_failed_allocation_is_a_line_of_json(void **state) {
    (void)state;
    char text[16384];
    (void)run("oom=oom.json,limit=64MiB", "oom");
    slurp(text, sizeof text, "oom.json");
    assert_int_equal(occurrences(text, "\n"), 2);
    *strchr(text, '\n') = '\0';
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "pool")->valuestring, "sim");
    assert_true(number(root, "requested_bytes") == 137438953472.0);
    assert_true(number(root, "limit_bytes") == 64 * 1048576.0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "soft_limit_bytes")));
    assert_true(number(cJSON_GetObjectItem(root, "stats"), "n_allocs") == 2);
    cJSON_Delete(root);
}

static void trace_has_the_whole_run(void **state) {
    (void)state;
    char command[256];
    (void)run("trace=run.%p.kntrace", "");
    snprintf(command, sizeof command, "cd %s && mv run.[0-9]*.kntrace whole", dir);
    assert_int_equal(system(command), 0);
    kn_trace_header header;
    char text[4096];
    size_t bytes = slurp(text, sizeof text, "whole");
    assert_true(bytes >= sizeof header + 8 * sizeof(kn_trace_record));
    assert_int_equal((bytes - sizeof header) % sizeof(kn_trace_record), 0);
    memcpy(&header, text, sizeof header);
    assert_string_equal(header.magic, KN_TRACE_MAGIC);
}

static void what_can_not_be_written_is_told(void **state) {
    (void)state;
    ran r = run("stats=none/a,snapshot=none/b,oom=none/c,trace=none/d", "oom");
    assert_non_null(strstr(r.err, "KNET_ALLOC: stats: "));
    assert_non_null(strstr(r.err, "none/b can't be written: No such file"));
    assert_int_equal(occurrences(r.err, "none/c can't be written"), 2); /* once for each */
    assert_int_equal(occurrences(r.err, "none/d can't be written"), 1);
}

int main(int argc, char **argv) {
    if (argc < 2 || !mkdtemp(dir)) return 1;
    program = argv[1];
    int failed = RUN_TESTS(
        TEST(without_words_nothing_is_said), TEST(wrong_words_are_told_and_the_program_goes_on),
        TEST(help_is_told_and_the_program_goes_on), TEST(limits_hold_for_default_pools),
        TEST(options_the_device_can_not_have_are_told_and_left_out),
        TEST(stats_are_a_table_for_each_pool), TEST(stats_are_a_line_of_json_for_each_pool),
        TEST(snapshot_has_every_live_block_at_exit),
        TEST(every_failed_allocation_is_a_line_of_json), TEST(trace_has_the_whole_run),
        TEST(what_can_not_be_written_is_told));
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) || failed;
}
