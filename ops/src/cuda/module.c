/* The module's table, and what goes round every kernel. */
#include <pthread.h>
#include <stdio.h>

#include "module.h"

#define kn__cuda_NONE NULL

static const kn_kernel_fn inner[KN_OP_COUNT] = {
#define ROW(name)                                                                                  \
    [KN_OP_##name] = kn__cuda_row, [KN_OP_##name##_back] = kn__cuda_row_back,                      \
    [KN_OP_##name##_back2] = kn__cuda_row_back2,
#define KN_ROW1(name, ...) ROW(name)
#define KN_ROW2(name, ...) ROW(name)
#define KN_ROW3(name, ...) ROW(name)
#define KN_COMPARE(name, ...) [KN_OP_##name] = kn__cuda_row,
#define KN_OP(name, in, out, attr, infer, kernel, rule, needs, flags)                              \
    [KN_OP_##name] = kn__cuda_##kernel,
#include <knet/ops.def>
};

static kn_status run_in_context(kn_op_call *call) {
    bool pushed = false;
    KN_TRY(kn__gpu_enter(&pushed, call->device));
    kn_status status = inner[call->op](call);
    kn__gpu_leave(pushed);
    return status;
}

static kn_kernel_fn kernels[KN_OP_COUNT];

static void fill_table(void) {
    for (int op = 0; op < KN_OP_COUNT; op++) kernels[op] = inner[op] ? run_in_context : NULL;
}

static void write_versions(char *out, size_t out_bytes) {
    int runtime = 0;
    size_t lt = KN_PROF_CALL("cublasLtGetVersion", cublasLtGetVersion());
    size_t dnn = KN_PROF_CALL("cudnnGetVersion", cudnnGetVersion());
    (void)KN_PROF_FN(cudaRuntimeGetVersion, &runtime);
    snprintf(out, out_bytes, "CUDA runtime %d.%d, cuBLASLt %zu.%zu.%zu, cuDNN %zu.%zu.%zu",
             runtime / 1000, runtime % 1000 / 10, lt / 10000, lt / 100 % 100, lt % 100, dnn / 10000,
             dnn / 100 % 100, dnn % 100);
}

KN_API const kn_cuda_module *kn_cuda_module_get(void);

const kn_cuda_module *kn_cuda_module_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const kn_cuda_module module = {KN_CUDA_MODULE_ABI, kernels, write_versions};
    pthread_once(&once, fill_table);
    return &module;
}
