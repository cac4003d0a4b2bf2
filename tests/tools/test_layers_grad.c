/* Gradients of every layer, by its input and its parameters, against differences in f64. */
#include <knet/layer.h>
#include <knet/tape.h>

#include "test.h"

enum { WANTED_MAX = 16 };

typedef struct fixture {
    kn_params *params;
    kn_layer *net;
    kn_tensor *x;  /* slot: the input */
    int order;     /* of the derivative that is checked */
    bool is_index; /* the input has no gradient */
} fixture;

static void fixture_init(fixture *f) {
    *f = (fixture){0};
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 5, .dtype = KN_F64}));
    assert_ok(kn_layer_create(&f->net, f->params, &(kn_layer_options){.seed = 7}));
}

static void fixture_release(fixture *f) {
    kn_unhold(&f->x);
    kn_layer_destroy(f->net);
    kn_params_destroy(f->params);
}

/* sum(y·u) with u fixed and no element near zero. */
static kn_tensor *weighed(kn_tensor *y, int seed) {
    kn_shape shape = kn_tensor_shape(y);
    int64_t n = kn_tensor_numel(y);
    double *u = malloc((size_t)n * sizeof *u);
    assert_non_null(u);
    for (int64_t i = 0; i < n; i++)
        u[i] = (double)((i * 29 + seed * 13) % 17) / 16 * (i % 2 ? 1 : -1) + (i % 2 ? 0.5 : -0.5);
    kn_tensor *w = kn_tensor_from(u, KN_F64, shape);
    free(u);
    return kn_sum(kn_mul(y, w), KN_ALL, false);
}

/* The tensors to differentiate by: the parameters and, unless it holds indices, the input. */
static int wanted(kn_tensor *w[WANTED_MAX], const fixture *f, kn_tensor *x) {
    int n = 0;
    for (; n < kn_params_count(f->params); n++) w[n] = kn_params_at(f->params, n, NULL);
    assert_true(n < WANTED_MAX);
    if (!f->is_index) w[n++] = x;
    return n;
}

/* The number that is differentiated: of order 1 F = Σ u·y, of order 2 G = Σ v·∂F. */
static kn_tensor *value(const fixture *f, kn_tensor *x) {
    kn_tensor *w[WANTED_MAX], *dw[WANTED_MAX], *F = weighed(kn_layer_forward(f->net, x), 1);
    if (f->order == 1) return F;
    int n = wanted(w, f, x);
    assert_ok(kn_gradients(dw, F, w, n, &(kn_gradients_options){.again = 1}));
    kn_tensor *G = NULL;
    for (int i = 0; i < n; i++) {
        kn_tensor *term = weighed(dw[i], i + 2);
        G = G ? kn_add(G, term) : term;
    }
    return G;
}

static double number(const fixture *f) {
    double out = 0;
    KN_TAPE(.dtype = KN_F64, .threads = 1);
    kn_tensor *x = f->is_index ? f->x : kn_watch(f->x);
    assert_ok(kn_item(&out, value(f, x)));
    return out;
}

static double difference(const fixture *f, double *element) {
    static const double steps[4] = {-2, -1, 1, 2};
    double old = *element, h = 1e-3, y[4];
    for (int i = 0; i < 4; i++) {
        *element = old + steps[i] * h;
        y[i] = number(f);
    }
    *element = old;
    return (8 * (y[2] - y[1]) - (y[3] - y[0])) / (12 * h);
}

static void assert_gradients(fixture *f, int order) {
    kn_tensor *w[WANTED_MAX], *dw[WANTED_MAX];
    double *got[WANTED_MAX];
    f->order = order;
    int n = wanted(w, f, f->x);
    {
        KN_TAPE(.dtype = KN_F64, .threads = 1);
        kn_tensor *by[WANTED_MAX], *x = f->is_index ? f->x : kn_watch(f->x);
        wanted(by, f, x);
        assert_ok(kn_gradients(dw, value(f, x), by, n, NULL));
        for (int i = 0; i < n; i++) {
            size_t bytes = (size_t)kn_tensor_numel(dw[i]) * sizeof(double);
            got[i] = malloc(bytes);
            assert_non_null(got[i]);
            assert_ok(kn_copy_out(got[i], bytes, dw[i]));
        }
    }
    for (int i = 0; i < n; i++) {
        double *data = kn_data_mut(w[i]);
        for (int64_t j = 0; j < kn_tensor_numel(w[i]); j++)
            test_assert_close(got[i][j], difference(f, &data[j]), 1e-6, 1e-7, kn_layer_path(f->net),
                              __FILE__, __LINE__);
        free(got[i]);
    }
}

/* An input of values that lie apart, so that no maximum is near a tie, and none near zero. */
static void input_make(fixture *f, kn_shape shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    double *data = malloc((size_t)n * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * 61 % n; /* a permutation, if 61 doesn't divide n */
        data[i] = ((double)at - (double)n / 2 + 0.25) * 2.0 / (double)n;
    }
    KN_FRAME(.dtype = KN_F64);
    assert_ok(kn_hold(&f->x, kn_tensor_from(data, KN_F64, shape)));
    free(data);
}

/* Both orders, or the first alone: the rule of the op can't be differentiated again. */
static void layer_check(void (*init)(kn_layer *net), kn_shape shape, int orders) {
    fixture f;
    fixture_init(&f);
    init(f.net);
    assert_ok(kn_check());
    input_make(&f, shape);
    for (int order = 1; order <= orders; order++) assert_gradients(&f, order);
    fixture_release(&f);
}

/* --- the layers --- */

static void linear(kn_layer *net) {
    kn_layer_linear(net, "fc", 3, 2, &(kn_layer_linear_options){.act = kn_tanh});
}
static void deconv(kn_layer *net) {
    kn_layer_deconv(net, "deconv", 2, 3, KN_SHAPE(2, 2),
                    &(kn_layer_conv_options){.conv = {.stride = {2, 2}, .padding_extra = {-1}},
                                             .act = kn_sigm});
}
static void conv(kn_layer *net) {
    kn_layer_conv(net, "conv", 2, 2, KN_SHAPE(2, 2), &(kn_layer_conv_options){.act = kn_sigm});
}
static void batchnorm(kn_layer *net) { kn_layer_batchnorm(net, "norm", 3, NULL); }
static void layernorm(kn_layer *net) { kn_layer_layernorm(net, "norm", KN_SHAPE(5), NULL); }
static void rmsnorm(kn_layer *net) { kn_layer_rmsnorm(net, "norm", KN_SHAPE(5), NULL); }
static void groupnorm(kn_layer *net) { kn_layer_groupnorm(net, "norm", 4, 2, NULL); }
static void act(kn_layer *net) { kn_layer_act(net, "act", kn_gelu); }
static void maxpool(kn_layer *net) { kn_layer_maxpool(net, "pool", KN_SHAPE(2, 2), NULL); }
static void avgpool(kn_layer *net) { kn_layer_avgpool(net, "pool", KN_SHAPE(2, 2), NULL); }
static void global_avgpool(kn_layer *net) { kn_layer_global_avgpool(net, "pool"); }
static void flatten(kn_layer *net) {
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc", 6, 2, &(kn_layer_linear_options){.act = kn_tanh});
}
static void residual(kn_layer *net) {
    kn_layer *block = kn_layer_residual(net, "block");
    kn_layer *shortcut = kn_layer_shortcut(block);
    kn_layer_linear(shortcut, "fc", 3, 2, NULL);
    kn_layer_linear(block, "fc", 3, 2, &(kn_layer_linear_options){.act = kn_tanh});
}
static void dense(kn_layer *net) {
    kn_layer *block = kn_layer_dense(net, "block");
    kn_layer_linear(block, "fc", 3, 2, &(kn_layer_linear_options){.act = kn_tanh});
}
static void attention(kn_layer *net) {
    kn_layer_attention(net, "attention", 4, 2, &(kn_layer_attention_options){.causal = 1});
}
static void turned(kn_layer *net) {
    kn_layer_attention(
        net, "turned", 4, 2,
        &(kn_layer_attention_options){.causal = 1, .rotary_base = 10, .kv_heads = 1});
}
static void gru(kn_layer *net) {
    kn_layer_rnn(net, "rnn", 3, &(kn_rnn_options){.hidden = 2, .mode = KN_RNN_GRU});
}
static void lstm(kn_layer *net) {
    kn_layer_rnn(net, "rnn", 3, &(kn_rnn_options){.hidden = 2, .bidirectional = 1});
}

static void layers_differentiate_twice(void **state) {
    (void)state;
    layer_check(linear, KN_SHAPE(4, 3), 2);
    layer_check(conv, KN_SHAPE(1, 2, 3, 4), 2);
    layer_check(deconv, KN_SHAPE(1, 2, 2, 3), 2);
    layer_check(batchnorm, KN_SHAPE(5, 3), 2);
    layer_check(layernorm, KN_SHAPE(3, 5), 2);
    layer_check(rmsnorm, KN_SHAPE(3, 5), 2);
    layer_check(groupnorm, KN_SHAPE(2, 4, 3), 2);
    layer_check(act, KN_SHAPE(7), 2);
    layer_check(maxpool, KN_SHAPE(1, 2, 4, 4), 2);
    layer_check(avgpool, KN_SHAPE(1, 2, 4, 4), 2);
    layer_check(global_avgpool, KN_SHAPE(2, 3, 2, 2), 2);
    layer_check(flatten, KN_SHAPE(2, 3, 2), 2);
    layer_check(residual, KN_SHAPE(4, 3), 2);
    layer_check(dense, KN_SHAPE(4, 3), 2);
}

static void fused_layers_differentiate_once(void **state) {
    (void)state;
    layer_check(attention, KN_SHAPE(2, 3, 4), 1);
    layer_check(turned, KN_SHAPE(2, 3, 4), 1);
    layer_check(gru, KN_SHAPE(3, 2, 3), 1);
    layer_check(lstm, KN_SHAPE(3, 2, 3), 1);
}

static void an_embedding_differentiates_twice(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f);
    kn_layer_embedding(f.net, "words", 4, 3, &(kn_layer_linear_options){.act = kn_tanh});
    assert_ok(kn_check());
    f.is_index = true;
    KN_FRAME(.dtype = KN_F64);
    const int64_t index[] = {2, 0, 2, 3};
    assert_ok(kn_hold(&f.x, kn_tensor_from(index, KN_I64, KN_SHAPE(2, 2))));
    assert_gradients(&f, 1);
    assert_gradients(&f, 2);
    fixture_release(&f);
}

/* Dropout draws from the root's generator: it draws the same numbers when that is set back. */
static void dropout_passes_its_own_mask_back(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f);
    kn_layer_dropout(f.net, "drop", 0.5);
    input_make(&f, KN_SHAPE(20));
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(f.x), *dx = NULL, *y = kn_layer_forward(f.net, x);
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.keep = 1}));
    const double *in = kn_data(f.x), *out = kn_data(y), *d = kn_data(dx);
    int zeros = 0;
    for (int i = 0; i < 20; i++) {
        assert_close(d[i] * in[i], out[i], 1e-12, 0);
        zeros += d[i] == 0;
    }
    assert_true(zeros > 0 && zeros < 20);
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(layers_differentiate_twice), TEST(fused_layers_differentiate_once),
                     TEST(an_embedding_differentiates_twice),
                     TEST(dropout_passes_its_own_mask_back));
}
