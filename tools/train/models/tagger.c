/* Taggers of sentences: dynet-benchmark's bilstm-tagger and bilstm-tagger-withchar. */
#include <stdlib.h>

#include "layers/layer.h"
#include "model.h"

static kn_status init(void *model, kn_layer *net) {
    const kn__tagger_sizes *s = model;
    kn_layer_embedding(net, "words", s->words, s->embed, NULL);
    kn__layer_lstm_remember(kn_layer_rnn(
        net, "lstm", s->embed, &(kn_rnn_options){.hidden = s->hidden, .bidirectional = 1}));
    kn_layer_linear(net, "mlp", 2 * s->hidden, s->mlp,
                    &(kn_layer_linear_options){.act = kn_tanh, .no_bias = 1});
    kn_layer_linear(net, "tags", s->mlp, s->tags, &(kn_layer_linear_options){.no_bias = 1});
    if (!s->chars) return kn_check();
    kn_layer_embedding(net, "chars", s->chars, s->char_embed, NULL);
    kn__layer_lstm_remember(
        kn_layer_rnn(net, "char_lstm", s->char_embed,
                     &(kn_rnn_options){.hidden = s->embed / 2, .bidirectional = 1}));
    return kn_check();
}

/* words [T,B,embed] → scores [T,B,tags] */
static kn_tensor *tags_of(kn_layer *net, kn_tensor *words) {
    kn_tensor *h = kn__layer_apply(net, "lstm", words); /* [T,B,2·hidden] */
    return kn__layer_apply(net, "tags", kn__layer_apply(net, "mlp", h));
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) { /* x [B,T] */
    (void)model;
    if (!kn__batch_fits("tagger", "x", batch->x, "[B,T]")) return NULL;
    return tags_of(net, kn__layer_apply(net, "words", kn__time_first(batch->x)));
}

static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("tagger", predict(model, net, batch), batch->y);
}

const kn_model_kind kn__tagger = {
    .name = "tagger",
    .summary = "an LSTM in both directions that tags words",
    .size_bytes = sizeof(kn__tagger_sizes),
    .sizes =
        &(const kn__tagger_sizes){.words = 10000, .embed = 128, .hidden = 50, .mlp = 32, .tags = 9},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){
        .n_params = 1355488,
        .data = "WikiNER, a sentence of 23 words a step, 9 tags",
        .published = "words a second on a K80: Knet 6,800, DyNet 1,200, Chainer 157",
        .x = {{23}, 1},
        .words = 10000,
        .n_classes = 9,
        .batch = 1,
        .n_made = 200,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .made = kn__made_tags}};

/* --- with the characters of rare words --- */

/* The words of a batch that have characters. */
typedef struct rare {
    int64_t n, longest;
    int64_t *at;      /* [n]: place among T·B words, time first */
    int64_t *lengths; /* [n]: characters, 1 or more */
    int64_t *chars;   /* [longest,n], zeros at the ends */
} rare;

static void rare_release(rare *r) {
    free(r->at);
    free(r->lengths);
    free(r->chars);
}

/* x [B,T,1+L] on the host: of each word its number and its characters, of which 0 is the end. */
static bool rare_find(rare *r, const int64_t *x, kn_shape s) {
    int64_t B = s.dim[0], T = s.dim[1], L = s.dim[2] - 1, all = B * T;
    *r = (rare){.at = calloc((size_t)all, 8),
                .lengths = calloc((size_t)all, 8),
                .chars = calloc((size_t)(all * L), 8)};
    if (!r->at || !r->lengths || !r->chars) return false;
    for (int64_t i = 0; i < all; i++) {
        const int64_t *chars = x + i * (L + 1) + 1;
        int64_t n = 0;
        while (n < L && chars[n]) n++;
        if (!n) continue;
        r->at[r->n] = i % T * B + i / T;
        r->lengths[r->n++] = n;
        if (n > r->longest) r->longest = n;
    }
    for (int64_t k = 0; k < r->n; k++) {
        int64_t i = r->at[k] % B * T + r->at[k] / B;
        for (int64_t j = 0; j < r->lengths[k]; j++) r->chars[j * r->n + k] = x[i * (L + 1) + 1 + j];
    }
    return true;
}

/* Both last states of the LSTM over the characters: [n,embed]. */
static kn_tensor *spelled(kn_layer *net, const rare *r, kn_device *device, int64_t embed) {
    kn_tensor *h = NULL;
    kn_tensor *chars = kn_to(kn_tensor_from(r->chars, KN_I64, KN_SHAPE(r->longest, r->n)), device);
    kn_tensor *x = kn__layer_apply(net, "chars", chars); /* [L,n,char_embed] */
    kn_layer_rnn_forward(kn_layer_find(net, "char_lstm"), x,
                         &(kn_layer_rnn_state){.lengths = r->lengths, .h_n = &h});
    return kn_reshape(kn_transpose(h, KN_SHAPE(1, 0, 2)), KN_SHAPE(r->n, embed));
}

/* The embeddings of all words, with those of rare ones in their places. The characters are read on
 * the host, which a GPU's batch is copied to. */
static kn_tensor *chars_predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__tagger_sizes *s = model;
    kn_shape shape = kn_tensor_shape(batch->x);
    if (!kn__batch_fits("tagger_chars", "x", batch->x, "[B,T,1+L]")) return NULL;
    kn_tensor *index = kn__time_first(kn_select(batch->x, 0, 2)); /* [T,B] */
    kn_tensor *words = kn__layer_apply(net, "words", index);      /* [T,B,embed] */
    if (!words) return NULL;                                      /* of what isn't integers too */
    const int64_t *x = kn_data(kn_cast(kn_to(batch->x, kn_device_host()), KN_I64));
    if (kn_pending()) return NULL;
    rare r;
    if (!rare_find(&r, x, shape)) {
        rare_release(&r);
        return KN_FAIL_NULL(KN_ERR_OOM, "tagger_chars: no memory for the characters");
    }
    if (r.n) {
        kn_device *device = kn_tensor_device(batch->x);
        kn_tensor *rows = kn_reshape(words, KN_SHAPE(-1, s->embed));
        kn_tensor *at = kn_to(kn_tensor_from(r.at, KN_I64, KN_SHAPE(r.n)), device);
        rows = kn_index_set(rows, at, spelled(net, &r, device, s->embed), 0);
        words = kn_reshape(rows, KN_SHAPE(shape.dim[1], shape.dim[0], s->embed));
    }
    rare_release(&r);
    return tags_of(net, words);
}

static kn_tensor *chars_loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("tagger_chars", chars_predict(model, net, batch), batch->y);
}

const kn_model_kind kn__tagger_chars = {
    .name = "tagger_chars",
    .summary = "the same, which spells rare words",
    .size_bytes = sizeof(kn__tagger_sizes),
    .sizes = &(const kn__tagger_sizes){.words = 10000,
                                       .embed = 128,
                                       .hidden = 50,
                                       .mlp = 32,
                                       .tags = 9,
                                       .chars = 200,
                                       .char_embed = 20},
    .init = init,
    .is_pure = true,
    .reads_on_host = true,
    .predict = chars_predict,
    .loss = chars_loss,
    .facts = &(const kn_model_facts){
        .n_params = 1403520,
        .data = "WikiNER, 23 words a step, letters of every 10th",
        .published = "words a second on a K80: Knet 1,300, DyNet 900, Chainer 128",
        .x = {{23, 10}, 2},
        .words = 10000,
        .n_classes = 9,
        .batch = 1,
        .n_made = 200,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .made = kn__made_tags}};
