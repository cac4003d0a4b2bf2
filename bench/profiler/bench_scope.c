/* The cost of a scope: with the timer on against two clock reads, with the timer off against no
 * scope; and the cost of recording the owner of a block. */
#include <knet/pool.h>
#include <knet/prof.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "clock.h"

static uint64_t sink;

static void two_clock_reads(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) {
        uint64_t start = kn__clock_now();
        __asm__ volatile("" ::: "memory");
        sink += kn__clock_now() - start;
    }
}

static void empty_loop(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
}

static void one_scope(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) {
        KN_SCOPE("scope");
        __asm__ volatile("" ::: "memory");
    }
}

/* Four siblings in turn and one level deeper, as the ops of a training step. */
static void step_of_scopes(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i += 8) {
        {
            KN_SCOPE("conv");
            { KN_SCOPE("dnnl_conv"); }
        }
        {
            KN_SCOPE("pool");
            { KN_SCOPE("dnnl_pool"); }
        }
        {
            KN_SCOPE("linear");
            { KN_SCOPE("dnnl_sgemm"); }
        }
        {
            KN_SCOPE("relu");
            { KN_SCOPE("relu kernel"); }
        }
    }
}

static void text_scope(void *ctx, long n) {
    const char *label = ctx;
    for (long i = 0; i < n; i++) {
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
}

/* The library reads its environment once, when it is loaded. */
static void run_again(char **argv, const char *words) {
    setenv("KNET_TIMER", words, 1);
    execv("/proc/self/exe", argv);
}

static void measure_off(void) {
    bench_result off = bench_pair(one_scope, NULL, empty_loop, NULL);
    bench_emit("prof", "scope_off_ns", off.a_ns - off.b_ns, "ns", off.b_ns);
}

static void alloc_and_free(void *ctx, long n) {
    void *x = NULL;
    for (long i = 0; i < n; i++) {
        if (kn_alloc(&x, ctx, 4096, NULL) < 0 || kn_free(ctx, x) < 0) abort();
    }
}

/* A block allocated and freed, with its owner noted and without. */
static void measure_owner(void) {
    kn_pool *pool = kn_device_pool(kn_device_host());
    double off = bench_ns(alloc_and_free, pool);
    if (kn_prof_owners_on() < 0) abort();
    KN_SCOPE("owner");
    bench_emit("prof", "owner_ns", bench_ns(alloc_and_free, pool), "ns", off);
}

static double measure(const char *metric, bench_fn fn, const char *label) {
    bench_result r = bench_pair(fn, (void *)(uintptr_t)label, two_clock_reads, NULL);
    bench_emit("prof", metric, r.a_ns, "ns", r.b_ns);
    return r.a_ns;
}

/* What following memory adds to a scope: this run's against that of the run before. */
static void measure_memory(void) {
    const char *without = getenv("KNET_BENCH_STEP_NS");
    bench_result r = bench_pair(step_of_scopes, NULL, two_clock_reads, NULL);
    bench_emit("prof", "scope_mem_ns", r.a_ns, "ns", r.b_ns);
    if (without) bench_emit("prof", "scope_mem_extra", r.a_ns - atof(without), "ns", r.b_ns);
}

static void keep_step(double ns) {
    char text[32];
    snprintf(text, sizeof text, "%.6f", ns);
    setenv("KNET_BENCH_STEP_NS", text, 1);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    const char *words = getenv("KNET_TIMER");
    kn__clock_start(KN__CLOCK_TSC); /* this program's own copy of the clock */
    if (!words) {
        measure_off();
        measure_owner();
        run_again(argv, "cpu,nomem,out=/dev/null");
    } else if (strstr(words, "nomem")) {
        measure("scope_on_ns", one_scope, NULL);
        keep_step(measure("scope_step_ns", step_of_scopes, NULL));
        measure("scope_text_ns", text_scope, "scope by text");
        run_again(argv, "cpu,mem,out=/dev/null");
    } else {
        measure_memory();
        return 0;
    }
    return 1; /* exec failed */
}
