/* Collectives by the real NCCL, with one rank; and with two where the machine has two GPUs. */
#include "gpu.h"

#include <knet/capture.h>
#include <knet/comm.h>
#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>

#include <pthread.h>

enum { N = 300007 };

static kn_device *gpu[2];

static kn_tensor *numbers(int rank, int64_t n) {
    static _Thread_local float data[2 * N];
    for (int64_t i = 0; i < n; i++) data[i] = (float)((i * 7 + rank * 13) % 61 - 30);
    return kn_tensor_from(data, KN_F32, KN_SHAPE(n));
}

static bool same(kn_tensor *a, kn_tensor *b) {
    static _Thread_local float x[2 * N], y[2 * N];
    size_t bytes = (size_t)kn_tensor_numel(a) * sizeof *x;
    return kn_copy_out(x, bytes, a) == KN_OK && kn_copy_out(y, bytes, b) == KN_OK &&
           memcmp(x, y, bytes) == 0;
}

static void one_rank_keeps_its_values(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    {
        KN_FRAME(.device = gpu[0]);
        kn_tensor *t = numbers(0, N), *want = numbers(0, N), *part = numbers(1, N);
        for (int op = KN_COMM_SUM; op <= KN_COMM_MIN; op++)
            assert_ok(kn_comm_all_reduce(comm, t, (kn_comm_op)op));
        assert_ok(kn_comm_broadcast(comm, t, 0));
        assert_true(same(t, want));
        kn_tensor *whole = kn_reshape(numbers(1, N), KN_SHAPE(1, N));
        assert_ok(kn_comm_all_gather(comm, whole, t));
        assert_true(same(whole, want));
        assert_ok(kn_comm_reduce_scatter(comm, part, whole, KN_COMM_SUM));
        assert_true(same(part, want));
        assert_ok(kn_comm_barrier(comm));
    }
    kn_comm_destroy(comm);
}

/* More calls than are watched at once, without a wait between them. */
static void many_calls_follow_each_other(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    assert_ok(kn_comm_create(&comm, "self", NULL));
    {
        KN_FRAME(.device = gpu[0]);
        kn_tensor *t = numbers(0, N), *want = numbers(0, N);
        for (int i = 0; i < 500; i++) assert_ok(kn_comm_all_reduce(comm, t, KN_COMM_MEAN));
        assert_true(same(t, want));
    }
    kn_comm_destroy(comm);
}

typedef struct side {
    kn_comm *comm;
    int rank;
    bool is_right;
} side;

static void *side_run(void *of) {
    side *s = of;
    KN_FRAME(.device = gpu[s->rank]);
    kn_tensor *t = numbers(s->rank, N), *want = kn_add(numbers(0, N), numbers(1, N));
    kn_tensor *other = numbers(5, N);
    s->is_right = kn_comm_all_reduce(s->comm, t, KN_COMM_SUM) == KN_OK && same(t, want);
    kn_status moved = s->rank ? kn_comm_receive(s->comm, other, 0) : kn_comm_send(s->comm, t, 1);
    s->is_right = s->is_right && moved == KN_OK && (!s->rank || same(other, want));
    return NULL;
}

static void two_gpus_add_their_values(void **state) {
    (void)state;
    kn_comm *comm[2];
    pthread_t thread[2];
    side sides[2];
    if (!gpu[1]) skip();
    assert_ok(kn_comm_sim_create(comm, 2, NULL));
    for (int r = 0; r < 2; r++) {
        sides[r] = (side){comm[r], r, false};
        assert_int_equal(pthread_create(&thread[r], NULL, side_run, &sides[r]), 0);
    }
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) kn_comm_destroy(comm[r]);
    assert_true(sides[0].is_right && sides[1].is_right);
}

/* A few steps of Adam: plain, with its state in parts, or with forward and backward captured. */
enum { WIDTH = 37, STEPS = 4, PLAIN = 0, IN_PARTS, CAPTURED };

typedef struct trained {
    kn_comm *comm;
    int rank;
    int way;
    bool is_done;
    int64_t n_state;
    float weights[WIDTH * WIDTH];
} trained;

static kn_status pass_run(kn_tensor *out[], kn_tensor *const in[], void *params) {
    (void)out;
    KN_TAPE();
    kn_tensor *w = kn_params_at(params, 0, NULL), *b = kn_params_at(params, 1, NULL);
    kn_tensor *y = kn_tanh(kn_linear(kn_affine(in[0], 0.02, 0), w, b));
    return kn_backward(kn_mean(kn_mul(y, y), KN_ALL, false));
}

static kn_status steps_run(trained *t, kn_params *params, kn_parallel *parallel, kn_optim *adam,
                           kn_capture *capture) {
    for (int i = 0; i < STEPS; i++) {
        {
            KN_FRAME(.device = gpu[t->rank]);
            kn_tensor *x = kn_reshape(numbers(t->rank + i, 8 * WIDTH), KN_SHAPE(8, WIDTH));
            KN_TRY(capture ? kn_capture_run(NULL, 0, capture, &x, 1, pass_run, params)
                           : pass_run(NULL, &x, params));
        }
        KN_TRY(kn_parallel_finish(parallel));
        KN_TRY(kn_optim_step(adam));
    }
    kn_tensor *state = kn_optim_shard_state(adam, 0);
    t->n_state = state ? kn_tensor_numel(state) : 0;
    return kn_copy_out(t->weights, sizeof t->weights, kn_params_at(params, 0, NULL));
}

static void *train_run(void *of) {
    trained *t = of;
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    kn_optim *adam = NULL;
    kn_capture *capture = NULL;
    kn_status status = kn_params_create(
        &params, &(kn_params_options){.device = gpu[t->rank], .seed = (uint64_t)t->rank});
    (void)kn_param(params, KN_SHAPE(WIDTH, WIDTH), kn_init_xavier(), "w");
    (void)kn_param(params, KN_SHAPE(WIDTH), (kn_init){0}, "b");
    if (status == KN_OK) status = kn_check();
    if (status == KN_OK) status = kn_parallel_create(&parallel, params, t->comm, NULL);
    if (status == KN_OK) status = kn_adam_create(&adam, params, 1e-2, NULL);
    if (status == KN_OK && t->way == IN_PARTS) status = kn_parallel_shard(parallel, adam);
    if (status == KN_OK && t->way == CAPTURED) status = kn_capture_create(&capture, NULL);
    if (status == KN_OK) status = steps_run(t, params, parallel, adam, capture);
    t->is_done = status == KN_OK;
    if (status < 0) kn_comm_abort(t->comm, kn_last_error()->message);
    kn_capture_destroy(capture);
    kn_parallel_destroy(parallel);
    kn_optim_destroy(adam);
    kn_params_destroy(params);
    return NULL;
}

static void two_ranks_train(trained ranks[2], int way) {
    kn_comm *comm[2];
    pthread_t thread[2];
    assert_ok(kn_comm_sim_create(comm, 2, NULL));
    for (int r = 0; r < 2; r++) {
        ranks[r] = (trained){.comm = comm[r], .rank = r, .way = way};
        assert_int_equal(pthread_create(&thread[r], NULL, train_run, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) kn_comm_destroy(comm[r]);
    assert_true(ranks[0].is_done && ranks[1].is_done);
}

static void has_the_weights_of_plain_steps(trained ranks[2], int way) {
    static trained plain[2];
    if (!gpu[1]) skip();
    two_ranks_train(plain, PLAIN);
    two_ranks_train(ranks, way);
    for (int r = 0; r < 2; r++)
        assert_memory_equal(ranks[r].weights, plain[0].weights, sizeof plain[0].weights);
}

static void two_gpus_train_with_state_in_parts(void **state) {
    (void)state;
    static trained ranks[2];
    has_the_weights_of_plain_steps(ranks, IN_PARTS);
    for (int r = 0; r < 2; r++)
        assert_true(ranks[r].n_state > 0 && ranks[r].n_state < WIDTH * WIDTH);
}

static void two_gpus_train_by_captured_steps(void **state) {
    (void)state;
    static trained ranks[2];
    has_the_weights_of_plain_steps(ranks, CAPTURED);
}

int main(void) {
    gpu[0] = gpu_get();
    if (kn_device_cuda_count() < 2 || kn_device_find(&gpu[1], "cuda:1") < 0) gpu[1] = NULL;
    return RUN_TESTS(TEST(one_rank_keeps_its_values), TEST(many_calls_follow_each_other),
                     TEST(two_gpus_add_their_values), TEST(two_gpus_train_with_state_in_parts),
                     TEST(two_gpus_train_by_captured_steps));
}
