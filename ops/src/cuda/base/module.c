/* The module's table, and the code before and after every kernel. */
#include <pthread.h>
#include <stdio.h>

#include "cuda/base/module.h"

static const kn_kernel_fn inner[KN_OP_COUNT] = {
#include "cuda/base/kernels.def"
};

static kn_status run_in_context(kn_op_call *call) {
    bool pushed = false;
    KN_TRY(kn__gpu_enter(&pushed, call->device));
    (void)cudaGetLastError(); /* of the program's calls: a launch would find it */
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

KN_API const kn__cuda_exports *kn_cuda_module_get(void);

const kn__cuda_exports *kn_cuda_module_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const kn__cuda_exports module = {KN_CUDA_MODULE_ABI,    kernels,
                                            write_versions,        kn__cuda_rnn_reserve,
                                            kn__cuda_chains,       kn__cuda_chain,
                                            kn__cuda_chains_wait,  kn__cuda_graph_make,
                                            kn__cuda_graph_launch, kn__cuda_graph_destroy};
    pthread_once(&once, fill_table);
    return &module;
}
