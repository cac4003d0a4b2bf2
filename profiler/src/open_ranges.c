#include "open_ranges.h"

#include "checked.h"

enum { RANGES_MAX = 16384, GENERATION_SHIFT = 32 };

typedef struct slot {
    _Atomic(uint64_t) id; /* 0: no range is open in it */
    kn__open_range range; /* KN__STORE and KN__LOAD */
    uint32_t generation;
    _Atomic(uint32_t) next_free; /* number of a slot; 0: none */
} slot;

static slot slots[RANGES_MAX]; /* number n is slots[n - 1]; unused pages take no memory */
static _Atomic(uint32_t) n_used;
static _Atomic(uint64_t) free_slots; /* a count of changes, then the number of the first */

static uint32_t take_slot(void) {
    uint64_t first = atomic_load(&free_slots);
    while ((uint32_t)first) {
        uint64_t next = atomic_load(&slots[(uint32_t)first - 1].next_free);
        uint64_t changed = ((first >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak(&free_slots, &first, changed)) return (uint32_t)first;
    }
    uint32_t n = atomic_load(&n_used);
    while (n < RANGES_MAX && !atomic_compare_exchange_weak(&n_used, &n, n + 1)) {
    }
    return n < RANGES_MAX ? n + 1 : 0;
}

static void free_slot(uint32_t number) {
    uint64_t first = atomic_load(&free_slots), changed;
    do {
        atomic_store(&slots[number - 1].next_free, (uint32_t)first);
        changed = ((first >> 32) + 1) << 32 | number;
    } while (!atomic_compare_exchange_weak(&free_slots, &first, changed));
}

uint64_t kn__open_ranges_add(kn__open_range range) {
    uint32_t number = take_slot();
    if (!number) return 0;
    slot *s = &slots[number - 1];
    KN_ASSERT(!atomic_load(&s->id));
    KN__STORE(s->range.node, range.node);
    KN__STORE(s->range.tree, range.tree);
    KN__STORE(s->range.start, range.start);
    uint64_t id = (uint64_t)++s->generation << GENERATION_SHIFT | number;
    atomic_store(&s->id, id);
    return id;
}

/* One thread wins the exchange, and the slot's values are its own until it frees the slot. */
bool kn__open_ranges_remove(kn__open_range *out, uint64_t id) {
    uint32_t number = (uint32_t)id;
    if (!number || number > atomic_load(&n_used)) return false;
    slot *s = &slots[number - 1];
    if (!atomic_compare_exchange_strong(&s->id, &id, 0)) return false;
    *out = s->range;
    free_slot(number);
    return true;
}

static kn__row *row_of(kn__report *report, const kn__tree_node *node) {
    kn__row *parent = &report->root;
    if (node->parent->parent) parent = row_of(report, node->parent);
    return parent ? kn__report_row_of(report, parent, node->label, kn__node_is_range(node)) : NULL;
}

kn_status kn__open_ranges_take(kn__report *report, const kn__tree *tree, uint64_t now,
                               double tick_ns) {
    uint32_t n = atomic_load(&n_used);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = atomic_load(&slots[i].id), start = KN__LOAD(slots[i].range.start);
        const kn__tree_node *node = KN__LOAD(slots[i].range.node);
        const kn__tree *of = KN__LOAD(slots[i].range.tree);
        if (!id || (tree && of != tree) || atomic_load(&slots[i].id) != id) continue;
        kn__row *row = row_of(report, node);
        if (!row) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
        row->open = true;
        row->n_calls++;
        row->time_ns += now > start ? kn__clock_ns(now - start, tick_ns) : 0;
    }
    return KN_OK;
}
