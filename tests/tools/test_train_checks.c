/* Errors of kn_train before the first step, and its message of a loss that is not finite. */
#include <knet/train.h>
#include <math.h>

#include "files.h"
#include "small_models.h"
#include "test.h"
#include "train_fixture.h"

/* 100 training and 50 test images; label i of the split's file is i % 12 when it is `split`. */
static void labels_beyond(const char *split, const char *text) {
    char dir[FILES_PATH_MAX], name[64];
    size_t size_bytes = 0;
    uint32_t n = split[0] == 't' && split[1] == 'r' ? 100 : 50;
    files_dataset(files_dir_make(dir), 100, false);
    uint8_t *labels = files_idx(&size_bytes, 0x801, 1, &n);
    for (uint32_t i = 0; i < n; i++) labels[8 + i] = (uint8_t)(i % 12);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
    files_write(dir, name, labels, size_bytes, true);
    free(labels);
    fixture f;
    fixture_init(&f, "mlp", 100);
    kn_loader_destroy(f.train);
    kn_loader_destroy(f.test);
    kn_loader_options options = {.batch = 50};
    assert_ok(kn_loader_create(&f.train, dir, &options));
    options.split = KN_TEST;
    assert_ok(kn_loader_create(&f.test, dir, &options));
    kn_train_result result;
    memset(&result, 0xff, sizeof result);
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test, NULL),
                 KN_ERR_INVALID, text);
    assert_int_equal(result.n_steps, 0);
    kn_test_result tested;
    if (n == 50)
        assert_fails(kn_test(&tested, f.model, f.test), KN_ERR_INVALID, text);
    else
        assert_ok(kn_test(&tested, f.model, f.test));
    fixture_release(&f);
    files_remove(dir);
}

static void labels_beyond_the_classes_are_errors_in_both_splits(void **state) {
    (void)state;
    labels_beyond("train", "training labels go up to 11, but the model mlp has 10 classes");
    labels_beyond("t10k", "test labels go up to 11, but the model mlp has 10 classes");
}

static void an_optimiser_of_other_parameters_is_an_error(void **state) {
    (void)state;
    fixture f;
    kn_params *others = NULL;
    kn_optim *optim = NULL;
    kn_train_result result;
    fixture_init(&f, "mlp", 100);
    assert_ok(kn_params_create(&others, NULL));
    (void)kn_param(others, KN_SHAPE(2), (kn_init){0}, "z");
    assert_ok(kn_sgd_create(&optim, others, 0.1, NULL));
    assert_fails(kn_train(&result, sizeof result, f.model, optim, f.train, NULL, NULL),
                 KN_ERR_INVALID, "it begins with z, that of the model mlp with fc1.weight");
    kn_optim_destroy(optim);
    kn_params_destroy(others);
    fixture_release(&f);
}

/* Other errors are no sign of a rate that is too large. */
static void a_loss_that_is_no_number_is_told_from_other_errors(void **state) {
    (void)state;
    fixture f;
    kn_train_result result;
    fixture_init(&f, "mlp", 200);
    assert_ok(kn_optim_lr(f.optim, 1e38));
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, f.train, NULL,
                          &(kn_train_options){.epochs = 3}),
                 KN_ERR_INVALID, "try a smaller learning rate");
    assert_true(result.diverged);
    assert_fails(kn_train(&result, sizeof result, f.model, f.optim, NULL, NULL, NULL),
                 KN_ERR_INVALID, "train is NULL");
    assert_false(result.diverged);
    fixture_release(&f);
}

static void assert_diverges(fixture *f, kn_capture *capture, const char *text) {
    kn_train_result result;
    assert_fails(kn_train(&result, sizeof result, f->model, f->optim, f->train, NULL,
                          &(kn_train_options){.more = &(kn_train_more){.capture = capture}}),
                 KN_ERR_INVALID, text);
    assert_true(result.diverged);
}

static void weights_set(fixture *f, const char *name, double value) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *w = kn_params_find(f->params, name);
    assert_ok(kn_fill_into(w, value));
}

/* The op that reads such weights did not make the first such value. */
static void weights_that_are_no_numbers_are_named(void **state) {
    (void)state;
    fixture f;
    kn_capture *capture = NULL;
    fixture_init(&f, "mlp", 200);
    weights_set(&f, "fc2.weight", NAN);
    assert_diverges(&f, NULL, "the weight fc2.weight is infinite or NaN already, from an earlier");
    weights_set(&f, "fc2.weight", 0);
    weights_set(&f, "fc1.weight", 1e38); /* finite: the first product is not */
    weights_set(&f, "fc2.weight", 1e38);
    assert_diverges(&f, NULL, "try a smaller learning rate: fc1: ");
    assert_ok(kn_capture_create(&capture, NULL));
    assert_diverges(&f, capture, "or an earlier one; train without capture to find the op");
    kn_capture_destroy(capture);
    fixture_release(&f);
}

/* --- splits of two sizes --- */

/* Made-up samples of a small model, whose images are of this side. */
static kn_loader *images_of(const small_model *small, int64_t side, kn_split split) {
    kn_loader *loader = NULL;
    kn_dataset *data = NULL;
    kn_model_kind kind = small->kind;
    kn_model_facts facts = *kind.facts;
    facts.x.dim[1] = facts.x.dim[2] = side;
    kind.facts = &facts;
    assert_ok(kn_model_data_make(&data, &kind, 8, split));
    assert_ok(kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 4, .seed = 1}));
    kn_dataset_destroy(data);
    return loader;
}

/* Trains, and tests with larger images. */
static void train_and_test(const char *name, kn_status wanted, const char *text) {
    small_model small;
    fixture f = {0};
    kn_train_result result;
    int i = 0;
    while (small_model_at(&small, i) && strcmp(small.kind.name, name) != 0) i++;
    assert_ok(kn_params_create(&f.params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&f.model, &small.kind, f.params));
    assert_ok(kn_sgd_create(&f.optim, f.params, 1e-3, NULL));
    int64_t side = small.facts.x.dim[1];
    f.train = images_of(&small, side, KN_TRAIN);
    f.test = images_of(&small, side + 8, KN_TEST);
    kn_status status = kn_train(&result, sizeof result, f.model, f.optim, f.train, f.test, NULL);
    if (wanted == KN_OK)
        assert_ok(status);
    else
        assert_fails(status, wanted, text);
    assert_int_equal(result.n_steps, wanted == KN_OK ? 2 : 0);
    fixture_release(&f);
}

static void a_test_of_another_size_fails_before_the_first_step(void **state) {
    (void)state;
    train_and_test("cifar_bn", KN_ERR_SHAPE,
                   "test samples are [3,16,16], training samples [3,8,8]: ");
    train_and_test("resnet18", KN_OK, NULL); /* takes any size */
}

/* --- a loop of one's own --- */

static void losses_that_rise_again_have_converged(void **state) {
    (void)state;
    kn_converge c = {.alpha = 0.5};
    /* means 8, 6, 4, 4, 5; differences 0, -4, -4, 0, 2; trends 0, -2, -3, -1.5, 0.25 */
    static const double loss[] = {8, 4, 2, 4, 6};
    for (int i = 0; i < 5; i++) assert_int_equal(kn_converged(&c, loss[i]), i == 4);
    assert_close(c.mean, 5, 0, 0);
    assert_close(c.trend, 0.25, 0, 0);
    assert_int_equal(c.n, 5);
}

static void converging_takes_noise_and_stops_at_nan(void **state) {
    (void)state;
    kn_converge c = {0};
    int n = 0;
    while (n < 10000 && !kn_converged(&c, 1.0 / (1 + n) + 0.05 * ((n % 2) - 0.5))) n++;
    assert_true(n > 30 && n < 10000); /* noise alone doesn't end it at once */
    c = (kn_converge){0};
    assert_false(kn_converged(&c, 3));
    assert_true(kn_converged(&c, (double)NAN));
    c = (kn_converge){0};
    assert_true(kn_converged(&c, (double)INFINITY));
}

static void losses_that_are_not_finite_leave_the_means_as_they_are(void **state) {
    (void)state;
    static const double loss[] = {(double)NAN, 5, 4, (double)NAN, 3, -(double)INFINITY, 2, 9};
    kn_converge c = {.alpha = 0.1}, finite = {.alpha = 0.1};
    for (int i = 0; i < 8; i++) {
        bool over = kn_converged(&c, loss[i]);
        if (isfinite(loss[i]))
            assert_int_equal(over, kn_converged(&finite, loss[i]));
        else
            assert_true(over);
        assert_memory_equal(&c, &finite, sizeof c);
    }
    assert_int_equal(c.n, 5);
}

static void an_alpha_out_of_range_is_a_pending_error(void **state) {
    (void)state;
    static const double alpha[] = {2, -0.1, (double)NAN};
    for (int i = 0; i < 3; i++) {
        kn_converge c = {.alpha = alpha[i]};
        assert_true(kn_converged(&c, 1));
        assert_fails(kn_check(), KN_ERR_INVALID, "kn_converged: alpha is ");
        test_assert_message("; it must be above 0 and at most 1", __FILE__, __LINE__);
        assert_int_equal(c.n, 0);
    }
}

int main(void) {
    return RUN_TESTS(TEST(labels_beyond_the_classes_are_errors_in_both_splits),
                     TEST(an_optimiser_of_other_parameters_is_an_error),
                     TEST(a_loss_that_is_no_number_is_told_from_other_errors),
                     TEST(weights_that_are_no_numbers_are_named),
                     TEST(a_test_of_another_size_fails_before_the_first_step),
                     TEST(losses_that_rise_again_have_converged),
                     TEST(converging_takes_noise_and_stops_at_nan),
                     TEST(losses_that_are_not_finite_leave_the_means_as_they_are),
                     TEST(an_alpha_out_of_range_is_a_pending_error));
}
