/* Collectives on tensors of a GPU. The caller's thread enqueues them on a stream; the
 * communicator's worker watches until the stream has done them. Everything else of the ranks, such
 * as the name of NCCL's world, moves by the transport. */
#include "gpu.h"

#include <inttypes.h>
#include <knet/op.h>
#include <knet/prof_metric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "now.h"

enum { MILLISECOND = 1000000, LOOK_EVERY = 5 * MILLISECOND, PAUSE = 50000 };

/* --- waiting --- */

/* 1: the wait has ended; 0: not yet; -1: failed. */
typedef int (*ready_fn)(kn_comm *comm, kn__watch *watch, char *why);

static kn_status fail_engine(kn_comm *comm, const char *why) {
    comm->gpu->engine->give_up(comm->gpu->state);
    /* The library tells that a rank is gone, but not which one. */
    for (uint64_t end = kn__now_ns(CLOCK_MONOTONIC) + 100 * MILLISECOND;
         kn__now_ns(CLOCK_MONOTONIC) < end;) {
        KN_TRY(kn__comm_look(comm));
        nanosleep(&(struct timespec){0, MILLISECOND}, NULL);
    }
    return kn__comm_fail_self(comm, why);
}

/* Who does not answer keeps the others waiting. */
static kn_status fail_late(kn_comm *comm, uint64_t waited_ns) {
    char text[128];
    bool by_signal = waited_ns < comm->timeout_ns;
    comm->gpu->engine->give_up(comm->gpu->state);
    if (!by_signal) KN_TRY(kn__comm_roll_call(comm));
    snprintf(text, sizeof text,
             by_signal ? "a signal ended its wait for the GPU after %.3g s"
                       : "the GPU finished nothing for %.3g s, though all ranks wait",
             1e-9 * (double)waited_ns);
    return kn__comm_fail_self(comm, text);
}

static kn_status fail_abandoned(void) {
    return KN_FAIL(KN_ERR_PEER, "this rank has given the call up");
}

static void tell_all(kn_comm *comm) {
    for (int r = 0; r < comm->size; r++) kn__comm_tell(comm, r, true);
}

static kn_status wait_for(kn_comm *comm, ready_fn ready, kn__watch *watch) {
    kn__gpu *gpu = comm->gpu;
    char why[KN__ENGINE_WHY_BYTES];
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), next_look = begin + LOOK_EVERY;
    for (;;) {
        int found = ready(comm, watch, why);
        if (found > 0) return KN_OK;
        if (atomic_load(&gpu->is_abandoned)) return fail_abandoned();
        if (found < 0) return fail_engine(comm, why);
        uint64_t now = kn__now_ns(CLOCK_MONOTONIC);
        if (now - begin >= comm->timeout_ns || now >= kn__comm_give_up_ns(comm, begin))
            return fail_late(comm, now - begin);
        if (now >= next_look) {
            kn_status status = kn__comm_look(comm);
            if (status < 0) gpu->engine->give_up(gpu->state);
            if (status < 0) return status;
            if (now - begin >= kn__comm_tell_after_ns(comm)) tell_all(comm);
            next_look = now + LOOK_EVERY;
        }
        nanosleep(&(struct timespec){0, PAUSE}, NULL);
    }
}

/* All that was called is on its stream. */
static int engine_ready(kn_comm *comm, kn__watch *watch, char *why) {
    (void)watch;
    return comm->gpu->engine->test(comm->gpu->state, why);
}

/* The stream has done it. */
static int stream_ready(kn_comm *comm, kn__watch *watch, char *why) {
    bool done = false;
    if (engine_ready(comm, watch, why) < 0) return -1;
    if (kn_event_query(&done, watch->event) == KN_OK) return done;
    snprintf(why, KN__ENGINE_WHY_BYTES, "%.500s", kn_last_error()->message);
    return -1;
}

/* On the worker. */
static kn_status watch_run(kn_comm *comm, kn__job *job) {
    kn__watch *watch = job->data;
    KN_ASSERT(watch->is_used && job == &watch->job);
    if (atomic_load(&comm->broken)) return kn__comm_fail_broken(comm);
    comm->now = watch->call;
    return wait_for(comm, stream_ready, watch);
}

/* --- joining --- */

/* What each rank tells all others before they join: a rank that can't would keep them waiting. */
typedef struct card {
    unsigned char id[KN__ENGINE_ID_BYTES]; /* rank 0's counts */
    char why[KN__ENGINE_WHY_BYTES];        /* "": it can join */
} card;

static kn_status cards_exchange(card all[], kn_comm *comm) {
    card *mine = &all[comm->rank];
    const kn__engine *engine = NULL;
    if (kn__comm_engine(&engine) < 0)
        snprintf(mine->why, sizeof mine->why, "%.500s", kn_last_error()->message);
    else
        (void)engine->id_make(mine->id, mine->why);
    comm->gpu->engine = engine;
    if (comm->size > 1) KN_TRY(kn__all_gather_equal(comm, all, sizeof *all));
    if (mine->why[0]) return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: %s", comm->now.name, mine->why);
    for (int r = 0; r < comm->size; r++)
        if (all[r].why[0])
            return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: rank %d of %d cannot join: %.*s",
                           comm->now.name, r, comm->size, KN__ENGINE_WHY_BYTES - 1, all[r].why);
    return KN_OK;
}

static kn_status join(kn_comm *comm, kn_device *device) {
    KN_SCOPE("connect");
    kn__gpu *gpu = comm->gpu;
    const char *number = strchr(kn_device_name(device), ':'); /* "cuda:1", "managed:1" */
    int ordinal = number ? atoi(number + 1) : 0;
    char why[KN__ENGINE_WHY_BYTES];
    card *all = calloc((size_t)comm->size, sizeof *all);
    if (!all) return KN_FAIL(KN_ERR_OOM, "%s: no host memory", comm->now.name);
    kn_status status = cards_exchange(all, comm);
    if (status == KN_OK &&
        !gpu->engine->open(&gpu->state, all[0].id, comm->rank, comm->size, ordinal, why))
        status = kn__comm_fail_self(comm, why);
    free(all);
    if (status == KN_OK) status = wait_for(comm, engine_ready, NULL);
    if (status == KN_OK) gpu->device = device;
    return status;
}

static kn_status ready(kn_comm *comm, kn_device *device, const kn__call *call) {
    if (!comm->gpu) comm->gpu = calloc(1, sizeof *comm->gpu);
    if (!comm->gpu) return KN_FAIL(KN_ERR_OOM, "%s: no host memory", call->name);
    if (comm->gpu->device == device) return KN_OK;
    if (comm->gpu->device)
        return KN_FAIL(KN_ERR_DEVICE, "%s: the communicator's tensors are on %s, this one is on %s",
                       call->name, kn_device_name(comm->gpu->device), kn_device_name(device));
    kn__comm_drain(comm);
    KN_ASSERT(comm->now.number < call->number);
    comm->now = *call;
    return join(comm, device);
}

/* --- a call --- */

/* What could not be begun, or takes long. From here on the worker's part is the caller's: it is
 * idle once all calls before this one are done. */
static kn_status start_slowly(kn_comm *comm, const kn__watch *watch, bool is_begun,
                              const char *why) {
    kn__comm_drain(comm);
    if (atomic_load(&comm->broken)) return kn__comm_fail_broken(comm);
    comm->now = watch->call;
    return is_begun ? wait_for(comm, engine_ready, NULL) : fail_engine(comm, why);
}

/* Enqueues, and lets the worker watch. */
static kn_status start(kn_comm *comm, kn__watch *watch, const kn__engine_work *work) {
    kn__gpu *gpu = comm->gpu;
    char why[KN__ENGINE_WHY_BYTES];
    bool is_begun = gpu->engine->enqueue(gpu->state, work, why);
    if (!is_begun || gpu->engine->test(gpu->state, why) <= 0)
        KN_TRY(start_slowly(comm, watch, is_begun, why));
    KN_TRY(kn_event_record(watch->event, work->stream));
    KN_ASSERT(!watch->is_used || watch->job.is_done);
    watch->job = (kn__job){.run = watch_run, .data = watch};
    watch->is_used = true;
    return kn__comm_post(comm, &watch->job);
}

static kn_status watch_take(kn__watch **out, kn_comm *comm) {
    kn__gpu *gpu = comm->gpu;
    kn__watch *watch = &gpu->watch[gpu->next];
    if (watch->is_used) KN_TRY(kn__comm_job_wait(comm, &watch->job));
    watch->is_used = false;
    if (!watch->event) KN_TRY(kn_event_create(&watch->event, gpu->device));
    gpu->next = (gpu->next + 1) % KN__WATCHES;
    *out = watch;
    return KN_OK;
}

/* The other ranks compare it with theirs. */
static kn__call call_of(kn_comm *comm, const char *name, const kn__engine_work *work,
                        uint64_t bytes) {
    bool sends = work->what == KN__ENGINE_SEND, is_pair = sends || work->what == KN__ENGINE_RECEIVE;
    bool has_op = work->what == KN__ENGINE_ALL_REDUCE || work->what == KN__ENGINE_REDUCE_SCATTER;
    kn__call call = {.name = name,
                     .number = atomic_fetch_add(&comm->n_calls, 1) + 1,
                     .bytes = bytes,
                     .n = (int64_t)(bytes / kn_dtype_bytes((kn_dtype)work->dtype)),
                     .dtype = (kn_dtype)work->dtype,
                     .op = has_op ? (kn_comm_op)work->op : KN_COMM_SUM,
                     .root = sends ? comm->rank : work->peer};
    kn__comm_note(comm, &call, is_pair ? work->peer : -1, true);
    return call;
}

kn_status kn__gpu_run(kn_comm *comm, const char *name, kn_device *device,
                      const kn__engine_work *work, uint64_t bytes) {
    kn__watch *watch = NULL;
    if (atomic_load(&comm->broken)) return kn__comm_fail_broken(comm);
    if (kn__comm_is_forked(comm)) return kn__comm_fail_forked(comm, name);
    kn__call call = call_of(comm, name, work, bytes);
    kn_prof_metric(0, bytes);
    KN_TRY(ready(comm, device, &call));
    if (!work->n) return KN_OK;
    KN_TRY(watch_take(&watch, comm));
    watch->call = call;
    return start(comm, watch, work);
}

kn_status kn__gpu_stream(kn_stream *out, kn_device *device) {
    *out = kn_frame_stream();
    return kn_frame_device() == device ? KN_OK : kn_stream_of_thread(out, device);
}

kn_status kn__gpu_check(const char *name, kn_dtype dtype, kn_comm_op op) {
    if ((int)op < KN_COMM_SUM || op > KN_COMM_MIN)
        return KN_FAIL(KN_ERR_INVALID, "%s: invalid operation %d", name, (int)op);
    bool is_whole = dtype == KN_I32 || dtype == KN_I64 || dtype == KN_U8 || dtype == KN_BOOL;
    if (is_whole && (op == KN_COMM_MEAN || (op == KN_COMM_SUM && dtype == KN_BOOL)))
        return KN_FAIL(KN_ERR_DTYPE, "%s: no %s of %s", name, op == KN_COMM_MEAN ? "mean" : "sum",
                       kn_dtype_name(dtype));
    return KN_OK;
}

/* --- its end --- */

void kn__gpu_abandon(kn_comm *comm) {
    if (comm->gpu) atomic_store(&comm->gpu->is_abandoned, true);
}

void kn__gpu_end(kn_comm *comm) {
    kn__gpu *gpu = comm->gpu;
    if (!gpu) return;
    if (gpu->state && atomic_load(&comm->broken)) gpu->engine->give_up(gpu->state);
    if (gpu->state) gpu->engine->close(gpu->state, comm->timeout_ns);
    for (int i = 0; i < KN__WATCHES; i++) kn_event_destroy(gpu->watch[i].event);
    free(gpu);
    comm->gpu = NULL;
}
