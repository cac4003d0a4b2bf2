/* Search of hyper-parameters, as in Knet's Train20.
 *
 *     double log_rate = 0, loss = 0; // train_briefly trains at exp(log_rate)
 *     KN_TRY(kn_search_golden(&log_rate, &loss, train_briefly, ctx, log(1e-4), log(1e-1), 12));
 *     double rate = exp(log_rate);
 *
 * Both call a function of yours that trains and gives a loss, to be minimised; a loss that is NaN
 * counts as infinite.
 */
#ifndef KNET_SEARCH_H
#define KNET_SEARCH_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *loss at x. */
typedef kn_status (*kn_search_fn)(double *loss, void *ctx, double x);
/* The golden section search of a minimum in [lo, hi], where the loss has one: each call after the
 * first two shrinks the interval by 0.618. *x: the best that was seen; n_calls: 2 or more. */
KN_API KN_MUST_CHECK kn_status kn_search_golden(double *x, double *loss, kn_search_fn fn, void *ctx,
                                                double lo, double hi, int n_calls);

/* The same of several numbers, as Knet's goldensection(f, n): a search along each in turn, with the
 * others at the best that was seen, again and again. */
typedef struct kn_golden {
    /* *loss at x [n] */
    kn_status (*fn)(double *loss, void *ctx, const double x[]);
    void *ctx;            /* passed to fn */
    const double *lo;     /* [n]: where the interval of each number begins */
    const double *hi;     /* [n]: where it ends */
    int n;                /* how many numbers, 1 or more */
    int n_calls;          /* of one search along one number, 2 or more */
    int rounds;           /* how often each number has its turn; 0: 2 */
    uint32_t unused;      /* zero */
    uint64_t reserved[4]; /* zero */
} kn_golden;
/* x [n]: where the search begins, each number in its interval; then the best that was seen. After
 * rounds·n·n_calls calls of fn. Errors: INVALID for a number out of its interval and for intervals
 * and counts as kn_search_golden refuses them, before the first call of fn; those of fn. x is as it
 * was then. */
KN_API KN_MUST_CHECK kn_status kn_golden_run(double x[], double *loss, const kn_golden *g);

/* Hyperband: Li et al. 2018. */
typedef struct kn_hyperband {
    /* *loss of configuration i after training it with `resource` in all, such as epochs. A call for
     * the same i has more resource than the last: fn may continue. */
    kn_status (*fn)(double *loss, void *ctx, int64_t i, int64_t resource);
    void *ctx;            /* passed to fn */
    int64_t resource_max; /* of one configuration, 1 or more */
    int64_t eta;          /* each time the best 1/eta continue, with eta times the resource; 0: 3 */
    uint64_t reserved[4]; /* zero */
} kn_hyperband;
/* The number of configurations 0, 1, … that a search tries. -1: options out of range. */
KN_API int64_t kn_hyperband_count(const kn_hyperband *h);
/* *best: the configuration with the smallest loss. */
KN_API KN_MUST_CHECK kn_status kn_hyperband_run(int64_t *best, double *loss, const kn_hyperband *h);

#include <knet/sites/search.h>

#ifdef __cplusplus
}
#endif
#endif
