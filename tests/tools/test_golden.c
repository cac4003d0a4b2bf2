/* Five models beside PyTorch 1.13: scores, gradients and the losses of ten steps
 * (golden/models.py). The argument is the folder of the NPZ files. */
#include <knet/file.h>
#include <knet/layer.h>
#include <knet/optim.h>
#include <knet/tape.h>

#include "test.h"

static const char *folder;

typedef struct golden {
    const char *name;
    void (*init)(kn_layer *net);
    kn_status (*optimizer)(kn_optim **out, kn_params *params);
    double f32_tolerance; /* how far ten steps in f32 may be from those in f64 */
} golden;

/* --- the models --- */

static void softmax_init(kn_layer *net) { kn_layer_linear(net, "fc", 17, 5, NULL); }
static kn_status softmax_optimizer(kn_optim **out, kn_params *params) {
    return kn_sgd_create(out, params, 0.1, NULL);
}

static void mlp_init(kn_layer *net) {
    kn_layer_linear(net, "fc1", 13, 8, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", 8, 5, NULL);
}
static kn_status mlp_optimizer(kn_optim **out, kn_params *params) {
    return kn_momentum_create(out, params, 0.05, 0.9, NULL);
}

static void lenet_init(kn_layer *net) {
    kn_layer_conv(net, "conv1", 1, 3, KN_SHAPE(5, 5), &(kn_layer_conv_options){.act = kn_relu});
    kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL);
    kn_layer_conv(net, "conv2", 3, 4, KN_SHAPE(5, 5), &(kn_layer_conv_options){.act = kn_relu});
    kn_layer_maxpool(net, "pool2", KN_SHAPE(2, 2), NULL);
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", 64, 12, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", 12, 10, NULL);
}
static kn_status lenet_optimizer(kn_optim **out, kn_params *params) {
    return kn_adam_create(out, params, 0.01, NULL);
}

/* x [B,T] → [B,3] */
static kn_tensor *gru_forward(void *ctx, kn_layer *net, kn_tensor *x) {
    (void)ctx;
    kn_tensor *words =
        kn_layer_forward(kn_layer_find(net, "words"), kn_transpose(x, KN_SHAPE(1, 0)));
    kn_tensor *h = kn_layer_forward(kn_layer_find(net, "gru"), words);  // [T,B,6]
    kn_tensor *last = kn_select(h, -1, 0);
    return kn_layer_forward(kn_layer_find(net, "fc"), last);
}
static void gru_init(kn_layer *net) {
    kn_layer_embedding(net, "words", 11, 5, NULL);
    kn_layer_rnn(net, "gru", 5, &(kn_rnn_options){.hidden = 6, .mode = KN_RNN_GRU});
    kn_layer_linear(net, "fc", 6, 3, NULL);
}
static kn_status gru_optimizer(kn_optim **out, kn_params *params) {
    return kn_nesterov_create(out, params, 0.1, 0.8, NULL);
}

static void transformer_init(kn_layer *net) {
    kn_layer_embedding(net, "words", 7, 8, NULL);
    kn_layer *a = kn_layer_residual(net, "attend");
    kn_layer_layernorm(a, "norm", KN_SHAPE(8), NULL);
    kn_layer_attention(a, "attention", 8, 2, &(kn_layer_attention_options){.causal = 1});
    kn_layer *m = kn_layer_residual(net, "mlp");
    kn_layer_layernorm(m, "norm", KN_SHAPE(8), NULL);
    kn_layer_linear(m, "fc1", 8, 32, &(kn_layer_linear_options){.act = kn_gelu});
    kn_layer_linear(m, "fc2", 32, 8, NULL);
    kn_layer_linear(net, "scores", 8, 7, NULL);
}
static kn_status transformer_optimizer(kn_optim **out, kn_params *params) {
    return kn_adam_create(out, params, 0.01, &(kn_adam_options){.weight_decay = 0.1});
}

static const golden goldens[] = {
    {"softmax", softmax_init, softmax_optimizer, 1e-5},
    {"mlp", mlp_init, mlp_optimizer, 1e-5},
    {"lenet", lenet_init, lenet_optimizer, 1e-3},
    {"gru", gru_init, gru_optimizer, 1e-5},
    {"transformer", transformer_init, transformer_optimizer, 1e-4},
};

/* --- the comparison --- */

typedef struct trained {
    const golden *g;
    kn_file *file;
    kn_params *params;
    kn_layer *net;
    kn_optim *optim;
    kn_dtype dtype;
} trained;

static void trained_init(trained *t, const golden *g, kn_dtype dtype) {
    char path[512];
    const char *name = NULL;
    *t = (trained){.g = g, .dtype = dtype};
    snprintf(path, sizeof path, "%s/%s.npz", folder, g->name);
    assert_ok(kn_file_open(&t->file, path));
    assert_ok(kn_params_create(&t->params, &(kn_params_options){.dtype = dtype}));
    assert_ok(kn_layer_create(&t->net, t->params, NULL));
    g->init(t->net);
    assert_ok(kn_check());
    KN_FRAME(.dtype = dtype);
    for (int i = 0; i < kn_params_count(t->params); i++) {
        kn_tensor *w = kn_params_at(t->params, i, &name);
        snprintf(path, sizeof path, "w/%s", name);
        kn_tensor *from = kn_cast(kn_file_read(t->file, path), dtype);
        assert_ok(kn_check());
        assert_int_equal(kn_tensor_numel(w), kn_tensor_numel(from));
        assert_ok(
            kn_copy_into(w, kn_data(from), (size_t)kn_tensor_numel(w) * kn_dtype_bytes(dtype)));
    }
    assert_ok(g->optimizer(&t->optim, t->params));
}

static void trained_release(trained *t) {
    kn_optim_destroy(t->optim);
    kn_layer_destroy(t->net);
    kn_params_destroy(t->params);
    kn_file_close(t->file);
}

static void assert_golden(trained *t, kn_tensor *got, const char *prefix, const char *name,
                          double tolerance) {
    char key[128];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    KN_FRAME(.record = KN_OFF);
    kn_tensor *want = kn_file_read(t->file, key), *wide = kn_cast(got, KN_F64);
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(wide), kn_tensor_numel(want));
    const double *a = kn_data(wide), *b = kn_data(want);
    for (int64_t i = 0; i < kn_tensor_numel(want); i++)
        test_assert_close(a[i], b[i], tolerance, tolerance, key, __FILE__, __LINE__);
}

/* The scores [rows,classes] of the first model forward. */
static kn_tensor *scores_of(trained *t, kn_tensor *x) {
    kn_tensor *scores =
        strcmp(t->g->name, "gru") == 0 ? gru_forward(NULL, t->net, x) : kn_layer_forward(t->net, x);
    kn_shape s = kn_tensor_shape(scores);
    return s.n_dims == 2 ? scores : kn_reshape(scores, KN_SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
}

static void assert_first_step(trained *t, kn_tensor *scores, double tolerance) {
    const char *name = NULL;
    assert_golden(t, scores, "", "scores", tolerance);
    for (int i = 0; i < kn_params_count(t->params); i++) {
        kn_tensor *w = kn_params_at(t->params, i, &name);
        assert_golden(t, kn_grad(w), "g/", name, tolerance);
    }
}

static void model_is_pytorchs(const golden *g, kn_dtype dtype, int threads, double tolerance,
                              double loss_tolerance) {
    trained t;
    trained_init(&t, g, dtype);
    KN_FRAME(.dtype = dtype, .threads = threads);
    kn_tensor *x = kn_file_read(t.file, "x"), *y = kn_file_read(t.file, "y");
    const double *losses = kn_data(kn_file_read(t.file, "losses"));
    assert_ok(kn_check());
    if (kn_tensor_dtype(x) == KN_F64 && dtype != KN_F64) x = kn_cast(x, dtype);
    for (int i = 0; i < 10; i++) {
        double loss = 0;
        KN_TAPE();
        KN_SLOT(scores);
        assert_ok(kn_hold(&scores, scores_of(&t, x)));
        kn_tensor *l = kn_cross_entropy(scores, y);
        assert_ok(kn_backward(l));
        if (i == 0) assert_first_step(&t, scores, tolerance);
        assert_ok(kn_optim_step(t.optim));
        assert_ok(kn_item(&loss, l));
        test_assert_close(loss, losses[i], loss_tolerance, 0, g->name, __FILE__, __LINE__);
    }
    trained_release(&t);
}

static void scores_gradients_and_losses_are_pytorchs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        model_is_pytorchs(&goldens[i], KN_F64, 2, 1e-10, 1e-9);
}

static void floats_stay_near(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        model_is_pytorchs(&goldens[i], KN_F32, 2, 1e-5, goldens[i].f32_tolerance);
}

int main(int argc, char **argv) {
    if (argc > 1) folder = argv[1];
    return RUN_TESTS(TEST(scores_gradients_and_losses_are_pytorchs), TEST(floats_stay_near));
}
