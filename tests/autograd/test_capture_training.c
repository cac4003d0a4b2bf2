/* Captured training: the bits of plain steps, and what changes between replays. */
#include <knet/capture.h>
#include <knet/op.h>
#include <knet/scale.h>
#include <math.h>

#include "autograd_test.h"

/* --- a net: convolution, pooling, dropout, two layers --- */

enum { BATCH = 6, SIDE = 8, CLASSES = 5, STEPS = 20, LOSSES = STEPS };

typedef struct net {
    kn_params *params;
    kn_rng *rng;
    kn_optim *optim;
    kn_tensor *c, *cb, *w1, *b1, *w2, *b2;
    kn_tensor *mean, *var; /* slots */
    double dropout;
} net;

typedef kn_status (*optim_fn)(kn_optim **out, kn_params *params);

static kn_status make_sgd(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 0.05, NULL);
}
static kn_status make_momentum(kn_optim **out, kn_params *p) {
    return kn_momentum_create(out, p, 0.05, 0.9, NULL);
}
static kn_status make_adam(kn_optim **out, kn_params *p) {
    return kn_adam_create(out, p, 0.01, &(kn_adam_options){.clip_norm = 0.5, .weight_decay = 0.01});
}
static kn_status make_lamb(kn_optim **out, kn_params *p) {
    return kn_lamb_create(out, p, 0.01, NULL);
}

static void net_open(net *n, kn_dtype dtype, double dropout, optim_fn optim) {
    *n = (net){.dropout = dropout};
    assert_ok(kn_params_create(&n->params, &(kn_params_options){.dtype = dtype, .seed = 3}));
    assert_ok(kn_rng_create(&n->rng, 5));
    n->c = kn_param(n->params, KN_SHAPE(4, 1, 3, 3), kn_init_xavier(), "c");
    n->cb = kn_param(n->params, KN_SHAPE(4), (kn_init){.kind = KN_INIT_ZEROS}, "cb");
    n->w1 = kn_param(n->params, KN_SHAPE(16, 36), kn_init_xavier(), "w1");
    n->b1 = kn_param(n->params, KN_SHAPE(16), (kn_init){.kind = KN_INIT_ZEROS}, "b1");
    n->w2 = kn_param(n->params, KN_SHAPE(CLASSES, 16), kn_init_xavier(), "w2");
    n->b2 = kn_param(n->params, KN_SHAPE(CLASSES), (kn_init){.kind = KN_INIT_ZEROS}, "b2");
    assert_ok(optim(&n->optim, n->params));
}

static void net_close(net *n) {
    kn_optim_destroy(n->optim);
    kn_rng_destroy(n->rng);
    kn_params_destroy(n->params);
}

static kn_tensor *net_loss(const net *n, kn_tensor *x, kn_tensor *y) {
    kn_tensor *h = kn_maxpool(kn_relu(kn_conv(x, n->c, n->cb, NULL)), KN_SHAPE(2, 2), NULL);
    h = kn_reshape(h, KN_SHAPE(kn_tensor_shape(x).dim[0], 36));
    h = kn_tanh(kn_linear(h, n->w1, n->b1));
    if (n->dropout > 0) h = kn_dropout(h, n->dropout, n->rng);
    return kn_cross_entropy(kn_linear(h, n->w2, n->b2), y);
}

/* One step over the halves of the batch where `parts` is 2. */
static kn_status net_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(n, in[0], in[1]);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(n->optim));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Batch number `step`, in the frame. */
static void batch_make(kn_tensor *in[2], int step, int batch, kn_dtype dtype) {
    double x[BATCH * SIDE * SIDE];
    int64_t y[BATCH];
    unsigned seed = 7u + (unsigned)step;
    for (int i = 0; i < batch * SIDE * SIDE; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (double)(seed >> 8) / (1 << 24) - 0.5;
    }
    for (int i = 0; i < batch; i++) y[i] = (step + i) % CLASSES;
    kn_tensor *wide = kn_tensor_from(x, KN_F64, KN_SHAPE(batch, 1, SIDE, SIDE));
    in[0] = dtype == KN_F64 ? wide : kn_cast(wide, KN_F32);
    in[1] = kn_tensor_from(y, KN_I64, KN_SHAPE(batch));
}

typedef struct trace {
    double loss[LOSSES];
    double params[4 * 9 + 4 + 16 * 36 + 16 + CLASSES * 16 + CLASSES];
} trace;

static void trace_params(trace *out, const net *n) {
    double *to = out->params;
    for (int i = 0; i < kn_params_count(n->params); i++) {
        kn_tensor *w = kn_params_at(n->params, i, NULL);
        for (int64_t k = 0; k < kn_tensor_numel(w); k++) *to++ = ops_at(w, k);
    }
}

typedef struct run {
    kn_dtype dtype;
    optim_fn optim;
    double dropout;
    int threads;
    bool new_rates, new_shapes;
} run;

static void train(trace *out, const run *r, bool captured, kn_capture_stats *stats) {
    net n;
    kn_capture *capture = NULL;
    KN_FRAME(.threads = r->threads);
    memset(out, 0, sizeof *out);
    net_open(&n, r->dtype, r->dropout, r->optim);
    assert_ok(kn_capture_create(&capture, NULL));
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        batch_make(in, step, r->new_shapes && step % 3 == 2 ? BATCH - 2 : BATCH, r->dtype);
        if (r->new_rates) assert_ok(kn_optim_lr(n.optim, 0.05 / (1 + step)));
        if (captured)
            assert_ok(kn_capture_run(&loss, 1, capture, in, 2, net_step, &n));
        else
            assert_ok(net_step(&loss, in, &n));
        assert_ok(kn_item(&out->loss[step], loss));
    }
    trace_params(out, &n);
    if (stats) kn_capture_stats_read(stats, sizeof *stats, capture);
    kn_capture_destroy(capture);
    net_close(&n);
}

static void same_bits(const run *r, uint64_t n_plans) {
    static trace plain, captured;
    kn_capture_stats stats;
    train(&plain, r, false, NULL);
    train(&captured, r, true, &stats);
    assert_memory_equal(&plain, &captured, sizeof plain);
    assert_true(plain.loss[STEPS - 1] != plain.loss[0]);
    assert_int_equal(stats.n_plans, n_plans);
    assert_int_equal(stats.n_launches, STEPS - 2 * n_plans);
    assert_true(stats.plan_bytes > 0 && stats.n_calls > 10);
}

static void twenty_steps_have_the_bits_of_plain_ones(void **state) {
    (void)state;
    static const optim_fn optims[] = {make_sgd, make_momentum, make_adam, make_lamb};
    static const int threads[] = {1, 2, 7};
    for (size_t o = 0; o < 4; o++) {
        for (size_t t = 0; t < 3; t++) {
            same_bits(&(run){.dtype = KN_F32, .optim = optims[o], .threads = threads[t]}, 1);
            same_bits(&(run){.dtype = KN_F64, .optim = optims[o], .threads = threads[t]}, 1);
        }
    }
}

static void dropout_draws_other_numbers_in_each_replay(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_adam, .threads = 2, .dropout = 0.4}, 1);
}

static void the_learning_rate_may_change(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_momentum, .threads = 1, .new_rates = true}, 1);
}

static void other_shapes_have_a_plan_of_their_own(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_adam, .threads = 1, .new_shapes = true}, 2);
}

/* --- backward alone: gradients add up --- */

static kn_status backward_only(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(n, in[0], in[1]);
    KN_TRY(kn_backward(loss));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Two batches a step: the first overwrites the gradients, the second adds to them. */
static void accumulate(trace *out, bool captured) {
    net n;
    kn_capture *capture = NULL;
    KN_FRAME();
    memset(out, 0, sizeof *out);
    net_open(&n, KN_F32, 0.2, make_adam);
    assert_ok(kn_capture_create(&capture, NULL));
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        for (int i = 0; i < 2; i++) {
            batch_make(in, 2 * step + i, BATCH, KN_F32);
            kn_capture_select(capture, (uint64_t)i);
            if (captured && step > 0)
                assert_ok(kn_capture_run(&loss, 1, capture, in, 2, backward_only, &n));
            else
                assert_ok(backward_only(&loss, in, &n));
        }
        assert_ok(kn_item(&out->loss[step], loss));
        assert_ok(kn_optim_step(n.optim));
    }
    trace_params(out, &n);
    kn_capture_destroy(capture);
    net_close(&n);
}

static void gradients_of_several_captured_batches_add_up(void **state) {
    (void)state;
    static trace plain, captured;
    accumulate(&plain, false);
    accumulate(&captured, true);
    assert_memory_equal(&plain, &captured, sizeof plain);
}

/* --- gradients that no update has used --- */

typedef struct flaky {
    net net;
    bool fails;
} flaky;

static kn_status flaky_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    flaky *f = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(&f->net, in[0], in[1]);
    KN_TRY(kn_backward(loss));
    if (f->fails) return KN_FAIL(KN_ERR_IO, "the log is full");
    KN_TRY(kn_optim_step(f->net.optim));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Step fails_at fails after backward; before step stray_at there is a backward without an update.
 */
static void train_flaky(trace *out, int fails_at, int stray_at, kn_capture *capture) {
    flaky f = {.fails = false};
    KN_FRAME();
    memset(out, 0, sizeof *out);
    net_open(&f.net, KN_F32, 0, make_momentum);
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        batch_make(in, step, BATCH, KN_F32);
        if (step == stray_at) assert_ok(backward_only(&loss, in, &f.net));
        f.fails = step == fails_at;
        kn_status status = capture ? kn_capture_run(&loss, 1, capture, in, 2, flaky_step, &f)
                                   : flaky_step(&loss, in, &f);
        assert_int_equal(status, f.fails ? KN_ERR_IO : KN_OK);
        if (!f.fails) assert_ok(kn_item(&out->loss[step], loss));
    }
    trace_params(out, &f.net);
    net_close(&f.net);
}

static void flaky_as_plain(int fails_at, int stray_at, int n_launches) {
    static trace plain, captured;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    assert_ok(kn_capture_create(&capture, NULL));
    train_flaky(&plain, fails_at, stray_at, NULL);
    train_flaky(&captured, fails_at, stray_at, capture);
    assert_memory_equal(&plain, &captured, sizeof plain);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_recorded, 2); /* one that adds to gradients */
    assert_int_equal(stats.n_launches, n_launches);
    kn_capture_destroy(capture);
}

static void a_plan_that_adds_to_gradients_is_not_replayed_where_there_are_none(void **state) {
    (void)state;
    enum { NEVER = -1 };
    flaky_as_plain(1, NEVER, STEPS - 4);
    flaky_as_plain(NEVER, 1, STEPS - 3);
    flaky_as_plain(NEVER, 4, STEPS - 3);
}

static void a_launch_for_other_gradients_is_an_error(void **state) {
    (void)state;
    net n;
    kn_capture *capture = NULL;
    KN_FRAME();
    net_open(&n, KN_F32, 0, make_sgd);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *in[2], *loss = NULL;
    batch_make(in, 0, BATCH, KN_F32);
    assert_ok(net_step(&loss, in, &n));
    assert_ok(kn_capture_begin(capture, in, 2));
    assert_ok(net_step(&loss, in, &n));
    assert_ok(kn_capture_end(capture, &loss, 1));
    assert_ok(kn_capture_launch(capture, in, 2));
    assert_ok(backward_only(&loss, in, &n));
    assert_false(kn_capture_has(capture, in, 2));
    assert_fails(kn_capture_launch(capture, in, 2), KN_ERR_INVALID, "adds to gradients");
    assert_ok(kn_optim_step(n.optim));
    assert_ok(kn_capture_launch(capture, in, 2));
    kn_capture_destroy(capture);
    net_close(&n);
}

/* --- a loss scale: its factor changes between replays --- */

typedef struct scaled {
    net net;
    kn_loss_scale *scale;
} scaled;

static kn_status scaled_backward(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const scaled *s = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(&s->net, in[0], in[1]);
    KN_SLOT(kept);
    KN_TRY(kn_hold(&kept, loss));
    KN_TRY(kn_backward(kn_loss_scale_apply(s->scale, loss)));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* It grows every third step, and step 9 is left out. */
static void train_scaled(trace *out, kn_dtype dtype, bool captured) {
    scaled s;
    kn_capture *capture = NULL;
    KN_FRAME();
    memset(out, 0, sizeof *out);
    net_open(&s.net, dtype, 0.2, make_adam);
    const kn_loss_scale_options options = {.initial = 3, .growth = 5, .every = 3};
    assert_ok(kn_loss_scale_create(&s.scale, s.net.params, &options));
    assert_ok(kn_capture_create(&capture, NULL));
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        bool stepped = false;
        batch_make(in, step, BATCH, dtype);
        if (step == 9) in[0] = kn_affine(in[0], (double)INFINITY, 0);
        if (captured)
            assert_ok(kn_capture_run(&loss, 1, capture, in, 2, scaled_backward, &s));
        else
            assert_ok(scaled_backward(&loss, in, &s));
        assert_ok(kn_loss_scale_step(s.scale, s.net.optim, &stepped));
        assert_true(stepped == (step != 9));
        if (step != 9) assert_ok(kn_item(&out->loss[step], loss));
    }
    out->loss[9] = kn_loss_scale_state_get(s.scale).factor;
    trace_params(out, &s.net);
    kn_capture_destroy(capture);
    kn_loss_scale_destroy(s.scale);
    net_close(&s.net);
}

static void replays_use_the_loss_scale_of_their_time(void **state) {
    (void)state;
    static trace plain, captured;
    for (int i = 0; i < 2; i++) {
        train_scaled(&plain, i ? KN_F64 : KN_F32, false);
        train_scaled(&captured, i ? KN_F64 : KN_F32, true);
        assert_memory_equal(&plain, &captured, sizeof plain);
        assert_true(plain.loss[9] > 100);
    }
}

static void what_only_the_host_can_decide_is_an_error_inside(void **state) {
    (void)state;
    scaled s;
    kn_capture *capture = NULL;
    KN_FRAME();
    net_open(&s.net, KN_F32, 0, make_adam);
    assert_ok(kn_loss_scale_create(&s.scale, s.net.params, NULL));
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_capture_begin(capture, NULL, 0));
    assert_fails(kn_loss_scale_step(s.scale, s.net.optim, NULL), KN_ERR_INVALID,
                 "kn_loss_scale_step: inside a captured step");
    assert_fails(kn_optim_lr(s.net.optim, 0.5), KN_ERR_INVALID,
                 "kn_optim_lr: inside a captured step, whose replays would all set the rate 0.5");
    kn_capture_cancel(capture);
    assert_ok(kn_optim_lr(s.net.optim, 0.5));
    kn_capture_destroy(capture);
    kn_loss_scale_destroy(s.scale);
    net_close(&s.net);
}

/* The state of the optimiser is there, gradients are not. */
static void the_first_step_of_all_may_be_the_recorded_one(void **state) {
    (void)state;
    trace plain, captured;
    for (int is_captured = 0; is_captured < 2; is_captured++) {
        net n;
        kn_capture *capture = NULL;
        net_open(&n, KN_F32, 0, make_adam);
        assert_ok(kn_optim_prepare(n.optim));
        if (is_captured) assert_ok(kn_capture_create(&capture, NULL));
        for (int step = 0; step < 4; step++) {
            KN_FRAME();
            kn_tensor *in[2], *loss = NULL;
            batch_make(in, step, BATCH, KN_F32);
            if (capture && kn_capture_has(capture, in, 2)) {
                assert_ok(kn_capture_launch(capture, in, 2));
                continue;
            }
            if (capture) assert_ok(kn_capture_begin(capture, in, 2));
            assert_ok(net_step(&loss, in, &n));
            if (capture) assert_ok(kn_capture_end(capture, &loss, 1));
        }
        trace_params(is_captured ? &captured : &plain, &n);
        kn_capture_destroy(capture);
        net_close(&n);
    }
    assert_memory_equal(plain.params, captured.params, sizeof plain.params);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(twenty_steps_have_the_bits_of_plain_ones),
                     OPS_TEST(dropout_draws_other_numbers_in_each_replay),
                     OPS_TEST(the_learning_rate_may_change),
                     OPS_TEST(other_shapes_have_a_plan_of_their_own),
                     OPS_TEST(gradients_of_several_captured_batches_add_up),
                     OPS_TEST(a_plan_that_adds_to_gradients_is_not_replayed_where_there_are_none),
                     OPS_TEST(a_launch_for_other_gradients_is_an_error),
                     OPS_TEST(replays_use_the_loss_scale_of_their_time),
                     OPS_TEST(what_only_the_host_can_decide_is_an_error_inside),
                     OPS_TEST(the_first_step_of_all_may_be_the_recorded_one));
}
