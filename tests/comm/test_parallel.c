/* Data parallel on simulated ranks: gradients of the joined batch, bits, accumulation, errors.
 * "gpu": the same, each rank on a GPU of its own: the fake driver and NCCL, and the host's kernels.
 */
#include <knet/capture.h>
#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>
#include <math.h>
#include <string.h>

#include "ranks_test.h"

enum { JOINED = 24, SIDE = 12, CLASSES = 5, GRADIENTS_MAX = 20000 };

static kn_device *gpu[RANKS_MAX]; /* of the ranks; NULL: the host */

static kn_device *place(const kn_comm *comm) { return gpu[kn_comm_rank(comm)]; }

typedef struct net {
    kn_params *params;
    kn_tensor *k, *kb, *w1, *b1, *w2, *b2, *unused;
} net;

static kn_status net_create(net *n, kn_device *device, uint64_t seed) {
    *n = (net){0};
    KN_TRY(kn_params_create(&n->params, &(kn_params_options){.device = device, .seed = seed}));
    n->unused = kn_param(n->params, KN_SHAPE(33), kn_init_normal(0, 1), "unused");
    n->k = kn_param(n->params, KN_SHAPE(6, 1, 3, 3), kn_init_xavier(), "k");
    n->kb = kn_param(n->params, KN_SHAPE(6), (kn_init){0}, "kb");
    n->w1 = kn_param(n->params, KN_SHAPE(32, 150), kn_init_xavier(), "w1");
    n->b1 = kn_param(n->params, KN_SHAPE(32), (kn_init){0}, "b1");
    n->w2 = kn_param(n->params, KN_SHAPE(CLASSES, 32), kn_init_xavier(), "w2");
    n->b2 = kn_param(n->params, KN_SHAPE(CLASSES), (kn_init){0}, "b2");
    return kn_check();
}

/* Samples first, first + stride, … of the joined batch of a step. */
static kn_status batch_make(kn_tensor *in[2], int step, int first, int stride) {
    static _Thread_local float pixels[JOINED * SIDE * SIDE];
    int64_t classes[JOINED], count = 0;
    for (int i = first; i < JOINED; i += stride, count++) {
        for (int k = 0; k < SIDE * SIDE; k++)
            pixels[count * SIDE * SIDE + k] =
                (float)((i * 61 + k * 7 + k / 9 + step * 3) % 23) / 23;
        classes[count] = (i + step) % CLASSES;
    }
    in[0] = kn_tensor_from(pixels, KN_F32, KN_SHAPE(count, 1, SIDE, SIDE));
    in[1] = kn_tensor_from(classes, KN_I64, KN_SHAPE(count));
    return kn_check();
}

typedef struct pass {
    const net *net;
    double scale;
} pass;

static kn_status pass_run(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const net *n = ((pass *)ctx)->net;
    (void)out;
    KN_TAPE();
    kn_tensor *h = kn_maxpool(kn_tanh(kn_conv(in[0], n->k, n->kb, NULL)), KN_SHAPE(2, 2), NULL);
    h = kn_tanh(kn_linear(kn_flatten(h), n->w1, n->b1));
    kn_tensor *loss = kn_cross_entropy(kn_linear(h, n->w2, n->b2), in[1]);
    return kn_backward(kn_affine(loss, ((pass *)ctx)->scale, 0));
}

/* capture: NULL where passes run as they are. */
static kn_status backward(const net *n, kn_capture *capture, int step, int first, int stride,
                          double scale) {
    KN_FRAME(.device = kn_params_device(n->params), .threads = 1);
    kn_tensor *in[2];
    pass p = {n, scale};
    KN_TRY(batch_make(in, step, first, stride));
    return capture ? kn_capture_run(NULL, 0, capture, in, 2, pass_run, &p) : pass_run(NULL, in, &p);
}

typedef struct plan {
    kn_parallel_options options;
    int n_steps, parts; /* parts: passes of a step */
    bool takes_adam, shards, captured;
    kn_adam_options adam;
    float gradients[RANKS_MAX][GRADIENTS_MAX]; /* of the last step, by parameter */
    float weights[RANKS_MAX][GRADIENTS_MAX];
    float states[GRADIENTS_MAX]; /* Adam's m and v, of rank 0 */
    int64_t n_state[RANKS_MAX];  /* elements of m */
    kn_parallel_stats stats;
} plan;

static kn_status values_read(float *out, kn_params *params, bool of_gradients) {
    for (int i = 0; i < kn_params_count(params); i++) {
        kn_tensor *w = kn_params_at(params, i, NULL);
        size_t n = (size_t)kn_tensor_numel(w);
        KN_TRY(kn_copy_out(out, n * sizeof *out, of_gradients ? kn_grad(w) : w));
        out += n;
    }
    return KN_OK;
}

static kn_status steps_run(const plan *p, const net *n, kn_optim *optim, kn_parallel *parallel,
                           kn_capture *capture, int rank, int size) {
    for (int s = 0; s < p->n_steps; s++) {
        for (int i = 0; i < p->parts; i++) {
            if (parallel) kn_parallel_sync(parallel, i == p->parts - 1);
            if (capture) kn_capture_select(capture, i > 0);
            KN_TRY(backward(n, capture, s, rank + size * i, size * p->parts, 1.0 / p->parts));
        }
        if (parallel) KN_TRY(kn_parallel_finish(parallel));
        if (s == p->n_steps - 1) break;
        KN_TRY(kn_optim_step(optim));
    }
    return KN_OK;
}

/* Reads the state of rank 0 as a checkpoint does. */
static const char *state_found(plan *p, kn_optim *optim, kn_parallel *parallel, int rank) {
    KN_FRAME(.device = place(kn_parallel_comm(parallel)), .record = KN_OFF);
    char name[64];
    kn_tensor *own = kn_optim_shard_state(optim, 0);
    p->n_state[rank] = own ? kn_tensor_numel(own) : 0;
    if (own) RANK_CHECK(!kn_optim_state_at(optim, 1, name, sizeof name));
    if (own) RANK_CHECK(kn_check() == KN_ERR_INVALID);
    RANK_OK(kn_parallel_state_join(parallel));
    float *out = p->states;
    kn_tensor *t = NULL;
    for (int i = 1; rank == 0 && (t = kn_optim_state_at(optim, i, name, sizeof name)); i++) {
        size_t n = (size_t)kn_tensor_numel(t);
        RANK_OK(kn_copy_out(out, n * sizeof *out, t));
        out += n;
    }
    RANK_OK(kn_check());
    return NULL;
}

static const char *train(kn_comm *comm, void *ctx) {
    plan *p = ctx;
    net n;
    kn_optim *optim = NULL;
    kn_parallel *parallel = NULL;
    int rank = kn_comm_rank(comm);
    RANK_OK(net_create(&n, place(comm), 5 + (uint64_t)rank)); /* all get those of rank 0 */
    RANK_OK(kn_parallel_create(&parallel, n.params, comm, &p->options));
    RANK_OK(p->takes_adam ? kn_adam_create(&optim, n.params, 1e-2, &p->adam)
                          : kn_sgd_create(&optim, n.params, 0.1, NULL));
    if (p->shards) RANK_OK(kn_parallel_shard(parallel, optim));
    kn_capture *capture = NULL;
    if (p->captured) RANK_OK(kn_capture_create(&capture, NULL));
    RANK_OK(steps_run(p, &n, optim, parallel, capture, rank, kn_comm_size(comm)));
    RANK_OK(values_read(p->gradients[rank], n.params, true));
    if (p->takes_adam) RANK_CHECK(!state_found(p, optim, parallel, rank));
    RANK_OK(values_read(p->weights[rank], n.params, false));
    if (rank == 0) kn_parallel_stats_read(&p->stats, sizeof p->stats, parallel);
    kn_capture_destroy(capture);
    kn_parallel_destroy(parallel);
    kn_optim_destroy(optim);
    kn_params_destroy(n.params);
    return NULL;
}

/* One process, the joined batch. */
static void reference(plan *p) {
    net n;
    kn_optim *optim = NULL;
    assert_ok(net_create(&n, gpu[0], 5));
    assert_ok(p->takes_adam ? kn_adam_create(&optim, n.params, 1e-2, &p->adam)
                            : kn_sgd_create(&optim, n.params, 0.1, NULL));
    assert_ok(steps_run(p, &n, optim, NULL, NULL, 0, 1));
    assert_ok(values_read(p->gradients[0], n.params, true));
    kn_optim_destroy(optim);
    kn_params_destroy(n.params);
}

static plan *plan_new(kn_parallel_options options, int n_steps, int parts) {
    plan *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->options = options;
    p->n_steps = n_steps;
    p->parts = parts;
    return p;
}

static double largest(const float *x) {
    double m = 0;
    for (int i = 0; i < GRADIENTS_MAX; i++) m = fmax(m, fabs((double)x[i]));
    return m;
}

static void compare(int size, kn_parallel_options options, int n_steps, int parts) {
    plan *want = plan_new(options, n_steps, 1), *got = plan_new(options, n_steps, parts);
    reference(want);
    ranks_run(size, train, got);
    double scale = largest(want->gradients[0]);
    assert_true(scale > 1e-4);
    for (int r = 0; r < size; r++) {
        assert_memory_equal(got->gradients[r], got->gradients[0], sizeof got->gradients[0]);
        for (int i = 0; i < GRADIENTS_MAX; i++)
            assert_close((double)got->gradients[r][i], (double)want->gradients[0][i], 0,
                         1e-6 * scale);
    }
    free(want);
    free(got);
}

static void gradients_are_those_of_the_joined_batch(void **state) {
    (void)state;
    for (int size = 1; size <= 4; size *= 2) {
        compare(size, (kn_parallel_options){0}, 1, 1); /* learns the order */
        compare(size, (kn_parallel_options){.bucket_bytes = 512}, 3, 1);
        compare(size, (kn_parallel_options){.bucket_bytes = 1, .no_overlap = 1}, 3, 1);
    }
    compare(3, (kn_parallel_options){.bucket_bytes = 4096}, 2, 1);
}

static void gradients_add_up_before_they_are_averaged(void **state) {
    (void)state;
    compare(2, (kn_parallel_options){.bucket_bytes = 512}, 3, 2);
    compare(4, (kn_parallel_options){.bucket_bytes = 512}, 2, 3);
}

static void all_ranks_and_all_runs_have_the_same_bits(void **state) {
    static const int64_t bucket_bytes[] = {0, 0, 1, 700, 5000};
    plan *first = NULL;
    (void)state;
    for (int i = 0; i < 5; i++) {
        plan *p = plan_new((kn_parallel_options){.bucket_bytes = bucket_bytes[i]}, 5, 1);
        p->takes_adam = true;
        ranks_run(4, train, p);
        for (int r = 1; r < 4; r++)
            assert_memory_equal(p->weights[r], p->weights[0], sizeof p->weights[0]);
        if (first) assert_memory_equal(p->weights[0], first->weights[0], sizeof p->weights[0]);
        if (first)
            free(p);
        else
            first = p;
    }
    free(first);
}

/* Of whole steps, and of two passes, the second of which reduces. */
static void captured_passes_have_the_bits_of_plain_ones(void **state) {
    (void)state;
    for (int i = 0; i < 4 && !gpu[0]; i++) {
        plan *p[2];
        for (int captured = 0; captured < 2; captured++) {
            p[captured] = plan_new((kn_parallel_options){.bucket_bytes = 512}, 7, 1 + i % 2);
            p[captured]->takes_adam = true;
            p[captured]->shards = i >= 2;
            p[captured]->captured = captured;
            ranks_run(3, train, p[captured]);
        }
        for (int r = 0; r < 3; r++)
            assert_memory_equal(p[0]->weights[r], p[1]->weights[0], sizeof p[0]->weights[r]);
        assert_int_equal(p[0]->stats.bytes, p[1]->stats.bytes);
        assert_true(p[0]->stats.n_buckets > 1);
        free(p[0]);
        free(p[1]);
    }
}

static plan *adam_plan(kn_adam_options adam, bool shards) {
    plan *p = plan_new((kn_parallel_options){.bucket_bytes = 512}, 6, 1);
    p->takes_adam = true;
    p->shards = shards;
    p->adam = adam;
    return p;
}

static void state_in_parts_gives_the_bits_of_whole_states(void **state) {
    static const kn_adam_options adam[] = {
        {0}, {.weight_decay = 0.1, .clip_norm = 0.05}, {.clip_each = 0.01}};
    (void)state;
    for (int size = 1; size <= 5; size++) {
        const kn_adam_options *a = &adam[size % 3];
        plan *whole = adam_plan(*a, false), *parts = adam_plan(*a, true);
        ranks_run(size, train, whole);
        ranks_run(size, train, parts);
        assert_true(largest(whole->states) > 0);
        assert_memory_equal(parts->states, whole->states, sizeof whole->states);
        for (int r = 0; r < size; r++) {
            assert_memory_equal(parts->weights[r], whole->weights[0], sizeof whole->weights[0]);
            assert_true((double)parts->n_state[r] <= 1.1 * 5090 / size);
            assert_int_equal(whole->n_state[r], 0);
        }
        free(whole);
        free(parts);
    }
}

/* After the first step. A link of 200 kB/s: an all-reduce of the 20 kB takes 0.1 s. */
static void gradients_of_parts_are_half_the_traffic(void **state) {
    static const kn_comm_sim_options slow = {.bandwidth = 2e5};
    plan *p[2] = {adam_plan((kn_adam_options){0}, false), adam_plan((kn_adam_options){0}, true)};
    (void)state;
    for (int i = 0; i < 2; i++) {
        rank_run run[2];
        p[i]->options.bucket_bytes = 0;
        ranks_run_all(run, 2, train, p[i], &slow);
        for (int r = 0; r < 2; r++) assert_null(run[r].found);
    }
    double whole = (double)p[0]->stats.reduce_ns, parts = (double)p[1]->stats.reduce_ns;
    assert_true(gpu[0] || whole > 0.55e9);
    assert_true(gpu[0] || parts < 0.7 * whole); /* 1 of 6 steps is whole: 0.583 */
    assert_memory_equal(p[0]->weights, p[1]->weights, sizeof p[0]->weights);
    free(p[0]);
    free(p[1]);
}

/* Nine elements: the last ranks have no part; 63: the last of three has more than the others. State
 * that was there before is cut. */
static const char *few(kn_comm *comm, void *ctx) {
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    kn_optim *optim = NULL, *lamb = NULL;
    float w[63];
    int n = *(const int *)ctx;
    RANK_OK(kn_params_create(&params, &(kn_params_options){.device = place(comm)}));
    kn_tensor *p = kn_param(params, KN_SHAPE(n), (kn_init){KN_INIT_CONSTANT, 1, 0}, "w");
    RANK_OK(kn_parallel_create(&parallel, params, comm, NULL));
    RANK_OK(kn_momentum_create(&optim, params, 0.5, 0.5, NULL));
    RANK_OK(kn_lamb_create(&lamb, params, 0.1, NULL));
    for (int i = 0; i < 3; i++) {
        KN_TAPE(.device = place(comm));
        if (i == 1) RANK_OK(kn_parallel_shard(parallel, optim));
        if (i == 1) RANK_CHECK(kn_parallel_shard(parallel, optim) == KN_ERR_INVALID);
        RANK_OK(kn_backward(kn_affine(kn_sum(p, KN_ALL, false), i < 2 ? 1 : 2, 0)));
        RANK_OK(kn_parallel_finish(parallel));
        RANK_OK(kn_optim_step(optim));
    }
    RANK_OK(kn_copy_out(w, (size_t)n * sizeof *w, p)); /* 1 - 0.5 - (0.25 + 0.5) - (0.375 + 1) */
    for (int i = 0; i < n; i++) RANK_CHECK(w[i] == -1.625f);
    RANK_OK(kn_optim_group(optim, "w", 2, 1));
    const kn_optim_range all = {0, n};
    RANK_CHECK(kn_optim_shard(optim, &all, 1, NULL, NULL) == KN_ERR_INVALID);
    RANK_CHECK(kn_optim_shard(lamb, &all, 1, NULL, NULL) == KN_ERR_UNSUPPORTED);
    kn_optim_destroy(lamb);
    kn_optim_destroy(optim);
    kn_parallel_destroy(parallel);
    kn_params_destroy(params);
    return NULL;
}

static void state_is_cut_after_the_first_step_too(void **state) {
    static const int n[2] = {9, 63};
    (void)state;
    for (int size = 2; size <= 3; size++)
        for (int k = 0; k < 2; k++) ranks_run(size, few, (void *)&n[k]);
}

/* Rank 0 alone runs backward in later steps: the mean gradient is 1 / size then. */
static const char *idle_ranks(kn_comm *comm, void *ctx) {
    kn_params *params = NULL;
    kn_optim *optim = NULL;
    kn_parallel *parallel = NULL;
    float want = 100, found[99];
    RANK_OK(kn_params_create(&params, &(kn_params_options){.device = place(comm)}));
    kn_tensor *w = kn_param(params, KN_SHAPE(99), (kn_init){KN_INIT_CONSTANT, 100, 0}, "w");
    RANK_OK(kn_sgd_create(&optim, params, 1, NULL));
    RANK_OK(kn_parallel_create(&parallel, params, comm, NULL));
    if (ctx) RANK_OK(kn_parallel_shard(parallel, optim));
    for (int step = 0; step < 4; step++) {
        KN_FRAME(.device = place(comm));
        if (step == 0 || (kn_comm_rank(comm) == 0 && step < 3)) {
            KN_TAPE(.device = place(comm));
            RANK_OK(kn_backward(kn_sum(w, KN_ALL, false)));
        }
        RANK_OK(kn_parallel_finish(parallel));
        RANK_OK(kn_optim_step(optim));
        want -= step == 0 ? 1 : step < 3 ? 1 / (float)kn_comm_size(comm) : 0;
        RANK_OK(kn_copy_out(found, sizeof found, w));
        for (int i = 0; i < 99; i++) RANK_CHECK(found[i] == want);
    }
    kn_parallel_destroy(parallel);
    kn_optim_destroy(optim);
    kn_params_destroy(params);
    return NULL;
}

static void a_rank_without_backward_contributes_zeros(void **state) {
    (void)state;
    for (int size = 1; size <= 4; size *= 2)
        for (int shards = 0; shards < 2; shards++)
            ranks_run(size, idle_ranks, shards ? state : NULL);
}

static void buckets_are_reduced_once_a_step(void **state) {
    (void)state;
    plan *p = plan_new((kn_parallel_options){.bucket_bytes = 512}, 4, 1);
    ranks_run(2, train, p);
    assert_int_equal(p->stats.n_steps, 4);
    assert_true(p->stats.n_buckets > 1 && p->stats.n_buckets <= 7);
    assert_true(p->stats.bytes >= 4 * sizeof(float) * (33 + 54 + 6 + 4800 + 32 + 160 + 5));
    assert_true(gpu[0] || p->stats.reduce_ns > 0);
    free(p);
}

/* --- misuse --- */

static const char *finishes_inside(kn_parallel *parallel) {
    kn_capture *capture = NULL;
    RANK_OK(kn_capture_create(&capture, NULL));
    RANK_OK(kn_capture_begin(capture, NULL, 0));
    RANK_CHECK(kn_parallel_finish(parallel) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "inside a captured step"));
    kn_capture_destroy(capture);
    return NULL;
}

static const char *misuse(kn_comm *comm, void *ctx) {
    net n;
    kn_parallel *parallel = NULL;
    (void)ctx;
    RANK_OK(net_create(&n, place(comm), 1));
    RANK_CHECK(kn_parallel_create(&parallel, NULL, comm, NULL) == KN_ERR_INVALID);
    RANK_CHECK(kn_parallel_create(NULL, n.params, comm, NULL) == KN_ERR_INVALID);
    RANK_CHECK(kn_parallel_create(&parallel, n.params, comm,
                                  &(kn_parallel_options){.bucket_bytes = -1}) == KN_ERR_INVALID);
    RANK_CHECK(kn_parallel_create(&parallel, n.params, comm,
                                  &(kn_parallel_options){.reserved = {1}}) == KN_ERR_INVALID);
    RANK_OK(kn_parallel_create(&parallel, n.params, comm, NULL));
    RANK_CHECK(!finishes_inside(parallel));
    RANK_CHECK(kn_parallel_finish(parallel) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "no kn_backward"));
#ifdef __SANITIZE_THREAD__
    const int n_steps = 1; /* the misuse writes gradients during their average */
#else
    const int n_steps = 3;
#endif
    for (int i = 0; i < n_steps; i++) {
        RANK_OK(backward(&n, NULL, i, kn_comm_rank(comm), 2, 1));
        if (i > 0) RANK_OK(backward(&n, NULL, i, kn_comm_rank(comm), 2, 1));
        kn_status status = kn_parallel_finish(parallel);
        RANK_CHECK(status == (i > 0 ? KN_ERR_INVALID : KN_OK));
        RANK_CHECK(i == 0 || strstr(kn_last_error()->message, "kn_parallel_sync"));
    }
    kn_parallel_destroy(parallel);
    kn_params_destroy(n.params);
    return NULL;
}

static void misuse_is_an_error_with_its_remedy(void **state) {
    (void)state;
    ranks_run(2, misuse, NULL);
}

/* Replays reduce what they complete, as passes do: two of them are one too many. */
__attribute__((unused)) /* under ThreadSanitizer */
static const char *
replays_twice(kn_comm *comm, void *ctx) {
    net n;
    kn_parallel *parallel = NULL;
    kn_capture *capture = NULL;
    (void)ctx;
    RANK_OK(net_create(&n, NULL, 1));
    RANK_OK(kn_parallel_create(&parallel, n.params, comm, NULL));
    RANK_OK(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 5; i++) {
        bool twice = i == 3;
        for (int k = 0; k < 1 + twice; k++)
            RANK_OK(backward(&n, capture, i, kn_comm_rank(comm), 2, 1));
        RANK_CHECK(kn_parallel_finish(parallel) == (twice ? KN_ERR_INVALID : KN_OK));
    }
    kn_capture_destroy(capture);
    kn_parallel_destroy(parallel);
    kn_params_destroy(n.params);
    return NULL;
}

static void replays_reduce_as_passes_do(void **state) {
    (void)state;
#ifndef __SANITIZE_THREAD__ /* the misuse writes gradients during their average */
    if (!gpu[0]) ranks_run(2, replays_twice, NULL);
#endif
}

/* Buckets are under way while it is destroyed; the communicator works on. */
static const char *unfinished(kn_comm *comm, void *ctx) {
    net n;
    kn_parallel *parallel = NULL;
    (void)ctx;
    RANK_OK(net_create(&n, place(comm), 1));
    RANK_OK(kn_parallel_create(&parallel, n.params, comm, NULL));
    RANK_OK(backward(&n, NULL, 0, 0, 2, 1));
    RANK_OK(kn_parallel_finish(parallel));
    RANK_OK(backward(&n, NULL, 1, 0, 2, 1));
    kn_parallel_destroy(parallel);
    RANK_OK(backward(&n, NULL, 2, 0, 2, 1)); /* the hook is gone */
    kn_params_destroy(n.params);
    return kn_comm_barrier(comm) == KN_OK ? NULL : kn_last_error()->message;
}

static void a_step_may_end_unfinished(void **state) {
    (void)state;
    ranks_run(3, unfinished, NULL);
}

static const char *two_devices(kn_comm *comm, void *ctx) {
    net n;
    kn_parallel *parallel = NULL;
    (void)ctx;
    RANK_OK(net_create(&n, place(comm), 1));
    RANK_OK(kn_param_to(n.w2, kn_device_host()));
    RANK_CHECK(kn_parallel_create(&parallel, n.params, comm, NULL) == KN_ERR_UNSUPPORTED);
    RANK_CHECK(strstr(kn_last_error()->message, "w2 is on cpu, others are on cuda:"));
    kn_params_destroy(n.params);
    return NULL;
}

static void parameters_on_two_devices_are_an_error(void **state) {
    (void)state;
    if (gpu[0]) ranks_run(2, two_devices, NULL);
}

typedef struct other_params {
    kn_shape shape[2]; /* of each rank's first parameter */
    const char *name[2];
    bool has_more; /* rank 1 has a second one */
    const char *message;
} other_params;

static const char *differs(kn_comm *comm, void *ctx) {
    const other_params *o = ctx;
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    int r = kn_comm_rank(comm);
    RANK_OK(kn_params_create(&params, &(kn_params_options){.device = place(comm)}));
    RANK_CHECK(kn_param(params, o->shape[r], (kn_init){0}, "%s", o->name[r]));
    RANK_CHECK(!r || !o->has_more || kn_param(params, KN_SHAPE(2), (kn_init){0}, "bias"));
    RANK_CHECK(kn_parallel_create(&parallel, params, comm, NULL) == KN_ERR_SHAPE);
    RANK_CHECK(strstr(kn_last_error()->message, o->message));
    kn_params_destroy(params);
    return NULL;
}

static const char *sparse(kn_comm *comm, void *ctx) {
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    (void)ctx;
    RANK_OK(kn_params_create(&params, &(kn_params_options){.device = place(comm)}));
    RANK_OK(kn_param_sparse(kn_param(params, KN_SHAPE(9, 2), (kn_init){0}, "words")));
    RANK_CHECK(kn_parallel_create(&parallel, params, comm, NULL) == KN_ERR_UNSUPPORTED);
    RANK_CHECK(strstr(kn_last_error()->message, "words is row-sparse"));
    kn_params_destroy(params);
    return NULL;
}

/* Each rank uses its two parameters in another order. */
static const char *other_orders(kn_comm *comm, void *ctx) {
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    (void)ctx;
    RANK_OK(kn_params_create(&params, &(kn_params_options){.device = place(comm)}));
    kn_tensor *a = kn_param(params, KN_SHAPE(4), kn_init_normal(0, 1), "a");
    kn_tensor *b = kn_param(params, KN_SHAPE(4), kn_init_normal(0, 1), "b");
    RANK_OK(kn_parallel_create(&parallel, params, comm, NULL));
    {
        KN_TAPE(.device = place(comm));
        bool is_first = kn_comm_rank(comm) == 0;
        kn_tensor *x = kn_tanh(is_first ? a : b);
        RANK_OK(
            kn_backward(kn_sum(kn_mul(x, kn_tanh(kn_mul(x, is_first ? b : a))), KN_ALL, false)));
    }
    RANK_CHECK(kn_parallel_finish(parallel) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "different orders"));
    kn_parallel_destroy(parallel);
    kn_params_destroy(params);
    return NULL;
}

static void ranks_that_differ_are_an_error(void **state) {
    (void)state;
    other_params other[] = {
        {{KN_SHAPE(3), KN_SHAPE(4)}, {"w", "w"}, 0, "rank 0 has 'w, f32 [3]', rank 1 'w, f32 [4]'"},
        {{KN_SHAPE(3, 4), KN_SHAPE(4, 3)}, {"w", "w"}, 0, "f32 [3,4]', rank 1 'w, f32 [4,3]'"},
        {{KN_SHAPE(3), KN_SHAPE(3)}, {"w", "u"}, 0, "parameter 0 differs between the ranks: rank"},
        {{KN_SHAPE(3), KN_SHAPE(3)}, {"w", "w"}, 1, "rank 0 has 'none'"}};
    for (int i = 0; i < 4; i++) ranks_run(2, differs, &other[i]);
    ranks_run(3, sparse, NULL);
    ranks_run(2, other_orders, NULL);
}

int main(int argc, char **argv) {
    for (int r = 0; argc > 1 && r < 8; r++) {
        char name[16];
        snprintf(name, sizeof name, "%s:%d", argv[1], r);
        if (kn_device_find(&gpu[r], name) < 0) return 1;
    }
    return RUN_TESTS(
        TEST(gradients_are_those_of_the_joined_batch),
        TEST(gradients_add_up_before_they_are_averaged),
        TEST(all_ranks_and_all_runs_have_the_same_bits),
        TEST(captured_passes_have_the_bits_of_plain_ones),
        TEST(state_in_parts_gives_the_bits_of_whole_states),
        TEST(gradients_of_parts_are_half_the_traffic), TEST(state_is_cut_after_the_first_step_too),
        TEST(a_rank_without_backward_contributes_zeros), TEST(buckets_are_reduced_once_a_step),
        TEST(misuse_is_an_error_with_its_remedy), TEST(replays_reduce_as_passes_do),
        TEST(ranks_that_differ_are_an_error), TEST(a_step_may_end_unfinished),
        TEST(parameters_on_two_devices_are_an_error));
}
