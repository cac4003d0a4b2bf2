#include "mock_cupti.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { RECORDS_MAX = 1 << 16, NODE_COPY = 1000, OWN_MAX = 512 };

/* Calls by domain and number, as the real library lists them. */
static const char *const call_names[3][520] = {
    [CUPTI_CB_DOMAIN_DRIVER_API] = {[1] = "cuCtxSynchronize",
                                    [276] = "cuMemcpyHtoD_v2",
                                    [243] = "cuMemAlloc_v2",
                                    [245] = "cuMemFree_v2",
                                    [307] = "cuLaunchKernel",
                                    [500] = "cuLaunchHostFunc",
                                    [514] = "cuGraphLaunch"},
    [CUPTI_CB_DOMAIN_RUNTIME_API] = {[2] = "cudaGetDevice_v3020",
                                     [20] = "cudaMalloc_v3020",
                                     [22] = "cudaFree_v3020",
                                     [31] = "cudaMemcpy_v3020",
                                     [165] = "cudaDeviceSynchronize_v3020",
                                     [211] = "cudaLaunchKernel_v7000",
                                     [311] = "cudaGraphLaunch_v10000"}};
typedef struct call {
    uint32_t runtime, driver;
} call;
static const call kernel_call = {211, 307}, graph_call = {311, 514}, malloc_call = {20, 243},
                  free_call = {22, 245}, sync_call = {165, 1}, quiet_call = {2, 0},
                  copy_call = {31, 276};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static CUpti_CallbackFunc callback;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static bool enabled_calls[4][1024], enabled_kinds[64];
static uint32_t next_id = 100;
static uint64_t now = 1000000, n_dropped, n_records_made, random_state = 88172645463325252u;
static int n_calls;

/* The layouts that this version of CUPTI writes. */
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
typedef CUpti_ActivityMemcpy6 copy_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
typedef CUpti_ActivityMemcpy5 copy_record;
#endif

typedef union record {
    CUpti_Activity any;
    kernel_record kernel;
    copy_record copy;
    CUpti_ActivityMemcpyPtoP4 peer;
    CUpti_ActivityMemset4 set;
    CUpti_ActivityGraphTrace2 graph;
    CUpti_ActivityMemory4 memory;
    CUpti_ActivityOverhead3 overhead;
} record;

static record records[RECORDS_MAX];
static size_t n_records;

/* With "own": the buffer that a thread fills. */
typedef struct own_buffer {
    uint8_t *bytes; /* NULL: none */
    size_t size, used;
} own_buffer;
static own_buffer own_buffers[OWN_MAX];
static int n_own;
static _Thread_local own_buffer *mine;

static bool is_child;

/* Another thread of the parent may have held it. */
static void unlock_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    is_child = true;
}

__attribute__((constructor)) static void load(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

static bool has_word(const char *word) {
    const char *list = getenv("MOCK_CUPTI");
    return list && strstr(list, word);
}

static int word_value(const char *word) {
    const char *list = getenv("MOCK_CUPTI"), *at = list ? strstr(list, word) : NULL;
    return at ? atoi(at + strlen(word)) : 0;
}

static uint64_t n_flushes, n_made;
static bool is_torn_down;
static CUcontext the_context = (CUcontext)(void *)&callback;

/* Of the driver that the program has loaded. */
static void *driver_symbol(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, name) : NULL;
    if (driver) dlclose(driver);
    return symbol;
}

static bool has_ended(void) {
    const int *n_syncs = driver_symbol("mock_cuda_n_syncs");
    return !has_word("unsynced") || (n_syncs && *n_syncs > 0);
}

/* CUDA's own handler, which its first call sets. */
static void tear_down(void) { is_torn_down = has_word("teardown"); }
static void hook_exit(void) { atexit(tear_down); }

static CUptiResult called(void) {
    n_calls++;
    return n_calls == word_value("fail=") ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

static uint64_t random_below(uint64_t n) { /* xorshift64 */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* --- calls that the profiler makes --- */

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version) {
    *version = word_value("version=") ? (uint32_t)word_value("version=") : 130001;
    if (has_word("wrap")) next_id = UINT32_MAX - 1500;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text) {
    *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc fn,
                                           void *user) {
    (void)user;
    const char *tool = getenv("NVTX_INJECTION64_PATH");
    if (has_word("nodriver")) return CUPTI_ERROR_UNKNOWN;
    if (has_word("order") && dlopen(tool, RTLD_NOW | RTLD_NOLOAD)) return CUPTI_ERROR_UNKNOWN;
    if (has_word("held")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    callback = fn;
    *handle = (CUpti_SubscriberHandle)(void *)&callback;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc fn,
                                              void *user, CUpti_SubscriberParams *params) {
    if (!has_word("held")) return cuptiSubscribe(handle, fn, user);
    if (has_word("anonymous")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    snprintf(params->oldSubscriberName, params->oldSubscriberSize, "Nsight Systems");
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    (void)handle;
    callback = NULL;
    if (has_word("report")) fprintf(stderr, "mock: unsubscribed\n");
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                                 const char **name) {
    if (id >= 520) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = call_names[domain][id] ? call_names[domain][id] : "cudaGetLastError_v3020";
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
    *id = (uint64_t)(uintptr_t)node;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle handle,
                                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    (void)handle;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE && (int)id == word_value("refuse=")) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    enabled_calls[domain][id] = on;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request_fn, CUpti_BuffersCallbackCompleteFunc complete_fn) {
    request = request_fn;
    complete = complete_fn;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute,
                                                      size_t *size, void *value) {
    (void)attribute, (void)size, (void)value;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
    enabled_kinds[kind] = true;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
    enabled_kinds[kind] = false;
    if (has_word("report")) fprintf(stderr, "mock: disabled %d\n", (int)kind);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream,
                                                              size_t *n) {
    (void)context, (void)stream;
    pthread_mutex_lock(&lock);
    *n = n_dropped;
    n_dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

static size_t size_of(CUpti_ActivityKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            return sizeof(kernel_record);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return sizeof(copy_record);
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            return sizeof(CUpti_ActivityMemcpyPtoP4);
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return sizeof(CUpti_ActivityMemset4);
        case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
            return sizeof(CUpti_ActivityGraphTrace2);
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return sizeof(CUpti_ActivityMemory4);
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            return sizeof(CUpti_ActivityOverhead3);
        default:
            return 0;
    }
}

/* The real library walks buffers without a driver: both must agree on where records begin. */
static __typeof__(&cuptiActivityGetNextRecord) real_walk(void) {
    __typeof__(&cuptiActivityGetNextRecord) walk = NULL;
    void *library = has_word("real") ? dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) *(void **)(void *)&walk = dlsym(library, "cuptiActivityGetNextRecord");
    return walk;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *bytes, size_t used,
                                                       CUpti_Activity **at) {
    __typeof__(&cuptiActivityGetNextRecord) walk = real_walk();
    if (walk) return walk(bytes, used, at);
    if (!*at && has_word("slow")) usleep(2000);
    uint8_t *next = *at ? (uint8_t *)*at + size_of((*at)->kind) : bytes;
    if (next + sizeof(CUpti_Activity) > bytes + used) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *at = (CUpti_Activity *)(void *)next;
    return size_of((*at)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

/* The timer said that its buffers come zeroed. To a child it hands out none. */
static void request_zeroed(uint8_t **bytes, size_t *size) {
    size_t max = 0;
    request(bytes, size, &max);
    if (*bytes && is_child) abort();
    for (size_t i = 0; *bytes && i < *size; i++) {
        if ((*bytes)[i]) abort();
    }
}

/* Puts a record into a buffer; of one that is not complete there is the space alone. */
static void put(uint8_t *at, const record *r) {
    int every = word_value("incomplete=");
    static uint64_t n_put;
    if (!every || ++n_put % (uint64_t)every) memcpy(at, r, size_of(r->any.kind));
}

/* Fills one buffer with at most n records, taken at random; returns how many. The lock is not held
 * across callbacks. */
static size_t deliver(size_t n) {
    uint8_t *bytes = NULL;
    size_t size = 0, used = 0;
    request_zeroed(&bytes, &size);
    if (bytes && has_word("full")) { /* as if there were none */
        complete(NULL, 0, bytes, size, 0);
        bytes = NULL;
    }
    pthread_mutex_lock(&lock);
    size_t n_done = 0;
    for (; n_done < n && n_records; n_done++) {
        size_t i = (size_t)random_below(n_records), length = size_of(records[i].any.kind);
        if (bytes && used + length > size) break;
        if (bytes) put(bytes + used, &records[i]);
        n_dropped += !bytes;
        used += length;
        records[i] = records[--n_records];
    }
    pthread_mutex_unlock(&lock);
    if (bytes) complete(NULL, 0, bytes, size, used);
    return n_done;
}

/* Takes the thread's buffer away from it and completes it. */
static void complete_own(own_buffer *b) {
    pthread_mutex_lock(&lock);
    own_buffer full = *b;
    *b = (own_buffer){0};
    pthread_mutex_unlock(&lock);
    if (full.bytes) complete(NULL, 0, full.bytes, full.size, full.used);
}

static void keep_own(const record *r) {
    size_t length = size_of(r->any.kind);
    if (!enabled_kinds[r->any.kind]) return;
    pthread_mutex_lock(&lock);
    if (!mine) mine = &own_buffers[n_own++];
    if (!mine->bytes || mine->used + length > mine->size) {
        own_buffer b = {0};
        pthread_mutex_unlock(&lock);
        complete_own(mine);
        request_zeroed(&b.bytes, &b.size);
        pthread_mutex_lock(&lock);
        *mine = b; /* the thread's own: a flush finds none meanwhile */
    }
    if (mine->bytes) {
        put(mine->bytes + mine->used, r);
        mine->used += length;
    } else {
        n_dropped++;
    }
    pthread_mutex_unlock(&lock);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flags) {
    for (int i = 0; i < OWN_MAX && has_word("own"); i++) complete_own(&own_buffers[i]);
    pthread_mutex_lock(&lock);
    n_flushes++;
    if (is_torn_down) n_records = 0;
    size_t n = has_ended() ? n_records : 0;
    if (has_word("late") && !(flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)) {
        n = n ? (size_t)random_below(n) : 0;
    }
    pthread_mutex_unlock(&lock);
    while (n > 0) {
        size_t most = has_word("split") ? 130 : 700, done = deliver(n > most ? most : n);
        if (!done) break;
        n -= done;
    }
    return CUPTI_SUCCESS;
}

/* --- calls that the program makes --- */

typedef struct work {
    mock_kind kind;
    const char *name;
    uint64_t start, end, node;
    uint32_t id;
} work;

static void fill(record *r, const work *w) {
    memset(r, 0, sizeof *r);
    if (w->kind == MOCK_KERNEL) {
        r->any.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        r->kernel.start = w->start, r->kernel.end = w->end, r->kernel.correlationId = w->id;
        r->kernel.name = w->name, r->kernel.graphNodeId = w->node;
    } else if (w->kind == MOCK_COPY) {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
        r->copy.start = w->start, r->copy.end = w->end, r->copy.correlationId = w->id;
        r->copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, r->copy.bytes = 4096;
    } else if (w->kind == MOCK_PEER_COPY) {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
        r->peer.start = w->start, r->peer.end = w->end, r->peer.correlationId = w->id;
    } else if (w->kind == MOCK_GRAPH) {
        r->any.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
        r->graph.start = w->start, r->graph.end = w->end, r->graph.correlationId = w->id;
    } else {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMSET;
        r->set.start = w->start, r->set.end = w->end, r->set.correlationId = w->id;
        r->set.bytes = 512;
    }
}

/* Under the lock. */
static void keep(const record *r) {
    int drop = word_value("drop=");
    n_made += enabled_kinds[r->any.kind];
    if (!enabled_kinds[r->any.kind]) return;
    if (n_records == RECORDS_MAX || (drop && ++n_records_made % (uint64_t)drop == 0)) {
        n_dropped++;
    } else {
        records[n_records++] = *r;
    }
}

static void add_work(work w, uint64_t ns) {
    record r;
    pthread_mutex_lock(&lock);
    now += 10;
    if (!has_word("zero")) w.start = now, w.end = now + ns;
    fill(&r, &w);
    if (has_word("own")) {
        pthread_mutex_unlock(&lock);
        keep_own(&r);
        return;
    }
    keep(&r);
    if (has_word("twice")) keep(&r);
    pthread_mutex_unlock(&lock);
}

static void add_overhead(void) {
    record r = {.overhead = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                             .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH,
                             .start = now,
                             .end = now + 5000}};
    pthread_mutex_lock(&lock);
    keep(&r);
    pthread_mutex_unlock(&lock);
}

static void *call_arguments; /* of the call that is under way */

static void fire(CUpti_CallbackDomain domain, uint32_t cbid, CUpti_ApiCallbackSite site,
                 uint32_t id, int *result) {
    CUpti_CallbackData data = {.callbackSite = site,
                               .correlationId = id,
                               .functionReturnValue = result,
                               .functionParams = call_arguments,
                               .context = the_context};
    if (callback && enabled_calls[domain][cbid]) callback(NULL, domain, cbid, &data);
}

/* The ids of a call of the runtime and the call of the driver inside it; the one that its records
 * carry. */
typedef struct ids {
    uint32_t runtime, driver, record;
} ids;

static ids enter(call c) {
    static pthread_once_t first = PTHREAD_ONCE_INIT;
    pthread_once(&first, hook_exit);
    pthread_mutex_lock(&lock);
    ids i = {next_id, next_id + 1, has_word("driver") ? next_id + 1 : next_id};
    next_id += 2;
    pthread_mutex_unlock(&lock);
    fire(CUPTI_CB_DOMAIN_RUNTIME_API, c.runtime, CUPTI_API_ENTER, i.runtime, NULL);
    if (c.driver) fire(CUPTI_CB_DOMAIN_DRIVER_API, c.driver, CUPTI_API_ENTER, i.driver, NULL);
    return i;
}

static void leave(call c, ids i, int error) {
    if (c.driver) fire(CUPTI_CB_DOMAIN_DRIVER_API, c.driver, CUPTI_API_EXIT, i.driver, &error);
    fire(CUPTI_CB_DOMAIN_RUNTIME_API, c.runtime, CUPTI_API_EXIT, i.runtime, &error);
}

EXPORT void mock_launch(mock_kind kind, const char *name, uint64_t ns, int error) {
    ids i = enter(kernel_call);
    if (!error) add_work((work){.kind = kind, .name = name, .id = i.record}, ns);
    leave(kernel_call, i, error);
}

/* --- graphs --- */

static void *handle(uint64_t number) { return (void *)(uintptr_t)number; }

static void fire_resource(CUpti_CallbackId what, CUpti_GraphData graph) {
    CUpti_ResourceData data = {.context = the_context, .resourceDescriptor = &graph};
    if (callback && enabled_calls[CUPTI_CB_DOMAIN_RESOURCE][what]) {
        callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, what, &data);
    }
}

EXPORT void mock_capture(uint64_t graph, uint64_t node) {
    ids i = enter(kernel_call);
    fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                  (CUpti_GraphData){.graph = handle(graph), .node = handle(node)});
    leave(kernel_call, i, 0);
}

/* "noexec": the nodes are copied into a graph of CUPTI's own, before the executable one is there.
 */
EXPORT void mock_instantiate(uint64_t graph, uint64_t first, uint64_t last) {
    bool late = has_word("noexec");
    CUpti_GraphData exec = {.graph = handle(graph), .graphExec = handle(graph + NODE_COPY)};
    fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING,
                  (CUpti_GraphData){.graph = handle(graph)});
    for (uint64_t node = first; node <= last; node++) {
        fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                      (CUpti_GraphData){.graph = handle(late ? graph + 1 : graph),
                                        .originalGraph = handle(graph),
                                        .node = handle(node + NODE_COPY),
                                        .originalNode = handle(node),
                                        .graphExec = late ? NULL : exec.graphExec});
    }
    fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, exec);
}

EXPORT void mock_replay(uint64_t first, uint64_t last, uint64_t ns) {
    ids i = enter(graph_call);
    for (uint64_t node = first; node <= last; node++) {
        add_work((work){.kind = MOCK_KERNEL,
                        .name = "graph_kernel",
                        .id = i.record,
                        .node = node + NODE_COPY},
                 ns);
    }
    add_work((work){.kind = MOCK_GRAPH, .id = i.record}, ns * (last - first + 1));
    leave(graph_call, i, 0);
}

EXPORT void mock_destroy(uint64_t graph, uint64_t node) {
    if (node) {
        fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
                      (CUpti_GraphData){.graph = handle(graph), .node = handle(node)});
    } else {
        fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
                      (CUpti_GraphData){.graphExec = handle(graph + NODE_COPY)});
        fire_resource(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
                      (CUpti_GraphData){.graph = handle(graph)});
    }
}

/* --- memory and waiting --- */

EXPORT void mock_memory(uint64_t address, uint64_t bytes, int is_alloc) {
    call c = is_alloc ? malloc_call : free_call;
    ids i = enter(c);
    record r = {
        .memory = {.kind = CUPTI_ACTIVITY_KIND_MEMORY2,
                   .memoryOperationType = is_alloc ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                                                   : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE,
                   .memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                   .correlationId = i.record,
                   .address = address,
                   .bytes = bytes}};
    pthread_mutex_lock(&lock);
    r.memory.timestamp = ++now;
    keep(&r);
    pthread_mutex_unlock(&lock);
    leave(c, i, 0);
}

EXPORT void mock_sync(void) {
    ids i = enter(quiet_call);
    leave(quiet_call, i, 0);
    i = enter(sync_call);
    usleep(1);
    leave(sync_call, i, 0);
    add_overhead();
}

EXPORT void mock_copy(uint64_t bytes) {
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } arguments = {&records, &records, bytes};
    call_arguments = &arguments;
    ids i = enter(copy_call);
    if (bytes) add_work((work){.kind = MOCK_COPY, .id = i.record}, bytes);
    leave(copy_call, i, 0);
    call_arguments = NULL;
}

EXPORT void mock_destroy_context(void) {
    CUpti_ResourceData data = {.context = the_context};
    const void **destroyed = driver_symbol("mock_cuda_destroyed");
    if (callback &&
        enabled_calls[CUPTI_CB_DOMAIN_RESOURCE][CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING]) {
        callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
                 &data);
    }
    if (destroyed) *destroyed = the_context;
}

static uint64_t read_count(const uint64_t *count) {
    pthread_mutex_lock(&lock);
    uint64_t n = *count;
    pthread_mutex_unlock(&lock);
    return n;
}

EXPORT uint64_t mock_flushes(void) { return read_count(&n_flushes); }
EXPORT uint64_t mock_made(void) { return read_count(&n_made); }
