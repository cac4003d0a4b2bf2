/* Profiles that the timer wrote as JSON, read back as reports. */
#ifndef KN_REPORT_READ_H
#define KN_REPORT_READ_H

#include "report.h"

enum {
    KN__READ_BYTES_MAX = 256 << 20, /* of a file: far more than the timer writes */
    KN__READ_DEPTH_MAX = 300        /* of rows in rows */
};

/* Reads the file. Release the report in any case. Errors, each naming the file and what is wrong in
 * it: IO, when it can't be read; FORMAT, when it is no profile, is cut off, is of another version
 * or has a value that can't be; OOM. */
KN_MUST_CHECK kn_status kn__report_read(kn__report *out, const char *path);

/* The same from memory; `name` is for messages. */
KN_MUST_CHECK kn_status kn__report_parse(kn__report *out, const char *name, const char *text,
                                         size_t n);

#endif
