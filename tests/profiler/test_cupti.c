/* GPU times in a whole program, by a mock of CUPTI. */
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const char *program, *mock, *driver, *listener; /* driver: a folder */
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

/* AddressSanitizer looks for leaks in every child, and wants to be the first library. */
static void relax_sanitizer(void) {
    const char *old = getenv("ASAN_OPTIONS");
    char options[512];
    snprintf(options, sizeof options, "%s:detect_leaks=0:verify_asan_link_order=0", old ? old : "");
    setenv("ASAN_OPTIONS", options, 1);
}

static outcome run_tier(const char *tier, const char *words, const char *what,
                        const char *library) {
    static outcome o;
    FILE *err = tmpfile();
    char timer[1024];
    snprintf(timer, sizeof timer, "%s,ascii,cupti=%s,json=%s", tier, library, json_path);
    pid_t child = fork();
    if (child == 0) {
        setenv("KNET_TIMER", timer, 1);
        setenv("MOCK_CUPTI", words, 1);
        if (getenv("LD_PRELOAD") || strstr(what, "forks")) relax_sanitizer();
        dup2(fileno(err), 2);
        execl(program, program, mock, what, (char *)NULL);
        _exit(97);
    }
    int status = 0;
    waitpid(child, &status, 0);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    read_all(err, o.err, sizeof o.err);
    o.json = read_json();
    return o;
}

static outcome run(const char *words, const char *what, const char *library) {
    return run_tier("gpu", words, what, library);
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
    assert_int_equal(number(gpu, "launched"), 1252 * n); /* the failed launch does not count */
    assert_int_equal(number(gpu, "timed"), 1252 * n);
    assert_int_equal(number(gpu, "pending") + number(gpu, "dropped") + number(gpu, "untimed"), 0);
    assert_int_equal(number(gpu, "n_unattributed"), 0);
    assert_int_equal(number(child(train, "[memcpy HtoD]"), "gpu_bytes"), 250 * 4096 * n);
}

static const cJSON *path(const cJSON *row, const char *labels) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", labels);
    for (char *rest = NULL, *label = strtok_r(copy, "/", &rest); label;
         label = strtok_r(NULL, "/", &rest)) {
        row = child(row, label);
    }
    return row;
}

static bool has_child(const cJSON *row, const char *label) {
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(
                                 row, cJSON_GetObjectItem(row, "scopes") ? "scopes" : "children")) {
        if (strcmp(cJSON_GetObjectItem(item, "label")->valuestring, label) == 0) return true;
    }
    return false;
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

static void many_threads_lose_no_event(void **state) {
    (void)state;
    outcome o = run("own,slow", "crowd", mock); /* the drain is behind from its first buffer on */
    assert_int_equal(o.code, 6);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 128 * 252);
    assert_int_equal(number(gpu, "timed"), 128 * 252);
    assert_int_equal(number(gpu, "n_unattributed"), 0);
    assert_int_equal(number(path(o.json, "train/gemm"), "gpu_ns"), 128 * 200 * 2000);
    assert_false(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
    cJSON_Delete(o.json);
}

static void a_full_budget_names_the_word_that_raises_it(void **state) {
    (void)state;
    outcome o = run_tier("gpu,buf=1M", "own", "crowd", mock);
    assert_int_equal(o.code, 6);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 128 * 252);
    assert_true(number(gpu, "dropped") > 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
    const char *told = strstr(o.err, "(1.00 MiB) was full");
    assert_non_null(told);
    assert_non_null(strstr(told, "raise KNET_TIMER=buf="));
    cJSON_Delete(o.json);
}

/* 96 buffers for 128 threads, while there is memory for all the rest. */
static void buffers_that_run_out_show(void **state) {
    (void)state;
    outcome o = run_tier("gpu,buf=12M", "own,endless", "pack", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(o.code, 6);
    assert_true(number(gpu, "dropped") > 0);
    assert_int_equal(number(gpu, "n_unattributed"), 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
    cJSON_Delete(o.json);
}

static void scopes_do_not_take_the_memory_of_cupti(void **state) {
    (void)state;
    outcome o = run_tier("gpu,buf=1M", "", "scopes", mock);
    assert_int_equal(o.code, 6);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 2000);
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
    assert_int_equal(number(gpu, "n_lost"), 313);
    assert_non_null(strstr(o.err, "; 313 records were lost"));
    cJSON_Delete(o.json);
    o = run("drop=4", "reports", mock); /* CUPTI counts from one question to the next */
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "n_lost"), 500);
    cJSON_Delete(o.json);
}

/* Each launch has records left, so none of them is dropped. */
static void records_lost_inside_a_graph_launch_show(void **state) {
    (void)state;
    outcome o = run("drop=4", "graph", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 50);
    assert_int_equal(number(gpu, "timed"), 50);
    assert_int_equal(number(gpu, "dropped"), 0);
    assert_int_equal(number(gpu, "n_lost"), 152 / 4);
    assert_non_null(strstr(o.err, "; 38 records were lost"));
    cJSON_Delete(o.json);
}

static void records_may_come_in_many_buffers(void **state) {
    (void)state;
    outcome o = run("split,late", "2", mock);
    assert_complete(&o, 2);
    cJSON_Delete(o.json);
}

static void ids_may_go_round(void **state) {
    (void)state;
    outcome o = run("wrap,late", "2", mock);
    assert_complete(&o, 2);
    cJSON_Delete(o.json);
    o = run("wrap,driver", "2", mock);
    assert_complete(&o, 2);
    cJSON_Delete(o.json);
}

/* A launch is timed once, whatever comes of it; time that the source tells twice is there twice. */
static void a_launch_with_two_records_is_one_launch(void **state) {
    (void)state;
    outcome o = run("twice", "1", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 1252);
    assert_int_equal(number(gpu, "timed"), 1252);
    assert_int_equal(number(child(child(o.json, "train"), "gemm"), "gpu_ns"), 2 * 2000000);
    cJSON_Delete(o.json);
}

static void without_buffers_all_is_dropped(void **state) {
    (void)state;
    outcome o = run("full", "1", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 1252);
    assert_int_equal(number(gpu, "dropped"), 1252);
    assert_int_equal(number(gpu, "timed"), 0);
    cJSON_Delete(o.json);
}

static void children_that_exit_end_and_leave_the_parents_report_alone(void **state) {
    (void)state;
    outcome o = run("", "forks", mock);
    assert_int_equal(o.code, 6);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "launched"), 60000);
    assert_int_equal(number(gpu, "timed"), 60000);
    assert_int_equal(number(child(child(o.json, "train"), "saxpy"), "n_gpu"), 60000);
    const char *table = strstr(o.err, "launched ");
    assert_non_null(table);
    assert_null(strstr(table + 1, "launched ")); /* one report, the parent's */
    cJSON_Delete(o.json);
}

static void children_take_no_lock_and_no_buffer(void **state) {
    (void)state;
    outcome o = run("own", "graph forks", mock);
    assert_int_equal(o.code, 6);
    cJSON_Delete(o.json);
}

static void the_timers_threads_block_all_signals(void **state) {
    (void)state;
    outcome o = run_tier("gpu,every=1h", "", "signals", mock);
    int n = 0;
    for (const char *at = o.err; (at = strstr(at, "SigBlk:")); n++) {
        uint64_t blocked = strtoull(at + 7, NULL, 16);
        at++;
        for (int i = 1; i < 32; i++) {
            if (i != SIGKILL && i != SIGSTOP) assert_true(blocked >> (i - 1) & 1);
        }
    }
    assert_true(n >= 2); /* the drain, the reports while the program runs, and a sanitizer's own */
    cJSON_Delete(o.json);
}

/* ---- what the driver and CUPTI do that is not in the manual, or only there ---- */

/* With the mock of the driver. */
static outcome run_driver(const char *words, const char *what, const char *cuda) {
    const char *old = getenv("LD_LIBRARY_PATH");
    char before[4096], path[8192];
    snprintf(before, sizeof before, "%s", old ? old : "");
    snprintf(path, sizeof path, "%s:%s", driver, before);
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("LD_PRELOAD", "libcuda.so.1", 1);
    setenv("MOCK_CUDA", cuda, 1);
    outcome o = run(words, what, mock);
    unsetenv("LD_PRELOAD");
    setenv("LD_LIBRARY_PATH", before, 1);
    return o;
}

static void the_end_waits_for_the_gpu(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "2", "");
    assert_complete(&o, 2);
    cJSON_Delete(o.json);
}

static void the_wait_for_the_gpu_ends(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "calls", "hang");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "the GPU was still at work"));
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "pending"), 19);
    cJSON_Delete(o.json);
}

static void a_destroyed_context_is_not_waited_for(void **state) {
    (void)state;
    outcome o = run_driver("", "context", "");
    assert_int_equal(o.code, 6);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 1);
    cJSON_Delete(o.json);
}

static void a_context_at_the_address_of_another_is_waited_for(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "context again", "");
    assert_int_equal(o.code, 6);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 2);
    cJSON_Delete(o.json);
}

static void records_are_flushed_before_cuda_is_torn_down(void **state) {
    (void)state;
    outcome o = run("teardown", "calls", mock);
    const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
    assert_int_equal(number(gpu, "timed"), 19);
    cJSON_Delete(o.json);
}

static void records_are_joined_while_the_program_runs(void **state) {
    (void)state;
    outcome o = run("", "wait", mock);
    assert_int_equal(o.code, 6);
    cJSON_Delete(o.json);
}

static void buffers_that_fill_up_wake_the_drain(void **state) {
    (void)state;
    outcome o = run_tier("gpu,buf=1M", "own,endless", "wake", mock); /* its period has no end */
    assert_int_equal(o.code, 6);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 1000);
    cJSON_Delete(o.json);
}

static void a_pause_switches_cupti_off_where_it_can(void **state) {
    (void)state;
    outcome o = run("version=130101", "pause", mock);
    assert_int_equal(o.code, 6);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 2);
    cJSON_Delete(o.json);
    o = run("version=130001", "pause", mock);
    assert_int_equal(o.code, 5);
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 2);
    cJSON_Delete(o.json);
}

static void kinds_are_disabled_at_the_end_where_that_works(void **state) {
    (void)state;
    outcome o = run("version=130001,report", "1", mock);
    assert_complete(&o, 1);
    assert_null(strstr(o.err, "mock: disabled"));
    assert_non_null(strstr(o.err, "mock: unsubscribed"));
    cJSON_Delete(o.json);
    o = run("version=130100,report", "1", mock);
    assert_complete(&o, 1);
    assert_non_null(strstr(o.err, "mock: disabled"));
    cJSON_Delete(o.json);
}

static void an_incomplete_record_hides_no_other(void **state) {
    (void)state;
    static const char *const ways[] = {"incomplete=100", "incomplete=100,real",
                                       "incomplete=7,split", "incomplete=100,own"};
    static const int every[] = {100, 100, 7, 100};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run(ways[i], "1", mock);
        const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
        int n_lost = 1252 / every[i];
        assert_int_equal(number(gpu, "timed"), 1252 - n_lost);
        assert_int_equal(number(gpu, "dropped"), n_lost);
        assert_int_equal(number(gpu, "n_lost"), n_lost);
        cJSON_Delete(o.json);
    }
}

static void a_call_that_cannot_be_followed_costs_that_call_alone(void **state) {
    (void)state;
    outcome o =
        run("refuse=211,driver", "1", mock); /* the runtime's launch; the driver's remains */
    assert_complete(&o, 1);
    cJSON_Delete(o.json);
    o = run_tier("full", "refuse=165", "calls", mock);
    assert_int_equal(number(path(o.json, "train/cudaLaunchKernel"), "n_calls"), 20);
    cJSON_Delete(o.json);
}

static void empty_copies_wait_for_no_record(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver"};
    for (size_t i = 0; i < 2; i++) {
        outcome o = run(ways[i], "copies", mock);
        const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
        assert_int_equal(number(gpu, "launched"), 2);
        assert_int_equal(number(gpu, "timed"), 2);
        cJSON_Delete(o.json);
    }
}

static void nvtx_starts_after_cupti(void **state) {
    (void)state;
    if (!listener) skip();
    setenv("NVTX_INJECTION64_PATH", listener, 1);
    outcome o = run("order", "1", mock);
    unsetenv("NVTX_INJECTION64_PATH");
    assert_complete(&o, 1);
    cJSON_Delete(o.json);
}

static void copy_file(const char *to, const char *from) {
    char command[8192];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* A copy of the mock as libcupti.so.N in a folder of pip's, beside a libcudart that is loaded. */
static void cupti_is_found_beside_cudart(void **state) {
    (void)state;
    static const struct {
        const char *cuda, *cupti;
    } cases[] = {{"version=12080", "libcupti.so.12"}, {"version=13000", "libcupti.so.13"}};
    char root[] = "/tmp/knet-pip-XXXXXX", command[4096], cudart[256], old[4096];
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof command, "mkdir -p %s/cuda_runtime/lib %s/cuda_cupti/lib", root, root);
    assert_int_equal(system(command), 0);
    snprintf(cudart, sizeof cudart, "%s/cuda_runtime/lib/libcudart.so.12", root);
    copy_file(cudart, mock);
    for (int i = 12; i < 14; i++) {
        char copy[256];
        snprintf(copy, sizeof copy, "%s/cuda_cupti/lib/libcupti.so.%d", root, i);
        copy_file(copy, mock);
    }
    snprintf(old, sizeof old, "%s", getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "");
    for (size_t i = 0; i < 2; i++) {
        char cupti[256], preload[512], want[64];
        FILE *err = tmpfile();
        static char text[65536];
        snprintf(cupti, sizeof cupti, "%s/cuda_cupti/lib/%s", root, cases[i].cupti);
        snprintf(preload, sizeof preload, "%s/libcuda.so.1:%s", driver, cudart);
        pid_t child = fork();
        if (child == 0) {
            setenv("LD_LIBRARY_PATH", driver, 1);
            setenv("LD_PRELOAD", preload, 1);
            setenv("MOCK_CUDA", cases[i].cuda, 1);
            setenv("KNET_TIMER", "gpu,ascii", 1);
            relax_sanitizer();
            setenv("MOCK_CUPTI", "", 1);
            dup2(fileno(err), 2);
            execl(program, program, cupti, "1", (char *)NULL);
            _exit(97);
        }
        int status = 0;
        waitpid(child, &status, 0);
        read_all(err, text, sizeof text);
        snprintf(want, sizeof want, "launched 1252 = timed 1252");
        if (!strstr(text, want)) fail_msg("%s: %s", cases[i].cupti, text);
    }
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* ---- graphs ---- */

static void replayed_kernels_stand_under_the_scope_they_were_captured_in(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver", "late,split", "real,late", "noexec"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run(ways[i], "graph", mock);
        assert_int_equal(o.code, 6);
        const cJSON *captured = path(o.json, "train/step/[captured]");
        assert_int_equal(number(path(captured, "forward/conv/graph_kernel"), "n_gpu"), 100);
        assert_int_equal(number(path(captured, "backward/graph_kernel"), "gpu_ns"), 50000);
        const cJSON *before = path(captured, "(captured before the timer was on)/graph_kernel");
        assert_int_equal(number(before, "n_gpu"), 2);
        assert_int_equal(number(path(o.json, "train/step"), "gpu_ns"), 152000);
        assert_false(has_child(path(o.json, "train/forward/conv"), "graph_kernel"));
        const char *row = strstr(o.err, "\n     [captured] "); /* calls, time, its share, average */
        assert_non_null(row);
        char n_calls[8] = "";
        sscanf(row + 17, "%7s", n_calls);
        assert_string_equal(n_calls, "-");
        assert_null(memmem(row, 120, "0.00ns", 6));
        const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
        assert_int_equal(number(gpu, "launched"), 50); /* capturing launches nothing */
        assert_int_equal(number(gpu, "timed"), 50);
        cJSON_Delete(o.json);
    }
}

static void graphs_that_are_destroyed_leave_room_for_others(void **state) {
    (void)state;
    static const char *const ways[] = {"", "noexec"};
    for (size_t i = 0; i < 2; i++) {
        outcome o = run(ways[i], "graphs", mock);
        assert_int_equal(o.code, 6);
        const cJSON *captured = path(o.json, "train/[captured]");
        assert_int_equal(number(path(captured, "captured/graph_kernel"), "n_gpu"), 600);
        assert_false(has_child(captured, "(captured, the scope was not kept)"));
        cJSON_Delete(o.json);
    }
}

static void the_lite_tier_times_a_graph_as_one(void **state) {
    (void)state;
    outcome o = run_tier("gpu-lite", "", "graph", mock);
    const cJSON *graph = path(o.json, "train/step/[graph]");
    assert_int_equal(number(graph, "n_gpu"), 50);
    assert_int_equal(number(graph, "gpu_ns"), 152000);
    assert_false(has_child(path(o.json, "train/step"), "[captured]"));
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "timed"), 50);
    cJSON_Delete(o.json);
    o = run_tier("gpu-lite", "", "1", mock); /* kernels outside graphs are in no count */
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "launched"), 0);
    cJSON_Delete(o.json);
}

static void a_version_that_loses_times_says_so(void **state) {
    (void)state;
    outcome o = run("zero", "graph", mock);
    assert_non_null(strstr(o.err, "KNET_TIMER=gpu-lite"));
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "untimed"), 50);
    cJSON_Delete(o.json);
    o = run("zero,version=130200", "graph", mock);
    assert_null(strstr(o.err, "KNET_TIMER=gpu-lite"));
    cJSON_Delete(o.json);
    o = run("version=22", "1", mock);
    assert_non_null(strstr(o.err, "may lose kernels"));
    cJSON_Delete(o.json);
}

/* ---- memory, calls, what the timer takes ---- */

static void memory_past_the_pools_has_its_row_and_its_scope(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver", "real"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run_tier("gpu,mem", ways[i], "memory", mock);
        const cJSON *row = child(o.json, "~outside pool~");
        assert_int_equal(number(row, "n_allocs"), 1008);
        assert_int_equal(number(row, "alloc_bytes"), 1008 << 20);
        assert_int_equal(number(row, "peak_bytes"), 8 << 20);
        assert_int_equal(number(row, "held_bytes"), 4 << 20);
        assert_int_equal(number(path(o.json, "load/[device malloc]"), "gpu_bytes"), 1008 << 20);
        const cJSON *gpu = cJSON_GetObjectItem(o.json, "gpu");
        assert_int_equal(number(gpu, "launched"), 0);
        cJSON_Delete(o.json);
    }
    outcome o = run_tier("gpu,nomem", "", "memory", mock);
    assert_false(has_child(o.json, "~outside pool~"));
    cJSON_Delete(o.json);
}

static void the_full_tier_has_a_row_for_every_call(void **state) {
    (void)state;
    outcome o = run_tier("full", "", "calls", mock);
    const cJSON *launch = path(o.json, "train/cudaLaunchKernel");
    assert_int_equal(number(launch, "n_calls"), 20);
    assert_int_equal(number(path(launch, "saxpy"), "n_gpu"), 19); /* one failed */
    assert_int_equal(number(path(o.json, "train/cudaDeviceSynchronize"), "n_calls"), 21);
    assert_false(has_child(path(o.json, "train/cudaDeviceSynchronize"), "cudaDeviceSynchronize"));
    assert_false(has_child(path(o.json, "train/cudaDeviceSynchronize"), "cudaGetDevice"));
    assert_int_equal(number(cJSON_GetObjectItem(o.json, "gpu"), "launched"), 19);
    cJSON_Delete(o.json);
    o = run_tier("gpu", "", "calls", mock);
    assert_false(has_child(child(o.json, "train"), "cudaLaunchKernel"));
    cJSON_Delete(o.json);
}

static void the_timers_own_memory_is_reported_apart(void **state) {
    (void)state;
    outcome o = run("", "calls", mock);
    const cJSON *row = child(o.json, "~profiler~");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(row, "extra")));
    const cJSON *flush = child(row, "CUPTI buffer flush");
    assert_int_equal(number(flush, "n_calls"), 21);
    assert_int_equal(number(flush, "time_ns"), 21 * 5000);
    assert_true(number(child(row, "joining records"), "n_calls") >= 1);
    assert_int_equal(number(o.json, "measured_ns"), number(child(o.json, "train"), "time_ns"));
    cJSON_Delete(o.json);
}

/* A thread's first call, which makes its ring, would count 64 times. */
static void the_first_call_of_a_thread_is_not_measured(void **state) {
    (void)state;
    outcome o = run("", "context", mock); /* 4 callbacks */
    assert_false(has_child(child(o.json, "~profiler~"), "callbacks at launches (sampled)"));
    cJSON_Delete(o.json);
    o = run("", "calls", mock);
    assert_true(has_child(child(o.json, "~profiler~"), "callbacks at launches (sampled)"));
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

static void the_holder_of_cupti_is_read_from_the_environment(void **state) {
    (void)state;
    setenv("NSYS_PROFILING_SESSION_ID", "1", 1);
    outcome o = run("held,anonymous", "1", mock);
    assert_non_null(strstr(o.err, "Nsight Systems: NSYS_PROFILING_SESSION_ID is set"));
    cJSON_Delete(o.json);
    unsetenv("NSYS_PROFILING_SESSION_ID");
    setenv("CUDA_INJECTION64_PATH", "/nowhere/tool.so", 1);
    o = run("held,anonymous", "1", mock);
    assert_non_null(strstr(o.err, "CUDA_INJECTION64_PATH is set"));
    cJSON_Delete(o.json);
    unsetenv("CUDA_INJECTION64_PATH");
    o = run("held,anonymous", "1", mock);
    assert_non_null(strstr(o.err, "held by another tool"));
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
    for (int n = 1; n <= 25; n++) {
        char words[32];
        snprintf(words, sizeof words, "fail=%d", n);
        outcome o = run(words, "1", mock);
        assert_int_equal(o.code, 6);
        assert_non_null(strstr(o.err, "\n   gemm "));
        n_failed += strstr(o.err, "no GPU times: ") != NULL;
        cJSON_Delete(o.json);
    }
    assert_true(n_failed >= 6);
}

int main(int argc, char **argv) {
    if (argc < 4) return 1;
    program = argv[1];
    mock = argv[2];
    driver = argv[3];
    listener = argc > 4 && argv[4][0] ? argv[4] : NULL;
    int fd = mkstemp(json_path);
    if (fd < 0) return 1;
    close(fd);
    int failed = RUN_TESTS(
        TEST(gpu_time_stands_beside_cpu_time), TEST(records_may_carry_the_driver_calls_id),
        TEST(the_real_library_walks_the_same_records),
        TEST(late_and_shuffled_records_of_many_threads_all_arrive),
        TEST(many_threads_lose_no_event), TEST(a_full_budget_names_the_word_that_raises_it),
        TEST(buffers_that_run_out_show), TEST(scopes_do_not_take_the_memory_of_cupti),
        TEST(dropped_records_are_counted), TEST(records_lost_inside_a_graph_launch_show),
        TEST(records_may_come_in_many_buffers), TEST(ids_may_go_round),
        TEST(a_launch_with_two_records_is_one_launch), TEST(without_buffers_all_is_dropped),
        TEST(children_that_exit_end_and_leave_the_parents_report_alone),
        TEST(the_timers_threads_block_all_signals), TEST(the_end_waits_for_the_gpu),
        TEST(the_wait_for_the_gpu_ends), TEST(a_destroyed_context_is_not_waited_for),
        TEST(a_context_at_the_address_of_another_is_waited_for),
        TEST(records_are_flushed_before_cuda_is_torn_down),
        TEST(records_are_joined_while_the_program_runs), TEST(buffers_that_fill_up_wake_the_drain),
        TEST(children_take_no_lock_and_no_buffer), TEST(a_pause_switches_cupti_off_where_it_can),
        TEST(kinds_are_disabled_at_the_end_where_that_works),
        TEST(an_incomplete_record_hides_no_other),
        TEST(a_call_that_cannot_be_followed_costs_that_call_alone),
        TEST(empty_copies_wait_for_no_record), TEST(nvtx_starts_after_cupti),
        TEST(cupti_is_found_beside_cudart), TEST(graphs_that_are_destroyed_leave_room_for_others),
        TEST(replayed_kernels_stand_under_the_scope_they_were_captured_in),
        TEST(the_lite_tier_times_a_graph_as_one), TEST(a_version_that_loses_times_says_so),
        TEST(memory_past_the_pools_has_its_row_and_its_scope),
        TEST(the_full_tier_has_a_row_for_every_call), TEST(the_timers_own_memory_is_reported_apart),
        TEST(the_first_call_of_a_thread_is_not_measured),
        TEST(the_holder_of_cupti_is_read_from_the_environment),
        TEST(records_without_times_are_counted),
        TEST(another_tool_leaves_the_cpu_table_and_is_named),
        TEST(without_driver_or_library_the_cpu_table_remains),
        TEST(any_call_of_the_start_may_fail));
    unlink(json_path);
    return failed;
}
