#include "find_rate.h"

#include <knet/search.h>
#include <math.h>
#include <string.h>

#include "mix.h"

enum { GOLDEN_CALLS = 10, GOLDEN_STEPS = 100, RESOURCE = 9, STEPS_EACH = 20 };

const char *const kn__find_rate_methods[] = {"golden", "hyperband", NULL};

typedef struct search {
    double around;
    uint64_t seed;
    kn__rate_fn fn;
    void *ctx;
    int n_calls;
} search;

static kn_status golden_try(double *loss, void *ctx, double log_rate) {
    search *s = ctx;
    s->n_calls++;
    return s->fn(loss, s->ctx, exp(log_rate), GOLDEN_STEPS);
}

/* The i-th rate: from a hundredth to ten times, uniform in its logarithm. */
static double rate_at(const search *s, int64_t i) {
    uint64_t z = kn__mix(s->seed + (uint64_t)(i + 1) * KN__GOLDEN);
    return s->around * pow(10, 3 * kn__uniform(z) - 2);
}

static kn_status hyperband_try(double *loss, void *ctx, int64_t i, int64_t resource) {
    search *s = ctx;
    s->n_calls++;
    return s->fn(loss, s->ctx, rate_at(s, i), resource * STEPS_EACH);
}

kn_status kn__find_rate(double *rate, double *loss, int *n_calls, const char *method, double around,
                        uint64_t seed, kn__rate_fn fn, void *ctx) {
    search s = {.around = around, .seed = seed, .fn = fn, .ctx = ctx};
    kn_status status = KN_OK;
    if (strcmp(method, "golden") == 0) {
        double x = 0;
        status = kn_search_golden(&x, loss, golden_try, &s, log(around / 100), log(around * 10),
                                  GOLDEN_CALLS);
        if (status == KN_OK) *rate = exp(x);
    } else {
        int64_t best = 0;
        status = kn_hyperband_run(
            &best, loss, &(kn_hyperband){.fn = hyperband_try, .ctx = &s, .resource_max = RESOURCE});
        if (status == KN_OK) *rate = rate_at(&s, best);
    }
    *n_calls = s.n_calls;
    return status;
}
