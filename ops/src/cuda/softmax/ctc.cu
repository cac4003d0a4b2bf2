// The CTC loss: a block a sequence, a thread a state of its target; blanks (s even) and label
// (s - 1)/2. Recursions run in logarithms of f64, through rows of work space. Labels that occur
// again are added up in one order, by a thread that follows links from the first one.

#include "cuda/base/device.cuh"
#include "labels.h"

namespace {

using namespace kn_dev;

struct item {
    int64_t b, steps, states;
    double *alpha, *q, *terms;  // [rows][states], [2][states], [states]
    // [states]: the next state of the same label, or -1; whether none comes before
    int64_t *link, *first;
    bool valid;
};

__device__ int64_t index_at(const kn__ctc &p, int which, int64_t at) {
    return kn__label_at(p.index[which], p.index_dtype[which], at);
}

__device__ int64_t label_of(const kn__ctc &p, const item &it, int64_t s) {
    return s % 2 ? index_at(p, 0, it.b * p.labels + s / 2) : p.blank;
}

// Whether state s may follow state s - 2.
__device__ bool passes(const kn__ctc &p, const item &it, int64_t s) {
    return s % 2 && s > 2 && label_of(p, it, s) != label_of(p, it, s - 2);
}

template <class T>
__device__ double log_prob(const kn__ctc &p, const item &it, int64_t t, int64_t s) {
    return (double)((const T *)p.x)[(t * p.batch + it.b) * p.classes + label_of(p, it, s)];
}

__device__ double log_sum(double a, double b, double c) {
    double most = fmax(fmax(a, b), c);
    double shift = most > -(double)INFINITY ? most : 0;
    return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

__device__ item item_of(const kn__ctc &p, int64_t b) {
    item it;
    int64_t n = p.index[2] ? index_at(p, 2, b) : p.labels;
    it.b = b;
    it.steps = p.index[1] ? index_at(p, 1, b) : p.steps;
    it.valid = n >= 0 && n <= p.labels && it.steps >= 0 && it.steps <= p.steps;
    it.states = it.valid ? 2 * n + 1 : 1;
    int64_t width = 2 * p.labels + 1;
    it.alpha = p.work + b * p.room;
    it.q = it.alpha + p.rows * width;
    it.terms = it.q + 2 * width;
    it.link = (int64_t *)(it.terms + width);
    it.first = it.link + width;
    return it;
}

// Whether a label is out of range; makes the links.
__device__ bool has_wrong_label(const kn__ctc &p, const item &it) {
    double wrong = 0;
    for (int64_t s = 1 + 2 * threadIdx.x; s < it.states; s += 2 * BLOCK) {
        int64_t label = label_of(p, it, s), next = s + 2, before = s - 2;
        if (label < 0 || label >= p.classes || label == p.blank) wrong = 1;
        while (next < it.states && label_of(p, it, next) != label) next += 2;
        while (before > 0 && label_of(p, it, before) != label) before -= 2;
        it.link[s] = next < it.states ? next : -1;
        it.first[s] = before < 0;
    }
    return team_join<op_max, BLOCK>(wrong) != 0;
}

// The logarithm of the target's probability.
template <class T>
__device__ double forward(const kn__ctc &p, const item &it) {
    const double none = -(double)INFINITY;
    if (it.steps == 0) return it.states == 1 ? 0 : none;
    for (int64_t t = 0; t < it.steps; t++) {
        double *row = it.alpha + t % p.rows * it.states;
        const double *before = it.alpha + (t + p.rows - 1) % p.rows * it.states;
        for (int64_t s = threadIdx.x; s < it.states; s += BLOCK) {
            double joined = s < 2 ? 0 : none;
            if (t > 0)
                joined = log_sum(before[s], s > 0 ? before[s - 1] : none,
                                 passes(p, it, s) ? before[s - 2] : none);
            row[s] = joined + log_prob<T>(p, it, t, s);
        }
        __syncthreads();
    }
    const double *last = it.alpha + (it.steps - 1) % p.rows * it.states + it.states - 1;
    return log_sum(last[0], it.states > 1 ? last[-1] : none, none);
}

// The step's row of gradients, from the terms.
template <class T>
__device__ void store_step(const kn__ctc &p, const item &it, int64_t t) {
    T *out = (T *)p.d + (t * p.batch + it.b) * p.classes;
    double blanks = 0;
    for (int64_t s = threadIdx.x; s < it.states; s += BLOCK) {
        if (s % 2 == 0) {
            blanks += it.terms[s];
        } else if (it.first[s]) {
            double sum = 0;
            for (int64_t i = s; i >= 0; i = it.link[i]) sum += it.terms[i];
            out[label_of(p, it, s)] = (T)-sum;
        }
    }
    blanks = team_join<op_sum, BLOCK>(blanks);
    if (threadIdx.x == 0) out[p.blank] = (T)-blanks;
}

template <class T>
__device__ void back(const kn__ctc &p, const item &it, double total) {
    const double none = -(double)INFINITY;
    int64_t n = it.states;
    for (int64_t t = it.steps - 1; t >= 0; t--) {
        double *q = it.q + t % 2 * n;
        const double *next = it.q + (t + 1) % 2 * n;
        for (int64_t s = threadIdx.x; s < n; s += BLOCK) {
            double joined = s + 2 < n ? none : 0;
            if (t + 1 < it.steps)
                joined = log_sum(next[s], s + 1 < n ? next[s + 1] : none,
                                 s + 2 < n && passes(p, it, s + 2) ? next[s + 2] : none);
            it.terms[s] = exp(it.alpha[t * n + s] + joined - total);
            q[s] = joined + log_prob<T>(p, it, t, s);
        }
        __syncthreads();
        store_step<T>(p, it, t);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK, 1) ctc_kernel(const __grid_constant__ kn__ctc p) {
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        item it = item_of(p, b);
        it.valid = !has_wrong_label(p, it) && it.valid;
        double total = it.valid ? forward<T>(p, it) : not_a_number<double>();
        bool zero = total == -(double)INFINITY && p.zero_infinity;
        if (p.losses && threadIdx.x == 0) ((T *)p.losses)[b] = zero ? T(0) : (T)-total;
        if (!p.d || zero) continue;
        if (total - total == 0) {
            back<T>(p, it, total);
            continue;
        }
        int64_t n = (it.valid ? it.steps : p.steps) * p.classes;
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
            int64_t t = i / p.classes;
            ((T *)p.d)[(t * p.batch + b) * p.classes + i % p.classes] = not_a_number<T>();
        }
    }
}

}  // namespace

extern "C" cudaError_t kn__launch_ctc(const kn__ctc *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        KN_LAUNCH(ctc_kernel<T>, blocks_for(p->batch, 1), BLOCK, stream, *p);
        return cudaGetLastError();
    });
}
