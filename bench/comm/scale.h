/* The part of bench_comm that compares forecasts with simulated ranks. */
#ifndef BENCH_SCALE_H
#define BENCH_SCALE_H

#include "bench.h"

void bench_scale(void);
/* Emits comm/pipeline_overlap. */
void bench_stages(void);

#endif
