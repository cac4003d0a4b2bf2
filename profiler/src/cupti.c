#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cupti_source.h"

enum {
    BUFFER_BYTES = 1 << 20,
    BUFFERS_MAX = 24, /* what CUPTI may hold at once; 24 MiB */
    BATCH = 256,
    CONTEXTS_MAX = 16,
    PERIOD_NS = 100 * 1000 * 1000
};

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
    CUpti_SubscriberHandle subscriber;
    char path[512];
    char text[64]; /* "cupti 13.0" */
} cupti;

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static kn_status load(void) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    for (int i = 0; i < 3 && !cupti.library; i++) {
        const char *name = cupti.path[0] ? cupti.path : names[i];
        cupti.library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!cupti.library) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: libcupti can't be loaded: %s", dlerror());
    }
#define X(name)                                                                                    \
    *(void **)(void *)&cupti.name = dlsym(cupti.library, #name);                                   \
    if (!cupti.name) return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: libcupti lacks " #name);
    SYMBOLS(X)
#undef X
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
    uint8_t *bytes;
    size_t used;
} buffer;

static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the lists */
static buffer buffers[BUFFERS_MAX];
static buffer *free_list, *full_list;
static int n_made;

static buffer *make_buffer(void) {
    if (n_made == BUFFERS_MAX) return NULL;
    void *bytes =
        mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return NULL;
    buffer *b = &buffers[n_made++];
    b->bytes = bytes;
    return b;
}

/* On the launching thread. With none left CUPTI drops records and counts them. */
static void CUPTIAPI on_request(uint8_t **bytes, size_t *size, size_t *max_records) {
    pthread_mutex_lock(&buffers_lock);
    buffer *b = free_list;
    if (b) {
        free_list = b->next;
    } else {
        b = make_buffer();
    }
    pthread_mutex_unlock(&buffers_lock);
    *bytes = b ? b->bytes : NULL;
    *size = b ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static buffer *buffer_of(const uint8_t *bytes) {
    for (int i = 0; i < n_made; i++) {
        if (buffers[i].bytes == bytes) return &buffers[i];
    }
    return NULL;
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size,
                                 size_t used) {
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = buffer_of(bytes);
    if (b) {
        b->used = used;
        b->next = full_list;
        full_list = b;
    }
    pthread_mutex_unlock(&buffers_lock);
}

/* CUPTI was told that buffers come zeroed. */
static void recycle(buffer *b) {
    memset(b->bytes, 0, b->used);
    pthread_mutex_lock(&buffers_lock);
    b->next = free_list;
    free_list = b;
    pthread_mutex_unlock(&buffers_lock);
}

/* ---- records ---- */

/* Layouts only grow at their ends: the oldest that has all we read serves every version. */
static bool read_record(const CUpti_Activity *any, kn__record *out) {
    const void *at = any;
    switch (any->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
            const CUpti_ActivityKernel9 *r = at;
            *out =
                (kn__record){r->correlationId, r->name, r->start, r->end, r->deviceId, r->streamId};
            return true;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
            static const char *const names[] = {"[memcpy]",      "[memcpy HtoD]", "[memcpy DtoH]",
                                                "[memcpy HtoA]", "[memcpy AtoH]", "[memcpy AtoA]",
                                                "[memcpy AtoD]", "[memcpy DtoA]", "[memcpy DtoD]",
                                                "[memcpy HtoH]", "[memcpy PtoP]"};
            const CUpti_ActivityMemcpy5 *r = at;
            const char *name = names[r->copyKind < 11 ? r->copyKind : 0];
            *out = (kn__record){r->correlationId, name, r->start, r->end, r->deviceId, r->streamId};
            return true;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY2: {
            const CUpti_ActivityMemcpyPtoP4 *r = at;
            *out = (kn__record){r->correlationId, "[memcpy PtoP]", r->start,
                                r->end,           r->deviceId,     r->streamId};
            return true;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
            const CUpti_ActivityMemset4 *r = at;
            *out = (kn__record){r->correlationId, "[memset]",  r->start,
                                r->end,           r->deviceId, r->streamId};
            return true;
        }
        default:
            return false;
    }
}

static void walk(const buffer *b, kn__record_fn fn, void *sink) {
    kn__record batch[BATCH];
    size_t n = 0;
    CUpti_Activity *any = NULL;
    while (cupti.cuptiActivityGetNextRecord(b->bytes, b->used, &any) == CUPTI_SUCCESS) {
        n += read_record(any, &batch[n]);
        if (n == BATCH) {
            fn(sink, batch, n);
            n = 0;
        }
    }
    if (n) fn(sink, batch, n);
}

static void drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    cupti.cuptiActivityFlushAll(0); /* no lock of ours is needed by the callbacks it makes */
    pthread_mutex_lock(&buffers_lock);
    buffer *list = full_list;
    full_list = NULL;
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
    return total;
}

/* ---- launches ---- */

/* One launch shows as a call of the runtime and a call of the driver inside it, and the record may
 * carry either's id. */
typedef struct call_state {
    uint32_t depth, launch;
} call_state;

static _Thread_local call_state mine __attribute__((tls_model("initial-exec")));

static CUcontext contexts[CONTEXTS_MAX];
static int n_contexts;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t exit_hook = PTHREAD_ONCE_INIT;

static void at_exit(void) { kn__activity_stop(); }
static void hook_exit(void) { atexit(at_exit); }

/* Remembered for the wait at the end. The hook is set from inside the first call of CUDA, so that
 * it runs before CUDA's own. */
static void see_context(CUcontext context) {
    static _Thread_local CUcontext last __attribute__((tls_model("initial-exec")));
    if (context == last) return;
    last = context;
    pthread_once(&exit_hook, hook_exit);
    pthread_mutex_lock(&contexts_lock);
    int i = 0;
    while (i < n_contexts && contexts[i] != context) i++;
    if (i == n_contexts && i < CONTEXTS_MAX) contexts[n_contexts++] = context;
    pthread_mutex_unlock(&contexts_lock);
}

static bool has_failed(CUpti_CallbackDomain domain, const CUpti_CallbackData *call) {
    (void)domain; /* both libraries' success is 0, and both return an enum */
    return call->functionReturnValue && *(const int *)call->functionReturnValue != 0;
}

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                             const void *data) {
    const CUpti_CallbackData *call = data;
    (void)user, (void)id;
    if (call->callbackSite == CUPTI_API_ENTER) {
        if (mine.depth++ == 0) {
            mine.launch = call->correlationId;
            kn__activity_launch(call->correlationId);
        } else {
            kn__activity_alias(call->correlationId, mine.launch);
        }
        return;
    }
    if (call->context) see_context(call->context);
    if (mine.depth == 0) return; /* began before we listened */
    if (--mine.depth == 0 && has_failed(domain, call)) kn__activity_cancel(mine.launch);
}

/* Calls are told by their names, which outlive lists of numbers: each toolkit adds new forms of
 * launches and copies. */
static bool launches_work(const char *name) {
    static const char *const starts[] = {"cudaLaunch",    "__cudaLaunchKernel", "cudaGraphLaunch",
                                         "cudaMemcpy",    "cudaMemset",         "cuLaunch",
                                         "cuGraphLaunch", "cuMemcpy",           "cuMemset"};
    if (strstr(name, "HostFunc")) return false;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) return true;
    }
    return false;
}

static kn_status enable_calls(CUpti_CallbackDomain domain) {
    const char *name = NULL;
    for (uint32_t id = 1; cupti.cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS; id++) {
        if (!name || !launches_work(name)) continue;
        CUPTI_TRY(cuptiEnableCallback, 1, cupti.subscriber, domain, id);
    }
    return KN_OK;
}

/* ---- start and stop ---- */

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER; /* protects thread_runs */
static pthread_cond_t thread_wakes = PTHREAD_COND_INITIALIZER;
static bool thread_runs;

static void wait_period(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PERIOD_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&thread_wakes, &thread_lock, &until);
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
        CUptiResult result = subscribe_v2(&cupti.subscriber, on_call, NULL, &params);
        if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
            return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: CUPTI is held by %s",
                           other[0] ? other : "another tool");
        }
        return check_subscribe(result);
    }
#endif
    return check_subscribe(cupti.cuptiSubscribe(&cupti.subscriber, on_call, NULL));
}

static kn_status begin(void) {
    uint32_t version = 0;
    CUPTI_TRY(cuptiGetVersion, &version);
    snprintf(cupti.text, sizeof cupti.text, "cupti %u", version);
    KN_TRY(subscribe());
    uint8_t yes = 1;
    size_t size = sizeof yes;
    cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &yes);
    CUPTI_TRY(cuptiActivityRegisterCallbacks, on_request, on_complete);
    KN_TRY(enable_calls(CUPTI_CB_DOMAIN_RUNTIME_API));
    KN_TRY(enable_calls(CUPTI_CB_DOMAIN_DRIVER_API));
    for (int i = 0; i < N_KINDS; i++) CUPTI_TRY(cuptiActivityEnable, kinds[i]);
    thread_runs = true;
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, NULL) == 0) {
        pthread_detach(thread);
        return KN_OK;
    }
    thread_runs = false;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: no thread for CUPTI's buffers");
}

static kn_status start(void *ctx) {
    (void)ctx;
    KN_TRY(load());
    kn_status status = begin();
    if (status < 0 && cupti.subscriber) {
        cupti.cuptiUnsubscribe(cupti.subscriber);
        cupti.subscriber = NULL;
    }
    return status;
}

/* What the GPU has not finished yet has no end time. The driver is used if the program has it
 * loaded; a context that is gone says so and is passed over. */
static void wait_for_gpu(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return;
    CUresult (*push)(CUcontext), (*pop)(CUcontext *), (*sync)(void);
    *(void **)(void *)&push = dlsym(driver, "cuCtxPushCurrent_v2");
    *(void **)(void *)&pop = dlsym(driver, "cuCtxPopCurrent_v2");
    *(void **)(void *)&sync = dlsym(driver, "cuCtxSynchronize");
    pthread_mutex_lock(&contexts_lock);
    int n = push && pop && sync ? n_contexts : 0;
    pthread_mutex_unlock(&contexts_lock);
    for (int i = 0; i < n; i++) {
        CUcontext old;
        if (push(contexts[i]) != CUDA_SUCCESS) continue;
        (void)sync();
        (void)pop(&old);
    }
    dlclose(driver);
}

/* The one wait of the whole run. CUPTI itself is not finalised: that is where it crashes. */
static void stop(void *ctx) {
    (void)ctx;
    pthread_mutex_lock(&thread_lock);
    thread_runs = false;
    pthread_cond_signal(&thread_wakes);
    pthread_mutex_unlock(&thread_lock);
    wait_for_gpu();
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (int i = 0; i < N_KINDS; i++) cupti.cuptiActivityDisable(kinds[i]);
    cupti.cuptiUnsubscribe(cupti.subscriber);
    cupti.subscriber = NULL;
}

const kn__source *kn__cupti_source(const char *library) {
    static const kn__source source = {cupti.text, start, stop, drain, dropped, NULL};
    snprintf(cupti.path, sizeof cupti.path, "%s", library);
    return &source;
}
