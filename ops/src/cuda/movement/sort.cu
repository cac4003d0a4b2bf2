// Stable sorts of small keys with the places they came from, by four bits at a time, and sums
// before each entry of an array. No atomics: the order is that of the places, each time.

#include "cuda/movement/scan.cuh"

namespace {

using namespace kn_dev;

enum { BITS = 4, DIGITS = 1 << BITS, ITEMS = 8, TILE = BLOCK * ITEMS };

struct digit_counts {
    int of[DIGITS][BLOCK];  // of each thread's items
    int group[DIGITS][SCAN_GROUP];
};

__device__ int digit_of(int64_t key, int shift) { return (int)(key >> shift) & (DIGITS - 1); }

// Counts the digits of the block's tile: c.of holds, for each digit, those of the threads before.
// Returns the tile's count of digit threadIdx.x / SCAN_GROUP.
__device__ int count_digits(digit_counts &c, const int64_t *keys, int64_t n, int64_t first,
                            int shift) {
    int t = (int)threadIdx.x, digit = t / SCAN_GROUP, part = t % SCAN_GROUP;
    for (int d = 0; d < DIGITS; d++) c.of[d][t] = 0;
    for (int j = 0; j < ITEMS; j++) {
        int64_t i = first + (int64_t)t * ITEMS + j;
        if (i < n) c.of[digit_of(keys[i], shift)][t]++;
    }
    __syncthreads();
    int sum = 0, before = 0, all = 0;
    for (int k = 0; k < SCAN_GROUP; k++) sum += c.of[digit][part * SCAN_GROUP + k];
    c.group[digit][part] = sum;
    __syncthreads();
    for (int k = 0; k < SCAN_GROUP; k++) {
        before += k < part ? c.group[digit][k] : 0;
        all += c.group[digit][k];
    }
    for (int k = 0; k < SCAN_GROUP; k++) {
        int here = c.of[digit][part * SCAN_GROUP + k];
        c.of[digit][part * SCAN_GROUP + k] = before;
        before += here;
    }
    __syncthreads();
    return all;
}

// sums [DIGITS, n_tiles]
__global__ void __launch_bounds__(BLOCK, 1)
    sort_count_kernel(int64_t *sums, const int64_t *keys, int64_t n, int64_t n_tiles, int shift) {
    KN_SHARED(c, digit_counts);
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int all = count_digits(c, keys, n, tile * TILE, shift);
        if (threadIdx.x % SCAN_GROUP == 0) sums[threadIdx.x / SCAN_GROUP * n_tiles + tile] = all;
        __syncthreads();
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

__global__ void __launch_bounds__(BLOCK, 1)
    sort_move_kernel(int64_t *to_keys, int64_t *to_places, const int64_t *keys,
                     const int64_t *places, const int64_t *sums, int64_t n, int64_t n_tiles,
                     int shift) {
    KN_SHARED(c, digit_counts);
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        count_digits(c, keys, n, tile * TILE, shift);
        for (int j = 0; j < ITEMS; j++) {
            int64_t i = tile * TILE + (int64_t)threadIdx.x * ITEMS + j;
            if (i >= n) break;
            int digit = digit_of(keys[i], shift);
            int64_t to = sums[digit * n_tiles + tile] + c.of[digit][threadIdx.x]++;
            to_keys[to] = keys[i];
            to_places[to] = places[i];
        }
        __syncthreads();
    }
}

}  // namespace

extern "C" {

cudaError_t kn__launch_sums_before(int64_t *x, int64_t n, int64_t *total, cudaStream_t stream) {
    KN_LAUNCH(scan_kernel, 1, BLOCK, stream, x, n, total);
    return cudaGetLastError();
}

int64_t kn__key_sort_sums(int64_t n) { return (n + TILE - 1) / TILE * DIGITS; }

cudaError_t kn__launch_key_sort(kn__key_sort *s, cudaStream_t stream) {
    int64_t n_tiles = (s->n + TILE - 1) / TILE;
    for (int shift = 0; s->most >> shift; shift += BITS) {
        KN_LAUNCH(sort_count_kernel, blocks_for(n_tiles, 1), BLOCK, stream, s->sums, s->keys, s->n,
                  n_tiles, shift);
        KN_LAUNCH(scan_kernel, 1, BLOCK, stream, s->sums, n_tiles * DIGITS, (int64_t *)NULL);
        KN_LAUNCH(sort_move_kernel, blocks_for(n_tiles, 1), BLOCK, stream, s->other_keys,
                  s->other_places, s->keys, s->places, s->sums, s->n, n_tiles, shift);
        int64_t *keys = s->keys, *places = s->places;
        s->keys = s->other_keys, s->other_keys = keys;
        s->places = s->other_places, s->other_places = places;
        cudaError_t error = cudaGetLastError();
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // extern "C"
