#include "gpu_run.h"

#include <unistd.h>

#include "test.h"

const char *gpu_program, *mock, *driver, *listener;
static char json_path[] = "/tmp/knet-cupti-XXXXXX";
static cJSON *json;

bool gpu_run_init(int argc, char **argv) {
    int fd = argc < 4 ? -1 : mkstemp(json_path);
    if (fd < 0) return false;
    close(fd);
    gpu_program = argv[1];
    mock = argv[2];
    driver = argv[3];
    listener = argc > 4 && argv[4][0] ? argv[4] : NULL;
    return true;
}

void gpu_run_release(void) {
    cJSON_Delete(json);
    unlink(json_path);
}

typedef struct environment {
    const char *timer, *words, *what;
} environment;

static void prepare(const void *ctx) {
    const environment *e = ctx;
    setenv("KNET_TIMER", e->timer, 1);
    setenv("MOCK_CUPTI", e->words, 1);
    if (getenv("LD_PRELOAD") || strstr(e->what, "forks")) relax_sanitizer();
}

outcome run_gpu(const char *tier, const char *words, const char *what, const char *library) {
    static outcome o;
    char timer[1024];
    snprintf(timer, sizeof timer, "%s,ascii,cupti=%s,json=%s", tier, library, json_path);
    const char *const argv[] = {gpu_program, mock, what, NULL};
    run_child(&o, argv, prepare, &(environment){timer, words, what});
    const char *text = read_file(json_path);
    cJSON_Delete(json);
    o.json = json = text ? cJSON_Parse(text) : NULL;
    unlink(json_path);
    return o;
}

outcome run(const char *words, const char *what) { return run_gpu("gpu", words, what, mock); }

outcome run_driver(const char *words, const char *what, const char *cuda) {
    const char *old = getenv("LD_LIBRARY_PATH");
    char before[4096], path[8192];
    snprintf(before, sizeof before, "%s", old ? old : "");
    snprintf(path, sizeof path, "%s:%s", driver, before);
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("LD_PRELOAD", "libcuda.so.1", 1);
    setenv("MOCK_CUDA", cuda, 1);
    outcome o = run(words, what);
    unsetenv("LD_PRELOAD");
    setenv("LD_LIBRARY_PATH", before, 1);
    return o;
}

double balance(const outcome *o, const char *key) {
    return number(cJSON_GetObjectItem(o->json, "gpu"), key);
}

void assert_complete(const outcome *o, int n) {
    assert_int_equal(o->code, 6);
    assert_non_null(o->json);
    const cJSON *train = row_at(o->json, "train"), *gemm = row_at(train, "gemm");
    const cJSON *kernel = row_at(gemm, "_ZN7cutlass6KernelI4GemmLi128EEEvT_");
    assert_int_equal(number(kernel, "n_gpu"), 1000 * n);
    assert_int_equal(number(gemm, "gpu_ns"), 2000000 * n);
    assert_int_equal(number(row_at(train, "[memcpy HtoD]"), "gpu_ns"), 250000 * n);
    assert_int_equal(number(train, "gpu_ns"), (2000000 + 250000 + 500 + 700) * n);
    assert_int_equal(balance(o, "launched"), 1252 * n); /* the one that failed is none */
    assert_int_equal(balance(o, "timed"), 1252 * n);
    assert_int_equal(balance(o, "pending") + balance(o, "dropped") + balance(o, "untimed"), 0);
    assert_int_equal(balance(o, "n_unattributed"), 0);
    assert_int_equal(number(row_at(train, "[memcpy HtoD]"), "gpu_bytes"), 250 * 4096 * n);
}
