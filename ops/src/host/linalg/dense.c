#include "host/linalg/dense.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/slots.h"

static char *at(const kn_dense *d, const void *a, int64_t ld, int64_t row, int64_t column) {
    return (char *)(uintptr_t)a + (size_t)(row * ld + column) * d->bytes;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- products --- */

/* Work space of one matrix of many: a strip of the triangular solver, then that of products. */
enum { STRIP = 128, STRIP_BYTES = KN_DENSE_BLOCK * STRIP * sizeof(double) };

static void *products_in(void *space) { return (char *)space + STRIP_BYTES; }

static void run_tiles(kn_dense *d, const kn_gemm *g) {
    int keep = d->call->n_work;
    kn_status status = kn__gemm_parallel(d->call, g, NULL);
    kn__work_end(d->call, keep);
    if (status < 0) d->status = status;
}

/* c (+)= op(a)·op(b) */
static void multiply(kn_dense *d, kn_gemm g) {
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
    kn_gemm g = {.dtype = dtype, .trans_b = true, .m = side, .n = side, .k = side};
    return STRIP_BYTES + kn__gemm_bytes(&g);
}

static void run(const kn_dense *d, int64_t n, kn__body_fn body, void *ctx) {
    if (d->alone) {
        kn__library_for(d->call->threads, n, body, ctx);
        return;
    }
    for (int64_t i = 0; i < n; i++) body(ctx, i);
}

/* --- Cholesky --- */

size_t kn__dense_panel_bytes(kn_dtype dtype, int64_t n) {
    return kn_dtype_bytes(dtype) * (size_t)((n + KN_DENSE_BLOCK) * KN_DENSE_BLOCK);
}

enum { PANEL_ROWS = 64 };

typedef struct panel { /* rows below a diagonal block */
    const kn_dense *d;
    char *rows, *negated, *upper; /* in the matrix; copies; the block transposed */
    int64_t ld, n_rows, n;
} panel;

static void solve_panel(void *ctx, int64_t i) {
    const panel *p = ctx;
    const kn_dense *d = p->d;
    int64_t first = i * PANEL_ROWS, n = least(p->n_rows - first, PANEL_ROWS);
    char *rows = at(d, p->rows, p->ld, first, 0);
    d->loops->solve_rows(rows, p->ld, n, p->upper, p->n, p->n);
    for (int64_t r = 0; r < n; r++)
        d->loops->negate(at(d, p->negated, p->n, first + r, 0), at(d, rows, p->ld, r, 0), p->n);
}

static void transpose_block(const kn_dense *d, char *to, const char *from, int64_t ld, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            memcpy(at(d, to, n, j, i), at(d, from, ld, i, j), d->bytes);
}

/* The lower half of the rest -= panel·panelᵀ, in columns of blocks. */
static void update_lower(kn_dense *d, const panel *p, char *corner) {
    int64_t width = p->n_rows >= 1024 ? 256 : 128;
    for (int64_t j = 0; j < p->n_rows; j += width) {
        int64_t columns = least(width, p->n_rows - j);
        multiply(d, (kn_gemm){.accumulate = true,
                              .trans_b = true,
                              .m = p->n_rows - j,
                              .n = columns,
                              .k = p->n,
                              .a = at(d, p->negated, p->n, j, 0),
                              .lda = p->n,
                              .b = at(d, p->rows, p->ld, j, 0),
                              .ldb = p->ld,
                              .c = at(d, corner, p->ld, j, j),
                              .ldc = p->ld});
    }
}

bool kn__dense_cholesky(kn_dense *d, void *a, int64_t n, void *space) {
    char *upper = space, *negated = at(d, space, KN_DENSE_BLOCK, KN_DENSE_BLOCK, 0);
    for (int64_t k = 0; k < n; k += KN_DENSE_BLOCK) {
        int64_t block = least(KN_DENSE_BLOCK, n - k), next = k + block;
        char *corner = at(d, a, n, k, k);
        if (!d->loops->cholesky_block(corner, n, block)) return false;
        if (next == n) break;
        transpose_block(d, upper, corner, n, block);
        panel p = {d, at(d, a, n, next, k), negated, upper, n, n - next, block};
        run(d, kn__chunks(p.n_rows, PANEL_ROWS), solve_panel, &p);
        update_lower(d, &p, at(d, a, n, next, next));
    }
    return true;
}

/* --- triangular solver: strips of columns are independent --- */

typedef struct strips {
    kn_dense *d;
    const kn_triangular *t;
    void *x;
    int64_t columns;
    kn_slots slots;
    _Atomic int status;
} strips;

typedef struct strip { /* n columns of x, and the block of it that is solved */
    const kn_dense *d;
    const kn_triangular *t;
    char *x, *space;
    int64_t ldx, n, block, size;
} strip;

/* x[row …] -= op(T)[row …, block]·x[block] for `rows` rows. */
static int update_strip(const strip *s, int64_t row, int64_t rows) {
    const kn_dense *d = s->d;
    const kn_triangular *t = s->t;
    if (rows == 0) return 0;
    for (int64_t i = 0; i < s->size; i++)
        d->loops->negate(at(d, s->space, s->n, i, 0), at(d, s->x, s->ldx, s->block + i, 0), s->n);
    kn_gemm g = {
        .dtype = d->dtype,
        .trans_a = t->trans,
        .accumulate = true,
        .m = rows,
        .n = s->n,
        .k = s->size,
        .a = t->trans ? at(d, t->t, t->n, s->block, row) : at(d, t->t, t->n, row, s->block),
        .lda = t->n,
        .b = s->space,
        .ldb = s->n,
        .c = at(d, s->x, s->ldx, row, 0),
        .ldc = s->ldx};
    return kn__gemm_run(&g, products_in(s->space));
}

static int solve_strip(strip *s) {
    const kn_dense *d = s->d;
    const kn_triangular *t = s->t;
    int64_t row = t->trans ? 1 : t->n, column = t->trans ? t->n : 1;
    bool upper = t->upper != t->trans;
    int64_t blocks = kn__chunks(t->n, KN_DENSE_BLOCK);
    for (int64_t step = 0; step < blocks; step++) {
        s->block = (upper ? blocks - 1 - step : step) * KN_DENSE_BLOCK;
        s->size = least(KN_DENSE_BLOCK, t->n - s->block);
        int64_t next = s->block + s->size;
        d->loops->solve_columns(at(d, s->x, s->ldx, s->block, 0), s->ldx, s->n,
                                at(d, t->t, t->n, s->block, s->block), row, column, s->size, upper,
                                t->unit);
        int status = update_strip(s, upper ? 0 : next, upper ? s->block : t->n - next);
        if (status) return status;
    }
    return 0;
}

static void solve_one(void *ctx, int64_t i) {
    strips *all = ctx;
    const kn_dense *d = all->d;
    void *slot = d->alone ? kn__slot_take(&all->slots) : d->gemm_space;
    strip s = {.d = d,
               .t = all->t,
               .x = at(d, all->x, all->columns, 0, i * STRIP),
               .space = slot,
               .ldx = all->columns,
               .n = least(STRIP, all->columns - i * STRIP)};
    int status = solve_strip(&s);
    if (d->alone) kn__slot_give(&all->slots, slot);
    if (status) atomic_store_explicit(&all->status, status, memory_order_relaxed);
}

void kn__dense_solve(kn_dense *d, const kn_triangular *t, void *x, int64_t columns) {
    strips s = {.d = d, .t = t, .x = x, .columns = columns};
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

void kn__dense_swap(const kn_dense *d, void *x, int64_t columns, int64_t p, int64_t q) {
    size_t bytes = (size_t)columns * d->bytes;
    char *a = (char *)x + (size_t)p * bytes, *b = (char *)x + (size_t)q * bytes, room[512];
    for (size_t done = 0; p != q && done < bytes; done += sizeof room) {
        size_t n = bytes - done < sizeof room ? bytes - done : sizeof room;
        memcpy(room, a + done, n);
        memcpy(a + done, b + done, n);
        memcpy(b + done, room, n);
    }
}

void kn__dense_lu(kn_dense *d, void *a, int64_t n, int64_t *pivot, void *space) {
    enum { PANEL = KN_DENSE_BLOCK / 2 };
    char *negated = at(d, space, PANEL, KN_PANEL_ROWS(n), 0);
    for (int64_t k = 0; k < n; k += PANEL) {
        int64_t block = least(PANEL, n - k), next = k + block, left = n - next;
        d->loops->lu_panel(at(d, a, n, k, 0), n, n - k, k, block, space, pivot + k);
        for (int64_t j = k; j < next; j++) pivot[j] += k;
        if (left == 0) break;
        char *right = at(d, a, n, k, next);
        d->loops->solve_columns(right, n, left, at(d, a, n, k, k), n, 1, block, false, true);
        for (int64_t i = 0; i < left; i++)
            d->loops->negate(at(d, negated, block, i, 0), at(d, a, n, next + i, k), block);
        multiply(d, (kn_gemm){.accumulate = true,
                              .m = left,
                              .n = left,
                              .k = block,
                              .a = negated,
                              .lda = block,
                              .b = right,
                              .ldb = n,
                              .c = at(d, a, n, next, next),
                              .ldc = n});
    }
}

/* --- QR: vectors of the reflections are rows of v [k][m] --- */

typedef struct qr_space {
    char *v, *t, *tau, *diagonal; /* [k][m]; [block][block] for each block; k; k */
    char *w, *r;                  /* [block][n]; [m][n]: a, which becomes R */
} qr_space;

static qr_space qr_space_of(const kn_dense *d, void *space, int64_t m, int64_t n) {
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
static void reflect(kn_dense *d, const qr_space *s, int64_t m, int64_t first, int64_t block,
                    char *c, int64_t ldc, int64_t n, bool trans) {
    if (n == 0) return;
    char *v = at(d, s->v, m, first, first), *t = at(d, s->t, KN_DENSE_BLOCK, first, 0);
    kn_gemm down = {.m = block,
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
    kn_gemm up = {.trans_a = true,
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
static void factor_panel(const kn_dense *d, const qr_space *s, int64_t m, int64_t n, int64_t first,
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

static void set_one(const kn_dense *d, void *to) {
    double one = 1;
    float one_f = 1;
    memcpy(to, d->dtype == KN_F64 ? (const void *)&one : (const void *)&one_f, d->bytes);
}

/* q = the reflections applied to the first k columns of the identity, the last ones first. */
static void make_q(kn_dense *d, const qr_space *s, char *q, int64_t m, int64_t k) {
    memset(q, 0, (size_t)(m * k) * d->bytes);
    for (int64_t i = 0; i < k; i++) set_one(d, at(d, q, k, i, i));
    for (int64_t first = (k - 1) / KN_DENSE_BLOCK * KN_DENSE_BLOCK; first >= 0;
         first -= KN_DENSE_BLOCK)
        reflect(d, s, m, first, least(KN_DENSE_BLOCK, k - first), at(d, q, k, first, first), k,
                k - first, false);
}

void kn__dense_qr(kn_dense *d, void *q, void *r, const void *a, int64_t m, int64_t n, void *space) {
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
