/* A counter of NVTX is one number, or a group of them with the layout of a schema: each is a
 * counter of the timer. Counters are registered under a lock and found without one. */
#include "counters.h"

#include <nvtx3/nvToolsExtPayload.h>
#if __has_include(<nvtx3/nvToolsExtCounters.h>) /* NVTX 3.2 */
#include <knet/prof_counter.h>
#include <math.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mix.h"
#include "ranges.h"

enum { FIELDS_MAX = 32, GROUPS_MAX = 512, SLOTS = 2048, SCHEMAS_MAX = 256, SCOPES_MAX = 256 };
enum { NAME_BYTES = 64 };

/* --- numbers --- */

typedef enum number_kind { NO_NUMBER, SIGNED, UNSIGNED, REAL } number_kind;

typedef struct number_type {
    number_kind kind;
    size_t bytes; /* and the alignment */
} number_type;

static number_type type_of(uint64_t type) {
    static const number_type types[] = {
        [NVTX_PAYLOAD_ENTRY_TYPE_CHAR] = {SIGNED, 1},
        [NVTX_PAYLOAD_ENTRY_TYPE_UCHAR] = {UNSIGNED, 1},
        [NVTX_PAYLOAD_ENTRY_TYPE_SHORT] = {SIGNED, sizeof(short)},
        [NVTX_PAYLOAD_ENTRY_TYPE_USHORT] = {UNSIGNED, sizeof(short)},
        [NVTX_PAYLOAD_ENTRY_TYPE_INT] = {SIGNED, sizeof(int)},
        [NVTX_PAYLOAD_ENTRY_TYPE_UINT] = {UNSIGNED, sizeof(int)},
        [NVTX_PAYLOAD_ENTRY_TYPE_LONG] = {SIGNED, sizeof(long)},
        [NVTX_PAYLOAD_ENTRY_TYPE_ULONG] = {UNSIGNED, sizeof(long)},
        [NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG] = {SIGNED, sizeof(long long)},
        [NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG] = {UNSIGNED, sizeof(long long)},
        [NVTX_PAYLOAD_ENTRY_TYPE_INT8] = {SIGNED, 1},
        [NVTX_PAYLOAD_ENTRY_TYPE_UINT8] = {UNSIGNED, 1},
        [NVTX_PAYLOAD_ENTRY_TYPE_INT16] = {SIGNED, 2},
        [NVTX_PAYLOAD_ENTRY_TYPE_UINT16] = {UNSIGNED, 2},
        [NVTX_PAYLOAD_ENTRY_TYPE_INT32] = {SIGNED, 4},
        [NVTX_PAYLOAD_ENTRY_TYPE_UINT32] = {UNSIGNED, 4},
        [NVTX_PAYLOAD_ENTRY_TYPE_INT64] = {SIGNED, 8},
        [NVTX_PAYLOAD_ENTRY_TYPE_UINT64] = {UNSIGNED, 8},
        [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT] = {REAL, sizeof(float)},
        [NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE] = {REAL, sizeof(double)},
        [NVTX_PAYLOAD_ENTRY_TYPE_LONGDOUBLE] = {NO_NUMBER, sizeof(long double)},
        [NVTX_PAYLOAD_ENTRY_TYPE_SIZE] = {UNSIGNED, sizeof(size_t)},
        [NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS] = {NO_NUMBER, sizeof(void *)},
        [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT32] = {REAL, sizeof(float)},
        [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64] = {REAL, sizeof(double)},
    };
    return type < sizeof types / sizeof *types ? types[type] : (number_type){NO_NUMBER, 0};
}

/* Exact for whole numbers of 64 bits: these are long double. */
static long double unsigned_at(const void *at, size_t bytes) {
    uint64_t value = 0; /* the first bytes are the low ones */
    memcpy(&value, at, bytes);
    return (long double)value;
}

static long double signed_at(const void *at, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    int unused = (int)(64 - 8 * bytes);
    return (long double)((int64_t)(value << unused) >> unused);
}

static double real_at(const void *at, size_t bytes) {
    float single = 0;
    double value = 0;
    memcpy(bytes == sizeof single ? (void *)&single : (void *)&value, at, bytes);
    return bytes == sizeof single ? (double)single : value;
}

static long double number_at(const void *at, number_type type) {
    if (type.kind == REAL) return real_at(at, type.bytes);
    return type.kind == SIGNED ? signed_at(at, type.bytes) : unsigned_at(at, type.bytes);
}

/* --- what a number means --- */

typedef struct meaning {
    kn_prof_counter_options options;
    double scale;
    bool is_change; /* each sample is added to the one before */
    bool is_told;
} meaning;

static double limit_of(const nvtxSemanticsCounter_t *s, const nvtxCounterLimit_t *limit,
                       double none) {
    switch (s->limitType) {
        case NVTX_COUNTER_LIMIT_I64:
            return (double)limit->i64;
        case NVTX_COUNTER_LIMIT_U64:
            return (double)limit->u64;
        case NVTX_COUNTER_LIMIT_F64:
            return limit->f64;
        default:
            return none;
    }
}

/* Fixed-point numbers stand for 0 to 1, or -1 to 1. */
static double scale_of(const nvtxSemanticsCounter_t *s, number_type type) {
    double bits = 8 * (double)type.bytes - (type.kind == SIGNED), scale = 1;
    if (s->flags & NVTX_COUNTER_FLAG_NORMALIZE && type.kind != REAL) scale /= exp2(bits) - 1;
    if (s->unitScaleNumerator && s->unitScaleDenominator) {
        scale *= (double)s->unitScaleNumerator / (double)s->unitScaleDenominator;
    }
    return scale;
}

static void read_meaning(meaning *out, const nvtxSemanticsHeader_t *header, number_type type) {
    const uint64_t value_type = NVTX_COUNTER_FLAG_VALUETYPE_DELTA_SINCE_START;
    while (header && header->semanticId != NVTX_SEMANTIC_ID_COUNTERS_V1) header = header->next;
    if (!header || header->structSize < sizeof(nvtxSemanticsCounter_t)) return;
    const nvtxSemanticsCounter_t *s = (const void *)header;
    out->is_told = true;
    if (s->unit) out->options.unit = kn__keep(s->unit);
    out->scale = scale_of(s, type);
    out->is_change = (s->flags & value_type) == NVTX_COUNTER_FLAG_VALUETYPE_DELTA;
    if (s->limitType == NVTX_COUNTER_LIMIT_UNDEFINED || !(s->flags & NVTX_COUNTER_FLAG_LIMITS))
        return;
    bool has_min = s->flags & NVTX_COUNTER_FLAG_LIMIT_MIN;
    bool has_max = s->flags & NVTX_COUNTER_FLAG_LIMIT_MAX;
    out->options.limit_min = has_min ? limit_of(s, &s->min, -INFINITY) : -INFINITY;
    out->options.limit_max = has_max ? limit_of(s, &s->max, INFINITY) : INFINITY;
}

/* --- schemas and scopes, under the lock --- */

typedef struct field {
    const char *name; /* NULL: the group's own */
    size_t offset;
    number_type type;
    meaning means;
    kn_prof_counter *counter; /* of a group */
} field;

typedef struct layout {
    uint64_t id;
    size_t bytes;
    int n;
    field fields[FIELDS_MAX];
} layout;

typedef struct scope {
    uint64_t id;
    const char *path;
} scope;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the tables below */
static layout *layouts[SCHEMAS_MAX];
static int n_layouts;
static scope scopes[SCOPES_MAX];
static int n_scopes;

static bool enter(void) {
    if (atomic_load(&kn__is_child)) return false;
    pthread_mutex_lock(&lock);
    return true;
}

/* False: nothing after this entry has a place that is known. */
static bool add_field(layout *l, const nvtxPayloadSchemaEntry_t *e, size_t pack) {
    const uint64_t elsewhere = NVTX_PAYLOAD_ENTRY_FLAG_POINTER | NVTX_PAYLOAD_ENTRY_FLAG_IS_ARRAY;
    number_type type = type_of(e->type);
    size_t align = pack && pack < type.bytes ? pack : type.bytes;
    if (e->flags & elsewhere || !type.bytes || l->n == FIELDS_MAX) return false;
    size_t at = e->offset ? e->offset : (l->bytes + align - 1) / align * align;
    l->bytes = at + type.bytes;
    if (type.kind == NO_NUMBER ||
        (e->flags & NVTX_PAYLOAD_ENTRY_FLAG_TIMESTAMP) == NVTX_PAYLOAD_ENTRY_FLAG_TIMESTAMP)
        return true;
    field *f = &l->fields[l->n++];
    *f = (field){kn__keep(e->name ? e->name : "(unnamed)"), at, type, {.scale = 1}, NULL};
    read_meaning(&f->means, e->semantics, type);
    return true;
}

void kn__counters_schema(uint64_t id, const nvtxPayloadSchemaAttr_t *attr) {
    if (!(attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES) || !attr->entries) return;
    bool has_n = attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
    bool is_packed = attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT;
    bool has_size = attr->fieldMask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    if (!has_n || !enter()) return;
    layout *made = n_layouts < SCHEMAS_MAX ? kn__map(sizeof *made) : NULL;
    bool known = made;
    for (size_t i = 0; i < attr->numEntries && known; i++) {
        known = add_field(made, &attr->entries[i], is_packed ? attr->packAlign : 0);
    }
    if (made) {
        made->id = id;
        if (has_size && attr->payloadStaticSize) made->bytes = attr->payloadStaticSize;
        layouts[n_layouts++] = made;
    }
    pthread_mutex_unlock(&lock);
}

static const layout *layout_of(uint64_t id) {
    for (int i = 0; i < n_layouts; i++) {
        if (layouts[i]->id == id) return layouts[i];
    }
    return NULL;
}

static const char *scope_path(uint64_t id) {
    for (int i = 0; i < n_scopes; i++) {
        if (scopes[i].id == id) return scopes[i].path;
    }
    return NULL;
}

static uint64_t NVTX_API on_scope(nvtxDomainHandle_t domain, const nvtxScopeAttr_t *attr) {
    (void)domain;
    if (!attr || !attr->path || !enter()) return NVTX_SCOPE_NONE;
    uint64_t id = attr->scopeId ? attr->scopeId : NVTX_SCOPE_ID_DYNAMIC_START + (uint64_t)n_scopes;
    char path[NAME_BYTES];
    const char *parent = scope_path(attr->parentScope);
    snprintf(path, sizeof path, "%s%s%s", parent ? parent : "", parent ? "/" : "", attr->path);
    if (n_scopes < SCOPES_MAX) {
        scopes[n_scopes++] = (scope){id, kn__keep(path)};
    } else {
        id = NVTX_SCOPE_NONE;
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/* --- counters --- */

/* One registration; constant once it is in its slot. */
typedef struct group {
    uint64_t id;
    nvtxDomainHandle_t domain; /* of an id that the program chose; else NULL */
    layout is;
} group;

/* By id, at most GROUPS_MAX in use. Not kn__hash: samples find theirs without the lock. */
static _Atomic(group *) slots[SLOTS];
static int n_groups; /* protected by the lock */

static size_t slot_of(nvtxDomainHandle_t domain, uint64_t id) {
    uint64_t hash = (id ^ (uint64_t)(uintptr_t)domain << 40) * KN__GOLDEN;
    return hash >> 53;
}

/* The ids that we made are unique across domains. */
static nvtxDomainHandle_t domain_of(nvtxDomainHandle_t domain, uint64_t id) {
    return id < NVTX_COUNTER_ID_DYNAMIC_START ? domain : NULL;
}

/* Its slot, or the empty one for it: the table is never full. */
static _Atomic(group *) *find_slot(nvtxDomainHandle_t domain, uint64_t id) {
    domain = domain_of(domain, id);
    size_t i = slot_of(domain, id);
    for (;; i = (i + 1) % SLOTS) {
        const group *g = atomic_load_explicit(&slots[i], memory_order_acquire);
        if (!g || (g->id == id && g->domain == domain)) return &slots[i];
    }
}

static const group *find(nvtxDomainHandle_t domain, uint64_t id) {
    return atomic_load_explicit(find_slot(domain, id), memory_order_acquire);
}

/* "scope/group/number", as far as there are such. */
static void make_counter(field *f, const nvtxCounterAttr_t *attr) {
    char name[2 * NAME_BYTES];
    const char *path = scope_path(attr->scopeId);
    const char *own = attr->name && *attr->name ? attr->name : "NVTX counter";
    snprintf(name, sizeof name, "%s%s%.63s%s%s", path ? path : "", path ? "/" : "", own,
             f->name ? "/" : "", f->name ? f->name : "");
    f->counter = kn_prof_counter_get(name, &f->means.options);
}

static group *make_group(const nvtxCounterAttr_t *attr) {
    group *made = n_groups < GROUPS_MAX ? kn__map(sizeof *made) : NULL;
    const layout *known = layout_of(attr->schemaId);
    number_type type = type_of(attr->schemaId);
    if (!made) { /* it counts as one more, or would be without samples */
        field none = {.name = NULL};
        make_counter(&none, attr);
        return NULL;
    }
    if (known) {
        made->is = *known;
    } else {
        made->is = (layout){.bytes = type.bytes, .n = type.kind != NO_NUMBER};
        made->is.fields[0] = (field){NULL, 0, type, {.scale = 1}, NULL};
    }
    for (int i = 0; i < made->is.n; i++) {
        field *f = &made->is.fields[i];
        if (!f->means.is_told) read_meaning(&f->means, attr->semantics, f->type);
        make_counter(f, attr);
    }
    return made;
}

static uint64_t NVTX_API on_counter(nvtxDomainHandle_t domain, const nvtxCounterAttr_t *attr) {
    if (!attr || !enter()) return NVTX_COUNTER_ID_NONE;
    uint64_t id =
        attr->counterId ? attr->counterId : NVTX_COUNTER_ID_DYNAMIC_START + (uint64_t)n_groups;
    _Atomic(group *) *slot = find_slot(domain, id);
    if (!atomic_load(slot)) {
        group *made = make_group(attr);
        if (made) {
            made->id = id;
            made->domain = domain_of(domain, id);
            atomic_store_explicit(slot, made, memory_order_release);
            n_groups++;
        } else {
            id = NVTX_COUNTER_ID_NONE;
        }
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/* --- samples --- */

static kn_prof_sample_ sample_of(const field *f, long double value) {
    return (kn_prof_sample_){f->counter, f->means.is_change, value * f->means.scale};
}

/* A sample of one number; of a group or of an unknown counter it is lost, and counted so. */
static void take_one(nvtxDomainHandle_t domain, uint64_t id, long double value) {
    const group *g = find(domain, id);
    if (g && g->is.n == 1) {
        kn_prof_sample_ sample = sample_of(&g->is.fields[0], value);
        kn_prof_counters_take_(&sample, 1);
    } else {
        kn_prof_counter_miss(NULL);
    }
}

static void take_group(const group *g, const void *sample, size_t bytes) {
    kn_prof_sample_ samples[FIELDS_MAX];
    int n = 0;
    if (!g || !g->is.n) kn_prof_counter_miss(NULL);
    for (int i = 0; g && i < g->is.n; i++) {
        const field *f = &g->is.fields[i];
        if (sample && f->offset + f->type.bytes <= bytes) {
            samples[n++] = sample_of(f, number_at((const char *)sample + f->offset, f->type));
        } else {
            kn_prof_counter_miss(f->counter);
        }
    }
    kn_prof_counters_take_(samples, n);
}

static void NVTX_API on_int64(nvtxDomainHandle_t domain, uint64_t id, int64_t value) {
    take_one(domain, id, value);
}

static void NVTX_API on_float64(nvtxDomainHandle_t domain, uint64_t id, double value) {
    take_one(domain, id, value);
}

static void NVTX_API on_sample(nvtxDomainHandle_t domain, uint64_t id, const void *sample,
                               size_t bytes) {
    take_group(find(domain, id), sample, bytes);
}

static void NVTX_API on_no_value(nvtxDomainHandle_t domain, uint64_t id, uint8_t reason) {
    const group *g = find(domain, id);
    if (!g || !g->is.n) kn_prof_counter_miss(NULL);
    for (int i = 0; g && i < g->is.n; i++) {
        kn_prof_counter *counter = g->is.fields[i].counter;
        if (reason == NVTX_COUNTER_SAMPLE_ZERO) {
            kn_prof_counter_sample_int64(counter, 0);
        } else if (reason == NVTX_COUNTER_SAMPLE_UNCHANGED) {
            kn_prof_counter_add(counter, 0);
        } else {
            kn_prof_counter_miss(counter);
        }
    }
}

/* Samples are of the moment at which the batch comes: their own times are of other clocks. */
static void NVTX_API on_batch(nvtxDomainHandle_t domain, const nvtxCounterBatch_t *batch) {
    if (!batch || !batch->counters) return;
    const group *g = find(domain, batch->counterId);
    size_t bytes = g ? g->is.bytes : 0;
    if (!bytes) kn_prof_counter_miss(NULL);
    for (size_t at = 0; bytes && at < batch->countersSize; at += bytes) {
        take_group(g, (const char *)batch->counters + at, batch->countersSize - at);
    }
}

/* --- entry points --- */

static void set(nvtxExtModuleSegment_t *segment, size_t at, intptr_t function) {
    if (at < segment->slotCount) segment->functionSlots[at] = function;
}

bool kn__counters_set(const nvtxExtModuleInfo_t *module) {
    if (module->compatId != NVTX_EXT_COUNTERS_COMPATID) return false;
    nvtxExtModuleSegment_t *segment = module->segments;
    set(segment, NVTX3EXT_CBID_nvtxCounterRegister, (intptr_t)on_counter);
    set(segment, NVTX3EXT_CBID_nvtxCounterSampleInt64, (intptr_t)on_int64);
    set(segment, NVTX3EXT_CBID_nvtxCounterSampleFloat64, (intptr_t)on_float64);
    set(segment, NVTX3EXT_CBID_nvtxCounterSample, (intptr_t)on_sample);
    set(segment, NVTX3EXT_CBID_nvtxCounterSampleNoValue, (intptr_t)on_no_value);
    set(segment, NVTX3EXT_CBID_nvtxCounterBatchSubmit, (intptr_t)on_batch);
    return true;
}

void kn__counters_set_scopes(nvtxExtModuleSegment_t *segment) {
    set(segment, NVTX3EXT_CBID_nvtxScopeRegister, (intptr_t)on_scope);
}

#else

bool kn__counters_set(const nvtxExtModuleInfo_t *module) {
    (void)module;
    return false;
}

void kn__counters_set_scopes(nvtxExtModuleSegment_t *segment) { (void)segment; }

void kn__counters_schema(uint64_t id, const nvtxPayloadSchemaAttr_t *attr) { (void)id, (void)attr; }

#endif
