/* Tags: names for what memory is for. A thread's innermost one counts what the thread allocates.
 *
 * Names are kept for good, in one table of the process that needs no lock: a name is written before
 * its place in the hash table is taken. Counts are kept as those of pools are: in the thread's
 * cache, and put together with the pool's under its lock. */
#include <stdlib.h>
#include <string.h>

#include "inspect/census.h"
#include "pool/cache.h"
#include "pool/inspector.h"
#include "pool/pool_lock.h"

enum { PLACES = 2 * KN__TAGS, NAME_BYTES = 64 };

static char names[KN__TAGS][NAME_BYTES] = {[KN__TAG_OTHERS] = KN__TAG_OTHERS_NAME};
static _Atomic uint32_t n_names = 1; /* the first is for what has no tag */
static _Atomic uint8_t places[PLACES];

static uint8_t name_add(const char *name) {
    uint32_t id = KN__READ(n_names);
    do {
        if (id >= KN__TAG_OTHERS) return KN__TAG_OTHERS;
    } while (!atomic_compare_exchange_weak(&n_names, &id, id + 1));
    strncpy(names[id], name, NAME_BYTES - 1);
    return (uint8_t)id;
}

static uint32_t hash_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (const char *c = name; *c && c < name + NAME_BYTES - 1; c++) {
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    }
    return hash;
}

/* Two threads may add one name at once; the one whose place is not taken stays unused. */
static uint8_t tag_of(const char *name) {
    for (uint32_t i = hash_of(name), added = 0;; i++) {
        _Atomic uint8_t *place = &places[i % PLACES];
        uint8_t id = atomic_load_explicit(place, memory_order_acquire);
        if (!id) {
            if (!added) added = name_add(name);
            if (added == KN__TAG_OTHERS) return KN__TAG_OTHERS;
            if (atomic_compare_exchange_strong(place, &id, (uint8_t)added)) return (uint8_t)added;
        }
        if (strncmp(names[id], name, NAME_BYTES - 1) == 0) return id;
    }
}

const char *kn__tag_name(unsigned tag) { return names[tag]; }

/* The tag of all names beyond the table, once that is full: it has no place. */
static unsigned others_of(const char *name) {
    bool full = KN__READ(n_names) >= KN__TAG_OTHERS;
    return full && strcmp(name, KN__TAG_OTHERS_NAME) == 0 ? KN__TAG_OTHERS : 0;
}

/* By place: names may hold it twice, where one is unused. */
unsigned kn__inspect_tag(const char *name) {
    for (uint32_t i = hash_of(name);; i++) {
        uint8_t id = atomic_load_explicit(&places[i % PLACES], memory_order_acquire);
        if (!id) return others_of(name);
        if (strncmp(names[id], name, NAME_BYTES - 1) == 0) return id;
    }
}

/* The stack of a thread. Pushes beyond its depth are only counted. */

void kn_tag_push(const char *name) {
    kn__thread *self = kn__thread_get();
    if (!self) return;
    uint32_t depth = self->tag_depth++;
    if (depth >= KN__TAG_DEPTH) return;
    self->tags[depth] = self->tag;
    self->tag = name && *name ? tag_of(name) : 0;
}

void kn_tag_pop(void) {
    kn__thread *self = kn__self;
    if (!self || !self->tag_depth) return;
    uint32_t depth = --self->tag_depth;
    if (depth < KN__TAG_DEPTH) self->tag = self->tags[depth];
}

static uint64_t at_least_zero(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

static kn_tag_stats tag_stats(const kn_pool *pool, unsigned tag) {
    const kn__tag_total *total = &pool->tags[tag];
    int64_t live = total->live, high = total->live;
    uint64_t n_allocs = total->n_allocs;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        const kn__tag_counts *tags = atomic_load_explicit(&cache->tags, memory_order_acquire);
        if (!tags) continue;
        live += KN__READ(tags[tag].live);
        high += KN__READ(tags[tag].live_max);
        n_allocs += KN__READ(tags[tag].n_allocs);
    }
    if (total->live_max > high) high = total->live_max;
    return (kn_tag_stats){.name = names[tag],
                          .live_bytes = at_least_zero(live),
                          .live_bytes_max = at_least_zero(high),
                          .n_allocs = n_allocs};
}

void kn__tags_peaks(int64_t out[KN__TAGS], const kn_pool *pool) {
    for (unsigned tag = 0; tag < KN__TAGS; tag++) {
        out[tag] = (int64_t)tag_stats(pool, tag).live_bytes_max;
    }
}

size_t kn__tags_read(kn_tag_stats *out, size_t n, const kn_pool *pool) {
    size_t found = 0;
    for (unsigned tag = 1; tag < KN__TAGS; tag++) {
        kn_tag_stats stats = tag_stats(pool, tag);
        if (!stats.n_allocs) continue;
        size_t i = found++ < n ? found - 1 : n;
        while (i > 0 && out[i - 1].live_bytes < stats.live_bytes) {
            if (i < n) out[i] = out[i - 1];
            i--;
        }
        if (i < n) out[i] = stats;
    }
    return found;
}

size_t kn_pool_tags(kn_tag_stats *out, size_t n, const kn_pool *pool) {
    kn_pool *p = (kn_pool *)(uintptr_t)pool; /* locked, not changed */
    kn__pool_lock(p);
    size_t found = kn__tags_read(out, n, p);
    kn__pool_unlock(p);
    return found;
}
