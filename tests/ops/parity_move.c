/* Cases of parts, padding, and elements at indices. */
#include "parity_case.h"

static const kn_dtype own = (kn_dtype)0;

static parity_operand fill_of(parity_operand o, kn_dtype dtype) {
    o = of_dtype(o, dtype);
    bool integer = dtype >= KN_I64;
    if (integer && o.fill != FILL_GUARD) o.fill = FILL_INDEX;
    o.limit = dtype == KN_BOOL ? 2 : 100;
    return o;
}

static parity_case *one_input(kn_op op, kn_dtype dtype, parity_operand x, parity_operand y) {
    parity_case *c = parity_add(op, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = fill_of(x, dtype), c->out[0] = fill_of(like(y, FILL_GUARD), dtype);
    return c;
}

/* --- parts --- */

static void strided_put_of(kn_op op, kn_dtype dtype, parity_operand x, parity_operand y,
                           const kn_attr_strided *attr, int how) {
    if (op == KN_OP_strided_set && how == 1) return; /* no result to add to */
    if (op == KN_OP_strided_add && dtype == KN_BOOL) return;
    parity_case *c = one_input(op, dtype, x, x);
    c->n_in = 2, c->in[1] = fill_of(y, dtype);
    if (how) (op == KN_OP_strided_add ? &c->in[0] : &c->in[1])->fill = FILL_ABSENT;
    if (how == 1) c->accumulate = 1, c->out[0] = fill_of(x, dtype);
    set_attr(c, attr, sizeof *attr);
}

static void strided_of(kn_dtype dtype, parity_operand x, int64_t start, parity_operand y,
                       const int64_t stride[]) {
    kn_attr_strided attr = {.start = start, .n_dims = y.shape.n_dims, .n_whole = x.shape.n_dims};
    memcpy(attr.dim, y.shape.dim, sizeof attr.dim);
    memcpy(attr.whole, x.shape.dim, sizeof attr.whole);
    for (int d = 0; d < y.shape.n_dims; d++) attr.stride[d] = stride[d];
    for (int adds = 0; adds < (dtype ? 1 : 2); adds++) {
        parity_case *c = one_input(KN_OP_strided, dtype, x, y);
        if (adds) c->accumulate = 1, c->out[0] = y;
        set_attr(c, &attr, sizeof attr);
    }
    for (int how = 0; how < 3; how++) { /* to x; added to the result, to or of nothing; the same */
        strided_put_of(KN_OP_strided_add, dtype, x, y, &attr, how);
        strided_put_of(KN_OP_strided_set, dtype, x, y, &attr, how);
    }
}

#define STRIDE(...) ((const int64_t[]){__VA_ARGS__})

static void strided_cases(void) {
    strided_of(own, U(20, 30), 2 * 30 + 1, U(5, 7), STRIDE(90, 4));
    strided_of(own, U(20, 30), 19 * 30, U(20, 30), STRIDE(-30, 1));
    strided_of(own, U(17, 31), 17 * 31 - 1, U(17, 31), STRIDE(-31, -1));
    strided_of(own, U(1031), 1030, U(1031), STRIDE(-1));
    strided_of(own, U(301, 3), 2, U(301, 3), STRIDE(3, -1));
    strided_of(own, U(5, 6, 7), 3, U(5, 6), STRIDE(42, 7));
    strided_of(own, U(201, 3, 5), 6, U(201, 2, 3), STRIDE(15, 5, 1)); /* few short rows, often */
    strided_of(KN_U8, U(701, 13), 2, U(701, 9), STRIDE(13, 1));
    strided_of(own, U(40, 50), 1, U(40), STRIDE(51)); /* a diagonal */
    strided_of(own, U(6, 8), 5, SCALAR(UNIFORM), STRIDE(0));
    strided_of(own, U(6, 8), 0, U(0, 8), STRIDE(8, 1));
    strided_of(own, U(6, 7, 50), 3, U(6, 5, 24), STRIDE(350, 50, 2)); /* rows of packs */
    strided_of(KN_F16, U(11, 50), 1, U(11, 48), STRIDE(50, 1));
    strided_of(KN_U8, U(13, 64), 12 * 64, U(13, 64), STRIDE(-64, 1));
    strided_of(KN_BOOL, U(13, 7), 6, U(13, 4), STRIDE(7, -2));
    strided_of(KN_F16, U(33, 16), 1, U(33, 5), STRIDE(16, 3));
    strided_of(KN_BF16, U(9, 16), 8 * 16, U(9, 16), STRIDE(-16, 1));
    strided_of(KN_I64, U(2, 3, 2, 3, 2, 3), 0, U(2, 3, 2, 3, 2, 2), STRIDE(108, 36, 18, 6, 3, 2));
    strided_of(KN_I32, U(7, 11), 3, U(7, 4), STRIDE(11, 2));
}

static void roll_of(kn_dtype dtype, parity_operand x, int axis, int64_t shift) {
    parity_case *c = one_input(KN_OP_roll, dtype, x, x);
    ATTR(c, kn_attr_roll, axis, shift);
}

static void triangle_of(kn_dtype dtype, parity_operand x, int64_t diagonal) {
    parity_case *c = one_input(KN_OP_triu, dtype, x, x);
    ATTR(c, kn_attr_triangle, diagonal);
    c = one_input(KN_OP_tril, dtype, x, x);
    ATTR(c, kn_attr_triangle, diagonal);
}

static void arange_of(kn_dtype dtype, int64_t n, double a, double b) {
    for (int spaced = 0; spaced < 2; spaced++) {
        parity_case *c = parity_add(spaced ? KN_OP_linspace : KN_OP_arange, COMPARE_EXACT);
        c->out[0] = of_dtype(OPERAND(GUARD, n), dtype);
        ATTR(c, kn_attr_make, .a = a, .b = b);
    }
}

/* --- padding --- */

static void pad_of(kn_dtype dtype, parity_operand x, kn_attr_pad attr) {
    parity_operand y = x;
    for (int d = 0; d < x.shape.n_dims; d++) y.shape.dim[d] += attr.before[d] + attr.after[d];
    parity_case *c = one_input(KN_OP_pad, dtype, x, y);
    set_attr(c, &attr, sizeof attr);
}

/* All modes, forward and back. */
static void pad_edge_of(kn_dtype dtype, parity_operand x, int axis, int64_t before, int64_t after) {
    parity_operand y = x;
    y.shape.dim[axis] += before + after;
    for (int mode = KN_PAD_REFLECT; mode <= KN_PAD_CIRCULAR; mode++) {
        if (mode == KN_PAD_REFLECT && before >= x.shape.dim[axis]) continue;
        parity_case *c = one_input(KN_OP_pad_edge, dtype, x, y);
        ATTR(c, kn_attr_pad_edge, axis, before, after, mode);
        if (dtype >= KN_I64) continue;
        c = one_input(KN_OP_pad_edge_back, dtype, y, x);
        ATTR(c, kn_attr_pad_edge, axis, before, after, mode);
    }
}

static void pad_cases(void) {
    pad_of(own, SCALAR(UNIFORM), (kn_attr_pad){.value = 1});
    pad_of(own, U(7), (kn_attr_pad){0.3, {2}, {5}});
    pad_of(own, U(3, 5, 16), (kn_attr_pad){0, {0, 1, 0}, {0, 2, 0}});
    pad_of(own, U(2, 3, 13, 11), (kn_attr_pad){-1, {0, 0, 1, 2}, {0, 0, 3, 0}});
    pad_of(own, U(0, 4), (kn_attr_pad){2, {1, 1}, {1, 0}});
    pad_of(own, U(4, 0), (kn_attr_pad){2, {0, 1}, {0, 2}});
    pad_of(KN_BF16, U(33, 8), (kn_attr_pad){0.5, {1, 0}, {0, 8}});
    pad_of(KN_U8, U(5, 7), (kn_attr_pad){300, {1, 1}, {1, 1}});
    pad_of(KN_I64, U(3, 2), (kn_attr_pad){-7, {0, 1}, {2, 0}});
    pad_of(own, U(2, 3, 10, 7), (kn_attr_pad){0.5, {0, 0, 1, 2}, {0, 0, 1, 3}});
    pad_of(own, U(3, 1, 2, 2), (kn_attr_pad){1, {0, 1, 0, 0}, {0, 2, 0, 0}});
    pad_of(KN_U8, U(4, 9, 3), (kn_attr_pad){1, {2, 0, 0}, {2, 0, 1}});
    pad_of(own, U(3, 5001, 3), (kn_attr_pad){2, {1, 7, 1}, {0, 9, 1}}); /* parts of short rows */
    pad_of(KN_BOOL, U(3, 4, 17), (kn_attr_pad){1, {1, 0, 5}, {1, 2, 0}});
    pad_edge_of(own, U(1), 0, 1, 1);
    pad_edge_of(own, U(3001, 7), 1, 2, 3);
    pad_edge_of(own, U(2, 3, 1100), 1, 1, 2);
    pad_edge_of(own, U(7), 0, 6, 3);
    pad_edge_of(own, U(5, 12), 0, 2, 4);
    pad_edge_of(own, U(3, 9, 5), 1, 8, 0);
    pad_edge_of(own, U(2, 3, 31), 2, 0, 7);
    pad_edge_of(own, U(5, 4, 300), 1, 3, 3);
    pad_edge_of(KN_F16, U(5, 12), 1, 4, 4);
    pad_edge_of(KN_BF16, U(5, 12), 0, 4, 2);
    pad_edge_of(KN_U8, U(5, 3), 0, 2, 1);
    pad_edge_of(KN_BOOL, U(2, 6), 1, 2, 1);
}

static void rearrange_cases(void) {
    roll_of(own, U(1031), 0, 7);
    roll_of(own, U(20, 30), 1, 29);
    roll_of(own, U(4, 5, 6), 1, 2);
    roll_of(own, U(8, 36), 1, 5);
    roll_of(KN_U8, U(3, 7, 16), 1, 3);
    roll_of(KN_U8, U(16, 64), 0, 16 - 1);
    roll_of(KN_F16, U(3, 17), 1, 0);
    triangle_of(own, U(1, 1), 0);
    triangle_of(own, U(50, 37), 0);
    triangle_of(own, U(3, 17, 31), -5);
    triangle_of(own, U(2, 2, 8, 8), 3);
    triangle_of(own, U(5, 6), 100);
    triangle_of(KN_BOOL, U(9, 9), 1);
    triangle_of(KN_I64, U(9, 4), -2);
    arange_of(own, 1031, 0.3, 0.7);
    arange_of(own, 40001, -2, 0.3);            /* several parts */
    arange_of(KN_F64, 601, -1.5e308, 1.5e308); /* farther apart than f64 reaches */
    arange_of(KN_I64, 40000, 5, -3);
    arange_of(own, 1, 3, 8);
    arange_of(own, 0, 3, 8);
    for (int dtype = KN_F32; dtype < KN_BOOL; dtype++) arange_of((kn_dtype)dtype, 600, -3, 0.75);
}

/* --- indices --- */

static parity_operand index_of(kn_dtype dtype, int64_t limit, parity_operand shape) {
    shape.fill = dtype == KN_U8 ? FILL_INDEX : FILL_NEGATIVE;
    shape.dtype = dtype, shape.limit = limit;
    return shape;
}

/* y is put into x: set, added, and added to nothing, to zeros and to the result. */
static void put_of(kn_op add, kn_op set, kn_dtype dtype, const parity_operand in[3], int axis) {
    for (int how = 0; how < 5; how++) {
        bool adds = how < 3;
        if (adds && dtype == KN_BOOL) continue;
        if (how == 2 && (dtype || in[0].shape.dim[axis] == 0)) continue;
        parity_case *c = one_input(adds ? add : set, dtype, in[0], in[0]);
        c->n_in = 3, c->in[1] = in[1], c->in[2] = fill_of(in[2], dtype);
        if (how == 1 || how == 2) c->in[0].fill = FILL_ABSENT;
        if (how == 2) c->accumulate = 1, c->out[0] = in[0];
        if (how == 4) c->in[2].fill = FILL_ABSENT;
        kn_attr_index attr = {.axis = axis, .n_dims = in[0].shape.n_dims};
        memcpy(attr.dim, in[0].shape.dim, sizeof attr.dim);
        set_attr(c, &attr, sizeof attr);
    }
}

static void select_of(kn_dtype dtype, parity_operand x, kn_dtype index_dtype, parity_operand n,
                      int axis) {
    parity_operand y = x, index = index_of(index_dtype, x.shape.dim[axis], n);
    y.shape.n_dims = 0;
    for (int d = 0; d < x.shape.n_dims; d++) {
        if (d != axis) y.shape.dim[y.shape.n_dims++] = x.shape.dim[d];
        for (int k = 0; d == axis && k < n.shape.n_dims; k++)
            y.shape.dim[y.shape.n_dims++] = n.shape.dim[k];
    }
    parity_case *c = one_input(KN_OP_index_select, dtype, x, y);
    c->n_in = 2, c->in[1] = index;
    ATTR(c, kn_attr_index, .axis = axis);
    put_of(KN_OP_index_add, KN_OP_index_set, dtype, (parity_operand[]){x, index, y}, axis);
}

static void gather_of(kn_dtype dtype, parity_operand x, kn_dtype index_dtype, int64_t n, int axis) {
    parity_operand y = x, index = index_of(index_dtype, x.shape.dim[axis], x);
    y.shape.dim[axis] = index.shape.dim[axis] = n;
    parity_case *c = one_input(KN_OP_gather, dtype, x, y);
    c->n_in = 2, c->in[1] = index;
    ATTR(c, kn_attr_index, .axis = axis);
    put_of(KN_OP_scatter_add, KN_OP_scatter, dtype, (parity_operand[]){x, index, y}, axis);
}

static void index_cases(void) {
    select_of(own, U(50, 16), KN_I64, U(40, 3), 0);
    select_of(own, U(50, 7), KN_I32, U(300), 0);
    select_of(own, U(3, 20, 5), KN_U8, U(31), 1);
    select_of(own, U(4, 33), KN_I64, U(70), 1);
    select_of(own, U(1031), KN_I64, U(5000), 0);
    select_of(own, U(2, 300, 256), KN_I32, U(40), 1); /* columns enough for a thread each */
    select_of(own, U(7, 3), KN_I64, SCALAR(UNIFORM), 0);
    select_of(own, U(7, 3), KN_I64, U(0), 0);
    select_of(KN_F16, U(20, 9), KN_I64, U(64), 0);
    select_of(KN_BF16, U(9, 40), KN_U8, U(64), 1);
    select_of(KN_BOOL, U(20, 9), KN_I64, U(64), 0);
    select_of(KN_U8, U(20, 16), KN_I64, U(6), 0);
    select_of(KN_I64, U(20, 2), KN_I32, U(64), 0);
    select_of(KN_I32, U(20), KN_I64, U(64), 0);
    gather_of(own, U(13), KN_I64, 1031, 0);
    gather_of(own, U(40, 9), KN_I64, 70, 0);
    gather_of(own, U(9, 40), KN_I32, 70, 1);
    gather_of(own, U(3, 5, 7), KN_U8, 11, 1);
    gather_of(own, U(6, 60, 600), KN_I64, 5, 1);
    gather_of(own, U(4, 5), KN_I64, 0, 0);
    gather_of(own, U(40001, 3), KN_I64, 1, 1); /* parts of short rows */
    gather_of(KN_U8, U(2, 3, 40001), KN_I32, 2, 1);
    gather_of(KN_I64, U(7, 30, 5), KN_U8, 300, 1);
    gather_of(KN_F16, U(9, 13), KN_I64, 50, 1);
    gather_of(KN_BF16, U(9, 13), KN_I64, 50, 0);
    gather_of(KN_BOOL, U(9, 13), KN_I64, 5, 0);
    gather_of(KN_I64, U(9, 13), KN_I64, 50, 0);
    gather_of(KN_U8, U(9, 13), KN_I64, 50, 1);
    gather_of(own, U(3, 50), KN_I32, 1500, 1); /* lines of a block */
    gather_of(KN_BF16, U(2, 40), KN_I64, 4096, 1);
    gather_of(own, U(2, 1200), KN_I64, 33, 1); /* few of many places */
    gather_of(own, U(70, 90), KN_I64, 64, 0);  /* several blocks */
    gather_of(KN_I32, U(5), KN_I64, 2500, 0);
    select_of(KN_F16, U(3, 300, 2), KN_I32, U(2100), 1);
    select_of(own, U(70000), KN_I64, U(4500), 0); /* keys of three digits */
}

static void join_of(kn_dtype a, kn_dtype b, parity_operand shape) {
    struct {
        int64_t axis, size[3];
    } attr = {0, {100, 30, 7}};
    parity_case *c = parity_add(KN_OP_index_join, COMPARE_EXACT);
    c->n_in = 3, c->in[0] = index_of(a, 100, shape), c->in[1] = index_of(b, 30, shape);
    c->in[2] = index_of(KN_U8, 7, shape);
    c->out[0] = of_dtype(like(shape, FILL_GUARD), KN_I64);
    set_attr(c, &attr, sizeof attr);
}

static void nonzero_of(kn_dtype dtype, parity_operand x) {
    int64_t n = 1;
    for (int d = 0; d < x.shape.n_dims; d++) n *= x.shape.dim[d];
    for (int both = 0; both < 2; both++) {
        parity_case *c = parity_add(KN_OP_nonzero, COMPARE_EXACT);
        c->n_in = 1, c->in[0] = fill_of(like(x, FILL_SPECIAL), dtype), c->in[0].limit = 2;
        if (both) c->out[0] = of_dtype(OPERAND(GUARD, n, x.shape.n_dims), KN_I64);
        c->out[1] = of_dtype(OPERAND(GUARD, 1), KN_I64);
    }
}

static void place_cases(void) {
    join_of(KN_I64, KN_I32, U(1031));
    join_of(KN_U8, KN_I64, U(7, 5));
    join_of(KN_I64, KN_I64, SCALAR(UNIFORM));
    nonzero_of(own, U(1));
    nonzero_of(own, U(5000));
    nonzero_of(own, U(13, 17, 31));
    nonzero_of(KN_BOOL, U(40, 1031));
    for (int dtype = KN_F32; dtype <= KN_BOOL; dtype++) nonzero_of((kn_dtype)dtype, U(9, 33));
}

void parity_move_cases(void) {
    strided_cases();
    pad_cases();
    rearrange_cases();
    index_cases();
    place_cases();
}
