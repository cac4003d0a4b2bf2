#include "fake_cuda.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    DEVICES_MAX = 4,
    OBJECTS_MAX = 4096,
    CONTEXTS_MAX = 64,
    FUNCTIONS_MAX = 64,
    GRANULARITY = 2 << 20,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    CAPTURE_UNSUPPORTED = 900,
    STUCK = 999
};

typedef enum { SEGMENT = 1, RANGE, HANDLE, MAPPING, EVENT, STREAM } object_kind;

typedef enum { OP_COPY = 1, OP_FILL, OP_RECORD, OP_WAIT } op_kind;
typedef struct op {
    op_kind kind;
    struct op *next;
    void *dst;
    const void *src;
    size_t size_bytes;
    unsigned char byte;
    struct CUevent_st *event;
    uint64_t ticket; /* of the event's record */
} op;

struct CUctx_st {
    int device; /* -1: another library's */
};
struct CUevent_st {
    uint64_t recorded, reached; /* tickets */
};
struct CUstream_st {
    bool held, capturing;
    uint64_t id;
    op *first, **last;
};

typedef struct object {
    object_kind kind; /* 0: free entry */
    int device;
    uint64_t key; /* address or handle */
    size_t size_bytes;
    uint64_t file_offset; /* HANDLE: where its bytes are */
    int n_maps;           /* HANDLE */
    uint64_t handle;      /* MAPPING */
    bool released;        /* HANDLE: lives on while it is mapped */
    bool readable;        /* MAPPING */
} object;

static struct {
    pthread_mutex_t lock;
    bool initialized, dead;
    object objects[OBJECTS_MAX];
    int n_objects; /* entries ever used; none is beyond */
    uint64_t used_bytes[DEVICES_MAX];
    int memory_file; /* all physical memory of handles */
    uint64_t memory_end, next_handle, next_id, next_ticket;
    struct CUctx_st contexts[DEVICES_MAX + 1];
    struct CUstream_st default_stream;
    int n_capturing;

    struct {
        const char *name;
        uint64_t n;
    } calls[FUNCTIONS_MAX];
    uint64_t n_calls;
    const char *fail_function;
    int fail_in, fail_times;
    bool has_failed;
    cu_result fail_result;
    int n_violations;
    char violation[256];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .memory_file = -1};

static fake_cuda_machine machine = {.n_devices = 2,
                                    .driver_version = 13000,
                                    .has_virtual_memory = true,
                                    .capacity_bytes = 1u << 30};

static _Thread_local cu_context context_stack[CONTEXTS_MAX];
static _Thread_local int n_contexts;
static _Thread_local unsigned int capture_mode;

/* --- what every call begins with ---------------------------------------------------------- */

static cu_result violate(cu_result result, const char *fmt, ...) {
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

static cu_result begin(const char *name) {
    pthread_mutex_lock(&fake.lock);
    count_call(name);
    if (fake.dead) return violate(KN__CU_ERROR_DEINITIALIZED, "%s after shutdown", name);
    return scripted(name);
}

static int current_device(void) { return n_contexts ? context_stack[n_contexts - 1]->device : -1; }

static cu_result begin_in_context(const char *name) {
    cu_result result = begin(name);
    if (result != KN__CU_SUCCESS) return result;
    if (!fake.initialized) return KN__CU_ERROR_NOT_INITIALIZED;
    if (current_device() < 0) return violate(INVALID_CONTEXT, "%s outside the context", name);
    return KN__CU_SUCCESS;
}

/* Calls that spoil a capture of another thread, unless the thread's mode is relaxed. */
static cu_result begin_unsafe(const char *name) {
    cu_result result = begin_in_context(name);
    if (result == KN__CU_SUCCESS && fake.n_capturing &&
        capture_mode != KN__CU_CAPTURE_MODE_RELAXED) {
        return violate(CAPTURE_UNSUPPORTED, "%s during a graph capture", name);
    }
    return result;
}

static cu_result end(cu_result result) {
    pthread_mutex_unlock(&fake.lock);
    return result;
}

#define BEGIN(how)                                                                                 \
    do {                                                                                           \
        cu_result begun_ = how(__func__ + sizeof "fake_" - 1);                                     \
        if (begun_ != KN__CU_SUCCESS) return end(begun_);                                          \
    } while (0)
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return end(                                                                            \
                violate(INVALID_VALUE, "%s: not %s", __func__ + sizeof "fake_" - 1, #cond));       \
        }                                                                                          \
    } while (0)

/* --- objects ------------------------------------------------------------------------------ */

static object *find(object_kind kind, uint64_t key) {
    for (int i = 0; i < fake.n_objects; i++) {
        if (fake.objects[i].kind == kind && fake.objects[i].key == key) return &fake.objects[i];
    }
    return NULL;
}

static object *add(object_kind kind, uint64_t key, size_t size_bytes) {
    for (int i = 0; i < OBJECTS_MAX; i++) {
        if (fake.objects[i].kind) continue;
        if (i >= fake.n_objects) fake.n_objects = i + 1;
        fake.objects[i] = (object){
            .kind = kind, .device = current_device(), .key = key, .size_bytes = size_bytes};
        return &fake.objects[i];
    }
    abort(); /* OBJECTS_MAX is for the tests to fit */
}

static int count_kind(object_kind kind) {
    int n = 0;
    for (int i = 0; i < fake.n_objects; i++) n += fake.objects[i].kind == kind;
    return n;
}

/* Any mapping that begins within the range. */
static object *mapping_within(uint64_t at, size_t size_bytes) {
    for (int i = 0; i < fake.n_objects; i++) {
        object *o = &fake.objects[i];
        if (o->kind == MAPPING && o->key < at + size_bytes && at < o->key + o->size_bytes) return o;
    }
    return NULL;
}

static bool inside_range(uint64_t at, size_t size_bytes) {
    for (int i = 0; i < fake.n_objects; i++) {
        object *o = &fake.objects[i];
        if (o->kind == RANGE && o->key <= at && at + size_bytes <= o->key + o->size_bytes) {
            return true;
        }
    }
    return false;
}

static bool has_room(size_t size_bytes) {
    return size_bytes <= machine.capacity_bytes - fake.used_bytes[current_device()];
}

static void *host(cu_ptr ptr) { return (void *)(uintptr_t)ptr; }

static void *reserve_host(size_t size_bytes, size_t alignment, int protection) {
    char *base = mmap(NULL, size_bytes + alignment, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t head = (alignment - (uintptr_t)base % alignment) % alignment;
    if (head) munmap(base, head);
    munmap(base + head + size_bytes, alignment - head);
    return base + head;
}

/* --- start, errors, devices --------------------------------------------------------------- */

static cu_result fake_cuInit(unsigned int flags) {
    BEGIN(begin);
    REQUIRE(flags == 0);
    if (machine.init_result != KN__CU_SUCCESS) return end(machine.init_result);
    fake.initialized = true;
    for (int i = 0; i <= DEVICES_MAX; i++) fake.contexts[i].device = i < DEVICES_MAX ? i : -1;
    fake.memory_file = memfd_create("fake_cuda", MFD_CLOEXEC);
    return end(KN__CU_SUCCESS);
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
static cu_result fake_cuGetErrorName(cu_result result, const char **out) {
    const char *text = NULL;
    return error_lookup(result, out, &text);
}

static cu_result fake_cuGetErrorString(cu_result result, const char **out) {
    const char *name = NULL;
    return error_lookup(result, &name, out);
}

static cu_result fake_cuDriverGetVersion(int *out) {
    *out = machine.driver_version;
    return KN__CU_SUCCESS;
}

static cu_result fake_cuDeviceGetCount(int *out) {
    BEGIN(begin);
    REQUIRE(fake.initialized);
    *out = machine.n_devices;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuDeviceGet(cu_device *out, int index) {
    BEGIN(begin);
    REQUIRE(index >= 0 && index < machine.n_devices);
    *out = index;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuDeviceGetName(char *out, int out_bytes, cu_device device) {
    BEGIN(begin);
    snprintf(out, (size_t)out_bytes, "Fake GPU %d", device);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuDeviceGetAttribute(int *out, unsigned int attribute, cu_device device) {
    BEGIN(begin);
    REQUIRE(device >= 0 && device < machine.n_devices);
    *out = attribute == KN__CU_ATTRIBUTE_COMPUTE_MAJOR ? 9 : 0;
    if (attribute == KN__CU_ATTRIBUTE_VIRTUAL_MEMORY) *out = machine.has_virtual_memory;
    return end(KN__CU_SUCCESS);
}

/* --- contexts ----------------------------------------------------------------------------- */

static cu_result fake_cuDevicePrimaryCtxRetain(cu_context *out, cu_device device) {
    BEGIN(begin);
    *out = &fake.contexts[device];
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuCtxGetCurrent(cu_context *out) {
    BEGIN(begin);
    *out = n_contexts ? context_stack[n_contexts - 1] : NULL;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuCtxPushCurrent(cu_context context) {
    BEGIN(begin);
    REQUIRE(n_contexts < CONTEXTS_MAX);
    context_stack[n_contexts++] = context;
    return end(KN__CU_SUCCESS);
}

/* Pops even when it is scripted to fail, as the driver does: it may only pass on older errors. */
static cu_result fake_cuCtxPopCurrent(cu_context *out) {
    cu_result result = begin("cuCtxPopCurrent");
    if (result == KN__CU_ERROR_DEINITIALIZED) return end(result);
    REQUIRE(n_contexts > 0);
    *out = context_stack[--n_contexts];
    return end(result);
}

static cu_result fake_cuThreadExchangeStreamCaptureMode(unsigned int *mode) {
    BEGIN(begin);
    unsigned int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return end(KN__CU_SUCCESS);
}

/* --- memory ------------------------------------------------------------------------------- */

static cu_result fake_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    BEGIN(begin_in_context);
    *free_bytes = machine.capacity_bytes - fake.used_bytes[current_device()];
    *total_bytes = machine.capacity_bytes;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemAlloc(cu_ptr *out, size_t size_bytes) {
    BEGIN(begin_unsafe);
    REQUIRE(size_bytes > 0);
    if (!has_room(size_bytes)) return end(KN__CU_ERROR_OUT_OF_MEMORY);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_READ | PROT_WRITE);
    if (!ptr) return end(KN__CU_ERROR_OUT_OF_MEMORY);
    fake.used_bytes[current_device()] += size_bytes;
    *out = (cu_ptr)(uintptr_t)ptr;
    add(SEGMENT, *out, size_bytes);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemFree(cu_ptr ptr) {
    BEGIN(begin_unsafe);
    object *segment = find(SEGMENT, ptr);
    REQUIRE(segment);
    munmap(host(ptr), segment->size_bytes);
    fake.used_bytes[segment->device] -= segment->size_bytes;
    segment->kind = 0;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemGetAllocationGranularity(size_t *out, const cu_mem_prop *prop,
                                                    unsigned int option) {
    BEGIN(begin);
    REQUIRE(prop->type == KN__CU_MEM_TYPE_PINNED && option == KN__CU_MEM_GRANULARITY_MINIMUM);
    *out = GRANULARITY;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemAddressReserve(cu_ptr *out, size_t size_bytes, size_t alignment,
                                          cu_ptr at, unsigned long long flags) {
    BEGIN(begin_in_context);
    REQUIRE(size_bytes > 0 && size_bytes % GRANULARITY == 0);
    REQUIRE(at == 0 && flags == 0 && alignment % GRANULARITY == 0);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_NONE);
    if (!ptr) return end(KN__CU_ERROR_OUT_OF_MEMORY);
    *out = (cu_ptr)(uintptr_t)ptr;
    add(RANGE, *out, size_bytes);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemAddressFree(cu_ptr ptr, size_t size_bytes) {
    BEGIN(begin_in_context);
    object *range = find(RANGE, ptr);
    REQUIRE(range && range->size_bytes == size_bytes);
    REQUIRE(!mapping_within(ptr, size_bytes));
    munmap(host(ptr), size_bytes);
    range->kind = 0;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemCreate(cu_handle *out, size_t size_bytes, const cu_mem_prop *prop,
                                  unsigned long long flags) {
    BEGIN(begin_unsafe);
    REQUIRE(size_bytes > 0 && size_bytes % GRANULARITY == 0 && flags == 0);
    REQUIRE(prop->type == KN__CU_MEM_TYPE_PINNED && prop->location.id == current_device());
    if (!has_room(size_bytes)) return end(KN__CU_ERROR_OUT_OF_MEMORY);
    object *handle = add(HANDLE, ++fake.next_handle, size_bytes);
    handle->file_offset = fake.memory_end;
    fake.memory_end += size_bytes;
    if (ftruncate(fake.memory_file, (off_t)fake.memory_end) != 0) abort();
    fake.used_bytes[handle->device] += size_bytes;
    *out = handle->key;
    return end(KN__CU_SUCCESS);
}

/* The bytes go when the handle is neither held nor mapped. */
static void drop_handle(object *handle) {
    if (!handle->released || handle->n_maps) return;
    fake.used_bytes[handle->device] -= handle->size_bytes;
    handle->kind = 0;
}

static cu_result fake_cuMemRelease(cu_handle key) {
    BEGIN(begin_in_context);
    object *handle = find(HANDLE, key);
    REQUIRE(handle && !handle->released);
    handle->released = true;
    drop_handle(handle);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemMap(cu_ptr at, size_t size_bytes, size_t offset, cu_handle key,
                               unsigned long long flags) {
    BEGIN(begin_in_context);
    object *handle = find(HANDLE, key);
    REQUIRE(handle && !handle->released && offset == 0 && flags == 0);
    REQUIRE(size_bytes == handle->size_bytes);
    REQUIRE(inside_range(at, size_bytes) && !mapping_within(at, size_bytes));
    object *mapping = add(MAPPING, at, size_bytes);
    mapping->handle = key;
    handle->n_maps++;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemSetAccess(cu_ptr at, size_t size_bytes, const cu_mem_access *access,
                                     size_t n) {
    BEGIN(begin_in_context);
    object *mapping = find(MAPPING, at);
    REQUIRE(mapping && mapping->size_bytes == size_bytes && n == 1);
    REQUIRE(access->flags == KN__CU_MEM_ACCESS_READWRITE);
    object *handle = find(HANDLE, mapping->handle);
    REQUIRE(handle && access->location.id == handle->device);
    void *got = mmap(host(at), size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     fake.memory_file, (off_t)handle->file_offset);
    if (got == MAP_FAILED) abort();
    mapping->readable = true;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemUnmap(cu_ptr at, size_t size_bytes) {
    BEGIN(begin_in_context);
    object *mapping = find(MAPPING, at);
    REQUIRE(mapping && mapping->size_bytes == size_bytes);
    if (mmap(host(at), size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        abort();
    }
    object *handle = find(HANDLE, mapping->handle);
    mapping->kind = 0;
    handle->n_maps--;
    drop_handle(handle);
    return end(KN__CU_SUCCESS);
}

/* --- streams: queues of work, run at once unless held -------------------------------------- */

static cu_stream stream_of(cu_stream stream) { return stream ? stream : &fake.default_stream; }

static bool known(cu_stream stream) {
    return stream == &fake.default_stream || find(STREAM, (uint64_t)(uintptr_t)stream);
}

static bool run_first(cu_stream stream) {
    op *work = stream->first;
    if (!work || stream->held) return false;
    if (work->kind == OP_WAIT && work->event->reached < work->ticket) return false;
    if (work->kind == OP_COPY) memmove(work->dst, work->src, work->size_bytes);
    if (work->kind == OP_FILL) memset(work->dst, work->byte, work->size_bytes);
    if (work->kind == OP_RECORD && work->event->reached < work->ticket) {
        work->event->reached = work->ticket;
    }
    stream->first = work->next;
    if (!stream->first) stream->last = &stream->first;
    free(work);
    return true;
}

static void run_all(void) {
    for (bool progress = true; progress;) {
        progress = run_first(&fake.default_stream);
        for (int i = 0; i < fake.n_objects; i++) {
            if (fake.objects[i].kind != STREAM) continue;
            while (run_first(host(fake.objects[i].key))) progress = true;
        }
    }
}

static void enqueue(cu_stream stream, op work) {
    op *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = work;
    copy->next = NULL;
    if (!stream->first) stream->last = &stream->first;
    *stream->last = copy;
    stream->last = &copy->next;
    run_all();
}

static cu_result fake_cuStreamCreate(cu_stream *out, unsigned int flags) {
    BEGIN(begin_in_context);
    REQUIRE(flags == KN__CU_STREAM_NON_BLOCKING);
    cu_stream stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    stream->id = ++fake.next_id + 100;
    add(STREAM, (uint64_t)(uintptr_t)stream, 0);
    *out = stream;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuStreamDestroy(cu_stream stream) {
    BEGIN(begin_in_context);
    object *known_stream = find(STREAM, (uint64_t)(uintptr_t)stream);
    REQUIRE(known_stream && !stream->first);
    known_stream->kind = 0;
    free(stream);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuStreamSynchronize(cu_stream stream) {
    BEGIN(begin_unsafe);
    stream = stream_of(stream);
    REQUIRE(known(stream));
    run_all();
    if (stream->first) return end(violate(STUCK, "cuStreamSynchronize would never return"));
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuStreamGetId(cu_stream stream, unsigned long long *out) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(known(stream));
    *out = stream->id;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuStreamIsCapturing(cu_stream stream, unsigned int *out) {
    BEGIN(begin_in_context);
    if (!stream && fake.n_capturing) return end(KN__CU_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream = stream_of(stream);
    REQUIRE(known(stream));
    *out = stream->capturing;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemcpyHtoDAsync(cu_ptr dst, const void *src, size_t size_bytes,
                                        cu_stream stream) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream, (op){.kind = OP_COPY, .dst = host(dst), .src = src, .size_bytes = size_bytes});
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemcpyDtoHAsync(void *dst, cu_ptr src, size_t size_bytes,
                                        cu_stream stream) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream, (op){.kind = OP_COPY, .dst = dst, .src = host(src), .size_bytes = size_bytes});
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemcpyDtoDAsync(cu_ptr dst, cu_ptr src, size_t size_bytes,
                                        cu_stream stream) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream,
            (op){.kind = OP_COPY, .dst = host(dst), .src = host(src), .size_bytes = size_bytes});
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuMemsetD8Async(cu_ptr dst, unsigned char byte, size_t size_bytes,
                                      cu_stream stream) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream,
            (op){.kind = OP_FILL, .dst = host(dst), .byte = byte, .size_bytes = size_bytes});
    return end(KN__CU_SUCCESS);
}

/* --- events ------------------------------------------------------------------------------- */

static cu_result fake_cuEventCreate(cu_event *out, unsigned int flags) {
    BEGIN(begin_in_context);
    REQUIRE(flags == KN__CU_EVENT_DISABLE_TIMING);
    cu_event event = calloc(1, sizeof *event);
    if (!event) abort();
    add(EVENT, (uint64_t)(uintptr_t)event, 0);
    *out = event;
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuEventDestroy(cu_event event) {
    BEGIN(begin_in_context);
    object *known_event = find(EVENT, (uint64_t)(uintptr_t)event);
    REQUIRE(known_event);
    REQUIRE(event->reached == event->recorded);
    known_event->kind = 0;
    free(event);
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuEventRecord(cu_event event, cu_stream stream) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(find(EVENT, (uint64_t)(uintptr_t)event) && known(stream));
    event->recorded = ++fake.next_ticket;
    enqueue(stream, (op){.kind = OP_RECORD, .event = event, .ticket = event->recorded});
    return end(KN__CU_SUCCESS);
}

static cu_result fake_cuEventQuery(cu_event event) {
    BEGIN(begin_unsafe);
    REQUIRE(find(EVENT, (uint64_t)(uintptr_t)event));
    return end(event->reached == event->recorded ? KN__CU_SUCCESS : KN__CU_ERROR_NOT_READY);
}

static cu_result fake_cuEventSynchronize(cu_event event) {
    BEGIN(begin_unsafe);
    REQUIRE(find(EVENT, (uint64_t)(uintptr_t)event));
    if (event->reached == event->recorded) return end(KN__CU_SUCCESS);
    return end(violate(STUCK, "cuEventSynchronize would never return"));
}

static cu_result fake_cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags) {
    BEGIN(begin_in_context);
    stream = stream_of(stream);
    REQUIRE(find(EVENT, (uint64_t)(uintptr_t)event) && known(stream) && flags == 0);
    enqueue(stream, (op){.kind = OP_WAIT, .event = event, .ticket = event->recorded});
    return end(KN__CU_SUCCESS);
}

/* --- what the loader sees ------------------------------------------------------------------ */

FAKE_API cu_result cuDriverGetVersion(int *out);
cu_result cuDriverGetVersion(int *out) { return fake_cuDriverGetVersion(out); }

#ifdef FAKE_CUDA_OLD /* the variant that stands for a driver before CUDA 12 */
#define cuGetProcAddress_v2 cuGetProcAddress
#endif
FAKE_API cu_result cuGetProcAddress_v2(const char *name, void **out, int version,
                                       unsigned long long flags, unsigned int *found);
cu_result cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags,
                              unsigned int *found) {
    static const kn__cuda_api api = {
#define X(fn, since, params) .fn = fake_##fn,
        KN__CUDA_API(X)
#undef X
    };
    *out = NULL;
    *found = 1;
    if (version > machine.driver_version || flags != KN__CU_GET_PROC_LEGACY_STREAM) {
        return INVALID_VALUE;
    }
#define X(fn, since, params)                                                                       \
    if (strcmp(name, #fn) == 0 && version >= (since)) {                                            \
        memcpy(out, &api.fn, sizeof *out);                                                         \
        *found = 0;                                                                                \
    }
    KN__CUDA_API(X)
#undef X
    return KN__CU_SUCCESS;
}

/* --- what tests see ------------------------------------------------------------------------ */

fake_cuda_machine *fake_cuda_machine_get(void) { return &machine; }

fake_cuda_counts fake_cuda_count(void) {
    pthread_mutex_lock(&fake.lock);
    fake_cuda_counts counts = {
        .n_calls = fake.n_calls,
        .n_segments = count_kind(SEGMENT),
        .n_ranges = count_kind(RANGE),
        .n_handles = count_kind(HANDLE),
        .n_mapped = count_kind(MAPPING),
        .n_streams = count_kind(STREAM),
        .n_events = count_kind(EVENT),
        .n_contexts = n_contexts,
        .n_violations = fake.n_violations,
    };
    for (int i = 0; i < DEVICES_MAX; i++) counts.used_bytes += fake.used_bytes[i];
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
    stream_of(stream)->held = true;
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_release(cu_stream stream) {
    pthread_mutex_lock(&fake.lock);
    stream_of(stream)->held = false;
    run_all();
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_capture(cu_stream stream, bool on) {
    pthread_mutex_lock(&fake.lock);
    stream_of(stream)->capturing = on;
    fake.n_capturing += on ? 1 : -1;
    pthread_mutex_unlock(&fake.lock);
}

cu_context fake_cuda_foreign_context(void) { return &fake.contexts[DEVICES_MAX]; }

cu_context fake_cuda_primary_context(int device) { return &fake.contexts[device]; }

void fake_cuda_context_push(cu_context context) { context_stack[n_contexts++] = context; }

cu_context fake_cuda_context_pop(void) { return context_stack[--n_contexts]; }
