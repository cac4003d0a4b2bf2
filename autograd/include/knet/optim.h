/* Optimisers: one fused kernel over all parameters of a set. Step count and learning rate live in
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

typedef struct kn_optim kn_optim;

typedef struct kn_sgd_options {
    double weight_decay, clip_norm; /* clip_norm: of all gradients together; 0: none */
    uint64_t reserved[4];
} kn_sgd_options;
/* w -= lr·g */
KN_API KN_MUST_CHECK kn_status kn_sgd_create(kn_optim **out, kn_params *params, double lr,
                                             const kn_sgd_options *options);
/* v = momentum·v - lr·g; w += v   (Knet's form) */
KN_API KN_MUST_CHECK kn_status kn_momentum_create(kn_optim **out, kn_params *params, double lr,
                                                  double momentum, const kn_sgd_options *options);

typedef struct kn_adam_options {
    double beta1, beta2, eps;       /* 0: 0.9, 0.999, 1e-8; eps stands outside the root */
    double weight_decay, clip_norm; /* decay is decoupled (AdamW); 0: none */
    uint64_t reserved[4];
} kn_adam_options;
/* Kingma and Ba 2015, bias-corrected. */
KN_API KN_MUST_CHECK kn_status kn_adam_create(kn_optim **out, kn_params *params, double lr,
                                              const kn_adam_options *options);

KN_API KN_MUST_CHECK kn_status kn_optim_step(kn_optim *optim);
KN_API KN_MUST_CHECK kn_status kn_optim_lr(kn_optim *optim, double lr);
KN_API void kn_optim_destroy(kn_optim *optim);

#ifdef __cplusplus
}
#endif
#endif
