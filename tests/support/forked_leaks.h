/* For programs that fork while threads run, in one of their sources: leaks of the child are not
 * looked for. A lock of AddressSanitizer's allocator that another thread held when the process
 * forked stays locked in the child, whose exit would wait for it. */
#ifndef KN_FORKED_LEAKS_H
#define KN_FORKED_LEAKS_H

#ifdef __SANITIZE_ADDRESS__
#include <sys/types.h>
#include <unistd.h>

static pid_t first_process;
__attribute__((constructor)) static void note_first_process(void) { first_process = getpid(); }

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return getpid() != first_process; }
#endif

#endif
