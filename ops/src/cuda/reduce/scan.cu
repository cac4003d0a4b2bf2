// Scans along an axis, by blocks along lines of neighbouring elements, by a thread a line else.
// Elements become states, which join; joining is associative, but has an order. Few long lines are
// cut into chunks: a first launch joins each chunk, the second begins each with all before it.

#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

enum {
    WARPS = BLOCK / 32,
    ITEMS = 7,  // of a thread; odd: those of neighbours lie in different banks
    TILE = BLOCK * ITEMS,
    AT_ONCE = 8  // elements of a column in flight
};

struct scan_job {
    bool reverse, exclusive;
    bool joins;  // chunks into totals, and stores nothing
    kn__lines lines;
    int64_t n_chunks, chunk;
    void *totals;  // states, [n_chunks][lines]
    void *out;
    int64_t *places;  // of extremes; NULL: not wanted
    kn_dtype out_dtype;
};

// y = y + x
template <class A>
struct sums {
    using state = A;
    __device__ static state identity() { return A(0); }
    __device__ static state then(state f, state g) { return f + g; }
    __device__ static void store(const scan_job &j, int64_t at, state s) {
        store_as(j.out, j.out_dtype, at, s, false);
    }
    __device__ static state up(state s, int d) { return __shfl_up_sync(0xffffffffu, s, d); }
    template <class T>
    __device__ static state of(const T *x, const T *, int64_t i, int64_t) {
        return load_as(x[i]);
    }
};

// y = y·x
template <class A>
struct products : sums<A> {
    __device__ static A identity() { return A(1); }
    __device__ static A then(A f, A g) { return f * g; }
};

// y = b + a·y, from y = 0
template <class A>
struct step {
    A a, b;
};
template <class A>
struct steps {
    using state = step<A>;
    __device__ static state identity() { return {A(1), A(0)}; }
    __device__ static state then(state f, state g) { return {f.a * g.a, g.b + g.a * f.b}; }
    __device__ static void store(const scan_job &j, int64_t at, state s) {
        store_as(j.out, j.out_dtype, at, s.b, false);
    }
    __device__ static state up(state s, int d) {
        return {__shfl_up_sync(0xffffffffu, s.a, d), __shfl_up_sync(0xffffffffu, s.b, d)};
    }
    template <class T>
    __device__ static state of(const T *x, const T *b, int64_t i, int64_t) {
        return {load_as(x[i]), load_as(b[i])};
    }
};

// The extreme so far and its place, of equals the last one; a NaN stays. at < 0: none yet.
template <class A>
struct extreme {
    A v;
    int64_t at;
};
template <class A, bool MAX>
struct extremes {
    using state = extreme<A>;
    __device__ static state identity() { return {A(0), -1}; }
    __device__ static state then(state f, state g) {
        bool reaches = MAX ? g.v >= f.v : g.v <= f.v;
        bool later = f.at < 0 || (g.at >= 0 && ((reaches && f.v == f.v) || g.v != g.v));
        return later ? g : f;
    }
    __device__ static void store(const scan_job &j, int64_t at, state s) {
        if (j.out) store_as(j.out, j.out_dtype, at, s.v, false);
        if (j.places) j.places[at] = s.at;
    }
    __device__ static state up(state s, int d) {
        return {__shfl_up_sync(0xffffffffu, s.v, d), __shfl_up_sync(0xffffffffu, s.at, d)};
    }
    template <class T>
    __device__ static state of(const T *x, const T *, int64_t i, int64_t k) {
        return {load_as(x[i]), k};
    }
};

// Step k of a line; past the end, the identity. The identity is on the left of step 0 alone, as on
// the host: elsewhere, a coefficient that overflowed would make NaN of it.
template <class S, class T>
__device__ typename S::state state_at(const T *x, const T *b, int64_t k, int64_t end, int64_t at) {
    if (k >= end) return S::identity();
    typename S::state s = S::of(x, b, at, k);
    return k > 0 ? s : S::then(S::identity(), s);
}

// The states of the threads before this one, which must not be the first; *total: of all threads.
template <class S>
__device__ typename S::state block_before(typename S::state mine, typename S::state *total) {
    using state = typename S::state;
    KN_SHARED(warps, state[WARPS]);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 1; d < 32; d *= 2) {
        state left = S::up(mine, d);
        if (lane >= d) mine = S::then(left, mine);
    }
    state before = S::up(mine, 1);
    __syncthreads();  // the last use of `warps` is over
    if (lane == 31) warps[warp] = mine;
    __syncthreads();
    state all = warps[0];
    for (int w = 1; w < WARPS; w++) {
        if (w == warp) before = lane ? S::then(all, before) : all;
        all = S::then(all, warps[w]);
    }
    *total = all;
    return before;
}

// The first n totals of a line, n > 0.
template <class S>
__device__ typename S::state joined(const scan_job &j, int64_t line, int64_t n) {
    using state = typename S::state;
    const state *totals = (const state *)j.totals + line;
    int64_t share = (n + BLOCK - 1) / BLOCK, first = threadIdx.x * share;
    int64_t end = min(first + share, n);
    state mine = first < n ? totals[first * j.lines.outer] : S::identity(), all;
    for (int64_t c = first + 1; c < end; c++) mine = S::then(mine, totals[c * j.lines.outer]);
    block_before<S>(mine, &all);
    return all;
}

template <class S, class T>
__global__ void __launch_bounds__(BLOCK, 1) scan_rows_kernel(scan_job j, const T *x, const T *b) {
    using state = typename S::state;
    KN_SHARED(tile, state[TILE]);
    int64_t n = j.lines.n, lines = j.lines.outer;
    state *mine = tile + threadIdx.x * ITEMS;
    for (int64_t i = blockIdx.x; i < lines * j.n_chunks; i += gridDim.x) {
        int64_t c = i / lines, line = i - c * lines, end = min((c + 1) * j.chunk, n);
        auto place = [&](int64_t k) { return line * n + (j.reverse ? n - 1 - k : k); };
        bool begun = !j.joins && c > 0;
        state carry = begun ? joined<S>(j, line, c) : S::identity();
        for (int64_t from = c * j.chunk; from < end; from += TILE) {
            int64_t k0 = from + threadIdx.x;
            state s[ITEMS];  // all loads are in flight at once
#pragma unroll
            for (int u = 0; u < ITEMS; u++)
                s[u] = state_at<S>(x, b, k0 + u * BLOCK, end, place(k0 + u * BLOCK));
#pragma unroll
            for (int u = 0; u < ITEMS; u++) tile[threadIdx.x + u * BLOCK] = s[u];
            __syncthreads();
            state all = mine[0], total;
            for (int k = 1; k < ITEMS; k++) all = S::then(all, mine[k]);
            state before = block_before<S>(all, &total);
            if (!j.joins) {
                state y = threadIdx.x == 0 ? carry : begun ? S::then(carry, before) : before;
                for (int k = 0; k < ITEMS; k++) {
                    state next = S::then(y, mine[k]);
                    mine[k] = j.exclusive ? y : next;
                    y = next;
                }
                __syncthreads();
                for (int u = 0; u < ITEMS && k0 + u * BLOCK < end; u++)
                    S::store(j, place(k0 + u * BLOCK), tile[threadIdx.x + u * BLOCK]);
            }
            carry = begun ? S::then(carry, total) : total;
            begun = true;
            __syncthreads();
        }
        if (j.joins && threadIdx.x == 0) ((state *)j.totals)[i] = carry;
    }
}

template <class S, class T>
__global__ void __launch_bounds__(BLOCK, 1)
    scan_columns_kernel(scan_job j, const T *x, const T *b) {
    using state = typename S::state;
    state *totals = (state *)j.totals;
    int64_t n = j.lines.n, inner = j.lines.inner, lines = j.lines.outer * inner;
    for (int64_t i = thread_index(); i < lines * j.n_chunks; i += thread_count()) {
        int64_t c = i / lines, line = i - c * lines, end = min((c + 1) * j.chunk, n);
        int64_t outer = line / inner, first = outer * n * inner + (line - outer * inner);
        auto place = [&](int64_t k) { return first + (j.reverse ? n - 1 - k : k) * inner; };
        bool begun = !j.joins && c > 0;
        state y = begun ? totals[line] : S::identity();
        for (int64_t p = 1; begun && p < c; p++) y = S::then(y, totals[p * lines + line]);
        for (int64_t k = c * j.chunk; k < end; k += AT_ONCE) {
            state s[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) s[u] = state_at<S>(x, b, k + u, end, place(k + u));
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                state next = begun ? S::then(y, s[u]) : s[u];
                if (!j.joins && k + u < end) S::store(j, place(k + u), j.exclusive ? y : next);
                y = next, begun = true;
            }
        }
        if (j.joins) totals[i] = y;
    }
}

template <class S, class T>
cudaError_t launch_pass(const scan_job &j, const T *x, const T *b, cudaStream_t stream) {
    int64_t work = j.lines.outer * j.lines.inner * j.n_chunks;
    if (j.lines.inner == 1)
        KN_LAUNCH((scan_rows_kernel<S, T>), blocks_for(work, 1), BLOCK, stream, j, x, b);
    else
        KN_LAUNCH((scan_columns_kernel<S, T>), blocks_for(work), BLOCK, stream, j, x, b);
    return cudaGetLastError();
}

template <class S, class T>
cudaError_t launch(const kn__scan *p, scan_job j, cudaStream_t stream) {
    const T *x = (const T *)p->in, *b = (const T *)p->b;
    j.joins = j.n_chunks > 1;
    cudaError_t error = j.joins ? launch_pass<S, T>(j, x, b, stream) : cudaSuccess;
    j.joins = false;
    return error == cudaSuccess ? launch_pass<S, T>(j, x, b, stream) : error;
}

}  // namespace

extern "C" {

void kn__scan_plan(kn__scan *p) {
    // Blocks and threads that fill a GPU. A thread joins the chunks before its own: no more of
    // them than steps in one. A short column is faster done at once. Only sums of columns are cut:
    // a product of many coefficients may overflow where the host, step by step, multiplies zero.
    enum { BLOCKS = 1024, THREADS = 1 << 15, LONG_COLUMN = 64 };
    const kn__lines &lines = p->lines;
    bool rows = lines.inner == 1;
    int64_t unit = rows ? TILE : 1, units = (lines.n + unit - 1) / unit;
    int64_t wanted = (rows ? BLOCKS : THREADS) / (lines.outer * lines.inner);
    bool one = !rows && (p->kind != 0 || lines.n < LONG_COLUMN);
    int64_t most = rows ? units : one ? 1 : (int64_t)sqrt((double)lines.n);
    int64_t n_chunks = wanted < most ? wanted : most;
    p->chunk = (n_chunks < 2 ? units : (units + n_chunks - 1) / n_chunks) * unit;
    p->n_chunks = (lines.n + p->chunk - 1) / p->chunk;
}

cudaError_t kn__launch_scan(const kn__scan *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        using A = computed<T>;
        kn_dtype out = std::is_same<A, int64_t>::value ? KN_I64 : p->dtype;
        scan_job j = {p->reverse, p->exclusive, false,  p->lines,  p->n_chunks,
                      p->chunk,   p->totals,    p->out, p->places, out};
        if (p->kind > 2) j.out_dtype = p->dtype;
        if (p->kind == 3) return launch<extremes<A, true>, T>(p, j, stream);
        if (p->kind == 4) return launch<extremes<A, false>, T>(p, j, stream);
        if (p->kind == 0) return launch<sums<A>, T>(p, j, stream);
        if (p->kind == 1) return launch<products<A>, T>(p, j, stream);
        return launch<steps<A>, T>(p, j, stream);
    });
}

}  // extern "C"
