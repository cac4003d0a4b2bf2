/* An op of your own, with its gradient. The rule is built from ops, so its derivative has one too.
 */
#include <knet/tape.h>
#include <math.h>
#include <stdio.h>

static kn_status softplus_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);                /* kept until backward has passed */
    *y = kn_log(kn_affine(kn_exp(x[0]), 1, 1)); /* log(e^x + 1) */
    return kn_check();
}

static kn_status softplus_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    dx[0] = kn_mul(dy, kn_sigm(kn_call_saved(call, 0)));
    return kn_check();
}

static const kn_rule softplus_rule = {
    .name = "softplus", .forward = softplus_forward, .backward = softplus_backward};

static kn_tensor *softplus(kn_tensor *x) { return kn_apply(&softplus_rule, &x, 1, NULL, NULL); }

/* For the check of both derivatives against finite differences. */
static kn_tensor *checked(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return softplus(x[0]);
}

static kn_status run(void) {
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(kn_full(KN_SHAPE(1), 0.5)), *dx = NULL, *ddx = NULL;
    kn_tensor *y = softplus(x);
    KN_TRY(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
    KN_TRY(kn_gradients(&ddx, dx, &x, 1, NULL));
    double first = 0, second = 0, s = 1 / (1 + exp(-0.5));
    KN_TRY(kn_item(&first, dx));
    KN_TRY(kn_item(&second, ddx));
    printf("softplus'(0.5) = %.6f, softplus''(0.5) = %.6f\n", first, second);
    if (fabs(first - s) > 1e-12 || fabs(second - s * (1 - s)) > 1e-12)
        return KN_FAIL(KN_ERR_INTERNAL, "should be %.6f and %.6f", s, s * (1 - s));
    return KN_OK;
}

static kn_status check(void) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = kn_tensor_from((double[]){-2, -0.3, 0.1, 1.7}, KN_F64, KN_SHAPE(4));
    return kn_gradcheck(checked, NULL, &x, 1, 2, 1e-4, 1e-6);
}

int main(void) {
    if (run() == KN_OK && check() == KN_OK) return 0;
    fprintf(stderr, "%s\n", kn_last_error()->message);
    return 1;
}
