/* Matrix product on one thread by packing and register tiles: f64, and those f32 shapes where it
 * beats the library. The result depends on the shape and the instruction set only. */
#ifndef KN_GEMM_PACKED_H
#define KN_GEMM_PACKED_H

#include "host/base/loops.h"

/* Element (row, column) is at data[row·stride_row + column·stride_column]. */
typedef struct kn__matrix {
    const void *data;
    int64_t stride_row, stride_column;
} kn__matrix;

/* Bytes of `workspace` that a product of these sizes takes. */
size_t kn__gemm_packed_bytes(kn_dtype dtype, int64_t m, int64_t n, int64_t k);
/* c [m,n], rows ldc apart, += a [m,k] · b [k,n]. */
void kn__gemm_packed(kn_dtype dtype, void *c, int64_t ldc, kn__matrix a, kn__matrix b, int64_t m,
                     int64_t n, int64_t k, void *workspace);
/* The same without workspace, for few columns of c: rows of a (stride_column 1) are read in place
 * and panels of b are packed on the stack. */
void kn__gemm_in_place(kn_dtype dtype, void *c, int64_t ldc, kn__matrix a, kn__matrix b, int64_t m,
                       int64_t n, int64_t k);

#endif
