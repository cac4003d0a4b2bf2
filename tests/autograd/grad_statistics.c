/* Gradients of functions of <knet/statistics.h> and <knet/linalg.h> that are made of other ops, and
 * of scans of extremes. Each stands under the op that its elements come through. */
#include "grad_cases.h"

/* 3 on the diagonal: of full rank. */
static kn_tensor *with_diagonal(kn_tensor *x) {
    kn_shape shape = kn_tensor_shape(x);
    kn_tensor *eye = kn_eye(shape.dim[0], shape.dim[1]);
    return kn_add(x, kn_affine(kn_cast(eye, KN_F64), 3, 0));
}

#define G(name, expr)                                                                              \
    F(f_##name) {                                                                                  \
        CTX;                                                                                       \
        return expr;                                                                               \
    }
G(median, kn_median(kn_square(x[0]), KN_SHAPE(1), false))
G(quantile, kn_quantile(kn_square(x[0]), 0.3, KN_SHAPE(0), true))
G(nan_mean, kn_nan_mean(kn_square(x[0]), KN_SHAPE(1), false))
G(nan_max, kn_nan_max(kn_square(x[0]), KN_SHAPE(1), false))
G(nan_median, kn_nan_median(kn_square(x[0]), KN_SHAPE(1), false))
G(nan_std, kn_nan_std(kn_square(x[0]), KN_SHAPE(1), false, false))
F(f_interp) { /* columns in three intervals and beyond the last, far from the ends of these */
    CTX;
    kn_tensor *columns = F64(KN_SHAPE(4), -3, 0, 3, 60), *base = F64(KN_SHAPE(5), -4, 0, 3, 6, 9);
    kn_tensor *places = kn_add(base, kn_affine(x[1], 0.1, 0));
    return kn_interp(kn_add(x[0], columns), places, kn_square(x[2]));
}
G(cummax, kn_cummax(kn_square(x[0]), 1))
G(cummin, kn_cummin(kn_square(x[0]), 0))
G(logcumsumexp, kn_logcumsumexp(x[0], 1))
G(diff, kn_diff(kn_square(x[0]), 2, 1))
G(cov, kn_cov(x[0]))
G(corrcoef, kn_corrcoef(x[0]))
G(tensordot, kn_tensordot(x[0], x[1], KN_SHAPE(1), KN_SHAPE(0)))
G(cross, kn_cross(x[0], x[1], -1))
G(lstsq, kn_lstsq(with_diagonal(x[0]), x[1]))
G(power, kn_matrix_power(with_diagonal(x[0]), 3))
G(power_of_inverse, kn_matrix_power(with_diagonal(x[0]), -2))
G(pinv, kn_pinv(with_diagonal(x[0]), -1))
G(copy, kn_copy(kn_square(x[0])))
G(move, kn_mul(kn_move_axis(x[0], 0, 1), kn_swap_axes(x[0], 0, 1)))
G(to_num, kn_nan_to_num(kn_square(x[0]), 1, 2, 3))
F(f_weights) {
    CTX;
    const int64_t places[] = {2, 0, 2, 1};
    return kn_bincount(kn_tensor_from(places, KN_I64, KN_SHAPE(4)), 3, kn_square(x[0]));
}
F(f_unique) {
    CTX;
    kn_tensor *values = NULL;
    return kn_unique(&values, NULL, NULL, kn_square(x[0])) < 0 ? GRAD_FAILED : values;
}

const grad_case grad_statistics_cases[] = {
    CASE(sort, f_median, 0.2, 3, 1, C1(3, 4)),
    CASE(sort, f_quantile, 0.2, 3, 1, C1(5, 2)),
    CASE(where, f_nan_mean, -2, 2, 1, C1(3, 4)),
    CASE(where, f_nan_max, 0.2, 3, 1, C1(3, 4)),
    CASE(sort, f_nan_median, 0.2, 3, 1, C1(3, 4)),
    CASE(where, f_nan_std, 0.2, 3, 1, C1(3, 4)),
    CASE(lerp, f_interp, 1, 2, 3, C1(3, 4), C1(5), C1(5)),
    CASE(cummax, f_cummax, 0.2, 3, 1, C1(2, 5)),
    CASE(cummin, f_cummin, 0.2, 3, 1, C1(5, 2)),
    CASE(recur, f_logcumsumexp, -2, 2, 1, C1(2, 5)),
    CASE(slice, f_diff, -2, 2, 1, C1(2, 5)),
    CASE(matmul, f_cov, -2, 2, 1, C1(3, 5)),
    CASE(matmul, f_corrcoef, -2, 2, 1, C1(3, 7)),
    CASE(matmul, f_tensordot, -2, 2, 2, C1(2, 3), C1(3, 2)),
    CASE(roll, f_cross, -2, 2, 2, C1(2, 3), C1(3)),
    CASE(qr, f_lstsq, -1, 1, 2, C1(5, 3), C1(5, 2)),
    CASE(qr, f_lstsq, -1, 1, 2, C1(3, 5), C1(3, 2)),
    CASE(svd, f_pinv, -1, 1, 1, C1(4, 3)),
    CASE(svd, f_pinv, -1, 1, 1, C1(2, 3)),
    CASE(matmul, f_power, -1, 1, 1, C1(3, 3)),
    CASE(inverse, f_power_of_inverse, -1, 1, 1, C1(3, 3)),
    CASE(transpose, f_copy, -2, 2, 1, C1(3, 4)),
    CASE(transpose, f_move, -2, 2, 1, C1(3, 4)),
    CASE(where, f_to_num, -2, 2, 1, C1(3, 4)),
    CASE(index_add, f_weights, -2, 2, 1, C1(4)),
    CASE(index_select, f_unique, 0.2, 3, 1, C1(2, 3)),
};
const int n_grad_statistics_cases = sizeof grad_statistics_cases / sizeof *grad_statistics_cases;
