// Factorisations and solvers of many small matrices: each is one block's, in shared memory.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

// Threads of a block, and how large a matrix may be: up to WARP_SIDE rows a warp alone, for which
// barriers cost little, so that a multiprocessor works on 32 matrices.
enum { WARP = 32, WARP_SIDE = 32 };

__device__ int lane() { return (int)threadIdx.x % WARP; }
__device__ int warp() { return (int)threadIdx.x / WARP; }

template <class T, int SIDE, int THREADS>
__device__ void load(T (&a)[SIDE][SIDE + 1], const T *from, int n, bool trans) {
    for (int i = warp(); i < n; i += THREADS / WARP)
        for (int j = lane(); j < n; j += WARP) (trans ? a[j][i] : a[i][j]) = from[i * n + j];
}

// --- Cholesky: reads the lower half ---

template <class T, int SIDE, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    cholesky_kernel(T *out, const T *in, int64_t batch, int n) {
    KN_SHARED(a, T[SIDE][SIDE + 1]);
    const int t = (int)threadIdx.x;
    for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
        load<T, SIDE, THREADS>(a, in + b * n * n, n, false);
        __syncthreads();
        int k = 0;
        for (; k < n && a[k][k] > T(0); k++) {  // the diagonal's roots are taken at the end
            const T d = sqrt_(a[k][k]);
            for (int i = k + 1 + t; i < n; i += THREADS) a[i][k] /= d;
            __syncthreads();
            for (int i = k + 1 + warp(); i < n; i += THREADS / WARP)
                for (int j = k + 1 + lane(); j <= i; j += WARP) a[i][j] -= a[i][k] * a[j][k];
            __syncthreads();
        }
        T *to = out + b * n * n;
        for (int i = warp(); i < n; i += THREADS / WARP)
            for (int j = lane(); j < n; j += WARP) {
                const T value = j < i ? a[i][j] : (j == i ? sqrt_(a[i][i]) : T(0));
                to[i * n + j] = k < n ? not_a_number<T>() : value;  // not positive definite
            }
        __syncthreads();
    }
}

// --- LU with partial pivoting ---

template <class T>
struct bits_of {
    using type = uint32_t;
};
template <>
struct bits_of<double> {
    using type = uint64_t;
};

// The first of the largest elements of column k, from row k on; NaN is above all.
template <class T, int SIDE>
__device__ int pivot_of(const T (&a)[SIDE][SIDE + 1], int k, int n) {
    using bits = typename bits_of<T>::type;
    bits most = 0;
    int row = k;
    for (int i = k + lane(); i < n; i += WARP) {
        bits size;
        const T x = abs_(a[i][k]);
        memcpy(&size, &x, sizeof size);
        if (size > most) most = size, row = i;
    }
    for (int d = WARP / 2; d > 0; d >>= 1) {
        const bits size = __shfl_xor_sync(0xffffffffu, most, d);
        const int other = __shfl_xor_sync(0xffffffffu, row, d);
        if (size > most || (size == most && other < row)) most = size, row = other;
    }
    return row;
}

// Every warp looks for the pivot by itself, which saves a barrier.
template <class T, int SIDE, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    lu_kernel(T *factors, const T *in, int64_t batch, int n) {
    KN_SHARED(a, T[SIDE][SIDE + 1]);
    const int t = (int)threadIdx.x;
    for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
        T *to = factors + b * (n + 1) * n;
        int *pivot = (int *)(to + n * n);
        load<T, SIDE, THREADS>(a, in + b * n * n, n, false);
        __syncthreads();
        for (int k = 0; k < n; k++) {
            const int p = pivot_of<T, SIDE>(a, k, n);
            const T d = a[p][k], top = a[k][k];
            __syncthreads();
            for (int i = k + 1 + t; i < n; i += THREADS) {
                const T x = i == p ? top : a[i][k];
                a[i][k] = d != T(0) ? x / d : x;
            }
            for (int j = t; j < n && p != k; j += THREADS) {
                const T x = a[k][j];
                if (j != k) a[k][j] = a[p][j], a[p][j] = x;
            }
            if (t == 0) a[k][k] = d, pivot[k] = p + 1;
            __syncthreads();
            for (int i = k + 1 + warp(); i < n; i += THREADS / WARP)
                for (int j = k + 1 + lane(); j < n; j += WARP) a[i][j] -= a[i][k] * a[k][j];
            __syncthreads();
        }
        for (int i = warp(); i < n; i += THREADS / WARP)
            for (int j = lane(); j < n; j += WARP) to[i * n + j] = a[i][j];
        __syncthreads();
    }
}

// --- solving by it ---

// T·x = b in place; a thread has one of `width` columns, a power of two.
template <class T, int SIDE, int WIDTH, int THREADS>
__device__ void substitute(T (&x)[SIDE][WIDTH], const T (&a)[SIDE][SIDE + 1], int n, int width,
                           bool upper, bool unit) {
    const int c = (int)threadIdx.x % width, first = (int)threadIdx.x / width,
              step = THREADS / width;
    for (int s = 0; s < n; s++) {
        const int k = upper ? n - 1 - s : s, end = upper ? k : n;
        const T solved = unit ? x[k][c] : x[k][c] / a[k][k];
        for (int i = (upper ? 0 : k + 1) + first; i < end; i += step) x[i][c] -= a[i][k] * solved;
        __syncthreads();
    }
    for (int i = first; i < n && !unit; i += step) x[i][c] /= a[i][i];
    __syncthreads();
}

// Where the exchanges of rows, one after the other, take row i from.
__device__ inline int source_of(int i, const int *pivot, int n) {
    for (int k = n - 1; k >= 0; k--) {
        const int p = pivot[k] - 1;
        i = i == k ? p : (i == p ? k : i);
    }
    return i;
}

// b NULL: the identity. A block takes `width` columns of a matrix.
template <class T, int SIDE, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    lu_solve_kernel(T *x, const T *b, const T *factors, int64_t batch, int n, int64_t columns,
                    int width, bool trans) {
    enum { WIDTH = 128 / sizeof(T) };
    KN_SHARED(a, T[SIDE][SIDE + 1]);
    KN_SHARED(y, T[SIDE][WIDTH]);
    KN_SHARED(pivot, int[SIDE]);
    KN_SHARED(source, int[SIDE]);
    const int t = (int)threadIdx.x, c = t % width, step = THREADS / width;
    const int64_t tiles = (columns + width - 1) / width;
    for (int64_t job = blockIdx.x; job < batch * tiles; job += gridDim.x) {
        const T *own = factors + job / tiles * (n + 1) * n;
        const int64_t column = job % tiles * width + c, at = job / tiles * n * columns + column;
        const bool has = column < columns;
        load<T, SIDE, THREADS>(a, own, n, trans);
        for (int i = t; i < n; i += THREADS) pivot[i] = ((const int *)(own + n * n))[i];
        __syncthreads();
        for (int i = t; i < n; i += THREADS) source[i] = source_of(i, pivot, n);
        __syncthreads();
        for (int i = t / width; i < n; i += step) {
            const int64_t from = trans ? i : source[i];
            const T one = from == column ? T(1) : T(0);
            y[i][c] = !has ? T(0) : (b ? b[at + from * columns] : one);
        }
        __syncthreads();
        substitute<T, SIDE, WIDTH, THREADS>(y, a, n, width, false, !trans);
        substitute<T, SIDE, WIDTH, THREADS>(y, a, n, width, true, trans);
        for (int i = t / width; i < n; i += step)
            if (has) x[at + (trans ? source[i] : i) * columns] = y[i][c];
        __syncthreads();
    }
}

// Calls body with a value of the dtype and whether a warp is enough.
template <class F>
cudaError_t launch(kn_dtype dtype, int64_t n, F body) {
    if (n > KN__SMALL) return cudaErrorInvalidValue;
    return with_float(dtype, [&](auto t) {
        body(t, n <= WARP_SIDE);
        return cudaGetLastError();
    });
}

}  // namespace

extern "C" {

cudaError_t kn__launch_cholesky(void *l, const void *a, kn_dtype dtype, int64_t batch, int64_t n,
                                cudaStream_t stream) {
    return launch(dtype, n, [&](auto t, bool by_warp) {
        using T = decltype(t);
        if (by_warp)
            KN_LAUNCH((cholesky_kernel<T, WARP_SIDE, WARP>), blocks_for(batch, 1), WARP, stream,
                      (T *)l, (const T *)a, batch, (int)n);
        else
            KN_LAUNCH((cholesky_kernel<T, KN__SMALL, BLOCK>), blocks_for(batch, 1), BLOCK, stream,
                      (T *)l, (const T *)a, batch, (int)n);
    });
}

cudaError_t kn__launch_lu(void *factors, const void *a, kn_dtype dtype, int64_t batch, int64_t n,
                          cudaStream_t stream) {
    return launch(dtype, n, [&](auto t, bool by_warp) {
        using T = decltype(t);
        if (by_warp)
            KN_LAUNCH((lu_kernel<T, WARP_SIDE, WARP>), blocks_for(batch, 1), WARP, stream,
                      (T *)factors, (const T *)a, batch, (int)n);
        else
            KN_LAUNCH((lu_kernel<T, KN__SMALL, BLOCK>), blocks_for(batch, 1), BLOCK, stream,
                      (T *)factors, (const T *)a, batch, (int)n);
    });
}

cudaError_t kn__launch_lu_solve(void *x, const void *b, const void *factors, kn_dtype dtype,
                                int64_t batch, int64_t n, int64_t columns, bool trans,
                                cudaStream_t stream) {
    return launch(dtype, n, [&](auto t, bool by_warp) {
        using T = decltype(t);
        int width = 1;
        while (width < columns && width < (int)(128 / sizeof(T))) width *= 2;
        unsigned blocks = blocks_for(batch * ((columns + width - 1) / width), 1);
        if (by_warp)
            KN_LAUNCH((lu_solve_kernel<T, WARP_SIDE, WARP>), blocks, WARP, stream, (T *)x,
                      (const T *)b, (const T *)factors, batch, (int)n, columns, width, trans);
        else
            KN_LAUNCH((lu_solve_kernel<T, KN__SMALL, BLOCK>), blocks, BLOCK, stream, (T *)x,
                      (const T *)b, (const T *)factors, batch, (int)n, columns, width, trans);
    });
}

}  // extern "C"
