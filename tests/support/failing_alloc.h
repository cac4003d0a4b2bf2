/* For tests in which allocations of the device fail: the program's own kn_alloc, which stands
 * before the library's. Include it in one file of a program that is linked to shared libraries. */
#ifndef KNET_FAILING_ALLOC_H
#define KNET_FAILING_ALLOC_H

#include <dlfcn.h>
#include <knet/pool.h>
#include <stdbool.h>
#include <string.h>

static int fail_at, n_allocs; /* fail_at 0: never */
static bool once;             /* that one alone; else all from it on */

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream);
    static alloc_fn real;
    if (!real) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&real, &symbol, sizeof real); /* ISO C has no cast for it */
    }
    n_allocs++;
    if (fail_at && (once ? n_allocs == fail_at : n_allocs >= fail_at))
        return KN_FAIL(KN_ERR_OOM, "scripted failure of allocation %d", n_allocs);
    return real(out, pool, size_bytes, stream);
}

#endif
