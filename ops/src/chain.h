/* A chain: pointwise steps over one index space that one kernel computes, as fuse.c hands it to a
 * device that compiles kernels at run time. kn__chain says what the kernel is, and is compared by
 * bytes; kn__chain_args names its data. NVRTC compiles this file too. */
#ifndef KN_CHAIN_H
#define KN_CHAIN_H

#include <stdint.h>

enum {
    KN__CHAIN_STEPS = 32,
    KN__CHAIN_OPERANDS = 24,
    KN__CHAIN_DIMS = 8,
    KN__CHAIN_PARTS = 8, /* results that are written by strides */
    KN__CHAIN_INPUTS = 7,
    KN__CHAIN_ABSENT = 255 /* no input: a formula reads 0 */
};

/* How an operand meets the index space: like it, one element, or by strides. */
enum { KN__CHAIN_DENSE = 0, KN__CHAIN_SINGLE, KN__CHAIN_STRIDED };

typedef struct kn__chain_step {
    uint16_t op;                  /* a row, its back or back2, or the cast */
    uint8_t dtype, to;            /* T (0: none) and the result's; the cast's from and to */
    uint8_t r, n_in;              /* result r of the op */
    uint8_t stored;               /* the result is written to out[step] */
    uint8_t part, unused;         /* by part_stride[part - 1]; 0: as the index space lies */
    uint8_t in[KN__CHAIN_INPUTS]; /* a step; KN__CHAIN_STEPS + an operand; KN__CHAIN_ABSENT */
} kn__chain_step;

typedef struct kn__chain { /* zero unless stated */
    uint8_t n_steps, n_operands;
    uint8_t n_dims; /* 0: nothing is strided */
    uint8_t unused;
    uint8_t dtype[KN__CHAIN_OPERANDS], kind[KN__CHAIN_OPERANDS];
    kn__chain_step step[KN__CHAIN_STEPS];
} kn__chain;

typedef union kn__chain_scalar {
    double real;
    int64_t integer; /* of steps whose T is an integer */
} kn__chain_scalar;

typedef struct kn__chain_args {
    int64_t n;
    const void *in[KN__CHAIN_OPERANDS];
    void *out[KN__CHAIN_STEPS];
    kn__chain_scalar p[KN__CHAIN_STEPS], q[KN__CHAIN_STEPS];
    int32_t wide; /* packs of elements may be moved at once */
    uint32_t dim[KN__CHAIN_DIMS];
    int64_t stride[KN__CHAIN_OPERANDS][KN__CHAIN_DIMS]; /* elements; of strided operands */
    int64_t part_stride[KN__CHAIN_PARTS][KN__CHAIN_DIMS];
} kn__chain_args;

#endif
