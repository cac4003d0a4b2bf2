/* The simulated device's records. A stream is a queue of items that run when the test lets them.
 * Vector clocks tell which work is ordered before which, so that reuse too early is detected when
 * it is enqueued, whatever order the test then runs. */
#ifndef KN_ALLOC_SIM_STATE_H
#define KN_ALLOC_SIM_STATE_H

#include <knet/device_driver.h>
#include <knet/sim.h>
#include <pthread.h>
#include <stdatomic.h>

/* Streams by number: created ones, then one a thread. */
enum {
    KN__SIM_STREAMS = 4096,
    KN__SIM_THREADS = 4096,
    KN__SIM_SLOTS = KN__SIM_STREAMS + KN__SIM_THREADS
};
#define KN__SIM_PER_THREAD ((kn_stream)2) /* cudaStreamPerThread */
#define KN__SIM_ALIGN ((size_t)2 << 20)   /* bytes */

typedef enum kn__sim_item_kind { KN__SIM_WORK, KN__SIM_RECORD, KN__SIM_WAIT } kn__sim_item_kind;
typedef struct kn__sim_queue kn__sim_queue;

/* By queue: how many of its items are ordered before a point. */
typedef struct kn__sim_clock {
    uint64_t *counts;
    size_t n;
} kn__sim_clock;

/* An item of a queue, passed when it has run. */
typedef struct kn__sim_point {
    const kn__sim_queue *queue; /* NULL: passed from the beginning */
    uint64_t index;
} kn__sim_point;

typedef struct kn__sim_event {
    kn__sim_point point;        /* the last record */
    kn__sim_clock clock;        /* of the queue at that record */
    struct kn__sim_event *next; /* of all events, destroyed ones too */
} kn__sim_event;

typedef struct kn__sim_item {
    kn__sim_item_kind kind;
    uint64_t index; /* in its queue, from 1 */
    const char *ptr;
    size_t size;
    uint64_t user;
    kn__sim_point until; /* of a wait: as the event was then, whatever it records later */
} kn__sim_item;

struct kn__sim_queue {
    uint64_t thread;     /* whose own default stream it is; 0: a created stream's, or NULL's */
    size_t index;        /* among all queues, those of destroyed streams too */
    kn__sim_item *items; /* those that have not run: [head, head + n) */
    size_t head, n, room;
    uint64_t n_enqueued;
    kn__sim_clock clock; /* of the next kn__sim_item */
    bool capturing;      /* recording, waiting and being waited for are violations */
    bool held, foreign;
};

typedef struct kn__sim_extent {
    char *ptr;
    size_t size;
    uint64_t handle; /* 0: a segment */
    bool access;     /* work may use it */
} kn__sim_extent;

typedef struct kn__sim_handle {
    size_t size; /* 0: destroyed */
    bool mapped;
} kn__sim_handle;

struct kn_sim {
    pthread_mutex_t lock;
    kn_device_driver driver;
    uint64_t capacity, bytes, objects, now_ns;
    uintptr_t next_address;
    kn__sim_queue **queues;
    size_t n_queues;
    _Atomic(kn__sim_queue *)
        streams[KN__SIM_SLOTS]; /* by number: created ones, then one a thread */
    kn__sim_extent *extents;    /* by address */
    size_t n_extents, extents_room;
    kn__sim_handle *handles; /* by number */
    size_t n_handles, handles_room;
    uint64_t unused_handle; /* no lower one is unused */
    kn__sim_event *events;
    uint64_t calls[KN_SIM_CALLS];
    kn_sim_call fail_call;
    uint64_t fail_in;
    bool fail_forever;
    bool instant;
    uint64_t n_violations;
    char violation[256];
};

/* sim_state.c */

/* Memory of the simulation itself. Without it the checks would be wrong, so these trap. */
void *kn__sim_grown(void *ptr, size_t size_bytes);
/* An array with room for item n. */
void *kn__sim_roomy(void *ptr, size_t n, size_t *room, size_t item_bytes);
extern const char *const kn__sim_call_names[KN_SIM_CALLS] __attribute__((visibility("hidden")));
/* Counts a violation; the first one's text is kept. */
KN_PRINTF(2, 3) void kn__sim_violate(kn_sim *sim, const char *fmt, ...);
/* Counts the call; fails when it is the one that was scripted to. */
kn_status kn__sim_scripted(kn_sim *sim, kn_sim_call call);
/* Tell the observer. */
kn_sim_call kn__sim_call_begin(kn_sim_call call);
void kn__sim_call_end(const kn_sim_call *call);

/* Locks the device until the end of the block. */
#define LOCKED(sim)                                                                                \
    kn_sim *const locked_ __attribute__((cleanup(kn__sim_unlock), unused)) = kn__sim_lock(sim)

static inline kn_sim *kn__sim_lock(kn_sim *sim) {
    pthread_mutex_lock(&sim->lock);
    return sim;
}

static inline void kn__sim_unlock(kn_sim *const *sim) { pthread_mutex_unlock(&(*sim)->lock); }

/* First statement of a driver function: notifies the observer and locks the device, to its end. */
#define CALLED(impl, call)                                                                         \
    kn_sim *sim = (impl);                                                                          \
    const kn_sim_call called_ __attribute__((cleanup(kn__sim_call_end), unused)) =                 \
        kn__sim_call_begin(call);                                                                  \
    LOCKED(sim)
/* The same in a function that can be scripted to fail. */
#define ENTER(impl, call)                                                                          \
    CALLED(impl, call);                                                                            \
    KN_TRY(kn__sim_scripted(sim, call))

/* sim_memory.c */
void kn__sim_memory_fill(kn_device_driver *out); /* its functions */
/* A violation where not all of the bytes are memory that work may use. */
void kn__sim_check_memory(kn_sim *sim, const char *ptr, size_t size, const char *who);

/* sim_streams.c */
void kn__sim_streams_fill(kn_device_driver *out); /* its functions */
/* Work that may still use the bytes. With `after`, ignores work of that queue and of the same user,
 * and work that is ordered before the queue's next item. */
const kn__sim_item *kn__sim_find_work(const kn_sim *sim, const char *ptr, size_t size,
                                      const kn__sim_queue *after, uint64_t user);
kn__sim_queue *kn__sim_queue_new(kn_sim *sim);
/* The stream's queue; a missing one is a violation. */
kn__sim_queue *kn__sim_queue_of(kn_sim *sim, kn_stream stream);
kn_stream kn__sim_handle_of_thread(void); /* of its own default stream */
/* Runs the oldest item; false if the queue is empty, or the item waits. */
bool kn__sim_step(kn__sim_queue *q);
/* On an instant device: runs all that waits for no held stream. */
void kn__sim_keep_up(kn_sim *sim);
void kn__sim_run_all(kn_sim *sim);
void kn__sim_enqueue(kn_sim *sim, kn__sim_queue *q, kn__sim_item t);

#endif
