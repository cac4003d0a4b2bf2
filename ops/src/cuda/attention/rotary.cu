// Rotary embedding: a table of cosines and sines by position, made in f64; then a thread an
// element.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) rotary_table_kernel(kn__rotary p) {
    T *table = (T *)p.table;
    for (int64_t i = thread_index(); i < p.steps * p.pairs; i += thread_count()) {
        int64_t t = i / p.pairs, pair = i % p.pairs;
        double rate = pow(p.base, -2 * (double)pair / (double)(2 * p.pairs));
        double angle = (double)(t + p.offset) * rate;
        table[2 * t * p.pairs + pair] = (T)cos(angle);
        table[(2 * t + 1) * p.pairs + pair] = (T)(p.inverse ? -sin(angle) : sin(angle));
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) rotary_kernel(kn__rotary p, T *y, const T *x) {
    const T *table = (const T *)p.table;
    for (int64_t i = thread_index(); i < p.rows * p.width; i += thread_count()) {
        int64_t row = i / p.width, at = i % p.width;
        if (at >= 2 * p.pairs) {
            y[i] = x[i];
            continue;
        }
        bool second = p.adjacent ? at % 2 : at >= p.pairs;
        int64_t pair = p.adjacent ? at / 2 : at % p.pairs, step = p.adjacent ? 1 : p.pairs;
        const T *turn = table + 2 * (row % p.steps) * p.pairs + pair;
        T cosine = turn[0], sine = turn[p.pairs], other = x[second ? i - step : i + step];
        y[i] = second ? other * sine + x[i] * cosine : x[i] * cosine - other * sine;
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_rotary_table(const kn__rotary *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(rotary_table_kernel<T>, blocks_for(p->steps * p->pairs), BLOCK, stream, *p);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_rotary(const kn__rotary *p, void *y, const void *x, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(rotary_kernel<T>, blocks_for(p->rows * p->width), BLOCK, stream, *p, (T *)y,
                  (const T *)x);
        return cudaGetLastError();
    });
}

}  // extern "C"
