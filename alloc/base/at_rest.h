/* Locks at exit, which a signal handler may call: it may have interrupted a thread that holds one,
 * which then never opens. */
#ifndef KN_BASE_AT_REST_H
#define KN_BASE_AT_REST_H

#include <knet/pool.h>
#include <stdbool.h>

enum { KN__AT_REST_MS = 1000 }; /* other threads open a lock sooner */

/* Waits up to that time for the pool's lock. False: it is still held. */
KN_API bool kn__pool_at_rest(const kn_pool *pool);

#endif
