/* The rules of pointwise rows: three for all of them.
 *
 *   name      (x…) → z            by x: name_back(g, x…, z), the wanted ones in one call
 *   name_back (g, x…, z) → D_i(g) by g, with G_i for the incoming gradients: Σ D_i(G_i), that is
 *                                 name_back again; by x_j: Σ_i D_ij(G_i·g) = name_back2(u…, x…, z)
 *                                 with u_i = G_i·g
 *   name_back2(u…, x…, z)         symmetric: by u it is its own rule. By x it would need a third
 *                                 derivative: rows with a composed rule never get there (they
 *                                 write second derivatives in ops when those are recorded);
 *                                 others report that it is missing
 *
 * Derivatives are total, so nothing flows through z. */
#include "composed.h"
#include "params.h"
#include "rules.h"

enum { INPUTS = 3, BACK_INPUTS = INPUTS + 2, BACK2_INPUTS = 2 * INPUTS + 1 };

static const kn_op_needs *needs_of(unsigned op) {
    return &kn_op_needs_table[op - kn_op_table[op].order];
}

/* --- what a recorded derivative saves --- */

/* Whether any wanted D_ij of this j is not zero; for x_j's edge. */
static bool has_second(const kn_op_needs *needs, unsigned want, int k, int j) {
    for (int i = 0; i < k; i++) {
        if ((want >> i & 1) && !(needs->second[i][j] & KN_NEED_ZERO)) return true;
    }
    return false;
}

/* Whether D_ij of any i reads something: then it has derivatives in turn. */
static bool has_third(const kn_op_needs *needs, int k, int j) {
    for (int i = 0; i < k; i++) {
        for (int l = 0; l < k; l++) {
            if (needs->second[i][l] & (KN_NEED_ZERO - 1) & (1u << j | 1u << KN_NEED_OUT))
                return true;
        }
    }
    return false;
}

unsigned kn__row_saves(unsigned *live, const kn_op_call *call, int order) {
    int k = kn_op_table[call->op].row;
    const kn_op_needs *needs = needs_of(call->op);
    unsigned all = (1u << call->n_in) - 1;
    if (order == 1) { /* g, x…, z */
        for (int j = 0; j < k; j++) {
            if (!has_second(needs, call->want, k, j)) *live &= ~(2u << j);
        }
        *live &= ~(1u << (k + 1)); /* nothing flows through z */
        return all;
    }
    for (int j = 0; j < k; j++) { /* u…, x…, z */
        if (!has_third(needs, k, j)) *live &= ~(1u << (k + j));
    }
    *live &= ~(1u << (2 * k));
    return all & ~((1u << k) - 1);
}

/* --- handing over --- */

static bool is_shape(const kn_tensor *t, int n_dims, const int64_t dim[]) {
    if (t->n_dims != n_dims) return false;
    for (int d = 0; d < n_dims; d++) {
        if (dim[d] != t->dim[d]) return false;
    }
    return true;
}

bool kn__back_fits(const kn__back *b, int i, const kn_tensor *dx) {
    kn_edge edge = kn__node_edges(b->node)[i];
    const kn__param *p = kn__edge_param(edge);
    if (p) return is_shape(dx, p->w->n_dims, p->w->dim);
    const kn__result *to = kn__edge_result(edge);
    return is_shape(dx, to->n_dims, to->dim);
}

/* Bit i: dimension i of g was broadcast, or put in front, to get from `shape` to g's. */
static uint32_t broadcast_mask(const kn_tensor *g, const kn_shape *shape) {
    uint32_t mask = 0;
    int lead = g->n_dims - shape->n_dims;
    for (int d = 0; d < g->n_dims; d++) {
        if (d < lead || (shape->dim[d - lead] == 1 && g->dim[d] != 1)) mask |= 1u << d;
    }
    return mask;
}

kn_tensor *kn__give_unbroadcast(kn__back *b, int i, kn_tensor *g) {
    if (!g || kn__back_fits(b, i, g)) return g;
    kn_shape shape = kn__back_shape(b, i);
    kn_attr_axes axes = {broadcast_mask(g, &shape), shape.n_dims == g->n_dims};
    kn_tensor *sum = KN_GIVE(b, i, sum, &axes, g);
    return !sum || sum == KN_NONE || kn__back_fits(b, i, sum) ? sum : kn_reshape(sum, shape);
}

static kn_status hand_over(kn__back *b, int i, kn_tensor *dx, bool own) {
    if (kn__back_fits(b, i, dx))
        return own ? kn__back_deliver_own(b, i, dx) : kn__back_deliver(b, i, dx);
    kn_tensor *sum = kn__give_unbroadcast(b, i, dx);
    kn_status status = KN_OK;
    if (!sum)
        status = kn_check();
    else if (sum != KN_NONE)
        status = kn__back_deliver(b, i, sum);
    if (own) kn_tensor_release(dx);
    return status;
}

/* Whether the call adds to a gradient with the bits of a sum after it. Sums of 16 bits are rounded
 * once, and second derivatives are added term by term. */
static inline bool adds_as_a_sum(const kn_op_call *call) {
    return KN_CLASS_REAL >> call->dtype & 1 && kn_op_table[call->op].order == 1;
}

/* The gradient that this one is added to by the call itself; NULL: it is delivered. In frames with
 * .fuse a call with a result of its own is put off, and the sum after it, where the bits are the
 * same. */
static inline kn_tensor *sink_of(kn__back *b, int i, const kn_op_call *call, bool *fresh) {
    kn_tensor *to = kn__back_sink(b, i, fresh);
    bool is_param = kn__edge_param(kn__node_edges(b->node)[i]) != NULL;
    return to && !is_param && adds_as_a_sum(call) && kn_op_waits(call) ? NULL : to;
}

/* g's place, for a result like it; not for those that are put off: these find one when they are
 * computed. */
static inline kn_tensor *place_of(const kn__back *b, const kn_op_call *call) {
    return kn_op_waits(call) ? NULL : kn__back_last_use(b);
}

/* Gradients that exist and have the shape of `like` are written into by the call itself. */
static kn_status point_at_sinks(kn__back *b, int first, kn_op_call *call, const kn_tensor *like) {
    for (unsigned left = call->want; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (!call->flat && !kn__back_fits(b, first + r, like)) continue;
        bool fresh, taken = false;
        kn_tensor *to = sink_of(b, first + r, call, &fresh);
        if (kn_pending()) return kn_check();
        /* x·x: both gradients go to one place; the second one is delivered. */
        for (int q = 0; q < r; q++) taken |= (call->given >> q & 1) && call->out[q] == to;
        if (!to || taken) continue;
        call->out[r] = to;
        call->given |= (uint8_t)(1 << r);
        if (!fresh) call->accumulate |= (uint8_t)(1 << r);
    }
    return KN_OK;
}

/* Runs a call whose result r is, summed where it was broadcast, the gradient of input first + r.
 * over: the first of the wanted results may take the place of g, which has that shape. */
static kn_status give_all(kn__back *b, int first, kn_op_call *call, bool over) {
    const kn_tensor *like = NULL;
    for (int i = 0; !like; i++) {
        if (call->in[i] != KN_NONE) like = call->in[i];
    }
    call->loose = !b->pass->again;
    call->dtype = like->dtype;
    call->device = like->storage->device;
    KN_TRY(point_at_sinks(b, first, call, like));
    kn_tensor *own = over ? place_of(b, call) : NULL;
    unsigned left = call->want & ~(unsigned)call->given, low = call->want & -(unsigned)call->want;
    if (own && left & low) {
        call->given |= (uint8_t)low;
        call->out[__builtin_ctz(low)] = kn_tensor_retain(own);
    }
    if (!kn_op_run(call)) {
        if (own && left & low) kn_tensor_release(own);
        return kn_check();
    }
    kn_status status = KN_OK;
    for (; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (status == KN_OK)
            status = hand_over(b, first + r, call->out[r], call->loose);
        else if (call->loose)
            kn_tensor_release(call->out[r]); /* after a failure */
    }
    return status;
}

/* One gradient of a node's input, not broadcast: what most rows give. */
static inline kn_status give_one(kn__back *b, int r, kn_op_call *call) {
    bool fresh;
    call->loose = 1;
    call->dtype = b->g->dtype;
    call->device = b->g->storage->device;
    kn_tensor *to = sink_of(b, r, call, &fresh), *own = to ? NULL : place_of(b, call);
    if (to || own) {
        call->out[r] = to ? to : own;
        call->given = (uint8_t)(1 << r);
        call->accumulate = !to || fresh ? 0 : call->given;
    }
    if (!kn_op_run(call)) return kn_check();
    if (own) kn_tensor_retain(own);
    return to ? KN_OK : kn__back_deliver_own(b, r, call->out[r]);
}

/* --- relu over a layer with a bias --- */

/* A linear or convolution layer that only this relu reads, with a bias that is a parameter: its
 * gradient is the sum of relu's, so one op makes both. NULL: there is no such layer. */
static kn__node *layer_below(const kn__back *b) {
    kn__node *layer = kn__edge_node(kn__node_edges(b->node)[0]);
    if (!b->pass->to_params || !layer || b->g->n == 0 || !(KN_CLASS_REAL >> b->g->dtype & 1)) {
        return NULL;
    }
    if (layer->op != KN_OP_linear && layer->op != KN_OP_conv) return NULL;
    const kn__param *bias = kn__edge_param(kn__node_edges(layer)[2]);
    return layer->n_users == 1 && bias && !bias->is_sparse ? layer : NULL;
}

static kn_status relu_bias(kn__back *b, kn__node *layer) {
    kn_edge *edges = kn__node_edges(layer);
    bool fresh = false;
    kn__param *weight = kn__edge_param(edges[1]);
    if (weight) kn__param_used(weight); /* its gradient comes later, its place before the bias's */
    kn_tensor *db = kn__param_sink(kn__edge_param(edges[2]), b->pass, &fresh);
    if (!db) return kn_check();
    int axis = layer->op == KN_OP_linear ? b->g->n_dims - 1 : 1;
    kn_attr_axes attr = {((1u << b->g->n_dims) - 1) & ~(1u << axis), 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_relu_bias_back, &attr, KN_LIST_(kn__saved_out(b, 0), b->g), 2);
    kn_tensor *own = kn__back_last_use(b);
    call.want = 3;
    call.given = own ? 3 : 2;
    call.accumulate = fresh ? 0 : 2;
    call.out[0] = own;
    call.out[1] = db;
    kn_scope scope = kn_scope_begin_grad(kn__derivative_label(KN_OP_relu, 0));
    kn_tensor *dx = kn_op_run(&call);
    kn_scope_end(&scope);
    if (dx && b->pass->hooked) kn__param_done(kn__edge_param(edges[2]), b->pass);
    edges[2] = 0; /* the bias has its gradient */
    return dx ? kn__back_deliver(b, 0, dx) : kn_check();
}

/* --- name --- */

/* The wanted gradients that a kernel computes, a bit each. Those that are g itself are handed over;
 * others are zero. */
static inline kn_status wanted_of(unsigned *want, kn__back *b, int k) {
    const kn_op_needs *needs = &kn_op_needs_table[b->node->op];
    const kn_edge *edges = kn__node_edges(b->node);
    *want = 0;
    for (int i = 0; i < k; i++) {
        if (!kn__pass_wants(b->pass, edges[i])) continue;
        if (!(needs->first[i] & (KN_NEED_PASS | KN_NEED_ZERO)))
            *want |= 1u << i;
        else if (needs->first[i] & KN_NEED_PASS)
            KN_TRY(hand_over(b, i, b->g, false));
    }
    return KN_OK;
}

kn_status kn__rule_row(kn__back *b) {
    kn__node *n = b->node;
    int k = n->n_in;
    if (n->op == KN_OP_relu) {
        kn__node *layer = layer_below(b);
        if (layer) return relu_bias(b, layer);
    }
    kn_op_call call;
    kn_tensor *in[BACK_INPUTS];
    unsigned want;
    KN_TRY(wanted_of(&want, b, k));
    if (!want) return KN_OK;
    in[0] = b->g;
    for (int i = 1; i <= k + 1; i++) in[i] = KN_NONE;
    const kn__saved *saved = kn__node_saved(n);
    for (unsigned left = n->saves; left; left &= left - 1, saved++) {
        int bit = __builtin_ctz(left);
        if (!(n->extra >> bit & 1)) in[bit < KN_NEED_OUT ? bit + 1 : k + 1] = saved->t;
    }
    kn_op_call_init(&call, (kn_op)(n->op + 1), kn__node_attr(n), in, k + 2);
    call.want = (uint8_t)want;
    call.flat = n->flat;
    if (!b->pass->again && n->flat && !(want & (want - 1))) {
        return give_one(b, __builtin_ctz(want), &call);
    }
    kn_edge edges[BACK_INPUTS];
    if (b->pass->again) {
        edges[0] = b->g->grad;
        for (int i = 0; i < k; i++) edges[i + 1] = kn__node_edges(n)[i];
        edges[k + 1] = 0;
        call.edge = edges;
    }
    return give_all(b, 0, &call, n->flat);
}

/* --- name_back --- */

/* By g: name_back again, of each G_i. */
static kn_status back_by_g(kn__back *b, int k, kn_tensor *one[], kn_edge edges[]) {
    kn__node *n = b->node;
    for (int i = 0; i < k; i++) {
        kn_tensor *G = kn__node_results(n)[i].grad;
        if (!G) continue;
        one[0] = G;
        edges[0] = G->grad;
        kn_op_call call;
        kn_op_call_init(&call, (kn_op)n->op, kn__node_attr(n), one, k + 2);
        call.want = (uint8_t)(1 << i);
        if (b->pass->again) call.edge = edges;
        if (!kn_op_run(&call)) return kn_check();
        KN_TRY(hand_over(b, 0, call.out[i], false));
    }
    return KN_OK;
}

/* Σ_i D_ij(u_i), in ops that have rules of their own; KN_NONE: it is zero. */
static kn_tensor *composed_by(int j, const kn__back *b, int k, kn_tensor *const u[],
                              kn_tensor *const x[]) {
    const kn_op_needs *needs = needs_of(b->node->op);
    kn__composed_fn second = kn__composed[b->node->op - 1];
    kn_tensor *sum = KN_NONE;
    for (int i = 0; i < k; i++) {
        if (u[i] == KN_NONE || needs->second[i][j] & KN_NEED_ZERO) continue;
        kn_tensor *dx = second(i < j ? i : j, i < j ? j : i, u[i], x, x[k], kn__node_attr(b->node));
        sum = sum == KN_NONE ? dx : kn_add(sum, dx);
        if (!sum) return NULL;
    }
    return sum;
}

/* By x where that is to be differentiated in turn. Of 16 bits in f32, as the kernels compute: what
 * the formulas make on the way may not fit. */
static kn_status back_composed(kn__back *b, int k, unsigned want, kn_tensor *const u[],
                               kn_tensor *const x[]) {
    kn_tensor *in[BACK2_INPUTS], *const *wide_x = in + k;
    for (int i = 0; i <= 2 * k; i++) {
        in[i] = kn__wide(i < k ? u[i] : x[i - k]);
        if (!in[i]) return kn_check();
    }
    for (unsigned left = want; left; left &= left - 1) {
        int j = __builtin_ctz(left);
        kn_tensor *dx = composed_by(j, b, k, in, wide_x);
        if (dx == KN_NONE) continue;
        kn_dtype dtype = kn__back_dtype(b, 1 + j);
        if (dx && dx->dtype != dtype) dx = kn_cast(dx, dtype);
        if (!dx) return kn_check();
        KN_TRY(hand_over(b, 1 + j, dx, false));
    }
    return KN_OK;
}

kn_status kn__rule_row_back(kn__back *b) {
    kn__node *n = b->node;
    int k = kn_op_table[n->op].row;
    kn_tensor *in[BACK2_INPUTS], *one[BACK_INPUTS]; /* u…, x…, z; and G, x…, z */
    kn_edge edges[BACK2_INPUTS] = {0}, one_edges[BACK_INPUTS] = {0};
    for (int i = 0; i <= k; i++) {
        one[i + 1] = in[k + i] = kn__saved_in(b, i + 1);
        one_edges[i + 1] = edges[k + i] = i < k ? kn__node_edges(n)[i + 1] : 0;
    }
    if (kn__back_wants(b, 0)) KN_TRY(back_by_g(b, k, one, one_edges));
    unsigned want = 0;
    for (int j = 0; j < k; j++) want |= (unsigned)kn__back_wants(b, 1 + j) << j;
    if (!want) return KN_OK;
    kn_tensor *g = kn__saved_in(b, 0);
    for (int i = 0; i < k; i++) {
        kn_tensor *G = kn__node_results(n)[i].grad;
        in[i] = G ? kn_mul(G, g) : KN_NONE;
        if (!in[i]) return kn_check();
        edges[i] = in[i]->grad;
    }
    if (b->pass->again && kn__composed[n->op - 1]) {
        return back_composed(b, k, want, in, in + k);
    }
    kn_op_call call;
    kn_op_call_init(&call, (kn_op)(n->op + 1), kn__node_attr(n), in, 2 * k + 1);
    call.want = (uint8_t)want;
    if (b->pass->again) call.edge = edges;
    return give_all(b, 1, &call, false);
}

/* --- name_back2 --- */

kn_status kn__rule_row_back2(kn__back *b) {
    kn__node *n = b->node;
    int k = kn_op_table[n->op].row;
    for (int j = k; j < 2 * k; j++) {
        if (!kn__back_wants(b, j)) continue;
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s has no third derivative",
                       kn_op_name((kn_op)(n->op - 2)));
    }
    kn_tensor *in[BACK2_INPUTS];
    kn_edge edges[BACK2_INPUTS] = {0};
    unsigned want = 0;
    for (int i = 0; i < k; i++) {
        kn_tensor *grad = kn__node_results(n)[i].grad;
        in[i] = grad ? grad : KN_NONE;
        edges[i] = in[i]->grad;
        want |= (unsigned)kn__back_wants(b, i) << i;
    }
    for (int i = k; i <= 2 * k; i++) {
        in[i] = kn__saved_in(b, i);
        edges[i] = i < 2 * k ? kn__node_edges(n)[i] : 0;
    }
    if (!want) return KN_OK;
    kn_op_call call;
    kn_op_call_init(&call, (kn_op)n->op, kn__node_attr(n), in, 2 * k + 1);
    call.want = (uint8_t)want;
    if (b->pass->again) call.edge = edges;
    return give_all(b, 0, &call, false);
}
