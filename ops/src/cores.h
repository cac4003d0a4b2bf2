/* How many threads host kernels use by default. */
#ifndef KN_CORES_H
#define KN_CORES_H

#include <sched.h>
#include <stdbool.h>

/* OMP_NUM_THREADS where it is set; else the processors this process may run on, at most what its
 * control group allows. */
int kn__threads_default(void);

/* The processors that the control group's limit comes to, rounded up; 0 without a limit. Versions
 * 1 and 2. `root` stands before /proc and /sys: "" but in tests. */
int kn__cgroup_cores(const char *root);

/* The processors for helper threads, asked by one of them or by a caller: those that the main
 * thread may run on, since the caller, whose processors a helper has at first, may be bound to one;
 * and the asking thread's own. All of OpenMP's places, where it bound the main thread to one.
 * False: unknown. */
bool kn__cores_allowed(cpu_set_t *out);

#endif
