/* comm/overlap: the share of communication hidden behind backward, on two simulated ranks, at a
 * bandwidth where it takes half of backward. comm/mpi_allreduce_4m, _64m: two processes, beside
 * MPI_Allreduce in the same run; the program starts itself by mpirun. */
#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scale.h"

#ifdef KN_HAS_MPI
#include <mpi.h>
#endif

static void check(kn_status status) {
    if (status >= 0) return;
    fprintf(stderr, "bench_comm: %s\n", kn_last_error()->message);
    exit(1);
}

/* --- overlap --- */

enum { WIDTH = 512, LAYERS = 12, BATCH = 256, STEPS = 20 };

typedef struct side {
    kn_comm *comm;
    double backward_ns; /* without communication */
    kn_parallel_stats stats;
} side;

static kn_status step(kn_params *params, double *backward_ns) {
    KN_TAPE(.threads = 1);
    kn_tensor *x = kn_full(KN_SHAPE(BATCH, WIDTH), 0.01);
    for (int i = 0; i < LAYERS; i++)
        x = kn_tanh(kn_linear(x, kn_params_at(params, i, NULL), KN_NONE));
    kn_tensor *loss = kn_sum(x, KN_ALL, false);
    KN_TRY(kn_check());
    uint64_t begin = bench_now_ns();
    KN_TRY(kn_backward(loss));
    *backward_ns += (double)(bench_now_ns() - begin);
    return KN_OK;
}

static void *side_run(void *of) {
    side *s = of;
    kn_params *params = NULL;
    kn_optim *optim = NULL;
    kn_parallel *parallel = NULL;
    check(kn_params_create(&params, NULL));
    for (int i = 0; i < LAYERS; i++)
        kn_param(params, KN_SHAPE(WIDTH, WIDTH), kn_init_xavier(), "w%d", i);
    check(kn_sgd_create(&optim, params, 1e-3, NULL));
    if (s->comm) check(kn_parallel_create(&parallel, params, s->comm, NULL));
    double ns = 0;
    kn_parallel_stats first = {0};
    for (int i = 0; i < STEPS + 2; i++) {
        if (i == 2) ns = 0;
        check(step(params, &ns));
        if (parallel) check(kn_parallel_finish(parallel));
        if (parallel && i == 1) kn_parallel_stats_read(&first, sizeof first, parallel);
        check(kn_optim_step(optim));
    }
    s->backward_ns = ns / STEPS;
    if (parallel) kn_parallel_stats_read(&s->stats, sizeof s->stats, parallel);
    s->stats.reduce_ns -= first.reduce_ns;
    s->stats.wait_ns -= first.wait_ns;
    kn_parallel_destroy(parallel);
    kn_optim_destroy(optim);
    kn_params_destroy(params);
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
    double bytes = 4.0 * WIDTH * WIDTH * LAYERS;
    double bandwidth = bytes / (0.5e-9 * alone[0].backward_ns);
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
    double ours[64], theirs[64], ratio[64];
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

static int ranks_run(void) {
    kn_comm *comm = NULL;
    check(kn_comm_create(&comm, NULL, NULL));
    all_reduce_pair(comm, "mpi_allreduce_4m", (int64_t)4 << 20, bench_quick() ? 15 : 63);
    all_reduce_pair(comm, "mpi_allreduce_64m", (int64_t)64 << 20, bench_quick() ? 5 : 15);
    fflush(stdout);
    kn_comm_destroy(comm);
    return 0;
}
#endif

static void mpi(const char *self) {
    char command[4096];
    snprintf(command, sizeof command,
             "OMPI_MCA_rmaps_base_oversubscribe=1 timeout 300 mpirun --allow-run-as-root "
             "--oversubscribe -n 2 %s ranks %s </dev/null",
             self, bench_quick() ? "--quick" : "");
    fflush(stdout);
#ifdef KN_HAS_MPI
    bool works = system(command) == 0;
#else
    bool works = false;
#endif
    if (!works) fprintf(stderr, "bench_comm: no MPI, or no mpirun: comm/mpi_* are left out\n");
}

int main(int argc, char **argv) {
    bool is_rank = argc > 1 && strcmp(argv[1], "ranks") == 0;
    bench_init(argc - is_rank, argv + is_rank);
#ifdef KN_HAS_MPI
    if (is_rank) return ranks_run();
#endif
    overlap();
    bench_scale();
    mpi(argv[0]);
    return 0;
}
