/* Ops on sequences: recurrent networks, attention. Part of ops.h, whose rules hold.
 *
 *     kn_tensor *h = NULL;
 *     kn_rnn_options gru = {.hidden = 100, .mode = KN_RNN_GRU, .h_n = &h};
 *     kn_tensor *y = kn_rnn(x, w, &gru);            // x [T,B,I] → y [T,B,100], h [1,B,100]
 */
#ifndef KNET_SEQUENCE_H
#define KNET_SEQUENCE_H

#include <knet/frame.h>
#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_rng kn_rng; /* of ops.h */

/* What one step of a layer does with its input x and its state h (and c), σ the logistic function:
 *   LSTM  i, f, o = σ(…), g = tanh(…); c = f·c + i·g; h = o·tanh(c)
 *   GRU   r, z = σ(…), n = tanh(W_n·x + b_n + r·(R_n·h + c_n)); h = (1 - z)·n + z·h
 *   TANH, RELU  h = tanh(…), relu(…)
 * where … is W·x + b + R·h + c of the gate. Source: cuDNN's cudnnRNNMode_t; PyTorch's modules do
 * the same. */
typedef enum kn_rnn_mode { KN_RNN_LSTM = 0, KN_RNN_GRU, KN_RNN_TANH, KN_RNN_RELU } kn_rnn_mode;

/* Options of kn_rnn. D: 2 if bidirectional, else 1. */
typedef struct kn_rnn_options {
    int64_t hidden;    /* H, the size of a state; required */
    int64_t layers;    /* L; 0: 1 */
    kn_rnn_mode mode;  /* which cell */
    int bidirectional; /* 1: each layer has a second part that reads from the end; y has both */
    int skip_input;    /* 1: layer 0 takes x for W·x; x has H features */
    double dropout;    /* probability of zeros in the input of layers 1, 2, …; as in kn_dropout */
    kn_rng *rng;       /* of dropout; else NULL */
    /* [B], each in 0 … T, in any order, on the host; NULL: all T. Steps from a sequence's length on
     * give zeros in y and leave its state as it is; the second direction starts at the length.
     * Replays of a captured step keep those of the recording: inside one they are an UNSUPPORTED
     * error, but for a variant (kn_capture_select) other than 0, one for each list of lengths */
    const int64_t *lengths;
    kn_tensor *h0;        /* [L·D,B,H]: the state before the first step; NULL: zeros */
    kn_tensor *c0;        /* the same of the LSTM's c */
    kn_tensor **h_n;      /* [L·D,B,H]: set to the state after the last step, NULL on failure */
    kn_tensor **c_n;      /* the same of the LSTM's c */
    uint64_t reserved[4]; /* zero */
} kn_rnn_options;

/* x [T,B,I], w [kn_rnn_params()] → y [T,B,D·H], the top layer's h at every step.
 *
 * w has the weights of all layers, then their biases, in cuDNN's order: for layer 0, 1, …, for each
 * direction, W [G·H,I] (layers 1, 2, …: [G·H,D·H]), R [G·H,H]; then in the same order b [G·H],
 * c [G·H]. G is the number of gates: LSTM i, f, g, o; GRU r, z, n; else one.
 *
 * Gradients of x, w, h0 and c0 come from one call. They can't be differentiated again: an
 * UNSUPPORTED error. */
KN_API kn_tensor *kn_rnn(kn_tensor *x, kn_tensor *w, const kn_rnn_options *options);
/* The number of elements of w, for x of `inputs` features. -1: the error is pending. */
KN_API int64_t kn_rnn_params(int64_t inputs, const kn_rnn_options *options);

/* Parts of w: W, R, b, c of the text above. */
typedef enum kn_rnn_part {
    KN_RNN_INPUT_WEIGHT = 0,
    KN_RNN_HIDDEN_WEIGHT,
    KN_RNN_INPUT_BIAS,
    KN_RNN_HIDDEN_BIAS
} kn_rnn_part;
/* A part of w, of one gate [H,…] or, gate -1, of all [G·H,…]: a view, so that writing to it
 * changes w. No gradient flows through it. `direction` is 0 or 1. */
KN_API kn_tensor *kn_rnn_param(kn_tensor *w, int64_t inputs, const kn_rnn_options *options,
                               int64_t layer, int direction, int gate, kn_rnn_part part);

/* Options of kn_attention. */
typedef struct kn_attention_options {
    double scale;   /* of the products of queries and keys; 0: 1/√D */
    int causal;     /* 1: query i sees keys 0 … i + offset alone */
    int64_t offset; /* of causal; S - T: the last query sees all keys */
    /* broadcast to [B,H,T,S]; NULL: none. BOOL: whether the query sees the key; else a number to
     * add to the scaled product, with a gradient */
    kn_tensor *mask;
    double dropout; /* probability that a weight is 0; the others are divided by 1 - dropout */
    kn_rng *rng;    /* of dropout; else NULL */
    uint64_t reserved[2]; /* zero */
} kn_attention_options;

/* Scaled dot products: q [B,H,T,D], k [B,G,S,D], v [B,G,S,E] → y [B,H,T,E], the average of v by the
 * weights softmax(scale·q·kᵀ) over the keys. H is a multiple of G: query head h reads head h·G/H of
 * k and v. NULL options: the defaults. A query that sees no key gives zeros. NaN in a key or value
 * makes NaN also of queries that don't see it.
 *
 * Memory is linear in T and S: blocks of weights are made, used and forgotten, and made again for
 * gradients, with the same weights dropped. Only the gradient of a mask takes B·H·T·S elements.
 * Gradients can't be differentiated again: an UNSUPPORTED error. Source: Dao et al.,
 * FlashAttention, 2022. */
KN_API kn_tensor *kn_attention(kn_tensor *q, kn_tensor *k, kn_tensor *v,
                               const kn_attention_options *options);

/* Options of kn_rotary. */
typedef struct kn_rotary_options {
    double base;          /* 0: 10,000 */
    int64_t offset;       /* the position of the first row */
    int64_t n;            /* the first n of D elements are turned, an even number; 0: all */
    int adjacent;         /* 1: pairs are elements 2i and 2i + 1; 0: i and i + n/2 */
    uint32_t unused;      /* zero */
    uint64_t reserved[4]; /* zero */
} kn_rotary_options;
/* x [...,T,D] → the same shape: pair i of row t is turned by the angle
 * (t + offset)·base^(-2i/n), in f32 at least; 16 bits are rounded back, with .autocast too. NULL
 * options: the defaults. Gradients of any order. Source: Su et al., RoFormer, 2021. */
KN_API kn_tensor *kn_rotary(kn_tensor *x, const kn_rotary_options *options);

/* Options of kn_ctc_loss. */
typedef struct kn_ctc_options {
    kn_tensor *lengths;        /* [B]: how many steps of each sequence count; NULL: all T */
    kn_tensor *target_lengths; /* [B]: how many labels each target has; NULL: all S */
    int64_t blank;             /* the class that is no label */
    int zero_infinity;         /* 1: a loss of infinity becomes 0, and its gradient 0 */
    /* a kn_reduction; KN_REDUCE_MEAN (0): of the losses, each divided by its target's length (at
     * least 1); of no sequences: a SHAPE error */
    int reduction;
    uint64_t reserved[4]; /* zero */
} kn_ctc_options;
/* log_probs [T,B,C], as of kn_logsoftmax over C; targets [B,S], integers → the negative logarithm
 * of the probability that a path of T steps, without its repeats and then without blanks, is the
 * target. It is infinite where the sequence is too short for its target, and NaN where a length
 * or a label is out of range, or a label is the blank. The gradient, NaN where the loss is NaN or
 * infinite, can't be differentiated again: an UNSUPPORTED error. NULL options: the defaults.
 * Source: Graves et al. 2006. */
KN_API kn_tensor *kn_ctc_loss(kn_tensor *log_probs, kn_tensor *targets,
                              const kn_ctc_options *options);

#include <knet/sites/sequence.h>

#ifdef __cplusplus
}
#endif
#endif
