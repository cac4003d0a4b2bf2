#include "host/product/panels.h"

#include "host/base/chunks.h"

/* Whether tiles read a where it is: rows that don't all fall into the same few places of the first
 * cache. */
static bool in_place(const kn__panel_job *p, size_t bytes) {
    enum { FEW = 4, PERIOD = 4096 };
    return p->stride_k == 1 && (p->m <= FEW || (size_t)p->stride * bytes % PERIOD);
}

/* In blocks of its depth a is read in place or packed, in panels of equal height. */
void kn__panel_product(const kn__loop_table *loops, size_t bytes, const kn__panel_job *p,
                       kn__panels panels, char *workspace) {
    int64_t wide = loops->tile_columns;
    int64_t height = kn__chunks(p->m, kn__chunks(p->m, loops->tile_rows));
    bool plain = in_place(p, bytes);
    for (int64_t l = 0; l < p->k; l += KN_PANEL_DEPTH) {
        int64_t part = p->k - l < KN_PANEL_DEPTH ? p->k - l : KN_PANEL_DEPTH;
        const char *a = p->a + (size_t)(l * p->stride_k) * bytes;
        if (!plain)
            loops->gemm_pack(workspace, a, p->stride, p->stride_k, p->m, part, (int)height, false);
        for (int64_t j = 0; j < p->n; j += wide) {
            const char *b =
                panels.data + (size_t)(j * panels.depth + (p->first + l) * wide) * bytes;
            int columns = (int)(p->n - j < wide ? p->n - j : wide);
            for (int64_t i = 0; i < p->m; i += height) {
                int rows = (int)(p->m - i < height ? p->m - i : height);
                char *c = p->c + (size_t)(i * p->ldc + j) * bytes;
                if (plain)
                    loops->gemm_tile_rows(c, p->ldc, a + (size_t)(i * p->stride) * bytes, p->stride,
                                          b, part, rows, columns);
                else
                    loops->gemm_tile(c, p->ldc, workspace + (size_t)(i * part) * bytes, rows, b,
                                     part, rows, columns);
            }
        }
    }
}
