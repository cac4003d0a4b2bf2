/* Factorisations and solvers: shapes and the public functions. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "factors.h"
#include "run.h"

static bool are_matrices(const kn_op_call *call, const kn_tensor *a, bool square) {
    int n = a->n_dims;
    if (n >= 2 && (!square || a->dim[n - 1] == a->dim[n - 2])) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%s must be [...,%s,N]",
                           kn_op_table[call->op].in_name[0], square ? "N" : "M");
}

bool kn__infer_tri_scale(kn_op_call *call) {
    return are_matrices(call, call->in[0], false) && kn__like(call, 0, call->in[0]);
}

bool kn__infer_square(kn_op_call *call) {
    return are_matrices(call, call->in[0], true) && kn__like(call, 0, call->in[0]);
}

/* The LU factors of a: as result r, unless that is negative. Those given have the same shape. */
static bool with_factors(kn_op_call *call, int r) {
    const kn_tensor *a = call->in[0], *given = kn__factors_in(call);
    int64_t dim[KN_DIMS_MAX];
    memcpy(dim, a->dim, sizeof dim);
    dim[a->n_dims - 2]++;
    if (given != KN_NONE && (given->n_dims != a->n_dims ||
                             memcmp(given->dim, dim, (size_t)a->n_dims * sizeof *dim) != 0))
        return kn_op_call_fail(call, KN_ERR_SHAPE, "factors must be [...,N+1,N]");
    return r < 0 || kn__shaped(call, r, a->n_dims, dim);
}

bool kn__infer_inverse(kn_op_call *call) {
    return kn__infer_square(call) && with_factors(call, -1);
}

bool kn__infer_det(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    bool logs = call->op == KN_OP_slogdet;
    if (!are_matrices(call, a, true)) return false;
    bool one = kn__shaped(call, 0, a->n_dims - 2, a->dim);
    if (logs) one = one && kn__shaped(call, 1, a->n_dims - 2, a->dim);
    return one && with_factors(call, logs ? 2 : 1);
}

bool kn__infer_solve(kn_op_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1];
    if (!are_matrices(call, a, true)) return false;
    int n = a->n_dims;
    bool fits = b->n_dims == n && b->dim[n - 2] == a->dim[n - 1];
    for (int d = 0; fits && d < n - 2; d++) fits = a->dim[d] == b->dim[d];
    if (!fits) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "b must be [...,N,K] with a's leading dimensions and N rows");
    }
    return kn__like(call, 0, b) && (call->op == KN_OP_triangular_solve || with_factors(call, 1));
}

/* The result r: [..., p, q], or [..., p] with q = -1. */
static bool factor(kn_op_call *call, int r, int64_t p, int64_t q) {
    const kn_tensor *a = call->in[0];
    int64_t dim[KN_DIMS_MAX];
    memcpy(dim, a->dim, sizeof dim);
    dim[a->n_dims - 2] = p;
    if (q >= 0) dim[a->n_dims - 1] = q;
    return kn__shaped(call, r, q >= 0 ? a->n_dims : a->n_dims - 1, dim);
}

bool kn__infer_qr(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    if (!are_matrices(call, a, false)) return false;
    int64_t m = a->dim[a->n_dims - 2], n = a->dim[a->n_dims - 1], k = m < n ? m : n;
    return factor(call, 0, m, k) && factor(call, 1, k, n);
}

bool kn__infer_svd(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    if (!are_matrices(call, a, false)) return false;
    int64_t m = a->dim[a->n_dims - 2], n = a->dim[a->n_dims - 1], k = m < n ? m : n;
    return factor(call, 0, m, k) && factor(call, 1, k, -1) && factor(call, 2, k, n);
}

bool kn__infer_eigh(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    if (!are_matrices(call, a, true)) return false;
    int64_t n = a->dim[a->n_dims - 1];
    return factor(call, 0, n, -1) && factor(call, 1, n, n);
}

/* --- one result --- */

kn_tensor *kn_tri_scale(kn_tensor *x, double below, double on, double above) {
    kn_attr_tri_scale attr = {below, on, above};
    return KN_CALL(tri_scale, &attr, x);
}

kn_tensor *kn_cholesky(kn_tensor *a) { return KN_CALL(cholesky, NULL, a); }
kn_tensor *kn_inverse(kn_tensor *a) { return KN_CALL(inverse, NULL, a, KN_NONE); }
kn_tensor *kn_det(kn_tensor *a) { return KN_CALL(det, NULL, a); }
kn_tensor *kn_logdet(kn_tensor *a) {
    KN__AS("logdet");
    return KN_CALL(slogdet, NULL, a);
}

static bool solve_attr(kn_attr_solve *attr, kn_op op, const kn_solve_options *options) {
    *attr = (kn_attr_solve){0, 0, 0};
    if (!options) return true;
    kn_solve_options o = *options;
    if (!kn__reserved_fit(op, 0, o.reserved, 4) || !kn__flag_fit(op, "trans", &o.trans) ||
        !kn__flag_fit(op, "upper", &o.upper) || !kn__flag_fit(op, "unit", &o.unit))
        return false;
    if (op == KN_OP_solve && (o.upper || o.unit)) {
        kn_op_fail(op, KN_ERR_INVALID, "upper and unit are options of kn_triangular_solve");
        return false;
    }
    *attr = (kn_attr_solve){(uint32_t)o.trans, (uint32_t)o.upper, (uint32_t)o.unit};
    return true;
}

kn_tensor *kn_triangular_solve(kn_tensor *a, kn_tensor *b, const kn_solve_options *options) {
    kn_attr_solve attr;
    if (!solve_attr(&attr, KN_OP_triangular_solve, options)) return NULL;
    return KN_CALL(triangular_solve, &attr, a, b);
}

kn_tensor *kn_solve(kn_tensor *a, kn_tensor *b, const kn_solve_options *options) {
    kn_attr_solve attr;
    if (!solve_attr(&attr, KN_OP_solve, options)) return NULL;
    return KN_CALL(solve, &attr, a, b, KN_NONE);
}

/* --- several results --- */

/* The results whose place isn't NULL. When the call is recorded, all: gradients read the others,
 * and second ones flow through them. */
static kn_status several(kn_tensor **out[], int n, kn_op op, kn_tensor *a) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, KN_LIST_(a), 1);
    call.want = 0;
    if (kn_op_recording(KN_LIST_(a), 1)) call.want = (uint8_t)((1 << n) - 1);
    bool any = false;
    for (int r = 0; r < n; r++) {
        if (!out[r]) continue;
        *out[r] = NULL;
        any = true;
        call.want |= (uint8_t)(1 << r);
    }
    if (!any) return KN_FAIL(KN_ERR_INVALID, "kn_%s: every result is NULL", kn__name_in_errors(op));
    if (!kn_op_run(&call)) return kn_check();
    for (int r = 0; r < n; r++) {
        if (out[r]) *out[r] = call.out[r];
    }
    return KN_OK;
}

kn_status kn_slogdet(kn_tensor **sign, kn_tensor **logabs, kn_tensor *a) {
    return several((kn_tensor **[]){logabs, sign}, 2, KN_OP_slogdet, a);
}

kn_status kn_qr(kn_tensor **q, kn_tensor **r, kn_tensor *a) {
    return several((kn_tensor **[]){q, r}, 2, KN_OP_qr, a);
}

kn_status kn_svd(kn_tensor **u, kn_tensor **s, kn_tensor **vt, kn_tensor *a) {
    return several((kn_tensor **[]){u, s, vt}, 3, KN_OP_svd, a);
}

kn_status kn_eigh(kn_tensor **w, kn_tensor **v, kn_tensor *a) {
    kn_tensor *values = NULL; /* computed with the vectors in any case */
    return several((kn_tensor **[]){v && !w ? &values : w, v}, 2, KN_OP_eigh, a);
}

static kn_tensor *transposed(kn_tensor *x) {
    if (!x || x->n_dims < 2) return x;
    kn_attr_transpose attr;
    for (int d = 0; d < KN_DIMS_MAX; d++) attr.axis[d] = d;
    attr.axis[x->n_dims - 2] = x->n_dims - 1, attr.axis[x->n_dims - 1] = x->n_dims - 2;
    return KN_CALL(transpose, &attr, x);
}

/* aᵀ = Q'·R': a = R'ᵀ·Q'ᵀ */
kn_status kn_lq(kn_tensor **l, kn_tensor **q, kn_tensor *a) {
    KN__AS("lq");
    kn_tensor *q_t = NULL, *r = NULL;
    if (l) *l = NULL;
    if (q) *q = NULL;
    if (!kn__check_readable(KN_OP_qr, &a, 1)) return kn_check();
    KN_TRY(kn_qr(q ? &q_t : NULL, l ? &r : NULL, transposed(a)));
    kn_tensor *left = transposed(r), *right = transposed(q_t);
    if ((l && !left) || (q && !right)) return kn_check();
    if (l) *l = left;
    if (q) *q = right;
    return KN_OK;
}

/* --- made of those: products inside are not rounded by .autocast --- */

/* Whether b is [...,M,K] beside a [...,M,N]; else an error is pending. */
static bool has_rows(kn_op op, kn_tensor *a, kn_tensor *b) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_readable(op, call.in, 2)) return false;
    int n = a->n_dims;
    bool fits = n >= 2 && b->n_dims == n;
    for (int d = 0; fits && d < n - 1; d++) fits = a->dim[d] == b->dim[d];
    return fits || kn_op_call_fail(&call, KN_ERR_SHAPE, "a must be [...,M,N], b [...,M,K]");
}

/* a = Q·R: R·x = Qᵀ·b. Or aᵀ = Q·R: a·x = Rᵀ·(Qᵀ·x), and of all x the one in Q's span is least. */
kn_tensor *kn_lstsq(kn_tensor *a, kn_tensor *b) {
    KN__AS("lstsq", "a", "b");
    if (!has_rows(KN_OP_solve, a, b)) return NULL;
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    bool tall = a->dim[a->n_dims - 2] >= a->dim[a->n_dims - 1];
    kn_tensor *q = NULL, *r = NULL;
    kn_status status = kn_qr(&q, &r, tall ? a : transposed(a));
    if (status < 0) return kn_error_defer(status);
    const kn_matmul_options trans_q = {.trans_a = 1};
    const kn_solve_options upper = {.upper = 1}, lower = {.upper = 1, .trans = 1};
    if (tall) return kn__given(kn_triangular_solve(r, kn_matmul(q, b, &trans_q), &upper));
    return kn__given(kn_matmul(q, kn_triangular_solve(r, b, &lower), NULL));
}

/* Where the singular values s [...,K] of a count. */
static kn_tensor *counting(kn_tensor *s, kn_tensor *a, double rtol) {
    int64_t m = a->dim[a->n_dims - 2], n = a->dim[a->n_dims - 1];
    double epsilon = a->dtype == KN_F64 ? DBL_EPSILON : FLT_EPSILON;
    if (isnan(rtol)) return kn__fail_invalid(KN_OP_svd, a, "rtol is nan; it must be a number");
    if (rtol < 0) rtol = (double)(m > n ? m : n) * epsilon;
    if (s->dim[s->n_dims - 1] == 0) return kn_ne(s, s);
    kn_tensor *largest = kn_max(s, KN_SHAPE(-1), true);
    return kn_gt(s, kn_affine(largest, rtol, 0));
}

/* What kn_pinv takes from a's singular values and vectors, as constants: with 0 in place of those
 * that don't count. */
typedef struct pinv_parts {
    kn_tensor *u, *vt;  /* [...,M,K], [...,K,N] */
    kn_tensor *inverse; /* 1/s, [...,K,1] */
    kn_tensor *rest;    /* [...,K,K]: 1 on the diagonal for each value that doesn't count */
} pinv_parts;

static bool pinv_parts_of(pinv_parts *p, kn_tensor *a, double rtol) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *u = NULL, *s = NULL, *vt = NULL;
    if (kn_svd(&u, &s, &vt, a) < 0) return kn_error_defer(kn_last_error()->status), false;
    kn_tensor *zero = kn__constant_like(s, 0), *counts = counting(s, a, rtol);
    kn_tensor *inverse = kn_where(counts, kn_reciprocal(s), zero);
    kn_tensor *share = kn_where(counts, kn__constant_like(s, 1), zero);
    if (!inverse || !share) return false;
    kn_tensor *column = kn_unsqueeze(share, -1),
              *square = kn_matmul(vt, vt, &(kn_matmul_options){.trans_b = 1});
    kn_tensor *one = square ? kn_tril(kn_triu(kn_filled_like(square, 1), 0), 0) : NULL;
    p->u = kn__given(kn_mul(u, kn_unsqueeze(share, -2)));
    p->vt = kn__given(kn_mul(vt, column));
    p->inverse = kn__given(kn_unsqueeze(inverse, -1));
    p->rest = kn__given(kn_sub(one, kn_mul(one, column)));
    return kn_pending() == KN_OK;
}

/* a of rank r is C·M⁻¹·R with C = a·V/s, R = Uᵀ·a/s and M = Uᵀ·a·V/s², of r columns and rows, and
 * its pseudoinverse Rᵀ(R·Rᵀ)⁻¹·M·(Cᵀ·C)⁻¹Cᵀ (Ben-Israel and Greville 2003, chapter 1). With U, s
 * and V of a itself both inverses are the identity's; taken as constants they leave derivatives of
 * any order, which exist where singular values are equal or 0, unlike those of U and V. */
static kn_tensor *pinv_by(const pinv_parts *p, kn_tensor *a) {
    const kn_matmul_options trans_a = {.trans_a = 1}, trans_b = {.trans_b = 1};
    kn_tensor *c = kn_matmul(a, kn_mul(p->vt, p->inverse), &trans_b);
    kn_tensor *m = kn_mul(p->inverse, kn_matmul(p->u, c, &trans_a));
    kn_tensor *r = kn_mul(p->inverse, kn_matmul(p->u, a, &trans_a));
    kn_tensor *rows = kn_add(kn_matmul(r, r, &trans_b), p->rest);
    kn_tensor *columns = kn_add(kn_matmul(c, c, &trans_a), p->rest);
    kn_tensor *left = kn_solve(rows, r, NULL), *right = kn_solve(columns, transposed(c), NULL);
    return kn_matmul(left, kn_matmul(m, right, NULL), &trans_a);
}

kn_tensor *kn_pinv(kn_tensor *a, double rtol) {
    KN__AS("pinv", "a");
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    pinv_parts p;
    if (!pinv_parts_of(&p, a, rtol)) return NULL;
    if (kn_op_recording(&a, 1)) return kn__given(pinv_by(&p, a));
    kn_tensor *scaled = kn_mul(p.vt, p.inverse);
    return kn__given(kn_matmul(scaled, p.u, &(kn_matmul_options){.trans_a = 1, .trans_b = 1}));
}

kn_tensor *kn_matrix_rank(kn_tensor *a, double rtol) {
    KN__AS("matrix_rank", "a");
    KN__FRAME_INSIDE(.record = KN_OFF);
    kn_tensor *s = NULL;
    kn_status status = kn_svd(NULL, &s, NULL, a);
    if (status < 0) return kn_error_defer(status);
    kn_tensor *counts = counting(s, a, rtol);
    return counts ? kn__given(kn_count_nonzero(counts, KN_SHAPE(-1), false)) : NULL;
}

/* The powers a, a², a⁴, …: those whose bit is set in n. */
kn_tensor *kn_matrix_power(kn_tensor *a, int64_t n) {
    KN__AS("matrix_power", "a");
    if (!kn__check_readable(KN_OP_matmul, &a, 1)) return NULL;
    int d = a->n_dims;
    if (d < 2 || a->dim[d - 1] != a->dim[d - 2])
        return kn__fail_shapes(KN_OP_matmul, a, "a must be [...,N,N]");
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    kn_tensor *power = n < 0 ? kn_inverse(a) : a, *y = NULL;
    if (n == 0) /* the diagonal alone */
        return kn__given(kn_tril(kn_triu(kn_filled_like(a, 1), 0), 0));
    for (; left && power; left >>= 1) {
        if (left & 1) y = y ? kn_matmul(y, power, NULL) : power;
        if (left > 1) power = kn_matmul(power, power, NULL);
    }
    return y ? kn__given(y == a ? kn__op_copy(a) : y) : NULL;
}
