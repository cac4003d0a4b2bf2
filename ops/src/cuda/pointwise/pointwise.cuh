// Pointwise ops: one kernel of a row for dense operands, which moves 16 bytes of each at a time,
// and one for broadcast operands and odd addresses. Rare rows have one kernel alone for all
// operands, and for f32, f16 and bf16.
//
// The operands of a kernel are those of the call, by `order`:
//   0  x…            the row itself
//   1  g, x…, z      its back: all wanted derivatives from one reading of the operands
//   2  u…, x…, z     its back2: for each wanted j, the sum over i of second derivative i, j of u_i
#ifndef KN_CUDA_POINTWISE_CUH
#define KN_CUDA_POINTWISE_CUH

#include "cuda/base/device.cuh"
#include "cuda/pointwise/formulas.cuh"

namespace kn_dev {

// The operands of row Row in order ORDER.
template <class Row, int ORDER>
struct operands {
    static constexpr int K = Row::K, X = ORDER < 2 ? ORDER : K, Z = X + K;
    static constexpr int N_IN = ORDER ? Z + 1 : K, N_OUT = ORDER ? K : 1;
    KN_HOST_DEVICE static constexpr bool is_bool(int k) {
        return k >= X && k < Z && (Row::BOOL_INPUTS >> (k - X) & 1);
    }
    // What the formula of result j, of second derivatives its term i, reads.
    KN_HOST_DEVICE static constexpr unsigned reads(int i, int j) {
        if constexpr (ORDER == 1) return i == 0 ? Row::first_reads(j) : (unsigned)ZERO;
        if constexpr (ORDER == 2) return Row::second_reads(i, j);
        return 0;
    }
    // Whether any formula reads operand k: the others may be NULL, and are never looked at.
    KN_HOST_DEVICE static constexpr bool is_read(int k) {
        if (ORDER == 0) return true;
        unsigned bit = k < X ? 0 : k < Z ? 1u << (k - X) : (unsigned)::Z;
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) {
                if (reads(i, j) & ZERO) continue;
                if (k < X ? ORDER == 1 || i == k : (reads(i, j) & bit) != 0) return true;
            }
        return false;
    }
    // Whether result j is more than zeros.
    KN_HOST_DEVICE static constexpr bool is_made(int j) {
        for (int i = 0; i < K; i++)
            if (ORDER == 0 || !(reads(i, j) & ZERO)) return true;
        return false;
    }
    static constexpr bool any_made() {
        for (int j = 0; j < N_OUT; j++)
            if (is_made(j)) return true;
        return false;
    }
};

// --- kernels ---

struct row_job {
    int64_t n;
    void *out[3];
    const void *in[KN__OPERANDS_MAX - 1];
    unsigned accumulate, single;  // bits: results that are added to; operands of one element
    double p, q;
    int64_t p_integer, q_integer;
    kn_dtype dtype;  // of the operands that aren't BOOL
};

struct row_strides {
    int n_dims;
    uint32_t dim[KN_DIMS_MAX];
    int64_t in[KN__OPERANDS_MAX - 1][KN_DIMS_MAX];
};

template <class T>
__device__ T scalar(double value, int64_t integer) {
    if constexpr (std::is_floating_point<T>::value)
        return (T)value;
    else
        return T((decltype(T::v))integer);
}

// V elements from the i-th on, of which `rest` exist; or the i-th V times.
template <class S, int V, class T>
__device__ void load(T (&x)[V], const void *in, int64_t i, int64_t rest, bool single) {
    const S *from = (const S *)in;
    if (single) {
        T one = T(element<S>::load(from[i]));
#pragma unroll
        for (int v = 0; v < V; v++) x[v] = one;
    } else if (V > 1 && rest >= V) {
        pack<S, V> all = *reinterpret_cast<const pack<S, V> *>(from + i);
#pragma unroll
        for (int v = 0; v < V; v++) x[v] = T(element<S>::load(all.v[v]));
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            x[v] = V == 1 || v < rest ? T(element<S>::load(from[i + v])) : T(0);
    }
}

template <class R, int V>
__device__ void store(void *out, int64_t i, int64_t rest, const pack<R, V> &y) {
    R *to = (R *)out + i;
    if (V > 1 && rest >= V) {
        *reinterpret_cast<pack<R, V> *>(to) = y;
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            if (V == 1 || v < rest) to[v] = y.v[v];
    }
}

// Result J of one element, x its operands.
template <class Row, int ORDER, int J, class T>
__device__ auto result(const row_job &job, const T *x) {
    using O = operands<Row, ORDER>;
    T p = scalar<T>(job.p, job.p_integer), q = scalar<T>(job.q, job.q_integer);
    if constexpr (ORDER == 0) {
        return Row::forward(x, p, q, job.p, job.q);
    } else if constexpr (ORDER == 1) {
        return Row::template first<J>(x[0], x + 1, x[O::Z], p, q, job.p, job.q);
    } else {
        T sum = T(0);
        auto add = [&](auto term) {
            constexpr int I = decltype(term)::value;
            if constexpr (I < O::K && !(O::reads(I < O::K ? I : 0, J) & ZERO))
                if (job.in[I])
                    sum += Row::template second<I, J>(x[I], x + O::X, x[O::Z], p, q, job.p, job.q);
        };
        add(std::integral_constant<int, 0>{});
        add(std::integral_constant<int, 1>{});
        add(std::integral_constant<int, 2>{});
        return sum;
    }
}

// V neighbours of result J, from their operands.
template <class Row, class S, int ORDER, int J, int V, class T, int N>
__device__ void make(const row_job &job, int64_t i, const T (&x)[N][V]) {
    using O = operands<Row, ORDER>;
    using R = typename std::conditional<Row::COMPARES, uint8_t, S>::type;
    if constexpr (J < O::N_OUT && O::is_made(J < O::N_OUT ? J : 0)) {
        if (ORDER && !job.out[J]) return;
        T old[V];
        bool adds = ORDER && job.accumulate >> J & 1;
        if (adds) load<S>(old, job.out[J], i, job.n - i, false);
        pack<R, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) {
            T one[N];
#pragma unroll
            for (int k = 0; k < N; k++) one[k] = x[k][v];
            auto value = result<Row, ORDER, J>(job, one);
            if constexpr (Row::COMPARES)
                y.v[v] = value ? 1 : 0;
            else
                y.v[v] = element<S>::store(adds ? old[v] + value : value);
        }
        store(job.out[J], i, job.n - i, y);
    }
}

template <class Row, class S, int ORDER, int V, class At>
__device__ void make_all(const row_job &job, int64_t i, At at) {
    using O = operands<Row, ORDER>;
    using T = typename element<S>::T;
    T x[O::N_IN][V];
#pragma unroll
    for (int k = 0; k < O::N_IN; k++) {
#pragma unroll
        for (int v = 0; v < V; v++) x[k][v] = T(0);
        if (!O::is_read(k) || (ORDER && !job.in[k])) continue;
        bool single = V > 1 && job.single >> k & 1;
        if (O::is_bool(k))
            load<boolean>(x[k], job.in[k], at(k), job.n - i, single);
        else
            load<S>(x[k], job.in[k], at(k), job.n - i, single);
    }
    make<Row, S, ORDER, 0>(job, i, x);
    make<Row, S, ORDER, 1>(job, i, x);
    make<Row, S, ORDER, 2>(job, i, x);
}

template <class Row, class S, int ORDER, int V>
__global__ void __launch_bounds__(BLOCK, 1) dense_kernel(row_job job) {
#pragma unroll 1  // a grid is large enough for one turn
    for (int64_t i = thread_index() * V; i < job.n; i += thread_count() * V)
        make_all<Row, S, ORDER, V>(job, i, [&](int k) { return job.single >> k & 1 ? 0 : i; });
}

// Where element i of the result has its operands.
template <int N>
__device__ void find_places(int64_t (&at)[N], int64_t i, const row_strides &s) {
    uint32_t rest = (uint32_t)i;
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = 0;
#pragma unroll 1
    for (int d = s.n_dims - 1; d > 0; d--) {
        uint32_t outer = rest / s.dim[d], index = rest - outer * s.dim[d];
#pragma unroll
        for (int k = 0; k < N; k++) at[k] += (int64_t)index * s.in[k][d];
        rest = outer;
    }
#pragma unroll
    for (int k = 0; k < N; k++) at[k] += (int64_t)rest * s.in[k][0];
}

// V > 1: the last dimension of s counts packs of V, which divides job.n.
template <class Row, class S, int ORDER, int V>
__global__ void __launch_bounds__(BLOCK, 1) strided_kernel(row_job job, row_strides s) {
#pragma unroll 1
    for (int64_t i = thread_index() * V; i < job.n; i += thread_count() * V) {
        int64_t at[operands<Row, ORDER>::N_IN];
        find_places(at, i / V, s);
        make_all<Row, S, ORDER, V>(job, i, [&](int k) { return at[k]; });
    }
}

// --- rare rows, and second derivatives: one kernel for all 16-bit floats and f32, and one for f64,
// which take minutes less to compile than those of each dtype ---

// An element that is computed as T; float: stored as f32, f16 or bf16.
template <class T>
struct stored {
    using S = decltype(T::v);
    __device__ static T load(const void *p, int64_t i, kn_dtype) { return ((const S *)p)[i]; }
    __device__ static void store(void *p, int64_t i, kn_dtype, T x) { ((S *)p)[i] = x.v; }
};
template <>
struct stored<double> {
    __device__ static double load(const void *p, int64_t i, kn_dtype) {
        return ((const double *)p)[i];
    }
    __device__ static void store(void *p, int64_t i, kn_dtype, double x) { ((double *)p)[i] = x; }
};
template <>
struct stored<float> {
    __device__ static float load(const void *p, int64_t i, kn_dtype dtype) {
        if (dtype == KN_F16) return __half2float(((const __half *)p)[i]);
        if (dtype == KN_BF16) return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
        return ((const float *)p)[i];
    }
    __device__ static void store(void *p, int64_t i, kn_dtype dtype, float x) {
        if (dtype == KN_F16)
            ((__half *)p)[i] = __float2half_rn(x);
        else if (dtype == KN_BF16)
            ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
        else
            ((float *)p)[i] = x;
    }
};

template <class Row, int ORDER, int J, class T, int N>
__device__ void make_rare(const row_job &job, int64_t i, const T (&x)[N]) {
    using O = operands<Row, ORDER>;
    if constexpr (J < O::N_OUT && O::is_made(J < O::N_OUT ? J : 0)) {
        if (ORDER && !job.out[J]) return;
        T value = result<Row, ORDER, J>(job, x);
        bool adds = ORDER && job.accumulate >> J & 1;
        if (adds) value = stored<T>::load(job.out[J], i, job.dtype) + value;
        stored<T>::store(job.out[J], i, job.dtype, value);
    }
}

template <class Row, class T, int ORDER>
__global__ void __launch_bounds__(BLOCK, 1) rare_kernel(row_job job, row_strides s) {
    using O = operands<Row, ORDER>;
#pragma unroll 1
    for (int64_t i = thread_index(); i < job.n; i += thread_count()) {
        int64_t at[O::N_IN];
        find_places(at, i, s);
        T x[O::N_IN];
#pragma unroll
        for (int k = 0; k < O::N_IN; k++) {
            x[k] = T(0);
            if (!O::is_read(k) || (ORDER && !job.in[k])) continue;
            x[k] = O::is_bool(k) ? T(((const boolean *)job.in[k])[at[k]].v)
                                 : stored<T>::load(job.in[k], at[k], job.dtype);
        }
        make_rare<Row, ORDER, 0>(job, i, x);
        make_rare<Row, ORDER, 1>(job, i, x);
        make_rare<Row, ORDER, 2>(job, i, x);
    }
}

// --- launching ---

struct row_kernels {
    void (*dense)(row_job);  // NULL: not available
    void (*strided)(row_job, row_strides);
    void (*packed)(row_job, row_strides);  // strided, by packs of the last dimension; or NULL
    int width, out_bytes;  // of dense and packed: elements at a time; bytes of one result
    unsigned bools;        // operands
};

template <class Row, int ORDER, class S>
row_kernels kernels_of() {
    using O = operands<Row, ORDER>;
    constexpr int V = 16 / sizeof(S);
    unsigned bools = 0;
    for (int k = 0; k < O::N_IN; k++) bools |= (unsigned)O::is_bool(k) << k;
    if constexpr (Row::RARE || ORDER == 2) {
        using T = typename element<S>::T;
        return {nullptr, rare_kernel<Row, T, ORDER>, nullptr, V, (int)sizeof(S), bools};
    } else {
        row_kernels kernels = {dense_kernel<Row, S, ORDER, V>,
                               strided_kernel<Row, S, ORDER, 1>,
                               nullptr,
                               V,
                               Row::COMPARES ? 1 : (int)sizeof(S),
                               bools};
        // Rows of floats alone: each kernel takes its time to compile.
        if constexpr (ORDER == 0 && O::K > 1 && std::is_floating_point<typename element<S>::T>())
            kernels.packed = strided_kernel<Row, S, ORDER, V>;
        return kernels;
    }
}

template <class Row, int ORDER, int DTYPE, class S>
bool is_of(row_kernels *out, kn_dtype dtype) {
    constexpr unsigned ALL = ORDER ? Row::DTYPES_OF & FLOATS : Row::DTYPES_OF;
    if constexpr (ALL >> DTYPE & 1) {
        if (dtype != DTYPE) return false;
        *out = kernels_of<Row, ORDER, S>();
        return true;
    }
    return false;
}

template <class Row, int ORDER>
bool find_kernels(row_kernels *out, kn_dtype dtype) {
    if constexpr (operands<Row, ORDER>::any_made())
        return is_of<Row, ORDER, KN_F32, float>(out, dtype) ||
               is_of<Row, ORDER, KN_F64, double>(out, dtype) ||
               is_of<Row, ORDER, KN_F16, __half>(out, dtype) ||
               is_of<Row, ORDER, KN_BF16, __nv_bfloat16>(out, dtype) ||
               is_of<Row, ORDER, KN_I64, int64_t>(out, dtype) ||
               is_of<Row, ORDER, KN_I32, int32_t>(out, dtype) ||
               is_of<Row, ORDER, KN_U8, uint8_t>(out, dtype) ||
               is_of<Row, ORDER, KN_BOOL, uint8_t>(out, dtype);
    return false;
}

inline row_job job_of(const kn__row_args &r) {
    row_job job = {r.region.n, {},  {},          r.accumulate, 0,
                   r.p,        r.q, r.p_integer, r.q_integer,  r.dtype};
    for (int j = 0; j < 3; j++) job.out[j] = r.out[j];
    for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) {
        job.in[k] = r.in[k];
        job.single |= (unsigned)(r.region.stride[k + 1][0] == 0) << k;
    }
    return job;
}

inline size_t operand_bytes(const row_kernels &kernels, int k) {
    return kernels.bools >> k & 1 ? 1 : 16 / kernels.width;
}

// Whether the operands begin where packs may.
inline bool is_aligned(const row_kernels &kernels, const row_job &job) {
    for (int j = 0; j < 3; j++)
        if (!aligned(job.out[j], (size_t)(kernels.out_bytes * kernels.width))) return false;
    for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) {
        size_t bytes = operand_bytes(kernels, k) * (size_t)kernels.width;
        if (!(job.single >> k & 1) && !aligned(job.in[k], bytes)) return false;
    }
    return true;
}

// Entries first … first + n - 1 of the outermost dimension; without that dimension if n is 1.
inline kn__row_args part_of(const row_kernels &kernels, kn__row_args r, int64_t first, int64_t n) {
    kn__operand_region *region = &r.region;
    int64_t inner = region->n / region->dim[0];
    for (int j = 0; j < 3; j++)
        if (r.out[j]) r.out[j] = (char *)r.out[j] + first * inner * kernels.out_bytes;
    for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) {
        int64_t bytes = first * region->stride[k + 1][0] * (int64_t)operand_bytes(kernels, k);
        if (r.in[k]) r.in[k] = (const char *)r.in[k] + bytes;
    }
    region->dim[0] = n, region->n = n * inner;
    if (n > 1 || region->n_dims == 1) return r;
    region->n_dims--;
    for (int d = 0; d < region->n_dims; d++) {
        region->dim[d] = region->dim[d + 1];
        for (int k = 0; k < KN__OPERANDS_MAX; k++) region->stride[k][d] = region->stride[k][d + 1];
    }
    return r;
}

// Whether packs of the last dimension are neighbours, or one element, in each operand; sets
// job->single.
inline bool has_packs(const row_kernels &kernels, const kn__operand_region &region, row_job *job) {
    int last = region.n_dims - 1;
    if (!kernels.packed || region.dim[last] % kernels.width) return false;
    job->single = 0;
    for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) {
        const int64_t *stride = region.stride[k + 1];
        job->single |= (unsigned)(stride[last] == 0) << k;
        if (stride[last] > 1) return false;
        for (int d = 0; d < last && stride[last]; d++)
            if (stride[d] % kernels.width) return false;
    }
    return is_aligned(kernels, *job);
}

// Indices have 32 bits, whose divisions are several times cheaper: more elements take several
// launches.
inline void launch_strided(const row_kernels &kernels, const kn__row_args &r, cudaStream_t stream) {
    const kn__operand_region *region = &r.region;
    if (region->n > KN_INDEX_MAX) {
        int64_t half = region->dim[0] / 2;
        launch_strided(kernels, part_of(kernels, r, 0, half), stream);
        launch_strided(kernels, part_of(kernels, r, half, region->dim[0] - half), stream);
        return;
    }
    row_job job = job_of(r);
    bool packed = has_packs(kernels, *region, &job);
    row_strides s = {};
    s.n_dims = region->n_dims;
    for (int d = 0; d < region->n_dims; d++) {
        int by = packed && d == region->n_dims - 1 ? kernels.width : 1;
        s.dim[d] = (uint32_t)(region->dim[d] / by);
        for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) s.in[k][d] = region->stride[k + 1][d] * by;
    }
    if (packed)
        KN_LAUNCH(kernels.packed, blocks_for(region->n / kernels.width), BLOCK, stream, job, s);
    else
        KN_LAUNCH(kernels.strided, blocks_for(region->n), BLOCK, stream, job, s);
}

template <class Row, int ORDER>
cudaError_t launch_row(const kn__row_args *r, cudaStream_t stream) {
    row_kernels kernels;
    if (!find_kernels<Row, ORDER>(&kernels, r->dtype)) return cudaErrorNotSupported;
    row_job job = job_of(*r);
    int64_t packs = (job.n + kernels.width - 1) / kernels.width;
    if (kernels.dense && r->region.n_dims == 1 && is_aligned(kernels, job))
        KN_LAUNCH(kernels.dense, blocks_for(packs), BLOCK, stream, job);
    else
        launch_strided(kernels, *r, stream);
    return cudaGetLastError();
}

}  // namespace kn_dev
#endif
