#include <time.h>

#include "kernels_test.h"

enum { PARTS = 3, TOTAL = 40000 };
static const int64_t part_size[PARTS] = {20011, 3, 17000};
static const int64_t part_at[PARTS] = {0, 20013, 20020}; /* with gaps, and unaligned */

typedef struct model {
    kn_tensor *w[PARTS], *grad, *m, *v, *hyper;
    kn_optim_part part[PARTS];
    kn_attr_optim attr;
    double want_w[TOTAL], want_m[TOTAL], want_v[TOTAL];
} model;

static model *model_create(kn_dtype dtype) {
    model *k = calloc(1, sizeof *k);
    assert_non_null(k);
    k->grad = random_tensor(dtype, KN_SHAPE(TOTAL));
    k->m = from_doubles(k->want_m, dtype, KN_SHAPE(TOTAL));
    k->v = from_doubles(k->want_v, dtype, KN_SHAPE(TOTAL));
    k->hyper = F64(KN_SHAPE(4), 0.1, 0, 0.5, 0);
    for (int i = 0; i < PARTS; i++) {
        k->w[i] = random_tensor(dtype, KN_SHAPE(part_size[i]));
        k->part[i] = (kn_optim_part){k->w[i], part_at[i], part_size[i], 1 + i, 1 + 2 * i};
        for (int64_t j = 0; j < part_size[i]; j++) k->want_w[part_at[i] + j] = ops_at(k->w[i], j);
    }
    k->attr = (kn_attr_optim){k->part, PARTS, 0.9, 0.8, 0.95, 1e-6, 0.01, 0};
    return k;
}

/* One step of the reference on element `i` of a part; hyper: rate 0.1, scale 0.5. */
static void reference(model *k, kn_op op, int part, int64_t i, double step) {
    double *w = &k->want_w[i], *m = &k->want_m[i], *v = &k->want_v[i];
    double lr = 0.1 * k->part[part].rate, decay = k->attr.weight_decay * k->part[part].decay;
    double g = ops_at(k->grad, i) * 0.5, x = g + decay * *w;
    if (op == KN_OP_sgd_step) {
        *w -= lr * x;
    } else if (op == KN_OP_momentum_step) {
        *m = 0.9 * *m - lr * x;
        *w += *m;
    } else if (op == KN_OP_nesterov_step) { /* Knet's form */
        double old = 0.9 * *m;
        *m = old - lr * x;
        *w += -old + 1.9 * *m;
    } else if (op == KN_OP_adagrad_step) {
        *v += x * x;
        *w -= lr * x / sqrt(*v + 1e-6);
    } else if (op == KN_OP_rmsprop_step) {
        *v = 0.95 * *v + 0.05 * x * x;
        *w -= lr * x / sqrt(*v + 1e-6);
    } else if (op == KN_OP_adadelta_step) {
        *v = 0.95 * *v + 0.05 * x * x;
        double d = x * sqrt(*m + 1e-6) / sqrt(*v + 1e-6);
        *w -= lr * d;
        *m = 0.95 * *m + 0.05 * d * d;
    } else if (op == KN_OP_ema_step) {
        *m = 0.9 * *m + 0.1 * *w;
    } else {
        *m = 0.8 * *m + 0.2 * g;
        *v = 0.95 * *v + 0.05 * g * g;
        double m_hat = *m / (1 - pow(0.8, step)), v_hat = *v / (1 - pow(0.95, step));
        *w -= lr * decay * *w + lr * m_hat / (sqrt(v_hat) + 1e-6);
    }
}

/* LAMB looks at a part as a whole. */
static void lamb_reference(model *k, int part, double step) {
    double weights = 0, steps = 0, *r = calloc((size_t)part_size[part], sizeof *r);
    assert_non_null(r);
    for (int64_t j = 0; j < part_size[part]; j++) {
        int64_t i = part_at[part] + j;
        double *w = &k->want_w[i], *m = &k->want_m[i], *v = &k->want_v[i];
        double g = ops_at(k->grad, i) * 0.5;
        *m = 0.8 * *m + 0.2 * g;
        *v = 0.95 * *v + 0.05 * g * g;
        double m_hat = *m / (1 - pow(0.8, step)), v_hat = *v / (1 - pow(0.95, step));
        r[j] = m_hat / (sqrt(v_hat) + 1e-6) + 0.01 * k->part[part].decay * *w;
        weights += *w * *w;
        steps += r[j] * r[j];
    }
    for (int64_t j = 0; j < part_size[part]; j++)
        k->want_w[part_at[part] + j] -= 0.1 * k->part[part].rate * sqrt(weights / steps) * r[j];
    free(r);
}

static void part_reference(model *k, kn_op op, int part, double step) {
    if (op == KN_OP_lamb_step) {
        lamb_reference(k, part, step);
        return;
    }
    for (int64_t j = 0; j < part_size[part]; j++) reference(k, op, part, part_at[part] + j, step);
}

static void check(kn_op op, kn_dtype dtype) {
    KN_FRAME();
    model *k = model_create(dtype);
    for (int step = 1; step <= 3; step++) {
        assert_ok(kn_optim_run(op, &k->attr, k->grad, k->m, k->v, k->hyper));
        assert_close(((const double *)kn_data(k->hyper))[1], step, 0, 0);
        for (int i = 0; i < PARTS; i++) part_reference(k, op, i, step);
    }
    double tol = 10 * tolerance(dtype);
    for (int i = 0; i < PARTS; i++)
        for (int64_t j = 0; j < part_size[i]; j++)
            assert_close(ops_at(k->w[i], j), k->want_w[part_at[i] + j], tol, tol);
    for (int64_t j = 0; j < TOTAL; j++) { /* the gaps stay as they were */
        assert_close(ops_at(k->m, j), k->want_m[j], tol, tol);
        assert_close(ops_at(k->v, j), k->want_v[j], tol, tol);
    }
    free(k);
}

static void sgd_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_sgd_step, dtype);
}
static void momentum_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_momentum_step, dtype);
}
static void adam_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_adam_step, dtype);
}

static void nesterov_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_nesterov_step, dtype);
}
static void adagrad_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_adagrad_step, dtype);
}
static void rmsprop_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_rmsprop_step, dtype);
}
static void adadelta_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_adadelta_step, dtype);
}
static void lamb_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_lamb_step, dtype);
}
static void averages_of_weights_match_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) check(KN_OP_ema_step, dtype);
}

static void unused_state_may_be_absent(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *w = F32(KN_SHAPE(2), 1, 2), *g = F32(KN_SHAPE(2), 10, 20);
    kn_attr_optim attr = {&(kn_optim_part){w, 0, 2, 1, 1}, 1, 0, 0, 0, 0, 0, 0};
    assert_ok(
        kn_optim_run(KN_OP_sgd_step, &attr, g, KN_NONE, KN_NONE, F64(KN_SHAPE(4), 0.1, 0, 1, 0)));
    assert_values(w, 0, 0);
}

/* One of many parameters is found by its number: walks over those before it would take half a
 * minute here. */
static void many_parameters_take_a_step_at_once(void **state) {
    (void)state;
    enum { MANY = 200000 };
    kn_optim_part *part = malloc(MANY * sizeof *part);
    assert_non_null(part);
    KN_FRAME(.threads = 1);
    kn_tensor *w = kn_zeros(KN_SHAPE(MANY)), *g = kn_ones(KN_SHAPE(MANY));
    int64_t at = 0;
    for (int i = 0; i < MANY; i++) {
        int64_t n = i % 3; /* none, one or two elements; those at the end have no parameter */
        part[i] = (kn_optim_part){kn_tensor_view(w, KN_SHAPE(n), at), at, n, 1 + i % 5, 1};
        at += n;
    }
    kn_attr_optim attr = {.part = part, .n_parts = MANY};
    clock_t before = clock();
    assert_ok(
        kn_optim_run(KN_OP_sgd_step, &attr, g, KN_NONE, KN_NONE, F64(KN_SHAPE(4), 1, 0, 1, 0)));
    assert_true(clock() - before < 3 * CLOCKS_PER_SEC);
    const float *moved = kn_data(w);
    for (int i = 0; i < MANY; i++)
        for (int64_t j = 0; j < part[i].n; j++)
            assert_true(moved[part[i].offset + j] == -(float)part[i].rate);
    for (; at < MANY; at++) assert_true(moved[at] == 0);
    free(part);
}

static void threads_change_no_bit(kn_op op) {
    KN_FRAME();
    static const float zeros[50000];
    kn_tensor *start = random_tensor(KN_F32, KN_SHAPE(50000));
    kn_tensor *grad = random_tensor(KN_F32, KN_SHAPE(50000)), *result[2];
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.threads = i ? 4 : 1);
        kn_tensor *w = kn_tensor_from(kn_data(start), KN_F32, KN_SHAPE(50000)),
                  *m = kn_tensor_from(zeros, KN_F32, KN_SHAPE(50000));
        kn_tensor *v = kn_tensor_from(zeros, KN_F32, KN_SHAPE(50000));
        kn_attr_optim attr = {&(kn_optim_part){w, 0, 50000, 1, 1}, 1, 0, 0.9, 0.999, 1e-8, 0, 0};
        assert_ok(kn_optim_run(op, &attr, grad, m, v, F64(KN_SHAPE(4), 0.1, 0, 1, 0)));
        result[i] = kn_keep(w);
    }
    assert_same_bits(result[0], result[1]);
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    threads_change_no_bit(KN_OP_adam_step);
    threads_change_no_bit(KN_OP_lamb_step);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(sgd_matches_the_reference), OPS_TEST(momentum_matches_the_reference),
        OPS_TEST(nesterov_matches_the_reference), OPS_TEST(adagrad_matches_the_reference),
        OPS_TEST(rmsprop_matches_the_reference), OPS_TEST(adadelta_matches_the_reference),
        OPS_TEST(averages_of_weights_match_the_reference), OPS_TEST(adam_matches_the_reference),
        OPS_TEST(lamb_matches_the_reference), OPS_TEST(unused_state_may_be_absent),
        OPS_TEST(many_parameters_take_a_step_at_once),
        OPS_TEST(the_number_of_threads_changes_no_bit));
}
