/* GPU times in a whole program, by a mock of CUPTI: records and launches. */
#include <dlfcn.h>
#include <unistd.h>

#include "gpu_run.h"
#include "test.h"

static void gpu_time_stands_beside_cpu_time(void **state) {
    (void)state;
    outcome o = run("", "1");
    assert_complete(&o, 1);
    assert_non_null(strstr(o.err, "cupti 130001: launched 1252 = timed 1252 + pending 0"));
    assert_non_null(strstr(o.err, " cutlass::Kernel "));
    assert_non_null(strstr(o.err, "\n gpu 0: busy "));
    assert_non_null(strstr(o.err, "\n   [memcpy HtoD] "));
}

/* Its page: a lane for each thread and each stream, and what ran in it. */
static void a_page_shows_streams_beside_threads(void **state) {
    (void)state;
    char path[] = "/tmp/knet-page-XXXXXX", words[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(words, sizeof words, "gpu,html=%s", path);
    outcome o = run_gpu(words, "", "2", mock);
    assert_complete(&o, 2);
    const char *page = read_file(path), *lanes = strstr(page, "\"lanes\":[");
    unlink(path);
    assert_non_null(lanes);
    assert_int_equal(occurrences(lanes, "\n[\"gpu_program "), 2);
    assert_true(occurrences(lanes, "\n[\"GPU 0, stream ") >= 1);
    assert_non_null(strstr(page, "cutlass::Kernel"));
}

/* CUPTI's buffers leave room for the events of scopes. */
static void a_trace_has_scopes_beside_kernels(void **state) {
    (void)state;
    char path[] = "/tmp/knet-trace-XXXXXX", words[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(words, sizeof words, "gpu,trace=%s", path);
    outcome o = run_gpu(words, "", "2", mock);
    assert_complete(&o, 2);
    const char *trace = read_file(path);
    unlink(path);
    assert_int_equal(occurrences(trace, "\"cat\":\"cpu_op\",\"name\":\"gemm\""), 2000);
    assert_int_equal(occurrences(trace, "\"cat\":\"kernel\""), 2000);
    assert_non_null(strstr(trace, "\"knetEventsSkipped\":0}"));
}

static void records_may_carry_the_driver_calls_id(void **state) {
    (void)state;
    outcome o = run("driver", "1");
    assert_complete(&o, 1);
}

static void the_real_library_walks_the_same_records(void **state) {
    (void)state;
    void *real = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!real) skip();
    outcome o = run("real,late", "2");
    assert_complete(&o, 2);
}

static void late_and_shuffled_records_of_many_threads_all_arrive(void **state) {
    (void)state;
    outcome o = run("late", "8");
    assert_complete(&o, 8);
    o = run("late,driver", "8");
    assert_complete(&o, 8);
}

static void many_threads_lose_no_event(void **state) {
    (void)state;
    outcome o = run("own,slow", "crowd"); /* the drain is behind from its first buffer on */
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "launched"), 128 * 252);
    assert_int_equal(balance(&o, "timed"), 128 * 252);
    assert_int_equal(balance(&o, "n_unattributed"), 0);
    assert_int_equal(number(row_at(o.json, "train/gemm"), "gpu_ns"), 128 * 200 * 2000);
    assert_false(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
}

static void a_full_budget_names_the_word_that_raises_it(void **state) {
    (void)state;
    outcome o = run_gpu("gpu,buf=1M", "own", "crowd", mock);
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "launched"), 128 * 252);
    assert_true(balance(&o, "dropped") > 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
    const char *told = strstr(o.err, "(1.00 MiB) was full");
    assert_non_null(told);
    assert_non_null(strstr(told, "raise KNET_TIMER=buf="));
}

/* 96 buffers for 128 threads, while there is memory for all the rest. */
static void buffers_that_run_out_show(void **state) {
    (void)state;
    outcome o = run_gpu("gpu,buf=12M", "own,endless", "pack", mock);
    assert_int_equal(o.code, 6);
    assert_true(balance(&o, "dropped") > 0);
    assert_int_equal(balance(&o, "n_unattributed"), 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(o.json, "buffer_full")));
}

static void scopes_do_not_take_the_memory_of_cupti(void **state) {
    (void)state;
    outcome o = run_gpu("gpu,buf=1M", "", "scopes", mock);
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "timed"), 2000);
}

static void dropped_records_are_counted(void **state) {
    (void)state;
    outcome o = run("drop=4", "1");
    assert_int_equal(balance(&o, "launched"), 1252);
    assert_int_equal(balance(&o, "dropped"), 313);
    assert_int_equal(balance(&o, "timed"), 1252 - 313);
    assert_int_equal(balance(&o, "pending"), 0);
    assert_int_equal(balance(&o, "n_lost"), 313);
    assert_non_null(strstr(o.err, "; 313 records were lost"));
    o = run("drop=4", "reports"); /* CUPTI counts from one question to the next */
    assert_int_equal(balance(&o, "n_lost"), 500);
}

/* Each launch has records left, so none of them is dropped. */
static void records_lost_inside_a_graph_launch_show(void **state) {
    (void)state;
    outcome o = run("drop=4", "graph");
    assert_int_equal(balance(&o, "launched"), 50);
    assert_int_equal(balance(&o, "timed"), 50);
    assert_int_equal(balance(&o, "dropped"), 0);
    assert_int_equal(balance(&o, "n_lost"), 152 / 4);
    assert_non_null(strstr(o.err, "; 38 records were lost"));
}

static void records_may_come_in_many_buffers(void **state) {
    (void)state;
    outcome o = run("split,late", "2");
    assert_complete(&o, 2);
}

static void ids_may_go_round(void **state) {
    (void)state;
    outcome o = run("wrap,late", "2");
    assert_complete(&o, 2);
    o = run("wrap,driver", "2");
    assert_complete(&o, 2);
}

/* A launch is timed once, whatever comes of it; time that the source tells twice is there twice. */
static void a_launch_with_two_records_is_one_launch(void **state) {
    (void)state;
    outcome o = run("twice", "1");
    assert_int_equal(balance(&o, "launched"), 1252);
    assert_int_equal(balance(&o, "timed"), 1252);
    assert_int_equal(number(row_at(o.json, "train/gemm"), "gpu_ns"), 2 * 2000000);
}

static void without_buffers_all_is_dropped(void **state) {
    (void)state;
    outcome o = run("full", "1");
    assert_int_equal(balance(&o, "launched"), 1252);
    assert_int_equal(balance(&o, "dropped"), 1252);
    assert_int_equal(balance(&o, "timed"), 0);
}

static void records_are_joined_while_the_program_runs(void **state) {
    (void)state;
    outcome o = run("", "wait");
    assert_int_equal(o.code, 6);
}

static void buffers_that_fill_up_wake_the_drain(void **state) {
    (void)state;
    outcome o = run_gpu("gpu,buf=1M", "own,endless", "wake", mock); /* its period has no end */
    assert_int_equal(o.code, 6);
    assert_int_equal(balance(&o, "timed"), 1000);
}

static int count_of(const char *text, const char *line) {
    int n = 0;
    for (; (text = strstr(text, line)); text++) n++;
    return n;
}

static void each_thread_is_joined_before_the_end(void **state) {
    (void)state;
    outcome o = run("joins", "1");
    int n = count_of(o.err, "thread starts\n");
    assert_true(n >= 3); /* the program's, the drain, and the wait for the GPU */
    assert_int_equal(count_of(o.err, "thread joined\n"), n);
}

static void an_incomplete_record_hides_no_other(void **state) {
    (void)state;
    static const char *const ways[] = {"incomplete=100", "incomplete=100,real",
                                       "incomplete=7,split", "incomplete=100,own"};
    static const int every[] = {100, 100, 7, 100};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run(ways[i], "1");
        int n_lost = 1252 / every[i];
        assert_int_equal(balance(&o, "timed"), 1252 - n_lost);
        assert_int_equal(balance(&o, "dropped"), n_lost);
        assert_int_equal(balance(&o, "n_lost"), n_lost);
    }
}

static void a_call_that_cannot_be_followed_costs_that_call_alone(void **state) {
    (void)state;
    outcome o = run("refuse=211,driver", "1"); /* the runtime's launch; the driver's remains */
    assert_complete(&o, 1);
    o = run_gpu("full", "refuse=165", "calls", mock);
    assert_int_equal(number(row_at(o.json, "train/cudaLaunchKernel"), "n_calls"), 20);
}

static void empty_copies_wait_for_no_record(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver"};
    for (size_t i = 0; i < 2; i++) {
        outcome o = run(ways[i], "copies");
        assert_int_equal(balance(&o, "launched"), 2);
        assert_int_equal(balance(&o, "timed"), 2);
    }
}

static void replayed_kernels_stand_under_the_scope_they_were_captured_in(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver", "late,split", "real,late", "noexec"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run(ways[i], "graph");
        assert_int_equal(o.code, 6);
        const cJSON *captured = row_at(o.json, "train/step/[captured]");
        assert_int_equal(number(row_at(captured, "forward/conv/graph_kernel"), "n_gpu"), 100);
        assert_int_equal(number(row_at(captured, "backward/graph_kernel"), "gpu_ns"), 50000);
        const cJSON *before = row_at(captured, "(captured before the timer was on)/graph_kernel");
        assert_int_equal(number(before, "n_gpu"), 2);
        assert_int_equal(number(row_at(o.json, "train/step"), "gpu_ns"), 152000);
        assert_false(has_child(row_at(o.json, "train/forward/conv"), "graph_kernel"));
        const char *row = strstr(o.err, "\n     [captured] "); /* calls, time, its share, average */
        assert_non_null(row);
        char n_calls[8] = "";
        sscanf(row + 17, "%7s", n_calls);
        assert_string_equal(n_calls, "-");
        assert_null(memmem(row, 120, "0.00ns", 6));
        assert_int_equal(balance(&o, "launched"), 50); /* capturing launches nothing */
        assert_int_equal(balance(&o, "timed"), 50);
    }
}

static void graphs_that_are_destroyed_leave_room_for_others(void **state) {
    (void)state;
    static const char *const ways[] = {"", "noexec"};
    for (size_t i = 0; i < 2; i++) {
        outcome o = run(ways[i], "graphs");
        assert_int_equal(o.code, 6);
        const cJSON *captured = row_at(o.json, "train/[captured]");
        assert_int_equal(number(row_at(captured, "captured/graph_kernel"), "n_gpu"), 600);
        assert_false(has_child(captured, "(captured, the scope was not kept)"));
    }
}

static void the_lite_tier_times_a_graph_as_one(void **state) {
    (void)state;
    outcome o = run_gpu("gpu-lite", "", "graph", mock);
    const cJSON *graph = row_at(o.json, "train/step/[graph]");
    assert_int_equal(number(graph, "n_gpu"), 50);
    assert_int_equal(number(graph, "gpu_ns"), 152000);
    assert_false(has_child(row_at(o.json, "train/step"), "[captured]"));
    assert_int_equal(balance(&o, "timed"), 50);
    o = run_gpu("gpu-lite", "", "1", mock); /* kernels outside graphs are in no count */
    assert_int_equal(balance(&o, "launched"), 0);
}

static void memory_past_the_pools_has_its_row_and_its_scope(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver", "real"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome o = run_gpu("gpu,mem", ways[i], "memory", mock);
        const cJSON *row = row_at(o.json, "~outside pool~");
        assert_int_equal(number(row, "n_allocs"), 1008);
        assert_int_equal(number(row, "alloc_bytes"), 1008 << 20);
        assert_int_equal(number(row, "peak_bytes"), 8 << 20);
        assert_int_equal(number(row, "held_bytes"), 4 << 20);
        assert_int_equal(number(row_at(o.json, "load/[device malloc]"), "gpu_bytes"), 1008 << 20);
        assert_int_equal(balance(&o, "launched"), 0);
    }
    outcome o = run_gpu("gpu,nomem", "", "memory", mock);
    assert_false(has_child(o.json, "~outside pool~"));
}

static void the_full_tier_has_a_row_for_every_call(void **state) {
    (void)state;
    outcome o = run_gpu("full", "", "calls", mock);
    const cJSON *launch = row_at(o.json, "train/cudaLaunchKernel");
    assert_int_equal(number(launch, "n_calls"), 20);
    assert_int_equal(number(row_at(launch, "saxpy"), "n_gpu"), 19); /* one failed */
    assert_int_equal(number(row_at(o.json, "train/cudaDeviceSynchronize"), "n_calls"), 21);
    assert_false(has_child(row_at(o.json, "train/cudaDeviceSynchronize"), "cudaDeviceSynchronize"));
    assert_false(has_child(row_at(o.json, "train/cudaDeviceSynchronize"), "cudaGetDevice"));
    assert_int_equal(balance(&o, "launched"), 19);
    o = run_gpu("gpu", "", "calls", mock);
    assert_false(has_child(row_at(o.json, "train"), "cudaLaunchKernel"));
}

static void the_timers_own_memory_is_reported_apart(void **state) {
    (void)state;
    outcome o = run("", "calls");
    const cJSON *row = row_at(o.json, "~profiler~");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(row, "extra")));
    const cJSON *flush = row_at(row, "CUPTI buffer flush");
    assert_int_equal(number(flush, "n_calls"), 21);
    assert_int_equal(number(flush, "time_ns"), 21 * 5000);
    assert_true(number(row_at(row, "joining records"), "n_calls") >= 1);
    assert_int_equal(number(o.json, "measured_ns"), number(row_at(o.json, "train"), "time_ns"));
}

/* A thread's first call, which makes its ring, would count 64 times. */
static void the_first_call_of_a_thread_is_not_measured(void **state) {
    (void)state;
    outcome o = run("", "context"); /* 4 callbacks */
    assert_false(has_child(row_at(o.json, "~profiler~"), "callbacks at launches (sampled)"));
    o = run("", "calls");
    assert_true(has_child(row_at(o.json, "~profiler~"), "callbacks at launches (sampled)"));
}

static void records_without_times_are_counted(void **state) {
    (void)state;
    outcome o = run("zero", "1");
    assert_int_equal(balance(&o, "untimed"), 1252);
    assert_int_equal(balance(&o, "timed"), 0);
    assert_int_equal(number(row_at(o.json, "train"), "gpu_ns"), 0);
}

int main(int argc, char **argv) {
    if (!gpu_run_init(argc, argv)) return 1;
    int failed = RUN_TESTS(
        TEST(gpu_time_stands_beside_cpu_time), TEST(a_page_shows_streams_beside_threads),
        TEST(a_trace_has_scopes_beside_kernels), TEST(records_may_carry_the_driver_calls_id),
        TEST(the_real_library_walks_the_same_records),
        TEST(late_and_shuffled_records_of_many_threads_all_arrive),
        TEST(many_threads_lose_no_event), TEST(a_full_budget_names_the_word_that_raises_it),
        TEST(buffers_that_run_out_show), TEST(scopes_do_not_take_the_memory_of_cupti),
        TEST(dropped_records_are_counted), TEST(records_lost_inside_a_graph_launch_show),
        TEST(records_may_come_in_many_buffers), TEST(ids_may_go_round),
        TEST(a_launch_with_two_records_is_one_launch), TEST(without_buffers_all_is_dropped),
        TEST(records_are_joined_while_the_program_runs), TEST(buffers_that_fill_up_wake_the_drain),
        TEST(each_thread_is_joined_before_the_end), TEST(an_incomplete_record_hides_no_other),
        TEST(a_call_that_cannot_be_followed_costs_that_call_alone),
        TEST(empty_copies_wait_for_no_record),
        TEST(replayed_kernels_stand_under_the_scope_they_were_captured_in),
        TEST(graphs_that_are_destroyed_leave_room_for_others),
        TEST(the_lite_tier_times_a_graph_as_one),
        TEST(memory_past_the_pools_has_its_row_and_its_scope),
        TEST(the_full_tier_has_a_row_for_every_call), TEST(the_timers_own_memory_is_reported_apart),
        TEST(the_first_call_of_a_thread_is_not_measured), TEST(records_without_times_are_counted));
    gpu_run_release();
    return failed;
}
