// Places of extremes along an axis.

#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

// Which of two candidates is the first extreme; NaN wins.
template <class C>
__device__ bool before(C a, int64_t i, C b, int64_t k, bool max) {
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    return (max ? a > b : a < b) || ((a == b || a_nan) && i < k);
}

template <class T>
__device__ void store_place(int64_t *places, T *values, const T *line, int64_t r, int64_t at,
                            int64_t step) {
    if (places) places[r] = at;
    if (values) values[r] = line[at * step];
}

// A warp or a block a row.
template <int TEAM, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    place_rows_kernel(int64_t *places, T *values, const T *x, int64_t rows, int64_t n, bool max) {
    using C = computed<T>;
    KN_SHARED(part, C[BLOCK / 32]);
    KN_SHARED(part_at, int64_t[BLOCK / 32]);
    int lane = threadIdx.x % TEAM;
    int64_t n_teams = thread_count() / TEAM;
    for (int64_t r = thread_index() / TEAM; r < rows; r += n_teams) {
        const T *in = x + r * n;
        int64_t at = lane < n ? lane : 0;
        C best = load_as(in[at]);
        for (int64_t i = lane + TEAM; i < n; i += TEAM) {
            C v = load_as(in[i]);
            if (before(v, i, best, at, max)) best = v, at = i;
        }
        for (int d = 16; d > 0; d >>= 1) {
            C other = __shfl_xor_sync(0xffffffffu, best, d);
            int64_t other_at = __shfl_xor_sync(0xffffffffu, at, d);
            if (before(other, other_at, best, at, max)) best = other, at = other_at;
        }
        if (TEAM > 32) {
            if (threadIdx.x % 32 == 0)
                part[threadIdx.x / 32] = best, part_at[threadIdx.x / 32] = at;
            __syncthreads();
            for (int w = 0; w < TEAM / 32; w++)
                if (before(part[w], part_at[w], best, at, max)) best = part[w], at = part_at[w];
            __syncthreads();
        }
        if (lane == 0) store_place(places, values, in, r, at, (int64_t)1);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    place_columns_kernel(int64_t *places, T *values, const T *x, int64_t n_out, int64_t n,
                         int64_t inner, bool max) {
    using C = computed<T>;
    for (int64_t o = thread_index(); o < n_out; o += thread_count()) {
        const T *in = x + o / inner * n * inner + o % inner;
        int64_t at = 0;
        C best = load_as(in[0]);
        for (int64_t i = 1; i < n; i++) {
            C v = load_as(in[i * inner]);
            if (before(v, i, best, at, max)) best = v, at = i;
        }
        store_place(places, values, in, o, at, inner);
    }
}

}  // namespace

extern "C" cudaError_t kn__launch_place(int64_t *places, void *values, const void *x,
                                        kn_dtype dtype, bool max, kn__lines lines,
                                        cudaStream_t stream) {
    return with_any(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n_out = lines.outer * lines.inner;
        if (lines.inner > 1)
            KN_LAUNCH(place_columns_kernel<T>, blocks_for(n_out), BLOCK, stream, places,
                      (T *)values, (const T *)x, n_out, lines.n, lines.inner, max);
        else if (lines.n <= 1024)
            KN_LAUNCH((place_rows_kernel<32, T>), blocks_for(n_out * 32), BLOCK, stream, places,
                      (T *)values, (const T *)x, n_out, lines.n, max);
        else
            KN_LAUNCH((place_rows_kernel<BLOCK, T>), blocks_for(n_out, 1), BLOCK, stream, places,
                      (T *)values, (const T *)x, n_out, lines.n, max);
        return cudaGetLastError();
    });
}
