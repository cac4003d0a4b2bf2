// Casts, an element at a time. NVRTC compiles this file too (pointwise/chain.cuh).
#ifndef KN_CUDA_CONVERT_CUH
#define KN_CUDA_CONVERT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/base/functions.cuh"

namespace kn_dev {

// Conversions: to integers toward zero, saturated, NaN to 0; to BOOL whether it differs from zero;
// 16-bit floats go through float, by convert.h's roundings to odd.
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline uint8_t widen(boolean x) { return x.v; }
template <class S>
__device__ S widen(S x) {
    return x;
}

template <class D>
struct narrow {
    template <class S>
    __device__ static D from(S x) {
        return (D)x;
    }
};
template <class D>
struct narrow_integer {
    __device__ static int64_t wide(double x) {
        if (x != x) return 0;
        return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x;
    }
    __device__ static int64_t wide(float x) { return wide((double)x); }
    template <class S>
    __device__ static int64_t wide(S x) {
        return (int64_t)x;
    }
    template <class S>
    __device__ static D from(S x) {
        constexpr int64_t low = sizeof(D) == 8 ? INT64_MIN : sizeof(D) == 4 ? INT32_MIN : 0;
        constexpr int64_t high = sizeof(D) == 8 ? INT64_MAX : sizeof(D) == 4 ? INT32_MAX : 255;
        return (D)min(max(wide(x), low), high);
    }
};
template <>
struct narrow<int64_t> : narrow_integer<int64_t> {};
template <>
struct narrow<int32_t> : narrow_integer<int32_t> {};
template <>
struct narrow<uint8_t> : narrow_integer<uint8_t> {};
__device__ inline float to_odd(float x) { return x; }
__device__ inline float to_odd(double x) {
    union {
        float value;
        uint32_t bits;
    } near = {(float)x};
    if ((double)near.value == x) return near.value;
    if (fabs((double)near.value) > fabs(x)) near.bits--;
    near.bits |= 1;
    return near.value;
}
__device__ inline float to_odd(int64_t x) {
    bool is_exact = x >= -((int64_t)1 << 53) && x <= (int64_t)1 << 53;
    return to_odd((double)(is_exact ? x : (x >> 11 | ((x & 0x7FF) != 0)) * 0x800));
}
__device__ inline float to_odd(int32_t x) { return to_odd((double)x); }
__device__ inline float to_odd(uint8_t x) { return (float)x; }
template <>
struct narrow<__half> {
    template <class S>
    __device__ static __half from(S x) {
        return __float2half_rn(to_odd(x));
    }
};
template <>
struct narrow<__nv_bfloat16> {
    template <class S>
    __device__ static __nv_bfloat16 from(S x) {
        return __float2bfloat16_rn(to_odd(x));
    }
};
template <>
struct narrow<boolean> {
    template <class S>
    __device__ static boolean from(S x) {
        return boolean{(uint8_t)(x != S(0))};
    }
};

}  // namespace kn_dev
#endif
