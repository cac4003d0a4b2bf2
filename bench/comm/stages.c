/* comm/pipeline_overlap: two ranks, each a stage of one model, pass micro-batches to each other:
 * the time that the schedule needs without any cost, (M + S - 1) / (M S) of one rank's, divided by
 * the measured time. The stages sleep, as two processors are shared with other work. */
#include <knet/comm.h>
#include <knet/ops.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scale.h"

enum { MICRO = 8, ROUNDS = 5, FORWARD_MS = 5, BACKWARD_MS = 10, WIDTH = 64 << 10 };

static void check(kn_status status) {
    if (status >= 0) return;
    fprintf(stderr, "bench_comm: %s\n", kn_last_error()->message);
    exit(1);
}

static void nap(int ms) {
    const struct timespec time = {0, ms * 1000000L};
    (void)nanosleep(&time, NULL);
}

/* A stage's input comes from the one before it, and its gradient goes back there. */
static void pass(kn_comm *comm, kn_tensor *t, int ms, int from, int to) {
    for (int m = 0; m < MICRO; m++) {
        if (from >= 0) check(kn_comm_receive(comm, t, from));
        nap(ms);
        if (to >= 0) check(kn_comm_send(comm, t, to));
    }
}

static void *stage_run(void *of) {
    kn_comm *comm = of;
    bool is_first = kn_comm_rank(comm) == 0;
    KN_FRAME();
    kn_tensor *t = kn_zeros(KN_SHAPE(WIDTH));
    check(kn_check());
    pass(comm, t, FORWARD_MS, is_first ? -1 : 0, is_first ? 1 : -1);
    pass(comm, t, BACKWARD_MS, is_first ? 1 : -1, is_first ? -1 : 0);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_stages(void) {
    const double ideal_ns = 1e6 * (FORWARD_MS + BACKWARD_MS) * (MICRO + 1);
    double share[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        kn_comm *comm[2];
        pthread_t thread;
        check(kn_comm_sim_create(
            comm, 2, &(kn_comm_sim_options){.bandwidth = 12.5e9, .latency_seconds = 5e-6}));
        uint64_t begin = bench_now_ns();
        if (pthread_create(&thread, NULL, stage_run, comm[1]) != 0) exit(1);
        stage_run(comm[0]);
        pthread_join(thread, NULL);
        share[i] = ideal_ns / (double)(bench_now_ns() - begin);
        for (int r = 0; r < 2; r++) kn_comm_destroy(comm[r]);
    }
    qsort(share, ROUNDS, sizeof *share, by_value);
    bench_emit("comm", "pipeline_overlap", share[ROUNDS / 2], "share", 0.9);
}
