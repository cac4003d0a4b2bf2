/* Clipped gradients: by the norm of all, or each by its own. */
#include <stdlib.h>

#include "optim.h"

/* Of the rows of a sparse parameter. */
static kn_tensor *rows_square_sum(kn_tensor *w) {
    const kn__rows *rows = &kn__edge_param(w->grad)->rows;
    return kn_sum_square(kn__rows_once(rows, rows->values), KN_ALL, false);
}

/* min(1, limit/√sum) */
static kn_tensor *scale_to(kn_tensor *sum, double limit) {
    kn_tensor *norm = kn_sqrt(sum);
    if (!norm) return NULL;
    kn_tensor *most = kn_filled_like(norm, limit), *one = kn_filled_like(norm, 1);
    return kn_minimum(kn_div(most, kn_affine(norm, 1, 1e-6)), one);
}

kn_status kn__clip_to(kn_optim *optim, kn_tensor *sum, double limit) {
    kn_tensor *scale = scale_to(sum, limit);
    kn_tensor *place = scale ? kn_tensor_view(optim->hyper, KN_SCALAR, SCALE) : NULL;
    if (!place) return kn_check();
    kn_attr_cast attr = {KN_F64};
    kn_op_call cast;
    kn_op_call_init(&cast, KN_OP_cast, &attr, &scale, 1);
    cast.out[0] = place;
    cast.given = 1;
    return kn_op_run(&cast) ? KN_OK : kn_check();
}

kn_status kn__clip(kn_optim *optim) {
    kn_tensor *g = optim->set->flat;
    kn_tensor *sum = kn_sum(kn_mul(g, g), KN_ALL, false);
    for (int i = optim->n_dense; sum && !optim->part_grad && i < optim->set->n; i++)
        sum = kn_add(sum, rows_square_sum(optim->parts[i].w));
    return kn__clip_to(optim, sum, optim->clip_norm);
}

/* g *= factor */
static kn_status multiply(kn_tensor *g, kn_tensor *factor) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_mul, NULL, KN_LIST_(g, factor), 2);
    call.out[0] = g;
    call.given = 1;
    return kn_op_run(&call) ? KN_OK : kn_check();
}

/* Computed, not pending: a product that reads it takes no memory. */
static kn_status scale_make(kn_tensor **out, const kn_optim *optim, const kn__param *p) {
    KN_FRAME();
    kn_tensor *g = kn__param_grad(p);
    if (!g->n) return KN_OK;
    kn_tensor *sum = p->is_sparse ? rows_square_sum(p->w) : kn_sum_square(g, KN_ALL, false);
    kn_tensor *scale = scale_to(sum, optim->clip_each);
    if (!scale) return kn_check();
    KN_TRY(kn_tensor_compute(scale));
    *out = kn_keep(scale);
    return KN_OK;
}

/* Times 1 leaves gradients that are small enough as they are, bit for bit. Others would be
 * multiplied by a little less than 1 the second time: a step that failed clips before the first
 * write, or all, and its repetition doesn't. A recorded step has to, for its replays. */
kn_status kn__clip_each(kn_optim *optim) {
    const kn_params *set = optim->set;
    KN_ASSERT(set->n_begun > 0);
    if (optim->clipped == set->n_begun && !kn_capture_records()) return KN_OK;
    kn_tensor **scale = calloc((size_t)set->n + 1, sizeof(kn_tensor *));
    if (!scale) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    kn_status status = KN_OK;
    for (int i = 0; i < set->n && status == KN_OK; i++)
        status = scale_make(&scale[i], optim, set->param[i]);
    for (int i = 0; i < set->n && status == KN_OK; i++)
        if (scale[i]) status = multiply(kn__param_grad(set->param[i]), scale[i]);
    free(scale);
    if (status == KN_OK) optim->clipped = set->n_begun;
    return status;
}
