/* Training steps behind a pipe (peer.h): a process that reads lines "model steps" and answers each
 * with the median time of a step in nanoseconds. Ours, ours with the timer on, and PyTorch's
 * (bench/peer/steps.py) speak it alike, so that a benchmark can let them run in turn. */
#ifndef KNET_BENCH_STEPS_H
#define KNET_BENCH_STEPS_H

#include <stdbool.h>

/* Ours: serves standard input until it ends. threads 0: the default. On another device than the CPU
 * the time of a step is the mean. Returns the process's exit status. */
int steps_serve(int threads, const char *device, bool tf32);
/* Whether there is such a device; if not, says on stderr why. */
bool steps_has_device(const char *device);

#endif
