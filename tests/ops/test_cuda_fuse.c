/* Frames with .fuse on a GPU, on the fake one that counts launches: chains are one kernel once it
 * is compiled, and single ops before that, where it can't be loaded, and where NVRTC is missing.
 * Needs NVRTC; XDG_CACHE_HOME is a folder of the test's own. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_gpu.h"
#include "ops_test.h"
#include "report_text.h"

static kn_device *gpu;
static char folder[] = "/tmp/knet_fuse_XXXXXX";
static bool hides_nvrtc;
static int fail_at, n_allocs; /* fail_at 0: never */

/* --- what stands before the libraries' --- */

KN_API void *dlopen(const char *name, int flags) {
    typedef void *(*open_fn)(const char *, int);
    open_fn next;
    void *symbol = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&next, &symbol, sizeof next);
    return hides_nvrtc && name && strstr(name, "nvrtc") ? NULL : next(name, flags);
}

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **, kn_pool *, size_t, kn_stream);
    alloc_fn next;
    void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
    memcpy(&next, &symbol, sizeof next);
    if (++n_allocs == fail_at) return KN_FAIL(KN_ERR_OOM, "allocation %d fails", n_allocs);
    return next(out, pool, size_bytes, stream);
}

static uint64_t live_bytes(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(gpu));
    return stats.live_bytes;
}

static uint64_t live_before;

static int begin(void **state) {
    (void)state;
    fake_gpu_reset();
    live_before = live_bytes();
    return 0;
}
static int end(void **state) {
    (void)state;
    fail_at = 0;
    assert_int_equal(kn_check(), KN_OK);
    assert_int_equal(live_bytes(), live_before);
    assert_int_equal(fake_cuda_count().n_violations, 0);
    return 0;
}

/* add, gelu, mul, and as many negations as make it a chain of its own. */
static kn_tensor *chain(int64_t rows, int n_neg) {
    kn_tensor *x = kn_tensor_new(gpu, KN_F32, KN_SHAPE(rows, 40)),
              *bias = kn_tensor_new(gpu, KN_F32, KN_SHAPE(40));
    kn_tensor *y = kn_mul(kn_gelu(kn_add(x, bias)), kn_tensor_new(gpu, KN_F32, KN_SHAPE(rows, 1)));
    for (int i = 0; i < n_neg; i++) y = kn_neg(y);
    return y;
}

typedef struct launches {
    int chains, others;
} launches;
static launches count(void) {
    launches n = {.chains = fake_gpu_kernels("knet_chain")};
    n.others = fake_gpu_count().n_kernels - n.chains;
    return n;
}

static launches run(int64_t rows, int n_neg) {
    launches before = count();
    KN_FRAME(.device = gpu, .fuse = 1);
    kn_tensor *y = chain(rows, n_neg);
    assert_non_null(y);
    assert_null(y->data);
    assert_non_null(kn_data(y));
    launches n = count();
    return (launches){n.chains - before.chains, n.others - before.others};
}

#define assert_launches(run_, chains_, others_)                                                    \
    do {                                                                                           \
        launches n_ = (run_);                                                                      \
        assert_int_equal(n_.chains, chains_);                                                      \
        assert_int_equal(n_.others, others_);                                                      \
    } while (0)

/* --- launches --- */

static void ops_run_one_by_one_until_their_kernel_is_compiled(void **state) {
    (void)state;
    assert_launches(run(16, 0), 0, 3);
    kn_fuse_wait();
    assert_launches(run(16, 0), 1, 0);
}

static void a_kernel_serves_other_shapes(void **state) {
    (void)state;
    (void)run(16, 1);
    kn_fuse_wait();
    assert_launches(run(17, 1), 1, 0);
    assert_launches(run(1000, 1), 1, 0);
}

static void a_single_op_needs_no_kernel(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .fuse = 1);
    assert_non_null(kn_data(kn_neg(kn_tensor_new(gpu, KN_F32, KN_SHAPE(8)))));
    assert_launches(count(), 0, 1);
    assert_int_equal(fake_gpu_kernels("row_neg"), 1);
}

static void frames_without_fuse_run_each_op(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .fuse = KN_OFF);
    assert_non_null(chain(16, 0)->data);
    assert_launches(count(), 0, 3);
}

static void casts_comparisons_and_scalars_are_steps(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.device = gpu, .fuse = 1);
        launches before = count();
        kn_tensor *x = kn_tensor_new(gpu, KN_F16, KN_SHAPE(64)), *y = kn_cast(kn_sigm(x), KN_F32);
        kn_tensor *z = kn_where(kn_gt(y, kn_exp(y)), y, kn_affine(y, 2 + i, 1));
        assert_non_null(kn_data(z));
        kn_fuse_wait();
        launches n = count();
        assert_int_equal(n.chains - before.chains, i);
        assert_int_equal(n.others - before.others, i ? 0 : 6);
    }
}

/* Also memory of values in between. */
static void allocations_that_fail_can_be_tried_again(void **state) {
    (void)state;
    for (int compiled = 0; compiled < 2; compiled++) {
        KN_FRAME(.device = gpu, .fuse = 1);
        kn_tensor *y = chain(24, 7);
        int n = 0;
        for (;; n++) {
            n_allocs = 0, fail_at = n + 1;
            if (kn_data(y)) break;
            assert_fails(kn_check(), KN_ERR_OOM, "fails");
            assert_null(y->data);
            if (compiled) kn_fuse_wait();
        }
        fail_at = 0;
        assert_int_equal(n, compiled ? 1 : 10);
        kn_fuse_wait();
    }
}

static void a_launch_that_fails_is_an_error_and_can_be_tried_again(void **state) {
    (void)state;
    (void)run(16, 2);
    kn_fuse_wait();
    KN_FRAME(.device = gpu, .fuse = 1);
    kn_tensor *y = chain(16, 2);
    fake_gpu_fail("cuLaunchKernel", 1, 1, 719);
    assert_null(kn_data(y));
    assert_fails(kn_check(), KN_ERR_CUDA, "cuLaunchKernel: error 719 on cuda:0");
    assert_non_null(kn_data(y));
    assert_int_equal(count().chains, 1);
}

static void ops_run_one_by_one_where_a_kernel_cannot_be_loaded(void **state) {
    (void)state;
    fake_gpu_fail("cuLibraryLoadData", 1, 1, 209);
    for (int i = 0; i < 3; i++) {
        assert_launches(run(16, 3), 0, 6);
        kn_fuse_wait();
    }
}

static void a_write_into_an_input_comes_after_its_readers(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .fuse = 1);
    kn_tensor *x = kn_tensor_new(gpu, KN_F32, KN_SHAPE(64)), *y = kn_neg(x), *z = kn_neg(y);
    assert_ok(kn_fill_into(x, 1));
    assert_non_null(y->data);
    assert_null(z->data);
}

static void a_kept_result_is_computed_on_its_frames_stream(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .fuse = 1);
    kn_stream other = NULL;
    assert_ok(kn_stream_create(&other, gpu));
    kn_tensor *y;
    {
        KN_FRAME(.stream = other);
        y = kn_keep(kn_neg(kn_neg(kn_tensor_new(gpu, KN_F32, KN_SHAPE(64)))));
    }
    assert_non_null(y->data);
    assert_ptr_equal(y->storage->stream, other);
    kn_drop(y);
    kn_stream_retire(gpu, other);
    kn_stream_destroy(gpu, other);
}

static void the_timer_names_the_ops(void **state) {
    (void)state;
    (void)run(16, 0);
    const char *text = report_text(".csv");
    assert_non_null(strstr(text, "add+gelu+mul"));
    assert_non_null(strstr(text, "chain_kernel"));
}

/* --- threads and processes --- */

static void *run_and_end(void *unused) {
    (void)unused;
    (void)run(16, 4);
    return NULL;
}

static void a_thread_may_end_while_its_kernel_is_compiled(void **state) {
    (void)state;
    pthread_t thread;
    pthread_create(&thread, NULL, run_and_end, NULL);
    pthread_join(thread, NULL);
    kn_fuse_wait();
    assert_launches(run(16, 4), 1, 0);
}

static void threads_share_kernels(void **state) {
    (void)state;
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, run_and_end, NULL);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    assert_launches(run(16, 4), 1, 0);
}

static int wait_for(pid_t child) {
    int status = -1;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return status;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

static void a_fork_while_a_kernel_is_compiled_ends(void **state) {
    (void)state;
    (void)run(16, 5);
    pid_t child = fork();
    if (child == 0) {
        kn_fuse_wait();
        exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    kn_fuse_wait();
    assert_launches(run(16, 5), 1, 0);
}

static int find_gpu(void) { return kn_device_find(&gpu, "cuda:0") < 0; }

/* Each in a process of its own, forked before this one has any state. The chains of this one are no
 * other test's: the kernels that it had time to compile are in the folder. */
static int exits_while_compiling(void) {
    if (find_gpu()) return 1;
    for (int n_neg = 10; n_neg < 16; n_neg++) (void)run(16, n_neg);
    exit(0);
}

static int lacks_nvrtc(void) {
    hides_nvrtc = true;
    if (find_gpu()) return 1;
    KN_FRAME(.device = gpu, .fuse = 1);
    kn_tensor *y = chain(16, 0);
    kn_fuse_wait();
    return !y || !y->data || count().chains || count().others != 3;
}

static int compiles(void) {
    if (find_gpu()) return 1;
    (void)run(16, 9);
    kn_fuse_wait();
    launches n = run(16, 9);
    return n.chains != 1 || n.others != 0;
}

/* The inode and the size of the file that `compiles` makes, the only one in the folder. */
static uint64_t inode_of_the_file(bool damage) {
    char path[128], command[128];
    snprintf(command, sizeof command, "ls %s/knet/*.chain", folder);
    FILE *ls = popen(command, "r");
    if (!ls || !fgets(path, sizeof path, ls)) return 0;
    pclose(ls);
    path[strcspn(path, "\n")] = 0;
    if (damage && truncate(path, 1000) != 0) return 0;
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static int result_of(int (*fn)(void)) {
    pid_t child = fork();
    if (child == 0) exit(fn());
    return wait_for(child);
}

static int later_processes_load_from_disk(void) {
    if (result_of(compiles)) return 1;
    uint64_t first = inode_of_the_file(false);
    if (result_of(compiles)) return 2;
    if (!first || inode_of_the_file(false) != first) return 3;
    inode_of_the_file(true);
    if (result_of(compiles)) return 4; /* writes it anew */
    return inode_of_the_file(false) == first ? 5 : 0;
}

static int in_processes(void) {
    int disk = later_processes_load_from_disk(), none = result_of(lacks_nvrtc);
    int leaves = result_of(exits_while_compiling);
    if (disk) fprintf(stderr, "later processes load from disk: %d\n", disk);
    if (none) fprintf(stderr, "without NVRTC: %d\n", none);
    if (leaves) fprintf(stderr, "exit while compiling: %d\n", leaves);
    return disk || none || leaves;
}

static bool has_nvrtc(void) {
    pid_t child = fork();
    if (child == 0) _exit(dlopen("libnvrtc.so." NVRTC_MAJOR, RTLD_NOW) == NULL);
    return wait_for(child) == 0;
}

#define FUSE_TEST(fn) TEST_WITH(fn, begin, end)

int main(void) {
    if (!has_nvrtc()) test_skip_all("NVRTC is not there");
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1) != 0) return 1;
    int failed = in_processes() || find_gpu();
    failed = failed || RUN_TESTS(FUSE_TEST(ops_run_one_by_one_until_their_kernel_is_compiled),
                                 FUSE_TEST(a_kernel_serves_other_shapes),
                                 FUSE_TEST(a_single_op_needs_no_kernel),
                                 FUSE_TEST(frames_without_fuse_run_each_op),
                                 FUSE_TEST(casts_comparisons_and_scalars_are_steps),
                                 FUSE_TEST(allocations_that_fail_can_be_tried_again),
                                 FUSE_TEST(a_launch_that_fails_is_an_error_and_can_be_tried_again),
                                 FUSE_TEST(ops_run_one_by_one_where_a_kernel_cannot_be_loaded),
                                 FUSE_TEST(a_write_into_an_input_comes_after_its_readers),
                                 FUSE_TEST(a_kept_result_is_computed_on_its_frames_stream),
                                 FUSE_TEST(the_timer_names_the_ops),
                                 FUSE_TEST(a_thread_may_end_while_its_kernel_is_compiled),
                                 FUSE_TEST(threads_share_kernels),
                                 FUSE_TEST(a_fork_while_a_kernel_is_compiled_ends));
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) || failed;
}
