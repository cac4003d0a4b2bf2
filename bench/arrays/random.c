/* Random numbers. */
#include "cases.h"

/* clang-format off */
CASE(arrays, uniform_1m, kn_uniform(KN_SHAPE(1000000), 0, 1, cases_rng()), .both = false)
CASE(arrays, normal_1m,  kn_normal(KN_SHAPE(1000000), 0, 1, cases_rng()), .both = false)
CASE(arrays, zeros_1m,   kn_zeros(KN_SHAPE(1000000)), .both = false)
CASE(arrays, dropout_1m, kn_dropout(x[0], 0.5, cases_rng()), .in = {N(1000000)}, .both = true)
CASE(arrays, bernoulli_1m, kn_bernoulli(KN_SHAPE(1000000), 0.3, cases_rng()), .both = false)
CASE(arrays, integers_1m,  kn_integers(KN_SHAPE(1000000), 0, 1000, cases_rng()), .both = false)
CASE(arrays, randperm_1m,  kn_permutation(1000000, cases_rng()), .both = false)
CASE(arrays, truncated_normal_1m, kn_truncated_normal(KN_SHAPE(1000000), 0, 1, -2, 2, cases_rng()), .both = false)
CASE(arrays, orthogonal_256, kn_orthogonal(KN_SHAPE(256, 256), 1, cases_rng()), .both = false)
