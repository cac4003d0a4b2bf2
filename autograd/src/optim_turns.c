/* Parameters that move in turns. */
#include <stdlib.h>

#include "optim.h"

int kn__turn_of(const kn_optim *optim, const kn__param *p) {
    int i = 0;
    while (optim->turn && !kn__has_prefix(p, optim->turn[i])) i++;
    return i;
}

void kn__turns_free(char **turn, int n) {
    for (int i = 0; turn && i < n; i++) free(turn[i]);
    free(turn);
}

static kn_status turns_check(const kn_optim *optim, const char *const prefix[], int n) {
    if (!optim || !prefix || n < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_turns: %s",
                       !optim ? "optim is NULL" : "at least one prefix is needed");
    KN_TRY(kn__params_together("kn_optim_turns", optim->set->head));
    if (optim->turn || optim->is_ready)
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_turns: the optimiser has %s already",
                       optim->turn ? "turns" : "made a step");
    if (optim->clip_norm > 0 || optim->clip_each > 0)
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_optim_turns: an optimiser that clips gradients has no turns");
    for (int i = 0; i < optim->set->n; i++) {
        const kn__param *p = optim->set->param[i];
        if (p->is_sparse)
            return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_optim_turns: the gradient of %s is row-sparse",
                           p->name);
        int k = 0;
        while (k < n && !kn__has_prefix(p, prefix[k])) k++;
        if (k == n) return KN_FAIL(KN_ERR_INVALID, "kn_optim_turns: %s is in no turn", p->name);
    }
    return KN_OK;
}

/* Each turn's rate and step count are those of before. */
static kn_status turns_hyper(kn_optim *optim, int n) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_tensor *old = kn_tensor_view(optim->hyper, KN_SHAPE(1, HYPERS), 0);
    kn_tensor *all = kn_reshape(kn_repeat(old, n, 0), KN_SHAPE(n * HYPERS));
    if (!all) return kn_check();
    kn_tensor *own = kn_affine(all, 1, 0); /* a copy */
    if (!own) return kn_check();
    kn_tensor_release(optim->hyper);
    optim->hyper = kn_tensor_detach_frame(own);
    return KN_OK;
}

kn_status kn_optim_turns(kn_optim *optim, const char *const prefix[], int n) {
    KN_TRY(kn_check());
    KN_TRY(turns_check(optim, prefix, n));
    char **turn = calloc((size_t)n, sizeof *turn);
    int *end = calloc((size_t)n, sizeof *end);
    kn_status status = turn && end ? KN_OK : KN_ERR_OOM;
    for (int i = 0; i < n && status == KN_OK; i++)
        if (!(turn[i] = strdup(prefix[i]))) status = KN_ERR_OOM;
    if (status == KN_ERR_OOM) status = KN_FAIL(status, "kn_optim_turns: no host memory");
    if (status == KN_OK) status = turns_hyper(optim, n);
    if (status < 0) {
        kn__turns_free(turn, n);
        free(end);
        return status;
    }
    optim->turn = turn;
    optim->turn_end = end;
    optim->n_turns = n;
    return KN_OK;
}

int kn_optim_turn_count(const kn_optim *optim) { return optim->turn ? optim->n_turns : 0; }

kn_status kn_optim_turn_step(kn_optim *optim, int i) {
    KN_TRY(kn_check());
    if (!optim || i < 0 || i >= kn_optim_turn_count(optim))
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_turn_step: turn %d of %d", i,
                       optim ? kn_optim_turn_count(optim) : 0);
    KN_TRY(kn__params_own("kn_optim_turn_step", optim->set));
    KN_SCOPE("optim_step");
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    KN_TRY(kn_check());
    if (!optim->is_ready) KN_TRY(kn__optim_prepare(optim));
    KN_TRY(kn__params_settle(optim->set));
    kn_attr_optim attr = kn__parts_attr(optim, i ? optim->turn_end[i - 1] : 0, optim->turn_end[i]);
    kn_tensor *hyper = kn_tensor_view(optim->hyper, KN_SHAPE(HYPERS), (int64_t)i * HYPERS);
    if (!hyper) return kn_check();
    KN_TRY(kn_optim_run(optim->op, &attr, optim->set->flat, optim->m, optim->v, hyper));
    optim->set->stepped = true;
    kn__params_effect(optim->set);
    return KN_OK;
}
