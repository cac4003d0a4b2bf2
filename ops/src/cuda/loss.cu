// Losses over rows of scores. The first kernel makes one value a row, a warp or a block each; the
// second joins them in a fixed order.

#include "device.cuh"

namespace {

using namespace kn_dev;

enum { ROW_WARP_MAX = 1024 };

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
__global__ void __launch_bounds__(BLOCK)
    cross_entropy_kernel(kn__loss p, const T *x, const L *labels, T *row_loss, T *dlogits) {
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
__global__ void __launch_bounds__(BLOCK)
    nll_kernel(kn__loss p, const T *x, const L *labels, T *row_loss) {
    for (int64_t r = thread_index(); r < p.rows; r += thread_count()) {
        int64_t label = label_of(labels, r, p.classes);
        row_loss[r] = label < 0 ? not_a_number<T>() : -x[r * p.classes + label];
    }
}

template <class T, class L>
__global__ void __launch_bounds__(BLOCK)
    accuracy_kernel(kn__loss p, const T *x, const L *labels, T *row_loss) {
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

template <class T>
__global__ void __launch_bounds__(BLOCK) mean_kernel(T *out, const T *row_loss, int64_t rows) {
    T sum = T(0);
    for (int64_t r = threadIdx.x; r < rows; r += BLOCK) sum += row_loss[r];
    sum = team_join<op_sum, BLOCK>(sum);
    if (threadIdx.x == 0) *out = sum / (T)rows;
}

template <class T, class L>
__global__ void __launch_bounds__(BLOCK)
    nll_back_kernel(kn__loss p, int64_t n, T *d, const L *labels, const T *g) {
    T value = -*g / (T)p.rows;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t r = i / p.classes;
        d[i] = (int64_t)labels[r] == i - r * p.classes ? value : T(0);
    }
}

// body(T{}, L{}) for the types of scores and labels, then the mean of what it made.
template <class F>
cudaError_t with_types(const kn__loss *p, F body) {
    return with_float(p->dtype, [&](auto t) {
        return with_label(p->label_dtype, [&](auto l) { return body(t, l); });
    });
}

template <class T>
cudaError_t launch_mean(const kn__loss *p, cudaStream_t stream) {
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    KN_LAUNCH(mean_kernel, 1, BLOCK, stream, (T *)p->out, (const T *)p->row_loss, p->rows);
    return cudaGetLastError();
}

}  // namespace

extern "C" {

cudaError_t kn__launch_cross_entropy(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        const T *x = (const T *)p->scores;
        const L *labels = (const L *)p->labels;
        if (p->classes <= ROW_WARP_MAX)
            KN_LAUNCH(cross_entropy_kernel<32>, blocks_for(p->rows * 32), BLOCK, stream, *p, x,
                      labels, (T *)p->row_loss, (T *)p->dlogits);
        else
            KN_LAUNCH(cross_entropy_kernel<BLOCK>, blocks_for(p->rows, 1), BLOCK, stream, *p, x,
                      labels, (T *)p->row_loss, (T *)p->dlogits);
        return launch_mean<T>(p, stream);
    });
}

cudaError_t kn__launch_nll(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        KN_LAUNCH(nll_kernel, blocks_for(p->rows), BLOCK, stream, *p, (const T *)p->scores,
                  (const L *)p->labels, (T *)p->row_loss);
        return launch_mean<T>(p, stream);
    });
}

cudaError_t kn__launch_accuracy(const kn__loss *p, cudaStream_t stream) {
    return with_types(p, [&](auto t, auto l) {
        using T = decltype(t);
        using L = decltype(l);
        KN_LAUNCH(accuracy_kernel, blocks_for(p->rows * 32), BLOCK, stream, *p,
                  (const T *)p->scores, (const L *)p->labels, (T *)p->row_loss);
        return launch_mean<T>(p, stream);
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
