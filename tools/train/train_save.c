/* What a training run saves, and how one continues: its checkpoints and the file of the best epoch.
 */
#include <inttypes.h>
#include <knet/checkpoint.h>
#include <knet/file.h>
#include <math.h>
#include <unistd.h>

#include "checkpoint.h"
#include "loader.h"
#include "losses.h"
#include "ranks.h"
#include "train_run.h"

typedef kn__train_run run;

#define LOSSES "train/loss_sums"
#define SECONDS "train/seconds"
#define CARRY "train/carry"

/* The last three are of the last finished epoch. */
enum { N_EPOCH, N_EPOCH_STEPS, N_STEPS, N_WORSE, N_BEST, N_LOSS, N_TEST_LOSS, N_ACCURACY };

/* extra: what comes with the losses. */
static kn_checkpoint checkpoint_of(const run *r, kn_named *extra, int n_extra) {
    return (kn_checkpoint){.params = kn_model_params(r->model),
                           .optim = r->optim,
                           .net = kn_model_net(r->model),
                           .train = r->train,
                           .ema = r->more.ema,
                           .scale = r->more.scale,
                           .extra = extra,
                           .n_extra = n_extra};
}

/* Of the epoch's training so far. */
double kn__train_spent(const run *r) {
    return r->result.last.n_steps ? r->result.last.train_seconds : 0;
}

/* The best epoch first: a run that is killed in between trains it again, to the same bits. */
static kn_status run_write(run *r, kn_tensor *ranks) {
    KN_FRAME(.record = KN_OFF);
    if (r->kept.is_due) KN_TRY(kn__best_write(&r->kept, r->model, r->train, r->more.ema));
    if (!r->checkpoint.path) return KN_OK;
    kn_tensor *seconds = kn_tensor_new(kn_device_host(), KN_F64, KN_SCALAR);
    KN_TRY(kn_fill_into(seconds, kn__train_spent(r)));
    kn_named extra[4] = {{LOSSES, r->losses}, {SECONDS, seconds}};
    int n = 2;
    if (ranks) extra[n++] = (kn_named){KN__RANKS_NAME, ranks};
    if (r->carry) extra[n++] = (kn_named){CARRY, r->carry};
    kn_checkpoint c = checkpoint_of(r, extra, n);
    c.number[N_EPOCH] = (uint64_t)r->result.last.index;
    c.number[N_EPOCH_STEPS] = (uint64_t)r->result.last.n_steps;
    c.number[N_STEPS] = (uint64_t)r->result.n_steps;
    c.number[N_WORSE] = (uint64_t)r->n_worse;
    c.number[N_BEST] = kn__bits_of(r->best);
    c.number[N_LOSS] = kn__bits_of(r->finished.loss);
    c.number[N_TEST_LOSS] = kn__bits_of(r->finished.test_loss);
    c.number[N_ACCURACY] = kn__bits_of(r->finished.accuracy);
    return kn_checkpoint_save(r->checkpoint.path, &c,
                              &(kn_checkpoint_options){.keep = r->checkpoint.keep});
}

/* Afterwards each rank has its own sums and statistics again: a save changes no later result. */
kn_status kn__train_save(run *r) {
    kn_layer *net = kn_model_net(r->model);
    KN_SLOT(ranks);
    if (!r->checkpoint.path && !r->kept.is_due) return KN_OK;
    if (!r->losses) return KN_OK; /* before the first step */
    KN_TRY(kn__ranks_join(&ranks, r->more.parallel, net, r->losses));
    if (kn__ranks_writes(r->more.parallel)) KN_TRY(run_write(r, ranks));
    r->kept.is_due = false;
    return kn__ranks_part(ranks, r->more.parallel, net, r->losses);
}

int64_t kn__train_steps(const run *r) {
    int64_t k = r->options.accumulate;
    return (kn_loader_batches(r->train) + k - 1) / k;
}

/* The steps that the place in the data is worth, and their losses' sum: a run with another number
 * of ranks or of accumulated batches made others. */
static kn_status epoch_place(run *r) {
    int64_t before = r->result.last.n_steps, after = kn__train_steps(r), batches = r->train->index;
    if (before == 0) return KN_OK;
    /* Saved in its test, a complete epoch is at 0; fewer batches than ranks are 0 of each. */
    if (r->train->set_index > 0 && batches < kn_loader_batches(r->train))
        after = batches / r->options.accumulate;
    if (after == before) return KN_OK;
    r->result.last.n_steps = after;
    KN_FRAME(.record = KN_OFF);
    return kn_hold(&r->losses, kn_affine(r->losses, (double)after / (double)before, 0));
}

/* Loads all; older files have one sum, and no seconds; a state that no batch left yet is zeros. */
static kn_status run_load(kn_checkpoint *c, run *r) {
    static const char older[] = "train/loss_sum";
    kn_file *f = NULL;
    kn_layer *net = kn_model_net(r->model);
    KN_SLOT(ranks);
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn__losses_begin(&r->losses, kn_params_at(kn_model_params(r->model), 0, NULL)));
    kn_tensor *seconds = kn_tensor_new(kn_device_host(), KN_F64, KN_SCALAR);
    KN_TRY(kn_fill_into(seconds, 0));
    kn_named extra[4] = {{LOSSES, r->losses}};
    int n = 1;
    KN_TRY(kn_file_open(&f, r->checkpoint.path));
    if (kn_file_find(f, older) >= 0)
        extra[0] = (kn_named){older, kn_tensor_view(r->losses, KN_SCALAR, 0)};
    if (kn_file_find(f, SECONDS) >= 0) extra[n++] = (kn_named){SECONDS, seconds};
    if (r->carry && kn_file_find(f, CARRY) >= 0) extra[n++] = (kn_named){CARRY, r->carry};
    kn_status status = kn__ranks_find(&ranks, f, r->more.parallel, net, r->losses);
    kn_file_close(f);
    KN_TRY(status);
    if (ranks) extra[n++] = (kn_named){KN__RANKS_NAME, ranks};
    *c = checkpoint_of(r, extra, n);
    KN_TRY(kn_checkpoint_load(c, r->checkpoint.path));
    c->n_extra = 0; /* they end here */
    c->extra = NULL;
    KN_TRY(kn_item(&r->result.last.train_seconds, seconds));
    return kn__ranks_part(ranks, r->more.parallel, net, r->losses);
}

/* Counts that no run has, as of a file that was changed by hand. */
static kn_status numbers_check(const char *path, const uint64_t number[8]) {
    int64_t epoch = (int64_t)number[N_EPOCH], worse = (int64_t)number[N_WORSE];
    int64_t in_epoch = (int64_t)number[N_EPOCH_STEPS], n = (int64_t)number[N_STEPS];
    if (epoch >= 1 && in_epoch >= 0 && in_epoch <= n && worse >= 0) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: knet.numbers of the metadata: epoch %" PRId64 ", %" PRId64
                   " steps of it, %" PRId64 " steps in all, %" PRId64 " epochs without a gain",
                   path, epoch, in_epoch, n, worse);
}

/* *first: the epoch to continue with. */
kn_status kn__train_resume(run *r, int64_t *first) {
    kn_checkpoint c;
    if (!r->checkpoint.path || !r->checkpoint.resume || access(r->checkpoint.path, F_OK) != 0)
        return KN_OK;
    if (kn_params_count(kn_model_params(r->model)) == 0) return KN_OK;
    KN_TRY(run_load(&c, r));
    KN_TRY(numbers_check(r->checkpoint.path, c.number));
    if (r->checkpoint.lr > 0) KN_TRY(kn_optim_lr(r->optim, r->checkpoint.lr));
    *first = (int64_t)c.number[N_EPOCH];
    r->result.last.n_steps = (int64_t)c.number[N_EPOCH_STEPS];
    r->result.n_steps = r->result.resumed = (int64_t)c.number[N_STEPS];
    r->n_worse = (int64_t)c.number[N_WORSE];
    r->best = kn__double_of(c.number[N_BEST]);
    r->result.last.index = *first;
    r->result.last.loss = r->result.last.test_loss = r->result.last.accuracy = NAN;
    r->finished = (kn_epoch){.loss = kn__double_of(c.number[N_LOSS]),
                             .test_loss = kn__double_of(c.number[N_TEST_LOSS]),
                             .accuracy = kn__double_of(c.number[N_ACCURACY])};
    return epoch_place(r);
}
