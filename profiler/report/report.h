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

typedef struct kn__report kn__report;

/* Calls of about one length. */
typedef struct kn__time_bin {
    double ns;
    uint64_t n;
} kn__time_bin;

/* How the calls of a row are spread, shortest first. */
enum { KN__TIME_BINS_MAX = 1024 }; /* in a stored report */
typedef struct kn__times {
    int n;
    kn__time_bin bins[];
} kn__times;

typedef struct kn__row kn__row;
struct kn__row {
    const char *label;
    const char *where; /* "file.c:12", of the scope that was seen first; NULL: not known */
    kn__row *parent, *first, *last, *next;
    int depth;      /* 1 for the top level */
    bool open;      /* a call had not ended */
    bool is_kernel; /* GPU work, no scope: has no calls and no time of its own */

    uint64_t n_calls;   /* open ones too */
    uint64_t n_threads; /* that called it; 0: not known */
    /* While a report is taken: the tree that was read last, and its part of them. */
    const void *tree;
    uint64_t n_tree_threads;
    uint64_t time_ns, min_ns, max_ns, first_ns;
    uint64_t n_ended;             /* calls that ended; of these: */
    double ended_ns, squares_ns2; /* sums of their times and of the squares of these */
    /* Of merged runs, or ranks: how many have the row, its least and most time in one of them, and
     * which has the most, from 0. */
    uint64_t n_runs, run_min_ns, run_max_ns, slowest_run;
    const kn__times *times; /* NULL: it had too few calls */
    uint64_t first_start;   /* when it was first seen, ns from the start; UINT64_MAX: unknown */

    uint64_t alloc_bytes, n_allocs, freed_bytes;
    uint64_t temporary_bytes, n_temporary; /* freed before its thread's next allocation */
    int64_t held;                          /* live now */
    int64_t held_at_peak; /* its own blocks, live when all pools together held most */
    int64_t peak, rise;   /* most that was live while it was open, and how far above its entry */
    int64_t peak_most;    /* the bound of a peak that is not exact (kn__row_peak_exact) */

    uint64_t flops, moved_bytes; /* work, as the program told (kn_prof_metric) */

    uint64_t gpu_ns, n_gpu;
    uint64_t n_pending; /* launches whose GPU time is not known yet */
    uint64_t gpu_bytes; /* copied, set, and allocated past the pools */
    /* No scope of the program: "~unattributed~" and the like, last in any order. Its time and
     * memory are in no sum; its GPU time is. */
    bool is_extra;
    /* Calls of <knet/prof_range.h>: they overlap scopes, so their time is in no sum. */
    bool is_range;
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
/* UINT64_MAX where the sum is larger. */
static inline uint64_t kn__sum_u64(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Whether `peak` is the mark itself, not only a lower bound of it. */
static inline bool kn__row_peak_exact(const kn__row *row) { return row->peak_most <= row->peak; }

/* Adds the values of a row to those of another one: amounts are summed, of marks the highest stays.
 */
void kn__row_add(kn__row *to, const kn__row *row);
/* The same of rows of one path; in any order. Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_add_row(kn__report *report, kn__row *to, const kn__row *row);

/* The time that the given part of the calls is not longer than, within 5 %: 0.5 is the median. 0:
 * not known. */
double kn__row_percentile(const kn__row *row, double part);
/* Adds bins, shortest first, to those of the row. Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_add_times(kn__report *report, kn__row *row,
                                             const kn__time_bin *bins, int n);

/* What the row did in a second of its time, of the GPU's where that worked: floating-point
 * operations, and bytes read and written. 0: not known. */
typedef struct kn__rates {
    double flops, bytes;
} kn__rates;
kn__rates kn__row_rates(const kn__row *row);
/* The larger part of the machine's measured peaks, which are of its processors; 0: not known. */
double kn__row_of_peak(const kn__report *report, const kn__row *row);

/* Of merged runs: the row's time on average (a run without the row spent none), and by what part of
 * that the slowest run takes more: 0 if all took the same. */
double kn__row_run_mean(const kn__report *report, const kn__row *row);
double kn__row_imbalance(const kn__report *report, const kn__row *row);

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

/* When a GPU worked: busy while any of its streams was, idle between its first and last work. */
enum { KN__GPUS_MAX = 16, KN__STREAMS_MAX = 16 };

typedef struct kn__gpu_stream {
    uint64_t stream, n, busy_ns;
} kn__gpu_stream;

typedef struct kn__gpu_device {
    uint64_t device;
    uint64_t first_ns, last_ns; /* of CLOCK_REALTIME; in stored reports 0 */
    uint64_t busy_ns, idle_ns;
    int n_streams;
    kn__gpu_stream streams[KN__STREAMS_MAX]; /* the last one: and all beyond it */
} kn__gpu_device;

typedef struct kn__gpu_use {
    int n;
    kn__gpu_device devices[KN__GPUS_MAX];
} kn__gpu_use;

enum { KN__POOLS_MAX = 33 }; /* 32, and a line for those that were before them */

/* One pool, by its own counters. */
typedef struct kn__pool_use {
    const struct kn_pool *pool; /* NULL: destroyed, or the slot is free; in stored reports too */
    bool is_heap; /* of another allocator, which the timer counts; not known in stored reports */
    char name[32];
    void *tool_heap; /* NVTX's; NULL: no tool wants it */
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
    uint64_t n_pools_left_out; /* and heaps: created while all lines were taken */
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

/* What ran, so that two profiles can be told to be alike; NULL: not known. */
typedef struct kn__run_info {
    const char *command, *host, *version;
    const char *words; /* of the timer, without names of files */
    const char *notes; /* "key=value, key=value": the program's own */
} kn__run_info;

enum { KN__COUNTERS_MAX = 256 };

/* Samples of a value of the program. */
typedef struct kn__counter {
    char name[64], unit[16];
    uint64_t n, n_missed, n_beyond;          /* with a value, without one, and outside the limits */
    long double first, last, min, max, mean; /* exact for every int64_t */
    long double limit_min, limit_max;        /* both 0: it has none */
} kn__counter;

typedef struct kn__counters {
    kn__counter *all; /* lives as long as the report; in one that was taken room for `n` alone */
    int n;
    uint64_t n_refused, n_lost; /* counters beyond the most, and samples of none */
} kn__counters;

struct kn__report {
    kn__run_info run;
    uint64_t n_runs; /* that were merged; 0 and 1: it is of one */
    kn__rates peaks; /* of the machine, measured (peaks.h) */
    kn__row root;    /* children: the top level; its own values: sums over them */
    uint64_t wall_ns, n_threads, n_unrecorded;
    bool has_memory, has_gpu, has_ranges;
    uint64_t buffer_bytes; /* the bound of the timer's own memory */
    bool buffer_full;      /* and it was reached */
    /* Events that the trace lacks, and those of them that there was no memory for. */
    uint64_t n_events_skipped, n_events_unbuffered;
    bool trace_cut;  /* it has no end: the program was killed, or runs */
    kn__row outside; /* memory allocated with no scope open */
    kn__memory_totals memory;
    kn__series live; /* over time, ns */
    kn__steps steps;
    kn__balance balance;
    kn__gpu_use gpu;
    kn__counters counters;
    /* Largest first, the holders of memory now and its owners at the peak; noted when the rows were
     * summed up, in merged runs again at each one: leaving out rows changes nothing here. */
    kn__owner owners[KN__OWNERS_SHOWN], holders[KN__OWNERS_SHOWN];
    int n_owners, n_holders;
    bool owners_noted;

    struct kn__timeline *timeline; /* the events that it was read with; NULL: none; owned */
    void (*timeline_release)(struct kn__timeline *line);
    void *chunks; /* of rows; owned, as the next */
    void *kept;
    kn__hash children; /* of kn__child_row: each row by parent, label and is_range */
};

/* An empty report to add rows to; for tests and readers of stored reports. */
void kn__report_init(kn__report *out);
void kn__report_release(kn__report *report);

/* The child of this label that is no range, made when it isn't there; the label is borrowed. NULL:
 * no memory. kn__report_row_of: the one that is a range or not. */
kn__row *kn__report_row(kn__report *report, kn__row *parent, const char *label);
kn__row *kn__report_row_of(kn__report *report, kn__row *parent, const char *label, bool is_range);
/* The child of this label, a range only if there is no other, or NULL. kn__report_same: that of the
 * row's label and kind. */
kn__row *kn__report_find(const kn__report *report, const kn__row *parent, const char *label);
kn__row *kn__report_same(const kn__report *report, const kn__row *parent, const kn__row *row);
/* Memory that lives as long as the report, or NULL. */
void *kn__report_bytes(kn__report *report, size_t bytes);
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

/* The row's own blocks that are live now, without those of the rows below it. */
int64_t kn__row_held(const kn__row *row);

/* "train/forward/conv", cut at the front to fit. */
void kn__report_path(char *out, size_t out_bytes, const kn__row *row);

#endif
