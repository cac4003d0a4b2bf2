/* Where libcupti is: beside the libcudart that the program has loaded, in the system's search path,
 * in the folders that pip and conda install to, in the toolkit's. CUPTI 12 comes first where the
 * driver is too old for CUPTI 13. */
#ifndef KN_PROFILER_CUPTI_FIND_H
#define KN_PROFILER_CUPTI_FIND_H

/* A handle of dlopen that is never closed; NULL: not found, dlerror() gives the reason. */
void *kn__cupti_open(void);

#endif
