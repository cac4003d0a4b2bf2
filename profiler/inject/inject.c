/* libknet_run: NVTX ranges of a program as scopes of the timer. The NVTX in each library of the
 * program loads it by NVTX_INJECTION64_PATH, as `knet run` sets it, and hands over its table of
 * functions; so one thread may come through several tables.
 *
 * Pushed ranges of a domain are a stack of each thread, and domains don't know of each other, but
 * scopes are one stack: a range that is popped takes those with it that began after it. Started
 * ranges are the timer's (<knet/prof_range.h>), with ids of its own.
 */
#include <knet/prof.h>
#include <knet/prof_range.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <wchar.h>

#include "ranges.h"

/* Ranges that a thread has open at once: memory is only taken for those that it opens. The timer
 * counts those that are too deep for it. */
enum { DEPTH_MAX = 16384, KEPT_CHUNK = 65536 };

typedef struct range {
    nvtxDomainHandle_t domain;
    kn_scope scope;
} range;

typedef struct ranges {
    int n, n_deeper; /* pushed; and those that found no room */
    range open[DEPTH_MAX];
} ranges;

atomic_bool kn__is_child;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;
static _Thread_local ranges *mine;

/* Not malloc's: that the program's use alone be counted (malloc.c). */
void *kn__map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void release(void *at) {
    mine = NULL;
    if (!atomic_load(&kn__is_child)) munmap(at, sizeof(ranges));
}

static void in_child(void) { atomic_store(&kn__is_child, true); }

static void make_key(void) { has_key = pthread_key_create(&key, release) == 0; }

__attribute__((constructor)) static void start(void) { pthread_atfork(NULL, NULL, in_child); }

static ranges *get_mine(void) {
    if (atomic_load_explicit(&kn__is_child, memory_order_relaxed)) return NULL;
    if (mine) return mine;
    pthread_once(&once, make_key);
    ranges *made = has_key ? kn__map(sizeof *made) : NULL;
    if (!made) return NULL;
    if (pthread_setspecific(key, made) != 0) {
        release(made);
        return NULL;
    }
    return mine = made;
}

/* --- texts --- */

static void put_utf8(char **at, uint32_t c) {
    char *out = *at;
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xC0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *out++ = (char)(0xE0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    } else {
        *out++ = (char)(0xF0 | (c >> 18 & 7));
        *out++ = (char)(0x80 | (c >> 12 & 0x3F));
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    }
    *at = out;
}

static const char *narrow(char label[KN__LABEL_BYTES], const wchar_t *wide) {
    char *at = label;
    for (; *wide && at < label + KN__LABEL_BYTES - 4; wide++) put_utf8(&at, (uint32_t)*wide);
    *at = '\0';
    return label;
}

/* --- ranges --- */

static void close_at(ranges *r, int i) {
    kn_scope_end(&r->open[i].scope);
    memmove(&r->open[i], &r->open[i + 1], (size_t)(r->n - i - 1) * sizeof *r->open);
    r->n--;
}

static const char *named(const char *label) { return label && *label ? label : "(unnamed)"; }

/* Returns how many of the thread were open, as NVTX wants. */
int kn__range_push(nvtxDomainHandle_t domain, const char *label) {
    ranges *r = get_mine();
    if (!r) return -1;
    if (r->n == DEPTH_MAX) {
        r->n_deeper++;
        return r->n;
    }
    kn_scope scope = kn_scope_begin(named(label));
    r->open[r->n++] = (range){domain, scope};
    return r->n - 1;
}

int kn__range_pop(nvtxDomainHandle_t domain) {
    ranges *r = get_mine();
    if (!r) return -1;
    if (r->n_deeper) {
        r->n_deeper--;
        return r->n;
    }
    int i = r->n - 1;
    while (i >= 0 && r->open[i].domain != domain) i--;
    if (i < 0) return -1;
    close_at(r, i);
    return r->n;
}

nvtxRangeId_t kn__range_start(const char *label) { return kn_prof_range_begin(named(label)); }
void kn__range_end(nvtxRangeId_t id) { kn_prof_range_end(id); }

const char *kn__message_text(char label[KN__LABEL_BYTES], int type,
                             const nvtxMessageValue_t *text) {
    switch (type) {
        case NVTX_MESSAGE_TYPE_ASCII:
            return text->ascii;
        case NVTX_MESSAGE_TYPE_UNICODE:
            return text->unicode ? narrow(label, text->unicode) : NULL;
        case NVTX_MESSAGE_TYPE_REGISTERED:
            return (const char *)(const void *)text->registered;
        default:
            return NULL;
    }
}

static const char *event_text(char label[KN__LABEL_BYTES], const nvtxEventAttributes_t *event) {
    return event ? kn__message_text(label, event->messageType, &event->message) : NULL;
}

static int push_event(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    char label[KN__LABEL_BYTES];
    return kn__range_push(domain, event_text(label, event));
}

static nvtxRangeId_t start_event(const nvtxEventAttributes_t *event) {
    char label[KN__LABEL_BYTES];
    return kn__range_start(event_text(label, event));
}

/* A mark is a call without a time. */
static void mark(const char *label) {
    kn_scope scope = kn_scope_begin(named(label));
    kn_scope_end(&scope);
}

static void mark_event(const nvtxEventAttributes_t *event) {
    char label[KN__LABEL_BYTES];
    mark(event_text(label, event));
}

/* --- the functions of NVTX --- */

static nvtxRangeId_t NVTX_API on_start_a(const char *text) { return kn__range_start(text); }

static nvtxRangeId_t NVTX_API on_start_w(const wchar_t *text) {
    char label[KN__LABEL_BYTES];
    return kn__range_start(text ? narrow(label, text) : NULL);
}

static nvtxRangeId_t NVTX_API on_start(const nvtxEventAttributes_t *event) {
    return start_event(event);
}

static void NVTX_API on_end(nvtxRangeId_t id) { kn__range_end(id); }

static nvtxRangeId_t NVTX_API on_domain_start(nvtxDomainHandle_t domain,
                                              const nvtxEventAttributes_t *event) {
    (void)domain;
    return start_event(event);
}

static void NVTX_API on_domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    (void)domain;
    kn__range_end(id);
}

static void NVTX_API on_mark_a(const char *text) { mark(text); }

static void NVTX_API on_mark_w(const wchar_t *text) {
    char label[KN__LABEL_BYTES];
    mark(text ? narrow(label, text) : NULL);
}

static void NVTX_API on_mark(const nvtxEventAttributes_t *event) { mark_event(event); }

static void NVTX_API on_domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    (void)domain;
    mark_event(event);
}

static int NVTX_API on_push_a(const char *text) { return kn__range_push(NULL, text); }

static int NVTX_API on_push_w(const wchar_t *text) {
    char label[KN__LABEL_BYTES];
    return kn__range_push(NULL, text ? narrow(label, text) : NULL);
}

static int NVTX_API on_push(const nvtxEventAttributes_t *event) { return push_event(NULL, event); }
static int NVTX_API on_pop(void) { return kn__range_pop(NULL); }

static int NVTX_API on_domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    return push_event(domain, event);
}

static int NVTX_API on_domain_pop(nvtxDomainHandle_t domain) { return kn__range_pop(domain); }

/* --- domains and strings: never freed, as programs keep them --- */

char *kn__keep(const char *text) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *free_at;
    static size_t n_free;
    static char nothing[1];
    if (atomic_load(&kn__is_child)) return nothing;
    size_t n = strlen(text) + 1;
    pthread_mutex_lock(&lock);
    if (n > n_free) {
        size_t more = n > KEPT_CHUNK ? n : KEPT_CHUNK;
        free_at = kn__map(more);
        n_free = free_at ? more : 0;
    }
    char *copy = free_at ? memcpy(free_at, text, n) : NULL;
    if (copy) {
        free_at += n;
        n_free -= n;
    }
    pthread_mutex_unlock(&lock);
    return copy;
}

/* The timer's own domain stays without a listener: its ranges are scopes already. */
static nvtxDomainHandle_t NVTX_API on_domain(const char *name) {
    if (name && strcmp(name, "knet") == 0) return NULL;
    static atomic_uintptr_t n;
    return (nvtxDomainHandle_t)(atomic_fetch_add(&n, 1) + 1);  // NOLINT
}

static nvtxDomainHandle_t NVTX_API on_domain_w(const wchar_t *name) {
    (void)name;
    return on_domain(NULL);
}

static nvtxStringHandle_t NVTX_API on_string(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    return (nvtxStringHandle_t)(void *)kn__keep(text ? text : "");
}

static nvtxStringHandle_t NVTX_API on_string_w(nvtxDomainHandle_t domain, const wchar_t *text) {
    char label[KN__LABEL_BYTES];
    return on_string(domain, text ? narrow(label, text) : NULL);
}

/* --- entry points --- */

KN_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
KN_API int InitializeInjection(void);

static void set(NvtxFunctionTable table, unsigned n, unsigned at, NvtxFunctionPointer function) {
    if (at < n && table[at]) *table[at] = function;
}

#define SET(id, function) set(table, n, id, (NvtxFunctionPointer)(function))

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned n = 0;
    if (!callbacks) return 0;
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &n)) {
        SET(NVTX_CBID_CORE_RangePushA, on_push_a);
        SET(NVTX_CBID_CORE_RangePushW, on_push_w);
        SET(NVTX_CBID_CORE_RangePushEx, on_push);
        SET(NVTX_CBID_CORE_RangePop, on_pop);
        SET(NVTX_CBID_CORE_RangeStartA, on_start_a);
        SET(NVTX_CBID_CORE_RangeStartW, on_start_w);
        SET(NVTX_CBID_CORE_RangeStartEx, on_start);
        SET(NVTX_CBID_CORE_RangeEnd, on_end);
        SET(NVTX_CBID_CORE_MarkA, on_mark_a);
        SET(NVTX_CBID_CORE_MarkW, on_mark_w);
        SET(NVTX_CBID_CORE_MarkEx, on_mark);
    }
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n)) {
        SET(NVTX_CBID_CORE2_DomainRangePushEx, on_domain_push);
        SET(NVTX_CBID_CORE2_DomainRangePop, on_domain_pop);
        SET(NVTX_CBID_CORE2_DomainRangeStartEx, on_domain_start);
        SET(NVTX_CBID_CORE2_DomainRangeEnd, on_domain_end);
        SET(NVTX_CBID_CORE2_DomainMarkEx, on_domain_mark);
        SET(NVTX_CBID_CORE2_DomainCreateA, on_domain);
        SET(NVTX_CBID_CORE2_DomainCreateW, on_domain_w);
        SET(NVTX_CBID_CORE2_DomainRegisterStringA, on_string);
        SET(NVTX_CBID_CORE2_DomainRegisterStringW, on_string_w);
    }
    return 1;
}

/* The driver loads this library for programs that can't be preloaded into; the timer has started
 * with it. */
int InitializeInjection(void) { return 1; }
