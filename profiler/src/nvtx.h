/* Ranges for tools that listen to NVTX (Nsight Systems and the like), in the domain "knet".
 *
 * Compiled from nvtx.c where the headers of NVTX are, else from nvtx_none.c: then nobody listens.
 */
#ifndef KNET_NVTX_H
#define KNET_NVTX_H

#include "tree.h"

/* Makes the domain. Whether a tool listens; without one nothing is loaded and no range is sent. */
bool kn__nvtx_start(void);

/* Opens and closes the range of a scope; its name is registered with the tool at first sight.
 * The pair nests by thread, as scopes do. */
void kn__nvtx_push(kn__node *node);
void kn__nvtx_pop(kn__node *node);

#endif
