// Normalization by channels: x is [outer, channels, inner]. Statistics of chunks of the outer
// dimension, their combination (Chan, Golub and LeVeque 1983), and what follows for every element.
// The sums over channels serve the weights of normalized rows too. x, y and their gradients may
// have 16 bits; all else is as it is computed.
//
// Where channels are the last dimension each lane of a block makes one and the warps share the
// rows. Elsewhere a block makes one channel and walks along its planes, V elements at a time.

#include "cuda/base/stored.cuh"

namespace {

using namespace kn_dev;

enum { WARPS = BLOCK / 32 };

// The channel and the chunk of a thread; COLUMNS: of a lane.
template <bool COLUMNS>
struct place {
    int64_t channel, first, end;  // of the outer dimension
    bool valid;
    int64_t chunk;
    __device__ place(const kn__norm &p, int64_t block) {
        int64_t all = p.groups * p.channels, n_groups = COLUMNS ? (all + 31) / 32 : all;
        chunk = block / n_groups;
        channel = block - chunk * n_groups;
        if (COLUMNS) channel = channel * 32 + threadIdx.x % 32;
        valid = channel < all;
        first = chunk * p.chunk;
        end = min(first + p.chunk, p.outer);
    }
};

inline int64_t n_places(const kn__norm *p) {
    int64_t all = p->groups * p->channels;
    return (p->inner == 1 ? (all + 31) / 32 : all) * p->n_chunks;
}

// Calls body(at, o) for the thread's share of the place: V elements of x from `at`, of index o of
// the outer dimension.
template <bool COLUMNS, int V, class F>
__device__ void for_elements(const kn__norm &p, const place<COLUMNS> &at, F body) {
    int64_t all = p.groups * p.channels;
    if (COLUMNS) {
        if (!at.valid) return;
        for (int64_t o = at.first + threadIdx.x / 32; o < at.end; o += WARPS)
            body(o * all + at.channel, o);
        return;
    }
    int64_t packs = p.inner / V, n = (at.end - at.first) * packs;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        // 32-bit division where it suffices: several times cheaper
        int64_t plane = n <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)packs) : i / packs;
        int64_t o = at.first + plane;
        body((o * all + at.channel) * p.inner + (i - plane * packs) * V, o);
    }
}

// The sum over the threads of one channel, for each of them.
template <bool COLUMNS, class T>
__device__ T channel_sum(T x) {
    if constexpr (COLUMNS) {
        KN_SHARED(part, T[WARPS][32]);
        __syncthreads();  // the last use of `part` is over
        part[threadIdx.x / 32][threadIdx.x % 32] = x;
        __syncthreads();
        T sum = part[0][threadIdx.x % 32];
        for (int w = 1; w < WARPS; w++) sum += part[w][threadIdx.x % 32];
        return sum;
    } else {
        return team_join<op_sum, BLOCK>(x);
    }
}

// One thread of a channel writes what the place made.
template <bool COLUMNS>
__device__ void write_part(const kn__norm &p, const place<COLUMNS> &at, double a, double b) {
    bool first = COLUMNS ? threadIdx.x < 32 && at.valid : threadIdx.x == 0;
    if (!first) return;
    double *part = p.parts + at.chunk * 2 * p.groups * p.channels + at.channel;
    part[0] = a;
    part[p.groups * p.channels] = b;
}

template <bool COLUMNS, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    batch_moments_kernel(kn__norm p, const T *x, int64_t n_blocks) {
    using C = computed<T>;
    for (int64_t b = blockIdx.x; b < n_blocks; b += gridDim.x) {
        place<COLUMNS> at(p, b);
        C sum = C(0), squares = C(0);
        for_elements<COLUMNS, V>(p, at, [&](int64_t i, int64_t) {
            pack<C, V> v = load<V>(x + i);
#pragma unroll
            for (int k = 0; k < V; k++) sum += v.v[k];
        });
        double n = (double)((at.end - at.first) * p.inner);
        double mean = (double)channel_sum<COLUMNS>(sum) / n;
        C middle = (C)mean;
        for_elements<COLUMNS, V>(p, at, [&](int64_t i, int64_t) {
            pack<C, V> v = load<V>(x + i);
#pragma unroll
            for (int k = 0; k < V; k++) squares += (v.v[k] - middle) * (v.v[k] - middle);
        });
        write_part(p, at, mean, (double)channel_sum<COLUMNS>(squares));
    }
}

template <class T>
__device__ void put(void *to, int64_t i, double value) {
    if (to) ((T *)to)[i] = (T)value;
}
template <class T>
__device__ double number_or(const void *from, int64_t i, double otherwise) {
    return from ? (double)((const T *)from)[i] : otherwise;
}
template <class T>
__device__ void step(void *running, int64_t i, double value, double momentum) {
    if (running) put<T>(running, i, (1 - momentum) * ((T *)running)[i] + momentum * value);
}

// One thread a channel.
template <class T>
__global__ void __launch_bounds__(BLOCK, 1) batch_finish_kernel(kn__norm p, T *mean_out) {
    for (int64_t c = thread_index(); c < p.channels; c += thread_count()) {
        const double *part = p.parts + c;
        double mean = part[0], squares = part[p.channels];
        double n = (double)(min(p.chunk, p.outer) * p.inner);
        for (int64_t k = 1; k < p.n_chunks; k++) {
            part += 2 * p.channels;
            double m = (double)(min(p.chunk, p.outer - k * p.chunk) * p.inner), d = part[0] - mean;
            mean += d * (m / (n + m));
            squares += part[p.channels] + d * d * (n * m / (n + m));
            n += m;
        }
        double rstd = (T)(1 / sqrt(squares / n + p.eps));
        put<T>(mean_out, c, mean);
        put<T>(p.rstd, c, rstd);
        step<T>(p.running_mean, c, mean, p.momentum);
        step<T>(p.running_var, c, squares / (n - 1), p.momentum);
        p.terms[c] = mean;
        p.terms[p.channels + c] = rstd * number_or<T>(p.weight, c, 1);
        p.terms[2 * p.channels + c] = number_or<T>(p.bias, c, 0);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) batch_eval_kernel(kn__norm p, const T *mean) {
    for (int64_t c = thread_index(); c < p.channels; c += thread_count()) {
        double rstd = ((const T *)p.running_var)[c];
        if (!p.by_rstd) rstd = 1 / sqrt(rstd + p.eps);
        p.terms[c] = mean[c];
        p.terms[p.channels + c] = rstd * number_or<T>(p.weight, c, 1);
        p.terms[2 * p.channels + c] = number_or<T>(p.bias, c, 0);
    }
}

__device__ inline int64_t channel_of(const kn__norm &p, int64_t i) {
    if (i <= (int64_t)UINT32_MAX && p.inner <= (int64_t)UINT32_MAX &&
        p.channels <= (int64_t)UINT32_MAX)
        return (uint32_t)i / (uint32_t)p.inner % (uint32_t)p.channels;
    return i / p.inner % p.channels;
}

// V > 1: of one channel.
template <int V, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    batch_scale_kernel(kn__norm p, T *y, const T *x, int64_t n) {
    using C = computed<T>;
    for (int64_t i = thread_index() * V; i < n; i += thread_count() * V) {
        int64_t c = channel_of(p, i);
        C mean = (C)p.terms[c], scale = (C)p.terms[p.channels + c],
          shift = (C)p.terms[2 * p.channels + c];
        pack<C, V> v = load<V>(x + i);
#pragma unroll
        for (int k = 0; k < V; k++) v.v[k] = (v.v[k] - mean) * scale + shift;
        store<V>(y + i, v);
    }
}

// Σ g and Σ g·x̂
template <bool COLUMNS, int V, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    norm_sums_kernel(kn__norm p, const T *g, const T *x, int64_t n_blocks) {
    using C = computed<T>;
    for (int64_t b = blockIdx.x; b < n_blocks; b += gridDim.x) {
        place<COLUMNS> at(p, b);
        C sum = C(0), dot = C(0);
        int64_t group = at.channel / p.channels;
        for_elements<COLUMNS, V>(p, at, [&](int64_t i, int64_t o) {
            int64_t of = p.by_batch ? at.channel : o * p.groups + group;
            C mean = p.mean ? ((const C *)p.mean)[of] : C(0), rstd = ((const C *)p.rstd)[of];
            pack<C, V> v = load<V>(x + i), d = load<V>(g + i);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum += d.v[k];
                dot += d.v[k] * ((v.v[k] - mean) * rstd);
            }
        });
        double all = (double)channel_sum<COLUMNS>(sum);
        write_part(p, at, all, (double)channel_sum<COLUMNS>(dot));
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) norm_sums_finish_kernel(kn__norm p, T *dweight) {
    int64_t all = p.groups * p.channels;
    double n = (double)(p.outer * p.inner);
    for (int64_t c = thread_index(); c < all; c += thread_count()) {
        double sum = 0, dot = 0;
        for (int64_t k = 0; k < p.n_chunks; k++) {
            sum += p.parts[2 * k * all + c];
            dot += p.parts[(2 * k + 1) * all + c];
        }
        put<T>(dweight, c, dot);
        put<T>(p.dbias, c, sum);
        if (!p.by_batch) continue;
        double rstd = ((const T *)p.rstd)[c], scale = rstd * number_or<T>(p.weight, c, 1);
        p.terms[c] = ((const T *)p.mean)[c];
        p.terms[all + c] = scale;
        p.terms[2 * all + c] = scale * sum / n;
        p.terms[3 * all + c] = scale * rstd * dot / n;
    }
}

template <int V, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    batch_back_kernel(kn__norm p, T *dx, const T *g, const T *x, int64_t n) {
    using C = computed<T>;
    for (int64_t i = thread_index() * V; i < n; i += thread_count() * V) {
        int64_t c = channel_of(p, i);
        C mean = (C)p.terms[c], scale = (C)p.terms[p.channels + c],
          a = (C)p.terms[2 * p.channels + c], b = (C)p.terms[3 * p.channels + c];
        pack<C, V> v = load<V>(x + i), d = load<V>(g + i);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = scale * d.v[k] - a - (v.v[k] - mean) * b;
        store<V>(dx + i, d);
    }
}

template <class T>
bool is_wide(const kn__norm *p) {
    return p->inner % (16 / (int)sizeof(T)) == 0 && aligned(p->x, 16) && aligned(p->g, 16) &&
           aligned(p->y, 16);
}

template <int N>
struct number {
    static constexpr int value = N;
};

// Calls body(columns, V) with numbers for the operands' shape and addresses.
template <class T, class F>
cudaError_t with_places(const kn__norm *p, F body) {
    if (p->inner == 1) return body(number<true>{}, number<1>{});
    if (is_wide<T>(p)) return body(number<false>{}, number<16 / (int)sizeof(T)>{});
    return body(number<false>{}, number<1>{});
}

}  // namespace

extern "C" {

void kn__norm_plan(kn__norm *p) {
    enum { BLOCKS_ENOUGH = 512, ROWS_MIN = 64, PLANES_MIN = 4 << 10, CHUNKS_MAX = 256 };
    bool columns = p->inner == 1;
    int64_t all = p->groups * p->channels, blocks = columns ? (all + 31) / 32 : all;
    int64_t wanted = BLOCKS_ENOUGH / (blocks ? blocks : 1);
    int64_t most = p->outer * p->inner / (columns ? (int64_t)ROWS_MIN : (int64_t)PLANES_MIN);
    int64_t n_chunks = wanted < most ? wanted : most;
    if (n_chunks > CHUNKS_MAX) n_chunks = CHUNKS_MAX;
    if (n_chunks > p->outer) n_chunks = p->outer;
    if (n_chunks < 1) n_chunks = 1;
    p->chunk = (p->outer + n_chunks - 1) / n_chunks;
    p->n_chunks = p->chunk ? (p->outer + p->chunk - 1) / p->chunk : 0;
}

cudaError_t kn__launch_batch_moments(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = n_places(p);
        with_places<T>(p, [&](auto columns, auto v) {
            KN_LAUNCH((batch_moments_kernel<decltype(columns)::value != 0, decltype(v)::value>),
                      blocks_for(n, 1), BLOCK, stream, *p, (const T *)p->x, n);
            return cudaGetLastError();
        });
        KN_LAUNCH(batch_finish_kernel, blocks_for(p->channels), BLOCK, stream, *p,
                  (computed<T> *)p->mean);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_batch_eval(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(batch_eval_kernel, blocks_for(p->channels), BLOCK, stream, *p,
                  (const computed<T> *)p->running_mean);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_batch_scale(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = p->outer * p->channels * p->inner;
        return with_places<T>(p, [&](auto, auto v) {
            constexpr int V = decltype(v)::value;
            KN_LAUNCH(batch_scale_kernel<V>, blocks_for(n / V), BLOCK, stream, *p, (T *)p->y,
                      (const T *)p->x, n);
            return cudaGetLastError();
        });
    });
}

cudaError_t kn__launch_norm_sums(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = n_places(p);
        if (n > 0) {
            with_places<T>(p, [&](auto columns, auto v) {
                KN_LAUNCH((norm_sums_kernel<decltype(columns)::value != 0, decltype(v)::value>),
                          blocks_for(n, 1), BLOCK, stream, *p, (const T *)p->g, (const T *)p->x, n);
                return cudaGetLastError();
            });
        }
        KN_LAUNCH(norm_sums_finish_kernel, blocks_for(p->groups * p->channels), BLOCK, stream, *p,
                  (computed<T> *)p->dweight);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_batch_back(const kn__norm *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t n = p->outer * p->channels * p->inner;
        return with_places<T>(p, [&](auto, auto v) {
            constexpr int V = decltype(v)::value;
            KN_LAUNCH(batch_back_kernel<V>, blocks_for(n / V), BLOCK, stream, *p, (T *)p->y,
                      (const T *)p->g, (const T *)p->x, n);
            return cudaGetLastError();
        });
    });
}

}  // extern "C"
