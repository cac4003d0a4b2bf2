/* What knet.py prints: a pool with blocks in each state. */
#include <knet/device_driver.h>
#include <knet/pool.h>
#include <knet/sim.h>

enum { MIB = 1 << 20 };

static void *take(kn_pool *pool, size_t bytes, kn_stream stream) {
    void *ptr = NULL;
    return kn_alloc(&ptr, pool, bytes, stream) < 0 ? NULL : ptr;
}

int main(void) {
    kn_sim *sim = NULL;
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    kn_stream a = NULL, b = NULL;
    const kn_pool_options options = {.name = "watched"};
    if (kn_sim_create(&sim, NULL) < 0) return 1;
    if (kn_device_register(&device, "sim7", kn_sim_driver(sim), sim) < 0) return 1;
    if (kn_pool_create(&pool, device, &options) < 0) return 1;
    if (kn_stream_create(&a, device) < 0 || kn_stream_create(&b, device) < 0) return 1;
    void *small = take(pool, 1000, a), *live = take(pool, 3 * MIB, a), *freed = take(pool, MIB, a);
    void *keep = take(pool, MIB, b), *waits = take(pool, 2 * MIB, a);
    if (!small || !live || !freed || !keep || !waits) return 1;
    if (kn_block_use(pool, waits, b) < 0) return 1;
    (void)kn_free(pool, waits);
    (void)kn_free(pool, freed);
    kn_pool_destroy(pool); /* the debugger stops here */
    return 0;
}
