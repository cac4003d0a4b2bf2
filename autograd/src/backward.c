/* The walk: from a result down the tape, one gradient at a time. */
#include <knet/tape.h>
#include <stdio.h>

#include "params.h"
#include "tape.h"

/* Scopes are named after the op and the argument, from 1: "conv[2]" is the gradient of the weight.
 */
enum { LABELS = 4 };
static const char *const labels[KN_OP_COUNT][LABELS] = {
#define ROW(name) {#name "[1]", #name "[2]", #name "[3]", #name "[4…]"},
#define KN_UNARY(name, formula, saves, gradient) ROW(name) ROW(name##_back)
#define KN_BINARY(name, formula) ROW(name)
#define KN_COMPARE(name, formula) ROW(name)
#define KN_KERNEL(name, host, cuda) ROW(name)
#include <knet/ops.def>
#undef ROW
};

/* --- gradients meeting at one place --- */

/* A reference to dx that lasts beyond this node: the frame's own when nobody else has one. */
static bool is_temporary(const kn__pass *pass, const kn_tensor *t) {
    return !pass->again && t->owned != UINT32_MAX && t->owned >= pass->mark;
}

static kn_tensor *take(const kn__pass *pass, kn_tensor *dx) {
    return is_temporary(pass, dx) ? kn_tensor_detach_frame(dx) : kn_tensor_retain(dx);
}

static kn_status replace(const kn__pass *pass, kn_tensor **slot, kn_tensor *sum) {
    if (!sum) return kn_check();
    sum = take(pass, sum);
    kn_tensor_release(*slot);
    *slot = sum;
    return KN_OK;
}

/* Adds where the buffer is nobody else's; the first gradient is moved in, shared or not. */
static kn_status accumulate(const kn__pass *pass, kn_tensor **slot, kn_tensor *dx) {
    if (!*slot) {
        *slot = take(pass, dx);
        return KN_OK;
    }
    kn_scope scope = kn_scope_begin_grad("sum_outgrads");
    kn_status status = KN_OK;
    if (!pass->again && kn__alone(*slot)) {
        status = kn_add_into(*slot, dx);
    } else if (is_temporary(pass, dx) && kn__alone(dx)) {
        status = kn_add_into(dx, *slot);
        if (status == KN_OK) status = replace(pass, slot, dx);
    } else {
        status = replace(pass, slot, kn_add(*slot, dx));
    }
    kn_scope_end(&scope);
    return status;
}

static kn_status add_to_param(kn__pass *pass, kn__param *p, kn_tensor *dx) {
    bool fresh = false;
    kn_tensor *grad = kn__param_sink(p, pass, &fresh);
    if (!grad) return kn_check();
    kn_scope scope = kn_scope_begin_grad("sum_outgrads");
    kn_status status = KN_OK;
    if (fresh) {
        kn_attr_scalars same = {.a = 1};
        kn_op_call copy = {.op = KN_OP_affine,
                           .n_in = 1,
                           .in = &dx,
                           .out = grad,
                           .attr = &same,
                           .attr_bytes = sizeof same,
                           .dtype = (kn_dtype)grad->dtype,
                           .shape = kn_tensor_shape(grad)};
        if (!kn_op_run(&copy)) status = kn_check();
    } else {
        status = kn_add_into(grad, dx);
    }
    kn_scope_end(&scope);
    return status;
}

/* --- where the gradient of an input goes; NULL: nobody wants it --- */

kn_tensor **kn__param_slot(const kn__pass *pass, const kn__param *p) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->x[i]->grad == p) return &pass->slots[i];
    }
    return NULL;
}

static bool wants(const kn__pass *pass, kn__edge edge) {
    if (!edge) return false;
    const kn__node *node = kn__edge_node(edge);
    if (pass->to_params) return !node || node->leads_to_param;
    return node ? node->wanted : kn__param_slot(pass, kn__edge_param(edge)) != NULL;
}

static kn_status deliver(kn__pass *pass, kn__edge edge, kn_tensor *dx) {
    kn__node *node = kn__edge_node(edge);
    if (node) return accumulate(pass, &node->grad, dx);
    kn__param *p = kn__edge_param(edge);
    if (pass->to_params) return add_to_param(pass, p, dx);
    return accumulate(pass, kn__param_slot(pass, p), dx);
}

kn_tensor *kn__back_run(kn__back *b, int i, kn_op_call *call) {
    kn__pass *pass = b->pass;
    if (pass->again) return kn_op_run(call);
    kn__edge edge = kn__node_edges(b->node)[i];
    kn__node *node = kn__edge_node(edge);
    if (!node && pass->to_params) {
        bool fresh = false;
        call->out = kn__param_sink(kn__edge_param(edge), pass, &fresh);
        if (!call->out) return NULL;
        call->accumulate = !fresh;
        return kn_op_run(call) ? KN_NONE : NULL;
    }
    if (node && node->grad && kn__alone(node->grad)) {
        call->out = node->grad;
        call->accumulate = true;
        return kn_op_run(call) ? KN_NONE : NULL;
    }
    return kn_op_run(call);
}

/* --- one node --- */

static kn_status check_saved(kn__node *n) {
    const kn__saved *saved = kn__node_saved(n);
    for (int k = 0; k < n->n_saved; k++) {
        const kn_tensor *t = saved[k].t;
        if (!t) continue;
        char text[256];
        if (!t->storage) {
            return KN_FAIL(KN_ERR_INVALID,
                           "the gradient of %s needs a value that an earlier kn_backward consumed",
                           kn__node_text(text, sizeof text, n));
        }
        if (t->storage->version != saved[k].version) {
            return KN_FAIL(KN_ERR_INVALID,
                           "the gradient of %s needs a value that was written after it was saved "
                           "(version %u, saved as %u)",
                           kn__node_text(text, sizeof text, n), t->storage->version,
                           saved[k].version);
        }
    }
    return KN_OK;
}

static kn_status input_back(kn__back *b, int i) {
    kn__node *n = b->node;
    kn_scope scope = kn_scope_begin_grad(labels[n->op][i < LABELS ? i : LABELS - 1]);
    kn_tensor *dx = kn__rules[n->op].back(b, i);
    kn_scope_end(&scope);
    if (!dx) {
        const kn_tensor *out = n->out;
        kn_error_site(out ? out->file : n->file, out ? out->line : n->line);
        return kn_check();
    }
    return dx == KN_NONE ? KN_OK : deliver(b->pass, kn__node_edges(n)[i], dx);
}

static kn_status node_back(kn__pass *pass, kn__node *n) {
    KN_TRY(check_saved(n));
    kn__back b = {pass, n, n->grad};
    if (n->op == KN__OP_APPLY) return kn__apply_back(&b);
    const kn__edge *edges = kn__node_edges(n);
    for (uint64_t left = n->need; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        if (wants(pass, edges[i])) KN_TRY(input_back(&b, i));
    }
    return KN_OK;
}

bool kn__back_wants(const kn__back *b, int i) { return wants(b->pass, kn__node_edges(b->node)[i]); }

kn_status kn__back_deliver(kn__back *b, int i, kn_tensor *dx) {
    return deliver(b->pass, kn__node_edges(b->node)[i], dx);
}

/* --- the tape --- */

static void drop_grad(kn__node *n) {
    if (n->grad) kn_tensor_release(n->grad);
    n->grad = NULL;
}

/* A value that has no part in the result, such as a metric beside the loss, keeps its storage. */
static kn_status pass_node(kn__pass *pass, kn__node *n) {
    bool reached = n->grad != NULL;
    if (reached) KN_TRY(node_back(pass, n));
    if (reached && n->target) {
        pass->slots[n->target - 1] = n->grad;
        n->grad = NULL;
    }
    drop_grad(n);
    if (!pass->keep) kn__node_retire(n, reached && !n->target && n != pass->from);
    if (!pass->again) kn_frame_release_to(pass->mark);
    return KN_OK;
}

kn_status kn__pass_run(kn__pass *pass) {
    if (!pass->keep) { /* what came after the loss saved values too */
        for (kn__node *n = pass->tape->last; n != pass->from; n = n->prev)
            kn__node_retire(n, false);
    }
    for (kn__node *n = pass->from; n; n = n->prev) KN_TRY(pass_node(pass, n));
    return KN_OK;
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
    if (loss->grad_kind == KN__GRAD_SPENT) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_backward: an earlier kn_backward consumed the tape of this loss");
    }
    if (loss->grad_kind == KN__GRAD_PARAM) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss is itself a parameter");
    }
    const kn__node *n = loss->grad;
    if (!n) {
        return KN_FAIL(
            KN_ERR_INVALID, "kn_backward: the loss was not recorded: %s",
            kn_frame_tape() ? "it depends on no parameter" : "no tape was open, see KN_TAPE");
    }
    if (n->tape != kn_frame_tape()) {
        return KN_FAIL(KN_ERR_INVALID, "kn_backward: the loss is on another thread's tape");
    }
    if (!n->leads_to_param) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_backward: the loss depends on no parameter; kn_gradients differentiates "
                       "by watched values");
    }
    return KN_OK;
}

static kn_status backward(kn_tensor *loss) {
    kn__node *from = loss->grad;
    kn__pass pass = {.tape = from->tape, .from = from, .mark = kn_frame_mark(), .to_params = true};
    bool implied = from->op < KN_OP_COUNT && kn__rules[from->op].knows_one;
    kn_tensor *unit = KN_NONE;
    if (!implied)
        unit = kn__filled(loss->storage->device, (kn_dtype)loss->dtype, kn_tensor_shape(loss), 1);
    if (!unit) return kn_check();
    from->grad = kn_tensor_detach_frame(unit);
    kn_status status = kn__pass_run(&pass);
    kn__params_pass_end(&pass, status < 0);
    kn__tape_clear(pass.tape);
    return status;
}

kn_status kn_backward(kn_tensor *loss) {
    KN_TRY(kn_check());
    KN_TRY(check_loss(loss));
    KN_SCOPE("backward");
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn_check());
    return backward(loss);
}
