#include "idx.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "checked.h"

enum { IDX_TYPE_U8 = 8, GZIP_RATIO_MAX = 1040 }; /* deflate can't expand a byte to more than 1032 */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Opens a regular file and tells its size; a directory, a device or a pipe, whose open would wait
 * for a writer, is refused here, since read would fail in ways that explain less. */
static kn_status file_open(int *out, int64_t *size_bytes, const char *path) {
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int error = errno;
        close(fd);
        return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(error));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return KN_FAIL(KN_ERR_IO, "%s: not a regular file", path);
    }
    *out = fd;
    *size_bytes = st.st_size;
    return KN_OK;
}

/* A .gz that isn't gzip would be read as plain by zlib, and blamed on its "magic number". */
static kn_status gzip_check(bool *is_gzip, int fd, int64_t size_bytes, const char *path) {
    uint8_t head[2] = {0};
    if (size_bytes == 0) return KN_FAIL(KN_ERR_FORMAT, "%s: the file is empty", path);
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    *is_gzip = n == 2 && head[0] == 0x1f && head[1] == 0x8b;
    if (ends_with(path, ".gz") && !*is_gzip)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: named .gz but not gzip: it starts with bytes %02x %02x, not 1f 8b",
                       path, head[0], head[1]);
    return KN_OK;
}

/* What zlib says of its last failure, without its own name of the file, as "<fd:3>: ". */
static const char *zlib_text(gzFile file, int *code) {
    const char *text = gzerror(file, code), *colon = strstr(text, ": ");
    return colon ? colon + 2 : text;
}

/* Reads up to size_bytes; fewer come at the end of the file. */
static kn_status read_up_to(size_t *got, gzFile file, const char *path, uint8_t *data,
                            size_t size_bytes) {
    size_t done = 0;
    while (done < size_bytes) {
        size_t want = size_bytes - done;
        int n = gzread(file, data + done, want > (1u << 24) ? 1u << 24 : (unsigned)want);
        if (n < 0) {
            int code = Z_OK;
            const char *text = zlib_text(file, &code);
            if (code == Z_ERRNO) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
            return KN_FAIL(KN_ERR_FORMAT, "%s: damaged: %s at byte %ld of the file", path, text,
                           (long)gzoffset(file));
        }
        if (n == 0) break;
        done += (size_t)n;
    }
    *got = done;
    return KN_OK;
}

static int64_t big_endian(const uint8_t b[4]) {
    return (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | (int64_t)b[3];
}

static kn_status header_read(kn__idx *idx, gzFile file, const char *path, int n_dims) {
    uint8_t head[4 + 4 * KN__IDX_DIMS_MAX];
    size_t want = 4 + 4 * (size_t)n_dims, got = 0;
    KN_TRY(read_up_to(&got, file, path, head, want));
    if (got >= 4 && (head[0] || head[1] || head[2] != IDX_TYPE_U8 || head[3] != n_dims))
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: magic number 0x%08" PRIx64
                       ", expected 0x%08x (unsigned bytes, "
                       "%d dimension%s)",
                       path, (uint64_t)big_endian(head), IDX_TYPE_U8 << 8 | n_dims, n_dims,
                       n_dims == 1 ? "" : "s");
    if (got < want)
        return KN_FAIL(KN_ERR_FORMAT, "%s: truncated: %zu bytes, the header alone has %zu", path,
                       got, want);
    idx->n_dims = n_dims;
    idx->size_bytes = 1;
    for (int i = 0; i < n_dims; i++) {
        idx->dim[i] = big_endian(head + 4 + 4 * i);
        if (__builtin_mul_overflow(idx->size_bytes, (size_t)idx->dim[i], &idx->size_bytes))
            return KN_FAIL(KN_ERR_FORMAT, "%s: dimension %d is %" PRId64 ": too large", path, i,
                           idx->dim[i]);
    }
    return KN_OK;
}

/* Refuses sizes that the file can't hold, before memory is asked for. */
static kn_status size_check(const kn__idx *idx, const char *path, int64_t file_bytes,
                            bool is_gzip) {
    size_t most = (size_t)file_bytes;
    if (is_gzip) most *= GZIP_RATIO_MAX;
    if (idx->size_bytes > most)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: the header says %zu bytes of data, more than a file of %" PRId64
                       " bytes can hold",
                       path, idx->size_bytes, file_bytes);
    return KN_OK;
}

static kn_status elements_read(kn__idx *idx, gzFile file, const char *path) {
    size_t got = 0, beyond = 0;
    uint8_t extra = 0;
    KN_TRY(read_up_to(&got, file, path, idx->data, idx->size_bytes));
    if (got < idx->size_bytes)
        return KN_FAIL(KN_ERR_FORMAT, "%s: truncated: %zu bytes of data, the header says %zu", path,
                       got, idx->size_bytes);
    /* Reading on to the end is also what makes zlib check the sum of a gzip file. */
    KN_TRY(read_up_to(&beyond, file, path, &extra, 1));
    if (beyond > 0)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: wrong size: data continues after the %zu bytes of the header", path,
                       idx->size_bytes);
    int code = Z_OK;
    const char *text = zlib_text(file, &code);
    if (code != Z_OK && code != Z_STREAM_END)
        return KN_FAIL(KN_ERR_FORMAT, "%s: truncated: %s", path, text);
    return KN_OK;
}

kn_status kn__idx_read(kn__idx *out, const char *path, int n_dims) {
    KN_ASSERT(n_dims >= 1 && n_dims <= KN__IDX_DIMS_MAX);
    kn__idx idx = {0};
    gzFile file = NULL;
    int fd = -1;
    int64_t file_bytes = 0;
    bool is_gzip = false;
    kn_status status = KN_OK;
    KN_TRY(file_open(&fd, &file_bytes, path));
    KN_TRY_GOTO(status, gzip_check(&is_gzip, fd, file_bytes, path));
    file = gzdopen(fd, "rb");
    if (!file) {
        status = KN_FAIL(KN_ERR_IO, "%s: no memory for zlib", path);
        goto cleanup;
    }
    fd = -1; /* the gzFile's now */
    gzbuffer(file, 1u << 18);
    KN_TRY_GOTO(status, header_read(&idx, file, path, n_dims));
    KN_TRY_GOTO(status, size_check(&idx, path, file_bytes, is_gzip));
    idx.data = malloc(idx.size_bytes ? idx.size_bytes : 1);
    if (!idx.data) {
        status = KN_FAIL(KN_ERR_OOM, "%s: no memory for %zu bytes of data", path, idx.size_bytes);
        goto cleanup;
    }
    KN_TRY_GOTO(status, elements_read(&idx, file, path));
    *out = idx;
    idx.data = NULL;
cleanup:
    free(idx.data);
    if (file) gzclose_r(file);
    if (fd >= 0) close(fd);
    return status;
}

void kn__idx_release(kn__idx *idx) {
    free(idx->data);
    *idx = (kn__idx){0};
}

kn_status kn__idx_find(char *out, size_t out_bytes, const char *dir, const char *stem) {
    static const char *const ends[] = {"", ".gz"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int n = snprintf(out, out_bytes, "%s/%s%s", dir, stem, ends[i]);
        if (n < 0 || (size_t)n >= out_bytes)
            return KN_FAIL(KN_ERR_IO, "the path %.80s... is longer than %zu bytes", dir, out_bytes);
        if (faccessat(AT_FDCWD, out, R_OK, AT_EACCESS) == 0) return KN_OK;
        if (errno != ENOENT) return KN_FAIL(KN_ERR_IO, "%s: %s", out, strerror(errno));
    }
    return KN_FAIL(KN_ERR_IO, "%s: neither %s nor %s.gz exists", dir, stem, stem);
}
