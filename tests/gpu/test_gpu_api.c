/* Our declarations of the driver API against NVIDIA's, where cuda.h is installed. The compiler does
 * the checking; the program shows that it did. */
#include "device/cuda_api.h"
#include "test.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
#define X(name, value) SAME(value, CUDA_ERROR_##name);
KN__CUDA_STICKY_ERRORS(X)
#undef X
SAME(KN__CU_SUCCESS, CUDA_SUCCESS);
SAME(KN__CU_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(KN__CU_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(KN__CU_ERROR_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(KN__CU_ERROR_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(KN__CU_ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(KN__CU_ERROR_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(KN__CU_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(KN__CU_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(KN__CU_ATTRIBUTE_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(KN__CU_ATTRIBUTE_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(KN__CU_ATTRIBUTE_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(KN__CU_ATTRIBUTE_MANAGED_MEMORY, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
SAME(KN__CU_ATTRIBUTE_SHARE_BY_FILE,
     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(KN__CU_ATTRIBUTE_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(KN__CU_MEM_HANDLE_FILE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(KN__CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL);
SAME(KN__CU_ERROR_PEER_ACCESS_ALREADY, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(KN__CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(KN__CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(KN__CU_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(KN__CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(KN__CU_MEM_TYPE_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(KN__CU_MEM_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(KN__CU_MEM_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(KN__CU_MEM_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(KN__CU_MEM_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(KN__CU_GET_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);

#define SAME_SIZE(ours, theirs)                                                                    \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs),           \
                   #ours " is not laid out like " #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field)                                           \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                   \
                       sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),       \
                   #our_field " is not " #their_field)
SAME_SIZE(cu_uuid, CUuuid);
SAME_FIELD(cu_uuid, bytes, CUuuid, bytes);
SAME_SIZE(cu_mem_location, CUmemLocation);
SAME_FIELD(cu_mem_location, type, CUmemLocation, type);
SAME_FIELD(cu_mem_location, id, CUmemLocation, id);
SAME_SIZE(cu_mem_prop, CUmemAllocationProp);
SAME_FIELD(cu_mem_prop, type, CUmemAllocationProp, type);
SAME_FIELD(cu_mem_prop, shareable_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(cu_mem_prop, location, CUmemAllocationProp, location);
SAME_FIELD(cu_mem_prop, win32_meta, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(cu_mem_prop, flags, CUmemAllocationProp, allocFlags);
SAME_FIELD(cu_mem_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(cu_mem_access, CUmemAccessDesc);
SAME_FIELD(cu_mem_access, location, CUmemAccessDesc, location);
SAME_FIELD(cu_mem_access, flags, CUmemAccessDesc, flags);

/* Prototypes, at the version that we ask for; our structures stand for theirs, laid out alike. */
#define cu_uuid CUuuid
#define cu_mem_prop CUmemAllocationProp
#define cu_mem_access CUmemAccessDesc
#define X(name, version, params)                                                                   \
    typedef cu_result(*our_##name) params;                                                         \
    _Static_assert(__builtin_types_compatible_p(our_##name, PFN_##name##_v##version),              \
                   #name " is declared otherwise in cuda.h");
KN__CUDA_API(X)
#undef X
_Static_assert(__builtin_types_compatible_p(cu_get_proc_fn, PFN_cuGetProcAddress_v11030),
               "cuGetProcAddress is declared otherwise in cuda.h");

static void declarations_match_cuda_h(void **state) {
    (void)state;
    int n = 0;
#define X(name, version, params) n += (version) <= CUDA_VERSION;
    KN__CUDA_API(X)
#undef X
    assert_true(n > 30);
    print_message("%d entry points as in cuda.h of CUDA %d.%d\n", n, CUDA_VERSION / 1000,
                  CUDA_VERSION % 1000 / 10);
}

int main(void) { return RUN_TESTS(TEST(declarations_match_cuda_h)); }
