/* Single ops on the card, timed by events: the median time of a call in a run of 20, host work
 * included where it limits. Products and convolutions in the math modes strict and tf32.
 * torch_baseline.py times the same work under the same names. */
#include "bench.h"

#include <cuda_runtime_api.h>
#include <knet/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 15, CALLS = 20, INPUTS = 3 };

static kn_rng *rng;

typedef kn_tensor *(*op_fn)(kn_tensor *const x[]);

#define OP(name, expr)                                                                             \
    static kn_tensor *name(kn_tensor *const x[]) {                                                 \
        (void)x;                                                                                   \
        return expr;                                                                               \
    }
OP(matmul, kn_matmul(x[0], x[1], NULL))
OP(linear, kn_linear(x[0], x[1], x[2]))
OP(conv, kn_conv(x[0], x[1], x[2], NULL))
OP(conv_same, kn_conv(x[0], x[1], x[2], &(kn_conv_options){.padding = {1, 1}}))
OP(relu, kn_relu(x[0]))
OP(sigm, kn_sigm(x[0]))
OP(tanh_, kn_tanh(x[0]))
OP(exp_, kn_exp(x[0]))
OP(affine, kn_affine(x[0], 2, 1))
OP(add, kn_add(x[0], x[1]))
OP(mul, kn_mul(x[0], x[1]))
OP(greater, kn_gt(x[0], x[1]))
OP(sum_all, kn_sum(x[0], KN_ALL, false))
OP(sum_rows, kn_sum(x[0], KN_SHAPE(1), false))
OP(sum_columns, kn_sum(x[0], KN_SHAPE(0), false))
OP(max_rows, kn_max(x[0], KN_SHAPE(1), false))
OP(argmax_rows, kn_argmax(x[0], KN_SHAPE(1), false))
OP(softmax, kn_softmax(x[0], 1))
OP(logsoftmax, kn_logsoftmax(x[0], 1))
OP(maxpool, kn_maxpool(x[0], KN_SHAPE(2, 2), NULL))
OP(avgpool, kn_avgpool(x[0], KN_SHAPE(2, 2), NULL))
OP(transpose, kn_transpose(x[0], KN_ALL))
OP(concat, kn_concat(x, 2, 1))
OP(slice_columns, kn_slice(x[0], KN_SHAPE(0, 1024), KN_SHAPE(4096, 3072)))
OP(dropout, kn_dropout(x[0], 0.5, rng))
OP(uniform, kn_uniform(KN_SHAPE(4096, 4096), 0, 1, rng))

#define SQUARE                                                                                     \
    { {4096, 4096}, 2 }
#define DIMS(...)                                                                                  \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }

typedef struct row {
    const char *name; /* as in torch_baseline.py */
    op_fn op;
    int n_in;
    kn_shape in[INPUTS];
} row;

static const row rows[] = {
    {"matmul_1024", matmul, 2, {DIMS(1024, 1024), DIMS(1024, 1024)}},
    {"matmul_4096", matmul, 2, {SQUARE, SQUARE}},
    {"linear_mlp", linear, 3, {DIMS(100, 784), DIMS(64, 784), DIMS(64)}},
    {"linear_4096", linear, 3, {SQUARE, SQUARE, DIMS(4096)}},
    {"conv_lenet1", conv, 3, {DIMS(128, 1, 28, 28), DIMS(20, 1, 5, 5), DIMS(20)}},
    {"conv_lenet2", conv, 3, {DIMS(128, 20, 12, 12), DIMS(50, 20, 5, 5), DIMS(50)}},
    {"conv_3x3_64", conv_same, 3, {DIMS(32, 64, 56, 56), DIMS(64, 64, 3, 3), DIMS(64)}},
    {"relu", relu, 1, {SQUARE}},
    {"sigm", sigm, 1, {SQUARE}},
    {"tanh", tanh_, 1, {SQUARE}},
    {"exp", exp_, 1, {SQUARE}},
    {"affine", affine, 1, {SQUARE}},
    {"add", add, 2, {SQUARE, SQUARE}},
    {"add_row", add, 2, {SQUARE, DIMS(4096)}},
    {"mul", mul, 2, {SQUARE, SQUARE}},
    {"gt", greater, 2, {SQUARE, SQUARE}},
    {"sum_all", sum_all, 1, {SQUARE}},
    {"sum_rows", sum_rows, 1, {SQUARE}},
    {"sum_columns", sum_columns, 1, {SQUARE}},
    {"max_rows", max_rows, 1, {SQUARE}},
    {"argmax_rows", argmax_rows, 1, {SQUARE}},
    {"softmax_1000", softmax, 1, {DIMS(4096, 1000)}},
    {"softmax_10", softmax, 1, {DIMS(65536, 10)}},
    {"logsoftmax_1000", logsoftmax, 1, {DIMS(4096, 1000)}},
    {"maxpool", maxpool, 1, {DIMS(128, 20, 24, 24)}},
    {"avgpool", avgpool, 1, {DIMS(128, 20, 24, 24)}},
    {"transpose", transpose, 1, {SQUARE}},
    {"concat", concat, 2, {SQUARE, SQUARE}},
    {"slice_columns", slice_columns, 1, {SQUARE}},
    {"dropout", dropout, 1, {SQUARE}},
    {"uniform", uniform, 0, {{{0}, 0}}},
    {"add_small", add, 2, {DIMS(64), DIMS(64)}},
};

static bool has_math_modes(const row *r) {
    return r->op == matmul || r->op == linear || r->op == conv || r->op == conv_same;
}

static kn_status cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK
                                : KN_FAIL(KN_ERR_CUDA, "%s: %s", what, cudaGetErrorString(error));
}
#define CUDA_TRY(fn, ...) KN_TRY(cuda_status(fn(__VA_ARGS__), #fn))

static kn_status calls(const row *r, kn_tensor *const x[], int n) {
    for (int i = 0; i < n; i++) {
        KN_FRAME();
        (void)r->op(x);
    }
    return kn_check();
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static kn_status measure(const row *r, const char *mode, cudaEvent_t begin, cudaEvent_t end) {
    kn_tensor *x[INPUTS] = {KN_NONE, KN_NONE, KN_NONE};
    cudaStream_t stream = kn_frame_stream();
    float ms[REPEATS];
    char metric[64];
    KN_FRAME();
    for (int i = 0; i < r->n_in; i++) x[i] = kn_uniform(r->in[i], 0.1, 1, rng);
    KN_TRY(calls(r, x, CALLS)); /* loads kernels, makes plans, fills caches */
    for (int i = 0; i < REPEATS; i++) {
        CUDA_TRY(cudaEventRecord, begin, stream);
        KN_TRY(calls(r, x, CALLS));
        CUDA_TRY(cudaEventRecord, end, stream);
        CUDA_TRY(cudaEventSynchronize, end);
        CUDA_TRY(cudaEventElapsedTime, &ms[i], begin, end);
    }
    qsort(ms, REPEATS, sizeof *ms, by_value);
    snprintf(metric, sizeof metric, "%s_us%s", r->name, mode);
    bench_emit("gpu_ops", metric, (double)ms[REPEATS / 2] * 1e3 / CALLS, "us", (double)NAN);
    return KN_OK;
}

static kn_status run(kn_device *gpu) {
    cudaEvent_t begin = NULL, end = NULL;
    KN_FRAME(.device = gpu);
    KN_TRY(kn_rng_create(&rng, 1));
    CUDA_TRY(cudaEventCreate, &begin);
    CUDA_TRY(cudaEventCreate, &end);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        KN_TRY(measure(&rows[i], "", begin, end));
        if (!has_math_modes(&rows[i])) continue;
        KN_FRAME(.math = KN_MATH_TF32);
        KN_TRY(measure(&rows[i], "_tf32", begin, end));
    }
    kn_rng_destroy(rng);
    CUDA_TRY(cudaEventDestroy, begin);
    CUDA_TRY(cudaEventDestroy, end);
    return KN_OK;
}

int main(int argc, char **argv) {
    kn_device *gpu = NULL;
    bench_init(argc, argv);
    if (kn_device_find(&gpu, "cuda:0") < 0) {
        fprintf(stderr, "bench_gpu_ops: skipped: %s\n", kn_last_error()->message);
        return 77;
    }
    kn_status status = run(gpu);
    if (status < 0) fprintf(stderr, "bench_gpu_ops: %s\n", kn_last_error()->message);
    return status < 0;
}
