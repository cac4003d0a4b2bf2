/* Indexing, movement and copies. */
#include "cases.h"

/* clang-format off */
CASE(ops20, getindex,  kn_slice(x[0], KN_SHAPE(0, 0), KN_SHAPE(1, 1)), .in = {N(32, 1000)}, .both = true)
CASE(ops20, mat,       kn_flatten(x[0]),                      .in = {U(0, 1, 32, 256, 14, 14)}, .both = true)

CASE(arrays, transpose_2048, kn_transpose(x[0], KN_SHAPE(1, 0)), .in = {N(2048, 2048)})
CASE(arrays, concat_axis0, kn_concat(x, 2, 0),                .in = {N(1000, 1000), N(1000, 1000)})
CASE(arrays, concat_axis1, kn_concat(x, 2, 1),                .in = {N(1000, 1000), N(1000, 1000)})
CASE(arrays, slice_columns, kn_slice(x[0], KN_SHAPE(0, 100), KN_SHAPE(1000, 900)), .in = {N(1000, 1000)}, .both = true)
CASE(arrays, broadcast_to, kn_broadcast(x[0], KN_SHAPE(1000, 1000)), .in = {N(1000)})
CASE(arrays, cast_f64, kn_cast(x[0], KN_F64),                 .in = {N(1000000)})
CASE(arrays, cast_i64, kn_cast(x[0], KN_I64),                 .in = {N(1000000)})

/* Knet's prof/permutedims, with the axes reversed: it is column major. */
CASE(arrays, permute_768x512x16,   kn_transpose(x[0], KN_SHAPE(1, 0, 2)), .in = {N(16, 512, 768)})
CASE(arrays, permute_heads, kn_transpose(x[0], KN_SHAPE(0, 2, 1, 3)), .in = {N(16, 512, 12, 64)})
CASE(arrays, permute_reverse,      kn_transpose(x[0], KN_ALL),            .in = {N(64, 96, 128)})
CASE(arrays, permute_last_first,   kn_transpose(x[0], KN_SHAPE(3, 0, 1, 2)), .in = {N(32, 14, 14, 256)})
CASE(arrays, permute_nchw_nhwc,    kn_transpose(x[0], KN_SHAPE(0, 2, 3, 1)), .in = {N(32, 64, 56, 56)}, .both = true)

CASE(arrays, zeropad,        kn_pad(x[0], KN_SHAPE(0, 0, 1, 1), KN_SHAPE(0, 0, 1, 1), KN_PAD_CONSTANT, 0), .in = {N(128, 128, 56, 56)}, .both = true)
CASE(arrays, pad_reflect,    kn_pad(x[0], KN_SHAPE(0, 0, 1, 1), KN_SHAPE(0, 0, 1, 1), KN_PAD_REFLECT, 0), .in = {N(16, 64, 56, 56)}, .both = true)
CASE(arrays, stack,          kn_stack(x, 2, 1),                     .in = {N(1000, 1000), N(1000, 1000)}, .both = true)
CASE(arrays, flip_last,      kn_flip(x[0], KN_SHAPE(1)),            .in = {N(1000, 1000)}, .both = true)
CASE(arrays, flip_first,     kn_flip(x[0], KN_SHAPE(0)),            .in = {N(1000, 1000)}, .both = true)
CASE(arrays, roll,           kn_roll(x[0], 100, 1),                 .in = {N(1000, 1000)}, .both = true)
CASE(arrays, repeat,         kn_repeat(x[0], 4, 0),                 .in = {N(500, 500)}, .both = true)
CASE(arrays, repeat_elements, kn_repeat(x[0], 3, 1),                .in = {N(100000, 10)}, .both = true)
CASE(arrays, slice_narrow,   kn_slice(x[0], KN_SHAPE(0, 1), KN_SHAPE(100000, 2)), .in = {N(100000, 3)}, .both = true)
CASE(arrays, pad_narrow,     kn_pad(x[0], KN_SHAPE(0, 1), KN_SHAPE(0, 1), KN_PAD_CONSTANT, 0), .in = {N(100000, 10)}, .both = true)
CASE(arrays, tile,           kn_tile(x[0], KN_SHAPE(2, 2)),         .in = {N(500, 500)}, .both = true)
CASE(arrays, tril,           kn_tril(x[0], 0),                      .in = {N(1000, 1000)}, .both = true)
CASE(arrays, diagonal,       kn_diagonal(x[0], 0, 0, 1),            .in = {N(1000, 1000)}, .both = true)
CASE(arrays, steps,          kn_index(x[0], KN_ITEMS(KN_EVERY, KN_RANGE(0, KN_END, 2))), .in = {N(1000, 1000)}, .both = true)
CASE(arrays, arange_1m,      kn_arange(0, 1000000, 1, KN_F32),   .both = false)
CASE(arrays, one_hot,        kn_one_hot(x[0], 1000),                .in = {I(0, 1000, 1000)})

CASE(ops20, embedding,       kn_embedding(x[0], x[1]),              .in = {N(10000, 256), I(0, 10000, 256, 256)}, .both = true)
CASE(arrays, take_columns,   kn_index_select(x[0], x[1], 1),        .in = {N(1000, 1000), I(0, 1000, 500)}, .both = true)
CASE(arrays, take_elements,  kn_index_select(x[0], x[1], 0),        .in = {N(1000000), I(0, 1000000, 1000000)}, .both = true)
CASE(arrays, gather,         kn_gather(x[0], x[1], 1),              .in = {N(1000, 1000), I(0, 1000, 1000, 1000)}, .both = true)
CASE(arrays, gather_one,     kn_gather(x[0], x[1], 1),              .in = {N(100000, 10), I(0, 10, 100000, 1)}, .both = true)
CASE(arrays, scatter,        kn_scatter(x[0], x[1], x[2], 1),       .in = {N(1000, 1000), I(0, 1000, 1000, 1000), N(1000, 1000)})
CASE(arrays, scatter_add,    kn_scatter_add(x[0], x[1], x[2], 1),   .in = {N(1000, 1000), I(0, 1000, 1000, 1000), N(1000, 1000)}, .both = true)
CASE(arrays, index_add,      kn_index_add(x[0], x[1], x[2], 0),     .in = {N(1000, 256), I(0, 1000, 4000), N(4000, 256)}, .both = true)
CASE(arrays, masked_select,  kn_masked_select(x[0], x[1]),          .in = {N(1000, 1000), B(1000, 1000)})
CASE(arrays, nonzero,        kn_nonzero(x[0]),                      .in = {B(1000, 1000)})
