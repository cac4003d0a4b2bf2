/* Training on several ranks whose options differ. */
#include <knet/parallel.h>
#include <knet/train.h>

#include "ranks_test.h"

/* What rank 1 does, unlike rank 0. */
typedef struct other {
    int64_t batch;
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

/* 200 images, 3 batches of each rank. */
static const char *create(trained *t, kn_comm *comm, const other *o) {
    const kn_augment augment = {.flip = 1};
    bool is_other = kn_comm_rank(comm) == 1;
    const kn_loader_options options = {.batch = is_other && o->batch ? o->batch : 32,
                                       .augment = is_other && o->augments ? &augment : NULL,
                                       .rank = kn_comm_rank(comm),
                                       .n_ranks = kn_comm_size(comm)};
    RANK_OK(kn_params_create(&t->params, NULL));
    RANK_OK(kn_model_create(&t->model, "softmax", t->params));
    RANK_OK(kn_sgd_create(&t->optim, t->params, 0.1, NULL));
    RANK_OK(kn_dataset_create_synthetic(
        &t->data, 200, &(kn_synthetic_options){.shape = KN_SHAPE(1, 28, 28), .n_classes = 10}));
    RANK_OK(kn_loader_create_from(&t->loader, t->data, &options));
    RANK_OK(kn_parallel_create(&t->more.parallel, t->params, comm, NULL));
    if (is_other && o->averages) RANK_OK(kn_ema_create(&t->more.ema, t->params, 0.9));
    if (is_other && o->scales) RANK_OK(kn_loss_scale_create(&t->more.scale, t->params, NULL));
    return NULL;
}

static const char *train(kn_comm *comm, void *ctx) {
    const other *o = ctx;
    trained t = {.more = {.ema = NULL}};
    kn_train_result result;
    KN_FRAME(.device = kn_device_host());
    const char *found = create(&t, comm, o);
    if (found) return found;
    kn_status status = kn_train(&result, sizeof result, t.model, t.optim, t.loader, NULL,
                                &(kn_train_options){.more = &t.more});
    RANK_CHECK(status == (o->message ? KN_ERR_INVALID : KN_OK));
    RANK_CHECK(!o->message || strstr(kn_last_error()->message, o->message));
    kn_loss_scale_destroy(t.more.scale);
    kn_ema_destroy(t.more.ema);
    kn_parallel_destroy(t.more.parallel);
    kn_loader_destroy(t.loader);
    kn_dataset_destroy(t.data);
    kn_optim_destroy(t.optim);
    kn_model_destroy(t.model);
    kn_params_destroy(t.params);
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
    };
    for (int i = 0; i < 5; i++) ranks_run(2, train, &others[i]);
}

int main(void) { return RUN_TESTS(TEST(ranks_that_train_otherwise_are_an_error)); }
