/* Two profiles compared: the rows that moved beyond the noise. */
#ifndef KN_REPORT_DIFF_H
#define KN_REPORT_DIFF_H

#include "cells.h"
#include "diff_counters.h"
#include "report.h"

typedef struct kn__diff_options {
    double threshold; /* changes up to this part (0.05) of the value before are noise */
    double share;     /* rows below this part (0.005) of their run in both are left out */
    int top;          /* lines of the table at most; 0: all */
    int width;        /* columns at most; 0: no limit */
    bool ascii;
    /* Printed before and after each line of a row; NULL: nothing. */
    const char *worse, *better, *plain;
} kn__diff_options;

typedef enum kn__diff_what {
    KN__DIFF_TIME,  /* ns a call */
    KN__DIFF_GPU,   /* ns a call */
    KN__DIFF_CALLS, /* a step, of runs that count steps */
    KN__DIFF_ALLOC, /* bytes a call */
    KN__DIFF_RISE,  /* bytes: the most live inside, above those live when it began */
    KN__DIFF_PEAK,  /* bytes: the high-water mark of the run */
    KN__DIFF_NEW,   /* total ns, of a row that was not there */
    KN__DIFF_GONE,
    KN__DIFF_RENAMED, /* total ns, of a row that has another label now */
    KN__DIFF_N
} kn__diff_what;

typedef struct kn__change {
    const kn__row *row;  /* of B, or of A where it is gone; the root: of the run */
    const kn__row *from; /* of A, where it was renamed */
    bool neutral;        /* neither worse nor better: the rows above spend the same */
    kn__diff_what what;
    double a, b;
    double weight; /* what the whole run spends more (ns) or takes more (bytes); orders the list */
} kn__change;

typedef struct kn__diff {
    kn__change *changes; /* owned; worst first: time by weight, then memory, then the better ones */
    int n, n_worse, n_neutral;
    bool by_run;    /* calls are those of a run: it counts no steps */
    int n_unsteady; /* rows whose mean moved within their noise */
    kn__counters_diff counters;
    bool alike; /* rows moved the same way, as on a slower machine: all, or enough to hold others
                   back */
} kn__diff;

/* Borrows the rows of both reports. Errors: OOM. */
KN_MUST_CHECK kn_status kn__diff_make(kn__diff *out, const kn__report *a, const kn__report *b,
                                      const kn__diff_options *options);
void kn__diff_release(kn__diff *diff);

void kn__diff_add_table(kn__text *text, const kn__diff *diff, const kn__report *a,
                        const kn__report *b, const kn__diff_options *options);
/* Schema "knet.diff", version 1. */
void kn__diff_add_json(kn__text *text, const kn__diff *diff, const kn__report *a,
                       const kn__report *b);

#endif
