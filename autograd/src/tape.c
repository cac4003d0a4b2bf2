#include "tape.h"

#include <knet/rule.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the arena: chunks that a tape keeps, and each thread keeps one tape --- */

enum { CHUNK_BYTES = 64 << 10, KEEP_BYTES = 4 << 20, SAVED_MAX = 12 };
enum { NUMBER_BYTES = 512 }; /* the least that pools give */

struct kn__chunk {
    kn__chunk *next;
    size_t size_bytes; /* of data */
    _Alignas(16) char data[];
};

static void enter_chunk(kn__tape *tape, kn__chunk *chunk) {
    tape->current = chunk;
    tape->at = chunk ? chunk->data : NULL;
    tape->end = chunk ? chunk->data + chunk->size_bytes : NULL;
}

static __attribute__((noinline)) kn_status next_chunk(kn__tape *tape, size_t wanted) {
    kn__chunk *next = tape->current ? tape->current->next : tape->chunks;
    if (!next || next->size_bytes < wanted) {
        size_t size = wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES;
        kn__chunk *made = malloc(sizeof *made + size);
        if (!made) return KN_FAIL(KN_ERR_OOM, "no host memory for the tape");
        *made = (kn__chunk){.next = next, .size_bytes = size};
        if (tape->current)
            tape->current->next = made;
        else
            tape->chunks = made;
        next = made;
    }
    enter_chunk(tape, next);
    return KN_OK;
}

/* Nodes lie at multiples of 16 bytes: an edge has bits of its own below. */
static inline void *arena_take(kn__tape *tape, size_t size) {
    size = (size + 15) & ~(size_t)15;
    if (__builtin_expect((size_t)(tape->end - tape->at) < size, 0) && next_chunk(tape, size) < 0) {
        return NULL;
    }
    void *p = tape->at;
    tape->at += size;
    KN_ASSERT(tape->at <= tape->end && ((uintptr_t)p & 15) == 0);
    return p;
}

void *kn__tape_take(kn__tape *tape, size_t size_bytes) { return arena_take(tape, size_bytes); }

/* What a big tape needed once is not kept for ever. */
static void trim_chunks(kn__tape *tape) {
    size_t kept = 0;
    kn__chunk **link = &tape->chunks;
    while (*link && kept < KEEP_BYTES) {
        kept += (*link)->size_bytes;
        link = &(*link)->next;
    }
    for (kn__chunk *chunk = *link, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *link = NULL;
    enter_chunk(tape, NULL);
}

static void tape_free(void *value) {
    kn__tape *tape = value;
    for (kn__chunk *chunk = tape->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(tape->set);
    free(tape);
}

/* --- the thread's spare tape --- */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Atomic bool key_made; /* cleared while other threads may still run */

static void make_key(void) { key_made = pthread_key_create(&key, tape_free) == 0; }

/* The main thread's keys have no destructor run, and an unloaded library must not be called. */
__attribute__((destructor)) static void delete_key(void) {
    if (!key_made) return;
    kn__tape *spare = pthread_getspecific(key);
    if (spare) tape_free(spare);
    pthread_key_delete(key);
    key_made = false;
}

static kn__tape *tape_take(void) {
    pthread_once(&key_once, make_key);
    kn__tape *tape = key_made ? pthread_getspecific(key) : NULL;
    if (tape) {
        pthread_setspecific(key, NULL);
        KN_ASSERT(!tape->last && !tape->place && !tape->current);
        return tape;
    }
    return calloc(1, sizeof *tape);
}

static void tape_give(kn__tape *tape) {
    KN_ASSERT(!tape->first && !tape->last && tape->n_nodes == 0);
    if (!key_made || pthread_getspecific(key) || pthread_setspecific(key, tape) != 0) {
        tape_free(tape);
    }
}

kn_frame kn_tape_begin(const kn_frame_options *options) {
    kn__tape *tape = tape_take();
    if (!tape) {
        KN_FAIL_NULL(KN_ERR_OOM, "kn_tape_begin: no host memory");
        return (kn_frame){0, 0};
    }
    kn_frame frame = kn_frame_begin_tape(options, tape);
    if (!frame.serial) tape_give(tape);
    return frame;
}

/* --- nodes --- */

static inline void append(kn__tape *tape, kn__node *n) {
    KN_ASSERT(n->tape == tape && n->n_out >= 1 && n->n_out <= KN_OUT_MAX);
    KN_ASSERT((tape->n_nodes == 0) == !tape->last && (!tape->last || !tape->last->next));
    n->prev = tape->last;
    n->next = NULL;
    if (tape->last)
        tape->last->next = n;
    else
        tape->first = n;
    tape->last = n;
    tape->n_nodes++;
}

/* Result r is t; its shape is copied to `dim`. Returns the place behind it. */
static inline int64_t *fill_result(kn__node *n, int r, kn_tensor *t, int64_t *dim) {
    kn__result *result = kn__node_results(n) + r;
    KN_ASSERT(r < n->n_out && t != KN_NONE);
    result->out = NULL;
    result->grad = NULL;
    result->target = 0;
    result->dim = dim;
    result->n_dims = result->dtype = 0;
    if (!t) return dim;
    result->n_dims = t->n_dims;
    result->dtype = t->dtype;
    bool is_float = kn__dtype_is_float(t->dtype);
    if (is_float) t->grad = kn__edge_to(n, r);
    /* Others have no edge, so that the node does not hear of their end. */
    if (is_float || n->saves >> (KN_NEED_OUT + r) & 1) result->out = t;
    for (int d = 0; d < t->n_dims; d++) *dim++ = t->dim[d];
    return dim;
}

kn__node *kn__tape_node(kn__tape *tape, int op, kn_tensor *t, int n_in, size_t attr_bytes) {
    size_t dims_at = sizeof(kn__node) + sizeof(kn__result) + (size_t)n_in * sizeof(kn_edge),
           attr_at = dims_at + t->n_dims * sizeof(int64_t);
    kn__node *n = arena_take(tape, attr_at + attr_bytes);
    if (!n) return NULL;
    *n = (kn__node){.tape = tape,
                    .place = tape->place,
                    .op = (uint16_t)op,
                    .n_in = (uint16_t)n_in,
                    .n_out = 1,
                    .saved_at = (uint32_t)dims_at,
                    .attr_at = (uint32_t)attr_at};
    memset(kn__node_edges(n), 0, (size_t)n_in * sizeof(kn_edge));
    fill_result(n, 0, t, (int64_t *)(void *)((char *)n + dims_at));
    append(tape, n);
    return n;
}

const char *kn__node_name(const kn__node *n) {
    if (n->op == KN__OP_WATCH) return "watch";
    if (n->op == KN__OP_APPLY) return kn__apply_name(n);
    if (n->op == KN__OP_SPECIAL) return "recompute";
    return kn_op_name((kn_op)n->op);
}

const char *kn__node_site(int *line, kn__node *n) {
    for (int r = 0; r < n->n_out; r++) {
        const kn_tensor *out = kn__node_results(n)[r].out;
        if (!out || !out->file) continue;
        *line = out->line;
        return out->file;
    }
    *line = n->line;
    return n->file;
}

char *kn__place_text(char *out, size_t out_bytes, const kn__place *place) {
    const kn__place *path[KN__PLACES_MAX];
    int n = 0;
    size_t at = 0;
    out[0] = '\0';
    for (; place && n < KN__PLACES_MAX; place = place->up) path[n++] = place;
    for (int i = n - 1; i >= 0 && at < out_bytes; i--) {
        int length =
            snprintf(out + at, out_bytes - at, "%s%s", i < n - 1 ? "/" : "", path[i]->label);
        at += length > 0 ? (size_t)length : 0;
    }
    return out;
}

char *kn__node_text(char *out, size_t out_bytes, kn__node *n) {
    int line;
    const char *file = kn__node_site(&line, n);
    char place[128];
    kn__place_text(place, sizeof place, n->place);
    const char *in = place[0] ? " in " : "";
    if (file)
        snprintf(out, out_bytes, "%s%s%s (%s:%d)", kn__node_name(n), in, place, file, line);
    else
        snprintf(out, out_bytes, "%s%s%s", kn__node_name(n), in, place);
    return out;
}

static inline void release_saved(kn__node *n) {
    kn__saved *saved = kn__node_saved(n);
    for (int k = 0, last = n->n_saved; k < last; k++) kn__saved_release(&saved[k]);
    n->n_saved = 0;
    if (n->op == KN__OP_APPLY) kn__apply_free(n);
    KN_ASSERT(n->op <= KN__OP_SPECIAL);
    if (n->op != KN__OP_SPECIAL || !*kn__node_special(n)) return;
    kn__special_of(*kn__node_special(n))->free(*kn__node_special(n));
    *kn__node_special(n) = NULL;
}

/* A loss, a part of one or a norm, which programs read after the pass, and which costs next to
 * nothing; not an element of more data. */
static bool is_number(const kn_tensor *t) {
    return t->n == 1 && t->storage && t->storage->size_bytes <= NUMBER_BYTES;
}

void kn__value_drop(kn_tensor *out) {
    if (is_number(out)) return;
    if (!atomic_load_explicit(&out->holds, memory_order_relaxed)) kn_tensor_consume(out);
}

/* Saved values go last: a result may live by its own node alone. */
void kn__node_retire(kn__node *n, bool consume) {
    for (int r = 0; r < n->n_out; r++) {
        kn__result *result = kn__node_results(n) + r;
        if (result->grad) kn_tensor_release(result->grad);
        result->grad = NULL;
        kn_tensor *out = result->out;
        if (!out) continue;
        KN_ASSERT(!kn__dtype_is_float(out->dtype) || out->grad == kn__edge_to(n, r));
        result->out = NULL;
        out->grad = 0;
        out->spent = 1;
        if (consume) kn__value_drop(out);
    }
    release_saved(n);
}

#if KN_CHECKED >= 2
/* Whether the nodes after `before`, up to `last`, hold no tensor. */
static bool is_retired(kn__node *last, const kn__node *before) {
    for (kn__node *n = last; n != before; n = n->prev) {
        if (n->n_saved) return false;
        for (int r = 0; r < n->n_out; r++)
            if (kn__node_results(n)[r].out || kn__node_results(n)[r].grad) return false;
    }
    return true;
}
#endif

void kn__tape_clear(kn__tape *tape, bool retired) {
    for (kn__node *n = retired ? NULL : tape->last; n; n = n->prev) kn__node_retire(n, false);
    KN_ASSERT_SLOW(is_retired(tape->last, NULL));
    tape->first = tape->last = NULL;
    tape->n_nodes = 0;
    tape->place = NULL;
    tape->serial++;
    enter_chunk(tape, NULL);
    kn__tape_sets_release(tape);
}

kn_status kn__tape_idle(const char *name, const kn__tape *tape) {
    if (!tape->busy) return KN_OK;
    return KN_FAIL(
        KN_ERR_INVALID,
        "%s: called inside a pass over the same tape, as from a hook or from the function "
        "of kn_recompute",
        name);
}

kn__tape_mark kn__tape_mark_here(const kn__tape *tape) {
    return (kn__tape_mark){tape->last, tape->current, tape->at, tape->end, tape->n_nodes};
}

void kn__tape_cut(kn__tape *tape, const kn__tape_mark *mark) {
    KN_ASSERT(mark->n_nodes <= tape->n_nodes && (mark->n_nodes == 0) == !mark->last);
    for (kn__node *n = tape->last; n != mark->last; n = n->prev) kn__node_retire(n, false);
    KN_ASSERT_SLOW(is_retired(tape->last, mark->last));
    tape->last = mark->last;
    if (mark->last)
        mark->last->next = NULL;
    else
        tape->first = NULL;
    tape->n_nodes = mark->n_nodes;
    tape->current = mark->current;
    tape->at = mark->at;
    tape->end = mark->end;
    KN_ASSERT(tape->at <= tape->end && !tape->at == !tape->current);
}

/* --- recording --- */

/* A layer without an activation: no gradient reads its result. */
static bool is_bare(const kn_op_call *call) {
    if (call->op == KN_OP_linear_act) return ((const kn_attr_act *)call->attr)->act == KN_ACT_NONE;
    return call->op == KN_OP_conv_act && ((const kn_attr_conv *)call->attr)->act == KN_ACT_NONE;
}

/* What the wanted gradients need saved: bit i: input i, KN_NEED_OUT + r: result r.
 * A row's back: inputs whose derivative is zero everywhere lose their edges. */
static unsigned saves_of(const kn_op_call *call, const kn_op_info *info, kn_edge edges[]) {
    unsigned keep = 0;
    if (__builtin_expect(info->order, 0)) {
        unsigned live = 0;
        for (int i = 0; i < call->n_in; i++) live |= (unsigned)(edges[i] != 0) << i;
        keep = kn__row_saves(&live, call, info->order);
        for (int i = 0; i < call->n_in; i++) {
            if (!(live >> i & 1)) edges[i] = 0;
        }
        return live ? keep : ~0u;
    }
    const kn_op_needs *needs = &kn_op_needs_table[call->op];
    bool any = false;
    for (int i = 0; i < call->n_in; i++) {
        if (!edges[i]) continue;
        keep |= needs->first[i < needs->n_first ? i : needs->n_first - 1];
        any = true;
    }
    if (is_bare(call)) keep &= ~(1u << KN_NEED_OUT);
    return any ? keep & (KN_NEED_ZERO - 1) : ~0u;
}

/* Returns the place behind them. An input that is absent can't be saved. */
static inline void *fill_saved(kn__node *n, unsigned saves, const kn_op_call *call) {
    kn__saved *saved = kn__node_saved(n), *first = saved;
    for (unsigned left = saves; left; left &= left - 1) {
        int bit = __builtin_ctz(left);
        kn_tensor *t = bit < KN_NEED_OUT ? call->in[bit] : call->out[bit - KN_NEED_OUT];
        if (t == KN_NONE) {
            saves &= ~(1u << bit);
            continue;
        }
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
        saved->t = t;
        saved->version = t->storage->version;
        saved->is_again = false;
        saved++;
    }
    n->saves = (uint16_t)saves;
    n->n_saved = (uint8_t)(saved - first);
    KN_ASSERT(n->n_saved <= SAVED_MAX && __builtin_popcount(saves) == n->n_saved);
    return saved;
}

static kn_status add_node(kn__tape *tape, const kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    size_t n_in = call->n_in, attr_bytes = call->attr_bytes ? call->attr_bytes : info->attr_bytes;
    /* Room for all that may be there; what isn't goes back. */
    size_t dims_bytes = call->n_out * (size_t)KN_DIMS_MAX * sizeof(int64_t),
           edges_at = sizeof(kn__node) + call->n_out * sizeof(kn__result),
           saved_at = edges_at + n_in * sizeof(kn_edge);
    char *before = tape->at;
    kn__node *n =
        arena_take(tape, saved_at + SAVED_MAX * sizeof(kn__saved) + dims_bytes + attr_bytes);
    if (!n) return KN_FAIL(KN_ERR_OOM, "no host memory for the tape");
    n->n_out = call->n_out;
    kn_edge *edges = kn__node_edges(n);
    for (size_t i = 0; i < n_in; i++) {
        edges[i] = call->edge ? call->edge[i] : kn__edge_from(tape, call->in[i]);
    }
    unsigned saves = saves_of(call, info, edges), extra = 0;
    if (saves == ~0u) { /* no gradient comes through here */
        if ((char *)n == before) tape->at = before;
        return KN_OK;
    }
    bool recomputes = kn_frame_recomputes(SIZE_MAX);
    n->again = recomputes ? (uint8_t)kn__again_plan(&extra, call, edges, saves) : 0;
    n->extra = (uint8_t)extra;
    n->tape = tape;
    n->place = tape->place;
    n->file = NULL;
    n->op = call->op;
    n->n_in = call->n_in;
    n->wanted = n->n_users = 0; /* the room may hold what an earlier node's were */
    n->flat = call->flat;
    n->saved_at = (uint32_t)saved_at;
    int64_t *dim = fill_saved(n, saves | extra, call);
    for (int r = 0; r < call->n_out; r++) {
        dim = fill_result(n, r, call->want >> r & 1 ? call->out[r] : NULL, dim);
    }
    size_t attr_at = (size_t)((char *)dim - (char *)n);
    n->attr_at = (uint32_t)attr_at;
    if (recomputes) kn__again_saved(n);
    if (attr_bytes && call->attr) memcpy((char *)n + attr_at, call->attr, attr_bytes);
    KN_ASSERT((char *)n + attr_at + attr_bytes <= tape->at); /* the room taken above */
    tape->at = (char *)n + ((attr_at + attr_bytes + 15) & ~(size_t)15);
    append(tape, n);
    return KN_OK;
}

kn_status kn__check_results(const kn__tape *tape, const char *name, kn_tensor *const out[],
                            int n_out, kn_tensor *const in[], int n_in,
                            const char *const *in_name) {
    char found[160], place[128], inputs[512];
    for (int r = 0; r < n_out; r++) {
        if (!kn__find_not_finite(found, sizeof found, out[r])) continue;
        size_t at = 0;
        for (int i = 0; i < n_in && at < sizeof inputs; i++) {
            char bad[160];
            if (!kn__find_not_finite(bad, sizeof bad, in[i])) continue;
            const char *input = in_name && i < KN_IN_NAMED ? in_name[i] : NULL;
            int n = snprintf(inputs + at, sizeof inputs - at, "%s%s has %s", at ? ", " : "",
                             input ? input : "an input", bad);
            at += n > 0 ? (size_t)n : 0;
        }
        kn__place_text(place, sizeof place, tape->place);
        return KN_FAIL(KN_ERR_INVALID, "the result of %s%s%s has %s; %s", name,
                       place[0] ? " in " : "", place, found, at ? inputs : "its inputs are finite");
    }
    return KN_OK;
}

static kn_status record(void *tape, const kn_op_call *call) {
    const kn__rule *rule = &kn__rules[call->op];
    if (rule->nograd) return KN_OK;
    if (call->n_out == 1 && !kn__dtype_is_float(call->out[0]->dtype)) return KN_OK;
    if (kn__anomaly_on() && call->op != KN_OP_replace_nan) /* infinities that it was asked for */
        KN_TRY(kn__check_results(tape, kn_op_table[call->op].name, call->out, call->n_out, call->in,
                                 call->n_in, kn_op_table[call->op].in_name));
    kn_scope scope = kn_scope_begin_grad("record");
    kn_status status = add_node(tape, call);
    kn_scope_end(&scope);
    return status;
}

static void tape_end(void *value) {
    kn__tape *tape = value;
    kn__tape_clear(tape, false);
    trim_chunks(tape);
    tape_give(tape);
}

static void grad_release(kn_tensor *t) {
    kn__node *n = kn__edge_node(t->grad);
    if (!n) return;
    n->file = t->file;
    n->line = t->line;
    KN_ASSERT(kn__edge_result(t->grad)->out == t);
    kn__edge_result(t->grad)->out = NULL;
}

static const kn_recorder recorder = {record, tape_end, grad_release};

__attribute__((constructor)) static void attach(void) { kn_recorder_attach(&recorder); }

/* --- watching --- */

kn_tensor *kn_watch(kn_tensor *x) {
    if (kn_pending()) return NULL;
    const char *problem = kn_tensor_problem(x);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_watch: x %s", problem);
    if (!kn__dtype_is_float(x->dtype)) {
        return KN_FAIL_NULL(KN_ERR_DTYPE, "kn_watch: x is %s, which has no gradient",
                            kn_dtype_name((kn_dtype)x->dtype));
    }
    kn__tape *tape = kn_frame_tape();
    if (!tape) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_watch: no tape is open on this thread");
    kn_tensor *alias = kn_tensor_alias(x);
    if (!alias) return NULL;
    /* Nodes recorded before still receive their gradient through the alias. */
    kn_edge edge = kn__edge_from(tape, x);
    kn__node *n = edge ? kn__tape_node(tape, KN_OP_reshape, alias, 1, sizeof(kn_attr_shape))
                       : kn__tape_node(tape, KN__OP_WATCH, alias, 0, 0);
    if (!n) return kn_error_defer(KN_ERR_OOM);
    if (edge) kn__node_edges(n)[0] = edge;
    return alias;
}

kn_tensor *kn_detach(kn_tensor *x) {
    if (kn_pending()) return NULL;
    const char *problem = kn_tensor_problem(x);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_detach: x %s", problem);
    return kn_tensor_alias(x);
}

/* --- what tests and tools ask --- */

kn_rule_state kn_op_rule(int op) {
    const kn__rule *rule = &kn__rules[op];
    if (rule->nograd) return KN_RULE_NOGRAD;
    return rule->each || rule->all ? KN_RULE_GRADIENT : KN_RULE_MISSING;
}

int64_t kn_tape_nodes(void) {
    const kn__tape *tape = kn_frame_tape();
    return tape ? tape->n_nodes : 0;
}

kn_status kn_tape_check(void) {
    const kn__tape *tape = kn_frame_tape();
    const kn__node *prev = NULL;
    int64_t count = 0;
    for (kn__node *n = tape ? tape->first : NULL; n; prev = n, n = n->next, count++) {
        if (n->prev != prev || n->tape != tape || n->op > KN__OP_SPECIAL) {
            return KN_FAIL(KN_ERR_INTERNAL, "tape: node %lld is damaged", (long long)count);
        }
        for (int r = 0; r < n->n_out; r++) {
            const kn_tensor *out = kn__node_results(n)[r].out;
            if (!out || !kn__dtype_is_float(out->dtype) || out->grad == kn__edge_to(n, r)) continue;
            return KN_FAIL(KN_ERR_INTERNAL, "tape: result %d of node %lld is damaged", r,
                           (long long)count);
        }
        for (int i = 0; i < n->n_in; i++) {
            const kn__node *from = kn__edge_node(kn__node_edges(n)[i]);
            if (!from || from->tape == tape) continue;
            return KN_FAIL(KN_ERR_INTERNAL, "tape: edge %d of node %lld is damaged", i,
                           (long long)count);
        }
    }
    if (tape && (tape->last != prev || tape->n_nodes != count)) {
        return KN_FAIL(KN_ERR_INTERNAL, "tape: its end is lost");
    }
    return KN_OK;
}
