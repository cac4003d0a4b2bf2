/* What norm_loops.c needs to know of a normalization of rows. */
#ifndef KN_NORM_H
#define KN_NORM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kn__norm_rows { /* pointers are to the real type of the loops */
    void *y;                   /* forward: the result; back: dx, or NULL */
    const void *x, *g;         /* g: back alone */
    const void *w, *b;         /* [n] or NULL */
    void *mean, *rstd;         /* [rows]; forward: NULL if not wanted. mean is NULL in rmsnorm */
    int64_t n;
    double eps;
    bool centred; /* the mean is subtracted */
} kn__norm_rows;

#endif
