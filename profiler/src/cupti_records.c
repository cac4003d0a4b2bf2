#include "cupti_records.h"

#include <cupti.h>

_Static_assert(offsetof(CUpti_ActivityKernel9, correlationId) == 92, "layout of kernel records");
_Static_assert(offsetof(CUpti_ActivityKernel9, name) == 104, "layout of kernel records");
_Static_assert(offsetof(CUpti_ActivityKernel9, graphNodeId) == 144, "layout of kernel records");

static const char *name_of_copy(unsigned kind) {
    static const char *const names[] = {"[memcpy]",      "[memcpy HtoD]", "[memcpy DtoH]",
                                        "[memcpy HtoA]", "[memcpy AtoH]", "[memcpy AtoA]",
                                        "[memcpy AtoD]", "[memcpy DtoA]", "[memcpy DtoD]",
                                        "[memcpy HtoH]", "[memcpy PtoP]"};
    return names[kind < sizeof names / sizeof *names ? kind : 0];
}

static const char *name_of_overhead(unsigned kind) {
    static const char *const names[] = {
        "unknown overhead",    "CUPTI buffer flush",   "CUPTI instrumentation",
        "CUPTI resources",     "module loading",       "lazy function loading",
        "command buffer full", "CUPTI buffer request", "managed memory set-up"};
    unsigned at = kind >> 16;
    if (kind == CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER) return "driver's compiler";
    return names[at < sizeof names / sizeof *names ? at : 0];
}

/* What the records of all work say, at a place of its own in each type. */
#define WORK(r)                                                                                    \
    .id = (r)->correlationId, .start_ns = (r)->start, .end_ns = (r)->end, .device = (r)->deviceId, \
    .stream = (r)->streamId

static void read_kernel(kn__record *out, const CUpti_ActivityKernel9 *r) {
    int32_t shared = r->staticSharedMemory + r->dynamicSharedMemory;
    *out = (kn__record){WORK(r),
                        .name = r->name,
                        .graph_node = r->graphNodeId,
                        .grid = {(uint32_t)r->gridX, (uint32_t)r->gridY, (uint32_t)r->gridZ},
                        .block = {(uint32_t)r->blockX, (uint32_t)r->blockY, (uint32_t)r->blockZ},
                        .registers = r->registersPerThread,
                        .shared_bytes = shared > 0 ? (uint32_t)shared : 0};
}

static void read_copy(kn__record *out, const CUpti_ActivityMemcpy5 *r) {
    *out = (kn__record){WORK(r), .name = name_of_copy(r->copyKind), .bytes = r->bytes,
                        .graph_node = r->graphNodeId};
}

static void read_peer_copy(kn__record *out, const CUpti_ActivityMemcpyPtoP4 *r) {
    *out = (kn__record){WORK(r), .name = "[memcpy PtoP]", .bytes = r->bytes,
                        .graph_node = r->graphNodeId};
}

static void read_set(kn__record *out, const CUpti_ActivityMemset4 *r) {
    *out =
        (kn__record){WORK(r), .name = "[memset]", .bytes = r->bytes, .graph_node = r->graphNodeId};
}

static void read_graph(kn__record *out, const CUpti_ActivityGraphTrace2 *r) {
    *out = (kn__record){WORK(r), .name = "[graph]"};
}

/* Records of the host's memory are skipped. */
static bool read_memory(kn__record *out, const CUpti_ActivityMemory4 *r) {
    bool alloc = r->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    *out = (kn__record){.id = r->correlationId,
                        .start_ns = r->timestamp,
                        .device = r->deviceId,
                        .kind = alloc ? KN__RECORD_ALLOC : KN__RECORD_FREE,
                        .bytes = r->bytes,
                        .address = r->address};
    return r->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE ||
           r->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_ARRAY ||
           r->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
}

static void read_overhead(kn__record *out, const CUpti_ActivityOverhead3 *r) {
    *out = (kn__record){.name = name_of_overhead(r->overheadKind),
                        .start_ns = r->start,
                        .end_ns = r->end,
                        .kind = KN__RECORD_OVERHEAD};
}

uint32_t kn__cupti_kind(const void *at) { return ((const CUpti_Activity *)at)->kind; }

bool kn__cupti_read(kn__record *out, const void *at) {
    switch (kn__cupti_kind(at)) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            read_kernel(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            read_copy(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            read_peer_copy(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_MEMSET:
            read_set(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
            read_graph(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            read_overhead(out, at);
            return true;
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return read_memory(out, at);
        default:
            return false;
    }
}

const char **kn__cupti_name(void *at) {
    bool is_kernel = kn__cupti_kind(at) == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    return is_kernel ? (const char **)(void *)&((CUpti_ActivityKernel9 *)at)->name : NULL;
}

/* Of a record of the kind, if all that is read above is to be in it. */
static size_t least_bytes(uint32_t kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            return sizeof(CUpti_ActivityKernel9);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return sizeof(CUpti_ActivityMemcpy5);
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            return sizeof(CUpti_ActivityMemcpyPtoP4);
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return sizeof(CUpti_ActivityMemset4);
        case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
            return sizeof(CUpti_ActivityGraphTrace2);
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            return sizeof(CUpti_ActivityOverhead3);
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return sizeof(CUpti_ActivityMemory4);
        default:
            return sizeof(CUpti_Activity);
    }
}

static size_t whole_size(const void *at, size_t left, const kn__record_sizes *sizes) {
    if (left < sizeof(CUpti_Activity)) return 0;
    uint32_t kind = kn__cupti_kind(at);
    size_t size = kind < KN__KINDS_MAX ? sizes->of[kind] : 0;
    bool whole = size >= least_bytes(kind) && size % _Alignof(CUpti_Activity) == 0;
    return whole && size <= left ? size : 0;
}

/* How far whole records go; *n: how many. */
static const unsigned char *walk_whole(const unsigned char *at, const unsigned char *end,
                                       const kn__record_sizes *sizes, int *n) {
    *n = 0;
    for (size_t size; (size = whole_size(at, (size_t)(end - at), sizes)); at += size) ++*n;
    return at;
}

void *kn__cupti_skip(void *bytes, size_t used, void *at, const kn__record_sizes *sizes) {
    unsigned char *next = at, *end = (unsigned char *)bytes + used;
    for (next += _Alignof(CUpti_Activity); next < end; next += _Alignof(CUpti_Activity)) {
        int n = 0;
        const unsigned char *stop = walk_whole(next, end, sizes, &n);
        bool fits = stop == end ||
                    (end - stop >= (ptrdiff_t)sizeof(CUpti_Activity) && !kn__cupti_kind(stop));
        if (n > 0 && fits) return next;
    }
    return NULL;
}

void *kn__cupti_next(void *bytes, size_t used, void *at, const kn__record_sizes *sizes) {
    unsigned char *next = bytes, *end = next + used;
    if (at) next = (unsigned char *)at + sizes->of[kn__cupti_kind(at)];
    if (end - next < (ptrdiff_t)sizeof(CUpti_Activity)) return NULL;
    if (whole_size(next, (size_t)(end - next), sizes)) return next;
    return kn__cupti_kind(next) ? NULL : kn__cupti_skip(bytes, used, next, sizes);
}

const kn__record_sizes *kn__cupti_sizes(void) {
#if CUPTI_API_VERSION >= 130000
    typedef CUpti_ActivityKernel10 kernel_record;
    typedef CUpti_ActivityMemcpy6 copy_record;
#else
    typedef CUpti_ActivityKernel9 kernel_record;
    typedef CUpti_ActivityMemcpy5 copy_record;
#endif
    static const kn__record_sizes sizes = {
        .of = {[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] = sizeof(kernel_record),
               [CUPTI_ACTIVITY_KIND_MEMCPY] = sizeof(copy_record),
               [CUPTI_ACTIVITY_KIND_MEMCPY2] = sizeof(CUpti_ActivityMemcpyPtoP4),
               [CUPTI_ACTIVITY_KIND_MEMSET] = sizeof(CUpti_ActivityMemset4),
               [CUPTI_ACTIVITY_KIND_GRAPH_TRACE] = sizeof(CUpti_ActivityGraphTrace2),
               [CUPTI_ACTIVITY_KIND_OVERHEAD] = sizeof(CUpti_ActivityOverhead3),
               [CUPTI_ACTIVITY_KIND_MEMORY2] = sizeof(CUpti_ActivityMemory4)}};
    return &sizes;
}
