/* Groups of parameters: rates of their own, and parameters that stand still. */
#include <knet/capture.h>
#include <math.h>

#include "autograd_test.h"

typedef struct net {
    kn_params *set;
    kn_tensor *a, *b;
} net;

static net net_make(void) {
    net n = {.set = params_f32()};
    n.a = PARAM(n.set, KN_SHAPE(1), "trunk.a", 1);
    n.b = PARAM(n.set, KN_SHAPE(1), "head.b", 1);
    return n;
}

/* Gradients 2a and 2b. */
static void train_step(const net *n, kn_optim *optim) {
    KN_TAPE();
    assert_ok(kn_backward(sum_all(kn_add(kn_square(n->a), kn_square(n->b)))));
    assert_ok(kn_optim_step(optim));
}

static int count_groups(const kn_optim *optim) {
    const char *prefix;
    double rate, decay;
    int n = 0;
    while (kn_optim_group_at(optim, n, &prefix, &rate, &decay)) n++;
    return n;
}

static void groups_that_are_set_before_each_step_do_not_gather(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_make();
    kn_optim *optim = NULL;
    const char *prefix = NULL;
    double rate = 0, decay = 0;
    assert_ok(kn_sgd_create(&optim, n.set, 0.25, NULL));
    for (int t = 1; t <= 100; t++) {
        assert_ok(kn_optim_group(optim, "trunk", 1.0 / t, 1));
        assert_ok(kn_optim_group(optim, "head", 0.5 / t, 0.25));
        assert_int_equal(count_groups(optim), 2);
        double a = ops_at(n.a, 0), b = ops_at(n.b, 0);
        train_step(&n, optim);
        assert_close(ops_at(n.a, 0), a * (1 - 0.5 / t), 1e-6, 1e-30);
        assert_close(ops_at(n.b, 0), b * (1 - 0.25 / t), 1e-6, 1e-30);
    }
    assert_true(kn_optim_group_at(optim, 1, &prefix, &rate, &decay));
    assert_string_equal(prefix, "head");
    assert_true(rate == 0.005 && decay == 0.25);
    assert_false(kn_optim_group_at(optim, -1, &prefix, &rate, &decay));
    assert_ok(kn_optim_group(optim, "", 1, 1));
    assert_int_equal(count_groups(optim), 1);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

static void the_last_call_holds_where_prefixes_overlap(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_make();
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, n.set, 0.25, NULL));
    assert_ok(kn_optim_group(optim, "", 0.5, 1));
    assert_ok(kn_optim_group(optim, "trunk.a", 1, 1));
    assert_ok(kn_optim_group(optim, "t", 0.25, 1)); /* instead of the one before */
    assert_int_equal(count_groups(optim), 2);
    train_step(&n, optim);
    assert_values(n.a, 1 - 0.125);
    assert_values(n.b, 1 - 0.25);
    assert_ok(kn_optim_group(optim, "head", 0, 1)); /* t stays as it is */
    train_step(&n, optim);
    assert_values(n.a, 0.875 * 0.875);
    assert_values(n.b, 0.75);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

typedef kn_status (*momentum_fn)(kn_optim **, kn_params *, double, double, const kn_sgd_options *);
static const momentum_fn momentums[] = {kn_momentum_create, kn_nesterov_create};

static void a_rate_of_zero_stops_momentum(void **state) {
    (void)state;
    KN_FRAME();
    for (int k = 0; k < 2; k++) {
        net n = net_make(), other = net_make();
        kn_optim *optim = NULL, *whole = NULL;
        assert_ok(momentums[k](&optim, n.set, 0.1, 0.9, NULL));
        assert_ok(momentums[k](&whole, other.set, 0.1, 0.9, NULL));
        for (int t = 0; t < 3; t++) train_step(&n, optim), train_step(&other, whole);
        double a = ops_at(n.a, 0), b = ops_at(n.b, 0);
        assert_ok(kn_optim_group(optim, "trunk", 0, 1));
        train_step(&n, optim);
        assert_true(ops_at(n.a, 0) == a && ops_at(n.b, 0) != b);
        assert_ok(kn_optim_lr(optim, 0));
        b = ops_at(n.b, 0);
        train_step(&n, optim);
        assert_true(ops_at(n.a, 0) == a && ops_at(n.b, 0) == b);
        assert_ok(kn_optim_lr(optim, 0.1)); /* from where it stood, with its momentum */
        assert_ok(kn_optim_group(optim, "trunk", 1, 1));
        train_step(&n, optim);
        train_step(&other, whole);
        assert_true(ops_at(n.a, 0) == ops_at(other.a, 0));
        kn_optim_destroy(optim);
        kn_optim_destroy(whole);
        kn_params_destroy(n.set);
        kn_params_destroy(other.set);
    }
}

typedef kn_status (*create_fn)(kn_optim **, kn_params *);
static kn_status sgd(kn_optim **out, kn_params *p) { return kn_sgd_create(out, p, 0.25, NULL); }
static kn_status momentum(kn_optim **out, kn_params *p) {
    return kn_momentum_create(out, p, 0.25, 0.5, NULL);
}
static kn_status nesterov(kn_optim **out, kn_params *p) {
    return kn_nesterov_create(out, p, 0.25, 0.5, NULL);
}
static const kn_adaptive_options adaptive = {.weight_decay = 0.5};
static kn_status adagrad(kn_optim **out, kn_params *p) {
    return kn_adagrad_create(out, p, 0.25, &adaptive);
}
static kn_status rmsprop(kn_optim **out, kn_params *p) {
    return kn_rmsprop_create(out, p, 0.25, &adaptive);
}
static kn_status adadelta(kn_optim **out, kn_params *p) {
    return kn_adadelta_create(out, p, 1, &adaptive);
}
static const kn_adam_options decoupled = {.weight_decay = 0.5};
static kn_status adam(kn_optim **out, kn_params *p) {
    return kn_adam_create(out, p, 0.25, &decoupled);
}
static kn_status lamb(kn_optim **out, kn_params *p) {
    return kn_lamb_create(out, p, 0.25, &decoupled);
}
static const create_fn methods[] = {sgd,     momentum, nesterov, adagrad,
                                    rmsprop, adadelta, adam,     lamb};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* Steps by gradients of x for trunk.a, whose elements are 1 to n, and of 1 for head.b. */
static void step_by(const net *n, kn_optim *optim, double x) {
    KN_TAPE();
    assert_ok(kn_backward(kn_add(sum_all(kn_affine(n->a, x, 0)), sum_all(n->b))));
    assert_ok(kn_optim_step(optim));
}

/* 0·∞ is no number. */
static void a_group_of_rate_zero_stands_still_by_infinite_gradients(void **state) {
    (void)state;
    enum { N = 3000 }; /* more than one copy of the host's */
    KN_FRAME();
    float counts[N], now[N];
    for (int i = 0; i < N; i++) counts[i] = (float)(i + 1);
    for (int k = 0; k < N_METHODS; k++) {
        net n = {.set = params_f32()};
        kn_optim *optim = NULL;
        n.a = kn_param(n.set, KN_SHAPE(N), (kn_init){0}, "trunk.a");
        n.b = PARAM(n.set, KN_SHAPE(1), "head.b", 1);
        assert_ok(kn_copy_into(n.a, counts, sizeof counts));
        assert_ok(methods[k](&optim, n.set));
        assert_ok(kn_optim_group(optim, "trunk", 0, 1));
        step_by(&n, optim, 1);
        step_by(&n, optim, INFINITY);
        assert_ok(kn_copy_out(now, sizeof now, n.a));
        assert_memory_equal(now, counts, sizeof now);
        assert_true(ops_at(n.b, 0) < 1);
        kn_optim_destroy(optim);
        kn_params_destroy(n.set);
    }
}

/* As PyTorch's do: the rate is of the weights alone. */
static void averages_of_a_group_of_rate_zero_go_on(void **state) {
    (void)state;
    KN_FRAME();
    for (int k = 3; k < N_METHODS; k++) {
        net n = net_make();
        kn_optim *optim = NULL;
        char name[64];
        assert_ok(methods[k](&optim, n.set));
        assert_ok(kn_optim_group(optim, "trunk", 0, 0));
        for (int t = 0; t < 3; t++) step_by(&n, optim, 1);
        assert_values(n.a, 1);
        for (int i = 1; kn_optim_state_at(optim, i, name, sizeof name); i++)
            if (strcmp(name, "v/trunk.a") == 0)
                assert_true(ops_at(kn_optim_state_at(optim, i, name, sizeof name), 0) > 0);
        kn_optim_destroy(optim);
        kn_params_destroy(n.set);
    }
}

typedef struct step_of {
    const net *n;
    kn_optim *optim;
} step_of;

static kn_status captured_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const step_of *s = ctx;
    (void)out, (void)in;
    train_step(s->n, s->optim);
    return kn_check();
}

/* Captured: the rate is read at each replay. */
static void a_rate_of_zero_stops_replays(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_make();
    kn_optim *optim = NULL;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    assert_ok(kn_momentum_create(&optim, n.set, 0.1, 0.9, NULL));
    assert_ok(kn_capture_create(&capture, NULL));
    step_of step = {&n, optim};
    for (int t = 0; t < 5; t++) {
        bool stands = t == 3;
        double a = ops_at(n.a, 0);
        if (t == 3) assert_ok(kn_optim_lr(optim, 0));
        if (t == 4) assert_ok(kn_optim_lr(optim, 0.1));
        assert_ok(kn_capture_run(NULL, 0, capture, NULL, 0, captured_step, &step));
        assert_true((ops_at(n.a, 0) == a) == stands);
    }
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_true(stats.n_launches >= 3);
    kn_capture_destroy(capture);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

/* A checkpoint could not have them. */
static void a_prefix_that_ends_inside_a_character_is_refused(void **state) {
    (void)state;
    KN_FRAME();
    net n = {.set = params_f32()};
    kn_optim *optim = NULL;
    n.a = PARAM(n.set, KN_SHAPE(1), "t\xC3\xAAte.w", 1);
    assert_ok(kn_sgd_create(&optim, n.set, 0.25, NULL));
    assert_fails(kn_optim_group(optim, "t\xC3", 0, 1), KN_ERR_INVALID,
                 "kn_optim_group: the prefix 't\xC3' is not UTF-8");
    assert_int_equal(count_groups(optim), 0);
    assert_ok(kn_optim_group(optim, "t\xC3\xAA", 0, 1));
    assert_int_equal(count_groups(optim), 1);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

/* Five parameters of one element, w.0 to w.4: of 10^i the gradient of w.i. */
static void powers_of_ten(kn_params *set, kn_tensor *w[5], kn_dtype dtype) {
    KN_TAPE(.dtype = dtype);
    kn_tensor *loss = NULL;
    for (int i = 0; i < 5; i++) {
        kn_tensor *part = sum_all(kn_affine(w[i], pow(10, i), 0));
        loss = loss ? kn_add(loss, part) : part;
    }
    assert_ok(kn_backward(loss));
    assert_non_null(kn_params_grad(set));
}

/* Where a step of rate 1, clipped to a norm of 1, leaves them, of which `stand` stand still. */
static void clipped_step(double out[5], const char *const stand[], kn_dtype dtype, bool is_sparse) {
    KN_FRAME();
    kn_params *set = NULL;
    kn_tensor *w[5];
    kn_optim *optim = NULL;
    assert_ok(kn_params_create(&set, &(kn_params_options){.dtype = dtype}));
    for (int i = 0; i < 5; i++) w[i] = kn_param(set, KN_SHAPE(1), (kn_init){0}, "w.%d", i);
    if (is_sparse) assert_ok(kn_param_sparse(w[4]));
    assert_ok(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_norm = 1}));
    for (; *stand; stand++) assert_ok(kn_optim_group(optim, *stand, 0, 1));
    powers_of_ten(set, w, dtype);
    assert_ok(kn_optim_step(optim));
    for (int i = 0; i < 5; i++) out[i] = ops_at(w[i], 0);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void a_norm_does_not_count_what_stands_still(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64};
    for (int k = 0; k < 4; k++) {
        double w[5], norm = sqrt(100 + 1e6) + 1e-6;
        bool is_sparse = k / 2;
        clipped_step(w, (const char *const[]){"w.0", "w.2", "w.4", NULL}, dtypes[k % 2], is_sparse);
        assert_true(w[0] == 0 && w[2] == 0 && w[4] == 0);
        assert_close(w[1], -10 / norm, 1e-6, 0);
        assert_close(w[3], -1000 / norm, 1e-6, 0);
        norm = sqrt(1 + 1e4 + 1e8) + 1e-6;
        clipped_step(w, (const char *const[]){"w.1", "w.3", NULL}, dtypes[k % 2], is_sparse);
        assert_true(w[1] == 0 && w[3] == 0);
        assert_close(w[0], -1 / norm, 1e-6, 0);
        assert_close(w[4], -1e4 / norm, 1e-6, 0);
        clipped_step(w, (const char *const[]){"w", NULL}, dtypes[k % 2], is_sparse);
        for (int i = 0; i < 5; i++) assert_true(w[i] == 0);
    }
}

/* Adam's moments of what stands still move: what counts when it learns again. */
static void a_group_of_rate_zero_is_clipped_by_its_own_norm(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_make();
    kn_optim *optim = NULL;
    char name[64];
    assert_ok(kn_adam_create(&optim, n.set, 1, &(kn_adam_options){.clip_each = 0.5}));
    assert_ok(kn_optim_group(optim, "trunk", 0, 1));
    train_step(&n, optim);
    assert_values(n.a, 1);
    assert_close(ops_at(kn_grad(n.a), 0), 0.5, 1e-5, 0);
    kn_tensor *m = kn_optim_state_at(optim, 1, name, sizeof name);
    assert_string_equal(name, "m/trunk.a");
    assert_close(ops_at(m, 0), 0.05, 1e-5, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

static void a_gradient_of_a_frozen_parameter_is_not_clipped(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_make();
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, n.set, 1, &(kn_sgd_options){.clip_each = 1}));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_add(kn_square(n.a), kn_square(n.b)))));
    }
    assert_ok(kn_params_freeze(n.set, "trunk", true));
    assert_ok(kn_optim_step(optim));
    assert_values(kn_grad(n.a), 2);
    assert_close(ops_at(kn_grad(n.b), 0), 1, 1e-5, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(n.set);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(a_norm_does_not_count_what_stands_still),
                     OPS_TEST(a_group_of_rate_zero_is_clipped_by_its_own_norm),
                     OPS_TEST(a_gradient_of_a_frozen_parameter_is_not_clipped),
                     OPS_TEST(a_group_of_rate_zero_stands_still_by_infinite_gradients),
                     OPS_TEST(averages_of_a_group_of_rate_zero_go_on),
                     OPS_TEST(a_prefix_that_ends_inside_a_character_is_refused),
                     OPS_TEST(a_rate_of_zero_stops_momentum),
                     OPS_TEST(a_rate_of_zero_stops_replays),
                     OPS_TEST(groups_that_are_set_before_each_step_do_not_gather),
                     OPS_TEST(the_last_call_holds_where_prefixes_overlap));
}
