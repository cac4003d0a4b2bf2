// Pointwise ops: every row of ops.def as a struct of formulas; one kernel for dense operands, which
// moves 16 bytes of each at a time, and one for broadcast operands and odd addresses.
//
// The operands of a kernel are those of the call, by `order`:
//   0  x…            the row itself
//   1  g, x…, z      its back: all wanted derivatives from one reading of the operands
//   2  u…, x…, z     its back2: for each wanted j, the sum over i of second derivative i, j of u_i
#ifndef KN_CUDA_POINTWISE_CUH
#define KN_CUDA_POINTWISE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "../needs.h"
#include "device.cuh"

namespace kn_dev {

// --- what formulas compute in: f32 for 16-bit floats, integers that wrap ---

template <class I>
struct wrapped {
    using bits = typename std::make_unsigned<I>::type;
    I v;
    wrapped() = default;
    __device__ wrapped(I x) : v(x) {}
    __device__ explicit operator bool() const { return v != 0; }
    __device__ wrapped operator-() const { return (I)(bits)(0 - (uint64_t)v); }
    // Without a sign and in 64 bits nothing overflows.
    __device__ friend wrapped operator+(wrapped x, wrapped y) {
        return (I)(bits)((uint64_t)x.v + (uint64_t)y.v);
    }
    __device__ friend wrapped operator-(wrapped x, wrapped y) {
        return (I)(bits)((uint64_t)x.v - (uint64_t)y.v);
    }
    __device__ friend wrapped operator*(wrapped x, wrapped y) {
        return (I)(bits)((uint64_t)x.v * (uint64_t)y.v);
    }
    __device__ friend bool operator==(wrapped x, wrapped y) { return x.v == y.v; }
    __device__ friend bool operator!=(wrapped x, wrapped y) { return x.v != y.v; }
    __device__ friend bool operator<(wrapped x, wrapped y) { return x.v < y.v; }
    __device__ friend bool operator<=(wrapped x, wrapped y) { return x.v <= y.v; }
    __device__ friend bool operator>(wrapped x, wrapped y) { return x.v > y.v; }
    __device__ friend bool operator>=(wrapped x, wrapped y) { return x.v >= y.v; }
};
template <class I>
__device__ wrapped<I> abs_(wrapped<I> x) {
    return x < wrapped<I>(0) ? -x : x;
}

// How an element S is loaded, and a result stored.
template <class S>
struct element {
    using T = wrapped<S>;
    __device__ static T load(S x) { return x; }
    __device__ static S store(T x) { return x.v; }
};
template <class S>
struct element_itself {
    using T = S;
    __device__ static T load(S x) { return x; }
    __device__ static S store(T x) { return x; }
};
template <>
struct element<float> : element_itself<float> {};
template <>
struct element<double> : element_itself<double> {};
template <>
struct element<__half> {
    using T = float;
    __device__ static T load(__half x) { return __half2float(x); }
    __device__ static __half store(T x) { return __float2half_rn(x); }
};
template <>
struct element<__nv_bfloat16> {
    using T = float;
    __device__ static T load(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static __nv_bfloat16 store(T x) { return __float2bfloat16_rn(x); }
};
struct boolean {  // an operand that is BOOL whatever the others are
    uint8_t v;
};
template <>
struct element<boolean> {
    __device__ static int load(boolean x) { return x.v; }
};

// --- the rows ---

enum {
    REALS = 1u << KN_F32 | 1u << KN_F64,
    FLOATS = REALS | 1u << KN_F16 | 1u << KN_BF16,
    NUMBERS = FLOATS | 1u << KN_I64 | 1u << KN_I32 | 1u << KN_U8,
    BOOLS = 1u << KN_BOOL
};
#define VAR_FLOAT(name) name
#define VAR_NUMERIC(name) name
#define VAR_ANY(name) name
#define VAR_BOOL(name) name
#define VAR(input) VAR_##input
#define DTYPES_FLOAT(name) FLOATS
#define DTYPES_NUMERIC(name) NUMBERS
#define DTYPES_ANY(name) (NUMBERS | BOOLS)
#define DTYPES_BOOL(name) BOOLS
#define DTYPES(input) DTYPES_##input
#define IS_BOOL(input) (DTYPES(input) == BOOLS)
#define READS(derivative) (READS_ derivative)
#define READS_(reads, formula) reads
#define FORMULA(derivative) FORMULA_ derivative
#define FORMULA_(reads, formula) (formula)
#define BIND(input, value) [[maybe_unused]] const T VAR(input) = value;

// K: inputs; DTYPES_OF: the dtypes of those that aren't BOOL; BOOL_INPUTS: a bit each. …_reads:
// what a derivative reads, as needs.h says. v: the inputs of one element.
#define ROW_HEAD(k, dtypes, bools, compares)                                                       \
    static constexpr int K = k;                                                                    \
    static constexpr unsigned DTYPES_OF = dtypes, BOOL_INPUTS = bools;                             \
    static constexpr bool COMPARES = compares;
#define SCALARS                                                                                    \
    [[maybe_unused]] T p, [[maybe_unused]] T q, [[maybe_unused]] double P, [[maybe_unused]] double Q
#define FORWARD                                                                                    \
    template <class T>                                                                             \
    __device__ static auto forward(const T *v, SCALARS)
#define ARGUMENTS ([[maybe_unused]] T g, [[maybe_unused]] const T *v, [[maybe_unused]] T z, SCALARS)
#define FIRST_DERIVATIVE                                                                           \
    template <int I, class T>                                                                      \
    __device__ static T first ARGUMENTS
#define SECOND_DERIVATIVE                                                                          \
    template <int I, int J, class T>                                                               \
    __device__ static T second ARGUMENTS

// clang-format off
#define KN_ROW1(name, s, domain, in0, f, d0, d00, third)                                           \
    struct row_##name {                                                                            \
        ROW_HEAD(1, DTYPES(in0), IS_BOOL(in0), false)                                              \
        KN_HOST_DEVICE static constexpr unsigned first_reads(int) { return READS(d0); }            \
        KN_HOST_DEVICE static constexpr unsigned second_reads(int, int) { return READS(d00); }     \
        FORWARD {                                                                                  \
            BIND(in0, v[0])                                                                        \
            return (T)(f);                                                                         \
        }                                                                                          \
        FIRST_DERIVATIVE {                                                                         \
            BIND(in0, v[0])                                                                        \
            return (T)FORMULA(d0);                                                                 \
        }                                                                                          \
        SECOND_DERIVATIVE {                                                                        \
            BIND(in0, v[0])                                                                        \
            return (T)FORMULA(d00);                                                                \
        }                                                                                          \
    };
#define KN_ROW2(name, s, domain, in0, in1, f, d0, d1, d00, d01, d11, third)                        \
    struct row_##name {                                                                            \
        ROW_HEAD(2, DTYPES(in1), IS_BOOL(in0) | IS_BOOL(in1) << 1, false)                          \
        KN_HOST_DEVICE static constexpr unsigned first_reads(int i) {                              \
            return i == 0 ? READS(d0) : READS(d1);                                                 \
        }                                                                                          \
        KN_HOST_DEVICE static constexpr unsigned second_reads(int i, int j) {                      \
            return i + j == 0 ? READS(d00) : i + j == 1 ? READS(d01) : READS(d11);                 \
        }                                                                                          \
        FORWARD {                                                                                  \
            BIND(in0, v[0]) BIND(in1, v[1])                                                        \
            return (T)(f);                                                                         \
        }                                                                                          \
        FIRST_DERIVATIVE {                                                                         \
            BIND(in0, v[0]) BIND(in1, v[1])                                                        \
            if constexpr (I == 0) return (T)FORMULA(d0);                                           \
            else return (T)FORMULA(d1);                                                            \
        }                                                                                          \
        SECOND_DERIVATIVE {                                                                        \
            BIND(in0, v[0]) BIND(in1, v[1])                                                        \
            if constexpr (I + J == 0) return (T)FORMULA(d00);                                      \
            else if constexpr (I + J == 1) return (T)FORMULA(d01);                                 \
            else return (T)FORMULA(d11);                                                           \
        }                                                                                          \
    };
/* Pairs of indices by their sum: 0: 00, 1: 01, 2: 11 or 02, 3: 12, 4: 22. */
#define KN_ROW3(name, s, domain, in0, in1, in2, f, d0, d1, d2, d00, d01, d02, d11, d12, d22,       \
                third)                                                                             \
    struct row_##name {                                                                            \
        ROW_HEAD(3, DTYPES(in2), IS_BOOL(in0) | IS_BOOL(in1) << 1 | IS_BOOL(in2) << 2, false)      \
        KN_HOST_DEVICE static constexpr unsigned first_reads(int i) {                              \
            return i == 0 ? READS(d0) : i == 1 ? READS(d1) : READS(d2);                            \
        }                                                                                          \
        KN_HOST_DEVICE static constexpr unsigned second_reads(int i, int j) {                      \
            return i + j == 0   ? READS(d00)                                                       \
                   : i + j == 1 ? READS(d01)                                                       \
                   : i + j == 3 ? READS(d12)                                                       \
                   : i + j == 4 ? READS(d22)                                                       \
                   : i == j     ? READS(d11)                                                       \
                                : READS(d02);                                                      \
        }                                                                                          \
        FORWARD {                                                                                  \
            BIND(in0, v[0]) BIND(in1, v[1]) BIND(in2, v[2])                                        \
            return (T)(f);                                                                         \
        }                                                                                          \
        FIRST_DERIVATIVE {                                                                         \
            BIND(in0, v[0]) BIND(in1, v[1]) BIND(in2, v[2])                                        \
            if constexpr (I == 0) return (T)FORMULA(d0);                                           \
            else if constexpr (I == 1) return (T)FORMULA(d1);                                      \
            else return (T)FORMULA(d2);                                                            \
        }                                                                                          \
        SECOND_DERIVATIVE {                                                                        \
            BIND(in0, v[0]) BIND(in1, v[1]) BIND(in2, v[2])                                        \
            if constexpr (I + J == 0) return (T)FORMULA(d00);                                      \
            else if constexpr (I + J == 1) return (T)FORMULA(d01);                                 \
            else if constexpr (I + J == 3) return (T)FORMULA(d12);                                 \
            else if constexpr (I + J == 4) return (T)FORMULA(d22);                                 \
            else if constexpr (I == J) return (T)FORMULA(d11);                                     \
            else return (T)FORMULA(d02);                                                           \
        }                                                                                          \
    };
#define KN_COMPARE(name, domain, in0, in1, f)                                                      \
    struct row_##name {                                                                            \
        ROW_HEAD(2, DTYPES(in1), IS_BOOL(in0) | IS_BOOL(in1) << 1, true)                           \
        FORWARD {                                                                                  \
            BIND(in0, v[0]) BIND(in1, v[1])                                                        \
            return (bool)(f);                                                                      \
        }                                                                                          \
    };
// clang-format on
#include <knet/ops.def>

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

// V elements from the i-th on, of which `rest` exist; or one element V times.
template <class S, int V, class T>
__device__ void load(T (&x)[V], const void *in, int64_t i, int64_t rest, bool single) {
    const S *from = (const S *)in;
    if (single) {
        T one = T(element<S>::load(*from));
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
        make_all<Row, S, ORDER, V>(job, i, [&](int) { return i; });
}

template <class Row, class S, int ORDER>
__global__ void __launch_bounds__(BLOCK, 1) strided_kernel(row_job job, row_strides s) {
    constexpr int N = operands<Row, ORDER>::N_IN;
#pragma unroll 1
    for (int64_t i = thread_index(); i < job.n; i += thread_count()) {
        int64_t at[N];
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
        make_all<Row, S, ORDER, 1>(job, i, [&](int k) { return at[k]; });
    }
}

// --- launching ---

struct row_kernels {
    void (*dense)(row_job);
    void (*strided)(row_job, row_strides);
    int width, out_bytes;  // of dense: elements a thread at a time; bytes of one result
    unsigned bools;        // operands
};

template <class Row, int ORDER, class S>
row_kernels kernels_of() {
    using O = operands<Row, ORDER>;
    constexpr int V = 16 / sizeof(S);
    unsigned bools = 0;
    for (int k = 0; k < O::N_IN; k++) bools |= (unsigned)O::is_bool(k) << k;
    return {dense_kernel<Row, S, ORDER, V>, strided_kernel<Row, S, ORDER>, V,
            Row::COMPARES ? 1 : (int)sizeof(S), bools};
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

inline row_job job_of(const kn__row &r) {
    row_job job = {r.region.n, {}, {}, r.accumulate, 0, r.p, r.q, r.p_integer, r.q_integer};
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
inline kn__row part_of(const row_kernels &kernels, kn__row r, int64_t first, int64_t n) {
    kn__region *region = &r.region;
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

// Indices have 32 bits, whose divisions are several times cheaper: more elements take several
// launches.
inline void launch_strided(const row_kernels &kernels, const kn__row &r, cudaStream_t stream) {
    const kn__region *region = &r.region;
    if (region->n > KN_INDEX_MAX) {
        int64_t half = region->dim[0] / 2;
        launch_strided(kernels, part_of(kernels, r, 0, half), stream);
        launch_strided(kernels, part_of(kernels, r, half, region->dim[0] - half), stream);
        return;
    }
    row_strides s = {};
    s.n_dims = region->n_dims;
    for (int d = 0; d < region->n_dims; d++) {
        s.dim[d] = (uint32_t)region->dim[d];
        for (int k = 0; k < KN__OPERANDS_MAX - 1; k++) s.in[k][d] = region->stride[k + 1][d];
    }
    KN_LAUNCH(kernels.strided, blocks_for(region->n), BLOCK, stream, job_of(r), s);
}

template <class Row, int ORDER>
cudaError_t launch_row(const kn__row *r, cudaStream_t stream) {
    row_kernels kernels;
    if (!find_kernels<Row, ORDER>(&kernels, r->dtype)) return cudaErrorNotSupported;
    row_job job = job_of(*r);
    int64_t packs = (job.n + kernels.width - 1) / kernels.width;
    if (r->region.n_dims == 1 && is_aligned(kernels, job))
        KN_LAUNCH(kernels.dense, blocks_for(packs), BLOCK, stream, job);
    else
        launch_strided(kernels, *r, stream);
    return cudaGetLastError();
}

}  // namespace kn_dev
#endif
