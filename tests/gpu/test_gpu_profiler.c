/* GPU time of scopes compared with events around the same work. The program starts itself
 * again with KNET_TIMER set, for the timer reads it when the library is loaded. */
#include "gpu.h"

#include <cjson/cJSON.h>
#include <cuda_runtime_api.h>
#include <knet/ops.h>

#include <unistd.h>

static kn_device *gpu;
static char report[] = "/tmp/knet-gpu-profiler-XXXXXX.json";

enum { REPEATS = 50 };

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

typedef kn_tensor *(*work_fn)(kn_tensor *x);

static kn_tensor *multiply(kn_tensor *x) { return kn_matmul(x, x, NULL); }
static kn_tensor *add(kn_tensor *x) { return kn_add(x, x); }
static kn_tensor *sum_rows(kn_tensor *x) { return kn_sum(x, KN_SHAPE(1), false); }

/* ns between two events round REPEATS calls in a scope of this name. */
static double measure(const char *label, work_fn work, kn_tensor *x) {
    cudaEvent_t begin, end;
    cudaStream_t stream = kn_frame_stream();
    float ms = 0;
    assert_cuda(cudaEventCreate(&begin));
    assert_cuda(cudaEventCreate(&end));
    {
        KN_FRAME();
        (void)work(x); /* loads its kernel */
    }
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaEventRecord(begin, stream));
    {
        kn_scope scope = kn_scope_begin(label);
        for (int i = 0; i < REPEATS; i++) {
            KN_FRAME();
            (void)work(x);
        }
        kn_scope_end(&scope);
    }
    assert_cuda(cudaEventRecord(end, stream));
    assert_cuda(cudaEventSynchronize(end));
    assert_cuda(cudaEventElapsedTime(&ms, begin, end));
    assert_cuda(cudaEventDestroy(begin));
    assert_cuda(cudaEventDestroy(end));
    assert_ok(kn_check());
    return (double)ms * 1e6;
}

static cJSON *read_report(void) {
    assert_ok(kn_prof_report(report));
    FILE *file = fopen(report, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(file);
    char *text = calloc(1, n + 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, n, file), n);
    fclose(file);
    unlink(report);
    cJSON *json = cJSON_Parse(text);
    free(text);
    assert_non_null(json);
    return json;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!item) fail_msg("the report has no %s", name);
    return item->valuedouble;
}

static const cJSON *row_of(const cJSON *json, const char *label) {
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "scopes")) {
        if (strcmp(cJSON_GetObjectItem(row, "label")->valuestring, label) == 0) return row;
    }
    fail_msg("no row %s", label);
    return NULL;
}

/* Kernels one after the other on one stream can't take longer than the events round them, and where
 * each takes a millisecond they take nearly all of it. */
static void gpu_time_of_scopes_matches_events(void **state) {
    (void)state;
    static const struct {
        const char *label;
        work_fn work;
    } works[] = {{"multiply", multiply}, {"add", add}, {"sum rows", sum_rows}};
    double events[3];
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_full(KN_SHAPE(8192, 8192), 0.5);
    for (int i = 0; i < 3; i++) events[i] = measure(works[i].label, works[i].work, x);
    cJSON *json = read_report();
    const cJSON *balance = cJSON_GetObjectItem(json, "gpu");
    assert_non_null(balance);
    assert_true(number(balance, "launched") > 0);
    assert_int_equal(number(balance, "pending") + number(balance, "dropped"), 0);
    for (int i = 0; i < 3; i++) {
        double scope = number(row_of(json, works[i].label), "gpu_ns");
        print_message("%s: scope %.0f ns, events %.0f ns, %.3f\n", works[i].label, scope, events[i],
                      scope / events[i]);
        assert_true(number(row_of(json, works[i].label), "n_gpu") >= REPEATS);
        assert_true(scope <= 1.01 * events[i] && scope >= 0.85 * events[i]);
    }
    cJSON_Delete(json);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("KNET_TIMER")) {
        gpu = gpu_get(); /* skips here, with no timer's table */
        setenv("KNET_TIMER", "gpu,out=/dev/null", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    gpu = gpu_get();
    int fd = mkstemps(report, 5);
    if (fd < 0) return 1;
    close(fd);
    return RUN_TESTS(TEST(gpu_time_of_scopes_matches_events));
}
