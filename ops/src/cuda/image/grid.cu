// Samples of images at the places of a grid. Forward, and back to the grid: a thread a place, which
// walks over the channels. Back to x: a warp a channel of an image walks over all places, and each
// lane adds to every 32nd row, so that sums have one order without atomics.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

template <class T>
__device__ kn__corners corners_of(const kn__grid &g, const T *grid, int64_t b, int64_t place) {
    const T *at = grid + 2 * (b * g.places + place);
    return kn__grid_corners(&g, (double)at[0], (double)at[1]);
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
                if (c.at[k] >= 0) sum += (T)c.weight[k] * x[channel * plane + c.at[k]];
            y[channel * g.places + place] = sum;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_back_x_kernel(const __grid_constant__ kn__grid g, T *dx, const T *dy, const T *grid) {
    int64_t n = g.batch * g.channels, plane = g.in[0] * g.in[1];
    int lane = threadIdx.x % 32;
    for (int64_t channel = thread_index() / 32; channel < n; channel += thread_count() / 32) {
        for (int64_t place = 0; place < g.places; place++) {
            kn__corners c = corners_of(g, grid, channel / g.channels, place);
            T d = dy[channel * g.places + place];
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (c.at[k] >= 0 && c.at[k] / g.in[1] % 32 == lane)
                    dx[channel * plane + c.at[k]] += (T)c.weight[k] * d;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    grid_back_grid_kernel(const __grid_constant__ kn__grid g, T *dgrid, const T *x, const T *dy,
                          const T *grid) {
    int64_t n = g.batch * g.places, plane = g.in[0] * g.in[1];
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t b = i / g.places, place = i % g.places;
        kn__corners c = corners_of(g, grid, b, place);
        T column = T(0), row = T(0);
        for (int64_t channel = b * g.channels; channel < (b + 1) * g.channels; channel++) {
            T d = dy[channel * g.places + place];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                T part = c.at[k] >= 0 ? d * x[channel * plane + c.at[k]] : T(0);
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

cudaError_t kn__launch_grid_sample_back(void *dx, void *dgrid, const void *x, const void *grid,
                                        const void *dy, kn_dtype dtype, const kn__grid *g,
                                        cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        if (dx)
            KN_LAUNCH(grid_back_x_kernel, blocks_for(g->batch * g->channels, BLOCK / 32), BLOCK,
                      stream, *g, (T *)dx, (const T *)dy, (const T *)grid);
        if (dgrid)
            KN_LAUNCH(grid_back_grid_kernel, blocks_for(g->batch * g->places), BLOCK, stream, *g,
                      (T *)dgrid, (const T *)x, (const T *)dy, (const T *)grid);
        return cudaGetLastError();
    });
}

}  // extern "C"
