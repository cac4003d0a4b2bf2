/* Collectives under mpirun: the test starts itself with two ranks, and with three. */
#include <knet/ops.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "batchnorm_cases.h"
#include "collective_cases.h"
#include "main_end.h"
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

/* --- calls of MPI by the module, as this program sees them --- */

static atomic_int n_inside, n_together;

static void mpi_enter(void) {
    if (atomic_fetch_add(&n_inside, 1)) atomic_fetch_add(&n_together, 1);
    sched_yield(); /* longer than most calls */
}

static int mpi_leave(int result) {
    atomic_fetch_sub(&n_inside, 1);
    return result;
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    mpi_enter();
    return mpi_leave(PMPI_Isend(data, n, type, to, tag, comm, request));
}

int MPI_Irecv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request) {
    mpi_enter();
    return mpi_leave(PMPI_Irecv(data, n, type, from, tag, comm, request));
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    mpi_enter();
    return mpi_leave(PMPI_Test(request, done, status));
}

static const char *sums(kn_comm *comm, void *ctx) {
    (void)ctx;
    for (int i = 0; i < 2000; i++) {
        double x = kn_comm_rank(comm) + i;
        RANK_OK(kn_comm_values(comm, &x, 1, KN_COMM_SUM));
        RANK_CHECK(x == kn_comm_size(comm) * (i + 0.5 * (kn_comm_size(comm) - 1)));
    }
    return NULL;
}

/* Two communicators of the same ranks, each used by a thread. */
static const char *check_threads(kn_comm *comm) {
    rank_run other = {.fn = sums};
    pthread_t thread;
    RANK_OK(kn_comm_create(&other.comm, NULL, NULL));
    RANK_CHECK(!pthread_create(&thread, NULL, rank_main, &other));
    const char *found = sums(comm, NULL);
    pthread_join(thread, NULL);
    kn_comm_destroy(other.comm);
    RANK_CHECK(atomic_load(&n_together) == 0);
    return found ? found : other.found;
}

/* The program has MPI of its own: at a level that is too low, as most programs; and ended. */
static int rank_run_own(bool serves) {
    kn_comm *comm = NULL;
    int level = 0, want = serves ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, want, &level);
    for (int i = 0; i < 2; i++) {
        kn_status status = kn_comm_create(&comm, "mpi", NULL);
        bool fits = level >= MPI_THREAD_SERIALIZED;
        if (status != (fits ? KN_OK : KN_ERR_UNSUPPORTED)) return 1;
        if (!fits && !strstr(kn_last_error()->message, "MPI_THREAD_SERIALIZED")) return 2;
        if (fits) kn_comm_destroy(comm);
    }
    MPI_Finalize();
    if (kn_comm_create(&comm, "mpi", NULL) != KN_ERR_UNSUPPORTED) return 3;
    if (!strstr(kn_last_error()->message, "MPI has ended")) return 4;
    puts("the program's own MPI");
    return 0;
}

/* MPI ends with the last communicator. */
static int rank_run_one(void) {
    kn_comm *comm = NULL;
    if (kn_comm_create(&comm, "mpi", NULL) < 0) return 1;
    double x = 5;
    if (kn_comm_size(comm) != 1 || kn_comm_values(comm, &x, 1, KN_COMM_SUM) || x != 5) return 2;
    kn_comm_destroy(comm);
    if (kn_comm_create(&comm, "mpi", NULL) != KN_ERR_UNSUPPORTED) return 3;
    if (!strstr(kn_last_error()->message, "ended in this process with its last")) return 4;
    puts("one rank");
    return 0;
}

/* The others look meanwhile whether rank 0 lives. */
static const char *check_waiting(kn_comm *comm) {
    if (kn_comm_rank(comm) == 0) usleep(300000);
    RANK_OK(kn_comm_barrier(comm));
    return NULL;
}

static const char *checks_of(kn_comm *comm, const char *word) {
    if (strcmp(word, "all") == 0) return checks(comm);
    if (strcmp(word, "fork") == 0) return check_fork(comm, NULL);
    if (strcmp(word, "two") == 0) return check_two(comm);
    if (strcmp(word, "threads") == 0) return check_threads(comm);
    if (strcmp(word, "end_main") == 0) return check_waiting(comm);
    if (strcmp(word, "leave") == 0) return check_leaving(comm);
    return check_order(comm, (void *)&order_cases[atoi(word)]);
}

/* One rank. */
static int rank_run_all(const char *word) {
    kn_comm *comm = NULL;
    if (strcmp(word, "one") == 0) return rank_run_one();
    if (strncmp(word, "own", 3) == 0) return rank_run_own(strcmp(word, "own") == 0);
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

static void *rank_run_on(void *word) {
    wait_for_main_end();
    exit(rank_run_all(word));
}

/* MPI's own threads keep the process, so its last thread calls exit. */
static int rank_end_main(char *word) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, rank_run_on, word) != 0) return 1;
    pthread_exit(NULL);
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

static void a_rank_lives_on_after_its_main(void **state) {
    (void)state;
    ranks_of(2, "end_main", "2 ranks agree");
}

static void a_forked_child_gets_an_error(void **state) {
    (void)state;
    ranks_of(2, "fork", "2 ranks agree");
}

static void a_second_communicator_has_messages_of_its_own(void **state) {
    (void)state;
    ranks_of(3, "two", "3 ranks agree");
}

static void threads_never_call_mpi_together(void **state) {
    (void)state;
    ranks_of(2, "threads", "2 ranks agree");
}

static void a_communicator_of_one_rank_ends_mpi(void **state) {
    (void)state;
    ranks_of(1, "one", "one rank");
}

static void mpi_of_the_program_must_serve(void **state) {
    (void)state;
    ranks_of(1, "own", "the program's own MPI");
    ranks_of(2, "own", "the program's own MPI");
    ranks_of(1, "own_single", "the program's own MPI");
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
    setenv("PMI_SIZE", "4", 1); /* srun --mpi=pmi2 */
    setenv("PMI_RANK", "1", 1);
    assert_ok(kn_comm_launch_read(&launch));
    assert_string_equal(launch.launcher, "srun");
    assert_int_equal(launch.local_rank, 1);
    setenv("PMI_RANK", "3", 1); /* MPICH's mpiexec, inside a step of srun */
    setenv("MPI_LOCALRANKID", "2", 1);
    assert_ok(kn_comm_launch_read(&launch));
    assert_string_equal(launch.launcher, "mpirun");
    assert_int_equal(launch.rank, 3);
    assert_int_equal(launch.size, 4);
    assert_int_equal(launch.local_rank, 2);
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_LOCALID");
    assert_fails(kn_comm_launch_read(NULL), KN_ERR_INVALID, "out is NULL");
    setenv("KNET_COMM", "timeout=18446744073s", 1);
    assert_fails(kn_comm_create(&comm, NULL, NULL), KN_ERR_INVALID, "at most 1e9 s");
    unsetenv("KNET_COMM");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
    unsetenv("MPI_LOCALRANKID");
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[2], "end_main") == 0) return rank_end_main(argv[2]);
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return rank_run_all(argc > 2 ? argv[2] : "all");
    mpirun_needed(argv[0]);
    return RUN_TESTS(
        TEST(collectives_agree_under_mpirun), TEST(ranks_whose_calls_differ_hear_both),
        TEST(a_rank_that_leaves_is_named), TEST(a_rank_lives_on_after_its_main),
        TEST(a_forked_child_gets_an_error), TEST(a_second_communicator_has_messages_of_its_own),
        TEST(threads_never_call_mpi_together), TEST(a_communicator_of_one_rank_ends_mpi),
        TEST(mpi_of_the_program_must_serve), TEST(ranks_that_mpi_does_not_know_are_an_error));
}
