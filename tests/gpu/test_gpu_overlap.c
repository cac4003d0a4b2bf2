/* Ops on one stream beside another stream that is held up: whole training steps must not wait for
 * it, neither on the device nor on the host. */
#include "gate.h"
#include "gpu.h"

#include <knet/models.h>
#include <knet/optim.h>
#include <knet/tape.h>

static kn_device *gpu;

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_tensor *x, *y;
} training;

static kn_status training_open(training *t) {
    int64_t labels[32];
    for (int i = 0; i < 32; i++) labels[i] = i % 10;
    KN_TRY(kn_params_create(&t->params, NULL));
    KN_TRY(kn_model_create(&t->model, "lenet", t->params));
    KN_TRY(kn_adam_create(&t->optim, t->params, 1e-3, NULL));
    KN_TRY(kn_hold(&t->x, kn_full(KN_SHAPE(32, 1, 28, 28), 0.5)));
    return kn_hold(&t->y, kn_tensor_from(labels, KN_I64, KN_SHAPE(32)));
}

static void training_close(training *t) {
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
    kn_unhold(&t->x);
    kn_unhold(&t->y);
}

static kn_status training_step(training *t, double *loss) {
    KN_TAPE();
    kn_tensor *l = kn_cross_entropy(kn_model_logits(t->model, t->x), t->y);
    KN_TRY(kn_backward(l));
    KN_TRY(kn_optim_step(t->optim));
    return kn_item(loss, l); /* waits for this stream alone */
}

/* Steps on `stream`, the first ones before the gate closes: they load kernels and make plans, for
 * which the driver may wait for the whole device. */
static kn_status train(kn_stream stream, kn_stream held) {
    training t = {0};
    double first = 0, loss = 0;
    KN_FRAME(.device = gpu, .stream = stream);
    kn_status status = training_open(&t);
    for (int i = 0; i < 3 && status == KN_OK; i++) status = training_step(&t, &first);
    if (held) gate_close(held);
    for (int i = 0; i < 10 && status == KN_OK; i++) status = training_step(&t, &loss);
    if (status == KN_OK && !(loss < first)) {
        status = KN_FAIL(KN_ERR_INTERNAL, "the loss went from %g to %g", first, loss);
    }
    training_close(&t);
    return status;
}

static void training_steps_never_wait_for_a_held_stream(void **state) {
    (void)state;
    kn_stream mine = NULL, held = NULL;
    assert_ok(kn_stream_create(&mine, gpu));
    assert_ok(kn_stream_create(&held, gpu));
    kn_status status = train(mine, held);
    assert_true(gate_open());
    assert_ok(status);
    assert_ok(kn_stream_sync(gpu, held));
    kn_stream_destroy(gpu, mine);
    kn_stream_destroy(gpu, held);
}

static void *train_in_thread(void *stream) { return train(stream, NULL) == KN_OK ? NULL : stream; }

/* The other thread begins when this one's stream is held already, so it loads nothing new. */
static void thread_trains_while_the_stream_of_another_is_held(void **state) {
    (void)state;
    pthread_t thread;
    void *failed = NULL;
    kn_stream mine = NULL, theirs = NULL;
    assert_ok(kn_stream_create(&mine, gpu));
    assert_ok(kn_stream_create(&theirs, gpu));
    assert_ok(train(theirs, NULL));
    gate_close(mine);
    assert_int_equal(pthread_create(&thread, NULL, train_in_thread, theirs), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    bool held = gate_open();
    assert_null(failed);
    print_message("another thread's set-up and steps %s\n",
                  held ? "wait for no stream" : "waited for the held stream");
    assert_ok(kn_stream_sync(gpu, mine));
    kn_stream_destroy(gpu, mine);
    kn_stream_destroy(gpu, theirs);
}

/* A batch is copied from pinned memory while the last step is still held up, and the held step
 * reads its own batch. */
static void copies_to_the_device_overlap_with_a_held_step(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    kn_stream compute = NULL, load = NULL;
    assert_ok(kn_stream_create(&compute, gpu));
    assert_ok(kn_stream_create(&load, gpu));
    kn_pool *pool = kn_device_pool(gpu), *pinned = kn_device_pinned_pool(gpu);
    void *host = NULL, *batch[2] = {NULL}, *out = NULL;
    assert_ok(kn_alloc(&host, pinned, N, NULL));
    assert_ok(kn_alloc(&out, pool, N, compute));
    for (int i = 0; i < 2; i++) assert_ok(kn_alloc(&batch[i], pool, N, load));
    for (int step = 1; step <= 10; step++) {
        memset(host, step, N);
        assert_ok(kn_device_copy(gpu, batch[step & 1], kn_device_host(), host, N, load));
        assert_ok(kn_stream_sync(gpu, load)); /* the last step is still held */
        assert_true(step == 1 || gate_open());
        if (step > 1) gpu_assert_bytes(gpu, out, N, step - 1, compute);
        gpu_order_after(gpu, compute, load);
        gate_close(compute);
        assert_ok(kn_device_copy(gpu, out, gpu, batch[step & 1], N, compute));
    }
    assert_true(gate_open());
    gpu_assert_bytes(gpu, out, N, 10, compute);
    assert_ok(kn_free(pinned, host));
    assert_ok(kn_free(pool, out));
    for (int i = 0; i < 2; i++) assert_ok(kn_free(pool, batch[i]));
    kn_stream_destroy(gpu, compute);
    kn_stream_destroy(gpu, load);
}

int main(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* no two streams share a queue */
    gpu = gpu_get();
    if (!gate_init()) return 1;
    return RUN_TESTS(TEST(training_steps_never_wait_for_a_held_stream),
                     TEST(thread_trains_while_the_stream_of_another_is_held),
                     TEST(copies_to_the_device_overlap_with_a_held_step));
}
