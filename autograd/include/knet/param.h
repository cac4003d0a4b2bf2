/* Parameters: named tensors that training changes, with one flat arena of gradients per set.
 *
 *     kn_params *params = NULL;
 *     KN_TRY(kn_params_create(&params, &(kn_params_options){.seed = 1}));
 *     kn_tensor *w = kn_param(params, KN_SHAPE(64, 784), kn_init_xavier(), "fc%d.w", 1);
 *     kn_tensor *b = kn_param(params, KN_SHAPE(64), (kn_init){0}, "fc%d.b", 1);
 *     KN_TRY(kn_check());
 *
 * A parameter belongs to its set and is borrowed until the set is destroyed. An optimiser shares
 * the set, so the two may be destroyed in any order. Backward adds to gradients; the first backward
 * after kn_optim_step starts from zero; until then the last gradients can be read. Values,
 * gradients and optimiser state come from the pool of the frame in which the set was created.
 * Create all parameters before the first backward, step or kn_grad. Threads: any number may read;
 * backward, step and load need exclusive access.
 */
#ifndef KNET_PARAM_H
#define KNET_PARAM_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of parameters. */
typedef struct kn_params kn_params;
/* Options of kn_params_create. */
typedef struct kn_params_options {
    kn_device *device;    /* NULL: the frame's */
    kn_dtype dtype;       /* KN_F32 (default) or KN_F64 */
    uint64_t seed;        /* of the initial values */
    uint64_t reserved[4]; /* zero */
} kn_params_options;

/* Kinds of initial values. */
typedef enum kn_init_kind {
    KN_INIT_ZEROS = 0,
    KN_INIT_CONSTANT,
    KN_INIT_UNIFORM,
    KN_INIT_NORMAL,
    KN_INIT_XAVIER
} kn_init_kind;
/* Initial values. constant: a; uniform: [a, b); normal: mean a, stddev b; xavier: gain a. */
typedef struct kn_init {
    int kind;    /* a kn_init_kind */
    double a, b; /* as above */
} kn_init;
/* Uniform in ±sqrt(6/(fan_in + fan_out)); w [O,I,window…] has fan_in I·window, fan_out O·window
 * (Glorot 2010). */
KN_API kn_init kn_init_xavier(void);
/* Random values: uniform in [lo, hi), or normal. */
KN_API kn_init kn_init_uniform(double lo, double hi);
KN_API kn_init kn_init_normal(double mean, double stddev);

/* Creates an empty set; options may be NULL. */
KN_API KN_MUST_CHECK kn_status kn_params_create(kn_params **out, const kn_params_options *options);
/* Destroys the set and its parameters. No-op on NULL. */
KN_API void kn_params_destroy(kn_params *params);
/* Adds a parameter. Returns NULL with the error pending: INVALID if the set has the name already.
 */
KN_API kn_tensor *kn_param(kn_params *params, kn_shape shape, kn_init init, const char *name_fmt,
                           ...) KN_PRINTF(4, 5);
/* The number of parameters, and of all their elements. */
KN_API int kn_params_count(const kn_params *params);
KN_API int64_t kn_params_numel(const kn_params *params);
/* The i-th parameter, and its name unless `name` is NULL. */
KN_API kn_tensor *kn_params_at(kn_params *params, int i, const char **name);
/* The parameter of that name; NULL without an error if there is no such name. */
KN_API kn_tensor *kn_params_find(kn_params *params, const char *name);

KN_API kn_tensor *kn_grad(kn_tensor *w);             /* borrowed; zeros before the first backward */
KN_API kn_tensor *kn_params_grad(kn_params *params); /* all gradients, one flat view; borrowed */

#ifdef __cplusplus
}
#endif
#endif
