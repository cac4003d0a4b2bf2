/* Batch norm over the batches of all ranks. */
#include <knet/prof_metric.h>

#include "parallel.h"

/* Runs after the buckets that were posted before: on every rank the same ones. */
static kn_status gather(void *ctx, double all[], int64_t n) {
    KN_SCOPE("statistics of all ranks");
    kn_comm *comm = ctx;
    size_t bytes = (size_t)n * sizeof *all;
    kn__comm_drain(comm);
    KN_TRY(kn__comm_together(
        comm, (kn__call){.name = "all_gather", .n = n * comm->size, .dtype = KN_F64}));
    return comm->size == 1 ? KN_OK : kn__all_gather_equal(comm, all, bytes);
}

void kn__parallel_batch_init(kn_parallel *p) {
    p->batch = (kn_batch_ranks){
        .gather_fn = gather, .ctx = p->comm, .rank = p->comm->rank, .size = p->comm->size};
}

const kn_batch_ranks *kn_parallel_batch(const kn_parallel *parallel) { return &parallel->batch; }
