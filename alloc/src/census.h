/* Who has what of a pool: one walk over its blocks. All under the pool's lock. */
#ifndef KNET_ALLOC_CENSUS_H
#define KNET_ALLOC_CENSUS_H

#include "pool_types.h"
#include "writer.h"

enum { KN__OWNERS = 64, KN__OWNERS_SHOWN = 8 };

typedef struct kn__holding {
    uint32_t owner;
    uint64_t bytes, n_blocks;
} kn__holding;

typedef struct kn__class_use {
    uint32_t n_slabs, n_slots, n_live, n_waiting;
} kn__class_use;

typedef struct kn__census {
    kn__holding owners[KN__OWNERS]; /* the largest first; those beyond are not told apart */
    int n_owners;
    uint64_t free_bytes, largest_free_bytes, largest_hole_bytes;
    uint64_t n_live, n_free;       /* blocks and slots; blocks */
    uint64_t large_bytes, n_large; /* live blocks that are no slots */
    uint64_t graph_bytes;          /* of graphs, whether live or free; see graph.c */
    kn__class_use classes[KN__CLASSES];
} kn__census;

void kn__census_take(kn__census *out, kn_pool *pool);

/* What the pool remembers of its last allocation that failed; text and JSON are made from it. */
typedef struct kn__oom_holder {
    char name[64];
    uint64_t bytes, n_blocks;
} kn__oom_holder;

typedef struct kn__oom {
    kn_status status; /* KN_OK: none failed yet */
    uint64_t requested_bytes, needed_bytes, align;
    bool slab, capturing;
    kn_stream stream;
    kn_pool_stats stats;
    uint64_t limit_bytes, soft_limit_bytes; /* SIZE_MAX: none */
    uint64_t largest_free_bytes;
    kn__oom_holder holders[KN__OWNERS_SHOWN];
    int n_holders;
    kn_tag_stats tags[KN__OWNERS_SHOWN]; /* the largest first */
    int n_tags;
    uint64_t graph_bytes;
    char device_said[200]; /* why it gave no memory; empty: it wasn't asked */
} kn__oom;

/* oom.c. `out` has what was asked for already; the rest is filled in. Takes no memory of the host.
 */
void kn__oom_fill(kn__oom *out, kn_pool *pool);
kn_status kn__oom_fail(const kn_pool *pool, const kn__oom *oom); /* records the error */
void kn__oom_write_json(kn__writer *w, const kn_pool *pool, const kn__oom *oom);

/* stats.c */
void kn__stats_write_json(kn__writer *w, const kn_pool_stats *stats);     /* "name":1,… */
void kn__tags_write_json(kn__writer *w, const kn_tag_stats *tags, int n); /* "tags":[…] */
void kn__ladder_write_json(kn__writer *w, const kn_pool *pool);           /* "ladder":[…] */
void kn__pool_write_json_head(kn__writer *w, const kn_pool *pool); /* "pool":…,"device":…, */
void kn__pool_write_stats(kn__writer *w, kn_pool *pool);           /* the table */
void kn__pool_write_stats_json(kn__writer *w, kn_pool *pool);      /* one line */

#endif
