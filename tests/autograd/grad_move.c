/* Parts, padding, and elements at indices. */
#include "grad_cases.h"

#define SQUARE(x) kn_mul(x, x)

F(f_steps) {
    CTX;
    return kn_index(SQUARE(x[0]),
                    KN_ITEMS(KN_RANGE(1, KN_END, 2), KN_RANGE(KN_BEGIN, 0, -2), KN_NEW));
}
F(f_flip) {
    CTX;
    return kn_flip(SQUARE(x[0]), KN_SHAPE(0, 2));
}
F(f_diagonal) {
    CTX;
    return kn_diagonal(SQUARE(x[0]), 1, 2, 0);
}
F(f_diag) {
    CTX;
    return kn_mul(kn_diag(SQUARE(x[0]), -1), x[1]);
}
F(f_stack) {
    CTX;
    return kn_stack((kn_tensor *const[]){SQUARE(x[0]), x[1], x[0]}, 3, -1);
}
F(f_split) {
    CTX;
    kn_tensor *part[3];
    if (kn_split_axis(part, SQUARE(x[0]), (const int64_t[]){1, 3, 1}, 3, 1) < 0) return GRAD_FAILED;
    return kn_mul(kn_add(part[0], part[2]), part[1]);
}
F(f_unbind) {
    CTX;
    kn_tensor *part[3];
    if (kn_unbind(part, SQUARE(x[0]), 3, 1) < 0) return GRAD_FAILED;
    return kn_mul(kn_add(part[0], part[2]), part[1]);
}
F(f_repeat) {
    CTX;
    return kn_mul(kn_repeat(SQUARE(x[0]), 3, 1), x[1]);
}
F(f_tile) {
    CTX;
    return kn_mul(kn_tile(SQUARE(x[0]), KN_SHAPE(2, 1, 3)), x[1]);
}
F(f_roll) {
    CTX;
    return kn_mul(kn_roll(SQUARE(x[0]), 2, 1), x[0]);
}
F(f_triu) {
    CTX;
    return kn_triu(SQUARE(x[0]), 1);
}
F(f_tril) {
    CTX;
    return kn_tril(SQUARE(x[0]), -1);
}
F(f_pad) {
    CTX;
    return kn_pad(SQUARE(x[0]), KN_SHAPE(1, 0), KN_SHAPE(0, 2), KN_PAD_CONSTANT, 3);
}
F(f_pad_reflect) {
    CTX;
    return kn_pad(SQUARE(x[0]), KN_SHAPE(2, 3), KN_SHAPE(1, 2), KN_PAD_REFLECT, 0);
}
F(f_pad_symmetric) {
    CTX;
    return kn_pad(SQUARE(x[0]), KN_SHAPE(3, 0), KN_SHAPE(2, 4), KN_PAD_SYMMETRIC, 0);
}
F(f_pad_replicate) {
    CTX;
    return kn_pad(SQUARE(x[0]), KN_SHAPE(1, 2), KN_SHAPE(4, 0), KN_PAD_REPLICATE, 0);
}
F(f_pad_circular) {
    CTX;
    return kn_pad(SQUARE(x[0]), KN_SHAPE(3, 1), KN_SHAPE(1, 4), KN_PAD_CIRCULAR, 0);
}
F(f_pad_back) {
    CTX;
    kn_attr_pad_edge attr = {1, 2, 1, KN_PAD_REFLECT};
    return KN_CALL(pad_edge_back, &attr, SQUARE(x[0]));
}
F(f_select) {
    CTX;
    return kn_mul(kn_select(SQUARE(x[0]), -2, 1), kn_select(x[0], 0, 1));
}

/* --- at indices; some twice --- */

F(f_embedding) {
    CTX;
    return kn_embedding(SQUARE(x[0]), I64(KN_SHAPE(2, 3), 3, 0, 3, 1, -1, 1));
}
F(f_index_add) {
    CTX;
    return kn_index_add(SQUARE(x[0]), I64(KN_SHAPE(3), 2, 0, 2), SQUARE(x[1]), 1);
}
F(f_index_set) {
    CTX;
    return kn_index_set(SQUARE(x[0]), I64(KN_SHAPE(3), 2, 0, 2), SQUARE(x[1]), 1);
}
F(f_gather) {
    CTX;
    return kn_gather(SQUARE(x[0]), I64(KN_SHAPE(3, 2), 3, 3, 0, 1, -1, 0), 1);
}
F(f_gather_part) {
    CTX;
    return kn_gather(SQUARE(x[0]), I64(KN_SHAPE(2, 2), 3, 3, 0, 1), 1);
}
F(f_scatter_part) {
    CTX;
    return kn_scatter(SQUARE(x[0]), I64(KN_SHAPE(2, 2), 3, 3, 0, 1), SQUARE(x[1]), 1);
}
F(f_scatter_add_part) {
    CTX;
    return kn_scatter_add(SQUARE(x[0]), I64(KN_SHAPE(2, 2), 3, 3, 0, 1), SQUARE(x[1]), 1);
}
F(f_scatter) {
    CTX;
    return kn_scatter(SQUARE(x[0]), I64(KN_SHAPE(3, 2), 3, 3, 0, 1, -1, 0), SQUARE(x[1]), 1);
}
F(f_scatter_add) {
    CTX;
    return kn_scatter_add(SQUARE(x[0]), I64(KN_SHAPE(3, 2), 3, 3, 0, 1, -1, 0), SQUARE(x[1]), 1);
}
F(f_index_two) {
    CTX;
    kn_tensor *rows = I64(KN_SHAPE(3, 1), 0, 2, 0), *columns = I64(KN_SHAPE(2), 1, -1);
    return kn_index(SQUARE(x[0]), KN_ITEMS(KN_TAKE(rows), KN_TAKE(columns)));
}
F(f_index_apart) {
    CTX;
    kn_tensor *first = I64(KN_SHAPE(2), 1, 1), *last = I64(KN_SHAPE(2), 0, 3);
    return kn_index(SQUARE(x[0]), KN_ITEMS(KN_TAKE(first), KN_RANGE(0, 3, 2), KN_TAKE(last)));
}
F(f_masked) {
    CTX;
    kn_tensor *mask = kn_gt(x[0], kn_full(KN_SCALAR, 0));
    return kn_sum(SQUARE(kn_masked_select(x[0], mask)), KN_ALL, false);
}
F(f_set_at) {
    CTX;
    kn_tensor *rows = I64(KN_SHAPE(3), 2, 0, 2);
    return kn_set_at(SQUARE(x[0]), SQUARE(x[1]), KN_ITEMS(KN_RANGE(0, 3, 1), KN_TAKE(rows)));
}
F(f_set_at_mask) {
    CTX;
    kn_tensor *mask = kn_gt(x[0], kn_full(KN_SCALAR, 0));
    return kn_set_at(SQUARE(x[0]), SQUARE(x[1]), KN_ITEMS(KN_MASK(mask)));
}
F(f_add_at) {
    CTX;
    kn_tensor *rows = I64(KN_SHAPE(3), 2, 0, 2);
    return kn_add_at(SQUARE(x[0]), SQUARE(x[1]), KN_ITEMS(KN_RANGE(0, 3, 2), KN_TAKE(rows)));
}
F(f_add_at_range) {
    CTX;
    return kn_add_at(SQUARE(x[0]), SQUARE(x[1]), KN_ITEMS(KN_EVERY, KN_RANGE(2, KN_BEGIN, -2)));
}

const grad_case grad_move_cases[] = {
    CASE(strided, f_steps, -2, 2, 1, C1(5, 4)),
    CASE(strided, f_flip, -2, 2, 1, C1(2, 3, 4)),
    CASE(strided, f_diagonal, -2, 2, 1, C1(3, 2, 4)),
    CASE(strided, f_select, -2, 2, 1, C1(2, 3, 4)),
    CASE(strided_set, f_diag, -2, 2, 2, C1(3), C1(4, 4)),
    CASE(concat, f_stack, -2, 2, 2, C1(2, 3), C1(2, 3)),
    CASE(slice, f_split, -2, 2, 1, C1(3, 5)),
    CASE(strided, f_unbind, -2, 2, 1, C1(2, 3, 4)),
    CASE(broadcast, f_repeat, -2, 2, 2, C1(2, 3), C1(2, 9)),
    CASE(broadcast, f_tile, -2, 2, 2, C1(2, 3, 2), C1(4, 3, 6)),
    CASE(roll, f_roll, -2, 2, 1, C1(2, 5)),
    CASE(triu, f_triu, -2, 2, 1, C1(2, 3, 4)),
    CASE(tril, f_tril, -2, 2, 1, C1(2, 3, 4)),
    CASE(pad, f_pad, -2, 2, 1, C1(2, 3)),
    CASE(pad_edge, f_pad_reflect, -2, 2, 1, C1(3, 4)),
    CASE(pad_edge, f_pad_symmetric, -2, 2, 1, C1(3, 4)),
    CASE(pad_edge, f_pad_replicate, -2, 2, 1, C1(3, 4)),
    CASE(pad_edge, f_pad_circular, -2, 2, 1, C1(3, 4)),
    CASE(pad_edge_back, f_pad_back, -2, 2, 1, C1(2, 6)),
    CASE(index_select, f_embedding, -2, 2, 1, C1(4, 3)),
    CASE(index_select, f_index_two, -2, 2, 1, C1(3, 4)),
    CASE(index_select, f_index_apart, -2, 2, 1, C1(2, 3, 4)),
    CASE(index_select, f_masked, -2, 2, 1, C1(3, 4)),
    CASE(index_add, f_index_add, -2, 2, 2, C1(2, 3, 2), C1(2, 3, 2)),
    CASE(index_set, f_index_set, -2, 2, 2, C1(2, 3, 2), C1(2, 3, 2)),
    CASE(gather, f_gather, -2, 2, 1, C1(3, 4)),
    CASE(gather, f_gather_part, -2, 2, 1, C1(3, 4)),
    CASE(scatter, f_scatter_part, -2, 2, 2, C1(3, 4), C1(2, 2)),
    CASE(scatter_add, f_scatter_add_part, -2, 2, 2, C1(3, 4), C1(2, 2)),
    CASE(scatter, f_scatter, -2, 2, 2, C1(3, 4), C1(3, 2)),
    CASE(scatter_add, f_scatter_add, -2, 2, 2, C1(3, 4), C1(3, 2)),
    CASE(strided_set, f_set_at, -2, 2, 2, C1(4, 3), C1(3, 1)),
    CASE(index_set, f_set_at_mask, -2, 2, 2, C1(3, 4), C0),
    CASE(strided_add, f_add_at, -2, 2, 2, C1(4, 3), C1(3)),
    CASE(strided_add, f_add_at_range, -2, 2, 2, C1(3, 4), C1(3, 2)),
};
const int n_grad_move_cases = sizeof grad_move_cases / sizeof *grad_move_cases;
