// Pooling, one to three dimensions. Padding is never the maximum; averages count it as zeros.
// Forward kernels make one result a thread; backward kernels gather, one gradient a thread, so that
// overlapping windows need no atomics.

#include "cuda/base/stored.cuh"

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

// Where element k of window `o` lies along dimension d. TIGHT: without padding and dilation. A
// stride of 0: windows share the dimension out.
template <bool TIGHT>
__device__ int64_t place(const kn__pooling &p, int d, int64_t o, int k) {
    if (TIGHT) return o * p.stride[d] + k;
    if (!p.stride[d]) return o * p.x[d] / p.y[d] + k;
    return o * p.stride[d] - p.padding[d] + k * p.dilation[d];
}

// How many elements window `o` has along dimension d, in x or not.
template <bool TIGHT>
__device__ int length(const kn__pooling &p, int d, int64_t o) {
    if (TIGHT || p.stride[d]) return (int)p.window[d];
    return (int)(((o + 1) * p.x[d] + p.y[d] - 1) / p.y[d] - o * p.x[d] / p.y[d]);
}

template <bool TIGHT>
__device__ bool is_inside(const kn__pooling &p, int d, int64_t at) {
    return TIGHT || (uint64_t)at < (uint64_t)p.x[d];
}

// Calls body(element of x, its index in the window) for what of a window is inside x.
template <bool TIGHT, class F>
__device__ void each_inside(const kn__pooling &p, const at3 &o, F body) {
    int n0 = length<TIGHT>(p, 0, o.p[0]), n1 = length<TIGHT>(p, 1, o.p[1]),
        n2 = length<TIGHT>(p, 2, o.p[2]);
    for (int a = 0; a < n0; a++)
        for (int b = 0; b < n1; b++)
            for (int c = 0; c < n2; c++) {
                int64_t i0 = place<TIGHT>(p, 0, o.p[0], a), i1 = place<TIGHT>(p, 1, o.p[1], b),
                        i2 = place<TIGHT>(p, 2, o.p[2], c);
                if (is_inside<TIGHT>(p, 0, i0) && is_inside<TIGHT>(p, 1, i1) &&
                    is_inside<TIGHT>(p, 2, i2))
                    body(flat(p.x, o.plane, i0, i1, i2),
                         (int)((a * p.window[1] + b) * p.window[2] + c));
            }
}

// A window without an element of x has the maximum -infinity, and offset 0.
template <bool TIGHT, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_kernel(kn__pooling p, int64_t n, T *y, uint8_t *offset, const T *x) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        computed<T> best = identity_max<computed<T>>();
        int at = -1;
        each_inside<TIGHT>(p, locate(i, p.y), [&](int64_t from, int k) {
            computed<T> v = (computed<T>)x[from];
            bool nan = p.skip_nan ? v == v && best != best : v != v && best == best;
            if (at < 0 || v > best || nan) best = v, at = k;
        });
        y[i] = (T)best;
        if (offset) offset[i] = (uint8_t)max(at, 0);
    }
}

template <bool TIGHT, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_take_kernel(kn__pooling p, int64_t n, T *y, const T *x, const uint8_t *offset) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        at3 o = locate(i, p.y);
        int k = offset[i], wb = (int)p.window[1], wc = (int)p.window[2];
        int64_t i0 = place<TIGHT>(p, 0, o.p[0], k / (wb * wc)),
                i1 = place<TIGHT>(p, 1, o.p[1], k / wc % wb),
                i2 = place<TIGHT>(p, 2, o.p[2], k % wc);
        bool inside =
            is_inside<TIGHT>(p, 0, i0) && is_inside<TIGHT>(p, 1, i1) && is_inside<TIGHT>(p, 2, i2);
        y[i] = inside ? x[flat(p.x, o.plane, i0, i1, i2)] : (T)0.0f;
    }
}

struct span {  // of windows that may cover a position
    int first, last;
};

// The windows along dimension d that may cover position `at` of x.
template <bool TIGHT>
__device__ span covering(const kn__pooling &p, int d, int at) {
    if (!TIGHT && !p.stride[d])
        return span{(int)(at * p.y[d] / p.x[d]), (int)(((at + 1) * p.y[d] - 1) / p.x[d])};
    int stride = (int)p.stride[d], padded = TIGHT ? at : at + (int)p.padding[d];
    int extent = (int)(TIGHT ? p.window[d] : (p.window[d] - 1) * p.dilation[d] + 1);
    int first = padded < extent ? 0 : (padded - extent) / stride + 1;
    return span{first, min(padded / stride, (int)p.y[d] - 1)};
}

// The index along dimension d of position `at` of x in window o; -1: it is between two elements.
template <bool TIGHT>
__device__ int64_t index_in(const kn__pooling &p, int d, int at, int o) {
    int64_t rest = at - place<TIGHT>(p, d, o, 0);
    if (TIGHT || p.dilation[d] == 1) return rest;
    int64_t k = rest / p.dilation[d];
    return k * p.dilation[d] == rest ? k : -1;
}

// Adds up what `value(result index, offset in its window, window)` gives for each window that
// covers a position.
template <bool TIGHT, class T, class F>
__device__ T gather(const kn__pooling &p, const at3 &o, F value) {
    span s[3];
    for (int d = 0; d < 3; d++) s[d] = covering<TIGHT>(p, d, o.p[d]);
    T sum = T(0);
    for (int a = s[0].first; a <= s[0].last; a++)
        for (int b = s[1].first; b <= s[1].last; b++)
            for (int c = s[2].first; c <= s[2].last; c++) {
                int64_t k0 = index_in<TIGHT>(p, 0, o.p[0], a),
                        k1 = index_in<TIGHT>(p, 1, o.p[1], b),
                        k2 = index_in<TIGHT>(p, 2, o.p[2], c);
                if (!TIGHT && (k0 | k1 | k2) < 0) continue;
                sum += value(flat(p.y, o.plane, a, b, c),
                             (int)((k0 * p.window[1] + k1) * p.window[2] + k2), at3{0, {a, b, c}});
            }
    return sum;
}

template <bool TIGHT, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    maxpool_back_kernel(kn__pooling p, int64_t n, T *dx, const T *dy, const uint8_t *offset) {
    using A = computed<T>;
    for (int64_t i = thread_index(); i < n; i += thread_count())
        dx[i] = (T)gather<TIGHT, A>(p, locate(i, p.x), [&](int64_t at, int k, const at3 &) {
            return offset[at] == k ? (A)dy[at] : A(0);
        });
}

// Of the elements of window o: those in x, or in x and its padding. Positions beyond both, where
// the last windows end, never count.
__device__ int counted(const kn__pooling &p, const at3 &o) {
    int n = 1;
    for (int d = 0; d < 3; d++) {
        if (!p.stride[d]) {
            n *= length<false>(p, d, o.p[d]);
            continue;
        }
        int step = (int)p.dilation[d], begin = (int)place<false>(p, d, o.p[d], 0);
        int left = (int)p.x[d] - begin + (p.inside ? 0 : (int)p.padding[d]);
        int before = p.inside ? max(-begin, 0) : 0;
        if (step > 1) left = (left + step - 1) / step, before = (before + step - 1) / step;
        n *= max(min(left, (int)p.window[d]) - before, 0);
    }
    return n;
}

// What the sum over window o is divided by; `whole` where all windows are, and for sums.
template <bool TIGHT, class T>
__device__ T count_of(const kn__pooling &p, const at3 &o, T whole) {
    return TIGHT || p.sums ? whole : (T)max(counted(p, o), 1);
}

// What a gradient of window o is multiplied by; likewise.
template <bool TIGHT, class T>
__device__ T share_of(const kn__pooling &p, const at3 &o, T whole) {
    return TIGHT || p.sums ? whole : (T)(1.0 / (double)max(counted(p, o), 1));
}

template <bool TIGHT, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    avgpool_kernel(kn__pooling p, int64_t n, T *y, const T *x, computed<T> whole) {
    using A = computed<T>;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        at3 o = locate(i, p.y);
        A sum = A(0);
        each_inside<TIGHT>(p, o, [&](int64_t at, int) { sum += (A)x[at]; });
        y[i] = (T)(sum / count_of<TIGHT>(p, o, whole));
    }
}

template <bool TIGHT, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    avgpool_back_kernel(kn__pooling p, int64_t n, T *dx, const T *dy, computed<T> whole) {
    using A = computed<T>;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        A sum = gather<TIGHT, A>(p, locate(i, p.x), [&](int64_t at, int, const at3 &window) {
            return TIGHT ? (A)dy[at] : (A)dy[at] * share_of<TIGHT>(p, window, whole);
        });
        dx[i] = (T)(TIGHT ? whole * sum : sum);
    }
}

int64_t count(const kn__pooling *p, const int64_t (&dim)[3]) {
    return p->planes * dim[0] * dim[1] * dim[2];
}

double whole_count(const kn__pooling *p) {
    return p->sums ? 1.0 : (double)(p->window[0] * p->window[1] * p->window[2]);
}

// body(T{}, TIGHT) for the type and the kind of windows.
template <class F>
cudaError_t with_windows(const kn__pooling *p, F body) {
    return with_stored(p->dtype, [&](auto t) {
        return p->is_tight ? body(t, std::true_type{}) : body(t, std::false_type{});
    });
}

}  // namespace

extern "C" {

cudaError_t kn__launch_maxpool(const kn__pooling *p, void *y, uint8_t *offset, const void *x,
                               cudaStream_t stream) {
    return with_windows(p, [&](auto t, auto tight) {
        using T = decltype(t);
        constexpr bool TIGHT = decltype(tight)::value;
        int64_t n = count(p, p->y);
        KN_LAUNCH(maxpool_kernel<TIGHT>, blocks_for(n), BLOCK, stream, *p, n, (T *)y, offset,
                  (const T *)x);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_maxpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    const uint8_t *offset, cudaStream_t stream) {
    return with_windows(p, [&](auto t, auto tight) {
        using T = decltype(t);
        constexpr bool TIGHT = decltype(tight)::value;
        int64_t n = count(p, p->x);
        KN_LAUNCH(maxpool_back_kernel<TIGHT>, blocks_for(n), BLOCK, stream, *p, n, (T *)dx,
                  (const T *)dy, offset);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_maxpool_take(const kn__pooling *p, void *y, const void *x,
                                    const uint8_t *offset, cudaStream_t stream) {
    return with_windows(p, [&](auto t, auto tight) {
        using T = decltype(t);
        constexpr bool TIGHT = decltype(tight)::value;
        int64_t n = count(p, p->y);
        KN_LAUNCH(maxpool_take_kernel<TIGHT>, blocks_for(n), BLOCK, stream, *p, n, (T *)y,
                  (const T *)x, offset);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_avgpool(const kn__pooling *p, void *y, const void *x, cudaStream_t stream) {
    return with_windows(p, [&](auto t, auto tight) {
        using T = decltype(t);
        constexpr bool TIGHT = decltype(tight)::value;
        int64_t n = count(p, p->y);
        KN_LAUNCH(avgpool_kernel<TIGHT>, blocks_for(n), BLOCK, stream, *p, n, (T *)y, (const T *)x,
                  (computed<T>)whole_count(p));
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_avgpool_back(const kn__pooling *p, void *dx, const void *dy,
                                    cudaStream_t stream) {
    return with_windows(p, [&](auto t, auto tight) {
        using T = decltype(t);
        constexpr bool TIGHT = decltype(tight)::value;
        int64_t n = count(p, p->x);
        KN_LAUNCH(avgpool_back_kernel<TIGHT>, blocks_for(n), BLOCK, stream, *p, n, (T *)dx,
                  (const T *)dy, (computed<T>)(1.0 / whole_count(p)));
        return cudaGetLastError();
    });
}

}  // extern "C"
