/* Optimiser updates of one contiguous range. */
#include "loops.h"

#include <tgmath.h>

void KN_LOOP(sgd)(void *w, const void *g, int64_t n, double rate, double decay, double scale) {
    real *restrict weight = w, r = (real)rate, d = (real)decay, s = (real)scale;
    const real *restrict grad = g;
    for (int64_t i = 0; i < n; i++) weight[i] -= r * (grad[i] * s + d * weight[i]);
}

void KN_LOOP(momentum)(void *w, void *v, const void *g, int64_t n, double rate, double momentum,
                       double decay, double scale) {
    real *restrict weight = w, *restrict speed = v;
    const real *restrict grad = g;
    real r = (real)rate, m = (real)momentum, d = (real)decay, s = (real)scale;
    for (int64_t i = 0; i < n; i++) {
        speed[i] = m * speed[i] - r * (grad[i] * s + d * weight[i]);
        weight[i] += speed[i];
    }
}

void KN_LOOP(adam)(void *w, void *m, void *v, const void *g, int64_t n,
                   const kn_adam_terms *terms) {
    real *restrict weight = w, *restrict first = m, *restrict second = v;
    const real *restrict grad = g;
    real b1 = (real)terms->beta1, b2 = (real)terms->beta2, eps = (real)terms->eps;
    real c1 = (real)(1 - terms->beta1), c2 = (real)(1 - terms->beta2);
    real rate = (real)terms->rate, root = (real)terms->root_scale, keep = (real)(1 - terms->decay);
    real s = (real)terms->grad_scale;
    for (int64_t i = 0; i < n; i++) {
        real x = grad[i] * s;
        first[i] = b1 * first[i] + c1 * x;
        second[i] = b2 * second[i] + c2 * (x * x);
        weight[i] = keep * weight[i] - rate * first[i] / (sqrt(second[i]) * root + eps);
    }
}
