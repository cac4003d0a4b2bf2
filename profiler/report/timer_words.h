/* What `knet run` does with KNET_TIMER, whose words are for the program that it starts. */
#ifndef KN_REPORT_TIMER_WORDS_H
#define KN_REPORT_TIMER_WORDS_H

#include <knet/status.h>

/* Reads a value of the variable and changes nothing.
 * Errors: INVALID for the first word that is wrong, in a message that begins with `who`. */
KN_API KN_MUST_CHECK kn_status kn__timer_words_check(const char *value, const char *who);
/* This process writes no report at its exit: one that starts no program would replace the files of
 * an earlier program. */
KN_API void kn__timer_pass_on(void);

#endif
