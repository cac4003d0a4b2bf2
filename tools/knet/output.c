#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

kn_status kn__output_begin(kn__output *r, bool live) {
    *r = (kn__output){.live = live};
    r->kept = open_memstream(&r->text, &r->text_bytes);
    return r->kept ? KN_OK : KN_FAIL(KN_ERR_OOM, "no memory for the report");
}

void kn__output_line(kn__output *r, const char *fmt, ...) {
    if (!r->live) return;
    va_list args;
    va_start(args, fmt);
    vfprintf(r->kept, fmt, args);
    va_end(args);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    errno = 0;
    if (fflush(stdout) != 0 && errno == EPIPE) r->reader_gone = true;
}

bool kn__output_end(kn__output *r, const char *command) {
    fclose(r->kept);
    errno = 0;
    if (!r->live) fputs(r->text, stdout);
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (errno == EPIPE) r->reader_gone = true;
    if (!written && !r->reader_gone)
        fprintf(stderr, "%s: standard output can't be written%s%s; the result:\n%s", command,
                errno ? ": " : "", errno ? strerror(errno) : "", r->text);
    free(r->text);
    *r = (kn__output){0};
    return written;
}

void kn__json_number(FILE *out, double value) {
    if (isfinite(value)) {
        fprintf(out, "%.17g", value);
    } else {
        fputs("null", out);
    }
}

void kn__json_string(FILE *out, const char *string) {
    kn__text text = {0};
    kn__text_json(&text, string);
    fputs(text.failed ? "null" : text.data, out);
    kn__text_release(&text);
}

char *kn__count_text(char *out, size_t out_bytes, int64_t count) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%" PRId64, count);
    size_t at = 0;
    for (int i = 0; i < n && at + 2 < out_bytes; i++) {
        if (i > 0 && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}
