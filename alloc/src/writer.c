#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

kn__writer kn__writer_of(char *buffer, size_t bytes) {
    buffer[0] = '\0';
    return (kn__writer){.fd = -1, .room = bytes, .data = buffer};
}

bool kn__path_expand(char *out, size_t out_bytes, const char *path) {
    kn__writer w = kn__writer_of(out, out_bytes);
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            kn__write(&w, "%d", (int)getpid());
            path++;
        } else {
            kn__write(&w, "%c", *path);
        }
    }
    return w.n + 1 < out_bytes;
}

static kn_status fail(const char *path, const char *function, int error) {
    return KN_FAIL(KN_ERR_IO, "%s: %s can't be written: %s", function, path, strerror(error));
}

kn_status kn__writer_open(kn__writer *out, const char *path, bool append, const char *function,
                          char *buffer, size_t bytes) {
    char expanded[1024];
    *out = kn__writer_of(buffer, bytes);
    if (strcmp(path, "-") == 0) {
        out->fd = STDERR_FILENO;
        return KN_OK;
    }
    if (!kn__path_expand(expanded, sizeof expanded, path))
        return fail(path, function, ENAMETOOLONG);
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
    out->fd = open(expanded, flags, 0666);
    return out->fd >= 0 ? KN_OK : fail(path, function, errno);
}

static void flush(kn__writer *w) {
    for (size_t done = 0; done < w->n && !w->error;) {
        ssize_t n = write(w->fd, w->data + done, w->n - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            w->error = errno;
        }
    }
    w->n = 0;
}

kn_status kn__writer_close(kn__writer *w, const char *path, const char *function) {
    flush(w);
    if (w->fd != STDERR_FILENO && close(w->fd) != 0 && !w->error) w->error = errno;
    w->fd = -1;
    return w->error ? fail(path, function, w->error) : KN_OK;
}

static void put(kn__writer *w, const char *text, size_t length) {
    while (length > 0) {
        if (w->n + 1 == w->room && w->fd >= 0) flush(w);
        size_t step = w->room - 1 - w->n;
        if (step == 0) return;
        if (step > length) step = length;
        memcpy(w->data + w->n, text, step);
        w->n += step;
        w->data[w->n] = '\0';
        text += step;
        length -= step;
    }
}

void kn__write_text(kn__writer *w, const char *text) { put(w, text, strlen(text)); }

void kn__write(kn__writer *w, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n > 0) put(w, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void kn__write_bytes(kn__writer *w, uint64_t bytes) {
    if (bytes < 1024) {
        kn__write(w, "%llu bytes", (unsigned long long)bytes);
    } else if (bytes < (uint64_t)1 << 20) {
        kn__write(w, "%.1f KiB", (double)bytes / 1024);
    } else if (bytes < (uint64_t)1 << 30) {
        kn__write(w, "%.1f MiB", (double)bytes / 1048576);
    } else {
        kn__write(w, "%.2f GiB", (double)bytes / 1073741824);
    }
}

/* Bytes of the UTF-8 character at `c`, as Unicode defines them; 0: it is none. Names are cut to
 * what fits, so their last character may be. */
static size_t utf8_bytes(const unsigned char *c) {
    if (c[0] < 0x80) return 1;
    size_t n = c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool beyond = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

void kn__write_json_string(kn__writer *w, const char *text) {
    put(w, "\"", 1);
    const unsigned char *c = (const unsigned char *)text;
    for (size_t n; *c; c += n ? n : 1) {
        n = utf8_bytes(c);
        if (n == 0) {
            kn__write_text(w, "\\ufffd");
        } else if (*c == '"' || *c == '\\') {
            kn__write(w, "\\%c", *c);
        } else if (*c < 0x20) {
            kn__write(w, "\\u%04x", *c);
        } else {
            put(w, (const char *)c, n);
        }
    }
    put(w, "\"", 1);
}
