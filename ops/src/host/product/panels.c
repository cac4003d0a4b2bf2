#include "host/product/panels.h"

#include "host/base/chunks.h"

/* a is packed in blocks of its depth, cut into panels of equal height. */
void kn__panel_product(const kn_loops *loops, size_t bytes, const kn_panel_product *p,
                       kn_panels panels, char *workspace) {
    int64_t wide = loops->tile_columns;
    int64_t height = kn__chunks(p->m, kn__chunks(p->m, loops->tile_rows));
    for (int64_t l = 0; l < p->k; l += KN_PANEL_DEPTH) {
        int64_t part = p->k - l < KN_PANEL_DEPTH ? p->k - l : KN_PANEL_DEPTH;
        loops->gemm_pack(workspace, p->a + (size_t)(l * p->stride_k) * bytes, p->stride,
                         p->stride_k, p->m, part, (int)height, false);
        for (int64_t j = 0; j < p->n; j += wide) {
            const char *b =
                panels.data + (size_t)(j * panels.depth + (p->first + l) * wide) * bytes;
            int64_t columns = p->n - j < wide ? p->n - j : wide;
            for (int64_t i = 0; i < p->m; i += height)
                loops->gemm_tile(p->c + (size_t)(i * p->ldc + j) * bytes, p->ldc,
                                 workspace + (size_t)(i * part) * bytes, b, part,
                                 (int)(p->m - i < height ? p->m - i : height), (int)columns);
        }
    }
}
