// Reductions over any axes. A result is joined from chunks in a fixed order, so its bits depend on
// the shape alone: no atomics, no dependence on the GPU.
//
// Where the fastest reduced dimension is dense, a warp or a block makes one result and reads along
// it, in packs of 16 bytes where its length allows that. Where the fastest kept dimension is dense,
// 32 neighbouring results are made by a block whose warps read along that one.

#include "device.cuh"

namespace {

using namespace kn_dev;

enum { WARPS = BLOCK / 32 };

struct index_space {
    int n_dims;
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX];
};

__device__ int64_t offset_of(const index_space &s, int64_t i) {
    if (s.n_dims == 1) return i * s.stride[0];
    int64_t at = 0;
    for (int d = s.n_dims - 1; d > 0; d--) {
        // 32-bit division where it suffices: several times cheaper
        int64_t outer = i <= UINT32_MAX && s.dim[d] <= UINT32_MAX
                            ? (int64_t)((uint32_t)i / (uint32_t)s.dim[d])
                            : i / s.dim[d];
        at += (i - outer * s.dim[d]) * s.stride[d];
        i = outer;
    }
    return s.n_dims ? at + i * s.stride[0] : 0;
}

template <class T>
struct job {  // one pass: chunk c of result o goes to out[c·n_out + o]
    const T *in;
    T *out;
    index_space kept, reduced;
    int64_t n_out, n_in, n_chunks, chunk;
    T scale;
    bool accumulate;
};

template <class T>
__device__ void finish(const job<T> &j, int64_t at, T value) {
    value *= j.scale;
    j.out[at] = j.accumulate ? j.out[at] + value : value;
}

// Joins elements begin … end - 1 of what is reduced into acc, V neighbours at a time.
template <class Op, int TEAM, int V, bool WIDE, class T, class F>
__device__ void join_range(T (&acc)[V], const T *in, int64_t begin, int64_t end, F offset) {
    int64_t i = begin + threadIdx.x % TEAM * V;
#pragma unroll 4
    for (; i + V <= end; i += TEAM * V) {
        const T *at = in + offset(i);
        pack<T, V> x;
        if (WIDE) x = *reinterpret_cast<const pack<T, V> *>(at);
#pragma unroll
        for (int k = 0; k < V; k++) acc[k] = Op::join(acc[k], WIDE ? x.v[k] : at[k]);
    }
    for (; i < end; i++) acc[0] = Op::join(acc[0], in[offset(i)]);
}

template <class Op, int TEAM, int V, bool WIDE, class T>
__global__ void __launch_bounds__(BLOCK, 1) rows_kernel(job<T> j) {
    int lane = threadIdx.x % TEAM;
    int64_t team = thread_index() / TEAM, n_teams = thread_count() / TEAM;
    for (int64_t r = team; r < j.n_out * j.n_chunks; r += n_teams) {
        int64_t c = r / j.n_out, o = r - c * j.n_out;
        int64_t begin = c * j.chunk, end = min(begin + j.chunk, j.n_in);
        const T *in = j.in + offset_of(j.kept, o);
        T acc[V];
        for (int k = 0; k < V; k++) acc[k] = Op::template identity<T>();
        if (j.reduced.n_dims == 1 && j.reduced.stride[0] == 1)
            join_range<Op, TEAM, V, WIDE>(acc, in, begin, end, [](int64_t i) { return i; });
        else
            join_range<Op, TEAM, V, WIDE>(acc, in, begin, end,
                                          [&](int64_t i) { return offset_of(j.reduced, i); });
        T value = acc[0];
        for (int k = 1; k < V; k++) value = Op::join(value, acc[k]);
        value = team_join<Op, TEAM>(value);
        if (lane == 0) finish(j, r, value);
    }
}

template <class Op, class T>
__global__ void __launch_bounds__(BLOCK, 1) columns_kernel(job<T> j, int64_t n_groups) {
    KN_SHARED(part, T[WARPS][32]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t b = blockIdx.x; b < n_groups * j.n_chunks; b += gridDim.x) {
        int64_t c = b / n_groups, o = (b - c * n_groups) * 32 + lane;
        int64_t end = min((c + 1) * j.chunk, j.n_in);
        T value = Op::template identity<T>();
        if (o < j.n_out) {
            const T *in = j.in + offset_of(j.kept, o);
            for (int64_t i = c * j.chunk + warp; i < end; i += WARPS)
                value = Op::join(value, in[offset_of(j.reduced, i)]);
        }
        part[warp][lane] = value;
        __syncthreads();
        if (warp == 0 && o < j.n_out) {
            for (int k = 1; k < WARPS; k++) value = Op::join(value, part[k][lane]);
            finish(j, c * j.n_out + o, value);
        }
        __syncthreads();
    }
}

bool along_rows(const index_space &kept, const index_space &reduced) {
    if (kept.n_dims == 0 || reduced.n_dims == 0) return true;
    return reduced.stride[reduced.n_dims - 1] <= kept.stride[kept.n_dims - 1];
}

// Whether V neighbours of what is reduced stand side by side and, where the input is aligned, at an
// aligned address. The input is dense: other strides are multiples of the innermost kept one.
bool in_packs(const index_space &kept, const index_space &reduced, int V) {
    return reduced.n_dims && reduced.stride[reduced.n_dims - 1] == 1 &&
           (kept.n_dims == 0 || kept.stride[kept.n_dims - 1] % V == 0);
}

template <class Op, int V, bool WIDE, class T>
cudaError_t launch_rows(const job<T> &j, cudaStream_t stream) {
    int64_t work = j.n_out * j.n_chunks;
    if (j.chunk <= 1024)
        KN_LAUNCH((rows_kernel<Op, 32, V, WIDE>), blocks_for(work, WARPS), BLOCK, stream, j);
    else
        KN_LAUNCH((rows_kernel<Op, BLOCK, V, WIDE>), blocks_for(work, 1), BLOCK, stream, j);
    return cudaGetLastError();
}

template <class Op, class T>
cudaError_t launch_pass(const job<T> &j, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    if (along_rows(j.kept, j.reduced)) {
        if (!in_packs(j.kept, j.reduced, V)) return launch_rows<Op, 1, false>(j, stream);
        return aligned(j.in, 16) ? launch_rows<Op, V, true>(j, stream)
                                 : launch_rows<Op, V, false>(j, stream);
    }
    int64_t n_groups = (j.n_out + 31) / 32;
    KN_LAUNCH(columns_kernel<Op>, blocks_for(n_groups * j.n_chunks, 1), BLOCK, stream, j, n_groups);
    return cudaGetLastError();
}

index_space space(int n_dims, const int64_t *dim, const int64_t *stride) {
    index_space s = {};
    s.n_dims = n_dims;
    for (int d = 0; d < n_dims; d++) s.dim[d] = dim[d], s.stride[d] = stride[d];
    return s;
}

template <class Op, class T>
cudaError_t launch_typed(const kn__reduce *r, cudaStream_t stream) {
    T scale = r->kind == KN__REDUCE_MEAN ? T(1) / (T)r->n_in : T(1);
    job<T> j = {(const T *)r->in,
                (T *)r->out,
                space(r->n_kept, r->kept_dim, r->kept_stride),
                space(r->n_reduced, r->reduced_dim, r->reduced_stride),
                r->n_out,
                r->n_in,
                r->n_chunks,
                r->chunk,
                scale,
                r->accumulate};
    if (r->n_chunks == 1) return launch_pass<Op>(j, stream);
    j.out = (T *)r->partial, j.scale = T(1), j.accumulate = false;
    cudaError_t error = launch_pass<Op>(j, stream);
    if (error != cudaSuccess) return error;
    index_space results = {r->n_out > 1, {r->n_out}, {1}}, chunks = {1, {r->n_chunks}, {r->n_out}};
    job<T> last = {(const T *)r->partial, (T *)r->out, results,     chunks, r->n_out,
                   r->n_chunks,           1,           r->n_chunks, scale,  r->accumulate};
    return launch_pass<Op>(last, stream);
}

// Which of two candidates is the first maximum; NaN counts as the largest.
template <class T>
__device__ bool before(T a, int64_t i, T b, int64_t k) {
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    return a > b || ((a == b || a_nan) && i < k);
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    argmax_rows_kernel(int64_t *out, const T *x, int64_t rows, int64_t n) {
    int lane = threadIdx.x % 32;
    for (int64_t r = thread_index() / 32; r < rows; r += thread_count() / 32) {
        int64_t at = lane < n ? lane : 0;
        T best = x[r * n + at];
        for (int64_t i = lane + 32; i < n; i += 32)
            if (before(x[r * n + i], i, best, at)) best = x[r * n + i], at = i;
        for (int d = 16; d > 0; d >>= 1) {
            T other = __shfl_xor_sync(0xffffffffu, best, d);
            int64_t other_at = __shfl_xor_sync(0xffffffffu, at, d);
            if (before(other, other_at, best, at)) best = other, at = other_at;
        }
        if (lane == 0) out[r] = at;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    argmax_columns_kernel(int64_t *out, const T *x, int64_t n_out, int64_t n, int64_t inner) {
    for (int64_t o = thread_index(); o < n_out; o += thread_count()) {
        const T *in = x + o / inner * n * inner + o % inner;
        int64_t at = 0;
        for (int64_t i = 1; i < n; i++)
            if (before(in[i * inner], i, in[at * inner], at)) at = i;
        out[o] = at;
    }
}

}  // namespace

extern "C" {

void kn__reduce_plan(kn__reduce *r) {
    enum { RESULTS_ENOUGH = 8192, CHUNK_MIN = 2048, CHUNKS_MAX = 256, CHUNKS_MAX_FULL = 1024 };
    r->n_chunks = 1, r->chunk = r->n_in;
    if (r->n_out >= RESULTS_ENOUGH || r->n_in < 2 * CHUNK_MIN) return;
    int64_t wanted = RESULTS_ENOUGH / r->n_out, most = r->n_in / CHUNK_MIN;
    int64_t n_chunks = wanted < most ? wanted : most;
    int64_t limit = r->n_out == 1 ? CHUNKS_MAX_FULL : CHUNKS_MAX;
    if (n_chunks > limit) n_chunks = limit;
    if (n_chunks < 2) return;
    r->chunk = ((r->n_in + n_chunks - 1) / n_chunks + 3) / 4 * 4;  // whole packs
    r->n_chunks = (r->n_in + r->chunk - 1) / r->chunk;
}

cudaError_t kn__launch_reduce(const kn__reduce *r, cudaStream_t stream) {
    return with_float(r->dtype, [&](auto t) {
        using T = decltype(t);
        switch (r->kind) {
            case KN__REDUCE_SUM:
            case KN__REDUCE_MEAN:
                return launch_typed<op_sum, T>(r, stream);
            case KN__REDUCE_MAX:
                return launch_typed<op_max, T>(r, stream);
            case KN__REDUCE_MIN:
                return launch_typed<op_min, T>(r, stream);
        }
        return cudaErrorInvalidValue;
    });
}

cudaError_t kn__launch_argmax(int64_t *out, const void *x, kn_dtype dtype, int64_t outer, int64_t n,
                              int64_t inner, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        if (inner == 1)
            KN_LAUNCH(argmax_rows_kernel, blocks_for(outer * 32), BLOCK, stream, out, (const T *)x,
                      outer, n);
        else
            KN_LAUNCH(argmax_columns_kernel, blocks_for(outer * inner), BLOCK, stream, out,
                      (const T *)x, outer * inner, n, inner);
        return cudaGetLastError();
    });
}

}  // extern "C"
