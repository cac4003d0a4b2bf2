#include "units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { NANO = 1000000000 };

typedef struct unit {
    const char *text; /* NULL: the end */
    uint64_t factor;
} unit;

/* clang-format off */
static const unit bytes_units[] = {
    {"", 1},              {"B", 1},
    {"K", 1ull << 10},    {"M", 1ull << 20},    {"G", 1ull << 30},    {"T", 1ull << 40},
    {"KiB", 1ull << 10},  {"MiB", 1ull << 20},  {"GiB", 1ull << 30},  {"TiB", 1ull << 40},
    {"KB", 1000},         {"MB", 1000000},      {"GB", 1000000000},   {"TB", 1000000000000},
    {NULL, 0}};
static const unit duration_units[] = {
    {"ns", 1},            {"us", 1000},         {"ms", 1000000},      {"s", NANO},
    {"m", 60000000000},   {"min", 60000000000}, {"h", 3600000000000},
    {NULL, 0}};
/* clang-format on */
static const unit billionths[] = {{"", NANO}, {NULL, 0}};
static const unit percents[] = {{"", NANO}, {"%", NANO}, {NULL, 0}};
static const unit counts[] = {{"", 1}, {NULL, 0}};

static bool read_number(uint64_t *out, const char *text, const unit *u) {
    char *end;
    uint64_t nano = 0, digit = NANO / 10, n;
    errno = 0;
    if (*text < '0' || *text > '9') return false;
    uint64_t whole = strtoull(text, &end, 10);
    if (errno) return false;
    bool has_point = *end == '.';
    if (has_point) {
        for (end++; *end >= '0' && *end <= '9' && digit; end++, digit /= 10) {
            nano += digit * (uint64_t)(*end - '0');
        }
        if (end[-1] == '.') return false;
    }
    while (u->text && strcmp(u->text, end) != 0) u++;
    if (!u->text || (has_point && u->factor == 1)) return false; /* half a byte */
    uint64_t rest = u->factor / NANO * nano + u->factor % NANO * nano / NANO;
    if (__builtin_mul_overflow(whole, u->factor, &n) || __builtin_add_overflow(n, rest, &n)) {
        errno = ERANGE;
        return false;
    }
    *out = n;
    return true;
}

bool kn__read_bytes(uint64_t *out, const char *text) { return read_number(out, text, bytes_units); }

bool kn__read_duration(uint64_t *out_ns, const char *text) {
    return read_number(out_ns, text, duration_units);
}

bool kn__read_percent(double *out, const char *text) {
    uint64_t n;
    if (!read_number(&n, text, percents) || n > 100 * (uint64_t)NANO) return false;
    *out = (double)n / NANO;
    return true;
}

bool kn__read_billionths(uint64_t *out, const char *text) {
    return read_number(out, text, billionths);
}

bool kn__read_count(uint64_t *out, const char *text) { return read_number(out, text, counts); }

kn__quantity kn__three_digits(double x, const char *suffix) {
    kn__quantity q;
    if (!(fabs(x) < 1e15)) {
        snprintf(q.text, sizeof q.text, "%s%s", isnan(x) ? "nan" : "inf", suffix);
        return q;
    }
    int digits = round(x) >= 100 ? 0 : round(10 * x) >= 100 ? 1 : 2;
    kn__text text = kn__text_in(q.text, sizeof q.text);
    kn__text_printf(&text, "%.*f%s", digits, x, suffix);
    return q;
}

/* The unit changes at powers of 1000; each of the n is `step` times the one before. */
static kn__quantity in_units(double x, double step, const char *const units[], int n) {
    int i = 0;
    double limit = 1000, divisor = 1;
    for (; i < n - 1 && x >= limit; i++) {
        limit *= 1000;
        divisor *= step;
    }
    return kn__three_digits(x / divisor, units[i]);
}

kn__quantity kn__bytes_text(double bytes) {
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB"};
    if (bytes >= 1000 || bytes < 0) return in_units(bytes, 1024, units, 5);
    kn__quantity q;
    snprintf(q.text, sizeof q.text, "%.0f bytes", bytes);
    return q;
}

kn__quantity kn__bytes_cell(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return in_units(bytes, 1024, units, 5);
}

kn__quantity kn__time_text(double ns, bool ascii) {
    return in_units(ns, 1000, (const char *const[]){" ns", ascii ? " us" : " μs", " ms", " s"}, 4);
}

kn__quantity kn__time_cell(double ns, bool ascii) {
    return in_units(ns, 1000, (const char *const[]){"ns", ascii ? "us" : "μs", "ms", "s"}, 4);
}
