/* Ops of the user's own: kn_apply. */
#include <stdlib.h>

#include "tape.h"

enum { SAVED_MAX = 8, INPUTS_MAX = 64 }; /* inputs: a bit each */

struct kn_call {
    const kn_rule *rule;
    void *ctx;
    void (*ctx_free_fn)(void *ctx);
    kn__saved saved[SAVED_MAX];
    uint64_t own;      /* saved values that are the call's inputs or result, bit by bit */
    uint64_t need;     /* inputs that want a gradient; in backward, in this pass */
    kn_dtype autocast; /* of the frame of kn_apply; 0: off */
    int n_x;
    struct input { /* what a gradient must agree with; its shape is the node's */
        kn_device *device;
        kn_dtype dtype;
    } input[];
};

/* The node's attributes: where its call is. */
static kn_call **call_of(kn__node *n) { return kn__node_attr(n); }

const char *kn__apply_name(const kn__node *n) {
    kn_call *call = *(kn_call *const *)(const void *)((const char *)n + n->attr_at);
    return call ? call->rule->name : "apply";
}

static void call_free(kn_call *call) {
    for (int i = 0; i < SAVED_MAX; i++) {
        if (call->saved[i].t) kn_tensor_release(call->saved[i].t);
    }
    if (call->ctx_free_fn) call->ctx_free_fn(call->ctx);
    free(call);
}

void kn__apply_free(kn__node *n) {
    kn_call *call = *call_of(n);
    *call_of(n) = NULL;
    if (call) call_free(call);
}

/* --- what rules call --- */

void kn_call_save(kn_call *call, int i, kn_tensor *t) {
    KN_ASSERT(i >= 0 && i < SAVED_MAX);
    if (i < 0 || i >= SAVED_MAX || !t || t == KN_NONE) return;
    if (!t->storage) {
        KN_FAIL_NULL(KN_ERR_INVALID, "%s: the value to save at %d %s", call->rule->name, i,
                     kn_tensor_problem(t));
        return;
    }
    kn_tensor *old = call->saved[i].t;
    call->saved[i] = (kn__saved){.t = kn_tensor_retain(t), .version = t->storage->version};
    if (old) kn_tensor_release(old);
}

kn_tensor *kn_call_saved(kn_call *call, int i) {
    if (i >= 0 && i < SAVED_MAX && call->saved[i].t) return call->saved[i].t;
    return KN_FAIL_NULL(KN_ERR_INVALID, "%s: nothing is saved at %d", call->rule->name, i);
}

bool kn_call_needs(const kn_call *call, int i) {
    return i >= 0 && i < call->n_x && (call->need >> i & 1);
}

void *kn_call_ctx(const kn_call *call) { return call->ctx; }

kn_status kn__user_status(kn_status status, const char *name, const char *what) {
    kn_status pending = kn_check();
    if (pending < 0) return pending;
    bool is_recorded = kn_last_error()->status == status; /* else that is an older error's */
    if (status >= 0 || is_recorded) return status;
    return KN_FAIL(status, "%s: %s failed: %s", name, what, kn_status_text(status));
}

/* --- forward --- */

static kn_status check_inputs(const kn_rule *rule, kn_tensor *const x[], int n_x) {
    if (!rule || !rule->name || !rule->forward || !rule->backward) {
        return KN_FAIL(KN_ERR_INVALID, "kn_apply: a rule needs a name, forward and backward");
    }
    for (int i = 0; i < 4; i++) {
        if (rule->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "%s: a reserved field is not zero", rule->name);
        }
    }
    if (n_x < 1 || n_x > INPUTS_MAX) {
        return KN_FAIL(KN_ERR_INVALID, "%s: %d inputs; 1 to %d are possible", rule->name, n_x,
                       INPUTS_MAX);
    }
    for (int i = 0; i < n_x; i++) {
        const char *problem = x[i] == KN_NONE ? NULL : kn_tensor_problem(x[i]);
        if (problem) return KN_FAIL(KN_ERR_INVALID, "%s: x[%d] %s", rule->name, i, problem);
    }
    return KN_OK;
}

/* Runs forward without recording the ops inside it. *out: a reference of the caller's. */
static kn_status run_forward(kn_tensor **out, kn_call *call, kn_tensor *const x[]) {
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn_check());
    kn_tensor *y = NULL;
    const char *name = call->rule->name;
    KN_TRY(kn__user_status(call->rule->forward(&y, call, x), name, "forward"));
    if (!y || !y->storage) { /* NULL, KN_NONE, consumed, ended */
        return KN_FAIL(KN_ERR_INVALID, "%s: forward gave no result", name);
    }
    *out = kn_tensor_retain(y);
    return KN_OK;
}

static bool is_own(const kn_tensor *t, const kn_tensor *y, kn_tensor *const x[], int n_x) {
    if (t == y) return true;
    for (int i = 0; i < n_x; i++) {
        if (t == x[i]) return true;
    }
    return false;
}

/* The node takes the call. */
static kn_status record(kn_call *call, kn_tensor *y, kn_tensor *const x[]) {
    kn__tape *tape = kn_frame_tape();
    KN_ASSERT(tape && y->grad == 0); /* a header of its own: no other node made it */
    if (kn__anomaly_on())
        KN_TRY(kn__check_results(tape, call->rule->name, &y, 1, x, call->n_x, NULL));
    kn__node *n = kn__tape_node(tape, KN__OP_APPLY, y, call->n_x, sizeof call);
    if (!n) return kn_last_error()->status;
    for (int i = 0; i < call->n_x; i++) kn__node_edges(n)[i] = kn__edge_from(tape, x[i]);
    *call_of(n) = call;
    return KN_OK;
}

static kn_status apply(kn_tensor **out, kn_call *call, kn_tensor *const x[], bool *taken) {
    kn_tensor *made = NULL;
    bool recording = kn_op_recording(x, call->n_x);
    for (int i = 0; i < call->n_x; i++) {
        if (!recording || !x[i]->grad) continue;
        call->need |= (uint64_t)1 << i;
        call->input[i] = (struct input){x[i]->storage->device, (kn_dtype)x[i]->dtype};
    }
    KN_TRY(run_forward(&made, call, x));
    /* A header of this frame's: forward may have returned an input, or a tensor it keeps. */
    kn_tensor *y = kn_tensor_alias(made);
    for (int i = 0; y && i < SAVED_MAX; i++) {
        kn_tensor *t = call->saved[i].t;
        if (t == made && !is_own(t, NULL, x, call->n_x)) kn_call_save(call, i, y);
        if (t && is_own(call->saved[i].t, y, x, call->n_x)) call->own |= 1u << i;
    }
    kn_tensor_release(made);
    if (!y) return kn_check();
    if (recording && kn__dtype_is_float(y->dtype)) {
        KN_TRY(record(call, y, x));
        *taken = true;
    }
    *out = y;
    return KN_OK;
}

kn_tensor *kn_apply(const kn_rule *rule, kn_tensor *const x[], int n_x, void *ctx,
                    void (*ctx_free_fn)(void *ctx)) {
    kn_status status = kn_pending() ? KN_OK : check_inputs(rule, x, n_x);
    kn_call *call = NULL;
    if (!kn_pending() && status == KN_OK)
        call = calloc(1, sizeof *call + (size_t)n_x * sizeof call->input[0]);
    if (!call) {
        if (ctx_free_fn) ctx_free_fn(ctx);
        if (status < 0 || kn_pending()) return kn_error_defer(status);
        return KN_FAIL_NULL(KN_ERR_OOM, "%s: no host memory", rule->name);
    }
    call->rule = rule;
    call->ctx = ctx;
    call->ctx_free_fn = ctx_free_fn;
    call->autocast = kn_frame_autocast();
    call->n_x = n_x;
    kn_scope scope = kn_scope_begin_static(rule->name);
    kn_tensor *y = NULL;
    bool taken = false;
    status = apply(&y, call, x, &taken);
    kn_scope_end(&scope);
    if (!taken) call_free(call);
    if (status == KN_OK) return y;
    kn_error_op(rule->name);
    return kn_error_defer(status);
}

/* --- backward --- */

static kn_status check_saved(kn__back *b, const kn_call *call) {
    char text[256];
    for (int i = 0; i < SAVED_MAX; i++) {
        const kn_tensor *t = call->saved[i].t;
        if (!t) continue;
        if (!t->storage || t->storage->version != call->saved[i].version) {
            return KN_FAIL(KN_ERR_INVALID, "the gradient of %s needs saved value %d, which was %s",
                           kn__node_text(text, sizeof text, b->node), i,
                           t->storage ? "written after it was saved" : KN__CONSUMED);
        }
        /* A value made inside forward looks like a constant: its share would be lost silently. */
        if (b->pass->again && kn__dtype_is_float(t->dtype) && !(call->own >> i & 1)) {
            return KN_FAIL(
                KN_ERR_UNSUPPORTED,
                "the gradient of %s can't be differentiated again: its saved value %d is "
                "neither an input nor the result",
                kn__node_text(text, sizeof text, b->node), i);
        }
    }
    if (b->pass->again && call->rule->once) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the gradient of %s can't be differentiated again",
                       kn__node_text(text, sizeof text, b->node));
    }
    return KN_OK;
}

/* What the user's backward gave is added to gradients as it is: it must be of x[i]'s kind. */
static kn_status check_gradient(kn__back *b, const kn_call *call, int i, const kn_tensor *dx) {
    const char *name = call->rule->name;
    const struct input *in = &call->input[i];
    if (!dx->storage) {
        return KN_FAIL(KN_ERR_INVALID, "%s: backward gave a value for x[%d] that %s", name, i,
                       kn_tensor_problem(dx));
    }
    kn_shape want = kn__back_shape(b, i);
    if (dx->n_dims != want.n_dims ||
        memcmp(dx->dim, want.dim, (size_t)want.n_dims * sizeof want.dim[0]) != 0) {
        char got[128], wanted[128];
        return KN_FAIL(KN_ERR_SHAPE, "%s: backward gave %s for x[%d] of shape %s", name,
                       kn_shape_text(got, sizeof got, kn_tensor_shape(dx)), i,
                       kn_shape_text(wanted, sizeof wanted, want));
    }
    if (dx->dtype != in->dtype) {
        return KN_FAIL(KN_ERR_DTYPE, "%s: backward gave %s for x[%d], which is %s", name,
                       kn_dtype_name((kn_dtype)dx->dtype), i, kn_dtype_name(in->dtype));
    }
    if (dx->storage->device != in->device) {
        return KN_FAIL(KN_ERR_DEVICE, "%s: backward gave a value on %s for x[%d], which is on %s",
                       name, kn_device_name(dx->storage->device), i, kn_device_name(in->device));
    }
    return KN_OK;
}

static bool is_mixed(unsigned dtype) {
    return dtype == KN_F32 || dtype == KN_F16 || dtype == KN_BF16;
}

/* dx, in the dtype of x[i] where the frame's casts gave it another one. NULL: the error is pending.
 */
static kn_tensor *cast_back(const kn_call *call, int i, kn_tensor *dx) {
    kn_dtype dtype = call->input[i].dtype;
    bool casts = call->autocast && dx->storage && dx->dtype != dtype;
    return casts && is_mixed(dx->dtype) && is_mixed(dtype) ? kn_cast(dx, dtype) : dx;
}

/* The storage of values that the tape made goes while gradients are still read: a gradient that is
 * such a value itself gets a header of its own. */
static kn_tensor *outliving(const kn__back *b, const kn_call *call, kn_tensor *dx) {
    bool is_made = kn__edge_node(dx->grad) != NULL;
    for (int i = 0; i < SAVED_MAX; i++) is_made |= call->saved[i].t == dx;
    return is_made && !b->pass->keep ? kn_tensor_alias(dx) : dx;
}

/* A gradient that another input gets too: what takes it may add to it in place, or end it. */
static bool comes_again(const kn_call *call, kn_tensor *const dx[], int i) {
    for (int j = i + 1; j < call->n_x; j++) {
        if (call->need >> j & 1 && dx[j] == dx[i]) return true;
    }
    return false;
}

static kn_status deliver_all(kn__back *b, const kn_call *call, kn_tensor *const dx[]) {
    for (int i = 0; i < call->n_x; i++) {
        if (!(call->need >> i & 1) || !dx[i] || dx[i] == KN_NONE) continue;
        kn_tensor *own = cast_back(call, i, dx[i]);
        if (!own) return kn_check();
        KN_TRY(check_gradient(b, call, i, own));
        own = outliving(b, call, own);
        if (own == dx[i] && comes_again(call, dx, i)) own = kn_tensor_alias(own);
        if (!own) return kn_check();
        KN_TRY(kn__back_deliver(b, i, own));
    }
    return KN_OK;
}

kn_status kn__apply_back(kn__back *b) {
    kn_call *call = *call_of(b->node);
    KN_ASSERT(call && call->n_x == b->node->n_in && b->g);
    KN_TRY(check_saved(b, call));
    call->need = 0;
    for (int i = 0; i < call->n_x; i++) {
        if (kn__back_wants(b, i)) call->need |= (uint64_t)1 << i;
    }
    if (!call->need) return KN_OK;
    KN_FRAME(.autocast = call->autocast ? (int)call->autocast : KN_OFF); /* casts as in forward */
    KN_TRY(kn_check());
    kn_tensor *dx[INPUTS_MAX] = {0};
    kn_scope scope = kn_scope_begin_static(call->rule->name);
    kn_status status = call->rule->backward(dx, call, b->g);
    kn_scope_end(&scope);
    status = kn__user_status(status, call->rule->name, "backward");
    if (status == KN_OK) status = deliver_all(b, call, dx);
    if (status < 0) kn_error_op(call->rule->name);
    return status;
}
