/* Collectives under mpirun: the test starts itself with two ranks, and with three. */
#include <knet/ops.h>
#include <unistd.h>

#include "batchnorm_cases.h"
#include "collective_cases.h"
#include "mpirun.h"

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

/* One rank. */
static int rank_run_all(void) {
    kn_comm *comm = NULL;
    if (kn_comm_create(&comm, NULL, NULL) < 0) {
        fprintf(stderr, "%s\n", kn_last_error()->message);
        return 1;
    }
    const char *found = checks(comm);
    if (found)
        fprintf(stderr, "rank %d: %s: %s\n", kn_comm_rank(comm), found, kn_last_error()->message);
    int size = kn_comm_size(comm);
    if (!found && kn_comm_rank(comm) == 0) printf("%d ranks agree\n", size);
    fflush(stdout);
    kn_comm_destroy(comm);
    return found != NULL;
}

static void ranks_of(int n, const char *want) {
    char out[8192];
    int code = mpirun(out, sizeof out, n, "", "", "rank");
    if (code != 0 || !strstr(out, want)) fail_msg("mpirun -n %d: exit code %d: %s", n, code, out);
}

static void collectives_agree_under_mpirun(void **state) {
    (void)state;
    ranks_of(2, "2 ranks agree");
    ranks_of(3, "3 ranks agree");
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
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return rank_run_all();
    mpirun_needed(argv[0]);
    return RUN_TESTS(TEST(collectives_agree_under_mpirun),
                     TEST(ranks_that_mpi_does_not_know_are_an_error));
}
