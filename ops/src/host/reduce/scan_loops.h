/* Inner loops of scans, for the type `element`: results of type `result`, joined in `joined`, which
 * is a cell's KN_CELL. Included by reduce_loops.c and reduce_int_loops.c. A line is cut into pieces
 * of SEGMENTS chains that run side by side, so that one addition needn't wait for the one before.
 */

enum { SEGMENTS = 8, SEGMENT = 64, PIECE = SEGMENTS * SEGMENT };

static inline __attribute__((always_inline)) joined scan_step(kn__scan_kind scan, joined acc,
                                                              element x, const element *b,
                                                              int64_t i) {
    if (scan == KN_SCAN_SUM) return acc + (joined)x;
    return scan == KN_SCAN_PROD ? acc * (joined)x : (joined)b[i] + acc * (joined)x;
}

/* Elements first, first + step, … */
static inline __attribute__((always_inline)) joined scan_chain(kn__scan_kind scan, result *y,
                                                               const element *x, const element *b,
                                                               joined acc, int64_t first, int64_t n,
                                                               int64_t step, bool exclusive) {
    for (int64_t k = 0, i = first; k < n; k++, i += step) {
        joined next = scan_step(scan, acc, x[i], b, i);
        if (y) y[i] = (result)(exclusive ? acc : next);
        acc = next;
    }
    return acc;
}

/* PIECE elements: the segments' totals, then all segments at once. */
static inline __attribute__((always_inline)) joined scan_piece(kn__scan_kind scan, result *y,
                                                               const element *x, joined acc,
                                                               int64_t first, int64_t step,
                                                               bool exclusive) {
    joined start[SEGMENTS], total[SEGMENTS];
    for (int s = 0; s < SEGMENTS; s++) total[s] = scan == KN_SCAN_PROD;
    for (int64_t k = 0; k < SEGMENT; k++)
        for (int s = 0; s < SEGMENTS; s++)
            total[s] = scan_step(scan, total[s], x[first + (s * SEGMENT + k) * step], NULL, 0);
    for (int s = 0; s < SEGMENTS; s++) {
        start[s] = acc;
        acc = scan == KN_SCAN_PROD ? acc * total[s] : acc + total[s];
    }
    for (int64_t k = 0; y && k < SEGMENT; k++) {
        for (int s = 0; s < SEGMENTS; s++) {
            int64_t i = first + (s * SEGMENT + k) * step;
            joined next = scan_step(scan, start[s], x[i], NULL, 0);
            y[i] = (result)(exclusive ? start[s] : next);
            start[s] = next;
        }
    }
    return acc;
}

static inline __attribute__((always_inline)) joined scan_way(kn__scan_kind scan, result *y,
                                                             const element *x, const element *b,
                                                             joined acc, int64_t n, int64_t step,
                                                             bool exclusive) {
    int64_t first = step > 0 ? 0 : n - 1, k = 0;
    for (; scan != KN_SCAN_RECUR && k + PIECE <= n; k += PIECE)
        acc = scan_piece(scan, y, x, acc, first + k * step, step, exclusive);
    return scan_chain(scan, y, x, b, acc, first + k * step, n - k, step, exclusive);
}

static inline __attribute__((always_inline)) void scan_row(kn__scan_kind scan, void *y,
                                                           const void *x, const void *b,
                                                           kn__cell *carry, int64_t down,
                                                           kn__scan_way way) {
    joined acc = carry->KN_CELL;
    if (!way.reverse && !way.exclusive)
        acc = scan_way(scan, y, x, b, acc, down, 1, false);
    else
        acc = scan_way(scan, y, x, b, acc, down, way.reverse ? -1 : 1, way.exclusive);
    carry->KN_CELL = acc;
}

static inline __attribute__((always_inline)) void scan_columns(kn__scan_kind scan, result *y,
                                                               const element *x, const element *b,
                                                               kn__cell *carry, int64_t n,
                                                               int64_t down, int64_t stride,
                                                               kn__scan_way way) {
    for (int64_t k = 0; k < down; k++) {
        int64_t at = (way.reverse ? down - 1 - k : k) * stride;
        for (int64_t i = 0; i < n; i++) {
            joined acc = carry[i].KN_CELL, next = scan_step(scan, acc, x[at + i], b, at + i);
            if (y) y[at + i] = (result)(way.exclusive ? acc : next);
            carry[i].KN_CELL = next;
        }
    }
}

#define SCANS(F) F(SUM) F(PROD) F(RECUR)
#define SCAN(name)                                                                                 \
    static void scan_row_##name(void *y, const void *x, const void *b, kn__cell *carry, int64_t n, \
                                int64_t down, int64_t stride, kn__scan_way way) {                  \
        (void)n, (void)stride;                                                                     \
        scan_row(KN_SCAN_##name, y, x, b, carry, down, way);                                       \
    }                                                                                              \
    static void scan_columns_##name(void *y, const void *x, const void *b, kn__cell *carry,        \
                                    int64_t n, int64_t down, int64_t stride, kn__scan_way way) {   \
        scan_columns(KN_SCAN_##name, y, x, b, carry, n, down, stride, way);                        \
    }
SCANS(SCAN)
#define SCAN_ROW(name) [KN_SCAN_##name] = scan_row_##name,
#define SCAN_COLUMNS(name) [KN_SCAN_##name] = scan_columns_##name,
#define SCAN_TABLES .scan_row = {SCANS(SCAN_ROW)}, .scan_columns = {SCANS(SCAN_COLUMNS)}
