/* Clipped gradients: by the norm of all, or each by its own. */
#include <stdlib.h>

#include "optim.h"

/* Of the rows of a sparse parameter. */
static kn_tensor *rows_square_sum(kn_tensor *w) {
    const kn__rows *rows = &kn__edge_param(w->grad)->rows;
    return kn_sum_square(kn__rows_once(rows, rows->values), KN_ALL, false);
}

kn_tensor *kn__clip_scale(kn_tensor *sum, double limit) {
    kn_tensor *norm = kn_sqrt(sum);
    if (!norm) return NULL;
    kn_tensor *most = kn_filled_like(norm, limit), *one = kn_filled_like(norm, 1);
    return kn_minimum(kn_div(most, kn_affine(norm, 1, 1e-6)), one);
}

kn_status kn__clip_to(kn_optim *optim, kn_tensor *sum, double limit) {
    kn_tensor *scale = kn__clip_scale(sum, limit);
    kn_tensor *place = scale ? kn_tensor_view(optim->hyper, KN_SCALAR, SCALE) : NULL;
    if (!place) return kn_check();
    kn_attr_cast attr = {KN_F64};
    kn_op_call cast;
    kn_op_call_init(&cast, KN_OP_cast, &attr, &scale, 1);
    cast.out[0] = place;
    cast.given = 1;
    return kn_op_run(&cast) ? KN_OK : kn_check();
}

static int by_offset(const void *a, const void *b) {
    const kn__param *p = *(const kn__param *const *)a, *q = *(const kn__param *const *)b;
    return (p->offset > q->offset) - (p->offset < q->offset);
}

/* Of the slices of parameters that move; those side by side are one sum. slice: room for all. */
static kn_tensor *moving_square_sum(const kn_optim *optim, const kn__param *slice[]) {
    const kn_params *set = optim->set;
    kn_tensor *sum = kn_cast(kn_zeros(KN_SCALAR), set->dtype);
    int n = 0;
    for (int i = 0; i < set->n; i++)
        if (!set->param[i]->is_sparse && set->param[i]->w->n) slice[n++] = set->param[i];
    qsort(slice, (size_t)n, sizeof *slice, by_offset);
    for (int i = 0; i < n; i++) {
        if (!kn__param_moves(optim, slice[i])) continue;
        int64_t begin = slice[i]->offset;
        while (i < n && kn__param_moves(optim, slice[i])) i++;
        int64_t end = i < n ? slice[i]->offset : set->flat->n;
        kn_tensor *g = kn_tensor_view(set->flat, KN_SHAPE(end - begin), begin);
        sum = kn_add(sum, kn_sum(kn_mul(g, g), KN_ALL, false));
    }
    return sum;
}

static kn_tensor *dense_square_sum(const kn_optim *optim) {
    const kn_params *set = optim->set;
    bool all_move = true;
    for (int i = 0; i < set->n; i++) all_move &= kn__param_moves(optim, set->param[i]);
    if (all_move) return kn_sum(kn_mul(set->flat, set->flat), KN_ALL, false);
    const kn__param **slice = calloc((size_t)set->n, sizeof *slice);
    if (!slice) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    kn_tensor *sum = moving_square_sum(optim, slice);
    free(slice);
    return sum;
}

kn_status kn__clip(kn_optim *optim) {
    const kn_params *set = optim->set;
    kn_tensor *sum = dense_square_sum(optim);
    for (int i = 0; sum && i < set->n; i++) {
        const kn__param *p = set->param[i];
        if (p->is_sparse && kn__param_moves(optim, p)) sum = kn_add(sum, rows_square_sum(p->w));
    }
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
    kn_tensor *scale = kn__clip_scale(sum, optim->clip_each);
    if (!scale) return kn_check();
    KN_TRY(kn_tensor_compute(scale));
    *out = kn_keep(scale);
    return KN_OK;
}

/* Times 1 leaves gradients that are small enough as they are, bit for bit. Others would be
 * multiplied by a little less than 1 the second time: a step that failed clips before the first
 * write, or all, and its repetition doesn't. A recorded step has to, for its replays. Groups of
 * rate 0 are clipped too: what an optimiser keeps of their gradients moves on. */
kn_status kn__clip_each(kn_optim *optim) {
    const kn_params *set = optim->set;
    KN_ASSERT(set->n_begun > 0);
    if (optim->clipped == set->n_begun && !kn_capture_records()) return KN_OK;
    kn_tensor **scale = calloc((size_t)set->n + 1, sizeof(kn_tensor *));
    if (!scale) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    kn_status status = KN_OK;
    for (int i = 0; i < set->n && status == KN_OK; i++)
        if (!set->param[i]->is_frozen) status = scale_make(&scale[i], optim, set->param[i]);
    for (int i = 0; i < set->n && status == KN_OK; i++)
        if (scale[i]) status = multiply(kn__param_grad(set->param[i]), scale[i]);
    free(scale);
    if (status == KN_OK) optim->clipped = set->n_begun;
    return status;
}
