/* Layers' inside. A kind is a struct that begins with a kn_layer, and its forward. */
#ifndef KN_LAYER_SRC_H
#define KN_LAYER_SRC_H

#include <knet/layer.h>
#include <knet/op.h>
#include <knet/tape.h>

#include "checked.h"

/* Computes a layer's result of x. */
typedef kn_tensor *(*kn__layer_run_fn)(kn_layer *layer, kn_tensor *x, const void *ctx);

typedef struct kn__layer_kind {
    const char *name;                                     /* for messages: "kn_layer_conv" */
    size_t size_bytes;                                    /* of its struct */
    kn_tensor *(*forward)(kn_layer *layer, kn_tensor *x); /* may return x */
    bool is_group;                                        /* may have layers in it */
    /* Of layers into which normalization folds; 0 and NULL of others. */
    int out_axis;                            /* of the weight's channels that come out, from 1 */
    bool (*is_bare)(const kn_layer *layer);  /* whether nothing follows the product */
    int64_t (*n_out)(const kn_layer *layer); /* channels */
    /* The frozen layer with the work of `inside`; of residual layers too. */
    kn_tensor *(*folded)(kn_layer *layer, kn_tensor *x);
    /* act(layer(x) + around) of the frozen layer. */
    kn_tensor *(*sum)(kn_layer *layer, kn_tensor *x, kn_tensor *around, kn_layer_act_fn act);
    /* layer(x) + ctx, a tensor, in one call where `takes` says so; NULL: by an op of its own. */
    bool (*takes)(const kn_layer *layer, kn_tensor *x, kn_tensor *around);
    kn__layer_run_fn plus;
} kn__layer_kind;

enum { KN__LAYER_PARAMS_MAX = 4, KN__LAYER_STATE_MAX = 2 };
typedef struct kn__layer_param {
    const char *name; /* static storage: "weight" */
    kn_tensor *w;     /* borrowed from the set; of state: a slot */
} kn__layer_param;

typedef struct kn__layer_root kn__layer_root;
struct kn_layer {
    const kn__layer_kind *kind;
    kn__layer_root *root;
    kn_layer *parent, *next; /* next: the sibling created after it */
    kn_layer *first, *last;  /* the layers in it */
    char *path;              /* owned; "" of the root */
    const char *name;        /* its end */
    kn_layer_mode mode;      /* inherited when it is created */
    bool recomputes;         /* its values are made again in backward */
    int n_micro;             /* of a sequence, pipeline.h: parts of a batch; 0 and 1: the whole */
    kn_tensor *(*micro_fn)(kn_layer *layer, kn_tensor *x); /* passes them; set with n_micro */
    /* where it runs; NULL: its root is on one device, or it is a group on several */
    kn_device *device;
    kn__layer_param param[KN__LAYER_PARAMS_MAX];
    kn__layer_param state[KN__LAYER_STATE_MAX];
    int n_params, n_state;
    int n_before;         /* parameters that the root's set had before this layer's */
    kn_tensor *frozen[2]; /* slots: weight and bias with `inside` folded in */
    uint64_t frozen_of;   /* the data and its writes that these were made of */
    kn_layer *inside;     /* the next one, whose work kind->folded does too; NULL: not frozen */
};

struct kn__layer_root {
    kn_layer base; /* a sequence */
    kn_params *params;
    uint64_t seed;
    kn_rng *rng;                 /* NULL before a layer asks for it */
    bool frozen;                 /* kn_layer_freeze */
    kn_dtype frozen_as;          /* .autocast of the frame then; 0: off */
    bool is_placed;              /* kn_layer_to of a layer in it */
    kn_tensor *carry;            /* of the training under way, borrowed; NULL: none */
    struct kn__replays *replays; /* replays.h; NULL: kn_freeze was not called */
    void (*replays_end)(struct kn__replays *replays);
};

/* A layer of this kind, zeroed beyond its base, in the parent; NULL: the error is pending. */
void *kn__layer_add(kn_layer *parent, const char *name, const kn__layer_kind *kind);
/* Removes the layer that was added last, which can't be made whole, with its parameters: the name
 * is free again. Returns NULL. */
void *kn__layer_undo(kn_layer *layer);
/* Adds the parameter "PATH.name"; NULL: the error is pending. */
kn_tensor *kn__layer_param_add(kn_layer *layer, const char *name, kn_shape shape, kn_init init);
/* Adds state of the parameters' device and dtype, filled with the value. NULL: as above. */
kn_tensor *kn__layer_state_add(kn_layer *layer, const char *name, kn_shape shape, double value);
/* act(y); act NULL: y. */
static inline kn_tensor *kn__layer_activated(kn_layer_act_fn act, kn_tensor *y) {
    if (!act || !y) return y;
    kn_tensor *z = act(y);
    return z ? z : KN_FAIL_NULL(KN_ERR_INVALID, "act gave no result");
}
/* Puts the layer's path before the pending error; returns NULL. */
kn_tensor *kn__layer_failed(const kn_layer *layer);
/* The layer's path for a message; a root has none. */
const char *kn__layer_shown(const kn_layer *layer);
/* The root's generator, created at the first call. NULL: the error is pending. */
kn_rng *kn__layer_rng(kn_layer *layer);
/* Whether this thread's backward makes a forward again: state keeps what the first one wrote. */
bool kn__layer_again(void);
/* kn_layer_forward by another function than the kind's: in the layer's scope, frame and device,
 * with its path in errors. */
kn_tensor *kn__layer_forward_by(kn_layer *layer, kn_tensor *x, kn__layer_run_fn run_fn,
                                const void *ctx);
/* The layers of a group one after the other. */
kn_tensor *kn__layer_sequence(kn_layer *group, kn_tensor *x);
/* The same from `first` up to `end`, of one group. */
kn_tensor *kn__layer_run(kn_layer *first, const kn_layer *end, kn_tensor *x);
/* Fails with "kn_layer_conv: conv1: …", pending; returns NULL. */
void *kn__layer_fail(const kn__layer_kind *kind, const char *name, kn_status status,
                     const char *fmt, ...) KN_PRINTF(4, 5);
/* The error of options whose reserved fields are not zero; false then. */
bool kn__layer_reserved(const kn__layer_kind *kind, const char *name, const uint64_t reserved[4]);

/* --- initial values of recurrent layers (recurrent.c) --- */
/* kn_layer_rnn with weights and biases uniform in ±bound; 0: as kn_layer_rnn. */
kn_layer *kn__layer_rnn_init(kn_layer *parent, const char *name, int64_t n_in,
                             const kn_rnn_options *options, double bound);
/* Makes the input bias of each forget gate 1, so that an LSTM remembers from the start. No-op with
 * an error pending. */
void kn__layer_lstm_remember(kn_layer *lstm);

extern const kn__layer_kind kn__layer_sequential_kind, kn__layer_residual_kind,
    kn__layer_batchnorm_kind, kn__layer_act_kind;

/* --- the frozen form (freeze.c) --- */
/* Whether the layer runs in its frozen form now: not under a tape, not in training, and in a frame
 * of the mixed precision in which it was frozen. */
bool kn__layer_is_frozen(const kn_layer *layer);
/* Whether nothing that was folded in was written since. */
bool kn__layer_is_current(const kn_layer *layer);
/* Whether a group may run the layer and the next one at once now, by kn__layer_folded. */
static inline bool kn__layer_folds(const kn_layer *layer) {
    return layer->inside && kn__layer_is_frozen(layer->inside) && kn__layer_is_current(layer);
}
/* The forward of the layer and of the next one. Only callers that run the two in turn may call it:
 * a forward of one of them gives its own result. */
kn_tensor *kn__layer_folded(kn_layer *layer, kn_tensor *x);
/* Ends what kn_freeze captured. */
static inline void kn__layer_replays_end(kn__layer_root *root) {
    if (root->replays) root->replays_end(root->replays);
    root->replays = NULL;
}
/* kind->sum in a scope and a frame of the layer's. */
kn_tensor *kn__layer_sum(kn_layer *layer, kn_tensor *x, kn_tensor *around, kn_layer_act_fn act);
/* layer(x) + around, by kind->plus where it may run: not in a layer that recomputes or is placed,
 * nor where mixed precision would round `around`. */
kn_tensor *kn__layer_plus(kn_layer *layer, kn_tensor *x, kn_tensor *around);
/* Whether a layer has statistics of all ranks' batches: kn_layer_sync. */
bool kn__layer_is_synced(const kn_layer *layer);
/* Of a layer of batchnorm, and of the layer kn_layer_act. */
double kn__layer_norm_eps(const kn_layer *norm);
kn_tensor *kn__layer_norm_run(kn_layer *norm, kn_tensor *x);
kn_layer_act_fn kn__layer_norm_act(const kn_layer *norm);
kn_layer_act_fn kn__layer_act_of(const kn_layer *act);

#endif
