#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "checked.h"
#include "cupti_session.h"
#include "graph.h"
#include "memory.h"
#include "scope.h"

enum {
    CONTEXTS_MAX = 16,
    CALLS_MAX = 1024, /* of the runtime and of the driver each */
    LABEL_BYTES = 64,
    SAMPLES = 64 /* one callback of so many is timed */
};

/* --- launches --- */

/* One launch shows as a call of the runtime and a call of the driver inside it, and the record may
 * carry either's id. */
typedef struct call_state {
    uint32_t depth;                /* calls within calls */
    uint32_t launch, launch_depth; /* the launch's id, and the depth of its call; 0: none */
    uint32_t n;
} call_state;

static _Thread_local call_state mine __attribute__((tls_model("initial-exec")));

typedef struct call_info {
    kn__cuda_call kind;
    bool counts; /* kn__cuda_call_counts */
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
    KN_ASSERT(n_contexts <= CONTEXTS_MAX);
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
    return info->kind == KN__CUDA_CALL_LAUNCH || info->kind == KN__CUDA_CALL_GRAPH_LAUNCH;
}

/* Copies or sets nothing. */
static bool is_empty(const call_info *info, const CUpti_CallbackData *call) {
    const size_t *arguments = call->functionParams; /* a pointer, another or a value, the count */
    return info->counts && arguments && arguments[2] == 0;
}

/* Whoever wrapped the call has opened a scope of its name already. */
static void open_call(const call_info *info) {
    const kn__tree *tree = kn__tree_mine;
    if (info->kind == KN__CUDA_CALL_QUIET || (tree && !strcmp(tree->current->label, info->label)))
        return;
    (void)kn_scope_begin_static(info->label);
}

static void enter(const call_info *info, const CUpti_CallbackData *call) {
    uint32_t id = call->correlationId;
    if (mine.depth++ == 0 && kn__cupti.tier == KN__CUPTI_CALLS) open_call(info);
    if (mine.launch_depth) {
        kn__activity_alias(id, mine.launch);
    } else if (is_launch(info) && is_empty(info, call)) {
        kn__activity_note(id, false);
    } else if (is_launch(info)) {
        mine.launch = id;
        mine.launch_depth = mine.depth;
        kn__activity_launch(id);
    } else if (info->kind == KN__CUDA_CALL_ALLOC) {
        kn__activity_note(id, kn__memory_in_call());
    }
}

static void leave(const call_info *info, const CUpti_CallbackData *call) {
    if (call->context) see_context(call->context);
    if (mine.depth == 0) return; /* began before we listened */
    KN_ASSERT(mine.launch_depth <= mine.depth);
    if (mine.launch_depth == mine.depth) {
        mine.launch_depth = 0;
        if (has_failed(call)) kn__activity_cancel(mine.launch);
    }
    if (--mine.depth == 0 && kn__cupti.tier == KN__CUPTI_CALLS) kn__scope_end_key(info->label);
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
    if (graph->originalNode) kn__cupti.graph_node_id(graph->originalNode, &original);
    kn__graph_cloned(id, original, owner);
}

static void on_graph(CUpti_CallbackId what, const CUpti_GraphData *graph) {
    uint64_t id = 0;
    if (graph->node) kn__cupti.graph_node_id(graph->node, &id);
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

void CUPTIAPI kn__cupti_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
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

static bool is_followed(kn__cuda_call kind) {
    switch (kind) {
        case KN__CUDA_CALL_GRAPH_LAUNCH:
            return true;
        case KN__CUDA_CALL_LAUNCH:
            return kn__cupti.tier != KN__CUPTI_GRAPHS;
        case KN__CUDA_CALL_ALLOC:
            return kn__cupti.memory || kn__cupti.tier == KN__CUPTI_CALLS;
        case KN__CUDA_CALL_PLAIN:
            return kn__cupti.tier == KN__CUPTI_CALLS;
        case KN__CUDA_CALL_QUIET:
            return false;
    }
    return false;
}

/* A call that CUPTI refuses to follow is left out; returns how many launches are followed. */
static int enable_calls(CUpti_CallbackDomain domain) {
    const char *name = NULL;
    int n = 0;
    for (uint32_t id = 1; id < CALLS_MAX; id++) {
        if (kn__cupti.cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS) break;
        call_info *info = &calls[domain == CUPTI_CB_DOMAIN_RUNTIME_API][id];
        if (!name || !is_followed(kn__cuda_call_kind(name))) continue;
        info->kind = kn__cuda_call_kind(name);
        info->counts = kn__cuda_call_counts(name);
        kn__cuda_call_label(info->label, sizeof info->label, name);
        CUptiResult result = kn__cupti.cuptiEnableCallback(1, kn__cupti.subscriber, domain, id);
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
    bool graphs = kn__cupti.graph_node_id && kn__cupti.tier != KN__CUPTI_GRAPHS;
    for (size_t i = 0; i < (graphs ? sizeof wanted / sizeof *wanted : 1); i++) {
        kn__cupti.cuptiEnableCallback(1, kn__cupti.subscriber, CUPTI_CB_DOMAIN_RESOURCE, wanted[i]);
    }
}

int kn__cupti_follow(void) {
    int n = enable_calls(CUPTI_CB_DOMAIN_RUNTIME_API);
    n += enable_calls(CUPTI_CB_DOMAIN_DRIVER_API);
    if (n) enable_resources();
    return n;
}

/* What the GPU has not finished yet has no end time. The driver is used if the program has it
 * loaded. */
void kn__cupti_synchronize(void) {
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
