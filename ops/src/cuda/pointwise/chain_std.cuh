// The parts of the standard headers, of CUDA's 16-bit floats and of knet/tensor.h that the kernels
// of chains use, for NVRTC, which has no headers. chain_compile.c puts it before each source.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807L - 1)
#define INT64_MAX 9223372036854775807L
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#define __builtin_memcpy memcpy

namespace std {
template <class A, class B>
struct is_same {
    static constexpr bool value = false;
};
template <class A>
struct is_same<A, A> {
    static constexpr bool value = true;
};
template <class T>
struct is_floating_point {
    static constexpr bool value = is_same<T, float>::value || is_same<T, double>::value;
};
template <class T>
struct make_unsigned {
    using type = T;
};
template <>
struct make_unsigned<int32_t> {
    using type = uint32_t;
};
template <>
struct make_unsigned<int64_t> {
    using type = uint64_t;
};
}  // namespace std

// cuda_fp16.h and cuda_bf16.h: the same instructions, and the same integers where a GPU has none.
struct alignas(2) __half {
    uint16_t bits;
};
__device__ inline float __half2float(__half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ inline __half __float2half_rn(float x) {
    __half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
struct alignas(2) __nv_bfloat16 {
    uint16_t bits;
};
__device__ inline float __bfloat162float(__nv_bfloat16 x) {
    return __int_as_float((int)((uint32_t)x.bits << 16));
}
__device__ inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    __nv_bfloat16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    uint32_t bits = (uint32_t)__float_as_int(x);
    y.bits = x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return y;
}
