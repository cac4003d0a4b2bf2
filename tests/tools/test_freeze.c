/* The frozen form of every model gives what the model gives, but for rounding. */
#include <knet/prof_read.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <string.h>

#include "small_models.h"
#include "test.h"

typedef struct fixture {
    small_model small;
    kn_params *params;
    kn_model *model;
    kn_loader *loader;
} fixture;

/* Steps of training make statistics and biases that folding can't miss. */
static bool fixture_init(fixture *f, int i) {
    kn_dataset *data = NULL;
    kn_optim *optim = NULL;
    kn_batch batch;
    if (!small_model_at(&f->small, i)) return false;
    assert_ok(kn_params_create(&f->params, NULL));
    assert_ok(kn_model_create_kind(&f->model, &f->small.kind, f->params));
    assert_ok(kn_adam_create(&optim, f->params, 0.01, NULL));
    assert_ok(kn_model_data_make(&data, &f->small.kind, 60, KN_TRAIN));
    assert_ok(kn_loader_create_from(&f->loader, data, &(kn_loader_options){.batch = 12}));
    kn_dataset_destroy(data);
    for (int k = 0; k < 5; k++) {
        KN_FRAME(.record = KN_OFF);
        kn_tensor *loss = NULL;
        assert_true(kn_loader_cycle(f->loader, &batch));
        assert_ok(kn_model_step(&loss, f->model, optim, &batch));
    }
    kn_optim_destroy(optim);
    return true;
}

static void fixture_release(fixture *f) {
    kn_loader_destroy(f->loader);
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

static kn_tensor *predicted(const fixture *f, const kn_batch *batch) {
    kn_tensor *y = kn_model_predict(f->model, batch);
    assert_ok(kn_check());
    return y;
}

static double largest(kn_tensor *x) {
    double value = 0;
    assert_ok(kn_item(&value, kn_max_abs(x, KN_ALL, false)));
    return value;
}

static double root_mean_square(kn_tensor *x) {
    double value = 0;
    assert_ok(kn_item(&value, kn_sqrt(kn_mean(kn_square(x), KN_ALL, false))));
    return value;
}

/* The stated tolerance: 1e-5 of the largest score. */
static void assert_near(const fixture *f, kn_tensor *a, kn_tensor *b) {
    double off = largest(kn_sub(a, b)), size = largest(a);
    if (off > 1e-5 * size)
        print_error("%s: frozen scores differ by %g of %g\n", f->small.kind.name, off, size);
    assert_true(off <= 1e-5 * size);
}

static void assert_same_bits(kn_tensor *a, kn_tensor *b) {
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    assert_memory_equal(kn_data(a), kn_data(b), (size_t)kn_tensor_numel(a) * sizeof(float));
}

static void frozen_models_give_what_plain_ones_do(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i); i++) {
        KN_FRAME(.record = KN_OFF);
        kn_batch batch;
        assert_true(kn_loader_cycle(f.loader, &batch));
        kn_tensor *plain = predicted(&f, &batch);
        assert_ok(kn_freeze(f.model));
        assert_near(&f, plain, predicted(&f, &batch));
        kn_layer_thaw(kn_model_net(f.model));
        assert_same_bits(plain, predicted(&f, &batch));
        fixture_release(&f);
    }
}

/* Frozen in a frame of mixed precision the scores are off by as much as those of the layers
 * themselves in such a frame, where each of up to 53 layers rounds: twice that is stated, of the
 * root mean square, and a tenth of the largest score. Other frames use the layers as they are. */
static void models_frozen_in_bf16_are_near_and_leave_f32_alone(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i); i++) {
        KN_FRAME(.record = KN_OFF);
        kn_batch batch;
        assert_true(kn_loader_cycle(f.loader, &batch));
        kn_tensor *plain = predicted(&f, &batch), *low, *layers;
        {
            KN_FRAME(.autocast = KN_BF16);
            layers = kn_keep(kn_cast(predicted(&f, &batch), KN_F32));
            assert_ok(kn_freeze(f.model));
            low = kn_keep(kn_cast(predicted(&f, &batch), KN_F32));
        }
        double off = largest(kn_sub(plain, low)), size = largest(plain);
        double usual = root_mean_square(kn_sub(plain, low));
        double of_layers = root_mean_square(kn_sub(plain, layers));
        bool is_near = usual <= 2 * of_layers && off <= 0.1 * size;
        if (!is_near)
            print_error("%s: scores differ by up to %g of %g; usually by %g, of the layers by %g\n",
                        f.small.kind.name, off, size, usual, of_layers);
        assert_true(is_near);
        assert_same_bits(plain, predicted(&f, &batch));
        fixture_release(&f);
    }
}

static bool count(void *ctx, kn_layer *layer) {
    *(int *)ctx += strstr(kn_layer_path(layer), "bn") != NULL;
    return true;
}

/* Recording frames use the layers as they are. */
static void training_of_a_frozen_model_is_as_before(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i); i++) {
        int norms = 0;
        kn_batch batch;
        kn_layer_walk(kn_model_net(f.model), count, &norms);
        assert_true(kn_loader_cycle(f.loader, &batch));
        if (norms && !f.small.kind.turns) {
            double loss[2] = {0};
            for (int k = 0; k < 2; k++) {
                KN_TAPE();
                assert_ok(kn_item(&loss[k], kn_model_loss(f.model, &batch)));
                if (!k) assert_ok(kn_freeze(f.model));
            }
            assert_true(loss[0] == loss[1]);
        }
        fixture_release(&f);
    }
}

static void step(const fixture *f) {
    kn_optim *optim = NULL;
    kn_batch batch;
    kn_tensor *loss = NULL;
    KN_FRAME(.record = KN_OFF);
    assert_ok(kn_adam_create(&optim, f->params, 0.01, NULL));
    assert_true(kn_loader_cycle(f->loader, &batch));
    assert_ok(kn_model_step(&loss, f->model, optim, &batch));
    kn_optim_destroy(optim);
}

/* Folded weights of others than the model has now are left aside, in recorded predictions too. */
static void weights_that_changed_since_are_those_of_predictions(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i); i++) {
        KN_FRAME(.record = KN_OFF);
        kn_batch batch;
        assert_true(kn_loader_cycle(f.loader, &batch));
        assert_ok(kn_freeze(f.model));
        for (int k = 0; k < 3; k++) predicted(&f, &batch); /* captured, and replayed */
        step(&f);
        assert_true(kn_loader_cycle(f.loader, &batch));
        kn_tensor *stale[3] = {NULL};
        for (int k = 0; k < 3; k++) assert_ok(kn_hold(&stale[k], predicted(&f, &batch)));
        assert_ok(kn_freeze(f.model));
        kn_tensor *again = predicted(&f, &batch);
        kn_layer_thaw(kn_model_net(f.model));
        kn_tensor *plain = predicted(&f, &batch);
        for (int k = 0; k < 3; k++) assert_near(&f, plain, stale[k]);
        assert_near(&f, plain, again);
        for (int k = 0; k < 3; k++) kn_unhold(&stale[k]);
        fixture_release(&f);
    }
}

/* --- what runs --- */

typedef struct ops_seen {
    bool conv_act, linear_act, norm, relu, add;
} ops_seen;

static bool see(void *ctx, const kn_prof_row *row) {
    ops_seen *seen = ctx;
    if (row->n_calls == 0) return true;
    seen->conv_act |= strcmp(row->path, "conv_act") == 0;
    seen->linear_act |= strcmp(row->path, "linear_act") == 0;
    seen->add |= strcmp(row->path, "add") == 0;
    seen->norm |= strstr(row->path, "batchnorm") != NULL;
    seen->relu |= strcmp(row->path, "relu") == 0;
    return true;
}

static ops_seen ops_of_forward(kn_layer *net, kn_tensor *x) {
    ops_seen seen = {0};
    assert_ok(kn_prof_reset());
    assert_non_null(kn_layer_forward(net, x));
    assert_ok(kn_prof_visit_flat(see, &seen));
    return seen;
}

static void normalization_and_activation_run_inside_the_convolution(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    kn_layer_conv(net, "conv", 2, 3, KN_SHAPE(2, 2), NULL);
    kn_layer_batchnorm(net, "norm", 3, &(kn_layer_norm_options){.act = kn_relu});
    assert_ok(kn_check());
    {
        KN_FRAME(.record = KN_OFF);
        kn_tensor *x = kn_ones(KN_SHAPE(2, 2, 5, 5));
        ops_seen plain = ops_of_forward(net, x);
        assert_true(plain.norm && plain.relu && !plain.conv_act);
        assert_ok(kn_layer_freeze(net));
        ops_seen frozen = ops_of_forward(net, x);
        assert_true(frozen.conv_act && !frozen.norm && !frozen.relu);
    }
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

static void a_residual_sum_runs_inside_the_linear_layer(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    kn_layer *sum = kn_layer_residual(net, "sum");
    kn_layer_linear(sum, "linear", 5, 5, NULL);
    kn_layer_batchnorm(sum, "norm", 5, NULL);
    kn_layer_act(net, "act", kn_relu);
    assert_ok(kn_check());
    {
        KN_FRAME(.record = KN_OFF);
        kn_tensor *x = kn_ones(KN_SHAPE(7, 5));
        ops_seen plain = ops_of_forward(net, x);
        assert_true(plain.norm && plain.relu && plain.add && !plain.linear_act);
        assert_ok(kn_layer_freeze(net));
        ops_seen frozen = ops_of_forward(net, x);
        assert_true(frozen.linear_act && !frozen.norm && !frozen.relu && !frozen.add);
    }
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

/* Of all layers, whether a group or a function of the model's runs them. */
static void no_normalization_is_left_in_a_resnet(void **state) {
    (void)state;
    fixture f;
    int n_seen = 0;
    for (int i = 0; fixture_init(&f, i); i++) {
        KN_FRAME(.record = KN_OFF);
        kn_batch batch;
        if (strncmp(f.small.kind.name, "resnet", 6) == 0 && ++n_seen) {
            assert_true(kn_loader_cycle(f.loader, &batch));
            assert_ok(kn_freeze(f.model));
            ops_seen seen = {0};
            assert_ok(kn_prof_reset());
            predicted(&f, &batch);
            assert_ok(kn_prof_visit_flat(see, &seen));
            assert_true(seen.conv_act && !seen.norm && !seen.relu);
        }
        fixture_release(&f);
    }
    assert_true(n_seen > 0);
}

/* --- what can't be folded --- */

/* Activations before the normalization, other widths and layers between them stay. */
static void layers_with_something_between_do_not_fold(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    kn_layer_conv(net, "conv1", 2, 3, KN_SHAPE(2, 2), &(kn_layer_conv_options){.act = kn_relu});
    kn_layer_batchnorm(net, "bn1", 3, NULL);
    kn_layer_conv(net, "conv2", 3, 3, KN_SHAPE(2, 2), &(kn_layer_conv_options){.act = kn_tanh});
    kn_layer_batchnorm(net, "bn2", 3, NULL);
    kn_layer_deconv(net, "deconv", 3, 4, KN_SHAPE(2, 2), NULL);
    kn_layer_batchnorm(net, "bn3", 4, &(kn_layer_norm_options){.act = kn_tanh});
    assert_ok(kn_check());
    KN_FRAME(.record = KN_OFF);
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 5));
    kn_tensor *x = kn_normal(KN_SHAPE(2, 2, 5, 5), 0, 1, rng), *y = NULL;
    kn_layer_mode_set(net, KN_LAYER_TRAIN);
    for (int i = 0; i < 3; i++) assert_non_null(kn_layer_forward(net, x));
    kn_layer_mode_set(net, KN_LAYER_AUTO);
    assert_non_null(y = kn_layer_forward(net, x));
    assert_ok(kn_layer_freeze(net));
    kn_tensor *off = kn_sub(y, kn_layer_forward(net, x));
    assert_ok(kn_check());
    assert_true(largest(off) < 1e-5);
    kn_rng_destroy(rng);
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

/* --- what a prediction may depend on --- */

static kn_status line_init(void *model, kn_layer *net) {
    (void)model;
    kn_layer_linear(net, "fc1", 4, 8, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", 8, 4, NULL);
    return kn_check();
}

static kn_tensor *placed_predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    return kn_affine(kn_layer_forward(net, batch->x), 1, (double)batch->index);
}

/* Later predictions are replays, which would have the first one's place. */
static void pure_predictions_do_not_see_the_place_in_the_epoch(void **state) {
    (void)state;
    static const kn_model_kind kind = {
        .name = "placed", .init = line_init, .predict = placed_predict, .is_pure = true};
    kn_params *params = NULL;
    kn_model *model = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_model_create_kind(&model, &kind, params));
    KN_FRAME(.record = KN_OFF);
    kn_batch batch = {.x = kn_ones(KN_SHAPE(2, 4)), .n = 2, .index = 100};
    kn_tensor *want = kn_model_logits(model, batch.x);
    assert_same_bits(kn_model_predict(model, &batch), want);
    assert_int_equal(batch.index, 100);
    assert_ok(kn_freeze(model));
    for (; batch.index < 500; batch.index += 100) {
        KN_FRAME(.record = KN_OFF);
        assert_same_bits(kn_model_predict(model, &batch), want);
    }
    kn_model_destroy(model);
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(TEST(frozen_models_give_what_plain_ones_do),
                     TEST(models_frozen_in_bf16_are_near_and_leave_f32_alone),
                     TEST(training_of_a_frozen_model_is_as_before),
                     TEST(weights_that_changed_since_are_those_of_predictions),
                     TEST(layers_with_something_between_do_not_fold),
                     TEST(no_normalization_is_left_in_a_resnet),
                     TEST(normalization_and_activation_run_inside_the_convolution),
                     TEST(a_residual_sum_runs_inside_the_linear_layer),
                     TEST(pure_predictions_do_not_see_the_place_in_the_epoch));
}
