/* Calls <knet/rmm.hpp> as RMM's containers do: through device_memory_resource, or by the concept of
 * newer versions. Compiled once for each. */
#ifndef KNET_RMM_CALLER_H
#define KNET_RMM_CALLER_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rmm_outcome { RMM_OK, RMM_OUT_OF_MEMORY, RMM_BAD_ALLOC } rmm_outcome;

/* The resource of "cuda:N" becomes the one of the calls below. */
rmm_outcome rmm_open(int device);
rmm_outcome rmm_allocate(void **out, size_t size, kn_stream stream);
void rmm_deallocate(void *ptr, size_t size, kn_stream stream);
kn_pool *rmm_pool(void);
/* A copy, and a resource of the same pool, are equal to it; one of another device isn't. */
bool rmm_compares_equal(void);
const char *rmm_what(void);

#ifdef __cplusplus
}
#endif
#endif
