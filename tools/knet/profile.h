/* Profiles as the commands read them. */
#ifndef KN_PROFILE_H
#define KN_PROFILE_H

#include <knet/status.h>

#include "report.h"

/* Reads a profile that KNET_TIMER=json=FILE wrote, or a trace in JSON, gzip or not, or the SQLite
 * export of Nsight Systems; "-" is standard input. Release the report in any case. Errors, each
 * naming the file and the fault: IO, FORMAT, OOM; UNSUPPORTED: this program was built without the
 * reader. */
KN_MUST_CHECK kn_status kn__profile_read(kn__report *out, const char *path);

/* The same from memory; `name` is for messages. */
KN_MUST_CHECK kn_status kn__profile_parse(kn__report *out, const char *name, const char *text,
                                          size_t n);

#endif
