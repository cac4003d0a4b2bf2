/* Reductions: sorts the dimensions of x into kept and reduced ones. */
#include "cuda/base/module.h"

/* Appends a dimension to a list, merged with the one before where one stride walks both. */
static void add_dim(int *n, int64_t *dim, int64_t *stride, int64_t size, int64_t step) {
    if (size == 1) return;
    if (*n && stride[*n - 1] == step * size) {
        dim[*n - 1] *= size;
        stride[*n - 1] = step;
        return;
    }
    dim[*n] = size;
    stride[(*n)++] = step;
}

static kn__reduce reduce_of(const kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__reduce r = {.recipe = kn__reduce_recipe(call),
                    .dtype = (kn_dtype)x->dtype,
                    .out_dtype = (kn_dtype)call->out[0]->dtype,
                    .n_out = 1,
                    .n_in = 1,
                    .out = call->out[0]->data,
                    .in = x->data,
                    .accumulate = kn__adds(call)};
    int64_t stride[KN_DIMS_MAX], step = 1;
    for (int d = x->n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        step *= x->dim[d];
    }
    for (int d = 0; d < x->n_dims; d++) {
        if (attr->mask >> d & 1) {
            add_dim(&r.n_reduced, r.reduced_dim, r.reduced_stride, x->dim[d], stride[d]);
            r.n_in *= x->dim[d];
        } else {
            add_dim(&r.n_kept, r.kept_dim, r.kept_stride, x->dim[d], stride[d]);
            r.n_out *= x->dim[d];
        }
    }
    return r;
}

static kn_status work_for(kn__reduce *r, kn_op_call *call) {
    size_t bytes = (size_t)r->n_out * sizeof(double);
    if (r->n_chunks > 1) KN_TRY(kn__work(&r->partial, call, (size_t)r->n_chunks * bytes));
    if (r->recipe.shift == KN__SHIFT_NONE) return KN_OK;
    KN_TRY(kn__work(&r->shift, call, bytes));
    if (r->recipe.shift != KN__SHIFT_GIVEN) return KN_OK;
    return KN__CUDA_NAMED("cast_kernel", kn__launch_cast(r->shift, KN_F64, call->in[1]->data,
                                                         r->dtype, r->n_out, call->stream));
}

kn_status kn__cuda_reduce(kn_op_call *call) {
    kn__reduce r = reduce_of(call);
    kn__reduce_plan(&r);
    KN_TRY(work_for(&r, call));
    return KN__CUDA_NAMED("reduce_kernel", kn__launch_reduce(&r, call->stream));
}

/* Work space of 16 bytes for each chunk of each line; none where lines are whole. */
static kn_status chunks_for(void **out, kn_op_call *call, kn__lines lines, int64_t n_chunks) {
    if (n_chunks < 2) return KN_OK;
    return kn__work(out, call, (size_t)(n_chunks * lines.outer * lines.inner) * 16);
}

kn_status kn__cuda_place(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    bool pair = call->n_out > 1;
    const kn_tensor *values = pair ? call->out[0] : NULL, *places = call->out[pair ? 1 : 0];
    kn__place_args p = {.max = call->op == KN_OP_argmax || call->op == KN_OP_max_index,
                        .dtype = (kn_dtype)x->dtype,
                        .lines = kn__lines_of(x, attr->mask),
                        .in = x->data,
                        .places = places ? places->data : NULL,
                        .values = values ? values->data : NULL};
    kn__place_plan(&p);
    KN_TRY(chunks_for(&p.parts, call, p.lines, p.n_chunks));
    return KN__CUDA_NAMED("place_kernel", kn__launch_place(&p, call->stream));
}

kn_status kn__cuda_scan(kn_op_call *call) {
    const kn_attr_scan *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__scan p = {.kind = call->op == KN_OP_cumsum    ? 0
                          : call->op == KN_OP_cumprod ? 1
                          : call->op == KN_OP_recur   ? 2
                          : call->op == KN_OP_cummax  ? 3
                                                      : 4,
                  .reverse = attr->reverse != 0,
                  .exclusive = attr->exclusive != 0,
                  .dtype = (kn_dtype)x->dtype,
                  .lines = kn__lines_of(x, attr->mask),
                  .out = call->out[0] ? call->out[0]->data : NULL,
                  .places = call->n_out > 1 && call->out[1] ? call->out[1]->data : NULL,
                  .in = x->data,
                  .b = call->op == KN_OP_recur ? call->in[1]->data : NULL};
    kn__scan_plan(&p);
    KN_TRY(chunks_for(&p.totals, call, p.lines, p.n_chunks));
    return KN__CUDA_NAMED("scan_kernel", kn__launch_scan(&p, call->stream));
}

kn_status kn__cuda_extremes(kn_op_call *call) { return kn__cuda_scan(call); }

kn_status kn__cuda_search_sorted(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    const kn_tensor *sorted = call->in[0], *values = call->in[1];
    kn__search_args p = {.dtype = (kn_dtype)sorted->dtype,
                         .right = attr->a != 0,
                         .sorted = sorted->data,
                         .values = values->data,
                         .places = call->out[0]->data,
                         .n = sorted->dim[sorted->n_dims - 1],
                         .each = sorted->n_dims > 1 ? values->dim[values->n_dims - 1] : values->n,
                         .count = values->n};
    return KN__CUDA_NAMED("search_kernel", kn__launch_search(&p, call->stream));
}

kn_status kn__cuda_bin(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *x = call->in[0];
    return KN__CUDA_NAMED(
        "bin_kernel", kn__launch_bin(attr->a, attr->b, attr->dim[0], x->dtype == KN_F32, x->data,
                                     call->out[0]->data, x->n, call->stream));
}

kn_status kn__cuda_sort(kn_op_call *call) {
    const kn_attr_sort *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__sort_args p = {.dtype = (kn_dtype)x->dtype,
                       .descending = attr->descending != 0,
                       .lines = kn__lines_of(x, attr->mask),
                       .k = attr->k,
                       .in = x->data,
                       .values = call->out[0] ? call->out[0]->data : NULL,
                       .places = call->out[1] ? call->out[1]->data : NULL};
    size_t bytes = kn__sort_bytes(&p);
    if (bytes) KN_TRY(kn__work(&p.work, call, bytes));
    return KN__CUDA_NAMED("sort_kernel", kn__launch_sort(&p, call->stream));
}

kn_status kn__cuda_along(kn_op_call *call) {
    const kn_attr_along *attr = call->attr;
    bool put = call->op == KN_OP_put_along;
    const kn_tensor *large = put ? call->out[0] : call->in[0], *index = call->in[1];
    if (put) KN_TRY(kn__zeros(call, 0));
    if (index->n == 0) return KN_OK;
    kn__lines lines = kn__lines_of(large, attr->mask);
    return KN__CUDA_NAMED(
        "along_kernel",
        kn__launch_along(call->out[0]->data, call->in[0]->data, index->data,
                         kn_dtype_bytes((kn_dtype)large->dtype), lines,
                         index->n / (lines.outer * lines.inner), put, call->stream));
}
