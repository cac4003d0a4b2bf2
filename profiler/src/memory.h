/* Owners of memory: the observer of the allocator, and its records.
 *
 * A block belongs to the scope that was open on the thread that allocated it. Under one lock:
 * what each scope holds, and what each held when the live bytes of all pools together were highest
 * (exact for any threads, in O(1) an event: a node keeps its value of the last maximum, told by an
 * epoch). Beside the lock, by the thread alone: the high-water mark while a scope is open. It is
 * exact when no other thread allocated or freed meanwhile, or when the highest mark of the whole
 * run was reached meanwhile, by any thread; else it lies between two bounds.
 *
 * What pools count themselves (live and reserved bytes and their marks) is read from them.
 */
#ifndef KN_PROFILER_MEMORY_H
#define KN_PROFILER_MEMORY_H

#include <knet/observer.h>
#include <knet/prof_heap.h>

#include "mute.h"
#include "report.h"
#include "tree.h"

/* A copy of the memory block of a node; own values, without the children's. */
typedef struct kn__memory_row {
    uint64_t alloc_bytes, n_allocs, freed_bytes, temporary_bytes, n_temporary;
    int64_t held, held_at_peak;
} kn__memory_row;

extern _Atomic(int64_t) kn__memory_live, kn__memory_live_max; /* of all pools */
extern _Atomic(uint64_t) kn__memory_events;
extern _Atomic(_Bool) kn__memory_counts; /* live bytes count for high-water marks now */

/* The observer; `with_blocks` false: driver calls only. */
const kn_observer *kn__memory_observer(bool with_blocks);
/* Attaches it, in place of the other one if that is attached. One caller at a time. */
kn_status kn__memory_start(bool with_blocks);
/* In a forked child, or at exit where memory can't be read: every later event is ignored, and calls
 * that wait for a lock return with nothing read. */
void kn__memory_stop(void);
bool kn__memory_is_stopped(void);

/* At exit: false: a lock of ours or of a pool stays held, and nothing can be read. */
bool kn__memory_at_rest(void);

/* High-water marks count from `on` to off alone, and start at the live bytes of that moment. */
void kn__memory_measure(bool on);
void kn__memory_totals_read(kn__memory_totals *out);
/* Live bytes over time, in ticks. */
void kn__memory_series_read(kn__series *out);
void kn__memory_row_read(kn__memory_row *out, const kn__tree_node *node);
/* A high-water mark that lies between two bounds; equal: it is exact. */
typedef struct kn__memory_mark {
    int64_t peak, peak_most, rise;
} kn__memory_mark;
/* The mark of a scope that is open, by any thread; `inner`: the highest mark of the scopes open
 * inside it. False: it is not open, or was opened before memory was followed. */
bool kn__memory_open_mark(kn__memory_mark *out, const kn__tree *tree, const kn__tree_node *node,
                          int64_t inner);
/* Whether this thread is in a driver call of a pool. */
bool kn__memory_in_call(void);
/* The owner of blocks allocated with no scope open. */
const kn__tree_node *kn__memory_outside(void);

/* Events of other threads, as far as the low half tells. */
static inline uint32_t kn__memory_foreign(const kn__tree *tree) {
    return (uint32_t)(atomic_load_explicit(&kn__memory_events, memory_order_acquire) -
                      KN__LOAD(tree->n_events));
}

/* On entry the mark starts at the live bytes; on exit it raises the mark outside. Other threads'
 * events are read first: an event in between counts as one inside. */
static inline void kn__memory_enter(kn__tree *tree, kn__tree_node *node) {
    KN__STORE(node->foreign_before, kn__memory_foreign(tree));
    KN__STORE(node->live_max_before,
              atomic_load_explicit(&kn__memory_live_max, memory_order_acquire));
    int64_t live = atomic_load_explicit(&kn__memory_live, memory_order_relaxed);
    KN__STORE(node->hwm_saved, tree->hwm);
    KN__STORE(node->live_before, live);
    KN__STORE(tree->hwm, live);
}

/* The mark of a scope in which other threads allocated or freed: that of the run, if it rose
 * meanwhile, else at least what this thread saw. */
static inline int64_t kn__memory_disturbed(int64_t *most, const kn__tree_node *node, int64_t hwm) {
    int64_t live_max = atomic_load_explicit(&kn__memory_live_max, memory_order_acquire);
    int64_t live = atomic_load_explicit(&kn__memory_live, memory_order_relaxed);
    *most = live_max;
    if (live_max > KN__LOAD(node->live_max_before)) return live_max;
    bool counts = atomic_load_explicit(&kn__memory_counts, memory_order_relaxed);
    return counts ? kn__max_i64(hwm, live) : hwm;
}

static inline void kn__memory_leave(kn__tree *tree, kn__tree_node *node) {
    int64_t hwm = tree->hwm, most = 0;
    if (kn__memory_foreign(tree) != node->foreign_before) {
        hwm = kn__memory_disturbed(&most, node, hwm);
        if (most > node->peak_most) KN__STORE(node->peak_most, most);
    }
    if (hwm > node->peak) KN__STORE(node->peak, hwm);
    if (hwm - node->live_before > node->rise) KN__STORE(node->rise, hwm - node->live_before);
    KN__STORE(tree->hwm, kn__max_i64(node->hwm_saved, hwm));
}

#endif
