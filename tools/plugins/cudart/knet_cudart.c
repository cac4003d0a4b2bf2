/* libknet_cudart: cudaMalloc, cudaMallocAsync and their frees, and those of the driver's interface
 * (cuMemAlloc, cuMemAllocAsync), answered by the pools. `knet run --alloc` preloads it; it needs a
 * program that links libcudart or libcuda dynamically: what asks cuGetProcAddress or dlsym of the
 * library itself isn't seen.
 *
 * Memory of cudaMalloc and cuMemAlloc may be used on every stream at once: it belongs to a stream
 * of its own, on which no work runs. They wait for that stream, so for nothing, unless the pool
 * took the memory from another stream that still works with it. cudaFree and cuMemFree wait for the
 * block's device, as NVIDIA's do: programs rely on it. The others are in the order of their stream
 * and wait for nothing, but for a free on a stream of another device than the block's: that waits
 * for the stream. What a stream that is captured allocates is a node of its graph, so the runtime
 * serves it; so it does what the pools can't: without a driver, for memory of other functions, and
 * for streams of another context than a device's primary one. */
#include <dlfcn.h>
#include <knet/device_driver.h>
#include <knet/pool.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef int cuda_error; /* cudaError_t */
enum { SUCCESS = 0, INVALID_VALUE = 1, MEMORY_ALLOCATION = 2, INITIALIZATION = 3, UNKNOWN = 999 };
enum { DEVICES_MAX = 64 };
#define STREAM_PER_THREAD ((kn_stream)(uintptr_t)2) /* cudaStreamPerThread */

/* The functions of one interface; both have the same arguments. */
typedef struct functions {
    cuda_error (*malloc)(void **, size_t);
    cuda_error (*free)(void *);
    cuda_error (*malloc_async)(void **, size_t, kn_stream);
    cuda_error (*free_async)(void *, kn_stream);
    cuda_error (*get_device)(int *);
    cuda_error (*synchronize)(void);
    cuda_error (*is_capturing)(kn_stream, int *);
    cuda_error (*synchronize_stream)(kn_stream);
    cuda_error (*stream_device)(kn_stream, int *); /* from CUDA 12.8 on */
    bool has_last_error;                           /* as cudaGetLastError returns it */
} functions;
enum { N_FUNCTIONS = 9 };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static functions runtime, driver;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(kn_pool *) pools[DEVICES_MAX];
static kn_stream streams[DEVICES_MAX]; /* of cudaMalloc's memory; set before the pool */

KN_API cuda_error cudaMalloc(void **out, size_t bytes);
KN_API cuda_error cudaFree(void *ptr);
KN_API cuda_error cudaMallocAsync(void **out, size_t bytes, kn_stream stream);
KN_API cuda_error cudaFreeAsync(void *ptr, kn_stream stream);
KN_API cuda_error cudaMallocAsync_ptsz(void **out, size_t bytes, kn_stream stream);
KN_API cuda_error cudaFreeAsync_ptsz(void *ptr, kn_stream stream);
/* A CUdeviceptr is a pointer here, of the same size. */
KN_API cuda_error cuMemAlloc_v2(void **out, size_t bytes);
KN_API cuda_error cuMemFree_v2(void *ptr);
KN_API cuda_error cuMemAllocAsync(void **out, size_t bytes, kn_stream stream);
KN_API cuda_error cuMemFreeAsync(void *ptr, kn_stream stream);
KN_API cuda_error cuMemAllocAsync_ptsz(void **out, size_t bytes, kn_stream stream);
KN_API cuda_error cuMemFreeAsync_ptsz(void *ptr, kn_stream stream);

/* --- the libraries --- */

typedef struct library {
    const char *name;
    void *handle;
} library;

static int note_library(struct dl_phdr_info *loaded, size_t bytes, void *wanted) {
    library *found = wanted;
    (void)bytes;
    if (!loaded->dlpi_name || !strstr(loaded->dlpi_name, found->name)) return 0;
    found->handle = dlopen(loaded->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    return 1;
}

static void find(void *out_fn, const library *from, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol && from->handle) symbol = dlsym(from->handle, name);
    memcpy(out_fn, &symbol, sizeof symbol);
}

/* In the order of the fields. They may have been loaded for one library alone, as Python's
 * extensions do it. */
static void resolve_from(functions *out, const char *name, const char *const names[N_FUNCTIONS]) {
    library from = {name, NULL};
    dl_iterate_phdr(note_library, &from);
    find(&out->malloc, &from, names[0]);
    find(&out->free, &from, names[1]);
    find(&out->malloc_async, &from, names[2]);
    find(&out->free_async, &from, names[3]);
    find(&out->get_device, &from, names[4]);
    find(&out->synchronize, &from, names[5]);
    find(&out->is_capturing, &from, names[6]);
    find(&out->synchronize_stream, &from, names[7]);
    find(&out->stream_device, &from, names[8]);
}

static void resolve(void) {
    static const char *const of_runtime[N_FUNCTIONS] = {"cudaMalloc",
                                                        "cudaFree",
                                                        "cudaMallocAsync",
                                                        "cudaFreeAsync",
                                                        "cudaGetDevice",
                                                        "cudaDeviceSynchronize",
                                                        "cudaStreamIsCapturing",
                                                        "cudaStreamSynchronize",
                                                        "cudaStreamGetDevice"};
    static const char *const of_driver[N_FUNCTIONS] = {
        "cuMemAlloc_v2",       "cuMemFree_v2",        "cuMemAllocAsync",
        "cuMemFreeAsync",      "cuCtxGetDevice",      "cuCtxSynchronize",
        "cuStreamIsCapturing", "cuStreamSynchronize", "cuStreamGetDevice"};
    resolve_from(&runtime, "libcudart.so", of_runtime);
    resolve_from(&driver, "libcuda.so", of_driver);
    runtime.has_last_error = true;
}

static const functions *next(const functions *of) {
    pthread_once(&once, resolve);
    return of;
}

static bool is_captured(const functions *of, kn_stream stream) {
    int status = 0;
    return of->is_capturing && of->is_capturing(stream, &status) == SUCCESS && status != 0;
}

/* --- pools --- */

static kn_pool *open_locked(int device) {
    char name[16];
    kn_device *found = NULL;
    kn_pool *pool = atomic_load(&pools[device]); /* another thread was first */
    if (pool) return pool;
    snprintf(name, sizeof name, "cuda:%d", device);
    if (kn_device_find(&found, name) < 0) return NULL;
    bool older = kn_pending() < 0; /* another call's error, which stays pending */
    pool = kn_device_pool(found);
    if (!pool && (older || kn_check() < 0)) return NULL; /* takes its own error */
    if (kn_stream_create(&streams[device], found) < 0) return NULL;
    atomic_store(&pools[device], pool);
    return pool;
}

static kn_pool *open_pool(int device) {
    pthread_mutex_lock(&open_lock);
    kn_pool *pool = open_locked(device);
    pthread_mutex_unlock(&open_lock);
    return pool;
}

static int device_now(const functions *of) {
    int device = -1;
    bool known = of->get_device && of->get_device(&device) == SUCCESS && device < DEVICES_MAX;
    return known ? device : -1;
}

static kn_pool *pool_of_device(int device) {
    if (device < 0 || device >= DEVICES_MAX) return NULL;
    kn_pool *pool = atomic_load_explicit(&pools[device], memory_order_acquire);
    return pool ? pool : open_pool(device);
}

/* Of the thread's device; NULL: the library shall answer. */
static kn_pool *pool_now(const functions *of, int *device) {
    *device = of->synchronize ? device_now(of) : -1;
    return pool_of_device(*device);
}

/* Of the stream's device, which needn't be the thread's; NULL: the library shall answer. */
static kn_pool *pool_of_stream(const functions *of, kn_stream stream) {
    int device = -1;
    bool known = of->stream_device && of->stream_device(stream, &device) == SUCCESS;
    return known ? pool_of_device(device) : NULL;
}

static kn_pool *pool_of(kn_block_info *block, int *device, const void *ptr) {
    for (int i = 0; i < DEVICES_MAX; i++) {
        kn_pool *pool = atomic_load_explicit(&pools[i], memory_order_acquire);
        if (pool && kn_block_find(block, sizeof *block, pool, ptr)) {
            *device = i;
            return block->ptr == ptr ? pool : NULL;
        }
    }
    return NULL;
}

/* Programs may ask for the last error instead of looking at the call's: the library's own call
 * fails in the same way, for more than there is. */
static void set_last_error(const functions *of, bool async, kn_stream stream) {
    const size_t too_much = (size_t)1 << 62;
    void *none = NULL;
    if (!of->has_last_error) return;
    if (async && of->malloc_async) (void)of->malloc_async(&none, too_much, stream);
    if (!async && of->malloc) (void)of->malloc(&none, too_much);
}

static cuda_error error_of(kn_status status) {
    return status >= 0 ? SUCCESS : status == KN_ERR_OOM ? MEMORY_ALLOCATION : INVALID_VALUE;
}

static cuda_error alloc(const functions *of, void **out, size_t bytes) {
    int device;
    void *block = NULL;
    kn_pool *pool = out ? pool_now(of, &device) : NULL;
    if (!pool) return of->malloc ? of->malloc(out, bytes) : INITIALIZATION;
    kn_status status = kn_alloc(&block, pool, bytes, streams[device]);
    if (status == KN_ERR_OOM) set_last_error(of, false, NULL);
    if (status < 0) return error_of(status);
    if (kn_stream_sync(kn_pool_device(pool), streams[device]) < 0) {
        (void)kn_free(pool, block);
        return UNKNOWN;
    }
    *out = block;
    return SUCCESS;
}

/* Of the current device by the program's own interface, whose errors it knows. */
static cuda_error wait_for_device(const functions *of, const kn_pool *pool, int device) {
    void *impl = NULL;
    if (device == device_now(of)) return of->synchronize();
    const kn_device_driver *its = kn_device_driver_get(kn_pool_device(pool), &impl);
    return its->device_sync(impl) >= 0 ? SUCCESS : UNKNOWN;
}

/* After the wait no stream uses the block: whoever gets it may use it anywhere. */
static cuda_error give_back(const functions *of, void *ptr) {
    int device;
    kn_block_info block;
    kn_pool *pool = ptr ? pool_of(&block, &device, ptr) : NULL;
    if (!pool) return of->free ? of->free(ptr) : INITIALIZATION;
    cuda_error error = wait_for_device(of, pool, device);
    if (error != SUCCESS) return error;
    return kn_free(pool, ptr) >= 0 ? SUCCESS : INVALID_VALUE;
}

static cuda_error library_alloc_async(const functions *of, void **out, size_t bytes,
                                      kn_stream stream) {
    return of->malloc_async ? of->malloc_async(out, bytes, stream) : INITIALIZATION;
}

static cuda_error alloc_async(const functions *of, void **out, size_t bytes, kn_stream stream) {
    int device;
    void *block = NULL;
    kn_pool *pool = out ? pool_now(of, &device) : NULL;
    if (!pool || is_captured(of, stream)) return library_alloc_async(of, out, bytes, stream);
    kn_status status = kn_alloc(&block, pool, bytes, stream);
    if (status == KN_ERR_INVALID) { /* it isn't a stream of this device */
        pool = pool_of_stream(of, stream);
        if (pool) status = kn_alloc(&block, pool, bytes, stream);
        if (status == KN_ERR_INVALID) return library_alloc_async(of, out, bytes, stream);
    }
    if (status == KN_ERR_OOM) set_last_error(of, true, stream);
    if (status >= 0) *out = block;
    return error_of(status);
}

/* The program has ordered the stream after the one that the block was taken on, not the reverse.
 * The pool knows no streams of other devices. */
static cuda_error end_use(const functions *of, kn_pool *pool, void *ptr, kn_stream stream) {
    kn_status status = kn_block_use(pool, ptr, stream);
    if (status != KN_ERR_INVALID || !of->synchronize_stream) return error_of(status);
    return of->synchronize_stream(stream);
}

static cuda_error give_back_async(const functions *of, void *ptr, kn_stream stream) {
    int device;
    kn_block_info block;
    kn_pool *pool = ptr ? pool_of(&block, &device, ptr) : NULL;
    if (!pool || is_captured(of, stream)) {
        return of->free_async ? of->free_async(ptr, stream) : INITIALIZATION;
    }
    cuda_error error = stream == block.stream ? SUCCESS : end_use(of, pool, ptr, stream);
    return error == SUCCESS ? error_of(kn_free(pool, ptr)) : error;
}

/* --- what programs call --- */

cuda_error cudaMalloc(void **out, size_t bytes) { return alloc(next(&runtime), out, bytes); }
cuda_error cudaFree(void *ptr) { return give_back(next(&runtime), ptr); }

cuda_error cudaMallocAsync(void **out, size_t bytes, kn_stream stream) {
    return alloc_async(next(&runtime), out, bytes, stream);
}

cuda_error cudaFreeAsync(void *ptr, kn_stream stream) {
    return give_back_async(next(&runtime), ptr, stream);
}

/* The driver refuses no bytes. */
cuda_error cuMemAlloc_v2(void **out, size_t bytes) {
    return bytes ? alloc(next(&driver), out, bytes) : INVALID_VALUE;
}

cuda_error cuMemFree_v2(void *ptr) { return give_back(next(&driver), ptr); }

cuda_error cuMemAllocAsync(void **out, size_t bytes, kn_stream stream) {
    return bytes ? alloc_async(next(&driver), out, bytes, stream) : INVALID_VALUE;
}

cuda_error cuMemFreeAsync(void *ptr, kn_stream stream) {
    return give_back_async(next(&driver), ptr, stream);
}

/* Of programs that are compiled for a default stream per thread. */
static kn_stream of_thread(kn_stream stream) { return stream ? stream : STREAM_PER_THREAD; }

cuda_error cudaMallocAsync_ptsz(void **out, size_t bytes, kn_stream stream) {
    return cudaMallocAsync(out, bytes, of_thread(stream));
}

cuda_error cudaFreeAsync_ptsz(void *ptr, kn_stream stream) {
    return cudaFreeAsync(ptr, of_thread(stream));
}

cuda_error cuMemAllocAsync_ptsz(void **out, size_t bytes, kn_stream stream) {
    return cuMemAllocAsync(out, bytes, of_thread(stream));
}

cuda_error cuMemFreeAsync_ptsz(void *ptr, kn_stream stream) {
    return cuMemFreeAsync(ptr, of_thread(stream));
}
