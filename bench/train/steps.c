#include "steps.h"

#include <knet/models.h>
#include <knet/optim.h>
#include <knet/prof.h>
#include <knet/tape.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* --- ours --- */

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *sgd;
    kn_tensor *x, *y; /* slots */
} training;

/* x uniform in [0, 1), labels 0 … 9, as the peer's. */
static kn_status training_open(training *t, const char *name, kn_shape x_shape, double rate) {
    enum { BATCH_MOST = 128 };
    int64_t labels[BATCH_MOST];
    kn_rng *rng = NULL;
    for (int i = 0; i < BATCH_MOST; i++) labels[i] = rand() % 10;
    KN_FRAME();
    KN_TRY(kn_rng_create(&rng, 1));
    kn_status status = kn_hold(&t->x, kn_uniform(x_shape, 0, 1, rng));
    kn_rng_destroy(rng);
    KN_TRY(status);
    KN_TRY(kn_hold(&t->y, kn_tensor_from(labels, KN_I64, KN_SHAPE(x_shape.dim[0]))));
    KN_TRY(kn_params_create(&t->params, NULL));
    KN_TRY(kn_model_create(&t->model, name, t->params));
    return kn_sgd_create(&t->sgd, t->params, rate, NULL);
}

static void training_close(training *t) {
    kn_optim_destroy(t->sgd);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
    kn_unhold(&t->x);
    kn_unhold(&t->y);
}

static kn_status training_step(training *t) {
    KN_TAPE();
    kn_tensor *loss = kn_cross_entropy(kn_model_logits(t->model, t->x), t->y);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(t->sgd));
    kn_step();
    return KN_OK;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A device works behind the host's back: the time of a step is that of all of them and of the wait
 * for the last one, shared out. */
static kn_status training_run_on_device(training *t, int n_steps) {
    double loss = 0;
    uint64_t start = bench_now_ns();
    for (int i = 0; i < n_steps; i++) KN_TRY(training_step(t));
    KN_TRY(kn_item(&loss, kn_sum(kn_params_grad(t->params), KN_ALL, false)));
    printf("%llu\n", (unsigned long long)(bench_now_ns() - start) / (unsigned)n_steps);
    fflush(stdout);
    return KN_OK;
}

static kn_status training_run(training *t, int n_steps) {
    if (kn_tensor_device(t->x) != kn_device_host()) {
        KN_FRAME();
        return training_run_on_device(t, n_steps);
    }
    uint64_t *ns = calloc((size_t)n_steps, sizeof *ns);
    if (!ns) return KN_FAIL(KN_ERR_OOM, "no memory for the times of %d steps", n_steps);
    kn_status status = KN_OK;
    for (int i = 0; i < n_steps && status == KN_OK; i++) {
        uint64_t start = bench_now_ns();
        status = training_step(t);
        ns[i] = bench_now_ns() - start;
    }
    qsort(ns, (size_t)n_steps, sizeof *ns, by_value);
    if (status == KN_OK) printf("%llu\n", (unsigned long long)ns[n_steps / 2]);
    fflush(stdout);
    free(ns);
    return status;
}

static kn_status serve(training *lenet, training *mlp) {
    char name[16];
    int n_steps = 0;
    KN_TRY(training_open(lenet, "lenet", KN_SHAPE(128, 1, 28, 28), 0.1));
    KN_TRY(training_open(mlp, "mlp", KN_SHAPE(100, 784), 0.5));
    while (scanf("%15s %d", name, &n_steps) == 2 && n_steps > 0)
        KN_TRY(training_run(strcmp(name, "mlp") ? lenet : mlp, n_steps));
    return KN_OK;
}

int steps_serve(int threads, const char *device_name, bool tf32) {
    training lenet = {0}, mlp = {0};
    kn_device *device = NULL;
    kn_status status = kn_device_find(&device, device_name);
    KN_FRAME(.threads = threads, .device = device, .math = tf32 ? KN_MATH_TF32 : KN_MATH_STRICT);
    if (status == KN_OK) status = serve(&lenet, &mlp);
    if (status < 0) fprintf(stderr, "bench_train: %s\n", kn_last_error()->message);
    training_close(&lenet);
    training_close(&mlp);
    return status < 0;
}

bool steps_has_device(const char *name) {
    kn_device *device = NULL;
    if (kn_device_find(&device, name) == KN_OK) return true;
    fprintf(stderr, "bench_train: skipped: %s\n", kn_last_error()->message);
    return false;
}
