/* UTF-8, as the Unicode standard defines it. */
#ifndef KN_BASE_UTF8_H
#define KN_BASE_UTF8_H

#include <stddef.h>

/* Returns the bytes of the character at `s`, which ends in a zero; 0: it is not valid. */
size_t kn__utf8_bytes(const char *s);

#endif
