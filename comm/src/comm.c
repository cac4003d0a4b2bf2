/* Communicators: life cycle, and the calls that users make. */
#include <inttypes.h>
#include <knet/prof.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "launch.h"
#include "now.h"
#include "ranks.h"

static const uint64_t TIMEOUT_NS = 120 * (uint64_t)1000000000;

/* --- life cycle --- */

static kn_status peers_exchange(kn_comm *comm) {
    kn__peer_self(&comm->peer[comm->rank]);
    comm->local_size = 1;
    if (!comm->transport) return KN_OK;
    KN_TRY(kn__comm_call(comm, (kn__call){.name = "connect", .n = sizeof *comm->peer}));
    KN_TRY(kn__all_gather_equal(comm, comm->peer, sizeof *comm->peer));
    comm->local_size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (comm->peer[r].machine != comm->peer[comm->rank].machine) continue;
        comm->local_size++;
        comm->local_rank += r < comm->rank;
    }
    return KN_OK;
}

static kn_status connect(kn_comm *comm) {
    if (!comm->transport) return peers_exchange(comm);
    KN_TRY(kn__comm_listen(comm));
    /* Threads of one process: nothing to ask them, and each may come when it wants. */
    if (comm->transport->is_alive) {
        for (int r = 0; r < comm->size; r++) kn__peer_self(&comm->peer[r]);
        comm->local_rank = comm->rank;
        comm->local_size = comm->size;
        return KN_OK;
    }
    return peers_exchange(comm);
}

kn_status kn__comm_open(kn_comm **out, const kn__transport *transport, void *state, int rank,
                        int size, uint64_t timeout_ns) {
    kn_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return KN_FAIL(KN_ERR_OOM, "kn_comm_create: no host memory");
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    comm->transport = size > 1 ? transport : NULL;
    comm->owner = transport;
    comm->state = state;
    comm->kind = transport ? transport->kind : "self";
    comm->rank = rank;
    comm->size = size;
    comm->timeout_ns = timeout_ns ? timeout_ns : TIMEOUT_NS;
    comm->peer = calloc((size_t)size, sizeof *comm->peer);
    comm->sources = calloc((size_t)size, sizeof *comm->sources);
    comm->with = calloc((size_t)size, sizeof *comm->with);
    kn_status status = comm->peer && comm->sources && comm->with
                           ? connect(comm)
                           : KN_FAIL(KN_ERR_OOM, "kn_comm_create: no host memory");
    if (status == KN_OK) {
        *out = comm;
        return KN_OK;
    }
    comm->broken = true;
    comm->state = NULL; /* stays the caller's */
    kn_comm_destroy(comm);
    return status;
}

/* Before MPI_Finalize, which waits for the others without end: they see that this rank leaves. */
static void part(kn_comm *comm) {
    kn_error before = *kn_last_error();
    if (kn__comm_together(comm, (kn__call){.name = "destroy", .n = -1}) == KN_OK)
        (void)kn__barrier(comm);
    if (atomic_load(&comm->broken) && before.status < 0)
        (void)KN_FAIL(before.status, "%s", before.message);
}

static void messages_end(kn_comm *comm) {
    const kn__transport *t = comm->transport;
    if (!t->is_alive && !atomic_load(&comm->broken)) part(comm);
    for (int r = 0; comm->with && r < comm->size; r++) {
        kn__ask *ask = &comm->with[r].ask;
        if (ask->pending && t->test(comm->state, &ask->request) == 0)
            t->cancel(comm->state, &ask->request);
    }
    if (comm->notice.pending) t->cancel(comm->state, &comm->notice.request);
}

static void leave(kn_comm *comm) {
    kn__comm_worker_end(comm);
    kn__gpu_end(comm);
    if (!comm->state) return;
    if (comm->transport) messages_end(comm);
    comm->owner->close(comm->state, atomic_load(&comm->broken) ? 0 : kn__comm_wait_ns(comm));
}

void kn_comm_destroy(kn_comm *comm) {
    if (!comm) return;
    if (!kn__comm_is_forked(comm)) leave(comm);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    free(comm->peer);
    free(comm->sources);
    free(comm->with);
    free(comm->scratch);
    free(comm->ask);
    free(comm);
}

static kn_status timeout_of(uint64_t *out_ns, double seconds, const uint64_t reserved[4]) {
    for (int i = 0; i < 4; i++)
        if (reserved[i]) return KN_FAIL(KN_ERR_INVALID, "kn_comm_options: reserved is not zero");
    if (!(seconds >= 0) || seconds > 1e9)
        return KN_FAIL(KN_ERR_INVALID, "kn_comm_options: timeout_seconds %g", seconds);
    if (seconds > 0) *out_ns = kn__seconds_ns(seconds) + 1;
    return KN_OK;
}

static kn_status mpi_open(kn_comm **out, uint64_t timeout_ns, const kn_comm_launch *launch) {
    const kn__transport *mpi = NULL;
    void *state = NULL;
    int rank = 0, size = 1;
    KN_TRY(kn__comm_transport(&mpi));
    bool is_late = false;
    if (!mpi->open(&state, &rank, &size, timeout_ns ? timeout_ns : TIMEOUT_NS, &is_late)) {
        char why[KN__WHY_BYTES];
        mpi->why(why);
        return KN_FAIL(is_late ? KN_ERR_PEER : KN_ERR_UNSUPPORTED,
                       "kn_comm_create: MPI does not start: %s", why);
    }
    kn_status status = KN_OK;
    if (size < launch->size)
        status = KN_FAIL(KN_ERR_INVALID, "%s started %d ranks, but MPI knows %d; %s",
                         launch->launcher, launch->size, size,
                         strcmp(launch->launcher, "srun") == 0
                             ? "use srun --mpi=pmix, or mpirun"
                             : "use the mpirun of the MPI that Knet.c was built with");
    if (status == KN_OK) status = kn__comm_open(out, mpi, state, rank, size, timeout_ns);
    if (status == KN_OK && launch->local_rank >= 0) (*out)->local_rank = launch->local_rank;
    if (status < 0) mpi->close(state, size > 1 ? 0 : TIMEOUT_NS);
    return status;
}

kn_status kn_comm_create(kn_comm **out, const char *kind, const kn_comm_options *options) {
    static const kn_comm_options defaults = {0};
    kn_comm_launch launch;
    uint64_t timeout_ns = 0;
    KN_TRY(kn_check());
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_comm_create: out is NULL");
    if (!options) options = &defaults;
    KN_TRY(kn__comm_words(&timeout_ns));
    KN_TRY(timeout_of(&timeout_ns, options->timeout_seconds, options->reserved));
    KN_TRY(kn_comm_launch_read(&launch));
    if (!kind) kind = launch.size > 1 ? "mpi" : "self";
    if (strcmp(kind, "self") == 0) return kn__comm_open(out, NULL, NULL, 0, 1, timeout_ns);
    if (strcmp(kind, "mpi") == 0) return mpi_open(out, timeout_ns, &launch);
    return KN_FAIL(KN_ERR_INVALID, "kn_comm_create: unknown kind '%s'; mpi and self exist", kind);
}

int kn_comm_rank(const kn_comm *comm) { return comm->rank; }
int kn_comm_size(const kn_comm *comm) { return comm->size; }
int kn_comm_local_rank(const kn_comm *comm) { return comm->local_rank; }
int kn_comm_local_size(const kn_comm *comm) { return comm->local_size; }
const char *kn_comm_kind(const kn_comm *comm) { return comm->kind; }

/* --- for the calls --- */

static kn_status tensor_check(const char *name, const kn_comm *comm, kn_tensor *t) {
    KN_TRY(kn_check());
    if (!comm || !t || t == KN_NONE)
        return KN_FAIL(KN_ERR_INVALID, "%s: %s is NULL", name, comm ? "the tensor" : "comm");
    if (kn_device_kind_get(kn_tensor_device(t)) == KN_DEVICE_SIM)
        return KN_FAIL(KN_ERR_DEVICE, "%s: the tensor is on %s, which has no data", name,
                       kn_device_name(kn_tensor_device(t)));
    return KN_OK;
}

static kn__call call_of(const char *name, const kn_tensor *t) {
    return (kn__call){.name = name, .n = kn_tensor_numel(t), .dtype = kn_tensor_dtype(t)};
}

static bool is_on_gpu(const kn_tensor *t) {
    return kn_device_kind_get(kn_tensor_device(t)) == KN_DEVICE_CUDA;
}

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)kn_tensor_numel(t) * kn_dtype_bytes(kn_tensor_dtype(t));
}

static kn_status rank_check(const char *name, const kn_comm *comm, int rank) {
    if (rank >= 0 && rank < comm->size) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: there is no rank %d of %d", name, rank, comm->size);
}

/* `whole` is [size, the shape of part]. */
static kn_status parts_check(const char *name, const kn_comm *comm, const kn_tensor *whole,
                             const kn_tensor *part) {
    char a[128], b[128];
    kn_shape w = kn_tensor_shape(whole), p = kn_tensor_shape(part);
    bool fits = w.n_dims == p.n_dims + 1 && w.dim[0] == comm->size;
    for (int i = 0; fits && i < p.n_dims; i++) fits = w.dim[i + 1] == p.dim[i];
    if (!fits)
        return KN_FAIL(KN_ERR_SHAPE, "%s: %s are not %d parts of %s", name,
                       kn_shape_text(a, sizeof a, w), comm->size, kn_shape_text(b, sizeof b, p));
    if (kn_tensor_dtype(whole) != kn_tensor_dtype(part))
        return KN_FAIL(KN_ERR_DTYPE, "%s: %s and %s", name, kn_dtype_name(kn_tensor_dtype(whole)),
                       kn_dtype_name(kn_tensor_dtype(part)));
    if (kn_tensor_device(whole) != kn_tensor_device(part))
        return KN_FAIL(KN_ERR_DEVICE, "%s: tensors on %s and %s", name,
                       kn_device_name(kn_tensor_device(whole)),
                       kn_device_name(kn_tensor_device(part)));
    return KN_OK;
}

static kn_status op_check(const char *name, const kn_tensor *t, kn_comm_op op) {
    return is_on_gpu(t) ? kn__gpu_check(name, kn_tensor_dtype(t), op)
                        : kn__reduce_check(name, kn_tensor_dtype(t), op);
}

/* The work has all but the arrays and the stream; out or in may be NULL, or both the same. */
static kn_status gpu_run(kn_comm *comm, const char *name, kn__engine_work work, kn_tensor *out,
                         kn_tensor *in, const kn_tensor *bytes_in) {
    kn_tensor *t = out ? out : in;
    kn_stream stream = NULL;
    KN_TRY(kn__gpu_stream(&stream, kn_tensor_device(t)));
    if (out) work.out = kn_data_mut(out);
    work.in = in == out ? work.out : in ? kn_data(in) : NULL;
    work.stream = stream;
    work.dtype = (int)kn_tensor_dtype(t);
    KN_TRY(kn_check());
    return kn__gpu_run(comm, name, kn_tensor_device(t), &work, bytes_of(bytes_in));
}

/* --- collectives --- */

kn_status kn_comm_all_reduce(kn_comm *comm, kn_tensor *t, kn_comm_op op) {
    KN_SCOPE("all_reduce");
    KN_TRY(tensor_check("kn_comm_all_reduce", comm, t));
    KN_TRY(op_check("kn_comm_all_reduce", t, op));
    if (is_on_gpu(t))
        return gpu_run(
            comm, "all_reduce",
            (kn__engine_work){
                .what = KN__ENGINE_ALL_REDUCE, .n = (size_t)kn_tensor_numel(t), .op = (int)op},
            t, t, t);
    kn__comm_drain(comm);
    kn__call call = call_of("all_reduce", t);
    call.op = op;
    KN_TRY(kn__comm_together(comm, call));
    if (comm->size == 1 || !call.n) return KN_OK;
    void *data = kn_data_mut(t);
    if (!data) return kn_check();
    return kn__all_reduce(comm, data, kn_tensor_numel(t), kn_tensor_dtype(t), op);
}

kn_status kn_comm_values(kn_comm *comm, double value[], int n, kn_comm_op op) {
    KN_SCOPE("all_reduce");
    if (!comm || !value)
        return KN_FAIL(KN_ERR_INVALID, "kn_comm_values: %s is NULL", comm ? "value" : "comm");
    if (n < 0) return KN_FAIL(KN_ERR_INVALID, "kn_comm_values: n is %d", n);
    KN_TRY(kn__reduce_check("kn_comm_values", KN_F64, op));
    kn__comm_drain(comm);
    KN_TRY(kn__comm_together(comm,
                             (kn__call){.name = "all_reduce", .n = n, .dtype = KN_F64, .op = op}));
    if (comm->size == 1 || !n) return KN_OK;
    return kn__all_reduce(comm, value, n, KN_F64, op);
}

kn_status kn_comm_broadcast(kn_comm *comm, kn_tensor *t, int root) {
    KN_SCOPE("broadcast");
    KN_TRY(tensor_check("kn_comm_broadcast", comm, t));
    KN_TRY(rank_check("kn_comm_broadcast", comm, root));
    if (is_on_gpu(t))
        return gpu_run(
            comm, "broadcast",
            (kn__engine_work){
                .what = KN__ENGINE_BROADCAST, .n = (size_t)kn_tensor_numel(t), .peer = root},
            t, t, t);
    kn__comm_drain(comm);
    kn__call call = call_of("broadcast", t);
    call.root = root;
    KN_TRY(kn__comm_together(comm, call));
    if (comm->size == 1 || !call.n) return KN_OK;
    void *data = kn_data_mut(t);
    if (!data) return kn_check();
    return kn__broadcast(comm, data, bytes_of(t), root);
}

kn_status kn_comm_all_gather(kn_comm *comm, kn_tensor *out, kn_tensor *t) {
    KN_SCOPE("all_gather");
    KN_TRY(tensor_check("kn_comm_all_gather", comm, out));
    KN_TRY(tensor_check("kn_comm_all_gather", comm, t));
    KN_TRY(parts_check("kn_comm_all_gather", comm, out, t));
    if (is_on_gpu(t))
        return gpu_run(
            comm, "all_gather",
            (kn__engine_work){.what = KN__ENGINE_ALL_GATHER, .n = (size_t)kn_tensor_numel(t)}, out,
            t, out);
    kn__comm_drain(comm);
    KN_TRY(kn__comm_together(comm, call_of("all_gather", out)));
    if (!kn_tensor_numel(t)) return KN_OK;
    const void *from = kn_data(t);
    char *data = kn_data_mut(out);
    if (!data || !from) return kn_check();
    memmove(data + bytes_of(t) * (size_t)comm->rank, from, bytes_of(t));
    return comm->size == 1 ? KN_OK : kn__all_gather_equal(comm, data, bytes_of(t));
}

kn_status kn_comm_reduce_scatter(kn_comm *comm, kn_tensor *out, kn_tensor *t, kn_comm_op op) {
    KN_SCOPE("reduce_scatter");
    KN_TRY(tensor_check("kn_comm_reduce_scatter", comm, out));
    KN_TRY(tensor_check("kn_comm_reduce_scatter", comm, t));
    KN_TRY(parts_check("kn_comm_reduce_scatter", comm, t, out));
    KN_TRY(op_check("kn_comm_reduce_scatter", t, op));
    if (is_on_gpu(t))
        return gpu_run(comm, "reduce_scatter",
                       (kn__engine_work){.what = KN__ENGINE_REDUCE_SCATTER,
                                         .n = (size_t)kn_tensor_numel(out),
                                         .op = (int)op},
                       out, t, t);
    kn__comm_drain(comm);
    kn__call call = call_of("reduce_scatter", t);
    call.op = op;
    KN_TRY(kn__comm_together(comm, call));
    if (!call.n) return KN_OK;
    const void *from = kn_data(t);
    void *data = kn_data_mut(out);
    if (!data || !from) return kn_check();
    if (comm->size == 1) {
        memmove(data, from, bytes_of(t));
        return KN_OK;
    }
    return kn__reduce_scatter_equal(comm, data, from, kn_tensor_numel(out), kn_tensor_dtype(t), op);
}

kn_status kn_comm_barrier(kn_comm *comm) {
    KN_SCOPE("barrier");
    if (!comm) return KN_FAIL(KN_ERR_INVALID, "kn_comm_barrier: comm is NULL");
    kn__comm_drain(comm);
    KN_TRY(kn__comm_together(comm, (kn__call){.name = "barrier", .n = -1}));
    return comm->size == 1 ? KN_OK : kn__barrier(comm);
}

enum { AGREE_BYTES = 256 };

static kn_status texts_compare(kn_comm *comm, const char *what, char all[][AGREE_BYTES]) {
    KN_TRY(kn__comm_together(
        comm, (kn__call){.name = "agree", .n = comm->size * AGREE_BYTES, .dtype = KN_U8}));
    if (comm->size > 1) KN_TRY(kn__all_gather_equal(comm, all, AGREE_BYTES));
    for (int r = 1; r < comm->size; r++)
        if (strcmp(all[0], all[r]) != 0)
            return KN_FAIL(KN_ERR_INVALID,
                           "%s differs between the ranks: rank 0 has '%s', rank %d '%s'", what,
                           all[0], r, all[r]);
    return KN_OK;
}

kn_status kn_comm_agree(kn_comm *comm, const char *what, const char *text) {
    KN_SCOPE("agree");
    if (!comm || !what || !text)
        return KN_FAIL(KN_ERR_INVALID, "kn_comm_agree: %s is NULL", !comm ? "comm" : "a text");
    kn__comm_drain(comm);
    char(*all)[AGREE_BYTES] = calloc((size_t)comm->size, sizeof *all);
    if (!all) return KN_FAIL(KN_ERR_OOM, "kn_comm_agree: no host memory");
    snprintf(all[comm->rank], sizeof *all, "%s", text);
    kn_status status = texts_compare(comm, what, all);
    free(all);
    return status;
}

/* --- between two ranks --- */

/* In pieces that a transport can carry, one after the other. */
static kn_status message_move(kn_comm *comm, char *data, size_t bytes, int peer, bool sends) {
    kn__ask *ask = NULL;
    KN_TRY(kn__comm_asks(&ask, comm, 1));
    for (size_t at = 0; at < bytes; at += KN__MESSAGE_BYTES) {
        size_t part = bytes - at < KN__MESSAGE_BYTES ? bytes - at : KN__MESSAGE_BYTES;
        KN_TRY(sends ? kn__comm_send(comm, ask, data + at, part, peer, KN__TAG_USER)
                     : kn__comm_receive(comm, ask, data + at, part, peer, KN__TAG_USER));
        KN_TRY(kn__comm_wait(comm, ask, 1, 4));
    }
    return KN_OK;
}

static kn_status peer_check(const char *name, const kn_comm *comm, kn_tensor *t, int rank) {
    KN_TRY(tensor_check(name, comm, t));
    KN_TRY(rank_check(name, comm, rank));
    if (rank == comm->rank) return KN_FAIL(KN_ERR_INVALID, "%s: rank %d is this rank", name, rank);
    return KN_OK;
}

kn_status kn_comm_send(kn_comm *comm, kn_tensor *t, int to) {
    KN_SCOPE("send");
    KN_TRY(peer_check("kn_comm_send", comm, t, to));
    if (is_on_gpu(t))
        return gpu_run(
            comm, "send",
            (kn__engine_work){.what = KN__ENGINE_SEND, .n = (size_t)kn_tensor_numel(t), .peer = to},
            NULL, t, t);
    kn__comm_drain(comm);
    KN_TRY(kn__comm_pair(comm, call_of("send", t), to, true));
    if (!kn_tensor_numel(t)) return KN_OK;
    const void *data = kn_data(t);
    return data ? message_move(comm, (char *)data, bytes_of(t), to, true) : kn_check();
}

kn_status kn_comm_receive(kn_comm *comm, kn_tensor *t, int from) {
    KN_SCOPE("receive");
    KN_TRY(peer_check("kn_comm_receive", comm, t, from));
    if (is_on_gpu(t))
        return gpu_run(
            comm, "receive",
            (kn__engine_work){
                .what = KN__ENGINE_RECEIVE, .n = (size_t)kn_tensor_numel(t), .peer = from},
            t, NULL, t);
    kn__comm_drain(comm);
    KN_TRY(kn__comm_pair(comm, call_of("receive", t), from, false));
    if (!kn_tensor_numel(t)) return KN_OK;
    void *data = kn_data_mut(t);
    return data ? message_move(comm, data, bytes_of(t), from, false) : kn_check();
}
