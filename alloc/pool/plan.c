/* Plan mode. A layer over the pool's public calls: the region is one block of the pool.
 *
 * A recorded step is a list of events, allocations and frees of the plan's stream in the order of
 * their calls. While a step is served, the next call must be the next event: then the block of an
 * allocation is free of live ones, since the placement was made for this order. */
#include <knet/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "core/common.h"
#include "hash.h"
#include "place.h"
#include "pool/fault.h"

enum { MISSES_MAX = 3, PLANNED_MAX = 16384, GRAIN = 256, EVENTS_MAX = INT32_MAX };
#define POOLED UINT64_MAX /* the offset of a block that is not planned */

typedef struct event {
    uint32_t block;
    bool is_free;
} event;

typedef struct planned {
    uint64_t size;   /* as requested */
    uint64_t offset; /* in the region; POOLED */
    uint32_t begin, end;
    bool apart; /* other streams use it */
    bool live;  /* served now, from the region */
    void *ptr;  /* while it is recorded, or served from the pool */
} planned;

typedef struct live_block { /* of the step that is recorded, by address */
    uint64_t key;
    uint32_t block;
} live_block;

struct kn_plan {
    kn_pool *pool;
    kn_stream stream;
    kn_plan_state state;
    bool inside, spoilt; /* in a step; another stream uses the region */
    event *events;
    size_t n_events, events_room, next; /* next: of the step that is served */
    planned *blocks;
    size_t n_blocks, blocks_room;
    kn__hash live; /* of live_block */
    char *region;
    uint64_t region_bytes, peak_bytes;
    size_t n_live; /* blocks of the region */
    int n_misses;  /* steps in a row */
    const char *order;
    char mismatch[160];
    uint64_t n_steps, n_served, n_pooled, n_mismatches, n_plans;
};

kn_status kn_plan_create(kn_plan **out, kn_pool *pool, kn_stream stream) {
    KN_TRY(kn__pool_given(pool, __func__));
    kn_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return KN_FAIL(KN_ERR_OOM, "kn_plan_create: no host memory");
    plan->pool = pool;
    plan->stream = stream;
    plan->state = KN_PLAN_RECORDS;
    plan->order = "";
    *out = plan;
    return KN_OK;
}

/* --- recording --- */

static bool grow(void **array, size_t *room, size_t n, size_t item_bytes) {
    if (n < *room) return true;
    size_t more = *room ? 2 * *room : 1024;
    void *grown = realloc(*array, more * item_bytes);
    if (!grown) return false;
    *array = grown;
    *room = more;
    return true;
}

static bool add_event(kn_plan *plan, uint32_t block, bool is_free) {
    if (plan->n_events >= EVENTS_MAX) return false;
    if (!grow((void **)&plan->events, &plan->events_room, plan->n_events, sizeof *plan->events)) {
        return false;
    }
    plan->events[plan->n_events++] = (event){block, is_free};
    return true;
}

static uint64_t key_of(const void *ptr) { return kn__spread((uintptr_t)ptr); }

static bool record_alloc(kn_plan *plan, void *ptr, size_t size) {
    uint32_t block = (uint32_t)plan->n_blocks, at = (uint32_t)plan->n_events;
    if (!grow((void **)&plan->blocks, &plan->blocks_room, block, sizeof *plan->blocks)) {
        return false;
    }
    if (kn__hash_is_full(&plan->live) && !kn__hash_grow(&plan->live, sizeof(live_block), 1024)) {
        return false;
    }
    if (!add_event(plan, block, false)) return false;
    plan->blocks[plan->n_blocks++] =
        (planned){.size = size, .offset = POOLED, .begin = at, .end = UINT32_MAX, .ptr = ptr};
    live_block *live = kn__hash_put(&plan->live, sizeof *live, key_of(ptr));
    live->block = block;
    return true;
}

static live_block *find_live(const kn_plan *plan, const void *ptr) {
    return kn__hash_get(&plan->live, sizeof(live_block), key_of(ptr));
}

/* A free that can't be recorded leaves the block live to the end of the step: it isn't planned. */
static void record_free(kn_plan *plan, const void *ptr) {
    live_block *live = find_live(plan, ptr);
    if (!live) return;
    uint32_t block = live->block, at = (uint32_t)plan->n_events;
    kn__hash_remove(&plan->live, sizeof *live, live);
    if (add_event(plan, block, true)) plan->blocks[block].end = at;
}

static void forget(kn_plan *plan) {
    plan->n_events = plan->n_blocks = plan->next = 0;
    kn__hash_release(&plan->live);
    plan->state = KN_PLAN_RECORDS;
    plan->n_misses = 0;
    plan->order = "";
}

/* --- placing --- */

static int by_size(const void *a, const void *b, void *ctx) {
    const planned *blocks = ctx, *x = &blocks[*(const uint32_t *)a];
    const planned *y = &blocks[*(const uint32_t *)b];
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The blocks that can be planned, the largest first. */
static size_t choose(uint32_t *chosen, kn_plan *plan) {
    size_t n = 0;
    for (uint32_t i = 0; i < plan->n_blocks; i++) {
        const planned *b = &plan->blocks[i];
        if (b->end != UINT32_MAX && !b->apart) chosen[n++] = i;
    }
    qsort_r(chosen, n, sizeof *chosen, by_size, plan->blocks);
    return n < PLANNED_MAX ? n : PLANNED_MAX;
}

static kn_status place(kn_plan *plan, uint32_t *chosen, kn__lifetime *spans) {
    size_t n = choose(chosen, plan);
    for (size_t i = 0; i < n; i++) {
        const planned *b = &plan->blocks[chosen[i]];
        uint64_t size = (b->size + GRAIN - 1) / GRAIN * GRAIN;
        spans[i] = (kn__lifetime){.size = size, .begin = b->begin, .end = b->end};
    }
    if (!kn__place_peak(&plan->peak_bytes, spans, n) ||
        !kn__place_spans(&plan->region_bytes, &plan->order, spans, n)) {
        return KN_FAIL(KN_ERR_OOM, "kn_plan_end: no host memory to place %zu blocks", n);
    }
    for (size_t i = 0; i < n; i++) plan->blocks[chosen[i]].offset = spans[i].offset;
    return KN_OK;
}

/* Free memory that the region is not cut from goes back: the step needs no more. */
static kn_status take_region(kn_plan *plan) {
    void *region = NULL;
    if (plan->region_bytes == 0) return KN_OK;
    KN_TRY(kn_pool_sync(plan->pool));
    KN_TRY(kn_pool_trim(plan->pool, 0));
    kn_tag_push("plan");
    kn_status status = kn_alloc(&region, plan->pool, plan->region_bytes, plan->stream);
    kn_tag_pop();
    plan->region = region;
    return status;
}

static kn_status make_plan(kn_plan *plan) {
    uint32_t *chosen = malloc((plan->n_blocks + 1) * sizeof *chosen);
    kn__lifetime *spans = malloc((plan->n_blocks + 1) * sizeof *spans);
    kn_status status = KN_OK;
    if (!chosen || !spans) {
        status =
            KN_FAIL(KN_ERR_OOM, "kn_plan_end: no host memory to place %zu blocks", plan->n_blocks);
    }
    if (status == KN_OK) status = place(plan, chosen, spans);
    if (status == KN_OK) status = take_region(plan);
    free(chosen);
    free(spans);
    kn__hash_release(&plan->live);
    if (status < 0) {
        plan->region_bytes = plan->peak_bytes = 0;
        forget(plan);
        return status;
    }
    plan->state = KN_PLAN_SERVES;
    plan->n_plans++;
    return KN_OK;
}

static void drop_region(kn_plan *plan) {
    if (plan->region) (void)kn_free(plan->pool, plan->region);
    plan->region = NULL;
    plan->region_bytes = plan->peak_bytes = 0;
    plan->n_live = 0;
    plan->spoilt = false;
    forget(plan);
}

/* --- serving --- */

static __attribute__((noinline)) void mismatch(kn_plan *plan, const char *did, uint64_t size) {
    const event *want = plan->next < plan->n_events ? &plan->events[plan->next] : NULL;
    const char *should = !want ? "the end of the step" : want->is_free ? "a free" : "an allocation";
    unsigned long long bytes = want ? plan->blocks[want->block].size : 0;
    snprintf(plan->mismatch, sizeof plan->mismatch,
             "call %zu of the step is %s of %llu bytes; the plan has %s of %llu bytes", plan->next,
             did, (unsigned long long)size, should, bytes);
    plan->state = KN_PLAN_FALLS_BACK;
    plan->n_mismatches++;
    plan->n_misses++;
}

static inline bool in_region(const kn_plan *plan, const void *ptr) {
    return (uintptr_t)ptr - (uintptr_t)plan->region < plan->region_bytes;
}

/* The block that the plan allocates next, if it has this size. */
static inline planned *expect_alloc(const kn_plan *plan, size_t size) {
    if (KN__UNLIKELY(plan->next >= plan->n_events)) return NULL;
    const event *e = &plan->events[plan->next];
    planned *b = &plan->blocks[e->block];
    return !e->is_free && b->size == size ? b : NULL;
}

static kn_status serve_alloc(void **out, kn_plan *plan, size_t size) {
    planned *b = expect_alloc(plan, size);
    if (KN__UNLIKELY(!b)) {
        mismatch(plan, "an allocation", size);
        plan->n_pooled++;
        return kn_alloc(out, plan->pool, size, plan->stream);
    }
    if (b->offset == POOLED) {
        KN_TRY(kn_alloc(&b->ptr, plan->pool, size, plan->stream));
        plan->n_pooled++;
        *out = b->ptr;
    } else {
        KN_ASSERT(!b->live);
        b->live = true;
        plan->n_live++;
        plan->n_served++;
        *out = plan->region + b->offset;
    }
    plan->next++;
    return KN_OK;
}

kn_status kn_plan_alloc(void **out, kn_plan *plan, size_t size_bytes, kn_stream stream) {
    bool of_step = plan->inside && stream == plan->stream && size_bytes;
    if (KN__LIKELY(of_step && plan->state == KN_PLAN_SERVES)) {
        *out = NULL;
        return serve_alloc(out, plan, size_bytes);
    }
    KN_TRY(kn_alloc(out, plan->pool, size_bytes, stream));
    plan->n_pooled += size_bytes > 0;
    if (of_step && plan->state == KN_PLAN_RECORDS && !record_alloc(plan, *out, size_bytes)) {
        (void)kn_free(plan->pool, *out);
        *out = NULL;
        return KN_FAIL(KN_ERR_OOM, "kn_plan_alloc: no host memory to record the step");
    }
    return KN_OK;
}

/* The live block of the region that starts here; rare, after a mismatch. */
static planned *find_served(kn_plan *plan, const char *ptr) {
    uint64_t offset = (uint64_t)(ptr - plan->region);
    for (size_t i = 0; i < plan->n_blocks; i++) {
        planned *b = &plan->blocks[i];
        if (b->live && b->offset == offset) return b;
    }
    return NULL;
}

static kn_status free_served(kn_plan *plan, char *ptr) {
    const event *e = plan->next < plan->n_events ? &plan->events[plan->next] : NULL;
    planned *b = e && e->is_free ? &plan->blocks[e->block] : NULL;
    bool serves = plan->inside && plan->state == KN_PLAN_SERVES;
    bool expected = serves && b && b->live && plan->region + b->offset == ptr;
    if (KN__UNLIKELY(!expected)) {
        b = find_served(plan, ptr);
        if (!b) {
            return KN_FAIL(KN_ERR_INVALID, "kn_plan_free: %p is no live block of the plan",
                           (void *)ptr);
        }
        if (serves) mismatch(plan, "a free", b->size);
    } else {
        plan->next++;
    }
    b->live = false;
    plan->n_live--;
    return KN_OK;
}

/* A block of the pool: one that the step has in its list, or another one. */
static void pass_free(kn_plan *plan, const void *ptr) {
    const event *e = plan->next < plan->n_events ? &plan->events[plan->next] : NULL;
    if (!e || !e->is_free) return;
    planned *b = &plan->blocks[e->block];
    if (b->offset != POOLED || b->ptr != ptr) return;
    b->ptr = NULL;
    plan->next++;
}

kn_status kn_plan_free(kn_plan *plan, void *ptr) {
    if (!ptr) return KN_OK;
    if (in_region(plan, ptr)) return free_served(plan, ptr);
    if (plan->inside && plan->state == KN_PLAN_RECORDS) record_free(plan, ptr);
    if (plan->inside && plan->state == KN_PLAN_SERVES) pass_free(plan, ptr);
    return kn_free(plan->pool, ptr);
}

kn_status kn_plan_use(kn_plan *plan, void *ptr, kn_stream stream) {
    if (!ptr || stream == plan->stream) return KN_OK;
    if (!in_region(plan, ptr)) {
        live_block *live = plan->state == KN_PLAN_RECORDS ? find_live(plan, ptr) : NULL;
        if (live) plan->blocks[live->block].apart = true;
        return kn_block_use(plan->pool, ptr, stream);
    }
    KN_TRY(kn_block_use(plan->pool, plan->region, stream));
    if (plan->inside && plan->state == KN_PLAN_SERVES) mismatch(plan, "a use elsewhere", 0);
    plan->spoilt = true;
    return KN_OK;
}

/* --- steps --- */

/* Blocks of the region may outlive a step that fell back: the region goes when they have. */
static bool is_stale(const kn_plan *plan) {
    return !plan->n_live && (plan->spoilt || plan->n_misses >= MISSES_MAX);
}

kn_status kn_plan_begin(kn_plan *plan) {
    if (plan->inside) return KN_FAIL(KN_ERR_INVALID, "kn_plan_begin: the step has not ended");
    plan->inside = true;
    plan->next = 0;
    if (is_stale(plan)) drop_region(plan);
    if (plan->state == KN_PLAN_RECORDS) forget(plan);
    if (plan->state == KN_PLAN_SERVES && plan->n_live) { /* their bytes are another block's now */
        mismatch(plan, "a step that begins with live blocks", 0);
    }
    return KN_OK;
}

kn_status kn_plan_end(kn_plan *plan) {
    if (!plan->inside) return KN_FAIL(KN_ERR_INVALID, "kn_plan_end: no step has begun");
    plan->inside = false;
    plan->n_steps++;
    if (plan->state == KN_PLAN_RECORDS) return make_plan(plan);
    if (plan->state == KN_PLAN_SERVES && plan->next < plan->n_events) {
        mismatch(plan, "the end of the step", 0);
    }
    if (plan->state == KN_PLAN_SERVES) plan->n_misses = 0;
    plan->state = KN_PLAN_SERVES;
    if (is_stale(plan)) drop_region(plan);
    return KN_OK;
}

kn_status kn_plan_reset(kn_plan *plan) {
    if (plan->inside) return KN_FAIL(KN_ERR_INVALID, "kn_plan_reset: the step has not ended");
    if (plan->n_live) {
        return KN_FAIL(KN_ERR_INVALID, "kn_plan_reset: %zu blocks of the plan are live",
                       plan->n_live);
    }
    drop_region(plan);
    return KN_OK;
}

void kn_plan_destroy(kn_plan *plan) {
    if (!plan) return;
    if (plan->n_live) {
        kn_log_write(1, "kn_plan_destroy: pool %s: %zu blocks of the plan are still live",
                     kn_pool_name(plan->pool), plan->n_live);
    }
    drop_region(plan);
    free(plan->events);
    free(plan->blocks);
    free(plan);
}

void kn_plan_stats_read(kn_plan_stats *out, size_t out_bytes, const kn_plan *plan) {
    bool placed = plan->state != KN_PLAN_RECORDS;
    kn_plan_stats stats = {.state = plan->state,
                           .n_steps = plan->n_steps,
                           .n_served = plan->n_served,
                           .n_pooled = plan->n_pooled,
                           .n_mismatches = plan->n_mismatches,
                           .n_plans = plan->n_plans,
                           .n_blocks = placed ? plan->n_blocks : 0,
                           .region_bytes = plan->region_bytes,
                           .peak_bytes = plan->peak_bytes,
                           .order = plan->order,
                           .mismatch = plan->mismatch};
    memset(out, 0, out_bytes);
    memcpy(out, &stats, out_bytes < sizeof stats ? out_bytes : sizeof stats);
}
