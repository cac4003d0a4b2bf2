/* REINFORCE, Williams 1992, on the game of catch: a ball falls from a random column, a paddle in
 * the last row moves left, stays or moves right, and the game ends with 1 if it catches the ball,
 * else -1. Games of a batch are played together, on the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { MOVES = 3 };

static kn_status init(void *model, kn_layer *net) { /* x [B,rows,columns] → [B,3] */
    const kn__reinforce_sizes *s = model;
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", s->rows * s->columns, s->hidden,
                    &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", s->hidden, MOVES, NULL);
    return kn_check();
}

/* Games in play. */
typedef struct games {
    int64_t n, rows, columns, steps;
    float *dice;            /* [n,steps], in 0 … 1: which move is drawn */
    int64_t *ball, *paddle; /* [n]: columns */
    kn_tensor *boards;      /* [steps,n,rows,columns]: before each step; on the host, the pool's */
    float *board;           /* their data */
    int64_t *move;          /* [steps,n] */
    double *gain;           /* [n]: 1 or -1 */
} games;

static void games_release(games *g) {
    free(g->dice);
    free(g->ball);
    free(g->paddle);
    free(g->move);
    free(g->gain);
}

static int64_t column_of(const float *row, int64_t n) {
    int64_t i = 0;
    while (i < n - 1 && row[i] <= 0) i++;
    return i;
}

static kn_tensor *boards_make(const games *g) {
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F32, .record = KN_OFF);
    return kn_keep(kn_zeros(KN_SHAPE(g->steps, g->n, g->rows, g->columns)));
}

/* x [B,rows,columns]: the first boards; y [B,rows-1]: the dice; f32 on the host. */
static bool games_init(games *g, const kn__reinforce_sizes *s, const float *x, const float *y,
                       int64_t n) {
    size_t count = (size_t)n;
    *g = (games){.n = n, .rows = s->rows, .columns = s->columns, .steps = s->rows - 1};
    g->dice = calloc(count * (size_t)g->steps + 1, sizeof(float));
    g->ball = calloc(count + 1, sizeof(int64_t));
    g->paddle = calloc(count + 1, sizeof(int64_t));
    g->boards = boards_make(g);
    g->board = g->boards ? kn_data_mut(g->boards) : NULL;
    g->move = calloc(count * (size_t)g->steps + 1, sizeof(int64_t));
    g->gain = calloc(count + 1, sizeof(double));
    if (!g->dice || !g->ball || !g->paddle || !g->board || !g->move || !g->gain) return false;
    memcpy(g->dice, y, count * (size_t)g->steps * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        const float *first = x + i * s->rows * s->columns;
        g->ball[i] = column_of(first, s->columns);
        g->paddle[i] = column_of(first + (s->rows - 1) * s->columns, s->columns);
    }
    return true;
}

/* The boards before step t, in their place: [n,rows,columns]. */
static kn_tensor *boards_draw(games *g, int64_t t) {
    int64_t cells = g->rows * g->columns;
    float *all = g->board + t * g->n * cells;
    for (int64_t i = 0; i < g->n; i++) {
        all[i * cells + t * g->columns + g->ball[i]] = 1;
        all[i * cells + (g->rows - 1) * g->columns + g->paddle[i]] = 1;
    }
    return kn_select(g->boards, t, 0);
}

/* Moves by the probabilities p [n,3]: drawn, or the likeliest. */
static void games_move(games *g, int64_t t, const float *p, bool draws) {
    for (int64_t i = 0; i < g->n; i++, p += MOVES) {
        float dice = g->dice[i * g->steps + t];
        int64_t move = draws                          ? (dice >= p[0]) + (dice >= p[0] + p[1])
                       : p[1] >= p[0] && p[1] >= p[2] ? 1
                       : p[2] > p[0]                  ? 2
                                                      : 0;
        int64_t to = g->paddle[i] + move - 1;
        g->move[t * g->n + i] = move;
        g->paddle[i] = to < 0 ? 0 : to >= g->columns ? g->columns - 1 : to;
        g->gain[i] = g->paddle[i] == g->ball[i] ? 1 : -1;
    }
}

static kn_tensor *to_net(kn_tensor *x, const kn_batch *batch) {
    return kn_cast(kn_to(x, kn_tensor_device(batch->x)), kn_tensor_dtype(batch->x));
}

static kn_tensor *from_net(kn_tensor *x) { return kn_to(kn_cast(x, KN_F32), kn_device_host()); }

/* All games to their ends, without gradients. */
static kn_status games_play(games *g, kn_layer *net, const kn_batch *batch, bool draws) {
    KN_FRAME(.record = KN_OFF);
    for (int64_t t = 0; t < g->steps; t++) {
        kn_tensor *x = to_net(boards_draw(g, t), batch);
        const float *p = kn_data(from_net(kn_softmax(kn_layer_forward(net, x), 1)));
        KN_TRY(kn_check());
        games_move(g, t, p, draws);
    }
    return KN_OK;
}

/* -Σ log p(move)·(gain - mean gain), a mean over the games: its gradient is that of the mean gain,
 * with less variance. */
static kn_tensor *surrogate(const games *g, kn_layer *net, const kn_batch *batch, double mean) {
    int64_t n = g->n, all = n * g->steps;
    kn_device *device = kn_tensor_device(batch->x);
    float *weight = calloc((size_t)all + 1, sizeof *weight);
    if (!weight)
        return KN_FAIL_NULL(KN_ERR_OOM, "reinforce: no memory for %lld games", (long long)n);
    for (int64_t k = 0; k < all; k++) weight[k] = (float)((g->gain[k % n] - mean) / (double)n);
    kn_tensor *x = to_net(kn_reshape(g->boards, KN_SHAPE(all, g->rows, g->columns)), batch);
    kn_tensor *move = kn_to(kn_tensor_from(g->move, KN_I64, KN_SHAPE(all)), device);
    kn_tensor *terms = kn_cross_entropy_with(
        kn_layer_forward(net, x), move, &(kn_cross_entropy_options){.reduction = KN_REDUCE_NONE});
    kn_tensor *weights = to_net(kn_tensor_from(weight, KN_F32, KN_SHAPE(all)), batch);
    kn_tensor *loss = kn_sum(kn_mul(terms, weights), KN_ALL, false);
    free(weight);
    return loss;
}

static kn_tensor *loss_of(games *g, kn_layer *net, const kn_batch *batch) {
    bool training = kn_layer_is_training(net);
    double mean = 0;
    if (games_play(g, net, batch, training) < 0) return kn_error_defer(kn_last_error()->status);
    for (int64_t i = 0; i < g->n; i++) mean += g->gain[i] / (double)g->n;
    return training ? surrogate(g, net, batch, mean) : kn_affine(kn_zeros(KN_SCALAR), 1, -mean);
}

/* Of training the number whose gradient is REINFORCE's; of tests, which play the likeliest moves,
 * the mean gain with a minus: -1 if all balls are caught. */
static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__reinforce_sizes *s = model;
    char x[64], y[64];
    snprintf(x, sizeof x, "[B,%d,%d]", (int)s->rows, (int)s->columns);
    if (!kn__batch_fits("reinforce", "x", batch->x, x)) return NULL;
    int64_t n = kn__batch_size("reinforce", batch->x);
    if (!n) return NULL;
    snprintf(y, sizeof y, "[%lld,%d]", (long long)n, (int)s->rows - 1);
    if (!kn__batch_fits("reinforce", "y", batch->y, y)) return NULL;
    const float *boards = kn_data(from_net(batch->x)), *dice = kn_data(from_net(batch->y));
    if (!boards || !dice) return NULL;
    games g;
    kn_tensor *out = games_init(&g, s, boards, dice, n) ? loss_of(&g, net, batch)
                     : kn_pending()
                         ? NULL
                         : KN_FAIL_NULL(KN_ERR_OOM, "reinforce: no memory for the games");
    games_release(&g);
    return out;
}

/* --- made-up games: x the first board, y the dice --- */

static void game_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    float *x = x_, *y = y_;
    int64_t rows = facts->x.dim[0], columns = facts->x.dim[1];
    x[kn__made_below(state, columns)] = 1;
    x[(rows - 1) * columns + columns / 2] = 1;
    for (int64_t t = 0; t < rows - 1; t++) y[t] = (float)kn__made_uniform(state);
}

static kn_status made_games(kn_dataset **out, const kn_model_facts *facts, int64_t n,
                            kn_split split) {
    return kn__made_samples(out, facts, n, split, game_fill, KN_F32, KN_SHAPE(facts->x.dim[0] - 1),
                            KN_F32);
}

const kn_model_kind kn__reinforce = {
    .name = "reinforce",
    .summary = "a policy that learns the game of catch by REINFORCE",
    .size_bytes = sizeof(kn__reinforce_sizes),
    .sizes = &(const kn__reinforce_sizes){.rows = 10, .columns = 5, .hidden = 64},
    .init = init,
    .is_pure = true,
    .reads_on_host = true,
    .loss = loss,
    .facts = &(const kn_model_facts){.n_params = 3459,
                                     .data = "games of catch on 10x5 cells, played as it learns",
                                     .x = {{10, 5}, 2},
                                     .batch = 64,
                                     .n_made = 6400,
                                     .optimizer = "adam",
                                     .lr = 0.005,
                                     .optim = kn__optim_adam,
                                     .made = made_games}};
