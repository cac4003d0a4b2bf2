/* Activations that are not among those of bench/arrays/pointwise.c. */
#include "cases.h"

/* clang-format off */
CASE(nn, leaky_relu_1m,  kn_leaky_relu(x[0], 0.01),   .in = {N(1000000)}, .both = true)
CASE(nn, hardsigmoid_1m, kn_hardsigmoid(x[0]),        .in = {N(1000000)}, .both = true)
CASE(nn, softsign_1m,    kn_softsign(x[0]),           .in = {N(1000000)}, .both = true)
CASE(nn, hardtanh_1m,    kn_hardtanh(x[0], -1, 1),    .in = {N(1000000)}, .both = true)
CASE(nn, relu6_1m,       kn_relu6(x[0]),              .in = {N(1000000)}, .both = true)
CASE(nn, hardshrink_1m,  kn_hardshrink(x[0], 0.5),    .in = {N(1000000)}, .both = true)
CASE(nn, softshrink_1m,  kn_softshrink(x[0], 0.5),    .in = {N(1000000)}, .both = true)
CASE(nn, tanhshrink_1m,  kn_tanhshrink(x[0]),         .in = {N(1000000)}, .both = true)
CASE(nn, gate_1m,        kn_gate(x[0], x[1]),         .in = {N(1000000), N(1000000)}, .both = true)
