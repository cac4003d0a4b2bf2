#include "trace_file.h"

#include <unistd.h>

char trace_path[] = "/tmp/knet-trace-XXXXXX";

bool trace_path_make(void) {
    int fd = mkstemp(trace_path);
    return fd >= 0 && close(fd) == 0;
}

atomic_int n_failed;

void *churn(void *ctx) {
    const fixture *f = ctx;
    for (int i = 0; i < PAIRS; i++) {
        void *ptr = NULL;
        if (kn_alloc(&ptr, f->pool, 256 + (size_t)(i % 8) * 256, NULL) < 0) n_failed++;
        if (kn_free(f->pool, ptr) < 0) n_failed++;
    }
    return NULL;
}

void trace_path_remove(void) { unlink(trace_path); }

enum { THREADS_MAX = 4096 }; /* of this whole program */

static void take(file *f, kn_trace_thread *thread, uint32_t number, const kn_trace_record *record) {
    event *to = &f->events[f->n];
    if (!kn_trace_event_read(&to->e, thread, record)) return;
    to->thread = number;
    f->n++;
    if (to->e.kind != KN_TRACE_POOL) return;
    assert_true(f->n_pools < 8);
    memcpy(f->pool_names[f->n_pools++], thread->name, 24);
}

static void put_together(file *f) {
    static kn_trace_thread threads[THREADS_MAX];
    uint64_t now = UINT64_MAX;
    memset(threads, 0, sizeof threads);
    for (size_t i = 0; i < f->n_records; i++) {
        const kn_trace_record *record = &f->records[i];
        if (kn_trace_kind_of(record) == KN_TRACE_THREAD) {
            now = record->a >> 8;
            continue;
        }
        assert_true(now < THREADS_MAX);
        take(f, &threads[now], (uint32_t)now, record);
    }
}

file file_read(void) {
    file f = {.n = 0};
    FILE *in = fopen(trace_path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(&f.header, sizeof f.header, 1, in), 1);
    fseek(in, 0, SEEK_END);
    size_t bytes = (size_t)ftell(in) - sizeof f.header;
    f.n_records = bytes / sizeof *f.records;
    f.odd_bytes = bytes % sizeof *f.records;
    f.records = calloc(f.n_records + 1, sizeof *f.records);
    f.events = calloc(f.n_records + 1, sizeof *f.events);
    fseek(in, sizeof f.header, SEEK_SET);
    assert_int_equal(fread(f.records, sizeof *f.records, f.n_records, in), f.n_records);
    fclose(in);
    put_together(&f);
    return f;
}

void file_free(file *f) {
    free(f->records);
    free(f->events);
}

size_t file_count(const file *f, kn_trace_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_records; i++) n += kn_trace_kind_of(&f->records[i]) == kind;
    return n;
}

const kn_trace_event *file_first(const file *f, kn_trace_kind kind) {
    for (size_t i = 0; i < f->n; i++) {
        if (f->events[i].e.kind == kind) return &f->events[i].e;
    }
    fail_msg("no event of kind %d", (int)kind);
    return NULL;
}

const kn_trace_record *file_last(const file *f) { return &f->records[f->n_records - 1]; }

uint64_t file_clock_ticks(const file *f, size_t n) {
    for (size_t i = 1; i < f->n_records; i++) {
        if (kn_trace_kind_of(&f->records[i]) != KN_TRACE_CLOCK || n-- > 0) continue;
        assert_int_equal(kn_trace_kind_of(&f->records[i - 1]), KN_TRACE_TIME);
        return f->records[i - 1].b;
    }
    fail_msg("too few clock records");
    return 0;
}

typedef struct access_of_block {
    uint64_t ptr, ticks;
    size_t place;
    kn_trace_kind kind;
} access_of_block;

static int by_ptr_and_time(const void *a, const void *b) {
    const access_of_block *x = a, *y = b;
    if (x->ptr != y->ptr) return x->ptr < y->ptr ? -1 : 1;
    if (x->ticks != y->ticks) return x->ticks < y->ticks ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

void assert_blocks_alternate(const file *f) {
    access_of_block *all = calloc(f->n + 1, sizeof *all);
    size_t n = 0;
    assert_non_null(all);
    for (size_t i = 0; i < f->n; i++) {
        const kn_trace_event *e = &f->events[i].e;
        if (e->kind != KN_TRACE_ALLOC && e->kind != KN_TRACE_FREE) continue;
        all[n++] = (access_of_block){e->ptr, e->time_ticks, i, e->kind};
    }
    qsort(all, n, sizeof *all, by_ptr_and_time);
    for (size_t i = 0; i < n; i++) {
        bool first_of_block = i == 0 || all[i].ptr != all[i - 1].ptr;
        kn_trace_kind before = first_of_block ? KN_TRACE_FREE : all[i - 1].kind;
        assert_int_not_equal(all[i].kind, before);
    }
    free(all);
}

void trace_begin(kn_pool *only) {
    assert_ok(kn_trace_begin(trace_path, &(kn_trace_options){.pool = only}));
}

kn_trace_stats trace_stats(void) {
    kn_trace_stats stats;
    kn_trace_stats_read(&stats, sizeof stats);
    return stats;
}

file trace_end(void) {
    assert_ok(kn_trace_end());
    return file_read();
}
