/* Reductions of rows that a tile holds, in frames with .fuse; of short ones it would not pay. A
 * result that has an element for each row waits as rows' results do, and those of its readers that
 * repeat it along the rows do too: then one pass takes some rows at a time, reduces them, and goes
 * on with them while they lie in the cache.
 *
 * A pass has rows of one length. Its expressions have an element for each element of them, or one a
 * row (by_rows). */
#include "fuse_plan.h"
#include "run.h"

bool kn__fuse_takes_reduction(const kn_op_call *call, bool all) {
    enum { LEAST = 1024 };
    const kn_tensor *x = call->in[0];
    kn__recipe recipe;
    if (x->layout != KN_LAYOUT_PLAIN || (x->n < LEAST && !all)) return false;
    if (call->n_in > 1 && call->in[1] != KN_NONE) return false;
    int64_t row = kn__host.reduce_row(&recipe, call);
    if (row == x->n) return false; /* one number: no later step runs along its row */
    return row >= (all ? 2 : KN__ROW_BLOCK / 2) && row <= KN__ROW_BLOCK;
}

/* Elements of all rows of its pass. */
static int64_t total_of(const kn__expr *e) { return e->by_rows ? e->n * e->row : e->n; }

kn_status kn__fuse_defer_reduction(kn__ops_thread *self, const kn_op_call *call) {
    kn_tensor *x = call->in[0];
    kn__recipe recipe;
    int64_t row = kn__host.reduce_row(&recipe, call);
    const kn__expr *from = x->storage->expr;
    if (from && (kn__is_view(from) || (from->row && (from->row != row || from->by_rows))))
        KN_TRY(kn__compute(x));
    KN_TRY(kn__fuse_fit(self, call, x->n, 0, 1));
    kn__expr *e = kn__expr_make(self, call, call->out[0]), like = {.n = x->n};
    if (!e) return kn_last_error()->status;
    e->dtype = x->dtype;
    e->row = row;
    e->by_rows = true;
    e->recipe = recipe;
    e->n_in = 1;
    kn__operand_set(&e->in[0], x, &like);
    return KN_OK;
}

/* Whether t, of one element a row, is repeated along rows of `row` elements of `out`. */
static bool repeats_along(const kn_tensor *t, const kn_tensor *out, int64_t row) {
    int lead = out->n_dims - t->n_dims;
    int64_t n = 1;
    for (int d = out->n_dims - 1; d >= 0 && n < row; d--) {
        n *= out->dim[d];
        if (d >= lead && t->dim[d - lead] != 1) return false;
    }
    return n == row && t->n * row == out->n;
}

static kn__expr *with_rows(const kn_tensor *t) {
    kn__expr *e = t->state == KN_TENSOR_PENDING ? t->storage->expr : NULL;
    return e && e->row ? e : NULL;
}

kn_status kn__fuse_find_rows(int64_t *row, bool *by_rows, const kn_op_call *call,
                             const kn_tensor *out) {
    int64_t total = 0;
    *row = 0;
    *by_rows = false;
    for (int k = 0; k < call->n_in; k++) {
        const kn__expr *e = with_rows(call->in[k]);
        if (!e) continue;
        bool is_row = out->n * e->row == total_of(e), is_whole = out->n == total_of(e);
        bool is_other = total && (*row != e->row || total != total_of(e));
        bool fits = call->in[k]->n == out->n || repeats_along(call->in[k], out, e->row);
        if ((!is_row && !is_whole) || is_other || !fits) {
            KN_TRY(kn__compute(call->in[k]));
            continue;
        }
        *row = e->row;
        *by_rows = is_row;
        total = total_of(e);
    }
    for (int k = 0; k < call->n_in && *row && !*by_rows; k++) {
        kn_tensor *t = call->in[k];
        if (t->state == KN_TENSOR_PENDING && t->n != out->n && !repeats_along(t, out, *row))
            KN_TRY(kn__compute(t));
    }
    return KN_OK;
}
