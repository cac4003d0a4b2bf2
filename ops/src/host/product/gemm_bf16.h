/* One product of bf16 matrices by oneDNN's matmul: sums in f32, rounded once. */
#ifndef KN_GEMM_BF16_H
#define KN_GEMM_BF16_H

#include "host/product/gemm.h"
#include "plan_cache.h"

/* Whether bf16 is faster in bf16 than as f32. */
bool kn__gemm_bf16_pays(int64_t m, int64_t n, int64_t k);
/* As kn__gemm_bytes and kn__gemm_run. */
size_t kn__gemm_bf16_bytes(const kn__gemm *gemm);
int kn__gemm_bf16_run(const kn__gemm *gemm, void *workspace);
extern kn__plan_cache kn__gemm_bf16_cache __attribute__((visibility("hidden")));

#endif
