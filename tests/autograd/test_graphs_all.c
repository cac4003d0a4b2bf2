/* Random graphs of nearly all differentiable functions of arrays: each step takes values of the
 * graph into the function's domain and gives its result the shape [ROWS,COLUMNS] again. Checked
 * against finite differences, first and second order. test_graphs.c has fewer functions and more
 * ways in which gradients meet.
 *
 * A graph follows from its seed alone. Ties and kinks are out of reach of the differences. */
#include <knet/linalg.h>
#include <knet/statistics.h>

#include "autograd_test.h"

enum { ROWS = 3, COLUMNS = 4, ALL = ROWS * COLUMNS, STEPS_MAX = 5 };
#define N_OF(a) ((int)(sizeof(a) / sizeof *(a)))

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

/* --- domains --- */

static kn_tensor *small(kn_tensor *x) { return kn_affine(kn_tanh(x), 0.5, 0); }   /* ±0.5 */
static kn_tensor *share(kn_tensor *x) { return kn_affine(kn_tanh(x), 0.2, 0.5); } /* 0.3 … 0.7 */
static kn_tensor *positive(kn_tensor *x) { return kn_affine(kn_tanh(x), 0.4, 1.8); } /* 1.4 … 2.2 */
static kn_tensor *negative(kn_tensor *x) { return kn_neg(positive(x)); }

/* Distinct numbers, far apart: their order is that of a permutation. */
static kn_tensor *distinct(graph *g, kn_tensor *x) {
    double value[ALL];
    const int first = pick(g, ALL);
    for (int i = 0; i < ALL; i++) value[i] = 0.8 * ((i * 7 + first) % ALL);
    kn_tensor *places = kn_tensor_from(value, KN_F64, KN_SHAPE(ROWS, COLUMNS));
    return kn_add(kn_affine(kn_tanh(x), 0.1, 0), places);
}

/* The first rows and columns, with d, 1.6·d, 2.2·d on the diagonal. */
static kn_tensor *square_of(kn_tensor *x, double d) {
    const double diagonal[] = {d, 0, 0, 0, 1.6 * d, 0, 0, 0, 2.2 * d};
    kn_tensor *a = kn_slice(small(x), KN_SHAPE(0, 0), KN_SHAPE(ROWS, ROWS));
    return kn_add(a, kn_tensor_from(diagonal, KN_F64, KN_SHAPE(ROWS, ROWS)));
}

static kn_tensor *symmetric_of(kn_tensor *x) {
    kn_tensor *a = square_of(x, 3);
    return kn_affine(kn_add(a, kn_transpose(a, KN_ALL)), 0.5, 0);
}

/* --- steps --- */

typedef kn_tensor *(*one_fn)(kn_tensor *);
typedef kn_tensor *(*two_fn)(kn_tensor *, kn_tensor *);

static kn_tensor *pointwise(graph *g, kn_tensor *x) {
    static const one_fn anywhere[] = {
        kn_square, kn_exp,   kn_exp2,     kn_expm1,    kn_sin,      kn_cos,        kn_erf,
        kn_erfc,   kn_erfcx, kn_sinh,     kn_cosh,     kn_asinh,    kn_atan,       kn_sech,
        kn_sinpi,  kn_cospi, kn_gelu,     kn_silu,     kn_softplus, kn_logsigmoid, kn_mish,
        kn_tanh,   kn_sigm,  kn_log_cosh, kn_besselj0, kn_besselj1, kn_gelu_tanh,  kn_tanhshrink};
    static const one_fn above_one[] = {
        kn_reciprocal, kn_rsqrt,    kn_log,      kn_log2,     kn_log10, kn_log1p, kn_sqrt,
        kn_cbrt,       kn_gamma,    kn_lgamma,   kn_acosh,    kn_asec,  kn_acsc,  kn_acoth,
        kn_coth,       kn_csch,     kn_acot,     kn_acsch,    kn_cot,   kn_csc,   kn_selu,
        kn_digamma,    kn_trigamma, kn_bessely0, kn_bessely1, kn_relu,  kn_abs,   kn_softsign};
    static const one_fn below_zero[] = {kn_selu, kn_abs, kn_relu, kn_softsign};
    static const one_fn shares[] = {kn_tan,   kn_asin,   kn_acos,    kn_atanh,
                                    kn_asech, kn_erfinv, kn_erfcinv, kn_logit};
    switch (pick(g, 8)) {
        case 0:
            return kn_elu(pick(g, 2) ? positive(x) : negative(x), 1.3);
        case 1:
            return kn_celu(pick(g, 2) ? positive(x) : negative(x), 1.3);
        case 2:
            return kn_polygamma(positive(x), 3);
        case 3:
            return kn_pow_scalar(positive(x), -1.7);
        case 4:
            return below_zero[pick(g, N_OF(below_zero))](negative(x));
        case 5:
            return shares[pick(g, N_OF(shares))](share(x));
        case 6:
            return above_one[pick(g, N_OF(above_one))](positive(x));
        default:
            return anywhere[pick(g, N_OF(anywhere))](small(x));
    }
}

static kn_tensor *of_two(graph *g, kn_tensor *a, kn_tensor *b) {
    static const two_fn anywhere[] = {kn_add,         kn_sub,       kn_mul,
                                      kn_square_diff, kn_logaddexp, kn_gate};
    static const two_fn above_one[] = {kn_div, kn_atan2, kn_hypot, kn_xlogy, kn_pow, kn_copysign};
    static const two_fn apart[] = {kn_maximum, kn_minimum, kn_abs_diff};
    switch (pick(g, 10)) {
        case 0:
            return anywhere[pick(g, N_OF(anywhere))](small(a), small(b));
        case 1:
            return above_one[pick(g, N_OF(above_one))](positive(a), positive(b));
        case 2:
            return apart[pick(g, N_OF(apart))](positive(a), negative(b));
        case 3:
            return kn_axpby(a, b, 0.3, -0.4);
        case 4:
            return kn_lerp(small(a), small(b), share(a));
        case 5:
            return kn_addcmul(small(a), small(b), share(a), 0.7);
        case 6:
            return kn_huber_terms(positive(a), negative(b), pick(g, 2) ? 0.3 : 9);
        case 7:
            return kn_bce_terms(share(a), share(b));
        case 8:
            return kn_kl_terms(small(a), share(b));
        default:
            return kn_logistic_terms(small(a), small(b));
    }
}

static kn_tensor *product(graph *g, kn_tensor *a, kn_tensor *b) {
    kn_tensor *u = small(a), *v = small(b);
    switch (pick(g, 9)) {
        case 0:
            return kn_matmul(u, v, &(kn_matmul_options){.trans_b = 1});
        case 1:
            return kn_dot(u, v);
        case 2:
            return kn_outer(kn_reshape(u, KN_SHAPE(ALL)), kn_select(v, 1, 0));
        case 3:
            return kn_kron(u, kn_slice(v, KN_SHAPE(0, 0), KN_SHAPE(2, 2)));
        case 4:
            return kn_einsum("ij,ik->kj", KN_LIST_(u, v), 2);
        case 5:
            return kn_solve(square_of(a, 3), v, NULL);
        case 6:
            return kn_triangular_solve(square_of(a, 3), v,
                                       &(kn_solve_options){.upper = pick(g, 2)});
        case 7:
            return kn_cross(u, v, 0);
        default:
            return kn_tensordot(u, v, KN_SHAPE(0), KN_SHAPE(0));
    }
}

static kn_tensor *reduced(graph *g, kn_tensor *x) {
    static const kn_shape some[] = {{.n_dims = 1, .dim = {0}}, {.n_dims = 1, .dim = {1}}};
    const kn_shape axes = pick(g, 3) ? some[pick(g, 2)] : KN_ALL;
    const bool keep = pick(g, 2);
    switch (pick(g, 16)) {
        case 0:
            return kn_sum(x, axes, keep);
        case 1:
            return kn_mean(x, axes, keep);
        case 2:
            return kn_sum_square(small(x), axes, keep);
        case 3:
            return kn_sum_abs(pick(g, 2) ? positive(x) : negative(x), axes, keep);
        case 4:
            return kn_prod(share(x), axes, keep);
        case 5:
            return kn_norm(positive(x), pick(g, 2) ? 2 : 1.5, axes, keep);
        case 6:
            return kn_logsumexp(small(x), axes, keep);
        case 7:
            return kn_var(distinct(g, x), axes, keep, NULL);
        case 8:
            return kn_std(distinct(g, x), axes, keep, NULL);
        case 9:
            return kn_max(distinct(g, x), axes, keep);
        case 10:
            return kn_min(distinct(g, x), axes, keep);
        case 11:
            return kn_max_abs(kn_neg(kn_affine(distinct(g, x), 1, 1)), axes, keep);
        case 12:
            return kn_min_abs(kn_affine(distinct(g, x), 1, 1), axes, keep);
        case 13:
            return kn_nan_sum(x, axes, keep);
        case 14:
            return kn_nan_mean(x, axes, keep);
        default:
            return kn_quantile(distinct(g, x), 0.37, axes, keep);
    }
}

static kn_tensor *first_of(kn_status status, kn_tensor **t) {
    return status == KN_OK ? *t : kn_error_defer(status);
}

static kn_tensor *along(graph *g, kn_tensor *x) {
    const int axis = pick(g, 2);
    kn_tensor *y = NULL;
    switch (pick(g, 10)) {
        case 0:
            return kn_cumsum(x, axis);
        case 1:
            return kn_cumprod(share(x), axis);
        case 2:
            return kn_cummax(distinct(g, x), axis);
        case 3:
            return kn_logcumsumexp(small(x), axis);
        case 4:
            return kn_softmax(small(x), axis);
        case 5:
            return kn_logsoftmax(small(x), axis);
        case 6:
            return kn_sort(distinct(g, x), axis, pick(g, 2));
        case 7:
            return kn_diff(x, 1 + pick(g, 2), axis);
        case 8:
            return first_of(kn_topk(&y, NULL, distinct(g, x), 2, axis, pick(g, 2)), &y);
        default:
            return first_of(kn_max_index(&y, NULL, distinct(g, x), KN_SHAPE(axis), true), &y);
    }
}

static kn_tensor *indices(graph *g, int64_t n, int64_t rows, int64_t columns) {
    int64_t index[ALL];
    for (int64_t i = 0; i < rows * columns; i++) index[i] = pick(g, (int)n);
    kn_shape shape = columns > 1 ? KN_SHAPE(rows, columns) : KN_SHAPE(rows);
    return kn_tensor_from(index, KN_I64, shape);
}

static kn_tensor *moved(graph *g, kn_tensor *x, kn_tensor *other) {
    const int axis = pick(g, 2);
    const int64_t n = axis ? COLUMNS : ROWS;
    switch (pick(g, 18)) {
        case 0:
            return kn_pad(x, KN_SHAPE(1, 0), KN_SHAPE(0, 2), KN_PAD_CONSTANT, 1.5);
        case 1:
            return kn_pad(x, KN_SHAPE(1, 1), KN_SHAPE(1, 2), KN_PAD_REFLECT, 0);
        case 2:
            return kn_roll(x, pick(g, 9) - 4, axis);
        case 3:
            return kn_flip(x, KN_SHAPE(axis));
        case 4:
            return kn_repeat(x, 2, axis);
        case 5:
            return kn_tile(x, KN_SHAPE(2, 1));
        case 6:
            return kn_triu(x, pick(g, 5) - 2);
        case 7:
            return kn_tril(x, pick(g, 5) - 2);
        case 8:
            return kn_select(x, pick(g, (int)n), axis);
        case 9:
            return kn_gather(x, indices(g, n, ROWS, COLUMNS), axis);
        case 10:
            return kn_scatter_add(x, indices(g, ROWS, ROWS, COLUMNS), other, 0);
        case 11:
            return kn_index_select(x, indices(g, n, 5, 1), axis);
        case 12:
            return kn_index_add(x, indices(g, ROWS, ROWS, 1), other, 0);
        case 13:
            return kn_diagonal(x, pick(g, 3) - 1, 0, 1);
        case 14:
            return kn_concat(KN_LIST_(x, other), 2, axis);
        case 15:
            return kn_stack(KN_LIST_(x, other), 2, pick(g, 3));
        case 16:
            return kn_block_diag(KN_LIST_(x, other), 2);
        default:
            return kn_where(
                kn_gt(distinct(g, kn_zeros(KN_SHAPE(ROWS, COLUMNS))), kn_full(KN_SCALAR, 4)), x,
                other);
    }
}

static kn_tensor *factored(graph *g, kn_tensor *x) {
    kn_tensor *a = NULL, *b = NULL,
              *wide = kn_add(small(x), kn_affine(kn_eye(ROWS, COLUMNS), 3, 0));
    switch (pick(g, 9)) {
        case 0:
            return kn_inverse(square_of(x, 3));
        case 1:
            return kn_affine(kn_det(square_of(x, 3)), 0.01, 0);
        case 2:
            return kn_logdet(square_of(x, 3));
        case 3:
            return kn_cholesky(symmetric_of(x));
        case 4:
            return first_of(kn_qr(&a, &b, kn_transpose(wide, KN_ALL)), pick(g, 2) ? &a : &b);
        case 5:
            return first_of(kn_eigh(&a, &b, symmetric_of(x)), &a);
        case 6:
            return kn_pinv(wide, -1);
        case 7:
            return kn_lstsq(kn_transpose(wide, KN_ALL), kn_transpose(small(x), KN_ALL));
        default:
            return kn_matrix_power(kn_affine(square_of(x, 3), 0.3, 0), pick(g, 5) - 2);
    }
}

/* [ROWS,COLUMNS] of what a step gave, in ±0.5. */
static kn_tensor *shaped(kn_tensor *x) {
    if (!x) return NULL;
    const int64_t n = kn_tensor_numel(x);
    x = kn_reshape(x, KN_SHAPE(n));
    if (n < ALL) x = kn_tile(x, KN_SHAPE((ALL + n - 1) / n));
    return small(kn_reshape(kn_slice(x, KN_SHAPE(0), KN_SHAPE(ALL)), KN_SHAPE(ROWS, COLUMNS)));
}

static kn_tensor *step(graph *g, kn_tensor *a, kn_tensor *b) {
    switch (pick(g, 12)) {
        case 0:
        case 1:
        case 2:
            return pointwise(g, a);
        case 3:
        case 4:
            return of_two(g, a, b);
        case 5:
            return product(g, a, b);
        case 6:
        case 7:
            return reduced(g, a);
        case 8:
            return along(g, a);
        case 9:
        case 10:
            return moved(g, a, b);
        default:
            return factored(g, a);
    }
}

static kn_tensor *build(void *ctx, kn_tensor *const x[]) {
    graph *g = ctx;
    kn_tensor *v[1 + STEPS_MAX] = {x[0]};
    g->state = g->seed;
    for (int i = 0; i < g->n_steps; i++) {
        kn_tensor *a = v[pick(g, i + 1)], *b = v[pick(g, i + 1)];
        if (!(v[i + 1] = shaped(step(g, a, b)))) return NULL;
    }
    double weight[ALL];
    for (int i = 0; i < ALL; i++) weight[i] = pick(g, 200) * 0.01 - 1;
    kn_tensor *w = kn_tensor_from(weight, KN_F64, KN_SHAPE(ROWS, COLUMNS));
    kn_tensor *y = kn_add(v[g->n_steps], kn_affine(v[g->n_steps / 2], 0.3, 0));
    return kn_sum(kn_mul(y, w), KN_ALL, false);
}

static void check_order(int order, int n_graphs) {
    for (int i = 0; i < n_graphs; i++) {
        KN_FRAME(.dtype = KN_F64);
        graph g = {.seed = test_random(), .n_steps = 1 + (int)test_random_below(STEPS_MAX)};
        double value[ALL];
        for (int k = 0; k < ALL; k++) value[k] = test_random_uniform(-0.9, 0.9);
        kn_tensor *x = kn_tensor_from(value, KN_F64, KN_SHAPE(ROWS, COLUMNS));
        double rtol = order == 1 ? 1e-6 : 1e-5, atol = order == 1 ? 1e-8 : 1e-7;
        if (kn_gradcheck(build, &g, &x, 1, order, rtol, atol) == KN_OK) continue;
        fail_msg("graph %d, seed %llu, %d steps: %s", i, (unsigned long long)g.seed, g.n_steps,
                 kn_last_error()->message);
    }
}

static void first_derivatives_are_those_of_finite_differences(void **state) {
    (void)state;
    check_order(1, 1500);
}

static void second_derivatives_are_those_of_finite_differences(void **state) {
    (void)state;
    check_order(2, 200);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(first_derivatives_are_those_of_finite_differences),
                     OPS_TEST(second_derivatives_are_those_of_finite_differences));
}
