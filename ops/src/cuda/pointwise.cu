// Pointwise ops: every formula of ops.def as a functor, one kernel for dense operands that moves 16
// bytes a thread, one for broadcast operands.

#include <utility>

#include "device.cuh"

namespace {

using namespace kn_dev;

#define KN_UNARY(name, formula, saves, gradient)                                                   \
    struct f_##name {                                                                              \
        template <class T>                                                                         \
        __device__ T operator()(T x) const {                                                       \
            return (T)(formula);                                                                   \
        }                                                                                          \
    };                                                                                             \
    struct f_##name##_back {                                                                       \
        template <class T>                                                                         \
        __device__ T operator()(T s, T g) const {                                                  \
            (void)s, (void)g;                                                                      \
            return (T)(gradient);                                                                  \
        }                                                                                          \
    };
#define KN_BINARY(name, formula)                                                                   \
    struct f_##name {                                                                              \
        template <class T>                                                                         \
        __device__ T operator()(T x, T y) const {                                                  \
            return (T)(formula);                                                                   \
        }                                                                                          \
    };
#define KN_COMPARE(name, formula)                                                                  \
    struct f_##name {                                                                              \
        template <class T>                                                                         \
        __device__ uint8_t operator()(T x, T y) const {                                            \
            return (formula) ? 1 : 0;                                                              \
        }                                                                                          \
    };
#include <knet/ops.def>

struct f_where {
    template <class T>
    __device__ T operator()(uint8_t c, T x, T y) const {
        return c ? x : y;
    }
};
template <class T>
struct f_affine {
    T scale, shift;
    __device__ T operator()(T x) const { return scale * x + shift; }
};
template <class T>
struct f_pow_scalar {
    T p;
    __device__ T operator()(T x) const { return T_POW(x, p); }
};
template <class T>
struct f_square {
    __device__ T operator()(T x) const { return x * x; }
};

// One input of a dense call: all of it, or one element for everybody.
template <class T>
struct operand {
    const T *p;
    bool single;
};

template <int V, class T>
__device__ pack<T, V> load(operand<T> in, int64_t i) {
    pack<T, V> x;
    if (!in.single) return *reinterpret_cast<const pack<T, V> *>(in.p + i);
    T one = *in.p;
    for (int k = 0; k < V; k++) x.v[k] = one;
    return x;
}

template <class R, int V, class F, class... P>
__device__ pack<R, V> apply(F f, const P &...x) {
    pack<R, V> y;
#pragma unroll
    for (int k = 0; k < V; k++) y.v[k] = f(x.v[k]...);
    return y;
}

template <int V, class R, class F, class... A>
__global__ void __launch_bounds__(BLOCK, 1) dense_kernel(F f, R *out, int64_t n, operand<A>... in) {
    int64_t i = thread_index() * V, step = thread_count() * V;
    for (; i + V <= n; i += step)
        *reinterpret_cast<pack<R, V> *>(out + i) = apply<R, V>(f, load<V>(in, i)...);
    for (; i < n; i++) out[i] = f(in.p[in.single ? 0 : i]...);
}

struct strides {  // of a region with up to three inputs, as the kernel gets them
    int n_dims;
    int64_t dim[KN_DIMS_MAX], in[3][KN_DIMS_MAX];
};

// I: 32-bit indices where they suffice, whose divisions are several times cheaper.
template <class I, int N>
__device__ void offsets(int64_t (&at)[N], const strides &s, I i) {
    for (int k = 0; k < N; k++) at[k] = 0;
    for (int d = s.n_dims - 1; d >= 0; d--) {
        I size = (I)s.dim[d], rest = i / size, index = i - rest * size;
        for (int k = 0; k < N; k++) at[k] += (int64_t)index * s.in[k][d];
        i = rest;
    }
}

template <class I, class R, class F, size_t... K, class... A>
__device__ void strided_loop(F f, R *out, int64_t n, const strides &s, std::index_sequence<K...>,
                             const A *...in) {
    int64_t at[sizeof...(A)];
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        offsets<I>(at, s, (I)i);
        out[i] = f(in[at[K]]...);
    }
}

template <class I, class R, class F, class... A>
__global__ void __launch_bounds__(BLOCK, 1)
    strided_kernel(F f, R *out, int64_t n, strides s, const A *...in) {
    strided_loop<I, R>(f, out, n, s, std::index_sequence_for<A...>{}, in...);
}

template <class R, class F, class... A>
cudaError_t launch_strided(F f, const kn__pointwise *p, cudaStream_t stream, const A *...in) {
    const kn__region *r = &p->region;
    strides s = {};
    s.n_dims = r->n_dims;
    for (int d = 0; d < r->n_dims; d++) {
        s.dim[d] = r->dim[d];
        for (int k = 0; k < (int)sizeof...(A); k++) s.in[k][d] = r->stride[k + 1][d];
    }
    if (r->n <= UINT32_MAX)
        KN_LAUNCH((strided_kernel<uint32_t, R>), blocks_for(r->n), BLOCK, stream, f, (R *)p->out,
                  r->n, s, in...);
    else
        KN_LAUNCH((strided_kernel<uint64_t, R>), blocks_for(r->n), BLOCK, stream, f, (R *)p->out,
                  r->n, s, in...);
    return cudaGetLastError();
}

template <class R, class F, size_t... K, class... A>
cudaError_t launch_typed(F f, const kn__pointwise *p, cudaStream_t stream,
                         std::index_sequence<K...>, const A *...in) {
    constexpr int V = 16 / sizeof(typename std::common_type<R, A...>::type);
    const kn__region *r = &p->region;
    if (r->n_dims > 1) return launch_strided<R>(f, p, stream, in...);
    bool wide = aligned(p->out, sizeof(R) * V) &&
                (... && (r->stride[K + 1][0] == 0 || aligned(in, sizeof(A) * V)));
    if (wide)
        KN_LAUNCH(dense_kernel<V>, blocks_for((r->n + V - 1) / V), BLOCK, stream, f, (R *)p->out,
                  r->n, operand<A>{in, r->stride[K + 1][0] == 0}...);
    else
        KN_LAUNCH(dense_kernel<1>, blocks_for(r->n), BLOCK, stream, f, (R *)p->out, r->n,
                  operand<A>{in, r->stride[K + 1][0] == 0}...);
    return cudaGetLastError();
}

template <class R, class... A, class F>
cudaError_t launch(F f, const kn__pointwise *p, cudaStream_t stream, const A *...in) {
    return launch_typed<R>(f, p, stream, std::index_sequence_for<A...>{}, in...);
}

template <class F>
cudaError_t launch_unary(F f, const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return launch<T>(f, p, stream, (const T *)p->in[0]);
    });
}

template <class F>
cudaError_t launch_binary(F f, const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return launch<T>(f, p, stream, (const T *)p->in[0], (const T *)p->in[1]);
    });
}

template <class F>
cudaError_t launch_compare(F f, const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return launch<uint8_t>(f, p, stream, (const T *)p->in[0], (const T *)p->in[1]);
    });
}

}  // namespace

extern "C" {

#define KN_UNARY(name, formula, saves, gradient)                                                   \
    cudaError_t kn__launch_##name(const kn__pointwise *p, cudaStream_t stream) {                   \
        return launch_unary(f_##name{}, p, stream);                                                \
    }                                                                                              \
    cudaError_t kn__launch_##name##_back(const kn__pointwise *p, cudaStream_t stream) {            \
        return launch_binary(f_##name##_back{}, p, stream);                                        \
    }
#define KN_BINARY(name, formula)                                                                   \
    cudaError_t kn__launch_##name(const kn__pointwise *p, cudaStream_t stream) {                   \
        return launch_binary(f_##name{}, p, stream);                                               \
    }
#define KN_COMPARE(name, formula)                                                                  \
    cudaError_t kn__launch_##name(const kn__pointwise *p, cudaStream_t stream) {                   \
        return launch_compare(f_##name{}, p, stream);                                              \
    }
#include <knet/ops.def>

cudaError_t kn__launch_where(const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return launch<T>(f_where{}, p, stream, (const uint8_t *)p->in[0], (const T *)p->in[1],
                         (const T *)p->in[2]);
    });
}

cudaError_t kn__launch_affine(const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        return launch<T>(f_affine<T>{(T)p->a, (T)p->b}, p, stream, (const T *)p->in[0]);
    });
}

cudaError_t kn__launch_pow_scalar(const kn__pointwise *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        const T *x = (const T *)p->in[0];
        if (p->a == 2) return launch<T>(f_square<T>{}, p, stream, x);
        return launch<T>(f_pow_scalar<T>{(T)p->a}, p, stream, x);
    });
}

}  // extern "C"
