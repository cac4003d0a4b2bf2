#include "slow_op.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdlib.h>

#include "bench.h"

enum { BATCH = 100 }; /* the gradient of a weight sums over it */

typedef dnnl_status_t (*sgemm_fn)(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float,
                                  const float *, dnnl_dim_t, const float *, dnnl_dim_t, float,
                                  float *, dnnl_dim_t);

static double slower_by;
static uint64_t fastest = UINT64_MAX;

void slow_op_by(double part) { slower_by = part; }

static void wait_until(uint64_t ns) {
    while (bench_now_ns() < ns) continue;
}

__attribute__((visibility("default"))) /* for the library of ops to find */
dnnl_status_t
dnnl_sgemm(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
           const float *a, dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c,
           dnnl_dim_t ldc) {
    static sgemm_fn library;
    if (!library) *(void **)&library = dlsym(RTLD_NEXT, "dnnl_sgemm");
    if (!library) abort();
    uint64_t start = bench_now_ns();
    dnnl_status_t status = library(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    uint64_t end = bench_now_ns(), spent = end - start;
    if (k != BATCH || (m < BATCH && n < BATCH) || (m > n ? n : m) < 64) return status;
    if (spent < fastest) fastest = spent;
    wait_until(end + (uint64_t)(slower_by * (double)fastest));
    return status;
}
