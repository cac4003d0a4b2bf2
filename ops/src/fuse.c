#include "fuse.h"

#include <knet/prof_metric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/pointwise/fused.h"
#include "host/reduce/reduce_fused.h"
#include "run.h"

enum {
    LEAST = 1024, /* elements: fewer are computed at once, from cache to cache */
    NOWHERE = -1,
};

typedef struct operand {
    kn_storage *storage; /* NULL: absent */
    void *data;          /* NULL: the storage's, once it is computed */
    int64_t n, dim[KN_DIMS_MAX];
    uint8_t dtype, n_dims;
} operand;

struct kn__expr {
    kn__expr *prev, *next; /* the thread's pending ones, the oldest first; next: the free list */
    kn__ops_thread *thread;
    kn_storage *storage;
    int64_t n, dim[KN_DIMS_MAX];
    uint16_t op;
    uint8_t n_in, r;           /* result r of the call */
    uint8_t dtype, to, n_dims; /* T and the result's dtype */
    uint8_t size;              /* at most so many steps compute it */
    bool computed_once;        /* as a step of another expression, whose tile is lost */
    int place;                 /* among the steps of the plan in work */
    int threads;
    double p, q;
    operand in[KN__ROW_OPERANDS];
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
    if (!self->frame->fuse || call->given || call->device != self->host) return false;
    if (call->op != KN_OP_cast && !(info->row && has_loops(call, info))) return false;
    int64_t most = 0;
    for (int k = 0; k < call->n_in; k++) {
        if (call->in[k] == KN_NONE) continue;
        if (call->in[k]->n == 0) return false;
        if (call->in[k]->n > most) most = call->in[k]->n;
    }
    return most >= (environment() == ALL ? 1 : LEAST);
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

static void operand_set(operand *to, kn_tensor *t, bool whole) {
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

static kn_status defer_one(kn__ops_thread *self, const kn_op_call *call, int r, int size) {
    kn_tensor *t = call->out[r];
    kn__expr *e = expr_new(self);
    if (!e) return kn_last_error()->status;
    const kn_attr_scalars *scalars = call->op == KN_OP_cast ? NULL : call->attr;
    e->op = call->op;
    e->n_in = (uint8_t)call->n_in;
    e->r = (uint8_t)r;
    e->dtype = call->op == KN_OP_cast ? call->in[0]->dtype : call->dtype;
    e->to = t->dtype;
    e->n = t->n;
    e->n_dims = t->n_dims;
    memcpy(e->dim, t->dim, sizeof e->dim);
    e->size = (uint8_t)size;
    e->computed_once = false;
    e->place = NOWHERE;
    e->threads = call->threads;
    e->p = scalars ? scalars->a : 0;
    e->q = scalars ? scalars->b : 0;
    for (int k = 0; k < call->n_in; k++) {
        operand_set(&e->in[k], call->in[k], call->in[k]->n == t->n);
    }
    kn_storage *s = &t->own;
    s->version = 0;
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
    return KN_OK;
}

/* Steps that a result takes. Inputs that are broadcast, and the largest ones where there would be
 * too many steps, are computed first. */
static kn_status size_of(int *size, const kn_op_call *call, int64_t n) {
    for (;;) {
        kn_tensor *largest = NULL;
        *size = 1;
        for (int k = 0; k < call->n_in; k++) {
            kn_tensor *t = call->in[k];
            if (t->state != KN_TENSOR_PENDING) continue;
            if (t->n != n) KN_TRY(kn__compute(t));
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

/* --- plans: expressions that one pass computes --- */

typedef struct plan {
    bool closes;                     /* a reduction reads the last one's tiles */
    kn__expr *expr[KN__FUSED_STEPS]; /* each after those it reads; the last one was asked for */
    int uses[KN__FUSED_STEPS];       /* as an operand of these */
    int last[KN__FUSED_STEPS];       /* the step that reads it last */
    bool stored[KN__FUSED_STEPS];    /* its data is kept */
    int n;
} plan;

static kn_tensor *header_of(kn_storage *s) {
    kn_tensor *t = (kn_tensor *)(void *)((char *)s - offsetof(kn_tensor, own));
    return t->storage == s ? t : NULL;
}

static void collect(plan *p, kn__expr *e) {
    for (int k = 0; k < e->n_in; k++) {
        kn_storage *s = e->in[k].storage;
        if (!s || !s->expr) continue;
        if (s->expr->place == NOWHERE) collect(p, s->expr);
        p->uses[s->expr->place]++;
    }
    KN_ASSERT(p->n < KN__FUSED_STEPS);
    e->place = p->n;
    p->uses[p->n] = 0;
    p->expr[p->n++] = e;
}

/* Whether a step's data may be needed again, and is not cheaper to compute again than to keep. */
static bool is_kept(const plan *p, int i) {
    const kn__expr *e = p->expr[i];
    bool is_last = i == p->n - 1;
    if (is_last && !p->closes) return true;
    const kn_tensor *t = header_of(e->storage);
    uint32_t users = atomic_load_explicit(&e->storage->refs, memory_order_relaxed) / 2;
    if (users > (uint32_t)p->uses[i] + (t != NULL)) return true; /* another expression */
    if (!t) return false;
    /* A gradient on its way to the next rule, or what has been computed and lost before. */
    if (t->owned == UINT32_MAX || e->computed_once) return true;
    bool is_cheap = e->op == KN_OP_cast ||
                    kn__row_is_cheap((kn_op)e->op, (kn_dtype)e->dtype, kn_op_table[e->op].order);
    return (is_last || atomic_load_explicit(&t->refs, memory_order_relaxed) > 1) && !is_cheap;
}

static void plan_make(plan *p, kn__expr *root, bool closes) {
    p->n = 0;
    p->closes = closes;
    collect(p, root);
    for (int i = 0; i < p->n; i++) {
        p->last[i] = i;
        p->stored[i] = is_kept(p, i);
        for (int k = 0; k < p->expr[i]->n_in; k++) {
            const kn_storage *s = p->expr[i]->in[k].storage;
            if (s && s->expr) p->last[s->expr->place] = i;
        }
    }
}

/* --- steps --- */

static void operand_place(kn__fused_step *step, const kn__expr *e, int k, const plan *p,
                          const kn__fused *f) {
    const operand *x = &e->in[k];
    kn__row_job *j = &step->job;
    j->in[k] = NULL;
    j->same[k] = true;
    j->half_in[k] = false;
    step->from[k] = NOWHERE;
    if (!x->storage) return;
    j->in_bytes[k] = kn__dtype_size[x->dtype];
    j->half_in[k] = j->is_half && x->dtype == e->dtype;
    j->same[k] = x->n == e->n;
    if (x->storage->expr) {
        int i = x->storage->expr->place;
        step->from[k] = f->step[i].tile;
        if (p->stored[i]) j->in[k] = f->step[i].job.out[f->step[i].r];
        return;
    }
    j->in[k] = x->data ? x->data : x->storage->data;
    if (j->same[k]) return;
    bool form = e->n_in == 2 && !j->order && !j->is_half && x->n == 1 && !j->form;
    if (form) {
        j->form = k ? KN__ROW_VS : KN__ROW_SV;
        j->in_bytes[k] = 0;
        j->same[k] = true;
        return;
    }
    kn_tensor in = {.n_dims = x->n_dims}, out = {.n_dims = e->n_dims};
    memcpy(in.dim, x->dim, sizeof in.dim);
    memcpy(out.dim, e->dim, sizeof out.dim);
    walk_init(&j->walk[k], &out, (kn_tensor *[]){&in}, 1);
}

static void step_make(kn__fused *f, int i, const plan *p) {
    const kn__expr *e = p->expr[i];
    kn__fused_step *step = &f->step[i];
    kn__row_job *j = &step->job;
    const kn_op_info *info = &kn_op_table[e->op];
    step->is_cast = e->op == KN_OP_cast;
    step->to = (kn_dtype)e->to;
    step->r = (int8_t)e->r;
    j->call = NULL;
    j->order = info->order;
    j->row = step->is_cast
                 ? NULL
                 : kn__row(e->dtype ? (kn_dtype)e->dtype : KN_BOOL, e->op - (unsigned)info->order);
    j->n_in = e->n_in;
    j->n_out = info->order ? info->row : 1;
    j->form = KN__ROW_VV;
    j->accumulate = 0;
    j->dtype = (kn_dtype)e->dtype;
    j->is_half = !step->is_cast && (e->dtype == KN_F16 || e->dtype == KN_BF16);
    j->half_out = j->is_half && e->to == e->dtype;
    j->p = e->p;
    j->q = e->q;
    j->n = e->n;
    j->out_bytes = kn__dtype_size[e->to];
    for (int k = 0; k < e->n_in; k++) operand_place(step, e, k, p, f);
    int64_t grain = step->is_cast ? 32768 : kn__row_grain((kn_op)e->op, j->dtype, j->order);
    if (grain < f->grain) f->grain = grain;
}

/* Allocates the stored results; frees them all on failure. */
static kn_status memory_take(kn__fused *f, const plan *p) {
    for (int i = 0; i < p->n; i++) {
        kn_storage *s = p->expr[i]->storage;
        void *data = NULL;
        if (p->stored[i] && kn_alloc(&data, s->pool, s->size_bytes, s->stream) < 0) {
            while (i-- > 0) {
                if (p->stored[i])
                    kn_free(p->expr[i]->storage->pool, f->step[i].job.out[p->expr[i]->r]);
            }
            kn_shape shape = {.n_dims = p->expr[p->n - 1]->n_dims};
            memcpy(shape.dim, p->expr[p->n - 1]->dim, sizeof shape.dim);
            char text[256];
            return KN_FAIL(KN_ERR_OOM, "no memory for a tensor %s %s: %s",
                           kn_shape_text(text, sizeof text, shape),
                           kn_dtype_name((kn_dtype)p->expr[p->n - 1]->to),
                           kn_last_error()->message);
        }
        for (int r = 0; r < KN__ROW_RESULTS; r++) f->step[i].job.out[r] = NULL;
        f->step[i].job.out[p->expr[i]->r] = data;
    }
    return KN_OK;
}

/* A tile for each result that isn't kept, from the step that makes it to the last that reads it. */
static void tiles_place(kn__fused *f, const plan *p) {
    uint32_t taken = 0;
    for (int i = 0; i < p->n; i++) {
        f->step[i].tile = NOWHERE;
        if (!p->stored[i]) {
            int tile = __builtin_ctz(~taken);
            f->step[i].tile = (int8_t)tile;
            taken |= 1u << tile;
        }
        for (int k = 0; k < i; k++) {
            if (p->last[k] == i && !p->stored[k]) taken &= ~(1u << f->step[k].tile);
        }
    }
}

/* --- in the timer's table --- */

/* "add+gelu+mul"; a row of its own keeps its op's name. */
static kn_scope scope_begin(const plan *p) {
    kn_scope off = {0};
    if (!kn_prof_is_on_(KN_PROF_GRAD_)) return off;
    char text[96];
    size_t at = 0;
    for (int i = 0; i < p->n; i++) {
        int n = snprintf(text + at, sizeof text - at, "%s%s", i ? "+" : "",
                         kn_op_name((kn_op)p->expr[i]->op));
        if ((size_t)n >= sizeof text - at - 4) {
            if (i < p->n - 1) memcpy(text + at, "+...", 5);
            break;
        }
        at += (size_t)n;
    }
    return kn_scope_begin_on_(text);
}

static void scope_end(kn_scope *scope, const plan *p) {
    if (!scope->start) return;
    uint64_t bytes = 0;
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        if (p->stored[i]) bytes += e->storage->size_bytes;
        for (int k = 0; k < e->n_in; k++) {
            const operand *x = &e->in[k];
            if (x->storage && !x->storage->expr) bytes += (uint64_t)x->n * kn__dtype_size[x->dtype];
        }
    }
    kn_prof_metric(0, bytes);
    kn_scope_end(scope);
}

/* --- computing --- */

static void plan_end(const plan *p, const kn__fused *f) {
    for (int i = 0; i < p->n; i++) {
        kn__expr *e = p->expr[i];
        e->place = NOWHERE;
        if (!f) continue;
        e->computed_once = true;
        if (!p->stored[i]) continue;
        kn_tensor *t = header_of(e->storage);
        e->storage->data = f->step[i].job.out[e->r];
        if (!t) continue;
        t->data = e->storage->data;
        t->state = KN_TENSOR_LIVE;
    }
    /* This drops operands; those that aren't kept may end with that, and nothing else does. */
    for (int i = 0; i < p->n && f; i++) {
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

/* Everything that a pass needs; the memory of stored results is taken. */
static kn_status pass_make(kn__fused *f, const plan *p) {
    const kn__expr *root = p->expr[p->n - 1];
    f->n_steps = p->n;
    f->n = root->n;
    f->grain = 32768;
    f->threads = root->threads;
    KN_TRY(memory_take(f, p));
    tiles_place(f, p);
    for (int i = 0; i < p->n; i++) step_make(f, i, p);
    return KN_OK;
}

kn_status kn__fuse_compute(kn_storage *s) {
    KN_TRY(check_thread(s->expr));
    plan p;
    plan_make(&p, s->expr, false);
    kn__fused f;
    kn_scope scope = scope_begin(&p);
    kn_status status = pass_make(&f, &p);
    if (status == KN_OK) kn__fused_run(&f);
    scope_end(&scope, &p);
    plan_end(&p, status == KN_OK ? &f : NULL);
    return status;
}

kn_status kn__fuse_reduce(kn_op_call *call) {
    plan p;
    plan_make(&p, call->in[0]->storage->expr, true);
    kn__fused f;
    kn_scope scope = scope_begin(&p);
    kn_status status = pass_make(&f, &p);
    bool is_made = status == KN_OK;
    if (is_made) status = kn__host_reduce_fused(call, &f);
    scope_end(&scope, &p);
    plan_end(&p, is_made ? &f : NULL);
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
           x->state == KN_TENSOR_PENDING && kn__host_reduce_fuses(call);
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
