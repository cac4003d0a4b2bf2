/* A variational autoencoder: Kingma and Welling 2014, of the sizes of PyTorch's example. */
#include "dataset.h"
#include "model.h"

static kn_status init(void *model, kn_layer *net) {
    const kn__vae_sizes *s = model;
    const kn_layer_linear_options relu = {.act = kn_relu};
    kn_layer_linear(net, "fc1", s->pixels, s->hidden, &relu);
    kn_layer_linear(net, "mean", s->hidden, s->latent, NULL);
    kn_layer_linear(net, "log_var", s->hidden, s->latent, NULL);
    kn_layer_linear(net, "fc2", s->latent, s->hidden, &relu);
    kn_layer_linear(net, "fc3", s->hidden, s->pixels, NULL);
    kn_layer_dropout(net, "noise", 0); /* makes the generator, which checkpoints save */
    return kn_check();
}

/* x [B,…] → the logits of its pixels [B,pixels]; *mean and *log_var [B,latent] are those of its
 * code. Evaluation takes the mean for the code. */
static kn_tensor *run(kn_layer *net, kn_tensor *x, kn_tensor **mean, kn_tensor **log_var) {
    kn_tensor *h = kn__layer_apply(net, "fc1", kn_flatten(x));
    kn_tensor *code = *mean = kn__layer_apply(net, "mean", h);
    *log_var = kn__layer_apply(net, "log_var", h);
    if (kn_layer_is_training(net)) {
        kn_tensor *noise = kn_normal(kn_tensor_shape(code), 0, 1, kn_layer_rng(net));
        code = kn_add(code, kn_mul(noise, kn_exp(kn_affine(*log_var, 0.5, 0))));
    }
    return kn__layer_apply(net, "fc3", kn__layer_apply(net, "fc2", code));
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    kn_tensor *mean, *log_var;
    return run(net, batch->x, &mean, &log_var);
}

/* Of an image: the sum of the pixels' cross-entropies, and the divergence of its code from normal
 * numbers, -½ Σ (1 + log σ² - μ² - σ²). */
static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    int64_t n = kn__batch_size("vae", batch->x);
    if (!n) return NULL;
    kn_tensor *mean, *log_var, *logits = run(net, batch->x, &mean, &log_var);
    double share = 1 / (double)n;
    kn_tensor *pixels = kn_bce_logits(logits, kn_flatten(batch->x), KN_REDUCE_SUM);
    kn_tensor *terms = kn_sub(kn_add(kn_square(mean), kn_exp(log_var)), kn_affine(log_var, 1, 1));
    kn_tensor *divergence = kn_sum(terms, KN_ALL, false);
    return kn_axpby(pixels, divergence, share, 0.5 * share);
}

const kn_model_kind kn__vae = {
    .name = "vae",
    .summary = "a variational autoencoder of images",
    .size_bytes = sizeof(kn__vae_sizes),
    .sizes = &(const kn__vae_sizes){.pixels = 784, .hidden = 400, .latent = 20},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){.n_params = 652824,
                                     .data = "MNIST, 28x28 pixels",
                                     .source = KN__FROM_EITHER,
                                     .x = {{1, 28, 28}, 3},
                                     .n_classes = 10,
                                     .batch = 128,
                                     .optimizer = "adam",
                                     .lr = 0.001,
                                     .optim = kn__optim_adam}};
