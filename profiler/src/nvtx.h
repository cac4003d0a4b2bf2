/* Ranges for tools that listen to NVTX (Nsight Systems and the like), in the domain "knet".
 *
 * Compiled from nvtx.c where the headers of NVTX are, else from nvtx_none.c: then nobody listens.
 */
#ifndef KN_PROFILER_NVTX_H
#define KN_PROFILER_NVTX_H

#include "tree.h"

/* Makes the domain. Whether a tool listens; without one nothing is loaded and no range is sent. */
bool kn__nvtx_start(void);

/* Opens the range of a scope; its name is registered with the tool at first sight. */
void kn__nvtx_push(kn__node *node);
/* Closes the innermost range of this thread. */
void kn__nvtx_pop(void);

#endif
