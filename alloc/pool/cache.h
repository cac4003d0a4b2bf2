/* Caches: one thread's part of one pool, its racks and its counters.
 *
 * A thread has a cache per pool, a cache has a rack per stream. A cache belongs to its thread, but
 * whoever holds the pool's lock can call all caches back; see gate.h. A rack whose generation is
 * not the pool's was called back, or streams were retired or captured since: its thread takes the
 * lock and renews its cache. */
#ifndef KN_ALLOC_CACHE_H
#define KN_ALLOC_CACHE_H

#include "core/pool_state.h"
#include "device/thread.h"
#include "pool/gate.h"
#include "pool/rack.h"

/* A thread's part of what one tag has. */
typedef struct kn__tag_counts {
    _Atomic int64_t live, live_max; /* bytes */
    _Atomic uint64_t n_allocs;
} kn__tag_counts;

/* Counters, but `settled`, are deltas since they were last folded into the pool's; only the thread
 * writes them, others read. Hot: the first line, by every alloc and free of a slot. */
typedef struct kn__cache {
    kn__rack *current; /* of the stream used last; never NULL */
    kn__gate gate;     /* of all racks */
    uint32_t generation, n_ticks;
    _Atomic int64_t live, live_max, requested; /* bytes */
    _Atomic uint64_t n_allocs;
    int64_t settled; /* bytes that the thread has allocated less those that it freed, but `live` */
    kn__rack *racks;
    kn__hash by_key;              /* the same: of kn__rack_place */
    kn__tag_counts *_Atomic tags; /* KN__TAGS of them; NULL: the thread has used none here */
    uint64_t tags_used;           /* since they were folded: a bit for each tag modulo 64 */
    kn_pool *pool;
    kn__thread *thread;
    struct kn__cache *next;
} kn__cache;

/* caches.c: their life. */

kn__cache *kn__cache_create(kn_pool *pool); /* the calling thread's; NULL: it can't have one */
static inline kn__cache *kn__cache_of_thread(const kn_pool *pool) { /* NULL: it has none */
    return kn__self ? kn__self->caches[pool->slot] : NULL;
}
static inline kn__cache *kn__cache_get(kn_pool *pool) {
    kn__cache *cache = kn__cache_of_thread(pool);
    return KN__LIKELY(cache != NULL) ? cache : kn__cache_create(pool);
}
/* Taken before any pool's lock. */
void kn__caches_lock(void);
void kn__caches_unlock(void);
void kn__caches_attach(kn_pool *pool); /* gives the pool its slot */
void kn__caches_detach(kn_pool *pool); /* the pool goes */

/* cache.c: racks. Under the pool's lock, but kn__rack_enter. */

/* The rack of the key, made the current one, when it may be used with no lock: then this thread is
 * inside its gate. NULL: it is outside. */
kn__rack *kn__rack_enter(const kn_pool *pool, kn__cache *cache, uint64_t key);
/* The rack of the stream, made if need be; NULL: no host memory. */
kn__rack *kn__rack_get(kn_pool *pool, kn__cache *cache, kn__stream *stream);
/* Puts the oldest slots of a stack back into their slabs, until n are left. */
void kn__rack_flush(kn_pool *pool, kn__rack *rack, unsigned size_class, unsigned n);
/* All its slots into the slabs: of the thread's own, or after kn__gates_call_back. */
void kn__cache_flush(kn_pool *pool, kn__cache *cache);
/* All threads'; false: some thread was at work in its cache, which was left alone. */
bool kn__caches_flush(kn_pool *pool);
uint64_t kn__caches_bytes(const kn_pool *pool);
/* Before its cache has a rack: of generation 0, which no pool has. */
kn__rack *kn__rack_none(void);

/* The slab of a slot. */
static inline kn__slab *kn__slab_of(const kn_pool *pool, const void *ptr) {
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    KN_ASSERT(page & KN__PAGE_IS_SLAB);
    return (kn__slab *)(page - KN__PAGE_IS_SLAB);
}
static inline void kn__slot_put(kn_pool *pool, kn__slot_ref ref) {
    kn__slab *slab = kn__slab_of(pool, ref.ptr);
    kn__slab_put(pool, slab, (uint32_t)(ref.slot - slab->slots));
}

#endif
