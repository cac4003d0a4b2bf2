/* CUPTI as the source of GPU records: kernels, copies and sets of every stream, with no sync.
 *
 * libcupti is loaded when it is asked for. A callback at each launch keeps (correlation id, scope);
 * a thread of low priority collects the buffers that CUPTI fills and joins them every tenth of a
 * second. Memory is bounded: when the thread can't keep up, CUPTI drops records and the report says
 * how many.
 */
#ifndef KNET_CUPTI_SOURCE_H
#define KNET_CUPTI_SOURCE_H

#include "activity.h"

/* `library` is the path of libcupti, "" for the usual names. One source a process; start it before
 * the program's first CUDA call where possible. Its start fails with UNSUPPORTED when there is no
 * CUPTI, no driver, or another tool holds CUPTI, and says which. */
const kn__source *kn__cupti_source(const char *library);

#endif
