/* Whether the time of a row has changed, or only the noise. */
#ifndef KN_REPORT_JUDGE_H
#define KN_REPORT_JUDGE_H

#include "report.h"

typedef enum kn__verdict { KN__STEADY, KN__MOVED, KN__UNSTEADY } kn__verdict;

typedef struct kn__judge {
    double threshold; /* a change up to this part is noise */
    double noise;     /* how far calls of both runs are above their fastest, on average */
    /* How far nearly all rows moved alike, up (>= 0) and down (<= 0), as logarithms of ratios: the
     * machine ran at another speed, and only what moved further is the row's own. */
    double alike_up, alike_down;
    bool compared; /* there were rows enough to tell that */
    bool is_alike; /* and they did */
    bool holds;    /* some rows that moved are held back, whether or not all moved */
} kn__judge;

/* Notes the noise of two runs. Rows far below this share of the time of their run are not asked.
 * Errors: OOM. */
KN_MUST_CHECK kn_status kn__judge_make(kn__judge *out, const kn__report *a, const kn__report *b,
                                       double threshold, double share);

/* A call of B against one of A, both called. Of rows with several calls the fastest one and, where
 * it is known, the median must agree; where other rows show what the machine did, a tenth of the
 * calls is enough. Of rows with few calls the fastest must be beyond the noise of the run. */
kn__verdict kn__judge_time(const kn__judge *judge, const kn__row *a, const kn__row *b);
/* ns of a call that the verdict is about: the fastest one, where both sides have several. */
double kn__judge_call(const kn__row *row, const kn__row *other);
/* The same for one value of each run: what took so long may be other programs. */
kn__verdict kn__judge_value(const kn__judge *judge, double a, double b);

/* ns of a call, for the table of changes. */
double kn__judge_before(const kn__row *row);

#endif
