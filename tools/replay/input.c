#include "input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool is_standard_input(const char *path) { return strcmp(path, "-") == 0; }

const char *kn__input_name(const char *path) {
    return is_standard_input(path) ? "standard input" : path;
}

static gzFile standard_input_open(void) {
    int fd = dup(STDIN_FILENO);
    gzFile file = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (!file && fd >= 0) close(fd);
    return file;
}

kn_status kn__input_open(kn__input *in, const char *path) {
    in->name = kn__input_name(path);
    in->offset = 0;
    in->at = in->n = 0;
    in->end = false;
    errno = 0;
    in->file = is_standard_input(path) ? standard_input_open() : gzopen(path, "rb");
    if (in->file) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "%s: %s", in->name, errno ? strerror(errno) : "no memory to read it");
}

void kn__input_close(kn__input *in) {
    if (in->file) gzclose(in->file);
    in->file = NULL;
}

static kn_status read_failed(const kn__input *in) {
    int code = Z_OK;
    const char *text = gzerror(in->file, &code);
    if (code == Z_ERRNO) return KN_FAIL(KN_ERR_IO, "%s: %s", in->name, strerror(errno));
    if (code == Z_BUF_ERROR) {
        return KN_FAIL(KN_ERR_FORMAT, "%s: the gzip data end early, after %llu bytes", in->name,
                       (unsigned long long)(in->offset + in->n - in->at));
    }
    return KN_FAIL(KN_ERR_FORMAT, "%s: bad gzip data: %s", in->name, text);
}

/* Until at least n bytes are in the buffer, or the file ends. */
static kn_status fill(kn__input *in, size_t n) {
    memmove(in->buffer, in->buffer + in->at, in->n - in->at);
    in->n -= in->at;
    in->at = 0;
    while (in->n < n && !in->end) {
        int got = gzread(in->file, in->buffer + in->n, (unsigned)(sizeof in->buffer - in->n));
        int code = Z_OK;
        if (got > 0) in->n += (size_t)got;
        if (got <= 0) gzerror(in->file, &code);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) return read_failed(in);
        in->end = got == 0;
    }
    return KN_OK;
}

kn_status kn__input_peek(const unsigned char **out, size_t *got, kn__input *in, size_t n) {
    if (in->n - in->at < n) KN_TRY(fill(in, n));
    *out = in->buffer + in->at;
    *got = in->n - in->at < n ? in->n - in->at : n;
    return KN_OK;
}

kn_status kn__input_read(kn__input *in, void *out, uint64_t n) {
    unsigned char *to = out;
    while (n) {
        const unsigned char *bytes;
        size_t got, want = n < sizeof in->buffer ? (size_t)n : sizeof in->buffer;
        KN_TRY(kn__input_peek(&bytes, &got, in, want));
        if (got == 0) {
            return KN_FAIL(KN_ERR_FORMAT, "%s: the file ends at byte %llu, %llu bytes early",
                           in->name, (unsigned long long)in->offset, (unsigned long long)n);
        }
        if (to) {
            memcpy(to, bytes, got);
            to += got;
        }
        in->at += got;
        in->offset += got;
        n -= got;
    }
    return KN_OK;
}
