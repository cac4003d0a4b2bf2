/* Products by a matrix that was packed once and is used many times: of a step of a recurrent layer,
 * of a block of attention. */
#ifndef KN_PANELS_H
#define KN_PANELS_H

#include "host/base/loops.h"

/* Elements of workspace that a product of m rows takes: m·KN_PANEL_DEPTH. */
enum { KN_PANEL_DEPTH = 256 };

/* b [depth,n] in panels of tile_columns, as gemm_pack(…, padded) makes them. */
typedef struct kn__panels {
    const char *data;
    int64_t depth;
} kn__panels;

/* c [m,n], rows ldc apart, += a · rows first … first + k - 1 of b; element (i, l) of a is
 * a[i·stride + l·stride_k]. */
typedef struct kn__panel_job {
    char *c;
    int64_t ldc;
    const char *a;
    int64_t stride, stride_k;
    int64_t m, k, n, first;
} kn__panel_job;
void kn__panel_product(const kn__loop_table *loops, size_t bytes, const kn__panel_job *p,
                       kn__panels panels, char *workspace);

/* n, rounded up to whole panels: packed, [depth,n] takes that times depth elements. */
static inline int64_t kn__panel_columns(const kn__loop_table *loops, int64_t n) {
    int64_t width = loops->tile_columns;
    return (n + width - 1) / width * width;
}

#endif
