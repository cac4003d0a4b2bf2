// What the kernels of chains call, whose sources chain_source.c writes at run time and NVRTC
// compiles. They read and round as the kernels of pointwise.cuh and casts do, so that a value which
// is never stored has the same bits.
#ifndef KN_CUDA_CHAIN_CUH
#define KN_CUDA_CHAIN_CUH

#include "chain.h"
#include "cuda/base/functions.cuh"
#include "cuda/movement/convert.cuh"
#include "cuda/pointwise/formulas.cuh"

namespace kn_dev {

// The element of a dtype in memory, S, and what its formulas compute in, T: also its register.
template <int DTYPE>
struct of_dtype;
#define OF_DTYPE(dtype, stored)                                                                    \
    template <>                                                                                    \
    struct of_dtype<dtype> {                                                                       \
        using S = stored;                                                                          \
        using T = decltype(element<S>::load(S()));                                                 \
        using narrow_to = narrow<S>;                                                               \
    };
OF_DTYPE(KN_F32, float)
OF_DTYPE(KN_F64, double)
OF_DTYPE(KN_F16, __half)
OF_DTYPE(KN_BF16, __nv_bfloat16)
OF_DTYPE(KN_I64, int64_t)
OF_DTYPE(KN_I32, int32_t)
OF_DTYPE(KN_U8, uint8_t)
template <>
struct of_dtype<KN_BOOL> {
    using S = uint8_t;
    using T = wrapped<uint8_t>;
    struct narrow_to {
        template <class X>
        __device__ static uint8_t from(X x) {
            return narrow<boolean>::from(x).v;
        }
    };
};
#undef OF_DTYPE
template <int DTYPE>
using stored_of = typename of_dtype<DTYPE>::S;
template <int DTYPE>
using computed_as = typename of_dtype<DTYPE>::T;

// V elements from `at` on, of which `rest` exist.
template <int DTYPE, int V>
__device__ void chain_load(computed_as<DTYPE> (&x)[V], const void *in, int64_t at, int64_t rest,
                           bool wide) {
    using S = stored_of<DTYPE>;
    const S *from = (const S *)in + at;
    if (V > 1 && wide && rest >= V) {
        pack<S, V> all = *reinterpret_cast<const pack<S, V> *>(from);
#pragma unroll
        for (int v = 0; v < V; v++) x[v] = element<S>::load(all.v[v]);
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            x[v] = V == 1 || v < rest ? element<S>::load(from[v]) : computed_as<DTYPE>(0);
    }
}

template <int DTYPE, int V>
__device__ void chain_load_single(computed_as<DTYPE> (&x)[V], const void *in) {
    computed_as<DTYPE> one = element<stored_of<DTYPE>>::load(*(const stored_of<DTYPE> *)in);
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = one;
}

template <int DTYPE, int V>
__device__ void chain_store(void *out, int64_t i, int64_t rest, bool wide,
                            const computed_as<DTYPE> (&y)[V]) {
    using S = stored_of<DTYPE>;
    S *to = (S *)out + i;
    if (V > 1 && wide && rest >= V) {
        pack<S, V> all;
#pragma unroll
        for (int v = 0; v < V; v++) all.v[v] = element<S>::store(y[v]);
        *reinterpret_cast<pack<S, V> *>(to) = all;
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            if (V == 1 || v < rest) to[v] = element<S>::store(y[v]);
    }
}

// Where an array with these strides has element i of the index space.
template <int N_DIMS>
__device__ int64_t chain_place(const kn__chain_args &a, const int64_t *stride, int64_t i) {
    uint32_t rest = (uint32_t)i;
    int64_t at = 0;
#pragma unroll
    for (int d = N_DIMS - 1; d > 0; d--) {
        uint32_t outer = rest / a.dim[d];
        at += (int64_t)(rest - outer * a.dim[d]) * stride[d];
        rest = outer;
    }
    return at + (int64_t)rest * stride[0];
}

// An operand of a formula in T: itself, or a BOOL.
template <class T, class X>
__device__ T chain_operand(X x) {
    if constexpr (std::is_same<T, X>::value)
        return x;
    else
        return T((int)x.v);
}

template <class T>
__device__ T chain_scalar(kn__chain_scalar s) {
    if constexpr (std::is_floating_point<T>::value)
        return (T)s.real;
    else
        return T((decltype(T::v))s.integer);
}

// A result as a reader of the stored element finds it.
template <int DTYPE>
__device__ computed_as<DTYPE> chain_round(computed_as<DTYPE> x) {
    using S = stored_of<DTYPE>;
    return element<S>::load(element<S>::store(x));
}
template <int DTYPE>
__device__ computed_as<DTYPE> chain_truth(bool x) {
    return computed_as<DTYPE>((uint8_t)(x ? 1 : 0));
}

__device__ inline float chain_bare(float x) { return x; }
__device__ inline double chain_bare(double x) { return x; }
template <class I>
__device__ I chain_bare(wrapped<I> x) {
    return x.v;
}
template <int DTYPE, class X>
__device__ computed_as<DTYPE> chain_cast(X x) {
    using S = stored_of<DTYPE>;
    return element<S>::load(of_dtype<DTYPE>::narrow_to::from(chain_bare(x)));
}

}  // namespace kn_dev
#endif
