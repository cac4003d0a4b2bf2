/* Sorting along one axis, stably, and elements by their index along an axis.
 *
 * An element becomes an unsigned *key* in the same order: NaN above all, the zeros alike, inverted
 * for a descending order. An *item* is a key with its element's index: one word with the key above
 * the index for dtypes of 32 bits and less, else two words. Items are sorted by radix. Of a long
 * line the best k are kept instead: few of them in order, more in a small buffer. */
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/slots.h"
#include "kernel.h"
#include "reduce.h"

enum { FEW = 24, FEW_BEST = 32, DIGITS = 256, BLOCK = 256, GRAIN = 1 << 13 };

typedef struct sort_job {
    kn_dtype dtype;
    bool descending, wide; /* wide: two words an item */
    const char *x;
    char *values;    /* NULL: not wanted */
    int64_t *places; /* NULL: not wanted */
    size_t bytes;
    kn__lines lines;
    int64_t k, lines_each;
    int64_t room; /* items of a buffer; below n: the best k are kept in it */
    kn__slots slots;
} sort_job;

/* --- keys --- */

static inline uint64_t key_of_f32(float x) {
    uint32_t bits = kn__f32_bits(x + 0.0f); /* -0 becomes 0 */
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return x == x ? bits : 0xFFFFFFFFu;
}

static inline uint64_t key_of_f64(double x) {
    uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    bits = bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
    return x == x ? bits : UINT64_MAX;
}

/* Keys of m elements, `stride` apart. */
static void make_keys(uint64_t *keys, const sort_job *j, const char *x, int64_t m, int64_t stride) {
    uint64_t flip = !j->descending ? 0 : j->wide ? UINT64_MAX : 0xFFFFFFFFu;
    switch (j->dtype) {
#define KEYS(type, expr)                                                                           \
    {                                                                                              \
        const type *in = (const void *)x;                                                          \
        for (int64_t i = 0; i < m; i++) {                                                          \
            type v = in[i * stride];                                                               \
            keys[i] = (uint64_t)(expr) ^ flip;                                                     \
        }                                                                                          \
        return;                                                                                    \
    }
        case KN_F32:
            KEYS(float, key_of_f32(v))
        case KN_F64:
            KEYS(double, key_of_f64(v))
        case KN_F16:
            KEYS(uint16_t, key_of_f32(kn__f16_to_f32(v)))
        case KN_BF16:
            KEYS(uint16_t, key_of_f32(kn__bf16_to_f32(v)))
        case KN_I64:
            KEYS(int64_t, (uint64_t)v ^ UINT64_C(1) << 63)
        case KN_I32:
            KEYS(int32_t, (uint32_t)v ^ 0x80000000u)
        case KN_U8:
        case KN_BOOL:
            KEYS(uint8_t, v)
#undef KEYS
    }
}

/* --- items: arrays of `words` words each --- */

#define INLINE static inline __attribute__((always_inline))

/* Puts an item into the order of the n before it, behind those with its key. */
INLINE void insert_item(uint64_t *item, int64_t n, uint64_t key, uint64_t place, int words) {
    int64_t to = n;
    for (; to > 0 && item[(to - 1) * words] > key; to--)
        memcpy(item + to * words, item + (to - 1) * words, (size_t)words * sizeof *item);
    item[to * words] = key;
    item[to * words + words - 1] = place;
}

INLINE void few_items(uint64_t *item, int64_t n, int words) {
    for (int64_t i = 1; i < n; i++)
        insert_item(item, i, item[i * words], item[i * words + words - 1], words);
}

/* Byte by byte from the lowest; bytes that all keys share are skipped. Returns where the items are:
 * `item` or `other`. */
INLINE uint64_t *radix(uint64_t *item, uint64_t *other, int64_t n, int words) {
    enum { PASSES_MAX = 8 };
    int passes = words == 1 ? 4 : 8, shift = words == 1 ? 32 : 0;
    int64_t count[PASSES_MAX][DIGITS];
    memset(count, 0, (size_t)passes * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = item[i * words] >> shift;
        for (int p = 0; p < passes; p++) count[p][key >> 8 * p & 255]++;
    }
    for (int p = 0; p < passes; p++) {
        if (count[p][item[0] >> (shift + 8 * p) & 255] == n) continue;
        int64_t at[DIGITS], sum = 0;
        for (int d = 0; d < DIGITS; d++) {
            at[d] = sum;
            sum += count[p][d];
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t to = at[item[i * words] >> (shift + 8 * p) & 255]++;
            other[to * words] = item[i * words];
            if (words == 2) other[to * words + 1] = item[i * words + 1];
        }
        uint64_t *t = item;
        item = other;
        other = t;
    }
    return item;
}

static uint64_t *sort_items(const sort_job *j, uint64_t *item, uint64_t *other, int64_t n) {
    if (n <= FEW) {
        if (j->wide)
            few_items(item, n, 2);
        else
            few_items(item, n, 1);
        return item;
    }
    return j->wide ? radix(item, other, n, 2) : radix(item, other, n, 1);
}

static inline void put_item(const sort_job *j, uint64_t *item, int64_t at, uint64_t key,
                            int64_t place) {
    if (j->wide) {
        item[2 * at] = key;
        item[2 * at + 1] = (uint64_t)place;
    } else {
        item[at] = key << 32 | (uint64_t)place;
    }
}

static uint64_t *all_items(const sort_job *j, uint64_t *item, uint64_t *other, const char *x) {
    uint64_t keys[BLOCK];
    for (int64_t i = 0; i < j->lines.n; i += BLOCK) {
        int64_t m = j->lines.n - i < BLOCK ? j->lines.n - i : BLOCK;
        make_keys(keys, j, x + (size_t)(i * j->lines.inner) * j->bytes, m, j->lines.inner);
        for (int64_t k = 0; k < m; k++) put_item(j, item, i + k, keys[k], i + k);
    }
    return sort_items(j, item, other, j->lines.n);
}

/* The first k in order: items that are no better than the k-th so far are left out, and a full
 * buffer is sorted and cut. */
static uint64_t *best_items(const sort_job *j, uint64_t *item, uint64_t *other, const char *x) {
    uint64_t keys[BLOCK], worst = UINT64_MAX;
    int64_t n = 0;
    bool full = false; /* k items are there, `worst` is the last one's key */
    for (int64_t i = 0; i < j->lines.n; i += BLOCK) {
        int64_t m = j->lines.n - i < BLOCK ? j->lines.n - i : BLOCK, hits = 0;
        make_keys(keys, j, x + (size_t)(i * j->lines.inner) * j->bytes, m, j->lines.inner);
        for (int64_t k = 0; k < m; k++) hits += keys[k] < worst;
        if (full && !hits) continue;
        for (int64_t k = 0; k < m; k++) {
            if (full && keys[k] >= worst) continue;
            put_item(j, item, n++, keys[k], i + k);
        }
        if (n + BLOCK <= j->room) continue;
        uint64_t *sorted = sort_items(j, item, other, n);
        if (sorted != item) other = item;
        item = sorted;
        n = j->k;
        full = true;
        worst = j->wide ? item[2 * (n - 1)] : item[n - 1] >> 32;
    }
    return sort_items(j, item, other, n);
}

/* Bit i: key i of n is below `worst`. */
static inline uint64_t keys_below(const uint64_t *keys, int64_t n, uint64_t worst) {
    uint64_t bits = 0;
    for (int64_t i = n; i-- > 0;) bits = bits << 1 | (keys[i] < worst);
    return bits;
}

/* The same for so small a k that its items are kept in order. */
static uint64_t *few_best(const sort_job *j, uint64_t *item, const char *x) {
    enum { BITS = 64 };
    uint64_t keys[BITS], worst = UINT64_MAX;
    int64_t n = 0;
    for (int64_t i = 0; i < j->lines.n; i += BITS) {
        int64_t m = j->lines.n - i < BITS ? j->lines.n - i : BITS;
        make_keys(keys, j, x + (size_t)(i * j->lines.inner) * j->bytes, m, j->lines.inner);
        uint64_t hits = n < j->k ? UINT64_MAX >> (BITS - m) : keys_below(keys, m, worst);
        for (; hits; hits &= hits - 1) {
            int k = __builtin_ctzll(hits);
            if (n == j->k && keys[k] >= worst) continue;
            n += n < j->k;
            uint64_t place = (uint64_t)(i + k);
            if (j->wide)
                insert_item(item, n - 1, keys[k], place, 2);
            else
                insert_item(item, n - 1, keys[k] << 32 | place, keys[k] << 32 | place, 1);
            worst = j->wide ? item[2 * (n - 1)] : item[n - 1] >> 32;
        }
    }
    return item;
}

static uint64_t *sorted_items(const sort_job *j, uint64_t *item, uint64_t *other, const char *x) {
    if (j->room == j->lines.n) return all_items(j, item, other, x);
    return j->k <= FEW_BEST ? few_best(j, item, x) : best_items(j, item, other, x);
}

static void store_items(const sort_job *j, const uint64_t *item, int64_t from, int64_t to,
                        const char *x) {
    int64_t inner = j->lines.inner;
    for (int64_t k = 0; k < j->k; k++) {
        int64_t place = j->wide ? (int64_t)item[2 * k + 1] : (int64_t)(item[k] & 0xFFFFFFFFu);
        if (j->places) j->places[to + k * inner] = place;
        if (!j->values) continue;
        const char *v = x + (size_t)((from + place * inner)) * j->bytes;
        char *y = j->values + (size_t)(to + k * inner) * j->bytes;
        switch (j->bytes) {
            case 1:
                *y = *v;
                break;
            case 2:
                memcpy(y, v, 2);
                break;
            case 4:
                memcpy(y, v, 4);
                break;
            default:
                memcpy(y, v, 8);
        }
    }
}

static void sort_part(void *ctx, int64_t part) {
    sort_job *j = ctx;
    int64_t inner = j->lines.inner, to = (part + 1) * j->lines_each, lines = j->lines.outer * inner;
    uint64_t *item = kn__slot_take(&j->slots), *other = item + j->room * (1 + j->wide);
    if (to > lines) to = lines;
    for (int64_t line = part * j->lines_each; line < to; line++) {
        int64_t from = line / inner * j->lines.n * inner + line % inner;
        const char *x = j->x + (size_t)from * j->bytes;
        const uint64_t *sorted = sorted_items(j, item, other, x);
        store_items(j, sorted, from, line / inner * j->k * inner + line % inner, j->x);
    }
    kn__slot_give(&j->slots, item);
}

kn_status kn__host_sort(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    const kn_attr_sort *attr = call->attr;
    sort_job j = {.dtype = (kn_dtype)x->dtype,
                  .descending = attr->descending != 0,
                  .x = x->data,
                  .values = call->out[0] ? call->out[0]->data : NULL,
                  .places = call->out[1] ? call->out[1]->data : NULL,
                  .bytes = kn_dtype_bytes((kn_dtype)x->dtype),
                  .lines = kn__lines_of(x, attr->mask),
                  .k = attr->k};
    if (j.k == 0) return KN_OK;
    j.wide = j.bytes == 8 || j.lines.n > UINT32_MAX;
    int64_t buffer = 4 * j.k > 4 * BLOCK ? 4 * j.k : 4 * BLOCK,
            lines = j.lines.outer * j.lines.inner;
    if (j.k <= FEW_BEST) buffer = j.k;
    j.room = buffer < j.lines.n / 2 ? buffer : j.lines.n;
    j.lines_each = GRAIN / j.lines.n + 1;
    int64_t parts = kn__chunks(lines, j.lines_each);
    KN_TRY(kn__slots_create(&j.slots, call, parts, (size_t)j.room * (j.wide ? 32 : 16)));
    kn__parallel_for(j.slots.n, parts, sort_part, &j);
    return KN_OK;
}

/* --- elements by their index --- */

typedef struct along_job {
    bool put;
    size_t bytes;
    char *to;
    const char *from;
    const kn_tensor *index;
    kn__lines lines; /* of what index points into */
    int64_t k;       /* indices of a line */
} along_job;

/* Elements from … to - 1 of the index, those of a line in one loop: divisions take longer than what
 * is moved. */
#define ALONG(type)                                                                                \
    static void along_##type(const along_job *j, int64_t from, int64_t to) {                       \
        const int64_t *place = j->index->data, inner = j->lines.inner, line = j->k * inner;        \
        const type *in = (const void *)j->from;                                                    \
        type *out = (void *)j->to;                                                                 \
        for (int64_t i = from, column = from % inner; i < to;) {                                   \
            int64_t base = i / line * j->lines.n * inner, end = (i / line + 1) * line;             \
            for (end = end < to ? end : to; i < end; i++) {                                        \
                int64_t at = base + place[i] * inner + column;                                     \
                if (j->put)                                                                        \
                    out[at] = in[i];                                                               \
                else                                                                               \
                    out[i] = in[at];                                                               \
                column = column + 1 < inner ? column + 1 : 0;                                      \
            }                                                                                      \
        }                                                                                          \
    }
ALONG(uint8_t)
ALONG(uint16_t)
ALONG(uint32_t)
ALONG(uint64_t)

static void along_part(void *ctx, int64_t part) {
    const along_job *j = ctx;
    int64_t from = part * GRAIN, to = from + GRAIN < j->index->n ? from + GRAIN : j->index->n;
    switch (j->bytes) {
        case 1:
            along_uint8_t(j, from, to);
            return;
        case 2:
            along_uint16_t(j, from, to);
            return;
        case 4:
            along_uint32_t(j, from, to);
            return;
        default:
            along_uint64_t(j, from, to);
    }
}

kn_status kn__host_along(kn_op_call *call) {
    const kn_attr_along *attr = call->attr;
    bool put = call->op == KN_OP_put_along;
    const kn_tensor *large = put ? call->out[0] : call->in[0];
    along_job j = {.put = put,
                   .bytes = kn_dtype_bytes((kn_dtype)large->dtype),
                   .to = call->out[0]->data,
                   .from = call->in[0]->data,
                   .index = call->in[1],
                   .lines = kn__lines_of(large, attr->mask)};
    if (put) memset(j.to, 0, (size_t)large->n * j.bytes);
    if (j.index->n == 0) return KN_OK;
    j.k = j.index->n / (j.lines.outer * j.lines.inner);
    kn__parallel_for(call->threads, kn__chunks(j.index->n, GRAIN), along_part, &j);
    return KN_OK;
}
