#include "launches.h"

#include <knet/train.h>

#include "fake_gpu.h"

enum { STEPS = 8 };

typedef struct steps {
    int launches[STEPS], n; /* launches since the start, at the end of each step */
} steps;

static bool step_done(void *ctx, const kn_train_step *step) {
    steps *s = ctx;
    (void)step;
    s->launches[s->n++] = fake_gpu_launches();
    return true;
}

static kn_status train(steps *s, kn_device *gpu, const char *name, kn_math_mode math) {
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_optim *adam = NULL;
    kn_loader *loader = NULL;
    kn_status status = KN_OK;
    kn_loader_options options = {.batch = 128, .device = gpu, .split = KN_TRAIN};
    kn_train_options train_options = {.on_step_fn = step_done, .ctx = s};
    kn_train_result result;
    KN_FRAME(.device = gpu, .math = (int)math);
    KN_TRY_GOTO(status, kn_params_create(&params, NULL));
    KN_TRY_GOTO(status, kn_model_create(&model, name, params));
    KN_TRY_GOTO(status, kn_adam_create(&adam, params, 1e-3, NULL));
    KN_TRY_GOTO(status, kn_loader_create_synthetic(&loader, STEPS * 128, &options));
    fake_gpu_reset();
    KN_TRY_GOTO(status,
                kn_train(&result, sizeof result, model, adam, loader, NULL, &train_options));
cleanup:
    kn_loader_destroy(loader);
    kn_optim_destroy(adam);
    kn_model_destroy(model);
    kn_params_destroy(params);
    return status;
}

kn_status launches_count(int *out, const char *model, kn_math_mode math) {
    kn_device *gpu = NULL;
    steps s = {.n = 0};
    KN_TRY(kn_device_find(&gpu, "cuda:0"));
    KN_TRY(train(&s, gpu, model, math));
    int last = s.launches[STEPS - 1] - s.launches[STEPS - 2];
    if (last != s.launches[STEPS - 2] - s.launches[STEPS - 3]) {
        return KN_FAIL(KN_ERR_INTERNAL, "%s: the last two steps differ in launches", model);
    }
    *out = last;
    return KN_OK;
}
