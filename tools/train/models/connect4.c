/* The network of AlphaZero.jl for connect-four: policy and value of a board of 6x7 cells. */
#include <stdio.h>

#include "model.h"

enum { ROWS = 6, COLUMNS = 7, CELLS = ROWS * COLUMNS };

static void conv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out, int64_t side) {
    kn_layer_conv(parent, name, n_in, n_out, KN_SHAPE(side, side),
                  &(kn_layer_conv_options){.conv = {.padding = {side / 2, side / 2}}});
}

static void norm(kn_layer *parent, const char *name, int64_t n, kn_layer_act_fn act) {
    kn_layer_batchnorm(parent, name, n, &(kn_layer_norm_options){.act = act});
}

static kn_layer *head_add(kn_layer *net, const char *name, const kn__connect4_sizes *s) {
    kn_layer *head = kn_layer_sequential(net, name);
    conv(head, "conv", s->channels, s->head, 1);
    norm(head, "bn", s->head, kn_relu);
    kn_layer_flatten(head, "flatten");
    return head;
}

static kn_status init(void *model, kn_layer *net) {
    const kn__connect4_sizes *s = model;
    char name[32];
    kn_layer *trunk = kn_layer_sequential(net, "trunk");
    conv(trunk, "conv", 3, s->channels, 3);
    norm(trunk, "bn", s->channels, kn_relu);
    for (int64_t i = 0; i < s->blocks; i++) {
        snprintf(name, sizeof name, "block%d", (int)i + 1);
        kn_layer *block = kn_layer_residual(trunk, name);
        conv(block, "conv1", s->channels, s->channels, 3);
        norm(block, "bn1", s->channels, kn_relu);
        conv(block, "conv2", s->channels, s->channels, 3);
        norm(block, "bn2", s->channels, NULL);
        snprintf(name, sizeof name, "relu%d", (int)i + 1);
        kn_layer_act(trunk, name, kn_relu);
    }
    kn_layer *policy = head_add(net, "policy", s), *value = head_add(net, "value", s);
    kn_layer_linear(policy, "fc", CELLS * s->head, COLUMNS, NULL);
    kn_layer_linear(value, "fc1", CELLS * s->head, s->channels,
                    &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(value, "fc2", s->channels, 1, &(kn_layer_linear_options){.act = kn_tanh});
    return kn_check();
}

/* x [B,3,6,7]: empty, own and other cells → [B,7+1]: the probability of each column, and the value,
 * which is from -1, lost, to 1. */
static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    kn_tensor *trunk = kn__layer_apply(net, "trunk", batch->x);
    kn_tensor *policy = kn_softmax(kn__layer_apply(net, "policy", trunk), 1);
    return kn_concat((kn_tensor *const[]){policy, kn__layer_apply(net, "value", trunk)}, 2, 1);
}

/* The sum of the squares of all weights that are matrices or filters. */
static kn_tensor *weights_square(void *ctx, kn_layer *layer) {
    kn_tensor **sum = ctx, *w = kn_layer_param(layer, "weight");
    if (!w || kn_tensor_shape(w).n_dims < 2) return *sum;
    kn_tensor *square = kn_sum_square(w, KN_ALL, false);
    return *sum = *sum ? kn_add(*sum, square) : square;
}
static bool weights_visit(void *ctx, kn_layer *layer) { return weights_square(ctx, layer), true; }

/* columns a … b-1 of x [B,n] */
static kn_tensor *columns(kn_tensor *x, int64_t a, int64_t b) {
    return kn_slice(x, KN_SHAPE(0, a), KN_SHAPE(kn_tensor_shape(x).dim[0], b));
}

static kn_tensor *weighted(kn_tensor *terms, kn_tensor *weight) {
    return kn_sum(kn_mul(terms, weight), KN_ALL, false);
}

/* y [B,7+1+7+1]: the search's policy, the game's result, which columns are legal, the weight of the
 * sample. Divergence of the policy (less the entropy of the target, a constant), squared error of
 * the value, probability of illegal moves, and decay of the weights. */
static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    const double eps = 1.2e-7;
    if (!kn__batch_fits("connect4", "y", batch->y, "[B,16]")) return NULL;
    kn_tensor *out = predict(model, net, batch), *y = batch->y, *decay = NULL;
    kn_tensor *policy = columns(y, 0, 7), *result = columns(y, 7, 8), *weight = columns(y, 15, 16);
    kn_tensor *legal = kn_mul(columns(out, 0, 7), columns(y, 8, 15));
    kn_tensor *mass = kn_sum(legal, KN_SHAPE(1), true); /* [B,1] */
    legal = kn_div(legal, kn_affine(mass, 1, eps));
    kn_tensor *cross = kn_neg(kn_mul(policy, kn_log(kn_affine(legal, 1, eps))));
    kn_tensor *terms = kn_add(weighted(cross, weight),
                              weighted(kn_square(kn_sub(columns(out, 7, 8), result)), weight));
    terms = kn_add(terms, weighted(kn_affine(mass, -1, 1), weight));
    kn_layer_walk(net, weights_visit, &decay);
    return kn_add(kn_div(terms, kn_sum(weight, KN_ALL, false)), kn_affine(decay, 1e-4, 0));
}

const kn_model_kind kn__connect4 = {
    .name = "connect4",
    .summary = "policy and value of connect-four, for AlphaZero",
    .size_bytes = sizeof(kn__connect4_sizes),
    .sizes = &(const kn__connect4_sizes){.channels = 128, .blocks = 5, .head = 32},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){
        .n_params = 1672328,
        .data = "positions of self-play, [3,6,7]",
        .published = "500 games of self-play: Knet 279 s, Flux 433 s",
        .x = {{3, 6, 7}, 3},
        .batch = 1024, /* of training; self-play predicts 128 positions at a time */
        .n_made = 5120,
        .optimizer = "adam",
        .lr = 0.002,
        .optim = kn__optim_adam,
        .made = kn__made_boards}};
