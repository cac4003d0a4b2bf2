#include "c_locale.h"

#include <langinfo.h>
#include <string.h>

/* glibc keeps a whole "C" ready: making it takes no lock and no memory. */
locale_t kn__c_locale_enter(void) {
    if (strcmp(nl_langinfo(RADIXCHAR), ".") == 0) return NULL;
    locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
    return c ? uselocale(c) : NULL;
}

void kn__c_locale_leave(locale_t before) {
    if (before) freelocale(uselocale(before));
}
