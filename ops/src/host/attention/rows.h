/* Rows of a block of attention's scores, for their inner loops. */
#ifndef KN_ATTENTION_ROWS_H
#define KN_ATTENTION_ROWS_H

#include <stdint.h>

typedef struct kn__attention_rows {
    int64_t rows, n, stride; /* of scores and dp, in elements */
    void *scores, *dp;
    double scale;
    const void *mask;              /* NULL: none */
    int64_t mask_row, mask_column; /* strides; 0: broadcast */
    int64_t seen, step;        /* row i has seen + i·step elements, at most n; none: 0 or less */
    void *most, *sum, *factor; /* [rows] */
    const void *stats, *delta; /* [rows,2], [rows] */
    void *dmask;               /* NULL: not wanted */
    int64_t dmask_row;         /* stride */
} kn__attention_rows;

#endif
