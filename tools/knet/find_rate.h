/* The search of a learning rate by short trainings. */
#ifndef KN_FIND_RATE_H
#define KN_FIND_RATE_H

#include <knet/status.h>
#include <stdint.h>

/* Trains from the beginning for so many steps. A loss that is no number is INFINITY. */
typedef kn_status (*kn__rate_fn)(double *loss, void *ctx, double rate, int64_t steps);

extern const char *const kn__find_rate_methods[]; /* up to NULL */
/* *rate: the one with the smallest loss between a hundredth and ten times `around`. n_calls: those
 * that were made. */
kn_status kn__find_rate(double *rate, double *loss, int *n_calls, const char *method, double around,
                        uint64_t seed, kn__rate_fn fn, void *ctx);

#endif
