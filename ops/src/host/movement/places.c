/* Indices made from tensors: several joined to one, and the places of elements that are not zero.
 */
#include <string.h>

#include "host/base/chunks.h"
#include "host/movement/gather.h"

/* --- one index from several --- */

kn_status kn__host_index_join(kn_op_call *call) {
    const kn_attr_concat *attr = call->attr;
    int64_t *out = call->out[0]->data, n = call->out[0]->n;
    for (int k = 0; k < call->n_in; k++) {
        kn__indexed j = {.size = attr->size[k], .index = call->in[k]->data};
        j.index_dtype = (kn_dtype)call->in[k]->dtype;
        atomic_init(&j.bad, INT64_MAX);
        for (int64_t i = 0; i < n; i++) {
            out[i] = (k ? out[i] * j.size : 0) + kn__index_at(&j, i);
        }
        KN_TRY(kn__indexed_check(&j, call));
    }
    return KN_OK;
}

/* --- places --- */

enum { PART = 1 << 14 };

typedef struct places_job {
    const kn_tensor *x;
    int64_t *places, *count; /* count: of each part; then the places before it */
} places_job;

static int64_t end_of(const places_job *j, int64_t part) {
    int64_t end = (part + 1) * PART;
    return end < j->x->n ? end : j->x->n;
}

static void place(int64_t *to, const kn_tensor *x, int64_t i) {
    for (int d = x->n_dims - 1; d > 0; d--) {
        int64_t outer = i / x->dim[d];
        to[d] = i - outer * x->dim[d];
        i = outer;
    }
    if (x->n_dims) to[0] = i;
}

/* -0 is zero, NaN is not: floats by their bits without the sign. */
#define NONZERO(name, type, test)                                                                  \
    static int64_t count_##name(const kn_tensor *x, int64_t first, int64_t end) {                  \
        const type *v = x->data;                                                                   \
        int64_t n = 0;                                                                             \
        for (int64_t i = first; i < end; i++) n += (v[i] & (test)) != 0;                           \
        return n;                                                                                  \
    }                                                                                              \
    static void places_##name(int64_t *to, const kn_tensor *x, int64_t first, int64_t end) {       \
        const type *v = x->data;                                                                   \
        for (int64_t i = first; i < end; i++) {                                                    \
            if (!(v[i] & (test))) continue;                                                        \
            place(to, x, i);                                                                       \
            to += x->n_dims;                                                                       \
        }                                                                                          \
    }
NONZERO(f16, uint16_t, 0x7FFF)
NONZERO(f32, uint32_t, 0x7FFFFFFF)
NONZERO(f64, uint64_t, INT64_MAX)
NONZERO(i32, uint32_t, UINT32_MAX)
NONZERO(i64, uint64_t, UINT64_MAX)
NONZERO(u8, uint8_t, UINT8_MAX)

static const struct {
    int64_t (*count)(const kn_tensor *x, int64_t first, int64_t end);
    void (*places)(int64_t *to, const kn_tensor *x, int64_t first, int64_t end);
} nonzero[] = {
    [KN_F32] = {count_f32, places_f32}, [KN_F64] = {count_f64, places_f64},
    [KN_F16] = {count_f16, places_f16}, [KN_BF16] = {count_f16, places_f16},
    [KN_I64] = {count_i64, places_i64}, [KN_I32] = {count_i32, places_i32},
    [KN_U8] = {count_u8, places_u8},    [KN_BOOL] = {count_u8, places_u8},
};

static void count_part(void *ctx, int64_t part) {
    const places_job *j = ctx;
    j->count[part] = nonzero[j->x->dtype].count(j->x, part * PART, end_of(j, part));
}

static void place_part(void *ctx, int64_t part) {
    const places_job *j = ctx;
    int64_t *to = j->places + j->count[part] * j->x->n_dims;
    nonzero[j->x->dtype].places(to, j->x, part * PART, end_of(j, part));
}

kn_status kn__host_nonzero(kn_op_call *call) {
    places_job j = {.x = call->in[0]};
    int64_t parts = kn__chunks(j.x->n, PART), before = 0;
    void *counts;
    KN_TRY(kn__work(&counts, call, (size_t)parts * sizeof(int64_t)));
    j.count = counts;
    kn__parallel_for(call->threads, parts, count_part, &j);
    for (int64_t i = 0; i < parts; i++) {
        int64_t n = j.count[i];
        j.count[i] = before;
        before += n;
    }
    if (call->out[1]) *(int64_t *)call->out[1]->data = before;
    if (!call->out[0]) return KN_OK;
    j.places = call->out[0]->data;
    kn__parallel_for(call->threads, parts, place_part, &j);
    int64_t rest = call->out[0]->n - before * j.x->n_dims;
    if (rest) memset(j.places + before * j.x->n_dims, 0, (size_t)rest * sizeof(int64_t));
    return KN_OK;
}
