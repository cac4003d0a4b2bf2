/* bench_fuse [--quick] [METRIC…]: fuse.h says what it measures. Without names: composed ops,
 * and the models of up to 40 million parameters; --quick: the small ones. */
#include "fuse.h"

#include <knet/models.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "model_steps.h"

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 41 };

static char **names;
static int n_names;

static bool is_wanted(const char *metric) {
    for (int i = 0; i < n_names; i++) {
        if (strcmp(names[i], metric) == 0) return true;
    }
    return n_names == 0;
}

static bool is_model_wanted(const kn_model_kind *kind) {
    static const char *const quick[] = {"softmax", "mlp", "lenet", "tagger", "char_lstm_steps"};
    if (n_names) return is_wanted(kind->name);
    if (!bench_quick()) return kind->facts->n_params < 40000000;
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        if (strcmp(quick[i], kind->name) == 0) return true;
    }
    return false;
}

/* --- one model --- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* Ways of a step: one op after the other; fused; and with .recompute of frames too. */
enum { PLAIN, FUSED, AGAIN, WAYS };

/* ns of a step, negative when it fails; *peak: the most live bytes in it. */
static double step(kn__model_steps *s, int way, double *peak) {
    KN_FRAME(.fuse = way == PLAIN ? KN_OFF : 1, .recompute = way == AGAIN ? 1 : KN_OFF);
    kn_model_recompute_set(s->model, false); /* as the frame says */
    kn_pool *pool = kn_device_pool(kn_frame_device());
    kn_pool_stats stats = {0};
    kn_pool_peaks_reset(pool);
    uint64_t start = bench_now_ns();
    if (kn__model_steps_train(s) < 0) return -1;
    double ns = (double)(bench_now_ns() - start);
    kn_pool_stats_read(&stats, sizeof stats, pool);
    *peak = (double)stats.live_bytes_max;
    return ns;
}

typedef struct means { /* sums of logarithms, and of how many */
    double all, small, peak, again;
    int n, n_small;
} means;

/* All ways in turn, for about a second and a half. */
static bool turns_run(kn__model_steps *s, const char *name, means *m) {
    double ns[WAYS][ROUNDS_MAX], ratio[WAYS][ROUNDS_MAX], peak[WAYS] = {0}, total = 0;
    int n = 0;
    const double budget = bench_quick() ? 3e8 : 1.5e9;
    for (int i = -2; i < ROUNDS_MAX && (n < ROUNDS_MIN || total < budget); i++) {
        int at = i < 0 ? 0 : i; /* the first two warm up */
        for (int way = 0; way < WAYS; way++) {
            ns[way][at] = step(s, way, &peak[way]);
            if (ns[way][at] < 0) return false;
            ratio[way][at] = ns[way][at] / ns[PLAIN][at];
            if (i >= 0) total += ns[way][at];
        }
        if (i >= 0) n++;
    }
    double fused = median(ns[FUSED], n), plain = median(ns[PLAIN], n), r = median(ratio[FUSED], n);
    bool is_rnn = strcmp(name, "char_lstm_steps") == 0;
    bench_emit_ratio("fuse", is_rnn ? "charrnn" : name, fused * 1e-6, "ms", plain * 1e-6, r);
    m->all += log(r);
    m->peak += log(peak[AGAIN] / peak[PLAIN]);
    m->again += log(median(ratio[AGAIN], n));
    m->n++;
    if (plain >= 5e6) return true;
    m->small += log(r);
    m->n_small++;
    return true;
}

static bool model_run(const kn_model_kind *kind, means *m) {
    kn__model_steps s = {0};
    KN_FRAME(.record = KN_OFF);
    bool ok =
        kn__model_steps_open(&s, kind->name, 0, KN_F32) == KN_OK && turns_run(&s, kind->name, m);
    if (!ok) fprintf(stderr, "bench_fuse: %s: %s\n", kind->name, kn_last_error()->message);
    kn__model_steps_close(&s);
    return ok;
}

static void means_emit(const means *m) {
    if (!m->n) return;
    bench_emit("fuse", "models", exp(m->all / m->n), "of unfused", 1);
    if (m->n_small) bench_emit("fuse", "small", exp(m->small / m->n_small), "of unfused", 1);
    bench_emit("fuse", "peak", exp(m->peak / m->n), "of unfused", 1);
    bench_emit("fuse", "peak_time", exp(m->again / m->n), "of unfused", 1);
}

int main(int argc, char **argv) {
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    bench_init(is_quick ? 2 : 1, argv); /* names are ours */
    names = argv + 1 + is_quick;
    n_names = argc - 1 - is_quick;
    means m = {0};
    bool ok = composed_run(is_wanted);
    for (int i = 0; kn_model_kind_at(i); i++) {
        if (is_model_wanted(kn_model_kind_at(i))) ok = model_run(kn_model_kind_at(i), &m) && ok;
    }
    means_emit(&m);
    return !ok;
}
