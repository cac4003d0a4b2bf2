/* Labels that a scope may be known by through their address.
 *
 * A label of a plug-in that is unloaded leaves its address to whatever is loaded next. So the
 * address says which label it is only where nothing is ever unloaded: in what was loaded before the
 * timer, in libraries linked with -z nodelete, and outside of libraries. Other labels are compared
 * as text.
 */
#ifndef KNET_LABELS_H
#define KNET_LABELS_H

#include <stdbool.h>

/* Notes what is loaded now. */
void kn__labels_start(void);

/* Whether the label is known to lie in a library that may be unloaded; a few comparisons. */
bool kn__label_may_vanish(const char *label);
/* The same of a label that was never seen: looks at all libraries. */
bool kn__label_may_vanish_new(const char *label);

#endif
