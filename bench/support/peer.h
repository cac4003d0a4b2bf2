/* A process that answers: it reads lines of text and answers each with one number, the time of the
 * work in nanoseconds. Both sides of a comparison can speak it, so that a benchmark lets them run
 * in turn. PyTorch's sides are in bench/peer. */
#ifndef KNET_BENCH_PEER_H
#define KNET_BENCH_PEER_H

#include <stdio.h>
#include <sys/types.h>

typedef struct peer {
    pid_t pid; /* 0: it could not be started, or has ended */
    FILE *to, *from;
} peer;

/* Starts a program; `variable` (NULL: none) is an addition to its environment, "NAME=value", or
 * "NAME" to take it out. */
void peer_start(peer *p, char *const argv[], const char *variable);
/* Sends one line, and returns the answer; NAN when the process doesn't answer. */
double peer_ask(peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void peer_stop(peer *p);

/* The Python of a PyTorch peer: KNET_BENCH_PYTHON, else Debian's. */
char *peer_python(void);

/* In the environment of a PyTorch peer: the BLAS that shares its threads. The other one's fight
 * with them. */
#define PEER_BLAS "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp"

#endif
