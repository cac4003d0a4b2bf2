/* A program for the timer's checks on a card: forward passes of a small model.
 *
 *     plain N      N steps, each in the scope "plain step"
 *     captured N   a step captured in the scope "captured step", launched N times in "launch"; when
 * that graph is gone, another, captured in "second step" and launched in "second launch" pause N
 * the same as plain, and then N steps in "paused step" while the timer is paused
 *
 * The first step, in "warm up", loads kernels and makes plans. Prints the time of a step (of the
 * paused ones with `pause`) as a JSON line. Exit code 77: no GPU. */
#include <cuda_runtime_api.h>
#include <knet/models.h>
#include <knet/ops.h>
#include <knet/pool_graph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct program {
    kn_params *params;
    kn_model *model;
    kn_tensor *x, *y;
} program;

static kn_status cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK
                                : KN_FAIL(KN_ERR_CUDA, "%s: %s", what, cudaGetErrorString(error));
}
#define CUDA_TRY(fn, ...) KN_TRY(cuda_status(fn(__VA_ARGS__), #fn))

static kn_status program_open(program *p) {
    int64_t labels[100];
    for (int i = 0; i < 100; i++) labels[i] = i % 10;
    KN_TRY(kn_params_create(&p->params, NULL));
    KN_TRY(kn_model_create(&p->model, "mlp", p->params));
    KN_TRY(kn_hold(&p->x, kn_full(KN_SHAPE(100, 784), 0.5)));
    return kn_hold(&p->y, kn_tensor_from(labels, KN_I64, KN_SHAPE(100)));
}

static void program_close(program *p) {
    kn_model_destroy(p->model);
    kn_params_destroy(p->params);
    kn_unhold(&p->x);
    kn_unhold(&p->y);
}

static kn_status step(const program *p, const char *label) {
    kn_scope scope = kn_scope_begin(label);
    {
        KN_FRAME();
        (void)kn_cross_entropy(kn_model_logits(p->model, p->x), p->y);
    }
    kn_scope_end(&scope);
    return kn_check();
}

static kn_status run_steps(const program *p, const char *label, int n, double *us) {
    struct timespec begin, end;
    KN_TRY(kn_stream_sync(kn_frame_device(), kn_frame_stream()));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < n; i++) KN_TRY(step(p, label));
    KN_TRY(kn_stream_sync(kn_frame_device(), kn_frame_stream()));
    clock_gettime(CLOCK_MONOTONIC, &end);
    *us =
        ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3) /
        n;
    return KN_OK;
}

static kn_status capture(cudaGraphExec_t *out, const program *p, kn_pool_graph *memory,
                         const char *label) {
    cudaStream_t stream = kn_frame_stream();
    cudaGraph_t graph = NULL;
    KN_TRY(kn_pool_graph_begin(memory, stream));
    CUDA_TRY(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
    kn_status status = step(p, label);
    CUDA_TRY(cudaStreamEndCapture, stream, &graph);
    KN_TRY(kn_pool_graph_end(memory, stream));
    KN_TRY(status);
    CUDA_TRY(cudaGraphInstantiate, out, graph, 0);
    CUDA_TRY(cudaGraphDestroy, graph);
    return KN_OK;
}

static kn_status run_captured(const program *p, const char *label, const char *launch, int n) {
    kn_pool_graph *memory = NULL;
    cudaGraphExec_t exec = NULL;
    KN_TRY(kn_pool_graph_create(&memory, kn_frame_pool()));
    KN_TRY(capture(&exec, p, memory, label));
    for (int i = 0; i < n; i++) {
        kn_scope scope = kn_scope_begin(launch);
        CUDA_TRY(cudaGraphLaunch, exec, kn_frame_stream());
        kn_scope_end(&scope);
    }
    KN_TRY(kn_stream_sync(kn_frame_device(), kn_frame_stream()));
    CUDA_TRY(cudaGraphExecDestroy, exec);
    kn_pool_graph_destroy(memory, kn_frame_stream());
    return KN_OK;
}

static kn_status run(const program *p, const char *mode, int n, double *us) {
    KN_TRY(step(p, "warm up"));
    KN_TRY(kn_stream_sync(kn_frame_device(), kn_frame_stream()));
    if (strcmp(mode, "captured") == 0) {
        KN_TRY(run_captured(p, "captured step", "launch", n));
        return run_captured(p, "second step", "second launch", n);
    }
    KN_TRY(run_steps(p, "plain step", n, us));
    if (strcmp(mode, "pause") != 0) return KN_OK;
    kn_prof_pause();
    kn_status status = run_steps(p, "paused step", n, us);
    kn_prof_resume();
    return status;
}

int main(int argc, char **argv) {
    kn_device *gpu = NULL;
    kn_stream stream = NULL;
    program p = {0};
    double us = 0;
    int n = argc == 3 ? atoi(argv[2]) : 0;
    if (n < 1) return 2;
    if (kn_device_find(&gpu, "cuda:0") < 0) {
        fprintf(stderr, "gpu_timer_program: skipped: %s\n", kn_last_error()->message);
        return 77;
    }
    kn_status status = kn_stream_create(&stream, gpu);
    if (status == KN_OK) {
        KN_FRAME(.device = gpu, .stream = stream);
        status = program_open(&p);
        if (status == KN_OK) status = run(&p, argv[1], n, &us);
        program_close(&p);
    }
    kn_stream_destroy(gpu, stream);
    if (status < 0) fprintf(stderr, "gpu_timer_program: %s\n", kn_last_error()->message);
    if (status == KN_OK)
        printf("{\"metric\":\"%s step\",\"value\":%.3f,\"unit\":\"us\"}\n", argv[1], us);
    return status < 0;
}
