/* Rules of factorisations and solvers, in ops, so that they can be differentiated again. Sources:
 * Giles 2008, Collected matrix derivative results; Murray 2016, Differentiation of the Cholesky
 * decomposition; Townsend 2016, Differentiating the singular value decomposition; Roberts and
 * Roberts 2020, QR and LQ decomposition matrix backpropagation. */
#include "rules.h"

static kn_tensor *product(kn_tensor *a, bool trans_a, kn_tensor *b, bool trans_b) {
    kn_attr_matmul attr = {trans_a, trans_b};
    return a && b ? KN_CALL(matmul, &attr, a, b) : NULL;
}

/* The transpose of each matrix. */
static kn_tensor *swapped(kn_tensor *x) {
    if (!x) return NULL;
    kn_attr_transpose attr;
    for (int d = 0; d < KN_DIMS_MAX; d++) attr.axis[d] = d;
    attr.axis[x->n_dims - 2] = x->n_dims - 1, attr.axis[x->n_dims - 1] = x->n_dims - 2;
    return KN_CALL(transpose, &attr, x);
}

/* The gradients of the results, KN_NONE for a missing one. */
static kn_tensor *gradient_of(const kn__back *b, int r) {
    kn_tensor *g = kn__node_results(b->node)[r].grad;
    return g ? g : KN_NONE;
}

/* [...] as [...,1,1], and [...,K] as [...,1,K] or [...,K,1] */
static kn_tensor *with_ones(kn_tensor *x, int before, int after) {
    if (!x) return NULL;
    kn_shape from = kn_tensor_shape(x), to = {.n_dims = from.n_dims + before + after};
    int kept = from.n_dims - (before + after == 1 ? 1 : 0), at = 0;
    if (to.n_dims > KN_DIMS_MAX) return NULL;
    for (int d = 0; d < kept; d++) to.dim[at++] = from.dim[d];
    for (int d = 0; d < before; d++) to.dim[at++] = 1;
    for (int d = kept; d < from.n_dims; d++) to.dim[at++] = from.dim[d];
    for (int d = 0; d < after; d++) to.dim[at++] = 1;
    return kn_reshape(x, to);
}

static kn_tensor *half(kn_tensor *x) { return x ? kn_affine(x, 0.5, 0) : NULL; }

static kn_tensor *symmetric(kn_tensor *x) { return x ? half(kn_add(x, swapped(x))) : NULL; }

kn_tensor *kn__rule_tri_scale(kn__back *b, int i) {
    return KN_GIVE(b, i, tri_scale, kn__back_attr(b), b->g);
}

/* c[m,p,n,q] = a[m,n]·b[p,q]: of one, the sum over the other's dimensions. */
kn_tensor *kn__rule_kron(kn__back *b, int i) {
    kn_tensor *other = kn__saved_in(b, !i);
    kn_shape own = kn__back_shape(b, i);
    const int64_t *p = i ? other->dim : own.dim, *q = i ? own.dim : other->dim;
    kn_tensor *g = kn_reshape(b->g, KN_SHAPE(p[0], q[0], p[1], q[1]));
    other = kn_reshape(other, i ? KN_SHAPE(p[0], 1, p[1], 1) : KN_SHAPE(1, q[0], 1, q[1]));
    return kn_sum(kn_mul(g, other), i ? KN_SHAPE(0, 2) : KN_SHAPE(1, 3), false);
}

/* --- solvers --- */

static kn_tensor *triangle_solved(kn_tensor *a, kn_tensor *b, kn_attr_solve attr) {
    return a && b ? KN_CALL(triangular_solve, &attr, a, b) : NULL;
}

/* S = L⁻ᵀ·Φ(Lᵀ·g)·L⁻¹ with Φ the lower half and half of the diagonal; da is its symmetric part. */
kn_tensor *kn__rule_cholesky(kn__back *b, int i) {
    (void)i;
    kn_tensor *l = kn__saved_out(b, 0);
    kn_tensor *phi = product(l, true, kn_tri_scale(b->g, 1, 1, 0), false);
    phi = phi ? kn_tri_scale(phi, 1, 0.5, 0) : NULL;
    kn_attr_solve trans = {.trans = 1};
    kn_tensor *left = triangle_solved(l, phi, trans);
    return symmetric(triangle_solved(l, swapped(left), trans));
}

/* op(a)·x = b: db = op(a)⁻ᵀ·g, d op(a) = -db·xᵀ. One solution serves both, by the factors that the
 * first one made. */
static kn_status solve_back(kn__back *b, kn_op op) {
    const kn_attr_solve *attr = kn__back_attr(b);
    kn_attr_solve back = *attr;
    back.trans = !attr->trans;
    kn_tensor *a = kn__saved_in(b, 0);
    kn_tensor *db = op == KN_OP_triangular_solve
                        ? triangle_solved(a, b->g, back)
                        : KN_CALL(solve, &back, a, b->g, kn__saved_out(b, 1));
    if (!db) return kn_check();
    if (kn__back_wants(b, 0)) {
        kn_tensor *x = kn__saved_out(b, 0), *minus = kn_neg(db);
        kn_tensor *da =
            attr->trans ? product(x, false, minus, true) : product(minus, false, x, true);
        if (da && op == KN_OP_triangular_solve)
            da = kn_tri_scale(da, attr->upper ? 0 : 1, attr->unit ? 0 : 1, attr->upper ? 1 : 0);
        if (!da) return kn_check();
        KN_TRY(kn__back_deliver(b, 0, da));
    }
    return kn__back_wants(b, 1) ? kn__back_deliver(b, 1, db) : KN_OK;
}

kn_status kn__rule_solve(kn__back *b) { return solve_back(b, KN_OP_solve); }

kn_status kn__rule_triangular_solve(kn__back *b) { return solve_back(b, KN_OP_triangular_solve); }

kn_tensor *kn__rule_inverse(kn__back *b, int i) {
    (void)i;
    kn_tensor *y = kn__saved_out(b, 0);
    kn_tensor *d = product(product(y, true, b->g, false), false, y, true);
    return d ? kn_neg(d) : NULL;
}

/* a⁻ᵀ, by the factors that are result r. */
static kn_tensor *inverse_of(kn__back *b, int r) {
    return swapped(KN_CALL(inverse, NULL, kn__saved_in(b, 0), kn__saved_out(b, r)));
}

/* det·g·a⁻ᵀ */
kn_tensor *kn__rule_det(kn__back *b, int i) {
    (void)i;
    kn_tensor *scale = with_ones(kn_mul(b->g, kn__saved_out(b, 0)), 1, 1);
    kn_tensor *inverse = inverse_of(b, 1);
    return scale && inverse ? kn_mul(inverse, scale) : NULL;
}

/* The sign is constant where it has a derivative. */
kn_tensor *kn__rule_slogdet(kn__back *b, int i) {
    (void)i;
    if (!b->g) return KN_NONE;
    kn_tensor *inverse = inverse_of(b, 2), *g = with_ones(b->g, 1, 1);
    return inverse && g ? kn_mul(inverse, g) : NULL;
}

/* --- factorisations --- */

static kn_tensor *sum_of(kn_tensor *a, kn_tensor *b) {
    if (!a || !b) return NULL;
    if (a == KN_NONE) return b;
    return b == KN_NONE ? a : kn_add(a, b);
}

static kn_status deliver(kn__back *b, kn_tensor *da) {
    return da ? kn__back_deliver(b, 0, da) : kn_check();
}

/* M = R·dRᵀ - dQᵀ·Q; da = (dQ + Q·copyltu(M))·R⁻ᵀ, for M >= N. copyltu mirrors the lower half. */
kn_status kn__rule_qr(kn__back *b) {
    kn_tensor *q = kn__saved_out(b, 0), *r = kn__saved_out(b, 1);
    kn_tensor *dq = gradient_of(b, 0), *dr = gradient_of(b, 1), *m = KN_NONE;
    int n = q->n_dims;
    if (r->dim[n - 1] > q->dim[n - 2]) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_qr: a of more columns (%lld) than rows (%lld) has no gradient",
                       (long long)r->dim[n - 1], (long long)q->dim[n - 2]);
    }
    if (dr != KN_NONE) m = product(r, false, kn_tri_scale(dr, 0, 1, 1), true);
    if (dq != KN_NONE) m = sum_of(m, kn_neg(product(dq, true, q, false)));
    if (!m) return kn_check();
    kn_tensor *mirrored = kn_add(kn_tri_scale(m, 1, 1, 0), swapped(kn_tri_scale(m, 1, 0, 0)));
    kn_tensor *left = sum_of(dq, product(q, false, mirrored, false));
    kn_attr_solve attr = {.upper = 1}; /* x·Rᵀ = left: R·xᵀ = leftᵀ */
    return deliver(b, swapped(triangle_solved(r, swapped(left), attr)));
}

/* [...,K,K]: 1/(x_j - x_i), 0 on the diagonal. */
static kn_tensor *gaps(kn_tensor *x) {
    kn_tensor *d = kn_sub(with_ones(x, 1, 0), with_ones(x, 0, 1));
    if (!d) return NULL;
    kn_tensor *ones = kn_filled_like(d, 1);
    return kn_tri_scale(kn_div(ones, kn_add(d, kn_tri_scale(ones, 0, 1, 0))), 1, 0, 1);
}

/* The diagonal matrix of x [...,K]. */
static kn_tensor *diagonal(kn_tensor *x) {
    if (!x) return NULL;
    kn_shape shape = kn_tensor_shape(x);
    shape.dim[shape.n_dims] = shape.dim[shape.n_dims - 1];
    shape.n_dims++;
    return kn_tri_scale(kn_broadcast(with_ones(x, 0, 1), shape), 0, 1, 0);
}

/* da = V·(diag(dw) + F∘(Vᵀ·dV))·Vᵀ, its symmetric part. */
kn_status kn__rule_eigh(kn__back *b) {
    kn_tensor *w = kn__saved_out(b, 0), *v = kn__saved_out(b, 1);
    kn_tensor *dw = gradient_of(b, 0), *dv = gradient_of(b, 1), *inner = KN_NONE;
    if (dw != KN_NONE) inner = diagonal(dw);
    if (dv != KN_NONE) inner = sum_of(inner, kn_mul(gaps(w), product(v, true, dv, false)));
    return deliver(b, symmetric(product(product(v, false, inner, false), false, v, true)));
}

/* x - Q·(Qᵀ·x): what lies outside the columns of Q. */
static kn_tensor *outside(kn_tensor *q, kn_tensor *x) {
    return kn_sub(x, product(q, false, product(q, true, x, false), false));
}

/* da = U·(diag(ds) + (F∘(Uᵀ·dU - dUᵀ·U))·S + S·(F∘(Vᵀ·dV - dVᵀ·V)))·Vᵀ
 *      + (1 - U·Uᵀ)·dU·S⁻¹·Vᵀ + U·S⁻¹·dVᵀ·(1 - V·Vᵀ), with F_ij = 1/(s_j² - s_i²) */
kn_status kn__rule_svd(kn__back *b) {
    kn_tensor *u = kn__saved_out(b, 0), *s = kn__saved_out(b, 1), *vt = kn__saved_out(b, 2);
    kn_tensor *du = gradient_of(b, 0), *ds = gradient_of(b, 1), *dvt = gradient_of(b, 2);
    kn_tensor *inner = KN_NONE, *rest = KN_NONE, *row = with_ones(s, 1, 0), *v = swapped(vt);
    kn_tensor *f = du == KN_NONE && dvt == KN_NONE ? KN_NONE : gaps(kn_mul(s, s));
    if (!v || !f) return kn_check();
    if (ds != KN_NONE) inner = diagonal(ds);
    if (du != KN_NONE) {
        kn_tensor *p = product(u, true, du, false);
        inner = sum_of(inner, kn_mul(kn_mul(f, kn_sub(p, swapped(p))), row));
        if (u->dim[u->n_dims - 2] > u->dim[u->n_dims - 1])
            rest = product(kn_div(outside(u, du), row), false, vt, false);
    }
    if (dvt != KN_NONE) {
        kn_tensor *dv = swapped(dvt), *p = product(v, true, dv, false);
        inner = sum_of(inner, kn_mul(with_ones(s, 0, 1), kn_mul(f, kn_sub(p, swapped(p)))));
        if (v && v->dim[v->n_dims - 2] > v->dim[v->n_dims - 1])
            rest = sum_of(rest, product(kn_div(u, row), false, outside(v, dv), true));
    }
    return deliver(b, sum_of(product(product(u, false, inner, false), false, vt, false), rest));
}
