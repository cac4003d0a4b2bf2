/* Mixed precision: gradients and training in frames with .autocast. */
#include <knet/scale.h>
#include <math.h>

#include "net.h"

/* Losses of `n` steps, in a frame with autocast. */
static void train(double loss[], int n_steps, int autocast, bool scaled) {
    net n;
    kn_loss_scale *scale = NULL;
    KN_FRAME(.autocast = autocast);
    assert_ok(net_create(&n));
    if (scaled) assert_ok(kn_loss_scale_create(&scale, n.params, NULL));
    for (int i = 0; i < n_steps; i++) {
        KN_TAPE();
        kn_tensor *l = net_loss(&n, 0);
        assert_int_equal(kn_tensor_dtype(l), KN_F32);
        KN_SLOT(kept);
        assert_ok(kn_hold(&kept, l));
        assert_ok(kn_backward(scaled ? kn_loss_scale_apply(scale, l) : l));
        assert_ok(scaled ? kn_loss_scale_step(scale, n.optim, NULL) : kn_optim_step(n.optim));
        assert_ok(kn_item(&loss[i], kept));
    }
    assert_int_equal(kn_tensor_dtype(n.w1), KN_F32);
    kn_loss_scale_destroy(scale);
    net_destroy(&n);
}

static void mixed_precision_learns_as_f32_does(void **state) {
    (void)state;
    enum { STEPS = 30 };
    double want[STEPS], got[STEPS];
    train(want, STEPS, KN_OFF, false);
    for (int h = 0; h < 2; h++) {
        train(got, STEPS, h ? KN_F16 : KN_BF16, h);
        assert_true(got[0] != want[0]); /* 16 bits, indeed */
        assert_close(got[0], want[0], h ? 2e-3 : 1e-2, 0);
        assert_close(got[STEPS - 1], want[STEPS - 1], 5e-3, 0);
        assert_true(got[STEPS - 1] < 0.8 * got[0]);
    }
}

/* w·x by autocast, and by casts that the program makes. */
static void parameters_get_gradients_in_f32(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 3), "w", 0.3f, -0.7f, 1.1f, 0.9f, 0.2f, -0.4f);
    float grads[2][6];
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        KN_TAPE(.autocast = by_hand ? KN_OFF : KN_BF16);
        kn_tensor *x = F32(KN_SHAPE(2, 3), 0.11f, 0.23f, 0.37f, -0.41f, 0.53f, -0.67f);
        kn_tensor *y =
            by_hand ? kn_cast(kn_linear(kn_cast(x, KN_BF16), kn_cast(w, KN_BF16), KN_NONE), KN_F32)
                    : kn_linear(x, w, KN_NONE);
        assert_ok(kn_backward(kn_sum(kn_square(y), KN_ALL, false)));
        assert_int_equal(kn_tensor_dtype(kn_grad(w)), KN_F32);
        memcpy(grads[by_hand], kn_data(kn_grad(w)), sizeof grads[0]);
        kn_optim *sgd = NULL; /* the next backward begins from zero */
        assert_ok(kn_sgd_create(&sgd, set, 1e-30, NULL));
        assert_ok(kn_optim_step(sgd));
        kn_optim_destroy(sgd);
    }
    for (int i = 0; i < 6; i++) assert_close(grads[0][i], grads[1][i], 1e-2, 1e-3);
    assert_true(fabsf(grads[0][0]) > 0.01f);
    kn_params_destroy(set);
}

/* d loss / d w = 2^-12 · 2^-14: below f16's least number, until the loss is scaled. */
static void the_loss_scale_saves_small_gradients(void **state) {
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(1, 1), "w", 1);
        kn_loss_scale *scale = NULL;
        kn_optim *sgd = NULL;
        assert_ok(kn_loss_scale_create(&scale, set, NULL));
        assert_ok(kn_sgd_create(&sgd, set, 0, NULL));
        {
            KN_TAPE(.autocast = KN_F16);
            kn_tensor *y = kn_linear(F32(KN_SHAPE(1, 1), 0x1p-12f), w, KN_NONE);
            kn_tensor *loss = kn_affine(kn_sum(y, KN_ALL, false), 0x1p-14, 0);
            assert_ok(kn_backward(scaled ? kn_loss_scale_apply(scale, loss) : loss));
            if (scaled) assert_ok(kn_loss_scale_step(scale, sgd, NULL));
        }
        assert_close(ops_at(kn_grad(w), 0), scaled ? 0x1p-26 : 0, 1e-6, 0);
        kn_optim_destroy(sgd);
        kn_loss_scale_destroy(scale);
        kn_params_destroy(set);
    }
}

static kn_tensor *part(void *ctx, kn_tensor *const x[]) {
    kn_tensor **w = ctx;
    return kn_tanh(kn_linear(kn_tanh(kn_linear(x[0], w[0], KN_NONE)), w[1], KN_NONE));
}

/* Recomputed values have the dtypes of the first time, though backward casts nothing. */
static void recomputed_parts_cast_as_before(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w[] = {PARAM(set, KN_SHAPE(3, 2), "a", 0.3f, -0.7f, 1.1f, 0.9f, 0.2f, -0.4f),
                      PARAM(set, KN_SHAPE(2, 3), "b", 0.8f, 0.1f, -0.6f, 0.5f, -0.3f, 0.7f)};
    float grads[2][12];
    for (int again = 0; again < 2; again++) {
        KN_TAPE(.autocast = KN_BF16);
        kn_tensor *x = F32(KN_SHAPE(4, 2), 0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f, 0.7f, 0.8f);
        kn_tensor *y = again ? kn_recompute(part, w, &x, 1, NULL) : part(w, &x);
        assert_ok(kn_backward(kn_sum(kn_square(y), KN_ALL, false)));
        memcpy(grads[again], kn_data(kn_params_grad(set)), sizeof grads[0]);
        kn_optim *sgd = NULL;
        assert_ok(kn_sgd_create(&sgd, set, 1e-30, NULL));
        assert_ok(kn_optim_step(sgd));
        kn_optim_destroy(sgd);
    }
    assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    kn_params_destroy(set);
}

/* A part in a frame without it has all bits of f32 in its gradients too. */
static void a_part_outside_of_mixed_precision_keeps_its_bits(void **state) {
    (void)state;
    float grads[2][2];
    for (int mixed = 0; mixed < 2; mixed++) {
        KN_TAPE(.autocast = mixed ? KN_BF16 : KN_OFF);
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 2), 0.1f, 0.7f)), *y = NULL, *dx = NULL;
        {
            KN_FRAME(.autocast = KN_OFF);
            y = kn_keep(kn_matmul(x, F32(KN_SHAPE(2, 1), 0.3f, 1.1f), NULL));
        }
        assert_ok(kn_gradients(&dx, kn_sum(kn_square(y), KN_ALL, false), &x, 1, NULL));
        assert_ok(kn_copy_out(grads[mixed], sizeof grads[mixed], dx));
    }
    assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
}

static void gradients_by_values_have_their_dtype(void **state) {
    (void)state;
    KN_TAPE(.autocast = KN_BF16);
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 2), 0.5f, 0.25f)), *dx = NULL;
    kn_tensor *y = kn_sum(kn_matmul(x, F32(KN_SHAPE(2, 1), 3, 5), NULL), KN_ALL, false);
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
    assert_int_equal(kn_tensor_dtype(dx), KN_F32);
    assert_close(ops_at(dx, 0), 3, 0, 0);
    assert_close(ops_at(dx, 1), 5, 0, 0);
}

/* --- recorded gradients --- */

/* gelu and a product in f32, then a product and a convolution in 16 bits. */
static kn_tensor *mixed_net(kn_tensor *x) {
    kn_tensor *h = NULL;
    {
        KN_FRAME(.autocast = KN_OFF);
        h = kn_keep(kn_matmul(kn_gelu(x), kn_affine(kn_eye(3, 3), 1.3, 0.1), NULL));
    }
    kn_tensor *y = kn_matmul(h, kn_affine(kn_eye(3, 3), 0.7, 0.3), NULL);
    kn_tensor *c = kn_conv(kn_reshape(x, KN_SHAPE(1, 1, 3, 3)),
                           kn_affine(kn_ones(KN_SHAPE(1, 1, 2, 2)), 0.3, 0), KN_NONE, NULL);
    kn_tensor *i = kn_inverse(kn_add(h, kn_affine(kn_eye(3, 3), 4, 0)));
    return kn_add(kn_add(kn_sum(kn_square(y), KN_ALL, false), kn_sum(kn_square(c), KN_ALL, false)),
                  kn_affine(kn_sum(i, KN_ALL, false), 1000, 0));
}

static kn_tensor *mixed_x(void) {
    return kn_watch(F32(KN_SHAPE(3, 3), 0.3f, 0.1f, -0.7f, 0.1f, 0.4f, 1.1f, -0.2f, 0.1f, 0.5f));
}

/* Recorded gradients have the dtypes of forward, as others have. */
static void recorded_gradients_have_the_same_bits(void **state) {
    (void)state;
    static const int lows[] = {KN_OFF, KN_BF16, KN_F16};
    float grads[2][9];
    for (int l = 0; l < 3; l++) {
        for (int again = 0; again < 2; again++) {
            KN_TAPE(.autocast = lows[l]);
            kn_tensor *x = mixed_x(), *dx = NULL;
            assert_ok(
                kn_gradients(&dx, mixed_net(x), &x, 1, &(kn_gradients_options){.again = again}));
            assert_int_equal(kn_tensor_dtype(dx), KN_F32);
            assert_int_equal(kn_frame_autocast(), l ? lows[l] : 0);
            assert_ok(kn_copy_out(grads[again], sizeof grads[again], dx));
        }
        assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    }
}

/* Both the change of y along a direction, which is <dx, t>, and the derivative of that. */
static void second_derivatives_work_in_mixed_precision(void **state) {
    (void)state;
    static const int lows[] = {KN_OFF, KN_BF16, KN_F16};
    float hessian[3][9], along[3];
    for (int l = 0; l < 3; l++) {
        KN_TAPE(.autocast = lows[l]);
        kn_tensor *x = mixed_x(), *dx = NULL, *ddx = NULL, *dy = NULL;
        kn_tensor *t = kn_linspace(-1, 1, 9), *y = mixed_net(x);
        t = kn_reshape(t, KN_SHAPE(3, 3));
        assert_ok(kn_jvp(&dy, y, &x, &t, 1));
        assert_int_equal(kn_tensor_dtype(dy), kn_tensor_dtype(y));
        along[l] = (float)item_of(dy);
        assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
        assert_close(item_of(sum_all(kn_mul(dx, t))), along[l], l ? 0.01 : 1e-5, 1e-4);
        assert_ok(kn_gradients(&ddx, sum_all(kn_mul(dx, t)), &x, 1, NULL));
        assert_int_equal(kn_tensor_dtype(ddx), KN_F32);
        assert_ok(kn_copy_out(hessian[l], sizeof hessian[l], ddx));
        assert_close(along[l], along[0], 0.02, 0.1);
        for (int i = 0; i < 9; i++) assert_close(hessian[l][i], hessian[0][i], 0.05, 0.1);
    }
    assert_true(along[1] != along[0]); /* 16 bits, indeed */
}

/* --- rules --- */

/* x·w * z: forward works in any frame with .autocast, whatever the dtypes of x, w and z. */
static kn_status gate_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    for (int i = 0; i < 3; i++) kn_call_save(call, i, x[i]);
    *y = kn_mul(kn_matmul(x[0], x[1], NULL), x[2]);
    return kn_check();
}
static kn_status gate_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    kn_tensor *x = kn_call_saved(call, 0), *w = kn_call_saved(call, 1), *z = kn_call_saved(call, 2);
    kn_tensor *g = kn_mul(dy, z);
    dx[0] = kn_matmul(g, w, &(kn_matmul_options){.trans_b = 1});
    dx[1] = kn_matmul(x, g, &(kn_matmul_options){.trans_a = 1});
    dx[2] = kn_mul(dy, kn_matmul(x, w, NULL));
    return kn_check();
}
static const kn_rule gate = {.name = "gate", .forward = gate_forward, .backward = gate_backward};

static kn_tensor *gated(kn_tensor *x, kn_tensor *w, bool by_rule) {
    kn_tensor *h = kn_linear(x, w, KN_NONE), *z = kn_softmax(h, 1), *of[] = {h, w, z};
    kn_tensor *y = by_rule ? kn_apply(&gate, of, 3, NULL, NULL) : kn_mul(kn_matmul(h, w, NULL), z);
    assert_int_equal(kn_tensor_dtype(y), KN_F32); /* h is of 16 bits, z of f32 */
    return kn_sum(kn_square(y), KN_ALL, false);
}

/* Of parameters by backward; of values by both orders of kn_gradients. */
static void rules_cast_in_backward_as_in_forward(void **state) {
    (void)state;
    static const int lows[] = {KN_OFF, KN_BF16, KN_F16};
    double of[2][3];
    for (int l = 0; l < 3; l++) {
        for (int by_rule = 0; by_rule < 2; by_rule++) {
            kn_params *set = params_f32();
            kn_tensor *w = PARAM(set, KN_SHAPE(2, 2), "w", 0.3f, -0.7f, 1.1f, 0.9f);
            KN_TAPE(.autocast = lows[l]);
            kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 2), 0.6f, -0.4f)), *dx = NULL, *ddx = NULL;
            kn_tensor *y = gated(x, w, by_rule);
            assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
            assert_int_equal(kn_tensor_dtype(dx), KN_F32);
            kn_gradients_options keep = {.keep = 1};
            assert_ok(kn_gradients(&ddx, kn_sum(dx, KN_ALL, false), &x, 1, &keep));
            of[by_rule][0] = ops_at(dx, 0);
            of[by_rule][1] = ops_at(ddx, 1);
            assert_ok(kn_backward(y));
            of[by_rule][2] = ops_at(kn_grad(w), 2);
            kn_params_destroy(set);
        }
        for (int i = 0; i < 3; i++) assert_close(of[1][i], of[0][i], l ? 0.03 : 1e-5, 1e-3);
        assert_true(of[0][0] != 0 && of[0][1] != 0 && of[0][2] != 0);
    }
}

static void read_autocast(void *ctx, kn_tensor *gradient) {
    (void)gradient;
    *(int *)ctx = (int)kn_frame_autocast();
}
static void hooks_read_gradients_without_casts(void **state) {
    (void)state;
    int autocast = -1;
    KN_TAPE(.autocast = KN_BF16);
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_sum(kn_square(kn_on_grad(x, read_autocast, &autocast)), KN_ALL, false);
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
    assert_int_equal(autocast, 0);
    assert_values(dx, 4);
}

/* softmax and attention of 16 bits: gradients of 16 bits, near those of f32. */
static void functions_of_f32_have_gradients_of_16_bits(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_BF16, KN_F16};
    float x[64], grads[3][64], largest = 0;
    for (int i = 0; i < 64; i++) x[i] = (float)((i * 7) % 31 - 15) / 16;
    for (int h = 0; h < 3; h++) {
        KN_TAPE();
        kn_tensor *from = kn_tensor_from(x, KN_F32, KN_SHAPE(1, 2, 4, 8)), *dv = NULL;
        kn_tensor *v = kn_watch(kn_cast(from, dtypes[h]));
        kn_tensor *y = kn_softmax(kn_attention(v, v, v, NULL), -1);
        assert_ok(kn_gradients(&dv, kn_sum(kn_square(y), KN_ALL, false), &v, 1, NULL));
        assert_int_equal(kn_tensor_dtype(dv), dtypes[h]);
        assert_ok(kn_copy_out(grads[h], sizeof grads[h], kn_cast(dv, KN_F32)));
    }
    for (int i = 0; i < 64; i++) {
        largest = fmaxf(largest, fabsf(grads[0][i]));
        for (int h = 1; h < 3; h++) assert_close(grads[h][i], grads[0][i], 0.1, 1e-3);
    }
    assert_true(largest > 5e-3f);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(functions_of_f32_have_gradients_of_16_bits),
        OPS_TEST(mixed_precision_learns_as_f32_does), OPS_TEST(parameters_get_gradients_in_f32),
        OPS_TEST(the_loss_scale_saves_small_gradients), OPS_TEST(recomputed_parts_cast_as_before),
        OPS_TEST(a_part_outside_of_mixed_precision_keeps_its_bits),
        OPS_TEST(gradients_by_values_have_their_dtype),
        OPS_TEST(recorded_gradients_have_the_same_bits),
        OPS_TEST(second_derivatives_work_in_mixed_precision),
        OPS_TEST(rules_cast_in_backward_as_in_forward),
        OPS_TEST(hooks_read_gradients_without_casts));
}
