/* Knet's prof/update: one step of an optimiser over a million parameters. */
#include <knet/optim.h>

#include "cases.h"

static kn_params *params;
static kn_optim *optim;

static kn_status open_params(void) {
    KN_TRY(kn_params_create(&params, NULL));
    for (int i = 0; i < 10; i++)
        if (!kn_param(params, KN_SHAPE(100, 1000), kn_init_xavier(), "w%d", i)) return kn_check();
    return KN_OK;
}

static kn_status open_sgd(void) {
    KN_TRY(open_params());
    return kn_sgd_create(&optim, params, 0.1, NULL);
}

static kn_status open_momentum(void) {
    KN_TRY(open_params());
    return kn_momentum_create(&optim, params, 0.1, 0.9, NULL);
}

static kn_status open_adam(void) {
    KN_TRY(open_params());
    return kn_adam_create(&optim, params, 0.001, NULL);
}

static void close_all(void) {
    kn_optim_destroy(optim);
    kn_params_destroy(params);
    optim = NULL;
    params = NULL;
}

static kn_tensor *step(void) {
    return kn_optim_step(optim) == KN_OK ? kn_params_grad(params) : NULL;
}

/* clang-format off */
CASE(arrays, update_sgd,      step(), .setup = open_sgd, .teardown = close_all)
CASE(arrays, update_momentum, step(), .setup = open_momentum, .teardown = close_all)
CASE(arrays, update_adam,     step(), .setup = open_adam, .teardown = close_all)
