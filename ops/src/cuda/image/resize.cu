// Resizing images. A small kernel tells for each axis what each element of the result reads, and
// which elements read each of x; so the others divide no 64-bit numbers. Forward: a thread makes
// neighbours of a row. Back: it adds up what reads an element of x, in one order.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

struct range {
    int64_t first, end;
};

// Axis after axis.
struct tables {
    const kn__taps *source;  // of the result's elements
    const range *readers;    // of x's elements
};

// The first result in `all` whose source `at` (by_next: `next`) is at least i. Both never decrease
// from one result to the following one, so halving finds it.
__device__ int64_t first_reader(const kn__resize &r, int d, range all, bool by_next, int64_t i) {
    while (all.first < all.end) {
        int64_t middle = all.first + (all.end - all.first) / 2;
        kn__taps s = kn__resize_source(&r, d, middle);
        if ((by_next ? s.next : s.at) >= i)
            all.end = middle;
        else
            all.first = middle + 1;
    }
    return all.first;
}

// readers: NULL forward.
__global__ void __launch_bounds__(BLOCK, 1)
    resize_table_kernel(const __grid_constant__ kn__resize r, kn__taps *source, range *readers) {
    for (int d = 0; d < 3; d++) {
        for (int64_t i = thread_index(); i < r.out[d]; i += thread_count())
            source[i] = kn__resize_source(&r, d, i);
        source += r.out[d];
        if (!readers) continue;
        for (int64_t i = thread_index(); i < r.in[d]; i += thread_count()) {
            range e;
            kn__resize_readers(&e.first, &e.end, &r, d, i);
            e.first = first_reader(r, d, e, true, i);
            e.end = first_reader(r, d, e, false, i + 1);
            readers[i] = e;
        }
        readers += r.in[d];
    }
}

template <class I>
struct place {
    I plane, at[3];
};

template <class I>
__device__ place<I> place_of(I i, I d0, I d1, I d2) {
    place<I> p;
    I rest = i / d2;
    p.at[2] = i - rest * d2, i = rest, rest = i / d1;
    p.at[1] = i - rest * d1, i = rest, rest = i / d0;
    p.at[0] = i - rest * d0;
    p.plane = rest;
    return p;
}

// V divides the result's rows.
template <class I, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    resize_kernel(const __grid_constant__ kn__resize r, T *y, const T *x, tables t, int64_t n) {
    for (int64_t i = thread_index(); i < n / V; i += thread_count()) {
        place<I> p = place_of((I)i, (I)r.out[0], (I)r.out[1], (I)(r.out[2] / V));
        kn__taps a = t.source[p.at[0]], b = t.source[r.out[0] + (int64_t)p.at[1]];
        const kn__taps *columns = t.source + r.out[0] + r.out[1] + p.at[2] * V;
        const T *plane = x + (int64_t)p.plane * r.in[0] * r.in[1] * r.in[2];
        pack<T, V> sum;
#pragma unroll
        for (int v = 0; v < V; v++) {
            kn__taps c = columns[v];
            sum.v[v] = T(0);
            for (int k = 0; k < (!r.is_linear ? 1 : a.weight == 0 ? 4 : 8); k++) {
                double w = (k & 4 ? a.weight : 1 - a.weight) * (k & 2 ? b.weight : 1 - b.weight) *
                           (k & 1 ? c.weight : 1 - c.weight);
                if (k && w == 0) continue;
                int64_t row = (k & 4 ? a.next : a.at) * r.in[1] + (k & 2 ? b.next : b.at);
                sum.v[v] += (T)w * plane[row * r.in[2] + (k & 1 ? c.next : c.at)];
            }
        }
        *reinterpret_cast<pack<T, V> *>(y + i * V) = sum;
    }
}

// By how much what reads `s` reads element i.
__device__ double weight_of(const kn__taps &s, int64_t i) {
    double w = 0;
    if (s.at == i) w += 1 - s.weight;
    if (s.next == i) w += s.weight;
    return w;
}

template <class I, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    resize_back_kernel(const __grid_constant__ kn__resize r, T *dx, const T *g, tables t,
                       int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        place<I> p = place_of((I)i, (I)r.in[0], (I)r.in[1], (I)r.in[2]);
        const kn__taps *rows = t.source + r.out[0], *columns = rows + r.out[1];
        const range *readers = t.readers;
        range ra = readers[p.at[0]], rb = readers[r.in[0] + p.at[1]];
        range rc = readers[r.in[0] + r.in[1] + p.at[2]];
        const T *plane = g + (int64_t)p.plane * r.out[0] * r.out[1] * r.out[2];
        T sum = T(0);
        for (int64_t a = ra.first; a < ra.end; a++) {
            double wa = weight_of(t.source[a], p.at[0]);
            for (int64_t b = rb.first; b < rb.end && wa != 0; b++) {
                double wb = wa * weight_of(rows[b], p.at[1]);
                const T *row = plane + (a * r.out[1] + b) * r.out[2];
                for (int64_t c = rc.first; c < rc.end && wb != 0; c++) {
                    double w = wb * weight_of(columns[c], p.at[2]);
                    if (w != 0) sum += (T)w * row[c];
                }
            }
        }
        dx[i] = sum;
    }
}

template <class I, class T>
void launch(void *y, const void *x, int64_t n, const kn__resize *r, bool back, tables t,
            cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    if (back)
        KN_LAUNCH(resize_back_kernel<I>, blocks_for(n), BLOCK, stream, *r, (T *)y, (const T *)x, t,
                  n);
    else if (r->out[2] % V == 0 && aligned(y, 16))
        KN_LAUNCH((resize_kernel<I, V>), blocks_for(n / V), BLOCK, stream, *r, (T *)y, (const T *)x,
                  t, n);
    else
        KN_LAUNCH((resize_kernel<I, 1>), blocks_for(n), BLOCK, stream, *r, (T *)y, (const T *)x, t,
                  n);
}

int64_t sum_of_axes(const int64_t (&dim)[3]) { return dim[0] + dim[1] + dim[2]; }

}  // namespace

extern "C" {

size_t kn__resize_bytes(const kn__resize *r, bool back) {
    return (size_t)sum_of_axes(r->out) * sizeof(kn__taps) +
           (back ? (size_t)sum_of_axes(r->in) * sizeof(range) : 0);
}

cudaError_t kn__launch_resize(void *y, const void *x, kn_dtype dtype, int64_t planes,
                              const kn__resize *r, bool back, void *work, cudaStream_t stream) {
    kn__taps *source = (kn__taps *)work;
    range *readers = back ? (range *)(source + sum_of_axes(r->out)) : NULL;
    int64_t longest = 1;
    for (int d = 0; d < 3; d++) longest = max(longest, max(r->in[d], r->out[d]));
    KN_LAUNCH(resize_table_kernel, blocks_for(longest), BLOCK, stream, *r, source, readers);
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        const int64_t *dim = back ? r->in : r->out;
        int64_t n = planes * dim[0] * dim[1] * dim[2];
        if (n <= KN_INDEX_MAX)
            launch<uint32_t, T>(y, x, n, r, back, {source, readers}, stream);
        else
            launch<uint64_t, T>(y, x, n, r, back, {source, readers}, stream);
        return cudaGetLastError();
    });
}

}  // extern "C"
