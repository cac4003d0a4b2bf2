/* The benchmark harness: warm-up, repeats, medians, pairs, and one JSON line a figure.
 *
 *     static void pair(void *ctx, long n) { for (long i = 0; i < n; i++) … }
 *     bench_result r = bench_pair(ours, a, theirs, b);        // in turn, so that a slow spell hits
 * both bench_emit("pool", "hot_ns", r.a_ns, "ns", r.b_ns);     // ratio = a / b
 *
 * Programs take --quick (fewer repeats) through bench_init. A figure is a median; a ratio is the
 * median of the pairs' ratios, which is steadier than the ratio of the medians.
 */
#ifndef KNET_BENCH_H
#define KNET_BENCH_H

#include <stdbool.h>
#include <stdint.h>

typedef void (*bench_fn)(void *ctx, long n); /* does the work n times */

typedef struct bench_result {
    double a_ns, b_ns; /* median time of one call of each */
    double ratio;      /* median of a/b over the pairs */
} bench_result;

void bench_init(int argc, char **argv);
bool bench_quick(void);
uint64_t bench_now_ns(void);

/* Median ns of one repetition of fn. */
double bench_ns(bench_fn fn, void *ctx);
/* a and b in turn. */
bench_result bench_pair(bench_fn a, void *a_ctx, bench_fn b, void *b_ctx);

/* Prints {"bench":…,"metric":…,"value":…,"unit":…,"baseline":…,"ratio":…}. ratio NAN: value /
 * baseline; baseline NAN: null, and so is the ratio. With KNET_BENCH_PEER, the version of another
 * PyTorch than Debian's, also "peer". */
void bench_emit_ratio(const char *bench, const char *metric, double value, const char *unit,
                      double baseline, double ratio);
void bench_emit(const char *bench, const char *metric, double value, const char *unit,
                double baseline);

#endif
