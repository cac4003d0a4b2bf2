/* The thread that makes kernels of chains, with a compiler and a driver of the test's own: requests
 * by many threads, failures, too many kernels, a process that exits meanwhile. */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/forked_leaks.h"
#include "cuda/base/module.h"
#include "cuda/pointwise/chain_kernel.h"
#include "test.h"

enum { THREADS = 4, CHAINS = 24, ROUNDS = 50 };

static _Atomic int n_compiled, n_loaded, n_launched;
static _Atomic bool fails;

/* --- instead of NVRTC --- */

bool kn__chain_can_compile(void) { return true; }
uint64_t kn__chain_compiler_hash(void) { return (uint64_t)getpid(); }
void *kn__chain_compile(size_t *bytes, kn__text *log, const char *source, int arch) {
    assert_non_null(strstr(source, KN__CHAIN_KERNEL));
    assert_int_equal(arch, 90);
    atomic_fetch_add(&n_compiled, 1);
    usleep(2000);
    kn__text_puts(log, "no");
    *bytes = 8;
    return atomic_load(&fails) ? NULL : calloc(1, 8);
}

/* --- instead of the driver --- */

static CUresult load(CUlibrary *out, const void *code, CUjit_option *jit, void **jit_values,
                     unsigned n_jit, CUlibraryOption *options, void **values, unsigned n) {
    (void)code, (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    *out = (CUlibrary)(void *)&n_loaded;
    atomic_fetch_add(&n_loaded, 1);
    return CUDA_SUCCESS;
}
static CUresult get(CUkernel *out, CUlibrary library, const char *name) {
    (void)name;
    *out = (CUkernel)(void *)library;
    return CUDA_SUCCESS;
}
static CUresult launch(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void **args, void **extra) {
    (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes;
    (void)stream, (void)extra, (void)grid_x, (void)args;
    assert_ptr_equal(f, &n_loaded);
    atomic_fetch_add(&n_launched, 1);
    return CUDA_SUCCESS;
}
static CUresult exchange_mode(CUstreamCaptureMode *mode) {
    (void)mode;
    return CUDA_SUCCESS;
}
bool kn__driver_find(void *fn, const char *name) {
    void (*found)(void) = strcmp(name, "cuLibraryLoadData") == 0    ? (void (*)(void))load
                          : strcmp(name, "cuLibraryGetKernel") == 0 ? (void (*)(void))get
                          : strcmp(name, "cuLaunchKernel") == 0     ? (void (*)(void))launch
                                                                    : (void (*)(void))exchange_mode;
    memcpy(fn, &found, sizeof found);
    return true;
}
int kn__gpu_index(const kn_device *device) {
    (void)device;
    return 0;
}
kn_status kn__gpu_enter(bool *pushed, const kn_device *device) {
    (void)device;
    *pushed = false;
    return KN_OK;
}
void kn__gpu_leave(bool pushed) { (void)pushed; }
int64_t kn__integer_of(double value, kn_dtype dtype) {
    (void)dtype;
    return (int64_t)value;
}
KN_API kn_status kn_device_info_read(kn_device_info *out, size_t out_bytes, kn_device *device) {
    (void)device;
    memset(out, 0, out_bytes);
    out->compute_major = 9;
    return KN_OK;
}

/* --- tests --- */

/* A chain for each number. */
static kn__chain chain(int number) {
    kn__chain c;
    memset(&c, 0, sizeof c);
    c.n_steps = 12, c.n_operands = 1, c.dtype[0] = KN_F32;
    for (int i = 0; i < 12; i++) {
        c.step[i] = (kn__chain_step){.dtype = KN_F32, .to = KN_F32, .n_in = 1, .stored = i == 11};
        c.step[i].op = number >> i & 1 ? KN_OP_neg : KN_OP_exp;
        c.step[i].in[0] = (uint8_t)(i ? i - 1 : KN__CHAIN_STEPS);
    }
    return c;
}

static bool run(int number) {
    kn__chain c = chain(number);
    kn__chain_args args = {.n = 8};
    bool launched = false;
    assert_ok(kn__cuda_chain(&launched, &c, &args, kn_device_host(), NULL));
    return launched;
}

static int clear(void **state) {
    (void)state;
    n_compiled = n_loaded = n_launched = 0;
    fails = false;
    return 0;
}

static void *run_many(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < CHAINS; k++) (void)run(k);
    }
    kn__cuda_chains_wait();
    return NULL;
}

static void threads_share_one_kernel_a_chain(void **state) {
    (void)state;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, run_many, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(n_compiled, CHAINS);
    assert_int_equal(n_loaded, CHAINS);
    int before = n_launched;
    for (int k = 0; k < CHAINS; k++) assert_true(run(k));
    assert_int_equal(n_launched, before + CHAINS);
}

static void a_chain_that_fails_is_tried_once(void **state) {
    (void)state;
    fails = true;
    for (int i = 0; i < 3; i++) {
        assert_false(run(100));
        kn__cuda_chains_wait();
    }
    assert_int_equal(n_compiled, 1);
    assert_int_equal(n_loaded, 0);
}

static void a_compiled_kernel_is_found_on_disk(void **state) {
    (void)state;
    size_t bytes = 0;
    (void)run(101);
    kn__cuda_chains_wait();
    kn__text key = {0};
    kn__chain c = chain(101);
    kn__text_printf(&key, "knet chain sm_90 compiler %016llx\n",
                    (unsigned long long)kn__chain_compiler_hash());
    kn__chain_source(&key, &c, KN__CHAIN_KERNEL);
    void *code = kn__chain_disk_read(&bytes, key.data);
    assert_int_equal(bytes, 8);
    free(code);
    kn__text_release(&key);
}

static void a_fork_has_no_kernels_and_ends(void **state) {
    (void)state;
    for (int k = 200; k < 220; k++) (void)run(k);
    pid_t child = fork();
    if (child == 0) {
        bool launched = run(0);
        kn__cuda_chains_wait();
        exit(launched);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    kn__cuda_chains_wait();
    assert_true(run(200));
}

static void there_are_at_most_1024_kernels(void **state) {
    (void)state;
    fails = true; /* quick: no files */
    for (int k = 1000; k < 2200; k++) (void)run(k);
    assert_false(run(2199));
    assert_true(run(0));
}

/* Ends while many kernels wait to be made: the thread is stopped, not waited out. */
int main(void) {
    char folder[] = "/tmp/knet_chain_XXXXXX", command[64];
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1) != 0) return 1;
    int failed = RUN_TESTS(TEST_WITH(threads_share_one_kernel_a_chain, clear, NULL),
                           TEST_WITH(a_chain_that_fails_is_tried_once, clear, NULL),
                           TEST_WITH(a_compiled_kernel_is_found_on_disk, clear, NULL),
                           TEST_WITH(a_fork_has_no_kernels_and_ends, clear, NULL),
                           TEST_WITH(there_are_at_most_1024_kernels, clear, NULL));
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) || failed;
}
