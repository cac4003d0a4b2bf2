/* What the timer does beside scopes: noting a launch, joining GPU records, a trace, a report, the
 * end, and whether it grows. KNET_BENCH_FULL=1 opens a thousand million scopes for the last. */
#include <knet/pool.h>
#include <knet/prof.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "activity.h"
#include "bench.h"
#include "clock.h"
#include "html.h"
#include "json.h"
#include "memory.h"
#include "now.h"
#include "table.h"
#include "take.h"
#include "timeline.h"
#include "trace.h"

enum { BATCH = 50000, BATCHES = 20, NODES = 1000, ROWS = 100000, EVENTS = 500000, TRIES = 5 };

/* Time of this thread alone: these runs are longer than a turn on a busy machine. */
static uint64_t cpu_ns(void) { return kn__now_ns(CLOCK_THREAD_CPUTIME_ID); }

static kn__record records[BATCH];
static uint32_t next_id = 1;

static kn_status start(void *ctx) {
    (void)ctx;
    return KN_OK;
}

static void stop(void *ctx) { (void)ctx; }

static void drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    fn(sink, records, BATCH);
}

static uint64_t dropped(void *ctx) {
    (void)ctx;
    return 0;
}

static const kn__source source = {
    .name = "benchmark", .start = start, .stop = stop, .drain = drain, .dropped = dropped};

/* Records of eight kernels in the order a GPU with eight streams might end them. */
static void make_records(void) {
    static const char *const kernels[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t at = i ^ 5u;
        records[i] = (kn__record){.id = next_id + at,
                                  .name = kernels[at % 8],
                                  .start_ns = 1000 + i,
                                  .end_ns = 3000 + i,
                                  .stream = at % 8};
    }
}

static double launch_all(void) {
    static const char *const scopes[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
    uint64_t start_ns = cpu_ns();
    for (uint32_t i = 0; i < BATCH;) {
        kn_scope scope = kn_scope_begin_static(scopes[i / 1000 % 8]);
        for (uint32_t end = i + 1000; i < end; i++) kn__activity_launch(next_id + i);
        kn_scope_end(&scope);
    }
    return (double)(cpu_ns() - start_ns);
}

/* The baseline of a launch: reading the clock once. */
static double read_clocks(void) {
    uint64_t start_ns = cpu_ns();
    for (int i = 0; i < BATCH; i++) {
        uint64_t now = kn__clock_now();
        __asm__ volatile("" ::"r"(now));
    }
    return (double)(cpu_ns() - start_ns);
}

/* The baseline of a join: copying the records. */
static double copy_records(void) {
    static kn__record copy[BATCH];
    uint64_t start_ns = cpu_ns();
    memcpy(copy, records, sizeof copy);
    __asm__ volatile("" ::"r"(copy) : "memory");
    return (double)(cpu_ns() - start_ns);
}

static void keep_least(double *best, double ns) {
    if (ns < *best) *best = ns;
}

/* The fastest batch: what the code costs when nothing else runs. */
static void measure_join(void) {
    double best_launch = 1e30, best_join = 1e30, best_clocks = 1e30, best_copy = 1e30;
    if (kn__activity_start(&source) < 0) abort();
    for (int i = 0; i < BATCHES; i++) {
        make_records();
        double launch_ns = launch_all();
        uint64_t start_ns = cpu_ns();
        kn__activity_drain();
        double join_ns = (double)(cpu_ns() - start_ns);
        next_id += BATCH;
        keep_least(&best_launch, launch_ns);
        keep_least(&best_join, join_ns);
        keep_least(&best_clocks, read_clocks());
        keep_least(&best_copy, copy_records());
    }
    bench_emit("prof", "callback_ns", best_launch / BATCH, "ns", best_clocks / BATCH);
    bench_emit("prof", "join_mrec_s", 1e3 * BATCH / best_join, "M/s", 1e3 * BATCH / best_copy);
}

/* The least time of some tries, in ns. */
static double least(void (*fn)(void)) {
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start_ns = cpu_ns();
        fn();
        double ns = (double)(cpu_ns() - start_ns);
        if (ns < best) best = ns;
    }
    return best;
}

static double tick_ns;

static void make_report(void) {
    kn__report report;
    kn__text text = {0};
    if (kn__report_take(&report, kn__clock_now(), tick_ns) < 0) abort();
    kn__report_sort(&report, KN__SORT_TIME);
    kn__table_add(&text, &report, &(kn__table_options){0});
    kn__text_release(&text);
    kn__report_release(&report);
}

/* The baseline: as many lines of as many numbers, with snprintf alone. */
static void print_lines(void) {
    static char text[NODES * 128];
    size_t at = 0;
    for (int i = 0; i < NODES; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at,
                               " node %-10d %5d %8.3g %6.2f %8.3g %8.3g %6.2f %8.3g %8.3g\n", i, i,
                               i * 1.5, i * 0.1, i * 2.5, i * 3.5, i * 0.2, i * 4.5, i * 5.5);
    }
}

static void measure_report(void) {
    for (int i = 0; i < NODES; i++) {
        char label[32];
        snprintf(label, sizeof label, "node %d", i);
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    tick_ns = kn__clock_tick_ns();
    bench_emit("prof", "report_1000_ms", least(make_report) / 1e6, "ms", least(print_lines) / 1e6);
}

static const char *trace_path;

static void write_trace(void) {
    if (kn__trace_start(trace_path, 0) < 0) abort();
    kn__tree *tree = kn__tree_get();
    uint64_t now = kn__clock_now();
    const kn__tree_node *node = tree->root.first_child;
    for (uint64_t j = 0; j < EVENTS; j++) kn__trace_scope(tree, node, now + j, now + j + 500);
    if (kn__trace_finish() < 0) abort();
}

/* The baseline: the same lines with fprintf. */
static void print_events(void) {
    FILE *out = fopen("/dev/null", "wb");
    if (!out) abort();
    for (int i = 0; i < EVENTS; i++) {
        fprintf(out,
                ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,"
                "\"ts\":%.3f,\"dur\":%.3f}",
                "s0", 12345, 12345, i * 0.001, 0.5);
    }
    fclose(out);
}

/* All threads count: one of the timer's writes. */
static double least_of_process(void (*fn)(void)) {
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start_ns = kn__now_ns(CLOCK_PROCESS_CPUTIME_ID);
        fn();
        keep_least(&best, (double)(kn__now_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns));
    }
    return best;
}

static void measure_trace(void) {
    char dir[] = "/tmp/knet-bench-XXXXXX", perfetto[64];
    if (!mkdtemp(dir)) abort();
    snprintf(perfetto, sizeof perfetto, "%s/null.pftrace", dir);
    if (symlink("/dev/null", perfetto) != 0) abort();
    double print_ns = least(print_events);
    trace_path = "/dev/null";
    bench_emit("prof", "trace_mev_s", 1e3 * EVENTS / least_of_process(write_trace), "M/s",
               1e3 * EVENTS / print_ns);
    trace_path = perfetto;
    bench_emit("prof", "pftrace_mev_s", 1e3 * EVENTS / least_of_process(write_trace), "M/s",
               1e3 * EVENTS / print_ns);
    unlink(perfetto);
    rmdir(dir);
}

/* After a million records of a run: the last ones join, and all reports are made. */
static void measure_exit(void) {
    make_records();
    launch_all();
    next_id += BATCH;
    uint64_t start_ns = cpu_ns();
    kn__activity_stop();
    kn__report report;
    kn__text text = {0};
    if (kn__report_take(&report, kn__clock_now(), tick_ns) < 0) abort();
    kn__report_sort(&report, KN__SORT_TIME);
    kn__table_add(&text, &report, &(kn__table_options){0});
    kn__json_add(&text, &report);
    double ms = (double)(cpu_ns() - start_ns) / 1e6;
    kn__text_release(&text);
    kn__report_release(&report);
    bench_emit("prof", "exit_1m_ms", ms, "ms", least(make_report) / 1e6);
}

/* A large profile and its events, as knet report reads one. */
static kn__report large;

static void write_page(void) {
    kn__text text = {0};
    kn__html_add(&text, &large);
    if (text.failed) abort();
    kn__text_release(&text);
}

/* The baseline: the same profile as JSON. */
static void write_json(void) {
    kn__text text = {0};
    kn__json_add(&text, &large);
    if (text.failed) abort();
    kn__text_release(&text);
}

/* Scopes of four threads, and a kernel in each fourth. */
static void add_events(void) {
    kn__timeline *line = kn__timeline_make(&large);
    if (!line) abort();
    for (uint64_t i = 0; i < ROWS; i++) {
        char label[32];
        snprintf(label, sizeof label, "row %d", (int)i % 1000);
        uint64_t start = i / 4 * 1000;
        kn__record record = {.name = label, .start_ns = start, .end_ns = start + 900, .stream = 7};
        uint32_t thread = kn__timeline_thread_of(line, 1, (int64_t)(i % 4));
        kn_status status = i % 4 == 3
                               ? kn__timeline_work(line, &record, 0)
                               : kn__timeline_span(line, thread, label, NULL, start, start + 900);
        if (status < 0) abort();
    }
    kn__timeline_sort(line);
}

static void measure_html(void) {
    kn__report_init(&large);
    add_events();
    large.has_memory = true;
    for (int i = 0; i < ROWS; i++) {
        char label[32];
        snprintf(label, sizeof label, "row %d", i % 1000);
        kn__row *parent = i % 1000 ? large.root.last : &large.root;
        if (i % 1000 == 0) snprintf(label, sizeof label, "group %d", i);
        const char *kept = kn__report_keep(&large, label);
        kn__row *row = kept ? kn__report_row(&large, parent, kept) : NULL;
        if (!row) abort();
        row->n_calls = 1000;
        row->time_ns = 123456789 + (uint64_t)i;
        row->min_ns = 100000;
        row->max_ns = 200000;
        row->alloc_bytes = (uint64_t)i << 10;
    }
    kn__report_finish(&large);
    bench_emit("prof", "html_ms", least(write_page) / 1e6, "ms", least(write_json) / 1e6);
    kn__report_release(&large);
}

static double resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) abort();
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Scopes in scopes, with a block allocated now and then. */
static void open_scopes(long n, kn_pool *pool) {
    void *x = NULL;
    for (long i = 0; i < n; i += 8) {
        KN_SCOPE("step");
        for (int j = 0; j < 6; j++) {
            KN_SCOPE("op");
        }
        KN_SCOPE("last");
        if (i % 512 == 0 && (kn_alloc(&x, pool, 4096, NULL) < 0 || kn_free(pool, x) < 0)) abort();
        if (i % 512 == 0) kn_step();
    }
}

/* The baseline is what the process held before. */
static void measure_growth(void) {
    kn_pool *pool = kn_device_pool(kn_device_host());
    long n = getenv("KNET_BENCH_FULL") ? 1000000000 : bench_quick() ? 2000000 : 20000000;
    open_scopes(1000000, pool);
    double before = resident_bytes();
    open_scopes(n, pool);
    bench_emit("prof", "rss_growth_bytes", resident_bytes() - before, "B", before);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    if (kn_prof_owners_on() < 0) abort();
    measure_join();
    measure_report();
    measure_exit();
    measure_html();
    measure_trace();
    measure_growth();
    return 0;
}
