// Reductions over any axes. A result is joined from chunks in a fixed order, so its bits depend on
// the shape alone, and on whether the input begins at a multiple of 16 bytes: no atomics, no
// dependence on the GPU.
//
// Where the fastest reduced dimension is dense, a warp or a block makes one result and reads along
// it, in packs of 16 bytes where its length allows that. Where the fastest kept dimension is dense,
// neighbouring results are made by a block whose warps read along that one, a few results a lane.

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
    kn__recipe recipe;
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
    if constexpr (std::is_same<A, int64_t>::value)
        return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    else
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
struct fold_known : fold_sum {
    template <class A>
    __device__ static A mapped(A x, A, double) {
        return x == x ? x : A(0);
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
    constexpr bool EXTREME =
        std::is_same<Fold, fold_max>::value || std::is_same<Fold, fold_min>::value;
    if constexpr (std::is_same<Fold, fold_count>::value)
        return load_as(x) != 0;
    else if constexpr (EXTREME && std::is_same<T, int32_t>::value)  // as kn_abs wraps
        return j.map ? (int32_t)Fold::mapped((A)x, shift, j.recipe.p) : x;
    else
        return j.map ? Fold::mapped((A)load_as(x), shift, j.recipe.p) : (A)load_as(x);
}

// A result that is no plain quotient. Not inline: it would double the code of each kernel.
template <class A>
__device__ __noinline__ double finished(kn__finish how, double divisor, double power, int64_t n_in,
                                        A v, A shift) {
    switch (how) {
        case KN__FINISH_VAR:
        case KN__FINISH_STD: {
            double spread = (double)v / divisor;
            return how == KN__FINISH_VAR ? spread : sqrt(spread);
        }
        case KN__FINISH_ROOT:
            return power == 0.5 ? sqrt((double)v) : pow((double)v, power);
        case KN__FINISH_LOG:
            return shift - shift == 0 ? (double)shift + log((double)v) : (double)shift;
        case KN__FINISH_ANY:
            return v > 0;
        case KN__FINISH_ALL:
            return (double)v == (double)n_in;
        default:
            return (double)v / divisor;
    }
}

template <class A>
__device__ void finish(const job &j, int64_t at, A value, A shift) {
    const kn__recipe &r = j.recipe;
    if (r.finish != KN__FINISH_DIVIDE) {
        store_as(j.out, j.out_dtype, at,
                 finished(r.finish, r.divisor, r.power, r.n_in, value, shift), false);
        return;
    }
    if constexpr (std::is_same<A, int64_t>::value) {
        if (r.divisor != 1) {  // a mean of integers
            store_as(j.out, j.out_dtype, at, (double)value / r.divisor, false);
            return;
        }
    } else if (r.divisor != 1) {
        value /= (A)r.divisor;
    }
    store_as(j.out, j.out_dtype, at, value, j.accumulate);
}

template <class Fold, int V, class T, class A>
__device__ void join_pack(A (&acc)[V], const job &j, const pack<T, V> &x, const A (&shift)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) acc[k] = Fold::join(acc[k], mapped<Fold>(j, x.v[k], shift[k]));
}

// Joins the packs at i, i + STEP, … up to `last`, AT_ONCE in flight; returns where it stopped.
template <class Fold, int STEP, int V, int AT_ONCE, class T, class A, class F>
__device__ int64_t join_packs(A (&acc)[V], const job &j, const T *in, const A (&shift)[V],
                              int64_t i, int64_t last, F offset) {
    for (; AT_ONCE > 1 && i + (AT_ONCE - 1) * STEP <= last; i += AT_ONCE * STEP) {
        pack<T, V> x[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            x[u] = *reinterpret_cast<const pack<T, V> *>(in + offset(i + u * STEP));
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) join_pack<Fold>(acc, j, x[u], shift);
    }
#pragma unroll 1
    for (; i <= last; i += STEP)
        join_pack<Fold>(acc, j, *reinterpret_cast<const pack<T, V> *>(in + offset(i)), shift);
    return i;
}

template <class Fold, int TEAM, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1) rows_kernel(job j, const T *x) {
    using A = acc_of<Fold, T>;
    int lane = threadIdx.x % TEAM;
    int64_t team = thread_index() / TEAM, n_teams = thread_count() / TEAM;
    for (int64_t r = team; r < j.n_out * j.n_chunks; r += n_teams) {
        int64_t c = j.n_chunks == 1 ? 0 : r / j.n_out, o = r - c * j.n_out;
        int64_t begin = c * j.chunk, end = min(begin + j.chunk, j.n_in);
        const T *in = x + offset_of(j.kept, o);
        A acc[V], shift[V], shift_of_row = j.shift ? ((const A *)j.shift)[o] : A(0);
        for (int k = 0; k < V; k++) acc[k] = Fold::template identity<A>(), shift[k] = shift_of_row;
        auto join = [&](auto at_once, auto offset) {
            int64_t i = join_packs<Fold, TEAM * V, V, decltype(at_once)::value>(
                acc, j, in, shift, begin + lane * V, end - V, offset);
            for (; i < end; i++)
                acc[0] = Fold::join(acc[0], mapped<Fold>(j, in[offset(i)], shift[0]));
        };
        if (j.reduced.n_dims == 1 && j.reduced.stride[0] == 1)
            join(std::integral_constant<int, 4>{}, [](int64_t i) { return i; });
        else
            join(std::integral_constant<int, 1>{},
                 [&](int64_t i) { return offset_of(j.reduced, i); });
        A value = acc[0];
        for (int k = 1; k < V; k++) value = Fold::join(value, acc[k]);
        value = team_join<Fold, TEAM>(value);
        if (lane == 0) finish(j, r, value, shift_of_row);
    }
}

// A block makes 32·V neighbouring results of which each lane of each warp reads V at a time.
template <class Fold, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1) columns_kernel(job j, const T *x, int64_t n_groups) {
    using A = acc_of<Fold, T>;
    constexpr int WIDTH = 32 * V;
    KN_SHARED(part, A[WARPS][WIDTH]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t b = blockIdx.x; b < n_groups * j.n_chunks; b += gridDim.x) {
        int64_t c = b / n_groups, first = (b - c * n_groups) * WIDTH, o = first + lane * V;
        int64_t begin = c * j.chunk + warp, end = min((c + 1) * j.chunk, j.n_in);
        A acc[V], shift[V];
        for (int k = 0; k < V; k++) acc[k] = Fold::template identity<A>();
        if (o < j.n_out) {
            const T *in = x + offset_of(j.kept, o);
            for (int k = 0; k < V; k++) shift[k] = j.shift ? ((const A *)j.shift)[o + k] : A(0);
            if (j.reduced.n_dims == 1)
                join_packs<Fold, WARPS, V, 4>(acc, j, in, shift, begin, end - 1,
                                              [&](int64_t i) { return i * j.reduced.stride[0]; });
            else
                join_packs<Fold, WARPS, V, 1>(acc, j, in, shift, begin, end - 1,
                                              [&](int64_t i) { return offset_of(j.reduced, i); });
        }
        for (int k = 0; k < V; k++) part[warp][lane * V + k] = acc[k];
        __syncthreads();
        for (int t = threadIdx.x; t < WIDTH && first + t < j.n_out; t += BLOCK) {
            A value = part[0][t];
            for (int w = 1; w < WARPS; w++) value = Fold::join(value, part[w][t]);
            finish(j, c * j.n_out + first + t, value,
                   j.shift ? ((const A *)j.shift)[first + t] : A(0));
        }
        __syncthreads();
    }
}

bool along_rows(int n_kept, const int64_t *kept_stride, int n_reduced,
                const int64_t *reduced_stride) {
    if (n_kept == 0 || n_reduced == 0) return true;
    return reduced_stride[n_reduced - 1] <= kept_stride[n_kept - 1];
}

// Whether V neighbours along `inner`, the space that is read along, lie side by side and, where the
// input is aligned, at an aligned address. The input is dense: other strides are multiples of the
// other space's innermost.
bool in_packs(const index_space &inner, const index_space &other, int V) {
    return inner.n_dims && inner.stride[inner.n_dims - 1] == 1 &&
           (other.n_dims == 0 || other.stride[other.n_dims - 1] % V == 0);
}

template <class Fold, int V, class T>
cudaError_t launch_columns(const job &j, cudaStream_t stream) {
    int64_t n_groups = (j.n_out + 32 * V - 1) / (32 * V);
    KN_LAUNCH((columns_kernel<Fold, V, T>), blocks_for(n_groups * j.n_chunks, 1), BLOCK, stream, j,
              (const T *)j.in, n_groups);
    return cudaGetLastError();
}

template <class Fold, int V, class T>
cudaError_t launch_rows(const job &j, cudaStream_t stream) {
    int64_t work = j.n_out * j.n_chunks;
    const T *x = (const T *)j.in;
    // A warp reads a row of middling length as fast as a block does, if there are enough of them.
    if (j.chunk <= 1024 || (work >= 4096 && j.chunk <= 8192))
        KN_LAUNCH((rows_kernel<Fold, 32, V, T>), blocks_for(work, WARPS), BLOCK, stream, j, x);
    else
        KN_LAUNCH((rows_kernel<Fold, BLOCK, V, T>), blocks_for(work, 1), BLOCK, stream, j, x);
    return cudaGetLastError();
}

template <class Fold, class T>
cudaError_t launch_pass(const job &j, cudaStream_t stream) {
    // A power takes longer than its loads; in packs, its code takes minutes to compile.
    constexpr bool ALONE = std::is_same<Fold, fold_power>::value;
    if (along_rows(j.kept.n_dims, j.kept.stride, j.reduced.n_dims, j.reduced.stride)) {
        constexpr int V = ALONE ? 1 : 16 / sizeof(T);
        bool packs = in_packs(j.reduced, j.kept, V) && aligned(j.in, 16);
        return packs ? launch_rows<Fold, V, T>(j, stream) : launch_rows<Fold, 1, T>(j, stream);
    }
    // At most 4: the lanes' results are held in registers and shared memory.
    constexpr int V = ALONE ? 1 : sizeof(T) == 8 ? 2 : 4;
    bool packs = in_packs(j.kept, j.reduced, V) && aligned(j.in, V * sizeof(T));
    return packs ? launch_columns<Fold, V, T>(j, stream) : launch_columns<Fold, 1, T>(j, stream);
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
    if (r->n_chunks == 1) return launch_pass<Fold, T>(j, stream);
    j.out = r->partial, j.out_dtype = dtype_of<A>(), j.accumulate = false;
    j.recipe.finish = KN__FINISH_DIVIDE, j.recipe.divisor = 1;
    cudaError_t error = launch_pass<Fold, T>(j, stream);
    if (error != cudaSuccess) return error;
    last.in = r->partial, last.map = false;
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
        if (fold == KN__FOLD_SUM_KNOWN) return launch_fold<fold_known, fold_sum, T>(r, j, stream);
        if (fold == KN__FOLD_SUM_EXP) return launch_fold<fold_exp, fold_sum, T>(r, j, stream);
        if (fold == KN__FOLD_SUM_POWER) return launch_fold<fold_power, fold_sum, T>(r, j, stream);
    }
    return cudaErrorInvalidValue;
}

// The mean in f64, or the maximum, of each result.
template <class T>
cudaError_t launch_shift(const kn__reduce *r, cudaStream_t stream) {
    job j = {};
    j.out = r->shift, j.recipe.divisor = 1;
    if (r->recipe.shift == KN__SHIFT_MAX) {
        j.out_dtype = dtype_of<computed<T>>();
        return launch_by_fold<T>(r, KN__FOLD_MAX, j, stream);
    }
    j.out_dtype = KN_F64, j.recipe.divisor = (double)r->n_in;
    return launch_fold<fold_wide, fold_sum, T>(r, j, stream);
}

}  // namespace

extern "C" {

void kn__reduce_plan(kn__reduce *r) {
    // Blocks that fill any GPU; results that do, a warp or a block each; and how much is worth a
    // second launch.
    enum { BLOCKS = 1024, RESULTS_ENOUGH = 8192, ROW_CHUNK = 2048, COLUMN_CHUNK = 64 };
    enum { COLUMNS = 128, CHUNKS_MAX = 256, CHUNKS_MAX_FULL = 512 };
    bool rows = along_rows(r->n_kept, r->kept_stride, r->n_reduced, r->reduced_stride);
    int64_t wanted =
        rows ? RESULTS_ENOUGH / r->n_out : BLOCKS / ((r->n_out + COLUMNS - 1) / COLUMNS);
    int64_t most = r->n_in / (rows ? ROW_CHUNK : COLUMN_CHUNK);
    int64_t n_chunks = wanted < most ? wanted : most;
    int64_t limit = r->n_out == 1 ? CHUNKS_MAX_FULL : CHUNKS_MAX;
    if (n_chunks > limit) n_chunks = limit;
    r->n_chunks = 1, r->chunk = r->n_in;
    if (n_chunks < (rows ? 2 : 4)) return;
    r->chunk = ((r->n_in + n_chunks - 1) / n_chunks + 15) / 16 * 16;  // whole packs
    r->n_chunks = (r->n_in + r->chunk - 1) / r->chunk;
}

cudaError_t kn__launch_reduce(const kn__reduce *r, cudaStream_t stream) {
    return with_any(r->dtype, [&](auto t) {
        using T = decltype(t);
        bool computes_shift = r->shift && r->recipe.shift != KN__SHIFT_GIVEN;
        cudaError_t error = computes_shift ? launch_shift<T>(r, stream) : cudaSuccess;
        if (error != cudaSuccess) return error;
        job j = {};
        j.out = r->out, j.out_dtype = r->out_dtype, j.shift = r->shift;
        j.recipe = r->recipe, j.accumulate = r->accumulate;
        return launch_by_fold<T>(r, r->recipe.fold, j, stream);
    });
}

}  // extern "C"
