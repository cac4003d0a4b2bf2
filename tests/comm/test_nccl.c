/* Collectives on tensors of GPUs, over a fake NCCL and a fake driver: ranks are threads, each with
 * a device of its own. What the real library does is in tests/gpu. */
#include <dlfcn.h>
#include <knet/ops.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "fake_nccl.h"
#include "ranks_test.h"

enum { SIZE = 3, N = 5 };

static kn_device *device[SIZE];

static int begin(void **state) {
    (void)state;
    fake_nccl_reset();
    fake_cuda_reset();
    return 0;
}

/* Nothing is left open, and the driver was used as it wants. */
static int end(void **state) {
    (void)state;
    if (fake_nccl_count().n_open) print_error("%d open\n", fake_nccl_count().n_open);
    if (fake_cuda_count().n_violations) print_error("violation: %s\n", fake_cuda_violation());
    return fake_nccl_count().n_open || fake_cuda_count().n_violations;
}

#define NCCL_TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

static kn_tensor *numbers(float first, int64_t n) {
    float data[SIZE * N];
    for (int i = 0; i < n; i++) data[i] = first + (float)i;
    return kn_tensor_from(data, KN_F32, KN_SHAPE(n));
}

/* Whether t has so many numbers from `first` on, by `step`. */
static bool has(kn_tensor *t, double first, double step) {
    float data[SIZE * N];
    size_t n = (size_t)kn_tensor_numel(t);
    if (kn_copy_out(data, n * sizeof *data, t) < 0) return false;
    for (size_t i = 0; i < n; i++)
        if (data[i] != (float)(first + step * (double)i)) return false;
    return true;
}

static const char *collectives(kn_comm *comm, void *ctx) {
    int rank = kn_comm_rank(comm);
    (void)ctx;
    KN_FRAME(.device = device[rank]);
    kn_tensor *t = numbers((float)rank, N);
    RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_SUM)); /* 0 + 1 + 2, … */
    RANK_CHECK(has(t, 3, 3));
    RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_MEAN));
    RANK_CHECK(has(t, 3, 3));
    t = numbers((float)rank, N);
    RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_MAX));
    RANK_CHECK(has(t, 2, 1));
    RANK_OK(kn_comm_all_reduce(comm, t = numbers((float)rank, N), KN_COMM_MIN));
    RANK_CHECK(has(t, 0, 1));
    RANK_OK(kn_comm_broadcast(comm, t = numbers(10.0f * (float)rank, N), 2));
    RANK_CHECK(has(t, 20, 1));
    kn_tensor *whole = kn_reshape(numbers(0, SIZE * N), KN_SHAPE(SIZE, N));
    RANK_OK(kn_comm_all_gather(comm, whole, numbers((float)(N * rank), N)));
    RANK_CHECK(has(whole, 0, 1));
    kn_tensor *part = numbers(0, N);
    RANK_OK(kn_comm_reduce_scatter(comm, part, whole, KN_COMM_SUM));
    RANK_CHECK(has(part, SIZE * N * rank, SIZE));
    RANK_CHECK(has(whole, 0, 1)); /* keeps its values */
    return NULL;
}

static void tensors_of_gpus_are_combined(void **state) {
    (void)state;
    ranks_run(SIZE, collectives, NULL);
    fake_nccl_counts counts = fake_nccl_count();
    assert_int_equal(counts.n_calls, 7 * SIZE);
    assert_int_equal(counts.n_aborts, 0);
}

static const char *message(kn_comm *comm, void *ctx) {
    int rank = kn_comm_rank(comm);
    (void)ctx;
    KN_FRAME(.device = device[rank]);
    kn_tensor *t = numbers(rank ? 0 : 7, N);
    RANK_OK(rank ? kn_comm_receive(comm, t, 0) : kn_comm_send(comm, t, 1));
    RANK_CHECK(has(t, 7, 1));
    RANK_OK(kn_comm_barrier(comm)); /* of the host, after the GPU's */
    return NULL;
}

static void a_message_goes_from_gpu_to_gpu(void **state) {
    (void)state;
    ranks_run(2, message, NULL);
}

/* One rank asks NCCL too. */
static void one_rank_needs_no_other(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    {
        KN_FRAME(.device = device[1]);
        kn_tensor *t = numbers(4, N);
        assert_ok(kn_comm_all_reduce(comm, t, KN_COMM_MEAN));
        assert_true(has(t, 4, 1));
    }
    assert_int_equal(fake_nccl_count().n_calls, 1);
    assert_int_equal(fake_nccl_count().elements, N);
    assert_int_equal(fake_nccl_count().device, 1);
    {
        KN_FRAME(.device = device[0]);
        assert_fails(kn_comm_all_reduce(comm, numbers(4, N), KN_COMM_SUM), KN_ERR_DEVICE,
                     "are on cuda:1, this one is on cuda:0");
    }
    kn_comm_destroy(comm);
}

static void wrong_dtypes_are_named(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    {
        KN_FRAME(.device = device[0]);
        int32_t two[2] = {1, 2};
        kn_tensor *t = kn_tensor_from(two, KN_I32, KN_SHAPE(2));
        assert_fails(kn_comm_all_reduce(comm, t, KN_COMM_MEAN), KN_ERR_DTYPE, "no mean of i32");
        assert_ok(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
        assert_fails(kn_comm_all_gather(comm, kn_reshape(numbers(0, 4), KN_SHAPE(2, 2)), t),
                     KN_ERR_SHAPE, "[2,2]");
    }
    kn_comm_destroy(comm);
}

/* --- failures --- */

static void another_version_is_an_error(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    KN_FRAME(.device = device[0]);
    fake_nccl_version(30100);
    assert_fails(kn_comm_all_reduce(comm, numbers(0, N), KN_COMM_SUM), KN_ERR_UNSUPPORTED,
                 "version code 30100");
    fake_nccl_version(2604);
    assert_fails(kn_comm_all_reduce(comm, numbers(0, N), KN_COMM_SUM), KN_ERR_UNSUPPORTED,
                 "version code 2604");
    fake_nccl_version(NCCL_VERSION_CODE);
    assert_ok(kn_comm_all_reduce(comm, numbers(0, N), KN_COMM_SUM)); /* it stays usable */
    kn_comm_destroy(comm);
}

/* The program once more, with a file beside the library that is no module. */
static int reduce_once(void) {
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    KN_FRAME(.device = device[0]);
    kn_status status = kn_comm_all_reduce(comm, numbers(0, N), KN_COMM_SUM);
    printf("%s\n", status < 0 ? kn_last_error()->message : "it works");
    kn_comm_destroy(comm);
    return status == KN_ERR_UNSUPPORTED;
}

static void a_module_that_cannot_be_loaded_is_an_error(void **state) {
    (void)state;
    char folder[] = "/tmp/knet-nccl-XXXXXX", path[64], self[512] = "", command[1024], text[512];
    Dl_info library;
    assert_true(dladdr(dlsym(RTLD_DEFAULT, "kn_comm_rank"), &library));
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, strrchr(library.dli_fname, '/') + 1);
    assert_int_equal(symlink(library.dli_fname, path), 0);
    snprintf(command, sizeof command, "echo none > %s/libknet_comm_nccl.so", folder);
    assert_int_equal(system(command), 0);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s once; rm -r %s", folder, self, folder);
    FILE *run = popen(command, "re");
    assert_non_null(fgets(text, sizeof text, run));
    pclose(run);
    if (!strstr(text, "all_reduce: the module of nccl cannot be loaded")) fail_msg("%s", text);
}

typedef struct trouble {
    const char *function; /* of NCCL, or NULL: rank 0 does not come */
    ncclResult_t result;
    bool holds; /* rank 0's stream does nothing more */
    int after;  /* calls */
    _Atomic int n_left;
} trouble;

/* All-reduces until a call fails; rank 0 is the one in trouble. */
static const char *until_trouble(kn_comm *comm, void *ctx) {
    trouble *tr = ctx;
    int rank = kn_comm_rank(comm);
    KN_FRAME(.device = device[rank]);
    kn_tensor *t = numbers(0, N);
    const struct timespec pause = {0, 1000000};
    kn_status status = KN_OK;
    for (int i = 0; i < 2000 && status == KN_OK; i++) {
        if (i == tr->after && rank == 0) {
            if (tr->function) fake_nccl_fail(tr->function, 0, tr->result);
            if (tr->holds) fake_cuda_hold((cu_stream)kn_frame_stream());
            while (!tr->function && !tr->holds && atomic_load(&tr->n_left) > 1)
                nanosleep(&pause, NULL);
            if (!tr->function && !tr->holds) return NULL;
        }
        status = kn_comm_all_reduce(comm, t, KN_COMM_SUM);
        if (i > tr->after) nanosleep(&pause, NULL); /* time for what comes later */
    }
    kn_error first = *kn_last_error();
    atomic_fetch_sub(&tr->n_left, 1);
    if (tr->holds && rank == 0) fake_cuda_release((cu_stream)kn_frame_stream());
    RANK_CHECK(status == KN_ERR_PEER);
    RANK_CHECK(kn_comm_barrier(comm) == KN_ERR_PEER); /* broken afterwards */
    return KN_FAIL(first.status, "%s", first.message) < 0 ? NULL : "the error is lost";
}

static void trouble_is_told(trouble tr, double timeout, const char *what) {
    rank_run run[SIZE];
    atomic_store(&tr.n_left, SIZE);
    ranks_run_all(run, SIZE, until_trouble, &tr,
                  &(kn_comm_sim_options){.timeout_seconds = timeout});
    for (int r = 0; r < SIZE; r++) {
        if (run[r].found) fail_msg("rank %d: %s: %s", r, run[r].found, run[r].error.message);
        if (r == 0 && !tr.function && !tr.holds) continue;
        const char *text = run[r].error.message;
        if (!strstr(text, what) || !strstr(text, "rank 0 of 3") || !strstr(text, "all_reduce"))
            fail_msg("rank %d does not say '%s' of rank 0: %s", r, what, text);
    }
    /* A destroyed communicator would wait for the others. Some ranks may hear of an error of
     * joining before they join. */
    fake_nccl_counts counts = fake_nccl_count();
    assert_int_equal(counts.n_open, 0);
    assert_true(counts.n_aborts >= (tr.after ? SIZE - 1 : counts.n_made));
}

static void an_error_of_a_call_is_told_to_all(void **state) {
    (void)state;
    trouble_is_told((trouble){.function = "ncclAllReduce", .result = ncclSystemError, .after = 3},
                    60, "ncclAllReduce: unhandled system error");
}

static void an_error_that_comes_later_is_told_to_all(void **state) {
    (void)state;
    trouble_is_told(
        (trouble){.function = "ncclCommGetAsyncError", .result = ncclRemoteError, .after = 3}, 60,
        "remote process exited or there was a network error");
}

static void an_error_of_joining_is_told_to_all(void **state) {
    (void)state;
    trouble_is_told(
        (trouble){.function = "ncclCommInitRankConfig", .result = ncclSystemError, .after = 0}, 60,
        "ncclCommInitRankConfig: unhandled system error");
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    trouble_is_told((trouble){.after = 4}, 0.4, "sent nothing for");
}

static const char *killed(kn_comm *comm, void *ctx) {
    _Atomic int *n_left = ctx;
    const struct timespec pause = {0, 1000000};
    KN_FRAME(.device = device[kn_comm_rank(comm)]);
    kn_tensor *t = numbers(0, N);
    RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
    if (kn_comm_rank(comm) == 0) {
        kn_comm_sim_kill(comm);
        while (atomic_load(n_left) > 1) nanosleep(&pause, NULL);
        return NULL;
    }
    kn_status status = kn_comm_all_reduce(comm, t, KN_COMM_SUM);
    if (status == KN_OK) status = kn_comm_barrier(comm);
    atomic_fetch_sub(n_left, 1);
    RANK_CHECK(status == KN_ERR_PEER);
    return strstr(kn_last_error()->message, "rank 0 of 3") ? NULL : kn_last_error()->message;
}

static void a_killed_rank_is_named_at_once(void **state) {
    (void)state;
    _Atomic int n_left = SIZE;
    ranks_run(SIZE, killed, (void *)&n_left);
    assert_true(fake_nccl_count().n_aborts >= SIZE - 1);
}

/* The call has returned, and the device does nothing: the next call says so. */
static void a_gpu_that_hangs_is_found_by_the_time_out(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    const struct timespec pause = {0, 1000000};
    assert_ok(kn_comm_create(&comm, "self", &(kn_comm_options){.timeout_seconds = 0.1}));
    {
        KN_FRAME(.device = device[0]);
        kn_tensor *t = numbers(0, N);
        assert_ok(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
        fake_cuda_hold((cu_stream)kn_frame_stream());
        kn_status status = KN_OK;
        for (int i = 0; status == KN_OK && i < 50; i++) {
            status = kn_comm_all_reduce(comm, t, KN_COMM_SUM);
            nanosleep(&pause, NULL);
            if (i == 30) nanosleep(&(struct timespec){0, 300000000}, NULL);
        }
        assert_int_equal(status, KN_ERR_PEER);
        assert_non_null(strstr(kn_last_error()->message, "finished nothing for"));
        assert_int_equal(fake_nccl_count().n_aborts, 1);
        fake_cuda_release((cu_stream)kn_frame_stream());
    }
    kn_comm_destroy(comm);
}

static const char *gives_up(kn_comm *comm, void *ctx) {
    (void)ctx;
    KN_FRAME(.device = device[kn_comm_rank(comm)]);
    kn_tensor *t = numbers(0, N);
    RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
    if (kn_comm_rank(comm) == 0) {
        fake_cuda_hold((cu_stream)kn_frame_stream());
        kn_status begun = kn_comm_all_reduce(comm, t, KN_COMM_SUM);
        kn_comm_abort(comm, "out of memory: 4 GiB for conv1"); /* does not wait for the device */
        fake_cuda_release((cu_stream)kn_frame_stream());
        RANK_OK(begun);
        return NULL;
    }
    kn_status status = KN_OK;
    for (int i = 0; i < 3 && status == KN_OK; i++)
        status = i ? kn_comm_barrier(comm) : kn_comm_all_reduce(comm, t, KN_COMM_SUM);
    RANK_CHECK(status == KN_ERR_PEER);
    const char *text = kn_last_error()->message;
    return strstr(text, "out of memory: 4 GiB for conv1") ? NULL : text;
}

static void a_rank_that_aborts_says_why(void **state) {
    (void)state;
    ranks_run(SIZE, gives_up, NULL);
}

/* NCCL itself waits without end. */
static const char *other_calls(kn_comm *comm, void *ctx) {
    KN_FRAME(.device = device[kn_comm_rank(comm)]);
    kn_tensor *t = numbers(0, N);
    (void)ctx;
    kn_status status = KN_OK;
    for (int i = 0; i < 3 && status == KN_OK; i++)
        status = kn_comm_all_reduce(comm, t, KN_COMM_SUM);
    RANK_OK(status);
    for (int i = 0; i < 3 && status == KN_OK; i++)
        status = kn_comm_rank(comm) == 1 ? kn_comm_broadcast(comm, t, 2)
                                         : kn_comm_all_reduce(comm, t, KN_COMM_MAX);
    RANK_CHECK(status == KN_ERR_PEER);
    const char *text = kn_last_error()->message;
    RANK_CHECK(strstr(text, "calls broadcast of ") && strstr(text, "from rank 2"));
    return strstr(text, "calls all_reduce of ") && strstr(text, "(max)") ? NULL : text;
}

static void ranks_whose_calls_differ_hear_both(void **state) {
    (void)state;
    ranks_run(SIZE, other_calls, NULL);
    assert_int_equal(fake_nccl_count().n_open, 0);
}

int main(int argc, char **argv) {
    (void)argv;
    fake_cuda_machine_get()->n_devices = SIZE;
    for (int i = 0; i < SIZE; i++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", i);
        if (kn_device_find(&device[i], name) < 0) return 1;
    }
    if (argc > 1) return reduce_once();
    return RUN_TESTS(
        NCCL_TEST(tensors_of_gpus_are_combined), NCCL_TEST(a_message_goes_from_gpu_to_gpu),
        NCCL_TEST(one_rank_needs_no_other), NCCL_TEST(wrong_dtypes_are_named),
        NCCL_TEST(another_version_is_an_error),
        NCCL_TEST(a_module_that_cannot_be_loaded_is_an_error),
        NCCL_TEST(an_error_of_a_call_is_told_to_all),
        NCCL_TEST(an_error_that_comes_later_is_told_to_all),
        NCCL_TEST(an_error_of_joining_is_told_to_all),
        NCCL_TEST(a_rank_that_does_not_come_is_named), NCCL_TEST(a_killed_rank_is_named_at_once),
        NCCL_TEST(a_gpu_that_hangs_is_found_by_the_time_out),
        NCCL_TEST(a_rank_that_aborts_says_why), NCCL_TEST(ranks_whose_calls_differ_hear_both));
}
