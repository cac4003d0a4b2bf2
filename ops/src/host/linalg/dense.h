/* Factorisations of one dense matrix, row-major, blocked: panels by the loops of linalg_loops.c,
 * the rest by matrix products. One of two modes, chosen by shape: a matrix alone, whose products
 * are cut into tiles for all threads; or one of many, on one thread, with work space of its own. */
#ifndef KN_DENSE_H
#define KN_DENSE_H

#include "host/base/loops.h"
#include "host/product/gemm.h"

typedef struct kn__dense {
    kn_op_call *call;
    const kn__loop_table *loops;
    kn_dtype dtype;
    size_t bytes; /* of an element */
    bool alone;   /* products may use all threads */
    void *gemm_space;
    kn_status status; /* of a product */
} kn__dense;

/* Bytes that gemm_space needs for matrices of up to n rows and columns, one of many. */
size_t kn__dense_gemm_bytes(kn_dtype dtype, int64_t n);

/* a [n,n] → L in place, the upper half as it was; `space`: kn__dense_cholesky_bytes(n). False: a is
 * not positive definite. */
size_t kn__dense_cholesky_bytes(kn_dtype dtype, int64_t n);
bool kn__dense_cholesky(kn__dense *d, void *a, int64_t n, void *space);
/* a [n,n] → L and U in place; row k was swapped with row pivot[k], in that order; `space`:
 * kn__dense_lu_bytes(n). */
size_t kn__dense_lu_bytes(kn_dtype dtype, int64_t n);
void kn__dense_lu(kn__dense *d, void *a, int64_t n, int32_t *pivot, void *space);
/* Swaps rows p and q of x, which has rows of `columns` elements. */
void kn__dense_swap(const kn__dense *d, void *x, int64_t columns, int64_t p, int64_t q);
/* op(T)·x = b in place; x [n,columns], rows ldx elements apart. */
typedef struct kn__triangle {
    const void *t;
    int64_t n, ld;
    bool trans, upper, unit; /* upper: of T as it is stored */
} kn__triangle;
void kn__dense_solve(kn__dense *d, const kn__triangle *t, void *x, int64_t columns, int64_t ldx);
/* a [m,n] → q [m,k], r [k,n], k = min(m, n); either may be NULL. space: kn__dense_qr_bytes. */
size_t kn__dense_qr_bytes(kn_dtype dtype, int64_t m, int64_t n);
void kn__dense_qr(kn__dense *d, void *q, void *r, const void *a, int64_t m, int64_t n, void *space);

#endif
