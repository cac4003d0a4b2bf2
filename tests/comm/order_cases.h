/* Ranks whose calls differ, on threads and under mpirun: the error names both calls. */
#ifndef ORDER_CASES_H
#define ORDER_CASES_H

#include <knet/ops.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks_test.h"

typedef struct order_case {
    const char *zero, *others; /* what rank 0 calls, what the others call */
} order_case;

static const order_case order_cases[] = {
    {"all_reduce of 500 f32 (sum)", "all_reduce of 400 f32 (sum)"},
    {"all_reduce of 90000 f32 (mean)", "all_reduce of 3 f32 (mean)"},
    {"all_reduce of 0 f32 (sum)", "all_reduce of 7 f32 (sum)"},
    {"all_reduce of 500 f32 (sum)", "all_reduce of 500 i32 (sum)"},
    {"all_reduce of 500 f32 (sum)", "all_reduce of 500 f32 (max)"},
    {"broadcast of 90000 f32 from rank 0", "broadcast of 90000 f32 from rank 1"},
    {"broadcast of 9 f32 from rank 1", "all_reduce of 9 f32 (sum)"},
    {"barrier", "all_reduce of 90000 f32 (sum)"},
    {"send of 3 f32", "receive of 4 f32"},
    {"broadcast of 9 f32 from rank 0", "broadcast of 9 f32 from rank 1"},
    {"receive of 9000 f32", "all_reduce of 9000 f32 (sum)"},
};
enum { ORDER_CASES = sizeof order_cases / sizeof *order_cases };

static kn_status order_call(kn_comm *comm, const char *what) {
    KN_FRAME();
    char name[16] = "", dtype[8] = "", word[16] = "";
    int n = 0, root = 0;
    sscanf(what, "%15s of %d %7s", name, &n, dtype);
    sscanf(strchr(what, '(') ? strchr(what, '(') : "", "(%15[a-z]", word);
    if (strstr(what, "from rank ")) root = atoi(strstr(what, "from rank ") + 10);
    kn_tensor *t = kn_zeros(KN_SHAPE(n));
    if (strcmp(dtype, "i32") == 0) t = kn_cast(t, KN_I32);
    if (strcmp(name, "barrier") == 0) return kn_comm_barrier(comm);
    if (strcmp(name, "broadcast") == 0) return kn_comm_broadcast(comm, t, root);
    if (strcmp(name, "send") == 0) return kn_comm_send(comm, t, 1);
    if (strcmp(name, "receive") == 0) return kn_comm_receive(comm, t, 1 - kn_comm_rank(comm));
    return kn_comm_all_reduce(comm, t,
                              strcmp(word, "max") == 0    ? KN_COMM_MAX
                              : strcmp(word, "mean") == 0 ? KN_COMM_MEAN
                                                          : KN_COMM_SUM);
}

/* ctx: an order_case. A call that only sends, or has no data, may be over before another rank
 * looks: a later one fails then. */
__attribute__((unused)) static const char *check_order(kn_comm *comm, void *ctx) {
    const order_case *c = ctx;
    kn_status status = order_call(comm, kn_comm_rank(comm) ? c->others : c->zero);
    bool may_end = strncmp(c->zero, "send", 4) == 0 || strstr(c->zero, "of 0 ") ||
                   strcmp(c->zero, "broadcast of 9 f32 from rank 0") == 0;
    for (int i = 0; i < 3 && status == KN_OK && may_end; i++) status = kn_comm_barrier(comm);
    RANK_CHECK(status == KN_ERR_PEER);
    RANK_CHECK(strstr(kn_last_error()->message, c->zero));
    RANK_CHECK(strstr(kn_last_error()->message, c->others));
    RANK_CHECK(strstr(kn_last_error()->message, "rank 0"));
    return kn_comm_barrier(comm) == KN_ERR_PEER ? NULL : "not broken afterwards";
}

/* A child of fork gets an error, ends, and the parent continues. */
__attribute__((unused)) static const char *check_fork(kn_comm *comm, void *ctx) {
    int status = -1;
    (void)ctx;
    RANK_OK(kn_comm_barrier(comm));
    pid_t child = kn_comm_rank(comm) == 0 ? fork() : -1;
    if (child == 0) {
        alarm(20);
        bool says = kn_comm_barrier(comm) == KN_ERR_INVALID &&
                    strstr(kn_last_error()->message, "was forked from it");
        kn_comm_abort(comm, "the child's own affair");
        kn_comm_destroy(comm);
        _exit(says ? 7 : 8);
    }
    if (child > 0) RANK_CHECK(waitpid(child, &status, 0) == child && status == 7 << 8);
    RANK_OK(kn_comm_barrier(comm));
    return NULL;
}

#endif
