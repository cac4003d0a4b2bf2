/* Layers: parts of a model that own their name, their parameters and their scope of the timer.
 *
 *     kn_layer *net = NULL;
 *     KN_TRY(kn_layer_create(&net, params, NULL));          // the root: a sequence of layers
 *     kn_layer_conv(net, "conv1", 1, 20, KN_SHAPE(5, 5), &(kn_layer_conv_options){.act = kn_relu});
 *     kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL);
 *     kn_layer_flatten(net, "flatten");
 *     kn_layer *fc = kn_layer_linear(net, "fc", 2880, 10, NULL);
 *     KN_TRY(kn_check());
 *     …
 *     kn_tensor *logits = kn_layer_forward(net, x);         // or one by one: kn_layer_forward(fc,
 * x)
 *
 * Layers form a tree. A layer is created inside its parent, which owns it; destroying the root
 * destroys all. The *path* of a layer joins the names from the root down, as "block1.conv2"; its
 * parameters are "block1.conv2.weight" and "block1.conv2.bias", as in PyTorch. Parameters belong to
 * the root's kn_params, whose optimiser updates them. Each forward opens a scope with the layer's
 * name, and kn_backward one of the same name around its derivatives. A forward is a frame too: it
 * keeps its result and the tensors that gradients need. Constructors return NULL with the
 * error pending, and return NULL at once when the parent is NULL or an error is pending; a layer
 * that fails leaves its name, and those of its parameters, free.
 * Threads: any number may call forward of layers without random numbers; all else needs exclusive
 * access.
 */
#ifndef KNET_LAYER_H
#define KNET_LAYER_H

#include <knet/norm.h>
#include <knet/param.h>
#include <knet/sequence.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A layer. */
typedef struct kn_layer kn_layer;

/* Options of kn_layer_create; may be NULL. */
typedef struct kn_layer_options {
    uint64_t seed;        /* of the random numbers that layers draw, such as dropout's */
    uint64_t reserved[4]; /* zero */
} kn_layer_options;
/* Creates a root: an empty sequence. Its parameters belong to params, which must live as long. */
KN_API KN_MUST_CHECK kn_status kn_layer_create(kn_layer **out, kn_params *params,
                                               const kn_layer_options *options);
/* Destroys a root and all layers in it, but not their parameters. No-op on NULL. */
KN_API void kn_layer_destroy(kn_layer *root);

/* The result of the layer for x. Errors name the layer's path. */
KN_API kn_tensor *kn_layer_forward(kn_layer *layer, kn_tensor *x);

/* --- layers with parameters --- */
/* An activation, by its op: kn_relu, kn_tanh, kn_gelu, …, or one of your own. Those of kn_act
 * (ops.h) run inside the layer's product or convolution. NULL without an error is INVALID. */
typedef kn_tensor *(*kn_layer_act_fn)(kn_tensor *x);
/* Options of kn_layer_linear and kn_layer_embedding; may be NULL. */
typedef struct kn_layer_linear_options {
    kn_init weight, bias; /* initial values; kind 0: Xavier's and zeros; embedding: normal */
    kn_layer_act_fn act;  /* of the result; NULL: none */
    int no_bias;          /* 1: without one */
    uint64_t sparse;      /* embedding: 1: row-sparse gradients, see kn_param_sparse */
    uint64_t reserved[3]; /* zero */
} kn_layer_linear_options;
/* x [...,n_in] → [...,n_out]; weight [n_out,n_in], bias [n_out]. */
KN_API kn_layer *kn_layer_linear(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                                 const kn_layer_linear_options *options);
/* Options of kn_layer_conv; may be NULL. */
typedef struct kn_layer_conv_options {
    kn_conv_options conv; /* stride, padding, dilation, groups */
    kn_init weight, bias; /* as above */
    kn_layer_act_fn act;  /* of the result; NULL: none */
    int no_bias;          /* 1: without one */
    uint64_t reserved[4]; /* zero */
} kn_layer_conv_options;
/* x [B,n_in,spatial…] → [B,n_out,…]; weight [n_out,n_in/groups,window…], bias [n_out]. */
KN_API kn_layer *kn_layer_conv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                               kn_shape window, const kn_layer_conv_options *options);
/* kn_deconv of x [B,n_in,spatial…] → [B,n_out,…]; weight [n_in,n_out/groups,window…], bias [n_out].
 */
KN_API kn_layer *kn_layer_deconv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                                 kn_shape window, const kn_layer_conv_options *options);
/* index [...] → [...,width]: rows of weight [n,width]. */
KN_API kn_layer *kn_layer_embedding(kn_layer *parent, const char *name, int64_t n, int64_t width,
                                    const kn_layer_linear_options *options);

/* kn_rnn of x [T,B,n_in] → [T,B,hidden], twice as wide if bidirectional; one parameter, "weight",
 * uniform in ±1/√hidden. Of the options, lengths, states and rng must be unset; dropout is of
 * training alone. To load PyTorch's LSTM, GRU or RNN, flatten and concatenate its weight_ih_l0 and
 * weight_hh_l0, those of the other direction (…_reverse), and those of layers 1, 2, …; then, in the
 * same order, bias_ih_l0, bias_hh_l0 and so on. kn_rnn_param gives the parts. */
KN_API kn_layer *kn_layer_rnn(kn_layer *parent, const char *name, int64_t n_in,
                              const kn_rnn_options *options);
/* What one forward of a kn_layer_rnn starts from and gives, as in kn_rnn_options; all may be NULL.
 */
typedef struct kn_layer_rnn_state {
    const int64_t *lengths; /* [B]; UNSUPPORTED inside a captured step without a variant */
    kn_tensor *h0;          /* the state before the first step */
    kn_tensor *c0;          /* the same of the LSTM's c */
    kn_tensor **h_n;        /* set to the state after the last step, in the frame of y */
    kn_tensor **c_n;        /* the same of the LSTM's c */
} kn_layer_rnn_state;
/* kn_layer_forward with a state. Its results are kept for backward, also under
 * kn_layer_recompute_set. */
KN_API kn_tensor *kn_layer_rnn_forward(kn_layer *rnn, kn_tensor *x,
                                       const kn_layer_rnn_state *state);

/* Options of kn_layer_attention; may be NULL. */
typedef struct kn_layer_attention_options {
    int64_t kv_heads;     /* heads of keys and values, a divisor of heads; 0: as many */
    int causal;           /* 1: no position sees a later one */
    int no_bias;          /* 1: the linear layers in it have none */
    double dropout;       /* in training, the probability that a weight is 0 */
    double rotary_base;   /* of kn_rotary of queries and keys, as 10000; 0: they aren't turned */
    int64_t memory_width; /* keys and values come of another sequence of that width; 0: of x */
    uint64_t reserved[1]; /* zero */
} kn_layer_attention_options;
/* Attention with several heads, x [B,T,width] → [B,T,width]: kn_attention between the linear layers
 * "qkv" and "out" in it. Weight and bias of "qkv" are in_proj_weight and in_proj_bias of PyTorch's
 * MultiheadAttention, those of "out" its out_proj. With memory_width "q" and "kv" are in place of
 * "qkv": the first `width` rows of PyTorch's in_proj_weight, and the others. Vaswani et al. 2017.
 */
KN_API kn_layer *kn_layer_attention(kn_layer *parent, const char *name, int64_t width,
                                    int64_t heads, const kn_layer_attention_options *options);
/* What one forward of a kn_layer_attention reads besides x, and gives; all may be NULL. */
typedef struct kn_layer_attention_inputs {
    kn_tensor *memory; /* [B,S,memory_width], of which keys and values come */
    kn_tensor *mask;   /* as in kn_attention_options */
    /* Keys [B,kv_heads,S,width/heads] and values of all calls so far, for x of one time step after
     * the other: first NULL, then set to those with x's behind them, in the frame of y. Of a
     * memory: set by the first call; later ones read these and may leave memory NULL. */
    kn_tensor **keys;
    kn_tensor **values;   /* likewise */
    uint64_t reserved[4]; /* zero */
} kn_layer_attention_inputs;
/* kn_layer_forward with these. A causal layer with keys of S earlier steps lets step t of x see
 * those and its own first t + 1. Values are kept for backward, also under kn_layer_recompute_set.
 */
KN_API kn_tensor *kn_layer_attention_forward(kn_layer *layer, kn_tensor *x,
                                             const kn_layer_attention_inputs *inputs);

/* Options of the layers of normalization; may be NULL. */
typedef struct kn_layer_norm_options {
    double eps;           /* 0: 1e-5 */
    double momentum;      /* kn_layer_batchnorm; 0: 0.1 */
    kn_layer_act_fn act;  /* of the result; NULL: none */
    uint64_t reserved[4]; /* zero */
} kn_layer_norm_options;
/* kn_batchnorm of x [B,n,…]: by the batch's mean and variance in training, by the running ones in
 * evaluation. weight and bias [n] start as ones and zeros; "running_mean" and "running_var" [n] are
 * its state. */
KN_API kn_layer *kn_layer_batchnorm(kn_layer *parent, const char *name, int64_t n,
                                    const kn_layer_norm_options *options);
/* From now on the batch norms in `layer` take the statistics of all ranks' batches in training:
 * kn_parallel_batch(parallel), borrowed; NULL: of their own batch again. Returns their number.
 * Every rank calls it. */
KN_API int kn_layer_sync(kn_layer *layer, const kn_batch_ranks *ranks);
/* kn_layernorm and kn_rmsnorm over the last dimensions of x, which are `shape`; weight (and bias)
 * of that shape. */
KN_API kn_layer *kn_layer_layernorm(kn_layer *parent, const char *name, kn_shape shape,
                                    const kn_layer_norm_options *options);
KN_API kn_layer *kn_layer_rmsnorm(kn_layer *parent, const char *name, kn_shape shape,
                                  const kn_layer_norm_options *options);
/* kn_groupnorm of x [B,n,…]; weight and bias [n]. */
KN_API kn_layer *kn_layer_groupnorm(kn_layer *parent, const char *name, int64_t n, int64_t groups,
                                    const kn_layer_norm_options *options);

/* --- layers without --- */
/* Applies act. */
KN_API kn_layer *kn_layer_act(kn_layer *parent, const char *name, kn_layer_act_fn act);
/* Zeros elements with probability p and scales the others by 1/(1 - p); x itself in evaluation. */
KN_API kn_layer *kn_layer_dropout(kn_layer *parent, const char *name, double p);
/* kn_layer_maxpool: kn_maxpool of x; kn_layer_avgpool: kn_avgpool of x. Windows and options that
 * these refuse of any x are errors here. */
KN_API kn_layer *kn_layer_maxpool(kn_layer *parent, const char *name, kn_shape window,
                                  const kn_pooling_options *options);
KN_API kn_layer *kn_layer_avgpool(kn_layer *parent, const char *name, kn_shape window,
                                  const kn_pooling_options *options);
/* x [B,C,spatial…] → [B,C]: the mean of each channel. */
KN_API kn_layer *kn_layer_global_avgpool(kn_layer *parent, const char *name);
KN_API kn_layer *kn_layer_flatten(kn_layer *parent, const char *name); /* [B,…] → [B,rest] */

/* --- groups: layers that contain layers --- */
/* Its layers one after the other, in the order of their creation. */
KN_API kn_layer *kn_layer_sequential(kn_layer *parent, const char *name);
/* x + body(x), where body is the sequence of the layers in it; He et al. 2016. A linear layer
 * without an activation, or attention, at its end adds x in its product. */
KN_API kn_layer *kn_layer_residual(kn_layer *parent, const char *name);
/* Adds an empty sequence "shortcut" to a residual layer, before its other layers; its result
 * replaces x in the sum. */
KN_API kn_layer *kn_layer_shortcut(kn_layer *residual);
/* x and body(x) side by side along axis 1; Huang et al. 2017. */
KN_API kn_layer *kn_layer_dense(kn_layer *parent, const char *name);
/* A forward of your own over the layers in it, which it finds in ctx or by kn_layer_find. A value
 * that it leaves in ctx for a later layer, as a skip connection does, it holds there (kn_hold):
 * without a tape a value is freed once the next layer has run. NULL without an error is INVALID. */
typedef kn_tensor *(*kn_layer_fn)(void *ctx, kn_layer *self, kn_tensor *x);
/* fn(ctx, layer, x); ctx is borrowed for as long as the layer lives. */
KN_API kn_layer *kn_layer_function(kn_layer *parent, const char *name, kn_layer_fn fn, void *ctx);

/* --- training and evaluation --- */
/* Whether layers such as dropout train. */
typedef enum kn_layer_mode {
    KN_LAYER_AUTO = 0, /* while a tape records */
    KN_LAYER_TRAIN,    /* always */
    KN_LAYER_EVAL      /* never */
} kn_layer_mode;
/* Sets the mode of the layer and of all layers in it. INVALID if layer is NULL, or for a mode that
 * there isn't; nothing is set then. */
KN_API void kn_layer_mode_set(kn_layer *layer, kn_layer_mode mode);
/* The mode of the layer. */
KN_API kn_layer_mode kn_layer_mode_get(const kn_layer *layer);
/* Whether the layer would train now. */
KN_API bool kn_layer_is_training(const kn_layer *layer);
/* Whether what the layer computes is freed and made again in backward, as by kn_recompute: of a
 * block only its input and its result stay. The same results, bit for bit, and gradients, for less
 * memory and about a third more time; where the block's x is read outside of it too, the parts of
 * its gradient may be added in another order. What the block draws, of the root's generator or of
 * your own, it draws again in backward; in a captured step it may draw nothing. A layer that
 * recomputes ignores this of the layers in it. INVALID if layer is NULL. */
KN_API void kn_layer_recompute_set(kn_layer *layer, bool on);

/* --- the frozen form: for inference alone --- */
/* Folds each batch normalization into the convolution or linear layer created before it in the same
 * parent, and lets activations and residual sums run inside these layers. From then on a forward
 * without a tape, in evaluation, takes the folded weights where a group runs the two in turn. They
 * are made of the weights and statistics at the time of the call: a pair of which one was written
 * since, by a step of training or from a checkpoint, runs as before. They run in frames with
 * .layout 2 (frame.h), where relu inside a convolution may make 0 of NaN. A forward under a tape
 * runs as before, and so does one in a frame of another .autocast than the call's: in a frame with
 * .autocast the folded weights are of 16 bits, rounded once; in bf16 scores of ResNet-50 differ by
 * a few per cent of the largest one. The forward of one layer alone gives its own result, so those
 * that a kn_layer_function calls one by one run as before: kn_layer_forward_add runs a pair folded.
 */
KN_API KN_MUST_CHECK kn_status kn_layer_freeze(kn_layer *root);
/* Drops the folded weights, with the layouts that convolutions keep of them (models.h, kn_freeze,
 * says how large they are). Layouts of weights that no normalization follows stay until the weights
 * are written or destroyed. No-op on a root that is not frozen. */
KN_API void kn_layer_thaw(kn_layer *root);
/* act(norm(layer(x)) + around): a forward of the layers in turn; frozen, one call. norm, around and
 * act may be NULL. For the blocks of a kn_layer_function. */
KN_API kn_tensor *kn_layer_forward_add(kn_layer *layer, kn_layer *norm, kn_tensor *x,
                                       kn_tensor *around, kn_layer_act_fn act);

/* --- what a layer is made of --- */
KN_API const char *kn_layer_name(const kn_layer *layer); /* inside its parent */
KN_API const char *kn_layer_path(const kn_layer *layer); /* "" for a root */
/* The layer at `path` inside, as "block1.conv2"; or NULL without an error. INVALID if layer is
 * NULL.
 */
KN_API kn_layer *kn_layer_find(kn_layer *layer, const char *path);
/* Its own parameter of that name, as "weight"; or NULL without an error. INVALID if layer or name
 * is NULL. */
KN_API kn_tensor *kn_layer_param(kn_layer *layer, const char *name);
/* The i-th of its own state tensors, which no gradient changes, such as "running_mean", and its
 * name unless `name` is NULL; borrowed. NULL without an error beyond the last. INVALID if layer is
 * NULL. */
KN_API kn_tensor *kn_layer_state_at(kn_layer *layer, int i, const char **name);
/* The elements of all parameters in the layer. INVALID, and 0, if layer is NULL. */
KN_API int64_t kn_layer_numel(const kn_layer *layer);
/* Calls visit_fn for the layer and for all in it, parents first, until it returns false. Whether it
 * never did. */
KN_API bool kn_layer_walk(kn_layer *layer, bool (*visit_fn)(void *ctx, kn_layer *layer), void *ctx);
/* The generator that the root's layers draw from; NULL: none has asked for one. */
KN_API kn_rng *kn_layer_rng(kn_layer *layer);
/* Moves the parameters and the state of a layer, and of those in it, to a device, before the first
 * backward and before optimisers are made. Of a root: all of its set. Of another layer: this one
 * alone, and the root's layers then lie on several devices: kn_layer_forward copies the input of
 * each to its device (a scope "to"), and gives the result where the last one is. Move layers whose
 * inputs meet, as in a residual layer, together. See pipeline.h; kn_param_to says what does not go
 * with several devices. Errors: those of kn_params_to and kn_param_to. */
KN_API KN_MUST_CHECK kn_status kn_layer_to(kn_layer *layer, kn_device *device);

#include <knet/sites/layer.h>

#ifdef __cplusplus
}
#endif
#endif
