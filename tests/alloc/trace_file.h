/* A trace's file as the tests see it. */
#ifndef KNET_TRACE_FILE_H
#define KNET_TRACE_FILE_H

#include <knet/trace.h>
#include <stdatomic.h>

#include "pool_fixture.h"

typedef struct event {
    kn_trace_event e;
    uint32_t thread;
} event;

typedef struct file {
    kn_trace_header header;
    kn_trace_record *records;
    size_t n_records, odd_bytes; /* after the last whole record */
    event *events;
    size_t n;
    char pool_names[8][25]; /* in the order of their events */
    size_t n_pools;
} file;

enum { THREADS = 4, PAIRS = 30000 }; /* more than a ring holds */
extern atomic_int n_failed;          /* calls of worker threads that failed */
/* A thread: PAIRS allocations, each freed at once, from the fixture's pool. */
void *churn(void *ctx);

extern char trace_path[]; /* that trace_begin traces to */

/* Creates the file, an empty one. To be called before, and after, all tests. */
bool trace_path_make(void);
void trace_path_remove(void);

void trace_begin(kn_pool *only);
file trace_end(void); /* the trace has lost nothing */
kn_trace_stats trace_stats(void);

file file_read(void);
void file_free(file *f);
size_t file_count(const file *f, kn_trace_kind kind);
const kn_trace_event *file_first(const file *f,
                                 kn_trace_kind kind); /* fails if the file has no such event */
const kn_trace_record *file_last(const file *f);
/* The time of a CLOCK record: 0 at the beginning of the trace, 1 at its end. */
uint64_t file_clock_ticks(const file *f, size_t n);
/* Allocations and frees of an address alternate when they are ordered by time, and by their place
 * in the file where the times are the same, whatever threads they are of. */
void assert_blocks_alternate(const file *f);

#endif
