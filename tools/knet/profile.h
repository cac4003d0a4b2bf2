/* Profiles as the commands read them. */
#ifndef KN_PROFILE_H
#define KN_PROFILE_H

#include <knet/status.h>

#include "report.h"

/* Reads a profile that KNET_TIMER=json=FILE wrote, gzip or not; "-" is standard input. Release the
 * report in any case. Errors, each naming the file and what is wrong in it: IO, FORMAT, OOM;
 * UNSUPPORTED: this program was built without the reader. */
KN_MUST_CHECK kn_status kn__profile_read(kn__report *out, const char *path);

#endif
