/* Processes that keep a processor busy each, as others on a shared machine do. */
#ifndef KNET_BENCH_NEIGHBOURS_H
#define KNET_BENCH_NEIGHBOURS_H

#include <sys/types.h>

enum { NEIGHBOURS = 2 };

void neighbours_start(pid_t pid[NEIGHBOURS]);
void neighbours_stop(const pid_t pid[NEIGHBOURS]);

#endif
