/* kn_gradients: the gradient of one value by some others, into tensors of its own. */
#include <knet/tape.h>
#include <stdlib.h>

#include "params.h"
#include "tape.h"

/* --- which values are asked for --- */

/* Whether y leads to one of them. */
static bool mark(kn__pass *pass) {
    for (kn__node *n = pass->tape->first; n; n = n->next) {
        for (int r = 0; r < n->n_out; r++) kn__node_results(n)[r].target = 0;
    }
    for (int i = pass->n_x - 1; i >= 0; i--) {
        kn_edge edge = pass->x[i]->grad;
        KN_ASSERT(edge && (!kn__edge_node(edge) || kn__edge_node(edge)->tape == pass->tape));
        if (kn__edge_node(edge)) kn__edge_result(edge)->target = i + 1;
    }
    return kn__pass_mark(pass);
}

/* A later kn_backward over the kept tape has no slots. */
static void unmark(const kn__pass *pass) {
    for (int i = 0; i < pass->n_x; i++) {
        kn_edge edge = pass->x[i]->grad;
        if (kn__edge_node(edge)) kn__edge_result(edge)->target = 0;
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
    return kn_filled_like(pass->x[i], 0);
}

static kn_status answers(kn_tensor *made[], const kn__pass *pass) {
    for (int i = 0; i < pass->n_x; i++) {
        made[i] = answer(pass, i);
        if (!made[i]) return kn_check();
    }
    return KN_OK;
}

/* --- checks --- */

static kn_status check_targets(const char *name, kn_tensor *const x[], int n_x) {
    if (n_x < 1 || !x) return KN_FAIL(KN_ERR_INVALID, "%s: no x to differentiate by", name);
    for (int i = 0; i < n_x; i++) {
        const char *problem = kn_tensor_problem(x[i]);
        if (problem) return KN_FAIL(KN_ERR_INVALID, "%s: x[%d] %s", name, i, problem);
        const kn__node *n = kn__edge_node(x[i]->grad);
        if (x[i]->spent && !x[i]->grad)
            return KN_FAIL(KN_ERR_INVALID,
                           "%s: the tape of x[%d] was " KN__CONSUMED "; see kn_watch", name, i);
        if (!x[i]->grad || (n && n->tape != kn_frame_tape())) {
            return KN_FAIL(KN_ERR_INVALID,
                           "%s: x[%d] is neither a parameter nor a value of this tape; "
                           "see kn_watch",
                           name, i);
        }
        const kn__param *p = kn__edge_param(x[i]->grad);
        if (p && p->is_frozen)
            return KN_FAIL(KN_ERR_INVALID,
                           "%s: x[%d] is the parameter '%s', which kn_params_freeze made a "
                           "constant: kn_watch it before y is computed",
                           name, i, p->name);
    }
    return KN_OK;
}

static kn_status check_call(const char *name, kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[],
                            int n_x, const kn_gradients_options *options) {
    for (int i = 0; i < 3; i++) {
        if (options->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "%s: a reserved option is not zero", name);
        }
    }
    if (!dx) return KN_FAIL(KN_ERR_INVALID, "%s: dx is NULL", name);
    const char *problem = kn_tensor_problem(y);
    if (problem) return KN_FAIL(KN_ERR_INVALID, "%s: y %s", name, problem);
    if (!kn_frame_tape()) return KN_FAIL(KN_ERR_INVALID, "%s: no tape is open", name);
    KN_TRY(kn__tape_idle(name, kn_frame_tape()));
    if (y->spent && !y->grad) {
        return KN_FAIL(KN_ERR_INVALID, "%s: the tape of y was " KN__CONSUMED, name);
    }
    const kn__node *n = kn__edge_node(y->grad);
    if (n && n->tape != kn_frame_tape()) {
        return KN_FAIL(KN_ERR_INVALID, "%s: y is on another thread's tape", name);
    }
    return check_targets(name, x, n_x);
}

static bool has_shape_of(const kn_tensor *t, const kn_tensor *x) {
    return t->n_dims == x->n_dims &&
           memcmp(t->dim, x->dim, (size_t)x->n_dims * sizeof x->dim[0]) == 0;
}

static kn_status check_dy(kn_tensor *dy, const kn_tensor *y) {
    const char *problem = dy ? kn_tensor_problem(dy) : NULL;
    if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_gradients: dy %s", problem);
    char has[128], wants[128];
    if (!dy) return KN_OK;
    if (!has_shape_of(dy, y))
        return KN_FAIL(KN_ERR_SHAPE, "kn_gradients: dy is %s, y %s",
                       kn_shape_text(has, sizeof has, kn_tensor_shape(dy)),
                       kn_shape_text(wants, sizeof wants, kn_tensor_shape(y)));
    if (dy->dtype != y->dtype)
        return KN_FAIL(KN_ERR_DTYPE, "kn_gradients: dy is %s, y %s",
                       kn_dtype_name((kn_dtype)dy->dtype), kn_dtype_name((kn_dtype)y->dtype));
    return KN_OK;
}

/* --- the call --- */

/* y is x[i] itself, or depends on nothing recorded: no walk is needed to answer. */
static kn_status trivial(kn__pass *pass, const kn_tensor *y) {
    for (int i = 0; i < pass->n_x; i++) {
        if (pass->x[i] != y) continue;
        kn_tensor *one = pass->dy ? pass->dy : kn_filled_like(y, 1);
        if (!one) return kn_check();
        pass->slots[i] = kn_tensor_retain(one);
        return KN_OK;
    }
    return KN_OK;
}

static kn_status walk(kn__pass *pass, kn_tensor *y) {
    if (!kn__edge_node(y->grad)) return trivial(pass, y);
    if (!mark(pass)) return KN_OK; /* no rule expects that nothing is wanted of it */
    kn_tensor *unit = pass->dy ? pass->dy : kn_filled_like(y, 1);
    /* A value of this tape as dy loses its storage on the way, which the gradient still needs. */
    if (pass->dy && !pass->keep) unit = kn_tensor_alias(unit);
    if (!unit) return kn_check();
    KN_ASSERT(!kn__edge_result(pass->from)->grad && unit->n == y->n);
    kn__edge_result(pass->from)->grad = kn_tensor_retain(unit);
    return kn__pass_run(pass);
}

/* Gradients that a failed pass left on a tape that is kept. */
static void drop_all(kn__tape *tape) {
    for (kn__node *n = tape->last; n; n = n->prev) {
        for (int r = 0; r < n->n_out; r++) {
            kn__result *result = kn__node_results(n) + r;
            if (result->grad) kn_tensor_release(result->grad);
            result->grad = NULL;
        }
    }
}

static kn_status gradients(kn_tensor *made[], kn__pass *pass, kn_tensor *y) {
    /* Recorded gradients live on by the tape and by the slots. Dtypes are those of forward. */
    kn_frame frame =
        kn_frame_begin(&(kn_frame_options){.record = pass->again ? 0 : KN_OFF, .autocast = KN_OFF});
    pass->mark = kn_frame_mark();
    kn_status status = kn_check();
    if (status == KN_OK) status = walk(pass, y);
    kn_frame_end(&frame);
    if (status == KN_OK) status = answers(made, pass);
    if (!pass->keep) {
        kn__tape_clear(pass->tape, false);
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
    KN_TRY(check_call("kn_gradients", dx, y, x, n_x, options));
    KN_TRY(check_dy(options->dy, y));
    KN_SCOPE("gradients");
    size_t n = (size_t)n_x;
    kn_tensor **slots = calloc(2 * n, sizeof *slots);
    if (!slots) return KN_FAIL(KN_ERR_OOM, "kn_gradients: no host memory");
    kn__pass pass = {.tape = kn_frame_tape(),
                     .from = y->grad,
                     .again = options->again != 0,
                     .keep = options->keep || options->again,
                     .x = x,
                     .dy = options->dy,
                     .slots = slots,
                     .n_x = n_x};
    kn_status status = gradients(slots + n, &pass, y);
    release_slots(&pass);
    if (status == KN_OK) memcpy(dx, slots + n, n * sizeof *dx); /* only now: dx may be x */
    free(slots);
    return status;
}

/* --- Jacobian-vector products --- */

/* The walk gives dx = Jᵀ·u for a watched u, which is linear in u; its derivative by u in the
 * direction t is J·t. */
static kn_status jvp(kn_tensor **dy, kn_tensor *dx[], kn_tensor *y, kn_tensor *const x[],
                     kn_tensor *const t[], int n_x) {
    kn_tensor *u = kn_watch(kn_filled_like(y, 0)), *sum = NULL;
    if (!u) return kn_check();
    KN_TRY(kn_gradients(dx, y, x, n_x, &(kn_gradients_options){.again = 1, .dy = u}));
    for (int i = 0; i < n_x; i++) {
        kn_tensor *part = kn_sum(kn_mul(dx[i], t[i]), KN_ALL, false);
        part = kn_cast(kn_to(part, kn_tensor_device(y)), (kn_dtype)y->dtype);
        sum = sum ? kn_add(sum, part) : part;
    }
    if (!sum) return kn_check();
    return kn_gradients(dy, sum, &u, 1, &(kn_gradients_options){.keep = 1});
}

static kn_status check_directions(kn_tensor *const x[], kn_tensor *const t[], int n_x) {
    char has[128], wants[128];
    for (int i = 0; i < n_x; i++) {
        const char *problem = kn_tensor_problem(t[i]);
        if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_jvp: t[%d] %s", i, problem);
        if (!has_shape_of(t[i], x[i]))
            return KN_FAIL(KN_ERR_SHAPE, "kn_jvp: t[%d] is %s, x[%d] %s", i,
                           kn_shape_text(has, sizeof has, kn_tensor_shape(t[i])), i,
                           kn_shape_text(wants, sizeof wants, kn_tensor_shape(x[i])));
        if (t[i]->dtype != x[i]->dtype)
            return KN_FAIL(KN_ERR_DTYPE, "kn_jvp: t[%d] is %s, x[%d] %s", i,
                           kn_dtype_name((kn_dtype)t[i]->dtype), i,
                           kn_dtype_name((kn_dtype)x[i]->dtype));
    }
    return KN_OK;
}

kn_status kn_jvp(kn_tensor **dy, kn_tensor *y, kn_tensor *const x[], kn_tensor *const t[],
                 int n_x) {
    KN_TRY(kn_check());
    if (!dy || !t || n_x < 1) return KN_FAIL(KN_ERR_INVALID, "kn_jvp: dy or t is NULL, or n_x < 1");
    KN_TRY(check_call("kn_jvp", dy, y, x, n_x, &(kn_gradients_options){.again = 1}));
    KN_TRY(check_directions(x, t, n_x));
    kn_tensor **dx = calloc((size_t)n_x, sizeof(kn_tensor *));
    if (!dx) return KN_FAIL(KN_ERR_OOM, "kn_jvp: no host memory");
    kn_status status = jvp(dy, dx, y, x, t, n_x);
    free(dx);
    return status;
}
