/* Numbers with a decimal point, whatever locale the program set. */
#ifndef KN_BASE_C_LOCALE_H
#define KN_BASE_C_LOCALE_H

#include <locale.h>

/* Between the two the calling thread prints and scans numbers as in the locale "C". They cost next
 * to nothing where its own locale has a point. Leave with what enter returned. */
locale_t kn__c_locale_enter(void);
void kn__c_locale_leave(locale_t before);

#endif
