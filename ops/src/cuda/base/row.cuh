// Rows that fit the registers of a team of threads: read once, however often they are gone through.
#ifndef KN_CUDA_ROW_CUH
#define KN_CUDA_ROW_CUH

#include "cuda/base/device.cuh"

namespace kn_dev {

enum { ROW_BYTES = 128 };  // of a row, in the registers of one thread

// Elements of the longest rows that a team holds.
template <class T>
constexpr int row_max(int team) {
    return team * ROW_BYTES / (int)sizeof(T);
}

// Thread `lane` of a team holds elements (k·TEAM + lane)·V + v, k < K, v < V. Rows of V > 1 are
// multiples of V long.
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

// The same for n <= row_max<T>(BLOCK).
template <class T, class F>
cudaError_t with_row(int64_t n, F body) {
    constexpr int V = 16 / sizeof(T), HELD = row_max<T>(1);
    if (n <= SHORT_ROW) return with_short_row<T>(n, body);
    if (n <= row_max<T>(32))
        return n % V ? body(row_shape<32, 1, HELD>{}) : body(row_shape<32, V, HELD / V>{});
    return n % V ? body(row_shape<BLOCK, 1, HELD>{}) : body(row_shape<BLOCK, V, HELD / V>{});
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

// Elements past the end are `rest`. `wide`: rows begin at multiples of 16 bytes.
template <class S, class T>
__device__ void read_row(T (&x)[S::HELD], const T *in, int n, bool wide, T rest) {
    if (S::V > 1 && wide) {
#pragma unroll
        for (int k = 0; k < S::HELD; k += S::V) {
            int i = element_of_row<S>(k);
            pack<T, S::V> p;
            if (i < n) p = *reinterpret_cast<const pack<T, S::V> *>(in + i);
#pragma unroll
            for (int v = 0; v < S::V; v++) x[k + v] = i < n ? p.v[v] : rest;
        }
    } else {
#pragma unroll
        for (int k = 0; k < S::HELD; k++) {
            int i = element_of_row<S>(k);
            x[k] = i < n ? in[i] : rest;
        }
    }
}

template <class S, class T>
__device__ void write_row(T *out, const T (&y)[S::HELD], int n, bool wide) {
    if (S::V > 1 && wide) {
#pragma unroll
        for (int k = 0; k < S::HELD; k += S::V) {
            int i = element_of_row<S>(k);
            pack<T, S::V> p;
#pragma unroll
            for (int v = 0; v < S::V; v++) p.v[v] = y[k + v];
            if (i < n) *reinterpret_cast<pack<T, S::V> *>(out + i) = p;
        }
    } else {
#pragma unroll
        for (int k = 0; k < S::HELD; k++) {
            int i = element_of_row<S>(k);
            if (i < n) out[i] = y[k];
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
