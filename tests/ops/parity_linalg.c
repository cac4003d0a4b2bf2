/* Cases of linear algebra: broadcast products, activations, factorisations, solvers. */
#include "parity_case.h"

static parity_operand guard(parity_operand o) { return like(o, FILL_GUARD); }

/* --- products --- */

static void broadcast_product(parity_operand a, parity_operand b, parity_operand out, int trans,
                              bool accumulate) {
    parity_case *c = parity_add(KN_OP_matmul, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = a, c->in[1] = b, c->accumulate = accumulate;
    c->out[0] = accumulate ? out : guard(out);
    ATTR(c, kn_attr_matmul, (trans & 1) != 0, (trans & 2) != 0);
}

/* `given`: bit 0 a bias, bit 1 a residual. */
static void activated(int64_t rows, int64_t inputs, int64_t outputs, int given, kn_act act) {
    parity_case *c = parity_add(KN_OP_linear_act, COMPARE_CLOSE);
    c->n_in = 4, c->in[0] = U(rows, inputs), c->in[1] = U(outputs, inputs);
    if (given & 1) c->in[2] = U(outputs);
    if (given & 2) c->in[3] = U(rows, outputs);
    c->out[0] = OPERAND(GUARD, rows, outputs);
    ATTR(c, kn_attr_act, (int32_t)act);
}

/* accumulate: bit 0: into the weight's gradient; bit 1: into the bias's. */
static void weight_bias_of(int64_t rows, int64_t inputs, int64_t outputs, unsigned accumulate) {
    parity_case *c = parity_add(KN_OP_linear_weight_bias, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = U(rows, inputs), c->in[1] = U(rows, outputs);
    c->out[0] = U(outputs, inputs), c->out[1] = U(outputs), c->accumulate = (uint8_t)accumulate;
    for (int r = 0; r < 2; r++) {
        if (!(accumulate >> r & 1)) c->out[r].fill = FILL_GUARD;
    }
}

static void weight_gradients(void) {
    weight_bias_of(128, 784, 64, 0);
    weight_bias_of(100, 64, 10, 0);
    parity_halves_of(2);
    for (unsigned accumulate = 1; accumulate < 4; accumulate++)
        weight_bias_of(37, 131, 20, accumulate);
    weight_bias_of(1, 1, 1, 0);
    weight_bias_of(1, 300, 7, 0);
    weight_bias_of(1501, 5, 3, 2);
    weight_bias_of(2000, 1, 1, 0);
}

static void products(void) {
    broadcast_product(U(3, 5, 7), U(7, 4), U(3, 5, 4), 0, false);
    broadcast_product(U(5, 7), U(3, 7, 4), U(3, 5, 4), 0, true);
    broadcast_product(U(2, 1, 7, 5), U(3, 4, 7), U(2, 3, 5, 4), 3, false);
    broadcast_product(U(2, 1, 1, 5, 6), U(3, 4, 6, 2), U(2, 3, 4, 5, 2), 0, false);
    broadcast_product(U(30, 33, 17), U(30, 17, 9), U(30, 33, 9), 0, true);
    broadcast_product(U(1, 3, 0), U(4, 0, 2), U(4, 3, 2), 0, false);
    weight_gradients();
    for (int act = KN_ACT_NONE; act < KN_ACTS; act++) {
        for (int given = act ? 0 : 2; given < 4; given++) {
            activated(100, 64, 10, given, (kn_act)act);
            parity_halves_of(1);
            activated(301, 203, 151, given, (kn_act)act);
            activated(1, 5, 3, given, (kn_act)act);
            activated(4, 0, 3, given, (kn_act)act);
        }
    }
}

/* --- triangles --- */

static void tri_scale(double below, double on, double above, parity_operand x) {
    parity_case *c = parity_add(KN_OP_tri_scale, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = x, c->out[0] = guard(x);
    ATTR(c, kn_attr_tri_scale, below, on, above);
}

static void triangular(parity_operand a, parity_operand b, uint32_t bits) {
    parity_case *c = parity_add(KN_OP_triangular_solve, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = like(a, FILL_DEFINITE), c->in[1] = b, c->out[0] = guard(b);
    ATTR(c, kn_attr_solve, bits & 1, bits >> 1 & 1, 0);
}

static void triangles(void) {
    tri_scale(1, 1, 0, U(5, 5));
    tri_scale(0, 0.5, 1, U(3, 7, 4));
    tri_scale(0, 1, 0, OPERAND(SPECIAL, 2, 9, 130));
    tri_scale(1, 0, -2, U(1, 1));
    for (uint32_t bits = 0; bits < 4; bits++) {
        triangular(U(1, 1), U(1, 3), bits);
        triangular(U(7, 7), U(7, 5), bits);
        triangular(U(2, 3, 33, 33), U(2, 3, 33, 2), bits);
        triangular(U(150, 150), U(150, 131), bits);
        triangular(U(9, 32, 32), U(9, 32, 64), bits);
        triangular(U(6, 65, 65), U(6, 65, 89), bits);
    }
    parity_case *c = parity_add(KN_OP_triangular_solve, COMPARE_CLOSE); /* a unit diagonal */
    c->n_in = 2, c->in[0] = U(6, 6), c->in[1] = U(6, 4), c->out[0] = OPERAND(GUARD, 6, 4);
    ATTR(c, kn_attr_solve, 0, 1, 1);
}

/* --- factorisations --- */

static parity_case *of_matrix(kn_op op, parity_operand a) {
    parity_case *c = parity_add(op, COMPARE_CLOSE);
    c->n_in = 1, c->in[0] = a;
    return c;
}

static parity_operand last_two(parity_operand a, int64_t rows, int64_t columns) {
    int n = a.shape.n_dims;
    a.shape.dim[n - 2] = rows, a.shape.dim[n - 1] = columns;
    return guard(a);
}

static parity_operand without(parity_operand a, int dims, int64_t last) {
    a.shape.n_dims -= dims;
    if (last) a.shape.dim[a.shape.n_dims - 1] = last;
    return guard(a);
}

/* What small matrices have kernels for. */
static void solved(parity_operand a, int64_t columns) {
    int64_t n = a.shape.dim[a.shape.n_dims - 1];
    of_matrix(KN_OP_cholesky, a)->out[0] = guard(a);
    parity_case *c = of_matrix(KN_OP_inverse, a);
    c->n_in = 2, c->in[1] = NONE, c->out[0] = guard(a);
    of_matrix(KN_OP_det, a)->out[0] = without(a, 2, 0);
    c = of_matrix(KN_OP_slogdet, a);
    c->out[0] = c->out[1] = without(a, 2, 0);
    for (uint32_t trans = 0; trans < 2; trans++) {
        parity_operand b = last_two(a, n, columns);
        c = of_matrix(KN_OP_solve, a);
        c->n_in = 3, c->in[1] = like(b, FILL_UNIFORM), c->in[2] = NONE, c->out[0] = b;
        ATTR(c, kn_attr_solve, trans, 0, 0);
    }
}

static void of_square(parity_operand a, int64_t columns) {
    int64_t n = a.shape.dim[a.shape.n_dims - 1];
    a.fill = FILL_DEFINITE;
    solved(a, columns);
    of_matrix(KN_OP_eigh, a)->out[0] = without(a, 1, n);
}

/* Tall, wide: of full rank as good as always. */
static void of_any(parity_operand a) {
    int64_t m = a.shape.dim[a.shape.n_dims - 2], n = a.shape.dim[a.shape.n_dims - 1];
    int64_t k = m < n ? m : n;
    parity_case *c = of_matrix(KN_OP_qr, a);
    c->out[0] = last_two(a, m, k), c->out[1] = last_two(a, k, n);
    of_matrix(KN_OP_svd, a)->out[1] = without(a, 1, k);
}

static void factorisations(void) {
    of_square(U(1, 1), 1);
    of_square(U(5, 5), 3);
    of_square(U(2, 3, 17, 17), 2);
    of_square(U(2, 32, 32), 70);
    of_square(U(3, 33, 33), 31);
    of_square(U(64, 64), 33);
    of_square(U(65, 65), 2);
    of_square(U(67, 67), 5);
    of_square(U(130, 130), 140);
    solved(U(5, 8, 8), 8); /* rows are exchanged; not positive definite */
    solved(OPERAND(ROTATED, 2, 41, 41), 3);
    solved(OPERAND(TIES, 6, 3, 3), 2);
    solved(OPERAND(ZERO, 2, 5, 5), 2);
    of_any(U(1, 1));
    of_any(U(7, 4));
    of_any(U(4, 7));
    of_any(U(3, 20, 11));
    of_any(U(150, 70));
}

static void kron_of(kn_dtype dtype, parity_operand a, parity_operand b) {
    parity_case *c = parity_add(KN_OP_kron, COMPARE_EXACT);
    parity_operand out = like(a, FILL_GUARD);
    for (int d = 0; d < 2; d++) out.shape.dim[d] *= b.shape.dim[d];
    c->n_in = 2, c->in[0] = a, c->in[1] = b, c->out[0] = out;
    c->in[0].dtype = c->in[1].dtype = c->out[0].dtype = dtype;
    c->in[0].limit = c->in[1].limit = 100;
}

static void kroneckers(void) {
    kron_of(0, U(1, 1), U(1, 1));
    kron_of(0, U(3, 5), U(4, 7));
    kron_of(0, U(2, 1100), U(2, 1));
    kron_of(0, U(2, 3), U(37, 255));
    kron_of(0, U(2, 3), U(2, 256));
    kron_of(0, U(1, 70), U(600, 30));
    kron_of(KN_F16, U(3, 5), U(4, 7));
    kron_of(KN_I32, OPERAND(INDEX, 3, 5), OPERAND(INDEX, 4, 7));
}

void parity_linalg_cases(void) {
    kroneckers();
    products();
    triangles();
    factorisations();
}

/* --- random numbers --- */

static void random_of(kn_op op, kn_dtype dtype, double a, double b, parity_operand shape) {
    parity_case *c = parity_add(op, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = STATE, c->out[0] = of_dtype(guard(shape), dtype), c->one_dtype = true;
    ATTR(c, kn_attr_make, .a = a, .b = b);
}

static void each_random(kn_op op, parity_operand shape) {
    bool integers = op == KN_OP_integers;
    random_of(op, integers ? KN_I64 : (kn_dtype)0, integers ? -5 : 0.3, 1000, shape);
}

static void dropout_of(double p, parity_operand shape) {
    parity_case *c = parity_add(KN_OP_dropout, COMPARE_EXACT);
    c->n_in = 2, c->in[0] = shape, c->in[1] = STATE, c->out[0] = like(shape, FILL_GUARD);
    ATTR(c, kn_attr_scalars, p, 0);
}

void parity_random_cases(void) {
    dropout_of(0.5, U(1));
    dropout_of(0.2, U(31));
    dropout_of(0.5, U(100, 500));
    dropout_of(0.9, U(1031, 33));
    dropout_of(0, U(65));
    dropout_of(1, U(65));
    parity_each_shape(each_random, KN_OP_bernoulli);
    parity_each_shape(each_random, KN_OP_exponential);
    parity_each_shape(each_random, KN_OP_integers);
    random_of(KN_OP_integers, KN_I64, -0x1p53, 0x1p53, U(5000));
    random_of(KN_OP_bernoulli, (kn_dtype)0, 1, 0, U(100));
    static const int64_t sizes[] = {1, 2, 31, 64, 1000, 40001};
    for (int i = 0; i < 6; i++) random_of(KN_OP_permutation, KN_I64, 0, 0, U(sizes[i]));
    for (int i = 0; i < 3; i++) {
        parity_case *c = parity_add(KN_OP_truncated_normal, COMPARE_EXACT);
        c->n_in = 1, c->in[0] = STATE, c->out[0] = OPERAND(GUARD, 1031, 7), c->one_dtype = true;
        ATTR(c, kn_attr_truncated, .mean = 1, .stddev = 2, .lo = i == 1 ? 9 : -1, .hi = 12);
    }
}
