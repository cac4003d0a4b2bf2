/* The file of a run's best epoch: weights to evaluate, and the loss by which it is the best. */
#include "best.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "ranks.h"

/* Places among the numbers of the file. */
enum { EPOCH, BEFORE, LOSS = 4 };

kn_status kn__train_checkpoint_check(const kn_train_checkpoint *c) {
    const char *path = c->path ? c->path : "NULL", *best = c->best ? c->best : "NULL";
    bool needs_path = !c->best || c->every || c->keep || c->resume;
    for (int i = 0; i < 2; i++)
        if (c->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_train_checkpoint: reserved is not zero");
    if ((needs_path && !c->path) || c->every < 0 || c->keep < 0 || !(c->lr >= 0))
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_train_checkpoint: path %s, best %s, every %" PRId64
                       ", keep %d, resume %d, lr %g",
                       path, best, c->every, c->keep, c->resume, c->lr);
    if (c->path && c->best && strcmp(path, best) == 0)
        return KN_FAIL(KN_ERR_INVALID, "kn_train_checkpoint: path and best are one file, %s", path);
    return KN_OK;
}

/* Whether the file is of the epoch with the run's least loss; or of the next better one: a run that
 * was killed between its two files trains that epoch again. Other runs have other losses. */
static bool is_own(const char *path, double least) {
    uint64_t number[8];
    kn_file *f = NULL;
    if (access(path, F_OK) != 0 || kn_file_open(&f, path) < 0) return false;
    kn_status status = kn__numbers_get(number, 8, f, path, "knet.numbers");
    kn_file_close(f);
    if (status < 0) return false;
    return kn__double_of(number[LOSS]) == least || kn__double_of(number[BEFORE]) == least;
}

kn_status kn__best_begin(kn__best *best, const char *path, double least, kn_parallel *parallel) {
    *best = (kn__best){.path = path};
    if (!path || !kn__ranks_writes(parallel)) return KN_OK;
    KN_TRY(kn__checkpoint_can_save(path));
    if (isfinite(least) && !is_own(path, least))
        kn_log_write(
            1,
            "%s does not have the best epoch so far, of loss %g: it is written once an epoch is "
            "better",
            path, least);
    return KN_OK;
}

kn_status kn__best_judge(kn__best *best, int64_t epoch, double loss, double least,
                         kn_parallel *parallel) {
    if (!best->path) return KN_OK;
    best->is_due = loss < least;
    best->epoch = epoch;
    best->loss = loss;
    best->before = least;
    return kn__ranks_any(parallel, &best->is_due);
}

/* With the loader: its vocabulary. */
kn_status kn__best_write(const kn__best *best, const kn_model *model, kn_loader *train,
                         kn_ema *ema) {
    kn_checkpoint c = {
        .params = kn_model_params(model), .state = kn_model_net(model), .train = train, .ema = ema};
    c.number[EPOCH] = (uint64_t)best->epoch;
    c.number[BEFORE] = kn__bits_of(best->before);
    c.number[LOSS] = kn__bits_of(best->loss);
    return kn_checkpoint_save(best->path, &c, NULL);
}
