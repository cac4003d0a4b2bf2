/* Which labels can be compared by address.
 *
 * When a plug-in is unloaded, the next one may have another label at the same address. Addresses
 * are compared only for labels in the executable, in libraries that stay loaded (those that the
 * program was started with, and those linked with -z nodelete) and outside of libraries. Other
 * labels are compared as text.
 */
#ifndef KN_PROFILER_LABELS_H
#define KN_PROFILER_LABELS_H

#include <stdbool.h>

/* Records the libraries that the program was started with; once, when the timer is loaded. Name and
 * address: of a variable that the timer exports. */
void kn__labels_start(const char *name, const void *address);

/* Whether the label is known to lie in a library that may be unloaded; a few comparisons. */
bool kn__label_may_vanish(const char *label);
/* The same of a label that was never seen: looks at all libraries. */
bool kn__label_may_vanish_new(const char *label);

#endif
