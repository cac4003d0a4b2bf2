/* Matrix products: oneDNN's sgemm for f32, own packed loops for f64 and for the shapes where they
 * win. Each library call runs on one thread; work is cut into tiles by shape, so that results don't
 * depend on the number of threads. */
#include "gemm.h"

#include <dnnl.h>
#include <string.h>

#include "../libgomp.h"
#include "chunks.h"
#include "gemm_packed.h"
#include "slots.h"

/* --- one product on one thread --- */

/* Measured on Cascade Lake with oneDNN 2.6.3: its kernels for a transposed b and few columns reach
 * half the speed of ours; everywhere else they lead. */
static bool is_packed(const kn_gemm *g) {
    if (g->dtype == KN_F64) return true;
    if (!g->trans_b || g->m == 1) return false;
    if (g->trans_a) return g->n > 48;
    return g->n < 128 && g->n > 12 && (g->n > 48 || g->m <= 64);
}

const char *kn__gemm_label(const kn_gemm *gemm) {
    return is_packed(gemm) ? "gemm_packed" : "dnnl_sgemm";
}

/* Enough for any smaller shape too, whichever way that goes. */
size_t kn__gemm_bytes(const kn_gemm *g) {
    bool may_pack = g->dtype == KN_F64 || g->trans_b || g->k == 0;
    return may_pack ? kn__gemm_packed_bytes(g->dtype, g->m, g->n, g->k) : 0;
}

static void zero_rows(const kn_gemm *g) {
    size_t bytes = kn_dtype_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++)
        memset((char *)g->c + (size_t)(i * g->ldc) * bytes, 0, (size_t)g->n * bytes);
}

int kn__gemm_run(const kn_gemm *g, void *workspace) {
    if (!is_packed(g) && g->k > 0)
        return (int)dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k,
                               1.0f, g->a, g->lda, g->b, g->ldb, g->accumulate ? 1.0f : 0.0f, g->c,
                               g->ldc);
    if (!g->accumulate) zero_rows(g);
    kn_matrix a = {g->a, g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1};
    kn_matrix b = {g->b, g->trans_b ? 1 : g->ldb, g->trans_b ? g->ldb : 1};
    kn__gemm_packed(g->dtype, g->c, g->ldc, a, b, g->m, g->n, g->k, workspace);
    return 0;
}

kn_status kn__gemm_fail(int library_status) {
    return KN_FAIL(library_status == dnnl_out_of_memory ? KN_ERR_OOM : KN_ERR_INTERNAL,
                   "dnnl_sgemm returned %d", library_status);
}

void kn__library_for(int threads, int64_t n, kn__body_fn body, void *ctx) {
    int before = omp_get_max_threads();
    omp_set_num_threads(1); /* this thread's setting; the loop names its own number */
    kn__parallel_for(threads, n, body, ctx);
    omp_set_num_threads(before);
}

/* --- split over threads --- */

typedef struct gemm_tiles {
    const kn_gemm *gemm;
    const char *bias;            /* NULL: none */
    int64_t rows, columns, ways; /* tiles down c, across it, and along k */
    char *partial;               /* ways > 1: [ways][m,n] */
    kn_slots slots;
    _Atomic int status;
} gemm_tiles;

/* Tile i's product; its partial sums go to `partial` when k is split. */
static kn_gemm tile_of(const gemm_tiles *tiles, int64_t i) {
    kn_gemm g = *tiles->gemm;
    size_t bytes = kn_dtype_bytes(g.dtype);
    int64_t way = i % tiles->ways, column = i / tiles->ways % tiles->columns;
    int64_t row = i / tiles->ways / tiles->columns;
    int64_t m = kn__part(g.m, tiles->rows, row), n = kn__part(g.n, tiles->columns, column);
    int64_t k = kn__part(g.k, tiles->ways, way);
    g.a = (const char *)g.a + (size_t)(g.trans_a ? k * g.lda + m : m * g.lda + k) * bytes;
    g.b = (const char *)g.b + (size_t)(g.trans_b ? n * g.ldb + k : k * g.ldb + n) * bytes;
    if (tiles->partial) {
        g.c = tiles->partial + (size_t)(way * g.m * g.n) * bytes;
        g.ldc = g.n;
        g.accumulate = false;
    }
    g.c = (char *)g.c + (size_t)(m * g.ldc + n) * bytes;
    g.m = kn__part(g.m, tiles->rows, row + 1) - m;
    g.n = kn__part(g.n, tiles->columns, column + 1) - n;
    g.k = kn__part(g.k, tiles->ways, way + 1) - k;
    return g;
}

static void fill_bias(kn_gemm *g, const char *bias) {
    size_t bytes = kn_dtype_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++)
        memcpy((char *)g->c + (size_t)(i * g->ldc) * bytes, bias, (size_t)g->n * bytes);
    g->accumulate = true;
}

static void gemm_tile(void *ctx, int64_t i) {
    gemm_tiles *tiles = ctx;
    kn_gemm g = tile_of(tiles, i);
    if (tiles->bias) {
        int64_t column = i / tiles->ways % tiles->columns;
        fill_bias(&g, tiles->bias + (size_t)kn__part(tiles->gemm->n, tiles->columns, column) *
                                        kn_dtype_bytes(g.dtype));
    }
    void *slot = kn__slot_take(&tiles->slots);
    int status = kn__gemm_run(&g, slot);
    kn__slot_give(&tiles->slots, slot);
    if (status) atomic_store_explicit(&tiles->status, status, memory_order_relaxed);
}

enum { MOST_TILES = 64, TILE_OPS = 16000000, SPLIT_OPS = 2000000, LEAST_SIDE = 16 };

/* How many tiles: by shape alone. Long sums into a small result are cut along k; else the result is
 * cut so that the tiles' edges are as short as can be. */
static void tiles_choose(gemm_tiles *tiles, const kn_gemm *g) {
    double ops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    int64_t wanted = ops < SPLIT_OPS ? 1 : (int64_t)(ops / TILE_OPS);
    wanted = ops < SPLIT_OPS ? 1 : (wanted < 2 ? 2 : (wanted > MOST_TILES ? MOST_TILES : wanted));
    tiles->rows = tiles->columns = tiles->ways = 1;
    if (g->m * g->n <= 4096 && g->k >= 64 * (g->m + g->n)) {
        int64_t ways = g->k / 4096;
        tiles->ways = ways < 1 ? 1 : (ways > 16 ? 16 : ways);
        return;
    }
    while (tiles->rows * tiles->columns < wanted) {
        int64_t m = g->m / (tiles->rows + 1), n = g->n / (tiles->columns + 1);
        if (m < LEAST_SIDE && n < LEAST_SIDE) return;
        if (g->m / tiles->rows >= g->n / tiles->columns && m >= LEAST_SIDE)
            tiles->rows++;
        else if (n >= LEAST_SIDE)
            tiles->columns++;
        else
            tiles->rows++;
    }
}

/* c (+)= bias + the partial products, in order. */
static void sum_partial(const gemm_tiles *tiles) {
    const kn_gemm *g = tiles->gemm;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            const char *at = tiles->partial;
            double sum = 0;
            for (int64_t way = 0; way < tiles->ways; way++) {
                int64_t index = (way * g->m + i) * g->n + j;
                sum += g->dtype == KN_F64 ? ((const double *)(const void *)at)[index]
                                          : (double)((const float *)(const void *)at)[index];
            }
            if (g->dtype == KN_F64) {
                double *c = (double *)g->c + i * g->ldc + j;
                *c = (g->accumulate ? *c : 0) + sum;
            } else {
                float *c = (float *)g->c + i * g->ldc + j;
                *c = (float)((g->accumulate ? (double)*c : 0) + sum);
            }
        }
}

static kn_status tiles_run(kn_op_call *call, gemm_tiles *tiles) {
    int64_t n = tiles->rows * tiles->columns * tiles->ways;
    kn_gemm largest = tile_of(tiles, 0); /* sizes differ by one at most, the first is no smaller */
    KN_TRY(kn__slots_create(&tiles->slots, call, n, kn__gemm_bytes(&largest)));
    kn_scope scope = kn_scope_begin_static(kn__gemm_label(tiles->gemm));
    kn__library_for(tiles->slots.n, n, gemm_tile, tiles);
    kn_scope_end(&scope);
    int status = atomic_load_explicit(&tiles->status, memory_order_relaxed);
    return status ? kn__gemm_fail(status) : KN_OK;
}

kn_status kn__gemm_parallel(kn_op_call *call, const kn_gemm *gemm, const void *bias) {
    gemm_tiles tiles = {.gemm = gemm, .bias = bias};
    tiles_choose(&tiles, gemm);
    if (tiles.ways == 1 || bias) {
        tiles.ways = 1;
        return tiles_run(call, &tiles);
    }
    void *partial = NULL;
    size_t bytes = kn_dtype_bytes(gemm->dtype) * (size_t)(tiles.ways * gemm->m * gemm->n);
    KN_TRY(kn__work(&partial, call, bytes));
    tiles.partial = partial;
    kn_status status = tiles_run(call, &tiles);
    if (status == KN_OK) sum_partial(&tiles);
    return status;
}

/* --- the ops --- */

/* One product for each of the leading dimensions. */
kn_status kn__host_matmul(kn_op_call *call) {
    const kn_attr_matmul *attr = call->attr;
    const kn_tensor *a = call->in[0], *b = call->in[1], *c = call->out[0];
    int r = a->n_dims - 2; /* rows; columns follow */
    kn_gemm gemm = {.dtype = (kn_dtype)a->dtype,
                    .trans_a = attr->trans_a != 0,
                    .trans_b = attr->trans_b != 0,
                    .accumulate = (call->accumulate & 1) != 0,
                    .m = c->dim[r],
                    .n = c->dim[r + 1],
                    .k = a->dim[r + !attr->trans_a],
                    .a = a->data,
                    .b = b->data,
                    .c = c->data,
                    .lda = a->dim[r + 1],
                    .ldb = b->dim[r + 1]};
    gemm.ldc = gemm.n;
    size_t bytes = kn_dtype_bytes(gemm.dtype);
    for (int64_t left = c->n / (gemm.m * gemm.n); left; left--) {
        KN_TRY(kn__gemm_parallel(call, &gemm, NULL));
        gemm.a = (const char *)gemm.a + (size_t)(gemm.m * gemm.k) * bytes;
        gemm.b = (const char *)gemm.b + (size_t)(gemm.k * gemm.n) * bytes;
        gemm.c = (char *)gemm.c + (size_t)(gemm.m * gemm.n) * bytes;
        kn__work_end(call, 0);
    }
    return KN_OK;
}

/* y [rows,O] = x [rows,I] · wᵀ + b */
kn_status kn__host_linear(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2];
    int64_t inputs = w->dim[1], outputs = w->dim[0];
    kn_gemm gemm = {.dtype = (kn_dtype)x->dtype,
                    .trans_b = true,
                    .accumulate = (call->accumulate & 1) != 0,
                    .m = call->out[0]->n / outputs,
                    .n = outputs,
                    .k = inputs,
                    .a = x->data,
                    .b = w->data,
                    .c = call->out[0]->data,
                    .lda = inputs,
                    .ldb = inputs,
                    .ldc = outputs};
    return kn__gemm_parallel(call, &gemm, b == KN_NONE ? NULL : b->data);
}
