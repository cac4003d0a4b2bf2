#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "now.h"

enum { PAIRS_MAX = 31 };

static bool quick;

void bench_init(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else {
            fprintf(stderr, "%s: unknown option %s (only --quick)\n", argv[0], argv[i]);
            exit(2);
        }
    }
}

bool bench_quick(void) { return quick; }

uint64_t bench_now_ns(void) { return kn__now_ns(CLOCK_MONOTONIC); }

static double time_once(bench_fn fn, void *ctx, long n) {
    uint64_t start = bench_now_ns();
    fn(ctx, n);
    return (double)(bench_now_ns() - start) / (double)n;
}

/* Repetitions for a sample of a few milliseconds; doubles as the warm-up. */
static long calibrate(bench_fn fn, void *ctx) {
    const double sample_ns = quick ? 2e6 : 8e6;
    long n = 1;
    for (;;) {
        double total = time_once(fn, ctx, n) * (double)n;
        if (total >= sample_ns / 2) return total >= sample_ns ? n : 2 * n;
        n *= total < sample_ns / 20 ? 10 : 2;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double bench_ns(bench_fn fn, void *ctx) {
    double ns[PAIRS_MAX];
    int n = quick ? 7 : PAIRS_MAX;
    long reps = calibrate(fn, ctx);
    for (int i = 0; i < n; i++) ns[i] = time_once(fn, ctx, reps);
    return median(ns, n);
}

bench_result bench_pair(bench_fn a, void *a_ctx, bench_fn b, void *b_ctx) {
    double a_ns[PAIRS_MAX], b_ns[PAIRS_MAX], ratio[PAIRS_MAX];
    int n = quick ? 7 : PAIRS_MAX;
    long a_reps = calibrate(a, a_ctx), b_reps = calibrate(b, b_ctx);
    for (int i = 0; i < n; i++) {
        a_ns[i] = time_once(a, a_ctx, a_reps);
        b_ns[i] = time_once(b, b_ctx, b_reps);
        ratio[i] = a_ns[i] / b_ns[i];
    }
    bench_result r = {median(a_ns, n), median(b_ns, n), median(ratio, n)};
    return r;
}

static void print_number(const char *key, double x) {
    if (isfinite(x)) {
        printf(",\"%s\":%.6g", key, x);
    } else {
        printf(",\"%s\":null", key);
    }
}

void bench_emit_ratio(const char *bench, const char *metric, double value, const char *unit,
                      double baseline, double ratio) {
    printf("{\"bench\":\"%s\",\"metric\":\"%s\"", bench, metric);
    print_number("value", value);
    printf(",\"unit\":\"%s\"", unit);
    print_number("baseline", baseline);
    print_number("ratio", isnan(ratio) ? value / baseline : ratio);
    const char *peer = getenv("KNET_BENCH_PEER");
    if (peer) printf(",\"peer\":\"%s\"", peer);
    printf("}\n");
    fflush(stdout);
}

void bench_emit(const char *bench, const char *metric, double value, const char *unit,
                double baseline) {
    bench_emit_ratio(bench, metric, value, unit, baseline, (double)NAN);
}
