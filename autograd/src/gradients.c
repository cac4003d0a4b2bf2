/* kn_gradients: the gradient of one value by some others, into tensors of its own. */
#include <knet/tape.h>
#include <stdlib.h>

#include "params.h"
#include "tape.h"

kn_tensor *kn__filled(kn_device *device, kn_dtype dtype, kn_shape shape, double value) {
    kn_attr_scalars attr = {.a = value};
    kn_op_call call = {.op = KN_OP_fill,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = dtype,
                       .shape = shape,
                       .device = device};
    return kn_op_run(&call);
}

/* --- which nodes lie between y and the targets --- */

static bool wanted(const kn__pass *pass, kn__node *n) {
    if (n->target) return true;
    const kn__edge *edges = kn__node_edges(n);
    for (int i = 0; i < n->n_in; i++) {
        if (!edges[i]) continue;
        const kn__node *from = kn__edge_node(edges[i]);
        if (from ? from->wanted : kn__param_slot(pass, kn__edge_param(edges[i])) != NULL)
            return true;
    }
    return false;
}

static void mark(const kn__pass *pass) {
    for (kn__node *n = pass->tape->first; n; n = n->next) {
        n->target = n->wanted = 0;
    }
    for (int i = pass->n_x - 1; i >= 0; i--) {
        if (pass->x[i]->grad_kind == KN__GRAD_NODE) ((kn__node *)pass->x[i]->grad)->target = i + 1;
    }
    for (kn__node *n = pass->tape->first; n; n = n->next) {
        n->wanted = wanted(pass, n);
        if (n == pass->from) break;
    }
}

/* A later kn_backward over the kept tape has no slots. */
static void unmark(const kn__pass *pass) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->x[i]->grad_kind == KN__GRAD_NODE) ((kn__node *)pass->x[i]->grad)->target = 0;
    }
}

/* --- answers --- */

static void release_slots(kn__pass *pass) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->slots[i]) kn_tensor_release(pass->slots[i]);
        pass->slots[i] = NULL;
    }
}

/* Each answer is a tensor of its own in the caller's frame: dropping it leaves the others alone. */
static kn_tensor *answer(const kn__pass *pass, int i) {
    for (int j = 0; j <= i; j++) { /* the first of equal targets has the answer */
        kn_tensor *dx = pass->slots[j];
        if (pass->x[j] != pass->x[i] || !dx) continue;
        return pass->again ? kn_reshape(dx, kn_tensor_shape(dx)) /* which is recorded */
                           : kn_tensor_alias(dx);
    }
    kn_tensor *x = pass->x[i];
    return kn__filled(x->storage->device, (kn_dtype)x->dtype, kn_tensor_shape(x), 0);
}

static kn_status answers(kn_tensor *dx[], kn__pass *pass) {
    for (int i = 0; i < pass->n_x; i++) {
        dx[i] = answer(pass, i);
        if (!dx[i]) return kn_check();
    }
    return KN_OK;
}

/* --- checks --- */

static kn_status check_targets(kn_tensor *const x[], int n_x) {
    if (n_x < 1 || !x) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: no x to differentiate by");
    for (int i = 0; i < n_x; i++) {
        const char *problem = kn_tensor_problem(x[i]);
        if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: x[%d] %s", i, problem);
        bool foreign = x[i]->grad_kind == KN__GRAD_NODE && x[i]->grad &&
                       ((kn__node *)x[i]->grad)->tape != kn_frame_tape();
        if (!x[i]->grad || foreign) {
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_gradients: x[%d] is neither a parameter nor a value of this tape; "
                           "see kn_watch",
                           i);
        }
    }
    return KN_OK;
}

static kn_status check_call(kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[], int n_x,
                            const kn_gradients_options *options) {
    for (int i = 0; i < 4; i++) {
        if (options->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "kn_gradients: a reserved option is not zero");
        }
    }
    if (!dx) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: dx is NULL");
    const char *problem = kn_tensor_problem(y);
    if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: y %s", problem);
    if (!kn_frame_tape()) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: no tape is open");
    if (y->grad_kind == KN__GRAD_SPENT && !y->grad) {
        return KN_FAIL(KN_ERR_INVALID, "kn_gradients: the tape of y was consumed");
    }
    if (y->grad_kind == KN__GRAD_NODE && y->grad &&
        ((kn__node *)y->grad)->tape != kn_frame_tape()) {
        return KN_FAIL(KN_ERR_INVALID, "kn_gradients: y is on another thread's tape");
    }
    return check_targets(x, n_x);
}

/* --- the call --- */

/* y is x[i] itself, or depends on nothing recorded: no walk is needed to answer. */
static kn_status trivial(kn__pass *pass, const kn_tensor *y) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->x[i] != y) continue;
        kn_tensor *one = kn__filled(y->storage->device, (kn_dtype)y->dtype, kn_tensor_shape(y), 1);
        if (!one) return kn_check();
        pass->slots[i] = kn_tensor_retain(one);
        return KN_OK;
    }
    return KN_OK;
}

static kn_status walk(kn__pass *pass, kn_tensor *y) {
    if (!y->grad || y->grad_kind == KN__GRAD_PARAM) return trivial(pass, y);
    mark(pass);
    kn_tensor *unit = kn__filled(y->storage->device, (kn_dtype)y->dtype, kn_tensor_shape(y), 1);
    if (!unit) return kn_check();
    pass->from->grad = kn_tensor_retain(unit);
    return kn__pass_run(pass);
}

/* Gradients that a failed pass left on a tape that is kept. */
static void drop_all(kn__tape *tape) {
    for (kn__node *n = tape->last; n; n = n->prev) {
        if (n->grad) kn_tensor_release(n->grad);
        n->grad = NULL;
    }
}

static kn_status gradients(kn_tensor *dx[], kn__pass *pass, kn_tensor *y) {
    kn_frame frame = {0, 0};
    if (!pass->again) frame = kn_frame_begin(&(kn_frame_options){.record = KN_OFF});
    pass->mark = kn_frame_mark();
    kn_status status = kn_check();
    if (status == KN_OK) status = walk(pass, y);
    kn_frame_end(&frame);
    if (status == KN_OK) status = answers(dx, pass);
    if (!pass->keep) {
        kn__tape_clear(pass->tape);
        return status;
    }
    unmark(pass);
    if (status < 0) drop_all(pass->tape);
    return status;
}

kn_status kn_gradients(kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[], int n_x,
                       const kn_gradients_options *options) {
    static const kn_gradients_options defaults = {0};
    if (!options) options = &defaults;
    KN_TRY(kn_check());
    KN_TRY(check_call(dx, y, x, n_x, options));
    KN_SCOPE("gradients");
    kn_tensor **slots = calloc((size_t)n_x, sizeof *slots);
    if (!slots) return KN_FAIL(KN_ERR_OOM, "kn_gradients: no host memory");
    kn__pass pass = {.tape = kn_frame_tape(),
                     .from = y->grad_kind == KN__GRAD_NODE ? y->grad : NULL,
                     .again = options->again != 0,
                     .keep = options->keep || options->again,
                     .x = x,
                     .slots = slots,
                     .n_x = n_x};
    kn_status status = gradients(dx, &pass, y);
    release_slots(&pass);
    free(slots);
    return status;
}
