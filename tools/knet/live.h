/* Reports of running programs, asked for through the page of the timer (live_page.h). */
#ifndef KN_LIVE_H
#define KN_LIVE_H

#include <knet/status.h>

#include "text.h"

typedef struct kn__live {
    long pid;
    int fd;                     /* of the page; -1: closed */
    struct kn__live_page *page; /* NULL: closed */
    char command[128];          /* of the program; "": unknown */
    char name[160];             /* "process 4242 (command)", for messages */
} kn__live;

/* Opens the page of a process. Errors: INVALID, with the reason: there is no such process, it has
 * ended, it is another user's, it isn't timed. */
KN_MUST_CHECK kn_status kn__live_open(kn__live *out, long pid);
void kn__live_close(kn__live *live);

/* Asks for a report, waits for it and replaces the text by it. Errors: UNSUPPORTED: the program has
 * ended; IO: it does not answer (it is stopped, or its report is too large); OOM. */
KN_MUST_CHECK kn_status kn__live_read(kn__text *out, const kn__live *live);

/* The timed processes of this user, at most n; returns how many there are. */
int kn__live_find(long *pids, int n);
/* The command line of a process, cut to fit; "" without one. */
void kn__live_command(char *out, size_t out_bytes, long pid);

#endif
