// Elements at indices along an axis: reading, writing, adding. An index out of range reads as
// `missing` and is not written to. Places that are written several times are written by one thread,
// in the order of the values.

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

// Keys to sort by: the slice that an index names, or the element of the result; `size` of them, or
// all, for an index out of range.
__global__ void __launch_bounds__(BLOCK, 1)
    keys_kernel(int64_t *keys, int64_t *places, int64_t n, int64_t most, kn__indices p) {
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        int64_t v = index_at(p.index, p.dtype, e, p.size);
        int64_t row = e / p.inner, outer = row / p.count;
        places[e] = e;
        if (v < 0)
            keys[e] = most;
        else
            keys[e] = p.rows ? v : (outer * p.size + v) * p.inner + (e - row * p.inner);
    }
}

// The thread at the first of equal keys does them all.
template <bool ADD, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    segments_kernel(E *out, const E *y, const int64_t *keys, const int64_t *places, int64_t most,
                    kn__indices p) {
    using S = sum_of<E>;
    int64_t n = p.outer * p.count * p.inner;
    for (int64_t e = thread_index(); e < n; e += thread_count()) {
        int64_t row = e / p.inner, i = e - row * p.inner, outer = row / p.count;
        int64_t k = row - outer * p.count, key = keys[k];
        if (key == most || (k > 0 && keys[k - 1] == key)) continue;
        E *to = &out[(outer * p.size + key) * p.inner + i];
        const E *from = y ? y + outer * p.count * p.inner + i : y;
        if constexpr (ADD) {
            typename S::type sum = S::up(*to);
            for (; k < p.count && keys[k] == key; k++) sum += S::up(from[places[k] * p.inner]);
            *to = S::down(sum);
        } else {
            while (k + 1 < p.count && keys[k + 1] == key) k++;
            *to = from ? from[places[k] * p.inner] : E();
        }
    }
}

template <bool ADD, class E>
cudaError_t launch_scatter(void *out, const void *y, const kn__indices *p, const kn__key_sort *s,
                           cudaStream_t stream) {
    if (!s) {
        KN_LAUNCH((scatter_kernel<ADD>), blocks_for(p->outer * p->inner), BLOCK, stream, (E *)out,
                  (const E *)y, *p);
        return cudaGetLastError();
    }
    kn__indices flat = *p;
    if (!p->rows) {
        flat.size = p->outer * p->size * p->inner, flat.count = s->n;
        flat.outer = flat.inner = 1;
    }
    KN_LAUNCH((segments_kernel<ADD>), blocks_for(flat.outer * flat.count * flat.inner), BLOCK,
              stream, (E *)out, (const E *)y, (const int64_t *)s->keys, (const int64_t *)s->places,
              s->most, flat);
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

cudaError_t kn__launch_scatter(void *out, const void *y, kn_dtype dtype, bool adds,
                               const kn__indices *p, const kn__key_sort *s, cudaStream_t stream) {
    if (!adds) {
        return with_bytes(kn_dtype_bytes(dtype), [&](auto t) {
            using E = typename decltype(t)::type;
            return launch_scatter<false, E>(out, y, p, s, stream);
        });
    }
    return with_number(dtype, [&](auto t) {
        using E = typename decltype(t)::type;
        return launch_scatter<true, E>(out, y, p, s, stream);
    });
}

cudaError_t kn__launch_keys(kn__key_sort *s, const kn__indices *p, cudaStream_t stream) {
    kn__indices keyed = *p;
    if (p->rows) keyed.outer = keyed.inner = 1;
    KN_LAUNCH(keys_kernel, blocks_for(s->n), BLOCK, stream, s->keys, s->places, s->n, s->most,
              keyed);
    return cudaGetLastError();
}

cudaError_t kn__launch_join(int64_t *out, const void *index, kn_dtype dtype, int64_t n,
                            int64_t size, bool first, cudaStream_t stream) {
    KN_LAUNCH(join_kernel, blocks_for(n), BLOCK, stream, out, index, (int)dtype, n, size, first);
    return cudaGetLastError();
}

}  // extern "C"
