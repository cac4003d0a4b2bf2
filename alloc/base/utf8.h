/* UTF-8, as the Unicode standard defines it. */
#ifndef KN_BASE_UTF8_H
#define KN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the bytes of the character at `s`, which ends in a zero; 0: it is not valid. */
size_t kn__utf8_bytes(const char *s);
/* Whether all characters of the text are valid. */
bool kn__utf8_is_valid(const char *text);
/* Whether it is valid and no control character. */
bool kn__utf8_is_shown(const char *s);
/* Returns the columns that this character takes on a terminal: 2 for those of East Asia and
 * pictures, 0 for marks that combine with the one before, else 1, as for a byte that is not
 * valid. */
int kn__utf8_columns(const char *s);

#endif
