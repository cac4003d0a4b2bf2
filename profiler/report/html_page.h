/* The data of an HTML page while it is written. */
#ifndef KN_REPORT_HTML_PAGE_H
#define KN_REPORT_HTML_PAGE_H

#include "hash.h"
#include "name.h"
#include "text.h"

typedef struct kn__page {
    kn__text *text;
    kn__hash labels; /* html.c's */
    kn__text names;  /* the list of them, as JSON */
    uint64_t n_labels;
    kn__names kernels;
    bool first; /* the next row is the first */
} kn__page;

/* The number of a label in the page's list, which it is added to at first sight. The label is
 * borrowed. */
uint64_t kn__page_label(kn__page *p, const char *label);

/* The same for the name of a kernel, as people read it. */
uint64_t kn__page_kernel(kn__page *p, const char *label);

/* Adds a number: printf takes most of the time of a large report. */
void kn__page_number(kn__text *text, uint64_t n);

/* Adds a string of JSON. It has no "<", which may end a script. */
void kn__page_string(kn__text *text, const char *string);

#endif
