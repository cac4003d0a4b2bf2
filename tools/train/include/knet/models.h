/* Models: small networks by name, for the `knet` command, tests and benchmarks.
 *
 *     kn_model *lenet = NULL;
 *     KN_TRY(kn_model_create(&lenet, "lenet", params));        // its parameters belong to params
 *     kn_tensor *loss = kn_cross_entropy(kn_model_logits(lenet, b.x), b.y);
 *
 * lenet  x [B,1,28,28] → conv 5x5 20, relu, max-pool 2 → conv 5x5 50, relu, max-pool 2
 *        → fc 500, relu → fc 10; 431,080 parameters (LeCun et al. 1998, as in Knet.jl's examples)
 * mlp    x [B,…] of 784 elements → fc 64, relu → fc 10; 50,890 parameters
 *
 * Weights start as Xavier's, biases as zeros. Each layer is a scope of the timer and a frame, whose
 * end frees the tensors that no gradient needs. Threads: any number may read, as for parameters.
 */
#ifndef KNET_MODELS_H
#define KNET_MODELS_H

#include <knet/param.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A network. */
typedef struct kn_model kn_model;

/* Adds the model's parameters to `params`, which must live as long as the model. Errors: INVALID
 * for an unknown name; the message lists the known ones. */
KN_API KN_MUST_CHECK kn_status kn_model_create(kn_model **out, const char *name, kn_params *params);
/* Destroys the model, but not its parameters. No-op on NULL. */
KN_API void kn_model_destroy(kn_model *model);
/* The name it was created with. */
KN_API const char *kn_model_name(const kn_model *model);
/* The i-th model's name; NULL beyond the last. */
KN_API const char *kn_model_name_at(int i);

/* The scores before softmax, [B,10]. */
KN_API kn_tensor *kn_model_logits(const kn_model *model, kn_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
