/* Matrix products: oneDNN's sgemm for f32, own packed loops for f64 and for the shapes where they
 * win. Each library call runs on one thread; work is cut into tiles by shape, so that results don't
 * depend on the number of threads. */
#include "host/product/gemm.h"

#include <dnnl.h>
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "host/pointwise/finish.h"
#include "host/pointwise/rows.h"
#include "host/product/gemm_bf16.h"
#include "host/product/gemm_packed.h"
#include "libgomp.h"

/* --- one product on one thread --- */

/* The library's kernels for AVX2 read b in place: where its rows begin at multiples of 4096 bytes,
 * they meet in the cache. Measured on an EPYC (AVX2), GFLOP/s of ours / the library's: 1024 x 1024
 * x 1024 104-122 / 73-79; 128 x 1024 x 1024 115-139 / 78-85; rows of 3072 120-159 / 63-80; of 1000
 * 104-129 / 160-179. */
static bool rows_meet(const kn__gemm *g) {
    return g->dtype == KN_F32 && !g->trans_b && g->m > 1 && g->n >= 64 && g->ldb % 1024 == 0 &&
           kn__loops(KN_F32) != kn__loops_isa(KN_F32, 4);
}

/* A transposed b of few columns, GFLOP/s of ours / the library's with AVX-512 (Zen 4,
 * oneDNN 2.6.3): 100 x 64 x 784 104 / 89, 100 x 10 x 784 60 / 43, 16 x 64 x 512 in a quarter of its
 * time; with AVX2 equal. Not where rows of a meet in the cache (256 x 10 x 1024 in 1.25 times its
 * time), and not for fewer rows, which the library multiplies without packing. */
static bool is_in_place(const kn__gemm *g) {
    if (g->dtype == KN_BF16 || g->trans_a || g->m < 16 || g->n < 2 || g->n >= 128) return false;
    return g->dtype == KN_F64 || (g->trans_b && (g->n > 16 || g->lda % 1024 != 0));
}

/* Of a few columns and steps: a call of the library takes longer than the product. Measured on Zen
 * 5: 4 ns for 4 x 4 x 4, the library 200; 100000 x 3 x 3 in a quarter of its time. */
static bool is_narrow(const kn__gemm *g) {
    return g->dtype != KN_BF16 && g->k > 0 && g->k <= KN_NARROW && g->n > 0 && g->n <= KN_NARROW;
}

/* With a vector: packing the matrix takes three times as long as the product, which reads it once.
 * The loop along rows takes a whole vector, the loop that adds rows a whole row of c. */
static bool is_gemv(const kn__gemm *g) {
    if (g->dtype != KN_F64) return false;
    if (g->m == 1) return !g->trans_b || !g->trans_a || g->lda == 1;
    return g->n == 1 && (g->trans_a ? g->ldc == 1 : g->trans_b || g->ldb == 1);
}

/* Who multiplies: our loops, else the library. */
static bool is_packed(const kn__gemm *g) {
    if (g->dtype == KN_BF16) return false;
    if (g->dtype == KN_F64 || rows_meet(g) || is_in_place(g)) return true;
    return g->trans_b && g->trans_a && g->m > 1 && g->n > 48;
}

/* Of two vectors: one product an element, which no library makes as fast as the memory goes. */
static bool is_outer(const kn__gemm *g) {
    return g->dtype != KN_BF16 && g->k == 1 && !g->accumulate && (!g->trans_b || g->ldb == 1);
}

const char *kn__gemm_label(const kn__gemm *gemm) {
    if (gemm->dtype == KN_BF16) return "dnnl_matmul";
    if (is_narrow(gemm)) return "gemm_narrow";
    if (is_outer(gemm)) return "outer";
    if (is_gemv(gemm)) return "gemv";
    return is_packed(gemm) ? "gemm_packed" : "dnnl_sgemm";
}

/* What the product of this very shape needs, also when it becomes one that adds to c. */
static size_t bytes_of(const kn__gemm *g) {
    if (g->dtype == KN_BF16) return kn__gemm_bf16_bytes(g);
    bool packs = is_packed(g) && !is_in_place(g) && !is_narrow(g) && !is_gemv(g);
    return packs ? kn__gemm_packed_bytes(g->dtype, g->m, g->n, g->k) : 0;
}

/* Enough for any smaller shape too, whichever way that goes. */
size_t kn__gemm_bytes(const kn__gemm *g) {
    bool may_pack = g->dtype == KN_F64 || g->trans_b || g->k == 0 || rows_meet(g);
    return may_pack ? kn__gemm_packed_bytes(g->dtype, g->m, g->n, g->k) : 0;
}

static void zero_rows(const kn__gemm *g) {
    size_t bytes = kn_dtype_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++)
        memset((char *)g->c + (size_t)(i * g->ldc) * bytes, 0, (size_t)g->n * bytes);
}

/* a·b + 0, as a sum of one product that begins with 0. */
static void outer(const kn__gemm *g) {
    kn__row_loop affine = kn__row_loops_of(g->dtype, KN_OP_affine)->f;
    size_t bytes = kn_dtype_bytes(g->dtype);
    int64_t step = g->trans_a ? 1 : g->lda;
    for (int64_t i = 0; i < g->m; i++) {
        const char *a = (const char *)g->a + (size_t)(i * step) * bytes;
        affine((char *)g->c + (size_t)(i * g->ldc) * bytes, &g->b, g->n, kn__as_double(a, g->dtype),
               0, false);
    }
}

static kn__narrow narrow_of(const kn__gemm *g) {
    return (kn__narrow){.c = g->c,
                        .a = g->a,
                        .b = g->b,
                        .m = g->m,
                        .n = g->n,
                        .k = g->k,
                        .ldc = g->ldc,
                        .a_row = g->trans_a ? 1 : g->lda,
                        .a_step = g->trans_a ? g->lda : 1,
                        .b_step = g->trans_b ? 1 : g->ldb,
                        .b_column = g->trans_b ? g->ldb : 1,
                        .accumulate = g->accumulate,
                        .count = 1};
}

/* c += the product with a vector. */
static void gemv(const kn__gemm *g) {
    const kn__loop_table *loops = kn__loops(g->dtype);
    if (g->m == 1 && g->trans_b) {
        loops->gemv_rows(g->c, 1, g->b, g->ldb, g->a, g->n, g->k);
    } else if (g->m == 1) {
        loops->gemv_columns(g->c, g->b, g->ldb, g->a, g->trans_a ? g->lda : 1, g->k, g->n);
    } else if (g->trans_a) {
        loops->gemv_columns(g->c, g->a, g->lda, g->b, g->trans_b ? 1 : g->ldb, g->k, g->m);
    } else {
        loops->gemv_rows(g->c, g->ldc, g->a, g->lda, g->b, g->m, g->k);
    }
}

int kn__gemm_run(const kn__gemm *g, void *workspace) {
    if (g->dtype == KN_BF16) return kn__gemm_bf16_run(g, workspace);
    if (is_narrow(g)) {
        const kn__narrow p = narrow_of(g);
        kn__loops(g->dtype)->gemm_narrow(&p);
        return 0;
    }
    if (is_outer(g)) {
        outer(g);
        return 0;
    }
    if (!is_packed(g) && g->k > 0)
        return (int)dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k,
                               1.0f, g->a, g->lda, g->b, g->ldb, g->accumulate ? 1.0f : 0.0f, g->c,
                               g->ldc);
    if (!g->accumulate) zero_rows(g);
    kn__matrix a = {g->a, g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1};
    kn__matrix b = {g->b, g->trans_b ? 1 : g->ldb, g->trans_b ? g->ldb : 1};
    if (is_gemv(g))
        gemv(g);
    else if (is_in_place(g))
        kn__gemm_in_place(g->dtype, g->c, g->ldc, a, b, g->m, g->n, g->k);
    else
        kn__gemm_packed(g->dtype, g->c, g->ldc, a, b, g->m, g->n, g->k, workspace);
    return 0;
}

kn_status kn__gemm_fail(int library_status) {
    return KN_FAIL(library_status == dnnl_out_of_memory ? KN_ERR_OOM : KN_ERR_INTERNAL,
                   "oneDNN's product returned %d", library_status);
}

void kn__library_for(int threads, int64_t n, kn__body_fn body, void *ctx) {
    int before = omp_get_max_threads();
    omp_set_num_threads(1); /* this thread's setting; the loop names its own number */
    kn__parallel_for(threads, n, body, ctx);
    omp_set_num_threads(before);
}

/* --- split over threads --- */

/* A tile packs its own parts of both factors: smaller ones spend more time on that, larger ones
 * leave threads without work. 32 MFLOP are 0.3 ms. */
enum {
    MOST_TILES = 64,
    PACKED_TILES = 16,
    TILE_OPS = 32000000,
    SPLIT_OPS = 2000000,
    LEAST_SIDE = 16,
    LEAST_SHARE = 32,
    VECTOR = 16
};

typedef struct gemm_tiles {
    const kn__gemm *gemm;
    const char *bias;            /* NULL: none */
    int64_t rows, columns, ways; /* tiles down c, across it, and along k */
    char *partial;               /* ways > 1: [ways][m,n] */
    char *panels;                /* b's columns, copied for each column of tiles; NULL: in place */
    kn__slots slots;
    _Atomic int status;
} gemm_tiles;

/* Where piece i of n elements begins: at whole vectors, where pieces have several. Measured on an
 * EPYC (Zen 4), geometric mean of 36 products from 0.1 to 4.3 GFLOP: 7 % faster than pieces of
 * equal size. */
static int64_t edge_of(int64_t n, int64_t pieces, int64_t i) {
    int64_t vectors = n / VECTOR;
    if (i == pieces || vectors < 2 * pieces) return kn__part(n, pieces, i);
    return kn__part(vectors, pieces, i) * VECTOR;
}

static int64_t panel_ld(const gemm_tiles *tiles, int64_t column) {
    return edge_of(tiles->gemm->n, tiles->columns, column + 1) -
           edge_of(tiles->gemm->n, tiles->columns, column) + VECTOR;
}

static float *panel_of(const gemm_tiles *tiles, int64_t column) {
    int64_t before = edge_of(tiles->gemm->n, tiles->columns, column) + column * VECTOR;
    return (float *)tiles->panels + before * tiles->gemm->k;
}

/* Tile i's product; its partial sums go to `partial` when k is split. */
static kn__gemm tile_of(const gemm_tiles *tiles, int64_t i) {
    kn__gemm g = *tiles->gemm;
    size_t bytes = kn_dtype_bytes(g.dtype);
    int64_t way = i % tiles->ways, column = i / tiles->ways % tiles->columns;
    int64_t row = i / tiles->ways / tiles->columns;
    int64_t m = edge_of(g.m, tiles->rows, row), n = edge_of(g.n, tiles->columns, column);
    int64_t k = kn__part(g.k, tiles->ways, way);
    g.a = (const char *)g.a + (size_t)(g.trans_a ? k * g.lda + m : m * g.lda + k) * bytes;
    g.b = (const char *)g.b + (size_t)(g.trans_b ? n * g.ldb + k : k * g.ldb + n) * bytes;
    if (tiles->panels) {
        g.b = panel_of(tiles, column);
        g.ldb = panel_ld(tiles, column);
    }
    if (tiles->partial) {
        g.c = tiles->partial + (size_t)(way * g.m * g.n) * bytes;
        g.ldc = g.n;
        g.accumulate = false;
    }
    g.c = (char *)g.c + (size_t)(m * g.ldc + n) * bytes;
    if (g.residual) g.residual = (const char *)g.residual + (size_t)(m * g.ldc + n) * bytes;
    g.m = edge_of(g.m, tiles->rows, row + 1) - m;
    g.n = edge_of(g.n, tiles->columns, column + 1) - n;
    g.k = kn__part(g.k, tiles->ways, way + 1) - k;
    return g;
}

static void fill_bias(kn__gemm *g, const char *bias) {
    size_t bytes = kn_dtype_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++)
        memcpy((char *)g->c + (size_t)(i * g->ldc) * bytes, bias, (size_t)g->n * bytes);
    g->accumulate = true;
}

/* While the tile is in the cache. */
static void finish(const kn__gemm *g) {
    const char *residual = g->residual;
    size_t row_bytes = (size_t)g->ldc * kn_dtype_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++) {
        size_t at = (size_t)i * row_bytes;
        kn__finish_run(g->dtype, g->act, (char *)g->c + at, residual ? residual + at : NULL, g->n);
    }
}

static void gemm_tile(void *ctx, int64_t i) {
    gemm_tiles *tiles = ctx;
    kn__gemm g = tile_of(tiles, i);
    if (tiles->bias) {
        int64_t column = i / tiles->ways % tiles->columns;
        fill_bias(&g, tiles->bias + (size_t)edge_of(tiles->gemm->n, tiles->columns, column) *
                                        kn_dtype_bytes(g.dtype));
    }
    void *slot = kn__slot_take(&tiles->slots);
    int status = kn__gemm_run(&g, slot);
    kn__slot_give(&tiles->slots, slot);
    if (g.act || g.residual) finish(&g);
    if (status) atomic_store_explicit(&tiles->status, status, memory_order_relaxed);
}

/* How many tiles: by shape alone. Long sums into a small result are cut along k; else the result is
 * cut so that the tiles' edges are as short as can be. */
static void tiles_choose(gemm_tiles *tiles, const kn__gemm *g) {
    double ops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    int64_t wanted = 2 * (int64_t)(ops / (2.0 * TILE_OPS) + 0.5); /* even: for two threads */
    int64_t most = rows_meet(g) ? PACKED_TILES : MOST_TILES; /* each tile packs its part of b */
    wanted = ops < SPLIT_OPS ? 1 : (wanted < 2 ? 2 : (wanted > most ? most : wanted));
    tiles->rows = tiles->columns = tiles->ways = 1;
    if (g->dtype != KN_BF16 && g->m * g->n <= 4096 && g->k >= 64 * (g->m + g->n)) {
        int64_t ways = g->k / 4096;
        tiles->ways = ways < 1 ? 1 : (ways > 16 ? 16 : ways);
        return;
    }
    while (tiles->rows * tiles->columns < wanted) {
        int64_t m = g->m / (tiles->rows + 1), n = g->n / (tiles->columns + 1);
        if (m < LEAST_SIDE && n < LEAST_SIDE) return;
        bool shares_b = is_in_place(g) && g->n >= 2 * LEAST_SHARE; /* packed once, not by each */
        if (shares_b && n >= LEAST_SHARE)
            tiles->columns++;
        else if (g->m / tiles->rows >= g->n / tiles->columns && m >= LEAST_SIDE)
            tiles->rows++;
        else if (n >= LEAST_SIDE)
            tiles->columns++;
        else
            tiles->rows++;
    }
}

/* Rows of b at multiples of 4096 bytes meet in the cache, again for each tile down c. Measured on a
 * Xeon (AVX-512), GFLOP/s with b copied / in place: 1024 x 1024 x 1024 157 / 136 on one thread,
 * 512 x 1024 x 1024 154 / 140, 2048 x 2048 x 2048 152 / 140; of 256 steps equal. */
static bool copies_b(const gemm_tiles *tiles) {
    enum { LEAST = 512 }; /* rows that share the copy; steps */
    const kn__gemm *g = tiles->gemm;
    return g->dtype == KN_F32 && !g->trans_b && g->ldb % 1024 == 0 && g->m >= LEAST &&
           g->k >= LEAST && tiles->ways == 1 && tiles->rows > 1 && !is_packed(g);
}

enum { COPIED_ROWS = 16 };

static void copy_b(void *ctx, int64_t part) {
    const gemm_tiles *tiles = ctx;
    const kn__gemm *g = tiles->gemm;
    int64_t end = (part + 1) * COPIED_ROWS < g->k ? (part + 1) * COPIED_ROWS : g->k;
    for (int64_t j = 0; j < tiles->columns; j++) {
        int64_t ld = panel_ld(tiles, j);
        const float *from = (const float *)g->b + edge_of(g->n, tiles->columns, j);
        for (int64_t l = part * COPIED_ROWS; l < end; l++)
            memcpy(panel_of(tiles, j) + l * ld, from + l * g->ldb,
                   (size_t)(ld - VECTOR) * sizeof(float));
    }
}

static kn_status panels_create(kn_op_call *call, gemm_tiles *tiles) {
    const kn__gemm *g = tiles->gemm;
    void *panels = NULL;
    KN_TRY(
        kn__work(&panels, call, sizeof(float) * (size_t)(g->k * (g->n + tiles->columns * VECTOR))));
    tiles->panels = panels;
    kn__parallel_for(call->threads, kn__chunks(g->k, COPIED_ROWS), copy_b, tiles);
    return KN_OK;
}

/* c (+)= bias + the partial products, in order. */
static void sum_partial(const gemm_tiles *tiles) {
    const kn__gemm *g = tiles->gemm;
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
    if (copies_b(tiles)) KN_TRY(panels_create(call, tiles));
    size_t most = 0; /* sizes differ by one: that may be the one between two ways to multiply */
    for (int64_t i = 0; i < n; i++) {
        kn__gemm g = tile_of(tiles, i);
        g.accumulate |= tiles->bias != NULL;
        size_t bytes = bytes_of(&g);
        most = bytes > most ? bytes : most;
    }
    KN_TRY(kn__slots_create(&tiles->slots, call, n, most));
    kn_scope scope = kn_scope_begin_static(kn__gemm_label(tiles->gemm));
    kn__library_for(tiles->slots.n, n, gemm_tile, tiles);
    kn_scope_end(&scope);
    int status = atomic_load_explicit(&tiles->status, memory_order_relaxed);
    return status ? kn__gemm_fail(status) : KN_OK;
}

kn_status kn__gemm_parallel(kn_op_call *call, const kn__gemm *gemm, const void *bias) {
    gemm_tiles tiles = {.gemm = gemm, .bias = bias};
    tiles_choose(&tiles, gemm);
    if (tiles.ways == 1 || bias || gemm->act || gemm->residual) {
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

typedef struct gemm_batch { /* products of one shape, in the order of c */
    kn__gemm first;
    int n_dims;
    int64_t dim[KN_DIMS_MAX], step_a[KN_DIMS_MAX], step_b[KN_DIMS_MAX]; /* 0: broadcast */
    int64_t n, chunk;
    kn__slots slots;
    _Atomic int status;
} gemm_batch;

static void batch_dims(gemm_batch *batch, const kn_tensor *a, const kn_tensor *b) {
    int n = batch->n_dims = (a->n_dims > b->n_dims ? a->n_dims : b->n_dims) - 2;
    for (int d = 0; d < n; d++) {
        int in_a = d - n + a->n_dims - 2, in_b = d - n + b->n_dims - 2;
        batch->dim[d] =
            in_a < 0 || a->dim[in_a] == 1 ? (in_b < 0 ? 1 : b->dim[in_b]) : a->dim[in_a];
    }
}

/* Elements between matrices of t along the dimensions of the batch. */
static void batch_steps(int64_t step[], const kn_tensor *t, const gemm_batch *batch) {
    int lead = batch->n_dims - (t->n_dims - 2);
    int64_t size = t->dim[t->n_dims - 1] * t->dim[t->n_dims - 2];
    for (int d = batch->n_dims - 1; d >= 0; d--) {
        int64_t own = d < lead ? 1 : t->dim[d - lead];
        step[d] = own == 1 ? 0 : size;
        size *= own;
    }
}

static kn__gemm product_at(const gemm_batch *batch, int64_t i) {
    kn__gemm g = batch->first;
    size_t bytes = kn_dtype_bytes(g.dtype);
    int64_t a = 0, b = 0, rest = i;
    for (int d = batch->n_dims - 1; d >= 0; d--) {
        int64_t at = rest % batch->dim[d];
        a += at * batch->step_a[d], b += at * batch->step_b[d];
        rest /= batch->dim[d];
    }
    g.a = (const char *)g.a + (size_t)a * bytes;
    g.b = (const char *)g.b + (size_t)b * bytes;
    g.c = (char *)g.c + (size_t)(i * g.m * g.n) * bytes;
    return g;
}

/* Products i … end - 1, those along the batch's last dimension in one call. */
static void narrow_chunk(const gemm_batch *batch, int64_t i, int64_t end) {
    int last = batch->n_dims - 1;
    while (i < end) {
        kn__gemm g = product_at(batch, i);
        kn__narrow p = narrow_of(&g);
        int64_t left = batch->dim[last] - i % batch->dim[last];
        p.count = left < end - i ? left : end - i;
        p.next_c = g.m * g.n, p.next_a = batch->step_a[last], p.next_b = batch->step_b[last];
        kn__loops(g.dtype)->gemm_narrow(&p);
        i += p.count;
    }
}

static void batch_chunk(void *ctx, int64_t i) {
    gemm_batch *batch = ctx;
    int64_t end = (i + 1) * batch->chunk < batch->n ? (i + 1) * batch->chunk : batch->n;
    if (is_narrow(&batch->first)) {
        narrow_chunk(batch, i * batch->chunk, end);
        return;
    }
    void *slot = kn__slot_take(&batch->slots);
    for (int64_t at = i * batch->chunk; at < end; at++) {
        kn__gemm g = product_at(batch, at);
        int status = kn__gemm_run(&g, slot);
        if (status) atomic_store_explicit(&batch->status, status, memory_order_relaxed);
    }
    kn__slot_give(&batch->slots, slot);
}

enum { CHUNK_OPS = 1000000, ENOUGH_PRODUCTS = 8 };

/* Many products: each on one thread. Few: each is cut into tiles. */
static kn_status batch_run(kn_op_call *call, gemm_batch *batch) {
    const kn__gemm *g = &batch->first;
    double ops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    if (batch->n == 1 || (batch->n < ENOUGH_PRODUCTS && ops > SPLIT_OPS)) {
        for (int64_t i = 0; i < batch->n; i++) {
            kn__gemm each = product_at(batch, i);
            KN_TRY(kn__gemm_parallel(call, &each, NULL));
            kn__work_end(call, 0);
        }
        return KN_OK;
    }
    batch->chunk = ops >= CHUNK_OPS ? 1 : (int64_t)(CHUNK_OPS / (ops + 100)) + 1;
    int64_t n_chunks = kn__chunks(batch->n, batch->chunk);
    KN_TRY(kn__slots_create(&batch->slots, call, n_chunks, bytes_of(g)));
    kn_scope scope = kn_scope_begin_static(kn__gemm_label(g));
    kn__library_for(batch->slots.n, n_chunks, batch_chunk, batch);
    kn_scope_end(&scope);
    int status = atomic_load_explicit(&batch->status, memory_order_relaxed);
    return status ? kn__gemm_fail(status) : KN_OK;
}

/* f16, and bf16 where the library has none that is fast. */
static bool widens(unsigned dtype, int64_t m, int64_t n, int64_t k) {
    return kn__is_half(dtype) && !(dtype == KN_BF16 && kn__gemm_bf16_pays(m, n, k));
}

kn_status kn__host_matmul(kn_op_call *call) {
    const kn_attr_matmul *attr = call->attr;
    const kn_tensor *a = call->in[0], *b = call->in[1], *c = call->out[0];
    const int64_t *of_a = &a->dim[a->n_dims - 2], *of_b = &b->dim[b->n_dims - 2];
    int64_t n = of_b[!attr->trans_b], m = of_a[attr->trans_a != 0];
    if (widens(call->dtype, m, n, of_a[!attr->trans_a])) return kn__widened(call, kn__host_matmul);
    gemm_batch batch = {.first = {.dtype = (kn_dtype)a->dtype,
                                  .trans_a = attr->trans_a != 0,
                                  .trans_b = attr->trans_b != 0,
                                  .accumulate = (call->accumulate & 1) != 0,
                                  .m = m,
                                  .n = n,
                                  .k = of_a[!attr->trans_a],
                                  .a = a->data,
                                  .b = b->data,
                                  .c = c->data,
                                  .lda = of_a[1],
                                  .ldb = of_b[1],
                                  .ldc = n},
                        .n_dims = 0,
                        .n = c->n / (m * n)};
    batch_dims(&batch, a, b);
    batch_steps(batch.step_a, a, &batch);
    batch_steps(batch.step_b, b, &batch);
    return batch_run(call, &batch);
}

/* y [rows,O] = act(x [rows,I] · wᵀ + b + r) */
kn_status kn__host_linear(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2];
    int64_t inputs = w->dim[1], outputs = w->dim[0], rows = call->out[0]->n / outputs;
    if (widens(call->dtype, rows, outputs, inputs)) return kn__widened(call, kn__host_linear);
    kn__gemm gemm = {.dtype = (kn_dtype)x->dtype,
                     .trans_b = true,
                     .accumulate = (call->accumulate & 1) != 0,
                     .m = rows,
                     .n = outputs,
                     .k = inputs,
                     .a = x->data,
                     .b = w->data,
                     .c = call->out[0]->data,
                     .lda = inputs,
                     .ldb = inputs,
                     .ldc = outputs};
    if (call->op == KN_OP_linear_act) {
        gemm.act = (kn_act)((const kn_attr_act *)call->attr)->act;
        gemm.residual = call->in[3] == KN_NONE ? NULL : call->in[3]->data;
    }
    return kn__gemm_parallel(call, &gemm, b == KN_NONE ? NULL : b->data);
}

kn_status kn__host_linear_weight_bias(kn_op_call *call) {
    kn_attr_matmul product = {true, false};
    kn_op_call part = *call;
    part.op = KN_OP_matmul, part.n_out = 1, part.want = 1, part.attr = &product;
    part.in = (kn_tensor *const[]){call->in[1], call->in[0]};
    kn_status status = kn__host_matmul(&part);
    kn__work_end(&part, call->n_work);
    return status < 0 ? status : kn__linear_bias_back(call, kn__host_reduce);
}
