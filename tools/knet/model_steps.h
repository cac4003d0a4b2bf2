/* Steps of a model on one made-up batch, for measurements. */
#ifndef KN_MODEL_STEPS_H
#define KN_MODEL_STEPS_H

#include <knet/capture.h>
#include <knet/models.h>

typedef struct kn__model_steps {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;        /* the record's */
    kn_tensor *x, *y;       /* slots: the batch */
    int64_t n;              /* its samples */
    kn_capture *capture[2]; /* of training and of inference; NULL: plain steps */
} kn__model_steps;

/* The samples of a step that benchmarks time: the record's, or fewer where these take much memory.
 */
int64_t kn__bench_batch(const kn_model_kind *kind);
/* In the frame's device and threads; batch 0: kn__bench_batch. Zeroed steps may be closed. */
kn_status kn__model_steps_open(kn__model_steps *steps, const char *model, int64_t batch,
                               kn_dtype dtype);
void kn__model_steps_close(kn__model_steps *steps);
/* From here on steps are captured. */
kn_status kn__model_steps_capture(kn__model_steps *steps);
/* Forward, backward, update; forward alone, as in evaluation. They wait for the device. */
kn_status kn__model_steps_train(kn__model_steps *steps);
kn_status kn__model_steps_infer(kn__model_steps *steps);

/* Times of single steps, ns; the list is the caller's to free. */
typedef struct kn__step_times {
    double *ns; /* ascending */
    int64_t n;  /* how many */
    /* Bytes of the pool, at most, with all that it holds: parameters, batch, and after a training
     * step the gradients and the optimiser's state. */
    uint64_t live_max, reserved_max;
} kn__step_times;
enum { KN__STEPS_TRAIN, KN__STEPS_INFER };
/* Two steps. */
kn_status kn__model_steps_warm_up(kn__model_steps *steps, int what);
/* After the warm-up: n steps, or, with n 0, five or more for about a second. */
kn_status kn__model_steps_time(kn__step_times *out, kn__model_steps *steps, int what, int64_t n);

#endif
