/* Other allocators, by the rules that they publish. All cut free blocks out of segments, best fit
 * and lowest address first, and merge free neighbours; they differ in the rules below. A stream's
 * work is taken to be done when a block is freed.
 *
 *   pytorch     rounds to 512 bytes; requests up to 1 MiB from segments of 2 MiB, below 10 MiB from
 *               20 MiB, others from a multiple of 2 MiB; splits when more than 1 MiB is left (512
 *               bytes in small segments); pools by stream; out of memory returns unused segments
 *   expandable  the same with one range for each pool, mapped in 2 MiB or 20 MiB; out of memory
 *               unmaps unused handles
 *   bfc         TensorFlow, JAX: rounds to 256 bytes; regions of 2 MiB, 4 MiB, …, 0.9 of that as
 *               long as memory is short; splits when half or 128 MiB is left; one pool; never
 *               returns
 *   cuda-async  cudaMallocAsync with its release threshold at the most, as PyTorch and RMM set it:
 *               one pool for all streams, whose memory grows by multiples of 32 MiB; out of memory
 *               returns unused chunks after a wait. NVIDIA publishes what the pool reuses and when
 *               it releases, not where it places blocks: that is best fit here, in 512 bytes
 *   naive       cudaMalloc and cudaFree for each block; each free waits for the device */
#include "replay_policy.h"

#define MiB ((uint64_t)1 << 20)
static const uint64_t BASE = (uint64_t)1 << 46; /* addresses of the first segment */

enum { NONE = 0 }; /* the number of no node */
typedef enum state { FREE = 1, TAKEN, HOLE } state;

typedef struct node {
    uint64_t at, size;
    uint32_t left, right; /* in the segment */
    uint32_t pool;
    state state;
} node;

typedef struct list { /* free nodes by size, then address */
    uint32_t *nodes;
    size_t n, room;
} list;

typedef struct rules {
    uint64_t grain;
    bool by_stream, expandable, returns; /* pools by stream; one range each; frees on shortage */
    bool at_once;                        /* a block is a segment: it is freed with the block */
    bool in_driver; /* each block is asked of the driver, and given back to it */
    uint64_t (*segment)(uint64_t size, uint64_t *next); /* bytes of a new one */
    bool (*splits)(uint64_t size, uint64_t rest);
} rules;

typedef struct segments {
    const rules *rules;
    node *nodes; /* [0] is unused */
    uint32_t n_nodes, room, spare;
    list *pools;
    uint32_t n_pools, n_streams;
    uint32_t *node_of; /* by block */
    uint64_t device_bytes, reserved, reserved_max, next_region, next_at;
    uint64_t range_bytes; /* addresses of a pool: as PyTorch, 9/8 of the device */
    kn__counts counts;
} segments;

/* --- rules --- */

static bool is_small(uint64_t size) { return size <= MiB; }

static uint64_t torch_segment(uint64_t size, uint64_t *next) {
    (void)next;
    if (is_small(size)) return 2 * MiB;
    return size < 10 * MiB ? 20 * MiB : (size + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
}

static bool torch_splits(uint64_t size, uint64_t rest) {
    return is_small(size) ? rest >= 512 : rest > MiB;
}

static uint64_t handle_bytes(uint64_t size) { return is_small(size) ? 2 * MiB : 20 * MiB; }

static uint64_t bfc_region(uint64_t size, uint64_t *next) {
    bool grown = false;
    if (!*next) *next = 2 * MiB;
    for (; *next < size; grown = true) *next *= 2;
    uint64_t bytes = *next;
    if (!grown) *next *= 2;
    return bytes;
}

static bool bfc_splits(uint64_t size, uint64_t rest) { return rest >= size || rest >= 128 * MiB; }

static uint64_t exactly(uint64_t size, uint64_t *next) {
    (void)next;
    return size;
}

static bool never(uint64_t size, uint64_t rest) {
    (void)size;
    (void)rest;
    return false;
}

static uint64_t async_chunk(uint64_t size, uint64_t *next) {
    (void)next;
    return (size + 32 * MiB - 1) / (32 * MiB) * (32 * MiB);
}

static bool always(uint64_t size, uint64_t rest) {
    (void)size;
    return rest > 0;
}

static const rules TORCH = {.grain = 512,
                            .by_stream = true,
                            .returns = true,
                            .segment = torch_segment,
                            .splits = torch_splits};
static const rules EXPANDABLE = {.grain = 512,
                                 .by_stream = true,
                                 .expandable = true,
                                 .returns = true,
                                 .segment = torch_segment,
                                 .splits = torch_splits};
static const rules BFC = {.grain = 256, .segment = bfc_region, .splits = bfc_splits};
static const rules NAIVE = {.grain = 512, .at_once = true, .segment = exactly, .splits = never};
static const rules ASYNC = {
    .grain = 512, .returns = true, .in_driver = true, .segment = async_chunk, .splits = always};

/* --- nodes and lists --- */

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no host memory for the policy"); }

static kn_status node_make(uint32_t *out, segments *s, uint64_t at, uint64_t size, uint32_t pool) {
    if (s->spare) {
        *out = s->spare;
        s->spare = s->nodes[*out].right;
    } else {
        if (s->n_nodes == s->room) {
            node *grown = realloc(s->nodes, 2 * (size_t)s->room * sizeof *grown);
            if (!grown) return no_memory();
            s->nodes = grown;
            s->room *= 2;
        }
        *out = s->n_nodes++;
    }
    s->nodes[*out] = (node){.at = at, .size = size, .pool = pool, .state = TAKEN};
    return KN_OK;
}

static void node_drop(segments *s, uint32_t i) {
    const node *n = &s->nodes[i];
    if (n->left) s->nodes[n->left].right = n->right;
    if (n->right) s->nodes[n->right].left = n->left;
    s->nodes[i].right = s->spare;
    s->spare = i;
}

/* The first place in the list at or above (size, at). */
static size_t list_place(const segments *s, const list *l, uint64_t size, uint64_t at) {
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const node *n = &s->nodes[l->nodes[middle]];
        if (n->size < size || (n->size == size && n->at < at)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static kn_status list_add(segments *s, uint32_t i) {
    const node *n = &s->nodes[i];
    list *l = &s->pools[n->pool];
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        uint32_t *grown = realloc(l->nodes, room * sizeof *grown);
        if (!grown) return no_memory();
        l->nodes = grown;
        l->room = room;
    }
    size_t place = list_place(s, l, n->size, n->at);
    memmove(&l->nodes[place + 1], &l->nodes[place], (l->n - place) * sizeof *l->nodes);
    l->nodes[place] = i;
    l->n++;
    s->nodes[i].state = FREE;
    return KN_OK;
}

static void list_remove(segments *s, uint32_t i) {
    const node *n = &s->nodes[i];
    list *l = &s->pools[n->pool];
    size_t place = list_place(s, l, n->size, n->at);
    l->n--;
    memmove(&l->nodes[place], &l->nodes[place + 1], (l->n - place) * sizeof *l->nodes);
    s->nodes[i].state = TAKEN;
}

/* Cuts a node that is in no list; its rest becomes the node to its right. */
static kn_status cut(uint32_t *rest, segments *s, uint32_t i, uint64_t size) {
    uint32_t k = NONE;
    KN_TRY(node_make(&k, s, s->nodes[i].at + size, s->nodes[i].size - size, s->nodes[i].pool));
    node *n = &s->nodes[i], *r = &s->nodes[k];
    r->left = i;
    r->right = n->right;
    if (n->right) s->nodes[n->right].left = k;
    n->right = k;
    n->size = size;
    *rest = k;
    return KN_OK;
}

/* Adds a node to its list, merged with its free neighbours. */
static kn_status put(segments *s, uint32_t i) {
    uint32_t left = s->nodes[i].left, right = s->nodes[i].right;
    if (right && s->nodes[right].state == FREE) {
        list_remove(s, right);
        s->nodes[i].size += s->nodes[right].size;
        node_drop(s, right);
    }
    if (left && s->nodes[left].state == FREE) {
        list_remove(s, left);
        s->nodes[left].size += s->nodes[i].size;
        node_drop(s, i);
        i = left;
    }
    return list_add(s, i);
}

/* --- the device --- */

static bool device_take(segments *s, uint64_t bytes) {
    if (bytes > s->device_bytes - s->reserved) return false;
    s->reserved += bytes;
    if (s->reserved > s->reserved_max) s->reserved_max = s->reserved;
    s->counts.device_allocs++;
    if (s->rules->expandable || s->rules->in_driver) {
        kn__calls_add(&s->counts.calls, KN__CALL_CREATE, 1, bytes);
        kn__calls_add(&s->counts.calls, KN__CALL_MAP, 1, bytes);
    } else {
        kn__calls_add(&s->counts.calls, KN__CALL_ALLOC, 1, bytes);
    }
    /* expandable sets the access of all that it maps at once */
    if (s->rules->in_driver) kn__calls_add(&s->counts.calls, KN__CALL_ACCESS, 1, bytes);
    return true;
}

static void device_give(segments *s, uint64_t bytes) {
    s->reserved -= bytes;
    s->counts.device_frees++;
    if (s->rules->expandable || s->rules->in_driver) {
        kn__calls_add(&s->counts.calls, KN__CALL_UNMAP, 1, bytes);
        kn__calls_add(&s->counts.calls, KN__CALL_RELEASE, 1, bytes);
    } else {
        kn__calls_add(&s->counts.calls, KN__CALL_FREE, 1, bytes);
    }
}

/* Two holes side by side become one; the left record stays, so that a range's first one does. */
static void join_holes(segments *s, uint32_t i) {
    uint32_t left = s->nodes[i].left, right = s->nodes[i].right;
    if (right && s->nodes[right].state == HOLE) {
        s->nodes[i].size += s->nodes[right].size;
        node_drop(s, right);
    }
    if (left && s->nodes[left].state == HOLE) {
        s->nodes[left].size += s->nodes[i].size;
        node_drop(s, i);
    }
}

/* The whole handles of a free node become a hole. */
static kn_status unmap(segments *s, uint32_t i) {
    const node n = s->nodes[i];
    uint64_t handle = n.pool % 2 ? 2 * MiB : 20 * MiB, at = n.at - BASE - n.pool * s->range_bytes;
    uint64_t from = (at + handle - 1) / handle * handle, to = (at + n.size) / handle * handle;
    uint32_t hole = i, rest = NONE;
    if (from >= to) return KN_OK;
    list_remove(s, i);
    if (from > at) KN_TRY(cut(&hole, s, i, from - at));
    if (s->nodes[hole].size > to - from) KN_TRY(cut(&rest, s, hole, to - from));
    if (hole != i) KN_TRY(list_add(s, i));
    if (rest) KN_TRY(list_add(s, rest));
    s->nodes[hole].state = HOLE;
    join_holes(s, hole);
    for (uint64_t k = from; k < to; k += handle) device_give(s, handle);
    return KN_OK;
}

/* Of a pool. Unmapping changes the list: again, until nothing is left to unmap. */
static kn_status give_back_range(segments *s, const list *l) {
    uint64_t before;
    do {
        before = s->reserved;
        for (size_t k = 0; k < l->n; k++) KN_TRY(unmap(s, l->nodes[k]));
    } while (s->reserved < before);
    return KN_OK;
}

static void give_back_segments(segments *s, const list *l) {
    for (size_t k = l->n; k-- > 0;) {
        uint32_t i = l->nodes[k];
        if (s->nodes[i].left || s->nodes[i].right) continue;
        list_remove(s, i);
        device_give(s, s->nodes[i].size);
        node_drop(s, i);
    }
}

/* Returns unused memory to the device, after a wait for it. */
static kn_status give_back(segments *s) {
    s->counts.syncs++;
    for (uint32_t p = 0; p < s->n_pools; p++) {
        if (s->rules->expandable) {
            KN_TRY(give_back_range(s, &s->pools[p]));
        } else {
            give_back_segments(s, &s->pools[p]);
        }
    }
    return KN_OK;
}

static kn_status out_of_memory(const segments *s, uint64_t size) {
    return KN_FAIL(KN_ERR_OOM, "%llu bytes asked for, %llu of %llu are reserved",
                   (unsigned long long)size, (unsigned long long)s->reserved,
                   (unsigned long long)s->device_bytes);
}

static kn_status new_segment(uint32_t *out, segments *s, uint64_t size, uint32_t pool) {
    uint64_t before = s->next_region, bytes = s->rules->segment(size, &s->next_region);
    bool done = device_take(s, bytes);
    if (!done && s->rules->returns) {
        KN_TRY(give_back(s));
        done = device_take(s, bytes);
    }
    while (!done && s->rules == &BFC && bytes * 9 / 10 >= size) { /* a smaller region */
        bytes = bytes * 9 / 10 / 256 * 256;
        done = bytes >= size && device_take(s, bytes);
    }
    if (!done) {
        s->next_region = before;
        return out_of_memory(s, size);
    }
    KN_TRY(node_make(out, s, s->next_at, bytes, pool));
    s->next_at += bytes + 2 * MiB;
    return KN_OK;
}

/* Maps handles at the start of a hole so that, with the free bytes before it, `size` fits. */
static kn_status map_hole(bool *done, segments *s, uint32_t hole, uint64_t size) {
    uint64_t handle = handle_bytes(size);
    uint32_t left = s->nodes[hole].left, rest = NONE;
    uint64_t has = left && s->nodes[left].state == FREE ? s->nodes[left].size : 0;
    uint64_t bytes = (size - has + handle - 1) / handle * handle;
    *done = false;
    if (bytes > s->nodes[hole].size || bytes > s->device_bytes - s->reserved) return KN_OK;
    if (bytes < s->nodes[hole].size) {
        KN_TRY(cut(&rest, s, hole, bytes));
        s->nodes[rest].state = HOLE;
    }
    for (uint64_t k = 0; k < bytes; k += handle) {
        (void)device_take(s, handle);
        s->counts.maps++;
    }
    kn__calls_add(&s->counts.calls, KN__CALL_ACCESS, 1, bytes);
    *done = true;
    return put(s, hole);
}

/* The lowest hole of the pool that is large enough; a pool's nodes are one list by address. */
static kn_status grow_range(bool *done, segments *s, uint64_t size, uint32_t pool) {
    *done = false;
    for (uint32_t i = pool + 1; i && !*done; i = s->nodes[i].right) {
        if (s->nodes[i].state == HOLE) KN_TRY(map_hole(done, s, i, size));
        if (*done) break;
    }
    return KN_OK;
}

/* --- the policy --- */

static uint32_t pool_of(const segments *s, uint64_t size, uint32_t stream) {
    return s->rules->by_stream ? 2 * stream + is_small(size) : 0;
}

static uint32_t find(segments *s, uint64_t size, uint32_t pool) {
    const list *l = &s->pools[pool];
    size_t place = list_place(s, l, size, 0);
    if (place == l->n) return NONE;
    uint32_t i = l->nodes[place];
    list_remove(s, i);
    return i;
}

static kn_status grow(uint32_t *out, segments *s, uint64_t size, uint32_t pool) {
    if (!s->rules->expandable) return new_segment(out, s, size, pool);
    bool done;
    KN_TRY(grow_range(&done, s, size, pool));
    if (!done) {
        KN_TRY(give_back(s));
        KN_TRY(grow_range(&done, s, size, pool));
    }
    *out = done ? find(s, size, pool) : NONE;
    return *out ? KN_OK : out_of_memory(s, size);
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    segments *s = policy;
    uint64_t size = (step->size + s->rules->grain - 1) / s->rules->grain * s->rules->grain;
    uint32_t pool = pool_of(s, size, step->stream), rest;
    uint32_t i = s->rules->at_once ? NONE : find(s, size, pool);
    if (!i) KN_TRY(grow(&i, s, size, pool));
    if (s->rules->splits(size, s->nodes[i].size - size) && s->nodes[i].size > size) {
        KN_TRY(cut(&rest, s, i, size));
        KN_TRY(list_add(s, rest));
    }
    if (s->rules->in_driver) kn__calls_add(&s->counts.calls, KN__CALL_ALLOC_ASYNC, 1, size);
    s->node_of[step->block] = i;
    *out = (void *)(uintptr_t)s->nodes[i].at;
    return KN_OK;
}

static kn_status free_node(segments *s, uint32_t i) {
    if (s->rules->in_driver) {
        kn__calls_add(&s->counts.calls, KN__CALL_FREE_ASYNC, 1, s->nodes[i].size);
    }
    if (!s->rules->at_once) return put(s, i);
    s->counts.syncs++;
    device_give(s, s->nodes[i].size);
    node_drop(s, i);
    return KN_OK;
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    segments *s = policy;
    (void)ptr;
    return free_node(s, s->node_of[step->block]);
}

/* PyTorch records an event for each use on another stream, and asks it later. */
static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    segments *s = policy;
    (void)step, (void)ptr;
    if (!s->rules->by_stream) return KN_OK;
    s->counts.events++;
    kn__calls_add(&s->counts.calls, KN__CALL_RECORD, 1, 0);
    kn__calls_add(&s->counts.calls, KN__CALL_QUERY, 1, 0);
    return KN_OK;
}

static kn_status segments_run(void *policy, const kn__step *steps, size_t from, size_t to,
                              void **slots, size_t *done) {
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void segments_free_one(void *policy, uint32_t block, void *ptr) {
    segments *s = policy;
    (void)ptr;
    (void)free_node(s, s->node_of[block]);
}

static void segments_counts(void *policy, kn__counts *out) {
    const segments *s = policy;
    *out = s->counts;
    out->reserved_bytes = s->reserved;
    out->reserved_bytes_max = s->reserved_max;
}

static void segments_destroy(void *policy) {
    segments *s = policy;
    if (!s) return;
    for (uint32_t i = 0; s->pools && i < s->n_pools; i++) free(s->pools[i].nodes);
    free(s->pools);
    free(s->nodes);
    free(s->node_of);
    free(s);
}

/* A range's first node is the hole of all its addresses; pool p has node p + 1. */
static kn_status segments_renew(void *policy, uint64_t device_bytes) {
    segments *s = policy;
    s->device_bytes = device_bytes;
    s->range_bytes = device_bytes / 8 * 9 / (20 * MiB) * (20 * MiB) + 20 * MiB;
    s->reserved = s->reserved_max = s->next_region = 0;
    s->next_at = BASE;
    s->counts = (kn__counts){0};
    s->n_nodes = 1;
    s->spare = NONE;
    for (uint32_t p = 0; p < s->n_pools; p++) {
        uint32_t hole = NONE;
        s->pools[p].n = 0;
        if (!s->rules->expandable) continue;
        KN_TRY(node_make(&hole, s, BASE + p * s->range_bytes, s->range_bytes, p));
        s->nodes[hole].state = HOLE;
    }
    return KN_OK;
}

static kn_status create(void **out, const kn__trace *trace, const rules *which) {
    segments *s = calloc(1, sizeof *s);
    if (!s) return no_memory();
    s->rules = which;
    s->n_pools = which->by_stream ? 2 * trace->n_streams : 1;
    s->room = 1024 + 2 * s->n_pools;
    s->nodes = malloc(s->room * sizeof *s->nodes);
    s->pools = calloc(s->n_pools, sizeof *s->pools);
    s->node_of = calloc((size_t)trace->n_blocks + 1, sizeof *s->node_of);
    if (!s->nodes || !s->pools || !s->node_of) {
        segments_destroy(s);
        return no_memory();
    }
    *out = s;
    return KN_OK;
}

#define POLICY(id, text, which)                                                                    \
    static kn_status id##_create(void **out, const kn__trace *trace) {                             \
        return create(out, trace, &(which));                                                       \
    }                                                                                              \
    const kn__policy kn__policy_##id = {.name = (text),                                            \
                                        .create = id##_create,                                     \
                                        .destroy = segments_destroy,                               \
                                        .renew = segments_renew,                                   \
                                        .run = segments_run,                                       \
                                        .free_one = segments_free_one,                             \
                                        .counts = segments_counts}

POLICY(pytorch, "pytorch", TORCH);
POLICY(expandable, "expandable", EXPANDABLE);
POLICY(bfc, "bfc", BFC);
POLICY(naive, "naive", NAIVE);
POLICY(cuda_async, "cuda-async", ASYNC);
