/* Factorisations and solvers of the host. Many matrices: each on one thread; one, or large ones:
 * one after the other, on all threads. */
#include <math.h>
#include <string.h>

#include "factors.h"
#include "host/base/chunks.h"
#include "host/base/slots.h"
#include "host/linalg/dense.h"

/* --- a function for each matrix --- */

typedef struct each each;
typedef void (*matrix_fn)(kn__dense *d, const each *e, int64_t i, void *space);
struct each {
    kn_op_call *call;
    matrix_fn fn;
    int64_t n_matrices, rows, columns; /* of a */
    size_t space_bytes;                /* that fn gets */
    kn__dense d;
    kn__slots slots;
    _Atomic int status;
};

enum { LARGE = 512 };

static const char *matrix(const kn_tensor *t, int64_t i, int64_t elements) {
    return (const char *)t->data + (size_t)(i * elements) * kn_dtype_bytes((kn_dtype)t->dtype);
}
static char *result(const kn_op_call *call, int r, int64_t i, int64_t elements) {
    return (char *)(uintptr_t)matrix(call->out[r], i, elements);
}

static void one_of_many(void *ctx, int64_t i) {
    each *e = ctx;
    char *slot = kn__slot_take(&e->slots);
    kn__dense d = e->d;
    d.gemm_space = slot + e->space_bytes;
    e->fn(&d, e, i, slot);
    kn__slot_give(&e->slots, slot);
    if (d.status < 0) atomic_store_explicit(&e->status, (int)d.status, memory_order_relaxed);
}

static kn_status run_each(each *e) {
    kn_op_call *call = e->call;
    int64_t side = e->rows > e->columns ? e->rows : e->columns;
    e->d = (kn__dense){.call = call, .dtype = (kn_dtype)call->in[0]->dtype};
    e->d.loops = kn__loops(e->d.dtype);
    e->d.bytes = kn_dtype_bytes(e->d.dtype);
    e->d.alone = e->n_matrices == 1 || side >= LARGE;
    e->space_bytes = (e->space_bytes + 63) / 64 * 64;
    if (!e->d.alone) {
        size_t bytes = e->space_bytes + kn__dense_gemm_bytes(e->d.dtype, side);
        KN_TRY(kn__slots_create(&e->slots, call, e->n_matrices, bytes));
        kn__library_for(e->slots.n, e->n_matrices, one_of_many, e);
        return (kn_status)atomic_load_explicit(&e->status, memory_order_relaxed);
    }
    void *space = NULL;
    KN_TRY(kn__work(&space, call, e->space_bytes));
    for (int64_t i = 0; i < e->n_matrices && e->d.status == KN_OK; i++) e->fn(&e->d, e, i, space);
    return e->d.status;
}

/* Of matrices in[0] [...,rows,columns]. */
static each each_of(kn_op_call *call, matrix_fn fn, size_t space_bytes) {
    const kn_tensor *a = call->in[0];
    each e = {.call = call, .fn = fn, .n_matrices = 1, .space_bytes = space_bytes};
    e.rows = a->dim[a->n_dims - 2], e.columns = a->dim[a->n_dims - 1];
    for (int d = 0; d < a->n_dims - 2; d++) e.n_matrices *= a->dim[d];
    return e;
}

static void fill_nan(const kn__dense *d, void *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (d->dtype == KN_F64)
            ((double *)a)[i] = NAN;
        else
            ((float *)a)[i] = NAN;
    }
}

/* --- triangle --- */

typedef struct triangle_work {
    const kn_op_call *call;
    const kn__loop_table *loops;
    int64_t rows, columns, chunk; /* of a matrix; rows of all matrices in a piece of work */
} triangle_work;

static void triangle_chunk(void *ctx, int64_t i) {
    const triangle_work *w = ctx;
    const kn_attr_tri_scale *attr = w->call->attr;
    int64_t all = w->call->out[0]->n / w->columns, end = (i + 1) * w->chunk;
    if (end > all) end = all;
    for (int64_t row = i * w->chunk; row < end;) {
        int64_t first = row % w->rows,
                n = w->rows - first < end - row ? w->rows - first : end - row;
        w->loops->tri_scale_rows(result(w->call, 0, row, w->columns),
                                 matrix(w->call->in[0], row, w->columns), first, n, w->columns,
                                 attr->below, attr->on, attr->above);
        row += n;
    }
}

kn_status kn__host_tri_scale(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    triangle_work w = {.call = call,
                       .loops = kn__loops((kn_dtype)x->dtype),
                       .rows = x->dim[x->n_dims - 2],
                       .columns = x->dim[x->n_dims - 1]};
    w.chunk = 1 + 32768 / w.columns;
    kn__parallel_for(call->threads, kn__chunks(x->n / w.columns, w.chunk), triangle_chunk, &w);
    return KN_OK;
}

/* --- Cholesky --- */

static void cholesky_one(kn__dense *d, const each *e, int64_t i, void *space) {
    int64_t n = e->rows;
    char *l = result(e->call, 0, i, n * n);
    d->loops->tri_scale_rows(l, matrix(e->call->in[0], i, n * n), 0, n, n, 1, 1, 0);
    if (!kn__dense_cholesky(d, l, n, space))
        fill_nan(d, l, n * n);
    else
        d->loops->tri_scale_rows(l, l, 0, n, n, 1, 1, 0); /* blocks' products reach above it */
}

kn_status kn__host_cholesky(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    size_t bytes = kn__dense_cholesky_bytes((kn_dtype)a->dtype, a->dim[a->n_dims - 1]);
    each e = each_of(call, cholesky_one, bytes);
    return run_each(&e);
}

/* --- solvers --- */

static int64_t right_sides(const each *e) {
    const kn_tensor *b = e->call->in[1];
    return b->dim[b->n_dims - 1];
}

static void triangular_solve_one(kn__dense *d, const each *e, int64_t i, void *space) {
    (void)space;
    const kn_attr_solve *attr = e->call->attr;
    int64_t n = e->rows, k = right_sides(e);
    char *x = result(e->call, 0, i, n * k);
    if (n * k > 0) memcpy(x, matrix(e->call->in[1], i, n * k), (size_t)(n * k) * d->bytes);
    kn__triangle t = {matrix(e->call->in[0], i, n * n), n, n, attr->trans, attr->upper, attr->unit};
    kn__dense_solve(d, &t, x, k, k);
}

kn_status kn__host_triangular_solve(kn_op_call *call) {
    each e = each_of(call, triangular_solve_one, 64);
    return run_each(&e);
}

typedef struct lu { /* factors.h */
    char *a;
    int32_t *pivot;
} lu;

/* Space of an LU: the factors, a panel. */
static size_t factors_bytes(kn_dtype dtype, int64_t n) {
    return ((size_t)((n + 1) * n) * kn_dtype_bytes(dtype) + 63) / 64 * 64;
}
static size_t lu_bytes(const kn_tensor *a) {
    int64_t n = a->dim[a->n_dims - 1];
    return factors_bytes((kn_dtype)a->dtype, n) + kn__dense_lu_bytes((kn_dtype)a->dtype, n);
}

static lu lu_of(kn__dense *d, const each *e, int64_t i, void *space) {
    const kn_tensor *given = kn__factors_in(e->call), *kept = kn__factors_out(e->call);
    int64_t n = e->rows, all = (n + 1) * n;
    char *a = space;
    if (kept) a = (char *)(uintptr_t)matrix(kept, i, all);
    if (given != KN_NONE && !kept) a = (char *)(uintptr_t)matrix(given, i, all);
    lu f = {a, (int32_t *)(void *)(a + (size_t)(n * n) * d->bytes)};
    if (n == 0) return f;
    if (given == KN_NONE) {
        memcpy(a, matrix(e->call->in[0], i, n * n), (size_t)(n * n) * d->bytes);
        kn__dense_lu(d, a, n, f.pivot, (char *)space + factors_bytes(d->dtype, n));
    } else if (kept) {
        memcpy(a, matrix(given, i, all), (size_t)all * d->bytes);
    }
    return f;
}

/* op(P⁻¹·L·U)·x = b in place */
static void lu_solve(kn__dense *d, const lu *f, int64_t n, char *x, int64_t columns, bool trans) {
    kn__triangle lower = {f->a, n, n, trans, false, true}, upper = {f->a, n, n, trans, true, false};
    if (!trans) {
        for (int64_t k = 0; k < n; k++) kn__dense_swap(d, x, columns, k, f->pivot[k]);
        kn__dense_solve(d, &lower, x, columns, columns);
    }
    kn__dense_solve(d, &upper, x, columns, columns);
    if (trans) {
        kn__dense_solve(d, &lower, x, columns, columns);
        for (int64_t k = n - 1; k >= 0; k--) kn__dense_swap(d, x, columns, k, f->pivot[k]);
    }
}

static void solve_one(kn__dense *d, const each *e, int64_t i, void *space) {
    const kn_attr_solve *attr = e->call->attr;
    int64_t n = e->rows, k = right_sides(e);
    lu f = lu_of(d, e, i, space);
    char *x = result(e->call, 0, i, n * k);
    if (n * k == 0) return;
    memcpy(x, matrix(e->call->in[1], i, n * k), (size_t)(n * k) * d->bytes);
    lu_solve(d, &f, n, x, k, attr->trans);
}

kn_status kn__host_solve(kn_op_call *call) {
    each e = each_of(call, solve_one, lu_bytes(call->in[0]));
    return run_each(&e);
}

static void inverse_one(kn__dense *d, const each *e, int64_t i, void *space) {
    int64_t n = e->rows;
    lu f = lu_of(d, e, i, space);
    char *x = result(e->call, 0, i, n * n);
    memset(x, 0, (size_t)(n * n) * d->bytes);
    for (int64_t k = 0; k < n; k++) {
        if (d->dtype == KN_F64)
            ((double *)(void *)x)[k * n + k] = 1;
        else
            ((float *)(void *)x)[k * n + k] = 1;
    }
    lu_solve(d, &f, n, x, n, false);
}

kn_status kn__host_inverse(kn_op_call *call) {
    each e = each_of(call, inverse_one, lu_bytes(call->in[0]));
    return run_each(&e);
}

/* --- determinants --- */

static void store(const kn_op_call *call, int r, int64_t i, double v) {
    if (!call->out[r]) return;
    if (call->out[r]->dtype == KN_F64)
        ((double *)call->out[r]->data)[i] = v;
    else
        ((float *)call->out[r]->data)[i] = (float)v;
}

static void det_one(kn__dense *d, const each *e, int64_t i, void *space) {
    int64_t n = e->rows;
    lu f = lu_of(d, e, i, space);
    double sign, logarithm, product = d->loops->diagonal_product(f.a, n, &sign, &logarithm);
    for (int64_t k = 0; k < n; k++) {
        if (f.pivot[k] != k) sign = -sign, product = -product;
    }
    bool logs = e->call->op == KN_OP_slogdet;
    store(e->call, 0, i, logs ? logarithm : product);
    if (logs) store(e->call, 1, i, sign);
}

kn_status kn__host_det(kn_op_call *call) {
    each e = each_of(call, det_one, lu_bytes(call->in[0]));
    return run_each(&e);
}

/* --- QR --- */

static void qr_one(kn__dense *d, const each *e, int64_t i, void *space) {
    int64_t m = e->rows, n = e->columns, k = m < n ? m : n;
    kn__dense_qr(d, e->call->out[0] ? result(e->call, 0, i, m * k) : NULL,
                 e->call->out[1] ? result(e->call, 1, i, k * n) : NULL,
                 matrix(e->call->in[0], i, m * n), m, n, space);
}

kn_status kn__host_qr(kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    each e = each_of(call, qr_one, 0);
    e.space_bytes = kn__dense_qr_bytes((kn_dtype)a->dtype, e.rows, e.columns);
    return run_each(&e);
}
