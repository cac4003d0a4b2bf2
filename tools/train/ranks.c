/* Data-parallel training: sums, decisions and layers' state of all ranks. */
#include "ranks.h"

#include "layers/layer.h"

int kn__ranks_size(const kn_parallel *parallel) {
    return parallel ? kn_comm_size(kn_parallel_comm(parallel)) : 1;
}

bool kn__ranks_writes(const kn_parallel *parallel) {
    return !parallel || kn_comm_rank(kn_parallel_comm(parallel)) == 0;
}

kn_status kn__ranks_combine(kn_parallel *parallel, double value[], int n, kn_comm_op op) {
    if (kn__ranks_size(parallel) == 1) return KN_OK;
    return kn_comm_values(kn_parallel_comm(parallel), value, n, op);
}

kn_status kn__ranks_any(kn_parallel *parallel, bool *flag) {
    double value = *flag;
    KN_TRY(kn__ranks_combine(parallel, &value, 1, KN_COMM_MAX));
    *flag = value > 0;
    return KN_OK;
}

typedef struct visit {
    kn_comm *comm;
    kn_status status;
} visit;

/* Counts, and statistics of the joined batch, are the same on every rank already. */
static bool layer_mean(void *ctx, kn_layer *layer) {
    visit *v = ctx;
    if (kn__layer_is_synced(layer)) return true;
    for (int i = 0; v->status == KN_OK; i++) {
        kn_tensor *t = kn_layer_state_at(layer, i, NULL);
        if (!t) break;
        kn_dtype dtype = kn_tensor_dtype(t);
        if (dtype == KN_F32 || dtype == KN_F64)
            v->status = kn_comm_all_reduce(v->comm, t, KN_COMM_MEAN);
    }
    return v->status == KN_OK;
}

kn_status kn__ranks_state_mean(kn_parallel *parallel, kn_layer *net) {
    if (kn__ranks_size(parallel) == 1 || !net) return KN_OK;
    visit v = {kn_parallel_comm(parallel), KN_OK};
    (void)kn_layer_walk(net, layer_mean, &v);
    return v.status;
}
