// What cuSOLVER leaves to do around its factorisations, and the triangular solver.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

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

// A thread solves for one column; neighbours read T at the same places and x side by side.
template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    triangular_solve_kernel(T *x, const T *t, int64_t batch, int64_t n, int64_t columns,
                            int64_t row, int64_t column, bool upper, bool unit) {
    for (int64_t c = thread_index(); c < batch * columns; c += thread_count()) {
        T *to = x + c / columns * n * columns + c % columns;
        const T *own = t + c / columns * n * n;
        for (int64_t step = 0; step < n; step++) {
            int64_t i = upper ? n - 1 - step : step, end = upper ? n : i;
            T sum = to[i * columns];
            for (int64_t j = upper ? i + 1 : 0; j < end; j++)
                sum -= own[i * row + j * column] * to[j * columns];
            to[i * columns] = unit ? sum : sum / own[i * row + i * column];
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    lu_det_kernel(T *det, T *logabs, T *sign, const T *lu, const int *pivot, int64_t batch,
                  int64_t n) {
    for (int64_t b = thread_index(); b < batch; b += thread_count()) {
        double product = 1, s = 1, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double d = (double)lu[(b * n + i) * n + i];
            bool swapped = pivot[b * n + i] != i + 1;
            product *= swapped ? -d : d;
            s = d != d ? d : (d == 0 ? 0 : ((d < 0) != swapped ? -s : s));
            sum += log_(abs_(d));
        }
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

cudaError_t kn__launch_triangular_solve(const kn__triangular *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(triangular_solve_kernel, blocks_for(p->batch * p->columns), BLOCK, stream,
                  (T *)p->x, (const T *)p->t, p->batch, p->n, p->columns, p->trans ? 1 : p->n,
                  p->trans ? p->n : 1, p->upper != p->trans, p->unit);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_lu_det(void *det, void *logabs, void *sign, const void *lu, const int *pivot,
                              kn_dtype dtype, int64_t batch, int64_t n, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(lu_det_kernel, blocks_for(batch), BLOCK, stream, (T *)det, (T *)logabs, (T *)sign,
                  (const T *)lu, pivot, batch, n);
        return cudaGetLastError();
    });
}

}  // extern "C"
