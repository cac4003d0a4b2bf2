/* Models of the record, small, trained by captured steps: the losses of plain ones, bit for bit.
 * Those whose step works on data on the host say which call does. */
#include <knet/train.h>
#include <string.h>

#include "small_models.h"
#include "test.h"

enum { STEPS = 10, BATCH = 20 };

/* Why a model's step can't be captured. */
static const struct {
    const char *model, *error;
} exceptions[] = {
    {"dcgan", "trains in turns"},
    {"tree_lstm", "the step is being captured"},
    {"tagger_chars", "the step is being captured"},
    {"reinforce", "the step is being captured"},
};

static const char *exception_of(const char *model) {
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strcmp(exceptions[i].model, model) == 0) return exceptions[i].error;
    return NULL;
}

typedef struct losses {
    double loss[2 * STEPS];
    int n;
} losses;

static bool note(void *ctx, const kn_train_step *step) {
    losses *l = ctx;
    return l->n < 2 * STEPS && kn_item(&l->loss[l->n++], step->loss) == KN_OK;
}

static kn_status train(losses *out, int i, kn_capture *capture, int threads) {
    small_model small;
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_optim *optim = NULL;
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_train_result result;
    const kn_train_more more = {.capture = capture};
    KN_FRAME(.threads = threads);
    memset(out, 0, sizeof *out);
    assert_true(small_model_at(&small, i));
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&model, &small.kind, params));
    assert_ok(kn_adam_create(&optim, params, small.lr, NULL));
    assert_ok(kn_model_data_make(&data, &small.kind, STEPS * BATCH, KN_TRAIN));
    assert_ok(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = BATCH, .seed = 1}));
    kn_status status =
        kn_train(&result, sizeof result, model, optim, loader, NULL,
                 &(kn_train_options){.epochs = 2, .on_step_fn = note, .ctx = out, .more = &more});
    kn_loader_destroy(loader);
    kn_dataset_destroy(data);
    kn_optim_destroy(optim);
    kn_model_destroy(model);
    kn_params_destroy(params);
    return status;
}

static void captured_training_has_the_losses_of_plain_training(void **state) {
    (void)state;
    small_model small;
    for (int i = 0; small_model_at(&small, i); i++) {
        static losses plain, captured;
        kn_capture *capture = NULL;
        kn_capture_stats stats;
        assert_ok(kn_capture_create(&capture, NULL));
        assert_ok(train(&plain, i, NULL, 1));
        kn_status status = train(&captured, i, capture, 2);
        kn_capture_stats_read(&stats, sizeof stats, capture);
        kn_capture_destroy(capture);
        const char *error = exception_of(small.kind.name);
        if (error) {
            assert_fails(status, status < 0 ? status : KN_ERR_INVALID, error);
            continue;
        }
        if (status < 0) fail_msg("%s: %s", small.kind.name, kn_last_error()->message);
        if (memcmp(&plain, &captured, sizeof plain) != 0)
            fail_msg("%s: losses differ", small.kind.name);
        if (!(stats.n_launches > 0 && stats.n_launches >= (uint64_t)plain.n / 2))
            fail_msg("%s: %d replays", small.kind.name, (int)stats.n_launches);
    }
}

static void what_capture_does_not_go_with_is_named(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_optim *optim = NULL;
    kn_loader *loader = NULL;
    kn_train_result result;
    assert_ok(kn_capture_create(&capture, NULL));
    const kn_train_more more = {.capture = capture};
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_model_create(&model, "mlp", params));
    assert_ok(kn_sgd_create(&optim, params, 0.1, NULL));
    assert_ok(kn_loader_create_synthetic(&loader, 60, &(kn_loader_options){.batch = 20}));
    assert_fails(kn_train(&result, sizeof result, model, optim, loader, NULL,
                          &(kn_train_options){.accumulate = 2, .more = &more}),
                 KN_ERR_UNSUPPORTED, "captured steps don't go with accumulated batches");
    assert_ok(kn_train(&result, sizeof result, model, optim, loader, NULL,
                       &(kn_train_options){.epochs = 2, .more = &more}));
    assert_int_equal(result.n_steps, 6);
    kn_capture_destroy(capture);
    kn_loader_destroy(loader);
    kn_optim_destroy(optim);
    kn_model_destroy(model);
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(TEST(captured_training_has_the_losses_of_plain_training),
                     TEST(what_capture_does_not_go_with_is_named));
}
