/* Memory of graphs on a card: whose bytes a launch may touch, what comes back when a graph is gone,
 * and a whole training step that is captured once and launched. */
#include "gate.h"
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <knet/capture.h>
#include <knet/models.h>
#include <knet/optim.h>
#include <knet/pool_graph.h>
#include <knet/tape.h>

static kn_device *gpu;

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static kn_pool_stats stats_of(const kn_pool *pool) {
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats;
}

static kn_stream stream_make(void) {
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, gpu));
    return stream;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    assert_non_null(graph);
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    return exec;
}

/* source → a → b → target, with blocks of the graph's own. */
static cudaGraphExec_t capture_copies(kn_pool_graph *memory, kn_pool *pool, kn_stream stream,
                                      void *target, void *source, size_t size_bytes) {
    void *a = NULL, *b = NULL;
    cudaGraph_t graph = NULL;
    assert_ok(kn_pool_graph_begin(memory, stream));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_ok(kn_alloc(&a, pool, size_bytes, stream));
    assert_ok(kn_device_copy(gpu, a, gpu, source, size_bytes, stream));
    assert_ok(kn_alloc(&b, pool, size_bytes, stream));
    assert_ok(kn_device_copy(gpu, b, gpu, a, size_bytes, stream));
    assert_ok(kn_free(pool, a));
    assert_ok(kn_device_copy(gpu, target, gpu, b, size_bytes, stream));
    assert_ok(kn_free(pool, b));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_ok(kn_pool_graph_end(memory, stream));
    return instantiate(graph);
}

/* Two graphs with memory of their own run at once on two streams, while a third stream allocates,
 * writes and frees: no byte of any is lost. */
static void graphs_that_run_at_once_keep_apart(void **state) {
    (void)state;
    enum { GRAPHS = 2, ROUNDS = 20, OTHERS = 8 };
    const size_t n = 4 * MIB;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, gpu, NULL));
    kn_stream streams[GRAPHS], third = stream_make();
    kn_pool_graph *memory[GRAPHS];
    cudaGraphExec_t exec[GRAPHS];
    void *source[GRAPHS], *target[GRAPHS], *others[OTHERS];
    for (int g = 0; g < GRAPHS; g++) {
        streams[g] = stream_make();
        assert_ok(kn_alloc(&source[g], pool, n, streams[g]));
        assert_ok(kn_alloc(&target[g], pool, n, streams[g]));
        assert_ok(kn_pool_graph_create(&memory[g], pool));
        exec[g] = capture_copies(memory[g], pool, streams[g], target[g], source[g], n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int g = 0; g < GRAPHS; g++) {
            assert_ok(kn_device_fill(gpu, source[g], 2 * round + g, n, streams[g]));
            assert_cuda(cudaGraphLaunch(exec[g], streams[g]));
        }
        for (int i = 0; i < OTHERS; i++) {
            assert_ok(kn_alloc(&others[i], pool, n, third));
            assert_ok(kn_device_fill(gpu, others[i], 200 + i, n, third));
        }
        for (int g = 0; g < GRAPHS; g++) {
            gpu_assert_bytes(gpu, target[g], n, 2 * round + g, streams[g]);
        }
        for (int i = 0; i < OTHERS; i++) {
            gpu_assert_bytes(gpu, others[i], n, 200 + i, third);
            assert_ok(kn_free(pool, others[i]));
        }
    }
    for (int g = 0; g < GRAPHS; g++) {
        assert_cuda(cudaGraphExecDestroy(exec[g]));
        kn_pool_graph_destroy(memory[g], streams[g]);
        assert_ok(kn_free(pool, source[g]));
        assert_ok(kn_free(pool, target[g]));
        kn_stream_destroy(gpu, streams[g]);
    }
    kn_stream_destroy(gpu, third);
    assert_ok(kn_pool_check(pool));
    assert_int_equal(stats_of(pool).live_bytes, 0);
    kn_pool_destroy(pool);
}

/* A graph that is gone leaves its memory to others, after its last launch: the pool doesn't grow.
 */
static void memory_of_a_destroyed_graph_serves_others(void **state) {
    (void)state;
    const size_t n = 64 * MIB;
    kn_pool *pool = NULL;
    void *source = NULL, *target = NULL, *x[2] = {NULL};
    kn_pool_graph *memory = NULL;
    kn_stream stream = stream_make();
    assert_ok(kn_pool_create(&pool, gpu, NULL));
    assert_ok(kn_alloc(&source, pool, n, stream));
    assert_ok(kn_alloc(&target, pool, n, stream));
    assert_ok(kn_pool_graph_create(&memory, pool));
    cudaGraphExec_t exec = capture_copies(memory, pool, stream, target, source, n);
    assert_ok(kn_device_fill(gpu, source, 7, n, stream));
    assert_ok(kn_stream_sync(gpu, stream));
    gate_close(stream);
    assert_cuda(cudaGraphLaunch(exec, stream));
    kn_pool_graph_destroy(memory, stream);
    uint64_t reserved = stats_of(pool).reserved_bytes;
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_alloc(&x[i], pool, n, stream));
        assert_ok(kn_device_fill(gpu, x[i], 9 + i, n, stream));
    }
    assert_true(gate_open());
    assert_int_equal(stats_of(pool).reserved_bytes, reserved);
    gpu_assert_bytes(gpu, target, n, 7, stream);
    for (int i = 0; i < 2; i++) {
        gpu_assert_bytes(gpu, x[i], n, 9 + i, stream);
        assert_ok(kn_free(pool, x[i]));
    }
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_ok(kn_free(pool, source));
    assert_ok(kn_free(pool, target));
    kn_stream_destroy(gpu, stream);
    kn_pool_destroy(pool);
}

/* --- a training step ------------------------------------------------------------------------- */

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_tensor *x, *y, *loss;
} training;

static kn_status training_open(training *t) {
    int64_t labels[32];
    kn_rng *rng = NULL;
    for (int i = 0; i < 32; i++) labels[i] = i % 10;
    KN_TRY(kn_rng_create(&rng, 2));
    kn_status status = kn_hold(&t->x, kn_uniform(KN_SHAPE(32, 1, 28, 28), 0, 1, rng));
    kn_rng_destroy(rng);
    KN_TRY(status);
    KN_TRY(kn_params_create(&t->params, NULL));
    KN_TRY(kn_model_create(&t->model, "lenet", t->params));
    KN_TRY(kn_adam_create(&t->optim, t->params, 1e-3, NULL));
    return kn_hold(&t->y, kn_tensor_from(labels, KN_I64, KN_SHAPE(32)));
}

static void training_close(training *t) {
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
    kn_unhold(&t->x);
    kn_unhold(&t->y);
    kn_unhold(&t->loss);
}

static kn_status training_step(training *t) {
    KN_TAPE();
    KN_TRY(kn_hold(&t->loss, kn_cross_entropy(kn_model_logits(t->model, t->x), t->y)));
    KN_TRY(kn_backward(t->loss));
    return kn_optim_step(t->optim);
}

enum { WARM = 2, STEPS = 10 };

static void losses_step_by_step(double out[STEPS]) {
    training t = {0};
    KN_FRAME(.device = gpu);
    assert_ok(training_open(&t));
    for (int i = 0; i < WARM + STEPS; i++) {
        assert_ok(training_step(&t));
        if (i >= WARM) assert_ok(kn_item(&out[i - WARM], t.loss));
    }
    training_close(&t);
}

/* The captured step reads and writes weights, moments, the step count and the loss where they are,
 * so that launches train as steps do. */
static void launches_of_a_captured_training_step_train(void **state) {
    (void)state;
    double want[STEPS], got = 0;
    training t = {0};
    kn_pool_graph *memory = NULL;
    cudaGraph_t graph = NULL;
    losses_step_by_step(want);
    kn_stream stream = stream_make();
    {
        KN_FRAME(.device = gpu, .stream = stream);
        assert_ok(training_open(&t));
        for (int i = 0; i < WARM; i++) assert_ok(training_step(&t));
        assert_ok(kn_stream_sync(gpu, stream));
        assert_ok(kn_pool_graph_create(&memory, kn_frame_pool()));
        assert_ok(kn_pool_graph_begin(memory, stream));
        assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        kn_status status = training_step(&t);
        assert_cuda(cudaStreamEndCapture(stream, &graph));
        assert_ok(kn_pool_graph_end(memory, stream));
        assert_ok(status);
        cudaGraphExec_t exec = instantiate(graph);
        for (int i = 0; i < STEPS; i++) {
            assert_cuda(cudaGraphLaunch(exec, stream));
            assert_ok(kn_item(&got, t.loss));
            assert_close(got, want[i], 1e-5, 0);
        }
        assert_cuda(cudaGraphExecDestroy(exec));
        training_close(&t);
        kn_pool_graph_destroy(memory, stream);
    }
    kn_stream_destroy(gpu, stream);
}

/* --- kn_capture ------------------------------------------------------------------------------ */

enum { CAPTURED = 12 };

typedef struct dropout_net {
    kn_params *params;
    kn_optim *adam;
    kn_rng *rng;
    kn_tensor *c, *w, *b;
} dropout_net;

static void dropout_net_open(dropout_net *n) {
    assert_ok(kn_params_create(&n->params, &(kn_params_options){.seed = 3}));
    assert_ok(kn_rng_create(&n->rng, 5));
    n->c = kn_param(n->params, KN_SHAPE(4, 1, 3, 3), kn_init_xavier(), "c");
    n->w = kn_param(n->params, KN_SHAPE(10, 4 * 26 * 26), kn_init_xavier(), "w");
    n->b = kn_param(n->params, KN_SHAPE(10), (kn_init){.kind = KN_INIT_ZEROS}, "b");
    assert_ok(kn_adam_create(&n->adam, n->params, 1e-3, NULL));
}

static void dropout_net_close(dropout_net *n) {
    kn_optim_destroy(n->adam);
    kn_rng_destroy(n->rng);
    kn_params_destroy(n->params);
}

static kn_status dropout_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    dropout_net *n = ctx;
    KN_TAPE();
    kn_tensor *h = kn_relu(kn_conv(in[0], n->c, KN_NONE, NULL));
    h = kn_dropout(kn_reshape(h, KN_SHAPE(-1, 4 * 26 * 26)), 0.3, n->rng);
    kn_tensor *loss = kn_cross_entropy(kn_linear(h, n->w, n->b), in[1]);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(n->adam));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Batch number i, of 16 or 24 pictures. */
static void pictures_make(kn_tensor *in[2], int i) {
    int64_t labels[24], n = i % 3 == 2 ? 24 : 16;
    kn_rng *rng = NULL;
    for (int k = 0; k < 24; k++) labels[k] = (k + i) % 10;
    assert_ok(kn_rng_create(&rng, (uint64_t)i + 1));
    in[0] = kn_uniform(KN_SHAPE(n, 1, 28, 28), 0, 1, rng);
    in[1] = kn_tensor_from(labels, KN_I64, KN_SHAPE(n));
    kn_rng_destroy(rng);
}

/* other: a stream that every fourth step runs on; NULL: none. */
static void train_dropout(double loss[CAPTURED], bool captured, kn_stream other) {
    dropout_net n;
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    dropout_net_open(&n);
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < CAPTURED; i++) {
        KN_FRAME(.device = gpu, .stream = other && i % 4 == 3 ? other : NULL);
        kn_tensor *in[2], *l = NULL;
        pictures_make(in, i);
        assert_ok(kn_optim_lr(n.adam, 1e-3 / (1 + i)));
        if (captured)
            assert_ok(kn_capture_run(&l, 1, capture, in, 2, dropout_step, &n));
        else
            assert_ok(dropout_step(&l, in, &n));
        assert_ok(kn_item(&loss[i], l));
    }
    kn_capture_stats stats;
    kn_capture_stats_read(&stats, sizeof stats, capture);
    if (captured) assert_int_equal(stats.n_plans, 2);
    kn_capture_destroy(capture);
    dropout_net_close(&n);
}

static void captured_steps_train_as_plain_ones(void **state) {
    (void)state;
    double plain[CAPTURED], captured[CAPTURED];
    train_dropout(plain, false, NULL);
    train_dropout(captured, true, NULL);
    assert_memory_equal(plain, captured, sizeof plain);
}

static void captures_follow_streams_and_shapes(void **state) {
    (void)state;
    double plain[CAPTURED], captured[CAPTURED];
    kn_stream stream = stream_make();
    train_dropout(plain, false, NULL);
    train_dropout(captured, true, stream);
    assert_memory_equal(plain, captured, sizeof plain);
    kn_stream_destroy(gpu, stream);
}

int main(void) {
    gpu = gpu_get();
    if (!gate_init()) return 1;
    return RUN_TESTS(
        TEST(graphs_that_run_at_once_keep_apart), TEST(memory_of_a_destroyed_graph_serves_others),
        TEST(launches_of_a_captured_training_step_train), TEST(captured_steps_train_as_plain_ones),
        TEST(captures_follow_streams_and_shapes));
}
