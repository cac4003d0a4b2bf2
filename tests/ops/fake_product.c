#include "fake_product.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "fake_cuda.h"

static atomic_bool computes;

void fake_products_compute(bool on) { atomic_store(&computes, on); }

#define PRODUCT_GET(name, out)                                                                     \
    cublasLtMatmulDescGetAttribute(product, CUBLASLT_MATMUL_DESC_##name, &(out), sizeof(out), &n)
#define LAYOUT_GET(name, out)                                                                      \
    cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_##name, &(out), sizeof(out), &n)

static fake_matrix matrix_of(cublasLtMatrixLayout_t layout, cublasOperation_t op) {
    fake_matrix m = {.transposed = op == CUBLAS_OP_T};
    size_t n;
    LAYOUT_GET(ROWS, m.rows), LAYOUT_GET(COLS, m.cols), LAYOUT_GET(LD, m.leading);
    LAYOUT_GET(BATCH_COUNT, m.batch), LAYOUT_GET(STRIDED_BATCH_OFFSET, m.step);
    return m;
}

void fake_product_describe(fake_product *p, cublasLtMatmulDesc_t product,
                           const cublasLtMatrixLayout_t matrix[3], const void *alpha,
                           const void *beta) {
    cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
    cublasLtMatrixLayout_t layout = matrix[0];
    size_t n;
    PRODUCT_GET(COMPUTE_TYPE, p->compute_type), PRODUCT_GET(EPILOGUE, p->epilogue);
    PRODUCT_GET(TRANSA, op_a), PRODUCT_GET(TRANSB, op_b), PRODUCT_GET(BIAS_POINTER, p->bias);
    LAYOUT_GET(TYPE, p->matrix_type);
    p->of_a = matrix_of(matrix[0], op_a), p->of_b = matrix_of(matrix[1], op_b);
    p->of_d = matrix_of(matrix[2], CUBLAS_OP_N);
    p->computed = p->matrix_type == CUDA_R_32F && atomic_load(&computes);
    if (p->computed) p->alpha = *(const float *)alpha, p->beta = *(const float *)beta;
}

/* Element (i, j) of op(m). */
static size_t place(const fake_matrix *m, int32_t at, uint64_t i, uint64_t j) {
    uint64_t row = m->transposed ? j : i, col = m->transposed ? i : j;
    if (row >= m->rows || col >= m->cols) abort(); /* the descriptions don't fit */
    return (size_t)(at * m->step) + (size_t)col * (size_t)m->leading + (size_t)row;
}

static uint64_t summed_over(const fake_product *p) {
    return p->of_a.transposed ? p->of_a.rows : p->of_a.cols;
}

static float element(const fake_product *p, int32_t at, uint64_t i, uint64_t j) {
    double sum = 0;
    for (uint64_t k = 0; k < summed_over(p); k++)
        sum += (double)p->a[place(&p->of_a, at, i, k)] * (double)p->b[place(&p->of_b, at, k, j)];
    sum *= (double)p->alpha;
    if (p->beta != 0) sum += (double)p->beta * (double)p->c[place(&p->of_d, at, i, j)];
    bool adds = p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    bool acts = p->epilogue == CUBLASLT_EPILOGUE_RELU || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    if (adds) sum += (double)p->bias[i]; /* one a row of d */
    return (float)(acts && sum < 0 ? 0 : sum);
}

/* The sums of b over k: one a column of d. */
static void sum_b(const fake_product *p) {
    for (uint64_t j = 0; j < p->of_d.cols; j++) {
        double sum = 0;
        for (uint64_t k = 0; k < summed_over(p); k++) sum += (double)p->b[place(&p->of_b, 0, k, j)];
        p->bias[j] = (float)sum;
    }
}

static void compute(void *data) {
    const fake_product *p = data;
    for (int32_t at = 0; at < p->of_d.batch; at++) {
        for (uint64_t j = 0; j < p->of_d.cols; j++) {
            for (uint64_t i = 0; i < p->of_d.rows; i++)
                p->d[place(&p->of_d, at, i, j)] = element(p, at, i, j);
        }
    }
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_b(p);
}

void fake_product_run(cu_stream stream, const fake_product *p) {
    if (!p->computed) return;
    fake_product *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = *p;
    fake_cuda_run(stream, compute, copy);
}
