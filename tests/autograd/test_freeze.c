/* Frozen parameters: constants for tapes and optimisers. */
#include <knet/capture.h>
#include <math.h>

#include "autograd_test.h"

enum { D = 3 };

/* y = tanh(x·aᵀ)·bᵀ·cᵀ: b, in the middle, is frozen. */
typedef struct net {
    kn_params *set;
    kn_tensor *a, *b, *c, *x;
    kn_optim *optim;
} net;

typedef kn_status (*create_fn)(kn_optim **, kn_params *);

static void net_open(net *n, create_fn create) {
    *n = (net){.set = params_f32()};
    n->x = F32(KN_SHAPE(2, D), 1, -2, 3, 0.5f, 1, -1);
    n->a = kn_param(n->set, KN_SHAPE(D, D), kn_init_xavier(), "a.weight");
    n->b = kn_param(n->set, KN_SHAPE(D, D), kn_init_xavier(), "b.weight");
    n->c = kn_param(n->set, KN_SHAPE(D, D), kn_init_xavier(), "c.weight");
    assert_ok(create(&n->optim, n->set));
}

static void net_close(net *n) {
    kn_optim_destroy(n->optim);
    kn_params_destroy(n->set);
}

static kn_tensor *net_loss(const net *n) {
    kn_tensor *h = kn_linear(kn_tanh(kn_linear(n->x, n->a, KN_NONE)), n->b, KN_NONE);
    return sum_all(kn_square(kn_linear(h, n->c, KN_NONE)));
}

static kn_status step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    (void)out, (void)in;
    KN_TAPE();
    KN_TRY(kn_backward(net_loss(n)));
    return kn_optim_step(n->optim);
}

static kn_status sgd(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 0.01, &(kn_sgd_options){.weight_decay = 0.1});
}
static kn_status momentum(kn_optim **out, kn_params *p) {
    return kn_momentum_create(out, p, 0.01, 0.9, NULL);
}
static kn_status nesterov(kn_optim **out, kn_params *p) {
    return kn_nesterov_create(out, p, 0.01, 0.9, NULL);
}
static kn_status adagrad(kn_optim **out, kn_params *p) {
    return kn_adagrad_create(out, p, 0.01, NULL);
}
static kn_status rmsprop(kn_optim **out, kn_params *p) {
    return kn_rmsprop_create(out, p, 0.01, NULL);
}
static kn_status adadelta(kn_optim **out, kn_params *p) {
    return kn_adadelta_create(out, p, 1, NULL);
}
static kn_status adam(kn_optim **out, kn_params *p) {
    return kn_adam_create(out, p, 0.01, &(kn_adam_options){.weight_decay = 0.1});
}
static kn_status lamb(kn_optim **out, kn_params *p) {
    return kn_lamb_create(out, p, 0.01, &(kn_adam_options){.weight_decay = 0.1});
}
static const create_fn methods[] = {sgd,     momentum, nesterov, adagrad,
                                    rmsprop, adadelta, adam,     lamb};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* The parameter and its state: D·D numbers each. */
typedef struct values {
    float w[3][D * D];
    int n;
} values;

static values values_of(net *n, const char *name) {
    values v = {.n = 1};
    char part[64];
    KN_FRAME();
    assert_ok(kn_copy_out(v.w[0], sizeof v.w[0], kn_params_find(n->set, name)));
    for (int i = 1; kn_optim_state_at(n->optim, i, part, sizeof part); i++)
        if (strcmp(part + 2, name) == 0)
            assert_ok(kn_copy_out(v.w[v.n++], sizeof v.w[0],
                                  kn_optim_state_at(n->optim, i, part, sizeof part)));
    return v;
}

static bool same(const values *a, const values *b) { return !memcmp(a->w, b->w, sizeof a->w); }

static void a_layer_in_the_middle_stands_still(void **state) {
    (void)state;
    KN_FRAME();
    for (int k = 0; k < N_METHODS; k++) {
        net n;
        net_open(&n, methods[k]);
        for (int t = 0; t < 3; t++) assert_ok(step(NULL, NULL, &n));
        values b = values_of(&n, "b.weight"), before[2], now;
        assert_ok(kn_params_freeze(n.set, "b.", true));
        for (int t = 0; t < 3; t++) {
            before[0] = values_of(&n, "a.weight"), before[1] = values_of(&n, "c.weight");
            assert_ok(step(NULL, NULL, &n));
            now = values_of(&n, "b.weight");
            assert_true(same(&now, &b));
            now = values_of(&n, "a.weight");
            assert_false(same(&now, &before[0]));
            now = values_of(&n, "c.weight");
            assert_false(same(&now, &before[1]));
        }
        assert_ok(kn_params_freeze(n.set, "", false));
        assert_ok(step(NULL, NULL, &n));
        now = values_of(&n, "b.weight");
        assert_false(same(&now, &b));
        net_close(&n);
    }
}

/* The others move as beside a constant. */
static void gradients_flow_through_it(void **state) {
    (void)state;
    KN_FRAME();
    net n, other;
    net_open(&n, sgd);
    net_open(&other, sgd);
    assert_ok(kn_params_freeze(n.set, "b.weight", true));
    other.b = kn_affine(other.b, 1, 0);
    for (int t = 0; t < 3; t++) {
        assert_ok(step(NULL, NULL, &n));
        assert_ok(step(NULL, NULL, &other));
        values x = values_of(&n, "a.weight"), y = values_of(&other, "a.weight");
        assert_true(same(&x, &y));
        x = values_of(&n, "c.weight"), y = values_of(&other, "c.weight");
        assert_true(same(&x, &y));
    }
    net_close(&n);
    net_close(&other);
}

static void count(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    (void)w, (void)gradient;
    ++*(int *)ctx;
}

static void backward_computes_no_gradient_by_it(void **state) {
    (void)state;
    KN_FRAME();
    net n;
    int calls = 0;
    net_open(&n, sgd);
    assert_ok(kn_params_freeze(n.set, "b.", true));
    kn_params_on_grad(n.set, count, &calls);
    assert_ok(step(NULL, NULL, &n));
    assert_int_equal(calls, 2);
    assert_close(item_of(sum_all(kn_square(kn_grad(n.b)))), 0, 0, 0);
    assert_ok(kn_params_freeze(n.set, "", true));
    {
        KN_TAPE();
        kn_tensor *loss = net_loss(&n);
        assert_fails(kn_backward(loss), KN_ERR_INVALID,
                     "it depends on no parameter, or on frozen ones alone");
        assert_int_equal(kn_tape_nodes(), 0);
        kn_tensor *dx = NULL, *x = kn_watch(n.c); /* but where a program asks for it */
        assert_ok(kn_gradients(&dx, sum_all(kn_square(x)), &x, 1, NULL));
        assert_close(ops_at(dx, 0), 2 * ops_at(n.c, 0), 1e-6, 0);
        assert_fails(kn_backward(sum_all(kn_square(kn_watch(n.c)))), KN_ERR_INVALID,
                     "or on frozen ones alone; kn_gradients");
    }
    net_close(&n);
}

static kn_tensor *part(void *ctx, kn_tensor *const x[]) {
    return kn_linear(kn_tanh(kn_linear(x[0], ((net *)ctx)->a, KN_NONE)), x[1], KN_NONE);
}

/* A parameter that the part reads, and one that is among its inputs. */
static void recomputed_parts_may_have_frozen_parameters(void **state) {
    (void)state;
    KN_FRAME();
    const char *const frozen[] = {"a", "b"};
    for (int f = 0; f < 2; f++) {
        float grad[2][3][D * D];
        for (int k = 0; k < 2; k++) {
            net n;
            net_open(&n, sgd);
            assert_ok(kn_params_freeze(n.set, frozen[f], true));
            {
                KN_TAPE();
                kn_tensor *x[] = {n.x, n.b};
                kn_tensor *h = k ? kn_recompute(part, &n, x, 2, NULL) : part(&n, x);
                assert_ok(kn_backward(sum_all(kn_square(kn_linear(h, n.c, KN_NONE)))));
            }
            for (int i = 0; i < 3; i++)
                assert_ok(kn_copy_out(grad[k][i], sizeof grad[k][i],
                                      kn_grad(kn_params_at(n.set, i, NULL))));
            net_close(&n);
        }
        assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
        for (int i = 0; i < 3; i++) assert_int_equal(grad[0][i][0] == 0, i == f);
    }
}

static void replays_leave_it_alone(void **state) {
    (void)state;
    KN_FRAME();
    net n;
    kn_capture *capture = NULL;
    net_open(&n, adam);
    assert_ok(kn_params_freeze(n.set, "b", true));
    assert_ok(kn_capture_create(&capture, NULL));
    values b = values_of(&n, "b.weight");
    for (int t = 0; t < 4; t++) {
        values a = values_of(&n, "a.weight");
        assert_ok(kn_capture_run(NULL, 0, capture, NULL, 0, step, &n));
        values now = values_of(&n, "b.weight");
        assert_memory_equal(now.w[0], b.w[0], sizeof b.w[0]);
        now = values_of(&n, "a.weight");
        assert_memory_not_equal(now.w[0], a.w[0], sizeof a.w[0]);
    }
    kn_capture_destroy(capture);
    net_close(&n);
}

/* --- other kinds of optimisers --- */

static void a_sharded_optimiser_leaves_it_alone(void **state) {
    (void)state;
    KN_FRAME();
    net n;
    net_open(&n, momentum);
    assert_ok(step(NULL, NULL, &n));
    kn_optim_range all = {0, kn_tensor_numel(kn_params_grad(n.set))};
    assert_ok(kn_optim_shard(n.optim, &all, 1, NULL, NULL));
    assert_ok(kn_params_freeze(n.set, "b", true));
    float w[2][D * D], c[D * D];
    assert_ok(kn_copy_out(w[0], sizeof w[0], n.b));
    assert_ok(kn_copy_out(c, sizeof c, n.c));
    assert_ok(step(NULL, NULL, &n));
    assert_ok(kn_copy_out(w[1], sizeof w[1], n.b));
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_not_equal(c, kn_data(n.c), sizeof c);
    net_close(&n);
}

static void turns_leave_it_alone(void **state) {
    (void)state;
    KN_FRAME();
    net n;
    net_open(&n, momentum);
    assert_ok(kn_optim_turns(n.optim, (const char *const[]){"a", ""}, 2));
    float b[D * D], c[D * D];
    for (int t = 0; t < 2; t++) {
        KN_TAPE();
        assert_ok(kn_copy_out(b, sizeof b, n.b));
        assert_ok(kn_copy_out(c, sizeof c, n.c));
        assert_ok(kn_backward(net_loss(&n)));
        assert_ok(kn_optim_turn_step(n.optim, 1));
        assert_memory_not_equal(c, kn_data(n.c), sizeof c);
        assert_int_equal(memcmp(b, kn_data(n.b), sizeof b) == 0, t);
        assert_ok(kn_params_freeze(n.set, "b", true));
    }
    net_close(&n);
}

static void rows_leave_it_alone(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    kn_tensor *table = kn_param(set, KN_SHAPE(4, 2), kn_init_normal(0, 1), "table");
    kn_tensor *w = kn_param(set, KN_SHAPE(2), kn_init_normal(0, 1), "w");
    assert_ok(kn_param_sparse(table));
    assert_ok(momentum(&optim, set));
    float before[8], w_before[2];
    for (int t = 0; t < 3; t++) {
        KN_TAPE();
        assert_ok(kn_copy_out(before, sizeof before, table));
        assert_ok(kn_copy_out(w_before, sizeof w_before, w));
        int64_t index[] = {1, 3};
        kn_tensor *rows = kn_embedding(table, kn_tensor_from(index, KN_I64, KN_SHAPE(2)));
        assert_ok(kn_backward(sum_all(kn_mul(kn_square(rows), w))));
        if (t == 2) assert_ok(kn_params_freeze(set, "table", true)); /* its gradient is there */
        assert_ok(kn_optim_step(optim));
        assert_int_equal(memcmp(before, kn_data(table), sizeof before) == 0, t > 1);
        assert_memory_not_equal(w_before, kn_data(w), sizeof w_before);
    }
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void a_norm_leaves_it_out(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 0), *b = PARAM(set, KN_SHAPE(1), "b", 0);
    assert_ok(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_norm = 1}));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_add(kn_affine(a, 1000, 0), kn_affine(b, 2, 0)))));
    }
    assert_ok(kn_params_freeze(set, "a", true)); /* has a gradient already */
    assert_ok(kn_optim_step(optim));
    assert_values(a, 0);
    assert_close(ops_at(b, 0), -1, 1e-5, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static kn_status freeze_inside(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)out, (void)in;
    return kn_params_freeze(((net *)ctx)->set, "a", true);
}

/* Zeros would be wrong where y depends on it. */
static void gradients_by_it_are_an_error_unless_it_is_watched(void **state) {
    (void)state;
    static const char why[] = "x[1] is the parameter 'b.weight', which kn_params_freeze made a";
    KN_FRAME();
    net n;
    net_open(&n, sgd);
    assert_ok(kn_params_freeze(n.set, "b.", true));
    {
        KN_TAPE();
        kn_tensor *x[2] = {n.a, n.b}, *dx[2] = {NULL}, *y = sum_all(kn_mul(n.a, n.b));
        assert_fails(kn_gradients(dx, y, x, 2, NULL), KN_ERR_INVALID, why);
        assert_fails(kn_jvp(dx, y, x, x, 2), KN_ERR_INVALID, why);
        x[1] = kn_watch(n.b);
        assert_ok(kn_gradients(dx, sum_all(kn_mul(n.a, x[1])), x, 2, NULL));
        assert_close(ops_at(dx[0], 1), ops_at(n.b, 1), 0, 0);
        assert_close(ops_at(dx[1], 1), ops_at(n.a, 1), 0, 0);
    }
    net_close(&n);
}

static void wrong_calls_say_why(void **state) {
    (void)state;
    KN_FRAME();
    net n;
    kn_capture *capture = NULL;
    net_open(&n, sgd);
    assert_fails(kn_params_freeze(NULL, "a", true), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_params_freeze(n.set, NULL, true), KN_ERR_INVALID, "prefix is NULL");
    assert_fails(kn_params_freeze(n.set, "x", true), KN_ERR_INVALID, "begins with 'x'");
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_capture_run(NULL, 0, capture, NULL, 0, freeze_inside, &n)); /* as it is */
    assert_fails(kn_capture_run(NULL, 0, capture, NULL, 0, freeze_inside, &n), KN_ERR_INVALID,
                 "captured step");
    kn_capture_destroy(capture);
    net_close(&n);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_layer_in_the_middle_stands_still), OPS_TEST(gradients_flow_through_it),
        OPS_TEST(backward_computes_no_gradient_by_it),
        OPS_TEST(recomputed_parts_may_have_frozen_parameters), OPS_TEST(replays_leave_it_alone),
        OPS_TEST(a_sharded_optimiser_leaves_it_alone), OPS_TEST(turns_leave_it_alone),
        OPS_TEST(rows_leave_it_alone), OPS_TEST(a_norm_leaves_it_out),
        OPS_TEST(gradients_by_it_are_an_error_unless_it_is_watched), OPS_TEST(wrong_calls_say_why));
}
