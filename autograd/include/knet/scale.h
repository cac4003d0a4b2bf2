/* Loss scaling, for gradients in formats of a small range: Micikevicius et al. 2018.
 *
 *     kn_loss_scale *scale = NULL;
 *     KN_TRY(kn_loss_scale_create(&scale, params, NULL));
 *     …
 *     KN_TRY(kn_backward(kn_loss_scale_apply(scale, loss)));
 *     KN_TRY(kn_loss_scale_step(scale, adam, NULL));     // in place of kn_optim_step
 *
 * Backward computes gradients of scale·loss, so that small ones don't become zero. The step divides
 * them by the scale again. If one of them is NaN or infinite the step is left out and the scale
 * shrinks; after a number of steps in a row without that it grows. One number is read from the
 * device at each step. Captured steps (capture.h): kn_loss_scale_apply may be recorded, and replays
 * use the scale of their time; kn_loss_scale_step comes after the replay. Threads: one at a time.
 */
#ifndef KNET_SCALE_H
#define KNET_SCALE_H

#include <knet/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The scale of a set's gradients. */
typedef struct kn_loss_scale kn_loss_scale;
/* Options of kn_loss_scale_create; may be NULL. */
typedef struct kn_loss_scale_options {
    double initial;       /* 0: 65536 */
    double growth;        /* factor, 1 or more; 1: the scale only shrinks; 0: 2 */
    double backoff;       /* factor, below 1; 0: 0.5 */
    int64_t every;        /* good steps until it grows; 0: 2000 */
    uint64_t reserved[4]; /* zero */
} kn_loss_scale_options;

/* Shares params. Errors: INVALID for options out of range. */
KN_API KN_MUST_CHECK kn_status kn_loss_scale_create(kn_loss_scale **out, kn_params *params,
                                                    const kn_loss_scale_options *options);
/* Destroys it. No-op on NULL. */
KN_API void kn_loss_scale_destroy(kn_loss_scale *scale);
/* loss times the scale. */
KN_API kn_tensor *kn_loss_scale_apply(kn_loss_scale *scale, kn_tensor *loss);
/* Divides the gradients, and steps if all are finite; *stepped, unless NULL: whether they were. The
 * next backward starts from zero gradients in both cases; a second step without one takes the same
 * gradients, as kn_optim_step does, and divides them no more. Errors: INVALID if the scale would
 * fall below 2^-24: the gradients are not finite for another reason; if optim is of another
 * parameter set; inside a captured step. */
KN_API KN_MUST_CHECK kn_status kn_loss_scale_step(kn_loss_scale *scale, kn_optim *optim,
                                                  bool *stepped);
/* The state of a scale. */
typedef struct kn_loss_scale_state {
    double factor;     /* of the next loss */
    int64_t n_good;    /* steps since the factor changed */
    int64_t n_skipped; /* steps left out in all */
} kn_loss_scale_state;
/* The state, for checkpoints. */
KN_API kn_loss_scale_state kn_loss_scale_state_get(const kn_loss_scale *scale);
/* Sets the state, as of a checkpoint. Errors: INVALID for numbers that no scale has. */
KN_API KN_MUST_CHECK kn_status kn_loss_scale_state_set(kn_loss_scale *scale,
                                                       const kn_loss_scale_state *state);

#include <knet/sites/scale.h>

#ifdef __cplusplus
}
#endif
#endif
