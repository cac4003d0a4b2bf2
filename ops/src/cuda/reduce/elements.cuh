// Shared by reductions, scans and sorts: elements of any dtype, the type they are computed in, and
// how results are stored.
#ifndef KN_CUDA_ELEMENTS_CUH
#define KN_CUDA_ELEMENTS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/base/device.cuh"

namespace kn_dev {

__device__ inline float load_as(float x) { return x; }
__device__ inline double load_as(double x) { return x; }
__device__ inline float load_as(__half x) { return __half2float(x); }
__device__ inline float load_as(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline int64_t load_as(int64_t x) { return x; }
__device__ inline int64_t load_as(int32_t x) { return x; }
__device__ inline int64_t load_as(uint8_t x) { return x; }

// f32 for halves, i64 for integers.
template <class T>
struct computed_of {
    using type = int64_t;
};
template <>
struct computed_of<float> {
    using type = float;
};
template <>
struct computed_of<double> {
    using type = double;
};
template <>
struct computed_of<__half> {
    using type = float;
};
template <>
struct computed_of<__nv_bfloat16> {
    using type = float;
};
template <class T>
using computed = typename computed_of<T>::type;

// Stores element `at` of an array of any dtype; only floats are added to.
template <class A>
__device__ void store_as(void *out, kn_dtype dtype, int64_t at, A v, bool add) {
    switch (dtype) {
        case KN_F32: {
            float *to = (float *)out + at;
            *to = add ? (float)(*to + v) : (float)v;
            break;
        }
        case KN_F64: {
            double *to = (double *)out + at;
            *to = add ? *to + (double)v : (double)v;
            break;
        }
        case KN_F16: {
            __half *to = (__half *)out + at;
            *to = __float2half_rn(add ? __half2float(*to) + (float)v : (float)v);
            break;
        }
        case KN_BF16: {
            __nv_bfloat16 *to = (__nv_bfloat16 *)out + at;
            *to = __float2bfloat16_rn(add ? __bfloat162float(*to) + (float)v : (float)v);
            break;
        }
        case KN_I64:
            ((int64_t *)out)[at] = (int64_t)v;
            break;
        case KN_I32:
            ((int32_t *)out)[at] = (int32_t)v;
            break;
        default:
            ((uint8_t *)out)[at] = (uint8_t)v;
    }
}

// Calls body(T{}) with the element type of a dtype.
template <class F>
cudaError_t with_any(kn_dtype dtype, F body) {
    switch (dtype) {
        case KN_F32:
            return body(float{});
        case KN_F64:
            return body(double{});
        case KN_F16:
            return body(__half{});
        case KN_BF16:
            return body(__nv_bfloat16{});
        case KN_I64:
            return body(int64_t{});
        case KN_I32:
            return body(int32_t{});
        default:
            return body(uint8_t{});
    }
}

}  // namespace kn_dev
#endif
