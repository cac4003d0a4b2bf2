/* What this library keeps for a thread: its frames, the tensors they own, free records.
 *
 * One pointer of thread-local storage; its target is made at first need and freed when the
 * thread ends. The owned tensors are one vector, cut into one segment per open frame: the innermost
 * frame's is the last, so keeping a tensor is a swap to the segment's start and a move of the
 * border. */
#ifndef KN_THREAD_H
#define KN_THREAD_H

#include <knet/op.h>
#include <stddef.h>
#include <string.h>

/* An open frame. Hot as a whole: each call takes its device, stream, pool and modes from the
 * innermost one. */
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
    bool opens_tape;  /* the tape ends with this frame */
    bool fuse;        /* pointwise results are put off: fuse.h */
    bool recompute;   /* backward computes saved values again: autograd/src/again.c */
    uint8_t autocast; /* KN_F16 or KN_BF16: autocast.c; 0: off */
    uint8_t layout;   /* convolutions' results stay in blocks of channels: conv_layout.h */
} kn__frame;

enum { KN__THREAD_EVENTS = 16 };

/* What this library keeps for a thread, read by it alone: no atomics. Hot: the first cache line,
 * with the frame and what hands out records of tensors; `capture` and `pieces`, of which each call
 * asks whether they are there; under .fuse also `pending` and its kin. */
typedef struct kn__ops_thread {
    kn__frame *frame; /* the innermost; NULL when none is open */
    kn_tensor **owned;
    uint32_t n_owned, owned_cap;
    uint32_t n_frames, frames_cap, serial;
    int n_events;
    kn_device *host;
    kn_tensor *ended;    /* records of tensors that ended, the oldest first; linked by `grad` */
    kn_edge *ended_last; /* the link at the list's end */
    uint32_t n_ended;
    kn__frame *frames;
    kn__frame defaults; /* what an outermost frame inherits */
    kn_device *event_devices[KN__THREAD_EVENTS];
    kn_event *events[KN__THREAD_EVENTS];     /* one a device, for waits between streams */
    struct kn__expr *pending, *pending_last; /* put off, the oldest first */
    struct kn__expr *exprs_free;
    uint64_t expr_serial;     /* of the last expression */
    uint64_t n_layouts;       /* results that were left in another layout */
    const kn_storage *unread; /* by expressions up to unread_serial */
    uint64_t unread_serial;
    uint32_t expr_mark;        /* of the last count of steps */
    struct kn__plan *capture;  /* of the step that is recorded; capture.h */
    bool plain_layouts;        /* .layout of frames is off: the step will be recorded */
    struct kn__pieces *pieces; /* work space of the call that is replayed; NULL: none is placed */
    const char *const *as;     /* names in errors: KN__AS; NULL: the ops' own */
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
void kn__records_leave(kn_tensor *first, kn_edge *last, uint32_t n);
/* Frees those left that need not lie idle, unless a step is being recorded. */
void kn__records_trim(void);

/* Ends every frame above `depth`. */
void kn__frames_end(kn__ops_thread *self, uint32_t depth);
/* The thread's event of a device. */
kn_status kn__thread_event(kn_event **out, kn__ops_thread *self, kn_device *device);

/* --- tensor.c --- */
extern struct kn_tensor kn__none __attribute__((visibility("hidden")));

/* Whether t can be read: not NULL, not KN_NONE, neither consumed nor ended. */
static inline bool kn__is_whole(const kn_tensor *t) { return t && t->storage; }

/* Elements of a shape; -1 when a dimension is negative or the size does not fit. */
int64_t kn__shape_numel(const kn_shape *shape);
/* SHAPE: "kn_NAME: shape [-1,2] is negative or too large", name may be NULL; returns NULL, the
 * error is pending. */
void *kn__fail_shape(const char *name, const kn_shape *shape);
/* OOM: "no memory for a tensor [2,3] f32: …"; returns NULL, the error is pending. */
void *kn__fail_memory(const kn_tensor *t);
/* The oldest record that ended, or a new one; NULL: pending OOM error. */
kn_tensor *kn__record_other(kn__ops_thread *self);
static const uint8_t kn__dtype_size[] = {0, 4, 8, 2, 2, 8, 4, 1, 1};

/* Makes `view` read t's data from element `offset` on; its shape is the caller's to set. */
void kn__header_share(kn_tensor *view, kn_tensor *t, int64_t offset);

/* t's frame is about to release it: the data goes too where all other references are of nodes that
 * can make it again. */
void kn__tensor_forget(kn_tensor *t);

/* One more user of the data, and one less. */
void kn__storage_share(kn_storage *s);
void kn__storage_drop(kn_storage *s);
/* fuse.c: the end of an expression whose storage ends. */
void kn__expr_drop(struct kn__expr *e);

/* A header without storage, dtype and shape, of no frame; NULL: pending OOM error. */
static inline kn_tensor *kn__header_new(kn__ops_thread *self) {
    kn_tensor *t = self->ended;
    if (__builtin_expect(self->n_ended <= KN__ENDED_MIN, 0)) {
        if (!(t = kn__record_other(self))) return NULL;
    } else {
        kn_tensor *next = (kn_tensor *)t->grad; /* never the last one */
        self->ended = next;
        self->n_ended--;
        __builtin_prefetch(next, 1); /* by then it left the first cache */
        __builtin_prefetch((char *)next + 64, 1);
        __builtin_prefetch((char *)next + 128, 1);
    }
    typedef struct fresh { /* the part of a header that is the same in all new ones */
        uint32_t refs, holds, owned;
        uint8_t dtype[4];
        uint64_t zero[3];
    } fresh;
    static const fresh header = {1, 0, UINT32_MAX, {0}, {0}};
    _Static_assert(sizeof header == offsetof(kn_tensor, n), "all before n");
    memcpy((void *)t, &header, sizeof header);
    t->storage = NULL;
    atomic_store_explicit(&t->own.refs, 1, memory_order_relaxed);
    return t;
}

/* Memory for the header's own storage. False: pending OOM error. */
static inline bool kn__storage_make(kn_tensor *t, kn_pool *pool, kn_device *device,
                                    kn_stream stream) {
    kn_storage *s = &t->own;
    s->version = 0;
    s->expr = NULL;
    s->owner = NULL;
    s->device = device;
    s->pool = pool;
    s->stream = stream;
    s->size_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    if (__builtin_expect(kn_alloc(&s->data, pool, s->size_bytes, stream) < 0, 0)) {
        kn__fail_memory(t);
        return false;
    }
    atomic_store_explicit(&s->refs, 3, memory_order_relaxed);
    t->storage = s;
    t->data = s->data;
    return true;
}

/* --- frame.c --- */
bool kn__owned_grow(kn__ops_thread *self);
/* Adds t to the innermost frame; takes the caller's reference, also when it fails: NULL, the error
 * is pending. */
static inline kn_tensor *kn__frame_own(kn__ops_thread *self, kn_tensor *t) {
    if (__builtin_expect(self->n_owned == self->owned_cap, 0) && !kn__owned_grow(self)) {
        kn_tensor_release(t);
        return NULL;
    }
    t->owned = self->n_owned;
    self->owned[self->n_owned++] = t;
    return t;
}
/* Pending INVALID error: no frame is open. Returns NULL. */
void *kn__no_frame(void);
extern const kn_recorder *kn__recorder __attribute__((visibility("hidden")));

#endif
