/* ZIP files in memory, of members as they are, with right checksums: NPZ files that only their
 * arrays can make wrong. */
#ifndef TEST_STORED_ZIP_H
#define TEST_STORED_ZIP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

typedef struct stored_member {
    const char *name; /* "x_train.npy" */
    const void *data;
    size_t n_bytes;
} stored_member;

enum { STORED_LOCAL_BYTES = 30, STORED_LISTED_BYTES = 46, STORED_END_BYTES = 22 };

static inline uint8_t *stored_put(uint8_t *at, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
    return at + n_bytes;
}

/* The fields that both heads of a member have: from the version to the length of its name. */
static inline uint8_t *stored_fields(uint8_t *at, const stored_member *m) {
    at = stored_put(at, 20, 2);                 /* version */
    at = stored_put(at, 0, 4);                  /* flags, method: stored */
    at = stored_put(at, (uint64_t)33 << 16, 4); /* 1980-01-01 */
    at = stored_put(at, crc32(0, m->data, (unsigned)m->n_bytes), 4);
    at = stored_put(at, m->n_bytes, 4);
    at = stored_put(at, m->n_bytes, 4);
    at = stored_put(at, strlen(m->name), 2);
    return stored_put(at, 0, 2); /* no extra field */
}

/* Writes the file and returns its bytes: of each member 76, twice its name and its data, and 22. */
static inline size_t stored_zip(uint8_t *out, const stored_member members[], int n) {
    uint8_t *at = out;
    size_t place[16] = {0};
    for (int i = 0; i < n; i++) {
        const stored_member *m = &members[i];
        place[i] = (size_t)(at - out);
        at = stored_fields(stored_put(at, 0x04034b50, 4), m);
        memcpy(at, m->name, strlen(m->name));
        at += strlen(m->name);
        if (m->n_bytes) memcpy(at, m->data, m->n_bytes);
        at += m->n_bytes;
    }
    size_t list = (size_t)(at - out);
    for (int i = 0; i < n; i++) {
        const stored_member *m = &members[i];
        at = stored_fields(stored_put(stored_put(at, 0x02014b50, 4), 20, 2), m);
        at = stored_put(at, 0, 8); /* no comment, disk 0, attributes */
        at = stored_put(at, 0, 2);
        at = stored_put(at, place[i], 4);
        memcpy(at, m->name, strlen(m->name));
        at += strlen(m->name);
    }
    size_t list_bytes = (size_t)(at - out) - list;
    at = stored_put(stored_put(at, 0x06054b50, 4), 0, 4);
    at = stored_put(stored_put(at, (uint64_t)n, 2), (uint64_t)n, 2);
    at = stored_put(stored_put(at, list_bytes, 4), list, 4);
    return (size_t)(stored_put(at, 0, 2) - out);
}

#endif
