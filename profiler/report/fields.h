/* The whole numbers of a report and their keys in JSON, once for the writer and the reader. */
#ifndef KN_REPORT_FIELDS_H
#define KN_REPORT_FIELDS_H

#include <stddef.h>

#include "report.h"

typedef struct kn__field {
    const char *key; /* NULL: the end of the list */
    size_t offset;   /* in the struct that the list is of */
    bool is_signed;  /* int64_t, else uint64_t */
} kn__field;

/* Lists, in the order of the JSON. */
extern const kn__field kn__row_calls[], kn__row_work[], kn__row_amounts[], kn__row_holdings[],
    kn__row_gpu[], kn__row_runs[];
extern const kn__field kn__pool_fields[], kn__pool_device[], kn__balance_fields[],
    kn__gpu_device_fields[], kn__gpu_stream_fields[], kn__steps_fields[], kn__run_fields[],
    kn__totals_fields[];

/* Adds to each number of the list in `to` the one in `from`: unsigned ones up to UINT64_MAX, signed
 * ones modulo 2^64. */
void kn__fields_add(void *to, const void *from, const kn__field *fields);
/* Subtracts, down to zero. Unsigned numbers alone. */
void kn__fields_subtract(void *from, const void *what, const kn__field *fields);

#endif
