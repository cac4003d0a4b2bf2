/* Initial values that are more than one random op. */
#include <math.h>
#include <stdlib.h>

#include "run.h"

/* --- orthogonal --- */

static kn_tensor *orthogonal(int64_t rows, int64_t columns, double gain, kn_rng *rng) {
    bool wide = rows < columns;
    kn_tensor *x = kn_normal(wide ? KN_SHAPE(columns, rows) : KN_SHAPE(rows, columns), 0, 1, rng);
    kn_tensor *q, *r;
    kn_status status = x ? kn_qr(&q, &r, x) : KN_OK;
    if (!x || status < 0) return kn_error_defer(status);
    /* R's diagonal, by columns: its signs make Q unique, and uniformly distributed. */
    kn_tensor *signs = kn_sign(kn_sum_mask(kn_tri_scale(r, 0, 1, 0), 1, false));
    q = kn_affine(kn_mul(q, signs), gain, 0);
    return wide ? kn_transpose(q, KN_ALL) : q;
}

kn_tensor *kn_orthogonal(kn_shape shape, double gain, kn_rng *rng) {
    KN__AS("orthogonal");
    if (kn_pending() || !kn__has_frame()) return NULL;
    int64_t n = kn__shape_numel(&shape);
    if (shape.n_dims < 2) {
        char text[256];
        return kn_op_fail(KN_OP_qr, KN_ERR_SHAPE, "the shape %s must have two dimensions or more",
                          kn_shape_text(text, sizeof text, shape));
    }
    if (n < 1) return kn_normal(shape, 0, 1, rng); /* empty, or an error */
    kn_device *device = kn_frame_device();
    kn_tensor *kept = NULL;
    {
        KN_FRAME(.device = kn_device_host(), .dtype = kn_frame_dtype(), .record = KN_OFF);
        kn_tensor *w = orthogonal(shape.dim[0], n / shape.dim[0], gain, rng);
        if (w) kept = kn_keep(w);
    }
    kn_tensor *w = kept ? kn_reshape(kept, shape) : NULL;
    return w && device != kn_device_host() ? kn_to(w, device) : w;
}

/* --- the filter of bilinear upsampling --- */

/* 1 at the centre, falling to 0 one step past the edge. */
static double hat(int64_t i, int64_t n) {
    int64_t reach = (n + 1) / 2;
    double half = (double)reach, centre = n % 2 ? half - 1 : half - 0.5;
    return 1 - fabs((double)i - centre) / half;
}

static void fill_filter(double *w, const int64_t *dim) {
    int64_t size = dim[2] * dim[3];
    for (int64_t c = 0; c < dim[0] && c < dim[1]; c++) {
        double *at = w + (c * dim[1] + c) * size;
        for (int64_t i = 0; i < size; i++)
            at[i] = hat(i / dim[3], dim[2]) * hat(i % dim[3], dim[3]);
    }
}

kn_tensor *kn_bilinear_filter(kn_shape shape) {
    KN__AS("bilinear_filter");
    if (kn_pending()) return NULL;
    int64_t n = kn__shape_numel(&shape);
    if (shape.n_dims != 4 || n < 0) {
        char text[256];
        return kn_op_fail(KN_OP_fill, KN_ERR_SHAPE, "%s is not [O,I,H,W]",
                          kn_shape_text(text, sizeof text, shape));
    }
    double *values = calloc((size_t)n + 1, sizeof *values);
    if (!values) {
        char text[256];
        return kn_op_fail(KN_OP_fill, KN_ERR_OOM, "no host memory for %s",
                          kn_shape_text(text, sizeof text, shape));
    }
    fill_filter(values, shape.dim);
    kn_tensor *w = kn__constant_from(kn_frame_device(), values, KN_F64, shape);
    free(values);
    return kn_frame_dtype() == KN_F64 ? kn_affine(w, 1, 0) : kn_cast(w, kn_frame_dtype());
}
