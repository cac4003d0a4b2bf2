#include "tape.h"

#include <knet/rule.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the arena: chunks that a tape keeps, and each thread keeps one tape --- */

enum { CHUNK_BYTES = 64 << 10, KEEP_BYTES = 4 << 20 };

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

static kn_status next_chunk(kn__tape *tape, size_t wanted) {
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

static void *arena_take(kn__tape *tape, size_t size) {
    if ((size_t)(tape->end - tape->at) < size && next_chunk(tape, size) < 0) return NULL;
    void *p = tape->at;
    tape->at += size;
    return p;
}

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
    free(tape);
}

/* --- the thread's spare tape --- */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

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
        return tape;
    }
    return calloc(1, sizeof *tape);
}

static void tape_give(kn__tape *tape) {
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

static size_t up8(size_t n) { return (n + 7) & ~(size_t)7; }

kn__node *kn__tape_node(kn__tape *tape, int op, int n_in, int n_saved, int n_shapes,
                        size_t attr_bytes) {
    size_t shapes_at =
        sizeof(kn__node) + (size_t)n_in * sizeof(kn__edge) + (size_t)n_saved * sizeof(kn__saved);
    size_t attr_at = shapes_at + (size_t)n_shapes * sizeof(kn_shape);
    size_t size = attr_at + up8(attr_bytes);
    kn__node *n = arena_take(tape, size);
    if (!n) return NULL;
    *n = (kn__node){.tape = tape,
                    .op = (uint16_t)op,
                    .shapes_at = (uint16_t)shapes_at,
                    .attr_at = (uint16_t)attr_at,
                    .n_in = (uint8_t)n_in,
                    .n_saved = (uint8_t)n_saved,
                    .n_shapes = (uint8_t)n_shapes};
    return n;
}

void kn__node_edge(kn__node *n, int i, const kn_tensor *in) {
    kn__edge edge = in->grad ? kn__edge_of(in) : 0;
    kn__node *from = kn__edge_node(edge);
    if (from && from->tape != n->tape) edge = 0; /* another thread's tape: a constant here */
    kn__node_edges(n)[i] = edge;
    if (!edge) return;
    n->need |= (uint64_t)1 << i;
    if (from && from->n_users < 2) from->n_users++;
    if (!from || from->leads_to_param) n->leads_to_param = 1;
}

void kn__node_attach(kn__node *n, kn_tensor *out) {
    kn__tape *tape = n->tape;
    n->prev = tape->last;
    if (tape->last)
        tape->last->next = n;
    else
        tape->first = n;
    tape->last = n;
    tape->n_nodes++;
    n->out = out;
    out->grad = n;
    out->grad_kind = KN__GRAD_NODE;
}

const char *kn__node_name(const kn__node *n) {
    if (n->op == KN__OP_WATCH) return "watch";
    if (n->op == KN__OP_APPLY) return kn__apply_name(n);
    return kn_op_name((kn_op)n->op);
}

char *kn__node_text(char *out, size_t out_bytes, const kn__node *n) {
    const char *file = n->out ? n->out->file : n->file;
    int line = n->out ? n->out->line : n->line;
    if (file)
        snprintf(out, out_bytes, "%s (%s:%d)", kn__node_name(n), file, line);
    else
        snprintf(out, out_bytes, "%s", kn__node_name(n));
    return out;
}

void kn__node_release_saved(kn__node *n) {
    kn__saved *saved = kn__node_saved(n);
    for (int k = 0; k < n->n_saved; k++) {
        kn_tensor *t = saved[k].t;
        saved[k].t = NULL;
        if (t) kn_tensor_release(t);
    }
    if (n->op == KN__OP_APPLY) kn__apply_free(n);
}

void kn__node_retire(kn__node *n, bool consume) {
    kn__node_release_saved(n);
    if (n->grad) kn_tensor_release(n->grad);
    n->grad = NULL;
    kn_tensor *out = n->out;
    if (!out) return;
    n->out = NULL;
    out->grad = NULL;
    out->grad_kind = KN__GRAD_SPENT;
    if (consume && !atomic_load_explicit(&out->holds, memory_order_relaxed)) kn_tensor_consume(out);
}

void kn__tape_clear(kn__tape *tape) {
    for (kn__node *n = tape->last; n; n = n->prev) kn__node_retire(n, false);
    tape->first = tape->last = NULL;
    tape->n_nodes = 0;
    enter_chunk(tape, NULL);
}

/* --- recording --- */

static kn_tensor *pick(const kn_op_call *call, int what) {
    switch (what) {
        case KN__OUT:
            return call->out;
        case KN__AUX:
            return call->aux;
        default:
            return call->in[what - KN__IN0];
    }
}

static bool same_shape(const kn_tensor *a, const kn_tensor *b) {
    return a->n_dims == b->n_dims && !memcmp(a->dim, b->dim, a->n_dims * sizeof a->dim[0]);
}

static int count_shapes(const kn__rule *rule, const kn_op_call *call) {
    switch (rule->shapes) {
        case KN__SHAPES_FIRST:
            return 1;
        case KN__SHAPES_TWO:
            return 2;
        case KN__SHAPES_ALL:
            return call->n_in;
        case KN__SHAPES_BROADCAST:
            for (int i = 0; i < call->n_in; i++) {
                if (!same_shape(call->in[i], call->out)) return call->n_in;
            }
            return 0;
        default:
            return 0;
    }
}

static void fill_shapes(kn__node *n, const kn_op_call *call) {
    kn_shape *shape = (kn_shape *)(void *)((char *)n + n->shapes_at);
    for (int i = 0; i < n->n_shapes; i++) shape[i] = kn_tensor_shape(call->in[i]);
}

static void fill_saved(kn__node *n, const kn__rule *rule, const kn_op_call *call) {
    kn__saved *saved = kn__node_saved(n);
    for (int k = 0; k < n->n_saved; k++) {
        saved[k] = (kn__saved){NULL, 0};
        if (!(n->need & rule->save[k].when)) continue;
        kn_tensor *t = pick(call, rule->save[k].what);
        if (!t || t == KN_NONE) continue;
        /* Nobody but the tape needs a call's second result: the frame gives it up. */
        saved[k].t = rule->save[k].what == KN__AUX && t->owned != UINT32_MAX
                         ? kn_tensor_detach_frame(t)
                         : kn_tensor_retain(t);
        saved[k].version = t->storage->version;
    }
}

static void fill_attr(kn__node *n, const kn__rule *rule, const kn_op_call *call) {
    void *attr = kn__node_attr(n);
    if (rule->note == KN__NOTE_DTYPE)
        *(kn_dtype *)attr = (kn_dtype)call->in[0]->dtype;
    else if (rule->note == KN__NOTE_DEVICE)
        *(kn_device **)attr = call->in[0]->storage->device;
    else if (call->attr_bytes)
        memcpy(attr, call->attr, call->attr_bytes);
}

static kn_status record(void *tape, const kn_op_call *call) {
    const kn__rule *rule = &kn__rules[call->op];
    if (rule->nograd || !kn__dtype_is_float(call->out->dtype)) return KN_OK;
    if (!rule->back) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s has no gradient rule", kn_op_name(call->op));
    }
    kn_scope scope = kn_scope_begin_grad("record");
    size_t attr_bytes = rule->note ? sizeof(void *) : call->attr_bytes;
    kn__node *n = kn__tape_node(tape, (int)call->op, call->n_in, rule->n_saves,
                                count_shapes(rule, call), attr_bytes);
    if (n) {
        for (int i = 0; i < call->n_in; i++) kn__node_edge(n, i, call->in[i]);
        if (n->need) {
            fill_saved(n, rule, call);
            fill_shapes(n, call);
            fill_attr(n, rule, call);
            kn__node_attach(n, call->out);
        }
    }
    kn_scope_end(&scope);
    return n ? KN_OK : kn_last_error()->status;
}

static void tape_end(void *value) {
    kn__tape *tape = value;
    kn__tape_clear(tape);
    trim_chunks(tape);
    tape_give(tape);
}

static void grad_release(kn_tensor *t) {
    if (t->grad_kind != KN__GRAD_NODE) return;
    kn__node *n = t->grad;
    n->file = t->file;
    n->line = t->line;
    n->out = NULL;
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
    /* What is recorded already goes on receiving its gradient through the alias. */
    bool leaf = !x->grad;
    kn__node *n = leaf ? kn__tape_node(tape, KN__OP_WATCH, 0, 0, 0, 0)
                       : kn__tape_node(tape, KN_OP_reshape, 1, 0, 1, 0);
    if (!n) return kn_error_defer(KN_ERR_OOM);
    if (!leaf) {
        kn__node_edge(n, 0, x);
        *(kn_shape *)(void *)((char *)n + n->shapes_at) = kn_tensor_shape(x);
    }
    kn__node_attach(n, alias);
    return alias;
}

/* --- what tests and tools ask --- */

kn_rule_state kn_op_rule(int op) {
    const kn__rule *rule = &kn__rules[op];
    return rule->nograd ? KN_RULE_NOGRAD : rule->back ? KN_RULE_GRADIENT : KN_RULE_MISSING;
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
        bool linked = n->prev == prev && n->tape == tape;
        bool answered = !n->out || (n->out->grad == n && n->out->grad_kind == KN__GRAD_NODE);
        if (!linked || !answered || n->op > KN__OP_APPLY) {
            return KN_FAIL(KN_ERR_INTERNAL, "tape: node %lld is damaged", (long long)count);
        }
        for (int i = 0; i < n->n_in; i++) {
            kn__edge edge = kn__node_edges(n)[i];
            if (!edge != !(n->need >> i & 1)) {
                return KN_FAIL(KN_ERR_INTERNAL, "tape: edge %d of node %lld is damaged", i,
                               (long long)count);
            }
        }
    }
    if (tape && (tape->last != prev || tape->n_nodes != count)) {
        return KN_FAIL(KN_ERR_INTERNAL, "tape: its end is lost");
    }
    return KN_OK;
}
