/* Chains for tests: at random, or every row in turn, from the table of ops. */
#ifndef KNET_RANDOM_CHAIN_H
#define KNET_RANDOM_CHAIN_H

#include <knet/op.h>
#include <stdbool.h>

#include "chain.h"

/* An op that is a row, a comparison, a derivative of a row or the cast. */
bool chain_op_is_step(kn_op op);
/* Adds step `op` of T `dtype`, to result r: each input is an earlier value of the dtype that it
 * needs, by chance, or a new operand. False: the op has no such T, or there is no room. */
bool chain_add(kn__chain *chain, kn_op op, kn_dtype dtype, int r, bool store);
/* Up to `steps` steps with n_dims dimensions, of which operands may be broadcast along, and results
 * written by strides. */
kn__chain chain_random(int steps, int n_dims);

#endif
