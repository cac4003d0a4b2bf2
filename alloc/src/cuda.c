#include "devices.h"

kn_status kn__cuda_find(kn_device **out, int index) {
    (void)out;
    return KN_FAIL(
        KN_ERR_DEVICE,
        "cuda:%d: no CUDA driver (libcuda.so.1) on this machine; install NVIDIA's driver "
        "or use the device \"cpu\"",
        index);
}

int kn__cuda_count(void) { return 0; }
