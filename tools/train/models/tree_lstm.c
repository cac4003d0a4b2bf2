/* The binary tree LSTM of dynet-benchmark's treenn: Tai et al. 2015. Trees of a batch run together,
 * one level after the other: all leaves, then all nodes whose children are done. */
#include <stdlib.h>

#include "model.h"

enum { WORD, LEFT, RIGHT, FIELDS }; /* of a node in x; a leaf has no children, padding no word */

static kn_status init(void *model, kn_layer *net) {
    const kn__tree_sizes *s = model;
    const kn_layer_linear_options bare = {.no_bias = 1};
    kn_layer_embedding(net, "words", s->words, s->width, NULL);
    kn_layer_linear(net, "leaf", s->width, 3 * s->width, NULL);     /* gates i, o, u */
    kn_layer_linear(net, "node", 2 * s->width, 3 * s->width, NULL); /* of both children's h */
    kn_layer_linear(net, "forget_left", s->width, s->width, NULL);
    kn_layer_linear(net, "forget_right", s->width, s->width, &bare); /* adds the left one's bias */
    kn_layer_linear(net, "labels", s->width, s->labels, &bare);
    return kn_check();
}

/* The nodes of a batch by levels. */
typedef struct forest {
    int64_t n, levels;
    int64_t *word, *left, *right; /* [n], children by their places in this order */
    int64_t *begin;               /* [levels + 1]: where each level begins */
    int64_t *place;               /* [B·N]: of each node of x; padding has its tree's first */
} forest;

static void forest_release(forest *f) {
    free(f->word);
    free(f->left);
    free(f->right);
    free(f->begin);
    free(f->place);
}

static bool forest_alloc(forest *f, int64_t n) {
    size_t count = (size_t)n + 1;
    *f = (forest){.word = calloc(count, 8),
                  .left = calloc(count, 8),
                  .right = calloc(count, 8),
                  .begin = calloc(count + 1, 8),
                  .place = calloc(count, 8)};
    return f->word && f->left && f->right && f->begin && f->place;
}

/* Checks the children of node k, which has some. */
static kn_status children_check(const int64_t *level, const int64_t *x, int64_t k, int64_t N) {
    const int64_t *node = x + k * FIELDS, at = k % N, tree = k / N;
    if (node[LEFT] < 0 && node[RIGHT] < 0 && node[LEFT] >= -1 && node[RIGHT] >= -1) return KN_OK;
    for (int side = LEFT; side <= RIGHT; side++) {
        const char *why = node[side] >= N   ? "beyond the last node"
                          : node[side] < -1 ? "not the number of a node"
                          : node[side] < 0  ? "missing beside the other; expected two or none"
                          : node[side] >= at
                              ? "not before it; children come before their parents in x"
                          : level[k - at + node[side]] < 0 ? "padding"
                                                           : NULL;
        if (why)
            return KN_FAIL(KN_ERR_INVALID,
                           "tree_lstm: the %s child %lld of node %lld of tree %lld is %s",
                           side == LEFT ? "left" : "right", (long long)node[side], (long long)at,
                           (long long)tree, why);
    }
    return KN_OK;
}

/* The level of each node in `level`, -1 of padding. Children's numbers are within their tree. */
static kn_status levels_find(int64_t *level, int64_t *highest, const int64_t *x, int64_t B,
                             int64_t N) {
    *highest = -1;
    for (int64_t k = 0; k < B * N; k++) {
        const int64_t *node = x + k * FIELDS, *tree = level + k / N * N;
        level[k] = node[WORD] >= 0 ? 0 : -1;
        KN_TRY(children_check(level, x, k, N));
        if (node[LEFT] >= 0) {
            int64_t a = tree[node[LEFT]], b = tree[node[RIGHT]];
            level[k] = (a > b ? a : b) + 1;
        }
        if (level[k] > *highest) *highest = level[k];
    }
    return *highest < 0 ? KN_FAIL(KN_ERR_INVALID, "tree_lstm: x has no words") : KN_OK;
}

/* x [B,N,3] on the host. */
static void forest_fill(forest *f, const int64_t *level, const int64_t *x, int64_t B, int64_t N) {
    for (int64_t l = 0; l < f->levels; l++) {
        f->begin[l] = f->n;
        for (int64_t k = 0; k < B * N; k++) {
            const int64_t *node = x + k * FIELDS, *place = f->place + k / N * N;
            if (level[k] != l) continue;
            f->word[f->n] = l ? 0 : node[WORD];
            if (l) f->left[f->n] = place[node[LEFT]], f->right[f->n] = place[node[RIGHT]];
            f->place[k] = f->n++;
        }
    }
    f->begin[f->levels] = f->n;
    for (int64_t k = 0; k < B * N; k++)
        if (level[k] < 0) f->place[k] = f->place[k / N * N];
}

static bool is_forest(kn_tensor *x) {
    const char *expected = "i64 [B,N,3]: word, left and right child";
    char text[128];
    if (!kn__batch_fits("tree_lstm", "x", x, expected)) return false;
    if (kn_tensor_dtype(x) == KN_I64) return true;
    (void)KN_FAIL_NULL(KN_ERR_DTYPE, "tree_lstm: x is %s %s; expected %s",
                       kn_dtype_name(kn_tensor_dtype(x)),
                       kn_shape_text(text, sizeof text, kn_tensor_shape(x)), expected);
    return false;
}

static kn_status forest_read(forest *f, kn_tensor *x) {
    kn_shape s = kn_tensor_shape(x);
    const int64_t *data = x ? kn_data(kn_to(x, kn_device_host())) : NULL;
    KN_TRY(kn_check());
    int64_t all = s.dim[0] * s.dim[1], highest = 0;
    int64_t *level = calloc((size_t)all + 1, 8);
    kn_status status = KN_OK;
    if (!level || !forest_alloc(f, all))
        status = KN_FAIL(KN_ERR_OOM, "tree_lstm: no memory for %lld nodes", (long long)all);
    else
        status = levels_find(level, &highest, data, s.dim[0], s.dim[1]);
    f->levels = highest + 1;
    if (status == KN_OK) forest_fill(f, level, data, s.dim[0], s.dim[1]);
    free(level);
    return status;
}

static kn_tensor *index_of(const int64_t *at, int64_t n, kn_device *device) {
    return kn_to(kn_tensor_from(at, KN_I64, KN_SHAPE(n)), device);
}

/* h and c of the nodes so far: [n,width] */
typedef struct states {
    kn_tensor *h, *c;
} states;

/* gates [m,3·width]: i, o, u; kept: what the children's memory adds, NULL for leaves */
static states cell(kn_tensor *gates, kn_tensor *kept) {
    kn_tensor *part[3];
    kn_status status = gates ? kn_chunk(part, gates, 3, 1) : KN_OK;
    if (!gates || status < 0) return (states){kn_error_defer(status), NULL};
    kn_tensor *c = kn_mul(kn_sigm(part[0]), kn_tanh(part[2]));
    if (kept) c = kn_add(c, kept);
    return (states){kn_mul(kn_sigm(part[1]), kn_tanh(c)), c};
}

/* The nodes of one level, from the states of all below. */
static states level_run(kn_layer *net, const forest *f, int64_t level, states below) {
    int64_t at = f->begin[level], n = f->begin[level + 1] - at;
    kn_device *device = kn_tensor_device(below.h);
    kn_tensor *left = index_of(f->left + at, n, device);
    kn_tensor *right = index_of(f->right + at, n, device);
    kn_tensor *h1 = kn_index_select(below.h, left, 0), *h2 = kn_index_select(below.h, right, 0);
    kn_tensor *c1 = kn_index_select(below.c, left, 0), *c2 = kn_index_select(below.c, right, 0);
    kn_tensor *gates = kn__layer_apply(net, "node", kn_concat((kn_tensor *const[]){h1, h2}, 2, 1));
    kn_layer *one = kn_layer_find(net, "forget_left"), *other = kn_layer_find(net, "forget_right");
    kn_tensor *bias = kn_layer_param(one, "bias");
    kn_tensor *f1 = kn_sigm(kn_layer_forward(one, h1));
    kn_tensor *f2 = kn_sigm(kn_linear(h2, kn_layer_param(other, "weight"), bias));
    return cell(gates, kn_add(kn_mul(f1, c1), kn_mul(f2, c2)));
}

static states join(states a, states b) {
    return (states){kn_concat((kn_tensor *const[]){a.h, b.h}, 2, 0),
                    kn_concat((kn_tensor *const[]){a.c, b.c}, 2, 0)};
}

static kn_tensor *nodes_run(kn_layer *net, const forest *f, kn_device *device) {
    kn_tensor *words =
        kn__layer_apply(net, "words", index_of(f->word, f->begin[1], device)); /* [leaves,width] */
    states all = cell(kn__layer_apply(net, "leaf", words), NULL);
    for (int64_t l = 1; l < f->levels && !kn_pending(); l++)
        all = join(all, level_run(net, f, l, all));
    return all.h;
}

/* x [B,N,3]: the nodes of a tree in an order in which children come before their parents, each with
 * its word, or -1 and the numbers of its children; padding is all -1 → scores [B,N,labels], those
 * of padding without meaning. */
static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__tree_sizes *s = model;
    kn_shape shape = kn_tensor_shape(batch->x);
    forest f = {.n = 0};
    kn_tensor *scores = NULL;
    if (!is_forest(batch->x)) return NULL;
    if (forest_read(&f, batch->x) == KN_OK) {
        kn_device *device = kn_tensor_device(batch->x);
        kn_tensor *y = kn__layer_apply(net, "labels", nodes_run(net, &f, device));
        kn_tensor *place = index_of(f.place, shape.dim[0] * shape.dim[1], device);
        scores = kn_reshape(kn_index_select(y, place, 0),
                            KN_SHAPE(shape.dim[0], shape.dim[1], s->labels));
    } else {
        kn_error_defer(kn_last_error()->status);
    }
    forest_release(&f);
    return scores;
}

/* The mean over all nodes; y [B,N], -1 of padding. */
static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__tree_sizes *s = model;
    kn_tensor *scores = predict(model, net, batch);
    if (!scores || !kn__batch_fits("tree_lstm", "y", batch->y, "labels [B,N]")) return NULL;
    return kn_cross_entropy_with(kn_reshape(scores, KN_SHAPE(-1, s->labels)),
                                 kn_reshape(batch->y, KN_SHAPE(-1)),
                                 &(kn_cross_entropy_options){.ignore_index = -1, .ignores = 1});
}

/* --- made-up trees --- */

typedef struct maker {
    int64_t *x, *y, n, words, labels;
    uint64_t *state;
} maker;

/* A tree of so many leaves; the number of its root. A leaf's word names its label, a node has the
 * larger label of its children. */
static int64_t grow(maker *m, int64_t leaves) {
    if (leaves == 1) {
        int64_t word = kn__made_below(m->state, m->words), at = m->n++;
        m->x[at * FIELDS] = word;
        m->y[at] = word % m->labels;
        return at;
    }
    int64_t k = 1 + kn__made_below(m->state, leaves - 1);
    int64_t left = grow(m, k), right = grow(m, leaves - k), at = m->n++;
    m->x[at * FIELDS + LEFT] = left;
    m->x[at * FIELDS + RIGHT] = right;
    m->y[at] = m->y[left] > m->y[right] ? m->y[left] : m->y[right];
    return at;
}

static void tree_fill(void *x, void *y, const kn_model_facts *facts, uint64_t *state) {
    int64_t N = facts->x.dim[0];
    maker m = {.x = x, .y = y, .words = facts->words, .labels = facts->n_classes, .state = state};
    for (int64_t i = 0; i < N * FIELDS; i++) m.x[i] = -1;
    for (int64_t i = 0; i < N; i++) m.y[i] = -1;
    grow(&m, (N + 1) / 2);
}

static kn_status made_trees(kn_dataset **out, const kn_model_facts *facts, int64_t n,
                            kn_split split) {
    return kn__made_samples(out, facts, n, split, tree_fill, KN_I64, KN_SHAPE(facts->x.dim[0]),
                            KN_I64);
}

const kn_model_kind kn__tree_lstm = {
    .name = "tree_lstm",
    .summary = "an LSTM over binary trees, with a label at each node",
    .size_bytes = sizeof(kn__tree_sizes),
    .sizes = &(const kn__tree_sizes){.words = 18280, .width = 128, .labels = 5},
    .init = init,
    .is_pure = true,
    .reads_on_host = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){
        .n_params = 2521600,
        .data = "Stanford Treebank, trees of 19 leaves, 5 labels",
        .published = "trees a second on a K80: DyNet 68, Knet 43, Chainer 10",
        .x = {{37, FIELDS}, 2},
        .words = 18280,
        .n_classes = 5,
        .batch = 1,
        .n_made = 200,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .made = made_trees}};
