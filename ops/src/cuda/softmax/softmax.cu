// Softmax and logsoftmax along one axis, and their gradients. Dense rows are made by a team of
// threads, a part of a warp, a warp or a block, which holds them in registers; longer ones are read
// again for each pass. Along another axis each thread makes one column.

#include "cuda/base/row.cuh"

namespace {

using namespace kn_dev;

// Rows of so few elements are made by a team of so many lanes.
enum { NARROW = 16, NARROW_TEAM = 8 };

template <class T, class F>
cudaError_t with_any_row(int64_t n, F body) {
    return n <= NARROW ? body(row_shape<NARROW_TEAM, 1, NARROW / NARROW_TEAM>{})
                       : with_row<T>(n, body);
}

template <class Op, class S, class T>
__device__ T row_join(T x) {
    if constexpr (S::TEAM >= 32) {
        return team_join<Op, S::TEAM>(x);
    } else {
        for (int d = S::TEAM / 2; d > 0; d >>= 1)
            x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, d));
        return x;
    }
}

// Calls body(r, n) for each row of a team, with an n of 0 past the last one, where other teams of
// the warp have a row.
template <class S, class F>
__device__ void each_row(int64_t rows, int n, F body) {
    constexpr int TOGETHER = S::TEAM < 32 ? 32 / S::TEAM : 1;
    int64_t team = thread_index() / S::TEAM, first = team / TOGETHER * TOGETHER;
    for (; first < rows; first += thread_count() / S::TEAM, team += thread_count() / S::TEAM)
        body(team, team < rows ? n : 0);
}

// Blocks that share a multiprocessor: as many as spill no registers. Rows of f32 by warps wait for
// their loads otherwise.
template <class S, class T>
constexpr int blocks_at_once() {
    return sizeof(T) == 8 ? 1 : S::TEAM == BLOCK ? 3 : 4;
}

template <class S, bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, (blocks_at_once<S, T>()))
    rows_kernel(T *y, const T *x, int64_t rows, int length, bool wide) {
    each_row<S>(rows, length, [&](int64_t r, int n) {
        T v[S::HELD], top = op_max::identity<T>(), sum = T(0);
        read_row<S>(v, x + r * length, n, wide, identity_max<T>());
#pragma unroll
        for (int k = 0; k < S::HELD; k++) top = op_max::join(top, v[k]);
        top = row_join<op_max, S>(top);
#pragma unroll
        for (int k = 0; k < S::HELD; k++) {
            T term = exp_(v[k] - top);
            v[k] = LOG ? v[k] - top : term;
            sum += term;
        }
        sum = row_join<op_sum, S>(sum);
        T log_sum = log_(sum), scale = T(1) / sum;
#pragma unroll
        for (int k = 0; k < S::HELD; k++) v[k] = LOG ? v[k] - log_sum : v[k] * scale;
        write_row<S>(y + r * length, v, n, wide);
    });
}

// The sum of term(i) by a thread, from i on: of so many terms in T, which lose few digits, and of
// more in f64.
enum { TERMS = 256 };
template <class T, class F>
__device__ T long_sum(int64_t i, int64_t n, int step, F term) {
    double total = 0;
    while (i < n) {
        int64_t end = n - i < TERMS * step ? n : i + TERMS * step;
        T sum = T(0);
        for (; i < end; i += step) sum += term(i);
        total += (double)sum;
    }
    return (T)total;
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    long_rows_kernel(T *y, const T *x, int64_t rows, int64_t n) {
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *in = x + r * n;
        T *out = y + r * n;
        T top = op_max::identity<T>();
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) top = op_max::join(top, in[i]);
        top = team_join<op_max, BLOCK>(top);
        T sum = long_sum<T>(threadIdx.x, n, BLOCK, [&](int64_t i) { return exp_(in[i] - top); });
        sum = team_join<op_sum, BLOCK>(sum);
        T log_sum = log_(sum), scale = T(1) / sum;
        for (int64_t i = threadIdx.x; i < n; i += BLOCK)
            out[i] = LOG ? (in[i] - top) - log_sum : exp_(in[i] - top) * scale;
    }
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    columns_kernel(T *y, const T *x, int64_t columns, int64_t n, int64_t inner) {
    for (int64_t c = thread_index(); c < columns; c += thread_count()) {
        int64_t at = c / inner * n * inner + c % inner;
        const T *in = x + at;
        T *out = y + at;
        T top = op_max::identity<T>();
        for (int64_t i = 0; i < n; i++) top = op_max::join(top, in[i * inner]);
        T sum = long_sum<T>(0, n, 1, [&](int64_t i) { return exp_(in[i * inner] - top); });
        T log_sum = log_(sum), scale = T(1) / sum;
        for (int64_t i = 0; i < n; i++)
            out[i * inner] =
                LOG ? (in[i * inner] - top) - log_sum : exp_(in[i * inner] - top) * scale;
    }
}

template <bool LOG, class T>
__device__ T back_term(T y, T g) {
    return LOG ? g : y * g;
}
template <bool LOG, class T>
__device__ T back_of(T y, T g, T sum) {
    return LOG ? g - exp_(y) * sum : y * (g - sum);
}

template <class S, bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    rows_back_kernel(T *dx, const T *y, const T *g, int64_t rows, int length, bool wide) {
    each_row<S>(rows, length, [&](int64_t r, int n) {
        T a[S::HELD], b[S::HELD], sum = T(0);
        read_row<S>(a, y + r * length, n, wide, T(0));
        read_row<S>(b, g + r * length, n, wide, T(0));
#pragma unroll
        for (int k = 0; k < S::HELD; k++) sum += back_term<LOG>(a[k], b[k]);
        sum = row_join<op_sum, S>(sum);
#pragma unroll
        for (int k = 0; k < S::HELD; k++) a[k] = back_of<LOG>(a[k], b[k], sum);
        write_row<S>(dx + r * length, a, n, wide);
    });
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    long_rows_back_kernel(T *dx, const T *y, const T *g, int64_t rows, int64_t n) {
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int64_t at = r * n;
        T sum = long_sum<T>(threadIdx.x, n, BLOCK,
                            [&](int64_t i) { return back_term<LOG>(y[at + i], g[at + i]); });
        sum = team_join<op_sum, BLOCK>(sum);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK)
            dx[at + i] = back_of<LOG>(y[at + i], g[at + i], sum);
    }
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    columns_back_kernel(T *dx, const T *y, const T *g, int64_t columns, int64_t n, int64_t inner) {
    for (int64_t c = thread_index(); c < columns; c += thread_count()) {
        int64_t at = c / inner * n * inner + c % inner;
        T sum = long_sum<T>(0, n, 1, [&](int64_t i) {
            return back_term<LOG>(y[at + i * inner], g[at + i * inner]);
        });
        for (int64_t i = 0; i < n; i++)
            dx[at + i * inner] = back_of<LOG>(y[at + i * inner], g[at + i * inner], sum);
    }
}

template <bool LOG, class T>
cudaError_t launch(const kn__softmax *p, T *y, const T *x, cudaStream_t stream) {
    if (p->inner > 1) {
        int64_t columns = p->outer * p->inner;
        KN_LAUNCH(columns_kernel<LOG>, blocks_for(columns), BLOCK, stream, y, x, columns, p->n,
                  p->inner);
    } else if (p->n <= row_max<T>(BLOCK)) {
        bool wide = aligned(x, 16) && aligned(y, 16);
        return with_any_row<T>(p->n, [&](auto shape) {
            using S = decltype(shape);
            KN_LAUNCH((rows_kernel<S, LOG>), blocks_for_rows(shape, p->outer), BLOCK, stream, y, x,
                      p->outer, (int)p->n, wide);
            return cudaGetLastError();
        });
    } else {
        KN_LAUNCH(long_rows_kernel<LOG>, blocks_for(p->outer, 1), BLOCK, stream, y, x, p->outer,
                  p->n);
    }
    return cudaGetLastError();
}

template <bool LOG, class T>
cudaError_t launch_back(const kn__softmax *p, T *dx, const T *y, const T *g, cudaStream_t stream) {
    if (p->inner > 1) {
        int64_t columns = p->outer * p->inner;
        KN_LAUNCH(columns_back_kernel<LOG>, blocks_for(columns), BLOCK, stream, dx, y, g, columns,
                  p->n, p->inner);
    } else if (p->n <= row_max<T>(BLOCK)) {
        bool wide = aligned(dx, 16) && aligned(y, 16) && aligned(g, 16);
        return with_any_row<T>(p->n, [&](auto shape) {
            using S = decltype(shape);
            KN_LAUNCH((rows_back_kernel<S, LOG>), blocks_for_rows(shape, p->outer), BLOCK, stream,
                      dx, y, g, p->outer, (int)p->n, wide);
            return cudaGetLastError();
        });
    } else {
        KN_LAUNCH(long_rows_back_kernel<LOG>, blocks_for(p->outer, 1), BLOCK, stream, dx, y, g,
                  p->outer, p->n);
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" {

cudaError_t kn__launch_softmax(const kn__softmax *p, void *y, const void *x, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return p->log ? launch<true>(p, (T *)y, (const T *)x, stream)
                      : launch<false>(p, (T *)y, (const T *)x, stream);
    });
}

cudaError_t kn__launch_softmax_back(const kn__softmax *p, void *dx, const void *y, const void *g,
                                    cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return p->log ? launch_back<true>(p, (T *)dx, (const T *)y, (const T *)g, stream)
                      : launch_back<false>(p, (T *)dx, (const T *)y, (const T *)g, stream);
    });
}

}  // extern "C"
