/* Launches the kernels of chains. A first request queues the kernel for a thread of ours, which
 * finds it on disk or compiles it; until then the caller runs the steps one by one. Kernels stay
 * for the life of the process. */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "cuda/base/module.h"
#include "cuda/pointwise/chain_kernel.h"
#include "hash.h"
#include "helper.h"

enum { KERNELS_MAX = 1024, THREADS = 256, BLOCKS_MAX = 1 << 20 };
enum { WAITING, READY, FAILED };

typedef struct kernel {
    struct kernel *queued; /* after it in the queue */
    CUkernel function;
    _Atomic int state;
    int arch;
    kn__chain chain;
} kernel;

typedef struct place {
    uint64_t key; /* the hash of chain and architecture */
    kernel *kernel;
} place;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake, idle;
    kn__hash kernels;      /* of places; they stay for the life of the process */
    kernel *first, **last; /* the queue */
    bool is_busy, is_started, stops;
    pthread_t thread;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER,
         .wake = PTHREAD_COND_INITIALIZER,
         .idle = PTHREAD_COND_INITIALIZER,
         .last = &all.first};
static _Atomic bool is_child; /* a fork has no thread, and the mutex may be taken for good */

static struct {
    CUresult (*load)(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                     unsigned n_jit, CUlibraryOption *options, void **values, unsigned n);
    CUresult (*get)(CUkernel *out, CUlibrary library, const char *name);
    CUresult (*launch)(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void **args, void **extra);
    CUresult (*exchange_mode)(CUstreamCaptureMode *mode);
} driver;
static bool has_driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* --- the thread --- */

/* Everything that the machine code depends on. */
static void key_of(kn__text *key, const kernel *k) {
    kn__text_printf(key, "knet chain sm_%d compiler %016llx\n", k->arch,
                    (unsigned long long)kn__chain_compiler_hash());
    kn__chain_source(key, &k->chain, KN__CHAIN_KERNEL);
}

static void *code_of(size_t *bytes, const kernel *k) {
    kn__text key = {0}, log = {0};
    key_of(&key, k);
    void *code = key.failed ? NULL : kn__chain_disk_read(bytes, key.data);
    if (!code && !key.failed) {
        code = kn__chain_compile(bytes, &log, strchr(key.data, '\n') + 1, k->arch);
        if (code)
            kn__chain_disk_write(key.data, code, *bytes);
        else
            kn_log_write(1, "a fused kernel can't be compiled, its ops run one by one: %s",
                         log.data ? log.data : "no memory");
    }
    kn__text_release(&key);
    kn__text_release(&log);
    return code;
}

static int make(kernel *k) {
    size_t bytes = 0;
    void *code = code_of(&bytes, k);
    if (!code) return FAILED;
    CUlibrary library = NULL;
    CUresult result = driver.load(&library, code, NULL, NULL, 0, NULL, NULL, 0);
    if (result == CUDA_SUCCESS) result = driver.get(&k->function, library, KN__CHAIN_KERNEL);
    if (result != CUDA_SUCCESS)
        kn_log_write(1, "a fused kernel can't be loaded, its ops run one by one: error %d",
                     (int)result);
    free(code);
    return result == CUDA_SUCCESS ? READY : FAILED;
}

static void *work(void *unused) {
    (void)unused;
    kn__helper_enter();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* others may capture meanwhile */
    (void)driver.exchange_mode(&mode);
    pthread_mutex_lock(&all.mutex);
    while (!all.stops) {
        kernel *k = all.first;
        all.is_busy = k != NULL;
        if (!k) {
            pthread_cond_broadcast(&all.idle);
            pthread_cond_wait(&all.wake, &all.mutex);
            continue;
        }
        if (!(all.first = k->queued)) all.last = &all.first;
        pthread_mutex_unlock(&all.mutex);
        int state = make(k);
        pthread_mutex_lock(&all.mutex);
        atomic_store_explicit(&k->state, state, memory_order_release);
    }
    all.is_busy = false;
    pthread_cond_broadcast(&all.idle);
    pthread_mutex_unlock(&all.mutex);
    return NULL;
}

/* At exit: a compilation that runs ends first, for its library must not be torn down under it. */
static void stop(void) {
    if (atomic_load(&is_child)) return;
    pthread_mutex_lock(&all.mutex);
    bool started = all.is_started;
    all.stops = true;
    pthread_cond_signal(&all.wake);
    pthread_mutex_unlock(&all.mutex);
    if (started) pthread_join(all.thread, NULL);
}

/* With the mutex held. It takes no signals, which belong to the program's threads. */
static bool start(void) {
    if (all.is_started) return true;
    sigset_t every, old;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    all.is_started = pthread_create(&all.thread, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return all.is_started;
}

static void in_child(void) { atomic_store(&is_child, true); }

/* --- whether --- */

static void prepare(void) {
    has_driver = kn__driver_find(&driver.load, "cuLibraryLoadData") &&
                 kn__driver_find(&driver.get, "cuLibraryGetKernel") &&
                 kn__driver_find(&driver.launch, "cuLaunchKernel") &&
                 kn__driver_find(&driver.exchange_mode, "cuThreadExchangeStreamCaptureMode") &&
                 kn__chain_can_compile() && pthread_atfork(NULL, NULL, in_child) == 0 &&
                 atexit(stop) == 0;
}

bool kn__cuda_chains(void) {
    pthread_once(&once, prepare);
    return has_driver;
}

void kn__cuda_chains_wait(void) {
    if (!kn__cuda_chains() || atomic_load(&is_child)) return;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&all.mutex);
    while (all.is_started && !all.stops && (all.first || all.is_busy)) {
        pthread_cond_wait(&all.idle, &all.mutex);
    }
    pthread_mutex_unlock(&all.mutex);
}

/* --- kernels by chain --- */

static uint64_t hash_of(const kn__chain *chain, int arch) {
    return kn__spread(kn__fnv_words((uint64_t)arch, chain, sizeof *chain)) | (uint64_t)1 << 63;
}

/* Its place, or the free one for it. With the mutex held, as both below. */
static place *find_place(const kn__chain *chain, int arch) {
    place *at = kn__hash_find(&all.kernels, sizeof *at, hash_of(chain, arch));
    while (at->key &&
           (at->kernel->arch != arch || memcmp(&at->kernel->chain, chain, sizeof *chain) != 0)) {
        at = kn__hash_after(&all.kernels, sizeof *at, at);
    }
    return at;
}

/* NULL: there are too many, or no memory. */
static kernel *request(const kn__chain *chain, int arch) {
    if (all.kernels.n_used == KERNELS_MAX || all.stops || !start()) return NULL;
    if (kn__hash_is_full(&all.kernels) && !kn__hash_grow(&all.kernels, sizeof(place), 64))
        return NULL;
    kernel *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->chain = *chain, k->arch = arch;
    place *at = find_place(chain, arch);
    kn__hash_use(&all.kernels, at, hash_of(chain, arch));
    at->kernel = k;
    *all.last = k, all.last = &k->queued;
    pthread_cond_signal(&all.wake);
    return k;
}

static const kernel *find(const kn__chain *chain, int arch) {
    pthread_mutex_lock(&all.mutex);
    kernel *k = all.kernels.n_slots ? find_place(chain, arch)->kernel : NULL;
    if (!k) k = request(chain, arch);
    pthread_mutex_unlock(&all.mutex);
    return k && atomic_load_explicit(&k->state, memory_order_acquire) == READY ? k : NULL;
}

/* --- launching --- */

static int arch_of(kn_device *device) {
    static _Atomic int known[KN__GPUS_MAX];
    int gpu = kn__gpu_index(device);
    if (gpu < 0) return 0;
    int arch = atomic_load_explicit(&known[gpu], memory_order_relaxed);
    if (arch) return arch;
    kn_device_info info;
    if (kn_device_info_read(&info, sizeof info, device) < 0) return 0;
    arch = info.compute_major * 10 + info.compute_minor;
    atomic_store_explicit(&known[gpu], arch, memory_order_relaxed);
    return arch;
}

/* Packs may be moved where all operands begin at multiples of theirs. */
static bool is_wide(const kn__chain *c, const kn__chain_args *args) {
    uintptr_t rest = 0;
    size_t width = (size_t)kn__chain_width(c);
    for (int k = 0; k < c->n_operands; k++) {
        if (c->kind[k] == KN__CHAIN_DENSE)
            rest |= (uintptr_t)args->in[k] % (kn_dtype_bytes((kn_dtype)c->dtype[k]) * width);
    }
    for (int i = 0; i < c->n_steps; i++) {
        if (c->step[i].stored)
            rest |= (uintptr_t)args->out[i] % (kn_dtype_bytes((kn_dtype)c->step[i].to) * width);
    }
    return rest == 0;
}

static bool is_integer(unsigned dtype) {
    return dtype == KN_I64 || dtype == KN_I32 || dtype == KN_U8;
}

kn_status kn__cuda_chain(bool *launched, const kn__chain *chain, kn__chain_args *args,
                         kn_device *device, kn_stream stream) {
    *launched = false;
    if (!kn__cuda_chains() || atomic_load_explicit(&is_child, memory_order_relaxed)) return KN_OK;
    int arch = arch_of(device);
    const kernel *k = arch ? find(chain, arch) : NULL;
    if (!k) return KN_OK;
    for (int i = 0; i < chain->n_steps; i++) {
        kn_dtype dtype = (kn_dtype)chain->step[i].dtype;
        if (!is_integer(dtype)) continue;
        args->p[i].integer = kn__integer_of(args->p[i].real, dtype);
        args->q[i].integer = kn__integer_of(args->q[i].real, dtype);
    }
    args->wide = is_wide(chain, args);
    int64_t width = kn__chain_width(chain), packs = (args->n + width - 1) / width;
    int64_t blocks = (packs + THREADS - 1) / THREADS;
    bool pushed = false;
    KN_TRY(kn__gpu_enter(&pushed, device));
    CUresult result = KN_PROF_CALL(
        "chain_kernel", driver.launch((CUfunction)k->function,
                                      (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), 1, 1,
                                      THREADS, 1, 1, 0, stream, (void *[]){args}, NULL));
    kn__gpu_leave(pushed);
    *launched = result == CUDA_SUCCESS;
    if (*launched) return KN_OK;
    return KN_FAIL(result == CUDA_ERROR_OUT_OF_MEMORY ? KN_ERR_OOM : KN_ERR_CUDA,
                   "cuLaunchKernel: error %d on %s", (int)result, kn_device_name(device));
}
