/* comm/overlap: the share of communication hidden behind backward of a VGG-style net, on two
 * simulated ranks, at a bandwidth where it takes half of backward. comm/train_2x1: images/s of two
 * ranks with a thread each, beside one with two threads and the joined batch.
 * comm/mpi_allreduce_4m, _64m: two processes, beside MPI_Allreduce in the same run; the program
 * starts itself by mpirun. */
#include <knet/ops.h>
#include <knet/parallel.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scale.h"
#include "vgg.h"

#ifdef KN_HAS_MPI
#include <mpi.h>
#endif

static void check(kn_status status) {
    if (status >= 0) return;
    fprintf(stderr, "bench_comm: %s\n", kn_last_error()->message);
    exit(1);
}

/* --- overlap --- */

enum { BATCH = 32, STEPS = 10 };

typedef struct side {
    kn_comm *comm;
    double backward_ns; /* without communication */
    double bytes;       /* of the gradients */
    kn_parallel_stats stats;
} side;

static void *side_run(void *of) {
    side *s = of;
    vgg net;
    kn_parallel_stats first = {0};
    check(vgg_create(&net, BATCH, s->comm));
    for (int i = 0; i < STEPS + 2; i++) { /* the first step learns the order, two are not counted */
        if (i == 2) net.backward_ns = 0;
        if (i == 2 && s->comm) kn_parallel_stats_read(&first, sizeof first, net.parallel);
        check(vgg_step(&net, 1));
    }
    s->backward_ns = net.backward_ns / STEPS;
    s->bytes = 4.0 * (double)kn_params_numel(net.params);
    if (s->comm) kn_parallel_stats_read(&s->stats, sizeof s->stats, net.parallel);
    s->stats.reduce_ns -= first.reduce_ns;
    s->stats.wait_ns -= first.wait_ns;
    vgg_destroy(&net);
    return NULL;
}

static void pair_run(side s[2]) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, side_run, &s[1]) != 0) exit(1);
    side_run(&s[0]);
    pthread_join(thread, NULL);
}

static void overlap(void) {
    side alone[2] = {{0}}, both[2] = {{0}};
    kn_comm *comm[2];
    pair_run(alone);
    double bandwidth = alone[0].bytes / (0.5e-9 * alone[0].backward_ns);
    check(kn_comm_sim_create(comm, 2, &(kn_comm_sim_options){.bandwidth = bandwidth}));
    for (int r = 0; r < 2; r++) both[r].comm = comm[r];
    pair_run(both);
    for (int r = 0; r < 2; r++) kn_comm_destroy(comm[r]);
    double reduce = (double)both[0].stats.reduce_ns, wait = (double)both[0].stats.wait_ns;
    bench_emit("comm", "overlap", reduce > 0 ? 1 - wait / reduce : 0, "share", 0.8);
}

/* --- MPI --- */

#ifdef KN_HAS_MPI
static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void all_reduce_pair(kn_comm *comm, const char *metric, int64_t bytes, int n) {
    KN_FRAME();
    double ours[255], theirs[255], ratio[255];
    kn_tensor *t = kn_zeros(KN_SHAPE(bytes / 4));
    float *data = kn_data_mut(t);
    if (!data) check(kn_check());
    for (int i = -1; i < n; i++) { /* the first is not counted */
        int at = i < 0 ? 0 : i;
        check(kn_comm_barrier(comm));
        uint64_t begin = bench_now_ns();
        check(kn_comm_all_reduce(comm, t, KN_COMM_SUM));
        uint64_t middle = bench_now_ns();
        check(kn_comm_barrier(comm));
        uint64_t again = bench_now_ns();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        ours[at] = (double)bytes / (double)(middle - begin);
        theirs[at] = (double)bytes / (double)(bench_now_ns() - again);
        ratio[at] = ours[at] / theirs[at];
    }
    qsort(ours, (size_t)n, sizeof *ours, by_value);
    qsort(theirs, (size_t)n, sizeof *theirs, by_value);
    qsort(ratio, (size_t)n, sizeof *ratio, by_value);
    if (kn_comm_rank(comm) == 0)
        bench_emit_ratio("comm", metric, ours[n / 2], "GB/s", theirs[n / 2], ratio[n / 2]);
}

static double images_per_second(vgg *net, int batch, int threads, int n) {
    uint64_t begin = bench_now_ns();
    for (int i = 0; i < n; i++) check(vgg_step(net, threads));
    return 1e9 * batch * n / (double)(bench_now_ns() - begin);
}

/* In turns; rank 1 waits asleep while rank 0 has the machine. */
static int train_run(void) {
    enum { ROUNDS = 5 };
    kn_comm *comm = NULL;
    vgg pair, one;
    double ours[ROUNDS], theirs[ROUNDS], ratio[ROUNDS];
    int n = bench_quick() ? 4 : 8;
    check(kn_comm_create(&comm, NULL, NULL));
    int rank = kn_comm_rank(comm);
    check(vgg_create(&pair, BATCH, comm));
    if (rank == 0) check(vgg_create(&one, 2 * BATCH, NULL));
    for (int i = -1; i < ROUNDS; i++) { /* the first is not counted */
        int at = i < 0 ? 0 : i;
        check(kn_comm_barrier(comm));
        ours[at] = images_per_second(&pair, 2 * BATCH, 1, n);
        check(kn_comm_barrier(comm));
        if (rank == 0) theirs[at] = images_per_second(&one, 2 * BATCH, 2, n);
        if (rank == 0) ratio[at] = ours[at] / theirs[at];
    }
    if (rank == 0) {
        qsort(ours, ROUNDS, sizeof *ours, by_value);
        qsort(theirs, ROUNDS, sizeof *theirs, by_value);
        qsort(ratio, ROUNDS, sizeof *ratio, by_value);
        bench_emit_ratio("comm", "train_2x1", ours[ROUNDS / 2], "images/s", theirs[ROUNDS / 2],
                         ratio[ROUNDS / 2]);
        vgg_destroy(&one);
    }
    fflush(stdout);
    vgg_destroy(&pair);
    kn_comm_destroy(comm);
    return 0;
}

static int ranks_run(void) {
    kn_comm *comm = NULL;
    check(kn_comm_create(&comm, NULL, NULL));
    all_reduce_pair(comm, "mpi_allreduce_4m", (int64_t)4 << 20, bench_quick() ? 63 : 255);
    all_reduce_pair(comm, "mpi_allreduce_64m", (int64_t)64 << 20, 15);
    fflush(stdout);
    kn_comm_destroy(comm);
    return 0;
}
#endif

static void mpi(const char *self, const char *what, const char *binding) {
    char command[4096];
    snprintf(command, sizeof command,
             "OMPI_MCA_rmaps_base_oversubscribe=1 timeout 300 mpirun --allow-run-as-root "
             "--oversubscribe %s -n 2 %s %s %s </dev/null",
             binding, self, what, bench_quick() ? "--quick" : "");
    fflush(stdout);
#ifdef KN_HAS_MPI
    bool works = system(command) == 0;
#else
    bool works = false;
#endif
    if (!works) fprintf(stderr, "bench_comm: no MPI, or no mpirun: comm/%s is left out\n", what);
}

int main(int argc, char **argv) {
    bool is_rank = argc > 1 && strcmp(argv[1], "ranks") == 0;
    bool trains = argc > 1 && strcmp(argv[1], "train") == 0;
    bench_init(argc - (is_rank || trains), argv + (is_rank || trains));
#ifdef KN_HAS_MPI
    if (is_rank) return ranks_run();
    if (trains) return train_run();
#endif
    overlap();
    bench_scale();
    bench_stages();
    mpi(argv[0], "train", "--bind-to none");
    mpi(argv[0], "ranks", "");
    return 0;
}
