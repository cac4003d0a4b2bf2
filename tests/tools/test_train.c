/* Models and the training loop, on made-up images. */
#include <knet/op.h>
#include <knet/train.h>
#include <math.h>
#include <unistd.h>

#include "files.h"
#include "test.h"
#include "train_fixture.h"

static const char *const models[] = {"lenet", "mlp"};

static void models_have_the_parameters_of_their_papers(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, "lenet", 100);
    assert_int_equal(kn_params_numel(f.params), 431080);
    assert_string_equal(kn_model_name(f.model), "lenet");
    fixture_release(&f);
    fixture_init(&f, "mlp", 100);
    assert_int_equal(kn_params_numel(f.params), 50890);
    fixture_release(&f);
}

static void an_unknown_model_lists_those_there_are(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_model *model = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_fails(kn_model_create(&model, "vgg", params), KN_ERR_INVALID,
                 "unknown model 'vgg'; there are: linear, softmax, mlp, lenet, ");
    assert_null(model);
    kn_params_destroy(params);
}

static void logits_have_a_row_per_image(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        kn_batch b;
        fixture_init(&f, models[i], 100);
        assert_true(kn_loader_next(f.train, &b));
        {
            KN_FRAME();
            kn_shape shape = kn_tensor_shape(kn_model_logits(f.model, b.x));
            assert_ok(kn_check());
            assert_int_equal(shape.n_dims, 2);
            assert_int_equal(shape.dim[0], 50);
            assert_int_equal(shape.dim[1], 10);
        }
        fixture_release(&f);
    }
}

static void both_models_learn_separable_classes(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        kn_train_result result;
        fixture_init(&f, models[i], 1000);
        assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test,
                           &(kn_train_options){.epochs = 3}));
        assert_int_equal(result.n_steps, 60);
        assert_int_equal(result.last.index, 3);
        assert_false(result.stopped);
        assert_true(result.last.loss < 1.0);
        assert_true(result.last.accuracy > 0.9 && result.last.accuracy <= 1);
        /* a whole number of the 220 images */
        assert_close(result.last.accuracy * 220, nearbyint(result.last.accuracy * 220), 0, 1e-9);
        fixture_release(&f);
    }
}

/* --- callbacks --- */
typedef struct seen {
    int steps, epochs, stop_at;
    double loss;
} seen;

static bool on_step(void *ctx, const kn_train_step *step) {
    seen *s = ctx;
    s->steps++;
    assert_int_equal(step->index, (s->steps - 1) % 20 + 1);
    assert_int_equal(step->n_steps, 20);
    assert_ok(kn_item(&s->loss, step->loss));
    return s->steps != s->stop_at;
}

static void on_epoch(void *ctx, const kn_epoch *epoch) {
    seen *s = ctx;
    assert_int_equal(epoch->index, ++s->epochs);
    assert_int_equal(epoch->n_steps, 20);
    assert_true(isfinite(epoch->loss));
}

static void callbacks_see_every_step_and_epoch(void **state) {
    (void)state;
    fixture f;
    seen s = {0};
    kn_train_result result;
    fixture_init(&f, "mlp", 1000);
    assert_ok(
        kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test,
                 &(kn_train_options){
                     .epochs = 2, .on_step_fn = on_step, .on_epoch_fn = on_epoch, .ctx = &s}));
    assert_int_equal(s.steps, 40);
    assert_int_equal(s.epochs, 2);
    assert_true(s.loss > 0);
    fixture_release(&f);
}

static void a_callback_stops_the_training_at_its_step(void **state) {
    (void)state;
    fixture f;
    seen s = {.stop_at = 27};
    kn_train_result result;
    fixture_init(&f, "mlp", 1000);
    assert_ok(
        kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test,
                 &(kn_train_options){
                     .epochs = 9, .on_step_fn = on_step, .on_epoch_fn = on_epoch, .ctx = &s}));
    assert_true(result.stopped);
    assert_int_equal(result.n_steps, 27);
    assert_int_equal(result.last.index, 2);
    assert_int_equal(result.last.n_steps, 7);
    assert_int_equal(s.epochs, 1);
    fixture_release(&f);
}

static bool test_two_batches(void *ctx) {
    seen *s = ctx;
    return ++s->steps < 2;
}

static void a_callback_stops_the_test_between_batches(void **state) {
    (void)state;
    fixture f;
    seen s = {0};
    kn_train_result result;
    fixture_init(&f, "mlp", 100);
    assert_ok(kn_train(
        &result, sizeof result, f.model, f.optim, f.train, f.test,
        &(kn_train_options){.on_test_fn = test_two_batches, .on_epoch_fn = on_epoch, .ctx = &s}));
    assert_true(result.stopped);
    assert_int_equal(s.steps, 2); /* of five batches */
    assert_int_equal(s.epochs, 0);
    assert_int_equal(result.n_steps, 2);
    assert_true(isfinite(result.last.loss));
    assert_true(isnan(result.last.accuracy));
    fixture_release(&f);
}

/* Distances between 0 and 0.3 in each of n batches: every loss is 0.09. */
static kn_status level_init(void *self, kn_layer *net) {
    (void)self;
    kn_layer_linear(net, "fc", 1, 1, NULL);
    return kn_check();
}
static kn_tensor *level_loss(void *self, kn_layer *net, const kn_batch *b) {
    (void)self;
    kn_tensor *d = kn_sub(kn_layer_forward(net, b->x), b->y);
    return kn_mean(kn_mul(d, d), KN_SHAPE(0, 1), false);
}

static void a_mean_of_many_losses_is_exact(void **state) {
    (void)state;
    static const kn_model_kind kind = {.name = "level", .init = level_init, .loss = level_loss};
    enum { N = 2000 };
    fixture f = {0};
    kn_dataset *data = NULL;
    kn_train_result result;
    static float x[N], y[N];
    for (int i = 0; i < N; i++) y[i] = 0.3f;
    assert_ok(kn_params_create(&f.params, NULL));
    assert_ok(kn_model_create_kind(&f.model, &kind, f.params));
    assert_ok(kn_sgd_create(&f.optim, f.params, 1e-30, NULL));
    {
        KN_FRAME();
        assert_ok(kn_dataset_create(&data, kn_tensor_from(x, KN_F32, KN_SHAPE(N, 1)),
                                    kn_tensor_from(y, KN_F32, KN_SHAPE(N, 1)), 0));
    }
    assert_ok(kn_loader_create_from(&f.train, data, &(kn_loader_options){.batch = 1}));
    assert_ok(kn_loader_create_from(&f.test, data, &(kn_loader_options){.batch = 1}));
    assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test, NULL));
    assert_int_equal(result.n_steps, N);
    assert_close(result.last.loss, (double)(0.3f * 0.3f), 1e-12, 0);
    assert_close(result.last.test_loss, (double)(0.3f * 0.3f), 1e-12, 0);
    kn_dataset_destroy(data);
    fixture_release(&f);
}

/* One of two layers fits. */
static kn_status half_init(void *self, kn_layer *net) {
    (void)self;
    kn_layer_linear(net, "fc", 3, 2, NULL);
    kn_layer_linear(net, "huge", INT64_MAX / 2, 3, NULL);
    return kn_check();
}

static void a_failed_model_leaves_no_parameters(void **state) {
    (void)state;
    static const kn_model_kind half = {.name = "half", .init = half_init},
                               level = {.name = "level", .init = level_init, .loss = level_loss};
    kn_params *params = NULL;
    kn_model *model = NULL;
    assert_ok(kn_params_create(&params, NULL));
    (void)kn_param(params, KN_SHAPE(2), (kn_init){0}, "own");
    assert_true(kn_model_create_kind(&model, &half, params) < 0);
    assert_null(model);
    assert_int_equal(kn_params_count(params), 1);
    assert_ok(kn_model_create_kind(&model, &level, params)); /* its layer has the same name */
    assert_int_equal(kn_params_count(params), 3);
    kn_model_destroy(model);
    kn_params_destroy(params);
}

/* --- testing alone, and labels --- */
static void evaluating_counts_each_image_once(void **state) {
    (void)state;
    fixture f;
    double accuracy = -1, again = -1;
    kn_batch b;
    int64_t right = 0;
    fixture_init(&f, "mlp", 100);
    assert_true(kn_loader_next(f.test, &b)); /* a loader in use starts again */
    assert_ok(kn_evaluate(&accuracy, f.model, f.test));
    while (kn_loader_next(f.test, &b)) {
        KN_FRAME();
        const int64_t *best = kn_data(kn_argmax(kn_model_logits(f.model, b.x), KN_SHAPE(1), false));
        const int64_t *label = kn_data(b.y);
        assert_non_null(best);
        for (int64_t i = 0; i < b.n; i++) right += best[i] == label[i];
    }
    assert_close(accuracy, (double)right / 220, 0, 1e-12);
    assert_ok(kn_evaluate(&again, f.model, f.test));
    assert_close(again, accuracy, 0, 0);
    fixture_release(&f);
}

static void missing_objects_are_errors(void **state) {
    (void)state;
    fixture f;
    kn_train_result result;
    kn_test_result tested;
    kn_model *model = NULL;
    kn_optim *optim = NULL;
    double accuracy;
    kn_batch b;
    fixture_init(&f, "mlp", 100);
    assert_fails(kn_train(&result, sizeof result, NULL, f.optim, f.train, NULL, NULL),
                 KN_ERR_INVALID, "model is NULL");
    assert_fails(kn_train(&result, sizeof result, f.model, NULL, f.train, NULL, NULL),
                 KN_ERR_INVALID, "optim is NULL");
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, NULL, NULL, NULL),
                 KN_ERR_INVALID, "train is NULL");
    assert_fails(kn_test(&tested, NULL, f.test), KN_ERR_INVALID, "model is NULL");
    assert_fails(kn_evaluate(&accuracy, f.model, NULL), KN_ERR_INVALID, "loader is NULL");
    assert_fails(kn_model_create(&model, NULL, f.params), KN_ERR_INVALID, "name is NULL");
    assert_fails(kn_model_optim_create(&optim, NULL, 0), KN_ERR_INVALID, "model is NULL");
    assert_true(kn_loader_next(f.train, &b));
    assert_null(kn_model_loss(NULL, &b));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_model_loss: model is NULL");
    assert_null(kn_model_loss(f.model, &(kn_batch){.n = 1}));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_model_loss: x is NULL");
    assert_null(kn_model_logits(f.model, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_model_predict: x is NULL");
    assert_null(kn_layer_find(NULL, "fc1"));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_find: layer is NULL");
    assert_null(kn_model_kind_find(NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_model_kind_find: name is NULL");
    fixture_release(&f);
}

static void the_result_is_filled_when_the_options_are_wrong_too(void **state) {
    (void)state;
    fixture f;
    kn_train_result result;
    memset(&result, 0xff, sizeof result);
    fixture_init(&f, "mlp", 100);
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                          &(kn_train_options){.more = &(kn_train_more){.reserved = {1}}}),
                 KN_ERR_INVALID, "reserved");
    assert_int_equal(result.n_steps, 0);
    assert_int_equal(result.last.index, 0);
    fixture_release(&f);
}

/* --- determinism --- */
static double *weights_after(const char *model, int threads, int64_t *n) {
    fixture f;
    kn_train_result result;
    KN_FRAME(.threads = threads);
    fixture_init(&f, model, 300);
    assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                       &(kn_train_options){.epochs = 2}));
    *n = 0;
    double *out = calloc((size_t)kn_params_numel(f.params) + 1, sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < kn_params_count(f.params); i++) {
        kn_tensor *w = kn_params_at(f.params, i, NULL);
        const float *values = kn_data(w);
        for (int64_t k = 0; k < kn_tensor_numel(w); k++) out[(*n)++] = values[k];
    }
    out[(*n)++] = result.last.loss;
    fixture_release(&f);
    return out;
}

static void the_bits_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t n = 0;
        double *one = weights_after(models[i], 1, &n);
        for (int threads = 2; threads <= 5; threads += 3) {
            double *more = weights_after(models[i], threads, &n);
            assert_memory_equal(one, more, (size_t)n * sizeof *one);
            free(more);
        }
        free(one);
    }
}

/* --- a schedule of the learning rate --- */
static const kn_schedule cosine = {
    .kind = KN_SCHEDULE_COSINE, .lr = 0.01, .lr_end = 0.001, .warmup = 3};

typedef struct by_hand {
    kn_optim *optim;
    kn_schedule schedule;
    int64_t n_steps, last; /* last: stops after so many */
} by_hand;

static bool next_rate(void *ctx, const kn_train_step *step) {
    by_hand *h = ctx;
    double lr = 0;
    (void)step;
    assert_ok(kn_schedule_lr(&lr, &h->schedule, ++h->n_steps));
    assert_ok(kn_optim_lr(h->optim, lr));
    return true;
}

static bool stop_early(void *ctx, const kn_train_step *step) {
    by_hand *h = ctx;
    (void)step;
    return ++h->n_steps < h->last;
}

static double rate_of(kn_optim *optim) {
    char name[64];
    double rate = 0;
    KN_FRAME();
    kn_tensor *hyper = kn_optim_state_at(optim, 0, name, sizeof name);
    assert_string_equal(name, "hyper");
    assert_ok(kn_item(&rate, kn_select(hyper, 0, 0)));
    return rate;
}

static void same_weights(const fixture *a, const fixture *b) {
    KN_FRAME();
    for (int i = 0; i < kn_params_count(a->params); i++) {
        kn_tensor *x = kn_params_at(a->params, i, NULL), *y = kn_params_at(b->params, i, NULL);
        size_t bytes = (size_t)kn_tensor_numel(x) * sizeof(float);
        assert_memory_equal(kn_data(x), kn_data(y), bytes);
    }
}

/* 12 steps: six an epoch. */
static void a_schedule_sets_the_rate_of_every_step(void **state) {
    (void)state;
    fixture f, g;
    kn_train_result result;
    double last = 0;
    fixture_init(&f, "mlp", 300);
    fixture_init(&g, "mlp", 300);
    assert_ok(
        kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test,
                 &(kn_train_options){.epochs = 2, .more = &(kn_train_more){.schedule = &cosine}}));
    by_hand h = {.optim = g.optim, .schedule = cosine, .n_steps = -1};
    h.schedule.steps = 12;
    (void)next_rate(&h, NULL);
    assert_ok(kn_train(&result, sizeof result, g.model, g.optim, g.train, NULL,
                       &(kn_train_options){.epochs = 2, .on_step_fn = next_rate, .ctx = &h}));
    same_weights(&f, &g);
    assert_ok(kn_schedule_lr(&last, &h.schedule, 11));
    assert_float_equal(rate_of(f.optim), last, 0);
    fixture_release(&f);
    fixture_release(&g);
}

static void a_resumed_run_goes_on_in_its_schedule(void **state) {
    (void)state;
    fixture f, g;
    kn_train_result result;
    const kn_train_more more = {.schedule = &cosine};
    kn_train_checkpoint save = {.path = "schedule.safetensors"};
    by_hand h = {.last = 8};
    kn_train_options options = {.epochs = 2, .more = &more};
    fixture_init(&f, "mlp", 300);
    assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL, &options));
    fixture_init(&g, "mlp", 300);
    options.checkpoint = &save, options.on_step_fn = stop_early, options.ctx = &h;
    assert_ok(kn_train(&result, sizeof result, g.model, g.optim, g.train, NULL, &options));
    assert_true(result.stopped);
    fixture_release(&g);
    fixture_init(&g, "mlp", 300);
    save.resume = 1, save.lr = 0.5, options.on_step_fn = NULL;
    assert_ok(kn_train(&result, sizeof result, g.model, g.optim, g.train, NULL, &options));
    assert_int_equal(result.resumed, 8);
    same_weights(&f, &g);
    assert_int_equal(unlink(save.path), 0);
    fixture_release(&f);
    fixture_release(&g);
}

static void a_schedule_that_lacks_a_number_is_an_error_before_the_first_step(void **state) {
    (void)state;
    fixture f, g;
    kn_train_result result;
    kn_schedule step = {.kind = KN_SCHEDULE_STEP, .lr = 0.1};
    const kn_train_more more = {.schedule = &step};
    fixture_init(&f, "mlp", 100);
    fixture_init(&g, "mlp", 100);
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                          &(kn_train_options){.more = &more}),
                 KN_ERR_INVALID, "every is 0");
    assert_int_equal(result.n_steps, 0);
    same_weights(&f, &g);
    step.every = 1;
    assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                       &(kn_train_options){.more = &more}));
    assert_float_equal(rate_of(f.optim), 0.01, 1e-12);
    fixture_release(&f);
    fixture_release(&g);
}

/* --- memory --- */
typedef struct flat {
    kn_pool_stats first, last;
    int steps;
} flat;

static bool memory_watch(void *ctx, const kn_train_step *step) {
    flat *m = ctx;
    (void)step;
    kn_pool_stats_read(&m->last, sizeof m->last, kn_device_pool(kn_device_host()));
    if (++m->steps == 2) m->first = m->last;
    return true;
}

static void memory_is_flat_from_the_second_step_on(void **state) {
    (void)state;
    fixture f;
    flat m = {.steps = 0};
    kn_train_result result;
    fixture_init(&f, "lenet", 500);
    assert_ok(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                       &(kn_train_options){.epochs = 2, .on_step_fn = memory_watch, .ctx = &m}));
    assert_int_equal(m.last.live_bytes, m.first.live_bytes);
    assert_int_equal(m.last.live_bytes_max, m.first.live_bytes_max);
    assert_int_equal(m.last.reserved_bytes, m.first.reserved_bytes);
    assert_int_equal(m.last.n_device_allocs, m.first.n_device_allocs);
    fixture_release(&f);
    kn_pool_stats_read(&m.last, sizeof m.last, kn_device_pool(kn_device_host()));
    assert_int_equal(m.last.live_bytes, 0);
}

int main(void) {
    return RUN_TESTS(
        TEST(models_have_the_parameters_of_their_papers),
        TEST(an_unknown_model_lists_those_there_are), TEST(logits_have_a_row_per_image),
        TEST_LONG(both_models_learn_separable_classes), TEST(callbacks_see_every_step_and_epoch),
        TEST(a_callback_stops_the_training_at_its_step),
        TEST(a_callback_stops_the_test_between_batches), TEST(a_mean_of_many_losses_is_exact),
        TEST(a_failed_model_leaves_no_parameters), TEST(evaluating_counts_each_image_once),
        TEST(missing_objects_are_errors), TEST(the_result_is_filled_when_the_options_are_wrong_too),
        TEST_LONG(the_bits_do_not_depend_on_the_number_of_threads),
        TEST(a_schedule_sets_the_rate_of_every_step), TEST(a_resumed_run_goes_on_in_its_schedule),
        TEST(a_schedule_that_lacks_a_number_is_an_error_before_the_first_step),
        TEST(memory_is_flat_from_the_second_step_on));
}
