/* The machine's measured peaks, kept for the timer's reports: a file of the user's cache. */
#ifndef KN_REPORT_PEAKS_H
#define KN_REPORT_PEAKS_H

#include "report.h"

enum { KN__PEAKS_PATH_BYTES = 1024 };

/* $XDG_CACHE_HOME/knet/peaks, or .cache/knet/peaks in $HOME; false: neither names a directory, or
 * the process has more rights than its user. */
bool kn__peaks_path(char *out, size_t out_bytes);
/* {0}: there is no file, or it is of another machine or incomplete. */
kn__rates kn__peaks_read(void);
/* Makes the directories too. Errors: IO, with the path; INVALID where there is no path. */
KN_MUST_CHECK kn_status kn__peaks_write(kn__rates peaks);

#endif
