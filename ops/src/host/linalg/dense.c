#include "host/linalg/dense.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/slots.h"

static char *at(const kn__dense *d, const void *a, int64_t ld, int64_t row, int64_t column) {
    return (char *)(uintptr_t)a + (size_t)(row * ld + column) * d->bytes;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The larger half of n, in whole blocks. */
static int64_t half_of(int64_t n, int64_t block) {
    return kn__chunks(kn__chunks(n, 2), block) * block;
}

/* --- products --- */

/* Work space of one matrix of many: a strip of the triangular solver, then that of products. */
enum { STRIP = 128, STRIP_BYTES = KN_DENSE_BLOCK * STRIP * sizeof(double) };

static void *products_in(void *space) { return (char *)space + STRIP_BYTES; }

static void run_tiles(kn__dense *d, const kn__gemm *g) {
    int keep = d->call->n_work;
    kn_status status = kn__gemm_parallel(d->call, g, NULL);
    kn__work_end(d->call, keep);
    if (status < 0) d->status = status;
}

/* c (+)= op(a)·op(b) */
static void multiply(kn__dense *d, kn__gemm g) {
    g.dtype = d->dtype;
    if (g.m == 0 || g.n == 0) return;
    if (d->alone) {
        run_tiles(d, &g);
        return;
    }
    int status = kn__gemm_run(&g, products_in(d->gemm_space));
    if (status) d->status = kn__gemm_fail(status);
}

/* Shapes differ in which kernel they get: the largest space of any up to n. */
size_t kn__dense_gemm_bytes(kn_dtype dtype, int64_t n) {
    int64_t side = n < STRIP ? STRIP : n;
    kn__gemm g = {.dtype = dtype, .trans_b = true, .m = side, .n = side, .k = side};
    return STRIP_BYTES + kn__gemm_bytes(&g);
}

static void run(const kn__dense *d, int64_t n, kn__body_fn body, void *ctx) {
    if (d->alone) {
        kn__library_for(d->call->threads, n, body, ctx);
        return;
    }
    for (int64_t i = 0; i < n; i++) body(ctx, i);
}

/* --- Cholesky --- */

typedef struct cholesky_work {
    kn__dense *d;
    char *a, *upper, *negated; /* upper: a diagonal block transposed; negated: columns left of it */
    int64_t n;
} cholesky_work;

enum { CHOLESKY_BLOCK = 32, PANEL_ROWS = 64, UPDATE_COLUMNS = 128 };

size_t kn__dense_cholesky_bytes(kn_dtype dtype, int64_t n) {
    return kn_dtype_bytes(dtype) * (size_t)(CHOLESKY_BLOCK * CHOLESKY_BLOCK + n * n / 4);
}

static void transpose_block(const kn__dense *d, char *to, const char *from, int64_t ld, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            memcpy(at(d, to, n, j, i), at(d, from, ld, i, j), d->bytes);
}

typedef struct panel { /* rows below a diagonal block of n columns */
    const cholesky_work *w;
    char *rows;
    int64_t n_rows, n;
} panel;

static void solve_panel(void *ctx, int64_t i) {
    const panel *p = ctx;
    const kn__dense *d = p->w->d;
    int64_t first = i * PANEL_ROWS, n = least(p->n_rows - first, PANEL_ROWS);
    d->loops->solve_rows(at(d, p->rows, p->w->n, first, 0), p->w->n, n, p->w->upper, p->n, p->n);
}

/* The lower half of the `right` columns from `next` on -= the product of the k columns left of
 * them with themselves. */
static void update_columns(const cholesky_work *w, int64_t next, int64_t k, int64_t right) {
    kn__dense *d = w->d;
    int64_t n = w->n;
    for (int64_t i = next; i < n; i++)
        d->loops->negate(at(d, w->negated, k, i - next, 0), at(d, w->a, n, i, next - k), k);
    for (int64_t j = 0; j < right; j += UPDATE_COLUMNS)
        multiply(d, (kn__gemm){.accumulate = true,
                               .trans_b = true,
                               .m = n - next - j,
                               .n = least(UPDATE_COLUMNS, right - j),
                               .k = k,
                               .a = at(d, w->negated, k, j, 0),
                               .lda = k,
                               .b = at(d, w->a, n, next + j, next - k),
                               .ldb = n,
                               .c = at(d, w->a, n, next + j, next + j),
                               .ldc = n});
}

/* Columns first … first + count - 1, from row `first` on: the left half, by it the right half, then
 * that one. So products sum over as many columns as they can. */
static bool cholesky_columns(const cholesky_work *w, int64_t first, int64_t count) {
    const kn__dense *d = w->d;
    if (count > CHOLESKY_BLOCK) {
        int64_t half = half_of(count, CHOLESKY_BLOCK);
        if (!cholesky_columns(w, first, half)) return false;
        update_columns(w, first + half, half, count - half);
        return cholesky_columns(w, first + half, count - half);
    }
    char *corner = at(d, w->a, w->n, first, first);
    if (!d->loops->cholesky_block(corner, w->n, count)) return false;
    transpose_block(d, w->upper, corner, w->n, count);
    panel p = {w, at(d, corner, w->n, count, 0), w->n - first - count, count};
    run(d, kn__chunks(p.n_rows, PANEL_ROWS), solve_panel, &p);
    return true;
}

bool kn__dense_cholesky(kn__dense *d, void *a, int64_t n, void *space) {
    char *upper = space;
    cholesky_work w = {d, a, upper, at(d, upper, 1, CHOLESKY_BLOCK * CHOLESKY_BLOCK, 0), n};
    return n == 0 || cholesky_columns(&w, 0, n);
}

/* --- triangular solver: strips of columns are independent --- */

typedef struct strips {
    kn__dense *d;
    const kn__triangle *t;
    void *x;
    int64_t columns, ldx;
    kn__slots slots;
    _Atomic int status;
} strips;

typedef struct strip { /* n columns of x, and the block of it that is solved */
    const kn__dense *d;
    const kn__triangle *t;
    char *x, *space;
    int64_t ldx, n, block, size;
} strip;

/* x[row …] -= op(T)[row …, block]·x[block] for `rows` rows. */
static int update_strip(const strip *s, int64_t row, int64_t rows) {
    const kn__dense *d = s->d;
    const kn__triangle *t = s->t;
    if (rows == 0) return 0;
    for (int64_t i = 0; i < s->size; i++)
        d->loops->negate(at(d, s->space, s->n, i, 0), at(d, s->x, s->ldx, s->block + i, 0), s->n);
    kn__gemm g = {
        .dtype = d->dtype,
        .trans_a = t->trans,
        .accumulate = true,
        .m = rows,
        .n = s->n,
        .k = s->size,
        .a = t->trans ? at(d, t->t, t->ld, s->block, row) : at(d, t->t, t->ld, row, s->block),
        .lda = t->ld,
        .b = s->space,
        .ldb = s->n,
        .c = at(d, s->x, s->ldx, row, 0),
        .ldc = s->ldx};
    return kn__gemm_run(&g, products_in(s->space));
}

static int solve_strip(strip *s) {
    const kn__dense *d = s->d;
    const kn__triangle *t = s->t;
    int64_t row = t->trans ? 1 : t->ld, column = t->trans ? t->ld : 1;
    bool upper = t->upper != t->trans;
    int64_t blocks = kn__chunks(t->n, KN_DENSE_BLOCK);
    for (int64_t step = 0; step < blocks; step++) {
        s->block = (upper ? blocks - 1 - step : step) * KN_DENSE_BLOCK;
        s->size = least(KN_DENSE_BLOCK, t->n - s->block);
        int64_t next = s->block + s->size;
        d->loops->solve_columns(at(d, s->x, s->ldx, s->block, 0), s->ldx, s->n,
                                at(d, t->t, t->ld, s->block, s->block), row, column, s->size, upper,
                                t->unit);
        int status = update_strip(s, upper ? 0 : next, upper ? s->block : t->n - next);
        if (status) return status;
    }
    return 0;
}

static void solve_one(void *ctx, int64_t i) {
    strips *all = ctx;
    const kn__dense *d = all->d;
    void *slot = d->alone ? kn__slot_take(&all->slots) : d->gemm_space;
    strip s = {.d = d,
               .t = all->t,
               .x = at(d, all->x, all->ldx, 0, i * STRIP),
               .space = slot,
               .ldx = all->ldx,
               .n = least(STRIP, all->columns - i * STRIP)};
    int status = solve_strip(&s);
    if (d->alone) kn__slot_give(&all->slots, slot);
    if (status) atomic_store_explicit(&all->status, status, memory_order_relaxed);
}

void kn__dense_solve(kn__dense *d, const kn__triangle *t, void *x, int64_t columns, int64_t ldx) {
    strips s = {.d = d, .t = t, .x = x, .columns = columns, .ldx = ldx};
    int64_t n = kn__chunks(columns, STRIP);
    int keep = d->call->n_work;
    if (d->alone) {
        kn_status status =
            kn__slots_create(&s.slots, d->call, n, kn__dense_gemm_bytes(d->dtype, t->n));
        if (status < 0) {
            d->status = status;
            return;
        }
    }
    run(d, n, solve_one, &s);
    if (d->alone) kn__work_end(d->call, keep);
    int status = atomic_load_explicit(&s.status, memory_order_relaxed);
    if (status) d->status = kn__gemm_fail(status);
}

/* --- LU --- */

void kn__dense_swap(const kn__dense *d, void *x, int64_t columns, int64_t p, int64_t q) {
    size_t bytes = (size_t)columns * d->bytes;
    char *a = (char *)x + (size_t)p * bytes, *b = (char *)x + (size_t)q * bytes, room[512];
    for (size_t done = 0; p != q && done < bytes; done += sizeof room) {
        size_t n = bytes - done < sizeof room ? bytes - done : sizeof room;
        memcpy(room, a + done, n);
        memcpy(a + done, b + done, n);
        memcpy(b + done, room, n);
    }
}

typedef struct lu_work {
    kn__dense *d;
    char *a, *panel, *negated;
    int64_t n;
    int32_t *pivot;
} lu_work;

enum { LU_PANEL = 16 };

size_t kn__dense_lu_bytes(kn_dtype dtype, int64_t n) {
    return kn_dtype_bytes(dtype) * (size_t)(LU_PANEL * KN_PANEL_ROWS(n) + n * n / 4);
}

/* Columns first … first + count - 1, from row `first` on: the left half, by it the right half, then
 * that one. So products sum over as many columns as they can. */
static void lu_columns(const lu_work *w, int64_t first, int64_t count) {
    kn__dense *d = w->d;
    int64_t n = w->n;
    if (count <= LU_PANEL) {
        int32_t *pivot = w->pivot + first;
        d->loops->lu_panel(at(d, w->a, n, first, 0), n, n - first, first, count, w->panel, pivot);
        for (int64_t j = 0; j < count; j++) pivot[j] += (int32_t)first;
        return;
    }
    int64_t half = half_of(count, LU_PANEL), right = count - half;
    int64_t next = first + half, below = n - next;
    lu_columns(w, first, half);
    kn__triangle lower = {.t = at(d, w->a, n, first, first), .n = half, .ld = n, .unit = true};
    kn__dense_solve(d, &lower, at(d, w->a, n, first, next), right, n);
    for (int64_t i = 0; i < below; i++)
        d->loops->negate(at(d, w->negated, half, i, 0), at(d, w->a, n, next + i, first), half);
    multiply(d, (kn__gemm){.accumulate = true,
                           .m = below,
                           .n = right,
                           .k = half,
                           .a = w->negated,
                           .lda = half,
                           .b = at(d, w->a, n, first, next),
                           .ldb = n,
                           .c = at(d, w->a, n, next, next),
                           .ldc = n});
    lu_columns(w, next, right);
}

void kn__dense_lu(kn__dense *d, void *a, int64_t n, int32_t *pivot, void *space) {
    lu_work w = {d, a, space, at(d, space, LU_PANEL, KN_PANEL_ROWS(n), 0), n, pivot};
    lu_columns(&w, 0, n);
}

/* --- QR: vectors of the reflections are rows of v [k][m] --- */

typedef struct qr_space {
    char *v, *t, *tau, *diagonal; /* [k][m]; [block][block] for each block; k; k */
    char *w, *r;                  /* [block][n]; [m][n]: a, which becomes R */
} qr_space;

static qr_space qr_space_of(const kn__dense *d, void *space, int64_t m, int64_t n) {
    int64_t k = least(m, n);
    qr_space s = {.v = space};
    s.t = at(d, s.v, 1, k * m, 0);
    s.tau = at(d, s.t, 1, (k + KN_DENSE_BLOCK) * KN_DENSE_BLOCK, 0);
    s.diagonal = at(d, s.tau, 1, k, 0);
    s.w = at(d, s.diagonal, 1, k, 0);
    s.r = at(d, s.w, 1, KN_DENSE_BLOCK * n, 0);
    return s;
}

size_t kn__dense_qr_bytes(kn_dtype dtype, int64_t m, int64_t n) {
    int64_t k = least(m, n);
    return kn_dtype_bytes(dtype) * (size_t)(k * m + (k + KN_DENSE_BLOCK) * KN_DENSE_BLOCK + 2 * k +
                                            (KN_DENSE_BLOCK + m) * n);
}

/* c [m,n] (rows ldc apart) -= V·op(T)·Vᵀ·c, from row `first` on; V's `block` columns. */
static void reflect(kn__dense *d, const qr_space *s, int64_t m, int64_t first, int64_t block,
                    char *c, int64_t ldc, int64_t n, bool trans) {
    if (n == 0) return;
    char *v = at(d, s->v, m, first, first), *t = at(d, s->t, KN_DENSE_BLOCK, first, 0);
    kn__gemm down = {.m = block,
                     .n = n,
                     .k = m - first,
                     .a = v,
                     .lda = m,
                     .b = c,
                     .ldb = ldc,
                     .c = s->w,
                     .ldc = n};
    multiply(d, down);
    d->loops->reflect_apply(s->w, n, t, block, trans);
    kn__gemm up = {.trans_a = true,
                   .accumulate = true,
                   .m = m - first,
                   .n = n,
                   .k = block,
                   .a = v,
                   .lda = m,
                   .b = s->w,
                   .ldb = n,
                   .c = c,
                   .ldc = ldc};
    multiply(d, up);
}

/* Columns first … of r, from row `first` on, into v's rows, and those rows' factors. */
static void factor_panel(const kn__dense *d, const qr_space *s, int64_t m, int64_t n, int64_t first,
                         int64_t block) {
    char *r = s->r;
    for (int64_t j = 0; j < block; j++) {
        memset(at(d, s->v, m, first + j, 0), 0, (size_t)first * d->bytes);
        for (int64_t i = first; i < m; i++)
            memcpy(at(d, s->v, m, first + j, i), at(d, r, n, i, first + j), d->bytes);
    }
    char *tau = at(d, s->tau, 1, first, 0), *diagonal = at(d, s->diagonal, 1, first, 0);
    char *v = at(d, s->v, m, first, 0);
    d->loops->reflect_panel(v, m, m, first, block, diagonal, tau);
    for (int64_t j = 0; j < block; j++) { /* R's part of the columns back; zeros in v */
        for (int64_t i = 0; i < j; i++)
            memcpy(at(d, r, n, first + i, first + j), at(d, v, m, j, first + i), d->bytes);
        memset(at(d, v, m, j, first), 0, (size_t)j * d->bytes);
        memcpy(at(d, r, n, first + j, first + j), at(d, diagonal, 1, j, 0), d->bytes);
    }
    d->loops->reflect_factor(at(d, s->t, KN_DENSE_BLOCK, first, 0), at(d, v, 1, first, 0), m,
                             m - first, block, tau);
}

static void set_one(const kn__dense *d, void *to) {
    double one = 1;
    float one_f = 1;
    memcpy(to, d->dtype == KN_F64 ? (const void *)&one : (const void *)&one_f, d->bytes);
}

/* q = the reflections applied to the first k columns of the identity, the last ones first. */
static void make_q(kn__dense *d, const qr_space *s, char *q, int64_t m, int64_t k) {
    memset(q, 0, (size_t)(m * k) * d->bytes);
    for (int64_t i = 0; i < k; i++) set_one(d, at(d, q, k, i, i));
    for (int64_t first = (k - 1) / KN_DENSE_BLOCK * KN_DENSE_BLOCK; first >= 0;
         first -= KN_DENSE_BLOCK)
        reflect(d, s, m, first, least(KN_DENSE_BLOCK, k - first), at(d, q, k, first, first), k,
                k - first, false);
}

void kn__dense_qr(kn__dense *d, void *q, void *r, const void *a, int64_t m, int64_t n,
                  void *space) {
    int64_t k = least(m, n);
    qr_space s = qr_space_of(d, space, m, n);
    memcpy(s.r, a, (size_t)(m * n) * d->bytes);
    for (int64_t first = 0; first < k; first += KN_DENSE_BLOCK) {
        int64_t block = least(KN_DENSE_BLOCK, k - first), next = first + block;
        factor_panel(d, &s, m, n, first, block);
        reflect(d, &s, m, first, block, at(d, s.r, n, first, next), n, n - next, true);
    }
    if (r) {
        for (int64_t i = 0; i < k; i++) {
            memset(at(d, r, n, i, 0), 0, (size_t)i * d->bytes);
            memcpy(at(d, r, n, i, i), at(d, s.r, n, i, i), (size_t)(n - i) * d->bytes);
        }
    }
    if (q) make_q(d, &s, q, m, k);
}
