/* Optimiser updates of one contiguous range. */
#include "host/base/loops.h"

#include <tgmath.h>

/* A loop over the elements: w, m, v and x, the gradient, scaled and with the decay of the weights
 * where `decays`. */
#define STEP(name, decays, ...)                                                                    \
    void KN_LOOP(name)(void *W, void *M, void *V, const void *G, int64_t n,                        \
                       const kn__optim_terms *terms) {                                             \
        real *restrict ws = W, *restrict ms = M, *restrict vs = V;                                 \
        const real *restrict gs = G;                                                               \
        const real rate = (real)terms->rate, gamma = (real)terms->momentum,                        \
                   p = (real)terms->inner, q = (real)terms->outer, b1 = (real)terms->beta1,        \
                   b2 = (real)terms->beta2, eps = (real)terms->eps, c1 = (real)(1 - terms->beta1), \
                   c2 = (real)(1 - terms->beta2), root = (real)terms->root_scale,                  \
                   d = (real)terms->decay, keep = (real)(1 - terms->decay),                        \
                   s = (real)terms->grad_scale;                                                    \
        (void)ms, (void)vs, (void)gs, (void)rate, (void)gamma, (void)b1, (void)b2, (void)eps;      \
        (void)c1, (void)c2, (void)root, (void)d, (void)keep, (void)s, (void)p, (void)q;            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const real x = gs[i] * s + (decays ? d * ws[i] : 0);                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* clang-format off */
STEP(sgd, 1, ws[i] -= rate * x;)
STEP(momentum, 1,
     ms[i] = gamma * ms[i] + p * x;
     ws[i] += q * ms[i];)
/* Nesterov 1983, as in Sutskever et al. 2013 */
STEP(nesterov, 1,
     ms[i] = gamma * ms[i] + p * x;
     ws[i] += q * (gamma * ms[i] + p * x);)
/* Duchi et al. 2011 */
STEP(adagrad, 1,
     vs[i] += x * x;
     ws[i] -= rate * x / sqrt(vs[i] + eps);)
/* Tieleman and Hinton 2012 */
STEP(rmsprop, 1,
     vs[i] = b2 * vs[i] + c2 * (x * x);
     ws[i] -= rate * x / sqrt(vs[i] + eps);)
/* Zeiler 2012: v averages squares of gradients, m those of steps */
STEP(adadelta, 1,
     vs[i] = b2 * vs[i] + c2 * (x * x);
     real step = x * sqrt(ms[i] + eps) / sqrt(vs[i] + eps);
     ws[i] -= rate * step;
     ms[i] = b2 * ms[i] + c2 * (step * step);)
STEP(adam, 0,
     ms[i] = b1 * ms[i] + c1 * x;
     vs[i] = b2 * vs[i] + c2 * (x * x);
     ws[i] = keep * ws[i] - rate * ms[i] / (sqrt(vs[i]) * root + eps);)
/* clang-format on */

/* LAMB's step of element i: You et al. 2020, r of algorithm 2. */
#define LAMB_STEP (ms[i] * corrected / (sqrt(vs[i]) * root + eps) + decay * ws[i])
#define LAMB_TERMS                                                                                 \
    const real corrected = (real)terms->m_scale, root = (real)terms->root_scale,                   \
               eps = (real)terms->eps, decay = (real)terms->decay

/* A sum of several at a time, and in double: weights are many, and so are chunks. */
void KN_LOOP(lamb_state)(double sums[2], const void *w, void *m, void *v, const void *g, int64_t n,
                         const kn__optim_terms *terms) {
    enum { WAYS = 16 };
    const real *restrict ws = w, *restrict gs = g;
    real *restrict ms = m, *restrict vs = v;
    const real b1 = (real)terms->beta1, b2 = (real)terms->beta2, s = (real)terms->grad_scale;
    const real c1 = (real)(1 - terms->beta1), c2 = (real)(1 - terms->beta2);
    LAMB_TERMS;
    double weights[WAYS] = {0}, steps[WAYS] = {0};
    for (int64_t at = 0; at < n; at += WAYS) {
        int64_t left = n - at < WAYS ? n - at : WAYS;
        for (int64_t k = 0; k < left; k++) {
            const int64_t i = at + k;
            const real x = gs[i] * s;
            ms[i] = b1 * ms[i] + c1 * x;
            vs[i] = b2 * vs[i] + c2 * (x * x);
            const double r = (double)LAMB_STEP, old = (double)ws[i];
            weights[k] += old * old;
            steps[k] += r * r;
        }
    }
    sums[0] = sums[1] = 0;
    for (int k = 0; k < WAYS; k++) sums[0] += weights[k], sums[1] += steps[k];
}

void KN_LOOP(lamb)(void *w, void *m, void *v, const void *g, int64_t n,
                   const kn__optim_terms *terms) {
    const real *restrict ms = m, *restrict vs = v, rate = (real)terms->rate;
    real *restrict ws = w;
    LAMB_TERMS;
    (void)g;
    for (int64_t i = 0; i < n; i++) ws[i] -= rate * LAMB_STEP;
}

/* The average of weights, in m. */
void KN_LOOP(ema)(void *w, void *m, void *v, const void *g, int64_t n,
                  const kn__optim_terms *terms) {
    const real *restrict weight = w;
    real *restrict mean = m, b = (real)terms->momentum, c = (real)(1 - terms->momentum);
    (void)v, (void)g;
    for (int64_t i = 0; i < n; i++) mean[i] = b * mean[i] + c * weight[i];
}
