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

static kn_status gradients_make(kn_tensor *w, kn_tensor *b) {
    double a[N];
    for (int i = 0; i < N; i++) a[i] = slope(i);
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *all = kn_concat((kn_tensor *const[]){w, b}, 2, 0);
    kn_tensor *squares = kn_mul(kn_mul(all, all), kn_tensor_from(a, KN_F64, KN_SHAPE(N)));
    return kn_backward(kn_affine(kn_sum(squares, KN_ALL, false), 0.5, 0));
}

static kn_status train_step(kn_tensor *w, kn_tensor *b, kn_optim *optim) {
    KN_TRY(gradients_make(w, b));
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

/* PyTorch 1.13's SGD(momentum=0.9, weight_decay=0.01) on Σ c·w² at rates that change; one is 0. */
static void check_sgd_momentum(uint64_t nesterov, const double want[3], const double want_v[3]) {
    static const double rate[] = {0.1, 0.1, 0.1, 0.01, 0, 0.05};
    kn_params *set = NULL;
    kn_optim *optim = NULL;
    char name[64];
    assert_ok(kn_params_create(&set, &(kn_params_options){.dtype = KN_F64}));
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *w = kn_param(set, KN_SHAPE(3), kn_init_normal(0, 1), "w");
    assert_ok(kn_copy_into(w, (const double[]){1, -2, 0.5}, 3 * sizeof(double)));
    const kn_sgd_options o = {.momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01};
    assert_ok(kn_sgd_create(&optim, set, 0.1, &o));
    for (int t = 0; t < 6; t++) {
        KN_TAPE();
        kn_tensor *c = kn_tensor_from((const double[]){0.5, 1, 2}, KN_F64, KN_SHAPE(3));
        assert_ok(kn_optim_lr(optim, rate[t]));
        assert_ok(kn_backward(kn_sum(kn_mul(kn_mul(w, w), c), KN_ALL, false)));
        assert_ok(kn_optim_step(optim));
    }
    const double *got = kn_data(w);
    for (int i = 0; i < 3; i++) assert_close(got[i], want[i], 0, 1e-14);
    got = kn_data(kn_optim_state_at(optim, 1, name, sizeof name));
    assert_string_equal(name, "m/w");
    for (int i = 0; i < 3; i++) assert_close(got[i], want_v[i], 0, 1e-14);
    assert_string_equal(kn_optim_name(optim), nesterov ? "sgd_nesterov" : "sgd_momentum");
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void sgd_with_momentum_is_that_of_pytorch(void **state) {
    (void)state;
    check_sgd_momentum(
        0, (const double[]){0.30584436178469876, 0.26644856926049737, -0.23056560233857185},
        (const double[]){2.987617493708022, -6.172446725613946, -1.0798438173275644});
    check_sgd_momentum(
        1, (const double[]){0.17588106025875105, 0.3865793236335442, -0.11510058040852736},
        (const double[]){2.3884788845986034, -3.265567101549906, -1.2179608459675768});
    kn_params *set = NULL;
    kn_optim *optim = NULL;
    assert_ok(kn_params_create(&set, NULL));
    kn_sgd_options o = {.nesterov = 1};
    assert_fails(kn_sgd_create(&optim, set, 1, &o), KN_ERR_INVALID, "nesterov is of momentum");
    o.momentum = 1;
    assert_fails(kn_sgd_create(&optim, set, 1, &o), KN_ERR_INVALID, "momentum 1 is not in [0, 1)");
    o.momentum = 0.5;
    assert_fails(kn_momentum_create(&optim, set, 1, 0.9, &o), KN_ERR_INVALID,
                 "options.momentum and .nesterov are kn_sgd_create's");
    assert_fails(kn_nesterov_create(&optim, set, 1, 0.9, &o), KN_ERR_INVALID, "kn_sgd_create's");
    o.nesterov = 2;
    assert_fails(kn_sgd_create(&optim, set, 1, &o), KN_ERR_INVALID, "nesterov is 2; 0 or 1 are");
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

/* w has the first N - 3 elements, b the others. */
static void each_parameter_is_clipped_by_its_own_norm(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    double clip = 2.5; /* above b's norm, below w's */
    assert_ok(kn_sgd_create(&optim, set, 0.1, &(kn_sgd_options){.clip_each = clip}));
    for (int t = 0; t < 3; t++) {
        double squares[2] = {0, 0};
        for (int i = 0; i < N; i++) squares[i >= N - 3] += pow(slope(i) * ref.w[i], 2);
        for (int i = 0; i < N; i++) {
            double scale = fmin(1, clip / (sqrt(squares[i >= N - 3]) + 1e-6));
            ref.w[i] -= 0.1 * scale * slope(i) * ref.w[i];
        }
        assert_true(sqrt(squares[0]) > clip && sqrt(squares[1]) < clip);
        assert_ok(train_step(w, b, optim));
    }
    compare(w, b, &ref);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void lamb_step(model *ref, int t, double rate, const double scale[2]) {
    double r[N], length[2] = {0, 0}, from[2] = {0, 0};
    for (int i = 0; i < N; i++) {
        double g = slope(i) * ref->w[i];
        ref->m[i] = 0.9 * ref->m[i] + 0.1 * g;
        ref->v[i] = 0.999 * ref->v[i] + 0.001 * g * g;
        double m = ref->m[i] / (1 - pow(0.9, t)), v = ref->v[i] / (1 - pow(0.999, t));
        r[i] = m / (sqrt(v) + 1e-8) + 0.01 * ref->w[i];
        length[i >= N - 3] += r[i] * r[i];
        from[i >= N - 3] += ref->w[i] * ref->w[i];
    }
    for (int i = 0; i < N; i++) {
        int k = i >= N - 3;
        double trust = from[k] > 0 && length[k] > 0 ? sqrt(from[k] / length[k]) : 1;
        ref->w[i] -= rate * scale[k] * trust * r[i];
    }
}

static void lamb_follows_its_formula(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    const double scale[2] = {1, 0.5};
    char name[32];
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_lamb_create(&optim, set, 0.05, &(kn_adam_options){.weight_decay = 0.01}));
    assert_ok(kn_optim_group(optim, "b", scale[1], 1));
    assert_string_equal(kn_optim_name(optim), "lamb");
    for (int t = 1; t <= STEPS; t++) {
        if (t == 6) assert_ok(kn_optim_lr(optim, 0.02));
        lamb_step(&ref, t, t < 6 ? 0.05 : 0.02, scale);
        assert_ok(train_step(w, b, optim));
    }
    for (int i = 0; i < N; i++)
        assert_close(i < N - 3 ? ops_at(w, i) : ops_at(b, i - N + 3), ref.w[i], 1e-9, 1e-12);
    KN_FRAME();
    assert_close(ops_at(kn_optim_state_at(optim, 0, name, sizeof name), 0), 0.02, 0, 0);
    assert_non_null(kn_optim_state_at(optim, 4, name, sizeof name));
    assert_string_equal(name, "v/b");
    assert_null(kn_optim_state_at(optim, 5, name, sizeof name));
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void lamb_moves_parameters_that_are_zero(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 0);
    kn_optim *optim = NULL;
    assert_ok(kn_lamb_create(&optim, set, 0.5, NULL));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_affine(w, 3, 0))));
        assert_ok(kn_optim_step(optim));
    }
    assert_close(ops_at(w, 0), -0.5, 1e-5, 0); /* r is 1 in Adam's first step */
    assert_ok(kn_optim_group(optim, "w", 0.5, 1));
    float *at = kn_data_mut(w);
    at[0] = 0;
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_affine(w, 3, 0))));
        assert_ok(kn_optim_step(optim));
    }
    assert_close(ops_at(w, 0), -0.25, 1e-5, 0);
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

/* --- turns --- */

typedef kn_status (*adam_like)(kn_optim **, kn_params *, double, const kn_adam_options *);
/* b takes two steps while w takes one; each as with an optimiser of its own. */
static void turns_check(adam_like create) {
    kn_params *set[3];
    kn_tensor *w[3], *b[3];
    model ref;
    kn_optim *optim[3];
    for (int k = 0; k < 3; k++) {
        start(&set[k], &w[k], &b[k], &ref);
        assert_ok(create(&optim[k], set[k], 0.02, NULL));
    }
    const char *const prefix[] = {"w", ""};
    assert_int_equal(kn_optim_turn_count(optim[0]), 0);
    assert_ok(kn_optim_turns(optim[0], prefix, 2));
    assert_int_equal(kn_optim_turn_count(optim[0]), 2);
    assert_ok(kn_optim_lr(optim[0], 0.01));
    assert_ok(kn_optim_lr(optim[1], 0.01));
    assert_ok(kn_optim_lr(optim[2], 0.01));
    for (int t = 0; t < 4; t++) {
        assert_ok(gradients_make(w[0], b[0]));
        assert_ok(kn_optim_turn_step(optim[0], 1));
        assert_ok(train_step(w[2], b[2], optim[2]));
        if (t % 2) continue;
        assert_ok(gradients_make(w[0], b[0]));
        assert_ok(kn_optim_turn_step(optim[0], 0));
        assert_ok(train_step(w[1], b[1], optim[1]));
    }
    for (int i = 0; i < N - 3; i++) assert_true(ops_at(w[0], i) == ops_at(w[1], i));
    for (int i = 0; i < 3; i++) assert_true(ops_at(b[0], i) == ops_at(b[2], i));
    assert_true(ops_at(b[0], 0) != ops_at(b[1], 0));
    for (int k = 0; k < 3; k++) {
        kn_optim_destroy(optim[k]);
        kn_params_destroy(set[k]);
    }
}

static void turns_have_steps_of_their_own(void **state) {
    (void)state;
    turns_check(kn_adam_create);
    turns_check(kn_lamb_create);
}

static void wrong_turns_say_why(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    kn_optim *optim = NULL, *clips = NULL;
    start(&set, &w, &b, &ref);
    assert_ok(kn_sgd_create(&optim, set, 0.1, NULL));
    assert_ok(kn_sgd_create(&clips, set, 0.1, &(kn_sgd_options){.clip_norm = 1}));
    const char *const all[] = {""}, *const none[] = {"missing"};
    assert_fails(kn_optim_turns(optim, none, 1), KN_ERR_INVALID, "is in no turn");
    assert_fails(kn_optim_turns(optim, all, 0), KN_ERR_INVALID, "at least one prefix");
    assert_fails(kn_optim_turns(clips, all, 1), KN_ERR_UNSUPPORTED, "clips gradients");
    assert_fails(kn_optim_turn_step(optim, 0), KN_ERR_INVALID, "turn 0 of 0");
    assert_ok(kn_optim_turns(optim, all, 1));
    assert_fails(kn_optim_turns(optim, all, 1), KN_ERR_INVALID, "has turns already");
    assert_fails(kn_optim_step(optim), KN_ERR_INVALID, "has 1 turns; use kn_optim_turn_step");
    assert_fails(kn_optim_turn_step(optim, 1), KN_ERR_INVALID, "turn 1 of 1");
    kn_optim_destroy(optim);
    kn_optim_destroy(clips);
    kn_params_destroy(set);
}

static void bad_optimisers_say_why(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    assert_fails(kn_sgd_create(&optim, NULL, 1, NULL), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_sgd_create(&optim, set, -1, NULL), KN_ERR_INVALID, "lr -1");
    assert_fails(kn_sgd_create(&optim, set, INFINITY, NULL), KN_ERR_INVALID, "lr inf");
    assert_fails(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_norm = -2}), KN_ERR_INVALID,
                 "clip_norm -2");
    assert_fails(kn_momentum_create(&optim, set, 1, 1, NULL), KN_ERR_INVALID, "momentum 1");
    assert_fails(kn_adam_create(&optim, set, 1, &(kn_adam_options){.beta1 = 1}), KN_ERR_INVALID,
                 "beta1 1");
    assert_fails(kn_adam_create(&optim, set, 1, &(kn_adam_options){.eps = INFINITY}),
                 KN_ERR_INVALID, "eps inf");
    assert_fails(kn_rmsprop_create(&optim, set, 1, &(kn_adaptive_options){.eps = INFINITY}),
                 KN_ERR_INVALID, "eps inf");
    assert_fails(kn_adam_create(&optim, set, 1, &(kn_adam_options){.reserved = {0, 0, 1}}),
                 KN_ERR_INVALID, "reserved");
    assert_null(optim);
    assert_fails(kn_optim_step(NULL), KN_ERR_INVALID, "NULL");
    assert_ok(kn_sgd_create(&optim, set, 1, NULL));
    assert_ok(kn_optim_step(optim)); /* of nothing */
    assert_fails(kn_optim_lr(optim, -3), KN_ERR_INVALID, "lr -3");
    assert_fails(kn_optim_lr(optim, NAN), KN_ERR_INVALID, "lr nan: must be 0 or more, and finite");
    assert_fails(kn_optim_lr(optim, INFINITY), KN_ERR_INVALID, "lr inf");
    kn_optim_destroy(optim);
    kn_optim_destroy(NULL);
    kn_params_destroy(set);
}

/* A group that stands still, one at half the rate, one that the last call names. */
static void groups_have_their_own_rate_and_decay(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_adam_create(&optim, set, 0.02, &(kn_adam_options){.weight_decay = 0.1}));
    assert_ok(kn_optim_group(optim, "", 0, 1));
    assert_ok(kn_optim_group(optim, "b", 0.5, 0));
    for (int t = 1; t <= STEPS; t++) {
        model before = ref;
        adam_reference(&ref, t, 0.01, 0, 0);
        if (t <= 6) memcpy(ref.w, before.w, (N - 3) * sizeof ref.w[0]);
        assert_ok(train_step(w, b, optim));
        if (t == 6) {
            compare(w, b, &ref);
            assert_ok(kn_optim_group(optim, "w", 0.5, 0)); /* from the next step on */
        }
    }
    compare(w, b, &ref);
    assert_fails(kn_optim_group(optim, "x", 1, 1), KN_ERR_INVALID, "begins with 'x'");
    assert_fails(kn_optim_group(optim, "w", -1, 1), KN_ERR_INVALID, "lr_scale -1");
    assert_fails(kn_optim_group(optim, "w", INFINITY, 1), KN_ERR_INVALID, "lr_scale inf");
    assert_fails(kn_optim_group(optim, "w", 1, INFINITY), KN_ERR_INVALID, "decay_scale inf");
    assert_fails(kn_optim_group(NULL, "w", 1, 1), KN_ERR_INVALID, "optim is NULL");
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

typedef kn_status (*adaptive_fn)(kn_optim **, kn_params *, double, const kn_adaptive_options *);

static void adaptive_step(model *ref, int kind, double lr) {
    for (int i = 0; i < N; i++) {
        double x = (slope(i) + 0.01) * ref->w[i];
        ref->v[i] = kind == 0 ? ref->v[i] + x * x : 0.9 * ref->v[i] + 0.1 * x * x;
        double d = x / sqrt(ref->v[i] + 1e-6);
        if (kind == 2) {
            d *= sqrt(ref->m[i] + 1e-6);
            ref->m[i] = 0.9 * ref->m[i] + 0.1 * d * d;
        }
        ref->w[i] -= lr * d;
    }
}

static void adaptive_methods_follow_their_formulas(void **state) {
    (void)state;
    static const adaptive_fn methods[] = {kn_adagrad_create, kn_rmsprop_create, kn_adadelta_create};
    for (int kind = 0; kind < 3; kind++) {
        kn_params *set;
        kn_tensor *w, *b;
        model ref;
        start(&set, &w, &b, &ref);
        kn_optim *optim = NULL;
        kn_adaptive_options options = {.weight_decay = 0.01};
        assert_ok(methods[kind](&optim, set, 0.05, &options));
        for (int t = 0; t < STEPS; t++) {
            adaptive_step(&ref, kind, 0.05);
            assert_ok(train_step(w, b, optim));
        }
        compare(w, b, &ref);
        kn_optim_destroy(optim);
        optim = NULL;
        assert_fails(methods[kind](&optim, set, 1, &(kn_adaptive_options){.rho = 1}),
                     KN_ERR_INVALID, "rho 1");
        kn_params_destroy(set);
    }
}

static void nesterov_follows_its_formula(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    assert_ok(kn_nesterov_create(&optim, set, 0.05, 0.9, NULL));
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            double g = slope(i) * ref.w[i];
            ref.v[i] = 0.9 * ref.v[i] - 0.05 * g;
            ref.w[i] += 0.9 * ref.v[i] - 0.05 * g;
        }
        assert_ok(train_step(w, b, optim));
    }
    compare(w, b, &ref);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void averages_follow_the_weights_and_change_places_with_them(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    start(&set, &w, &b, &ref);
    kn_optim *optim = NULL;
    kn_ema *ema = NULL;
    assert_ok(kn_sgd_create(&optim, set, 0.05, NULL));
    assert_fails(kn_ema_create(&ema, set, 1), KN_ERR_INVALID, "decay 1");
    assert_fails(kn_ema_create(NULL, set, 0.9), KN_ERR_INVALID, "kn_ema_create: out is NULL");
    assert_ok(kn_ema_create(&ema, set, 0.9));
    model mean = ref;
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            ref.w[i] -= 0.05 * slope(i) * ref.w[i];
            mean.w[i] = 0.9 * mean.w[i] + 0.1 * ref.w[i];
        }
        assert_ok(train_step(w, b, optim));
        assert_ok(kn_ema_update(ema));
    }
    compare(w, b, &ref);
    assert_ok(kn_ema_swap(ema));
    compare(w, b, &mean);
    assert_true(kn_ema_is_swapped(ema));
    assert_fails(kn_ema_update(ema), KN_ERR_INVALID, "kn_ema_update: the weights are averages");
    assert_fails(kn_optim_step(optim), KN_ERR_INVALID, "kn_optim_step: the weights are averages");
    compare(w, b, &mean);
    assert_ok(kn_ema_swap(ema));
    assert_false(kn_ema_is_swapped(ema) || kn_ema_is_swapped(NULL));
    compare(w, b, &ref);
    assert_fails(kn_ema_update(NULL), KN_ERR_INVALID, "ema is NULL");
    kn_params_destroy(set); /* the averages share it */
    kn_ema_destroy(ema);
    kn_ema_destroy(NULL);
    kn_optim_destroy(optim);
}

static void averages_that_end_in_place_of_the_weights_are_the_weights(void **state) {
    (void)state;
    kn_params *set;
    kn_tensor *w, *b;
    model ref;
    kn_optim *optim = NULL;
    kn_ema *ema = NULL, *other = NULL;
    const char *const all[] = {""};
    start(&set, &w, &b, &ref);
    assert_ok(kn_sgd_create(&optim, set, 0.05, NULL));
    assert_ok(kn_optim_turns(optim, all, 1));
    assert_ok(kn_ema_create(&ema, set, 0.9));
    assert_ok(kn_ema_create(&other, set, 0.9));
    assert_ok(kn_ema_swap(ema));
    assert_ok(gradients_make(w, b));
    assert_fails(kn_optim_turn_step(optim, 0), KN_ERR_INVALID, "the weights are averages");
    assert_fails(kn_ema_update(other), KN_ERR_INVALID, "the weights are averages");
    kn_ema_destroy(ema);
    assert_ok(kn_optim_turn_step(optim, 0));
    assert_ok(kn_ema_update(other));
    for (int i = 0; i < N; i++) ref.w[i] -= 0.05 * slope(i) * ref.w[i];
    compare(w, b, &ref);
    kn_ema_destroy(other);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void no_optimiser_is_an_error(void **state) {
    (void)state;
    assert_fails(kn_optim_lr(NULL, 0.1), KN_ERR_INVALID, "optim is NULL");
    assert_fails(kn_optim_step(NULL), KN_ERR_INVALID, "optim is NULL");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(no_optimiser_is_an_error), OPS_TEST(sgd_follows_its_formula),
        OPS_TEST(momentum_follows_its_formula), TEST(sgd_with_momentum_is_that_of_pytorch),
        OPS_TEST(adam_follows_its_formula), OPS_TEST(decay_is_decoupled),
        OPS_TEST(groups_have_their_own_rate_and_decay),
        OPS_TEST(adaptive_methods_follow_their_formulas), OPS_TEST(nesterov_follows_its_formula),
        OPS_TEST(averages_that_end_in_place_of_the_weights_are_the_weights),
        OPS_TEST(averages_follow_the_weights_and_change_places_with_them),
        OPS_TEST(clipping_scales_all_gradients_together),
        OPS_TEST(a_clipped_step_has_the_norm_that_was_asked_for),
        OPS_TEST(each_parameter_is_clipped_by_its_own_norm), OPS_TEST(lamb_follows_its_formula),
        OPS_TEST(lamb_moves_parameters_that_are_zero),
        OPS_TEST(unused_parameters_do_not_move_without_decay), OPS_TEST(bad_optimisers_say_why),
        OPS_TEST(turns_have_steps_of_their_own), OPS_TEST(wrong_turns_say_why));
}
