/* Checkpoints: safetensors files with weights, optimiser state, random numbers and the place in the
 * data, from which training continues bit for bit.
 *
 *     kn_checkpoint run = {.params = params, .optim = adam, .net = net, .train = loader};
 *     KN_TRY(kn_checkpoint_save("run.safetensors", &run, NULL));
 *     …
 *     KN_TRY(kn_checkpoint_load(&run, "run.safetensors"));  // in another process
 *
 * Weights have the names of their parameters, "conv1.weight", so any reader of safetensors finds
 * them; optimiser state is "optimizer/m/conv1.weight" and so on; all else is metadata, such as the
 * vocabulary of a text, which kn_vocab_parse reads from "knet.vocab", and the math mode of the
 * frame that saved, "knet.math", which loading ignores. With params alone a file holds weights
 * alone.
 * Weights load from any safetensors file that has them, whatever else it has. For a file of PyTorch
 * set params and state, and nothing else: without state the running means and variances of batch
 * norms stay as they are. Floats of another width, as the f16 or bf16 of many published files, are
 * cast, rounded once, unless the file has an optimiser's state (knet.optimizer in its metadata);
 * a number beyond the range of the program's dtype is an error.
 * A file is written beside the older one as PATH.new, synced to disk, then renamed: a process that
 * is killed while it saves leaves the older file whole; where PATH is a link, PATH is the file that
 * it leads to. One process at a time saves to a path.
 * Threads: as for the saved and loaded objects.
 */
#ifndef KNET_CHECKPOINT_H
#define KNET_CHECKPOINT_H

#include <knet/data.h>
#include <knet/file.h>
#include <knet/layer.h>
#include <knet/optim.h>
#include <knet/scale.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The objects to save or load; params is needed, the others may be NULL. All borrowed. */
typedef struct kn_checkpoint {
    kn_params *params;    /* the weights */
    kn_optim *optim;      /* its state */
    kn_layer *net;        /* its layers' state, and the random numbers that they draw */
    kn_layer *state;      /* instead of net: its layers' state alone, for weights to evaluate */
    kn_loader *train;     /* its place */
    kn_named *extra;      /* tensors of your own, which load writes into */
    int n_extra;          /* how many */
    uint64_t number[8];   /* of your own, such as the step; load fills them */
    kn_ema *ema;          /* averages of the weights, as "ema/conv1.weight", also while exchanged */
    kn_loss_scale *scale; /* the factor of mixed precision */
    uint64_t keep_settings; /* 1: load leaves settings and groups of optim, decay of ema */
    /* 1: load leaves tensors that the file lacks as they are, such as a new head's. Without optim
     * and ema */
    int partial;
    int n_lacking;        /* which load sets: how many these were */
    uint64_t reserved[1]; /* zero */
} kn_checkpoint;

/* Options of kn_checkpoint_save; may be NULL. */
typedef struct kn_checkpoint_options {
    int keep;             /* older files that stay, as PATH.1 (the newest) to PATH.N; 0: none */
    uint64_t reserved[4]; /* zero */
} kn_checkpoint_options;

/* Saves. Errors: INVALID for an empty path, a folder, device, FIFO or socket, a name that is
 * not UTF-8, an extra tensor or name that is NULL, a negative keep, an optimiser or averages of
 * another set of parameters, and an optimiser or averages while others than ema are exchanged with
 * the weights; IO with the path, also while another process saves there; the older file then stays
 * as it was. */
KN_API KN_MUST_CHECK kn_status kn_checkpoint_save(const char *path, kn_checkpoint *checkpoint,
                                                  const kn_checkpoint_options *options);
/* Loads into existing objects. Everything is checked before anything is written. Errors: IO,
 * FORMAT; INVALID for objects that kn_checkpoint_save refuses, and partial with optim or ema; for a
 * file that lacks a tensor (with partial: all) or a value, or has one of another shape, another
 * dtype that is not cast, another method, seed or vocabulary, or is of a loader with another number
 * of samples or another batch, or of an optimiser with other settings (kn_optim_settings) or other
 * factors of kn_optim_group: each names it; and, with an optimiser, for averages of another decay,
 * and averages or a loss scale that the file has and the run hasn't. With keep_settings other
 * settings, factors and decays are no error. Other data with as many samples is no error: the
 * metadata has the kn_dataset_hash of the saved run's, in hexadecimal digits, as knet.data_hash.
 * The rate becomes the file's, and so do the groups where optim has none: to change them call
 * kn_optim_lr and kn_optim_group afterwards. Which parameters are frozen is in no file: freeze them
 * again after loading. */
KN_API KN_MUST_CHECK kn_status kn_checkpoint_load(kn_checkpoint *checkpoint, const char *path);

#include <knet/sites/checkpoint.h>

#ifdef __cplusplus
}
#endif
#endif
