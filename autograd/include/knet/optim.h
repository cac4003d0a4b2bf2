/* Optimisers: one fused kernel updates all parameters of a set. Step count and learning rate are in
 * device memory.
 *
 *     kn_optim *adam = NULL;
 *     KN_TRY(kn_adam_create(&adam, params, 1e-3, NULL));
 *     KN_TRY(kn_optim_step(adam));
 *
 * Threads: one at a time.
 */
#ifndef KNET_OPTIM_H
#define KNET_OPTIM_H

#include <knet/param.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An optimiser. */
typedef struct kn_optim kn_optim;

/* Options of kn_sgd_create and kn_momentum_create. */
typedef struct kn_sgd_options {
    double weight_decay, clip_norm; /* clip_norm: of all gradients together; 0: off */
    uint64_t reserved[4];           /* zero */
} kn_sgd_options;
/* Stochastic gradient descent: w -= lr·g */
KN_API KN_MUST_CHECK kn_status kn_sgd_create(kn_optim **out, kn_params *params, double lr,
                                             const kn_sgd_options *options);
/* Momentum: v = momentum·v - lr·g; w += v   (Knet's form) */
KN_API KN_MUST_CHECK kn_status kn_momentum_create(kn_optim **out, kn_params *params, double lr,
                                                  double momentum, const kn_sgd_options *options);

/* Options of kn_adam_create. */
typedef struct kn_adam_options {
    double beta1, beta2, eps;       /* 0: 0.9, 0.999, 1e-8; eps is added outside the root */
    double weight_decay, clip_norm; /* decay is decoupled (AdamW); 0: off */
    uint64_t reserved[4];           /* zero */
} kn_adam_options;
/* Adam: Kingma and Ba 2015, bias-corrected. */
KN_API KN_MUST_CHECK kn_status kn_adam_create(kn_optim **out, kn_params *params, double lr,
                                              const kn_adam_options *options);

/* Updates all parameters by their gradients. */
KN_API KN_MUST_CHECK kn_status kn_optim_step(kn_optim *optim);
/* Sets the learning rate. */
KN_API KN_MUST_CHECK kn_status kn_optim_lr(kn_optim *optim, double lr);
/* Destroys the optimiser. No-op on NULL. */
KN_API void kn_optim_destroy(kn_optim *optim);

#ifdef __cplusplus
}
#endif
#endif
