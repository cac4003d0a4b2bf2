/* Linear and softmax regression. */
#include "dataset.h"
#include "model.h"

static kn_status init(void *model, kn_layer *net) { /* x [B,…] → [B,n_out] */
    const kn__table_sizes *s = model;
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc", s->n_in, s->n_out, NULL);
    return kn_check();
}

static kn_tensor *linear_loss(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    if (!kn__batch_fits("linear", "y", batch->y, "a number for each sample")) return NULL;
    return kn_mse(kn_layer_forward(net, batch->x), batch->y, KN_REDUCE_MEAN);
}

const kn_model_kind kn__linear = {
    .name = "linear",
    .summary = "linear regression",
    .size_bytes = sizeof(kn__table_sizes),
    .sizes = &(const kn__table_sizes){.n_in = 13, .n_out = 1},
    .init = init,
    .is_pure = true,
    .loss = linear_loss,
    .facts = &(const kn_model_facts){
        .n_params = 14,
        .data = "Boston housing, 506 rows of 13 numbers",
        .published = "10,000 epochs on a GRID K520: Knet 2.84 s, Theano 1.88, Torch 2.66, "
                     "Caffe 2.35, TensorFlow 5.92",
        .x = {{13}, 1},
        .batch = 506,
        .n_made = 5060,
        .optimizer = "sgd",
        .lr = 0.1,
        .optim = kn__optim_sgd,
        .made = kn__made_line,
        .read = kn__read_table,
        .path = "",
        .source = "Boston housing is https://raw.githubusercontent.com/selva86/datasets/master/"
                  "BostonHousing.csv"}};

const kn_model_kind kn__softmax = {
    .name = "softmax",
    .summary = "softmax regression",
    .size_bytes = sizeof(kn__table_sizes),
    .sizes = &(const kn__table_sizes){.n_in = 784, .n_out = 10},
    .init = init,
    .is_pure = true,
    .facts = &(const kn_model_facts){
        .n_params = 7850,
        .data = "MNIST, 28x28 pixels",
        .source = KN__FROM_EITHER,
        .published = "10 epochs on a GRID K520: Knet 2.35 s, Theano 1.40, Torch 2.88, "
                     "Caffe 2.45, TensorFlow 5.57",
        .x = {{1, 28, 28}, 3},
        .n_classes = 10,
        .batch = 100,
        .optimizer = "sgd",
        .lr = 0.15,
        .optim = kn__optim_sgd}};
