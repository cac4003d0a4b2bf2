/* What the driver's calls cost on this machine, and its copy bandwidth: the figures that the pool's
 * defaults rest on. One JSON line a figure; medians. Baselines: for work beside a busy stream the
 * same call on an idle device, for mapped memory cuMemAlloc of the same size, for our table the
 * bare driver call, for the pool the driver's own stream-ordered allocator; for the calls that the
 * pool's policy rests on, a kn_alloc and kn_free of 64 bytes on a created stream. */
#include "bench.h"
#include "device/cuda_api.h"

#include <knet/device_driver.h>
#include <knet/pool.h>

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { REPEATS = 15, LOOP = 2000, FILLS = 20 };

static const kn__cuda_api *cu;
static kn_device *gpu;
static const kn_device_driver *driver;
static void *impl;
static kn_stream busy_stream, stream;
static void *scratch;
static double hot_ns; /* of a kn_alloc and kn_free that a thread serves from its own cache */
static const size_t scratch_bytes = 512 << 20;

static void need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_gpu_costs: %s: %s\n", what, kn_last_error()->message);
    exit(1);
}

static void cu_need(cu_result result, const char *what) {
    need(kn__cuda_check(result, what, 0, 0, __FILE__, __LINE__) == KN_OK, what);
}
#define CU(name, ...) cu_need(cu->name(__VA_ARGS__), #name)

typedef struct samples {
    double us[REPEATS];
    int n;
} samples;

/* Runs the statement and keeps its time. */
#define TIME(set, statement)                                                                       \
    do {                                                                                           \
        uint64_t start_ = bench_now_ns();                                                          \
        statement;                                                                                 \
        (set)->us[(set)->n++] = (double)(bench_now_ns() - start_) / 1e3;                           \
    } while (0)

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(samples *s) {
    qsort(s->us, (size_t)s->n, sizeof *s->us, by_value);
    return s->us[s->n / 2];
}

static void make_busy(void) {
    for (int i = 0; i < FILLS; i++) {
        need(kn_device_fill(gpu, scratch, i, scratch_bytes, busy_stream) == KN_OK, "fill");
    }
}

static void settle(void) { need(kn_stream_sync(gpu, busy_stream) == KN_OK, "sync"); }

static double emit_us(const char *call, size_t mib, bool busy, samples *s, double baseline) {
    char metric[96];
    double us = median_us(s);
    snprintf(metric, sizeof metric, "%s_%zuMiB%s_us", call, mib, busy ? "_busy" : "");
    bench_emit("gpu_driver", metric, us, "us", baseline);
    return us;
}

/* --- memory ------------------------------------------------------------------------------- */

typedef struct segment_costs {
    double alloc_us, free_us;
} segment_costs;

static segment_costs measure_segment(size_t mib, bool busy, segment_costs idle) {
    samples allocs = {.n = 0}, frees = {.n = 0};
    for (int i = 0; i < REPEATS; i++) {
        cu_ptr ptr = 0;
        if (busy) make_busy();
        TIME(&allocs, CU(cuMemAlloc, &ptr, mib * MIB));
        TIME(&frees, CU(cuMemFree, ptr));
        settle();
    }
    return (segment_costs){emit_us("cuMemAlloc", mib, busy, &allocs, idle.alloc_us),
                           emit_us("cuMemFree", mib, busy, &frees, idle.free_us)};
}

typedef struct handle_costs {
    double create_us, map_us, access_us, unmap_us, release_us;
} handle_costs;

static handle_costs measure_handle(size_t mib, bool busy, handle_costs idle) {
    samples creates = {.n = 0}, maps = {.n = 0}, accesses = {.n = 0}, unmaps = {.n = 0},
            releases = {.n = 0};
    cu_mem_prop prop = {.type = KN__CU_MEM_TYPE_PINNED,
                        .location = {.type = KN__CU_MEM_LOCATION_DEVICE}};
    cu_mem_access access = {.location = prop.location, .flags = KN__CU_MEM_ACCESS_READWRITE};
    size_t size_bytes = mib * MIB;
    cu_ptr range = 0;
    CU(cuMemAddressReserve, &range, size_bytes, 0, 0, 0);
    for (int i = 0; i < REPEATS; i++) {
        cu_handle handle = 0;
        if (busy) make_busy();
        TIME(&creates, CU(cuMemCreate, &handle, size_bytes, &prop, 0));
        TIME(&maps, CU(cuMemMap, range, size_bytes, 0, handle, 0));
        TIME(&accesses, CU(cuMemSetAccess, range, size_bytes, &access, 1));
        TIME(&unmaps, CU(cuMemUnmap, range, size_bytes));
        TIME(&releases, CU(cuMemRelease, handle));
        settle();
    }
    CU(cuMemAddressFree, range, size_bytes);
    return (handle_costs){emit_us("cuMemCreate", mib, busy, &creates, idle.create_us),
                          emit_us("cuMemMap", mib, busy, &maps, idle.map_us),
                          emit_us("cuMemSetAccess", mib, busy, &accesses, idle.access_us),
                          emit_us("cuMemUnmap", mib, busy, &unmaps, idle.unmap_us),
                          emit_us("cuMemRelease", mib, busy, &releases, idle.release_us)};
}

static void measure_memory(void) {
    static const size_t sizes_mib[] = {2, 20, 64, 1024};
    const double none = (double)NAN;
    for (size_t i = 0; i < sizeof sizes_mib / sizeof *sizes_mib; i++) {
        size_t mib = sizes_mib[i];
        char metric[64];
        segment_costs plain = measure_segment(mib, false, (segment_costs){none, none});
        measure_segment(mib, true, plain);
        handle_costs mapped =
            measure_handle(mib, false, (handle_costs){none, none, none, none, none});
        measure_handle(mib, true, mapped);
        snprintf(metric, sizeof metric, "grow_by_handle_%zuMiB_us", mib);
        double grow_us = mapped.create_us + mapped.map_us + mapped.access_us;
        bench_emit("gpu_driver", metric, grow_us, "us", plain.alloc_us);
        snprintf(metric, sizeof metric, "grow_by_handle_%zuMiB_ns", mib);
        bench_emit("gpu_driver", metric, grow_us * 1e3, "ns", hot_ns);
    }
}

/* --- what the pool calls often ------------------------------------------------------------- */

/* ns a call, by a loop of them. */
#define LOOP_NS(metric, baseline, statement)                                                       \
    do {                                                                                           \
        const double base_ = (baseline); /* may be the last result */                              \
        samples s_ = {.n = 0};                                                                     \
        for (int r_ = 0; r_ < REPEATS; r_++) {                                                     \
            TIME(                                                                                  \
                &s_, for (int i_ = 0; i_ < LOOP; i_++) { statement; });                            \
            need(kn_stream_sync(gpu, stream) == KN_OK, "sync");                                    \
        }                                                                                          \
        last_ns = median_us(&s_) * 1e3 / LOOP;                                                     \
        bench_emit("gpu_driver", (metric), last_ns, "ns", base_);                                  \
    } while (0)

/* One thread's own cache. On the default stream the driver is asked for no id; `stream` costs one.
 */
static void measure_hot_pair(void) {
    double last_ns = 0;
    void *block = NULL;
    kn_pool *pool = kn_device_pool(gpu);
    need(pool != NULL, "kn_device_pool");
    LOOP_NS("hot_pair_default_stream_ns", (double)NAN,
            need(kn_alloc(&block, pool, 64, NULL) == KN_OK, "kn_alloc");
            kn_free(pool, block));
    LOOP_NS("hot_pair_ns", last_ns, need(kn_alloc(&block, pool, 64, stream) == KN_OK, "kn_alloc");
            kn_free(pool, block));
    hot_ns = last_ns;
}

static void measure_calls(void) {
    double last_ns = 0;
    const double none = (double)NAN;
    cu_event event = NULL, unready = NULL;
    cu_context context = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    unsigned long long id = 0;
    unsigned int status = 0, mode = KN__CU_CAPTURE_MODE_RELAXED;
    bool done = false;
    kn_stream made = NULL;
    CU(cuCtxGetCurrent, &context);
    CU(cuEventCreate, &event, KN__CU_EVENT_DISABLE_TIMING);
    CU(cuEventCreate, &unready, KN__CU_EVENT_DISABLE_TIMING);
    LOOP_NS("cuMemGetInfo_ns", hot_ns, CU(cuMemGetInfo, &free_bytes, &total_bytes));
    LOOP_NS("cuCtxGetCurrent_ns", none, CU(cuCtxGetCurrent, &context));
    LOOP_NS("cuCtxPushPop_ns", none, CU(cuCtxPushCurrent, context); CU(cuCtxPopCurrent, &context));
    LOOP_NS("cuThreadExchangeStreamCaptureMode_ns", none,
            CU(cuThreadExchangeStreamCaptureMode, &mode));
    LOOP_NS("cuStreamGetId_ns", hot_ns, CU(cuStreamGetId, stream, &id));
    LOOP_NS("cuStreamIsCapturing_ns", hot_ns, CU(cuStreamIsCapturing, stream, &status));
    LOOP_NS("cuEventRecord_ns", hot_ns, CU(cuEventRecord, event, stream));
    LOOP_NS("table_event_record_ns", last_ns, (void)driver->event_record(impl, event, stream));
    LOOP_NS("cuEventQuery_ns", hot_ns, CU(cuEventQuery, event));
    LOOP_NS("table_event_query_ns", last_ns, (void)driver->event_query(impl, event, &done));
    LOOP_NS("cuStreamWaitEvent_ns", none, CU(cuStreamWaitEvent, stream, event, 0));
    LOOP_NS("table_event_wait_ns", last_ns, (void)driver->event_wait(impl, event, stream));
    make_busy();
    CU(cuEventRecord, unready, busy_stream);
    samples pending = {.n = 0};
    for (int i = 0; i < REPEATS; i++) TIME(&pending, (void)cu->cuEventQuery(unready));
    settle();
    bench_emit("gpu_driver", "cuEventQuery_pending_ns", median_us(&pending) * 1e3, "ns", hot_ns);
    LOOP_NS("event_create_destroy_ns", none, CU(cuEventCreate, &unready, 2);
            CU(cuEventDestroy, unready));
    samples creates = {.n = 0};
    for (int i = 0; i < REPEATS; i++) {
        TIME(&creates, CU(cuStreamCreate, &made, KN__CU_STREAM_NON_BLOCKING);
             CU(cuStreamDestroy, made));
    }
    bench_emit("gpu_driver", "stream_create_destroy_us", median_us(&creates), "us", none);
    CU(cuEventDestroy, event);
}

/* --- the same from many threads ------------------------------------------------------------ */

static pthread_barrier_t start_line;

static void *record_and_query(void *out_us) {
    kn_stream own = NULL;
    void *event = NULL;
    bool done = false;
    need(driver->stream_create(impl, &own) == KN_OK, "stream_create");
    need(driver->event_create(impl, &event) == KN_OK, "event_create");
    pthread_barrier_wait(&start_line);
    uint64_t start = bench_now_ns();
    for (int i = 0; i < LOOP; i++) {
        need(driver->event_record(impl, event, own) == KN_OK, "event_record");
        need(driver->event_query(impl, event, &done) == KN_OK, "event_query");
    }
    *(double *)out_us = (double)(bench_now_ns() - start) / 1e3;
    need(driver->stream_sync(impl, own) == KN_OK, "stream_sync");
    driver->event_destroy(impl, event);
    driver->stream_destroy(impl, own);
    return NULL;
}

static double record_query_ns(int n_threads) {
    pthread_t threads[16];
    double us[16], slowest = 0;
    pthread_barrier_init(&start_line, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        need(pthread_create(&threads[i], NULL, record_and_query, &us[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        if (us[i] > slowest) slowest = us[i];
    }
    pthread_barrier_destroy(&start_line);
    return slowest * 1e3 / LOOP;
}

static void measure_threads(void) {
    record_query_ns(1);
    double one = record_query_ns(1);
    bench_emit("gpu_driver", "record_query_1_thread_ns", one, "ns", (double)NAN);
    bench_emit("gpu_driver", "record_query_16_threads_ns", record_query_ns(16), "ns", one);
}

static atomic_bool spinning;

static void *spin(void *unused) {
    while (atomic_load_explicit(&spinning, memory_order_relaxed)) {
    }
    return unused;
}

/* What the pool pays to call the threads' caches back: alone, and with threads to interrupt. */
static void measure_membarrier(void) {
    enum { THREADS = 8 };
    double last_ns = 0;
    pthread_t threads[THREADS];
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) return;
    LOOP_NS("membarrier_ns", hot_ns,
            (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    atomic_store(&spinning, true);
    for (int i = 0; i < THREADS; i++) {
        need(pthread_create(&threads[i], NULL, spin, NULL) == 0, "pthread_create");
    }
    LOOP_NS("membarrier_8_threads_ns", hot_ns,
            (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    atomic_store(&spinning, false);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* --- beside the driver's own allocator; host memory; ceiling -------------------------------- */

static bool find(const char *name, void *out_fn) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(out_fn, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void measure_pool(size_t size_bytes) {
    cu_result (*alloc_async)(cu_ptr *, size_t, cu_stream) = NULL;
    cu_result (*free_async)(cu_ptr, cu_stream) = NULL;
    kn_pool *pool = kn_device_pool(gpu);
    double last_ns = (double)NAN;
    char metric[64];
    need(pool != NULL, "kn_device_pool");
    if (find("cuMemAllocAsync", &alloc_async) && find("cuMemFreeAsync", &free_async)) {
        cu_ptr ptr = 0;
        snprintf(metric, sizeof metric, "cuMemAllocAsync_pair_%zu_ns", size_bytes);
        LOOP_NS(metric, (double)NAN, cu_need(alloc_async(&ptr, size_bytes, stream), "allocAsync");
                cu_need(free_async(ptr, stream), "freeAsync"));
    }
    void *block = NULL;
    snprintf(metric, sizeof metric, "pool_pair_%zu_ns", size_bytes);
    LOOP_NS(metric, last_ns, need(kn_alloc(&block, pool, size_bytes, stream) == KN_OK, "kn_alloc");
            kn_free(pool, block));
}

static void measure_host_memory(void) {
    cu_result (*host_alloc)(void **, size_t, unsigned int) = NULL;
    cu_result (*host_free)(void *) = NULL;
    cu_result (*host_register)(void *, size_t, unsigned int) = NULL;
    cu_result (*host_unregister)(void *) = NULL;
    if (!find("cuMemHostAlloc", &host_alloc) || !find("cuMemFreeHost", &host_free) ||
        !find("cuMemHostRegister_v2", &host_register) ||
        !find("cuMemHostUnregister", &host_unregister)) {
        return;
    }
    samples allocs = {.n = 0}, registers = {.n = 0};
    void *own = aligned_alloc(4096, 64 * MIB), *ptr = NULL;
    need(own != NULL, "aligned_alloc");
    memset(own, 1, 64 * MIB);
    for (int i = 0; i < REPEATS; i++) {
        TIME(&allocs, cu_need(host_alloc(&ptr, 64 * MIB, 0), "cuMemHostAlloc"));
        cu_need(host_free(ptr), "cuMemFreeHost");
        TIME(&registers, cu_need(host_register(own, 64 * MIB, 0), "cuMemHostRegister"));
        cu_need(host_unregister(own), "cuMemHostUnregister");
    }
    free(own);
    double alloc_us = emit_us("cuMemHostAlloc", 64, false, &allocs, (double)NAN);
    emit_us("cuMemHostRegister", 64, false, &registers, alloc_us);
}

static void measure_copy_ceiling(void) {
    const size_t half = scratch_bytes / 2;
    samples s = {.n = 0};
    for (int r = 0; r < REPEATS; r++) {
        TIME(
            &s, for (int i = 0; i < 50; i++) {
                need(kn_device_copy(gpu, (char *)scratch + half, gpu, scratch, half, stream) ==
                         KN_OK,
                     "copy");
            } need(kn_stream_sync(gpu, stream) == KN_OK, "sync"));
    }
    double bytes = 50.0 * 2 * (double)half; /* read and written */
    bench_emit("gpu_ceiling", "device_copy_GBps", bytes / (median_us(&s) * 1e3), "GB/s",
               (double)NAN);
}

int main(int argc, char **argv) {
    int n_devices = 0;
    bench_init(argc, argv);
    if (kn_device_find(&gpu, "cuda:0") < 0 || kn__cuda_load(&cu, &n_devices) < 0) {
        fprintf(stderr, "bench_gpu_costs: skipped: %s\n", kn_last_error()->message);
        return 77;
    }
    driver = kn_device_driver_get(gpu, &impl);
    cu_context context = NULL;
    cu_device device = 0;
    CU(cuDeviceGet, &device, 0);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxPushCurrent, context);
    need(kn_stream_create(&busy_stream, gpu) == KN_OK, "stream");
    need(kn_stream_create(&stream, gpu) == KN_OK, "stream");
    need(driver->segment_alloc(impl, &scratch, scratch_bytes) == KN_OK, "scratch");
    measure_copy_ceiling();
    measure_hot_pair();
    measure_calls();
    measure_threads();
    measure_membarrier();
    measure_pool(1000);
    measure_pool(20 * MIB);
    measure_memory();
    measure_host_memory();
    driver->segment_free(impl, scratch, scratch_bytes);
    kn_stream_destroy(gpu, busy_stream);
    kn_stream_destroy(gpu, stream);
    return 0;
}
