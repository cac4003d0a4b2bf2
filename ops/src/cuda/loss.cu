// Losses over rows of scores: one value a row, made by a warp or a block each, and their mean,
// joined in a fixed order. A batch that one block can do takes one kernel; larger ones take a
// second.

#include "device.cuh"

namespace {

using namespace kn_dev;

enum {
    ROW_WARP_MAX = 1024,
    ONE_BLOCK = 1024,             // threads of the block that does a whole batch,
    ONE_BLOCK_TURNS = 8,          // in so many turns of its teams at most,
    ONE_BLOCK_SCORES = 64 * 1024  // of so many scores
};

template <class T>
__device__ T not_a_number() {
    return T(0) / T(0);
}

template <class L>
__device__ int64_t label_of(const L *labels, int64_t r, int64_t classes) {  // -1: out of range
    int64_t label = (int64_t)labels[r];
    return label >= 0 && label < classes ? label : -1;
}

template <int TEAM, class T, class L>
__device__ void cross_entropy_rows(const kn__loss &p, const T *x, const L *labels, T *row_loss) {
    T *dlogits = (T *)p.dlogits;
    int lane = threadIdx.x % TEAM;
    int64_t n = p.classes;
    T share = T(1) / (T)p.rows;
    for (int64_t r = thread_index() / TEAM; r < p.rows; r += thread_count() / TEAM) {
        const T *in = x + r * n;
        int64_t label = label_of(labels, r, n);
        T top = op_max::identity<T>(), sum = T(0);
        for (int64_t i = lane; i < n; i += TEAM) top = op_max::join(top, in[i]);
        top = team_join<op_max, TEAM>(top);
        for (int64_t i = lane; i < n; i += TEAM) sum += exp_(in[i] - top);
        sum = team_join<op_sum, TEAM>(sum);
        if (lane == 0) row_loss[r] = label < 0 ? not_a_number<T>() : log_(sum) - (in[label] - top);
        if (!dlogits) continue;
        T scale = label < 0 ? not_a_number<T>() : share / sum;
        for (int64_t i = lane; i < n; i += TEAM)
            dlogits[r * n + i] = exp_(in[i] - top) * scale - (i == label ? share : T(0));
    }
}

template <class T, class L>
__device__ void nll_rows(const kn__loss &p, const T *x, const L *labels, T *row_loss) {
    for (int64_t r = thread_index(); r < p.rows; r += thread_count()) {
        int64_t label = label_of(labels, r, p.classes);
        row_loss[r] = label < 0 ? not_a_number<T>() : -x[r * p.classes + label];
    }
}

template <class T, class L>
__device__ void accuracy_rows(const kn__loss &p, const T *x, const L *labels, T *row_loss) {
    int lane = threadIdx.x % 32;
    int64_t n = p.classes;
    for (int64_t r = thread_index() / 32; r < p.rows; r += thread_count() / 32) {
        const T *in = x + r * n;
        int64_t label = label_of(labels, r, n);
        // Right when nothing before the label reaches its score and nothing after it exceeds it;
        // NaN counts as the largest.
        bool wrong = label < 0;
        T score = label < 0 ? T(0) : in[label];
        for (int64_t i = lane; i < n && !wrong; i += 32) {
            bool larger = in[i] > score || (in[i] != in[i] && score == score);
            bool same = in[i] == score || (in[i] != in[i] && score != score);
            wrong = larger || (same && i < label);
        }
        wrong = __any_sync(0xffffffffu, wrong);
        if (lane == 0) row_loss[r] = wrong ? T(0) : T(1);
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
__global__ void __launch_bounds__(BLOCK) mean_kernel(T *out, const T *row_loss, int64_t rows) {
    mean_of_rows<BLOCK>(out, row_loss, rows);
}

// A kernel of the name for many blocks, or for ONE_BLOCK threads that make the mean too.
#define ROWS_KERNEL(name, rows_function)                                                           \
    template <int TEAM, int THREADS, class T, class L>                                             \
    __global__ void __launch_bounds__(THREADS)                                                     \
        name(kn__loss p, const T *x, const L *labels, T *row_loss) {                               \
        rows_function(p, x, labels, row_loss);                                                     \
        if (THREADS != ONE_BLOCK) return;                                                          \
        __syncthreads();                                                                           \
        mean_of_rows<THREADS>((T *)p.out, row_loss, p.rows);                                       \
    }
ROWS_KERNEL(cross_entropy_kernel, cross_entropy_rows<TEAM>)
ROWS_KERNEL(nll_kernel, nll_rows)
ROWS_KERNEL(accuracy_kernel, accuracy_rows)

template <class T, class L>
__global__ void __launch_bounds__(BLOCK)
    nll_back_kernel(kn__loss p, int64_t n, T *d, const L *labels, const T *g) {
    T value = -*g / (T)p.rows;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t r = i / p.classes;
        d[i] = (int64_t)labels[r] == i - r * p.classes ? value : T(0);
    }
}

// body(T{}, L{}) for the types of scores and labels.
template <class F>
cudaError_t with_types(const kn__loss *p, F body) {
    return with_float(p->dtype, [&](auto t) {
        return with_label(p->label_dtype, [&](auto l) { return body(t, l); });
    });
}

bool fits_one_block(const kn__loss *p, int team) {
    return p->rows * team <= ONE_BLOCK_TURNS * ONE_BLOCK &&
           p->rows * p->classes <= ONE_BLOCK_SCORES && p->classes <= ROW_WARP_MAX;
}

// The mean of what a rows kernel made, unless that did it itself.
template <class T>
cudaError_t finish(const kn__loss *p, bool one_block, cudaStream_t stream) {
    cudaError_t error = cudaGetLastError();
    if (one_block || error != cudaSuccess) return error;
    KN_LAUNCH(mean_kernel, 1, BLOCK, stream, (T *)p->out, (const T *)p->row_loss, p->rows);
    return cudaGetLastError();
}

#define LAUNCH_ROWS(kernel, TEAM, THREADS, blocks)                                                 \
    KN_LAUNCH((kernel<TEAM, THREADS>), blocks, THREADS, stream, *p, (const T *)p->scores,          \
              (const L *)p->labels, (T *)p->row_loss)

}  // namespace

extern "C" {

cudaError_t kn__launch_cross_entropy(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        bool one = fits_one_block(p, 32);
        if (one)
            LAUNCH_ROWS(cross_entropy_kernel, 32, ONE_BLOCK, 1);
        else if (p->classes <= ROW_WARP_MAX)
            LAUNCH_ROWS(cross_entropy_kernel, 32, BLOCK, blocks_for(p->rows * 32));
        else
            LAUNCH_ROWS(cross_entropy_kernel, BLOCK, BLOCK, blocks_for(p->rows, 1));
        return finish<T>(p, one, stream);
    });
}

cudaError_t kn__launch_nll(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        bool one = fits_one_block(p, 1);
        if (one)
            LAUNCH_ROWS(nll_kernel, 1, ONE_BLOCK, 1);
        else
            LAUNCH_ROWS(nll_kernel, 1, BLOCK, blocks_for(p->rows));
        return finish<T>(p, one, stream);
    });
}

cudaError_t kn__launch_accuracy(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        bool one = fits_one_block(p, 32);
        if (one)
            LAUNCH_ROWS(accuracy_kernel, 32, ONE_BLOCK, 1);
        else
            LAUNCH_ROWS(accuracy_kernel, 32, BLOCK, blocks_for(p->rows * 32));
        return finish<T>(p, one, stream);
    });
}

cudaError_t kn__launch_nll_back(const kn__loss *p, void *d, const void *g, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        int64_t n = p->rows * p->classes;
        KN_LAUNCH(nll_back_kernel, blocks_for(n), BLOCK, stream, *p, n, (T *)d,
                  (const L *)p->labels, (const T *)g);
        return cudaGetLastError();
    });
}

}  // extern "C"
