#include "mock_cupti.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { RECORDS_MAX = 1 << 16, RUNTIME_LAUNCH = 211, DRIVER_LAUNCH = 307 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static CUpti_CallbackFunc callback;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static bool enabled_calls[3][1024], enabled_kinds[64];
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
} record;

static record records[RECORDS_MAX];
static size_t n_records;

static bool has_word(const char *word) {
    const char *list = getenv("MOCK_CUPTI");
    return list && strstr(list, word);
}

static int word_value(const char *word) {
    const char *list = getenv("MOCK_CUPTI"), *at = list ? strstr(list, word) : NULL;
    return at ? atoi(at + strlen(word)) : 0;
}

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

/* ---- calls that the profiler makes ---- */

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version) {
    *version = 130001;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text) {
    *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc fn,
                                           void *user) {
    (void)user;
    if (has_word("nodriver")) return CUPTI_ERROR_UNKNOWN;
    callback = fn;
    *handle = (CUpti_SubscriberHandle)(void *)&callback;
    return called();
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc fn,
                                              void *user, CUpti_SubscriberParams *params) {
    if (!has_word("held")) return cuptiSubscribe(handle, fn, user);
    snprintf(params->oldSubscriberName, params->oldSubscriberSize, "Nsight Systems");
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    (void)handle;
    callback = NULL;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                                 const char **name) {
    bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
    if (id >= 520) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = runtime ? "cudaDeviceSynchronize_v3020" : "cuCtxSynchronize";
    if (runtime && id == RUNTIME_LAUNCH) *name = "cudaLaunchKernel_v7000";
    if (!runtime && id == DRIVER_LAUNCH) *name = "cuLaunchKernel";
    if (!runtime && id == 500) *name = "cuLaunchHostFunc";
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle handle,
                                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    (void)handle;
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
    uint8_t *next = *at ? (uint8_t *)*at + size_of((*at)->kind) : bytes;
    if (next + sizeof(CUpti_Activity) > bytes + used) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *at = (CUpti_Activity *)(void *)next;
    return size_of((*at)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

/* Fills one buffer with at most n records, taken at random; the lock is not held across callbacks.
 */
static void deliver(size_t n) {
    uint8_t *bytes = NULL;
    size_t size = 0, max = 0, used = 0;
    request(&bytes, &size, &max);
    pthread_mutex_lock(&lock);
    for (; n && n_records; n--) {
        size_t i = (size_t)random_below(n_records), length = size_of(records[i].any.kind);
        if (bytes && used + length > size) break;
        if (bytes) memcpy(bytes + used, &records[i], length);
        n_dropped += !bytes;
        used += length;
        records[i] = records[--n_records];
    }
    pthread_mutex_unlock(&lock);
    if (bytes) complete(NULL, 0, bytes, size, used);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flags) {
    pthread_mutex_lock(&lock);
    size_t n = n_records;
    if (has_word("late") && !(flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)) {
        n = n ? (size_t)random_below(n) : 0;
    }
    pthread_mutex_unlock(&lock);
    while (n > 0) {
        size_t part = n > 700 ? 700 : n;
        deliver(part);
        n -= part;
    }
    return CUPTI_SUCCESS;
}

/* ---- calls that the program makes ---- */

static void make_record(mock_kind kind, const char *name, uint64_t start, uint64_t end,
                        uint32_t id) {
    record *r = &records[n_records];
    memset(r, 0, sizeof *r);
    if (kind == MOCK_KERNEL) {
        r->any.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        r->kernel.start = start, r->kernel.end = end, r->kernel.correlationId = id;
        r->kernel.name = name;
    } else if (kind == MOCK_COPY) {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
        r->copy.start = start, r->copy.end = end, r->copy.correlationId = id;
        r->copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    } else if (kind == MOCK_PEER_COPY) {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
        r->peer.start = start, r->peer.end = end, r->peer.correlationId = id;
    } else {
        r->any.kind = CUPTI_ACTIVITY_KIND_MEMSET;
        r->set.start = start, r->set.end = end, r->set.correlationId = id;
    }
    n_records += enabled_kinds[r->any.kind];
}

static void add_record(mock_kind kind, const char *name, uint64_t ns, uint32_t runtime,
                       uint32_t driver) {
    bool zero = has_word("zero");
    int drop = word_value("drop=");
    pthread_mutex_lock(&lock);
    now += 10;
    if (n_records == RECORDS_MAX || (drop && ++n_records_made % (uint64_t)drop == 0)) {
        n_dropped++;
    } else {
        make_record(kind, name, zero ? 0 : now, zero ? 0 : now + ns,
                    has_word("driver") ? driver : runtime);
    }
    pthread_mutex_unlock(&lock);
}

static void fire(CUpti_CallbackDomain domain, uint32_t cbid, CUpti_ApiCallbackSite site,
                 uint32_t id, int *result) {
    CUpti_CallbackData data = {.callbackSite = site,
                               .correlationId = id,
                               .functionReturnValue = result,
                               .context = (CUcontext)(void *)&callback};
    if (callback && enabled_calls[domain][cbid]) callback(NULL, domain, cbid, &data);
}

EXPORT void mock_launch(mock_kind kind, const char *name, uint64_t ns, int error) {
    pthread_mutex_lock(&lock);
    uint32_t runtime = next_id++, driver = next_id++;
    pthread_mutex_unlock(&lock);
    fire(CUPTI_CB_DOMAIN_RUNTIME_API, RUNTIME_LAUNCH, CUPTI_API_ENTER, runtime, NULL);
    fire(CUPTI_CB_DOMAIN_DRIVER_API, DRIVER_LAUNCH, CUPTI_API_ENTER, driver, NULL);
    if (!error) add_record(kind, name, ns, runtime, driver);
    fire(CUPTI_CB_DOMAIN_DRIVER_API, DRIVER_LAUNCH, CUPTI_API_EXIT, driver, &error);
    fire(CUPTI_CB_DOMAIN_RUNTIME_API, RUNTIME_LAUNCH, CUPTI_API_EXIT, runtime, &error);
}
