#include "uniform.h"

static int64_t product(const int64_t dim[], int64_t n_dims) {
    int64_t n = 1;
    for (int64_t d = 0; d < n_dims; d++) n *= dim[d];
    return n;
}

/* Whether each element of each input comes into the result, equally often. */
static bool moves_all(kn__node *n) {
    switch (n->op) {
        case KN_OP_reshape:
        case KN_OP_transpose:
        case KN_OP_concat:
        case KN_OP_block_diag:
        case KN_OP_roll:
        case KN_OP_pad:
        case KN_OP_slice_back:
        case KN_OP_broadcast:
            return true;
        case KN_OP_strided: {
            const kn_attr_strided *attr = kn__node_attr(n);
            return product(attr->dim, attr->n_dims) == product(attr->whole, attr->n_whole);
        }
        default:
            return false;
    }
}

/* Somebody who asked for the gradient, or a second one that it is added to, needs all elements. */
static bool is_handed_on(const kn__back *b, int i, const kn_shape *shape) {
    kn_edge edge = kn__node_edges(b->node)[i];
    kn__node *to = kn__edge_node(edge);
    return to && !b->pass->again && !kn__anomaly_on() && to->n_users == 1 && moves_all(to) &&
           !kn__edge_result(edge)->target && product(shape->dim, shape->n_dims) > 1;
}

kn_tensor *kn__give_uniform(kn__back *b, int i, kn_tensor *g) {
    kn_shape shape = kn__back_shape(b, i);
    if (!g || is_handed_on(b, i, &shape)) return g;
    kn_attr_shape attr = {.n_dims = shape.n_dims};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    kn_shape ones = shape;
    for (int d = 0; d < shape.n_dims; d++) ones.dim[d] = 1;
    return KN_GIVE(b, i, broadcast, &attr, kn_reshape(g, ones));
}

kn_tensor *kn__uniform_back(kn__back *b, int i) {
    kn_tensor *g = b->g;
    if (b->node->op == KN_OP_broadcast) {
        const kn__result *r = kn__node_results(b->node);
        kn_shape shape = kn__back_shape(b, i);
        int64_t n = product(r->dim, r->n_dims) / product(shape.dim, shape.n_dims);
        if (n > 1) g = kn_affine(g, (double)n, 0);
    }
    return kn__give_uniform(b, i, g);
}
