// Every row of ops.def as a struct of formulas, with the types they compute in.
#ifndef KN_CUDA_FORMULAS_CUH
#define KN_CUDA_FORMULAS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <knet/tensor.h>

#include <type_traits>

#include "cuda/base/functions.cuh"
#include "needs.h"

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

// No remainder if it is zero or would overflow.
template <class I>
__device__ wrapped<I> fmod_(wrapped<I> x, wrapped<I> y) {
    if (y.v == 0 || ((I)-1 < (I)1 && y.v == (I)-1)) return wrapped<I>(0);
    return wrapped<I>((I)(x.v % y.v));
}
template <class I>
__device__ wrapped<I> mod_(wrapped<I> x, wrapped<I> y) {
    wrapped<I> rest = fmod_(x, y);
    const wrapped<I> zero(0);
    return rest != zero && (rest < zero) != (y < zero) ? rest + y : rest;
}
template <class I>
__device__ wrapped<I> floor_div_(wrapped<I> x, wrapped<I> y) {
    const wrapped<I> zero(0);
    if (y.v == 0) return zero;
    if ((I)-1 < (I)1 && y.v == (I)-1) return -x;  // of the least number the quotient overflows
    const wrapped<I> q((I)(x.v / y.v)), rest((I)(x.v % y.v));
    return rest != zero && (rest < zero) != (y < zero) ? q - wrapped<I>(1) : q;
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
// what a derivative reads, as needs.h says. v: the inputs of one element. For launchers, not for
// NVRTC, which makes a variable on the device of each.
#ifdef __CUDACC_RTC__
#define ROW_HEAD(...)
#else
#define ROW_HEAD(k, dtypes, bools, compares, rare)                                                 \
    static constexpr int K = k;                                                                    \
    static constexpr bool RARE = rare;                                                             \
    static constexpr unsigned DTYPES_OF = dtypes, BOOL_INPUTS = bools;                             \
    static constexpr bool COMPARES = compares;
#endif
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
#define ROW_OF_1(rare, name, s, domain, in0, f, d0, d00, third)                                    \
    struct row_##name {                                                                            \
        ROW_HEAD(1, DTYPES(in0), IS_BOOL(in0), false, rare)                                        \
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
#define ROW_OF_2(rare, name, s, domain, in0, in1, f, d0, d1, d00, d01, d11, third)                 \
    struct row_##name {                                                                            \
        ROW_HEAD(2, DTYPES(in1), IS_BOOL(in0) | IS_BOOL(in1) << 1, false, rare)                    \
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
        ROW_HEAD(3, DTYPES(in2), IS_BOOL(in0) | IS_BOOL(in1) << 1 | IS_BOOL(in2) << 2, 0, 0)  \
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
        ROW_HEAD(2, DTYPES(in1), IS_BOOL(in0) | IS_BOOL(in1) << 1, true, false)                    \
        FORWARD {                                                                                  \
            BIND(in0, v[0]) BIND(in1, v[1])                                                        \
            return (bool)(f);                                                                      \
        }                                                                                          \
    };
#define KN_COMPARE1(name, domain, in0, f)                                                      \
    struct row_##name {                                                                            \
        ROW_HEAD(1, DTYPES(in0), IS_BOOL(in0), true, false)                           \
        FORWARD {                                                                                  \
            BIND(in0, v[0])                                                        \
            return (bool)(f);                                                                      \
        }                                                                                          \
    };
#define KN_ROW1(...) ROW_OF_1(false, __VA_ARGS__)
#define KN_ROW2(...) ROW_OF_2(false, __VA_ARGS__)
#define KN_VECTOR1(...) ROW_OF_1(true, __VA_ARGS__)
#define KN_VECTOR2(...) ROW_OF_2(true, __VA_ARGS__)
#define KN_RARE1(...) ROW_OF_1(true, __VA_ARGS__)
#define KN_RARE2(...) ROW_OF_2(true, __VA_ARGS__)
// clang-format on
#include <knet/ops.def>

}  // namespace kn_dev
#endif
