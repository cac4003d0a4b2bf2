/* The tape's inside: nodes, the table of gradient rules, and one walk over the tape.
 *
 * Vocabulary. A *node* stands for one recorded call and, in backward, for the gradient of its
 * result. An *edge* leads from a node to what made its input: another node, or a parameter. A
 * *pass* is one kn_backward or kn_gradients.
 * Invariants. Nodes lie in the tape's arena in execution order, so walking `prev` visits consumers
 * before producers. A node owns the references of its saved values and of its gradient; `out` is
 * borrowed and nulled when that tensor goes. A tensor's `grad` points to a node of an open tape or
 * to a living parameter, or is NULL.
 */
#ifndef KN_TAPE_SRC_H
#define KN_TAPE_SRC_H

#include <knet/op.h>
#include <knet/tape.h>
#include <string.h>

#include "checked.h"

/* An op that fails inside a rule is reported at the call site of the op whose gradient it is. */
#undef KN_LOCATED
#define KN_LOCATED(call) (call)

typedef struct kn__param kn__param;
typedef struct kn__tape kn__tape;

/* What kn_tensor.grad points to (its grad_kind). SPENT: a tape that was consumed; grad is NULL. */
enum { KN__GRAD_NONE = 0, KN__GRAD_NODE, KN__GRAD_PARAM, KN__GRAD_SPENT };

/* Nodes that are no op of the table. */
enum { KN__OP_WATCH = KN_OP_COUNT, KN__OP_APPLY };

/* --- edges: a node or, with the low bit set, a parameter; 0: wants no gradient --- */
typedef uintptr_t kn__edge;
typedef struct kn__node kn__node;

static inline kn__edge kn__edge_of(const kn_tensor *t) {
    return (kn__edge)t->grad | (t->grad_kind == KN__GRAD_PARAM);
}
static inline kn__param *kn__edge_param(kn__edge e) {
    return e & 1 ? (kn__param *)(e & ~(kn__edge)1) : NULL;
}
static inline kn__node *kn__edge_node(kn__edge e) { return e & 1 ? NULL : (kn__node *)e; }

/* --- nodes --- */
typedef struct kn__saved {
    kn_tensor *t; /* NULL: not needed by this call */
    uint32_t version;
} kn__saved;

struct kn__node { /* followed by edges, saved values, shapes of inputs, attributes */
    kn__node *prev, *next;
    kn__tape *tape;
    kn_tensor *out;   /* borrowed; NULL once it is gone */
    kn_tensor *grad;  /* of out, in backward; owned */
    uint64_t need;    /* bit i: input i has an edge */
    const char *file; /* call site, taken from `out` when it goes */
    int line;
    uint16_t op;
    uint16_t shapes_at, attr_at; /* offsets from the node, bytes */
    uint8_t n_in, n_saved, n_shapes;
    uint8_t leads_to_param; /* some path from here ends at a parameter */
    uint8_t wanted;         /* kn_gradients: on a path to a target */
    uint8_t n_users;        /* edges that lead here; 2: two or more */
    int target;             /* kn_gradients: 1 + the index of its answer; 0: not asked for */
};

static inline kn__edge *kn__node_edges(kn__node *n) { return (kn__edge *)(n + 1); }
static inline kn__saved *kn__node_saved(kn__node *n) {
    return (kn__saved *)(kn__node_edges(n) + n->n_in);
}
static inline const kn_shape *kn__node_shape(const kn__node *n, int i) {
    KN_ASSERT(i < n->n_shapes);
    return (const kn_shape *)(const void *)((const char *)n + n->shapes_at) + i;
}
static inline void *kn__node_attr(kn__node *n) { return (char *)n + n->attr_at; }

const char *kn__node_name(const kn__node *n);
/* "relu (mlp.c:12)", for messages. */
char *kn__node_text(char *out, size_t out_bytes, const kn__node *n);
/* Gives back what the node saved. */
void kn__node_release_saved(kn__node *n);

/* --- tapes --- */
typedef struct kn__chunk kn__chunk;
struct kn__tape {
    kn__node *first, *last;
    kn__chunk *chunks, *current; /* `chunks` is the list, `current` the one being filled */
    char *at, *end;
    int64_t n_nodes;
};

/* A node with room for what is named, appended; everything zero. NULL: no memory, error recorded.
 */
kn__node *kn__tape_node(kn__tape *tape, int op, int n_in, int n_saved, int n_shapes,
                        size_t attr_bytes);
/* Fills edge i from an input; the node takes part in passes once kn__node_attach ran. */
void kn__node_edge(kn__node *n, int i, const kn_tensor *in);
void kn__node_attach(kn__node *n, kn_tensor *out);
/* Empties the tape: survivors become constants. */
void kn__tape_clear(kn__tape *tape);
/* Takes the node out of use; `consume`: gives back its result's storage too. */
void kn__node_retire(kn__node *n, bool consume);

/* --- one pass --- */
typedef struct kn__pass {
    kn__tape *tape;
    kn__node *from;      /* the loss */
    kn_tensor *unit;     /* the gradient it starts with: ones */
    uint32_t mark;       /* what the frame owned when the pass began */
    bool again;          /* record the gradients */
    bool keep;           /* leave the tape as it is */
    bool to_params;      /* kn_backward; else into slots */
    kn_tensor *const *x; /* kn_gradients: its targets and their gradients */
    kn_tensor **slots;
    int n_x;
    struct kn_params *touched; /* kn_backward: sets that it has written to */
} kn__pass;

/* Walks from pass->from to the tape's start. On failure the error is recorded and returned. */
kn_status kn__pass_run(kn__pass *pass);

/* --- rules --- */
typedef struct kn__back { /* the gradient of one node, being computed for its input i */
    kn__pass *pass;
    kn__node *node;
    kn_tensor *g; /* of the node's result */
} kn__back;

/* Gradient for input i: a tensor; KN_NONE for "zero" or "written already"; NULL with the error
 * pending. */
typedef kn_tensor *(*kn__rule_fn)(kn__back *b, int i);

enum { KN__IN0 = 1, KN__IN1, KN__IN2, KN__OUT, KN__AUX };
typedef struct kn__save { /* keep `what` when the gradient of an input in mask `when` is wanted */
    uint8_t what, when;
} kn__save;
enum {
    KN__SHAPES_NONE = 0,
    KN__SHAPES_FIRST,
    KN__SHAPES_TWO,
    KN__SHAPES_ALL,
    KN__SHAPES_BROADCAST
};
enum {
    KN__NOTE_NONE = 0,
    KN__NOTE_DTYPE,
    KN__NOTE_DEVICE
}; /* of input 0, in the attributes' place */
enum { KN__SAVES_MAX = 3 };

typedef struct kn__rule {
    kn__rule_fn back;
    kn__save save[KN__SAVES_MAX];
    uint8_t n_saves, shapes, note, nograd;
    uint8_t knows_one; /* as kn_backward's loss it takes KN_NONE for a gradient of one */
} kn__rule;

extern const kn__rule kn__rules[KN_OP_COUNT] __attribute__((visibility("hidden")));

/* What the node saved k-th, in the order of its row. */
static inline kn_tensor *kn__back_saved(const kn__back *b, int k) {
    return kn__node_saved(b->node)[k].t;
}
static inline const void *kn__back_attr(const kn__back *b) { return kn__node_attr(b->node); }
static inline kn_shape kn__back_shape(const kn__back *b, int i) {
    return *kn__node_shape(b->node, i);
}
/* Runs a call whose result is the gradient of input i, for ops that accumulate: straight into a
 * parameter's slice, or into a gradient that is there already, where that is safe. */
kn_tensor *kn__back_run(kn__back *b, int i, kn_op_call *call);
/* For nodes that compute all their gradients at once. */
bool kn__back_wants(const kn__back *b, int i);
kn_status kn__back_deliver(kn__back *b, int i, kn_tensor *dx);
/* kn_gradients: where the gradient of a parameter goes; NULL: it was not asked for. */
kn_tensor **kn__param_slot(const kn__pass *pass, const kn__param *p);
/* g summed to input i's shape where the call broadcast it; g itself where not. */
kn_tensor *kn__back_unbroadcast(kn__back *b, int i, kn_tensor *g);

/* Ops of the user's own. */
kn_status kn__apply_back(kn__back *b);
void kn__apply_free(kn__node *n);
const char *kn__apply_name(const kn__node *n);

/* A tensor of the innermost frame, filled with one value. */
kn_tensor *kn__filled(kn_device *device, kn_dtype dtype, kn_shape shape, double value);

static inline bool kn__dtype_is_float(uint8_t dtype) { return dtype >= KN_F32 && dtype <= KN_BF16; }
/* Nobody else reads t or its storage. */
static inline bool kn__alone(const kn_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1;
}

#endif
