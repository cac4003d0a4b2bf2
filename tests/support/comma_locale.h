/* A locale whose numbers have a comma. */
#ifndef KNET_COMMA_LOCALE_H
#define KNET_COMMA_LOCALE_H

#include <stdbool.h>

/* Sets LC_NUMERIC of this process to it, until setlocale(LC_NUMERIC, "C"). Its source is its own:
 * that of no language must be installed. False where glibc's localedef is missing. */
bool comma_locale_set(void);

#endif
