/* What can be read at exit, which may come in a signal handler: that has interrupted a thread
 * anywhere, also where it holds a lock. */
#ifndef KN_BASE_AT_REST_H
#define KN_BASE_AT_REST_H

#include <knet/pool.h>
#include <stdbool.h>

enum { KN__AT_REST_MS = 1000 }; /* threads that go on open a lock sooner */

/* False: the pool's lock stays held; waits so long. */
KN_API bool kn__pool_at_rest(const kn_pool *pool);

#endif
