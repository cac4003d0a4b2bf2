/* Extremes so far along one axis, and their places: x as [outer, n, inner]. Lines are independent.
 */
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/folds.h"
#include "kernel.h"

enum { GRAIN = 1 << 14 };

typedef struct extremes_job {
    const void *x;
    void *values;    /* NULL: not wanted */
    int64_t *places; /* NULL: not wanted */
    kn__lines lines;
    int64_t tiles, units_each, units;
    kn_dtype dtype;
    bool max;
} extremes_job;

/* A line of neighbours: few elements reach the extreme before them, or most do. And n <= KN_LINES
 * neighbouring lines, from element `at` on. */
#define EXTREMES(name, element, type, load)                                                        \
    static inline bool name##_reaches(type v, type best, bool max) {                               \
        return v != v || (best == best && (max ? v >= best : v <= best));                          \
    }                                                                                              \
    static void name##_row(const extremes_job *j, int64_t at, bool max) {                          \
        const element *x = (const element *)j->x + at;                                             \
        element *values = j->values ? (element *)j->values + at : NULL;                            \
        int64_t *places = j->places ? j->places + at : NULL, place = 0;                            \
        type best = load(x[0]);                                                                    \
        for (int64_t k = 0; k < j->lines.n; k++) {                                                 \
            const type v = load(x[k]);                                                             \
            if (name##_reaches(v, best, max)) best = v, place = k;                                 \
            if (values) values[k] = x[place];                                                      \
            if (places) places[k] = place;                                                         \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(const extremes_job *j, int64_t at, int64_t n, bool max) {           \
        int64_t inner = j->lines.inner, place[KN_LINES] = {0};                                     \
        const element *x = (const element *)j->x + at;                                             \
        type best[KN_LINES];                                                                       \
        element stored[KN_LINES];                                                                  \
        for (int64_t i = 0; i < n; i++) best[i] = load(x[i]), stored[i] = x[i];                    \
        for (int64_t k = 0; k < j->lines.n; k++) {                                                 \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const type v = load(x[k * inner + i]);                                             \
                bool reaches = name##_reaches(v, best[i], max);                                    \
                best[i] = reaches ? v : best[i];                                                   \
                stored[i] = reaches ? x[k * inner + i] : stored[i];                                \
                place[i] = reaches ? k : place[i];                                                 \
            }                                                                                      \
            if (j->values)                                                                         \
                memcpy((element *)j->values + at + k * inner, stored, (size_t)n * sizeof *stored); \
            if (j->places) memcpy(j->places + at + k * inner, place, (size_t)n * sizeof *place);   \
        }                                                                                          \
    }                                                                                              \
    static void name(const extremes_job *j, int64_t at, int64_t n) {                               \
        if (j->lines.inner == 1)                                                                   \
            j->max ? name##_row(j, at, true) : name##_row(j, at, false);                           \
        else                                                                                       \
            j->max ? name##_columns(j, at, n, true) : name##_columns(j, at, n, false);             \
    }
#define ITSELF(x) (x)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of integers */
EXTREMES(extremes_f64, double, double, ITSELF)
EXTREMES(extremes_f32, float, float, ITSELF)
EXTREMES(extremes_f16, uint16_t, float, kn__f16_to_f32)
EXTREMES(extremes_bf16, uint16_t, float, kn__bf16_to_f32)
EXTREMES(extremes_i64, int64_t, int64_t, ITSELF)
EXTREMES(extremes_i32, int32_t, int32_t, ITSELF)
EXTREMES(extremes_u8, uint8_t, int, ITSELF)
#pragma GCC diagnostic pop

static void part(void *ctx, int64_t i) {
    const extremes_job *j = ctx;
    static void (*const run[])(const extremes_job *, int64_t, int64_t) = {
        [KN_F64] = extremes_f64,   [KN_F32] = extremes_f32, [KN_F16] = extremes_f16,
        [KN_BF16] = extremes_bf16, [KN_I64] = extremes_i64, [KN_I32] = extremes_i32,
        [KN_U8] = extremes_u8,     [KN_BOOL] = extremes_u8};
    int64_t end = (i + 1) * j->units_each;
    for (int64_t unit = i * j->units_each; unit < (end < j->units ? end : j->units); unit++) {
        int64_t from = unit % j->tiles * KN_LINES, left = j->lines.inner - from;
        run[j->dtype](j, unit / j->tiles * j->lines.n * j->lines.inner + from,
                      left < KN_LINES ? left : KN_LINES);
    }
}

kn_status kn__host_extremes(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *values = call->out[0], *places = call->out[1];
    const kn_attr_scan *attr = call->attr;
    extremes_job j = {.x = x->data,
                      .values = values ? values->data : NULL,
                      .places = places ? places->data : NULL,
                      .lines = kn__lines_of(x, attr->mask),
                      .dtype = (kn_dtype)x->dtype,
                      .max = call->op == KN_OP_cummax};
    j.tiles = kn__chunks(j.lines.inner, KN_LINES);
    j.units = j.lines.outer * j.tiles;
    j.units_each = GRAIN / (x->n / j.units + 1) + 1;
    kn__parallel_for(x->n >= 2 * GRAIN ? call->threads : 1, kn__chunks(j.units, j.units_each), part,
                     &j);
    return KN_OK;
}
