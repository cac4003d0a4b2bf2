#include "optimizers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "model_data.h"

enum { N_OPTIMIZERS = 10 };

typedef struct optimizer {
    double lr; /* default rate */
    kn_status (*create)(kn_optim **out, kn_params *params, const kn__update *u);
} optimizer;

static kn_sgd_options sgd_options(const kn__update *u) {
    return (kn_sgd_options){
        .weight_decay = u->weight_decay, .clip_norm = u->clip_norm, .clip_each = u->clip_each};
}

static kn_adam_options adam_options(const kn__update *u) {
    return (kn_adam_options){
        .weight_decay = u->weight_decay, .clip_norm = u->clip_norm, .clip_each = u->clip_each};
}

static kn_adaptive_options adaptive_options(const kn__update *u) {
    return (kn_adaptive_options){
        .weight_decay = u->weight_decay, .clip_norm = u->clip_norm, .clip_each = u->clip_each};
}

static kn_status sgd_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_sgd_options options = sgd_options(u);
    return kn_sgd_create(out, params, u->lr, &options);
}

static kn_status momentum_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_sgd_options options = sgd_options(u);
    return kn_momentum_create(out, params, u->lr, 0.95, &options);
}

static kn_status nesterov_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_sgd_options options = sgd_options(u);
    return kn_nesterov_create(out, params, u->lr, 0.95, &options);
}

static kn_status adam_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_adam_options options = adam_options(u);
    return kn_adam_create(out, params, u->lr, &options);
}

static kn_status adamw_create(kn_optim **out, kn_params *params, const kn__update *u) {
    kn_adam_options options = adam_options(u);
    if (options.weight_decay == 0) options.weight_decay = 0.01;
    return kn_adam_create(out, params, u->lr, &options);
}

static kn_status lamb_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_adam_options options = adam_options(u);
    return kn_lamb_create(out, params, u->lr, &options);
}

static kn_status rmsprop_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_adaptive_options options = adaptive_options(u);
    return kn_rmsprop_create(out, params, u->lr, &options);
}

static kn_status adagrad_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_adaptive_options options = adaptive_options(u);
    return kn_adagrad_create(out, params, u->lr, &options);
}

static kn_status adadelta_create(kn_optim **out, kn_params *params, const kn__update *u) {
    const kn_adaptive_options options = adaptive_options(u);
    return kn_adadelta_create(out, params, u->lr, &options);
}

/* Rates as Knet.jl's defaults where it has the method; momentum's there is for sums of gradients,
 * here they are means. */
static const optimizer optimizers[N_OPTIMIZERS] = {{0.1, sgd_create},       {0.02, momentum_create},
                                                   {0.02, nesterov_create}, {0.001, adam_create},
                                                   {0.001, adamw_create},   {0.01, lamb_create},
                                                   {0.01, rmsprop_create},  {0.05, adagrad_create},
                                                   {1, adadelta_create},    {0, NULL}};
const char *const kn__optimizer_names[] = {"sgd",      "momentum", "nesterov", "adam",
                                           "adamw",    "lamb",     "rmsprop",  "adagrad",
                                           "adadelta", "record",   NULL};

const char *const kn__schedule_names[] = {"constant",  "step",   "linear", "cosine",
                                          "one-cycle", "record", NULL};

static int index_of(const char *const names[], const char *name) {
    int i = 0;
    while (strcmp(names[i], name) != 0) i++; /* the parser let no other name through */
    return i;
}

static bool is_record(const kn__update *u) { return strcmp(u->schedule, "record") == 0; }

/* CONSTANT of the record, whose form is the model's. */
static kn_schedule_kind kind_of(const kn__update *u) {
    return is_record(u) ? KN_SCHEDULE_CONSTANT
                        : (kn_schedule_kind)index_of(kn__schedule_names, u->schedule);
}

int kn__update_check(const char *name, const kn__update *u) {
    kn_schedule_kind kind = kind_of(u);
    bool own = optimizers[index_of(kn__optimizer_names, name)].create == NULL;
    if (own && (u->weight_decay > 0 || u->clip_norm > 0 || u->clip_each > 0))
        return kn__fail_usage("--%s does not apply to --optimizer record, which has the model's",
                              u->weight_decay > 0 ? "weight-decay"
                              : u->clip_norm > 0  ? "clip-norm"
                                                  : "clip-each");
    if (kind == KN_SCHEDULE_STEP && u->lr_every == 0)
        return kn__fail_usage("--schedule step needs --lr-every: the epochs of each rate");
    if (kind != KN_SCHEDULE_STEP && u->lr_every)
        return kn__fail_usage("--lr-every applies only with --schedule step");
    if (kind < KN_SCHEDULE_LINEAR && u->lr_end > 0)
        return kn__fail_usage("--lr-end applies only with --schedule linear, cosine or one-cycle");
    if (kind == KN_SCHEDULE_ONE_CYCLE && u->warmup)
        return kn__fail_usage("--warmup does not apply to --schedule one-cycle, which has its own");
    return KN__EXIT_OK;
}

double kn__optimizer_rate(const char *name, const char *model) {
    double lr = optimizers[index_of(kn__optimizer_names, name)].lr;
    return lr > 0 ? lr : kn_model_kind_find(model)->facts->lr;
}

kn_status kn__optimizer_create(kn_optim **out, const char *name, const kn_model *model,
                               const kn__update *u) {
    const optimizer *o = &optimizers[index_of(kn__optimizer_names, name)];
    return o->create ? o->create(out, kn_model_params(model), u)
                     : kn_model_optim_create(out, model, u->lr);
}

bool kn__schedule_of(kn_schedule *out, const kn__update *u, const char *model, int64_t epochs,
                     int64_t epoch_steps) {
    const kn_model_facts *facts = kn_model_kind_find(model)->facts;
    *out = (kn_schedule){.kind = kind_of(u),
                         .lr = u->lr,
                         .lr_end = u->lr_end,
                         .steps = epochs * epoch_steps,
                         .every = u->lr_every * epoch_steps,
                         .warmup = u->warmup};
    if (is_record(u) && facts->lr_gamma > 0) {
        out->kind = KN_SCHEDULE_STEP;
        out->gamma = facts->lr_gamma;
        out->every = epoch_steps;
        out->hold = (facts->lr_from - 1) * epoch_steps - u->warmup; /* epochs count from step 0 */
        if (out->hold < 0) out->hold = 0;
    }
    return out->kind != KN_SCHEDULE_CONSTANT || u->warmup;
}

static void option_add(char *out, size_t out_bytes, const char *name, double value) {
    size_t n = strlen(out);
    if (value > 0) snprintf(out + n, out_bytes - n, " --%s %.9g", name, value);
}

void kn__update_options(char *out, size_t out_bytes, const kn__update *u) {
    bool constant = strcmp(u->schedule, kn__schedule_names[KN_SCHEDULE_CONSTANT]) == 0;
    snprintf(out, out_bytes, "%s%s", constant ? "" : " --schedule ", constant ? "" : u->schedule);
    option_add(out, out_bytes, "warmup", (double)u->warmup);
    option_add(out, out_bytes, "lr-end", u->lr_end);
    option_add(out, out_bytes, "lr-every", (double)u->lr_every);
    option_add(out, out_bytes, "weight-decay", u->weight_decay);
    option_add(out, out_bytes, "clip-norm", u->clip_norm);
    option_add(out, out_bytes, "clip-each", u->clip_each);
}

void kn__update_text(char *out, size_t out_bytes, const kn__update *u) {
    bool constant = strcmp(u->schedule, kn__schedule_names[KN_SCHEDULE_CONSTANT]) == 0;
    char warmup[48] = "";
    if (u->warmup)
        snprintf(warmup, sizeof warmup, " after %" PRId64 " step%s of warm-up", u->warmup,
                 u->warmup == 1 ? "" : "s");
    snprintf(out, out_bytes, "rate %g%s%s%s", u->lr, constant ? "" : ", ",
             constant ? "" : u->schedule, warmup);
}
