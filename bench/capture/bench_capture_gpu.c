/* A captured training step of the MLP on a fake GPU: CPU time to enqueue it, and its launches,
 * beside the step as it is. Lower is better. */
#include <knet/models.h>
#include <knet/optim.h>
#include <knet/tape.h>
#include <stdio.h>

#include "bench.h"
#include "fake_gpu.h"
#include "training.h"

static int launches_of(bench_fn steps, training *t) {
    int before = fake_gpu_launches();
    steps(t, 1);
    return fake_gpu_launches() - before;
}

static kn_status measure(void) {
    training plain = {0}, captured = {0};
    kn_device *gpu = NULL;
    KN_TRY(kn_device_find(&gpu, "cuda:0"));
    KN_FRAME(.device = gpu, .record = KN_OFF);
    kn_status status = training_open(&plain, "mlp");
    if (status == KN_OK) status = training_open(&captured, "mlp");
    if (status == KN_OK) {
        bench_result r = bench_pair(steps_captured, &captured, steps_plain, &plain);
        int one = launches_of(steps_captured, &captured), all = launches_of(steps_plain, &plain);
        status = captured.status < 0 ? captured.status : plain.status;
        if (status == KN_OK) {
            bench_emit_ratio("capture", "mlp_enqueue", 1e-3 * r.a_ns, "us", 1e-3 * r.b_ns, r.ratio);
            bench_emit("capture", "mlp_launches", one, "launches", all);
        }
    }
    training_close(&plain);
    training_close(&captured);
    return status;
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    fake_cuda_machine_get()->skips_copies = true; /* a GPU does them */
    if (measure() == KN_OK) return 0;
    fprintf(stderr, "bench_capture_gpu: %s\n", kn_last_error()->message);
    return 1;
}
