// Random numbers and dropout: philox.h's element map, one counter a thread. Eight neighbouring
// threads write 8 neighbouring elements for each word, a whole memory sector.

#include "cuda/base/device.cuh"
#include "integers.h"
#include "philox.h"
#include "quantile.h"

namespace {

using namespace kn_dev;

__global__ void rng_take_kernel(int64_t *out, int64_t *state, int64_t advance) {
    int64_t offset = state[1];
    out[0] = state[0];
    out[1] = offset;
    state[1] = offset + advance;
}

// The words of the thread's counter `c` of the state.
__device__ void words_of(uint32_t (&w)[4], const int64_t *state, int64_t c) {
    kn__philox(w, (uint64_t)state[1] + (uint64_t)c, (uint64_t)state[0]);
}
// First element of counter c, where a block of 8 counters makes `block` elements.
__device__ int64_t element_of(int64_t c, int block) { return c / 8 * block + c % 8; }

__global__ void __launch_bounds__(BLOCK, 1)
    uniform_kernel(float *out, int64_t n, int64_t counters, double lo, double hi,
                   const int64_t *state) {
    float below = kn__below_f32((float)lo, (float)hi);
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 32);
        for (int k = 0; k < 4; k++)
            if (e + 8 * k < n) out[e + 8 * k] = kn__uniform_f32(w[k], (float)lo, (float)hi, below);
    }
}

__global__ void __launch_bounds__(BLOCK, 1)
    uniform_kernel(double *out, int64_t n, int64_t counters, double lo, double hi,
                   const int64_t *state) {
    double below = kn__below_f64(lo, hi);
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 16);
        for (int k = 0; k < 2; k++)
            if (e + 8 * k < n)
                out[e + 8 * k] = kn__uniform_f64(w[2 * k], w[2 * k + 1], lo, hi, below);
    }
}

__device__ double scaled(double z, double mean, double stddev) {
    return KN_ADD_F64(mean, KN_MUL_F64(stddev, z));
}

__global__ void __launch_bounds__(BLOCK, 1)
    normal_kernel(float *out, int64_t n, int64_t counters, double mean, double stddev,
                  const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        double z[4];
        words_of(w, state, c);
        kn__normal_pair_f32(z, w[0], w[1]);
        kn__normal_pair_f32(z + 2, w[2], w[3]);
        int64_t e = element_of(c, 32);
        for (int k = 0; k < 4; k++)
            if (e + 8 * k < n) out[e + 8 * k] = (float)scaled(z[k], mean, stddev);
    }
}

__global__ void __launch_bounds__(BLOCK, 1)
    normal_kernel(double *out, int64_t n, int64_t counters, double mean, double stddev,
                  const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        double z[2];
        words_of(w, state, c);
        kn__normal_pair_f64(z, w);
        int64_t e = element_of(c, 16);
        for (int k = 0; k < 2; k++)
            if (e + 8 * k < n) out[e + 8 * k] = scaled(z[k], mean, stddev);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    exponential_kernel(T *out, int64_t n, int64_t counters, double rate, const int64_t *state) {
    constexpr bool NARROW = sizeof(T) == 4;
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, NARROW ? 32 : 16);
        for (int k = 0; k < (NARROW ? 4 : 2); k++) {
            if (e + 8 * k >= n) continue;
            out[e + 8 * k] = NARROW ? (T)kn__exponential_f32(w[k], rate)
                                    : (T)kn__exponential_f64(w[2 * k % 4], w[2 * k % 4 + 1], rate);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    dropout_kernel(T *out, const T *x, int64_t n, int64_t counters, uint32_t threshold, T scale,
                   const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 32);
        for (int k = 0; k < 4; k++)
            if (e + 8 * k < n) out[e + 8 * k] = w[k] >= threshold ? x[e + 8 * k] * scale : T(0);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    bernoulli_kernel(T *out, int64_t n, int64_t counters, uint64_t below, const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 32);
        for (int k = 0; k < 4; k++)
            if (e + 8 * k < n) out[e + 8 * k] = w[k] < below ? T(1) : T(0);
    }
}

__global__ void __launch_bounds__(BLOCK, 1)
    integers_kernel(int64_t *out, int64_t n, int64_t counters, int64_t lo, uint64_t range,
                    const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 16);
        for (int k = 0; k < 2; k++) {
            if (e + 8 * k >= n) continue;
            uint64_t word = (uint64_t)w[2 * k + 1] << 32 | w[2 * k];
            out[e + 8 * k] =
                (int64_t)((uint64_t)lo + kn__integer_below(word, range,
                                                           (uint64_t)state[1] + (uint64_t)c,
                                                           (uint64_t)state[0], k));
        }
    }
}

__global__ void __launch_bounds__(BLOCK, 1)
    permutation_kernel(int64_t *out, int64_t n, const int64_t *state) {
    if (n <= KN_PERMUTATION_FEW) {
        if (thread_index() == 0)
            kn__permutation_few(out, n, (uint64_t)state[0], (uint64_t)state[1]);
        return;
    }
    kn__feistel p;
    kn__permutation_make(&p, (uint64_t)n, (uint64_t)state[0], (uint64_t)state[1]);
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        uint32_t x = kn__permutation_start(&p, (uint32_t)i);
        do x = kn__permutation_step(&p, x);
        while (x >= n);
        out[i] = (int64_t)x;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    truncated_normal_kernel(T *out, int64_t n, int64_t counters, kn__truncated t,
                            const int64_t *state) {
    for (int64_t c = thread_index(); c < counters; c += thread_count()) {
        uint32_t w[4];
        words_of(w, state, c);
        int64_t e = element_of(c, 16);
        for (int k = 0; k < 2; k++)
            if (e + 8 * k < n) out[e + 8 * k] = (T)kn__truncated_normal(&t, w[2 * k], w[2 * k + 1]);
    }
}

// Counters of n elements, where 8 counters make `block` elements.
int64_t counters_of(int64_t n, int block) { return (n + block - 1) / block * 8; }
int block_of(size_t element_bytes) { return element_bytes == 8 ? 16 : 32; }

}  // namespace

extern "C" {

cudaError_t kn__launch_rng_take(int64_t *out, int64_t *state, int64_t advance,
                                cudaStream_t stream) {
    KN_LAUNCH(rng_take_kernel, 1, 1, stream, out, state, advance);
    return cudaGetLastError();
}

cudaError_t kn__launch_uniform(void *out, kn_dtype dtype, int64_t n, double lo, double hi,
                               const int64_t *state, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, block_of(sizeof(T)));
        KN_LAUNCH(uniform_kernel, blocks_for(c), BLOCK, stream, (T *)out, n, c, lo, hi, state);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_normal(void *out, kn_dtype dtype, int64_t n, double mean, double stddev,
                              const int64_t *state, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, block_of(sizeof(T)));
        KN_LAUNCH(normal_kernel, blocks_for(c), BLOCK, stream, (T *)out, n, c, mean, stddev, state);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_exponential(void *out, kn_dtype dtype, int64_t n, double rate,
                                   const int64_t *state, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, block_of(sizeof(T)));
        KN_LAUNCH(exponential_kernel, blocks_for(c), BLOCK, stream, (T *)out, n, c, rate, state);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_bernoulli(void *out, kn_dtype dtype, int64_t n, double p,
                                 const int64_t *state, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, 32);
        KN_LAUNCH(bernoulli_kernel, blocks_for(c), BLOCK, stream, (T *)out, n, c,
                  (uint64_t)(p * 4294967296.0), state);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_integers(int64_t *out, int64_t n, int64_t lo, uint64_t range,
                                const int64_t *state, cudaStream_t stream) {
    int64_t c = counters_of(n, 16);
    KN_LAUNCH(integers_kernel, blocks_for(c), BLOCK, stream, out, n, c, lo, range, state);
    return cudaGetLastError();
}

cudaError_t kn__launch_permutation(int64_t *out, int64_t n, const int64_t *state,
                                   cudaStream_t stream) {
    KN_LAUNCH(permutation_kernel, blocks_for(n), BLOCK, stream, out, n, state);
    return cudaGetLastError();
}

cudaError_t kn__launch_truncated_normal(void *out, kn_dtype dtype, int64_t n,
                                        const kn__truncated *truncated, const int64_t *state,
                                        cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, 16);
        KN_LAUNCH(truncated_normal_kernel, blocks_for(c), BLOCK, stream, (T *)out, n, c, *truncated,
                  state);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_dropout(void *out, const void *x, kn_dtype dtype, int64_t n, double p,
                               const int64_t *state, cudaStream_t stream) {
    return with_float(dtype, [&](auto t) {
        using T = decltype(t);
        int64_t c = counters_of(n, 32);
        KN_LAUNCH(dropout_kernel, blocks_for(c), BLOCK, stream, (T *)out, (const T *)x, n, c,
                  kn__dropout_threshold(p), (T)kn__dropout_scale(p), state);
        return cudaGetLastError();
    });
}

}  // extern "C"
