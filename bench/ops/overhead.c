/* What an op costs beside its work: adding 16 elements. The baseline does the same with malloc, a
 * loop and free. */
#include <knet/ops.h>
#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { N = 16, OPS_A_FRAME = 64 };

static kn_tensor *a, *b;

static void plain(void *ctx, long n) {
    (void)ctx;
    for (long done = 0; done < n; done += OPS_A_FRAME) {
        KN_FRAME();
        for (int i = 0; i < OPS_A_FRAME; i++) kn_add(a, b);
    }
}

/* Kept out of line and opaque, so that the compiler can't drop it. */
__attribute__((noinline)) static float *add(const float *x, const float *y, long n) {
    float *z = malloc((size_t)n * sizeof *z);
    for (long i = 0; z && i < n; i++) z[i] = x[i] + y[i];
    __asm__ volatile("" ::"r"(z) : "memory");
    return z;
}

static void baseline(void *ctx, long n) {
    float *const *in = ctx;
    for (long i = 0; i < n; i++) free(add(in[0], in[1], N));
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    KN_FRAME();
    float x[N], y[N], *in[] = {x, y};
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 1;
    a = kn_tensor_from(x, KN_F32, KN_SHAPE(N));
    b = kn_tensor_from(y, KN_F32, KN_SHAPE(N));
    bench_result r = bench_pair(plain, NULL, baseline, in);
    if (kn_check() < 0) return 1;
    bench_emit_ratio("ops", "plain_ns", r.a_ns, "ns", r.b_ns, r.ratio);
    return 0;
}
