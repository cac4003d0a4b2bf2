/* The lines of a table: rows in the order of a report, without those that say little. */
#ifndef KN_REPORT_LINES_H
#define KN_REPORT_LINES_H

#include "name.h"
#include "report.h"

typedef struct kn__line {
    const kn__row *row; /* whose values it shows */
    kn__row *sum;       /* of several rows: the same, owned */
    char *label;        /* owned */
    int depth;          /* 0 for the top level */
    uint64_t own_ns;
} kn__line;

typedef struct kn__table_lines {
    kn__line *all;
    size_t n, size;
    bool failed;    /* there was no memory for all */
    size_t n_small; /* rows below the minimum that one line sums up */
    bool joined;    /* some line is a row and its only child */
    bool has_own;   /* some row has rows below it */
    bool has_rates; /* the table shows rates */
    bool has_share; /* and parts of the whole time */
    bool has_runs;  /* and times of one run */
} kn__table_lines;

typedef struct kn__lines_options {
    int depth, top; /* levels, and rows of each; 0: all */
    double min;     /* share of the whole; 0: all rows, none joined */
    bool ascii;
    const kn__names *names; /* of kernels */
} kn__lines_options;

/* A row whose time, GPU time and bytes are all below the minimum is summed up with its siblings
 * that are. A row and its only child are one line if both have the same number of calls. */
void kn__lines_make(kn__table_lines *out, const kn__report *report,
                    const kn__lines_options *options);
void kn__lines_release(kn__table_lines *lines);

/* Whether scopes ran in several threads at the same time. */
bool kn__report_is_parallel(const kn__report *report);
/* The time that is 100 %: of all scopes or, where these ran in parallel, of the run. */
double kn__report_whole_ns(const kn__report *report);

#endif
