#ifndef KNET_BENCH_CONV_H
#define KNET_BENCH_CONV_H

/* nn/conv64_rate: 3x3, 64 to 64 channels of 56x56, 32 images; as cases_more_fn. */
void conv_rate(int n_rounds, double budget_ns, const char *only);

#endif
