/* Launches of a training step of the LSTM that is written as small ops, on a fake GPU: with .fuse,
 * once all its kernels are compiled, beside without. Lower is better. */
#include <knet/models.h>
#include <stdio.h>

#include "bench.h"
#include "fake_gpu.h"
#include "model_steps.h"

enum { WARM = 4 };

static int step(kn__model_steps *s, int fuse) {
    KN_FRAME(.fuse = fuse);
    int before = fake_gpu_launches();
    return kn__model_steps_train(s) < 0 ? -1 : fake_gpu_launches() - before;
}

/* -1: an error is recorded. */
static int launches_of(kn__model_steps *s, int fuse) {
    for (int i = 0; i < WARM; i++) {
        if (step(s, fuse) < 0) return -1;
        kn_fuse_wait();
    }
    return step(s, fuse);
}

static kn_status measure(void) {
    kn__model_steps s = {0};
    kn_device *gpu = NULL;
    KN_TRY(kn_device_find(&gpu, "cuda:0"));
    KN_FRAME(.device = gpu, .record = KN_OFF);
    kn_status status = kn__model_steps_open(&s, "char_lstm_steps", 0, KN_F32);
    int fused = -1, plain = -1;
    if (status == KN_OK) fused = launches_of(&s, 1);
    if (fused >= 0) plain = launches_of(&s, KN_OFF);
    if (status == KN_OK && plain < 0) status = kn_last_error()->status;
    if (status == KN_OK) bench_emit("fuse", "charrnn_launches", fused, "launches", plain);
    kn__model_steps_close(&s);
    return status;
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    if (measure() == KN_OK) return 0;
    fprintf(stderr, "bench_fuse_launches: %s\n", kn_last_error()->message);
    return 1;
}
