/* A libcudart, and a libcuda, of a few functions over malloc, which count their calls. */
#ifndef KNET_FAKE_CUDART_H
#define KNET_FAKE_CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

typedef struct fake_cudart_state {
    int device, sync_error;
    int lost_error; /* allocations fail with it, as after a fault of the device */
    int (*destroy_stream)(void *stream); /* NULL: nothing is destroyed */
    void *captured;                      /* this stream is */
    void *unknown;                       /* an address that is no block's */
    void *on_1;                          /* a stream of device 1 */
    bool no_stream_device;
    int last_error;
    int n_mallocs, n_frees, n_mallocs_async, n_frees_async, n_syncs, n_stream_syncs;
    int n_driver_mallocs, n_driver_frees, n_stream_destroys, n_resets;
} fake_cudart_state;
extern fake_cudart_state fake_cudart;

int cudaGetDevice(int *out);
int cudaSetDevice(int device);
int cudaDeviceSynchronize(void);
int cudaStreamIsCapturing(void *stream, int *out);
int cudaStreamSynchronize(void *stream);
int cudaStreamGetDevice(void *stream, int *out);
int cudaStreamDestroy(void *stream);
int cudaDeviceReset(void);
int cudaGetLastError(void);
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *ptr);
int cudaMallocAsync(void **out, size_t bytes, void *stream);
int cudaFreeAsync(void *ptr, void *stream);
int cudaMallocAsync_ptsz(void **out, size_t bytes, void *stream);
int cudaFreeAsync_ptsz(void *ptr, void *stream);
int cudaMallocManaged(void **out, size_t bytes, unsigned flags);

int cuCtxGetDevice(int *out);
int cuCtxSynchronize(void);
int cuDevicePrimaryCtxReset_v2(int device);
int cuStreamIsCapturing(void *stream, int *out);
int cuStreamSynchronize(void *stream);
int cuStreamGetDevice(void *stream, int *out);
int cuStreamDestroy(void *stream);
int cuStreamDestroy_v2(void *stream);
int cuMemAlloc_v2(uint64_t *out, size_t bytes);
int cuMemFree_v2(uint64_t ptr);
int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream);
int cuMemFreeAsync(uint64_t ptr, void *stream);
int cuMemAllocAsync_ptsz(uint64_t *out, size_t bytes, void *stream);
int cuMemFreeAsync_ptsz(uint64_t ptr, void *stream);

#pragma GCC visibility pop
#endif
