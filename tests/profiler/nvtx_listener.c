/* A tool that listens to NVTX, as small as can be: counts ranges of the domain "knet" by name and
 * writes them, when the program ends, to the file that KNET_TEST_NVTX names. NVIDIA's libraries
 * send their own ranges: for each call of the program it records whether one of our ranges with
 * that name was open. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 512, DEPTH_MAX = 64 };

typedef struct name {
    char text[64];
    int n, n_bare; /* n_bare: of a library, with no range of ours round it */
} name;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static name names[NAMES_MAX];
static int n_names, n_pushed, n_popped, n_registered, n_domains, n_calls, n_bare;
static char ours, theirs; /* domains, by their addresses */

static _Thread_local const name *open_ranges[DEPTH_MAX];
static _Thread_local int n_open, n_theirs_open;

static bool is_library(const char *domain) {
    return strncmp(domain, "cuBLAS", 6) == 0 || strncmp(domain, "cuDNN", 5) == 0;
}

static nvtxDomainHandle_t NVTX_API on_domain(const char *text) {
    n_domains += strcmp(text, "knet") == 0;
    if (strcmp(text, "knet") == 0) return (nvtxDomainHandle_t)(void *)&ours;
    return is_library(text) ? (nvtxDomainHandle_t)(void *)&theirs : NULL;
}

static bool is(nvtxDomainHandle_t domain, const char *which) {
    return (const void *)domain == (const void *)which;
}

static name *find_name(const char *text) {
    for (int i = 0; i < n_names; i++) {
        if (strcmp(names[i].text, text) == 0) return &names[i];
    }
    if (n_names == NAMES_MAX) return NULL;
    snprintf(names[n_names].text, sizeof names[0].text, "%s", text);
    return &names[n_names++];
}

static nvtxStringHandle_t NVTX_API on_string(nvtxDomainHandle_t domain, const char *text) {
    pthread_mutex_lock(&lock);
    n_registered += is(domain, &ours);
    name *found = find_name(text);
    pthread_mutex_unlock(&lock);
    return (nvtxStringHandle_t)(void *)found;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Functions of headers call one of this name and "_internal". */
static bool is_same(const char *called, const char *label) {
    size_t n = strlen(label);
    return starts_with(called, label) && (!called[n] || strcmp(called + n, "_internal") == 0);
}

/* The innermost range of ours bears the call's name; or it is a call of the other library, which
 * uses this one. */
static bool is_covered(const char *called) {
    const name *inner = n_open > 0 && n_open <= DEPTH_MAX ? open_ranges[n_open - 1] : NULL;
    if (!inner) return false;
    bool is_dnn = starts_with(called, "cudnn");
    return is_same(called, inner->text) || (!is_dnn && starts_with(inner->text, "cudnn"));
}

/* Under the lock. Ignores calls that a library makes itself, and those for texts of errors. */
static void see_call(name *called) {
    if (n_theirs_open++ > 0 || !called || starts_with(called->text, "cublasLtGetStatus")) return;
    n_calls++;
    if (is_covered(called->text)) return;
    n_bare++;
    called->n_bare++;
}

static int NVTX_API on_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    name *pushed = NULL;
    pthread_mutex_lock(&lock);
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
        pushed = (name *)(void *)event->message.registered;
    } else if (event->messageType == NVTX_MESSAGE_TYPE_ASCII) {
        pushed = find_name(event->message.ascii);
    }
    if (is(domain, &theirs)) see_call(pushed);
    if (is(domain, &ours)) {
        if (pushed) pushed->n++;
        if (n_open < DEPTH_MAX) open_ranges[n_open] = pushed;
        n_open++;
        n_pushed++;
    }
    pthread_mutex_unlock(&lock);
    return n_open;
}

static int NVTX_API on_pop(nvtxDomainHandle_t domain) {
    if (is(domain, &theirs)) n_theirs_open -= n_theirs_open > 0;
    if (!is(domain, &ours)) return 0;
    pthread_mutex_lock(&lock);
    n_popped++;
    pthread_mutex_unlock(&lock);
    return n_open -= n_open > 0;
}

#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>

static int n_heaps, n_heaps_ended, n_blocks, n_blocks_ended;
static size_t block_bytes;
static const void *last_block;

static nvtxMemHeapHandle_t NVTX_API on_heap(nvtxDomainHandle_t domain,
                                            const nvtxMemHeapDesc_t *desc) {
    if (!is(domain, &ours) || desc->usage != NVTX_MEM_HEAP_USAGE_TYPE_LAYOUT) return NULL;
    if (strcmp(desc->message.ascii, "watched") != 0) return NULL;
    n_heaps++;
    return (nvtxMemHeapHandle_t)(void *)&n_heaps;
}

static void NVTX_API on_heap_end(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
    n_heaps_ended += is(domain, &ours) && (void *)heap == (void *)&n_heaps;
}

static void NVTX_API on_blocks(nvtxDomainHandle_t domain,
                               const nvtxMemRegionsRegisterBatch_t *batch) {
    const nvtxMemVirtualRangeDesc_t *range = batch->regionDescElements;
    if (!is(domain, &ours) || (void *)batch->heap != (void *)&n_heaps) return;
    n_blocks += (int)batch->regionCount;
    block_bytes += range->size;
    last_block = range->ptr;
}

static void NVTX_API on_blocks_end(nvtxDomainHandle_t domain,
                                   const nvtxMemRegionsUnregisterBatch_t *batch) {
    const nvtxMemRegionRef_t *ref = batch->refElements;
    if (batch->refType != NVTX_MEM_REGION_REF_TYPE_POINTER || batch->refCount != 1) return;
    n_blocks_ended += is(domain, &ours) && ref->pointer && ref->pointer == last_block;
}

static int listen_to_heaps(nvtxExtModuleInfo_t *module) {
    intptr_t *slots = module->segments->functionSlots;
    if (module->moduleId != NVTX_EXT_MODULEID_MEM) return 0;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)on_heap;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)on_heap_end;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)on_blocks;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)on_blocks_end;
    return 1;
}

static void write_heaps(FILE *file) {
    fprintf(file, "heaps %d\nheaps ended %d\nblocks %d\nblock bytes %zu\nblocks ended %d\n",
            n_heaps, n_heaps_ended, n_blocks, block_bytes, n_blocks_ended);
}
#else
static void write_heaps(FILE *file) { fprintf(file, "no heaps\n"); }
#endif

#if __has_include(<nvtx3/nvToolsExtCounters.h>)
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>

enum { COUNTER = 77 };
static int n_samples, n_counters;
static long long last_sample, largest_sample;

static uint64_t NVTX_API on_counter(nvtxDomainHandle_t domain, const nvtxCounterAttr_t *attr) {
    const nvtxSemanticsCounter_t *unit = (const void *)attr->semantics;
    bool good = is(domain, &ours) && strcmp(attr->name, "live bytes") == 0 &&
                attr->schemaId == NVTX_PAYLOAD_ENTRY_TYPE_INT64 && strcmp(unit->unit, "B") == 0;
    n_counters += good;
    return getenv("KNET_TEST_NVTX_NO_COUNTERS") ? NVTX_COUNTER_ID_NONE : COUNTER;
}

static void NVTX_API on_sample(nvtxDomainHandle_t domain, uint64_t counter, int64_t value) {
    if (!is(domain, &ours) || (counter && counter != COUNTER)) return;
    pthread_mutex_lock(&lock);
    n_samples++;
    last_sample = value;
    if (value > largest_sample) largest_sample = value;
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t *module);

int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
    if (module->moduleId != NVTX_EXT_COUNTERS_MODULEID) return listen_to_heaps(module);
    module->segments->functionSlots[NVTX3EXT_CBID_nvtxCounterRegister] = (intptr_t)on_counter;
    module->segments->functionSlots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = (intptr_t)on_sample;
    return 1;
}

static void write_counters(FILE *file) {
    fprintf(file, "counters %d\nsamples %d\nlast sample %lld\nlargest sample %lld\n", n_counters,
            n_samples, last_sample, largest_sample);
}
#else
static void write_counters(FILE *file) { fprintf(file, "no counters\n"); }
#endif

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

/* Once for each library that sends ranges. */
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned n = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n))
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)on_domain;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)on_string;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)on_push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)on_pop;
    return 1;
}

__attribute__((destructor)) static void write_counts(void) {
    const char *path = getenv("KNET_TEST_NVTX");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "domains %d\nregistered %d\npushed %d\npopped %d\nlibrary calls %d\nbare %d\n",
            n_domains, n_registered, n_pushed, n_popped, n_calls, n_bare);
    write_counters(file);
    write_heaps(file);
    for (int i = 0; i < n_names; i++) {
        if (names[i].n) fprintf(file, "%s: %d\n", names[i].text, names[i].n);
        if (names[i].n_bare) fprintf(file, "bare call of %s\n", names[i].text);
    }
    fclose(file);
}
