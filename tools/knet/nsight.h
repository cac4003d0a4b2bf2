/* Profiles of Nsight Systems: what `nsys export --type sqlite` writes. */
#ifndef KN_NSIGHT_H
#define KN_NSIGHT_H

#include "report.h"

/* How an SQLite file begins, with its zero byte. */
#define KN__NSIGHT_MAGIC "SQLite format 3"

/* Reads NVTX ranges and calls of CUDA as spans, kernels, copies and sets as GPU work; the report
 * has a timeline. Release it in any case. Errors, naming the file and the fault: FORMAT, OOM;
 * UNSUPPORTED: this program was built without SQLite. */
KN_MUST_CHECK kn_status kn__nsight_read(kn__report *out, const char *path);

#endif
