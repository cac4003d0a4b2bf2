/* Matrix products for host kernels: c = op(a)·op(b) or c += op(a)·op(b), row-major. */
#ifndef KN_GEMM_H
#define KN_GEMM_H

#include "kernel.h"

typedef struct kn__gemm {
    kn_dtype dtype;
    bool trans_a, trans_b, accumulate;
    /* of kn__gemm_parallel, not together with accumulate: c becomes act(c + residual); residual
     * like c, or NULL */
    kn_act act;
    const void *residual;
    int64_t m, n, k;
    const void *a, *b; /* as stored: rows lda, ldb elements apart */
    void *c;
    int64_t lda, ldb, ldc;
} kn__gemm;

/* One product on the calling thread, without the library's own threads when the caller is in
 * kn__library_for. `workspace` has kn__gemm_bytes bytes for this shape or a larger one. 0: done;
 * else the library's status, to be given to kn__gemm_fail on the thread that ran the op. */
size_t kn__gemm_bytes(const kn__gemm *gemm);
int kn__gemm_run(const kn__gemm *gemm, void *workspace);
kn_status kn__gemm_fail(int library_status);
/* The library's function that kn__gemm_run uses for this shape: the scope's label. */
const char *kn__gemm_label(const kn__gemm *gemm);

/* kn__parallel_for for bodies that call libraries with threads of their own: those stay off. */
void kn__library_for(int threads, int64_t n, kn__body_fn body, void *ctx);

/* The same product split over threads by its shape; each row of c starts from bias [n] unless that
 * is NULL (not together with accumulate). */
kn_status kn__gemm_parallel(kn_op_call *call, const kn__gemm *gemm, const void *bias);

#endif
