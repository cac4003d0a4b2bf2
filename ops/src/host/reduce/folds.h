/* The inner loops of reductions: for each dtype and instruction set a table by fold. They join
 * elements to cells, one cell a result. Floats are joined in f64, integers and counts in i64. */
#ifndef KN_FOLDS_H
#define KN_FOLDS_H

#include "host/base/loops.h"
#include "reduce.h"

typedef union kn__cell {
    double f;
    int64_t i;
} kn__cell;

/* Along a row, so many bytes of f32 or f64 are one block, whose result goes to its cell. A row
 * cut into its blocks has the bits of the whole row. */
enum { KN_FOLD_BLOCK_BYTES = 4096 };
/* Neighbouring lines that one thread scans, or finds extremes of: they can't be cut along. */
enum { KN_LINES = KN_COLUMNS / 4 };

/* Joins `down` elements to each of n <= KN_COLUMNS cells. Along rows: x[o·stride + d] to cell o;
 * along columns: x[d·stride + o]. shift: of each cell, or NULL for none. */
typedef void (*kn__fold_loop)(kn__cell *cells, const void *x, int64_t n, int64_t down,
                              int64_t stride, const kn__cell *shift, double p);
/* The results themselves of n <= KN_COLUMNS results of few elements each, over `divisor`: in the
 * type of x, with the bits of the loops above. Rows lie one after the other. */
typedef void (*kn__brief_loop)(void *y, const void *x, int64_t n, int64_t down, int64_t stride,
                               double divisor);
enum { KN_BRIEF_ROWS = 64, KN_BRIEF_ROW_BYTES = 64 }; /* at most, and less than */
/* The first extreme among the elements of each cell: its value and which one it is; a NaN is the
 * extreme. Cells need no value before; down > 0. */
typedef void (*kn__place_loop)(kn__cell *cells, int64_t *places, const void *x, int64_t n,
                               int64_t down, int64_t stride, bool max);
/* How a scan continues from acc: acc + x, acc·x, or b + acc·x. */
typedef enum kn__scan_kind { KN_SCAN_SUM, KN_SCAN_PROD, KN_SCAN_RECUR, KN_SCAN_N } kn__scan_kind;
typedef struct kn__scan_way {
    bool reverse, exclusive; /* from the last element on; y is acc before x is joined */
} kn__scan_way;
/* n lines beside each other, `down` elements of each; *carry, one a line, goes in and out. One line
 * of contiguous elements, or columns `stride` apart. y is NULL: the carry alone. */
typedef void (*kn__scan_loop)(void *y, const void *x, const void *b, kn__cell *carry, int64_t n,
                              int64_t down, int64_t stride, kn__scan_way way);
typedef struct kn__fold_table {
    kn__fold_loop rows[KN__FOLD_N], columns[KN__FOLD_N]; /* NULL: the dtype has no such fold */
    kn__brief_loop brief_rows[KN__FOLD_N], brief_columns[KN__FOLD_N]; /* likewise */
    kn__place_loop place_rows, place_columns;
    kn__scan_loop scan_row[KN_SCAN_N], scan_columns[KN_SCAN_N];
} kn__fold_table;

/* This machine's; KN_F16 and KN_BF16: those of KN_F32. KN_BOOL: KN_U8's. */
const kn__fold_table *kn__folds(kn_dtype dtype);
/* A given instruction set's, for tests: 2, 3 or 4; NULL where the machine lacks it. */
const kn__fold_table *kn__folds_isa(kn_dtype dtype, int isa);

static inline bool kn__is_float(kn_dtype dtype) { return dtype >= KN_F32 && dtype <= KN_BF16; }

#endif
