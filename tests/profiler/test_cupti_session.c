/* CUPTI from its start to its end: where it is found, who holds it, what fails, and the program's
 * children. */
#include <signal.h>
#include <unistd.h>

#include "gpu_run.h"
#include "test.h"

static void children_that_exit_end_and_leave_the_parents_report_alone(void **state) {
    (void)state;
    outcome o = run("", "forks");
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "launched"), 60000);
    assert_int_equal(balance(&o, "timed"), 60000);
    assert_int_equal(number(row_at(o.json, "train/saxpy"), "n_gpu"), 60000);
    const char *table = strstr(o.err, "launched ");
    assert_non_null(table);
    assert_null(strstr(table + 1, "launched ")); /* one report, the parent's */
}

static void children_take_no_lock_and_no_buffer(void **state) {
    (void)state;
    outcome o = run("own", "graph forks");
    assert_int_equal(o.code, 6);
}

static void the_timers_threads_block_all_signals(void **state) {
    (void)state;
    outcome o = run_gpu("gpu,every=1h", "", "signals", mock);
    int n = 0;
    for (const char *at = o.err; (at = strstr(at, "SigBlk:")); n++) {
        uint64_t blocked = strtoull(at + 7, NULL, 16);
        at++;
        for (int i = 1; i < 32; i++) {
            if (i != SIGKILL && i != SIGSTOP) assert_true(blocked >> (i - 1) & 1);
        }
    }
    assert_true(n >= 2); /* the drain, the reports while the program runs, and a sanitizer's own */
}

static void the_end_waits_for_the_gpu(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "2", "");
    assert_complete(&o, 2);
}

static void the_wait_for_the_gpu_ends(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "calls", "hang");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "the GPU was still at work"));
    assert_int_equal(balance(&o, "pending"), 19);
}

static void a_destroyed_context_is_not_waited_for(void **state) {
    (void)state;
    outcome o = run_driver("", "context", "");
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "timed"), 1);
}

static void a_context_at_the_address_of_another_is_waited_for(void **state) {
    (void)state;
    outcome o = run_driver("unsynced", "context again", "");
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "timed"), 2);
}

static void records_are_flushed_before_cuda_is_torn_down(void **state) {
    (void)state;
    outcome o = run("teardown", "calls");
    assert_int_equal(balance(&o, "timed"), 19);
}

static void a_pause_switches_cupti_off_where_it_can(void **state) {
    (void)state;
    outcome o = run("version=130101", "pause");
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "timed"), 2);
    o = run("version=130001", "pause");
    assert_int_equal(o.code, 5);
    assert_int_equal(balance(&o, "timed"), 2);
}

static void kinds_are_disabled_at_the_end_where_that_works(void **state) {
    (void)state;
    outcome o = run("version=130001,report", "1");
    assert_complete(&o, 1);
    assert_null(strstr(o.err, "mock: disabled"));
    assert_non_null(strstr(o.err, "mock: unsubscribed"));
    o = run("version=130100,report", "1");
    assert_complete(&o, 1);
    assert_non_null(strstr(o.err, "mock: disabled"));
}

static void nvtx_starts_after_cupti(void **state) {
    (void)state;
    if (!listener) skip();
    setenv("NVTX_INJECTION64_PATH", listener, 1);
    outcome o = run("order", "1");
    unsetenv("NVTX_INJECTION64_PATH");
    assert_complete(&o, 1);
}

typedef struct pip {
    const char *preload, *cuda;
} pip;

static void prepare_pip(const void *ctx) {
    const pip *p = ctx;
    setenv("LD_LIBRARY_PATH", driver, 1);
    setenv("LD_PRELOAD", p->preload, 1);
    setenv("MOCK_CUDA", p->cuda, 1);
    setenv("KNET_TIMER", "gpu,ascii", 1);
    setenv("MOCK_CUPTI", "", 1);
    relax_sanitizer();
}

/* Copies of the mock as libcudart and libcupti, in folders as pip makes them. */
static void make_pip_folders(char *root, char *cudart, size_t bytes) {
    char command[4096], copy[256];
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof command, "mkdir -p %s/cuda_runtime/lib %s/cuda_cupti/lib", root, root);
    assert_int_equal(system(command), 0);
    snprintf(cudart, bytes, "%s/cuda_runtime/lib/libcudart.so.12", root);
    copy_file(cudart, mock);
    for (int i = 12; i < 14; i++) {
        snprintf(copy, sizeof copy, "%s/cuda_cupti/lib/libcupti.so.%d", root, i);
        copy_file(copy, mock);
    }
}

static void cupti_is_found_beside_cudart(void **state) {
    (void)state;
    static const struct {
        const char *cuda, *cupti;
    } cases[] = {{"version=12080", "libcupti.so.12"}, {"version=13000", "libcupti.so.13"}};
    char root[] = "/tmp/knet-pip-XXXXXX", cudart[256], command[4096];
    make_pip_folders(root, cudart, sizeof cudart);
    for (size_t i = 0; i < 2; i++) {
        static outcome o;
        char cupti[256], preload[512];
        snprintf(cupti, sizeof cupti, "%s/cuda_cupti/lib/%s", root, cases[i].cupti);
        snprintf(preload, sizeof preload, "%s/libcuda.so.1:%s", driver, cudart);
        const char *const argv[] = {gpu_program, cupti, "1", NULL};
        run_child(&o, argv, prepare_pip, &(pip){preload, cases[i].cuda});
        if (!strstr(o.err, "launched 1252 = timed 1252")) {
            fail_msg("%s: %s", cases[i].cupti, o.err);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void a_version_that_loses_times_says_so(void **state) {
    (void)state;
    outcome o = run("zero", "graph");
    assert_non_null(strstr(o.err, "KNET_TIMER=gpu-lite"));
    assert_int_equal(balance(&o, "untimed"), 50);
    o = run("zero,version=130200", "graph");
    assert_null(strstr(o.err, "KNET_TIMER=gpu-lite"));
    o = run("version=22", "1");
    assert_non_null(strstr(o.err, "may lose kernels"));
}

static void another_tool_leaves_the_cpu_table_and_is_named(void **state) {
    (void)state;
    outcome o = run("held", "1");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "KNET_TIMER: no GPU times: CUPTI is held by Nsight Systems"));
    assert_non_null(strstr(o.err, "\n   gemm "));
    assert_null(cJSON_GetObjectItem(o.json, "gpu"));
}

static void who_holds_cupti_is_told_from_the_environment(void **state) {
    (void)state;
    setenv("NSYS_PROFILING_SESSION_ID", "1", 1);
    outcome o = run("held,anonymous", "1");
    assert_non_null(strstr(o.err, "Nsight Systems: NSYS_PROFILING_SESSION_ID is set"));
    unsetenv("NSYS_PROFILING_SESSION_ID");
    setenv("CUDA_INJECTION64_PATH", "/nowhere/tool.so", 1);
    o = run("held,anonymous", "1");
    assert_non_null(strstr(o.err, "CUDA_INJECTION64_PATH is set"));
    unsetenv("CUDA_INJECTION64_PATH");
    o = run("held,anonymous", "1");
    assert_non_null(strstr(o.err, "held by another tool"));
}

static void without_driver_or_library_the_cpu_table_remains(void **state) {
    (void)state;
    outcome o = run("nodriver", "1");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "no GPU times: "));
    assert_non_null(strstr(o.err, "\n   gemm "));
    o = run_gpu("gpu", "", "1", "/nowhere/libcupti.so");
    assert_int_equal(o.code, 6);
    assert_non_null(strstr(o.err, "no GPU times: libcupti can't be loaded: /nowhere"));
    assert_non_null(strstr(o.err, "\n   gemm "));
}

static void any_call_of_the_start_may_fail(void **state) {
    (void)state;
    int n_failed = 0;
    for (int n = 1; n <= 25; n++) {
        char words[32];
        snprintf(words, sizeof words, "fail=%d", n);
        outcome o = run(words, "1");
        assert_int_equal(o.code, 6);
        assert_non_null(strstr(o.err, "\n   gemm "));
        n_failed += strstr(o.err, "no GPU times: ") != NULL;
    }
    assert_true(n_failed >= 6);
}

int main(int argc, char **argv) {
    if (!gpu_run_init(argc, argv)) return 1;
    int failed = RUN_TESTS(
        TEST(children_that_exit_end_and_leave_the_parents_report_alone),
        TEST(children_take_no_lock_and_no_buffer), TEST(the_timers_threads_block_all_signals),
        TEST(the_end_waits_for_the_gpu), TEST(the_wait_for_the_gpu_ends),
        TEST(a_destroyed_context_is_not_waited_for),
        TEST(a_context_at_the_address_of_another_is_waited_for),
        TEST(records_are_flushed_before_cuda_is_torn_down),
        TEST(a_pause_switches_cupti_off_where_it_can),
        TEST(kinds_are_disabled_at_the_end_where_that_works), TEST(nvtx_starts_after_cupti),
        TEST(cupti_is_found_beside_cudart), TEST(a_version_that_loses_times_says_so),
        TEST(another_tool_leaves_the_cpu_table_and_is_named),
        TEST(who_holds_cupti_is_told_from_the_environment),
        TEST(without_driver_or_library_the_cpu_table_remains),
        TEST(any_call_of_the_start_may_fail));
    gpu_run_release();
    return failed;
}
