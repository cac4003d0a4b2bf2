/* Data-parallel training: sums, decisions and layers' state of all ranks. */
#include "ranks.h"

#include <inttypes.h>
#include <knet/op.h>
#include <stdio.h>

#include "layers/layer.h"
#include "loader.h"

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

kn_status kn__ranks_data_check(kn_parallel *parallel, const kn_loader *loader) {
    char text[64] = "each rank its own";
    if (kn__ranks_size(parallel) == 1) return KN_OK;
    if (loader->options.n_ranks > 1)
        snprintf(text, sizeof text, "%" PRId64 " samples, hash %016" PRIx64, loader->data->n,
                 kn_dataset_hash(loader->data));
    return kn_comm_agree(kn_parallel_comm(parallel), "the training data", text);
}

typedef struct visit {
    kn_status (*fn)(struct visit *v, kn_tensor *t);
    kn_comm *comm;
    char *data; /* of a part, or NULL */
    size_t at;  /* bytes of it so far */
    kn_status status;
} visit;

/* Counts, and statistics of the joined batch, are the same on every rank already. */
static bool layer_visit(void *ctx, kn_layer *layer) {
    visit *v = ctx;
    if (kn__layer_is_synced(layer)) return true;
    for (int i = 0; v->status == KN_OK; i++) {
        kn_tensor *t = kn_layer_state_at(layer, i, NULL);
        if (!t) break;
        kn_dtype dtype = kn_tensor_dtype(t);
        if (dtype == KN_F32 || dtype == KN_F64) v->status = v->fn(v, t);
    }
    return v->status == KN_OK;
}

static kn_status tensor_mean(visit *v, kn_tensor *t) {
    return kn_comm_all_reduce(v->comm, t, KN_COMM_MEAN);
}

kn_status kn__ranks_state_mean(kn_parallel *parallel, kn_layer *net) {
    if (kn__ranks_size(parallel) == 1 || !net) return KN_OK;
    visit v = {.fn = tensor_mean, .comm = kn_parallel_comm(parallel)};
    (void)kn_layer_walk(net, layer_visit, &v);
    return v.status;
}

/* --- what each rank has of its own --- */

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)kn_tensor_numel(t) * kn_dtype_bytes(kn_tensor_dtype(t));
}

static kn_status tensor_count(visit *v, kn_tensor *t) {
    v->at += bytes_of(t);
    return KN_OK;
}

static kn_status tensor_get(visit *v, kn_tensor *t) {
    v->at += bytes_of(t);
    return kn_copy_out(v->data + v->at - bytes_of(t), bytes_of(t), t);
}

static kn_status tensor_put(visit *v, kn_tensor *t) {
    v->at += bytes_of(t);
    return kn_copy_into(t, v->data + v->at - bytes_of(t), bytes_of(t));
}

static kn_status own_visit(visit *v, kn_layer *net, kn_tensor *losses) {
    KN_TRY(v->fn(v, losses));
    if (net) (void)kn_layer_walk(net, layer_visit, v);
    return v->status;
}

/* *slot: [ranks, bytes], unwritten. */
static kn_status own_begin(kn_tensor **slot, const kn_parallel *parallel, kn_layer *net,
                           kn_tensor *losses) {
    visit v = {.fn = tensor_count};
    KN_TRY(own_visit(&v, net, losses));
    kn_shape shape = KN_SHAPE(kn__ranks_size(parallel), (int64_t)v.at);
    return kn_hold(slot, kn_tensor_new(kn_device_host(), KN_U8, shape));
}

static kn_status own_gather(kn_tensor *all, kn_comm *comm, kn_layer *net, kn_tensor *losses) {
    kn_shape shape = KN_SHAPE(kn_tensor_shape(all).dim[1]);
    kn_tensor *own = kn_tensor_new(kn_device_host(), KN_U8, shape);
    visit v = {.fn = tensor_get, .data = own ? kn_data_mut(own) : NULL};
    KN_TRY(kn_check());
    KN_TRY(own_visit(&v, net, losses));
    return kn_comm_all_gather(comm, all, own);
}

kn_status kn__ranks_join(kn_tensor **all, kn_parallel *parallel, kn_layer *net, kn_tensor *losses) {
    if (kn__ranks_size(parallel) == 1) return KN_OK;
    KN_FRAME(.record = KN_OFF);
    kn_comm *comm = kn_parallel_comm(parallel);
    KN_TRY(own_begin(all, parallel, net, losses));
    KN_TRY(own_gather(*all, comm, net, losses));
    KN_TRY(kn_comm_all_reduce(comm, losses, KN_COMM_MEAN));
    KN_TRY(kn_parallel_state_join(parallel));
    return kn__ranks_state_mean(parallel, net);
}

kn_status kn__ranks_find(kn_tensor **all, kn_file *f, const kn_parallel *parallel, kn_layer *net,
                         kn_tensor *losses) {
    int i = kn_file_find(f, KN__RANKS_NAME);
    if (kn__ranks_size(parallel) == 1 || i < 0) return KN_OK;
    KN_FRAME(.record = KN_OFF);
    KN_TRY(own_begin(all, parallel, net, losses));
    kn_shape has = kn_file_shape(f, i), wanted = kn_tensor_shape(*all);
    bool fits = has.n_dims == 2 && has.dim[0] == wanted.dim[0] && has.dim[1] == wanted.dim[1];
    if (!fits) kn_unhold(all);
    return KN_OK;
}

kn_status kn__ranks_part(kn_tensor *all, kn_parallel *parallel, kn_layer *net, kn_tensor *losses) {
    if (!all) return KN_OK;
    int64_t bytes = kn_tensor_shape(all).dim[1];
    char *data = kn_data_mut(all);
    if (!data) return kn_check();
    visit v = {.fn = tensor_put, .data = data + bytes * kn_comm_rank(kn_parallel_comm(parallel))};
    return own_visit(&v, net, losses);
}
