/* The process and the memory that belong to a communicator. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks.h"

enum { HUGE_PAGE = 2 << 20 };

bool kn__comm_is_forked(const kn_comm *comm) {
    int64_t pid = comm->peer ? comm->peer[comm->rank].pid : 0;
    return pid && pid != getpid();
}

kn_status kn__comm_fail_forked(const kn_comm *comm, const char *name) {
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: the communicator belongs to process %" PRId64
                   "; process %d was forked from it and cannot use it",
                   name, comm->peer[comm->rank].pid, (int)getpid());
}

kn_status kn__comm_scratch(void **out, kn_comm *comm, size_t bytes) {
    if (comm->scratch_bytes < bytes) {
        free(comm->scratch);
        comm->scratch_bytes = 0;
        size_t page = bytes < HUGE_PAGE / 2 ? 4096 : HUGE_PAGE;
        size_t whole = (bytes + page - 1) / page * page;
        comm->scratch = aligned_alloc(page, whole);
        if (!comm->scratch)
            return KN_FAIL(KN_ERR_OOM, "%s: no host memory for %zu bytes", comm->now.name, bytes);
        /* MPI copies from process to process page by page. */
        if (page == HUGE_PAGE) (void)madvise(comm->scratch, whole, MADV_HUGEPAGE);
        comm->scratch_bytes = whole;
    }
    KN_ASSERT(comm->scratch_bytes >= bytes);
    *out = comm->scratch;
    return KN_OK;
}

#if KN_CHECKED >= 2
/* Whether the messages of earlier calls are over: the next ones take their places. */
static bool none_pending(const kn_comm *comm) {
    for (int i = 0; i < comm->n_ask; i++)
        if (comm->ask[i].pending) return false;
    return true;
}
#endif

kn_status kn__comm_asks(kn__ask **out, kn_comm *comm, int n) {
    KN_ASSERT_SLOW(none_pending(comm));
    if (comm->n_ask < n) {
        kn__ask *ask = realloc(comm->ask, (size_t)n * sizeof *ask);
        if (!ask) return KN_FAIL(KN_ERR_OOM, "%s: no host memory", comm->now.name);
        comm->ask = ask;
        comm->n_ask = n;
    }
    memset(comm->ask, 0, (size_t)n * sizeof *comm->ask);
    *out = comm->ask;
    return KN_OK;
}
