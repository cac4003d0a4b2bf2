/* How a pool's memory is used, counted by one walk over its blocks, and the reports made of it. */
#ifndef KN_ALLOC_CENSUS_H
#define KN_ALLOC_CENSUS_H

#include "core/pool_state.h"
#include "inspect/stacks.h"
#include "inspect/writer.h"
#include "pool/inspector.h"

enum { KN__OWNERS = 64, KN__OWNERS_SHOWN = 8 };

typedef struct kn__holding {
    uint32_t owner;
    uint64_t bytes, n_blocks;
} kn__holding;

typedef struct kn__class_use {
    uint32_t n_slabs, n_slots, n_live, n_waiting;
} kn__class_use;

typedef struct kn__census {
    kn__holding owners[KN__OWNERS]; /* the largest first; those that do not fit are left out */
    int n_owners;
    uint64_t free_bytes, largest_free_bytes;
    uint64_t n_live, n_free;       /* blocks and slots; blocks */
    uint64_t large_bytes, n_large; /* live blocks other than slots */
    uint64_t graph_bytes;          /* of graphs, live or free; see graph.c */
    kn__class_use classes[KN__SIZE_CLASSES];
} kn__census;

void kn__census_take(kn__census *out, kn_pool *pool); /* under the lock */

enum { KN__OWNER_NAME = 128, KN__TAGS_SHOWN = 32 };

/* All that reports say of a pool at one moment, but for its streams. */
typedef struct kn__figures {
    kn_pool_stats stats;
    kn__census census;
    char owners[KN__OWNERS][KN__OWNER_NAME];
    uint64_t shared_free_bytes;             /* of the free bytes: every stream may use them */
    uint64_t limit_bytes, soft_limit_bytes; /* UINT64_MAX: none */
    kn_tag_stats tags[KN__TAGS_SHOWN];      /* the largest first */
    size_t n_tags;
    kn__rung rungs[KN__RUNGS];
} kn__figures;

/* stats.c. Takes no host memory. Under the lock. */
void kn__figures_take(kn__figures *out, kn_pool *pool);
/* Members of the JSON object that is open, or tables. `stats`: the name of an object of their own
 * for the members of kn_pool_stats; NULL: none. */
void kn__figures_write(kn__writer *w, const char *stats, const kn_pool *pool,
                       const kn__figures *figures);
/* Writes the pool's report, and what `more_fn` adds under the lock, to a file. */
kn_status kn__pool_save(kn_pool *pool, bool json, void (*more_fn)(kn__writer *w, kn_pool *pool),
                        const char *path, bool append, const char *function);

/* A pool's last allocation that failed; the error's text and the JSON are made from it. */
typedef struct kn__oom {
    kn__oom_request request; /* KN_OK: none failed yet */
    kn__figures figures;
    kn__stack_copy stacks[KN__STACKS_COPIED]; /* that hold most, if stacks are kept */
    size_t n_stacks;
} kn__oom;

/* oom.c */
/* The thread has recorded such an error since its last report. */
extern _Thread_local bool kn__oom_due
    __attribute__((visibility("hidden"), tls_model("initial-exec")));
void kn__oom_write(kn__writer *w, const char *name, const kn_pool *pool, const kn__oom *oom);
void kn__oom_read(kn__oom *out, kn_pool *pool); /* the last one; takes the lock */

/* As the public calls, of a file that may be added to; `function` is named in errors. */
kn_status kn__pool_print(kn_pool *pool, const char *path, bool append, const char *function);
kn_status kn__pool_snapshot(kn_pool *pool, const char *path, bool append, const char *function);
void kn__pool_stats(kn_pool_stats *out, kn_pool *pool); /* under the lock */

/* observer.c: the label of an owner, as the observer says it, or its number. */
void kn__owner_name(uint32_t owner, char *out, size_t out_bytes);

/* tag.c */
const char *kn__tag_name(unsigned tag);
/* The n tags with most live bytes; returns how many there are. Under the lock. */
size_t kn__tags_read(kn_tag_stats *out, size_t n, const kn_pool *pool);
void kn__tags_peaks(int64_t out[KN__TAGS], const kn_pool *pool); /* most that was live, by tag */

#endif
