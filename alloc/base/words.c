#include "words.h"

#include <string.h>

bool kn__words_next(const char **list, char *word, size_t bytes, size_t *length) {
    const char *at = *list + strspn(*list, ",");
    *length = strcspn(at, ",");
    *list = at + *length;
    size_t kept = *length < bytes ? *length : bytes - 1;
    memcpy(word, at, kept);
    word[kept] = '\0';
    return *length > 0;
}
