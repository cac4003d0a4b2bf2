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

/* Shows the lines every so often, until the user quits or the program ends; then *last has what was
 * shown last. Errors: UNSUPPORTED: no screen can be made (the reason is in the message). */
KN_MUST_CHECK kn_status kn__top_screen(kn__text *last, bool *program_ended, const kn__live *live,
                                       kn__top_view *view, double every_s);

#endif
