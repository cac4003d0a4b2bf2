/* Places in sorted lines. The halves of a line that a search leaves are chosen by arithmetic, not
 * by a branch that can't be predicted. */
#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

enum { GRAIN = 1 << 10 };

typedef struct search_job {
    const char *sorted, *values;
    int64_t *places;
    int64_t n, each, count; /* elements of a line, values for each, values in all */
    kn_dtype dtype;
    bool right;
} search_job;

/* Whether an element comes before the place: NaN counts as largest. */
#define IS_BEFORE(below, same, x_is_nan, v_is_nan)                                                 \
    ((below) | ((v_is_nan) & !(x_is_nan)) | (right & ((same) | ((x_is_nan) & (v_is_nan)))))

#define SEARCH(name, element, type, load)                                                          \
    static void search_##name(const search_job *j, int64_t from, int64_t to) {                     \
        const element *values = (const element *)j->values;                                        \
        const bool right = j->right;                                                               \
        for (int64_t i = from; i < to; i++) {                                                      \
            const element *x = (const element *)j->sorted + i / j->each * j->n, *line = x;         \
            const type v = load(values[i]);                                                        \
            for (int64_t left = j->n; left > 0;) {                                                 \
                int64_t half = (left + 1) / 2;                                                     \
                const type at = load(x[half - 1]);                                                 \
                bool before = IS_BEFORE(at < v, at == v, at != at, v != v);                        \
                x = before ? x + half : x;                                                         \
                left = before ? left - half : half - 1;                                            \
            }                                                                                      \
            j->places[i] = x - line;                                                               \
        }                                                                                          \
    }
#define ITSELF(x) (x)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of integers */
SEARCH(f64, double, double, ITSELF)
SEARCH(f32, float, float, ITSELF)
SEARCH(f16, uint16_t, float, kn__f16_to_f32)
SEARCH(bf16, uint16_t, float, kn__bf16_to_f32)
SEARCH(i64, int64_t, int64_t, ITSELF)
SEARCH(i32, int32_t, int32_t, ITSELF)
SEARCH(u8, uint8_t, int, ITSELF)
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
    j.each = sorted->n_dims > 1 ? values->dim[values->n_dims - 1] : values->n;
    kn__parallel_for(values->n >= 4 * GRAIN ? call->threads : 1, kn__chunks(values->n, GRAIN), part,
                     &j);
    return KN_OK;
}
