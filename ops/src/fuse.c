#include "fuse.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "fuse_plan.h"
#include "host/conv/conv_layout.h"
#include "host/reduce/reduce_fused.h"
#include "run.h"

enum {
    LEAST = 1024, /* elements: fewer are computed at once on the host, from cache to cache */
    PLAIN_OF = UINT16_MAX, /* in place of an op: in[0]'s data in plain order */
};

/* --- whether --- */

/* KNET_FUSE: which frames put results off. ALL: by default, and of every size (for tests). */
enum { UNREAD, UNSET, NEVER, DEFAULT, ALL };

static int environment(void) {
    static _Atomic int known;
    int value = atomic_load_explicit(&known, memory_order_relaxed);
    if (value != UNREAD) return value;
    const char *text = getenv("KNET_FUSE");
    value = !text || !*text            ? UNSET
            : strcmp(text, "0") == 0   ? NEVER
            : strcmp(text, "all") == 0 ? ALL
                                       : DEFAULT;
    atomic_store_explicit(&known, value, memory_order_relaxed);
    return value;
}

bool kn__fuse_default(void) { return environment() >= DEFAULT; }
bool kn__fuse_forbidden(void) { return environment() == NEVER; }

static bool has_loops(const kn_op_call *call, const kn_op_info *info) {
    kn_dtype dtype = call->dtype ? (kn_dtype)call->dtype : KN_BOOL; /* logic alone has no T */
    const kn_row *row = kn__row(dtype, call->op - (unsigned)info->order);
    return info->order ? row->d[0] != NULL : row->f != NULL;
}

bool kn__fuse_takes(const kn__ops_thread *self, const kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    if (!self->frame->fuse || call->given) return false;
    bool on_host = call->device == self->host;
    if (!on_host && (self->capture || !kn__chain_device(call->device))) return false;
    if (call->op != KN_OP_cast && !(info->row && has_loops(call, info))) return false;
    int64_t most = 0;
    for (int k = 0; k < call->n_in; k++) {
        if (call->in[k] == KN_NONE) continue;
        if (call->in[k]->n == 0) return false;
        if (call->in[k]->n > most) most = call->in[k]->n;
    }
    return !on_host || environment() == ALL || most >= LEAST;
}

/* --- expressions --- */

static kn__expr *expr_new(kn__ops_thread *self) {
    kn__expr *e = self->exprs_free;
    if (e)
        self->exprs_free = e->next;
    else if (!(e = malloc(sizeof *e)))
        return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for an expression");
    e->thread = self;
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

static void operand_set(kn__operand *to, kn_tensor *t, bool whole) {
    to->storage = NULL;
    to->data = NULL;
    if (t == KN_NONE) return;
    kn__storage_share(t->storage);
    to->storage = t->storage;
    to->data = t->data;
    to->n = t->n;
    to->dtype = t->dtype;
    to->n_dims = t->n_dims;
    if (!whole) memcpy(to->dim, t->dim, sizeof to->dim);
}

/* t becomes the pending result that e computes. */
static void pend(kn_tensor *t, const kn_op_call *call, kn__expr *e) {
    kn_storage *s = &t->own;
    e->to = t->dtype;
    e->n = t->n;
    e->n_dims = t->n_dims;
    memcpy(e->dim, t->dim, sizeof e->dim);
    e->keeps = false;
    e->place = KN__NOWHERE;
    e->threads = call->threads;
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
}

static kn_status defer_one(kn__ops_thread *self, const kn_op_call *call, int r, int size) {
    kn_tensor *t = call->out[r];
    kn__expr *e = expr_new(self);
    if (!e) return kn_last_error()->status;
    const kn_attr_scalars *scalars = call->op == KN_OP_cast ? NULL : call->attr;
    e->op = call->op;
    e->n_in = (uint8_t)call->n_in;
    e->r = (uint8_t)r;
    e->dtype = call->op == KN_OP_cast ? call->in[0]->dtype : call->dtype;
    e->size = (uint8_t)size;
    e->p = scalars ? scalars->a : 0;
    e->q = scalars ? scalars->b : 0;
    for (int k = 0; k < call->n_in; k++) {
        operand_set(&e->in[k], call->in[k], call->in[k]->n == t->n);
    }
    pend(t, call, e);
    return KN_OK;
}

/* A plan of a GPU has one stream and one pool. */
static bool is_elsewhere(const kn_tensor *t, const kn_op_call *call) {
    if (call->device == kn__ops_self->host) return false;
    return t->storage->stream != call->stream || t->storage->pool != call->pool;
}

/* Steps that a result takes. Inputs that are broadcast or of another stream, and the largest ones
 * where there would be too many steps, are computed first. */
static kn_status size_of(int *size, const kn_op_call *call, int64_t n) {
    for (;;) {
        kn_tensor *largest = NULL;
        *size = 1;
        for (int k = 0; k < call->n_in; k++) {
            kn_tensor *t = call->in[k];
            if (t->state != KN_TENSOR_PENDING) continue;
            if (t->n != n || is_elsewhere(t, call)) KN_TRY(kn__compute(t));
            if (t->state != KN_TENSOR_PENDING) continue;
            *size += t->storage->expr->size;
            if (!largest || t->storage->expr->size > largest->storage->expr->size) largest = t;
        }
        if (*size <= KN__FUSED_STEPS) return KN_OK;
        KN_TRY(kn__compute(largest));
    }
}

kn_status kn__fuse_defer(kn__ops_thread *self, const kn_op_call *call) {
    int size;
    KN_TRY(size_of(&size, call, call->out[__builtin_ctz(call->want)]->n));
    for (unsigned left = call->want; left; left &= left - 1) {
        KN_TRY(defer_one(self, call, __builtin_ctz(left), size));
    }
    return KN_OK;
}

/* --- computing --- */

static void plan_end(const kn__fuse_plan *p, bool done) {
    for (int i = 0; i < p->n; i++) {
        kn__expr *e = p->expr[i];
        e->place = KN__NOWHERE;
        if (!done) continue;
        e->keeps = true;
        if (!p->stored[i]) continue;
        kn_tensor *t = kn__expr_header(e->storage);
        e->storage->data = p->data[i];
        if (!t) continue;
        t->data = e->storage->data;
        t->state = KN_TENSOR_LIVE;
    }
    /* This drops operands; those that aren't kept may end with that, and nothing else does. */
    for (int i = 0; i < p->n && done; i++) {
        if (p->stored[i]) expr_end(p->expr[i]);
    }
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
    const kn__expr *root = p->expr[p->n - 1];
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
    const kn__expr *root = p->expr[p->n - 1];
    kn__ops_thread *self = root->thread;
    if (root->storage->device != self->host) {
        KN_TRY(for_operands(self, p, kn__await_writer));
        KN_TRY(kn__chain_run(p));
        return for_operands(self, p, kn__use);
    }
    kn__fused f;
    kn__pass_make(&f, p);
    kn__fused_run(&f);
    if (self->capture) self->capture->hooks->pass(self->capture, p, &f);
    return KN_OK;
}

/* --- the plain form of data in another layout --- */

/* No pass takes it in: it is as large as one. */
kn_status kn__fuse_defer_plain(kn__ops_thread *self, const kn_op_call *call, kn_tensor *t,
                               kn_storage *from) {
    kn__expr *e = expr_new(self);
    if (!e) return kn_last_error()->status;
    e->op = PLAIN_OF;
    e->n_in = 1;
    e->size = KN__FUSED_STEPS;
    e->in[0].storage = from;
    kn__storage_share(from);
    pend(t, call, e);
    t->layout = KN_LAYOUT_BLOCKS;
    return KN_OK;
}

kn_storage *kn__fuse_source(const kn_tensor *t) {
    return t->layout == KN_LAYOUT_BLOCKS ? t->storage->expr->in[0].storage : NULL;
}

static kn_status plain_compute(kn__expr *e) {
    kn_storage *s = e->storage;
    void *data = NULL;
    kn_scope scope = kn_scope_begin_static("plain layout");
    kn_status status = kn_alloc(&data, s->pool, s->size_bytes, s->stream);
    if (status == KN_OK) kn__layout_plain(data, e->in[0].storage->data, e->dim, e->threads);
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
    if (s->expr->op == PLAIN_OF) return plain_compute(s->expr);
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
        status = kn__host_reduce_fused(call, &f);
        kn__plan *plan = kn__ops_self->capture;
        if (plan && status == KN_OK) plan->hooks->pass(plan, &p, &f);
    }
    kn__fuse_plan_scope_end(&scope, &p);
    plan_end(&p, is_made);
    return status;
}

/* --- who needs it --- */

static bool reads(const kn__expr *e, const kn_storage *s) {
    for (int k = 0; k < e->n_in; k++) {
        if (e->in[k].storage == s) return true;
    }
    return false;
}

kn_status kn__fuse_before_write(kn__ops_thread *self, kn_storage *s) {
    if (s->expr) KN_TRY(kn__fuse_compute(s));
    for (kn__expr *e = self->pending, *next; e; e = next) {
        next = e->next;
        if (!reads(e, s)) continue;
        KN_TRY(kn__fuse_compute(e->storage));
        next = self->pending; /* others may have been computed with it */
    }
    return KN_OK;
}

kn_status kn__fuse_all(kn__ops_thread *self) {
    while (self->pending_last) KN_TRY(kn__fuse_compute(self->pending_last->storage));
    return KN_OK;
}

/* Whether the call is a reduction in one pass along rows, which reads its input tile by tile. */
static bool closes(const kn__ops_thread *self, const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    return kn_op_table[call->op].host == kn__host_reduce && call->device == self->host &&
           x->state == KN_TENSOR_PENDING && x->layout == KN_LAYOUT_PLAIN &&
           kn__host_reduce_fuses(call);
}

kn_status kn__fuse_before(kn__ops_thread *self, const kn_op_call *call) {
    for (int k = call->n_in && closes(self, call); k < call->n_in; k++) {
        if (call->in[k] != KN_NONE) KN_TRY(kn__compute(call->in[k]));
    }
    const kn_op_info *info = &kn_op_table[call->op];
    if (info->infer == kn__infer_optim) return kn__fuse_all(self); /* its parts are no inputs */
    int first = 0, last = -1;
    if (call->op == KN_OP_batchnorm) first = 1, last = 2;
    if (call->op == KN_OP_rng_take) last = 0;
    for (int k = first; k <= last; k++) {
        if (call->in[k] != KN_NONE) KN_TRY(kn__fuse_before_write(self, call->in[k]->storage));
    }
    return KN_OK;
}
