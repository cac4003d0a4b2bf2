// Sums of elements of every dtype of numbers: 16-bit floats add up as f32, integers wrap.
#ifndef KN_CUDA_SUMS_CUH
#define KN_CUDA_SUMS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/base/device.cuh"

namespace kn_dev {

template <class E>
struct sum_of {  // what E adds up as
    using type = E;
    __device__ static E up(E x) { return x; }
    __device__ static E down(E x) { return x; }
};
template <>
struct sum_of<__half> {
    using type = float;
    __device__ static float up(__half x) { return __half2float(x); }
    __device__ static __half down(float x) { return __float2half_rn(x); }
};
template <>
struct sum_of<__nv_bfloat16> {
    using type = float;
    __device__ static float up(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static __nv_bfloat16 down(float x) { return __float2bfloat16_rn(x); }
};

template <class E>
__device__ E add(E a, E b) {
    using S = sum_of<E>;
    return S::down((typename S::type)(S::up(a) + S::up(b)));
}

// Calls body with a value of the dtype; integers as unsigned, so that they wrap.
template <class F>
cudaError_t with_number(kn_dtype dtype, F body) {
    switch (dtype) {
        case KN_F32:
            return body(value_of<float>{});
        case KN_F64:
            return body(value_of<double>{});
        case KN_F16:
            return body(value_of<__half>{});
        case KN_BF16:
            return body(value_of<__nv_bfloat16>{});
        case KN_I64:
            return body(value_of<uint64_t>{});
        case KN_I32:
            return body(value_of<uint32_t>{});
        case KN_U8:
            return body(value_of<uint8_t>{});
        case KN_BOOL:
            break;
    }
    return cudaErrorInvalidValue;
}

// Calls body with an unsigned integer of that many bytes, which moves any element of that size.
template <class F>
cudaError_t with_bytes(size_t bytes, F body) {
    switch (bytes) {
        case 1:
            return body(value_of<uint8_t>{});
        case 2:
            return body(value_of<uint16_t>{});
        case 4:
            return body(value_of<uint32_t>{});
        case 8:
            return body(value_of<uint64_t>{});
    }
    return cudaErrorInvalidValue;
}

}  // namespace kn_dev
#endif
