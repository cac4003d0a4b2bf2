/* The choice of an instruction set's loops at run time. */
#include "host/base/loops.h"
#include "host/pointwise/rows.h"
#include "host/reduce/folds.h"
#include "modes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

extern const kn__loop_table kn__loops_f32_v2, kn__loops_f64_v2;
#if KN_ISAS == 3
extern const kn__loop_table kn__loops_f32_v3, kn__loops_f64_v3, kn__loops_f32_v4, kn__loops_f64_v4;

static int machine_isa(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return 3;
    return 2;
}
#else
static int machine_isa(void) { return 2; }
#endif

const kn__loop_table *kn__loops_isa(kn_dtype dtype, int isa) {
    bool f64 = dtype == KN_F64;
    if (isa > machine_isa()) return NULL;
#if KN_ISAS == 3
    if (isa == 4) return f64 ? &kn__loops_f64_v4 : &kn__loops_f32_v4;
    if (isa == 3) return f64 ? &kn__loops_f64_v3 : &kn__loops_f32_v3;
#endif
    return isa == 2 ? (f64 ? &kn__loops_f64_v2 : &kn__loops_f32_v2) : NULL;
}

/* --- rows and folds: a table for each dtype and instruction set --- */

#define DECLARE(isa)                                                                               \
    extern const kn__row_loops kn__rows_f32_##isa[], kn__rows_f64_##isa[], kn__rows_i64_##isa[],   \
        kn__rows_i32_##isa[], kn__rows_u8_##isa[];
#define DECLARE_FOLDS(isa)                                                                         \
    extern const kn__fold_table kn__folds_f32_##isa, kn__folds_f64_##isa, kn__folds_i64_##isa,     \
        kn__folds_i32_##isa, kn__folds_u8_##isa;
#define TABLES(isa)                                                                                \
    {                                                                                              \
        {kn__rows_f32_##isa, kn__rows_f32_rare}, {kn__rows_f64_##isa, kn__rows_f64_rare},          \
            {kn__rows_i64_##isa, no_rows}, {kn__rows_i32_##isa, no_rows},                          \
            {kn__rows_u8_##isa, no_rows},                                                          \
    }
#define FOLDS(isa)                                                                                 \
    {                                                                                              \
        &kn__folds_f32_##isa, &kn__folds_f64_##isa, &kn__folds_i64_##isa, &kn__folds_i32_##isa,    \
            &kn__folds_u8_##isa                                                                    \
    }
extern const kn__row_loops kn__rows_f32_rare[], kn__rows_f64_rare[];
static const kn__row_loops no_rows[KN__ROW_COUNT]; /* integers have no rare ones */
DECLARE(v2)
DECLARE_FOLDS(v2)
#if KN_ISAS == 3
DECLARE(v3)
DECLARE(v4)
DECLARE_FOLDS(v3)
DECLARE_FOLDS(v4)
static const kn__row_loops *const row_tables[3][5][2] = {TABLES(v2), TABLES(v3), TABLES(v4)};
static const kn__fold_table *const fold_tables[3][5] = {FOLDS(v2), FOLDS(v3), FOLDS(v4)};
#else
static const kn__row_loops *const row_tables[1][5][2] = {TABLES(v2)};
static const kn__fold_table *const fold_tables[1][5] = {FOLDS(v2)};
#endif
const uint8_t kn__row_columns[KN_BOOL + 1] = {
    [0] = 4, /* logic alone has no dtype T */
    [KN_F32] = 0, [KN_F16] = 0, [KN_BF16] = 0, [KN_F64] = 1,
    [KN_I64] = 2, [KN_I32] = 3, [KN_U8] = 4,   [KN_BOOL] = 4};
_Static_assert(KN__ROW_COUNT <= UINT8_MAX, "a place is a byte");
const uint8_t kn__row_places[KN_OP_COUNT][2] = {
#define PLACE(name) [KN_OP_##name] = {0, KN__ROW_##name},
#define RARE(name) [KN_OP_##name] = {1, KN__ROW_##name},
#define KN_ROW1(name, ...) PLACE(name)
#define KN_ROW2(name, ...) PLACE(name)
#define KN_ROW3(name, ...) PLACE(name)
#define KN_RARE1(name, ...) RARE(name)
#define KN_RARE2(name, ...) RARE(name)
#define KN_COMPARE(name, ...) PLACE(name)
#define KN_COMPARE1(name, ...) PLACE(name)
#include <knet/ops.def>
};

const kn__row_loops *kn__row_isa(kn_dtype dtype, unsigned op, int isa) {
    if (isa < 2 || isa > machine_isa()) return NULL;
    const uint8_t *place = kn__row_places[op];
    return &row_tables[isa - 2][kn__row_columns[dtype]][place[0]][place[1]];
}

const kn__fold_table *kn__folds_isa(kn_dtype dtype, int isa) {
    return isa >= 2 && isa <= machine_isa() ? fold_tables[isa - 2][kn__row_columns[dtype]] : NULL;
}

static int chosen_isa(void) {
    int isa = kn__mode_isa(), most = machine_isa();
    return isa > 0 && isa < most ? isa : most;
}

const kn__loop_table *kn__loops(kn_dtype dtype) {
    static const kn__loop_table *_Atomic chosen[2]; /* any thread's choice is the same one */
    const kn__loop_table *loops =
        atomic_load_explicit(&chosen[dtype == KN_F64], memory_order_relaxed);
    if (__builtin_expect(!loops, 0)) {
        loops = kn__loops_isa(dtype, chosen_isa());
        atomic_store_explicit(&chosen[dtype == KN_F64], loops, memory_order_relaxed);
    }
    return loops;
}

const kn__row_loops *const (*kn__row_tables)[2];
static const kn__fold_table *const *chosen_folds;

__attribute__((constructor)) static void choose_tables(void) {
    kn__row_tables = row_tables[chosen_isa() - 2];
    chosen_folds = fold_tables[chosen_isa() - 2];
}

const kn__fold_table *kn__folds(kn_dtype dtype) { return chosen_folds[kn__row_columns[dtype]]; }
