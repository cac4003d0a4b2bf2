// Pooling without padding, one to three dimensions. Forward kernels make one result a thread;
// backward kernels gather, one gradient a thread, so that overlapping windows need no atomics.

#include "device.cuh"

namespace {

using namespace kn_dev;

struct at3 {
    int64_t plane;
    int p[3];
};

__device__ at3 locate(int64_t i, const int64_t (&dim)[3]) {
    at3 a;
    for (int d = 2; d >= 0; d--) {
        int64_t outer = i <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)dim[d]) : i / dim[d];
        a.p[d] = (int)(i - outer * dim[d]);
        i = outer;
    }
    a.plane = i;
    return a;
}

__device__ int64_t flat(const int64_t (&dim)[3], int64_t plane, int64_t a, int64_t b, int64_t c) {
    return ((plane * dim[0] + a) * dim[1] + b) * dim[2] + c;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_kernel(kn__pooling p, int64_t n, T *y, uint8_t *offset, const T *x) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        at3 o = locate(i, p.y);
        T best = T(0);
        int at = -1, k = 0;
        for (int a = 0; a < p.window[0]; a++)
            for (int b = 0; b < p.window[1]; b++)
                for (int c = 0; c < p.window[2]; c++, k++) {
                    T v = x[flat(p.x, o.plane, o.p[0] * p.stride[0] + a, o.p[1] * p.stride[1] + b,
                                 o.p[2] * p.stride[2] + c)];
                    if (at < 0 || v > best || (v != v && best == best)) best = v, at = k;
                }
        y[i] = best;
        if (offset) offset[i] = (uint8_t)at;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_take_kernel(kn__pooling p, int64_t n, T *y, const T *x, const uint8_t *offset) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        at3 o = locate(i, p.y);
        int k = offset[i], wb = (int)p.window[1], wc = (int)p.window[2];
        y[i] = x[flat(p.x, o.plane, o.p[0] * p.stride[0] + k / (wb * wc),
                      o.p[1] * p.stride[1] + k / wc % wb, o.p[2] * p.stride[2] + k % wc)];
    }
}

struct span {  // of windows that cover a position
    int first, last;
};

__device__ span covering(int at, int64_t window, int64_t stride, int64_t n) {
    int s = (int)stride, w = (int)window;
    int first = at < w ? 0 : (at - w) / s + 1, last = min(at / s, (int)n - 1);
    return span{first, last};
}

// Adds up what `value(result index, offset in its window)` gives for each window that covers a
// position.
template <class T, class F>
__device__ T gather(const kn__pooling &p, const at3 &o, F value) {
    span s[3];
    for (int d = 0; d < 3; d++) s[d] = covering(o.p[d], p.window[d], p.stride[d], p.y[d]);
    T sum = T(0);
    for (int a = s[0].first; a <= s[0].last; a++)
        for (int b = s[1].first; b <= s[1].last; b++)
            for (int c = s[2].first; c <= s[2].last; c++) {
                int64_t k = ((o.p[0] - a * p.stride[0]) * p.window[1] + o.p[1] - b * p.stride[1]) *
                                p.window[2] +
                            o.p[2] - c * p.stride[2];
                sum += value(flat(p.y, o.plane, a, b, c), (int)k);
            }
    return sum;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_back_kernel(kn__pooling p, int64_t n, T *dx, const T *dy, const uint8_t *offset) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        dx[i] = gather<T>(p, locate(i, p.x),
                          [&](int64_t at, int k) { return offset[at] == k ? dy[at] : T(0); });
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    avgpool_kernel(kn__pooling p, int64_t n, T *y, const T *x, T scale) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        at3 o = locate(i, p.y);
        T sum = T(0);
        for (int a = 0; a < p.window[0]; a++)
            for (int b = 0; b < p.window[1]; b++)
                for (int c = 0; c < p.window[2]; c++)
                    sum += x[flat(p.x, o.plane, o.p[0] * p.stride[0] + a, o.p[1] * p.stride[1] + b,
                                  o.p[2] * p.stride[2] + c)];
        y[i] = sum * scale;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    avgpool_back_kernel(kn__pooling p, int64_t n, T *dx, const T *dy, T scale) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        dx[i] = scale * gather<T>(p, locate(i, p.x), [&](int64_t at, int) { return dy[at]; });
}

int64_t count(const kn__pooling *p, const int64_t (&dim)[3]) {
    return p->planes * dim[0] * dim[1] * dim[2];
}

double share(const kn__pooling *p) {
    return 1.0 / (double)(p->window[0] * p->window[1] * p->window[2]);
}

}  // namespace

extern "C" {

cudaError_t kn__launch_maxpool(const kn__pooling *p, void *y, uint8_t *offset, const void *x,
                               cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = count(p, p->y);
        KN_LAUNCH(maxpool_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)y, offset,
                  (const T *)x);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_maxpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    const uint8_t *offset, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = count(p, p->x);
        KN_LAUNCH(maxpool_back_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)dx, (const T *)dy,
                  offset);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_maxpool_take(const kn__pooling *p, void *y, const void *x,
                                    const uint8_t *offset, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = count(p, p->y);
        KN_LAUNCH(maxpool_take_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)y, (const T *)x,
                  offset);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_avgpool(const kn__pooling *p, void *y, const void *x, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = count(p, p->y);
        KN_LAUNCH(avgpool_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)y, (const T *)x,
                  (T)share(p));
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_avgpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = count(p, p->x);
        KN_LAUNCH(avgpool_back_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)dx, (const T *)dy,
                  (T)share(p));
        return cudaGetLastError();
    });
}

}  // extern "C"
