// What cuSOLVER leaves to do around its factorisations.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

enum { WARP = 32 };

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    tri_scale_kernel(T *out, const T *x, int64_t n, int64_t rows, int64_t columns, T below, T on,
                     T above) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t c = i % columns, r = i / columns % rows;
        T weight = c < r ? below : (c == r ? on : above);
        out[i] = weight == T(0) ? T(0) : weight * x[i];
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    spoil_kernel(T *out, int64_t n, int64_t elements, const int *info) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        if (info[i / elements] != 0) out[i] = T(NAN);
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) identity_kernel(T *out, int64_t total, int64_t n) {
    for (int64_t i = thread_index(); i < total; i += thread_count())
        out[i] = i / n % n == i % n ? T(1) : T(0);
}

struct op_product {
    template <class T>
    __device__ static T join(T a, T b) {
        return a * b;
    }
};

// A warp a matrix.
template <class T>
__global__ void __launch_bounds__(WARP, 1)
    lu_det_kernel(T *det, T *logabs, T *sign, const T *factors, int64_t batch, int64_t n) {
    for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
        const T *lu = factors + b * (n + 1) * n;
        const int *pivot = (const int *)(lu + n * n);
        double product = 1, s = 1, sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += WARP) {
            double d = (double)lu[i * n + i];
            bool swapped = pivot[i] != i + 1;
            product *= swapped ? -d : d;
            s *= d != d ? d : (d == 0 ? 0 : ((d < 0) != swapped ? -1 : 1));
            sum += log_(abs_(d));
        }
        product = warp_join<op_product>(product);
        s = warp_join<op_product>(s);
        sum = warp_join<op_sum>(sum);
        if (threadIdx.x != 0) continue;
        if (det) det[b] = (T)product;
        if (logabs) logabs[b] = (T)sum;
        if (sign) sign[b] = (T)s;
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_tri_scale(void *out, const void *x, kn_dtype dtype, int64_t batch,
                                 int64_t rows, int64_t columns, double below, double on,
                                 double above, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = batch * rows * columns;
        KN_LAUNCH(tri_scale_kernel, blocks_for(n), BLOCK, stream, (T *)out, (const T *)x, n, rows,
                  columns, (T)below, (T)on, (T)above);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_spoil(void *out, kn_dtype dtype, int64_t batch, int64_t elements,
                             const int *info, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = batch * elements;
        KN_LAUNCH(spoil_kernel, blocks_for(n), BLOCK, stream, (T *)out, n, elements, info);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_identity(void *out, kn_dtype dtype, int64_t batch, int64_t n,
                                cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t total = batch * n * n;
        KN_LAUNCH(identity_kernel, blocks_for(total), BLOCK, stream, (T *)out, total, n);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_lu_det(void *det, void *logabs, void *sign, const void *factors,
                              kn_dtype dtype, int64_t batch, int64_t n, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(lu_det_kernel, blocks_for(batch, 1), WARP, stream, (T *)det, (T *)logabs,
                  (T *)sign, (const T *)factors, batch, n);
        return cudaGetLastError();
    });
}

}  // extern "C"
