/* Gradients on the card beside gradients on the CPU: whole models, a network with dropout and Adam,
 * and second derivatives. */
#include "gpu.h"

#include "../autograd/net.h"

#include <knet/models.h>

static kn_device *gpu;

/* Normalised mean squared error, as in the parity of single ops. */
static double nmse_most(kn_dtype dtype) { return dtype == KN_F64 ? 1e-13 : 1e-7; }

/* A copy of all elements as doubles; the caller frees it. */
static double *values_of(kn_tensor *t, size_t *n) {
    *n = (size_t)kn_tensor_numel(t);
    size_t size_bytes = *n * kn_dtype_bytes(kn_tensor_dtype(t));
    void *raw = malloc(size_bytes + 1);
    double *out = malloc(*n * sizeof *out + 1);
    assert_true(raw && out);
    assert_ok(kn_copy_out(raw, size_bytes, t));
    for (size_t i = 0; i < *n; i++) {
        out[i] = kn_tensor_dtype(t) == KN_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
    }
    free(raw);
    return out;
}

static void assert_near(const char *what, kn_tensor *got, kn_tensor *want) {
    size_t n = 0, n_want = 0;
    double *a = values_of(got, &n), *b = values_of(want, &n_want), error = 0, scale = 0;
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        scale += b[i] * b[i];
    }
    free(a);
    free(b);
    double most = nmse_most(kn_tensor_dtype(want));
    if (!(error <= most * scale)) {
        fail_msg("%s: %zu elements, squared error %g of %g", what, n, error, scale);
    }
}

/* Zeros on both sides are equal, and show nothing. */
static void assert_any(kn_tensor *t) {
    size_t n = 0;
    double *a = values_of(t, &n);
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= a[i] != 0;
    free(a);
    assert_true(any);
}

typedef struct training {
    kn_params *params;
    kn_model *model;
} training;

/* One backward pass of the model over a batch that is the same bits on every device. */
static kn_status differentiate(training *t, const char *model, kn_device *device, kn_dtype dtype) {
    int64_t labels[24];
    kn_rng *rng = NULL;
    for (int i = 0; i < 24; i++) labels[i] = i * 3 % 10;
    KN_TRY(kn_rng_create(&rng, 5));
    KN_TAPE(.device = device, .dtype = dtype);
    kn_status status =
        kn_params_create(&t->params, &(kn_params_options){.seed = 2, .dtype = dtype});
    if (status == KN_OK) status = kn_model_create(&t->model, model, t->params);
    if (status == KN_OK) {
        kn_tensor *x = kn_uniform(KN_SHAPE(24, 1, 28, 28), 0, 1, rng);
        kn_tensor *y = kn_tensor_from(labels, KN_I64, KN_SHAPE(24));
        status = kn_backward(kn_cross_entropy(kn_model_logits(t->model, x), y));
    }
    kn_rng_destroy(rng);
    return status;
}

static void assert_same_gradients(const char *model, kn_dtype dtype) {
    training host = {0}, card = {0};
    assert_ok(differentiate(&host, model, kn_device_host(), dtype));
    assert_ok(differentiate(&card, model, gpu, dtype));
    assert_int_equal(kn_params_count(host.params), kn_params_count(card.params));
    for (int i = 0; i < kn_params_count(host.params); i++) {
        const char *name = NULL;
        kn_tensor *w = kn_params_at(host.params, i, &name);
        kn_tensor *v = kn_params_at(card.params, i, NULL);
        assert_near(name, v, w); /* the initial values */
        assert_near(name, kn_grad(v), kn_grad(w));
        assert_any(kn_grad(v));
    }
    kn_model_destroy(host.model);
    kn_model_destroy(card.model);
    kn_params_destroy(host.params);
    kn_params_destroy(card.params);
}

static void gradients_of_models_are_the_cpus(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F64, KN_F32};
    for (int i = 0; i < 2; i++) {
        assert_same_gradients("mlp", dtypes[i]);
        assert_same_gradients("lenet", dtypes[i]);
    }
}

static void steps(net *n, kn_device *device, double loss[4]) {
    KN_FRAME(.device = device);
    assert_ok(net_create(n));
    for (int i = 0; i < 4; i++) assert_ok(net_step(n, i, &loss[i]));
}

/* The same masks on both; the norm is clipped. The last loss has three updates behind it. */
static void steps_with_dropout_and_adam_are_the_cpus(void **state) {
    (void)state;
    net host, card;
    double want[4], got[4];
    steps(&host, kn_device_host(), want);
    steps(&card, gpu, got);
    for (int i = 0; i < 4; i++) assert_close(got[i], want[i], 1e-3, 1e-4);
    assert_near("gradients", kn_params_grad(card.params), kn_params_grad(host.params));
    net_destroy(&host);
    net_destroy(&card);
}

/* d²/dx² of sum(tanh(x·w)²), and the first derivative on the way. */
static kn_tensor *second_derivative(kn_device *device) {
    kn_rng *rng = NULL;
    kn_tensor *dx = NULL, *ddx = NULL;
    if (kn_rng_create(&rng, 8) < 0) return NULL;
    KN_TAPE(.device = device, .dtype = KN_F64);
    kn_tensor *x = kn_watch(kn_uniform(KN_SHAPE(7, 11), -1, 1, rng));
    kn_tensor *w = kn_uniform(KN_SHAPE(11, 5), -1, 1, rng);
    kn_rng_destroy(rng);
    kn_tensor *y = kn_tanh(kn_matmul(x, w, NULL));
    if (kn_gradients(&dx, kn_mul(y, y), &x, 1, &(kn_gradients_options){.again = 1}) < 0)
        return NULL;
    if (kn_gradients(&ddx, kn_mul(dx, dx), &x, 1, NULL) < 0) return NULL;
    return kn_keep(ddx);
}

static void second_derivatives_are_the_cpus(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *want = second_derivative(kn_device_host()), *got = second_derivative(gpu);
    assert_ok(kn_check());
    assert_true(want && got);
    assert_near("second derivative", got, want);
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(gradients_of_models_are_the_cpus),
                     TEST(steps_with_dropout_and_adam_are_the_cpus),
                     TEST(second_derivatives_are_the_cpus));
}
