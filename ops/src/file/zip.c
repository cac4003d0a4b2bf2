/* NPZ: a zip archive whose members are NPY files, stored or deflated. PKWARE's APPNOTE.TXT
 * describes the format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "entries.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    STORED = 0,
    DEFLATED = 8,
    RATIO_MAX = 1032, /* of deflate: no data expand more */
    PREFIX_BYTES = 4096 + 12,
    HEADER_BYTES_MAX = 1 << 20
};

/* --- the directory --- */

typedef struct directory {
    size_t at, bytes, n;
} directory;

static const uint8_t *find_end(const kn_file *f) {
    const uint8_t *at = f->bytes->at;
    size_t n = f->bytes->n;
    for (size_t back = END_BYTES; back <= n && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = at + n - back;
        if (memcmp(p, "PK\5\6", 4) == 0 && kn__u16(p + 20) == back - END_BYTES) return p;
    }
    return NULL;
}

static kn_status directory_find(directory *d, const kn_file *f) {
    const uint8_t *at = f->bytes->at, *end = find_end(f);
    if (!end) return KN__BAD(f, "the archive has no end record; is it cut?");
    *d = (directory){kn__u32(end + 16), kn__u32(end + 12), kn__u16(end + 10)};
    size_t end_at = (size_t)(end - at), limit = end_at;
    const uint8_t *locator = end_at >= LOCATOR_BYTES ? end - LOCATOR_BYTES : NULL;
    if (locator && memcmp(locator, "PK\6\7", 4) == 0) {
        uint64_t place = kn__u64(locator + 8);
        if (end_at < LOCATOR_BYTES + END64_BYTES || place > end_at - LOCATOR_BYTES - END64_BYTES ||
            memcmp(at + place, "PK\6\6", 4) != 0)
            return KN__BAD(f, "the end record for large archives is not at byte %llu",
                           (unsigned long long)place);
        const uint8_t *end64 = at + place;
        *d = (directory){kn__u64(end64 + 48), kn__u64(end64 + 40), kn__u64(end64 + 32)};
        limit = place;
    }
    if (d->at > limit || d->bytes > limit - d->at || d->n > d->bytes / CENTRAL_BYTES)
        return KN__BAD(f, "a directory of %zu members in %zu bytes at byte %zu; the file has %zu",
                       d->n, d->bytes, d->at, f->bytes->n);
    return KN_OK;
}

/* --- a member --- */

typedef struct member {
    const uint8_t *name;
    size_t name_bytes;
    int flags, method;
    uint64_t packed, size, local; /* bytes in the file, bytes of the member, place of its header */
    uint32_t crc;
} member;

/* Sizes and places from 4 GiB on are in an extra field, in this order. */
static void read_large(member *m, const uint8_t *extra, size_t n) {
    while (n >= 4) {
        size_t bytes = kn__u16(extra + 2);
        const uint8_t *p = extra + 4;
        if (bytes > n - 4) return;
        if (kn__u16(extra) == 1) {
            const uint8_t *end = p + bytes;
            uint64_t *field[] = {&m->size, &m->packed, &m->local};
            for (int i = 0; i < 3; i++) {
                if (*field[i] != UINT32_MAX || end - p < 8) continue;
                *field[i] = kn__u64(p);
                p += 8;
            }
            return;
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
}

/* Returns the record's bytes; 0: it is damaged. */
static size_t read_central(member *m, const uint8_t *p, size_t n) {
    if (n < CENTRAL_BYTES || memcmp(p, "PK\1\2", 4) != 0) return 0;
    size_t name = kn__u16(p + 28), extra = kn__u16(p + 30), comment = kn__u16(p + 32);
    if (n - CENTRAL_BYTES < name + extra + comment) return 0;
    *m = (member){p + CENTRAL_BYTES, name,
                  kn__u16(p + 8),    kn__u16(p + 10),
                  kn__u32(p + 20),   kn__u32(p + 24),
                  kn__u32(p + 42),   kn__u32(p + 16)};
    read_large(m, p + CENTRAL_BYTES + name, extra);
    return CENTRAL_BYTES + name + extra + comment;
}

static bool is_array(const member *m) {
    return m->name_bytes > 4 && memcmp(m->name + m->name_bytes - 4, ".npy", 4) == 0;
}

/* Where the member's bytes begin, from its own header, which must agree. */
static kn_status find_data(size_t *out, const kn_file *f, const member *m, const directory *d,
                           const char *place) {
    const uint8_t *p = f->bytes->at + m->local;
    if (m->local > d->at || d->at - m->local < LOCAL_BYTES || memcmp(p, "PK\3\4", 4) != 0)
        return KN__BAD(f, "%sno member at byte %llu", place, (unsigned long long)m->local);
    size_t name = kn__u16(p + 26), head = LOCAL_BYTES + name + kn__u16(p + 28);
    size_t room = d->at - m->local;
    bool agrees = name == m->name_bytes && kn__u16(p + 8) == m->method && head <= room &&
                  memcmp(p + LOCAL_BYTES, m->name, name) == 0;
    if (!agrees) return KN__BAD(f, "%sits header differs from the directory's", place);
    if (m->packed > room - head)
        return KN__BAD(f, "%s%llu bytes; %zu are left", place, (unsigned long long)m->packed,
                       room - head);
    *out = m->local + head;
    return KN_OK;
}

static kn_status check_member(const kn_file *f, const member *m, const char *place) {
    if (m->flags & 1) return KN__BAD(f, "%sit is encrypted", place);
    if (m->method != STORED && m->method != DEFLATED)
        return KN__BAD(f, "%scompression method %d; 0 and 8 are known", place, m->method);
    if (m->method == STORED ? m->size != m->packed : m->size / RATIO_MAX > m->packed)
        return KN__BAD(f, "%s%llu bytes of %llu stored ones", place, (unsigned long long)m->size,
                       (unsigned long long)m->packed);
    return memchr(m->name, 0, m->name_bytes) ? KN__BAD(f, "%sa zero byte in its name", place)
                                             : KN_OK;
}

/* --- reading a member's bytes --- */

typedef struct inflater {
    z_stream z;
    const uint8_t *in;
    size_t left; /* of in */
} inflater;

/* Inflates n bytes: Z_OK, Z_MEM_ERROR, or Z_DATA_ERROR if the data are damaged or end. */
static int inflate_bytes(inflater *s, uint8_t *out, size_t n) {
    while (n) {
        uInt piece = n < 1u << 30 ? (uInt)n : 1u << 30;
        if (!s->z.avail_in) {
            s->z.next_in = (Bytef *)(uintptr_t)s->in;
            s->z.avail_in = s->left < 1u << 30 ? (uInt)s->left : 1u << 30;
            s->in += s->z.avail_in;
            s->left -= s->z.avail_in;
        }
        s->z.next_out = out;
        s->z.avail_out = piece;
        int result = inflate(&s->z, Z_NO_FLUSH);
        size_t made = piece - s->z.avail_out;
        out += made;
        n -= made;
        bool stuck = made == 0 && s->left == 0 && s->z.avail_in == 0;
        if (result == Z_MEM_ERROR) return Z_MEM_ERROR;
        if (n && (stuck || result == Z_STREAM_END)) return Z_DATA_ERROR;
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return Z_DATA_ERROR;
    }
    return Z_OK;
}

/* `place`, in messages: where the bytes are. */
static kn_status inflate_failed(const kn_file *f, const char *place, int result) {
    if (result == Z_DATA_ERROR) return KN__BAD(f, "%sits compressed bytes are damaged", place);
    return KN_FAIL(KN_ERR_OOM, "%s: %sno memory", f->path, place);
}

/* Reads the first *n of the member's bytes, or all if it has fewer: then *n is their number. */
static kn_status read_prefix(uint8_t *out, size_t *n, const kn_file *f, const kn__entry *e,
                             size_t member_bytes, const char *place) {
    if (*n > member_bytes) *n = member_bytes;
    const uint8_t *from = f->bytes->at + e->offset;
    if (!e->deflated) {
        memcpy(out, from, *n);
        return KN_OK;
    }
    inflater s = {.in = from, .left = e->stored_bytes};
    int result = inflateInit2(&s.z, -15);
    if (result == Z_OK) result = inflate_bytes(&s, out, *n);
    inflateEnd(&s.z);
    return result == Z_OK ? KN_OK : inflate_failed(f, place, result);
}

/* Returns zlib's result. */
static int read_stored(uint8_t *out, const kn_file *f, const kn__entry *e, uint32_t *crc) {
    const uint8_t *from = f->bytes->at + e->offset;
    *crc = (uint32_t)crc32_z(0, from, e->stored_bytes);
    memcpy(out, from + e->skip, e->size_bytes);
    return Z_OK;
}

static int read_deflated(uint8_t *out, const kn_file *f, const kn__entry *e, uint32_t *crc) {
    inflater s = {.in = f->bytes->at + e->offset, .left = e->stored_bytes};
    uint8_t *head = malloc(e->skip);
    int result = head ? inflateInit2(&s.z, -15) : Z_MEM_ERROR;
    if (result == Z_OK) {
        result = inflate_bytes(&s, head, e->skip);
        if (result == Z_OK) result = inflate_bytes(&s, out, e->size_bytes);
        if (result == Z_OK) *crc = (uint32_t)crc32_z(crc32_z(0, head, e->skip), out, e->size_bytes);
        inflateEnd(&s.z);
    }
    free(head);
    return result;
}

kn_status kn__zip_read(void *out, const kn_file *f, const kn__entry *e) {
    uint32_t crc = 0;
    int result = (e->deflated ? read_deflated : read_stored)(out, f, e, &crc);
    if (result != Z_OK) {
        char place[128];
        snprintf(place, sizeof place, "tensor '%.100s': ", e->name);
        return inflate_failed(f, place, result);
    }
    if (crc != e->crc)
        return KN__BAD(f, "tensor '%.100s': checksum %08x, the directory has %08x", e->name, crc,
                       e->crc);
    return KN_OK;
}

/* --- opening --- */

static kn_status read_header(kn__entry *e, const kn_file *f, size_t size, const char *place) {
    uint8_t prefix[PREFIX_BYTES], *large = NULL;
    size_t n = sizeof prefix;
    KN_TRY(read_prefix(prefix, &n, f, e, size, place));
    size_t whole = kn__npy_header_bytes(prefix, n);
    kn_status status = KN_OK;
    if (whole > n && whole <= size && whole <= HEADER_BYTES_MAX) {
        large = malloc(whole);
        if (!large) return KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path);
        n = whole;
        status = read_prefix(large, &n, f, e, size, place);
    }
    if (status == KN_OK) status = kn__npy_header(e, f, place, large ? large : prefix, n);
    free(large);
    return status;
}

static kn_status add_member(kn_file *f, const member *m, const directory *d) {
    char place[160];
    snprintf(place, sizeof place, "member '%.*s': ", m->name_bytes < 100 ? (int)m->name_bytes : 100,
             (const char *)m->name);
    KN_TRY(check_member(f, m, place));
    char *name = strndup((const char *)m->name, m->name_bytes - 4);
    kn__entry *e = name ? kn__file_add(f, name) : NULL;
    if (!e) return KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path);
    e->deflated = m->method == DEFLATED;
    e->crc = m->crc;
    e->stored_bytes = m->packed;
    KN_TRY(find_data(&e->offset, f, m, d, place));
    KN_TRY(read_header(e, f, m->size, place));
    e->size_bytes = m->size - e->skip;
    if (!e->dtype) return KN_OK;
    char shape[256];
    kn_shape_text(shape, sizeof shape, e->shape);
    if (!kn__file_size(&e->size_bytes, e->shape, e->element_bytes) ||
        e->size_bytes != m->size - e->skip)
        return KN__BAD(f, "%s%llu bytes; %s %s does not take as many", place,
                       (unsigned long long)(m->size - e->skip), shape, e->dtype_text);
    return KN_OK;
}

static int by_offset(const void *a, const void *b) {
    size_t x = (*(const kn__entry *const *)a)->offset, y = (*(const kn__entry *const *)b)->offset;
    return (x > y) - (x < y);
}

static kn_status check_overlaps(const kn_file *f) {
    const kn__entry **order = malloc((size_t)f->n * sizeof(void *) + 1);
    if (!order) return KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path);
    for (int i = 0; i < f->n; i++) order[i] = &f->entry[i];
    qsort(order, (size_t)f->n, sizeof *order, by_offset);
    kn_status status = KN_OK;
    for (int i = 1; i < f->n && status == KN_OK; i++)
        if (order[i]->offset < order[i - 1]->offset + order[i - 1]->stored_bytes + LOCAL_BYTES)
            status = KN__BAD(f, "members '%.100s' and '%.100s' overlap at byte %zu",
                             order[i - 1]->name, order[i]->name, order[i]->offset);
    free(order);
    return status;
}

kn_status kn__zip_open(kn_file *f) {
    directory d = {0};
    KN_TRY(directory_find(&d, f));
    const uint8_t *p = f->bytes->at + d.at;
    size_t left = d.bytes;
    for (size_t i = 0; i < d.n; i++) {
        member m;
        size_t n = read_central(&m, p, left);
        if (!n)
            return KN__BAD(f, "directory entry %zu at byte %zu is damaged", i,
                           (size_t)(p - f->bytes->at));
        if (is_array(&m)) KN_TRY(add_member(f, &m, &d));
        p += n;
        left -= n;
    }
    return check_overlaps(f);
}
