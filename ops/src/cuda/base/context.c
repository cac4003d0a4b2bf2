/* Errors, contexts and versions of the CUDA libraries. */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/base/module.h"

/* --- errors --- */

/* After these the GPU's context is of no use, and every later call returns the same error. */
static bool is_sticky(cudaError_t error) {
    switch (error) {
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
            return true;
        default:
            return false;
    }
}

static void log_lost(const char *what, cudaError_t error) {
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&logged)) return;
    kn_log_write(0, "the GPU is lost to this process, restart the program: %s: %s", what,
                 cudaGetErrorString(error));
}

kn_status kn__cuda_status(cudaError_t error, const char *what) {
    if (__builtin_expect(error == cudaSuccess, 1)) return KN_OK;
    if (is_sticky(error)) log_lost(what, error);
    (void)cudaGetLastError(); /* the next launch would find it */
    return KN_FAIL(error == cudaErrorMemoryAllocation ? KN_ERR_OOM : KN_ERR_CUDA, "%s: %s (%s)",
                   what, cudaGetErrorString(error), cudaGetErrorName(error));
}

kn_status kn__cublas_status(cublasStatus_t error, const char *what) {
    if (__builtin_expect(error == CUBLAS_STATUS_SUCCESS, 1)) return KN_OK;
    return KN_FAIL(KN_ERR_CUDA, "%s: %s (%s)", what, cublasLtGetStatusString(error),
                   cublasLtGetStatusName(error));
}

kn_status kn__cudnn_status(cudnnStatus_t error, const char *what) {
    if (__builtin_expect(error == CUDNN_STATUS_SUCCESS, 1)) return KN_OK;
    char text[1024] = "";
    cudnnGetLastErrorString(text, sizeof text);
    return KN_FAIL(KN_ERR_CUDA, "%s: %s%s%s", what, cudnnGetErrorString(error), text[0] ? ": " : "",
                   text);
}

/* --- the current context --- */

static struct {
    CUresult (*get_current)(CUcontext *context);
    CUresult (*push)(CUcontext context);
    CUresult (*pop)(CUcontext *context);
    CUresult (*retain_primary)(CUcontext *context, CUdevice device);
} driver;
static cudaError_t driver_error;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static cudaError_t look_up(void *fn, const char *name) {
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result;
    cudaError_t error = KN_PROF_FN(cudaGetDriverEntryPointByVersion, name, &found, 12000,
                                   cudaEnableDefault, &result);
    if (error == cudaSuccess && !found) error = cudaErrorSymbolNotFound;
    memcpy(fn, &found, sizeof found);
    return error;
}

bool kn__driver_find(void *fn, const char *name) { return look_up(fn, name) == cudaSuccess; }

static void find(void *fn, const char *name) {
    cudaError_t error = look_up(fn, name);
    if (error != cudaSuccess && driver_error == cudaSuccess) driver_error = error;
}

static void find_driver(void) {
    find(&driver.get_current, "cuCtxGetCurrent");
    find(&driver.push, "cuCtxPushCurrent");
    find(&driver.pop, "cuCtxPopCurrent");
    find(&driver.retain_primary, "cuDevicePrimaryCtxRetain");
}

/* Retained once and never released: the process owns it. */
static _Atomic(CUcontext) primary[KN__GPUS_MAX];

static kn_status primary_of(CUcontext *out, int gpu) {
    CUcontext context = atomic_load_explicit(&primary[gpu], memory_order_acquire);
    if (!context) {
        pthread_once(&driver_once, find_driver);
        KN_TRY(kn__cuda_status(driver_error, "cudaGetDriverEntryPoint"));
        CUresult result = driver.retain_primary(&context, gpu);
        if (result != CUDA_SUCCESS) {
            return KN_FAIL(KN_ERR_CUDA, "cuDevicePrimaryCtxRetain: error %d for cuda:%d",
                           (int)result, gpu);
        }
        atomic_store_explicit(&primary[gpu], context, memory_order_release);
    }
    *out = context;
    return KN_OK;
}

/* A device's number never changes: the name is parsed once, without a call of the driver. */
int kn__gpu_index(const kn_device *device) {
    static _Atomic(const kn_device *) known[KN__GPUS_MAX];
    for (int i = 0; i < KN__GPUS_MAX; i++) {
        if (atomic_load_explicit(&known[i], memory_order_relaxed) == device) return i;
    }
    const char *number = strchr(kn_device_name(device), ':'); /* "cuda:1", "managed:1" */
    long index = number ? strtol(number + 1, NULL, 10) : -1;
    if (index < 0 || index >= KN__GPUS_MAX) return -1;
    atomic_store_explicit(&known[index], device, memory_order_relaxed);
    return (int)index;
}

kn_status kn__gpu_enter(bool *pushed, const kn_device *device) {
    int gpu = kn__gpu_index(device);
    if (gpu < 0) {
        return KN_FAIL(KN_ERR_DEVICE, "%s: more GPUs than the %d that are supported",
                       kn_device_name(device), KN__GPUS_MAX);
    }
    CUcontext wanted = NULL, current = NULL;
    KN_TRY(primary_of(&wanted, gpu));
    *pushed = false;
    if (driver.get_current(&current) == CUDA_SUCCESS && current == wanted) return KN_OK;
    CUresult result = driver.push(wanted);
    if (result != CUDA_SUCCESS) {
        return KN_FAIL(KN_ERR_CUDA, "cuCtxPushCurrent: error %d for cuda:%d", (int)result, gpu);
    }
    /* A thread without a context keeps this one, as after any call of the runtime. */
    *pushed = current != NULL;
    return KN_OK;
}

void kn__gpu_leave(bool pushed) {
    CUcontext ours;
    if (pushed) driver.pop(&ours);
}
