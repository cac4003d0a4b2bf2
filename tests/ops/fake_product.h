/* cublasLt's products, as their descriptions say: d = act(alpha·op(a)·op(b) + beta·c + bias), by
 * columns, and the sums of a factor over k that go with it. */
#ifndef KNET_FAKE_PRODUCT_H
#define KNET_FAKE_PRODUCT_H

#include <cublasLt.h>
#include <stdbool.h>

#include "device/cuda_api.h"

typedef struct fake_matrix {
    uint64_t rows, cols;
    int64_t leading, step; /* elements to the next column; to the next matrix */
    int32_t batch;
    bool transposed;
} fake_matrix;

typedef struct fake_product {
    cublasComputeType_t compute_type;
    cudaDataType_t matrix_type;
    cublasLtEpilogue_t epilogue;
    fake_matrix of_a, of_b, of_d;
    const float *a, *b, *c;
    float *d, *bias;
    float alpha, beta;
    bool computed;
} fake_product;

/* By the descriptions of the product and of its matrices a, b and d. */
void fake_product_describe(fake_product *p, cublasLtMatmulDesc_t product,
                           const cublasLtMatrixLayout_t matrix[3], const void *alpha,
                           const void *beta);
/* In the stream's turn, where products are to be computed. */
void fake_product_run(cu_stream stream, const fake_product *p);
void fake_products_compute(bool on);

#endif
