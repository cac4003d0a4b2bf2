// Optimiser steps over all parameters in one launch. The table of parts travels among the kernel's
// arguments; a block takes chunks in turn and finds the part by the number of the chunk. Rate, step
// count and gradient scale are read from device memory, and the last block to finish moves the step
// count on, so a captured step stays right.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

enum {
    CHUNK = 4 * BLOCK,    // elements
    BLOCKS_ENOUGH = 2048  // for any GPU; each makes the rates of the step once
};

template <int N>
struct table {
    int n_parts;
    uint32_t first_chunk[N + 1];
    int64_t offset[N], n[N];
    void *w[N];
    double rate[N], decay[N];
};

template <class T>
struct state {
    const T *grad;
    T *m, *v;
    double *hyper;
    double momentum, beta1, beta2, eps, weight_decay;
    bool rate_outside, last;
    double *sums;  // LAMB: [chunks][2], of squares of weights and of steps
};

template <class T>
struct rates {  // what all elements of a step share
    T scale, lr, decay, keep, a, b, one_a, one_b, eps, root_scale, m_scale;
    T inner, outer;  // of momentum: -lr and 1, or 1 and -lr
    double bias;
    bool stands;  // of a part without a rate: also where the step is infinite
};

template <int KIND>
constexpr bool HAS_M =
    KIND != KN__OPTIM_SGD &&KIND != KN__OPTIM_ADAGRAD &&KIND != KN__OPTIM_RMSPROP;
template <int KIND>
constexpr bool HAS_V =
    (KIND >= KN__OPTIM_ADAGRAD && KIND <= KN__OPTIM_ADAM) || KIND == KN__OPTIM_LAMB;
// Both use Adam's averages.
template <int KIND>
constexpr bool HAS_BIAS = KIND == KN__OPTIM_ADAM || KIND == KN__OPTIM_LAMB;
// The kernel moves nothing without a rate: there is no state, or it has the rate, or moved already.
template <int KIND>
constexpr bool STOPS = KIND == KN__OPTIM_SGD || KIND == KN__OPTIM_MOMENTUM ||
                       KIND == KN__OPTIM_NESTEROV || KIND == KN__OPTIM_LAMB;
template <int KIND>
constexpr int CHUNK_OF = KIND == KN__OPTIM_LAMB ? (int)KN__LAMB_CHUNK : (int)CHUNK;

// By squaring: a step count takes a few products, pow() some hundred instructions and a stack.
__device__ double power(double base, uint32_t n) {
    double result = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1) result *= base;
    return result;
}

// One thread of a block makes them, in double precision.
template <int KIND, class T>
__device__ rates<T> make_rates(const state<T> &s) {
    rates<T> r;
    double a = HAS_BIAS<KIND> ? s.beta1 : s.momentum;
    r.scale = (T)s.hyper[2];
    r.a = (T)a, r.one_a = (T)(1 - a);
    r.b = (T)s.beta2, r.one_b = (T)(1 - s.beta2);
    r.eps = (T)s.eps;
    if (HAS_BIAS<KIND>) {
        uint32_t step = (uint32_t)s.hyper[1] + 1;
        r.bias = 1 / (1 - power(s.beta1, step));
        r.m_scale = (T)r.bias;
        r.root_scale = (T)(1 / sqrt(1 - power(s.beta2, step)));
    }
    return r;
}

// The rates of one part.
template <int KIND, class T>
__device__ void set_part(rates<T> &r, const state<T> &s, double rate, double decay) {
    double lr = s.hyper[0];
    r.lr = (T)(lr * rate);
    r.stands = lr * rate == 0;
    r.inner = s.rate_outside ? (T)1 : -r.lr;
    r.outer = s.rate_outside ? -r.lr : (T)1;
    r.decay = (T)(s.weight_decay * decay);
    if (KIND == KN__OPTIM_ADAM) {
        r.keep = (T)(1 - lr * rate * s.weight_decay * decay);
        r.lr = (T)(lr * r.bias * rate);
    }
}

// You et al. 2020, r of algorithm 2.
template <class T>
__device__ T lamb_step(T w, T m, T v, const rates<T> &r) {
    return m * r.m_scale / (sqrt_(v) * r.root_scale + r.eps) + r.decay * w;
}

template <int KIND, class T>
__device__ void update(T &w, T g, T &m, T &v, const rates<T> &r) {
    if (KIND == KN__OPTIM_EMA) {
        m = r.a * m + r.one_a * w;
        return;
    }
    if (KIND == KN__OPTIM_LAMB) {  // m and v moved already
        w -= r.lr * lamb_step(w, m, v, r);
        return;
    }
    g *= r.scale;
    if (KIND != KN__OPTIM_ADAM) g += r.decay * w;
    switch (KIND) {
        case KN__OPTIM_MOMENTUM:
            m = r.a * m + r.inner * g;
            w += r.outer * m;
            break;
        case KN__OPTIM_NESTEROV:
            m = r.a * m + r.inner * g;
            w += r.outer * (r.a * m + r.inner * g);
            break;
        case KN__OPTIM_ADAGRAD:
            v += g * g;
            w -= r.lr * g / sqrt_(v + r.eps);
            break;
        case KN__OPTIM_RMSPROP:
            v = r.b * v + r.one_b * (g * g);
            w -= r.lr * g / sqrt_(v + r.eps);
            break;
        case KN__OPTIM_ADADELTA: {
            v = r.b * v + r.one_b * (g * g);
            T step = g * sqrt_(m + r.eps) / sqrt_(v + r.eps);
            w -= r.lr * step;
            m = r.b * m + r.one_b * (step * step);
            break;
        }
        case KN__OPTIM_ADAM:
            m = r.a * m + r.one_a * g;
            v = r.b * v + r.one_b * (g * g);
            w = r.keep * w - r.lr * m / (sqrt_(v) * r.root_scale + r.eps);
            break;
        default:
            w -= r.lr * g;
    }
}

// V elements from i on; m and v are read and written by the kinds that have them.
template <int KIND, int V, class T>
__device__ void update_at(int64_t i, T *__restrict__ w, const T *__restrict__ grad,
                          T *__restrict__ m, T *__restrict__ v, const rates<T> &r) {
    using P = pack<T, V>;
    P wp = *reinterpret_cast<P *>(w + i), gp, mp, vp;
    if (KIND != KN__OPTIM_LAMB) gp = *reinterpret_cast<const P *>(grad + i);
    if (HAS_M<KIND>) mp = *reinterpret_cast<P *>(m + i);
    if (HAS_V<KIND>) vp = *reinterpret_cast<P *>(v + i);
#pragma unroll
    for (int k = 0; k < V; k++) update<KIND>(wp.v[k], gp.v[k], mp.v[k], vp.v[k], r);
    if (KIND != KN__OPTIM_EMA && !r.stands) *reinterpret_cast<P *>(w + i) = wp;
    if (HAS_M<KIND> && KIND != KN__OPTIM_LAMB) *reinterpret_cast<P *>(m + i) = mp;
    if (HAS_V<KIND> && KIND != KN__OPTIM_LAMB) *reinterpret_cast<P *>(v + i) = vp;
}

template <int KIND, class T>
__device__ void update_chunk(int64_t n, T *__restrict__ w, const T *__restrict__ grad,
                             T *__restrict__ m, T *__restrict__ v, const rates<T> &r) {
    constexpr int V = 16 / sizeof(T);
    bool wide = ((uintptr_t)w | (uintptr_t)grad | (uintptr_t)m | (uintptr_t)v) % 16 == 0;
    int64_t n_wide = wide ? n / V * V : 0;
    for (int64_t i = threadIdx.x * V; i < n_wide; i += BLOCK * V)
        update_at<KIND, V>(i, w, grad, m, v, r);
    for (int64_t i = n_wide + threadIdx.x; i < n; i += BLOCK)
        update_at<KIND, 1>(i, w, grad, m, v, r);
}

template <int N>
__device__ int part_of(const table<N> &t, uint32_t chunk) {
    int low = 0, high = t.n_parts - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (t.first_chunk[mid] <= chunk)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

// hyper[3] holds the count of blocks that are done; zero between steps.
__device__ void advance_step(double *hyper) {
    unsigned *ticket = reinterpret_cast<unsigned *>(hyper + 3);
    __threadfence();
    if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;
    hyper[1] += 1;
    *ticket = 0;
}

struct lamb_sums {
    double weights, steps;  // of squares
};

// V elements from i on.
template <int V, class T>
__device__ void lamb_state_at(lamb_sums &sums, int64_t i, const T *__restrict__ w,
                              const T *__restrict__ grad, T *__restrict__ m, T *__restrict__ v,
                              const rates<T> &r) {
    using P = pack<T, V>;
    P wp = *reinterpret_cast<const P *>(w + i), gp = *reinterpret_cast<const P *>(grad + i),
      mp = *reinterpret_cast<P *>(m + i), vp = *reinterpret_cast<P *>(v + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        T x = gp.v[k] * r.scale;
        mp.v[k] = r.a * mp.v[k] + r.one_a * x;
        vp.v[k] = r.b * vp.v[k] + r.one_b * (x * x);
        double old = (double)wp.v[k], step = (double)lamb_step(wp.v[k], mp.v[k], vp.v[k], r);
        sums.weights += old * old;
        sums.steps += step * step;
    }
    *reinterpret_cast<P *>(m + i) = mp;
    *reinterpret_cast<P *>(v + i) = vp;
}

template <class T>
__device__ void lamb_state_chunk(double *out, int64_t n, const T *__restrict__ w,
                                 const T *__restrict__ grad, T *__restrict__ m, T *__restrict__ v,
                                 const rates<T> &r) {
    constexpr int V = 16 / sizeof(T);
    lamb_sums sums = {0, 0};
    bool wide = ((uintptr_t)w | (uintptr_t)grad | (uintptr_t)m | (uintptr_t)v) % 16 == 0;
    int64_t n_wide = wide ? n / V * V : 0;
    for (int64_t i = threadIdx.x * V; i < n_wide; i += BLOCK * V)
        lamb_state_at<V>(sums, i, w, grad, m, v, r);
    for (int64_t i = n_wide + threadIdx.x; i < n; i += BLOCK)
        lamb_state_at<1>(sums, i, w, grad, m, v, r);
    double weights = team_join<op_sum, BLOCK>(sums.weights);
    double steps = team_join<op_sum, BLOCK>(sums.steps);
    if (threadIdx.x == 0) out[0] = weights, out[1] = steps;
}

// The length of a part's weights over that of its step; 1 where one of them is zero.
__device__ double trust_of(const double *sums, uint32_t n_chunks) {
    double weights = 0, steps = 0;
    for (uint32_t i = threadIdx.x; i < n_chunks; i += BLOCK)
        weights += sums[2 * i], steps += sums[2 * i + 1];
    weights = team_join<op_sum, BLOCK>(weights);
    steps = team_join<op_sum, BLOCK>(steps);
    return weights > 0 && steps > 0 ? sqrt(weights / steps) : 1;
}

template <int N, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    lamb_state_kernel(const __grid_constant__ table<N> t, const __grid_constant__ state<T> s) {
    KN_SHARED(made, rates<T>);
    if (threadIdx.x == 0) made = make_rates<KN__OPTIM_LAMB>(s);
    __syncthreads();
    rates<T> r = made;
    for (uint32_t c = blockIdx.x; c < t.first_chunk[t.n_parts]; c += gridDim.x) {
        int k = part_of(t, c);
        set_part<KN__OPTIM_LAMB>(r, s, t.rate[k], t.decay[k]);
        int64_t begin = (int64_t)(c - t.first_chunk[k]) * KN__LAMB_CHUNK, at = t.offset[k] + begin;
        lamb_state_chunk(s.sums + 2 * c, min((int64_t)KN__LAMB_CHUNK, t.n[k] - begin),
                         (const T *)t.w[k] + begin, s.grad + at, s.m + at, s.v + at, r);
    }
}

template <int KIND, int N, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    step_kernel(const __grid_constant__ table<N> t, const __grid_constant__ state<T> s) {
    KN_SHARED(made, rates<T>);
    if (threadIdx.x == 0) made = make_rates<KIND>(s);
    __syncthreads();
    rates<T> r = made;
    for (uint32_t c = blockIdx.x; c < t.first_chunk[t.n_parts]; c += gridDim.x) {
        int k = part_of(t, c);
        set_part<KIND>(r, s, t.rate[k], t.decay[k]);
        if (STOPS<KIND> && !s.rate_outside && r.stands) continue;
        int64_t begin = (int64_t)(c - t.first_chunk[k]) * CHUNK_OF<KIND>, at = t.offset[k] + begin;
        if (KIND == KN__OPTIM_LAMB && t.n[k] > 0)
            r.lr *=
                (T)trust_of(s.sums + 2 * t.first_chunk[k], t.first_chunk[k + 1] - t.first_chunk[k]);
        update_chunk<KIND>(min((int64_t)CHUNK_OF<KIND>, t.n[k] - begin), (T *)t.w[k] + begin,
                           s.grad + at, s.m ? s.m + at : nullptr, s.v ? s.v + at : nullptr, r);
    }
    if (s.last && threadIdx.x == 0) advance_step(s.hyper);
}

template <int N, class T>
cudaError_t launch_sized(const kn__optim *p, bool is_lamb_state, cudaStream_t stream) {
    table<N> t = {};
    t.n_parts = p->n_parts;
    int64_t chunks = 0, chunk = p->kind == KN__OPTIM_LAMB ? (int)KN__LAMB_CHUNK : (int)CHUNK;
    for (int k = 0; k < p->n_parts; k++) {
        t.first_chunk[k] = (uint32_t)chunks;
        t.offset[k] = p->offset[k], t.n[k] = p->n[k], t.w[k] = p->w[k];
        t.rate[k] = p->rate[k], t.decay[k] = p->decay[k];
        chunks += (p->n[k] + chunk - 1) / chunk;
    }
    if (chunks == 0) t.n_parts = 1, chunks = 1;  // nothing to update but the step count
    if (chunks > INT32_MAX) return cudaErrorInvalidValue;
    t.first_chunk[t.n_parts] = (uint32_t)chunks;
    state<T> s = {(const T *)p->grad, (T *)p->m,       (T *)p->v, p->hyper,
                  p->momentum,        p->beta1,        p->beta2,  p->eps,
                  p->weight_decay,    p->rate_outside, p->last,   p->sums};
    unsigned blocks = blocks_for(min(chunks, (int64_t)BLOCKS_ENOUGH), 1);
    if (is_lamb_state) {
        if (p->n_parts > 0) KN_LAUNCH(lamb_state_kernel, blocks, BLOCK, stream, t, s);
        return cudaGetLastError();
    }
#define KIND_CASE(kind)                                                                            \
    case kind:                                                                                     \
        KN_LAUNCH(step_kernel<kind>, blocks, BLOCK, stream, t, s);                                 \
        break;
    switch (p->kind) {
        KIND_CASE(KN__OPTIM_SGD)
        KIND_CASE(KN__OPTIM_MOMENTUM)
        KIND_CASE(KN__OPTIM_NESTEROV)
        KIND_CASE(KN__OPTIM_ADAGRAD)
        KIND_CASE(KN__OPTIM_RMSPROP)
        KIND_CASE(KN__OPTIM_ADADELTA)
        KIND_CASE(KN__OPTIM_ADAM)
        KIND_CASE(KN__OPTIM_EMA)
        KIND_CASE(KN__OPTIM_LAMB)
    }
    return cudaGetLastError();
}

cudaError_t launch(const kn__optim *p, bool is_lamb_state, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        // Few parameters, a small table: arguments are copied at each launch.
        return p->n_parts <= 32 ? launch_sized<32, T>(p, is_lamb_state, stream)
                                : launch_sized<KN__PARTS_MAX, T>(p, is_lamb_state, stream);
    });
}

}  // namespace

extern "C" {

cudaError_t kn__launch_optim(const kn__optim *p, cudaStream_t stream) {
    return launch(p, false, stream);
}

cudaError_t kn__launch_lamb_state(const kn__optim *p, cudaStream_t stream) {
    return launch(p, true, stream);
}

}  // extern "C"
