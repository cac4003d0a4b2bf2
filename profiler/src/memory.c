#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "at_rest.h"
#include "checked.h"
#include "memory_series.h"
#include "now.h"
#include "nvtx.h"
#include "scope.h"
#include "trace.h"

enum { ROWS_CHUNK = 1024, CHUNKS_MAX = KN__NODES_MAX / ROWS_CHUNK + 2, SPINS = 64 };
static const size_t BLOCK_BYTES_MAX = SIZE_MAX >> 8; /* so that sums of them are numbers */

_Atomic(int64_t) kn__memory_live, kn__memory_live_max;
_Atomic(uint64_t) kn__memory_events;
atomic_bool kn__memory_counts = true;

/* Protects all below and the memory block of every node. Held for a dozen instructions and
 * across no call but, now and then, the calloc of 1024 rows and the copy for a report, so waiting
 * is spinning; a mutex would cost twice as much when no thread waits. */
static atomic_bool lock;
static atomic_bool stopped;

bool kn__memory_is_stopped(void) { return atomic_load_explicit(&stopped, memory_order_relaxed); }

static uint64_t epoch = 1; /* grows with every new maximum */
static kn__tree_node **rows[CHUNKS_MAX];
static uint32_t n_rows; /* row 0 is "no owner" */
static kn__pool_use pools[KN__POOLS_MAX];
static int n_pools;
static uint64_t n_pools_left_out;
static kn__pool_use *last_pool = &pools[0];

/* Held while statistics are read from a pool, so that it lives as long. Taken before any pool's
 * lock and before ours. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

/* Which live and reserved bytes count for the high-water marks: those of the whole run, for which
 * pools have marks of their own, or those while steps are measured. */
static enum { MARKS_ALL, MARKS_MEASURED, MARKS_NONE } marks;

static kn__tree_node outside = {.label = "(outside any scope)"};

/* False: memory was stopped, at exit, by the thread that holds the lock and will not continue. */
static bool take_lock(void) {
    for (int i = 1; atomic_exchange_explicit(&lock, true, memory_order_acquire); i++) {
        if (i % SPINS != 0) continue;
        if (kn__memory_is_stopped()) return false;
        sched_yield();
    }
    return true;
}

static bool lock_pools(uint64_t ms) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct timespec end = kn__time_after(now, ms * 1000000);
    return pthread_mutex_timedlock(&pools_lock, &end) == 0;
}

/* pools_lock too; false: neither. */
static bool take_locks(void) {
    while (!lock_pools(10)) {
        if (kn__memory_is_stopped()) return false;
    }
    if (take_lock()) return true;
    pthread_mutex_unlock(&pools_lock);
    return false;
}

static void give_lock(void) {
    KN_ASSERT(atomic_load_explicit(&lock, memory_order_relaxed));
    atomic_store_explicit(&lock, false, memory_order_release);
}

static kn__tree_node *current_node(const kn__tree *tree) {
    return tree && tree->current->parent ? tree->current : &outside;
}

static kn__pool_use *find_pool(const kn_pool *pool) {
    if (last_pool->pool == pool) return last_pool;
    for (int i = 0; i < n_pools; i++) {
        if (pools[i].pool == pool) return last_pool = &pools[i];
    }
    return NULL;
}

/* A row for the node; 0 when there is no room. */
static uint32_t make_row(kn__tree_node *node) {
    uint32_t row = n_rows + 1, at = row / ROWS_CHUNK;
    KN_ASSERT(!node->row);
    if (at >= CHUNKS_MAX) return 0;
    if (!rows[at]) {
        kn__mute(); /* the lock is held */
        rows[at] = calloc(ROWS_CHUNK, sizeof(kn__tree_node *));
        kn__unmute();
    }
    if (!rows[at]) return 0;
    rows[at][row % ROWS_CHUNK] = node;
    n_rows = row;
    return row;
}

static kn__tree_node *node_of(uint32_t row) {
    return row && row <= n_rows ? rows[row / ROWS_CHUNK][row % ROWS_CHUNK] : NULL;
}

/* Keeps the bytes that the node held at the last maximum, before they change. */
static void hold(kn__tree_node *node, int64_t delta) {
    if (node->peak_epoch != epoch) {
        node->held_at_peak = node->held;
        node->peak_epoch = epoch;
    }
    node->held += delta;
    KN_ASSERT(node->held >= 0 && node->peak_epoch == epoch);
}

static int64_t change_live(int64_t delta) {
    int64_t live = atomic_load_explicit(&kn__memory_live, memory_order_relaxed) + delta;
    atomic_store_explicit(&kn__memory_live, live, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&kn__memory_events, memory_order_relaxed);
    atomic_store_explicit(&kn__memory_events, n + 1, memory_order_release);
    bool counts = atomic_load_explicit(&kn__memory_counts, memory_order_relaxed);
    if (counts && live > atomic_load_explicit(&kn__memory_live_max, memory_order_relaxed)) {
        atomic_store_explicit(&kn__memory_live_max, live, memory_order_release);
        epoch++;
    }
    kn__series_add(live, counts);
    return live;
}

/* `heap`: a tool's that wants to know of the block. */
static int64_t count_block(void **heap, kn_pool *pool, int64_t delta) {
    kn__pool_use *use = find_pool(pool);
    *heap = use ? use->tool_heap : NULL;
    if (use) {
        use->live += delta;
        if (marks == MARKS_MEASURED || (use->is_heap && marks == MARKS_ALL))
            use->live_max = kn__max_i64(use->live_max, use->live);
        if (use->is_heap) use->n_allocs += delta >= 0; /* a pool counts these itself */
    }
    return change_live(delta);
}

/* After a change of live bytes by this thread. */
static void count_mine(kn__tree *tree, int64_t live) {
    if (atomic_load_explicit(&kn__prof_extras, memory_order_relaxed) & KN__PROF_NVTX) {
        kn__nvtx_live(live);
    }
    if (!tree) return;
    KN__STORE(tree->n_events, tree->n_events + 1);
    kn__trace_memory(tree, live);
}

/* The high-water mark of the scopes that are open on the tree's thread. */
static void raise_mark(kn__tree *tree, int64_t live) {
    if (atomic_load_explicit(&kn__memory_counts, memory_order_relaxed))
        KN__STORE(tree->hwm, kn__max_i64(tree->hwm, live));
}

static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size_bytes, kn_stream stream) {
    (void)stream;
    if (kn__memory_is_stopped()) return 0;
    kn__tree *tree = kn__tree_mine;
    kn__tree_node *node = current_node(tree);
    if (!take_lock()) return 0;
    if (!node->row) node->row = make_row(node);
    uint32_t row = node->row;
    if (row) hold(node, (int64_t)size_bytes);
    if (marks != MARKS_NONE) { /* tables show what measured steps allocated */
        node->alloc_bytes += size_bytes;
        node->n_allocs++;
    }
    void *heap = NULL;
    int64_t live = count_block(&heap, pool, (int64_t)size_bytes);
    give_lock();
    if (heap) kn__nvtx_block(heap, ptr, size_bytes);
    if (tree) {
        kn__tree_fast = &kn__tree_none; /* from now on this thread's scopes look at memory */
        count_mine(tree, live);
        raise_mark(tree, live);
        tree->last_block = ptr;
    }
    return row;
}

static void on_free(kn_pool *pool, void *ptr, size_t size_bytes, uint32_t owner) {
    if (kn__memory_is_stopped()) return;
    kn__tree *tree = kn__tree_mine;
    bool is_temporary = tree && ptr && tree->last_block == ptr;
    if (is_temporary) tree->last_block = NULL;
    if (!take_lock()) return;
    kn__tree_node *node = node_of(owner);
    if (node) hold(node, -(int64_t)size_bytes);
    if (node && is_temporary && marks != MARKS_NONE) {
        node->temporary_bytes += size_bytes;
        node->n_temporary++;
    }
    if (marks != MARKS_NONE) current_node(tree)->freed_bytes += size_bytes;
    void *heap = NULL;
    int64_t live = count_block(&heap, pool, -(int64_t)size_bytes);
    give_lock();
    if (heap && ptr) kn__nvtx_block_end(ptr);
    count_mine(tree, live);
}

/* What else is on the device shows in what its driver says; the host's memory is everybody's. */
static __attribute__((noinline)) void ask_device(kn_pool *pool) {
    kn_device_info info;
    kn_device *device = kn_pool_device(pool);
    if (kn_device_kind_get(device) == KN_DEVICE_HOST) return;
    if (kn_device_info_read(&info, sizeof info, device) < 0 || !take_lock()) return;
    kn__pool_use *use = find_pool(pool);
    if (use) {
        use->device_used = info.total_bytes - info.free_bytes;
        use->device_total = info.total_bytes;
    }
    give_lock();
}

/* Growth is rare, and a driver call already: one more to ask how full the device is costs little.
 */
static void on_reserve(kn_pool *pool, int64_t delta_bytes, uint64_t reserved_bytes) {
    (void)delta_bytes;
    if (kn__memory_is_stopped() || !take_lock()) return;
    kn__pool_use *use = find_pool(pool);
    bool most = use && marks != MARKS_NONE && reserved_bytes > use->reserved_max;
    if (use) use->reserved = reserved_bytes;
    if (most) use->reserved_max = reserved_bytes;
    give_lock();
    if (most) ask_device(pool);
}

/* The last slot: what destroyed pools left whose slots others have now. */
static void add_to_older(const kn__pool_use *use) {
    kn__pool_use *all = &pools[KN__POOLS_MAX - 1];
    n_pools = KN__POOLS_MAX;
    snprintf(all->name, sizeof all->name, "(older pools)");
    if (use->reserved_max > all->reserved_max) {
        all->device_used = use->device_used;
        all->device_total = use->device_total;
    }
    all->live_max = kn__max_i64(all->live_max, use->live_max);
    all->reserved_max = kn__max_u64(all->reserved_max, use->reserved_max);
    all->n_allocs += use->n_allocs;
    all->n_ooms += use->n_ooms;
    all->leaked += use->leaked;
}

/* An unused slot, else one of a destroyed pool, in turn; NULL if all pools live. */
static kn__pool_use *free_slot(const char *name) {
    enum { SLOTS = KN__POOLS_MAX - 1 };
    static int next;
    kn__pool_use *use = n_pools < SLOTS ? &pools[n_pools++] : NULL;
    for (int i = 0; !use && i < SLOTS; i++, next = (next + 1) % SLOTS) {
        if (pools[next].pool) continue;
        use = &pools[next];
        add_to_older(use);
        *use = (kn__pool_use){0};
    }
    if (use) snprintf(use->name, sizeof use->name, "%s", name);
    return use;
}

/* A slot that a destroyed pool of the same name left is gone on with. */
static kn__pool_use *make_pool(const char *name) {
    for (int i = 0; i < n_pools && i < KN__POOLS_MAX - 1; i++) {
        if (!pools[i].pool && strncmp(pools[i].name, name, sizeof pools[i].name - 1) == 0) {
            return &pools[i];
        }
    }
    kn__pool_use *use = free_slot(name);
    n_pools_left_out += !use;
    return use;
}

/* What the pool counts itself, and what pools of its name counted that were destroyed. */
static void fill_use(kn__pool_use *use, const kn_pool_stats *stats) {
    use->live = (int64_t)stats->live_bytes;
    use->reserved = stats->reserved_bytes;
    if (marks != MARKS_NONE) {
        bool all = marks == MARKS_ALL;
        uint64_t live = all ? stats->live_bytes_max : stats->live_bytes;
        uint64_t reserved = all ? stats->reserved_bytes_max : stats->reserved_bytes;
        use->live_max = kn__max_i64(use->live_max, (int64_t)live);
        use->reserved_max = kn__max_u64(use->reserved_max, reserved);
    }
    use->n_allocs = use->n_allocs_before + stats->n_allocs;
    use->n_ooms = use->n_ooms_before + stats->n_ooms;
}

/* The program starts the pool's marks again; the run's stay. */
static void on_peaks_reset(kn_pool *pool, uint64_t live_bytes_max) {
    if (kn__memory_is_stopped() || !take_lock()) return;
    kn__pool_use *use = find_pool(pool);
    if (use && marks == MARKS_ALL)
        use->live_max = kn__max_i64(use->live_max, (int64_t)live_bytes_max);
    give_lock();
}

/* A pool may have lived before the observer was attached: its marks start at the pool's own. */
static void on_pool_create(kn_pool *pool) {
    if (kn__memory_is_stopped()) return;
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, pool);
    int64_t delta = (int64_t)stats.live_bytes, live = 0;
    void *heap = kn__nvtx_heap(kn_pool_name(pool));
    if (!take_lock()) return;
    kn__pool_use *use = make_pool(kn_pool_name(pool));
    if (use) {
        use->pool = pool;
        use->tool_heap = heap;
        fill_use(use, &stats);
    }
    if (delta) live = change_live(delta);
    give_lock();
    if (heap && !use) kn__nvtx_heap_end(heap);
    if (!delta || !kn__tree_mine) return;
    count_mine(kn__tree_mine, live);
    raise_mark(kn__tree_mine, live);
}

/* Its marks stay for the report; its reserved memory is about to be returned. */
static void forget_pool(kn__pool_use *use, const kn_pool_stats *stats) {
    fill_use(use, stats);
    use->pool = NULL;
    use->tool_heap = NULL;
    use->leaked += use->live;
    use->n_allocs_before = use->n_allocs;
    use->n_ooms_before = use->n_ooms;
    use->live = 0;
    use->reserved = 0;
}

static void on_pool_destroy(kn_pool *pool) {
    if (kn__memory_is_stopped()) return;
    kn_pool_stats stats = {0};
    int64_t delta = 0, live = 0;
    void *heap = NULL;
    pthread_mutex_lock(&pools_lock);
    kn_pool_stats_read(&stats, sizeof stats, pool);
    if (!take_lock()) goto cleanup;
    kn__pool_use *use = find_pool(pool);
    delta = -(use ? use->live : (int64_t)stats.live_bytes);
    if (delta) live = change_live(delta);
    if (use) {
        heap = use->tool_heap;
        forget_pool(use, &stats);
    }
    give_lock();
    if (heap) kn__nvtx_heap_end(heap);
cleanup:
    pthread_mutex_unlock(&pools_lock);
    if (delta) count_mine(kn__tree_mine, live);
}

/* --- heaps: pools that others count --- */

static bool is_followed(void) {
    return !kn__memory_is_stopped() && !kn__muted &&
           atomic_load_explicit(&kn__prof_extras, memory_order_relaxed) & KN__PROF_MEM;
}

static kn__pool_use *find_heap(const char *name) {
    for (int i = 0; i < n_pools; i++) {
        if (pools[i].is_heap && strncmp(pools[i].name, name, sizeof pools[i].name - 1) == 0) {
            return &pools[i];
        }
    }
    return NULL;
}

static kn__pool_use *make_heap(const char *name) {
    kn__pool_use *use = free_slot(name);
    n_pools_left_out += !use;
    if (!use) return NULL;
    use->is_heap = true;
    use->pool = (const kn_pool *)(const void *)use; /* no pool has this address */
    return use;
}

kn_prof_heap *kn_prof_heap_get(const char *name) {
    if (!name || !is_followed() || !take_lock()) return NULL;
    kn__pool_use *use = find_heap(name);
    if (!use) use = make_heap(name);
    give_lock();
    return (kn_prof_heap *)(void *)use;
}

uint32_t kn_prof_heap_alloc(kn_prof_heap *heap, const void *ptr, size_t size_bytes) {
    if (!heap || size_bytes > BLOCK_BYTES_MAX || !is_followed()) return KN_PROF_NO_OWNER;
    return on_alloc((kn_pool *)(void *)heap, (void *)(uintptr_t)ptr, size_bytes, 0);
}

void kn_prof_heap_free(kn_prof_heap *heap, const void *ptr, size_t size_bytes, uint32_t owner) {
    if (!heap || owner == KN_PROF_NO_OWNER) return;
    on_free((kn_pool *)(void *)heap, (void *)(uintptr_t)ptr, size_bytes, owner);
}

/* --- calls of drivers --- */

static _Thread_local int n_calls_open __attribute__((tls_model("initial-exec")));

bool kn__memory_in_call(void) { return n_calls_open > 0; }

static void on_call_begin(const char *name) {
    n_calls_open++;
    (void)kn_scope_begin_static(name);
}

/* The observer may have been attached inside a call. */
static void on_call_end(const char *name) {
    n_calls_open -= n_calls_open > 0;
    kn__scope_end_key(name);
}

/* The path of the scope, innermost last: "train/forward/conv". */
static bool owner_name(uint32_t owner, char *out, size_t out_bytes) {
    if (kn__memory_is_stopped() || !out_bytes || !take_lock()) return false;
    const kn__tree_node *node = node_of(owner);
    give_lock();
    if (!node) return false;
    kn__node_path(out, out_bytes, node);
    return true;
}

static const kn_observer blocks_and_calls = {
    .on_call_begin = on_call_begin,
    .on_call_end = on_call_end,
    .on_alloc = on_alloc,
    .on_free = on_free,
    .on_reserve = on_reserve,
    .on_pool_create = on_pool_create,
    .on_pool_destroy = on_pool_destroy,
    .owner_name = owner_name,
    .on_peaks_reset = on_peaks_reset,
};

static const kn_observer calls_only = {.on_call_begin = on_call_begin, .on_call_end = on_call_end};

const kn_observer *kn__memory_observer(bool with_blocks) {
    return with_blocks ? &blocks_and_calls : &calls_only;
}

/* One table of ours makes room for the other: the allocator has one observer. */
kn_status kn__memory_start(bool with_blocks) {
    static const kn_observer *ours;
    const kn_observer *table = kn__memory_observer(with_blocks);
    if (ours && ours != table) KN_TRY(kn_observer_attach(NULL));
    ours = NULL;
    KN_TRY(kn_observer_attach(table));
    ours = table;
    return KN_OK;
}

static bool pools_at_rest(void) {
    if (!lock_pools(KN__AT_REST_MS)) return false;
    bool all = true;
    for (int i = 0; all && i < n_pools; i++) {
        const kn__pool_use *use = &pools[i];
        all = !use->pool || use->is_heap || kn__pool_at_rest(use->pool);
    }
    pthread_mutex_unlock(&pools_lock);
    return all;
}

bool kn__memory_at_rest(void) {
    for (int i = 1; atomic_load_explicit(&lock, memory_order_relaxed); i++) {
        if (i == SPINS * KN__AT_REST_MS) return false;
        if (i % SPINS == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return pools_at_rest();
}

void kn__memory_stop(void) { atomic_store_explicit(&stopped, true, memory_order_relaxed); }

/* Reading a pool takes its lock. */
static bool can_be_read(const kn_pool *pool) {
    while (!kn__pool_at_rest(pool)) {
        if (kn__memory_is_stopped()) return false;
    }
    return true;
}

/* From the pools themselves: what threads tell us comes a moment later, and in another order. */
static void read_pools(kn__memory_totals *out) {
    for (int i = 0; i < out->n_pools; i++) {
        kn_pool_stats stats;
        if (!out->pools[i].pool || out->pools[i].is_heap) continue;
        if (!can_be_read(out->pools[i].pool)) return;
        kn_pool_stats_read(&stats, sizeof stats, out->pools[i].pool);
        fill_use(&out->pools[i], &stats);
    }
    if (out->n_pools == 1) out->live_max = out->pools[0].live_max;
}

/* The live and reserved bytes of now are the marks until there are more. */
static int marks_begin(const kn_pool *grown[KN__POOLS_MAX]) {
    int n = 0;
    int64_t live = atomic_load_explicit(&kn__memory_live, memory_order_relaxed);
    atomic_store_explicit(&kn__memory_live_max, live, memory_order_release);
    epoch++;
    kn__series_mark(live);
    for (int i = 0; i < n_pools; i++) {
        pools[i].live_max = pools[i].live;
        pools[i].reserved_max = pools[i].reserved;
        if (pools[i].pool && !pools[i].is_heap && pools[i].reserved) grown[n++] = pools[i].pool;
    }
    return n;
}

void kn__memory_measure(bool on) {
    const kn_pool *grown[KN__POOLS_MAX];
    int n = 0;
    if (!take_locks()) return; /* no pool ends while its device is asked */
    marks = on ? MARKS_MEASURED : MARKS_NONE;
    atomic_store_explicit(&kn__memory_counts, on, memory_order_relaxed);
    if (on) n = marks_begin(grown);
    give_lock();
    for (int i = 0; i < n; i++) ask_device((kn_pool *)(uintptr_t)grown[i]);
    pthread_mutex_unlock(&pools_lock);
}

void kn__memory_totals_read(kn__memory_totals *out) {
    if (!take_locks()) return;
    out->live = atomic_load_explicit(&kn__memory_live, memory_order_relaxed);
    out->live_max = atomic_load_explicit(&kn__memory_live_max, memory_order_relaxed);
    out->n_events = atomic_load_explicit(&kn__memory_events, memory_order_relaxed);
    out->n_pools = n_pools;
    out->n_pools_left_out = n_pools_left_out;
    memcpy(out->pools, pools, sizeof pools);
    give_lock();
    read_pools(out);
    pthread_mutex_unlock(&pools_lock);
}

void kn__memory_row_read(kn__memory_row *out, const kn__tree_node *node) {
    *out = (kn__memory_row){0};
    if (!take_lock()) return;
    *out = (kn__memory_row){
        .alloc_bytes = node->alloc_bytes,
        .n_allocs = node->n_allocs,
        .freed_bytes = node->freed_bytes,
        .temporary_bytes = node->temporary_bytes,
        .n_temporary = node->n_temporary,
        .held = node->held,
        .held_at_peak = node->peak_epoch == epoch ? node->held_at_peak : node->held,
    };
    give_lock();
}

bool kn__memory_open_mark(kn__memory_mark *out, const kn__tree *tree, const kn__tree_node *node,
                          int64_t inner) {
    uint64_t start = KN__LOAD(node->start);
    if (!start || !(KN__LOAD(node->extras) & KN__PROF_MEM)) return false;
    int64_t hwm = kn__max_i64(inner, KN__LOAD(tree->hwm)), most = 0;
    if (kn__memory_foreign(tree) != KN__LOAD(node->foreign_before)) {
        hwm = kn__memory_disturbed(&most, node, hwm);
    }
    *out = (kn__memory_mark){hwm, most, hwm - KN__LOAD(node->live_before)};
    return KN__LOAD(node->start) == start;
}

const kn__tree_node *kn__memory_outside(void) { return &outside; }

void kn__memory_series_read(kn__series *out) {
    if (!take_lock()) return;
    kn__series_read(out);
    give_lock();
}
