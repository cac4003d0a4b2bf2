/* How many threads host kernels use by default. */
#ifndef KN_CORES_H
#define KN_CORES_H

/* OMP_NUM_THREADS where it is set; else the processors this process may run on, at most what its
 * control group allows. */
int kn__threads_default(void);

/* The processors that the control group's limit comes to, rounded up; 0 without a limit. Versions
 * 1 and 2. `root` stands before /proc and /sys: "" but in tests. */
int kn__cgroup_cores(const char *root);

#endif
