#include "fuse.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "checked.h"
#include "fuse_plan.h"
#include "host/host.h"
#include "modes.h"
#include "run.h"

enum {
    LEAST = 1024, /* elements: fewer are computed at once on the host, from cache to cache */
};

/* --- whether --- */

static bool has_loops(const kn_op_call *call, const kn_op_info *info) {
    kn_dtype dtype = call->dtype ? (kn_dtype)call->dtype : KN_BOOL; /* logic alone has no T */
    const kn__row_loops *row = kn__row_loops_of(dtype, call->op - (unsigned)info->order);
    return info->order ? row->d[0] != NULL : row->f != NULL;
}

bool kn__fuse_takes(const kn__ops_thread *self, const kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    if (!self->frame->fuse || call->given) return false;
    bool on_host = call->device == self->host;
    if (!on_host && (self->capture || !kn__chain_device(call->device))) return false;
    if (call->op == KN_OP_slice)
        return !self->capture && kn__fuse_takes_slice(call, kn__mode_fuse() == KN__MODE_ALL);
    if (call->op == KN_OP_slice_back) return !self->capture && kn__fuse_takes_part(call);
    if (info->host == kn__host.reduce)
        return on_host && kn__fuse_takes_reduction(call, kn__mode_fuse() == KN__MODE_ALL);
    if (call->op != KN_OP_cast && !(info->row && has_loops(call, info))) return false;
    int64_t most = 0;
    for (int k = 0; k < call->n_in; k++) {
        if (call->in[k] == KN_NONE) continue;
        if (call->in[k]->n == 0) return false;
        if (call->in[k]->n > most) most = call->in[k]->n;
    }
    return !on_host || kn__mode_fuse() == KN__MODE_ALL || most >= LEAST;
}

bool kn_op_waits(const kn_op_call *call) {
    const kn__ops_thread *self = kn__ops_self;
    return self && self->frame && kn__fuse_takes(self, call);
}

/* --- expressions --- */

static kn__expr *expr_new(kn__ops_thread *self) {
    kn__expr *e = self->exprs_free;
    if (e)
        self->exprs_free = e->next;
    else if (!(e = malloc(sizeof *e)))
        return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for an expression");
    e->thread = self;
    e->serial = ++self->expr_serial;
    e->prev = self->pending_last;
    e->next = NULL;
    if (e->prev)
        e->prev->next = e;
    else
        self->pending = e;
    self->pending_last = e;
    return e;
}

/* The storage is computed or unused. */
static void expr_end(kn__expr *e) {
    kn__ops_thread *self = e->thread;
    KN_ASSERT(e->storage->expr == e && self->pending && e->place == KN__NOWHERE);
    e->storage->expr = NULL;
    *(e->prev ? &e->prev->next : &self->pending) = e->next;
    *(e->next ? &e->next->prev : &self->pending_last) = e->prev;
    for (int k = 0; k < e->n_in; k++) {
        if (e->in[k].storage) kn__storage_drop(e->in[k].storage);
    }
    e->next = self->exprs_free;
    self->exprs_free = e;
}

void kn__expr_drop(kn__expr *e) { expr_end(e); }

void kn__fuse_thread_end(kn__ops_thread *self) {
    for (kn__expr *e = self->exprs_free, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    self->exprs_free = NULL;
}

/* The strides of x, which is broadcast to e, from those along its own dimensions. */
static void broadcast(int64_t stride[], const kn_tensor *x, const int64_t own[],
                      const kn__expr *e) {
    int lead = e->n_dims - x->n_dims;
    for (int d = 0; d < e->n_dims; d++)
        stride[d] = d < lead || x->dim[d - lead] == 1 ? 0 : own[d - lead];
}

void kn__operand_set(kn__fuse_operand *to, kn_tensor *t, const kn__expr *e) {
    to->storage = NULL;
    to->data = NULL;
    if (t == KN_NONE) return;
    const kn__expr *made_by = t->storage->expr;
    const kn__fuse_operand *shown = made_by && kn__is_view(made_by) ? &made_by->in[0] : NULL;
    int64_t own[KN_DIMS_MAX];
    to->storage = shown ? shown->storage : t->storage;
    kn__storage_share(to->storage);
    to->data = shown ? shown->data : t->data;
    to->n = t->n;
    to->dtype = t->dtype;
    to->of_input = shown ? shown->of_input : kn__is_of_input(kn__ops_self->capture, t);
    to->dense = !shown && t->n == e->n;
    if (to->dense) return;
    if (!shown) kn__row_major(own, t->n_dims, t->dim);
    broadcast(to->stride, t, shown ? shown->stride : own, e);
}

kn__expr *kn__expr_make(kn__ops_thread *self, const kn_op_call *call, kn_tensor *t) {
    kn__expr *e = expr_new(self);
    if (!e) return NULL;
    e->op = call->op;
    e->n_in = 0;
    e->r = 0;
    e->dtype = call->dtype;
    e->to = t->dtype;
    e->n = t->n;
    e->n_dims = t->n_dims;
    memcpy(e->dim, t->dim, sizeof e->dim);
    e->keeps = false;
    e->row = 0;
    e->by_rows = false;
    e->place = KN__NOWHERE;
    e->mark = self->expr_mark;
    e->threads = call->threads;
    e->p = e->q = 0;
    kn_storage *s = &t->own;
    KN_ASSERT(e->place == KN__NOWHERE);
    s->version = 0;
    s->owner = NULL;
    s->device = call->device;
    s->pool = call->pool;
    s->data = NULL;
    s->size_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    s->stream = call->stream;
    s->expr = e;
    e->storage = s;
    atomic_store_explicit(&s->refs, 3, memory_order_relaxed);
    t->storage = s;
    t->data = NULL;
    t->state = KN_TENSOR_PENDING;
    return e;
}

static kn__expr *defer_one(kn__ops_thread *self, const kn_op_call *call, int r) {
    kn__expr *e = kn__expr_make(self, call, call->out[r]);
    if (!e) return NULL;
    const kn_attr_scalars *scalars = call->op == KN_OP_cast ? NULL : call->attr;
    e->n_in = (uint8_t)call->n_in;
    e->r = (uint8_t)r;
    if (call->op == KN_OP_cast) e->dtype = call->in[0]->dtype;
    e->p = scalars ? scalars->a : 0;
    e->q = scalars ? scalars->b : 0;
    for (int k = 0; k < call->n_in; k++) kn__operand_set(&e->in[k], call->in[k], e);
    return e;
}

/* A plan of a GPU has one stream and one pool. */
static bool is_elsewhere(const kn_tensor *t, const kn_op_call *call) {
    if (call->device == kn__ops_self->host) return false;
    return t->storage->stream != call->stream || t->storage->pool != call->pool;
}

/* The steps that compute e and have no mark yet. */
static int count_steps(kn__expr *e, uint32_t mark) {
    int n = e->mark != mark;
    if (!n) return 0;
    e->mark = mark;
    for (int k = 0; k < e->n_in; k++) {
        const kn_storage *s = e->in[k].storage;
        if (s && s->expr) n += count_steps(s->expr, mark);
    }
    return n;
}

int kn__fuse_steps(kn__ops_thread *self, kn_tensor *const t[], int n) {
    int steps = 0;
    uint32_t mark = ++self->expr_mark;
    for (int i = 0; i < n; i++) {
        if (t[i]->state == KN_TENSOR_PENDING) steps += count_steps(t[i]->storage->expr, mark);
    }
    return steps;
}

kn_status kn__fuse_fit(kn__ops_thread *self, const kn_op_call *call, int64_t n, int64_t row,
                       int more) {
    KN_ASSERT(more <= KN__FUSED_STEPS);
    for (;;) {
        kn_tensor *largest = NULL;
        int size = more, most = 0;
        uint32_t mark = ++self->expr_mark;
        for (int k = 0; k < call->n_in; k++) {
            kn_tensor *t = call->in[k];
            if (t->state != KN_TENSOR_PENDING) continue;
            bool is_view = kn__is_view(t->storage->expr);
            bool fits = t->n == n || is_view || (row && t->n * row == n);
            if (!fits || is_elsewhere(t, call) || kn__is_apart(t->storage->expr))
                KN_TRY(kn__compute(t));
            if (t->state != KN_TENSOR_PENDING || is_view) continue;
            int steps = count_steps(t->storage->expr, mark);
            size += steps;
            if (steps > most) most = steps, largest = t;
        }
        if (size <= KN__FUSED_STEPS) return KN_OK;
        KN_TRY(kn__compute(largest));
    }
}

kn_status kn__fuse_defer(kn__ops_thread *self, const kn_op_call *call) {
    if (call->op == KN_OP_slice) return kn__fuse_defer_slice(self, call);
    if (call->op == KN_OP_slice_back) return kn__fuse_defer_part(self, call);
    if (kn_op_table[call->op].host == kn__host.reduce) return kn__fuse_defer_reduction(self, call);
    const kn_tensor *out = call->out[__builtin_ctz(call->want)];
    int64_t row;
    bool by_rows;
    KN_TRY(kn__fuse_find_rows(&row, &by_rows, call, out));
    KN_TRY(kn__fuse_fit(self, call, out->n, by_rows ? 0 : row, 1));
    for (unsigned left = call->want; left; left &= left - 1) {
        kn__expr *e = defer_one(self, call, __builtin_ctz(left));
        if (!e) return kn_last_error()->status;
        e->row = row;
        e->by_rows = by_rows;
    }
    return KN_OK;
}

/* --- computing --- */

static void set_data(kn__expr *e, void *data) {
    kn_tensor *t = kn__expr_header(e->storage);
    KN_ASSERT(!e->storage->data);
    e->storage->data = data;
    if (!t) return;
    t->data = data;
    t->state = KN_TENSOR_LIVE;
}

static void plan_end(const kn__fuse_plan *p, bool done) {
    for (int i = 0; i < p->n; i++) {
        kn__expr *e = p->expr[i];
        e->place = KN__NOWHERE;
        if (!done || kn__is_part(p, i)) continue;
        e->keeps = true;
        if (p->stored[i]) set_data(e, p->data[i]);
    }
    if (done && p->whole) set_data(p->whole, p->whole_data);
    for (int i = 0; i < p->n && done; i++) {
        if (p->from[i]) p->from[i]->data = NULL;
    }
    /* This drops operands; those that aren't kept may end with that, and nothing else does. */
    for (int i = 0; i < p->n && done; i++) {
        if (p->stored[i]) expr_end(p->expr[i]);
    }
    if (done && p->whole) expr_end(p->whole);
}

static kn_status check_thread(const kn__expr *e) {
    if (e->thread == kn__ops_self) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "a result of another thread's frame with .fuse is not computed yet; read it on "
                   "that thread first, or hold it there by kn_hold");
}

bool kn__fuse_is_mine(const kn_tensor *t) {
    kn_status status = check_thread(t->storage->expr);
    if (status < 0) kn_error_defer(status);
    return status == KN_OK;
}

static kn_status memory_take(kn__fuse_plan *p) {
    kn_status status = kn__fuse_plan_memory(p);
    if (status != KN_ERR_OOM) return status;
    const kn__expr *root = kn__plan_root(p);
    kn_shape shape = {.n_dims = root->n_dims};
    memcpy(shape.dim, root->dim, sizeof shape.dim);
    char text[256];
    return KN_FAIL(KN_ERR_OOM, "no memory for a tensor %s %s: %s",
                   kn_shape_text(text, sizeof text, shape), kn_dtype_name((kn_dtype)root->to),
                   kn_last_error()->message);
}

/* Calls fn for the storage of each operand. */
static kn_status for_operands(kn__ops_thread *self, const kn__fuse_plan *p,
                              kn_status (*fn)(kn__ops_thread *, const kn_storage *, kn_stream)) {
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        for (int k = 0; k < e->n_in; k++) {
            const kn_storage *s = e->in[k].storage;
            if (s && !s->expr) KN_TRY(fn(self, s, e->storage->stream));
        }
    }
    return KN_OK;
}

static kn_status run(const kn__fuse_plan *p) {
    const kn__expr *root = kn__plan_root(p);
    kn__ops_thread *self = root->thread;
    if (root->storage->device != self->host) {
        KN_TRY(for_operands(self, p, kn__await_writer));
        KN_TRY(kn__chain_run(p));
        return for_operands(self, p, kn__use);
    }
    if (kn__is_view(root)) {
        kn__view_copy(root, p->data[0]);
        return KN_OK;
    }
    kn__fused f;
    kn__pass_make(&f, p);
    if (!kn__plan_covers(p)) memset(p->whole_data, 0, p->whole->storage->size_bytes);
    kn__host.fused_run(&f);
    if (self->capture) self->capture->hooks->pass(self->capture, p, &f);
    return KN_OK;
}

/* --- the plain form of data in another layout --- */

/* No pass takes it in: it is as large as one. */
kn_status kn__fuse_defer_plain(kn__ops_thread *self, const kn_op_call *call, kn_tensor *t,
                               kn_storage *from) {
    kn__expr *e = kn__expr_make(self, call, t);
    if (!e) return kn_last_error()->status;
    e->op = KN__PLAIN_OF;
    e->n_in = 1;
    e->in[0].storage = from;
    kn__storage_share(from);
    t->layout = KN_LAYOUT_BLOCKS;
    return KN_OK;
}

kn_storage *kn__fuse_source(const kn_tensor *t) {
    return t->layout == KN_LAYOUT_BLOCKS ? t->storage->expr->in[0].storage : NULL;
}

static kn_status plain_compute(kn__expr *e) {
    kn_storage *s = e->storage;
    void *data = NULL;
    KN_ASSERT(e->n_in == 1 && e->in[0].storage->data);
    kn_scope scope = kn_scope_begin_static("plain layout");
    kn_status status = kn_alloc(&data, s->pool, s->size_bytes, s->stream);
    if (status == KN_OK)
        kn__host.layout_plain(data, e->in[0].storage->data, (kn_dtype)e->to, e->dim, e->threads);
    kn_scope_end(&scope);
    if (status < 0) return status;
    kn_tensor *t = kn__expr_header(s);
    s->data = data;
    if (t) {
        t->data = data;
        t->state = KN_TENSOR_LIVE;
        t->layout = KN_LAYOUT_PLAIN;
    }
    expr_end(e);
    return KN_OK;
}

kn_status kn__fuse_compute(kn_storage *s) {
    KN_TRY(check_thread(s->expr));
    if (s->expr->op == KN__PLAIN_OF) return plain_compute(s->expr);
    kn__fuse_plan p;
    kn__fuse_plan_make(&p, s->expr, false);
    kn_scope scope = kn__fuse_plan_scope_begin(&p);
    kn_status status = memory_take(&p);
    if (status == KN_OK && (status = run(&p)) < 0) kn__fuse_plan_memory_free(&p);
    kn__fuse_plan_scope_end(&scope, &p);
    plan_end(&p, status == KN_OK);
    return status;
}

kn_status kn__fuse_keep(kn_tensor *t) {
    if (t->state != KN_TENSOR_PENDING) return KN_OK;
    KN_TRY(check_thread(t->storage->expr));
    t->storage->expr->keeps = true;
    return KN_OK;
}

kn_status kn__fuse_reduce(kn_op_call *call) {
    kn__fuse_plan p;
    kn__fuse_plan_make(&p, call->in[0]->storage->expr, true);
    kn__fused f;
    kn_scope scope = kn__fuse_plan_scope_begin(&p);
    kn_status status = memory_take(&p);
    bool is_made = status == KN_OK;
    if (is_made) {
        kn__pass_make(&f, &p);
        status = kn__host.reduce_fused(call, &f);
        kn__plan *plan = kn__ops_self->capture;
        if (plan && status == KN_OK) plan->hooks->pass(plan, &p, &f);
    }
    kn__fuse_plan_scope_end(&scope, &p);
    plan_end(&p, is_made);
    return status;
}

/* --- who needs it --- */

static uint32_t n_reads(const kn__expr *e, const kn_storage *s) {
    uint32_t n = 0;
    for (int k = 0; k < e->n_in; k++) n += e->in[k].storage == s;
    return n;
}

bool kn_tensor_is_held_once(const kn_tensor *t) {
    if (kn_tensor_is_unshared(t)) return true;
    if (atomic_load_explicit(&t->refs, memory_order_acquire) != 1 || t->storage != &t->own)
        return false;
    uint32_t readers = atomic_load_explicit(&t->own.refs, memory_order_acquire) / 2 - 1;
    const kn__expr *e = kn__ops_self ? kn__ops_self->pending_last : NULL;
    for (; e && readers; e = e->prev) readers -= n_reads(e, t->storage);
    return readers == 0;
}

kn_status kn__fuse_before_write(kn__ops_thread *self, kn_storage *s) {
    if (s->expr) KN_TRY(kn__fuse_compute(s));
    uint64_t seen = self->unread == s ? self->unread_serial : 0; /* as gradients are written */
    for (kn__expr *e = self->pending_last, *next; e && e->serial > seen; e = next) {
        next = e->prev;
        if (!n_reads(e, s)) continue;
        KN_TRY(kn__fuse_compute(e->storage));
        next = self->pending_last; /* others may have been computed with it */
    }
    self->unread = s;
    self->unread_serial = self->expr_serial;
    return KN_OK;
}

kn_status kn__fuse_all(kn__ops_thread *self) {
    while (self->pending_last) KN_TRY(kn__fuse_compute(self->pending_last->storage));
    return KN_OK;
}

/* Whether the call is a reduction in one pass along rows, which reads its input tile by tile. */
static bool closes(const kn__ops_thread *self, const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    if (kn_op_table[call->op].host != kn__host.reduce || call->device != self->host) return false;
    if (x->state != KN_TENSOR_PENDING || x->layout != KN_LAYOUT_PLAIN) return false;
    return !x->storage->expr->row && !kn__is_view(x->storage->expr) &&
           !kn__is_whole_of_parts(x->storage->expr) && kn__host.reduce_fuses(call);
}

kn_status kn__fuse_before(kn__ops_thread *self, const kn_op_call *call) {
    for (int k = call->n_in && closes(self, call); k < call->n_in; k++) {
        if (call->in[k] != KN_NONE) KN_TRY(kn__compute(call->in[k]));
    }
    int first = 0, last = -1;
    if (call->op == KN_OP_batchnorm) first = 1, last = 2;
    if (call->op == KN_OP_rng_take) last = 0;
    for (int k = first; k <= last; k++) {
        if (call->in[k] != KN_NONE) KN_TRY(kn__fuse_before_write(self, call->in[k]->storage));
    }
    return KN_OK;
}
