/* The list of models, their sizes, and what several of them share. To add one: a file here, a line
 * in model.c. A model's struct begins as its sizes, so that another configuration, such as the
 * small ones of tests, is a kind with other numbers. */
#ifndef KN_MODEL_H
#define KN_MODEL_H

#include <knet/models.h>

/* --- the list --- */
/* clang-format off */
#define KN__MODELS(X) \
    X(linear) X(softmax) X(mlp) X(lenet) X(vgg_cifar) X(cifar_bn) X(vgg16) \
    X(resnet18) X(resnet34) X(resnet50) X(resnet50_knet) X(resnet101) X(resnet152) \
    X(densenet121) X(densenet121_imagenet) X(mobilenet_v2) \
    X(gru_imdb) X(char_lstm) X(char_lstm_steps) X(lstm_lm) X(tagger) X(tagger_chars) \
    X(connect4) X(gpt) X(vae) X(seq2seq) X(transformer) \
    X(dcgan) X(tree_lstm) X(reinforce)
/* clang-format on */
#define KN__MODEL_DECLARE(name) extern const kn_model_kind kn__##name;
KN__MODELS(KN__MODEL_DECLARE)
#undef KN__MODEL_DECLARE

/* --- sizes --- */
typedef struct kn__table_sizes {
    int64_t n_in, n_out;
} kn__table_sizes;
typedef struct kn__mlp_sizes {
    int64_t pixels, hidden, classes;
} kn__mlp_sizes;
typedef struct kn__lenet_sizes {
    int64_t side, classes, channels[2], hidden;
} kn__lenet_sizes;
typedef struct kn__vgg_sizes {
    int64_t side, classes, channels, hidden; /* of the first convolutions; of the linear layers */
} kn__vgg_sizes;
typedef struct kn__cifar_sizes {
    int64_t side, classes, channels[3], hidden;
} kn__cifar_sizes;
typedef struct kn__resnet_sizes {
    int64_t classes, channels, blocks[4];
    bool bottleneck; /* 1x1, 3x3, 1x1 instead of two 3x3 */
    /* Knet's: strides in the first 1x1, as He et al., and a pool without padding. Else PyTorch's:
     * strides in the 3x3, and a pool with padding. */
    bool is_knet;
} kn__resnet_sizes;
typedef struct kn__densenet_sizes {
    int64_t classes, growth, channels, blocks[4];
} kn__densenet_sizes;
typedef struct kn__mobilenet_sizes {
    int64_t classes, last, divisor; /* channels of the last convolution; of all: divided by it */
} kn__mobilenet_sizes;
typedef struct kn__words_sizes {
    int64_t words, embed, hidden, layers, classes;
} kn__words_sizes;
typedef struct kn__tagger_sizes {
    int64_t words, embed, hidden, mlp, tags, chars, char_embed;
} kn__tagger_sizes;
typedef struct kn__connect4_sizes {
    int64_t channels, blocks, head;
} kn__connect4_sizes;
typedef struct kn__gpt_sizes {
    int64_t words, length, width, heads, blocks;
} kn__gpt_sizes;
typedef struct kn__vae_sizes {
    int64_t pixels, hidden, latent;
} kn__vae_sizes;
typedef struct kn__pairs_sizes {
    int64_t words, width, heads, blocks, ff;
} kn__pairs_sizes;

typedef struct kn__dcgan_sizes {
    /* pixels, 8 or more, a power of two; of the codes; of the widest maps */
    int64_t side, colors, latent, channels;
} kn__dcgan_sizes;
typedef struct kn__tree_sizes {
    int64_t words, width, labels;
} kn__tree_sizes;
typedef struct kn__reinforce_sizes {
    int64_t rows, columns, hidden;
} kn__reinforce_sizes;

/* --- checks of a batch --- */
/* Fails: "MODEL: PART is i64 [7]; expected [B,T]", or that it is missing where t is NULL. */
void *kn__batch_fail(const char *model, const char *part, kn_tensor *t, const char *expected);
/* Whether t is there and has the shape in `expected`, such as "words [B,2,T]": as many dimensions,
 * and the sizes that are numbers; else fails. Without a bracket any shape fits. */
bool kn__batch_fits(const char *model, const char *part, kn_tensor *t, const char *expected);
/* The samples of x; 0 with an error if there are none. */
int64_t kn__batch_size(const char *model, kn_tensor *x);

/* --- shared by models --- */
/* Images [B,C,H,W] as [B,channels,side,side]: zeros around smaller ones, one channel repeated. */
kn_tensor *kn__images_fit(kn_tensor *x, int64_t channels, int64_t side);
/* The mean cross-entropy of scores [T,B,V] and the words y [B,T]. */
kn_tensor *kn__words_loss(const char *model, kn_tensor *scores, kn_tensor *y);
/* x [B,T] as [T,B]. */
kn_tensor *kn__time_first(kn_tensor *x);
/* The layer of that name in self, applied to x. */
kn_tensor *kn__layer_apply(kn_layer *self, const char *name, kn_tensor *x);

/* Makes an optimiser fit the model's turns, if it has some. */
kn_status kn__model_turns_fit(const kn_model *model, kn_optim *optim);

/* Optimisers of the record. */
kn_status kn__optim_sgd(kn_optim **out, kn_params *params, double lr);
kn_status kn__optim_momentum(kn_optim **out, kn_params *params, double lr); /* 0.9 */
kn_status kn__optim_adam(kn_optim **out, kn_params *params, double lr);

/* Made-up data (made.c): what kn_model_facts.made does. */
kn_status kn__made_line(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);
kn_status kn__made_marks(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);
kn_status kn__made_text(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);
kn_status kn__made_tags(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);
kn_status kn__made_pairs(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);
kn_status kn__made_boards(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split);

/* Random numbers of made-up samples, from one state on: in [0, 1), and 0 … n - 1. */
double kn__made_uniform(uint64_t *state);
int64_t kn__made_below(uint64_t *state, int64_t n);
/* Makes up one sample: its x and its y, floats or int64_t. */
typedef void (*kn__made_fn)(void *x, void *y, const kn_model_facts *facts, uint64_t *state);
/* n samples of x [n,x…] and y [n,y…]. */
kn_status kn__made_samples(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split,
                           kn__made_fn fill, kn_dtype x_dtype, kn_shape y, kn_dtype y_dtype);

/* Files (files.c): what kn_model_facts.read does. */
kn_status kn__read_characters(kn_dataset **out, const kn_model_facts *facts, const char *path,
                              kn_split split);
kn_status kn__read_words(kn_dataset **out, const kn_model_facts *facts, const char *path,
                         kn_split split);
kn_status kn__read_reviews(kn_dataset **out, const kn_model_facts *facts, const char *path,
                           kn_split split);
/* A table of facts->x numbers and a target a line, with commas or blanks between. Both splits have
 * all rows, as in the record. */
kn_status kn__read_table(kn_dataset **out, const kn_model_facts *facts, const char *path,
                         kn_split split);
/* The text of kn__read_characters where --data is absent: every Debian system has it. */
#define KN__CORPUS "/usr/share/common-licenses/GPL-3"
#define KN__FASHION "/usr/share/datasets/fashion-mnist"
/* Where to get the data of several models. */
#define KN__FROM_IMAGENET                                                                          \
    "ImageNet is at https://image-net.org/download.php; its images lie in train/CLASS and "        \
    "test/CLASS"
#define KN__FROM_SHAKESPEARE                                                                       \
    "tiny Shakespeare is https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"         \
    "tinyshakespeare/input.txt; any text will do"

#endif
