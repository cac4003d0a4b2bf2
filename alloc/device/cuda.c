#include "checked.h"
#include "device/cuda_api.h"
#include "device/drivers.h"
#include "device/observe.h"

#include <knet/device_driver.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_MAX = 64 }; /* devices of a machine */

typedef struct cuda_device {
    const kn__cuda_api *api;
    kn_device_driver driver; /* NULL for what this device or its driver lacks */
    int index;
    cu_device ordinal;
    cu_context context; /* the primary one, retained for the life of the process */
    int compute_major, compute_minor;
    size_t granularity_bytes; /* 0: no virtual memory */
    atomic_bool lost;         /* after a sticky error, which is logged once */
    bool managed;             /* its segments are managed memory */
    _Atomic uint64_t peers;   /* bits of the ordinals that reach its memory */
} cuda_device;

/* From entering the device's context to leaving it, within one function. */
typedef struct context_scope {
    const cuda_device *self;
    bool pushed, relaxed;
    unsigned int capture_mode; /* the thread's own, while `relaxed` */
    cu_result result;
    const char *function; /* the one that returned `result` */
} context_scope;

/* Calls a driver function for `self` and reports the call to the observer; `args` in parentheses.
 */
#define RAW_CALL(name, args)                                                                       \
    __extension__({                                                                                \
        cu_result result_;                                                                         \
        KN__CALL(#name, result_ = self->api->name args);                                           \
        result_;                                                                                   \
    })
/* The same; returns a status. */
#define CALL(size_bytes, name, args)                                                               \
    check(self, RAW_CALL(name, args), #name, (size_bytes), __LINE__)
/* The same in functions that return nothing: logs a failure. */
#define CALL_VOID(size_bytes, name, args) log_failure(self, RAW_CALL(name, args), #name, size_bytes)

/* First statement of every function that needs the context. RELAXED lets calls through that would
 * otherwise invalidate a graph capture of another thread. */
enum { AS_IS = 0, RELAXED = 1 };
#define ENTER_SCOPE(impl, capture)                                                                 \
    cuda_device *self = (impl);                                                                    \
    context_scope scope_ __attribute__((cleanup(context_leave))) =                                 \
        context_enter(self, (capture) == RELAXED)
#define ENTER(impl, capture)                                                                       \
    ENTER_SCOPE(impl, capture);                                                                    \
    KN_TRY(check(self, scope_.result, scope_.function, 0, __LINE__))
#define ENTER_VOID(impl, capture)                                                                  \
    ENTER_SCOPE(impl, capture);                                                                    \
    log_failure(self, scope_.result, scope_.function, 0);                                          \
    if (scope_.result != KN__CU_SUCCESS) return

static bool is_sticky(cu_result result) {
#define X(name, value) || result == (value)
    return false KN__CUDA_STICKY_ERRORS(X);
#undef X
}

/* Logs the first sticky error of the device; all later calls fail the same way. While the device is
 * being opened these errors have other causes, and are only returned. */
static void log_lost(cuda_device *self, const char *text) {
    if (!self->context || atomic_exchange(&self->lost, true)) return;
    kn_log_write(0, "cuda:%d is lost to this process, restart the program: %s", self->index, text);
}

/* Ignores CUDA_ERROR_DEINITIALIZED: at exit the driver may unload first. */
static void log_failure(cuda_device *self, cu_result result, const char *function,
                        size_t size_bytes) {
    if (result == KN__CU_SUCCESS) return;
    char text[512];
    kn__cuda_describe(text, sizeof text, result, function, size_bytes, self->index);
    if (is_sticky(result)) {
        log_lost(self, text);
    } else if (result != KN__CU_ERROR_DEINITIALIZED) {
        kn_log_write(0, "%s", text);
    }
}

static kn_status check(cuda_device *self, cu_result result, const char *function, size_t size_bytes,
                       int line) {
    kn_status status = kn__cuda_check(result, function, size_bytes, self->index, __FILE__, line);
    if (is_sticky(result)) log_lost(self, kn_last_error()->message);
    return status;
}

static context_scope context_enter(cuda_device *self, bool relaxed) {
    context_scope scope = {.self = self, .function = "cuCtxGetCurrent"};
    cu_context current = NULL;
    scope.result = KN__CU_ERROR_DEINITIALIZED;
    if (!kn__cuda_alive()) return scope;
    scope.result = self->api->cuCtxGetCurrent(&current);
    if (scope.result == KN__CU_SUCCESS && current != self->context) {
        scope.function = "cuCtxPushCurrent";
        scope.result = self->api->cuCtxPushCurrent(self->context);
        scope.pushed = scope.result == KN__CU_SUCCESS;
    }
    if (scope.result != KN__CU_SUCCESS || !relaxed) return scope;
    scope.function = "cuThreadExchangeStreamCaptureMode";
    scope.capture_mode = KN__CU_CAPTURE_MODE_RELAXED;
    scope.result = self->api->cuThreadExchangeStreamCaptureMode(&scope.capture_mode);
    scope.relaxed = scope.result == KN__CU_SUCCESS;
    return scope;
}

static void context_leave(context_scope *scope) {
    const kn__cuda_api *api = scope->self->api;
    cu_context ours = NULL;
    if (!kn__cuda_alive()) return;
    if (scope->relaxed) (void)api->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
    if (scope->pushed) (void)api->cuCtxPopCurrent(&ours);
}

static cu_ptr address(const void *ptr) { return (cu_ptr)(uintptr_t)ptr; }

static cu_mem_prop mem_prop(const cuda_device *self) {
    return (cu_mem_prop){
        .type = KN__CU_MEM_TYPE_PINNED,
        .location = {.type = KN__CU_MEM_LOCATION_DEVICE, .id = self->ordinal},
    };
}

/* --- information --- */

static void read_driver_text(const cuda_device *self, char *out, size_t out_bytes) {
    int version = 0;
    char module[32] = "";
    (void)self->api->cuDriverGetVersion(&version);
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (file) {
        if (fscanf(file, "%31s", module) != 1) module[0] = 0;
        fclose(file);
    }
    snprintf(out, out_bytes, "CUDA %d.%d%s%s", version / 1000, version % 1000 / 10,
             module[0] ? ", driver " : "", module);
}

/* Managed memory lies on the GPU or the host. */
static void add_host_memory(kn_device_info *info) {
    kn_device_info host;
    if (kn_device_info_read(&host, sizeof host, kn_device_host()) < 0) return;
    info->total_bytes += host.total_bytes;
    info->free_bytes += host.free_bytes;
}

static kn_status info_read(void *impl, kn_device_info *out) {
    ENTER(impl, RELAXED);
    kn_device_info info = {.kind = KN_DEVICE_CUDA,
                           .index = self->index,
                           .compute_major = self->compute_major,
                           .compute_minor = self->compute_minor,
                           .granularity_bytes = self->granularity_bytes};
    size_t free_bytes = 0, total_bytes = 0;
    KN_TRY(CALL(0, cuMemGetInfo, (&free_bytes, &total_bytes)));
    KN_TRY(CALL(0, cuDeviceGetName, (info.model, sizeof info.model, self->ordinal)));
    info.free_bytes = free_bytes;
    info.total_bytes = total_bytes;
    snprintf(info.name, sizeof info.name, "%s:%d", self->managed ? "managed" : "cuda", self->index);
    if (self->managed) add_host_memory(&info);
    read_driver_text(self, info.driver, sizeof info.driver);
    *out = info;
    return KN_OK;
}

static kn_status free_bytes(void *impl, uint64_t *out) {
    ENTER(impl, RELAXED);
    size_t bytes = 0, total_bytes = 0;
    KN_TRY(CALL(0, cuMemGetInfo, (&bytes, &total_bytes)));
    *out = bytes;
    return KN_OK;
}

/* --- memory --- */

static kn_status segment_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, RELAXED);
    cu_ptr ptr = 0;
    KN_TRY(CALL(size_bytes, cuMemAlloc, (&ptr, size_bytes)));
    *out = (void *)(uintptr_t)ptr;
    return KN_OK;
}

static kn_status managed_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, RELAXED);
    cu_ptr ptr = 0;
    KN_TRY(CALL(size_bytes, cuMemAllocManaged, (&ptr, size_bytes, KN__CU_MEM_ATTACH_GLOBAL)));
    *out = (void *)(uintptr_t)ptr;
    return KN_OK;
}

static void segment_free(void *impl, void *ptr, size_t size_bytes) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(size_bytes, cuMemFree, (address(ptr)));
}

/* Page-locked for all contexts. */
static kn_status pinned_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, RELAXED);
    return CALL(size_bytes, cuMemHostAlloc, (out, size_bytes, KN__CU_MEM_HOST_ALLOC_PORTABLE));
}

static void pinned_free(void *impl, void *ptr, size_t size_bytes) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(size_bytes, cuMemFreeHost, (ptr));
}

static kn_status range_reserve(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, RELAXED);
    cu_ptr ptr = 0;
    KN_TRY(
        CALL(size_bytes, cuMemAddressReserve, (&ptr, size_bytes, self->granularity_bytes, 0, 0)));
    *out = (void *)(uintptr_t)ptr;
    return KN_OK;
}

static void range_release(void *impl, void *ptr, size_t size_bytes) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(size_bytes, cuMemAddressFree, (address(ptr), size_bytes));
}

static kn_status handle_create_as(void *impl, uint64_t *out, size_t size_bytes, unsigned flags) {
    ENTER(impl, RELAXED);
    cu_mem_prop prop = mem_prop(self);
    KN_ASSERT(!(flags & ~self->driver.handle_flags));
    if (flags & KN_HANDLE_SHARED) prop.shareable_handle_types = KN__CU_MEM_HANDLE_FILE;
    prop.flags.rdma_capable = (flags & KN_HANDLE_RDMA) != 0;
    cu_handle handle = 0;
    KN_TRY(CALL(size_bytes, cuMemCreate, (&handle, size_bytes, &prop, 0)));
    *out = handle;
    return KN_OK;
}

static kn_status handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    return handle_create_as(impl, out, size_bytes, 0);
}

static kn_status handle_export(void *impl, int *out_file, uint64_t handle) {
    ENTER(impl, RELAXED);
    return CALL(0, cuMemExportToShareableHandle, (out_file, handle, KN__CU_MEM_HANDLE_FILE, 0));
}

static kn_status handle_import(void *impl, uint64_t *out, int file) {
    ENTER(impl, RELAXED);
    cu_handle handle = 0;
    KN_TRY(CALL(0, cuMemImportFromShareableHandle,
                (&handle, (void *)(uintptr_t)file, KN__CU_MEM_HANDLE_FILE)));
    *out = handle;
    return KN_OK;
}

static void handle_destroy(void *impl, uint64_t handle, size_t size_bytes) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(size_bytes, cuMemRelease, (handle));
}

static kn_status handle_map(void *impl, void *at, size_t size_bytes, uint64_t handle) {
    ENTER(impl, RELAXED);
    return CALL(size_bytes, cuMemMap, (address(at), size_bytes, 0, handle, 0));
}

static kn_status range_access(void *impl, void *at, size_t size_bytes) {
    ENTER(impl, RELAXED);
    cu_mem_access access[1 + PEERS_MAX];
    size_t n = 0;
    uint64_t reach = (uint64_t)1 << self->ordinal | self->peers;
    for (int ordinal = 0; ordinal < PEERS_MAX; ordinal++) {
        if (!(reach >> ordinal & 1)) continue;
        access[n++] = (cu_mem_access){
            .location = {.type = KN__CU_MEM_LOCATION_DEVICE, .id = ordinal},
            .flags = KN__CU_MEM_ACCESS_READWRITE,
        };
    }
    return CALL(size_bytes, cuMemSetAccess, (address(at), size_bytes, access, n));
}

static kn_status handle_unmap(void *impl, void *at, size_t size_bytes) {
    ENTER(impl, RELAXED);
    return CALL(size_bytes, cuMemUnmap, (address(at), size_bytes));
}

static kn_status copy(void *impl, void *dst, const void *src, size_t size_bytes, bool from_host,
                      bool to_host, kn_stream stream) {
    ENTER(impl, AS_IS);
    KN_ASSERT(!(from_host && to_host));
    if (from_host) {
        return CALL(size_bytes, cuMemcpyHtoDAsync, (address(dst), src, size_bytes, stream));
    }
    if (to_host) {
        return CALL(size_bytes, cuMemcpyDtoHAsync, (dst, address(src), size_bytes, stream));
    }
    return CALL(size_bytes, cuMemcpyDtoDAsync, (address(dst), address(src), size_bytes, stream));
}

static kn_status copy_peer(void *impl, void *dst_impl, void *dst, const void *src,
                           size_t size_bytes, kn_stream stream) {
    ENTER(impl, AS_IS);
    const cuda_device *to = dst_impl;
    return CALL(size_bytes, cuMemcpyPeerAsync,
                (address(dst), to->context, address(src), self->context, size_bytes, stream));
}

/* In the peer's context: it reaches plain segments at once. */
static kn_status peer_enable(cuda_device *peer, const cuda_device *owner) {
    ENTER(peer, RELAXED);
    cu_result result = RAW_CALL(cuCtxEnablePeerAccess, (owner->context, 0));
    if (result == KN__CU_ERROR_PEER_ACCESS_ALREADY) return KN_OK;
    return check(self, result, "cuCtxEnablePeerAccess", 0, __LINE__);
}

static kn_status peer_open(void *impl, void *peer_impl) {
    cuda_device *self = impl, *peer = peer_impl;
    int can = 0;
    if (self->ordinal == peer->ordinal) return KN_OK;
    KN_TRY(CALL(0, cuDeviceCanAccessPeer, (&can, peer->ordinal, self->ordinal)));
    if (!can || self->ordinal >= PEERS_MAX || peer->ordinal >= PEERS_MAX) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_device_peer_open: cuda:%d can't reach the memory of cuda:%d directly; "
                       "kn_device_copy copies between them",
                       peer->index, self->index);
    }
    KN_TRY(peer_enable(peer, self));
    atomic_fetch_or(&self->peers, (uint64_t)1 << peer->ordinal);
    return KN_OK;
}

static kn_status fill(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream) {
    ENTER(impl, AS_IS);
    return CALL(size_bytes, cuMemsetD8Async,
                (address(dst), (unsigned char)byte, size_bytes, stream));
}

/* --- streams and events --- */

static kn_status stream_create(void *impl, kn_stream *out) {
    ENTER(impl, RELAXED);
    return CALL(0, cuStreamCreate, (out, KN__CU_STREAM_NON_BLOCKING));
}

static void stream_destroy(void *impl, kn_stream stream) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(0, cuStreamDestroy, (stream));
}

static kn_status stream_sync(void *impl, kn_stream stream) {
    ENTER(impl, RELAXED);
    return CALL(0, cuStreamSynchronize, (stream));
}

static kn_status device_sync(void *impl) {
    ENTER(impl, RELAXED);
    return CALL(0, cuCtxSynchronize, ());
}

/* cuStreamGetId spoils the capture of its own stream, in every mode, so a captured stream has id 0.
 */
static bool ask_id(unsigned long long *out, const kn__cuda_api *api, kn_stream stream) {
    unsigned int status = KN__CU_CAPTURE_STATUS_NONE;
    if (!kn__stream_is_default(stream) &&
        api->cuStreamIsCapturing(stream, &status) != KN__CU_SUCCESS)
        return false;
    return status != KN__CU_CAPTURE_STATUS_NONE ||
           api->cuStreamGetId(stream, out) == KN__CU_SUCCESS;
}

/* The id of a default stream depends on the current context. That of a created stream doesn't, so
 * the first attempt saves the switch. */
static uint64_t stream_id(void *impl, kn_stream stream) {
    const kn__cuda_api *api = ((const cuda_device *)impl)->api;
    unsigned long long id = 0;
    bool direct = kn__cuda_alive() && !kn__stream_is_default(stream);
    if (direct && ask_id(&id, api, stream)) return id;
    ENTER_SCOPE(impl, AS_IS);
    if (scope_.result == KN__CU_SUCCESS) (void)ask_id(&id, api, stream);
    return id;
}

/* cuStreamGetCtx doesn't return the primary context for a stream of a green context (CUDA 12.4),
 * but the green context as a cu_context of its own. Such a stream is accepted: a green context
 * shares memory and events with the primary one it was made from. So is a stream that the driver
 * reports nothing about: if it is wrong after all, the driver rejects its use. */
static kn_status stream_check(void *impl, kn_stream stream) {
    if (kn__stream_is_default(stream)) return KN_OK; /* these always mean our context's */
    ENTER(impl, AS_IS);
    cu_context context = NULL;
    cu_green_context green = NULL;
    cu_result result = RAW_CALL(cuStreamGetCtx, (stream, &context));
    if (result != KN__CU_SUCCESS || context == self->context) return KN_OK;
    if (self->api->cuStreamGetGreenCtx) (void)RAW_CALL(cuStreamGetGreenCtx, (stream, &green));
    if (green) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "stream %p belongs to another context than the primary one of cuda:%d: create "
                   "it with that context current, as cudaSetDevice makes it",
                   (void *)stream, self->index);
}

/* The driver returns an error for the legacy default stream while a stream that synchronizes with
 * it is being captured. Work on it would invalidate that capture, so it counts as captured. */
static bool stream_capturing(void *impl, kn_stream stream) {
    unsigned int status = KN__CU_CAPTURE_STATUS_NONE;
    ENTER_SCOPE(impl, AS_IS);
    if (scope_.result != KN__CU_SUCCESS) return false;
    cu_result result = self->api->cuStreamIsCapturing(stream, &status);
    return result == KN__CU_ERROR_STREAM_CAPTURE_IMPLICIT || status != KN__CU_CAPTURE_STATUS_NONE;
}

static kn_status event_create(void *impl, void **out) {
    ENTER(impl, RELAXED);
    cu_event event = NULL;
    KN_TRY(CALL(0, cuEventCreate, (&event, KN__CU_EVENT_DISABLE_TIMING)));
    *out = event;
    return KN_OK;
}

static void event_destroy(void *impl, void *event) {
    ENTER_VOID(impl, RELAXED);
    CALL_VOID(0, cuEventDestroy, (event));
}

static kn_status event_record(void *impl, void *event, kn_stream stream) {
    ENTER(impl, AS_IS);
    return CALL(0, cuEventRecord, (event, stream));
}

static kn_status event_query(void *impl, void *event, bool *done) {
    ENTER(impl, RELAXED);
    cu_result result = RAW_CALL(cuEventQuery, (event));
    bool reached = result != KN__CU_ERROR_NOT_READY;
    if (reached) KN_TRY(check(self, result, "cuEventQuery", 0, __LINE__));
    *done = reached;
    return KN_OK;
}

static kn_status event_wait(void *impl, void *event, kn_stream stream) {
    ENTER(impl, AS_IS);
    return CALL(0, cuStreamWaitEvent, (stream, event, 0));
}

static kn_status event_sync(void *impl, void *event) {
    ENTER(impl, RELAXED);
    return CALL(0, cuEventSynchronize, (event));
}

/* --- opening --- */

/* Calls the driver: no other call may have failed since it began to unload. */
static bool alive(void *impl) {
    const cuda_device *self = impl;
    cu_context current = NULL;
    char text[64];
    if (!kn__cuda_alive()) return false;
    cu_result result = self->api->cuCtxGetCurrent(&current);
    if (result != KN__CU_ERROR_DEINITIALIZED) return true;
    kn__cuda_describe(text, sizeof text, result, "cuCtxGetCurrent", 0, self->index);
    return false;
}

static const kn_device_driver whole_driver = {
    .kind = KN_DEVICE_CUDA,
    .info_read = info_read,
    .free_bytes = free_bytes,
    .segment_alloc = segment_alloc,
    .segment_free = segment_free,
    .pinned_alloc = pinned_alloc,
    .pinned_free = pinned_free,
    .range_reserve = range_reserve,
    .range_release = range_release,
    .handle_create = handle_create,
    .handle_destroy = handle_destroy,
    .handle_map = handle_map,
    .range_access = range_access,
    .handle_unmap = handle_unmap,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .device_sync = device_sync,
    .stream_id = stream_id,
    .stream_check = stream_check,
    .stream_capturing = stream_capturing,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .alive = alive,
    .handle_create_as = handle_create_as,
    .handle_export = handle_export,
    .handle_import = handle_import,
    .peer_open = peer_open,
    .copy_peer = copy_peer,
};

static kn_status read_attribute(cuda_device *self, int *out, unsigned int attribute) {
    return CALL(0, cuDeviceGetAttribute, (out, attribute, self->ordinal));
}

static kn_status probe_handles(cuda_device *self) {
    int shared = 0, rdma = 0;
    cu_mem_prop prop = mem_prop(self);
    KN_TRY(CALL(0, cuMemGetAllocationGranularity,
                (&self->granularity_bytes, &prop, KN__CU_MEM_GRANULARITY_MINIMUM)));
    KN_TRY(read_attribute(self, &shared, KN__CU_ATTRIBUTE_SHARE_BY_FILE));
    KN_TRY(read_attribute(self, &rdma, KN__CU_ATTRIBUTE_RDMA));
    self->driver.handle_flags = (shared ? KN_HANDLE_SHARED : 0u) | (rdma ? KN_HANDLE_RDMA : 0u);
    return KN_OK;
}

static kn_status probe_managed(cuda_device *self) {
    int has = 0;
    KN_TRY(read_attribute(self, &has, KN__CU_ATTRIBUTE_MANAGED_MEMORY));
    if (has) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "cuda:%d has no managed memory", self->index);
}

static kn_status probe(cuda_device *self) {
    int has_virtual_memory = 0;
    KN_TRY(CALL(0, cuDeviceGet, (&self->ordinal, self->index)));
    KN_TRY(read_attribute(self, &self->compute_major, KN__CU_ATTRIBUTE_COMPUTE_MAJOR));
    KN_TRY(read_attribute(self, &self->compute_minor, KN__CU_ATTRIBUTE_COMPUTE_MINOR));
    KN_TRY(read_attribute(self, &has_virtual_memory, KN__CU_ATTRIBUTE_VIRTUAL_MEMORY));
    if (self->managed) KN_TRY(probe_managed(self));
    if (has_virtual_memory && !self->managed) KN_TRY(probe_handles(self));
    /* Last, and never released. */
    return CALL(0, cuDevicePrimaryCtxRetain, (&self->context, self->ordinal));
}

/* Pools grow by segments, and as far as their own limits say. */
static void make_managed(cuda_device *self) {
    self->managed = true;
    self->driver.host_access = true;
    self->driver.segment_alloc = managed_alloc;
    self->driver.free_bytes = NULL;
}

kn_status kn__cuda_open(kn_device **out, const char *name, int index, bool managed) {
    const kn__cuda_api *api = NULL;
    int n_devices = 0;
    KN_TRY(kn__cuda_load(&api, &n_devices));
    if (index >= n_devices) {
        return KN_FAIL(KN_ERR_DEVICE,
                       "no %s: this process sees %d CUDA device%s, cuda:0 to cuda:%d; "
                       "CUDA_VISIBLE_DEVICES chooses which",
                       name, n_devices, n_devices == 1 ? "" : "s", n_devices - 1);
    }
    cuda_device *self = malloc(sizeof *self);
    if (!self) return KN_FAIL(KN_ERR_OOM, "no host memory for %s", name);
    *self = (cuda_device){.api = api, .driver = whole_driver, .index = index};
    if (managed) make_managed(self);
    kn_status status = probe(self);
    if (!self->granularity_bytes) self->driver.range_reserve = NULL;
    if (!api->cuStreamGetId) self->driver.stream_id = NULL;
    if (status == KN_OK) status = kn_device_register(out, name, &self->driver, self);
    if (status < 0) free(self);
    return status;
}
