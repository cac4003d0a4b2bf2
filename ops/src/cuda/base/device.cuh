// What the .cu files share: launches, grids, and sums over a team of threads.
#ifndef KN_CUDA_DEVICE_CUH
#define KN_CUDA_DEVICE_CUH

#include "cuda/base/launch.h"

// Every launch and every shared variable goes through here: no kernel takes dynamic shared memory.
// Tests build the same files as C++ and run the kernels' threads as fibers on the host.
#ifdef KN_EMULATE
#include "emulate.h"
#else
#define KN_LAUNCH(kernel, blocks, threads, stream, ...)                                            \
    kernel<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__)
#define KN_SHARED(name, ...) __shared__ typename kn_dev::value_of<__VA_ARGS__>::type name
#define KN_BLOCKS_MAX (1 << 20) /* of a grid-stride loop */
#define KN_INDEX_MAX UINT32_MAX /* elements that a kernel of 32-bit indices takes */
#endif

#include "cuda/base/functions.cuh"

namespace kn_dev {

// Threads of a block. Kernels are bounded by (BLOCK, 1): without the 1, ptxas chooses how many
// blocks share a multiprocessor, and spills registers to fit one more.
enum { BLOCK = 256 };

template <class T>
struct value_of {
    using type = T;
};

// Calls body(float{}) or body(double{}): launchers pick their kernel's type so.
template <class F>
cudaError_t with_float(kn_dtype dtype, F body) {
    if (dtype == KN_F32) return body(float{});
    if (dtype == KN_F64) return body(double{});
    return cudaErrorInvalidValue;
}

// Blocks for `work` items of a grid-stride loop.
inline unsigned blocks_for(int64_t work, int block = BLOCK) {
    int64_t blocks = (work + block - 1) / block;
    return (unsigned)(blocks < 1 ? 1 : blocks > KN_BLOCKS_MAX ? KN_BLOCKS_MAX : blocks);
}

inline bool aligned(const void *p, size_t bytes) { return (uintptr_t)p % bytes == 0; }

template <class T>
__device__ T identity_max();
template <>
__device__ inline float identity_max<float>() {
    return -INFINITY;
}
template <>
__device__ inline double identity_max<double>() {
    return -(double)INFINITY;
}

template <class T>
__device__ T not_a_number() {
    return T(0) / T(0);
}

struct op_sum {
    template <class T>
    __device__ static T identity() {
        return T(0);
    }
    template <class T>
    __device__ static T join(T a, T b) {
        return a + b;
    }
};
struct op_max {  // NaN wins, as in ops.def's maximum
    template <class T>
    __device__ static T identity() {
        return identity_max<T>();
    }
    template <class T>
    __device__ static T join(T a, T b) {
        return a > b || a != a ? a : b;
    }
};
struct op_min {
    template <class T>
    __device__ static T identity() {
        return -identity_max<T>();
    }
    template <class T>
    __device__ static T join(T a, T b) {
        return a < b || a != a ? a : b;
    }
};

template <class Op, class T>
__device__ T warp_join(T x) {
    for (int d = 16; d > 0; d >>= 1) x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// Joins over a team of TEAM threads of one block, 32 or all of its threads; every thread gets
// the result. Always in the same order.
template <class Op, int TEAM, class T>
__device__ T team_join(T x) {
    x = warp_join<Op>(x);
    if (TEAM == 32) return x;
    KN_SHARED(warps, T[TEAM / 32]);
    __syncthreads();  // the last use of `warps` is over
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    T y = warps[0];
    for (int i = 1; i < TEAM / 32; i++) y = Op::join(y, warps[i]);
    return y;
}

}  // namespace kn_dev
#endif
