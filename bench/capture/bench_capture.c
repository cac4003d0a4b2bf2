/* Captured steps: what an op of a replay costs; a step of the MLP beside the uncaptured one. */
#include <math.h>
#include <stdio.h>

#include "bench.h"
#include "training.h"

static int failed(const char *what) {
    fprintf(stderr, "bench_capture: %s: %s\n", what, kn_last_error()->message);
    return 1;
}

/* --- ops of 16 elements --- */

enum { ROUNDS = 50, OPS = 4 * ROUNDS, ELEMENTS = 16, OP_NS_MOST = 25 };

static kn_status small_ops(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *y = in[0];
    for (int i = 0; i < ROUNDS; i++)
        y = kn_relu(kn_affine(kn_mul(kn_add(y, in[1]), in[1]), 0.5, 0.1));
    out[0] = y;
    return kn_check();
}

typedef struct replays {
    kn_capture *capture;
    kn_tensor *in[2];
    kn_status status;
} replays;

static void replay(void *ctx, long n) {
    replays *r = ctx;
    for (long i = 0; i < n && r->status == KN_OK; i++)
        r->status = kn_capture_launch(r->capture, r->in, 2);
}

static int bench_ops(void) {
    KN_FRAME();
    replays r = {.status = KN_OK};
    kn_tensor *y = NULL;
    r.in[0] = kn_ones(KN_SHAPE(ELEMENTS));
    r.in[1] = kn_ones(KN_SHAPE(ELEMENTS));
    if (kn_capture_create(&r.capture, NULL) < 0) return failed("op_ns");
    for (int i = 0; i < 2; i++) {
        if (kn_capture_run(&y, 1, r.capture, r.in, 2, small_ops, NULL) < 0) return failed("op_ns");
    }
    bench_emit("capture", "op_ns", bench_ns(replay, &r) / OPS, "ns", OP_NS_MOST);
    kn_capture_destroy(r.capture);
    return r.status < 0 ? failed("op_ns") : 0;
}

/* --- a step of training --- */

/* One net, and each kind of step first in half of the pairs: plain steps beside plain steps of a
 * second net differed by up to 10 %. */
static int bench_steps(const char *model, const char *metric) {
    training t;
    if (training_open(&t, model) < 0) return failed(metric);
    bench_result r = bench_pair(steps_captured, &t, steps_plain, &t);
    bench_result back = bench_pair(steps_plain, &t, steps_captured, &t);
    bool ok = t.status == KN_OK;
    if (ok)
        bench_emit_ratio("capture", metric, 1e-3 * r.a_ns, "us", 1e-3 * r.b_ns,
                         sqrt(r.ratio / back.ratio));
    training_close(&t);
    return ok ? 0 : failed(metric);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    return bench_ops() || bench_steps("mlp", "mlp_step") || bench_steps("lenet", "lenet_step");
}
