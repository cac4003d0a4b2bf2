/* Each optimiser against its formula in double, on the gradient of Σ a·w²/2. */
#include <math.h>

#include "autograd_test.h"

enum { N = 70, STEPS = 12 };

typedef struct model {
    double w[N], m[N], v[N];
} model;

static double slope(int i) { return 0.5 + 0.1 * (i % 17); }

static void start(kn_params **set, kn_tensor **w, kn_tensor **b, model *ref) {
    assert_ok(kn_params_create(set, &(kn_params_options){.seed = 3, .dtype = KN_F64}));
    *w = kn_param(*set, KN_SHAPE(N - 3), kn_init_uniform(-1, 1), "w");
    *b = kn_param(*set, KN_SHAPE(3), kn_init_uniform(-1, 1), "b");
    memset(ref, 0, sizeof *ref);
    for (int i = 0; i < N; i++) ref->w[i] = ops_at(i < N - 3 ? *w : *b, i < N - 3 ? i : i - N + 3);
}

static kn_status train_step(kn_tensor *w, kn_tensor *b, kn_optim *optim) {
    double a[N];
    for (int i = 0; i < N; i++) a[i] = slope(i);
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *all = kn_concat((kn_tensor *const[]){w, b}, 2, 0);
    kn_tensor *squares = kn_mul(kn_mul(all, all), kn_tensor_from(a, KN_F64, KN_SHAPE(N)));
    KN_TRY(kn_backward(kn_affine(kn_sum(squares, KN_ALL, false), 0.5, 0)));
    return kn_optim_step(optim);
}

static void compare(kn_tensor *w, kn_tensor *b, const model *ref) {
    for (int i = 0; i < N; i++) {
        double got = i < N - 3 ? ops_at(w, i) : ops_at(b, i - N + 3);
        assert_close(got, ref->w[i], 1e-12, 1e-15);
    }
}

static double clip_scale(const model *ref, double clip) {
    double squares = 0;
    for (int i = 0; i < N; i++) squares += pow(slope(i) * ref->w[i], 2);
    return clip > 0 ? fmin(1, clip / (sqrt(squares) + 1e-6)) : 1;
}

static void sgd_follows_its_formula(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, set, 0.05, NULL));
    for (int t = 0; t < STEPS; t++) {
        if (t == 6) assert_ok(kn_optim_lr(optim, 0.01));
        for (int i = 0; i < N; i++) ref.w[i] -= (t < 6 ? 0.05 : 0.01) * slope(i) * ref.w[i];
        assert_ok(train_step(w, b, optim));
    }
    compare(w, b, &ref);
    kn_params_destroy(set); /* the optimiser shares it */
    kn_optim_destroy(optim);
}

static void momentum_follows_its_formula(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_momentum_create(&optim, set, 0.05, 0.9, NULL));
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            ref.v[i] = 0.9 * ref.v[i] - 0.05 * slope(i) * ref.w[i];
            ref.w[i] += ref.v[i];
        }
        assert_ok(train_step(w, b, optim));
    }
    compare(w, b, &ref);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void adam_reference(model *ref, int t, double lr, double decay, double clip) {
    double scale = clip_scale(ref, clip), c1 = 1 - pow(0.9, t), c2 = 1 - pow(0.999, t);
    for (int i = 0; i < N; i++) {
        double g = scale * slope(i) * ref->w[i];
        ref->m[i] = 0.9 * ref->m[i] + 0.1 * g;
        ref->v[i] = 0.999 * ref->v[i] + 0.001 * g * g;
        ref->w[i] -= lr * decay * ref->w[i];
        ref->w[i] -= lr * (ref->m[i] / c1) / (sqrt(ref->v[i] / c2) + 1e-8);
    }
}

static void adam_with(double decay, double clip) {
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_adam_create(&optim, set, 0.02,
                             &(kn_adam_options){.weight_decay = decay, .clip_norm = clip}));
    for (int t = 1; t <= STEPS; t++) {
        adam_reference(&ref, t, 0.02, decay, clip);
        assert_ok(train_step(w, b, optim));
    }
    compare(w, b, &ref);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void adam_follows_its_formula(void **state) {
    (void)state;
    adam_with(0, 0);
}
static void decay_is_decoupled(void **state) {
    (void)state;
    adam_with(0.1, 0);
}
static void clipping_scales_all_gradients_together(void **state) {
    (void)state;
    adam_with(0, 0.5);
    adam_with(0, 1e6);
}

/* One step of SGD moves the weights by at most lr·clip. */
static void a_clipped_step_has_the_norm_that_was_asked_for(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_norm = 0.25}));
    assert_ok(train_step(w, b, optim));
    double squares = 0;
    for (int i = 0; i < N; i++) {
        double now = i < N - 3 ? ops_at(w, i) : ops_at(b, i - N + 3);
        squares += pow(now - ref.w[i], 2);
    }
    assert_close(sqrt(squares), 0.25, 1e-5, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void unused_parameters_do_not_move_without_decay(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2), *idle = PARAM(set, KN_SHAPE(1), "idle", 3);
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, set, 0.5, NULL));
    for (int i = 0; i < 3; i++) {
        KN_TAPE();
        kn_tensor *both =
            i == 0 ? kn_mul(w, idle) : kn_exp(w); /* idle has an old gradient afterwards */
        assert_ok(kn_backward(both));
        assert_ok(kn_optim_step(optim));
    }
    assert_values(idle, 3 - 0.5 * 2);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void bad_optimisers_say_why(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    assert_fails(kn_sgd_create(&optim, NULL, 1, NULL), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_sgd_create(&optim, set, -1, NULL), KN_ERR_INVALID, "lr -1");
    assert_fails(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_norm = -2}), KN_ERR_INVALID,
                 "clip_norm -2");
    assert_fails(kn_momentum_create(&optim, set, 1, 1, NULL), KN_ERR_INVALID, "momentum 1");
    assert_fails(kn_adam_create(&optim, set, 1, &(kn_adam_options){.beta1 = 1}), KN_ERR_INVALID,
                 "beta1 1");
    assert_fails(kn_adam_create(&optim, set, 1, &(kn_adam_options){.reserved = {0, 0, 1}}),
                 KN_ERR_INVALID, "reserved");
    assert_null(optim);
    assert_fails(kn_optim_step(NULL), KN_ERR_INVALID, "NULL");
    assert_ok(kn_sgd_create(&optim, set, 1, NULL));
    assert_ok(kn_optim_step(optim)); /* of nothing */
    assert_fails(kn_optim_lr(optim, -3), KN_ERR_INVALID, "lr -3");
    kn_optim_destroy(optim);
    kn_optim_destroy(NULL);
    kn_params_destroy(set);
}

static void no_optimiser_is_an_error(void **state) {
    (void)state;
    assert_fails(kn_optim_lr(NULL, 0.1), KN_ERR_INVALID, "optim is NULL");
    assert_fails(kn_optim_step(NULL), KN_ERR_INVALID, "optim is NULL");
}

int main(void) {
    return RUN_TESTS(OPS_TEST(no_optimiser_is_an_error), OPS_TEST(sgd_follows_its_formula),
                     OPS_TEST(momentum_follows_its_formula), OPS_TEST(adam_follows_its_formula),
                     OPS_TEST(decay_is_decoupled), OPS_TEST(clipping_scales_all_gradients_together),
                     OPS_TEST(a_clipped_step_has_the_norm_that_was_asked_for),
                     OPS_TEST(unused_parameters_do_not_move_without_decay),
                     OPS_TEST(bad_optimisers_say_why));
}
