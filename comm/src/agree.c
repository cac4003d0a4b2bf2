/* Checks that the ranks make the same call: each announces its call to the others before its data.
 * Data of another length than a receiver's, or under another call's tag, would be lost, taken for
 * something else, or waited for. */
#include <inttypes.h>
#include <knet/prof_metric.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "units.h"

static kn__says says_of(const kn__call *call) {
    kn__says says = {.n = call->n, .dtype = (int32_t)call->dtype, .op = (int32_t)call->op};
    snprintf(says.name, sizeof says.name, "%s", call->name);
    says.root = call->root;
    return says;
}

/* "all_reduce of 500 f32 (sum)", "broadcast of 12 i64 from rank 1", "barrier" */
static const char *says_text(char *out, size_t bytes, const kn__says *says) {
    static const char *const op[] = {"sum", "mean", "max", "min"};
    char what[64] = "", how[32] = "";
    if (says->n >= 0)
        snprintf(what, sizeof what, " of %" PRId64 " %s", says->n,
                 kn_dtype_name((kn_dtype)says->dtype));
    if (strstr(says->name, "reduce") && (unsigned)says->op < 4)
        snprintf(how, sizeof how, " (%s)", op[says->op]);
    if (strcmp(says->name, "broadcast") == 0)
        snprintf(how, sizeof how, " from rank %d", says->root);
    snprintf(out, bytes, "%.15s%s%s", says->name, what, how);
    return out;
}

static kn_status begin(kn_comm *comm, int peer, bool sends, bool receives) {
    if (receives)
        KN_TRY(kn__comm_receive(comm, &comm->agree[peer], &comm->theirs[peer], sizeof(kn__says),
                                peer, KN__TAG_CALL));
    if (sends)
        KN_TRY(kn__comm_send(comm, &comm->agree[comm->size + peer], &comm->mine, sizeof(kn__says),
                             peer, KN__TAG_CALL));
    return KN_OK;
}

kn_status kn__comm_call(kn_comm *comm, kn__call call) {
    if (kn__comm_is_forked(comm)) return kn__comm_fail_forked(comm, call.name);
    if (atomic_load(&comm->broken)) return kn__comm_fail_broken(comm);
    comm->now = call;
    comm->now.number = atomic_fetch_add(&comm->n_calls, 1) + 1;
    comm->now.bytes = call.n > 0 ? (uint64_t)call.n * kn_dtype_bytes(call.dtype) : 0;
    kn_prof_metric(0, comm->now.bytes);
    return KN_OK;
}

kn_status kn__comm_together(kn_comm *comm, kn__call call) {
    KN_TRY(kn__comm_call(comm, call));
    comm->mine = says_of(&comm->now);
    memset(comm->agree, 0, 2 * (size_t)comm->size * sizeof *comm->agree);
    for (int i = 1; i < comm->size; i++)
        KN_TRY(begin(comm, (comm->rank + i) % comm->size, true, true));
    comm->n_agree = comm->size > 1 ? 2 * comm->size : 0;
    return KN_OK;
}

kn_status kn__comm_pair(kn_comm *comm, kn__call call, int peer, bool sends) {
    KN_TRY(kn__comm_call(comm, call));
    comm->mine = says_of(&comm->now);
    memset(comm->agree, 0, 2 * (size_t)comm->size * sizeof *comm->agree);
    KN_TRY(begin(comm, peer, sends, !sends));
    comm->n_agree = 2 * comm->size;
    return KN_OK;
}

static bool is_same(const kn__says *mine, const kn__says *theirs) {
    bool meets = strcmp(mine->name, "receive") == 0 ? strcmp(theirs->name, "send") == 0
                                                    : strcmp(mine->name, theirs->name) == 0;
    return meets && mine->n == theirs->n && mine->dtype == theirs->dtype &&
           mine->op == theirs->op && mine->root == theirs->root;
}

kn_status kn__comm_agreed(kn_comm *comm) {
    char mine[96], theirs[96], what[256];
    int n = comm->n_agree;
    comm->n_agree = 0;
    if (!n) return KN_OK;
    for (int r = 0; r < comm->size; r++) comm->theirs_due[r] = comm->agree[r].pending;
    KN_TRY(kn__comm_wait(comm, comm->agree, n, 4, comm->agree, n));
    for (int r = 0; r < comm->size; r++) {
        if (!comm->theirs_due[r] || is_same(&comm->mine, &comm->theirs[r])) continue;
        comm->theirs[r].name[sizeof comm->theirs[r].name - 1] = '\0';
        snprintf(what, sizeof what, "calls %s, rank %d calls %s",
                 says_text(theirs, sizeof theirs, &comm->theirs[r]), comm->rank,
                 says_text(mine, sizeof mine, &comm->mine));
        return kn__comm_fail_by(comm, r, what);
    }
    return KN_OK;
}
