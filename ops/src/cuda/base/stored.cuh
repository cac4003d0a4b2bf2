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

// with_float, with the 16-bit types.
template <class F>
cudaError_t with_stored(kn_dtype dtype, F body) {
    if (dtype == KN_F16) return body(__half{});
    if (dtype == KN_BF16) return body(__nv_bfloat16{});
    return with_float(dtype, body);
}

}  // namespace kn_dev
#endif
