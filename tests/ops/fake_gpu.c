#include "fake_gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 1024, FUNCTIONS_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    fake_gpu_counts counts;
    struct {
        const void *host_function;
        const char *name; /* mangled */
        int n;
    } kernels[NAMES_MAX];
    int n_kernels;
    struct {
        const char *name;
        int n;
    } calls[FUNCTIONS_MAX];
    const char *fail_function;
    int fail_in, fail_times, fail_error;
    int compute_type, epilogue, n_descriptors;
} fake_gpu;

/* What every call begins with: counts it, and tells whether it is to fail. */
static int begin(const char *name) {
    int error = 0;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (fake_gpu.calls[i].name && strcmp(fake_gpu.calls[i].name, name) != 0) i++;
    fake_gpu.calls[i].name = name;
    fake_gpu.calls[i].n++;
    bool meant = fake_gpu.fail_times && strcmp(fake_gpu.fail_function, name) == 0;
    if (meant && --fake_gpu.fail_in <= 0) {
        fake_gpu.fail_in = 1;
        fake_gpu.fail_times--;
        error = fake_gpu.fail_error;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

#define BEGIN_OF(type)                                                                             \
    do {                                                                                           \
        int error_ = begin(__func__);                                                              \
        if (error_) return (type)error_;                                                           \
    } while (0)

static void count(int *counter) {
    pthread_mutex_lock(&lock);
    ++*counter;
    pthread_mutex_unlock(&lock);
}

/* --- the runtime ------------------------------------------------------------------------------ */

FAKE_API void **__cudaRegisterFatBinary(void *binary);
void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    handle = binary;
    return &handle;
}

FAKE_API void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
FAKE_API void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

FAKE_API void __cudaRegisterFunction(void **handle, const char *host_function,
                                     char *device_function, const char *name, int thread_limit,
                                     uint3 *thread_id, uint3 *block_id, dim3 *block, dim3 *grid,
                                     int *warp_size);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread_id, uint3 *block_id,
                            dim3 *block, dim3 *grid, int *warp_size) {
    (void)handle, (void)device_function, (void)thread_limit, (void)thread_id, (void)block_id;
    (void)block, (void)grid, (void)warp_size;
    if (fake_gpu.n_kernels == NAMES_MAX) abort(); /* NAMES_MAX is for the module to fit */
    fake_gpu.kernels[fake_gpu.n_kernels].host_function = host_function;
    fake_gpu.kernels[fake_gpu.n_kernels++].name = name;
}

static _Thread_local struct {
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
} configuration;

FAKE_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                              void *stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream) {
    configuration.grid = grid, configuration.block = block;
    configuration.shared_bytes = shared_bytes, configuration.stream = stream;
    return 0;
}

FAKE_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                                void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                       void *stream) {
    *grid = configuration.grid, *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    *(void **)stream = configuration.stream;
    return cudaSuccess;
}

FAKE_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host_function);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host_function) {
    *out = (cudaKernel_t)(uintptr_t)host_function;
    return cudaSuccess;
}

static _Thread_local cudaError_t last_error;

static cudaError_t launch(const void *host_function) {
    last_error = (cudaError_t)begin("cudaLaunchKernel");
    if (last_error) return last_error;
    count(&fake_gpu.counts.n_kernels);
    for (int i = 0; i < fake_gpu.n_kernels; i++) {
        if (fake_gpu.kernels[i].host_function == host_function) count(&fake_gpu.kernels[i].n);
    }
    return cudaSuccess;
}

FAKE_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                        size_t shared_bytes, cudaStream_t stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared_bytes, cudaStream_t stream) {
    (void)grid, (void)block, (void)args, (void)shared_bytes, (void)stream;
    return launch((const void *)kernel);
}

/* What nvcc before 13 calls. */
FAKE_API cudaError_t cudaLaunchKernel(const void *host_function, dim3 grid, dim3 block, void **args,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernel(const void *host_function, dim3 grid, dim3 block, void **args,
                             size_t shared_bytes, cudaStream_t stream) {
    (void)grid, (void)block, (void)args, (void)shared_bytes, (void)stream;
    return launch(host_function);
}

FAKE_API cudaError_t cudaGetLastError(void);
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

FAKE_API cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream) {
    (void)p, (void)byte, (void)n, (void)stream;
    BEGIN_OF(cudaError_t);
    count(&fake_gpu.counts.n_fills);
    return cudaSuccess;
}

FAKE_API cu_result cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
FAKE_API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out,
                                                      unsigned version, unsigned long long flags,
                                                      enum cudaDriverEntryPointQueryResult *result);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)flags;
    BEGIN_OF(cudaError_t);
    cu_result found = cuGetProcAddress(name, out, (int)version, KN__CU_GET_PROC_LEGACY_STREAM);
    *result = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return found ? cudaErrorSymbolNotFound : cudaSuccess;
}

/* --- cublasLt: descriptions are the real library's, which need no GPU ------------------------- */

FAKE_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *out);
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    static char handle;
    BEGIN_OF(cublasStatus_t);
    *out = (cublasLtHandle_t)(void *)&handle;
    return CUBLAS_STATUS_SUCCESS;
}

static void note_product(cublasLtMatmulDesc_t product) {
    cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    size_t n = 0;
    cublasLtMatmulDescGetAttribute(product, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute_type,
                                   sizeof compute_type, &n);
    cublasLtMatmulDescGetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof epilogue, &n);
    fake_gpu.compute_type = compute_type, fake_gpu.epilogue = epilogue;
}

FAKE_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lt, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int n_wanted, cublasLtMatmulHeuristicResult_t *out,
    int *n);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lt, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *n) {
    (void)lt, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)n_wanted;
    BEGIN_OF(cublasStatus_t);
    memset(out, 0, sizeof *out);
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t product,
                                       const void *alpha, const void *a, cublasLtMatrixLayout_t a_d,
                                       const void *b, cublasLtMatrixLayout_t b_d, const void *beta,
                                       const void *c, cublasLtMatrixLayout_t c_d, void *d,
                                       cublasLtMatrixLayout_t d_d, const cublasLtMatmulAlgo_t *algo,
                                       void *workspace, size_t workspace_bytes,
                                       cudaStream_t stream);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_d, const void *b,
                              cublasLtMatrixLayout_t b_d, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_d, void *d, cublasLtMatrixLayout_t d_d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    (void)lt, (void)alpha, (void)a, (void)a_d, (void)b, (void)b_d, (void)beta, (void)c, (void)c_d;
    (void)d, (void)d_d, (void)algo, (void)workspace, (void)workspace_bytes, (void)stream;
    note_product(product);
    BEGIN_OF(cublasStatus_t);
    count(&fake_gpu.counts.n_products);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- cuDNN: descriptors without attributes; the first configuration is one that fits -----------
 */

FAKE_API cudnnStatus_t cudnnCreate(cudnnHandle_t *out);
cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    static char handle;
    BEGIN_OF(cudnnStatus_t);
    *out = (cudnnHandle_t)(void *)&handle;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)handle, (void)stream;
    BEGIN_OF(cudnnStatus_t);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                    cudnnBackendDescriptor_t *out);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out) {
    (void)type;
    BEGIN_OF(cudnnStatus_t);
    *out = malloc(1);
    if (!*out) return CUDNN_STATUS_ALLOC_FAILED;
    count(&fake_gpu.n_descriptors);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    BEGIN_OF(cudnnStatus_t);
    free(d);
    pthread_mutex_lock(&lock);
    fake_gpu.n_descriptors--;
    pthread_mutex_unlock(&lock);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                                cudnnBackendAttributeName_t name,
                                                cudnnBackendAttributeType_t type, int64_t n,
                                                const void *values);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values) {
    (void)d, (void)name, (void)type, (void)n, (void)values;
    BEGIN_OF(cudnnStatus_t);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d,
                                                cudnnBackendAttributeName_t name,
                                                cudnnBackendAttributeType_t type, int64_t n_wanted,
                                                int64_t *n, void *values);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n_wanted,
                                       int64_t *n, void *values) {
    (void)d, (void)n_wanted;
    BEGIN_OF(cudnnStatus_t);
    bool notes =
        name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE;
    *n = notes ? 0 : 1;
    if (type == CUDNN_TYPE_INT64) *(int64_t *)values = 0;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    (void)d;
    BEGIN_OF(cudnnStatus_t);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                           cudnnBackendDescriptor_t pack);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    (void)handle, (void)plan, (void)pack;
    BEGIN_OF(cudnnStatus_t);
    count(&fake_gpu.counts.n_convolutions);
    return CUDNN_STATUS_SUCCESS;
}

/* --- what tests see ----------------------------------------------------------------------------
 */

fake_gpu_counts fake_gpu_count(void) {
    pthread_mutex_lock(&lock);
    fake_gpu_counts counts = fake_gpu.counts;
    pthread_mutex_unlock(&lock);
    counts.n_fills += (int)fake_cuda_calls("cuMemsetD8Async");
    counts.n_copies =
        (int)(fake_cuda_calls("cuMemcpyHtoDAsync") + fake_cuda_calls("cuMemcpyDtoHAsync") +
              fake_cuda_calls("cuMemcpyDtoDAsync"));
    return counts;
}

int fake_gpu_launches(void) {
    fake_gpu_counts n = fake_gpu_count();
    return n.n_kernels + n.n_products + n.n_convolutions + n.n_fills;
}

int fake_gpu_kernels(const char *part) {
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < fake_gpu.n_kernels; i++) {
        if (strstr(fake_gpu.kernels[i].name, part)) n += fake_gpu.kernels[i].n;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

int fake_gpu_calls(const char *function) {
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FUNCTIONS_MAX && fake_gpu.calls[i].name; i++) {
        if (strcmp(fake_gpu.calls[i].name, function) == 0) n = fake_gpu.calls[i].n;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void fake_gpu_reset(void) {
    pthread_mutex_lock(&lock);
    memset(&fake_gpu.counts, 0, sizeof fake_gpu.counts);
    memset(fake_gpu.calls, 0, sizeof fake_gpu.calls);
    for (int i = 0; i < fake_gpu.n_kernels; i++) fake_gpu.kernels[i].n = 0;
    fake_gpu.fail_times = 0;
    pthread_mutex_unlock(&lock);
    fake_cuda_reset();
}

void fake_gpu_fail(const char *function, int nth, int n_times, int error) {
    pthread_mutex_lock(&lock);
    fake_gpu.fail_function = function;
    fake_gpu.fail_in = nth;
    fake_gpu.fail_times = n_times;
    fake_gpu.fail_error = error;
    pthread_mutex_unlock(&lock);
}

int fake_gpu_compute_type(void) { return fake_gpu.compute_type; }
int fake_gpu_epilogue(void) { return fake_gpu.epilogue; }
int fake_gpu_descriptors(void) { return fake_gpu.n_descriptors; }
