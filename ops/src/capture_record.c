/* What a plan notes of each call. */
#include <knet/norm.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "checked.h"
#include "run.h"

/* --- memory of a plan: freed as a whole --- */

enum { CHUNK_BYTES = 64 * 1024, LINE = 64 };

typedef struct kn__plan_chunk {
    struct kn__plan_chunk *next;
    size_t size_bytes;
} chunk;

/* Aligned to cache lines, as headers are; NULL: no memory. */
void *kn__plan_take(kn__plan *plan, size_t n_bytes) {
    n_bytes = (n_bytes + LINE - 1) / LINE * LINE;
    if (plan->chunk_left < n_bytes) {
        size_t bytes = n_bytes + LINE > CHUNK_BYTES ? n_bytes + LINE : CHUNK_BYTES;
        chunk *c = aligned_alloc(LINE, bytes);
        if (!c) return NULL;
        *c = (chunk){plan->chunks, bytes};
        plan->chunks = c;
        plan->chunk_left = bytes - LINE;
    }
    plan->chunk_left -= n_bytes;
    return (char *)plan->chunks + LINE + plan->chunk_left;
}

bool kn__plan_room(void **items, uint32_t *cap, uint32_t n, size_t item_bytes) {
    if (n < *cap) return true;
    uint32_t more = *cap ? 2 * *cap : 64;
    void *all = realloc(*items, more * item_bytes);
    if (!all) return false;
    *items = all;
    *cap = more;
    return true;
}

typedef struct slot {
    uint64_t key;
    uint32_t index;
} slot;

static slot *slot_put(kn__hash *table, uint64_t key) {
    if (kn__hash_is_full(table) && !kn__hash_grow(table, sizeof(slot), 64)) return NULL;
    return kn__hash_put(table, sizeof(slot), key);
}

/* --- buffers --- */

static kn__buffer *buffer_add(kn__plan *plan, kn_storage *s, void *data) {
    slot *at = slot_put(&plan->by_storage, kn__spread((uint64_t)(uintptr_t)s));
    void **list = (void **)&plan->buffers;
    if (!at || !kn__plan_room(list, &plan->buffers_cap, plan->n_buffers, sizeof *plan->buffers)) {
        plan->status = KN_ERR_OOM;
        return NULL;
    }
    KN_ASSERT(plan->n_buffers < plan->buffers_cap);
    at->index = plan->n_buffers;
    kn__buffer *b = &plan->buffers[plan->n_buffers++];
    *b = (kn__buffer){.storage = s, .data = data, .size_bytes = s->size_bytes};
    b->first = b->last = (int32_t)plan->n_calls;
    return b;
}

/* A buffer of the plan alone, used by the next call. -1: no memory. */
static int64_t buffer_own(kn__plan *plan, size_t size_bytes) {
    void **list = (void **)&plan->buffers;
    if (!kn__plan_room(list, &plan->buffers_cap, plan->n_buffers, sizeof *plan->buffers)) {
        plan->status = KN_ERR_OOM;
        return -1;
    }
    kn__buffer *b = &plan->buffers[plan->n_buffers++];
    *b = (kn__buffer){.size_bytes = size_bytes, .inside = true};
    b->first = b->last = (int32_t)plan->n_calls;
    return plan->n_buffers - 1;
}

int64_t kn__plan_made_at(kn__plan *plan, kn_storage *s, void *data, unsigned op) {
    kn__buffer *b = buffer_add(plan, s, data);
    if (!b) return -1;
    b->inside = true;
    b->op = (uint16_t)op;
    return plan->n_buffers - 1;
}

static void made(kn__plan *plan, kn_storage *s, unsigned op) {
    if (s->data) (void)kn__plan_made_at(plan, s, s->data, op);
}

int64_t kn__plan_buffer(kn__plan *plan, kn_storage *s) {
    uint64_t key = kn__spread((uint64_t)(uintptr_t)s);
    const slot *at = kn__hash_get(&plan->by_storage, sizeof(slot), key);
    KN_ASSERT(!at || at->index < plan->n_buffers);
    if (at && plan->buffers[at->index].data == s->data) return at->index;
    if (!buffer_add(plan, s, s->data)) return -1;
    kn__storage_share(s); /* until the plan goes */
    return plan->n_buffers - 1;
}

/* The header around the storage still exists: kn__n_recordings. */
uint32_t kn__plan_users(const kn__plan *plan, uint32_t i) {
    const kn_storage *s = plan->buffers[i].storage;
    return s ? atomic_load_explicit(&s->refs, memory_order_acquire) / 2 : 0;
}

static void claims(kn__plan *plan, kn_storage *s) {
    int64_t i = s->data ? kn__plan_buffer(plan, s) : -1;
    if (i >= 0) plan->buffers[i].written = true;
}

/* --- views --- */

int32_t kn__plan_input_of(const kn__plan *plan, int64_t i, const char *data, size_t n_bytes) {
    const kn_storage *s = plan->buffers[i].storage;
    for (int k = 0; k < plan->n_inputs; k++) {
        const kn__plan_input *in = &plan->inputs[k];
        if (s == in->storage && data >= in->data && data + n_bytes <= in->data + in->size_bytes)
            return k;
    }
    return -1;
}

/* Where the call that is recorded reads or writes n_bytes of buffer i. */
static kn__frozen place_of(kn__plan *plan, int64_t i, const char *data, size_t n_bytes,
                           bool of_input) {
    kn__buffer *b = &plan->buffers[i];
    int32_t input = of_input ? kn__plan_input_of(plan, i, data, n_bytes) : -1;
    kn__frozen v = {.buffer = (uint32_t)i, .input = input};
    b->last = (int32_t)plan->n_calls;
    if (v.input < 0)
        b->read = true;
    else if (plan->on_gpu)
        plan->buffers[plan->inputs[v.input].buffer].last = (int32_t)plan->n_calls;
    const char *from = v.input < 0 ? b->data : plan->inputs[v.input].data;
    KN_ASSERT(data >= from);
    v.at_bytes = (size_t)(data - from);
    return v;
}

bool kn__plan_pointer(kn__plan *plan, int64_t i, const void **at, size_t n_bytes, bool of_input) {
    void **list = (void **)&plan->views;
    if (!kn__plan_room(list, &plan->views_cap, plan->n_views, sizeof *plan->views)) return false;
    kn__frozen v = place_of(plan, i, *at, n_bytes, of_input);
    v.at = at;
    plan->views[plan->n_views++] = v;
    return true;
}

static bool is_same_view(const kn__frozen *v, const kn__frozen *w, const kn_tensor *t) {
    const kn_tensor *u = v->t;
    return v->buffer == w->buffer && v->at_bytes == w->at_bytes && v->input == w->input &&
           u->dtype == t->dtype && u->layout == t->layout && u->n == t->n && kn__same_shape(u, t);
}

static uint64_t view_key(const kn__frozen *v, const kn_tensor *t) {
    uint64_t key = kn__hash_pair(v->buffer + ((uint64_t)v->input << 32), v->at_bytes);
    for (int i = 0; i < t->n_dims; i++) key = kn__hash_pair(key, (uint64_t)t->dim[i]);
    return kn__hash_pair(key, t->dtype);
}

static kn_tensor *freeze(kn__plan *plan, const kn_tensor *t) {
    kn_tensor *own = kn__plan_take(plan, sizeof *own);
    if (!own) return NULL;
    memset((void *)own, 0, sizeof *own);
    atomic_store_explicit(&own->refs, 1, memory_order_relaxed);
    own->owned = UINT32_MAX;
    own->dtype = t->dtype;
    own->layout = t->layout;
    own->state = t->state; /* PENDING: tiles of a pass */
    own->n_dims = t->n_dims;
    memcpy(own->dim, t->dim, sizeof own->dim);
    own->file = t->file;
    own->line = t->line;
    own->n = t->n;
    own->data = t->data;
    own->storage = &own->own;
    own->own.device = t->storage->device;
    own->own.pool = plan->pool;
    own->own.stream = t->storage->stream;
    own->own.size_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    atomic_store_explicit(&own->own.refs, 3, memory_order_relaxed);
    return own;
}

static kn_tensor *view_add(kn__plan *plan, slot *at, kn__frozen v, const kn_tensor *t) {
    void **list = (void **)&plan->views;
    bool fits = at && kn__plan_room(list, &plan->views_cap, plan->n_views, sizeof *plan->views);
    v.t = fits ? freeze(plan, t) : NULL;
    if (!v.t) return NULL;
    at->index = plan->n_views;
    plan->views[plan->n_views++] = v;
    return v.t;
}

/* What the call reads or writes of t; NULL: no memory. */
static kn_tensor *view_of(kn__plan *plan, kn_tensor *t) {
    if (t == &kn__none) return t;
    kn__frozen v = {.buffer = (uint32_t)KN__NO_BUFFER, .input = -1};
    if (t->data && t->n) {
        int64_t i = kn__plan_buffer(plan, t->storage);
        if (i < 0) return NULL;
        size_t n_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
        v = place_of(plan, i, t->data, n_bytes, kn__is_of_input(plan, t));
    }
    uint64_t key = view_key(&v, t);
    if (!plan->by_view.n_slots && !kn__hash_grow(&plan->by_view, sizeof(slot), 64)) return NULL;
    slot *at = kn__hash_find(&plan->by_view, sizeof *at, key);
    for (; at->key; at = kn__hash_after(&plan->by_view, sizeof *at, at)) {
        if (is_same_view(&plan->views[at->index], &v, t)) return plan->views[at->index].t;
    }
    if (kn__hash_is_full(&plan->by_view)) {
        if (!kn__hash_grow(&plan->by_view, sizeof(slot), 64)) return NULL;
        at = kn__hash_find(&plan->by_view, sizeof *at, key);
        while (at->key) at = kn__hash_after(&plan->by_view, sizeof *at, at);
    }
    kn_tensor *own = view_add(plan, at, v, t);
    if (own) kn__hash_use(&plan->by_view, at, key);
    return own;
}

/* --- work space --- */

/* One piece serves all that the call takes one after the other, as large as the largest. */
static void work_taken(kn__plan *plan, void *data, size_t size_bytes) {
    if (!plan->on_gpu) return; /* the pool's last block is in the cache still */
    uint32_t i = plan->first_piece;
    while (i < plan->n_pieces && plan->pieces[i].in_use) i++;
    if (i == plan->n_pieces) {
        void **list = (void **)&plan->pieces;
        bool fits = kn__plan_room(list, &plan->pieces_cap, i, sizeof *plan->pieces);
        int64_t buffer = fits ? buffer_own(plan, 0) : -1;
        if (buffer < 0) {
            plan->status = KN_ERR_OOM;
            return;
        }
        plan->pieces[plan->n_pieces++] = (kn__piece){.buffer = (uint32_t)buffer};
    }
    kn__piece *p = &plan->pieces[i];
    KN_ASSERT(!p->in_use && p->buffer < plan->n_buffers);
    p->data = data;
    p->in_use = true;
    if (p->size_bytes < size_bytes) p->size_bytes = size_bytes;
    plan->buffers[p->buffer].size_bytes = p->size_bytes;
}

static void work_ended(kn__plan *plan, const void *data) {
    for (uint32_t i = plan->first_piece; i < plan->n_pieces; i++) {
        if (plan->pieces[i].data == data) plan->pieces[i].in_use = false;
    }
}

/* --- calls --- */

/* The parts of an optimiser's step may be changed later, by kn_optim_group. */
static bool copy_parts(kn__plan *plan, kn_attr_optim *attr) {
    kn_optim_part *parts = kn__plan_take(plan, (size_t)attr->n_parts * sizeof *parts + 1);
    if (!parts) return false;
    for (int64_t i = 0; i < attr->n_parts; i++) {
        parts[i] = attr->part[i];
        parts[i].w = view_of(plan, attr->part[i].w);
        if (!parts[i].w) return false;
    }
    attr->part = parts;
    return true;
}

static bool copy_attr(kn__plan *plan, kn_op_call *own, const kn_op_info *info) {
    size_t n_bytes = own->attr_bytes ? own->attr_bytes : info->attr_bytes;
    if (!n_bytes) own->attr = NULL; /* the op has none: the pointer may end */
    if (!own->attr) return true;
    void *attr = kn__plan_take(plan, n_bytes);
    if (!attr) return false;
    own->attr = memcpy(attr, own->attr, n_bytes);
    return info->infer != kn__infer_optim || copy_parts(plan, attr);
}

static bool copy_tensors(kn__plan *plan, kn_op_call *own) {
    kn_tensor **in = kn__plan_take(plan, (size_t)own->n_in * sizeof *in + 1);
    if (!in) return false;
    for (int i = 0; i < own->n_in; i++) {
        if (!(in[i] = view_of(plan, own->in[i]))) return false;
    }
    own->in = in;
    for (int r = 0; r < KN_OUT_MAX; r++) {
        bool is_wanted = r < own->n_out && own->want >> r & 1;
        kn_tensor *y = is_wanted ? own->out[r] : NULL;
        if (y && !(own->given >> r & 1)) made(plan, y->storage, own->op);
        own->out[r] = y ? view_of(plan, y) : NULL;
        if (y && !own->out[r]) return false;
    }
    return true;
}

static bool room_for_call(kn__plan *plan) {
    uint32_t cap = (uint32_t)plan->calls_cap;
    if (!kn__plan_room((void **)&plan->calls, &cap, (uint32_t)plan->n_calls, sizeof *plan->calls))
        return false;
    plan->calls_cap = (int32_t)cap;
    return true;
}

static bool note(kn__plan *plan, const kn_op_call *call, kn_kernel_fn kernel) {
    if (!room_for_call(plan)) return false;
    kn__prepared *p = &plan->calls[plan->n_calls];
    *p = (kn__prepared){kernel, *call, .piece = plan->first_piece, .chain = plan->chain};
    if (plan->chain) p->kernel = kn__chain_kernel(true);
    p->scope = kn__plan_scope(plan);
    p->n_pieces = plan->n_pieces - plan->first_piece;
    p->call.n_work = 0;
    p->call.edge = NULL;
    if (!copy_tensors(plan, &p->call) || !copy_attr(plan, &p->call, &kn_op_table[call->op]))
        return false;
    plan->n_calls++;
    return true;
}

static kn_status can_note(const kn__plan *plan, const kn_op_call *call, const kn_op_info *info) {
    if (call->device != plan->device) {
        return KN_FAIL(KN_ERR_DEVICE, "kn_%s: on %s, inside a captured step of %s", info->name,
                       kn_device_name(call->device), kn_device_name(plan->device));
    }
    bool joins = call->op == KN_OP_batchnorm || call->op == KN_OP_batchnorm_back;
    if (joins && ((const kn_attr_normalize *)call->attr)->ranks) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_%s: a captured step can't join the statistics of several ranks",
                       info->name);
    }
    return KN_OK;
}

static kn_status call_record(kn__plan *plan, kn_op_call *call, kn_kernel_fn kernel) {
    KN_TRY(can_note(plan, call, &kn_op_table[call->op]));
    plan->first_piece = plan->n_pieces;
    plan->chain = NULL;
    KN_TRY(kernel(call));
    if (plan->status == KN_OK && !note(plan, call, kernel)) plan->status = KN_ERR_OOM;
    plan->chain = NULL;
    return KN_OK;
}

static bool note_pass(kn__plan *plan, const kn__fuse_plan *p, kn__chain_note *chain) {
    if (!room_for_call(plan)) return false;
    const kn__expr *root = p->expr[p->n - 1];
    kn_op_call call = {.op = root->op, .attr = chain, .device = plan->device};
    plan->calls[plan->n_calls++] = (kn__prepared){kn__chain_kernel(false), call, .chain = chain,
                                                  .scope = kn__plan_scope(plan)};
    return true;
}

static void pass_record(kn__plan *plan, const kn__fuse_plan *p, const kn__fused *f) {
    if (plan->status < 0) return;
    kn__chain_note *chain = kn__chain_note_make(plan, p, f);
    if (!chain || (!p->closes && !note_pass(plan, p, chain))) plan->status = KN_ERR_OOM;
    if (p->closes) plan->chain = chain;
}

const kn__plan_hooks kn__plan_records = {call_record, work_taken, work_ended,
                                         pass_record, made,       claims};

/* On a GPU. Libraries choose by alignments of up to ALIGNED bytes. */
kn_status kn__plan_inputs_place(kn__plan *plan) {
    enum { ALIGNED = 16 };
    for (int i = 0; i < plan->n_inputs; i++) {
        kn__plan_input *in = &plan->inputs[i];
        in->skew = (uint32_t)((uintptr_t)in->data % ALIGNED);
        int64_t b = buffer_own(plan, in->size_bytes + in->skew);
        if (b < 0) return KN_FAIL(KN_ERR_OOM, "kn_capture_begin: no host memory");
        in->buffer = (uint32_t)b;
        plan->buffers[b].last = -1; /* no call reads it yet */
    }
    return KN_OK;
}

/* --- the end of a plan --- */

static void share_drop(kn__buffer *b) {
    if (!b->inside && b->storage) kn__storage_drop(b->storage);
}

void kn__plan_inputs_drop(kn__plan *plan) {
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        kn__buffer *b = &plan->buffers[i];
        if (b->read || b->written) continue;
        share_drop(b);
        b->storage = NULL;
    }
}

void kn__plan_free(kn__plan *plan) {
    if (!plan) return;
    kn__plan_graph_end(plan);
    for (int i = 0; i < plan->n_out; i++) kn_tensor_release(plan->out[i]);
    for (int i = 0; i < plan->n_effects; i++)
        plan->effects[i].effect.release(plan->effects[i].effect.ctx);
    for (uint32_t i = 0; i < plan->n_buffers; i++) share_drop(&plan->buffers[i]);
    kn__region_drop(plan->region);
    for (chunk *c = plan->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    kn__hash_release(&plan->by_storage);
    kn__hash_release(&plan->by_view);
    free(plan->inputs);
    free(plan->calls);
    free(plan->buffers);
    free(plan->views);
    free(plan->pieces);
    free(plan->effects);
    free(plan->scopes);
    free(plan->outside);
    free(plan->out);
    free(plan);
}
