// Casts, an element at a time. NVRTC compiles this file too (pointwise/chain.cuh).
#ifndef KN_CUDA_CONVERT_CUH
#define KN_CUDA_CONVERT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/base/functions.cuh"

namespace kn_dev {

// Conversions: to integers toward zero, saturated, NaN to 0; to BOOL whether it differs from zero;
// 16-bit floats go through float.
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
template <>
struct narrow<__half> {
    template <class S>
    __device__ static __half from(S x) {
        return __float2half_rn((float)x);
    }
};
template <>
struct narrow<__nv_bfloat16> {
    template <class S>
    __device__ static __nv_bfloat16 from(S x) {
        return __float2bfloat16_rn((float)x);
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
