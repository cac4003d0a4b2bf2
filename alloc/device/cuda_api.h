/* The part of the CUDA driver API that the cuda device uses. Declared here, so that the build needs
 * no toolkit; tests/gpu/test_gpu_api.c compares values, layouts and prototypes with NVIDIA's header
 * where it is installed.
 *
 * Names are the driver's with our prefix: CUdeviceptr is cu_ptr, CU_EVENT_DISABLE_TIMING is
 * KN__CU_EVENT_DISABLE_TIMING. Entry points are looked up by name and version; the version fixes
 * the ABI, and newer drivers keep it.
 */
#ifndef KN_ALLOC_CUDA_API_H
#define KN_ALLOC_CUDA_API_H

#include <knet/device.h>

typedef unsigned int cu_result;
typedef int cu_device;
typedef unsigned long long cu_ptr;    /* device address */
typedef unsigned long long cu_handle; /* physical memory */
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgreenCtx_st *cu_green_context;

typedef struct cu_uuid {
    char bytes[16];
} cu_uuid;

typedef struct cu_mem_location {
    unsigned int type;
    int id;
} cu_mem_location;

typedef struct cu_mem_prop {
    unsigned int type;
    unsigned int shareable_handle_types;
    cu_mem_location location;
    void *win32_meta;
    struct {
        unsigned char compression, rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} cu_mem_prop;

typedef struct cu_mem_access {
    cu_mem_location location;
    unsigned int flags;
} cu_mem_access;

/* X(name, value): sticky errors. Every later call in the context returns the same one; only a new
 * process gets a working context. */
#define KN__CUDA_STICKY_ERRORS(X)                                                                  \
    X(ECC_UNCORRECTABLE, 214)                                                                      \
    X(NVLINK_UNCORRECTABLE, 220)                                                                   \
    X(CONTAINED, 226)                                                                              \
    X(ILLEGAL_ADDRESS, 700)                                                                        \
    X(LAUNCH_TIMEOUT, 702)                                                                         \
    X(ASSERT, 710)                                                                                 \
    X(HARDWARE_STACK_ERROR, 714)                                                                   \
    X(ILLEGAL_INSTRUCTION, 715)                                                                    \
    X(MISALIGNED_ADDRESS, 716)                                                                     \
    X(INVALID_ADDRESS_SPACE, 717)                                                                  \
    X(INVALID_PC, 718)                                                                             \
    X(LAUNCH_FAILED, 719)                                                                          \
    X(TENSOR_MEMORY_LEAK, 721)                                                                     \
    X(MPS_CLIENT_TERMINATED, 810)                                                                  \
    X(EXTERNAL_DEVICE, 911)                                                                        \
    X(UNKNOWN, 999)

enum {
    KN__CU_SUCCESS = 0,
    KN__CU_ERROR_OUT_OF_MEMORY = 2,
    KN__CU_ERROR_NOT_INITIALIZED = 3,
    KN__CU_ERROR_DEINITIALIZED = 4,
    KN__CU_ERROR_STUB_LIBRARY = 34,
    KN__CU_ERROR_NO_DEVICE = 100,
    KN__CU_ERROR_NOT_READY = 600,
    KN__CU_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    KN__CU_ERROR_STREAM_CAPTURE_IMPLICIT = 906,

    KN__CU_ATTRIBUTE_COMPUTE_MAJOR = 75,
    KN__CU_ATTRIBUTE_COMPUTE_MINOR = 76,
    KN__CU_ATTRIBUTE_VIRTUAL_MEMORY = 102,
    KN__CU_ATTRIBUTE_MANAGED_MEMORY = 83,
    KN__CU_ATTRIBUTE_SHARE_BY_FILE = 103,
    KN__CU_ATTRIBUTE_RDMA = 110,
    KN__CU_STREAM_NON_BLOCKING = 1,
    KN__CU_EVENT_DISABLE_TIMING = 2,
    KN__CU_CAPTURE_STATUS_NONE = 0,
    KN__CU_CAPTURE_MODE_RELAXED = 2,
    KN__CU_MEM_TYPE_PINNED = 1,
    KN__CU_MEM_LOCATION_DEVICE = 1,
    KN__CU_MEM_ACCESS_READWRITE = 3,
    KN__CU_MEM_GRANULARITY_MINIMUM = 0,
    KN__CU_MEM_HANDLE_FILE = 1,
    KN__CU_MEM_ATTACH_GLOBAL = 1,
    KN__CU_ERROR_PEER_ACCESS_ALREADY = 704,
    KN__CU_MEM_HOST_ALLOC_PORTABLE = 1,
    KN__CU_GET_PROC_LEGACY_STREAM = 1
};

/* The first version of cuGetProcAddress, by which all others are looked up. It came with CUDA 11.3,
 * the oldest driver that the device works with, and newer ones still export it. */
typedef cu_result (*cu_get_proc_fn)(const char *name, void **out, int version, uint64_t flags);
enum { KN__CUDA_OLDEST = 11030 };

/* X(name, version that fixed this ABI, parameters). All return cu_result. Functions newer than
 * KN__CUDA_OLDEST are optional: NULL if the driver lacks them. */
#define KN__CUDA_API(X)                                                                            \
    X(cuInit, 2000, (unsigned int flags))                                                          \
    X(cuGetErrorName, 6000, (cu_result result, const char **out))                                  \
    X(cuGetErrorString, 6000, (cu_result result, const char **out))                                \
    X(cuDriverGetVersion, 2020, (int *out))                                                        \
    X(cuDeviceGetCount, 2000, (int *out))                                                          \
    X(cuDeviceGet, 2000, (cu_device * out, int index))                                             \
    X(cuDeviceGetName, 2000, (char *out, int out_bytes, cu_device device))                         \
    X(cuDeviceGetAttribute, 2000, (int *out, unsigned int attribute, cu_device device))            \
    X(cuDeviceGetUuid, 11040, (cu_uuid * out, cu_device device))                                   \
    X(cuDeviceCanAccessPeer, 4000, (int *out, cu_device device, cu_device peer))                   \
    X(cuDevicePrimaryCtxRetain, 7000, (cu_context * out, cu_device device))                        \
    X(cuCtxEnablePeerAccess, 4000, (cu_context peer, unsigned int flags))                          \
    X(cuMemAllocManaged, 6000, (cu_ptr * out, size_t size_bytes, unsigned int flags))              \
    X(cuMemcpyPeerAsync, 4000,                                                                     \
      (cu_ptr dst, cu_context dst_context, cu_ptr src, cu_context src_context, size_t size_bytes,  \
       cu_stream stream))                                                                          \
    X(cuCtxGetCurrent, 4000, (cu_context * out))                                                   \
    X(cuCtxPushCurrent, 4000, (cu_context context))                                                \
    X(cuCtxPopCurrent, 4000, (cu_context * out))                                                   \
    X(cuCtxSynchronize, 2000, (void))                                                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, (unsigned int *mode))                              \
    X(cuMemGetInfo, 3020, (size_t * free_bytes, size_t * total_bytes))                             \
    X(cuMemAlloc, 3020, (cu_ptr * out, size_t size_bytes))                                         \
    X(cuMemFree, 3020, (cu_ptr ptr))                                                               \
    X(cuMemHostAlloc, 2020, (void **out, size_t size_bytes, unsigned int flags))                   \
    X(cuMemFreeHost, 2000, (void *ptr))                                                            \
    X(cuMemGetAllocationGranularity, 10020,                                                        \
      (size_t * out, const cu_mem_prop *prop, unsigned int option))                                \
    X(cuMemAddressReserve, 10020,                                                                  \
      (cu_ptr * out, size_t size_bytes, size_t alignment, cu_ptr at, unsigned long long flags))    \
    X(cuMemAddressFree, 10020, (cu_ptr ptr, size_t size_bytes))                                    \
    X(cuMemCreate, 10020,                                                                          \
      (cu_handle * out, size_t size_bytes, const cu_mem_prop *prop, unsigned long long flags))     \
    X(cuMemRelease, 10020, (cu_handle handle))                                                     \
    X(cuMemMap, 10020,                                                                             \
      (cu_ptr at, size_t size_bytes, size_t offset, cu_handle handle, unsigned long long flags))   \
    X(cuMemUnmap, 10020, (cu_ptr at, size_t size_bytes))                                           \
    X(cuMemSetAccess, 10020,                                                                       \
      (cu_ptr at, size_t size_bytes, const cu_mem_access *access, size_t n))                       \
    X(cuDevicePrimaryCtxRelease, 11000, (cu_device device))                                        \
    X(cuMemExportToShareableHandle, 10020,                                                         \
      (void *out, cu_handle handle, unsigned int type, unsigned long long flags))                  \
    X(cuMemImportFromShareableHandle, 10020,                                                       \
      (cu_handle * out, void *os_handle, unsigned int type))                                       \
    X(cuMemcpyHtoDAsync, 3020, (cu_ptr dst, const void *src, size_t size_bytes, cu_stream stream)) \
    X(cuMemcpyDtoHAsync, 3020, (void *dst, cu_ptr src, size_t size_bytes, cu_stream stream))       \
    X(cuMemcpyDtoDAsync, 3020, (cu_ptr dst, cu_ptr src, size_t size_bytes, cu_stream stream))      \
    X(cuMemsetD8Async, 3020,                                                                       \
      (cu_ptr dst, unsigned char byte, size_t size_bytes, cu_stream stream))                       \
    X(cuStreamCreate, 2000, (cu_stream * out, unsigned int flags))                                 \
    X(cuStreamDestroy, 4000, (cu_stream stream))                                                   \
    X(cuStreamSynchronize, 2000, (cu_stream stream))                                               \
    X(cuStreamGetCtx, 9020, (cu_stream stream, cu_context * out))                                  \
    X(cuStreamGetGreenCtx, 12040, (cu_stream stream, cu_green_context * out))                      \
    X(cuStreamGetId, 12000, (cu_stream stream, unsigned long long *out))                           \
    X(cuStreamIsCapturing, 10000, (cu_stream stream, unsigned int *out))                           \
    X(cuStreamWaitEvent, 3020, (cu_stream stream, cu_event event, unsigned int flags))             \
    X(cuEventCreate, 2000, (cu_event * out, unsigned int flags))                                   \
    X(cuEventDestroy, 4000, (cu_event event))                                                      \
    X(cuEventRecord, 2000, (cu_event event, cu_stream stream))                                     \
    X(cuEventQuery, 2000, (cu_event event))                                                        \
    X(cuEventSynchronize, 2000, (cu_event event))

typedef struct kn__cuda_api {
#define X(name, version, params) cu_result(*name) params;
    KN__CUDA_API(X)
#undef X
} kn__cuda_api;

/* Loads the driver at first use and calls cuInit. Later calls return the first result. Errors:
 * DEVICE, with the reason (no libcuda.so.1, too old, cuInit failed, no device) and the remedy. */
KN_MUST_CHECK kn_status kn__cuda_load(const kn__cuda_api **out, int *n_devices);

/* Formats "cuMemCreate of 2097152 bytes on cuda:0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory",
 * cut to out_bytes; omits size_bytes 0. Every failed result passes through here. */
void kn__cuda_describe(char *out, size_t out_bytes, cu_result result, const char *function,
                       size_t size_bytes, int index);
/* Records that text as an error: OOM for CUDA_ERROR_OUT_OF_MEMORY, CUDA for others. KN_OK for
 * success. */
kn_status kn__cuda_check(cu_result result, const char *function, size_t size_bytes, int index,
                         const char *file, int line);

/* False after the first CUDA_ERROR_DEINITIALIZED: the driver is unloading. */
bool kn__cuda_alive(void);

#endif
