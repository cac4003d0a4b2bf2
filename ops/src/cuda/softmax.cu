// Softmax and logsoftmax along one axis, and their gradients. Dense rows are made by a team of
// threads, a warp where rows are short; along another axis each thread makes one column.

#include "device.cuh"

namespace {

using namespace kn_dev;

enum { ROW_WARP_MAX = 1024 };  // longer rows get a whole block

template <int TEAM, bool LOG, class T>
__global__ void __launch_bounds__(BLOCK) rows_kernel(T *y, const T *x, int64_t rows, int64_t n) {
    int lane = threadIdx.x % TEAM;
    for (int64_t r = thread_index() / TEAM; r < rows; r += thread_count() / TEAM) {
        const T *in = x + r * n;
        T *out = y + r * n;
        T top = op_max::identity<T>(), sum = T(0);
        for (int64_t i = lane; i < n; i += TEAM) top = op_max::join(top, in[i]);
        top = team_join<op_max, TEAM>(top);
        for (int64_t i = lane; i < n; i += TEAM) sum += exp_(in[i] - top);
        sum = team_join<op_sum, TEAM>(sum);
        T log_sum = log_(sum), scale = T(1) / sum;
        for (int64_t i = lane; i < n; i += TEAM)
            out[i] = LOG ? (in[i] - top) - log_sum : exp_(in[i] - top) * scale;
    }
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK)
    columns_kernel(T *y, const T *x, int64_t columns, int64_t n, int64_t inner) {
    for (int64_t c = thread_index(); c < columns; c += thread_count()) {
        int64_t at = c / inner * n * inner + c % inner;
        const T *in = x + at;
        T *out = y + at;
        T top = op_max::identity<T>(), sum = T(0);
        for (int64_t i = 0; i < n; i++) top = op_max::join(top, in[i * inner]);
        for (int64_t i = 0; i < n; i++) sum += exp_(in[i * inner] - top);
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

template <int TEAM, bool LOG, class T>
__global__ void __launch_bounds__(BLOCK)
    rows_back_kernel(T *dx, const T *y, const T *g, int64_t rows, int64_t n) {
    int lane = threadIdx.x % TEAM;
    for (int64_t r = thread_index() / TEAM; r < rows; r += thread_count() / TEAM) {
        int64_t at = r * n;
        T sum = T(0);
        for (int64_t i = lane; i < n; i += TEAM) sum += back_term<LOG>(y[at + i], g[at + i]);
        sum = team_join<op_sum, TEAM>(sum);
        for (int64_t i = lane; i < n; i += TEAM)
            dx[at + i] = back_of<LOG>(y[at + i], g[at + i], sum);
    }
}

template <bool LOG, class T>
__global__ void __launch_bounds__(BLOCK)
    columns_back_kernel(T *dx, const T *y, const T *g, int64_t columns, int64_t n, int64_t inner) {
    for (int64_t c = thread_index(); c < columns; c += thread_count()) {
        int64_t at = c / inner * n * inner + c % inner;
        T sum = T(0);
        for (int64_t i = 0; i < n; i++) sum += back_term<LOG>(y[at + i * inner], g[at + i * inner]);
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
    } else if (p->n <= ROW_WARP_MAX) {
        KN_LAUNCH((rows_kernel<32, LOG>), blocks_for(p->outer * 32), BLOCK, stream, y, x, p->outer,
                  p->n);
    } else {
        KN_LAUNCH((rows_kernel<BLOCK, LOG>), blocks_for(p->outer, 1), BLOCK, stream, y, x, p->outer,
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
    } else if (p->n <= ROW_WARP_MAX) {
        KN_LAUNCH((rows_back_kernel<32, LOG>), blocks_for(p->outer * 32), BLOCK, stream, dx, y, g,
                  p->outer, p->n);
    } else {
        KN_LAUNCH((rows_back_kernel<BLOCK, LOG>), blocks_for(p->outer, 1), BLOCK, stream, dx, y, g,
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
