/* What this library keeps for a thread: its error, its streams, its caches of blocks.
 *
 * Thread-local storage is scarce in a library that is loaded late, so a thread has one pointer
 * there, and beside it, in status.c, only whether an error is pending or was lost. The record it
 * points to is made at first use and freed at the thread's end. */
#ifndef KN_ALLOC_THREAD_H
#define KN_ALLOC_THREAD_H

#include <knet/device.h>
#include <stdatomic.h>

enum { KN__THREAD_STREAMS = 16, KN__POOL_SLOTS = 1024, KN__TAG_DEPTH = 32 };

struct kn__cache;

/* Hot: `caches`, one load a call in the fast path, and `tag`, which it tests. */
typedef struct kn__thread {
    struct kn__cache *caches[KN__POOL_SLOTS + 1]; /* by the pool's slot; the last: none */
    kn_device *stream_devices[KN__THREAD_STREAMS];
    kn_stream streams[KN__THREAD_STREAMS];
    int n_streams;
    bool has_default_stream;     /* it allocated for cudaStreamPerThread */
    uint8_t tag;                 /* counts the allocations made now; 0: no tag */
    uint8_t tags[KN__TAG_DEPTH]; /* those outside it */
    uint32_t tag_depth;          /* pushed and not popped; may exceed KN__TAG_DEPTH */
    bool in_stack;               /* its stack is being walked; see stacks.c */
    bool in_callback;            /* of a pool that ran out of memory; see ladder.c */
    struct kn__ring *ring;       /* of trace events; NULL: none yet */
    bool error_has_site;         /* the call site is the user's own, not one in library code */
    kn_error error;
} kn__thread;

extern _Thread_local kn__thread *kn__self
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

static inline unsigned kn__tag_now(void) { return kn__self ? kn__self->tag : 0; }

/* This thread's state, made at first use; NULL when there is no memory for it. */
kn__thread *kn__thread_get(void);

/* The ends of a thread, in this order: streams before caches, for what their ends log may allocate;
 * the trace last, for the others may have events. */
typedef enum kn__thread_end {
    KN__END_DEFAULT_STREAM,
    KN__END_STREAMS,
    KN__END_CACHES,
    KN__END_TRACE,
    KN__END_SIM, /* the others may use its stream on the simulated device */
    KN__THREAD_ENDS
} kn__thread_end;

/* Called at each thread's end from now on: gives back what the thread holds. One function for each
 * end; any thread, any time. */
void kn__thread_at_end(kn__thread_end end, void (*fn)(kn__thread *thread));

/* The system can make all threads of the process pass a memory barrier; see gate.h. */
bool kn__threads_fence_init(void);
bool kn__threads_fence(void); /* false: the system doesn't do it (any more) */

#endif
