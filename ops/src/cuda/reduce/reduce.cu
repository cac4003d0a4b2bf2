// Reductions over any axes. A result is joined from chunks in a fixed order, so its bits depend on
// the shape alone: no atomics, no dependence on the GPU.
//
// Where the fastest reduced dimension is dense, a warp or a block makes one result and reads along
// it, in packs of 16 bytes where its length allows that. Where the fastest kept dimension is dense,
// 32 neighbouring results are made by a block whose warps read along that one.

#include "cuda/reduce/elements.cuh"

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

struct job {  // one pass: chunk c of result o goes to out[c·n_out + o]
    const void *in;
    void *out;
    kn_dtype out_dtype;
    const void *shift;  // of each result, as the fold's acc; or NULL
    index_space kept, reduced;
    int64_t n_out, n_in, n_chunks, chunk;
    double scale, p;
    bool map;  // the fold's map and not its plain join
    bool accumulate;
};

// --- the folds: what an element becomes, and how they join ---

template <class A>
__device__ A least() {
    if constexpr (std::is_same<A, int64_t>::value)
        return INT64_MIN;
    else
        return -(A)INFINITY;
}
template <class A>
__device__ A most() {
    if constexpr (std::is_same<A, int64_t>::value)
        return INT64_MAX;
    else
        return (A)INFINITY;
}
template <class A>
__device__ A size_of(A x) {
    return x < 0 ? -x : (x == 0 ? A(0) : x);
}

struct fold_sum {  // map: |x|
    template <class C>
    using acc = C;
    template <class A>
    __device__ static A identity() {
        return A(0);
    }
    template <class A>
    __device__ static A join(A a, A b) {
        return a + b;
    }
    template <class A>
    __device__ static A mapped(A x, A, double) {
        return size_of(x);
    }
};
struct fold_wide : fold_sum {  // in f64; map: (x - s)²
    template <class C>
    using acc = typename std::conditional<std::is_same<C, int64_t>::value, int64_t, double>::type;
    template <class A>
    __device__ static A mapped(A x, A s, double) {
        return (x - s) * (x - s);
    }
};
struct fold_exp : fold_sum {
    template <class A>
    __device__ static A mapped(A x, A s, double) {
        return exp_(x - s);
    }
};
struct fold_power : fold_sum {
    template <class A>
    __device__ static A mapped(A x, A, double p) {
        return pow_(abs_(x), (A)p);
    }
};
struct fold_count : fold_sum {};  // of elements that aren't zero
struct fold_prod : fold_sum {
    template <class A>
    __device__ static A identity() {
        return A(1);
    }
    template <class A>
    __device__ static A join(A a, A b) {
        return a * b;
    }
};
struct fold_max : fold_sum {  // NaN wins, as in ops.def's maximum; map: |x|
    template <class A>
    __device__ static A identity() {
        return least<A>();
    }
    template <class A>
    __device__ static A join(A a, A b) {
        return a > b || a != a ? a : b;
    }
};
struct fold_min : fold_sum {
    template <class A>
    __device__ static A identity() {
        return most<A>();
    }
    template <class A>
    __device__ static A join(A a, A b) {
        return a < b || a != a ? a : b;
    }
};

template <class Fold, class T>
using acc_of = typename std::conditional<std::is_same<Fold, fold_count>::value, int64_t,
                                         typename Fold::template acc<computed<T>>>::type;

template <class Fold, class T, class A>
__device__ A mapped(const job &j, T x, A shift) {
    if constexpr (std::is_same<Fold, fold_count>::value)
        return load_as(x) != 0;
    else
        return j.map ? Fold::mapped((A)load_as(x), shift, j.p) : (A)load_as(x);
}

template <class A>
__device__ void finish(const job &j, int64_t at, A value) {
    if constexpr (std::is_same<A, int64_t>::value) {
        if (j.scale != 1) {  // a mean of integers
            store_as(j.out, j.out_dtype, at, (double)value * j.scale, false);
            return;
        }
    } else {
        value *= (A)j.scale;
    }
    store_as(j.out, j.out_dtype, at, value, j.accumulate);
}

// Joins reduced elements begin … end - 1 into acc, V neighbours at a time, AT_ONCE packs in flight.
template <class Fold, int TEAM, int V, int AT_ONCE, class T, class A, class F>
__device__ void join_range(A (&acc)[V], const job &j, const T *in, A shift, int64_t begin,
                           int64_t end, F offset) {
    int64_t i = begin + threadIdx.x % TEAM * V;
#pragma unroll AT_ONCE
    for (; i + V <= end; i += TEAM * V) {
        pack<T, V> x = *reinterpret_cast<const pack<T, V> *>(in + offset(i));
#pragma unroll
        for (int k = 0; k < V; k++) acc[k] = Fold::join(acc[k], mapped<Fold>(j, x.v[k], shift));
    }
    for (; i < end; i++) acc[0] = Fold::join(acc[0], mapped<Fold>(j, in[offset(i)], shift));
}

template <class Fold, int TEAM, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1) rows_kernel(job j, const T *x) {
    using A = acc_of<Fold, T>;
    int lane = threadIdx.x % TEAM;
    int64_t team = thread_index() / TEAM, n_teams = thread_count() / TEAM;
    for (int64_t r = team; r < j.n_out * j.n_chunks; r += n_teams) {
        int64_t c = r / j.n_out, o = r - c * j.n_out;
        int64_t begin = c * j.chunk, end = min(begin + j.chunk, j.n_in);
        const T *in = x + offset_of(j.kept, o);
        A acc[V], shift = j.shift ? ((const A *)j.shift)[o] : A(0);
        for (int k = 0; k < V; k++) acc[k] = Fold::template identity<A>();
        if (j.reduced.n_dims == 1 && j.reduced.stride[0] == 1)
            join_range<Fold, TEAM, V, 4>(acc, j, in, shift, begin, end,
                                         [](int64_t i) { return i; });
        else
            join_range<Fold, TEAM, V, 1>(acc, j, in, shift, begin, end,
                                         [&](int64_t i) { return offset_of(j.reduced, i); });
        A value = acc[0];
        for (int k = 1; k < V; k++) value = Fold::join(value, acc[k]);
        value = team_join<Fold, TEAM>(value);
        if (lane == 0) finish(j, r, value);
    }
}

template <class Fold, class T>
__global__ void __launch_bounds__(BLOCK, 1) columns_kernel(job j, const T *x, int64_t n_groups) {
    using A = acc_of<Fold, T>;
    KN_SHARED(part, A[WARPS][32]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t b = blockIdx.x; b < n_groups * j.n_chunks; b += gridDim.x) {
        int64_t c = b / n_groups, o = (b - c * n_groups) * 32 + lane;
        int64_t end = min((c + 1) * j.chunk, j.n_in);
        A value = Fold::template identity<A>();
        if (o < j.n_out) {
            const T *in = x + offset_of(j.kept, o);
            A shift = j.shift ? ((const A *)j.shift)[o] : A(0);
            for (int64_t i = c * j.chunk + warp; i < end; i += WARPS)
                value = Fold::join(value, mapped<Fold>(j, in[offset_of(j.reduced, i)], shift));
        }
        part[warp][lane] = value;
        __syncthreads();
        if (warp == 0 && o < j.n_out) {
            for (int k = 1; k < WARPS; k++) value = Fold::join(value, part[k][lane]);
            finish(j, c * j.n_out + o, value);
        }
        __syncthreads();
    }
}

bool along_rows(const index_space &kept, const index_space &reduced) {
    if (kept.n_dims == 0 || reduced.n_dims == 0) return true;
    return reduced.stride[reduced.n_dims - 1] <= kept.stride[kept.n_dims - 1];
}

// Whether V reduced neighbours lie side by side and, where the input is aligned, at an
// aligned address. The input is dense: other strides are multiples of the innermost kept one.
bool in_packs(const index_space &kept, const index_space &reduced, int V) {
    return reduced.n_dims && reduced.stride[reduced.n_dims - 1] == 1 &&
           (kept.n_dims == 0 || kept.stride[kept.n_dims - 1] % V == 0);
}

template <class Fold, int V, class T>
cudaError_t launch_rows(const job &j, cudaStream_t stream) {
    int64_t work = j.n_out * j.n_chunks;
    const T *x = (const T *)j.in;
    if (j.chunk <= 1024)
        KN_LAUNCH((rows_kernel<Fold, 32, V, T>), blocks_for(work, WARPS), BLOCK, stream, j, x);
    else
        KN_LAUNCH((rows_kernel<Fold, BLOCK, V, T>), blocks_for(work, 1), BLOCK, stream, j, x);
    return cudaGetLastError();
}

template <class Fold, class T>
cudaError_t launch_pass(const job &j, cudaStream_t stream) {
    // A power takes longer than its loads; in packs, its code takes minutes to compile.
    constexpr int V = std::is_same<Fold, fold_power>::value ? 1 : 16 / sizeof(T);
    if (along_rows(j.kept, j.reduced)) {
        bool packs = in_packs(j.kept, j.reduced, V) && aligned(j.in, 16);
        return packs ? launch_rows<Fold, V, T>(j, stream) : launch_rows<Fold, 1, T>(j, stream);
    }
    int64_t n_groups = (j.n_out + 31) / 32;
    KN_LAUNCH((columns_kernel<Fold, T>), blocks_for(n_groups * j.n_chunks, 1), BLOCK, stream, j,
              (const T *)j.in, n_groups);
    return cudaGetLastError();
}

index_space space(int n_dims, const int64_t *dim, const int64_t *stride) {
    index_space s = {};
    s.n_dims = n_dims;
    for (int d = 0; d < n_dims; d++) s.dim[d] = dim[d], s.stride[d] = stride[d];
    return s;
}

template <class A>
kn_dtype dtype_of() {
    return std::is_same<A, int64_t>::value ? KN_I64 : sizeof(A) == 4 ? KN_F32 : KN_F64;
}

// Folds x into `last`'s out, by way of chunks; Join joins the chunks.
template <class Fold, class Join, class T>
cudaError_t launch_fold(const kn__reduce *r, job last, cudaStream_t stream) {
    using A = acc_of<Fold, T>;
    job j = last;
    j.in = r->in;
    j.kept = space(r->n_kept, r->kept_dim, r->kept_stride);
    j.reduced = space(r->n_reduced, r->reduced_dim, r->reduced_stride);
    j.n_out = r->n_out, j.n_in = r->n_in, j.n_chunks = r->n_chunks, j.chunk = r->chunk;
    if (!last.out) last.out_dtype = dtype_of<A>(), last.out = r->cells;
    if (!j.out) j.out_dtype = last.out_dtype, j.out = last.out;
    if (r->n_chunks == 1) return launch_pass<Fold, T>(j, stream);
    j.out = r->partial, j.out_dtype = dtype_of<A>(), j.scale = 1, j.accumulate = false;
    cudaError_t error = launch_pass<Fold, T>(j, stream);
    if (error != cudaSuccess) return error;
    last.in = r->partial, last.shift = nullptr, last.map = false;
    last.kept = {r->n_out > 1, {r->n_out}, {1}};
    last.reduced = {1, {r->n_chunks}, {r->n_out}};
    last.n_out = r->n_out, last.n_in = last.chunk = r->n_chunks, last.n_chunks = 1;
    return launch_pass<Join, A>(last, stream);
}

template <class T>
cudaError_t launch_by_fold(const kn__reduce *r, kn__fold fold, job j, cudaStream_t stream) {
    constexpr bool INTEGER = std::is_same<computed<T>, int64_t>::value;
    switch (fold) {
        case KN__FOLD_SUM:
        case KN__FOLD_SUM_ABS:
            j.map = fold == KN__FOLD_SUM_ABS;
            return launch_fold<fold_sum, fold_sum, T>(r, j, stream);
        case KN__FOLD_SUM_SQUARE:
            j.map = true;
            return launch_fold<fold_wide, fold_sum, T>(r, j, stream);
        case KN__FOLD_COUNT:
            return launch_fold<fold_count, fold_sum, T>(r, j, stream);
        case KN__FOLD_PROD:
            return launch_fold<fold_prod, fold_prod, T>(r, j, stream);
        case KN__FOLD_MAX:
        case KN__FOLD_MAX_ABS:
            j.map = fold == KN__FOLD_MAX_ABS;
            return launch_fold<fold_max, fold_max, T>(r, j, stream);
        case KN__FOLD_MIN:
        case KN__FOLD_MIN_ABS:
            j.map = fold == KN__FOLD_MIN_ABS;
            return launch_fold<fold_min, fold_min, T>(r, j, stream);
        default:
            break;
    }
    if constexpr (!INTEGER) {
        j.map = true;
        if (fold == KN__FOLD_SUM_EXP) return launch_fold<fold_exp, fold_sum, T>(r, j, stream);
        if (fold == KN__FOLD_SUM_POWER) return launch_fold<fold_power, fold_sum, T>(r, j, stream);
    }
    return cudaErrorInvalidValue;
}

// The mean in f64, or the maximum, of each result.
template <class T>
cudaError_t launch_shift(const kn__reduce *r, cudaStream_t stream) {
    job j = {};
    j.out = r->shift, j.scale = 1;
    if (r->recipe.shift == KN__SHIFT_MAX) {
        j.out_dtype = dtype_of<computed<T>>();
        return launch_by_fold<T>(r, KN__FOLD_MAX, j, stream);
    }
    j.out_dtype = KN_F64, j.scale = 1 / (double)r->n_in;
    return launch_fold<fold_wide, fold_sum, T>(r, j, stream);
}

// --- the finish of results that are no plain scale ---

template <class A>
__device__ double finished(const kn__recipe &recipe, A v, A shift) {
    switch (recipe.finish) {
        case KN__FINISH_VAR:
        case KN__FINISH_STD: {
            double spread = (double)v * recipe.scale;
            return recipe.finish == KN__FINISH_VAR ? spread : sqrt(spread);
        }
        case KN__FINISH_ROOT:
            return recipe.power == 0.5 ? sqrt((double)v) : pow((double)v, recipe.power);
        case KN__FINISH_LOG:
            return shift - shift == 0 ? (double)shift + log((double)v) : (double)shift;
        case KN__FINISH_ANY:
            return v > 0;
        case KN__FINISH_ALL:
            return (double)v == (double)recipe.n_in;
        default:
            return (double)v * recipe.scale;
    }
}

template <class A>
__global__ void __launch_bounds__(BLOCK, 1)
    finish_kernel(kn__recipe recipe, void *out, kn_dtype dtype, const A *cells, const A *shift,
                  int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count())
        store_as(out, dtype, i, finished(recipe, cells[i], shift ? shift[i] : A(0)), false);
}

template <class A>
cudaError_t launch_finish(const kn__reduce *r, cudaStream_t stream) {
    KN_LAUNCH(finish_kernel<A>, blocks_for(r->n_out), BLOCK, stream, r->recipe, r->out,
              r->out_dtype, (const A *)r->cells, (const A *)r->shift, r->n_out);
    return cudaGetLastError();
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
    r->chunk = ((r->n_in + n_chunks - 1) / n_chunks + 15) / 16 * 16;  // whole packs
    r->n_chunks = (r->n_in + r->chunk - 1) / r->chunk;
}

cudaError_t kn__launch_reduce(const kn__reduce *r, cudaStream_t stream) {
    return with_any(r->dtype, [&](auto t) {
        using T = decltype(t);
        bool computes_shift = r->shift && r->recipe.shift != KN__SHIFT_GIVEN;
        cudaError_t error = computes_shift ? launch_shift<T>(r, stream) : cudaSuccess;
        if (error != cudaSuccess) return error;
        bool plain = r->recipe.finish == KN__FINISH_SCALE;
        job j = {};
        j.out = plain ? r->out : nullptr, j.out_dtype = r->out_dtype, j.shift = r->shift;
        j.scale = plain ? r->recipe.scale : 1, j.p = r->recipe.p, j.accumulate = r->accumulate;
        error = launch_by_fold<T>(r, r->recipe.fold, j, stream);
        if (error != cudaSuccess || plain) return error;
        if (r->recipe.fold == KN__FOLD_COUNT) return launch_finish<int64_t>(r, stream);
        if (r->recipe.fold == KN__FOLD_SUM_SQUARE) return launch_finish<double>(r, stream);
        return launch_finish<computed<T>>(r, stream);
    });
}

}  // extern "C"
