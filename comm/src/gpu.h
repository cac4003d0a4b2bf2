/* Collectives on tensors of a GPU. */
#ifndef KN_COMM_GPU_H
#define KN_COMM_GPU_H

#include "ranks.h"

enum { KN__WATCHES = 64 }; /* calls under way; the next one waits for the first */

/* A call that is on a stream. */
typedef struct kn__watch {
    kn__job job;
    kn__call call;
    kn_event *event; /* behind it */
    bool is_used;
} kn__watch;

/* Made with the first call. */
struct kn__gpu {
    const kn__engine *engine;
    void *state;
    kn_device *device; /* NULL: not joined yet */
    kn__watch watch[KN__WATCHES];
    unsigned next;
    atomic_bool is_abandoned;
};

/* Enqueues a collective on work->stream of the device, and returns. With the first call the ranks
 * join, and it waits for all of them. A failure that comes later is that of the next call. */
kn_status kn__gpu_run(kn_comm *comm, const char *name, kn_device *device,
                      const kn__engine_work *work, uint64_t bytes);
/* The stream on which kn_data of a tensor on this device can be used. */
kn_status kn__gpu_stream(kn_stream *out, kn_device *device);
kn_status kn__gpu_check(const char *name, kn_dtype dtype, kn_comm_op op);
/* Lets the worker watch no longer. */
void kn__gpu_abandon(kn_comm *comm);
void kn__gpu_end(kn_comm *comm);

#endif
