/* Collectives under mpirun: the test starts itself with two ranks, and with three. */
#include <knet/ops.h>
#include <time.h>
#include <unistd.h>

#include "batchnorm_cases.h"
#include "collective_cases.h"
#include "mpirun.h"
#include "order_cases.h"

static const char *checks(kn_comm *comm) {
    static const rank_fn all[] = {check_all_reduce, check_broadcast, check_gather_and_scatter,
                                  check_values, check_batchnorm};
    RANK_CHECK(strcmp(kn_comm_kind(comm), "mpi") == 0);
    RANK_CHECK(kn_comm_local_size(comm) == kn_comm_size(comm));
    RANK_CHECK(kn_comm_local_rank(comm) == kn_comm_rank(comm));
    for (int i = 0; i < 5; i++) {
        const char *found = all[i](comm, NULL);
        if (found) return found;
    }
    return kn_comm_size(comm) % 2 ? NULL : check_messages(comm, NULL);
}

/* The others leave while rank 0 still calls. */
static const char *check_leaving(kn_comm *comm) {
    RANK_OK(kn_comm_barrier(comm));
    if (kn_comm_rank(comm)) return NULL;
    RANK_CHECK(kn_comm_barrier(comm) == KN_ERR_PEER);
    const char *text = kn_last_error()->message;   /* of the rank that heard of the other's call */
    for (int r = 1; r < kn_comm_size(comm); r++) { /* any of those that left */
        char theirs[64];
        snprintf(theirs, sizeof theirs, "calls barrier, rank %d calls destroy", r);
        if (strstr(text, theirs)) return NULL;
    }
    return strstr(text, "calls destroy, rank 0 calls barrier") ? NULL : text;
}

/* A second communicator of the same ranks has messages of its own, and ends first. */
static const char *check_two(kn_comm *comm) {
    kn_comm *other = NULL;
    double x[2] = {1, 2};
    int size = kn_comm_size(comm);
    RANK_OK(kn_comm_create(&other, NULL, NULL));
    RANK_OK(kn_comm_values(comm, &x[0], 1, KN_COMM_SUM));
    RANK_OK(kn_comm_values(other, &x[1], 1, KN_COMM_SUM));
    RANK_CHECK(x[0] == size && x[1] == 2 * size);
    kn_comm_destroy(other);
    RANK_OK(kn_comm_values(comm, x, 2, KN_COMM_MIN));
    return x[1] == 2 * size ? NULL : "x[1]";
}

static const char *checks_of(kn_comm *comm, const char *word) {
    if (strcmp(word, "all") == 0) return checks(comm);
    if (strcmp(word, "fork") == 0) return check_fork(comm, NULL);
    if (strcmp(word, "two") == 0) return check_two(comm);
    if (strcmp(word, "leave") == 0) return check_leaving(comm);
    return check_order(comm, (void *)&order_cases[atoi(word)]);
}

/* One rank. */
static int rank_run_all(const char *word) {
    kn_comm *comm = NULL;
    if (kn_comm_create(&comm, NULL, NULL) < 0) {
        fprintf(stderr, "%s\n", kn_last_error()->message);
        return 1;
    }
    const char *found = checks_of(comm, word);
    if (found)
        fprintf(stderr, "rank %d: %s: %s\n", kn_comm_rank(comm), found, kn_last_error()->message);
    int size = kn_comm_size(comm);
    if (!found && kn_comm_rank(comm) == 0) printf("%d ranks agree\n", size);
    fflush(stdout);
    int rank = kn_comm_rank(comm);
    kn_comm_destroy(comm);
    /* mpirun kills the others when a process ends whose world is broken: rank 0 is to be heard. */
    if (rank && strcmp(word, "leave") == 0) sleep(2);
    return found != NULL;
}

static void ranks_of(int n, const char *word, const char *want) {
    char out[8192], args[32];
    snprintf(args, sizeof args, "rank %s", word);
    int code = mpirun(out, sizeof out, n, "", "", args);
    if (code != 0 || !strstr(out, want))
        fail_msg("mpirun -n %d, %s: exit code %d: %s", n, word, code, out);
}

static void collectives_agree_under_mpirun(void **state) {
    (void)state;
    ranks_of(2, "all", "2 ranks agree");
    ranks_of(3, "all", "3 ranks agree");
}

/* Ends at once: the time-out is 120 s. */
static void broken_order(int n, const char *word) {
    char out[8192], args[32];
    struct timespec begin, end;
    snprintf(args, sizeof args, "rank %s", word);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    (void)mpirun(out, sizeof out, n, "", "", args);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!strstr(out, "ranks agree") || end.tv_sec - begin.tv_sec > 60)
        fail_msg("mpirun -n %d, %s: after %d s: %s", n, word, (int)(end.tv_sec - begin.tv_sec),
                 out);
}

static void ranks_whose_calls_differ_hear_both(void **state) {
    (void)state;
    for (int i = 0; i < ORDER_CASES; i++) {
        char word[8];
        snprintf(word, sizeof word, "%d", i);
        broken_order(2, word);
    }
}

static void a_rank_that_leaves_is_named(void **state) {
    (void)state;
    broken_order(2, "leave");
    broken_order(3, "leave");
}

static void a_forked_child_gets_an_error(void **state) {
    (void)state;
    ranks_of(2, "fork", "2 ranks agree");
}

static void a_second_communicator_has_messages_of_its_own(void **state) {
    (void)state;
    ranks_of(3, "two", "3 ranks agree");
}

/* srun without MPI's plug-in: each process is alone. */
static void ranks_that_mpi_does_not_know_are_an_error(void **state) {
    (void)state;
    kn_comm *comm = NULL;
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_LOCALID", "1", 1);
    kn_comm_launch launch;
    assert_ok(kn_comm_launch_read(&launch));
    assert_string_equal(launch.launcher, "srun");
    assert_int_equal(launch.rank, 1);
    assert_int_equal(launch.size, 4);
    assert_int_equal(launch.local_rank, 1);
    assert_fails(kn_comm_create(&comm, NULL, NULL), KN_ERR_INVALID, "srun --mpi=pmix");
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_LOCALID");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return rank_run_all(argc > 2 ? argv[2] : "all");
    mpirun_needed(argv[0]);
    return RUN_TESTS(TEST(collectives_agree_under_mpirun), TEST(ranks_whose_calls_differ_hear_both),
                     TEST(a_rank_that_leaves_is_named), TEST(a_forked_child_gets_an_error),
                     TEST(a_second_communicator_has_messages_of_its_own),
                     TEST(ranks_that_mpi_does_not_know_are_an_error));
}
