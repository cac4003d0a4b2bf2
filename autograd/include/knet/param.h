/* Parameters: named tensors that training changes, with one flat arena of gradients per set.
 *
 *     kn_params *params = NULL;
 *     KN_TRY(kn_params_create(&params, &(kn_params_options){.seed = 1}));
 *     kn_tensor *w = kn_param(params, KN_SHAPE(64, 784), kn_init_xavier(), "fc%d.w", 1);
 *     kn_tensor *b = kn_param(params, KN_SHAPE(64), (kn_init){0}, "fc%d.b", 1);
 *     KN_TRY(kn_check());
 *
 * A parameter belongs to its set and is borrowed until the set is destroyed; an optimiser shares
 * the set, so the order of destroys is free. Backward adds to gradients; the first backward after
 * kn_optim_step starts from zero; until then the last gradients can be looked at. Values, gradients
 * and optimiser state come from the pool of the frame in which the set was made. All parameters are
 * made before the first backward, step or kn_grad. Threads: read freely; one thread at a time runs
 * backward, step or load, and no reader then.
 */
#ifndef KNET_PARAM_H
#define KNET_PARAM_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_params kn_params;
typedef struct kn_params_options {
    kn_device *device; /* NULL: the frame's, the host without one */
    kn_dtype dtype;    /* KN_F32 (default) or KN_F64 */
    uint64_t seed;     /* of the initial values */
    uint64_t reserved[4];
} kn_params_options;

typedef enum kn_init_kind {
    KN_INIT_ZEROS = 0,
    KN_INIT_CONSTANT,
    KN_INIT_UNIFORM,
    KN_INIT_NORMAL,
    KN_INIT_XAVIER
} kn_init_kind;
typedef struct kn_init { /* constant: a; uniform: [a, b); normal: mean a, stddev b; xavier: gain a
                          */
    int kind;
    double a, b;
} kn_init;
/* Uniform in ±sqrt(6/(fan_in + fan_out)); w [O,I,window…] has fan_in I·window, fan_out O·window
 * (Glorot 2010). */
KN_API kn_init kn_init_xavier(void);
KN_API kn_init kn_init_uniform(double lo, double hi);
KN_API kn_init kn_init_normal(double mean, double stddev);

KN_API KN_MUST_CHECK kn_status kn_params_create(kn_params **out, const kn_params_options *options);
KN_API void kn_params_destroy(kn_params *params);
/* A name used twice is an INVALID error. NULL: pending error. */
KN_API kn_tensor *kn_param(kn_params *params, kn_shape shape, kn_init init, const char *name_fmt,
                           ...) KN_PRINTF(4, 5);
KN_API int kn_params_count(const kn_params *params);
KN_API int64_t kn_params_numel(const kn_params *params); /* elements of all */
KN_API kn_tensor *kn_params_at(kn_params *params, int i, const char **name);
KN_API kn_tensor *kn_params_find(kn_params *params,
                                 const char *name); /* NULL, nothing pending: no such name */

KN_API kn_tensor *kn_grad(kn_tensor *w);             /* borrowed; zeros before the first backward */
KN_API kn_tensor *kn_params_grad(kn_params *params); /* all gradients, one flat view; borrowed */

#ifdef __cplusplus
}
#endif
#endif
