/* Batch norm over the batches of all ranks: joined batch, ranks that fail, misuse. */
#include "batchnorm_cases.h"

static void gradients_and_running_statistics_are_those_of_the_joined_batch(void **state) {
    (void)state;
    for (int size = 1; size <= 4; size++) ranks_run(size, check_batchnorm, NULL);
}

/* --- a rank that fails --- */

static const char *last_rank_ends(kn_comm *comm, void *ctx) {
    norm_net n;
    kn_parallel *parallel = NULL;
    int rank = kn_comm_rank(comm), size = kn_comm_size(comm), *in_backward = ctx;
    RANK_OK(norm_net_create(&n, KN_F32));
    RANK_OK(kn_parallel_create(&parallel, n.params, comm, NULL));
    n.ranks = kn_parallel_batch(parallel);
    if (rank == size - 1) {
        KN_TAPE(.threads = 1);
        if (*in_backward) RANK_CHECK(norm_loss(&n, 0, 0, 4, size));
        kn_comm_sim_kill(comm);
    } else {
        RANK_CHECK(norm_backward(&n, 0, 0, 4, size) == KN_ERR_PEER);
        RANK_CHECK(strstr(kn_last_error()->message, "all_gather"));
        RANK_CHECK(strstr(kn_last_error()->message, "rank 2 of 3"));
    }
    kn_parallel_destroy(parallel);
    norm_net_destroy(&n);
    return NULL;
}

static void a_rank_that_ends_is_named(void **state) {
    (void)state;
    for (int in_backward = 0; in_backward < 2; in_backward++)
        ranks_run(3, last_rank_ends, &in_backward);
}

/* --- misuse --- */

static kn_status no_gather(void *ctx, double all[], int64_t n) {
    (void)all;
    ++*(int *)ctx;
    return KN_FAIL(KN_ERR_IO, "no line for %d numbers", (int)n);
}

static void misuse_is_an_error_that_names_it(void **state) {
    (void)state;
    int n_calls = 0;
    kn_batch_ranks ranks = {no_gather, &n_calls, 2, 2};
    kn_batchnorm_options o = {.training = 1, .ranks = &ranks};
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(1, 3)));
    assert_null(kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o));
    assert_fails(kn_check(), KN_ERR_INVALID, "rank 2 of 2");
    ranks.rank = 1;
    ranks.gather_fn = NULL;
    assert_null(kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o));
    assert_fails(kn_check(), KN_ERR_INVALID, "without gather_fn");
    ranks.gather_fn = no_gather;
    assert_null(kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o));
    assert_fails(kn_check(), KN_ERR_IO, "no line for 7 numbers");
    assert_null(kn_batchnorm(kn_zeros(KN_SHAPE(0, 3)), KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o));
    assert_fails(kn_check(), KN_ERR_SHAPE, "one or more on every rank");
    assert_int_equal(n_calls, 1);
}

/* Two ranks of equal values. */
static kn_status twice(void *ctx, double all[], int64_t n) {
    (void)ctx;
    memcpy(all + n, all, (size_t)n * sizeof *all);
    return KN_OK;
}

static void second_gradients_of_a_shared_batch_are_an_error(void **state) {
    (void)state;
    const kn_batch_ranks ranks = {twice, NULL, 0, 2};
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_square(kn_ones(KN_SHAPE(4, 3)))), *d = NULL;
    kn_tensor *y = kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE,
                                &(kn_batchnorm_options){.training = 1, .ranks = &ranks});
    kn_tensor *loss = kn_sum(kn_square(y), KN_ALL, false);
    assert_fails(kn_gradients(&d, loss, &x, 1, &(kn_gradients_options){.again = 1}),
                 KN_ERR_UNSUPPORTED, "several ranks share");
}

int main(void) {
    return RUN_TESTS(TEST(gradients_and_running_statistics_are_those_of_the_joined_batch),
                     TEST(a_rank_that_ends_is_named), TEST(misuse_is_an_error_that_names_it),
                     TEST(second_gradients_of_a_shared_batch_are_an_error));
}
