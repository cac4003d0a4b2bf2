/* A fake GPU: the fake driver (../alloc/fake_cuda.h), and above it as much of the CUDA runtime,
 * cublasLt and cuDNN as the module of CUDA kernels calls. The module itself is the real one.
 *
 * Kernels, products and convolutions do nothing: they are counted. Whatever they should have
 * written keeps its old bytes, so only what depends on no result can be tested: which work is
 * enqueued, with which parameters, and what follows from errors. Fills and copies are done, and
 * products of f32 where a test asks for it.
 * Work enqueued on a captured stream makes a graph, and each launch of it does that work.
 *
 * Link a program with fake_gpu. The loader then takes these functions for the module's, for they
 * come before those of the real libraries.
 */
#ifndef KNET_FAKE_GPU_H
#define KNET_FAKE_GPU_H

#include <stdbool.h>

#include "fake_cuda.h"

/* Work that was enqueued since the reset. */
typedef struct fake_gpu_counts {
    int n_kernels;      /* of the module */
    int device;         /* whose context was current at the last launch of a kernel */
    int n_products;     /* cublasLtMatmul */
    int n_convolutions; /* cudnnBackendExecute */
    int n_fills;        /* cudaMemsetAsync, cuMemsetD8Async */
    int n_copies;       /* cuMemcpy…Async, all directions */
    int n_graphs;       /* cudaGraphLaunch; calls inside a graph are not counted above */
} fake_gpu_counts;
FAKE_API fake_gpu_counts fake_gpu_count(void);
/* All of them but copies, which travel beside the work. */
FAKE_API int fake_gpu_launches(void);
/* Kernels whose name contains `part`, those of launched graphs too. */
FAKE_API int fake_gpu_kernels(const char *part);
/* Number of calls of one function of the runtime, cublasLt or cuDNN. */
FAKE_API int fake_gpu_calls(const char *function);
/* Clears counts and scripts, the driver's too. */
FAKE_API void fake_gpu_reset(void);

/* The runtime's last error of this thread, as a call of the program leaves it. */
FAKE_API void fake_gpu_last_error(int error);
/* Makes the n-th call (1, 2, …) of `function` and every later one, n_times in all, return `error`,
 * a code of its library. Only for functions that return a status. */
FAKE_API void fake_gpu_fail(const char *function, int nth, int n_times, int error);

/* The last product: its compute type, epilogue and the type of its first matrix
 * (cublasComputeType_t, cublasLtEpilogue_t, cudaDataType_t). */
FAKE_API int fake_gpu_compute_type(void);
FAKE_API int fake_gpu_epilogue(void);
FAKE_API int fake_gpu_matrix_type(void);
/* From now on, until the next reset: products of f32 are computed, as their descriptions say. */
FAKE_API void fake_gpu_compute_products(void);
/* Whether cuDNN says that biases of recurrent networks lie elsewhere than they do. */
FAKE_API void fake_gpu_misplace(bool on);
/* Graphs that exist. */
FAKE_API int fake_gpu_graphs(void);
/* cuDNN's descriptors that exist. */
FAKE_API int fake_gpu_descriptors(void);

#endif
