#include "fake_graph.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>

struct CUgraph_st {
    fake_work *work;
    int n, n_execs;
    bool destroyed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static struct {
    const void *stream; /* NULL: none is captured */
    cudaGraph_t graph;
} captured;
static int n_graphs;

#define BEGIN                                                                                      \
    do {                                                                                           \
        int error_ = fake_gpu_begin(__func__);                                                     \
        if (error_) return (cudaError_t)error_;                                                    \
    } while (0)

bool fake_graph_takes(const void *stream, const fake_work *work) {
    pthread_mutex_lock(&lock);
    bool takes = captured.stream && captured.stream == stream;
    if (takes) {
        cudaGraph_t g = captured.graph;
        g->work = realloc(g->work, (size_t)(g->n + 1) * sizeof *g->work);
        if (!g->work) abort();
        g->work[g->n++] = *work;
    }
    pthread_mutex_unlock(&lock);
    return takes;
}

static void end_unused(cudaGraph_t graph) {
    if (!graph->destroyed || graph->n_execs) return;
    free(graph->work);
    free(graph);
    n_graphs--;
}

int fake_gpu_graphs(void) {
    pthread_mutex_lock(&lock);
    int n = n_graphs;
    pthread_mutex_unlock(&lock);
    return n;
}

FAKE_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    BEGIN;
    if (!stream || captured.stream) return cudaErrorStreamCaptureUnsupported;
    cudaGraph_t graph = calloc(1, sizeof *graph);
    if (!graph) return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    n_graphs++;
    captured.stream = stream;
    captured.graph = graph;
    pthread_mutex_unlock(&lock);
    fake_cuda_capture((cu_stream)(void *)stream, true);
    return cudaSuccess;
}

/* Ends the capture also where it fails, as the real one does. */
FAKE_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    int error = fake_gpu_begin(__func__);
    if (captured.stream != stream) return cudaErrorIllegalState;
    fake_cuda_capture((cu_stream)(void *)stream, false);
    pthread_mutex_lock(&lock);
    cudaGraph_t graph = captured.graph;
    captured.stream = NULL;
    if (error) {
        graph->destroyed = true;
        end_unused(graph);
        graph = NULL;
    }
    pthread_mutex_unlock(&lock);
    *out = graph;
    return (cudaError_t)error;
}

FAKE_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    BEGIN;
    pthread_mutex_lock(&lock);
    graph->n_execs++;
    pthread_mutex_unlock(&lock);
    *out = (cudaGraphExec_t)(void *)graph;
    return cudaSuccess;
}

FAKE_API cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    BEGIN;
    pthread_mutex_lock(&lock);
    graph->destroyed = true;
    end_unused(graph);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

FAKE_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    BEGIN;
    cudaGraph_t graph = (cudaGraph_t)(void *)exec;
    pthread_mutex_lock(&lock);
    graph->n_execs--;
    end_unused(graph);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

FAKE_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    BEGIN;
    const struct CUgraph_st *graph = (cudaGraph_t)(void *)exec;
    for (int i = 0; i < graph->n; i++) fake_gpu_work(stream, &graph->work[i]);
    fake_gpu_graph_launched();
    return cudaSuccess;
}
