/* The loops of ops.def's rows: row_loops.c, compiled for each dtype and instruction set, and for
 * each dtype alone for the rare ones.
 *
 *     const kn__row_loops *row = kn__row_loops_of(KN_F32, KN_OP_mul);
 *     row->f(z, (const void *[]){a, b}, n, 0, 0, false);
 */
#ifndef KN_ROWS_H
#define KN_ROWS_H

#include <knet/op.h>

/* n elements one after the other; operands that a formula doesn't read may be NULL. Results may
 * alias inputs. p, q: scalars. add: adds to the old values; forward loops overwrite. */
typedef void (*kn__row_loop)(void *to, const void *const in[], int64_t n, double p, double q,
                             bool add);
typedef struct kn__row_loops {
    kn__row_loop f;        /* in: the inputs; NULL: the dtype has no such row */
    kn__row_loop vs, sv;   /* of two inputs: one of them a single element */
    kn__row_loop d[3];     /* in: g, inputs, z; NULL for integers */
    kn__row_loop dd[3][3]; /* as d; the highest instruction set has those of the next one */
} kn__row_loops;

/* Places in the tables: rows and comparisons; rare rows have tables of their own. */
enum {
#define KN_ROW1(name, ...) KN__ROW_##name,
#define KN_ROW2(name, ...) KN__ROW_##name,
#define KN_ROW3(name, ...) KN__ROW_##name,
#define KN_RARE1(...)
#define KN_RARE2(...)
#define KN_COMPARE(name, ...) KN__ROW_##name,
#define KN_COMPARE1(name, ...) KN__ROW_##name,
#include <knet/ops.def>
    KN__ROW_COMMON,
    KN__ROW_BEFORE_RARE = -1,
#define KN_RARE1(name, ...) KN__ROW_##name,
#define KN_RARE2(name, ...) KN__ROW_##name,
#include <knet/ops.def>
    KN__ROW_RARE,
    KN__ROW_COUNT =
        (int)KN__ROW_COMMON > (int)KN__ROW_RARE ? (int)KN__ROW_COMMON : (int)KN__ROW_RARE
};

/* Of op, which is a row or a comparison. F16 and BF16: F32's; KN_BOOL and 0: KN_U8's. */
static inline const kn__row_loops *kn__row_loops_of(kn_dtype dtype, unsigned op) {
    extern const kn__row_loops *const(*kn__row_tables)[2] __attribute__((visibility("hidden")));
    extern const uint8_t kn__row_columns[KN_BOOL + 1] __attribute__((visibility("hidden")));
    extern const uint8_t kn__row_places[KN_OP_COUNT][2] __attribute__((visibility("hidden")));
    const uint8_t *place = kn__row_places[op];
    return &kn__row_tables[kn__row_columns[dtype]][place[0]][place[1]];
}
/* A given instruction set's loops, for tests: 2, 3 or 4; NULL where the machine lacks it. */
const kn__row_loops *kn__row_isa(kn_dtype dtype, unsigned op, int isa);

#endif
