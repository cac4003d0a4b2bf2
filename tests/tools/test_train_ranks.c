/* Training on several ranks: options that differ, checkpoints of another number of ranks. */
#include <knet/parallel.h>
#include <knet/train.h>
#include <math.h>

#include "checkpoint_dir.h"
#include "ranks_test.h"

/* What rank 1 does, unlike rank 0. */
typedef struct other {
    int64_t batch;
    uint64_t data_seed;
    bool augments, averages, scales;
    const char *message;
} other;

typedef struct trained {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_dataset *data;
    kn_loader *loader;
    kn_train_more more;
} trained;

static const char *create_of(trained *t, kn_comm *comm, const char *model, kn_shape shape,
                             kn_loader_options options, uint64_t data_seed) {
    options.rank = kn_comm_rank(comm);
    options.n_ranks = kn_comm_size(comm);
    RANK_OK(kn_params_create(&t->params, NULL));
    RANK_OK(kn_model_create(&t->model, model, t->params));
    RANK_OK(kn_sgd_create(&t->optim, t->params, 0.1, NULL));
    RANK_OK(kn_dataset_create_synthetic(
        &t->data, 200,
        &(kn_synthetic_options){.shape = shape, .n_classes = 10, .seed = data_seed}));
    RANK_OK(kn_loader_create_from(&t->loader, t->data, &options));
    RANK_OK(kn_parallel_create(&t->more.parallel, t->params, comm, NULL));
    return NULL;
}

static const char *create(trained *t, kn_comm *comm, kn_loader_options options) {
    return create_of(t, comm, "softmax", KN_SHAPE(1, 28, 28), options, 0);
}

static void release(trained *t) {
    kn_loss_scale_destroy(t->more.scale);
    kn_ema_destroy(t->more.ema);
    kn_parallel_destroy(t->more.parallel);
    kn_loader_destroy(t->loader);
    kn_dataset_destroy(t->data);
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
}

/* 200 images, 3 batches of each rank. */
static const char *create_other(trained *t, kn_comm *comm, const other *o) {
    const kn_augment augment = {.flip = 1};
    bool is_other = kn_comm_rank(comm) == 1;
    const kn_loader_options options = {.batch = is_other && o->batch ? o->batch : 32,
                                       .augment = is_other && o->augments ? &augment : NULL};
    const char *found =
        create_of(t, comm, "softmax", KN_SHAPE(1, 28, 28), options, is_other ? o->data_seed : 0);
    if (found) return found;
    if (is_other && o->averages) RANK_OK(kn_ema_create(&t->more.ema, t->params, 0.9));
    if (is_other && o->scales) RANK_OK(kn_loss_scale_create(&t->more.scale, t->params, NULL));
    return NULL;
}

static const char *train(kn_comm *comm, void *ctx) {
    const other *o = ctx;
    trained t = {.more = {.ema = NULL}};
    kn_train_result result;
    KN_FRAME(.device = kn_device_host());
    const char *found = create_other(&t, comm, o);
    if (found) return found;
    kn_status status = kn_train(&result, sizeof result, t.model, t.optim, t.loader, NULL,
                                &(kn_train_options){.more = &t.more});
    RANK_CHECK(status == (o->message ? KN_ERR_INVALID : KN_OK));
    RANK_CHECK(!o->message || strstr(kn_last_error()->message, o->message));
    release(&t);
    return NULL;
}

static void ranks_that_train_otherwise_are_an_error(void **state) {
    (void)state;
    other others[] = {
        {.message = NULL},
        {.batch = 33, .message = "rank 0 has '1 epochs of 3 batches of 32, "},
        {.augments = true, .message = "rank 1 '1 epochs of 3 batches of 32, augmented, 1 a step;"},
        {.averages = true, .message = "1 a step, averaged weights; from"},
        {.scales = true, .message = "1 a step, scaled loss; from"},
        {.data_seed = 1,
         .message = "the training data differs between the ranks: rank 0 has '200 samples, hash "},
    };
    for (int i = 0; i < 6; i++) ranks_run(2, train, &others[i]);
}

/* --- other ranks continue --- */

/* 200 images in batches of 8: an epoch of one rank has 25. */
typedef struct part {
    int64_t accumulate;
    bool partial;
    int64_t stop;  /* after so many steps of this part; 0: trains on */
    int64_t steps; /* expected */
} part;

static bool until_stop(void *ctx, const kn_train_step *step) {
    const part *p = ctx;
    return step->index != p->stop;
}

static const char *train_part(kn_comm *comm, void *ctx) {
    const part *p = ctx;
    trained t = {.more = {.ema = NULL}};
    kn_train_result result;
    KN_FRAME(.device = kn_device_host());
    const char *found = create(&t, comm, (kn_loader_options){.batch = 8, .partial = p->partial});
    if (found) return found;
    const kn_train_options options = {
        .more = &t.more,
        .accumulate = p->accumulate,
        .checkpoint = &(kn_train_checkpoint){.path = path, .resume = true},
        .on_step_fn = p->stop ? until_stop : NULL,
        .ctx = ctx};
    RANK_OK(kn_train(&result, sizeof result, t.model, t.optim, t.loader, NULL, &options));
    RANK_CHECK(result.n_steps - result.resumed == p->steps);
    RANK_CHECK(result.stopped == (p->stop > 0));
    RANK_CHECK(result.stopped || isfinite(result.last.loss));
    release(&t);
    return NULL;
}

static void other_numbers_of_ranks_train_the_rest_of_the_epoch(void **state) {
    (void)state;
    static const struct {
        int before, after;
        part first, rest;
    } cases[] = {
        {1, 2, {.stop = 1}, {.steps = 12}},
        {1, 3, {.stop = 1}, {.steps = 8}},
        {1, 5, {.stop = 1}, {.steps = 5}},
        {1, 5, {.stop = 4}, {.steps = 5}},
        {1, 5, {.stop = 5}, {.steps = 4}},
        {1, 2, {.stop = 1}, {.accumulate = 4, .steps = 3}},
        {1, 1, {.stop = 1}, {.accumulate = 4, .steps = 6}},
        {1, 2, {.stop = 24}, {.steps = 0}},
        {1, 2, {.stop = 25}, {.steps = 0}},
        {2, 1, {.stop = 1}, {.steps = 23}},
        {2, 5, {.stop = 1}, {.steps = 5}},
        {2, 1, {.partial = true, .stop = 13}, {.partial = true, .steps = 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        part first = cases[i].first, rest = cases[i].rest;
        first.steps = first.stop;
        ranks_run(cases[i].before, train_part, &first);
        ranks_run(cases[i].after, train_part, &rest);
        (void)remove(path);
    }
}

/* --- a save changes nothing --- */

/* Of two epochs; 200 images in batches of 16. */
typedef struct saving {
    char path[sizeof path + 8];
    char best[sizeof path + 8]; /* "": not wanted */
    int64_t every;              /* steps */
    int64_t stop;               /* at this step of the second epoch; 0: trains on */
} saving;

static bool until_second_stop(void *ctx, const kn_train_step *step) {
    const saving *s = ctx;
    return step->epoch < 2 || step->index != s->stop;
}

static const char *train_saving(kn_comm *comm, void *ctx) {
    const saving *s = ctx;
    trained t = {.more = {.ema = NULL}};
    kn_train_result result;
    KN_FRAME(.device = kn_device_host());
    const char *found =
        create_of(&t, comm, "cifar_bn", KN_SHAPE(3, 32, 32), (kn_loader_options){.batch = 16}, 0);
    if (found) return found;
    const kn_train_options options = {
        .epochs = 2,
        .more = &t.more,
        .checkpoint = &(kn_train_checkpoint){.path = s->path,
                                             .every = s->every,
                                             .resume = true,
                                             .best = *s->best ? s->best : NULL},
        .on_step_fn = until_second_stop,
        .ctx = ctx};
    RANK_OK(kn_train(&result, sizeof result, t.model, t.optim, t.loader, NULL, &options));
    RANK_CHECK(result.stopped == (s->stop > 0));
    release(&t);
    return NULL;
}

static void assert_same_files(const char *a, const char *b) {
    FILE *in_a = fopen(a, "rb"), *in_b = fopen(b, "rb");
    assert_true(in_a && in_b);
    for (long at = 0, x = 0; x != EOF; at++)
        if ((x = getc(in_a)) != getc(in_b)) fail_msg("%s differs from %s at byte %ld", b, a, at);
    fclose(in_a);
    fclose(in_b);
}

/* Losses and running statistics are each rank's own; the files have their means, and them. */
static void checkpoints_inside_an_epoch_change_no_later_one(void **state) {
    (void)state;
    saving whole = {.every = 0}, often = {.every = 1}, parts = {.stop = 1};
    snprintf(whole.path, sizeof whole.path, "%s", path);
    snprintf(often.path, sizeof often.path, "%s.often", path);
    snprintf(parts.path, sizeof parts.path, "%s.parts", path);
    for (int n = 2; n <= 3; n++) {
        ranks_run(n, train_saving, &whole);
        ranks_run(n, train_saving, &often);
        assert_same_files(whole.path, often.path);
        for (parts.stop = 3; parts.stop >= 0; parts.stop -= 3) ranks_run(n, train_saving, &parts);
        assert_same_files(whole.path, parts.path);
        (void)remove(whole.path);
        (void)remove(often.path);
        (void)remove(parts.path);
    }
}

/* The running statistics in it are means of the ranks'; each trains on with its own. */
static void the_file_of_the_best_epoch_is_of_all_ranks(void **state) {
    (void)state;
    saving whole = {.every = 0}, best = {.every = 0}, parts = {.stop = 3};
    snprintf(whole.path, sizeof whole.path, "%s", path);
    snprintf(best.path, sizeof best.path, "%s.run", path);
    snprintf(parts.path, sizeof parts.path, "%s.parts", path);
    snprintf(best.best, sizeof best.best, "%s.best", path);
    snprintf(parts.best, sizeof parts.best, "%s.last", path);
    ranks_run(2, train_saving, &whole);
    ranks_run(2, train_saving, &best);
    assert_same_files(whole.path, best.path);
    for (; parts.stop >= 0; parts.stop -= 3) ranks_run(2, train_saving, &parts);
    assert_same_files(best.best, parts.best);
}

int main(void) {
    return RUN_TESTS(TEST(ranks_that_train_otherwise_are_an_error),
                     cmocka_unit_test_setup_teardown(
                         checkpoints_inside_an_epoch_change_no_later_one, dir_make, dir_remove),
                     cmocka_unit_test_setup_teardown(the_file_of_the_best_epoch_is_of_all_ranks,
                                                     dir_make, dir_remove),
                     cmocka_unit_test_setup_teardown(
                         other_numbers_of_ranks_train_the_rest_of_the_epoch, dir_make, dir_remove));
}
