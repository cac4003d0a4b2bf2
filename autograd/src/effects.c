/* What a replay of a captured step does to parameter sets on the host: which slices of gradients
 * are of this cycle, and whether a step ended it. */
#include <stdlib.h>

#include "params.h"

typedef struct effect {
    kn_params *set; /* retained */
    bool begins, stepped, was_clear;
    int n; /* parameters with a gradient of this cycle */
    int index[];
} effect;

static void apply(void *ctx) {
    const effect *e = ctx;
    kn_params *set = e->set;
    if (e->begins) set->cycle++;
    set->stepped = e->stepped;
    for (int i = 0; i < e->n; i++) set->param[e->index[i]]->cycle = set->cycle;
}

static void release(void *ctx) {
    effect *e = ctx;
    kn__params_release(e->set);
    free(e);
}

static bool fits(const void *ctx) {
    const effect *e = ctx;
    return kn__params_are_clear(e->set) == e->was_clear;
}

static effect *effect_new(kn_params *set, int n) {
    effect *e = malloc(sizeof *e + (size_t)n * sizeof e->index[0]);
    if (e) *e = (effect){.set = kn__params_retain(set)};
    return e;
}

void kn__params_effect_begin(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, 0);
    if (e) e->begins = set->stepped, e->was_clear = kn__params_are_clear(set);
    kn_capture_effect_add((kn_capture_effect){apply, release, fits, set, e});
}

void kn__params_effect(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, set->n);
    if (e) e->stepped = set->stepped;
    for (int i = 0; e && i < set->n; i++)
        if (set->param[i]->cycle == set->cycle) e->index[e->n++] = i;
    kn_capture_effect_add((kn_capture_effect){apply, release, NULL, set, e});
}
