/* The tape's inside: nodes, the table of gradient rules, and one walk over the tape.
 *
 * Vocabulary. A *node* stands for one recorded call; for each of its results it holds, in backward,
 * that result's gradient. An *edge* (kn_edge, op.h) leads from a node to what made its input: a
 * result of another node, or a parameter. A *pass* is one kn_backward or kn_gradients.
 * Invariants. Nodes lie in the tape's arena in execution order, so walking `prev` visits consumers
 * before producers. A node owns the references of its saved values and of its gradients; `out` is
 * borrowed and nulled when that tensor goes. A tensor's `grad` leads to a node of an open tape or
 * to a living parameter, or is 0.
 */
#ifndef KN_TAPE_SRC_H
#define KN_TAPE_SRC_H

#include <knet/op.h>
#include <knet/tape.h>
#include <string.h>

#include "checked.h"

typedef struct kn__param kn__param;
typedef struct kn__tape kn__tape;
typedef struct kn__node kn__node;
typedef struct kn__place kn__place;

/* Nodes that are no op of the table. */
enum { KN__OP_WATCH = KN_OP_COUNT, KN__OP_APPLY, KN__OP_SPECIAL };

/* In messages: what an earlier pass did with a value or a tape. */
#define KN__CONSUMED "consumed by kn_backward or kn_gradients"

/* --- places --- */
/* Where in the model a call was made: the innermost kn_tape_scope, in the tape's arena. */
struct kn__place {
    const kn__place *up; /* the scope around it; NULL: none */
    int depth;           /* 1 for the outermost */
    char label[];
};
enum { KN__PLACES_MAX = 24 }; /* deeper scopes count as the last of these */

/* "block1/conv2"; "" without a place. Cut to out_bytes. */
char *kn__place_text(char *out, size_t out_bytes, const kn__place *place);

/* The scope of the derivative by input i: "conv[2]" in Knet's table, "conv  d weight" in the tree.
 * Valid for ever. */
const char *kn__derivative_label(int op, int i);
/* Of several inputs, a bit each, in one call: "layernorm[1,2]", "layernorm  d x,weight". */
const char *kn__derivatives_label(int op, unsigned inputs);
/* Its scope, ended by kn_scope_end. */
static inline kn_scope kn__derivative_begin(int op, int i) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_GRAD_) ? kn_scope_begin_grad(kn__derivative_label(op, i)) : off;
}

/* --- anomaly mode --- */
extern _Atomic int kn__anomaly __attribute__((visibility("hidden")));
static inline bool kn__anomaly_on(void) {
    return __builtin_expect(atomic_load_explicit(&kn__anomaly, memory_order_relaxed), 0);
}
/* Whether t has an element that is not finite; `out` says which: "NaN at [3,5]". */
bool kn__find_not_finite(char *out, size_t out_bytes, kn_tensor *t);

/* --- nodes --- */
typedef struct kn__result {
    kn_tensor *out;  /* borrowed; NULL once it is gone, was not asked for, or can have no gradient
                        and is not saved */
    kn_tensor *grad; /* in backward; owned */
    const int64_t *dim; /* its shape: a rule's gradient must have the shape of the edge's target */
    uint8_t n_dims, dtype;
    int target; /* kn_gradients: 1 + the index of its answer; 0: not asked for */
} kn__result;

typedef struct kn__saved {
    kn_tensor *t;
    uint32_t version;
    bool is_again; /* t counts this reference in again_refs */
} kn__saved;

/* A recorded call, followed in memory by its results, edges, saved values, dimensions and
 * attributes. Hot: all of it is written once when the call is recorded and read once by backward,
 * in the order of the list, so that a pass walks through memory; `wanted` and `n_users` are the
 * pass's own. */
struct kn__node {
    kn__node *prev, *next;
    kn__tape *tape;
    const kn__place *place;
    const char *file; /* call site, taken from a result when it goes */
    int line;
    uint16_t op;
    uint16_t saves; /* which inputs and results saved[] holds: KN_NEED_* bits, in their order */
    uint16_t n_in;
    uint8_t n_out, n_saved;
    uint8_t flat;               /* a row without broadcasting: gradients have the result's shape */
    uint8_t wanted;             /* in a pass: on a path to a tensor whose gradient is wanted */
    uint8_t n_users;            /* in a pass: edges that lead here; 2: two or more */
    uint8_t again;              /* calls that make result 0 again; 0: it is not made again */
    uint8_t extra;              /* of saves: inputs that only making it again reads */
    uint32_t saved_at, attr_at; /* offsets from the node, bytes */
};

static inline kn__result *kn__node_results(kn__node *n) { return (kn__result *)(n + 1); }
static inline kn_edge *kn__node_edges(kn__node *n) {
    return (kn_edge *)(kn__node_results(n) + n->n_out);
}
static inline kn__saved *kn__node_saved(kn__node *n) {
    return (kn__saved *)(void *)((char *)n + n->saved_at);
}
static inline void *kn__node_attr(kn__node *n) { return (char *)n + n->attr_at; }

/* --- edges --- */
static inline kn_edge kn__edge_to(const kn__node *n, int result) {
    return (kn_edge)n | (kn_edge)result << 1;
}
static inline kn_edge kn__edge_to_param(const kn__param *p) { return (kn_edge)p | 1; }
static inline kn__param *kn__edge_param(kn_edge e) {
    return e & 1 ? (kn__param *)(e & ~(kn_edge)1) : NULL;
}
static inline kn__node *kn__edge_node(kn_edge e) {
    return e & 1 ? NULL : (kn__node *)(e & ~(kn_edge)15);
}
static inline kn__result *kn__edge_result(kn_edge e) {
    return kn__node_results((kn__node *)(e & ~(kn_edge)15)) + (e >> 1 & 3);
}

const char *kn__node_name(const kn__node *n);
/* "relu in fc1 (mlp.c:12)", for messages. */
char *kn__node_text(char *out, size_t out_bytes, kn__node *n);
/* Its call site, as far as it is known. */
const char *kn__node_site(int *line, kn__node *n);

/* --- tapes --- */
typedef struct kn__chunk kn__chunk;
/* Calls in the order in which they ran. Hot: `at`, `end` and `last`, which each recorded call
 * moves: its memory is a step of `at`. */
struct kn__tape {
    kn__node *first, *last;
    char *at, *end;
    kn__chunk *chunks, *current; /* `chunks` is the list, `current` the one being filled */
    int64_t n_nodes;
    const kn__place *place; /* of the calls that come */
    uint32_t serial;        /* counts clearings: places of an older serial are gone */
    struct kn_params **set; /* those of the parameters that edges lead to: retained */
    int n_sets, sets_cap;
    int busy; /* passes, and parts of kn_recompute, that run: another pass would break them */
};

/* --- again.c: values that backward computes again (frames with .recompute) --- */
/* Whether backward makes result 0 of the call again: how many calls that takes, 0: it does not.
 * *extra: the inputs that this reads beside those in `saves`. */
int kn__again_plan(unsigned *extra, const kn_op_call *call, const kn_edge edges[], unsigned saves);
/* A new node has saved its values. */
void kn__again_saved(kn__node *n);
static inline void kn__saved_release(const kn__saved *saved) {
    if (saved->is_again) saved->t->again_refs--;
    kn_tensor_release(saved->t);
}
/* The node that made t as its result 0; NULL: none. */
static inline kn__node *kn__maker_of(const kn_tensor *t) {
    kn__node *n = kn__edge_node(t->grad);
    return n && !(t->grad >> 1 & 3) ? n : NULL;
}

/* Room in the tape's arena. NULL: no memory, the error is recorded. */
void *kn__tape_take(kn__tape *tape, size_t size_bytes);
/* A node of one result, which is t, with room for edges and attributes, appended. NULL: no memory,
 * the error is recorded. */
kn__node *kn__tape_node(kn__tape *tape, int op, kn_tensor *t, int n_in, size_t attr_bytes);
/* Whether the tape gets an edge to the parameter, which a frozen one has none of. It keeps the set,
 * which the user may destroy before backward. */
bool kn__param_recorded(kn__param *p, kn__tape *tape);
void kn__tape_sets_release(kn__tape *tape);
/* The edge to what made t, for a node of this tape: 0 for another thread's, and for constants. */
static inline kn_edge kn__edge_from(kn__tape *tape, const kn_tensor *t) {
    const kn__node *from = kn__edge_node(t->grad);
    kn__param *p = kn__edge_param(t->grad);
    if (p && !kn__param_recorded(p, tape)) return 0;
    return from && from->tape != tape ? 0 : t->grad;
}
/* Empties the tape: survivors become constants. `retired`: a pass has been through all nodes. */
void kn__tape_clear(kn__tape *tape, bool retired);
/* Fails for a call of `name` now whose result is not finite, with the inputs that were not before.
 * in_name: names of the first KN_IN_NAMED of them; NULL: they have none. */
kn_status kn__check_results(const kn__tape *tape, const char *name, kn_tensor *const out[],
                            int n_out, kn_tensor *const in[], int n_in, const char *const *in_name);
/* Gives back the storage of a node's result, unless it is one number, or a slot holds it. */
void kn__value_drop(kn_tensor *out);
/* Takes the node out of use; `consume`: gives back its results' storage too, as kn__value_drop. */
void kn__node_retire(kn__node *n, bool consume);

/* Fails where a pass or a part of kn_recompute runs. */
kn_status kn__tape_idle(const char *name, const kn__tape *tape);

/* A place in the tape, and back to it: nodes behind it are released, the arena's room reused. */
typedef struct kn__tape_mark {
    kn__node *last;
    kn__chunk *current;
    char *at, *end;
    int64_t n_nodes;
} kn__tape_mark;
kn__tape_mark kn__tape_mark_here(const kn__tape *tape);
void kn__tape_cut(kn__tape *tape, const kn__tape_mark *mark);

/* --- one pass --- */
typedef struct kn__pass {
    kn__tape *tape;
    kn_edge from;        /* the tensor to differentiate */
    uint32_t mark;       /* what the frame owned when the pass began */
    bool again;          /* record the gradients */
    bool keep;           /* leave the tape as it is */
    bool to_params;      /* kn_backward; else into slots */
    bool hooked;         /* a parameter of it has a hook */
    uint64_t serial;     /* of hooked passes: whose count of users a parameter has */
    kn_tensor *const *x; /* kn_gradients: its targets and their gradients */
    kn_tensor **slots;
    int n_x;
    kn_tensor *dy;              /* kn_gradients: of pass->from; NULL: ones */
    struct kn_params **touched; /* kn_backward: the list of sets that it has written to, which the
                                   passes inside of it share */
} kn__pass;

/* Finds the nodes on a path from pass->from to a tensor whose gradient is wanted; whether `from` is
 * one. */
bool kn__pass_mark(kn__pass *pass);
/* Walks from pass->from to the tape's start. On failure the error is recorded and returned. */
kn_status kn__pass_run(kn__pass *pass);

/* One node of the walk: computes its gradients, then releases its tensors. */
kn_status kn__pass_node(kn__pass *pass, kn__node *n);

/* --- rules --- */
typedef struct kn__back { /* the gradients of one node, being computed */
    kn__pass *pass;
    kn__node *node;
    kn_tensor *g; /* of result 0; NULL: it has none */
} kn__back;

/* EACH: the gradient of input i: a tensor; KN_NONE for "zero" or "delivered"; NULL with the error
 * pending. ALL: delivers those that are wanted by itself. */
typedef kn_tensor *(*kn__each_fn)(kn__back *b, int i);
typedef kn_status (*kn__all_fn)(kn__back *b);
typedef struct kn__rule {
    kn__each_fn each;
    kn__all_fn all;
    bool nograd;
} kn__rule;
extern const kn__rule kn__rules[KN_OP_COUNT] __attribute__((visibility("hidden")));
/* The scope of an ALL rule, unless it or its kernels name the derivatives themselves. Ended by
 * kn_scope_end. */
kn_scope kn__derivatives_begin(const kn__back *b, const kn__rule *rule);

/* kn_gradients: where the gradient of a parameter goes; NULL: it was not asked for. */
kn_tensor **kn__param_slot(const kn__pass *pass, const kn__param *p);

/* Whether somebody waits for the gradient that flows along an edge. */
static inline bool kn__pass_wants(const kn__pass *pass, kn_edge edge) {
    if (!edge) return false;
    const kn__node *node = kn__edge_node(edge);
    if (node) return node->wanted;
    return pass->to_params || kn__param_slot(pass, kn__edge_param(edge)) != NULL;
}
static inline bool kn__back_wants(const kn__back *b, int i) {
    return kn__pass_wants(b->pass, kn__node_edges(b->node)[i]);
}
/* g, where this node is the last that reads it: its gradient may overwrite it element by element.
 * NULL: somebody else reads it. */
static inline kn_tensor *kn__back_last_use(const kn__back *b) {
    const kn__result *result = kn__node_results(b->node);
    bool is_last = !b->pass->again && result->grad == b->g && !result->target;
    if (!is_last || b->g == KN_NONE || b->g->state == KN_TENSOR_PENDING) return NULL;
    return kn_tensor_is_unshared(b->g) ? b->g : NULL;
}
/* Hands over the gradient of input i, of the input's shape. */
kn_status kn__back_deliver(kn__back *b, int i, kn_tensor *dx);
/* The same; the caller's reference goes with it. */
kn_status kn__back_deliver_own(kn__back *b, int i, kn_tensor *dx);
/* What must be made for input i. */
kn_shape kn__back_shape(const kn__back *b, int i);
kn_dtype kn__back_dtype(const kn__back *b, int i);
/* Whether dx has its shape. */
bool kn__back_fits(const kn__back *b, int i, const kn_tensor *dx);
/* g, where kernels of the host may write the gradient of input i over it, which other devices'
 * can't: no other gradient reads it, and that of input i has its shape and no place yet. 16 bits
 * are widened piece by piece. NULL: not there. */
kn_tensor *kn__back_over(const kn__back *b, int i);
/* What the node saved of its inputs and results; KN_NONE: not there. */
kn_tensor *kn__back_saved(const kn__back *b, unsigned bit);
static inline kn_tensor *kn__saved_in(const kn__back *b, int i) {
    return kn__back_saved(b, 1u << i);
}
static inline kn_tensor *kn__saved_out(const kn__back *b, int r) {
    return kn__back_saved(b, 1u << (KN_NEED_OUT + r));
}
/* The rule reads these saved values (KN_NEED_* bits) no more: those that no other node reads are
 * freed now, before the gradients that are still to come. */
void kn__back_drop(kn__back *b, unsigned bits);
static inline void *kn__back_attr(const kn__back *b) { return kn__node_attr(b->node); }
/* A gradient that exists already, into which a kernel may write the gradient of input i, or NULL.
 * *fresh: its old content is overwritten; else the kernel adds. */
kn_tensor *kn__back_sink(const kn__back *b, int i, bool *fresh);

/* The last op of the gradient of input i: runs it, straight into a gradient that exists where the
 * op can. KN_NONE then, else its result; NULL with the error pending. */
kn_tensor *kn__give(kn__back *b, int i, kn_op op, void *attr, kn_tensor *const in[], int n_in);
#define KN_GIVE(b, i, op, attr, ...)                                                               \
    kn__give(b, i, KN_OP_##op, attr, KN_LIST_(__VA_ARGS__), KN_LIST_SIZE_(__VA_ARGS__))
/* g, the gradient of what the call broadcast input i to, summed to its shape; g itself where
 * nothing was broadcast. */
kn_tensor *kn__give_unbroadcast(kn__back *b, int i, kn_tensor *g);

/* The rules of ops.def's rows and of their backs: rows.c */
kn_status kn__rule_row(kn__back *b);
kn_status kn__rule_row_back(kn__back *b);
kn_status kn__rule_row_back2(kn__back *b);
/* Which inputs of a row's back or back2 have a derivative that isn't zero, and which tensors it
 * needs saved: a bit an input (z counts as one). */
unsigned kn__row_saves(unsigned *live, const kn_op_call *call, int order);

/* KN__OP_SPECIAL: a node that brings its functions; its attribute is a pointer to a struct that
 * begins with a pointer to these. */
typedef struct kn__special {
    const char *name;
    kn_status (*back)(kn__back *b);
    void (*free)(void *self);
} kn__special;
static inline void **kn__node_special(kn__node *n) { return kn__node_attr(n); }
static inline const kn__special *kn__special_of(void *self) {
    return *(const kn__special *const *)self;
}

/* Ops of the user's own. */
/* What a function of the user's that returned `status` ended with: the error that it left pending
 * or recorded; else one that says so. */
kn_status kn__user_status(kn_status status, const char *name, const char *what);
kn_status kn__apply_back(kn__back *b);
void kn__apply_free(kn__node *n);
const char *kn__apply_name(const kn__node *n);

static inline bool kn__dtype_is_float(unsigned dtype) {
    return dtype >= KN_F32 && dtype <= KN_BF16;
}

#endif
