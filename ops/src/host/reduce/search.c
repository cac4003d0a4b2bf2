/* Places in sorted lines. All searches of a line take the same steps: a block of them runs in
 * lockstep, so that their loads are in flight together and none waits for a branch. */
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"
#include "ranges.h"

enum { GRAIN = 1 << 11, BLOCK = 16 };

typedef struct search_job {
    const char *sorted, *values;
    int64_t *places;
    int64_t n, each, count; /* elements of a line, values for each, values in all */
    kn_dtype dtype;
    bool right;
} search_job;

/* For each of a block of values: the number of elements of the line that come before it. They are
 * its first ones. A NaN comes before no number. Before a NaN come all numbers, and with NOT_ABOVE
 * the NaNs too. Conditions are integers: of others the compiler makes branches. */
#define BELOW(x, v, nan) ((int64_t)((x) < (v)) | ((nan) & (int64_t)((x) == (x))))
#define NOT_ABOVE(x, v, nan) ((int64_t)((x) <= (v)) | (nan))
#define SEARCH(name, element, type, load, is_before)                                               \
    static void name(int64_t *places, const element *line, int64_t n, const element *values,       \
                     int64_t count) {                                                              \
        int64_t at[BLOCK] = {0}, nan[BLOCK];                                                       \
        type v[BLOCK];                                                                             \
        for (int64_t i = 0; i < BLOCK; i++) {                                                      \
            v[i] = load(values[i < count ? i : 0]);                                                \
            nan[i] = v[i] != v[i];                                                                 \
        }                                                                                          \
        for (int64_t left = n; left > 1; left -= left / 2) {                                       \
            const element *half = line + (left / 2 - 1);                                           \
            for (int64_t i = 0; i < BLOCK; i++) {                                                  \
                const type x = load(half[at[i]]);                                                  \
                at[i] += left / 2 & -is_before(x, v[i], nan[i]);                                   \
            }                                                                                      \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const type x = load(line[at[i]]);                                                      \
            places[i] = at[i] + is_before(x, v[i], nan[i]);                                        \
        }                                                                                          \
    }
#define SEARCHES(name, element, type, load)                                                        \
    SEARCH(name##_left, element, type, load, BELOW)                                                \
    SEARCH(name##_right, element, type, load, NOT_ABOVE)                                           \
    static void name(const search_job *j, int64_t from, int64_t to) {                              \
        for (int64_t i = from, m; i < to; i += m) {                                                \
            int64_t rest = j->each - i % j->each;                                                  \
            m = to - i < rest ? to - i : rest;                                                     \
            m = m < BLOCK ? m : BLOCK;                                                             \
            (j->right ? name##_right : name##_left)(                                               \
                j->places + i, (const element *)j->sorted + i / j->each * j->n, j->n,              \
                (const element *)j->values + i, m);                                                \
        }                                                                                          \
    }
#define ITSELF(x) (x)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of integers */
SEARCHES(search_f64, double, double, ITSELF)
SEARCHES(search_f32, float, float, ITSELF)
SEARCHES(search_f16, uint16_t, float, kn__f16_to_f32)
SEARCHES(search_bf16, uint16_t, float, kn__bf16_to_f32)
SEARCHES(search_i64, int64_t, int64_t, ITSELF)
SEARCHES(search_i32, int32_t, int32_t, ITSELF)
SEARCHES(search_u8, uint8_t, int, ITSELF)
#pragma GCC diagnostic pop

static void part(void *ctx, int64_t i) {
    const search_job *j = ctx;
    static void (*const search[])(const search_job *, int64_t, int64_t) = {
        [KN_F64] = search_f64,   [KN_F32] = search_f32, [KN_F16] = search_f16,
        [KN_BF16] = search_bf16, [KN_I64] = search_i64, [KN_I32] = search_i32,
        [KN_U8] = search_u8,     [KN_BOOL] = search_u8};
    int64_t from = i * GRAIN, to = from + GRAIN;
    search[j->dtype](j, from, to < j->count ? to : j->count);
}

kn_status kn__host_search_sorted(kn_op_call *call) {
    const kn_tensor *sorted = call->in[0], *values = call->in[1];
    const kn_attr_scalars *attr = call->attr;
    search_job j = {.sorted = sorted->data,
                    .values = values->data,
                    .places = call->out[0]->data,
                    .n = sorted->dim[sorted->n_dims - 1],
                    .count = values->n,
                    .dtype = (kn_dtype)sorted->dtype,
                    .right = attr->a != 0};
    if (j.n == 0) {
        memset(j.places, 0, (size_t)values->n * sizeof *j.places);
        return KN_OK;
    }
    j.each = sorted->n_dims > 1 ? values->dim[values->n_dims - 1] : values->n;
    kn__parallel_for(values->n >= 2 * GRAIN ? call->threads : 1, kn__chunks(values->n, GRAIN), part,
                     &j);
    return KN_OK;
}

/* --- ranges of a histogram --- */

typedef struct bin_job {
    kn__ranges ranges;
    const void *x;
    int64_t *places, n;
    bool is_f32;
} bin_job;

static void bin_part(void *ctx, int64_t part) {
    const bin_job *j = ctx;
    const kn__ranges ranges = j->ranges;
    int64_t from = part * GRAIN, to = from + GRAIN < j->n ? from + GRAIN : j->n;
    const float *narrow = j->is_f32 ? j->x : NULL;
    const double *wide = j->is_f32 ? NULL : j->x;
    for (int64_t i = from; narrow && i < to; i++)
        j->places[i] = kn__range_of(&ranges, (double)narrow[i]);
    for (int64_t i = from; wide && i < to; i++) j->places[i] = kn__range_of(&ranges, wide[i]);
}

kn_status kn__host_bin(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *x = call->in[0];
    bin_job j = {.ranges = kn__ranges_of(attr->a, attr->b, attr->dim[0]),
                 .is_f32 = x->dtype == KN_F32,
                 .x = x->data,
                 .places = call->out[0]->data,
                 .n = x->n};
    kn__parallel_for(x->n >= 2 * GRAIN ? call->threads : 1, kn__chunks(x->n, GRAIN), bin_part, &j);
    return KN_OK;
}
