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
 * serves it; so it does what the pools can't: without a driver, for memory of other functions, for
 * streams of another context than a device's primary one, and where the device fails, so that the
 * program gets the library's own error. Streams are retired before the library destroys them.
 * cudaDeviceReset ends the use of the device's pool: from then on the library serves the device. */
#include <dlfcn.h>
#include <knet/device_driver.h>
#include <knet/pool.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

typedef int cuda_error; /* cudaError_t */
enum { SUCCESS = 0, INVALID_VALUE = 1, MEMORY_ALLOCATION = 2, INITIALIZATION = 3, UNKNOWN = 999 };
enum { DEVICES_MAX = 64 };
enum { STREAM_PER_THREAD = 2 }; /* cudaStreamPerThread; the default stream is 0 or 1 */

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
    cuda_error (*destroy_stream)(kn_stream);
    cuda_error (*destroy_stream_v1)(kn_stream); /* of the driver's interface */
    cuda_error (*reset_current)(void);          /* of the runtime's */
    cuda_error (*reset_device)(int);            /* of the driver's */
    bool has_last_error;                        /* as cudaGetLastError returns it */
} functions;
enum { N_FUNCTIONS = 13 };

/* The program may load its library after the first call of the other one. */
typedef struct interface {
    const char *library;
    const char *names[N_FUNCTIONS]; /* in the order of the fields */
    bool has_last_error;
    atomic_bool is_found; /* set after `found`, which then never changes */
    functions found;
} interface;

static interface runtime = {
    .library = "libcudart.so",
    .names = {"cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaGetDevice",
              "cudaDeviceSynchronize", "cudaStreamIsCapturing", "cudaStreamSynchronize",
              "cudaStreamGetDevice", "cudaStreamDestroy", NULL, "cudaDeviceReset", NULL},
    .has_last_error = true};
static interface driver = {
    .library = "libcuda.so",
    .names = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemFreeAsync",
              "cuCtxGetDevice", "cuCtxSynchronize", "cuStreamIsCapturing", "cuStreamSynchronize",
              "cuStreamGetDevice", "cuStreamDestroy_v2", "cuStreamDestroy", NULL,
              "cuDevicePrimaryCtxReset_v2"}};
static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(kn_pool *) pools[DEVICES_MAX];
static kn_stream streams[DEVICES_MAX]; /* of cudaMalloc's memory; set before the pool */
static bool was_reset[DEVICES_MAX];    /* its pool is out of use; under the lock */

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
KN_API cuda_error cudaStreamDestroy(kn_stream stream);
KN_API cuda_error cuStreamDestroy_v2(kn_stream stream);
KN_API cuda_error cuStreamDestroy(kn_stream stream); /* of programs before CUDA 4 */
KN_API cuda_error cudaDeviceReset(void);
KN_API cuda_error cuDevicePrimaryCtxReset_v2(int device);

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
    void *symbol = name ? dlsym(RTLD_NEXT, name) : NULL;
    if (!symbol && name && from->handle) symbol = dlsym(from->handle, name);
    memcpy(out_fn, &symbol, sizeof symbol);
}

/* They may have been loaded for one library alone, as Python's extensions do it. */
static functions look_up(const interface *of) {
    functions out = {.has_last_error = of->has_last_error};
    library from = {of->library, NULL};
    dl_iterate_phdr(note_library, &from);
    find(&out.malloc, &from, of->names[0]);
    find(&out.free, &from, of->names[1]);
    find(&out.malloc_async, &from, of->names[2]);
    find(&out.free_async, &from, of->names[3]);
    find(&out.get_device, &from, of->names[4]);
    find(&out.synchronize, &from, of->names[5]);
    find(&out.is_capturing, &from, of->names[6]);
    find(&out.synchronize_stream, &from, of->names[7]);
    find(&out.stream_device, &from, of->names[8]);
    find(&out.destroy_stream, &from, of->names[9]);
    find(&out.destroy_stream_v1, &from, of->names[10]);
    find(&out.reset_current, &from, of->names[11]);
    find(&out.reset_device, &from, of->names[12]);
    return out;
}

/* Looks again until the library is loaded; what an old library lacks then stays NULL. The lookup
 * takes the loader's lock, so not this one: a thread that loads a library may wait for this one. */
static const functions *next(interface *of) {
    static const functions none;
    if (atomic_load_explicit(&of->is_found, memory_order_acquire)) return &of->found;
    functions found = look_up(of);
    if (!found.malloc) return &none;
    pthread_mutex_lock(&found_lock);
    if (!atomic_load_explicit(&of->is_found, memory_order_relaxed)) {
        of->found = found;
        atomic_store_explicit(&of->is_found, true, memory_order_release);
    }
    pthread_mutex_unlock(&found_lock);
    return &of->found;
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
    if (pool || was_reset[device]) return pool;
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

/* --- errors --- */

/* Programs may ask for the last error instead of looking at the call's: the library's own call
 * fails in the same way, for more than there is. */
static cuda_error out_of_memory(const functions *of, bool async, kn_stream stream) {
    const size_t too_much = (size_t)1 << 62;
    void *none = NULL;
    if (of->has_last_error && async && of->malloc_async)
        (void)of->malloc_async(&none, too_much, stream);
    if (of->has_last_error && !async && of->malloc) (void)of->malloc(&none, too_much);
    return MEMORY_ALLOCATION;
}

/* A device that is lost fails all calls of the library with its error, which is then the last one
 * too. After another failure the last error is the library's OOM: it has no call that fails with
 * UNKNOWN. */
static cuda_error device_failed(const functions *of) {
    const size_t too_much = (size_t)1 << 62;
    void *none = NULL;
    cuda_error error = of->malloc ? of->malloc(&none, too_much) : SUCCESS;
    return error == SUCCESS || error == MEMORY_ALLOCATION ? UNKNOWN : error;
}

static cuda_error invalid_value(const functions *of) {
    if (of->has_last_error && of->malloc) (void)of->malloc(NULL, 1);
    return INVALID_VALUE;
}

/* Of a free: the library doesn't know the block, and must not be asked to free it. */
static cuda_error error_of(const functions *of, kn_status status) {
    if (status >= 0) return SUCCESS;
    if (status == KN_ERR_OOM) return out_of_memory(of, false, NULL);
    return status == KN_ERR_INVALID ? invalid_value(of) : device_failed(of);
}

/* --- memory for all streams --- */

static cuda_error library_alloc(const functions *of, void **out, size_t bytes) {
    return of->malloc ? of->malloc(out, bytes) : INITIALIZATION;
}

static kn_status pool_alloc(void **out, kn_pool *pool, size_t bytes, kn_stream stream) {
    void *block = NULL;
    KN_TRY(kn_alloc(&block, pool, bytes, stream));
    kn_status status = kn_stream_sync(kn_pool_device(pool), stream);
    if (status < 0) {
        (void)kn_free(pool, block);
        return status;
    }
    *out = block;
    return KN_OK;
}

static cuda_error alloc(const functions *of, void **out, size_t bytes) {
    int device;
    kn_pool *pool = out ? pool_now(of, &device) : NULL;
    if (!pool) return library_alloc(of, out, bytes);
    kn_status status = pool_alloc(out, pool, bytes, streams[device]);
    if (status == KN_ERR_OOM) return out_of_memory(of, false, NULL);
    return status < 0 ? library_alloc(of, out, bytes) : SUCCESS; /* its error, of a lost device */
}

/* Of the current device by the program's own interface, whose errors it knows. */
static cuda_error wait_for_device(const functions *of, const kn_pool *pool, int device) {
    void *impl = NULL;
    if (device == device_now(of)) return of->synchronize();
    const kn_device_driver *its = kn_device_driver_get(kn_pool_device(pool), &impl);
    return error_of(of, its->device_sync(impl));
}

/* After the wait no stream uses the block: whoever gets it may use it anywhere. */
static cuda_error give_back(const functions *of, void *ptr) {
    int device;
    kn_block_info block;
    kn_pool *pool = ptr ? pool_of(&block, &device, ptr) : NULL;
    if (!pool) return of->free ? of->free(ptr) : INITIALIZATION;
    cuda_error error = wait_for_device(of, pool, device);
    return error == SUCCESS ? error_of(of, kn_free(pool, ptr)) : error;
}

/* --- memory in the order of a stream --- */

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
    }
    if (status == KN_ERR_OOM) return out_of_memory(of, true, stream);
    if (status < 0) return library_alloc_async(of, out, bytes, stream);
    *out = block;
    return SUCCESS;
}

/* The program has ordered the stream after the one that the block was taken on, not the reverse.
 * The pool knows no streams of other devices. */
static cuda_error end_use(const functions *of, kn_pool *pool, void *ptr, kn_stream stream) {
    kn_status status = kn_block_use(pool, ptr, stream);
    if (status != KN_ERR_INVALID || !of->synchronize_stream) return error_of(of, status);
    return of->synchronize_stream(stream);
}

/* Equal handles name one stream if it is the default one: others are reused for another stream, and
 * cudaStreamPerThread is another one in each thread. */
static bool is_same_stream(kn_stream a, kn_stream b) { return !a && !b; }

static cuda_error give_back_async(const functions *of, void *ptr, kn_stream stream) {
    int device;
    kn_block_info block;
    kn_pool *pool = ptr ? pool_of(&block, &device, ptr) : NULL;
    if (!pool || is_captured(of, stream)) {
        return of->free_async ? of->free_async(ptr, stream) : INITIALIZATION;
    }
    bool same = is_same_stream(stream, block.stream);
    cuda_error error = same ? SUCCESS : end_use(of, pool, ptr, stream);
    return error == SUCCESS ? error_of(of, kn_free(pool, ptr)) : error;
}

/* --- streams --- */

/* In all pools: one that doesn't know the stream ignores it. */
static void retire(kn_stream stream) {
    if ((uintptr_t)stream <= STREAM_PER_THREAD) return; /* the library refuses default streams */
    for (int i = 0; i < DEVICES_MAX; i++) {
        kn_pool *pool = atomic_load_explicit(&pools[i], memory_order_acquire);
        if (pool) kn_stream_retire(kn_pool_device(pool), stream);
    }
}

static cuda_error destroy(cuda_error (*in_library)(kn_stream), kn_stream stream) {
    retire(stream);
    return in_library ? in_library(stream) : INITIALIZATION;
}

/* --- resets --- */

/* The pool's stream and events end with the context. Free memory returns to the device before; that
 * of live blocks belongs to no context, and stays. */
static void drop_pool(int device) {
    if (device < 0 || device >= DEVICES_MAX) return;
    pthread_mutex_lock(&open_lock);
    kn_pool *pool = atomic_exchange(&pools[device], NULL);
    if (pool) was_reset[device] = true; /* a reset at the program's start ends nothing */
    pthread_mutex_unlock(&open_lock);
    kn_status status = pool ? kn_pool_sync(pool) : KN_ERR_DEVICE;
    if (status >= 0) status = kn_pool_trim(pool, 0);
    (void)status; /* on a lost device nothing can be returned */
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

cuda_error cudaStreamDestroy(kn_stream stream) {
    return destroy(next(&runtime)->destroy_stream, stream);
}

cuda_error cuStreamDestroy_v2(kn_stream stream) {
    return destroy(next(&driver)->destroy_stream, stream);
}

cuda_error cuStreamDestroy(kn_stream stream) {
    return destroy(next(&driver)->destroy_stream_v1, stream);
}

cuda_error cudaDeviceReset(void) {
    const functions *of = next(&runtime);
    drop_pool(device_now(of));
    return of->reset_current ? of->reset_current() : INITIALIZATION;
}

cuda_error cuDevicePrimaryCtxReset_v2(int device) {
    const functions *of = next(&driver);
    drop_pool(device);
    return of->reset_device ? of->reset_device(device) : INITIALIZATION;
}

/* Of programs that are compiled for a default stream per thread. */
static kn_stream of_thread(kn_stream stream) {
    return stream ? stream : (kn_stream)(uintptr_t)STREAM_PER_THREAD;
}

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
