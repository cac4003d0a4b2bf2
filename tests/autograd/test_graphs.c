/* Random graphs of ops: values used several times, broadcast, cut, turned and joined, so that
 * gradients meet in all the ways that backward knows. Checked against finite differences, first and
 * second order, and kn_backward against kn_gradients.
 *
 * A graph follows from its seed alone. Its steps keep values bounded, and each kink and each tie
 * out of reach of the differences. */
#include "autograd_test.h"

enum { ROWS = 3, COLUMNS = 4, INPUTS = 3, STEPS_MAX = 14, VALUES_MAX = INPUTS + STEPS_MAX };

typedef struct graph {
    uint64_t seed, state; /* state: while it is being made */
    int n_steps;
} graph;

static int pick(graph *g, int n) { /* splitmix64 */
    uint64_t z = (g->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

/* --- steps: from one or two values --- */

static int n_dims(kn_tensor *x) { return kn_tensor_shape(x).n_dims; }

/* …, -2, 6, … in another order: x in ±1 added to them keeps its sign and its place. */
static kn_tensor *far_apart(kn_tensor *like, int seed) {
    double values[ROWS * COLUMNS];
    int64_t n = kn_tensor_numel(like);
    for (int64_t i = 0; i < n; i++) values[i] = (double)((i * 7 + seed) % n * 8 - 4 * n + 2);
    return kn_tensor_from(values, KN_F64, kn_tensor_shape(like));
}

/* x moved away from zero, some elements up, some down. */
static kn_tensor *off_zero(graph *g, kn_tensor *x) {
    return kn_add(kn_tanh(x), far_apart(x, pick(g, 5)));
}

static kn_tensor *mask(graph *g, kn_tensor *like) {
    return kn_gt(far_apart(like, pick(g, 5)), kn_zeros(KN_SCALAR));
}

static kn_tensor *two_values(graph *g, kn_tensor *a, kn_tensor *b) {
    switch (pick(g, 9)) {
        case 0:
            return kn_affine(kn_add(a, b), 0.5, 0);
        case 1:
            return kn_affine(kn_sub(a, b), 0.5, 0.1);
        case 2:
            return kn_mul(kn_tanh(a), b);
        case 3:
            return kn_div(a, kn_affine(kn_mul(b, b), 1, 1.5));
        case 4:
            return kn_pow(kn_affine(kn_sigm(a), 1, 0.5), kn_tanh(b));
        case 5:
            return kn_where(mask(g, a), a, kn_tanh(b));
        case 6:
            return kn_affine(kn_maximum(off_zero(g, a), kn_affine(kn_tanh(b), 0.5, 0)), 0.1, 0);
        case 7:
            return kn_affine(kn_minimum(kn_affine(kn_tanh(b), 0.5, 0), off_zero(g, a)), 0.1, 0);
        default:
            return kn_add(kn_affine(a, 0.25, 0), kn_affine(b, -0.75, 0));
    }
}

static kn_tensor *pointwise(graph *g, kn_tensor *a) {
    switch (pick(g, 10)) {
        case 0:
            return kn_tanh(a);
        case 1:
            return kn_sigm(a);
        case 2:
            return kn_exp(kn_affine(kn_tanh(a), 0.5, 0));
        case 3:
            return kn_log(kn_affine(kn_mul(a, a), 0.25, 1));
        case 4:
            return kn_sqrt(kn_affine(kn_mul(a, a), 0.25, 0.5));
        case 5:
            return kn_pow_scalar(kn_affine(kn_mul(a, a), 1, 1), -1.5);
        case 6:
            return kn_affine(kn_relu(off_zero(g, a)), 0.1, 0);
        case 7:
            return kn_tanh(kn_affine(kn_abs(off_zero(g, a)), 0.1, 0));
        case 8:
            return kn_mul(a, kn_sign(off_zero(g, a)));
        default:
            return kn_neg(a);
    }
}

static kn_tensor *along_axis(graph *g, kn_tensor *a) {
    int axis = pick(g, n_dims(a));
    bool keep = pick(g, 2);
    switch (pick(g, 6)) {
        case 0:
            return kn_softmax(a, axis);
        case 1:
            return kn_affine(kn_logsoftmax(a, axis), 0.25, 0);
        case 2:
            return kn_mean(a, KN_SHAPE(axis), keep);
        case 3:
            return kn_affine(kn_sum(a, KN_SHAPE(axis), true), 0.25, 0);
        case 4:
            return kn_affine(kn_max(off_zero(g, a), KN_SHAPE(axis), keep), 0.1, 0);
        default:
            return kn_affine(kn_min(off_zero(g, a), KN_ALL, true), 0.1, 0);
    }
}

static kn_tensor *moved(graph *g, kn_tensor *a) {
    kn_shape shape = kn_tensor_shape(a), start = {.n_dims = shape.n_dims}, stop = shape;
    int axis = pick(g, shape.n_dims);
    start.dim[axis] = pick(g, (int)shape.dim[axis]);
    stop.dim[axis] = start.dim[axis] + 1;
    kn_tensor *twice[] = {a, kn_tanh(a)};
    switch (pick(g, 7)) {
        case 0:
            return kn_slice(a, start, stop);
        case 1:
            return kn_transpose(kn_transpose(a, KN_ALL), KN_ALL);
        case 2: { /* a and tanh a in turn, cut in the middle */
            kn_tensor *joined = kn_concat(twice, 2, axis);
            start = (kn_shape){.n_dims = shape.n_dims}, stop = shape;
            start.dim[axis] = shape.dim[axis] / 2;
            stop.dim[axis] = start.dim[axis] + shape.dim[axis];
            return kn_slice(joined, start, stop);
        }
        case 3:
            return kn_reshape(kn_flatten(kn_reshape(a, KN_SHAPE(-1))), shape);
        case 4:
            return kn_broadcast(kn_mean(a, KN_SHAPE(axis), true), shape);
        case 5:
            return kn_dropout(kn_cast(a, KN_F64), 0, NULL);
        default:
            return kn_to(kn_broadcast(a, shape), kn_device_host());
    }
}

/* [ROWS,COLUMNS] from any two values that broadcast to it. */
static kn_tensor *product(graph *g, kn_tensor *a, kn_tensor *b) {
    kn_shape shape = KN_SHAPE(ROWS, COLUMNS);
    a = kn_broadcast(a, shape), b = kn_broadcast(b, shape);
    kn_tensor *square =
        pick(g, 2) ? kn_matmul(a, kn_transpose(b, KN_ALL), NULL) : kn_linear(a, b, KN_NONE);
    return kn_affine(kn_matmul(square, kn_tanh(a), NULL), 1.0 / 16, 0);
}

/* Whether a value broadcasts to [ROWS,COLUMNS]. */
static bool fits(kn_tensor *x) {
    kn_shape s = kn_tensor_shape(x);
    if (s.n_dims > 2) return false;
    const int64_t whole[] = {ROWS, COLUMNS};
    for (int i = 0; i < s.n_dims; i++) {
        if (s.dim[i] != 1 && s.dim[i] != whole[2 - s.n_dims + i]) return false;
    }
    return true;
}

static kn_tensor *step(graph *g, kn_tensor *a, kn_tensor *b) {
    int kind = pick(g, 12);
    if (kind < 4) return two_values(g, a, b);
    if (kind < 6 || n_dims(a) == 0) return pointwise(g, a);
    if (kind < 8) return along_axis(g, a);
    return kind < 11 ? moved(g, a) : product(g, a, b);
}

/* One number on which every value has its part. */
static kn_tensor *result(kn_tensor *const v[], int n) {
    kn_tensor *y = kn_mean(v[n - 1], KN_ALL, false);
    for (int i = INPUTS; i < n - 1; i++) {
        y = kn_add(y, kn_affine(kn_mean(kn_mul(v[i], v[i]), KN_ALL, false), 0.3, 0));
    }
    return y;
}

static kn_tensor *build(void *ctx, kn_tensor *const x[]) {
    graph *g = ctx;
    kn_tensor *v[VALUES_MAX];
    int n = INPUTS;
    g->state = g->seed;
    for (int i = 0; i < INPUTS; i++) v[i] = x[i];
    for (int i = 0; i < g->n_steps; i++) {
        kn_tensor *a = v[pick(g, n)], *b = v[pick(g, n)], *y = step(g, a, b);
        if (!y) return NULL;
        if (fits(y)) v[n++] = y;
    }
    return result(v, n);
}

static graph random_graph(void) {
    return (graph){.seed = test_random(), .n_steps = 2 + (int)test_random_below(STEPS_MAX - 1)};
}

static const int64_t sizes[INPUTS][2] = {{ROWS, COLUMNS}, {1, COLUMNS}, {ROWS, 1}};

static void random_values(double *out, int i) {
    for (int j = 0; j < sizes[i][0] * sizes[i][1]; j++) out[j] = test_random_uniform(-1.2, 1.2);
}

/* --- properties --- */

static void check_order(int order, int n_graphs) {
    for (int i = 0; i < n_graphs; i++) {
        KN_FRAME(.dtype = KN_F64);
        graph g = random_graph();
        kn_tensor *x[INPUTS];
        for (int k = 0; k < INPUTS; k++) {
            double values[ROWS * COLUMNS];
            random_values(values, k);
            x[k] = kn_tensor_from(values, KN_F64, KN_SHAPE(sizes[k][0], sizes[k][1]));
        }
        double rtol = order == 1 ? 1e-7 : 1e-6, atol = order == 1 ? 1e-9 : 1e-8;
        if (kn_gradcheck(build, &g, x, INPUTS, order, rtol, atol) < 0) {
            fail_msg("graph %d, seed %llu, %d steps: %s", i, (unsigned long long)g.seed, g.n_steps,
                     kn_last_error()->message);
        }
    }
}

static void first_derivatives_are_those_of_finite_differences(void **state) {
    (void)state;
    check_order(1, 300);
}

static void second_derivatives_are_those_of_finite_differences(void **state) {
    (void)state;
    check_order(2, 60);
}

/* Gradients written and added straight into the parameters' arena are those handed out. */
static void backward_and_gradients_agree_on_parameters(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        graph g = random_graph();
        kn_params *set = NULL;
        assert_ok(kn_params_create(&set, &(kn_params_options){.dtype = KN_F64}));
        kn_tensor *w[INPUTS], *dw[INPUTS];
        for (int k = 0; k < INPUTS; k++) {
            w[k] = kn_param(set, KN_SHAPE(sizes[k][0], sizes[k][1]), (kn_init){0}, "w%d", k);
            assert_non_null(w[k]);
            random_values(kn_data_mut(w[k]), k);
        }
        {
            KN_TAPE(.dtype = KN_F64);
            kn_tensor *y = build(&g, w);
            assert_ok(kn_gradients(dw, y, w, INPUTS, &(kn_gradients_options){.keep = 1}));
            assert_ok(kn_tape_check());
            kn_status status = kn_backward(y);
            if (status < 0) assert_non_null(strstr(kn_last_error()->message, "no parameter"));
            for (int k = 0; status == KN_OK && k < INPUTS; k++) {
                for (int64_t j = 0; j < kn_tensor_numel(w[k]); j++) {
                    assert_close(ops_at(kn_grad(w[k]), j), ops_at(dw[k], j), 1e-12, 1e-13);
                }
            }
        }
        kn_params_destroy(set);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(first_derivatives_are_those_of_finite_differences),
                     OPS_TEST(second_derivatives_are_those_of_finite_differences),
                     OPS_TEST(backward_and_gradients_agree_on_parameters));
}
