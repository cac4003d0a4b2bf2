#include "external.h"

#include <stdlib.h>

#include "budget.h"
#include "mix.h"

enum { SLOTS_MIN = 1 << 8, SLOTS_MAX = 2 * KN__EXTERNAL_BLOCKS_MAX, EVENTS_MAX = 1 << 12 };

typedef struct slot {
    uint64_t address, bytes; /* address 0: free */
} slot;

typedef struct event {
    uint64_t time_ns, address, bytes;
    size_t order; /* of arrival, where times are equal or missing */
    bool is_alloc;
} event;

static event events[EVENTS_MAX]; /* since the last kn__external_apply */
static size_t n_events;
static slot *slots;
static size_t n_slots, n_used;
static kn__external sums;

static size_t home(uint64_t address) {
    uint64_t h = address * KN__GOLDEN;
    return (size_t)(h ^ h >> 32) & (n_slots - 1);
}

static size_t next(size_t i) { return (i + 1) & (n_slots - 1); }

static slot *find(uint64_t address) {
    size_t i = home(address);
    while (slots[i].address && slots[i].address != address) i = next(i);
    return &slots[i];
}

static bool grow(void) {
    if (n_slots == SLOTS_MAX) return false;
    size_t n_old = n_slots, n = n_old ? 2 * n_old : SLOTS_MIN;
    slot *old = slots, *table = NULL;
    if (kn__budget_take((n - n_old) * sizeof *table)) table = calloc(n, sizeof *table);
    if (!table) return false;
    slots = table;
    n_slots = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].address) *find(old[i].address) = old[i];
    }
    free(old);
    return true;
}

/* Later blocks of the same run of slots move up, so that a search may go on to stop at a free one.
 */
static void remove_slot(size_t hole) {
    for (size_t i = next(hole); slots[i].address; i = next(i)) {
        size_t wanted = home(slots[i].address);
        bool stays = hole <= i ? hole < wanted && wanted <= i : hole < wanted || wanted <= i;
        if (stays) continue;
        slots[hole] = slots[i];
        hole = i;
    }
    slots[hole].address = 0;
    n_used--;
}

static void add_block(uint64_t address, uint64_t size_bytes) {
    if (!address || (2 * n_used >= n_slots && !grow())) {
        sums.n_untracked++;
        return;
    }
    slot *s = find(address);
    if (s->address) sums.live -= (int64_t)s->bytes; /* its end was not seen */
    n_used += !s->address;
    *s = (slot){address, size_bytes};
    sums.live += (int64_t)size_bytes;
    if (sums.live > sums.live_max) sums.live_max = sums.live;
}

/* Of an address that is not known nothing is freed: a pool's, or one from before the start. */
static void end_block(uint64_t address) {
    if (!n_used || !address) return;
    slot *s = find(address);
    if (!s->address) return;
    sums.live -= (int64_t)s->bytes;
    remove_slot((size_t)(s - slots));
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
