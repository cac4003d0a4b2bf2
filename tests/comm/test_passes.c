/* Data parallel: passes that fail, passes that are averaged twice, orders that differ, and the end
 * of the process after one. */
#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "main_end.h"
#include "ranks_test.h"

enum { N = 1000, STEPS = 3 };

typedef struct net {
    kn_params *params;
    kn_tensor *a, *b;
    kn_parallel *parallel;
    kn_optim *sgd;
} net;

static kn_status net_create(net *n, kn_comm *comm, int64_t bucket_bytes) {
    kn_init normal = kn_init_normal(1, 0);
    KN_TRY(kn_params_create(&n->params, NULL));
    n->a = kn_param(n->params, KN_SHAPE(N), normal, "a");
    n->b = kn_param(n->params, KN_SHAPE(N), normal, "b");
    KN_TRY(kn_parallel_create(&n->parallel, n->params, comm,
                              &(kn_parallel_options){.bucket_bytes = bucket_bytes}));
    return kn_sgd_create(&n->sgd, n->params, 0, NULL);
}

static void net_destroy(net *n) {
    kn_parallel_destroy(n->parallel);
    kn_optim_destroy(n->sgd);
    kn_params_destroy(n->params);
}

static void fail_if(void *fails, kn_tensor *g) {
    (void)g;
    if (*(bool *)fails) (void)kn_error_defer(KN_FAIL(KN_ERR_OOM, "no memory for the test"));
}

/* The sum of a·b², whose gradient of a is known before that of b; fails between the two. */
static kn_status pass_between(const net *n, bool fails) {
    KN_FRAME(.threads = 1);
    KN_TAPE();
    kn_tensor *square = kn_on_grad(kn_mul(n->b, n->b), fail_if, &fails);
    return kn_backward(kn_sum(kn_mul(n->a, square), KN_ALL, false));
}

/* The sums of a, and of b where it is used. */
static kn_status pass_of_sums(const net *n, double factor, bool uses_b) {
    KN_FRAME(.threads = 1);
    KN_TAPE();
    kn_tensor *sum = kn_sum(n->a, KN_ALL, false);
    if (uses_b) sum = kn_add(sum, kn_sum(n->b, KN_ALL, false));
    return kn_backward(kn_affine(sum, factor, 0));
}

/* retries: the rank whose pass fails runs it again, which gives the other rank no gradients. */
static const char *lost_rank(kn_comm *comm, void *retries) {
    net n;
    int rank = kn_comm_rank(comm);
    RANK_OK(net_create(&n, comm, N * sizeof(float)));
    for (int i = 0; i < STEPS; i++) {
        bool fails = rank == 0 && i == STEPS - 1;
        RANK_CHECK(pass_between(&n, fails) == (fails ? KN_ERR_OOM : KN_OK));
        if (fails && retries) RANK_OK(pass_between(&n, false));
        kn_status finish = kn_parallel_finish(n.parallel);
        if (i < STEPS - 1) {
            RANK_CHECK(finish == KN_OK);
            RANK_OK(kn_optim_step(n.sgd));
            continue;
        }
        RANK_CHECK(finish == (rank == 0 ? KN_ERR_OOM : KN_ERR_PEER));
        RANK_CHECK(strstr(kn_last_error()->message, "no memory for the test"));
    }
    net_destroy(&n);
    return NULL;
}

static void a_pass_that_fails_half_averaged_is_an_error_on_every_rank(void **state) {
    ranks_run(2, lost_rank, NULL);
    ranks_run(2, lost_rank, state);
}

static const char *retry_rank(kn_comm *comm, void *ctx) {
    (void)ctx;
    net n;
    float g[N];
    RANK_OK(net_create(&n, comm, 0)); /* one bucket: nothing is posted before the end */
    for (int i = 0; i < STEPS; i++) {
        RANK_OK(pass_between(&n, false));
        RANK_OK(kn_parallel_finish(n.parallel));
        RANK_OK(kn_optim_step(n.sgd));
    }
    if (kn_comm_rank(comm) == 0) RANK_CHECK(pass_between(&n, true) == KN_ERR_OOM);
    RANK_OK(pass_of_sums(&n, kn_comm_rank(comm) + 1, true));
    RANK_OK(kn_parallel_finish(n.parallel));
    RANK_OK(kn_copy_out(g, sizeof g, kn_grad(n.a)));
    RANK_CHECK(g[0] == 1.5f && g[N - 1] == 1.5f);
    net_destroy(&n);
    return NULL;
}

static void a_pass_that_failed_may_be_repeated(void **state) {
    (void)state;
    ranks_run(2, retry_rank, NULL);
}

/* Rank 0 holds a view, so that its gradients stay where they are, unless the order is set. */
static const char *view_rank(kn_comm *comm, void *sets) {
    KN_FRAME();
    KN_SLOT(view);
    net n;
    RANK_OK(net_create(&n, comm, 0));
    if (sets) RANK_OK(kn_params_order_set(n.params, (const int[]){0, 1}, 2));
    if (kn_comm_rank(comm) == 0)
        RANK_OK(kn_hold(&view, kn_reshape(kn_grad(n.a), KN_SHAPE(N / 2, 2))));
    RANK_OK(pass_between(&n, false));
    RANK_CHECK(kn_parallel_finish(n.parallel) == (sets ? KN_OK : KN_ERR_INVALID));
    if (!sets)
        RANK_CHECK(strstr(kn_last_error()->message,
                          "or set one order with kn_params_order_set on every rank"));
    net_destroy(&n);
    return NULL;
}

static void a_view_of_a_gradient_on_one_rank_needs_an_order(void **state) {
    ranks_run(2, view_rank, NULL);
    ranks_run(2, view_rank, state);
}

/* The gradient without elements has another place on each rank. */
static const char *empty_rank(kn_comm *comm, void *ctx) {
    (void)ctx;
    static const int order[][3] = {{2, 1, 0}, {1, 2, 0}, {1, 0, 2}};
    kn_params *params = NULL;
    kn_parallel *parallel = NULL;
    float g[N];
    RANK_OK(kn_params_create(&params, NULL));
    kn_tensor *a = kn_param(params, KN_SHAPE(N), kn_init_normal(1, 0), "a");
    kn_tensor *b = kn_param(params, KN_SHAPE(N), kn_init_normal(1, 0), "b");
    (void)kn_param(params, KN_SHAPE(0), kn_init_normal(1, 0), "empty");
    RANK_OK(kn_params_order_set(params, order[kn_comm_rank(comm)], 3));
    RANK_OK(kn_parallel_create(&parallel, params, comm, NULL));
    for (int i = 0; i < 2; i++) {
        kn_params_grad_zero(params);
        RANK_OK(pass_of_sums(&(net){.a = a, .b = b}, kn_comm_rank(comm), true));
        RANK_OK(kn_parallel_finish(parallel));
        RANK_OK(kn_copy_out(g, sizeof g, kn_grad(i ? a : b)));
        RANK_CHECK(g[0] == 1 && g[N - 1] == 1);
    }
    kn_parallel_destroy(parallel);
    kn_params_destroy(params);
    return NULL;
}

static void an_empty_gradient_may_have_a_place_on_each_rank(void **state) {
    (void)state;
    ranks_run(3, empty_rank, NULL);
}

/* Rank 1 finishes no gradient of a, rank 0 finishes a's first. */
static const char *frozen_rank(kn_comm *comm, void *ctx) {
    (void)ctx;
    net n;
    RANK_OK(net_create(&n, comm, 0));
    if (kn_comm_rank(comm) == 1) RANK_OK(kn_params_freeze(n.params, "a", true));
    RANK_OK(pass_between(&n, false));
    RANK_CHECK(kn_parallel_finish(n.parallel) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "froze parameters (kn_params_freeze) before"));
    net_destroy(&n);
    return NULL;
}

static void a_parameter_frozen_on_one_rank_alone_is_named(void **state) {
    (void)state;
    ranks_run(2, frozen_rank, NULL);
}

/* --- first passes whose gradients are all zeros, of which hooks hear nothing --- */

enum first_pass { NO_PASS, OF_ZEROS, OF_BOTH };
typedef struct first_steps {
    enum first_pass of[2]; /* on rank 0, on the others */
    bool shards, holds;    /* with parts of the state; ranks but 0 hold a view of a gradient */
    kn_status finish;
} first_steps;

/* Of both it finishes a's first: not the order that gradients have without a pass. */
static kn_status first_pass(const net *n, enum first_pass which) {
    if (which == NO_PASS) return KN_OK;
    KN_FRAME(.threads = 1);
    KN_TAPE();
    kn_tensor *b = which == OF_BOTH ? n->b : kn_floor(n->b);
    kn_tensor *of_b = kn_sum(b, KN_ALL, false);
    kn_tensor *a = which == OF_BOTH ? n->a : kn_floor(n->a);
    return kn_backward(kn_affine(kn_add(of_b, kn_sum(a, KN_ALL, false)), 2, 0));
}

/* a is 1 and has moved by what sgd of rate 1 does. */
static const char *weights_check(const net *n, float a) {
    float value[N];
    RANK_OK(kn_copy_out(value, sizeof value, n->a));
    for (int i = 0; i < N; i++) RANK_CHECK(value[i] == a);
    RANK_OK(kn_copy_out(value, sizeof value, n->b));
    for (int i = 0; i < N; i++) RANK_CHECK(value[i] == a);
    return NULL;
}

static const char *first_rank(kn_comm *comm, void *ctx) {
    const first_steps *s = ctx;
    KN_FRAME();
    KN_SLOT(view);
    net n;
    enum first_pass which = s->of[kn_comm_rank(comm) > 0];
    float a = 1;
    RANK_OK(net_create(&n, comm, 256));
    RANK_OK(kn_optim_lr(n.sgd, 1));
    if (s->shards) RANK_OK(kn_parallel_shard(n.parallel, n.sgd));
    if (s->holds && kn_comm_rank(comm) > 0)
        RANK_OK(kn_hold(&view, kn_reshape(kn_grad(n.a), KN_SHAPE(N / 2, 2))));
    for (int i = 0; i < STEPS; i++) {
        RANK_OK(first_pass(&n, i ? OF_BOTH : which));
        RANK_CHECK(kn_parallel_finish(n.parallel) == (i ? KN_OK : s->finish));
        if (s->finish < 0) break;
        RANK_OK(kn_optim_step(n.sgd));
        for (int r = 0; r < 4; r++) a -= i || s->of[r > 0] == OF_BOTH ? 0.5f : 0;
        RANK_CHECK(!weights_check(&n, a));
    }
    net_destroy(&n);
    return NULL;
}

static void first_passes_of_zeros_take_the_order_of_others(void **state) {
    (void)state;
    for (int of = 1; of < 9; of++)
        for (int shards = 0; shards < 2; shards++)
            ranks_run(4, first_rank,
                      &(first_steps){.of = {of / 3, of % 3}, .shards = shards, .finish = KN_OK});
    ranks_run(4, first_rank, &(first_steps){.finish = KN_ERR_INVALID});
}

static void a_held_view_keeps_zeros_from_the_order_of_others(void **state) {
    (void)state;
    ranks_run(4, first_rank,
              &(first_steps){.of = {OF_BOTH, OF_ZEROS}, .holds = true, .finish = KN_ERR_INVALID});
    ranks_run(4, first_rank, &(first_steps){.of = {OF_ZEROS, OF_ZEROS}, .holds = true});
}

static const char *twice_rank(kn_comm *comm, void *ctx) {
    (void)ctx;
    net n;
    float g[N];
    RANK_OK(net_create(&n, comm, 0));
    for (int i = 0; i < 2; i++) {
        RANK_OK(pass_of_sums(&n, 1, true));
        RANK_OK(kn_parallel_finish(n.parallel));
        RANK_OK(kn_optim_step(n.sgd));
    }
    RANK_OK(pass_of_sums(&n, 10, false));
    RANK_OK(pass_of_sums(&n, 100, false));
    RANK_CHECK(kn_parallel_finish(n.parallel) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "two backward passes were averaged"));
    RANK_OK(kn_copy_out(g, sizeof g, kn_grad(n.b)));
    RANK_CHECK(g[0] == 0 && g[N - 1] == 0);
    net_destroy(&n);
    return NULL;
}

static void two_passes_are_noticed_beside_an_unused_parameter(void **state) {
    (void)state;
    ranks_run(2, twice_rank, NULL);
}

static const char *broken_rank(kn_comm *comm, void *ctx) {
    (void)ctx;
    net n = {0};
    kn_status status = net_create(&n, comm, 0); /* may hear of the abort on other ranks */
    if (kn_comm_rank(comm) == 0) {
        RANK_OK(status);
        kn_comm_abort(comm, "its data are gone");
        RANK_CHECK(kn_parallel_finish(n.parallel) == KN_ERR_PEER);
        RANK_CHECK(strstr(kn_last_error()->message, "its data are gone"));
    }
    net_destroy(&n);
    return NULL;
}

/* Where its first forward needs the ranks, the first backward is never reached. */
static void a_broken_communicator_is_the_error_before_a_missing_pass(void **state) {
    (void)state;
    ranks_run(2, broken_rank, NULL);
}

/* Of a rank whose objects stay. */
static void *pass_once(void *comm) {
    net n;
    if (net_create(&n, comm, 0) < 0 || pass_between(&n, false) < 0 ||
        kn_parallel_finish(n.parallel) < 0)
        _exit(1);
    return NULL;
}

static void threads_of_communicators_keep_no_process(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        kn_comm *comm[2];
        pthread_t thread;
        end_in_a_minute();
        if (kn_comm_sim_create(comm, 2, NULL) < 0) _exit(1);
        for (int r = 0; r < 2; r++)
            if (pthread_create(&thread, NULL, pass_once, comm[r]) != 0) _exit(1);
        pthread_exit(NULL);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

int main(void) {
    return RUN_TESTS(TEST(a_pass_that_fails_half_averaged_is_an_error_on_every_rank),
                     TEST(a_pass_that_failed_may_be_repeated),
                     TEST(a_view_of_a_gradient_on_one_rank_needs_an_order),
                     TEST(an_empty_gradient_may_have_a_place_on_each_rank),
                     TEST(a_parameter_frozen_on_one_rank_alone_is_named),
                     TEST(first_passes_of_zeros_take_the_order_of_others),
                     TEST(a_held_view_keeps_zeros_from_the_order_of_others),
                     TEST(two_passes_are_noticed_beside_an_unused_parameter),
                     TEST(a_broken_communicator_is_the_error_before_a_missing_pass),
                     TEST_LONG(threads_of_communicators_keep_no_process));
}
