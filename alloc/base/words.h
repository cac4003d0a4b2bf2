/* A list of words separated by commas. */
#ifndef KN_BASE_WORDS_H
#define KN_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the next word that is not empty and moves *list behind it; returns false at the end.
 * *length is the whole word's: from `bytes` on it is too long, and `word` holds its begin. */
bool kn__words_next(const char **list, char *word, size_t bytes, size_t *length);

#endif
