// Places in sorted lines, and in the ranges of a histogram: a thread a value.

#include "cuda/reduce/elements.cuh"
#include "ranges.h"

namespace {

using namespace kn_dev;

// Whether element x comes before the place of v: NaN counts as largest.
template <class A>
__device__ bool is_before(A x, A v, bool right) {
    bool x_is_nan = x != x, v_is_nan = v != v;
    bool below = x < v || (v_is_nan && !x_is_nan);
    return below || (right && (x == v || (x_is_nan && v_is_nan)));
}

template <class T>
__global__ void search_kernel(kn__search_args p) {
    const T *sorted = (const T *)p.sorted, *values = (const T *)p.values;
    for (int64_t i = thread_index(); i < p.count; i += thread_count()) {
        const T *line = sorted + i / p.each * p.n;
        const auto v = load_as(values[i]);
        int64_t from = 0, to = p.n;
        while (from < to) {
            int64_t half = from + (to - from) / 2;
            if (is_before(load_as(line[half]), v, p.right))
                from = half + 1;
            else
                to = half;
        }
        p.places[i] = from;
    }
}

template <class T>
__global__ void bin_kernel(kn__ranges ranges, const T *x, int64_t *places, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        places[i] = kn__range_of(&ranges, (double)x[i]);
}

}  // namespace

extern "C" cudaError_t kn__launch_bin(double lo, double hi, int64_t n_ranges, bool is_f32,
                                      const void *x, int64_t *places, int64_t n,
                                      cudaStream_t stream) {
    kn__ranges ranges = kn__ranges_of(lo, hi, n_ranges);
    if (is_f32)
        KN_LAUNCH(bin_kernel<float>, blocks_for(n), BLOCK, stream, ranges, (const float *)x, places,
                  n);
    else
        KN_LAUNCH(bin_kernel<double>, blocks_for(n), BLOCK, stream, ranges, (const double *)x,
                  places, n);
    return cudaGetLastError();
}

extern "C" cudaError_t kn__launch_search(const kn__search_args *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(search_kernel<T>, blocks_for(p->count), BLOCK, stream, *p);
        return cudaGetLastError();
    });
}
