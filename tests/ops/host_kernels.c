/* libknet_ops_cuda.so for tests without a GPU: its kernels are the host's, which can read and write
 * the memory of the fake driver. Unlike those of fake_gpu, they compute. They run when they are
 * called, whatever their stream does. */
#include <stdio.h>

#include "kernel.h"

static kn_kernel_fn kernels[KN_OP_COUNT];

static void versions(char *out, size_t out_bytes) { snprintf(out, out_bytes, "of the host"); }

static kn_status rnn_reserve(size_t *out, const kn_op_call *call) {
    (void)out;
    (void)call;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "the host's kernels have no reserve");
}

static bool chains(void) { return false; }
static void chains_wait(void) {}

static const kn__cuda_exports module = {.abi = KN_CUDA_MODULE_ABI,
                                        .kernels = kernels,
                                        .versions = versions,
                                        .rnn_reserve = rnn_reserve,
                                        .chains = chains,
                                        .chains_wait = chains_wait};

__attribute__((visibility("default"))) const kn__cuda_exports *kn_cuda_module_get(void);
const kn__cuda_exports *kn_cuda_module_get(void) {
    for (int op = 0; op < KN_OP_COUNT; op++) kernels[op] = kn_op_table[op].host;
    return &module;
}
