/* Gradients of linear algebra. Matrices are made well conditioned from the inputs; of vectors whose
 * sign is free, functions that do not depend on it. */
#include "grad_cases.h"

static kn_tensor *swapped(kn_tensor *x) {
    return kn_tensor_shape(x).n_dims == 3 ? kn_transpose(x, KN_SHAPE(0, 2, 1))
                                          : kn_transpose(x, KN_ALL);
}

static kn_tensor *plus_diagonal(kn_tensor *x, double by) {
    return kn_add(x, kn_tri_scale(kn_filled_like(x, 1), 0, by, 0));
}

/* Symmetric and positive definite. */
static kn_tensor *definite(kn_tensor *x) {
    return plus_diagonal(kn_affine(kn_matmul(x, swapped(x), NULL), 0.2, 0), 2);
}

/* Symmetric, eigenvalues far from each other: derivatives are divided by their differences. */
static kn_tensor *spread(kn_tensor *x) {
    kn_tensor *apart = kn_tensor_from((const double[]){-12, 0, 12}, KN_F64, KN_SHAPE(3));
    return kn_add(kn_add(x, swapped(x)), kn_diag(apart, 0));
}

/* Rows of both signs: of positive x no result is near 0. */
static kn_tensor *signed_columns(kn_tensor *y) {
    return kn_mul(y, kn_tensor_from((const double[]){1, -1}, KN_F64, KN_SHAPE(2)));
}
static kn_tensor *signed_rows(kn_tensor *w) {
    kn_shape shape = kn_tensor_shape(w).n_dims == 2 ? KN_SHAPE(2, 1) : KN_SHAPE(2);
    return kn_mul(w, kn_tensor_from((const double[]){1, -1}, KN_F64, shape));
}

/* Singular values far from each other, in the same way. */
static kn_tensor *stretched(kn_tensor *x) {
    kn_shape shape = kn_tensor_shape(x);
    int64_t rows = shape.dim[shape.n_dims - 2], columns = shape.dim[shape.n_dims - 1];
    kn_shape scales = rows < columns ? KN_SHAPE(rows, 1) : KN_SHAPE(columns);
    return kn_mul(plus_diagonal(x, 3), kn_tensor_from((const double[]){1, 4, 16}, KN_F64, scales));
}

F(f_matmul_broadcast) {
    CTX;
    return kn_matmul(x[0], x[1], NULL);
}
F(f_matmul_broadcast_tt) {
    CTX;
    return kn_matmul(x[0], x[1], &(kn_matmul_options){.trans_a = 1, .trans_b = 1});
}
F(f_linear_relu) {
    CTX;
    return kn_linear_act(x[0], signed_rows(x[1]), signed_rows(x[2]), KN_ACT_RELU);
}
F(f_linear_relu_none) {
    CTX;
    return kn_linear_act(x[0], signed_rows(x[1]), KN_NONE, KN_ACT_RELU);
}
F(f_linear_gelu) {
    CTX;
    return kn_linear_act(x[0], x[1], x[2], KN_ACT_GELU);
}
F(f_linear_add_relu) {
    CTX;
    return kn_linear_add(x[0], signed_rows(x[1]), signed_rows(x[2]), signed_columns(x[3]),
                         KN_ACT_RELU);
}
F(f_linear_add_no_bias) {
    CTX;
    return kn_linear_add(x[0], signed_rows(x[1]), KN_NONE, signed_columns(x[2]), KN_ACT_RELU);
}
F(f_linear_add_gelu) {
    CTX;
    return kn_linear_add(x[0], x[1], x[2], x[3], KN_ACT_GELU);
}
/* Each activation of its own part of the sums, which differ. */
static kn_tensor *linear_acts(kn_tensor *const x[], kn_tensor *b, kn_tensor *r, kn_act first,
                              kn_act last) {
    kn_tensor *sum = NULL;
    for (int act = (int)first; act <= (int)last; act++) {
        kn_tensor *y = kn_linear_add(kn_affine(x[0], 0.5 + 0.1 * act, 0), x[1], b, r, (kn_act)act);
        sum = sum ? kn_add(sum, kn_affine(y, 1 + act, 0)) : y;
    }
    return sum;
}
F(f_linear_sigm) {
    CTX;
    return kn_linear_act(x[0], x[1], x[2], KN_ACT_SIGM);
}
F(f_linear_tanh) {
    CTX;
    return kn_linear_act(x[0], x[1], KN_NONE, KN_ACT_TANH);
}
F(f_linear_add_acts) {
    CTX;
    return linear_acts(x, x[2], x[3], KN_ACT_GELU, KN_ACT_HARDSWISH);
}
F(f_linear_add) {
    CTX;
    return kn_linear_add(x[0], x[1], x[2], x[3], KN_ACT_NONE);
}
/* Sums in front of relu far from 0: a channel above, one below. */
static kn_tensor *conv_signs(void) {
    static const double sign[] = {4, -4};
    return kn_tensor_from(sign, KN_F64, KN_SHAPE(2));
}
F(f_conv_relu) {
    CTX;
    return kn_conv_add(x[0], kn_affine(x[1], 0.1, 0), kn_add(x[2], conv_signs()), x[3],
                       &(kn_conv_options){.padding = {1}, .act = KN_ACT_RELU});
}
F(f_conv_relu_no_bias) {
    CTX;
    return kn_conv_add(x[0], kn_affine(x[1], 0.1, 0), KN_NONE,
                       kn_add(x[2], kn_reshape(conv_signs(), KN_SHAPE(2, 1, 1))),
                       &(kn_conv_options){.act = KN_ACT_RELU});
}
F(f_conv_gelu) {
    CTX;
    return kn_conv_add(x[0], x[1], x[2], x[3], &(kn_conv_options){.act = KN_ACT_GELU});
}
F(f_conv_sigm) {
    CTX;
    return kn_conv_add(x[0], x[1], x[2], x[3], &(kn_conv_options){.act = KN_ACT_SIGM});
}
F(f_conv_acts) {
    CTX;
    kn_tensor *sum = kn_conv(x[0], x[1], x[2], NULL);
    for (int act = KN_ACT_SILU; act <= KN_ACT_HARDSWISH; act++) {
        kn_tensor *y = kn_conv(x[0], x[1], x[2], &(kn_conv_options){.act = (kn_act)act});
        sum = kn_add(sum, kn_affine(y, 1 + act, 0));
    }
    return sum;
}
F(f_conv_sum) {
    CTX;
    return kn_conv_add(x[0], x[1], x[2], x[3], NULL);
}
F(f_mv) {
    CTX;
    return kn_mv(x[0], x[1]);
}
F(f_dot) {
    CTX;
    return kn_dot(kn_mul(x[0], x[0]), x[1]);
}
F(f_outer) {
    CTX;
    return kn_outer(x[0], x[1]);
}
F(f_geam) {
    CTX;
    return kn_geam(x[0], x[1], -1.5, 2, &(kn_matmul_options){.trans_b = 1});
}
F(f_kron) {
    CTX;
    return kn_kron(x[0], x[1]);
}
F(f_block_diag) {
    CTX;
    return kn_block_diag((kn_tensor *const[]){kn_mul(x[0], x[0]), x[1], x[0]}, 3);
}
F(f_trace) {
    CTX;
    return kn_trace(kn_mul(x[0], x[0]));
}
F(f_einsum) {
    CTX;
    return KN_EINSUM("bij,kbj->kib", x[0], x[1]);
}
F(f_einsum_three) {
    CTX;
    return KN_EINSUM("ij,jk,ki->", x[0], x[1], x[2]);
}
F(f_einsum_broadcast) {
    CTX;
    return KN_EINSUM("ij,ij,jk->k", x[0], x[1], x[2]);
}
F(f_einsum_diagonal) {
    CTX;
    return KN_EINSUM("ii,ij->j", x[0], x[1]);
}
F(f_tri_scale) {
    CTX;
    return kn_tri_scale(kn_mul(x[0], x[0]), 2, -1, 0);
}
F(f_cholesky) {
    CTX;
    return kn_cholesky(definite(x[0]));
}
F(f_triangular) {
    CTX;
    return kn_triangular_solve(plus_diagonal(x[0], 4), x[1], NULL);
}
F(f_triangular_upper) {
    CTX;
    return kn_triangular_solve(plus_diagonal(x[0], 4), x[1],
                               &(kn_solve_options){.upper = 1, .trans = 1});
}
F(f_triangular_unit) {
    CTX;
    return kn_triangular_solve(kn_affine(x[0], 0.3, 0), x[1],
                               &(kn_solve_options){.upper = 1, .unit = 1});
}
F(f_solve) {
    CTX;
    return kn_solve(plus_diagonal(x[0], 4), x[1], NULL);
}
F(f_solve_trans) {
    CTX;
    return kn_solve(plus_diagonal(x[0], 4), x[1], &(kn_solve_options){.trans = 1});
}
F(f_inverse) {
    CTX;
    return kn_inverse(plus_diagonal(x[0], 4));
}
F(f_det) {
    CTX;
    return kn_affine(kn_det(plus_diagonal(x[0], 3)), 0.1, 0);
}
F(f_logdet) {
    CTX;
    return kn_logdet(plus_diagonal(x[0], 4));
}
F(f_qr) {
    CTX;
    kn_tensor *q, *r;
    if (kn_qr(&q, &r, stretched(x[0])) < 0) return GRAD_FAILED;
    return kn_matmul(q, kn_mul(r, r), NULL);
}
F(f_qr_q) {
    CTX;
    kn_tensor *q;
    return kn_qr(&q, NULL, stretched(x[0])) < 0 ? GRAD_FAILED : q;
}
F(f_lq) {
    CTX;
    kn_tensor *l, *q;
    if (kn_lq(&l, &q, stretched(x[0])) < 0) return GRAD_FAILED;
    return kn_matmul(kn_mul(l, l), q, NULL);
}
F(f_eigh) {
    CTX;
    kn_tensor *w, *v;
    if (kn_eigh(&w, &v, spread(x[0])) < 0) return GRAD_FAILED;
    return kn_mul(kn_mul(v, v), w);
}
F(f_eigh_values) {
    CTX;
    kn_tensor *w;
    return kn_eigh(&w, NULL, spread(x[0])) < 0 ? GRAD_FAILED : w;
}
F(f_svd) {
    CTX;
    kn_tensor *u, *s, *vt;
    if (kn_svd(&u, &s, &vt, stretched(x[0])) < 0) return GRAD_FAILED;
    return kn_matmul(kn_mul(u, kn_mul(s, s)), vt, NULL);
}
F(f_svd_values) {
    CTX;
    kn_tensor *s;
    return kn_svd(NULL, &s, NULL, stretched(x[0])) < 0 ? GRAD_FAILED : s;
}
F(f_axpby) {
    CTX;
    return kn_axpby(x[0], kn_mul(x[1], x[1]), 1.5, -0.5);
}

const grad_case grad_linalg_cases[] = {
    CASE(matmul, f_matmul_broadcast, -2, 2, 2, C1(2, 3, 4), C1(4, 2)),
    CASE(matmul, f_matmul_broadcast, -2, 2, 2, C1(3, 4), C1(2, 4, 2)),
    CASE(matmul, f_matmul_broadcast, -2, 2, 2, C1(2, 1, 3, 2), C1(3, 2, 2)),
    CASE(matmul, f_matmul_broadcast_tt, -2, 2, 2, C1(2, 1, 2, 3), C1(3, 2, 2)),
    CASE(conv_act, f_conv_relu, -1, 1, 4, C1(2, 2, 3, 3), C1(2, 2, 2, 2), C1(2), C1(2, 2, 4, 2)),
    CASE(conv_act, f_conv_relu_no_bias, -1, 1, 3, C1(2, 2, 3, 3), C1(2, 2, 2, 2), C1(2, 2, 2, 2)),
    CASE(conv_act, f_conv_gelu, -1, 1, 4, C1(2, 2, 3, 3), C1(2, 2, 2, 2), C1(2), C1(2, 2, 2, 2)),
    CASE(conv_act, f_conv_sigm, -1, 1, 4, C1(2, 2, 3, 3), C1(2, 2, 2, 2), C1(2), C1(2, 2, 2, 2)),
    CASE(conv_act, f_conv_acts, -0.5, 0.5, 3, C1(2, 2, 4), C1(2, 2, 2), C1(2)),
    CASE(conv_act, f_conv_sum, -1, 1, 4, C1(2, 2, 3, 3), C1(2, 2, 2, 2), C1(2), C1(2, 2, 2, 2)),
    CASE(linear_act, f_linear_relu, 0.5, 2, 3, C1(3, 4), C1(2, 4), C1(2)),
    CASE(linear_act, f_linear_relu, 0.5, 2, 3, C1(2, 3, 4), C1(2, 4), C1(2)),
    CASE(linear_act, f_linear_relu_none, 0.5, 2, 2, C1(3, 4), C1(2, 4)),
    CASE(linear_act, f_linear_add_relu, 0.5, 2, 4, C1(3, 4), C1(2, 4), C1(2), C1(3, 2)),
    CASE(linear_act, f_linear_add_relu, 0.5, 2, 4, C1(2, 3, 4), C1(2, 4), C1(2), C1(2, 3, 2)),
    CASE(linear_act, f_linear_add_no_bias, 0.5, 2, 3, C1(3, 4), C1(2, 4), C1(3, 2)),
    CASE(linear_act, f_linear_add_gelu, -1, 1, 4, C1(3, 4), C1(2, 4), C1(2), C1(3, 2)),
    CASE(linear_act, f_linear_add, -1, 1, 4, C1(3, 4), C1(2, 4), C1(2), C1(3, 2)),
    CASE(linear_act, f_linear_sigm, -1, 1, 3, C1(3, 4), C1(2, 4), C1(2)),
    CASE(linear_act, f_linear_tanh, -1, 1, 2, C1(2, 3, 4), C1(2, 4)),
    CASE(linear_act, f_linear_add_acts, -0.6, 0.6, 4, C1(2, 3, 4), C1(2, 4), C1(2), C1(2, 3, 2)),
    CASE(linear, f_linear_gelu, -1, 1, 3, C1(3, 4), C1(2, 4), C1(2)),
    CASE(matmul, f_mv, -2, 2, 2, C1(3, 4), C1(4)),
    CASE(matmul, f_mv, -2, 2, 2, C1(3, 4), C1(2, 4)),
    CASE(mul, f_dot, -2, 2, 2, C1(2, 3), C1(2, 3)),
    CASE(matmul, f_outer, -2, 2, 2, C1(3), C1(4)),
    CASE(axpby, f_geam, -2, 2, 2, C1(3, 4), C1(4, 3)),
    CASE(axpby, f_axpby, -2, 2, 2, C1(3, 4), C1(4)),
    CASE(kron, f_kron, -2, 2, 2, C1(2, 3), C1(3, 2)),
    CASE(block_diag, f_block_diag, -2, 2, 2, C1(2, 3), C1(1, 2)),
    CASE(sum, f_trace, -2, 2, 1, C1(2, 3, 3)),
    CASE(matmul, f_einsum, -2, 2, 2, C1(2, 3, 4), C1(3, 2, 4)),
    CASE(matmul, f_einsum_three, -2, 2, 3, C1(2, 3), C1(3, 4), C1(4, 2)),
    CASE(matmul, f_einsum_broadcast, -2, 2, 3, C1(2, 3), C1(1, 3), C1(1, 4)),
    CASE(matmul, f_einsum_diagonal, -2, 2, 2, C1(3, 3), C1(3, 2)),
    CASE(tri_scale, f_tri_scale, -2, 2, 1, C1(2, 3, 4)),
    CASE(cholesky, f_cholesky, -1, 1, 1, C1(3, 3)),
    CASE(cholesky, f_cholesky, -1, 1, 1, C1(2, 2, 2)),
    CASE(triangular_solve, f_triangular, -1, 1, 2, C1(3, 3), C1(3, 2)),
    CASE(triangular_solve, f_triangular_upper, -1, 1, 2, C1(2, 3, 3), C1(2, 3, 2)),
    CASE(triangular_solve, f_triangular_unit, -1, 1, 2, C1(3, 3), C1(3, 2)),
    CASE(solve, f_solve, -1, 1, 2, C1(3, 3), C1(3, 2)),
    CASE(solve, f_solve_trans, -1, 1, 2, C1(2, 3, 3), C1(2, 3, 1)),
    CASE(inverse, f_inverse, -1, 1, 1, C1(3, 3)),
    CASE(det, f_det, -1, 1, 1, C1(2, 3, 3)),
    CASE(slogdet, f_logdet, -1, 1, 1, C1(2, 3, 3)),
    CASE(qr, f_qr, -1, 1, 1, C1(3, 3)),
    CASE(qr, f_qr_q, -1, 1, 1, C1(2, 4, 3)),
    CASE(qr, f_lq, -1, 1, 1, C1(2, 3)),
    CASE(eigh, f_eigh, -2, 2, 1, C1(3, 3)),
    CASE(eigh, f_eigh_values, -2, 2, 1, C1(2, 3, 3)),
    CASE(svd, f_svd, -1, 1, 1, C1(3, 3)),
    CASE(svd, f_svd, -1, 1, 1, C1(4, 2)),
    CASE(svd, f_svd, -1, 1, 1, C1(2, 4)),
    CASE(svd, f_svd_values, -1, 1, 1, C1(2, 3, 2)),
};
const int n_grad_linalg_cases = sizeof grad_linalg_cases / sizeof *grad_linalg_cases;
