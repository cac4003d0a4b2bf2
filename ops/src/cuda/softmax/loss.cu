// Losses over rows of scores: one value a row, made by a warp or a block each, and their mean,
// joined in a fixed order. A batch that one block can do takes one kernel; larger ones take a
// second.

#include "cuda/base/row.cuh"
#include "labels.h"

namespace {

using namespace kn_dev;

enum {
    ONE_BLOCK = 1024,             // threads of the block that does a whole batch,
    ONE_BLOCK_TURNS = 8,          // in so many turns of its teams at most,
    ONE_BLOCK_SCORES = 64 * 1024  // of so many scores
};

__device__ int64_t given_label(const kn__loss &p, int64_t r) {
    return kn__label_at(p.labels, p.label_dtype, r);
}
__device__ int64_t label_of(const kn__loss &p, int64_t r) {  // -1: out of range
    int64_t label = given_label(p, r);
    return label >= 0 && label < p.classes ? label : -1;
}

// `sum`: of e^(x - top); `score`: x - top of the label; `all`: the sum of x - top, where labels are
// smoothed.
template <class T>
__device__ T loss_of(const kn__loss &p, T sum, T score, T all, int64_t label) {
    if (label < 0) return not_a_number<T>();
    if (p.smoothing > 0) {
        // 0·infinity would be NaN
        score = p.smoothing < 1 ? (T)(1 - p.smoothing) * score : T(0);
        score += (T)p.smoothing * (all / (T)p.classes);
    }
    return log_(sum) - score;
}

// Σ x - top of a row's n elements that a team holds.
template <class S, class T>
__device__ T sum_above(const T (&x)[S::HELD], T top, int n) {
    T sum = T(0);
#pragma unroll
    for (int k = 0; k < S::HELD; k++) sum += element_of_row<S>(k) < n ? x[k] - top : T(0);
    return team_join<op_sum, S::TEAM>(sum);
}

template <class S, class T>
__device__ void cross_entropy_rows(const kn__loss &p) {
    using C = computed<T>;
    const T *x = (const T *)p.scores;
    C *dlogits = (C *)p.dlogits;
    int n = (int)p.classes, lane = threadIdx.x % S::TEAM;
    bool wide = ((uintptr_t)x | (uintptr_t)dlogits) % 16 == 0;
    if (sizeof(T) == 2) wide = wide && n % S::V == 0;
    for (int64_t r = thread_index() / S::TEAM; r < p.rows; r += thread_count() / S::TEAM) {
        int label = (int)label_of(p, r);
        C e[S::HELD];
        read_row<S>(e, x + r * n, n, wide, identity_max<C>());
        C top = largest_of_row<S>(e), sum = C(0), all = C(0);
        if (p.smoothing > 0) all = sum_above<S>(e, top, n);
#pragma unroll
        for (int k = 0; k < S::HELD; k++) sum += e[k] = exp_(e[k] - top);
        sum = team_join<op_sum, S::TEAM>(sum);
        if (lane == 0) {
            C score = label >= 0 ? (C)x[r * n + label] - top : C(0);
            ((C *)p.row_loss)[r] = loss_of(p, sum, score, all, label);
        }
        if (!dlogits) continue;
        // made here, not before the loop: they would not fit the registers
        C share = C(1) / (C)p.rows, own = share * (C)(1 - p.smoothing);
        C each = share * (C)(p.smoothing / (double)n);
        C scale = label < 0 ? not_a_number<C>() : share / sum;
#pragma unroll
        for (int k = 0; k < S::HELD; k++)
            e[k] = e[k] * scale - each - (element_of_row<S>(k) == label ? own : C(0));
        write_row<S>(dlogits + r * n, e, n, wide);
    }
}

// A block a row, which is too long to be held and read again for each pass.
template <class S, class T>
__device__ void cross_entropy_long_rows(const kn__loss &p) {
    using C = computed<T>;
    C *dlogits = (C *)p.dlogits;
    int64_t n = p.classes;
    C share = C(1) / (C)p.rows, own = share * (C)(1 - p.smoothing);
    C each = share * (C)(p.smoothing / (double)n);
    for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
        const T *in = (const T *)p.scores + r * n;
        int64_t label = label_of(p, r);
        C score = threadIdx.x == 0 && label >= 0 ? (C)in[label] : C(0);
        C top = op_max::identity<C>(), sum = C(0), all = C(0);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) top = op_max::join(top, (C)in[i]);
        top = team_join<op_max, BLOCK>(top);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += exp_((C)in[i] - top);
        sum = team_join<op_sum, BLOCK>(sum);
        if (p.smoothing > 0) {
            for (int64_t i = threadIdx.x; i < n; i += BLOCK) all += (C)in[i] - top;
            all = team_join<op_sum, BLOCK>(all);
        }
        if (threadIdx.x == 0) ((C *)p.row_loss)[r] = loss_of(p, sum, score - top, all, label);
        if (!dlogits) continue;
        C scale = label < 0 ? not_a_number<C>() : share / sum;
        for (int64_t i = threadIdx.x; i < n; i += BLOCK)
            dlogits[r * n + i] = exp_((C)in[i] - top) * scale - each - (i == label ? own : C(0));
    }
}

template <class S, class T>
__device__ void nll_rows(const kn__loss &p) {
    for (int64_t r = thread_index(); r < p.rows; r += thread_count()) {
        int64_t label = label_of(p, r);
        const T *in = (const T *)p.scores + r * p.classes;
        ((T *)p.row_loss)[r] = label < 0 ? not_a_number<T>() : -in[label];
    }
}

template <class S, class T>
__device__ void accuracy_rows(const kn__loss &p) {
    int lane = threadIdx.x % 32;
    int64_t n = p.classes;
    for (int64_t r = thread_index() / 32; r < p.rows; r += thread_count() / 32) {
        const T *in = (const T *)p.scores + r * n;
        int64_t label = label_of(p, r);
        // In order before the label: what reaches its score before it, and exceeds it after it.
        // NaN counts as the largest.
        T score = label < 0 ? T(0) : in[label];
        int before = 0;
        for (int64_t i = lane; i < n && label >= 0 && before < p.best; i += 32) {
            bool larger = in[i] > score || (in[i] != in[i] && score == score);
            bool same = in[i] == score || (in[i] != in[i] && score != score);
            before += larger || (same && i < label);
        }
        before = team_join<op_sum, 32>(before);
        T hit = before < p.best ? T(1) : T(0);
        if (lane == 0) ((T *)p.row_loss)[r] = label < 0 ? not_a_number<T>() : hit;
    }
}

template <int THREADS, class T>
__device__ void mean_of_rows(T *out, const T *row_loss, int64_t rows) {
    T sum = T(0);
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) sum += row_loss[r];
    sum = team_join<op_sum, THREADS>(sum);
    if (threadIdx.x == 0) *out = sum / (T)rows;
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) mean_kernel(T *out, const T *row_loss, int64_t rows) {
    mean_of_rows<BLOCK>(out, row_loss, rows);
}

// A kernel of the name for many blocks, or for ONE_BLOCK threads that make the mean too. S: the
// shape of the rows that a team holds, where it holds them.
#define ROWS_KERNEL(name, rows_function)                                                           \
    template <class S, int THREADS, class T>                                                       \
    __global__ void __launch_bounds__(THREADS, 1) name(kn__loss p, const T *, computed<T> *out) {  \
        rows_function<S, T>(p);                                                                    \
        if (THREADS != ONE_BLOCK) return;                                                          \
        __syncthreads();                                                                           \
        mean_of_rows<THREADS>(out, (const computed<T> *)p.row_loss, p.rows);                       \
    }
ROWS_KERNEL(cross_entropy_kernel, cross_entropy_rows)
ROWS_KERNEL(cross_entropy_long_kernel, cross_entropy_long_rows)
ROWS_KERNEL(nll_kernel, nll_rows)
ROWS_KERNEL(accuracy_kernel, accuracy_rows)

template <class T>
__global__ void __launch_bounds__(BLOCK, 1)
    nll_back_kernel(kn__loss p, int64_t n, T *d, const T *g) {
    T value = -*g / (T)p.rows;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t r = i / p.classes;
        d[i] = given_label(p, r) == i - r * p.classes ? value : T(0);
    }
}

bool has_labels(const kn__loss *p) {
    return p->label_dtype == KN_I64 || p->label_dtype == KN_I32 || p->label_dtype == KN_U8;
}

// body(T{}) for the type of the scores, if the labels' is one of three.
template <class F>
cudaError_t with_scores(const kn__loss *p, F body) {
    return has_labels(p) ? with_float(p->dtype, body) : cudaErrorInvalidValue;
}

bool fits_one_block(const kn__loss *p, int team) {
    return p->rows * team <= ONE_BLOCK_TURNS * ONE_BLOCK &&
           p->rows * p->classes <= ONE_BLOCK_SCORES;
}

// The mean of what a rows kernel made, unless that did it itself.
template <class T>
cudaError_t finish(const kn__loss *p, bool one_block, cudaStream_t stream) {
    cudaError_t error = cudaGetLastError();
    if (one_block || error != cudaSuccess) return error;
    using C = computed<T>;
    KN_LAUNCH(mean_kernel, 1, BLOCK, stream, (C *)p->out, (const C *)p->row_loss, p->rows);
    return cudaGetLastError();
}

#define LAUNCH_ROWS(kernel, S, THREADS, blocks)                                                    \
    KN_LAUNCH((kernel<S, THREADS>), blocks, THREADS, stream, *p, (const T *)p->scores,             \
              (computed<T> *)p->out)

}  // namespace

extern "C" {

cudaError_t kn__launch_cross_entropy(const kn__loss *p, cudaStream_t stream) {
    if (!has_labels(p)) return cudaErrorInvalidValue;
    return with_stored(p->dtype, [&](auto t) {
        using T = decltype(t);
        bool one = p->classes <= SHORT_ROW && fits_one_block(p, 32);
        if (p->classes > row_max<T>(BLOCK)) {
            LAUNCH_ROWS(cross_entropy_long_kernel, void, BLOCK, blocks_for(p->rows, 1));
            return finish<T>(p, one, stream);
        }
        if (one) {
            return with_short_row<T>(p->classes, [&](auto shape) {
                LAUNCH_ROWS(cross_entropy_kernel, decltype(shape), ONE_BLOCK, 1);
                return finish<T>(p, one, stream);
            });
        }
        return with_row<T>(p->classes, [&](auto shape) {
            LAUNCH_ROWS(cross_entropy_kernel, decltype(shape), BLOCK,
                        blocks_for_rows(shape, p->rows));
            return finish<T>(p, one, stream);
        });
    });
}

cudaError_t kn__launch_nll(const kn__loss *p, cudaStream_t stream) {
    return with_scores(p, [&](auto t) {
        using T = decltype(t);
        bool one = fits_one_block(p, 1);
        if (one)
            LAUNCH_ROWS(nll_kernel, void, ONE_BLOCK, 1);
        else
            LAUNCH_ROWS(nll_kernel, void, BLOCK, blocks_for(p->rows));
        return finish<T>(p, one, stream);
    });
}

cudaError_t kn__launch_accuracy(const kn__loss *p, cudaStream_t stream) {
    return with_scores(p, [&](auto t) {
        using T = decltype(t);
        bool one = fits_one_block(p, 32);
        if (one)
            LAUNCH_ROWS(accuracy_kernel, void, ONE_BLOCK, 1);
        else
            LAUNCH_ROWS(accuracy_kernel, void, BLOCK, blocks_for(p->rows * 32));
        return finish<T>(p, one, stream);
    });
}

cudaError_t kn__launch_nll_back(const kn__loss *p, void *d, const void *g, cudaStream_t stream) {
    return with_scores(p, [&](auto t) {
        using T = decltype(t);
        int64_t n = p->rows * p->classes;
        KN_LAUNCH(nll_back_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)d, (const T *)g);
        return cudaGetLastError();
    });
}

}  // extern "C"
