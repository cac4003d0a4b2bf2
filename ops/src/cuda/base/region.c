/* Regions: index spaces with the strides of each operand, brought to as few dimensions as go. */
#include "cuda/base/module.h"

static bool mergeable(const kn__operand_region *r, int outer, int inner, int n_operands) {
    for (int k = 0; k < n_operands; k++) {
        if (r->stride[k][outer] != r->stride[k][inner] * r->dim[inner]) return false;
    }
    return true;
}

static void move_dim(kn__operand_region *r, int to, int from, int n_operands) {
    r->dim[to] = r->dim[from];
    for (int k = 0; k < n_operands; k++) r->stride[k][to] = r->stride[k][from];
}

void kn__region_merge(kn__operand_region *r, int n_operands) {
    int n = 0; /* dimensions kept so far; the last one may still grow */
    for (int d = 0; d < r->n_dims; d++) {
        if (r->dim[d] == 1) continue;
        if (n && mergeable(r, n - 1, d, n_operands)) {
            int64_t size = r->dim[n - 1] * r->dim[d];
            move_dim(r, n - 1, d, n_operands);
            r->dim[n - 1] = size;
        } else {
            move_dim(r, n++, d, n_operands);
        }
    }
    r->n_dims = n;
    if (n) return;
    r->n_dims = 1, r->dim[0] = 1; /* one element */
    for (int k = 0; k < n_operands; k++) r->stride[k][0] = k == 0;
}

void kn__region_strides(int64_t *stride, const kn_tensor *t, const kn_tensor *shape_of) {
    int lead = shape_of->n_dims - t->n_dims;
    int64_t step = 1;
    for (int d = shape_of->n_dims - 1; d >= 0; d--) {
        int64_t size = d < lead ? 1 : t->dim[d - lead];
        stride[d] = size == 1 ? 0 : step;
        step *= size;
    }
}
