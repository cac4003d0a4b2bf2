/* Inner loops compiled once per instruction set (x86-64-v2, v3, v4) and real type (f32, f64), and
 * the choice among them at run time.
 *
 * A *_loops.c file is compiled with KN_ISA and KN_REAL set, defines its functions as KN_LOOP(name),
 * and takes `real` for the type. Loops run on one thread, and their results don't depend on how the
 * caller splits the work except where the caller's split is part of their meaning (sums). Pointers
 * may have any alignment of their element.
 *
 *     const kn__loop_table *loops = kn__loops(KN_F32);
 *     loops->softmax_rows(y, x, rows, cols, false);
 */
#ifndef KN_LOOPS_H
#define KN_LOOPS_H

#include <knet/op.h>

#include "checked.h"
#include "host/attention/rows.h"
#include "host/conv/conv.h"
#include "host/conv/conv_tiles.h"
#include "host/image/image.h"
#include "host/norm/norm.h"
#include "host/pointwise/links.h"
#include "host/pool/window.h"
#include "host/product/narrow.h"
#include "host/recurrent/step.h"
#include "integers.h"
#include "quantile.h"

/* What an optimiser's step multiplies by. Adam: rate and root_scale are corrected for bias; LAMB:
 * m_scale and root_scale are. */
typedef struct kn__optim_terms {
    double rate, momentum, beta1, beta2, eps, m_scale, root_scale, decay, grad_scale;
    double inner, outer; /* of momentum: -rate and 1, or 1 and -rate */
} kn__optim_terms;

enum { KN_COLUMNS = 1024 };   /* most that a column loop takes at once */
enum { KN_DENSE_BLOCK = 64 }; /* rows and columns of an unblocked part of a factorisation */
/* Elements of a column of lu_panel: an odd number of cache lines, so that columns don't meet in the
 * cache. */
#define KN_PANEL_ROWS(rows) ((((rows) + 15) / 16 | 1) * 16)

typedef struct kn__loop_table {
#define KN_LOOP_DEF(result, name, arguments) result(*name) arguments;
#include "host/base/loops.def"
    int tile_rows, tile_columns; /* of gemm_tile */
    int group;                   /* of direct_product: elements in 32 bytes */
} kn__loop_table;

/* The table for this machine; the environment variable KNET_ISA (v2, v3, v4) lowers the choice.
 * dtype is KN_F32 or KN_F64. */
const kn__loop_table *kn__loops(kn_dtype dtype);
/* A given instruction set's table, for tests: 2, 3 or 4; NULL where the machine lacks it. */
const kn__loop_table *kn__loops_isa(kn_dtype dtype, int isa);

#ifdef KN_ISA /* inside a *_loops.c file */

#define KN_LOOP_PASTE_(name, real, isa) kn__##name##_##real##_##isa
#define KN_LOOP_PASTE(name, real, isa) KN_LOOP_PASTE_(name, real, isa)
#define KN_LOOP(name) KN_LOOP_PASTE(name, KN_REAL, KN_ISA)

#ifdef KN_REAL_IS_F32
typedef float real;
typedef int32_t real_bits;
#define KN_MANTISSA 23
#define KN_EXPONENT_ONE 0x3F800000
#else
typedef double real;
typedef int64_t real_bits;
#define KN_MANTISSA 52
#define KN_EXPONENT_ONE 0x3FF0000000000000
#endif

#define KN_LOOP_DEF(result, name, arguments) result KN_LOOP(name) arguments;
#include "host/base/loops.def"

/* Loops that must be unrolled, for each height of a tile, to keep arrays in registers. With a
 * sanitizer's checks on each element that would take minutes to compile, so there one loop serves
 * all heights. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define KN_TILE_UNROLLED 0
#define KN_UNROLL(times)
#else
#define KN_TILE_UNROLLED 1
#define KN_UNROLL(times) KN_LOOP_PRAGMA(GCC unroll times)
#define KN_LOOP_PRAGMA(text) _Pragma(#text)
#endif

/* Before a loop over elements: a result may alias an input, element for element. */
#ifdef __clang__
#define KN_SIMD /* it checks at run time, and warns of loops that it can't vectorise */
#else
#define KN_SIMD _Pragma("GCC ivdep")
#endif

/* The micro-tile of products: as many accumulators as the registers hold. */
#if defined __AVX512F__
#define KN_TILE_IS_WIDE 1 /* wider than 32 bytes */
enum { KN_TILE_BYTES = 64, KN_TILE_ROWS = 14 };
#elif defined __AVX2__
#define KN_TILE_IS_WIDE 0
enum { KN_TILE_BYTES = 32, KN_TILE_ROWS = 6 };
#else
#define KN_TILE_IS_WIDE 0
enum { KN_TILE_BYTES = 16, KN_TILE_ROWS = 4 };
#endif
enum { KN_TILE_LANES = KN_TILE_BYTES / sizeof(real), KN_TILE_COLUMNS = 2 * KN_TILE_LANES };

/* 64 bytes whatever the instruction set, so that sums have the same lanes, hence the same bits. */
enum { KN_LANES = 64 / sizeof(real) };
typedef real kn__vec __attribute__((vector_size(64)));
typedef real_bits kn__vec_bits __attribute__((vector_size(64)));

static inline kn__vec kn__vec_load(const real *p) {
    kn__vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
static inline void kn__vec_store(real *p, kn__vec v) { __builtin_memcpy(p, &v, sizeof v); }
static inline kn__vec kn__vec_all(real x) { return x - (kn__vec){0}; }
static inline kn__vec kn__vec_select(kn__vec_bits mask, kn__vec a, kn__vec b) {
    return (kn__vec)((mask & (kn__vec_bits)a) | (~mask & (kn__vec_bits)b));
}
static inline real kn__vec_sum(kn__vec v) { /* pairwise */
    real s[KN_LANES];
    __builtin_memcpy(s, &v, sizeof s);
    for (int half = KN_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

#endif
#endif
