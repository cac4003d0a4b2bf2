/* What the collectives of collect.c take. */
#ifndef KN_COMM_COST_H
#define KN_COMM_COST_H

#include <knet/forecast.h>

/* Adds the time of an all-reduce of n elements, in seconds, and the messages that a rank sends. */
void kn__cost_all_reduce(double *seconds, uint64_t *n_messages, int64_t n, kn_dtype dtype, int size,
                         const kn_forecast_link *link);
/* Measures link->add_bandwidth, for about ten milliseconds. */
double kn__cost_add_bandwidth(void);

#endif
