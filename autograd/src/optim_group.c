/* Groups of parameters with a rate and a decay of their own. */
#include <math.h>
#include <stdlib.h>

#include "optim.h"
#include "utf8.h"

void kn__part_scale(kn_optim_part *part, const kn_optim *optim, const kn__param *p) {
    part->rate = part->decay = 1;
    for (int i = 0; i < optim->n_groups; i++) {
        if (!kn__has_prefix(p, optim->groups[i].prefix)) continue;
        part->rate = optim->groups[i].lr_scale;
        part->decay = optim->groups[i].decay_scale;
    }
}

bool kn__param_moves(const kn_optim *optim, const kn__param *p) {
    kn_optim_part part = {.rate = 1};
    kn__part_scale(&part, optim, p);
    return part.rate != 0 && !p->is_frozen;
}

kn_attr_optim kn__parts_attr(const kn_optim *optim, int first, int end) {
    kn_attr_optim attr = optim->attr;
    attr.part = optim->parts + first;
    attr.n_parts = end - first;
    if (!optim->set->has_frozen) return attr;
    int n = 0;
    for (int i = first; i < end; i++)
        if (!kn__part_param(optim, i)->is_frozen) optim->moving[n++] = optim->parts[i];
    attr.part = optim->moving;
    attr.n_parts = n;
    return attr;
}

/* Groups whose parameters are all in the new one say nothing any more: a program that sets a group
 * before each step would gather them. */
static void covered_remove(kn_optim *optim, const char *prefix) {
    int n = 0;
    for (int i = 0; i < optim->n_groups; i++) {
        if (strncmp(optim->groups[i].prefix, prefix, strlen(prefix)) == 0)
            free(optim->groups[i].prefix);
        else
            optim->groups[n++] = optim->groups[i];
    }
    optim->n_groups = n;
}

/* The last group, which holds for all parameters with its prefix. */
static kn_status group_add(kn_optim *optim, const char *prefix, double lr_scale,
                           double decay_scale) {
    kn__param_group *groups =
        realloc(optim->groups, (size_t)(optim->n_groups + 1) * sizeof *groups);
    if (groups) optim->groups = groups;
    char *own = groups ? strdup(prefix) : NULL;
    if (!own) return KN_FAIL(KN_ERR_OOM, "kn_optim_group: no host memory");
    covered_remove(optim, own);
    groups[optim->n_groups++] = (kn__param_group){own, lr_scale, decay_scale};
    int n_parts = optim->part_grad ? optim->n_dense : optim->set->n;
    for (int i = 0; optim->parts && i < n_parts; i++) {
        if (!kn__has_prefix(kn__part_param(optim, i), prefix)) continue;
        optim->parts[i].rate = lr_scale;
        optim->parts[i].decay = decay_scale;
    }
    return KN_OK;
}

kn_status kn_optim_group(kn_optim *optim, const char *prefix, double lr_scale, double decay_scale) {
    KN_TRY(kn_check());
    if (!optim || !prefix) {
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_group: %s is NULL", optim ? "prefix" : "optim");
    }
    if (!(lr_scale >= 0 && decay_scale >= 0) || isinf(lr_scale) || isinf(decay_scale)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_optim_group: lr_scale %g, decay_scale %g; each must be 0 or more, and "
                       "finite",
                       lr_scale, decay_scale);
    }
    if (!kn__utf8_is_valid(prefix)) /* no checkpoint could have it */
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_group: the prefix '%s' is not UTF-8", prefix);
    int n = 0;
    for (const kn_optim *o = optim; o; o = o->next)
        for (int i = 0; i < o->set->n; i++) n += kn__has_prefix(o->set->param[i], prefix);
    if (!n) {
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_group: no parameter's name begins with '%s'",
                       prefix);
    }
    for (; optim; optim = optim->next) KN_TRY(group_add(optim, prefix, lr_scale, decay_scale));
    return KN_OK;
}

bool kn_optim_group_at(const kn_optim *optim, int i, const char **prefix, double *lr_scale,
                       double *decay_scale) {
    if (!optim || i < 0 || i >= optim->n_groups) return false;
    *prefix = optim->groups[i].prefix;
    *lr_scale = optim->groups[i].lr_scale;
    *decay_scale = optim->groups[i].decay_scale;
    return true;
}
