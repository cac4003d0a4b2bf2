/* The table of rules, from ops.def, and the rules of movement; rules_reduce.c has those of
 * reductions, rules_nn.c those of products, convolution and losses, rows.c those of pointwise rows.
 *
 * Rules call ops that have rules themselves, so the same functions serve higher derivatives. The
 * last op of each goes through KN_GIVE, which writes into a gradient that exists where it can. */
#include "rules.h"

#include "params.h"

/* --- the table --- */
#define RULE_EACH(f)                                                                               \
    { .each = kn__rule_##f }
#define RULE_ALL(f)                                                                                \
    { .all = kn__rule_##f }
#define RULE_NOGRAD                                                                                \
    { .nograd = true }
#define ROW_RULES(name)                                                                            \
    [KN_OP_##name] = RULE_ALL(row), [KN_OP_##name##_back] = RULE_ALL(row_back),                    \
    [KN_OP_##name##_back2] = RULE_ALL(row_back2),

const kn__rule kn__rules[KN_OP_COUNT] = {
#define KN_ROW1(name, ...) ROW_RULES(name)
#define KN_ROW2(name, ...) ROW_RULES(name)
#define KN_ROW3(name, ...) ROW_RULES(name)
#define KN_COMPARE(name, ...) [KN_OP_##name] = RULE_NOGRAD,
#define KN_COMPARE1(name, ...) [KN_OP_##name] = RULE_NOGRAD,
#define KN_OP(name, in, out, attr, infer, kernel, rule, ...) [KN_OP_##name] = RULE_##rule,
#include <knet/ops.def>
};

/* --- movement --- */

kn_tensor *kn__rule_broadcast(kn__back *b, int i) { return kn__give_unbroadcast(b, i, b->g); }

kn_tensor *kn__rule_reshape(kn__back *b, int i) { return kn_reshape(b->g, kn__back_shape(b, i)); }

/* The block at `start`, of the size that input i wants. */
static kn_attr_box box_for(const kn__back *b, int i, const kn_attr_box *from) {
    kn_attr_box box = *from;
    kn_shape shape = kn__back_shape(b, i);
    memcpy(box.size, shape.dim, sizeof box.size);
    return box;
}

/* Slices of one tensor add up in one buffer: zeros are made for the first alone. */
kn_tensor *kn__rule_slice(kn__back *b, int i) {
    kn_attr_box box = box_for(b, i, kn__back_attr(b));
    return KN_GIVE(b, i, slice_back, &box, b->g);
}

kn_tensor *kn__rule_slice_back(kn__back *b, int i) {
    kn_attr_box box = box_for(b, i, kn__back_attr(b));
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_transpose(kn__back *b, int i) {
    const kn_attr_transpose *attr = kn__back_attr(b);
    kn_attr_transpose inverse = {{0}};
    for (int d = 0; d < b->g->n_dims; d++) inverse.axis[attr->axis[d]] = d;
    return KN_GIVE(b, i, transpose, &inverse, b->g);
}

kn_tensor *kn__rule_concat(kn__back *b, int i) {
    const kn_attr_concat *attr = kn__back_attr(b);
    kn_attr_box none = {{0}, {0}}, box = box_for(b, i, &none);
    for (int j = 0; j < i; j++) box.start[attr->axis] += attr->size[j];
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_block_diag(kn__back *b, int i) {
    const kn_attr_concat *attr = kn__back_attr(b);
    kn_attr_box none = {{0}, {0}}, box = box_for(b, i, &none);
    for (int j = 0; j < 2 * i; j++) box.start[j % 2] += attr->size[j];
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_cast(kn__back *b, int i) {
    kn_attr_cast attr = {(int32_t)kn__back_dtype(b, i)};
    return KN_GIVE(b, i, cast, &attr, b->g);
}

kn_tensor *kn__rule_to(kn__back *b, int i) {
    (void)i;
    return kn_to(b->g, ((const kn_attr_to *)kn__back_attr(b))->from);
}

/* --- parts: each is the adjoint of putting the part into zeros --- */

kn_tensor *kn__rule_strided(kn__back *b, int i) {
    return KN_GIVE(b, i, strided_add, kn__back_attr(b), KN_NONE, b->g);
}

kn_tensor *kn__rule_strided_add(kn__back *b, int i) {
    return i == 0 ? b->g : KN_GIVE(b, i, strided, kn__back_attr(b), b->g);
}

kn_tensor *kn__rule_strided_set(kn__back *b, int i) {
    return i == 0 ? KN_GIVE(b, i, strided_set, kn__back_attr(b), b->g, KN_NONE)
                  : KN_GIVE(b, i, strided, kn__back_attr(b), b->g);
}

kn_tensor *kn__rule_pad(kn__back *b, int i) {
    const kn_attr_pad *attr = kn__back_attr(b);
    kn_attr_box none = {{0}, {0}}, box = box_for(b, i, &none);
    memcpy(box.start, attr->before, sizeof box.start);
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_pad_edge(kn__back *b, int i) {
    return KN_GIVE(b, i, pad_edge_back, kn__back_attr(b), b->g);
}

kn_tensor *kn__rule_pad_edge_back(kn__back *b, int i) {
    return KN_GIVE(b, i, pad_edge, kn__back_attr(b), b->g);
}

kn_tensor *kn__rule_roll(kn__back *b, int i) {
    kn_attr_roll back = *(const kn_attr_roll *)kn__back_attr(b);
    back.shift = b->g->dim[back.axis] - back.shift;
    return KN_GIVE(b, i, roll, &back, b->g);
}

kn_tensor *kn__rule_triangle(kn__back *b, int i) {
    return kn__give(b, i, (kn_op)b->node->op, kn__back_attr(b), &b->g, 1);
}

/* --- elements at indices --- */

/* Whether the node's indices are of whole slices. */
static bool takes_slices(const kn__back *b) {
    kn_op op = (kn_op)b->node->op;
    return op == KN_OP_index_select || op == KN_OP_index_add || op == KN_OP_index_set;
}

/* A parameter with a row-sparse gradient, from which the node took rows; or NULL. */
static kn__param *rows_from(const kn__back *b, const kn_attr_index *attr) {
    kn__param *p = kn__edge_param(kn__node_edges(b->node)[0]);
    bool is_taken = takes_slices(b) && attr->axis == 0 && b->pass->to_params;
    return p && is_taken && p->is_sparse ? p : NULL;
}

kn_tensor *kn__rule_gather(kn__back *b, int i) {
    kn_attr_index attr = *(const kn_attr_index *)kn__back_attr(b);
    kn__param *p = rows_from(b, &attr);
    if (p) {
        kn_status status = kn__param_rows(p, b->pass, kn__saved_in(b, 1), b->g);
        return status == KN_OK ? KN_NONE : kn_error_defer(status);
    }
    kn_shape shape = kn__back_shape(b, i);
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    attr.n_dims = shape.n_dims;
    kn_op op = takes_slices(b) ? KN_OP_index_add : KN_OP_scatter_add;
    return kn__give(b, i, op, &attr, KN_LIST_(KN_NONE, kn__saved_in(b, 1), b->g), 3);
}

static kn_tensor *gathered(const kn__back *b, kn_tensor *x) {
    kn_op op = takes_slices(b) ? KN_OP_index_select : KN_OP_gather;
    return x ? kn_op_call_run(op, kn__back_attr(b), KN_LIST_(x, kn__saved_in(b, 1)), 2) : NULL;
}

kn_tensor *kn__rule_scatter_add(kn__back *b, int i) { return i == 0 ? b->g : gathered(b, b->g); }

/* Numbers 0, 1, …: as I64, of the index's shape. */
static kn_tensor *numbered(const kn_tensor *index) {
    kn_attr_make attr = {.b = 1, .dim = {index->n}, .n_dims = 1, .dtype = KN_I64};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_arange, &attr, NULL, 0);
    call.device = index->storage->device;
    kn_tensor *t = kn_op_run(&call);
    return t ? kn_reshape(t, kn_tensor_shape(index)) : NULL;
}

/* Where several values meet the last one stays, and it alone has a gradient: its number is found
 * again at its place. BOOL, to be broadcast to y. */
static kn_tensor *stayed(const kn__back *b) {
    const kn_attr_index *attr = kn__back_attr(b);
    kn_tensor *index = kn__saved_in(b, 1), *number = numbered(index);
    if (!number) return NULL;
    kn_attr_make make = {.a = -1, .n_dims = b->g->n_dims, .dtype = KN_I64};
    memcpy(make.dim, b->g->dim, sizeof make.dim);
    kn_attr_index flat = *attr;
    bool slices = takes_slices(b);
    if (slices) {
        make.n_dims = 1;
        make.dim[0] = b->g->dim[attr->axis];
        flat.axis = 0;
    }
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_fill, &make, NULL, 0);
    call.device = index->storage->device;
    kn_tensor *places = kn_op_run(&call);
    if (places && slices) {
        places = KN_CALL(index_set, &flat, places, index, number);
        places = places ? KN_CALL(index_select, &flat, places, index) : NULL;
    } else if (places) {
        places = KN_CALL(scatter, &flat, places, index, number);
        places = places ? KN_CALL(gather, &flat, places, index) : NULL;
    }
    kn_tensor *last = places ? kn_eq(places, number) : NULL;
    if (!last || !slices) return last;
    kn_shape shape = kn_tensor_shape(last);
    for (int d = (int)attr->axis + 1; d < b->g->n_dims; d++) shape.dim[shape.n_dims++] = 1;
    return kn_reshape(last, shape);
}

kn_tensor *kn__rule_scatter(kn__back *b, int i) {
    if (i == 0) {
        kn_op op = (kn_op)b->node->op;
        kn_tensor *in[] = {b->g, kn__saved_in(b, 1), KN_NONE};
        return kn__give(b, i, op, kn__back_attr(b), in, 3);
    }
    kn_tensor *dy = gathered(b, b->g), *last = stayed(b);
    kn_tensor *zero = dy && last ? kn_filled_like(dy, 0) : NULL;
    return zero ? KN_GIVE(b, i, where, NULL, last, dy, zero) : NULL;
}

/* --- all derivatives at once --- */

kn_scope kn__derivatives_begin(const kn__back *b, const kn__rule *rule) {
    const int op = b->node->op;
    bool is_named = kn_op_table[op].row || op == KN_OP_linear_act || op == KN_OP_conv_act;
    unsigned inputs = 0;
    if (!rule->all || is_named || !kn_prof_is_on_(KN_PROF_GRAD_)) return (kn_scope){0};
    for (int i = 0; i < b->node->n_in; i++) inputs |= (unsigned)kn__back_wants(b, i) << i;
    return kn_scope_begin_grad(kn__derivatives_label(op, inputs));
}
