// Places of extremes along an axis. Long lines of few results are cut into chunks; a second launch
// joins the results of the chunks.

#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

enum { WARPS = BLOCK / 32, AT_ONCE = 4 };  // loads of a thread in flight

template <class C>
struct candidate {
    C v;
    int64_t at;
};

// Whether a is the extreme of both; NaN wins, and of equals the earlier b.
template <bool MAX, class C>
__device__ bool beats(C a, C b) {
    return !(MAX ? a <= b : a >= b) & (b == b);
}

// A later element. Without branches, which lanes would take one after the other.
template <bool MAX, class C>
__device__ void offer(candidate<C> &best, C v, int64_t at) {
    bool wins = beats<MAX>(v, best.v);
    best.v = wins ? v : best.v;
    best.at = wins ? at : best.at;
}

// The first extreme of both.
template <bool MAX, class C>
__device__ candidate<C> first_of(candidate<C> a, candidate<C> b) {
    if (beats<MAX>(b.v, a.v)) return b;
    return b.at < a.at && !beats<MAX>(a.v, b.v) ? b : a;
}

template <bool MAX, class C>
__device__ candidate<C> warp_first(candidate<C> c) {
    for (int d = 16; d > 0; d >>= 1)
        c = first_of<MAX>(c, candidate<C>{__shfl_xor_sync(0xffffffffu, c.v, d),
                                          __shfl_xor_sync(0xffffffffu, c.at, d)});
    return c;
}

template <class T>
struct place_job {
    int64_t *places;  // or NULL
    T *values;        // or NULL
    const T *x;
    kn__lines lines;
    int64_t n_chunks, chunk;
    candidate<computed<T>> *parts;  // [n_chunks][results]; NULL: results are stored
};

// Stores the candidate of chunk r / n_out of result r % n_out.
template <class T>
__device__ void store(const place_job<T> &j, int64_t r, candidate<computed<T>> c) {
    if (j.parts) {
        j.parts[r] = c;
        return;
    }
    if (j.places) j.places[r] = c.at;
    int64_t inner = j.lines.inner, outer = inner == 1 ? r : r / inner;
    if (j.values) j.values[r] = j.x[(outer * j.lines.n + c.at) * inner + (r - outer * inner)];
}

// A warp or a block a row, which reads V elements at a time.
template <bool MAX, int TEAM, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1) place_rows_kernel(place_job<T> j) {
    using C = computed<T>;
    constexpr int STEP = TEAM * V;
    KN_SHARED(part, candidate<C>[WARPS]);
    int lane = threadIdx.x % TEAM;
    int64_t n_out = j.lines.outer, n_teams = thread_count() / TEAM;
    for (int64_t r = thread_index() / TEAM; r < n_out * j.n_chunks; r += n_teams) {
        int64_t chunk = j.n_chunks == 1 ? 0 : r / n_out, begin = chunk * j.chunk;
        int64_t end = min(begin + j.chunk, j.lines.n), i = begin + lane * V;
        const T *in = j.x + (r - chunk * n_out) * j.lines.n;
        candidate<C> best = {load_as(in[begin]), begin};
        for (; i + (AT_ONCE - 1) * STEP < end; i += AT_ONCE * STEP) {
            pack<T, V> p[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                p[u] = *reinterpret_cast<const pack<T, V> *>(in + i + u * STEP);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    offer<MAX, C>(best, load_as(p[u].v[k]), i + u * STEP + k);
        }
        for (; i < end; i += STEP)
            for (int k = 0; k < V; k++) offer<MAX, C>(best, load_as(in[i + k]), i + k);
        best = warp_first<MAX>(best);
        if (TEAM > 32) {
            if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = best;
            __syncthreads();
            for (int w = 0; w < TEAM / 32; w++) best = first_of<MAX>(best, part[w]);
            __syncthreads();
        }
        if (lane == 0) store(j, r, best);
    }
}

// A block 32 neighbouring columns, whose rows are its warps' in turn.
template <bool MAX, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    place_columns_kernel(place_job<T> j, int64_t n_groups, int64_t n_out) {
    using C = computed<T>;
    KN_SHARED(part, candidate<C>[WARPS][32]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t n = j.lines.n, inner = j.lines.inner;
    for (int64_t b = blockIdx.x; b < n_groups * j.n_chunks; b += gridDim.x) {
        int64_t chunk = b / n_groups, o = (b - chunk * n_groups) * 32 + lane;
        int64_t begin = chunk * j.chunk, end = min(begin + j.chunk, n), outer = o / inner;
        candidate<C> best = {};
        if (o < n_out) {
            const T *in = j.x + outer * n * inner + (o - outer * inner);
            best = {load_as(in[begin * inner]), begin};
            int64_t i = begin + warp;
            for (; i + (AT_ONCE - 1) * WARPS < end; i += AT_ONCE * WARPS) {
                T v[AT_ONCE];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) v[u] = in[(i + u * WARPS) * inner];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) offer<MAX, C>(best, load_as(v[u]), i + u * WARPS);
            }
            for (; i < end; i += WARPS) offer<MAX, C>(best, load_as(in[i * inner]), i);
        }
        part[warp][lane] = best;
        __syncthreads();
        if (warp == 0 && o < n_out) {
            for (int w = 1; w < WARPS; w++) best = first_of<MAX>(best, part[w][lane]);
            store(j, chunk * n_out + o, best);
        }
        __syncthreads();
    }
}

// A warp a result.
template <bool MAX, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    place_join_kernel(place_job<T> j, const candidate<computed<T>> *parts, int64_t n_out) {
    int lane = threadIdx.x % 32;
    for (int64_t r = thread_index() / 32; r < n_out; r += thread_count() / 32) {
        candidate<computed<T>> best = parts[r];
        for (int64_t c = lane; c < j.n_chunks; c += 32)
            best = first_of<MAX>(best, parts[c * n_out + r]);
        best = warp_first<MAX>(best);
        if (lane == 0) store(j, r, best);
    }
}

// A warp reads a row of middling length as fast as a block does, if there are enough of them.
bool by_warps(int64_t rows, int64_t n) { return n <= 1024 || (rows >= 4096 && n <= 8192); }

template <bool MAX, int V, class T>
void launch_rows(const place_job<T> &j, cudaStream_t stream) {
    int64_t rows = j.lines.outer * j.n_chunks;
    if (by_warps(rows, j.chunk))
        KN_LAUNCH((place_rows_kernel<MAX, 32, V, T>), blocks_for(rows, WARPS), BLOCK, stream, j);
    else
        KN_LAUNCH((place_rows_kernel<MAX, BLOCK, V, T>), blocks_for(rows, 1), BLOCK, stream, j);
}

template <bool MAX, class T>
cudaError_t launch(place_job<T> j, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    int64_t n_out = j.lines.outer * j.lines.inner, n_groups = (n_out + 31) / 32;
    const candidate<computed<T>> *parts = j.parts;
    if (j.lines.inner > 1)
        KN_LAUNCH((place_columns_kernel<MAX, T>), blocks_for(n_groups * j.n_chunks, 1), BLOCK,
                  stream, j, n_groups, n_out);
    else if (j.lines.n % V == 0 && aligned(j.x, 16))
        launch_rows<MAX, V>(j, stream);
    else
        launch_rows<MAX, 1>(j, stream);
    if (j.n_chunks == 1) return cudaGetLastError();
    j.parts = nullptr;
    KN_LAUNCH((place_join_kernel<MAX, T>), blocks_for(n_out, WARPS), BLOCK, stream, j, parts,
              n_out);
    return cudaGetLastError();
}

}  // namespace

extern "C" {

void kn__place_plan(kn__place_args *p) {
    // Blocks that fill any GPU, each with some turns of its warps.
    enum { BLOCKS = 1024, ROW_CHUNK = 2048, COLUMN_CHUNK = 32 };
    const kn__lines &lines = p->lines;
    bool rows = lines.inner == 1;
    int64_t groups = rows ? lines.outer : (lines.outer * lines.inner + 31) / 32;
    int64_t wanted = BLOCKS / groups, most = lines.n / (rows ? ROW_CHUNK : COLUMN_CHUNK);
    int64_t n_chunks = wanted < most ? wanted : most;
    if (n_chunks < 2) n_chunks = 1;
    p->chunk = (lines.n + n_chunks - 1) / n_chunks;
    if (n_chunks > 1) p->chunk = (p->chunk + 15) / 16 * 16;  // whole packs
    p->n_chunks = (lines.n + p->chunk - 1) / p->chunk;
}

cudaError_t kn__launch_place(const kn__place_args *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        place_job<T> j = {p->places,
                          (T *)p->values,
                          (const T *)p->in,
                          p->lines,
                          p->n_chunks,
                          p->chunk,
                          (candidate<computed<T>> *)p->parts};
        return p->max ? launch<true>(j, stream) : launch<false>(j, stream);
    });
}

}  // extern "C"
