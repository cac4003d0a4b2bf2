#include "fake_cuda_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .memory_file = -1};
fake_cuda_machine fake_machine = {.n_devices = 2,
                                  .driver_version = 13000,
                                  .has_virtual_memory = true,
                                  .capacity_bytes = 1u << 30,
                                  .compute_major = 9};
_Thread_local fake_thread_state fake_thread;

/* --- what every call begins with ---------------------------------------------------------- */

cu_result fake_violate(cu_result result, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (fake.n_violations++ == 0) vsnprintf(fake.violation, sizeof fake.violation, fmt, args);
    va_end(args);
    return result;
}

static void count_call(const char *name) {
    fake.n_calls++;
    for (int i = 0; i < FUNCTIONS_MAX; i++) {
        if (!fake.calls[i].name) fake.calls[i].name = name;
        if (strcmp(fake.calls[i].name, name) != 0) continue;
        fake.calls[i].n++;
        return;
    }
}

static cu_result scripted(const char *name) {
    bool meant = !fake.fail_function || strcmp(fake.fail_function, name) == 0;
    if (!fake.fail_times || !meant || --fake.fail_in > 0) return KN__CU_SUCCESS;
    fake.fail_in = 1;
    fake.has_failed = true;
    if (fake.fail_times > 0) fake.fail_times--;
    if (fake.fail_result == KN__CU_ERROR_DEINITIALIZED) fake.dead = true;
    return fake.fail_result;
}

cu_result fake_begin(const char *name) {
    pthread_mutex_lock(&fake.lock);
    count_call(name);
    if (fake.dead) return fake_violate(KN__CU_ERROR_DEINITIALIZED, "%s after shutdown", name);
    if (fake.initialized && fake.pid != getpid()) return KN__CU_ERROR_NOT_INITIALIZED;
    return scripted(name);
}

int fake_current_device(void) {
    return fake_thread.n_contexts ? fake_thread.stack[fake_thread.n_contexts - 1]->device : -1;
}

int fake_cuda_device(void) { return fake_current_device(); }

cu_result fake_begin_in_context(const char *name) {
    cu_result result = fake_begin(name);
    if (result != KN__CU_SUCCESS) return result;
    if (!fake.initialized) return KN__CU_ERROR_NOT_INITIALIZED;
    if (fake_current_device() < 0)
        return fake_violate(INVALID_CONTEXT, "%s outside the context", name);
    return KN__CU_SUCCESS;
}

/* Calls that spoil a capture of another thread, unless the thread's mode is relaxed. */
cu_result fake_begin_unsafe(const char *name) {
    cu_result result = fake_begin_in_context(name);
    if (result == KN__CU_SUCCESS && fake.n_capturing &&
        fake_thread.capture_mode != KN__CU_CAPTURE_MODE_RELAXED) {
        return fake_violate(CAPTURE_UNSUPPORTED, "%s during a graph capture", name);
    }
    return result;
}

cu_result fake_end(cu_result result) {
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* --- objects ------------------------------------------------------------------------------ */

object *fake_find(object_kind kind, uint64_t key) {
    for (int i = 0; i < fake.n_objects; i++) {
        if (fake.objects[i].kind == kind && fake.objects[i].key == key) return &fake.objects[i];
    }
    return NULL;
}

object *fake_add(object_kind kind, uint64_t key, size_t size_bytes) {
    for (int i = 0; i < OBJECTS_MAX; i++) {
        if (fake.objects[i].kind) continue;
        if (i >= fake.n_objects) fake.n_objects = i + 1;
        fake.objects[i] = (object){
            .kind = kind, .device = fake_current_device(), .key = key, .size_bytes = size_bytes};
        return &fake.objects[i];
    }
    abort(); /* OBJECTS_MAX is for the tests to fit */
}

static int count_kind(object_kind kind) {
    int n = 0;
    for (int i = 0; i < fake.n_objects; i++) n += fake.objects[i].kind == kind;
    return n;
}

/* --- start, errors, devices --------------------------------------------------------------- */

cu_result fake_cuInit(unsigned int flags) {
    BEGIN(fake_begin);
    REQUIRE(flags == 0);
    if (fake_machine.init_result != KN__CU_SUCCESS) return fake_end(fake_machine.init_result);
    fake.initialized = true;
    fake.pid = getpid();
    for (int i = 0; i <= DEVICES_MAX; i++) fake.contexts[i].device = i < DEVICES_MAX ? i : -1;
    fake.memory_file = memfd_create("fake_cuda", MFD_CLOEXEC);
    return fake_end(KN__CU_SUCCESS);
}

static const struct {
    cu_result result;
    const char *name, *text;
} error_texts[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver"},
};

static cu_result error_lookup(cu_result result, const char **name, const char **text) {
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++) {
        if (error_texts[i].result != result) continue;
        *name = error_texts[i].name;
        *text = error_texts[i].text;
        return KN__CU_SUCCESS;
    }
    return INVALID_VALUE;
}

/* Neither counted nor failed: tests script the calls that do something. */
cu_result fake_cuGetErrorName(cu_result result, const char **out) {
    const char *text = NULL;
    return error_lookup(result, out, &text);
}

cu_result fake_cuGetErrorString(cu_result result, const char **out) {
    const char *name = NULL;
    return error_lookup(result, &name, out);
}

cu_result fake_cuDriverGetVersion(int *out) {
    *out = fake_machine.driver_version;
    return KN__CU_SUCCESS;
}

cu_result fake_cuDeviceGetCount(int *out) {
    BEGIN(fake_begin);
    REQUIRE(fake.initialized);
    *out = fake_machine.n_devices;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuDeviceGet(cu_device *out, int index) {
    BEGIN(fake_begin);
    REQUIRE(index >= 0 && index < fake_machine.n_devices);
    *out = index;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuDeviceGetName(char *out, int out_bytes, cu_device device) {
    BEGIN(fake_begin);
    snprintf(out, (size_t)out_bytes, "Fake GPU %d", device);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuDeviceGetAttribute(int *out, unsigned int attribute, cu_device device) {
    BEGIN(fake_begin);
    REQUIRE(device >= 0 && device < fake_machine.n_devices);
    *out = attribute == KN__CU_ATTRIBUTE_COMPUTE_MAJOR ? fake_machine.compute_major : 0;
    if (attribute == KN__CU_ATTRIBUTE_VIRTUAL_MEMORY) *out = fake_machine.has_virtual_memory;
    if (attribute == KN__CU_ATTRIBUTE_SHARE_BY_FILE) *out = !fake_machine.no_sharing;
    if (attribute == KN__CU_ATTRIBUTE_RDMA) *out = !fake_machine.no_sharing;
    if (attribute == KN__CU_ATTRIBUTE_MANAGED_MEMORY) *out = !fake_machine.no_managed;
    return fake_end(KN__CU_SUCCESS);
}

/* Devices differ from the third byte on. */
cu_result fake_cuDeviceGetUuid(cu_uuid *out, cu_device device) {
    BEGIN(fake_begin);
    REQUIRE(device >= 0 && device < fake_machine.n_devices);
    for (int i = 0; i < 16; i++) out->bytes[i] = (char)(i < 2 ? 0xab + i : 0x10 * device + i);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuDeviceCanAccessPeer(int *out, cu_device device, cu_device peer) {
    BEGIN(fake_begin);
    REQUIRE(device != peer);
    *out = !fake_machine.no_peers;
    return fake_end(KN__CU_SUCCESS);
}

/* --- contexts ----------------------------------------------------------------------------- */

cu_result fake_cuDevicePrimaryCtxRetain(cu_context *out, cu_device device) {
    BEGIN(fake_begin);
    *out = &fake.contexts[device];
    fake.contexts[device].n_retained++;
    (void)fake_end(KN__CU_SUCCESS);
    usleep(fake_machine.open_us);
    return KN__CU_SUCCESS;
}

cu_result fake_cuDevicePrimaryCtxRelease(cu_device device) {
    BEGIN(fake_begin);
    REQUIRE(fake.contexts[device].n_retained > 0);
    fake.contexts[device].n_retained--;
    return fake_end(KN__CU_SUCCESS);
}

/* The current context's device reaches the peer's memory from now on. */
cu_result fake_cuCtxEnablePeerAccess(cu_context peer, unsigned int flags) {
    BEGIN(fake_begin_in_context);
    REQUIRE(flags == 0 && !fake_machine.no_peers && peer->device != fake_current_device());
    bool *reaches = &fake.contexts[fake_current_device()].reaches[peer->device];
    if (*reaches) return fake_end(KN__CU_ERROR_PEER_ACCESS_ALREADY);
    *reaches = true;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuCtxGetCurrent(cu_context *out) {
    BEGIN(fake_begin);
    *out = fake_thread.n_contexts ? fake_thread.stack[fake_thread.n_contexts - 1] : NULL;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuCtxPushCurrent(cu_context context) {
    BEGIN(fake_begin);
    REQUIRE(fake_thread.n_contexts < CONTEXTS_MAX);
    fake_thread.stack[fake_thread.n_contexts++] = context;
    return fake_end(KN__CU_SUCCESS);
}

/* Pops even when it is scripted to fail, as the driver does: it may only pass on older errors. */
cu_result fake_cuCtxPopCurrent(cu_context *out) {
    cu_result result = fake_begin("cuCtxPopCurrent");
    if (result == KN__CU_ERROR_DEINITIALIZED) return fake_end(result);
    REQUIRE(fake_thread.n_contexts > 0);
    *out = fake_thread.stack[--fake_thread.n_contexts];
    return fake_end(result);
}

cu_result fake_cuThreadExchangeStreamCaptureMode(unsigned int *mode) {
    BEGIN(fake_begin);
    unsigned int before = fake_thread.capture_mode;
    fake_thread.capture_mode = *mode;
    *mode = before;
    return fake_end(KN__CU_SUCCESS);
}

/* --- what the loader sees ------------------------------------------------------------------ */

FAKE_API cu_result cuDriverGetVersion(int *out);
cu_result cuDriverGetVersion(int *out) { return fake_cuDriverGetVersion(out); }

/* For libraries that link the driver, under the names of its header. */
#define LINKED(name, parameters, ...)                                                              \
    FAKE_API cu_result name parameters;                                                            \
    cu_result name parameters { return __VA_ARGS__; }
LINKED(cuDeviceGet, (cu_device * out, int index), fake_cuDeviceGet(out, index))
LINKED(cuDevicePrimaryCtxRetain, (cu_context * out, cu_device device),
       fake_cuDevicePrimaryCtxRetain(out, device))
LINKED(cuDevicePrimaryCtxRelease_v2, (cu_device device), fake_cuDevicePrimaryCtxRelease(device))
LINKED(cuCtxPushCurrent_v2, (cu_context context), fake_cuCtxPushCurrent(context))
LINKED(cuCtxPopCurrent_v2, (cu_context * out), fake_cuCtxPopCurrent(out))
LINKED(cuCtxGetCurrent, (cu_context * out), fake_cuCtxGetCurrent(out))

#ifndef FAKE_CUDA_OLD /* the variant without it stands for a driver before CUDA 11.3 */
FAKE_API cu_result cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
cu_result cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    static const kn__cuda_api api = {
#define X(fn, since, params) .fn = fake_##fn,
        KN__CUDA_API(X)
#undef X
    };
    *out = NULL;
    if (fake_machine.is_stub) return KN__CU_ERROR_STUB_LIBRARY;
    if (version > fake_machine.driver_version || flags != KN__CU_GET_PROC_LEGACY_STREAM) {
        return INVALID_VALUE;
    }
#define X(fn, since, params)                                                                       \
    if (strcmp(name, #fn) == 0 && version >= (since)) memcpy(out, &api.fn, sizeof *out);
    KN__CUDA_API(X)
#undef X
    if (fake_machine.lacks && strcmp(name, fake_machine.lacks) == 0) *out = NULL;
    return KN__CU_SUCCESS;
}
#endif

/* --- what tests see ------------------------------------------------------------------------ */

fake_cuda_machine *fake_cuda_machine_get(void) { return &fake_machine; }

fake_cuda_counts fake_cuda_count(void) {
    pthread_mutex_lock(&fake.lock);
    fake_cuda_counts counts = {
        .n_calls = fake.n_calls,
        .n_segments = count_kind(SEGMENT) + count_kind(PINNED),
        .n_ranges = count_kind(RANGE),
        .n_handles = count_kind(HANDLE),
        .n_mapped = count_kind(MAPPING),
        .n_streams = count_kind(STREAM),
        .n_events = count_kind(EVENT),
        .n_contexts = fake_thread.n_contexts,
        .capture_mode = fake_thread.capture_mode,
        .n_violations = fake.n_violations,
    };
    for (int i = 0; i < DEVICES_MAX; i++) {
        counts.used_bytes += fake.used_bytes[i];
        counts.n_retained += fake.contexts[i].n_retained;
    }
    pthread_mutex_unlock(&fake.lock);
    return counts;
}

uint64_t fake_cuda_calls(const char *function) {
    uint64_t n = 0;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < FUNCTIONS_MAX && fake.calls[i].name; i++) {
        if (strcmp(fake.calls[i].name, function) == 0) n = fake.calls[i].n;
    }
    pthread_mutex_unlock(&fake.lock);
    return n;
}

const char *fake_cuda_violation(void) { return fake.violation; }

void fake_cuda_reset(void) {
    pthread_mutex_lock(&fake.lock);
    memset(fake.calls, 0, sizeof fake.calls);
    fake.n_calls = 0;
    fake.fail_times = 0;
    fake.n_violations = 0;
    fake.violation[0] = 0;
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_fail(const char *function, int nth, int n_times, cu_result result) {
    pthread_mutex_lock(&fake.lock);
    fake.fail_function = function;
    fake.fail_in = nth;
    fake.fail_times = n_times;
    fake.fail_result = result;
    if (n_times) fake.has_failed = false;
    pthread_mutex_unlock(&fake.lock);
}

bool fake_cuda_has_failed(void) {
    pthread_mutex_lock(&fake.lock);
    bool failed = fake.has_failed;
    pthread_mutex_unlock(&fake.lock);
    return failed;
}

void fake_cuda_hold(cu_stream stream) {
    pthread_mutex_lock(&fake.lock);
    fake_stream_of(stream)->held = true;
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_release(cu_stream stream) {
    pthread_mutex_lock(&fake.lock);
    fake_stream_of(stream)->held = false;
    fake_run_all();
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_capture(cu_stream stream, bool on) {
    pthread_mutex_lock(&fake.lock);
    fake_stream_of(stream)->capturing = on;
    fake.n_capturing += on ? 1 : -1;
    pthread_mutex_unlock(&fake.lock);
}

cu_context fake_cuda_foreign_context(void) { return &fake.contexts[DEVICES_MAX]; }

cu_context fake_cuda_primary_context(int device) { return &fake.contexts[device]; }

void fake_cuda_context_push(cu_context context) {
    fake_thread.stack[fake_thread.n_contexts++] = context;
}

cu_context fake_cuda_context_pop(void) { return fake_thread.stack[--fake_thread.n_contexts]; }
