/* Runs a function on every rank of a simulated world, each on a thread of its own. */
#ifndef RANKS_TEST_H
#define RANKS_TEST_H

#include <knet/comm.h>
#include <pthread.h>

#include "test.h"

enum { RANKS_MAX = 16 };

/* Returns what this rank's checks found: NULL, or a static text. Runs on threads, so it must not
 * assert. */
typedef const char *(*rank_fn)(kn_comm *comm, void *ctx);

typedef struct rank_run {
    kn_comm *comm;
    rank_fn fn;
    void *ctx;
    const char *found;
    kn_error error; /* the thread's last */
} rank_run;

static void *rank_main(void *of) {
    rank_run *r = of;
    r->found = r->fn(r->comm, r->ctx);
    r->error = *kn_last_error();
    return NULL;
}

/* Runs fn on the ranks of a world and destroys it. */
__attribute__((unused)) static void ranks_run_all(rank_run run[], int n, rank_fn fn, void *ctx,
                                                  const kn_comm_sim_options *options) {
    kn_comm *comm[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    assert_ok(kn_comm_sim_create(comm, n, options));
    for (int r = 0; r < n; r++) {
        run[r] = (rank_run){.comm = comm[r], .fn = fn, .ctx = ctx};
        assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &run[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) kn_comm_destroy(comm[r]);
}

/* The same, where no rank may find anything. */
__attribute__((unused)) static void ranks_run(int n, rank_fn fn, void *ctx) {
    rank_run run[RANKS_MAX];
    ranks_run_all(run, n, fn, ctx, &(kn_comm_sim_options){.timeout_seconds = 60});
    for (int r = 0; r < n; r++)
        if (run[r].found)
            fail_msg("rank %d of %d: %s (%s)", r, n, run[r].found, run[r].error.message);
}

/* In a rank's function. */
#define RANK_CHECK(expr)                                                                           \
    do {                                                                                           \
        if (!(expr)) return #expr;                                                                 \
    } while (0)
#define RANK_OK(expr) RANK_CHECK((expr) == KN_OK)

#endif
