// Movement: copies between strided regions, tiled transposes, fills and casts. Copies know only the
// size of an element; the C side widens elements to 16 bytes where the region allows it. Those that
// add know its type.

#include "cuda/base/device.cuh"
#include "cuda/movement/convert.cuh"
#include "cuda/movement/sums.cuh"

namespace {

using namespace kn_dev;

enum { TILE = 32, TILE_ROWS = 8 };

struct copy_strides {
    int n_dims;
    int64_t dim[KN_DIMS_MAX], out[KN_DIMS_MAX], in[KN_DIMS_MAX];
};

// Where element i of the region is.
template <class I>
__device__ void find(int64_t *to, int64_t *from, I rest, const copy_strides &s) {
    *to = *from = 0;
    for (int d = s.n_dims - 1; d >= 0; d--) {
        I size = (I)s.dim[d], outer = rest / size;
        int64_t index = (int64_t)(rest - outer * size);
        *to += index * s.out[d];
        *from += index * s.in[d];
        rest = outer;
    }
}

template <class I, bool ADD, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    copy_kernel(E *out, const E *in, int64_t n, copy_strides s) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t to, from;
        find(&to, &from, (I)i, s);
        if constexpr (ADD)
            out[to] = add(out[to], in[from]);
        else
            out[to] = in[from];
    }
}

// Packs of V neighbours in the last dimension, of which s and n count packs: they are side by side
// in out, and `step` apart in in.
template <int V, class E>
__global__ void __launch_bounds__(BLOCK, 1)
    copy_packs_kernel(E *out, const E *in, int64_t n, copy_strides s, int64_t step) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t to, from;
        find(&to, &from, (uint32_t)i, s);
        pack<E, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) y.v[v] = in[from + v * step];
        *reinterpret_cast<pack<E, V> *>(out + to) = y;
    }
}

bool has_packs(const kn__copy *p, int by) {
    const kn__operand_region *r = &p->region;
    int last = r->n_dims - 1;
    for (int d = 0; d < last; d++)
        if (r->stride[0][d] % by) return false;
    return r->stride[0][last] == 1 && r->dim[last] % by == 0 && aligned(p->out, 16) &&
           r->n <= KN_INDEX_MAX;
}

template <class E, bool ADD = false>
cudaError_t launch_copy(const kn__copy *p, cudaStream_t stream) {
    const kn__operand_region *r = &p->region;
    constexpr int V = 16 / sizeof(E);
    bool packs = V > 1 && !ADD && has_packs(p, V);
    int64_t by = packs ? V : 1, n = r->n / by;
    copy_strides s = {};
    s.n_dims = r->n_dims;
    for (int d = 0; d < r->n_dims; d++) {
        bool last = d == r->n_dims - 1;
        s.dim[d] = last ? r->dim[d] / by : r->dim[d];
        s.out[d] = last ? r->stride[0][d] * by : r->stride[0][d];
        s.in[d] = last ? r->stride[1][d] * by : r->stride[1][d];
    }
    unsigned blocks = blocks_for(n);
    E *out = (E *)p->out;
    const E *in = (const E *)p->in;
    if constexpr (V > 1 && !ADD) {
        if (packs) {
            KN_LAUNCH((copy_packs_kernel<V>), blocks, BLOCK, stream, out, in, n, s,
                      r->stride[1][r->n_dims - 1]);
            return cudaGetLastError();
        }
    }
    if (n <= UINT32_MAX)
        KN_LAUNCH((copy_kernel<uint32_t, ADD>), blocks, BLOCK, stream, out, in, n, s);
    else
        KN_LAUNCH((copy_kernel<uint64_t, ADD>), blocks, BLOCK, stream, out, in, n, s);
    return cudaGetLastError();
}

// A tile goes through shared memory, so that both sides are read and written along rows. The
// column more keeps a tile's column off one bank.
template <class E>
__global__ void __launch_bounds__(TILE *TILE_ROWS)
    transpose_kernel(E *out, const E *in, int64_t n_tiles, int64_t rows, int64_t cols,
                     int64_t tiles_r, int64_t tiles_c) {
    KN_SHARED(tile, E[TILE][TILE + 1]);
    for (int64_t t = blockIdx.x; t < n_tiles; t += gridDim.x) {
        int64_t c0 = t % tiles_c * TILE, r0 = t / tiles_c % tiles_r * TILE;
        int64_t base = t / tiles_c / tiles_r * rows * cols;
        for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
            if (r0 + k < rows && c0 + threadIdx.x < cols)
                tile[k][threadIdx.x] = in[base + (r0 + k) * cols + c0 + threadIdx.x];
        __syncthreads();
        for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
            if (c0 + k < cols && r0 + threadIdx.x < rows)
                out[base + (c0 + k) * rows + r0 + threadIdx.x] = tile[threadIdx.x][k];
        __syncthreads();
    }
}

template <class E>
cudaError_t launch_transpose(void *out, const void *in, int64_t batch, int64_t rows, int64_t cols,
                             cudaStream_t stream) {
    int64_t tiles_r = (rows + TILE - 1) / TILE, tiles_c = (cols + TILE - 1) / TILE;
    int64_t n_tiles = batch * tiles_r * tiles_c;
    KN_LAUNCH(transpose_kernel, blocks_for(n_tiles, 1), dim3(TILE, TILE_ROWS), stream, (E *)out,
              (const E *)in, n_tiles, rows, cols, tiles_r, tiles_c);
    return cudaGetLastError();
}

template <class E>
__global__ void __launch_bounds__(BLOCK, 1) fill_kernel(E *out, E element, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) out[i] = element;
}

template <class E>
cudaError_t launch_fill(void *out, uint64_t element, int64_t n, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(E);
    pack<E, V> all;
    for (int k = 0; k < V; k++) all.v[k] = (E)element;
    int64_t n_wide = aligned(out, 16) ? n / V : 0, rest = n - n_wide * V;
    if (n_wide)
        KN_LAUNCH(fill_kernel, blocks_for(n_wide), BLOCK, stream, (pack<E, V> *)out, all, n_wide);
    if (rest)
        KN_LAUNCH(fill_kernel, blocks_for(rest), BLOCK, stream, (E *)out + n_wide * V, (E)element,
                  rest);
    return cudaGetLastError();
}

// The wider type moves 16 bytes at a time.
template <class D, class S>
constexpr int cast_width = 16 / (int)(sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));

template <class D, class S>
__global__ void __launch_bounds__(BLOCK, 1)
    cast_kernel(D *out, const S *in, int64_t n, int64_t n_wide) {
    constexpr int V = cast_width<D, S>;
    for (int64_t i = thread_index() * V; i < n_wide; i += thread_count() * V) {
        pack<S, V> x = *reinterpret_cast<const pack<S, V> *>(in + i);
        pack<D, V> y;
#pragma unroll
        for (int k = 0; k < V; k++) y.v[k] = narrow<D>::from(widen(x.v[k]));
        *reinterpret_cast<pack<D, V> *>(out + i) = y;
    }
    for (int64_t i = n_wide + thread_index(); i < n; i += thread_count())
        out[i] = narrow<D>::from(widen(in[i]));
}

template <class D, class S>
cudaError_t launch_cast(D *out, const S *in, int64_t n, cudaStream_t stream) {
    constexpr int V = cast_width<D, S>;
    bool wide = aligned(out, sizeof(D) * V) && aligned(in, sizeof(S) * V);
    int64_t n_wide = wide ? n / V * V : 0;
    KN_LAUNCH(cast_kernel, blocks_for(wide ? (n + V - 1) / V : n), BLOCK, stream, out, in, n,
              n_wide);
    return cudaGetLastError();
}

template <class F>
cudaError_t with_dtype(kn_dtype dtype, F body) {
    switch (dtype) {
        case KN_F32:
            return body(value_of<float>{});
        case KN_F64:
            return body(value_of<double>{});
        case KN_F16:
            return body(value_of<__half>{});
        case KN_BF16:
            return body(value_of<__nv_bfloat16>{});
        case KN_I64:
            return body(value_of<int64_t>{});
        case KN_I32:
            return body(value_of<int32_t>{});
        case KN_U8:
            return body(value_of<uint8_t>{});
        case KN_BOOL:
            return body(value_of<boolean>{});
    }
    return cudaErrorInvalidValue;
}

}  // namespace

extern "C" {

cudaError_t kn__launch_copy(const kn__copy *p, cudaStream_t stream) {
    if (p->add) {
        return with_number(p->add, [&](auto t) {
            return launch_copy<typename decltype(t)::type, true>(p, stream);
        });
    }
    switch (p->element_bytes) {
        case 1:
            return launch_copy<uint8_t>(p, stream);
        case 2:
            return launch_copy<uint16_t>(p, stream);
        case 4:
            return launch_copy<uint32_t>(p, stream);
        case 8:
            return launch_copy<uint64_t>(p, stream);
        case 16:
            return launch_copy<uint4>(p, stream);
    }
    return cudaErrorInvalidValue;
}

cudaError_t kn__launch_transpose(void *out, const void *in, size_t element_bytes, int64_t batch,
                                 int64_t rows, int64_t cols, cudaStream_t stream) {
    switch (element_bytes) {
        case 1:
            return launch_transpose<uint8_t>(out, in, batch, rows, cols, stream);
        case 2:
            return launch_transpose<uint16_t>(out, in, batch, rows, cols, stream);
        case 4:
            return launch_transpose<uint32_t>(out, in, batch, rows, cols, stream);
        case 8:
            return launch_transpose<uint64_t>(out, in, batch, rows, cols, stream);
    }
    return cudaErrorInvalidValue;
}

cudaError_t kn__launch_fill(void *out, size_t element_bytes, uint64_t element, int64_t n,
                            cudaStream_t stream) {
    switch (element_bytes) {
        case 1:
            return launch_fill<uint8_t>(out, element, n, stream);
        case 2:
            return launch_fill<uint16_t>(out, element, n, stream);
        case 4:
            return launch_fill<uint32_t>(out, element, n, stream);
        case 8:
            return launch_fill<uint64_t>(out, element, n, stream);
    }
    return cudaErrorInvalidValue;
}

cudaError_t kn__launch_cast(void *out, kn_dtype to, const void *in, kn_dtype from, int64_t n,
                            cudaStream_t stream) {
    return with_dtype(to, [&](auto d) {
        using D = typename decltype(d)::type;
        return with_dtype(from, [&](auto s) {
            using S = typename decltype(s)::type;
            return launch_cast((D *)out, (const S *)in, n, stream);
        });
    });
}

}  // extern "C"
