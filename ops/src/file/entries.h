/* What the formats of files share: the bytes of an open file and the tensors that it lists. */
#ifndef KN_FILE_ENTRIES_H
#define KN_FILE_ENTRIES_H

#include <knet/file.h>
#include <stdatomic.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they are");

/* The bytes; tensors that read them share them. */
typedef struct kn__bytes {
    _Atomic int refs;
    const uint8_t *at;
    size_t n;
    bool mapped; /* else borrowed */
} kn__bytes;

enum { KN__DTYPE_TEXT_BYTES = 24 };

typedef struct kn__entry {
    char *name;            /* owned */
    kn_dtype dtype;        /* of the tensor; 0: no kn_dtype fits */
    uint8_t element_bytes; /* in the file; fewer than the dtype's: reading widens the integers */
    bool is_unsigned;      /* of integers */
    char dtype_text[KN__DTYPE_TEXT_BYTES]; /* the file's word for it */
    kn_shape shape;
    bool is_deep;                /* more dimensions than a shape has: no shape, no dtype */
    bool fortran;                /* the first index varies fastest */
    bool swapped;                /* the bytes of each element are reversed */
    bool deflated;               /* the bytes at `offset` are */
    size_t offset, stored_bytes; /* in the file; of a zip member: all of it */
    size_t skip;                 /* zip: of the member's own bytes before the data */
    size_t size_bytes;           /* of the data */
    uint32_t crc;                /* zip: of the member */
} kn__entry;

struct kn_file {
    char *path; /* for messages */
    kn__bytes *bytes;
    kn__entry *entry;
    kn__entry **by_name; /* sorted; NULL while the entries are read, or none */
    int n, cap;
    char *(*metadata)[2];
    int n_metadata;
    bool is_zip, is_mapped; /* is_mapped: tensors may read the file's pages */
};

/* FORMAT: "PATH: …". */
#define KN__BAD(f, ...) kn__file_bad(__FILE__, __LINE__, f, __VA_ARGS__)
kn_status kn__file_bad(const char *file, int line, const kn_file *f, const char *fmt, ...)
    KN_PRINTF(4, 5);
/* A new entry, zeroed but for its name, which it takes; NULL: no memory, the error is recorded. */
kn__entry *kn__file_add(kn_file *f, char *name);
/* Converts the entry's elements at `from` to `n_bytes` of its dtype. `from` may be the last bytes
 * of `out`. */
void kn__elements_copy(uint8_t *out, size_t n_bytes, const uint8_t *from, const kn__entry *e);
/* Checks converted elements: FORMAT for a bool above 1, INVALID for an integer above INT64_MAX. */
kn_status kn__elements_check(const kn_file *f, const kn__entry *e, const uint8_t *at);
/* Elements times bytes of one; false: negative, or too large for memory. */
bool kn__file_size(size_t *out, kn_shape shape, size_t element_bytes);

/* The formats: each fills f's entries from its bytes. */
kn_status kn__npy_open(kn_file *f);
kn_status kn__zip_open(kn_file *f);
kn_status kn__safetensors_open(kn_file *f);

/* Reads the header of an array in NPY form at the first `n` bytes of `at`: dtype, shape, order, and
 * `skip`, the bytes before the data. `place` says in messages where it is. */
kn_status kn__npy_header(kn__entry *e, const kn_file *f, const char *place, const uint8_t *at,
                         size_t n);
/* How many bytes such a header says that it takes; 0: n is too few to know. */
size_t kn__npy_header_bytes(const uint8_t *at, size_t n);
enum { KN__NPY_HEADER_BYTES = 512 };
/* Writes a header; returns its bytes, or 0 for a dtype that NumPy lacks. */
size_t kn__npy_header_write(char out[KN__NPY_HEADER_BYTES], kn_dtype dtype, kn_shape shape);
/* Reads a zip member: `n` of its bytes from `from` on; all is true for its data, which is followed
 * by nothing: then the checksum is compared. */
kn_status kn__zip_read(void *out, const kn_file *f, const kn__entry *e);

/* The data on the host: the tensor's own, or a copy that *copied owns. NULL: an error is recorded,
 * or pending; an empty tensor gives a pointer too. */
const void *kn__host_bytes(void **copied, kn_tensor *t);
/* Every tensor can be read, and every name is UTF-8 and there once. */
kn_status kn__named_check(const char *who, const kn_named tensors[], int n);

static inline uint16_t kn__u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t kn__u32(const uint8_t *p) {
    return (uint32_t)kn__u16(p) | (uint32_t)kn__u16(p + 2) << 16;
}
static inline uint64_t kn__u64(const uint8_t *p) {
    return (uint64_t)kn__u32(p) | (uint64_t)kn__u32(p + 4) << 32;
}

#endif
