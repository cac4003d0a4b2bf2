#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void kn__text_release(kn__text *text) {
    free(text->data);
    *text = (kn__text){0};
}

static bool make_room(kn__text *text, size_t more) {
    if (text->failed) return false;
    if (text->length + more + 1 <= text->size) return true;
    size_t size = text->size ? 2 * text->size : 4096;
    while (size < text->length + more + 1) size *= 2;
    char *data = realloc(text->data, size);
    text->failed = !data;
    if (!data) return false;
    text->data = data;
    text->size = size;
    return true;
}

void kn__text_add(kn__text *text, const char *bytes, size_t length) {
    if (!make_room(text, length)) return;
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void kn__text_puts(kn__text *text, const char *string) {
    kn__text_add(text, string, strlen(string));
}

void kn__text_repeat(kn__text *text, const char *string, int times) {
    for (int i = 0; i < times; i++) kn__text_puts(text, string);
}

void kn__text_printf(kn__text *text, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length > 0 && make_room(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, fmt, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

/* Bytes of the character at `s`; 0 when they are no UTF-8 or a control character. */
static int char_bytes(const char *s) {
    unsigned char c = (unsigned char)*s;
    if (c < 0x20 || c == 0x7f) return 0;
    if (c < 0x80) return 1;
    int n = c >= 0xf5 ? 0 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
    for (int i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 0;
    }
    return n;
}

int kn__text_width(const char *string) {
    int width = 0;
    for (const char *s = string; *s; width++) {
        int n = char_bytes(s);
        s += n ? n : 1;
    }
    return width;
}

void kn__text_label(kn__text *text, const char *label, int width, int padded) {
    int whole = kn__text_width(label);
    bool cut = whole > width;
    int keep = !cut ? whole : width > 3 ? width - 3 : 0;
    const char *s = label;
    for (int i = 0; i < keep; i++) {
        int n = char_bytes(s);
        kn__text_add(text, n ? s : "?", n ? (size_t)n : 1);
        s += n ? n : 1;
    }
    int used = keep;
    if (cut && width > 3) {
        kn__text_puts(text, "...");
        used += 3;
    }
    kn__text_repeat(text, " ", padded - used);
}

void kn__text_right(kn__text *text, const char *string, int width) {
    kn__text_repeat(text, " ", width - kn__text_width(string));
    kn__text_puts(text, string);
}

void kn__text_left(kn__text *text, const char *string, int width) {
    kn__text_puts(text, string);
    kn__text_repeat(text, " ", width - kn__text_width(string));
}

void kn__text_center(kn__text *text, const char *string, int width) {
    int space = width - kn__text_width(string);
    if (space < 0) space = 0;
    kn__text_repeat(text, " ", space / 2);
    kn__text_puts(text, string);
    kn__text_repeat(text, " ", space - space / 2);
}

size_t kn__path_start(char *out, size_t out_bytes) {
    out[out_bytes - 1] = '\0';
    return out_bytes - 1;
}

bool kn__path_prepend(char *out, size_t *at, const char *label) {
    size_t length = strlen(label), slash = out[*at] != '\0';
    if (length + slash > *at) return false;
    if (slash) out[--*at] = '/';
    *at -= length;
    memcpy(out + *at, label, length);
    return true;
}

void kn__path_finish(char *out, size_t out_bytes, size_t at) {
    memmove(out, out + at, out_bytes - at);
}

static kn__cell three_digits(double x, const char *unit) {
    kn__cell cell;
    if (!(fabs(x) < 1e15)) { /* not a number the table can mean anything by */
        snprintf(cell.text, sizeof cell.text, "%s%s", isnan(x) ? "nan" : "inf", unit);
        return cell;
    }
    int digits = round(x) >= 100 ? 0 : round(10 * x) >= 100 ? 1 : 2;
    snprintf(cell.text, sizeof cell.text, "%.*f%s", digits, x, unit);
    return cell;
}

kn__cell kn__cell_time(double ns, bool ascii) {
    if (ns < 1e3) return three_digits(ns, "ns");
    if (ns < 1e6) return three_digits(ns / 1e3, ascii ? "us" : "μs");
    if (ns < 1e9) return three_digits(ns / 1e6, "ms");
    return three_digits(ns / 1e9, "s");
}

kn__cell kn__cell_bytes(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    double limit = 1000, divisor = 1;
    for (; unit < 4 && bytes >= limit; unit++) {
        limit *= 1000;
        divisor *= 1024;
    }
    return three_digits(bytes / divisor, units[unit]);
}

kn__cell kn__cell_count(double n) {
    if (n >= 1e9) return three_digits(n / 1e9, "B");
    if (n >= 1e6) return three_digits(n / 1e6, "M");
    if (n >= 1e3) return three_digits(n / 1e3, "k");
    kn__cell cell;
    snprintf(cell.text, sizeof cell.text, "%.0f", n);
    return cell;
}

kn__cell kn__cell_percent(double part, double of) {
    kn__cell cell = {" - %"};
    if (of != 0) return three_digits(100 * part / of, "%");
    if (part != 0) snprintf(cell.text, sizeof cell.text, "inf %%");
    return cell;
}

static bool write_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

/* Of this process among those of a job, as its launcher says. */
static const char *rank_text(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", "RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        size_t n = rank ? strspn(rank, "0123456789") : 0;
        if (n > 0 && n < 12 && !rank[n]) return rank;
    }
    return "0";
}

bool kn__path_expand(char *out, size_t out_bytes, const char *path) {
    size_t at = 0;
    for (; *path && at + 24 < out_bytes; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            at += (size_t)snprintf(out + at, out_bytes - at, "%ld", (long)getpid());
            path++;
        } else if (path[0] == '%' && path[1] == 'r') {
            at += (size_t)snprintf(out + at, out_bytes - at, "%s", rank_text());
            path++;
        } else {
            out[at++] = *path;
        }
    }
    out[at] = '\0';
    return !*path;
}

static bool write_and_close(int fd, const kn__text *text) {
    bool ok = write_all(fd, text->data, text->length);
    int error = errno;
    if (close(fd) != 0 && ok) return false;
    errno = error;
    return ok;
}

/* A device, a pipe, or what a dangling link points at. */
static bool write_to(const char *path, const kn__text *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd >= 0 && write_and_close(fd, text);
}

/* Where no file can be made beside it: what it will take is allocated first. */
static bool overwrite(const char *path, const kn__text *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    int error = posix_fallocate(fd, 0, (off_t)text->length);
    if (!error || error == EINVAL || error == EOPNOTSUPP) {
        return write_and_close(fd, text) && truncate(path, (off_t)text->length) == 0;
    }
    close(fd);
    errno = error;
    return false;
}

/* An older report stays until the new one is complete. */
static bool replace(const char *path, const struct stat *old, const kn__text *text) {
    char beside[KN__PATH_EXPANDED_BYTES + 32];
    snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid());
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return overwrite(path, text);
    if (old) (void)fchmod(fd, old->st_mode & 07777);
    if (write_and_close(fd, text) && rename(beside, path) == 0) return true;
    int error = errno;
    unlink(beside);
    errno = error;
    return false;
}

static bool write_path(const char *path, const kn__text *text) {
    char target[PATH_MAX];
    struct stat file, link;
    bool is_there = stat(path, &file) == 0, is_named = lstat(path, &link) == 0;
    if (!is_named) return replace(path, NULL, text);
    if (!is_there || !S_ISREG(file.st_mode)) return write_to(path, text);
    return replace(realpath(path, target) ? target : path, &file, text);
}

static kn_status write_file(const kn__text *text, const char *path) {
    if (write_path(path, text)) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "cannot write the timer's report to %s: %s", path, strerror(errno));
}

kn_status kn__text_write(const kn__text *text, const char *path) {
    if (text->failed) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
    if (!text->length) return KN_OK;
    if (strcmp(path, "-") == 0) {
        if (write_all(STDERR_FILENO, text->data, text->length)) return KN_OK;
        return KN_FAIL(KN_ERR_IO, "cannot write the timer's report to stderr: %s", strerror(errno));
    }
    char full[KN__PATH_EXPANDED_BYTES];
    kn_status status =
        kn__path_expand(full, sizeof full, path)
            ? write_file(text, full)
            : KN_FAIL(KN_ERR_IO, "the path %.64s… of the timer's report is too long", path);
    if (status < 0) {
        kn__text reason = {0};
        kn__text_printf(&reason, "%s\n", kn_last_error()->message);
        if (!reason.failed) write_all(STDERR_FILENO, reason.data, reason.length);
        kn__text_release(&reason);
        write_all(STDERR_FILENO, text->data, text->length);
    }
    return status;
}
