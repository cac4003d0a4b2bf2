/* Slices in frames with .fuse. A *view* is a slice that has no memory: expressions that read it
 * read the array under it, with strides; of a pending array it is the same expression on slices of
 * its operands. A *whole* is a gradient made of parts, each the gradient of a slice; one pass
 * computes all parts and writes them where they belong. */
#include <string.h>

#include "fuse_plan.h"
#include "host/movement/strided.h"
#include "run.h"

/* --- slices --- */

/* Elements of the slice that follow each other in x; 0: all of them do. */
static int64_t run_of(const kn_attr_box *box, const kn_tensor *x) {
    int64_t run = 1;
    for (int d = x->n_dims - 1; d > 0; d--) {
        run *= box->size[d];
        if (box->size[d] != x->dim[d]) return run;
    }
    return 0;
}

bool kn__fuse_takes_slice(const kn_op_call *call, bool all) {
    enum { RUN_MIN = 8 }; /* shorter ones are copied faster than gathered */
    enum { LEAST = 1024 };
    const kn_attr_box *box = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t run = run_of(box, x), n = 1;
    for (int d = 0; d < x->n_dims; d++) {
        bool fits = box->start[d] >= 0 && box->size[d] > 0 && box->size[d] <= x->dim[d];
        if (!fits) return false; /* empty, or an error of the usual way */
        n *= box->size[d];
    }
    return run > 1 && (all || (run >= RUN_MIN && n >= LEAST));
}

/* Whether a slice of e is as cheap as e: one cheap step on data. */
static bool is_slice_cheap(const kn__expr *e) {
    if (kn__is_view(e) || kn__is_apart(e)) return kn__is_view(e);
    if (e->row) return false;
    for (int k = 0; k < e->n_in; k++) {
        if (e->in[k].storage && e->in[k].storage->expr) return false;
    }
    return e->op == KN_OP_cast ||
           kn__row_is_cheap((kn_op)e->op, (kn_dtype)e->dtype, kn_op_table[e->op].order);
}

/* to: the part of x, an operand of an expression with dimensions dim[]. */
static void operand_slice(kn__fuse_operand *to, const kn__fuse_operand *x, int n_dims,
                          const int64_t dim[], const kn_attr_box *box) {
    *to = *x;
    if (!x->storage) return;
    kn__storage_share(x->storage);
    if (x->dense) kn__row_major(to->stride, n_dims, dim);
    int64_t at = 0;
    to->n = 1;
    for (int d = 0; d < n_dims; d++) {
        at += box->start[d] * to->stride[d];
        if (to->stride[d]) to->n *= box->size[d];
    }
    to->data = (char *)kn__operand_data(x) + at * (int64_t)kn__dtype_size[x->dtype];
    to->dense = false;
}

kn_status kn__fuse_defer_slice(kn__ops_thread *self, const kn_op_call *call) {
    const kn_attr_box *box = call->attr;
    kn_tensor *x = call->in[0], *t = call->out[0];
    if (x->state == KN_TENSOR_PENDING && !is_slice_cheap(x->storage->expr)) KN_TRY(kn__compute(x));
    kn__expr *e = kn__expr_make(self, call, t);
    if (!e) return kn_last_error()->status;
    const kn__expr *from = x->storage->expr;
    e->dtype = x->dtype;
    if (!from) {
        kn__fuse_operand whole;
        kn__expr like = {.n = x->n};
        kn__operand_set(&whole, x, &like);
        operand_slice(&e->in[0], &whole, x->n_dims, x->dim, box);
        kn__storage_drop(whole.storage);
        e->n_in = 1;
        return KN_OK;
    }
    e->op = from->op, e->r = from->r, e->dtype = from->dtype;
    e->p = from->p, e->q = from->q;
    for (int k = 0; k < from->n_in; k++)
        operand_slice(&e->in[k], &from->in[k], from->n_dims, from->dim, box);
    e->n_in = from->n_in;
    return KN_OK;
}

void kn__view_copy(const kn__expr *e, void *y) {
    kn__strided_copy c = {.to = y, .from = kn__operand_data(&e->in[0]), .dtype = e->to};
    c.n_dims = e->n_dims;
    memcpy(c.dim, e->dim, sizeof c.dim);
    memcpy(c.from_stride, e->in[0].stride, sizeof c.from_stride);
    kn__row_major(c.to_stride, e->n_dims, e->dim);
    kn__strided_copy_run(e->threads, &c);
}

/* --- parts --- */

/* Whether elements that follow each other in g do in the whole. */
static bool has_rows(const kn_tensor *g, const int64_t whole_dim[]) {
    int d = g->n_dims - 1;
    while (d > 0 && g->dim[d] == 1 && whole_dim[d] == 1) d--;
    return d >= 0 && g->dim[d] > 1;
}

/* Parts that are small beside the whole would not pay for its zeros. */
bool kn__fuse_takes_part(const kn_op_call *call) {
    enum { SMALL = 8 };
    const kn_attr_box *box = call->attr;
    const kn_tensor *g = call->in[0];
    int64_t n = 1;
    for (int d = 0; d < g->n_dims; d++) n *= box->size[d];
    if (g->state != KN_TENSOR_PENDING || !(KN_CLASS_FLOAT >> g->dtype & 1)) return false;
    return n <= SMALL * g->n && has_rows(g, box->size);
}

static void add_part(kn__expr *whole, const kn_op_call *call) {
    const kn_attr_box *box = call->attr;
    kn_tensor *g = call->in[0];
    kn__expr like = {.n = g->n};
    kn__fuse_operand *part = &whole->in[whole->n_in];
    kn__operand_set(part, g, &like);
    memcpy(part->stride, box->start, sizeof part->stride);
    whole->n_in++;
}

/* A part needs a step of its own. */
static kn_status compute_alone(kn_tensor *g) {
    const kn__expr *e = g->storage->expr;
    return e && (kn__is_view(e) || kn__is_apart(e) || e->row) ? kn__compute(g) : KN_OK;
}

kn_status kn__fuse_defer_part(kn__ops_thread *self, const kn_op_call *call) {
    kn_tensor *g = call->in[0];
    KN_TRY(compute_alone(g));
    KN_TRY(kn__fuse_fit(self, call, g->n, 0, 1));
    kn__expr *e = kn__expr_make(self, call, call->out[0]);
    if (!e) return kn_last_error()->status;
    memcpy(e->part_dim, g->dim, sizeof e->part_dim);
    add_part(e, call);
    return KN_OK;
}

static bool overlaps(const kn__expr *whole, int k, const int64_t start[]) {
    for (int d = 0; d < whole->n_dims; d++) {
        int64_t apart = start[d] - whole->in[k].stride[d];
        if (apart >= whole->part_dim[d] || -apart >= whole->part_dim[d]) return false;
    }
    return true;
}

/* Parts of one shape that don't overlap, so that each place is added to once, and few enough steps.
 */
bool kn__fuse_joins(kn__ops_thread *self, const kn_op_call *call) {
    if (call->op != KN_OP_slice_back || call->given != 1 || call->accumulate != 1) return false;
    kn_tensor *t = call->out[0], *g = call->in[0];
    if (t->state != KN_TENSOR_PENDING || !kn__is_whole_of_parts(t->storage->expr)) return false;
    const kn__expr *whole = t->storage->expr;
    const kn_attr_box *box = call->attr;
    bool fits = whole->thread == self && whole->n_in < KN__ROW_OPERANDS &&
                g->n_dims == whole->n_dims && t->storage->stream == call->stream &&
                g->storage->stream == call->stream && t->storage->pool == g->storage->pool;
    for (int d = 0; fits && d < g->n_dims; d++) fits = g->dim[d] == whole->part_dim[d];
    for (int k = 0; fits && k < whole->n_in; k++) fits = !overlaps(whole, k, box->start);
    return fits && kn__fuse_steps(self, (kn_tensor *[]){t, g}, 2) + whole->n_in <= KN__FUSED_STEPS;
}

kn_status kn__fuse_join(const kn_op_call *call) {
    kn_storage *s = call->out[0]->storage;
    KN_ASSERT(kn_tensor_is_unshared(call->out[0])); /* no expression reads parts that wait */
    KN_TRY(compute_alone(call->in[0]));
    s->version++;
    s->expr->thread->unread = NULL; /* an earlier expression reads more */
    add_part(s->expr, call);
    return KN_OK;
}
