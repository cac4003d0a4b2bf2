/* Gradients on the card beside gradients on the CPU: whole models, a network with dropout and Adam,
 * and second derivatives. */
#include "gpu.h"

#include "../autograd/net.h"

#include <knet/layer.h>
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

/* --- recurrent networks: what a device keeps for the gradient is its own --- */

enum { STEPS = 6, SEQUENCES = 5, FEATURES = 7, HIDDEN = 9 };

/* Gradients of x, w and h0, on the frame's device; numbers are the same bits on every device. */
static void recurrent_gradients(kn_tensor *out[4], kn_rnn_options o, kn_device *device,
                                kn_dtype dtype) {
    kn_rng *rng = NULL;
    KN_TAPE(.device = device, .dtype = dtype);
    assert_ok(kn_rng_create(&rng, 3));
    int64_t n_states = (o.layers ? o.layers : 1) * (o.bidirectional ? 2 : 1);
    int64_t params = kn_rnn_params(FEATURES, &o);
    kn_tensor *x[] = {kn_watch(kn_uniform(KN_SHAPE(STEPS, SEQUENCES, FEATURES), -1, 1, rng)),
                      kn_watch(kn_uniform(KN_SHAPE(params), -0.5, 0.5, rng)),
                      kn_watch(kn_uniform(KN_SHAPE(n_states, SEQUENCES, HIDDEN), -1, 1, rng))};
    kn_tensor *h = NULL, *dx[3] = {NULL};
    o.rng = rng, o.h0 = x[2], o.h_n = &h;
    kn_tensor *y = kn_rnn(x[0], x[1], &o);
    assert_non_null(y);
    kn_tensor *copy = kn_affine(kn_detach(y), 1, 0); /* kn_gradients consumes y */
    kn_tensor *loss = kn_add(kn_sum(kn_mul(y, y), KN_ALL, false), kn_sum(h, KN_ALL, false));
    assert_ok(kn_gradients(dx, loss, x, 3, NULL));
    out[0] = kn_keep(copy);
    for (int i = 0; i < 3; i++) out[1 + i] = kn_keep(dx[i]);
    kn_rng_destroy(rng);
}

static void recurrent_networks_have_the_gradients_of_the_host(void **state) {
    (void)state;
    static const int64_t lengths[SEQUENCES] = {3, 6, 1, 4, 6};
    for (int i = 0; i < 4 * 2 * 2 * 2; i++) {
        kn_rnn_options o = {.hidden = HIDDEN,
                            .layers = 2,
                            .mode = (kn_rnn_mode)(i & 3),
                            .bidirectional = i >> 2 & 1,
                            .dropout = i >> 3 & 1 ? 0.4 : 0,
                            .lengths = i >> 4 ? lengths : NULL};
        for (kn_dtype dtype = KN_F32; dtype <= KN_F64; dtype++) {
            KN_FRAME();
            kn_tensor *want[4], *got[4];
            recurrent_gradients(want, o, kn_device_host(), dtype);
            recurrent_gradients(got, o, gpu, dtype);
            for (int k = 0; k < 4; k++) assert_near("recurrent network", got[k], want[k]);
        }
    }
}

/* --- layers --- */

/* Gradients of x, w and b of a transposed convolution. */
static void deconv_gradients(kn_tensor *out[3], kn_device *device, kn_dtype dtype) {
    kn_rng *rng = NULL;
    KN_TAPE(.device = device, .dtype = dtype);
    assert_ok(kn_rng_create(&rng, 4));
    kn_tensor *x[] = {kn_watch(kn_uniform(KN_SHAPE(3, 8, 5, 7), -1, 1, rng)),
                      kn_watch(kn_uniform(KN_SHAPE(8, 6, 4, 3), -1, 1, rng)),
                      kn_watch(kn_uniform(KN_SHAPE(6), -1, 1, rng))};
    kn_rng_destroy(rng);
    kn_conv_options o = {.padding = {1, 1}, .stride = {2, 2}};
    kn_tensor *y = kn_deconv(x[0], x[1], x[2], &o), *dx[3] = {NULL};
    assert_ok(kn_gradients(dx, kn_sum(kn_mul(y, y), KN_ALL, false), x, 3, NULL));
    for (int i = 0; i < 3; i++) out[i] = kn_keep(dx[i]);
}

static void transposed_convolutions_are_the_cpus(void **state) {
    (void)state;
    for (kn_dtype dtype = KN_F32; dtype <= KN_F64; dtype++) {
        KN_FRAME();
        kn_tensor *want[3], *got[3];
        deconv_gradients(want, kn_device_host(), dtype);
        deconv_gradients(got, gpu, dtype);
        for (int i = 0; i < 3; i++) assert_near("transposed convolution", got[i], want[i]);
    }
}

/* What the layers give: as they are, if frozen is false. */
static kn_tensor *layers_result(kn_device *device, bool frozen) {
    kn_rng *rng = NULL;
    kn_params *params = NULL;
    KN_FRAME(.device = device, .record = KN_OFF);
    assert_ok(kn_rng_create(&rng, 6));
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 3}));
    kn_layer *root = NULL;
    assert_ok(kn_layer_create(&root, params, NULL));
    kn_layer_conv(root, "conv", 3, 16, KN_SHAPE(3, 3), NULL);
    kn_layer_batchnorm(root, "norm", 16, NULL);
    kn_layer_act(root, "relu", kn_relu);
    kn_tensor *x = kn_uniform(KN_SHAPE(4, 3, 12, 12), -1, 1, rng);
    kn_layer_mode_set(root, KN_LAYER_TRAIN); /* statistics that folding can't miss */
    for (int i = 0; i < 3; i++) assert_non_null(kn_layer_forward(root, x));
    kn_layer_mode_set(root, KN_LAYER_EVAL);
    if (frozen) assert_ok(kn_layer_freeze(root));
    kn_tensor *y = kn_keep(kn_layer_forward(root, x));
    assert_ok(kn_check());
    kn_rng_destroy(rng);
    kn_layer_destroy(root);
    kn_params_destroy(params);
    return y;
}

static void frozen_layers_are_the_cpus(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *want = layers_result(kn_device_host(), false);
    assert_any(want);
    assert_near("frozen layers", layers_result(gpu, true), want);
}

/* The first two run as they are; x differs each time. */
static void replayed_predictions_are_plain_ones(void **state) {
    (void)state;
    enum { N = 5, CLASSES = 10 };
    kn_params *params = NULL;
    kn_model *model = NULL;
    float y[2][N][CLASSES];
    KN_FRAME(.device = gpu, .record = KN_OFF);
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 3}));
    assert_ok(kn_model_create(&model, "lenet", params));
    for (int captured = 0; captured < 2; captured++) {
        assert_ok(captured ? kn_freeze(model) : kn_layer_freeze(kn_model_net(model)));
        for (int i = 0; i < N; i++) {
            KN_FRAME();
            kn_tensor *x = kn_reshape(kn_linspace(-1, i, 784), KN_SHAPE(1, 1, 28, 28));
            assert_ok(kn_copy_out(y[captured][i], sizeof y[0][0], kn_model_logits(model, x)));
        }
    }
    assert_memory_equal(y[1], y[0], sizeof y[0]);
    kn_model_destroy(model);
    kn_params_destroy(params);
}

/* The gradient of the first layer's weight, which the caller releases; *kept: bytes from forward to
 * backward. */
static kn_tensor *gradient_of_cifar(uint64_t *kept, int fuse, bool recompute) {
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_rng *rng = NULL;
    kn_pool_stats stats;
    KN_FRAME(.device = gpu, .fuse = fuse);
    assert_ok(kn_rng_create(&rng, 5));
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 3}));
    assert_ok(kn_model_create(&model, "cifar_bn", params));
    kn_model_recompute_set(model, recompute);
    kn_tensor *x = kn_uniform(KN_SHAPE(64, 3, 32, 32), 0, 1, rng);
    const kn_batch batch = {.x = x, .y = kn_cast(kn_zeros(KN_SHAPE(64)), KN_I64), .n = 64};
    kn_tensor *dw;
    {
        KN_TAPE();
        kn_tensor *loss = kn_model_loss(model, &batch);
        assert_ok(kn_check());
        kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(gpu));
        *kept = stats.live_bytes;
        assert_ok(kn_backward(loss));
        dw = kn_tensor_detach_frame(kn_affine(kn_grad(kn_params_at(params, 0, NULL)), 1, 0));
    }
    kn_model_destroy(model);
    kn_params_destroy(params);
    kn_rng_destroy(rng);
    return dw;
}

/* Fused the first time by the kernels of single ops, and by one that is compiled after. */
static void recomputed_values_are_those_that_were_forgotten(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint64_t more, less;
        int fuse = i ? 1 : KN_OFF;
        kn_tensor *want = gradient_of_cifar(&more, fuse, false);
        kn_tensor *got = gradient_of_cifar(&less, fuse, true);
        KN_FRAME(.device = gpu);
        assert_any(want);
        assert_near("the first layer's weight", got, want);
        assert_true(less + (5 << 20) < more); /* relu of two norms: 4 and 2 MiB */
        kn_tensor_release(want);
        kn_tensor_release(got);
        kn_fuse_wait();
    }
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(gradients_of_models_are_the_cpus),
                     TEST(steps_with_dropout_and_adam_are_the_cpus),
                     TEST(second_derivatives_are_the_cpus),
                     TEST(recurrent_networks_have_the_gradients_of_the_host),
                     TEST(transposed_convolutions_are_the_cpus), TEST(frozen_layers_are_the_cpus),
                     TEST(replayed_predictions_are_plain_ones),
                     TEST(recomputed_values_are_those_that_were_forgotten));
}
