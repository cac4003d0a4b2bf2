/* A report: the trees of all threads merged by path, as plain values that writers print.
 *
 * Times are in nanoseconds; amounts of memory and GPU time of a row include its children's.
 */
#ifndef KN_REPORT_REPORT_H
#define KN_REPORT_REPORT_H

#include <knet/status.h>

#include "hash.h"

typedef enum kn__sort {
    KN__SORT_TIME,
    KN__SORT_CALLS,
    KN__SORT_ALLOC,
    KN__SORT_PEAK,
    KN__SORT_GPU,
    KN__SORT_NAME,
    KN__SORT_FIRST
} kn__sort;

typedef struct kn__row kn__row;
struct kn__row {
    const char *label;
    kn__row *parent, *first, *last, *next;
    int depth;      /* 1 for the top level */
    bool open;      /* a call had not ended */
    bool is_kernel; /* GPU work, no scope: has no calls and no time of its own */

    uint64_t n_calls; /* open ones too */
    uint64_t time_ns, min_ns, max_ns, first_ns;
    uint64_t n_ended;             /* calls that ended; of these: */
    double ended_ns, squares_ns2; /* sums of their times and of the squares of these */
    uint64_t first_start; /* when it was first seen, ns from the start; UINT64_MAX: unknown */

    uint64_t alloc_bytes, n_allocs, freed_bytes;
    uint64_t temporary_bytes, n_temporary; /* freed before its thread's next allocation */
    int64_t held;                          /* live now */
    int64_t held_at_peak; /* its own blocks, live when all pools together held most */
    int64_t peak, rise;   /* most that was live while it was open, and how far above its entry */
    int64_t peak_most;    /* the bound of a peak that is not exact (kn__row_peak_exact) */

    uint64_t gpu_ns, n_gpu;
    uint64_t n_pending; /* launches whose GPU time is not known yet */
    uint64_t gpu_bytes; /* copied, set, and allocated past the pools */
    /* No scope of the program: "~unattributed~" and the like, last in any order. Its time and
     * memory are in no sum; its GPU time is. */
    bool is_extra;
};

typedef struct kn__child_row {
    uint64_t key;
    kn__row *row;
} kn__child_row;

typedef struct kn__steps {
    uint64_t n;                      /* calls of kn_step */
    uint64_t n_timed;                /* intervals between two of them */
    uint64_t sum_ns, min_ns, max_ns; /* of the intervals */
    double squares_ns2;              /* sum of their squares */
} kn__steps;

static inline int64_t kn__max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline uint64_t kn__max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Whether `peak` is the mark itself, not only a lower bound of it. */
static inline bool kn__row_peak_exact(const kn__row *row) { return row->peak_most <= row->peak; }

/* How far calls are from their mean, the standard deviation in ns; 0 when fewer than two ended. */
double kn__row_sigma(const kn__row *row);

enum { KN__COSTS_MAX = 10 };
typedef struct kn__cost {
    const char *label; /* NULL: the end */
    uint64_t ns, n;
} kn__cost;

/* Who held memory: a path and its bytes. */
typedef struct kn__owner {
    const char *path;
    int64_t bytes;
} kn__owner;
enum { KN__OWNERS_SHOWN = 5 };

/* Device memory that no pool took, as the source of records tells. */
typedef struct kn__external {
    uint64_t n_allocs, alloc_bytes;
    int64_t live, live_max;
    uint64_t n_untracked; /* blocks there was no room for: their ends will not be seen */
} kn__external;

/* Where the records of GPU work went; balances: launched = timed + pending + dropped + untimed. */
typedef struct kn__balance {
    const char *source; /* NULL: no source of records */
    uint64_t launched, timed, pending, dropped, untimed;
    uint64_t unattributed_ns, n_unattributed;
    uint64_t n_lost; /* records and calls, of a graph's launch too: as told by who lost them */
    kn__cost costs[KN__COSTS_MAX]; /* of the timer itself */
    kn__external external;
    const char *notice; /* what the reader should know; NULL: nothing */
} kn__balance;

enum { KN__POOLS_MAX = 32 };

/* One pool, by its own counters. */
typedef struct kn__pool_use {
    const struct kn_pool *pool; /* NULL: destroyed, or the slot is free; in stored reports too */
    char name[32];
    int64_t live, live_max;
    uint64_t reserved, reserved_max;
    uint64_t n_allocs, n_ooms;
    uint64_t n_allocs_before, n_ooms_before; /* of pools of the name that were destroyed */
    int64_t leaked;                          /* live when a pool of this name was destroyed */
    /* What the device's driver said when the pool had reserved most: of all processes; total 0: it
     * wasn't asked. */
    uint64_t device_used, device_total;
} kn__pool_use;

/* A copy of all that is not in the nodes. */
typedef struct kn__memory_totals {
    int64_t live, live_max;
    uint64_t n_events;
    int n_pools;
    kn__pool_use pools[KN__POOLS_MAX];
} kn__memory_totals;

/* Live bytes over time. */
enum { KN__SERIES_BINS = 1024 };

typedef struct kn__series_bin {
    uint64_t end; /* when its last change was: ns from the timer's start (ticks while it is kept) */
    int64_t max, last; /* live bytes: most in the bin, and at its end */
} kn__series_bin;

typedef struct kn__series {
    int n;
    uint64_t max_at; /* when live bytes were highest */
    kn__series_bin bins[KN__SERIES_BINS];
} kn__series;

typedef struct kn__report {
    kn__row root; /* children: the top level; its own values: sums over them */
    uint64_t wall_ns, n_threads, n_unrecorded;
    bool has_memory, has_gpu;
    uint64_t buffer_bytes; /* the bound of the timer's own memory */
    bool buffer_full;      /* and it was reached */
    kn__row outside;       /* memory allocated with no scope open */
    kn__memory_totals memory;
    kn__series live; /* over time, ns */
    kn__steps steps;
    kn__balance balance;
    /* Largest first; noted when the rows were summed up: leaving out rows changes nothing here. */
    kn__owner owners[KN__OWNERS_SHOWN], holders[KN__OWNERS_SHOWN];
    int n_owners, n_holders;
    bool owners_noted;

    void *chunks; /* of rows; owned, as the next */
    void *labels;
    kn__hash children; /* of kn__child_row: each row by parent and label */
} kn__report;

/* An empty report to add rows to; for tests and readers of stored reports. */
void kn__report_init(kn__report *out);
void kn__report_release(kn__report *report);

/* The child of this label, made when it isn't there; the label is borrowed. NULL: no memory. */
kn__row *kn__report_row(kn__report *report, kn__row *parent, const char *label);
/* The child of this label; NULL: there is none. */
kn__row *kn__report_find(const kn__report *report, const kn__row *parent, const char *label);
/* A copy of the text that lives as long as the report; NULL: no memory. */
const char *kn__report_keep(kn__report *report, const char *text);
/* Sums up and notes the owners of memory: what rows have of their own becomes what their subtrees
 * have, and root's values come from the top level. After the last row was filled. */
void kn__report_finish(kn__report *report);
/* The same for rows whose values are those of their subtrees already. */
void kn__report_sum(kn__report *report);
/* Orders the children of every row: largest first, names and first sight ascending. */
void kn__report_sort(kn__report *report, kn__sort by);

/* The rows that held most at the peak, at most `n`, largest first; returns how many. */
int kn__report_owners(const kn__row **out, int n, const kn__report *report);

/* The rows whose own blocks are live now, as above: at the end of a program, what was not freed. */
int kn__report_holders(const kn__row **out, int n, const kn__report *report);
/* Of these blocks the row's own, without those of the rows below it. */
int64_t kn__row_held(const kn__row *row);

/* "train/forward/conv", cut at the front to fit. */
void kn__report_path(char *out, size_t out_bytes, const kn__row *row);

#endif
