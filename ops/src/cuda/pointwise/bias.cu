// The gradient of relu(x + b): dx, and its sum by channel while it passes by. Sums join in an order
// that the shape alone decides.
//
// Where channels are the last dimension, each lane of a block makes the columns of one 16-byte
// access and the warps share the rows. Elsewhere a block makes one channel and walks along its
// planes.

#include "cuda/base/stored.cuh"

namespace {

using namespace kn_dev;

enum {
    WARPS = 16,  // of a block that makes columns
    PLANE_THREADS = 1024,
    ACT_THREADS = 256,
    LANES_COLUMNS = 128  // columns of a group, for the plan
};

// V elements; in one access where the addresses allow that.
template <int V, bool WIDE, class T>
__device__ pack<T, V> load(const T *p) {
    if constexpr (WIDE) {
        return *reinterpret_cast<const pack<T, V> *>(p);
    } else {
        pack<T, V> x;
#pragma unroll
        for (int k = 0; k < V; k++) x.v[k] = p[k];
        return x;
    }
}

template <int V, bool WIDE, class T>
__device__ void store(T *p, const pack<T, V> &x) {
    if constexpr (WIDE) {
        *reinterpret_cast<pack<T, V> *>(p) = x;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) p[k] = x.v[k];
    }
}

// dx of V elements, as ops.def's relu says; returns it.
template <int V, bool WIDE, class T>
__device__ pack<T, V> relu_back(T *dx, const T *y, const T *g) {
    pack<T, V> s = load<V, WIDE>(y), d = load<V, WIDE>(g);
#pragma unroll
    for (int k = 0; k < V; k++) d.v[k] = s.v[k] <= 0 ? T(0) : d.v[k];
    store<V, WIDE>(dx, d);
    return d;
}

template <class T>
__device__ void finish(const kn__relu_bias &p, int64_t chunk, int64_t channel, T sum) {
    if (p.partial) {
        ((T *)p.partial)[chunk * p.channels + channel] = sum;
        return;
    }
    T *out = (T *)p.sums + channel;
    *out = p.accumulate ? *out + sum : sum;
}

template <int V, bool WIDE, class T>
__global__ void __launch_bounds__(32 * WARPS)
    relu_bias_columns_kernel(kn__relu_bias p, const T *__restrict__ y, const T *__restrict__ g,
                             T *__restrict__ dx, int64_t n_groups) {
    KN_SHARED(part, pack<T, V>[WARPS][32]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t b = blockIdx.x; b < n_groups * p.n_chunks; b += gridDim.x) {
        int64_t c = b / n_groups, first = ((b - c * n_groups) * 32 + lane) * V;
        int64_t end = min((c + 1) * p.chunk, p.outer);
        pack<T, V> sum = {};
        if (first < p.channels) {
            for (int64_t r = c * p.chunk + warp; r < end; r += WARPS) {
                int64_t at = r * p.channels + first;
                pack<T, V> d = relu_back<V, WIDE>(dx + at, y + at, g + at);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] += d.v[k];
            }
        }
        part[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && first < p.channels) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                T total = part[0][lane].v[k];
                for (int w = 1; w < WARPS; w++) total += part[w][lane].v[k];
                finish(p, c, first + k, total);
            }
        }
        __syncthreads();
    }
}

template <int V, bool WIDE, class T>
__global__ void __launch_bounds__(PLANE_THREADS)
    relu_bias_planes_kernel(kn__relu_bias p, const T *__restrict__ y, const T *__restrict__ g,
                            T *__restrict__ dx) {
    int64_t packs = p.inner / V;  // of one plane
    for (int64_t b = blockIdx.x; b < p.channels * p.n_chunks; b += gridDim.x) {
        int64_t c = b / p.channels, o = b - c * p.channels;
        int64_t first = c * p.chunk, n = (min(first + p.chunk, p.outer) - first) * packs;
        T sum = T(0);
        for (int64_t i = threadIdx.x; i < n; i += PLANE_THREADS) {
            // 32-bit division where it suffices: several times cheaper
            int64_t plane = n <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)packs) : i / packs;
            int64_t at = ((first + plane) * p.channels + o) * p.inner + (i - plane * packs) * V;
            pack<T, V> d = relu_back<V, WIDE>(dx + at, y + at, g + at);
#pragma unroll
            for (int k = 0; k < V; k++) sum += d.v[k];
        }
        sum = team_join<op_sum, PLANE_THREADS>(sum);
        if (threadIdx.x == 0) finish(p, c, o, sum);
    }
}

template <int V, bool WIDE, class T>
cudaError_t launch(const kn__relu_bias *p, cudaStream_t stream) {
    const T *y = (const T *)p->y, *g = (const T *)p->g;
    T *dx = (T *)p->dx;
    if (p->inner == 1) {
        int64_t n_groups = (p->channels + 32 * V - 1) / (32 * V);
        KN_LAUNCH((relu_bias_columns_kernel<V, WIDE>), blocks_for(n_groups * p->n_chunks, 1),
                  32 * WARPS, stream, *p, y, g, dx, n_groups);
    } else {
        KN_LAUNCH((relu_bias_planes_kernel<V, WIDE>), blocks_for(p->channels * p->n_chunks, 1),
                  PLANE_THREADS, stream, *p, y, g, dx);
    }
    return cudaGetLastError();
}

// What follows a convolution: its bias, a residual, relu. Packs lie in one plane.
template <int V, bool WIDE, class T>
__global__ void __launch_bounds__(ACT_THREADS)
    bias_act_kernel(kn__bias_act p, T *__restrict__ y, const T *__restrict__ bias,
                    const T *__restrict__ residual) {
    int64_t n = p.n / V, packs = p.inner / V;  // of one plane
    for (int64_t i = blockIdx.x * (int64_t)ACT_THREADS + threadIdx.x; i < n;
         i += (int64_t)ACT_THREADS * gridDim.x) {
        // 32-bit division where it suffices: several times cheaper
        int64_t plane = n <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)packs) : i / packs;
        using A = computed<T>;
        A b = bias ? (A)bias[plane % p.channels] : A(0);
        pack<T, V> v = load<V, WIDE>(y + i * V), r = v;
        if (residual) r = load<V, WIDE>(residual + i * V);
#pragma unroll
        for (int k = 0; k < V; k++) {
            A sum = (A)v.v[k] + b + (residual ? (A)r.v[k] : A(0));
            v.v[k] = (T)(p.relu && sum < 0 ? A(0) : sum);
        }
        store<V, WIDE>(y + i * V, v);
    }
}

template <int V, bool WIDE, class T>
cudaError_t launch_act(const kn__bias_act *p, cudaStream_t stream) {
    KN_LAUNCH((bias_act_kernel<V, WIDE>), blocks_for(p->n / V, ACT_THREADS), ACT_THREADS, stream,
              *p, (T *)p->y, (const T *)p->bias, (const T *)p->residual);
    return cudaGetLastError();
}

}  // namespace

extern "C" {

cudaError_t kn__launch_bias_act(const kn__bias_act *p, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        constexpr int V = 16 / sizeof(T);
        if (p->inner % V) return launch_act<1, true, T>(p, stream);
        bool wide = aligned(p->y, 16) && (!p->residual || aligned(p->residual, 16));
        return wide ? launch_act<V, true, T>(p, stream) : launch_act<V, false, T>(p, stream);
    });
}

void kn__relu_bias_plan(kn__relu_bias *p) {
    enum { BLOCKS_ENOUGH = 512, ROWS_MIN = 256, PLANES_MIN = 16 << 10, CHUNKS_MAX = 256 };
    bool columns = p->inner == 1;
    int64_t n_groups = columns ? (p->channels + LANES_COLUMNS - 1) / LANES_COLUMNS : p->channels;
    int64_t wanted = BLOCKS_ENOUGH / n_groups, n = p->outer * p->inner;
    int64_t most = columns ? n / ROWS_MIN : n <= 8 * PLANES_MIN ? 1 : n / PLANES_MIN;
    int64_t n_chunks = wanted < most ? wanted : most;
    if (n_chunks > CHUNKS_MAX) n_chunks = CHUNKS_MAX;
    if (n_chunks < 1) n_chunks = 1;
    p->chunk = (p->outer + n_chunks - 1) / n_chunks;
    p->n_chunks = (p->outer + p->chunk - 1) / p->chunk;
}

cudaError_t kn__launch_relu_bias_back(const kn__relu_bias *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        constexpr int V = 16 / sizeof(T);
        int64_t dense = p->inner == 1 ? p->channels : p->inner;
        if (dense % V) return launch<1, true, T>(p, stream);
        bool wide = aligned(p->y, 16) && aligned(p->g, 16) && aligned(p->dx, 16);
        return wide ? launch<V, true, T>(p, stream) : launch<V, false, T>(p, stream);
    });
}

}  // extern "C"
