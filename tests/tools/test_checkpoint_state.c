/* What a checkpoint has of averages, of an optimiser's settings, of its groups, and of time. */
#include <knet/checkpoint.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <unistd.h>

#include "checkpoint_dir.h"
#include "test.h"

typedef struct pair {
    kn_params *params;
    kn_tensor *w[2];
    kn_checkpoint c;
} pair;

/* Without an optimiser. */
static void pair_open(pair *p) {
    *p = (pair){0};
    assert_ok(kn_params_create(&p->params, NULL));
    for (int i = 0; i < 2; i++)
        p->w[i] = kn_param(p->params, KN_SHAPE(1), (kn_init){KN_INIT_CONSTANT, 1 + i, 0}, "w%d", i);
    p->c = (kn_checkpoint){.params = p->params};
    assert_ok(kn_check());
}

static void pair_close(pair *p) {
    kn_ema_destroy(p->c.ema);
    kn_optim_destroy(p->c.optim);
    kn_params_destroy(p->params);
}

static double first_of(kn_tensor *t) {
    KN_FRAME();
    double x = 0;
    assert_ok(kn_item(&x, kn_reshape(t, KN_SCALAR)));
    return x;
}

static double value_in_file(const char *name) {
    KN_FRAME();
    kn_file *f = NULL;
    assert_ok(kn_file_open(&f, path));
    double x = first_of(kn_file_read(f, name));
    kn_file_close(f);
    return x;
}

static void averages_have_their_names_also_while_exchanged(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        KN_FRAME();
        pair p, q;
        pair_open(&p);
        pair_open(&q);
        assert_ok(kn_ema_create(&p.c.ema, p.params, 0.5));
        assert_ok(kn_ema_create(&q.c.ema, q.params, 0.5));
        assert_ok(kn_fill_into(p.w[0], 3)); /* w0 is 3, its average 1 */
        if (k & 1) assert_ok(kn_ema_swap(p.c.ema));
        assert_ok(kn_checkpoint_save(path, &p.c, NULL));
        assert_close(value_in_file("w0"), 3, 0, 0);
        assert_close(value_in_file("ema/w0"), 1, 0, 0);
        if (k & 2) assert_ok(kn_ema_swap(q.c.ema));
        assert_ok(kn_checkpoint_load(&q.c, path));
        if (k & 2) assert_ok(kn_ema_swap(q.c.ema));
        assert_close(first_of(q.w[0]), 3, 0, 0);
        assert_close(first_of(kn_ema_at(q.c.ema, 0)), 1, 0, 0);
        pair_close(&p);
        pair_close(&q);
    }
}

/* Training would continue from the averages, or the next exchange would drop the loaded weights. */
static void weights_to_train_are_no_averages(void **state) {
    (void)state;
    static const char why[] = "the weights are averages, which kn_ema_swap put there";
    KN_FRAME();
    pair p;
    kn_ema *ema = NULL, *other = NULL;
    pair_open(&p);
    assert_ok(kn_ema_create(&ema, p.params, 0.5));
    assert_ok(kn_ema_create(&other, p.params, 0.5));
    assert_ok(kn_sgd_create(&p.c.optim, p.params, 0.1, NULL));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_ema_swap(ema));
    assert_int_equal(kn_params_swapped(p.params), 1);
    assert_fails(kn_checkpoint_save(path, &p.c, NULL), KN_ERR_INVALID, why);
    assert_fails(kn_checkpoint_load(&p.c, path), KN_ERR_INVALID, why);
    p.c.ema = other;
    assert_fails(kn_checkpoint_save(path, &p.c, NULL), KN_ERR_INVALID, why);
    p.c.ema = ema;
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_checkpoint_save(path, &(kn_checkpoint){.params = p.params}, NULL));
    assert_ok(kn_ema_swap(ema));
    assert_int_equal(kn_params_swapped(p.params), 0);
    kn_ema_destroy(other);
    pair_close(&p);
}

/* Each of several holds what the weights were before its exchange. */
static void averages_are_refused_while_others_are_exchanged(void **state) {
    (void)state;
    KN_FRAME();
    pair p;
    kn_ema *ema[2] = {NULL, NULL};
    pair_open(&p);
    for (int i = 0; i < 2; i++) assert_ok(kn_ema_create(&ema[i], p.params, 0.5));
    p.c.ema = ema[0];
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_ema_swap(ema[1]));
    assert_fails(kn_checkpoint_save(path, &p.c, NULL), KN_ERR_INVALID, "of 1 exchanged, none is");
    assert_ok(kn_ema_swap(ema[0]));
    for (int i = 0; i < 2; i++) {
        p.c.ema = ema[i];
        assert_fails(kn_checkpoint_save(path, &p.c, NULL), KN_ERR_INVALID, "of 2 exchanged, one");
        assert_fails(kn_checkpoint_load(&p.c, path), KN_ERR_INVALID,
                     "again before, the last first");
    }
    for (int i = 0; i < 2; i++) assert_ok(kn_ema_swap(ema[i]));
    assert_ok(kn_checkpoint_load(&p.c, path));
    kn_ema_destroy(ema[0]);
    pair_close(&p);
}

/* A parameter or a tensor of the program may be named ema/…, as averages of weights are. */
static void parameters_may_be_named_as_averages_are(void **state) {
    (void)state;
    const char *const named[] = {"ema/teacher", "ema/w0"};
    for (int k = 0; k < 2; k++) {
        KN_FRAME();
        pair p;
        pair_open(&p);
        kn_named own = {"ema/mine", kn_ones(KN_SHAPE(1))};
        kn_tensor *w = kn_param(p.params, KN_SHAPE(1), (kn_init){0}, "%s", named[k]);
        assert_ok(kn_sgd_create(&p.c.optim, p.params, 0.1, NULL));
        p.c.extra = &own;
        p.c.n_extra = 1;
        assert_ok(kn_checkpoint_save(path, &p.c, NULL));
        assert_ok(kn_fill_into(w, 5));
        assert_ok(kn_checkpoint_load(&p.c, path));
        assert_close(first_of(w), 0, 0, 0);
        pair_close(&p);
    }
}

static void averages_are_named_where_they_lack_or_would_be_lost(void **state) {
    (void)state;
    KN_FRAME();
    pair p;
    pair_open(&p);
    (void)kn_param(p.params, KN_SHAPE(1), (kn_init){0}, "ema/teacher");
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_ema_create(&p.c.ema, p.params, 0.5));
    assert_fails(kn_checkpoint_load(&p.c, path), KN_ERR_INVALID, "has no averages of the weights");
    assert_ok(kn_sgd_create(&p.c.optim, p.params, 0.1, NULL));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    kn_checkpoint without = p.c;
    without.ema = NULL;
    assert_fails(kn_checkpoint_load(&without, path), KN_ERR_INVALID, "has averages of the weights");
    pair_close(&p);
}

/* --- settings --- */

typedef kn_status (*optim_fn)(kn_optim **, kn_params *, double number[4]);

static kn_status momentum(kn_optim **out, kn_params *p, double x[4]) {
    return kn_momentum_create(
        out, p, 0.1, x[0],
        &(kn_sgd_options){.weight_decay = x[1], .clip_norm = x[2], .clip_each = x[3]});
}
static kn_status rmsprop(kn_optim **out, kn_params *p, double x[4]) {
    return kn_rmsprop_create(out, p, 0.1, &(kn_adaptive_options){.rho = x[0], .eps = x[1]});
}
static kn_status adam(kn_optim **out, kn_params *p, double x[4]) {
    return kn_adam_create(out, p, 0.1,
                          &(kn_adam_options){.beta1 = x[0], .beta2 = x[1], .eps = x[2]});
}

/* Loads what an optimiser of x saved into one whose number i is another. */
static void settings_refused(optim_fn fn, int i, const char *name, const char *options) {
    double x[4] = {0.5, 0.25, 0.125, 0.75}, y[4] = {0.5, 0.25, 0.125, 0.75};
    char text[128];
    pair p, q;
    pair_open(&p);
    pair_open(&q);
    y[i] = 0.0625;
    assert_ok(fn(&p.c.optim, p.params, x));
    assert_ok(fn(&q.c.optim, q.params, y));
    assert_ok(kn_fill_into(p.w[0], 3));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    snprintf(
        text, sizeof text,
        "is of a run with %s %g; the optimiser's is 0.0625: resume with the %s of the first run "
        "(%s)",
        name, x[i], name, options);
    assert_fails(kn_checkpoint_load(&q.c, path), KN_ERR_INVALID, text);
    assert_close(first_of(q.w[0]), 1, 0, 0);
    q.c.keep_settings = 1;
    assert_ok(kn_checkpoint_load(&q.c, path));
    assert_close(first_of(q.w[0]), 3, 0, 0);
    pair_close(&p);
    pair_close(&q);
}

static void other_settings_are_refused(void **state) {
    (void)state;
    KN_FRAME();
    settings_refused(momentum, 0, "momentum", "--optimizer");
    settings_refused(momentum, 1, "weight_decay", "--weight-decay or --optimizer");
    settings_refused(momentum, 2, "clip_norm", "--clip-norm or --optimizer");
    settings_refused(momentum, 3, "clip_each", "--clip-each or --optimizer");
    settings_refused(rmsprop, 0, "rho", "--optimizer");
    settings_refused(adam, 1, "beta2", "--optimizer");
    settings_refused(adam, 2, "eps", "--optimizer");
}

static void a_file_of_an_older_version_has_no_settings(void **state) {
    (void)state;
    KN_FRAME();
    double x[4] = {0.5}, y[4] = {0.75};
    pair p, q;
    pair_open(&p);
    pair_open(&q);
    assert_ok(momentum(&p.c.optim, p.params, x));
    assert_ok(momentum(&q.c.optim, q.params, y));
    assert_ok(kn_optim_group(q.c.optim, "w1", 0.5, 1));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    file_change("knet.settings", "else.settings");
    file_change("knet.groups", "else.groups");
    assert_ok(kn_checkpoint_load(&q.c, path));
    q.c.keep_settings = 2;
    assert_fails(kn_checkpoint_load(&q.c, path), KN_ERR_INVALID, "keep_settings is 2");
    pair_close(&p);
    pair_close(&q);
}

/* Weights to evaluate load into averages of any decay. */
static void averages_of_another_decay_are_refused(void **state) {
    (void)state;
    KN_FRAME();
    pair p, q;
    pair_open(&p);
    pair_open(&q);
    assert_ok(kn_sgd_create(&p.c.optim, p.params, 0.1, NULL));
    assert_ok(kn_ema_create(&p.c.ema, p.params, 0.875));
    assert_ok(kn_ema_create(&q.c.ema, q.params, 0.5));
    assert_ok(kn_fill_into(p.w[0], 3));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_checkpoint_load(&p.c, path));
    assert_ok(kn_checkpoint_load(&q.c, path));
    assert_ok(kn_fill_into(q.w[0], 5));
    assert_ok(kn_sgd_create(&q.c.optim, q.params, 0.1, NULL));
    assert_fails(kn_checkpoint_load(&q.c, path), KN_ERR_INVALID,
                 "is of a run with averages of decay 0.875; this run's is 0.5: resume with that of "
                 "the first run (--ema)");
    assert_close(first_of(q.w[0]), 5, 0, 0);
    q.c.keep_settings = 1;
    assert_ok(kn_checkpoint_load(&q.c, path));
    assert_close(first_of(q.w[0]), 3, 0, 0);
    q.c.keep_settings = 0;
    file_change("knet.decay", "else.decay"); /* a file of an older version has none */
    assert_ok(kn_checkpoint_load(&q.c, path));
    pair_close(&p);
    pair_close(&q);
}

/* --- groups --- */

static void step(pair *p) {
    KN_TAPE();
    assert_ok(kn_backward(kn_sum(kn_add(p->w[0], p->w[1]), KN_ALL, false)));
    assert_ok(kn_optim_step(p->c.optim));
}

static void groups_are_those_of_the_file(void **state) {
    (void)state;
    KN_FRAME();
    pair p, q;
    pair_open(&p);
    pair_open(&q);
    assert_ok(kn_sgd_create(&p.c.optim, p.params, 1, NULL));
    assert_ok(kn_sgd_create(&q.c.optim, q.params, 1, NULL));
    assert_ok(kn_optim_group(p.c.optim, "", 0.5, 0.25));
    assert_ok(kn_optim_group(p.c.optim, "w1", 0, 1));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_checkpoint_load(&q.c, path));
    step(&q);
    assert_close(first_of(q.w[0]), 0.5, 0, 0);
    assert_close(first_of(q.w[1]), 2, 0, 0);
    assert_ok(kn_checkpoint_load(&q.c, path)); /* into the same groups */
    assert_ok(kn_optim_group(q.c.optim, "w0", 0.75, 0.25));
    assert_fails(kn_checkpoint_load(&q.c, path), KN_ERR_INVALID,
                 "has the factors 0.5 and 0.25 of kn_optim_group for 'w0'; the optimiser has 0.75 "
                 "and 0.25");
    q.c.keep_settings = 1;
    assert_ok(kn_checkpoint_load(&q.c, path));
    step(&q);
    assert_close(first_of(q.w[0]), 0.25, 0, 0);
    pair_close(&p);
    pair_close(&q);
}

static void groups_of_parameters_that_are_not_there_are_left_out(void **state) {
    (void)state;
    KN_FRAME();
    pair p, q;
    pair_open(&p);
    pair_open(&q);
    assert_non_null(kn_param(p.params, KN_SHAPE(1), (kn_init){0}, "other"));
    assert_ok(kn_sgd_create(&p.c.optim, p.params, 1, NULL));
    assert_ok(kn_sgd_create(&q.c.optim, q.params, 1, NULL));
    assert_ok(kn_optim_group(p.c.optim, "other", 0.5, 1));
    assert_ok(kn_optim_group(p.c.optim, "w0", 0.25, 1));
    assert_ok(kn_checkpoint_save(path, &p.c, NULL));
    assert_ok(kn_checkpoint_load(&q.c, path));
    step(&q);
    assert_close(first_of(q.w[0]), 0.75, 0, 0);
    assert_close(first_of(q.w[1]), 1, 0, 0);
    file_change("2 w0", "9 w0"); /* more bytes than there are */
    assert_fails(kn_checkpoint_load(&q.c, path), KN_ERR_INVALID, "knet.groups of the metadata is");
    pair_close(&p);
    pair_close(&q);
}

/* --- seconds --- */

/* Stops in step `left` of the run, 0: never; notes the seconds of each epoch. */
typedef struct watch {
    int left;
    double seconds[3]; /* from 1 */
} watch;

static bool on_step(void *ctx, const kn_train_step *step) {
    (void)step;
    return --((watch *)ctx)->left != 0;
}
static void on_epoch(void *ctx, const kn_epoch *epoch) {
    ((watch *)ctx)->seconds[epoch->index] = epoch->train_seconds;
}

/* The objects are left for release by train_close. */
static double train(kn_checkpoint *c, kn_model **model, watch *w) {
    kn_train_result result;
    kn_train_checkpoint checkpoint = {.path = path, .resume = 1};
    *c = (kn_checkpoint){0};
    assert_ok(kn_params_create(&c->params, NULL));
    assert_ok(kn_model_create(model, "softmax", c->params));
    assert_ok(kn_sgd_create(&c->optim, c->params, 0.1, NULL));
    assert_ok(kn_loader_create_synthetic(&c->train, 500, &(kn_loader_options){.batch = 50}));
    c->net = kn_model_net(*model);
    assert_ok(kn_train(&result, sizeof result, *model, c->optim, c->train, NULL,
                       &(kn_train_options){.epochs = 2,
                                           .on_step_fn = on_step,
                                           .on_epoch_fn = on_epoch,
                                           .checkpoint = &checkpoint,
                                           .ctx = w}));
    return result.last.train_seconds;
}

static void train_close(kn_checkpoint *c, kn_model *model) {
    kn_loader_destroy(c->train);
    kn_optim_destroy(c->optim);
    kn_model_destroy(model);
    kn_params_destroy(c->params);
}

/* Of older files n_extra is 1. */
static watch resume_with_seconds(kn_checkpoint *part, int n_extra, double seconds) {
    kn_checkpoint c;
    kn_model *model = NULL;
    watch w = {0};
    part->n_extra = n_extra;
    assert_ok(kn_fill_into(part->extra[1].tensor, seconds));
    assert_ok(kn_checkpoint_save(path, part, NULL));
    (void)train(&c, &model, &w);
    train_close(&c, model);
    return w;
}

static void seconds_of_a_resumed_epoch_are_those_of_all_its_steps(void **state) {
    (void)state;
    kn_checkpoint c;
    kn_model *model = NULL;
    (void)unlink(path);
    double spent = train(&c, &model, &(watch){.left = 4});
    KN_FRAME();
    kn_tensor *seconds = kn_tensor_new(kn_device_host(), KN_F64, KN_SCALAR);
    kn_named extra[] = {{"train/loss_sums", kn_zeros(KN_SHAPE(1024))}, {"train/seconds", seconds}};
    c.extra = extra;
    c.n_extra = 2;
    assert_ok(kn_checkpoint_load(&c, path));
    assert_true(first_of(seconds) > 0 && first_of(seconds) <= spent);
    watch w = resume_with_seconds(&c, 2, 1e6);
    assert_true(w.seconds[1] > 1e6 && w.seconds[1] < 2e6);
    assert_true(w.seconds[2] > 0 && w.seconds[2] < 1e6);
    w = resume_with_seconds(&c, 1, 1e6);
    assert_true(w.seconds[1] > 0 && w.seconds[1] < 1e6);
    train_close(&c, model);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(averages_have_their_names_also_while_exchanged),
                                       TEST(weights_to_train_are_no_averages),
                                       TEST(averages_are_refused_while_others_are_exchanged),
                                       TEST(parameters_may_be_named_as_averages_are),
                                       TEST(averages_are_named_where_they_lack_or_would_be_lost),
                                       TEST(other_settings_are_refused),
                                       TEST(a_file_of_an_older_version_has_no_settings),
                                       TEST(averages_of_another_decay_are_refused),
                                       TEST(groups_are_those_of_the_file),
                                       TEST(groups_of_parameters_that_are_not_there_are_left_out),
                                       TEST(seconds_of_a_resumed_epoch_are_those_of_all_its_steps)};
    return cmocka_run_group_tests_name("test_checkpoint_state", tests, dir_make, dir_remove);
}
