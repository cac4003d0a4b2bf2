/* Reads JSON from its begin to its end, piece by piece; strict. */
#ifndef KN_FILE_JSON_SCAN_H
#define KN_FILE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kn__json_scan {
    const char *begin, *at, *end;
    bool no_memory; /* for a string */
} kn__json_scan;

/* Skips spaces, and this character if it is next. */
bool kn__json_take(kn__json_scan *j, char c);
/* A string, from malloc; NULL: no string follows, it is not valid UTF-8, it has a zero character,
 * or, if no_memory is set, there is no memory. */
char *kn__json_string(kn__json_scan *j);
/* A whole number, without sign, fraction or exponent. */
bool kn__json_number(kn__json_scan *j, uint64_t *out);

#endif
