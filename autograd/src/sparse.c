/* Row-sparse gradients: the rows of a parameter that backward reached, and their gradients.
 *
 * Indices of one row are added up in the order in which they came, as the dense gradient does: the
 * sums have the same bits. Equal indices meet by a stable sort; the n-th different one has the
 * segment n. On the host the sums are one a segment. Elsewhere their number is on the device, and
 * reading it would wait: there is an entry for each index, with the whole sum of its row, and
 * `first` is 1 for one of the entries of a row and 0 for its others. */
#include "sparse.h"

#include "params.h"

/* Rows `from` to `to` - 1; NULL of NULL, the error is pending then. */
static kn_tensor *leading(kn_tensor *t, int64_t from, int64_t to) {
    if (!t) return NULL;
    kn_shape start = {.n_dims = t->n_dims}, stop = kn_tensor_shape(t);
    start.dim[0] = from;
    stop.dim[0] = to;
    return kn_slice(t, start, stop);
}

static kn_tensor *filled(const kn_tensor *like, double value) {
    return like ? kn_filled_like(like, value) : NULL;
}

void kn__rows_release(kn__rows *r) {
    if (r->rows) kn_tensor_release(r->rows);
    if (r->values) kn_tensor_release(r->values);
    if (r->first) kn_tensor_release(r->first);
    *r = (kn__rows){0};
}

kn_tensor *kn__rows_once(const kn__rows *r, kn_tensor *values) {
    if (r->first == KN_NONE || !values) return values;
    kn_shape shape = {.n_dims = values->n_dims};
    for (int i = 0; i < shape.n_dims; i++) shape.dim[i] = i ? 1 : values->dim[0];
    return kn_mul(values, kn_reshape(r->first, shape));
}

/* --- sums of equal rows --- */

/* values are added up at segment[i], into n zeros. */
static kn_tensor *sums_of(kn_tensor *values, kn_tensor *segment, int64_t n) {
    kn_attr_index attr = {.n_dims = values->n_dims};
    memcpy(attr.dim, values->dim, sizeof attr.dim);
    attr.dim[0] = n;
    return KN_CALL(index_add, &attr, KN_NONE, segment, values);
}

/* Of sorted rows: 1 where a row is not the one before it. I64 [n - 1] */
static kn_tensor *changes_of(kn_tensor *sorted) {
    int64_t n = sorted->n;
    return kn_cast(kn_ne(leading(sorted, 1, n), leading(sorted, 0, n - 1)), KN_I64);
}

static kn_tensor *keep(kn_tensor *t) { return t == KN_NONE ? t : kn_tensor_detach_frame(t); }

/* One entry a segment. */
static kn_status close_up(kn__rows *out, kn_tensor *sorted, kn_tensor *segment, kn_tensor *inverse,
                          kn_tensor *values) {
    const int64_t *numbers = kn_op_data(segment);
    if (!numbers) return kn_check();
    int64_t n = numbers[segment->n - 1] + 1;
    kn_tensor *rows = kn_index_set(leading(filled(sorted, 0), 0, n), segment, sorted, 0);
    kn_tensor *sums = rows ? sums_of(values, inverse, n) : NULL;
    if (!sums) return kn_check();
    *out = (kn__rows){keep(rows), keep(sums), KN_NONE};
    return KN_OK;
}

/* One entry an index. */
static kn_status spread(kn__rows *out, kn_tensor *sorted, kn_tensor *segment, kn_tensor *inverse,
                        kn_tensor *values, kn_tensor *changes) {
    kn_tensor *one = filled(leading(sorted, 0, 1), 1);
    kn_tensor *first =
        kn_cast(kn_concat((kn_tensor *const[]){one, changes}, 2, 0), (kn_dtype)values->dtype);
    kn_tensor *sums = first ? sums_of(values, inverse, sorted->n) : NULL;
    kn_tensor *all = sums ? kn_index_select(sums, segment, 0) : NULL;
    if (!all) return kn_check();
    *out = (kn__rows){keep(sorted), keep(all), keep(first)};
    return KN_OK;
}

kn_status kn__rows_sum(kn__rows *out, kn_tensor *rows, kn_tensor *values, bool may_read) {
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn_check());
    kn_tensor *sorted = NULL, *places = NULL;
    KN_TRY(kn_sort_index(&sorted, &places, rows, 0, false));
    kn_tensor *changes = changes_of(sorted), *zero = filled(leading(sorted, 0, 1), 0);
    if (!changes || !zero) return kn_check();
    kn_tensor *segment =
        kn_concat((kn_tensor *const[]){zero, kn_cumsum(changes, 0)}, 2, 0);          /* of sorted */
    kn_tensor *inverse = segment ? kn_index_set(segment, places, segment, 0) : NULL; /* of rows */
    if (!inverse) return kn_check();
    return may_read ? close_up(out, sorted, segment, inverse, values)
                    : spread(out, sorted, segment, inverse, values, changes);
}

/* --- delivery --- */

/* Indices as I64 [n], from 0 on. Their range was checked where they were used. */
static kn_tensor *rows_of(kn_tensor *index, int64_t size) {
    kn_tensor *rows = kn_cast(kn_reshape(index, KN_SHAPE(index->n)), KN_I64);
    return rows ? kn_remainder(rows, filled(leading(rows, 0, 1), (double)size)) : NULL;
}

static bool is_on_host(const kn__param *p) {
    return kn_device_kind_get(p->set->device) == KN_DEVICE_HOST;
}

static kn_status add_rows(kn__param *p, kn__pass *pass, kn_tensor *rows, kn_tensor *values) {
    bool fresh = false;
    if (kn_capture_records()) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_backward: the gradient of %s is row-sparse: a captured step can't have "
                       "one, as the number of its rows changes",
                       p->name);
    }
    if (!rows || !values || !kn__param_sink(p, pass, &fresh)) return kn_check();
    if (fresh) kn__rows_release(&p->rows);
    if (p->rows.rows) {
        kn_tensor *old = kn__rows_once(&p->rows, p->rows.values);
        rows = kn_concat((kn_tensor *const[]){p->rows.rows, rows}, 2, 0);
        values = kn_concat((kn_tensor *const[]){old, values}, 2, 0);
        if (!rows || !values) return kn_check();
    }
    kn__rows sum = {0};
    KN_TRY(kn__rows_sum(&sum, rows, values, is_on_host(p)));
    kn__rows_release(&p->rows);
    p->rows = sum;
    return KN_OK;
}

kn_status kn__param_rows(kn__param *p, kn__pass *pass, kn_tensor *index, kn_tensor *g) {
    if (index->n == 0) return KN_OK;
    kn_scope scope = kn_scope_begin_grad("sum_outgrads");
    KN_FRAME(.pool = p->set->pool, .record = KN_OFF);
    kn_shape shape = kn_tensor_shape(p->w);
    shape.dim[0] = index->n;
    kn_status status = add_rows(p, pass, rows_of(index, p->w->dim[0]), kn_reshape(g, shape));
    kn_scope_end(&scope);
    return status;
}

kn_status kn__param_all_rows(kn__param *p, kn__pass *pass, kn_tensor *dx) {
    if (p->w->dim[0] == 0) return KN_OK;
    KN_FRAME(.device = p->set->device, .pool = p->set->pool, .record = KN_OFF);
    return add_rows(p, pass, kn_arange(0, (double)p->w->dim[0], 1, KN_I64), dx);
}

/* --- what users call --- */

static kn__param *param_of(const char *name, kn_tensor *w) {
    const char *problem = kn_tensor_problem(w);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "%s: w %s", name, problem);
    kn__param *p = kn__edge_param(w->grad);
    return p ? p : KN_FAIL_NULL(KN_ERR_INVALID, "%s: w is not a parameter", name);
}

kn_status kn_param_sparse(kn_tensor *w) {
    KN_TRY(kn_check());
    kn__param *p = param_of("kn_param_sparse", w);
    if (!p) return kn_check();
    if (p->is_sparse) return KN_OK;
    if (w->n_dims == 0)
        return KN_FAIL(KN_ERR_SHAPE, "kn_param_sparse: %s is 0-dim; it has no rows", p->name);
    if (p->set->flat)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_param_sparse: %s: the set's gradients were laid out; call it before the "
                       "first backward, step or kn_grad",
                       p->name);
    p->is_sparse = true;
    return KN_OK;
}

bool kn_param_is_sparse(const kn_tensor *w) {
    const kn__param *p = kn_tensor_problem(w) ? NULL : kn__edge_param(w->grad);
    return p && p->is_sparse;
}

/* No rows at all. */
static kn_status make_empty(kn__param *p) {
    KN_FRAME(.device = p->set->device, .pool = p->set->pool, .dtype = p->set->dtype,
             .record = KN_OFF);
    kn_shape shape = kn_tensor_shape(p->w);
    shape.dim[0] = 0;
    kn_tensor *rows = kn_arange(0, 0, 1, KN_I64), *values = kn_zeros(shape);
    if (!rows || !values) return kn_check();
    p->rows = (kn__rows){keep(rows), keep(values), KN_NONE};
    return KN_OK;
}

kn_status kn__param_rows_settle(kn__param *p) {
    if (p->cycle != p->set->cycle) kn__rows_release(&p->rows);
    p->cycle = p->set->cycle;
    return p->rows.rows ? KN_OK : make_empty(p);
}

kn_status kn_grad_rows(kn_tensor **rows, kn_tensor **values, kn_tensor *w) {
    KN_TRY(kn_check());
    if (!rows || !values)
        return KN_FAIL(KN_ERR_INVALID, "kn_grad_rows: %s is NULL", rows ? "values" : "rows");
    kn__param *p = param_of("kn_grad_rows", w);
    if (!p) return kn_check();
    if (!p->is_sparse)
        return KN_FAIL(KN_ERR_INVALID, "kn_grad_rows: the gradient of %s is dense; see kn_grad",
                       p->name);
    KN_TRY(kn__params_layout(p->set));
    KN_TRY(kn__param_rows_settle(p));
    *rows = p->rows.rows;
    *values = p->rows.values;
    return KN_OK;
}

/* --- what optimisers do with them --- */

/* x[rows] = part, in place. */
static kn_status put_back(kn_tensor *x, kn_tensor *rows, kn_tensor *part) {
    if (x == KN_NONE) return KN_OK;
    kn_attr_index attr = {0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_index_set, &attr, KN_LIST_(x, rows, part), 3);
    call.out[0] = x;
    call.given = 1;
    return kn_op_run(&call) ? KN_OK : kn_check();
}

static kn_tensor *part_of(kn_tensor *x, kn_tensor *rows) {
    return x == KN_NONE ? x : kn_index_select(x, rows, 0);
}

/* Rows that repeat have equal numbers at each place. */
kn_status kn__rows_step(kn__rows_update *out, kn_op op, const kn_attr_optim *attr,
                        const kn_optim_part *scales, kn_tensor *hyper) {
    kn__param *p = kn__edge_param(scales->w->grad);
    kn_tensor *rows = p->rows.rows;
    if (p->rows.values->n == 0) return KN_OK;
    kn_tensor *own = kn_affine(hyper, 1, 0);
    out->w_part = part_of(out->w, rows);
    out->m_part = part_of(out->m, rows);
    out->v_part = part_of(out->v, rows);
    if (!own || !out->w_part || !out->m_part || !out->v_part) return kn_check();
    kn_optim_part part = {out->w_part, 0, out->w_part->n, scales->rate, scales->decay};
    kn_attr_optim mine = *attr;
    mine.part = &part;
    mine.n_parts = 1;
    KN_TRY(kn_optim_run(op, &mine, p->rows.values, out->m_part, out->v_part, own));
    out->rows = rows;
    return KN_OK;
}

kn_status kn__rows_write(const kn__rows_update *u) {
    if (!u->rows) return KN_OK;
    KN_TRY(put_back(u->w, u->rows, u->w_part));
    KN_TRY(put_back(u->m, u->rows, u->m_part));
    return put_back(u->v, u->rows, u->v_part);
}
