#include "cells.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "utf8.h"

enum { WRAP_MIN = 20 };
static const double SHARE_MAX =
    1e15; /* beyond it is no share: a number of the profile is damaged */

int kn__text_width(const char *string) {
    int width = 0;
    for (const char *s = string; *s;) {
        size_t n = kn__utf8_bytes(s);
        width += kn__utf8_columns(s);
        s += n ? n : 1;
    }
    return width;
}

void kn__text_label(kn__text *text, const char *label, int width, int padded) {
    int whole = kn__text_width(label), used = 0;
    if (whole <= width) {
        used = kn__text_shown(text, label, whole);
    } else if (width > 3) {
        used = kn__text_shown(text, label, width - 3);
    }
    kn__text_repeat(text, " ", padded - used);
}

void kn__text_end(kn__text *text, const char *path, int columns) {
    kn__text shown = {0};
    kn__text_shown(&shown, path, INT_MAX);
    const char *at = shown.data ? shown.data : "";
    text->failed |= shown.failed;
    if (columns > 0 && kn__text_width(at) > columns) {
        while (*at && kn__text_width(at) > columns - 3) {
            size_t n = kn__utf8_bytes(at);
            at += n ? n : 1;
        }
        kn__text_puts(text, "...");
    }
    kn__text_puts(text, at);
    kn__text_release(&shown);
}

void kn__text_wrapped(kn__text *text, kn__text *lines, int width) {
    if (width <= 0 || lines->failed) {
        kn__text_puts(text, lines->data ? lines->data : "");
    } else if (lines->length) {
        kn__text_wrap(text, lines->data, 1, 0, width > WRAP_MIN ? width : WRAP_MIN);
    }
    text->failed |= lines->failed;
    kn__text_release(lines);
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

bool kn__path_prepend(char *out, size_t *at, const char *label, bool is_last) {
    size_t length = strlen(label);
    if (length + !is_last > *at) return false;
    if (!is_last) out[--*at] = '/';
    for (size_t i = length; i > 0; i--) out[--*at] = label[i - 1];
    return true;
}

void kn__path_finish(char *out, size_t out_bytes, size_t at) {
    memmove(out, out + at, out_bytes - at);
}

kn__quantity kn__count_cell(double n) {
    if (n >= 1e9) return kn__three_digits(n / 1e9, "B");
    if (n >= 1e6) return kn__three_digits(n / 1e6, "M");
    if (n >= 1e3) return kn__three_digits(n / 1e3, "k");
    kn__quantity cell;
    snprintf(cell.text, sizeof cell.text, "%.0f", n);
    return cell;
}

kn__quantity kn__rate_cell(double per_s) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    for (; per_s >= 1e3 && i < 5; i++) per_s /= 1e3;
    return kn__three_digits(per_s, units[i]);
}

kn__quantity kn__percent_cell(double part, double of) {
    double percent = 100 * part / of;
    if (fabs(percent) < SHARE_MAX) return kn__three_digits(percent, "%");
    return (kn__quantity){" - %"};
}

static kn_status write_file(const kn__text *text, const char *path) {
    char full[KN__PATH_EXPANDED_BYTES];
    if (!kn__path_expand(full, sizeof full, path)) {
        return KN_FAIL(KN_ERR_IO, "the path %.64s... of the timer's report is too long", path);
    }
    int error = kn__file_write(full, text->data, text->length);
    if (!error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "cannot write the timer's report to %s: %s", full, strerror(error));
}

kn_status kn__text_write_only(const kn__text *text, const char *path) {
    if (text->failed) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
    if (!text->length) return KN_OK;
    if (strcmp(path, "-") == 0) {
        int error = kn__stderr_write(text->data, text->length);
        if (!error) return KN_OK;
        return KN_FAIL(KN_ERR_IO, "cannot write the timer's report to stderr: %s", strerror(error));
    }
    return write_file(text, path);
}

kn_status kn__text_write(const kn__text *text, const char *path) {
    kn_status status = kn__text_write_only(text, path);
    if (status == KN_ERR_IO && strcmp(path, "-") != 0) {
        kn__text reason = {0};
        kn__text_printf(&reason, "%s\n", kn_last_error()->message);
        if (!reason.failed) (void)kn__stderr_write(reason.data, reason.length);
        kn__text_release(&reason);
        (void)kn__stderr_write(text->data, text->length);
    }
    return status;
}
