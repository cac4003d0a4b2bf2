#include "calls.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool starts_with_one_of(const char *name, const char *const *starts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) return true;
    }
    return false;
}

#define STARTS_WITH(name, list) starts_with_one_of(name, list, sizeof list / sizeof *list)

kn__cuda_call kn__cuda_call_kind(const char *name) {
    static const char *const launches[] = {"cudaLaunch", "__cudaLaunchKernel", "cudaMemcpy",
                                           "cudaMemset", "cuLaunch",           "cuMemcpy",
                                           "cuMemset"};
    static const char *const graphs[] = {"cudaGraphLaunch", "cuGraphLaunch"};
    static const char *const allocs[] = {"cudaMalloc",  "cudaFree",    "cudaHostAlloc",
                                         "cuMemAlloc",  "cuMemFree",   "cuMemHostAlloc",
                                         "cuMemCreate", "cuMemRelease"};
    static const char *const quiet[] = {"cudaGet",       "cudaPeek",       "cudaSetDevice",
                                        "cudaDeviceGet", "cudaFuncGet",    "cudaOccupancy",
                                        "__cudaPush",    "__cudaPop",      "cudaDriver",
                                        "cudaRuntime",   "cudaPointerGet", "cudaStreamIsCapturing",
                                        "cuCtxGet",      "cuCtxSet",       "cuCtxPush",
                                        "cuCtxPop",      "cuDeviceGet",    "cuGet",
                                        "cuDriverGet",   "cuFuncGet",      "cuFuncIs",
                                        "cuKernelGet",   "cuModuleGet",    "cuLibraryGet",
                                        "cuPointer",     "cuOccupancy",    "cuDevicePrimaryCtxGet"};
    if (strstr(name, "HostFunc")) return KN__CUDA_CALL_PLAIN;
    if (STARTS_WITH(name, graphs)) return KN__CUDA_CALL_GRAPH_LAUNCH;
    if (STARTS_WITH(name, launches)) return KN__CUDA_CALL_LAUNCH;
    if (STARTS_WITH(name, allocs)) return KN__CUDA_CALL_ALLOC;
    return STARTS_WITH(name, quiet) ? KN__CUDA_CALL_QUIET : KN__CUDA_CALL_PLAIN;
}

bool kn__cuda_call_counts(const char *name) {
    static const char *const counting[] = {
        "cudaMemcpy",        "cudaMemcpyAsync", "cudaMemset",        "cudaMemsetAsync",
        "cuMemcpy",          "cuMemcpyHtoD",    "cuMemcpyHtoDAsync", "cuMemcpyDtoH",
        "cuMemcpyDtoHAsync", "cuMemcpyDtoD",    "cuMemsetD8",        "cuMemcpyDtoDAsync",
        "cuMemsetD16",       "cuMemsetD8Async", "cuMemsetD32",       "cuMemcpyAsync",
        "cuMemsetD16Async",  "cuMemsetD32Async"};
    size_t length = strcspn(name, "_"); /* _v3020, _v2, _ptsz, _ptds */
    for (size_t i = 0; i < sizeof counting / sizeof *counting; i++) {
        if (strlen(counting[i]) == length && memcmp(counting[i], name, length) == 0) return true;
    }
    return false;
}

void kn__cuda_call_label(char *out, size_t out_bytes, const char *name) {
    size_t length = strlen(name), end = length;
    while (end && isdigit((unsigned char)name[end - 1])) end--;
    bool versioned = end < length && end > 2 && strncmp(name + end - 2, "_v", 2) == 0;
    snprintf(out, out_bytes, "%.*s", (int)(versioned ? end - 2 : length), name);
}
