/* Training on the card beside training on the CPU: same seed, same batch, the first 20 losses. */
#include "gpu.h"

#include <knet/models.h>
#include <knet/optim.h>
#include <knet/pipeline.h>
#include <knet/tape.h>

#include <math.h>

enum { STEPS = 20, BATCH = 64 };

static kn_device *gpu;
static kn_device *second; /* of the model's layers; NULL: all are where the frame is */

typedef kn_status (*optim_fn)(kn_optim **out, kn_params *params);

static kn_status sgd(kn_optim **out, kn_params *params) {
    return kn_sgd_create(out, params, 0.1, NULL);
}

static kn_status adam(kn_optim **out, kn_params *params) {
    return kn_adam_create(out, params, 1e-3, NULL);
}

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_rng *rng;
    kn_tensor *x, *y;
} training;

/* Pixels and weights are Philox's, so they are the same bits on every device. */
static kn_status training_open(training *t, const char *model, optim_fn optim, double brightness) {
    int64_t labels[BATCH];
    for (int i = 0; i < BATCH; i++) labels[i] = i * 7 % 10;
    KN_TRY(kn_rng_create(&t->rng, 3));
    KN_TRY(
        kn_params_create(&t->params, &(kn_params_options){.seed = 1, .dtype = kn_frame_dtype()}));
    KN_TRY(kn_model_create(&t->model, model, t->params));
    kn_layer *net = kn_model_net(t->model);
    if (second && kn_frame_device() == gpu) {
        KN_TRY(kn_pipeline_place(net, (kn_device *const[]){kn_frame_device(), second}, 2, NULL));
        KN_TRY(kn_pipeline_micro(net, 4));
    }
    KN_TRY(optim(&t->optim, t->params));
    kn_tensor *pixels = kn_uniform(KN_SHAPE(BATCH, 1, 28, 28), 0, 1, t->rng);
    KN_TRY(kn_hold(&t->x, kn_affine(pixels, brightness, 0)));
    return kn_hold(&t->y, kn_tensor_from(labels, KN_I64, KN_SHAPE(BATCH)));
}

static void training_close(training *t) {
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
    kn_rng_destroy(t->rng);
    kn_unhold(&t->x);
    kn_unhold(&t->y);
}

static kn_status training_step(training *t, double *loss) {
    KN_TAPE();
    kn_tensor *l = kn_cross_entropy(kn_model_logits(t->model, t->x), t->y);
    KN_TRY(kn_backward(l));
    KN_TRY(kn_optim_step(t->optim));
    return kn_item(loss, l);
}

static void losses(double out[STEPS], kn_device *device, kn_dtype dtype, const char *model,
                   optim_fn optim, double brightness) {
    training t = {0};
    KN_FRAME(.device = device, .dtype = dtype);
    assert_ok(training_open(&t, model, optim, brightness));
    for (int i = 0; i < STEPS; i++) assert_ok(training_step(&t, &out[i]));
    training_close(&t);
}

static double most_apart(const double a[STEPS], const double b[STEPS]) {
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double apart = fabs(a[i] - b[i]);
        if (!isfinite(apart)) return INFINITY;
        most = fmax(most, apart);
    }
    return most;
}

/* The devices differ in the order of their sums. How far that takes the losses of f32 apart is
 * measured on the CPU, by pixels that are off by a few units in the last place. */
static void assert_same_losses(const char *model, optim_fn optim, kn_dtype dtype) {
    double cpu[STEPS], cpu_off[STEPS], cuda[STEPS];
    losses(cpu, kn_device_host(), dtype, model, optim, 1);
    losses(cpu_off, kn_device_host(), dtype, model, optim, 1 + 0x1p-20);
    losses(cuda, gpu, dtype, model, optim, 1);
    double rounding = most_apart(cpu, cpu_off), apart = most_apart(cuda, cpu);
    print_message("%s %s: loss %.6f to %.6f; the card's differs by %.1e, rounding by %.1e\n", model,
                  kn_dtype_name(dtype), cpu[0], cpu[STEPS - 1], apart, rounding);
    assert_true(cpu[STEPS - 1] < cpu[0]); /* it learns */
    assert_true(apart <= (dtype == KN_F64 ? 1e-9 : 8 * rounding + 1e-4));
}

static void assert_all_alike(const char *model) {
    static const kn_dtype dtypes[] = {KN_F64, KN_F32};
    for (int i = 0; i < 2; i++) {
        assert_same_losses(model, sgd, dtypes[i]);
        assert_same_losses(model, adam, dtypes[i]);
    }
}

static void losses_of_lenet_are_the_cpus(void **state) {
    (void)state;
    assert_all_alike("lenet");
}

static void losses_of_mlp_are_the_cpus(void **state) {
    (void)state;
    assert_all_alike("mlp");
}

/* On two cards; with one, the CPU has the last layers. */
static void a_model_in_two_stages_has_the_losses_of_one_device(void **state) {
    (void)state;
    second = kn_device_host();
    if (kn_device_cuda_count() > 1) assert_ok(kn_device_find(&second, "cuda:1"));
    assert_all_alike("lenet");
    second = NULL;
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(losses_of_lenet_are_the_cpus), TEST(losses_of_mlp_are_the_cpus),
                     TEST(a_model_in_two_stages_has_the_losses_of_one_device));
}
