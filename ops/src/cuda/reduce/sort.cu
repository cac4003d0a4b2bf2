// Sorting along an axis, stably, by keys in the elements' order. And elements by their index.

#include "cuda/base/radix.cuh"
#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

// Keys in the elements' order; NaN above all, the zeros alike.
__device__ uint64_t key_of(double x) {
    if (x != x) return UINT64_MAX;
    x += 0.0;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}
__device__ uint32_t key_of(float x) {
    if (x != x) return UINT32_MAX;
    x += 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}
__device__ uint32_t key_of(__half x) { return key_of(__half2float(x)); }
__device__ uint32_t key_of(__nv_bfloat16 x) { return key_of(__bfloat162float(x)); }
__device__ uint64_t key_of(int64_t x) { return (uint64_t)x ^ (uint64_t)1 << 63; }
__device__ uint32_t key_of(int32_t x) { return (uint32_t)x ^ (uint32_t)1 << 31; }
__device__ uint32_t key_of(uint8_t x) { return x; }

// The bits in which keys differ: 16-bit floats are keyed as f32, whose last bits follow.
template <class T>
constexpr int first_bit = 0;
template <>
constexpr int first_bit<__half> = 8;
template <>
constexpr int first_bit<__nv_bfloat16> = 16;
template <class T>
constexpr int end_bit = sizeof(T) == 8   ? 64
                        : sizeof(T) == 1 ? 8
                                         : 32;

// Line l is column l % inner of plane l / inner.
__device__ int64_t line_start(const kn__lines &lines, int64_t line, int64_t n) {
    int64_t outer = line / lines.inner;
    return outer * n * lines.inner + (line - outer * lines.inner);
}

template <class T>
struct elements {
    const T *x;
    kn__lines lines;
    bool descending;
    __device__ auto key(int64_t line, int64_t i) const {
        auto key = key_of(x[line_start(lines, line, lines.n) + i * lines.inner]);
        return descending ? (decltype(key))~key : key;
    }
    __device__ int64_t place(int64_t, int64_t i) const { return i; }
};

// Stores the first k items of each line.
template <class T>
struct first_items {
    T *values;
    int64_t *places;
    const T *x;
    kn__lines lines;
    int64_t k;
    template <class K>
    __device__ void operator()(int64_t line, int64_t i, K, K place) const {
        if (i >= k) return;
        int64_t to = line_start(lines, line, k) + i * lines.inner, from = (int64_t)place;
        if (places) places[to] = from;
        if (values) values[to] = x[line_start(lines, line, lines.n) + from * lines.inner];
    }
};

template <class T, class K>
__global__ void __launch_bounds__(BLOCK, 1)
    store_kernel(first_items<T> sink, key_array<K> sorted, int64_t n_lines) {
    for (int64_t e = thread_index(); e < n_lines * sink.k; e += thread_count()) {
        int64_t line = e / sink.k, i = e - line * sink.k;
        sink(line, i, sorted.key(line, i), (K)sorted.place(line, i));
    }
}

// What places and keys of a line take.
template <class T>
bool is_wide_line(int64_t n) {
    return sizeof(T) == 8 || n > KN_INDEX_MAX;
}

template <class T, class K>
cudaError_t launch_sort(const kn__sort_args *p, cudaStream_t stream) {
    const kn__lines &lines = p->lines;
    int64_t n_lines = lines.outer * lines.inner;
    elements<T> source = {(const T *)p->in, lines, p->descending};
    first_items<T> sink = {(T *)p->values, p->places, (const T *)p->in, lines, p->k};
    if (!p->work) {
        launch_sort_lines<K>(source, sink, n_lines, lines.n, first_bit<T>, end_bit<T>, stream);
        return cudaGetLastError();
    }
    key_array<K> sorted;
    cudaError_t error =
        launch_radix(&sorted, source, n_lines, lines.n, first_bit<T>, end_bit<T>, p->work, stream);
    if (error != cudaSuccess) return error;
    KN_LAUNCH((store_kernel<T, K>), blocks_for(n_lines * p->k), BLOCK, stream, sink, sorted,
              n_lines);
    return cudaGetLastError();
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    along_kernel(T *to, const T *from, const int64_t *index, kn__lines lines, int64_t k, bool put) {
    int64_t n = lines.outer * k * lines.inner;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t outer = i / lines.inner / k;
        int64_t large = (outer * lines.n + index[i]) * lines.inner + i % lines.inner;
        if (put)
            to[large] = from[i];
        else
            to[i] = from[large];
    }
}

template <class T>
cudaError_t launch_along(void *to, const void *from, const int64_t *index, kn__lines lines,
                         int64_t k, bool put, cudaStream_t stream) {
    KN_LAUNCH(along_kernel<T>, blocks_for(lines.outer * k * lines.inner), BLOCK, stream, (T *)to,
              (const T *)from, index, lines, k, put);
    return cudaGetLastError();
}

}  // namespace

extern "C" {

size_t kn__sort_bytes(const kn__sort_args *p) {
    size_t bytes = 0;
    if (p->lines.n <= LINE_KEYS_MAX) return 0;
    with_any(p->dtype, [&](auto t) {
        size_t key_bytes = is_wide_line<decltype(t)>(p->lines.n) ? 8 : 4;
        bytes = radix_bytes(p->lines.outer * p->lines.inner, p->lines.n, key_bytes);
        return cudaSuccess;
    });
    return bytes;
}

cudaError_t kn__launch_sort(const kn__sort_args *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        return is_wide_line<T>(p->lines.n) ? launch_sort<T, uint64_t>(p, stream)
                                           : launch_sort<T, uint32_t>(p, stream);
    });
}

cudaError_t kn__launch_along(void *to, const void *from, const int64_t *index, size_t element_bytes,
                             kn__lines lines, int64_t k, bool put, cudaStream_t stream) {
    switch (element_bytes) {
        case 1:
            return launch_along<uint8_t>(to, from, index, lines, k, put, stream);
        case 2:
            return launch_along<uint16_t>(to, from, index, lines, k, put, stream);
        case 4:
            return launch_along<uint32_t>(to, from, index, lines, k, put, stream);
        default:
            return launch_along<uint64_t>(to, from, index, lines, k, put, stream);
    }
}

}  // extern "C"
