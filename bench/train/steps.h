/* Training steps behind a pipe: a process that reads lines "model steps" and answers each with the
 * median time of a step in nanoseconds. Ours, ours with the timer on, and PyTorch's
 * (bench/peer/steps.py) speak it alike, so that a benchmark can let them run in turn. */
#ifndef KNET_BENCH_STEPS_H
#define KNET_BENCH_STEPS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Ours: serves standard input until it ends. threads 0: the default. On another device than the CPU
 * the time of a step is the mean. Returns the process's exit status. */
int steps_serve(int threads, const char *device, bool tf32);
/* Whether there is such a device; if not, says on stderr why. */
bool steps_has_device(const char *device);

typedef struct stepper {
    pid_t pid; /* 0: it could not be started, or has ended */
    FILE *to, *from;
} stepper;

/* Starts a program; `variable` (NULL: none) is an addition to its environment, "NAME=value", or
 * "NAME" to take it out. */
void stepper_start(stepper *s, char *const argv[], const char *variable);
/* Median ns of a step; NAN when the process doesn't answer. */
double stepper_ask(stepper *s, const char *model, int n_steps);
void stepper_stop(stepper *s);

#endif
