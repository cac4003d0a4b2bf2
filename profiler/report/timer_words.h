/* The words of KNET_TIMER, checked before a program gets them. */
#ifndef KN_REPORT_TIMER_WORDS_H
#define KN_REPORT_TIMER_WORDS_H

#include <knet/status.h>

/* Reads a value of the variable and changes nothing. libknet_profiler has it for `knet run`.
 * Errors: INVALID for the first word that is wrong, in a message that begins with `who`. */
KN_API KN_MUST_CHECK kn_status kn__timer_words_check(const char *value, const char *who);

#endif
