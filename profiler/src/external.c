#include "external.h"

#include <stdlib.h>

#include "budget.h"
#include "checked.h"

enum { SLOTS_MIN = 1 << 8, SLOTS_MAX = 2 * KN__EXTERNAL_BLOCKS_MAX, EVENTS_MAX = 1 << 12 };

typedef struct block {
    uint64_t key; /* the address's */
    uint64_t bytes;
} block;

typedef struct event {
    uint64_t time_ns, address, bytes;
    size_t order; /* of arrival, where times are equal or missing */
    bool is_alloc;
} event;

static event events[EVENTS_MAX]; /* since the last kn__external_apply */
static size_t n_events;
static kn__hash blocks;
static kn__external sums;

static bool make_room(void) {
    if (!kn__hash_is_full(&blocks)) return true;
    return blocks.n_slots < SLOTS_MAX && kn__budget_grow(&blocks, sizeof(block), SLOTS_MIN);
}

static void add_block(uint64_t address, uint64_t size_bytes) {
    if (!address || !make_room()) {
        sums.n_untracked++;
        return;
    }
    block *b = kn__hash_put(&blocks, sizeof *b, kn__spread(address));
    sums.live += (int64_t)size_bytes - (int64_t)b->bytes; /* the end of an older one was not seen */
    b->bytes = size_bytes;
    if (sums.live > sums.live_max) sums.live_max = sums.live;
}

/* An address that is not known frees nothing: it is a pool's, or from before the start. */
static void end_block(uint64_t address) {
    block *b = kn__hash_get(&blocks, sizeof *b, kn__spread(address));
    if (!address || !b) return;
    sums.live -= (int64_t)b->bytes;
    kn__hash_remove(&blocks, sizeof *b, b);
    KN_ASSERT(blocks.n_used || !sums.live);
}

static int by_time(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

void kn__external_apply(void) {
    qsort(events, n_events, sizeof *events, by_time);
    for (size_t i = 0; i < n_events; i++) {
        const event *e = &events[i];
        e->is_alloc ? add_block(e->address, e->bytes) : end_block(e->address);
    }
    n_events = 0;
}

static void add_event(event e) {
    if (n_events == EVENTS_MAX) kn__external_apply();
    e.order = n_events;
    events[n_events++] = e;
}

void kn__external_alloc(uint64_t time_ns, uint64_t address, uint64_t size_bytes) {
    sums.n_allocs++;
    sums.alloc_bytes += size_bytes;
    add_event((event){time_ns, address, size_bytes, 0, true});
}

void kn__external_free(uint64_t time_ns, uint64_t address) {
    add_event((event){time_ns, address, 0, 0, false});
}

void kn__external_read(kn__external *out) { *out = sums; }
