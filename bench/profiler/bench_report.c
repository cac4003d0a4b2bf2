/* What the timer does beside scopes: noting a launch, joining GPU records, a trace, a report. */
#include <knet/prof.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "activity.h"
#include "bench.h"
#include "clock.h"
#include "memory.h"
#include "table.h"
#include "trace.h"

enum { BATCH = 50000, BATCHES = 20, NODES = 1000, EVENTS = 500000, TRIES = 5 };

/* Time of this thread alone: these runs are longer than a turn on a busy machine. */
static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define NO_BASELINE ((double)__builtin_nan(""))

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

/* The fastest batch: what the code costs when nothing else runs. */
static void measure_join(void) {
    double best_launch = 1e30, best_join = 1e30;
    if (kn__activity_start(&source) < 0) abort();
    for (int i = 0; i < BATCHES; i++) {
        make_records();
        double launch_ns = launch_all();
        uint64_t start_ns = cpu_ns();
        kn__activity_drain();
        double join_ns = (double)(cpu_ns() - start_ns);
        next_id += BATCH;
        if (launch_ns < best_launch) best_launch = launch_ns;
        if (join_ns < best_join) best_join = join_ns;
    }
    bench_emit("prof", "callback_ns", best_launch / BATCH, "ns", NO_BASELINE);
    bench_emit("prof", "join_mrec_s", 1e3 * BATCH / best_join, "M/s", NO_BASELINE);
}

static void measure_report(void) {
    for (int i = 0; i < NODES; i++) {
        char label[32];
        snprintf(label, sizeof label, "node %d", i);
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    double tick_ns = kn__clock_tick_ns(), best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        kn__report report;
        kn__text text = {0};
        uint64_t start_ns = cpu_ns();
        if (kn__report_take(&report, kn__clock_now(), tick_ns) < 0) abort();
        kn__report_sort(&report, KN__SORT_TIME);
        kn__table_add(&text, &report, &(kn__table_options){0});
        double ms = (double)(cpu_ns() - start_ns) / 1e6;
        if (ms < best) best = ms;
        kn__text_release(&text);
        kn__report_release(&report);
    }
    bench_emit("prof", "report_1000_ms", best, "ms", NO_BASELINE);
}

static void measure_trace(void) {
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        if (kn__trace_start("/dev/null", 0) < 0) abort();
        kn__tree *tree = kn__tree_get();
        uint64_t start_ns = cpu_ns(), now = kn__clock_now();
        const kn__node *node = tree->root.first_child;
        for (uint64_t j = 0; j < EVENTS; j++) kn__trace_scope(tree, node, now + j, now + j + 500);
        if (kn__trace_finish() < 0) abort();
        double ns = (double)(cpu_ns() - start_ns);
        if (ns < best) best = ns;
    }
    bench_emit("prof", "trace_mev_s", 1e3 * EVENTS / best, "M/s", NO_BASELINE);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    if (kn_prof_owners_on() < 0) abort();
    measure_join();
    measure_report();
    measure_trace();
    return 0;
}
