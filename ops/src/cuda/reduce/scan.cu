// Scans along an axis: a block a line of neighbouring elements, a thread a line else. Each step is
// y = b + a·y; a sum has a = 1, a product b = 0. Steps join to a step, so a block takes many at
// once.

#include "cuda/reduce/elements.cuh"

namespace {

using namespace kn_dev;

template <class A>
struct step {
    A a, b;
};

// First f, then g.
template <class A>
__device__ step<A> then(step<A> f, step<A> g) {
    return {f.a * g.a, g.b + g.a * f.b};
}

struct scan_job {
    int kind;
    bool reverse, exclusive;
    kn__lines lines;
    void *out;
    kn_dtype out_dtype;
};

template <class T, class A>
__device__ step<A> step_at(const scan_job &j, const T *x, const T *b, int64_t i) {
    A v = load_as(x[i]);
    if (j.kind == 0) return {A(1), v};
    return {v, j.kind == 1 ? A(0) : (A)load_as(b[i])};
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) scan_rows_kernel(scan_job j, const T *x, const T *b) {
    using A = computed<T>;
    KN_SHARED(a_of, A[2][BLOCK]);
    KN_SHARED(b_of, A[2][BLOCK]);
    int t = threadIdx.x;
    int64_t n = j.lines.n;
    for (int64_t line = blockIdx.x; line < j.lines.outer; line += gridDim.x) {
        A carry = j.kind == 1 ? A(1) : A(0);
        for (int64_t from = 0; from < n; from += BLOCK) {
            int64_t k = from + t, at = line * n + (j.reverse ? n - 1 - k : k);
            step<A> mine = {A(1), A(0)};
            if (k < n) mine = step_at<T, A>(j, x, b, at);
            int side = 0;
            a_of[0][t] = mine.a, b_of[0][t] = mine.b;
            __syncthreads();
            for (int d = 1; d < BLOCK; d *= 2, side ^= 1) {
                if (t >= d) mine = then(step<A>{a_of[side][t - d], b_of[side][t - d]}, mine);
                a_of[side ^ 1][t] = mine.a, b_of[side ^ 1][t] = mine.b;
                __syncthreads();
            }
            step<A> previous = {A(1), A(0)};
            if (t > 0) previous = {a_of[side][t - 1], b_of[side][t - 1]};
            step<A> shown = j.exclusive ? previous : mine;
            if (k < n) store_as(j.out, j.out_dtype, at, shown.b + shown.a * carry, false);
            carry = b_of[side][BLOCK - 1] + a_of[side][BLOCK - 1] * carry;
            __syncthreads();
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    scan_columns_kernel(scan_job j, const T *x, const T *b) {
    using A = computed<T>;
    int64_t n = j.lines.n, inner = j.lines.inner, lines = j.lines.outer * inner;
    for (int64_t line = thread_index(); line < lines; line += thread_count()) {
        int64_t first = line / inner * n * inner + line % inner;
        A y = j.kind == 1 ? A(1) : A(0);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = first + (j.reverse ? n - 1 - k : k) * inner;
            step<A> s = step_at<T, A>(j, x, b, at);
            A next = s.b + s.a * y;
            store_as(j.out, j.out_dtype, at, j.exclusive ? y : next, false);
            y = next;
        }
    }
}

}  // namespace

extern "C" cudaError_t kn__launch_scan(const kn__scan *p, cudaStream_t stream) {
    return with_any(p->dtype, [&](auto t) {
        using T = decltype(t);
        kn_dtype out = std::is_same<computed<T>, int64_t>::value ? KN_I64 : p->dtype;
        scan_job j = {p->kind, p->reverse, p->exclusive, p->lines, p->out, out};
        const T *x = (const T *)p->in, *b = (const T *)p->b;
        if (p->lines.inner == 1)
            KN_LAUNCH(scan_rows_kernel<T>, blocks_for(p->lines.outer, 1), BLOCK, stream, j, x, b);
        else
            KN_LAUNCH(scan_columns_kernel<T>, blocks_for(p->lines.outer * p->lines.inner), BLOCK,
                      stream, j, x, b);
        return cudaGetLastError();
    });
}
