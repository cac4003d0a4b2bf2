/* What a replay of a captured step does to parameter sets on the host: which slices of gradients
 * are of this cycle, and whether a step ended it. */
#include <stdlib.h>

#include "params.h"

typedef struct effect {
    kn_params *set; /* retained */
    bool begins, stepped;
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

void kn__params_effect(kn_params *set, bool begins) {
    if (!kn_capture_records()) return;
    effect *e = malloc(sizeof *e + (size_t)set->n * sizeof e->index[0]);
    if (e) {
        *e = (effect){.set = kn__params_retain(set), .begins = begins, .stepped = set->stepped};
        for (int i = 0; i < set->n && !begins; i++)
            if (set->param[i]->cycle == set->cycle) e->index[e->n++] = i;
    }
    kn_capture_effect_add((kn_capture_effect){apply, release, e});
}
