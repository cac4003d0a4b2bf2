/* The tree of scopes of a thread.
 *
 * A node is a path: a label under a parent. A path is open at most once at a time, so the state of
 * an open scope lies in its node, and the stack of open scopes is the chain of parents.
 *
 * Who writes: times and links only the thread that owns the tree, with relaxed or release stores,
 * and never a lock; any thread may read them while it runs. The memory block of a node is guarded
 * by the lock of memory.h; what ran on the GPU is added by whoever drains the activity source.
 * Nodes never move and are never freed. A thread that ends closes the scopes it left open and
 * gives its tree to the next thread that starts, which adds to it: reports merge by path anyway,
 * and the memory is bounded by the threads alive at once.
 */
#ifndef KN_PROFILER_TREE_H
#define KN_PROFILER_TREE_H

#include <knet/prof.h>
#include <stdatomic.h>

#include "clock.h"
#include "hash.h"
#include "trace_format.h"

enum {
    KN__DEPTH_MAX = 200,        /* deeper scopes are counted, not recorded */
    KN__NODES_MAX = 100 * 1000, /* of all trees: 45 MB */
    KN__TIMES_AFTER = 16        /* calls of a node before it has bins (times.h) */
};

/* What a scope does beside reading the time-stamp counter; 0 is the fast path. */
enum { KN__PROF_MEM = 1, KN__PROF_NVTX = 2, KN__PROF_SLOW_CLOCK = 4, KN__PROF_TRACE = 8 };
extern _Atomic(uint32_t) kn__prof_extras; /* bits are only ever set */

/* Written by one thread alone, with KN__STORE, and read by any with KN__LOAD; that thread itself
 * reads it plainly. */
typedef uint64_t kn__count;
#define KN__LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define KN__STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

typedef struct kn__tree_node kn__tree_node;
struct kn__tree_node {
    /* Hot, one cache line: what opening and closing a scope reads and writes in its node, so that a
     * scope of a loop stays in the first-level cache. */
    const char *key;          /* address of a static label; NULL: the label came as text;
                                 KN__RANGE_KEY: of a range (range.c), whose label is text too */
    kn__tree_node *parent;    /* NULL for the root */
    kn__tree_node *after;     /* the sibling that was opened after this one the last time */
    kn__count start;          /* when it was opened, and the id of that opening; 0: closed */
    kn__count ticks, n_calls; /* of the calls that ended */
    kn__count ticks_min, ticks_max;

    /* Warm, the next line: `opened` for each scope inside, `site` and `squares` for each call, the
     * rest where a scope has extras, is new or is a record. */
    kn__tree_node *opened;   /* the child that was opened last */
    uint64_t site;           /* the call that opened it and the depth of the stack; 0: not known */
    _Atomic(double) squares; /* sum of the squares of the ticks of each call */
    uint8_t depth;           /* 0 for the root */
    bool is_recursive;       /* a block's, inside the same block's: never guessed (scope.c) */
    uint16_t extras;         /* of the open call: KN__PROF_MEM and so on; KN__STORE */
    uint32_t row;            /* owner number; 0: none yet; under the lock of memory.h */
    struct kn__node_times *times; /* how its calls are spread (times.h); NULL: see first_times */
    kn__tree_node *first_child;   /* KN__STORE, as the next */
    kn__tree_node *next;          /* sibling, in order of first sight */
    kn__tree_node *last_child;

    /* Cold from here on, but for programs that allocate. */
    union {
        struct {
            const char *label; /* our copy, as the next */
            const char *where; /* "file.c:12", where that is known */
        };
        kn__trace_name name;
    };
    kn__tree_node *next_used; /* see kn__tree_use */
    uint64_t first_start;     /* when it was made */
    kn__count ticks_first;
    uint16_t n_first_times,
        first_times[KN__TIMES_AFTER]; /* the bins of its first calls (times.h) */
    uint64_t n_calls_before;          /* when the thread before ended */
    kn__count n_threads;              /* that called it and ended */
    kn__count flops, moved_bytes;     /* of calls of kn_prof_metric, those of scopes inside apart */
    kn__count shown_ticks, shown_calls; /* in the last report, whose thread writes them (take.c) */

    /* Memory: marks are the thread's (KN__STORE and KN__LOAD), the rest stands under the lock. */
    int64_t hwm_saved, live_before, live_max_before; /* of the call that is open */
    int64_t peak, rise;                              /* of the calls that ended */
    int64_t peak_most; /* more than this it can't have been, where `peak` is not exact */
    uint32_t foreign_before;
    uint64_t alloc_bytes, n_allocs, freed_bytes;
    uint64_t temporary_bytes, n_temporary; /* freed before its thread's next allocation */
    int64_t held, held_at_peak;
    uint64_t peak_epoch;

    /* What ran on the GPU, by name: the drain's (kernel.h). */
    struct kn__kernel *kernels;
    kn__count n_pending; /* launches whose record has not come; the drain's too */

    void *nvtx; /* registered string */
};

typedef struct kn__child {
    uint64_t key; /* of parent and label */
    kn__tree_node *node;
} kn__child;

typedef struct kn__tree kn__tree;
struct kn__tree {
    /* Hot: each scope reads and writes it, and the root's first line is next to it. */
    kn__tree_node *current; /* innermost open node, or the root */
    kn__tree_node root;

    /* Memory as this thread saw it (memory.h); KN__STORE and KN__LOAD. Hot in programs that
     * allocate. */
    int64_t hwm;
    uint64_t n_events;
    const void *last_block; /* allocated last, and nothing since */
    kn__tree_node *used;    /* nodes that this thread has opened; the last is the root */

    /* Lookup of children by (parent, label), when the guess was wrong. */
    kn__hash children; /* of kn__child */
    struct kn__tree_chunk *chunks;
    kn__tree *next, *next_idle;
    long tid;                       /* of the thread that has it, or had it last; KN__STORE */
    struct kn__launch_ring *ring;   /* of launches (activity.c); KN__LOAD */
    struct kn__trace_buffer *trace; /* events (trace.c); KN__LOAD */
    kn__count n_unrecorded;         /* scopes opened too deep or beyond the number of nodes */
};

/* This process is a child of one that was timed: its other threads are gone, and any lock of ours
 * may be held for ever. Nothing of the timer works here, and no lock is taken. */
extern atomic_bool kn__forked;

/* This thread's tree; NULL until its first scope. */
extern _Thread_local kn__tree *kn__tree_mine __attribute__((tls_model("initial-exec")));
/* The same while scopes need no extras on this thread, else kn__tree_none, in which no label is
 * ever found: the fast path needs no test of its own. Once it is kn__tree_none it stays so,
 * hence a scope opened with extras is never closed without. */
extern _Thread_local kn__tree *kn__tree_fast __attribute__((tls_model("initial-exec")));
extern kn__tree kn__tree_none;

/* This thread's tree, made or taken over at first use; NULL when memory is out. */
kn__tree *kn__tree_get(void);

/* The child of this label, made at first sight. `key` as in the node. NULL when the tree is full;
 * it is counted then. */
kn__tree_node *kn__tree_child(kn__tree *tree, kn__tree_node *parent, const char *key,
                              const char *label);

#define KN__RANGE_KEY ((const char *)1) /* the address of no label */

static inline bool kn__node_is_range(const kn__tree_node *node) {
    return node->key == KN__RANGE_KEY;
}

/* This thread opens the node. Guesses (scope.c) end with their thread, so the first time that a
 * thread opens a node does not take the fast path. */
static inline void kn__tree_use(kn__tree *tree, kn__tree_node *node) {
    if (node->next_used) return;
    node->next_used = tree->used;
    tree->used = node;
}

/* Copies the scope's place in the source, at its first call. Other threads read with KN__LOAD. */
void kn__tree_place(kn__tree *tree, kn__tree_node *node, const char *where);

/* Called once, when the first thread has its tree; set before that. */
extern void (*kn__tree_on_first)(void);

/* The same child if there is one. */
kn__tree_node *kn__tree_find(const kn__tree *tree, const kn__tree_node *parent, const char *key,
                             const char *label);

/* Memory that stays with the tree, of its thread alone, or NULL. */
void *kn__tree_bytes(kn__tree *tree, size_t bytes, size_t align);

/* All trees, newest first; never freed. */
kn__tree *kn__tree_first(void);

/* The scopes that are open, the innermost one first, as if they ended now, KN__DEPTH_MAX at most;
 * returns how many. Any thread: of a tree whose thread runs some may have ended just now. */
int kn__tree_open(kn__trace_event *out, const kn__tree *tree);

/* How many threads have opened a scope so far. */
uint64_t kn__tree_threads(void);

/* Whether the node is part of a path: all are but the root. A node of no tree has a label. */
static inline bool kn__node_in_path(const kn__tree_node *node) {
    return node && (node->parent || node->label[0]);
}
/* "train/forward/conv", cut at the front to fit. */
void kn__node_path(char *out, size_t out_bytes, const kn__tree_node *node);

#endif
