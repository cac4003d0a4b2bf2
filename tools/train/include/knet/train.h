/* The training loop: a classifier, an optimiser and two loaders.
 *
 *     kn_train_result result;
 *     KN_TRY(kn_train(&result, sizeof result, model, adam, train, test,
 *                     &(kn_train_options){.epochs = 3}));
 *
 * Under the timer a step is load, forward (with a scope per layer), backward and update; testing is
 * evaluate. The loss stays on the device: it is summed there and read once an epoch, and whenever a
 * callback asks for it. Threads: one at a time for model, optimiser and loaders together.
 */
#ifndef KNET_TRAIN_H
#define KNET_TRAIN_H

#include <knet/data.h>
#include <knet/models.h>
#include <knet/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of an epoch. */
typedef struct kn_epoch {
    int64_t index;                      /* from 1 */
    int64_t n_steps;                    /* fewer than the loader's batches when stopped */
    double loss;                        /* mean of its steps' losses */
    double accuracy;                    /* on the test images, 0 … 1; NaN when not tested */
    double train_seconds, test_seconds; /* wall time; test_seconds isn't in train_seconds */
} kn_epoch;

/* A step, for on_step_fn. */
typedef struct kn_train_step {
    int64_t epoch;          /* from 1 */
    int64_t index, n_steps; /* from 1; of the epoch */
    kn_tensor *loss;        /* borrowed until the callback returns; kn_item waits for the device */
} kn_train_step;

/* Options of kn_train; may be NULL. */
typedef struct kn_train_options {
    int64_t epochs; /* 0: 1 */
    /* Callbacks; each may be NULL. on_step_fn is called after every step; false stops the training.
     * on_test_fn is called after every batch of the test; false stops it, without the epoch's
     * accuracy. on_epoch_fn is called after every finished epoch. */
    bool (*on_step_fn)(void *ctx, const kn_train_step *step);
    bool (*on_test_fn)(void *ctx);
    void (*on_epoch_fn)(void *ctx, const kn_epoch *epoch);
    void *ctx;            /* passed to the callbacks */
    uint64_t reserved[4]; /* zero */
} kn_train_options;

/* The result of kn_train. */
typedef struct kn_train_result {
    kn_epoch last;   /* the last epoch, finished or not */
    int64_t n_steps; /* of all epochs */
    double seconds;  /* of all, testing included */
    bool stopped;    /* by on_step_fn or on_test_fn */
} kn_train_result;

/* Trains on the batches of `train` by the cross-entropy of the model's logits, and tests on `test`
 * after every epoch (NULL: no test). Fills `out` (of out_bytes = sizeof *out), also on failure,
 * with the results so far. Errors: those of the ops; INVALID if a label exceeds the model's
 * classes. */
KN_API KN_MUST_CHECK kn_status kn_train(kn_train_result *out, size_t out_bytes,
                                        const kn_model *model, kn_optim *optim, kn_loader *train,
                                        kn_loader *test, const kn_train_options *options);

/* Computes the share of images of one epoch that the model classifies correctly. */
KN_API KN_MUST_CHECK kn_status kn_evaluate(double *accuracy, const kn_model *model,
                                           kn_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
