#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "budget.h"
#include "calls.h"
#include "cupti_find.h"
#include "cupti_records.h"
#include "cupti_source.h"
#include "graph.h"
#include "memory.h"
#include "replay.h"
#include "scope.h"
#include "thread.h"

enum {
    /* CUPTI fills one for each thread that launches, while the drain has another of each. */
    BUFFER_BYTES = 1 << 16,
    BATCH = 256,
    CONTEXTS_MAX = 16,
    CALLS_MAX = 1024, /* of the runtime and of the driver each */
    LABEL_BYTES = 64,
    SAMPLES = 64, /* one callback of so many is timed */
    PERIOD_NS = 100 * 1000 * 1000
};
static const uint64_t WAIT_NS = 5000000000; /* for the GPU, at the end */

/* ---- the library ---- */

#define SYMBOLS(X)                                                                                 \
    X(cuptiGetVersion)                                                                             \
    X(cuptiGetResultString)                                                                        \
    X(cuptiSubscribe)                                                                              \
    X(cuptiUnsubscribe)                                                                            \
    X(cuptiEnableCallback)                                                                         \
    X(cuptiGetCallbackName)                                                                        \
    X(cuptiActivityRegisterCallbacks)                                                              \
    X(cuptiActivitySetAttribute)                                                                   \
    X(cuptiActivityEnable)                                                                         \
    X(cuptiActivityDisable)                                                                        \
    X(cuptiActivityFlushAll)                                                                       \
    X(cuptiActivityGetNextRecord)                                                                  \
    X(cuptiActivityGetNumDroppedRecords)

static struct {
    void *library;
#define X(name) __typeof__(&name) name;
    SYMBOLS(X)
#undef X
    CUptiResult (*graph_node_id)(CUgraphNode node, uint64_t *id); /* NULL: an old library */
    CUpti_SubscriberHandle subscriber;
    uint32_t version;
    kn__cupti_tier tier;
    bool memory, recording;
    char path[512], record[512];
    char text[64]; /* "cupti 130001" */
} cupti;

enum { NODES = 1 << KN__CUPTI_KERNELS | 1 << KN__CUPTI_CALLS, GRAPHS = 1 << KN__CUPTI_GRAPHS };

static const struct {
    CUpti_ActivityKind kind;
    int tiers;
    bool optional, for_memory;
} kinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, NODES, false, false},
    {CUPTI_ACTIVITY_KIND_MEMCPY, NODES, false, false},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, NODES, false, false},
    {CUPTI_ACTIVITY_KIND_MEMSET, NODES, false, false},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GRAPHS, false, false},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, NODES, true, false},
    {CUPTI_ACTIVITY_KIND_MEMORY2, NODES | GRAPHS, true, true},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static bool is_wanted(int i) {
    return kinds[i].tiers >> cupti.tier & 1 && (cupti.memory || !kinds[i].for_memory);
}

static kn_status load(void) {
    if (!cupti.library) {
        cupti.library =
            cupti.path[0] ? dlopen(cupti.path, RTLD_NOW | RTLD_LOCAL) : kn__cupti_open();
    }
    if (!cupti.library) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: libcupti can't be loaded: %s", dlerror());
    }
#define X(name)                                                                                    \
    *(void **)(void *)&cupti.name = dlsym(cupti.library, #name);                                   \
    if (!cupti.name) return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: libcupti lacks " #name);
    SYMBOLS(X)
#undef X
    *(void **)(void *)&cupti.graph_node_id = dlsym(cupti.library, "cuptiGetGraphNodeId");
    return KN_OK;
}

static kn_status check(CUptiResult result, const char *call) {
    if (result == CUPTI_SUCCESS) return KN_OK;
    const char *text = NULL;
    cupti.cuptiGetResultString(result, &text);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: %s: %s (%d)", call, text ? text : "unknown",
                   (int)result);
}

#define CUPTI_TRY(call, ...) KN_TRY(check(cupti.call(__VA_ARGS__), #call))

/* ---- buffers: free -> CUPTI -> full -> drained -> free ---- */

typedef struct buffer {
    struct buffer *next;
    size_t used;
} buffer;

/* Half of the timer's memory is CUPTI's from the start, and no more: neither the records nor the
 * launches that they belong to can take the others' room. Buffers lie side by side, untouched pages
 * take no memory. */
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static uint8_t *arena;
static buffer *buffers;
static size_t n_buffers, n_made, n_full;
static buffer *free_list, *full_list;

static void wake_drain(void);

static kn_status reserve_buffers(void) {
    if (arena) return KN_OK;
    size_t wanted = kn__budget_limit() / 2 / BUFFER_BYTES;
    buffers = calloc(wanted, sizeof *buffers);
    void *bytes = mmap(NULL, wanted * BUFFER_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!buffers || bytes == MAP_FAILED) {
        free(buffers);
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: no memory for CUPTI's buffers");
    }
    arena = bytes;
    while (n_buffers < wanted && kn__budget_take(BUFFER_BYTES)) n_buffers++;
    return KN_OK;
}

static uint8_t *bytes_of(const buffer *b) { return arena + (size_t)(b - buffers) * BUFFER_BYTES; }

static buffer *take_buffer_locked(void) {
    buffer *b = free_list;
    if (b) {
        free_list = b->next;
    } else if (n_made < n_buffers) {
        b = &buffers[n_made++];
    } else {
        kn__budget_note_full();
    }
    return b;
}

/* On the launching thread. With none left CUPTI drops records and counts them. */
static void CUPTIAPI on_request(uint8_t **bytes, size_t *size, size_t *max_records) {
    *bytes = NULL;
    *size = *max_records = 0; /* as many records as fit */
    if (atomic_load(&kn__forked)) return;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = take_buffer_locked();
    pthread_mutex_unlock(&buffers_lock);
    if (!b) return;
    *bytes = bytes_of(b);
    *size = BUFFER_BYTES;
}

static buffer *buffer_of(const uint8_t *bytes) {
    size_t at = (size_t)(bytes - arena);
    return bytes >= arena && at < n_made * BUFFER_BYTES ? &buffers[at / BUFFER_BYTES] : NULL;
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size,
                                 size_t used) {
    (void)context, (void)stream, (void)size;
    if (atomic_load(&kn__forked)) return;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = buffer_of(bytes);
    if (b) {
        b->used = used;
        b->next = full_list;
        full_list = b;
        n_full++;
    }
    bool many = 4 * n_full >= n_buffers;
    pthread_mutex_unlock(&buffers_lock);
    if (many) wake_drain();
}

/* CUPTI was told that buffers come zeroed. */
static void recycle(buffer *b) {
    memset(bytes_of(b), 0, b->used);
    pthread_mutex_lock(&buffers_lock);
    b->next = free_list;
    free_list = b;
    pthread_mutex_unlock(&buffers_lock);
}

/* ---- records ---- */

static uint64_t n_zero_nodes; /* kernels of graphs without a time; the drain's, as the next */
static uint64_t n_incomplete; /* records that CUPTI handed over before they were written */

static void note_length(kn__record_sizes *seen, const CUpti_Activity *from, const void *to) {
    ptrdiff_t length = (const unsigned char *)to - (const unsigned char *)from;
    if ((int)from->kind < KN__KINDS_MAX && length > 0) seen->of[from->kind] = (uint16_t)length;
}

/* The lengths of our headers, but for those that were seen. */
static kn__record_sizes known_lengths(const kn__record_sizes *seen) {
    kn__record_sizes known = *kn__cupti_sizes();
    for (int i = 0; i < KN__KINDS_MAX; i++) {
        if (seen->of[i]) known.of[i] = seen->of[i];
    }
    return known;
}

/* CUPTI's own walk ends at a record that is not complete: continues after it. */
static CUpti_Activity *skip_incomplete(const buffer *b, CUpti_Activity *before,
                                       const kn__record_sizes *seen) {
    uint8_t *bytes = bytes_of(b), *bad = bytes;
    kn__record_sizes known = known_lengths(seen);
    if (before) bad = (uint8_t *)before + known.of[(int)before->kind % KN__KINDS_MAX];
    n_incomplete++;
    return kn__cupti_skip(bytes, b->used, bad, &known);
}

typedef struct walker {
    const buffer *buffer;
    CUpti_Activity *at;
    kn__record_sizes seen;
} walker;

static bool step(walker *w) {
    CUpti_Activity *before = w->at;
    CUptiResult result =
        cupti.cuptiActivityGetNextRecord(bytes_of(w->buffer), w->buffer->used, &w->at);
    if (result == CUPTI_SUCCESS) {
        if (before) note_length(&w->seen, before, w->at);
        return true;
    }
    if (result == CUPTI_ERROR_INVALID_KIND) {
        w->at = skip_incomplete(w->buffer, before, &w->seen);
        if (w->at) return true;
    } else if (before && !w->seen.of[before->kind]) {
        note_length(&w->seen, before, bytes_of(w->buffer) + w->buffer->used);
    }
    return false;
}

static void walk(const buffer *b, kn__record_fn fn, void *sink) {
    kn__record batch[BATCH];
    walker w = {.buffer = b};
    size_t n = 0;
    while (step(&w)) {
        if (!kn__cupti_read(&batch[n], w.at)) continue;
        n_zero_nodes += batch[n].graph_node && !batch[n].end_ns;
        if (++n == BATCH) {
            fn(sink, batch, n);
            n = 0;
        }
    }
    if (n) fn(sink, batch, n);
    if (cupti.recording) kn__recorder_buffer(bytes_of(b), b->used, &w.seen);
}

static void drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    cupti.cuptiActivityFlushAll(0); /* no lock of ours is needed by the callbacks it makes */
    pthread_mutex_lock(&buffers_lock);
    buffer *list = full_list;
    full_list = NULL;
    n_full = 0;
    pthread_mutex_unlock(&buffers_lock);
    for (buffer *b = list, *next; b; b = next) {
        next = b->next;
        walk(b, fn, sink);
        recycle(b);
    }
}

static uint64_t dropped(void *ctx) {
    static uint64_t total; /* CUPTI counts since it was last asked */
    size_t n = 0;
    (void)ctx;
    if (cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &n) == CUPTI_SUCCESS) total += n;
    return total + n_incomplete;
}

/* ---- launches ---- */

/* One launch shows as a call of the runtime and a call of the driver inside it, and the record may
 * carry either's id. */
typedef struct call_state {
    uint32_t depth;                /* calls within calls */
    uint32_t launch, launch_depth; /* the launch's id, and the depth of its call; 0: none */
    uint32_t n;
} call_state;

static _Thread_local call_state mine __attribute__((tls_model("initial-exec")));

typedef struct call_info {
    kn__call kind;
    bool counts; /* kn__call_counts */
    char label[LABEL_BYTES];
} call_info;

static call_info calls[2]
                      [CALLS_MAX]; /* of the driver and of the runtime; written before the start */

static CUcontext contexts[CONTEXTS_MAX];
static int n_contexts;
static atomic_uint n_destroyed; /* a thread that knows a context looks again after this changed */
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t exit_hook = PTHREAD_ONCE_INIT;

static void at_exit(void) {
    if (!atomic_load(&kn__forked)) kn__activity_stop();
}
static void hook_exit(void) { atexit(at_exit); }

/* Remembered for the wait at the end. The hook is set from inside the first call of CUDA, so that
 * it runs before CUDA's own. */
static void see_context(CUcontext context) {
    static _Thread_local CUcontext last __attribute__((tls_model("initial-exec")));
    static _Thread_local unsigned seen_destroyed __attribute__((tls_model("initial-exec")));
    unsigned now = atomic_load_explicit(&n_destroyed, memory_order_relaxed);
    if (context == last && now == seen_destroyed) return;
    last = context;
    seen_destroyed = now;
    pthread_once(&exit_hook, hook_exit);
    pthread_mutex_lock(&contexts_lock);
    int i = 0;
    while (i < n_contexts && contexts[i] != context) i++;
    if (i == n_contexts && i < CONTEXTS_MAX) contexts[n_contexts++] = context;
    pthread_mutex_unlock(&contexts_lock);
}

/* Its address may be another context's from now on. */
static void forget_context(CUcontext context) {
    pthread_mutex_lock(&contexts_lock);
    int i = 0;
    while (i < n_contexts && contexts[i] != context) i++;
    if (i < n_contexts) contexts[i] = contexts[--n_contexts];
    atomic_fetch_add(&n_destroyed, 1);
    pthread_mutex_unlock(&contexts_lock);
}

static bool has_failed(const CUpti_CallbackData *call) {
    /* both libraries' success is 0, and both return an enum */
    return call->functionReturnValue && *(const int *)call->functionReturnValue != 0;
}

static bool is_launch(const call_info *info) {
    return info->kind == KN__CALL_LAUNCH || info->kind == KN__CALL_GRAPH_LAUNCH;
}

/* Copies or sets nothing. */
static bool is_empty(const call_info *info, const CUpti_CallbackData *call) {
    const size_t *arguments = call->functionParams; /* a pointer, another or a value, the count */
    return info->counts && arguments && arguments[2] == 0;
}

/* Whoever wrapped the call has opened a scope of its name already. */
static void open_call(const call_info *info) {
    const kn__tree *tree = kn__tree_mine;
    if (info->kind == KN__CALL_QUIET || (tree && !strcmp(tree->current->label, info->label)))
        return;
    (void)kn_scope_begin_static(info->label);
}

static void enter(const call_info *info, const CUpti_CallbackData *call) {
    uint32_t id = call->correlationId;
    if (mine.depth++ == 0 && cupti.tier == KN__CUPTI_CALLS) open_call(info);
    if (mine.launch_depth) {
        kn__activity_alias(id, mine.launch);
    } else if (is_launch(info) && is_empty(info, call)) {
        kn__activity_note(id, false);
    } else if (is_launch(info)) {
        mine.launch = id;
        mine.launch_depth = mine.depth;
        kn__activity_launch(id);
    } else if (info->kind == KN__CALL_ALLOC) {
        kn__activity_note(id, kn__memory_in_call());
    }
}

static void leave(const call_info *info, const CUpti_CallbackData *call) {
    if (call->context) see_context(call->context);
    if (mine.depth == 0) return; /* began before we listened */
    if (mine.launch_depth == mine.depth) {
        mine.launch_depth = 0;
        if (has_failed(call)) kn__activity_cancel(mine.launch);
    }
    if (--mine.depth == 0 && cupti.tier == KN__CUPTI_CALLS) kn__scope_end_key(info->label);
}

/* A launch into a stream that is being captured launches nothing: it makes a node. */
static void on_node_created(const CUpti_GraphData *graph, uint64_t id) {
    if (mine.launch_depth) kn__activity_cancel(mine.launch);
    kn__graph_created(id, graph->graph);
}

/* The copies that an executable graph is made of come before its own address: until then they are
 * noted under an address of this thread's. */
static _Thread_local bool instantiating __attribute__((tls_model("initial-exec")));

static void on_node_cloned(const CUpti_GraphData *graph, uint64_t id) {
    uint64_t original = 0;
    const void *owner = graph->graphExec ? (const void *)graph->graphExec
                        : instantiating  ? (const void *)&mine
                                         : (const void *)graph->graph;
    if (graph->originalNode) cupti.graph_node_id(graph->originalNode, &original);
    kn__graph_cloned(id, original, owner);
}

static void on_graph(CUpti_CallbackId what, const CUpti_GraphData *graph) {
    uint64_t id = 0;
    if (graph->node) cupti.graph_node_id(graph->node, &id);
    switch (what) {
        case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
            on_node_created(graph, id);
            break;
        case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
            on_node_cloned(graph, id);
            break;
        case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING:
            instantiating = true;
            break;
        case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
            instantiating = false;
            kn__graph_move(&mine, graph->graphExec);
            break;
        case CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING:
            kn__graph_node_destroyed(id);
            break;
        case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
            kn__graph_destroyed(graph->graph);
            break;
        case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
            kn__graph_destroyed(graph->graphExec);
            break;
        default:
            break;
    }
}

static void on_resource(CUpti_CallbackId what, const CUpti_ResourceData *data) {
    if (what == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
        forget_context(data->context);
    } else if (data->resourceDescriptor) {
        on_graph(what, data->resourceDescriptor);
    }
}

static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data) {
    const CUpti_CallbackData *call = data;
    (void)user;
    if (atomic_load_explicit(&kn__forked, memory_order_relaxed)) return;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        on_resource(id, data);
        return;
    }
    if (id >= CALLS_MAX) return;
    const call_info *info = &calls[domain == CUPTI_CB_DOMAIN_RUNTIME_API][id];
    bool sampled = ++mine.n % SAMPLES == 0; /* not the first of a thread: it makes the ring */
    uint64_t start = sampled ? kn__clock_now() : 0;
    call->callbackSite == CUPTI_API_ENTER ? enter(info, call) : leave(info, call);
    if (sampled) kn__activity_spent(SAMPLES * (kn__clock_now() - start));
}

static bool is_followed(kn__call kind) {
    switch (kind) {
        case KN__CALL_GRAPH_LAUNCH:
            return true;
        case KN__CALL_LAUNCH:
            return cupti.tier != KN__CUPTI_GRAPHS;
        case KN__CALL_ALLOC:
            return cupti.memory || cupti.tier == KN__CUPTI_CALLS;
        case KN__CALL_PLAIN:
            return cupti.tier == KN__CUPTI_CALLS;
        case KN__CALL_QUIET:
            return false;
    }
    return false;
}

/* A call that CUPTI refuses to follow is left out; returns how many launches are followed. */
static int enable_calls(CUpti_CallbackDomain domain) {
    const char *name = NULL;
    int n = 0;
    for (uint32_t id = 1; id < CALLS_MAX; id++) {
        if (cupti.cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS) break;
        call_info *info = &calls[domain == CUPTI_CB_DOMAIN_RUNTIME_API][id];
        if (!name || !is_followed(kn__call_kind(name))) continue;
        info->kind = kn__call_kind(name);
        info->counts = kn__call_counts(name);
        kn__call_label(info->label, sizeof info->label, name);
        CUptiResult result = cupti.cuptiEnableCallback(1, cupti.subscriber, domain, id);
        n += result == CUPTI_SUCCESS && is_launch(info);
    }
    return n;
}

/* Without the callbacks of graphs, kernels are counted in the scope that launches the graph. */
static void enable_resources(void) {
    static const CUpti_CallbackId wanted[] = {CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
                                              CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                              CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                                              CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
                                              CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
                                              CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING,
                                              CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
                                              CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING};
    bool graphs = cupti.graph_node_id && cupti.tier != KN__CUPTI_GRAPHS;
    for (size_t i = 0; i < (graphs ? sizeof wanted / sizeof *wanted : 1); i++) {
        cupti.cuptiEnableCallback(1, cupti.subscriber, CUPTI_CB_DOMAIN_RESOURCE, wanted[i]);
    }
}

static kn_status enable_kinds(void) {
    for (int i = 0; i < N_KINDS; i++) {
        if (!is_wanted(i)) continue;
        CUptiResult result = cupti.cuptiActivityEnable(kinds[i].kind);
        if (!kinds[i].optional) KN_TRY(check(result, "cuptiActivityEnable"));
    }
    return KN_OK;
}

static void disable_kinds(void) {
    for (int i = 0; i < N_KINDS; i++) {
        if (is_wanted(i)) cupti.cuptiActivityDisable(kinds[i].kind);
    }
}

/* ---- start and stop ---- */

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static pthread_cond_t thread_wakes = PTHREAD_COND_INITIALIZER;
static bool thread_runs, drain_wanted;

static struct timespec after(uint64_t ns) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the other one may be set back */
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* A quarter of the buffers wait for the drain: the period is too long. */
static void wake_drain(void) {
    pthread_mutex_lock(&thread_lock);
    drain_wanted = true;
    pthread_cond_signal(&thread_wakes);
    pthread_mutex_unlock(&thread_lock);
}

/* Waits for the end of the period, the end of the thread, or wake_drain. */
static void wait_period(void) {
    struct timespec until = after(PERIOD_NS);
    int error = 0;
    while (thread_runs && !drain_wanted && !error) {
        error = pthread_cond_clockwait(&thread_wakes, &thread_lock, CLOCK_MONOTONIC, &until);
    }
    drain_wanted = false;
}

static void *run_thread(void *arg) {
    pthread_mutex_lock(&thread_lock);
    while (thread_runs) {
        wait_period();
        if (!thread_runs) break;
        pthread_mutex_unlock(&thread_lock);
        kn__activity_drain();
        pthread_mutex_lock(&thread_lock);
    }
    pthread_mutex_unlock(&thread_lock);
    return arg;
}

static bool has_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver != NULL;
}

/* CUPTI's own word for a machine without a driver is "unknown error". */
static kn_status check_subscribe(CUptiResult result) {
    if (result == CUPTI_ERROR_UNKNOWN && !has_driver()) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "no GPU times: no GPU driver here (libcuda.so.1 can't be loaded)");
    }
    return check(result, "cuptiSubscribe");
}

/* Tools that hold CUPTI leave traces in the environment of the programs they start. */
static kn_status held_by(const char *name) {
    static const char *const variables[][2] = {
        {"NSYS_PROFILING_SESSION_ID", "Nsight Systems"},
        {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "Nsight Compute"},
        {"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"},
        {"COMPUTE_SANITIZER_INJECTION", "compute-sanitizer"},
        {"CUDA_INJECTION64_PATH", NULL},
        {"NVTX_INJECTION64_PATH", NULL}};
    if (name[0]) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "no GPU times: CUPTI is held by %s; it gets our scopes as NVTX ranges",
                       name);
    }
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i][0]);
        if (!value) continue;
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "no GPU times: CUPTI is held by another tool, %s%s%s is set; it gets our "
                       "scopes as NVTX ranges",
                       variables[i][1] ? variables[i][1] : "perhaps that of ",
                       variables[i][1] ? ": " : "", variables[i][0]);
    }
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "no GPU times: CUPTI is held by another tool (a profiler, a debugger)");
}

static kn_status subscribe(void) {
#if CUPTI_API_VERSION >= 130000
    __typeof__(&cuptiSubscribe_v2) subscribe_v2 = NULL;
    *(void **)(void *)&subscribe_v2 = dlsym(cupti.library, "cuptiSubscribe_v2");
    if (subscribe_v2) {
        char other[128] = "";
        CUpti_SubscriberParams params = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                         .subscriberName = "knet",
                                         .oldSubscriberName = other,
                                         .oldSubscriberSize = sizeof other};
        CUptiResult result = subscribe_v2(&cupti.subscriber, on_callback, NULL, &params);
        if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
            return held_by(other);
        }
        return check_subscribe(result);
    }
#endif
    CUptiResult result = cupti.cuptiSubscribe(&cupti.subscriber, on_callback, NULL);
    return result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? held_by("")
                                                                    : check_subscribe(result);
}

static kn_status begin(void) {
    CUPTI_TRY(cuptiGetVersion, &cupti.version);
    snprintf(cupti.text, sizeof cupti.text, "cupti %u", cupti.version);
    KN_TRY(subscribe());
    uint8_t yes = 1;
    size_t size = sizeof yes;
    cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &yes);
    CUPTI_TRY(cuptiActivityRegisterCallbacks, on_request, on_complete);
    int n_followed = enable_calls(CUPTI_CB_DOMAIN_RUNTIME_API);
    n_followed += enable_calls(CUPTI_CB_DOMAIN_DRIVER_API);
    if (!n_followed) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: CUPTI follows no launch");
    }
    enable_resources();
    KN_TRY(enable_kinds());
    if (cupti.record[0]) {
        KN_TRY(kn__recorder_start(cupti.record, cupti.version));
        cupti.recording = true;
        kn__activity_listen(kn__recorder_launch);
    }
    thread_runs = true;
    pthread_t thread;
    if (kn__thread_start(&thread, run_thread, NULL) == 0) {
        pthread_detach(thread);
        return KN_OK;
    }
    thread_runs = false;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: no thread for CUPTI's buffers");
}

static kn_status start(void *ctx) {
    (void)ctx;
    KN_TRY(load());
    KN_TRY(reserve_buffers());
    kn_status status = begin();
    if (status < 0 && cupti.subscriber) {
        cupti.cuptiUnsubscribe(cupti.subscriber);
        cupti.subscriber = NULL;
    }
    return status;
}

/* What the GPU has not finished yet has no end time. The driver is used if the program has it
 * loaded. */
static void wait_for_gpu(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return;
    CUresult (*push)(CUcontext), (*pop)(CUcontext *), (*sync)(void);
    *(void **)(void *)&push = dlsym(driver, "cuCtxPushCurrent_v2");
    *(void **)(void *)&pop = dlsym(driver, "cuCtxPopCurrent_v2");
    *(void **)(void *)&sync = dlsym(driver, "cuCtxSynchronize");
    CUcontext live[CONTEXTS_MAX];
    pthread_mutex_lock(&contexts_lock);
    int n = push && pop && sync ? n_contexts : 0;
    memcpy(live, contexts, sizeof live);
    pthread_mutex_unlock(&contexts_lock);
    for (int i = 0; i < n; i++) {
        CUcontext old;
        if (push(live[i]) != CUDA_SUCCESS) continue;
        (void)sync();
        (void)pop(&old);
    }
    dlclose(driver);
}

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER; /* protects has_waited */
static pthread_cond_t wait_ends = PTHREAD_COND_INITIALIZER;
static bool has_waited, gave_up;

static void *wait_in_thread(void *arg) {
    wait_for_gpu();
    pthread_mutex_lock(&wait_lock);
    has_waited = true;
    pthread_cond_signal(&wait_ends);
    pthread_mutex_unlock(&wait_lock);
    return arg;
}

/* A kernel that never ends must not keep the program from ending. */
static void wait_a_while(void) {
    struct timespec until = after(WAIT_NS);
    pthread_t thread;
    int error = 0;
    if (kn__thread_start(&thread, wait_in_thread, NULL) != 0) return;
    pthread_detach(thread);
    pthread_mutex_lock(&wait_lock);
    while (!has_waited && !error) {
        error = pthread_cond_clockwait(&wait_ends, &wait_lock, CLOCK_MONOTONIC, &until);
    }
    gave_up = !has_waited;
    pthread_mutex_unlock(&wait_lock);
}

/* The one wait of the whole run. CUPTI itself is not finalised: that is where it crashes. Before
 * 13.1 disabling may hang. */
static void stop(void *ctx) {
    (void)ctx;
    pthread_mutex_lock(&thread_lock);
    thread_runs = false;
    pthread_cond_signal(&thread_wakes);
    pthread_mutex_unlock(&thread_lock);
    wait_a_while();
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (cupti.version >= 130100) disable_kinds();
    cupti.cuptiUnsubscribe(cupti.subscriber);
    cupti.subscriber = NULL;
}

/* Below 13.1 update 1 a second session gets ids wrong and disabling may hang: there the kinds stay
 * on, and what they record meanwhile is ignored. */
static void pause_kinds(void *ctx, bool paused) {
    (void)ctx;
    if (cupti.version < 130101) return;
    if (paused) {
        disable_kinds();
    } else if (enable_kinds() < 0) {
        return; /* launches go on being counted: they will show as pending */
    }
}

/* Versions that are known to lose something. */
static const char *notice(void *ctx) {
    (void)ctx;
    if (gave_up) return "the GPU was still at work 5 s after the end; unfinished work has no time";
    if (cupti.version == 22) return "CUPTI of CUDA 12.4 may lose kernels";
    if (cupti.version / 100 == 1300 && n_zero_nodes) {
        return "this CUPTI gave kernels of replayed graphs no time, and its memory may grow with "
               "every replay; KNET_TIMER=gpu-lite times each graph as one";
    }
    return NULL;
}

const kn__source *kn__cupti_source(const kn__cupti_options *options) {
    static const kn__source source = {.name = cupti.text,
                                      .start = start,
                                      .stop = stop,
                                      .drain = drain,
                                      .dropped = dropped,
                                      .pause = pause_kinds,
                                      .notice = notice};
    cupti.tier = options->tier;
    cupti.memory = options->memory;
    snprintf(cupti.path, sizeof cupti.path, "%s", options->library);
    snprintf(cupti.record, sizeof cupti.record, "%s", options->record ? options->record : "");
    return &source;
}
