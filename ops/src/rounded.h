/* Arithmetic with the same bits on every device: single operations, each correctly rounded. The
 * intrinsics keep nvcc from fusing a product and a sum; -ffp-contract=off does so on the host. */
#ifndef KN_ROUNDED_H
#define KN_ROUNDED_H

#ifdef __CUDACC__
#define KN_HOST_DEVICE __host__ __device__
#define KN_STRAIGHT KN_HOST_DEVICE
#define KN_UNROLLED
#else
#define KN_HOST_DEVICE
#define KN_STRAIGHT __attribute__((always_inline)) /* loops with a call are not vectorised */
#define KN_UNROLLED _Pragma("GCC unroll 16")
#endif

#ifdef __CUDA_ARCH__
#define KN_MUL_F32(a, b) __fmul_rn(a, b)
#define KN_ADD_F32(a, b) __fadd_rn(a, b)
#define KN_MUL_F64(a, b) __dmul_rn(a, b)
#define KN_ADD_F64(a, b) __dadd_rn(a, b)
#define KN_DIV_F32(a, b) __fdiv_rn(a, b)
#define KN_DIV_F64(a, b) __ddiv_rn(a, b)
#define KN_SQRT_F64(a) __dsqrt_rn(a)
#define KN_FLOOR_F64(a) floor(a)
#define KN_NEAREST_F64(a) rint(a)
#else
#define KN_MUL_F32(a, b) ((a) * (b))
#define KN_ADD_F32(a, b) ((a) + (b))
#define KN_MUL_F64(a, b) ((a) * (b))
#define KN_ADD_F64(a, b) ((a) + (b))
#define KN_DIV_F32(a, b) ((a) / (b))
#define KN_DIV_F64(a, b) ((a) / (b))
#define KN_SQRT_F64(a) __builtin_sqrt(a)
#define KN_FLOOR_F64(a) __builtin_floor(a)
#define KN_NEAREST_F64(a) __builtin_rint(a)
#endif

#endif
