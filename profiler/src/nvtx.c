#include "nvtx.h"

#include <nvtx3/nvToolsExt.h>
#if __has_include(<nvtx3/nvToolsExtCounters.h>) /* NVTX 3.2 */
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>
#define HAS_COUNTERS 1
#else
#define HAS_COUNTERS 0
#endif

#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>
#define HAS_HEAPS 1
#else
#define HAS_HEAPS 0
#endif

static nvtxDomainHandle_t domain;

#if HAS_COUNTERS
static uint64_t live_bytes; /* the counter; NVTX_COUNTER_ID_NONE: the tool wants none */

static void start_counters(void) {
    static const nvtxSemanticsCounter_t bytes = {
        .header = {.structSize = sizeof bytes,
                   .semanticId = NVTX_SEMANTIC_ID_COUNTERS_V1,
                   .version = NVTX_COUNTER_SEMANTIC_VERSION},
        .flags = NVTX_COUNTER_FLAG_VALUETYPE_ABSOLUTE | NVTX_COUNTER_FLAG_INTERPOLATION_UNTIL_NEXT,
        .unit = "B",
        .unitScaleNumerator = 1,
        .unitScaleDenominator = 1};
    const nvtxCounterAttr_t attr = {.structSize = sizeof attr,
                                    .schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
                                    .name = "live bytes",
                                    .description = "memory handed out by all pools",
                                    .scopeId = NVTX_SCOPE_CURRENT_SW_PROCESS,
                                    .semantics = &bytes.header,
                                    .counterId = NVTX_COUNTER_ID_NONE};
    live_bytes = nvtxCounterRegister(domain, &attr);
}

void kn__nvtx_live(int64_t bytes) {
    if (live_bytes) nvtxCounterSampleInt64(domain, live_bytes, bytes);
}
#else
static void start_counters(void) {}
void kn__nvtx_live(int64_t bytes) { (void)bytes; }
#endif

#if HAS_HEAPS
/* A layout, not a sub-allocator: outside its blocks a pool's memory may be used, by the pool. It
 * has no one range, since it grows by segments. */
void *kn__nvtx_heap(const char *name) {
    static const nvtxMemVirtualRangeDesc_t anywhere = {0, NULL};
    const nvtxMemHeapDesc_t desc = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                    .structSize = sizeof desc,
                                    .usage = NVTX_MEM_HEAP_USAGE_TYPE_LAYOUT,
                                    .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                    .typeSpecificDescSize = sizeof anywhere,
                                    .typeSpecificDesc = &anywhere,
                                    .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                    .message.ascii = name};
    if (!domain) return NULL; /* asking would load the tool */
    nvtxMemHeapHandle_t heap = nvtxMemHeapRegister(domain, &desc);
    return heap == NVTX_MEM_HEAP_HANDLE_NO_TOOL ? NULL : heap;
}

void kn__nvtx_heap_end(void *heap) { nvtxMemHeapUnregister(domain, heap); }

void kn__nvtx_block(void *heap, const void *ptr, size_t size_bytes) {
    const nvtxMemVirtualRangeDesc_t range = {size_bytes, ptr};
    const nvtxMemRegionsRegisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                                 .structSize = sizeof batch,
                                                 .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                                 .heap = heap,
                                                 .regionCount = 1,
                                                 .regionDescElementSize = sizeof range,
                                                 .regionDescElements = &range};
    nvtxMemRegionsRegister(domain, &batch);
}

void kn__nvtx_block_end(const void *ptr) {
    const nvtxMemRegionRef_t block = {.pointer = ptr};
    const nvtxMemRegionsUnregisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                                   .structSize = sizeof batch,
                                                   .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                                   .refCount = 1,
                                                   .refElementSize = sizeof block,
                                                   .refElements = &block};
    nvtxMemRegionsUnregister(domain, &batch);
}
#else
void *kn__nvtx_heap(const char *name) { return (void)name, NULL; }
void kn__nvtx_heap_end(void *heap) { (void)heap; }
void kn__nvtx_block(void *heap, const void *ptr, size_t size_bytes) {
    (void)heap, (void)ptr, (void)size_bytes;
}
void kn__nvtx_block_end(const void *ptr) { (void)ptr; }
#endif

bool kn__nvtx_start(void) {
    if (domain) return true;
    domain = nvtxDomainCreateA("knet");
    if (domain) start_counters();
    return domain != NULL;
}

void kn__nvtx_push(kn__tree_node *node) {
    if (!node->nvtx) node->nvtx = nvtxDomainRegisterStringA(domain, node->label);
    nvtxEventAttributes_t event = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
        .message.registered = node->nvtx,
    };
    if (!node->nvtx) { /* a tool that keeps no strings */
        event.messageType = NVTX_MESSAGE_TYPE_ASCII;
        event.message.ascii = node->label;
    }
    nvtxDomainRangePushEx(domain, &event);
}

void kn__nvtx_pop(void) { nvtxDomainRangePop(domain); }
