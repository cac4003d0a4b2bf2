/* Kernels that were compiled at run time: only their launches are seen. */
#include "fake_chains.h"

#include <cuda.h>
#include <string.h>

#define BEGIN(name)                                                                                \
    do {                                                                                           \
        int error_ = fake_gpu_begin(name);                                                         \
        if (error_) return (CUresult)error_;                                                       \
    } while (0)

static CUresult fake_cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit,
                                       void **jit_values, unsigned n_jit, CUlibraryOption *options,
                                       void **values, unsigned n) {
    (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    BEGIN("cuLibraryLoadData");
    if (memcmp(code, "\177ELF", 4) != 0) return CUDA_ERROR_INVALID_IMAGE;
    static char library;
    *out = (CUlibrary)(void *)&library;
    return CUDA_SUCCESS;
}

static CUresult fake_cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
    BEGIN("cuLibraryGetKernel");
    if (strcmp(name, "knet_chain") != 0) return CUDA_ERROR_NOT_FOUND;
    *out = (CUkernel)(void *)library;
    return CUDA_SUCCESS;
}

static CUresult fake_cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z,
                                    unsigned shared_bytes, CUstream stream, void **args,
                                    void **extra) {
    (void)f, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)args, (void)extra;
    BEGIN("cuLaunchKernel");
    fake_gpu_chain();
    return CUDA_SUCCESS;
}

static CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    (void)mode;
    return CUDA_SUCCESS;
}

bool fake_chains_find(const char *name, void **out) {
    const struct {
        const char *name;
        void (*fn)(void);
    } known[] = {
        {"cuLibraryLoadData", (void (*)(void))fake_cuLibraryLoadData},
        {"cuLibraryGetKernel", (void (*)(void))fake_cuLibraryGetKernel},
        {"cuLaunchKernel", (void (*)(void))fake_cuLaunchKernel},
        {"cuThreadExchangeStreamCaptureMode",
         (void (*)(void))fake_cuThreadExchangeStreamCaptureMode},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        memcpy(out, &known[i].fn, sizeof *out);
        return true;
    }
    return false;
}
