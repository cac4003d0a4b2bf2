/* Forwards of layers: on several threads, and where they fail; pooling layers that would. */
#include <knet/layer.h>
#include <knet/rule.h>
#include <knet/tape.h>
#include <pthread.h>

#include "test.h"

typedef struct fixture {
    kn_params *params;
    kn_layer *net;
} fixture;

static fixture fixture_make(void) {
    fixture f = {0};
    assert_ok(kn_params_create(&f.params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_layer_create(&f.net, f.params, NULL));
    return f;
}

static void fixture_release(fixture *f) {
    kn_layer_destroy(f->net);
    kn_params_destroy(f->params);
}

/* --- threads --- */

typedef struct other {
    kn_layer *net;
    int n_calls;
    int64_t n_nodes; /* of the other thread's tape */
} other;

static int64_t nodes_of_forward(kn_layer *net) {
    KN_TAPE(.threads = 1);
    kn_tensor *y = kn_layer_forward(net, kn_watch(kn_ones(KN_SHAPE(2, 4))));
    return y && kn_check() == KN_OK ? kn_tape_nodes() : -1;
}

static void *run_other(void *ctx) {
    other *o = ctx;
    o->n_nodes = nodes_of_forward(o->net);
    return NULL;
}

/* In the middle of its first forward another thread has a whole one. */
static kn_tensor *with_other(void *ctx, kn_layer *self, kn_tensor *x) {
    other *o = ctx;
    pthread_t thread;
    (void)self;
    if (o->n_calls++ == 0 && pthread_create(&thread, NULL, run_other, o) == 0)
        pthread_join(thread, NULL);
    return kn_tanh(kn_square(x));
}

static void a_forward_that_recomputes_leaves_those_of_other_threads_alone(void **state) {
    (void)state;
    fixture f = fixture_make();
    other o = {.net = f.net};
    kn_layer *block = kn_layer_sequential(f.net, "block");
    assert_non_null(kn_layer_linear(block, "fc", 4, 4, NULL));
    assert_non_null(kn_layer_function(block, "f", with_other, &o));
    kn_layer_recompute_set(block, true);
    assert_int_equal(nodes_of_forward(f.net), 2); /* x and the block */
    assert_int_equal(o.n_nodes, 2);
    assert_int_equal(nodes_of_forward(f.net), 2);
    fixture_release(&f);
}

/* --- errors --- */

#define assert_forward_fails(layer, x, want, text)                                                 \
    do {                                                                                           \
        assert_null(kn_layer_forward(layer, x));                                                   \
        assert_fails(kn_check(), want, text);                                                      \
        assert_int_equal(strncmp(kn_last_error()->message, text, strlen(text)), 0);                \
    } while (0)

static kn_tensor *add_five(void *ctx, kn_layer *self, kn_tensor *x) {
    (void)self;
    return ctx ? NULL : kn_add(x, kn_ones(KN_SHAPE(5)));
}

static void an_error_of_a_group_names_its_path_once(void **state) {
    (void)state;
    fixture f = fixture_make();
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer *res = kn_layer_residual(block, "res");
    assert_non_null(kn_layer_linear(res, "fc", 4, 3, NULL));
    kn_layer *dense = kn_layer_dense(block, "dense");
    assert_non_null(kn_layer_maxpool(dense, "pool", KN_SHAPE(2, 2), NULL));
    kn_layer *own = kn_layer_function(block, "own", add_five, NULL);
    kn_layer *none = kn_layer_function(block, "none", add_five, &f);
    KN_FRAME();
    assert_forward_fails(res, kn_ones(KN_SHAPE(2, 4)), KN_ERR_SHAPE, "block.res: kn_add:");
    assert_forward_fails(res, kn_ones(KN_SHAPE(2, 5)), KN_ERR_SHAPE, "block.res.fc: kn_linear");
    assert_forward_fails(f.net, kn_ones(KN_SHAPE(2, 5)), KN_ERR_SHAPE, "block.res.fc: kn_linear");
    assert_forward_fails(dense, kn_ones(KN_SHAPE(2, 3, 4, 4)), KN_ERR_SHAPE,
                         "block.dense: kn_concat:");
    assert_forward_fails(own, kn_ones(KN_SHAPE(4)), KN_ERR_SHAPE, "block.own: kn_add:");
    assert_forward_fails(none, kn_ones(KN_SHAPE(4)), KN_ERR_INVALID,
                         "block.none: its function gave no result");
    fixture_release(&f);
}

/* An activation that gives nothing, and says nothing. */
static kn_tensor *act_none(kn_tensor *x) {
    (void)x;
    return NULL;
}

static void an_activation_without_a_result_is_an_error_of_its_layer(void **state) {
    (void)state;
    static const char text[] = "act gave no result";
    char want[64];
    fixture f = fixture_make();
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer *layers[] = {
        kn_layer_act(block, "act", act_none),
        kn_layer_linear(block, "fc", 4, 4, &(kn_layer_linear_options){.act = act_none}),
        kn_layer_layernorm(block, "norm", KN_SHAPE(4), &(kn_layer_norm_options){.act = act_none})};
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        snprintf(want, sizeof want, "%s: %s", kn_layer_path(layers[i]), text);
        assert_forward_fails(layers[i], x, KN_ERR_INVALID, want);
        assert_forward_fails(f.net, x, KN_ERR_INVALID, "block.act: act gave");
    }
    kn_layer *bare = kn_layer_linear(f.net, "bare", 4, 4, NULL);
    assert_null(kn_layer_forward_add(bare, NULL, x, x, act_none));
    assert_fails(kn_check(), KN_ERR_INVALID, "bare: act gave no result");
    kn_layer *conv = kn_layer_conv(f.net, "conv", 1, 1, KN_SHAPE(1, 1), NULL);
    kn_layer *norm = kn_layer_batchnorm(f.net, "bn", 1, NULL);
    kn_tensor *image = kn_ones(KN_SHAPE(1, 1, 2, 2));
    assert_ok(kn_layer_freeze(f.net));
    assert_null(kn_layer_forward_add(conv, norm, image, image, act_none));
    assert_fails(kn_check(), KN_ERR_INVALID, "conv: act gave no result");
    fixture_release(&f);
}

static void a_recurrent_forward_is_one_of_its_layer(void **state) {
    (void)state;
    fixture f = fixture_make();
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer *rnn = kn_layer_rnn(block, "rnn", 4, &(kn_rnn_options){.hidden = 3});
    kn_tensor *h_n = NULL;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 1, 4));
    const kn_layer_rnn_state wrong = {.h0 = kn_ones(KN_SHAPE(1, 7, 3))}, last = {.h_n = &h_n};
    assert_null(kn_layer_rnn_forward(rnn, x, &wrong));
    assert_fails(kn_check(), KN_ERR_SHAPE, "block.rnn: kn_rnn");
    assert_null(kn_layer_rnn_forward(rnn, kn_ones(KN_SHAPE(2, 1, 5)), NULL));
    assert_fails(kn_check(), KN_ERR_SHAPE, "block.rnn: kn_layer_rnn: x is [2,1,5]");
    assert_non_null(kn_layer_rnn_forward(rnn, x, &last));
    assert_int_equal(kn_tensor_numel(h_n), 3);
    assert_non_null(kn_data(h_n)); /* it is the caller's */
    kn_layer_recompute_set(rnn, true);
    KN_TAPE();
    assert_non_null(kn_layer_rnn_forward(rnn, kn_watch(x), NULL));
    assert_int_equal(kn_tape_nodes(), 2);
    fixture_release(&f);
}

/* --- ranks --- */

typedef struct twin {
    int n_calls;
} twin;

/* The other rank has the same batch. */
static kn_status gather_same(void *ctx, double all[], int64_t n) {
    ((twin *)ctx)->n_calls++;
    memcpy(all + n, all, (size_t)n * sizeof *all);
    return KN_OK;
}

static void norms_that_are_synced_have_the_statistics_of_all_ranks(void **state) {
    (void)state;
    fixture f = fixture_make();
    twin ctx = {0};
    const kn_batch_ranks ranks = {gather_same, &ctx, 0, 2};
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer *norm = kn_layer_batchnorm(block, "norm", 3, NULL);
    assert_non_null(kn_layer_linear(f.net, "fc", 3, 3, NULL));
    assert_non_null(kn_layer_batchnorm(f.net, "last", 3, NULL));
    assert_int_equal(kn_layer_sync(NULL, &ranks), 0);
    assert_int_equal(kn_layer_sync(block, &ranks), 1);
    kn_layer_mode_set(f.net, KN_LAYER_TRAIN);
    KN_FRAME();
    kn_tensor *x = kn_tensor_from((const float[]){1, 2, 3, 5, 8, 13}, KN_F32, KN_SHAPE(2, 3));
    kn_tensor *both = kn_concat((kn_tensor *const[]){x, x}, 2, 0), *y = kn_layer_forward(norm, x);
    kn_tensor *mean = kn_zeros(KN_SHAPE(3)), *var = kn_ones(KN_SHAPE(3));
    kn_tensor *want =
        kn_batchnorm(both, mean, var, kn_layer_param(norm, "weight"), kn_layer_param(norm, "bias"),
                     &(kn_batchnorm_options){.training = 1});
    assert_ok(kn_check());
    assert_int_equal(ctx.n_calls, 1);
    for (int i = 0; i < 6; i++)
        assert_close(((const float *)kn_data(y))[i], ((const float *)kn_data(want))[i], 1e-5, 1e-6);
    const float *running = kn_data(kn_layer_state_at(norm, 1, NULL)), *whole = kn_data(var);
    for (int i = 0; i < 3; i++)
        assert_close(running[i], whole[i], 1e-5, 0); /* by 4 - 1, not 2 - 1 */
    assert_int_equal(kn_layer_sync(f.net, NULL), 2);
    assert_non_null(kn_layer_forward(norm, x));
    assert_int_equal(ctx.n_calls, 1);
    fixture_release(&f);
}

/* --- random numbers --- */

typedef struct noise {
    kn_tensor *w;
    kn_rng *rng;
} noise;
static kn_tensor *noisy(void *ctx, kn_layer *self, kn_tensor *x) {
    const noise *n = ctx;
    (void)self;
    return kn_dropout(kn_mul(x, n->w), 0.5, n->rng);
}

static void a_block_of_ones_own_draws_the_same_again(void **state) {
    (void)state;
    enum { WIDTH = 64 };
    fixture f = fixture_make();
    noise n = {kn_param(f.params, KN_SHAPE(WIDTH), kn_init_uniform(1, 2), "w"), NULL};
    assert_ok(kn_rng_create(&n.rng, 3));
    kn_layer *block = kn_layer_sequential(f.net, "block");
    assert_non_null(kn_layer_dropout(block, "drop", 0.25));
    assert_non_null(kn_layer_function(block, "noise", noisy, &n));
    float grad[2][WIDTH];
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        kn_layer_recompute_set(block, recomputes);
        assert_ok(kn_rng_state_set(n.rng, 3, 0));
        assert_ok(kn_rng_state_set(kn_layer_rng(f.net), 4, 0));
        KN_TAPE();
        kn_tensor *y = kn_layer_forward(f.net, kn_ones(KN_SHAPE(WIDTH))), *dw = NULL;
        assert_ok(kn_gradients(&dw, y, &n.w, 1, NULL));
        assert_ok(kn_copy_out(grad[recomputes], sizeof grad[0], dw));
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
    kn_rng_destroy(n.rng);
    fixture_release(&f);
}

/* --- values between layers --- */

static kn_tensor *hold(void *ctx, kn_layer *self, kn_tensor *x) {
    (void)self;
    kn_tensor *y = kn_tanh(x);
    kn_status status = kn_hold(ctx, y);
    return status == KN_OK ? y : kn_error_defer(status);
}
static kn_tensor *add_held(void *ctx, kn_layer *self, kn_tensor *x) {
    (void)self;
    return kn_add(x, *(kn_tensor **)ctx);
}

static void a_skip_connection_in_a_slot_lives_to_its_end(void **state) {
    (void)state;
    fixture f = fixture_make();
    KN_SLOT(skip);
    assert_non_null(kn_layer_function(f.net, "from", hold, &skip));
    assert_non_null(kn_layer_linear(f.net, "fc", 4, 4, NULL));
    assert_non_null(kn_layer_act(f.net, "act", kn_tanh));
    assert_non_null(kn_layer_function(f.net, "to", add_held, &skip));
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(1, 4)), *y = kn_layer_forward(f.net, x), *taped = NULL;
    assert_ok(kn_check());
    {
        KN_TAPE();
        taped = kn_keep(kn_layer_forward(f.net, x));
    }
    assert_memory_equal(kn_data(y), kn_data(taped), 4 * sizeof(float));
    fixture_release(&f);
}

/* --- pooling --- */

static void pooling_refuses_at_creation_what_no_x_allows(void **state) {
    (void)state;
    static const struct {
        kn_pooling_options o;
        kn_shape window;
        kn_status status;
        const char *error;
    } wrong[] = {
        {{.padding = {0, 2}},
         {{2, 2}, 2},
         KN_ERR_SHAPE,
         "padding[1] is 2; it must be at most half"},
        {{.padding = {2}, .dilation = {2}}, {{2, 2}, 2}, KN_ERR_SHAPE, "half the window's 3"},
        {{.ceil = 2}, {{2, 2}, 2}, KN_ERR_INVALID, "ceil is 2; it must be 0, 1 or KN_OFF"},
        {{.inside = -5}, {{2, 2}, 2}, KN_ERR_INVALID, "inside is -5"},
        {{.skip_nan = 3}, {{2, 2}, 2}, KN_ERR_INVALID, "skip_nan is 3"},
        {{.unused = 7}, {{2, 2}, 2}, KN_ERR_INVALID, "unused is 7; it must be 0"},
        {{.dilation = {1ll << 31}}, {{2, 2}, 2}, KN_ERR_INVALID, "dilation[0] is 2147483648; it"},
        {{.stride = {0, 0, 1}}, {{2, 2}, 2}, KN_ERR_INVALID, "stride[2] is 1; it must be 0"},
        {{.ceil = 0}, {{1ll << 32}, 1}, KN_ERR_SHAPE, "window[0] is 4294967296; it must be below"},
        {{.ceil = 0}, {{1, 16, 17}, 3}, KN_ERR_UNSUPPORTED, "more than 256 elements"},
    };
    fixture f = fixture_make();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int k = 0; k < 2; k++) {
            kn_layer *(*make)(kn_layer *, const char *, kn_shape, const kn_pooling_options *) =
                k ? kn_layer_avgpool : kn_layer_maxpool;
            if (k && wrong[i].status == KN_ERR_UNSUPPORTED) continue; /* of maxima alone */
            assert_null(make(f.net, "pool", wrong[i].window, &wrong[i].o));
            assert_fails(kn_check(), wrong[i].status, wrong[i].error);
            test_assert_message(
                k ? "kn_layer_avgpool: pool: " : "kn_layer_maxpool: pool: ", __FILE__, __LINE__);
        }
    }
    assert_non_null(kn_layer_avgpool(f.net, "wide", KN_SHAPE(16, 17), NULL));
    assert_non_null(kn_layer_maxpool(f.net, "most", KN_SHAPE(16, 16),
                                     &(kn_pooling_options){.padding = {8, 8}, .ceil = KN_OFF}));
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(a_forward_that_recomputes_leaves_those_of_other_threads_alone),
                     TEST(an_error_of_a_group_names_its_path_once),
                     TEST(an_activation_without_a_result_is_an_error_of_its_layer),
                     TEST(a_recurrent_forward_is_one_of_its_layer),
                     TEST(norms_that_are_synced_have_the_statistics_of_all_ranks),
                     TEST(a_block_of_ones_own_draws_the_same_again),
                     TEST(a_skip_connection_in_a_slot_lives_to_its_end),
                     TEST(pooling_refuses_at_creation_what_no_x_allows));
}
