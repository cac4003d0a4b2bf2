/* Models: a root of layers with a loss and a prediction; some by name, for the `knet` command,
 * tests and benchmarks.
 *
 *     kn_model *lenet = NULL;
 *     KN_TRY(kn_model_create(&lenet, "lenet", params));        // its parameters belong to params
 *     kn_tensor *loss = kn_model_loss(lenet, &batch);
 *
 * `knet models` and kn_model_kind_at list them, with their parameters, data and published results.
 * Each is a file in tools/train/models.
 *
 * Weights start as Xavier's unless the model states others, biases as zeros. Each layer is a scope
 * of the timer and a frame, whose end frees the tensors that no gradient needs. Threads: any number
 * may read, as for parameters.
 */
#ifndef KNET_MODELS_H
#define KNET_MODELS_H

#include <knet/data.h>
#include <knet/layer.h>
#include <knet/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A network. */
typedef struct kn_model kn_model;

/* Facts about a model beside its layers, for lists, training and benchmarks. Numbers are
 * those of the record, the benchmark in which it appeared. */
typedef struct kn_model_facts {
    int64_t n_params;      /* of the model */
    const char *data;      /* the data: a line */
    const char *published; /* results of others, on their machines; NULL: none */
    kn_shape x;            /* of a sample's x */
    int64_t words;         /* x has numbers of words, 0 … words - 1; 0: f32 */
    int64_t n_classes;     /* of y; 0: y is no class */
    int64_t batch;         /* samples of a step */
    int64_t n_made;        /* samples of a made-up training set; 0: 12,800 */
    const char *optimizer; /* its name */
    double lr;             /* its rate */
    /* Makes it. */
    kn_status (*optim)(kn_optim **out, kn_params *params, double lr);
    /* Makes up n samples. NULL: of separable classes, by kn_dataset_create_synthetic. */
    kn_status (*made)(kn_dataset **out, const struct kn_model_facts *facts, int64_t n,
                      kn_split split);
    /* Reads a split. NULL: images, or where `made` is set no files. */
    kn_status (*read)(kn_dataset **out, const struct kn_model_facts *facts, const char *path,
                      kn_split split);
    const char *path;    /* its default data; NULL: Fashion-MNIST; "": none */
    const char *source;  /* where to get its files: errors of kn_model_data_read end with it */
    int64_t batch_bench; /* samples of a step that benchmarks time; 0: batch */
    /* after epoch lr_from and each later one the rate is multiplied by lr_gamma; 0: it is constant
     */
    double lr_gamma;
    int64_t lr_from;
    uint64_t reserved[4]; /* zero */
} kn_model_facts;

/* A model that trains in turns, such as a generator and its critic: a step of training computes the
 * loss of each turn, its gradients, and moves the parameters whose names begin with its prefix. */
typedef struct kn_model_turns {
    int n;                     /* how many */
    const char *const *prefix; /* [n]: each parameter's name begins with one */
    /* A number that the turn minimises. */
    kn_tensor *(*loss)(void *model, kn_layer *net, const kn_batch *batch, int turn);
} kn_model_turns;

/* What a model is: a file of your own fills one, and kn_model_create_kind makes models of it. The
 * model's struct, of size_bytes, is zeroed and holds what init finds worth keeping, such as layers
 * that predict calls one by one. */
typedef struct kn_model_kind {
    const char *name;    /* for kn_model_create and lists */
    const char *summary; /* a line for lists */
    size_t size_bytes;   /* of the model's struct; 0: none */
    /* Creates the layers in net. */
    kn_status (*init)(void *model, kn_layer *net);
    /* The result for batch->x, such as scores [B,classes]. NULL: the layers of net in turn. */
    kn_tensor *(*predict)(void *model, kn_layer *net, const kn_batch *batch);
    /* A number to minimise. NULL: the cross-entropy of predict's scores and batch->y. */
    kn_tensor *(*loss)(void *model, kn_layer *net, const kn_batch *batch);
    const void *sizes;           /* what the struct begins as, size_bytes; NULL: zeros */
    const kn_model_facts *facts; /* NULL: none */
    const kn_model_turns *turns; /* NULL: all parameters move by `loss`; else that is for tests */
    /* predict, or the layers in turn, depend on the batch's x, y and n, the layers, the parameters
     * and the model's struct alone: kn_freeze may replay predictions. kn_model_predict gives them
     * index 0, frozen or not. */
    bool is_pure;
    bool recomputes;    /* what kn_model_recompute_set begins as */
    bool reads_on_host; /* a step reads data on the host: no capture (capture.h) records it */
    /* The shape of what a training batch of n samples leaves to the next one, such as an LSTM's
     * state; see kn_model_carry. NULL: nothing. */
    kn_shape (*carry)(const void *model, int64_t n);
} kn_model_kind;

/* Adds the model's parameters to `params`, which must live as long as the model; on failure none.
 * Errors: INVALID for an unknown name; the message lists the known ones. */
KN_API KN_MUST_CHECK kn_status kn_model_create(kn_model **out, const char *name, kn_params *params);
/* The same for a kind of your own, which must live as long as the model. */
KN_API KN_MUST_CHECK kn_status kn_model_create_kind(kn_model **out, const kn_model_kind *kind,
                                                    kn_params *params);
/* Destroys the model, but not its parameters. No-op on NULL. */
KN_API void kn_model_destroy(kn_model *model);
/* The name it was created with. */
KN_API const char *kn_model_name(const kn_model *model);
/* The i-th model's name and kind; NULL beyond the last. */
KN_API const char *kn_model_name_at(int i);
KN_API const kn_model_kind *kn_model_kind_at(int i);
/* The kind of that name; NULL without an error if there is no such kind. INVALID if name is NULL.
 */
KN_API const kn_model_kind *kn_model_kind_find(const char *name);
/* The kind it was created with. */
KN_API const kn_model_kind *kn_model_kind_of(const kn_model *model);
/* Its layers, parameters and struct; borrowed. */
KN_API kn_layer *kn_model_net(const kn_model *model);
KN_API kn_params *kn_model_params(const kn_model *model);
KN_API void *kn_model_self(const kn_model *model);

/* Whether the losses below have .recompute of frames: backward computes cheap values again instead
 * of keeping them, which takes less memory and a little more time. It begins as the kind says;
 * frames around may have .recompute too. */
KN_API void kn_model_recompute_set(kn_model *model, bool on);
KN_API bool kn_model_recompute(const kn_model *model);

/* The kind's loss and prediction, in a frame of the parameters' dtype. */
KN_API kn_tensor *kn_model_loss(const kn_model *model, const kn_batch *batch);
KN_API kn_tensor *kn_model_predict(const kn_model *model, const kn_batch *batch);
/* The loss of a turn, under the tape; INVALID for a model without. */
KN_API kn_tensor *kn_model_turn_loss(const kn_model *model, const kn_batch *batch, int turn);
/* One step of training for the batch: forward, backward and update, of each turn if it has turns,
 * with tapes of its own. Sets *loss, in the caller's frame, to the (sum of the) loss. A step that
 * fails leaves no gradients. */
KN_API KN_MUST_CHECK kn_status kn_model_step(kn_tensor **loss, const kn_model *model,
                                             kn_optim *optim, const kn_batch *batch);
/* For the loss of a kind with .carry: a copy of what the last batch's loss left, a constant; zeros
 * in the first batch of an epoch. NULL without an error where nothing is carried: outside of
 * kn_train, in tests, and unless it has one rank, one device and a loader with .ordered 2. */
KN_API kn_tensor *kn_model_carry(kn_layer *net);
/* Leaves the value, of the shape of .carry and the parameters' dtype, to the next batch. No-op
 * where nothing is carried. Errors: pending. */
KN_API void kn_model_carry_set(kn_layer *net, kn_tensor *value);
/* Whether the loss is the cross-entropy of predict's scores: labels are classes then. */
KN_API bool kn_model_is_classifier(const kn_model *model);
/* The prediction for x alone: of a classifier the scores before softmax, [B,classes]. */
KN_API kn_tensor *kn_model_logits(const kn_model *model, kn_tensor *x);

/* The frozen form of the model, for inference: kn_layer_freeze of its layers, which says what it
 * folds. To call again after its weights changed, to fold the new ones. kn_model_predict then
 * captures small predictions (capture.h): the second one of a shape is recorded, later ones are
 * replays with the same bits. It keeps four shapes, each with at most 32 KiB of memory; 1 MiB on a
 * GPU, where a result is a copy. A prediction runs as it is if the kind is not .is_pure, or if it
 * takes more memory, keeps layouts of convolutions (.layout of frames), reads data on the host or
 * trains a layer; in a frame with a pool of its own or inside another capture; while another thread
 * predicts, and while the last result of the shape is held. Batch 1 of mlp on one thread takes 0.91
 * of the time (EPYC, gcc 12, 2026-11-27, other work on the machine). Larger predictions gain by
 * kn_capture_run only where ops are small: batch 1 takes 0.97 of the time for lenet, 1.00 for
 * char_lstm, 1.8 for resnet18 (2026-11-24). Memory: the folded weights, and the layouts that
 * convolutions keep of them from the first prediction on, take more than the weights: of resnet50
 * 98 MiB become 323, of resnet18 45 become 160, of densenet121 27 become 86, and more where another
 * batch takes other kernels. kn_layer_thaw of the net ends the frozen form. */
KN_API KN_MUST_CHECK kn_status kn_freeze(kn_model *model);

/* --- of the record --- */
/* Makes up data for the kind. n 0: as many samples as its facts state. */
KN_API KN_MUST_CHECK kn_status kn_model_data_make(kn_dataset **out, const kn_model_kind *kind,
                                                  int64_t n, kn_split split);
/* Reads a split of the kind's data: images, a text, reviews; of linear a table, whose rows are in
 * both splits, normalized. path NULL: as its facts state. Errors: UNSUPPORTED for a model that
 * reads no files; INVALID for a NULL path where its facts state none; IO and FORMAT for a missing
 * or wrong file, with the place where to get one. */
KN_API KN_MUST_CHECK kn_status kn_model_data_read(kn_dataset **out, const kn_model_kind *kind,
                                                  const char *path, kn_split split);
/* The same of a model of texts, by the vocabulary of another text, such as the one that it was
 * trained on; words that it lacks are unknown ones. NULL: the text's own. Errors: INVALID for a
 * model that reads no text. */
KN_API KN_MUST_CHECK kn_status kn_model_data_read_text(kn_dataset **out, const kn_model_kind *kind,
                                                       const char *path, kn_split split,
                                                       kn_vocab *vocab);
/* Creates the model's optimiser. lr 0: at its rate. */
KN_API KN_MUST_CHECK kn_status kn_model_optim_create(kn_optim **out, const kn_model *model,
                                                     double lr);

#include <knet/sites/models.h>

#ifdef __cplusplus
}
#endif
#endif
