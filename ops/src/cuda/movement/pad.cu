// Padding with an axis's own elements and its gradient, triangles, numbers in a row, and places of
// elements that are not zero.

#include <type_traits>

#include "convert.h"
#include "cuda/movement/scan.cuh"
#include "cuda/movement/sums.cuh"
#include "pad.h"

namespace {

using namespace kn_dev;

// A thread makes V neighbours of the result; V divides its size.
template <class I, int V, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    pad_kernel(E *out, const E *x, int64_t n_out, kn__padding p) {
    I all = (I)(p.before + p.n + p.after), inner = (I)p.inner;
    for (int64_t e = thread_index() * V; e < n_out; e += thread_count() * V) {
        I row = (I)e / inner, column = (I)e - row * inner, outer = row / all;
        int64_t i = (int64_t)(row - outer * all) - p.before;
        pack<E, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) {
            int64_t from = outer * p.n + kn__pad_source(p.mode, p.n, i);
            y.v[v] = x[from * p.inner + column];
            if (V == 1 || ++column < inner) continue;
            column = 0;
            if (++i == p.n + p.after) i = -p.before, outer++;
        }
        *reinterpret_cast<pack<E, V> *>(out + e) = y;
    }
}

// Where a row of the result has its first column in x.
template <class I>
__device__ bool find_row(int64_t *from, I row, const kn__frame_args &f) {
    int last = f.n_dims - 1;
    int64_t step = f.in[last];
    bool inside = true;
    *from = -f.before[last];
    for (int d = last - 1; d >= 0; d--) {
        I size = (I)f.dim[d], outer = row / size;
        int64_t i = (int64_t)(row - outer * size) - f.before[d];
        inside &= i >= 0 && i < f.in[d];
        *from += i * step;
        step *= f.in[d];
        row = outer;
    }
    return inside;
}

// The same with one element around x.
template <class I, int V, class E>
__global__ void __launch_bounds__(BLOCK, 1) frame_kernel(E *out, const E *x, E value, int64_t n_out,
                                                         const __grid_constant__ kn__frame_args f) {
    int last = f.n_dims - 1;
    int64_t first = f.before[last], end = first + f.in[last];
    for (int64_t e = thread_index() * V; e < n_out; e += thread_count() * V) {
        I row = (I)e / (I)f.dim[last];
        int64_t column = (int64_t)((I)e - row * (I)f.dim[last]), from;
        bool inside = find_row(&from, row, f);
        pack<E, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) {
            y.v[v] = inside && column >= first && column < end ? x[from + column] : value;
            if (v + 1 == V || ++column < f.dim[last]) continue;
            column = 0;
            inside = find_row(&from, ++row, f);
        }
        *reinterpret_cast<pack<E, V> *>(out + e) = y;
    }
}

// Calls body with the type of indices, and how many neighbours of n elements a thread makes.
template <class E, class F>
cudaError_t with_packs(const void *out, int64_t n, F body) {
    constexpr int V = 16 / sizeof(E);
    bool packs = n % V == 0 && aligned(out, 16);
    if (n > KN_INDEX_MAX)
        body(value_of<uint64_t>{}, std::integral_constant<int, 1>{});
    else if (packs)
        body(value_of<uint32_t>{}, std::integral_constant<int, V>{});
    else
        body(value_of<uint32_t>{}, std::integral_constant<int, 1>{});
    return cudaGetLastError();
}

// An element's own gradient, then those of its copies, in order.
template <class E>
__global__ void __launch_bounds__(BLOCK, 1) pad_back_kernel(E *out, const E *g, kn__padding p) {
    using S = sum_of<E>;
    int64_t all = p.before + p.n + p.after;
    for (int64_t e = thread_index(); e < p.outer * p.n * p.inner; e += thread_count()) {
        int64_t row = e / p.inner, outer = row / p.n, i = row - outer * p.n, first[2], count[2];
        kn__pad_copies(p.mode, p.n, p.before, p.after, i, first, count);
        const E *from = g + (outer * all + p.before) * p.inner + (e - row * p.inner);
        typename S::type sum = S::up(from[i * p.inner]);
        for (int64_t c = 0; c < count[0]; c++) sum += S::up(from[(first[0] + c) * p.inner]);
        for (int64_t c = 0; c < count[1]; c++) sum += S::up(from[(first[1] + c) * p.inner]);
        out[e] = S::down(sum);
    }
}

template <class I, int V, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    triangle_kernel(E *out, const E *x, int64_t n, int64_t rows, int64_t columns, int64_t diagonal,
                    bool upper) {
    for (int64_t e = thread_index() * V; e < n; e += thread_count() * V) {
        I row = (I)e / (I)columns, column = (I)e - row * (I)columns;
        row %= (I)rows;
        pack<E, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) {
            int64_t across = (int64_t)column - (int64_t)row;
            y.v[v] = (upper ? across >= diagonal : across <= diagonal) ? x[e + v] : E();
            if (++column < (I)columns) continue;
            column = 0;
            if (++row == (I)rows) row = 0;
        }
        *reinterpret_cast<pack<E, V> *>(out + e) = y;
    }
}

// --- numbers in a row ---

__device__ void store(float *p, double v) { *p = (float)v; }
__device__ void store(double *p, double v) { *p = v; }
__device__ void store(__half *p, double v) { *p = __float2half_rn((float)v); }
__device__ void store(__nv_bfloat16 *p, double v) { *p = __float2bfloat16_rn((float)v); }
__device__ int64_t integer(double v, int64_t low, int64_t high) {
    if (v != v) return 0;
    int64_t i = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    return i < low ? low : i > high ? high : i;
}
__device__ void store(uint64_t *p, double v) { *p = (uint64_t)integer(v, INT64_MIN, INT64_MAX); }
__device__ void store(uint32_t *p, double v) {
    *p = (uint32_t)(int32_t)integer(v, INT32_MIN, INT32_MAX);
}
__device__ void store(uint8_t *p, double v) { *p = (uint8_t)integer(v, 0, 255); }

template <class E>
__global__ void __launch_bounds__(BLOCK, 1)
    arange_kernel(E *out, int64_t n, double a, double b, bool spaced) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        store(out + i, spaced ? kn__linspace_at(a, b, n, i) : kn__arange_at(a, b, (double)i));
}

// --- places ---

enum { ITEMS = 8, TILE = BLOCK * ITEMS };

// -0 is zero, NaN is not: `mask` leaves out the sign of floats.
template <class E>
__device__ int nonzeros(const E *x, int64_t n, int64_t first, E mask) {
    int count = 0;
    for (int64_t i = first; i < first + ITEMS && i < n; i++) count += (x[i] & mask) != 0;
    return count;
}

template <class E>
__global__ void __launch_bounds__(BLOCK, 1)
    nonzero_count_kernel(int64_t *sums, const E *x, int64_t n, int64_t n_tiles, E mask) {
    KN_SHARED(sum, block_sums);
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t total;
        block_before(sum, nonzeros(x, n, tile * TILE + (int64_t)threadIdx.x * ITEMS, mask), &total);
        if (threadIdx.x == 0) sums[tile] = total;
    }
}

// One block: x[i] becomes the sum of those before it; *total, unless NULL, that of all.
__global__ void __launch_bounds__(BLOCK, 1) scan_kernel(int64_t *x, int64_t n, int64_t *total) {
    KN_SHARED(sums, block_sums);
    int64_t each = (n + BLOCK - 1) / BLOCK, from = threadIdx.x * each;
    int64_t to = from + each < n ? from + each : n, sum = 0, all;
    for (int64_t i = from; i < to; i++) sum += x[i];
    int64_t before = block_before(sums, sum, &all);
    for (int64_t i = from; i < to; i++) {
        int64_t here = x[i];
        x[i] = before;
        before += here;
    }
    if (total && threadIdx.x == 0) *total = all;
}

template <class E>
__global__ void __launch_bounds__(BLOCK, 1)
    nonzero_kernel(int64_t *places, const int64_t *sums, const E *x, int64_t n, int64_t n_tiles,
                   E mask, const __grid_constant__ kn__dims d) {
    KN_SHARED(sum, block_sums);
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t total, first = tile * TILE + (int64_t)threadIdx.x * ITEMS;
        int64_t to = sums[tile] + block_before(sum, nonzeros(x, n, first, mask), &total);
        for (int64_t i = first; i < first + ITEMS && i < n; i++) {
            if ((x[i] & mask) == 0) continue;
            int64_t rest = i;
            for (int k = d.n_dims - 1; k >= 0; k--) {
                int64_t outer = rest / d.dim[k];
                places[to * d.n_dims + k] = rest - outer * d.dim[k];
                rest = outer;
            }
            to++;
        }
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_pad(void *out, const void *x, size_t element_bytes, const kn__padding *p,
                           cudaStream_t stream) {
    int64_t n = p->outer * (p->before + p->n + p->after) * p->inner;
    return with_bytes(element_bytes, [&](auto t) {
        using E = typename decltype(t)::type;
        return with_packs<E>(out, n, [&](auto index, auto width) {
            using I = typename decltype(index)::type;
            constexpr int V = decltype(width)::value;
            KN_LAUNCH((pad_kernel<I, V>), blocks_for(n / V), BLOCK, stream, (E *)out, (const E *)x,
                      n, *p);
        });
    });
}

cudaError_t kn__launch_frame(void *out, const void *x, size_t element_bytes, uint64_t element,
                             const kn__frame_args *f, cudaStream_t stream) {
    int64_t n = 1;
    for (int d = 0; d < f->n_dims; d++) n *= f->dim[d];
    return with_bytes(element_bytes, [&](auto t) {
        using E = typename decltype(t)::type;
        return with_packs<E>(out, n, [&](auto index, auto width) {
            using I = typename decltype(index)::type;
            constexpr int V = decltype(width)::value;
            KN_LAUNCH((frame_kernel<I, V>), blocks_for(n / V), BLOCK, stream, (E *)out,
                      (const E *)x, (E)element, n, *f);
        });
    });
}

cudaError_t kn__launch_pad_back(void *out, const void *g, kn_dtype dtype, const kn__padding *p,
                                cudaStream_t stream) {
    return with_number(dtype, [&](auto t) {
        using E = typename decltype(t)::type;
        KN_LAUNCH(pad_back_kernel, blocks_for(p->outer * p->n * p->inner), BLOCK, stream, (E *)out,
                  (const E *)g, *p);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_triangle(void *out, const void *x, size_t element_bytes, int64_t n,
                                int64_t rows, int64_t columns, int64_t diagonal, bool upper,
                                cudaStream_t stream) {
    return with_bytes(element_bytes, [&](auto t) {
        using E = typename decltype(t)::type;
        return with_packs<E>(out, n, [&](auto index, auto width) {
            using I = typename decltype(index)::type;
            constexpr int V = decltype(width)::value;
            KN_LAUNCH((triangle_kernel<I, V>), blocks_for(n / V), BLOCK, stream, (E *)out,
                      (const E *)x, n, rows, columns, diagonal, upper);
        });
    });
}

cudaError_t kn__launch_arange(void *out, kn_dtype dtype, int64_t n, double a, double b, bool spaced,
                              cudaStream_t stream) {
    return with_number(dtype, [&](auto t) {
        using E = typename decltype(t)::type;
        KN_LAUNCH(arange_kernel, blocks_for(n), BLOCK, stream, (E *)out, n, a, b, spaced);
        return cudaGetLastError();
    });
}

int64_t kn__nonzero_sums(int64_t n) { return (n + TILE - 1) / TILE; }

cudaError_t kn__launch_nonzero_count(int64_t *sums, const void *x, kn_dtype dtype, int64_t n,
                                     cudaStream_t stream) {
    return with_bytes(kn_dtype_bytes(dtype), [&](auto t) {
        using E = typename decltype(t)::type;
        E mask = (E)(dtype <= KN_BF16 ? (E) ~(E)0 >> 1 : (E) ~(E)0);
        int64_t n_tiles = kn__nonzero_sums(n);
        KN_LAUNCH(nonzero_count_kernel, blocks_for(n_tiles, 1), BLOCK, stream, sums, (const E *)x,
                  n, n_tiles, mask);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_sums_before(int64_t *x, int64_t n, int64_t *total, cudaStream_t stream) {
    KN_LAUNCH(scan_kernel, 1, BLOCK, stream, x, n, total);
    return cudaGetLastError();
}

cudaError_t kn__launch_nonzero(int64_t *places, const int64_t *sums, const void *x, kn_dtype dtype,
                               int64_t n, const kn__dims *d, cudaStream_t stream) {
    return with_bytes(kn_dtype_bytes(dtype), [&](auto t) {
        using E = typename decltype(t)::type;
        E mask = (E)(dtype <= KN_BF16 ? (E) ~(E)0 >> 1 : (E) ~(E)0);
        int64_t n_tiles = kn__nonzero_sums(n);
        KN_LAUNCH(nonzero_kernel, blocks_for(n_tiles, 1), BLOCK, stream, places, sums, (const E *)x,
                  n, n_tiles, mask, *d);
        return cudaGetLastError();
    });
}

}  // extern "C"
