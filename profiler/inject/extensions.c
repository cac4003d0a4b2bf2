/* The extensions of NVTX: heaps that a program registers are heaps of the timer's, and ranges with
 * a payload are ranges named after its layout. Counters: counters.c. */
#include <knet/prof_heap.h>
#include <nvtx3/nvToolsExtMem.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "counters.h"
#include "hash.h"
#include "ranges.h"

enum { HEAPS_MAX = 64, REGIONS_CHUNK = 1024, SCHEMAS_MAX = 256 };

typedef struct heap {
    kn_prof_heap *counts;
} heap;

typedef struct region {
    const void *ptr;
    size_t bytes;
    const heap *of;
    uint32_t owner;
    struct region *next; /* of the unused ones */
} region;

typedef struct place {
    uint64_t key; /* of the region's address */
    region *region;
} place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static heap heaps[HEAPS_MAX];                            /* the first: of regions without one */
static int n_heaps;
static kn__hash regions; /* of places, in memory of kn__map */
static region *unused;
static const char *schemas[SCHEMAS_MAX]; /* their names */
static uint64_t schema_ids[SCHEMAS_MAX];
static int n_schemas;

/* Takes the lock; false: this is a child of fork(). */
static bool enter(void) {
    if (atomic_load(&kn__is_child)) return false;
    pthread_mutex_lock(&lock);
    return true;
}

/* --- regions, under the lock --- */

static uint64_t key_of(const void *ptr) { return kn__spread((uint64_t)(uintptr_t)ptr); }

/* The place of the region that begins at ptr, or NULL. */
static place *find_region(const void *ptr) {
    return kn__hash_get(&regions, sizeof(place), key_of(ptr));
}

/* False: there is no memory. */
static bool make_room(void) {
    if (!kn__hash_is_full(&regions)) return true;
    size_t old_bytes = regions.n_slots * sizeof(place);
    size_t n = kn__hash_next_size(&regions, REGIONS_CHUNK);
    void *slots = kn__map(n * sizeof(place));
    if (!slots) return false;
    void *old = kn__hash_move(&regions, sizeof(place), slots, n);
    if (old) munmap(old, old_bytes);
    return true;
}

static region *take_unused(void) {
    region *made = unused ? NULL : kn__map(REGIONS_CHUNK * sizeof *made);
    for (int i = 0; made && i < REGIONS_CHUNK; i++) {
        made[i].next = unused;
        unused = &made[i];
    }
    region *r = unused;
    if (r) unused = r->next;
    return r;
}

static void drop_region(place *at) {
    region *r = at->region;
    kn_prof_heap_free(r->of->counts, r->ptr, r->bytes, r->owner);
    kn__hash_remove(&regions, sizeof *at, at);
    r->next = unused;
    unused = r;
}

/* A region that begins where another one does replaces it. */
static region *add_region(const heap *of, const void *ptr, size_t bytes) {
    if (!ptr) return NULL;
    place *old = find_region(ptr);
    if (old) drop_region(old);
    region *r = make_room() ? take_unused() : NULL;
    if (!r) return NULL;
    *r = (region){ptr, bytes, of, kn_prof_heap_alloc(of->counts, ptr, bytes), NULL};
    place *at = kn__hash_put(&regions, sizeof *at, key_of(ptr));
    at->region = r;
    return r;
}

/* Removing moves a later place to where the walk is. */
static void drop_all(const heap *of) {
    for (size_t i = 0; i < regions.n_slots;) {
        place *at = kn__hash_at(&regions, sizeof *at, i);
        if (at->key && at->region->of == of) {
            drop_region(at);
        } else {
            i++;
        }
    }
}

static heap *add_heap(const char *name) {
    if (n_heaps == HEAPS_MAX) return NULL;
    heaps[n_heaps].counts = kn_prof_heap_get(name);
    return &heaps[n_heaps++];
}

static heap *heap_of(nvtxMemHeapHandle_t handle) {
    heap *h = (heap *)(void *)handle;
    if (n_heaps == 0) add_heap("NVTX regions");
    return h >= heaps && h < heaps + n_heaps ? h : &heaps[0];
}

/* --- the functions of the memory extension --- */

static nvtxMemHeapHandle_t NVTX_API on_heap(nvtxDomainHandle_t domain,
                                            const nvtxMemHeapDesc_t *desc) {
    char label[KN__LABEL_BYTES];
    const char *name = NULL;
    (void)domain;
    if (desc) name = kn__message_text(label, (int)desc->messageType, &desc->message);
    if (!enter()) return NULL;
    heap_of(NULL); /* is the first */
    heap *made = add_heap(name && *name ? name : "NVTX heap");
    pthread_mutex_unlock(&lock);
    return (nvtxMemHeapHandle_t)(void *)made;
}

static void NVTX_API on_heap_reset(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t handle) {
    (void)domain;
    if (!enter()) return;
    drop_all(heap_of(handle));
    pthread_mutex_unlock(&lock);
}

/* The i-th of an array of elements whose size the program tells. */
static const void *element(const void *first, size_t bytes, size_t i) {
    return (const char *)first + i * bytes;
}

static void NVTX_API on_regions(nvtxDomainHandle_t domain,
                                const nvtxMemRegionsRegisterBatch_t *batch) {
    (void)domain;
    if (!batch || batch->regionType != NVTX_MEM_TYPE_VIRTUAL_ADDRESS) return;
    if (!enter()) return;
    for (size_t i = 0; i < batch->regionCount; i++) {
        const nvtxMemVirtualRangeDesc_t *range =
            element(batch->regionDescElements, batch->regionDescElementSize, i);
        region *r = add_region(heap_of(batch->heap), range->ptr, range->size);
        if (batch->regionHandleElementsOut) {
            batch->regionHandleElementsOut[i] = (nvtxMemRegionHandle_t)(void *)r;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void NVTX_API on_resize(nvtxDomainHandle_t domain,
                               const nvtxMemRegionsResizeBatch_t *batch) {
    (void)domain;
    if (!batch || batch->regionType != NVTX_MEM_TYPE_VIRTUAL_ADDRESS) return;
    if (!enter()) return;
    for (size_t i = 0; i < batch->regionDescCount; i++) {
        const nvtxMemVirtualRangeDesc_t *range =
            element(batch->regionDescElements, batch->regionDescElementSize, i);
        const place *at = find_region(range->ptr);
        if (!at) continue;
        region *r = at->region;
        kn_prof_heap_free(r->of->counts, NULL, r->bytes, r->owner);
        r->bytes = range->size;
        r->owner = kn_prof_heap_alloc(r->of->counts, r->ptr, r->bytes);
    }
    pthread_mutex_unlock(&lock);
}

static void NVTX_API on_regions_end(nvtxDomainHandle_t domain,
                                    const nvtxMemRegionsUnregisterBatch_t *batch) {
    (void)domain;
    if (!batch) return;
    if (!enter()) return;
    for (size_t i = 0; i < batch->refCount; i++) {
        const nvtxMemRegionRef_t *ref = element(batch->refElements, batch->refElementSize, i);
        const region *named = (const region *)(const void *)ref->handle;
        bool by_handle = batch->refType == NVTX_MEM_REGION_REF_TYPE_HANDLE;
        const void *ptr = !by_handle ? ref->pointer : named ? named->ptr : NULL;
        place *at = find_region(ptr);
        if (at) drop_region(at);
    }
    pthread_mutex_unlock(&lock);
}

/* --- the functions of the payload extension --- */

static uint64_t NVTX_API on_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *attr) {
    (void)domain;
    if (!attr) return 0;
    bool is_static = attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID && attr->schemaId;
    bool is_named = attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME && attr->name;
    if (!enter()) return 0;
    uint64_t id =
        is_static ? attr->schemaId : NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START + (uint64_t)n_schemas;
    if (n_schemas < SCHEMAS_MAX) {
        schemas[n_schemas] = is_named ? kn__keep(attr->name) : NULL;
        schema_ids[n_schemas++] = id;
    }
    pthread_mutex_unlock(&lock);
    kn__counters_schema(id, attr);
    return id;
}

static const char *schema_name(const nvtxPayloadData_t *payload, size_t n) {
    const char *name = NULL;
    if (!enter()) return NULL;
    for (int i = 0; n && i < n_schemas && !name; i++) {
        if (schema_ids[i] == payload->schemaId) name = schemas[i];
    }
    pthread_mutex_unlock(&lock);
    return name;
}

static int NVTX_API on_push(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t n) {
    return kn__range_push(domain, schema_name(payload, n));
}

static int NVTX_API on_pop(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t n) {
    (void)payload, (void)n;
    return kn__range_pop(domain);
}

static nvtxRangeId_t NVTX_API on_start(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                                       size_t n) {
    (void)domain;
    return kn__range_start(schema_name(payload, n));
}

static void NVTX_API on_end(nvtxDomainHandle_t domain, nvtxRangeId_t id,
                            const nvtxPayloadData_t *payload, size_t n) {
    (void)domain, (void)payload, (void)n;
    kn__range_end(id);
}

/* --- entry point --- */

KN_API int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);

/* Functions that are not set stay NULL: the program does not call them. */
#define SET(name, function)                                                                        \
    do {                                                                                           \
        size_t at = NVTX3EXT_CBID_##name;                                                          \
        if (at < segment->slotCount) segment->functionSlots[at] = (intptr_t)(function);            \
    } while (0)

int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
    if (!module || module->segmentsCount < 1) return 0;
    nvtxExtModuleSegment_t *segment = module->segments;
    if (module->moduleId == NVTX_EXT_MODULEID_MEM) {
        SET(nvtxMemHeapRegister, on_heap);
        SET(nvtxMemHeapUnregister, on_heap_reset);
        SET(nvtxMemHeapReset, on_heap_reset);
        SET(nvtxMemRegionsRegister, on_regions);
        SET(nvtxMemRegionsResize, on_resize);
        SET(nvtxMemRegionsUnregister, on_regions_end);
    } else if (module->moduleId == NVTX_EXT_PAYLOAD_MODULEID) {
        SET(nvtxPayloadSchemaRegister, on_schema);
        SET(nvtxRangePushPayload, on_push);
        SET(nvtxRangePopPayload, on_pop);
        SET(nvtxRangeStartPayload, on_start);
        SET(nvtxRangeEndPayload, on_end);
        kn__counters_set_scopes(segment);
    } else if (module->moduleId == KN__COUNTERS_MODULE) {
        return kn__counters_set(module);
    } else {
        return 0;
    }
    return 1;
}
