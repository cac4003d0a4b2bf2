/* What recording and backward cost: chains of 100 ops on 16 elements. The baseline of each figure
 * is the same op in the same run, neither recorded nor differentiated. */
#include <knet/param.h>
#include <knet/tape.h>
#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { N = 16, CHAIN = 100, TAPES = 50, SAMPLES_MAX = 61 };

typedef kn_tensor *(*binary_fn)(kn_tensor *a, kn_tensor *b);

typedef struct sample { /* ns for one op */
    double plain, recorded, backward;
} sample;

static kn_tensor *chain(binary_fn op, kn_tensor *y, kn_tensor *x) {
    for (int i = 0; i < CHAIN; i++) y = op(y, x);
    return y;
}

/* The scalar that backward starts from is not a link of the chain, and not counted. */
static bool measure(sample *out, binary_fn op, kn_tensor *w, kn_tensor *x) {
    uint64_t recorded = 0, backward = 0, start = bench_now_ns();
    for (int i = 0; i < TAPES; i++) {
        KN_FRAME();
        chain(op, w, x);
    }
    out->plain = (double)(bench_now_ns() - start) / (TAPES * CHAIN);
    for (int i = 0; i < TAPES; i++) {
        KN_TAPE();
        start = bench_now_ns();
        kn_tensor *y = chain(op, w, x);
        recorded += bench_now_ns() - start;
        kn_tensor *loss = kn_sum(y, KN_ALL, false);
        start = bench_now_ns();
        if (kn_backward(loss) < 0) return false;
        backward += bench_now_ns() - start;
    }
    out->recorded = (double)recorded / (TAPES * CHAIN);
    out->backward = (double)backward / (TAPES * CHAIN);
    return true;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const sample *s, int n, size_t field) {
    double values[SAMPLES_MAX];
    for (int i = 0; i < n; i++) values[i] = *(const double *)((const char *)&s[i] + field);
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static bool run(const char *recorded, const char *backward, binary_fn op, kn_tensor *w,
                kn_tensor *x) {
    sample samples[SAMPLES_MAX];
    int n = bench_quick() ? 11 : SAMPLES_MAX;
    for (int i = -3; i < n; i++) { /* the first three warm up */
        if (!measure(&samples[i < 0 ? 0 : i], op, w, x)) return false;
    }
    double plain = median_of(samples, n, offsetof(sample, plain));
    bench_emit("ops", recorded, median_of(samples, n, offsetof(sample, recorded)), "ns", plain);
    bench_emit("ops", backward, median_of(samples, n, offsetof(sample, backward)), "ns", plain);
    return true;
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    kn_params *params = NULL;
    if (kn_params_create(&params, NULL) < 0) return 1;
    kn_init ones = {KN_INIT_CONSTANT, 1, 0};
    kn_tensor *w = kn_param(params, KN_SHAPE(N), ones, "w");
    bool good = false;
    {
        KN_FRAME();
        kn_tensor *x = kn_ones(KN_SHAPE(N));
        good = run("recorded_ns", "backward_ns", (kn_add), w, x) && /* backward moves gradients */
               run("recorded_mul_ns", "backward_mul_ns", (kn_mul), w, x); /* and runs a kernel */
    }
    kn_params_destroy(params);
    return good ? 0 : 1;
}
