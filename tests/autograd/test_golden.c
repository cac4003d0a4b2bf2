/* Ten training losses of a small MLP against PyTorch's (golden/mlp.py), for each optimiser. */
#include "autograd_test.h"
#include "golden/mlp.h"

enum { B = 20, I = 30, H = 16, O = 5, STEPS = 10 };

static void numbers(float *out, int n, int m, int k) {
    for (int i = 0; i < n; i++) out[i] = (float)((i * m + k) % 37) / 37 - 0.5f;
}

typedef struct mlp {
    kn_params *set;
    kn_tensor *w1, *b1, *w2, *b2;
} mlp;

static mlp make(void) {
    float w1[H * I], b1[H], w2[O * H], b2[O];
    numbers(w1, H * I, 7, 3);
    numbers(b1, H, 5, 1);
    numbers(w2, O * H, 11, 2);
    numbers(b2, O, 3, 4);
    mlp m = {.set = params_f32()};
    m.w1 = param_of(m.set, KN_SHAPE(H, I), "w1", w1);
    m.b1 = param_of(m.set, KN_SHAPE(H), "b1", b1);
    m.w2 = param_of(m.set, KN_SHAPE(O, H), "w2", w2);
    m.b2 = param_of(m.set, KN_SHAPE(O), "b2", b2);
    return m;
}

static void train(const mlp *m, kn_optim *optim, const double *golden) {
    for (int step = 0; step < STEPS; step++) {
        float pixels[B * I];
        int64_t labels[B];
        numbers(pixels, B * I, 13, step);
        for (int i = 0; i < B; i++) labels[i] = (i * i + step) % O;
        KN_TAPE();
        kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(B, I));
        kn_tensor *y = kn_tensor_from(labels, KN_I64, KN_SHAPE(B));
        kn_tensor *h = kn_relu(kn_linear(x, m->w1, m->b1));
        kn_tensor *loss = kn_cross_entropy(kn_linear(h, m->w2, m->b2), y);
        assert_ok(kn_backward(loss));
        assert_ok(kn_optim_step(optim));
        assert_close(item_of(loss), golden[step], 1e-5, 0);
    }
    kn_optim_destroy(optim);
    kn_params_destroy(m->set);
}

static void sgd_trains_as_pytorch_does(void **state) {
    (void)state;
    mlp m = make();
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, m.set, 0.1, NULL));
    train(&m, optim, golden_sgd);
}

static void momentum_trains_as_pytorch_does(void **state) {
    (void)state;
    mlp m = make();
    kn_optim *optim = NULL;
    assert_ok(kn_momentum_create(&optim, m.set, 0.05, 0.9, NULL));
    train(&m, optim, golden_momentum);
}

static void clipped_adam_trains_as_pytorch_does(void **state) {
    (void)state;
    mlp m = make();
    kn_optim *optim = NULL;
    assert_ok(kn_adam_create(&optim, m.set, 0.01, &(kn_adam_options){.clip_norm = 0.5}));
    train(&m, optim, golden_adam);
}

static void decayed_adam_trains_as_pytorch_does(void **state) {
    (void)state;
    mlp m = make();
    kn_optim *optim = NULL;
    assert_ok(kn_adam_create(&optim, m.set, 0.01, &(kn_adam_options){.weight_decay = 0.1}));
    train(&m, optim, golden_adamw);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(sgd_trains_as_pytorch_does),
                     OPS_TEST(momentum_trains_as_pytorch_does),
                     OPS_TEST(clipped_adam_trains_as_pytorch_does),
                     OPS_TEST(decayed_adam_trains_as_pytorch_does));
}
