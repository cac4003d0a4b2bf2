/* The loops around the micro-tile, as in Goto and van de Geijn 2008: a block of b [BLOCK_K,BLOCK_N]
 * stays in the second cache, a panel of a in the first. */
#include "host/product/gemm_packed.h"

enum { BLOCK_M = 168, BLOCK_N = 512, BLOCK_K_BYTES = 1024 }; /* 168 = 14·12 = 6·28 = 4·42 */

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t block_k(size_t element_bytes) { return BLOCK_K_BYTES / (int64_t)element_bytes; }

/* Of one packed block of b, in elements; that of a follows it. */
static int64_t packed_b(const kn__loop_table *loops, int64_t n, int64_t k) {
    return rounded_up(at_most(n, BLOCK_N), loops->tile_columns) * k;
}

size_t kn__gemm_packed_bytes(kn_dtype dtype, int64_t m, int64_t n, int64_t k) {
    const kn__loop_table *loops = kn__loops(dtype);
    size_t bytes = kn_dtype_bytes(dtype);
    int64_t depth = at_most(k, block_k(bytes));
    return (size_t)(packed_b(loops, n, depth) + at_most(m, BLOCK_M) * depth) * bytes;
}

/* c [m,n] += packed a · packed b */
static void multiply_block(const kn__loop_table *loops, size_t bytes, char *c, int64_t ldc,
                           const char *a, const char *b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i += loops->tile_rows)
        for (int64_t j = 0; j < n; j += loops->tile_columns) {
            int rows = (int)at_most(m - i, loops->tile_rows);
            loops->gemm_tile(c + (size_t)(i * ldc + j) * bytes, ldc, a + (size_t)(i * k) * bytes,
                             rows, b + (size_t)(j * k) * bytes, k, rows,
                             (int)at_most(n - j, loops->tile_columns));
        }
}

static const char *element(kn__matrix a, int64_t row, int64_t column, size_t bytes) {
    return (const char *)a.data + (row * a.stride_row + column * a.stride_column) * (int64_t)bytes;
}

void kn__gemm_packed(kn_dtype dtype, void *c, int64_t ldc, kn__matrix a, kn__matrix b, int64_t m,
                     int64_t n, int64_t k, void *workspace) {
    const kn__loop_table *loops = kn__loops(dtype);
    size_t bytes = kn_dtype_bytes(dtype);
    int64_t depth = block_k(bytes);
    for (int64_t j = 0; j < n; j += BLOCK_N)
        for (int64_t l = 0; l < k; l += depth) {
            int64_t columns = at_most(n - j, BLOCK_N), steps = at_most(k - l, depth);
            char *pack_b = workspace, *pack_a = pack_b + (size_t)packed_b(loops, n, steps) * bytes;
            loops->gemm_pack(pack_b, element(b, l, j, bytes), b.stride_column, b.stride_row,
                             columns, steps, loops->tile_columns, true);
            for (int64_t i = 0; i < m; i += BLOCK_M) {
                int64_t rows = at_most(m - i, BLOCK_M);
                loops->gemm_pack(pack_a, element(a, i, l, bytes), a.stride_row, a.stride_column,
                                 rows, steps, loops->tile_rows, false);
                multiply_block(loops, bytes, (char *)c + (size_t)(i * ldc + j) * bytes, ldc, pack_a,
                               pack_b, rows, columns, steps);
            }
        }
}

void kn__gemm_in_place(kn_dtype dtype, void *c, int64_t ldc, kn__matrix a, kn__matrix b, int64_t m,
                       int64_t n, int64_t k) {
    enum { COLUMNS_MAX = 32 };
    _Alignas(64) char panel[COLUMNS_MAX * BLOCK_K_BYTES];
    const kn__loop_table *loops = kn__loops(dtype);
    size_t bytes = kn_dtype_bytes(dtype);
    int64_t depth = block_k(bytes), width = loops->tile_columns;
    KN_ASSERT(width <= COLUMNS_MAX && a.stride_column == 1);
    for (int64_t j = 0; j < n; j += width)
        for (int64_t l = 0; l < k; l += depth) {
            int64_t columns = at_most(n - j, width), steps = at_most(k - l, depth);
            loops->gemm_pack(panel, element(b, l, j, bytes), b.stride_column, b.stride_row, columns,
                             steps, (int)width, true);
            for (int64_t i = 0; i < m; i += loops->tile_rows)
                loops->gemm_tile_rows((char *)c + (size_t)(i * ldc + j) * bytes, ldc,
                                      element(a, i, l, bytes), a.stride_row, panel, steps,
                                      (int)at_most(m - i, loops->tile_rows), (int)columns);
        }
}
