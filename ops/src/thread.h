/* What this library keeps for a thread: its frames, the tensors they own, free records.
 *
 * One pointer of thread-local storage; what it points to is made at first need and freed when the
 * thread ends. The owned tensors are one vector, cut into one segment per open frame: the innermost
 * frame's is the last, so keeping a tensor is a swap to the segment's start and a move of the
 * border. */
#ifndef KN_THREAD_H
#define KN_THREAD_H

#include <knet/op.h>

typedef struct kn__frame {
    kn_device *device;
    kn_stream stream;
    kn_pool *pool;
    void *tape;      /* the tape open around or at this frame; NULL: none */
    uint32_t serial; /* of this opening; never 0 */
    uint32_t first;  /* its first tensor in `owned` */
    kn_dtype dtype;
    int threads;
    kn_math_mode math;
    bool recording;
    bool opens_tape; /* the tape ends with this frame */
} kn__frame;

enum { KN__THREAD_EVENTS = 16 };

typedef struct kn__ops_thread {
    kn__frame *frame; /* the innermost; NULL when none is open */
    kn_tensor **owned;
    uint32_t n_owned, owned_cap;
    uint32_t n_frames, frames_cap, serial;
    int n_events;
    kn_device *host;
    kn_tensor *ended;  /* records of tensors that ended, the oldest first; linked by `grad` */
    void **ended_last; /* the link at the list's end */
    kn_storage *free_storages; /* linked by `data` */
    uint32_t n_ended, n_free_storages;
    kn__frame *frames;
    kn__frame defaults; /* what an outermost frame inherits */
    kn_device *event_devices[KN__THREAD_EVENTS];
    kn_event *events[KN__THREAD_EVENTS]; /* one a device, for waits between streams */
} kn__ops_thread;

extern _Thread_local kn__ops_thread *kn__ops_self
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* This thread's state, made at first use; NULL, with the error pending, when there is no memory. */
kn__ops_thread *kn__ops_thread_make(void);
static inline kn__ops_thread *kn__ops_thread_get(void) {
    kn__ops_thread *self = kn__ops_self;
    return __builtin_expect(self != NULL, 1) ? self : kn__ops_thread_make();
}

/* Records of tensors that ended lie idle, so that use after the end is found: the last 1,024 of a
 * thread, and as many of threads that ended. */
enum { KN__ENDED_MIN = 1024 };
/* A record that an ended thread left, or a new one; NULL: no memory. */
kn_tensor *kn__record_new(void);
/* Leaves n records, linked by `grad` up to the link at `last`, to other threads. */
void kn__records_leave(kn_tensor *first, void **last, uint32_t n);

/* Ends every frame above `depth`. */
void kn__frames_end(kn__ops_thread *self, uint32_t depth);
/* The thread's event of a device. */
kn_status kn__thread_event(kn_event **out, kn__ops_thread *self, kn_device *device);

/* --- tensor.c --- */
extern struct kn_tensor kn__none __attribute__((visibility("hidden")));

/* Whether t can be read: not NULL, not KN_NONE, neither consumed nor ended. */
static inline bool kn__is_whole(const kn_tensor *t) { return t && t->storage; }

/* A tensor of the innermost frame with new storage; NULL: pending. `op` names it in errors. */
kn_tensor *kn__tensor_make(kn__ops_thread *self, kn_pool *pool, kn_device *device, kn_stream stream,
                           kn_dtype dtype, const kn_shape *shape);
/* Elements of a shape; -1 when a dimension is negative or the size does not fit. */
int64_t kn__shape_numel(const kn_shape *shape);

/* --- frame.c --- */
/* Adds t to the innermost frame; takes the caller's reference, also when it fails. */
kn_tensor *kn__frame_own(kn__ops_thread *self, kn_tensor *t);
/* Pending INVALID error: no frame is open. Returns NULL. */
void *kn__no_frame(void);
extern const kn_recorder *kn__recorder __attribute__((visibility("hidden")));

#endif
