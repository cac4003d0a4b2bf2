/* CUDA graphs of captured steps (capture.h). */
#include "cuda/base/module.h"

/* Ends the capture in any case: a stream that is left in it can't be destroyed. */
static kn_status record(cudaGraph_t *out, kn_stream stream, kn__enqueue_fn enqueue, void *ctx) {
    /* Relaxed: the pool may grow meanwhile, and libraries may load kernels. */
    KN_TRY(KN__CUDA(cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed));
    kn_status status = enqueue(ctx, stream);
    cudaError_t error = KN_PROF_FN(cudaStreamEndCapture, stream, out);
    return status < 0 ? status : kn__cuda_status(error, "cudaStreamEndCapture");
}

static kn_status make(cudaGraphExec_t *out, kn_stream stream, kn__enqueue_fn enqueue, void *ctx) {
    cudaGraph_t graph = NULL;
    kn_status status = record(&graph, stream, enqueue, ctx);
    if (status == KN_OK) status = KN__CUDA(cudaGraphInstantiate, out, graph, 0);
    if (graph) (void)KN_PROF_FN(cudaGraphDestroy, graph);
    return status;
}

kn_status kn__cuda_graph_make(void **out, kn_device *device, kn__enqueue_fn enqueue, void *ctx) {
    kn_stream stream = NULL; /* of its own: others may have work that must not be captured */
    cudaGraphExec_t exec = NULL;
    bool pushed = false;
    KN_TRY(kn_stream_create(&stream, device));
    kn_status status = kn__gpu_enter(&pushed, device);
    if (status == KN_OK) {
        status = make(&exec, stream, enqueue, ctx);
        kn__gpu_leave(pushed);
    }
    kn_stream_destroy(device, stream);
    if (status == KN_OK) *out = exec;
    return status;
}

kn_status kn__cuda_graph_launch(void *graph, kn_device *device, kn_stream stream) {
    bool pushed = false;
    KN_TRY(kn__gpu_enter(&pushed, device));
    kn_status status = KN__CUDA(cudaGraphLaunch, graph, stream);
    kn__gpu_leave(pushed);
    return status;
}

void kn__cuda_graph_destroy(void *graph, kn_device *device) {
    bool pushed = false;
    if (kn__gpu_enter(&pushed, device) < 0) return;
    (void)KN_PROF_FN(cudaGraphExecDestroy, graph);
    kn__gpu_leave(pushed);
}
