/* A small GPT, of the sizes of nanoGPT's smallest: Radford et al. 2019. */
#include <stdio.h>

#include "model.h"

static kn_status init(void *model, kn_layer *net) {
    const kn__gpt_sizes *s = model;
    const kn_layer_linear_options small = {.weight = kn_init_normal(0, 0.02)};
    kn_layer_linear_options gelu = small, bare = small;
    gelu.act = kn_gelu;
    bare.no_bias = 1;
    char name[32];
    kn_layer_embedding(net, "words", s->words, s->width, &small);
    kn_layer_embedding(net, "places", s->length, s->width, &small);
    kn_layer *blocks = kn_layer_sequential(net, "blocks");
    for (int64_t i = 0; i < s->blocks; i++) {
        snprintf(name, sizeof name, "attend%d", (int)i);
        kn_layer *attend = kn_layer_residual(blocks, name);
        kn_layer_layernorm(attend, "norm", KN_SHAPE(s->width), NULL);
        kn_layer_attention(attend, "attention", s->width, s->heads,
                           &(kn_layer_attention_options){.causal = 1});
        snprintf(name, sizeof name, "mlp%d", (int)i);
        kn_layer *mlp = kn_layer_residual(blocks, name);
        kn_layer_layernorm(mlp, "norm", KN_SHAPE(s->width), NULL);
        kn_layer_linear(mlp, "fc1", s->width, 4 * s->width, &gelu);
        kn_layer_linear(mlp, "fc2", 4 * s->width, s->width, &small);
    }
    kn_layer_layernorm(blocks, "norm", KN_SHAPE(s->width), NULL);
    kn_layer_linear(net, "scores", s->width, s->words, &bare);
    return kn_check();
}

/* x [B,T] → [B,T,width] */
static kn_tensor *embedded(kn_layer *net, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *index = kn_arange(0, (double)kn_tensor_shape(x).dim[1], 1, KN_I64);
    kn_tensor *words = kn__layer_apply(net, "words", x);
    return kn_keep(kn_add(words, kn__layer_apply(net, "places", index)));
}

/* x [B,T], T at most the length → [B,T,words] */
static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__gpt_sizes *s = model;
    char expected[64];
    snprintf(expected, sizeof expected, "[B,T] with T at most %d", (int)s->length);
    if (!kn__batch_fits("gpt", "x", batch->x, expected)) return NULL;
    if (kn_tensor_shape(batch->x).dim[1] > s->length)
        return kn__batch_fail("gpt", "x", batch->x, expected);
    kn_tensor *h = embedded(net, batch->x);
    return kn__layer_apply(net, "scores", kn__layer_apply(net, "blocks", h));
}

static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__gpt_sizes *s = model;
    kn_tensor *scores = predict(model, net, batch);
    if (!scores || !kn__batch_fits("gpt", "y", batch->y, "the next word of each")) return NULL;
    return kn_cross_entropy(kn_reshape(scores, KN_SHAPE(-1, s->words)),
                            kn_reshape(batch->y, KN_SHAPE(-1)));
}

const kn_model_kind kn__gpt = {
    .name = "gpt",
    .summary = "a transformer that writes text",
    .size_bytes = sizeof(kn__gpt_sizes),
    .sizes =
        &(const kn__gpt_sizes){.words = 65, .length = 64, .width = 128, .heads = 4, .blocks = 4},
    .init = init,
    .is_pure = true,
    .recomputes = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){.n_params = 818176,
                                     .data = "tiny Shakespeare, 65 characters, 64 at a time",
                                     .source = KN__FROM_SHAKESPEARE,
                                     .x = {{64}, 1},
                                     .words = 65,
                                     .batch = 12,
                                     .n_made = 600,
                                     .optimizer = "adam",
                                     .lr = 0.001,
                                     .optim = kn__optim_adam,
                                     .made = kn__made_text,
                                     .read = kn__read_characters,
                                     .path = KN__CORPUS}};
