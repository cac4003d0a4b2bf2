/* One step of the recursions of the CTC loss, in logarithms. */
#include <math.h>

#include "host/pointwise/math_f32.h"
#include "host/softmax/softmax_exp.h"

#ifdef KN_REAL_IS_F32
#define LOG kn__log_f32
#else
#define LOG kn__log_f64
#endif

static inline real larger(real a, real b) { return a > b ? a : b; }

void KN_LOOP(ctc_step)(void *out, void *sum, const void *in, const void *skip, const void *more,
                       int64_t n) {
    const real *restrict from = in, *restrict passes = skip, *restrict add = more;
    real *restrict joined = out, *restrict total = sum;
    for (int64_t s = 0; s < n; s++) {
        real a = from[s], b = from[s - 1], c = from[s - 2] + passes[s];
        real most = larger(larger(a, b), c), shift = most > -(real)INFINITY ? most : 0;
        real e =
            exp_nonpositive(a - shift) + exp_nonpositive(b - shift) + exp_nonpositive(c - shift);
        joined[s] = LOG(e) + shift;
        total[s] = joined[s] + add[s];
    }
}

void KN_LOOP(ctc_terms)(void *terms, const void *a, const void *b, double total, int64_t n) {
    const real *restrict first = a, *restrict last = b;
    real *restrict to = terms, less = (real)total;
    for (int64_t s = 0; s < n; s++) to[s] = exp_nonpositive(first[s] + last[n - 1 - s] - less);
}
