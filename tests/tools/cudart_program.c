/* A program of CUDA's runtime that knows nothing of Knet. usage: cudart_program
 * plain|pools|limit|lost|streams|reset|fork|no_driver plain: not under `knet run --alloc`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "fake_cudart.h"

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);

#define MiB ((size_t)1 << 20)
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            exit(9);                                                                               \
        }                                                                                          \
    } while (0)

static void blocks_come_from_the_pool(void) {
    void *a = NULL, *b = NULL, *first = NULL;
    CHECK(cudaMalloc(&a, 3 * MiB) == 0 && a && cudaMalloc(&b, 1000) == 0 && b && a != b);
    CHECK(fake_cudart.n_mallocs == 0 && fake_cuda_count().n_handles > 0);
    first = a;
    CHECK(cudaFree(a) == 0 && fake_cudart.n_frees == 0 && fake_cudart.n_syncs == 1);
    uint64_t calls = fake_cuda_calls("cuMemCreate");
    for (int i = 0; i < 100; i++) {
        CHECK(cudaMalloc(&a, 3 * MiB) == 0 && a == first);
        CHECK(cudaFree(a) == 0);
    }
    CHECK(fake_cuda_calls("cuMemCreate") == calls && fake_cudart.n_syncs == 101);
    CHECK(cudaFree(b) == 0 && cudaFree(NULL) == 0 && fake_cudart.n_frees == 1);
}

static void errors_are_the_runtimes(void) {
    void *a = &fake_cudart, *kept = a, *b = NULL;
    CHECK(cudaMalloc(&a, 900 * MiB * MiB) == 2 && a == kept);
    CHECK(cudaGetLastError() == 2 && fake_cudart.n_mallocs == 1);
    CHECK(cudaMallocAsync(&a, 900 * MiB * MiB, NULL) == 2 && a == kept);
    CHECK(cudaGetLastError() == 2 && cudaGetLastError() == 0 && fake_cudart.n_mallocs_async == 1);
    CHECK(cudaMalloc(NULL, 8) == 1 && fake_cudart.n_mallocs == 2 && cudaGetLastError() == 1);
    fake_cudart.n_mallocs_async = 0;
    CHECK(cudaMalloc(&b, 0) == 0 && !b);
    CHECK(cudaMallocManaged(&b, 100, 1) == 0 && cudaFree(b) == 0 && fake_cudart.n_frees == 2);
    CHECK(cudaMalloc(&b, 4 * MiB) == 0);
    fake_cudart.sync_error = 700;
    CHECK(cudaFree(b) == 700);
    fake_cudart.sync_error = 0;
    CHECK(cudaFree(b) == 0);
}

/* The runtime refuses an address inside a block. */
static void addresses_inside_blocks_are_refused(void) {
    char *a = NULL;
    void *out = NULL;
    int n_frees = fake_cudart.n_frees, n_async = fake_cudart.n_frees_async;
    CHECK(cudaMalloc(&out, 3 * MiB) == 0);
    a = out;
    fake_cudart.unknown = a + 512;
    CHECK(cudaFree(a + 512) == 1 && fake_cudart.n_frees == n_frees + 1);
    CHECK(cudaFreeAsync(a + 512, NULL) == 1 && fake_cudart.n_frees_async == n_async + 1);
    fake_cudart.unknown = NULL;
    CHECK(cudaFree(a) == 0);
    fake_cudart.n_frees = n_frees;
    fake_cudart.n_frees_async = n_async;
}

static cu_stream stream_make(void) { return fake_cuda_stream(fake_cuda_primary_context(0), false); }

/* A block that another stream frees waits for it; one of the same stream comes back at once. */
static void streams_keep_their_order(void) {
    cu_stream s = stream_make(), other = stream_make();
    void *a = NULL, *b = NULL, *c = NULL;
    int syncs = fake_cudart.n_syncs;
    CHECK(cudaMallocAsync(&a, 8 * MiB, s) == 0 && cudaFreeAsync(a, s) == 0);
    CHECK(cudaMallocAsync(&b, 8 * MiB, s) == 0 && b == a);
    fake_cuda_hold(other);
    CHECK(cudaFreeAsync(b, other) == 0 && cudaMallocAsync(&c, 8 * MiB, s) == 0 && c != b);
    fake_cuda_release(other);
    CHECK(cudaFreeAsync(c, s) == 0);
    CHECK(fake_cudart.n_mallocs_async == 0 && fake_cudart.n_frees_async == 0);
    CHECK(cudaMallocAsync_ptsz(&a, 100, NULL) == 0 && cudaFreeAsync_ptsz(a, NULL) == 0);
    CHECK(fake_cudart.n_syncs == syncs);
    CHECK(cudaMallocAsync(&a, MiB, s) == 0 && cudaFree(a) == 0 && fake_cudart.n_syncs == syncs + 1);
}

/* The memory is for every stream at once. Of two streams that are held, the default one gives
 * another block, with no wait; the fake's host can't wait for them. */
static void memory_for_all_streams_is_not_in_use(void) {
    void *a = NULL, *b = NULL;
    CHECK(cudaMallocAsync(&a, 6 * MiB, NULL) == 0);
    fake_cuda_hold(NULL);
    fake_cuda_fill(NULL, a, 0xaa, 6 * MiB);
    CHECK(cudaFreeAsync(a, NULL) == 0 && cudaMalloc(&b, 6 * MiB) == 0);
    fake_cuda_fill(stream_make(), b, 0x55, 6 * MiB);
    fake_cuda_release(NULL);
    CHECK(*(unsigned char *)b == 0x55 && cudaFree(b) == 0 && !*fake_cuda_violation());
}

/* Within the limit all memory is that of a stream that works with it: a request waits for it. Here
 * it would wait for ever, which is an error. */
static int with_limit(void) {
    cu_stream s = stream_make();
    void *a = NULL, *b = NULL;
    CHECK(cudaMallocAsync(&a, 12 * MiB, s) == 0);
    fake_cuda_hold(s);
    fake_cuda_fill(s, a, 0xaa, 12 * MiB);
    CHECK(cudaFreeAsync(a, s) == 0);
    fake_cudart.lost_error = 999; /* of the runtime's own call, which follows */
    CHECK(cudaMalloc(&b, 12 * MiB) == 999 && !b && cudaGetLastError() == 999);
    fake_cudart.lost_error = 0;
    CHECK(strcmp(fake_cuda_violation(), "cuStreamSynchronize would never return") == 0);
    fake_cuda_release(s);
    CHECK(cudaMalloc(&b, 12 * MiB) == 0);
    fake_cuda_fill(stream_make(), b, 0x55, 12 * MiB);
    CHECK(*(unsigned char *)b == 0x55 && cudaFree(b) == 0);
    return 0;
}

/* The runtime's own call says why, and the last error is the same. */
static int with_lost_device(void) {
    static const char *const functions[] = {"cuMemCreate", "cuStreamSynchronize"};
    void *a = NULL, *kept = &a, *b = kept;
    uint64_t c = 7;
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaFree(a) == 0);
    for (int i = 0; i < 2; i++) {
        int error = i ? 719 : 700;
        fake_cuda_fail(functions[i], 1, -1, (cu_result)error);
        fake_cudart.lost_error = error;
        CHECK(cudaMalloc(&b, 100 * MiB) == error && b == kept && cudaGetLastError() == error);
        CHECK(cuMemAlloc_v2(&c, 100 * MiB) == error && c == 7);
        if (i == 1) break; /* the others wait for nothing */
        CHECK(cudaMallocAsync(&b, 100 * MiB, NULL) == error && b == kept);
        CHECK(cudaGetLastError() == error);
        CHECK(cuMemAllocAsync(&c, 100 * MiB, NULL) == error && c == 7);
    }
    fake_cudart.lost_error = 0; /* the block is the library's */
    int n_frees = fake_cudart.n_frees;
    CHECK(cudaMalloc(&b, 100) == 0 && cudaFree(b) == 0 && fake_cudart.n_frees == n_frees + 1);
    fake_cuda_reset();
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaFree(a) == 0 && fake_cudart.n_frees == n_frees + 1);
    return 0;
}

static int fake_destroy(void *stream) {
    int (*destroy_stream)(cu_stream) = NULL;
    void *address = NULL;
    CHECK(cuGetProcAddress("cuStreamDestroy", &address, 12000, 1) == 0);
    memcpy(&destroy_stream, &address, sizeof address);
    fake_cuda_context_push(fake_cuda_primary_context(0));
    int error = destroy_stream(stream);
    fake_cuda_context_pop();
    return error;
}

/* Every way to give the memory of a stream that is gone to others. */
static void destroyed_streams_are_not_asked_about(int (*destroy)(void *)) {
    enum { BLOCKS = 40 };
    void *a[2] = {NULL}, *blocks[BLOCKS] = {NULL};
    int n = fake_cudart.n_stream_destroys;
    for (int i = 0; i < 2; i++) {
        cu_stream s = stream_make(), other = stream_make();
        for (int k = 0; k < 2; k++) CHECK(cudaMallocAsync(&a[k], i ? 8 * MiB : 1000, s) == 0);
        CHECK(cudaFreeAsync(a[0], s) == 0);
        CHECK(destroy(s) == 0 && fake_cudart.n_stream_destroys == ++n);
        CHECK((i ? cudaFreeAsync(a[1], other) : cudaFree(a[1])) == 0);
        for (int k = 0; k < BLOCKS; k++) (void)cudaMalloc(&blocks[k], 40 * MiB);
        for (int k = 0; k < BLOCKS; k++) {
            CHECK(cudaFree(blocks[k]) == 0);
            blocks[k] = NULL;
        }
        if (*fake_cuda_violation()) fprintf(stderr, "violation: %s\n", fake_cuda_violation());
        CHECK(!*fake_cuda_violation());
    }
}

static void *allocate_on_own_stream(void *out) {
    CHECK(cudaMallocAsync_ptsz(out, 8 * MiB, NULL) == 0);
    return NULL;
}

/* One handle, a stream for each thread: the block is in use on that of the thread that frees it. */
static void equal_handles_are_not_one_stream(void) {
    cu_stream own = (cu_stream)(uintptr_t)2;
    void *a = NULL, *b = NULL, *c = NULL;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate_on_own_stream, &a) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    fake_cuda_context_push(fake_cuda_primary_context(0)); /* whose stream the handle names */
    fake_cuda_hold(own);
    fake_cuda_fill(own, a, 0xaa, 8 * MiB);
    CHECK(cudaFreeAsync_ptsz(a, NULL) == 0);
    CHECK(cudaMallocAsync(&b, 8 * MiB, stream_make()) == 0 && b != a);
    fake_cuda_release(own);
    CHECK(cudaMallocAsync_ptsz(&c, 8 * MiB, NULL) == 0);
    CHECK(cudaFreeAsync_ptsz(c, NULL) == 0 && cudaFree(b) == 0 && !*fake_cuda_violation());
    fake_cuda_context_pop();
}

static int with_streams(void) {
    void *a = NULL;
    CHECK(cudaMalloc(&a, 100) == 0);
    equal_handles_are_not_one_stream();
    fake_cudart.destroy_stream = fake_destroy;
    destroyed_streams_are_not_asked_about(cudaStreamDestroy);
    destroyed_streams_are_not_asked_about(cuStreamDestroy_v2);
    destroyed_streams_are_not_asked_about(cuStreamDestroy);
    fake_cudart.destroy_stream = NULL;
    CHECK(cudaStreamDestroy(NULL) == 0); /* the runtime's to refuse */
    return 0;
}

/* The runtime then serves the device, and the pools the others until they are reset. */
static int with_reset(void) {
    CHECK(cudaDeviceReset() == 0); /* a first one drops no pool */
    for (int device = 0; device < 2; device++) {
        void *a = NULL, *b = NULL;
        CHECK(cudaSetDevice(device) == 0 && cudaMalloc(&a, 8 * MiB) == 0 && cudaFree(a) == 0);
        CHECK(fake_cudart.n_mallocs == device * 2 && fake_cuda_count().n_mapped > 0);
        CHECK((device ? cuDevicePrimaryCtxReset_v2(device) : cudaDeviceReset()) == 0);
        CHECK(fake_cudart.n_resets == device + 2 && fake_cuda_count().n_mapped == 0);
        uint64_t n_calls = fake_cuda_count().n_calls;
        CHECK(cudaMalloc(&a, 8 * MiB) == 0 && cudaMallocAsync(&b, 100, NULL) == 0);
        CHECK(cudaFree(a) == 0 && cudaFreeAsync(b, NULL) == 0 && cudaMalloc(&a, 0) == 0);
        CHECK(fake_cudart.n_mallocs == device * 2 + 2 && fake_cudart.n_mallocs_async == device + 1);
        CHECK(fake_cuda_count().n_calls == n_calls);
    }
    return 0;
}

/* The driver can't be used there, and the runtime says so. */
static int with_fork(void) {
    cu_stream s = stream_make();
    void *a = NULL, *b = NULL, *c = NULL;
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaMallocAsync(&b, MiB, s) == 0);
    pid_t child = fork();
    if (!child) {
        fake_cudart.lost_error = 3;
        CHECK(cudaMalloc(&c, MiB) == 3 && cudaGetLastError() == 3);
        CHECK(cudaMallocAsync(&c, MiB, s) == 3 && cudaGetLastError() == 3);
        fake_cudart.sync_error = 3;
        CHECK(cudaFree(a) == 3 && cudaGetLastError() == 3);
        CHECK(cudaFreeAsync(b, s) == 0);
        CHECK(cudaStreamDestroy(s) == 0 && !*fake_cuda_violation());
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

static void captures_are_the_runtimes(void) {
    cu_stream s = stream_make();
    void *a = NULL, *b = NULL;
    CHECK(cudaMallocAsync(&b, MiB, s) == 0);
    fake_cudart.captured = s;
    CHECK(cudaMallocAsync(&a, MiB, s) == 0 && fake_cudart.n_mallocs_async == 1);
    CHECK(cudaFreeAsync(a, s) == 0 && fake_cudart.n_frees_async == 1);
    CHECK(cudaFreeAsync(b, s) == 0 && fake_cudart.n_frees_async == 2); /* a node of the graph */
    fake_cudart.captured = NULL;
    CHECK(cudaFreeAsync(b, s) == 0 && fake_cudart.n_frees_async == 2);
}

/* Blocks of one interface may be freed by the other. */
static void the_drivers_interface_has_the_pools_too(void) {
    cu_stream s = stream_make();
    uint64_t a = 0, b = 0, c = 7;
    int syncs = fake_cudart.n_syncs;
    CHECK(cuMemAlloc_v2(&a, 3 * MiB) == 0 && a && cuMemFree_v2(a) == 0);
    CHECK(fake_cudart.n_syncs == syncs + 1);
    CHECK(cuMemAllocAsync(&a, 8 * MiB, s) == 0 && cuMemFreeAsync(a, s) == 0);
    CHECK(cuMemAllocAsync(&b, 8 * MiB, s) == 0 && b == a);
    CHECK(cudaFreeAsync((void *)(uintptr_t)b, s) == 0);
    CHECK(cuMemAllocAsync_ptsz(&a, 100, NULL) == 0 && cuMemFreeAsync_ptsz(a, NULL) == 0);
    CHECK(fake_cudart.n_syncs == syncs + 1 && !fake_cudart.n_driver_mallocs);
    CHECK(cuMemAlloc_v2(&c, 0) == 1 && cuMemAllocAsync(&c, 0, s) == 1 && c == 7);
    CHECK(cuMemAlloc_v2(&c, 900 * MiB * MiB) == 2 && c == 7);
    CHECK(cuMemFree_v2(0) == 0 && fake_cudart.n_driver_frees == 1);
    fake_cudart.captured = s;
    CHECK(cuMemAllocAsync(&a, MiB, s) == 0 && fake_cudart.n_driver_mallocs == 1);
    CHECK(a && cuMemFreeAsync(a, s) == 0 && fake_cudart.n_driver_frees == 2);
    fake_cudart.captured = NULL;
}

static void devices_have_pools_of_their_own(void) {
    void *a = NULL, *b = NULL;
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaSetDevice(1) == 0);
    CHECK(cudaMalloc(&b, MiB) == 0 && cudaFree(a) == 0);
    CHECK(cudaSetDevice(0) == 0 && cudaFree(b) == 0);
}

/* Memory is that of the stream's device, and a free waits where the pool can't order it. */
static void streams_may_be_of_a_device_that_is_not_current(void) {
    cu_stream s = fake_cuda_stream(fake_cuda_primary_context(1), false);
    int n_async = fake_cudart.n_mallocs_async, n_frees = fake_cudart.n_frees_async;
    void *a = NULL, *b = NULL;
    uint64_t c = 0;
    fake_cudart.on_1 = s;
    CHECK(cudaMallocAsync(&a, 5 * MiB, s) == 0 && a && cudaFreeAsync(a, s) == 0);
    CHECK(cudaSetDevice(1) == 0 && cudaMallocAsync(&b, 5 * MiB, s) == 0 && b == a);
    CHECK(cudaSetDevice(0) == 0 && cudaFreeAsync(b, s) == 0);
    CHECK(cuMemAllocAsync(&c, 5 * MiB, s) == 0 && c == (uintptr_t)a);
    CHECK(cuMemFreeAsync(c, s) == 0 && fake_cudart.n_stream_syncs == 0);
    CHECK(fake_cudart.n_mallocs_async == n_async && fake_cudart.n_frees_async == n_frees);
    CHECK(cudaMallocAsync(&a, 5 * MiB, stream_make()) == 0 && cudaFreeAsync(a, s) == 0);
    CHECK(fake_cudart.n_stream_syncs == 1 && cudaMalloc(&a, MiB) == 0);
    fake_cudart.sync_error = 700;
    CHECK(cudaFreeAsync(a, s) == 700);
    fake_cudart.sync_error = 0;
    CHECK(cudaFreeAsync(a, s) == 0 && fake_cudart.n_stream_syncs == 3);
    fake_cudart.no_stream_device = true; /* before CUDA 12.8 the runtime serves them */
    s = fake_cuda_stream(fake_cuda_primary_context(1), false);
    CHECK(cudaMallocAsync(&b, MiB, s) == 0 && fake_cudart.n_mallocs_async == n_async + 1);
    CHECK(cudaFreeAsync(b, s) == 0 && fake_cudart.n_frees_async == n_frees + 1);
    fake_cudart.no_stream_device = false;
}

/* Not for the current one, whose own wait the fake counts. */
static void a_free_waits_for_the_blocks_device(void) {
    int syncs = fake_cudart.n_syncs;
    void *a = NULL;
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaSetDevice(1) == 0);
    fake_cuda_fail("cuCtxSynchronize", 1, 1, 719);
    CHECK(cudaFree(a) == 999 && fake_cudart.n_syncs == syncs && cudaGetLastError() == 2);
    fake_cuda_fail("cuCtxSynchronize", 1, 1, 719);
    fake_cudart.lost_error = 719;
    CHECK(cudaFree(a) == 719 && fake_cudart.n_syncs == syncs && cudaGetLastError() == 719);
    fake_cudart.lost_error = 0;
    fake_cuda_reset();
    CHECK(cudaFree(a) == 0 && fake_cudart.n_syncs == syncs);
    CHECK(fake_cuda_calls("cuCtxSynchronize") == 1);
    CHECK(cudaSetDevice(0) == 0 && cudaMalloc(&a, MiB) == 0 && cudaFree(a) == 0);
    CHECK(fake_cudart.n_syncs == syncs + 1);
}

static int with_runtime(void) {
    void *a = NULL, *b = NULL;
    CHECK(cudaMalloc(&a, MiB) == 0 && cudaMallocAsync(&b, MiB, NULL) == 0);
    CHECK(cudaFree(a) == 0 && cudaFreeAsync(b, NULL) == 0);
    CHECK(fake_cudart.n_mallocs == 1 && fake_cudart.n_frees == 1 && !fake_cudart.n_syncs);
    CHECK(fake_cudart.n_mallocs_async == 1 && fake_cudart.n_frees_async == 1);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "pools") != 0) {
        if (strcmp(argv[1], "limit") == 0) return with_limit();
        if (strcmp(argv[1], "lost") == 0) return with_lost_device();
        if (strcmp(argv[1], "streams") == 0) return with_streams();
        if (strcmp(argv[1], "reset") == 0) return with_reset();
        if (strcmp(argv[1], "fork") == 0) return with_fork();
        if (strcmp(argv[1], "no_driver") == 0) fake_cuda_machine_get()->n_devices = 0;
        return with_runtime();
    }
    blocks_come_from_the_pool();
    errors_are_the_runtimes();
    addresses_inside_blocks_are_refused();
    streams_keep_their_order();
    memory_for_all_streams_is_not_in_use();
    captures_are_the_runtimes();
    the_drivers_interface_has_the_pools_too();
    devices_have_pools_of_their_own();
    streams_may_be_of_a_device_that_is_not_current();
    a_free_waits_for_the_blocks_device();
    return 0;
}
