/* Collectives of simulated ranks: results, bits, errors, ranks that fail. */
#include <knet/ops.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "collective_cases.h"
#include "order_cases.h"

static const int worlds[] = {1, 2, 3, 4, 8};

static void all_worlds(rank_fn fn) {
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) ranks_run(worlds[i], fn, NULL);
}

static void all_reduce_combines_the_values_of_all_ranks(void **state) {
    (void)state;
    all_worlds(check_all_reduce);
    if (!TEST_SANITIZED) ranks_run(16, check_all_reduce, NULL);
}
static void broadcast_copies_the_root(void **state) {
    (void)state;
    all_worlds(check_broadcast);
}
static void gather_and_scatter_go_by_the_order_of_the_ranks(void **state) {
    (void)state;
    all_worlds(check_gather_and_scatter);
}
static void messages_of_a_pair_arrive_in_order(void **state) {
    (void)state;
    ranks_run(2, check_messages, NULL);
    ranks_run(4, check_messages, NULL);
}

/* Of more bytes than a transport carries at once. */
static const char *long_message(kn_comm *comm, void *ctx) {
    KN_FRAME();
    int64_t n = (17 << 20) + 3;
    bool sends = kn_comm_rank(comm) == 0;
    kn_tensor *t = kn_zeros(KN_SHAPE(n));
    float *x = kn_data_mut(t);
    (void)ctx;
    RANK_CHECK(x);
    for (int64_t i = 0; i < n && sends; i++) x[i] = (float)(i % 251);
    RANK_OK(sends ? kn_comm_send(comm, t, 1) : kn_comm_receive(comm, t, 0));
    for (int64_t i = 0; i < n; i++) RANK_CHECK(x[i] == (float)(i % 251));
    return NULL;
}

static void a_long_message_arrives_whole(void **state) {
    (void)state;
    ranks_run(2, long_message, NULL);
}

static const char *agreement(kn_comm *comm, void *ctx) {
    int rank = kn_comm_rank(comm), last = kn_comm_size(comm) - 1;
    char text[300];
    (void)ctx;
    RANK_OK(kn_comm_agree(comm, "the net", "mlp"));
    kn_status status = kn_comm_agree(comm, "the net", rank == last ? "mlp 2" : "mlp");
    RANK_CHECK(status == (last ? KN_ERR_INVALID : KN_OK));
    snprintf(text, sizeof text,
             "the net differs between the ranks: rank 0 has 'mlp', rank %d 'mlp 2'", last);
    if (last) RANK_CHECK(strstr(kn_last_error()->message, text));
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    RANK_OK(kn_comm_agree(comm, "a long text", text));
    RANK_CHECK(kn_comm_agree(comm, "the net", NULL) == KN_ERR_INVALID);
    return kn_comm_barrier(comm) == KN_OK ? NULL : "broken";
}

static void ranks_agree_on_a_text(void **state) {
    (void)state;
    all_worlds(agreement);
}

static void values_of_the_host_are_combined(void **state) {
    (void)state;
    all_worlds(check_values);
}

/* --- bits --- */

enum { N_BITS = 100003 };

/* Of magnitudes so different that another order gives other bits. */
static float rough_at(int rank, int64_t i) {
    uint64_t z = ((uint64_t)rank + 1) * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 29)) * 0x94D049BB133111EBu;
    float x = (float)(int32_t)(z >> 32) / 2147483648.0f;
    return z & 64 ? x * 1e4f : x;
}

static const char *sum_is_in_the_order_of_ranks(kn_comm *comm, void *ctx) {
    int size = kn_comm_size(comm);
    (void)ctx;
    for (int64_t n = 1; n <= N_BITS; n = n * 7 + N_BITS % 7) {
        KN_FRAME();
        kn_tensor *t = kn_zeros(KN_SHAPE(n));
        float *x = kn_data_mut(t);
        for (int64_t i = 0; i < n; i++) x[i] = rough_at(kn_comm_rank(comm), i);
        RANK_OK(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
        for (int64_t i = 0; i < n; i++) {
            float sum = rough_at(0, i);
            for (int r = 1; r < size; r++) sum += rough_at(r, i);
            RANK_CHECK(memcmp(&sum, &x[i], sizeof sum) == 0);
        }
    }
    return NULL;
}

static void sums_have_the_bits_of_adding_in_the_order_of_ranks(void **state) {
    (void)state;
    all_worlds(sum_is_in_the_order_of_ranks);
}

/* --- errors --- */

static const char *wrong_calls(kn_comm *comm, void *ctx) {
    KN_FRAME();
    kn_tensor *t = kn_zeros(KN_SHAPE(4)), *h = kn_cast(t, KN_F16), *i = kn_cast(t, KN_I32);
    (void)ctx;
    RANK_CHECK(kn_comm_all_reduce(comm, h, KN_COMM_SUM) == KN_ERR_DTYPE);
    RANK_CHECK(kn_comm_all_reduce(comm, i, KN_COMM_MEAN) == KN_ERR_DTYPE);
    RANK_CHECK(strstr(kn_last_error()->message, "no mean of i32"));
    RANK_CHECK(kn_comm_all_reduce(comm, t, (kn_comm_op)7) == KN_ERR_INVALID);
    RANK_CHECK(kn_comm_all_reduce(comm, NULL, KN_COMM_SUM) == KN_ERR_INVALID);
    RANK_CHECK(kn_comm_broadcast(comm, t, 2) == KN_ERR_INVALID);
    RANK_CHECK(strstr(kn_last_error()->message, "no rank 2 of 2"));
    RANK_CHECK(kn_comm_send(comm, t, kn_comm_rank(comm)) == KN_ERR_INVALID);
    RANK_CHECK(kn_comm_all_gather(comm, t, t) == KN_ERR_SHAPE);
    RANK_CHECK(strstr(kn_last_error()->message, "[4] are not 2 parts of [4]"));
    /* none of these has used the world up */
    return kn_comm_barrier(comm) == KN_OK ? NULL : "barrier";
}

static void wrong_calls_name_the_values(void **state) {
    (void)state;
    ranks_run(2, wrong_calls, NULL);
}

static void options_are_checked(void **state) {
    kn_comm *comm[2];
    (void)state;
    assert_fails(kn_comm_sim_create(comm, 0, NULL), KN_ERR_INVALID, "0 ranks");
    assert_fails(kn_comm_sim_create(comm, 2, &(kn_comm_sim_options){.bandwidth = -1}),
                 KN_ERR_INVALID, "bandwidth -1");
    assert_fails(kn_comm_sim_create(comm, 2, &(kn_comm_sim_options){.reserved = {1}}),
                 KN_ERR_INVALID, "reserved");
    assert_fails(kn_comm_sim_create(comm, 2, &(kn_comm_sim_options){.timeout_seconds = INFINITY}),
                 KN_ERR_INVALID, "time-out inf s (0 to 1e9)");
    assert_fails(kn_comm_sim_create(comm, 2, &(kn_comm_sim_options){.latency_seconds = 1e11}),
                 KN_ERR_INVALID, "latency 1e+11 s");
    assert_fails(kn_comm_create(comm, "pigeon", NULL), KN_ERR_INVALID, "'pigeon'");
    kn_comm_destroy(NULL);
}

static void a_contradiction_names_the_variables_that_are_set(void **state) {
    kn_comm_launch launch;
    (void)state;
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_fails(kn_comm_launch_read(&launch), KN_ERR_INVALID,
                 "OMPI_COMM_WORLD_RANK=5, OMPI_COMM_WORLD_SIZE=2 contradict each other");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
    assert_fails(kn_comm_launch_read(&launch), KN_ERR_INVALID,
                 "OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_LOCAL_RANK=3 contradict each other");
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
}

static void a_wrong_word_is_an_error_without_a_launcher_too(void **state) {
    kn_comm_launch launch;
    (void)state;
    setenv("KNET_COMM", "timeout=banana", 1);
    assert_fails(kn_comm_launch_read(&launch), KN_ERR_INVALID, "KNET_COMM: 'timeout=banana'");
    setenv("KNET_COMM", "timeout=30s", 1);
    assert_ok(kn_comm_launch_read(&launch));
    unsetenv("KNET_COMM");
}

/* --- ranks that fail --- */

typedef struct failure {
    int rank;           /* which */
    int how;            /* 0: is killed; 1: hangs; 2: aborts */
    int after;          /* calls */
    _Atomic int n_left; /* ranks that still run */
} failure;

static const char *until_it_fails(kn_comm *comm, void *ctx) {
    failure *f = ctx;
    KN_FRAME();
    kn_tensor *t = kn_ones(KN_SHAPE(50000));
    for (int i = 0; i < 1000; i++) {
        if (i == f->after && kn_comm_rank(comm) == f->rank) {
            if (f->how == 0) kn_comm_sim_kill(comm);
            if (f->how == 2) kn_comm_abort(comm, "out of memory: 4 GiB for conv1");
            const struct timespec pause = {0, 1000000};
            while (f->how == 1 && atomic_load(&f->n_left) > 1) nanosleep(&pause, NULL);
            if (f->how == 1 && kn_comm_barrier(comm) != KN_ERR_PEER) return "it may go on";
            return NULL;
        }
        kn_status status =
            i % 2 ? kn_comm_all_reduce(comm, t, KN_COMM_MEAN) : kn_comm_barrier(comm);
        if (status < 0) {
            atomic_fetch_sub(&f->n_left, 1);
            RANK_CHECK(status == KN_ERR_PEER);
            return kn_comm_barrier(comm) == KN_ERR_PEER ? NULL : "not broken afterwards";
        }
    }
    return "no call failed";
}

static void fail_in(int size, failure f, double timeout, const char *what) {
    rank_run run[RANKS_MAX];
    char who[32], itself[48];
    atomic_store(&f.n_left, size);
    ranks_run_all(run, size, until_it_fails, &f,
                  &(kn_comm_sim_options){.timeout_seconds = timeout});
    snprintf(who, sizeof who, "rank %d of %d", f.rank, size);
    snprintf(itself, sizeof itself, "): this rank, %s (", who);
    for (int r = 0; r < size; r++) {
        if (run[r].found) fail_msg("rank %d: %s: %s", r, run[r].found, run[r].error.message);
        if (r == f.rank && f.how != 1) continue;
        if (!strstr(run[r].error.message, r == f.rank ? itself : who) ||
            !strstr(run[r].error.message, what) ||
            !(strstr(run[r].error.message, "all_reduce (call ") ||
              strstr(run[r].error.message, "barrier (call ")))
            fail_msg("rank %d does not say that %s %s: %s", r, who, what, run[r].error.message);
    }
}

static void a_killed_rank_is_named_by_all_others(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        int size = 2 + (int)test_random_below(5);
        fail_in(size,
                (failure){.rank = (int)test_random_below((uint64_t)size),
                          .how = 0,
                          .after = (int)test_random_below(40)},
                60, "ended");
    }
}

static void a_rank_that_hangs_is_named_after_the_time_out(void **state) {
    (void)state;
    fail_in(2, (failure){.rank = 1, .how = 1, .after = 7}, 0.3, "sent nothing for");
    fail_in(4, (failure){.rank = 2, .how = 1, .after = 6}, 0.3, "sent nothing for");
}

static void a_rank_that_fails_says_why(void **state) {
    (void)state;
    fail_in(2, (failure){.rank = 0, .how = 2, .after = 3}, 60, "out of memory: 4 GiB for conv1");
    fail_in(5, (failure){.rank = 4, .how = 2, .after = 8}, 60, "out of memory: 4 GiB for conv1");
}

/* Not a word of blame for rank 0, which only came late. */
static const char *says_who_gave_up(void) {
    const char *text = kn_last_error()->message;
    bool is_said = strstr(text, "rank 1 of 2 (") && strstr(text, ") failed in barrier (call ") &&
                   strstr(text, "): a signal ended its wait for rank 0 (") &&
                   strstr(text, ") after 0.0") && !strstr(text, "sent nothing");
    return is_said ? NULL : "another error";
}

static const char *interrupted(kn_comm *comm, void *ctx) {
    atomic_bool *is_over = ctx;
    if (kn_comm_rank(comm) == 1) {
        kn_comm_interrupt(comm, 0.05);
        kn_status status = kn_comm_barrier(comm);
        atomic_store(is_over, true);
        RANK_CHECK(status == KN_ERR_PEER);
        return says_who_gave_up();
    }
    while (!atomic_load(is_over)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    RANK_CHECK(kn_comm_barrier(comm) == KN_ERR_PEER);
    return says_who_gave_up();
}

static void an_interrupted_wait_ends(void **state) {
    (void)state;
    atomic_bool is_over = false;
    ranks_run(2, interrupted, &is_over);
}

/* Both ranks compute for longer than they may wait: one that comes in time is waited for. */
static const char *computes_after_an_interrupt(kn_comm *comm, void *ctx) {
    (void)ctx;
    kn_comm_interrupt(comm, 0.5);
    for (int i = 0; i < 2; i++) {
        nanosleep(&(struct timespec){0, 700000000}, NULL);
        RANK_OK(kn_comm_barrier(comm));
    }
    return NULL;
}

static void time_to_compute_after_an_interrupt_does_not_count(void **state) {
    (void)state;
    ranks_run(3, computes_after_an_interrupt, NULL);
}

/* Rank 1 comes late: rank 0 must wait for it. */
static const char *interrupted_late(kn_comm *comm, void *ctx) {
    static const double seconds[] = {INFINITY, 1e11, 1e9};
    (void)ctx;
    for (int i = 0; i < 3; i++) {
        kn_comm_interrupt(comm, seconds[i]);
        if (kn_comm_rank(comm)) nanosleep(&(struct timespec){0, 20000000}, NULL);
        RANK_OK(kn_comm_barrier(comm));
    }
    return NULL;
}

/* NaN and negative values are 0. */
static const char *interrupted_at_once(kn_comm *comm, void *ctx) {
    if (kn_comm_rank(comm)) return NULL;
    kn_comm_interrupt(comm, *(const double *)ctx);
    RANK_CHECK(kn_comm_barrier(comm) == KN_ERR_PEER);
    return NULL;
}

static void an_interrupt_may_leave_any_time(void **state) {
    double at_once[] = {-1e11, NAN};
    (void)state;
    ranks_run(2, interrupted_late, NULL);
    for (int i = 0; i < 2; i++) ranks_run(2, interrupted_at_once, &at_once[i]);
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

/* Rank 1 has told which call it waits in, and then hangs. */
static const char *hangs_after_a_wait(kn_comm *comm, void *ctx) {
    atomic_bool *is_over = ctx;
    if (kn_comm_rank(comm) == 0) pause_ms(150);
    RANK_OK(kn_comm_barrier(comm));
    if (kn_comm_rank(comm) == 1) {
        while (!atomic_load(is_over)) pause_ms(1);
        return NULL;
    }
    kn_status status = kn_comm_barrier(comm);
    atomic_store(is_over, true);
    RANK_CHECK(status == KN_ERR_PEER);
    return strstr(kn_last_error()->message, " s ago it waited in barrier") ? NULL : "no last call";
}

static void a_rank_that_hangs_is_named_with_its_last_wait(void **state) {
    (void)state;
    rank_run run[2];
    atomic_bool is_over = false;
    ranks_run_all(run, 2, hangs_after_a_wait, &is_over,
                  &(kn_comm_sim_options){.timeout_seconds = 0.4});
    for (int r = 0; r < 2; r++)
        if (run[r].found) fail_msg("rank %d: %s: %s", r, run[r].found, run[r].error.message);
}

/* Rank 0 hears of the first call of rank 1, and then makes more calls than are kept. */
static const char *far_ahead(kn_comm *comm, void *ctx) {
    (void)ctx;
    if (kn_comm_rank(comm) == 0) pause_ms(200);
    for (int i = 1; i <= 200; i++) {
        KN_FRAME();
        kn_tensor *t = kn_zeros(KN_SHAPE(i));
        RANK_OK(kn_comm_rank(comm) ? kn_comm_receive(comm, t, 0) : kn_comm_send(comm, t, 1));
    }
    if (kn_comm_rank(comm) == 1) pause_ms(50);
    RANK_OK(kn_comm_barrier(comm));
    return NULL;
}

static void calls_that_are_no_longer_kept_are_not_compared(void **state) {
    (void)state;
    ranks_run(2, far_ahead, NULL);
}

/* ctx: the communicators of a second world of the same threads, which ends first. */
static const char *both_worlds(kn_comm *comm, void *ctx) {
    kn_comm *other = ((kn_comm **)ctx)[kn_comm_rank(comm)];
    double x[2] = {1, 2};
    RANK_OK(kn_comm_values(comm, &x[0], 1, KN_COMM_SUM));
    RANK_OK(kn_comm_values(other, &x[1], 1, KN_COMM_SUM));
    RANK_CHECK(x[0] == 3 && x[1] == 6);
    kn_comm_abort(other, "its own affair");
    kn_comm_destroy(other);
    RANK_OK(kn_comm_values(comm, x, 2, KN_COMM_MAX));
    return x[1] == 6 ? NULL : "x[1]";
}

static void a_world_that_ends_leaves_others_alone(void **state) {
    (void)state;
    kn_comm *other[3];
    assert_ok(kn_comm_sim_create(other, 3, NULL));
    ranks_run(3, both_worlds, other);
}

static void ranks_whose_calls_differ_hear_both(void **state) {
    (void)state;
    for (int i = 0; i < ORDER_CASES; i++) ranks_run(2, check_order, (void *)&order_cases[i]);
    ranks_run(3, check_order, (void *)&order_cases[0]);
    ranks_run(5, check_order, (void *)&order_cases[7]);
}

static void a_forked_child_gets_an_error(void **state) {
    (void)state;
    ranks_run(2, check_fork, NULL);
}

int main(void) {
    return RUN_TESTS(
        TEST(all_reduce_combines_the_values_of_all_ranks), TEST(broadcast_copies_the_root),
        TEST(gather_and_scatter_go_by_the_order_of_the_ranks),
        TEST(messages_of_a_pair_arrive_in_order), TEST(a_long_message_arrives_whole),
        TEST(ranks_agree_on_a_text), TEST(values_of_the_host_are_combined),
        TEST(sums_have_the_bits_of_adding_in_the_order_of_ranks), TEST(wrong_calls_name_the_values),
        TEST(options_are_checked), TEST(a_contradiction_names_the_variables_that_are_set),
        TEST(a_wrong_word_is_an_error_without_a_launcher_too),
        TEST(a_killed_rank_is_named_by_all_others),
        TEST(a_rank_that_hangs_is_named_after_the_time_out), TEST(a_rank_that_fails_says_why),
        TEST(an_interrupted_wait_ends), TEST(time_to_compute_after_an_interrupt_does_not_count),
        TEST(an_interrupt_may_leave_any_time), TEST(a_rank_that_hangs_is_named_with_its_last_wait),
        TEST(calls_that_are_no_longer_kept_are_not_compared),
        TEST(a_world_that_ends_leaves_others_alone), TEST(ranks_whose_calls_differ_hear_both),
        TEST(a_forked_child_gets_an_error));
}
