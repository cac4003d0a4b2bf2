/* The data of a model that a command line names. */
#ifndef KN_MODEL_DATA_H
#define KN_MODEL_DATA_H

#include <knet/models.h>

/* A loader of the model's data: made-up, or of path (NULL: the model's own), a text by vocab (NULL:
 * its own). The error of data that is less than a batch names --batch. */
kn_status kn__model_loader(kn_loader **out, const char *model, bool made, const char *path,
                           kn_vocab *vocab, const kn_loader_options *options);
/* KN__EXIT_USAGE after a message if the data isn't made up, and the model reads no files, or path
 * is NULL and the model has no default data. */
int kn__model_data_check(const char *model, bool made, const char *path);
/* The same for a model whose steps no capture records, where option, "--capture", asks for one. */
int kn__model_capture_check(const char *model, const char *option);
/* The same of --carry on these devices. */
int kn__model_carry_check(const char *model, const char *devices);
/* Loads the weights of a file, the averages of knet train --ema where it has them; *averaged says
 * which. */
kn_status kn__model_weights(bool *averaged, kn_model *model, const char *path);
/* The vocabulary of the text that a checkpoint was trained on; *out stays NULL if it has none. */
kn_status kn__model_vocab(kn_vocab **out, const char *path);
/* Where the model's data is unless told otherwise. */
const char *kn__model_path(const char *model);
/* Samples of a step unless told otherwise: 128, or what the record has where that is costly. */
int64_t kn__model_batch(const char *model);
/* What n of its samples are called: "image", "images", "sample", "samples". */
const char *kn__model_samples(const char *model, int64_t n);
/* The .autocast of a frame for --dtype; 0: none. */
int kn__autocast_find(const char *dtype);

/* The option --recompute, whose text is stored at `offset`, and the call that applies it. */
extern const char *const kn__recompute_choices[];
#define KN__RECOMPUTE_OPTION(offset_)                                                              \
    {                                                                                              \
        "recompute", KN__OPT_CHOICE, offset_,                                                      \
            .value_name = "on|off", .choices = kn__recompute_choices,                              \
            .initial_shown = "the model's",                                                        \
            .help = "compute cheap values again in backward: less memory, a little more time"      \
    }
void kn__recompute_set(kn_model *model, const char *choice); /* NULL: leaves it */

#endif
