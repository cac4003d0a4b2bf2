/* GPU times in a whole program, by a mock of CUPTI. */
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const char *program, *mock;
static char json_path[] = "/tmp/knet-cupti-XXXXXX";

typedef struct outcome {
    int code;
    char err[65536];
    cJSON *json; /* NULL: none was written */
} outcome;

static void read_all(FILE *file, char *out, size_t size) {
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

static cJSON *read_json(void) {
    static char text[1 << 20];
    FILE *file = fopen(json_path, "rb");
    if (!file) return NULL;
    read_all(file, text, sizeof text);
    unlink(json_path);
    return cJSON_Parse(text);
}

static outcome run(const char *words, const char *n_threads, const char *library) {
    static outcome o;
    FILE *err = tmpfile();
    char timer[1024];
    snprintf(timer, sizeof timer, "gpu,ascii,cupti=%s,json=%s", library, json_path);
    pid_t child = fork();
    if (child == 0) {
        setenv("KNET_TIMER", timer, 1);
        setenv("MOCK_CUPTI", words, 1);
        dup2(fileno(err), 2);
        execl(program, program, mock, n_threads, (char *)NULL);
        _exit(97);
    }
    int status = 0;
    waitpid(child, &status, 0);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    read_all(err, o.err, sizeof o.err);
    o.json = read_json();
    return o;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

static const cJSON *child(const cJSON *row, const char *label) {
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(
                                 row, cJSON_GetObjectItem(row, "scopes") ? "scopes" : "children")) {
        if (strcmp(cJSON_GetObjectItem(item, "label")->valuestring, label) == 0) return item;
    }
    fail_msg("no row %s", label);
    return NULL;
}

/* What `n` threads launched, however the records came. */
static void assert_complete(const outcome *o, int n) {
    assert_int_equal(o->code, 6);
    assert_non_null(o->json);
    const cJSON *train = child(o->json, "train"), *gemm = child(train, "gemm");
    const cJSON *kernel = child(gemm, "_ZN7cutlass6KernelI4GemmLi128EEEvT_");
    assert_int_equal(number(kernel, "n_gpu"), 1000 * n);
    assert_int_equal(number(gemm, "gpu_ns"), 2000000 * n);
    assert_int_equal(number(child(train, "[memcpy HtoD]"), "gpu_ns"), 250000 * n);
    assert_int_equal(number(train, "gpu_ns"), (2000000 + 250000 + 500 + 700) * n);
    const cJSON *gpu = cJSON_GetObjectItem(o->json, "gpu");
    assert_int_equal(number(gpu, "launched"), 1252 * n); /* the one that failed is none */
    assert_int_equal(number(gpu, "timed"), 1252 * n);
    assert_int_equal(number(gpu, "pending") + number(gpu, "dropped") + number(gpu, "untimed"), 0);
    assert_int_equal(number(gpu, "n_unattributed"), 0);
}

static void gpu_time_stands_beside_cpu_time(void **state) {
    (void)state;
    outcome o = run("", "1", mock);
    assert_complete(&o, 1);
    assert_non_null(strstr(o.err, "cupti 130001: launched 1252 = timed 1252 + pending 0"));
    assert_non_null(strstr(o.err, "\n     cutlass::Kernel "));
    assert_non_null(strstr(o.err, "\n   [memcpy HtoD] "));
    cJSON_Delete(o.json);
}

static void records_may_carry_the_driver_calls_id(void **state) {
    (void)state;
    outcome o = run("driver", "1", mock);
    assert_complete(&o, 1);
    cJSON_Delete(o.json);
}

static void the_real_library_walks_the_same_records(void **state) {
    (void)state;
    void *real = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!real) skip();
    outcome o = run("real,late", "2", mock);
    assert_complete(&o, 2);
    cJSON_Delete(o.json);
}

static void late_and_shuffled_records_of_many_threads_all_arrive(void **state) {
    (void)state;
    outcome o = run("late", "8", mock);
    assert_complete(&o, 8);
    cJSON_Delete(o.json);
    o = run("late,driver", "8", mock);
    assert_complete(&o, 8);
    cJSON_Delete(o.json);
}

static void dropped_records_are_counted(void **state) {
    (void)state;
    outcome o = run("drop=4", "1", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 1252);
    assert_int_equal(number(gpu, "dropped"), 313);
    assert_int_equal(number(gpu, "timed"), 1252 - 313);
    assert_int_equal(number(gpu, "pending"), 0);
    cJSON_Delete(o.json);
}

static void records_without_times_are_counted(void **state) {
    (void)state;
    outcome o = run("zero", "1", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "untimed"), 1252);
    assert_int_equal(number(gpu, "timed"), 0);
    assert_int_equal(number(child(o.json, "train"), "gpu_ns"), 0);
    cJSON_Delete(o.json);
}

static void another_tool_leaves_the_cpu_table_and_is_named(void **state) {
    (void)state;
    outcome o = run("held", "1", mock);
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "KNET_TIMER: no GPU times: CUPTI is held by Nsight Systems"));
    assert_non_null(strstr(o.err, "\n   gemm "));
    assert_null(cJSON_GetObjectItem(o.json, "gpu"));
    cJSON_Delete(o.json);
}

static void without_driver_or_library_the_cpu_table_remains(void **state) {
    (void)state;
    outcome o = run("nodriver", "1", mock);
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "no GPU times: "));
    assert_non_null(strstr(o.err, "\n   gemm "));
    cJSON_Delete(o.json);
    o = run("", "1", "/nowhere/libcupti.so");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "no GPU times: libcupti can't be loaded: /nowhere"));
    assert_non_null(strstr(o.err, "\n   gemm "));
    cJSON_Delete(o.json);
}

static void any_call_of_the_start_may_fail(void **state) {
    (void)state;
    int n_failed = 0;
    for (int n = 1; n <= 12; n++) {
        char words[32];
        snprintf(words, sizeof words, "fail=%d", n);
        outcome o = run(words, "1", mock);
        assert_int_equal(o.code, 6);
        assert_non_null(strstr(o.err, "\n   gemm "));
        n_failed += strstr(o.err, "no GPU times: ") != NULL;
        cJSON_Delete(o.json);
    }
    assert_true(n_failed >= 8);
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    program = argv[1];
    mock = argv[2];
    int fd = mkstemp(json_path);
    if (fd < 0) return 1;
    close(fd);
    int failed = RUN_TESTS(
        TEST(gpu_time_stands_beside_cpu_time), TEST(records_may_carry_the_driver_calls_id),
        TEST(the_real_library_walks_the_same_records),
        TEST(late_and_shuffled_records_of_many_threads_all_arrive),
        TEST(dropped_records_are_counted), TEST(records_without_times_are_counted),
        TEST(another_tool_leaves_the_cpu_table_and_is_named),
        TEST(without_driver_or_library_the_cpu_table_remains),
        TEST(any_call_of_the_start_may_fail));
    unlink(json_path);
    return failed;
}
