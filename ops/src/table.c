/* The op table: names, the host's kernels, and which device has what. */
#include <string.h>

#include "checked.h"
#include "kernel.h"
#include "run.h"

const char *kn_op_name(kn_op op) {
    static const char *const names[KN_OP_COUNT] = {
#define KN_UNARY(name, formula, saves, gradient) #name, #name "_back",
#define KN_BINARY(name, formula) #name,
#define KN_COMPARE(name, formula) #name,
#define KN_KERNEL(name, host, cuda) #name,
#include <knet/ops.def>
    };
    KN_ASSERT((int)op >= 0 && op < KN_OP_COUNT);
    return names[op];
}

typedef kn_status kernel_type(const kn_kernel_call *call);
kernel_type kn__host_unary, kn__host_unary_back, kn__host_binary, kn__host_compare;
/* Several ops may share a kernel; declaring it again does no harm. NONE is never defined: NULL. */
__attribute__((weak, visibility("hidden"))) kernel_type kn__host_NONE;
#define KN_KERNEL(name, host, cuda) kernel_type kn__host_##host;
#include <knet/ops.def>

const kn_kernel_fn kn__host_kernels[KN_OP_COUNT] = {
#define KN_UNARY(name, formula, saves, gradient) kn__host_unary, kn__host_unary_back,
#define KN_BINARY(name, formula) kn__host_binary,
#define KN_COMPARE(name, formula) kn__host_compare,
#define KN_KERNEL(name, host, cuda) kn__host_##host,
#include <knet/ops.def>
};

/* The simulated device has addresses and no memory: its kernels do nothing. */
static kn_status nothing(const kn_kernel_call *call) {
    (void)call;
    return KN_OK;
}

static const kn_kernel_fn sim_kernels[KN_OP_COUNT] = {
#define KN_UNARY(name, formula, saves, gradient) nothing, nothing,
#define KN_BINARY(name, formula) nothing,
#define KN_COMPARE(name, formula) nothing,
#define KN_KERNEL(name, host, cuda) nothing,
#include <knet/ops.def>
};

const kn_kernel_fn *kn__device_kernels(const kn_device *device) {
    switch (kn_device_kind_get(device)) {
        case KN_DEVICE_HOST:
            return kn__host_kernels;
        case KN_DEVICE_SIM:
            return sim_kernels;
        case KN_DEVICE_CUDA:
            break;
    }
    const kn_cuda_module *module = kn__cuda_module();
    return module ? module->kernels : NULL;
}

bool kn_op_supported(kn_op op, kn_device_kind kind) {
    KN_ASSERT((int)op >= 0 && op < KN_OP_COUNT);
    if (op == KN_OP_reshape || op == KN_OP_to) return true;
    switch (kind) {
        case KN_DEVICE_HOST:
            return kn__host_kernels[op] != NULL;
        case KN_DEVICE_SIM:
            return true;
        case KN_DEVICE_CUDA:
            break;
    }
    const kn_cuda_module *module = kn__cuda_module();
    return module && module->kernels[op];
}
