// Normalization of rows: layernorm, rmsnorm, groupnorm. x is [outer, groups, channels, inner], a
// row one (outer, group). Rows that fit a team's registers and have a weight for each element are
// read once; others are read again for each pass. The weights' gradients are batchnorm.cu's sums.

#include "cuda/base/row.cuh"

namespace {

using namespace kn_dev;

// The sum over a row of what `term` makes of its elements; slots past the end count nothing.
template <class S, class T, class F>
__device__ T row_sum(int n, F term) {
    T sum = T(0);
#pragma unroll
    for (int k = 0; k < S::HELD; k++) sum += element_of_row<S>(k) < n ? term(k) : T(0);
    return team_join<op_sum, S::TEAM>(sum);
}

template <class T>
__device__ T rstd_of(T squares, int64_t n, double eps) {
    return (T)(1 / sqrt((double)squares / (double)n + eps));
}

template <class S, class T>
__device__ void write_statistics(const kn__norm &p, int64_t r, T mean, T rstd) {
    if (threadIdx.x % S::TEAM != 0) return;
    if (p.mean) ((T *)p.mean)[r] = mean;
    if (p.rstd) ((T *)p.rstd)[r] = rstd;
}

template <class S, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    rownorm_kernel(kn__norm p, T *y, const T *x, int64_t rows, int n, bool wide) {
    using C = computed<T>;
    for (int64_t r = thread_index() / S::TEAM; r < rows; r += thread_count() / S::TEAM) {
        C v[S::HELD], w[S::HELD];
        read_row<S>(v, x + r * n, n, wide, C(0));
        C mean = p.centred ? row_sum<S, C>(n, [&](int k) { return v[k]; }) / (C)n : C(0);
#pragma unroll
        for (int k = 0; k < S::HELD; k++) v[k] -= mean;
        C squares = row_sum<S, C>(n, [&](int k) { return v[k] * v[k]; });
        C rstd = rstd_of(squares, n, p.eps);
        write_statistics<S>(p, r, mean, rstd);
        if (!y) continue;
#pragma unroll
        for (int k = 0; k < S::HELD; k++) v[k] *= rstd;
        if (p.weight) {
            read_row<S>(w, (const C *)p.weight, n, wide, C(0));
#pragma unroll
            for (int k = 0; k < S::HELD; k++) v[k] *= w[k];
        }
        if (p.bias) {
            read_row<S>(w, (const C *)p.bias, n, wide, C(0));
#pragma unroll
            for (int k = 0; k < S::HELD; k++) v[k] += w[k];
        }
        write_row<S>(y + r * n, v, n, wide);
    }
}

// The weight or bias of element i of row r.
template <class T>
__device__ T weight_at(const kn__norm &p, const void *weights, int64_t r, int64_t i, T otherwise) {
    if (!weights) return otherwise;
    return ((const T *)weights)[r % p.groups * p.channels + i / p.inner];
}

// A block a row.
struct whole_block {
    static constexpr int TEAM = BLOCK;
};

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    long_norm_kernel(kn__norm p, T *y, const T *x, int64_t rows, int64_t n) {
    using C = computed<T>;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *in = x + r * n;
        C sum = C(0), squares = C(0);
        if (p.centred)
            for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += (C)in[i];
        C mean = team_join<op_sum, BLOCK>(sum) / (C)n;
        for (int64_t i = threadIdx.x; i < n; i += BLOCK)
            squares += ((C)in[i] - mean) * ((C)in[i] - mean);
        squares = team_join<op_sum, BLOCK>(squares);
        C rstd = rstd_of(squares, n, p.eps);
        write_statistics<whole_block>(p, r, mean, rstd);
        if (!y) continue;
        for (int64_t i = threadIdx.x; i < n; i += BLOCK)
            y[r * n + i] = (T)(((C)in[i] - mean) * rstd * weight_at(p, p.weight, r, i, C(1)) +
                               weight_at(p, p.bias, r, i, C(0)));
    }
}

// dx = rstd·(g·w - Σ g·w/n - x̂·Σ g·w·x̂/n)
template <class S, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    rownorm_back_kernel(kn__norm p, T *dx, const T *g, const T *x, int64_t rows, int n, bool wide) {
    using C = computed<T>;
    for (int64_t r = thread_index() / S::TEAM; r < rows; r += thread_count() / S::TEAM) {
        C v[S::HELD], d[S::HELD];
        C mean = p.centred ? ((const C *)p.mean)[r] : C(0), rstd = ((const C *)p.rstd)[r];
        read_row<S>(d, g + r * n, n, wide, C(0));
        if (p.weight) {
            read_row<S>(v, (const C *)p.weight, n, wide, C(0));
#pragma unroll
            for (int k = 0; k < S::HELD; k++) d[k] *= v[k];
        }
        read_row<S>(v, x + r * n, n, wide, C(0));
#pragma unroll
        for (int k = 0; k < S::HELD; k++) v[k] = (v[k] - mean) * rstd;
        C sum = p.centred ? row_sum<S, C>(n, [&](int k) { return d[k]; }) / (C)n : C(0);
        C dot = row_sum<S, C>(n, [&](int k) { return d[k] * v[k]; }) / (C)n;
#pragma unroll
        for (int k = 0; k < S::HELD; k++) d[k] = (d[k] - sum - v[k] * dot) * rstd;
        write_row<S>(dx + r * n, d, n, wide);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    long_norm_back_kernel(kn__norm p, T *dx, const T *g, const T *x, int64_t rows, int64_t n) {
    using C = computed<T>;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *in = x + r * n, *d = g + r * n;
        C mean = p.centred ? ((const C *)p.mean)[r] : C(0), rstd = ((const C *)p.rstd)[r];
        C sum = C(0), dot = C(0);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
            C gw = (C)d[i] * weight_at(p, p.weight, r, i, C(1));
            sum += gw;
            dot += gw * (((C)in[i] - mean) * rstd);
        }
        sum = team_join<op_sum, BLOCK>(sum) / (C)n;
        dot = team_join<op_sum, BLOCK>(dot) / (C)n;
        if (!p.centred) sum = C(0);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
            C gw = (C)d[i] * weight_at(p, p.weight, r, i, C(1));
            dx[r * n + i] = (T)((gw - sum - ((C)in[i] - mean) * rstd * dot) * rstd);
        }
    }
}

template <class T>
bool is_held(const kn__norm *p) {
    return p->inner == 1 && p->groups == 1 && p->channels <= row_max<T>(BLOCK);
}

bool is_wide(const kn__norm *p) {
    return aligned(p->x, 16) && aligned(p->y, 16) && aligned(p->g, 16) && aligned(p->weight, 16) &&
           aligned(p->bias, 16);
}

}  // namespace

extern "C" {

cudaError_t kn__launch_rownorm(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t rows = p->outer * p->groups, n = p->channels * p->inner;
        T *y = (T *)p->y;
        const T *x = (const T *)p->x;
        if (is_held<T>(p)) {
            return with_row<T>(n, [&](auto shape) {
                KN_LAUNCH(rownorm_kernel<decltype(shape)>, blocks_for_rows(shape, rows), BLOCK,
                          stream, *p, y, x, rows, (int)n,
                          is_wide(p) && n % decltype(shape)::V == 0);
                return cudaGetLastError();
            });
        }
        KN_LAUNCH(long_norm_kernel, blocks_for(rows, 1), BLOCK, stream, *p, y, x, rows, n);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_rownorm_back(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t rows = p->outer * p->groups, n = p->channels * p->inner;
        T *dx = (T *)p->y;
        const T *x = (const T *)p->x, *g = (const T *)p->g;
        if (is_held<T>(p)) {
            return with_row<T>(n, [&](auto shape) {
                KN_LAUNCH(rownorm_back_kernel<decltype(shape)>, blocks_for_rows(shape, rows), BLOCK,
                          stream, *p, dx, g, x, rows, (int)n,
                          is_wide(p) && n % decltype(shape)::V == 0);
                return cudaGetLastError();
            });
        }
        KN_LAUNCH(long_norm_back_kernel, blocks_for(rows, 1), BLOCK, stream, *p, dx, g, x, rows, n);
        return cudaGetLastError();
    });
}

}  // extern "C"
