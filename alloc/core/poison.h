/* Poison: marks memory of the host's pools that is not in use, so that an access to it is found.
 *
 * AddressSanitizer and Valgrind's memcheck report the use itself. At KNET_CHECKED=3, without them,
 * a pattern is written: its change is found when the memory is handed out again. At that level each
 * block also has a red zone behind the bytes asked for; the pattern's is looked at when it is
 * freed.
 *
 * What users get pays for none of this on the fast path: under memcheck pools keep no caches.
 * Memory of other devices is not marked, nor is pinned memory, which a copy may still read after
 * kn_free. */
#ifndef KN_ALLOC_POISON_H
#define KN_ALLOC_POISON_H

#include "core/pool_state.h"

#if defined __SANITIZE_ADDRESS__
#define KN__ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define KN__ASAN 1
#endif
#endif

/* Least bytes of a red zone. */
enum { KN__RED_ZONE = KN_CHECKED >= 3 ? 64 : 0 };

typedef enum kn__poison {
    KN__POISON_NONE,
    KN__POISON_ASAN,
    KN__POISON_MEMCHECK,
    KN__POISON_PATTERN
} kn__poison;

static inline size_t kn__red_zone(const kn_pool *pool) { return pool->poison ? KN__RED_ZONE : 0; }

/* How memory of the host is marked in this process. */
kn__poison kn__poison_kind(void);

/* Memory that is the user's from now on, and that is no longer, without the tests whether it is
 * marked at all. A block that was written behind its end, or after its free, traps here. */
void kn__poison_off(const kn_pool *pool, void *ptr, size_t requested, size_t live);
void kn__poison_on(const kn_pool *pool, void *ptr, size_t requested, size_t live);
/* A segment came from the device; it goes back. */
void kn__poison_segment(const kn_pool *pool, void *ptr, size_t bytes);
void kn__poison_segment_gone(const kn_pool *pool, void *ptr, size_t bytes);

static inline void kn__poison_alloc(const kn_pool *pool, void *ptr, size_t requested, size_t live) {
    if (KN__UNLIKELY(pool->poison)) kn__poison_off(pool, ptr, requested, live);
}
static inline void kn__poison_free(const kn_pool *pool, void *ptr, size_t requested, size_t live) {
    if (KN__UNLIKELY(pool->poison)) kn__poison_on(pool, ptr, requested, live);
}

/* A call that the fast path needs only where it is there for marked memory too. */
#if defined KN__ASAN || KN_CHECKED >= 3
#define KN__POISON_FAST(call) (call)
#else
#define KN__POISON_FAST(call) ((void)0)
#endif

#endif
