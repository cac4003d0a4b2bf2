// Sorting along an axis, stably: an element becomes an item, its key with its place. Blocks sort
// tiles of items in shared memory; then runs of items are merged in pairs until one is left, each
// item finding its place in the merged run by a binary search. And elements by their index.

#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

using item = kn__sort_item;
enum { TILE = 2 * BLOCK };

__device__ bool less(item a, item b) { return a.key != b.key ? a.key < b.key : a.place < b.place; }

// In the elements' order; NaN above all, the zeros alike.
__device__ uint64_t key_of(double x) {
    if (x != x) return UINT64_MAX;
    x += 0.0;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}
__device__ uint64_t key_of(float x) { return key_of((double)x); }
__device__ uint64_t key_of(int64_t x) { return (uint64_t)x ^ (uint64_t)1 << 63; }

// Sorts each tile of each line.
template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    tiles_kernel(item *out, const T *x, kn__lines lines, bool descending) {
    KN_SHARED(tile, item[TILE]);
    int64_t tiles = (lines.n + TILE - 1) / TILE, n_lines = lines.outer * lines.inner;
    for (int64_t b = blockIdx.x; b < tiles * n_lines; b += gridDim.x) {
        int64_t line = b / tiles, from = b % tiles * TILE;
        const T *in = x + line / lines.inner * lines.n * lines.inner + line % lines.inner;
        for (int k = threadIdx.x; k < TILE; k += BLOCK) {
            int64_t at = from + k;
            uint64_t key = at < lines.n ? key_of(load_as(in[at * lines.inner])) : UINT64_MAX;
            if (at < lines.n && descending) key = ~key;
            tile[k] = {key, at};
        }
        __syncthreads();
        for (int size = 2; size <= TILE; size *= 2) {
            for (int d = size / 2; d > 0; d /= 2) {
                int i = threadIdx.x / d * 2 * d + threadIdx.x % d;
                bool up = (i & size) == 0;
                item a = tile[i], c = tile[i + d];
                if (less(c, a) == up) tile[i] = c, tile[i + d] = a;
                __syncthreads();
            }
        }
        for (int k = threadIdx.x; k < TILE; k += BLOCK)
            if (from + k < lines.n) out[line * lines.n + from + k] = tile[k];
        __syncthreads();
    }
}

// How many of n sorted items come before v.
__device__ int64_t rank_of(const item *run, int64_t n, item v) {
    int64_t low = 0;
    while (low < n) {
        int64_t middle = low + (n - low) / 2;
        if (less(run[middle], v))
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

// Merges neighbouring runs of `width` items in lines of n.
__global__ void __launch_bounds__(BLOCK, 1)
    merge_kernel(item *out, const item *in, int64_t n, int64_t n_items, int64_t width) {
    for (int64_t i = thread_index(); i < n_items; i += thread_count()) {
        int64_t line = i / n * n, at = i - line, run = at / width;
        int64_t first = (run & ~(int64_t)1) * width, other = (run ^ 1) * width;
        int64_t left = other < n ? min(width, n - other) : 0;
        item v = in[i];
        int64_t rank = left > 0 ? rank_of(in + line + other, left, v) : 0;
        out[line + first + (at - run * width) + rank] = v;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    store_kernel(T *values, int64_t *places, const T *x, const item *items, kn__lines lines,
                 int64_t k) {
    int64_t n = lines.outer * k * lines.inner;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t column = i % lines.inner, rest = i / lines.inner;
        int64_t outer = rest / k, line = outer * lines.inner + column;
        int64_t place = items[line * lines.n + rest % k].place;
        if (places) places[i] = place;
        if (values) values[i] = x[(outer * lines.n + place) * lines.inner + column];
    }
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

cudaError_t kn__launch_sort(const kn__sort *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        const kn__lines &lines = p->lines;
        int64_t n_lines = lines.outer * lines.inner, tiles = (lines.n + TILE - 1) / TILE;
        item *from = p->items[0], *to = p->items[1];
        KN_LAUNCH(tiles_kernel<T>, blocks_for(tiles * n_lines, 1), BLOCK, stream, from,
                  (const T *)p->in, lines, p->descending);
        for (int64_t width = TILE; width < lines.n; width *= 2) {
            KN_LAUNCH(merge_kernel, blocks_for(n_lines * lines.n), BLOCK, stream, to,
                      (const item *)from, lines.n, n_lines * lines.n, width);
            item *merged = to;
            to = from, from = merged;
        }
        KN_LAUNCH(store_kernel<T>, blocks_for(n_lines * p->k), BLOCK, stream, (T *)p->values,
                  p->places, (const T *)p->in, (const item *)from, lines, p->k);
        return cudaGetLastError();
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
