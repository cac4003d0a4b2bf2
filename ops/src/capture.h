/* Plans of captured steps: the recorded calls, and where their memory lies.
 *
 * Vocabulary. A *buffer* is the data of one storage that the step uses: *inside*, made by one of
 * its calls, or from outside. A *view* is a frozen header: what a kernel reads of a tensor. Calls
 * that read the same data as the same shape share one.
 * Invariants. While a step is recorded, each storage's address has one buffer: headers that end are
 * not used again, whoever makes a storage tells so, and those from outside are shared. A view's
 * data is set when the recording ends: in the region, outside, or, at each replay, in an input. On
 * a GPU the calls are enqueued once more, into a graph, which a replay launches. A graph's
 * addresses are fixed, so its inputs lie in the region too, and a replay copies them there. */
#ifndef KN_CAPTURE_SRC_H
#define KN_CAPTURE_SRC_H

#include <knet/capture.h>
#include <knet/op_watch.h>

#include "fuse_plan.h"
#include "hash.h"
#include "kernel.h"
#include "thread.h"

typedef struct kn__buffer {
    kn_storage *storage; /* NULL: work space */
    char *data;
    size_t size_bytes, offset; /* offset: in the region */
    int32_t first, last;       /* inside: the calls that use it */
    uint16_t op;               /* inside: that made it */
    bool inside, written, is_out;
    bool read; /* outside: read or written as more than an input */
} kn__buffer;

typedef struct kn__frozen {
    kn_tensor *t;
    const void **at; /* t is NULL: a pointer of a fused pass */
    size_t at_bytes; /* in the buffer, or in the input */
    uint32_t buffer; /* KN__NO_BUFFER: no data */
    int32_t input;   /* -1: of none */
} kn__frozen;
enum { KN__NO_BUFFER = -1 };
static inline void kn__frozen_set(const kn__frozen *v, char *data) {
    if (v->t)
        v->t->data = v->t->own.data = data;
    else
        *v->at = data;
}

/* A pass of fused rows, and what the timer says of it. */
typedef struct kn__chain_note {
    const char *label;
    uint64_t moved_bytes;
    kn__fused f; /* without the steps that it doesn't have */
} kn__chain_note;

/* A scope of the timer that was open around calls. */
enum { KN__SCOPES = 64 }; /* inside each other; deeper ones are left out */
typedef struct kn__scope_note {
    const char *label;
    uint64_t start; /* tells its opening from others */
    int32_t parent; /* -1: it is the outermost */
    int depth;      /* 1: the outermost */
} kn__scope_note;
/* What a replay has open. */
typedef struct kn__scopes {
    kn_scope scope[KN__SCOPES];
    int32_t note[KN__SCOPES];
    int n;
} kn__scopes;

typedef struct kn__prepared {
    kn_kernel_fn kernel;
    kn_op_call call;
    const kn__chain_note *chain; /* the pass that it is, or whose tiles the call reads, or NULL */
    uint32_t piece, n_pieces;    /* of work space */
    int32_t scope;               /* the innermost one around it; -1: none */
} kn__prepared;

/* On a GPU: work space of a call; kernels get it in the order in which they ask for it, each piece
 * that they end again before a new one. */
typedef struct kn__piece {
    void *data; /* while the step is recorded, of its current piece; else placed */
    size_t size_bytes;
    uint32_t buffer;
    bool in_use;
} kn__piece;
typedef struct kn__pieces {
    kn__piece *piece;
    uint32_t n;
    bool fixed; /* no other work space may be taken: addresses go into a graph */
} kn__pieces;

/* Memory that outputs read, too. */
typedef struct kn__plan_memory {
    _Atomic uint32_t refs;
    kn_pool *pool;
    void *data;
    size_t size_bytes;
} kn__plan_memory;

/* The shape that an input had. */
typedef struct kn__plan_input {
    const kn_tensor *t; /* these two while the step is recorded */
    kn_storage *storage;
    char *data;
    size_t size_bytes;
    uint32_t buffer; /* on a GPU: its copy in the region */
    uint32_t skew;   /* of the copy, in bytes: keeps the alignment of the recorded input */
    int64_t dim[KN_DIMS_MAX];
    uint8_t n_dims, dtype;
    bool written;
} kn__plan_input;

/* Something that the step does on the host. */
typedef struct kn__effect {
    kn_capture_effect effect;
    int32_t at; /* before this call; on a GPU after the launch */
} kn__effect;

/* What those call who know of no plans: they would else call each other in a circle. */
typedef struct kn__plan_hooks {
    /* Runs the kernel, and notes the call. */
    kn_status (*call)(struct kn__plan *plan, kn_op_call *call, kn_kernel_fn kernel);
    /* The call that is run now has taken work space, or given it back. */
    void (*work_taken)(struct kn__plan *plan, void *data, size_t size_bytes);
    void (*work_ended)(struct kn__plan *plan, const void *data);
    /* A pass of fused rows was run; it closes with the call that is run now, or is one by itself.
     */
    void (*pass)(struct kn__plan *plan, const kn__fuse_plan *p, const kn__fused *f);
    /* A storage was made inside, by an op or not (op: KN_OP_COUNT). */
    void (*made)(struct kn__plan *plan, kn_storage *s, unsigned op);
    /* A storage is about to be written. */
    void (*claims)(struct kn__plan *plan, kn_storage *s);
} kn__plan_hooks;

typedef struct kn__plan {
    const kn__plan_hooks *hooks;
    kn_device *device;
    kn_pool *pool;
    kn_stream stream; /* of the frame */
    bool on_gpu;
    kn_frame frame;
    kn_status status;   /* the first failure to record */
    void *graph;        /* on a GPU; NULL: no calls */
    kn_event *launched; /* the last time, on launched_on */
    kn_stream launched_on;
    uint64_t used;     /* the capture's launch that used it last */
    uint64_t variant;  /* kn_capture_select */
    uint32_t settings; /* kn__capture_settings when it was recorded */
    kn__plan_input *inputs;
    int n_inputs;
    kn__prepared *calls;
    int32_t n_calls, calls_cap;
    kn__buffer *buffers;
    uint32_t n_buffers, buffers_cap;
    kn__frozen *views;
    uint32_t n_views, views_cap;
    kn__piece *pieces;
    uint32_t n_pieces, pieces_cap, first_piece; /* first_piece: of the call that is recorded */
    kn__hash by_storage, by_view;
    const kn__chain_note *chain; /* that the call which is recorded reads */
    kn__scope_note *scopes;
    uint32_t n_scopes, scopes_cap;
    int base_depth;                /* of scopes, when it began */
    bool has_scopes;               /* the timer was on then */
    struct kn__plan_chunk *chunks; /* what calls point to */
    size_t chunk_left;
    kn__effect *effects;
    int n_effects, n_applied; /* in the replay that runs, or ran last */
    kn_storage **outside; /* written storages, whose versions continue, then those that are read */
    uint32_t n_written, n_outside;
    kn__plan_memory *region;
    kn_tensor **out;
    int n_out;
} kn__plan;

typedef struct kn__seen { /* inputs of which one step has run: kn_capture_run */
    uint64_t key;
} kn__seen;

struct kn_capture {
    kn__plan **plans;
    int n_plans, plans_max;
    kn__plan *recording; /* NULL: none */
    kn__plan *replaced;  /* by the one that is recorded; NULL: none */
    kn__plan *last;      /* recorded or replayed last */
    uint64_t n_recorded, n_launches, clock;
    uint64_t variant; /* of the plans that are found and recorded now */
    kn__hash seen;
};

/* --- capture.c --- */
/* Whether all can be read, and lie on one device. name: of the caller, for the message. */
uint32_t kn__capture_settings(void);
kn_status kn__capture_inputs_check(const char *name, kn_tensor *const in[], int n_in);
/* INVALID if one has a gradient on the open tape: the tape does not record replays. */
kn_status kn__capture_edges_check(const char *name, kn_tensor *const in[], int n_in);

/* --- capture_record.c --- */
extern const kn__plan_hooks kn__plan_records;
/* The buffer of a storage; one that is not known is from outside. -1: no memory. */
int64_t kn__plan_buffer(kn__plan *plan, kn_storage *s);
/* The buffer of s, whose data will be these; -1: no memory. */
int64_t kn__plan_made_at(kn__plan *plan, kn_storage *s, void *data, unsigned op);
/* The input that contains n_bytes at `data` of buffer i, for data that was read through an input or
 * a view of one; -1: none does. */
int32_t kn__plan_input_of(const kn__plan *plan, int64_t i, const char *data, size_t n_bytes);
/* Sets *at, which points to n_bytes in buffer i, when the plan is placed. of_input: as of a tensor.
 * False: no memory. */
bool kn__plan_pointer(kn__plan *plan, int64_t i, const void **at, size_t n_bytes, bool of_input);
/* Memory of the plan; NULL: the plan has none. */
void *kn__plan_take(kn__plan *plan, size_t n_bytes);
/* Room for one more item; false: no memory. */
bool kn__plan_room(void **items, uint32_t *cap, uint32_t n, size_t item_bytes);
/* On a GPU: a place in the region for each input. */
kn_status kn__plan_inputs_place(kn__plan *plan);
/* How many tensors still read buffer i, which was made inside. */
uint32_t kn__plan_users(const kn__plan *plan, uint32_t i);
/* Ends the plan's shares of tensors that it read as inputs alone: replays have others. */
void kn__plan_inputs_drop(kn__plan *plan);
void kn__plan_free(kn__plan *plan);

/* --- capture_fuse.c --- */
/* NULL: no memory. */
kn__chain_note *kn__chain_note_make(kn__plan *plan, const kn__fuse_plan *p, const kn__fused *f);
kn_kernel_fn kn__chain_kernel(bool closes);
kn_scope kn__chain_note_begin(const kn__chain_note *note);
void kn__chain_note_end(kn_scope *scope, const kn__chain_note *note);

/* --- capture_scope.c --- */
void kn__plan_scopes_begin(kn__plan *plan);
/* The note of the innermost scope around the call that is recorded; -1: none. */
int32_t kn__plan_scope(kn__plan *plan);
/* Closes and opens scopes until those of the note are open. */
void kn__scopes_move(kn__scopes *open, const kn__plan *plan, int32_t to);

/* --- capture_watch.c: while kn__is_watched --- */
/* Storages of the event of a replayed call: those of the step. ctx: the plan. */
void kn__plan_event_names(void *ctx, kn_op_event *e);
/* p is a pass, or reads the tiles of one. */
void kn__plan_watch_pass(const kn__plan *plan, const kn__prepared *p);

/* --- capture_place.c --- */
/* Places buffers in a region, and sets the views' data. */
kn_status kn__plan_place(kn__plan *plan);
void kn__region_drop(kn__plan_memory *region);
/* Of tensors in it: each holds a reference. */
kn_owner kn__region_owner(kn__plan_memory *region);
typedef kn_status (*kn__block_fn)(kn_pool *pool, void *block, kn_stream stream);
/* kn_block_use or kn_block_await, for the memory of a captured result, if s is one. */
kn_status kn__region_call(kn__block_fn fn, const kn_storage *s, kn_stream stream);
static inline bool kn__region_has(const kn__plan_memory *region, const void *data) {
    return (uintptr_t)data - (uintptr_t)region->data < region->size_bytes;
}
/* For kn__work and kn__work_end: a piece of the call that is replayed; NULL, or false: none. */
void *kn__pieces_take(kn__pieces *pieces, size_t size_bytes);
bool kn__pieces_end(kn__pieces *pieces, const void *data);

/* --- capture_graph.c --- */
/* Makes the graph of a placed plan. */
kn_status kn__plan_graph_make(kn__plan *plan);
/* Launches it on the thread's stream. */
kn_status kn__plan_graph_launch(kn__plan *plan, kn_tensor *const in[]);
void kn__plan_graph_end(kn__plan *plan);
/* Runs the prepared calls, and on the host the effects between them. */
kn_status kn__plan_calls_run(kn__plan *plan);

/* --- for those who make, read and write tensors --- */
/* Recordings of all threads. While there is one, headers that end are neither used again nor freed,
 * whichever thread ends them: the recording asks at its end which ones live. */
extern _Atomic uint32_t kn__n_recordings __attribute__((visibility("hidden")));
static inline bool kn__any_records(void) {
    return atomic_load_explicit(&kn__n_recordings, memory_order_acquire) != 0;
}
/* INVALID inside a recording: "NAME: …"; else KN_OK. */
static inline kn_status kn__capture_forbids(const kn__ops_thread *self, const char *name) {
    if (!self || !self->capture) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: the step is being captured (kn_capture_begin), and its replays would not "
                   "read or write these data",
                   name);
}
/* Whether t is an input of the step, or a view of one. What only lies where an input lay when the
 * step was recorded, such as a fixed row of the data set, stays there. plan: may be NULL. */
static inline bool kn__is_of_input(const kn__plan *plan, const kn_tensor *t) {
    bool is = t->of_input;
    for (int i = 0; plan && !is && i < plan->n_inputs; i++) is = plan->inputs[i].t == t;
    return is;
}
/* Frames above `depth` have ended: a recording that began there has no plan, as kn_capture_end
 * finds out. */
static inline void kn__capture_frames_end(kn__ops_thread *self, uint32_t depth) {
    if (self->capture && self->capture->frame.depth > depth) self->capture = NULL;
}

#endif
