/* The walk: from a result down the tape, one node's gradients at a time. */
#include <knet/tape.h>
#include <stdio.h>

#include "params.h"
#include "rules.h"
#include "tape.h"
#include "uniform.h"

/* --- gradients meeting at one place --- */

/* Of the pass's own frame, and so gone soon. */
static bool is_temporary(const kn__pass *pass, const kn_tensor *t) {
    return !pass->again && t->owned != UINT32_MAX && t->owned >= pass->mark;
}

/* A reference to dx that lasts beyond this node. */
static kn_tensor *take(const kn__pass *pass, kn_tensor *dx) {
    return is_temporary(pass, dx) ? kn_tensor_detach_frame(dx) : kn_tensor_retain(dx);
}

static bool sum_waits(kn_tensor *x, kn_tensor *y) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_add, NULL, KN_LIST_(x, y), 2);
    call.dtype = x->dtype;
    call.device = x->storage->device;
    return kn_op_waits(&call);
}

/* Adds dx, whose reference it takes, to the slot's gradient: in place where one of the two is
 * unshared, or put off. */
static __attribute__((noinline)) kn_status add_to(const kn__pass *pass, kn_tensor **slot,
                                                  kn_tensor *dx) {
    kn_scope scope = kn_scope_begin_grad("sum_outgrads");
    kn_status status = KN_OK;
    kn_tensor *sum = NULL;
    bool in_place = !pass->again && !sum_waits(*slot, dx);
    if (in_place && kn_tensor_is_unshared(*slot)) {
        status = kn_add_into(*slot, dx);
        sum = *slot;
        *slot = dx; /* to be released */
    } else if (in_place && kn_tensor_is_unshared(dx)) {
        status = kn_add_into(dx, *slot);
        sum = dx;
    } else {
        sum = kn_add(*slot, dx);
        if (sum) sum = take(pass, sum);
        if (!sum) status = kn_check();
        kn_tensor_release(dx);
    }
    kn_tensor_release(*slot);
    *slot = sum;
    kn_scope_end(&scope);
    return status;
}

static inline kn_status put_own(const kn__pass *pass, kn_tensor **slot, kn_tensor *dx) {
    KN_ASSERT(slot && dx && dx != KN_NONE && (!*slot || (*slot)->n == dx->n));
    if (*slot) return add_to(pass, slot, dx);
    *slot = dx;
    return KN_OK;
}

static kn_status add_to_param(kn__pass *pass, kn__param *p, kn_tensor *dx) {
    KN_ASSERT(pass->to_params && dx->n == p->w->n);
    if (p->is_sparse) return kn__param_all_rows(p, pass, dx);
    bool fresh = false;
    kn_tensor *grad = kn__param_sink(p, pass, &fresh);
    if (!grad) return kn_check();
    kn_scope scope = kn_scope_begin_grad("sum_outgrads");
    kn_status status = KN_OK;
    if (fresh) {
        kn_attr_scalars same = {.a = 1};
        kn_op_call copy;
        kn_op_call_init(&copy, KN_OP_affine, &same, &dx, 1);
        copy.given = 1;
        copy.out[0] = grad;
        if (!kn_op_run(&copy)) status = kn_check();
    } else {
        status = kn_add_into(grad, dx);
    }
    kn_scope_end(&scope);
    return status;
}

/* --- where the gradient of an input goes --- */

kn_tensor **kn__param_slot(const kn__pass *pass, const kn__param *p) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->x[i]->grad == kn__edge_to_param(p)) return &pass->slots[i];
    }
    return NULL;
}

kn_status kn__back_deliver_own(kn__back *b, int i, kn_tensor *dx) {
    kn_edge edge = kn__node_edges(b->node)[i];
    KN_ASSERT(i < b->node->n_in && kn__back_wants(b, i)); /* no other node frees it */
    kn__param *p = kn__edge_param(edge);
    if (!p) return put_own(b->pass, &kn__edge_result(edge)->grad, dx);
    if (!b->pass->to_params) return put_own(b->pass, kn__param_slot(b->pass, p), dx);
    kn_status status = add_to_param(b->pass, p, dx);
    kn_tensor_release(dx);
    return status;
}

kn_status kn__back_deliver(kn__back *b, int i, kn_tensor *dx) {
    return kn__back_deliver_own(b, i, take(b->pass, dx));
}

kn_shape kn__back_shape(const kn__back *b, int i) {
    kn_edge edge = kn__node_edges(b->node)[i];
    kn__param *p = kn__edge_param(edge);
    if (p) return kn_tensor_shape(p->w);
    const kn__result *to = kn__edge_result(edge);
    kn_shape shape = {.n_dims = to->n_dims};
    memcpy(shape.dim, to->dim, to->n_dims * sizeof to->dim[0]);
    return shape;
}

kn_dtype kn__back_dtype(const kn__back *b, int i) {
    kn_edge edge = kn__node_edges(b->node)[i];
    kn__param *p = kn__edge_param(edge);
    return (kn_dtype)(p ? p->w->dtype : kn__edge_result(edge)->dtype);
}

kn_tensor *kn__back_saved(const kn__back *b, unsigned bit) {
    unsigned saves = b->node->saves;
    if (!(saves & bit)) return KN_NONE;
    int place = __builtin_popcount(saves & (bit - 1));
    KN_ASSERT(place < b->node->n_saved);
    return kn__node_saved(b->node)[place].t;
}

kn_tensor *kn__back_sink(const kn__back *b, int i, bool *fresh) {
    *fresh = false;
    if (b->pass->again) return NULL;
    kn_edge edge = kn__node_edges(b->node)[i];
    kn__param *p = kn__edge_param(edge);
    if (p) return b->pass->to_params && !p->is_sparse ? kn__param_sink(p, b->pass, fresh) : NULL;
    kn_tensor *grad = kn__edge_result(edge)->grad;
    return grad && kn_tensor_is_held_once(grad) ? grad : NULL;
}

kn_tensor *kn__back_over(const kn__back *b, int i) {
    kn_tensor *g = kn__back_last_use(b);
    kn_edge edge = kn__node_edges(b->node)[i];
    if (!g || kn__edge_param(edge) || kn__edge_result(edge)->grad) return NULL;
    bool is_hosts = KN_CLASS_REAL >> g->dtype & 1 && g->storage->device == kn_device_host();
    return is_hosts && kn__back_fits(b, i, g) ? g : NULL;
}

kn_tensor *kn__give(kn__back *b, int i, kn_op op, void *attr, kn_tensor *const in[], int n_in) {
    kn_op_call call;
    kn_op_call_init(&call, op, attr, in, n_in);
    for (int k = 0; k < n_in; k++) {
        if (!in[k]) return NULL; /* an op before this one failed */
    }
    bool fresh = false;
    bool adds = (kn_op_table[op].flags & KN_FLAG_ACC) && b->g && (KN_CLASS_REAL >> b->g->dtype & 1);
    kn_tensor *to = kn__back_sink(b, i, &fresh);
    if (kn_pending()) return NULL;
    if (to && (fresh || adds)) {
        call.out[0] = to;
        call.given = 1;
        call.accumulate = !fresh;
        return kn_op_run(&call) ? KN_NONE : NULL;
    }
    return kn_op_run(&call);
}

/* --- saved values that were forgotten: again.c --- */

static kn_tensor *fail_changed(kn__node *n, const kn__saved *saved) {
    char text[256];
    kn__node_text(text, sizeof text, n);
    return KN_FAIL_NULL(KN_ERR_INVALID,
                        "the result of %s, which .recompute makes again, needs a value that was %s",
                        text, saved->t->storage ? "written since" : KN__CONSUMED);
}

/* (x - mean)·(rstd·weight) + bias, as the host's kernel computes it, but in one pass with what
 * reads it. in[]: x, mean, rstd, weight, bias. All but x are f32 where it has 16 bits. */
static kn_tensor *normed_by_rows(const kn_attr_normalize *a, kn_tensor *in[]) {
    kn_shape x = kn_tensor_shape(in[0]), each = {.n_dims = x.n_dims - 1};
    for (int d = 0; d < each.n_dims; d++) each.dim[d] = !d || a->inner == 1 ? x.dim[d + 1] : 1;
    kn_tensor *scale = in[3] == KN_NONE ? in[2] : kn_mul(in[2], in[3]);
    kn_tensor *wide = kn__wide(in[0]);
    kn_tensor *y = kn_mul(kn_sub(wide, kn_reshape(in[1], each)), kn_reshape(scale, each));
    if (in[4] != KN_NONE) y = kn_add(y, kn_reshape(in[4], each));
    return wide == in[0] ? y : kn_cast(y, kn_tensor_dtype(in[0]));
}

/* Kernels of GPUs contract its product and sum, which rows don't. */
static kn_tensor *run_again(kn__node *n, kn_tensor *in[]) {
    if (n->op != KN_OP_batchnorm)
        return kn_op_call_run((kn_op)n->op, kn__node_attr(n), in, n->n_in);
    kn_attr_normalize attr = *(const kn_attr_normalize *)kn__node_attr(n);
    const kn__saved *last = kn__node_saved(n) + n->n_saved;
    KN_ASSERT(n->saves >> KN_NEED_OUT == 6); /* the batch's mean and 1/√(variance + eps) */
    attr.by_rstd = 1;
    in[1] = last[-2].t;
    in[2] = last[-1].t;
    bool by_rows = kn_frame_fuses() && in[0]->storage->device == kn_device_host();
    if (by_rows) return normed_by_rows(&attr, in);
    return kn_op_call_run(KN_OP_batchnorm_eval, &attr, in, 5);
}

/* t, or a tensor of the innermost frame that has its value: rules that read t come later, if there
 * are any, for the first of them would have made it. NULL: the error is pending. */
static kn_tensor *value_of(kn_tensor *t) {
    if (t->state != KN_TENSOR_FORGOTTEN) return t;
    kn__node *n = kn__maker_of(t);
    KN_ASSERT(n && n->again);
    kn_tensor *in[KN_NEED_OUT];
    for (int i = 0; i < n->n_in; i++) in[i] = KN_NONE;
    const kn__saved *saved = kn__node_saved(n);
    for (unsigned left = n->saves; left; left &= left - 1, saved++) {
        int i = __builtin_ctz(left);
        if (i >= KN_NEED_OUT) break;
        in[i] = value_of(saved->t);
        if (!in[i]) return NULL;
        const kn_storage *s = in[i]->storage;
        if (in[i] == saved->t && (!s || s->version != saved->version))
            return fail_changed(n, saved);
    }
    kn_tensor *value = run_again(n, in);
    if (!value || !t->is_kept) return value;
    kn_status status = kn_tensor_restore(t, value);
    return status < 0 ? kn_error_defer(status) : t;
}

static __attribute__((noinline)) kn_status make_again(kn_tensor *t) {
    KN_FRAME(.record = KN_OFF, .fuse = kn_capture_records() ? 0 : 1); /* else it is turned off */
    KN_TRY(kn_check());
    KN_ASSERT(t->is_kept); /* a rule reads it */
    kn_scope scope = kn_scope_begin_static("recompute");
    kn_status status = value_of(t) ? KN_OK : kn_check();
    kn_scope_end(&scope);
    return status;
}

/* --- one node --- */

static __attribute__((noinline)) kn_status saved_bad(kn__node *n, const kn__saved *saved) {
    char text[256];
    kn__node_text(text, sizeof text, n);
    if (!saved->t->storage) {
        return KN_FAIL(KN_ERR_INVALID, "the gradient of %s needs a value that was " KN__CONSUMED,
                       text);
    }
    return KN_FAIL(KN_ERR_INVALID,
                   "the gradient of %s needs a value that was written after it was saved (version "
                   "%u, saved as %u)",
                   text, saved->t->storage->version, saved->version);
}

static inline kn_status check_saved(kn__node *n) {
    const kn__saved *saved = kn__node_saved(n);
    unsigned left = n->saves;
    for (int k = 0; k < n->n_saved; k++, left &= left - 1) {
        if (n->extra >> __builtin_ctz(left) & 1) continue;
        kn_tensor *t = saved[k].t;
        if (__builtin_expect(t->state == KN_TENSOR_FORGOTTEN, 0)) KN_TRY(make_again(t));
        const kn_storage *s = t->storage;
        if (__builtin_expect(!s || s->version != saved[k].version, 0))
            return saved_bad(n, &saved[k]);
    }
    return KN_OK;
}

/* The result that a saved value is, where no other node reads it: its storage may go with it. NULL:
 * it is a parameter's or a constant's, has another reader, or no part in the pass. */
static kn_tensor *only_read_by(const kn__back *b, unsigned bit) {
    int at = __builtin_ctz(bit);
    if (at >= KN_NEED_OUT) return kn__node_results(b->node)[at - KN_NEED_OUT].out;
    kn_edge edge = kn__node_edges(b->node)[at];
    const kn__node *from = edge ? kn__edge_node(edge) : NULL;
    if (!from || !from->wanted || from->n_users != 1 || from->op == KN__OP_APPLY) return NULL;
    const kn__result *result = kn__edge_result(edge);
    int r = (int)(result - kn__node_results(kn__edge_node(edge)));
    return result->target || from->saves >> (KN_NEED_OUT + r) & 1 ? NULL : result->out;
}

void kn__back_drop(kn__back *b, unsigned bits) {
    kn__node *n = b->node;
    bool asked = kn__node_results(n)->target || n == kn__edge_node(b->pass->from);
    if (b->pass->keep || asked) return;
    for (unsigned left = n->saves & bits; left; left &= left - 1) {
        unsigned bit = left & -left;
        kn__saved *saved = kn__node_saved(n) + __builtin_popcount(n->saves & (bit - 1));
        const kn__saved gone = *saved;
        if (only_read_by(b, bit) != gone.t) continue;
        n->saves &= (uint16_t)~bit;
        n->n_saved--;
        memmove(saved, saved + 1, sizeof *saved * (size_t)(kn__node_saved(n) + n->n_saved - saved));
        kn__value_drop(gone.t); /* before the header may go with the last reference */
        int r = __builtin_ctz(bit) - KN_NEED_OUT;
        if (r >= 0 && !gone.t->grad) kn__node_results(n)[r].out = NULL;
        kn__saved_release(&gone);
    }
}

/* What the gradients of the inputs before i still read. */
static unsigned needs_before(const kn__back *b, int i) {
    const kn_op_needs *needs = &kn_op_needs_table[b->node->op];
    unsigned bits = 0;
    for (int j = 0; j < i; j++) {
        if (kn__back_wants(b, j)) bits |= needs->first[j < needs->n_first ? j : needs->n_first - 1];
    }
    return bits;
}

/* From the last input on: a layer's weights have their gradients, and their work space is free
 * again, before the gradient of x, which is often the largest, is there. So is what only they read,
 * but not of convolutions: smaller gradients in the places of images leave holes that larger ones
 * don't fit into. */
static kn_status each_input(kn__back *b, const kn__rule *rule) {
    kn__node *n = b->node;
    bool uniform = kn__back_is_uniform(b);
    for (int i = n->n_in - 1; i >= 0; i--) {
        if (!kn__back_wants(b, i)) continue;
        kn_scope scope = kn__derivative_begin(n->op, i);
        kn_tensor *dx = uniform ? kn__uniform_back(b, i) : rule->each(b, i);
        kn_scope_end(&scope);
        if (!dx) return kn_check();
        if (dx != KN_NONE) KN_TRY(kn__back_deliver(b, i, dx));
        if (!i || !n->n_saved || b->pass->keep || n->op == KN_OP_conv) continue;
        kn_frame_release_to(b->pass->mark); /* views of what goes */
        kn__back_drop(b, ~needs_before(b, i));
    }
    return KN_OK;
}

static kn_status node_back(kn__pass *pass, kn__node *n) {
    KN_TRY(check_saved(n));
    kn__back b = {pass, n, kn__node_results(n)->grad};
    if (n->op == KN__OP_APPLY) return kn__apply_back(&b);
    if (n->op == KN__OP_WATCH) return KN_OK;
    if (n->op == KN__OP_SPECIAL) return kn__special_of(*kn__node_special(n))->back(&b);
    const kn__rule *rule = &kn__rules[n->op];
    kn_scope scope = kn__derivatives_begin(&b, rule);
    kn_status status = rule->all ? rule->all(&b) : each_input(&b, rule);
    kn_scope_end(&scope);
    if (__builtin_expect(status == KN_OK, 1)) return KN_OK;
    int line;
    const char *file = kn__node_site(&line, n);
    if (file) kn_error_site(file, line);
    return status;
}

/* --- the tape --- */

bool kn__pass_mark(kn__pass *pass) {
    kn__node *last = kn__edge_node(pass->from);
    KN_ASSERT(last && last->tape == pass->tape);
    for (kn__node *n = pass->tape->first; n; n = n->next) {
        n->wanted = n->n_users = 0;
        for (int r = 0; r < n->n_out; r++) n->wanted |= kn__node_results(n)[r].target != 0;
        const kn_edge *edges = kn__node_edges(n);
        for (int i = 0; i < n->n_in; i++) {
            if (!edges[i]) continue;
            n->wanted |= kn__pass_wants(pass, edges[i]);
            kn__node *from = kn__edge_node(edges[i]);
            if (from && from->n_users < 2) from->n_users++;
            if (!from && pass->to_params) kn__param_count(kn__edge_param(edges[i]), pass);
        }
        if (n == last) break;
    }
    return last->wanted;
}

/* The gradients that the node's rule has written. Incoming ones were checked where they were made.
 */
static __attribute__((noinline)) kn_status check_finite(const kn__pass *pass, kn__node *n) {
    char found[160], text[256];
    for (int i = 0; i < n->n_in; i++) {
        kn_edge edge = kn__node_edges(n)[i];
        if (!kn__pass_wants(pass, edge)) continue;
        kn__param *p = kn__edge_param(edge);
        kn_tensor **slot = p && !pass->to_params ? kn__param_slot(pass, p) : NULL;
        kn_tensor *grad = p ? (slot ? *slot : kn__param_grad(p)) : kn__edge_result(edge)->grad;
        if (!kn__find_not_finite(found, sizeof found, grad)) continue;
        const char *input =
            i < KN_IN_NAMED && n->op < KN_OP_COUNT ? kn_op_table[n->op].in_name[i] : NULL;
        return KN_FAIL(KN_ERR_INVALID, "the gradient of %s by %s%s%s has %s",
                       kn__node_text(text, sizeof text, n), input ? input : "an input",
                       p ? ", the parameter " : "", p ? p->name : "", found);
    }
    return KN_OK;
}

/* The error that a hook left pending. */
static __attribute__((noinline)) kn_status edges_done(const kn__pass *pass, kn__node *n) {
    for (int i = 0; i < n->n_in; i++) {
        kn__param *p = kn__edge_param(kn__node_edges(n)[i]);
        if (p) kn__param_done(p, pass);
    }
    return kn_check();
}

/* Gives back the storage of results that the node's rule does not read: all other readers come
 * later on the tape and are done. */
static void results_drop(kn__node *n) {
    for (int r = 0; r < n->n_out; r++) {
        const kn__result *result = kn__node_results(n) + r;
        if (result->out && !(n->saves >> (KN_NEED_OUT + r) & 1)) kn__value_drop(result->out);
    }
}

/* A value that has no part in the result, such as a metric beside the loss, keeps its storage. */
kn_status kn__pass_node(kn__pass *pass, kn__node *n) {
    KN_ASSERT(n->tape == pass->tape && n->op <= KN__OP_SPECIAL);
    bool reached = false, asked = false;
    for (int r = 0; r < n->n_out; r++) {
        const kn__result *result = kn__node_results(n) + r;
        reached |= result->grad != NULL;
        asked |= result->grad && result->target;
    }
    bool consume = !pass->keep && reached && !asked && n != kn__edge_node(pass->from);
    if (consume && n->op != KN__OP_APPLY) results_drop(n);
    if (reached) KN_TRY(node_back(pass, n));
    if (reached && kn__anomaly_on()) KN_TRY(check_finite(pass, n));
    if (pass->hooked) KN_TRY(edges_done(pass, n));
    for (int r = 0; r < n->n_out && reached; r++) {
        kn__result *result = kn__node_results(n) + r;
        kn_tensor *grad = result->grad;
        if (!grad) continue;
        result->grad = NULL;
        if (result->target) {
            KN_ASSERT(result->target <= pass->n_x && !pass->slots[result->target - 1]);
            pass->slots[result->target - 1] = grad;
        } else {
            kn_tensor_release(grad);
        }
    }
    if (!pass->keep) kn__node_retire(n, consume);
    if (!pass->again) kn_frame_release_to(pass->mark);
    return KN_OK;
}

/* --- the scopes of forward calls --- */

/* The scopes that a pass has open: those of the node's place. */
typedef struct places {
    const kn__place *at;
    kn_scope scope[KN__PLACES_MAX];
} places;

static bool is_around(const kn__place *outer, const kn__place *place) {
    while (place && place->depth > outer->depth) place = place->up;
    return place == outer;
}

static void enter_below(places *open, const kn__place *to) {
    if (to == open->at) return;
    KN_ASSERT(to->depth <= KN__PLACES_MAX && to->depth == (to->up ? to->up->depth + 1 : 1));
    enter_below(open, to->up);
    open->scope[to->depth - 1] = kn_scope_begin(to->label);
    open->at = to;
}

/* Leaves and enters scopes until those of `to` are open, and no other. */
static void places_enter(places *open, const kn__place *to) {
    while (open->at && !is_around(open->at, to)) {
        kn_scope_end(&open->scope[open->at->depth - 1]);
        open->at = open->at->up;
    }
    enter_below(open, to);
    KN_ASSERT(open->at == to);
}

/* Each node in the scopes of its forward call, which stay open from node to node of one layer. */
static __attribute__((noinline)) kn_status run_in_places(kn__pass *pass, kn__node *from) {
    places open;
    open.at = NULL;
    kn_status status = KN_OK;
    for (kn__node *n = from; n && status == KN_OK; n = n->prev) {
        places_enter(&open, n->place);
        status = kn__pass_node(pass, n);
    }
    places_enter(&open, NULL);
    return status;
}

kn_status kn__pass_run(kn__pass *pass) {
    kn__node *from = kn__edge_node(pass->from);
    if (!pass->keep) { /* what came after the loss saved values too */
        for (kn__node *n = pass->tape->last; n != from; n = n->prev) kn__node_retire(n, false);
    }
    kn_status status = KN_OK;
    pass->tape->busy++;
    if (kn_prof_is_on_(KN_PROF_ALL_)) {
        status = run_in_places(pass, from);
    } else {
        for (kn__node *n = from; n && status == KN_OK; n = n->prev) status = kn__pass_node(pass, n);
    }
    pass->tape->busy--;
    return status;
}

/* --- kn_backward --- */

static kn_status check_loss(const kn_tensor *loss) {
    const char *problem = kn_tensor_problem(loss);
    if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss %s", problem);
    if (loss->n != 1) {
        char text[128];
        return KN_FAIL(KN_ERR_SHAPE, "kn_backward: the loss has shape %s; it must be one number",
                       kn_shape_text(text, sizeof text, kn_tensor_shape(loss)));
    }
    if (loss->spent) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the tape of this loss was " KN__CONSUMED);
    }
    if (kn__edge_param(loss->grad)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss is itself a parameter");
    }
    const kn__node *n = kn__edge_node(loss->grad);
    if (!n) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss was not recorded: %s",
                       kn_frame_tape() ? "it depends on no parameter, or on frozen ones alone"
                                       : "no tape was open, see KN_TAPE");
    }
    if (n->tape != kn_frame_tape()) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss is on another thread's tape");
    }
    return kn__tape_idle("kn_backward", n->tape);
}

/* The pass counts for each set that the loss depends on; failed: the gradients of these are void.
 * Retired nodes still have their edges. */
static kn_status reach_sets(kn__pass *pass, bool failed) {
    kn__node *from = kn__edge_node(pass->from);
    KN_ASSERT(from && from->tape == pass->tape);
    for (kn__node *n = from; n; n = n->prev) n->n_users = 0;
    from->n_users = 1; /* here: the loss depends on it */
    for (kn__node *n = from; n; n = n->prev) {
        for (int i = 0; n->n_users && i < n->n_in; i++) {
            kn_edge edge = kn__node_edges(n)[i];
            if (!edge) continue;
            kn__param *p = kn__edge_param(edge);
            if (!p)
                kn__edge_node(edge)->n_users = 1;
            else if (failed)
                kn__param_void(p);
            else
                KN_TRY(kn__param_touch(p, pass));
        }
    }
    return KN_OK;
}

/* Rules hand over nothing where a gradient is zero: the next step must not use an old one. */
static kn_status reach_rest(kn__pass *pass) {
    for (int i = 0; i < pass->tape->n_sets; i++)
        if (!pass->tape->set[i]->in_pass) return reach_sets(pass, false);
    return KN_OK;
}

/* The status of a pass that does not begin: gradients are void too, where the loss is recorded. */
static kn_status refuse(const kn_tensor *loss, kn_status status) {
    const kn__node *n = kn_tensor_problem(loss) ? NULL : kn__edge_node(loss->grad);
    if (n && n->tape == kn_frame_tape() && !n->tape->busy)
        reach_sets(&(kn__pass){.tape = n->tape, .from = loss->grad}, true);
    return status;
}

static kn_status backward(kn_tensor *loss) {
    kn__node *from = kn__edge_node(loss->grad);
    kn_params *touched = NULL;
    kn__pass pass = {.tape = from->tape,
                     .from = loss->grad,
                     .mark = kn_frame_mark(),
                     .to_params = true,
                     .touched = &touched};
    if (!kn__pass_mark(&pass)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_backward: the loss depends on no parameter, or on frozen ones alone; "
                       "kn_gradients differentiates by watched values");
    }
    bool implied = from->op < KN_OP_COUNT && (kn_op_table[from->op].flags & KN_FLAG_LOSS);
    kn_tensor *unit = implied ? KN_NONE : kn_filled_like(loss, 1);
    if (!unit) return refuse(loss, kn_check());
    kn__edge_result(loss->grad)->grad = kn_tensor_detach_frame(unit);
    kn_status status = kn__pass_run(&pass);
    if (status == KN_OK) status = reach_rest(&pass);
    kn__params_pass_end(&pass, status < 0);
    if (status < 0) reach_sets(&pass, true);
    kn__tape_clear(pass.tape, status == KN_OK);
    return status;
}

kn_status kn_backward(kn_tensor *loss) {
    KN_TRY(kn_check());
    kn_status status = check_loss(loss);
    if (status < 0) return refuse(loss, status);
    KN_SCOPE("backward");
    KN_FRAME(.record = KN_OFF, .autocast = KN_OFF); /* dtypes are those of forward */
    KN_TRY(kn_check());
    return backward(loss);
}
