/* Captured predictions of a frozen model (kn_freeze): the second one for a shape is recorded, later
 * ones are replays. What can't be captured, or gains nothing, runs as it is. */
#ifndef KN_REPLAYS_H
#define KN_REPLAYS_H

#include <knet/data.h>
#include <knet/layer.h>

typedef struct kn__replays kn__replays;

/* Of a root that was frozen just now; kn_layer_thaw ends them. Errors: OOM. */
kn_status kn__replays_begin(kn_layer *root);

/* How a model predicts. */
typedef struct kn__predict {
    kn_tensor *(*run)(void *ctx, const kn_batch *batch);
    void *ctx;
    const void *self; /* the model's struct, which it reads beside the batch and the layers */
    size_t self_bytes;
} kn__predict;
/* predict->run(ctx, batch), or a replay of it with the same bits. NULL: the error is pending. */
kn_tensor *kn__replays_run(const kn_layer *root, const kn__predict *predict, const kn_batch *batch);

#endif
