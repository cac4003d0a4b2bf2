#include "model.h"

#include <knet/op.h>
#include <knet/tape.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"
#include "layers/layer.h"
#include "layers/replays.h"
#include "mix.h"
#include "text.h"

#define KIND(name) &kn__##name,
static const kn_model_kind *const kinds[] = {KN__MODELS(KIND)};
#undef KIND
enum { N_KINDS = sizeof kinds / sizeof *kinds };

struct kn_model {
    const kn_model_kind *kind;
    kn_params *params;
    kn_layer *net;
    void *self; /* the kind's struct */
    bool recomputes;
};

const kn_model_kind *kn_model_kind_at(int i) { return i >= 0 && i < N_KINDS ? kinds[i] : NULL; }
const char *kn_model_name_at(int i) { return i >= 0 && i < N_KINDS ? kinds[i]->name : NULL; }

const kn_model_kind *kn_model_kind_find(const char *name) {
    if (!name) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_model_kind_find: name is NULL");
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

static kn_status unknown_fail(const char *name) {
    char buffer[1024];
    kn__text names = kn__text_in(buffer, sizeof buffer);
    for (int i = 0; i < N_KINDS; i++)
        kn__text_printf(&names, "%s%s", i ? ", " : "", kinds[i]->name);
    return KN_FAIL(KN_ERR_INVALID, "unknown model '%s'; there are: %s", name, names.data);
}

static kn_status kind_check(const kn_model_kind *kind, const kn_params *params) {
    if (!kind || !kind->name || !kind->init || !params)
        return KN_FAIL(KN_ERR_INVALID, "a model needs a kind with a name and init, and params");
    if (kind->turns && !kind->loss)
        return KN_FAIL(KN_ERR_INVALID, "the model %s has turns, but no loss for tests", kind->name);
    return KN_OK;
}

kn_status kn_model_create_kind(kn_model **out, const kn_model_kind *kind, kn_params *params) {
    kn_status status = KN_OK;
    KN_TRY(kn_check());
    KN_TRY(kind_check(kind, params));
    kn_model *model = calloc(1, sizeof *model);
    if (!model) return KN_FAIL(KN_ERR_OOM, "no memory for the model %s", kind->name);
    const int n_before = kn_params_count(params);
    *model = (kn_model){.kind = kind,
                        .params = params,
                        .self = calloc(1, kind->size_bytes + 1),
                        .recomputes = kind->recomputes};
    if (!model->self) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for the model %s", kind->name);
        goto cleanup;
    }
    if (kind->sizes) memcpy(model->self, kind->sizes, kind->size_bytes);
    /* What layers draw doesn't repeat what the initial weights were made of. */
    kn_layer_options options = {.seed = kn__mix(kn_params_seed(params) ^ KN__GOLDEN)};
    KN_TRY_GOTO(status, kn_layer_create(&model->net, params, &options));
    KN_TRY_GOTO(status, kind->init(model->self, model->net));
    *out = model;
    return KN_OK;
cleanup:
    kn_model_destroy(model);
    kn_params_drop_last(params, kn_params_count(params) - n_before);
    return status;
}

kn_status kn_model_create(kn_model **out, const char *name, kn_params *params) {
    if (!name) return KN_FAIL(KN_ERR_INVALID, "kn_model_create: name is NULL");
    const kn_model_kind *kind = kn_model_kind_find(name);
    return kind ? kn_model_create_kind(out, kind, params) : unknown_fail(name);
}

void kn_model_destroy(kn_model *model) {
    if (!model) return;
    kn_layer_destroy(model->net);
    free(model->self);
    free(model);
}

const char *kn_model_name(const kn_model *model) { return model->kind->name; }
const kn_model_kind *kn_model_kind_of(const kn_model *model) { return model->kind; }
kn_layer *kn_model_net(const kn_model *model) { return model->net; }
kn_params *kn_model_params(const kn_model *model) { return model->params; }
void *kn_model_self(const kn_model *model) { return model->self; }
bool kn_model_recompute(const kn_model *model) { return model->recomputes; }
void kn_model_recompute_set(kn_model *model, bool on) { model->recomputes = on; }
bool kn_model_is_classifier(const kn_model *model) { return !model->kind->loss; }

/* Of a model on several devices: what its last layer gave goes to the batch. */
static kn_tensor *at_batch(kn_tensor *y, const kn_batch *batch) {
    kn_device *device = y ? kn_tensor_device(batch->x) : NULL;
    return y && kn_tensor_device(y) != device ? kn_to(y, device) : y;
}

static kn_tensor *predict(void *ctx, const kn_batch *batch) {
    const kn_model *model = ctx;
    KN_FRAME(.dtype = kn_params_dtype(model->params));
    kn_tensor *y = model->kind->predict ? model->kind->predict(model->self, model->net, batch)
                                        : kn_layer_forward(model->net, batch->x);
    return kn_keep(at_batch(y, batch));
}

static bool has_all(const kn_model *model, const kn_batch *batch, const char *who) {
    const char *missing = !model ? "model" : !batch ? "batch" : !batch->x ? "x" : NULL;
    if (!missing) return true;
    if (!kn_pending()) (void)KN_FAIL_NULL(KN_ERR_INVALID, "%s: %s is NULL", who, missing);
    return false;
}

kn_tensor *kn_model_predict(const kn_model *model, const kn_batch *batch) {
    if (!has_all(model, batch, "kn_model_predict")) return NULL;
    const kn__predict how = {predict, (void *)(uintptr_t)model, model->self,
                             model->kind->size_bytes};
    kn_batch of = *batch;
    if (model->kind->is_pure) of.index = 0; /* a replay would give the first one's result */
    return kn__replays_run(model->net, &how, &of);
}

kn_tensor *kn_model_loss(const kn_model *model, const kn_batch *batch) {
    if (!has_all(model, batch, "kn_model_loss")) return NULL;
    KN_FRAME(.dtype = kn_params_dtype(model->params), .recompute = model->recomputes);
    if (model->kind->loss)
        return kn_keep(at_batch(model->kind->loss(model->self, model->net, batch), batch));
    if (!kn__batch_fits(model->kind->name, "y", batch->y, "the class of each sample")) return NULL;
    return kn_keep(kn_cross_entropy(kn_model_predict(model, batch), batch->y));
}

kn_tensor *kn_model_turn_loss(const kn_model *model, const kn_batch *batch, int turn) {
    if (!has_all(model, batch, "kn_model_turn_loss")) return NULL;
    const kn_model_turns *turns = model->kind->turns;
    if (!turns || turn < 0 || turn >= turns->n)
        return KN_FAIL_NULL(KN_ERR_INVALID, "the model %s has %d turns, not turn %d",
                            model->kind->name, turns ? turns->n : 0, turn);
    KN_FRAME(.dtype = kn_params_dtype(model->params), .recompute = model->recomputes);
    return kn_keep(turns->loss(model->self, model->net, batch, turn));
}

kn_status kn_freeze(kn_model *model) {
    if (!model) return KN_FAIL(KN_ERR_INVALID, "kn_freeze: model is NULL");
    KN_TRY(kn_layer_freeze(model->net));
    if (!model->kind->is_pure) return KN_OK;
    kn_status status = kn__replays_begin(model->net);
    if (status < 0) kn_layer_thaw(model->net);
    return status;
}

/* --- what batches leave to the next one --- */

static kn_tensor *carried(kn_layer *net, const char *who) {
    if (kn_pending()) return NULL;
    if (!net) return KN_FAIL_NULL(KN_ERR_INVALID, "%s: net is NULL", who);
    return kn_layer_is_training(net) ? net->root->carry : NULL;
}

kn_tensor *kn_model_carry(kn_layer *net) {
    kn_tensor *last = carried(net, "kn_model_carry");
    if (!last) return NULL;
    KN_FRAME(.record = KN_OFF);
    return kn_keep(kn_affine(last, 1, 0));
}

void kn_model_carry_set(kn_layer *net, kn_tensor *value) {
    kn_tensor *next = carried(net, "kn_model_carry_set");
    if (!next) return;
    KN_FRAME(.record = KN_OFF);
    kn_status status = kn_fill_into(next, 0);
    if (status == KN_OK) status = kn_axpy_into(next, 1, value);
    if (status < 0) kn_error_defer(status);
}

/* --- a step --- */

kn_status kn__model_turns_fit(const kn_model *model, kn_optim *optim) {
    const kn_model_turns *turns = model->kind->turns;
    int n = kn_optim_turn_count(optim);
    if (!turns || n == turns->n) return KN_OK;
    if (!n) return kn_optim_turns(optim, turns->prefix, turns->n);
    return KN_FAIL(KN_ERR_INVALID, "the model %s has %d turns, the optimiser %d", model->kind->name,
                   turns->n, n);
}

/* turn -1: a model without turns. */
static kn_status turn_step(kn_tensor **loss, const kn_model *model, kn_optim *optim,
                           const kn_batch *batch, int turn) {
    KN_TAPE();
    kn_tensor *l = NULL;
    {
        KN_SCOPE("forward");
        l = turn < 0 ? kn_model_loss(model, batch) : kn_model_turn_loss(model, batch, turn);
    }
    KN_TRY(kn_backward(l)); /* opens its scope itself */
    KN_SCOPE("update");
    KN_TRY(turn < 0 ? kn_optim_step(optim) : kn_optim_turn_step(optim, turn));
    if (!*loss) return kn_hold(loss, l);
    return kn_add_into(*loss, l);
}

kn_status kn_model_step(kn_tensor **loss, const kn_model *model, kn_optim *optim,
                        const kn_batch *batch) {
    KN_SLOT(sum);
    if (!loss || !optim)
        return KN_FAIL(KN_ERR_INVALID, "kn_model_step: %s is NULL", loss ? "optim" : "loss");
    if (!has_all(model, batch, "kn_model_step")) return kn_check();
    int n = model->kind->turns ? model->kind->turns->n : 0;
    KN_TRY(kn__model_turns_fit(model, optim));
    for (int i = n ? 0 : -1; i < n; i++) {
        kn_status status = turn_step(&sum, model, optim, batch, i);
        if (status < 0) kn_params_grad_zero(model->params); /* a step after this one adds to none */
        KN_TRY(status);
    }
    kn_tensor *out = kn_affine(sum, 1, 0);
    if (!out) return kn_check();
    *loss = out;
    return KN_OK;
}

kn_tensor *kn_model_logits(const kn_model *model, kn_tensor *x) {
    return kn_model_predict(model, &(kn_batch){.x = x});
}

/* --- data and optimiser of the record --- */

static kn_status facts_check(const kn_model_kind *kind, const char *what) {
    if (kind && kind->facts) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "the model %s states no %s", kind ? kind->name : "NULL", what);
}

kn_status kn_model_data_make(kn_dataset **out, const kn_model_kind *kind, int64_t n,
                             kn_split split) {
    KN_SCOPE("make data");
    KN_TRY(facts_check(kind, "data"));
    const kn_model_facts *f = kind->facts;
    if (!n) n = f->n_made ? f->n_made : 12800;
    if (f->made) return f->made(out, f, n, split);
    const kn_synthetic_options options = {
        .shape = f->x, .words = f->words, .n_classes = f->n_classes, .split = split};
    return kn_dataset_create_synthetic(out, n, &options);
}

kn_status kn_model_data_read(kn_dataset **out, const kn_model_kind *kind, const char *path,
                             kn_split split) {
    KN_SCOPE("read data");
    KN_TRY(facts_check(kind, "data"));
    const kn_model_facts *f = kind->facts;
    if (!path && f->path && !*f->path)
        return KN_FAIL(KN_ERR_INVALID,
                       "the model %s has no default data; give a path; it is for %s", kind->name,
                       f->data);
    if (!path) path = f->path ? f->path : KN__FASHION;
    if (!f->read && f->made)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the model %s reads no files; use made-up data",
                       kind->name);
    return kn__dataset_where(
        f->read ? f->read(out, f, path, split) : kn__dataset_images(out, path, split), f->source);
}

kn_status kn_model_optim_create(kn_optim **out, const kn_model *model, double lr) {
    if (!model) return KN_FAIL(KN_ERR_INVALID, "kn_model_optim_create: model is NULL");
    KN_TRY(facts_check(model->kind, "optimiser"));
    const kn_model_facts *f = model->kind->facts;
    KN_TRY(f->optim(out, model->params, lr > 0 ? lr : f->lr));
    kn_status status = kn__model_turns_fit(model, *out);
    if (status < 0) {
        kn_optim_destroy(*out);
        *out = NULL;
    }
    return status;
}
