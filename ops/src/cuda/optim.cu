// Optimiser steps over all parameters in one launch. The table of parts travels among the kernel's
// arguments; a block finds its part by the number of its chunk. Rate, step count and gradient scale
// are read from device memory, and the last block to finish moves the step count on, so a captured
// step stays right.

#include "device.cuh"

namespace {

using namespace kn_dev;

enum { CHUNK = 4 * BLOCK };  // elements of one block

template <int N>
struct table {
    int n_parts;
    uint32_t first_chunk[N + 1];
    int64_t offset[N], n[N];
    void *w[N];
};

template <class T>
struct state {
    const T *grad;
    T *m, *v;
    double *hyper;
    double momentum, beta1, beta2, eps, weight_decay;
    bool last;
};

template <class T>
struct rates {  // what one block's elements share
    T lr, scale, decay, a, b, eps, step_size, root_correction;
};

// One thread does the powers in double precision.
template <int KIND, class T>
__device__ rates<T> make_rates(const state<T> &s) {
    rates<T> r;
    double lr = s.hyper[0], step = s.hyper[1] + 1;
    r.lr = (T)lr;
    r.scale = (T)s.hyper[2];
    r.decay = (T)s.weight_decay;
    r.a = (T)(KIND == KN__OPTIM_ADAM ? s.beta1 : s.momentum);
    r.b = (T)s.beta2;
    r.eps = (T)s.eps;
    if (KIND == KN__OPTIM_ADAM) {
        r.step_size = (T)(lr / (1 - pow(s.beta1, step)));
        r.root_correction = (T)(1 / sqrt(1 - pow(s.beta2, step)));
    }
    return r;
}

template <int KIND, class T>
__device__ T update(T w, T g, T *m, T *v, const rates<T> &r) {
    g *= r.scale;
    if (KIND == KN__OPTIM_ADAM) {
        T m1 = *m = r.a * *m + (1 - r.a) * g;
        T v1 = *v = r.b * *v + (1 - r.b) * g * g;
        return w - r.lr * r.decay * w - r.step_size * m1 / (sqrt_(v1) * r.root_correction + r.eps);
    }
    g += r.decay * w;
    if (KIND == KN__OPTIM_MOMENTUM) return w + (*m = r.a * *m - r.lr * g);
    return w - r.lr * g;
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

template <int KIND, int N, class T>
__global__ void __launch_bounds__(BLOCK)
    step_kernel(const __grid_constant__ table<N> t, const __grid_constant__ state<T> s) {
    KN_SHARED(r, rates<T>);
    if (threadIdx.x == 0) r = make_rates<KIND>(s);
    __syncthreads();
    int k = part_of(t, blockIdx.x);
    int64_t begin = (int64_t)(blockIdx.x - t.first_chunk[k]) * CHUNK;
    T *w = (T *)t.w[k];
    for (int64_t i = begin + threadIdx.x; i < min(begin + CHUNK, t.n[k]); i += BLOCK) {
        int64_t at = t.offset[k] + i;
        w[i] = update<KIND>(w[i], s.grad[at], s.m + at, s.v + at, r);
    }
    if (s.last && threadIdx.x == 0) advance_step(s.hyper);
}

template <int N, class T>
cudaError_t launch_sized(const kn__optim *p, cudaStream_t stream) {
    table<N> t = {};
    t.n_parts = p->n_parts;
    int64_t chunks = 0;
    for (int k = 0; k < p->n_parts; k++) {
        t.first_chunk[k] = (uint32_t)chunks;
        t.offset[k] = p->offset[k], t.n[k] = p->n[k], t.w[k] = p->w[k];
        chunks += (p->n[k] + CHUNK - 1) / CHUNK;
    }
    if (chunks == 0) t.n_parts = 1, chunks = 1;  // nothing to update but the step count
    if (chunks > INT32_MAX) return cudaErrorInvalidValue;
    t.first_chunk[t.n_parts] = (uint32_t)chunks;
    state<T> s = {(const T *)p->grad, (T *)p->m, (T *)p->v, p->hyper,        p->momentum,
                  p->beta1,           p->beta2,  p->eps,    p->weight_decay, p->last};
    unsigned blocks = (unsigned)chunks;
    switch (p->kind) {
        case KN__OPTIM_SGD:
            KN_LAUNCH(step_kernel<KN__OPTIM_SGD>, blocks, BLOCK, stream, t, s);
            break;
        case KN__OPTIM_MOMENTUM:
            KN_LAUNCH(step_kernel<KN__OPTIM_MOMENTUM>, blocks, BLOCK, stream, t, s);
            break;
        case KN__OPTIM_ADAM:
            KN_LAUNCH(step_kernel<KN__OPTIM_ADAM>, blocks, BLOCK, stream, t, s);
            break;
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" {

cudaError_t kn__launch_optim(const kn__optim *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        // Few parameters, a small table: arguments are copied at each launch.
        return p->n_parts <= 32 ? launch_sized<32, T>(p, stream)
                                : launch_sized<KN__PARTS_MAX, T>(p, stream);
    });
}

}  // extern "C"
