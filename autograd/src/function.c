/* Gradients of a function, and hooks of values, made from the tape's public functions. */
#include <knet/op.h>
#include <knet/tape.h>
#include <stdlib.h>

/* --- a function's value and gradients --- */

/* In a frame of its own: kn_keep and kn_drop in f leave the watched values where they are. */
static kn_tensor *value_of(kn_tensor_fn f, void *ctx, kn_tensor *const x[]) {
    KN_FRAME();
    return kn_keep(f(ctx, x));
}

static kn_status watched_run(kn_tensor *seen[], kn_tensor **y, kn_tensor *dx[], kn_tensor_fn f,
                             void *ctx, kn_tensor *const x[], int n_x) {
    KN_TAPE();
    for (int i = 0; i < n_x; i++) seen[i] = kn_watch(x[i]);
    KN_TRY(kn_check());
    kn_tensor *value = value_of(f, ctx, seen);
    KN_TRY(kn_check());
    if (!value) return KN_FAIL(KN_ERR_INVALID, "kn_value_and_gradients: f gave no tensor");
    KN_TRY(kn_gradients(dx, value, seen, n_x, NULL));
    for (int i = 0; i < n_x; i++) dx[i] = kn_keep(dx[i]);
    *y = kn_keep(value);
    return kn_check();
}

kn_status kn_value_and_gradients(kn_tensor **y, kn_tensor *dx[], kn_tensor_fn f, void *ctx,
                                 kn_tensor *const x[], int n_x) {
    KN_TRY(kn_check());
    if (!y || !dx || !f || !x || n_x < 1)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_value_and_gradients: y, dx, f or x is NULL, or %d inputs", n_x);
    kn_tensor **seen = calloc((size_t)n_x, sizeof *seen);
    if (!seen) return KN_FAIL(KN_ERR_OOM, "kn_value_and_gradients: no host memory");
    kn_status status = watched_run(seen, y, dx, f, ctx, x, n_x);
    free(seen);
    return status;
}

/* --- a hook of a value: an op that is the identity --- */

typedef struct hook {
    kn_on_grad_fn fn;
    void *ctx;
} hook;

static kn_status hook_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = x[0];
    return KN_OK;
}

static kn_status hook_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    const hook *h = kn_call_ctx(call);
    KN_FRAME(.autocast = KN_OFF); /* it reads, and has nothing to agree with in forward */
    h->fn(h->ctx, dy);
    dx[0] = dy;
    return kn_check();
}

static const kn_rule hook_rule = {
    .name = "on_grad", .forward = hook_forward, .backward = hook_backward};

kn_tensor *kn_on_grad(kn_tensor *x, kn_on_grad_fn fn, void *ctx) {
    if (kn_pending()) return NULL;
    const char *problem = kn_tensor_problem(x);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_on_grad: x %s", problem);
    if (!fn) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_on_grad: fn is NULL");
    hook *h = malloc(sizeof *h);
    if (!h) return KN_FAIL_NULL(KN_ERR_OOM, "kn_on_grad: no host memory");
    *h = (hook){fn, ctx};
    return kn_apply(&hook_rule, &x, 1, h, free);
}
