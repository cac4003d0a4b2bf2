// Rows that fit the registers of a team of threads: read once, however often they are gone through.
// They are held as they are computed: in f32 where they are stored in 16 bits.
#ifndef KN_CUDA_ROW_CUH
#define KN_CUDA_ROW_CUH

#include "cuda/base/stored.cuh"

namespace kn_dev {

enum { ROW_BYTES = 128 };  // of a row, in the registers of one thread

// Elements of the longest rows that a team holds.
template <class T>
constexpr int row_max(int team) {
    return team * ROW_BYTES / (int)sizeof(computed<T>);
}

// Thread `lane` of a team holds elements (k·TEAM + lane)·V + v, k < K, v < V. Rows that are
// multiples of V long are read V at a time.
template <int TEAM_, int V_, int K_>
struct row_shape {
    static constexpr int TEAM = TEAM_, V = V_, K = K_, HELD = V * K;
};

enum { SHORT_ROW = 128 };

// Calls body(row_shape) with the one for rows of n elements, n <= SHORT_ROW. It depends on n alone,
// so that a row is always summed in the same order.
template <class T, class F>
cudaError_t with_short_row(int64_t n, F body) {
    constexpr int V = 16 / sizeof(T);
    if (n % V == 0 && n <= 32 * V) return body(row_shape<32, V, 1>{});
    if (n <= 32) return body(row_shape<32, 1, 1>{});
    return body(row_shape<32, 1, SHORT_ROW / 32>{});
}

// The same for n <= row_max<T>(BLOCK). Long rows of 16 bits have no kernels of their own for other
// lengths, which few programs use.
template <class T, class F>
cudaError_t with_row(int64_t n, F body) {
    constexpr int V = 16 / sizeof(T), HELD = row_max<T>(1);
    if (n <= SHORT_ROW) return with_short_row<T>(n, body);
    if constexpr (sizeof(T) > 2) {
        if (n % V && n <= row_max<T>(32)) return body(row_shape<32, 1, HELD>{});
        if (n % V) return body(row_shape<BLOCK, 1, HELD>{});
    }
    if (n <= row_max<T>(32)) return body(row_shape<32, V, HELD / V>{});
    return body(row_shape<BLOCK, V, HELD / V>{});
}

// Teams of one launch: a row each.
template <class S>
unsigned blocks_for_rows(S, int64_t rows) {
    return blocks_for(rows, BLOCK / S::TEAM);
}

template <class S>
__device__ int element_of_row(int slot) {
    int lane = threadIdx.x % S::TEAM;
    return (slot / S::V * S::TEAM + lane) * S::V + slot % S::V;
}

// Elements of one access of at most 16 bytes: what lies beside rows of 16 bits may be f32, and
// takes several for the V elements of one.
template <class S, class T>
constexpr int row_access = S::V * sizeof(T) > 16 ? 16 / (int)sizeof(T) : S::V;

// Elements past the end are `rest`. `wide`: rows begin at multiples of 16 bytes and are multiples
// of V long.
template <class S, class T>
__device__ void read_row(computed<T> (&x)[S::HELD], const T *in, int n, bool wide,
                         computed<T> rest) {
    using C = computed<T>;
    if (S::V > 1 && wide) {
        constexpr int V = row_access<S, T>;
#pragma unroll
        for (int k = 0; k < S::HELD; k += V) {
            int i = element_of_row<S>(k);
            pack<T, V> p;
            if (i < n) p = *reinterpret_cast<const pack<T, V> *>(in + i);
#pragma unroll
            for (int v = 0; v < V; v++) x[k + v] = i < n ? (C)p.v[v] : rest;
        }
    } else {
#pragma unroll
        for (int k = 0; k < S::HELD; k++) {
            int i = element_of_row<S>(k);
            x[k] = i < n ? (C)in[i] : rest;
        }
    }
}

template <class S, class T>
__device__ void write_row(T *out, const computed<T> (&y)[S::HELD], int n, bool wide) {
    if (S::V > 1 && wide) {
        constexpr int V = row_access<S, T>;
#pragma unroll
        for (int k = 0; k < S::HELD; k += V) {
            int i = element_of_row<S>(k);
            pack<T, V> p;
#pragma unroll
            for (int v = 0; v < V; v++) p.v[v] = (T)y[k + v];
            if (i < n) *reinterpret_cast<pack<T, V> *>(out + i) = p;
        }
    } else {
#pragma unroll
        for (int k = 0; k < S::HELD; k++) {
            int i = element_of_row<S>(k);
            if (i < n) out[i] = (T)y[k];
        }
    }
}

// Over the whole row, for each thread of the team. Slots past the end hold -infinity.
template <class S, class T>
__device__ T largest_of_row(const T (&x)[S::HELD]) {
    T top = op_max::identity<T>();
#pragma unroll
    for (int k = 0; k < S::HELD; k++) top = op_max::join(top, x[k]);
    return team_join<op_max, S::TEAM>(top);
}

}  // namespace kn_dev
#endif
