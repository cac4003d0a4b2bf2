/* One small training step through the installed libraries. */
#include <knet.h>
#include <stdio.h>

static kn_status step(kn_params *params, kn_optim *sgd, double *out) {
    static const float pixels[4] = {1, 2, 3, 4};
    KN_TAPE();
    kn_tensor *w = kn_params_at(params, 0, NULL);
    kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(1, 4)); /* [1,4] */
    kn_tensor *y = kn_linear(x, w, KN_NONE);                       /* [1,2] */
    kn_tensor *loss = kn_sum(kn_mul(y, y), KN_ALL, false);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_item(out, loss));
    return kn_optim_step(sgd);
}

int main(void) {
    kn_params *params = NULL;
    kn_optim *sgd = NULL;
    double first = 0, second = 0;
    if (kn_params_create(&params, &(kn_params_options){.seed = 1}) < 0 ||
        !kn_param(params, KN_SHAPE(2, 4), kn_init_xavier(), "w") ||
        kn_sgd_create(&sgd, params, 1e-3, NULL) < 0 || step(params, sgd, &first) < 0 ||
        step(params, sgd, &second) < 0) {
        fprintf(stderr, "%s\n", kn_last_error()->message);
        return 1;
    }
    kn_optim_destroy(sgd);
    kn_params_destroy(params);
    printf("loss %g, then %g\n", first, second);
    return second < first ? 0 : 1;
}
