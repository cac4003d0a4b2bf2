/* What the user's terminal can show. */
#ifndef KN_BASE_USER_LOCALE_H
#define KN_BASE_USER_LOCALE_H

#include <stdbool.h>

/* Whether the user's locale has UTF-8: reads LC_ALL, LC_CTYPE and LANG, of which the first one that
 * is set decides. It works in programs that never call setlocale(). */
bool kn__locale_is_utf8(void);

#endif
