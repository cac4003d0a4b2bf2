/* Combines the values of several ranks, in the order of the ranks. */
#include <string.h>

#include "ranks.h"

enum { BLOCK = 512 };

#ifdef __clang__
#define INDEPENDENT /* it checks at run time */
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Two arrays go straight to dst. Of more, a block of up to BLOCK elements is combined in the
 * processor's cache. An element is read before its place is written, so dst may be any source. */
#define COMBINE(name, type, expr)                                                                  \
    static void name##_two(type *dst, const type *s0, const type *s1, int64_t n) {                 \
        INDEPENDENT for (int64_t i = 0; i < n; i++) {                                              \
            type a = s0[i], b = s1[i];                                                             \
            dst[i] = (expr);                                                                       \
        }                                                                                          \
    }                                                                                              \
    static void name(void *dst, const void *const src[], int n_src, int64_t n) {                   \
        type t[BLOCK];                                                                             \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                \
            int64_t left = n - at < BLOCK ? n - at : BLOCK;                                        \
            const type *sum = (const type *)src[0] + at;                                           \
            for (int k = 1; k < n_src; k++) {                                                      \
                type *to = k == n_src - 1 ? (type *)dst + at : t;                                  \
                name##_two(to, sum, (const type *)src[k] + at, left);                              \
                sum = to;                                                                          \
            }                                                                                      \
        }                                                                                          \
    }
/* An integer sum wraps; max and min of floats: a NaN wins, as in the ops. */
#define INTEGERS(name, type, wide)                                                                 \
    COMBINE(name##_sum, type, (type)((wide)a + (wide)b))                                           \
    COMBINE(name##_max, type, a > b ? a : b)                                                       \
    COMBINE(name##_min, type, a < b ? a : b)
#define FLOATS(name, type)                                                                         \
    COMBINE(name##_sum, type, a + b)                                                               \
    COMBINE(name##_max, type, a > b || a != a ? a : b)                                             \
    COMBINE(name##_min, type, a < b || a != a ? a : b)
FLOATS(f32, float)
FLOATS(f64, double)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, uint32_t)

typedef void (*combine_fn)(void *dst, const void *const src[], int n_src, int64_t n);

static combine_fn combine_of(kn_dtype dtype, kn_comm_op op) {
    static const combine_fn table[][3] = {
        [KN_F32] = {f32_sum, f32_max, f32_min}, [KN_F64] = {f64_sum, f64_max, f64_min},
        [KN_I32] = {i32_sum, i32_max, i32_min}, [KN_I64] = {i64_sum, i64_max, i64_min},
        [KN_U8] = {u8_sum, u8_max, u8_min},     [KN_BOOL] = {NULL, u8_max, u8_min}};
    int column = op == KN_COMM_MAX ? 1 : op == KN_COMM_MIN ? 2 : 0;
    return table[dtype][column];
}

kn_status kn__reduce_check(const char *name, kn_dtype dtype, kn_comm_op op) {
    if ((int)op < KN_COMM_SUM || op > KN_COMM_MIN)
        return KN_FAIL(KN_ERR_INVALID, "%s: invalid operation %d", name, (int)op);
    if (op == KN_COMM_MEAN && dtype != KN_F32 && dtype != KN_F64)
        return KN_FAIL(KN_ERR_DTYPE, "%s: no mean of %s; f32 and f64 have one", name,
                       kn_dtype_name(dtype));
    if (!combine_of(dtype, op))
        return KN_FAIL(KN_ERR_DTYPE, "%s: %s values cannot be combined; see kn_cast", name,
                       kn_dtype_name(dtype));
    return KN_OK;
}

void kn__reduce(void *dst, const void *const src[], int n_src, int64_t n, kn_dtype dtype,
                kn_comm_op op) {
    combine_of(dtype, op)(dst, src, n_src, n);
    if (op != KN_COMM_MEAN) return;
    if (dtype == KN_F32) {
        float *x = dst, scale = 1.0f / (float)n_src;
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    } else {
        double *x = dst, scale = 1.0 / n_src;
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    }
}
