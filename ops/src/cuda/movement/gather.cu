// Elements at indices along an axis: reading, writing, adding. An index out of range reads as
// `missing` and is not written to. Values for one place are added by one thread, in their order;
// of those put there, the last one counts.

#include "cuda/base/radix.cuh"
#include "cuda/movement/sums.cuh"

namespace {

using namespace kn_dev;

// Index i, or -1 for one out of range.
__device__ int64_t index_at(const void *index, int dtype, int64_t i, int64_t size) {
    int64_t v = dtype == KN_I64   ? ((const int64_t *)index)[i]
                : dtype == KN_I32 ? ((const int32_t *)index)[i]
                                  : ((const uint8_t *)index)[i];
    v += v < 0 ? size : 0;
    return v >= 0 && v < size ? v : -1;
}

template <class I, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    gather_kernel(E *y, const E *x, E missing, int64_t n, kn__indices p) {
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        I inner = (I)p.inner, count = (I)p.count;
        I row = (I)e / inner, i = (I)e - row * inner, outer = row / count;
        int64_t place = p.rows ? (int64_t)(row - outer * count) : e;
        int64_t v = index_at(p.index, p.dtype, place, p.size);
        y[e] = v < 0 ? missing : x[((int64_t)outer * p.size + v) * p.inner + (int64_t)i];
    }
}

template <class E>
cudaError_t launch_gather(void *y, const void *x, E missing, const kn__indices *p,
                          cudaStream_t stream) {
    int64_t n = p->outer * p->count * p->inner;
    if (n <= KN_INDEX_MAX)
        KN_LAUNCH(gather_kernel<uint32_t>, blocks_for(n), BLOCK, stream, (E *)y, (const E *)x,
                  missing, n, *p);
    else
        KN_LAUNCH(gather_kernel<uint64_t>, blocks_for(n), BLOCK, stream, (E *)y, (const E *)x,
                  missing, n, *p);
    return cudaGetLastError();
}

// The value put at a place: in place of the old one, or added to it.
template <bool ADD, class E>
__device__ void put(E *to, const E *y, int64_t at) {
    E value = y ? y[at] : E();
    if constexpr (ADD)
        *to = add(*to, value);
    else
        *to = value;
}

// A thread for each column beside the axis.
template <bool ADD, class E>
__global__ void __launch_bounds__(BLOCK, 1) scatter_kernel(E *out, const E *y, kn__indices p) {
    for (int64_t c = thread_index(); c < p.outer * p.inner; c += thread_count()) {
        int64_t outer = c / p.inner, i = c - outer * p.inner;
        for (int64_t k = 0; k < p.count; k++) {
            int64_t at = (outer * p.count + k) * p.inner + i;
            int64_t v = index_at(p.index, p.dtype, p.rows ? k : at, p.size);
            if (v >= 0) put<ADD>(&out[(outer * p.size + v) * p.inner + i], y, at);
        }
    }
}

// What value e is for: the slice that an index names, or the element of the result; -1 for an index
// out of range.
__device__ int64_t target_of(const kn__indices &p, int64_t e) {
    int64_t v = index_at(p.index, p.dtype, e, p.size);
    if (v < 0 || p.rows) return v;
    int64_t row = e / p.inner, outer = row / p.count;
    return (outer * p.size + v) * p.inner + (e - row * p.inner);
}

int64_t n_values(const kn__indices *p) {
    return p->rows ? p->count : p->outer * p->count * p->inner;
}
int64_t n_targets(const kn__indices *p) {
    return p->rows ? p->size : p->outer * p->size * p->inner;
}

// --- the last of several values ---

template <class W>
__global__ void __launch_bounds__(BLOCK, 1) last_kernel(W *last, int64_t n, kn__indices p) {
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        int64_t target = target_of(p, e);
        if (target >= 0) atomicMax(&last[target], (W)(e + 1));
    }
}

template <class W, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    put_last_kernel(E *out, const E *y, const W *last, int64_t n, kn__indices p) {
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        int64_t row = e / p.inner, i = e - row * p.inner, outer = row / p.count;
        int64_t value = p.rows ? row - outer * p.count : e, target = target_of(p, value);
        if (target < 0 || last[target] != (W)(value + 1)) continue;
        int64_t to = p.rows ? (outer * p.size + target) * p.inner + i : target;
        out[to] = y ? y[e] : E();
    }
}

template <class W, class E>
cudaError_t launch_last(void *out, const void *y, const kn__indices *p, void *work,
                        cudaStream_t stream) {
    int64_t n = n_values(p), all = p->outer * p->count * p->inner;
    KN_LAUNCH(last_kernel, blocks_for(n), BLOCK, stream, (W *)work, n, *p);
    KN_LAUNCH(put_last_kernel, blocks_for(all), BLOCK, stream, (E *)out, (const E *)y,
              (const W *)work, all, *p);
    return cudaGetLastError();
}

// --- values in the order of sorted keys ---

struct target_keys {
    kn__indices p;
    int64_t most;  // the key of an index out of range
    __device__ int64_t key(int64_t, int64_t e) const {
        int64_t target = target_of(p, e);
        return target < 0 ? most : target;
    }
    __device__ int64_t place(int64_t, int64_t e) const { return e; }
};

// The thread at the first of equal keys does them all.
template <bool ADD, class E, class K>
__global__ void __launch_bounds__(BLOCK, 1)
    segments_kernel(E *out, const E *y, key_array<K> sorted, K most, kn__indices p) {
    using S = sum_of<E>;
    const K *keys = sorted.keys, *places = sorted.places;
    int64_t n = p.outer * p.count * p.inner;
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        int64_t row = e / p.inner, i = e - row * p.inner, outer = row / p.count;
        int64_t k = row - outer * p.count;
        K key = keys[k];
        if (key == most || (k > 0 && keys[k - 1] == key)) continue;
        E *to = &out[(outer * p.size + (int64_t)key) * p.inner + i];
        const E *from = y ? y + outer * p.count * p.inner + i : y;
        if constexpr (ADD) {
            typename S::type sum = S::up(*to);
            for (; k < p.count && keys[k] == key; k++)
                sum += S::up(from[(int64_t)places[k] * p.inner]);
            *to = S::down(sum);
        } else {
            while (k + 1 < p.count && keys[k + 1] == key) k++;
            *to = from ? from[(int64_t)places[k] * p.inner] : E();
        }
    }
}

template <bool ADD, class E, class K>
cudaError_t launch_segments(void *out, const void *y, const kn__indices *p, void *work,
                            cudaStream_t stream) {
    target_keys source = {*p, n_targets(p)};
    if (p->rows) source.p.outer = source.p.inner = 1;
    key_array<K> sorted;
    cudaError_t error =
        launch_radix(&sorted, source, 1, n_values(p), 0, bits_of(source.most), work, stream);
    if (error != cudaSuccess) return error;
    kn__indices flat = *p;
    if (!p->rows) {
        flat.size = n_targets(p), flat.count = n_values(p);
        flat.outer = flat.inner = 1;
    }
    KN_LAUNCH((segments_kernel<ADD, E>), blocks_for(flat.outer * flat.count * flat.inner), BLOCK,
              stream, (E *)out, (const E *)y, sorted, (K)source.most, flat);
    return cudaGetLastError();
}

// --- sums along lines that a block can sort: inner is 1 ---

struct line_keys {
    kn__indices p;
    __device__ uint32_t key(int64_t line, int64_t i) const {
        int64_t v = index_at(p.index, p.dtype, p.rows ? i : line * p.count + i, p.size);
        return (uint32_t)(v < 0 ? p.size : v);
    }
    __device__ int64_t place(int64_t, int64_t i) const { return i; }
};

template <int ITEMS>
struct add_space {
    line_space<uint32_t, ITEMS> line;  // ends as the sorted places
    uint32_t key[BLOCK * ITEMS];
};

template <class E, int ITEMS>
__global__ void __launch_bounds__(BLOCK, 1)
    add_lines_kernel(E *out, const E *y, kn__indices p, int bits) {
    using S = sum_of<E>;
    KN_SHARED(s, add_space<ITEMS>);
    for (int64_t line = blockIdx.x; line < p.outer; line += gridDim.x) {
        uint32_t key[ITEMS], place[ITEMS];
        sort_line(key, place, s.line, line_keys{p}, line, p.count, 0, bits);
        for (int j = 0; j < ITEMS; j++) s.key[item_at<ITEMS>(j)] = key[j];
        __syncthreads();
        for (int first = (int)threadIdx.x; first < p.count; first += BLOCK) {
            uint32_t k = s.key[first];
            if (k == p.size || (first > 0 && s.key[first - 1] == k)) continue;
            E *to = &out[line * p.size + k];
            typename S::type sum = S::up(*to);
            for (int i = first; i < p.count && s.key[i] == k; i++)
                sum += S::up(y[line * p.count + s.line.item[i]]);
            *to = S::down(sum);
        }
        __syncthreads();
    }
}

template <class E>
cudaError_t launch_add_lines(void *out, const void *y, const kn__indices *p, cudaStream_t stream) {
    unsigned blocks = blocks_for(p->outer, 1);
    int bits = bits_of(p->size);
    if (p->count <= BLOCK * FEW_ITEMS)
        KN_LAUNCH((add_lines_kernel<E, FEW_ITEMS>), blocks, BLOCK, stream, (E *)out, (const E *)y,
                  *p, bits);
    else
        KN_LAUNCH((add_lines_kernel<E, LINE_ITEMS>), blocks, BLOCK, stream, (E *)out, (const E *)y,
                  *p, bits);
    return cudaGetLastError();
}

template <bool ADD, class E>
cudaError_t launch_along(void *out, const void *y, const kn__indices *p, cudaStream_t stream) {
    KN_LAUNCH((scatter_kernel<ADD>), blocks_for(p->outer * p->inner), BLOCK, stream, (E *)out,
              (const E *)y, *p);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(BLOCK, 1)
    join_kernel(int64_t *out, const void *index, int dtype, int64_t n, int64_t size, bool first) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t v = index_at(index, dtype, i, size), before = first ? 0 : out[i];
        out[i] = v < 0 || before == INT64_MIN ? INT64_MIN : before * size + v;
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_gather(void *y, const void *x, size_t element_bytes, uint64_t missing,
                              const kn__indices *p, cudaStream_t stream) {
    if (element_bytes == 16) {
        uint4 wide = {(uint32_t)missing, (uint32_t)(missing >> 32), (uint32_t)missing,
                      (uint32_t)(missing >> 32)};
        return launch_gather(y, x, wide, p, stream);
    }
    return with_bytes(element_bytes, [&](auto t) {
        using E = typename decltype(t)::type;
        return launch_gather(y, x, (E)missing, p, stream);
    });
}

kn__scatter_way kn__scatter_plan(const kn__indices *p, kn_dtype dtype, bool adds) {
    enum { COLUMNS = 1 << 14, SHORT = 32 };                // what keeps the GPU busy; a short walk
    bool by_column = !adds || kn_dtype_bytes(dtype) != 2;  // the sums of 16-bit floats are f32
    int64_t columns = p->outer * p->inner;
    if (by_column && p->count <= SHORT) return KN__SCATTER_COLUMNS;
    if (adds && p->inner == 1 && p->count <= LINE_KEYS_MAX && p->size < KN_INDEX_MAX)
        return KN__SCATTER_LINES;
    if (by_column && columns >= COLUMNS) return KN__SCATTER_COLUMNS;
    // Which value is last takes work space for each target.
    bool few = n_values(p) < n_targets(p) / 8;
    return adds || few ? KN__SCATTER_SORTED : KN__SCATTER_LAST;
}

size_t kn__scatter_bytes(const kn__indices *p, kn__scatter_way way) {
    int64_t n = n_values(p), most = n_targets(p);
    size_t bytes = is_wide(n, most) ? sizeof(uint64_t) : sizeof(uint32_t);
    if (way == KN__SCATTER_LAST) return (size_t)most * bytes;
    return way == KN__SCATTER_SORTED ? radix_bytes(1, n, bytes) : 0;
}

cudaError_t kn__launch_scatter(void *out, const void *y, kn_dtype dtype, bool adds,
                               const kn__indices *p, kn__scatter_way way, void *work,
                               cudaStream_t stream) {
    bool wide = is_wide(n_values(p), n_targets(p));
    if (!adds) {
        return with_bytes(kn_dtype_bytes(dtype), [&](auto t) {
            using E = typename decltype(t)::type;
            if (way == KN__SCATTER_COLUMNS) return launch_along<false, E>(out, y, p, stream);
            if (way == KN__SCATTER_SORTED)
                return wide ? launch_segments<false, E, uint64_t>(out, y, p, work, stream)
                            : launch_segments<false, E, uint32_t>(out, y, p, work, stream);
            return wide ? launch_last<unsigned long long, E>(out, y, p, work, stream)
                        : launch_last<unsigned, E>(out, y, p, work, stream);
        });
    }
    return with_number(dtype, [&](auto t) {
        using E = typename decltype(t)::type;
        if (way == KN__SCATTER_COLUMNS) return launch_along<true, E>(out, y, p, stream);
        if (way == KN__SCATTER_LINES) return launch_add_lines<E>(out, y, p, stream);
        return wide ? launch_segments<true, E, uint64_t>(out, y, p, work, stream)
                    : launch_segments<true, E, uint32_t>(out, y, p, work, stream);
    });
}

cudaError_t kn__launch_join(int64_t *out, const void *index, kn_dtype dtype, int64_t n,
                            int64_t size, bool first, cudaStream_t stream) {
    KN_LAUNCH(join_kernel, blocks_for(n), BLOCK, stream, out, index, (int)dtype, n, size, first);
    return cudaGetLastError();
}

}  // extern "C"
