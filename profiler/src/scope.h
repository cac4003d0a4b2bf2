/* What the rest of the library does with scopes beside opening them. */
#ifndef KN_PROFILER_SCOPE_H
#define KN_PROFILER_SCOPE_H

#include "tree.h"

/* Closes this thread's innermost scope if its label stands at this address. */
void kn__scope_end_key(const char *key);

/* Adds a call of `spent` ticks to a node of this thread's tree, which need not be open. */
void kn__scope_add_call(kn__tree *tree, kn__tree_node *node, uint64_t spent);

/* Closes all that is open in a tree; on the thread that owns it. */
void kn__scope_close_all(kn__tree *tree);

#endif
