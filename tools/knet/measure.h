/* What this machine's processors reach at most. */
#ifndef KN_MEASURE_H
#define KN_MEASURE_H

#include "report.h"

/* Measures for about a second, on the default number of threads: a product of matrices of f32, and
 * a sum of two large vectors. Errors: those of ops. */
KN_MUST_CHECK kn_status kn__measure_peaks(kn__rates *out);

#endif
