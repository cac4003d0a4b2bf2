/* The training loop: a classifier, an optimiser and two loaders.
 *
 *     kn_train_result result;
 *     KN_TRY(kn_train(&result, sizeof result, model, adam, train, test,
 *                     &(kn_train_options){.epochs = 3}));
 *
 * Under the timer a step is load, forward (with a scope per layer), backward and update; testing is
 * evaluate; it notes the loader's batch (kn_prof_note), so that knet report --memory --fits tells
 * about what batch would fit. The loss stays on the device: it is summed there and read once an
 * epoch, and whenever a callback asks for it. Threads: one at a time for model, optimiser and
 * loaders together.
 */
#ifndef KNET_TRAIN_H
#define KNET_TRAIN_H

#include <knet/capture.h>
#include <knet/data.h>
#include <knet/models.h>
#include <knet/optim.h>
#include <knet/parallel.h>
#include <knet/scale.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of an epoch. */
typedef struct kn_epoch {
    int64_t index;   /* from 1 */
    int64_t n_steps; /* fewer than the loader has when stopped */
    double loss;     /* mean of its steps' losses */
    /* on the test images, 0 … 1; NaN when not tested, and of models that are no classifiers */
    double accuracy;
    double test_loss;     /* mean over the test images; NaN when not tested */
    double train_seconds; /* wall time without tests; a resumed epoch's from its start */
    double test_seconds;  /* wall time of the tests */
} kn_epoch;

/* A step, for on_step_fn. */
typedef struct kn_train_step {
    int64_t epoch;          /* from 1 */
    int64_t index, n_steps; /* from 1; of the epoch */
    kn_tensor *loss;        /* borrowed until the callback returns; kn_item waits for the device */
} kn_train_step;

/* Where kn_train saves itself (checkpoint.h). */
typedef struct kn_train_checkpoint {
    const char *path; /* of the file; tried before the first step; may be NULL besides best */
    /* steps from one save to the next; it also saves after each epoch's training and when a
     * callback stops it. 0: then alone */
    int64_t every;
    int keep; /* older files that stay */
    /* 1: start from the file, if there is one; else from the beginning. A run that patience ended
     * makes no step; one with another number of accumulated batches takes the rest of its epoch in
     * steps of these */
    int resume;
    double lr; /* of a resumed run: its learning rate from there on; 0: the file's */
    /* NULL, or the file that gets the weights, layers' state and averages of the best epoch so far:
     * the one with the least test loss, without a test with the least training loss, as patience
     * goes by. A resumed run replaces it when an epoch is better than those of the checkpoint, and
     * logs a warning if the file lacks the best of them. It has no optimiser's state */
    const char *best;
    uint64_t reserved[2]; /* zero */
} kn_train_checkpoint;

/* What training may have besides; each may be NULL. Borrowed; checkpoints save it. */
typedef struct kn_train_more {
    kn_ema *ema;          /* averages, updated after each step; tests use them */
    kn_loss_scale *scale; /* of the loss in backward; steps without finite gradients are left out */
    /* Data parallel: every rank calls kn_train with its part of the data. Losses and accuracies are
     * those of all ranks, rank 0 alone writes checkpoints, and a stop of one rank stops all after
     * the same step. As many ranks resume a run bit for bit. Another number may resume it too, from
     * means of losses and running statistics; a rank that had begun a batch then repeats or leaves
     * out less than a batch a rank. */
    kn_parallel *parallel;
    /* Records the first steps of each shape of a batch and replays them (capture.h): the same bits.
     * With accumulated batches, a loss scale or ranks a replay is forward and backward of a batch,
     * else the whole step. Errors of kn_train: INVALID, with the call, for a model whose step reads
     * data on the host (reads_on_host of its kind); UNSUPPORTED for batch norms that join the
     * ranks' batches. */
    kn_capture *capture;
    /* The learning rate of each step, instead of the optimiser's: step 0 is the run's first one,
     * and a resumed run continues at its step; the checkpoint's lr is not used then. steps 0: those
     * of all epochs */
    const kn_schedule *schedule;
    uint64_t reserved[3]; /* zero */
} kn_train_more;

/* Options of kn_train; may be NULL. */
typedef struct kn_train_options {
    int64_t epochs; /* 0: 1 */
    /* Callbacks; each may be NULL. on_step_fn is called after every step; false stops the training.
     * on_test_fn is called after every batch of the test; false stops it, without the epoch's
     * accuracy. on_epoch_fn is called after every finished epoch. */
    bool (*on_step_fn)(void *ctx, const kn_train_step *step);
    bool (*on_test_fn)(void *ctx);
    void (*on_epoch_fn)(void *ctx, const kn_epoch *epoch);
    void *ctx;                             /* passed to the callbacks */
    const kn_train_checkpoint *checkpoint; /* NULL: none */
    int64_t accumulate; /* batches of one step, of whose losses the step's is the mean; 0: 1 */
    /* stop after this many epochs without a better loss, tested where there is a test; 0: never.
     * The weights are then those of the last epoch; best of the checkpoint has the best ones */
    int64_t patience;
    const kn_train_more *more; /* NULL: none */
} kn_train_options;

/* The result of kn_train. */
typedef struct kn_train_result {
    kn_epoch last;   /* the last epoch, finished or not; of an earlier run without its times */
    int64_t n_steps; /* of all epochs */
    double seconds;  /* of all, testing included; a resumed run counts from where it resumed */
    bool stopped;    /* by on_step_fn or on_test_fn */
    bool converged;  /* ended by patience */
    int64_t resumed; /* steps that the checkpoint had; 0: started from the beginning */
    bool diverged;   /* failed by a loss that is NaN or infinite */
} kn_train_result;

/* Trains on the batches of `train` by the model's loss, and tests on `test` after every epoch
 * (NULL: no test). Fills `out` (of out_bytes = sizeof *out), also on failure, with the results so
 * far. A resumed run continues bit for bit, whatever the number of threads. Errors: those of the
 * ops; SHAPE before the first step if the test's samples have another shape, which the model
 * doesn't take; INVALID if a label exceeds the model's classes, if optim is of another parameter
 * set, and for a loss that is NaN or infinite: on the host at its step, elsewhere at the end of its
 * epoch. The error names the op and the layer that made it, or a weight that was NaN or infinite
 * before. */
KN_API KN_MUST_CHECK kn_status kn_train(kn_train_result *out, size_t out_bytes,
                                        const kn_model *model, kn_optim *optim, kn_loader *train,
                                        kn_loader *test, const kn_train_options *options);

/* The result of kn_test. */
typedef struct kn_test_result {
    double loss;     /* mean over the images */
    double accuracy; /* the share that is classified correctly; NaN of models that don't classify */
    int64_t n_images; /* tested */
} kn_test_result;
/* Tests the model on one epoch of the loader. Errors: INVALID if a label exceeds the model's
 * classes; those of the ops. */
KN_API KN_MUST_CHECK kn_status kn_test(kn_test_result *out, const kn_model *model,
                                       kn_loader *loader);
/* The accuracy alone: the share of images of one epoch that the model classifies correctly. */
KN_API KN_MUST_CHECK kn_status kn_evaluate(double *accuracy, const kn_model *model,
                                           kn_loader *loader);

/* --- a loop of your own: when to end it --- */
/* Whether losses still fall, as Knet's converge. Begins as zeros, with an alpha. */
typedef struct kn_converge {
    double alpha;         /* what a loss counts for in the means, above 0 and at most 1; 0: 0.1 */
    double mean;          /* of the losses so far, exponential */
    double trend;         /* the same of how far each loss was above the mean of those before it */
    int64_t n;            /* finite losses so far */
    uint64_t reserved[2]; /* zero */
} kn_converge;
/* Takes the loss of the next step, or epoch: true once the trend is above 0. Of one loss there is
 * no trend. True also for a loss that is not finite, which means and trend leave out. An alpha out
 * of range leaves an INVALID error pending; the result is true, so that the loop ends.
 *
 *     kn_converge c = {.alpha = 0.05};
 *     do KN_TRY(train_step(&loss)); while (!kn_converged(&c, loss));
 */
KN_API bool kn_converged(kn_converge *c, double loss);

#include <knet/sites/train.h>

#ifdef __cplusplus
}
#endif
#endif
