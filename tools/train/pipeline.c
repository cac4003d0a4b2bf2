/* Micro-batches through stages on several devices. */
#include <inttypes.h>
#include <knet/frame.h>
#include <knet/op.h>
#include <knet/ops.h>
#include <knet/pipeline.h>
#include <stdlib.h>

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

static kn_tensor *stage_forward(kn_layer *stage, kn_tensor *x) {
    KN_FRAME(.device = kn_params_device(stage->root->params));
    return kn_keep(kn_layer_forward(stage, kn_to(x, kn_frame_device())));
}

/* At each step an earlier stage comes first: what it enqueues runs beside what the later ones,
 * whose input was ready before, do. */
static bool run(kn_tensor *h[], kn_layer *const stage[], int n_stages, int n_micro) {
    for (int step = 0; step < n_micro + n_stages - 1; step++)
        for (int s = 0; s < n_stages; s++) {
            int m = step - s;
            if (m < 0 || m >= n_micro) continue;
            h[m] = stage_forward(stage[s], h[m]);
            if (!h[m]) return false;
        }
    return true;
}

kn_tensor *kn_pipeline_forward(kn_layer *const stage[], int n_stages, kn_tensor *x, int n_micro) {
    KN_FRAME();
    if (kn_pending() || !is_valid(stage, n_stages, x, n_micro)) return NULL;
    kn_tensor **h = malloc((size_t)n_micro * sizeof(kn_tensor *)), *y = NULL;
    if (!h) {
        kn_error_defer(KN_FAIL(KN_ERR_OOM, "kn_pipeline_forward: no host memory"));
        return NULL;
    }
    for (int m = 0; m < n_micro; m++) h[m] = n_micro > 1 ? part(x, m, n_micro) : x;
    if (!kn_pending() && run(h, stage, n_stages, n_micro))
        y = n_micro > 1 ? kn_concat(h, n_micro, 0) : h[0];
    free(h);
    return kn_keep(y);
}
