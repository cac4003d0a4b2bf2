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

/* Options of kn_sgd_create, kn_momentum_create and kn_nesterov_create. Gradients whose norm is
 * above a limit are multiplied by limit/(norm + 1e-6), as PyTorch does. An f32 norm above 1.8e19
 * counts as infinite: gradients that it clips become 0. clip_norm sums in the order of
 * kn_params_order. With both limits clip_each is first, then clip_norm. */
typedef struct kn_sgd_options {
    double weight_decay, clip_norm; /* clip_norm: of all gradients together; 0: off */
    double clip_each;               /* the norm of each parameter's gradient at most; 0: off */
    double momentum;                /* kn_sgd_create: 0: none */
    uint64_t nesterov;              /* the same: 1: Nesterov's form of it */
    uint64_t reserved[1];           /* zero */
} kn_sgd_options;
/* Stochastic gradient descent: w -= lr·g. With momentum as PyTorch's SGD: v = momentum·v + g;
 * w -= lr·v, and with nesterov w -= lr·(g + momentum·v). With a rate of 0 only v moves. */
KN_API KN_MUST_CHECK kn_status kn_sgd_create(kn_optim **out, kn_params *params, double lr,
                                             const kn_sgd_options *options);
/* Momentum: v = momentum·v - lr·g; w += v   (Knet's form). With a rate of 0 neither moves. The
 * momentum of kn_sgd_create has the rate outside of v: the same as long as the rate is. */
KN_API KN_MUST_CHECK kn_status kn_momentum_create(kn_optim **out, kn_params *params, double lr,
                                                  double momentum, const kn_sgd_options *options);

/* Nesterov's accelerated gradient, as in Sutskever et al. 2013:
 * v = momentum·v - lr·g; w += momentum·v - lr·g. With a rate of 0 neither moves. */
KN_API KN_MUST_CHECK kn_status kn_nesterov_create(kn_optim **out, kn_params *params, double lr,
                                                  double momentum, const kn_sgd_options *options);

/* Options of kn_adagrad_create, kn_rmsprop_create and kn_adadelta_create. */
typedef struct kn_adaptive_options {
    double rho, eps;                /* 0: 0.9, 1e-6; eps is added inside the root */
    double weight_decay, clip_norm; /* added to the gradient; 0: off */
    double clip_each;               /* as above */
    uint64_t reserved[3];           /* zero */
} kn_adaptive_options;
/* Adagrad: Duchi et al. 2011. G += g²; w -= lr·g/√(G + eps). rho is not used. */
KN_API KN_MUST_CHECK kn_status kn_adagrad_create(kn_optim **out, kn_params *params, double lr,
                                                 const kn_adaptive_options *options);
/* RMSprop: Tieleman and Hinton 2012. G = rho·G + (1 - rho)·g²; w -= lr·g/√(G + eps) */
KN_API KN_MUST_CHECK kn_status kn_rmsprop_create(kn_optim **out, kn_params *params, double lr,
                                                 const kn_adaptive_options *options);
/* Adadelta: Zeiler 2012. G as in RMSprop; d = g·√(D + eps)/√(G + eps); w -= lr·d;
 * D = rho·D + (1 - rho)·d². The paper's lr is 1. */
KN_API KN_MUST_CHECK kn_status kn_adadelta_create(kn_optim **out, kn_params *params, double lr,
                                                  const kn_adaptive_options *options);

/* Options of kn_adam_create. */
typedef struct kn_adam_options {
    double beta1, beta2, eps;       /* 0: 0.9, 0.999, 1e-8; eps is added outside the root */
    double weight_decay, clip_norm; /* decay is decoupled (AdamW); 0: off */
    double clip_each;               /* as above */
    uint64_t reserved[3];           /* zero */
} kn_adam_options;
/* Adam: Kingma and Ba 2015, bias-corrected. */
KN_API KN_MUST_CHECK kn_status kn_adam_create(kn_optim **out, kn_params *params, double lr,
                                              const kn_adam_options *options);

/* LAMB: You et al. 2020. With Adam's r = m̂/(√v̂ + eps) + weight_decay·w of each parameter:
 * w -= lr·|w|/|r|·r, and w -= lr·r where one of the norms is zero. Two launches for all
 * parameters. Errors: UNSUPPORTED for a parameter with a row-sparse gradient; of one that becomes
 * so later the first step says it. */
KN_API KN_MUST_CHECK kn_status kn_lamb_create(kn_optim **out, kn_params *params, double lr,
                                              const kn_adam_options *options);

/* Updates all parameters by their gradients. Those that the loss doesn't depend on have gradients
 * of 0: weight decay and momentum still change them. A group of rate 0 is not changed, nor are
 * parameters that kn_params_freeze froze. A step that fails for lack of memory moves no parameter
 * of that device; repeated, it has the bits of one that didn't fail. */
KN_API KN_MUST_CHECK kn_status kn_optim_step(kn_optim *optim);
/* Moves the tensor w by its gradient g, of the same shape, as Knet's update!(w, g, optim): an
 * optimiser of a set without parameters belongs to the first tensor it moves, and keeps its state.
 *
 *     kn_params *none = NULL;
 *     KN_TRY(kn_params_create(&none, NULL));
 *     KN_TRY(kn_adam_create(&adam, none, 1e-3, NULL));
 *     KN_TRY(kn_optim_update(adam, w, g));
 *
 * Both norms of the options clip g, as in kn_optim_step; g stays as it is. Errors: INVALID for an
 * optimiser of parameters; SHAPE where w and g differ, or w has another number of elements than the
 * first; DTYPE unless both are f32 or both f64; DEVICE where one is not on the device of the set.
 */
KN_API KN_MUST_CHECK kn_status kn_optim_update(kn_optim *optim, kn_tensor *w, kn_tensor *g);
/* Sets the learning rate, which is finite and 0 or more; else INVALID. */
KN_API KN_MUST_CHECK kn_status kn_optim_lr(kn_optim *optim, double lr);
/* Parameters whose names begin with `prefix` learn at `lr_scale` times the learning rate and decay
 * by `decay_scale` times the weight decay, from the next step on. With an lr_scale of 0 they stand
 * still, and clip_norm doesn't count their gradients, which kn_params_freeze saves too; clip_each
 * clips them. Where prefixes overlap the last call holds. Replays of a step that was captured
 * before keep the factors that they were recorded with. Errors: INVALID when no parameter has such
 * a name, for a prefix that is not UTF-8, as one that ends inside a character, and for factors that
 * are negative or not finite. */
KN_API KN_MUST_CHECK kn_status kn_optim_group(kn_optim *optim, const char *prefix, double lr_scale,
                                              double decay_scale);
/* The i-th group in force, oldest first: its prefix, borrowed until the next kn_optim_group, and
 * its factors. A call of kn_optim_group ends the groups whose prefixes begin with its own. False
 * beyond the last. */
KN_API bool kn_optim_group_at(const kn_optim *optim, int i, const char **prefix, double *lr_scale,
                              double *decay_scale);
/* Destroys the optimiser. No-op on NULL. */
KN_API void kn_optim_destroy(kn_optim *optim);

/* --- parameters that move in turns, as of adversarial networks --- */
/* Splits the parameters: those of turn i have names that begin with prefix[i], the first that fits,
 * and steps of their own, with an own step count, as if each turn had an optimiser of this kind.
 * Before the first step. Errors: INVALID for a parameter that is in no turn; UNSUPPORTED for
 * clipped and row-sparse gradients. */
KN_API KN_MUST_CHECK kn_status kn_optim_turns(kn_optim *optim, const char *const prefix[], int n);
/* How many there are; 0: no turns, kn_optim_step updates all. */
KN_API int kn_optim_turn_count(const kn_optim *optim);
/* Updates the parameters of turn i by their gradients, instead of kn_optim_step. */
KN_API KN_MUST_CHECK kn_status kn_optim_turn_step(kn_optim *optim, int i);

/* --- a part of the state, as kn_parallel_shard of parallel.h uses it --- */
/* Elements [begin, end) of the arena of kn_params_grad: the zeros between gradients count too. */
typedef struct kn_optim_range {
    int64_t begin; /* the first element */
    int64_t end;   /* the one after the last */
} kn_optim_range;
/* From now on kn_optim_step updates the elements of n ranges alone, which don't overlap, and keeps
 * state for these alone, one range after the other; of earlier state the rest is freed. Makes the
 * order of the arena final. Each step ends with fn(ctx), which gets the other elements. The
 * elements get the bits of a whole step. Errors: INVALID for a second call, and a range outside of
 * the arena; UNSUPPORTED for LAMB, turns and row-sparse gradients. */
typedef kn_status (*kn_optim_stepped_fn)(void *ctx);
KN_API KN_MUST_CHECK kn_status kn_optim_shard(kn_optim *optim, const kn_optim_range range[], int n,
                                              kn_optim_stepped_fn fn, void *ctx);
/* The gradients of the ranges, one after the other: from now on the caller writes them before each
 * step, which reads nothing of the arena. NULL without an error where a step needs the whole
 * arena: with clip_norm, clip_each or a loss scale. */
KN_API kn_tensor *kn_optim_shard_grad(kn_optim *optim);
/* Array i of the state, 0 or 1, of the ranges; NULL beyond the last, and without ranges. */
KN_API kn_tensor *kn_optim_shard_state(kn_optim *optim, int i);
/* The same array for all elements: zeros that the caller fills, for kn_optim_state_at. Kept until
 * the next step. NULL without an error beyond the last. */
KN_API kn_tensor *kn_optim_shard_whole(kn_optim *optim, int i);

/* --- its state, for checkpoints --- */
/* The parameters that it updates; borrowed. */
KN_API kn_params *kn_optim_params(const kn_optim *optim);
/* Its method: "sgd", "sgd_momentum", "sgd_nesterov", "adam", … */
KN_API const char *kn_optim_name(const kn_optim *optim);
/* What an optimiser was created with; 0 where its method has no such number. */
typedef struct kn_optim_settings {
    double momentum;     /* as given to it */
    double beta1;        /* Adam's and LAMB's */
    double beta2;        /* the same; rho of the adaptive methods */
    double eps;          /* theirs all */
    double weight_decay; /* as in the options */
    double clip_norm;    /* the same */
    double clip_each;    /* the same */
} kn_optim_settings;
/* Its settings. */
KN_API kn_optim_settings kn_optim_settings_get(const kn_optim *optim);
/* Makes the state, as the first step would; no-op after it. */
KN_API KN_MUST_CHECK kn_status kn_optim_prepare(kn_optim *optim);
/* The i-th part of the state, a view of it in the frame, and its name in `name`: "hyper", f64 [4]
 * with learning rate and step count (of each turn), then, once there was a step, such as
 * "m/conv1.weight" of a parameter's shape; of kn_optim_update "m" and "v". NULL without an error
 * beyond the last. */
KN_API kn_tensor *kn_optim_state_at(kn_optim *optim, int i, char *name, size_t name_bytes);
/* The same names before there was a step, each with a tensor of that part's shape and dtype. */
KN_API kn_tensor *kn_optim_state_like(kn_optim *optim, int i, char *name, size_t name_bytes);
/* To call after values were written into all parts: the next backward begins from zero gradients,
 * as after a step. */
KN_API void kn_optim_state_written(kn_optim *optim);

/* --- schedules of the learning rate --- */
/* The rate of step t. */
typedef enum kn_schedule_kind {
    KN_SCHEDULE_CONSTANT, /* lr */
    KN_SCHEDULE_STEP,     /* lr·gamma^⌊t/every⌋; t counts from the end of warm-up and hold */
    KN_SCHEDULE_LINEAR,   /* from lr to lr_end, over `steps` */
    KN_SCHEDULE_COSINE,   /* the same along half a cosine: Loshchilov and Hutter 2017 */
    /* from lr_start up to lr in the first 30 % of `steps`, then down to lr_end, along cosines, as
     * PyTorch's OneCycleLR, but that 2 or 3 steps begin with lr: Smith and Topin 2018 */
    KN_SCHEDULE_ONE_CYCLE
} kn_schedule_kind;
/* A schedule: a pure function of the step. Fields that its kind doesn't use are ignored. */
typedef struct kn_schedule {
    kn_schedule_kind kind; /* its form */
    double lr;             /* the largest */
    double lr_start;       /* ONE_CYCLE: 0: lr/25 */
    /* LINEAR, COSINE, ONE_CYCLE: of the last step, but of one alone after the warm-up, which has
     * lr, and of all after it */
    double lr_end;
    double gamma;  /* STEP: 0: 0.1 */
    int64_t steps; /* LINEAR, COSINE, ONE_CYCLE: in all, warm-up included */
    int64_t every; /* STEP */
    /* first steps, during which the rate grows linearly from lr/warmup; not with ONE_CYCLE */
    int64_t warmup;
    int64_t hold;         /* STEP: steps with lr after the warm-up */
    uint64_t reserved[3]; /* zero */
} kn_schedule;
/* The rate of step 0, 1, …: *lr = …; for kn_optim_lr before each step. Errors: INVALID when a
 * number that the kind needs is missing, negative or not finite, or when the warm-up has all the
 * steps. */
KN_API KN_MUST_CHECK kn_status kn_schedule_lr(double *lr, const kn_schedule *schedule,
                                              int64_t step);

/* --- an exponential moving average of the weights: Polyak and Juditsky 1992 --- */
/* The averages of a set of parameters. */
typedef struct kn_ema kn_ema;
/* Starts from the weights as they are. decay in (0, 1), such as 0.999. Shares params. */
KN_API KN_MUST_CHECK kn_status kn_ema_create(kn_ema **out, kn_params *params, double decay);
/* average = decay·average + (1 - decay)·weight, for all weights in one launch; after each step.
 * Errors: INVALID while weights and averages are exchanged. */
KN_API KN_MUST_CHECK kn_status kn_ema_update(kn_ema *ema);
/* Exchanges weights and averages: once before an evaluation, once after it. In between a step of an
 * optimiser of the set is INVALID too (replays of a captured one don't notice), and a checkpoint
 * with the averages has each under its own name; one of the optimiser, or of other averages, is
 * INVALID.
 * Several averages of a set are exchanged again in reverse order: the last first. Errors: INVALID
 * where others were exchanged after these, and in a captured step. */
KN_API KN_MUST_CHECK kn_status kn_ema_swap(kn_ema *ema);
/* Whether they are exchanged. */
KN_API bool kn_ema_is_swapped(const kn_ema *ema);
/* How many averages are exchanged with the weights of a set; 0: these are its own. */
KN_API int kn_params_swapped(const kn_params *params);
/* The parameters that it averages; borrowed. */
KN_API kn_params *kn_ema_params(const kn_ema *ema);
/* The decay that it was created with. */
KN_API double kn_ema_decay(const kn_ema *ema);
/* The average of the set's i-th parameter, a view of it in the frame; NULL without an error beyond
 * the last; while they are exchanged, the weight. For checkpoints. */
KN_API kn_tensor *kn_ema_at(kn_ema *ema, int i);
/* Destroys the averages; where they are exchanged, they are the weights from now on, also those
 * that averages exchanged after them give back. No-op on NULL. */
KN_API void kn_ema_destroy(kn_ema *ema);

#include <knet/sites/optim.h>

#ifdef __cplusplus
}
#endif
#endif
