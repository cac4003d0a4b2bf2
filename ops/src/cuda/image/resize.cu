// Resizing images: a thread an element of the result. Back, too: it adds up what reads it, in one
// order.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

struct place {
    int64_t plane, at[3];
};

__device__ place place_of(int64_t i, const int64_t (&dim)[3]) {
    place p;
    for (int d = 2; d >= 0; d--, i /= dim[d + 1]) p.at[d] = i % dim[d];
    p.plane = i;
    return p;
}

__device__ int64_t flat(const int64_t (&dim)[3], int64_t plane, int64_t a, int64_t b, int64_t c) {
    return ((plane * dim[0] + a) * dim[1] + b) * dim[2] + c;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    resize_kernel(const __grid_constant__ kn__resize r, T *y, const T *x, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        place p = place_of(i, r.out);
        kn__source s[3];
        for (int d = 0; d < 3; d++) s[d] = kn__resize_source(&r, d, p.at[d]);
        T sum = T(0);
        for (int k = 0; k < (r.is_linear ? 8 : 1); k++) {
            double w = (k & 4 ? s[0].weight : 1 - s[0].weight) *
                       (k & 2 ? s[1].weight : 1 - s[1].weight) *
                       (k & 1 ? s[2].weight : 1 - s[2].weight);
            if (k && w == 0) continue;
            sum += (T)w * x[flat(r.in, p.plane, k & 4 ? s[0].next : s[0].at,
                                 k & 2 ? s[1].next : s[1].at, k & 1 ? s[2].next : s[2].at)];
        }
        y[i] = sum;
    }
}

// By how much element `at` of the result's axis reads element i.
__device__ double weight_of(const kn__resize &r, int d, int64_t at, int64_t i) {
    kn__source s = kn__resize_source(&r, d, at);
    double w = 0;
    if (s.at == i) w += 1 - s.weight;
    if (s.next == i) w += s.weight;
    return w;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    resize_back_kernel(const __grid_constant__ kn__resize r, T *dx, const T *g, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        place p = place_of(i, r.in);
        int64_t first[3], end[3];
        for (int d = 0; d < 3; d++) kn__resize_readers(&first[d], &end[d], &r, d, p.at[d]);
        T sum = T(0);
        for (int64_t a = first[0]; a < end[0]; a++) {
            double wa = weight_of(r, 0, a, p.at[0]);
            for (int64_t b = first[1]; b < end[1] && wa != 0; b++) {
                double wb = wa * weight_of(r, 1, b, p.at[1]);
                for (int64_t c = first[2]; c < end[2] && wb != 0; c++) {
                    double w = wb * weight_of(r, 2, c, p.at[2]);
                    if (w != 0) sum += (T)w * g[flat(r.out, p.plane, a, b, c)];
                }
            }
        }
        dx[i] = sum;
    }
}

}  // namespace

extern "C" cudaError_t kn__launch_resize(void *y, const void *x, kn_dtype dtype, int64_t planes,
                                         const kn__resize *r, bool back, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        const int64_t *dim = back ? r->in : r->out;
        int64_t n = planes * dim[0] * dim[1] * dim[2];
        if (back)
            KN_LAUNCH(resize_back_kernel, blocks_for(n), BLOCK, stream, *r, (T *)y, (const T *)x,
                      n);
        else
            KN_LAUNCH(resize_kernel, blocks_for(n), BLOCK, stream, *r, (T *)y, (const T *)x, n);
        return cudaGetLastError();
    });
}
