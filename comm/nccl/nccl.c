/* libknet_comm_nccl.so: collectives on tensors of GPUs by NCCL. Its communicators don't block:
 * what takes long, such as the first connection, is under way when a call returns, so that a rank
 * that never comes can be given up. A lock keeps the abort of one thread from the calls of another.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <knet/comm.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport.h"

_Static_assert(KN__ENGINE_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "the id of a world");

enum { NON_BLOCKING_SINCE = NCCL_VERSION(2, 14, 0) };

/* The driver's functions: linked, they would keep the module from machines without a GPU. */
static struct {
    __typeof__(cuDeviceGet) *device_get;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuDevicePrimaryCtxRelease) *release;
    __typeof__(cuCtxPushCurrent) *push;
    __typeof__(cuCtxPopCurrent) *pop;
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

typedef struct state {
    pthread_mutex_t lock;
    ncclComm_t comm; /* NULL: aborted */
    CUdevice device;
    CUcontext context; /* the primary one of the rank's device, retained */
} state;

static bool works(char *why, const char *function, ncclResult_t result, ncclComm_t comm) {
    if (result == ncclSuccess || result == ncclInProgress) return true;
    const char *detail = ncclGetLastError(comm);
    snprintf(why, KN__ENGINE_WHY_BYTES, "%s: %s%s%.300s", function, ncclGetErrorString(result),
             detail && *detail ? ": " : "", detail ? detail : "");
    return false;
}

/* Functions may be missing from another major version, or mean something else. */
static bool version_fits(char *why) {
    int version = 0;
    if (!works(why, "ncclGetVersion", ncclGetVersion(&version), NULL)) return false;
    if (version / 10000 == NCCL_MAJOR && version >= NON_BLOCKING_SINCE) return true;
    snprintf(why, KN__ENGINE_WHY_BYTES, "NCCL is of version code %d; %d to %d fit", version,
             NON_BLOCKING_SINCE, NCCL_MAJOR * 10000 + 9999);
    return false;
}

static bool nccl_id_make(unsigned char id[KN__ENGINE_ID_BYTES], char *why) {
    ncclUniqueId made;
    if (!version_fits(why) || !works(why, "ncclGetUniqueId", ncclGetUniqueId(&made), NULL))
        return false;
    memcpy(id, made.internal, KN__ENGINE_ID_BYTES);
    return true;
}

/* --- life cycle --- */

/* By the names of the versions that cuda.h declares. */
static void driver_load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *place;
    } all[] = {{"cuDeviceGet", &driver.device_get},
               {"cuDevicePrimaryCtxRetain", &driver.retain},
               {"cuDevicePrimaryCtxRelease_v2", &driver.release},
               {"cuCtxPushCurrent_v2", &driver.push},
               {"cuCtxPopCurrent_v2", &driver.pop}};
    for (size_t i = 0; library && i < sizeof all / sizeof *all; i++) {
        void *symbol = dlsym(library, all[i].name);
        memcpy(all[i].place, &symbol, sizeof symbol);
    }
}

static bool context_get(state *s, int cuda_device, char *why) {
    pthread_once(&once, driver_load);
    if (driver.device_get && driver.retain && driver.release && driver.push && driver.pop &&
        driver.device_get(&s->device, cuda_device) == CUDA_SUCCESS &&
        driver.retain(&s->context, s->device) == CUDA_SUCCESS)
        return true;
    snprintf(why, KN__ENGINE_WHY_BYTES, "the CUDA driver does not open device %d", cuda_device);
    return false;
}

/* NCCL takes the current device. */
static bool enter(const state *s, char *why) {
    if (driver.push(s->context) == CUDA_SUCCESS) return true;
    snprintf(why, KN__ENGINE_WHY_BYTES, "cuCtxPushCurrent failed");
    return false;
}

static void leave(void) {
    CUcontext ours;
    (void)driver.pop(&ours);
}

static void state_free(state *s) {
    if (s->context) (void)driver.release(s->device);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool join(state *s, const unsigned char id[KN__ENGINE_ID_BYTES], int rank, int size,
                 char *why) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId world;
    config.blocking = 0;
    memcpy(world.internal, id, KN__ENGINE_ID_BYTES);
    if (!enter(s, why)) return false;
    bool done = works(why, "ncclCommInitRankConfig",
                      ncclCommInitRankConfig(&s->comm, size, world, rank, &config), NULL);
    leave();
    return done;
}

static bool nccl_open(void **out, const unsigned char id[KN__ENGINE_ID_BYTES], int rank, int size,
                      int cuda_device, char *why) {
    *out = NULL;
    if (!version_fits(why)) return false;
    state *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(why, KN__ENGINE_WHY_BYTES, "no host memory");
        return false;
    }
    pthread_mutex_init(&s->lock, NULL);
    if (!context_get(s, cuda_device, why) || !join(s, id, rank, size, why)) {
        state_free(s);
        return false;
    }
    *out = s;
    return true;
}

static bool is_open(const state *s, char *why) {
    if (s->comm) return true;
    snprintf(why, KN__ENGINE_WHY_BYTES, "NCCL was aborted");
    return false;
}

static int test_locked(const state *s, char *why) {
    ncclResult_t found = ncclSuccess;
    if (!is_open(s, why) ||
        !works(why, "ncclCommGetAsyncError", ncclCommGetAsyncError(s->comm, &found), s->comm))
        return -1;
    if (found == ncclInProgress) return 0;
    return works(why, "ncclCommGetAsyncError", found, s->comm) ? 1 : -1;
}

static int nccl_test(void *of, char *why) {
    state *s = of;
    pthread_mutex_lock(&s->lock);
    int found = test_locked(s, why);
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void abort_locked(state *s) {
    if (!s->comm) return;
    char why[KN__ENGINE_WHY_BYTES];
    bool is_in = enter(s, why);
    (void)ncclCommAbort(s->comm);
    if (is_in) leave();
    s->comm = NULL;
}

static void nccl_give_up(void *of) {
    state *s = of;
    pthread_mutex_lock(&s->lock);
    abort_locked(s);
    pthread_mutex_unlock(&s->lock);
}

/* Whether all is done on this rank that others may need. */
static bool finalize(state *s, uint64_t wait_ns) {
    const struct timespec pause = {0, 100000};
    char why[KN__ENGINE_WHY_BYTES];
    if (!s->comm || !works(why, "ncclCommFinalize", ncclCommFinalize(s->comm), s->comm))
        return false;
    int found = test_locked(s, why);
    for (uint64_t waited = 0; !found && waited < wait_ns; waited += 100000) {
        nanosleep(&pause, NULL);
        found = test_locked(s, why);
    }
    return found > 0;
}

static void nccl_close(void *of, uint64_t wait_ns) {
    char why[KN__ENGINE_WHY_BYTES];
    state *s = of;
    bool is_in = enter(s, why);
    if (finalize(s, wait_ns)) {
        (void)ncclCommDestroy(s->comm);
        s->comm = NULL;
    }
    if (is_in) leave();
    abort_locked(s);
    state_free(s);
}

/* --- collectives --- */

static ncclDataType_t type_of(int dtype) {
    switch ((kn_dtype)dtype) {
        case KN_F32:
            return ncclFloat32;
        case KN_F64:
            return ncclFloat64;
        case KN_F16:
            return ncclFloat16;
        case KN_BF16:
            return ncclBfloat16;
        case KN_I32:
            return ncclInt32;
        case KN_I64:
            return ncclInt64;
        default:
            return ncclUint8; /* also of bool, whose largest is "or" */
    }
}

static ncclRedOp_t op_of(int op) {
    switch ((kn_comm_op)op) {
        case KN_COMM_MEAN:
            return ncclAvg;
        case KN_COMM_MAX:
            return ncclMax;
        case KN_COMM_MIN:
            return ncclMin;
        default:
            return ncclSum;
    }
}

static bool begin(ncclComm_t comm, const kn__engine_work *w, char *why) {
    ncclDataType_t type = type_of(w->dtype);
    ncclRedOp_t op = op_of(w->op);
    cudaStream_t stream = w->stream;
    switch (w->what) {
        case KN__ENGINE_ALL_REDUCE:
            return works(why, "ncclAllReduce",
                         ncclAllReduce(w->in, w->out, w->n, type, op, comm, stream), comm);
        case KN__ENGINE_BROADCAST:
            return works(why, "ncclBroadcast",
                         ncclBroadcast(w->in, w->out, w->n, type, w->peer, comm, stream), comm);
        case KN__ENGINE_ALL_GATHER:
            return works(why, "ncclAllGather",
                         ncclAllGather(w->in, w->out, w->n, type, comm, stream), comm);
        case KN__ENGINE_REDUCE_SCATTER:
            return works(why, "ncclReduceScatter",
                         ncclReduceScatter(w->in, w->out, w->n, type, op, comm, stream), comm);
        case KN__ENGINE_SEND:
            return works(why, "ncclSend", ncclSend(w->in, w->n, type, w->peer, comm, stream), comm);
        case KN__ENGINE_RECEIVE:
            return works(why, "ncclRecv", ncclRecv(w->out, w->n, type, w->peer, comm, stream),
                         comm);
    }
    return false;
}

static bool nccl_enqueue(void *of, const kn__engine_work *work, char *why) {
    state *s = of;
    pthread_mutex_lock(&s->lock);
    bool done = is_open(s, why) && enter(s, why);
    if (done) {
        done = begin(s->comm, work, why);
        leave();
    }
    pthread_mutex_unlock(&s->lock);
    return done;
}

extern const kn__engine kn_comm_engine;
__attribute__((visibility("default"))) const kn__engine kn_comm_engine = {.abi = KN__ENGINE_ABI,
                                                                          .kind = "nccl",
                                                                          .id_make = nccl_id_make,
                                                                          .open = nccl_open,
                                                                          .enqueue = nccl_enqueue,
                                                                          .test = nccl_test,
                                                                          .give_up = nccl_give_up,
                                                                          .close = nccl_close};
