/* Gradients whose elements are all equal, as that of a sum's input: one element stands for them.
 * Ops that only move elements hand it on, and the first op that computes with it, or the end of the
 * way, gets a whole tensor. */
#ifndef KN_UNIFORM_SRC_H
#define KN_UNIFORM_SRC_H

#include "tape.h"

/* Whether one element stands for the gradient of the node's result. */
static inline bool kn__back_is_uniform(const kn__back *b) {
    const kn__result *r = kn__node_results(b->node);
    int64_t n = 1;
    if (!b->g || b->g->n != 1) return false;
    for (int d = 0; d < r->n_dims; d++) n *= r->dim[d];
    return n != 1;
}
/* The gradient of input i, of which every element is g's one: g itself where the node that made the
 * input hands it on, else a whole tensor. As a rule's result. */
kn_tensor *kn__give_uniform(kn__back *b, int i, kn_tensor *g);
/* The rule of a node that hands a uniform gradient on. */
kn_tensor *kn__uniform_back(kn__back *b, int i);

#endif
