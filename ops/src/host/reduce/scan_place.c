/* Places of the extremes so far along one axis: x as [outer, n, inner]. Lines are independent. */
#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/folds.h"
#include "kernel.h"

enum { GRAIN = 1 << 14 };

typedef struct place_job {
    const void *x;
    int64_t *places;
    kn__lines lines;
    int64_t tiles, units_each, units;
    kn_dtype dtype;
    bool max;
} place_job;

/* n <= KN_LINES neighbouring lines from element `at` on. */
#define PLACES(name, element, type, load)                                                          \
    static void places_##name(const place_job *j, int64_t at, int64_t n) {                         \
        const element *x = (const element *)j->x + at;                                             \
        int64_t *to = j->places + at, place[KN_LINES] = {0};                                       \
        type best[KN_LINES];                                                                       \
        for (int64_t i = 0; i < n; i++) best[i] = load(x[i]);                                      \
        for (int64_t k = 0; k < j->lines.n; k++, x += j->lines.inner, to += j->lines.inner) {      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const type v = load(x[i]);                                                         \
                bool reaches = j->max ? v >= best[i] : v <= best[i];                               \
                reaches = (reaches & (best[i] == best[i])) | (v != v);                             \
                best[i] = reaches ? v : best[i];                                                   \
                place[i] = reaches ? k : place[i];                                                 \
                to[i] = place[i];                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
#define ITSELF(x) (x)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of integers */
PLACES(f64, double, double, ITSELF)
PLACES(f32, float, float, ITSELF)
PLACES(f16, uint16_t, float, kn__f16_to_f32)
PLACES(bf16, uint16_t, float, kn__bf16_to_f32)
PLACES(i64, int64_t, int64_t, ITSELF)
PLACES(i32, int32_t, int32_t, ITSELF)
PLACES(u8, uint8_t, int, ITSELF)
#pragma GCC diagnostic pop

static void part(void *ctx, int64_t i) {
    const place_job *j = ctx;
    static void (*const places[])(const place_job *, int64_t, int64_t) = {
        [KN_F64] = places_f64,   [KN_F32] = places_f32, [KN_F16] = places_f16,
        [KN_BF16] = places_bf16, [KN_I64] = places_i64, [KN_I32] = places_i32,
        [KN_U8] = places_u8,     [KN_BOOL] = places_u8};
    int64_t end = (i + 1) * j->units_each;
    for (int64_t unit = i * j->units_each; unit < (end < j->units ? end : j->units); unit++) {
        int64_t from = unit % j->tiles * KN_LINES, left = j->lines.inner - from;
        places[j->dtype](j, unit / j->tiles * j->lines.n * j->lines.inner + from,
                         left < KN_LINES ? left : KN_LINES);
    }
}

kn_status kn__host_scan_place(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    const kn_attr_scan *attr = call->attr;
    place_job j = {.x = x->data,
                   .places = call->out[0]->data,
                   .lines = kn__lines_of(x, attr->mask),
                   .dtype = (kn_dtype)x->dtype,
                   .max = call->op == KN_OP_cummax_index};
    j.tiles = kn__chunks(j.lines.inner, KN_LINES);
    j.units = j.lines.outer * j.tiles;
    j.units_each = GRAIN / (x->n / j.units + 1) + 1;
    kn__parallel_for(x->n >= 2 * GRAIN ? call->threads : 1, kn__chunks(j.units, j.units_each), part,
                     &j);
    return KN_OK;
}
