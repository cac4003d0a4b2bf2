/* A libcudart, and a libcuda, of a few functions over malloc, which count their calls. */
#include "fake_cudart.h"

#include <stdlib.h>
#include <string.h>

fake_cudart_state fake_cudart;

static int fail(int error) { return fake_cudart.last_error = error; }

int cudaGetDevice(int *out) {
    *out = fake_cudart.device;
    return 0;
}

int cudaSetDevice(int device) {
    fake_cudart.device = device;
    return 0;
}

int cudaDeviceSynchronize(void) {
    fake_cudart.n_syncs++;
    return fake_cudart.sync_error ? fail(fake_cudart.sync_error) : 0;
}

int cudaDeviceReset(void) {
    fake_cudart.n_resets++;
    return 0;
}

int cudaStreamIsCapturing(void *stream, int *out) {
    *out = stream && stream == fake_cudart.captured;
    return 0;
}

int cudaStreamSynchronize(void *stream) {
    (void)stream;
    fake_cudart.n_stream_syncs++;
    return fake_cudart.sync_error ? fail(fake_cudart.sync_error) : 0;
}

int cudaStreamGetDevice(void *stream, int *out) {
    *out = stream == fake_cudart.on_1 ? 1 : fake_cudart.device;
    return fake_cudart.no_stream_device ? 1 : 0;
}

static int destroy(void *stream) {
    fake_cudart.n_stream_destroys++;
    return fake_cudart.destroy_stream ? fake_cudart.destroy_stream(stream) : 0;
}

int cudaStreamDestroy(void *stream) { return destroy(stream); }

int cudaGetLastError(void) {
    int error = fake_cudart.last_error;
    fake_cudart.last_error = 0;
    return error;
}

static int take_block(void **out, size_t bytes) {
    if (fake_cudart.lost_error) return fail(fake_cudart.lost_error);
    if (bytes >> 60) return fail(2);
    return !out || !(*out = malloc(bytes)) ? fail(1) : 0;
}

int cudaMalloc(void **out, size_t bytes) {
    fake_cudart.n_mallocs++;
    return take_block(out, bytes);
}

int cudaFree(void *ptr) {
    fake_cudart.n_frees++;
    if (ptr && ptr == fake_cudart.unknown) return 1;
    free(ptr);
    return 0;
}

int cudaMallocAsync(void **out, size_t bytes, void *stream) {
    (void)stream;
    fake_cudart.n_mallocs_async++;
    return take_block(out, bytes);
}

int cudaFreeAsync(void *ptr, void *stream) {
    fake_cudart.n_frees_async++;
    if (ptr && ptr == fake_cudart.unknown) return 1;
    if (!stream || stream != fake_cudart.captured) free(ptr);
    return 0;
}

int cudaMallocAsync_ptsz(void **out, size_t bytes, void *stream) {
    return cudaMallocAsync(out, bytes, stream);
}

int cudaFreeAsync_ptsz(void *ptr, void *stream) { return cudaFreeAsync(ptr, stream); }

int cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return (*out = malloc(bytes)) ? 0 : 2;
}

/* --- the driver's interface --- */

int cuCtxGetDevice(int *out) { return cudaGetDevice(out); }
int cuCtxSynchronize(void) { return cudaDeviceSynchronize(); }
int cuDevicePrimaryCtxReset_v2(int device) {
    fake_cudart.n_resets += device >= 0;
    return 0;
}

int cuStreamIsCapturing(void *stream, int *out) { return cudaStreamIsCapturing(stream, out); }
int cuStreamSynchronize(void *stream) { return cudaStreamSynchronize(stream); }
int cuStreamGetDevice(void *stream, int *out) { return cudaStreamGetDevice(stream, out); }
int cuStreamDestroy(void *stream) { return destroy(stream); }
int cuStreamDestroy_v2(void *stream) { return destroy(stream); }

/* Calls of the functions that programs call would not stay in here. */
static int take(uint64_t *out, size_t bytes) {
    fake_cudart.n_driver_mallocs++;
    if (fake_cudart.lost_error) return fake_cudart.lost_error;
    void *block = malloc(bytes);
    if (!out || !block) return 1;
    *out = (uint64_t)(uintptr_t)block;
    return 0;
}

static int give_back(uint64_t ptr) {
    fake_cudart.n_driver_frees++;
    free((void *)(uintptr_t)ptr);
    return 0;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes) { return take(out, bytes); }
int cuMemFree_v2(uint64_t ptr) { return give_back(ptr); }

int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) {
    (void)stream;
    return take(out, bytes);
}

int cuMemFreeAsync(uint64_t ptr, void *stream) {
    (void)stream;
    return give_back(ptr);
}

int cuMemAllocAsync_ptsz(uint64_t *out, size_t bytes, void *stream) {
    return cuMemAllocAsync(out, bytes, stream);
}

int cuMemFreeAsync_ptsz(uint64_t ptr, void *stream) { return cuMemFreeAsync(ptr, stream); }
