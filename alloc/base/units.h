/* Bytes and durations as people write them. */
#ifndef KN_BASE_UNITS_H
#define KN_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* Readers take digits, perhaps with one to nine decimals, and a unit at once after them; they don't
 * ask the locale. Bytes and ns have no decimals. For any other text, and for numbers beyond 64
 * bits, they return false and leave *out unchanged; for the latter errno is ERANGE, else 0. */

/* "512MiB", "512M", "1.5G", "4096": K, M, G, T are 1024 and so on, like KiB …; KB, MB, GB, TB are
 * 1000 and so on. */
bool kn__read_bytes(uint64_t *out, const char *text);
#define KN__BYTES_UNITS "K, M, G, T (or KiB, MiB, GiB, TiB), KB, MB, GB, TB or B"
/* "500ms", "30s", "5min" or "5m", "1h", also us, ns: in nanoseconds. */
bool kn__read_duration(uint64_t *out_ns, const char *text);
#define KN__DURATION_UNITS "ns, us, ms, s, m (or min) or h"
/* "0.1" or "0.1%", up to 100. */
bool kn__read_percent(double *out, const char *text);
/* "0.9": in billionths. */
bool kn__read_billionths(uint64_t *out, const char *text);
/* A whole number. */
bool kn__read_count(uint64_t *out, const char *text);

typedef struct kn__quantity {
    char text[24];
} kn__quantity;

/* "300 bytes", "1.50 KiB", "24.2 MiB": three digits; the unit changes at powers of 1000. */
kn__quantity kn__bytes_text(double bytes);
/* The same without a space, for tables: "300B", "24.2MiB". */
kn__quantity kn__bytes_cell(double bytes);
/* "812 ns", "1.23 ms", "4.00 s": three digits; the unit changes at powers of 1000. ascii: "us". */
kn__quantity kn__time_text(double ns, bool ascii);
/* The same without a space, for tables: "1.23ms". */
kn__quantity kn__time_cell(double ns, bool ascii);
/* "1.23" and the unit, as all of these have it; "nan" or "inf" and the unit for values that are not
 * below 1e15. */
kn__quantity kn__three_digits(double x, const char *suffix);

#endif
