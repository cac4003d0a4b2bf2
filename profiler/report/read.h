/* Profiles that the timer wrote as JSON, read back as reports; and traces, whose events become
 * rows.
 */
#ifndef KN_REPORT_READ_H
#define KN_REPORT_READ_H

#include "report.h"

enum {
    KN__READ_BYTES_MAX = 1 << 30, /* of a file: as much as a trace of the timer may have */
    KN__READ_DEPTH_MAX = 300      /* of rows in rows */
};

/* Reads a profile or a trace (read_trace.h) from memory; with events, the report has a timeline. Of
 * a trace of the timer that is cut off, as that of a program that was killed, the complete events.
 * Release the report in any case. Errors, each with `name` (of the file) and the fault: FORMAT,
 * when the text is no profile, is cut off, is of another version or has an impossible value; OOM.
 */
KN_MUST_CHECK kn_status kn__report_parse(kn__report *out, const char *name, const char *text,
                                         size_t n);

#endif
