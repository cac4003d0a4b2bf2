/* The tree of scopes of a thread.
 *
 * A node is a path: a label under a parent. A path is open at most once at a time, so what an open
 * scope needs stands in its node, and the stack of open scopes is the chain of parents.
 *
 * Who writes: times and links only the thread that owns the tree, with relaxed or release stores,
 * and never a lock; any thread may read them while it runs. The memory block of a node is guarded
 * by the lock of memory.h; the GPU block is written by the thread that drains the activity source.
 * Nodes never move and are never freed. A thread that ends closes what it left open and gives its
 * tree to the next thread that starts, which goes on adding to it: reports merge by path anyway,
 * and the memory is bounded by the threads alive at once.
 */
#ifndef KNET_TREE_H
#define KNET_TREE_H

#include <knet/prof.h>
#include <stdatomic.h>

#include "clock.h"

enum {
    KN__DEPTH_MAX = 200,       /* deeper scopes are counted, not recorded */
    KN__NODES_MAX = 100 * 1000 /* of all trees: 25 MB */
};

/* What kn_prof_on_ holds beside the public bits. */
enum { KN__PROF_MEM = 4, KN__PROF_NVTX = 8, KN__PROF_EXTRA = KN__PROF_MEM | KN__PROF_NVTX };

typedef _Atomic(uint64_t) kn__count;

typedef struct kn__node kn__node;
struct kn__node {
    /* The hot line: what enter and leave touch. */
    const char *key;  /* address of a static label; NULL: the label came as text */
    kn__node *guess;  /* the child expected next */
    kn__node *last;   /* the child opened last */
    kn__node *after;  /* the sibling that was opened after this one */
    kn__node *parent; /* NULL for the root */
    kn__count start;  /* when it was opened; 0: closed */
    kn__count ticks;  /* of the calls that ended */
    uint32_t serial;  /* of the call that is open */
    uint16_t depth;   /* 0 for the root */
    bool has_window;  /* the open call was entered with memory attribution on */
    bool has_range;   /* and an NVTX range was opened for it */

    kn__count n_calls; /* that ended */
    kn__count ticks_min, ticks_max, ticks_first;
    const char *label; /* our copy */
    _Atomic(kn__node *) first_child;
    _Atomic(kn__node *) next; /* sibling, in order of first sight */
    kn__node *last_child;
    uint64_t first_start; /* when it was made */

    /* Memory: windows are the owner's, the rest stands under the lock. */
    int64_t hwm_saved, live_before;
    uint64_t foreign_before;
    _Atomic(int64_t) peak, rise;
    kn__count n_disturbed;
    uint32_t row; /* owner number; 0: none yet */
    uint64_t alloc_bytes, n_allocs, freed_bytes;
    int64_t held, held_at_peak;
    uint64_t peak_epoch;

    /* GPU */
    kn__count gpu_ns, n_gpu;

    void *nvtx; /* registered string */
};

typedef struct kn__tree kn__tree;
struct kn__tree {
    kn__node *current;
    uint32_t serial;
    kn__node root;

    /* Memory as this thread saw it (memory.h). */
    int64_t hwm;
    uint64_t n_events;

    /* Lookup of children by (parent, label), when the guess was wrong. */
    kn__node **table;
    size_t n_table, n_nodes;
    struct kn__chunk *chunks;
    kn__tree *next, *next_idle;
    kn__count n_unrecorded; /* scopes opened too deep or beyond the number of nodes */
};

/* This thread's tree; NULL until its first scope. One pointer of thread-local storage. */
extern _Thread_local kn__tree *kn__tree_mine __attribute__((tls_model("initial-exec")));

/* This thread's tree, made or taken over at first use; NULL when memory is out. */
kn__tree *kn__tree_get(void);

/* The child of this label, made at first sight. `key` is the address of a static label or NULL.
 * NULL when the tree is full; it is counted then. */
kn__node *kn__tree_child(kn__tree *tree, kn__node *parent, const char *key, const char *label);

/* All trees, newest first; never freed. */
kn__tree *kn__tree_first(void);

/* How many threads have opened a scope so far. */
uint64_t kn__tree_threads(void);

/* "train/forward/conv", cut at the front to fit. */
void kn__node_path(char *out, size_t out_bytes, const kn__node *node);

#endif
