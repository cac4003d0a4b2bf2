#include "fake_gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_chains.h"
#include "fake_graph.h"

enum { NAMES_MAX = 8192, FUNCTIONS_MAX = 64 };

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
    int n_descriptors;
    fake_product product; /* the last one */
    int n_chains;
} fake_gpu;

static _Thread_local cudaError_t last_error; /* as the runtime's: until somebody asks for it */

/* What every call begins with: counts it, and tells whether it is to fail. */
int fake_gpu_begin(const char *name) {
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
    if (error && strncmp(name, "cuda", 4) == 0) last_error = (cudaError_t)error;
    return error;
}

#define BEGIN_OF(type)                                                                             \
    do {                                                                                           \
        int error_ = fake_gpu_begin(__func__);                                                     \
        if (error_) return (type)error_;                                                           \
    } while (0)

void fake_gpu_chain(void) {
    pthread_mutex_lock(&lock);
    fake_gpu.counts.n_kernels++;
    fake_gpu.n_chains++;
    pthread_mutex_unlock(&lock);
}

static void count(int *counter) {
    pthread_mutex_lock(&lock);
    ++*counter;
    pthread_mutex_unlock(&lock);
}

void fake_gpu_work(const void *stream, const fake_work *work) {
    cu_stream s = (cu_stream)(uintptr_t)stream;
    if (work->kind == FAKE_FILL)
        fake_cuda_fill(s, work->to, (unsigned char)work->byte, work->size_bytes);
    if (work->kind == FAKE_COPY) fake_cuda_copy(s, work->to, work->from, work->size_bytes);
    if (work->kind == FAKE_PRODUCT) fake_product_run(s, &work->product);
    if (work->kind == FAKE_KERNEL && work->kernel >= 0) count(&fake_gpu.kernels[work->kernel].n);
}

void fake_gpu_graph_launched(void) { count(&fake_gpu.counts.n_graphs); }

/* A launch of its own, unless the stream is being captured. */
static void enqueue(const void *stream, fake_work work, int *counter) {
    if (fake_graph_takes(stream, &work)) return;
    fake_gpu_work(stream, &work);
    if (counter) count(counter);
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

static cudaError_t launch(const void *host_function, const void *stream) {
    cudaError_t error = (cudaError_t)fake_gpu_begin("cudaLaunchKernel");
    if (error) return error;
    fake_gpu.counts.device = fake_cuda_device();
    int i = fake_gpu.n_kernels - 1;
    while (i >= 0 && fake_gpu.kernels[i].host_function != host_function) i--;
    enqueue(stream, (fake_work){.kind = FAKE_KERNEL, .kernel = i}, &fake_gpu.counts.n_kernels);
    return cudaSuccess;
}

FAKE_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                        size_t shared_bytes, cudaStream_t stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared_bytes, cudaStream_t stream) {
    (void)grid, (void)block, (void)args, (void)shared_bytes;
    return launch((const void *)kernel, stream);
}

/* What nvcc before 13 calls. */
FAKE_API cudaError_t cudaLaunchKernel(const void *host_function, dim3 grid, dim3 block, void **args,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernel(const void *host_function, dim3 grid, dim3 block, void **args,
                             size_t shared_bytes, cudaStream_t stream) {
    (void)grid, (void)block, (void)args, (void)shared_bytes;
    return launch(host_function, stream);
}

void fake_gpu_last_error(int error) { last_error = (cudaError_t)error; }

FAKE_API cudaError_t cudaGetLastError(void);
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

FAKE_API cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream) {
    BEGIN_OF(cudaError_t);
    enqueue(stream, (fake_work){.kind = FAKE_FILL, .to = p, .byte = byte, .size_bytes = n},
            &fake_gpu.counts.n_fills);
    return cudaSuccess;
}

FAKE_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                                     cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind;
    BEGIN_OF(cudaError_t);
    enqueue(stream, (fake_work){.kind = FAKE_COPY, .to = to, .from = from, .size_bytes = n}, NULL);
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
    cu_result found = KN__CU_SUCCESS;
    if (!fake_chains_find(name, out))
        found = cuGetProcAddress(name, out, (int)version, KN__CU_GET_PROC_LEGACY_STREAM);
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
    (void)lt, (void)c_d, (void)algo, (void)workspace, (void)workspace_bytes;
    fake_product p = {.a = a, .b = b, .c = c, .d = d};
    fake_product_describe(&p, product, (cublasLtMatrixLayout_t[]){a_d, b_d, d_d}, alpha, beta);
    pthread_mutex_lock(&lock);
    fake_gpu.product = p;
    pthread_mutex_unlock(&lock);
    BEGIN_OF(cublasStatus_t);
    enqueue(stream, (fake_work){.kind = FAKE_PRODUCT, .product = p}, &fake_gpu.counts.n_products);
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

static _Thread_local const void *cudnn_stream;

FAKE_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)handle;
    BEGIN_OF(cudnnStatus_t);
    cudnn_stream = stream;
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
    enqueue(cudnn_stream, (fake_work){.kind = FAKE_CONVOLUTION}, &fake_gpu.counts.n_convolutions);
    return CUDNN_STATUS_SUCCESS;
}

/* --- cuDNN's recurrent networks: descriptors are memory, parameters lie in cuDNN's order -------
 */

enum { FAKE_RNN_BYTES = 1000 }; /* of work space, and of kept states */

static struct {
    int mode, inputs, hidden, layers, directions, element_bytes;
    int n_wrong; /* parts whose reported place is wrong */
} fake_rnn;

void fake_gpu_misplace(bool on) { fake_rnn.n_wrong = on; }

#define FAKE_DESCRIPTOR(name, type)                                                                \
    FAKE_API cudnnStatus_t cudnnCreate##name(type *out);                                           \
    cudnnStatus_t cudnnCreate##name(type *out) {                                                   \
        BEGIN_OF(cudnnStatus_t);                                                                   \
        *out = malloc(1);                                                                          \
        if (!*out) return CUDNN_STATUS_ALLOC_FAILED;                                               \
        count(&fake_gpu.n_descriptors);                                                            \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    FAKE_API cudnnStatus_t cudnnDestroy##name(type d);                                             \
    cudnnStatus_t cudnnDestroy##name(type d) {                                                     \
        BEGIN_OF(cudnnStatus_t);                                                                   \
        free(d);                                                                                   \
        pthread_mutex_lock(&lock);                                                                 \
        fake_gpu.n_descriptors--;                                                                  \
        pthread_mutex_unlock(&lock);                                                               \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }
FAKE_DESCRIPTOR(RNNDescriptor, cudnnRNNDescriptor_t)
FAKE_DESCRIPTOR(RNNDataDescriptor, cudnnRNNDataDescriptor_t)
FAKE_DESCRIPTOR(TensorDescriptor, cudnnTensorDescriptor_t)
FAKE_DESCRIPTOR(DropoutDescriptor, cudnnDropoutDescriptor_t)

/* A function that does nothing: its name and its arguments with their types. */
#define FAKE_CUDNN(name, ...)                                                                      \
    FAKE_API cudnnStatus_t name(__VA_ARGS__);                                                      \
    cudnnStatus_t name(__VA_ARGS__) {                                                              \
        BEGIN_OF(cudnnStatus_t);                                                                   \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
FAKE_CUDNN(cudnnSetDropoutDescriptor, cudnnDropoutDescriptor_t d, cudnnHandle_t h, float p,
           void *states, size_t bytes, unsigned long long seed)
FAKE_CUDNN(cudnnSetRNNDataDescriptor, cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
           cudnnRNNDataLayout_t layout, int steps, int batch, int width, const int lengths[],
           void *fill)
FAKE_CUDNN(cudnnSetTensorNdDescriptor, cudnnTensorDescriptor_t d, cudnnDataType_t type, int n,
           const int dim[], const int stride[])
FAKE_CUDNN(cudnnRNNForward, cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
           const int32_t lengths[], cudnnRNNDataDescriptor_t x_d, const void *x,
           cudnnRNNDataDescriptor_t y_d, void *y, cudnnTensorDescriptor_t h_d, const void *hx,
           void *hy, cudnnTensorDescriptor_t c_d, const void *cx, void *cy, size_t weight_bytes,
           const void *weights, size_t work_bytes, void *work, size_t kept_bytes, void *kept)
FAKE_CUDNN(cudnnRNNBackwardData_v8, cudnnHandle_t h, cudnnRNNDescriptor_t d,
           const int32_t lengths[], cudnnRNNDataDescriptor_t y_d, const void *y, const void *dy,
           cudnnRNNDataDescriptor_t x_d, void *dx, cudnnTensorDescriptor_t h_d, const void *hx,
           const void *dhy, void *dhx, cudnnTensorDescriptor_t c_d, const void *cx, const void *dcy,
           void *dcx, size_t weight_bytes, const void *weights, size_t work_bytes, void *work,
           size_t kept_bytes, void *kept)
FAKE_CUDNN(cudnnRNNBackwardWeights_v8, cudnnHandle_t h, cudnnRNNDescriptor_t d,
           cudnnWgradMode_t mode, const int32_t lengths[], cudnnRNNDataDescriptor_t x_d,
           const void *x, cudnnTensorDescriptor_t h_d, const void *hx, cudnnRNNDataDescriptor_t y_d,
           const void *y, size_t weight_bytes, void *dw, size_t work_bytes, void *work,
           size_t kept_bytes, void *kept)
#pragma GCC diagnostic pop

FAKE_API cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t math, int32_t inputs, int32_t hidden,
    int32_t projection, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t inputs, int32_t hidden,
                                       int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    (void)d, (void)algo, (void)bias, (void)precision, (void)math, (void)projection, (void)dropout;
    (void)flags;
    BEGIN_OF(cudnnStatus_t);
    fake_rnn.mode = mode, fake_rnn.hidden = hidden, fake_rnn.layers = layers;
    fake_rnn.inputs = input == CUDNN_SKIP_INPUT ? 0 : inputs;
    fake_rnn.directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
    fake_rnn.element_bytes = type == CUDNN_DATA_DOUBLE ? 8 : 4;
    return CUDNN_STATUS_SUCCESS;
}

static size_t fake_gates(void) {
    return fake_rnn.mode == CUDNN_LSTM ? 4 : (fake_rnn.mode == CUDNN_GRU ? 3 : 1);
}

/* Elements of the weights of the pseudo layers before one. */
static size_t fake_weights(int pseudo_layer) {
    size_t n = 0, h = (size_t)fake_rnn.hidden, d = (size_t)fake_rnn.directions;
    for (int i = 0; i < pseudo_layer; i++) {
        size_t inputs = i < fake_rnn.directions ? (size_t)fake_rnn.inputs : d * h;
        n += fake_gates() * h * (inputs + h);
    }
    return n;
}

FAKE_API cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                                  size_t *bytes);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t d, size_t *bytes) {
    (void)h, (void)d;
    BEGIN_OF(cudnnStatus_t);
    int n = fake_rnn.layers * fake_rnn.directions;
    size_t biases = (size_t)n * 2 * fake_gates() * (size_t)fake_rnn.hidden;
    *bytes = (fake_weights(n) + biases) * (size_t)fake_rnn.element_bytes;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                               int32_t layer, size_t bytes, const void *weights,
                                               int32_t id, cudnnTensorDescriptor_t m_d, void **m,
                                               cudnnTensorDescriptor_t b_d, void **b);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t d, int32_t layer,
                                      size_t bytes, const void *weights, int32_t id,
                                      cudnnTensorDescriptor_t m_d, void **m,
                                      cudnnTensorDescriptor_t b_d, void **b) {
    (void)h, (void)d, (void)bytes, (void)m_d, (void)b_d;
    BEGIN_OF(cudnnStatus_t);
    size_t gates = fake_gates(), n = (size_t)fake_rnn.hidden, gate = (size_t)id;
    size_t inputs =
        layer < fake_rnn.directions ? (size_t)fake_rnn.inputs : (size_t)fake_rnn.directions * n;
    size_t at = fake_weights(layer) +
                n * (gate < gates ? gate * inputs : gates * inputs + (gate - gates) * n);
    size_t bias = fake_weights(fake_rnn.layers * fake_rnn.directions) +
                  ((size_t)layer * 2 * gates + gate) * n + (size_t)fake_rnn.n_wrong;
    *m = (char *)(uintptr_t)weights + at * (size_t)fake_rnn.element_bytes;
    *b = (char *)(uintptr_t)weights + bias * (size_t)fake_rnn.element_bytes;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_API cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                                 cudnnForwardMode_t mode,
                                                 cudnnRNNDataDescriptor_t x, size_t *work,
                                                 size_t *kept);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t d,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *kept) {
    (void)h, (void)d, (void)x;
    BEGIN_OF(cudnnStatus_t);
    *work = FAKE_RNN_BYTES;
    *kept = mode == CUDNN_FWD_MODE_TRAINING ? FAKE_RNN_BYTES : 0;
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
    return n.n_kernels + n.n_products + n.n_convolutions + n.n_fills + n.n_graphs;
}

int fake_gpu_kernels(const char *part) {
    pthread_mutex_lock(&lock);
    int n = strstr("knet_chain", part) ? fake_gpu.n_chains : 0;
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
    fake_gpu.fail_times = fake_gpu.n_chains = 0;
    pthread_mutex_unlock(&lock);
    fake_products_compute(false);
    fake_cuda_reset();
}

void fake_gpu_compute_products(void) { fake_products_compute(true); }

void fake_gpu_fail(const char *function, int nth, int n_times, int error) {
    pthread_mutex_lock(&lock);
    fake_gpu.fail_function = function;
    fake_gpu.fail_in = nth;
    fake_gpu.fail_times = n_times;
    fake_gpu.fail_error = error;
    pthread_mutex_unlock(&lock);
}

int fake_gpu_compute_type(void) { return fake_gpu.product.compute_type; }
int fake_gpu_matrix_type(void) { return fake_gpu.product.matrix_type; }
int fake_gpu_epilogue(void) { return fake_gpu.product.epilogue; }
int fake_gpu_descriptors(void) { return fake_gpu.n_descriptors; }
