/* CUPTI as the source of GPU records: kernels, copies and sets of every stream, with no sync.
 *
 * libcupti is loaded when it is asked for. A callback at each launch keeps (correlation id, scope);
 * a thread of low priority collects the buffers that CUPTI fills and joins them every tenth of a
 * second. Memory is bounded: when the thread can't keep up, CUPTI drops records and the report says
 * how many.
 */
#ifndef KN_PROFILER_CUPTI_SOURCE_H
#define KN_PROFILER_CUPTI_SOURCE_H

#include "activity.h"

typedef enum kn__cupti_tier {
    KN__CUPTI_KERNELS,
    KN__CUPTI_GRAPHS, /* launches of graphs alone, each as one */
    KN__CUPTI_CALLS   /* kernels, and a scope for every call of the runtime and the driver */
} kn__cupti_tier;

typedef struct kn__cupti_options {
    const char *library; /* path of libcupti; "": the usual names */
    kn__cupti_tier tier;
    bool memory;        /* device memory that is allocated past the pools */
    const char *record; /* file that buffers are kept in (recorder.h); "": none */
} kn__cupti_options;

/* One source a process; start it before the program's first CUDA call where possible. Its start
 * fails with UNSUPPORTED when there is no CUPTI, no driver, or another tool holds CUPTI, and says
 * which. */
const kn__source *kn__cupti_source(const kn__cupti_options *options);

#endif
