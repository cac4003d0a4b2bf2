/* What an optimiser and averages were made with, and its groups: in a checkpoint's metadata. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"

#define SETTINGS "knet.settings"
#define GROUPS "knet.groups"
#define DECAY "knet.decay"
enum { N_SETTINGS = sizeof(kn_optim_settings) / sizeof(double), PREFIX_BYTES = 256 };
static const char *const setting_names[N_SETTINGS] = {
    "momentum", "beta1", "beta2", "eps", "weight_decay", "clip_norm", "clip_each"};
/* Options of knet train that set one alone, besides --optimizer. */
static const char *const setting_options[N_SETTINGS] = {
    "", "", "", "", "--weight-decay or ", "--clip-norm or ", "--clip-each or "};

static void settings_get(double out[N_SETTINGS], const kn_optim *optim) {
    kn_optim_settings s = kn_optim_settings_get(optim);
    memcpy(out, &s, sizeof s);
}

void kn__settings_put(kn__text *out, const kn_optim *optim) {
    double own[N_SETTINGS];
    settings_get(own, optim);
    for (int i = 0; i < N_SETTINGS; i++)
        kn__text_printf(out, "%s%" PRIu64, i ? " " : "", kn__bits_of(own[i]));
}

/* Of each group: its factors, the bytes of its prefix, the prefix. */
void kn__groups_put(kn__text *out, const kn_optim *optim) {
    const char *prefix;
    double rate, decay;
    for (int i = 0; kn_optim_group_at(optim, i, &prefix, &rate, &decay); i++)
        kn__text_printf(out, "%" PRIu64 " %" PRIu64 " %zu %s", kn__bits_of(rate),
                        kn__bits_of(decay), strlen(prefix), prefix);
}

void kn__decay_put(kn__text *out, const kn_ema *ema) {
    kn__text_printf(out, "%" PRIu64, kn__bits_of(kn_ema_decay(ema)));
}

/* --- settings --- */

static kn_status settings_check(const kn_optim *optim, kn_file *f, const char *path) {
    uint64_t bits[N_SETTINGS];
    double own[N_SETTINGS];
    settings_get(own, optim);
    if (!kn_file_metadata(f, SETTINGS)) return KN_OK; /* of an older version */
    KN_TRY(kn__numbers_get(bits, N_SETTINGS, f, path, SETTINGS));
    for (int i = 0; i < N_SETTINGS; i++) {
        if (kn__double_of(bits[i]) == own[i]) continue;
        const char *name = i == 2 && own[1] == 0 ? "rho" : setting_names[i];
        return KN_FAIL(KN_ERR_INVALID,
                       "%s is of a run with %s %g; the optimiser's is %g: resume with the %s of "
                       "the first run (%s--optimizer)",
                       path, name, kn__double_of(bits[i]), own[i], name, setting_options[i]);
    }
    return KN_OK;
}

static kn_status decay_check(const kn_ema *ema, kn_file *f, const char *path) {
    uint64_t bits;
    if (!ema || !kn_file_metadata(f, DECAY)) return KN_OK; /* none, or of an older version */
    KN_TRY(kn__numbers_get(&bits, 1, f, path, DECAY));
    if (kn__double_of(bits) == kn_ema_decay(ema)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s is of a run with averages of decay %g; this run's is %g: resume with that "
                   "of the first run (--ema)",
                   path, kn__double_of(bits), kn_ema_decay(ema));
}

/* --- groups --- */

typedef struct group {
    double rate, decay;
    char prefix[PREFIX_BYTES];
} group;

static bool number_read(uint64_t *out, const char **text) {
    char *end = NULL;
    errno = 0;
    *out = strtoull(*text, &end, 10);
    if (end == *text || **text == '-' || errno || *end != ' ') return false;
    *text = end + 1;
    return true;
}

/* Reads the next group and moves *text behind it. False: the text ends, or it is no group. */
static bool group_read(group *g, const char **text) {
    uint64_t rate, decay, n;
    if (!**text || !number_read(&rate, text) || !number_read(&decay, text)) return false;
    if (!number_read(&n, text) || n >= PREFIX_BYTES || strnlen(*text, n) < n) return false;
    *g = (group){.rate = kn__double_of(rate), .decay = kn__double_of(decay)};
    memcpy(g->prefix, *text, n);
    *text += n;
    return g->rate >= 0 && isfinite(g->rate) && g->decay >= 0 && isfinite(g->decay);
}

static bool has_prefix(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* The factors of a parameter: of the last group that has it. */
static group of_optim(const char *name, const kn_optim *optim) {
    group found = {.rate = 1, .decay = 1};
    const char *prefix;
    double rate, decay;
    for (int i = 0; kn_optim_group_at(optim, i, &prefix, &rate, &decay); i++)
        if (has_prefix(name, prefix)) found.rate = rate, found.decay = decay;
    return found;
}

static group of_text(const char *name, const char *text) {
    group found = {.rate = 1, .decay = 1}, g;
    while (group_read(&g, &text))
        if (has_prefix(name, g.prefix)) found = g;
    return found;
}

static bool has_groups(const kn_optim *optim) {
    const char *prefix;
    double rate, decay;
    return kn_optim_group_at(optim, 0, &prefix, &rate, &decay);
}

static kn_status text_check(const char *text, const char *path) {
    group g;
    const char *left = text;
    while (group_read(&g, &left)) continue;
    if (!*left) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: " GROUPS " of the metadata is '%.60s'", path, text);
}

static kn_status groups_check(const kn_checkpoint *c, kn_file *f, const char *path) {
    const char *text = kn_file_metadata(f, GROUPS), *name = NULL;
    if (!text) return KN_OK;
    KN_TRY(text_check(text, path));
    for (int i = 0; has_groups(c->optim) && i < kn_params_count(c->params); i++) {
        (void)kn_params_at(c->params, i, &name);
        group own = of_optim(name, c->optim), file = of_text(name, text);
        if (own.rate == file.rate && own.decay == file.decay) continue;
        return KN_FAIL(KN_ERR_INVALID,
                       "%s has the factors %g and %g of kn_optim_group for '%s'; the optimiser has "
                       "%g and %g (one without groups takes the file's; keep_settings keeps its "
                       "own)",
                       path, file.rate, file.decay, name, own.rate, own.decay);
    }
    return KN_OK;
}

kn_status kn__settings_check(const kn_checkpoint *c, kn_file *f, const char *path) {
    if (c->keep_settings) return KN_OK;
    KN_TRY(settings_check(c->optim, f, path));
    KN_TRY(decay_check(c->ema, f, path));
    return groups_check(c, f, path);
}

/* A file of more parameters may have groups without one here. */
kn_status kn__groups_restore(kn_checkpoint *c, kn_file *f) {
    const char *text = kn_file_metadata(f, GROUPS), *name = NULL;
    group g;
    if (!text || c->keep_settings || has_groups(c->optim)) return KN_OK;
    while (group_read(&g, &text)) {
        bool has_any = false;
        for (int i = 0; i < kn_params_count(c->params) && !has_any; i++) {
            (void)kn_params_at(c->params, i, &name);
            has_any = has_prefix(name, g.prefix);
        }
        if (has_any) KN_TRY(kn_optim_group(c->optim, g.prefix, g.rate, g.decay));
    }
    return KN_OK;
}
