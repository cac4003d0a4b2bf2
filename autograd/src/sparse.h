/* Row-sparse gradients inside autograd: the rows that backward reached, of a parameter whose slice
 * of the arena is empty. */
#ifndef KN_SPARSE_SRC_H
#define KN_SPARSE_SRC_H

#include <knet/op.h>

typedef struct kn__param kn__param;
typedef struct kn__pass kn__pass;

typedef struct kn__rows {
    kn_tensor *rows;   /* I64 [n], ascending; owned; NULL: no rows */
    kn_tensor *values; /* [n,…]: the gradient of each; owned */
    kn_tensor *first;  /* [n]: 1 at one entry of each row, else 0; KN_NONE: rows differ; owned */
} kn__rows;

void kn__rows_release(kn__rows *r);
/* values, like r's, with zeros where a row repeats: for sums over all rows. NULL: pending error. */
kn_tensor *kn__rows_once(const kn__rows *r, kn_tensor *values);
/* Adds up the values of equal rows, of which there is one at least. may_read: the host may read
 * their data. */
kn_status kn__rows_sum(kn__rows *out, kn_tensor *rows, kn_tensor *values, bool may_read);

/* Adds a gradient of the rows at `index`, or of all rows. */
kn_status kn__param_rows(kn__param *p, kn__pass *pass, kn_tensor *index, kn_tensor *g);
kn_status kn__param_all_rows(kn__param *p, kn__pass *pass, kn_tensor *dx);
/* Drops rows of an earlier cycle. */
kn_status kn__param_rows_settle(kn__param *p);

/* A step of the rows of one parameter, before it is written. */
typedef struct kn__rows_update {
    kn_tensor *w, *m, *v; /* m, v: its own state, KN_NONE where unused */
    kn_tensor *rows, *w_part, *m_part, *v_part;
} kn__rows_update;
/* Computes the new rows of out->w, out->m and out->v, in the frame. hyper: as before the step of
 * the other parameters; it is not written. The rows are settled. */
kn_status kn__rows_step(kn__rows_update *out, kn_op op, const kn_attr_optim *attr,
                        const kn_optim_part *scales, kn_tensor *hyper);
/* Writes them. */
kn_status kn__rows_write(const kn__rows_update *u);

#endif
