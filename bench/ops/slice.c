/* Backward over the time steps of a sequence, each a slice of one tensor: 400 of them, beside 200.
 * The ratio is 2 where backward is linear in their number. */
#include <knet/param.h>
#include <knet/tape.h>
#include <stdlib.h>

#include "bench.h"

enum { BATCH = 4, WIDTH = 16, SAMPLES_MAX = 501 };

static kn_tensor *w[2]; /* [steps,BATCH,WIDTH] */
static const int64_t steps[2] = {400, 200};

/* The slices are columns of the batch: neither views nor in one run of memory. */
static kn_tensor *model(int i) {
    kn_tensor *x = kn_transpose(w[i], KN_SHAPE(1, 0, 2)), *h = NULL; /* [BATCH,steps,WIDTH] */
    for (int64_t t = 0; t < steps[i]; t++) {
        kn_tensor *step = kn_slice(x, KN_SHAPE(0, t, 0), KN_SHAPE(BATCH, t + 1, WIDTH));
        h = h ? kn_tanh(kn_add(h, step)) : step;
    }
    return kn_sum(h, KN_ALL, false);
}

/* ns of backward alone; 0: it failed. */
static uint64_t backward(int i) {
    KN_TAPE(.threads = 1);
    kn_tensor *loss = model(i);
    uint64_t start = bench_now_ns();
    return kn_backward(loss) < 0 ? 0 : bench_now_ns() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* One backward is shorter than a time slice: on a busy machine most samples are still whole. */
static bool measure(void) {
    static double ns[2][SAMPLES_MAX], ratio[SAMPLES_MAX];
    int n = bench_quick() ? 101 : SAMPLES_MAX;
    for (int s = -3; s < n; s++) { /* the first three warm up */
        int at = s < 0 ? 0 : s;
        for (int i = 0; i < 2; i++) {
            ns[i][at] = (double)backward(i);
            if (ns[i][at] <= 0) return false;
        }
        ratio[at] = ns[0][at] / ns[1][at];
    }
    bench_emit_ratio("ops", "slice400_ms", median(ns[0], n) / 1e6, "ms", median(ns[1], n) / 1e6,
                     median(ratio, n));
    return true;
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    kn_params *params = NULL;
    if (kn_params_create(&params, NULL) < 0) return 1;
    for (int i = 0; i < 2; i++) {
        w[i] = kn_param(params, KN_SHAPE(steps[i], BATCH, WIDTH), kn_init_xavier(), "w%d", i);
    }
    bool good = measure() && kn_check() == KN_OK;
    kn_params_destroy(params);
    return good ? 0 : 1;
}
