/* The allocator alone: a pool in front of a device. Links libknet_alloc and nothing else of Knet.c.
 *
 *     ./02_pool            on the CPU
 *     ./02_pool cuda       on the first GPU
 */
#include <knet/pool.h>
#include <stdio.h>

enum { MIB = 1 << 20 };

static kn_status work(kn_pool *pool) {
    kn_pool_stats before, after;
    kn_pool_stats_read(&before, sizeof before, pool);
    for (int i = 0; i < 1000; i++) {
        void *x = NULL, *y = NULL;
        KN_TRY(kn_alloc(&x, pool, 8 * MIB, NULL)); /* NULL: the default stream */
        KN_TRY(kn_alloc(&y, pool, 300, NULL));
        kn_free(pool, x); /* at once: the stream's order keeps work in flight safe */
        kn_free(pool, y);
    }
    kn_pool_stats_read(&after, sizeof after, pool);
    printf("%llu allocations, %llu of them reached the device\n",
           (unsigned long long)(after.n_allocs - before.n_allocs),
           (unsigned long long)(after.n_device_allocs - before.n_device_allocs));
    return KN_OK;
}

/* Beyond its limit a pool returns an error with the owners of memory, and stays usable. */
static kn_status overflow(kn_pool *pool) {
    void *x = NULL;
    if (kn_alloc(&x, pool, 100 * MIB, NULL) == KN_ERR_OOM)
        printf("as expected: %s\n", kn_last_error()->message);
    KN_TRY(kn_alloc(&x, pool, MIB, NULL));
    return kn_free(pool, x);
}

int main(int argc, char **argv) {
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    kn_pool_options options = {.limit_bytes = 64 * MIB, .name = "example"};
    kn_status status = kn_device_find(&device, argc > 1 ? argv[1] : "cpu");
    if (status == KN_OK) status = kn_pool_create(&pool, device, &options);
    if (status == KN_OK) status = work(pool);
    if (status == KN_OK) status = overflow(pool);
    if (status < 0) fprintf(stderr, "%s\n", kn_last_error()->message);
    kn_pool_destroy(pool);
    return status == KN_OK ? 0 : 1;
}
