/* Models of the record, small, trained by captured steps: the losses of plain ones, bit for bit.
 * Those whose step works on data on the host say which call does. */
#include <knet/op.h>
#include <knet/scale.h>
#include <knet/train.h>
#include <string.h>

#include "small_models.h"
#include "test.h"

enum { STEPS = 10, BATCH = 20 };

/* A way to train. */
typedef struct way {
    int64_t accumulate;
    bool scaled, averaged;
    double clip_norm, clip_each;
} way;

typedef struct losses {
    double loss[2 * STEPS];
    int n;
    kn_loss_scale_state scale;
} losses;

static bool note(void *ctx, const kn_train_step *step) {
    losses *l = ctx;
    return l->n < 2 * STEPS && kn_item(&l->loss[l->n++], step->loss) == KN_OK;
}

typedef struct session {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_ema *ema;
    kn_loss_scale *scale;
    kn_loader *loader;
    kn_dataset *data;
} session;

static void session_open(session *s, const small_model *small, const way *how) {
    *s = (session){0};
    const kn_adam_options adam = {.clip_norm = how->clip_norm, .clip_each = how->clip_each};
    /* Grows twice and more within the run. */
    const kn_loss_scale_options scale = {.initial = 8, .growth = 4, .every = 3};
    assert_ok(kn_params_create(&s->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&s->model, &small->kind, s->params));
    assert_ok(kn_adam_create(&s->optim, s->params, small->lr, &adam));
    if (how->averaged) assert_ok(kn_ema_create(&s->ema, s->params, 0.9));
    if (how->scaled) assert_ok(kn_loss_scale_create(&s->scale, s->params, &scale));
    assert_ok(kn_model_data_make(&s->data, &small->kind, STEPS * BATCH, KN_TRAIN));
    assert_ok(kn_loader_create_from(&s->loader, s->data,
                                    &(kn_loader_options){.batch = BATCH, .seed = 1}));
}

static void session_close(session *s) {
    kn_loader_destroy(s->loader);
    kn_dataset_destroy(s->data);
    kn_loss_scale_destroy(s->scale);
    kn_ema_destroy(s->ema);
    kn_optim_destroy(s->optim);
    kn_model_destroy(s->model);
    kn_params_destroy(s->params);
}

/* The last value is of the averages, where there are some. */
static kn_status train(losses *out, const small_model *small, const way *how, kn_capture *capture,
                       int threads) {
    session s;
    kn_train_result result;
    KN_FRAME(.threads = threads);
    memset(out, 0, sizeof *out);
    session_open(&s, small, how);
    const kn_train_more more = {.capture = capture, .ema = s.ema, .scale = s.scale};
    kn_status status = kn_train(&result, sizeof result, s.model, s.optim, s.loader, NULL,
                                &(kn_train_options){.epochs = 2,
                                                    .accumulate = how->accumulate,
                                                    .on_step_fn = note,
                                                    .ctx = out,
                                                    .more = &more});
    if (s.scale) out->scale = kn_loss_scale_state_get(s.scale);
    if (status == KN_OK && s.ema)
        assert_ok(kn_item(&out->loss[2 * STEPS - 1], kn_sum(kn_ema_at(s.ema, 0), KN_ALL, false)));
    session_close(&s);
    return status;
}

static void same_losses(const small_model *small, const way *how) {
    static losses plain, captured;
    const char *name = small->kind.name;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(train(&plain, small, how, NULL, 1));
    kn_status status = train(&captured, small, how, capture, 2);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    kn_capture_destroy(capture);
    if (small->kind.reads_on_host) {
        assert_fails(status, KN_ERR_INVALID, "the step is being captured");
        return;
    }
    if (status < 0) fail_msg("%s: %s", name, kn_last_error()->message);
    if (memcmp(&plain, &captured, sizeof plain) != 0) fail_msg("%s: losses differ", name);
    if (!(stats.n_launches > 0 && stats.n_launches >= (uint64_t)plain.n / 2))
        fail_msg("%s: %d replays", name, (int)stats.n_launches);
}

static void captured_training_has_the_losses_of_plain_training(void **state) {
    (void)state;
    small_model small;
    for (int i = 0; small_model_at(&small, i); i++) same_losses(&small, &(way){0});
}

static void so_it_has_with_accumulated_batches_and_a_loss_scale(void **state) {
    (void)state;
    small_model small;
    for (int i = 0; small_model_at(&small, i); i++) {
        if (!small.kind.turns) same_losses(&small, &(way){.accumulate = 3, .scaled = true});
    }
}

static void so_it_has_with_averages_and_clipped_gradients(void **state) {
    (void)state;
    static const char *const names[] = {"mlp", "char_lstm", "resnet18", "dcgan"};
    for (int k = 0; k < 4; k++) {
        small_model small;
        int i = 0;
        while (small_model_at(&small, i) && strcmp(small.kind.name, names[k]) != 0) i++;
        bool clips = !small.kind.turns;
        same_losses(&small, &(way){.averaged = true, .clip_norm = clips ? 0.1 : 0});
        same_losses(&small, &(way){.averaged = true, .clip_each = clips ? 0.1 : 0});
    }
}

int main(void) {
    return RUN_TESTS(TEST_LONG(captured_training_has_the_losses_of_plain_training),
                     TEST_LONG(so_it_has_with_accumulated_batches_and_a_loss_scale),
                     TEST(so_it_has_with_averages_and_clipped_gradients));
}
