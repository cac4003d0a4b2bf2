#include "fake_nccl.h"

#include "fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define API FAKE_API

cu_result cuCtxGetCurrent(cu_context *out); /* of the fake driver */

enum { RANKS_MAX = 8, WORLDS_MAX = 64 };

typedef enum what { NOTHING, ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } what;

typedef struct call {
    what what;
    const void *in;
    void *out;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;
} call;

struct ncclComm {
    struct world *world;
    int rank;
    call call; /* under way */
};

typedef struct world {
    char id[NCCL_UNIQUE_ID_BYTES];
    int size, n_joined;
    struct ncclComm *member[RANKS_MAX];
} world;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    fake_nccl_counts counts;
    int version, n_ids, n_worlds;
    const char *fail_function;
    int fail_rank;
    ncclResult_t fail_result;
    world world[WORLDS_MAX];
} fake = {.version = NCCL_VERSION_CODE};

/* --- scripts --- */

fake_nccl_counts fake_nccl_count(void) {
    pthread_mutex_lock(&lock);
    fake_nccl_counts found = fake.counts;
    pthread_mutex_unlock(&lock);
    return found;
}

void fake_nccl_reset(void) {
    pthread_mutex_lock(&lock);
    fake.counts = (fake_nccl_counts){.n_open = fake.counts.n_open};
    fake.version = NCCL_VERSION_CODE;
    fake.fail_function = NULL;
    pthread_mutex_unlock(&lock);
}

void fake_nccl_version(int code) { fake.version = code; }

void fake_nccl_fail(const char *function, int rank, ncclResult_t result) {
    pthread_mutex_lock(&lock);
    fake.fail_function = function;
    fake.fail_rank = rank;
    fake.fail_result = result;
    pthread_mutex_unlock(&lock);
}

static ncclResult_t scripted(const char *function, int rank) {
    bool is_meant =
        fake.fail_function && strcmp(fake.fail_function, function) == 0 && fake.fail_rank == rank;
    return is_meant ? fake.fail_result : ncclSuccess;
}

/* --- values --- */

static size_t bytes_of(ncclDataType_t type) {
    switch (type) {
        case ncclFloat64:
        case ncclInt64:
            return 8;
        case ncclFloat32:
        case ncclInt32:
            return 4;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        default:
            return 1;
    }
}

static double value(const void *data, size_t i, ncclDataType_t type) {
    if (type == ncclFloat32) return ((const float *)data)[i];
    if (type == ncclFloat64) return ((const double *)data)[i];
    if (type == ncclInt32) return ((const int *)data)[i];
    if (type == ncclInt64) return (double)((const long long *)data)[i];
    return ((const unsigned char *)data)[i];
}

static void value_set(void *data, size_t i, ncclDataType_t type, double x) {
    if (type == ncclFloat32)
        ((float *)data)[i] = (float)x;
    else if (type == ncclFloat64)
        ((double *)data)[i] = x;
    else if (type == ncclInt32)
        ((int *)data)[i] = (int)x;
    else if (type == ncclInt64)
        ((long long *)data)[i] = (long long)x;
    else
        ((unsigned char *)data)[i] = (unsigned char)x;
}

/* From the last rank to the first, unlike the sums of the host. */
static double combined(const world *w, size_t i) {
    const call *c = &w->member[w->size - 1]->call;
    double x = value(c->in, i, c->type);
    for (int r = w->size - 2; r >= 0; r--) {
        double y = value(w->member[r]->call.in, i, c->type);
        if (c->op == ncclMax)
            x = y > x ? y : x;
        else if (c->op == ncclMin)
            x = y < x ? y : x;
        else
            x += y;
    }
    return c->op == ncclAvg ? x / w->size : x;
}

/* --- collectives: every rank has called --- */

static void reduce(const world *w, size_t n, bool scatters) {
    ncclDataType_t type = w->member[0]->call.type;
    double *sum = malloc(n * sizeof *sum + 1);
    for (size_t i = 0; i < n; i++) sum[i] = combined(w, i);
    for (int r = 0; r < w->size; r++) {
        const call *c = &w->member[r]->call;
        for (size_t i = 0; i < c->n; i++)
            value_set(c->out, i, type, sum[scatters ? c->n * (size_t)r + i : i]);
    }
    free(sum);
}

static void gather(const world *w) {
    for (int from = 0; from < w->size; from++) {
        const call *c = &w->member[from]->call;
        size_t bytes = c->n * bytes_of(c->type);
        for (int r = 0; r < w->size; r++)
            memmove((char *)w->member[r]->call.out + bytes * (size_t)from, c->in, bytes);
    }
}

static void broadcast(const world *w) {
    const call *c = &w->member[w->member[0]->call.peer]->call;
    for (int r = 0; r < w->size; r++)
        memmove(w->member[r]->call.out, c->in, c->n * bytes_of(c->type));
}

static void collective(world *w) {
    what kind = w->member[0]->call.what;
    for (int r = 1; r < w->size; r++)
        if (w->member[r]->call.what != kind || w->member[r]->call.n != w->member[0]->call.n) return;
    if (kind == ALL_REDUCE) reduce(w, w->member[0]->call.n, false);
    if (kind == REDUCE_SCATTER) reduce(w, w->member[0]->call.n * (size_t)w->size, true);
    if (kind == ALL_GATHER) gather(w);
    if (kind == BROADCAST) broadcast(w);
    for (int r = 0; r < w->size; r++) w->member[r]->call.what = NOTHING;
}

static void message(world *w, struct ncclComm *a) {
    struct ncclComm *b = w->member[a->call.peer];
    what other = a->call.what == SEND ? RECV : SEND;
    if (b->call.what != other || b->call.peer != a->rank) return;
    const call *from = a->call.what == SEND ? &a->call : &b->call;
    const call *to = a->call.what == SEND ? &b->call : &a->call;
    memcpy(to->out, from->in, from->n * bytes_of(from->type));
    a->call.what = b->call.what = NOTHING;
}

static ncclResult_t begin(const char *name, ncclComm_t comm, call c) {
    pthread_mutex_lock(&lock);
    world *w = comm->world;
    ncclResult_t result = scripted(name, comm->rank);
    if (result == ncclSuccess && comm->call.what != NOTHING) result = ncclInternalError;
    if (result == ncclSuccess) {
        fake.counts.n_calls++;
        fake.counts.elements = c.n;
        comm->call = c;
        if (c.what == SEND || c.what == RECV)
            message(w, comm);
        else
            collective(w);
        if (comm->call.what != NOTHING) result = ncclInProgress;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){ALL_REDUCE, in, out, n, type, op, 0});
}
API ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){BROADCAST, in, out, n, type, ncclSum, root});
}
API ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){ALL_GATHER, in, out, n, type, ncclSum, 0});
}
API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){REDUCE_SCATTER, in, out, n, type, op, 0});
}
API ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){SEND, in, NULL, n, type, ncclSum, peer});
}
API ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
    (void)stream;
    return begin(__func__, comm, (call){RECV, NULL, out, n, type, ncclSum, peer});
}

/* --- life cycle --- */

API ncclResult_t ncclGetVersion(int *version) {
    *version = fake.version;
    return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &(int){++fake.n_ids}, sizeof(int));
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static world *world_of(const ncclUniqueId *id, int size) {
    for (int i = 0; i < fake.n_worlds; i++)
        if (memcmp(fake.world[i].id, id->internal, sizeof id->internal) == 0) return &fake.world[i];
    world *w = &fake.world[fake.n_worlds++];
    memcpy(w->id, id->internal, sizeof w->id);
    w->size = size;
    return w;
}

/* -1: no context is current. */
static int device_now(void) {
    cu_context context = NULL;
    (void)cuCtxGetCurrent(&context);
    for (int i = 0; i < fake_cuda_machine_get()->n_devices; i++)
        if (fake_cuda_primary_context(i) == context) return i;
    return -1;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
    int device = device_now();
    if (config->blocking != 0 || device < 0) return ncclInvalidUsage;
    pthread_mutex_lock(&lock);
    ncclResult_t result = scripted(__func__, rank);
    if (result == ncclSuccess) {
        world *w = world_of(&id, size);
        struct ncclComm *made = calloc(1, sizeof *made);
        made->world = w;
        made->rank = rank;
        w->member[rank] = made;
        w->n_joined++;
        fake.counts.n_made++;
        fake.counts.n_open++;
        fake.counts.device = device;
        *comm = made;
        result = ncclInProgress;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    pthread_mutex_lock(&lock);
    const world *w = comm->world;
    *error = scripted(__func__, comm->rank);
    bool is_busy = w->n_joined < w->size || comm->call.what != NOTHING;
    if (*error == ncclSuccess && is_busy) *error = ncclInProgress;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    (void)comm;
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm, int n_aborts) {
    pthread_mutex_lock(&lock);
    fake.counts.n_open--;
    fake.counts.n_aborts += n_aborts;
    comm->call.what = NOTHING; /* the world keeps it: others may look at it */
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) { return leave(comm, 0); }
API ncclResult_t ncclCommAbort(ncclComm_t comm) { return leave(comm, 1); }

API const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "unhandled system error";
}
API const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "";
}
