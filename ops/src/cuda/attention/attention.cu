// Attention by tiles of 32 queries and 32 keys: scores are made, turned into weights, multiplied
// and forgotten (Dao et al. 2022). Thread `row` · 8 + `lane` of a block makes the scores of row
// `row` and columns lane, lane + 8, …; it then adds up elements lane, lane + 8, … of the row's
// result. A block makes at most CHUNK elements of its rows; results that are longer take several
// blocks, each of which makes the scores again. Sums run in one order, whatever the grid. q, k, v
// and their gradients may have 16 bits; all else is as it is computed.

#include "cuda/base/stored.cuh"
#include "philox.h"

namespace {

using namespace kn_dev;

enum { TILE = 32, LANES = 8, EACH = TILE / LANES, CHUNK = 64, SUMS = CHUNK / LANES };

template <class T>
struct operands {
    kn__attention p;
    const T *q, *k, *v;
    const computed<T> *mask, *y, *stats, *g, *delta;
};

template <class T>
struct shared_tiles {
    T a[TILE][TILE + 1], b[TILE][TILE + 1];
};

// Joins over the lanes of a row.
template <class Op, class T>
__device__ T row_join(T x) {
    for (int d = LANES / 2; d > 0; d >>= 1) x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// s[i] = a[row] · b[lane + 8·i] over `inner` elements; rows past the end count as zeros.
template <class T, class A, class B>
__device__ void multiply_tiles(T (&s)[EACH], shared_tiles<T> &tiles, const A *a, int64_t n_a,
                               const B *b, int64_t n_b, int64_t inner) {
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
#pragma unroll
    for (int i = 0; i < EACH; i++) s[i] = T(0);
    for (int64_t from = 0; from < inner; from += TILE) {
        __syncthreads();  // the last use of the tiles is over
        for (int at = threadIdx.x; at < TILE * TILE; at += BLOCK) {
            int r = at / TILE;
            int64_t d = from + at % TILE;
            tiles.a[r][at % TILE] = r < n_a && d < inner ? (T)a[r * inner + d] : T(0);
            tiles.b[r][at % TILE] = r < n_b && d < inner ? (T)b[r * inner + d] : T(0);
        }
        __syncthreads();
        int n = inner - from < TILE ? (int)(inner - from) : (int)TILE;
        for (int d = 0; d < n; d++) {
#pragma unroll
            for (int i = 0; i < EACH; i++) s[i] += tiles.a[row][d] * tiles.b[lane + LANES * i][d];
        }
    }
}

// sum[i] += Σ_j weight[j] · b[j][first + lane + 8·i], j < n; b has rows of `inner` elements.
template <class T, class B>
__device__ void add_rows(T (&sum)[SUMS], const T *weight, const B *b, int n, int64_t first,
                         int64_t inner) {
    int lane = threadIdx.x % LANES;
    for (int j = 0; j < n; j++) {
        T w = weight[j];
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            int64_t e = first + lane + LANES * i;
            if (e < inner) sum[i] += w * (T)b[j * inner + e];
        }
    }
}

template <class O, class T>
__device__ void store_row(O *out, const T (&sum)[SUMS], int64_t first, int64_t inner, T scale) {
    int lane = threadIdx.x % LANES;
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        int64_t e = first + lane + LANES * i;
        if (e < inner) out[e] = (O)(sum[i] * scale);
    }
}

__device__ inline bool sees(const kn__attention &p, int64_t query, int64_t key) {
    return query < p.queries && key < p.keys && (!p.causal || key <= query + p.offset);
}

// The scaled and masked score of a query that sees the key.
template <class T>
__device__ computed<T> score(const operands<T> &o, int64_t b, int64_t h, int64_t query, int64_t key,
                             computed<T> s) {
    const int64_t *stride = o.p.mask_stride;
    s *= (computed<T>)o.p.scale;
    if (!o.mask) return s;
    return s + o.mask[b * stride[0] + h * stride[1] + query * stride[2] + key * stride[3]];
}

__device__ inline int rows_left(int64_t n, int64_t first) {
    return n - first < TILE ? (int)(n - first) : (int)TILE;
}

// Where work item `at` is: chunk fastest, then tile, then head.
struct place {
    int64_t first, tile, head, b, h;
};
__device__ inline place place_of(int64_t at, int64_t chunks, int64_t tiles, int64_t heads) {
    place w;
    w.first = at % chunks * CHUNK;
    w.tile = at / chunks % tiles * TILE;
    w.head = at / chunks / tiles;
    w.b = w.head / heads, w.h = w.head % heads;
    return w;
}

// What dropout multiplies the weight of a row of all and a key by.
__device__ inline double kept(const kn__attention &p, int64_t row, int64_t key) {
    if (!p.state) return 1;
    uint32_t words[4];
    int64_t at = row * p.dropout_row + key;
    kn__philox(words, (uint64_t)p.state[1] + (uint64_t)(at / 32 * 8 + at % 8),
               (uint64_t)p.state[0]);
    int which = (int)(at % 32 / 8);  // an index would put the words into local memory
    uint32_t low = which & 1 ? words[1] : words[0], high = which & 1 ? words[3] : words[2];
    bool stays = (which & 2 ? high : low) >= kn__dropout_threshold(p.dropout);
    return stays ? kn__dropout_scale(p.dropout) : 0;
}

// The weights of one row and keys `first` + 8·i after dropout: the words of one counter.
template <class T>
__device__ void drop(const kn__attention &p, T *weight, int64_t row, int64_t first) {
    if (!p.state) return;
    uint32_t words[4], threshold = kn__dropout_threshold(p.dropout);
    T scale = (T)kn__dropout_scale(p.dropout);
    uint64_t counter = (uint64_t)(row * p.dropout_row + first) / 32 * 8 + (uint64_t)(first % 8);
    kn__philox(words, (uint64_t)p.state[1] + counter, (uint64_t)p.state[0]);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        T *w = &weight[first % LANES + LANES * i];
        *w = words[i] >= threshold ? *w * scale : T(0);
    }
}

// The row's weights from its scores, whose largest is `top`; brings its maximum and total up to
// date and returns by what its sums so far shrink.
template <class T>
__device__ T weigh(T *weight, const T (&s)[EACH], T &most, T &total, T top) {
    T before = most, part = T(0);
    most = top > most ? top : most;
    T shift = most > identity_max<T>() ? most : T(0);
    T factor = before > identity_max<T>() ? exp_(before - most) : T(1);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        T x = exp_(s[i] - shift);
        weight[threadIdx.x % LANES + LANES * i] = x;
        part += x;
    }
    total = total * factor + row_join<op_sum>(part);
    return factor;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    attention_kernel(const __grid_constant__ operands<T> o, computed<T> *y, computed<T> *stats,
                     int64_t chunks, int64_t tiles, int64_t n) {
    using C = computed<T>;
    KN_SHARED(tile, shared_tiles<C>);
    KN_SHARED(weight, C[TILE][TILE + 1]);
    const kn__attention &p = o.p;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int64_t at = blockIdx.x; at < n; at += gridDim.x) {
        place w = place_of(at, chunks, tiles, p.heads);
        int64_t group = w.b * p.groups + w.h / (p.heads / p.groups), query = w.tile + row;
        const T *q = o.q + (w.head * p.queries + w.tile) * p.d, *k = o.k + group * p.keys * p.d;
        const T *v = o.v + group * p.keys * p.e;
        C sum[SUMS] = {}, most = identity_max<C>(), total = C(0);
        for (int64_t key = 0; key < p.keys; key += TILE) {
            if (p.causal && key > w.tile + TILE - 1 + p.offset) break;
            int n_keys = rows_left(p.keys, key);
            C s[EACH], top = identity_max<C>();
            multiply_tiles(s, tile, q, rows_left(p.queries, w.tile), k + key * p.d, n_keys, p.d);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                int64_t j = key + lane + LANES * i;
                bool seen = sees(p, query, j);
                s[i] = seen ? score(o, w.b, w.h, query, j, s[i]) : identity_max<C>();
                top = s[i] > top ? s[i] : top;  // a NaN reaches the sum
            }
            C factor = weigh(weight[row], s, most, total, row_join<op_max>(top));
            drop(p, weight[row], w.head * p.queries + query, key + lane);
#pragma unroll
            for (int i = 0; i < SUMS; i++) sum[i] *= factor;
            __syncthreads();
            add_rows(sum, weight[row], v + key * p.e, n_keys, w.first, p.e);
            __syncthreads();
        }
        if (query < p.queries) {
            int64_t out = w.head * p.queries + query;
            store_row(y + out * p.e, sum, w.first, p.e, total == C(0) ? C(0) : C(1) / total);
            if (stats && w.first == 0 && lane == 0)
                stats[2 * out] = most, stats[2 * out + 1] = total;
        }
    }
}

// delta [rows] = Σ y·g, a warp a row
template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    delta_kernel(T *delta, const T *y, const T *g, int64_t rows, int64_t n) {
    for (int64_t r = thread_index() / 32; r < rows; r += thread_count() / 32) {
        T sum = T(0);
        for (int64_t i = threadIdx.x % 32; i < n; i += 32) sum += y[r * n + i] * g[r * n + i];
        sum = warp_join<op_sum>(sum);
        if (threadIdx.x % 32 == 0) delta[r] = sum;
    }
}

// The weight of a pair after dropout, and the gradient of its score.
template <class T>
struct pair_back {
    T weight, d;
};
template <class T>
__device__ pair_back<computed<T>> back_of(const operands<T> &o, int64_t b, int64_t h, int64_t query,
                                          int64_t key, computed<T> s, computed<T> dp) {
    using C = computed<T>;
    int64_t at = (b * o.p.heads + h) * o.p.queries + query;
    pair_back<C> r = {C(0), C(0)};
    if (!sees(o.p, query, key) || o.stats[2 * at + 1] == C(0)) return r;
    C weight = exp_(score(o, b, h, query, key, s) - o.stats[2 * at]) / o.stats[2 * at + 1];
    C factor = (C)kept(o.p, at, key);
    r.weight = factor == C(0) ? C(0) : weight * factor;
    r.d = weight * ((factor == C(0) ? C(0) : dp * factor) - o.delta[at]);
    return r;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    attention_dq_kernel(const __grid_constant__ operands<T> o, T *dq, int64_t chunks, int64_t tiles,
                        int64_t n) {
    using C = computed<T>;
    KN_SHARED(tile, shared_tiles<C>);
    KN_SHARED(weight, C[TILE][TILE + 1]);
    const kn__attention &p = o.p;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int64_t at = blockIdx.x; at < n; at += gridDim.x) {
        place w = place_of(at, chunks, tiles, p.heads);
        int64_t group = w.b * p.groups + w.h / (p.heads / p.groups), query = w.tile + row;
        int64_t first = w.head * p.queries + w.tile;
        int n_queries = rows_left(p.queries, w.tile);
        const T *k = o.k + group * p.keys * p.d, *v = o.v + group * p.keys * p.e;
        C sum[SUMS] = {};
        for (int64_t key = 0; key < p.keys; key += TILE) {
            if (p.causal && key > w.tile + TILE - 1 + p.offset) break;
            int n_keys = rows_left(p.keys, key);
            C s[EACH], dp[EACH];
            multiply_tiles(s, tile, o.q + first * p.d, n_queries, k + key * p.d, n_keys, p.d);
            multiply_tiles(dp, tile, o.g + first * p.e, n_queries, v + key * p.e, n_keys, p.e);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                int64_t j = key + lane + LANES * i;
                C d = back_of(o, w.b, w.h, query, j, s[i], dp[i]).d;
                weight[row][lane + LANES * i] = d * (C)p.scale;
                if (p.dmask && w.first == 0 && sees(p, query, j))
                    ((C *)p.dmask)[(first + row) * p.keys + j] = d;
            }
            __syncthreads();
            add_rows(sum, weight[row], k + key * p.d, n_keys, w.first, p.d);
            __syncthreads();
        }
        if (dq && query < p.queries) store_row(dq + (first + row) * p.d, sum, w.first, p.d, C(1));
    }
}

// dk (IS_K) or dv: rows are keys, columns queries.
template <bool IS_K, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    attention_dkv_kernel(const __grid_constant__ operands<T> o, T *out, int64_t chunks,
                         int64_t tiles, int64_t n) {
    using C = computed<T>;
    KN_SHARED(tile, shared_tiles<C>);
    KN_SHARED(weight, C[TILE][TILE + 1]);
    const kn__attention &p = o.p;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    int64_t each = p.heads / p.groups, width = IS_K ? p.d : p.e;
    for (int64_t at = blockIdx.x; at < n; at += gridDim.x) {
        place w = place_of(at, chunks, tiles, p.groups);
        int64_t first = w.head * p.keys + w.tile, key = w.tile + row;
        int n_keys = rows_left(p.keys, w.tile);
        C sum[SUMS] = {};
        for (int64_t head = w.h * each; head < (w.h + 1) * each; head++) {
            for (int64_t query = 0; query < p.queries; query += TILE) {
                if (p.causal && w.tile > query + TILE - 1 + p.offset) continue;
                int64_t from = (w.b * p.heads + head) * p.queries + query;
                int n_queries = rows_left(p.queries, query);
                const T *q = o.q + from * p.d;
                const C *g = o.g + from * p.e;
                C s[EACH], dp[EACH];
                multiply_tiles(s, tile, o.k + first * p.d, n_keys, q, n_queries, p.d);
                multiply_tiles(dp, tile, o.v + first * p.e, n_keys, g, n_queries, p.e);
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    int64_t j = query + lane + LANES * i;
                    pair_back<C> r = back_of(o, w.b, head, j, key, s[i], dp[i]);
                    weight[row][lane + LANES * i] = IS_K ? r.d * (C)p.scale : r.weight;
                }
                __syncthreads();
                if constexpr (IS_K)
                    add_rows(sum, weight[row], q, n_queries, w.first, width);
                else
                    add_rows(sum, weight[row], g, n_queries, w.first, width);
                __syncthreads();
            }
        }
        if (key < p.keys) store_row(out + (first + row) * width, sum, w.first, width, C(1));
    }
}

template <class T>
operands<T> operands_of(const kn__attention *p) {
    using C = computed<T>;
    return {*p,
            (const T *)p->q,
            (const T *)p->k,
            (const T *)p->v,
            (const C *)p->mask,
            (const C *)p->y,
            (const C *)p->stats,
            (const C *)p->g,
            (const C *)p->delta};
}

int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }
int64_t chunks_of(int64_t n) { return n < 1 ? 1 : (n + CHUNK - 1) / CHUNK; }

}  // namespace

extern "C" {

cudaError_t kn__launch_attention(const kn__attention *p, void *y, void *stats,
                                 cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t chunks = chunks_of(p->e), tiles = tiles_of(p->queries);
        int64_t n = p->batch * p->heads * tiles * chunks;
        if (n == 0) return cudaSuccess;
        KN_LAUNCH(attention_kernel<T>, blocks_for(n, 1), BLOCK, stream, operands_of<T>(p),
                  (computed<T> *)y, (computed<T> *)stats, chunks, tiles, n);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_attention_delta(const kn__attention *p, void *delta, cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using C = computed<decltype(t)>;
        int64_t rows = p->batch * p->heads * p->queries;
        if (rows == 0) return cudaSuccess;
        KN_LAUNCH(delta_kernel<C>, blocks_for(rows, BLOCK / 32), BLOCK, stream, (C *)delta,
                  (const C *)p->y, (const C *)p->g, rows, p->e);
        return cudaGetLastError();
    });
}

cudaError_t kn__launch_attention_back(const kn__attention *p, void *dq, void *dk, void *dv,
                                      cudaStream_t stream) {
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        int64_t of_d = chunks_of(p->d), of_e = chunks_of(p->e);
        int64_t queries = tiles_of(p->queries), keys = tiles_of(p->keys);
        int64_t n_q = p->batch * p->heads * queries * of_d, n_k = p->batch * p->groups * keys;
        operands<T> o = operands_of<T>(p);
        if ((dq || p->dmask) && n_q) {
            KN_LAUNCH(attention_dq_kernel<T>, blocks_for(n_q, 1), BLOCK, stream, o, (T *)dq, of_d,
                      queries, n_q);
        }
        if (dk && n_k) {
            KN_LAUNCH((attention_dkv_kernel<true, T>), blocks_for(n_k * of_d, 1), BLOCK, stream, o,
                      (T *)dk, of_d, keys, n_k * of_d);
        }
        if (dv && n_k) {
            KN_LAUNCH((attention_dkv_kernel<false, T>), blocks_for(n_k * of_e, 1), BLOCK, stream, o,
                      (T *)dv, of_e, keys, n_k * of_e);
        }
        return cudaGetLastError();
    });
}

}  // extern "C"
