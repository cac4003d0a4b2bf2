/* Linear algebra beyond products. Part of ops.h, whose rules hold.
 *
 *     kn_tensor *x = kn_solve(a, b, NULL);    // a [N,N], b [N,K] → x [N,K] with a·x = b
 */
#ifndef KNET_LINALG_H
#define KNET_LINALG_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- factorisations and solvers: f32 and f64; all but the last two dimensions count matrices ---
 *
 * On the host Cholesky, LU, QR and the triangular solver are the library's own; svd and eigh call
 * LAPACK, loaded when it is first needed (Debian: liblapack3, better libopenblas0-openmp); without
 * it they are an UNSUPPORTED error, and of infinities or NaNs they give NaN. On CUDA Cholesky and
 * LU of more than 64 rows call cuSOLVER; qr, svd and eigh call it at any size, one matrix after the
 * other. svd and eigh wait for the stream, so they, kn_pinv and kn_matrix_rank are an UNSUPPORTED
 * error in a capture there. Nothing is read back: a matrix that is singular, or not positive
 * definite, gives infinities or NaNs and no error. One without elements gives an empty result.
 *
 * Gradients of all but svd and eigh exist for any order. Those of svd and eigh need different
 * singular values or eigenvalues (and none zero, where svd's matrix is not square): otherwise they
 * are infinite or NaN, as the derivative does not exist. Gradients of eigenvectors and singular
 * vectors are those of a loss that does not depend on the vectors' signs. qr's needs M >= N. */
/* a = L·Lᵀ, positive definite → L, zero above the diagonal; the upper half of a is not read. All of
 * L is NaN where a is not positive definite. Gradient: Murray 2016, of a symmetric a. */
KN_API kn_tensor *kn_cholesky(kn_tensor *a);
/* Options of kn_solve and kn_triangular_solve. */
typedef struct kn_solve_options {
    int trans;            /* 1: with the transpose of a */
    int upper;            /* kn_triangular_solve: 1: the upper half of a is read, else the lower */
    int unit;             /* kn_triangular_solve: 1: the diagonal counts as ones and is not read */
    uint64_t reserved[4]; /* zero */
} kn_solve_options;
/* a [...,N,N], b [...,N,K]; the leading dimensions are alike. kn_triangular_solve: x [...,N,K] with
 * op(a)·x = b, a triangular; kn_solve: x [...,N,K] with op(a)·x = b, by LU with partial pivoting.
 * NULL options: the defaults. */
KN_API kn_tensor *kn_triangular_solve(kn_tensor *a, kn_tensor *b, const kn_solve_options *options);
KN_API kn_tensor *kn_solve(kn_tensor *a, kn_tensor *b, const kn_solve_options *options);
/* The inverse, by LU: a [...,N,N] → [...,N,N] */
KN_API kn_tensor *kn_inverse(kn_tensor *a);
/* a [...,N,N] → [...]. kn_det: the determinant; kn_logdet: the logarithm of the determinant's
 * absolute value, -inf where it is 0. Where a is singular their gradients are NaN. */
KN_API kn_tensor *kn_det(kn_tensor *a);
KN_API kn_tensor *kn_logdet(kn_tensor *a);
/* kn_logdet and the determinant's sign: -1, 0 or 1; logabs has the gradient. */
KN_API KN_MUST_CHECK kn_status kn_slogdet(kn_tensor **sign, kn_tensor **logabs, kn_tensor *a);
/* a [...,M,N] = Q·R, Q [...,M,K] with orthonormal columns, R [...,K,N] upper triangular,
 * K = min(M, N). Signs are LAPACK's: R's diagonal may be negative. */
KN_API KN_MUST_CHECK kn_status kn_qr(kn_tensor **q, kn_tensor **r, kn_tensor *a);
/* a [...,M,N] = L·Q, L [...,M,K] lower triangular, Q [...,K,N] with orthonormal rows. */
KN_API KN_MUST_CHECK kn_status kn_lq(kn_tensor **l, kn_tensor **q, kn_tensor *a);
/* a [...,M,N] = U·diag(s)·Vᵀ, U [...,M,K], s [...,K] descending, Vt [...,K,N]. u and vt may both be
 * NULL: the singular values alone, which is faster. */
KN_API KN_MUST_CHECK kn_status kn_svd(kn_tensor **u, kn_tensor **s, kn_tensor **vt, kn_tensor *a);
/* a symmetric [...,N,N] = V·diag(w)·Vᵀ: w [...,N] ascending, V [...,N,N] with the eigenvectors as
 * columns. The lower half of a is read. v may be NULL: the eigenvalues alone. */
KN_API KN_MUST_CHECK kn_status kn_eigh(kn_tensor **w, kn_tensor **v, kn_tensor *a);

/* --- made of those, with gradients of any order; of kn_pinv those of a rank that stays --- */
/* x [...,N,K] with the least |a·x - b|, a [...,M,N] of full rank, b [...,M,K], by QR; where there
 * are several (M < N), the one with the least |x|. Of a lower rank: kn_pinv(a)·b. */
KN_API kn_tensor *kn_lstsq(kn_tensor *a, kn_tensor *b);
/* By svd, of a [...,M,N]. kn_pinv: Moore and Penrose's inverse [...,N,M]; kn_matrix_rank: the
 * number of singular values that count, KN_I64 [...], no gradient. Those of at most rtol times the
 * largest count as 0; rtol < 0: max(M, N) times the dtype's epsilon. */
KN_API kn_tensor *kn_pinv(kn_tensor *a, double rtol);
KN_API kn_tensor *kn_matrix_rank(kn_tensor *a, double rtol);
/* a [...,N,N] multiplied n times; n = 0: the identity; n < 0: of the inverse, f32 and f64 alone. */
KN_API kn_tensor *kn_matrix_power(kn_tensor *a, int64_t n);
/* Sums over axes_a of a and axes_b of b, paired in their order: the other axes of a, then those of
 * b, remain. numpy.tensordot. */
KN_API kn_tensor *kn_tensordot(kn_tensor *a, kn_tensor *b, kn_shape axes_a, kn_shape axes_b);
/* The vector product along an axis of 3 elements of both, counted in the result; a and b are
 * broadcast. Integers too. */
KN_API kn_tensor *kn_cross(kn_tensor *a, kn_tensor *b, int axis);

#include <knet/sites/linalg.h>

#ifdef __cplusplus
}
#endif
#endif
