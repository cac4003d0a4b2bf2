/* The words of KNET_ALLOC, checked before a program gets them. */
#ifndef KN_BASE_ALLOC_WORDS_H
#define KN_BASE_ALLOC_WORDS_H

#include <knet/status.h>

/* Reads a value of the variable and changes nothing. libknet_alloc has it for `knet run`. Errors:
 * INVALID for the first word that is wrong, in a message that begins with `who`. */
KN_API KN_MUST_CHECK kn_status kn__alloc_words_check(const char *value, const char *who);

#endif
