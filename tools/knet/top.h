/* `knet top`: shows a running program, once or on a screen. */
#ifndef KN_TOP_H
#define KN_TOP_H

#include "live.h"
#include "report.h"

typedef struct kn__top_view {
    kn__sort sort;
    int depth; /* 0: all */
    double min;
    bool memory; /* the view of memory in place of the table */
    bool ascii;
} kn__top_view;

/* Asks for a report and adds its lines. Errors: as kn__live_read; FORMAT; OOM. */
KN_MUST_CHECK kn_status kn__top_lines(kn__text *out, const kn__live *live, const kn__top_view *view,
                                      int width);

typedef struct kn__top_end {
    kn__text last;      /* the screen's last text */
    bool program_ended; /* else the user quits, or a signal says so */
    int signal_number;  /* 0: none */
} kn__top_end;

/* Shows the lines every so often, until the user quits, the program ends or a signal comes: SIGINT,
 * SIGTERM, SIGHUP, also of a terminal that has gone without one. Errors: UNSUPPORTED: no screen can
 * be made (the reason is in the message). */
KN_MUST_CHECK kn_status kn__top_screen(kn__top_end *end, const kn__live *live, kn__top_view *view,
                                       double every_s);

#endif
