/* Cheap steps of a chain as *links*: they hand a few vectors on in registers, one to the next, so
 * that a step costs its arithmetic and its loads, and no way through memory. Each link is the
 * formula of a row of ops.def, or of a first derivative, so the bits are those of the row's loop.
 *
 * A link's result is the *hand*. It is the next link's input, beside at most one that is loaded. */
#ifndef KN_LINKS_H
#define KN_LINKS_H

#include "host/pointwise/rows.h"

/* Formulas without functions and conditions, of at most two inputs: KN_LINK_F_name has 1 for the
 * row, KN_LINK_D_name for its derivatives. */
#define KN_LINK_F_neg , 1
#define KN_LINK_F_square , 1
#define KN_LINK_F_affine , 1
#define KN_LINK_F_sqrt , 1
#define KN_LINK_F_rsqrt , 1
#define KN_LINK_F_reciprocal , 1
#define KN_LINK_F_add , 1
#define KN_LINK_F_sub , 1
#define KN_LINK_F_mul , 1
#define KN_LINK_F_div , 1
#define KN_LINK_F_axpby , 1
#define KN_LINK_D_neg , 1
#define KN_LINK_D_square , 1
#define KN_LINK_D_affine , 1
#define KN_LINK_D_sqrt , 1
#define KN_LINK_D_rsqrt , 1
#define KN_LINK_D_reciprocal , 1
#define KN_LINK_D_add , 1
#define KN_LINK_D_sub , 1
#define KN_LINK_D_mul , 1
#define KN_LINK_D_div , 1
#define KN_LINK_D_axpby , 1
#define KN_LINK_D_exp , 1
#define KN_LINK_D_sigm , 1
#define KN_LINK_D_tanh , 1

#define KN_LINK_SECOND_(a, b, ...) b
#define KN_LINK_SECOND(...) KN_LINK_SECOND_(__VA_ARGS__)
#define KN_LINK_PASTE_(a, b) a##b
#define KN_LINK_PASTE(a, b) KN_LINK_PASTE_(a, b)
/* 1 or 0 */
#define KN_LINK_HAS_F(name) KN_LINK_SECOND(~KN_LINK_F_##name, 0, ~)
#define KN_LINK_HAS_D(name) KN_LINK_SECOND(~KN_LINK_D_##name, 0, ~)

/* What a link does: load x into the hand, store the hand at x, add its elements up, or a formula. A
 * formula of two inputs takes the hand as the first, or as the second one. */
enum {
    KN__LINK_LOAD,
    KN__LINK_STORE,
    KN__LINK_SUM,
    KN__LINK_FORMULAS,
    KN__LINK_ORDERS = 3,
    KN__LINK_LANES_BYTES = 256 /* of a sum, as that of a row has (reduce_loops.c) */
};
#define KN__LINK(row, order, hand)                                                                 \
    (KN__LINK_FORMULAS + ((int)(row)*KN__LINK_ORDERS + (order)) * 2 + (hand))

/* x: element i of the call's lies at base[link->base] + x + i · stride, and where the link `moves`,
 * `from` elements further. Links are made once for a pass, whose tiles begin at other elements. */
typedef struct kn__link {
    int16_t what;
    uint8_t base;
    uint8_t stride; /* 1; 0: x is a single element */
    uint8_t moves;
    uintptr_t x;
    double p, q;
} kn__link;

enum { KN__LINKS_MAX = 96 }; /* of a call */

/* How a step of a row (k: 0), or its derivative by input k - 1, is a link; false if it can't be
 * one. in: which inputs the formula reads, the second one -1 where it reads one. */
bool kn__link_of(int *what, int in[2], unsigned op, int k);

#endif
