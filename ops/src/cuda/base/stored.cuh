// For kernels that store f16 or bf16 and compute in f32.
#ifndef KN_CUDA_STORED_CUH
#define KN_CUDA_STORED_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/base/device.cuh"

namespace kn_dev {

// What elements stored as T are computed as: float for the 16-bit types.
template <class T>
using computed = typename std::conditional<sizeof(T) == 2, float, T>::type;

// V elements of one access, as they are computed.
template <int V, class T>
__device__ pack<computed<T>, V> load(const T *p) {
    pack<T, V> from = *reinterpret_cast<const pack<T, V> *>(p);
    pack<computed<T>, V> x;
#pragma unroll
    for (int k = 0; k < V; k++) x.v[k] = (computed<T>)from.v[k];
    return x;
}

// Rounded to the nearest, halves to even.
template <int V, class T>
__device__ void store(T *p, const pack<computed<T>, V> &x) {
    pack<T, V> to;
#pragma unroll
    for (int k = 0; k < V; k++) to.v[k] = (T)x.v[k];
    *reinterpret_cast<pack<T, V> *>(p) = to;
}

// with_float, with the 16-bit types.
template <class F>
cudaError_t with_stored(kn_dtype dtype, F body) {
    if (dtype == KN_F16) return body(__half{});
    if (dtype == KN_BF16) return body(__nv_bfloat16{});
    return with_float(dtype, body);
}

}  // namespace kn_dev
#endif
