// Samples of images at the places of a grid. Forward, and back to the grid: a thread a place, which
// walks over the channels. Back to x: the corners of all places are sorted by their element of x,
// and a thread adds up those of one element and channel, in the order of the places.

#include "cuda/base/radix.cuh"

namespace {

using namespace kn_dev;

template <class T>
__device__ kn__corners corners_of(const kn__grid &g, const T *grid, int64_t b, int64_t place) {
    const T *at = grid + 2 * (b * g.places + place);
    return kn__grid_corners(&g, (double)at[0], (double)at[1], g.nearest);
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_sample_kernel(const __grid_constant__ kn__grid g, T *y, const T *x, const T *grid) {
    int64_t n = g.batch * g.places, plane = g.in[0] * g.in[1];
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t b = i / g.places, place = i % g.places;
        kn__corners c = corners_of(g, grid, b, place);
        for (int64_t channel = b * g.channels; channel < (b + 1) * g.channels; channel++) {
            T sum = T(0);
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (c.at[k] >= 0) sum += (T)c.weight[k] * x[channel * plane + (int64_t)c.at[k]];
            y[channel * g.places + place] = sum;
        }
    }
}

// Corner k of place p is number 4·p + k; its key is the element of x's planes, or the number of
// those for a corner outside.
template <class T, class K>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_corners_kernel(const __grid_constant__ kn__grid g, K *keys, T *weights, const T *grid) {
    int64_t plane = g.in[0] * g.in[1];
    for (int64_t i = thread_index(); i < g.batch * g.places; i += thread_count()) {
        int64_t b = i / g.places;
        kn__corners c = corners_of(g, grid, b, i - b * g.places);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            keys[4 * i + k] = (K)(c.at[k] < 0 ? g.batch * plane : b * plane + (int64_t)c.at[k]);
            weights[4 * i + k] = (T)c.weight[k];
        }
    }
}

template <class K>
struct corner_keys {
    const K *keys;
    __device__ K key(int64_t, int64_t corner) const { return keys[corner]; }
    __device__ int64_t place(int64_t, int64_t corner) const { return corner; }
};

// A thread for each sorted corner of a channel; that of the first of equal keys does them all.
template <class T, class K>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_back_x_kernel(const __grid_constant__ kn__grid g, T *dx, const T *dy, const T *weight,
                       key_array<K> sorted) {
    int64_t n = g.batch * g.places * 4, plane = g.in[0] * g.in[1];
    for (int64_t e = thread_index(); e < n * g.channels; e += thread_count()) {
        int64_t channel = e / n, i = e - channel * n;
        K key = sorted.keys[i];
        if ((int64_t)key == g.batch * plane || (i > 0 && sorted.keys[i - 1] == key)) continue;
        int64_t b = (int64_t)key / plane, at = (int64_t)key - b * plane;
        channel += b * g.channels;
        T sum = dx[channel * plane + at];
        for (; i < n && sorted.keys[i] == key; i++) {
            int64_t corner = sorted.places[i];
            sum += weight[corner] * dy[channel * g.places + corner / 4 - b * g.places];
        }
        dx[channel * plane + at] = sum;
    }
}

// Corners that are sorted at once: the work space has some 25 bytes for each. Images are
// independent.
#ifndef KN__CORNERS_AT_ONCE
#define KN__CORNERS_AT_ONCE ((int64_t)1 << 24)
#endif
kn__grid some_images(const kn__grid *g) {
    kn__grid part = *g;
    int64_t most = KN__CORNERS_AT_ONCE / (4 * max(g->places, (int64_t)1));
    part.batch = min(g->batch, max(most, (int64_t)1));
    return part;
}

int64_t n_corners(const kn__grid *g) { return g->batch * g->places * 4; }
int64_t n_elements(const kn__grid *g) { return g->batch * g->in[0] * g->in[1]; }
bool is_wide_grid(const kn__grid *g) { return is_wide(n_corners(g), n_elements(g)); }

// The work space has the corners' keys, their weights, and the sort's arrays.
template <class T, class K>
cudaError_t launch_sorted(const kn__grid *g, T *dx, const T *dy, const T *grid, void *work,
                          cudaStream_t stream) {
    int64_t n = n_corners(g);
    K *keys = (K *)work;
    T *weights = (T *)(keys + n);
    KN_LAUNCH(grid_corners_kernel, blocks_for(n / 4), BLOCK, stream, *g, keys, weights, grid);
    key_array<K> sorted;
    cudaError_t error = launch_radix(&sorted, corner_keys<K>{keys}, 1, n, 0, bits_of(n_elements(g)),
                                     weights + n, stream);
    if (error != cudaSuccess) return error;
    KN_LAUNCH(grid_back_x_kernel, blocks_for(n * g->channels), BLOCK, stream, *g, dx, dy,
              (const T *)weights, sorted);
    return cudaGetLastError();
}

template <class T>
cudaError_t launch_back_x(const kn__grid *g, T *dx, const T *dy, const T *grid, void *work,
                          cudaStream_t stream) {
    kn__grid part = some_images(g);
    const bool wide = is_wide_grid(&part);
    const int64_t step = part.batch;
    for (int64_t b = 0; b < g->batch; b += step) {
        part.batch = min(step, g->batch - b);
        T *to = dx + b * g->channels * g->in[0] * g->in[1];
        const T *from = dy + b * g->channels * g->places, *at = grid + 2 * b * g->places;
        cudaError_t error = wide ? launch_sorted<T, uint64_t>(&part, to, from, at, work, stream)
                                 : launch_sorted<T, uint32_t>(&part, to, from, at, work, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_back_grid_kernel(const __grid_constant__ kn__grid g, T *dgrid, const T *x, const T *dy,
                          const T *grid) {
    int64_t n = g.batch * g.places, plane = g.in[0] * g.in[1];
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t b = i / g.places, place = i % g.places;
        kn__corners c = corners_of(g, grid, b, place);
        const int64_t from = b * g.channels;
        const int64_t to = g.nearest ? from : from + g.channels;  // no slope, whatever x is
        T column = T(0), row = T(0);
        for (int64_t channel = from; channel < to; channel++) {
            T d = dy[channel * g.places + place];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                T part = c.at[k] >= 0 ? d * x[channel * plane + (int64_t)c.at[k]] : T(0);
                column += (T)c.by_column[k] * part;
                row += (T)c.by_row[k] * part;
            }
        }
        dgrid[2 * i] = column;
        dgrid[2 * i + 1] = row;
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_grid_sample(void *y, const void *x, const void *grid, kn_dtype dtype,
                                   const kn__grid *g, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(grid_sample_kernel, blocks_for(g->batch * g->places), BLOCK, stream, *g, (T *)y,
                  (const T *)x, (const T *)grid);
        return cudaGetLastError();
    });
}

size_t kn__grid_back_bytes(const kn__grid *g, kn_dtype dtype) {
    kn__grid part = some_images(g);
    int64_t n = n_corners(&part);
    size_t key_bytes = is_wide_grid(&part) ? sizeof(uint64_t) : sizeof(uint32_t);
    return (size_t)n * (key_bytes + kn_dtype_bytes(dtype)) + radix_bytes(1, n, key_bytes);
}

cudaError_t kn__launch_grid_sample_back(void *dx, void *dgrid, const void *x, const void *grid,
                                        const void *dy, kn_dtype dtype, const kn__grid *g,
                                        void *work, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        if (dx) {
            cudaError_t error =
                launch_back_x(g, (T *)dx, (const T *)dy, (const T *)grid, work, stream);
            if (error != cudaSuccess) return error;
        }
        if (dgrid)
            KN_LAUNCH(grid_back_grid_kernel, blocks_for(g->batch * g->places), BLOCK, stream, *g,
                      (T *)dgrid, (const T *)x, (const T *)dy, (const T *)grid);
        return cudaGetLastError();
    });
}

}  // extern "C"
