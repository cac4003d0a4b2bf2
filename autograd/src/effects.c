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

/* A pass begins to write gradients: what a failed step had clipped is no longer all. */
static void apply_begin(void *ctx) {
    const effect *e = ctx;
    e->set->n_begun++;
    apply(ctx);
}

/* The replay failed in the backward pass that this began. */
static void undo(void *ctx) {
    const effect *e = ctx;
    kn__params_void(e->set);
}

/* A pass that failed where the step went on: not the begin of a cycle, which would say that no step
 * ended the one before. */
static void apply_void(void *ctx) {
    const effect *e = ctx;
    kn__params_void(e->set);
}

static void release(void *ctx) {
    effect *e = ctx;
    kn__params_release(e->set);
    free(e);
}

/* Whether the parameters with a gradient of this cycle are those of the effect. void_all: none has
 * one. */
static bool same_gradients(const effect *e, bool void_all) {
    const kn_params *set = e->set;
    bool same = true;
    for (int i = 0, k = 0; i < set->n && same; i++) {
        bool had = k < e->n && e->index[k] == i;
        same = had == (!void_all && set->param[i]->cycle == set->cycle);
        k += had;
    }
    return same;
}

/* A backward adds to the gradients of this cycle; after a step it overwrites all. */
static bool fits_backward(const void *ctx) {
    const effect *e = ctx;
    return same_gradients(e, e->set->stepped);
}

static bool fits_reader(const void *ctx) {
    const effect *e = ctx;
    return e->set->stepped == e->stepped && same_gradients(e, false);
}

static effect *effect_new(kn_params *set, bool void_all) {
    effect *e = malloc(sizeof *e + (size_t)set->n * sizeof e->index[0]);
    if (!e) return NULL;
    *e = (effect){.set = kn__params_retain(set), .stepped = set->stepped};
    for (int i = 0; i < set->n && !void_all; i++)
        if (set->param[i]->cycle == set->cycle) e->index[e->n++] = i;
    return e;
}

/* Where none has a gradient, a cycle begins, whether a step was the reason or not: else old
 * gradients would count as those of this cycle in a replay after a step. */
void kn__params_effect_begin(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, set->stepped);
    if (e) e->begins = !e->n, e->stepped = false;
    kn_capture_effect_add((kn_capture_effect){apply_begin, release, undo, fits_backward, set, e});
}

void kn__params_effect_zero(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, true);
    if (e) e->begins = true, e->stepped = false;
    kn_capture_effect_add((kn_capture_effect){apply_begin, release, NULL, NULL, set, e});
}

void kn__params_effect_void(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, true);
    kn_capture_effect_add((kn_capture_effect){apply_void, release, NULL, NULL, set, e});
}

void kn__params_effect_read(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, false);
    kn_capture_effect_add((kn_capture_effect){apply, release, NULL, fits_reader, set, e});
}

void kn__params_effect(kn_params *set) {
    if (!kn_capture_records()) return;
    effect *e = effect_new(set, false);
    kn_capture_effect_add((kn_capture_effect){apply, release, NULL, NULL, set, e});
}
