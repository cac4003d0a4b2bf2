/* Micro-batches through stages on several devices. */
#include <inttypes.h>
#include <knet/frame.h>
#include <knet/op.h>
#include <knet/ops.h>
#include <knet/pipeline.h>
#include <stdlib.h>
#include <string.h>

#include "layers/layer.h"

static bool fail(kn_status status) {
    kn_error_defer(status);
    return false;
}

static bool is_valid(kn_layer *const stage[], int n_stages, const kn_tensor *x, int n_micro) {
    const char *wrong = kn_tensor_problem(x);
    if (wrong) return fail(KN_FAIL(KN_ERR_INVALID, "kn_pipeline_forward: x %s", wrong));
    kn_shape shape = kn_tensor_shape(x);
    if (!stage || n_stages < 1)
        return fail(KN_FAIL(KN_ERR_INVALID, "kn_pipeline_forward: %d stages", n_stages));
    for (int s = 0; s < n_stages; s++)
        if (!stage[s] || stage[s]->parent)
            return fail(KN_FAIL(KN_ERR_INVALID, "kn_pipeline_forward: stage %d is %s", s,
                                stage[s] ? "no root of layers" : "NULL"));
    if (shape.n_dims < 1 || n_micro < 1 || n_micro > shape.dim[0]) {
        char text[128];
        return fail(KN_FAIL(KN_ERR_INVALID, "kn_pipeline_forward: x %s cannot be cut into %d parts",
                            kn_shape_text(text, sizeof text, shape), n_micro));
    }
    return true;
}

/* Part m of n_micro along the first dimension. */
static kn_tensor *part(kn_tensor *x, int m, int n_micro) {
    kn_shape start = kn_tensor_shape(x), stop = start;
    int64_t n = stop.dim[0];
    for (int d = 0; d < start.n_dims; d++) start.dim[d] = 0;
    start.dim[0] = n * m / n_micro;
    stop.dim[0] = n * (m + 1) / n_micro;
    return kn_slice(x, start, stop);
}

/* A root, or layers of one sequence from `first` up to `end`. */
typedef struct stage {
    kn_layer *root, *first;
    const kn_layer *end;
    kn_device *device; /* NULL: the frame's, and x may be on any */
} stage;

static kn_tensor *stage_forward(const stage *s, kn_tensor *x) {
    KN_FRAME(.device = s->device);
    if (s->device) x = kn_to(x, s->device);
    return kn_keep(s->root ? kn_layer_forward(s->root, x) : kn__layer_run(s->first, s->end, x));
}

/* At each step a later stage comes first: it takes its input from the stream of the stage before it
 * while that has nothing newer, and so does backward, which goes the other way. */
static bool run(kn_tensor *h[], const stage stages[], int n_stages, int n_micro) {
    for (int step = 0; step < n_micro + n_stages - 1; step++)
        for (int s = n_stages - 1; s >= 0; s--) {
            int m = step - s;
            if (m < 0 || m >= n_micro) continue;
            h[m] = stage_forward(&stages[s], h[m]);
            if (!h[m]) return false;
        }
    return true;
}

static kn_tensor *stages_forward(const stage stages[], int n_stages, kn_tensor *x, int n_micro) {
    kn_tensor **h = malloc((size_t)n_micro * sizeof(kn_tensor *)), *y = NULL;
    if (!h) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for %d micro-batches", n_micro);
    for (int m = 0; m < n_micro; m++) h[m] = n_micro > 1 ? part(x, m, n_micro) : x;
    if (!kn_pending() && run(h, stages, n_stages, n_micro))
        y = n_micro > 1 ? kn_concat(h, n_micro, 0) : h[0];
    free(h);
    return y;
}

kn_tensor *kn_pipeline_forward(kn_layer *const stage_roots[], int n_stages, kn_tensor *x,
                               int n_micro) {
    KN_FRAME();
    if (kn_pending() || !is_valid(stage_roots, n_stages, x, n_micro)) return NULL;
    stage *stages = calloc((size_t)n_stages, sizeof *stages);
    if (!stages) return KN_FAIL_NULL(KN_ERR_OOM, "kn_pipeline_forward: no host memory");
    for (int s = 0; s < n_stages; s++)
        stages[s] = (stage){.root = stage_roots[s],
                            .device = kn_params_device(stage_roots[s]->root->params)};
    kn_tensor *y = stages_forward(stages, n_stages, x, n_micro);
    free(stages);
    return kn_keep(y);
}

/* --- the layers of one sequence --- */

/* A group on several devices is a stage of its own. */
static int stages_of(stage stages[], const kn_layer *group) {
    int n = 0;
    for (kn_layer *layer = group->first; layer; layer = layer->next) {
        bool continues = n && layer->device == stages[n - 1].device && layer->device;
        if (!continues) stages[n++] = (stage){.first = layer, .device = layer->device};
        stages[n - 1].end = layer->next;
    }
    return n;
}

static int n_layers(const kn_layer *group) {
    int n = 0;
    for (const kn_layer *layer = group->first; layer; layer = layer->next) n++;
    return n;
}

static kn_tensor *micro_forward(kn_layer *group, kn_tensor *x) {
    kn_shape shape = kn_tensor_shape(x);
    int64_t n_samples = shape.n_dims ? shape.dim[0] : 1;
    int n_micro = n_samples < group->n_micro ? (int)n_samples : group->n_micro;
    stage *stages = calloc((size_t)n_layers(group) + 1, sizeof *stages);
    if (!stages) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for the stages of a model");
    kn_tensor *y = stages_forward(stages, stages_of(stages, group), x, n_micro > 1 ? n_micro : 1);
    free(stages);
    return y;
}

kn_status kn_pipeline_micro(kn_layer *net, int n_micro) {
    if (!net || net->kind != &kn__layer_sequential_kind || n_micro < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_pipeline_micro: %s, %d micro-batches",
                       !net           ? "net is NULL"
                       : net->path[0] ? net->path
                                      : "the root",
                       n_micro);
    net->n_micro = n_micro;
    net->micro_fn = micro_forward;
    return KN_OK;
}

/* Sets run[] of each layer. */
static kn_status runs_by_name(int run[], const kn_layer *net, int n, const char *const first[]) {
    int at = 0, i = 0;
    for (const kn_layer *layer = net->first; layer; layer = layer->next, i++) {
        bool begins = i > 0 && at < n - 1 && strcmp(layer->name, first[at]) == 0;
        run[i] = at += begins;
    }
    if (at == n - 1) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_pipeline_place: there is no layer %s after %s", first[at],
                   at ? first[at - 1] : "the first one");
}

/* A layer is in the run in which the middle of its parameters falls; no run is empty. */
static void runs_by_size(int run[], const kn_layer *net, int n) {
    double all = (double)kn_layer_numel(net), before = 0;
    int n_left = n_layers(net), at = 0, i = 0;
    for (const kn_layer *layer = net->first; layer; layer = layer->next, i++, n_left--) {
        double size = (double)kn_layer_numel(layer), middle = before + size / 2;
        bool begins = n_left <= n - 1 - at || middle * n >= all * (at + 1);
        run[i] = at += i > 0 && at < n - 1 && begins;
        before += size;
    }
}

kn_status kn_pipeline_place(kn_layer *net, kn_device *const device[], int n,
                            const char *const first[]) {
    KN_TRY(kn_check());
    if (!net || !device || n < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_pipeline_place: %s",
                       !net ? "net is NULL" : "there are no devices");
    int n_all = n_layers(net), i = 0;
    if (net->kind != &kn__layer_sequential_kind || n_all < n)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_pipeline_place: %d layers in a sequence cannot be on %d devices", n_all,
                       n);
    int *run = calloc((size_t)n_all, sizeof *run);
    if (!run) return KN_FAIL(KN_ERR_OOM, "kn_pipeline_place: no host memory");
    kn_status status = first ? runs_by_name(run, net, n, first) : KN_OK;
    if (!first) runs_by_size(run, net, n);
    for (kn_layer *layer = net->first; status == KN_OK && layer; layer = layer->next)
        status = kn_layer_to(layer, device[run[i++]]);
    free(run);
    return status;
}
