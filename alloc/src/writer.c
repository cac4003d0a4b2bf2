#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

kn__writer kn__writer_of(char *buffer, size_t bytes) {
    buffer[0] = '\0';
    return (kn__writer){.room = bytes, .data = buffer};
}

kn__writer kn__writer_paged(bool json) { return (kn__writer){.paged = true, .json = json}; }

/* ---- text ---- */

static bool grow(kn__writer *w, size_t bytes) {
    size_t room = w->room ? 2 * w->room : (size_t)64 << 10;
    while (room < bytes) room *= 2;
    void *data = w->room
                     ? mremap(w->data, w->room, room, MREMAP_MAYMOVE)
                     : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
    w->data = data;
    w->room = room;
    return true;
}

static void put(kn__writer *w, const char *text, size_t length) {
    if (w->cut) return;
    if (length >= w->room - w->n && !(w->paged && grow(w, w->n + length + 1))) {
        w->cut = true;
        length = w->room ? w->room - w->n - 1 : 0;
    }
    if (!w->room) return;
    memcpy(w->data + w->n, text, length);
    w->n += length;
    w->data[w->n] = '\0';
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

kn__size_text kn__size(uint64_t bytes) {
    static const char *const formats[] = {"%.0f bytes", "%.1f KiB", "%.1f MiB", "%.2f GiB"};
    kn__size_text size;
    double n = (double)bytes;
    int unit = 0;
    for (; unit < 3 && n >= 1024; unit++) n /= 1024;
    snprintf(size.text, sizeof size.text, formats[unit], n);
    return size;
}

/* ---- values ---- */

/* In JSON: the comma before it and its name. */
static bool begin_value(kn__writer *w, const char *name) {
    char last = w->n ? w->data[w->n - 1] : '\n';
    if (!w->json) return false;
    if (last != '{' && last != '[' && last != '\n') put(w, ",", 1);
    if (name) kn__write(w, "\"%s\":", name);
    return true;
}

void kn__add(kn__writer *w, const char *name, kn__unit unit, uint64_t value) {
    static const char *const cells[] = {
        [KN__COUNT] = " %12llu", [KN__KEY] = "  %-18llu", [KN__HANDLE] = "  0x%-16llx"};
    if (begin_value(w, name)) {
        kn__write(w, value == UINT64_MAX ? "null" : "%llu", (unsigned long long)value);
    } else if (unit == KN__BYTES) {
        kn__write(w, " %12s", kn__size(value).text);
    } else if (unit == KN__NS) {
        kn__write(w, " %12.3f", (double)value / 1e6);
    } else {
        kn__write(w, cells[unit], (unsigned long long)value);
    }
}

void kn__add_flag(kn__writer *w, const char *name, bool set) {
    if (begin_value(w, name)) {
        kn__write_text(w, set ? "true" : "false");
    } else if (set) {
        kn__write(w, "  %s", name);
    }
}

/* Bytes of the UTF-8 character at `c`, as Unicode defines them; 0: it is not valid. Names that are
 * too long are cut, perhaps within a character. */
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

void kn__add_text(kn__writer *w, const char *name, int width, const char *text) {
    if (!begin_value(w, name)) {
        kn__write(w, "  %-*s", width, text);
        return;
    }
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

void kn__open(kn__writer *w, const char *name, const char *bracket) {
    if (begin_value(w, name)) {
        kn__write_text(w, bracket);
    } else if (*bracket == '{' && w->headings) {
        kn__write_text(w, w->headings);
        w->headings = NULL;
    }
}

void kn__open_list(kn__writer *w, const char *name, const char *headings) {
    w->headings = headings;
    kn__open(w, name, "[");
}

void kn__close(kn__writer *w, const char *bracket) {
    kn__write_text(w, w->json ? bracket : *bracket == '}' ? "\n" : "");
}

/* ---- files ---- */

enum { PATH_BYTES = 1024 };

bool kn__path_expand(char *out, size_t out_bytes, const char *path) {
    kn__writer w = kn__writer_of(out, out_bytes);
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            kn__write(&w, "%d", (int)getpid());
            path++;
        } else {
            put(&w, path, 1);
        }
    }
    return !w.cut;
}

int kn__write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno != EINTR) return errno;
        if (n < 0) continue;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

/* Returns 0 or an errno. */
static int save(const kn__writer *w, const char *path, bool append) {
    char target[PATH_BYTES], beside[PATH_BYTES + 32];
    struct stat old;
    if (strcmp(path, "-") == 0) return kn__write_all(STDERR_FILENO, w->data, w->n);
    if (!kn__path_expand(target, sizeof target, path)) return ENAMETOOLONG;
    bool there = lstat(target, &old) == 0;
    bool in_place = append || (there && (!S_ISREG(old.st_mode) || old.st_size == 0));
    snprintf(beside, sizeof beside, in_place ? "%s" : "%s.%d.tmp", target, (int)gettid());
    if (!in_place) (void)unlink(beside); /* of a process that was killed */
    int how = !in_place ? O_EXCL : append ? O_APPEND : O_TRUNC;
    int fd = open(beside, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    if (fd < 0) return errno;
    if (there && !in_place) (void)fchmod(fd, old.st_mode & 0777);
    int error = kn__write_all(fd, w->data, w->n);
    if (close(fd) != 0 && !error) error = errno;
    if (in_place) return error;
    if (!error && rename(beside, target) != 0) error = errno;
    if (error) (void)unlink(beside);
    return error;
}

kn_status kn__writer_save(kn__writer *w, const char *path, bool append, const char *function) {
    int error = w->cut ? ENOMEM : save(w, path, append);
    if (w->paged && w->room) munmap(w->data, w->room);
    if (!error) return KN_OK;
    return KN_FAIL(w->cut ? KN_ERR_OOM : KN_ERR_IO, "%s: cannot write %s: %s", function, path,
                   strerror(error));
}
