/* Collectives by the real NCCL, with one rank; and with two where the machine has two GPUs. */
#include "gpu.h"

#include <knet/comm.h>
#include <knet/ops.h>

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

int main(void) {
    gpu[0] = gpu_get();
    if (kn_device_cuda_count() < 2 || kn_device_find(&gpu[1], "cuda:1") < 0) gpu[1] = NULL;
    return RUN_TESTS(TEST(one_rank_keeps_its_values), TEST(many_calls_follow_each_other),
                     TEST(two_gpus_add_their_values));
}
