#include "small_models.h"

#include <string.h>

#include "models/model.h"
#include "test.h"

typedef struct entry {
    const char *name;
    const void *sizes;
    kn_shape x;
    int64_t words, n_classes;
    double bound;
    double lr; /* 0: 0.01 */
} entry;

#define SIZES(type, ...)                                                                           \
    &(const kn__##type##_sizes) { __VA_ARGS__ }
#define X(...)                                                                                     \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define RESNET .classes = 4, .channels = 2, .blocks = {1, 2, 1, 1}
#define TAGGER .words = 13, .embed = 6, .hidden = 3, .mlp = 4, .tags = 3

static const entry entries[] = {
    {"linear", SIZES(table, 5, 1), X(5), 0, 0, 2.0},
    {"softmax", SIZES(table, 12, 5), X(1, 3, 4), 0, 5, 1.2},
    {"mlp", SIZES(mlp, 12, 6, 5), X(1, 3, 4), 0, 5, 1.2},
    {"lenet", SIZES(lenet, 16, 4, {3, 5}, 8), X(1, 16, 16), 0, 4, 1.2},
    {"vgg_cifar", SIZES(vgg, 8, 4, 2, 6), X(3, 8, 8), 0, 4, 1.0},
    {"vgg16", SIZES(vgg, 32, 4, 2, 24), X(3, 32, 32), 0, 4, 1.3, 0.002},
    {"cifar_bn", SIZES(cifar, 8, 4, {2, 3, 4}, 5), X(3, 8, 8), 0, 4, 0.8},
    {"resnet18", SIZES(resnet, RESNET), X(3, 32, 32), 0, 4, 0.8},
    {"resnet50", SIZES(resnet, RESNET, .bottleneck = true), X(3, 32, 32), 0, 4, 0.8},
    {"resnet50_knet", SIZES(resnet, RESNET, .bottleneck = true, .is_knet = true), X(3, 32, 32), 0,
     4, 0.8},
    {"densenet121", SIZES(densenet, 3, 2, 4, {2, 1, 2, 1}), X(3, 32, 32), 0, 3, 0.5},
    {"mobilenet_v2", SIZES(mobilenet, 4, 16, 16), X(3, 32, 32), 0, 4, 1.2},
    {"gru_imdb", SIZES(words, 11, 5, 6, 0, 2), X(7), 11, 2, 0.6},
    {"char_lstm", SIZES(words, 9, 0, 5, 2, 0), X(6), 9, 0, 1.9, 0.1},
    {"char_lstm_steps", SIZES(words, 9, 0, 5, 2, 0), X(6), 9, 0, 1.9, 0.1},
    {"lstm_lm", SIZES(words, 13, 4, 5, 0, 0), X(6), 13, 0, 2.2},
    {"tagger", SIZES(tagger, TAGGER), X(5), 13, 3, 0.5},
    {"tagger_chars", SIZES(tagger, TAGGER, .chars = 7, .char_embed = 3), X(5, 5), 13, 3, 0.5},
    {"connect4", SIZES(connect4, 3, 1, 2), X(3, 6, 7), 0, 0, 1.5},
    {"gpt", SIZES(gpt, 9, 6, 8, 2, 2), X(6), 9, 0, 1.5},
    {"vae", SIZES(vae, 12, 6, 2), X(1, 3, 4), 0, 5, 8.5},
    {"seq2seq", SIZES(pairs, 11, 4, 0, 0, 0), X(2, 5), 11, 0, 2.3},
    {"transformer", SIZES(pairs, 11, 8, 2, 2, 12), X(2, 5), 11, 0, 2.3},
    {"dcgan", SIZES(dcgan, 16, 3, 2, 4), X(3, 16, 16), 0, 0, 0.35, 0.002},
    {"tree_lstm", SIZES(tree, 13, 6, 3), X(9, 3), 13, 3, 0.5},
    {"reinforce", SIZES(reinforce, 5, 3, 8), X(5, 3), 0, 0, -0.9},
};

bool small_model_at(small_model *out, int i) {
    if (i < 0 || i >= (int)(sizeof entries / sizeof *entries)) return false;
    const entry *e = &entries[i];
    const kn_model_kind *kind = kn_model_kind_find(e->name);
    assert_non_null(kind);
    *out = (small_model){.kind = *kind, .facts = *kind->facts, .bound = e->bound};
    out->lr = e->lr > 0 ? e->lr : 0.01;
    out->kind.sizes = e->sizes;
    out->kind.facts = &out->facts;
    out->facts.x = e->x;
    out->facts.words = e->words;
    out->facts.n_classes = e->n_classes;
    return true;
}

static bool quiet(void *ctx, kn_layer *layer) {
    const char *name = kn_layer_name(layer), *path = kn_layer_path(layer);
    (void)ctx;
    if (strncmp(name, "drop", 4) == 0 || strcmp(name, "noise") == 0 ||
        strcmp(path, "classifier.0") == 0)
        kn_layer_mode_set(layer, KN_LAYER_EVAL);
    return true;
}

void small_model_quiet(kn_model *model) {
    kn_layer *net = kn_model_net(model);
    if (strcmp(kn_model_name(model), "vae") == 0) kn_layer_mode_set(net, KN_LAYER_EVAL);
    kn_layer_walk(net, quiet, NULL);
}
