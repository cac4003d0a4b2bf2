/* Converts elements of a file to those of a tensor: swaps bytes, and widens integers that no
 * kn_dtype fits. */
#include <string.h>

#include "entries.h"

enum { CHUNK = 1024 };

/* A copy of some elements: loops that read and write different memory become vector code. */
typedef union chunk {
    uint8_t bytes[4 * CHUNK];
    int16_t i16[CHUNK];
    uint16_t u16[CHUNK];
    uint32_t u32[CHUNK];
} chunk;

static void swap_elements(uint8_t *at, size_t n_bytes, size_t size) {
    for (size_t i = 0; i + size <= n_bytes; i += size)
        for (size_t k = 0; k < size / 2; k++) {
            uint8_t byte = at[i + k];
            at[i + k] = at[i + size - 1 - k];
            at[i + size - 1 - k] = byte;
        }
}

static void widen(void *out, const chunk *in, size_t n, const kn__entry *e) {
    int32_t *i32 = out;
    int64_t *i64 = out;
    if (e->element_bytes == 4)
        for (size_t i = 0; i < n; i++) i64[i] = in->u32[i];
    else if (e->element_bytes == 1)
        for (size_t i = 0; i < n; i++) i32[i] = (in->bytes[i] ^ 0x80) - 0x80; /* the sign */
    else if (e->is_unsigned)
        for (size_t i = 0; i < n; i++) i32[i] = in->u16[i];
    else
        for (size_t i = 0; i < n; i++) i32[i] = in->i16[i];
}

void kn__elements_copy(uint8_t *out, size_t n_bytes, const uint8_t *from, const kn__entry *e) {
    size_t size = e->element_bytes, wide = kn_dtype_bytes(e->dtype), n = n_bytes / wide;
    if (size == wide) {
        if (from != out) memcpy(out, from, n_bytes);
        if (e->swapped) swap_elements(out, n_bytes, size);
        return;
    }
    /* Also at the end of `out` the next chunk's elements start after this one's results. */
    for (size_t at = 0; at < n; at += CHUNK) {
        chunk in;
        size_t some = n - at < CHUNK ? n - at : CHUNK;
        memcpy(in.bytes, from + at * size, some * size);
        if (e->swapped) swap_elements(in.bytes, some * size, size);
        widen(out + at * wide, &in, some, e);
    }
}

static kn_status check_bools(const kn_file *f, const kn__entry *e, const uint8_t *at) {
    for (size_t i = 0; i < e->size_bytes; i++)
        if (at[i] > 1)
            return KN__BAD(f, "tensor '%.100s': element %zu is %d; a bool is 0 or 1", e->name, i,
                           at[i]);
    return KN_OK;
}

static kn_status check_u64(const kn_file *f, const kn__entry *e, const uint64_t *at) {
    for (size_t i = 0; i < e->size_bytes / sizeof *at; i++)
        if (at[i] > INT64_MAX)
            return KN_FAIL(KN_ERR_INVALID,
                           "%s: tensor '%.100s': element %zu is %llu (%s); the limit is %lld",
                           f->path, e->name, i, (unsigned long long)at[i], e->dtype_text,
                           (long long)INT64_MAX);
    return KN_OK;
}

kn_status kn__elements_check(const kn_file *f, const kn__entry *e, const uint8_t *at) {
    if (e->dtype == KN_BOOL) return check_bools(f, e, at);
    bool may_be_large = e->is_unsigned && e->element_bytes == sizeof(uint64_t);
    return may_be_large ? check_u64(f, e, (const void *)at) : KN_OK;
}
