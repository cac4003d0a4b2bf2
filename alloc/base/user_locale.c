#include "user_locale.h"

#include <stdlib.h>
#include <strings.h>

bool kn__locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = NULL;
    for (int i = 0; i < 3 && !(locale && *locale); i++) locale = getenv(names[i]);
    for (; locale && *locale; locale++) {
        if (strncasecmp(locale, "UTF-8", 5) == 0 || strncasecmp(locale, "UTF8", 4) == 0)
            return true;
    }
    return false;
}
