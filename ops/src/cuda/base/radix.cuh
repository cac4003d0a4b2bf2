// Stable radix sorts of keys with the places they came from, lines of n each, by eight bits at a
// time. A line of at most LINE_KEYS_MAX keys is sorted by one block in shared memory; longer ones
// take three kernels a digit: counts of each tile, sums over the tiles before, moves. No atomics:
// each warp ranks its own items, in order, so the result is the same each time.
//
// A Source has K key(line, i) and int64_t place(line, i): what the sort begins with.
#ifndef KN_CUDA_RADIX_CUH
#define KN_CUDA_RADIX_CUH

#include "cuda/base/device.cuh"

namespace kn_dev {

// A thread of the block looks after a digit.
enum { RADIX_BITS = 8, DIGITS = 1 << RADIX_BITS, WARPS = BLOCK / 32 };
enum { TILE_ITEMS = 8, RADIX_TILE = BLOCK * TILE_ITEMS };  // of a thread; of a block
enum { FEW_ITEMS = 4, LINE_ITEMS = 16, LINE_KEYS_MAX = BLOCK * LINE_ITEMS };
static_assert((int)DIGITS == (int)BLOCK, "a digit a thread");

struct digit_counts {
    uint32_t of[WARPS][DIGITS];  // of a warp's items; then of those of the warps before
    uint32_t first[DIGITS], warp_sums[WARPS];
};

template <class K>
__device__ int digit_of(K key, int shift) {
    return (int)(key >> shift) & (DIGITS - 1);
}

// The lanes of this one's digit.
__device__ inline unsigned peers_of(int digit) {
    unsigned peers = 0xffffffffu;
#pragma unroll
    for (int b = 0; b < RADIX_BITS; b++) {
        unsigned ones = __ballot_sync(0xffffffffu, digit >> b & 1);
        peers &= digit >> b & 1 ? ones : ~ones;
    }
    return peers;
}

template <class T>
__device__ T warp_sum_to(T x) {  // with the lanes before
    int lane = threadIdx.x % 32;
    for (int d = 1; d < 32; d *= 2) {
        T y = __shfl_up_sync(0xffffffffu, x, d);
        if (lane >= d) x += y;
    }
    return x;
}

// The sum of x over the threads before this one.
template <class T>
__device__ T block_sum_before(T x, T (&warp_sums)[WARPS]) {
    int warp = threadIdx.x / 32;
    T sum = warp_sum_to(x) - x;
    if (threadIdx.x % 32 == 31) warp_sums[warp] = sum + x;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += warp_sums[w];
    return sum;
}

// Item j of a thread: a warp has neighbours, the first items first.
template <int ITEMS>
__device__ int item_at(int j) {
    return (int)threadIdx.x / 32 * 32 * ITEMS + j * 32 + (int)threadIdx.x % 32;
}

// Ranks each item among those of its warp and digit. Returns the block's count of digit
// threadIdx.x; `c.of` holds the counts of the warps before.
template <int ITEMS, class K>
__device__ uint32_t count_items(int (&rank)[ITEMS], digit_counts &c, const K (&key)[ITEMS],
                                int shift) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int w = 0; w < WARPS; w++) c.of[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        int digit = digit_of(key[j], shift);
        unsigned peers = peers_of(digit), before = peers & ((1u << lane) - 1);
        uint32_t count = c.of[warp][digit];
        rank[j] = (int)count + __popc(before);
        __syncwarp();
        if (!before) c.of[warp][digit] = count + (uint32_t)__popc(peers);
        __syncwarp();
    }
    __syncthreads();
    uint32_t sum = 0;
    for (int w = 0; w < WARPS; w++) {
        uint32_t here = c.of[w][threadIdx.x];
        c.of[w][threadIdx.x] = sum;
        sum += here;
    }
    return sum;
}

// Where each of the block's items goes in the order of their digits, and c.first: each digit.
// A barrier must follow before the next call.
template <int ITEMS, class K>
__device__ void rank_items(int (&to)[ITEMS], digit_counts &c, const K (&key)[ITEMS], int shift) {
    uint32_t count = count_items(to, c, key, shift);
    c.first[threadIdx.x] = block_sum_before(count, c.warp_sums);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        int digit = digit_of(key[j], shift);
        to[j] += (int)(c.first[digit] + c.of[threadIdx.x / 32][digit]);
    }
}

template <int ITEMS, class T>
__device__ void exchange(T (&v)[ITEMS], T *space, const int (&to)[ITEMS]) {
    for (int j = 0; j < ITEMS; j++) space[to[j]] = v[j];
    __syncthreads();
    for (int j = 0; j < ITEMS; j++) v[j] = space[item_at<ITEMS>(j)];
    __syncthreads();
}

template <class K, int ITEMS>
struct line_space {
    digit_counts counts;
    K item[BLOCK * ITEMS];
};

// Loads a line of n and sorts it by bits low … high - 1; items beyond n come last.
template <int ITEMS, class K, class Source>
__device__ void sort_line(K (&key)[ITEMS], K (&place)[ITEMS], line_space<K, ITEMS> &s,
                          const Source &source, int64_t line, int64_t n, int low, int high) {
    for (int j = 0; j < ITEMS; j++) {
        int64_t i = item_at<ITEMS>(j);
        key[j] = i < n ? (K)source.key(line, i) : (K) ~(K)0;
        place[j] = i < n ? (K)source.place(line, i) : 0;
    }
#pragma unroll 1
    for (int shift = low; shift < high; shift += RADIX_BITS) {
        int to[ITEMS];
        rank_items(to, s.counts, key, shift);
        exchange(key, s.item, to);
        exchange(place, s.item, to);
    }
}

// A block a line. sink(line, i, key, place) takes item i of the sorted line.
template <class K, int ITEMS, class Source, class Sink>
__global__ void __launch_bounds__(BLOCK, 1)
    sort_line_kernel(Source source, Sink sink, int64_t n_lines, int64_t n, int low, int high) {
    KN_SHARED(space, line_space<K, ITEMS>);
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        K key[ITEMS], place[ITEMS];
        sort_line(key, place, space, source, line, n, low, high);
        for (int j = 0; j < ITEMS; j++) {
            int64_t i = item_at<ITEMS>(j);
            if (i < n) sink(line, i, key[j], place[j]);
        }
    }
}

template <class K>
struct key_array {
    const K *keys, *places;
    int64_t n;
    __device__ K key(int64_t line, int64_t i) const { return keys[line * n + i]; }
    __device__ int64_t place(int64_t line, int64_t i) const {
        return (int64_t)places[line * n + i];
    }
};
template <class K>
struct store_keys {
    K *keys, *places;
    int64_t n;
    __device__ void operator()(int64_t line, int64_t i, K key, K place) const {
        keys[line * n + i] = key, places[line * n + i] = place;
    }
};

// counts [line][DIGITS][n_tiles]
template <class K, class Source>
__global__ void __launch_bounds__(BLOCK, 1)
    radix_count_kernel(int64_t *counts, Source source, int64_t n_lines, int64_t n, int64_t n_tiles,
                       int shift) {
    KN_SHARED(c, digit_counts);
    for (int64_t b = blockIdx.x; b < n_lines * n_tiles; b += gridDim.x) {
        int64_t line = b / n_tiles, tile = b - line * n_tiles, from = tile * RADIX_TILE;
        K key[TILE_ITEMS];
        int rank[TILE_ITEMS];
        for (int j = 0; j < TILE_ITEMS; j++) {
            int64_t i = from + item_at<TILE_ITEMS>(j);
            key[j] = i < n ? (K)source.key(line, i) : (K) ~(K)0;
        }
        int64_t count = count_items(rank, c, key, shift), beyond = from + RADIX_TILE - n;
        if (threadIdx.x == DIGITS - 1 && beyond > 0) count -= beyond;
        counts[(line * DIGITS + threadIdx.x) * n_tiles + tile] = count;
        __syncthreads();
    }
}

// A warp a row: counts become the sums of those before; totals: of a row.
inline __global__ void __launch_bounds__(BLOCK, 1)
    radix_scan_kernel(int64_t *counts, int64_t *totals, int64_t n_rows, int64_t n_tiles) {
    int lane = threadIdx.x % 32;
    for (int64_t row = thread_index() / 32; row < n_rows; row += thread_count() / 32) {
        int64_t *x = counts + row * n_tiles, sum = 0;
        for (int64_t i = lane; i - lane < n_tiles; i += 32) {
            int64_t here = i < n_tiles ? x[i] : 0, to = warp_sum_to(here);
            if (i < n_tiles) x[i] = sum + to - here;
            sum += warp_join<op_sum>(here);
        }
        if (lane == 0) totals[row] = sum;
    }
}

// Items go through shared memory, so that those of a digit are written side by side.
template <class K>
struct move_space {
    digit_counts counts;
    int64_t base[DIGITS], warp_sums[WARPS];
    K item[RADIX_TILE];
};

template <class K, class Source>
__global__ void __launch_bounds__(BLOCK, 1)
    radix_move_kernel(store_keys<K> out, Source source, const int64_t *counts,
                      const int64_t *totals, int64_t n_lines, int64_t n, int64_t n_tiles,
                      int shift) {
    KN_SHARED(s, move_space<K>);
    int t = (int)threadIdx.x;
    for (int64_t b = blockIdx.x; b < n_lines * n_tiles; b += gridDim.x) {
        int64_t line = b / n_tiles, tile = b - line * n_tiles, from = tile * RADIX_TILE;
        int64_t row = line * DIGITS + t;
        K key[TILE_ITEMS], place[TILE_ITEMS];
        int to[TILE_ITEMS];
        for (int j = 0; j < TILE_ITEMS; j++) {
            int64_t i = from + item_at<TILE_ITEMS>(j);
            key[j] = i < n ? (K)source.key(line, i) : (K) ~(K)0;
            place[j] = i < n ? (K)source.place(line, i) : 0;
        }
        rank_items(to, s.counts, key, shift);
        int64_t before = block_sum_before(totals[row], s.warp_sums);
        s.base[t] = before + counts[row * n_tiles + tile] - (int64_t)s.counts.first[t];
        exchange(key, s.item, to);
        exchange(place, s.item, to);
        for (int j = 0; j < TILE_ITEMS; j++) {
            int i = item_at<TILE_ITEMS>(j);
            if (from + i < n) out(line, s.base[digit_of(key[j], shift)] + i, key[j], place[j]);
        }
        __syncthreads();
    }
}

// --- launching ---

inline int bits_of(int64_t most) {
    int bits = 1;
    while (bits < 63 && most >> bits) bits++;
    return bits;
}

// Whether keys up to `most`, and places, need 64 bits.
inline bool is_wide(int64_t n, int64_t most) { return n > KN_INDEX_MAX || most >= KN_INDEX_MAX; }

inline int64_t radix_tiles(int64_t n) { return (n + RADIX_TILE - 1) / RADIX_TILE; }

// Bytes of work space: two arrays of keys and of places, and counts.
inline size_t radix_bytes(int64_t n_lines, int64_t n, size_t key_bytes) {
    size_t items = (size_t)(n_lines * n) * key_bytes;
    if (n <= LINE_KEYS_MAX) return (2 * items + 15) / 16 * 16;
    return (4 * items + 15) / 16 * 16 +
           (size_t)(n_lines * DIGITS * (radix_tiles(n) + 1)) * sizeof(int64_t);
}

template <class K, class Source, class Sink>
void launch_sort_lines(const Source &source, const Sink &sink, int64_t n_lines, int64_t n, int low,
                       int high, cudaStream_t stream) {
    unsigned blocks = blocks_for(n_lines, 1);
    if (n <= BLOCK * FEW_ITEMS)
        KN_LAUNCH((sort_line_kernel<K, FEW_ITEMS>), blocks, BLOCK, stream, source, sink, n_lines, n,
                  low, high);
    else
        KN_LAUNCH((sort_line_kernel<K, LINE_ITEMS>), blocks, BLOCK, stream, source, sink, n_lines,
                  n, low, high);
}

// Sorts by bits low … high - 1 of the keys, of at least one; *out: in work.
template <class K, class Source>
cudaError_t launch_radix(key_array<K> *out, const Source &source, int64_t n_lines, int64_t n,
                         int low, int high, void *work, cudaStream_t stream) {
    int64_t items = n_lines * n, n_tiles = radix_tiles(n), n_rows = n_lines * DIGITS;
    K *space = (K *)work;
    store_keys<K> to = {space, space + items, n};
    *out = {to.keys, to.places, n};
    if (n <= LINE_KEYS_MAX) {
        launch_sort_lines<K>(source, to, n_lines, n, low, high, stream);
        return cudaGetLastError();
    }
    int64_t *counts = (int64_t *)((char *)work + ((size_t)(4 * items) * sizeof(K) + 15) / 16 * 16);
    int64_t *totals = counts + n_rows * n_tiles;
    unsigned blocks = blocks_for(n_lines * n_tiles, 1);
    auto pass = [&](const auto &from, int shift) {
        using From = typename std::decay<decltype(from)>::type;
        KN_LAUNCH((radix_count_kernel<K, From>), blocks, BLOCK, stream, counts, from, n_lines, n,
                  n_tiles, shift);
        KN_LAUNCH(radix_scan_kernel, blocks_for(n_rows, WARPS), BLOCK, stream, counts, totals,
                  n_rows, n_tiles);
        KN_LAUNCH((radix_move_kernel<K, From>), blocks, BLOCK, stream, to, from, counts, totals,
                  n_lines, n, n_tiles, shift);
        *out = {to.keys, to.places, n};
        bool first = to.keys == space;
        to = {first ? space + 2 * items : space, first ? space + 3 * items : space + items, n};
        return cudaGetLastError();
    };
    cudaError_t error = pass(source, low);
    for (int shift = low + RADIX_BITS; shift < high && error == cudaSuccess; shift += RADIX_BITS)
        error = pass(key_array<K>(*out), shift);
    return error;
}

}  // namespace kn_dev
#endif
