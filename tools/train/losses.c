#include "losses.h"

#include <knet/ops.h>
#include <knet/train.h>
#include <math.h>

enum { SUMS = 1024 };

static kn_status zeros(kn_tensor **slot, const kn_tensor *beside, kn_dtype dtype, kn_shape shape) {
    KN_FRAME(.device = kn_tensor_device(beside), .dtype = dtype, .record = KN_OFF);
    return kn_hold(slot, kn_zeros(shape));
}

kn_status kn__sum_begin(kn_tensor **slot, const kn_tensor *beside) {
    return zeros(slot, beside, KN_F64, KN_SCALAR);
}

kn_status kn__sum_add(kn_tensor *sum, kn_tensor *mean, int64_t n) {
    return kn_add_into(sum, kn_affine(kn_cast(mean, KN_F64), (double)n, 0));
}

kn_status kn__losses_begin(kn_tensor **slot, const kn_tensor *beside) {
    return zeros(slot, beside, KN_F32, KN_SHAPE(SUMS));
}

kn_status kn__losses_add(kn_tensor *losses, int64_t i, kn_tensor *loss) {
    return kn_add_into(kn_tensor_view(losses, KN_SCALAR, i % SUMS), kn_cast(loss, KN_F32));
}

kn_status kn__losses_read(double *sum, kn_tensor *losses) {
    KN_FRAME(.record = KN_OFF);
    return kn_item(sum, kn_sum(kn_cast(losses, KN_F64), KN_ALL, false));
}

bool kn_converged(kn_converge *c, double loss) {
    double alpha = c->alpha != 0 ? c->alpha : 0.1;
    if (!(alpha > 0 && alpha <= 1)) {
        (void)KN_FAIL_NULL(KN_ERR_INVALID,
                           "kn_converged: alpha is %g; it must be above 0 and at most 1", alpha);
        return true; /* the loop ends */
    }
    if (!isfinite(loss)) return true;
    if (!c->n++) c->mean = loss;
    double above = loss - c->mean;
    c->mean += alpha * above;
    c->trend += alpha * (above - c->trend);
    return c->trend > 0;
}
