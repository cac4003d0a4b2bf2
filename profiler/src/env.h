/* The words of KNET_TIMER.
 *
 * A list separated by commas; later words win. A word that is wrong or not built into this library
 * is reported and skipped, the others count.
 */
#ifndef KN_PROFILER_ENV_H
#define KN_PROFILER_ENV_H

#include "budget.h"
#include "cells.h"
#include "clock.h"
#include "export.h"
#include "report.h"
#include "tree.h"

enum { KN__PATH_BYTES = 512 };

typedef enum kn__tier {
    KN__TIER_OFF,
    KN__TIER_NVTX, /* ranges for a tool that listens, no table */
    KN__TIER_CPU,
    KN__TIER_GPU_LITE, /* and graphs of GPU work, each as one */
    KN__TIER_GPU,      /* and kernels, copies and sets */
    KN__TIER_FULL      /* and every call of the CUDA runtime and driver */
} kn__tier;

typedef struct kn__config {
    kn__tier tier;
    bool grad_only; /* AUTOGRAD_TIMER alone */
    bool memory;
    bool live; /* `knet top` can look at the program */
    bool help;
    bool ascii, unicode; /* neither: by the locale */
    bool columns_2018, columns_spread;
    bool by_thread; /* a table a thread, below the merged one */
    int depth, width, top;
    double min; /* percent */
    kn__sort sort;
    kn__clock_kind clock;
    char out[KN__PATH_BYTES];  /* of the table; "-" is stderr */
    char json[KN__PATH_BYTES]; /* "": none, as below */
    bool events;               /* in `json` too */
    bool timeline;             /* in `html` */
    char trace[KN__PATH_BYTES];
    uint64_t trace_steps, trace_slow_ns; /* 0: all */
    uint64_t trace_max;                  /* bytes; 0: the default */
    char csv[KN__PATH_BYTES], folded[KN__PATH_BYTES], flame[KN__PATH_BYTES], html[KN__PATH_BYTES];
    char metrics[KN__PATH_BYTES];
    char record[KN__PATH_BYTES];    /* of the raw records of the GPU */
    char cupti[KN__PATH_BYTES];     /* of libcupti; "": where the system finds it */
    kn__weight weight;              /* of folded and flame */
    uint64_t first_step, last_step; /* measured steps; 1 and 0 (no end): all */
    uint64_t every_ns, every_steps; /* a report while the program runs; 0: none */
    int signal;                     /* that asks for one; 0: none */
    char left_out[KN__PATH_BYTES];  /* of a child: the first file that is another process's */
    uint64_t buffer_bytes;          /* most memory that the timer takes for itself */
} kn__config;

/* Reads the values of KNET_TIMER and AUTOGRAD_TIMER (NULL: unset). Wrong words, and words without
 * effect, add a line each to `messages`. `is_secure`: the program has rights that its caller lacks
 * (setuid), so that words that name files are ignored. */
void kn__config_read(kn__config *out, const char *knet_timer, const char *autograd_timer,
                     bool is_secure, kn__text *messages);

/* Of a process that another timed one started: files that have no %p in their names are the
 * other's, and the first of them is left_out. */
void kn__config_for_child(kn__config *config);

/* The grammar, as KNET_TIMER=help prints it. */
void kn__config_help(kn__text *text);

#endif
