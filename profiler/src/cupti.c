#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "checked.h"
#include "cupti_find.h"
#include "cupti_session.h"
#include "now.h"
#include "recorder.h"
#include "thread.h"

enum { PERIOD_NS = 100 * 1000 * 1000 };     /* of the drain */
static const uint64_t WAIT_NS = 5000000000; /* for the GPU, at the end */

kn__cupti_session kn__cupti;
static char path[512], record[512], source_name[64]; /* "cupti 130001" */

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
    return kinds[i].tiers >> kn__cupti.tier & 1 && (kn__cupti.memory || !kinds[i].for_memory);
}

static kn_status load(void) {
    if (!kn__cupti.library) {
        kn__cupti.library = path[0] ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : kn__cupti_open();
    }
    if (!kn__cupti.library) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: libcupti can't be loaded: %s", dlerror());
    }
#define X(name)                                                                                    \
    *(void **)(void *)&kn__cupti.name = dlsym(kn__cupti.library, #name);                           \
    if (!kn__cupti.name)                                                                           \
        return KN_FAIL(KN_ERR_UNSUPPORTED,                                                         \
                       "no GPU times: libcupti "                                                   \
                       "lacks " #name);
    KN__CUPTI_SYMBOLS(X)
#undef X
    *(void **)(void *)&kn__cupti.graph_node_id = dlsym(kn__cupti.library, "cuptiGetGraphNodeId");
    return KN_OK;
}

static kn_status check(CUptiResult result, const char *call) {
    if (result == CUPTI_SUCCESS) return KN_OK;
    const char *text = NULL;
    kn__cupti.cuptiGetResultString(result, &text);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: %s: %s (%d)", call, text ? text : "unknown",
                   (int)result);
}

#define CUPTI_TRY(call, ...) KN_TRY(check(kn__cupti.call(__VA_ARGS__), #call))

static kn_status enable_kinds(void) {
    for (int i = 0; i < N_KINDS; i++) {
        if (!is_wanted(i)) continue;
        CUptiResult result = kn__cupti.cuptiActivityEnable(kinds[i].kind);
        if (!kinds[i].optional) KN_TRY(check(result, "cuptiActivityEnable"));
    }
    return KN_OK;
}

static void disable_kinds(void) {
    for (int i = 0; i < N_KINDS; i++) {
        if (is_wanted(i)) kn__cupti.cuptiActivityDisable(kinds[i].kind);
    }
}

/* --- start and stop --- */

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static pthread_cond_t thread_wakes = PTHREAD_COND_INITIALIZER;
static bool thread_runs, drain_wanted;
static pthread_t drainer; /* which drains each period */

static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static pthread_cond_t ends = PTHREAD_COND_INITIALIZER;
static bool drainer_ended, wait_ended;

static struct timespec after(uint64_t ns) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the other one may be set back */
    return kn__time_after(now, ns);
}

/* A quarter of the buffers wait for the drain: the period is too long. */
void kn__cupti_wake(void) {
    pthread_mutex_lock(&thread_lock);
    drain_wanted = true;
    pthread_cond_signal(&thread_wakes);
    pthread_mutex_unlock(&thread_lock);
}

/* Waits for the end of the period, the end of the thread, or kn__cupti_wake. */
static void wait_period(void) {
    struct timespec until = after(PERIOD_NS);
    int error = 0;
    while (thread_runs && !drain_wanted && !error) {
        error = pthread_cond_clockwait(&thread_wakes, &thread_lock, CLOCK_MONOTONIC, &until);
    }
    drain_wanted = false;
}

static void set_ended(bool *has_ended, bool value) {
    pthread_mutex_lock(&end_lock);
    KN_ASSERT(!value || !*has_ended); /* a thread ends once */
    *has_ended = value;
    pthread_cond_broadcast(&ends);
    pthread_mutex_unlock(&end_lock);
}

/* Starts a thread that join_until waits for: its last act is set_ended. */
static int start_thread(pthread_t *out, void *(*run)(void *), bool *has_ended) {
    set_ended(has_ended, false);
    return kn__thread_start(out, run, NULL);
}

/* Joins a thread, so that it is not still ending when leak checkers run; false: it did not end in
 * time. A call of CUDA that hangs must not keep the program from ending. */
static bool join_until(pthread_t thread, const bool *has_ended, struct timespec until) {
    int error = 0;
    pthread_mutex_lock(&end_lock);
    while (!*has_ended && !error) {
        error = pthread_cond_clockwait(&ends, &end_lock, CLOCK_MONOTONIC, &until);
    }
    bool joins = *has_ended;
    pthread_mutex_unlock(&end_lock);
    if (joins) {
        pthread_join(thread, NULL);
    } else {
        pthread_detach(thread);
    }
    return joins;
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
    set_ended(&drainer_ended, true);
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
    *(void **)(void *)&subscribe_v2 = dlsym(kn__cupti.library, "cuptiSubscribe_v2");
    if (subscribe_v2) {
        char other[128] = "";
        CUpti_SubscriberParams params = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                         .subscriberName = "knet",
                                         .oldSubscriberName = other,
                                         .oldSubscriberSize = sizeof other};
        CUptiResult result = subscribe_v2(&kn__cupti.subscriber, kn__cupti_callback, NULL, &params);
        if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
            return held_by(other);
        }
        return check_subscribe(result);
    }
#endif
    CUptiResult result = kn__cupti.cuptiSubscribe(&kn__cupti.subscriber, kn__cupti_callback, NULL);
    return result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? held_by("")
                                                                    : check_subscribe(result);
}

static kn_status begin(void) {
    KN_ASSERT(!kn__cupti.subscriber && !thread_runs);
    CUPTI_TRY(cuptiGetVersion, &kn__cupti.version);
    snprintf(source_name, sizeof source_name, "cupti %u", kn__cupti.version);
    KN_TRY(subscribe());
    uint8_t yes = 1;
    size_t size = sizeof yes;
    kn__cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size,
                                        &yes);
    CUPTI_TRY(cuptiActivityRegisterCallbacks, kn__cupti_request, kn__cupti_complete);
    if (!kn__cupti_follow()) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: CUPTI follows no launch");
    }
    KN_TRY(enable_kinds());
    if (record[0]) {
        KN_TRY(kn__recorder_start(record, kn__cupti.version));
        kn__cupti.recording = true;
        kn__activity_listen(kn__recorder_launch);
    }
    thread_runs = true;
    if (start_thread(&drainer, run_thread, &drainer_ended) == 0) return KN_OK;
    thread_runs = false;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: no thread for CUPTI's buffers");
}

static kn_status start(void *ctx) {
    (void)ctx;
    KN_TRY(load());
    KN_TRY(kn__cupti_reserve());
    kn_status status = begin();
    if (status < 0 && kn__cupti.subscriber) {
        kn__cupti.cuptiUnsubscribe(kn__cupti.subscriber);
        kn__cupti.subscriber = NULL;
    }
    return status;
}

static bool gave_up;

static void *wait_in_thread(void *arg) {
    kn__cupti_synchronize();
    set_ended(&wait_ended, true);
    return arg;
}

static void wait_a_while(void) {
    pthread_t thread;
    if (start_thread(&thread, wait_in_thread, &wait_ended) != 0) return;
    gave_up = !join_until(thread, &wait_ended, after(WAIT_NS));
}

/* The one wait of the whole run. CUPTI itself is not finalised: that is where it crashes. Before
 * 13.1 disabling may hang. */
static void stop(void *ctx) {
    (void)ctx;
    KN_ASSERT(kn__cupti.subscriber);
    pthread_mutex_lock(&thread_lock);
    thread_runs = false;
    pthread_cond_signal(&thread_wakes);
    pthread_mutex_unlock(&thread_lock);
    wait_a_while();
    kn__cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (kn__cupti.version >= 130100) disable_kinds();
    kn__cupti.cuptiUnsubscribe(kn__cupti.subscriber);
    kn__cupti.subscriber = NULL;
}

static void end(void *ctx) {
    (void)ctx;
    join_until(drainer, &drainer_ended, after(WAIT_NS));
}

/* Below 13.1 update 1 a second session gets ids wrong and disabling may hang: there the kinds stay
 * on, and their records are ignored meanwhile. */
static void pause_kinds(void *ctx, bool paused) {
    (void)ctx;
    if (kn__cupti.version < 130101) return;
    if (paused) {
        disable_kinds();
    } else if (enable_kinds() < 0) {
        return; /* launches are still counted: they will show as pending */
    }
}

/* Versions that are known to lose something. */
static const char *notice(void *ctx) {
    (void)ctx;
    if (gave_up) return "the GPU was still at work 5 s after the end; unfinished work has no time";
    if (kn__cupti.version == 22) return "CUPTI of CUDA 12.4 may lose kernels";
    if (kn__cupti.version / 100 == 1300 && kn__cupti_zero_nodes()) {
        return "this CUPTI gave kernels of replayed graphs no time, and its memory may grow with "
               "every replay; KNET_TIMER=gpu-lite times each graph as one";
    }
    return NULL;
}

const kn__source *kn__cupti_source(const kn__cupti_options *options) {
    static const kn__source source = {.name = source_name,
                                      .start = start,
                                      .stop = stop,
                                      .end = end,
                                      .drain = kn__cupti_drain,
                                      .dropped = kn__cupti_dropped,
                                      .pause = pause_kinds,
                                      .notice = notice};
    kn__cupti.tier = options->tier;
    kn__cupti.memory = options->memory;
    snprintf(path, sizeof path, "%s", options->library);
    snprintf(record, sizeof record, "%s", options->record ? options->record : "");
    return &source;
}
